"""What calls take by keyword beside `async_op`, for type checkers."""

from typing import Any, TypedDict

from rondo.wire import Wire


class Timed(TypedDict, total=False):
    timeout: float | None


class Chosen(Timed, total=False):
    algorithm: str | None


class Streamed(Chosen, total=False):
    stream: Any


class Moved(Streamed, total=False):
    copy: bool


class Wired(Moved, total=False):
    wire: Wire | str | None


class Scaled(TypedDict, total=False):
    scalar: float | None


class Reduced(Moved, Scaled, total=False):
    pass


class WiredReduced(Wired, Scaled, total=False):
    pass


class AllReduced(WiredReduced, total=False):
    recoverable: bool


class Scanned(Chosen, Scaled, total=False):
    copy: bool


class StreamedReduced(Streamed, Scaled, total=False):
    pass


class Waited(Timed, total=False):
    stream: Any
