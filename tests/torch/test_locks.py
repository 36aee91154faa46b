"""Nothing of torch's or Python's runs under a lock of the module: what would wait for Python's lock ends elsewhere."""

import re
import subprocess
import threading
import time
from pathlib import Path

import pytest
import ranks
import torch
import torch.distributed as dist

import rondo.torch
from rondo.torch import build

SOURCES = Path(rondo.torch.__file__).parent / "csrc"


def test_only_one_file_has_locks():
    """The rule is kept by locked.h, whose functions give back what they take out."""
    lock = re.compile(r"std::(\w*mutex|lock_guard|unique_lock|scoped_lock|call_once|condition_variable)\b")
    found = {path.name for path in SOURCES.iterdir() if lock.search(path.read_text())}
    assert found == {"locked.h"}


@ranks.on(2, limit=60)
def test_polling_a_call_whose_tensors_nobody_else_has(rank):
    """The input's last owner is the operation, and a thread of the module settles it: freeing the tensor waits for
    Python's lock, which the thread that polls has."""
    world = dist.get_world_size()
    output = torch.empty(world * 1000)
    called = []
    for turn in range(400):
        work = dist.all_gather_into_tensor(output, torch.full((1000,), float(turn + rank)), async_op=True)
        work.get_future().then(lambda future: called.append(len(future.value())))
        while not work.is_completed():
            sum(range(50000))  # a millisecond or so with Python's lock
        assert work.is_success() and work.exception() is None
        for other in range(world):
            assert output[other * 1000] == turn + other
    deadline = time.monotonic() + 20
    while len(called) < 400 and time.monotonic() < deadline:  # the last one's thread may be on its way
        time.sleep(0.01)
    assert called == [1] * 400


@ranks.on(2, limit=60)
def test_dropped_works_of_many_threads(rank):
    """Messages, futures and works that are dropped, polled and waited for by several threads at once."""
    groups = [dist.new_group([0, 1]) for _ in range(3)]
    right = []

    def go(number):
        for turn in range(60):
            received = torch.zeros(64, 64).t() if turn % 2 else torch.zeros(4096)
            works = [
                dist.irecv(received, 1 - rank, group=groups[number], tag=turn),
                dist.isend(torch.full((4096,), float(turn)), 1 - rank, group=groups[number], tag=turn),
            ]
            dist.all_reduce(torch.ones(1000), async_op=True, group=groups[number])
            future = works[0].get_future()
            if turn % 3 == 0:
                while not works[0].is_completed():
                    sum(range(10000))
            elif turn % 3 == 1:
                del works
            future.wait()
            right.append(bool(torch.all(received == turn)))

    threads = [threading.Thread(target=go, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(right) == 180 and all(right)
    dist.barrier()


@pytest.mark.parametrize("what", ("memory", "arena"))
def test_allocations_that_fail(what, tmp_path):
    """Each allocation of memory.cc fails in turn: what was taken is given back, and later calls go on. A lock that is
    held then ends it by its alarm."""
    tried = run_program(tmp_path, "memory_failing.cc", "memory.cc", what)
    assert int(tried) > 1, "how many allocations were tried"


def test_no_thread_for_what_is_left_to_the_background(tmp_path):
    """The future of an operation completes all the same."""
    assert int(run_program(tmp_path, "background_failing.cc", "background.cc", "forks.cc")) == 3, "tasks that were done"


def run_program(folder, main, *names):
    """What a program of this folder prints. names: the module's files in it, and its arguments."""
    files = [str(SOURCES / name) for name in names if name.endswith(".cc")]
    program = str(folder / "program")
    command = [*build._compiler(build.installed()), "-std=c++20", "-O1", "-g0", "-I", str(SOURCES.parent), "-I", str(build._header_folder())]
    subprocess.run([*command, str(Path(__file__).parent / main), *files, "-pthread", "-o", program], check=True)
    arguments = [name for name in names if not name.endswith(".cc")]
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"exit code {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout
