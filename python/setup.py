"""Builds librondo_c.so and rondo-run with g++ alone: what Bazel compiles and with which flags is in native.json
(tools/native_manifest.py writes it). RONDO_LIBRARY and RONDO_RUN, if set, are taken instead of being built."""

import json
import os
import platform
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = Path(__file__).resolve().parent
# In a source distribution the C++ sources lie beside this file, in the tree one folder up.
TREE = HERE / "native" if (HERE / "native").is_dir() else HERE.parent
MANIFEST = json.loads((HERE / "native.json").read_text())


def version() -> str:
    text = (TREE / "ring/include/rondo/rondo.h").read_text()
    return re.search(r'^#define RONDO_VERSION "(.*)"', text, re.M).group(1)


def compiler() -> str:
    name = os.environ.get("CXX", "g++")
    if shutil.which(name) is None:
        raise SystemExit(f"rondo needs a C++20 compiler, and there is no {name}: apt-get install g++")
    if platform.machine() != "x86_64":
        raise SystemExit(f"rondo builds for x86-64 only so far; this is {platform.machine()}")
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
    """librondo_c.so and rondo-run in `target`."""
    target.mkdir(parents=True, exist_ok=True)
    built = {"library": target / "librondo_c.so", "launcher": target / "rondo-run"}
    given = {"library": os.environ.get("RONDO_LIBRARY"), "launcher": os.environ.get("RONDO_RUN")}
    wanted = [name for name in built if not given[name]]
    for name in set(built) - set(wanted):
        built[name].unlink(missing_ok=True)
        shutil.copy(given[name], built[name])
    if not wanted:
        return
    cxx = compiler()
    scratch.mkdir(parents=True, exist_ok=True)
    units = {key: unit for name in wanted for key, unit in enumerate_units(name)}

    def compile_one(unit) -> Path:
        key, (source, flags) = unit
        output = scratch / f"{key}.o"
        # The flags of this unit name each include path relative to the tree.
        command = [cxx, *MANIFEST["flags"], *flags, "-c", source, "-o", str(output)]
        subprocess.run(command, cwd=TREE, check=True)
        return output

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        objects = dict(zip(units, pool.map(compile_one, units.items())))
    # The C++ runtime and OpenSSL are linked in and hidden: the library meets others in one process.
    link = ["-Wl,-Bstatic", "-lcrypto", "-Wl,-Bdynamic", "-static-libstdc++", "-static-libgcc", "-pthread", "-ldl"]
    link += ["-Wl,--gc-sections", "-Wl,--exclude-libs,ALL"]
    for name in wanted:
        own = [str(objects[key]) for key, _ in enumerate_units(name)]
        shared = ["-shared", f"-Wl,--version-script={TREE / 'tools/bazel/librondo_c.map'}"] if name == "library" else []
        subprocess.run([cxx, *shared, *own, *link, "-o", str(built[name])], check=True)


def enumerate_units(name: str):
    for source, flags in MANIFEST[name]:
        text = "_".join([source, *(flag for flag in flags if flag.startswith("-DRONDO_KERNEL"))])
        yield re.sub(r"\W", "_", text), (source, flags)


def native_files():
    """What build_native() reads, relative to the tree."""
    yield from ("tools/bazel/librondo_c.map", "LICENSE")
    yield from sorted({source for name in ("library", "launcher") for source, _ in MANIFEST[name]})
    for folder in ("ring", "transport", "kernels", "tools/launcher"):
        yield from (str(path.relative_to(TREE)) for path in sorted((TREE / folder).rglob("*.h")))


class BuildPy(build_py):
    def run(self):
        super().run()
        build = Path(self.build_lib).resolve()  # the compiler runs in the tree
        native = build / "rondo" / "_native"
        build_native(native, build.parent / "native")
        headers = native / "include" / "rondo"  # rondo.torch compiles against it where it is installed
        headers.mkdir(parents=True, exist_ok=True)
        shutil.copy(TREE / "ring/include/rondo/rondo.h", headers)


class Sdist(sdist):
    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, files)
        for path in native_files():
            copy = Path(base_dir) / "native" / path
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(TREE / path, copy)
        shutil.copy(HERE / "native.json", base_dir)


class NativeDistribution(Distribution):
    """Has native code that setuptools does not know of, so that it is installed where native code belongs."""

    def has_ext_modules(self):
        return True


class BdistWheel(bdist_wheel):
    """The native code does not depend on the version of Python."""

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


setup(
    version=version(),
    distclass=NativeDistribution,
    cmdclass={"build_py": BuildPy, "sdist": Sdist, "bdist_wheel": BdistWheel},
)
