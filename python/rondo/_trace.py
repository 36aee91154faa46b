"""rondo.trace(): a trace for a part of a program."""

from __future__ import annotations

import os

from rondo import communicator
from rondo._library import native


class trace:
    """Traces what this process's communicators do, from here on, or in a `with` block. Not collective, but useful when
    all ranks do it. `rondo-trace report FOLDER` shows the result (docs/traces.md).

    >>> with rondo.trace("steps-100-to-110"):
    ...     train(10)

    The folder gets rank-R.rondo-trace; one that is there is replaced. Raises ValueError if no communicator is open
    (RONDO_TRACE=folder traces from the start), a rondo.Error if the file cannot be made.
    """

    def __init__(self, folder: str | os.PathLike):
        self._joined = [group for group in communicator._open_ones.values() if group._joined]
        if not self._joined:
            raise ValueError("rondo.trace() before rondo.init(): set RONDO_TRACE to trace from the start")
        for group in self._joined:
            native.trace_start(group._open(), os.fsencode(folder))

    def stop(self) -> None:
        """Ends the trace; the file stays."""
        for group in self._joined:
            handle = group._handle
            if handle is not None:
                native.trace_stop(handle)

    def __enter__(self) -> trace:
        return self

    def __exit__(self, *_) -> None:
        self.stop()
