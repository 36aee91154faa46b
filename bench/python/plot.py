"""Draws what beside_mpi4py.py has measured: time over bytes, a picture a collective and world size.

python plot.py ROWS.json PICTURE.svg
"""

import json
import statistics
import sys

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.fonttype"] = "none"  # text as text: a third of the bytes
import matplotlib.pyplot as plt  # noqa: E402

STYLES = {
    "rondo": ("#d55e00", "o"), "rondo-prepared": ("#a03000", "D"),
    "mpi4py, Open MPI": ("#0072b2", "s"), "mpi4py, Intel MPI": ("#009e73", "v"),
}  # fmt: skip


def main():
    lines: dict = {}
    for ranks, collective, library, size, us in json.load(open(sys.argv[1]))["rows"]:
        lines.setdefault((ranks, collective), {}).setdefault(library, []).append((size, statistics.median(us)))
    worlds = sorted({ranks for ranks, _ in lines})
    names = list(dict.fromkeys(collective for _, collective in lines))
    figure, axes = plt.subplots(len(worlds), len(names), figsize=(4 * len(names), 3 * len(worlds)), squeeze=False)
    for row, ranks in zip(axes, worlds):
        for axis, name in zip(row, names):
            for library, points in lines[ranks, name].items():
                color, marker = STYLES[library]
                axis.loglog(*zip(*sorted(points)), color=color, marker=marker, markersize=4, label=library)
            axis.set(title=f"{name}, {ranks} ranks", xlabel="bytes", ylabel="microseconds")
            axis.grid(True, which="major", alpha=0.3)
    axes[0][0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(sys.argv[2], metadata={"Date": None})


if __name__ == "__main__":
    main()
