"""MLX's calls through Open MPI's ABI: exact results of all_sum, all_gather, send and recv. A rank of rondo-run --mpi."""

import mlx.core as mx

mx.set_default_device(mx.cpu)
group = mx.distributed.init(strict=True, backend="mpi")
rank, size = group.rank(), group.size()
ramp = mx.arange(1000, dtype=mx.float32)
assert mx.array_equal(mx.distributed.all_sum(ramp * (rank + 1), group=group), ramp * (size * (size + 1) // 2))
assert mx.distributed.all_sum(mx.ones(4, dtype=mx.bfloat16), group=group).tolist() == [float(size)] * 4
assert mx.distributed.all_gather(mx.array([rank]), group=group).tolist() == list(range(size))
if rank == 0:
    mx.eval(mx.distributed.send(ramp, 1, group=group))
elif rank == 1:
    assert mx.array_equal(mx.distributed.recv_like(ramp, 0, group=group), ramp)
print(f"rank {rank} of {size}: MLX's calls are right")
