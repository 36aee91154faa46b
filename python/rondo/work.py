"""Handles of operations under way."""

from __future__ import annotations

import ctypes
import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

from rondo import _library
from rondo._arguments import wait_milliseconds
from rondo._arrays import stream_handle
from rondo.errors import Error, check, last_error

_IN_PROGRESS = 100

_byref = ctypes.byref


class Message(NamedTuple):
    """What recv() received."""

    source: int  # the sender's rank in the communicator
    tag: int
    bytes: int


class Work:
    """An operation under way, from a call with async_op=True, isend() or irecv(). Any thread may use it.

    The arrays of the call are kept until the operation is done, also when nobody keeps the Work.
    `await work` is wait() without blocking the event loop.

    >>> work = group.all_reduce(gradient, async_op=True)
    >>> other_things()
    >>> work.wait()
    """

    __slots__ = ("_handle", "_keep", "_result", "_receives", "_ended", "_error")

    def __init__(self, handle: int, keep: Any, result: Any, receives: bool = False):
        self._handle = handle
        self._keep = keep
        self._result = result
        self._receives = receives
        self._ended = False
        self._error: Error | None = None
        _sweep()

    def wait(self, timeout: float | None = None) -> Any:
        """Waits until the operation is done and returns what the blocking call returns. Raises the operation's
        failure; TimeoutError if it is still under way after `timeout` seconds: then it goes on."""
        if not self._ended:
            code = _library.lib.rondo_wait(self._handle, wait_milliseconds(timeout))
            if code == _IN_PROGRESS:
                raise TimeoutError(f"the operation is still under way after {timeout} s; it goes on")
            self._end(code)
        if self._error is not None:
            raise self._error
        return self._result

    def wait_on(self, stream: Any) -> None:
        """Of a call with `stream`: what is put into this stream from now on runs after the operation."""
        check(_library.lib.rondo_work_wait_on(self._handle, stream_handle(stream)))

    def done(self) -> bool:
        """Whether it has succeeded or failed: nothing touches the arrays any more."""
        if not self._ended:
            done = ctypes.c_int()
            check(_library.lib.rondo_test(self._handle, _byref(done)))
            if done.value:
                self._end(_library.lib.rondo_wait(self._handle, 0))
        return self._ended

    def add_done_callback(self, function: Callable[[Work], object]) -> None:
        """Calls function(work) once it is done, or soon if it is, on a thread of the library. The function may start
        calls with async_op=True and must not wait: blocking calls raise rondo.Invalid there. Other operations that no
        thread waits for stand still while it runs. What it raises goes to sys.unraisablehook.

        >>> work.add_done_callback(lambda work: done.set())
        """
        if not callable(function):
            raise TypeError(f"function is {type(function).__name__}; a callable is needed")
        key = next(_callback_keys)
        _callbacks[key] = (self, function)
        code = _library.lib.rondo_work_on_end(self._handle, _end_function(), key)
        if code:
            del _callbacks[key]
            raise last_error(code)

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

    def _end(self, code: int) -> None:
        if code != 0:
            self._error = last_error(code)
        elif self._receives:
            message = _library.MessageInfo()
            check(_library.lib.rondo_work_message(self._handle, _byref(message)))
            self._result = Message(message.peer, message.tag, message.bytes)
        self._ended = True
        self._keep = None

    def __del__(self):  # only here the handle is freed: another thread may be in a call with it
        if getattr(self, "_ended", None) is None:
            return
        if self._ended:
            _library.lib.rondo_work_free(self._handle)
        else:
            _detached.append((self._handle, self._keep))


# What is to be called for works under way, by a number that rondo_work_on_end is given.
_callbacks: dict[int, tuple[Work, Callable[[Work], object]]] = {}
_callback_keys = itertools.count(1)


def _call_back(key, code) -> None:
    work, function = _callbacks.pop(key)
    if not work._ended:
        work._end(code)
    function(work)


@functools.cache
def _end_function():
    return _library.EndFunction(_call_back)


def _tell(loop, future) -> None:
    """The coroutine goes on. On a thread of the library."""
    try:
        loop.call_soon_threadsafe(lambda: future.done() or future.set_result(None))
    except RuntimeError:
        pass  # the loop has been closed: nobody waits any more


# Operations whose Work is gone, with their arrays.
_detached: list[tuple[int, Any]] = []


def _sweep() -> None:
    """Lets go of what has been done meanwhile."""
    if not _detached:
        return
    pending = []
    while _detached:
        handle, keep = _detached.pop()
        done = ctypes.c_int()
        if _library.lib.rondo_test(handle, _byref(done)) == 0 and not done.value:
            pending.append((handle, keep))
        else:
            _library.lib.rondo_work_free(handle)
    _detached.extend(pending)
