"""Calls with `wire=`: what is Python's of them, and what cannot be. Values and residuals: tests/life/calls.life."""

import ml_dtypes
import numpy as np
import pytest
from ranks import on, run

import rondo

COUNT = 1000


def _values(rank, count=COUNT):
    return np.random.default_rng(rank).uniform(-1, 1, count).astype(np.float32)


@on(3)
def test_packed_calls_give_equal_bits(group):
    for dtype in (np.float32, ml_dtypes.bfloat16):
        for count in (0, 5, 256, 100_000):
            weights = (_values(7, count) * 0.02).astype(dtype)
            if count > 5:
                weights[:4] = np.nan, -np.inf, -0.0, 1e-40
            array = weights.copy() if group.rank == 1 else np.zeros(count, dtype)
            assert group.broadcast(array, root=1, wire="packed") is array
            assert array.tobytes() == weights.tobytes()
            assert group.all_gather(array, wire=rondo.Wire("packed")).tobytes() == weights.tobytes() * group.size
    group.broadcast(array, wire="packed", async_op=True).wait()
    with pytest.raises(rondo.Invalid, match="packed is for calls of bfloat16 and float32, not of float64"):
        group.broadcast(np.zeros(3), wire="packed")
    with pytest.raises(rondo.Invalid, match="packed is for broadcast and all_gather"):
        group.all_reduce(array, wire="packed")
    with pytest.raises(rondo.Invalid, match="int8 is for all_reduce, reduce_scatter and all_gather"):
        group.broadcast(array, wire="int8")


@on(2)
def test_equal_seeds_round_alike(group):
    def reduced(seed):
        return group.all_reduce(_values(group.rank), wire=rondo.Wire("int4", seed=seed)).tolist()

    assert reduced(1) == reduced(1)
    assert reduced(1) != reduced(2)
    assert reduced(-1) != reduced(None)


@on(2)
def test_infinity_is_named_or_makes_a_block_nan(group):
    array = _values(group.rank)
    if group.rank == 1:
        array[371] = np.inf
    with pytest.raises(rondo.NotFinite, match="element 371 is infinite on rank 1") as caught:
        group.all_reduce(array.copy(), wire="int8")
    allowed = group.all_reduce(array, wire=rondo.Wire("int8", allow_not_finite=True))
    assert caught.value.ranks == (1,)
    assert np.flatnonzero(np.isnan(allowed)).tolist() == list(range(256, 384))


def _refused(group):
    array = _values(group.rank)
    with pytest.raises(TypeError, match="residual has dtype float64; it must be float32"):
        group.all_reduce(array, wire=rondo.Wire("int8", residual=np.zeros(COUNT)))
    with pytest.raises(ValueError, match="residual has 7 elements, and the array 1000"):
        group.all_reduce(array, wire=rondo.Wire("int8", residual=np.zeros(7, np.float32)))
    with pytest.raises(rondo.Invalid, match="for calls of float32, bfloat16 and float16, not of float64"):
        group.all_reduce(array.astype(np.float64), wire="int8")
    with pytest.raises(rondo.Invalid, match="for sum and avg, not for max"):
        group.all_reduce(array, op="max", wire="int8")
    with pytest.raises(rondo.Invalid, match="stochastic rounding is for the wire formats int8 and int4, not for float16"):
        group.all_reduce(array, wire=rondo.Wire("float16", seed=1))
    with pytest.raises(ValueError, match="recoverable"):
        group.all_reduce(array, wire="int8", recoverable=True)
    return bool((array == _values(group.rank)).all())


def test_what_cannot_be_is_refused_before_anything_happens():
    with pytest.raises(ValueError, match="wire format 'int9' is none of none, float16"):
        rondo.Wire("int9")
    assert run(2, _refused) == [True, True]
