"""Memory of calls, and what it must hold when they are over."""

from __future__ import annotations

import numpy as np
from life_model import DTYPES, PERIOD, Block
from life_text import Step


class Area:
    """Memory of one call, as its door sees it, and what it must hold when the call is over."""

    def __init__(self, name: str, dtype: str):
        self.name, self.dtype = name, DTYPES[dtype]
        self.want = np.empty(0, np.uint8)  # bytes, in the order of the elements
        self._expected: list[tuple[int, int, Block | None, float]] = []

    def read(self) -> np.ndarray:
        """Its bytes in the order of the elements."""
        raise NotImplementedError

    def around(self) -> str:
        """What is wrong beside it, or ""."""
        return ""

    def expect(self, at: int, block: Block, bound: float = 0) -> None:
        """From element `at` on. Later ones count."""
        self._expected.append((at, block.count, block, bound))

    def expect_anything(self, count: int) -> None:
        self._expected.append((0, count, None, 0))

    def check(self) -> str:
        """ "" or what is wrong."""
        got, size = self.read(), self.dtype.itemsize
        for at, count, block, bound in self._expected:
            place = slice(at * size, (at + count) * size)
            if block is not None and bound == 0:
                self.want[place] = block.bytes()
                continue
            if block is not None:
                values = got[place].view(self.dtype).astype(np.float64)
                off = np.abs(values - np.resize(np.roll(block.cycle.values, -(block.phase % PERIOD)), count))
                if not np.all(off <= bound):
                    i = int(np.flatnonzero(~(off <= bound))[0])
                    return f"{self.name}: element {i} of {count} is {values[i]}, which is off by {off[i]}, not {bound}"
            self.want[place] = got[place]
        if not np.array_equal(got, self.want):
            i = int(np.flatnonzero(got != self.want)[0]) // size
            is_, must = (bytes_[i * size : (i + 1) * size].view(self.dtype)[0] for bytes_ in (got, self.want))
            differ = int(np.sum(got != self.want))
            return f"{self.name}: element {i} of {len(got) // size} is {is_} instead of {must}; {differ} bytes differ"
        return self.around()


class Flight:
    """A call of one rank, and its memory. call(asynchronous): made once; its inputs are not kept."""

    def __init__(self, step: Step, call, areas: list[Area]):
        self.step, self.areas = step, areas
        self._call = call
        self.gets_data = False  # some of what it is to hold comes from another rank
        self.bits: Area | None = None  # whose bits are the same on all members

    def run(self, asynchronous: bool = False, **options):
        call, self._call = self._call, None
        return call(asynchronous, **options)

    def check(self) -> str:
        return next(filter(None, (area.check() for area in self.areas)), "")
