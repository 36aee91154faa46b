"""Made by tools/stubs.py from calls.py."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal, overload
from rondo._arguments import Array
from rondo.user_op import UserOp
from rondo.wire import Wire
from rondo.work import Matched, Message, Work

ANY_SOURCE: int
ANY_TAG: int

class Calls:
    @overload
    def all_reduce(self, array: Array, op: str | UserOp = "sum", out: Array | None = None, *, async_op: Literal[True],
        timeout: float | None = None, algorithm: str | None = None, scalar: float | None = None,
        wire: Wire | str | None = None, stream: Any = None, copy: bool = True, recoverable: bool = False) -> Work: ...
    @overload
    def all_reduce(self, array: Array, op: str | UserOp = "sum", out: Array | None = None, *, async_op: bool = False,
        timeout: float | None = None, algorithm: str | None = None, scalar: float | None = None,
        wire: Wire | str | None = None, stream: Any = None, copy: bool = True, recoverable: bool = False) -> Any: ...
    @overload
    def reduce_scatter(self, array: Array, op: str | UserOp = "sum", out: Array | None = None, *,
        async_op: Literal[True], timeout: float | None = None, algorithm: str | None = None,
        scalar: float | None = None, wire: Wire | str | None = None, stream: Any = None, copy: bool = True) -> Work: ...
    @overload
    def reduce_scatter(self, array: Array, op: str | UserOp = "sum", out: Array | None = None, *,
        async_op: bool = False, timeout: float | None = None, algorithm: str | None = None, scalar: float | None = None,
        wire: Wire | str | None = None, stream: Any = None, copy: bool = True) -> Any: ...
    @overload
    def all_gather(self, array: Array, out: Array | None = None, *, async_op: Literal[True],
        timeout: float | None = None, algorithm: str | None = None, wire: Wire | str | None = None, stream: Any = None,
        copy: bool = True) -> Work: ...
    @overload
    def all_gather(self, array: Array, out: Array | None = None, *, async_op: bool = False,
        timeout: float | None = None, algorithm: str | None = None, wire: Wire | str | None = None, stream: Any = None,
        copy: bool = True) -> Any: ...
    @overload
    def broadcast(self, array: Array, root: int = 0, *, async_op: Literal[True], timeout: float | None = None,
        algorithm: str | None = None, wire: Wire | str | None = None, stream: Any = None,
        copy: bool = True) -> Work: ...
    @overload
    def broadcast(self, array: Array, root: int = 0, *, async_op: bool = False, timeout: float | None = None,
        algorithm: str | None = None, wire: Wire | str | None = None, stream: Any = None, copy: bool = True) -> Any: ...
    @overload
    def reduce(self, array: Array, op: str | UserOp = "sum", root: int = 0, out: Array | None = None, *,
        async_op: Literal[True], timeout: float | None = None, algorithm: str | None = None,
        scalar: float | None = None, stream: Any = None, copy: bool = True) -> Work: ...
    @overload
    def reduce(self, array: Array, op: str | UserOp = "sum", root: int = 0, out: Array | None = None, *,
        async_op: bool = False, timeout: float | None = None, algorithm: str | None = None, scalar: float | None = None,
        stream: Any = None, copy: bool = True) -> Any: ...
    @overload
    def gather(self, array: Array, root: int = 0, out: Array | None = None, *, async_op: Literal[True],
        timeout: float | None = None, algorithm: str | None = None, stream: Any = None, copy: bool = True) -> Work: ...
    @overload
    def gather(self, array: Array, root: int = 0, out: Array | None = None, *, async_op: bool = False,
        timeout: float | None = None, algorithm: str | None = None, stream: Any = None, copy: bool = True) -> Any: ...
    @overload
    def scatter(self, array: Array | None = None, root: int = 0, out: Array | None = None, *, async_op: Literal[True],
        timeout: float | None = None, algorithm: str | None = None, stream: Any = None, copy: bool = True) -> Work: ...
    @overload
    def scatter(self, array: Array | None = None, root: int = 0, out: Array | None = None, *, async_op: bool = False,
        timeout: float | None = None, algorithm: str | None = None, stream: Any = None, copy: bool = True) -> Any: ...
    @overload
    def all_to_all(self, array: Array, out: Array | None = None, *, async_op: Literal[True],
        timeout: float | None = None, algorithm: str | None = None, stream: Any = None, copy: bool = True) -> Work: ...
    @overload
    def all_to_all(self, array: Array, out: Array | None = None, *, async_op: bool = False,
        timeout: float | None = None, algorithm: str | None = None, stream: Any = None, copy: bool = True) -> Any: ...
    @overload
    def barrier(self, *, async_op: Literal[True], timeout: float | None = None, stream: Any = None) -> Work: ...
    @overload
    def barrier(self, *, async_op: bool = False, timeout: float | None = None, stream: Any = None) -> Any: ...
    @overload
    def scan(self, array: Array, op: str | UserOp = "sum", out: Array | None = None, *, async_op: Literal[True],
        timeout: float | None = None, algorithm: str | None = None, scalar: float | None = None,
        copy: bool = True) -> Work: ...
    @overload
    def scan(self, array: Array, op: str | UserOp = "sum", out: Array | None = None, *, async_op: bool = False,
        timeout: float | None = None, algorithm: str | None = None, scalar: float | None = None,
        copy: bool = True) -> Any: ...
    @overload
    def exscan(self, array: Array, op: str | UserOp = "sum", out: Array | None = None, *, async_op: Literal[True],
        timeout: float | None = None, algorithm: str | None = None, scalar: float | None = None,
        copy: bool = True) -> Work: ...
    @overload
    def exscan(self, array: Array, op: str | UserOp = "sum", out: Array | None = None, *, async_op: bool = False,
        timeout: float | None = None, algorithm: str | None = None, scalar: float | None = None,
        copy: bool = True) -> Any: ...
    def _check_all_reduce(self, array: Array, op: str, out: Array | None, only_check: bool) -> None: ...
    @overload
    def all_gather_v(self, array: Array, counts: Sequence[int] | None = None, out: Array | None = None, *,
        async_op: Literal[True], timeout: float | None = None, algorithm: str | None = None,
        stream: Any = None) -> Work: ...
    @overload
    def all_gather_v(self, array: Array, counts: Sequence[int] | None = None, out: Array | None = None, *,
        async_op: bool = False, timeout: float | None = None, algorithm: str | None = None,
        stream: Any = None) -> Any: ...
    @overload
    def reduce_scatter_v(self, array: Array, counts: Sequence[int], op: str | UserOp = "sum", out: Array | None = None,
        *, async_op: Literal[True], timeout: float | None = None, algorithm: str | None = None,
        scalar: float | None = None, stream: Any = None) -> Work: ...
    @overload
    def reduce_scatter_v(self, array: Array, counts: Sequence[int], op: str | UserOp = "sum", out: Array | None = None,
        *, async_op: bool = False, timeout: float | None = None, algorithm: str | None = None,
        scalar: float | None = None, stream: Any = None) -> Any: ...
    @overload
    def gather_v(self, array: Array, counts: Sequence[int] | None = None, root: int = 0, out: Array | None = None, *,
        async_op: Literal[True], timeout: float | None = None, algorithm: str | None = None,
        stream: Any = None) -> Work: ...
    @overload
    def gather_v(self, array: Array, counts: Sequence[int] | None = None, root: int = 0, out: Array | None = None, *,
        async_op: bool = False, timeout: float | None = None, algorithm: str | None = None,
        stream: Any = None) -> Any: ...
    @overload
    def scatter_v(self, array: Array | None = None, counts: Sequence[int] | None = None, root: int = 0,
        out: Array | None = None, *, async_op: Literal[True], timeout: float | None = None,
        algorithm: str | None = None, stream: Any = None) -> Work: ...
    @overload
    def scatter_v(self, array: Array | None = None, counts: Sequence[int] | None = None, root: int = 0,
        out: Array | None = None, *, async_op: bool = False, timeout: float | None = None, algorithm: str | None = None,
        stream: Any = None) -> Any: ...
    @overload
    def all_to_all_v(self, array: Array, send_counts: Sequence[int], recv_counts: Sequence[int] | None = None,
        out: Array | None = None, *, async_op: Literal[True], timeout: float | None = None,
        algorithm: str | None = None, stream: Any = None) -> Work: ...
    @overload
    def all_to_all_v(self, array: Array, send_counts: Sequence[int], recv_counts: Sequence[int] | None = None,
        out: Array | None = None, *, async_op: bool = False, timeout: float | None = None, algorithm: str | None = None,
        stream: Any = None) -> Any: ...
    @overload
    def _uneven(self, collective: int, array: Array, out: Array, needed: int, input_counts: Sequence[int] | None,
        output_counts: Sequence[int] | None, result: Any, *, op: str | UserOp = "sum", root: int = -1,
        async_op: Literal[True], timeout: float | None = None, algorithm: str | None = None,
        scalar: float | None = None, stream: Any = None) -> Work: ...
    @overload
    def _uneven(self, collective: int, array: Array, out: Array, needed: int, input_counts: Sequence[int] | None,
        output_counts: Sequence[int] | None, result: Any, *, op: str | UserOp = "sum", root: int = -1,
        async_op: bool = False, timeout: float | None = None, algorithm: str | None = None, scalar: float | None = None,
        stream: Any = None) -> Any: ...
    def _counts(self, counts, what: str = "counts") -> list[int]: ...
    @overload
    def all_reduce_many(self, arrays: Iterable, op: str = "sum", *, async_op: Literal[True],
        timeout: float | None = None, algorithm: str | None = None, scalar: float | None = None,
        stream: Any = None) -> Work: ...
    @overload
    def all_reduce_many(self, arrays: Iterable, op: str = "sum", *, async_op: bool = False,
        timeout: float | None = None, algorithm: str | None = None, scalar: float | None = None,
        stream: Any = None) -> Any: ...
    @overload
    def _all_reduce_many(self, array: list, op: str, *, async_op: Literal[True], timeout: float | None = None,
        algorithm: str | None = None, scalar: float | None = None, stream: Any = None) -> Work: ...
    @overload
    def _all_reduce_many(self, array: list, op: str, *, async_op: bool = False, timeout: float | None = None,
        algorithm: str | None = None, scalar: float | None = None, stream: Any = None) -> Any: ...
    def send(self, array: Array, dest: int, tag: int = 0, *, synchronous: bool = False, timeout: float | None = None,
        stream: Any = None, copy: bool = True) -> None: ...
    def recv(self, array: Array, source: int = ANY_SOURCE, tag: int = ANY_TAG, *, truncate: bool = False,
        timeout: float | None = None, stream: Any = None, copy: bool = True) -> Message: ...
    def isend(self, array: Array, dest: int, tag: int = 0, *, synchronous: bool = False, timeout: float | None = None,
        stream: Any = None) -> Work: ...
    def irecv(self, array: Array, source: int = ANY_SOURCE, tag: int = ANY_TAG, *, truncate: bool = False,
        timeout: float | None = None, stream: Any = None) -> Work: ...
    def sendrecv(self, array: Array, dest: int, out: Array, source: int, tag: int = 0, *, timeout: float | None = None,
        stream: Any = None, copy: bool = True) -> Message: ...
    @overload
    def probe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, *, async_op: Literal[True],
        timeout: float | None = None) -> Work: ...
    @overload
    def probe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, *, async_op: bool = False,
        timeout: float | None = None) -> Any: ...
    def iprobe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Message | None: ...
    @overload
    def mprobe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, *, async_op: Literal[True],
        timeout: float | None = None) -> Work: ...
    @overload
    def mprobe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, *, async_op: bool = False,
        timeout: float | None = None) -> Any: ...
    def improbe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Matched | None: ...
    def mrecv(self, array: Array, matched: Matched, *, truncate: bool = False,
        timeout: float | None = None) -> Message: ...
    def imrecv(self, array: Array, matched: Matched, *, truncate: bool = False,
        timeout: float | None = None) -> Work: ...

COLLECTIVES: tuple[str, ...]
def put_in_place(declared: dict[str, Any], communicator: type) -> None: ...
