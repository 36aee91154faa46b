"""rondo.trace() and Communicator.metrics()."""

import json

import numpy as np
import pytest
from ranks import on, run

import rondo


def traced(group, folder):
    x = np.ones(1000)
    with rondo.trace(folder):
        group.all_reduce(x)
    group.all_reduce(x)
    half = group.split(group.rank % 2)
    with rondo.trace(folder):  # of the joined one only: the folder has one file a rank
        half.all_reduce(x)
    return group.rank


def test_trace(tmp_path):
    assert run(2, traced, str(tmp_path)) == [0, 1]
    files = sorted(tmp_path.iterdir())
    assert [f.name for f in files] == ["rank-0.rondo-trace", "rank-1.rondo-trace"]
    text = files[1].read_bytes()[4096:4096 + 60 * 1024].rstrip(b"\0").decode()
    lines = [json.loads(line) for line in text.splitlines()]
    assert lines[0]["rank"] == 1 and lines[0]["world"] == 2
    assert [line["members"] for line in lines if line["what"] == "communicator"] == [[0, 1], [1]]


@on(1)
def test_a_folder_that_cannot_be_made(group):
    with pytest.raises(rondo.Error, match="RONDO_TRACE.*/proc/none"):
        rondo.trace("/proc/none")
    group.barrier()


def test_nothing_to_trace():
    with pytest.raises(ValueError, match="rondo.init"):
        rondo.trace("folder")


def counted(group):
    group.metrics()
    for _ in range(3):
        group.all_reduce(np.ones(1000, np.float32), algorithm="ring")
    return group.metrics()


def test_metrics():
    for rank, text in enumerate(run(2, counted)):
        assert f'rondo_operations_total{{collective="all_reduce",algorithm="ring",rank="{rank}"}} 3\n' in text
        assert f'rondo_operation_bytes_total{{collective="all_reduce",rank="{rank}"}} 12000\n' in text
