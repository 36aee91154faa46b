"""LightGBM over Rondo: the models of its own sockets, and ends in Rondo's words."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import lightgbm
import numpy as np
import pytest

import rondo
import rondo.lightgbm

EXAMPLE = Path(__file__).parents[2] / "examples/trainers/boosting.py"


def trained(network, learner, world, folder):
    file = folder / f"{network}.txt"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    subprocess.run(
        [sys.executable, "-m", "rondo.run", "-n", str(world), EXAMPLE, "--network", network, "--tree-learner", learner,
         "--rows", "20000", "--iterations", "10", "--model", file, "--port", str(port)],
        check=True, timeout=100,
    )  # fmt: skip
    return file.read_text()


@pytest.mark.parametrize("world", [1, 2, 3, 4])
@pytest.mark.parametrize("learner", ["data", "voting"])
def test_equal_to_sockets(learner, world, tmp_path):
    ours = trained("rondo", learner, world, tmp_path)
    assert "Tree=9" in ours
    if world > 1:
        assert ours == trained("sockets", learner, world, tmp_path)


def rows(seed):
    random = np.random.default_rng(seed)
    x = random.standard_normal((2000, 8))
    return lightgbm.Dataset(x, x[:, 0] > x[:, 1])


def boost(group, rounds=10, callbacks=()):
    parameters = {"objective": "binary", "verbose": -1, "num_threads": 1}
    with rondo.lightgbm.network(group) as network:
        return lightgbm.train({**network, **parameters}, rows(group.rank), rounds, callbacks=list(callbacks)).num_trees()


def with_group(fn, *args):
    with rondo.init() as group:
        return fn(group, *args)


def again_and_again(group):
    first = [boost(group) for _ in range(3)]
    half = group.split(group.rank % 2)
    return [*first, boost(half), group.all_reduce(np.ones(1))[0], boost(group)]


def test_networks_of_several_groups_one_after_the_other():
    assert rondo.spawn(with_group, 4, (again_and_again,)) == [[10, 10, 10, 10, 4.0, 10]] * 4


def killed(group, folder):
    def die(environment):
        if environment.iteration == 3 and group.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(rondo.PeerLost) as caught:
        boost(group, 1000, [die])
    (folder / str(group.rank)).write_text(f"{caught.value.ranks} {caught.value}")


def test_a_killed_rank_ends_all_in_our_words(tmp_path):
    begin = time.monotonic()
    with pytest.raises(rondo.SpawnError, match="rank 1 was ended by signal 9"):
        rondo.spawn(with_group, 3, (killed, tmp_path))
    assert time.monotonic() - begin < 30
    for rank in (0, 2):
        assert (tmp_path / str(rank)).read_text().startswith("(1,) rank 1")


def raises(group):
    def stop(environment):
        if environment.iteration == 3:
            raise KeyError("no such metric")

    with pytest.raises(KeyError):
        boost(group, callbacks=[stop])
    with pytest.raises(lightgbm.basic.LightGBMError), rondo.lightgbm.network(group) as network:
        lightgbm.train({**network, "tree_learner": "feature", "verbose": -1}, rows(group.rank), 1)
    group.close()
    with pytest.raises(rondo.Closed):
        boost(group)


def test_other_errors_stay_what_they_are():
    rondo.spawn(with_group, 2, (raises,))
