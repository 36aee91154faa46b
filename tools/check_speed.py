#!/usr/bin/env python3
"""Checks rondo-bench's JSON: no wrong result, and the median share of the limit over several runs."""

import argparse
import json
import statistics
import sys

UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def parse_bytes(text):
    """8, 64K, 64M, 1G; as rondo-bench reads sizes."""
    if text[-1:].upper() in UNITS:
        return int(text[:-1]) * UNITS[text[-1].upper()]
    return int(text)


def read_rows(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)["rows"]


def count_wrong(path, rows):
    wrong = [row for row in rows if row["wrong"] != 0]
    for row in wrong:
        print(f"{path}: {row['wrong']} wrong in {row['collective']} of {row['bytes']} B, world {row['world']}")
    return len(wrong)


def median_share(files, size):
    """The median over runs; in each run the share of the out-of-place row of that size."""
    shares = []
    for rows in files.values():
        found = [row["share_of_limit"] for row in rows if row["bytes"] == size and not row["in_place"]]
        shares += found[:1]
    if len(shares) != len(files):
        sys.exit(f"{len(files) - len(shares)} of {len(files)} runs have no row of {size} B")
    print(f"share of the limit at {size} B: {', '.join(f'{share:.2f}' for share in sorted(shares))}")
    return statistics.median(shares)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=parse_bytes, help="the size that --share is about")
    parser.add_argument("--share", type=float, help="the least median share of the limit")
    parser.add_argument("files", nargs="+", help="one a run")
    arguments = parser.parse_args()
    if (arguments.bytes is None) != (arguments.share is None):
        parser.error("--bytes and --share go together")

    files = {path: read_rows(path) for path in arguments.files}
    empty = [path for path, rows in files.items() if not rows]
    if empty:
        sys.exit(f"no rows in {', '.join(empty)}")
    if sum(count_wrong(path, rows) for path, rows in files.items()):
        return 1
    if arguments.share is not None:
        share = median_share(files, arguments.bytes)
        if share < arguments.share:
            print(f"the median {share:.2f} is below {arguments.share}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
