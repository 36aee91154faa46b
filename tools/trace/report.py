"""The report: tables of what ran, and sentences. The timeline is what `rondo-trace merge` writes, for a viewer of traces."""

import collections
import re
import statistics

import blame
from blame import time_text
from chrome import beginning
from read import DIRECTIONS

# Ranks and links that are shown, the late ones and those that carried most first.
MOST_RANKS = 8
# Kinds of calls in their table, those that took longest together first.
MOST_CALLS = 200
# Sentences, the longest waits first.
_SENTENCES = 20
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


def _section(title, lines):
    """Lines below their title. One line each, which any output takes: errors and names are the programs'."""
    return [title, *("  " + re.sub(r"[\0-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+", " ", line) for line in lines), ""] if lines else []


def _table(head, rows):
    """Lines of columns, all but the first aligned to the right."""
    cells = [[str(cell) for cell in row] for row in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells)]
    return ["  ".join([row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:]))]).rstrip()
            for row in cells]


def _first(lines, most, what):
    """The first lines, and how many others there are."""
    return lines[:most] + ([f"and {len(lines) - most} more {what}"] if len(lines) > most else [])


def _called(operations):
    return {key: here for key, here in operations.items() if key[1] > 1}


def _ends(ranks):
    out = []
    last = max(trace.last for trace in ranks.values())
    # The first to end is the likeliest cause.
    for rank, trace in sorted(ranks.items(), key=lambda item: item[1].last):
        out += [f"{trace.name}: {failure['code']} {failure['message']}" for failure in trace.failures]
        out += [f"{trace.name}: its trace ends inside {operation.name}, {time_text(last - trace.last)} before the last rank's"
                for operation in trace.operations.values() if operation.end is None]
    missing = set(range(next(iter(ranks.values())).about["world"])) - set(ranks)
    if missing:
        out.append(f"no trace of rank {', '.join(map(str, sorted(missing)))} is in the folder")
    return out


def _waiting(ranks, operations, members):
    """Sections: because of which rank others waited; the longest waits, a sentence each."""
    blamed = collections.Counter()
    for _, rank, _, wait, cause in blame.Blame(operations, members).waits():
        if cause.rank != rank:
            blamed[cause.rank] += wait.end - wait.begin
    late = [[f"rank {r}", time_text(blamed[r])] for r in sorted(ranks, key=lambda r: (-blamed[r], r))]
    said = blame.sentences(operations, members)
    longest = sorted(((ns, f"{ranks[r].name} {sentence}") for r, of_rank in said.items() for ns, sentence, _ in of_rank),
                     key=lambda item: -item[0])
    return (_section("Late ones first", _first(_table(["", "others waited because of it"], late), MOST_RANKS + 1, "ranks")) +
            _section("Who waited for whom, and why: the longest waits, followed along the ranks that waited in turn",
                     _first([sentence for _, sentence in longest], _SENTENCES, "of 1 ms or more") or
                     ["no rank waited for another for 1 ms or more"]))


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
    rows = [(f"{a} to {b}", size_text(n), f"{100 * n / total:.1f} %") for (a, b), n in links.most_common()]
    return _first(_table(["link", "bytes", "share"], rows), MOST_RANKS + 1, "links") if rows else []


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
        rows.append((f"{collective} {size_text(count)}, {algorithm} ({reason})", len(took), time_text(min(took)), time_text(middle),
                     f"{bus:.3g}", time_text(model) if model else "-", f"{middle / model:.2f}" if model else "-"))
    head = ["call, algorithm (why)", "times", "best", "median", "GB/s", "predicted", "median / predicted"]
    return _table(head, rows) if rows else ["no operation has ended on every rank"]


def _clock_text(clocks):
    if len(clocks) == 1:
        return "all ranks read one clock"
    parts = []
    for clock in clocks[1:]:
        who = f"ranks {clock.ranks[0]} to {clock.ranks[-1]}" if len(clock.ranks) > 1 else f"rank {clock.ranks[0]}"
        parts.append(f"{who}: no collective tells their offset; their times are not comparable" if clock.error is None else
                     f"{who}: clock estimated from collectives, ± {time_text(clock.error)}")
    return "; ".join(parts)


def text(ranks, clocks, operations, members):
    """The report: sections, each with its title."""
    start = beginning(ranks)
    lost = sum(trace.lost for trace in ranks.values())
    lasted = "" if start is None else f" in {time_text(max(t.last for t in ranks.values()) - start)}"
    lines = [f"{_number(len(ranks), 'rank')}, {_number(len(_called(operations)), 'operation')}{lasted}; {_clock_text(clocks)}"
             + (f"; the rings had no room for {lost:,} older records (RONDO_TRACE_BYTES)" if lost else ""), ""]
    lines += _section("Failures and open ends", _ends(ranks))
    lines += _waiting(ranks, operations, members)
    lines += _section("What each link carried", _links(ranks))
    lines += _section("Calls, from the first rank's begin to the last one's end", _calls(operations, members))
    return "\n".join(lines[:-1]) + "\n"
