"""The C++ part of rondo.torch: one library for each release of torch, which serves every Python. Rondo's wheel carries
those of CARRIED; for another torch it is compiled:

    python -m rondo.torch.build              # now, beside the package, or else in the cache folder
    python -m rondo.torch.build --folder F   # into F, which RONDO_TORCH_CACHE names later

Without that the first init_process_group(backend="rondo") of a host compiles it, in about 20 seconds, and keeps the
result in RONDO_TORCH_CACHE, XDG_CACHE_HOME/rondo/torch or ~/.cache/rondo/torch.
"""

from __future__ import annotations

import argparse
import errno
import fcntl
import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

_HERE = Path(__file__).absolute().parent
_BESIDE = _HERE / "_built"
_HEADERS = ("rondo.h", "calls_c.h")
_OLDEST = (2, 9)  # older ones lack functions of c10d::Backend
_SAYS_SECONDS = 5.0  # between lines while something takes its time


class BuildError(RuntimeError):
    """The C++ part cannot be compiled; the text says what is missing."""


class Torch:
    """A torch that is installed in `folder`, or unpacked there with its headers and libraries only."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.version = re.search(r"__version__ = '(.+)'", (folder / "version.py").read_text())[1]
        # Releases of one minor version have one binary interface, whatever devices they are built for.
        release = re.fullmatch(r"(\d+\.\d+)\.\d+(\+\w+)?", self.version)
        self.interface = release[1] if release else self.version


def find() -> Path:
    """The library for the torch that is installed. Compiles it if it is nowhere to be found; ranks of one host wait for
    one another."""
    torch = installed()
    for folder in (_BESIDE, _cache_folder()):
        if folder is not None and (folder / file_name(torch)).is_file():
            return folder / file_name(torch)
    return build(torch, _writable_folder())


def installed() -> Torch:
    return Torch(Path(importlib.util.find_spec("torch").origin).parent)


def file_name(torch: Torch) -> str:
    """It says everything that the library depends on, but for the compiler."""
    paths = [*(_header_folder() / "rondo" / name for name in _HEADERS), *sorted((_HERE / "csrc").iterdir())]
    digest = hashlib.sha256(b"".join(hashlib.sha256(path.read_bytes()).digest() for path in paths))
    return f"rondo_torch-{torch.interface}-{digest.hexdigest()[:16]}.so"


def build(torch: Torch, folder: Path, optimization: str = "-O1") -> Path:
    """Compiles into `folder` unless it is there already, and returns the file. Raises BuildError."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / file_name(torch)
    with _locked(folder):
        if not target.is_file():
            _compile(torch, target, optimization)
    return target


def _compile(torch: Torch, target: Path, optimization: str) -> None:
    scratch = target.with_suffix(f".{os.getpid()}.tmp")
    command = _command(torch, scratch, optimization)
    _say(f"compiling the backend for torch {torch.version}; it takes about 20 s, once")
    begin = time.monotonic()
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        while True:
            try:
                said, _ = process.communicate(timeout=_SAYS_SECONDS)
                break
            except subprocess.TimeoutExpired:
                _say(f"still compiling, for {time.monotonic() - begin:.0f} s")
        if process.returncode != 0:
            raise BuildError(f"the backend for torch does not compile:\n{shlex.join(command)}\n{said}")
        os.replace(scratch, target)  # whole, or not there
    finally:
        scratch.unlink(missing_ok=True)


def _command(torch: Torch, output: Path, optimization: str) -> list[str]:
    if tuple(map(int, torch.version.split(".")[:2])) < _OLDEST:
        raise BuildError(f"torch {torch.version} is too old: the backend needs torch {_OLDEST[0]}.{_OLDEST[1]} or newer")
    if not (torch.folder / "include/torch/csrc/distributed/c10d/Backend.hpp").is_file():
        raise BuildError(f"torch {torch.version} in {torch.folder} came without its C++ headers: install it with pip")
    includes = [torch.folder / "include", torch.folder / "include/torch/csrc/api/include"]
    return [
        *_compiler(torch), "-std=c++20", optimization, "-g0", "-s", "-shared", "-fPIC", "-fvisibility=hidden", "-w",
        "-iquote", str(_HERE), "-I", str(_header_folder()), *(flag for path in includes for flag in ("-isystem", str(path))),
        str(_HERE / "csrc/extension.cc"), "-o", str(output), "-L", str(torch.folder / "lib"), "-lc10", "-ltorch_cpu",
        # Each symbol is looked up when it is loaded, so that a library that lacks one is an error there.
        _library(), "-Wl,-z,now",
    ]  # fmt: skip


def _library() -> str:
    named = os.environ.get("RONDO_LIBRARY")
    if named:  # as tools/wheel.sh does, where there is no rondo yet
        return named
    from rondo import _library

    return _library.find()


def _compiler(torch: Torch) -> list[str]:
    """CXX may be several words, as "ccache g++"."""
    words = shlex.split(os.environ.get("CXX", "")) or ["g++"]
    if shutil.which(words[0]) is None:
        raise BuildError(
            f"this copy of rondo carries no backend for torch {torch.version}; it would be compiled now, and there is no "
            f"{words[0]}: apt-get install g++, or name a C++20 compiler by CXX"
        )
    return words


def _header_folder() -> Path:
    """Where <rondo/rondo.h> is: in the package, or in the source tree."""
    for folder in (_HERE.parent / "_native/include", _HERE.parents[2] / "ring/include"):
        if (folder / "rondo/rondo.h").is_file():
            return folder
    raise BuildError(f"rondo/rondo.h is neither in {_HERE.parent} nor in a source tree around it: install rondo again")


def _say(text: str) -> None:
    print(f"rondo: {text}", file=sys.stderr, flush=True)


def _cache_folder() -> Path | None:
    """None: of a user without a home."""
    named = os.environ.get("RONDO_TORCH_CACHE")
    if named:
        return Path(named)
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return None if cache.startswith("~") else Path(cache) / "rondo/torch"


def _user() -> int:
    """Outside of a container: root of one whose /tmp is the host's is another user than the host's root."""
    user = os.getuid()
    try:
        ids = [tuple(map(int, line.split())) for line in Path("/proc/self/uid_map").read_text().splitlines()]
    except OSError:
        return user
    return next((outside + user - inside for inside, outside, count in ids if inside <= user < inside + count), user)


def _writable_folder() -> Path:
    """The cache folder, or a folder of this user under /tmp if that cannot be written, or there is none."""
    folder = _cache_folder()
    try:
        if folder is None:
            raise OSError(errno.ENOENT, "this user has no home")
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        other = Path(tempfile.gettempdir()) / f"rondo-torch-{_user()}"
        _say(f"{folder or 'a cache folder'} cannot be written ({error.strerror}); compiling into {other}")
        other.mkdir(mode=0o700, exist_ok=True)
        owner = other.stat()
        if owner.st_uid != os.getuid() or owner.st_mode & 0o022:
            raise BuildError(f"{other} belongs to somebody else: name a folder by RONDO_TORCH_CACHE") from None
        return other


@contextmanager
def _locked(folder: Path):
    with open(folder / "lock", "w") as lock:
        next_line = time.monotonic()
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= next_line:
                    _say("waiting for another process that compiles the backend for torch")
                    next_line += _SAYS_SECONDS
                time.sleep(0.05)
        yield


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m rondo.torch.build", description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="where to put it; default: beside the package, or the cache folder")
    parser.add_argument("--torch", type=Path, help="another torch's folder, which holds include and lib; -O2 instead of -O1")
    given = parser.parse_args()
    folder = given.folder or (_BESIDE if os.access(_HERE, os.W_OK) else _writable_folder())
    try:
        print(build(Torch(given.torch), folder, "-O2") if given.torch else build(installed(), folder))
    except BuildError as error:
        sys.exit(f"rondo.torch.build: {error}")


if __name__ == "__main__":
    main()
