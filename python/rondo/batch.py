"""Calls that are submitted together."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

from rondo._library import OfThisProcess, native

if TYPE_CHECKING:
    from rondo.communicator import Communicator


class Batch(OfThisProcess):
    """Calls that are submitted together: `with group.batch(): ...`.

    Calls of this thread on this communicator inside the block check their arguments and return at once; the results
    are there after the block. Consecutive all_reduce() share operations as all_reduce_many() does them. All ranks
    must batch alike. An exception inside the block forgets the calls. A Work of one of them is waited for after the
    block. No nesting, and no call that is made of others, as those of objects: rondo.Invalid.

    >>> with group.batch():
    ...     group.all_reduce(a)
    ...     group.all_reduce(b)
    """

    def __init__(self, communicator: Communicator):
        self._communicator = communicator
        self.thread = 0
        self.kept: list = []

    def collects(self) -> bool:
        """Whether calls of this thread belong to the batch. The compiled module asks in every call meanwhile."""
        return self.thread == threading.get_ident()

    def keep(self, what: Any) -> None:
        """What a call needs until the batch is over."""
        self.kept.append(what)

    def __enter__(self) -> None:
        native.batch_begin(self._communicator._open())
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
            native.batch_abandon(handle)
        else:
            native.batch_end(handle)
        self.kept.clear()
