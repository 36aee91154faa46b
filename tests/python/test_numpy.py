"""Arrays as NumPy's users write them: types that Rondo lacks, arrays that are not contiguous, names, objects, timeouts."""

import array
import ctypes
import datetime
import math

import ml_dtypes
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
    np.array([1, -2], ml_dtypes.int4),
    np.array([1, 2], ml_dtypes.float8_e4m3),
)


@ranks.on(3)
def test_everything_moves(group):
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


@ranks.on(2)
def test_complex_sums(group):
    for dtype in (np.complex64, np.complex128):
        own = np.array([1 + 1j, group.rank * 2j], dtype)
        assert group.all_reduce(own.copy()).tolist() == [2 + 2j, 2j]
        assert group.all_reduce(own.copy(), "mean").tolist() == [1 + 1j, 1j]
        factors = np.array([1 + 2j, 3 - 1j], dtype)
        for op in ("prod", np.multiply):
            assert group.all_reduce(factors + group.rank * 1j, op).tolist() == [(1 + 2j) * (1 + 3j), (3 - 1j) * 3]
        assert group.reduce_scatter(factors, "product").tolist() == [factors[group.rank] ** 2]
        assert group.scan(factors, np.multiply).tolist() == [[1 + 2j, 3 - 1j], [-3 + 4j, 8 - 6j]][group.rank]
        part = group.reduce_scatter(own)
        assert part.dtype == dtype and part.tolist() == [[2 + 2j], [2j]][group.rank]
    with pytest.raises(ValueError, match="op 'max' of complex64 is not defined: complex numbers have sum, avg, premulsum and product"):
        group.all_reduce(np.ones(1, np.complex64), "max")
    with pytest.raises(TypeError, match="dtype >f8, which can be moved and not reduced"):
        group.all_reduce(np.ones(1, ">f8"))
    with pytest.raises(TypeError, match="out has dtype float32, and array has complex64"):
        group.all_reduce(np.ones(1, np.complex64), out=np.ones(2, np.float32))
    with pytest.raises(TypeError, match="out has dtype >f8, and array has datetime64"):
        group.all_gather(np.zeros(1, "datetime64[s]"), out=np.ones(2, ">f8"))


@ranks.on(2)
def test_strided_arrays(group):
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
    for call in (lambda x: group.all_reduce(x, copy=False), lambda x: group.send(x, 1 - rank, copy=False)):
        with pytest.raises(ValueError, match="array of shape .* is not contiguous"):
            call(np.ones((2, 3)).T)
    with pytest.raises(ValueError, match="out of shape .* is not contiguous"):
        group.all_gather(np.ones(3), out=np.ones((3, 2)).T, copy=False)
    assert group.all_reduce(np.ones(3), copy=False).tolist() == [2, 2, 2]
    work = group.all_gather(np.arange(6.0).reshape(2, 3).T, async_op=True)  # read only: packed
    assert np.array_equal(work.wait()[1 - rank], np.arange(6.0).reshape(2, 3).T)


@ranks.on(3)
def test_unequal_blocks(group):
    """Strided arrays, and types that Rondo lacks, in the calls of unequal blocks."""
    rank, size = group.rank, group.size
    for dtype in (np.float32, np.complex128, RECORD, "U5"):
        whole = np.zeros((6, 4), dtype)
        whole[...] = (np.arange(24).reshape(6, 4) + 100 * rank).astype(dtype)
        mine = whole[: 2 * (rank + 1) : 2, ::2]  # rank + 1 rows of 2
        of = [(np.arange(24).reshape(6, 4) + 100 * r).astype(dtype)[: 2 * (r + 1) : 2, ::2] for r in range(size)]
        for counts in (None, [1, 2, 3]):
            for got, expected in zip(group.all_gather_v(mine, counts), of, strict=True):
                assert got.dtype == mine.dtype and np.array_equal(got, expected)
        out = np.zeros((2, 6), dtype).T
        gathered = group.gather_v(mine, root=1, out=out if rank == 1 else None)
        assert gathered is None or np.array_equal(out, np.concatenate(of))
        part = group.scatter_v(whole[::2] if rank == 0 else None, [0, 1, 2], 0, np.zeros((4, rank), dtype).T)
        assert np.array_equal(part, (np.arange(24).reshape(6, 4)[::2]).astype(dtype)[[[], [0], [1, 2]][rank]])
        came = group.all_to_all_v(whole[:3], [1, 1, 1])
        assert np.array_equal(came[2], (np.arange(24).reshape(6, 4) + 200).astype(dtype)[rank : rank + 1])
    own = (np.arange(8).reshape(2, 4).T + 1j).astype(np.complex64)  # 4 rows of 2
    assert np.array_equal(group.reduce_scatter_v(own, [1, 1, 2]), 3 * own[[slice(0, 1), slice(1, 2), slice(2, 4)][rank]])
    with pytest.raises(ValueError, match="reduce_scatter_v of complex numbers has no product"):
        group.reduce_scatter_v(own, [1, 1, 2], "product")
    with pytest.raises(TypeError, match="masked array"):
        group.all_gather_v(np.ma.masked_array([1.0, 2], [True, False]))
    for kind in (bytearray, lambda n: array.array("B", bytes(n)), lambda n: (ctypes.c_uint8 * n)()):
        out = kind(6)
        parts = group.all_gather_v(bytes([rank] * (rank + 1)), out=out)
        assert [bytes(part) for part in parts] == [b"\0", b"\1\1", b"\2\2\2"] and bytes(out) == b"".join(parts)
    grid = (ctypes.c_int32 * 2 * size)(*[(rank, r) for r in range(size)])  # an int each for the ranks, in 2 columns
    got = group.reduce_scatter(grid, out=np.zeros((1, 2), np.int32))
    assert got.tolist() == [[sum(range(size)), size * rank]]
    rows = group.all_gather_v(grid, [size] * size, np.zeros((size * size, 2), np.int32))
    assert rows[1].tolist() == [[1, r] for r in range(size)]


class _Op:
    """As torch.distributed.ReduceOp's."""

    name = "PREMUL_SUM"


@ranks.on(2)
def test_names_masks_and_timeouts(group):
    for op in ("sum", "add", np.add, np.sum):
        assert group.all_reduce(np.ones(2), op=op).tolist() == [2, 2]
    for op in ("avg", "mean", "average", np.mean):
        assert group.all_reduce(np.ones(2), op=op).tolist() == [1, 1]
    for op in ("prod", np.multiply, np.prod):
        assert group.all_reduce(np.full(2, 3.0), op=op).tolist() == [9, 9]
    assert group.all_reduce(np.array([group.rank]), np.maximum).tolist() == [1]
    ones = np.ones(2)
    assert group.all_reduce(ones.copy(), "SUM")[0] == 2 and group.all_reduce(ones.copy(), _Op(), scalar=2.0)[0] == 4
    for op in ("median", "Sum", "MEDIAN", np.sin, None, 3, {}):
        with pytest.raises(ValueError, match="op .* is none of sum, product"):
            group.all_reduce(ones, op=op)
    masked = np.ma.masked_array([1.0, 2], [True, False])
    with pytest.raises(TypeError, match="array is a masked array, whose mask would be lost"):
        group.all_reduce(masked)
    for timeout in (math.inf, datetime.timedelta(seconds=20), np.float64(20)):
        group.barrier(timeout=timeout)
    with pytest.raises(ValueError, match="timeout"):
        group.barrier(timeout=datetime.timedelta(0))


@ranks.on(3)
def test_objects(group):
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


def test_a_group_of_one_keeps_what_it_has():
    group = rondo.init()
    assert group.all_gather(np.array(["a"], "U1")).tolist() == [["a"]]
    group.close()


@ranks.on(2)
def test_words_say_what_a_value_should_have_been(group):
    x = np.full(2, group.rank + 1.0)
    for value, words in {
        "dict": ({"a": x}, "all_reduce_many"), "text": ("abc", "broadcast_object"),
        "list": ([1, 2], "numpy.asarray"), "None": (None, "broadcast_object"),
    }.values():  # fmt: skip
        with pytest.raises(TypeError, match=words):
            group.all_reduce(value)
    with pytest.raises(rondo.Invalid, match="destination is 7; it must be a rank of the group, 0 to 1"):
        group.send(x, 7)
    with pytest.raises(rondo.Invalid, match="source is 7; it must be a rank of the group, 0 to 1, or -1 for any"):
        group.recv(x, 7)
    with pytest.raises(rondo.Invalid, match=r'algorithm "a\\u001b\[31m" is unknown'):
        group.all_reduce(x, algorithm="a\x1b[31m")
    group.barrier()
