"""The network of cnn.py, trained by ranks that may die, and by others that come in their place.

    rondo-run -n 4 --elastic 2:3 python elastic.py [--epochs 2] [--batch 256] [--images 60000] [--folder FOLDER]

The living ranks divide the images of each step among them. So the weights are the same, up to rounding, for any number of ranks.
--kill STEP:RANK[,STEP:RANK...]: a rank ends itself by SIGKILL in a step. The first of these counts in epoch 0, the second
in epoch 1, after the first change of the members, and so on.
"""

import argparse
import os
import signal
import sys
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector, vector_to_parameters

import rondo
from cnn import MOMENTUM, RATE, network

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))
import idx  # noqa: E402


def load(folder: Path, part: str, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    images, labels = idx.load(folder, part)
    return torch.from_numpy(images[:count]).view(-1, 1, 28, 28), torch.from_numpy(labels[:count].astype(np.int64))


def steps_and_ranks(text: str) -> list[tuple[int, int]]:
    try:
        return [(int(step), int(rank)) for step, rank in (each.split(":") for each in text.split(",") if each)]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} is no list of STEP:RANK") from None


def at_least_one(text: str) -> int:
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return int(text)


def main(arguments) -> None:
    torch.manual_seed(1)
    torch.set_num_threads(1)
    images, labels = load(arguments.folder, "train", arguments.images)
    steps_an_epoch = len(images) // arguments.batch
    if steps_an_epoch == 0:
        raise SystemExit(f"--batch {arguments.batch}: there are only {len(images)} images")
    model = network()
    weights = parameters_to_vector(model.parameters()).detach()
    state = torch.stack([weights, torch.zeros_like(weights)])  # and the velocity

    recovery, epoch, step = rondo.elastic(rondo.init()), None, 0
    while step < arguments.epochs * steps_an_epoch:
        with recovery as group:  # a loss ends the block, and the living shrink
            if epoch != group.epoch:
                group.broadcast(state)  # new ranks are the last ones
                epoch = group.epoch
                vector_to_parameters(state[0], model.parameters())
            step = group.committed + 1
            if epoch < len(arguments.kill) and arguments.kill[epoch] == (step, group.rank):
                os.kill(os.getpid(), signal.SIGKILL)
            order = torch.randperm(len(images), generator=torch.Generator().manual_seed(step // steps_an_epoch))
            first = step % steps_an_epoch * arguments.batch
            own = order[first : first + arguments.batch][group.rank :: group.size]
            loss = cross_entropy(model(images[own]), labels[own], reduction="sum") / arguments.batch
            gradient = torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(model.parameters()))])
            group.all_reduce(gradient)
            group.commit(step)
        if recovery.group.committed != step:
            continue  # some have no sum: the step is made again
        state[1] = MOMENTUM * state[1] + gradient
        state[0] -= RATE * state[1]
        vector_to_parameters(state[0], model.parameters())
        step += 1

    group = recovery.group
    images, labels = load(arguments.folder, "t10k", None)
    with torch.no_grad():
        right = (model(images).argmax(1) == labels).float().mean().item()
    if group.rank == 0:
        print(f"Evaluation accuracy = {100 * right:.2f} %, {group.size} ranks, epoch {group.epoch}", flush=True)
    group.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=at_least_one, default=2)
    parser.add_argument("--batch", type=at_least_one, default=256, help="images of a step, of all ranks together")
    parser.add_argument("--images", type=at_least_one, default=60000)
    parser.add_argument("--folder", type=Path, default=idx.FOLDER)
    parser.add_argument("--kill", type=steps_and_ranks, default=[])
    main(parser.parse_args())
