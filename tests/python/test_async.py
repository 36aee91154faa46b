"""Handles: wait, done, await; arrays are kept; batches; prepared calls."""

import asyncio
import gc
import queue
import sys
import threading
import weakref

import numpy as np
import pytest
from ranks import on, run

import rondo


@on(2)
def test_handles(group):
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
    assert x[0] == 3


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


@on(2)
def test_await(group):
    async def main():
        works = [group.all_reduce(np.full(10, i + group.rank), async_op=True) for i in range(5)]
        return [int((await work)[0]) for work in works]

    assert asyncio.run(main()) == [1, 3, 5, 7, 9]


def test_a_wait_that_is_refused_leaves_the_operation_its_arrays():
    """In a batch that is open, and in a callback."""
    with rondo.init(rank=0, world_size=1) as group:
        with group.batch():
            x = np.ones(2)
            gone, work = weakref.ref(x), group.isend(x, 0)
            del x
            with pytest.raises(rondo.Invalid, match="has not ended"):
                work.wait()
            assert gone() is not None and not work.done()
            got = group.irecv(np.zeros(2), 0)
        assert got.wait().bytes == 16 and work.wait() is None and gone() is None

        x, refused = np.zeros(2), queue.Queue()
        gone, work = weakref.ref(x), group.irecv(x, 0)
        del x

        def waits(_):
            try:
                work.wait()
            except BaseException as error:
                refused.put(error)

        group.barrier(async_op=True).add_done_callback(waits)
        assert isinstance(refused.get(timeout=30), rondo.Invalid)
        assert gone() is not None and not work.done()
        group.send(np.ones(2), 0)
        assert work.wait().bytes == 16


def test_a_failure_keeps_no_frame():
    with rondo.init(rank=0, world_size=1) as group:

        def fails():
            x = np.zeros(1)
            work = group.irecv(x, 0)
            assert work.cancel()
            for _ in range(2):
                with pytest.raises(rondo.Cancelled):
                    work.wait()
            assert work.exception().__traceback__ is None
            return weakref.ref(x)

        gone = fails()
        gc.collect()
        assert gone() is None


@on(2)
def test_prepared(group):
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
    assert result == (4, 4)


@on(2)
def test_batches(group):
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
    assert x[0] == 2


def test_a_batch_of_another_thread_leaves_calls_alone():
    with rondo.init(rank=0, world_size=1) as group:
        group.isend(np.ones(2), 0)
        got = np.zeros(4)
        with group.batch():
            thread = threading.Thread(target=lambda: group.recv(got[::2]))  # strided: not in a batch
            thread.start()
            thread.join()
        assert got.tolist() == [1, 0, 1, 0]


class Calls:
    """What callbacks were given, by other threads."""

    def __init__(self):
        self.works = queue.Queue()

    def next(self):
        return self.works.get(timeout=30)


@on(2)
def test_callbacks(group):
    calls = Calls()
    x = np.full(100_000, group.rank + 1.0)
    work = group.all_reduce(x, async_op=True)
    work.add_done_callback(calls.works.put)
    assert calls.next() is work and work.done() and x[0] == 3
    work.add_done_callback(lambda work: calls.works.put((threading.get_ident(), work.wait() is x)))  # has ended
    thread, same = calls.next()
    assert same and thread != threading.get_ident()

    refused = []

    def start_next(work, left=100):
        if left == 100:
            try:
                group.barrier()
            except rondo.Invalid as error:
                refused.append(str(error))
        if left == 0:
            return calls.works.put(work)
        group.all_reduce(x, "max", async_op=True).add_done_callback(lambda work: start_next(work, left - 1))

    group.barrier(async_op=True).add_done_callback(start_next)
    assert calls.next().wait() is x and x[0] == 3
    assert len(refused) == 1 and "must not wait" in refused[0]
    with pytest.raises(TypeError, match="function is int"):
        work.add_done_callback(3)


@on(2)
def test_a_callback_that_raises_and_one_of_a_failure(group):
    ignored = queue.Queue()
    sys.unraisablehook = lambda caught: ignored.put(str(caught.exc_value))
    group.barrier(async_op=True).add_done_callback(lambda work: 1 / 0)
    text = ignored.get(timeout=30)
    sys.unraisablehook = sys.__unraisablehook__
    results = queue.Queue()
    pending = group.irecv(np.zeros(1), source=1 - group.rank, tag=5)
    pending.add_done_callback(lambda work: results.put(type(work.exception()).__name__))
    if group.rank == 0:
        group.send(np.zeros(1), 1)  # its own request is under way
    else:
        group.recv(np.zeros(1), 0)
        group.abort("enough")
    assert text == "division by zero" and results.get(timeout=30) == "Aborted"
