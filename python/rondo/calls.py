"""The table of a Communicator's calls: a function is a row. Its signature, its documentation and its mark are all that
Python has of a call whose body is in C++ (python/module). tools/stubs.py makes their types, calls.pyi."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import FunctionType
from typing import TYPE_CHECKING, Any, Literal

from rondo._arguments import Array, new_gathered, new_part, new_same, new_scattered
from rondo._library import native

if TYPE_CHECKING:
    from rondo.user_op import UserOp
    from rondo.wire import Wire
    from rondo.work import Matched, Message, Work

ANY_SOURCE: int = -1
ANY_TAG: int = -1


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
