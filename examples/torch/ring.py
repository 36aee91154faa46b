"""An all-reduce written with send and receive, as tutorials do it: a ring, in which every tensor goes round whole.

python ring.py [WORLD]

It moves (world - 1) times the tensor each way; dist.all_reduce, which it is compared with, moves less than twice.
Before the next step the send has ended, and the received tensor is added once: what many copies of it get wrong.
"""

import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def all_reduce_by_hand(tensor):
    rank, size = dist.get_rank(), dist.get_world_size()
    left, right = (rank - 1) % size, (rank + 1) % size
    passing = tensor.clone()
    for _ in range(size - 1):
        received = torch.empty_like(passing)
        sending = dist.isend(passing, right)
        dist.recv(received, left)
        sending.wait()
        tensor += received
        passing = received


def run(rank, size):
    tensor = torch.arange(3) + 10 ** (rank + 1)
    expected = tensor.clone()
    all_reduce_by_hand(tensor)
    dist.all_reduce(expected)
    print(f"rank {rank} of {size}: {tensor.tolist()}, by dist.all_reduce {expected.tolist()}", flush=True)


def init_process(rank, size, backend="rondo"):
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29500")
    dist.init_process_group(backend, rank=rank, world_size=size)
    run(rank, size)
    dist.destroy_process_group()


if __name__ == "__main__":
    world = int(sys.argv[1]) if len(sys.argv) > 1 else 4
    mp.spawn(init_process, (world,), world)
