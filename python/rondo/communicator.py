"""A group of ranks and what they do together."""

from __future__ import annotations

import contextlib
import ctypes
import math
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rondo import _arrays, _library, objects
from rondo._arguments import (
    COUNT_MAX,
    INT_MAX,
    counts_of_peers,
    elements_of,
    milliseconds,
    new_like,
    options_of,
    part_shape,
    parts_of,
    real_number,
    rows_of,
    shape_of,
    text_of,
    whole_number,
    whole_numbers,
)
from rondo._arrays import Array, Buffer, buffer_of
from rondo._dtypes import code_of, dtype_name, op_code
from rondo._handles import CommunicatorHandle, OfThisProcess
from rondo._library import COLLECTIVES
from rondo.errors import Closed, Error, Invalid, Mismatch, NotFinite, check, last_error
from rondo.wire import Wire, wire_of
from rondo.work import Message, Work

ANY_SOURCE = -1
ANY_TAG = -1

_byref = ctypes.byref


def _both(name: str):
    """The function that blocks, and the one that returns a work."""
    return getattr(_library.lib, f"rondo_{name}"), getattr(_library.lib, f"rondo_{name}_async")


_ALL_REDUCE_MANY, _SEND = _both("all_reduce_many"), _both("send")
_COLLECTIVE = _library.lib.rondo_run, _library.lib.rondo_start
(_ALL_REDUCE, _REDUCE_SCATTER, _ALL_GATHER, _BROADCAST, _REDUCE, _GATHER, _SCATTER, _ALL_TO_ALL, _BARRIER) = range(
    len(COLLECTIVES)
)
_CALL_BYTES = ctypes.sizeof(_library.Call)


def _call(collective: int, code: int, source, target, count: int, op: int = 0, root: int = -1) -> _library.Call:
    """A rondo_call_t. source, target: buffers, or None; count: elements, of a block where there are blocks."""
    return _library.Call(
        _CALL_BYTES, collective, code, op, root, source and source.address, target and target.address, count
    )


def _uneven(call: _library.Call, input_counts=None, output_counts=None) -> _library.Call:
    """The same with other blocks: of elements_of()."""
    call.uneven = 1
    call.input_counts, call.output_counts = input_counts, output_counts
    return call


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


# By the numbers of rondo.h.
_SELECTIONS = ("topk", "threshold", "sampled_topk")
_ROUTES = ("gathered", "merged", "dense")


class Communicator(OfThisProcess):
    """Ranks 0 .. size-1 that work together; made by rondo.init(), split() and new_group().

    All ranks make the same collective calls in the same order. Arrays are NumPy arrays, objects with `__dlpack__` in
    host memory (a torch tensor on the CPU), or objects with the buffer protocol; they are contiguous, and equal in
    length and dtype on all ranks. Another thread must not change them during a call.

    Every collective takes these by keyword:
      async_op   True: return a Work at once; the arrays must be left alone until it is done
      timeout    seconds until the operation fails with rondo.Timeout; None: RONDO_TIMEOUT_MS (30 minutes)
      algorithm  a name of RONDO_ALGORITHM such as "ring", equal on all ranks; None: the library chooses
      stream     of a GPU, for arrays in its memory (`__dlpack__`), `out` among them: a cudaStream_t as a number, or a
                 stream of PyTorch or CuPy. The call takes its place in the stream and returns when it is there
                 (docs/gpu.md). Keep the arrays until the stream has passed it. Messages take it, too
    all_reduce(), reduce_scatter() and all_gather() of float32 also take
      wire       how the elements travel: a Wire, or the name of its format such as "bfloat16"

    Raises TypeError or ValueError for arrays that it cannot take and rondo.Invalid for other bad arguments, before
    anything happens; rondo.NotFinite when a call with `wire` is over. After any other rondo.Error the communicator has
    failed, on all ranks: every later call raises the same error, and only abort() and close() remain.
    """

    _purpose = 0  # the program's own calls

    def __init__(self, handle: CommunicatorHandle):
        if not isinstance(handle, CommunicatorHandle):
            raise TypeError("a Communicator is made by rondo.init(), split() or new_group()")
        # None after close(). Calls under way have their own reference, and arrays of empty() have: the last frees it.
        self._handle: CommunicatorHandle | None = handle
        self._batch: Batch | None = None
        self._joined = False  # by rondo.init(), not made from another one
        number = ctypes.c_int()

        def ask(function) -> int:
            check(function(handle, _byref(number)))
            return number.value

        self.rank: int = ask(_library.lib.rondo_rank)
        self.size: int = ask(_library.lib.rondo_size)
        # Every rank has proved that it knows the job's secret: not so with RONDO_INSECURE=1.
        self.authenticated: bool = bool(ask(_library.lib.rondo_authenticated))
        place = _library.Place()
        check(_library.lib.rondo_place(handle, _byref(place)))
        self.local_rank: int = place.local_rank
        self.local_size: int = place.local_world
        self.node: int = place.node
        self.nodes: int = place.nodes
        _open_ones.append(self)

    @property
    def error(self) -> Error | None:
        """Why the communicator has failed, or None. It is there as soon as this rank hears of the failure, also while
        no call is under way."""
        handle = self._handle
        if handle is None:
            return self._closed_error()
        code = _library.lib.rondo_error(handle)
        return last_error(code) if code else None

    @property
    def topology(self) -> Topology:
        """Where the ranks live; equal on all of them.

        >>> group.topology.host            # 4 ranks on 2 hosts
        [0, 0, 1, 1]
        """
        lists = [(ctypes.c_int * self.size)() for _ in Topology._fields]
        check(_library.lib.rondo_topology(self._open(), *lists))
        return Topology(*map(list, lists))

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
        name = ctypes.c_char_p()
        count = whole_number(count, "count", self.rank, least=0, most=COUNT_MAX)
        call = (COLLECTIVES.index(collective), count, code_of(dtype), op_code(op), int(bool(registered)))
        check(_library.lib.rondo_algorithm_for(self._open(), *call, _byref(name)))
        return name.value.decode()

    def attach_device(self) -> None:
        """Opens the library for GPUs, on all ranks; implied by the first call with `stream`. rondo.Unsupported, on all
        ranks, if one can use no GPU; other calls go on."""
        check(_library.lib.rondo_attach_device(self._open()))

    def metrics(self) -> str:
        """Counters and histograms of this process's rank, in Prometheus' text format: since the first call of this, or
        since the start with RONDO_METRICS (docs/traces.md)."""
        room = 1 << 16
        while True:
            text, length = ctypes.create_string_buffer(room), ctypes.c_size_t()
            check(_library.lib.rondo_metrics(self._open(), text, room, _byref(length)))
            if length.value < room:
                return text.value.decode()
            room = length.value + 4096  # it may grow meanwhile

    def __repr__(self) -> str:
        return f"<rondo.Communicator rank {self.rank} of {self.size}{'' if self._handle else ', closed'}>"

    # --- collectives

    def all_reduce(
        self, array: Array, op: str = "sum", out: Array | None = None, *, async_op: bool = False,
        timeout: float | None = None, algorithm: str | None = None, scalar: float | None = None,
        wire: Wire | str | None = None, stream: Any = None,
    ) -> Any:  # fmt: skip
        """Reduces `array` over all ranks; every rank gets the result, with the same bits. Returns `out`.

        out: of the same length and dtype; None: in place. op: "sum", "avg", "product", "min", "max", "band", "bor",
        "bxor", "land", "lor", "lxor", or "premulsum", the sum of each rank's array times its `scalar`.

        >>> x = np.array([1, 2]) + 2 * group.rank
        >>> group.all_reduce(x)              # 4 ranks
        array([16, 20])
        """
        source = buffer_of(array, out is None)
        if out is None:
            target, out = source, array
        else:
            target = self._like(out, source, source.count)
        return self._run(
            _call(_ALL_REDUCE, source.code, source, target, source.count, op_code(op)),
            (source, target), out, async_op, timeout, algorithm, scalar, wire, stream=stream,
        )  # fmt: skip

    def reduce(
        self, array: Array, op: str = "sum", root: int = 0, out: Array | None = None, *, async_op: bool = False,
        timeout: float | None = None, algorithm: str | None = None, scalar: float | None = None, stream: Any = None,
    ) -> Any:  # fmt: skip
        """Reduces `array` over all ranks; `root` gets the result. Returns `out` on root, None elsewhere.

        out: as all_reduce(), on root only. The other ranks' arrays keep their values.

        >>> group.reduce(np.array([1, 2]) + 2 * group.rank, root=3)   # 4 ranks: on rank 3
        array([16, 20])
        """
        root = whole_number(root, "root", self.rank)
        is_root = root == self.rank
        source = buffer_of(array, out is None and is_root)
        target = source
        if is_root and out is None:
            out = array
        elif is_root:
            target = self._like(out, source, source.count)
        return self._run(
            _call(_REDUCE, source.code, source, target if is_root else None, source.count, op_code(op), root),
            (source, target), out if is_root else None, async_op, timeout, algorithm, scalar, stream=stream,
        )  # fmt: skip

    def broadcast(
        self, array: Array, root: int = 0, *, async_op: bool = False, timeout: float | None = None,
        algorithm: str | None = None, stream: Any = None,
    ) -> Any:  # fmt: skip
        """Copies root's `array` into every rank's. Returns `array`.

        >>> group.broadcast(np.array([1, 2]) + 2 * group.rank, root=0)
        array([1, 2])
        """
        root = whole_number(root, "root", self.rank)
        buffer = buffer_of(array, root != self.rank)
        return self._run(
            _call(_BROADCAST, buffer.code, buffer, buffer, buffer.count, root=root),
            buffer, array, async_op, timeout, algorithm, stream=stream,
        )  # fmt: skip

    def all_gather(
        self, array: Array, out: Array | None = None, *, async_op: bool = False, timeout: float | None = None,
        algorithm: str | None = None, wire: Wire | str | None = None, stream: Any = None,
    ) -> Any:  # fmt: skip
        """Every rank gets the arrays of all, by rank. Returns `out`, of shape (size, *array.shape).

        out: size times as long as `array`; None: a new one.

        >>> group.all_gather(np.array([1, 2]) + 2 * group.rank)      # 2 ranks
        array([[1, 2],
               [3, 4]])
        """
        source = buffer_of(array, False)
        if out is None:
            out = new_like(array, (self.size, *shape_of(array)))
        target = self._like(out, source, source.count * self.size)
        return self._run(
            _call(_ALL_GATHER, source.code, source, target, source.count),
            (source, target), out, async_op, timeout, algorithm, None, wire, stream=stream,
        )  # fmt: skip

    def reduce_scatter(
        self, array: Array, op: str = "sum", out: Array | None = None, *, async_op: bool = False,
        timeout: float | None = None, algorithm: str | None = None, scalar: float | None = None,
        wire: Wire | str | None = None, stream: Any = None,
    ) -> Any:  # fmt: skip
        """Reduces `array` over all ranks and gives each its part: rank r the r-th of `size` equal parts of the first
        dimension. Returns `out`, of shape (array.shape[0] // size, *array.shape[1:]).

        >>> group.reduce_scatter(np.array([1, 2]))                   # 2 ranks: rank 0, rank 1
        array([2])                                                   #          array([4])
        """
        source = buffer_of(array, False)
        count = self._part(array, source)
        if out is None:
            out = new_like(array, part_shape(array, self.size))
        target = self._like(out, source, count)
        return self._run(
            _call(_REDUCE_SCATTER, source.code, source, target, count, op_code(op)),
            (source, target), out, async_op, timeout, algorithm, scalar, wire, stream=stream,
        )  # fmt: skip

    def gather(
        self, array: Array, root: int = 0, out: Array | None = None, *, async_op: bool = False,
        timeout: float | None = None, algorithm: str | None = None, stream: Any = None,
    ) -> Any:  # fmt: skip
        """Root gets the arrays of all, by rank. Returns `out`, of shape (size, *array.shape), on root, else None.

        >>> group.gather(np.array([group.rank]), root=0)             # 2 ranks: on rank 0
        array([[0],
               [1]])
        """
        root = whole_number(root, "root", self.rank)
        source = buffer_of(array, False)
        target = None
        if root == self.rank:
            if out is None:
                out = new_like(array, (self.size, *shape_of(array)))
            target = self._like(out, source, source.count * self.size)
        return self._run(
            _call(_GATHER, source.code, source, target, source.count, root=root),
            (source, target), out if target else None, async_op, timeout, algorithm, stream=stream,
        )  # fmt: skip

    def scatter(
        self, array: Array | None = None, root: int = 0, out: Array | None = None, *, async_op: bool = False,
        timeout: float | None = None, algorithm: str | None = None, stream: Any = None,
    ) -> Any:  # fmt: skip
        """Root gives each rank its part of `array`: rank r gets array[r], if its first dimension is `size`. Returns
        `out`.

        array: read on root only. out: required on the other ranks, which cannot know shape and dtype.

        >>> rows = np.array([[0, 0], [1, 1]]) if group.rank == 0 else None
        >>> group.scatter(rows, root=0, out=np.empty(2, np.int64))   # rank 1
        array([1, 1])
        """
        root = whole_number(root, "root", self.rank)
        source = None
        if root == self.rank:
            if array is None:
                raise ValueError(f"scatter on rank {self.rank}, which is root: array is None")
            source = buffer_of(array, False)
            count = self._part(array, source)
            if out is None:
                shape = part_shape(array, self.size)
                out = new_like(array, shape[1:] if shape[:1] == (1,) else shape)
            target = self._like(out, source, count)
        elif out is None:
            raise ValueError(f"scatter on rank {self.rank}: pass out, an array of the shape and dtype of its part")
        else:
            target = buffer_of(out, True, "out")
        return self._run(
            _call(_SCATTER, target.code, source, target, target.count, root=root),
            (source, target), out, async_op, timeout, algorithm, stream=stream,
        )  # fmt: skip

    def all_to_all(
        self, array: Array, out: Array | None = None, *, async_op: bool = False, timeout: float | None = None,
        algorithm: str | None = None, stream: Any = None,
    ) -> Any:  # fmt: skip
        """Sends the r-th of `size` equal parts of the first dimension of `array` to rank r; what rank r sends becomes
        the r-th part of `out`, which has the shape of `array`. Returns `out`. Never in place.

        >>> group.all_to_all(np.array([10, 20]) + group.rank)        # 2 ranks: rank 0, rank 1
        array([10, 11])                                              #          array([20, 21])
        """
        source = buffer_of(array, False)
        count = self._part(array, source)
        if out is None:
            out = new_like(array, shape_of(array))
        target = self._like(out, source, source.count)
        return self._run(
            _call(_ALL_TO_ALL, source.code, source, target, count),
            (source, target), out, async_op, timeout, algorithm, stream=stream,
        )  # fmt: skip

    def barrier(self, *, async_op: bool = False, timeout: float | None = None, stream: Any = None) -> Any:
        """Returns when every rank has called it; with `stream`, the stream goes on when all streams have come to it.

        >>> group.barrier()
        """
        return self._run(_call(_BARRIER, 0, None, None, 0), None, None, async_op, timeout, stream=stream)

    # --- uneven parts. Counts are rows: entries of the first dimension, one count a rank.

    def all_gather_v(
        self, array: Array, counts: Sequence[int] | None = None, out: Array | None = None, *, async_op: bool = False,
        timeout: float | None = None, algorithm: str | None = None, stream: Any = None,
    ) -> Any:  # fmt: skip
        """all_gather() of arrays whose first dimensions differ. Returns a list of `size` arrays, parts of `out`.

        counts: rows of each rank, equal on all ranks; None: they are exchanged first. out: all rows, by rank.

        >>> group.all_gather_v(np.arange(group.rank + 1))            # 2 ranks
        [array([0]), array([0, 1])]
        """
        source = buffer_of(array, False)
        rows, row = rows_of(array, source)
        if counts is None:
            with self._compound("all_gather_v", timeout) as exchanges:
                said = exchanges.all_gather(np.array([rows], np.uint64), timeout=timeout)
                counts = counts_of_peers(said, row, self.rank)
                return self.all_gather_v(
                    array, counts, out, async_op=async_op, timeout=timeout, algorithm=algorithm, stream=stream
                )
        counts = self._counts(counts)
        if counts[self.rank] != rows:
            raise ValueError(f"counts[{self.rank}] is {counts[self.rank]}, and array has {rows} rows")
        if out is None:
            out = new_like(array, (sum(counts), *shape_of(array)[1:]))
        target = self._like(out, source, sum(counts) * row)
        return self._run(
            _uneven(_call(_ALL_GATHER, source.code, source, target, 0), output_counts=elements_of(counts, row)),
            (source, target), parts_of(out, counts), async_op, timeout, algorithm, stream=stream,
        )  # fmt: skip

    def reduce_scatter_v(
        self, array: Array, counts: Sequence[int], op: str = "sum", out: Array | None = None, *, async_op: bool = False,
        timeout: float | None = None, algorithm: str | None = None, scalar: float | None = None, stream: Any = None,
    ) -> Any:  # fmt: skip
        """reduce_scatter() of parts of unequal length: rank r gets counts[r] rows. Returns `out`.

        >>> group.reduce_scatter_v(np.array([1, 2, 3]), [1, 2])      # 2 ranks: rank 0, rank 1
        array([2])                                                   #          array([4, 6])
        """
        source = buffer_of(array, False)
        rows, row = rows_of(array, source)
        counts = self._counts(counts)
        if sum(counts) != rows:
            raise ValueError(f"counts add up to {sum(counts)}, and array has {rows} rows")
        if out is None:
            out = new_like(array, (counts[self.rank], *shape_of(array)[1:]))
        target = self._like(out, source, counts[self.rank] * row)
        return self._run(
            _uneven(_call(_REDUCE_SCATTER, source.code, source, target, 0, op_code(op)), elements_of(counts, row)),
            (source, target), out, async_op, timeout, algorithm, scalar, stream=stream,
        )  # fmt: skip

    def gather_v(
        self, array: Array, counts: Sequence[int] | None = None, root: int = 0, out: Array | None = None, *,
        async_op: bool = False, timeout: float | None = None, algorithm: str | None = None, stream: Any = None,
    ) -> Any:  # fmt: skip
        """gather() of arrays whose first dimensions differ. Returns a list of `size` arrays, parts of `out`, on root, else
        None.

        counts: rows of each rank, read on root; None on all ranks: they are gathered first. out: on root, all rows, by
        rank.

        >>> group.gather_v(np.arange(group.rank + 1), root=0)        # 2 ranks: on rank 0
        [array([0]), array([0, 1])]
        """
        root = whole_number(root, "root", self.rank)
        source = buffer_of(array, False)
        rows, row = rows_of(array, source)
        if counts is None:
            with self._compound("gather_v", timeout) as exchanges:
                said = exchanges.gather(np.array([rows], np.uint64), root, timeout=timeout)
                counts = [] if said is None else counts_of_peers(said, row, self.rank)
                return self.gather_v(
                    array, counts, root, out, async_op=async_op, timeout=timeout, algorithm=algorithm, stream=stream
                )
        target, parts, elements = None, None, None
        if root == self.rank:
            counts = self._counts(counts)
            if out is None:
                out = new_like(array, (sum(counts), *shape_of(array)[1:]))
            target = self._like(out, source, sum(counts) * row)
            parts, elements = parts_of(out, counts), elements_of(counts, row)
        return self._run(
            _uneven(_call(_GATHER, source.code, source, target, source.count, root=root), output_counts=elements),
            (source, target), parts, async_op, timeout, algorithm, stream=stream,
        )  # fmt: skip

    def scatter_v(
        self, array: Array | None = None, counts: Sequence[int] | None = None, root: int = 0, out: Array | None = None,
        *, async_op: bool = False, timeout: float | None = None, algorithm: str | None = None, stream: Any = None,
    ) -> Any:  # fmt: skip
        """scatter() of parts of unequal length: rank r gets counts[r] rows. array and counts are read on root only;
        out: required on the other ranks, as long as their part. Returns `out`.

        >>> rows = np.arange(3) if group.rank == 0 else None
        >>> group.scatter_v(rows, [1, 2], out=np.empty(1 + group.rank, np.int64))    # 2 ranks: on rank 1
        array([1, 2])
        """
        root = whole_number(root, "root", self.rank)
        source, elements = None, None
        if root == self.rank:
            if array is None or counts is None:
                raise ValueError(f"scatter_v on rank {self.rank}, which is root: array or counts is None")
            source = buffer_of(array, False)
            rows, row = rows_of(array, source)
            counts = self._counts(counts)
            if sum(counts) != rows:
                raise ValueError(f"counts add up to {sum(counts)}, and array has {rows} rows")
            elements = elements_of(counts, row)
            if out is None:
                out = new_like(array, (counts[root], *shape_of(array)[1:]))
            target = self._like(out, source, counts[root] * row)
        elif out is None:
            raise ValueError(f"scatter_v on rank {self.rank}: pass out, an array of the shape and dtype of its part")
        else:
            target = buffer_of(out, True, "out")
        return self._run(
            _uneven(_call(_SCATTER, target.code, source, target, target.count, root=root), elements),
            (source, target), out, async_op, timeout, algorithm, stream=stream,
        )  # fmt: skip

    def all_to_all_v(
        self, array: Array, send_counts: Sequence[int], recv_counts: Sequence[int] | None = None,
        out: Array | None = None, *, async_op: bool = False, timeout: float | None = None, algorithm: str | None = None,
        stream: Any = None,
    ) -> Any:  # fmt: skip
        """all_to_all() of parts of unequal length: send_counts[r] rows of `array` go to rank r. Returns a list of
        `size` arrays, parts of `out`: what each rank has sent here.

        recv_counts: rows that come from each rank; None: they are exchanged first.

        >>> group.all_to_all_v(np.full(3, group.rank), [1, 2])       # 2 ranks: on rank 1
        [array([0, 0]), array([1, 1])]
        """
        source = buffer_of(array, False)
        rows, row = rows_of(array, source)
        send_counts = self._counts(send_counts, "send_counts")
        if sum(send_counts) != rows:
            raise ValueError(f"send_counts add up to {sum(send_counts)}, and array has {rows} rows")
        if recv_counts is None:
            with self._compound("all_to_all_v", timeout) as exchanges:
                said = exchanges.all_to_all(np.array(send_counts, np.uint64), timeout=timeout)
                recv_counts = counts_of_peers(said, row, self.rank)
                return self.all_to_all_v(
                    array, send_counts, recv_counts, out,
                    async_op=async_op, timeout=timeout, algorithm=algorithm, stream=stream,
                )  # fmt: skip
        recv_counts = self._counts(recv_counts, "recv_counts")
        if out is None:
            out = new_like(array, (sum(recv_counts), *shape_of(array)[1:]))
        target = self._like(out, source, sum(recv_counts) * row)
        return self._run(
            _uneven(
                _call(_ALL_TO_ALL, source.code, source, target, 0),
                elements_of(send_counts, row), elements_of(recv_counts, row),
            ),
            (source, target), parts_of(out, recv_counts), async_op, timeout, algorithm, stream=stream,
        )  # fmt: skip

    # --- many arrays

    def all_reduce_many(
        self, arrays: Iterable, op: str = "sum", *, async_op: bool = False, timeout: float | None = None,
        algorithm: str | None = None, scalar: float | None = None, stream: Any = None,
    ) -> Any:  # fmt: skip
        """all_reduce() in place of every array of a list: the gradients of a step. Small arrays share operations
        (RONDO_BUCKET_BYTES). The same list on all ranks. Returns the list.

        >>> group.all_reduce_many([p.grad for p in parameters], op="avg")
        """
        arrays = list(arrays)
        buffers = [buffer_of(array, True, f"arrays[{i}]") for i, array in enumerate(arrays)]
        tensors = (_library.Tensor * len(buffers))(*((b.address, b.address, b.count, b.code) for b in buffers))
        options, keep = self._options(buffers, timeout, algorithm, scalar, stream=stream)
        arguments = (tensors, len(buffers), op_code(op), options)
        return self._submit(_ALL_REDUCE_MANY, arguments, keep, arrays, async_op)

    def sparse_all_reduce(
        self, array: Array, out: Array | None = None, *, select: str = "topk", spars: float = 0.05,
        residual: Array | None = None, tensors: Sequence[int] = (), timeout: float | None = None,
    ) -> SparseReport:  # fmt: skip
        """Sums over all ranks the elements of `array` + `residual` that each rank selects; all ranks get the same bits.
        float32. Returns a SparseReport; the sum is in `out`, None: in place.

        select    "topk": the ceil(spars * length) largest magnitudes, exactly, of equal ones the lowest index;
                  "threshold": magnitudes of `spars` and above; "sampled_topk": about as many as "topk", faster: the
                  magnitude is guessed from a sample, and up to twice as many go
        residual  a float32 array of the same length, zero before the first call: what is not sent is kept there and
                  added in the next call. None: it is lost
        tensors   lengths of tensors that lie in `array` one after the other: the selection is made in each

        Raises rondo.NotFinite where an element of some rank is NaN or infinite; nothing is changed then.

        >>> report = group.sparse_all_reduce(gradient, spars=0.01, residual=residual)
        """
        if select not in _SELECTIONS:
            raise ValueError(f"select {select!r} is none of {', '.join(_SELECTIONS)}")
        source = buffer_of(array, out is None)
        target = source if out is None else self._like(out, source, source.count)
        if dtype_name(source.code) != "float32":
            raise TypeError(f"array has dtype {dtype_name(source.code)}; it must be float32")
        kept = None if residual is None else self._like(residual, source, source.count)
        lengths = whole_numbers(tensors, "tensors", self.rank)
        options = _library.SparseOptions(
            ctypes.sizeof(_library.SparseOptions),
            milliseconds(timeout, self.rank),
            real_number(spars, "spars", self.rank),
            None if kept is None else kept.address,
            _SELECTIONS.index(select),
            0,
            (ctypes.c_uint64 * len(lengths))(*lengths) if lengths else None,
            len(lengths),
        )
        report = _library.SparseReport()
        check(
            _library.lib.rondo_sparse_all_reduce(
                self._open(), source.address, target.address, source.count, _byref(options), _byref(report)
            )
        )
        return SparseReport(report.selected, report.total, report.bytes_sent, _ROUTES[report.route])

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

    def prepare_all_reduce(self, array: Array, op: str = "sum", out: Array | None = None) -> Callable[[], Any]:
        """all_reduce() of always the same arrays, as a function without arguments: the arguments are checked here,
        once, so that a call costs less. The arrays are kept as long as the function.

        >>> reduce_gradient = group.prepare_all_reduce(gradient, op="avg")
        >>> for batch in data:
        ...     compute(batch, gradient)
        ...     reduce_gradient()
        """
        source = buffer_of(array, out is None)
        target = source if out is None else self._like(out, source, source.count)
        _arrays.check_device([source, target], None)
        result = array if out is None else out
        function = _library.unchecked("rondo_run")
        one = _byref(_call(_ALL_REDUCE, source.code, source, target, source.count, op_code(op)))
        self._open()

        def call(self=self, function=function, one=one, result=result, keep=(source, target)):
            if self._batch is not None:
                self._keep_in_batch(keep)
            code = function(self._handle or self._open(), one)
            if code:
                raise last_error(code)
            return result

        return call

    # --- messages

    def send(self, array: Array, dest: int, tag: int = 0, *, timeout: float | None = None, stream: Any = None) -> None:
        """Sends `array` to rank `dest`. Returns when `array` may be changed; a small message may still be on its way.

        >>> group.send(np.array([1.0]), dest=1)
        """
        self._send(array, dest, tag, False, timeout, stream)

    def recv(
        self, array: Array, source: int = ANY_SOURCE, tag: int = ANY_TAG, *, timeout: float | None = None,
        stream: Any = None,
    ) -> Message:  # fmt: skip
        """Receives into `array` from rank `source`, a message with that tag. Returns (source, tag, bytes); the message
        may be shorter than `array`. Messages of one sender and tag stay in order.

        >>> source, tag, nbytes = group.recv(x)
        """
        buffer = buffer_of(array, True)
        _arrays.check_device([buffer], stream)
        self._keep_in_batch(buffer)
        message = _library.MessageInfo()
        check(
            _library.lib.rondo_recv(
                self._open(), buffer.address, buffer.count, buffer.code,
                whole_number(source, "source", self.rank), whole_number(tag, "tag", self.rank),
                options_of(self.rank, timeout, None, None, stream=stream), _byref(message),
            )  # fmt: skip
        )
        return Message(message.peer, message.tag, message.bytes)

    def isend(
        self, array: Array, dest: int, tag: int = 0, *, timeout: float | None = None, stream: Any = None
    ) -> Work:
        """send() that returns a Work at once; leave `array` alone until it is done. With `stream`, work that comes later
        in the stream may change it.

        >>> work = group.isend(np.array([1.0]), dest=1)
        >>> work.wait()
        """
        return self._send(array, dest, tag, True, timeout, stream)

    def irecv(
        self, array: Array, source: int = ANY_SOURCE, tag: int = ANY_TAG, *, timeout: float | None = None,
        stream: Any = None,
    ) -> Work:  # fmt: skip
        """recv() that returns a Work at once; its wait() returns the Message. With `stream`, work that comes later in
        the stream finds the message in `array`.

        >>> source, tag, nbytes = group.irecv(x).wait()
        """
        buffer = buffer_of(array, True)
        _arrays.check_device([buffer], stream)
        work = Work(buffer, None, receives=True)
        return work._started(
            _library.lib.rondo_recv_async(
                self._open(), buffer.address, buffer.count, buffer.code,
                whole_number(source, "source", self.rank), whole_number(tag, "tag", self.rank),
                options_of(self.rank, timeout, None, None, stream=stream), _byref(work._handle),
            )  # fmt: skip
        )

    def sendrecv(
        self, array: Array, dest: int, out: Array, source: int, tag: int = 0, *, timeout: float | None = None,
        stream: Any = None,
    ) -> Message:  # fmt: skip
        """Sends `array` to `dest` and receives `out` from `source`, both with `tag`: no deadlock in a ring.

        >>> group.sendrecv(mine, (group.rank + 1) % group.size, theirs, (group.rank - 1) % group.size)
        """
        sent, received = buffer_of(array, False), buffer_of(out, True, "out")
        if sent.code != received.code:
            raise TypeError(f"array is {dtype_name(sent.code)}, and out is {dtype_name(received.code)}")
        _arrays.check_device([sent, received], stream)
        self._keep_in_batch((sent, received))
        message = _library.MessageInfo()
        check(
            _library.lib.rondo_sendrecv(
                self._open(), sent.address, sent.count, whole_number(dest, "dest", self.rank),
                received.address, received.count, whole_number(source, "source", self.rank),
                sent.code, whole_number(tag, "tag", self.rank),
                options_of(self.rank, timeout, None, None, stream=stream), _byref(message),
            )  # fmt: skip
        )
        return Message(message.peer, message.tag, message.bytes)

    # --- objects

    def broadcast_object(self, value: Any = None, root: int = 0) -> Any:
        """Root's `value` on every rank: anything that pickle takes. With RONDO_INSECURE=1, where anybody may be a rank:
        bytes, and what JSON keeps as it is; else TypeError on root and rondo.Aborted elsewhere.

        >>> settings = group.broadcast_object({"lr": 0.01} if group.rank == 0 else None)
        """
        return objects.broadcast(self, value, whole_number(root, "root", self.rank))

    def all_gather_object(self, value: Any) -> list:
        """The values of all ranks, by rank; what a value may be: see broadcast_object().

        >>> group.all_gather_object(group.rank * 10)                 # 2 ranks
        [0, 10]
        """
        return objects.all_gather(self, value)

    # --- memory

    def empty(self, shape: int | Sequence[int], dtype: Any = np.float32) -> np.ndarray:
        """An array, all zeros, in memory that all ranks of this host map: collectives on such arrays are the fastest.
        Make it once and keep it: it costs system calls. It lives as long as somebody refers to it, also after close().

        >>> gradient = group.empty(1 << 20)
        """
        dtype = np.dtype(dtype)
        code_of(dtype)
        several = isinstance(shape, Sequence) and not isinstance(shape, str) or getattr(shape, "ndim", 0) > 0
        extents = list(shape) if several else [shape]
        extents = whole_numbers(extents, "shape", self.rank, most=2**63 - 1)
        nbytes = math.prod(extents) * dtype.itemsize
        if nbytes >= 2**63:
            raise Invalid(f"shape is {tuple(extents)} on rank {self.rank}: that is {nbytes} bytes")
        data = ctypes.c_void_p()
        handle = self._open()
        check(_library.lib.rondo_allocate(handle, max(nbytes, 1), _byref(data)))
        memory = (ctypes.c_char * max(nbytes, 1)).from_address(data.value)
        weakref.finalize(memory, _library.lib.rondo_deallocate, handle, data.value).atexit = False
        return np.frombuffer(memory, np.uint8, nbytes).view(dtype).reshape(extents)

    # --- groups

    def split(self, color: int, key: int = 0) -> Communicator | None:
        """Ranks of the same color become a communicator, ordered by (key, rank); a negative color: none, and None is
        returned. All ranks call it.

        >>> pairs = group.split(color=group.rank // 2)
        """
        color, key = whole_number(color, "color", self.rank), whole_number(key, "key", self.rank)
        made = CommunicatorHandle()
        check(_library.lib.rondo_split(self._open(), color, key, _byref(made)))
        return Communicator(made) if made else None

    def new_group(self, ranks: Sequence[int]) -> Communicator | None:
        """A communicator of these ranks, which become 0, 1, ... in this order. Roots of its calls are its own ranks.
        A rank that is not among them need not call it, and gets None.

        >>> first_two = group.new_group([0, 1])
        """
        ranks = whole_numbers(ranks, "ranks", self.rank, most=INT_MAX)
        if self.rank not in ranks:
            self._open()
            return None
        made = CommunicatorHandle()
        check(_library.lib.rondo_new_group(self._open(), (ctypes.c_int * len(ranks))(*ranks), len(ranks), _byref(made)))
        return Communicator(made)

    # --- the end

    def abort(self, reason: str = "") -> None:
        """Fails this communicator on all ranks: their calls raise rondo.Aborted with the reason. Any thread.

        >>> group.abort("the loss is NaN")
        """
        check(_library.lib.rondo_abort(self._open(), text_of(reason, "reason", self.rank)))

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
            _open_ones.remove(self)
            check(_library.lib.rondo_close(handle))
        finally:
            del handle  # not kept by a traceback

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, kind, error, trace) -> None:
        ends_well = kind is SystemExit and error.code in (None, 0)
        if kind is not None and not ends_well and self._handle is not None:
            self.abort(f"{kind.__name__}: {error}")
        self.close()

    # --- inside

    def _open(self) -> CommunicatorHandle:
        if self._handle is None:
            raise self._closed_error()
        return self._handle

    def _closed_error(self) -> Closed:
        return Closed(f"the communicator of rank {self.rank} is closed", (self.rank,))

    def _run(self, call: _library.Call, keep, result, async_op, timeout=None, algorithm=None, scalar=None, wire=None,
             stream=None):  # fmt: skip
        options, keep = self._options(keep, timeout, algorithm, scalar, wire, stream)
        if options is not None:
            call.options = ctypes.pointer(options)
        return self._submit(_COLLECTIVE, (call,), keep, result, async_op)

    def _send(self, array, dest, tag, async_op, timeout, stream):
        buffer = buffer_of(array, False)
        options, keep = self._options(buffer, timeout, stream=stream)
        dest, tag = whole_number(dest, "dest", self.rank), whole_number(tag, "tag", self.rank)
        arguments = (buffer.address, buffer.count, buffer.code, dest, tag, options)
        return self._submit(_SEND, arguments, keep, None, async_op)

    def _options(self, keep, timeout=None, algorithm=None, scalar=None, wire=None, stream=None):
        """The call's rondo_options_t, or None; and what is to be kept until it is over."""
        if stream is not None or _arrays.device_seen:
            _arrays.check_device(keep, stream)
        if wire is not None:
            fields, residual = wire_of(wire).fields(keep[0].count)
            return options_of(self.rank, timeout, algorithm, scalar, fields, stream), (keep, residual)
        if timeout is None and algorithm is None and scalar is None and stream is None and not self._purpose:
            return None, keep
        return options_of(self.rank, timeout, algorithm, scalar, stream=stream, purpose=self._purpose), keep

    def _submit(self, functions, arguments, keep, result, async_op):
        """functions: the one that blocks, and the one that returns a work."""
        if async_op:
            work = Work(keep, result)
            return work._started(functions[1](self._handle or self._open(), *arguments, _byref(work._handle)))
        if self._batch is not None:
            self._keep_in_batch(keep)
        code = functions[0](self._handle or self._open(), *arguments)
        if code:
            raise last_error(code)
        return result

    def _refuse_in_batch(self, call: str) -> None:
        self._open()
        if self._batch is not None and self._batch.thread == threading.get_ident():
            raise Invalid(
                f"{call} on rank {self.rank}: not in a batch, which keeps the exchanges that it is made of; end the "
                "batch first"
            )

    @contextlib.contextmanager
    def _compound(self, call: str, timeout: float | None = None) -> Iterator[Exchanges]:
        """For a call that goes on with what its own exchanges bring. It is refused in a batch, and no rank waits for one
        that cannot go on: whatever this rank alone raises fails the communicator."""
        self._refuse_in_batch(call)
        milliseconds(timeout, self.rank)  # refused before the first exchange
        try:
            yield Exchanges(self)
        except (Invalid, Mismatch, NotFinite):  # before the first exchange, or on all ranks
            raise
        except BaseException as error:
            if self.error is None:
                self.abort(f"{type(error).__name__}: {error}")
            raise

    def _keep_in_batch(self, keep) -> None:
        if self._batch is not None and self._batch.thread == threading.get_ident():
            self._batch.kept.append(keep)

    def _like(self, out, source: Buffer, count: int) -> Buffer:
        target = buffer_of(out, True, "out")
        if target.code != source.code:
            raise TypeError(f"out has dtype {dtype_name(target.code)}, and array has {dtype_name(source.code)}")
        if target.count != count:
            raise ValueError(f"out has {target.count} elements; {count} are needed (array has {source.count})")
        return target

    def _part(self, array, source: Buffer) -> int:
        first = shape_of(array)[0] if shape_of(array) else 1
        if first % self.size != 0:
            raise ValueError(
                f"the first dimension of array, {first}, is not divisible by {self.size} ranks: use the _v form"
            )
        return source.count // self.size

    def _counts(self, counts, what: str = "counts") -> list[int]:
        counts = whole_numbers(counts, what, self.rank)
        if len(counts) != self.size:
            raise Invalid(f"{what} is {counts} on rank {self.rank}: {self.size} are needed, one a rank")
        return counts


class Exchanges(Communicator):
    """The same ranks, for the exchanges that a call of Python's is made of: they match no call of the program's."""

    _purpose = _library.PURPOSE_OBJECTS

    def __init__(self, group: Communicator):
        self.__dict__.update(group.__dict__)


class Batch(OfThisProcess):
    """Calls that are submitted together: `with group.batch(): ...`.

    Calls of this thread on this communicator inside the block check their arguments and return at once; the results
    are there after the block. Consecutive all_reduce() share operations as all_reduce_many() does them. All ranks
    must batch alike. An exception inside the block forgets the calls. No async_op inside, no nesting, and no call that
    is made of others, as those of objects: rondo.Invalid.

    >>> with group.batch():
    ...     group.all_reduce(a)
    ...     group.all_reduce(b)
    """

    def __init__(self, communicator: Communicator):
        self._communicator = communicator
        self.thread = 0
        self.kept: list = []

    def __enter__(self) -> None:
        check(_library.lib.rondo_batch_begin(self._communicator._open()))
        try:
            self.thread = threading.get_ident()
            self._communicator._batch = self
        except BaseException:  # of the handler of a signal
            self.__exit__(*sys.exc_info())
            raise

    def __exit__(self, kind, error, trace) -> None:
        self._communicator._batch = None
        handle = self._communicator._open()
        if kind is not None:
            _library.lib.rondo_batch_abandon(handle)
        else:
            check(_library.lib.rondo_batch_end(handle))
        self.kept.clear()


# Those that are closed at the end of the process.
_open_ones: list[Communicator] = []
