"""A convolutional network on images of 28x28, trained by every rank on its part, with gradients compressed or not.

    python -m rondo.run -n 2 cnn.py --option int8 [--epochs 10] [--batch 64] [--images 60000] [--checkpoint FILE]

or under mpiexec, torchrun or srun; with --processes N it starts N processes itself, by multiprocessing and an id. The
images are Fashion-MNIST (apt-get install dataset-fashion-mnist), or the IDX files of MNIST in --folder. The network: two
convolutions of 5x5 (20 and 50 channels), each with ReLU and a 2x2 max pool, then 500 and 10 units. SGD with learning
rate 0.005, momentum 0.9, weight decay 1e-5. The last images, too few for a step, are left out. All ranks have the same
seed and contiguous parts of both sets.

--option localSGD --every N: the parameters are averaged every N steps.
--batch: images a rank and step; --global-batch: of all ranks together. --numpy: gradients are exchanged and applied as
NumPy arrays.
--checkpoint FILE: written after each epoch, and when Ctrl-C or SIGTERM ends the training after the step under way; read
at the start if it is there. Training goes on with the same bits; other numbers of ranks go on near the same image.
--json FILE: rank 0 appends a line for each epoch.
"""

import argparse
import json
import multiprocessing
import os
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import rondo
from rondo.dist_opt import OPTIONS, NumpyUpdate

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))
import idx  # noqa: E402

RATE, MOMENTUM, DECAY = 0.005, 0.9, 1e-5
PARTITION_BYTES = 2**19  # partialUpdate: three partitions; the network has 1.7 MB
OWN_PARAMETERS = ("partialUpdate", "localSGD")  # options after whose steps the ranks' parameters differ


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 20, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(20, 50, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10),
    )  # fmt: skip


class NumpySgd:
    """torch.optim.SGD's rule on NumPy arrays."""

    def __init__(self, parameters: dict[str, np.ndarray]):
        self.velocity = {name: np.zeros_like(parameter) for name, parameter in parameters.items()}

    def update(self, name: str, parameter: np.ndarray, gradient: np.ndarray) -> None:
        velocity = self.velocity[name]
        velocity *= np.float32(MOMENTUM)
        velocity += gradient + np.float32(DECAY) * parameter
        parameter -= np.float32(RATE) * velocity

    def state_dict(self) -> dict:
        return {name: torch.from_numpy(velocity) for name, velocity in self.velocity.items()}

    def load_state_dict(self, state: dict) -> None:
        for name, velocity in state.items():
            self.velocity[name][...] = velocity.numpy()


@dataclass
class Trainer:
    """One rank's network, optimizer and images, and how far it has come."""

    arguments: argparse.Namespace
    model: nn.Module
    rule: object  # torch's SGD or a NumpySgd
    optimizer: rondo.DistOpt
    train: tuple[torch.Tensor, torch.Tensor]
    test: tuple[torch.Tensor, torch.Tensor]
    batch: int
    epoch: int = 0
    step: int = 0  # of the epoch
    sums: np.ndarray = field(default_factory=lambda: np.zeros(3))  # of the epoch: losses, right answers, images

    @property
    def steps(self) -> int:
        return len(self.train[0]) // self.batch

    def train_step(self) -> None:
        chosen = slice(self.step * self.batch, (self.step + 1) * self.batch)
        images, labels = self.train[0][chosen], self.train[1][chosen]
        output = self.model(images)
        loss = cross_entropy(output, labels)
        self.model.zero_grad()
        loss.backward()
        if self.arguments.numpy:
            self.optimizer.step({name: p.grad.numpy() for name, p in self.model.named_parameters()})
        else:
            self.optimizer.step()
        right = int((output.argmax(dim=1) == labels).sum())
        self.sums += (loss.item(), right, self.batch)
        self.step += 1

    @torch.no_grad()
    def evaluate(self) -> tuple[int, int]:
        """Right answers, images seen."""
        self.model.eval()
        (images, labels), batch = self.test, self.batch
        seen = len(images) // batch * batch
        right = sum(
            int((self.model(images[at : at + batch]).argmax(dim=1) == labels[at : at + batch]).sum())
            for at in range(0, seen, batch)
        )
        self.model.train()
        return right, seen

    def save(self, path: Path) -> None:
        """Collective. Ranks with equal parameters save those of rank 0."""
        group = self.optimizer.group
        own = {"model": self.model.state_dict(), "rule": self.rule.state_dict()}
        everyone = group.all_gather_object(own) if self.arguments.option in OWN_PARAMETERS else [own]
        state = {
            "epoch": self.epoch, "step": self.step, "batch": self.batch, "world": group.size, "ranks": everyone,
            "sums": group.all_gather(self.sums), "exchange": self.optimizer.state_dict(),
        }  # fmt: skip
        if group.rank == 0:
            new = path.with_name(path.name + ".new")
            torch.save(state, new)
            os.replace(new, path)  # a checkpoint is whole, or the one before
        group.barrier()  # a launcher ends the other ranks when one has ended

    def load(self, path: Path) -> None:
        group = self.optimizer.group
        state = torch.load(path, weights_only=False)
        same = state["world"] == group.size and state["batch"] == self.batch
        saved = state["ranks"]
        if len(saved) == 1:
            own = saved[0]
        else:
            own = saved[group.rank] if same and self.arguments.option in OWN_PARAMETERS else mean_of(saved)
        self.model.load_state_dict(own["model"])
        self.optimizer.load_state_dict(state["exchange"])  # with the rule's state of rank 0
        self.rule.load_state_dict(own["rule"])
        self.epoch = state["epoch"]
        if same:
            self.step, self.sums = state["step"], state["sums"][group.rank].copy()
            return
        seen = state["step"] * state["batch"] * state["world"]
        self.step = min(seen // (self.batch * group.size), self.steps)
        self.sums = state["sums"].sum(axis=0) if group.rank == 0 else np.zeros(3)


def mean_of(states):
    """Of nested dicts and lists: the mean of tensors; else the first one."""
    first = states[0]
    if isinstance(first, torch.Tensor) and first.is_floating_point():
        return torch.stack(states).mean(dim=0)
    if isinstance(first, dict):
        return {key: mean_of([state[key] for state in states]) for key in first}
    return [mean_of(list(items)) for items in zip(*states)] if isinstance(first, list) else first


class Stop:
    """Whether Ctrl-C or SIGTERM has come to any rank. A second one ends the process at once."""

    def __init__(self):
        self.here = 0
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._arrived)

    def _arrived(self, number, frame) -> None:
        self.here = 1
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

    def agreed(self, group) -> bool:
        return bool(group.all_reduce(np.array([self.here], np.int32), "max")[0])


def show_progress(step: int, steps: int, loss: float, rate: float) -> None:
    if sys.stderr.isatty() and (step % 20 == 0 or step == steps):
        bar = "#" * (30 * step // steps)
        sys.stderr.write(f"\r[{bar:<30}] {step}/{steps} loss {loss:.4f} {rate:.0f} images/s" + "\n" * (step == steps))


def make_trainer(arguments, nccl_id, local_rank) -> Trainer:
    torch.manual_seed(arguments.seed)  # the same network on all ranks
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    model = network()
    parameters = dict(model.named_parameters())
    if arguments.numpy:
        arrays = {name: parameter.detach().numpy() for name, parameter in parameters.items()}
        rule = NumpySgd(arrays)
        updated = NumpyUpdate(arrays, rule.update)
    else:
        updated = rule = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM, weight_decay=DECAY)
    optimizer = rondo.DistOpt(
        updated, nccl_id=nccl_id, local_rank=local_rank, world_size=arguments.processes, option=arguments.option,
        spars=arguments.spars, names=parameters, partition_bytes=PARTITION_BYTES, every=arguments.every,
    )  # fmt: skip
    group = optimizer.group
    batch = arguments.batch
    if arguments.global_batch is not None:
        batch = arguments.global_batch // group.size
        if batch * group.size != arguments.global_batch or batch < 1:
            raise SystemExit(f"--global-batch {arguments.global_batch} has no equal parts for {group.size} ranks")
    parts = []
    for part in ("train", "t10k"):
        images, labels = idx.load(arguments.folder, part)
        own = rondo.data.partition(min(len(images), arguments.images), group.size, group.rank)
        chosen = slice(own.start, own.stop)
        pixels = torch.from_numpy(images[chosen].reshape(-1, 1, 28, 28).copy())
        parts.append((pixels, torch.from_numpy(labels[chosen].astype(np.int64))))
    return Trainer(arguments, model, rule, optimizer, parts[0], parts[1], batch)


def train_epoch(trainer: Trainer, stop: Stop) -> bool:
    """False: it was stopped."""
    group, begin, first = trainer.optimizer.group, time.perf_counter(), trainer.step
    while trainer.step < trainer.steps:
        if stop.agreed(group):
            return False
        trainer.train_step()
        if group.rank == 0:
            rate = (trainer.step - first) * trainer.batch * group.size / (time.perf_counter() - begin)
            show_progress(trainer.step, trainer.steps, trainer.sums[0] / trainer.step, rate)
    return True


def report(trainer: Trainer, row: dict) -> None:
    print(f"Starting Epoch {row['epoch']}:")
    print(f"Training loss = {row['loss']:f}, training accuracy = {row['train_accuracy']:f}")
    print(f"Evaluation accuracy = {row['test_accuracy']:f}", flush=True)
    if trainer.arguments.json:
        with open(trainer.arguments.json, "a") as file:
            file.write(json.dumps(row) + "\n")


def main(arguments, nccl_id=None, local_rank=None) -> int:
    """The exit status: 130 where a signal has ended the training."""
    trainer = make_trainer(arguments, nccl_id, local_rank)
    optimizer, stop = trainer.optimizer, Stop()
    group = optimizer.group
    if arguments.checkpoint and arguments.checkpoint.exists():
        trainer.load(arguments.checkpoint)
    while trainer.epoch < arguments.epochs:
        begin, sent, waited, seen = time.perf_counter(), optimizer.bytes_sent, optimizer.seconds, trainer.step
        whole = train_epoch(trainer, stop)
        seconds, steps = time.perf_counter() - begin, trainer.step - seen
        if not whole:
            if arguments.checkpoint:
                trainer.save(arguments.checkpoint)
            return 130
        sums = group.all_reduce(np.array([*trainer.sums, *trainer.evaluate()], np.float64))
        row = {
            "option": arguments.option, "world": group.size, "batch": trainer.batch, "seed": arguments.seed,
            "epoch": trainer.epoch, "loss": sums[0], "train_accuracy": sums[1] / sums[2],
            "test_accuracy": sums[3] / sums[4], "images_per_second": steps * trainer.batch * group.size / seconds,
            "bytes_sent": optimizer.bytes_sent - sent, "communication_seconds": optimizer.seconds - waited,
            "seconds": seconds, "steps": steps,
        }  # fmt: skip
        trainer.epoch, trainer.step, trainer.sums = trainer.epoch + 1, 0, np.zeros(3)
        if arguments.checkpoint:
            trainer.save(arguments.checkpoint)
        if group.rank == 0:
            report(trainer, row)
    return 0


def child(local_rank: int, arguments, nccl_id) -> None:
    sys.exit(main(arguments, nccl_id, local_rank))


def start_processes(arguments) -> int:
    nccl_id = rondo.NcclIdHolder()
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=child, args=(r, arguments, nccl_id)) for r in range(arguments.processes)]
    for process in processes:
        process.start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the children have it, too, and end by themselves
    for process in processes:
        process.join()
    return max(abs(process.exitcode) for process in processes)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--option", default="fp32", choices=OPTIONS)
    parser.add_argument("--spars", type=float)
    parser.add_argument("--every", type=int)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--global-batch", type=int)
    parser.add_argument("--images", type=int, default=60000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--numpy", action="store_true")
    parser.add_argument("--folder", type=Path, default=idx.FOLDER)
    parser.add_argument("--checkpoint", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--processes", type=int)
    arguments = parser.parse_args()
    sys.exit(main(arguments) if arguments.processes is None else start_processes(arguments))
