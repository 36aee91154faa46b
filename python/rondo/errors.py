"""The library's errors as exceptions: one class a code of rondo.h."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = [
    "Error", "Invalid", "Mismatch", "Timeout", "PeerLost", "PeerLeft", "Aborted", "Protocol", "Network",
    "Bootstrap", "System", "Unsupported", "Internal", "Closed", "Interrupted", "Unresponsive", "Corrupt",
    "AuthFailed", "EpochStale", "NotFinite", "Cancelled", "Truncated",
    "NoQuorum",
]  # fmt: skip


class Error(RuntimeError):
    """A call failed. `ranks` are those to blame, by their rank in the communicator (of a start: in the world). Where a
    communicator has reported it, `world_ranks` are the same ones by their rank in the job, and `processes` their process
    ids as they know them themselves, 0 on another host."""

    def __init__(
        self, message: str, ranks: Sequence[int] = (), world_ranks: Sequence[int] = (), processes: Sequence[int] = ()
    ):
        super().__init__(message)
        self.ranks, self.world_ranks, self.processes = tuple(ranks), tuple(world_ranks), tuple(processes)

    def __reduce__(self):
        return type(self), (str(self), self.ranks, self.world_ranks, self.processes)


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


class Cancelled(Error):
    """Work.cancel() took the receive or probe back. The communicator goes on."""


class Truncated(Error):
    """A message was longer than the array of a receive with truncate=True, which has its beginning. The communicator
    goes on."""


class NoQuorum(Error):
    """Others may go on, and so this rank cannot; `ranks` names them."""


def words_of(error: BaseException) -> str:
    """Its class and its text, whatever its __str__ does."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


# The failures that another rank is to blame for.
BY_OTHERS = (Aborted, PeerLost, PeerLeft)

_CLASSES = {
    1: Invalid, 2: Mismatch, 3: Timeout, 4: PeerLost, 5: Aborted, 6: Protocol, 7: Network, 8: Bootstrap, 9: System,
    10: Unsupported, 11: Internal, 12: Closed, 13: PeerLeft, 14: Interrupted, 15: Unresponsive, 16: Corrupt, 17: AuthFailed,
    18: EpochStale, 19: NotFinite, 20: Cancelled, 21: Truncated, 22: NoQuorum,
}  # fmt: skip


def _of_code(code: int, message: str, *who: Sequence[int]) -> Error:
    """The failure of a function of rondo.h: the compiled module calls this."""
    return _CLASSES.get(code, Error)(message, *who)


# Tracebacks and help() show the name by which programs catch it.
for _name in __all__:
    globals()[_name].__module__ = "rondo"
