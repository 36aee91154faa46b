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


def many(browser):
    """of 64 ranks the late one is on top, and most others are folded"""
    browser.open(f"{FOLDER}/many.html")
    first = browser.run("return document.querySelector('main section').id + ': ' + document.querySelector('#late tbody tr').textContent")
    equal(first.startswith("late: rank 41"), True, first)
    equal(browser.run("return [...document.querySelectorAll('#late tr, .blame')].filter(e => e.checkVisibility()).length"), 1 + 8 + 8, "shown")


def calls(browser):
    """the table of calls has the times and rates of what has ended"""
    browser.open(f"{FOLDER}/stopped-tcp.html")
    row = browser.run("return [...document.querySelector('#calls tbody tr').children].map(cell => cell.textContent)")
    equal((row[0], len(row)), ("all_reduce", 9), f"first row {row}")
    equal(float(row[6]) > 0, True, f"GB/s of {row}")


def looks(browser):
    """reports fit a phone and a desktop, light and dark, ask for nothing, log no error"""
    for name in ("stopped-shm", "stopped-tcp", "killed", "moved", "many"):
        for width, height, scheme in ((390, 844, "light"), (1280, 900, "dark")):
            browser.open(f"{FOLDER}/{name}.html", width, height, scheme)
            equal(browser.run("return document.documentElement.scrollWidth"), width, f"{name}, {scheme}: width")
            equal(browser.errors(), [], f"{name}: console")
            equal(browser.requests(), [], f"{name}: requests")


def main():
    with Browser() as browser:
        look((f"report: {check.__doc__}", lambda c=check: c(browser)) for check in (sentences, many, calls, looks))
    print("all reports looked at")


main()
