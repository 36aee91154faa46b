"""Handles of the C library are freed by their last use: beside close(), calls that wait, arrays of empty() that end, Works
that are dropped, and threads that outlive the program."""

import gc
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest

import rondo
from rondo import _library, work


@pytest.fixture
def group():
    with rondo.init(rank=0, world_size=1) as group:
        yield group


@pytest.fixture
def destroyed(monkeypatch):
    """Addresses of the communicators that have been freed."""
    addresses, destroy = [], _library.lib.rondo_destroy

    def wrapper(handle):
        addresses.append(handle.value)
        return destroy(handle)

    monkeypatch.setattr(_library.lib, "rondo_destroy", wrapper)
    return addresses


def test_close_beside_calls_that_wait_leaves_the_handle_to_them(group, destroyed, monkeypatch):
    address, waiting, closed = group._handle.value, threading.Barrier(33), threading.Event()
    recv = _library.lib.rondo_recv

    def recv_after_close(*arguments):  # the thread has begun, and has not come to the library
        waiting.wait()
        assert closed.wait(30)
        assert destroyed == []
        return recv(*arguments)

    monkeypatch.setattr(_library.lib, "rondo_recv", recv_after_close)
    said = []

    def wait():
        with pytest.raises(rondo.Closed):
            group.recv(np.zeros(1), source=0)
        said.append(threading.get_ident())

    threads = [threading.Thread(target=wait) for _ in range(32)]
    for thread in threads:
        thread.start()
    waiting.wait()
    group.close()
    closed.set()
    for thread in threads:
        thread.join()
    gc.collect()
    assert len(said) == 32 and destroyed == [address]


def test_the_last_array_of_empty_ends_while_close_is_under_way(group, destroyed, monkeypatch):
    address, held = group._handle.value, [group.empty(10)]
    close, inside = _library.lib.rondo_close, []

    def close_and_drop(handle):
        thread = threading.Thread(target=held.clear)
        thread.start()
        thread.join()
        inside.extend(destroyed)
        return close(handle)

    monkeypatch.setattr(_library.lib, "rondo_close", close_and_drop)
    group.close()
    assert inside == [] and destroyed == [address]


def test_works_that_threads_drop_are_swept_once(group):
    """No thread fails of what another sweeps, what is under way is kept, and nothing is afterwards. The race that this
    looks for was lost in half of its runs."""
    before, failures, pending = sys.getswitchinterval(), [], np.zeros(1)
    alive = weakref.ref(pending)
    group.irecv(pending, source=0, tag=1)
    del pending

    def start_and_sweep():
        try:
            for turn in range(100_000):
                if turn % 10 == 0:
                    group.isend(np.ones(4), dest=0, tag=2)
                    group.irecv(np.zeros(4), source=0, tag=2)
                work._sweep()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=start_and_sweep) for _ in range(8)]
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert failures == [] and alive() is not None
    group.send(np.ones(1), dest=0, tag=1)
    group.barrier(async_op=True).wait()
    work._sweep()
    assert alive() is None


DAEMONS = """
import threading
import numpy as np, rondo
groups = [rondo.init(rank=0, world_size=1) for _ in range(4)]
inside = threading.Barrier(9)
def wait(group):
    inside.wait()
    try:
        group.recv(np.zeros(1), 0)
    except rondo.Error:
        while True:
            pass
def work(group):
    inside.wait()
    while True:
        try:
            group.isend(np.ones(4), 0, tag=1)
            group.recv(np.zeros(4), 0, tag=1)
        except rondo.Error:
            pass
kept = groups[0].empty(10)
for group in groups:
    for target in (wait, work):
        threading.Thread(target=target, args=(group,), daemon=True).start()
inside.wait()
"""


def test_a_program_may_end_beside_daemon_threads_that_are_in_calls():
    for _ in range(3):
        ended = subprocess.run([sys.executable, "-c", DAEMONS], capture_output=True, text=True, timeout=60)
        assert (ended.returncode, ended.stderr) == (0, "")
