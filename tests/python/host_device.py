"""Arrays on a device without a GPU (tests/support/host_device), with `__dlpack__`, as a GPU library would make them."""

import ctypes
import os
import re
from pathlib import Path

import numpy as np

LIBRARY = os.path.join(
    os.environ.get("RONDO_TREE", "."), "bazel-bin/tests/support/host_device/libhost_device.so"
)
# kernels/device.h's table, in its order.
_HEADER = Path(os.environ.get("RONDO_TREE", "."), "kernels/device.h").read_text()
_VERSION = int(re.search(r"kDeviceTableVersion = (\d+);", _HEADER)[1])
_FUNCTIONS = re.findall(r"\(\*(\w+)\)\(", re.search(r"^struct DeviceTable \{.*?^\};", _HEADER, re.M | re.S)[0])


class _Table(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("bytes", ctypes.c_uint32), ("build", ctypes.c_uint64)] + [
        (n, ctypes.c_void_p) for n in _FUNCTIONS
    ]


class _Copy(ctypes.Structure):
    _fields_ = [("to", ctypes.c_void_p), ("source", ctypes.c_void_p)] + [
        (n, ctypes.c_uint64) for n in ("to_pitch", "from_pitch", "row_bytes", "rows")
    ]


class _Tensor(ctypes.Structure):  # DLManagedTensor, version 0
    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p), ("byte_offset", ctypes.c_uint64),
        ("manager", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
    ]  # fmt: skip


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Device:
    """A stream of this process's device. Made after a fork: the device has a thread."""

    def __init__(self):
        library = ctypes.CDLL(LIBRARY)
        library.rondo_device_table.restype = ctypes.POINTER(_Table)
        table = library.rondo_device_table(_VERSION).contents
        assert table.bytes == ctypes.sizeof(_Table)
        status = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 2)
        for name in ("allocate", "lock_host", "make_stream", "synchronize", "copy"):
            setattr(self, name, status(getattr(table, name)))
        stream = ctypes.c_void_p()
        assert self.make_stream(ctypes.addressof(stream), None) == 0
        self.stream = stream.value
        self.arrays = []  # copies of theirs may be under way

    def array(self, values):
        self.arrays.append(DeviceArray(self, np.ascontiguousarray(values)))
        return self.arrays[-1]

    def move(self, to, source, count):
        rows = _Copy(to, source, count, count, count, 1)
        assert self.copy(ctypes.addressof(rows), self.stream) == 0


class DeviceArray:
    """An array of a device, and the page-locked host memory that it is filled from and read to."""

    def __init__(self, device, values):
        self.device, self.host = device, values.copy()
        self.shape, self.dtype = values.shape, values.dtype
        address = ctypes.c_void_p()
        assert device.lock_host(self.host.ctypes.data, self.host.nbytes) == 0
        assert device.allocate(self.host.nbytes, ctypes.addressof(address)) == 0
        self.address = address.value
        device.move(self.address, self.host.ctypes.data, self.host.nbytes)

    def numpy(self):
        """What it holds once the stream has done what is in it."""
        self.device.move(self.host.ctypes.data, self.address, self.host.nbytes)
        assert self.device.synchronize(self.device.stream, None) == 0
        return self.host.copy()

    def __getitem__(self, rows):
        return self, rows  # parts of the output of all_gather_v()

    def __dlpack_device__(self):
        return (2, 0)

    def __dlpack__(self, stream=None, max_version=None):
        assert stream == -1, "Rondo knows the stream; nothing is to be synchronized"
        self._shape = (ctypes.c_int64 * len(self.shape))(*self.shape)
        kind = {"i": 0, "u": 1, "f": 2}[self.dtype.kind]
        self._tensor = _Tensor(
            self.address, 2, 0, len(self.shape), kind, 8 * self.dtype.itemsize, 1, ctypes.addressof(self._shape)
        )
        return _new_capsule(ctypes.addressof(self._tensor), b"dltensor", None)
