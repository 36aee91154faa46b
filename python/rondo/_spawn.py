"""Ranks as processes of this machine, started from Python."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from rondo._arguments import whole_number
from rondo._output import Relay, redirect
from rondo.start import cause_of, end_ranks

# For all ranks together: until they have ended by themselves, after a success or a failure, and then by SIGTERM.
_GRACE_SECONDS = {True: 10.0, False: 1.0}
_TERM_SECONDS = 1.0
# For the rank whose failure others have reported.
_CAUSE_SECONDS = 5.0


class SpawnError(RuntimeError):
    """A rank failed. `rank` is the first that did; `exit_code` its exit code, negative for a signal."""

    def __init__(self, message: str, rank: int, exit_code: int):
        super().__init__(message)
        self.rank = rank
        self.exit_code = exit_code

    def __reduce__(self):
        return type(self), (str(self), self.rank, self.exit_code)


def spawn(fn: Callable[..., Any], nprocs: int, args: Sequence = (), *, start_method: str = "spawn") -> list:
    """Calls fn(*args) in `nprocs` new processes, ranks 0 .. nprocs-1 of one job; rondo.init() there finds the others.
    Returns what the calls returned, by rank; what they print comes line by line, after "[rank] ". When one raises, or its
    process ends, the others are stopped and SpawnError shows its traceback.

    fn is a function of a module, for it is imported anew in each process (put the call of spawn itself under
    `if __name__ == "__main__":`); one of a notebook's cell goes by the package cloudpickle. start_method: "spawn",
    "forkserver" or "fork". Processes may start several times, and find RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT for
    torch.distributed. Each may use cores // nprocs threads of OpenMP, unless OMP_NUM_THREADS says otherwise.

    >>> def train(steps):
    ...     group = rondo.init()
    ...     return group.rank
    >>> rondo.spawn(train, nprocs=2, args=(100,))
    [0, 1]
    """
    whole_number(nprocs, "nprocs", least=1)
    work = _by_value(fn, tuple(args)) if start_method != "fork" and _is_of_a_prompt(fn) else (fn, tuple(args))
    context = multiprocessing.get_context(start_method)
    folder = _private_folder()
    processes: list = []
    results: list[Connection] = []
    succeeded = False
    relay = Relay(context)
    try:
        with _threads_limited(nprocs):
            port = _free_port()
            for rank in range(nprocs):
                ours, theirs = context.Pipe(duplex=False)
                outputs = relay.add(rank)
                places = (rank, nprocs, f"unix://{folder}/meet", port)
                process = context.Process(target=_rank_main, args=(theirs, outputs, work, *places), name=f"rank {rank}")
                process.start()
                for end in (theirs, *outputs):
                    end.close()
                processes.append(process)
                results.append(ours)
        relay.start()  # no thread is there when a process is forked
        values = _collect(processes, results)
        succeeded = True
        return values
    finally:
        _stop(processes, _GRACE_SECONDS[succeeded])
        relay.close()
        shutil.rmtree(folder, ignore_errors=True)


def _by_value(fn: Callable, args: tuple) -> bytes:
    try:
        import cloudpickle
    except ImportError:
        raise ValueError(
            f"spawn: {fn.__name__} was typed in a notebook, at a prompt or behind -c, where new processes cannot import it: "
            'pip install cloudpickle, pass start_method="fork" (no threads of torch may run yet), or put it into a module'
        ) from None
    return cloudpickle.dumps((fn, args))


def _private_folder() -> str:
    """For a socket, whose path has at most 107 bytes."""
    folder = tempfile.gettempdir()
    return tempfile.mkdtemp(prefix="rondo-", dir=folder if len(folder) < 80 else "/tmp")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _is_of_a_prompt(fn: Callable) -> bool:
    main = sys.modules["__main__"]
    return getattr(fn, "__module__", None) == "__main__" and getattr(main, "__file__", None) is None


class _threads_limited:
    """OMP_NUM_THREADS for children, which read it when they load their libraries."""

    def __init__(self, nprocs: int):
        self._threads = max(1, len(os.sched_getaffinity(0)) // nprocs)

    def __enter__(self):
        self._sets = "OMP_NUM_THREADS" not in os.environ
        if self._sets:
            os.environ["OMP_NUM_THREADS"] = str(self._threads)

    def __exit__(self, *_):
        if self._sets:
            del os.environ["OMP_NUM_THREADS"]


def _rank_main(results: Connection, outputs: tuple[Connection, Connection], work, rank: int, world: int, rendezvous: str, port: int) -> None:
    os.environ.update(
        RONDO_RANK=str(rank), RONDO_WORLD_SIZE=str(world), RONDO_LOCAL_RANK=str(rank), RONDO_LOCAL_WORLD_SIZE=str(world),
        RONDO_NODE="0", RONDO_NODES="1", RONDO_RENDEZVOUS=rendezvous, RANK=str(rank), WORLD_SIZE=str(world),
        LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
    )  # fmt: skip
    _forget_outer_job()
    redirect(*outputs)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        fn, args = pickle.loads(work) if isinstance(work, bytes) else work
        value = fn(*args)
        end_ranks(None)
        results.send((True, value))
    except BaseException as error:
        code = error.code if isinstance(error, SystemExit) else 1
        if code in (None, 0):
            end_ranks(None)
            results.send((True, None))
            return
        # Sent before the others fail of it.
        cause = cause_of(error.__context__ if isinstance(error, SystemExit) and error.__context__ else error)
        results.send((False, (traceback.format_exc(), cause.of_others)))
        end_ranks(cause.text)
        raise SystemExit(code if isinstance(code, int) else 1) from None


def _forget_outer_job() -> None:
    """Where this job is started by a rank of rondo-run's: what that one has of its launcher, as rondo-run does."""
    names = ["RONDO_RAISED"]
    if os.environ.get("RONDO_JOB_ID", "").startswith("rondo-run-"):
        names += ["RONDO_JOIN", "RONDO_ENDED", "RONDO_SECRET_FD"]
    for name in names:
        os.environ.pop(name, None)


def _end_with_parent() -> None:
    """A parent that a signal ends stops nobody."""
    multiprocessing.parent_process().join()
    os.kill(os.getpid(), signal.SIGTERM)


def _collect(processes, results: list[Connection]) -> list:
    values: list = [None] * len(processes)
    waiting = dict(zip(results, range(len(processes))))
    second: tuple[int, str] | None = None  # a rank that failed because another did
    while waiting:
        ready = wait(list(waiting), None if second is None else _CAUSE_SECONDS)
        if not ready:
            break
        for end in ready:
            rank = waiting.pop(end)
            try:
                succeeded, value = end.recv()
            except EOFError:
                _fail(processes[rank], rank, "")
            if succeeded:
                values[rank] = value
            elif value[1]:
                second = second or (rank, value[0])
            else:
                _fail(processes[rank], rank, value[0])
    if second is not None:
        _fail(processes[second[0]], *second)
    return values


def _fail(process, rank: int, trace: str) -> None:
    process.join(_GRACE_SECONDS[False])
    code = process.exitcode if process.exitcode is not None else 1
    how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
    raise SpawnError(f"rank {rank} {how}" + (f":\n\n{trace}" if trace else ""), rank, code) from None


def _stop(processes, grace_seconds: float) -> None:
    _join(processes, grace_seconds)
    for process in processes:
        if process.is_alive():
            process.terminate()
    _join(processes, _TERM_SECONDS)
    for process in processes:
        if process.is_alive():
            process.kill()
            process.join()


def _join(processes, seconds: float) -> None:
    """Waits for all of them, together so long."""
    deadline = time.monotonic() + seconds
    for process in processes:
        process.join(max(0, deadline - time.monotonic()))
