"""Tensors of a life that lie in many ways, and torch's works."""

from __future__ import annotations

import random

import numpy as np
import torch
import torch.distributed as dist
from life_area import Area
from life_model import PERIOD
from torch_views import Written, plain, view_of

import rondo.torch


def shape_of(rng: random.Random, count: int) -> list[int]:
    """Of so many elements, in up to 4 dimensions; or in rows of equal values."""
    if count > 0 and count % PERIOD == 0:
        return [count // PERIOD, PERIOD]
    shape = []
    for factor in rng.sample((2, 3, 4, 5, 7, 8), 3):
        if count % factor == 0 and rng.random() < 0.6:
            shape.append(factor)
            count //= factor
    shape.insert(rng.randrange(len(shape) + 1), count)
    return shape


def depth_of(where: str) -> int:
    """Of views of views: `+B` of the text lies in another way."""
    return 3 if "+" in where else 0


def to_read(given: torch.Tensor, rng: random.Random, depth: int) -> torch.Tensor:
    """A view of these values. Of rows that are equal, one lies in memory."""
    if depth == 0 or given.dim() != 2 or given.shape[1] != PERIOD:
        return view_of(given, rng, depth)
    return view_of(given[:1], rng, depth).expand(given.shape)


class TorchArea(Area):
    def __init__(self, name: str, dtype: str, tensor: torch.Tensor, written: Written | None = None):
        super().__init__(name, dtype)
        self.tensor, self._written = tensor, written
        self.want = self.read()

    def read(self):
        return plain(self.tensor).reshape(-1).view(torch.uint8).numpy()

    def around(self):
        """What lies between its elements, too."""
        if self._written is None:
            return ""
        try:
            self._written.check(tensor_of(self.want, self.tensor.dtype, self.tensor.shape), self.name)
        except AssertionError as error:
            return str(error)
        return ""


def tensor_of(values: np.ndarray, dtype: torch.dtype, shape) -> torch.Tensor:
    if len(values) == 0:  # whose strides torch does not take for another type
        return torch.empty(tuple(shape), dtype=dtype)
    return torch.from_numpy(values).view(dtype).reshape(tuple(shape))


class TorchWork:
    """As rondo.Work. Of lists of tensors torch gives a future only."""

    def __init__(self, work, message=None):
        self._work, self._message = work, message
        self._is_future = not isinstance(work, dist.Work)

    def done(self) -> bool:
        if self._is_future:
            return self._work.done()
        done = self._work.is_completed()
        if done:
            assert self._work.is_success() and self._work.exception() is None
        return done

    def wait(self):
        self._work.wait()
        return self._message and self._message(self._work)

    def add_done_callback(self, function) -> None:
        (self._work if self._is_future else self._work.get_future()).then(function)


class TorchMemory:
    """Tensors are made for each call; `r` of the text: in registered memory."""

    def __init__(self, group):
        self._group = group

    def made(self, where: str, make):
        """What make() makes; in plain memory where the arena has no room for it."""
        if where[0] != "r":
            return make()
        try:
            with rondo.torch.registered(group=self._group):
                return make()
        except torch.OutOfMemoryError:
            return make()

    def free_registered(self, below: int) -> None:
        pass
