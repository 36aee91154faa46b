"""What pip and CMake compile (tools/native/units.py) is what Bazel's targets are made of: a file that is missing in one
of them, or one too many, is named here.
  units_test.py BAZEL [FLAG...]    the command that runs Bazel
"""

import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tools/native"))
import units  # noqa: E402

# By part, and whether the library's objects are linked in, too.
TARGETS = {
    "library": ("//ring:rondo", False),
    "launcher": ("//tools:rondo-run", False),
    "bench": ("//bench:rondo-bench", True),
    "doctor": ("//tools/doctor:rondo-doctor", True),
    "view": ("//tools/view:rondo-view", True),
    "module": ("//python:_rondo.abi3.so", True),
}


def of_bazel(bazel: list[str], target: str) -> set[str]:
    query = f"filter('^//.*[.]cc$', kind('source file', deps({target})))"
    told = subprocess.run([*bazel, "query", query], check=True, capture_output=True, text=True).stdout
    return {label.removeprefix("//").replace(":", "/").removeprefix("/") for label in told.split()}


def main() -> None:
    listed = {part: {unit.source for unit in units.units(part)} for part in units.SOURCES}
    wrong = 0
    # A list may have more of the library than a target: the linker leaves out what nobody calls.
    for part, (target, with_library) in TARGETS.items():
        have = listed[part] | (listed["library"] if with_library else set())
        want = of_bazel(sys.argv[1:], target)
        for name in sorted(want - have):
            print(f"{target} is made of {name}, which tools/native/units.py does not list for {part}")
            wrong += 1
        for name in sorted(listed[part] - want - listed["library"]):
            print(f"tools/native/units.py lists {name} for {part}, and {target} has no such file")
            wrong += 1
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
