"""What is compiled with which flags where Bazel is not: the one list of pip (python/setup.py) and of CMake.
  units.py [PROCESSOR]    prints it as a CMake script; PROCESSOR: x86_64 or aarch64, of what is made; or else this one

tests/install/units_test.py compares it with Bazel's targets. The flags are those that matter of tools/bazel/rondo.bzl.
"""

import json
import platform
import re
import sys
from itertools import groupby
from pathlib import Path
from typing import Iterator, NamedTuple

TREE = Path(__file__).resolve().parents[2]

# By part. The linker keeps what is called (--gc-sections), so that files which only tests call may be among these.
_LIBRARY = ["ring/**/*.cc", "transport/**/*.cc", "kernels/*.cc", "kernels/rows/*.cc",
            "kernels/device/device_*.cc", "kernels/device/gpu_code.cc", "tools/bazel/packages/*.cc"]
SOURCES = {
    "library": _LIBRARY,
    "launcher": ["ring/base/*.cc", "tools/launcher/*.cc", "tools/rondo_run.cc", "tools/bazel/packages/fmt.cc"],
    "module": ["python/module/*.cc"],
    # Programs on the library's objects.
    "bench": ["bench/*.cc", "bench/limit/*.cc", "bench/loop/*.cc", "bench/output/*.cc",
              "tools/launcher/*.cc"],
    "doctor": ["tools/doctor/*.cc", "tools/launcher/mpi_libraries.cc"],
    "view": ["tools/view/*.cc", "tools/plan/example_values.cc", "tools/plan/plan_options.cc", "tools/plan/plan_run.cc",
             "tools/plan/run_times.cc"],
}
PROCESSORS = ("x86_64", "aarch64")
# For every file, whatever the optimization. _FORTIFY_SOURCE wants one.
FLAGS = [
    *("-std=c++20", "-fPIC", "-fsigned-char", "-ffp-contract=off", "-fvisibility=hidden", "-fvisibility-inlines-hidden"),
    *("-ffunction-sections", "-fdata-sections", "-fno-omit-frame-pointer", "-fstack-protector"),
]
RELEASE = ["-O2", "-DNDEBUG", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=1"]
INCLUDES = ["-iquote", ".", "-Iring/include"]
_OWN_FLAGS = {"kernels/finite.cc": ["-O3"], "tools/launcher/options.cc": ["-O0", "-U_FORTIFY_SOURCE"]}


class Unit(NamedTuple):
    """One compilation; files of kernels/rows have one an instruction set."""

    source: str  # relative to the tree
    flags: list[str]  # of its own
    output: str  # object file


def units(part: str, processor: str = platform.machine()) -> Iterator[Unit]:
    copts = _values("kernels/copts.bzl")
    instruction_sets = copts["INSTRUCTION_SETS"] if processor == "x86_64" else {"baseline": []}
    for source in sorted(str(path.relative_to(TREE)) for pattern in SOURCES[part] for path in TREE.glob(pattern)):
        output = source.replace("/", "_") + ".o"
        if source.startswith("kernels/rows/"):
            for instruction_set, flags in instruction_sets.items():
                own = [f"-DRONDO_KERNEL_SET={instruction_set}", *copts["GCC_COPTS"], *copts["KERNEL_COPTS"], *flags]
                yield Unit(source, own, f"{instruction_set}_{output}")
        else:
            yield Unit(source, _OWN_FLAGS.get(source, []), output)


def version() -> str:
    text = (TREE / "ring/include/rondo/rondo.h").read_text()
    return re.search(r'^#define RONDO_VERSION "(.*)"', text, re.M).group(1)


def sonames() -> dict:
    """RONDO_SONAME of librondo.so, RONDO_C_SONAME of librondo_c.so."""
    return {name: value for name, value in _values("tools/bazel/version.bzl").items() if name.startswith("RONDO_")}


def asio_defines() -> list[str]:
    """One list for all files: those that do not include Asio ignore it."""
    text = (TREE / "WORKSPACE").read_text()
    return ["-D" + name for name in re.findall(r'"(ASIO_\w+)"', text)]


def _values(path: str) -> dict:
    """The values of a .bzl file that has nothing but values, which Python reads, too."""
    values: dict = {}
    exec((TREE / path).read_text(), values)  # noqa: S102
    return values


def as_cmake(processor: str) -> str:
    """Variables: the groups of each part, which are files with the same flags (rondo_PART_groups); _sources and _flags
    of each group."""

    def line(name: str, values) -> str:
        return f"set(rondo_{name} {' '.join(json.dumps(str(value)) for value in values)})\n"

    text = line("version", [version()]) + "".join(line(name.removeprefix("RONDO_").lower(), [value]) for name, value in sonames().items())
    text += line("flags", [*FLAGS, *asio_defines()]) + line("release", RELEASE)
    for part in SOURCES:
        groups = []
        for flags, group in groupby(sorted(units(part, processor), key=lambda unit: unit.flags), key=lambda unit: unit.flags):
            name = f"{part}_{len(groups)}"
            groups.append(name)
            text += line(f"{name}_flags", flags) + line(f"{name}_sources", (unit.source for unit in group))
        text += line(f"{part}_groups", groups)
    return text


if __name__ == "__main__":
    print(as_cmake(*sys.argv[1:] or [platform.machine()]), end="")
