"""The report: one page that fetches nothing. Its style and the ranks' colors are the plan viewer's (tools/view)."""

import collections
import html
import json
import math
import pathlib
import re
import statistics

import blame
from blame import time_text
from chrome import beginning, events
from read import DIRECTIONS

_HERE = pathlib.Path(__file__).resolve().parent
_VIEW = _HERE.parent / "view"
# Ranks that are shown at once, the late ones first; the others are folded.
MOST_RANKS = 8
# What a browser draws at once without a pause.
MOST_SPANS = 20_000
_BUS = {"all_reduce": lambda n: 2 * (n - 1) / n, "all_gather": lambda n: (n - 1) / n, "reduce_scatter": lambda n: (n - 1) / n,
        "all_to_all": lambda n: (n - 1) / n}


def size_text(count):
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} B"


def _number(count, noun):
    return f"{count or 'no'} {noun}{'' if count == 1 else 's'}"


def _table(head, rows):
    cells = "".join(f"<th>{html.escape(str(name))}</th>" for name in head)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table></div>'


def _card(name, title, content, note=""):
    note = f'<p class="quiet">{note}</p>' if note else ""
    return f'<section class="card" id="{name}"><h2>{title}</h2>{note}{content}</section>'


def _bar(share):
    return f'<span class="bar"><span style="width:{100 * share:.1f}%"></span></span>'


def _called(operations):
    return {key: here for key, here in operations.items() if key[1] > 1}


def _folded(parts, join, what):
    """HTML of the first parts, and of the others behind a line to click. join: parts into HTML."""
    rest = parts[MOST_RANKS:]
    return join(parts[:MOST_RANKS]) + (f"<details><summary>{len(rest)} more {what}</summary>{join(rest)}</details>" if rest else "")


def _sentences(ranks, operations, members):
    said = blame.sentences(operations, members)
    out = []
    for rank, trace in sorted(ranks.items(), key=lambda item: -said.get(item[0], [(0,)])[0][0]):
        lines = "".join(f"<li>{html.escape(sentence)}</li>" for _, sentence, _ in said.get(rank, [])[:5])
        out.append(f'<div class="blame" data-rank="{rank}"><h3><i class="dot" data-color="{rank}"></i> '
                   f"{html.escape(trace.name)}</h3><ul>{lines or '<li>waited for no rank for 1 ms or more</li>'}</ul></div>")
    return _card("blame", "Who waited for whom, and why", _folded(out, "".join, "ranks"),
                 "The longest waits of each rank. A wait is followed along the ranks that waited in turn, to one that did not.")


def _ends(ranks, operations):
    out = []
    last = max(trace.last for trace in ranks.values())
    # The first to end is the likeliest cause.
    for rank, trace in sorted(ranks.items(), key=lambda item: item[1].last):
        for failure in trace.failures:
            out.append(f"<li>{html.escape(trace.name)}: <b>{html.escape(failure['code'])}</b> "
                       f"{html.escape(failure['message'])}</li>")
        for operation in trace.operations.values():
            if operation.end is None:
                out.append(f"<li>{html.escape(trace.name)}: its trace ends inside {html.escape(operation.name)}, "
                           f"{time_text(last - trace.last)} before the last rank's</li>")
    missing = set(range(next(iter(ranks.values())).about["world"])) - set(ranks)
    if missing:
        out.append(f"<li>No trace of rank {', '.join(map(str, sorted(missing)))} is in the folder.</li>")
    return _card("ends", "Failures and open ends", f"<ul>{''.join(out)}</ul>") if out else ""


class _Waiting:
    """How long ranks waited: by rank, for which one, and because of which one."""

    def __init__(self, ranks, operations, members):
        self._by_pair, self._by_rank, self._blamed = collections.Counter(), collections.Counter(), collections.Counter()
        for _, rank, peer, wait, cause in blame.Blame(operations, members).waits():
            self._by_pair[rank, peer] += wait.end - wait.begin
            self._by_rank[rank] += wait.end - wait.begin
            if cause.rank != rank:
                self._blamed[cause.rank] += wait.end - wait.begin
        self.order = sorted(ranks, key=lambda r: (-self._blamed[r], r))  # late ones first

    def late(self):
        most = max(self._blamed.values(), default=0) or 1
        rows = [(f'<i class="dot" data-color="{r}"></i> rank {r}', time_text(self._blamed[r]), _bar(self._blamed[r] / most))
                for r in self.order]
        return _card("late", "Late ones first",
                     _folded(rows, lambda part: _table(["rank", "others waited because of it", ""], part), "ranks"))

    def pairs(self):
        ranks = sorted(self.order)
        rows = [[f"rank {r}", f"<b>{time_text(self._by_rank[r])}</b>",
                 *(time_text(self._by_pair[r, p]) if self._by_pair[r, p] else "–" for p in ranks)] for r in ranks]
        table = _table(["", "in all", *(f"for {p}" for p in ranks)], rows)
        if len(ranks) > MOST_RANKS:
            table = f"<details><summary>{len(ranks)} by {len(ranks)} ranks</summary>{table}</details>"
        return _card("waits", "Waiting, by rank and by the rank waited for", table,
                     "Times of all lanes. The neighbor that is waited for need not be the cause: that is the table of late ones.")


def _links(ranks):
    carried = collections.Counter()
    for rank, trace in ranks.items():
        members = {identity: m for identity, m in trace.communicators.values()}
        for operation in trace.operations.values():
            for t in operation.transfers:
                peer = members[operation.communicator][t.peer]
                pair = (peer, rank) if DIRECTIONS[t.a] == "in" else (rank, peer)
                carried[(*pair, rank, DIRECTIONS[t.a])] += t.bytes
    # Both ends of a link count it; memory is counted by the rank alone that reads or writes it.
    links = collections.Counter()
    for (source, target, _, _), count in carried.items():
        links[source, target] = max(links[source, target], count)
    total = sum(links.values()) or 1
    rows = [(f"{a} → {b}", size_text(n), f"{100 * n / total:.1f} %", _bar(n / total)) for (a, b), n in links.most_common(64)]
    return _card("links", "What each link carried", _folded(rows, lambda part: _table(["link", "bytes", "share", ""], part), "links"))


def _spans(operations, members):
    """One for each operation of a program: (begin, seconds, bus bandwidth in GB/s, operation)."""
    for key, here in sorted(_called(operations).items(), key=lambda item: min(o.begin for o in item[1].values())):
        ended = [o for o in here.values() if o.end is not None and not o.error]
        if len(ended) < len(members.get(key[0], ended)):
            continue
        begin, end = min(o.begin for o in ended), max(o.end for o in ended)
        one, world = ended[0], len(ended)
        factor = _BUS.get(one.collective, lambda n: 1)(world) if world > 1 else 0
        yield begin, max(end - begin, 1), one.bytes * factor / max(end - begin, 1), one


def _scatter(name, points, labels, scales):
    """points: (x, y, text). scales: 'log' or 'linear' for both."""
    width, height, left, bottom = 760, 260, 62, 34
    if not points:
        return '<p class="quiet">No operation has ended on every rank.</p>'

    def axis(values, scale, low, high):
        least, most = min(values), max(values)
        if scale == "log":
            least, most = math.log10(max(least, 1e-9)), math.log10(max(most, 1e-9))
        else:
            least = min(0, least)
        span = (most - least) or 1

        def place(v):
            v = math.log10(max(v, 1e-9)) if scale == "log" else v
            return low + (v - least) / span * (high - low)
        ticks = [least + span * i / 4 for i in range(5)]
        return place, [(10 ** t if scale == "log" else t) for t in ticks]
    both = [v for p in points for v in p[:2]] if scales == ("log", "log") else None  # one range, so that the line shows
    x, x_ticks = axis(both or [p[0] for p in points], scales[0], left, width - 12)
    y, y_ticks = axis(both or [p[1] for p in points], scales[1], height - bottom, 12)
    out = [f'<svg class="plot" id="{name}" viewBox="0 0 {width} {height}" role="img" aria-label="{labels[1]} over {labels[0]}">']
    for tick in x_ticks:
        anchor = "end" if tick == x_ticks[-1] else "middle"
        out.append(f'<line class="grid" x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="12" y2="{height - bottom}"/>'
                   f'<text x="{x(tick):.1f}" y="{height - 16}" text-anchor="{anchor}">{labels[2](tick)}</text>')
    for tick in y_ticks:
        out.append(f'<line class="grid" x1="{left}" x2="{width - 12}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"/>'
                   f'<text x="{left - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">{labels[3](tick)}</text>')
    out.append(f'<text x="{width - 12}" y="{height - 2}" text-anchor="end">{labels[0]}</text>'
               f'<text x="{left}" y="9">{labels[1]}</text>')
    if scales == ("log", "log"):
        low, high = max(min(x_ticks), min(y_ticks)), min(max(x_ticks), max(y_ticks))
        if low < high:
            out.append(f'<line class="equal" x1="{x(low):.1f}" y1="{y(low):.1f}" x2="{x(high):.1f}" y2="{y(high):.1f}"/>')
    for a, b, text in points[:5000]:
        out.append(f'<circle cx="{x(a):.1f}" cy="{y(b):.1f}" r="3"><title>{html.escape(text)}</title></circle>')
    return "".join(out) + "</svg>"


def _charts(spans, start):
    bandwidth = [((begin - start) / 1e6, gbps, f"{one.name}: {size_text(one.bytes)}, {gbps:.3g} GB/s, {one.algorithm}")
                 for begin, _, gbps, one in spans if one.bytes > 0]
    predicted = [(one.predicted, took, f"{one.name}: {size_text(one.bytes)} by {one.algorithm}: {time_text(took)}, predicted "
                  f"{time_text(one.predicted)}") for _, took, _, one in spans if one.predicted > 0]
    groups = collections.defaultdict(list)
    for _, took, _, one in spans:
        groups[one.collective, one.bytes, one.algorithm, one.reason, one.predicted].append(took)
    rows = []
    for (collective, count, algorithm, reason, model), took in sorted(groups.items(), key=lambda item: -sum(item[1]))[:200]:
        middle = statistics.median(took)
        rows.append((collective, size_text(count), html.escape(f"{algorithm} ({reason})"), len(took), time_text(min(took)),
                     time_text(middle), time_text(model) if model else "–", f"{middle / model:.2f}" if model else "–"))
    unit = lambda v: time_text(v)
    return (_card("bandwidth", "Bus bandwidth over time",
                  _scatter("bandwidth-plot", bandwidth, ("time, ms", "bus bandwidth, GB/s", lambda v: f"{v:.4g}",
                                                         lambda v: f"{v:.3g}"), ("linear", "linear")),
                  "A dot is an operation, from the first rank's begin to the last one's end; GB/s, as "
                  "rondo-bench counts them."),
            _card("predicted", "Achieved against predicted",
                  _scatter("predicted-plot", predicted, ("predicted", "achieved", unit, unit), ("log", "log")) +
                  _table(["collective", "bytes", "algorithm (why)", "times", "best", "median", "predicted", "median / predicted"],
                         rows), "Predicted: the cost model's closed form, from which the algorithm was chosen; the line is equality."))


def _timeline(document, ranks, order):
    """order: of the ranks, late ones first."""
    spans = [e for e in document["traceEvents"] if e["ph"] == "X"]
    shown = sorted(spans, key=lambda e: (e["cat"] not in ("operation", "stopped"), -e["dur"]))[:MOST_SPANS]
    kinds = ["operation", "step", "wait", "stopped", "message"]
    data = {"ranks": [{"rank": r, "name": ranks[r].name} for r in (order if len(order) > MOST_RANKS else sorted(order))],
            "most": MOST_RANKS, "kinds": kinds,
            "spans": [[e["pid"], e["tid"], kinds.index(e["cat"]), round(e["ts"], 3), round(e["dur"], 3), e["name"], e["args"]]
                      for e in sorted(shown, key=lambda e: e["ts"])]}
    note = (f"The longest {MOST_SPANS:,} of {len(spans):,} spans; rondo-trace merge writes all." if len(spans) > len(shown) else "")
    return data, _card("timeline", "Timeline", '<div id="zoom"><button data-zoom="in">+</button><button data-zoom="out">−</button>'
                       '<button data-zoom="left">←</button><button data-zoom="right">→</button><button data-zoom="all">all</button>'
                       f'<button id="every" aria-pressed="false"{" hidden" * (len(order) <= MOST_RANKS)}>{len(order)} ranks</button>'
                       '<span class="quiet">wheel, drag or arrow keys; click a bar</span></div>'
                       '<canvas id="lanes" tabindex="0" aria-label="Timeline of ranks"></canvas><p id="picked" role="status"></p>'
                       '<p class="legend"></p>', note)


def _clock_text(clocks):
    if len(clocks) == 1:
        return "all ranks read one clock"
    parts = []
    for clock in clocks[1:]:
        who = f"ranks {clock.ranks[0]} to {clock.ranks[-1]}" if len(clock.ranks) > 1 else f"rank {clock.ranks[0]}"
        parts.append(f"{who}: no collective tells their offset; their times are not comparable" if clock.error is None else
                     f"{who}: clock estimated from collectives, ± {time_text(clock.error)}")
    return "; ".join(parts)


def page(ranks, clocks, operations, members):
    """The report as text."""
    document = events(ranks, clocks)
    start = beginning(ranks)
    spans = list(_spans(operations, members))
    waiting = _Waiting(ranks, operations, members)
    data, timeline = _timeline(document, ranks, waiting.order)
    bandwidth, predicted = _charts(spans, start)
    lost = sum(trace.lost for trace in ranks.values())
    called = len(_called(operations))
    lasted = "" if start is None else f" in {time_text(max(t.last for t in ranks.values()) - start)}"
    subtitle = (f"{_number(len(ranks), 'rank')}, {_number(called, 'operation')}{lasted}; {_clock_text(clocks)}"
                + (f"; the rings had no room for {lost:,} older records (RONDO_TRACE_BYTES)" if lost else ""))
    body = (_ends(ranks, operations) + waiting.late() + _links(ranks) + _sentences(ranks, operations, members) + timeline +
            waiting.pairs() + bandwidth + predicted)
    parts = {"STYLE": (_VIEW / "page.css").read_text(encoding="utf-8") + (_HERE / "report.css").read_text(encoding="utf-8"),
             "SUBTITLE": html.escape(subtitle), "BODY": body, "DATA": json.dumps(data).replace("<", "\\u003c"),
             "SCRIPT": (_VIEW / "colors.js").read_text(encoding="utf-8") + (_HERE / "report.js").read_text(encoding="utf-8")}
    # At once: what a program has said may look like a mark.
    return re.sub("@([A-Z]+)@", lambda mark: parts[mark[1]], (_HERE / "report.html").read_text(encoding="utf-8"))
