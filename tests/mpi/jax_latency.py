"""Times of psum between 2 processes of JAX, as JSON, in microseconds: a jitted call, and each further psum in it.

    jax_latency.py mpi|gloo

Exact results are checked. Then a data-parallel step of a small model must give what one process gives."""

import json
import os
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
jax.config.update("jax_cpu_collectives_implementation", sys.argv[1])
jax.distributed.initialize(f"127.0.0.1:{os.environ['MASTER_PORT']}", num_processes=world, process_id=rank)

from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402  # after the processes have met

mesh, rows = Mesh(np.array(jax.devices()), ("ranks",)), PartitionSpec("ranks")
FEW, MANY = 1, 51


def shared(whole):
    return jax.make_array_from_callback(whole.shape, NamedSharding(mesh, rows), lambda index: whole[index])


def mapped(function, ins, outs):
    return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=ins, out_specs=outs, check_vma=False))


def sums(count):

    def function(block):
        for _ in range(count):
            block = jax.lax.psum(block, "ranks") / world
        return block

    return mapped(function, rows, rows)


def seconds(function, data):
    best = float("inf")
    for _ in range(20):
        began = time.perf_counter()
        for _ in range(5):
            result = function(data)
        result.block_until_ready()
        best = min(best, (time.perf_counter() - began) / 5)
    np.testing.assert_array_equal(result.addressable_shards[0].data, 1)
    return best


times = {}
few, many = sums(FEW), sums(MANY)
for size in (8, 1 << 10, 1 << 14, 1 << 16):
    data = shared(np.ones(size // 4 * world, np.float32))
    once = seconds(few, data)
    times[f"a jitted call with one psum of {size:,} B"] = once * 1e6
    times[f"each further psum of {size:,} B"] = (seconds(many, data) - once) / (MANY - FEW) * 1e6

# Two layers, mean squared error.
draw = np.random.default_rng(1)
weights = [draw.normal(size=shape).astype(np.float32) for shape in ((8, 32), (32, 1))]
inputs, targets = draw.normal(size=(64, 8)).astype(np.float32), draw.normal(size=(64, 1)).astype(np.float32)


def loss(parameters, x, y):
    return jnp.mean((jnp.tanh(x @ parameters[0]) @ parameters[1] - y)**2)


def step(parameters, x, y, mean=lambda gradient: jax.lax.pmean(gradient, "ranks")):
    return [p - 0.1 * mean(g) for p, g in zip(parameters, jax.grad(loss)(parameters, x, y))]


train = mapped(step, (PartitionSpec(), rows, rows), PartitionSpec())
ours, alone = weights, weights
for _ in range(5):
    ours = [np.asarray(p.addressable_shards[0].data) for p in train(ours, shared(inputs), shared(targets))]
    alone = step(alone, inputs, targets, mean=lambda gradient: gradient)
for one, other in zip(ours, alone):
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
if rank == 0:
    print(json.dumps(times))
