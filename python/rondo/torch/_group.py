"""Process groups of the backend "rondo", from their making to the end of the process."""

from __future__ import annotations

import atexit

import torch.distributed as dist
from torch.distributed import distributed_c10d

from rondo import start
from rondo.torch import build

_extension = None


def extension():
    """The C++ part. Compiles it if it is nowhere to be found."""
    global _extension
    if _extension is None:
        _extension = build.load()
        atexit.register(_leave)
    return _extension


def create(options, backend_options):
    """A c10d::Backend for torch's _DistributedBackendOptions. Waits until all ranks of the group are there."""
    if backend_options is not None:
        raise ValueError(f"backend rondo takes no pg_options; it was given {backend_options!r}: pass None")
    return extension().create(
        store=options.store,
        rank=options.group_rank,
        size=options.group_size,
        timeout=options.timeout,
        name=options.group_id,
        global_ranks=list(options.global_ranks_in_group),
    )


def every_custom_group_is_ours() -> bool:
    """Whether all groups of this process that torch calls "custom" are of this backend: of such a group alone torch's C++
    does not know the name."""
    kinds, custom = dist.Backend.backend_type_map, dist.ProcessGroup.BackendType.CUSTOM
    names = {str(name) for name, _ in distributed_c10d._world.pg_map.values()}
    return all(name == "rondo" or kinds.get(name, custom) != custom for name in names)


def _leave() -> None:
    """The end of a process that did not call destroy_process_group: tells the other ranks, so that they do not wait."""
    if _extension is not None:
        _extension.leave(start._exception or "")
