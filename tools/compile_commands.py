#!/usr/bin/env python3
"""Writes compile_commands.json for editors and clangd, from what Bazel would run: tools/compile_commands.py [TARGET]

TARGET is //... unless said otherwise. Build it once before, so that generated and linked headers exist.
"""

import json
import os
import subprocess
import sys

# For Bazel, and not known to clang.
DROPPED = {"-MD", "-fno-canonical-system-headers"}


def bazel(*arguments):
    return subprocess.run(["bazel", *arguments], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout


def main():
    workspace = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    os.chdir(workspace)
    target = sys.argv[1] if len(sys.argv) > 1 else "//..."
    # There external/NAME resolves, and our own sources are links to the tree.
    root = bazel("info", "execution_root").decode().strip()
    query = f'mnemonic("CppCompile", deps({target}))'
    entries = {}
    for action in json.loads(bazel("aquery", "--output=jsonproto", "--keep_going", query)).get("actions", []):
        words = action["arguments"]
        if "-c" not in words or (source := words[words.index("-c") + 1]).startswith("external/"):
            continue
        # The real name, so that an editor that opens the file finds it. A file is compiled for the host, too: the
        # target's own flags come first.
        path = os.path.join(workspace, source)
        kept = [word for word in words if word not in DROPPED]
        entries.setdefault(path, {"directory": root, "file": path, "arguments": kept})
    with open("compile_commands.json", "w", encoding="utf-8") as file:
        json.dump([entries[path] for path in sorted(entries)], file, indent=1)
    print(f"compile_commands.json: {len(entries)} files")


if __name__ == "__main__":
    main()
