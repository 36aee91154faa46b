#!/usr/bin/env python3
"""Holds how much code a small blocking all_reduce passes through before its first byte moves.

first_byte.py BINARY [--most TRANSPORT=N ...]

BINARY is //tests/engine:first_byte, built with --config=first_byte. For each transport the distinct functions of the
library's .cc files that one call enters are listed, with their lines (functions in headers are left out). Exit code 1
if they are more than N, or one of them is longer than 70 lines.
"""

import argparse
import pathlib
import subprocess
import sys

LONGEST = 70  # lines of a function


def functions(binary, transport):
    """[(name, file, first line)] in the order of their first call."""
    addresses = subprocess.run([binary, transport], check=True, capture_output=True, text=True).stdout.split()
    tool = ["addr2line", "--functions", "--demangle", "--exe", binary]
    told = subprocess.run(tool + addresses, check=True, capture_output=True, text=True).stdout.splitlines()
    found = []
    for name, place in zip(told[::2], told[1::2]):
        path, line = place.split(" ")[0].rsplit(":", 1)
        path = path.removeprefix("/proc/self/cwd/")
        if path.endswith(".cc") and not path.startswith("tests/") and "rondo::" in name:
            found.append((name, path, int(line) if line.isdigit() else 0))
    return found


def length(path, first):
    """Lines of the function whose signature holds that line: its last brace stands under its first word."""
    if first == 0:
        return 0  # a template, whose line the compiler does not tell
    lines = pathlib.Path(path).read_text().splitlines()
    indent = lambda i: len(lines[i]) - len(lines[i].lstrip())
    begin = first - 1
    while indent(begin) > 2:  # a signature of several lines
        begin -= 1
    if lines[begin].rstrip().endswith("}"):
        return 1
    end = " " * indent(begin) + "}"
    return next(i for i in range(begin, len(lines)) if lines[i].startswith(end)) - begin + 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--most", action="append", default=[], metavar="TRANSPORT=N")
    arguments = parser.parse_args()
    most = dict(text.split("=") for text in arguments.most)
    good = True
    for transport in most or ("shm", "tcp"):
        found = functions(arguments.binary, transport)
        print(f"{transport}: {len(found)} functions")
        for name, path, line in found:
            lines = length(path, line)
            good = good and lines <= LONGEST
            print(f"  {name}  {path}:{line}, {lines} lines")
        good = good and 0 < len(found) <= int(most.get(transport, len(found)))
    sys.exit(0 if good else 1)


main()
