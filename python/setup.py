"""Builds librondo_c.so, rondo-run and the module _rondo with g++ alone, with the flags that matter of Bazel's
(tools/bazel/rondo.bzl). RONDO_LIBRARY, RONDO_RUN and RONDO_MODULE, if set, are taken instead of being built.
RONDO_TORCH_BACKENDS: a folder of what rondo.torch.build has compiled, to be carried."""

import os
import platform
import re
import shutil
import subprocess
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = Path(__file__).resolve().parent
# In a source distribution the C++ sources lie beside this file, in the tree one folder up.
TREE = HERE / "native" if (HERE / "native").is_dir() else HERE.parent

# Of each file the linker keeps what is called (--gc-sections), so that files which only tests call may be among these.
SOURCES = {
    "library": ["ring/**/*.cc", "transport/**/*.cc", "kernels/*.cc", "kernels/rows/*.cc", "tools/bazel/packages/*.cc"],
    "launcher": ["ring/base/*.cc", "tools/launcher/*.cc", "tools/rondo_run.cc", "tools/bazel/packages/fmt.cc"],
    "module": ["python/module/*.cc"],
}
FLAGS = [
    *("-std=c++20", "-iquote", ".", "-Iring/include", "-O2", "-g0", "-DNDEBUG", "-fPIC", "-ffp-contract=off"),
    *("-fvisibility=hidden", "-fvisibility-inlines-hidden", "-ffunction-sections", "-fdata-sections"),
    *("-fno-omit-frame-pointer", "-fstack-protector", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=1"),
]


def version() -> str:
    text = (TREE / "ring/include/rondo/rondo.h").read_text()
    return re.search(r'^#define RONDO_VERSION "(.*)"', text, re.M).group(1)


def compiler() -> str:
    name = os.environ.get("CXX", "g++")
    if shutil.which(name) is None:
        raise SystemExit(f"rondo needs a C++20 compiler, and there is no {name}: apt-get install g++")
    if platform.machine() != "x86_64":
        raise SystemExit(f"rondo builds for x86-64 only so far; this is {platform.machine()}")
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        raise SystemExit(f"rondo needs Python's headers, and {sysconfig.get_path('include')} has none: apt-get install python3-dev")
    probe = "#include <asio/version.hpp>\n#include <fmt/format.h>\n#include <CLI/CLI.hpp>\n#include <openssl/evp.h>\n"
    done = subprocess.run(
        [name, "-std=c++20", "-E", "-x", "c++", "-"], input=probe, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(
            f"rondo needs Asio, fmt, CLI11 and OpenSSL: apt-get install libasio-dev libfmt-dev libcli11-dev libssl-dev\n{done.stderr}"
        )
    return name


def build_native(target: Path, scratch: Path) -> None:
    """librondo_c.so and rondo-run in `target`, which is rondo/_native, and _rondo.abi3.so beside rondo."""
    target.mkdir(parents=True, exist_ok=True)
    module = target.parents[1] / "_rondo.abi3.so"
    built = {"library": target / "librondo_c.so", "launcher": target / "rondo-run", "module": module}
    given = {"library": os.environ.get("RONDO_LIBRARY"), "launcher": os.environ.get("RONDO_RUN"), "module": os.environ.get("RONDO_MODULE")}
    wanted = [name for name in built if not given[name]]
    for name in set(built) - set(wanted):
        built[name].unlink(missing_ok=True)
        shutil.copy(given[name], built[name])
    if not wanted:
        return
    cxx = compiler()
    scratch.mkdir(parents=True, exist_ok=True)
    units = {name: list(enumerate_units(name)) for name in wanted}
    common = [*FLAGS, *asio_defines()]

    def compile_one(unit) -> None:
        source, flags, output = unit
        subprocess.run([cxx, *common, *flags, "-c", source, "-o", str(scratch / output)], cwd=TREE, check=True)

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(compile_one, {unit[2]: unit for name in wanted for unit in units[name]}.values()))
    # The C++ runtime and OpenSSL are linked in and hidden: the library meets others in one process.
    link = ["-Wl,-Bstatic", "-lcrypto", "-Wl,-Bdynamic", "-static-libstdc++", "-static-libgcc", "-pthread", "-ldl"]
    link += ["-Wl,--gc-sections", "-Wl,--exclude-libs,ALL"]
    library = ["-shared", "-Wl,-soname,librondo_c.so", f"-Wl,--version-script={TREE / 'tools/bazel/librondo_c.map'}"]
    module = ["-shared", "-Wl,-z,now", "-Wl,-rpath,$ORIGIN/rondo/_native"]
    for name in wanted:  # the module last
        own = [str(scratch / output) for _, _, output in units[name]]
        own += [str(built["library"])] if name == "module" else []
        kind = {"library": library, "module": module}.get(name, [])
        subprocess.run([cxx, *kind, *own, *link, "-o", str(built[name])], check=True)


def enumerate_units(name: str):
    """(source, flags of its own, object file) of each compilation; those of kernels/rows are one an instruction set."""
    copts = read_values("kernels/copts.bzl")
    for source in sorted(str(path.relative_to(TREE)) for pattern in SOURCES[name] for path in TREE.glob(pattern)):
        output = source.replace("/", "_") + ".o"
        if source.startswith("kernels/rows/"):
            for instruction_set, flags in copts["INSTRUCTION_SETS"].items():
                own = [f"-DRONDO_KERNEL_SET={instruction_set}", *copts["GCC_COPTS"], *copts["KERNEL_COPTS"], *flags]
                yield source, own, f"{instruction_set}_{output}"
        elif name == "module":
            yield source, ["-DPy_LIMITED_API=0x030B0000", "-isystem", sysconfig.get_path("include")], output
        else:
            yield source, ["-O3"] if source == "kernels/finite.cc" else [], output


def asio_defines() -> list[str]:
    """One list for all files: those that do not include Asio ignore it."""
    text = (TREE / "WORKSPACE").read_text()
    return ["-D" + name for name in re.findall(r'"(ASIO_\w+)"', text)]


def read_values(path: str) -> dict:
    """The values of a .bzl file that has nothing but values, which Python reads, too."""
    values: dict = {}
    exec((TREE / path).read_text(), values)  # noqa: S102
    return values


def native_files():
    """What build_native() reads, relative to the tree."""
    yield from ("kernels/copts.bzl", "tools/bazel/librondo_c.map", "WORKSPACE", "LICENSE")
    headers = ["ring/**/*.h", "transport/**/*.h", "kernels/**/*.h", "tools/launcher/*.h", "python/module/*.h"]
    for pattern in (*SOURCES["library"], *SOURCES["launcher"], *SOURCES["module"], *headers):
        yield from (str(path.relative_to(TREE)) for path in TREE.glob(pattern))


class BuildPy(build_py):
    def run(self):
        super().run()
        build = Path(self.build_lib).resolve()  # the compiler runs in the tree
        native = build / "rondo" / "_native"
        build_native(native, build.parent / "native")
        headers = native / "include" / "rondo"  # rondo.torch compiles against it where it is installed
        headers.mkdir(parents=True, exist_ok=True)
        for name in ("rondo.h", "calls_c.h"):
            shutil.copy(TREE / "ring/include/rondo" / name, headers)
        if backends := os.environ.get("RONDO_TORCH_BACKENDS"):
            shutil.copytree(backends, build / "rondo/torch/_built", dirs_exist_ok=True)


class Sdist(sdist):
    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, files)
        for path in native_files():
            copy = Path(base_dir) / "native" / path
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(TREE / path, copy)


class NativeDistribution(Distribution):
    """Has native code that setuptools does not know of, so that it is installed where native code belongs."""

    def has_ext_modules(self):
        return True


class BdistWheel(bdist_wheel):
    """The module is of the stable interface of Python 3.11."""

    def get_tag(self):
        return "cp311", "abi3", super().get_tag()[2]


setup(
    version=version(),
    distclass=NativeDistribution,
    cmdclass={"build_py": BuildPy, "sdist": Sdist, "bdist_wheel": BdistWheel},
)
