#!/usr/bin/env python3
"""rondo-trace: what ran, from the traces that RONDO_TRACE=folder leaves.

    rondo-trace report FOLDER                  who waited for whom, and why; calls, links, failures
    rondo-trace merge FOLDER -o run.json       Chrome trace events: the timeline, for a viewer of traces
"""

import argparse
import json
import os
import pathlib
import sys

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))

import chrome  # noqa: E402
import clocks  # noqa: E402
import read  # noqa: E402
import report  # noqa: E402
import version  # noqa: E402


def load(folder):
    """(ranks, clocks, operations, members) of a folder."""
    ranks = read.read_folder(folder)
    found = clocks.align(ranks)
    operations, members = {}, {}
    for rank, trace in ranks.items():
        members.update(trace.communicators.values())
        for key, operation in trace.operations.items():
            operations.setdefault(key, {})[rank] = operation
    return ranks, found, operations, members


def write(path, text):
    """To a file beside it first, so that nothing is half written; a link keeps pointing, and a device stays one."""
    if path == "-":
        sys.stdout.write(text)
        return
    whole = not os.path.lexists(path) or os.path.isfile(path) and not os.path.islink(path)
    part = pathlib.Path(f"{path}.part" if whole else path)
    try:
        part.write_text(text, encoding="utf-8")
        if whole:
            part.replace(path)
    except OSError as error:
        if whole:
            part.unlink(missing_ok=True)
        raise read.TraceError(f"cannot write {path}: {error.strerror}") from None


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="rondo-trace", description="What ran, from the traces of RONDO_TRACE=folder.")
    parser.add_argument("--version", action="version", version=version.text("rondo-trace"))
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (("report", "what ran, who waited for whom, and why"), ("merge", "Chrome trace events, as JSON")):
        command = commands.add_parser(name, help=text)
        command.add_argument("folder", help="of rank-*.rondo-trace; of several hosts, gathered into one")
        if name == "merge":
            command.add_argument("-o", "--output", required=True, metavar="FILE", help="- is the standard output")
    options = parser.parse_args(arguments)
    try:
        ranks, found, operations, members = load(options.folder)
        if options.command == "merge":
            write(options.output, json.dumps(chrome.events(ranks, found)) + "\n")
        else:
            print(report.text(ranks, found, operations, members), end="", flush=True)
    except BrokenPipeError:  # head has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (read.TraceError, OSError) as error:
        print(f"rondo-trace: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
