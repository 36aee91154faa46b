"""What users try first: calls on small arrays, with results written down by hand. Messages: tests/life, by NumPy."""

import array

import ml_dtypes
import numpy as np
import pytest
from ranks import on, run

import rondo
from rondo import objects as objects_module


def start(group):
    """[1, 2], [3, 4], [5, 6], [7, 8]"""
    return np.array([1, 2]) + 2 * group.rank


@on(4)
def test_table_of_four_ranks(group):
    """The rest is in examples/python/primitives.txt and tests/life/calls.life."""
    r, out = group.rank, {}
    for op, result in (("sum", [16, 20]), ("product", [105, 384]), ("max", [7, 8]), ("min", [1, 2])):
        x = start(group)
        out[op] = group.all_reduce(x, op) is x and x.tolist() == result
        x, y = start(group), np.empty(2, np.int64)
        out[op + ", out"] = group.all_reduce(x, op, y) is y and y.tolist() == result and x[0] == 1 + 2 * r
    got = group.reduce_scatter_v(np.ones(4), [1, 1, 1, 1], "premulsum", scalar=r + 2)
    out["premulsum of parts"] = got.tolist() == [14]
    got = group.all_reduce_many([np.ones(1), np.ones(1, np.float32)], "premulsum", scalar=r + 2)
    out["premulsum of many"] = [array.tolist() for array in got] == [[14], [14]]
    counts = [1, 0, 3, 2]
    got = group.gather_v(np.full((counts[r], 2), r), root=1)
    out["gather_v"] = got is None if r != 1 else [part.shape for part in got] == [(1, 2), (0, 2), (3, 2), (2, 2)]
    whole = np.arange(12).reshape(6, 2) if r == 2 else None
    got = group.scatter_v(whole, counts, 2, None if r == 2 else np.empty((counts[r], 2), np.int64))
    out["scatter_v"] = got.ravel().tolist() == [[0, 1], [], [2, 3, 4, 5, 6, 7], [8, 9, 10, 11]][r]
    x, y, z = np.full(3, 4, np.float32), np.ones(2), np.full((2, 2), r, np.int32)
    with group.batch():
        group.all_reduce(x)
        group.broadcast(z, 0)
        group.all_reduce(y, "max")
    out["batch"] = x.tolist() == [16] * 3 and y.tolist() == [1, 1] and not z.any()
    assert all(out.values()), out


def groups(group):
    with pytest.raises(rondo.Invalid, match=r"ranks\[0\] is 7 on rank \d: it is a whole number from 0 to 3"):
        group.new_group([7])  # on all ranks, though it is none of them
    first = group.new_group([0, 1])
    assert (first is None) == (group.rank > 1)
    ones = np.ones(2)
    if first is not None:
        assert (first.rank, first.size) == (group.rank, 2)
        first.all_reduce(ones)
    backwards = group.split(color=group.rank % 2, key=-group.rank)
    assert backwards.all_gather(np.array([group.rank])).ravel().tolist() == [group.rank % 2 + 2, group.rank % 2]
    assert group.split(-1 if group.rank == 0 else 0) is None or group.rank != 0
    return ones.tolist()


def test_groups():
    assert run(4, groups) == [[2, 2], [2, 2], [1, 1], [1, 1]]


@on(2)
def test_kinds_of_arrays(group):
    x = array.array("d", [1, 2])
    group.all_reduce(x)
    b = np.ones(3, ml_dtypes.bfloat16)
    group.all_reduce(b)
    b = group.all_reduce(b.astype(ml_dtypes.float8_e4m3fn))
    registered = group.empty((1000, 3), np.float16)
    assert not registered.any()
    registered += 1
    group.all_reduce(registered, algorithm="registered")
    scalar = np.array(group.rank + 1.0)
    group.all_reduce(scalar)
    empty = group.all_gather(np.empty((0, 3)))
    assert x.tolist() == [2, 4] and b.tolist() == [4, 4, 4] and (registered == 2).all()
    assert float(scalar) == 3 and empty.shape == (2, 0, 3)


def parameters(group):
    model = {"w": np.full(3, group.rank, np.float32), "b": np.full(1, group.rank)}
    group.broadcast_parameters(model, root=1)
    return model["w"].tolist(), model["b"].tolist()


def test_parameters():
    assert run(2, parameters) == [([1, 1, 1], [1])] * 2


def test_objects_of_ranks_that_anybody_may_be():
    for value in (b"\0bytes", {"a": [1, None, "x"]}):
        assert objects_module.decode(objects_module.encode(value, trusted=False), trusted=False) == value
    with pytest.raises(TypeError, match="RONDO_INSECURE=1"):
        objects_module.encode({1, 2}, trusted=False)
    with pytest.raises(ValueError):
        objects_module.decode(objects_module.encode({1, 2}, trusted=True), trusted=False)


def place(group):
    return group.rank, group.size, group.local_rank, group.local_size, group.node, group.nodes


def test_place():
    assert run(3, place) == [(r, 3, r, 3, 0, 1) for r in range(3)]
