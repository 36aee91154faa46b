"""The collectives of blocks of unequal length. tools/stubs.py makes the types of it, uneven.pyi."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rondo._arguments import (
    Array,
    counts_of_peers,
    elements_of,
    new_like,
    parts_of,
    rows_of,
    shape_of,
    whole_number,
    whole_numbers,
)
from rondo.errors import Invalid

if TYPE_CHECKING:
    from rondo.user_op import UserOp

_REDUCE_SCATTER, _ALL_GATHER, _GATHER, _SCATTER, _ALL_TO_ALL = 1, 2, 5, 6, 7  # of rondo.h


class UnevenCalls:
    """A part of Communicator. Counts are rows: entries of the first dimension, one count a rank."""

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
