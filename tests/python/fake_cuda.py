"""Arrays on a device without a GPU (tests/support/fake_cuda), with `__dlpack__`, as a GPU library would make them."""

import ctypes
import os

import numpy as np

LIBRARY = os.path.join(os.environ.get("RONDO_TREE", "."), "bazel-bin/tests/support/fake_cuda/libcuda.so.1")


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
        self.library = ctypes.CDLL(LIBRARY)
        context, stream = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxSetCurrent", context)
        self.call("cuStreamCreate", ctypes.byref(stream), 1)
        self.stream = stream.value
        self.arrays = []  # copies of theirs may be under way

    def call(self, name, *arguments):
        """A function of the driver."""
        function, found = ctypes.c_void_p(), ctypes.c_int()
        self.library.cuGetProcAddress_v2(name.encode(), ctypes.byref(function), 13000, 0, ctypes.byref(found))
        kinds = [ctypes.c_size_t if isinstance(a, int) else ctypes.c_void_p for a in arguments]
        assert ctypes.CFUNCTYPE(ctypes.c_int, *kinds)(function.value)(*arguments) == 0, name

    def array(self, values):
        self.arrays.append(DeviceArray(self, np.ascontiguousarray(values)))
        return self.arrays[-1]

    def move(self, to, source, count):
        self.call("cuMemcpyAsync", to, source, count, self.stream)


class DeviceArray:
    """An array of a device, and the page-locked host memory that it is filled from and read to."""

    def __init__(self, device, values):
        self.device, self.host = device, values.copy()
        self.shape, self.dtype = values.shape, values.dtype
        address = ctypes.c_void_p()
        device.call("cuMemHostRegister", self.host.ctypes.data, self.host.nbytes, 3)
        device.call("cuMemAlloc", ctypes.byref(address), self.host.nbytes)
        self.address = address.value
        device.move(self.address, self.host.ctypes.data, self.host.nbytes)

    def numpy(self):
        """What it holds once the stream has done what is in it."""
        self.device.move(self.host.ctypes.data, self.address, self.host.nbytes)
        self.device.call("cuStreamSynchronize", self.device.stream)
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
