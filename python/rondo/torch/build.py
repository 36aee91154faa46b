"""The C++ part of rondo.torch, compiled for the torch that is installed.

    python -m rondo.torch.build              # now, beside the package, or else in the cache folder
    python -m rondo.torch.build --folder F   # into F, which RONDO_TORCH_CACHE names later

Without that the first init_process_group(backend="rondo") of a host compiles it, in about 20 seconds, and keeps the
result in RONDO_TORCH_CACHE, XDG_CACHE_HOME/rondo/torch or ~/.cache/rondo/torch.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import importlib.machinery
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from contextlib import contextmanager
from pathlib import Path

import torch

from rondo import _library

_HERE = Path(__file__).absolute().parent
_NAME = "rondo_torch"
_BESIDE = _HERE / "_built"
_OLDEST = (2, 9)  # older ones lack functions of c10d::Backend


class BuildError(RuntimeError):
    """The C++ part cannot be compiled; the text says what is missing."""


def load():
    """The compiled module. Compiles it if it is nowhere to be found; ranks of one host wait for one another."""
    name = f"{_key()}.so"
    for folder in (_BESIDE, _cache_folder()):
        if (folder / name).is_file():
            return _import(folder / name)
    return _import(build(_writable_folder()))


def build(folder: Path) -> Path:
    """Compiles into `folder` unless it is there already, and returns the file. Raises BuildError."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{_key()}.so"
    with _locked(folder):
        if not target.is_file():
            _compile(target)
    return target


def _compile(target: Path) -> None:
    print(f"rondo: compiling the backend for torch {torch.__version__}; it takes about 20 s, once", file=sys.stderr)
    scratch = target.with_suffix(f".{os.getpid()}.tmp")
    try:
        done = subprocess.run(_command(scratch), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise BuildError(f"the backend for torch does not compile:\n{' '.join(_command(scratch))}\n{done.stderr}")
        os.replace(scratch, target)  # whole, or not there
    finally:
        scratch.unlink(missing_ok=True)


def _command(output: Path) -> list[str]:
    if _torch_version() < _OLDEST:
        raise BuildError(f"torch {torch.__version__} is too old: the backend needs torch {_OLDEST[0]}.{_OLDEST[1]} or newer")
    package = Path(torch.__file__).parent
    python = Path(sysconfig.get_path("include"))
    if not (python / "Python.h").is_file():
        raise BuildError(f"{python} has no Python.h: apt-get install python3-dev")
    if not (package / "include/torch/csrc/distributed/c10d/Backend.hpp").is_file():
        raise BuildError(f"torch {torch.__version__} in {package} came without its C++ headers: install it with pip")
    includes = [package / "include", package / "include/torch/csrc/api/include", python]
    return [
        _compiler(), "-std=c++20", "-O2", "-g0", "-shared", "-fPIC", "-fvisibility=hidden", "-w",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}", f"-DTORCH_EXTENSION_NAME={_NAME}",
        "-iquote", str(_HERE), "-I", str(_header_folder()), *(flag for path in includes for flag in ("-isystem", str(path))),
        str(_HERE / "csrc/extension.cc"), "-o", str(output),
        "-L", str(package / "lib"), "-lc10", "-ltorch", "-ltorch_cpu", "-ltorch_python",
        # Each symbol is looked up at the import, so that a library that lacks one is an error there.
        str(_library.find()), "-Wl,-z,now",
    ]  # fmt: skip


def _torch_version() -> tuple[int, int]:
    major, minor = torch.__version__.split(".")[:2]
    return int(major), int(minor)


def _compiler() -> str:
    name = os.environ.get("CXX", "g++")
    if shutil.which(name) is None:
        raise BuildError(
            f"the backend for torch is compiled at its first use, and there is no {name}: apt-get install g++, or name "
            "a C++20 compiler by CXX"
        )
    return name


def _header_folder() -> Path:
    """Where <rondo/rondo.h> is: in the package, or in the source tree."""
    for folder in (_HERE.parent / "_native/include", _HERE.parents[2] / "ring/include"):
        if (folder / "rondo/rondo.h").is_file():
            return folder
    raise BuildError(f"rondo/rondo.h is neither in {_HERE.parent} nor in a source tree around it: install rondo again")


def _key() -> str:
    """Of everything that the compiled file depends on."""
    version = subprocess.run([_compiler(), "--version"], capture_output=True, check=False).stdout
    parts = [
        torch.__version__.encode(),
        str(torch._C._GLIBCXX_USE_CXX11_ABI).encode(),
        str(sysconfig.get_config_var("SOABI")).encode(),
        version,
        Path(_library.find()).read_bytes(),
        *(path.read_bytes() for path in sorted((_header_folder() / "rondo").glob("*.h"))),
        *(path.read_bytes() for path in sorted((_HERE / "csrc").iterdir())),
    ]
    digest = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts))
    return f"{_NAME}-{digest.hexdigest()[:16]}"


def _cache_folder() -> Path:
    named = os.environ.get("RONDO_TORCH_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rondo/torch"


def _writable_folder() -> Path:
    """The cache folder, or a folder of this user under /tmp if that cannot be written."""
    folder = _cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        other = Path(tempfile.gettempdir()) / f"rondo-torch-{os.getuid()}"
        print(f"rondo: {folder} cannot be written ({error.strerror}); compiling into {other}", file=sys.stderr)
        other.mkdir(mode=0o700, exist_ok=True)
        owner = other.stat()
        if owner.st_uid != os.getuid() or owner.st_mode & 0o022:
            raise BuildError(f"{other} belongs to somebody else: name a folder by RONDO_TORCH_CACHE") from None
        return other


@contextmanager
def _locked(folder: Path):
    with open(folder / "lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("rondo: waiting for another process that compiles the backend for torch", file=sys.stderr)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _import(path: Path):
    loader = importlib.machinery.ExtensionFileLoader(_NAME, str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(_NAME, loader))
    loader.exec_module(module)
    return module


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m rondo.torch.build", description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="where to put it; default: beside the package, or the cache folder")
    folder = parser.parse_args().folder
    try:
        if folder is None:
            folder = _BESIDE if os.access(_HERE, os.W_OK) else _writable_folder()
        print(build(folder))
    except BuildError as error:
        sys.exit(f"rondo.torch.build: {error}")


if __name__ == "__main__":
    main()
