"""A store of the program's, in which ranks find one another."""

from __future__ import annotations

from typing import Any

from rondo._arguments import reason_of, whole_number
from rondo.errors import words_of

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


class StoreMethods:
    """The methods of `store` for the compiled module. `error` is what a method raised."""

    def __init__(self, store: Any):
        self.store = store
        self.error: BaseException | None = None

    def __call__(self, method: str, timeout_ms: int, key: str, *arguments) -> tuple[int, bytes | None, int]:
        """(rondo_result_t, the reply, a number): what the method returned, or the text of what it raised."""
        try:
            value = getattr(self.store, method)(key, *arguments, timeout_ms / 1000)
            if method == "add":
                return 0, None, whole_number(value, f"the sum of add({key!r})", least=-(2**63), most=2**63 - 1)
            reply = bytes(value) if isinstance(value, (bytes, bytearray, memoryview)) else None
            return 0, reply, int(method == "remove" and bool(value))
        except BaseException as error:
            self.error = error
            code = _TIMEOUT if isinstance(error, TimeoutError) else _BOOTSTRAP
            return code, reason_of(words_of(error)), 0
