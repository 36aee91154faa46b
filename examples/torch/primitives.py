"""The primitives of torch.distributed on two numbers a rank.

torchrun --nproc-per-node 4 primitives.py
"""

import torch
import torch.distributed as dist


def main():
    dist.init_process_group("rondo")
    rank, size = dist.get_rank(), dist.get_world_size()
    mine = torch.tensor([1, 2]) + 2 * rank

    def show(what, tensors):
        values = [tensor.tolist() for tensor in tensors] if isinstance(tensors, list) else tensors.tolist()
        print(f"rank {rank}: {what}: {values}", flush=True)

    if rank < 2:
        number = torch.zeros(1)
        if rank == 0:
            number += 1
            dist.send(number, 1)
            dist.recv(number, 1)
        else:
            dist.recv(number, 0)
            number += 1
            dist.send(number, 0)
        show("send and recv", number)

    tensor = mine.clone()
    dist.broadcast(tensor, src=0)
    show("broadcast", tensor)

    tensor = torch.zeros(2, dtype=torch.int64)
    dist.scatter(tensor, [torch.full((2,), r) for r in range(size)] if rank == 0 else None, src=0)
    show("scatter", tensor)

    gathered = [torch.zeros(2, dtype=torch.int64) for _ in range(size)] if rank == 0 else None
    dist.gather(mine, gathered, dst=0)
    if rank == 0:
        show("gather", gathered)

    tensor = mine.clone()
    dist.reduce(tensor, dst=size - 1)
    if rank == size - 1:
        show("reduce", tensor)  # elsewhere its contents are undefined with gloo, and unchanged with rondo

    gathered = [torch.zeros(2, dtype=torch.int64) for _ in range(size)]
    dist.all_gather(gathered, mine)
    show("all_gather", gathered)

    for op in (dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT, dist.ReduceOp.MAX, dist.ReduceOp.MIN):
        tensor = mine.clone()
        dist.all_reduce(tensor, op)
        show(f"all_reduce {op}".replace("RedOpType.", ""), tensor)

    pair = dist.new_group([0, 1])
    tensor = torch.ones(1)
    if rank < 2:
        dist.all_reduce(tensor, group=pair)
    show("all_reduce of ones in the group of ranks 0 and 1", tensor)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
