"""torch.distributed's all_reduce by gloo and by rondo, in one job, in turns.

    python bench/torch/all_reduce.py [--ranks 2] [--runs 5]

Prints a table: medians of the runs' times in us, float32 sums in place, and how many times as fast Rondo is. Each run
measures every size with both backends, one after the other. The machine must be quiet.
"""

import argparse
import os
import statistics
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import rondo.torch  # noqa: F401  makes the backend known

SIZES = (8, 4096, 65536, 1 << 20, 64 << 20)  # bytes
SECONDS = 0.3  # of one measurement


def measure(group, tensor, repeats):
    dist.barrier(group)
    begin = time.perf_counter()
    for _ in range(repeats):
        dist.all_reduce(tensor, group=group)
    return (time.perf_counter() - begin) / repeats


def repeats_for(group, tensor):
    """As many as fill SECONDS, the same on all ranks."""
    measure(group, tensor, 3)
    took = torch.tensor([measure(group, tensor, 3)])
    dist.all_reduce(took, dist.ReduceOp.MAX, group)
    return max(3, min(20000, int(SECONDS / took.item())))


def rank_main(rank, ranks, runs, folder):
    torch.set_num_threads(1)
    os.environ["RANK"], os.environ["WORLD_SIZE"] = str(rank), str(ranks)
    dist.init_process_group("rondo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    groups = {"gloo": dist.new_group(backend="gloo"), "rondo": dist.group.WORLD}
    times = {(name, size): [] for name in groups for size in SIZES}
    for _ in range(runs):
        for size in SIZES:
            tensor = torch.zeros(size // 4)
            for name, group in groups.items():
                times[name, size].append(measure(group, tensor, repeats_for(group, tensor)) * 1e6)
    if rank == 0:
        print(f"torch {torch.__version__}, {ranks} ranks, medians of {runs} runs\n\n| bytes | gloo | rondo | ratio |")
        print("|---:|---:|---:|---:|")
        for size in SIZES:
            gloo, rondo = (statistics.median(times[name, size]) for name in groups)
            print(f"| {size} | {gloo:.1f} | {rondo:.1f} | {gloo / rondo:.1f} |")
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(rank_main, (arguments.ranks, arguments.runs, folder), arguments.ranks)


if __name__ == "__main__":
    main()
