"""Data-parallel training round an optimizer: gradients are exchanged, compressed or not, before each update."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from rondo._arguments import COUNT_MAX, whole_number
from rondo.communicator import Communicator
from rondo.errors import NotFinite
from rondo.start import UniqueId, init, unique_id
from rondo.wire import Wire

OPTIONS = ("fp32", "fp16", "bf16", "int8", "partialUpdate", "localSGD", "sparseTopK", "sparseThreshold")
_WIRES = {"fp16": "float16", "bf16": "bfloat16", "int8": "int8"}
_SELECTIONS = {"sparseTopK": "topk", "sparseThreshold": "threshold"}
# SINGA's own default of spars is for both; a threshold of 0.05 sends next to nothing of most gradients.
_SPARS = {"sparseTopK": 0.05, "sparseThreshold": 1e-3}
_AFTER_UPDATE = ("partialUpdate", "localSGD")


def NcclIdHolder(host: str = "127.0.0.1") -> UniqueId:
    """A unique id under SINGA's name: made in the parent, handed to every process as `nccl_id`."""
    return unique_id(host)


def check_option(option: str, spars: float | None, options: Iterable[str] = OPTIONS) -> None:
    """ValueError: an option that is none of `options`, or spars out of its range."""
    if option not in options:
        raise ValueError(f"option {option!r} is none of {', '.join(options)}")
    if option == "sparseTopK" and spars is not None and not 0 < spars <= 1:
        raise ValueError(f"spars is {spars}: sparseTopK sends a fraction above 0, at most 1 (0 would send nothing)")
    if option == "sparseThreshold" and spars is not None and not 0 <= spars < math.inf:
        raise ValueError(f"spars is {spars}: the threshold is a finite number, 0 or above")


class NumpyUpdate:
    """An optimizer of NumPy arrays: update(name, parameter, gradient) changes `parameter` in place.

    >>> def sgd(name, parameter, gradient):
    ...     parameter -= 0.01 * gradient
    >>> optimizer = DistOpt(NumpyUpdate({"w": w, "b": b}, sgd))
    >>> optimizer.step({"w": dw, "b": db})
    """

    def __init__(self, parameters: Mapping[str, np.ndarray], update: Callable[[str, np.ndarray, np.ndarray], None]):
        self.parameters = dict(parameters)
        self.update = update

    def named(self) -> dict[str, np.ndarray]:
        return self.parameters

    def step(self, gradients: Mapping[str, np.ndarray]) -> None:
        for name, parameter in self.parameters.items():
            if name in gradients:
                self.update(name, parameter, gradients[name])


class _TorchUpdate:
    """A torch optimizer, whose parameters and gradients are seen as NumPy arrays of the same memory."""

    def __init__(self, optimizer, names: Mapping[str, object] | None):
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        known = {id(p): name for name, p in (names or {}).items()}
        named = {known.get(id(p), f"parameter{i}"): p for i, p in enumerate(parameters)}
        self.optimizer = optimizer
        self.tensors = {name: p for name, p in named.items() if p.requires_grad}
        self.frozen = {name: p for name, p in named.items() if not p.requires_grad}

    def named(self) -> dict[str, np.ndarray]:
        return {name: tensor.detach().numpy() for name, tensor in self.tensors.items()}

    def gradients(self) -> dict[str, np.ndarray]:
        for name, tensor in self.frozen.items():
            if tensor.grad is not None:
                raise ValueError(f"{name} needed no gradient when DistOpt was made: make another one to train it")
        return {name: t.grad.numpy() for name, t in self.tensors.items() if t.grad is not None}

    def step(self, gradients: Mapping[str, np.ndarray]) -> None:
        import torch

        for name, gradient in gradients.items():
            if self.tensors[name].grad is None:  # other ranks had one
                self.tensors[name].grad = torch.from_numpy(gradient.copy())
        self.optimizer.step()


class _Bucket:
    """Parameters whose gradients are exchanged together, one after the other in one array."""

    def __init__(self, names: list[str], shapes: Mapping[str, tuple[int, ...]]):
        self.names = names
        ends = np.cumsum([math.prod(shapes[name]) for name in names]).tolist()
        self.flat = np.zeros(ends[-1], np.float32)
        self.residual = np.zeros(ends[-1], np.float32)
        self.slices = {name: slice(begin, end) for name, begin, end in zip(names, [0, *ends], ends)}
        self.missing = set(names)  # gradients that have not come in this step
        self.work = None

    def view(self, name: str, shape) -> np.ndarray:
        return self.flat[self.slices[name]].reshape(shape)


def in_gradient(error: NotFinite, places: Iterable[tuple[str, slice]]) -> NotFinite:
    """The error of a bucket's exchange, with its element counted in the gradient. places: of the gradients. An error that
    names no element of the bucket, as the one of an earlier call, stays as it is."""
    found = re.search(r"element (\d+)", str(error))
    for name, place in places if found else ():
        if place.start <= int(found[1]) < place.stop:
            text = str(error).replace(found[0], f'element {int(found[1]) - place.start} of "{name}"', 1)
            return NotFinite(text, error.ranks)
    return error


def _group_by_bytes(arrays: Mapping[str, np.ndarray], limit: int) -> list[list[str]]:
    groups: list[list[str]] = []
    room = 0
    for name, array in arrays.items():
        if not groups or array.nbytes > room:
            groups.append([])
            room = limit
        groups[-1].append(name)
        room -= array.nbytes
    return groups


class DistOpt:
    """An optimizer on every rank of a group: step() averages the gradients of all ranks, and updates.

    optimizer        a torch optimizer of float32 parameters on the CPU, or a NumpyUpdate
    group            a rondo.Communicator; None: one is made of nccl_id (or id), local_rank and world_size, or of the
                     environment
    option           "fp32", or the gradients as "fp16", "bf16", "int8" between ranks; "sparseTopK", "sparseThreshold";
                     "partialUpdate": every rank updates by its own gradients, then one partition of the parameters is
                     averaged, each in its turn; "localSGD": the same, and all parameters every `every` steps
    spars            sparseTopK: the fraction of each gradient that is sent, 0.05 unless given, above 0; sparseThreshold: the least
                     magnitude that is sent, 0.001 unless given
    sampled          sparseTopK: about that fraction, by a magnitude that is guessed from a sample
    residual         int8 and sparse: what is not sent is added to the next gradient
    clip             gradients are limited to -clip .. clip before they are sent; None: not
    bucket_bytes     gradients are exchanged in arrays of about this size
    partition_bytes  partialUpdate: the size of a partition
    overlap          torch: buckets are exchanged while the backward pass goes on (fp32, fp16, bf16, int8). False: in
                     step(), which several backward passes for one step need
    outer_lr, outer_momentum, outer_nesterov   localSGD: the averaged change of the parameters is applied as a step of
                     SGD with momentum, Nesterov's or not; 1 and 0: plain averaging. DiLoCo: 0.7, 0.9, True
    names            torch: {name: parameter} as dict(model.named_parameters()), for residuals in checkpoints

    All ranks pass the same but for gradients. The parameters of rank 0 are broadcast at the start; those of torch that
    need no gradient then are left alone from there on. With fp16, bf16, int8
    and the sparse options gradients that are NaN, infinite or too large raise rondo.NotFinite, which names gradient,
    element and rank; no parameter is changed. The others pass them on (RONDO_CHECK=finite finds them).

    >>> optimizer = rondo.DistOpt(torch.optim.SGD(model.parameters(), lr=0.01), option="int8")
    >>> loss.backward(); optimizer.step(); optimizer.zero_grad()
    """

    def __init__(
        self, optimizer, *, group: Communicator | None = None, id=None, nccl_id=None, local_rank=None, world_size=None,
        option="fp32", spars=None, residual=True, clip=None, bucket_bytes=2**21, partition_bytes=2**21, overlap=True,
        every=8, outer_lr=1.0, outer_momentum=0.0, outer_nesterov=False, sampled=False, names=None,
    ):  # fmt: skip
        check_option(option, spars)
        if clip is not None and not clip > 0:
            raise ValueError(f"clip is {clip}: it is a positive number, or None")
        for what, value in (("bucket_bytes", bucket_bytes), ("partition_bytes", partition_bytes), ("every", every)):
            whole_number(value, what, least=1, most=COUNT_MAX)
        self.optimizer = optimizer
        self.option, self.spars, self.residual, self.clip = option, spars, residual, clip
        self.sampled = sampled
        self.every, self.outer_lr, self.outer_momentum = every, outer_lr, outer_momentum
        self.outer_nesterov = outer_nesterov
        self._is_torch = hasattr(optimizer, "param_groups")
        self._update = _TorchUpdate(optimizer, names) if self._is_torch else optimizer
        self._parameters = self._update.named()
        for name, parameter in self._parameters.items():
            if parameter.dtype != np.float32 or not parameter.flags.c_contiguous:
                raise TypeError(f"parameter {name} is {parameter.dtype}; DistOpt takes contiguous float32")
        if not self._parameters:
            raise ValueError("the optimizer has no parameters")
        self.group = group if group is not None else _join(id if id is not None else nccl_id, local_rank, world_size)
        self.group._refuse_in_batch("DistOpt")
        # Gradients come in about the reverse order of the parameters.
        shapes = {name: parameter.shape for name, parameter in reversed(self._parameters.items())}
        backwards = {name: self._parameters[name] for name in shapes}
        self._buckets = [_Bucket(names, shapes) for names in _group_by_bytes(backwards, bucket_bytes)]
        self._bucket_of = {name: bucket for bucket in self._buckets for name in bucket.names}
        self._partitions = _group_by_bytes(self._parameters, partition_bytes)
        self.steps = 0
        self.bytes_sent = 0  # by this rank, estimated from what was exchanged
        self.seconds = 0.0  # in exchanges that this rank waited for
        self._launched = 0  # buckets whose exchange has begun
        frozen = [tensor.detach() for tensor in self._update.frozen.values()] if self._is_torch else []
        self.group.broadcast_parameters([*self._parameters.values(), *frozen])
        self._outer = {name: p.copy() for name, p in self._parameters.items()} if option == "localSGD" else {}
        self._velocity = {name: np.zeros_like(p) for name, p in self._outer.items()}
        self._arriving = option  # by which gradients of the backward pass under way are exchanged
        if self._is_torch and overlap:
            for name, tensor in self._update.tensors.items():
                tensor.register_post_accumulate_grad_hook(lambda t, name=name: self._arrived(name, t.grad.numpy()))

    @property
    def global_rank(self) -> int:
        return self.group.rank

    @property
    def local_rank(self) -> int:
        return self.group.local_rank

    @property
    def world_size(self) -> int:
        return self.group.size

    # --- one step

    def step(self, gradients: Mapping[str, np.ndarray] | None = None, *, option=None, spars=None) -> None:
        """Exchanges the gradients and updates. gradients: of a NumpyUpdate, by name. option, spars: for this step, the
        same on all ranks; torch, where buckets overlap: by backward_and_update() only."""
        self.group._refuse_in_batch("DistOpt.step")
        option = self.option if option is None else option
        spars = self.spars if spars is None else spars
        check_option(option, spars)
        if self._launched and option != self._arriving:
            raise ValueError(
                f"option {option!r} comes too late: the exchange as {self._arriving!r} began in the backward pass; use "
                "backward_and_update(), or pass overlap=False to DistOpt"
            )
        if gradients is None:
            if not self._is_torch:
                raise ValueError("step() of a NumpyUpdate needs the gradients, by name")
            gradients = self._update.gradients()
        for name, gradient in gradients.items():
            if name not in self._parameters:
                raise ValueError(f"there is no parameter {name!r}, of which a gradient is given")
            if gradient.shape != self._parameters[name].shape:
                raise ValueError(
                    f"the gradient of {name!r} has shape {gradient.shape}; the parameter has {self._parameters[name].shape}"
                )
        if option in _AFTER_UPDATE:
            self._begin_again()  # gradients that have come are not sent
            self._clip(gradients)
            self._update.step(gradients)
            self._average_parameters(option)
        else:
            self._exchange(gradients, option, spars)
            averaged = {name: gradients.get(name) for name in self._parameters}
            for bucket in self._buckets:
                for name in bucket.names:
                    view = bucket.view(name, self._parameters[name].shape)
                    if averaged[name] is None:
                        averaged[name] = view
                    else:
                        averaged[name][...] = view
            self._update.step(averaged)
        self.steps += 1

    def zero_grad(self) -> None:
        """That of a torch optimizer."""
        self.optimizer.zero_grad()

    def backward_and_update(self, loss, option=None, spars=None) -> None:
        """torch: backward pass, step and zero_grad in one, the last also after an error."""
        option = self.option if option is None else option
        check_option(option, self.spars if spars is None else spars)
        self._arriving = option
        try:
            loss.backward()
            self.step(option=option, spars=spars)
        finally:
            self._arriving = self.option
            self.zero_grad()

    def synch(self, array) -> None:
        """Replaces `array` by its sum over all ranks."""
        self.group.all_reduce(array)

    def wait(self) -> None:
        """Returns when no exchange of this rank is under way."""
        for bucket in self._buckets:
            if bucket.work is not None:
                bucket.work.wait()

    def _clip(self, gradients: Mapping[str, np.ndarray]) -> None:
        if self.clip is not None:
            for gradient in gradients.values():
                np.clip(gradient, -self.clip, self.clip, out=gradient)

    # --- gradients

    def _arrived(self, name: str, gradient: np.ndarray) -> None:
        """A gradient of the backward pass that is under way."""
        if self._arriving != "fp32" and self._arriving not in _WIRES:
            return
        self.group._refuse_in_batch("DistOpt, a gradient of the backward pass")
        bucket = self._bucket_of[name]
        if name not in bucket.missing:
            raise RuntimeError(
                f"a second gradient of {name} came before step(): pass overlap=False to DistOpt for several backward "
                "passes a step"
            )
        self._fill(bucket, name, gradient)
        while self._launched < len(self._buckets) and not self._buckets[self._launched].missing:
            self._launch(self._buckets[self._launched], self._arriving)

    def _fill(self, bucket: _Bucket, name: str, gradient: np.ndarray | None) -> None:
        part = bucket.flat[bucket.slices[name]]
        if gradient is None:
            part[:] = 0
        elif self.clip is not None:
            np.clip(gradient.reshape(-1), -self.clip, self.clip, out=part)
        else:
            part[:] = gradient.reshape(-1)
        bucket.missing.discard(name)

    def _launch(self, bucket: _Bucket, option: str) -> None:
        """In the order of the buckets, which all ranks have."""
        self._launched += 1
        wire = None
        if option in _WIRES:
            wire = Wire(_WIRES[option], residual=bucket.residual if option == "int8" and self.residual else None)
        bucket.work = self.group.all_reduce(bucket.flat, op="avg", async_op=True, wire=wire)
        width = {"fp32": 4, "int8": 132 / 128}.get(option, 2)
        self.bytes_sent += round(2 * (self.world_size - 1) / self.world_size * bucket.flat.size * width)

    def _exchange(self, gradients, option: str, spars) -> None:
        begin = time.perf_counter()
        try:
            for bucket in self._buckets:
                for name in list(bucket.missing):
                    self._fill(bucket, name, gradients.get(name))
            if option in _SELECTIONS:
                self._exchange_sparse(option, _SPARS[option] if spars is None else spars)
            else:
                for bucket in self._buckets[self._launched :]:
                    self._launch(bucket, option)
                self._wait_for_all()
        finally:
            self._begin_again()
        self.seconds += time.perf_counter() - begin

    def _begin_again(self) -> None:
        """No gradient has come, and no exchange has begun."""
        self._launched = 0
        for bucket in self._buckets:
            bucket.missing = set(bucket.names)
            bucket.work = None

    def _wait_for_all(self) -> None:
        """Every exchange ends before a failure is raised."""
        failure = None
        for bucket in self._buckets:
            try:
                bucket.work.wait()
            except NotFinite as error:
                failure = failure or in_gradient(error, bucket.slices.items())
            except Exception as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def _exchange_sparse(self, option: str, spars: float) -> None:
        failure = None
        for bucket in self._buckets:
            try:
                report = self.group.sparse_all_reduce(
                    bucket.flat,
                    select="sampled_topk" if self.sampled and option == "sparseTopK" else _SELECTIONS[option],
                    spars=spars,
                    residual=bucket.residual if self.residual else None,
                    tensors=[part.stop - part.start for part in bucket.slices.values()],
                )
                self.bytes_sent += report.bytes_sent
                bucket.flat /= self.world_size
            except NotFinite as error:  # on all ranks alike
                failure = failure or in_gradient(error, bucket.slices.items())
        if failure is not None:
            raise failure

    # --- parameters

    def _average_parameters(self, option: str) -> None:
        if option == "partialUpdate":
            names = self._partitions[self.steps % len(self._partitions)]
        elif (self.steps + 1) % self.every == 0:
            names = list(self._parameters)
        else:
            return
        begin = time.perf_counter()
        arrays = [self._parameters[name] for name in names]
        self.group.all_reduce_many(arrays, op="avg")
        self.bytes_sent += round(2 * (self.world_size - 1) / self.world_size * sum(a.nbytes for a in arrays))
        if option == "localSGD" and self._outer:
            for name in names:
                self._outer_step(name)
        self.seconds += time.perf_counter() - begin

    def _outer_step(self, name: str) -> None:
        parameter, last, velocity = self._parameters[name], self._outer[name], self._velocity[name]
        if self.outer_lr != 1 or self.outer_momentum != 0:
            change = parameter - last
            velocity *= np.float32(self.outer_momentum)
            velocity += change
            step = change + np.float32(self.outer_momentum) * velocity if self.outer_nesterov else velocity
            parameter[...] = last + np.float32(self.outer_lr) * step
        last[...] = parameter

    # --- checkpoints

    def state_dict(self) -> dict:
        """What DistOpt adds to a checkpoint, the same on all ranks: the residuals of all ranks by parameter, the number
        of steps, the state of localSGD. Collective."""
        self.group._refuse_in_batch("DistOpt.state_dict")
        residuals = {}
        for bucket in self._buckets:
            everyone = self.group.all_gather(bucket.residual)
            for name in bucket.names:
                residuals[name] = everyone[:, bucket.slices[name]].copy()
        copies = {name: array.copy() for name, array in self._outer.items()}
        velocities = {name: array.copy() for name, array in self._velocity.items()}
        return {
            "steps": self.steps, "world": self.world_size, "residuals": residuals, "outer": copies,
            "velocity": velocities,
        }  # fmt: skip

    def load_state_dict(self, state: Mapping) -> None:
        """With as many ranks as saved it, each takes its own residuals; else all take the mean, so that the averaged
        gradient gets what is left. localSGD: load the parameters first; with a state of another option they count as
        the last average."""
        if set(state["residuals"]) != set(self._parameters):
            raise ValueError("the checkpoint is of other parameters: " + ", ".join(sorted(state["residuals"])))
        for name, everyone in state["residuals"].items():
            own = everyone[self.global_rank] if state["world"] == self.world_size else everyone.mean(axis=0)
            bucket = self._bucket_of[name]
            bucket.residual[bucket.slices[name]] = own
        self.steps = state["steps"]
        for name in self._outer:
            self._outer[name][...] = state["outer"].get(name, self._parameters[name])
            self._velocity[name][...] = state["velocity"].get(name, 0)


def _join(meeting, rank: int | None, world_size: int | None) -> Communicator:
    """nccl_id, local_rank and world_size as SINGA's launchers pass them, for one host; without them the environment."""
    if meeting is None:
        return init() if world_size is None else init(rank=rank, world_size=world_size)
    if rank is None or world_size is None:
        raise ValueError(f"with an id pass local_rank and world_size (they are {rank} and {world_size})")
    return init(rank=rank, world_size=world_size, rendezvous=meeting)
