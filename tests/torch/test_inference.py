"""The communicator for inference engines: every method beside torch's own calls, and in a compiled function."""

import importlib.metadata

import pytest
import ranks
import torch
import torch.distributed as dist
from made import equal, folded, of_all
from torch.distributed import ReduceOp

from rondo.torch.inference import CpuCommunicator


@pytest.mark.parametrize("world", [2, 3])
def test_communicator(world):
    ranks.run(world, communicator, world)


def communicator(rank, world):
    made = CpuCommunicator(dist.group.WORLD, torch.device("cpu"), dist.group.WORLD, "tp:0")
    assert (made.rank, made.rank_in_group, made.world_size, made.ranks) == (rank, rank, world, list(range(world)))
    for dtype in (torch.float32, torch.bfloat16):
        given = of_all(world, (4, 2 * world, 3), dtype)
        tensor = given[rank].clone()
        assert made.all_reduce(tensor) is tensor
        equal(tensor, folded(given, ReduceOp.SUM), "all_reduce")
        for dim in (0, 1, 2, -1, -2, -3):
            equal(made.all_gather(given[rank], dim), torch.cat(given, dim), f"all_gather {dim}")
            for dst in range(world):
                gathered = made.gather(given[rank], dst, dim)
                if rank == dst:
                    equal(gathered, torch.cat(given, dim), f"gather {dim}")
                else:
                    assert gathered is None
        for dim in (1, -2):
            part = folded(given, ReduceOp.SUM).chunk(world, dim)[rank]
            equal(made.reduce_scatter(given[rank], dim), part, f"reduce_scatter {dim}")
        for src in range(world):
            equal(made.broadcast(given[rank].clone(), src), given[src], "broadcast")
    with pytest.raises(ValueError, match="the first dimension, 4, is not divisible by 3 ranks|dim is 3"):
        made.reduce_scatter(given[rank], 0 if world == 3 else 3)

    # To the next rank and from the one before; each rank receives what its neighbor sent.
    for sender in range(world):
        if rank == sender:
            made.send(torch.full((3,), float(rank)))
        if rank == (sender + 1) % world:
            equal(made.recv(torch.Size([3]), torch.float32), torch.full((3,), float(sender)), "recv")
    made.destroy()


@ranks.on(3)
def test_communicator_of_a_part_of_the_ranks(rank):
    group = dist.new_group([2, 1])
    gloo = dist.new_group(backend="gloo")
    with pytest.raises(ValueError, match="has the backend gloo, and this class is for rondo"):
        CpuCommunicator(gloo)
    if rank == 0:
        return
    made = CpuCommunicator(group)
    assert made.ranks == [1, 2] and made.rank == rank and made.rank_in_group == rank - 1
    equal(made.all_gather(torch.tensor([rank])), torch.tensor([1, 2]), "all_gather in a group")

    @torch.compile(fullgraph=True, backend="aot_eager")
    def layer(x):
        return made.all_gather(made.all_reduce(x * 2), -1)

    equal(layer(torch.ones(2, 2)), torch.full((2, 4), 4.0), "compiled")


@pytest.mark.parametrize(("plugins", "taken"), [(None, False), ("", False), ("other", False), ("other,rondo", True)])
def test_vllm_takes_the_platform_only_by_name(plugins, taken, monkeypatch):
    (entry,) = importlib.metadata.entry_points(group="vllm.platform_plugins", name="rondo")
    monkeypatch.delenv("VLLM_PLUGINS", raising=False)
    if plugins is not None:
        monkeypatch.setenv("VLLM_PLUGINS", plugins)
    assert entry.load()() == ("rondo.torch.vllm_platform.Platform" if taken else None)
