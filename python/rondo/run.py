"""The programs that come with the package: `rondo-run -n 4 train.py`, `rondo-trace report FOLDER`, and the others.
`python -m rondo.run` is rondo-run. Each lists its options by --help."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

_NATIVE = Path(__file__).resolve().parent / "_native"


def find(name: str) -> str:
    packaged = _NATIVE / name
    found = (name == "rondo-run" and os.environ.get("RONDO_RUN")) or (str(packaged) if packaged.is_file() else "")
    # Without what pip has put into PATH: that is this function.
    found = found or shutil.which(name, path=os.pathsep.join(f for f in _path() if f != os.path.dirname(sys.executable)))
    if not found:
        raise SystemExit(
            f"{name}: this copy of rondo, in {_NATIVE.parent}, came without it, as what pip compiles does: tools/wheel.sh makes "
            "a wheel that has it, and tools/install.sh installs it"
        )
    return found


def _path() -> list[str]:
    return os.environ.get("PATH", os.defpath).split(os.pathsep)


def main() -> None:
    # A program that is a script is run by this Python.
    _exec(find("rondo-run"), "--python", sys.executable)


def bench() -> None:
    _exec(find("rondo-bench"))


def doctor() -> None:
    _exec(find("rondo-doctor"))


def view() -> None:
    _exec(find("rondo-view"))


def trace() -> None:
    _exec(sys.executable, str(_NATIVE / "tools/trace/rondo_trace.py"))


def top() -> None:
    _exec(sys.executable, str(_NATIVE / "tools/top/rondo_top.py"))


def _exec(*command: str) -> None:
    os.execv(command[0], [*command, *sys.argv[1:]])


if __name__ == "__main__":
    main()
