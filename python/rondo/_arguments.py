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
from rondo.errors import Corrupt


def options_of(timeout, algorithm, scalar, wire=(0, 0, 0, None), stream=None):
    if timeout is None and algorithm is None and scalar is None and wire[0] == 0 and wire[3] is None and stream is None:
        return None
    return ctypes.byref(
        _library.Options(
            ctypes.sizeof(_library.Options),
            milliseconds(timeout),
            1.0 if scalar is None else scalar,
            None if algorithm is None else algorithm.encode(),
            *wire,
            0 if stream is None else 1,
            None if stream is None else _arrays.stream_handle(stream),
        )
    )


def whole_number(value: Any, what: str) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{what} is {value!r}: it is a whole number") from None


def milliseconds(timeout) -> int:
    if timeout is None:
        return 0
    if not timeout > 0:
        raise ValueError(f"timeout is {timeout}: it is a positive number of seconds, or None")
    return max(1, math.ceil(timeout * 1000))


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
