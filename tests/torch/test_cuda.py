"""Tensors on a GPU: streams, memory, messages, training, graphs. Every rank uses the first GPU; without one nothing runs."""

import os
import time

import pytest
import ranks
import torch
import torch.distributed as dist
from made import equal
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP

os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # CUDA must not have begun where ranks are forked
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")

SIZES = (1, 1000, 3 << 20)
SLEEP = 200_000_000  # clock cycles: 100 ms of an H200


def full(value, count=4):
    return torch.full((count,), float(value), device="cuda")


# Every call in every form: test_collectives.py and test_messages.py, with RONDO_TEST_TORCH_DEVICE=cuda.
@pytest.mark.parametrize("backend", ("rondo", "cuda:rondo", "cpu:gloo,cuda:rondo"))
def test_sizes(backend):
    ranks.run(2, sizes, backend=backend)


def sizes(rank):
    for count in SIZES:
        tensor, whole = full(rank + 1, count), full(-1, 2 * count)
        dist.all_reduce(tensor)
        equal(tensor, full(3, count), "all_reduce")
        dist.all_gather_into_tensor(whole, full(rank, count), async_op=True).wait()
        equal(whole, torch.cat([full(0, count), full(1, count)]), "all_gather_into_tensor")
        dist.reduce_scatter_tensor(tensor, whole, async_op=True).get_future().wait()
        equal(tensor, full(2 * rank, count), "reduce_scatter_tensor")
        dist.all_to_all_single(whole, torch.cat([full(rank, count), full(10 + rank, count)]))
        equal(whole, torch.cat([full(10 * rank, count), full(10 * rank + 1, count)]), "all_to_all_single")
    with pytest.raises(ValueError, match="a tensor is on cpu, and the call is on cuda:0"):
        dist.all_gather([full(0), torch.ones(4)], full(1))


@pytest.mark.parametrize("backend", ("rondo", "cuda:rondo", "cpu:gloo,cuda:rondo"))
def test_lazy_views(backend):
    ranks.run(2, lazy_views, backend=backend)


def lazy_views(rank):
    """The backend of the tensors' device gets them as they are, and what is received is kept; so where the CPU has another
    backend, or none."""
    for lazy in (torch.conj, torch._neg_view):
        plain = full(rank + 1).to(torch.complex64) * (1 + 2j)
        tensor = lazy(plain.clone())
        want = tensor.resolve_conj().resolve_neg() / (rank + 1)
        dist.all_reduce(tensor)
        equal(tensor.resolve_conj().resolve_neg(), 3 * want, "all_reduce")
        parts = [lazy(torch.zeros_like(plain)) for _ in range(2)]
        dist.all_gather(parts, tensor)
        for part in parts:
            equal(part.resolve_conj().resolve_neg(), 3 * want, "all_gather")
        dist.broadcast(tensor, 1)
        equal(tensor.resolve_conj().resolve_neg(), 3 * want, "broadcast")


@ranks.on(2)
def test_streams(rank):
    """The host goes on at once, what was put before comes before, what waits comes after; memory is not given to others."""
    for cycles in (1, SLEEP):  # what is used for the first time may wait for the device: kernels are loaded, memory is made
        torch.cuda.synchronize()
        x = full(0, 1 << 20)
        begin = time.perf_counter()
        torch.cuda._sleep(cycles)
        x += rank + 1
        work = dist.all_reduce(x, async_op=True)
        beside = full(1, 1 << 20) * 2
        work.wait()
        y = x * 2
        took = time.perf_counter() - begin
        equal(y, full(6, 1 << 20), "behind a wait")
        assert (beside == 2).all()
    assert took < 0.05 < time.perf_counter() - begin, took
    assert work.is_completed() and work.is_success()

    other = torch.cuda.Stream()
    with torch.cuda.stream(other):
        torch.cuda._sleep(SLEEP)
        z = full(rank + 1, 1 << 20)
        dist.all_reduce(z)
        z += 1
    torch.cuda.current_stream().wait_stream(other)
    equal(z, full(4, 1 << 20), "a call in another stream")

    for _ in range(20):  # the tensor goes while the call is under way
        torch.cuda._sleep(SLEEP // 20)
        output = full(-1, 2 << 20)
        work = dist.all_gather_into_tensor(output, full(rank + 1, 1 << 20), async_op=True)
        junk = full(9, 1 << 20)
        work.wait()
        equal(output[:: 1 << 20], torch.tensor([1.0, 2.0], device="cuda"), "its input was dropped")
        del junk
    works = [dist.all_reduce(full(rank), async_op=True) for _ in range(100)]
    del works
    torch.cuda.synchronize()


@ranks.on(2)
def test_messages(rank):
    other = 1 - rank
    for count in SIZES:
        got = full(-1, count)
        if rank == 0:
            dist.send(full(5, count), 1)
            dist.recv(got, 1)
        else:
            dist.recv(got, 0)
            dist.send(got + 1, 0)
        equal(got, full(6 if rank == 0 else 5, count), "send and recv")
        works = dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, full(rank, count), other), dist.P2POp(dist.irecv, got, other)]
        )
        for work in works:
            work.wait()
        equal(got, full(other, count), "batch_isend_irecv")
    if rank == 0:
        assert dist.recv(got) == 1
    else:
        dist.send(got, 0)


@ranks.on(2, backend="cuda:rondo")
def test_barrier(rank):
    dist.barrier()
    time.sleep(0.3 * rank)
    begin = time.perf_counter()
    dist.barrier(device_ids=[0])
    assert rank == 1 or time.perf_counter() - begin > 0.2


def network(seed=3):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 8)).cuda()


def trained(model, rank=None, steps=20):
    """rank: None: on both ranks' batches."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(steps):
        torch.manual_seed(step)
        inputs, targets = torch.randn(64, 64, device="cuda"), torch.randn(64, 8, device="cuda")
        part = slice(None) if rank is None else slice(32 * rank, 32 * rank + 32)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs[part]), targets[part]).backward()
        optimizer.step()
    return [p.full_tensor() if hasattr(p, "full_tensor") else p.detach() for p in model.parameters()]


@ranks.on(2)
def test_training(rank):
    alone = trained(network())
    for given in (trained(DDP(network(), device_ids=[0], bucket_cap_mb=0.1), rank), trained(fully_shard(network()), rank)):
        for ours, theirs in zip(given, alone, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_graphs():
    said = ranks.run(2, graphs)
    if said[0] is not None:
        pytest.skip(said[0])


def graphs(rank):
    x = full(1, 1 << 16)
    dist.all_reduce(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            x *= rank + 1
            dist.all_reduce(x)
    except dist.DistBackendError as error:
        assert "is staged" in str(error)
        return "calls of these ranks are staged, which no graph can have: start an MPS daemon"
    for round in range(20):
        x.fill_(round)
        graph.replay()
        equal(x, full(3 * round, 1 << 16), f"replay {round}")
    return None
