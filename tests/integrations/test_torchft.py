"""torchft over Rondo: replicas lose one that is killed in a step, go on, take in another in its place, and end as equals."""

import random
import subprocess
import sys

import model
import pytest
import test_integrations
import torch

torchft = pytest.importorskip("torchft._torchft")


def start(lighthouse, replica, folder):
    script = [sys.executable, "with_torchft.py", lighthouse.address(), str(replica), f"{folder}/{replica}.pt"]
    return subprocess.Popen(
        script, cwd=test_integrations.HERE, env=test_integrations.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )  # fmt: skip


def steps(replica, until):
    """(step, participants) as it says them, to the first of so many participants, or the end."""
    for line in replica.stdout:
        step, participants = map(int, line.split())
        yield step, participants
        if participants == until:
            return


def test_a_replica_is_lost_and_replaced(tmp_path):
    lighthouse = torchft.LighthouseServer(bind="127.0.0.1:0", min_replicas=2, join_timeout_ms=10_000, heartbeat_timeout_ms=1_000)
    replicas = [start(lighthouse, replica, tmp_path) for replica in range(3)]
    try:
        for replica in replicas:
            assert list(steps(replica, until=3))[-1][1] == 3
        lost = random.randrange(3)
        replicas[lost].stdin.write("die\n")
        replicas[lost].stdin.flush()
        assert replicas[lost].wait(60) == -9
        others = [replica for replica in replicas if replica is not replicas[lost]]
        for replica in others:
            assert list(steps(replica, until=2))[-1][1] == 2
        replicas[lost] = start(lighthouse, lost, tmp_path)
        ends = [list(steps(replica, until=0)) for replica in replicas]
        assert [replica.wait(60) for replica in replicas] == [0, 0, 0]
    finally:
        for replica in replicas:
            replica.kill()
        lighthouse.shutdown()
    assert ends[0][-3:] == ends[1][-3:] == ends[2][-3:]
    assert [participants for _, participants in ends[0][-3:]] == [3] * 3
    trained = [torch.load(tmp_path / f"{replica}.pt") for replica in range(3)]
    for key, tensor in model.make().state_dict().items():
        assert torch.equal(trained[0][key], trained[1][key]) and torch.equal(trained[0][key], trained[2][key])
        assert not torch.equal(trained[0][key], tensor), f"{key} was not trained"
