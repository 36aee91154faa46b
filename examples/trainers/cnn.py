"""A convolutional network on images of 28x28, trained by every rank on its part, with gradients compressed or not.

    python -m rondo.run -n 2 cnn.py --option int8 [--epochs 10] [--batch 64] [--images 60000] [--checkpoint FILE]

or under mpiexec, torchrun or srun; with --processes N it starts N processes itself, by multiprocessing and an id. The
images are Fashion-MNIST (apt-get install dataset-fashion-mnist), or the IDX files of MNIST in --folder. The network: two
convolutions of 5x5 (20 and 50 channels), each with ReLU and a 2x2 max pool, then 500 and 10 units. SGD with learning rate 0.005,
momentum 0.9, weight decay 1e-5. --batch images a rank and step; the last ones, too few for a step, are left out. All
ranks have the same seed and contiguous parts of both sets.

--checkpoint FILE: written after each epoch, and read at the start if it is there: training goes on with the same bits.
Ctrl-C ends the training; the last epoch's checkpoint stays. --json FILE: rank 0 appends a line for each epoch.
"""

import argparse
import json
import multiprocessing
import os
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import rondo
from rondo.dist_opt import OPTIONS

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))
import idx  # noqa: E402


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 20, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(20, 50, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10),
    )  # fmt: skip


def own_part(arguments, part: str, rank: int, world: int):
    images, labels = idx.load(arguments.folder, part)
    count = min(len(images), arguments.images)
    own = rondo.data.partition(count, world, rank)
    chosen = slice(own.start, own.stop)
    return torch.from_numpy(images[chosen].reshape(-1, 1, 28, 28).copy()), torch.from_numpy(labels[chosen].astype(np.int64))


def show_progress(step: int, steps: int, loss: float, rate: float) -> None:
    if sys.stderr.isatty() and (step % 20 == 0 or step == steps):
        bar = "#" * (30 * step // steps)
        sys.stderr.write(f"\r[{bar:<30}] {step}/{steps} loss {loss:.4f} {rate:.0f} images/s" + "\n" * (step == steps))


def train_epoch(model, optimizer, images, labels, batch: int) -> tuple[float, int, int]:
    """This rank's summed loss of all steps, right answers, images seen."""
    model.train()
    loss_sum, right, steps = 0.0, 0, len(images) // batch
    begin = time.perf_counter()
    for step in range(steps):
        chosen = slice(step * batch, (step + 1) * batch)
        output = model(images[chosen])
        loss = cross_entropy(output, labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss_sum += loss.item()
        right += int((output.argmax(dim=1) == labels[chosen]).sum())
        if optimizer.global_rank == 0:
            rate = (step + 1) * batch * optimizer.world_size / (time.perf_counter() - begin)
            show_progress(step + 1, steps, loss_sum / (step + 1), rate)
    return loss_sum, right, steps * batch


@torch.no_grad()
def evaluate(model, images, labels, batch: int) -> tuple[int, int]:
    model.eval()
    seen = len(images) // batch * batch
    right = sum(
        int((model(images[at : at + batch]).argmax(dim=1) == labels[at : at + batch]).sum())
        for at in range(0, seen, batch)
    )
    return right, seen


def save(path: Path, epoch: int, model, sgd, optimizer) -> None:
    state = {"epoch": epoch, "model": model.state_dict(), "sgd": sgd.state_dict(), "exchange": optimizer.state_dict()}
    if optimizer.global_rank == 0:
        new = path.with_name(path.name + ".new")
        torch.save(state, new)
        os.replace(new, path)  # a checkpoint is whole, or the one before


def load(path: Path, model, sgd, optimizer) -> int:
    state = torch.load(path, weights_only=False)
    model.load_state_dict(state["model"])
    sgd.load_state_dict(state["sgd"])
    optimizer.load_state_dict(state["exchange"])
    return state["epoch"]


def main(arguments, nccl_id=None, local_rank=None) -> None:
    torch.manual_seed(arguments.seed)  # the same network on all ranks
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    model = network()
    sgd = torch.optim.SGD(model.parameters(), lr=0.005, momentum=0.9, weight_decay=1e-5)
    optimizer = rondo.DistOpt(
        sgd, nccl_id=nccl_id, local_rank=local_rank, world_size=arguments.processes, option=arguments.option,
        spars=arguments.spars, names=dict(model.named_parameters()),
    )  # fmt: skip
    group = optimizer.group
    train, test = (own_part(arguments, part, group.rank, group.size) for part in ("train", "t10k"))
    first = 0
    if arguments.checkpoint and arguments.checkpoint.exists():
        first = load(arguments.checkpoint, model, sgd, optimizer)
    for epoch in range(first, arguments.epochs):
        begin, sent, waited = time.perf_counter(), optimizer.bytes_sent, optimizer.seconds
        loss, right, seen = train_epoch(model, optimizer, *train, arguments.batch)
        seconds = time.perf_counter() - begin
        test_right, test_seen = evaluate(model, *test, arguments.batch)
        sums = group.all_reduce(np.array([loss, right, seen, test_right, test_seen], np.float64))
        if arguments.checkpoint:
            save(arguments.checkpoint, epoch + 1, model, sgd, optimizer)
        if group.rank > 0:
            continue
        print(f"Starting Epoch {epoch}:")
        print(f"Training loss = {sums[0]:f}, training accuracy = {sums[1] / sums[2]:f}")
        print(f"Evaluation accuracy = {sums[3] / sums[4]:f}", flush=True)
        if arguments.json:
            row = {
                "option": arguments.option, "world": group.size, "seed": arguments.seed, "epoch": epoch,
                "loss": sums[0], "train_accuracy": sums[1] / sums[2], "test_accuracy": sums[3] / sums[4],
                "images_per_second": sums[2] / seconds, "bytes_sent": optimizer.bytes_sent - sent,
                "communication_seconds": optimizer.seconds - waited, "seconds": seconds,
            }  # fmt: skip
            with open(arguments.json, "a") as file:
                file.write(json.dumps(row) + "\n")


def child(local_rank: int, arguments, nccl_id) -> None:
    main(arguments, nccl_id, local_rank)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--option", default="fp32", choices=OPTIONS)
    parser.add_argument("--spars", type=float)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--images", type=int, default=60000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=idx.FOLDER)
    parser.add_argument("--checkpoint", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--processes", type=int)
    arguments = parser.parse_args()
    try:
        if arguments.processes is None:
            main(arguments)
        else:
            nccl_id = rondo.NcclIdHolder()
            context = multiprocessing.get_context("spawn")
            processes = [context.Process(target=child, args=(r, arguments, nccl_id)) for r in range(arguments.processes)]
            for process in processes:
                process.start()
            for process in processes:
                process.join()
            sys.exit(max(abs(process.exitcode) for process in processes))
    except KeyboardInterrupt:
        sys.exit(130)
