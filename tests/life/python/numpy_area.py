"""Arrays of a life: plain, registered, new, between guards."""

from __future__ import annotations

import numpy as np
from life_area import Area
from life_model import DTYPES

import rondo

GUARD_BYTES = 64
UNWRITTEN = 0xAB


class NumpyArea(Area):
    """Between guards."""

    def __init__(self, name, dtype, raw, behind, count):
        super().__init__(name, dtype)
        raw[:] = UNWRITTEN
        begin = GUARD_BYTES + behind
        self.bytes = raw[begin : len(raw) - GUARD_BYTES]
        self.array = self.bytes.view(self.dtype)
        self.guards = (raw[:begin], raw[len(raw) - GUARD_BYTES :])
        assert len(self.array) == count

    def put(self, values: np.ndarray, at: int = 0) -> None:
        begin = at * self.dtype.itemsize
        self.bytes[begin : begin + len(values)] = values

    def ready(self) -> None:
        """As it must stay but for what is expected."""
        self.want = self.bytes.copy()

    def read(self):
        return self.bytes

    def around(self):
        return (
            "" if all(np.all(guard == UNWRITTEN) for guard in self.guards) else f"{self.name}: bytes beside it differ"
        )


class Made(NumpyArea):
    """What a call returns as a new array."""

    def __init__(self, name, dtype, count):
        super().__init__(name, dtype, np.empty(2 * GUARD_BYTES + count * DTYPES[dtype].itemsize, np.uint8), 0, count)

    def returned(self, array: np.ndarray) -> None:
        assert array.dtype == self.dtype and array.size == len(self.array)
        self.bytes = array.reshape(-1).view(np.uint8)


class Memory:
    """Of one thread, by the use that is made of it; kept from call to call, as a training does."""

    def __init__(self, job: rondo.Communicator):
        self.job = job  # its newest epoch
        self._regions: dict[tuple, np.ndarray] = {}
        self._residuals: dict[int, np.ndarray] = {}

    def take(self, name: str, use: tuple, where: str, dtype: str, count: int) -> NumpyArea:
        """use: the slot of the call, which call of its batch, 0: input, 1: output."""
        kind, _, behind = where.partition("+")
        size = 2 * GUARD_BYTES + int(behind or 0) + count * DTYPES[dtype].itemsize
        raw = np.empty(size, np.uint8) if kind == "n" else self._kept(use, kind, size)
        return NumpyArea(name, dtype, raw, int(behind or 0), count)

    def _kept(self, use, kind, size):
        region = self._regions.get((use, kind))
        if region is None or len(region) < size:
            self._regions.pop((use, kind), None)
            most = size + size // 4
            region = self.job.empty(most, np.uint8) if kind == "r" else np.empty(most + 64, np.uint8)
            region = region if kind == "r" else region[-region.ctypes.data % 64 :]
            self._regions[(use, kind)] = region
        return region[:size]

    def residual(self, line: int, count: int) -> np.ndarray:
        if len(self._residuals.get(line, ())) != count:
            self._residuals[line] = np.zeros(count, np.float32)
        return self._residuals[line]

    def forget_residuals(self) -> None:
        self._residuals.clear()

    def free_registered(self, below: int = 1 << 30) -> None:
        self._regions = {k: region for k, region in self._regions.items() if k[1] != "r" or k[0][0] >= below}
