"""Builds librondo_c.so, rondo-run and the module _rondo with g++ alone (tools/native/units.py).
RONDO_LIBRARY, RONDO_RUN and RONDO_MODULE, if set, are taken instead of being built. What the wheel carries beside: the
files in RONDO_PROGRAMS, and in RONDO_TORCH_BACKENDS what rondo.torch.build has compiled."""

import ctypes
import importlib.util
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import groupby
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = Path(__file__).resolve().parent
# In a source distribution the C++ sources lie beside this file, in the tree one folder up.
TREE = HERE / "native" if (HERE / "native").is_dir() else HERE.parent

# Carried as they are: rondo-trace, rondo-top, where these read their version, and the pages that errors name.
FILES = ["tools/trace/*", "tools/top/*.py", "docs/*.md", "ring/include/rondo/rondo.h"]


def _units():
    """tools/native/units.py: what is compiled, with which flags."""
    spec = importlib.util.spec_from_file_location("rondo_units", TREE / "tools/native/units.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


recipe = _units()


def compiler() -> tuple[list[str], str]:
    """CXX, which may be several words, and the processor that it compiles for."""
    command = shlex.split(os.environ.get("CXX", "")) or ["g++"]
    if shutil.which(command[0]) is None:
        raise SystemExit(f"rondo needs a C++20 compiler, and there is no {command[0]}: apt-get install g++")
    machine = subprocess.run([*command, "-dumpmachine"], capture_output=True, text=True, check=True).stdout.strip()
    processor = machine.split("-")[0]
    if processor not in recipe.PROCESSORS or "linux" not in machine or "musl" in machine:
        raise SystemExit(f"rondo is for Linux with glibc on {' and '.join(recipe.PROCESSORS)}; {command[0]} compiles for {machine}")
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        raise SystemExit(f"rondo needs Python's headers, and {sysconfig.get_path('include')} has none: apt-get install python3-dev")
    probe = "#include <asio/version.hpp>\n#include <fmt/format.h>\n#include <CLI/CLI.hpp>\n#include <openssl/evp.h>\n"
    done = subprocess.run(
        [*command, "-std=c++20", "-E", "-x", "c++", "-"], input=probe, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(
            f"rondo needs Asio, fmt, CLI11 and OpenSSL: apt-get install libasio-dev libfmt-dev libcli11-dev libssl-dev\n{done.stderr}"
        )
    return command, processor


def crypto_flags(command: list[str]) -> list[str]:
    """Links libssl.a and libcrypto.a, and what these need: shared, since Debian's libz.a is not position-independent. Where
    there is none (Arch, conda), libssl.so and libcrypto.so."""
    found = subprocess.run([*command, "-print-file-name=libcrypto.a"], capture_output=True, text=True, check=True)
    if not os.path.isabs(found.stdout.strip()):
        say("rondo: no libcrypto.a is here; the library is linked with libssl.so and libcrypto.so")
        return ["-lssl", "-lcrypto"]
    asked = ["pkg-config", "--static", "--libs-only-l", "libcrypto"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False) if shutil.which(asked[0]) else None
    needs = [flag for flag in (done.stdout.split() if done else []) if flag not in ("-lcrypto", "-ldl", "-lpthread")]
    return ["-Wl,-Bstatic", "-lssl", "-lcrypto", "-Wl,-Bdynamic", "-Wl,--as-needed", *needs]


def build_native(target: Path, scratch: Path) -> None:
    """The library of the C API and rondo-run in `target`, which is rondo/_native, and _rondo.abi3.so beside rondo."""
    target.mkdir(parents=True, exist_ok=True)
    module = target.parents[1] / "_rondo.abi3.so"
    built = {"library": target / recipe.sonames()["RONDO_C_SONAME"], "launcher": target / "rondo-run", "module": module}
    given = {"library": os.environ.get("RONDO_LIBRARY"), "launcher": os.environ.get("RONDO_RUN"), "module": os.environ.get("RONDO_MODULE")}
    wanted = [name for name in built if not given[name]]
    for name in set(built) - set(wanted):
        built[name].unlink(missing_ok=True)
        shutil.copy(given[name], built[name])
    if wanted:
        compile_native(wanted, built, scratch)
    if sysconfig.get_platform().endswith(platform.machine()):  # _PYTHON_HOST_PLATFORM: for another processor
        ctypes.CDLL(str(built["library"]))  # a library that cannot be loaded fails here, not in a program


def compile_native(wanted: list[str], built: dict[str, Path], scratch: Path) -> None:
    cxx, processor = compiler()
    scratch.mkdir(parents=True, exist_ok=True)
    units = {name: list(recipe.units(name, processor)) for name in wanted}
    if "module" in units:
        own = ["-DPy_LIMITED_API=0x030B0000", "-isystem", sysconfig.get_path("include")]
        units["module"] = [unit._replace(flags=[*unit.flags, *own]) for unit in units["module"]]
    flags = [*recipe.FLAGS, *recipe.RELEASE, *recipe.INCLUDES, *recipe.asio_defines(), "-g0"]
    objects = compile_all([*cxx, *flags], {unit.output: unit for name in wanted for unit in units[name]}, scratch)
    # The C++ runtime and OpenSSL are linked in and hidden: the library meets others in one process.
    crypto = crypto_flags(cxx)
    link = [*crypto, "-static-libstdc++", "-static-libgcc", "-pthread", "-ldl"]
    link += ["-Wl,--gc-sections", "-Wl,--exclude-libs,ALL"]
    library = ["-shared", "-Wl,-z,defs", f"-Wl,-soname,{built['library'].name}", f"-Wl,--version-script={TREE / 'tools/bazel/librondo_c.map'}"]
    module = ["-shared", "-Wl,-z,now", "-Wl,-rpath,$ORIGIN/rondo/_native"]
    for name in wanted:  # the module last
        own = list(dict.fromkeys(str(objects[output]) for _, _, output in units[name]))
        own += [str(built["library"])] if name == "module" else []
        kind = {"library": library, "module": module}.get(name, [])
        if subprocess.run([*cxx, *kind, *own, *link, "-o", str(built[name])], check=False).returncode != 0:
            raise SystemExit(f"rondo cannot be linked with {' '.join(crypto)}; packages that may be missing: "
                             "apt-get install pkg-config libssl-dev zlib1g-dev libzstd-dev")


# Headers take most of a file's time: the files of a folder are compiled this many together.
TOGETHER = 8


def compile_all(command: list[str], units: dict, scratch: Path) -> dict[str, Path]:
    """Compiles units, by object file, and says how far it is. Returns the file that has each unit's code."""

    def compile_one(source: str, flags: list[str], output: str, **kwargs) -> int:
        done = subprocess.run([*command, *flags, "-c", source, "-o", str(scratch / output)], cwd=TREE, **kwargs)
        return done.returncode

    def compile_bundle(bundle: list) -> dict[str, Path]:
        if len(bundle) == 1:
            compile_one(*bundle[0], check=True)
            return {bundle[0][2]: scratch / bundle[0][2]}
        together = scratch / f"{bundle[0][2]}.{len(bundle)}.cc"
        together.write_text("".join(f'#include "{source}"\n' for source, _, _ in bundle))
        output = f"{together.name}.o"
        if compile_one(str(together), bundle[0][1], output, capture_output=True) == 0:
            return dict.fromkeys((name for _, _, name in bundle), scratch / output)
        # Files that define one name for themselves do not compile together; the halves may.
        half = len(bundle) // 2
        return compile_bundle(bundle[:half]) | compile_bundle(bundle[half:])

    objects: dict[str, Path] = {}
    said = time.monotonic()
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for done in as_completed([pool.submit(compile_bundle, bundle) for bundle in bundles(units.values())]):
            objects |= done.result()
            if time.monotonic() - said >= 5 or len(objects) == len(units):
                said = time.monotonic()
                say(f"rondo: {len(objects)} of {len(units)} files compiled")
    return objects


def tells_headers(source: str) -> bool:
    """Whether it defines a macro before it includes anything: a header that another file had included is not read again."""
    directives = re.findall(r"^#\s*(define|include)", (TREE / source).read_text(), flags=re.M)
    return directives[:1] == ["define"]


def bundles(units):
    """Lists of at most TOGETHER units that one folder and one set of flags have, the longest work first."""
    apart, where = [], lambda unit: (os.path.dirname(unit[0]), unit[1], tells_headers(unit[0]))
    for (folder, _, alone), group in groupby(sorted(units, key=where), where):
        group = list(group)
        size = 1 if alone or folder.startswith(("kernels", "tools/bazel")) else TOGETHER
        apart += [group[i : i + size] for i in range(0, len(group), size)]
    return sorted(apart, key=len, reverse=True)


def say(text: str) -> None:
    """To the terminal, since pip keeps what a build prints."""
    try:
        with open("/dev/tty", "w") as terminal:
            print(text, file=terminal)
    except OSError:
        print(text, file=sys.stderr)


def native_files():
    """What build_native() reads, relative to the tree."""
    yield from ("tools/native/units.py", "kernels/copts.bzl", "tools/bazel/librondo_c.map", "tools/bazel/version.bzl", "WORKSPACE", "LICENSE")
    headers = ["ring/**/*.h", "transport/**/*.h", "kernels/**/*.h", "tools/launcher/*.h", "python/module/*.h"]
    sources = (pattern for part in ("library", "launcher", "module") for pattern in recipe.SOURCES[part])
    for pattern in (*sources, *headers, *FILES):
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
        for path in (path for pattern in FILES for path in TREE.glob(pattern)):
            copy = native / path.relative_to(TREE)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy)
        for variable, folder in {"RONDO_PROGRAMS": native, "RONDO_TORCH_BACKENDS": build / "rondo/torch/_built"}.items():
            if variable in os.environ:
                shutil.copytree(os.environ[variable], folder, dirs_exist_ok=True)


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
    version=recipe.version(),
    distclass=NativeDistribution,
    cmdclass={"build_py": BuildPy, "sdist": Sdist, "bdist_wheel": BdistWheel},
)
