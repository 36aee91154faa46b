#!/usr/bin/env python3
"""Runs MPICH's own tests over Rondo and over MPICH, the same programs, and compares what passes.

    run_mpich.py TESTS BUILD RONDO_RUN MPIEXEC [--only FOLDER[/TEST]]... [--quick] [--seconds N]

TESTS: the folder test/mpi of MPICH's sources; BUILD: where it was configured and built. --quick: MPICH runs only what
fails on Rondo. A test passes if its program ends with what its list asks for: code 0 and "No Errors", or an error. The
last lines are a table and what MPICH passes and Rondo does not; mpich_aside.txt has those that need not, with reasons.
"""

import argparse
import collections
import dataclasses
import fnmatch
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
FOLDERS = "attr coll comm datatype errhan errors group info init io part pt2pt rma session threads topo".split()
MOST_RANKS = 8
MOST_GIB = 4.0  # of memory that a test says it needs
# Folders inside of these that test what Rondo does not have.
ASIDE_FOLDERS = {"spawn", "f77", "f90", "f08", "cxx", "faults", "mpi_t", "basic", "perf"}


@dataclasses.dataclass(frozen=True)
class Test:
    folder: str
    program: str
    ranks: int
    arguments: tuple
    environment: tuple
    verdict: str
    seconds: float

    @property
    def name(self):
        settings = [f"{key}={value}" for key, value in self.environment]
        return " ".join([f"{self.folder}/{self.program}", str(self.ranks), *self.arguments, *settings])


def lists_of(tests, build, folder):
    """The lines of the folder's lists: those that configure made, else those of the sources. Of a list that says the
    same programs over and over, with other types and counts, the first line of each program, with few repetitions."""
    for name in ("testlist", "testlist.dtp"):
        made = build / folder / name
        path = made if made.exists() and made.stat().st_size > 1 else tests / folder / name
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        if name == "testlist.dtp":
            first = {line.split()[0]: line for line in reversed(lines) if line.strip()}
            lines = [re.sub(r"-testsize=\d+", "-testsize=1", line) for line in first.values()]
        yield from lines


def tests_of(tests, build, folder, seconds):
    for line in lists_of(tests, build, folder):
        words = line.split("#")[0].split()
        if not words or words[0].startswith("@"):
            continue
        if (tests / folder / words[0]).is_dir() and len(words) == 1:
            if words[0] not in ASIDE_FOLDERS:
                yield from tests_of(tests, build, f"{folder}/{words[0]}", seconds)
            continue
        options = collections.defaultdict(list)
        program, ranks, *rest = words if len(words) > 1 else [words[0], "1"]
        if rest and "=" not in rest[0]:  # the whole path of a program that another folder has
            rest = rest[1:]
        for key, _, value in (word.partition("=") for word in rest):
            options[key].append(value)
        environment = tuple(tuple(value.partition("=")[::2]) for value in options["env"])
        # Variables of MPICH's choose among its ways; what is expected to fail there is no measure.
        if any(key.startswith("MPIR_CVAR") for key, _ in environment) or options["xfail"]:
            continue
        if float(options["mem"][0] if options["mem"] else 0) > MOST_GIB:
            continue
        verdict = options["resultTest"][0] if options["resultTest"] else "NoErrors"
        limit = max(seconds, min(float(options["timeLimit"][0]), 2 * seconds)) if options["timeLimit"] else seconds
        yield Test(folder, program, min(int(ranks), MOST_RANKS), tuple(options["arg"]), environment, verdict, limit)


def end(process):
    """Ends a launcher that takes too long, then all that it has started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(timeout=5)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass


def run(test, build, launcher):
    """(whether it passes, what is to be said of it)"""
    command = [*launcher, "-n", str(test.ranks), f"./{test.program}", *test.arguments]
    environment = {**os.environ, "MPITEST_RETURN_WITH_CODE": "yes", **dict(test.environment)}
    with subprocess.Popen(command, cwd=build / test.folder, env=environment, stdin=subprocess.DEVNULL, text=True,
                          errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          start_new_session=True) as process:
        try:
            output, _ = process.communicate(timeout=test.seconds)
        except subprocess.TimeoutExpired:
            end(process)
            return False, f"not ended in {test.seconds:.0f} s"
    said = re.search(r"^\s*No [Ee]rrors\s*$", output, re.MULTILINE) is not None
    passes = {"TestStatus": process.returncode == 0, "TestErrFatal": process.returncode != 0}
    if passes.get(test.verdict, process.returncode == 0 and said):
        return True, ""
    lines = [line for line in output.splitlines() if line.strip() and "No Errors" not in line]
    return False, f"code {process.returncode}: " + (" / ".join(line.strip()[:160] for line in lines[:3]) or "no output")


def aside():
    """{pattern of FOLDER/PROGRAM: reason}"""
    lines = (HERE / "mpich_aside.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split(": ", 1) for line in lines if line and not line.startswith("#"))


def main():
    parser = argparse.ArgumentParser()
    for name in ("tests", "build", "rondo_run", "mpiexec"):
        parser.add_argument(name, type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seconds", type=float, default=60)
    given = parser.parse_args()

    counts = collections.defaultdict(collections.Counter)
    missed, asides, unexplained = [], aside(), 0
    for test in dict.fromkeys(t for f in FOLDERS for t in tests_of(given.tests, given.build, f, given.seconds)):
        path = f"{test.folder}/{test.program}"
        if given.only and not any(path == only or path.startswith(f"{only}/") for only in given.only):
            continue
        if not (given.build / path).exists():
            print(f"unbuilt {test.name}", flush=True)
            continue
        count = counts[test.folder.split("/")[0]]
        begun = time.monotonic()
        here, why = run(test, given.build, [str(given.rondo_run), "--mpi", "--no-prefix"])
        took = time.monotonic() - begun
        there = given.quick and here or run(test, given.build, [str(given.mpiexec)])[0]
        count.update({"tests": 1, "here": int(here), "there": int(there), "both": int(here and there)})
        print(f"{'pass' if here else 'fail'} {'pass' if there else 'fail'} {took:.1f} s {test.name} {why}", flush=True)
        if there and not here:
            reason = next((asides[pattern] for pattern in asides if fnmatch.fnmatchcase(path, pattern)), None)
            unexplained += reason is None
            missed.append(f"{test.name}: {reason or why}")

    print("| folder | tests | MPICH | Rondo | both |\n|---|---:|---:|---:|---:|")
    for name, count in [*counts.items(), ("all", sum(counts.values(), collections.Counter()))]:
        print(f"| {name} | " + " | ".join(str(count[column]) for column in ("tests", "there", "here", "both")) + " |")
    for line in missed:
        print(f"MPICH passes, Rondo does not: {line}")
    print(f"of these {unexplained} have no reason in mpich_aside.txt")
    return 1 if unexplained or not counts else 0


if __name__ == "__main__":
    sys.exit(main())
