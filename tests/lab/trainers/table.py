"""Makes tables, and a plot, of what cnn.py has written by --json.

    python table.py ROWS.jsonl... [--speed] [--plot PICTURE.svg]    (the plot needs matplotlib)

A line of the table is an option with a number of ranks and a batch, at the last epoch that all of its seeds have: test
accuracy, the difference from fp32 with the same seed, ranks and batch, the mean loss of the epoch's steps, kilobytes
that a rank sends in a step. --speed, for rows of a quiet machine: images a second, how many times those of one rank with
fp32, and the share of the time that rank 0 waited for communication.
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
            runs[row["option"], row["world"], row["batch"]][row["seed"]][row["epoch"]] = row
    for seeds in runs.values():
        steps = max(row["steps"] for row in rows_of(seeds))  # a row of an epoch that was resumed counts the steps since
        for row in rows_of(seeds):
            row["mean_loss"] = row["loss"] / row["world"] / steps
    return runs


def ordered(runs: dict) -> list:
    """By ranks and batch; options as they came."""
    return sorted(runs.items(), key=lambda run: (run[0][1:], list(runs).index(run[0])))


def rows_of(seeds: dict) -> list[dict]:
    return [row for epochs in seeds.values() for row in epochs.values()]


def spread(values: list[float], form: str) -> str:
    mean = format(statistics.mean(values), form)
    return mean if len(values) == 1 else f"{mean} ({min(values):{form}} to {max(values):{form}})"


def kilobytes(seeds: dict) -> str:
    return f"{statistics.mean(row['bytes_sent'] / row['steps'] for row in rows_of(seeds)) / 1e3:,.0f}"


def lines_of(columns: list[str], rows: list[list]) -> list[str]:
    lines = [columns, ["---"] + ["---:"] * (len(columns) - 1), *rows]
    return ["| " + " | ".join(map(str, line)) + " |" for line in lines]


def accuracies(runs: dict) -> list[str]:
    rows = []
    for (option, world, batch), seeds in ordered(runs):
        epoch = min(max(epochs) for epochs in seeds.values())
        last = [epochs[epoch] for epochs in seeds.values()]
        plain = runs.get(("fp32", world, batch), {})
        apart = [
            100 * (row["test_accuracy"] - plain[row["seed"]][epoch]["test_accuracy"])
            for row in last
            if option != "fp32" and epoch in plain.get(row["seed"], {})
        ]
        accuracy = spread([100 * row["test_accuracy"] for row in last], ".2f")
        loss = f"{statistics.mean(row['mean_loss'] for row in last):.3f}"
        points = spread(apart, "+.2f") if apart else ""
        rows.append([option, world, batch, epoch + 1, len(seeds), accuracy, points, loss, kilobytes(seeds)])
    return lines_of(
        ["option", "ranks", "images a rank and step", "epochs", "seeds", "accuracy, %", "points from fp32", "loss",
         "kB a rank and step"], rows,
    )  # fmt: skip


def speeds(runs: dict) -> list[str]:
    def images_per_second(seeds: dict) -> float:
        return statistics.median(row["images_per_second"] for row in rows_of(seeds))

    def times(rate: float, batch: int) -> str:
        alone = runs.get(("fp32", 1, batch))
        return f"{rate / images_per_second(alone):.2f}" if alone else ""

    rows = []
    for (option, world, batch), seeds in ordered(runs):
        rate = images_per_second(seeds)
        every = rows_of(seeds)
        waiting = sum(row["communication_seconds"] for row in every) / sum(row["seconds"] for row in every)
        rows.append(
            [option, world, batch, f"{rate:,.0f}", times(rate, world * batch), times(rate, batch),
             f"{100 * waiting:.1f}", kilobytes(seeds)]
        )  # fmt: skip
    return lines_of(
        ["option", "ranks", "images a rank and step", "images/s", "times 1 rank, equal global batch",
         "times 1 rank, equal batch a rank", "waiting, %", "kB a rank and step"], rows,
    )  # fmt: skip


def plot(runs: dict, picture: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.fonttype"] = "none"  # text as text: a third of the bytes
    matplotlib.rcParams["svg.hashsalt"] = "rondo"  # the same rows, the same bytes
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D

    options = list(dict.fromkeys(option for option, _, _ in runs))
    colors = {option: f"C{i}" for i, option in enumerate(options)}
    styles = {1: ":", 2: "-", 4: "--"}
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.2))
    for (option, world, _), seeds in runs.items():
        epochs = sorted(set.intersection(*(set(rows) for rows in seeds.values())))
        for axis, what, factor in zip(axes, ("mean_loss", "test_accuracy"), (1, 100), strict=True):
            means = [factor * statistics.mean(rows[epoch][what] for rows in seeds.values()) for epoch in epochs]
            axis.plot(
                [epoch + 1 for epoch in epochs], means, color=colors[option], linestyle=styles.get(world, "-."), lw=1.2
            )
    worlds = sorted({world for _, world, _ in runs})
    lines = [Line2D([], [], color=colors[option], label=option) for option in options]
    lines += [Line2D([], [], color="black", linestyle=styles.get(w, "-."), label=f"{w} ranks") for w in worlds]
    axes[0].set(xlabel="epoch", ylabel="training loss")
    axes[1].set(xlabel="epoch", ylabel="test accuracy, %")
    axes[1].legend(handles=lines, fontsize=7)
    for axis in axes:
        axis.grid(True, alpha=0.3)
    figure.tight_layout()
    figure.savefig(picture, metadata={"Date": None})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="+", type=Path)
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()
    found = read(arguments.rows)
    print("\n".join((speeds if arguments.speed else accuracies)(found)))
    if arguments.plot:
        plot(found, arguments.plot)
