"""Handles: wait, done, await; arrays are kept; batches; prepared calls."""

import asyncio
import gc
import weakref

import numpy as np
import pytest
from ranks import run

import rondo


def handles(group):
    x = np.full(100_000, group.rank + 1.0)
    work = group.all_reduce(x, async_op=True)
    assert work.wait() is x and work.done() and work.exception() is None and work.wait() is x
    gathered = group.all_gather(x, async_op=True).wait(10)
    assert gathered.shape == (2, 100_000)
    if group.rank == 0:
        work = group.irecv(np.zeros(1))
        with pytest.raises(TimeoutError):
            work.wait(0.01)
        assert not work.done()
        group.barrier()
        assert work.wait(10).source == 1
    else:
        group.barrier()
        group.send(np.ones(1), 0)
    return x[0]


def test_handles():
    assert run(2, handles) == [3, 3]


def dropped(group):
    x = np.full(1 << 20, group.rank + 1.0)
    gone = weakref.ref(x)
    group.all_reduce(x, async_op=True)
    if group.rank == 0:
        del x  # its memory must live until the other rank has come
        gc.collect()
        assert gone() is not None
        group.barrier()
        group.barrier(async_op=True).wait()
        assert gone() is None
        return 3.0
    group.barrier()
    group.barrier()
    return float(x[0])


def test_arrays_live_until_the_operation_ends():
    assert run(2, dropped) == [3, 3]


def awaited(group):
    async def main():
        works = [group.all_reduce(np.full(10, i + group.rank), async_op=True) for i in range(5)]
        return [int((await work)[0]) for work in works]

    return asyncio.run(main())


def test_await():
    assert run(2, awaited) == [[1, 3, 5, 7, 9]] * 2


def prepared(group):
    x, y = np.ones(10), np.zeros(10)
    add, copy = group.prepare_all_reduce(x), group.prepare_all_reduce(x, "max", y)
    assert add() is x and add() is x and copy() is y
    result = x[0], y[9]
    group.close()
    with pytest.raises(rondo.Closed):
        add()
    with pytest.raises(rondo.Closed):
        group.barrier()
    group.close()
    return result


def test_prepared():
    assert run(2, prepared) == [(4, 4)] * 2


def batches(group):
    x = np.ones(10)
    with pytest.raises(KeyError):
        with group.batch():
            group.all_reduce(x)
            raise KeyError("nothing of it happens")
    assert x[0] == 1
    with group.batch():
        for _ in range(3):
            group.all_reduce(np.ones(5))
            group.prepare_all_reduce(np.ones(5))()  # kept until the end, too
        group.all_reduce(x)
        with pytest.raises(rondo.Invalid):
            group.batch().__enter__()
    return x[0]


def test_batches():
    assert run(2, batches) == [2, 2]
