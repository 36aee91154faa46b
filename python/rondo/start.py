"""How a process joins a group, and how it leaves when it ends."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from rondo import communicator
from rondo._arguments import text_of, whole_number
from rondo._library import native
from rondo.communicator import Communicator
from rondo.errors import BY_OTHERS, Error

if TYPE_CHECKING:
    from rondo.store import Store


def init(
    *,
    rank: int | None = None,
    world_size: int | None = None,
    rendezvous: str | UniqueId | None = None,
    store: Store | None = None,
    settings: Mapping[str, object] | None = None,
):
    """Joins the group of this job and returns its Communicator, when all ranks are there.

    Without arguments everything is taken from the environment: rondo-run, `python -m rondo.run`, rondo.spawn, torchrun,
    mpirun, srun, or RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set by hand. rank and world_size replace what the
    environment says; rendezvous is "tcp://host:port", "file:///path", "unix:///path" or a unique_id(). store: a
    rondo.Store of the program's instead. settings: {"RONDO_X": value}, before the environment's variables.
    Raises rondo.Bootstrap, whose `ranks` are missing, after RONDO_START_TIMEOUT_MS (2 minutes).

    >>> group = rondo.init()
    >>> group.all_reduce(gradient, op="avg")
    """
    if (rank is None) != (world_size is None):
        raise ValueError(f"rank is {rank} and world_size is {world_size}: pass both, or none")
    methods = None
    if store is not None:
        from rondo.store import StoreMethods  # here, because few need it

        methods = StoreMethods(store)
    texts = [f"{name}={value}".encode() for name, value in (settings or {}).items()]
    rank = -1 if rank is None else whole_number(rank, "rank", least=0)
    world = -1 if world_size is None else whole_number(world_size, "world_size", rank, least=1)
    try:
        handle = native.join(rank, world, None if rendezvous is None else str(rendezvous), texts, methods)
    except Error as error:
        raised = methods and methods.error
        if raised is None:
            raise
        if not isinstance(raised, Exception):
            raise raised from None  # KeyboardInterrupt and the like
        raise error from raised
    end_with_this_process()
    return Communicator(handle, joined=True)


class UniqueId:
    """Where the ranks of a job meet, made by any process by unique_id(): a string to hand to every rank, which passes
    it to init(rank=..., world_size=..., rendezvous=...). The process that made it serves it from a thread, until all
    ranks have started. It pickles as its string. Any process that has it can join: treat it as a password.
    """

    def __init__(self, text: str):
        self._text = text
        self._server: object = None  # where it was made

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return "<rondo.UniqueId>"

    def __reduce__(self):
        return UniqueId, (self._text,)


def unique_id(host: str = "") -> UniqueId:
    """Makes a UniqueId and serves it at `host`, an address of this machine that all ranks reach; by default one that
    other hosts reach. Its string holds the job's secret. Keep it until the ranks have started."""
    server, text = native.id_server(text_of(host, "host"))
    made = UniqueId(text)
    made._server = server
    return made


# --- the end of the process

_exception: str | None = None
_failed_of_another = False
_print_exception = sys.excepthook
_steps: list[Callable[[], None]] = []  # of others, before the communicators are closed
_process = os.getpid()  # that imported this
_child = 0  # the child of multiprocessing that is heard of
_of_parent: set[int] = set()  # communicators that a forked child has from its parent, by id()
_ended = False

# Launchers blame the rank that ends first. Longer than the ends of two processes of one program differ.
_AFTER_OTHERS_SECONDS = 0.3
# For the process of the rank to blame, which may have torch to take apart.
_FOR_THE_BLAMED_SECONDS = 3.0


def _note_exception(kind, error, trace) -> None:
    _note(error)
    _print_exception(kind, error, trace)


def _note(error: BaseException) -> None:
    global _exception, _failed_of_another
    _exception = f"{type(error).__name__}: {error}"
    # The second: torch's exception for the same codes (torch/csrc/errors.cc).
    _failed_of_another = isinstance(error, BY_OTHERS) or str(error).startswith(("rondo ABORTED", "rondo PEER_"))


def leave(exception: str | None) -> None:
    """Closes every communicator that is left. With an exception's text the others are told that, at once: they would
    wait for a rank that will not come."""
    for group in reversed([group for group in communicator._open_ones.values() if id(group) not in _of_parent]):
        with contextlib.suppress(Error):  # it has failed before, and the caller knows
            if exception is not None:
                group.abort(exception)
        with contextlib.suppress(Error):
            group.close()
    communicator._process_ends.set()
    for thread in list(communicator._leaving):
        thread.join()


def end_with_this_process() -> None:
    """Children of multiprocessing end without atexit: they hear of their end in another way, and of their exception."""
    global _child, _of_parent, _ended
    if _child == os.getpid() or "multiprocessing.process" not in sys.modules:
        return
    from multiprocessing import process, util

    if process.parent_process() is None:
        return
    if _process != os.getpid():  # forked
        _of_parent = set(map(id, communicator._open_ones.values()))
    _child, _ended = os.getpid(), False
    util.Finalize(None, _end, exitpriority=0)


def end_ranks(exception: str | None) -> None:
    """The end of this process's ranks, before that of the process, which then waits for nobody."""
    global _ended, _exception
    _ended, _exception = True, exception
    for step in _steps:
        step()
    leave(exception)


def _end() -> None:
    if _ended:
        return
    error = _in_flight()
    if error is not None:
        _note(error)
    end_ranks(_exception)
    native.stop_asking()
    if _failed_of_another:
        try:
            _let_the_blamed_end_first(str(_exception))
        except KeyboardInterrupt:
            pass


def _in_flight() -> BaseException | None:
    """What ends a child of multiprocessing; of sys.exit() in a handler, as in torch.multiprocessing, what was handled."""
    error = sys.exc_info()[1]
    if isinstance(error, SystemExit):
        return error.__context__ if error.code not in (None, 0) else None
    return error


def _let_the_blamed_end_first(text: str) -> None:
    begin = time.monotonic()
    found = re.search(r"rank \d+ \(host (\S+), pid (\d+)\)", text)
    is_known = found is not None and found[1] == os.uname().nodename
    # A parent that uses multiprocessing asks which child ended first; launchers ask more often.
    time.sleep(_AFTER_OTHERS_SECONDS if is_known or not _child else _FOR_THE_BLAMED_SECONDS / 2)
    while is_known and _runs(int(found[2])) and time.monotonic() - begin < _FOR_THE_BLAMED_SECONDS:
        time.sleep(0.02)


def _runs(process: int) -> bool:
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


sys.excepthook = _note_exception
atexit.register(_end)
