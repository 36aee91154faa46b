"""librondo_c.so: found, loaded, and the functions of rondo.h declared."""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, c_uint64, c_void_p

_HERE = os.path.dirname(os.path.realpath(__file__))  # without pathlib, which takes 10 ms to import
_NAME = "librondo_c.so"


class Options(ctypes.Structure):
    """rondo_options_t"""

    _fields_ = [
        ("struct_bytes", c_size_t),
        ("timeout_ms", c_int64),
        ("scalar", c_double),
        ("algorithm", c_char_p),
        ("wire", c_int32),
        ("wire_flags", c_int32),
        ("wire_seed", c_uint64),
        ("residual", c_void_p),
        ("on_stream", c_int64),
        ("stream", c_void_p),
        ("purpose", c_uint64),
    ]


PURPOSE_OBJECTS = 5


class Call(ctypes.Structure):
    """rondo_call_t"""

    _fields_ = [
        ("struct_bytes", c_size_t),
        ("collective", c_int32),
        ("dtype", c_int32),
        ("op", c_int32),
        ("root", c_int),
        ("input", c_void_p),
        ("output", c_void_p),
        ("count", c_uint64),
        ("uneven", c_int64),
        ("input_counts", POINTER(c_uint64)),
        ("output_counts", POINTER(c_uint64)),
        ("input_displacements", POINTER(c_uint64)),
        ("output_displacements", POINTER(c_uint64)),
        ("options", POINTER(Options)),
    ]


# By the numbers of rondo.h.
COLLECTIVES = (
    "all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "gather", "scatter", "all_to_all", "barrier",
)  # fmt: skip


class JoinOptions(ctypes.Structure):
    """rondo_join_options_t"""

    _fields_ = [
        ("struct_bytes", c_size_t),
        ("rank", c_int),
        ("world", c_int),
        ("rendezvous", c_char_p),
        ("job_id", c_char_p),
        ("settings", POINTER(c_char_p)),
        ("setting_count", c_size_t),
        ("store", c_void_p),  # a Functions of store.py
    ]


class Place(ctypes.Structure):
    """rondo_place_t"""

    _fields_ = [(name, c_int) for name in ("rank", "world", "local_rank", "local_world", "node", "nodes")]


class Tensor(ctypes.Structure):
    """rondo_tensor_t"""

    _fields_ = [("input", c_void_p), ("output", c_void_p), ("count", c_uint64), ("dtype", c_int32)]


class SparseOptions(ctypes.Structure):
    """rondo_sparse_options_t"""

    _fields_ = [
        ("struct_bytes", c_size_t),
        ("timeout_ms", c_int64),
        ("spars", c_double),
        ("residual", c_void_p),
        ("select", c_int32),
        ("reserved", c_int32),
        ("tensors", POINTER(c_uint64)),
        ("tensor_count", c_size_t),
    ]


class SparseReport(ctypes.Structure):
    """rondo_sparse_report_t"""

    _fields_ = [
        ("selected", c_uint64),
        ("total", c_uint64),
        ("bytes_sent", c_uint64),
        ("route", c_int32),
        ("reserved", c_int32),
    ]


class Parameter(ctypes.Structure):
    """rondo_parameter_t"""

    _fields_ = [("name", c_char_p), ("parameter", c_void_p), ("count", c_uint64)]


class DistOptOptions(ctypes.Structure):
    """rondo_dist_opt_options_t"""

    _fields_ = [
        ("struct_bytes", c_size_t),
        ("spars", c_double),
        ("clip", c_double),
        ("outer_rate", c_double),
        ("outer_momentum", c_double),
        ("bucket_bytes", c_uint64),
        ("partition_bytes", c_uint64),
        ("every", c_uint64),
        ("exchange", c_int32),
        ("sampled", c_int32),
        ("residual", c_int32),
        ("nesterov", c_int32),
    ]


class DistOptTensor(ctypes.Structure):
    """rondo_dist_opt_tensor_t"""

    _fields_ = [("residuals", c_void_p), ("outer", c_void_p), ("momentum", c_void_p)]


class MessageInfo(ctypes.Structure):
    """rondo_message_t"""

    _fields_ = [("peer", c_int), ("tag", c_int), ("bytes", c_uint64)]


InterruptFunction = ctypes.CFUNCTYPE(c_int, c_void_p)  # rondo_interrupt_function_t
EndFunction = ctypes.CFUNCTYPE(None, c_void_p, c_int32)  # rondo_end_function_t

_comm = _work = _server = _reply = _dist_opt = _data = c_void_p
_out = POINTER(c_void_p)
_counts = POINTER(c_uint64)
_dtype = _op = c_int32
_ints = POINTER(c_int)
_options = POINTER(Options)
_message = POINTER(MessageInfo)
_tensors = POINTER(DistOptTensor)

# The functions of rondo.h. All return rondo_result_t unless _RESULTS says otherwise.
# tests/python/test_library.py compares them with the header.
PROTOTYPES = {
    "rondo_version": (),
    "rondo_last_error": (),
    "rondo_result_name": (c_int32,),
    "rondo_last_error_ranks": (_ints, c_size_t),
    "rondo_set_interrupt": (InterruptFunction, c_void_p),
    "rondo_join": (_out, POINTER(JoinOptions)),
    "rondo_id_server_create": (_out, c_char_p, POINTER(c_char_p)),
    "rondo_id_server_destroy": (_server,),
    "rondo_rank": (_comm, _ints),
    "rondo_size": (_comm, _ints),
    "rondo_authenticated": (_comm, _ints),
    "rondo_reply_set": (_reply, c_void_p, c_size_t),
    "rondo_attach_device": (_comm,),
    "rondo_place": (_comm, POINTER(Place)),
    "rondo_topology": (_comm, _ints, _ints, _ints),
    "rondo_algorithm_for": (_comm, c_int32, c_uint64, _dtype, _op, c_int, POINTER(c_char_p)),
    "rondo_error": (_comm,),
    "rondo_run": (_comm, POINTER(Call)),
    "rondo_start": (_comm, POINTER(Call), _out),
    "rondo_all_reduce_many": (_comm, POINTER(Tensor), c_size_t, _op, _options),
    "rondo_all_reduce_many_async": (_comm, POINTER(Tensor), c_size_t, _op, _options, _out),
    "rondo_send": (_comm, _data, c_uint64, _dtype, c_int, c_int, _options),
    "rondo_send_async": (_comm, _data, c_uint64, _dtype, c_int, c_int, _options, _out),
    "rondo_recv": (_comm, _data, c_uint64, _dtype, c_int, c_int, _options, _message),
    "rondo_recv_async": (_comm, _data, c_uint64, _dtype, c_int, c_int, _options, _out),
    "rondo_sendrecv": (_comm, _data, c_uint64, c_int, _data, c_uint64, c_int, _dtype, c_int, _options, _message),
    "rondo_sparse_all_reduce": (_comm, _data, _data, c_uint64, POINTER(SparseOptions), POINTER(SparseReport)),
    "rondo_dist_opt_defaults": (POINTER(DistOptOptions),),
    "rondo_dist_opt_create": (_out, _comm, POINTER(Parameter), c_size_t, POINTER(DistOptOptions)),
    "rondo_dist_opt_place": (_dist_opt, c_char_p, _data),
    "rondo_dist_opt_ready": (_dist_opt, c_char_p, c_int32),
    "rondo_dist_opt_reduce": (_dist_opt, c_int32, c_double),
    "rondo_dist_opt_average": (_dist_opt, c_int32),
    "rondo_dist_opt_wait": (_dist_opt,),
    "rondo_dist_opt_counts": (_dist_opt, _counts, _counts),
    "rondo_dist_opt_save": (_dist_opt, _tensors),
    "rondo_dist_opt_load": (_dist_opt, _tensors, c_int, c_uint64),
    "rondo_dist_opt_free": (_dist_opt,),
    "rondo_batch_begin": (_comm,),
    "rondo_batch_end": (_comm,),
    "rondo_batch_abandon": (_comm,),
    "rondo_wait": (_work, c_int64),
    "rondo_test": (_work, _ints),
    "rondo_work_message": (_work, _message),
    "rondo_work_wait_on": (_work, c_void_p),
    "rondo_work_on_end": (_work, EndFunction, c_void_p),
    "rondo_work_free": (_work,),
    "rondo_allocate": (_comm, c_size_t, _out),
    "rondo_deallocate": (_comm, _data),
    "rondo_split": (_comm, c_int, c_int, _out),
    "rondo_new_group": (_comm, _ints, c_size_t, _out),
    "rondo_abort": (_comm, c_char_p),
    "rondo_trace_start": (_comm, c_char_p),
    "rondo_trace_stop": (_comm,),
    "rondo_metrics": (_comm, c_char_p, c_size_t, POINTER(c_size_t)),
    "rondo_close": (_comm,),
    "rondo_destroy": (_comm,),
}
_RESULTS = {
    "rondo_version": c_char_p,
    "rondo_last_error": c_char_p,
    "rondo_result_name": c_char_p,
    "rondo_last_error_ranks": c_size_t,
}


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


def _load() -> ctypes.CDLL:
    path = find()
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(f"{path} cannot be loaded: {error}") from None
    for name, arguments in PROTOTYPES.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            raise ImportError(f"{path} has no {name}: it is of another version than this package") from None
        function.argtypes = arguments
        function.restype = _RESULTS.get(name, c_int32)
    return library


lib = _load()


def unchecked(name: str):
    """The function `name` without argument types: it converts nothing, which is half of what a call costs otherwise."""
    function = lib._FuncPtr((name, lib))
    function.restype = c_int32
    return function
