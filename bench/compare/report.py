#!/usr/bin/env python3
"""Makes one HTML page of rondo-bench's JSON files: plots, figures, bars, the machine; nothing is loaded from elsewhere.

    tools/report.sh report.html FILE.json ...        installs matplotlib in a virtual environment, then does
    python3 bench/compare/report.py --out report.html [--picture results.svg] [--markdown tables.md] FILE.json ...

Of several rows of one library, collective, transport, kind of buffers, world and size the fastest right one counts.
"""

import argparse
import html
import io
import json
import string

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  the backend is chosen first

# Colours that differ in lightness too, so that they can be told apart in print and by most eyes (Okabe and Ito).
STYLES = {
    "rondo": ("#d55e00", "o", "-"),
    "rondo, registered": ("#a03000", "D", "-"),
    "openmpi": ("#0072b2", "s", "--"),
    "mpich": ("#56b4e9", "^", "--"),
    "intelmpi": ("#009e73", "v", "--"),
    "gloo": ("#7a6a00", "P", ":"),
    "gloo-sync": ("#cc79a7", "X", ":"),
    "gloo-busy": ("#888888", "*", ":"),
}
OTHER = ("#000000", ".", "-.")
UNITS = ("B", "KiB", "MiB", "GiB")

PAGE = string.Template("""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title><style>
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff; margin: 0 auto; padding: 1rem;
  max-width: 72rem; }
h1 { font-size: 1.5rem; line-height: 1.2; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); gap: 1rem; }
figure { margin: 0; break-inside: avoid; } figure svg { width: 100%; height: auto; display: block; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .6rem; text-align: right; border-bottom: 1px solid #ddd; white-space: nowrap; }
th:first-child, td:first-child, td.text, th.text { text-align: left; }
tr.ours { background: #fdf0e6; } .note { color: #555; font-size: .9rem; }
@media print { body { font-size: 10pt; max-width: none; padding: 0; } h2 { break-after: avoid; }
  .plots { grid-template-columns: 1fr 1fr; } .wide { overflow: visible; } table { font-size: 7.5pt; }
  tr { break-inside: avoid; } tr.ours { background: none; font-weight: bold; } }
</style></head><body>
<h1>$title</h1>
$body
</body></html>
""")


def size_text(size):
    value, unit = float(size), 0
    while value >= 1024 and unit < 3:
        value, unit = value / 1024, unit + 1
    return f"{value:.4g} {UNITS[unit]}"


def label_of(row):
    return row["library"] + (", registered" if row["buffers"] == "registered" else "")


def read_files(paths):
    """The machine of the first file, {(collective, transport, world, list): {label: {bytes: row}}}, and all bars."""
    machine, groups, bars = {}, {}, []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
        machine = machine or content["machine"]
        bars += content.get("bars", [])
        for row in content["rows"]:
            if row["wrong"] or row["time_us"] <= 0:
                continue
            key = (row["collective"], row["transport"], row["world"], row["list"])
            line = groups.setdefault(key, {}).setdefault(label_of(row), {})
            best = line.get(row["bytes"])
            if best is None or row["time_us"] < best["time_us"]:
                line[row["bytes"]] = row
    return machine, groups, bars


def order(labels):
    """Ours first, then the peers in the order of the legend."""
    known = list(STYLES)
    return sorted(labels, key=lambda label: (known.index(label) if label in known else len(known), label))


def draw_lines(axes, group, field):
    for label in order(group):
        points = [(size, row[field]) for size, row in sorted(group[label].items()) if row[field]]
        if not points:
            continue
        colour, marker, dash = STYLES.get(label, OTHER)
        axes.plot(*zip(*points), color=colour, marker=marker, linestyle=dash, markersize=4, label=label)


def draw_limit(axes, group):
    """The limit that rows were compared with."""
    limits = {}
    for line in group.values():
        limits.update({size: row["limit_gbps"] for size, row in line.items() if row["limit_gbps"]})
    if limits:
        axes.plot(*zip(*sorted(limits.items())), color="#000", linewidth=1.2, linestyle=(0, (1, 1)), marker="_",
                  label="raw TCP (limit)")


def finish(axes, group, title, logarithmic=True):
    sizes = sorted({size for line in group.values() for size in line})
    axes.set_xscale("log", base=2)
    if logarithmic:
        axes.set_yscale("log")
    step = max(1, (len(sizes) + 6) // 7)
    shown = sizes[::step]
    axes.set_xticks(shown, [size_text(size) for size in shown], fontsize=8)
    axes.minorticks_off()
    axes.set_title(title, fontsize=10, loc="left")
    axes.grid(alpha=0.3)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(fontsize=8)


def plots_of(group):
    """Pairs of a title and a function that draws into axes."""

    def time(axes):
        draw_lines(axes, group, "time_us")
        finish(axes, group, "time, microseconds (lower is better)")

    def busbw(axes):
        draw_lines(axes, group, "busbw_gbps")
        draw_limit(axes, group)
        finish(axes, group, "bus bandwidth, GB/s (higher is better)")

    def share(axes):
        draw_lines(axes, group, "share_of_limit")
        axes.axhline(1, color="#000", linewidth=1)
        axes.set_ylim(0, 1.1)
        finish(axes, group, "share of the limit", logarithmic=False)

    def cpu(axes):
        draw_lines(axes, group, "cpu_s_per_gb")
        finish(axes, group, "processor seconds per GB (lower is better)")

    def has(field):
        return any(row[field] for line in group.values() for row in line.values())

    wanted = [time, busbw]
    if has("share_of_limit"):
        wanted.append(share)
    if has("cpu_s_per_gb"):
        wanted.append(cpu)
    return wanted


def svg_of(draw, identity):
    """Inline SVG; text stays text. The salt keeps ids of several pictures in one page apart."""
    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": identity, "font.family": "sans-serif"})
    figure, axes = plt.subplots(figsize=(6, 3.8), layout="constrained")
    draw(axes)
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None})
    plt.close(figure)
    return out.getvalue()[out.getvalue().index("<svg"):]


def figure_text(value):
    return "-" if value is None else f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


def table_of(group):
    ours = group.get("rondo", {})
    lines = ["<div class='wide'><table><tr><th>size</th><th class='text'>library</th><th>time, us</th>"
             "<th>busbw, GB/s</th><th>CPU s/GB</th><th>share of limit</th><th>rondo / it</th>"
             "<th class='text'>algorithm or setting</th></tr>"]
    for size in sorted({size for line in group.values() for size in line}):
        for label in order(group):
            row = group[label].get(size)
            if row is None:
                continue
            ratio = ours[size]["time_us"] / row["time_us"] if size in ours and label != "rondo" else None
            cells = [row["time_us"], row["busbw_gbps"], row["cpu_s_per_gb"], row["share_of_limit"], ratio]
            lines.append(f"<tr{' class=ours' if row['library'] == 'rondo' else ''}><td>{size_text(size)}</td>"
                         f"<td class='text'>{html.escape(label)}</td>"
                         + "".join(f"<td>{figure_text(cell)}</td>" for cell in cells)
                         + f"<td class='text'>{html.escape(row['algorithm'])}</td></tr>")
    return "\n".join(lines) + "</table></div>"


def title_of(key):
    collective, transport, world, gradients = key
    kind = "" if gradients == "none" else f", all gradients of {gradients}"
    return f"{collective}, {transport}, {world} ranks{kind}"


def facts_of(machine):
    memory = f"{machine['memory_bytes'] / 2**30:.1f} GiB"
    facts = [("processor", machine["cpu"]), ("cores", machine["cores"]), ("memory", memory),
             ("Linux", machine["kernel"]), ("congestion control", machine["congestion_control"]),
             ("load before the run", f"{machine['load_average']:.2f}"),
             ("taken by the hypervisor", f"{100 * machine['steal_share']:.1f} % of the processors' time")]
    rows = "".join(f"<tr><td>{name}</td><td class='text'>{html.escape(str(value))}</td></tr>" for name, value in facts)
    return f"<table>{rows}</table>"


def bar_name(bar):
    kind = ", registered" if bar["buffers"] == "registered" else ""
    return f"{bar['transport']}{kind}, {bar['world']} ranks, {size_text(bar['bytes'])}: {bar['ratio']}"


def bar_cells(bar):
    """Runs, median, bound, verdict."""
    median = "-" if bar["median"] is None else f"{bar['median']:.3f}"
    return [" ".join(f"{run:.3f}" for run in bar["runs"]) or bar["why_not"], median,
            f"{bar['kind']} {bar['bound']:.2f}", bar["verdict"]]


def table_of_bars(bars):
    lines = ["<div class='wide'><table><tr><th>bar</th><th class='text'>the runs</th><th>median</th><th>bound</th>"
             "<th class='text'>verdict</th></tr>"]
    for bar in bars:
        runs, median, bound, verdict = (html.escape(cell) for cell in bar_cells(bar))
        lines.append(f"<tr><td>{html.escape(bar_name(bar))}</td><td class='text'>{runs}</td><td>{median}</td>"
                     f"<td>{bound}</td><td class='text'>{verdict}</td></tr>")
    return "\n".join(lines) + "</table></div>"


def time_text(microseconds):
    return f"{microseconds:,.0f} µs" if microseconds >= 1000 else f"{microseconds:.3g} µs"


def markdown_of(groups, bars):
    """The same as tables in Markdown: times by library and size, ours by the best other one; then the bars."""
    lines = []
    for key in sorted(groups):
        group, sizes = groups[key], sorted({size for line in groups[key].values() for size in line})
        lines += [f"{title_of(key)}:", "", "| | " + " | ".join(size_text(size) for size in sizes) + " |",
                  "|---|" + "---:|" * len(sizes)]
        for label in order(group):
            cells = [time_text(group[label][size]["time_us"]) if size in group[label] else "-" for size in sizes]
            lines.append(f"| {label} | " + " | ".join(cells) + " |")
        ratios = []
        for size in sizes:
            others = [line[size]["time_us"] for label, line in group.items()
                      if size in line and line[size]["library"] != "rondo"]
            ours = group.get("rondo", {}).get(size)
            ratios.append(f"{ours['time_us'] / min(others):.2f}" if ours and others else "-")
        if any(ratio != "-" for ratio in ratios):
            lines.append("| rondo / the best other | " + " | ".join(ratios) + " |")
        lines.append("")
    if bars:
        lines += ["| bar | runs | median | bound | |", "|---|---|---:|---|---|"]
        lines += [f"| {bar_name(bar)} | " + " | ".join(bar_cells(bar)) + " |" for bar in bars]
    return "\n".join(lines) + "\n"


def page_of(machine, groups, bars):
    title = "Rondo beside other libraries"
    body = [facts_of(machine),
            "<p class='note'>Medians of interleaved runs on one machine; compare within this page only. Bus bandwidth "
            "counts the bytes that the busiest link must carry. Processor seconds are those of all ranks together, per "
            "10<sup>9</sup> bytes sent.</p>"]
    if bars:
        body.append("<h2>Bars</h2><p class='note'>Judged by the median of the ratios of the runs, in each of which "
                    "everybody takes several turns and the fastest counts.</p>" + table_of_bars(bars))
    for key in sorted(groups):
        group = groups[key]
        body.append(f"<h2>{html.escape(title_of(key))}</h2>")
        if len({size for line in group.values() for size in line}) > 1:
            drawn = [f"<figure>{svg_of(draw, f'{key}{draw.__name__}')}</figure>" for draw in plots_of(group)]
            body.append("<div class='plots'>" + "\n".join(drawn) + "</div>")
        body.append(table_of(group))
    return PAGE.substitute(title=title, body="\n".join(body))


def save_picture(path, groups):
    """Time and bandwidth of all_reduce, a row for each transport and world."""
    keys = [key for key in sorted(groups) if key[0] == "all_reduce" and key[3] == "none"]
    figure, rows = plt.subplots(len(keys), 2, figsize=(10, 3.6 * len(keys)), layout="constrained", squeeze=False)
    for key, (left, right) in zip(keys, rows):
        time, busbw = plots_of(groups[key])[:2]
        time(left)
        busbw(right)
        left.set_title(f"{title_of(key)}: " + left.get_title("left"), fontsize=10, loc="left")
    figure.patch.set_facecolor("white")
    figure.savefig(path, metadata={"Date": None} if path.endswith(".svg") else None)
    plt.close(figure)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, help="the page")
    parser.add_argument("--picture", help="time and bandwidth of all_reduce alone: .svg or .png")
    parser.add_argument("--markdown", help="the figures and bars as tables in Markdown")
    parser.add_argument("files", nargs="+", help="JSON of rondo-bench --json")
    arguments = parser.parse_args()
    machine, groups, bars = read_files(arguments.files)
    if not groups:
        parser.error("no right row in these files")
    with open(arguments.out, "w", encoding="utf-8") as file:
        file.write(page_of(machine, groups, bars))
    if arguments.markdown:
        with open(arguments.markdown, "w", encoding="utf-8") as file:
            file.write(markdown_of(groups, bars))
    if arguments.picture:
        save_picture(arguments.picture, groups)


if __name__ == "__main__":
    main()
