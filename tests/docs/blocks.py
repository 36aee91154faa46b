"""Takes the blocks of code out of a page of Markdown, with the comments that say how to run them.

A comment in front of a block, which readers of the page do not see, gives its options, a word each:

    <!-- docs: file=sum.cc -->          the block is this file of the working folder
    <!-- docs: skip=reason words -->    the block is not run; the reason is printed
    <!-- docs: replace=host-a:127.0.0.1 -->   the first text is replaced by the second before the block runs
    <!-- docs: prints -->               the block is output: each of its lines is one that the block before has printed
    <!-- docs: before
    code in front of a fragment
    -->
"""

import dataclasses
import pathlib
import re

_FENCE = re.compile(r"^( *)```(\w*) *$")
_OPTIONS = re.compile(r"^ *<!-- docs: (.*?) -->$")
_BEFORE = re.compile(r"^ *<!-- docs: before$")


@dataclasses.dataclass
class Block:
    """One fenced block of a page."""

    page: str
    line: int  # of its first line of code, from 1
    language: str
    text: str
    before: str = ""
    file: str = ""
    skip: str = ""
    prints: bool = False

    @property
    def place(self):
        return f"{self.page}:{self.line}"


def _apply_options(block, text):
    if text.startswith("skip="):
        block.skip = text[len("skip="):]
        return
    for word in text.split():
        name, _, value = word.partition("=")
        if name == "file":
            block.file = value
        elif name == "prints":
            block.prints = True
        elif name == "replace":
            old, _, new = value.partition(":")
            if old not in block.text:
                raise ValueError(f"{block.place}: there is no '{old}' to replace in the block")
            block.text = block.text.replace(old, new)
        else:
            raise ValueError(f"{block.place}: no such option: {word}")


def _read_comment(lines, at):
    """Lines of a 'before' comment that begins at `at`, and the index behind it."""
    end = lines.index("-->", at)
    return "\n".join(lines[at + 1:end]) + "\n", end + 1


# Programs that the pages' commands begin with.
_COMMAND = re.compile(r"    (\$ |rondo-|python|pip |tools/|bazel |sbatch |tests/|RONDO_\w+=|mpirun|srun |torchrun|export |g\+\+ |#include)")


def loose_code(path):
    """Places of commands in blocks that are indented, not fenced; those cannot say how to run them."""
    inside, before = False, ""
    for number, line in enumerate(pathlib.Path(path).read_text(encoding="utf-8").split("\n"), 1):
        if _FENCE.match(line) or (inside and line.strip() == "```"):
            inside = not inside
        elif not inside and not before.strip() and _COMMAND.match(line):
            yield f"{path}:{number}"
        before = line


def blocks_of(path, page):
    """All fenced blocks of the file `path`, which messages call `page`."""
    lines = pathlib.Path(path).read_text(encoding="utf-8").split("\n")
    blocks, options, before, at = [], [], "", 0
    while at < len(lines):
        line = lines[at]
        if _BEFORE.match(line):
            before, at = _read_comment(lines, at)
            continue
        if found := _OPTIONS.match(line):
            options.append(found[1])
        elif found := _FENCE.match(line):
            indent, end = found[1], at + 1
            while lines[end].strip() != "```":
                end += 1
            text = "\n".join(l.removeprefix(indent) for l in lines[at + 1:end]) + "\n"
            block = Block(page, at + 2, found[2], text, before)
            for option in options:
                _apply_options(block, option)
            blocks.append(block)
            options, before, at = [], "", end
        elif line.strip() and (options or before):
            raise ValueError(f"{page}:{at + 1}: options for a block, and no block behind them")
        at += 1
    return blocks
