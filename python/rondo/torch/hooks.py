"""Communication hooks for DistributedDataParallel on the CPU: gradients that travel as fewer bits or fewer elements.

>>> hook = Compression(model, "int8")                  # model: a DistributedDataParallel, of any backend
>>> model.register_comm_hook(hook, Compression.average)
"""

import os
import re
import socket
from collections.abc import Iterable, Mapping

import numpy as np
import torch
import torch.distributed as dist

import rondo
from rondo.communicator import Communicator
from rondo.dist_opt import check_option
from rondo.wire import Wire

_WIRES = {"fp16": "float16", "bf16": "bfloat16", "int8": "int8"}
_SELECTIONS = {"sparseTopK": ("topk", 0.05), "sparseThreshold": ("threshold", 1e-3)}
OPTIONS = (*_WIRES, *_SELECTIONS)


def in_gradient(error: rondo.NotFinite, places: Iterable[tuple[str, slice]]) -> rondo.NotFinite:
    """The error of a bucket, with its element counted in the gradient. places: of the gradients. An error that names no
    element of the bucket, as the one of an earlier call, stays as it is."""
    found = re.search(r"element (\d+)", str(error))
    for name, place in places if found else ():
        if place.start <= int(found[1]) < place.stop:
            text = str(error).replace(found[0], f'element {int(found[1]) - place.start} of "{name}"', 1)
            return rondo.NotFinite(text, error.ranks)
    return error


class Compression:
    """The state of a hook, and the hook: average(state, bucket). docs/compression.md has the options.

    model     a DistributedDataParallel; its names are those of the residuals
    option    one of OPTIONS
    spars     sparseTopK: the fraction of each gradient that is sent, 0.05 unless given; sparseThreshold: the least
              magnitude, 0.001 unless given
    residual  int8 and sparse: what is not sent is added to the next gradient
    group     torch's process group of the model; None: the default one. A communicator of Rondo's own is made of it

    All ranks make it alike: the constructor is collective. Residuals are kept by parameter, since DDP makes its buckets
    anew after the first iteration: `residuals` has them for a checkpoint, each rank its own.
    """

    def __init__(self, model, option: str, *, spars: float | None = None, residual: bool = True, group=None):
        check_option(option, spars, OPTIONS)
        self.option, self.spars = option, spars
        named = list(model.module.named_parameters())
        self._names = {id(parameter): name for name, parameter in named}
        self._keeps = residual and option not in ("fp16", "bf16")
        self.residuals: dict[str, np.ndarray] = {}
        if self._keeps:
            self.residuals = {name: np.zeros(p.numel(), np.float32) for name, p in named if p.requires_grad}
        self.group = _communicator(group)

    def load_residuals(self, residuals: Mapping[str, np.ndarray]) -> None:
        """Those of a checkpoint of this rank."""
        if set(residuals) != set(self.residuals):
            raise ValueError("the residuals are of other parameters: " + ", ".join(sorted(residuals)))
        for name, values in residuals.items():
            self.residuals[name][:] = values

    def average(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """The hook: the bucket's average over all ranks, done when it returns."""
        buffer = bucket.buffer()
        by_wire = self.option in _WIRES
        types = (torch.float32, torch.bfloat16, torch.float16) if by_wire else (torch.float32,)
        if buffer.device.type != "cpu" or buffer.dtype not in types:
            names = ", ".join(str(each).removeprefix("torch.") for each in types)
            raise TypeError(f"a bucket of {buffer.dtype} on {buffer.device}; {self.option} takes {names} on the CPU")
        places = self._places(bucket, buffer)
        residual = np.zeros(buffer.numel(), np.float32) if self._keeps else None
        if self._keeps:
            for name, place in places:
                residual[place] = self.residuals[name]
        try:
            if by_wire:
                self.group.all_reduce(buffer, "avg", wire=Wire(_WIRES[self.option], residual=residual))
            else:
                flat = buffer.numpy()
                select, spars = _SELECTIONS[self.option]
                spars = spars if self.spars is None else self.spars
                tensors = [gradient.numel() for gradient in bucket.gradients()]
                self.group.sparse_all_reduce(flat, select=select, spars=spars, residual=residual, tensors=tensors)
                flat /= self.group.size
        except rondo.NotFinite as error:
            raise in_gradient(error, places) from None
        finally:
            if self._keeps:
                for name, place in places:
                    self.residuals[name][:] = residual[place]
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        future.set_result(buffer)
        return future

    def _places(self, bucket: dist.GradBucket, buffer: torch.Tensor) -> list[tuple[str, slice]]:
        """Where in the bucket each parameter lies."""
        places = []
        for parameter, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True):
            begin = gradient.storage_offset() - buffer.storage_offset()
            places.append((self._names[id(parameter)], slice(begin, begin + gradient.numel())))
        return places


def _communicator(group) -> Communicator:
    """Of the ranks of torch's group, which meet at its first rank."""
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    meeting, said = None, [None, None]
    if rank == 0:
        try:
            meeting = rondo.unique_id(_own_address())
            said = [str(meeting), None]
        except rondo.Error as error:
            said = [None, str(error)]
    dist.broadcast_object_list(said, group=group, group_src=0)
    if said[1] is not None:
        raise rondo.Bootstrap(f"the hook's ranks cannot meet at rank 0 of the group: {said[1]}", (0,))
    return rondo.init(rank=rank, world_size=world, rendezvous=said[0])


def _own_address() -> str:
    """This host's on the way to MASTER_ADDR, which the job's ranks reach; "": one that other hosts reach."""
    master = os.environ.get("MASTER_ADDR", "127.0.0.1")
    try:
        family, kind, _, _, place = socket.getaddrinfo(master, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as way:
            way.connect(place)  # of a datagram socket: nothing is sent
            own = way.getsockname()[0]
    except OSError:
        return ""
    # Debian names a host 127.0.1.1 in its own /etc/hosts: others do not reach it there.
    return own if master in ("localhost", own) or not own.startswith("127.") else ""
