#!/usr/bin/env python3
"""Finds comments that begin with "Of" or "As", which hide their subject.

    tools/checks/comments.py [ROOT]

Exit code 1 if there are any.
"""

import re
import sys

from sources import comments_of, sources


def main(root):
    found = [f"{path}:{line}: begins with {words[:2]}" for path in sources(root)
             for line, words in comments_of(open(f"{root}/{path}", encoding="utf-8").read())
             if re.match(r"(Of|As)\s", words)]
    for place in found:
        print(f"{place}; name the subject first")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "."))
