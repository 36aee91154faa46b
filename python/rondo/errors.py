"""The library's errors as exceptions: one class a code of rondo.h."""

from __future__ import annotations

import ctypes
import functools
import itertools
import operator
import threading
from collections.abc import Iterator

from rondo import _library

__all__ = [
    "Error", "Invalid", "Mismatch", "Timeout", "PeerLost", "PeerLeft", "Aborted", "Protocol", "Network",
    "Bootstrap", "System", "Unsupported", "Internal", "Closed", "Interrupted", "Unresponsive", "Corrupt",
    "AuthFailed", "EpochStale", "NotFinite",
]  # fmt: skip


class Error(RuntimeError):
    """A call failed. `ranks` are those to blame, by their rank in the communicator (of a start: in the world)."""

    def __init__(self, message: str, ranks: tuple[int, ...] = ()):
        super().__init__(message)
        self.ranks = tuple(ranks)

    def __reduce__(self):
        return type(self), (str(self), self.ranks)


class Invalid(Error, ValueError):
    """An argument is wrong. Nothing has happened; the communicator can be used."""


class Mismatch(Error):
    """The ranks made different calls."""


class Timeout(Error, TimeoutError):
    """An operation did not end before its deadline."""


class PeerLost(Error, ConnectionError):
    """A rank died, or its host or connection did."""


class PeerLeft(Error, ConnectionError):
    """A rank closed its communicator before this operation."""


class Aborted(Error):
    """A rank called abort(), or ended by an exception."""


class Protocol(Error):
    """Bytes came that Rondo does not send."""


class Network(Error, ConnectionError):
    """The network refused."""


class Bootstrap(Error):
    """The ranks did not find one another; `ranks` are those missing."""


class System(Error):
    """The system lacks memory, descriptors or threads."""


class Unsupported(Error):
    """This cannot be done here."""


class Internal(Error):
    """A bug of Rondo's."""


class Closed(Error):
    """The communicator is closed."""


class Interrupted(Error):
    """A signal's handler ended the call."""


class Unresponsive(Error):
    """A rank is there and does not answer."""


class Corrupt(Error):
    """Data arrived changed."""


class AuthFailed(Error):
    """A peer could not prove who it is."""


class EpochStale(Error):
    """The other ranks went on without this one."""


class NotFinite(Error, ArithmeticError):
    """An element of a result is NaN, infinite or too large for the wire format; `ranks` names the rank that met it
    first. The call is over, and the communicator goes on."""


# The failures that another rank is to blame for.
BY_OTHERS = (Aborted, PeerLost, PeerLeft)

_CLASSES = {
    1: Invalid, 2: Mismatch, 3: Timeout, 4: PeerLost, 5: Aborted, 6: Protocol, 7: Network, 8: Bootstrap, 9: System,
    10: Unsupported, 11: Internal, 12: Closed, 13: PeerLeft, 14: Interrupted, 15: Unresponsive, 16: Corrupt, 17: AuthFailed,
    18: EpochStale, 19: NotFinite,
}  # fmt: skip


# What a handler of a Python signal raised while a call waited: by the thread that ran it. The call of that thread fails.
_from_signal: dict[int, BaseException] = {}
# The question that is asked next. One under way has another here, for a wait inside a handler.
_next_question: dict[None, Iterator[int]] = {}


def _question() -> Iterator[int]:
    """Whether a wait is to end: 1 where a handler has raised, Ctrl-C's among them. A generator, because Python runs
    handlers on the way into a function already, where nothing of that function could catch what they raise; here it
    resumes inside the try."""
    try:
        yield 0
        _prepare_question()
        ctypes.pythonapi.PyErr_CheckSignals()
        answer = 0
    except GeneratorExit:
        return
    except BaseException as error:
        _from_signal[threading.get_ident()] = error
        answer = 1
    if not _next_question:
        _prepare_question()
    yield answer


def _prepare_question() -> None:
    question = _question()
    next(question)
    _next_question[None] = question


_prepare_question()
# Takes the question and resumes it; 0 where another thread has taken it. Made of functions in C alone.
_ask = functools.partial(
    next, map(operator.methodcaller("__next__"), iter(functools.partial(_next_question.pop, None, itertools.repeat(0)), None))
)
# Asked every 100 ms by a call that waits.
_signals_handled = _library.InterruptFunction(_ask)
_library.lib.rondo_set_interrupt(_signals_handled, None)


def stop_asking() -> None:
    """For the end of the process: from here on no thread of Python's that waits in a call comes back for a question."""
    _library.lib.rondo_set_interrupt(_library.InterruptFunction(), None)


def raised_by_handler() -> BaseException | None:
    """What a signal's handler raised in the call of this thread that has just failed."""
    return _from_signal.pop(threading.get_ident(), None)


def last_error(code: int) -> BaseException:
    """This thread's last failure, whose code is `code`: an Error, or what a signal's handler raised meanwhile."""
    raised = raised_by_handler()
    if raised is not None:
        return raised
    capacity = 64
    ranks = (ctypes.c_int * capacity)()
    count = min(_library.lib.rondo_last_error_ranks(ranks, capacity), capacity)
    message = _library.lib.rondo_last_error().decode(errors="replace")
    return _CLASSES.get(code, Error)(message, tuple(ranks[:count]))


def check(code: int) -> None:
    """Raises the failure that a function of rondo.h returned."""
    if code != 0:
        raise last_error(code)
