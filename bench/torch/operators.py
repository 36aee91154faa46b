"""torch.ops.rondo.all_reduce_ beside DeepSpeed's inference_all_reduce_, in one job, in turns.

    python bench/torch/operators.py [--ranks 2] [--runs 5]

Prints a table for each type: medians of the runs' times in us of DeepSpeed's operator, of ours on plain tensors and of
ours on registered ones, and our times / DeepSpeed's. It wants `pip install deepspeed==0.19.8`, whose part is compiled at
its first use, and a processor with AVX-512BW. The machine must be quiet.
"""

import argparse
import statistics

import jobs
import torch
import torch.distributed as dist

import rondo.torch

SIZES = (1024, 4096, 16384, 65536, 1 << 20, 16 << 20)  # bytes
SECONDS = 0.2  # of one measurement


def rank_main(runs):
    deepspeed = jobs.deepspeed_all_reduce()
    if deepspeed is None:
        raise SystemExit("DeepSpeed is not installed, or this processor lacks AVX-512BW")
    ours = torch.ops.rondo.all_reduce_.default
    for dtype in (torch.float32, torch.bfloat16):
        times = {}
        for _ in range(runs):
            for size in SIZES:
                plain = torch.zeros(size // dtype.itemsize, dtype=dtype)
                registered = rondo.torch.empty(size // dtype.itemsize, dtype=dtype)
                calls = {"deepspeed": (deepspeed, plain), "plain": (ours, plain), "registered": (ours, registered)}
                for name, (operator, tensor) in calls.items():
                    call = lambda: operator(tensor)  # noqa: B023, E731
                    took = jobs.measure(call, jobs.repeats_for(call, SECONDS)) * 1e6
                    times.setdefault((name, size), []).append(took)
        if dist.get_rank() == 0:
            show(dtype, times, runs)


def show(dtype, times, runs):
    print(f"\n{dtype}, torch {torch.__version__}, {dist.get_world_size()} ranks, medians of {runs} runs\n")
    print("| bytes | DeepSpeed | Rondo | ratio | registered | ratio |\n|---:|---:|---:|---:|---:|---:|")
    for size in SIZES:
        theirs, plain, registered = (
            statistics.median(times[name, size]) for name in ("deepspeed", "plain", "registered")
        )
        print(
            f"| {size} | {theirs:.1f} | {plain:.1f} | {plain / theirs:.2f} | {registered:.1f} | "
            f"{registered / theirs:.2f} |"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    jobs.start(rank_main, options.ranks, options.runs)


if __name__ == "__main__":
    main()
