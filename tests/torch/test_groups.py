"""Groups as programs make them besides init_process_group: split, by torch's helpers, by default, by torchrun again."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import ranks
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.distributed.device_mesh import init_device_mesh

import rondo.torch
from rondo.torch.inference import CpuCommunicator

CPU = torch.device("cpu")


def of_everybody(group=None):
    tensor = torch.ones(1)
    dist.all_reduce(tensor, group=group)
    return tensor.item()


@ranks.on(3)
def test_split(rank):
    """A backend's split(), which torch's split_group calls where there is an accelerator."""
    backend = dist.group.WORLD._get_backend(CPU)
    assert backend.supports_splitting
    group = dist.group.WORLD.split_group([0, 2])
    assert (group is None) == (rank == 1)
    if group is not None:
        tensor = torch.full((2,), 1.0 + rank)
        group.allreduce([tensor]).wait()
        assert tensor.tolist() == [4, 4] and (group.rank(), group.size()) == (rank // 2, 2)
    assert of_everybody() == 3
    if hasattr(backend, "options"):  # torch 2.14
        assert backend.options._timeout.total_seconds() == 30


@ranks.on(2)
def test_a_copy_of_torchs_helper_leaves_the_default_group(rank):
    """What frameworks for reinforcement learning copy makes a group with a store of its own and no list of ranks."""
    store = dist.PrefixStore("weights", distributed_c10d._get_default_store())
    helper, limit = distributed_c10d._new_process_group_helper, distributed_c10d.default_pg_timeout
    group, _ = helper(2, rank, [], "rondo", store, group_name="weights", timeout=limit)
    distributed_c10d._world.pg_group_ranks[group] = {0: 0, 1: 1}
    assert of_everybody(group) == 2
    # The default group's operators, and a group of one rank of it.
    tensor = torch.ones(1)
    torch.ops.rondo.all_reduce_(tensor)
    assert tensor.item() == 2
    alone = dist.new_group([1])
    if rank == 1:
        assert of_everybody(alone) == 1
    dist.destroy_process_group(group)
    assert of_everybody() == 2


@ranks.on(2, backend="cpu:rondo")
def test_a_communicator_of_a_group_with_devices(rank):
    assert CpuCommunicator(dist.group.WORLD).all_reduce(torch.ones(2)).tolist() == [2, 2]


@ranks.on(2)
def test_one_backend_serves_cpus_and_gpus(rank):
    on_cpu, on_gpu = (dist.group.WORLD._get_backend(torch.device(kind)) for kind in ("cpu", "cuda"))
    assert on_cpu is on_gpu and on_gpu.name() == "rondo"


@ranks.on(4)
def test_a_default_group_with_a_device(rank):
    """torch asks more of a backend that splits groups then: of ranks that are no members of a new group, and for a mesh."""
    dist.destroy_process_group()
    # A build of torch for CPUs refuses a device before anything else.
    torch.accelerator.current_accelerator = lambda *args, **kwargs: torch.device("cuda")
    torch.accelerator.device_count = torch.cuda.device_count = lambda: 4
    torch.cuda.set_device = lambda *args: None
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(22000 + os.getppid() % 7000))
    dist.init_process_group("rondo", rank=rank, world_size=4, device_id=torch.device("cuda", rank))
    for members in ([0, 1], [2], [1, 3]):
        group = dist.new_group(members)
        assert rank not in members or of_everybody(group) == len(members)
    mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("dp", "tp"))
    assert of_everybody(mesh["dp"].get_group()) == of_everybody(mesh["tp"].get_group()) == 2


def test_make_default(monkeypatch):
    monkeypatch.setitem(dist.Backend.default_device_backend_map, "cpu", "gloo")
    ranks.run(2, made_by_default, backend=None)


def made_by_default(rank):
    assert dist.group.WORLD._get_backend(CPU).name() == "gloo"
    dist.destroy_process_group()
    rondo.torch.make_default()
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(22000 + os.getppid() % 7000))
    mesh = init_device_mesh("cpu", (2,))
    assert mesh.get_group()._get_backend(CPU).name() == "rondo"
    assert of_everybody(mesh.get_group()) == 2


KILLED = """
import os, signal, torch, torch.distributed as dist

dist.init_process_group("rondo")
group = dist.new_group([0, 1])
tensor = torch.ones(2)
dist.all_reduce(tensor, group=group)
restart = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
if restart < 2 and dist.get_rank() == restart:
    os.kill(os.getpid(), signal.SIGKILL)
dist.all_reduce(tensor)
print(f"rank {dist.get_rank()} after {restart} restarts: {tensor.tolist()}", flush=True)
dist.destroy_process_group()
"""


@pytest.mark.parametrize("how", ("standalone", "a fixed port", "c10d"))
def test_torchrun_starts_again(how, tmp_path):
    """A worker is killed twice: each time all ranks start anew and meet, with the store of those that failed."""
    port = str(22000 + os.getpid() % 7000)
    meeting = {
        "standalone": ["--standalone"],
        "a fixed port": ["--master-port", port],
        "c10d": ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", f"job{port}"],
    }[how]
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    torchrun = [sys.executable, str(Path(sys.executable).parent / "torchrun")]
    done = subprocess.run(
        [*torchrun, *meeting, "--nproc-per-node", "2", "--max-restarts", "2", "--monitor-interval", "0.1", str(script)],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for rank in (0, 1):  # lines of ranks may run into each other
        assert f"rank {rank} after 2 restarts: [4.0, 4.0]" in done.stdout
