"""Jobs for tests: functions of this folder's modules, run by every rank of a process group. Their tensors are on the device
RONDO_TEST_TORCH_DEVICE, the CPU unless it is set: where a GPU is, test_collectives.py and test_messages.py run on it, too."""

import datetime
import multiprocessing
import os
import tempfile
import traceback

import pytest
import torch
import torch.distributed as dist

import rondo.torch  # noqa: F401  makes the backend known, also without an entry point
from rondo.torch import _group

_forked = multiprocessing.get_context("fork")


def run(world, fn, *args, backend="rondo", timeout=30, limit=120):
    """What fn(rank, *args) returns on each rank of a job. timeout: the group's, in seconds. A rank that raises, or that
    is not done after `limit` seconds, fails the test with every rank's traceback."""
    _group.extension()  # once, in this process
    with tempfile.TemporaryDirectory() as folder:
        arguments = (world, f"file://{folder}/store", backend, timeout, fn, args)
        results, errors = start(world, _main, arguments, limit)
    assert not errors, "\n".join(f"rank {rank}:\n{text}" for rank, text in errors.items())
    return results


def on(*worlds, **options):
    """Decorates a test that is a job's: each rank calls it with its number, in each of these worlds. options: of run()."""

    def decorate(fn):
        def test(world):
            run(world, fn, **options)

        test.__name__, test.__doc__ = fn.__name__, fn.__doc__
        return pytest.mark.parametrize("world", worlds)(test)

    return decorate


def start(world, main, arguments, limit):
    """main(rank, *arguments) in forked processes: the results by rank (None where there is none), and the errors."""
    processes, pipes = [], []
    for rank in range(world):
        here, there = _forked.Pipe(duplex=False)
        process = _forked.Process(target=_reported, args=(main, rank, arguments, there))
        process.start()
        there.close()
        processes.append(process)
        pipes.append(here)
    results, errors = [None] * world, {}
    deadline = datetime.datetime.now() + datetime.timedelta(seconds=limit)
    for rank, (process, pipe) in enumerate(zip(processes, pipes, strict=True)):
        left = (deadline - datetime.datetime.now()).total_seconds()
        try:
            if not pipe.poll(max(left, 0)):
                errors[rank] = f"not done after {limit} s"
                continue
            kind, value = pipe.recv()
        except EOFError:
            process.join(5)
            errors[rank] = f"ended with exit code {process.exitcode}"
            continue
        if kind == "error":
            errors[rank] = value
        else:
            results[rank] = value
    for process in processes:
        process.join(10)
        if process.is_alive():
            process.kill()
    return results, errors


def wait_for_all(rank):
    """`rank`, which is about to die or abort, waits until all others have left the calls before: they could fail in them."""
    if dist.get_rank() != rank:
        dist.send(torch.ones(1), rank)
        return
    for other in range(dist.get_world_size()):
        if other != rank:
            dist.recv(torch.ones(1), other)


def _reported(main, rank, arguments, pipe):
    try:
        pipe.send(("result", main(rank, *arguments)))
    except BaseException:
        pipe.send(("error", traceback.format_exc()))
    _group._leave()  # os._exit() skips what is registered for the end of a process, pytest's included
    os._exit(0)


def _main(rank, world, url, backend, timeout, fn, args):
    torch.set_num_threads(1)
    torch.set_default_device(os.environ.get("RONDO_TEST_TORCH_DEVICE", "cpu"))
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank))
    limit = datetime.timedelta(seconds=timeout)
    dist.init_process_group(backend, init_method=url, rank=rank, world_size=world, timeout=limit)
    result = fn(rank, *args)
    if dist.is_initialized():
        dist.destroy_process_group()
    return result
