"""The tree's sources, as the checks of this folder read them."""

import pathlib
import re
import subprocess

SUFFIXES = (".h", ".cc", ".c", ".cu", ".cuh")


def sources(root):
    """Paths, relative to root, of all sources that git knows or would add."""
    listed = subprocess.run(
        ["git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard"],
        check=True, capture_output=True, text=True).stdout.splitlines()
    return sorted(path for path in listed
                  if path.endswith(SUFFIXES) and (pathlib.Path(root) / path).is_file())


_COMMENT_OR_STRING = r"""//[^\n]*            # comments
      | /\*.*?\*/
      | R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)"   # strings
      | "(?:\\.|[^"\\\n])*"
      | (?<![0-9a-fA-F])'(?:\\.|[^'\\\n])*'
    """
_FLAGS = re.VERBOSE | re.DOTALL | re.MULTILINE
_NO_CODE = re.compile(_COMMENT_OR_STRING, _FLAGS)
_NOISE = re.compile(_COMMENT_OR_STRING + r"""| ^[ \t]*\#(?:\\\n|[^\n])*  # preprocessor lines""", _FLAGS)


def code_of(text):
    """The text without comments, strings and preprocessor lines; line numbers stay."""
    return _NOISE.sub(lambda match: '""' * match.group().startswith(('"', "R")) + "\n" * match.group().count("\n"), text)


def comments_of(text):
    """Yields (line, words) of each comment. Lines of // in one column, one below the other, are one comment, and the
    words are those of its first line."""
    below = None
    for found in _NO_CODE.finditer(text):
        if not found.group().startswith("/"):
            continue
        line = text.count("\n", 0, found.start()) + 1
        column = found.start() - text.rfind("\n", 0, found.start())
        is_block = found.group().startswith("/*")
        if is_block or below != (line, column):
            yield line, found.group().lstrip("/*!< \t\n")
        below = None if is_block else (line + 1, column)
