"""What the programs of this folder share: ranks, groups, and repeats that fill a given time."""

import os
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import rondo.torch  # noqa: F401  makes the backend known


def start(rank_main, ranks, *arguments):
    """rank_main(*arguments) on each rank, inside a group of rondo; one thread and one core a rank."""
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(_main, (ranks, folder, rank_main, arguments), ranks)


def _main(rank, ranks, folder, rank_main, arguments):
    place(rank, ranks, rank)
    dist.init_process_group("rondo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    rank_main(*arguments)
    dist.destroy_process_group()


def place(rank, ranks, local_rank):
    """One thread, one core, and what torch and DeepSpeed read from the environment."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[local_rank % len(cores)]})
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(local_rank))


def measure(call, repeats):
    """Seconds of one call."""
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - begin) / repeats


def repeats_for(call, seconds):
    """As many as fill so many seconds, the same on all ranks."""
    measure(call, 3)
    took = torch.tensor([measure(call, 3)])
    dist.all_reduce(took, dist.ReduceOp.MAX)
    return max(3, min(20000, int(seconds / took.item())))


def deepspeed_all_reduce():
    """DeepSpeed's inference_all_reduce_ for the ranks of this host; None where DeepSpeed is not installed, or where the
    processor lacks what its kernels use. Compiles it at its first use."""
    os.environ["DS_ACCELERATOR"] = "cpu"
    os.environ["LOCAL_SIZE"] = str(dist.get_world_size())
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", str(os.getppid()))  # a name for its memory, the same on all ranks
    try:
        from deepspeed.ops.op_builder import ShareMemCommBuilder
    except ImportError:
        return None
    module = None
    if dist.get_rank() == 0:
        module = ShareMemCommBuilder().load(verbose=False)
    dist.barrier()
    module = module or ShareMemCommBuilder().load(verbose=False)
    if module.vector_kernel_level() < 2:
        return None
    module.initialize(dist.get_world_size(), dist.get_rank())
    return torch.ops.deepspeed.inference_all_reduce_.default
