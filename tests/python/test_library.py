"""The declarations of _library.py are those of rondo.h, and so are the codes of errors, types and operations."""

import ctypes
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from rondo import _dtypes, _library, dist_opt, errors, store, wire

TREE = Path(os.environ.get("RONDO_TREE", Path(__file__).parents[2]))
HEADER = (TREE / "ring/include/rondo/rondo.h").read_text()
TEXT = re.sub(r"/\*.*?\*/", "", HEADER, flags=re.S)

C_TYPES = {
    "int": ctypes.c_int, "int64_t": ctypes.c_int64, "uint64_t": ctypes.c_uint64, "size_t": ctypes.c_size_t,
    "double": ctypes.c_double, "rondo_result_t": ctypes.c_int32, "rondo_dtype_t": ctypes.c_int32,
    "rondo_op_t": ctypes.c_int32, "char*": ctypes.c_char_p, "void*": ctypes.c_void_p,
    "char**": ctypes.POINTER(ctypes.c_char_p), "int*": ctypes.POINTER(ctypes.c_int),
    "uint64_t*": ctypes.POINTER(ctypes.c_uint64), "void**": ctypes.POINTER(ctypes.c_void_p),
    "rondo_call_t*": ctypes.POINTER(_library.Call),
    "rondo_options_t*": ctypes.POINTER(_library.Options), "rondo_tensor_t*": ctypes.POINTER(_library.Tensor),
    "rondo_interrupt_function_t": _library.InterruptFunction,
    "rondo_message_t*": ctypes.POINTER(_library.MessageInfo),
    "rondo_collective_t": ctypes.c_int32, "rondo_reply_t": ctypes.c_void_p, "rondo_end_function_t": _library.EndFunction,
    "size_t*": ctypes.POINTER(ctypes.c_size_t),
    "rondo_wire_format_t": ctypes.c_int32, "rondo_select_t": ctypes.c_int32, "int32_t": ctypes.c_int32,
    "rondo_sparse_route_t": ctypes.c_int32,
    "float*": ctypes.c_void_p, "rondo_sparse_options_t*": ctypes.POINTER(_library.SparseOptions),
    "rondo_sparse_report_t*": ctypes.POINTER(_library.SparseReport),
    "rondo_exchange_t": ctypes.c_int32, "rondo_parameter_t*": ctypes.POINTER(_library.Parameter),
    "rondo_dist_opt_options_t*": ctypes.POINTER(_library.DistOptOptions),
    "rondo_dist_opt_tensor_t*": ctypes.POINTER(_library.DistOptTensor),
    "rondo_join_options_t*": ctypes.POINTER(_library.JoinOptions), "rondo_place_t*": ctypes.POINTER(_library.Place),
}  # fmt: skip
for handle in ("rondo_comm_t", "rondo_work_t", "rondo_id_server_t", "rondo_dist_opt_t"):
    C_TYPES[handle] = ctypes.c_void_p
    C_TYPES[handle + "*"] = ctypes.POINTER(ctypes.c_void_p)


def c_type(declaration):
    words = re.sub(r"\bconst\b|\bstruct\b", "", declaration).replace("*", " * ").split()
    stars = "*" * words.count("*")
    return C_TYPES[[word for word in words if word != "*"][0] + stars]


def declared():
    for result, name, arguments in re.findall(r"RONDO_API\s+([\w\s*]+?)\s*\b(rondo_\w+)\(([^;]*?)\);", TEXT, flags=re.S):
        arguments = " ".join(arguments.split())
        yield name, result, [] if arguments == "void" else arguments.split(",")


DECLARED = {name: (result, arguments) for name, result, arguments in declared()}


def test_the_header_was_read():
    assert len(DECLARED) > 50


@pytest.mark.parametrize("name", sorted(_library.PROTOTYPES))
def test_prototype_is_the_headers(name):
    result, arguments = DECLARED[name]
    assert list(_library.PROTOTYPES[name]) == [c_type(argument) for argument in arguments]
    assert getattr(_library.lib, name).restype is c_type(result)


@pytest.mark.skipif(shutil.which("objdump") is None, reason="wants binutils")
def test_the_library_has_the_headers_functions_and_needs_the_c_library_alone():
    dump = subprocess.run(["objdump", "-p", "-T", _library.find()], capture_output=True, text=True, check=True).stdout
    needed = set(re.findall(r"^ +NEEDED +(\S+)", dump, flags=re.M))
    assert needed <= {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"}, needed
    symbols = re.findall(r"^[0-9a-f]{16} [^l].{6} (\S+)\t[0-9a-f]{16} +(?:\S+ +)?(\S+)$", dump, flags=re.M)
    assert {name for section, name in symbols if section not in ("*UND*", "*ABS*")} == set(DECLARED)


def test_structures_have_the_headers_fields():
    for structure, name in (
        (_library.Call, "call"), (_library.Options, "options"), (_library.Tensor, "tensor"), (_library.MessageInfo, "message"),
        (_library.SparseOptions, "sparse_options"), (_library.SparseReport, "sparse_report"),
        (_library.Parameter, "parameter"), (_library.DistOptOptions, "dist_opt_options"),
        (_library.DistOptTensor, "dist_opt_tensor"),
    ):  # fmt: skip
        body = re.search(rf"typedef struct {{([^}}]*)}} rondo_{name}_t;", TEXT).group(1)
        fields = [line.strip() for line in body.split(";") if line.strip()]
        assert [(re.split(r"[\s*]+", f)[-1], c_type(f)) for f in fields] == structure._fields_


def test_structures_of_joining_have_the_headers_fields_in_order():
    for structure, name in ((_library.JoinOptions, "join_options"), (_library.Place, "place"), (store.Functions, "store")):
        body = re.search(rf"typedef struct {{([^}}]*)}} rondo_{name}_t;", TEXT).group(1)
        functions = re.sub(r"\(\*(\w+)\)\([^)]*\)", r"\1", body)
        names = re.findall(r"(\w+)\s*[,;]", functions)
        assert names == [name for name, _ in structure._fields_]


def enumeration(prefix_of_first):
    body = next(b for b in re.findall(r"enum {([^}]*)}", TEXT) if prefix_of_first in b)
    return dict(re.findall(r"RONDO_(\w+) = (\d+)", body))


def test_codes_are_the_headers():
    dtypes = enumeration("RONDO_INT8 ")
    assert {name.upper(): str(code) for code, name in enumerate(_dtypes.NAMES)} == dtypes
    assert {name.upper(): str(code) for name, code in _dtypes.OPS.items()} == enumeration("RONDO_SUM ")
    assert {name.upper(): str(i) for i, name in enumerate(_library.COLLECTIVES)} == enumeration("RONDO_ALL_REDUCE ")
    formats = {name.removeprefix("WIRE_"): code for name, code in enumeration("RONDO_WIRE_NONE ").items()}
    assert {name.upper(): str(i) for i, name in enumerate(wire.FORMATS)} == formats
    assert list(enumeration("RONDO_EXCHANGE_FLOAT32 ").values()) == [str(i) for i in range(len(dist_opt.OPTIONS))]
    assert enumeration("RONDO_PURPOSE_OBJECTS ") == {"PURPOSE_OBJECTS": str(_library.PURPOSE_OBJECTS)}
    for name, code in enumeration("RONDO_OK ").items():
        if name not in ("OK", "IN_PROGRESS"):
            assert errors._CLASSES[int(code)].__name__ == name.title().replace("_", "")
