"""Handles of operations under way."""

from __future__ import annotations

import ctypes
import functools
import itertools
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from rondo import _library
from rondo._arguments import wait_milliseconds
from rondo._arrays import stream_handle
from rondo._handles import OfThisProcess, WorkHandle
from rondo.errors import Error, check, last_error, raised_by_handler

_IN_PROGRESS = 100

_byref = ctypes.byref


class Message(NamedTuple):
    """What recv() received."""

    source: int  # the sender's rank in the communicator
    tag: int
    bytes: int


class _UnderWay(weakref.ref):
    """What an operation under way needs, also where its Work is gone: the handle and the arrays. It refers to the Work."""

    __slots__ = ("handle", "keep")

    def __init__(self, work: Work, function: Callable):
        super().__init__(work, function)
        self.handle = WorkHandle()
        self.keep: Any = None

    def over(self) -> bool:
        if not self.handle:
            return True  # it was not started
        done = ctypes.c_int()
        return _library.lib.rondo_test(self.handle, _byref(done)) != 0 or bool(done.value)


# All of them; and those whose Work is gone. What puts them there are functions in C: a handler of a signal that raises
# on the way in, Ctrl-C's, lets none be lost.
_under_way: set[_UnderWay] = set()
_dropped: set[_UnderWay] = set()


def _sweep() -> None:
    """Lets go of what has ended meanwhile."""
    for dropped in tuple(_dropped):
        if dropped.over():
            _under_way.discard(dropped)
            _dropped.discard(dropped)


class Work(OfThisProcess):
    """An operation under way, from a call with async_op=True, isend() or irecv(). Any thread may use it.

    The arrays of the call are kept until the operation is done, also when nobody keeps the Work.
    `await work` is wait() without blocking the event loop.

    >>> work = group.all_reduce(gradient, async_op=True)
    >>> other_things()
    >>> work.wait()
    """

    __slots__ = ("_state", "_handle", "_result", "_receives", "_ended", "_error", "__weakref__")

    def __init__(self, keep: Any, result: Any, receives: bool = False):
        """Before the call, which writes into _handle: when it returns, everything is in place."""
        self._result = result
        self._receives = receives
        self._ended = False
        self._error: Error | None = None
        _sweep()
        self._state = _UnderWay(self, _dropped.add)
        self._state.keep = (keep, result)
        self._handle = self._state.handle
        _under_way.add(self._state)

    def _started(self, code: int) -> Work:
        """code: of the call."""
        if code:
            if not self._handle:
                self._let_go()
            raise last_error(code)
        return self

    def _let_go(self) -> None:
        _under_way.discard(self._state)
        self._state = None

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
            raised = raised_by_handler()
            if raised is not None:
                raise raised  # in this wait; it is no result of the operation
            self._error = last_error(code)
        elif self._receives:
            message = _library.MessageInfo()
            check(_library.lib.rondo_work_message(self._handle, _byref(message)))
            self._result = Message(message.peer, message.tag, message.bytes)
        self._ended = True
        self._let_go()


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
