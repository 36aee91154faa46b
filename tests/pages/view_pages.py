"""Opens pages of rondo-view in a browser and compares what they show with plan_dump --run.

    view_pages.py RONDO-VIEW PLAN-DUMP FOLDER

Prints a line "pass NAME" or "fail NAME: why" for each check.
"""

import json
import subprocess
import sys

from selenium.webdriver.common.keys import Keys

from browser import Browser
from expected import cell_text, fill, first_step, heard, held, promised
from verdicts import equal, look

VIEW, DUMP, FOLDER = sys.argv[1:4]

# What every page shows of itself: {cell: [slots of the picture, their fills, table text, classes]}.
SHOWN = """
const shown = {};
for (const cell of document.querySelectorAll('.circle [data-cell]')) {
  const slots = [...cell.querySelectorAll('[data-of]')];
  const table = document.querySelector(`td[data-cell="${cell.dataset.cell}"]`);
  shown[cell.dataset.cell] = {
    of: slots.map(slot => slot.dataset.of), fills: slots.map(slot => slot.getAttribute('fill')),
    passing: cell.querySelector('.edge').classList.contains('passing'),
    complete: cell.querySelector('.edge').classList.contains('complete'),
    text: table.querySelector('.text').textContent,
  };
}
return shown;
"""


def page(name, *options):
    path = f"{FOLDER}/{name}.html"
    subprocess.run([VIEW, *options, "-o", path], check=True)
    return path


def run_of(*options):
    return json.loads(subprocess.run([DUMP, "--run", *options], check=True, stdout=subprocess.PIPE).stdout)


def compare_cells(run, depth, shown, where):
    cells, passing = held(run, depth)
    for key, cell in cells.items():
        name = f"{where}, rank.row.block {'.'.join(map(str, key))}"
        got = shown[".".join(map(str, key))]
        fixed = run["reduces"] and run["world"] > 16
        equal(got["of"], ["+".join(map(str, cell["ranks"]))] if fixed else [str(r) for r in cell["ranks"]], name)
        if not fixed:
            equal(got["fills"], [fill(r) for r in cell["ranks"]], name + " colors")
        equal(got["text"], cell_text(run, cell), name + " text")
        equal(got["passing"], key in passing, name + " passing")
        equal(got["complete"], run["reduces"] and cell["finished"], name + " complete")
    for name, got in shown.items():
        if tuple(map(int, name.split("."))) not in cells:
            equal((got["of"], got["text"]), ([], "–"), f"{where}, {name}")


def compare_heard(run, depth, shown, where):
    for rank, ranks in heard(run, depth).items():
        equal(shown[f"{rank}.0.0"]["of"], [str(r) for r in ranks], f"{where}, rank {rank}")


def steps_agree(browser, name, *options):
    """Steps by key through a plan; every cell at every step; at the end what the collective promises."""
    run = run_of(*options)
    browser.open(page(name, *options))
    equal(browser.text("title"), f"{run['collective']} by {run['algorithm']}, {run['world']} ranks", "title")
    depth = first_step(run)
    while True:
        compare = compare_heard if run["collective"] == "barrier" else compare_cells
        compare(run, depth, browser.run(SHOWN), f"step {depth}")
        if depth == run["depth"]:
            break
        browser.keys(Keys.ARROW_RIGHT)
        depth += 1
    cells = held(run, depth)[0]
    for key, ranks in promised(run).items():
        equal(set(cells[key]["ranks"]), ranks, f"promised to rank.row.block {key}")
    equal("done" in browser.text("#now"), True, "the end")
    equal(browser.errors(), [], "console")
    equal(browser.requests(), [], "requests")


def plans():
    """Every collective with every algorithm that it has, 4 ranks; then other worlds."""
    algorithms = ("ring direct doubling tree star halving_doubling double_tree pat "
                  "staged pull registered one_shot").split()
    collectives = "all_reduce reduce_scatter all_gather broadcast reduce gather scatter all_to_all barrier".split()
    for collective in collectives:
        for algorithm in algorithms:
            options = ("--collective", collective, "--algorithm", algorithm)
            known = subprocess.run([DUMP, "--rank", "0", *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            if known.returncode == 0:
                yield f"{collective}-{algorithm}", options
    yield "hosts-2-3", ("--algorithm", "hierarchical", "--hosts", "2,3")
    yield "hosts-4x4", ("--algorithm", "hierarchical", "--hosts", "4,4,4,4")
    yield "ring-7", ("--world", "7")
    yield "broadcast-root", ("--collective", "broadcast", "--algorithm", "tree", "--world", "8", "--root", "3")
    yield "ring-32", ("--world", "32")
    yield "alone", ("--world", "1")


def phases(browser):
    """The ring's phases are named, N-1 steps each."""
    browser.open(page("phases"))
    names = []
    for step in range(6):
        names.append((browser.text("#explain strong"), browser.text("#now")))
        browser.keys(Keys.ARROW_RIGHT)
    equal(names, [("scatter-reduce" if k < 3 else "all-gather", f"step {k + 1} of 6") for k in range(6)], "phases")


def primitives(browser):
    """The numbers of the tutorials: rank r of 4 starts with [1+2r, 2+2r]."""
    own = [f"[{1 + 2 * r}, {2 + 2 * r}]" for r in range(4)]
    everything = " ".join(own)
    wanted = {
        ("all_reduce", "ring"): ["[16, 20]"] * 4, ("all_reduce", "staged"): ["[16, 20]"] * 4,
        ("broadcast", "tree"): [own[0]] * 4, ("all_gather", "ring"): [everything] * 4,
        ("gather", "direct"): [everything] + own[1:], ("reduce", "ring"): own[:3] + ["[16, 20]"],
        ("scatter", "direct"): ["[0, 0] [1, 1] [2, 2] [3, 3]", "[1, 1]", "[2, 2]", "[3, 3]"],
    }
    for (collective, algorithm), after in wanted.items():
        root = "3" if collective == "reduce" else "0"
        browser.open(page(f"values-{collective}", "--values", "--collective", collective, "--algorithm", algorithm, "--root", root))
        rows = browser.run("return [...document.querySelectorAll('tbody tr')].map(row => "
                           "[...row.querySelectorAll('.vector')].map(cell => cell.textContent))")
        if collective not in ("scatter", "broadcast"):
            equal([row[0] for row in rows], own, f"{collective} before")
        equal([row[1] for row in rows], after, f"{collective} after")
    browser.open(page("values-6", "--values=6", "--world", "3"))
    browser.keys(Keys.END)
    equal(browser.run("return [...document.querySelectorAll('tr[data-rank=\"2\"] .text')].map(t => t.textContent)"),
          ["21 24", "27 30", "33 36"], "sums of 1..6, 7..12, 13..18 by block")


def comparison(browser):
    """Ring, star and direct side by side: the star's root carries the most and is marked."""
    options = ("--world", "4", "--bytes", "64M")
    browser.open(page("compare", *options, "--compare", "ring,star,direct"))
    browser.keys(Keys.END)
    facts = browser.run("return Object.fromEntries([...document.querySelectorAll('.panel')].map(panel => [panel.dataset.algorithm, "
                        "{facts: [...panel.querySelectorAll('dd')].map(dd => dd.textContent), "
                        "hot: [...panel.querySelectorAll('.port.hot')].length, "
                        "bars: [...panel.querySelectorAll('.port')].map(bar => Number(bar.getAttribute('width')))}]))")
    equal(facts["ring"]["facts"][2], "96 MiB (each rank)", "ring's ports")
    equal(facts["star"]["facts"][2], "192 MiB (rank 0)", "star's busiest port")
    equal((facts["ring"]["hot"], facts["star"]["hot"], facts["direct"]["hot"]), (0, 1, 4), "marked ports")
    bars = facts["star"]["bars"]
    equal(all(abs(bar * 3 - bars[0]) < 0.5 for bar in bars[1:]), True, f"star's bars {bars}")
    times = [run_of(*options[:2], "--bytes", str(64 << 20), "--algorithm", a)["cost"]["time_us"] for a in ("ring", "direct", "star")]
    equal(times, sorted(times), "ring, direct, star by predicted time")
    browser.keys(Keys.HOME)
    browser.run("player.seek(arguments[0])", times[0] + 1)
    states = browser.run("return [...document.querySelectorAll('.state')].map(state => state.textContent)")
    equal([state.endswith("done") for state in states], [True, False, False], f"when the ring is done: {states}")
    equal(browser.errors(), [], "console")
    browser.open(page("compare-12", "--world", "12"))
    equal(browser.run("return document.querySelectorAll('dd')[2].textContent"), "1.83 MiB (each rank)", "12 ranks' ports")


def details(browser):
    """A click says what a link, a block and a rank are; Escape clears it."""
    run = run_of("--world", "4")
    browser.open(page("details", "--world", "4"))
    browser.keys(Keys.END)
    total = sum(m["bytes"] for m in run["moves"] if (m["from"], m["to"]) == (0, 1))
    browser.click('.touch[data-link="0>1"]')
    text = browser.text("#details")
    equal(total, 6 * (1 << 20) // 4, "bytes of the link")
    equal("carried 1.5 MiB of 1.5 MiB, 6 messages" in text, True, text)
    browser.click('.circle [data-cell="2.0.1"]')
    text = browser.text("#details")
    equal("rank 2, block 1" in text and "complete" in text, True, text)
    browser.click('.node[data-rank="3"] .box')
    program = browser.run("return [...document.querySelectorAll('.program li')].map(li => li.textContent)")
    equal(program, run["programs"][3], "rank 3's program")
    browser.keys(Keys.HOME)
    done = browser.run("return [...document.querySelectorAll('.program li')].map(li => li.className)")
    equal(done, ["done"] + [""] * 6, "steps of rank 3 that have run")
    browser.keys(Keys.ESCAPE)
    equal("Point at" in browser.text("#details"), True, "after Escape")


def playing(browser):
    """Space plays and pauses, Home and End go to the ends, the slider and the address too."""
    browser.open(page("playing"), motion="no-preference")
    browser.keys(" ")
    browser.driver.set_script_timeout(20)
    browser.driver.execute_async_script("const done = arguments[0]; const look = () => "
                                        "player.position > 0.2 ? done() : requestAnimationFrame(look); look();")
    browser.keys(" ")
    at = browser.run("return player.position")
    equal(0.2 < at < 6 and not browser.run("return player.timer"), True, f"paused at {at}")
    equal(browser.run("return player.position"), at, "it stays")
    equal(browser.run("return document.querySelectorAll('.parcel').length"), 4 if at % 1 > 0.001 else 0, "messages on links")
    browser.keys(Keys.END)
    equal(browser.run("return player.position"), 6, "End")
    browser.keys(Keys.HOME)
    equal(browser.run("return player.position"), 0, "Home")
    browser.run("const s = document.getElementById('slider'); s.value = 3.5; s.dispatchEvent(new Event('input'))")
    equal(browser.text("#now"), "step 4 of 6", "slider")
    browser.open(page("playing") + "#2")
    equal(browser.text("#now"), "step 3 of 6", "address")
    browser.click("#by-time")
    browser.keys(Keys.END)
    equal("489 µs of 489 µs" in browser.text("#now"), True, browser.text("#now"))
    equal(browser.errors(), [], "console")


def arrows(browser):
    """Arrow keys finish a step that is in motion, so that n keys go n steps."""
    browser.open(page("arrows"), motion="no-preference")
    browser.keys(*[Keys.ARROW_RIGHT] * 3)
    equal(browser.run("return player.target"), 3, "after three keys")
    browser.keys(Keys.ARROW_LEFT)
    equal(browser.run("return [player.position, player.target]"), [2, None], "and one back")


def labels(browser):
    """The name of every rank is within its box, worlds 2 to 64, also of the root and on hosts."""
    cases = [("--world", str(n), "--collective", "reduce", "--root", str(n - 1)) for n in (2, 4, 5, 8, 9, 16, 17, 32, 33, 64)]
    for options in (*cases, ("--algorithm", "hierarchical", "--hosts", "32,32")):
        browser.open(page("labels", *options))
        out = browser.run("return [...document.querySelectorAll('.node')].filter(node => { const a = node.querySelector('.name')"
                          ".getBoundingClientRect(), b = node.querySelector('.box').getBoundingClientRect();"
                          "return a.left < b.left || a.right > b.right || a.top < b.top - 1; }).map(node => node.dataset.rank)")
        equal(out, [], f"{' '.join(options)}: names that leave their boxes")


def phone(browser):
    """Nothing is wider than a phone, light and dark; ranks past 8 have patterns."""
    path = page("phone", "--algorithm", "hierarchical", "--hosts", "4,4,4,4")
    grounds = []
    for scheme in ("light", "dark"):
        for file in (path, page("phone-compare", "--compare", "ring,star,direct"), page("phone-values", "--values")):
            browser.open(file, 390, 844, scheme)
            equal(browser.run("return document.documentElement.scrollWidth"), 390, f"{scheme}, {file}")
        grounds.append(browser.run("return getComputedStyle(document.body).backgroundColor"))
    equal(len(set(grounds)), 2, f"grounds {grounds}")
    browser.open(path, 390, 844)
    equal(browser.run("return document.querySelectorAll('.frame').length"), 4, "hosts")
    legend = browser.run("return [...document.querySelectorAll('[data-legend] rect')].map(r => r.getAttribute('fill'))")
    equal(legend, [fill(r) for r in range(16)], "legend")
    equal(browser.run("return document.querySelectorAll('pattern').length"), 8, "patterns")
    boxes = browser.run("return [...document.querySelectorAll('.box')].map(b => { const r = b.getBoundingClientRect(); "
                        "return [r.left, r.top, r.right, r.bottom]; })")
    for i, a in enumerate(boxes):
        for b in boxes[:i]:
            equal(a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3], False, f"ranks overlap: {a} {b}")


def main():
    with Browser() as browser:
        checks = [(f"the page of {name} at every step", lambda n=name, o=options: steps_agree(browser, n, *o))
                  for name, options in plans()]
        for check in (phases, primitives, comparison, details, playing, arrows, labels, phone):
            checks.append((check.__doc__.split(".")[0].replace("\n", " "), lambda c=check: c(browser)))
        look(checks)
    print("all pages looked at")


main()
