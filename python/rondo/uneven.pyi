"""Made by tools/stubs.py from uneven.py."""

from collections.abc import Sequence
from typing import Any, Literal, overload
from rondo._arguments import Array
from rondo.user_op import UserOp
from rondo.work import Work

class UnevenCalls:
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
