"""Communication in one step of DDP with the gradients of ResNet-50, by gloo and by rondo, in one job, in turns.

    python tests/lab/torch/ddp_step.py [--ranks 2] [--runs 5]

The parameters have the shapes of ResNet-50's (161 tensors, 25.6 million float32); computing their gradients takes next to
nothing. Communication is the time of forward and backward, less that of a step whose buckets are filled, divided and
emptied as always, but not reduced. Prints the medians of the runs in ms. The machine must be quiet.
"""

import argparse
import statistics
import time

import jobs
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

STEPS = 5  # of one measurement


def resnet50_shapes():
    """Convolutions without bias, each with the weight and bias of its batch norm, and the last layer."""
    shapes = []

    def convolution(out, into, size):
        shapes.extend([(out, into, size, size), (out,), (out,)])

    convolution(64, 3, 7)
    into = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            convolution(width, into, 1)
            convolution(width, width, 3)
            convolution(4 * width, width, 1)
            if block == 0:
                convolution(4 * width, into, 1)
            into = 4 * width
    return [*shapes, (1000, 2048), (1000,)]


class Parameters(torch.nn.Module):
    """Its forward pass is one multiplication a parameter."""

    def __init__(self):
        super().__init__()
        self.all = torch.nn.ParameterList(torch.zeros(shape) for shape in resnet50_shapes())

    def forward(self, x):
        return torch.stack([(parameter.view(-1)[:1] * x).sum() for parameter in self.all]).sum()


def unreduced(_, bucket):
    """The hook of all_reduce without it."""
    future = torch.futures.Future()
    future.set_result(bucket.buffer().div_(dist.get_world_size()))
    return future


def replica(group):
    """group: None: buckets are not reduced."""
    model = DistributedDataParallel(Parameters())
    if group is None:
        model.register_comm_hook(None, unreduced)
    else:
        model.register_comm_hook(group, default_hooks.allreduce_hook)
    return model


def measure(model):
    """Milliseconds of a step."""
    x = torch.ones(1)
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(STEPS):
        model(x).backward()
    return (time.perf_counter() - begin) / STEPS * 1e3


def rank_main(runs):
    groups = {"gloo": dist.new_group(backend="gloo"), "rondo": dist.group.WORLD, "none": None}
    models = {name: replica(group) for name, group in groups.items()}
    count = sum(parameter.numel() for parameter in models["none"].parameters())
    times = {name: [] for name in groups}
    for model in models.values():
        measure(model)  # DDP makes its buckets anew after the first step
    for _ in range(runs):
        for name, model in models.items():
            times[name].append(measure(model))
    if dist.get_rank() == 0:
        gloo, rondo, none = (statistics.median(times[name]) for name in groups)
        print(f"torch {torch.__version__}, {dist.get_world_size()} ranks, {count} parameters, medians of {runs} runs\n")
        print("| ms | gloo | rondo | rondo / gloo |\n|---|---:|---:|---:|")
        print(f"| a step | {gloo:.1f} | {rondo:.1f} | {rondo / gloo:.2f} |")
        print(f"| communication in it | {gloo - none:.1f} | {rondo - none:.1f} | {(rondo - none) / (gloo - none):.2f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    jobs.start(rank_main, options.ranks, options.runs)


if __name__ == "__main__":
    main()
