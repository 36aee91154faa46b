"""Every primitive on two numbers a rank: rank r starts with [1 + 2r, 2 + 2r]. examples/primitives.cc prints the same.

python -m rondo.run -n 4 primitives.py [NAME ...]
"""

import sys

import numpy as np

import rondo


def start(group):
    return np.array([1, 2]) + 2 * group.rank


def send_recv(group):
    """Rank 0 and 1 play ping-pong; each adds 1."""
    x = np.zeros(1, np.int64)
    if group.rank == 0:
        group.send(x + 1, dest=1)
        group.recv(x, source=1)
    elif group.rank == 1:
        group.recv(x, source=0)
        x += 1
        group.send(x, dest=0)
    return x


def isend_irecv(group):
    """Two messages, received by tag in the other order."""
    x = np.zeros(2, np.int64)
    if group.rank == 0:
        works = [group.isend(np.array([10 * tag]), dest=1, tag=tag) for tag in (1, 2)]
    elif group.rank == 1:
        works = [group.irecv(x[tag - 1 : tag], tag=tag) for tag in (2, 1)]
    else:
        works = []
    for work in works:
        work.wait()
    return x


def broadcast(group):
    return group.broadcast(start(group), root=0)


def scatter(group):
    rows = np.repeat(np.arange(group.size), 2).reshape(-1, 2) if group.rank == 0 else None
    return group.scatter(rows, root=0, out=np.empty(2, np.int64))


def gather(group):
    return group.gather(start(group), root=0)


def reduce(group):
    return group.reduce(start(group), root=group.size - 1)


def all_gather(group):
    return group.all_gather(start(group))


def all_reduce_sum(group):
    return group.all_reduce(start(group))


def all_reduce_product(group):
    return group.all_reduce(start(group), "product")


def all_reduce_max(group):
    return group.all_reduce(start(group), "max")


def all_reduce_min(group):
    return group.all_reduce(start(group), "min")


def reduce_scatter(group):
    return group.reduce_scatter(np.arange(group.size) + group.rank)


def all_to_all(group):
    return group.all_to_all(np.arange(group.size) + 10 * group.rank)


def all_gather_v(group):
    return np.concatenate(group.all_gather_v(np.full(group.rank, group.rank)))


def new_group(group):
    """Ones, added up by ranks 0 and 1 only."""
    ones = np.ones(2, np.int64)
    pair = group.new_group([0, 1])
    if pair is not None:
        pair.all_reduce(ones)
    return ones


def async_op(group):
    x = start(group)
    work = group.all_reduce(x, async_op=True)
    return work.wait()


def barrier(group):
    return group.barrier()


PRIMITIVES = (
    send_recv, isend_irecv, broadcast, scatter, gather, reduce, all_gather, all_reduce_sum, all_reduce_product,
    all_reduce_max, all_reduce_min, reduce_scatter, all_to_all, all_gather_v, new_group, async_op, barrier,
)  # fmt: skip


def main():
    group = rondo.init()
    wanted = sys.argv[1:] or [primitive.__name__ for primitive in PRIMITIVES]
    for primitive in PRIMITIVES:
        if primitive.__name__ in wanted:
            result = primitive(group)
            shown = "-" if result is None else " ".join(map(str, result.ravel()))
            print(f"{primitive.__name__}: rank {group.rank} has {shown}", flush=True)


if __name__ == "__main__":
    main()
