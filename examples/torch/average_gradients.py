"""Synchronous SGD without DDP: every rank trains on its part of the data, and gradients are averaged after each step.

python average_gradients.py [WORLD]

The data are made: 1280 images of 28x28, each class a pattern of its own and noise. Batches have 128 images, 128 / world
on each rank. Every rank prints its loss, so losses differ; the last line says that the parameters do not.
"""

import os
import random
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

IMAGES, BATCH, EPOCHS = 1280, 128, 3


class Partition:
    """The part of a shuffled list of indices that one rank has; the same shuffle on all ranks."""

    def __init__(self, count, rank, size, seed=1234):
        indices = list(range(count))
        random.Random(seed).shuffle(indices)
        self.indices = indices[rank * (count // size) : (rank + 1) * (count // size)]


def made_images():
    generator = torch.Generator().manual_seed(5)
    patterns = torch.randn(10, 784, generator=generator)
    labels = torch.randint(0, 10, (IMAGES,), generator=generator)
    return patterns[labels] + 2 * torch.randn(IMAGES, 784, generator=generator), labels


def average_gradients(model):
    size = float(dist.get_world_size())
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= size


def run(rank, size):
    torch.manual_seed(1234)  # the same start on all ranks
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
    images, labels = made_images()
    own = torch.tensor(Partition(IMAGES, rank, size).indices)
    for epoch in range(EPOCHS):
        losses = []
        for indices in own.split(BATCH // size):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images[indices]), labels[indices])
            loss.backward()
            average_gradients(model)
            optimizer.step()
            losses.append(loss.item())
        print(f"Rank {rank}, epoch {epoch}: {sum(losses) / len(losses):.4f}", flush=True)
    flat = torch.cat([parameter.detach().view(-1) for parameter in model.parameters()])
    others = [torch.empty_like(flat) for _ in range(size)]
    dist.all_gather(others, flat)
    print(f"Rank {rank}: parameters equal on all ranks: {all(torch.equal(flat, other) for other in others)}", flush=True)


def init_process(rank, size, backend="rondo"):
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29500")
    dist.init_process_group(backend, rank=rank, world_size=size)
    run(rank, size)
    dist.destroy_process_group()


if __name__ == "__main__":
    world = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    mp.spawn(init_process, (world,), world)
