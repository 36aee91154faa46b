"""What a wrong argument, another rank's fault, a fork or an exception ends in."""

import concurrent.futures
import gc
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from ranks import on, run, run_program

import rondo


@on(2)
def test_bad_arguments_leave_the_communicator_usable(group):
    x = np.zeros(4)
    with pytest.raises(ValueError, match="out has 3 elements; 4 are needed"):
        group.all_reduce(x, out=np.zeros(3))
    with pytest.raises(TypeError, match="out has dtype float32, and array has float64"):
        group.all_reduce(x, out=np.zeros(4, np.float32))
    with pytest.raises(ValueError, match="first dimension of array, 3, is not divisible by 2 ranks"):
        group.reduce_scatter(np.zeros(3))
    with pytest.raises(ValueError, match="pass out"):
        group.scatter(root=1 - group.rank)
    with pytest.raises(ValueError, match=r"counts is \[1\] on rank .: 2 are needed"):
        group.all_gather_v(x, [1])
    with pytest.raises(ValueError, match="timeout is 0"):
        group.barrier(timeout=0)
    with pytest.raises(rondo.Invalid, match="root") as caught:
        group.broadcast(x, root=2)
    assert isinstance(caught.value, ValueError)
    with pytest.raises(rondo.Invalid):
        group.all_reduce(np.zeros(2), "band")
    with pytest.raises(TypeError):
        group.empty(3, complex)
    with pytest.raises(ValueError, match=r"shape\[1\] is -5 on rank .: it is a whole number from 0"):
        group.empty((2, -5))
    group.all_reduce(x)  # and the communicator goes on


def mismatch(group):
    with pytest.raises(rondo.Mismatch) as caught:
        group.all_reduce(np.zeros(4 + group.rank))
    with pytest.raises(rondo.Mismatch):
        group.barrier()
    with pytest.raises(rondo.Mismatch):
        group.all_reduce(np.zeros(1), async_op=True).wait()
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (type(copy), copy.ranks, str(copy)) == (rondo.Mismatch, caught.value.ranks, str(caught.value))
    return str(caught.value), caught.value.ranks


def test_another_shape_on_one_rank_is_a_mismatch_that_shows_both():
    for text, ranks in run(2, mismatch):
        assert "4" in text and "5" in text and set(ranks) <= {0, 1}


def timeout(group):
    if group.rank == 1:
        group.recv(np.zeros(1, np.uint8), 0, timeout=0.1)
    with pytest.raises(rondo.Timeout) as caught:
        group.barrier(timeout=0.3)
    assert isinstance(caught.value, TimeoutError)


def test_a_rank_that_does_not_call_is_a_timeout():
    with pytest.raises(rondo.SpawnError, match="rondo.Timeout"):
        run(2, timeout)


def killed(group):
    if group.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(rondo.PeerLost) as caught:
        group.all_reduce(np.zeros(1 << 20))
    assert isinstance(caught.value, ConnectionError) and caught.value.ranks == (1,)


def test_a_killed_rank():
    with pytest.raises(rondo.SpawnError, match="rank 1 was ended by signal 9") as caught:
        run(3, killed)
    assert (caught.value.rank, caught.value.exit_code) == (1, -9)
    copy = pickle.loads(pickle.dumps(caught.value))  # a pool's worker may call spawn()
    assert (str(copy), copy.rank, copy.exit_code) == (str(caught.value), 1, -9)


@on(2)
def test_what_utf8_lacks_in_an_exception_is_escaped(group):
    if group.rank == 0:
        with pytest.raises(OSError), group:
            raise OSError("no file '\udcff'")
    else:
        with pytest.raises(rondo.Aborted, match=r"OSError: no file '\\udcff'"):
            group.barrier()


def exits(group):
    if group.rank == 0:
        sys.exit(3)
    group.barrier()


def test_a_rank_that_exits_with_a_code():
    with pytest.raises(rondo.SpawnError) as caught:
        run(2, exits)
    assert (caught.value.rank, caught.value.exit_code) == (0, 3)


BLAMED = """
import sys
import numpy as np, rondo
group = rondo.init()
group.barrier()
if group.rank == 1:
    if sys.argv[1] == "exits":
        sys.exit(3)
    raise KeyError("no such sample")
group.barrier()
"""


@pytest.mark.parametrize(("how", "code"), [("exits", 3), ("raises", 1)])
def test_launchers_see_the_rank_that_failed_first(tmp_path, how, code):
    """The others, which fail of it at once, end after it."""
    done = run_program(3, tmp_path, BLAMED, how)
    assert done.returncode == code, done.stderr
    assert "rank 1 (process" in done.stderr and f"failed first: it exited with code {code}" in done.stderr


CAUSES = {
    "chained hook": "old = sys.excepthook; sys.excepthook = lambda *error: old(*error)",
    "replaced hook": "sys.excepthook = lambda *error: print('hook', file=sys.stderr)",
    "no hook": "del sys.excepthook",
    "slow hook": "old = sys.excepthook; sys.excepthook = lambda *error: [time.sleep(0.7), old(*error)]",  # as rich's
    "exit with a text": "",
    "caught": "",
    "caught in with": "",
    "slow end": "",
    "wrapped": "",
}
CAUSE = """
import atexit, os, sys, time
how = sys.argv[1]
if how == "slow end" and os.environ["RONDO_RANK"] == "1":
    atexit.register(time.sleep, 1.5)  # before rondo's, so it runs after it
import numpy as np, rondo
group = rondo.init()
group.barrier()
{hook}

def work():
    if group.rank == 1:
        if how == "exit with a text":
            sys.exit("the cause")
        raise ValueError("the cause")
    group.all_reduce(np.ones(3))

def main():
    try:
        work()
    except Exception as error:
        if how.startswith("caught"):
            print(error, file=sys.stderr)
            sys.exit(4)
        if how == "wrapped":
            raise RuntimeError("while training") from error
        raise

if how == "caught in with":
    with group:
        main()
try:
    main()
finally:
    group.rank
"""


@pytest.mark.parametrize("how", CAUSES)
def test_the_cause_is_told_and_named_whatever_the_program_does_with_exceptions(tmp_path, how):
    done = run_program(3, tmp_path, CAUSE.format(hook=CAUSES[how]), how)
    assert done.returncode == (4 if how.startswith("caught") else 1), done.stderr
    (named,) = [line for line in done.stderr.splitlines() if "failed first" in line]
    cause = "while training" if how == "wrapped" else "the cause"
    assert "rank 1 (process" in named and cause in named, named
    others = [line for line in done.stderr.splitlines() if line[:3] in ("[0]", "[2]")]
    if how not in ("replaced hook", "no hook"):  # which print nothing of the kind
        assert any(cause in line for line in others), done.stderr


EXITS = """
import atexit, sys
atexit.register(lambda: print(rondo.start._exception))  # after rondo's
import numpy as np, rondo
group = rondo.init()
try:
    try:
        raise ValueError("caught")
    except ValueError:
        sys.exit(1)
except SystemExit:
    pass
group.barrier()
"""


def test_an_exit_that_is_caught_is_no_cause(tmp_path):
    done = run_program(2, tmp_path, EXITS)
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, ["[0] None", "[1] None"]), done.stderr


def fails_in_a_subgroup(group):
    part = group.split(0, -group.rank)  # ranks of the group, from the last to the first
    if group.rank == 1:
        part.abort("enough")
    with pytest.raises(rondo.Aborted) as caught:
        part.barrier()
    return caught.value.ranks, caught.value.world_ranks, caught.value.processes, os.getpid()


def test_an_error_names_world_ranks_and_processes_beside_the_ranks_of_the_group():
    results = run(4, fails_in_a_subgroup)
    for ranks, world_ranks, processes, _ in results:
        assert (ranks, world_ranks, processes) == ((2,), (1,), (results[1][3],))


def uneven(group):
    if group.rank == 1:  # what it expects comes, so its own call may have succeeded before it hears of the other's
        with pytest.raises(rondo.Mismatch):
            group.all_to_all_v(np.ones(5), [3, 2], [3, 2], timeout=20)
            group.barrier(timeout=20)
        return None
    with pytest.raises(rondo.Mismatch) as caught:
        group.all_to_all_v(np.ones(5), [2, 3], [2, 2], timeout=20)
    return str(caught.value)


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_an_uneven_call_that_does_not_fit_is_told_in_elements(transport, monkeypatch):
    monkeypatch.setenv("RONDO_TRANSPORT", transport)
    text, _ = run(2, uneven)
    assert "sends=5, receives=4" in text and "rank 1 sends 3 elements, and 2 are expected" in text


def leaves_in_order(group):
    if group.rank == 1:
        sys.exit(0)
    with pytest.raises(rondo.PeerLeft):
        group.barrier()


def test_a_rank_that_exits_well_inside_a_with_block_aborts_nobody():
    assert run(2, leaves_in_order) == [None, None]


def missing():
    os.environ["RONDO_START_TIMEOUT_MS"] = "500"
    if os.environ["RONDO_RANK"] == "1":
        return ()
    with pytest.raises(rondo.Bootstrap) as caught:
        rondo.init()
    return caught.value.ranks


def test_a_missing_rank():
    assert rondo.spawn(missing, 2, start_method="fork") == [(1,), ()]


@on(2)
def test_a_child_made_by_fork_is_refused(group):
    child = os.fork()
    if child == 0:
        try:
            group.barrier()
        except rondo.Invalid as error:
            os._exit(0 if "fork" in str(error) else 1)
        os._exit(2)
    _, status = os.waitpid(child, 0)
    group.barrier()
    assert os.waitstatus_to_exitcode(status) == 0


FORKS = """
import os, sys, threading
import numpy as np, rondo
group = rondo.init()
ended = threading.Event()
group.irecv(np.zeros(1), 1 - group.rank).add_done_callback(lambda _: ended.set())
group.send(np.ones(1), 1 - group.rank)
ended.wait()  # on the progress thread
memory = group.empty(10)
child = os.fork()
if child == 0:
    own = rondo.init(rank=0, world_size=1)
    assert own.all_reduce(np.ones(1), async_op=True).wait() == 1
    del memory
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
group.barrier()
"""


def test_a_child_made_by_fork_ends_as_other_processes_do(tmp_path):
    """A thread of the child's own may have the number of the parent's progress thread."""
    ended = run_program(2, tmp_path, FORKS)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


WAITING = """
import signal, sys, time
import numpy as np, rondo
group = rondo.init()
group.barrier()
print("waiting", flush=True)
try:
    group.recv(np.zeros(1), 1 - group.rank)
except rondo.Aborted as error:
    print("told:", error, flush=True)
"""


def test_ctrl_c_ends_all_ranks(tmp_path):
    environment = {**os.environ, "RONDO_WORLD_SIZE": "2", "RONDO_RENDEZVOUS": f"unix://{tmp_path}/meet"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WAITING],
            env={**environment, "RONDO_RANK": str(rank)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        for rank in range(2)
    ]
    for process in processes:
        assert process.stdout.readline() == "waiting\n"
    processes[1].send_signal(signal.SIGINT)
    (told, _), (_, trace) = (process.communicate(timeout=60) for process in processes)
    # The signal met the call, or Python just before it.
    assert "rank 1" in told and ("interrupted" in told or "KeyboardInterrupt" in told)
    assert "KeyboardInterrupt" in trace
    assert processes[1].returncode != 0


def fails_in_a_worker(rank, meeting_point):
    group = rondo.init(rank=rank, world_size=3, rendezvous=meeting_point)
    for step in range(1000):
        group.all_reduce(np.ones(3))
        if rank == 2 and step == 3:
            raise ArithmeticError("the loss is NaN")


@pytest.mark.parametrize("how", ["futures", "pool"])
def test_a_task_that_raises_in_a_worker_ends_the_others_and_is_named(how):
    """A worker goes on after its task: the group goes with the task's frames."""
    context = multiprocessing.get_context("spawn")
    for _ in range(2):
        meeting_point = rondo.unique_id("127.0.0.1")
        tasks = [(rank, str(meeting_point)) for rank in range(3)]
        if how == "futures":
            with concurrent.futures.ProcessPoolExecutor(3, mp_context=context) as workers:
                ends = [workers.submit(fails_in_a_worker, *task) for task in tasks]
                errors = [end.exception(timeout=30) for end in ends]
            assert isinstance(errors[2], ArithmeticError)
            for error in errors[:2]:
                assert isinstance(error, rondo.Aborted) and error.ranks == (2,)
                assert "ArithmeticError: the loss is NaN" in str(error)
        else:
            with context.Pool(3) as workers, pytest.raises(ArithmeticError, match="the loss is NaN"):
                workers.starmap_async(fails_in_a_worker, tasks, chunksize=1).get(timeout=30)


def drops_in_a_worker(rank, meeting_point):
    """When rank 1 dropped the group, and when rank 0 heard of it."""
    group = rondo.init(rank=rank, world_size=2, rendezvous=meeting_point)
    group.barrier()
    if rank == 1:
        begin = time.monotonic()
        del group
        return begin
    with pytest.raises(rondo.PeerLeft):
        group.barrier()
    return time.monotonic()


def test_a_worker_that_drops_its_group_has_time_to_tell_why():
    """Ray tells of a task's exception only when the task's frames are gone."""
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as workers:
        meeting_point = rondo.unique_id("127.0.0.1")
        ends = [workers.submit(drops_in_a_worker, rank, str(meeting_point)) for rank in range(2)]
        heard, dropped = (end.result(timeout=60) for end in ends)
    assert heard - dropped > 0.25


def fails_with_a_receive_under_way(rank, meeting_point):
    group = rondo.init(rank=rank, world_size=2, rendezvous=meeting_point)
    if rank == 1:
        work = group.irecv(np.zeros(1), 0)
        raise KeyError(f"of rank 1, {work.done()}")
    with pytest.raises(rondo.Aborted, match="KeyError: 'of rank 1, False'"):
        group.recv(np.zeros(1), 1, timeout=20)


def test_a_task_that_raises_with_an_operation_under_way_ends_the_others():
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as workers:
        meeting_point = rondo.unique_id("127.0.0.1")
        ends = [workers.submit(fails_with_a_receive_under_way, rank, str(meeting_point)) for rank in range(2)]
        assert isinstance(ends[1].exception(timeout=60), KeyError)
        ends[0].result(timeout=60)


def leaves(group):
    if group.rank == 1:
        work = group.irecv(np.zeros(1), 0)
        group.send(np.ones(1), 0)
        return work  # nobody refers to the group but this
    group.recv(np.zeros(1), 1)
    return None


def drops(_):
    work = leaves(rondo.init())
    gc.collect()
    if work is not None:
        with pytest.raises(rondo.PeerLeft):
            work.wait()


def test_a_group_that_nobody_refers_to_leaves_once_its_works_are_gone():
    rondo.spawn(drops, 2, (None,), start_method="fork")
