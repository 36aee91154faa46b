"""What ranks of spawn() print, as lines of this process with "[rank] " before them."""

from __future__ import annotations

import os
import selectors
import sys
import threading
import time
from multiprocessing.connection import Connection

# For what a rank has left running, which may hold its outputs for ever.
_LAST_SECONDS = 1.0


class Relay:
    """A thread that passes lines on, from the first add() to close()."""

    def __init__(self, context):
        self._context = context
        self._selector = selectors.DefaultSelector()
        self._until = float("inf")
        self._thread = threading.Thread(target=self._run, name="rondo output", daemon=True)

    def add(self, rank: int) -> tuple[Connection, Connection]:
        """The ends of the rank's standard output and error, for redirect() and then to be closed here."""
        ends = []
        for stream in (sys.stdout, sys.stderr):
            ours, theirs = self._context.Pipe(duplex=False)
            self._selector.register(ours, selectors.EVENT_READ, (stream, f"[{rank}] ".encode(), bytearray()))
            ends.append(theirs)
        return ends[0], ends[1]

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """All ranks have ended."""
        self._until = time.monotonic() + _LAST_SECONDS
        if self._thread.ident is not None:
            self._thread.join()
        self._selector.close()

    def _run(self) -> None:
        while self._selector.get_map() and time.monotonic() < self._until:
            for key, _ in self._selector.select(0.1):
                stream, prefix, rest = key.data
                came = os.read(key.fd, 1 << 16)
                rest += came
                lines = rest[: rest.rfind(b"\n") + 1] if came else rest + (b"\n" if rest else b"")
                del rest[: len(lines)]
                _write(stream, b"".join(prefix + line for line in lines.splitlines(keepends=True)))
                if not came:
                    self._selector.unregister(key.fileobj)
                    key.fileobj.close()
        for key in list(self._selector.get_map().values()):
            stream, prefix, rest = key.data
            _write(stream, prefix + rest + b"\n" if rest else b"")
            key.fileobj.close()


def _write(stream, data: bytes) -> None:
    if data and stream is not None:
        try:
            stream.write(data.decode(errors="replace"))
            stream.flush()
        except (OSError, ValueError):
            pass  # closed: nobody reads it


def redirect(*ends: Connection) -> None:
    """In the rank: its outputs, also of other languages, go there."""
    for number, (end, stream) in enumerate(zip(ends, (sys.stdout, sys.stderr)), 1):
        os.dup2(end.fileno(), number)
        end.close()
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(line_buffering=True)
