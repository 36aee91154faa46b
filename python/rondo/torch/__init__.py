"""torch.distributed's backend "rondo".

>>> import torch.distributed as dist
>>> dist.init_process_group("rondo")       # one word changed from "gloo"

Where this package is installed, `import torch` knows the backend already; else `import rondo.torch` makes it known.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from _rondo_torch import register

__all__ = ["empty", "lost_ranks", "make_default", "recoverable", "register", "registered"]

register()


def make_default() -> None:
    """Groups that name no backend are rondo's on the CPU from now on, in this process: a bare init_process_group(), and
    what init_device_mesh("cpu", ...) makes. torch takes gloo for them.

    >>> rondo.torch.make_default()
    >>> mesh = init_device_mesh("cpu", (4,))
    """
    dist.Backend.default_device_backend_map["cpu"] = "rondo"


def empty(*shape: int, dtype: torch.dtype | None = None, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """A CPU tensor of zeros in registered memory: collectives on it need no copies inside a host. Make it once and keep it.

    dtype: None: torch.get_default_dtype(). group: None: the default group. It may outlive its group. Raises ValueError
    where the group is none of this backend.

    >>> gradient = rondo.torch.empty(1 << 20)
    """
    shape = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
    dtype = dtype if dtype is not None else torch.get_default_dtype()
    return _extension()._empty(list(shape), dtype, _name(group))


@contextmanager
def registered(bytes: int = 64 << 20, group: dist.ProcessGroup | None = None) -> Iterator[None]:
    """CPU tensors that this thread makes inside lie in one block of registered memory of `bytes` bytes, the arena.

    The group keeps its arena for the next time. Tensors may live on, and outlive the group. Where the arena is full,
    making a tensor raises torch.OutOfMemoryError. group: None: the default group.

    >>> with rondo.torch.registered():
    ...     hidden = layer(tokens)
    ...     torch.ops.rondo.all_reduce_(hidden)
    """
    _extension()
    scope = torch.classes.rondo.RegisteredScope(_name(group), bytes)
    try:
        yield
    finally:
        scope.end()


def lost_ranks(group: dist.ProcessGroup | None = None) -> list[int]:
    """After a failure: the ranks of the group that do not go on, the same on all that live, who all call it; one that lives
    and does not call within the group's timeout is among them. torch's shrink_group takes them. group: None: the default
    group. Raises torch.distributed.DistBackendError without a quorum (docs/recovery.md).

    >>> torch.distributed.shrink_group(rondo.torch.lost_ranks(), shrink_flags=SHRINK_ABORT)
    """
    return _extension()._lost(_name(group))


def recoverable(group: dist.ProcessGroup | None = None, on: bool = True) -> None:
    """From now on an all_reduce of this process's that fails leaves its tensor as it was, so that the living can do the step
    again: gradients in flight, too. It takes a copy of the tensor; not of lists, of groups of calls or with a wire format.
    group: None: the default group; shrink_group keeps it.

    >>> rondo.torch.recoverable()
    """
    _extension()._recoverable(_name(group), on)


def _extension():
    from rondo.torch._group import extension  # here: `python -m rondo.torch.build` imports this package first

    return extension()


def _name(group: dist.ProcessGroup | None) -> str:
    return "" if group is None else group.group_name
