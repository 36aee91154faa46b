"""A call's arguments, checked; shapes and parts of its results. The compiled module calls what it has no faster way for."""

from __future__ import annotations

import contextlib
import math
import operator
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rondo._library import native
from rondo.errors import Corrupt, Invalid

Array = Any  # a NumPy array, an object with __dlpack__, or one with the buffer protocol
INT_MAX = 2**31 - 1
COUNT_MAX = 2**64 - 1
# The longest timeout: as good as none, and C's int64_t holds it and sums of it.
_LONGEST_MS = 2**62


def _on(rank: int | None) -> str:
    return "" if rank is None else f" on rank {rank}"


def whole_number(value: Any, what: str, rank: int | None = None, *, least: int = -(2**31), most: int = INT_MAX) -> int:
    """Every integer of a caller's passes through here, or is an int of C's. rank: of the caller, for the text."""
    if type(value) is not int:
        if isinstance(value, (bool, np.bool_)) or not hasattr(value, "__index__"):
            raise TypeError(f"{what} is {value!r}{_on(rank)}: it is a whole number")
        try:
            value = operator.index(value)
        except TypeError:
            raise TypeError(f"{what} is {value!r}{_on(rank)}: it is a whole number") from None
    if not least <= value <= most:
        raise Invalid(f"{what} is {value}{_on(rank)}: it is a whole number from {least} to {most}")
    return value


def whole_numbers(values: Any, what: str, rank: int | None = None, *, least: int = 0, most: int = COUNT_MAX) -> list[int]:
    """The entries of a list, named what[0], what[1], ..."""
    try:
        values = list(values)
    except TypeError:
        raise TypeError(f"{what} is {values!r}{_on(rank)}: it is a list of whole numbers") from None
    return [whole_number(value, f"{what}[{i}]", rank, least=least, most=most) for i, value in enumerate(values)]


def real_number(value: Any, what: str, rank: int | None = None) -> float:
    if isinstance(value, (bool, np.bool_, str, bytes)) or not hasattr(value, "__float__"):
        raise TypeError(f"{what} is {value!r}{_on(rank)}: it is a number")
    try:
        return float(value)
    except OverflowError:
        raise Invalid(f"{what}{_on(rank)} is beyond float64, whose largest is {sys.float_info.max:.4g}") from None
    except TypeError:  # an array of several, or a span of time
        raise TypeError(f"{what} is {value!r}{_on(rank)}: it is a number") from None


def text_of(value: Any, what: str, rank: int | None = None) -> bytes:
    if not isinstance(value, str):
        raise TypeError(f"{what} is {value!r}{_on(rank)}: it is a text")
    with contextlib.suppress(UnicodeEncodeError):
        if "\0" not in value:
            return value.encode()
    raise Invalid(f"{what} is {value!r}{_on(rank)}: it is a text of UTF-8 without NUL")


def reason_of(text: str) -> bytes:
    """A failure's text, for people: NUL, and what UTF-8 lacks (bytes of a file's name), are escaped."""
    return text.encode(errors="backslashreplace").replace(b"\0", b"\\x00")


_OPS_OF_NUMPY = {
    "add": "sum", "mean": "avg", "average": "avg", "prod": "product", "multiply": "product", "minimum": "min",
    "maximum": "max", "amin": "min", "amax": "max", "bitwise_and": "band", "bitwise_or": "bor", "bitwise_xor": "bxor",
    "logical_and": "land", "logical_or": "lor", "logical_xor": "lxor", "sum": "sum", "min": "min", "max": "max",
}  # fmt: skip


_OPS = ("sum", "product", "min", "max", "avg", "band", "bor", "bxor", "land", "lor", "lxor", "premulsum")


def op_meant(op: Any) -> str | None:
    """Of other ways to say it: NumPy's functions, as np.add, and their names; "SUM", and torch's ReduceOp.SUM."""
    op = getattr(op, "op", op)  # of a ReduceOp that is none of its constants
    name = op if isinstance(op, str) else getattr(op, "__name__", None) or getattr(op, "name", None)
    if not isinstance(name, str):
        return None
    name = name.lower().replace("_", "") if name.isupper() else name
    return name if name in _OPS and name != op else _OPS_OF_NUMPY.get(name)


def _milliseconds_of(timeout: Any, least: float, rank: int | None) -> int:
    given = timeout.total_seconds() if hasattr(timeout, "total_seconds") else timeout  # of a timedelta
    seconds = real_number(given, "timeout", rank)
    if not seconds >= least:  # NaN too
        raise Invalid(f"timeout is {timeout}{_on(rank)}: it is a positive number of seconds, or None")
    return _LONGEST_MS if seconds * 1000 >= _LONGEST_MS else math.ceil(seconds * 1000)


def milliseconds(timeout: Any, rank: int) -> int:
    """Of an operation; 0: the configured time."""
    return 0 if timeout is None else max(1, _milliseconds_of(timeout, math.ulp(0.0), rank))


def wait_milliseconds(timeout: Any) -> int:
    """Of a wait, which may look only; -1: until the end."""
    return -1 if timeout is None else _milliseconds_of(timeout, 0.0, None)


def stream_handle(stream: Any) -> int:
    """A cudaStream_t as a number: of a number, or of an object of PyTorch or CuPy."""
    for name in ("cuda_stream", "ptr"):
        stream = getattr(stream, name, stream)
    if isinstance(stream, int) and not isinstance(stream, bool) and 0 <= stream < 2**64:
        return stream
    raise TypeError(f"stream is {stream!r}: it is a cudaStream_t as a number, or a stream of PyTorch or CuPy")


# The library's names of types that NumPy lacks.
_NAMES_IN_ML_DTYPES = {"bfloat16": "bfloat16", "float8_e4m3": "float8_e4m3fn", "float8_e5m2": "float8_e5m2"}


def numpy_dtype(dtype: Any) -> np.dtype:
    """NumPy's type of what the library takes for one. ml_dtypes has another one under the name "float8_e4m3"."""
    name = _NAMES_IN_ML_DTYPES.get(dtype) if isinstance(dtype, str) else None
    if name is None:
        return np.dtype(dtype)
    try:
        import ml_dtypes  # here, because few need it
    except ImportError:
        raise TypeError(f"dtype {dtype} is a type of the package ml_dtypes: pip install ml_dtypes") from None
    return np.dtype(getattr(ml_dtypes, name))


# dlpack.h: DLDeviceType.
_HOST_DEVICES = (1, 3, 11)  # kDLCPU, kDLCUDAHost, kDLROCMHost
_GPU_DEVICES = (2, 13)  # kDLCUDA, kDLCUDAManaged
_DEVICE_NAMES = {10: "ROCm", 8: "Metal", 14: "oneAPI", 7: "Vulkan"}


def exported(array: Any, what: str, writes: bool) -> tuple[Any, bool]:
    """Of what is no NumPy array: one on the same memory, or a capsule of DLPack; and whether that is of a GPU."""
    if isinstance(array, np.generic):
        raise TypeError(f"{what} is a NumPy scalar: pass an array, such as numpy.array({array!r})")
    if writes and _never_changes(array):
        raise ValueError(f"{what} is read-only, and this call writes to it: JAX's arrays never change. Pass numpy.array({what})")
    if hasattr(array, "__dlpack__"):
        return _from_dlpack(array, what)
    try:
        view = memoryview(array)
        if not view.c_contiguous:
            raise ValueError(f"{what} is not contiguous")
        return np.frombuffer(array, np.dtype("u1" if view.format == "c" else view.format)), False
    except TypeError:
        raise TypeError(
            f"{what} is {type(array).__name__}; Rondo takes NumPy arrays, objects with __dlpack__ (such as a torch "
            f"tensor in host memory), and objects with the buffer protocol: {_instead_of(array)}"
        ) from None


def _never_changes(array: Any) -> bool:
    """JAX's arrays export their memory as if it could be written to."""
    known = getattr(sys.modules.get("jax"), "Array", None)
    return known is not None and isinstance(array, known)


def _instead_of(value: Any) -> str:
    if isinstance(value, Mapping):
        return "pass its values, as all_reduce_many(list(x.values())) or a call for each"
    if isinstance(value, (str, bytes)):
        return "send text and other objects by broadcast_object() and its like"
    if isinstance(value, (int, float, complex, Sequence)):
        return f"pass numpy.asarray({'x' if isinstance(value, Sequence) else repr(value)}), which results are written to"
    return "pass an array of its numbers, or send it by broadcast_object() and its like"


def _from_dlpack(array: Any, what: str) -> tuple[Any, bool]:
    try:
        return _shared_by_dlpack(array, what)
    except (BufferError, ValueError, RuntimeError) as error:
        if getattr(array, "is_meta", False):
            why = "has no memory: pass a tensor on the CPU or a CUDA device"
        elif getattr(array, "is_sparse", False):
            why = "is sparse: pass array.to_dense(), or its indices and values"
        else:
            why = f"does not share its memory ({error}): pass a dense array of numbers"
        raise TypeError(f"{what} is a {type(array).__name__} that {why}") from error


def _shared_by_dlpack(array: Any, what: str) -> tuple[Any, bool]:
    device, index = map(int, array.__dlpack_device__())
    on_device = device in _GPU_DEVICES
    if not on_device and device not in _HOST_DEVICES:
        name = _DEVICE_NAMES.get(device, f"DLPack device type {device}")
        raise TypeError(f"{what} is on {name} device {index}; Rondo takes host memory, and CUDA's: copy it there")
    if getattr(array, "requires_grad", False):
        raise TypeError(f"{what} requires a gradient: pass array.detach(), which shares its memory")
    # -1: no synchronization, since the caller says in which stream the memory is used.
    options = {"stream": -1} if on_device else {}
    try:
        return array.__dlpack__(max_version=(1, 0), **options), on_device
    except TypeError:
        return array.__dlpack__(**options), on_device


def shape_of(array) -> tuple[int, ...]:
    shape = getattr(_shaped(array), "shape", None)
    return tuple(shape) if shape is not None else (len(array),)


def _shaped(array):
    """A NumPy array on the same memory, where `array` has the buffer protocol and no shape, such as a bytearray."""
    if not hasattr(array, "shape"):
        with contextlib.suppress(TypeError):
            return np.asarray(memoryview(array))
    return array


def first_of(array) -> int:
    return (*shape_of(array), 1)[0]


def part_shape(array, size: int) -> tuple[int, ...]:
    shape = shape_of(array)
    return (shape[0] // size, *shape[1:]) if shape else (1,)


def rows_of(array) -> tuple[int, int]:
    """Entries of the first dimension, and elements of each."""
    native.check_array(array)
    shape = shape_of(array)
    if not shape:
        raise ValueError("array has no dimension, so it has no rows")
    return shape[0], math.prod(shape[1:])


def elements_of(counts: list[int], row: int) -> list[int]:
    return [count * row for count in counts]


def counts_of_peers(counts: Sequence[int], row: int, rank: int, first: int = 0) -> list[int]:
    """Rows of `row` elements that the peers, from rank `first` on, say they send. None is used before it was compared
    here: together they fit an array of the widest elements."""
    room = sys.maxsize // (8 * max(row, 1))
    for peer, count in enumerate(counts, first):
        if count > room:
            raise Corrupt(
                f"rank {rank}: rank {peer} says that it sends {count} rows; with those before them they fit no array. Its "
                "memory or its program is damaged: check that host, and that all ranks run the same version",
                (peer,),
            )
        room -= count
    return list(counts)


def parts_of(out, counts: list[int]) -> list:
    out = _shaped(out)  # parts of a bytearray would be copies
    parts, begin = [], 0
    for count in counts:
        parts.append(out[begin : begin + count])
        begin += count
    return parts


def new_like(array, shape: tuple[int, ...]):
    if isinstance(array, np.ndarray):
        return np.empty(shape, array.dtype)
    if hasattr(array, "new_empty"):  # a torch tensor
        return array.new_empty(shape)
    raise TypeError(f"pass out: no array like {type(array).__name__} can be made")


# New arrays for the results of calls that were given none.


def new_gathered(array, size: int):
    return new_like(array, (size, *shape_of(array)))


def new_part(array, size: int):
    return new_like(array, part_shape(array, size))


def new_scattered(array, size: int):
    shape = part_shape(array, size)
    return new_like(array, shape[1:] if shape[:1] == (1,) else shape)


def new_same(array, _size: int):
    return new_like(array, shape_of(array))
