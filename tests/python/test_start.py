"""Ways to start: unique id, file, tutorial's environment, spawn's methods, `python -m rondo.run`."""

import multiprocessing
import multiprocessing.connection
import os
import pickle
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from ranks import run_program, said_by

import rondo
from rondo import _output, data, start

METHODS = ("fork", "spawn", "forkserver")


def with_id(rank, rendezvous, results):
    with rondo.init(rank=rank, world_size=2, rendezvous=rendezvous) as group:
        results.put((rank, float(group.all_reduce(np.array([rank + 1.0]))[0])))


@pytest.mark.parametrize("method", METHODS)
def test_unique_id_is_made_in_a_parent_that_is_no_rank(method):
    meeting_point = rondo.unique_id()
    assert str(pickle.loads(pickle.dumps(meeting_point))) == str(meeting_point)
    assert str(meeting_point) not in repr(meeting_point)
    assert said_by(method, with_id, [(r, meeting_point) for r in range(2)]) == [(0, 3.0), (1, 3.0)]


def as_the_tutorials_do(rank, port, results):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(port)
    with rondo.init(rank=rank, world_size=2) as group:
        results.put(group.all_gather_object(rank))


@pytest.mark.parametrize("method", METHODS)
def test_rank_and_world_size_with_master_addr(method):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    assert said_by(method, as_the_tutorials_do, [(r, port) for r in range(2)]) == [[0, 1]] * 2


def test_one_without_the_other_is_refused():
    with pytest.raises(ValueError, match="rank is 1 and world_size is None"):
        rondo.init(rank=1)
    with pytest.raises(rondo.Invalid):
        rondo.init(rank=2, world_size=2)


def with_world(rank, world, rendezvous, results):
    os.environ["RONDO_START_TIMEOUT_MS"] = "1000"
    try:
        rondo.init(rank=rank, world_size=world, rendezvous=rendezvous)
    except rondo.Bootstrap as error:
        results.put((rank, str(error), error.ranks))


def test_another_world_size_on_one_rank(tmp_path):
    meeting_point = f"unix://{tmp_path}/meet"
    (_, missing, ranks), (_, refused, _) = said_by("fork", with_world, [(r, 2 + r, meeting_point) for r in range(2)])
    assert "rank 1 says that the world has 3 ranks, but rank 0" in refused
    assert ranks == (1,) and "these have not come: 1" in missing


def world_of_one():
    group = rondo.init()
    return group.size, group.all_reduce(np.ones(2)).tolist(), os.environ["OMP_NUM_THREADS"]


def test_spawn():
    threads = os.environ.get("OMP_NUM_THREADS", str(len(os.sched_getaffinity(0))))
    assert rondo.spawn(world_of_one, 1) == [(1, [1, 1], threads)]
    with pytest.raises(ValueError, match="nprocs is 0"):
        rondo.spawn(world_of_one, 0)


def starts_again():
    sums = []
    for _ in range(2):
        with rondo.init() as group:
            sums.append(float(group.all_reduce(np.ones(1))[0]))
    groups = [rondo.init() for _ in range(2)]
    return sums + [float(group.all_reduce(np.ones(1))[0]) for group in groups]


@pytest.mark.parametrize("method", METHODS)
def test_ranks_of_spawn_start_several_times(method):
    assert rondo.spawn(starts_again, 2, start_method=method) == [[2.0] * 4] * 2


def variables(names):
    return [os.environ[name] for name in names]


def test_ranks_of_spawn_have_torchs_variables():
    names = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR"]
    got = rondo.spawn(variables, 2, (names,), start_method="fork")
    assert got == [[str(rank), "2", str(rank), "2", "127.0.0.1"] for rank in range(2)]
    (first, second) = rondo.spawn(variables, 2, (["MASTER_PORT"],), start_method="fork")
    assert first == second and 1024 < int(first[0]) < 65536


def sum_with(names):
    with rondo.init() as group:
        return [os.environ.get(name) for name in names], float(group.all_reduce(np.ones(1))[0])


def test_outputs_that_stay_open_give_what_they_have_and_no_empty_line(capsys, monkeypatch):
    """What a rank has left running may hold them."""
    monkeypatch.setattr(_output, "_LAST_SECONDS", 0.1)
    relay = _output.Relay(multiprocessing.get_context("fork"))
    ends = [relay.add(rank) for rank in range(2)]
    relay.start()
    os.write(ends[1][0].fileno(), b"half a line")
    relay.close()
    assert capsys.readouterr() == ("[1] half a line\n", "")
    for end in (*ends[0], *ends[1]):
        end.close()


@pytest.mark.parametrize("method", ("fork", "spawn"))  # a fork server may have another environment
def test_ranks_of_spawn_in_a_rank_of_rondo_run_have_nothing_of_that_job(method, monkeypatch):
    outer = {"RONDO_JOIN": "unix:///tmp/door", "RONDO_ENDED": "98:unix:///tmp/store", "RONDO_SECRET_FD": "99"}  # closed
    for name, value in {**outer, "RONDO_JOB_ID": "rondo-run-0", "RONDO_RAISED": "0:/tmp/raised"}.items():
        monkeypatch.setenv(name, value)
    got = rondo.spawn(sum_with, 2, ([*outer, "RONDO_RAISED"],), start_method=method)
    assert got == [([None] * 4, 2.0)] * 2
    monkeypatch.setenv("RONDO_JOB_ID", "mine")  # what the user says of newcomers is passed on
    (value,) = rondo.spawn(variables, 1, (["RONDO_JOIN"],), start_method=method)
    assert value == ["unix:///tmp/door"]


def one_raises():
    group = rondo.init()
    group.barrier()
    if group.rank == 1:
        raise ArithmeticError("of rank 1")
    time.sleep(60)


def test_a_rank_that_raises_ends_the_others_at_once():
    begin = time.monotonic()
    with pytest.raises(rondo.SpawnError, match="rank 1 ended with exit code 1(.|\n)*ArithmeticError: of rank 1"):
        rondo.spawn(one_raises, 3, start_method="fork")
    assert time.monotonic() - begin < 8, "one grace period for all"


PARENT = """
import os, time, rondo
def main():
    group = rondo.init()
    os.write(1, b"%d\\n" % os.getpid())
    time.sleep(60)
rondo.spawn(main, 2, start_method="fork")
"""


def test_ranks_end_with_a_parent_that_a_signal_ends():
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    ranks = [int(parent.stdout.readline().split()[1]) for _ in range(2)]
    parent.terminate()
    parent.wait(10)
    parent.stdout.close()
    deadline = time.monotonic() + 10
    while any(os.path.exists(f"/proc/{rank}/exe") for rank in ranks):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_spawn_of_a_function_of_a_prompt():
    """By cloudpickle; where that is missing, the error says what to do."""
    program = "import rondo\ndef train(): return rondo.init().size\n"
    missing = "import sys; sys.modules['cloudpickle'] = None\n"
    for method in ("spawn", "forkserver", "fork"):
        call = f"print(rondo.spawn(train, 2, start_method='{method}'))"
        done = subprocess.run([sys.executable, "-c", program + call], capture_output=True, text=True, timeout=60)
        assert done.stdout == "[2, 2]\n", done.stderr
        done = subprocess.run([sys.executable, "-c", missing + program + call], capture_output=True, text=True, timeout=60)
        told = "" if method == "fork" else "train was typed in a notebook"
        assert told in done.stderr and "cloudpickle" in done.stderr if told else done.stdout == "[2, 2]\n", done.stderr


def forgets_its_group(rank, rendezvous, pipe):
    try:
        group = rondo.init(rank=rank, world_size=3, rendezvous=rendezvous)
        group.barrier()
        if rank == 2:
            raise ArithmeticError("of rank 2")
        group.barrier()
    except rondo.Error as error:
        pipe.send((rank, str(error)))
        raise


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_parent_of_processes_sees_the_cause_first(method):
    """multiprocessing's children end without atexit: the one that failed ends first, and the others know why."""
    context = multiprocessing.get_context(method)
    meeting_point = rondo.unique_id("127.0.0.1")
    here, there = context.Pipe(duplex=False)
    children = [context.Process(target=forgets_its_group, args=(r, meeting_point, there)) for r in range(3)]
    for child in children:
        child.start()
    first = multiprocessing.connection.wait([child.sentinel for child in children], 30)
    assert children[2].sentinel in first and len(first) == 1, "the rank that raised ends before those that heard of it"
    for _ in range(2):
        _, text = here.recv()
        assert "ArithmeticError: of rank 2" in text
    for child in children:
        child.join()


def leaves_behind_its_parents_group(of_parent, meeting_point, pipe):
    group = rondo.init(rank=0, world_size=1, rendezvous=meeting_point)
    place = id(of_parent[0])
    of_parent.clear()
    others = []
    while len(others) < 20 and place not in map(id, others):
        others.append(group.dup())
    start.leave(None)
    pipe.send([other._handle is None for other in [group, *others]])


def test_a_forked_child_closes_what_lies_where_a_group_of_its_parents_was(tmp_path):
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    of_parent = [rondo.init(rank=0, world_size=1, rendezvous=f"unix://{tmp_path}/parent")]
    arguments = (of_parent, f"unix://{tmp_path}/child", there)
    child = context.Process(target=leaves_behind_its_parents_group, args=arguments)
    child.start()
    assert here.poll(60) and all(here.recv())
    child.join()
    assert child.exitcode == 0
    of_parent[0].close()


SCRIPT = "import rondo; g = rondo.init(); print(g.all_gather_object(g.rank), flush=True)"


@pytest.mark.parametrize("python", [[], [sys.executable], ["env", "A=1", sys.executable, "-u"]])
def test_python_m_rondo_run(tmp_path, python):
    done = run_program(2, tmp_path, SCRIPT, python=python)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("[0, 1]") == 2


def test_python_m_rondo_run_leaves_a_programs_arguments_alone():
    for words in (["printf", "%s;", "test_x.py"], ["sh", "-c", "printf '%s;' $1", "sh", "test_x.py"]):
        command = [sys.executable, "-m", "rondo.run", "-n", "2", "--no-prefix", *words]
        assert subprocess.check_output(command, text=True, timeout=60) == "test_x.py;test_x.py;"


FORGETS = """
import rondo
def main():
    group = rondo.init()
    group.barrier()
    if group.rank == 1:
        try:
            group.barrier()
        except rondo.PeerLeft as error:
            print(error.ranks, flush=True)
main()
"""


def test_goodbye_is_said_for_a_group_that_nothing_refers_to(tmp_path):
    done = run_program(2, tmp_path, FORGETS)
    assert (done.returncode, done.stdout) == (0, "[1] (0,)\n"), done.stderr


def test_partition_is_contiguous_and_says_what_it_leaves_out():
    assert data.partition(60000, 4, 1) == range(15000, 30000)
    assert [len(data.partition(60000, 7, r)) for r in range(7)] == [8571] * 7
    with pytest.raises(ValueError, match="rank < size"):
        data.partition(10, 2, 2)


def test_shuffled_fractions_are_the_tutorials():
    import random

    expected = list(range(100))
    random.Random(1234).shuffle(expected)
    assert data.shuffled_fractions(100) == [expected[:70], expected[70:90], expected[90:]]
    assert sum(map(len, data.shuffled_fractions(60000, [1 / 7] * 7))) == 59997
    with pytest.raises(ValueError, match="sum"):
        data.shuffled_fractions(10, [0.7, 0.7])


def prints():
    rank = os.environ["RONDO_RANK"]
    print(f"out of {rank}\nand more")
    os.write(2, f"error of {rank}".encode())


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_what_ranks_of_spawn_print_comes_by_line_with_their_rank(method):
    program = f"import rondo, test_start\nif __name__ == '__main__': rondo.spawn(test_start.prints, 2, start_method={method!r})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=Path(__file__).parent, timeout=60)
    assert sorted(done.stdout.splitlines()) == ["[0] and more", "[0] out of 0", "[1] and more", "[1] out of 1"]
    assert sorted(done.stderr.splitlines()) == ["[0] error of 0", "[1] error of 1"]


def test_dir_shows_what_programs_use():
    shown = dir(rondo)
    assert {"DistOpt", "Store", "spawn", "SpawnError", "init"} <= set(shown)
    assert not {"communicator", "start", "work", "importlib", "TYPE_CHECKING"} & set(shown)
    assert all(hasattr(rondo, name) for name in shown)
