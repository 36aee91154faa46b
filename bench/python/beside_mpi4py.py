#!/usr/bin/env python3
"""Rondo from Python beside mpi4py over Open MPI and over Intel MPI, through shared memory, in turns; a table and a plot.

    python3 bench/python/beside_mpi4py.py [--ranks 2,4] [--runs 5] [--seconds 0.2] [--out build/mpi4py]

Wants Debian's openmpi-bin, and a virtual environment (--python) with rondo, numpy, mpi4py, impi-rt and matplotlib;
without --python it makes one in build/venv-mpi4py, after tools/wheel.sh.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import venv
from pathlib import Path

TREE = Path(__file__).resolve().parents[2]
LOOP = Path(__file__).with_name("loop.py")
SIZES = (8, 1024, 64 << 10, 1 << 20, 16 << 20, 64 << 20)
COLLECTIVES = ("all_reduce", "all_gather", "broadcast")
LIBRARIES = ("rondo", "rondo-prepared", "mpi4py, Open MPI", "mpi4py, Intel MPI")
# The MPIs give freed memory back to the system and fault it in again at each call, unless malloc is told to keep it.
KEEP_HEAP = {"MALLOC_TRIM_THRESHOLD_": "2147483648", "MALLOC_MMAP_THRESHOLD_": "2147483648", "MALLOC_TOP_PAD_": "67108864"}


def make_environment() -> Path:
    folder = TREE / "build/venv-mpi4py"
    python = folder / "bin/python"
    if not python.exists():
        wheels = list((TREE / "build/wheel").glob("*.whl"))
        if not wheels:
            sys.exit("there is no wheel in build/wheel: run tools/wheel.sh first")
        venv.create(folder, with_pip=True)
        packages = [str(wheels[0]), "mpi4py>=4", "impi-rt", "matplotlib"]
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
    return python


def command(library: str, ranks: int, python: Path) -> tuple[list, dict]:
    crowded = ranks > len(os.sched_getaffinity(0))
    if library.startswith("rondo"):
        return [python, "-m", "rondo.run", "-n", str(ranks)], {}
    if library.endswith("Open MPI"):
        launcher = shutil.which("mpirun.openmpi") or sys.exit("there is no mpirun.openmpi: apt-get install openmpi-bin")
        options = ["--allow-run-as-root", "--oversubscribe", "--mca", "plm", "isolated"]
        # Ranks that share a core must give it away.
        options += ["--mca", "mpi_yield_when_idle", "1"] if crowded else []
        return [launcher, *options, "-n", str(ranks)], {"MPI4PY_MPIABI": "openmpi", **KEEP_HEAP}
    settings = {"I_MPI_FABRICS": "shm", **({"I_MPI_THREAD_YIELD": "2"} if crowded else {}), **KEEP_HEAP}
    return [python.parent / "mpiexec.hydra", "-n", str(ranks)], settings


def run(library: str, collective: str, ranks: int, seconds: float, python: Path) -> list[dict]:
    launcher, settings = command(library, ranks, python)
    loop = [python, LOOP, library.split(",")[0], collective, str(seconds), *map(str, SIZES)]
    done = subprocess.run(
        list(map(str, launcher + loop)), env={**os.environ, "OMP_NUM_THREADS": "1", **settings},
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    rows = [line[line.index("[{") :] for line in done.stdout.splitlines() if "[{" in line]
    if done.returncode != 0 or not rows:
        sys.exit(f"{library}, {collective}, {ranks} ranks: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    result = json.loads(rows[0])
    if not all(row["right"] for row in result):
        sys.exit(f"{library}, {collective}, {ranks} ranks: wrong values")
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.2, help="a size")
    parser.add_argument("--out", type=Path, default=TREE / "build/mpi4py", help="writes OUT.md, OUT.svg and OUT.json")
    parser.add_argument("--python", type=Path)
    options = parser.parse_args()
    python = options.python or make_environment()
    worlds = [int(ranks) for ranks in options.ranks.split(",")]
    times: dict = {}
    for turn in range(options.runs):
        for ranks in worlds:
            for collective in COLLECTIVES:
                for library in LIBRARIES:
                    if library == "rondo-prepared" and collective != "all_reduce":
                        continue
                    print(f"run {turn + 1} of {options.runs}: {collective}, {ranks} ranks, {library}", file=sys.stderr)
                    for row in run(library, collective, ranks, options.seconds, python):
                        times.setdefault((ranks, collective, library, row["bytes"]), []).append(row["us"])
    medians = {key: statistics.median(values) for key, values in times.items()}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    rows = [[*key, values] for key, values in times.items()]
    options.out.with_suffix(".json").write_text(json.dumps(rows, indent=1) + "\n")
    options.out.with_suffix(".md").write_text(markdown(medians, worlds))
    draw(python, options.out.with_suffix(".json"), options.out.with_suffix(".svg"))
    print(markdown(medians, worlds))


def markdown(medians: dict, worlds: list[int]) -> str:
    lines = []
    for ranks in worlds:
        for collective in COLLECTIVES:
            lines += ["", f"{collective}, {ranks} ranks, microseconds:", ""]
            lines += ["| | " + " | ".join(size_text(size) for size in SIZES) + " |", "|---|" + "---:|" * len(SIZES)]
            for library in LIBRARIES:
                cells = [medians.get((ranks, collective, library, size)) for size in SIZES]
                if None not in cells:
                    lines.append(f"| {library} | " + " | ".join(f"{us:,.3g}" if us < 1000 else f"{us:,.0f}" for us in cells) + " |")
    return "\n".join(lines).lstrip() + "\n"


def size_text(size: int) -> str:
    for unit, scale in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= scale:
            return f"{size // scale} {unit}"
    return f"{size} B"


PLOT = """
import json, statistics, sys
import matplotlib
matplotlib.use("svg")
import matplotlib.pyplot as plt
styles = {"rondo": ("#d55e00", "o"), "rondo-prepared": ("#a03000", "D"), "mpi4py, Open MPI": ("#0072b2", "s"),
          "mpi4py, Intel MPI": ("#009e73", "v")}
lines = {}
for ranks, collective, library, size, us in json.load(open(sys.argv[1])):
    lines.setdefault((ranks, collective), {}).setdefault(library, []).append((size, statistics.median(us)))
worlds = sorted({ranks for ranks, _ in lines})
names = list(dict.fromkeys(collective for _, collective in lines))
figure, axes = plt.subplots(len(worlds), len(names), figsize=(4 * len(names), 3 * len(worlds)), squeeze=False)
for row, ranks in zip(axes, worlds):
    for axis, name in zip(row, names):
        for library, points in lines[ranks, name].items():
            color, marker = styles[library]
            axis.loglog(*zip(*sorted(points)), color=color, marker=marker, markersize=4, label=library)
        axis.set(title=f"{name}, {ranks} ranks", xlabel="bytes", ylabel="microseconds")
        axis.grid(True, which="major", alpha=0.3)
axes[0][0].legend(fontsize=7)
figure.tight_layout()
figure.savefig(sys.argv[2])
"""


def draw(python: Path, rows: Path, picture: Path) -> None:
    subprocess.run([python, "-c", PLOT, rows, picture], check=True)


if __name__ == "__main__":
    main()
