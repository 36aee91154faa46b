#!/usr/bin/env python3
"""Finds lambdas that use a structured binding of the function around them, which clang before 16 does not compile.

    tools/checks/bindings.py [ROOT]

[name = name] captures what such a name stands for. CAPTURE() and INFO() of doctest are lambdas, too. Exit code 1 if
there are any.
"""

import re
import sys

from sources import code_of, sources

_BINDING = re.compile(r"\bauto\s*&{0,2}\s*\[([\w\s,]+)\]")
_LAMBDA = re.compile(r"(?<![\w\])])\[(?P<captures>[^\[\]]*)\]\s*(?P<parameters>\((?:[^()]|\([^()]*\))*\))?"
                     r"\s*(?:mutable\b|noexcept\b)?\s*(?:->[^{};]*)?\{"
                     r"|\b(?:CAPTURE|INFO)\(")
_OPENING, _CLOSING = "({[", ")}]"


def end_of(code, begin):
    """Where the bracket closes inside which `begin` is."""
    depth = 0
    for place in range(begin, len(code)):
        depth += (code[place] in _OPENING) - (code[place] in _CLOSING)
        if depth < 0:
            return place
    return len(code)


def scope_of(code, begin):
    """Where the names of a binding that ends at `begin` are known: up to the end of the block, or of what a for repeats."""
    end = end_of(code, begin)
    if code[end:end + 1] != ")":
        return end
    body = end + 1 + len(code[end + 1:]) - len(code[end + 1:].lstrip())
    return end_of(code, body + 1) if code[body:body + 1] == "{" else code.find(";", body)


def uses(code):
    """Yields (name, line) of each use in a lambda."""
    for binding in _BINDING.finditer(code):
        begin, end = binding.end(), scope_of(code, binding.end())
        for found in _LAMBDA.finditer(code, begin, end):
            captures = (found.group("captures") or "").split(",")
            own = re.findall(r"\w+", " ".join(item.split("=")[0] for item in captures if "=" in item)
                             + (found.group("parameters") or ""))
            inside = " ".join(item for item in captures if "=" not in item) + code[found.end():end_of(code, found.end())]
            for name in re.findall(r"\w+", binding.group(1)):
                if name not in own and re.search(rf"(?<!\.)(?<!->)(?<!::)\b{name}\b", inside):
                    yield name, code.count("\n", 0, found.start()) + 1


def main(root):
    found = [f"{path}:{line}: {name}" for path in sources(root) if not path.endswith(".c")
             for name, line in dict.fromkeys(uses(code_of(open(f"{root}/{path}", encoding="utf-8").read())))]
    for place in found:
        print(f"{place} is a structured binding, used in a lambda; capture it as [name = name]")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "."))
