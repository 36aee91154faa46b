#!/usr/bin/env python3
"""Rondo from Python beside mpi4py over Open MPI and over Intel MPI, through shared memory, in turns; a table and a plot.

    python3 bench/python/beside_mpi4py.py [--ranks 2,4] [--runs 5] [--seconds 0.2] [--out build/mpi4py]

Wants Debian's openmpi-bin, and a virtual environment (--python) with rondo, numpy, mpi4py, impi-rt and matplotlib;
without --python it makes one in build/venv-mpi4py, after tools/wheel.sh.
"""

import argparse
import itertools
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
PLOT = Path(__file__).with_name("plot.py")
SIZES = (8, 1024, 64 << 10, 1 << 20, 16 << 20, 64 << 20)
COLLECTIVES = ("all_reduce", "all_gather", "broadcast")
LIBRARIES = ("rondo", "rondo-prepared", "mpi4py, Open MPI", "mpi4py, Intel MPI")
WORD_OF_VERSION = dict(zip(LIBRARIES, ("Rondo", "Rondo", "Open MPI", "Intel(R) MPI")))
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


def run(library: str, collective: str, ranks: int, seconds: float, python: Path) -> tuple[str, list[dict]]:
    """The version of what was measured, and a row a size."""
    launcher, settings = command(library, ranks, python)
    loop = [python, LOOP, library.split(",")[0], collective, str(seconds), *map(str, SIZES)]
    done = subprocess.run(
        list(map(str, launcher + loop)), env={**os.environ, "OMP_NUM_THREADS": "1", **settings},
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    what = f"{library}, {collective}, {ranks} ranks"
    found = done.stdout.find('{"version"')
    if done.returncode != 0 or found < 0:
        sys.exit(f"{what}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    result, _ = json.JSONDecoder().raw_decode(done.stdout[found:])
    if not all(row["right"] for row in result["rows"]):
        sys.exit(f"{what}: wrong values")
    if WORD_OF_VERSION[library] not in result["version"]:
        sys.exit(f"{what}: {result['version']} was measured instead")
    return result["version"], result["rows"]


def measure(worlds: list[int], runs: int, seconds: float, python: Path) -> dict:
    """The versions, and rows [ranks, collective, library, bytes, microseconds of each run]. In turns: the machine's
    speed changes from minute to minute."""
    times: dict = {}
    versions = {}
    for turn in range(runs):
        for ranks, collective, library in itertools.product(worlds, COLLECTIVES, LIBRARIES):
            if library == "rondo-prepared" and collective != "all_reduce":
                continue
            print(f"run {turn + 1} of {runs}: {collective}, {ranks} ranks, {library}", file=sys.stderr)
            versions[library], rows = run(library, collective, ranks, seconds, python)
            for row in rows:
                times.setdefault((ranks, collective, library, row["bytes"]), []).append(row["us"])
    return {"versions": versions, "rows": [[*key, values] for key, values in times.items()]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.2, help="a size")
    parser.add_argument("--out", type=Path, default=TREE / "build/mpi4py", help="writes OUT.md, OUT.svg and OUT.json")
    parser.add_argument("--python", type=Path)
    options = parser.parse_args()
    python = options.python or make_environment()
    measured = measure([int(ranks) for ranks in options.ranks.split(",")], options.runs, options.seconds, python)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.with_suffix(".json").write_text(json.dumps(measured, indent=1) + "\n")
    table = markdown(measured)
    options.out.with_suffix(".md").write_text(table)
    print(table)
    subprocess.run([python, PLOT, options.out.with_suffix(".json"), options.out.with_suffix(".svg")], check=True)


def markdown(measured: dict) -> str:
    """Tables of medians in microseconds, and at which sizes Rondo was not the fastest."""
    medians = {tuple(key): statistics.median(values) for *key, values in measured["rows"]}
    lines, slower = [], []
    for ranks, collective in dict.fromkeys((ranks, collective) for ranks, collective, *_ in medians):
        lines += [f"{collective}, {ranks} ranks, microseconds:", ""]
        lines += ["| | " + " | ".join(map(size_text, SIZES)) + " |", "|---|" + "---:|" * len(SIZES)]
        for library in LIBRARIES:
            cells = [medians.get((ranks, collective, library, size)) for size in SIZES]
            if None not in cells:
                lines.append(f"| {library} | " + " | ".join(map(time_text, cells)) + " |")
        lines.append("")
        for size in SIZES:
            ours = {name: medians.get((ranks, collective, name, size)) for name in LIBRARIES[:2]}
            theirs = min(medians[ranks, collective, name, size] for name in LIBRARIES[2:])
            for name, us in ours.items():
                if us is not None and us >= theirs:
                    slower.append(f"{name}, {collective}, {ranks} ranks, {size_text(size)}: {us / theirs:.2f}")
    versions = ", ".join(dict.fromkeys(measured["versions"].values()))
    lines += [f"Versions: {versions}.", "", "Time over the faster mpi4py's where that is 1 or more:", ""]
    return "\n".join(lines + ([f"- {line}" for line in slower] or ["- nowhere"])) + "\n"


def time_text(us: float) -> str:
    return f"{us:,.3g}" if us < 1000 else f"{us:,.0f}"


def size_text(size: int) -> str:
    for unit, scale in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= scale:
            return f"{size // scale} {unit}"
    return f"{size} B"


if __name__ == "__main__":
    main()
