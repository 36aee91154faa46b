#!/usr/bin/env python3
"""Holds docs/faults.md against the tests: every row has a test, and every test's row is there.

    tools/checks/faults.py [ROOT]

A test proves a row if its name begins with "fault 39: " or "fault 25, 27: "; a fuzz target proves the row of parsers.
Exit code 1 if a row has no test, or a test no row.
"""

import pathlib
import re
import sys

from sources import sources

_ROW = re.compile(r"^\| *(\d+) *\|", re.MULTILINE)
_TEST = re.compile(r'TEST_CASE\(\s*"fault ([\d, ]+): ')
_FUZZ_TARGET = re.compile(r"^void try_input\(", re.MULTILINE)
_FUZZED_ROW = 75
_PYTHON_TEST = re.compile(r"def test_fault_(\d+)_")


def tested(root):
    """{row: files}"""
    found = {}
    root = pathlib.Path(root)
    for path in sources(root):
        if not path.startswith("tests/"):
            continue
        text = (root / path).read_text(encoding="utf-8")
        for numbers in _TEST.findall(text):
            for number in numbers.split(","):
                found.setdefault(int(number), set()).add(path)
        if path.startswith("tests/fuzz/") and _FUZZ_TARGET.search(text):
            found.setdefault(_FUZZED_ROW, set()).add(path)
    for path in root.glob("tests/python/test_*.py"):
        for number in _PYTHON_TEST.findall(path.read_text(encoding="utf-8")):
            found.setdefault(int(number), set()).add(str(path.relative_to(root)))
    return found


def complaints(root):
    known = {int(row) for row in _ROW.findall((pathlib.Path(root) / "docs/faults.md").read_text(encoding="utf-8"))}
    found = tested(root)
    out = [f"docs/faults.md: row {row} has no test" for row in sorted(known - found.keys())]
    for row, files in sorted(found.items()):
        if row not in known:
            out.append(f"{min(files)}: docs/faults.md has no row {row}")
    return out


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2]
    found = complaints(root)
    print("\n".join(found) or "every fault has a test")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
