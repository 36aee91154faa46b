"""Opens the site in headless Chromium: site_pages.py SITE. Prints "pass NAME" or "fail NAME: why"."""

import functools
import http.server
import pathlib
import sys
import threading

from browser import Browser
from verdicts import equal, look

SITE = pathlib.Path(sys.argv[1]).resolve()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def open_page(browser, address, width, scheme="light"):
    browser.open("/dev/null", width, 900, scheme)
    browser.driver.get(address)


def brightness(browser):
    """Of the page's background, from 0 (black) to 255."""
    return browser.run("const [r, g, b] = getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number);"
                       "return (r + g + b) / 3")


def pages(browser, base):
    """every page opens at a phone's and a desktop's width, light and dark as the system is, asks this host alone, logs no error"""
    found = sorted(SITE.glob("*.html"))
    equal(len(found) > 20, True, f"{len(found)} pages in {SITE}: more than 20")
    for page in found:
        for width, scheme in ((390, "light"), (1280, "dark")):
            open_page(browser, f"{base}/{page.name}", width, scheme)
            wide = browser.run("return document.documentElement.scrollWidth")
            equal(wide <= width + 1, True, f"{page.name} at {width}: {wide} wide")
            equal(brightness(browser) < 128, scheme == "dark", f"{page.name}: dark in a {scheme} system")
            equal(browser.run("return [...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src)"), [],
                  f"{page.name}: images that did not load")
            equal([r for r in browser.requests() if not r.startswith(base)], [], f"{page.name}: requests")
            equal([e for e in browser.errors() if page.name != "404.html"], [], f"{page.name}: console")


def embedded(browser, base):
    """the plan on the first page can be stepped through, and ends in [16, 20]"""
    open_page(browser, f"{base}/index.html", 1280)
    frame = browser.driver.find_element("css selector", "iframe.view")
    browser.driver.switch_to.frame(frame)
    for _ in range(6):
        browser.click("#next")
    browser.driver.set_script_timeout(20)
    browser.driver.execute_async_script("const done = arguments[0]; const look = () => document.getElementById('now').textContent"
                                        ".includes('done') ? done() : requestAnimationFrame(look); look();")
    rows = browser.run("return [...document.querySelectorAll('tbody tr')].map(r => [...r.querySelectorAll('.vector')].pop().textContent)")
    equal(rows, ["[16, 20]"] * 4, "after the last step")
    browser.driver.switch_to.default_content()


def search(browser, base):
    """search finds a word"""
    open_page(browser, f"{base}/index.html", 1280)
    browser.driver.set_script_timeout(30)
    found = browser.driver.execute_async_script(
        "const done = arguments[0]; const box = document.querySelector('.md-search__input'); box.focus(); box.value = 'doorbell';"
        "box.dispatchEvent(new Event('input', {bubbles: true})); box.dispatchEvent(new KeyboardEvent('keyup', {bubbles: true, key: 'l'}));"
        "const look = () => { const n = document.querySelectorAll('.md-search-result__item').length; n ? done(n) : setTimeout(look, 50); };"
        "look();")
    equal(found > 0, True, "results")


def main():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=SITE))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    base = f"http://127.0.0.1:{server.server_port}"
    with Browser() as browser:
        look((f"site: {check.__doc__}", lambda c=check: c(browser, base)) for check in (pages, embedded, search))
    server.shutdown()
    print("all of the site looked at")


main()
