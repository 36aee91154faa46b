"""torch.distributed's all_reduce by gloo and by rondo, in one job, in turns.

    python bench/torch/all_reduce.py [--ranks 2] [--runs 5]

Prints a table: medians of the runs' times in us, float32 sums in place, and how many times as fast Rondo is. Each run
measures every size with both backends, one after the other. The machine must be quiet.
"""

import argparse
import statistics

import jobs
import torch
import torch.distributed as dist

SIZES = (8, 4096, 65536, 1 << 20, 64 << 20)  # bytes
SECONDS = 0.3  # of one measurement


def rank_main(runs):
    groups = {"gloo": dist.new_group(backend="gloo"), "rondo": dist.group.WORLD}
    times = {(name, size): [] for name in groups for size in SIZES}
    for _ in range(runs):
        for size in SIZES:
            tensor = torch.zeros(size // 4)
            for name, group in groups.items():
                call = lambda: dist.all_reduce(tensor, group=group)  # noqa: B023, E731
                times[name, size].append(jobs.measure(call, jobs.repeats_for(call, SECONDS)) * 1e6)
    if dist.get_rank() == 0:
        print(f"torch {torch.__version__}, {dist.get_world_size()} ranks, medians of {runs} runs\n")
        print("| bytes | gloo | rondo | ratio |\n|---:|---:|---:|---:|")
        for size in SIZES:
            gloo, rondo = (statistics.median(times[name, size]) for name in groups)
            print(f"| {size} | {gloo:.1f} | {rondo:.1f} | {gloo / rondo:.1f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    jobs.start(rank_main, options.ranks, options.runs)


if __name__ == "__main__":
    main()
