"""Compares two builds of librondo_c.so: as many instructions on wide vector registers, and about as much other code.
  compare_builds.py BAZEL PIP    exits with 1 where they differ

Both follow from compiler and flags: a kernel without its instruction set, or -O3 for -O2, shows here. Functions cannot be
compared: pip compiles several files together, where the compiler inlines more.
"""

import collections
import re
import subprocess
import sys


def bytes_of_code(library: str) -> int:
    """Of our own functions: of the C++ runtime, which is linked in, the linker chooses the parts."""
    lines = subprocess.run(
        ["nm", "--defined-only", "--print-size", library], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    fields = [line.split() for line in lines]
    return sum(int(each[1], 16) for each in fields if len(each) == 4 and each[2] in "tTwW" and "rondo" in each[3])


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
    vectors = [registers(library) for library in sys.argv[1:3]]
    code = [bytes_of_code(library) for library in sys.argv[1:3]]
    print(f"by Bazel and by pip: {code} bytes of code; instructions: {vectors}")
    same = all(vectors[0][name] == vectors[1][name] for name in ("ymm", "zmm", "fused multiply-add"))
    alike = abs(vectors[1]["xmm"] / vectors[0]["xmm"] - 1) < 0.03 and 0.85 < code[1] / code[0] < 1.03
    if not vectors[0]["zmm"] or not same or not alike:
        sys.exit("the flags differ: python/setup.py, tools/bazel")


if __name__ == "__main__":
    main()
