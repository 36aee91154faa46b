"""Opens reports of traces in headless Chromium: report_pages.py FOLDER. Prints "pass NAME" or "fail NAME: why"."""

import sys

from browser import Browser
from verdicts import equal, look

FOLDER = sys.argv[1]


def sentences(browser):
    """every rank's first sentences name rank 2 and 300 ms"""
    browser.open(f"{FOLDER}/stopped-shm.html")
    said = browser.run("return [...document.querySelectorAll('.blame')].map(b => [b.dataset.rank, b.textContent])")
    equal(sorted(rank for rank, _ in said), ["0", "1", "2", "3"], "ranks")
    for rank, text in said:
        wanted = "made no progress for" if rank == "2" else "for rank 2"
        equal(wanted in text, True, f"rank {rank}: {text[:300]}")
    equal(browser.run("return document.querySelector('#late tbody tr').textContent.includes('rank 2')"), True, "late ones")


def timeline(browser):
    """the timeline shows the gap; zoom, keys and a click on it work"""
    browser.open(f"{FOLDER}/stopped-tcp.html")
    gap = browser.run("return timeline.data.spans.filter(s => s[0] === 2 && s[4] > 280000).map(s => s[5])")
    equal(any("made no progress" in name for name in gap), True, f"spans of rank 2 over 280 ms: {gap}")
    whole = browser.run("return [timeline.view.from, timeline.view.to]")
    browser.click('[data-zoom="in"]')
    half = browser.run("return timeline.view.to - timeline.view.from")
    equal(round(half / whole[1], 3), 0.5, "zoom")
    browser.run("document.getElementById('lanes').focus()")
    browser.keys("\ue012")  # left
    equal(browser.run("return timeline.view.from") < whole[1] / 4, True, "arrow")
    browser.click('[data-zoom="all"]')
    equal(browser.run("return [timeline.view.from, timeline.view.to]"), whole, "all")
    browser.run("timeline.pick(timeline.data.spans.find(s => s[2] === 3))")
    equal("made no progress" in browser.text("#picked"), True, browser.text("#picked"))


def many(browser):
    """of 64 ranks the late one is on top, the others are folded, and the button shows all in the timeline"""
    browser.open(f"{FOLDER}/many.html")
    first = browser.run("return document.querySelector('main section').id + ': ' + document.querySelector('#late tbody tr').textContent")
    equal(first.startswith("late:  rank 41"), True, first)
    equal(browser.run("return [...document.querySelectorAll('#late tr, .blame')].filter(e => e.checkVisibility()).length"), 1 + 8 + 8, "shown")
    equal(browser.run("return [...timeline.tops.keys()].length"), 8, "ranks of the timeline")
    equal(browser.run("return timeline.tops.has(41)"), True, "rank 41 in the timeline")
    browser.click("#every")
    equal(browser.run("return [...timeline.tops.keys()].length"), 64, "all ranks of the timeline")


def contrast(browser):
    """waits stand out from the timeline's ground by 3:1, light and dark"""
    for scheme in ("light", "dark"):
        browser.open(f"{FOLDER}/stopped-tcp.html", scheme=scheme)
        colors = browser.run("const dot = [...document.querySelectorAll('.legend .item')].find(i => i.textContent === 'waits').firstChild;"
                             "return [dot, document.getElementById('lanes')].map(e => getComputedStyle(e).backgroundColor.match(/\\d+/g).map(Number))")
        light, dark = sorted((luminance(color) for color in colors), reverse=True)
        equal((light + 0.05) / (dark + 0.05) >= 3, True, f"{scheme}: {colors}: 3:1")


def luminance(color):
    """Relative, as WCAG 2 defines it."""
    parts = [c / 255 for c in color[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear))


def looks(browser):
    """reports fit a phone and a desktop, light and dark, ask for nothing, log no error"""
    for name in ("stopped-shm", "stopped-tcp", "killed", "moved", "many"):
        for width, height, scheme in ((390, 844, "light"), (1280, 900, "dark")):
            browser.open(f"{FOLDER}/{name}.html", width, height, scheme)
            equal(browser.run("return document.documentElement.scrollWidth"), width, f"{name}, {scheme}: width")
            drawn = browser.run("const c = document.getElementById('lanes'); const d = c.getContext('2d')"
                                ".getImageData(0, 0, c.width, c.height).data; let n = 0;"
                                "for (let i = 3; i < d.length; i += 4) n += d[i] > 0; return n")
            equal(drawn > 1000, True, f"{name}: {drawn} pixels of the timeline")
            equal(browser.errors(), [], f"{name}: console")
            equal(browser.requests(), [], f"{name}: requests")


def main():
    with Browser() as browser:
        look((f"report: {check.__doc__}", lambda c=check: c(browser))
             for check in (sentences, timeline, many, contrast, looks))
    print("all reports looked at")


main()
