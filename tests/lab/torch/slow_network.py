"""Training over slow networks: plain data-parallel, PostLocalSGD and Rondo's DistOpt, a small model of characters.

    apt-get install debian-reference-en
    sudo python tests/lab/torch/slow_network.py [--text FILE] [--hosts 2,4] [--seeds 3] [--mbit 100] [--round-trip-ms 50]

Each rank is a network namespace, behind a process that delays packets. All ways train on the same batches, of which each
rank takes its rows. Of plain data-parallel training (DDP over gloo) some steps are timed; its losses are those of one
process on whole batches, which is the same but for the order of sums. PostLocalSGD is torch's, over gloo, with as many
steps between averages. Stalls: time in calls that communicate, of the rank for which the others wait; of DDP: what a step
takes longer than without. Bytes: what the interface counts. Loss: of the mean of the ranks' parameters, on text that was
not trained on, divided by that of plain training; mean (least to greatest) of the seeds. The machine must be quiet.
"""

import argparse
import gzip
import json
import math
import os
import statistics
import sys
import time
from collections import Counter
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook as post_local
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.nn.parallel import DistributedDataParallel

import rondo

sys.path.insert(0, str(Path(__file__).parents[1] / "python"))
import network

TEXT = "/usr/share/debian-reference/debian-reference.en.txt.gz"
CHARACTERS, WIDTH, HEADS, LAYERS, CONTEXT = 128, 64, 4, 2, 64
ROWS, STEPS, RATE, WARM_UP = 32, 400, 4e-3, 20  # rows of a rank in a step
PLAIN_STEPS = 10  # of DDP, timed
EVERY = 16
FLOWS = {"RONDO_CONNECTIONS": "4", "RONDO_ALGORITHM": "ring"}  # a ring sends least
OUTER = dict(
    every=EVERY, outer_lr=0.7, outer_momentum=0.6, outer_nesterov=True, outer_wire="int4", outer_fragments=2, outer_delay=8
)  # fmt: skip


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.inputs, self.output = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        heads = (y.unflatten(-1, (HEADS, -1)).transpose(1, 2) for y in self.inputs(self.before(x)).chunk(3, -1))
        mixed = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.output(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.between(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.characters, self.places = nn.Embedding(CHARACTERS, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)), nn.LayerNorm(WIDTH))
        self.head = nn.Linear(WIDTH, CHARACTERS, bias=False)

    def forward(self, x):
        return self.head(self.blocks(self.characters(x) + self.places.weight))


class Training:
    """Of one seed, over batches of all ranks; rank: takes its rows of them alone."""

    def __init__(self, text, seed, ranks, rank=None):
        torch.manual_seed(seed)
        self.model = Model()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=RATE, betas=(0.9, 0.99), fused=True)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda i: min(1, (i + 1) / WARM_UP) * (0.55 + 0.45 * math.cos(math.pi * i / STEPS))
        )
        self.generator = torch.Generator().manual_seed(seed)
        self.train, self.held = text.split((len(text) * 9 // 10, len(text) - len(text) * 9 // 10))
        self.batch, self.own = ROWS * ranks, slice(None) if rank is None else slice(rank, None, ranks)

    def backward(self, model=None):
        self.optimizer.zero_grad()
        loss(model or self.model, rows(self.train, self.batch, self.generator)[self.own]).backward()

    def held_loss(self):
        with torch.no_grad():
            return loss(self.model, rows(self.held, 512, torch.Generator().manual_seed(1))).item()


def rows(text, count, generator):
    first = torch.randint(len(text) - CONTEXT, (count, 1), generator=generator)
    return text[first + torch.arange(CONTEXT + 1)]


def loss(model, batch):
    return nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())


def read(path):
    text = gzip.open(path, "rt").read()
    known = {c: i for i, (c, _) in enumerate(Counter(text).most_common(CHARACTERS - 1))}
    return torch.tensor([known.get(c, CHARACTERS - 1) for c in text])


def alone(text, seed, ranks):
    torch.set_num_threads(1)
    training = Training(text, seed, ranks)
    for _ in range(STEPS):
        training.backward()
        training.optimizer.step()
        training.schedule.step()
    return training.held_loss()


def bytes_sent():
    return int(Path("/sys/class/net/eth0/statistics/tx_bytes").read_text())


def plain(text, rank, ranks):
    """Seconds and bytes of a step of DDP, and the share of it that a step without communication does not take."""
    training = Training(text, 0, ranks, rank)
    model = DistributedDataParallel(training.model)

    def steps():
        dist.barrier()
        sent, begin = bytes_sent(), time.perf_counter()
        for _ in range(PLAIN_STEPS):
            training.backward(model)
            training.optimizer.step()
        return (time.perf_counter() - begin) / PLAIN_STEPS, (bytes_sent() - sent) / PLAIN_STEPS

    steps()
    seconds, sent = steps()
    with model.no_sync():
        computing, _ = steps()
    return {"seconds": seconds, "stalls": 1 - computing / seconds, "bytes": sent}


def averaged(text, seed, rank, ranks, step):
    """step(training) makes a function that ends a step and returns the seconds it has communicated."""
    training = Training(text, seed, ranks, rank)
    end_step = step(training)
    dist.barrier()
    stalled, sent, begin = 0.0, bytes_sent(), time.perf_counter()
    for _ in range(STEPS):
        stalled += end_step()
        training.schedule.step()
    seconds, sent = time.perf_counter() - begin, bytes_sent() - sent
    stalls = torch.tensor(stalled / seconds)
    dist.all_reduce(stalls, dist.ReduceOp.MIN)
    for parameter in training.model.parameters():
        dist.all_reduce(parameter.data)
        parameter.data /= ranks
    return {"seconds": seconds / STEPS, "stalls": stalls.item(), "bytes": sent / STEPS, "loss": training.held_loss()}


def post_local_sgd(training):
    model = DistributedDataParallel(training.model)
    state = post_local.PostLocalSGDState(None, dist.group.WORLD, 0, post_local_gradient_allreduce=False)
    model.register_comm_hook(state, post_local.post_localSGD_hook)
    averager = PeriodicModelAverager(period=EVERY)

    def step():
        training.backward(model)
        training.optimizer.step()
        begin = time.perf_counter()
        averager.average_parameters(model.parameters())
        return time.perf_counter() - begin

    return step


def dist_opt(training, group):
    optimizer = rondo.DistOpt(training.optimizer, group=group, option="localSGD", **OUTER)

    def step():
        training.backward()
        before = optimizer.seconds
        optimizer.step()
        return optimizer.seconds - before

    return step


def rank_main(text, seeds):
    rank, ranks, address = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), os.environ["MASTER_ADDR"]
    dist.init_process_group("gloo")
    results = {"plain": [plain(text, rank, ranks)], "PostLocalSGD": [], "Rondo": []}
    with rondo.init(rank=rank, world_size=ranks, rendezvous=f"tcp://{address}:29712") as group:
        for seed in range(seeds):
            results["PostLocalSGD"].append(averaged(text, seed, rank, ranks, post_local_sgd))
            with group.dup() as own:
                results["Rondo"].append(averaged(text, seed, rank, ranks, lambda t, own=own: dist_opt(t, own)))
    if rank == 0:
        print(json.dumps(results))
    dist.destroy_process_group()


def show(hosts, plain_losses, results):
    (first,) = results["plain"]
    names = {"plain": "data-parallel, DDP over gloo", "PostLocalSGD": "PostLocalSGD over gloo", "Rondo": "Rondo, `DistOpt`"}
    for name, runs in results.items():
        step, stalls, sent = (statistics.mean(run[what] for run in runs) for what in ("seconds", "stalls", "bytes"))
        row = f"| {hosts} | {names[name]} | {step * 1e3:.0f} | {stalls * 100:.1f} | {sent / 1e3:,.1f} (1/{first['bytes'] / sent:.0f}) |"
        if name == "plain":
            ratios = f"1 ({', '.join(f'{loss:.3f}' for loss in plain_losses)})"
        else:
            ratio = [run["loss"] / plain_loss for run, plain_loss in zip(runs, plain_losses, strict=True)]
            ratios = f"{statistics.mean(ratio):.3f} ({min(ratio):.3f} to {max(ratio):.3f})"
        print(row, ratios, "|", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", default=TEXT)
    parser.add_argument("--hosts", default="2,4")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--mbit", type=int, default=100)
    parser.add_argument("--round-trip-ms", type=int, default=50)
    parser.add_argument("--as-rank", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.as_rank:
        return rank_main(read(given.text), given.seeds)
    text, count = read(given.text), sum(p.numel() for p in Model().parameters())
    print(f"torch {torch.__version__}, {count:,} parameters, {STEPS} steps of {ROWS * CONTEXT:,} characters a host, ", end="")
    print(f"{given.mbit} Mbit/s, {given.round_trip_ms} ms\n")
    print("| hosts | | ms a step | stalls, % | kB a step and host | loss / plain's |\n|---:|---|---:|---:|---:|---:|", flush=True)
    command = [sys.executable, __file__, "--as-rank", "--text", given.text, "--seeds", str(given.seeds)]
    for hosts in (int(number) for number in given.hosts.split(",")):
        with torch.multiprocessing.get_context("spawn").Pool(len(os.sched_getaffinity(0))) as pool:
            losses = pool.starmap(alone, [(text, seed, hosts) for seed in range(given.seeds)])
        printed = network.run_ranks(command, hosts, 1, given.mbit, FLOWS, given.round_trip_ms)
        show(hosts, losses, json.loads(printed.splitlines()[-1]))


if __name__ == "__main__":
    sys.exit(main())
