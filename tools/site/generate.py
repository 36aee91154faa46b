#!/usr/bin/env python3
"""generate.py OUT BIN: the site's sources, for mkdocs. BIN: the folder of an installation's programs."""

import pathlib
import shutil
import subprocess
import sys

import links
import reference

TREE = pathlib.Path(__file__).resolve().parents[2]
VIEWS = {
    "ring": ["--values"],
    "sum": ["--values"],
    "compare": ["--compare", "ring,star,direct"],
    "hosts": ["--hosts", "4,4,4,4", "--algorithm", "hierarchical", "--bytes", "64M"],
}


def primitives(out):
    """The example, and what the tests know that it prints."""
    folder = TREE / "examples/python"
    program, output = ((folder / f"primitives.{end}").read_text(encoding="utf-8") for end in ("py", "txt"))
    text = f"# Primitives\n\n```python\n{program}```\n\n4 ranks print\n\n```text\n{output}```\n"
    (out / "primitives.md").write_text(text, encoding="utf-8")


def copy_pages(out):
    pages = {TREE / "README.md": "readme.md"}
    for path in (TREE / "docs").iterdir():
        if path.suffix in (".md", ".svg", ".png", ".json") and path.name != "README.md":
            pages[path] = path.name
    own = pathlib.Path(__file__).resolve().parent / "pages"
    pages.update({path: path.name for path in own.iterdir()})
    for path, name in pages.items():
        if path.suffix == ".md":
            text = links.on_site(path.read_text(encoding="utf-8"), path.parent, pages)
            (out / name).write_text(text, encoding="utf-8")
        else:
            shutil.copy(path, out / name)


def main(out, programs):
    out = pathlib.Path(out)
    shutil.rmtree(out, ignore_errors=True)
    (out / "view").mkdir(parents=True)
    copy_pages(out)
    primitives(out)
    programs = pathlib.Path(programs)
    (out / "reference.md").write_text(reference.page({
        name: [str(programs / name)] for name in ("rondo-run", "rondo-bench", "rondo-view", "rondo-trace", "rondo-top", "rondo-doctor")}), encoding="utf-8")
    for name, options in VIEWS.items():
        subprocess.run([programs / "rondo-view", *options, "-o", out / "view" / f"{name}.html"], check=True)


main(*sys.argv[1:])
