"""Signals: what a handler raises, Ctrl-C's among them, comes out of the call that waits, and out of no other; what the
call has started is kept until it has ended."""

import contextlib
import multiprocessing
import signal
import socket
import threading
import time

import numpy as np
import pytest

import rondo


class Stop(BaseException):
    pass


@contextlib.contextmanager
def on_alarm(handler, seconds=0.2):
    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def stop(*_):
    raise Stop


@pytest.fixture
def group():
    with rondo.init(rank=0, world_size=1) as group:
        yield group


def test_wait_of_a_work_with_a_callback_raises_what_the_handler_did(group):
    told = threading.Event()
    work = group.irecv(np.zeros(1))
    work.add_done_callback(lambda _work: told.set())
    with on_alarm(stop), pytest.raises(Stop):
        work.wait()
    assert told.wait(30)
    assert isinstance(work.exception(), rondo.Interrupted) and isinstance(group.error, rondo.Interrupted)
    with pytest.raises(rondo.Interrupted):
        group.barrier()


def test_init_hears_a_signal(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    for rendezvous in (f"file://{tmp_path}/meet", f"unix://{tmp_path}/meet.socket", f"tcp://127.0.0.1:{port}"):
        begin = time.monotonic()
        with on_alarm(stop), pytest.raises(Stop):
            rondo.init(rank=0, world_size=2, rendezvous=rendezvous)
        assert time.monotonic() - begin < 10
    with rondo.init(rank=0, world_size=1) as group:
        assert group.all_reduce(np.ones(2)).tolist() == [1, 1]


def closes(over):
    group = rondo.init()
    if group.rank == 1:
        assert over.wait(60)
        return
    begin = time.monotonic()
    with on_alarm(stop), pytest.raises(Stop):
        group.close()
    del group
    assert time.monotonic() - begin < 1.5
    over.set()


def test_close_hears_a_signal():
    """Its rank waits for the other's goodbye."""
    rondo.spawn(closes, 2, (multiprocessing.get_context("fork").Event(),), start_method="fork")


def test_a_handler_that_takes_long_is_not_entered_by_another_thread(group):
    """The other thread waits in a call meanwhile, and its call has nothing to do with the signal."""
    entered, failures = [], []
    in_handler, seen = threading.Event(), threading.Event()

    def handler(*_):
        entered.append(threading.get_ident())
        in_handler.set()
        time.sleep(0.5)  # others run: the other thread asks several times
        seen.set()

    with rondo.init(rank=0, world_size=1) as other:

        def wait():
            try:
                other.recv(np.zeros(1), source=0, timeout=2)
            except rondo.Error as error:
                failures.append(type(error))

        thread = threading.Thread(target=wait)
        thread.start()
        with on_alarm(handler), pytest.raises(rondo.Timeout):
            group.recv(np.zeros(1), source=0, timeout=2)
        thread.join()
    assert seen.is_set() and entered == [threading.main_thread().ident] and failures == [rondo.Timeout]


def test_a_handler_may_wait_itself(group):
    with rondo.init(rank=0, world_size=1) as other:
        sums = []

        def handler(*_):
            sums.append(other.all_reduce(np.ones(2)).sum())
            with pytest.raises(rondo.Timeout):
                other.recv(np.zeros(1), source=0, timeout=0.5)
            group.isend(np.ones(1), 0)

        with on_alarm(handler):
            group.recv(np.zeros(1), 0)
    assert sums == [2]
