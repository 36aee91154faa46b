"""Messages, handles and groups on one or two numbers a rank. examples/messages.cc prints the same.

python -m rondo.run -n 4 messages.py [NAME ...]
"""

import sys

import numpy as np

import rondo


def ping_pong(group):
    """Ranks 0 and 1; each adds 1."""
    x = np.zeros(1, np.int64)
    if group.rank == 0:
        group.send(x + 1, dest=1)
        group.recv(x, source=1)
    elif group.rank == 1:
        group.recv(x, source=0)
        x += 1
        group.send(x, dest=0)
    return x


def ping_pong_async(group):
    """The same by handles: an array is left alone until its handle is done."""
    x = np.zeros(1, np.int64)
    if group.rank == 0:
        sent = group.isend(np.array([1]), dest=1)
        group.irecv(x, source=1).wait()
        sent.wait()
    elif group.rank == 1:
        group.irecv(x, source=0).wait()
        x += 1
        group.isend(x, dest=0).wait()
    return x


def tags(group):
    """Two messages, received in the other order."""
    x = np.zeros(2, np.int64)
    works = []
    if group.rank == 0:
        works = [group.isend(np.array([10 * tag]), dest=1, tag=tag) for tag in (1, 2)]
    elif group.rank == 1:
        works = [group.irecv(x[tag - 1 : tag], source=0, tag=tag) for tag in (2, 1)]
    for work in works:
        work.wait()
    return x


def any_source(group):
    """Rank 0 receives from any source, and learns which rank sent."""
    if group.rank > 0:
        group.send(np.array([10 * group.rank]), dest=0)
        return None
    x = np.zeros(1, np.int64)
    pairs = []
    for _ in range(group.size - 1):
        message = group.recv(x)
        pairs.append((message.source, x[0]))
    return np.array(sorted(pairs))


def unreceived(group):
    """A message that nobody has received yet holds up no collective."""
    x = np.array([group.rank])
    if group.rank == 0:
        work = group.isend(np.array([5]), dest=1)
        group.all_reduce(x)
        work.wait()
    else:
        group.all_reduce(x)
        if group.rank == 1:
            group.recv(x, source=0)
    return x


def sendrecv(group):
    """Around the ring: to the right, from the left."""
    x = np.empty(1, np.int64)
    group.sendrecv(np.array([group.rank]), (group.rank + 1) % group.size, x, (group.rank - 1) % group.size)
    return x


def async_op(group):
    x = np.array([1, 2]) + 2 * group.rank
    work = group.all_reduce(x, async_op=True)
    work.wait()
    assert work.done()
    return x


def async_failure(group):
    """Of an operation that has failed, wait() raises: here rank 1 brings another count. Only the copy fails."""
    copy = group.split(color=0)
    try:
        copy.all_reduce(np.ones(2 + (group.rank == 1)), async_op=True).wait()
    except rondo.Mismatch:
        return np.array([1])
    return np.array([0])


def new_group(group):
    """Ones, added up by ranks 0 and 1 only."""
    ones = np.ones(2, np.int64)
    pair = group.new_group([0, 1])
    if pair is not None:
        pair.all_reduce(ones)
    return ones


def groups_at_once(group):
    """All ranks add up their numbers while the even and the odd ones do: the sums do not mix."""
    parity = group.split(color=group.rank % 2)
    everybody, few = np.array([group.rank]), np.array([group.rank])
    works = [group.all_reduce(everybody, async_op=True), parity.all_reduce(few, async_op=True)]
    for work in works:
        work.wait()
    return np.concatenate([everybody, few])


EXAMPLES = (
    ping_pong, ping_pong_async, tags, any_source, unreceived, sendrecv, async_op, async_failure, new_group,
    groups_at_once,
)  # fmt: skip


def main():
    group = rondo.init()
    wanted = sys.argv[1:] or [example.__name__ for example in EXAMPLES]
    for example in EXAMPLES:
        if example.__name__ in wanted:
            result = example(group)
            shown = "-" if result is None else " ".join(map(str, result.ravel()))
            print(f"{example.__name__}: rank {group.rank} has {shown}", flush=True)


if __name__ == "__main__":
    main()
