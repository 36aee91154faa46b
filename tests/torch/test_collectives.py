"""Every collective gives what the ranks' tensors make by hand: worlds of 2 and 3, all types."""

import made
import ranks
import torch
import torch.distributed as dist
from made import equal, folded, of_all
from torch.distributed import ReduceOp

SHAPES = ((), (0,), (1,), (5,), (3, 7), (40001,))
ARITHMETIC = (ReduceOp.SUM, ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX)
BITWISE = (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR)


def ops_of(dtype):
    if dtype.is_complex:
        return (ReduceOp.SUM,)
    if dtype == torch.bool:
        return (*ARITHMETIC, *BITWISE)
    if dtype.is_floating_point:
        return ARITHMETIC
    return (*ARITHMETIC, *BITWISE)


def finish(work, kind):
    """The three ways to wait."""
    if kind == "wait":
        work.wait()
    elif kind == "future":
        work.get_future().wait()
    else:
        assert work is None


KINDS = ("none", "wait", "future")


@ranks.on(2, 3)
def test_all_reduce(rank):
    world = dist.get_world_size()
    for dtype in made.EVERY:
        for op in ops_of(dtype):
            for shape in SHAPES:
                tensors = of_all(world, shape, dtype)
                expected = folded(tensors, op)
                for kind in KINDS:
                    tensor = tensors[rank].clone()
                    finish(dist.all_reduce(tensor, op, async_op=kind != "none"), kind)
                    equal(tensor, expected, f"{dtype} {op} {shape} {kind}")


@ranks.on(2, 3)
def test_averages(rank):
    world = dist.get_world_size()
    for dtype in (*made.INTEGERS, torch.float32, torch.float64, torch.complex64):
        tensors = [6 * tensor for tensor in of_all(world, (33,), dtype)]
        tensor = tensors[rank].clone()
        dist.all_reduce(tensor, ReduceOp.AVG)
        equal(tensor, folded(tensors, ReduceOp.AVG), f"AVG {dtype}")
    tensor = torch.full((5,), 2.0)
    dist.all_reduce(tensor, dist._make_nccl_premul_sum(3.0 * (rank + 1)))
    equal(tensor, torch.full((5,), 6.0 * sum(range(1, world + 1))), "PREMUL_SUM")


@ranks.on(2, 3)
def test_every_type(rank):
    """Of the other collectives. In every form, of tensors that lie in all ways: tests/life (calls.life, views.life)."""
    world = dist.get_world_size()
    for dtype in made.EVERY:
        tensors = of_all(world, (2, 3), dtype)
        rows = of_all(world, (world, 3), dtype)
        own, joined = tensors[rank], torch.cat(tensors)

        tensor = own.clone()
        dist.broadcast(tensor, 1)
        equal(tensor, tensors[1], f"broadcast {dtype}")

        tensor = own.clone()
        dist.reduce(tensor, 1, ReduceOp.SUM)
        equal(tensor, folded(tensors, ReduceOp.SUM) if rank == 1 else own, f"reduce {dtype}")

        outputs = [torch.empty_like(own) for _ in tensors] if rank == 1 else None
        dist.gather(own, outputs, 1)
        if rank == 1:
            equal(torch.cat(outputs), joined, f"gather {dtype}")

        output = torch.empty_like(own)
        dist.scatter(output, tensors if rank == 1 else None, 1)
        equal(output, own, f"scatter {dtype}")

        output = torch.empty((world, 2, 3), dtype=dtype)
        dist.all_gather(list(output.unbind()), own)
        equal(output, torch.stack(tensors), f"all_gather to one block {dtype}")

        output = torch.empty_like(joined)
        dist.all_gather_into_tensor(output, own)
        equal(output, joined, f"all_gather_into_tensor {dtype}")

        output = torch.empty((1, 3), dtype=dtype)
        dist.reduce_scatter_tensor(output, rows[rank])
        equal(output, folded(rows, ReduceOp.SUM)[rank : rank + 1], f"reduce_scatter_tensor {dtype}")

        output = torch.empty_like(rows[rank])
        dist.all_to_all_single(output, rows[rank])
        equal(output, torch.stack([given[rank] for given in rows]), f"all_to_all_single {dtype}")


@ranks.on(2, 3)
def test_equal_split_sizes_on_one_rank(rank):
    world = dist.get_world_size()
    given = [1] * world if rank == 0 else None
    output = torch.empty(world, dtype=torch.int64)
    dist.all_to_all_single(output, torch.arange(world) + 10 * rank, given, given)
    equal(output, torch.arange(world) * 10 + rank, "all_to_all_single")


@ranks.on(2, 3)
def test_coalesced(rank):
    world = dist.get_world_size()
    shapes = ((5,), (), (3, 4), (70000,), (0,))
    everyone = [of_all(world, shape, torch.float32) for shape in shapes]
    for kind in KINDS:
        tensors = [tensors[rank].clone() for tensors in everyone]
        work = dist.all_reduce_coalesced(tensors, async_op=kind != "none")
        if work is not None:
            work.wait()
        for tensor, all_of_it in zip(tensors, everyone, strict=True):
            equal(tensor, folded(all_of_it, ReduceOp.SUM), "all_reduce_coalesced")

        outputs = [[torch.empty_like(tensors[0]) for tensors in everyone] for _ in range(world)]
        work = dist.all_gather_coalesced(outputs, [tensors[rank] for tensors in everyone], async_op=kind != "none")
        if work is not None:
            work.wait()
        for r in range(world):
            for i, tensors in enumerate(everyone):
                equal(outputs[r][i], tensors[r], "all_gather_coalesced")

        for device in (None, torch.device("cpu")):
            coalescing_manager(rank, world, device, kind)


def coalescing_manager(rank, world, device, kind):
    a, b = torch.full((4,), float(rank)), torch.full((9,), float(rank + 1))
    with dist._coalescing_manager(device=device, async_ops=kind != "none") as manager:
        dist.all_reduce(a)
        dist.all_reduce(b)
    finish_manager(manager, kind)
    equal(a, torch.full((4,), float(sum(range(world)))), "all_reduce in a manager")
    equal(b, torch.full((9,), float(sum(range(world)) + world)), "all_reduce in a manager")

    outputs = [torch.empty(world * n) for n in (3, 8)]
    with dist._coalescing_manager(device=device, async_ops=kind != "none") as manager:
        for output in outputs:
            dist.all_gather_into_tensor(output, torch.full((output.numel() // world,), float(rank)))
    finish_manager(manager, kind)
    for output in outputs:
        equal(output, torch.arange(float(world)).repeat_interleave(output.numel() // world), "all_gather in a manager")

    outputs = [torch.empty(n) for n in (3, 8)]
    with dist._coalescing_manager(device=device, async_ops=kind != "none") as manager:
        for output in outputs:
            dist.reduce_scatter_tensor(output, torch.arange(float(world)).repeat_interleave(output.numel()))
    finish_manager(manager, kind)
    for output in outputs:
        equal(output, torch.full_like(output, float(rank * world)), "reduce_scatter in a manager")


def finish_manager(manager, kind):
    if kind != "none":
        manager.wait()


@ranks.on(2, 3)
def test_sparse(rank):
    """COO tensors with equal, overlapping, other and no entries; hybrid ones too."""
    world = dist.get_world_size()

    def of_rank(r, width):
        count = 0 if r == 1 else r + 2
        indices = torch.tensor([[(r + i) % 5 for i in range(count)], [i % 3 for i in range(count)]], dtype=torch.int64)
        values = torch.arange(1.0, count + 1) + 10 * r
        if width:
            values = values[:, None].expand(-1, width).contiguous()
        return torch.sparse_coo_tensor(indices.reshape(2, count), values, (5, 3, width) if width else (5, 3))

    for width in (0, 4):
        expected = sum(of_rank(r, width).to_dense() for r in range(world))
        for kind in KINDS:
            tensor = of_rank(rank, width)
            finish(dist.all_reduce(tensor, async_op=kind != "none"), kind)
            equal(tensor.to_dense(), expected, f"sparse, width {width}, {kind}")
    future = dist.all_reduce(of_rank(rank, 0), async_op=True).get_future()
    future.wait()
    assert len(future.value()) == 1 and future.value()[0].is_sparse, "the future gives the reduced tensor"


@ranks.on(2, 3)
def test_names_and_barrier(rank):
    world = dist.get_world_size()
    dist.barrier()
    work = dist.barrier(async_op=True)
    work.wait()
    assert work.is_completed() and work.is_success()
    if hasattr(dist, "all_gather_single"):  # torch's newer names
        output = torch.empty(world)
        dist.all_gather_single(output, torch.tensor([float(rank)]))
        equal(output, torch.arange(float(world)), "all_gather_single")
        output = torch.empty(1)
        dist.reduce_scatter_single(output, torch.arange(float(world)))
        equal(output, torch.tensor([float(rank * world)]), "reduce_scatter_single")
    group = dist.group.WORLD
    backend = group._get_backend(torch.device("cpu"))
    assert dist.get_backend() == "rondo" and backend.name() == "rondo"
    assert backend.supports_coalescing and backend.supports_splitting


@ranks.on(2, 3)
def test_objects(rank):
    world = dist.get_world_size()
    mine = {"rank": rank, "list": [rank] * (rank + 1)}
    everyone = [{"rank": r, "list": [r] * (r + 1)} for r in range(world)]
    found = [None] * world
    dist.all_gather_object(found, mine)
    assert found == everyone
    found = [None] * world if rank == 1 else None
    dist.gather_object(mine, found, 1)
    assert found == (everyone if rank == 1 else None)
    found = [mine, rank]
    dist.broadcast_object_list(found, 1)
    assert found == [everyone[1], 1]
    found = [None]
    dist.scatter_object_list(found, everyone if rank == 0 else None, 0)
    assert found == [mine]
    if rank == 0:
        dist.send_object_list([mine, "text"], 1)
    elif rank == 1:
        found = [None, None]
        assert dist.recv_object_list(found, 0) == 0
        assert found == [everyone[0], "text"]
