"""`python -m rondo.run -n 4 train.py ...`: rondo-run, which comes with the package. --help lists its options."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path


def find_rondo_run() -> str:
    packaged = Path(__file__).resolve().parent / "_native" / "rondo-run"
    found = os.environ.get("RONDO_RUN") or (str(packaged) if packaged.is_file() else shutil.which("rondo-run"))
    if not found:
        raise SystemExit("rondo.run: there is no rondo-run in this package or in PATH; RONDO_RUN=path names one")
    return found


def main() -> None:
    program = find_rondo_run()
    # A program that is a script is run by this Python.
    os.execv(program, [program, "--python", sys.executable, *sys.argv[1:]])


if __name__ == "__main__":
    main()
