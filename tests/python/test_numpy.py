"""Arrays as NumPy's users write them: types that Rondo lacks, arrays that are not contiguous, names, objects, timeouts."""

import datetime
import math

import numpy as np
import pytest
import ranks

import rondo

RECORD = np.dtype([("step", "i4"), ("loss", "f8")])
MOVED = (
    np.array([1 + 2j, 3 - 4j], np.complex64),
    np.array([[1j], [2]], np.complex128),
    np.array([(3, 0.5), (4, 0.25)], RECORD),
    np.array(["2026-01-02", "NaT"], "datetime64[s]"),
    np.array([1.5, -2], ">f8"),
    np.array(["ring", "a"], "U5"),
    np.array([b"xy", b"z"], "S2"),
    np.array([1.25, 2], np.longdouble),
)


def everything_moves(group):
    rank, size = group.rank, group.size
    for value in MOVED:
        own = np.roll(value, rank)
        got = value.copy() if rank == 1 else np.zeros_like(value)
        assert np.array_equal(group.broadcast(got, root=1), value, equal_nan=value.dtype.kind in "fcM")
        gathered = group.all_gather(own)
        assert gathered.dtype == value.dtype and gathered.shape == (size, *value.shape)
        for r in range(size):
            assert gathered[r].tobytes() == np.roll(value, r).tobytes()
        back = np.zeros_like(value)
        message = group.sendrecv(own, (rank + 1) % size, back, (rank - 1) % size)
        assert back.tobytes() == np.roll(value, (rank - 1) % size).tobytes() and message.bytes == value.nbytes
        part = group.all_to_all(np.array([own] * size, value.dtype))
        assert part.tobytes() == gathered.tobytes()
        taken = group.scatter(np.array([value] * size, value.dtype) if rank == 0 else None, 0, np.zeros_like(value))
        assert taken.tobytes() == value.tobytes()


def test_everything_moves():
    ranks.run(3, everything_moves)


def complex_sums(group):
    for dtype in (np.complex64, np.complex128):
        own = np.array([1 + 1j, group.rank * 2j], dtype)
        assert group.all_reduce(own.copy()).tolist() == [2 + 2j, 2j]
        assert group.all_reduce(own.copy(), "mean").tolist() == [1 + 1j, 1j]
        part = group.reduce_scatter(own)
        assert part.dtype == dtype and part.tolist() == [[2 + 2j], [2j]][group.rank]
    with pytest.raises(ValueError, match="op 'max' of complex64 is not defined: complex numbers have sum"):
        group.all_reduce(np.ones(1, np.complex64), "max")
    with pytest.raises(TypeError, match="dtype >f8, which can be moved and not reduced"):
        group.all_reduce(np.ones(1, ">f8"))
    with pytest.raises(TypeError, match="out has dtype float32, and array has complex64"):
        group.all_reduce(np.ones(1, np.complex64), out=np.ones(2, np.float32))
    with pytest.raises(TypeError, match="out has dtype >f8, and array has datetime64"):
        group.all_gather(np.zeros(1, "datetime64[s]"), out=np.ones(2, ">f8"))


def test_complex_sums():
    ranks.run(2, complex_sums)


def strided(group):
    rank = group.rank
    for view in (lambda x: x.T, lambda x: x[:, ::2], lambda x: x[::-1], lambda x: x[1:3, 1:]):
        whole = np.arange(24.0).reshape(4, 6)
        mine = whole.copy()
        own, rest = view(mine), whole.copy()
        expected = 2 * view(whole).copy()
        assert group.all_reduce(own) is own and np.array_equal(own, expected)
        view(rest)[...] = expected
        assert np.array_equal(mine, rest), "what lies between the elements stays"
        out = np.zeros((2, *expected.shape)).transpose(0, *range(2, expected.ndim + 1), 1).copy()
        out = np.moveaxis(out, -1, 1)  # not contiguous
        group.all_gather(view(whole), out=out)
        assert np.array_equal(out, np.stack([view(whole)] * 2))
        other = view(np.zeros((4, 6)))
        group.sendrecv(own, 1 - rank, other, 1 - rank)
        assert np.array_equal(other, expected)
    fortran = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    assert np.array_equal(group.all_reduce(fortran), 2 * np.arange(6.0).reshape(2, 3))
    with pytest.raises(ValueError, match="with async_op=True or in a batch an array .*not contiguous"):
        group.all_reduce(np.ones((2, 3)).T, async_op=True)
    work = group.all_gather(np.arange(6.0).reshape(2, 3).T, async_op=True)  # read only: packed
    assert np.array_equal(work.wait()[1 - rank], np.arange(6.0).reshape(2, 3).T)


def test_strided_arrays():
    ranks.run(2, strided)


def names(group):
    for op in ("sum", "add", np.add, np.sum):
        assert group.all_reduce(np.ones(2), op=op).tolist() == [2, 2]
    for op in ("avg", "mean", "average", np.mean):
        assert group.all_reduce(np.ones(2), op=op).tolist() == [1, 1]
    for op in ("prod", np.multiply, np.prod):
        assert group.all_reduce(np.full(2, 3.0), op=op).tolist() == [9, 9]
    assert group.all_reduce(np.array([group.rank]), np.maximum).tolist() == [1]
    for op in ("median", np.sin, None, 3):
        with pytest.raises(ValueError, match="op .* is none of sum, product"):
            group.all_reduce(np.ones(2), op=op)
    masked = np.ma.masked_array([1.0, 2], [True, False])
    with pytest.raises(TypeError, match="array is a masked array, whose mask would be lost"):
        group.all_reduce(masked)
    for timeout in (math.inf, datetime.timedelta(seconds=20), np.float64(20)):
        group.barrier(timeout=timeout)
    with pytest.raises(ValueError, match="timeout"):
        group.barrier(timeout=datetime.timedelta(0))


def test_names_masks_and_timeouts():
    ranks.run(2, names)


def objects(group):
    rank, size = group.rank, group.size
    mine = {"rank": rank, "text": "x" * 1000 * rank}
    gathered = group.gather_object(mine, root=1)
    assert gathered == ([{"rank": r, "text": "x" * 1000 * r} for r in range(size)] if rank == 1 else None)
    for text in ("", "x" * 505, "x" * 1000):  # in one exchange, and in two
        sent = [("of", r, text * r) for r in range(size)]
        assert group.scatter_object(sent if rank == 2 else None, root=2) == sent[rank]
        assert group.all_gather_object(sent[rank]) == sent
        for each in sent:
            assert group.broadcast_object(each if rank == 1 else None, root=1) == each
    if rank == 0:
        for dest in (1, 2):
            for step in range(3):
                group.send_object([dest, step], dest, tag=step)
        assert {group.recv_object(tag=7)["from"] for _ in range(2)} == {1, 2}
    else:
        assert [group.recv_object(0, tag) for tag in range(3)] == [[rank, step] for step in range(3)]
        group.send_object({"from": rank}, 0, tag=7)
    if rank == 2:
        with pytest.raises(ValueError, match="values has to be 3 objects"):
            group.scatter_object([1], root=2)


def test_objects():
    ranks.run(3, objects)


def test_a_group_of_one_keeps_what_it_has():
    group = rondo.init()
    assert group.all_gather(np.array(["a"], "U1")).tolist() == [["a"]]
    group.close()
