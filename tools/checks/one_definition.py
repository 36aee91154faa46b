#!/usr/bin/env python3
"""Finds names that are defined twice in one namespace: violations of C++'s one-definition rule.

    tools/checks/one_definition.py [ROOT]

No compiler sees two types, constants or inline functions of one name in different translation units; the linker keeps
any one of them. (Two ordinary functions are the linker's to find: librondo.so is made of all objects.) Names in unnamed
namespaces, and macros, are not looked at. Exit code 1 if there are any.
"""

import collections
import re
import sys

from sources import code_of, sources

_TOKEN = re.compile(r"[A-Za-z_]\w*|::|\d[\w.']*|\S")
_TYPE = re.compile(r"(?:template <.*> )?(?:enum (?:class |struct )?|struct |class |union )"
                   r"(?:[A-Z_]+ |\[ \[ .*? \] \] |alignas \( .*? \) )*(\w+)(?: final)?(?: :(?!:).*)?$")
_ALIAS = re.compile(r"(?:template <.*> )?using (\w+) =")
_CONSTANT = re.compile(r"(?:inline |constexpr |const )+.*?(\w+)(?: \[.*\])?(?: =| \{|$)")
_FUNCTION = re.compile(r"(?:.* )?(?:inline|constexpr|template) .*?(\w+) \( (.*)\)(?: const)?(?: noexcept)?$")


def parameter_types(text):
    """"const Foo & foo , int n = 3" as "const Foo &,int": types only, since names do not tell overloads apart."""
    types = []
    for parameter in text.split(","):
        words = parameter.split("=")[0].split()
        if len(words) > 1 and re.fullmatch(r"\w+", words[-1]):
            words.pop()
        types.append(" ".join(words))
    return ",".join(types)


def entity(statement, ended_by):
    """What a statement at namespace scope defines: ("Name", kind), or None. ended_by: "{" or ";"."""
    if match := _ALIAS.match(statement):
        return match.group(1), f"alias{statement[match.end():]}"  # the same alias twice is no violation
    if ended_by == "{" and (match := _TYPE.match(statement)):
        return match.group(1), "type"
    if ended_by == "{" and "(" in statement and (match := _FUNCTION.match(statement)):
        return f"{match.group(1)}({parameter_types(match.group(2))})", "inline function"
    if re.match(r"(inline |constexpr |const )", statement) and "(" not in statement.split("=")[0]:
        if match := _CONSTANT.match(statement):
            return match.group(1), "constant"
    return None


def definitions(code):
    """Yields (qualified name, kind, line) of what the code defines in named namespaces."""
    namespaces = []  # of each open namespace: its name, or None if it has none
    statement, line, depth = [], 1, 0  # depth: of braces below namespace scope
    for match in _TOKEN.finditer(code):
        token = match.group()
        if depth:
            depth += {"{": 1, "}": -1}.get(token, 0)
            continue
        if not statement:
            line = code.count("\n", 0, match.start()) + 1
        if token not in "{};":
            statement.append(token)
            continue
        text = " ".join(statement)
        if token == "{" and re.match(r"(inline )?namespace\b", text):
            name = text.split("namespace", 1)[1].replace(" ", "")
            namespaces.append(name or None)
            statement = []
        elif token == "{" and text.startswith('extern ""'):
            namespaces.append("")
            statement = []
        elif token == "}":
            if namespaces:
                namespaces.pop()
            statement = []
        else:
            found = entity(text, token)
            if found and None not in namespaces and any(namespaces):
                scope = "::".join(n for n in namespaces if n)
                yield f"{scope}::{found[0]}", found[1], line
            if token == "{":
                depth = 1
                # "= {1, 2};" goes on to its semicolon, which then ends an empty statement.
            statement = []


def main(root):
    places = collections.defaultdict(dict)
    for path in sources(root):
        if path.endswith(".c"):
            continue
        with open(f"{root}/{path}", encoding="utf-8") as file:
            for name, kind, line in definitions(code_of(file.read())):
                places[name].setdefault(path, (kind, f"{path}:{line}: {kind}"))
    twice = {name: [place for _, place in where.values()] for name, where in places.items()
             if len(where) > 1 and not all(kind.startswith("alias") and kind == next(iter(where.values()))[0]
                                           for kind, _ in where.values())}
    for name, where in sorted(twice.items()):
        print(f"{name} is defined in {len(where)} places; give one of them a name or a namespace of its own:")
        for place in where:
            print(f"  {place}")
    print(f"{len(places)} names, {len(twice)} of them defined twice")
    return 1 if twice or not places else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "."))
