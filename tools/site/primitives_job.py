"""Every primitive, run on 4 ranks: rank r starts with [1+2r, 2+2r]. Rank 0 writes what all held before and after."""

import json
import sys

import numpy as np

import rondo

group = rondo.init()
rank, world = group.rank, group.size
seen = []


def own():
    return np.array([1 + 2 * rank, 2 + 2 * rank], np.int64)


def show(name, words, before, after):
    lists = group.all_gather_object([np.asarray(before).ravel().tolist(), np.asarray(after).ravel().tolist()])
    seen.append({"name": name, "words": words, "before": [b for b, _ in lists], "after": [a for _, a in lists]})


def collectives():
    x = own()
    show("broadcast from rank 0", "All get what the root has.", own(), group.broadcast(x, root=0))
    blocks = np.array([[r, r] for r in range(world)], np.int64)
    got = group.scatter(blocks, root=0) if rank == 0 else group.scatter(root=0, out=np.empty((1, 2), np.int64))
    show("scatter from rank 0", "Rank r gets the root's block r.", blocks if rank == 0 else [], got)
    got = group.gather(own(), root=0)
    show("gather to rank 0", "The root gets all blocks, in the order of ranks.", own(), got if rank == 0 else own())
    x = own()
    group.reduce(x, root=3)
    show("reduce to rank 3, sum", "The root gets the sum. The others keep their input.", own(), x)
    show("all_gather", "All get all blocks.", own(), group.all_gather(own()))
    for op in ("sum", "product", "max", "min"):
        show(f"all_reduce, {op}", f"All get the {op}, element by element.", own(), group.all_reduce(own(), op=op))
    many = np.arange(1 + 4 * rank, 5 + 4 * rank, dtype=np.int64)
    show("reduce_scatter, sum", "Rank r gets block r of the sum.", many, group.reduce_scatter(many.copy()))
    show("all_to_all", "Block r of each rank goes to rank r.", many, group.all_to_all(many.copy()))


def ping_pong():
    zero = np.zeros(1, np.int64)
    before = zero.copy()
    if rank == 0:
        zero += 1
        group.send(zero, 1)
        group.recv(zero, 1)
    elif rank == 1:
        group.recv(zero, 0)
        zero += 1
        group.send(zero, 0)
    show("send and receive", "Rank 0 adds 1 and sends; rank 1 adds 1 and sends it back.", before if rank < 2 else [],
         zero if rank < 2 else [])


collectives()
ping_pong()
if rank == 0:
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump(seen, file)
group.close()
