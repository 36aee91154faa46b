"""torch's profiler shows Rondo's operations by name, as often as they ran, and as long as they took."""

import ranks
import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile

SIZE = 1 << 18


def profiled(rank):
    x = torch.ones(SIZE)
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for _ in range(3):
            dist.all_reduce(x)
        dist.all_reduce(x, async_op=True).wait()
        dist.broadcast(x, 0)
        dist.send(x, 1) if rank == 0 else dist.recv(x, 0)
    return {e.key: (e.count, e.cpu_time_total) for e in profiler.key_averages() if e.key.startswith("rondo:")}


def test_operations_have_names_counts_and_times():
    for rank, events in enumerate(ranks.run(2, profiled)):
        message = "rondo:send" if rank == 0 else "rondo:recv"
        assert {name: count for name, (count, _) in events.items()} == {
            "rondo:all_reduce": 4, "rondo:broadcast": 1, message: 1}
        assert all(time_us > 0 for _, time_us in events.values()), events
