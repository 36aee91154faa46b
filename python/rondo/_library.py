"""The library of the C API and the compiled module that calls it, found and loaded."""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING

_HERE = os.path.dirname(os.path.realpath(__file__))  # without pathlib, which takes 10 ms to import
_NAME = "librondo_c.so.0.2"


def find() -> str:
    """RONDO_LIBRARY, or else the library that came with this package."""
    chosen = os.environ.get("RONDO_LIBRARY")
    if chosen:
        if not os.path.isfile(chosen):
            raise ImportError(f"RONDO_LIBRARY is {chosen}, and there is no such file; it names {_NAME}")
        return os.path.abspath(chosen)
    path = os.path.join(_HERE, "_native", _NAME)
    if not os.path.isfile(path):
        raise ImportError(
            f"this copy of rondo, in {_HERE}, came without {_NAME}: install it (pip install ./python), or name the "
            "library by RONDO_LIBRARY"
        )
    return path


def _load():
    path = find()
    try:
        ctypes.CDLL(path)  # what is loaded under its name is what _rondo takes
    except OSError as error:
        raise ImportError(f"{path} cannot be loaded: {error}") from None
    try:
        import _rondo
    except ModuleNotFoundError:
        raise ImportError(f"this copy of rondo, in {_HERE}, came without _rondo.abi3.so: pip install ./python") from None
    except ImportError as error:
        raise ImportError(f"{path} is of another version than this package: {error}") from None
    return _rondo


if TYPE_CHECKING:
    from rondo import _rondo as native
else:
    native = _load()


class OfThisProcess:
    """Base of what stands for something in this process: neither copied nor pickled."""

    __slots__ = ()

    def __reduce_ex__(self, protocol):
        raise TypeError(
            f"a {type(self).__name__} stands for a handle of this process: it cannot be pickled or copied; another process "
            "makes its own by rondo.init()"
        )
