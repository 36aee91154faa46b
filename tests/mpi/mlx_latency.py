"""Times of MLX's all_sum between 2 processes, as JSON, in microseconds.

    mlx_latency.py mpi|ring    ring: MLX's own, over TCP; MLX_HOSTFILE names its addresses"""

import json
import os
import sys
import time

os.environ.setdefault("MLX_RANK", os.environ.get("RANK", "0"))
import mlx.core as mx  # noqa: E402  # reads it

mx.set_default_device(mx.cpu)
group = mx.distributed.init(strict=True, backend=sys.argv[1])
times = {}
for size in (8, 1 << 16):
    array, best = mx.ones(size // 4), float("inf")
    for _ in range(20):
        began = time.perf_counter()
        for _ in range(50):
            result = mx.distributed.all_sum(array, group=group)
            mx.eval(result)
        best = min(best, (time.perf_counter() - began) / 50)
    assert mx.array_equal(result, mx.full(size // 4, float(group.size())))
    times[f"all_sum, {size:,} B"] = best * 1e6
if group.rank() == 0:
    print(json.dumps(times))
