"""Data-parallel training round an optimizer: gradients are exchanged, compressed or not, before each update."""

from __future__ import annotations

import functools
import math
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from rondo._arguments import COUNT_MAX, real_number, text_of, whole_number
from rondo._library import native
from rondo.communicator import Communicator
from rondo.start import UniqueId, init, unique_id
from rondo.wire import FORMATS, Wire

# In the order of rondo_exchange_t.
OPTIONS = ("fp32", "fp16", "bf16", "int8", "sparseTopK", "sparseThreshold", "partialUpdate", "localSGD")
_OVERLAPPED = OPTIONS[:4]
_AFTER_UPDATE = OPTIONS[6:]
_REAL_KINDS = "fV"  # of NumPy's dtypes; V: ml_dtypes


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

    def give(self) -> None:
        pass

    take = give

    def step(self, gradients: Mapping[str, np.ndarray]) -> None:
        for name, parameter in self.parameters.items():
            if name in gradients:
                self.update(name, parameter, gradients[name])


class _TorchUpdate:
    """A torch optimizer, whose parameters and gradients are seen as NumPy arrays of the same memory; those of 16 bits
    as copies in float32."""

    def __init__(self, optimizer, names: Mapping[str, object] | None):
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        known = {id(p): name for name, p in (names or {}).items()}
        named = {known.get(id(p), f"parameter{i}"): p for i, p in enumerate(parameters)}
        self.optimizer = optimizer
        self.tensors = {name: p for name, p in named.items() if p.requires_grad}
        self.frozen = {name: p for name, p in named.items() if not p.requires_grad}
        self._copies = {name: _float32(t) for name, t in self.tensors.items() if t.element_size() == 2}

    def named(self) -> dict[str, np.ndarray]:
        return {name: self._copies[name] if name in self._copies else _float32(t) for name, t in self.tensors.items()}

    def give(self) -> None:
        """Parameters to their copies, before an exchange of them; take(): back."""
        for name, copy in self._copies.items():
            copy[...] = _float32(self.tensors[name])

    def take(self) -> None:
        for name, copy in self._copies.items():
            _set(self.tensors[name].detach(), copy)

    def gradients(self) -> dict[str, np.ndarray]:
        for name, tensor in self.frozen.items():
            if tensor.grad is not None:
                raise ValueError(f"{name} needed no gradient when DistOpt was made: make another one to train it")
        return {name: _float32(t.grad) for name, t in self.tensors.items() if t.grad is not None}

    def step(self, gradients: Mapping[str, np.ndarray]) -> None:
        import torch

        for name, gradient in gradients.items():
            tensor = self.tensors[name]
            if tensor.grad is None:  # other ranks had one
                tensor.grad = torch.from_numpy(gradient).to(tensor.dtype)
            elif name in self._copies:
                _set(tensor.grad, gradient)
        self.optimizer.step()


def _remove(hooks: list) -> None:
    for hook in hooks:
        hook.remove()


def _float32(tensor) -> np.ndarray:
    """Of the same memory, if it is float32."""
    return (tensor.detach().float() if tensor.element_size() == 2 else tensor.detach()).numpy()


def _set(tensor, array: np.ndarray) -> None:
    import torch

    tensor.copy_(torch.from_numpy(array))


class DistOpt:
    """An optimizer on every rank of a group: step() averages the gradients of all ranks, and updates.

    optimizer        a torch optimizer of float32, bfloat16 or float16 parameters on the CPU, which are exchanged as
                     float32, or a NumpyUpdate. Round a torch optimizer this is one, too: it has its param_groups, a
                     scheduler of learning rates takes it, and state_dict() holds its state
    group            a rondo.Communicator; None: one is made of nccl_id (or id), local_rank and world_size, or of the
                     environment
    option           "fp32", or the gradients as "fp16", "bf16", "int8" between ranks; "sparseTopK", "sparseThreshold";
                     "partialUpdate": every rank updates by its own gradients, then one partition of the parameters is
                     averaged, each in its turn; "localSGD": the same, and all parameters every `every` steps (None: 8)
    spars            sparseTopK: the fraction of each gradient that is sent, 0.05 unless given, above 0; sparseThreshold: the least
                     magnitude that is sent, 0.001 unless given
    residual         int8 and sparse: what is not sent is added to the next gradient; outer_wire: to the next change
    clip             gradients are limited to -clip .. clip before they are sent; None: not
    bucket_bytes     gradients are exchanged in arrays of about this size; None: 2 MiB
    partition_bytes  partialUpdate: the size of a partition; None: 2 MiB
    overlap          torch: buckets are exchanged while the backward pass goes on (fp32, fp16, bf16, int8). False: in
                     step(), which several backward passes for one step need
    outer_lr, outer_momentum, outer_nesterov   localSGD: the averaged change of the parameters is applied as a step of
                     SGD with momentum, Nesterov's or not; None, or 1 and 0: plain averaging. DiLoCo: 0.7, 0.9, True
    outer_wire       localSGD: the wire format ("int8", "int4", ...) of the parameters' changes since the last average; None:
                     the parameters travel as they are
    outer_delay      localSGD: the changes travel during so many further steps, fewer than `every`; what a rank has learned
                     meanwhile is added. Other calls on the group wait meanwhile: pass group=group.dup()
    outer_fragments  localSGD: so many fragments of the parameters, each of which has its outer step every `every` steps,
                     one after the other
    names            torch: {name: parameter} as dict(model.named_parameters()), for residuals in checkpoints

    All ranks pass the same but for gradients. The parameters of rank 0 are broadcast at the start; those of torch that
    need no gradient then are left alone from there on. With fp16, bf16, int8
    and the sparse options gradients that are NaN, infinite or too large raise rondo.NotFinite, which names gradient,
    element and rank; no parameter is changed. The others pass them on (RONDO_CHECK=finite finds them).

    >>> optimizer = rondo.DistOpt(torch.optim.SGD(model.parameters(), lr=0.01), option="int8")
    >>> loss.backward(); optimizer.step(); optimizer.zero_grad()
    """

    def __new__(cls, optimizer, **_):
        return super().__new__(_torch_class() if cls is DistOpt and hasattr(optimizer, "param_groups") else cls)

    def __init__(
        self, optimizer, *, group: Communicator | None = None, id=None, nccl_id=None, local_rank=None, world_size=None,
        option="fp32", spars=None, residual=True, clip=None, bucket_bytes=None, partition_bytes=None, overlap=True,
        every=None, outer_lr=None, outer_momentum=None, outer_nesterov=False, outer_wire=None, outer_delay=0,
        outer_fragments=1, names=None,
    ):  # fmt: skip
        check_option(option, spars)
        if clip is not None and not clip > 0:
            raise ValueError(f"clip is {clip}: it is a positive number, or None")
        counts = {"bucket_bytes": bucket_bytes, "partition_bytes": partition_bytes, "every": every}
        counts = {
            what: whole_number(value, what, least=1, most=COUNT_MAX) for what, value in counts.items() if value is not None
        }
        counts["outer_delay"] = whole_number(outer_delay, "outer_delay", least=0, most=COUNT_MAX)
        counts["outer_fragments"] = whole_number(outer_fragments, "outer_fragments", least=1, most=COUNT_MAX)
        reals = {"clip": clip, "outer_rate": outer_lr, "outer_momentum": outer_momentum}
        reals = {what: real_number(value, what) for what, value in reals.items() if value is not None}
        self.optimizer = optimizer
        self.option, self.spars, self.clip = option, spars, clip
        self._is_torch = hasattr(optimizer, "param_groups")
        self._update = _TorchUpdate(optimizer, names) if self._is_torch else optimizer
        self._parameters = self._update.named()
        for name, parameter in self._parameters.items():
            if not isinstance(parameter, np.ndarray):
                raise TypeError(f"parameter {name} is {type(parameter).__name__}; DistOpt takes NumPy arrays")
            if parameter.dtype != np.float32 or not parameter.flags.c_contiguous:
                raise TypeError(f"parameter {name} is {parameter.dtype}; DistOpt takes contiguous float32")
            if not parameter.flags.writeable:
                raise ValueError(f"parameter {name} is read-only, and averages are written to it")
        if not self._parameters:
            raise ValueError("the optimizer has no parameters")
        self.group = group if group is not None else _join(id if id is not None else nccl_id, local_rank, world_size)
        self.group._refuse_in_batch("DistOpt")
        self._names = {name: text_of(name, "a parameter's name", self.group.rank) for name in self._parameters}
        flags = {"residual": bool(residual), "nesterov": bool(outer_nesterov)}
        flags["outer_wire"] = FORMATS.index(Wire("none" if outer_wire is None else outer_wire).format)
        places = [(p.ctypes.data, p.size) for p in self._parameters.values()]
        fields = {"exchange": OPTIONS.index(option), **flags, **counts, **reals}  # the library has the defaults of others
        self._handle = native.dist_opt_create(self.group._open(), list(self._names.values()), *map(list, zip(*places)), fields)
        self._take_over()
        self.seconds = 0.0  # in exchanges that this rank waited for
        self._arriving = option  # by which gradients of the backward pass under way are exchanged
        self._arrived: set[str] = set()  # of that backward pass
        if self._is_torch and overlap:
            self._hear_of_gradients()

    def _hear_of_gradients(self) -> None:
        """The parameters, which may outlive this, have the hooks: these neither keep it nor stay behind."""
        this = weakref.ref(self)

        def arrives(name, tensor):
            optimizer = this()
            if optimizer is not None:
                optimizer._arrives(name, _float32(tensor.grad))

        handles = [
            tensor.register_post_accumulate_grad_hook(functools.partial(arrives, name))
            for name, tensor in self._update.tensors.items()
        ]
        weakref.finalize(self, _remove, handles).atexit = False

    def _take_over(self) -> None:
        self._update.take()
        if self._is_torch:
            self.group.broadcast_parameters([tensor.detach() for tensor in self._update.frozen.values()])

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

    def step(
        self, gradients: Mapping[str, np.ndarray] | Callable[[], Any] | None = None, *, option=None, spars=None
    ) -> Any:
        """Exchanges the gradients and updates. gradients: of a NumpyUpdate, by name; of a torch optimizer a closure that
        makes them, once, whose loss is returned. option, spars: for this step, the same on all ranks; torch, where
        buckets overlap: by backward_and_update() only."""
        loss = None
        if self._is_torch and callable(gradients):
            import torch

            with torch.enable_grad():
                gradients, loss = None, gradients()
        self.group._refuse_in_batch("DistOpt.step")
        option = self.option if option is None else option
        spars = self.spars if spars is None else spars
        check_option(option, spars)
        if self._arrived and option != self._arriving:
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
            if not isinstance(gradient, np.ndarray) or gradient.dtype.kind not in _REAL_KINDS:
                given = getattr(gradient, "dtype", type(gradient).__name__)
                raise TypeError(f"the gradient of {name!r} is {given}; the average is written to a NumPy array of floats")
            if gradient.shape != self._parameters[name].shape:
                raise ValueError(
                    f"the gradient of {name!r} has shape {gradient.shape}; the parameter has {self._parameters[name].shape}"
                )
            if not gradient.flags.writeable:
                raise ValueError(f"the gradient of {name!r} is read-only; the average is written there")
        gradients = dict(gradients)
        for name, parameter in self._parameters.items():
            if name not in gradients and option not in _AFTER_UPDATE:  # other ranks may have one
                gradients[name] = np.zeros_like(parameter)
        self._reduce(gradients, option, spars)
        self._update.step(gradients)
        begin = time.perf_counter()
        if option in _AFTER_UPDATE:
            self._update.give()
        native.dist_opt_average(self._handle, OPTIONS.index(option))
        if option in _AFTER_UPDATE:
            self._update.take()
        self.seconds += time.perf_counter() - begin
        return loss

    def _reduce(self, gradients: Mapping[str, np.ndarray], option: str, spars: float | None) -> None:
        begin = time.perf_counter()
        # A copy where an array is strided, or of another type.
        arrays = {name: np.ascontiguousarray(gradient, np.float32) for name, gradient in gradients.items()}
        if option in _AFTER_UPDATE and self.clip is None:
            arrays = {}  # nothing changes them
        try:
            for name in self._parameters:
                self._place(name, arrays.get(name))
            number = math.nan if spars is None else spars
            native.dist_opt_reduce(self._handle, OPTIONS.index(option), number)
        finally:
            self._arrived.clear()
        for name, array in arrays.items():
            if not np.may_share_memory(array, gradients[name]):
                gradients[name][...] = array
        self.seconds += time.perf_counter() - begin

    def _place(self, name: str, array: np.ndarray | None) -> None:
        native.dist_opt_place(self._handle, self._names[name], array)

    def _arrives(self, name: str, gradient: np.ndarray) -> None:
        """A gradient of the backward pass that is under way."""
        if self._arriving not in _OVERLAPPED:
            return
        self.group._refuse_in_batch("DistOpt, a gradient of the backward pass")
        if name in self._arrived:
            raise RuntimeError(
                f"a second gradient of {name} came before step(): pass overlap=False to DistOpt for several backward "
                "passes a step"
            )
        array = np.ascontiguousarray(gradient, np.float32)
        self._place(name, array)
        native.dist_opt_ready(self._handle, self._names[name], OPTIONS.index(self._arriving))
        self._arrived.add(name)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """That of a torch optimizer."""
        self.optimizer.zero_grad(set_to_none)

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
        native.dist_opt_wait(self._handle)

    @property
    def steps(self) -> int:
        return self._counts()[0]

    @property
    def bytes_sent(self) -> int:
        """By this rank, estimated from what was exchanged."""
        return self._counts()[1]

    def _counts(self) -> tuple[int, int]:
        return native.dist_opt_counts(self._handle)

    def regroup(self, group: Communicator) -> None:
        """Goes on with the communicator that shrink() or grow() has made, or dup() of that. All ranks call it; newcomers,
        which come last, make a DistOpt. Changes that travelled stay unsent. All ranks take the largest number of steps. A
        rank that has missed a step, or an outer step, takes over the parameters of one that has made it; others keep
        theirs. Residuals stay; the state of a torch optimizer is the caller's. Where it raises, call it with the next group.

        >>> optimizer.regroup(group.shrink())
        """
        self.group = group
        self._arrived.clear()
        self._update.give()
        native.dist_opt_regroup(self._handle, group._open())
        self._take_over()

    # --- checkpoints

    def state_dict(self) -> dict:
        """For a checkpoint, the same on all ranks: the residuals of all ranks by parameter, the number of steps, the
        state of localSGD; with that of a torch optimizer. Collective. Changes that travel arrive first: save the
        parameters after it."""
        self.group._refuse_in_batch("DistOpt.state_dict")
        residuals = {name: np.zeros((self.world_size, p.size), np.float32) for name, p in self._parameters.items()}
        local = self._parameters if self.option == "localSGD" else {}
        outer, velocity = ({name: np.zeros_like(p) for name, p in local.items()} for _ in range(2))
        self._update.give()
        native.dist_opt_save(self._handle, self._tensors(residuals, outer, velocity))
        self._update.take()
        return (self.optimizer.state_dict() if self._is_torch else {}) | {
            "steps": self.steps, "world": self.world_size, "residuals": residuals, "outer": outer, "velocity": velocity,
        }  # fmt: skip

    def load_state_dict(self, state: Mapping) -> None:
        """With as many ranks as saved it, each takes its own residuals; else all take the mean, so that the averaged
        gradient gets what is left. localSGD: load the parameters first; with a state of another option they count as
        the last average."""
        world = whole_number(state["world"], "the checkpoint's world", self.global_rank, least=1)
        if set(state["residuals"]) != set(self._parameters):
            raise ValueError("the checkpoint is of other parameters: " + ", ".join(sorted(state["residuals"])))
        parts = []
        for part, rows in (("residuals", world), ("outer", 1), ("velocity", 1)):
            parts.append({name: np.ascontiguousarray(array, np.float32) for name, array in state[part].items()})
            for name, array in parts[-1].items():
                if name in self._parameters and array.size != rows * self._parameters[name].size:
                    raise ValueError(f"the checkpoint's {part} of {name} are {array.shape}, of another shape")
        steps = whole_number(state["steps"], "the checkpoint's steps", self.global_rank, least=0, most=COUNT_MAX)
        if self._is_torch and "param_groups" in state:
            self.optimizer.load_state_dict({part: state[part] for part in ("state", "param_groups")})
        self._update.give()
        native.dist_opt_load(self._handle, self._tensors(*parts), world, steps)

    def _tensors(self, *parts: Mapping[str, np.ndarray]) -> np.ndarray:
        """rondo_dist_opt_tensor_t of each parameter: addresses."""
        return np.array([[part[n].ctypes.data if n in part else 0 for part in parts] for n in self._parameters], np.uint64)


@functools.cache
def _torch_class() -> type:
    """Of a DistOpt round a torch optimizer: one of torch's, with the fields of that one."""
    import torch

    class TorchDistOpt(DistOpt, torch.optim.Optimizer):
        def __getattr__(self, name):
            if name == "optimizer":
                raise AttributeError(name)
            return getattr(self.optimizer, name)

        def add_param_group(self, param_group) -> None:
            raise ValueError("the parameters of a DistOpt are those that its optimizer had when it was made")

    return TorchDistOpt


def _join(meeting, rank: int | None, world_size: int | None) -> Communicator:
    """nccl_id, local_rank and world_size as SINGA's launchers pass them, for one host; without them the environment."""
    if meeting is None:
        return init() if world_size is None else init(rank=rank, world_size=world_size)
    if rank is None or world_size is None:
        raise ValueError(f"with an id pass local_rank and world_size (they are {rank} and {world_size})")
    return init(rank=rank, world_size=world_size, rendezvous=meeting)
