"""What every rank must hold: README.md, "The values". model.cc in NumPy."""

from __future__ import annotations

import functools
import itertools
import math
from typing import NamedTuple

import ml_dtypes
import numpy as np
from life_text import Step

PERIOD = 1021
DTYPES = {
    name: np.dtype(theirs)
    for name, theirs in {
        "int8": "i1", "uint8": "u1", "int16": "i2", "uint16": "u2", "int32": "i4", "uint32": "u4", "int64": "i8",
        "uint64": "u8", "float16": "f2", "bfloat16": ml_dtypes.bfloat16, "float32": "f4", "float64": "f8", "bool": "?",
        "float8_e4m3": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2,
    }.items()
}  # fmt: skip
# Whole numbers up to these are exact.
_LIMITS = {"float8_e5m2": 8, "float8_e4m3": 16, "int8": 127, "uint8": 255, "bfloat16": 256, "float16": 2048}
_FRACTION_BITS = {"float8_e4m3": 3, "float8_e5m2": 2, "float16": 10, "bfloat16": 7, "float32": 23, "float64": 52}


class Kind(NamedTuple):
    """How values are made and folded."""

    dtype: str
    op: str
    members: int
    random: bool = False
    first: int = 0  # of a scan: the members that are folded are those below it; 0: all are

    @property
    def is_float(self) -> bool:
        return self.dtype in _FRACTION_BITS


class Cycle(NamedTuple):
    values: np.ndarray  # float64
    elements: np.ndarray  # as they are stored

    def bytes_at(self, phase: int, count: int) -> np.ndarray:
        size = self.elements.itemsize
        return np.resize(np.roll(self.elements.view(np.uint8), -(phase % PERIOD) * size), count * size)


def phase_of(member: int, salt: int) -> int:
    return (131 * member + 17 * salt) % PERIOD


def factor_of(member: int) -> float:
    return 2.0 if member % 2 == 0 else -1.0


@functools.cache
def input_cycle(kind: Kind) -> Cycle:
    h = 772 * np.arange(PERIOD) % PERIOD
    limit = _LIMITS.get(kind.dtype, 1 << 20) // (2 if kind.op == "premulsum" else 1)
    largest = max(1, min(510, limit // kind.members))
    if kind.random:
        values = (h - 510) / 7 * 2.0 ** (h % 9 - 4)
    elif kind.dtype == "bool":
        values = h % 2
    elif kind.op == "product":
        values = 1 + h % 2
    elif kind.dtype.startswith("uint"):
        values = h % (largest + 1)
    else:
        values = h % (2 * largest + 1) - largest
    elements = values.astype(DTYPES[kind.dtype])
    return Cycle(elements.astype(np.float64), elements)


_FOLDS = {
    "product": np.multiply, "min": np.minimum, "max": np.maximum, "band": np.bitwise_and, "bor": np.bitwise_or,
    "bxor": np.bitwise_xor, "land": np.logical_and, "lor": np.logical_or, "lxor": np.logical_xor,
}  # fmt: skip


@functools.cache
def reduced_cycle(kind: Kind) -> Cycle:
    given = input_cycle(kind)
    folded = kind.first or kind.members
    if folded == 1 and kind.op != "premulsum":
        return given
    of = given.values if kind.is_float else given.elements
    parts = [np.roll(of, -phase_of(m, 0)) for m in range(folded)]
    if kind.op == "premulsum":
        parts = [part * factor_of(m) for m, part in enumerate(parts)]
    with np.errstate(over="ignore"):
        result = functools.reduce(_FOLDS.get(kind.op, np.add), parts).astype(of.dtype)
    if kind.op == "avg" and kind.is_float:
        result = result / kind.members
    elif kind.op == "avg":  # towards zero
        result = np.sign(result) * (np.abs(result) // kind.members)
    elements = result.astype(DTYPES[kind.dtype])
    return Cycle(result.astype(np.float64), elements)


# The error of one encoding of values up to 1, and what is added (docs/compression.md).
_CODING = {
    "none": 0, "float16": 2.0**-11, "bfloat16": 2.0**-8, "float8_e4m3": 2.0**-4, "float8_e5m2": 2.0**-3,
    "int8": 1 / 254, "int4": 1 / 14, "packed": 0,
}  # fmt: skip


def bound_of(kind: Kind, step: Step, folds: bool) -> float:
    """How far a result may be from reduced_cycle(); 0: equal to the bit."""
    if not kind.is_float or kind.members == 1:
        return 0
    wire, n = step.word("wire", "none"), kind.members
    magnitude = float(np.max(np.abs(input_cycle(kind).values)))
    total = magnitude * n * (2 if kind.op == "premulsum" else 1)
    bound = 0.0
    if folds and (kind.random or (kind.op == "avg" and n & (n - 1)) or wire != "none"):
        bound = n * total * 2.0 ** -_FRACTION_BITS[kind.dtype] + n * 2.0**-9
    if wire == "none":
        return bound
    once = (total if folds else magnitude) * _CODING[wire] + (2.0**-25 if wire == "float16" else 0)
    stochastic = 2 if step.number("stochastic") and wire in ("int8", "int4") else 1
    return bound + (n if folds else 1) * once * stochastic * (2 if step.number("residual") else 1) * 1.5


class Seat(NamedTuple):
    members: int
    me: int
    salt: int


class Block(NamedTuple):
    """Elements of a cycle, one after the other."""

    count: int
    cycle: Cycle
    phase: int

    def bytes(self) -> np.ndarray:
        return self.cycle.bytes_at(self.phase, self.count)


def bytes_of(blocks: list[Block]) -> np.ndarray:
    return np.concatenate([block.bytes() for block in blocks]) if blocks else np.empty(0, np.uint8)


class Shape:
    """What a line means for one member: what it gives, and what it gets, a block a rank or one in all. Gaps lie in the
    values; a door that has none leaves them out of its memory."""

    def __init__(self, step: Step, seat: Seat):
        n, m = seat.members, seat.me
        self.kind = Kind(
            step.word("dtype", "uint8").split(",")[0], step.word("op", "sum"), n, step.word("data") == "random"
        )
        self.root = step.number("root") % n
        lengths = step.numbers("counts") or [step.number("count")]
        verb, self.uneven = step.verb.removesuffix("_v"), step.verb.endswith("_v")
        gap = step.number("gap") if self.uneven else 0

        def blocks(shift):
            return [lengths[(shift + r) % n % len(lengths)] for r in range(n)]

        def places(counts):
            return [gap * (r + 1) + before for r, before in enumerate(itertools.accumulate([0, *counts[:-1]]))]

        self.counts = counts = blocks(m if verb == "all_to_all" else 0)
        at, count, is_root = places(counts), lengths[0], m == self.root
        if verb in ("scan", "exscan"):
            self.kind = self.kind._replace(first=m + (verb == "scan"))
        values, folded = input_cycle(self.kind), reduced_cycle(self.kind)

        def given(member, q):  # block q of the member's input
            return Block(counts[q], values, phase_of(member, seat.salt) + at[q])

        self.reads = verb not in ("broadcast", "scatter", "barrier") or is_root
        self.writes = is_root if verb in ("reduce", "gather") else verb != "broadcast" or not is_root
        self.writes = self.writes and (verb != "exscan" or m > 0)
        self.folds = verb in ("all_reduce", "reduce", "reduce_scatter", "scan", "exscan")
        self.everywhere = verb in ("all_reduce", "broadcast", "all_gather")
        self.inside = sum(counts[:m])  # in place: where the smaller buffer lies in the larger
        if verb in ("all_reduce", "reduce", "broadcast", "scan", "exscan"):
            self.gives = [Block(count, values, phase_of(m, seat.salt))]
            source = Block(count, values, phase_of(self.root, seat.salt))
            self.gets = [source if verb == "broadcast" else Block(count, folded, phase_of(0, seat.salt))]
        elif verb in ("all_gather", "gather"):
            self.gives = [Block(counts[m], values, phase_of(m, seat.salt))]
            self.gets = [Block(counts[q], values, phase_of(q, seat.salt)) for q in range(n)]
        elif verb in ("reduce_scatter", "scatter"):
            self.gives = [given(m, q) for q in range(n)]
            mine = Block(counts[m], folded, phase_of(0, seat.salt) + at[m])
            self.gets = [mine if self.folds else given(self.root, m)]
        elif verb == "all_to_all":
            self.gives = [given(m, q) for q in range(n)]
            phases = [phase_of(q, seat.salt) + places(blocks(q))[m] for q in range(n)]
            self.gets = [Block(counts[q], values, phases[q]) for q in range(n)]
        else:  # barrier
            self.gives = self.gets = []


def tensors_of(step: Step, seat: Seat, one_dtype: bool = False) -> list[tuple[Kind, Block, Block]]:
    """Of an all_reduce_many: what each tensor is, and what it becomes."""
    dtypes, result = step.word("dtype").split(","), []
    for t, count in enumerate(step.numbers("counts")):
        dtype = dtypes[0 if one_dtype else t % len(dtypes)]
        kind = Kind(dtype, step.word("op", "sum"), seat.members, step.word("data") == "random")
        given = Block(count, input_cycle(kind), phase_of(seat.me, seat.salt) + 29 * t)
        result.append((kind, given, Block(count, reduced_cycle(kind), phase_of(0, seat.salt) + 29 * t)))
    return result


def message_block(dtype: str, members: int, src: int, salt: int, k: int, count: int) -> Block:
    return Block(count, input_cycle(Kind(dtype, "sum", members)), phase_of(src, salt) + 37 * k)


class SparseModel:
    """What sparse_all_reduce() does with the inputs and residuals of all members, whose selections add up in `sum`."""

    def __init__(self, members: int, count: int):
        self.residuals = np.zeros((members, count), np.float32)
        self.sum = np.zeros(count, np.float32)

    def step(self, inputs: list[np.ndarray], threshold: bool, spars: float, residual: bool, tensors: list[int]) -> None:
        self.sum = np.zeros_like(self.sum)
        for m, values in enumerate(inputs):
            u = values + self.residuals[m] if residual else values.copy()
            first = 0
            for length in tensors or [len(u)]:
                part = np.abs(u[first : first + length])
                if threshold:
                    chosen = first + np.flatnonzero(part >= spars)
                else:
                    chosen = first + np.argsort(-part, kind="stable")[: math.ceil(spars * length)]
                self.sum[chosen] += u[chosen]
                u[chosen] = 0
                first += length
            if residual:
                self.residuals[m] = u
