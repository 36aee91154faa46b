#!/usr/bin/env python3
"""Holds how much code a call on 8 bytes passes through before its first byte moves, or it returns.

first_byte.py BINARY CALL/TRANSPORT=N ...

BINARY is //tests/engine:first_byte, built with --config=first_byte. For each call and transport the distinct functions
of the library that the call enters are listed with their lines, inline ones of headers and lambdas among them. Exit
code 1 if they are more than N, or one of them is longer than 70 lines.
"""

import argparse
import pathlib
import subprocess
import sys

LONGEST = 70  # lines of a function
RUNS = 3  # of which the one with the fewest functions counts: now and then a call looks for what is rare, new streams say
OURS = ("ring/", "transport/", "kernels/")


def place_in_tree(path):
    """Of a path in Bazel's folders, where headers are links."""
    path = pathlib.Path(path.removeprefix("/proc/self/cwd/"))
    root = pathlib.Path.cwd()
    resolved = path.resolve()
    return str(resolved.relative_to(root) if resolved.is_relative_to(root) else path)


def functions(binary, call, transport):
    """[(name, file, first line)] in the order of their first call."""
    addresses = subprocess.run([binary, call, transport], check=True, capture_output=True, text=True).stdout.split()
    tool = ["addr2line", "--functions", "--demangle", "--exe", binary]
    told = subprocess.run(tool + addresses, check=True, capture_output=True, text=True).stdout.splitlines()
    found = []
    for name, place in zip(told[::2], told[1::2]):
        path, line = place.split(" ")[0].rsplit(":", 1)
        path = place_in_tree(path)
        # Of gcc's headers addr2line names the file that includes them.
        if path.startswith(OURS) and not name.startswith("__gnu_cxx::"):
            found.append((name, path, int(line) if line.isdigit() else 0))
    return found


def length(path, first):
    """Lines of the function, or lambda, whose signature begins at that line: to where its braces are closed."""
    if first == 0:
        return 0  # a template, whose line the compiler does not tell
    lines = pathlib.Path(path).read_text().splitlines()[first - 1 :]
    depth, opened = 0, False
    for count, line in enumerate(lines, 1):
        depth += line.count("{") - line.count("}")
        opened = opened or "{" in line
        over = depth <= 0 if opened else line.endswith(";")
        if over and not line.endswith(","):  # of a default argument
            return count
    return len(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("most", nargs="+", metavar="CALL/TRANSPORT=N")
    arguments = parser.parse_args()
    good = True
    for text in arguments.most:
        way, most = text.split("=")
        found = min((functions(arguments.binary, *way.split("/")) for _ in range(RUNS)), key=len)
        print(f"{way}: {len(found)} functions, {most} are allowed")
        for name, path, line in found:
            lines = length(path, line)
            good = good and lines <= LONGEST
            print(f"  {name}  {path}:{line}, {lines} lines")
        good = good and 0 < len(found) <= int(most)
    sys.exit(0 if good else 1)


main()
