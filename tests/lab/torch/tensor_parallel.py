"""Communication of a token in tensor-parallel inference: by gloo, by DeepSpeed and by rondo, in one job, in turns.

    python tests/lab/torch/tensor_parallel.py [--ranks 2] [--runs 5]
    sudo python tests/lab/torch/tensor_parallel.py --hosts 2 [--ranks 2] [--mbit 1000]  # ranks of each of 2 namespaces

Four blocks of examples/torch/tensor_parallel.py (Llama-shaped, 1024 wide, bfloat16), cut over the ranks, generate one
token after the other; each block has two all_reduces of 2 KiB. Communication is the time inside them, waiting for the
slower rank included. Prints medians of the runs' times a token in us. DeepSpeed's operator (pip install
deepspeed==0.19.8, a processor with AVX-512BW) works inside one host. The machine must be quiet.
"""

import argparse
import datetime
import os
import statistics
import sys
import time
from pathlib import Path

import jobs
import torch
import torch.distributed as dist

import rondo.torch

sys.path[:0] = [str(Path(__file__).parents[3] / "examples/torch"), str(Path(__file__).parents[1] / "python")]
import network
import tensor_parallel as example

LAYERS, TOKENS = 4, 32


class ByRows(torch.nn.Module):
    """This rank's part of a layer that is cut by rows: `reduce` adds up the ranks' products, in place."""

    def __init__(self, weight, clock):
        super().__init__()
        self.weight, self.clock, self.reduce = weight, clock, None

    def forward(self, x):
        y = torch.nn.functional.linear(x, self.weight)
        begin = time.perf_counter()
        self.reduce(y)
        self.clock.spent += time.perf_counter() - begin
        return y


class Clock:
    spent = 0.0


def cut_by_hand(block, clock):
    """As torch cuts it, without DTensor."""
    rank, world = dist.get_rank(), dist.get_world_size()
    for name in example.BY_COLUMNS:
        layer = block.get_submodule(name)
        layer.weight = torch.nn.Parameter(layer.weight.chunk(world)[rank].clone(), requires_grad=False)
    for name in example.BY_ROWS:
        weight = block.get_submodule(name).weight.chunk(world, dim=1)[rank].contiguous()
        block.set_submodule(name, ByRows(weight, clock))
    return block


def generate(blocks, clock, reduce):
    """Microseconds of communication and of everything a token, and what the last token became."""
    for block in blocks:
        block.attention.keys.clear()
        block.attention.values.clear()
        block.attention.o.reduce = block.mlp.down.reduce = reduce
    tokens = torch.randn(TOKENS, 1, example.HIDDEN, generator=torch.Generator().manual_seed(1)).to(torch.bfloat16)
    dist.barrier()
    clock.spent, begin = 0.0, time.perf_counter()
    for x in tokens:
        for block in blocks:
            x = block(x)
    return clock.spent / TOKENS * 1e6, (time.perf_counter() - begin) / TOKENS * 1e6, x


def reducers(hosts):
    """Name: all_reduce in place, and the scope in which it is called."""
    gloo = dist.new_group(backend="gloo")
    operator = torch.ops.rondo.all_reduce_.default
    ways = {"gloo": lambda y: dist.all_reduce(y, group=gloo)}
    deepspeed = jobs.deepspeed_all_reduce() if hosts == 1 else None
    if deepspeed is not None:
        ways["DeepSpeed"] = deepspeed
    ways["rondo, dist.all_reduce"] = dist.all_reduce
    ways["rondo, torch.ops.rondo"] = operator
    return ways


@torch.no_grad()
def rank_main(runs, hosts):
    clock = Clock()
    blocks = [cut_by_hand(example.made_block(), clock) for _ in range(LAYERS)]
    ways = reducers(hosts)
    ways["rondo, torch.ops.rondo, registered"] = ways["rondo, torch.ops.rondo"]
    spent, results = {name: [] for name in ways}, {}
    for run in range(runs + 1):  # the first warms up
        for name, reduce in ways.items():
            if name.endswith("registered"):
                with rondo.torch.registered():
                    taken, whole, results[name] = generate(blocks, clock, reduce)
            else:
                taken, whole, results[name] = generate(blocks, clock, reduce)
            if run > 0:
                spent[name].append((taken, whole))
    for name, result in results.items():
        difference = (result - results["gloo"]).abs().max() / results["gloo"].abs().max()
        assert difference < 0.05, f"{name} generates something else: {difference:.3f} of the largest value"
    if dist.get_rank() == 0:
        show(spent, hosts, runs)


def show(spent, hosts, runs):
    ranks = dist.get_world_size()
    print(f"torch {torch.__version__}, {hosts} hosts, {ranks} ranks, {LAYERS} blocks, medians of {runs} runs\n")
    print("| us a token | communication | / gloo's | everything |\n|---|---:|---:|---:|")
    gloo = statistics.median(taken for taken, _ in spent["gloo"])
    for name, times in spent.items():
        taken, whole = (statistics.median(column) for column in zip(*times, strict=True))
        print(f"| {name} | {taken:.0f} | {taken / gloo:.3f} | {whole:.0f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2, help="of each host")
    parser.add_argument("--hosts", type=int, default=1)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--mbit", type=int, help="what a host sends and receives at most")
    parser.add_argument("--as-rank", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.as_rank:
        rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        jobs.place(rank, ranks, int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("rondo", timeout=datetime.timedelta(seconds=60))
        rank_main(options.runs, options.hosts)
        dist.destroy_process_group()
    elif options.hosts > 1:
        command = [sys.executable, __file__, "--as-rank", "--hosts", str(options.hosts), "--runs", str(options.runs)]
        print(network.run_ranks(command, options.hosts, options.ranks, options.mbit), end="")
    else:
        jobs.start(rank_main, options.ranks, options.runs, 1)


if __name__ == "__main__":
    main()
