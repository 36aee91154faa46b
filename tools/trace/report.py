"""The report: one page of tables, without a script, that fetches nothing. Its style is the plan viewer's (tools/view).
The timeline is what `rondo-trace merge` writes, for a viewer of traces."""

import collections
import html
import pathlib
import re
import statistics

import blame
from blame import time_text
from chrome import beginning
from read import DIRECTIONS

_HERE = pathlib.Path(__file__).resolve().parent
_VIEW = _HERE.parent / "view"
# Ranks that are shown at once, the late ones first; the others are folded.
MOST_RANKS = 8
# Kinds of calls in their table, those that took longest together first.
MOST_CALLS = 200
# Bytes that a rank sends in a ring, for each byte of the call: bus bandwidth, as rondo-bench counts it.
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
        out.append(f'<div class="blame" data-rank="{rank}"><h3>{html.escape(trace.name)}</h3><ul>'
                   f"{lines or '<li>waited for no rank for 1 ms or more</li>'}</ul></div>")
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
        rows = [(f"rank {r}", time_text(self._blamed[r]), _bar(self._blamed[r] / most))
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


def _times(operations, members):
    """(nanoseconds, operation, ranks) of each call that has ended on every rank: from the first begin to the last end."""
    for key, here in _called(operations).items():
        ended = [o for o in here.values() if o.end is not None and not o.error]
        if len(ended) >= len(members.get(key[0], ended)):
            yield max(max(o.end for o in ended) - min(o.begin for o in ended), 1), ended[0], len(ended)


def _calls(operations, members):
    groups = collections.defaultdict(list)
    for took, one, world in _times(operations, members):
        groups[one.collective, one.bytes, one.algorithm, one.reason, one.predicted, world].append(took)
    rows = []
    for (collective, count, algorithm, reason, model, world), took in sorted(groups.items(), key=lambda item: -sum(item[1]))[:MOST_CALLS]:
        middle = statistics.median(took)
        bus = count * _BUS.get(collective, lambda n: 1)(world) / middle if world > 1 else 0
        rows.append((html.escape(collective), size_text(count), html.escape(f"{algorithm} ({reason})"), len(took), time_text(min(took)),
                     time_text(middle), f"{bus:.3g}", time_text(model) if model else "–", f"{middle / model:.2f}" if model else "–"))
    table = _table(["collective", "bytes", "algorithm (why)", "times", "best", "median", "GB/s", "predicted", "median / predicted"], rows)
    return _card("calls", "Calls", table if rows else '<p class="quiet">No operation has ended on every rank.</p>',
                 "A call lasts from the first rank's begin to the last one's end. GB/s: bus bandwidth of the median, as rondo-bench "
                 "counts it. Predicted: the cost model's closed form, from which the algorithm was chosen.")


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
    start = beginning(ranks)
    waiting = _Waiting(ranks, operations, members)
    lost = sum(trace.lost for trace in ranks.values())
    called = len(_called(operations))
    lasted = "" if start is None else f" in {time_text(max(t.last for t in ranks.values()) - start)}"
    subtitle = (f"{_number(len(ranks), 'rank')}, {_number(called, 'operation')}{lasted}; {_clock_text(clocks)}"
                + (f"; the rings had no room for {lost:,} older records (RONDO_TRACE_BYTES)" if lost else ""))
    body = (_ends(ranks, operations) + waiting.late() + _links(ranks) + _sentences(ranks, operations, members) +
            waiting.pairs() + _calls(operations, members))
    parts = {"STYLE": (_VIEW / "page.css").read_text(encoding="utf-8") + (_HERE / "report.css").read_text(encoding="utf-8"),
             "SUBTITLE": html.escape(subtitle), "BODY": body}
    # At once: what a program has said may look like a mark.
    return re.sub("@([A-Z]+)@", lambda mark: parts[mark[1]], (_HERE / "report.html").read_text(encoding="utf-8"))
