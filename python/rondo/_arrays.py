"""What a caller passes as an array: NumPy, the buffer protocol, DLPack. Where it lies, how long it is, of which type."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np

from rondo._dtypes import CODES, dtype_name

_one_byte = ctypes.c_char.from_buffer
_address_of = ctypes.addressof
_new_tuple = tuple.__new__  # Buffer(...) passes through a function of Python


Array = Any  # a NumPy array, an object with __dlpack__, or one with the buffer protocol


class Buffer(NamedTuple):
    """Contiguous memory. `owner` keeps it alive."""

    address: int
    count: int  # elements
    code: int  # rondo_dtype_t
    owner: Any


class DeviceBuffer(Buffer):
    """Of a GPU: only for calls with `stream`."""


# Whether there has been a DeviceBuffer: without one, calls need not look for them.
device_seen = False


def check_device(buffers: Any, stream: Any) -> None:
    """All of `buffers` are of a GPU if there is a stream, and none of them otherwise: else TypeError."""
    for buffer in buffers if type(buffers) in (tuple, list) else (buffers,):
        if isinstance(buffer, DeviceBuffer):
            if stream is None:
                raise TypeError("an array is in GPU memory: pass the stream that it is used in, as stream=")
        elif buffer is not None and stream is not None:
            raise TypeError("an array is in host memory: with stream= all arrays, out too, are in GPU memory")


def stream_handle(stream: Any) -> int:
    """A cudaStream_t as a number: of a number, or of an object of PyTorch or CuPy."""
    for name in ("cuda_stream", "ptr"):
        stream = getattr(stream, name, stream)
    if isinstance(stream, int) and not isinstance(stream, bool) and 0 <= stream < 2**64:
        return stream
    raise TypeError(f"stream is {stream!r}: it is a cudaStream_t as a number, or a stream of PyTorch or CuPy")


def buffer_of(array: Any, writes: bool, what: str = "array") -> Buffer:
    """The memory of `array`. TypeError: no array, or on a device that is no GPU; ValueError: not contiguous, or read-only where the
    call writes it."""
    if type(array) is np.ndarray:
        try:  # from_buffer() refuses what is read-only, not contiguous, or empty
            address = _address_of(_one_byte(array))
        except (TypeError, ValueError):
            return _checked_buffer_of(array, writes, what)
        code = CODES[array.dtype]
        if code is not None:
            return _new_tuple(Buffer, (address, array.size, code, array))
    return _checked_buffer_of(array, writes, what)


def _checked_buffer_of(array: Any, writes: bool, what: str) -> Buffer:
    """buffer_of() that finds out what is wrong."""
    if type(array) is not np.ndarray:
        array = as_numpy_or_buffer(array, writes, what)
        if isinstance(array, Buffer):
            return array
    flags = array.flags
    if not flags.c_contiguous:
        raise ValueError(
            f"{what} of shape {array.shape} is not contiguous (strides {array.strides}): pass "
            "numpy.ascontiguousarray(array), and copy results back where you need them"
        )
    if writes and not flags.writeable:
        raise ValueError(f"{what} is read-only, and this call writes to it")
    code = CODES[array.dtype]
    if code is None:
        raise TypeError(f"{what} has dtype {array.dtype}; Rondo has {', '.join(map(dtype_name, sorted(CODES.values())))}")
    return Buffer(array.ctypes.data, array.size, code, array)


def as_numpy_or_buffer(array: Any, writes: bool, what: str) -> Any:
    """A NumPy array on the same memory, or a Buffer where NumPy lacks the type."""
    if isinstance(array, (np.ndarray, np.generic)):
        if isinstance(array, np.generic):
            raise TypeError(f"{what} is a NumPy scalar: pass an array, such as numpy.array({array!r})")
        return np.asarray(array)
    if hasattr(array, "__dlpack__"):
        return _from_dlpack(array, writes, what)
    try:
        return np.frombuffer(array, dtype=_format_of(array, what))
    except TypeError:
        raise TypeError(
            f"{what} is {type(array).__name__}; Rondo takes NumPy arrays, objects with __dlpack__ (such as a torch "
            "tensor in host memory), and objects with the buffer protocol"
        ) from None


def _format_of(array: Any, what: str) -> np.dtype:
    view = memoryview(array)
    if not view.c_contiguous:
        raise ValueError(f"{what} is not contiguous")
    return np.dtype("u1" if view.format == "c" else view.format)


# --- DLPack (dlpack.h): a capsule that nobody consumes frees its tensor when it goes, so it is the owner.


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("type_code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("vector_lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _DLManagedTensorVersioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _DLTensor),
    ]


_READ_ONLY = 1  # of flags

_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_capsule_is = ctypes.pythonapi.PyCapsule_IsValid
_capsule_is.restype = ctypes.c_int
_capsule_is.argtypes = [ctypes.py_object, ctypes.c_char_p]


def _exported(array: Any, on_device: bool) -> tuple[Any, _DLTensor, bool]:
    """The capsule, its tensor, and whether it is read-only (which version 0 cannot say)."""
    # -1: no synchronization, since the caller says in which stream the memory is used.
    options = {"stream": -1} if on_device else {}
    try:
        capsule = array.__dlpack__(max_version=(1, 0), **options)
    except TypeError:
        capsule = array.__dlpack__(**options)
    if _capsule_is(capsule, b"dltensor_versioned"):
        managed = _DLManagedTensorVersioned.from_address(_capsule_pointer(capsule, b"dltensor_versioned"))
        return capsule, managed.tensor, bool(managed.flags & _READ_ONLY)
    return capsule, _DLTensor.from_address(_capsule_pointer(capsule, b"dltensor")), False


_HOST_DEVICES = (1, 3, 11)  # kDLCPU, kDLCUDAHost, kDLROCMHost
_GPU_DEVICES = (2, 13)  # kDLCUDA, kDLCUDAManaged
_DEVICE_NAMES = {10: "ROCm", 8: "Metal", 14: "oneAPI", 7: "Vulkan"}
# (DLDataTypeCode, bits) to rondo_dtype_t.
_DLPACK_CODES = {
    (0, 8): 0, (1, 8): 1, (0, 16): 2, (1, 16): 3, (0, 32): 4, (1, 32): 5, (0, 64): 6, (1, 64): 7,
    (2, 16): 8, (4, 16): 9, (2, 32): 10, (2, 64): 11, (6, 8): 12,
    (10, 8): 13, (12, 8): 14,  # kDLFloat8_e4m3fn, kDLFloat8_e5m2
}  # fmt: skip


def _from_dlpack(array: Any, writes: bool, what: str) -> Buffer:
    global device_seen
    device, index = array.__dlpack_device__()
    on_device = int(device) in _GPU_DEVICES
    if not on_device and int(device) not in _HOST_DEVICES:
        name = _DEVICE_NAMES.get(int(device), f"DLPack device type {int(device)}")
        raise TypeError(f"{what} is on {name} device {index}; Rondo takes host memory, and CUDA's: copy it there")
    if getattr(array, "requires_grad", False):
        raise TypeError(f"{what} requires a gradient: pass array.detach(), which shares its memory")
    capsule, tensor, read_only = _exported(array, on_device)
    if writes and read_only:
        raise ValueError(f"{what} is read-only, and this call writes to it")
    shape = tensor.shape[: tensor.ndim]
    count = 1
    for extent in shape:
        count *= extent
    if tensor.strides and count > 1:
        expected = 1
        for extent, stride in zip(reversed(shape), reversed(tensor.strides[: tensor.ndim])):
            if extent != 1 and stride != expected:
                raise ValueError(f"{what} of shape {tuple(shape)} is not contiguous: pass array.contiguous()")
            expected *= extent
    code = _DLPACK_CODES.get((tensor.type_code, tensor.bits)) if tensor.vector_lanes == 1 else None
    if code is None:
        raise TypeError(f"{what} has DLPack type code {tensor.type_code} of {tensor.bits} bits, which Rondo lacks")
    if on_device:
        device_seen = True
    kind = DeviceBuffer if on_device else Buffer
    return kind((tensor.data or 0) + tensor.byte_offset, count, code, (array, capsule))
