"""Checks that every relative link in the tree's Markdown names a file that exists, and a heading that it has.

    check_links.py ROOT        prints what does not; exit code 1 if there is any
"""

import pathlib
import re
import sys

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.*?) *$")


def anchor_of(heading):
    """The anchor that GitHub gives to a heading: lower case, punctuation dropped, blanks as hyphens."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
    return re.sub(r" ", "-", re.sub(r"[^\w\- ]", "", plain))


def text_of(path):
    """The page without its blocks of code."""
    return re.sub(r"(?ms)^ *```.*?^ *```$", "", path.read_text(encoding="utf-8"))


def broken_links(page):
    text = text_of(page)
    for target in _LINK.findall(text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if not file.exists():
            yield f"{page}: no such file: {target}"
        elif anchor and file.suffix == ".md":
            headings = (_HEADING.match(line) for line in text_of(file).splitlines())
            if anchor not in {anchor_of(found[1]) for found in headings if found}:
                yield f"{page}: no such heading: {target}"


def main(root):
    pages = [page for page in sorted(pathlib.Path(root).rglob("*.md"))
             if not any(part.startswith((".", "bazel-", "build")) for part in page.relative_to(root).parts)]
    broken = [line for page in pages for line in broken_links(page)]
    print("\n".join(broken) if broken else f"{len(pages)} pages, no broken link")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
