"""The list in docs/torch.md of what is supported is what runs: each primitive of torch.distributed on CPU tensors, by
gloo and by rondo."""

from pathlib import Path

import ranks
import torch
import torch.distributed as dist


def send(rank):
    dist.send(torch.ones(2), 1) if rank == 0 else dist.recv(torch.empty(2), 0)


def recv_from_any(rank):
    if rank == 0:
        dist.send(torch.ones(2), 1)
    else:
        assert dist.recv(torch.empty(2)) == 0


def lists(rank, count):
    return [torch.ones(2) for _ in range(count)]


PRIMITIVES = {
    "send, recv": send,
    "recv from any source": recv_from_any,
    "broadcast": lambda rank: dist.broadcast(torch.ones(2), 0),
    "all_reduce": lambda rank: dist.all_reduce(torch.ones(2)),
    "all_reduce, AVG": lambda rank: dist.all_reduce(torch.ones(2), dist.ReduceOp.AVG),
    "all_reduce, bfloat16": lambda rank: dist.all_reduce(torch.ones(2, dtype=torch.bfloat16)),
    "all_reduce, float8": lambda rank: dist.all_reduce(torch.ones(2).to(torch.float8_e4m3fn)),
    "all_reduce, uint16 to uint64": lambda rank: dist.all_reduce(torch.ones(2, dtype=torch.uint32)),
    "all_reduce, sparse": lambda rank: dist.all_reduce(torch.eye(2).to_sparse()),
    "reduce": lambda rank: dist.reduce(torch.ones(2), 0),
    "all_gather": lambda rank: dist.all_gather(lists(rank, 2), torch.ones(2)),
    "all_gather, unequal shapes": lambda rank: dist.all_gather([torch.ones(1), torch.ones(2)], torch.ones(1 + rank)),
    "gather": lambda rank: dist.gather(torch.ones(2), lists(rank, 2) if rank == 0 else None, 0),
    "scatter": lambda rank: dist.scatter(torch.empty(2), lists(rank, 2) if rank == 0 else None, 0),
    "reduce_scatter": lambda rank: dist.reduce_scatter(torch.empty(2), lists(rank, 2)),
    "reduce_scatter, unequal shapes": lambda rank: dist.reduce_scatter(
        torch.empty(1 + rank), [torch.ones(1), torch.ones(2)]
    ),
    "all_to_all": lambda rank: dist.all_to_all(lists(rank, 2), lists(rank, 2)),
    "all_to_all_single, split sizes": lambda rank: dist.all_to_all_single(
        torch.empty(2 + 2 * rank), torch.ones(3), [1 + rank] * 2, [1, 2]
    ),
    "barrier": lambda rank: dist.barrier(),
}


def supported(rank, name):
    try:
        PRIMITIVES[name](rank)
    except (RuntimeError, ValueError, TypeError) as error:
        return type(error).__name__
    return "yes"


def test_the_other_backends_have_no_cpu_tensors():
    assert "cpu" not in dist.Backend.backend_capability["nccl"]
    assert not dist.is_mpi_available(), "this torch has MPI: run the rows with it"


def test_what_is_supported():
    listed = []
    for name in PRIMITIVES:
        gloo, own = (ranks.run(2, supported, name, backend=backend, timeout=20) for backend in ("gloo", "rondo"))
        assert own == ["yes"] * 2, f"{name} fails with rondo"
        listed.append(name if gloo == ["yes"] * 2 else f"*{name}*")
    page = " ".join((Path(__file__).parents[2] / "docs/torch.md").read_text().split())
    assert "; ".join(listed) + "." in page, "docs/torch.md has another list than what runs: " + "; ".join(listed)
