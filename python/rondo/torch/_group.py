"""Process groups of the backend "rondo", from their making to the end of the process."""

from __future__ import annotations

import datetime

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from rondo import start
from rondo._library import native
from rondo.torch import build

_INTERRUPTED = 14  # of rondo.h
_in_python = None  # torch.library's: the operators that the C++ part calls


def extension():
    """torch.ops.rondo, the C++ part. Compiles it if it is nowhere to be found."""
    global _in_python
    if _in_python is None:
        torch.ops.load_library(build.find())
        _in_python = torch.library.Library("rondo", "IMPL")
        _in_python.impl(_raise_from_handler.__name__, _raise_from_handler, "CompositeExplicitAutograd")
        backend = torch._C._distributed_c10d.Backend  # of each process group, where it has no class of its own in Python
        if not hasattr(backend, "perform_nocolor_split"):
            backend.perform_nocolor_split = _perform_nocolor_split
        start._steps.append(_leave)
        start._finders.append(lambda error: isinstance(error, dist.DistError) and torch.ops.rondo._is_of_others(str(error)))
    return torch.ops.rondo


def create(options, backend_options):
    """A c10d::Backend for torch's _DistributedBackendOptions. Waits until all ranks of the group are there, unless it has
    enable_reconfigure."""
    if backend_options is not None:
        raise ValueError(f"backend rondo takes no pg_options; it was given {backend_options!r}: pass None")
    ranks = list(options.global_ranks_in_group)
    # Programs copy torch's helper that makes the default group, for groups beside it.
    is_default = not ranks and distributed_c10d._world.default_pg is None
    waits = getattr(options, "enable_reconfigure", False)  # of torch 2.15
    meeting = dist.ProcessGroup(options.store, options.group_rank, options.group_size)
    set_backend(meeting, options.timeout, options.group_id, ranks, is_default, waits)
    return meeting._get_backend(torch.device("cpu"))


def set_backend(group, timeout: datetime.timedelta, name: str, ranks=(), is_default: bool = False, waits: bool = False) -> None:
    """Gives a group of a store the backend. ranks: of the default group; without them the ranks meet in the store."""
    start.end_with_this_process()
    timeout_ms = timeout // datetime.timedelta(milliseconds=1)
    extension()._create(group.boxed(), timeout_ms, name, list(ranks), is_default, waits)


def _perform_nocolor_split(_backend, _device) -> None:
    """What torch asks of a rank that is no member of a new group, where the default group has a device and its backend
    splits groups: nothing, since a group's members alone make it."""


def _raise_from_handler() -> None:
    """Raises what a signal's handler raised in this thread's last call of the library, if it did and nobody has raised it."""
    native.last_error(_INTERRUPTED)


def _leave() -> None:
    """The end of a process that did not call destroy_process_group: tells the other ranks, so that they do not wait."""
    if _in_python is not None:
        torch.ops.rondo._leave(start._exception or "")
