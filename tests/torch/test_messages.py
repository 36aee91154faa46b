"""send and recv on tensors: tags, any source, groups of messages, types, what is wrong with a message."""

import made
import ranks
import torch
import torch.distributed as dist
from made import equal


@ranks.on(3)
def test_messages(rank):
    for dtype in made.EVERY:
        tensor = made.made(rank, (4, 3), dtype)
        received = torch.empty_like(tensor)
        right, left = (rank + 1) % 3, (rank - 1) % 3
        sent = dist.isend(tensor, right, tag=5)
        work = dist.irecv(received, left, tag=5)
        assert work.wait() and sent.wait()
        equal(received, made.made(left, (4, 3), dtype), f"ring of {dtype}")
        assert work.is_completed() and work.is_success()
    if rank == 0:  # tags 1 and 2 are received as 2 and 1
        works = [dist.isend(torch.tensor([float(tag)]), 1, tag=tag) for tag in (1, 2)]
        for work in works:
            work.wait()
    elif rank == 1:
        for tag in (2, 1):
            received = torch.zeros(1)
            dist.recv(received, 0, tag=tag)
            assert received.item() == tag
    if rank == 2:  # from any source
        seen = set()
        for _ in range(2):
            received = torch.zeros(1)
            source = dist.recv(received)
            assert received.item() == source
            seen.add(source)
        assert seen == {0, 1}
    else:
        dist.send(torch.tensor([float(rank)]), 2)
    dist.barrier()
    work = dist.isend(torch.tensor([7.0]), rank)  # to itself
    received = torch.zeros(1)
    dist.irecv(received, rank).wait()
    work.wait()
    assert received.item() == 7.0
    part = torch.zeros(6)[::2]  # not dense
    if rank == 0:
        dist.send(torch.arange(6.0)[::2], 1)
    elif rank == 1:
        dist.recv(part, 0)
        equal(part, torch.arange(6.0)[::2], "strided message")


@ranks.on(3)
def test_groups_of_messages(rank):
    right, left = (rank + 1) % 3, (rank - 1) % 3
    for count in (1, 3, 200000):
        received = torch.empty(count)
        works = dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, torch.full((count,), float(rank)), right),
                dist.P2POp(dist.irecv, received, left),
            ]
        )
        for work in works:
            work.wait()
        equal(received, torch.full((count,), float(left)), "batch_isend_irecv")
    # Everyone to everyone, in another order on each rank.
    inbox = torch.full((3,), -1.0)
    ops = []
    for step in range(1, 3):
        ops.append(dist.P2POp(dist.irecv, inbox[(rank - step) % 3].unsqueeze(0), (rank - step) % 3, tag=step))
        ops.append(dist.P2POp(dist.isend, torch.tensor([float(rank)]), (rank + step) % 3, tag=step))
    for work in dist.batch_isend_irecv(ops[::-1] if rank == 1 else ops):
        work.wait()
    inbox[rank] = rank
    equal(inbox, torch.arange(3.0), "everyone to everyone")
