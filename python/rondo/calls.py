"""The table of a Communicator's calls: a function is a row. Its signature, its documentation and its mark are all that
Python has of a call whose body is in C++ (python/module). tools/stubs.py makes their types, calls.pyi."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rondo._arguments import (
    Array,
    counts_of_peers,
    elements_of,
    new_gathered,
    new_like,
    new_part,
    new_same,
    new_scattered,
    parts_of,
    rows_of,
    shape_of,
    whole_number,
    whole_numbers,
)
from rondo._library import native
from rondo.errors import Invalid

if TYPE_CHECKING:
    from rondo.user_op import UserOp
    from rondo.wire import Wire
    from rondo.work import Matched, Message, Work

ANY_SOURCE: int = -1
ANY_TAG: int = -1
_REDUCE_SCATTER, _ALL_GATHER, _GATHER, _SCATTER, _ALL_TO_ALL = 1, 2, 5, 6, 7  # of rondo.h


# What python/module asks of a collective of equal blocks: its number in rondo.h; whether `array` and `out` have a
# block a rank; whether the root alone has an input, an output; what makes an output, None: in place.
_facts: dict[str, tuple] = {}

_Blocks = Literal["one", "one a rank"]


def _collective(
    *, array: _Blocks = "one", out: _Blocks = "one", root_has: Literal["array", "out"] | None = None,
    new: Callable[[Any, int], Any] | None = None,
) -> Callable:  # fmt: skip
    """Marks a collective of equal blocks. These stand in the order of rondo_collective_t. array, out: how many blocks they
    have. root_has: what the other ranks have not. new: makes `out` from `array` and the size; None: it is in place."""

    def mark(function: Callable) -> Callable:
        _facts[function.__name__] = (
            len(_facts), array == "one a rank", out == "one a rank", root_has == "array", root_has == "out", new,
        )  # fmt: skip
        return function

    return mark


class Calls:
    """A part of Communicator. Functions without a body are in C++."""

    @_collective()
    def all_reduce(
        self, array: Array, op: str | UserOp = "sum", out: Array | None = None, *, async_op: bool = False,
        timeout: float | None = None, algorithm: str | None = None, scalar: float | None = None,
        wire: Wire | str | None = None, stream: Any = None, copy: bool = True, recoverable: bool = False,
    ) -> Any:  # fmt: skip
        """Reduces `array` over all ranks; every rank gets the result, with the same bits. Returns `out`.

        out: of the same length and dtype; None: in place. op: "sum", "avg", "product", "min", "max", "band", "bor",
        "bxor", "land", "lor", "lxor", "premulsum", the sum of each rank's array times its `scalar`, or a UserOp.
        recoverable: if the call fails, `array` is as it was, also in place; host memory, no `wire`.

        >>> x = np.array([1, 2]) + 2 * group.rank
        >>> group.all_reduce(x)              # 4 ranks
        array([16, 20])
        """

    @_collective(array="one a rank", new=new_part)
    def reduce_scatter(
        self, array: Array, op: str | UserOp = "sum", out: Array | None = None, *, async_op: bool = False,
        timeout: float | None = None, algorithm: str | None = None, scalar: float | None = None,
        wire: Wire | str | None = None, stream: Any = None, copy: bool = True,
    ) -> Any:  # fmt: skip
        """Reduces `array` over all ranks and gives each its part: rank r the r-th of `size` equal parts of the first
        dimension. Returns `out`, of shape (array.shape[0] // size, *array.shape[1:]).

        >>> group.reduce_scatter(np.array([1, 2]))                   # 2 ranks: rank 0, rank 1
        array([2])                                                   #          array([4])
        """

    @_collective(out="one a rank", new=new_gathered)
    def all_gather(
        self, array: Array, out: Array | None = None, *, async_op: bool = False, timeout: float | None = None,
        algorithm: str | None = None, wire: Wire | str | None = None, stream: Any = None, copy: bool = True,
    ) -> Any:  # fmt: skip
        """Every rank gets the arrays of all, by rank. Returns `out`, of shape (size, *array.shape).

        out: size times as long as `array`; None: a new one.

        >>> group.all_gather(np.array([1, 2]) + 2 * group.rank)      # 2 ranks
        array([[1, 2],
               [3, 4]])
        """

    @_collective(root_has="array")
    def broadcast(
        self, array: Array, root: int = 0, *, async_op: bool = False, timeout: float | None = None,
        algorithm: str | None = None, wire: Wire | str | None = None, stream: Any = None, copy: bool = True,
    ) -> Any:  # fmt: skip
        """Copies root's `array` into every rank's. Returns `array`.

        >>> group.broadcast(np.array([1, 2]) + 2 * group.rank, root=0)
        array([1, 2])
        """

    @_collective(root_has="out")
    def reduce(
        self, array: Array, op: str | UserOp = "sum", root: int = 0, out: Array | None = None, *, async_op: bool = False,
        timeout: float | None = None, algorithm: str | None = None, scalar: float | None = None, stream: Any = None, copy: bool = True,
    ) -> Any:  # fmt: skip
        """Reduces `array` over all ranks; `root` gets the result. Returns `out` on root, None elsewhere.

        out: as all_reduce(), on root only. The other ranks' arrays keep their values.

        >>> group.reduce(np.array([1, 2]) + 2 * group.rank, root=3)   # 4 ranks: on rank 3
        array([16, 20])
        """

    @_collective(out="one a rank", root_has="out", new=new_gathered)
    def gather(
        self, array: Array, root: int = 0, out: Array | None = None, *, async_op: bool = False,
        timeout: float | None = None, algorithm: str | None = None, stream: Any = None, copy: bool = True,
    ) -> Any:  # fmt: skip
        """Root gets the arrays of all, by rank. Returns `out`, of shape (size, *array.shape), on root, else None.

        >>> group.gather(np.array([group.rank]), root=0)             # 2 ranks: on rank 0
        array([[0],
               [1]])
        """

    @_collective(array="one a rank", root_has="array", new=new_scattered)
    def scatter(
        self, array: Array | None = None, root: int = 0, out: Array | None = None, *, async_op: bool = False,
        timeout: float | None = None, algorithm: str | None = None, stream: Any = None, copy: bool = True,
    ) -> Any:  # fmt: skip
        """Root gives each rank its part of `array`: rank r gets array[r], if its first dimension is `size`. Returns
        `out`.

        array: read on root only. out: required on the other ranks, which cannot know shape and dtype.

        >>> rows = np.array([[0, 0], [1, 1]]) if group.rank == 0 else None
        >>> group.scatter(rows, root=0, out=np.empty(2, np.int64))   # rank 1
        array([1, 1])
        """

    @_collective(array="one a rank", out="one a rank", new=new_same)
    def all_to_all(
        self, array: Array, out: Array | None = None, *, async_op: bool = False, timeout: float | None = None,
        algorithm: str | None = None, stream: Any = None, copy: bool = True,
    ) -> Any:  # fmt: skip
        """Sends the r-th of `size` equal parts of the first dimension of `array` to rank r; what rank r sends becomes
        the r-th part of `out`, which has the shape of `array`. Returns `out`. Never in place.

        >>> group.all_to_all(np.array([10, 20]) + group.rank)        # 2 ranks: rank 0, rank 1
        array([10, 11])                                              #          array([20, 21])
        """

    @_collective()
    def barrier(self, *, async_op: bool = False, timeout: float | None = None, stream: Any = None) -> Any:
        """Returns when every rank has called it; with `stream`, the stream goes on when all streams have come to it.

        >>> group.barrier()
        """

    @_collective()
    def scan(
        self, array: Array, op: str | UserOp = "sum", out: Array | None = None, *, async_op: bool = False,
        timeout: float | None = None, algorithm: str | None = None, scalar: float | None = None, copy: bool = True,
    ) -> Any:  # fmt: skip
        """Rank r gets the arrays of ranks 0 to r, reduced in this order. Returns `out`; None: in place. Not "avg".

        >>> group.scan(np.array([1, 2]))                             # on rank 1
        array([2, 4])
        """

    @_collective()
    def exscan(
        self, array: Array, op: str | UserOp = "sum", out: Array | None = None, *, async_op: bool = False,
        timeout: float | None = None, algorithm: str | None = None, scalar: float | None = None, copy: bool = True,
    ) -> Any:  # fmt: skip
        """scan() without this rank's own array: of ranks 0 to r - 1. On rank 0 `out` keeps its values."""

    def _check_all_reduce(self, array: Array, op: str, out: Array | None, only_check: bool) -> None:
        """Raises what all_reduce() would of its arguments."""

    # --- blocks of unequal length. Counts are rows: entries of the first dimension, one count a rank

    def all_gather_v(
        self, array: Array, counts: Sequence[int] | None = None, out: Array | None = None, *, async_op: bool = False,
        timeout: float | None = None, algorithm: str | None = None, stream: Any = None,
    ) -> Any:  # fmt: skip
        """all_gather() of arrays whose first dimensions differ. Returns a list of `size` arrays, parts of `out`.

        counts: rows of each rank, equal on all ranks; None: they are exchanged first. out: all rows, by rank.

        >>> group.all_gather_v(np.arange(group.rank + 1))            # 2 ranks
        [array([0]), array([0, 1])]
        """
        rows, row = rows_of(array)
        if counts is None:
            with self._compound("all_gather_v", timeout) as exchanges:
                said = exchanges.all_gather(np.array([rows], np.uint64), timeout=timeout)
                exchanges.over = True
                counts = counts_of_peers(said.ravel().tolist(), row, self.rank)
                return self.all_gather_v(
                    array, counts, out, async_op=async_op, timeout=timeout, algorithm=algorithm, stream=stream
                )
        counts = self._counts(counts)
        if counts[self.rank] != rows:
            raise ValueError(f"counts[{self.rank}] is {counts[self.rank]}, and array has {rows} rows")
        if out is None:
            out = new_like(array, (sum(counts), *shape_of(array)[1:]))
        elements = elements_of(counts, row)
        return self._uneven(
            _ALL_GATHER, array, out, sum(elements), None, elements, parts_of(out, counts), async_op=async_op,
            timeout=timeout, algorithm=algorithm, stream=stream,
        )  # fmt: skip

    def reduce_scatter_v(
        self, array: Array, counts: Sequence[int], op: str | UserOp = "sum", out: Array | None = None, *, async_op: bool = False,
        timeout: float | None = None, algorithm: str | None = None, scalar: float | None = None, stream: Any = None,
    ) -> Any:  # fmt: skip
        """reduce_scatter() of parts of unequal length: rank r gets counts[r] rows. Returns `out`.

        >>> group.reduce_scatter_v(np.array([1, 2, 3]), [1, 2])      # 2 ranks: rank 0, rank 1
        array([2])                                                   #          array([4, 6])
        """
        rows, row = rows_of(array)
        counts = self._counts(counts)
        if sum(counts) != rows:
            raise ValueError(f"counts add up to {sum(counts)}, and array has {rows} rows")
        if out is None:
            out = new_like(array, (counts[self.rank], *shape_of(array)[1:]))
        return self._uneven(
            _REDUCE_SCATTER, array, out, counts[self.rank] * row, elements_of(counts, row), None, out, op=op,
            async_op=async_op, timeout=timeout, algorithm=algorithm, scalar=scalar, stream=stream,
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
        rows, row = rows_of(array)
        if counts is None:
            with self._compound("gather_v", timeout) as exchanges:
                said = exchanges.gather(np.array([rows], np.uint64), root, timeout=timeout)
                exchanges.over = True
                counts = [] if said is None else counts_of_peers(said.ravel().tolist(), row, self.rank)
                return self.gather_v(
                    array, counts, root, out, async_op=async_op, timeout=timeout, algorithm=algorithm, stream=stream
                )
        target, parts, elements = None, None, None
        if root == self.rank:
            counts = self._counts(counts)
            target = new_like(array, (sum(counts), *shape_of(array)[1:])) if out is None else out
            parts, elements = parts_of(target, counts), elements_of(counts, row)
        return self._uneven(
            _GATHER, array, target, sum(elements or ()), None, elements, parts, root=root, async_op=async_op,
            timeout=timeout, algorithm=algorithm, stream=stream,
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
        elements, needed = None, 0
        if root == self.rank:
            if array is None or counts is None:
                raise ValueError(f"scatter_v on rank {self.rank}, which is root: array or counts is None")
            rows, row = rows_of(array)
            counts = self._counts(counts)
            if sum(counts) != rows:
                raise ValueError(f"counts add up to {sum(counts)}, and array has {rows} rows")
            elements = elements_of(counts, row)
            needed = elements[root]
            if out is None:
                out = new_like(array, (counts[root], *shape_of(array)[1:]))
        elif out is None:
            raise ValueError(f"scatter_v on rank {self.rank}: pass out, an array of the shape and dtype of its part")
        return self._uneven(
            _SCATTER, array if elements else None, out, needed, elements, None, out, root=root, async_op=async_op,
            timeout=timeout, algorithm=algorithm, stream=stream,
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
        rows, row = rows_of(array)
        send_counts = self._counts(send_counts, "send_counts")
        if sum(send_counts) != rows:
            raise ValueError(f"send_counts add up to {sum(send_counts)}, and array has {rows} rows")
        if recv_counts is None:
            with self._compound("all_to_all_v", timeout) as exchanges:
                said = exchanges.all_to_all(np.array(send_counts, np.uint64), timeout=timeout)
                exchanges.over = True
                recv_counts = counts_of_peers(said.ravel().tolist(), row, self.rank)
                return self.all_to_all_v(
                    array, send_counts, recv_counts, out,
                    async_op=async_op, timeout=timeout, algorithm=algorithm, stream=stream,
                )  # fmt: skip
        recv_counts = self._counts(recv_counts, "recv_counts")
        if out is None:
            out = new_like(array, (sum(recv_counts), *shape_of(array)[1:]))
        sent, received = elements_of(send_counts, row), elements_of(recv_counts, row)
        return self._uneven(
            _ALL_TO_ALL, array, out, sum(received), sent, received, parts_of(out, recv_counts), async_op=async_op,
            timeout=timeout, algorithm=algorithm, stream=stream,
        )  # fmt: skip

    def _uneven(
        self, collective: int, array: Array, out: Array, needed: int, input_counts: Sequence[int] | None,
        output_counts: Sequence[int] | None, result: Any, *, op: str | UserOp = "sum", root: int = -1, async_op: bool = False,
        timeout: float | None = None, algorithm: str | None = None, scalar: float | None = None, stream: Any = None,
    ) -> Any:  # fmt: skip
        """Of elements; needed: those of `out`. array, out: None on ranks that have none."""

    def _counts(self, counts, what: str = "counts") -> list[int]:
        counts = whole_numbers(counts, what, self.rank)
        if len(counts) != self.size:
            raise Invalid(f"{what} is {counts} on rank {self.rank}: {self.size} are needed, one a rank")
        return counts

    # --- many arrays

    def all_reduce_many(
        self, arrays: Iterable, op: str = "sum", *, async_op: bool = False, timeout: float | None = None,
        algorithm: str | None = None, scalar: float | None = None, stream: Any = None,
    ) -> Any:  # fmt: skip
        """all_reduce() in place of every array of a list: the gradients of a step. Small arrays share operations
        (RONDO_BUCKET_BYTES). The same list on all ranks. Returns the list.

        >>> group.all_reduce_many([p.grad for p in parameters], op="avg")
        """
        return self._all_reduce_many(
            list(arrays), op, async_op=async_op, timeout=timeout, algorithm=algorithm, scalar=scalar, stream=stream
        )

    def _all_reduce_many(
        self, array: list, op: str, *, async_op: bool = False, timeout: float | None = None,
        algorithm: str | None = None, scalar: float | None = None, stream: Any = None,
    ) -> Any:  # fmt: skip
        """array: all of them."""

    # --- messages

    def send(
        self, array: Array, dest: int, tag: int = 0, *, synchronous: bool = False, timeout: float | None = None,
        stream: Any = None, copy: bool = True,
    ) -> None:  # fmt: skip
        """Sends `array` to rank `dest`. Returns when `array` may be changed; a small message may still be on its way.
        synchronous: it returns when a receive has met the message.

        >>> group.send(np.array([1.0]), dest=1)
        """

    def recv(
        self, array: Array, source: int = ANY_SOURCE, tag: int = ANY_TAG, *, truncate: bool = False,
        timeout: float | None = None, stream: Any = None, copy: bool = True,
    ) -> Message:  # fmt: skip
        """Receives into `array` from rank `source`, a message with that tag. Returns (source, tag, bytes); the message
        may be shorter than `array`. Messages of one sender and tag stay in order. A longer one is rondo.Mismatch on
        both ranks; truncate: `array` gets its beginning, and this rank rondo.Truncated.

        >>> source, tag, nbytes = group.recv(x)
        """

    def isend(
        self, array: Array, dest: int, tag: int = 0, *, synchronous: bool = False, timeout: float | None = None,
        stream: Any = None,
    ) -> Work:  # fmt: skip
        """send() that returns a Work at once; leave `array` alone until it is done. With `stream`, work that comes later
        in the stream may change it.

        >>> work = group.isend(np.array([1.0]), dest=1)
        >>> work.wait()
        """

    def irecv(
        self, array: Array, source: int = ANY_SOURCE, tag: int = ANY_TAG, *, truncate: bool = False,
        timeout: float | None = None, stream: Any = None,
    ) -> Work:  # fmt: skip
        """recv() that returns a Work at once; its wait() returns the Message. With `stream`, work that comes later in
        the stream finds the message in `array`.

        >>> source, tag, nbytes = group.irecv(x).wait()
        """

    def sendrecv(
        self, array: Array, dest: int, out: Array, source: int, tag: int = 0, *, timeout: float | None = None,
        stream: Any = None, copy: bool = True,
    ) -> Message:  # fmt: skip
        """Sends `array` to `dest` and receives `out` from `source`, both with `tag`: no deadlock in a ring.

        >>> group.sendrecv(mine, (group.rank + 1) % group.size, theirs, (group.rank - 1) % group.size)
        """

    def probe(
        self, source: int = ANY_SOURCE, tag: int = ANY_TAG, *, async_op: bool = False, timeout: float | None = None
    ) -> Any:
        """Waits until a message is there that recv() would take, and returns its (source, tag, bytes). It stays.
        rondo.Timeout leaves the group usable.

        >>> x = np.empty(group.probe(source=0).bytes // 8)           # of float64
        """

    def iprobe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Message | None:
        """probe() that does not wait: None if there is no message yet."""

    def mprobe(
        self, source: int = ANY_SOURCE, tag: int = ANY_TAG, *, async_op: bool = False, timeout: float | None = None
    ) -> Any:
        """probe() of a message that only mrecv() gets: other threads do not see it. Returns a Matched.

        >>> matched = group.mprobe()
        >>> group.mrecv(np.empty(matched.bytes // 8), matched)       # of float64
        """

    def improbe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Matched | None:
        """mprobe() that does not wait: None if there is no message yet."""

    def mrecv(
        self, array: Array, matched: Matched, *, truncate: bool = False, timeout: float | None = None
    ) -> Message:
        """recv() of the message that mprobe() or improbe() found, once."""

    def imrecv(self, array: Array, matched: Matched, *, truncate: bool = False, timeout: float | None = None) -> Work:
        """mrecv() that returns a Work at once."""


COLLECTIVES: tuple[str, ...] = tuple(_facts)  # by the numbers of rondo.h
_facts["_check_all_reduce"] = _facts["all_reduce"]


def put_in_place(declared: dict[str, Any], communicator: type) -> None:
    """Gives the class of communicators the functions among `declared`. A method in C++ takes names and defaults of its
    parameters, and its documentation, from the function."""
    for name, function in declared.items():
        if not isinstance(function, FunctionType):
            continue
        function.__qualname__ = f"{communicator.__qualname__}.{name}"  # errors of its arguments have it
        code = function.__code__
        names = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
        positional = names[: code.co_argcount - 1]
        defaults = dict(zip(reversed(positional), reversed(function.__defaults__ or ()))) | (function.__kwdefaults__ or {})
        texts = [f"{each}={defaults[each]!r}" if each in defaults else each for each in names]
        texts[len(positional) : len(positional)] = ["*"] * bool(code.co_kwonlyargcount)
        text = f"{name}({', '.join(['$self', *texts])})\n--\n\n{function.__doc__}".encode()
        method = native.method(communicator, name, function, names, len(positional), defaults, text, _facts.get(name))
        setattr(communicator, name, function if method is None else method)
