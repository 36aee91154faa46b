"""Makes a table, and a plot, of what cnn.py has written by --json.

    python table.py ROWS.jsonl... [--plot PICTURE.svg]    (the plot needs matplotlib)

A line of the table is an option with a number of ranks and a batch: test accuracy of the last epoch that all of its
seeds have, the difference from fp32 with the same seed, ranks and batch at that epoch, kilobytes that a rank sends in a
step, the share of the time that rank 0 waited for communication, and images a second.
"""

import argparse
import json
import statistics
from collections import defaultdict
from pathlib import Path


def read(files: list[Path]) -> dict:
    """{(option, world, batch): {seed: {epoch: row}}}; of an epoch that is there twice, the later one."""
    runs: dict = defaultdict(lambda: defaultdict(dict))
    for file in files:
        for line in file.read_text().splitlines():
            row = json.loads(line)
            runs[row["option"], row["world"], row.get("batch", 64)][row["seed"]][row["epoch"]] = row
    return runs


def spread(values: list[float], form: str) -> str:
    mean = format(statistics.mean(values), form)
    return mean if len(values) == 1 else f"{mean} ({min(values):{form}} .. {max(values):{form}})"


def steps_of(row: dict) -> int:
    return row["steps"] if "steps" in row else 60000 // row["world"] // 64


def table(runs: dict) -> list[str]:
    lines = [
        "| option | ranks | images a rank and step | epochs | seeds | accuracy | points from fp32 | loss | kB a step "
        "| waiting | images/s |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for (option, world, batch), seeds in sorted(runs.items(), key=lambda run: (run[0][1:], list(runs).index(run[0]))):
        epoch = min(max(epochs) for epochs in seeds.values())
        last = [epochs[epoch] for epochs in seeds.values()]
        plain = runs.get(("fp32", world, batch), {})
        apart = [
            100 * (row["test_accuracy"] - plain[row["seed"]][epoch]["test_accuracy"])
            for row in last
            if option != "fp32" and epoch in plain.get(row["seed"], {})
        ]
        every = [row for epochs in seeds.values() for row in epochs.values()]
        sent = statistics.mean(row["bytes_sent"] / steps_of(row) for row in every) / 1e3
        waiting = sum(row["communication_seconds"] for row in every) / sum(row["seconds"] for row in every)
        speed = statistics.median(row["images_per_second"] for row in every)
        cells = [
            option, world, batch, epoch + 1, len(seeds), spread([100 * row["test_accuracy"] for row in last], ".2f"),
            spread(apart, "+.2f") if apart else "", f"{statistics.mean(row['loss'] for row in last):.1f}",
            f"{sent:,.0f}", f"{100 * waiting:.0f} %", f"{speed:,.0f}",
        ]  # fmt: skip
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return lines


def plot(runs: dict, picture: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.fonttype"] = "none"  # text as text: a third of the bytes
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(7, 4))
    for (option, world, batch), seeds in runs.items():
        epochs = sorted(set.intersection(*(set(rows) for rows in seeds.values())))
        means = [100 * statistics.mean(rows[epoch]["test_accuracy"] for rows in seeds.values()) for epoch in epochs]
        axis.plot([epoch + 1 for epoch in epochs], means, marker="o", markersize=3, label=f"{option}, {world} ranks")
    axis.set(xlabel="epoch", ylabel="test accuracy, %")
    axis.grid(True, alpha=0.3)
    axis.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(picture, metadata={"Date": None})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="+", type=Path)
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()
    found = read(arguments.rows)
    print("\n".join(table(found)))
    if arguments.plot:
        plot(found, arguments.plot)
