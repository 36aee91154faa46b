"""Handles of the C library, each freed with the last reference to it: a call under way has one, on whatever thread."""

from __future__ import annotations

import ctypes
from typing import Any

from rondo import _library

_INVALID = 1


class OfThisProcess:
    """Base of what stands for something in this process: neither copied nor pickled."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: Any):
        raise TypeError(
            f"a {type(self).__name__} stands for a handle of this process: it cannot be pickled or copied; another process "
            "makes its own by rondo.init()"
        )


class Handle(OfThisProcess, ctypes.c_void_p):
    """What a function of rondo.h writes a new handle into. Passed to others as it is."""

    _free: Any = None

    def __del__(self):
        if self:
            self._free(self)


class CommunicatorHandle(Handle):
    """rondo_comm_t. Arrays of empty() refer to it, too."""

    def __del__(self):
        # Refused in a callback of a Work, which must not wait: the process's next handle to go takes it along.
        if self and _library.lib.rondo_destroy(self) == _INVALID:
            _refused.append(self.value)
        elif _refused:
            _free_refused()


# Communicators whose last reference went in a callback.
_refused: list[int] = []


def _free_refused() -> None:
    for _ in range(len(_refused)):
        value = _refused.pop()
        if _library.lib.rondo_destroy(value) == _INVALID:
            _refused.append(value)


class WorkHandle(Handle):
    """rondo_work_t"""

    _free = _library.lib.rondo_work_free


class DistOptHandle(Handle):
    """rondo_dist_opt_t"""

    _free = _library.lib.rondo_dist_opt_free


class ServerHandle(Handle):
    """rondo_id_server_t"""

    _free = _library.lib.rondo_id_server_destroy
