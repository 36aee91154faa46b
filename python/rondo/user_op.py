"""Reductions by a function of the program's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rondo._arguments import numpy_dtype, reason_of
from rondo._library import native
from rondo.errors import words_of


class UserOp:
    """`op=` of the calls that reduce, but for all_reduce_many(): an associative reduction of the program's.

    function     function(a, b) writes b[:] = a combined with b, elements of two NumPy arrays of the call's dtype, which
                 are parts of what two sets of ranks have contributed, those of `a` first. It is called any number of
                 times, on a thread of the library's too, and must not call Rondo. What it raises aborts the group
    commutative  False: contributions are combined in the order of the ranks. The same on all ranks

    >>> largest = rondo.UserOp(lambda a, b: np.maximum(a, b, out=b))
    >>> group.all_reduce(x, largest)
    """

    def __init__(self, function: Callable[[np.ndarray, np.ndarray], Any], *, commutative: bool = True):
        if not callable(function):
            raise TypeError(f"function is {type(function).__name__}; a callable is needed")
        self.function, self.commutative = function, bool(commutative)

    def __repr__(self) -> str:
        return f"rondo.UserOp({self.function!r}, commutative={self.commutative})"


class Fold:
    """A UserOp of one call: what the compiled module calls."""

    def __init__(self, op: UserOp, dtype: str, handle: Any):
        try:
            self._dtype = numpy_dtype(dtype)
        except TypeError as error:
            raise TypeError(f"a UserOp of {dtype}, which NumPy has not: {error}") from None
        self._op, self._handle, self._failed = op, handle, False
        self.element_bytes, self.commutative = self._dtype.itemsize, op.commutative

    def __call__(self, a: memoryview, b: memoryview) -> None:
        if self._failed:
            return
        try:
            self._op.function(np.frombuffer(a, self._dtype), np.frombuffer(b, self._dtype))
        except BaseException as error:
            self._failed = True
            native.abort(self._handle, reason_of(f"{self._op!r} raised {words_of(error)}"))
