"""The library has the functions of rondo.h and needs nothing beside the C library, nor does the module; codes are the
header's."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from rondo import _library, communicator, dist_opt, errors, wire
from rondo._library import native

C_LIBRARIES = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
TREE = Path(os.environ.get("RONDO_TREE", Path(__file__).parents[2]))
HEADER = (TREE / "ring/include/rondo/rondo.h").read_text()
TEXT = re.sub(r"/\*.*?\*/", "", HEADER, flags=re.S)

def declared():
    for result, name, arguments in re.findall(r"RONDO_API\s+([\w\s*]+?)\s*\b(rondo_\w+)\(([^;]*?)\);", TEXT, flags=re.S):
        arguments = " ".join(arguments.split())
        yield name, result, [] if arguments == "void" else arguments.split(",")


DECLARED = {name: (result, arguments) for name, result, arguments in declared()}
CALLS = (TREE / "ring/include/rondo/calls_c.h").read_text()
BY_NAME = set(re.findall(r"^RONDO_BY_NAME rondo_result_t (rondo_\w+)\(", CALLS, flags=re.M))


def test_the_header_was_read():
    assert len(DECLARED) > 50 and len(BY_NAME) > 20


@pytest.mark.skipif(shutil.which("objdump") is None, reason="wants binutils")
def test_the_library_has_the_headers_functions_and_needs_the_c_library_alone():
    dump = subprocess.run(["objdump", "-p", "-T", _library.find()], capture_output=True, text=True, check=True).stdout
    needed = set(re.findall(r"^ +NEEDED +(\S+)", dump, flags=re.M))
    assert needed <= C_LIBRARIES, needed
    symbols = re.findall(r"^[0-9a-f]{16} [^l].{6} (\S+)\t[0-9a-f]{16} +(?:\S+ +)?(\S+)$", dump, flags=re.M)
    shown = {name for section, name in symbols if section not in ("*UND*", "*ABS*")}
    carried = {name for name in shown if re.fullmatch(r"rondo_(mpi_.*|bench_main|doctor_main)", name)}  # by the wheel's
    assert shown - carried == set(DECLARED) | BY_NAME


@pytest.mark.skipif(shutil.which("objdump") is None, reason="wants binutils")
def test_the_module_needs_the_library_alone():
    dump = subprocess.run(["objdump", "-p", native.__file__], capture_output=True, text=True, check=True).stdout
    needed = set(re.findall(r"^ +NEEDED +(\S+)", dump, flags=re.M))
    assert needed <= {_library._NAME} | C_LIBRARIES, needed


def enumeration(prefix_of_first):
    body = next(b for b in re.findall(r"enum {([^}]*)}", TEXT) if prefix_of_first in b)
    return dict(re.findall(r"RONDO_(\w+) = (\d+)", body))


def test_codes_are_the_headers():
    dtypes = enumeration("RONDO_INT8 ")
    assert {name: str(native.dtype_of(name.lower())) for name in dtypes} == dtypes
    ops = enumeration("RONDO_SUM ")
    assert ops.pop("USER")  # has no name: a rondo.UserOp
    assert {name: str(native.op_of(name.lower())) for name in ops} == ops
    assert {name.upper(): str(i) for i, name in enumerate(communicator.COLLECTIVES)} == enumeration("RONDO_ALL_REDUCE ")
    formats = {name.removeprefix("WIRE_"): code for name, code in enumeration("RONDO_WIRE_NONE ").items()}
    assert {name.upper(): str(i) for i, name in enumerate(wire.FORMATS)} == formats
    assert list(enumeration("RONDO_EXCHANGE_FLOAT32 ").values()) == [str(i) for i in range(len(dist_opt.OPTIONS))]
    purposes = dict(re.findall(r"k(\w+) = (\d+),", (TREE / "ring/include/rondo/call.h").read_text()))
    for name, code in communicator._PURPOSES.items():
        assert purposes[name.title().replace("_", "")] == str(code)
    for name, code in enumeration("RONDO_OK ").items():
        if name not in ("OK", "IN_PROGRESS"):
            assert errors._CLASSES[int(code)].__name__ == name.title().replace("_", "")
