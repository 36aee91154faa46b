"""Compares what rondo-bench measures: with another build of it (--beside). tools/bench.sh builds and starts this."""

import argparse
import sys

import beside
from programs import Failed, end_on_signals


def parse(arguments):
    parser = argparse.ArgumentParser(prog="tools/bench.sh", description=__doc__)
    parser.add_argument("--binary", required=True, help="rondo-bench of this tree")
    parser.add_argument("--beside", metavar="BINARY", required=True, help="another build of rondo-bench")
    parser.add_argument("--rounds", type=int, default=9, help="of --beside (9)")
    parser.add_argument("--bound", type=float, default=1.05,
                        help="of --beside: 1 if a ratio of medians, this / other, is above it (1.05)")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--transport", dest="transports", type=lambda text: text.split(","), default=["shm", "tcp"],
                        help="shm,tcp")
    parser.add_argument("--sizes", type=lambda text: text.split(","), default=["8"], help="8; or 8,64K,1M")
    parser.add_argument("--collective", default="all_reduce")
    parser.add_argument("--buffers", default="plain", choices=["plain", "registered"])
    parser.add_argument("--seconds", type=float, default=0.25, help="of timed operations a size and program (0.25)")
    return parser.parse_args(arguments)


def main(arguments):
    end_on_signals()
    options = parse(arguments)
    try:
        return beside.run(options)
    except Failed as failure:
        print(f"tools/bench.sh: {failure}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
