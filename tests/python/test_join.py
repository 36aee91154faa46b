"""init(store=, settings=), and what a group says of itself: error, topology, algorithms, its end."""

import fcntl
import gc
import multiprocessing
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from ranks import on, run, said_by

import rondo


class FolderStore(rondo.Store):
    """A file a key."""

    def __init__(self, folder):
        self.folder = Path(folder)

    @contextmanager
    def locked(self, key):
        assert key.startswith("rondo/")
        with (self.folder / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield self.folder / key.replace("/", "%")

    def put(self, key, value, timeout):
        with self.locked(key) as path:
            path.write_bytes(value)

    def get(self, key, timeout):
        until = time.monotonic() + timeout
        while (value := self.try_get(key, timeout)) is None:
            if time.monotonic() >= until:
                raise TimeoutError(key)
            time.sleep(0.001)
        return value

    def try_get(self, key, timeout):
        with self.locked(key) as path:
            return path.read_bytes() if path.exists() else None

    def add(self, key, amount, timeout):
        with self.locked(key) as path:
            total = int(path.read_bytes() if path.exists() else 0) + amount
            path.write_bytes(b"%d" % total)
            return total

    def compare_set(self, key, expected, desired, timeout):
        with self.locked(key) as path:
            now = path.read_bytes() if path.exists() else b""
            if now == expected:
                path.write_bytes(desired)
                return desired
            return now

    def remove(self, key, timeout):
        with self.locked(key) as path:
            there = path.exists()
            path.unlink(missing_ok=True)
            return there


def with_store(rank, folder, results):
    settings = {"RONDO_ALGORITHM": "ring", "RONDO_CONNECTIONS": 2}
    with rondo.init(rank=rank, world_size=2, store=FolderStore(folder), settings=settings) as group:
        total = float(group.all_reduce(np.array([rank + 1.0]))[0])
        results.put((rank, total, group.local_size, group.algorithm_for("all_reduce", 1 << 20)))


def test_a_store_of_the_programs_and_settings(tmp_path):
    said = said_by("fork", with_store, [(r, tmp_path) for r in range(2)])
    assert said == [(0, 3.0, 2, "ring"), (1, 3.0, 2, "ring")]


class Broken(FolderStore):
    def compare_set(self, key, expected, desired, timeout):
        raise OSError("disk full")


class Slow(FolderStore):
    def compare_set(self, key, expected, desired, timeout):
        raise TimeoutError("too slow")


class Stopped(FolderStore):
    def compare_set(self, key, expected, desired, timeout):
        raise KeyboardInterrupt


def test_a_store_that_fails(tmp_path):
    with pytest.raises(rondo.Bootstrap, match="compare_set.*OSError: disk full") as caught:
        rondo.init(rank=0, world_size=2, store=Broken(tmp_path))
    assert isinstance(caught.value.__cause__, OSError)
    with pytest.raises(rondo.Timeout, match="too slow"):
        rondo.init(rank=0, world_size=2, store=Slow(tmp_path))
    with pytest.raises(KeyboardInterrupt):
        rondo.init(rank=0, world_size=2, store=Stopped(tmp_path))
    with pytest.raises(rondo.Bootstrap, match="NotImplementedError"):
        rondo.init(rank=0, world_size=2, store=rondo.Store())


def asked(group, rank_0_has_asked):
    assert group.topology == rondo.Topology([0, 0], [0, 0], group.topology.cores) and min(group.topology.cores) >= 0
    assert group.algorithm_for("all_reduce", 2) == "one_shot"
    assert group.algorithm_for("all_reduce", 1 << 20, "bfloat16", registered=True) == "registered"
    with pytest.raises(ValueError, match="collective 'all_reduces' is none of all_reduce"):
        group.algorithm_for("all_reduces", 2)
    assert group.error is None
    if group.rank == 0:
        rank_0_has_asked.set()
    else:
        assert rank_0_has_asked.wait(60)
        group.abort("enough")
    with pytest.raises(rondo.Aborted):
        group.recv(np.zeros(1), 1 - group.rank)
    error = group.error
    return type(error).__name__, error.ranks, "enough" in str(error)


def test_what_a_group_says_of_itself():
    rank_0_has_asked = multiprocessing.get_context("fork").Event()
    assert run(2, asked, rank_0_has_asked) == [("Aborted", (1,), True)] * 2


@on(2)
def test_arrays_outlive_close(group):
    x, y = group.empty(1000), group.empty(10)
    x[:] = group.rank + 1
    group.all_reduce(x)
    handle = group._handle
    before = sys.getrefcount(handle)
    group.close()
    group.close()
    assert x.sum() == 3000 and sys.getrefcount(handle) == before - 2 and isinstance(group.error, rondo.Closed)
    x[0] = 5
    with pytest.raises(rondo.Closed):
        group.all_reduce(x)
    del x, y
    gc.collect()
    assert before - sys.getrefcount(handle) == 4  # the group's two references, and the arrays'


@on(2)
def test_a_process_may_end_with_arrays(group):
    global kept
    kept = group.empty(10)  # lives until the end of the process
    pair = group.split(0)
    group.close()
    pair.barrier()
