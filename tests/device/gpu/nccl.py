"""nccl.py RANKS BYTES...: microseconds of an all_reduce of float32 in place by PyTorch's NCCL, as rondo-bench has them.

Ranks are processes, on GPU rank % GPUs; NCCL 2.30 and newer lets several share one.
"""

import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

CALLS, BATCHES = 10, 20


def time_us(tensor):
    """The median over batches of the mean of one's calls."""
    times = []
    for _ in range(BATCHES):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        dist.barrier()
        begin.record()
        for _ in range(CALLS):
            dist.all_reduce(tensor)
        end.record()
        end.synchronize()
        times.append(1e3 * begin.elapsed_time(end) / CALLS)
    return sorted(times)[BATCHES // 2]


def run(rank, world, store, sizes):
    torch.cuda.set_device(rank % torch.cuda.device_count())
    dist.init_process_group("nccl", init_method=f"file://{store}", rank=rank, world_size=world)
    if rank == 0:
        print("# NCCL", ".".join(str(part) for part in torch.cuda.nccl.version()), flush=True)
    for size in sizes:
        found = time_us(torch.zeros(max(1, size // 4), device="cuda"))
        if rank == 0:
            print(f" {size} {found:.2f} nccl", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("NCCL_MULTI_RANK_GPU_ENABLE", "1")
    ranks = int(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(run, (ranks, f"{folder}/store", [int(size) for size in sys.argv[2:]]), nprocs=ranks)
