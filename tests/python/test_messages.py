"""Probes, cancel, truncation, synchronous sends; reductions by a function, scans, dup()."""

import os
import re
import time

import numpy as np
import pytest
from ranks import on, run

import rondo


def probes(group):
    other = 1 - group.rank
    if group.rank == 0:
        for tag in range(4):
            group.send(np.arange(3.0) + tag, other, tag)
        group.barrier()
        return None
    assert group.probe(0, 2) == (0, 2, 24)
    assert group.probe(tag=1, async_op=True).wait() == (0, 1, 24)
    while group.iprobe() is None:
        pass
    matched = group.mprobe(0, 2)
    assert matched[:3] == (0, 2, 24)
    x = np.zeros(3)
    assert group.mrecv(x, matched) == (0, 2, 24)
    assert x.tolist() == [2, 3, 4]
    with pytest.raises(rondo.Invalid, match="once"):
        group.mrecv(x, matched)
    matched = group.mprobe(async_op=True).wait()
    assert isinstance(matched, rondo.Matched)
    assert group.imrecv(x, matched).wait() == matched[:3]
    matched = group.improbe(0, 3)
    assert group.recv(x, 0).tag == 1  # what is not matched
    group.mrecv(x, matched)
    assert group.improbe() is None
    with pytest.raises(rondo.Timeout):
        group.probe(0, 9, timeout=0.02)
    work = group.probe(0, 9, async_op=True)
    assert work.cancel() and not work.cancel()
    with pytest.raises(rondo.Cancelled):
        work.wait()
    group.barrier()
    return None


def options(group):
    other = 1 - group.rank
    x = np.full(2, -1.0)
    if group.rank == 0:
        group.send(np.arange(3.0), other, tag=1)
        work = group.isend(np.arange(2.0), other, tag=2, synchronous=True)
        group.barrier()
        assert not work.done()
        group.barrier()
        work.wait()
        group.send(np.arange(2.0), other, tag=3, synchronous=True)
        group.barrier()
        return
    with pytest.raises(rondo.Truncated, match="24 bytes") as failure:
        group.recv(x, 0, 1, truncate=True)
    assert failure.value.ranks == (0,) and x.tolist() == [0, 1]
    group.barrier()
    group.barrier()
    group.recv(x, 0, 2)
    group.irecv(x, 0, 3, truncate=True).wait()
    work = group.irecv(x)
    assert work.cancel()
    with pytest.raises(rondo.Cancelled):
        work.wait()
    group.barrier()


def test_probes_and_options_of_messages():
    run(2, probes)
    run(2, options)


@on(3)
def test_functions_scans_and_dup(group):
    n, r = group.size, group.rank
    largest = rondo.UserOp(lambda a, b: np.maximum(a, b, out=b))
    assert group.all_reduce(np.array([r, -r]), largest).tolist() == [n - 1, 0]

    first = rondo.UserOp(lambda a, b: np.copyto(b, a), commutative=False)
    last = rondo.UserOp(lambda a, b: None, commutative=False)
    for dtype in (np.int32, np.float64, np.float16):
        x = np.full(1000, r, dtype)
        assert set(group.all_reduce(x.copy(), first).tolist()) == {0}
        assert set(group.all_reduce(x.copy(), last, async_op=True).wait().tolist()) == {n - 1}
        assert set(group.scan(x.copy(), first).tolist()) == {0}
        assert set(group.scan(x.copy(), last).tolist()) == {r}
    got = group.reduce(np.array([r]), first, root=1)
    assert got is None or got.tolist() == [0]
    assert group.reduce_scatter(np.arange(n) + 10 * r, last).tolist() == [r + 10 * (n - 1)]
    counts = list(range(n))
    got = group.reduce_scatter_v(np.full(sum(counts), r), counts, first)
    assert got.tolist() == [0] * r
    assert group.scan(np.array([1, 2])).tolist() == [r + 1, 2 * r + 2]
    out = np.array([-1, -1])
    group.exscan(np.array([1, r]), "max", out)
    assert out.tolist() == ([-1, -1] if r == 0 else [1, r - 1])
    with pytest.raises(TypeError):
        rondo.UserOp(5)
    with pytest.raises(ValueError, match="no rondo.UserOp"):
        group.all_reduce(np.ones(1), "sums")
    with pytest.raises(rondo.Invalid, match="each tensor"):
        group.all_reduce_many([np.ones(1), np.ones(1)], largest)
    copy = group.dup()
    assert copy.rank == r and copy.all_reduce(np.array([1])).tolist() == [n]

    def fails(a, b):
        raise KeyError("a mistake")

    with pytest.raises(rondo.Aborted, match="KeyError: 'a mistake'"):
        copy.all_reduce(np.ones(3), rondo.UserOp(fails))
        copy.barrier()
    copy.close()
    assert _aborted_by(group, OSError("no file '\udcff', no \0")) == r"OSError: no file '\udcff', no \x00"
    assert _aborted_by(group, Wordless()) == "Wordless"
    group.barrier()


class Wordless(Exception):
    def __str__(self):
        raise RuntimeError


def _aborted_by(group, error):
    """What the ranks hear where a function raises that."""

    def raises(a, b):
        raise error

    copy = group.dup()
    with pytest.raises(rondo.Aborted) as caught:
        copy.all_reduce(np.ones(3), rondo.UserOp(raises))
        copy.barrier()
    copy.close()
    return str(caught.value).rpartition(" raised ")[2]


def waits(case):
    """A receive of each rank that is not ended for longer than two heartbeats."""
    group = rondo.init(settings={"RONDO_HEARTBEAT_MS": 100})
    x, other = np.zeros(4), 1 - group.rank
    with pytest.raises(rondo.Timeout if case != "late" or group.rank == 0 else rondo.Error):
        if case == "both receive":
            group.recv(x, other, 7, timeout=1)
        elif case == "both receive asynchronously":
            group.irecv(x, other, 7, timeout=1).wait()
        elif case == "both send first":
            group.send(np.zeros(1 << 20), other, timeout=1)
        elif case == "from any":
            group.recv(x, timeout=1)
        elif group.rank == 0:
            group.recv(x, 1, timeout=1)
        else:
            while group.error is None:
                time.sleep(0.05)
            group.barrier()


WAITS = {
    "both receive": "in recv(32 bytes from rank 1, tag 7); rank 1 (host {host}, pid N) waits in recv(32 bytes from rank 0, tag 7): "
    "these ranks wait for each other",
    "both send first": "in send(8388608 bytes to rank 1, tag 0); rank 1 (host {host}, pid N) waits in send(8388608 bytes to "
    "rank 0, tag 0): these ranks wait for each other",
    "from any": "in recv(32 bytes from any rank, tag any); all other ranks wait in messages, too",
    "late": "in recv(32 bytes from rank 1, tag any); rank 1 (host {host}, pid N) waits in no message",
}
WAITS["both receive asynchronously"] = WAITS["both receive"]


@pytest.mark.parametrize("case", WAITS)
def test_a_message_that_waits_says_for_whom(case, capfd):
    rondo.spawn(waits, 2, (case,), start_method="fork")
    said = re.sub(r"pid \d+", "pid N", capfd.readouterr().err)
    assert re.search(r"rank 0 \(host \S+, pid N\) has waited \d+ ms " + re.escape(WAITS[case].format(host=os.uname().nodename)), said), said


def calls_late(group, name):
    if group.rank == 1:
        time.sleep(1)
    {
        "split()": lambda: group.split(0),
        "new_group()": lambda: group.new_group([0, 1]),
        "dup()": group.dup,
        "broadcast_object(root=1)": lambda: group.broadcast_object(3, root=1),
        "all_gather_object()": lambda: group.all_gather_object(3),
        "all_gather_v()": lambda: group.all_gather_v(np.zeros(group.rank + 1)),
    }[name]()


@pytest.mark.parametrize(
    "name", ["split()", "new_group()", "dup()", "broadcast_object(root=1)", "all_gather_object()", "all_gather_v()"]
)
def test_a_call_that_is_made_of_exchanges_waits_under_its_own_name(name, capfd, monkeypatch):
    monkeypatch.setenv("RONDO_HEARTBEAT_MS", "100")
    run(2, calls_late, name)
    assert f", {name}, for rank 1 (" in capfd.readouterr().err
