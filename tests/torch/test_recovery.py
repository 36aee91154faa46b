"""After a rank has died the others go on: torch's shrink_group, and a new start in the same process."""

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import ranks
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

import rondo.torch
from rondo.torch import _group
from test_scripts import free_port

needs_reconfiguring = pytest.mark.skipif(not hasattr(dist, "_reconfigure"), reason="torch is older than 2.15")
needs_shrinking = pytest.mark.skipif(not hasattr(dist, "shrink_group"), reason="torch has no shrink_group")


def of_everybody(group=None):
    tensor = torch.ones(1)
    dist.all_reduce(tensor, group=group)
    return tensor.item()


def survivors(world, body, folder):
    """What body(rank) returns on each rank; those that are killed are left out."""
    _group.extension()
    results, errors = ranks.start(world, ranks._main, (world, f"file://{folder}/store", "rondo", 30, body, ()), 60)
    assert all("exit code -9" in text for text in errors.values()), errors
    return [result for rank, result in enumerate(results) if rank not in errors]


def fail_until(error):
    with pytest.raises(error):
        while True:
            of_everybody()


def shrinks(rank):
    assert dist.group.WORLD._get_backend(torch.device("cpu")).supports_shrinking
    assert of_everybody() == 4
    ranks.wait_for_all(1)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    fail_until(dist.DistBackendError)
    assert rondo.torch.lost_ranks() == [1]
    with pytest.raises(ValueError, match="lost_ranks"):
        dist.shrink_group([2 if rank != 2 else 3], shrink_flags=distributed_c10d.SHRINK_ABORT)
    dist.shrink_group([1], shrink_flags=distributed_c10d.SHRINK_ABORT)
    own = torch.tensor([float(rank)])
    dist.all_reduce(own)
    torch.ops.rondo.all_reduce_(own)
    pair = dist.new_group([0, 2])
    in_pair = of_everybody(pair) if dist.get_rank() != 1 else 0
    return dist.get_rank(), dist.get_world_size(), own.item(), in_pair


@needs_shrinking
def test_shrink_group_after_a_death(tmp_path):
    sum_twice = 3 * (0 + 2 + 3)
    assert survivors(4, shrinks, tmp_path) == [(0, 3, sum_twice, 2), (1, 3, sum_twice, 0), (2, 3, sum_twice, 2)]


def dies_in_flight(rank):
    """Rank 1 dies in its seventh call or later; the call that fails is made again, with the same tensors."""
    rondo.torch.recoverable()
    gradients = [torch.full((1 << 22,), rank + 1.0) for _ in range(3)]
    for _ in range(2):
        for work in [dist.all_reduce(gradient.clone(), async_op=True) for gradient in gradients]:
            work.wait()
    if rank == 1:
        threading.Timer(0.004, os.kill, (os.getpid(), signal.SIGKILL)).start()
    done = 0
    while not done:
        works = [dist.all_reduce(gradient, async_op=True) for gradient in gradients]
        for gradient, work in zip(gradients, works, strict=True):
            try:
                work.wait()
            except dist.DistBackendError:
                done += 1
                assert gradient.eq(rank + 1).all()
            else:
                assert gradient.eq(6).all()
                gradient.fill_(rank + 1)
    dist.shrink_group(rondo.torch.lost_ranks(), shrink_flags=distributed_c10d.SHRINK_ABORT)
    dist.all_reduce(gradients[2])
    return gradients[2].eq(4).all().item()


@needs_shrinking
def test_gradients_in_flight(tmp_path):
    assert survivors(3, dies_in_flight, tmp_path) == [True, True]


@needs_shrinking
def test_the_program_of_the_page(tmp_path):
    """That of docs/recovery.md."""
    page = (Path(__file__).parents[2] / "docs/recovery.md").read_text()
    (program,) = (block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "shrink_group" in block)
    (tmp_path / "step.py").write_text(program)
    path = os.pathsep.join(entry for entry in sys.path if entry)
    ports = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "3", "PYTHONPATH": path}
    command = [sys.executable, str(tmp_path / "step.py")]
    processes = [
        subprocess.Popen(command, env={**os.environ, **ports, "RANK": str(rank)}, stdout=subprocess.PIPE, text=True)
        for rank in range(3)
    ]
    said = [process.communicate(timeout=60)[0] for process in processes]
    assert said == ["[10.0, 25.0] on 2 ranks\n", "", "[10.0, 25.0] on 2 ranks\n"]
    assert [process.returncode for process in processes] == [0, -9, 0]


def leaves_one_out(rank):
    of_everybody()
    if rank == 2:
        return None
    dist.shrink_group([2])
    assert of_everybody() == 2
    return dist.get_world_size()


@needs_shrinking
def test_shrink_group_of_ranks_that_live():
    assert ranks.run(3, leaves_one_out) == [2, 2, None]


def starts_again(rank, folder):
    """Abort and a new start in the same process, thrice."""
    for attempt in range(3):
        ranks.wait_for_all(0)
        if rank == 0:
            dist.group.WORLD._get_backend(torch.device("cpu")).abort()
        fail_until(dist.DistBackendError)
        dist.destroy_process_group()
        dist.init_process_group("rondo", init_method=f"file://{folder}/again{attempt}", rank=rank, world_size=2)
        assert of_everybody() == 2
    return True


def test_abort_and_a_new_start_in_the_same_process(tmp_path):
    assert ranks.run(2, starts_again, tmp_path) == [True, True]


def reconfigures(rank, folder):
    """Three ranks, of which one dies; then each by itself, then both again."""
    dist.destroy_process_group()
    store = dist.FileStore(f"{folder}/handles")
    dist.init_process_group("rondo", store=store, rank=rank, world_size=3, enable_reconfigure=True)
    own, group = dist._get_reconfigure_handle(), dist.group.WORLD._get_backend(torch.device("cpu"))
    store.set(f"{rank}", own)
    handles = [store.get(f"{other}").decode() for other in range(3)]
    with pytest.raises(dist.DistBackendError, match="reconfigure it first"):
        of_everybody()
    with pytest.raises(dist.DistBackendError, match="has been destroyed"):
        rondo.torch.empty(1)
    with pytest.raises(ValueError, match="is none of"):
        dist._reconfigure(1, ["rondo:7"])
    dist._reconfigure(1, handles).wait()
    memory = rondo.torch.empty(1)
    assert of_everybody() == 3
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    fail_until(dist.DistBackendError)
    dist._reconfigure(2, [handles[2], handles[0]]).wait()
    assert dist.get_rank() == (1 if rank == 0 else 0)
    assert dist.get_world_size() == of_everybody() == 2
    dist.barrier()
    with pytest.raises(RuntimeError, match="already used"):
        dist._reconfigure(2, [own])
    dist._reconfigure(3 + rank, [own]).wait()
    assert of_everybody() == 1
    group.abort()
    assert group.get_error() == torch._C._distributed_c10d.ErrorType.SUCCESS
    dist._reconfigure(9, {handles[0], handles[2]}).wait()
    dist.all_reduce(memory.fill_(3))
    return dist.get_rank(), memory.item()


@needs_reconfiguring
def test_reconfigure(tmp_path):
    assert survivors(3, lambda rank: reconfigures(rank, tmp_path), tmp_path) == [(0, 6), (1, 6)]
