"""What the player asks of a door: a line of text, and the memory of the call."""

from __future__ import annotations

import ctypes
import itertools
import re
import threading
from collections.abc import Callable

import ml_dtypes
import numpy as np

DTYPES = {
    name: np.dtype(theirs)
    for name, theirs in {
        "int8": "i1", "uint8": "u1", "int16": "i2", "uint16": "u2", "int32": "i4", "uint32": "u4", "int64": "i8",
        "uint64": "u8", "float16": "f2", "bfloat16": ml_dtypes.bfloat16, "float32": "f4", "float64": "f8", "bool": "?",
        "float8_e4m3": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2,
    }.items()
}  # fmt: skip
# Collectives whose input, or output, has a block a rank.
_GIVES_BLOCKS = ("reduce_scatter", "scatter", "all_to_all")
_GETS_BLOCKS = ("all_gather", "gather", "all_to_all")


def array_at(address: int, count: int, dtype: str) -> np.ndarray | None:
    if address == 0:
        return None
    theirs = DTYPES[dtype]
    return np.ndarray(count, theirs, (ctypes.c_char * (count * theirs.itemsize)).from_address(address))


class Question:
    ended: Callable  # life_ended() of door_asked.h

    def __init__(self, text: str):
        self.verb, *pairs = re.split(r" (?=\w+=)", text)
        self.values = dict(pair.split("=", 1) for pair in pairs)

    def word(self, key: str, absent: str = "") -> str:
        return self.values.get(key, absent)

    def number(self, key: str, absent: int = 0) -> int:
        return int(self.values.get(key, absent))

    def numbers(self, key: str) -> list[int]:
        return [int(word) for word in self.word(key).split(",") if word]

    # --- of a call

    def array(self, key: str, dtype: str = "") -> np.ndarray | None:
        """`count` elements from this address on; None: null."""
        return array_at(self.number(key), self.number("count"), dtype or self.word("dtype"))

    def counts(self, size: int) -> list[int]:
        """Elements of each block of a collective."""
        return self.numbers("counts") or [self.number("count")] * size

    def blocks(self, key: str, size: int) -> list[np.ndarray]:
        """The parts of its buffer `in` or `out`: one, or one a rank; null: none."""
        address, dtype = self.number(key), self.word("dtype")
        if address == 0:
            return []
        if self.verb.removesuffix("_v") not in (_GIVES_BLOCKS if key == "in" else _GETS_BLOCKS):
            return [array_at(address, self.number("count"), dtype)]
        counts = self.counts(size)
        places = self.numbers("displacements") or itertools.accumulate([0, *counts[:-1]])
        return [
            array_at(address + place * DTYPES[dtype].itemsize, count, dtype)
            for place, count in zip(places, counts, strict=True)
        ]

    def tensors(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Inputs and outputs of an all_reduce_many."""
        found = []
        for tensor in filter(None, self.word("tensors").split(",")):
            given, gets, count, dtype = tensor.split(":")
            found.append(tuple(array_at(int(address), int(count), dtype) for address in (given, gets)))
        return found


class Pending:
    """A work of the API, and what brings its result to the memory of the call."""

    def __init__(self, work, bring: Callable[[], None] | None = None):
        self._work, self._bring, self._lock = work, bring, threading.Lock()

    def done(self, _asks) -> dict:
        return {"done": int(self._work.done())}

    def wait(self, _asks) -> dict:
        result = self._work.wait()
        self._end()
        return message_of(result)

    def on_end(self, asks) -> None:
        def end(_work):
            try:
                self._end()
            finally:
                asks.ended(asks.number("function"))

        self._work.add_done_callback(end)

    def _end(self) -> None:
        with self._lock:
            bring, self._bring = self._bring, None
            if bring is not None:
                bring()

    def forget(self) -> None:
        pass


def message_of(result) -> dict:
    """What a rondo.Message says, or one that was found; other results say nothing."""
    if not hasattr(result, "tag"):
        return {}
    return {"peer": result.source, "tag": result.tag, "bytes": result.bytes, "matched": getattr(result, "matched", 0)}
