"""How a process joins a group, and how it leaves when it ends."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from rondo import communicator
from rondo._arguments import text_of, whole_number
from rondo._library import native
from rondo.communicator import Communicator
from rondo.errors import BY_OTHERS, Error, words_of

if TYPE_CHECKING:
    from rondo.store import Store


def init(
    *,
    rank: int | None = None,
    world_size: int | None = None,
    rendezvous: str | UniqueId | None = None,
    store: Store | None = None,
    settings: Mapping[str, object] | None = None,
) -> Communicator:
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
    texts = [text_of(f"{name}={value}", "a setting") for name, value in (settings or {}).items()]
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
_steps: list[Callable[[], None]] = []  # of others, before the communicators are closed
_finders: list[Callable[[BaseException], bool]] = []  # of others: whether an exception of theirs is for another rank's failure
_process = os.getpid()  # that imported this
_joined = 0  # the process that is a rank
_child = 0  # the child of multiprocessing that is heard of
_of_parent: weakref.WeakSet[Communicator] = weakref.WeakSet()  # that a forked child has from its parent
_ended = False

# Launchers blame the rank that ends first: who fails of others ends so much later. Longer than the ends of two processes of
# one program differ; a parent that uses multiprocessing asks less often which child ended first.
_AFTER_OTHERS_SECONDS = 0.3
_AFTER_OTHERS_IN_CHILD_SECONDS = 1.5
_MOST_SECONDS_AFTER_OTHERS = 3.0  # where a process of theirs still runs: its end may take long
_MOST_TEXT = 300  # of an exception, for the launcher


class _Cause(NamedTuple):
    """Why this rank ends in a failure."""

    text: str | None  # of an exception
    of_others: bool  # it failed because another rank did
    processes: tuple[int, ...] = ()  # those of them on this host


def cause_of(error: BaseException | None) -> _Cause:
    if error is None:
        return _Cause(None, False)
    text = words_of(error)
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, BY_OTHERS) or any(finder(error) for finder in _finders):
            return _Cause(text, True, tuple(getattr(error, "processes", ())))
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return _Cause(text, False)


class _Exit(NamedTuple):
    """A call of sys.exit() with a failure's code: Python shows it to nobody once the process ends by it."""

    frame: FrameType  # the outermost
    cause: _Cause

    def ends_the_process(self) -> bool:
        """Nobody has caught it: the outermost frame has not returned."""
        import opcode  # here, because few need it

        return not opcode.opname[self.frame.f_code.co_code[self.frame.f_lasti]].startswith("RETURN")


_exit: _Exit | None = None
_python_exit = sys.exit


@functools.wraps(_python_exit)
def _noted_exit(status=None, /) -> NoReturn:
    global _exit
    _exit = None
    if status not in (None, 0) and threading.current_thread() is threading.main_thread():
        frame = sys._getframe()
        while frame.f_back is not None:
            frame = frame.f_back
        error = sys.exc_info()[1]
        _exit = _Exit(frame, _Cause(status, False) if error is None and isinstance(status, str) else cause_of(error))
    _python_exit(status)


def _cause_of_the_end() -> _Cause | None:
    """None: the process ends well."""
    if _child == os.getpid():
        error = sys.exc_info()[1]
        if isinstance(error, SystemExit):  # with what was handled, as in torch.multiprocessing
            return None if error.code in (None, 0) else cause_of(error.__context__)
        return None if error is None else cause_of(error)
    if hasattr(sys, "ps1"):  # a prompt, which goes on after exceptions
        return None
    # Set before sys.excepthook is called, whosever that is.
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if error is not None:
        return cause_of(error)
    return _exit.cause if _exit is not None and _exit.ends_the_process() else None


def _tell_launcher(text: str | None) -> None:
    """This rank fails by itself: rondo-run names it, whichever process ends first."""
    rank, _, path = os.environ.get("RONDO_RAISED", "").partition(":")
    if _joined != os.getpid() or not path:
        return
    words = " ".join((text or "").split())
    line = f"{rank} {''.join(c if c.isprintable() else '?' for c in words)[:_MOST_TEXT]}\n"
    with contextlib.suppress(OSError):  # in a container that does not see it
        with open(os.open(path, os.O_WRONLY | os.O_APPEND), "wb", buffering=0) as file:
            file.write(line.encode(errors="replace"))


def leave(exception: str | None) -> None:
    """Closes every communicator that is left. With an exception's text the others are told that, at once: they would
    wait for a rank that will not come."""
    for group in reversed([group for group in communicator._open_ones.values() if group not in _of_parent]):
        with contextlib.suppress(Error):  # it has failed before, and the caller knows
            if exception is not None:
                group.abort(exception)
        with contextlib.suppress(Error):
            group.close()
    communicator._process_ends.set()
    for thread in list(communicator._leaving):
        thread.join()


def end_with_this_process() -> None:
    """This process is a rank. Children of multiprocessing end without atexit: they hear of their end in another way."""
    global _joined, _child, _of_parent, _ended
    _joined = os.getpid()
    if _child == os.getpid() or "multiprocessing.process" not in sys.modules:
        return
    from multiprocessing import process, util

    if process.parent_process() is None:
        return
    if _process != os.getpid():  # forked
        _of_parent = weakref.WeakSet(communicator._open_ones.values())
    _child, _ended = os.getpid(), False
    util.Finalize(None, _end, exitpriority=0)


def end_ranks(exception: str | None) -> None:
    """The end of this process's ranks, before that of the process, which then waits for nobody."""
    global _ended, _exception
    _ended, _exception = True, exception
    for step in _steps:
        step()
    leave(exception)


def _let_end_first(processes: tuple[int, ...]) -> None:
    begin = time.monotonic()
    time.sleep(_AFTER_OTHERS_IN_CHILD_SECONDS if _child else _AFTER_OTHERS_SECONDS)
    while any(map(_runs, processes)) and time.monotonic() - begin < _MOST_SECONDS_AFTER_OTHERS:
        time.sleep(0.02)


def _runs(process: int) -> bool:
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


def _end() -> None:
    if _ended:
        return
    cause = _cause_of_the_end()
    if cause is not None and not cause.of_others:
        _tell_launcher(cause.text)
    end_ranks(cause and cause.text)
    native.stop_asking()
    if cause is not None and cause.of_others:
        with contextlib.suppress(KeyboardInterrupt):
            _let_end_first(cause.processes)


sys.exit = _noted_exit
atexit.register(_end)
