"""What every script of this folder trains: ten steps of a small network on made data, each rank on its half."""

import os
import sys
from pathlib import Path

import torch

STEPS, BATCH = 10, 16


def make():
    torch.manual_seed(1234)
    nn = torch.nn
    return nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))


def batches(rank, world):
    """(inputs, labels) of each step: this rank's part."""
    generator = torch.Generator().manual_seed(5678)
    for _ in range(STEPS):
        inputs = torch.randn(BATCH * world, 20, generator=generator)
        labels = torch.randint(0, 3, (BATCH * world,), generator=generator)
        yield inputs[rank::world], labels[rank::world]


def dataset(world):
    """The same amount of data as one dataset, for frameworks that bring their own sampler."""
    generator = torch.Generator().manual_seed(5678)
    count = STEPS * BATCH * world
    inputs, labels = torch.randn(count, 20, generator=generator), torch.randint(0, 3, (count,), generator=generator)
    return torch.utils.data.TensorDataset(inputs, labels)


def loss(model, inputs, labels):
    return torch.nn.functional.cross_entropy(model(inputs), labels)


def save(state, file):
    """The state_dict of the trained network, written by rank 0."""
    torch.save({name: tensor.detach().clone() for name, tensor in state.items()}, file)


def arguments():
    """The backend, the output file and what else the command line has."""
    return sys.argv[1], Path(sys.argv[2]), sys.argv[3:]


def check_backend(backend):
    """Fails if the framework has chosen another backend."""
    chosen = torch.distributed.get_backend()
    assert chosen == backend, f"rank {os.environ.get('RANK')}: the backend is {chosen}, not {backend}"
