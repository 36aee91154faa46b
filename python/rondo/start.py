"""How a process joins a group, and how it leaves when it ends."""

from __future__ import annotations

import atexit
import sys
import time
from collections.abc import Mapping
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
    group = Communicator(handle)
    group._joined = True
    return group


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

# Launchers blame the rank that ends first. Longer than the ends of two processes of one program differ.
_AFTER_OTHERS_SECONDS = 0.3


def _note_exception(kind, error, trace) -> None:
    global _exception, _failed_of_another
    _exception = f"{kind.__name__}: {error}"
    # The second: torch's exception for the same codes (torch/csrc/errors.cc).
    _failed_of_another = isinstance(error, BY_OTHERS) or str(error).startswith(("rondo ABORTED", "rondo PEER_"))
    _print_exception(kind, error, trace)


def leave(exception: str | None) -> None:
    """Closes every communicator that is left. With an exception's text the others are told that, at once: they would
    wait for a rank that will not come."""
    for group in reversed(list(communicator._open_ones)):
        if exception is not None:
            _attempt(group.abort, exception)
        _attempt(group.close)


def _attempt(step, *arguments) -> None:
    try:
        step(*arguments)
    except Error:
        pass  # it has failed before, and the caller knows


def _end() -> None:
    leave(_exception)
    native.stop_asking()
    if _failed_of_another:
        try:
            time.sleep(_AFTER_OTHERS_SECONDS)
        except KeyboardInterrupt:
            pass


sys.excepthook = _note_exception
atexit.register(_end)
