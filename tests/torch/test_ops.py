"""torch.ops.rondo's operators, also in compiled functions, and tensors in registered memory."""

import gc
import os
import signal
import threading
import time

import pytest
import ranks
import torch
import torch.distributed as dist
from made import EVERY, equal, folded, made, of_all
from torch.distributed import ReduceOp

import rondo.torch

REDUCE_OPS = {"sum": ReduceOp.SUM, "avg": ReduceOp.AVG, "product": ReduceOp.PRODUCT, "min": ReduceOp.MIN,
              "max": ReduceOp.MAX}  # fmt: skip


@pytest.mark.parametrize("world", [1, 2, 4])
def test_operators(world):
    ranks.run(world, operators, world)


def operators(rank, world):
    op = torch.ops.rondo
    for dtype in EVERY:
        tensor = made(rank, (world, 5), dtype)
        op.all_reduce_(tensor)
        equal(tensor, folded(of_all(world, (world, 5), dtype), ReduceOp.SUM), f"all_reduce_ {dtype}")
    for name, reduce_op in REDUCE_OPS.items():
        rows = of_all(world, (2 * world, 3), torch.float32)
        tensor = rows[rank].clone()
        op.all_reduce_(tensor, name)
        equal(tensor, folded(rows, reduce_op), f"all_reduce_ {name}")
        part = op.reduce_scatter(rows[rank], name)
        equal(part, folded(rows, reduce_op)[2 * rank : 2 * rank + 2], f"reduce_scatter {name}")
    for shape in ((), (0,), (1,), (3, 2), (2, 0, 4)):
        given = of_all(world, shape, torch.int32)
        expected = torch.cat([tensor.reshape(1) if shape == () else tensor for tensor in given])
        equal(op.all_gather(given[rank]), expected, f"all_gather {shape}")


@pytest.mark.parametrize("world", [2, 3])
def test_operators_with_wire_formats(world):
    ranks.run(world, operators_with_wire_formats, world)


def operators_with_wire_formats(rank, world):
    """Within the bound of an encoding a rank, equal on all ranks, and coded: int8 and int4 are not exact."""
    op = torch.ops.rondo
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        rows = [torch.randn(1024 * world, 3, generator=torch.Generator().manual_seed(r)).to(dtype) for r in range(world)]
        exact = torch.stack(rows).float().sum(0)
        sums = torch.stack(rows).float().abs().sum(0).max()
        for wire, step in (("bfloat16", 2**-8), ("float8_e4m3", 2**-4), ("int8", 1 / 254), ("int4", 1 / 14)):
            bound = ((world + 1) * step + 2**-6) * sums
            results = []
            for wide in (False, True):  # the second one goes through a copy
                tensor = torch.cat([rows[rank], rows[rank]], 1)[:, :3] if wide else rows[rank].clone()
                op.all_reduce_(tensor, "sum", wire=wire)
                results.append(tensor)
                assert (tensor.float() - exact).abs().max() <= bound, f"{wire} {dtype}"
                equal(op.all_gather(tensor.reshape(1, -1)), tensor.reshape(1, -1).expand(world, -1), f"all ranks, {wire} {dtype}")
            equal(*results, f"with and without a copy, {wire} {dtype}")
            if dtype == torch.float32:
                assert not torch.equal(results[0], exact), wire
            part = op.reduce_scatter(rows[rank], "sum", wire=wire)
            assert (part.float() - exact[1024 * rank : 1024 * (rank + 1)]).abs().max() <= bound, f"{wire} {dtype}"
            if dtype != torch.float16:
                equal(op.all_gather(rows[rank], wire="packed"), torch.cat(rows), f"packed {dtype}")
            gathered = op.all_gather(rows[rank], wire=wire).float()
            assert (gathered - torch.cat(rows).float()).abs().max() <= bound, f"{wire} {dtype}"
    for call in (op.all_reduce_, op.all_gather, op.reduce_scatter):
        with pytest.raises(ValueError, match='wire is "int5"; it is one of none, float16'):
            call(torch.ones(world), wire="int5")
        with pytest.raises(ValueError, match="int32"):
            call(torch.ones(world, dtype=torch.int32), wire="int8")
    with pytest.raises(ValueError, match="max"):
        op.all_reduce_(torch.ones(2), "max", wire="int8")


@ranks.on(3)
def test_operators_on_strided_tensors_and_groups(rank):
    wide = made(rank, (4, 6), torch.float32)
    torch.ops.rondo.all_reduce_(wide[:, ::2])
    expected = made(rank, (4, 6), torch.float32)
    expected[:, ::2] = folded(of_all(3, (4, 6), torch.float32), ReduceOp.SUM)[:, ::2]
    equal(wide, expected, "every second column")
    turned = torch.ops.rondo.all_gather(made(rank, (2, 4), torch.float32).t())
    equal(turned, torch.cat([tensor.t() for tensor in of_all(3, (2, 4), torch.float32)]), "transposed")

    pair = dist.new_group([0, 2])
    if rank != 1:
        tensor = torch.ones(2)
        torch.ops.rondo.all_reduce_(tensor, "sum", pair.group_name)
        assert tensor.tolist() == [2, 2]
        equal(
            torch.ops.rondo.all_gather(torch.tensor([rank]), group_name=pair.group_name),
            torch.tensor([0, 2]),
            "all_gather in a group",
        )


@ranks.on(2)
def test_refused_operators(rank):
    op = torch.ops.rondo
    gloo = dist.new_group(backend="gloo")
    with pytest.raises(ValueError, match='reduce_op is "mean"; it is one of sum, avg'):
        op.all_reduce_(torch.ones(2), "mean")
    with pytest.raises(ValueError, match=f'no process group named "{gloo.group_name}"'):
        op.all_reduce_(torch.ones(2), "sum", gloo.group_name)
    with pytest.raises(ValueError, match="the first dimension, 3, is not divisible by 2 ranks"):
        op.reduce_scatter(torch.ones(3))
    with pytest.raises(ValueError, match="no dimension"):
        op.reduce_scatter(torch.tensor(1.0))
    weight = torch.ones(2, requires_grad=True)
    for call in (op.all_gather, op.reduce_scatter, op.all_reduce_):
        with pytest.raises(RuntimeError, match="has no derivative"):
            call(weight * 2)
    with torch.no_grad():
        assert op.reduce_scatter(weight * 2).item() == 4
    with dist._coalescing_manager(device=torch.device("cpu")):
        with pytest.raises(ValueError, match="cannot be part of a group of calls"):
            op.all_reduce_(torch.ones(2))
    tensor = torch.ones(2)
    op.all_reduce_(tensor)  # nothing of that has harmed the group
    assert tensor.tolist() == [2, 2]


def test_operators_without_a_group():
    from rondo.torch import _group

    _group.extension()
    with pytest.raises(ValueError, match="no process group named"):
        torch.ops.rondo.all_reduce_(torch.ones(2))


@ranks.on(2)
def test_compiled_operators(rank):
    def block(x):
        y = x * 2
        torch.ops.rondo.all_reduce_(y)
        return torch.ops.rondo.all_gather(torch.ops.rondo.reduce_scatter(y, "max")) + y

    compiled = torch.compile(block, fullgraph=True, backend="aot_eager", dynamic=True)
    for rows in (2, 4, 6):
        x = torch.arange(3.0 * rows).reshape(rows, 3) + rank
        equal(compiled(x), block(x), f"compiled, {rows} rows")
    torch.library.opcheck(torch.ops.rondo.all_gather.default, (torch.ones(2, 3),), test_utils="test_faketensor")


@ranks.on(2)
def test_mismatched_operators(rank):
    with pytest.raises(dist.DistBackendError, match="MISMATCH"):
        torch.ops.rondo.all_reduce_(torch.ones(2 + rank))


def test_registered_memory(monkeypatch):
    # Calls whose buffers are not registered on all ranks are refused then.
    monkeypatch.setenv("RONDO_ALGORITHM", "registered")
    ranks.run(2, registered_memory)


def registered_memory(rank):
    def is_registered(tensor):
        try:
            tensor.fill_(1 + rank)
            torch.ops.rondo.all_reduce_(tensor)
        except ValueError:
            return False
        assert torch.equal(tensor, torch.full_like(tensor, 3))
        return True

    assert not is_registered(torch.empty(100))
    tensor = rondo.torch.empty(3, 5, dtype=torch.float64)
    assert tensor.shape == (3, 5) and tensor.dtype == torch.float64 and tensor.sum() == 0
    assert is_registered(tensor) and is_registered(rondo.torch.empty((2, 3)))
    assert rondo.torch.empty(4, 0).shape == (4, 0)

    with rondo.torch.registered(1 << 20):
        first = torch.zeros(100)
        second = first * 2 + torch.arange(100.0)
        found = {}
        thread = threading.Thread(target=lambda: found.update(other=torch.zeros(100)))
        thread.start()
        thread.join()
    after = torch.zeros(100)
    assert is_registered(first) and is_registered(second) and is_registered(second[7:31])
    assert not is_registered(after) and not is_registered(found["other"])

    # torch's matrix product in bfloat16 takes memory for itself from the allocator, and frees it by its address.
    matrix = torch.ones(64, 64, dtype=torch.bfloat16)
    with rondo.torch.registered(1 << 20):
        product = torch.nn.functional.linear(matrix[:1], matrix)
    assert product.sum() == 64 * 64 and is_registered(product)

    # What went is given back; the same tensors get the same memory; the group keeps the arena.
    place = first.data_ptr()
    del first
    for _ in range(50):
        with rondo.torch.registered(1 << 20):
            again = torch.zeros(100)
            assert again.data_ptr() == place
            parts = [torch.zeros(n, dtype=torch.uint8) for n in (1, 100_000, 300_000, 5, 400_000)]
            del parts[1::2]
            with pytest.raises(torch.OutOfMemoryError, match=r"the arena of 1048576 bytes has no gap of 700000 bytes"):
                torch.empty(700_000, dtype=torch.uint8)
            del parts
            gc.collect()
            torch.empty(900_000, dtype=torch.uint8)
        del again


@ranks.on(2)
def test_registered_scopes(rank):
    pair = dist.new_group([0, 1])
    with rondo.torch.registered(1 << 16):
        outer = torch.zeros(10)
        with rondo.torch.registered(1 << 17, group=pair):
            inner = torch.zeros(1 << 14)  # would not find room in the outer one
        outer_again = torch.zeros(10)
    assert abs(outer_again.data_ptr() - outer.data_ptr()) < 1 << 16
    assert abs(inner.data_ptr() - outer.data_ptr()) >= 1 << 16
    with pytest.raises(ValueError, match="bytes is 0"):
        with rondo.torch.registered(0):
            pass
    with pytest.raises(ValueError, match="no process group named"):
        with rondo.torch.registered(group=dist.new_group(backend="gloo")):
            pass

    # Tensors outlive their group, and a forked child frees its copies without touching the communicator.
    tensor = rondo.torch.empty(1000)
    dist.all_reduce(tensor.fill_(1 + rank))
    child = os.fork()
    if child == 0:
        del tensor, outer
        gc.collect()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    # A child that is forked inside has its own memory: the arena is shared, and the parent's.
    with rondo.torch.registered(1 << 16):
        before = torch.zeros(10)
        child = os.fork()
        if child == 0:
            others = [torch.ones(1000) for _ in range(100)]  # more than the arena has
            os._exit(len(others) - 100)
        assert os.waitpid(child, 0)[1] == 0
        after = torch.zeros(10)
    assert before.sum() == 0 and after.sum() == 0
    dist.destroy_process_group()
    assert tensor.sum() == 3000 and outer.sum() == 0
    del tensor, outer, outer_again, inner
    with pytest.raises(ValueError, match="no process group named"):
        rondo.torch.empty(10)


@ranks.on(1)
def test_a_scope_that_could_not_end_keeps_its_arena(rank):
    """The thread goes on making tensors in the arena after its other owners have gone."""
    outer, inner = rondo.torch.registered(1 << 16), rondo.torch.registered(1 << 17)
    outer.__enter__()
    inner.__enter__()
    with pytest.raises(RuntimeError, match="after those inside it"):
        outer.__exit__(None, None, None)
    inner.__exit__(None, None, None)
    del outer, inner
    gc.collect()
    dist.destroy_process_group()
    assert sum(torch.ones(100).sum().item() for _ in range(100)) == 10_000


def ends(child):
    """False: it hung, and has been killed."""
    deadline = time.monotonic() + 10
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return False
        time.sleep(0.001)
    return True


@ranks.on(1)
def test_forks_beside_a_thread_that_frees_tensors(rank):
    """A child frees tensors whatever another thread was doing when it was forked."""
    with rondo.torch.registered(1 << 20):
        pass  # from here on all tensors end in the module
    over = threading.Event()

    def train():
        while not over.is_set():
            end = torch.ones(1, requires_grad=True)
            for _ in range(1000):
                end = end * 1
            end.backward()  # without Python's lock

    thread = threading.Thread(target=train)
    thread.start()
    try:
        for _ in range(100):
            child = os.fork()
            if child == 0:
                torch.ones(1)
                os._exit(0)
            assert ends(child)
    finally:
        over.set()
        thread.join()
