"""What torch adds to an all_reduce of 8 bytes between ranks of this host, beside rondo-bench (C++), in turns.

    python bench/torch/overhead.py --bench bazel-bin/bench/rondo-bench [--ranks 2] [--runs 5]

Prints the medians of the runs in us. The exit code is 1 if dist.all_reduce costs more than its bound beyond C++. The machine
must be quiet.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import jobs
import torch
import torch.distributed as dist

BOUND = 5.0  # microseconds beyond C++; the project's promise
SECONDS = 0.3  # of one measurement


def in_cpp(bench, ranks):
    with tempfile.NamedTemporaryFile(suffix=".json") as rows:
        command = [bench, "--ranks", str(ranks), "--sizes", "8", "--placement", "in", "--json", rows.name]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=120)
        return json.loads(Path(rows.name).read_text())["rows"][0]["time_us"]


def rank_main(result):
    tensor = torch.zeros(2)
    operator = torch.ops.rondo.all_reduce_.default
    times = {}
    for name, call in {"dist.all_reduce": dist.all_reduce, "torch.ops.rondo.all_reduce_": operator}.items():
        one = lambda: call(tensor)  # noqa: B023, E731
        times[name] = jobs.measure(one, jobs.repeats_for(one, SECONDS)) * 1e6
    if dist.get_rank() == 0:
        Path(result).write_text(json.dumps(times))


def in_torch(ranks):
    with tempfile.NamedTemporaryFile(suffix=".json") as result:
        jobs.start(rank_main, ranks, result.name)
        return json.loads(Path(result.name).read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bench", required=True, help="path of rondo-bench")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    times = {}
    for _ in range(options.runs):
        for name, took in {"C++": in_cpp(options.bench, options.ranks), **in_torch(options.ranks)}.items():
            times.setdefault(name, []).append(took)
    medians = {name: statistics.median(runs) for name, runs in times.items()}
    print(f"torch {torch.__version__}, {options.ranks} ranks, 8 bytes, medians of {options.runs} runs\n")
    print("| | us | beyond C++ |\n|---|---:|---:|")
    for name, median in medians.items():
        print(f"| {name} | {median:.2f} | {median - medians['C++']:+.2f} |")
    sys.exit(medians["dist.all_reduce"] - medians["C++"] > BOUND)


if __name__ == "__main__":
    main()
