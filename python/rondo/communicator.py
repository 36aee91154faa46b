"""A group of ranks and what they do together."""

from __future__ import annotations

import contextlib
import functools
import math
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rondo._arguments import (
    COUNT_MAX,
    Array,
    milliseconds,
    numpy_dtype,
    real_number,
    reason_of,
    whole_number,
    whole_numbers,
)
from rondo._library import OfThisProcess, native
from rondo.batch import Batch
from rondo.calls import COLLECTIVES, Calls, put_in_place
from rondo.errors import Closed, Error, Invalid, Mismatch, NotFinite, words_of
from rondo.objects import ObjectCalls
from rondo.user_op import UserOp

# rondo::Purpose.
_PURPOSES = {
    "broadcast_object": 8, "all_gather_object": 9, "gather_object": 10, "scatter_object": 11, "all_gather_v": 12,
    "gather_v": 13, "all_to_all_v": 14,
}  # fmt: skip


class Topology(NamedTuple):
    """Where the ranks of a communicator live: an entry a rank."""

    host: list[int]  # number of its host
    island: list[int]  # ranks with the same number share memory; -1: with none
    cores: list[int]  # cores of its host that the job may use; 0: not known


class SparseReport(NamedTuple):
    """What one sparse_all_reduce() did on this rank."""

    selected: int  # elements that it has sent
    total: int  # of all ranks
    bytes_sent: int  # what it has contributed, counted for each rank that got it
    route: str  # "gathered": every rank got every selection; "merged": a rank added up each range; "dense": all_reduce


_SELECTIONS = ("topk", "threshold")
_ROUTES = ("gathered", "merged", "dense")


class Communicator(Calls, ObjectCalls, native.Communicator, OfThisProcess):
    """Ranks 0 .. size-1 that work together; made by rondo.init(), split() and new_group().

    All ranks make the same collective calls in the same order. Arrays are NumPy arrays, objects with `__dlpack__` in
    host memory (a torch tensor on the CPU), or objects with the buffer protocol, equal in length and dtype on all
    ranks. NumPy's may be strided: they are packed, and results written back; copy=False: ValueError instead. Another
    thread must not change them during a call.

    Every collective takes these by keyword:
      async_op   True: return a Work at once; the arrays must be left alone until it is done
      timeout    seconds until the operation fails with rondo.Timeout; None: RONDO_TIMEOUT_MS (30 minutes)
      algorithm  a name of RONDO_ALGORITHM such as "ring", equal on all ranks; None: the library chooses
      stream     of a GPU, for arrays in its memory (`__dlpack__`), `out` among them: a cudaStream_t as a number, or a
                 stream of PyTorch or CuPy. The call takes its place in the stream and returns when it is there
                 (docs/gpu.md). Keep the arrays until the stream has passed it. Messages take it, too
    all_reduce(), reduce_scatter(), all_gather() and broadcast() also take
      wire       how the elements travel: a Wire, or the name of its format such as "bfloat16"; of broadcast() "packed"

    Raises TypeError or ValueError for arrays that it cannot take and rondo.Invalid for other bad arguments, before
    anything happens; rondo.NotFinite when a call with `wire` is over. After any other rondo.Error the communicator has
    failed, on all ranks: every later call raises the same error, and only abort() and close() remain.
    """

    def __init__(self, handle: Any, joined: bool = False):
        """handle: of the library's, from the compiled module. joined: by rondo.init(), not made from another one."""
        # None after close(). Calls under way have their own reference, and arrays of empty() have: the last frees it.
        self._handle = handle
        try:
            self.rank: int = native.rank(handle)
        except TypeError:
            raise TypeError("a Communicator is made by rondo.init(), split() or new_group()") from None
        self.size: int = native.size(handle)
        self._joined = joined
        # Every rank has proved that it knows the job's secret: not so with RONDO_INSECURE=1.
        self.authenticated: bool = bool(native.authenticated(handle))
        self.local_rank, self.local_size, self.node, self.nodes = native.place(handle)
        _open_ones[id(handle)] = self
        self._dropped = weakref.finalize(self, _leave, handle, joined)
        self._dropped.atexit = False

    @property
    def error(self) -> Error | None:
        """Why the communicator has failed, or None. It is there as soon as this rank hears of the failure, also while
        no call is under way."""
        handle = self._handle
        if handle is None:
            return self._closed_error()
        return native.error(handle)

    @property
    def topology(self) -> Topology:
        """Where the ranks live; equal on all of them.

        >>> group.topology.host            # 4 ranks on 2 hosts
        [0, 0, 1, 1]
        """
        lists = np.empty((3, self.size), np.int32)
        native.topology(self._open(), *lists)
        return Topology(*lists.tolist())

    def algorithm_for(
        self, collective: str, count: int, dtype: Any = np.float32, op: str = "sum", *, registered: bool = False
    ) -> str:
        """The algorithm that such a call would run. count: as in the C API, elements of the call's `array`, or of each
        part of it. registered: the arrays of all ranks are from empty().

        >>> group.algorithm_for("all_reduce", 1 << 20)
        'staged'
        """
        if collective not in COLLECTIVES:
            raise ValueError(f"collective {collective!r} is none of {', '.join(COLLECTIVES)}")
        count = whole_number(count, "count", self.rank, least=0, most=COUNT_MAX)
        call = (COLLECTIVES.index(collective), count, native.dtype_of(dtype), native.op_of(op), int(bool(registered)))
        return native.algorithm_for(self._open(), *call)

    def attach_device(self) -> None:
        """Opens the library for GPUs, on all ranks; implied by the first call with `stream`. rondo.Unsupported, on all
        ranks, if one can use no GPU; other calls go on."""
        native.attach_device(self._open())

    def metrics(self) -> str:
        """Counters and histograms of this process's rank, in Prometheus' text format: since the first call of this, or
        since the start with RONDO_METRICS (docs/traces.md)."""
        text, length = bytearray(), 1 << 16
        while length >= len(text):  # it may grow meanwhile
            text = np.empty(length + 4096, np.uint8)
            length = native.metrics(self._open(), text, len(text))
        return text[:length].tobytes().decode()

    def __repr__(self) -> str:
        return f"<rondo.Communicator rank {self.rank} of {self.size}{'' if self._handle else ', closed'}>"

    # --- calls that are made of others

    def sparse_all_reduce(
        self, array: Array, out: Array | None = None, *, select: str = "topk", spars: float = 0.05,
        residual: Array | None = None, tensors: Sequence[int] = (), timeout: float | None = None,
    ) -> SparseReport:  # fmt: skip
        """Sums over all ranks the elements of `array` + `residual` that each rank selects; all ranks get the same bits.
        float32. Returns a SparseReport; the sum is in `out`, None: in place.

        select    "topk": the ceil(spars * length) largest magnitudes, exactly, of equal ones the lowest index;
                  "threshold": magnitudes of `spars` and above
        residual  a float32 array of the same length, zero before the first call: what is not sent is kept there and
                  added in the next call. None: it is lost
        tensors   lengths of tensors that lie in `array` one after the other: the selection is made in each

        Raises rondo.NotFinite where an element of some rank is NaN or infinite; nothing is changed then.

        >>> report = group.sparse_all_reduce(gradient, spars=0.01, residual=residual)
        """
        if select not in _SELECTIONS:
            raise ValueError(f"select {select!r} is none of {', '.join(_SELECTIONS)}")
        given = {"array": array, "out": array if out is None else out, "residual": residual}
        buffers = {
            what: native.buffer_of(each, out is None or what != "array", what) for what, each in given.items() if each is not None
        }
        count = buffers["array"][1]
        for what, (_, length, dtype, _, on_device) in buffers.items():
            if on_device:
                raise TypeError(f"{what} is in GPU memory; sparse_all_reduce takes arrays in host memory")
            if dtype != "float32":
                raise TypeError(f"{what} has dtype {dtype}; it must be float32")
            if length != count:
                raise ValueError(f"{what} has {length} elements; {count} are needed (array has {count})")
        lengths = whole_numbers(tensors, "tensors", self.rank)
        *counts, route = native.sparse_all_reduce(
            self._open(), buffers["array"][0], buffers["out"][0], count, milliseconds(timeout, self.rank),
            real_number(spars, "spars", self.rank), buffers["residual"][0] if residual is not None else None,
            _SELECTIONS.index(select), lengths,
        )  # fmt: skip
        return SparseReport(*counts, _ROUTES[route])

    def broadcast_parameters(
        self, parameters: Iterable[Array] | Mapping[str, Array], root: int = 0, *, stream: Any = None
    ) -> None:
        """Copies root's arrays into every rank's: a model at the start. parameters: a list or a dict of arrays, with
        the same shapes in the same order on all ranks.

        >>> group.broadcast_parameters(model.state_dict())
        """
        values = list(parameters.values() if hasattr(parameters, "values") else parameters)
        with self.batch():
            for value in values:
                self.broadcast(value, root, stream=stream)

    def batch(self) -> Batch:
        """A context in which this thread's calls are collected, to be submitted together at its end; see Batch."""
        return Batch(self)

    def prepare_all_reduce(self, array: Array, op: str | UserOp = "sum", out: Array | None = None) -> Callable[[], Any]:
        """all_reduce() of always the same arrays, as a function without arguments: the arguments are checked here,
        once. The arrays are kept as long as the function.

        >>> reduce_gradient = group.prepare_all_reduce(gradient, op="avg")
        >>> for batch in data:
        ...     compute(batch, gradient)
        ...     reduce_gradient()
        """
        self._open()
        self._check_all_reduce(array, op, out, only_check=True)
        return functools.partial(self.all_reduce, array, op, out)

    # --- memory

    def empty(self, shape: int | Sequence[int], dtype: Any = np.float32) -> np.ndarray:
        """An array, all zeros, in memory that all ranks of this host map: collectives on such arrays are the fastest.
        Make it once and keep it: it costs system calls. It lives as long as somebody refers to it, also after close().

        >>> gradient = group.empty(1 << 20)
        """
        native.dtype_of(dtype)
        dtype = numpy_dtype(dtype)
        several = isinstance(shape, Sequence) and not isinstance(shape, str) or getattr(shape, "ndim", 0) > 0
        extents = list(shape) if several else [shape]
        extents = whole_numbers(extents, "shape", self.rank, most=2**63 - 1)
        nbytes = math.prod(extents) * dtype.itemsize
        if nbytes >= 2**63:
            raise Invalid(f"shape is {tuple(extents)} on rank {self.rank}: that is {nbytes} bytes")
        memory = np.asarray(_Memory(self._open(), nbytes))
        return memory.view(dtype).reshape(extents)

    # --- groups

    def split(self, color: int, key: int = 0) -> Communicator | None:
        """Ranks of the same color become a communicator, ordered by (key, rank); a negative color: none, and None is
        returned. All ranks call it.

        >>> pairs = group.split(color=group.rank // 2)
        """
        color, key = whole_number(color, "color", self.rank), whole_number(key, "key", self.rank)
        made = native.split(self._open(), color, key)
        return None if made is None else Communicator(made)

    def new_group(self, ranks: Sequence[int]) -> Communicator | None:
        """A communicator of these ranks, which become 0, 1, ... in this order. Roots of its calls are its own ranks.
        A rank that is not among them need not call it, and gets None.

        >>> first_two = group.new_group([0, 1])
        """
        ranks = whole_numbers(ranks, "ranks", self.rank, most=self.size - 1)
        if self.rank not in ranks:
            self._open()
            return None
        return Communicator(native.new_group(self._open(), np.array(ranks, np.int32), len(ranks)))

    def dup(self) -> Communicator:
        """The same ranks once more: calls, messages and failures of the one are none of the other. All ranks call it.

        >>> for_metrics = group.dup()
        """
        return Communicator(native.dup(self._open()))

    # --- after a failure

    @property
    def epoch(self) -> int:
        """How often it has shrunk or grown."""
        return native.epoch(self._open())

    def shrink(self, timeout: float | None = None) -> Communicator:
        """After a failed call: the ranks that live, renumbered in their order, as a new communicator. This one is closed.
        All that live call it; one that does not within `timeout` seconds (None: RONDO_START_TIMEOUT_MS) is left out.
        A bad `timeout` is refused before the others hear of this rank's call, which it then makes again.
        Arrays of empty() stay as they are. Raises rondo.NoQuorum where others may go on and this rank cannot, and
        rondo.EpochStale where they have.

        >>> group = group.shrink()
        """
        return self._next(native.shrink(self._open(), milliseconds(timeout, self.rank)))

    def _next(self, native_communicator) -> Communicator:
        made = Communicator(native_communicator, self._joined)
        self.close()
        return made

    def newcomers(self) -> int:
        """How many processes wait at RONDO_JOIN to be taken in; the same on all ranks, which all call it.

        >>> if group.newcomers(): group = group.grow(group.newcomers())
        """
        return native.newcomers(self._open())

    def grow(self, newcomers: int, timeout: float | None = None) -> Communicator:
        """The ranks in their order and then that many processes that wait at RONDO_JOIN, as a new communicator; this one
        is closed. All ranks call it. Newcomers come out of rondo.init() with its `epoch` and `committed`. Raises
        rondo.Timeout on all ranks where fewer come within `timeout` seconds (None: RONDO_START_TIMEOUT_MS): then this one
        goes on. A wrong argument of one rank raises rondo.Invalid on the others, which names it; all can call again. Where
        newcomers die in their start, the ranks go on without them: look at `size`. Arrays of empty() stay
        usable, but are not registered with the new one.

        >>> group = group.grow(1)
        """
        handle = self._open()
        try:
            newcomers = whole_number(newcomers, "newcomers", self.rank)  # its bounds are for all ranks to refuse
            wait_ms = milliseconds(timeout, self.rank)
        except (TypeError, Invalid):
            with contextlib.suppress(Error):  # which ends on all ranks: the others wait in grow() for this one
                native.grow(handle, 0, 0)
            raise
        return self._next(native.grow(handle, newcomers, wait_ms))

    def commit(self, step: int, digest: int = 0) -> None:
        """All ranks have come to this step (0 or more, and more than the one before), with the same digest of what they
        hold; else it raises rondo.Mismatch or rondo.Corrupt, and the communicator has failed. All ranks call it. A wrong
        argument is refused before the others hear of this rank's call, which it then makes again.

        >>> group.commit(step, zlib.crc32(weights))
        """
        step = whole_number(step, "step", self.rank, most=2**63 - 1)
        native.commit(self._open(), step, whole_number(digest, "digest", self.rank, least=0, most=2**64 - 1))

    @property
    def committed(self) -> int:
        """The last step that was committed, -1: none. After shrink() the same on all ranks: the newest that any of them
        has, to which all had come."""
        return native.committed(self._open())

    # --- the end

    def abort(self, reason: str = "") -> None:
        """Fails this communicator on all ranks: their calls raise rondo.Aborted with the reason. Any thread.

        >>> group.abort("the loss is NaN")
        """
        if not isinstance(reason, str):
            raise TypeError(f"reason is {reason!r} on rank {self.rank}: it is a text")
        native.abort(self._open(), reason_of(reason))

    def close(self) -> None:
        """Says goodbye to the other ranks, so that leaving is no crash to them, and waits for theirs (5 s at most).
        Twice is fine. At the end of the process it happens by itself.

        >>> with rondo.init() as group:      # close() at the end, abort() when the block raises
        ...     group.barrier()
        """
        handle, self._handle = self._handle, None
        if handle is None:
            return
        try:
            del _open_ones[id(handle)]
            self._dropped.detach()
            native.close(handle)
        finally:
            del handle  # not kept by a traceback

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, kind, error, trace) -> None:
        ends_well = kind is SystemExit and error.code in (None, 0)
        if kind is not None and not ends_well and self._handle is not None:
            cause = error.__context__ if kind is SystemExit and error.__context__ else error
            self.abort(words_of(cause))
        self.close()

    # --- inside

    def _open(self) -> Any:
        if self._handle is None:
            raise self._closed_error()
        return self._handle

    def _closed_error(self) -> Closed:
        return Closed(f"the communicator of rank {self.rank} is closed", (self.rank,))

    def _refuse_in_batch(self, call: str) -> None:
        self._open()
        if self._batch is not None and self._batch.collects():
            raise Invalid(
                f"{call} on rank {self.rank}: not in a batch, which keeps the exchanges that it is made of; end the "
                "batch first"
            )

    def _compound(self, call: str, timeout: float | None = None) -> Exchanges:
        """For a call that goes on with what its own exchanges bring; refused in a batch."""
        self._refuse_in_batch(call)
        milliseconds(timeout, self.rank)  # refused before the first exchange
        return Exchanges(self, self._purpose or _PURPOSES.get(call, 0))


_declared = vars(Calls) | vars(ObjectCalls) | vars(Communicator)
put_in_place(_declared, Communicator)


class _Memory:
    """Memory of empty(): NumPy keeps this as long as an array of it."""

    def __init__(self, handle: Any, nbytes: int):
        self._address = None
        self._handle, self._address = handle, native.allocate(handle, max(nbytes, 1))
        self.__array_interface__ = {"version": 3, "shape": (nbytes,), "typestr": "|u1", "data": (self._address, False)}

    def __del__(self, deallocate=native.deallocate, refused=Invalid):
        if self._address is None:
            return
        try:
            deallocate(self._handle, self._address)
        except refused:
            pass  # in a forked child: the memory is the parent's


class Exchanges(Communicator):
    """The same ranks, for the exchanges that a call of Python's is made of: they match no call of the program's. As a
    block of `with`: no rank waits for one that cannot go on, so what this rank alone raises fails the communicator."""

    over = False  # True once nothing is exchanged any more: what is refused then is refused by this rank alone

    def __init__(self, group: Communicator, purpose: int):
        self.__dict__.update(group.__dict__)
        self._handle, self._batch, self.rank, self.size = group._handle, group._batch, group.rank, group.size
        self._purpose = purpose

    def __exit__(self, kind, error, trace) -> None:
        # An Invalid comes before the first exchange, the others on all ranks.
        spared = (Mismatch, NotFinite) if self.over else (Invalid, Mismatch, NotFinite)
        if kind is not None and not issubclass(kind, spared) and self.error is None:
            self.abort(words_of(error))


# By id() of the handle, in the order in which they were made: the end of the process closes them.
_open_ones: weakref.WeakValueDictionary[int, Communicator] = weakref.WeakValueDictionary()
# They say goodbye for those that nobody refers to any more.
_leaving: list[threading.Thread] = []

# A group may be dropped because a task has raised. Ray tells its driver of the exception only when the task's frames are
# gone. So the goodbye waits this long: the driver hears the exception before the PeerLeft of another rank's task.
_CAUSE_FIRST_SECONDS = 0.3
_process_ends = threading.Event()


def _leave(handle: Any, joined: bool) -> None:
    """Of a communicator that nobody refers to, for the ranks that wait for it: a worker of a pool goes on after its task
    has failed. Where that task's frames go while its exception is dealt with, they are told of this. Waits for nobody."""
    error = sys.exc_info()[1]
    told = error is not None and error.__traceback__ is None
    if told:
        with contextlib.suppress(Error):
            native.abort(handle, reason_of(words_of(error)))

    def goodbye() -> None:
        if joined and not told:
            _process_ends.wait(_CAUSE_FIRST_SECONDS)
        with contextlib.suppress(Error):
            native.close(handle)

    thread = threading.Thread(target=goodbye, name="rondo goodbye", daemon=True)
    thread.start()
    # Those that have ended have let go of their handles; the end of the process joins the others.
    _leaving[:] = [*(other for other in _leaving if other.is_alive()), thread]
