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

_HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [_HERE, os.path.join(os.path.dirname(_HERE), "trace")]

import screen  # noqa: E402
import status  # noqa: E402
import version  # noqa: E402


def sample(interval):
    """Documents with rates, one an interval, without end."""
    before, at = status.collect(), time.monotonic()
    while True:
        time.sleep(interval)
        after, now = status.collect(), time.monotonic()
        status.add_rates(before, after, now - at)
        before, at = after, now
        yield after


def write(text):
    sys.stdout.write(text)
    sys.stdout.flush()


def watch(interval, everything):
    """Draws until Ctrl-C, on the terminal's other screen, so that what stood there comes back."""
    write("\033[?1049h\033[?25l\033[2J")
    try:
        for document in sample(interval):
            width, height = shutil.get_terminal_size()
            lines = screen.page(document, everything, width, height)
            # Each line is cleared first: behind a full one the cursor stands on its last character.
            write("\033[H\033[K" + "\r\n\033[K".join(lines) + ("\r\n\033[J" if len(lines) < height else ""))
    finally:
        write("\033[?25h\033[?1049l")


def interval_of(text):
    seconds = float(text)
    if not 0.1 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text} s is not between 0.1 and 3600")
    return seconds


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="rondo-top", description="What the ranks of this user's jobs on this host are doing.",
                                     epilog="On another host: ssh -t HOST rondo-top")
    parser.add_argument("--version", action="version", version=version.text("rondo-top"))
    parser.add_argument("--once", action="store_true", help="once, as text")
    parser.add_argument("--json", action="store_true", help="once, as JSON")
    parser.add_argument("--all", action="store_true", help="idle communicators, too; JSON always has them")
    parser.add_argument("--interval", type=interval_of, default=1.0, metavar="SECONDS", help="between two looks (1)")
    options = parser.parse_args(arguments)
    try:
        if not (options.once or options.json):
            if not sys.stdout.isatty():
                parser.error("this is no terminal: use --once or --json")
            watch(options.interval, options.all)
            return 0
        document = next(sample(options.interval))
    except PermissionError as error:
        print(f"rondo-top: {error.filename} is not readable by user {os.geteuid()}: {error.strerror}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 0
    if not document["communicators"]:
        print(f"rondo-top: {screen.NO_JOB}", file=sys.stderr)
        return 1
    try:
        print(json.dumps(document, indent=2) if options.json else "\n".join(screen.lines_of(document, options.all)), flush=True)
    except BrokenPipeError:  # head has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


if __name__ == "__main__":
    sys.exit(main())
