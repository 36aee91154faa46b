"""Compares two builds of librondo_c.so: functions of the same sizes, as many instructions on vector registers.
  compare_builds.py BAZEL PIP    exits with 1 and names what differs

Both follow from compiler and flags: -O2 for -O3, or a kernel without its instruction set, shows here.
"""

import collections
import re
import subprocess
import sys


# Of an inline function each linker keeps another unit's copy, and they drop different unused ones.
MAX_OTHER_FUNCTIONS = 0.005


def functions(library: str) -> collections.Counter:
    """How often each (name, size in bytes) occurs."""
    lines = subprocess.run(
        ["nm", "--defined-only", "--print-size", library], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    found = collections.Counter()
    for line in lines:
        fields = line.split()
        # Of the C++ runtime, which is linked in, the linker chooses the parts.
        if len(fields) == 4 and fields[2] in "tTwW" and "rondo" in fields[3]:
            found[fields[3], int(fields[1], 16)] += 1
    return found


def registers(library: str) -> collections.Counter:
    """Instructions by the widest registers that they name, and multiply-adds."""
    found = collections.Counter()
    with subprocess.Popen(["objdump", "-d", "--no-show-raw-insn", library], stdout=subprocess.PIPE, text=True) as dump:
        for line in dump.stdout:
            widths = re.findall(r"%([xyz])mm", line)
            if widths:
                found[f"{max(widths)}mm"] += 1
            if "vfmadd" in line or "vfnmadd" in line:
                found["fused multiply-add"] += 1
    return found


def main() -> None:
    bazel, pip = (functions(library) for library in sys.argv[1:3])
    vectors = [registers(library) for library in sys.argv[1:3]]
    only = {"Bazel": bazel - pip, "pip": pip - bazel}
    for who, counter in only.items():
        for name, size in sorted(counter)[:20]:
            print(f"only in the build by {who}: {name}, {size} bytes")
    others = sum(counter.total() for counter in only.values())
    print(f"{bazel.total()} functions by Bazel, {pip.total()} by pip, {others} differ; instructions: {vectors}")
    same_vectors = all(vectors[0][name] == vectors[1][name] for name in ("ymm", "zmm", "fused multiply-add"))
    if others > MAX_OTHER_FUNCTIONS * bazel.total() or not same_vectors or not vectors[0]["zmm"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
