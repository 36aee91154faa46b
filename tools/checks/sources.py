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


_NOISE = re.compile(
    r"""//[^\n]*                          # comments
      | /\*.*?\*/
      | R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)"   # strings
      | "(?:\\.|[^"\\\n])*"
      | (?<![0-9a-fA-F])'(?:\\.|[^'\\\n])*'
      | ^[ \t]*\#(?:\\\n|[^\n])*          # preprocessor lines
    """, re.VERBOSE | re.DOTALL | re.MULTILINE)


def code_of(text):
    """The text without comments, strings and preprocessor lines; line numbers stay."""
    return _NOISE.sub(lambda match: '""' * match.group().startswith(('"', "R")) + "\n" * match.group().count("\n"), text)
