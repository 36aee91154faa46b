"""A store of the program's, in which ranks find one another."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p
from typing import Any

from rondo import _library
from rondo._arguments import whole_number

_TIMEOUT, _BOOTSTRAP = 3, 8


class Store:
    """A map of byte strings that all ranks see, for init(store=...): derive from this class, and give each method.

    The methods are called during init() only, on its thread. Keys are text that begins with "rondo/". timeout is the
    time that is left, in seconds: a method that needs longer raises TimeoutError. What else it raises ends init() with
    rondo.Bootstrap, whose `__cause__` is that.

    >>> class MyStore(rondo.Store):
    ...     def put(self, key, value, timeout):
    ...         self.client.set(key, value)
    """

    def put(self, key: str, value: bytes, timeout: float) -> None:
        """Sets the value."""
        raise NotImplementedError

    def get(self, key: str, timeout: float) -> bytes:
        """The value; waits until the key exists."""
        raise NotImplementedError

    def try_get(self, key: str, timeout: float) -> bytes | None:
        """The value, or None at once where there is no such key."""
        raise NotImplementedError

    def add(self, key: str, amount: int, timeout: float) -> int:
        """Adds to the decimal number under the key (0 if absent), in one step; returns the sum."""
        raise NotImplementedError

    def compare_set(self, key: str, expected: bytes, desired: bytes, timeout: float) -> bytes:
        """Sets the value to `desired` if it is `expected` (b"" if absent), in one step; returns the value afterwards."""
        raise NotImplementedError

    def remove(self, key: str, timeout: float) -> bool:
        """Removes the key; whether it was there."""
        raise NotImplementedError


class Functions(ctypes.Structure):
    """rondo_store_t"""

    PutFunction = ctypes.CFUNCTYPE(c_int32, c_void_p, c_char_p, c_void_p, c_size_t, c_int64, c_void_p)
    GetFunction = ctypes.CFUNCTYPE(c_int32, c_void_p, c_char_p, c_int64, c_void_p)
    AddFunction = ctypes.CFUNCTYPE(c_int32, c_void_p, c_char_p, c_int64, c_int64, POINTER(c_int64), c_void_p)
    CompareFunction = ctypes.CFUNCTYPE(
        c_int32, c_void_p, c_char_p, c_void_p, c_size_t, c_void_p, c_size_t, c_int64, c_void_p
    )
    RemoveFunction = ctypes.CFUNCTYPE(c_int32, c_void_p, c_char_p, c_int64, POINTER(c_int), c_void_p)
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("context", c_void_p),
        ("put", PutFunction),
        ("get", GetFunction),
        ("try_get", GetFunction),
        ("add", AddFunction),
        ("compare_set", CompareFunction),
        ("remove", RemoveFunction),
    ]


class StoreMethods:
    """The methods of `store` as functions of rondo.h. Must outlive the call; `error` is what a method raised."""

    def __init__(self, store: Any):
        self.store = store
        self.error: BaseException | None = None
        kind = Functions
        self.structure = kind(
            struct_bytes=ctypes.sizeof(kind),
            put=kind.PutFunction(self._put),
            get=kind.GetFunction(self._get),
            try_get=kind.GetFunction(self._try_get),
            add=kind.AddFunction(self._add),
            compare_set=kind.CompareFunction(self._compare_set),
            remove=kind.RemoveFunction(self._remove),
        )

    def _answer(self, reply: int, method, *arguments):
        """(code, what the method returned); the reply is set to bytes, or to what was raised."""
        try:
            value = method(*arguments)
            if isinstance(value, (bytes, bytearray, memoryview)):
                _reply(reply, bytes(value))
            return 0, value
        except BaseException as error:
            self.error = error
            _reply(reply, f"{type(error).__name__}: {error}".encode())
            return (_TIMEOUT if isinstance(error, TimeoutError) else _BOOTSTRAP), None

    def _put(self, _context, key, value, size, timeout_ms, reply):
        return self._answer(reply, self.store.put, key.decode(), _bytes(value, size), timeout_ms / 1000)[0]

    def _get(self, _context, key, timeout_ms, reply):
        return self._answer(reply, self.store.get, key.decode(), timeout_ms / 1000)[0]

    def _try_get(self, _context, key, timeout_ms, reply):
        return self._answer(reply, self.store.try_get, key.decode(), timeout_ms / 1000)[0]

    def _add(self, _context, key, amount, timeout_ms, total, reply):
        code, value = self._answer(reply, self._sum, key.decode(), amount, timeout_ms / 1000)
        total[0] = value if code == 0 else 0
        return code

    def _sum(self, key, amount, timeout):
        return whole_number(self.store.add(key, amount, timeout), f"the sum of add({key!r})", least=-(2**63), most=2**63 - 1)

    def _compare_set(self, _context, key, expected, expected_size, desired, desired_size, timeout_ms, reply):
        return self._answer(
            reply,
            self.store.compare_set,
            key.decode(),
            _bytes(expected, expected_size),
            _bytes(desired, desired_size),
            timeout_ms / 1000,
        )[0]

    def _remove(self, _context, key, timeout_ms, removed, reply):
        code, value = self._answer(reply, self.store.remove, key.decode(), timeout_ms / 1000)
        removed[0] = int(bool(value))
        return code


def _bytes(address: int | None, size: int) -> bytes:
    return ctypes.string_at(address, size) if size else b""


def _reply(reply: int, value: bytes) -> None:
    _library.lib.rondo_reply_set(reply, value, len(value))
