"""The library's errors as exceptions: one class a code of rondo.h."""

from __future__ import annotations

import ctypes

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

_INTERRUPTED = 14
_CLASSES = {
    1: Invalid, 2: Mismatch, 3: Timeout, 4: PeerLost, 5: Aborted, 6: Protocol, 7: Network, 8: Bootstrap, 9: System,
    10: Unsupported, 11: Internal, 12: Closed, 13: PeerLeft, 14: Interrupted, 15: Unresponsive, 16: Corrupt, 17: AuthFailed,
    18: EpochStale, 19: NotFinite,
}  # fmt: skip


# What a handler of a Python signal raised while a call waited.
_from_signal: BaseException | None = None


def _signal_handling():
    """Answers 1 where a handler has raised, Ctrl-C's among them. A generator, because Python runs handlers on the way into
    a function already, where nothing of that function could catch what they raise; here it resumes inside the try."""
    global _from_signal
    answer = 0
    while True:
        try:
            yield answer
            answer = 0
            ctypes.pythonapi.PyErr_CheckSignals()
        except GeneratorExit:
            return
        except BaseException as error:
            _from_signal = error
            answer = 1


_handling = _signal_handling()
next(_handling)
# Asked every 100 ms by a call that waits.
_signals_handled = _library.InterruptFunction(_handling.send)
_library.lib.rondo_set_interrupt(_signals_handled, None)


def last_error(code: int) -> BaseException:
    """This thread's last failure, whose code is `code`: an Error, or what a signal's handler raised meanwhile."""
    global _from_signal
    if code == _INTERRUPTED and _from_signal is not None:
        error, _from_signal = _from_signal, None
        return error
    capacity = 64
    ranks = (ctypes.c_int * capacity)()
    count = min(_library.lib.rondo_last_error_ranks(ranks, capacity), capacity)
    message = _library.lib.rondo_last_error().decode(errors="replace")
    return _CLASSES.get(code, Error)(message, tuple(ranks[:count]))


def check(code: int) -> None:
    """Raises the failure that a function of rondo.h returned."""
    if code != 0:
        raise last_error(code)
