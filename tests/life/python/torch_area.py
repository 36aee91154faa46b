"""Tensors of a life that lie in many ways, and torch's works."""

from __future__ import annotations

import itertools
import random

import numpy as np
import torch
import torch.distributed as dist
from life_question import DTYPES
from torch_views import Written, plain, view_of

PERIOD = 1021  # of the values of a life
TYPES = {name: getattr(torch, name.replace("float8_e4m3", "float8_e4m3fn"), None) for name in DTYPES}


def shape_of(rng: random.Random, count: int) -> list[int]:
    """A shape of so many elements, in up to 4 dimensions; or in rows of equal values."""
    if count > 0 and count % PERIOD == 0:
        return [count // PERIOD, PERIOD]
    shape = []
    for factor in rng.sample((2, 3, 4, 5, 7, 8), 3):
        if count % factor == 0 and rng.random() < 0.6:
            shape.append(factor)
            count //= factor
    shape.insert(rng.randrange(len(shape) + 1), count)
    return shape


class Area:
    """A tensor for the call, and the player's memory that it stands for: blocks, one after the other."""

    def __init__(self, rng: random.Random, blocks: list[np.ndarray], shape: list[int], type_: torch.dtype, at: int):
        """at: the address as which it lies: in views of views where that is not aligned."""
        self.blocks, self._rng, self._depth = blocks, rng, 3 if at % 8 else 0
        self._values = np.concatenate([block.view(np.uint8) for block in blocks])
        self._given = torch.from_numpy(self._values).view(type_) if len(self._values) else torch.empty(0, dtype=type_)
        self._given = self._given.reshape(tuple(shape))
        self._written: Written | None = None

    def to_read(self) -> Area:
        given, table = self._given, self._values.reshape(self._given.shape[0] or 1, -1)
        if self._depth > 0 and given.shape[1:] == (PERIOD,) and (table == table[:1]).all():
            self.tensor = view_of(given[:1], self._rng, self._depth).expand(given.shape)  # one row lies in memory
        else:
            self.tensor = view_of(given, self._rng, self._depth)
        return self

    def to_write(self) -> Area:
        self._written = Written(self._rng, self._given, self._depth)
        self.tensor = self._written.tensor
        return self

    def bring(self) -> None:
        """The values to the player's memory, when the call has ended."""
        if self._written is not None:
            self._written.check_around()
        values, at = plain(self.tensor).reshape(-1).view(torch.uint8).numpy(), 0
        for block in self.blocks:
            block.view(np.uint8)[:] = values[at : at + block.nbytes]
            at += block.nbytes


class Works:
    """These as one rondo.Work. Of lists of tensors torch gives a future only."""

    def __init__(self, works: list):
        self._works = works

    def done(self) -> bool:
        return all(map(_is_done, self._works))

    def wait(self) -> None:
        for work in self._works:
            work.wait()

    def add_done_callback(self, function) -> None:
        left = itertools.count(len(self._works) - 1, -1)
        for work in self._works:
            future = work.get_future() if isinstance(work, dist.Work) else work
            future.then(lambda _: function(self) if next(left) == 0 else None)


def _is_done(work) -> bool:
    if not isinstance(work, dist.Work):
        return work.done()
    done = work.is_completed()
    if done:
        assert work.is_success() and work.exception() is None
    return done
