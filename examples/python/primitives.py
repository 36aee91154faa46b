"""Every collective on two numbers a rank: rank r starts with [1 + 2r, 2 + 2r]. 4 ranks print the lines of
primitives.txt.

python -m rondo.run -n 4 primitives.py [NAME ...]
"""

import sys

import numpy as np

import rondo


def start(group):
    return np.array([1, 2]) + 2 * group.rank


def broadcast(group):
    return group.broadcast(start(group), root=0)


def scatter(group):
    rows = np.repeat(np.arange(group.size), 2).reshape(-1, 2) if group.rank == 0 else None
    return group.scatter(rows, root=0, out=np.empty(2, np.int64))


def gather(group):
    """On rank 0; the others keep what they have."""
    x = start(group)
    rows = group.gather(x, root=0)
    return x if rows is None else rows


def reduce(group):
    """On the last rank; the others keep what they have."""
    x = start(group)
    group.reduce(x, root=group.size - 1)
    return x


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


def all_reduce_many(group):
    """Two arrays in one call."""
    return np.concatenate(group.all_reduce_many([start(group), np.array([group.rank])]))


def reduce_scatter(group):
    return group.reduce_scatter(np.arange(group.size) + group.rank)


def all_to_all(group):
    return group.all_to_all(np.arange(group.size) + 10 * group.rank)


def barrier(group):
    return group.barrier()


# Uneven: rank r has, or gets, r numbers.


def all_gather_v(group):
    return np.concatenate(group.all_gather_v(np.full(group.rank, group.rank)))


def gather_v(group):
    parts = group.gather_v(np.full(group.rank, group.rank), root=0)
    return None if parts is None else np.concatenate(parts)


def scatter_v(group):
    counts = range(group.size)
    numbers = np.arange(sum(counts)) if group.rank == 0 else None
    return group.scatter_v(numbers, counts, root=0, out=np.empty(group.rank, np.int64))


def reduce_scatter_v(group):
    counts = range(group.size)
    return group.reduce_scatter_v(np.arange(sum(counts)) + group.rank, counts)


def all_to_all_v(group):
    """Rank r sends r numbers to each."""
    parts = group.all_to_all_v(np.full(group.rank * group.size, group.rank), [group.rank] * group.size)
    return np.concatenate(parts)


PRIMITIVES = (
    broadcast, scatter, gather, reduce, all_gather, all_reduce_sum, all_reduce_product, all_reduce_max, all_reduce_min,
    all_reduce_many, reduce_scatter, all_to_all, barrier, all_gather_v, gather_v, scatter_v, reduce_scatter_v,
    all_to_all_v,
)  # fmt: skip


def main():
    group = rondo.init()
    wanted = sys.argv[1:] or [primitive.__name__ for primitive in PRIMITIVES]
    for primitive in PRIMITIVES:
        if primitive.__name__ in wanted:
            result = primitive(group)
            shown = "-" if result is None or result.size == 0 else " ".join(map(str, result.ravel()))
            print(f"{primitive.__name__}: rank {group.rank} has {shown}", flush=True)


if __name__ == "__main__":
    main()
