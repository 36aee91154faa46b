"""What a call's other arguments become: options and counts for the C library, shapes and parts of its results."""

from __future__ import annotations

import ctypes
import math
import operator
import sys
from typing import Any

import numpy as np

from rondo import _arrays, _library
from rondo._arrays import Buffer
from rondo.errors import Corrupt, Invalid


def options_of(rank, timeout, algorithm, scalar, wire=(0, 0, 0, None), stream=None, purpose=0):
    none = timeout is None and algorithm is None and scalar is None and stream is None
    if none and wire[0] == 0 and wire[3] is None and purpose == 0:
        return None
    return _library.Options(
        ctypes.sizeof(_library.Options),
        milliseconds(timeout, rank),
        1.0 if scalar is None else real_number(scalar, "scalar", rank),
        None if algorithm is None else text_of(algorithm, "algorithm", rank),
        *wire,
        0 if stream is None else 1,
        None if stream is None else _arrays.stream_handle(stream),
        purpose,
    )


INT_MAX = 2**31 - 1
COUNT_MAX = 2**64 - 1
# Of a timeout: as good as none, and of no number that C's int64_t or a sum of it cannot hold.
_LONGEST_MS = 2**62


def _on(rank: int | None) -> str:
    return "" if rank is None else f" on rank {rank}"


def whole_number(value: Any, what: str, rank: int | None = None, *, least: int = -(2**31), most: int = INT_MAX) -> int:
    """Every integer of a caller's passes through here: ctypes would cut it. rank: of the caller, for the text."""
    if type(value) is not int:
        if isinstance(value, (bool, np.bool_)) or not hasattr(value, "__index__"):
            raise TypeError(f"{what} is {value!r}{_on(rank)}: it is a whole number")
        try:
            value = operator.index(value)
        except TypeError:
            raise TypeError(f"{what} is {value!r}{_on(rank)}: it is a whole number") from None
    if not least <= value <= most:
        raise Invalid(f"{what} is {value}{_on(rank)}: it is a whole number from {least} to {most}")
    return value


def whole_numbers(values: Any, what: str, rank: int | None = None, *, least: int = 0, most: int = COUNT_MAX) -> list[int]:
    """The entries of a list, named what[0], what[1], ..."""
    try:
        values = list(values)
    except TypeError:
        raise TypeError(f"{what} is {values!r}{_on(rank)}: it is a list of whole numbers") from None
    return [whole_number(value, f"{what}[{i}]", rank, least=least, most=most) for i, value in enumerate(values)]


def real_number(value: Any, what: str, rank: int | None = None) -> float:
    if isinstance(value, (bool, np.bool_, str, bytes)) or not hasattr(value, "__float__"):
        raise TypeError(f"{what} is {value!r}{_on(rank)}: it is a number")
    return float(value)


def text_of(value: Any, what: str, rank: int | None = None) -> bytes:
    if not isinstance(value, str):
        raise TypeError(f"{what} is {value!r}{_on(rank)}: it is a text")
    return value.encode()


def _milliseconds_of(timeout: Any, least: float, rank: int | None) -> int:
    seconds = real_number(timeout, "timeout", rank)
    if not seconds >= least:  # NaN too
        raise Invalid(f"timeout is {timeout}{_on(rank)}: it is a positive number of seconds, or None")
    return _LONGEST_MS if seconds * 1000 >= _LONGEST_MS else math.ceil(seconds * 1000)


def milliseconds(timeout: Any, rank: int) -> int:
    """Of an operation; 0: the configured time."""
    return 0 if timeout is None else max(1, _milliseconds_of(timeout, math.ulp(0.0), rank))


def wait_milliseconds(timeout: Any) -> int:
    """Of a wait, which may look only; -1: until the end."""
    return -1 if timeout is None else _milliseconds_of(timeout, 0.0, None)


def shape_of(array) -> tuple[int, ...]:
    shape = getattr(array, "shape", None)
    return tuple(shape) if shape is not None else (len(array),)


def part_shape(array, size: int) -> tuple[int, ...]:
    shape = shape_of(array)
    return (shape[0] // size, *shape[1:]) if shape else (1,)


def rows_of(array, buffer: Buffer) -> tuple[int, int]:
    """Entries of the first dimension, and elements of each."""
    shape = shape_of(array)
    if not shape:
        raise ValueError("array has no dimension, so it has no rows")
    return shape[0], math.prod(shape[1:])


def elements_of(counts: list[int], row: int):
    return (ctypes.c_uint64 * len(counts))(*(count * row for count in counts))


def counts_of_peers(counts: np.ndarray, row: int, rank: int, first: int = 0) -> list[int]:
    """Rows of `row` elements that the peers, from rank `first` on, say they send. None is used before it was compared
    here: together they fit an array of the widest elements."""
    rows = counts.ravel().tolist()
    room = sys.maxsize // (8 * max(row, 1))
    for peer, count in enumerate(rows, first):
        if count > room:
            raise Corrupt(
                f"rank {rank}: rank {peer} says that it sends {count} rows; with those before them they fit no array. Its "
                "memory or its program is damaged: check that host, and that all ranks run the same version",
                (peer,),
            )
        room -= count
    return rows


def parts_of(out, counts: list[int]) -> list:
    parts, begin = [], 0
    for count in counts:
        parts.append(out[begin : begin + count])
        begin += count
    return parts


def new_like(array, shape: tuple[int, ...]):
    if isinstance(array, np.ndarray):
        return np.empty(shape, array.dtype)
    if hasattr(array, "new_empty"):  # a torch tensor
        return array.new_empty(shape)
    raise TypeError(f"pass out: no array like {type(array).__name__} can be made")
