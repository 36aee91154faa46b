"""Checks that no page of a site names a thing that a browser would fetch from elsewhere: outside.py SITE"""

import pathlib
import re
import sys

_TAG = re.compile(r"<(?:script|link|img|iframe|source|video|object)\b[^>]*>")
_ELSEWHERE = re.compile(r"""(?:src|href|data)=["']?(?:https?:)?//""")
_STYLE = re.compile(r"""(?:url\(\s*["']?|@import\s+["'])(?:https?:)?//[^)"']*""")


def requests(site):
    for page in pathlib.Path(site).rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        for tag in _TAG.findall(re.sub(r"(?s)<pre>.*?</pre>", "", text)):
            if _ELSEWHERE.search(tag) and 'rel="canonical"' not in tag:
                yield f"{page}: {tag}"
        for found in _STYLE.findall("".join(re.findall(r"(?s)<style>.*?</style>", text))):
            yield f"{page}: {found}"
    for style in pathlib.Path(site).rglob("*.css"):
        for found in _STYLE.findall(style.read_text(encoding="utf-8")):
            yield f"{style}: {found}"


if __name__ == "__main__":
    found = list(requests(sys.argv[1]))
    print("\n".join(found) or "nothing from outside")
    sys.exit(1 if found else 0)
