"""Compares what rondo-bench measures: with another build of it (--beside), with other libraries (--compare), and with
the project's promises (--bars). tests/lab/measure.sh builds it and starts this."""

import argparse
import sys

import beside
import campaign
import promises
from peers import read_peers
from programs import Failed, end_on_signals


def words(text):
    return text.split(",")


def numbers(text):
    return [int(word) for word in text.split(",")]


def parse(arguments):
    parser = argparse.ArgumentParser(prog="tests/lab/measure.sh", description=__doc__)
    parser.add_argument("--binary", required=True, help=argparse.SUPPRESS)  # rondo-bench of this tree
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--beside", metavar="BINARY", help="another build of rondo-bench, in turn with this one")
    what.add_argument("--compare", type=words, metavar="PEERS", help="a list of " + ", ".join(list(read_peers())[1:]))
    what.add_argument("--bars", action="store_true", help="the promises about speed: 1 if one is missed")
    parser.add_argument("--ranks", type=numbers, help="2; of --bars 2,4,8")
    parser.add_argument("--transport", dest="transports", type=words, default=["shm", "tcp"], help="shm,tcp")
    parser.add_argument("--sizes", type=words, help="8,64K,1M,64M; of --beside 8; of --bars those of all bars")
    parser.add_argument("--collective", help="all_reduce; of --compare a list; of --bars all")
    parser.add_argument("--buffers", default="plain", choices=["plain", "registered"])
    parser.add_argument("--calls", choices=["blocking", "async"], help="async: operations are started, then waited "
                        "for (blocking; of --bars both)")
    parser.add_argument("--seconds", type=float, default=0.25,
                        help="of timed operations a size and program, or a run with all its turns (0.25)")
    parser.add_argument("--rounds", type=int, default=9, help="of --beside (9)")
    parser.add_argument("--bound", type=float, default=1.05,
                        help="of --beside: 1 if a ratio of medians, this / other, is above it (1.05)")
    parser.add_argument("--runs", type=int, default=5, help="interleaved runs of --compare and --bars (5)")
    parser.add_argument("--turns", type=int, default=4, help="of each run; the fastest answer counts (4)")
    parser.add_argument("--json", help="of --compare: keep rows and all answers in this file")
    parser.add_argument("--keep", metavar="FOLDER", help="of --bars: keep answers and bars there, a file for each piece")
    options = parser.parse_args(arguments)
    options.ranks = options.ranks or ([2, 4, 8] if options.bars else [2])
    if options.bars and options.json:
        parser.error("--json is of --compare; --bars has --keep")
    if not options.bars:
        options.sizes = options.sizes or (["8"] if options.beside else ["8", "64K", "1M", "64M"])
        options.collective = options.collective or "all_reduce"
        options.calls = options.calls or "blocking"
    for peer in options.compare or []:
        if peer not in read_peers():
            parser.error(f"--compare: '{peer}' is none of: {', '.join(read_peers())}")
    return options


def main(arguments):
    end_on_signals()
    options = parse(arguments)
    command = beside.run if options.beside else promises.judge_bars if options.bars else campaign.compare
    try:
        return command(options)
    except Failed as failure:
        print(f"tests/lab/measure.sh: {failure}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
