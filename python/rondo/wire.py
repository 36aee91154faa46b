"""How the elements of one call travel between ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rondo._arguments import COUNT_MAX, whole_number
from rondo._library import native

# By the numbers of rondo.h.
FORMATS = ("none", "float16", "bfloat16", "float8_e4m3", "float8_e5m2", "int8", "int4", "packed")

_STOCHASTIC, _ALLOW_NOT_FINITE = 1, 2


@dataclass(frozen=True)
class Wire:
    """`wire=` of all_reduce(), reduce_scatter() and all_gather() of float32, bfloat16 and float16, with op "sum" or "avg"; a
    name of FORMATS stands for Wire(name). The sums are made in float32; all ranks end with the same bits. "packed" is for
    broadcast() and all_gather() of bfloat16 and float32: equal bits in fewer bytes, NaN and infinity among them.

    format            one of FORMATS, the same on all ranks
    residual          error feedback: a float32 array as long as the call's, zero before the first call. What this
                      rank's encoding loses is kept there, and added to the array of the next call
    seed              int8 and int4: round at random by this number, -2**63 to 2**64 - 1; another one in each call. None:
                      to nearest
    allow_not_finite  False: NaN, infinity or overflow in the result raises rondo.NotFinite, which names element and
                      rank. True: it is given as it is

    >>> group.all_reduce(gradient, wire="bfloat16")
    >>> group.all_reduce(gradient, wire=rondo.Wire("int8", residual=residual))
    """

    format: str
    residual: Any = None
    seed: int | None = None
    allow_not_finite: bool = False

    def __post_init__(self):
        if self.format not in FORMATS:
            raise ValueError(f"wire format {self.format!r} is none of {', '.join(FORMATS)}")
        if self.seed is not None:
            whole_number(self.seed, "seed", least=-(2**63), most=COUNT_MAX)


def fields_of(wire: Wire | str, count: int) -> tuple[int, int, int, int, Any]:
    """(format, flags, seed, address of the residual) of rondo_options_t, for an input of count elements; and the
    residual, to be kept."""
    wire = wire if isinstance(wire, Wire) else Wire(wire)
    flags = (_STOCHASTIC if wire.seed is not None else 0) | (_ALLOW_NOT_FINITE if wire.allow_not_finite else 0)
    address, owner = 0, None
    if wire.residual is not None:
        address, length, dtype, owner, on_device = native.buffer_of(wire.residual, True, "residual")
        if on_device:
            raise TypeError("residual is in GPU memory: wire formats are for arrays in host memory")
        if dtype != "float32":
            raise TypeError(f"residual has dtype {dtype}; it must be float32")
        if length != count:
            raise ValueError(f"residual has {length} elements, and the array {count}")
    seed = 0 if wire.seed is None else wire.seed % 2**64
    return FORMATS.index(wire.format), flags, seed, address, (wire.residual, owner)
