"""Every collective in every form gives what the ranks' tensors make by hand: worlds of 2 and 3, all types."""

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
def test_rooted(rank):
    world = dist.get_world_size()
    for dtype in made.EVERY:
        for root in range(world):
            for kind in KINDS:
                wait = {"async_op": kind != "none"}
                tensors = of_all(world, (3, 5), dtype)
                name = f"{dtype} {root} {kind}"

                tensor = tensors[rank].clone()
                finish(dist.broadcast(tensor, root, **wait), kind)
                equal(tensor, tensors[root], f"broadcast {name}")

                tensor = tensors[rank].clone()
                finish(dist.reduce(tensor, root, ReduceOp.SUM, **wait), kind)
                expected = folded(tensors, ReduceOp.SUM) if rank == root else tensors[rank]
                equal(tensor, expected, f"reduce {name}")

                outputs = [torch.empty_like(t) for t in tensors] if rank == root else None
                finish(dist.gather(tensors[rank], outputs, root, **wait), kind)
                for r in range(world if rank == root else 0):
                    equal(outputs[r], tensors[r], f"gather {name}")

                output = torch.empty_like(tensors[0])
                finish(dist.scatter(output, tensors if rank == root else None, root, **wait), kind)
                equal(output, tensors[rank], f"scatter {name}")


@ranks.on(2, 3)
def test_gathered(rank):
    world = dist.get_world_size()
    for dtype in made.EVERY:
        for shape in ((), (0,), (5,), (3, 4)):
            for kind in KINDS:
                wait = {"async_op": kind != "none"}
                tensors = of_all(world, shape, dtype)
                name = f"{dtype} {shape} {kind}"

                outputs = [torch.empty_like(t) for t in tensors]
                finish(dist.all_gather(outputs, tensors[rank], **wait), kind)
                for r in range(world):
                    equal(outputs[r], tensors[r], f"all_gather {name}")

                stacked = torch.empty((world, *shape), dtype=dtype)
                finish(dist.all_gather(list(stacked.unbind()), tensors[rank], **wait), kind)
                equal(stacked, torch.stack(tensors), f"all_gather to one block {name}")

                if shape:
                    joined = torch.empty((world * shape[0], *shape[1:]), dtype=dtype)
                    finish(dist.all_gather_into_tensor(joined, tensors[rank], **wait), kind)
                    equal(joined, torch.cat(tensors), f"all_gather_into_tensor {name}")
    unequal = [torch.arange(2 * r + 1) + r for r in range(world)]
    outputs = [torch.empty_like(t) for t in unequal]
    dist.all_gather(outputs, unequal[rank])
    for r in range(world):
        equal(outputs[r], unequal[r], "all_gather of unequal shapes")


@ranks.on(2, 3)
def test_scattered(rank):
    world = dist.get_world_size()
    for dtype in (*made.INTEGERS, *made.FLOATS, *made.FLOATS8, torch.complex64):
        for shape in ((0,), (5,), (3, 4)):
            for kind in KINDS:
                wait = {"async_op": kind != "none"}
                lists = [of_all(world, shape, dtype, salt=r) for r in range(world)]  # lists[from][to]
                expected = folded([lists[r][rank] for r in range(world)], ReduceOp.SUM)
                name = f"{dtype} {shape} {kind}"

                output = torch.empty_like(expected)
                finish(dist.reduce_scatter(output, lists[rank], **wait), kind)
                equal(output, expected, f"reduce_scatter {name}")

                output = torch.empty_like(expected)
                finish(dist.reduce_scatter_tensor(output, torch.cat(lists[rank]), **wait), kind)
                equal(output, expected, f"reduce_scatter_tensor {name}")
    unequal = [[torch.arange(2 * to + 1) + r for to in range(world)] for r in range(world)]
    output = torch.empty(2 * rank + 1, dtype=torch.int64)
    dist.reduce_scatter(output, unequal[rank])
    equal(output, sum(unequal[r][rank] for r in range(world)), "reduce_scatter of unequal shapes")


@ranks.on(2, 3)
def test_exchanged(rank):
    world = dist.get_world_size()
    for dtype in made.EVERY:
        for kind in KINDS:
            wait = {"async_op": kind != "none"}
            lists = [of_all(world, (2, 3), dtype, salt=r) for r in range(world)]  # lists[from][to]
            outputs = [torch.empty_like(t) for t in lists[0]]
            finish(dist.all_to_all(outputs, lists[rank], **wait), kind)
            for r in range(world):
                equal(outputs[r], lists[r][rank], f"all_to_all {dtype} {kind}")

            output = torch.empty(2 * world, 3, dtype=dtype)
            finish(dist.all_to_all_single(output, torch.cat(lists[rank]), **wait), kind)
            equal(output, torch.cat([lists[r][rank] for r in range(world)]), f"all_to_all_single {dtype} {kind}")
    # Rank s sends s + r rows to rank r: 0 rows among them.
    sends = [[torch.full((s + r, 2), 10 * s + r) for r in range(world)] for s in range(world)]
    expected = torch.cat([sends[s][rank] for s in range(world)])
    output = torch.empty_like(expected)
    dist.all_to_all_single(
        output, torch.cat(sends[rank]), [s + rank for s in range(world)], [rank + r for r in range(world)]
    )
    equal(output, expected, "all_to_all_single with split sizes")
    # One rank passes equal split sizes, the others none.
    given = [1] * world if rank == 0 else None
    output = torch.empty(world, dtype=torch.int64)
    dist.all_to_all_single(output, torch.arange(world) + 10 * rank, given, given)
    equal(output, torch.arange(world) * 10 + rank, "all_to_all_single with equal split sizes on one rank")
    outputs = [torch.empty(s + rank) for s in range(world)]
    dist.all_to_all(outputs, [torch.full((rank + r,), float(rank)) for r in range(world)])
    for s in range(world):
        equal(outputs[s], torch.full((s + rank,), float(s)), "all_to_all of unequal shapes")


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
