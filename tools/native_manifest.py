#!/usr/bin/env python3
"""Writes python/native.json: what Bazel compiles for librondo_c.so and rondo-run, and with which flags, so that
`pip install ./python` builds the same without Bazel.
  tools/native_manifest.py [--check]    --check: only compares, and exits with 1 if the file is not up to date
"""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

TREE = Path(__file__).resolve().parent.parent
MANIFEST = TREE / "python/native.json"
TARGETS = {"library": "//ring:librondo_c.so", "launcher": "//tools:rondo-run"}

# Of no meaning outside Bazel: warnings, where Bazel puts things, what makes its outputs the same everywhere.
DROPPED = re.compile(r"-W|-D__(DATE|TIME|TIMESTAMP)__|-frandom-seed|-fno-canonical-system-headers|-std=c\+\+0x|-MD$")
DROPPED_WITH_VALUE = ("-MF", "-o", "-c")
INCLUDES = ("-iquote", "-isystem", "-I")


def compiles(target: str) -> dict[tuple, list[str]]:
    """Flags by (source, output): a source may be compiled more than once, with different flags."""
    query = f'mnemonic("CppCompile", deps({target}))'
    flags = shlex.split(os.environ.get("RONDO_BAZEL_FLAGS", ""))
    done = subprocess.run(
        ["bazel", "aquery", *flags, "--output=jsonproto", query], cwd=TREE, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        sys.exit(f"{done.stderr}native_manifest: bazel aquery failed")
    return dict(filter(None, map(unit, json.loads(done.stdout)["actions"])))


def unit(action: dict):
    kept, source, output = [], None, None
    arguments = iter(action["arguments"][1:])
    for argument in arguments:
        if argument in DROPPED_WITH_VALUE:
            value = next(arguments)
            source = value if argument == "-c" else source
            output = value if argument == "-o" else output
        elif argument in INCLUDES:
            value = next(arguments)
            if not value.startswith(("bazel-out", "external")):
                kept += [argument, value]
        elif not DROPPED.match(argument):
            kept.append(argument)
    return None if "/host/" in output or "-exec-" in output else ((source, output), kept)


def manifest() -> dict:
    made = {name: compiles(target) for name, target in TARGETS.items()}
    everywhere = [flags for units in made.values() for flags in units.values()]
    # "-iquote ." is two arguments, so that flags are compared as text.
    joined = [re.sub(r"(-iquote|-isystem|-I) ", r"\1=", " ".join(flags)).split(" ") for flags in everywhere]
    common = [flag for flag in joined[0] if all(flag in flags for flags in joined)]

    def own(flags: list[str]) -> list[str]:
        text = re.sub(r"(-iquote|-isystem|-I) ", r"\1=", " ".join(flags)).split(" ")
        return split(flag for flag in text if flag not in common)

    def split(flags) -> list[str]:
        return [part for flag in flags for part in (flag.split("=", 1) if flag.startswith(("-iquote=", "-isystem=")) else [flag])]

    return {
        "flags": split(common),
        **{
            name: sorted([source, own(flags)] for (source, _), flags in units.items()) for name, units in made.items()
        },
    }


def text_of(made: dict) -> str:
    """A unit a line."""
    parts = [f' "flags": {json.dumps(made["flags"])}']
    for name in TARGETS:
        lines = ",\n".join("  " + json.dumps(entry) for entry in made[name])
        parts.append(f' "{name}": [\n{lines}\n ]')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main() -> None:
    made = text_of(manifest())
    if sys.argv[1:] == ["--check"]:
        if MANIFEST.read_text() != made:
            sys.exit("python/native.json is not what Bazel builds now: run tools/native_manifest.py")
        return
    if sys.argv[1:]:
        sys.exit(__doc__)
    MANIFEST.write_text(made)


if __name__ == "__main__":
    main()
