"""Training by torch's own means over the backend: what ranks train together is what one process trains alone."""

import copy

import pytest
import ranks
import torch
import torch.distributed as dist
from made import equal
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

SAMPLES, FEATURES, BATCH = 2048, 20, 32


def dataset():
    generator = torch.Generator().manual_seed(7)
    inputs = torch.randn(SAMPLES, FEATURES, generator=generator)
    targets = inputs @ torch.randn(FEATURES, 1, generator=generator) + 0.5
    return torch.utils.data.TensorDataset(inputs, targets)


def seeded(make, seed=3):
    torch.manual_seed(seed)
    return make()


def flat(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def equal_on_all_ranks(tensor):
    """Bit for bit."""
    everyone = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, tensor)
    for other in everyone:
        equal(other, everyone[0], "parameters of the ranks")


def close(given, expected, tolerance=1e-5):
    torch.testing.assert_close(given, expected, rtol=tolerance, atol=tolerance)


def test_ddp_is_one_process():
    """Linear(20, 1), 2048 samples, 2 ranks, 2 epochs of 32 steps: as one process on both ranks' batches."""
    ranks.run(2, ddp_linear)


def ddp_linear(rank):
    data = dataset()
    model = seeded(lambda: nn.Linear(FEATURES, 1))
    alone, start = copy.deepcopy(model), flat(model)
    trained = DDP(model)
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.01)
    optimizer_alone = torch.optim.SGD(alone.parameters(), lr=0.01)
    samplers = [torch.utils.data.DistributedSampler(data, 2, r, shuffle=True, seed=5) for r in range(2)]
    loaders = [torch.utils.data.DataLoader(data, BATCH, sampler=sampler) for sampler in samplers]
    for epoch in range(2):
        for sampler in samplers:
            sampler.set_epoch(epoch)
        assert len(loaders[rank]) == 32
        for batches in zip(*loaders, strict=True):
            train(trained, optimizer, *batches[rank])
            train(alone, optimizer_alone, *(torch.cat(parts) for parts in zip(*batches, strict=True)))
    assert (flat(model) - start).abs().max() > 0.1
    equal_on_all_ranks(flat(model))
    close(flat(model), flat(alone))


def train(model, optimizer, inputs, targets):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


class Branches(nn.Module):
    """One branch is used, as the step says."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(FEATURES, 8), nn.Linear(FEATURES, 8), nn.Linear(8, 1)

    def forward(self, inputs, branch=0):
        return self.last(torch.relu(self.second(inputs) if branch else self.first(inputs)))


def rank_batch(rank, step, world=2):
    generator = torch.Generator().manual_seed(100 * step)
    inputs = torch.randn(world * 8, FEATURES, generator=generator)
    return inputs[rank * 8 : rank * 8 + 8], inputs


@pytest.mark.parametrize(
    "options", ({}, {"static_graph": True}, {"gradient_as_bucket_view": True, "bucket_cap_mb": 0.0001})
)
def test_ddp_options(options):
    ranks.run(2, ddp_options, options)


def ddp_options(rank, options):
    model = seeded(Branches)
    alone = copy.deepcopy(model)
    alternates = "static_graph" not in options  # the branch that is used
    wrapped = DDP(model, find_unused_parameters=True, **options)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (wrapped, alone)]
    for step in range(6):
        branch = step % 2 if alternates else 0
        mine, everyone = rank_batch(rank, step)
        for trained, optimizer, inputs in zip((wrapped, alone), optimizers, (mine, everyone), strict=True):
            optimizer.zero_grad(set_to_none=False)
            trained(inputs, branch).pow(2).mean().backward()
            optimizer.step()
    equal_on_all_ranks(flat(model))
    close(flat(model), flat(alone))


@ranks.on(2)
def test_ddp_no_sync_and_join(rank):
    model = seeded(lambda: nn.Linear(FEATURES, 1))
    alone = copy.deepcopy(model)
    wrapped = DDP(model)
    mine, everyone = rank_batch(rank, 0)
    again, everyone_again = rank_batch(rank, 1)
    with wrapped.no_sync():
        wrapped(mine).sum().backward()
    wrapped(again).sum().backward()
    for inputs in (everyone, everyone_again):
        (alone(inputs).sum() / 2).backward()
    close(model.weight.grad, alone.weight.grad)

    # Rank 0 has 3 batches, rank 1 has 5.
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.01)
    steps = 0
    with wrapped.join():
        for step in range(3 + 2 * rank):
            optimizer.zero_grad()
            wrapped(rank_batch(rank, step)[0]).pow(2).mean().backward()
            optimizer.step()
            steps += 1
    assert steps == 3 + 2 * rank
    equal_on_all_ranks(flat(model))


@ranks.on(2)
def test_ddp_hooks(rank):
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)

    def by_send_and_recv(_, bucket):
        tensor = bucket.buffer().div_(2)
        other = torch.empty_like(tensor)
        works = [dist.isend(tensor.clone(), 1 - rank), dist.irecv(other, 1 - rank)]
        works[0].wait()
        return works[1].get_future().then(lambda _: tensor.add_(other))

    hooks = (
        (None, default_hooks.allreduce_hook, 1e-5),
        (None, default_hooks.fp16_compress_hook, 1e-2),
        (state, powerSGD_hook.powerSGD_hook, None),
        (None, by_send_and_recv, 1e-5),
    )
    for hook_state, hook, tolerance in hooks:
        # All parameters are used, in one bucket: calls that a hook makes in then() meet no others.
        model = seeded(lambda: nn.Sequential(nn.Linear(FEATURES, 8), nn.ReLU(), nn.Linear(8, 1)))
        alone = copy.deepcopy(model)
        wrapped = DDP(model)
        wrapped.register_comm_hook(hook_state, hook)
        for step in range(5):
            mine, everyone = rank_batch(rank, step)
            wrapped.zero_grad()
            wrapped(mine).pow(2).mean().backward()
        equal_on_all_ranks(model[0].weight.grad)
        alone(everyone).pow(2).mean().backward()
        if tolerance:
            close(model[0].weight.grad, alone[0].weight.grad, tolerance)


@ranks.on(2)
def test_ddp_sparse_embedding(rank):
    model = seeded(lambda: nn.Sequential(nn.Embedding(50, 6, sparse=True), nn.Flatten(), nn.Linear(12, 1)))
    alone = copy.deepcopy(model)
    wrapped = DDP(model)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (wrapped, alone)]
    for step in range(4):
        words = torch.randint(0, 50, (16, 2), generator=torch.Generator().manual_seed(step))
        for trained, optimizer, part in zip((wrapped, alone), optimizers, (words[rank::2], words), strict=True):
            optimizer.zero_grad()
            trained(part).pow(2).mean().backward()
            optimizer.step()
        assert model[0].weight.grad.is_sparse
    equal_on_all_ranks(flat(model))
    close(flat(model), flat(alone))


@ranks.on(2)
def test_zero_redundancy(rank):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = seeded(Branches)
    alone = copy.deepcopy(model)
    wrapped = DDP(model, find_unused_parameters=True)
    optimizer = ZeroRedundancyOptimizer(wrapped.parameters(), torch.optim.AdamW, lr=0.01)
    optimizer_alone = torch.optim.AdamW(alone.parameters(), lr=0.01)
    for step in range(5):
        mine, everyone = rank_batch(rank, step)
        for trained, opt, inputs in ((wrapped, optimizer, mine), (alone, optimizer_alone, everyone)):
            opt.zero_grad(set_to_none=False)
            trained(inputs).pow(2).mean().backward()
            opt.step()
    equal_on_all_ranks(flat(model))
    close(flat(model), flat(alone), 1e-4)
    optimizer.consolidate_state_dict(0)
    if rank == 0:
        assert len(optimizer.state_dict()["state"]) == 4  # weights and biases of the two layers in use


def deep():
    return nn.Sequential(*(nn.Sequential(nn.Linear(FEATURES, FEATURES), nn.ReLU()) for _ in range(3)))


@pytest.mark.parametrize("world, mesh, half", ((2, (2,), False), (2, (2,), True), (4, (4,), False), (4, (2, 2), False)))
def test_fsdp2(world, mesh, half):
    ranks.run(world, fsdp2, mesh, half)


def fsdp2(rank, shape, half):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    world = dist.get_world_size()
    model = seeded(deep)
    alone = copy.deepcopy(model)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard")[-len(shape) :])
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if half else None
    options = {"mesh": mesh} | ({"mp_policy": policy} if half else {})
    for layer in model:
        fully_shard(layer, **options)
    fully_shard(model, **options)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.05) for m in (model, alone)]
    for step in range(5):
        mine, everyone = rank_batch(rank, step, world)
        for trained, optimizer, inputs in zip((model, alone), optimizers, (mine, everyone), strict=True):
            optimizer.zero_grad()
            trained(inputs.bfloat16() if half and trained is model else inputs).float().pow(2).mean().backward()
            optimizer.step()
    whole = torch.cat([p.full_tensor().detach().flatten() for p in model.parameters()])
    equal_on_all_ranks(whole)
    close(whole, flat(alone), 2e-2 if half else 1e-5)


def test_dtensor():
    ranks.run(2, dtensor, (2,))
    ranks.run(4, dtensor, (2, 2))


def dtensor(rank, shape):
    """A tensor goes from every placement to every other, and stays what it is."""
    from itertools import product

    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", shape)
    whole = torch.arange(5 * 6.0).reshape(5, 6)
    kinds = (Replicate(), Shard(0), Shard(1))
    for before in product(kinds, repeat=len(shape)):
        for after in product(kinds, repeat=len(shape)):
            placed = distribute_tensor(whole, mesh, before).redistribute(mesh, after)
            equal(placed.full_tensor(), whole, f"{before} to {after}")
    for after in product(kinds, repeat=len(shape)):
        from torch.distributed.tensor import DTensor

        parts = DTensor.from_local(whole.clone(), mesh, [Partial()] * len(shape))
        equal(parts.redistribute(mesh, after).full_tensor(), whole * mesh.size(), f"partial to {after}")


@ranks.on(2, limit=300)
def test_compiled_collectives(rank):
    import torch.distributed._functional_collectives as funcol

    group = dist.group.WORLD

    @torch.compile(fullgraph=True, backend="aot_eager")
    def all_of_them(x):
        a = funcol.all_reduce(x * 2, "sum", group)
        b = funcol.all_gather_tensor(x, 0, group)
        c = funcol.reduce_scatter_tensor(b, "sum", 0, group)
        d = funcol.all_to_all_single(b, None, None, group)
        e = funcol.broadcast(x, 1, group)
        f = funcol.all_reduce_coalesced([x, x + 1], "avg", group)
        return a + 1, b, c, d, e, f[0] + f[1]

    x = torch.arange(4.0) + 10 * rank
    given = all_of_them(x)
    other = torch.arange(4.0) + 10 * (1 - rank)
    both = [x, other] if rank == 0 else [other, x]
    gathered = torch.cat(both)
    expected = (
        2 * (x + other) + 1, gathered, 2 * both[rank], torch.cat([both[rank]] * 2), both[1], (x + other) + 1.0,
    )  # fmt: skip
    for name, one, two in zip("abcdef", given, expected, strict=True):
        equal(one, two, f"compiled {name}")


@ranks.on(2)
def test_pipeline(rank):
    """Two stages by the schedule 1F1B give the gradients of the whole model."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    layers = seeded(lambda: [nn.Linear(FEATURES, FEATURES), nn.Linear(FEATURES, 1)])
    inputs, targets = (tensor[:16] for tensor in dataset().tensors)
    whole = nn.Sequential(*copy.deepcopy(layers))
    nn.functional.mse_loss(whole(inputs), targets).backward()

    stage = PipelineStage(layers[rank], rank, 2, torch.device("cpu"))
    schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=nn.functional.mse_loss)
    losses = []
    if rank == 0:
        schedule.step(inputs)
    else:
        schedule.step(target=targets, losses=losses)
        assert len(losses) == 4
    close(layers[rank].weight.grad, whole[rank].weight.grad)


def test_checkpoint(tmp_path):
    ranks.run(2, checkpoint, str(tmp_path))


def checkpoint(rank, folder):
    """What FSDP2 saves, both ranks load again, sharded and whole."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
    from torch.distributed.fsdp import fully_shard

    model = fully_shard(seeded(deep))
    dcp.save(get_model_state_dict(model), checkpoint_id=folder)
    other = fully_shard(seeded(deep, 4))
    state = get_model_state_dict(other)
    dcp.load(state, checkpoint_id=folder)
    set_model_state_dict(other, state)
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        equal(two.full_tensor(), one.full_tensor(), "loaded")
