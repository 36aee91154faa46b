"""Rondo as a backend of ray.util.collective.

>>> from rondo.ray import register               # in the driver and in every actor
>>> register()
>>> ray.util.collective.init_collective_group(world_size, rank, backend="rondo")      # in every actor
>>> ray.util.collective.allreduce(array)

Actors may also use Rondo by itself: the driver makes `rondo.unique_id()`, and each actor calls
`rondo.init(rank=..., world_size=..., rendezvous=id)`.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable

import numpy as np
import ray
from ray.experimental import internal_kv
from ray.util.collective.backend_registry import register_collective_backend
from ray.util.collective.collective_group.base_collective_group import BaseGroup
from ray.util.collective.types import (
    AllGatherOptions,
    AllReduceOptions,
    BarrierOptions,
    BroadcastOptions,
    RecvOptions,
    ReduceOp,
    ReduceOptions,
    ReduceScatterOptions,
    SendOptions,
)

from rondo.errors import Bootstrap
from rondo.start import init, unique_id

_OPS = {ReduceOp.SUM: "sum", ReduceOp.PRODUCT: "product", ReduceOp.MIN: "min", ReduceOp.MAX: "max"}
_START_SECONDS = 120.0  # RONDO_START_TIMEOUT_MS's default
_POLL_SECONDS = 0.02


def register() -> None:
    """Makes backend="rondo" known to Ray in this process. May be called again."""
    try:
        register_collective_backend("rondo", RondoGroup)
    except ValueError:
        pass  # registered before


class RondoGroup(BaseGroup):
    """A group of actors. Arrays are NumPy arrays or torch tensors in host memory, contiguous."""

    def __init__(self, world_size: int, rank: int, group_name: str):
        super().__init__(world_size, rank, group_name)
        keys = _Keys(group_name)
        self._node = ray.get_runtime_context().get_node_id()
        try:
            meeting_point = self._offer(keys) if rank == 0 else self._ask(keys)
            self._group = init(rank=rank, world_size=world_size, rendezvous=meeting_point)
        finally:
            keys.clear()

    # The keys of a start whose ranks were killed stay: a rank takes only what answers a key of its own.

    def _offer(self, keys: _Keys):
        """Rank 0: serves the place where the ranks meet, on loopback where all of them are on one node."""
        attempt = uuid.uuid4().hex
        keys.put("attempt", attempt)
        others = [keys.wait(f"{attempt}/node{rank}", of_rank=rank).split() for rank in range(1, self._world_size)]
        nodes = {self._node, *(node for node, _ in others)}
        # Kept until the group is destroyed: it serves ranks that start late.
        self._id = unique_id("127.0.0.1" if len(nodes) == 1 else ray.util.get_node_ip_address())
        for _, asker in others:
            keys.put(f"id/{asker}", str(self._id))
        return self._id

    def _ask(self, keys: _Keys) -> str:
        """Another rank: tells its node to each attempt of a rank 0, until one answers it."""
        asker = uuid.uuid4().hex
        told = None

        def tell() -> None:
            nonlocal told
            attempt = keys.get("attempt")
            if attempt not in (None, told):
                keys.put(f"{attempt}/node{self._rank}", f"{self._node} {asker}")
                told = attempt

        return keys.wait(f"id/{asker}", of_rank=0, between=tell)

    def destroy_group(self) -> None:
        self._group.close()

    @classmethod
    def backend(cls) -> str:
        return "RONDO"

    @classmethod
    def check_backend_availability(cls) -> bool:
        return True

    # Ray passes each array in a list of one. Its options may be the class itself, with attributes set.

    def allreduce(self, tensor, allreduce_options=AllReduceOptions()) -> None:
        self._group.all_reduce(tensor[0], op=_OPS[allreduce_options.reduceOp])

    def barrier(self, barrier_options=BarrierOptions()) -> None:
        self._group.barrier()

    def reduce(self, tensor, reduce_options=ReduceOptions()) -> None:
        self._group.reduce(tensor[0], op=_OPS[reduce_options.reduceOp], root=reduce_options.root_rank)

    def broadcast(self, tensor, broadcast_options=BroadcastOptions()) -> None:
        self._group.broadcast(tensor[0], root=broadcast_options.root_rank)

    def allgather(self, tensor_list, tensor, allgather_options=AllGatherOptions()) -> None:
        parts = self._group.all_gather(_numpy(tensor[0]))
        for target, part in zip(tensor_list[0], parts, strict=True):
            np.copyto(_numpy(target), part)

    def reducescatter(self, tensor, tensor_list, reducescatter_options=ReduceScatterOptions()) -> None:
        parts = np.stack([_numpy(part) for part in tensor_list[0]])
        result = self._group.reduce_scatter(parts, op=_OPS[reducescatter_options.reduceOp])
        target = _numpy(tensor[0])
        np.copyto(target, result.reshape(target.shape))

    def send(self, tensor, send_options: SendOptions) -> None:
        self._group.send(tensor[0], dest=send_options.dst_rank)

    def recv(self, tensor, recv_options: RecvOptions) -> None:
        self._group.recv(tensor[0], source=recv_options.src_rank)


class _Keys:
    """Small texts in Ray's own key-value store, which every actor reaches."""

    def __init__(self, group_name: str):
        self._prefix = f"rondo/{ray.get_runtime_context().get_job_id()}/{group_name}/"
        self._mine: dict[str, str] = {}

    def put(self, name: str, value: str) -> None:
        self._mine[name] = value
        internal_kv._internal_kv_put(self._prefix + name, value, overwrite=True)

    def get(self, name: str) -> str | None:
        value = internal_kv._internal_kv_get(self._prefix + name)
        return None if value is None else value.decode()

    def wait(self, name: str, of_rank: int, between: Callable[[], None] = lambda: None) -> str:
        deadline = time.monotonic() + _START_SECONDS
        while (value := self.get(name)) is None:
            if time.monotonic() > deadline:
                raise Bootstrap(f"rank {of_rank} has not joined the group within {_START_SECONDS:g} s", (of_rank,))
            between()
            time.sleep(_POLL_SECONDS)
        return value

    def clear(self) -> None:
        """Those that this rank has put, and no other since."""
        for name, value in self._mine.items():
            if self.get(name) == value:
                internal_kv._internal_kv_del(self._prefix + name)


def _numpy(array) -> np.ndarray:
    """A view, not a copy."""
    return array if isinstance(array, np.ndarray) else array.numpy()
