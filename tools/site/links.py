"""Links of the tree's Markdown, on the site."""

import pathlib
import re

_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def on_site(text, folder, pages):
    """The page with links that work on the site. folder: of the page in the tree; pages: {path in the tree: name on the
    site}. A link to a file that the site lacks becomes its text."""
    def change(match):
        image, words, target = match.groups()
        if re.match(r"[a-z]+:|#", target):
            return match[0]
        name, _, anchor = target.partition("#")
        path = pathlib.Path(folder, name).resolve()
        if path not in pages:
            return words
        return f"{image}[{words}]({pages[path]}{'#' + anchor if anchor else ''})"
    parts = re.split(r"(?ms)(^ *```.*?^ *```$)", text)
    return "".join(part if i % 2 else _LINK.sub(change, part) for i, part in enumerate(parts))
