"""Handles of operations under way."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

from rondo._arguments import stream_handle, wait_milliseconds
from rondo._library import OfThisProcess, native
from rondo.errors import Error


class Message(NamedTuple):
    """What recv() received."""

    source: int  # the sender's rank in the communicator
    tag: int
    bytes: int


class Matched(NamedTuple):
    """A message that mprobe() or improbe() found: mrecv() receives it, and nothing else does."""

    source: int
    tag: int
    bytes: int
    matched: int  # its number on this rank


class Work(native.Work, OfThisProcess):
    """An operation under way, from a call with async_op=True, isend() or irecv(). Any thread may use it.

    The arrays of the call are kept until the operation is done, also when nobody keeps the Work.
    `await work` is wait() without blocking the event loop.

    >>> work = group.all_reduce(gradient, async_op=True)
    >>> other_things()
    >>> work.wait()
    """

    __slots__ = ("__weakref__",)

    def wait(self, timeout: float | None = None) -> Any:
        """Waits until the operation is done and returns what the blocking call returns. Raises the operation's
        failure; TimeoutError if it is still under way after `timeout` seconds: then it goes on."""
        if not self._wait(wait_milliseconds(timeout)):
            raise TimeoutError(f"the operation is still under way after {timeout} s; it goes on")
        if self._error is not None:
            # The traceback refers to frames, and they to this Work, which no garbage collector visits.
            raise copy.copy(self._error)
        return self._result

    def cancel(self) -> bool:
        """Takes back a receive that no message has met, or a probe: True, and wait() raises rondo.Cancelled. Anything
        else goes on, or has ended: False."""
        return self._cancel()

    def wait_on(self, stream: Any) -> None:
        """Of a call with `stream`: what is put into this stream from now on runs after the operation."""
        self._wait_on(stream_handle(stream))

    def done(self) -> bool:
        """Whether it has succeeded or failed: nothing touches the arrays any more."""
        return self._wait(0)

    def add_done_callback(self, function: Callable[[Work], object]) -> None:
        """Calls function(work) once it is done, or soon if it is, on a thread of the library. The function may start
        calls with async_op=True and must not wait: blocking calls raise rondo.Invalid there. Other operations that no
        thread waits for stand still while it runs. What it raises goes to sys.unraisablehook.

        >>> work.add_done_callback(lambda work: done.set())
        """
        if not callable(function):
            raise TypeError(f"function is {type(function).__name__}; a callable is needed")
        self._on_end(function)

    def exception(self) -> Error | None:
        """The failure of an operation that is done, else None."""
        return self._error if self.done() else None

    def __await__(self):
        if not self.done():
            import asyncio  # here, because it takes longer to import than this package

            loop = asyncio.get_running_loop()
            ended = loop.create_future()
            self.add_done_callback(lambda _work: _tell(loop, ended))
            yield from ended.__await__()
        return self.wait()


def _tell(loop, future) -> None:
    """The coroutine goes on. On a thread of the library."""
    try:
        loop.call_soon_threadsafe(lambda: future.done() or future.set_result(None))
    except RuntimeError:
        pass  # the loop has been closed: nobody waits any more
