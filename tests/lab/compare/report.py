#!/usr/bin/env python3
"""Tables in Markdown, and a picture, of the JSON that rondo-bench and tests/lab/measure.sh write.

    python3 tests/lab/compare/report.py [--picture results.svg] FILE.json ... > tables.md
    tests/lab/report.sh                 the same, with matplotlib installed for the picture

Of several rows of one library, collective, kind of calls, transport, kind of buffers, world and size the fastest right
one counts.
"""

import argparse
import json
import sys

from programs import size_text

# Colors that differ in lightness too, so that they can be told apart in print and by most eyes (Okabe and Ito).
STYLES = {
    "rondo": ("#d55e00", "o", "-"),
    "rondo, registered": ("#a03000", "D", "-"),
    "openmpi": ("#0072b2", "s", "--"),
    "mpich": ("#56b4e9", "^", "--"),
    "intelmpi": ("#009e73", "v", "--"),
    "oneccl": ("#f0a000", "h", "--"),
    "gloo": ("#7a6a00", "P", ":"),
    "gloo-sync": ("#cc79a7", "X", ":"),
    "gloo-busy": ("#888888", "*", ":"),
}
OTHER = ("#000000", ".", "-.")


def what_of(one):
    """Of a row or a bar: "sendrecv, async calls"; files that name no calls are about blocking ones."""
    return one["collective"] + (", async calls" if one.get("calls") == "async" else "")


def read_files(paths):
    """{(what_of(), transport, world, list): {label: {bytes: row}}}, and all bars."""
    groups, bars = {}, []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
        bars += content.get("bars", [])
        for row in content["rows"]:
            if row["wrong"] or row["time_us"] <= 0:
                continue
            key = (what_of(row), row["transport"], row["world"], row["list"])
            label = row["library"] + (", registered" if row["buffers"] == "registered" else "")
            line = groups.setdefault(key, {}).setdefault(label, {})
            best = line.get(row["bytes"])
            if best is None or row["time_us"] < best["time_us"]:
                line[row["bytes"]] = row
    return groups, bars


def order(labels):
    """Ours first, then the peers in the order of the legend."""
    known = list(STYLES)
    return sorted(labels, key=lambda label: (known.index(label) if label in known else len(known), label))


def sizes_of(group):
    return sorted({size for line in group.values() for size in line})


def title_of(key):
    what, transport, world, gradients = key
    kind = "" if gradients == "none" else f", all gradients of {gradients}"
    return f"{what}, {transport}, {world} ranks{kind}"


def time_text(microseconds):
    return f"{microseconds:,.0f} µs" if microseconds >= 1000 else f"{microseconds:.3g} µs"


def ratio_text(group, size):
    """Our time / that of the best other library."""
    others = [line[size]["time_us"] for line in group.values() if size in line and line[size]["library"] != "rondo"]
    ours = group.get("rondo", {}).get(size)
    return f"{ours['time_us'] / min(others):.2f}" if ours and others else "-"


def table_of(key, group):
    sizes = sizes_of(group)
    lines = [f"{title_of(key)}:", "", "| | " + " | ".join(map(size_text, sizes)) + " |", "|---|" + "---:|" * len(sizes)]
    for label in order(group):
        cells = [time_text(group[label][size]["time_us"]) if size in group[label] else "-" for size in sizes]
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    ratios = [ratio_text(group, size) for size in sizes]
    if any(ratio != "-" for ratio in ratios):
        lines.append("| rondo / the best other | " + " | ".join(ratios) + " |")
    return lines + [""]


def table_of_bars(bars):
    lines = ["| bar | runs | median | bound | |", "|---|---|---:|---|---|"]
    for bar in bars:
        kind = ", registered" if bar["buffers"] == "registered" else ""
        runs = " ".join(f"{run:.3f}" for run in bar["runs"]) or bar["why_not"]
        median = "-" if bar["median"] is None else f"{bar['median']:.3f}"
        lines.append(f"| {what_of(bar)}, {bar['transport']}{kind}, {bar['world']} ranks, {size_text(bar['bytes'])}: {bar['ratio']} "
                     f"| {runs} | {median} | {bar['kind']} {bar['bound']:.2f} | {bar['verdict']} |")
    return lines


def draw(axes, group, field, title):
    for label in order(group):
        points = [(size, row[field]) for size, row in sorted(group[label].items()) if row[field]]
        if points:
            color, marker, dash = STYLES.get(label, OTHER)
            axes.plot(*zip(*points), color=color, marker=marker, linestyle=dash, markersize=4, label=label)
    sizes = sizes_of(group)
    shown = sizes[:: max(1, (len(sizes) + 6) // 7)]
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(shown, [size_text(size) for size in shown], fontsize=8)
    axes.minorticks_off()
    axes.set_title(title, fontsize=10, loc="left")
    axes.grid(alpha=0.3)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(fontsize=8)


def save_picture(path, groups):
    """Time and bandwidth of all_reduce, a row for each transport and world."""
    import matplotlib  # installed for pictures only

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "rondo", "font.family": "sans-serif"})
    keys = [key for key in sorted(groups) if key[0] == "all_reduce" and key[3] == "none"]
    figure, rows = plt.subplots(len(keys), 2, figsize=(10, 3.6 * len(keys)), layout="constrained", squeeze=False)
    for key, (left, right) in zip(keys, rows):
        draw(left, groups[key], "time_us", f"{title_of(key)}: time, microseconds (lower is better)")
        draw(right, groups[key], "busbw_gbps", "bus bandwidth, GB/s (higher is better)")
    figure.patch.set_facecolor("white")
    figure.savefig(path, metadata={"Date": None} if path.endswith(".svg") else None)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--picture", help="time and bandwidth of all_reduce: .svg or .png")
    parser.add_argument("files", nargs="+", help="what --json wrote")
    arguments = parser.parse_args()
    groups, bars = read_files(arguments.files)
    if not groups:
        parser.error("no right row in these files")
    lines = [line for key in sorted(groups) for line in table_of(key, groups[key])]
    print("\n".join(lines + (table_of_bars(bars) if bars else [])))
    if arguments.picture:
        save_picture(arguments.picture, groups)


if __name__ == "__main__":
    sys.exit(main())
