"""What may be passed as an array, and what is refused in which words."""

import array
import ctypes
import sys
import types

import ml_dtypes
import numpy as np
import pytest

import rondo
from rondo._library import native
from rondo.user_op import Fold

NAMES = (
    "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "bfloat16", "float32", "float64",
    "bool", "float8_e4m3", "float8_e5m2",
)  # fmt: skip


def buffer_of(array, writes, what="array"):
    """(address, count, name of the type, what keeps the memory)"""
    return native.buffer_of(array, writes, what)


@pytest.mark.parametrize("dtype", [n for n in NAMES if not n.startswith(("bfloat16", "float8"))])
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 5)])
def test_numpy(dtype, shape):
    x = np.zeros(shape, dtype)
    buffer = buffer_of(x, True)
    assert buffer[1:3] == (x.size, dtype)
    if x.size:
        assert buffer[0] == x.ctypes.data


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3", "float8_e5m2"])
def test_types_of_ml_dtypes(name):
    x = np.ones(4, getattr(ml_dtypes, name.replace("e4m3", "e4m3fn")))
    buffer = buffer_of(x, True)
    assert buffer[:3] == (x.ctypes.data, 4, name)


def test_names_mean_the_types_of_the_library():
    """ml_dtypes has another one under the name "float8_e4m3"."""
    with rondo.init(rank=0, world_size=1) as group:
        for name in NAMES:
            x = group.empty(4, name)
            assert buffer_of(x, True)[2] == name
            assert Fold(rondo.UserOp(print), name, None)._dtype == x.dtype


@pytest.mark.parametrize("dtype", [np.longlong, np.ulonglong, np.intc, np.uintc])
def test_other_names_of_the_same_types(dtype):
    assert buffer_of(np.zeros(1, dtype), True)[2] == np.dtype(dtype).name


def test_subclass_and_readonly_input():
    class Own(np.ndarray):
        pass

    assert buffer_of(np.ones((1, 1)).view(Own), True)[1] == 1
    x = np.arange(4)
    x.flags.writeable = False
    assert buffer_of(x, False)[0] == x.ctypes.data


def test_buffer_protocol():
    for x, name in ((array.array("f", [1, 2]), "float32"), (bytearray(b"abc"), "uint8"), (memoryview(b"abc"), "uint8")):
        assert buffer_of(x, False)[2] == name
    x = (ctypes.c_int32 * 3)(1, 2, 3)
    assert buffer_of(x, True)[0] == ctypes.addressof(x)


def test_refused():
    x = np.zeros((4, 4))
    with pytest.raises(ValueError, match=r"shape \(4,\) is not contiguous .*ascontiguousarray"):
        buffer_of(x[:, 0], False)
    x.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        buffer_of(x, True)
    with pytest.raises(ValueError, match="read-only"):
        buffer_of(b"abc", True)
    with pytest.raises(TypeError, match="complex128; Rondo has int8"):
        buffer_of(np.zeros(1, complex), False)
    with pytest.raises(TypeError, match="dtype >f4"):
        buffer_of(np.zeros(1, ">f4"), False)
    with pytest.raises(TypeError, match="object"):
        buffer_of(np.array([None]), False)
    with pytest.raises(TypeError, match="out is list; Rondo takes NumPy"):
        buffer_of([1.0], True, "out")
    with pytest.raises(TypeError, match="NumPy scalar"):
        buffer_of(np.float32(1), False)


class Exported:
    """Exports what a NumPy array does, as another library's object that says `device`."""

    def __init__(self, x, device=(1, 0)):
        self.x, self.device = x, device

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **options):
        return self.x.__dlpack__(**options)


class Old(Exported):
    def __dlpack__(self):
        return self.x.__dlpack__()


@pytest.mark.parametrize("kind", [Exported, Old])
def test_dlpack(kind):
    x = np.arange(6, dtype=np.int16).reshape(2, 3)
    buffer = buffer_of(kind(x), True)
    assert buffer[:3] == (x.ctypes.data, 6, "int16")
    assert buffer_of(kind(x[1:]), True)[0] == x[1:].ctypes.data
    assert buffer_of(kind(np.ones(1, bool)), True)[2] == "bool"
    with pytest.raises(ValueError, match="not contiguous"):
        buffer_of(kind(x.T), True)
    with pytest.raises(TypeError, match="code 5 of 128 bits"):
        buffer_of(kind(np.zeros(1, complex)), True)


def test_the_words_for_what_is_refused_name_its_cause():
    with rondo.init(rank=0, world_size=1) as group:
        for fixed in (np.zeros(4, complex), np.zeros(8)[::2]):
            fixed.flags.writeable = False
            with pytest.raises(ValueError, match="array is read-only"):
                group.recv(fixed)
        with pytest.raises(TypeError, match="array has dtype object"):
            group.all_gather(np.array([None] * 4)[::2])


def test_dlpack_refuses_devices_and_read_only_memory():
    with pytest.raises(TypeError, match="ROCm device 1.*copy it there"):
        buffer_of(Exported(np.zeros(1), (10, 1)), False)
    x = np.zeros(3)
    x.flags.writeable = False
    assert buffer_of(Exported(x), False)[0] == x.ctypes.data
    with pytest.raises(ValueError, match="read-only"):
        buffer_of(Exported(x), True)


def test_arrays_of_jax_are_not_written_to(monkeypatch):
    """What they export does not say that it is read-only."""
    monkeypatch.setitem(sys.modules, "jax", types.SimpleNamespace(Array=Old))
    x = np.arange(3.0)
    with rondo.init(rank=0, world_size=1) as group:
        many, gather = lambda fixed: group.all_reduce_many([fixed]), lambda fixed: group.all_gather(x, fixed)
        for call in (group.all_reduce, group.recv, many, gather):
            with pytest.raises(ValueError, match=r"is read-only, .*JAX's arrays never change. Pass numpy.array\("):
                call(Old(x))
        assert group.all_reduce(Old(x), out=np.zeros(3)).tolist() == group.broadcast(x, 0).tolist() == [0, 1, 2]
    assert buffer_of(Exported(x), True)[0] == x.ctypes.data
