#!/usr/bin/env python3
"""Makes the types of the Python package's calls, python/rondo/NAME.pyi, from the functions in NAME.py.

    tools/stubs.py            writes those that differ
    tools/stubs.py --check    names them instead, exit code 1 if there are any

A call with `async_op` has two: with async_op=True it returns a Work, else what its function says.
"""

import ast
import re
import sys
import textwrap
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "python" / "rondo"
NAMES = ("calls",)
ASYNC = "async_op: bool = False"


def types_of(function, indent):
    """The lines of a function's types."""
    parameters = re.sub(r"(?<=[\w\]])=", " = ", ast.unparse(function.args)).replace("'", '"')
    form = f"def {function.name}({parameters}) -> {ast.unparse(function.returns)}: ..."
    forms = [form]
    if ASYNC in form:
        forms.insert(0, f"def {function.name}({parameters.replace(ASYNC, 'async_op: Literal[True]')}) -> Work: ...")
    for each in forms:
        if len(forms) > 1:
            yield f"{indent}@overload"
        whole = re.sub(r"(?<!,) ", "\xa0", each)  # lines end behind commas
        lines = textwrap.wrap(whole, 120, initial_indent=indent, subsequent_indent=f"{indent}    ")
        yield from (line.replace("\xa0", " ") for line in lines)


def body_of(nodes, indent=""):
    """The lines of definitions: of the public ones, and of all in a class."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef) and (indent or not node.name.startswith("_")):
            yield from types_of(node, indent)
        elif isinstance(node, ast.ClassDef):
            yield f"\nclass {node.name}:"
            yield from body_of(node.body, f"{indent}    ")
            yield ""
        elif isinstance(node, ast.AnnAssign) and not node.target.id.startswith("_"):
            yield f"{node.target.id}: {ast.unparse(node.annotation)}"


def imports_of(tree, body):
    """The lines of the imports that the types need."""
    used = set(re.findall(r"\w+", body))
    found = {("typing", "Literal"), ("typing", "overload"), ("rondo.work", "Work")}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            found |= {(node.module, each.name) for each in node.names}
    needed = [(module, name) for module, name in sorted(found, key=lambda each: (each[0].startswith("rondo"), each)) if name in used]
    for module in dict.fromkeys(module for module, _ in needed):
        yield f"from {module} import {', '.join(name for other, name in needed if other == module)}"


def stub(name):
    tree = ast.parse((PACKAGE / f"{name}.py").read_text())
    body = "\n".join(body_of(tree.body)).strip()
    imports = "\n".join(imports_of(tree, body))
    return f'"""Made by tools/stubs.py from {name}.py."""\n\n{imports}\n\n{body}\n'


def main(arguments):
    if arguments not in ([], ["--check"]):
        sys.exit(__doc__)
    texts = {PACKAGE / f"{name}.pyi": stub(name) for name in NAMES}
    differ = [path for path, text in texts.items() if not path.exists() or path.read_text() != text]
    for path in differ:
        if arguments:
            print(f"{path} is not what its functions say: run tools/stubs.py")
        else:
            path.write_text(texts[path])
    return 1 if arguments and differ else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
