"""An all_reduce of torch by every way to call it, in turns: microseconds, float32 or another type, sums in place.

    python tests/lab/torch/all_reduce.py [--ranks 2] [--runs 5] [--dtype float32] [--sizes 8,4096] [--ways gloo,rondo]
    python tests/lab/torch/all_reduce.py --bench bazel-bin/bench/rondo-bench

Prints a table of the medians of the runs; each run measures every size by all ways, one after the other. Ways: gloo and
rondo by dist.all_reduce; operator, registered: torch.ops.rondo.all_reduce_ on plain and on registered tensors; deepspeed:
DeepSpeed's inference_all_reduce_ (pip install deepspeed==0.19.8, compiled at its first use; a processor with AVX-512BW).
--bench: 8 bytes beside rondo-bench (C++); the exit code is 1 if dist.all_reduce costs more than its bound beyond it. The
machine must be quiet.
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

import rondo.torch

BOUND = 5.0  # microseconds beyond C++; the project's promise
SECONDS = 0.3  # of one measurement


def calls_of(ways):
    """{way: (call, its tensors)}."""
    gloo, operator = dist.new_group(backend="gloo"), torch.ops.rondo.all_reduce_.default
    known = {
        "gloo": (lambda tensor: dist.all_reduce(tensor, group=gloo), torch.zeros),
        "rondo": (dist.all_reduce, torch.zeros),
        "operator": (operator, torch.zeros),
        "registered": (operator, rondo.torch.empty),
        "deepspeed": (jobs.deepspeed_all_reduce() if "deepspeed" in ways else None, torch.zeros),
    }
    if any(known[way][0] is None for way in ways):
        raise SystemExit("DeepSpeed is not installed, or this processor lacks AVX-512BW")
    return {way: known[way] for way in ways}


def rank_main(ways, sizes, dtype, runs, result):
    times = []  # [way, size, microseconds]
    calls = calls_of(ways)
    for _ in range(runs):
        for size in sizes:
            for way, (call, make) in calls.items():
                tensor = make(size // dtype.itemsize, dtype=dtype)
                one = lambda: call(tensor)  # noqa: B023, E731
                times.append([way, size, jobs.measure(one, jobs.repeats_for(one, SECONDS)) * 1e6])
    if dist.get_rank() == 0:
        Path(result).write_text(json.dumps(times))


def in_torch(options, runs):
    with tempfile.NamedTemporaryFile(suffix=".json") as result:
        dtype = getattr(torch, options.dtype)
        jobs.start(rank_main, options.ranks, options.ways, options.sizes, dtype, runs, result.name)
        return json.loads(Path(result.name).read_text())


def in_cpp(bench, ranks):
    with tempfile.NamedTemporaryFile(suffix=".json") as rows:
        command = [bench, "--ranks", str(ranks), "--sizes", "8", "--placement", "in", "--json", rows.name]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=120)
        return json.loads(Path(rows.name).read_text())["rows"][0]["time_us"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--sizes", type=lambda text: [*map(int, text.split(","))], help="bytes",
                        default=[8, 4096, 65536, 1 << 20, 64 << 20])  # fmt: skip
    parser.add_argument("--ways", type=lambda text: text.split(","), default=["gloo", "rondo"])
    parser.add_argument("--bench", help="path of rondo-bench")
    options = parser.parse_args()
    times = []
    if options.bench:
        options.sizes, options.ways = [8], ["rondo", "operator"]
        for _ in range(options.runs):
            times += [["C++", 8, in_cpp(options.bench, options.ranks)], *in_torch(options, 1)]
    else:
        times = in_torch(options, options.runs)
    ways = list(dict.fromkeys(way for way, _, _ in times))
    print(f"torch {torch.__version__}, {options.dtype}, {options.ranks} ranks, medians of {options.runs} runs\n")
    print("| bytes | " + " | ".join(ways) + " |\n|" + "---:|" * (1 + len(ways)))
    medians = {}
    for size in options.sizes:
        medians = {way: statistics.median(us for w, s, us in times if (w, s) == (way, size)) for way in ways}
        print(f"| {size} | " + " | ".join(f"{us:.2f} ({us / medians[ways[0]]:.2f})" for us in medians.values()) + " |")
    sys.exit(options.bench is not None and medians["rondo"] - medians["C++"] > BOUND)


if __name__ == "__main__":
    main()
