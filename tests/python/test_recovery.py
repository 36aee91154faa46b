"""Ranks that live go on after one was killed: shrink(), and elastic() round a step."""

import os
import signal

import numpy as np
import pytest
from ranks import on, run, said_by

import rondo


def _rank(rank, world, meeting_point, body, results):
    place = {"rank": rank, "world_size": world, "rendezvous": meeting_point} if rank < world else {}
    results.put((rank, body(rondo.init(**place), rank)))


def survivors(world, body, newcomers=0):
    """What body(group, rank) returns on each rank that lives; one does not. Newcomers come without a rank."""
    meeting_point = rondo.unique_id()
    return said_by("fork", _rank, [(r, world, meeting_point, body) for r in range(world + newcomers)], dead=1)


def _elastic(group, rank):
    recovery, weights, step = rondo.elastic(group), np.zeros(1000), 0
    registered = group.empty(1000)
    while step < 8:
        with recovery as group:
            if step == 4 and rank == 1 and group.epoch == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            registered[:] = rank + 1
            group.all_reduce(registered)
            group.commit(step)
        if recovery.group.committed == step:
            weights, step = weights + registered, step + 1
    group = recovery.group
    lost = type(recovery.lost).__name__, recovery.lost.ranks
    result = group.rank, group.size, group.epoch, float(weights[-1]), lost
    group.close()
    return result


def test_a_step_is_done_again_by_those_who_live():
    # 4 steps of 1 + 2 + 3, and 4 of 1 + 3
    assert survivors(3, _elastic) == [
        (0, (0, 2, 1, 40.0, ("PeerLost", (1,)))),
        (2, (1, 2, 1, 40.0, ("PeerLost", (1,)))),
    ]


def wait_for_all(group, rank):
    """`rank`, which is about to die, waits until all others have left the calls before: they could fail in them."""
    if group.rank != rank:
        group.send(np.ones(1), rank)
        return
    for other in range(group.size):
        if other != rank:
            group.recv(np.ones(1), other)


def _grows(group, rank):
    recovery, weights, epoch = rondo.elastic(group), np.zeros(1000), None
    while epoch != 2:
        step = recovery.group.committed + 1
        with recovery as group:
            if epoch != group.epoch:
                group.broadcast(weights)
                epoch = group.epoch
            if rank == 0 and step == 3:
                os.kill(os.getpid(), signal.SIGKILL)
            total = group.all_reduce(np.ones(1000), out=np.empty(1000))
            group.commit(step)
        if recovery.group.committed == step:
            weights += total / total[0]
    group = recovery.group
    result = group.rank, group.size, np.array_equal(weights, np.full(1000, 1.0 + group.committed))
    group.close()
    return result


def test_a_newcomer_takes_the_place_of_a_rank_that_died(monkeypatch, tmp_path):
    """With the state that rank 0 hands over: each step was done once."""
    monkeypatch.setenv("RONDO_JOIN", f"unix://{tmp_path}/door")
    assert survivors(3, _grows, newcomers=1) == [(1, (0, 3, True)), (2, (1, 3, True)), (3, (2, 3, True))]


def _plain(group, rank):
    wait_for_all(group, 0)
    if rank == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(rondo.PeerLost):
        while True:
            group.barrier()
    following = group.shrink(timeout=20)
    with pytest.raises(rondo.Closed):
        group.barrier()
    total = following.all_reduce(np.array([rank]))
    following.close()
    return int(total[0])


def test_shrink_closes_the_old_one_and_gives_the_next():
    assert survivors(4, _plain) == [(1, 6), (2, 6), (3, 6)]


def _other_errors(group):
    recovery = rondo.elastic(group)
    with pytest.raises(ZeroDivisionError), recovery:
        raise ZeroDivisionError
    with pytest.raises(ValueError, match="timeout"):
        group.shrink(timeout=-1)
    with pytest.raises(ValueError, match="RONDO_JOIN"):
        group.grow(1)
    assert group.newcomers() == 0
    with pytest.raises(rondo.Timeout), recovery:  # which leaves the group usable
        group.probe(timeout=0.01)
    group.barrier()
    return recovery.group is group and recovery.lost is None


def test_other_errors_leave_the_block():
    with pytest.raises(TypeError, match="rondo.Communicator"):
        rondo.elastic(3)
    assert run(2, _other_errors) == [True, True]


def _wrong_grows(group):
    for wrong, error in (((1.5,), TypeError), ((2**40,), ValueError), ((1, -1), ValueError), ((1, "soon"), TypeError)):
        if group.rank == 1:
            with pytest.raises(error, match="on rank 1"):
                group.grow(*wrong)
        else:
            with pytest.raises(rondo.Invalid, match="rank 1 .* has refused its own call"):
                group.grow(1)
        group.barrier()
    return True


def test_a_wrong_argument_of_grow_ends_the_call_on_all_ranks(monkeypatch, tmp_path):
    monkeypatch.setenv("RONDO_JOIN", f"unix://{tmp_path}/door")
    assert run(3, _wrong_grows) == [True] * 3


def test_a_wrong_timeout_of_elastic_is_refused_before_a_loss():
    assert run(1, _elastic_timeouts) == [True]


def _elastic_timeouts(group):
    for wrong, error in ((-1, ValueError), ("soon", TypeError)):
        with pytest.raises(error, match="timeout"):
            rondo.elastic(group, wrong)
    return True


@on(2)
def test_steps_are_committed_in_their_order(group):
    before = group.committed
    group.commit(3, digest=7)
    with pytest.raises(ValueError, match="step is 3; the one before was 3"):
        group.commit(3)
    assert (before, group.committed, group.epoch) == (-1, 3, 0)
