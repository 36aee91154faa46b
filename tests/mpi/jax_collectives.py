"""JAX's collectives between processes, through MPITRAMPOLINE_LIB: exact results of psum, all_gather, psum_scatter, ppermute.
A rank of rondo-run --mpi; each is one process of JAX with one device."""

import os

import jax
import numpy as np

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
jax.config.update("jax_cpu_collectives_implementation", "mpi")
# JAX's own coordinator needs a port; the launcher's is that of Rondo's rank 0, which listens elsewhere on one host.
jax.distributed.initialize(f"127.0.0.1:{os.environ['MASTER_PORT']}", num_processes=world, process_id=rank)

from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402  # after the processes have met

mesh = Mesh(np.array(jax.devices()), ("ranks",))
rows = PartitionSpec("ranks")
blocks = np.arange(world * world * 4, dtype=np.float32).reshape(world, world, 4)  # exact sums
whole = blocks.reshape(world * world, 4)
shared = jax.make_array_from_callback(whole.shape, NamedSharding(mesh, rows), lambda index: whole[index])


def every(block):
    ring = [(r, (r + 1) % world) for r in range(world)]
    return (jax.lax.psum(block, "ranks"), jax.lax.all_gather(block, "ranks", tiled=True),
            jax.lax.psum_scatter(block, "ranks", tiled=True), jax.lax.ppermute(block, "ranks", ring))


outputs = (PartitionSpec(), PartitionSpec(), rows, rows)
called = jax.jit(jax.shard_map(every, mesh=mesh, in_specs=rows, out_specs=outputs, check_vma=False))(shared)
psum, gathered, scattered, permuted = (np.asarray(result.addressable_shards[0].data) for result in called)
np.testing.assert_array_equal(psum, blocks.sum(0))
np.testing.assert_array_equal(gathered, whole)
np.testing.assert_array_equal(scattered, blocks.sum(0)[rank:rank + 1])
np.testing.assert_array_equal(permuted, blocks[rank - 1])
print(f"rank {rank} of {world}: JAX's collectives are right")
