#!/usr/bin/env python3
"""generate.py OUT BIN PRIMITIVES.json: the site's sources, for mkdocs. BIN: the folder of an installation's programs."""

import json
import pathlib
import shutil
import subprocess
import sys

import links
import pictures
import reference

TREE = pathlib.Path(__file__).resolve().parents[2]
VIEWS = {
    "ring": ["--values"],
    "sum": ["--values"],
    "compare": ["--compare", "ring,star,direct"],
    "hosts": ["--hosts", "4,4,4,4", "--algorithm", "hierarchical", "--bytes", "64M"],
}


def primitives(runs, out):
    text = ["# Primitives in pictures\n", "Four ranks. A color is the rank that a value came from; a cell with four colors was made from all. "
            "The library has run each of these; the values are what it left.\n"]
    for number, run in enumerate(runs):
        (out / f"primitive-{number}.svg").write_text(pictures.primitive(run), encoding="utf-8")
        text.append(f"## {run['name']}\n\n{run['words']}\n\n![{run['name']}: before and after](primitive-{number}.svg)\n")
    (out / "primitives.md").write_text("\n".join(text), encoding="utf-8")


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


def main(out, programs, runs):
    out = pathlib.Path(out)
    shutil.rmtree(out, ignore_errors=True)
    (out / "view").mkdir(parents=True)
    copy_pages(out)
    primitives(json.loads(pathlib.Path(runs).read_text(encoding="utf-8")), out)
    (out / "hosts.svg").write_text(pictures.hosts(), encoding="utf-8")
    (out / "training.svg").write_text(pictures.training(), encoding="utf-8")
    programs = pathlib.Path(programs)
    (out / "reference.md").write_text(reference.page({
        name: [str(programs / name)] for name in ("rondo-run", "rondo-bench", "rondo-view", "rondo-trace", "rondo-doctor")}), encoding="utf-8")
    for name, options in VIEWS.items():
        subprocess.run([programs / "rondo-view", *options, "-o", out / "view" / f"{name}.html"], check=True)


main(*sys.argv[1:])
