"""Ranks as processes of this machine, started from Python."""

from __future__ import annotations

import multiprocessing
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from rondo._arguments import whole_number
from rondo.errors import BY_OTHERS
from rondo.start import leave, unique_id

# What ranks that are told of a failure may take until they have ended by themselves.
_GRACE_SECONDS = 5.0


class SpawnError(RuntimeError):
    """A rank failed. `rank` is the first that did; `exit_code` its exit code, negative for a signal."""

    def __init__(self, message: str, rank: int, exit_code: int):
        super().__init__(message)
        self.rank = rank
        self.exit_code = exit_code


def spawn(fn: Callable[..., Any], nprocs: int, args: Sequence = (), *, start_method: str = "spawn") -> list:
    """Calls fn(*args) in `nprocs` new processes, ranks 0 .. nprocs-1 of one job; rondo.init() there finds the others.
    Returns what the calls returned, by rank. When one raises, or its process ends, the others are stopped and SpawnError
    shows its traceback.

    fn is a function of a module, for it is imported anew in each process (put the call of spawn itself under
    `if __name__ == "__main__":`). start_method: "spawn", "forkserver" or "fork", which a function of a notebook needs. A
    process may use cores // nprocs threads of OpenMP, unless OMP_NUM_THREADS says otherwise.

    >>> def train(steps):
    ...     group = rondo.init()
    ...     return group.rank
    >>> rondo.spawn(train, nprocs=2, args=(100,))
    [0, 1]
    """
    whole_number(nprocs, "nprocs", least=1)
    if start_method != "fork" and _is_of_a_prompt(fn):
        raise ValueError(
            f"spawn: {fn.__name__} was typed in a notebook, at a prompt or behind -c, where new processes cannot import "
            'it: pass start_method="fork", or put it into a module'
        )
    context = multiprocessing.get_context(start_method)
    meeting_point = unique_id("127.0.0.1")
    processes, results = [], []
    with _threads_limited(nprocs):
        for rank in range(nprocs):
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(
                target=_rank_main, args=(theirs, fn, tuple(args), rank, nprocs, str(meeting_point)), name=f"rank {rank}"
            )
            process.start()
            theirs.close()
            processes.append(process)
            results.append(ours)
    try:
        return _collect(processes, results)
    finally:
        _stop(processes)


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


def _rank_main(results: Connection, fn, args, rank: int, world: int, rendezvous: str) -> None:
    os.environ.update(
        RONDO_RANK=str(rank), RONDO_WORLD_SIZE=str(world), RONDO_LOCAL_RANK=str(rank), RONDO_LOCAL_WORLD_SIZE=str(world),
        RONDO_NODE="0", RONDO_NODES="1", RONDO_RENDEZVOUS=rendezvous,
    )  # fmt: skip
    try:
        value = fn(*args)
        leave(None)
        results.send((True, value))
    except BaseException as error:
        code = error.code if isinstance(error, SystemExit) else 1
        if code in (None, 0):
            leave(None)
            results.send((True, None))
            return
        # Sent before the others fail of it.
        results.send((False, (traceback.format_exc(), isinstance(error, BY_OTHERS))))
        leave(f"{type(error).__name__}: {error}")
        raise SystemExit(code if isinstance(code, int) else 1) from None


def _collect(processes, results: list[Connection]) -> list:
    values: list = [None] * len(processes)
    waiting = dict(zip(results, range(len(processes))))
    second: tuple[int, str] | None = None  # a rank that failed because another did
    while waiting:
        ready = wait(list(waiting), None if second is None else _GRACE_SECONDS)
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
    process.join(_GRACE_SECONDS)
    code = process.exitcode if process.exitcode is not None else 1
    how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
    raise SpawnError(f"rank {rank} {how}" + (f":\n\n{trace}" if trace else ""), rank, code) from None


def _stop(processes) -> None:
    for process in processes:
        process.join(_GRACE_SECONDS)
        if process.is_alive():
            process.terminate()
            process.join(1)
        if process.is_alive():
            process.kill()
            process.join()
