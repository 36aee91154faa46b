"""torch.distributed's backend "rondo".

>>> import torch.distributed as dist
>>> dist.init_process_group("rondo")       # one word changed from "gloo"

Where this package is installed, `import torch` knows the backend already; else `import rondo.torch` makes it known.
"""

from __future__ import annotations

import datetime

import torch.distributed as dist
from _rondo_torch import register

__all__ = ["monitored_barrier", "register"]

register()


def monitored_barrier(
    group: dist.ProcessGroup | None = None, timeout: datetime.timedelta | None = None, wait_all_ranks: bool = False
) -> None:
    """A barrier whose failure names the ranks that did not come: torch.distributed.monitored_barrier refuses every
    backend but gloo by name.

    group: None: the default group. timeout: None: the group's. Raises torch.distributed.DistBackendError on every rank
    that came; the group has failed then. All absent ranks are always named, so wait_all_ranks changes nothing.
    """
    group = group if group is not None else dist.group.WORLD
    group.monitored_barrier(timeout if timeout is not None else datetime.timedelta(milliseconds=-1), wait_all_ranks)
