"""What rondo-top shows, as lines that fit a width."""

import re
import textwrap

import status

NO_JOB = "no job of this user on this host says what it does: start one with RONDO_STATUS=1"
HIDDEN = "are hidden: --all shows them"
WIDE = 1 << 16  # where no terminal limits a line
_MOST_HOST = 24
_DOING = 40  # columns that the call has before the first of _OPTIONAL goes
_OPTIONAL = ("pid", "links", "calls", "host", "bus", "calls/s")  # the first to go where the line is too short


def size_text(number):
    for unit in ("B", "KB", "MB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} GB"


def time_text(ms):
    return f"{ms} ms" if ms < 1000 else f"{ms / 1000:.3g} s"


def cut(text, width):
    text = re.sub(r"[\0-\x1f\x7f-\x9f]+", " ", text)  # reasons and names are the programs'
    return text if len(text) <= width else text[:max(width - 1, 0)] + "…"


def cut_middle(text, width):
    """Names of hosts differ at both ends."""
    return text if len(text) <= width else f"{text[:(width - 1) // 2]}…{text[-(width // 2):]}"


def ranges(numbers):
    """1, 2, 3, 7 as "1-3, 7"."""
    out = []
    for number in sorted(numbers):
        if out and out[-1][1] == number - 1:
            out[-1][1] = number
        else:
            out.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in out)


def doing(rank):
    """The call or message that a rank is in, in words."""
    if rank["error"]:
        return f"failed: {rank['error']}"
    call, message = rank["call"], rank["message"]
    if call is not None and not call["finished"]:
        lasting = f" for {time_text(call['since_ms'])}" if call["since_ms"] >= 100 else ""
        return f"in {call['text']}{lasting}"
    if message is not None:
        return f"in {message['text']} for {time_text(message['since_ms'])}"
    return "between calls"


def cells(rank):
    """{title: text} of a rank."""
    links = (("shm", rank["links"]["shared_memory"]), ("tcp", rank["links"]["tcp"]))
    return {"host": cut_middle(rank["host"], _MOST_HOST), "pid": str(rank["pid"]), "calls": str(sum(rank["collective_counts"].values())),
            "calls/s": f"{rank['calls_per_second']:.4g}" if "calls_per_second" in rank else "-",
            "bus": size_text(rank["bus_bytes_per_second"]) + "/s" if "bus_bytes_per_second" in rank else "-",
            "links": " ".join(f"{number} {kind}" for kind, number in links if number), "doing": doing(rank)}


def columns(rows, width, hosts):
    """{title: width} of the columns that fit. rows: {rank: cells}. One host stands in the title line, not in a column."""
    widths = {title: max([len(title), *(len(row[title]) for row in rows.values())]) for title in
              ("host", "pid", "calls", "calls/s", "bus", "links", "doing")}
    if len(hosts) < 2:
        del widths["host"]
    needed = lambda: sum(number + 1 for title, number in widths.items() if title != "doing") + min(widths["doing"], _DOING)
    for title in _OPTIONAL:
        if needed() > width:
            widths.pop(title, None)
    left = width - sum(number + 1 for title, number in widths.items() if title != "doing")
    return widths | {"doing": max(1, min(widths["doing"], left))}


def line_of(row, widths):
    texts = (f"{cut_middle(row[title], number):{'<' if title in ('host', 'links', 'doing') else '>'}{number}}"
             for title, number in widths.items())
    return " ".join(texts).rstrip()


def title_of(one, hosts):
    parts = [f"{one['size']} ranks", *([f"epoch {one['epoch']}"] if one["epoch"] else []),
             *([f"on {cut_middle(hosts[0], _MOST_HOST)}"] if len(hosts) == 1 else [])]
    name = f"communicator {one['hash']}" if one["hash"] else "no rank that answers"
    return f"{one['program'] or one['job'] or '?'} ({one['session']}), {name}: {', '.join(parts)}"


def table(one, width):
    """The lines of one communicator: late ranks first, and why; then those that have failed, then the others."""
    hosts = sorted({rank["host"] for rank in one["ranks"]})
    late = status.late(one)
    failed = {rank["rank"] for rank in one["ranks"] if rank["error"]}
    rows = {rank["rank"]: cells(rank) for rank in one["ranks"]}
    silent = {rank["rank"]: rank["why"] for rank in one["missing_ranks"] if rank["rank"] in late}
    digits = max(len(str(one["size"] - 1)), 4)
    widths = columns(rows, width - digits - 6, hosts)
    yield title_of(one, hosts)
    sentences = [rank["blame"] for rank in one["ranks"] if rank["blame"]]
    yield from textwrap.wrap(sentences[0], width, initial_indent="  ", subsequent_indent="  ") if sentences else []
    if rows:
        yield f"{'':4} {'rank':>{digits}} {line_of({title: title for title in widths}, widths)}"
    for rank in sorted([*rows, *silent], key=lambda rank: (rank not in late, rank not in failed, rank)):
        yield f"{'late' if rank in late else '':4} {rank:>{digits}} {line_of(rows[rank], widths) if rank in rows else silent[rank]}"
    other = {}
    for rank in one["missing_ranks"]:
        if rank["rank"] not in silent:
            other.setdefault(rank["why"], []).append(rank["rank"])
    for why, ranks in other.items():
        yield f"  rank {ranges(ranks)} {why}"


def lines_of(document, everything=False, width=WIDE):
    """All lines. everything: idle communicators, too."""
    found = document["communicators"] if everything else status.shown(document)
    out = []
    for one in found:
        out += [*([""] if out else []), *(cut(line, width) for line in table(one, width))]
    if hidden := len(document["communicators"]) - len(found):
        out += ["", cut(f"{hidden} idle communicators {HIDDEN}", width)]
    return out or textwrap.wrap(NO_JOB, width)


def page(document, everything, width, height):
    """The lines that a terminal has room for, the late ranks first; the first line says what is left out."""
    body = lines_of(document, everything, width)
    left_out = len(body) - max(height - 1, 1)
    more = f"; {left_out} more lines: --once has them" if left_out > 0 else ""
    return [cut(f"{document['timestamp'][-8:]}  Ctrl-C: quit{more}", width), *body][:height]
