"""Tensor-parallel inference on CPUs: a communicator of the shape that vLLM's and SGLang's model code calls.

Their device communicators are made of a group and have these methods; a platform plugin names the class, or a program
uses it by itself:

>>> communicator = CpuCommunicator(dist.group.WORLD)
>>> hidden = communicator.all_reduce(hidden)      # after each row-parallel layer
"""

from __future__ import annotations

import torch
import torch.distributed as dist


class CpuCommunicator:
    """Collectives of one process group whose backend is rondo, on CPU tensors, for inference: none has a derivative.

    Ranks are those in the group. Calls block, and go through torch.compile. Raises ValueError where the group is not of
    this backend.
    """

    def __init__(
        self,
        cpu_group: dist.ProcessGroup,
        device: torch.device | None = None,
        device_group: dist.ProcessGroup | None = None,
        unique_name: str = "",
    ):
        """device_group: on CPUs the same as cpu_group, and the one that is used where both are given. device,
        unique_name: kept for the caller."""
        self.cpu_group = cpu_group
        self.device_group = device_group if device_group is not None else cpu_group
        self.device = device if device is not None else torch.device("cpu")
        self.unique_name = unique_name
        self.ranks = dist.get_process_group_ranks(self.device_group)
        self.rank = dist.get_rank()
        self.rank_in_group = dist.get_rank(self.device_group)
        self.world_size = dist.get_world_size(self.device_group)
        self._name = self.device_group.group_name
        backend = self.device_group._get_backend(torch.device("cpu")).name()
        if backend != "rondo":
            raise ValueError(f"the group {self._name!r} has the backend {backend}, and this class is for rondo")
        self._all_reduce = torch.ops.rondo.all_reduce_.default
        self._all_gather = torch.ops.rondo.all_gather.default
        self._reduce_scatter = torch.ops.rondo.reduce_scatter.default

    def all_reduce(self, input_: torch.Tensor) -> torch.Tensor:
        """The sum over all ranks, in place; returns input_."""
        self._all_reduce(input_, "sum", self._name)
        return input_

    def all_gather(self, input_: torch.Tensor, dim: int = -1) -> torch.Tensor:
        """All ranks' tensors, one after the other along dim."""
        dim = _dimension(input_, dim)
        return self._all_gather(input_.movedim(dim, 0), self._name).movedim(0, dim)

    def reduce_scatter(self, input_: torch.Tensor, dim: int = -1) -> torch.Tensor:
        """Block rank_in_group of the sum, cut along dim. ValueError where dim is not divisible by the ranks."""
        dim = _dimension(input_, dim)
        return self._reduce_scatter(input_.movedim(dim, 0), "sum", self._name).movedim(0, dim)

    def gather(self, input_: torch.Tensor, dst: int = 0, dim: int = -1) -> torch.Tensor | None:
        """As all_gather, on rank dst of the group only; the others get None."""
        dim = _dimension(input_, dim)
        parts = None
        if self.rank_in_group == dst:
            parts = [torch.empty_like(input_) for _ in self.ranks]
        dist.gather(input_, parts, group=self.device_group, group_dst=dst)
        return None if parts is None else torch.cat(parts, dim)

    def broadcast(self, tensor: torch.Tensor, src: int = 0) -> torch.Tensor:
        """Rank src's tensor, in place; returns it."""
        dist.broadcast(tensor, group=self.device_group, group_src=src)
        return tensor

    def send(self, tensor: torch.Tensor, dst: int | None = None) -> None:
        """dst: None: the next rank."""
        dist.send(tensor, group=self.device_group, group_dst=self._neighbor(1) if dst is None else dst)

    def recv(self, size: torch.Size, dtype: torch.dtype, src: int | None = None) -> torch.Tensor:
        """src: None: the previous rank."""
        tensor = torch.empty(size, dtype=dtype, device=self.device)
        dist.recv(tensor, group=self.device_group, group_src=self._neighbor(-1) if src is None else src)
        return tensor

    def destroy(self) -> None:
        """Nothing: the group is its maker's."""

    def _neighbor(self, step: int) -> int:
        return (self.rank_in_group + step) % self.world_size


def _dimension(tensor: torch.Tensor, dim: int) -> int:
    if not -tensor.dim() <= dim < tensor.dim():
        raise ValueError(f"dim is {dim}, and the tensor has {tensor.dim()} dimensions")
    return dim % tensor.dim()
