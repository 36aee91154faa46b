"""torchft with Rondo between the replicas, whose tensors are on CPUs:

    manager = torchft.Manager(pg=rondo.torch.torchft.ProcessGroup(), ...)
"""

from __future__ import annotations

import torch.distributed as dist
from torchft.process_group import ProcessGroupWrapper

from rondo.torch import _group


class ProcessGroup(ProcessGroupWrapper):
    """Its manager makes it anew, of the replicas that are left and those that came, by configure()."""

    def _create_pg(self, store: dist.Store, rank: int, world_size: int) -> dist.ProcessGroup:
        group = dist.ProcessGroup(store, rank, world_size)
        group._set_default_backend(dist.ProcessGroup.BackendType.CUSTOM)
        # A name that is new to all replicas: torchft's nightly packages have a uuid, its releases the quorum's number.
        number = vars(self).get("_uuid", vars(self).get("_quorum_id"))
        _group.set_backend(group, self._timeout, f"torchft.{number}")
        return group

    def getBackendName(self) -> str:
        return "torchft-rondo"
