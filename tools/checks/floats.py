#!/usr/bin/env python3
"""Finds floating point in the engine where a thread of the caller's may decide by it.

    tools/checks/floats.py [ROOT]

What ranks decide must be equal on all of them, and a program sets rounding and denormals for its threads. So floats, and
estimates of ring/plan, are for files that hold a DefaultFloatMode (a header: its .cc), and for those below, which decide
nothing. Exit code 1 if there are others.
"""

import re
import sys

from sources import code_of, sources

FOLDERS = ("ring/api/", "ring/engine/", "ring/compress/")

# What they do with floats; or who holds the mode for them.
ALLOWED = {
    "ring/api/c/": "pass the caller's numbers on",
    "ring/compress/": "CompoundCall",
    "ring/engine/call/call.h": "a number's bits, as a key",
    "ring/engine/observe/": "times for readers",
    "ring/engine/route/trials.cc": "a time for the log",
}

_FLOATS = re.compile(r"(?<!sizeof\()(?<!alignof\()\b(?:double|float|estimated?_us)\b")


def main(root):
    def code(path):
        try:
            return code_of(open(f"{root}/{path}", encoding="utf-8").read())
        except FileNotFoundError:
            return ""

    found = 0
    for path in sources(root):
        if not path.startswith(FOLDERS) or path.startswith(tuple(ALLOWED)):
            continue
        own = code(path)
        if not _FLOATS.search(own) or "DefaultFloatMode" in own + code(path.removesuffix(".h") + ".cc"):
            continue
        found += 1
        line = own.count("\n", 0, _FLOATS.search(own).start()) + 1
        print(f"{path}:{line}: floating point without a DefaultFloatMode; decide in whole numbers, hold one, or say in "
              "tools/checks/floats.py why nothing depends on it")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "."))
