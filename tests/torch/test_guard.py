"""Tensors on a CUDA device, on memory of the fake driver (tests/support/fake_cuda): the backend's calls in torch's streams,
without a GPU. torch's own CUDA cannot be used for that: its runtime asks the driver for tables that only NVIDIA's has."""

import os
import subprocess
from pathlib import Path

import pytest
import ranks
import torch
import torch.distributed as dist

from rondo.torch import build

DRIVER = Path(os.environ.get("RONDO_TREE", ".")).absolute() / "bazel-bin/tests/support/fake_cuda/libcuda.so.1"
BACKENDS = ("rondo", "cuda:rondo", "cpu:rondo,cuda:rondo")


@pytest.fixture(autouse=True)
def driver(monkeypatch):
    monkeypatch.setenv("RONDO_DEVICE_LIBRARY", str(DRIVER))


@pytest.fixture(scope="module")
def guard(tmp_path_factory):
    library = tmp_path_factory.mktemp("guard") / "guard.so"
    source = str(Path(__file__).parent / "guard.cc")
    words = build._command(build.installed(), library, "-O0")
    subprocess.run([source if word.endswith("csrc/extension.cc") else word for word in words], check=True)
    return str(library)


def run(guard, fn, backend="rondo"):
    ranks.run(2, on_guard, guard, fn, backend=backend)


def on_guard(rank, guard, fn):
    torch.ops.load_library(guard)
    torch.ops.fake_guard.begin()
    fn(rank, torch.ops.fake_guard)
    dist.destroy_process_group()


def full(guard, value, count=1000):
    return guard.to_device(torch.full((count,), float(value)))


def equal(guard, tensor, value):
    assert torch.equal(guard.to_host(tensor), torch.full((tensor.numel(),), float(value)))


@pytest.mark.parametrize("backend", BACKENDS)
def test_calls_in_the_current_stream(guard, backend):
    run(guard, calls, backend)


def calls(rank, guard):
    for count in (1, 1000, 300_000):
        x, all_of_it = full(guard, rank + 1, count), full(guard, -1, 2 * count)
        dist.all_reduce(x)
        equal(guard, x, 3)
        dist.all_gather_into_tensor(all_of_it, x)
        equal(guard, all_of_it, 3)
        dist.reduce_scatter_tensor(x, all_of_it)
        equal(guard, x, 6)
        y = full(guard, rank + 1, count)
        dist.reduce(y, 1)  # broadcast() asks torch's own CUDA for the device's age
        equal(guard, y, 3 if rank == 1 else 1)
        dist.all_to_all_single(all_of_it, full(guard, rank, 2 * count))
        assert torch.equal(guard.to_host(all_of_it), torch.arange(2.0).repeat_interleave(count))


def test_works_are_in_a_stream_of_the_group(guard):
    run(guard, works)


def works(rank, guard):
    x = full(guard, rank + 1)
    before = guard.kept()
    work = dist.all_reduce(x, async_op=True)
    assert guard.kept() > before, "torch has not heard of the other stream"
    work.wait()
    equal(guard, x, 3)
    future = dist.all_reduce(x, async_op=True).get_future()
    future.wait()
    equal(guard, x, 6)
    works = [dist.all_reduce(x, dist.ReduceOp.MAX, async_op=True) for _ in range(20)]
    works[-1].wait()
    equal(guard, x, 6)


def test_messages(guard):
    run(guard, messages)


def messages(rank, guard):
    x, got = full(guard, rank), full(guard, -1)
    if rank == 0:
        dist.send(x, 1)
        dist.recv(got, 1)
    else:
        dist.recv(got, 0)
        dist.send(x, 0)
    equal(guard, got, 1 - rank)


def test_a_failure_is_told_by_the_next_call(guard):
    run(guard, failure)


def failure(rank, guard):
    x = full(guard, rank, 100 if rank == 0 else 200)
    with pytest.raises(dist.DistBackendError, match="100.*200|200.*100"):
        for _ in range(100):
            dist.all_reduce(x)
            guard.to_host(x)
