#!/usr/bin/env python3
"""rondo-top: what the ranks of this user's jobs on this host are doing, of jobs started with RONDO_STATUS=1.

    rondo-top                 live, in a terminal; Ctrl-C ends it
    rondo-top --once          once, as text, after a second for the rates
    rondo-top --json          once, as JSON, in the form of `ncclras -f json`
"""

import argparse
import json
import os
import shutil
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))

import status  # noqa: E402

NO_JOB = "no job of this user on this host says what it does: start one with RONDO_STATUS=1"


def size_text(number):
    for unit in ("B", "KB", "MB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} GB"


def time_text(ms):
    return f"{ms} ms" if ms < 1000 else f"{ms / 1000:.3g} s"


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


def table(one):
    """The lines of one communicator."""
    name = f"communicator {one['hash']}" if one["hash"] else "no rank that answers"
    epoch = f", epoch {one['epoch']}" if one["epoch"] else ""
    yield f"job {one['job'] or '?'} ({one['session']}), {name}: {one['size']} ranks{epoch}"
    yield f"{'rank':>6} {'host':<12} {'pid':>8} {'calls':>10} {'calls/s':>9} {'bus':>11}  {'links':<16} doing"
    late = status.late(one)
    lines = {}
    for rank in one["ranks"]:
        calls = sum(rank["collective_counts"].values())
        rate = f"{rank['calls_per_second']:.4g}" if "calls_per_second" in rank else "-"
        bus = size_text(rank["bus_bytes_per_second"]) + "/s" if "bus_bytes_per_second" in rank else "-"
        links = " ".join(f"{number} {kind}" for kind, number in
                         (("shm", rank["links"]["shared_memory"]), ("tcp", rank["links"]["tcp"])) if number)
        lines[rank["rank"]] = f"{rank['host']:<12} {rank['pid']:>8} {calls:>10} {rate:>9} {bus:>11}  {links:<16} {doing(rank)}"
    for rank in one["missing_ranks"]:
        lines[rank["rank"]] = rank["why"]
    for rank, line in sorted(lines.items()):
        yield f"{'late' if rank in late else '':<4}{rank:>2} {line}"
    sentences = [rank["blame"] for rank in one["ranks"] if rank["blame"]]
    if sentences:
        yield f"  {sentences[0]}"


def text_of(document):
    return "\n\n".join("\n".join(table(one)) for one in document["communicators"])


def sample(interval):
    """Documents with rates, one an interval."""
    before, at = status.collect(), time.monotonic()
    while True:
        time.sleep(interval)
        after, now = status.collect(), time.monotonic()
        status.add_rates(before, after, now - at)
        before, at = after, now
        yield after


def watch(interval):
    """Until Ctrl-C, on the terminal's other screen, so that what stood there comes back."""
    sys.stdout.write("\033[?1049h\033[?25l")
    try:
        for document in sample(interval):
            width, height = shutil.get_terminal_size()
            lines = (f"{document['timestamp']}\n{text_of(document) or NO_JOB}").splitlines()
            sys.stdout.write("\033[H\033[2J" + "\r\n".join(line[:width] for line in lines[:height]))
            sys.stdout.flush()
    finally:
        sys.stdout.write("\033[?25h\033[?1049l")
        sys.stdout.flush()


def interval_of(text):
    seconds = float(text)
    if not 0.1 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text} s is not between 0.1 and 3600")
    return seconds


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="rondo-top", description="What the ranks of this user's jobs on this host are doing.",
                                     epilog="On another host: ssh -t HOST rondo-top")
    parser.add_argument("--once", action="store_true", help="once, as text")
    parser.add_argument("--json", action="store_true", help="once, as JSON")
    parser.add_argument("--interval", type=interval_of, default=1.0, metavar="SECONDS", help="between two looks (1)")
    options = parser.parse_args(arguments)
    try:
        if not (options.once or options.json):
            if not sys.stdout.isatty():
                parser.error("this is no terminal: use --once or --json")
            return watch(options.interval)
        document = next(sample(options.interval))
    except PermissionError as error:
        print(f"rondo-top: {error.filename} is not readable by user {os.geteuid()}: {error.strerror}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 0
    if not document["communicators"]:
        print(f"rondo-top: {NO_JOB}", file=sys.stderr)
        return 1
    try:
        print(json.dumps(document, indent=2) if options.json else text_of(document), flush=True)
    except BrokenPipeError:  # head has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


if __name__ == "__main__":
    sys.exit(main())
