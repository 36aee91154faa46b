#!/usr/bin/env python3
"""Draws all_reduce times and bus bandwidths from the JSON of rondo-bench and of gloo_bench, as SVG or PNG.

    python3 bench/plot.py --out results.svg rondo.json gloo.json      needs matplotlib (PyPI)

Of each file: in-place all_reduce rows; of several algorithms at one size the fastest.
"""

import argparse
import json

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  the backend is chosen first

SIZES = {8: "8 B", 1 << 10: "1 KiB", 1 << 16: "64 KiB", 1 << 20: "1 MiB", 1 << 26: "64 MiB"}


def fastest(paths):
    """{(library, world): {bytes: row}}"""
    lines = {}
    for path in paths:
        with open(path, encoding="utf-8") as file:
            rows = json.load(file)["rows"]
        for row in rows:
            if row["collective"] != "all_reduce" or not row["in_place"]:
                continue
            line = lines.setdefault((row["library"], row["world"]), {})
            best = line.get(row["bytes"])
            if best is None or row["time_us"] < best["time_us"]:
                line[row["bytes"]] = row
    return lines


def draw(axes, lines, field, label):
    for (library, world), rows in sorted(lines.items()):
        sizes = sorted(rows)
        style = "-o" if library == "rondo" else "--s"
        axes.plot(sizes, [rows[size][field] for size in sizes], style, markersize=3, label=f"{library}, {world} ranks")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(list(SIZES), SIZES.values(), fontsize=7)
    axes.set_ylabel(label)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, help="the picture: .svg or .png")
    parser.add_argument("files", nargs="+", help="JSON of rondo-bench --json or gloo_bench --json")
    arguments = parser.parse_args()
    lines = fastest(arguments.files)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    draw(left, lines, "time_us", "time, microseconds (lower is better)")
    draw(right, lines, "busbw_gbps", "bus bandwidth, GB/s (higher is better)")
    figure.suptitle("all_reduce, float32 sum, in place, TCP over loopback", fontsize=9)
    figure.patch.set_facecolor("white")
    figure.savefig(arguments.out, metadata={"Date": None} if arguments.out.endswith(".svg") else None)


if __name__ == "__main__":
    main()
