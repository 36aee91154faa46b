#!/usr/bin/env python3
"""Writes compile_commands.json for editors and clangd, from what Bazel would run: tools/compile_commands.py [TARGET]

TARGET is //... unless said otherwise. Run `bazel build` of it once before, so that generated and linked headers exist.
"""

import json
import os
import subprocess
import sys

# What these options take as a separate argument is of no use to an editor.
DROPPED_WITH_VALUE = {"-MF", "-o"}
DROPPED = {"-MD", "-fno-canonical-system-headers", "-c"}


def bazel(*arguments):
    return subprocess.run(["bazel", *arguments], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout


def compile_actions(target):
    query = f'mnemonic("CppCompile", deps({target}))'
    # --host and exec configurations compile the same files again: the flags of the target's own come first.
    graph = json.loads(bazel("aquery", "--output=jsonproto", "--keep_going", query))
    return [action["arguments"] for action in graph.get("actions", []) if "-c" in action.get("arguments", [])]


def cleaned(arguments):
    """The command less outputs, dependency files, and flags that clang does not know."""
    result = []
    words = iter(arguments)
    for word in words:
        if word in DROPPED_WITH_VALUE:
            next(words)
        elif word not in DROPPED:
            result.append(word)
    return result


def entry(arguments, root):
    source = arguments[arguments.index("-c") + 1]
    return {"directory": root, "file": source, "arguments": cleaned(arguments)}


def main():
    workspace = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    os.chdir(workspace)
    target = sys.argv[1] if len(sys.argv) > 1 else "//..."
    # There external/NAME resolves, and our own sources are links to the tree.
    root = bazel("info", "execution_root").decode().strip()
    entries = {}
    for arguments in compile_actions(target):
        item = entry(arguments, root)
        if not item["file"].startswith("external/"):
            # Our own files under their real name, so that an editor that opens them finds the command.
            item["file"] = os.path.join(workspace, item["file"])
            entries.setdefault(item["file"], item)
    with open("compile_commands.json", "w", encoding="utf-8") as file:
        json.dump([entries[name] for name in sorted(entries)], file, indent=1)
    print(f"compile_commands.json: {len(entries)} files")


if __name__ == "__main__":
    main()
