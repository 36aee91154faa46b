"""Which version of Rondo the programs in Python come with."""

import pathlib
import re


def text(program):
    """For --version. The header says it, in the tree and where this is installed."""
    folder = pathlib.Path(__file__).resolve().parent
    headers = [folder.parents[1] / "ring/include/rondo/rondo.h", folder.parents[2] / "include/rondo/rondo.h"]
    header = next(path for path in headers if path.is_file()).read_text(encoding="utf-8")
    return f"{program} " + re.search('^#define RONDO_VERSION "(.*)"$', header, re.MULTILINE).group(1)
