"""Ranks started by the module multiprocessing, by each of its ways, in the ways that the tutorials have.
  multiprocessing_start.py METHOD WAY    METHOD: fork, spawn, forkserver
WAY: "environment" (rank and world size as arguments, MASTER_ADDR and MASTER_PORT set in the child), "id" (a unique id as
an argument), "spawn" (rondo.spawn). Every rank prints "rank R of N: sum S".
"""

import multiprocessing
import os
import socket
import sys

import numpy as np
import rondo

WORLD = 4


def report(group) -> float:
    total = group.all_reduce(np.full(1000, 1.0 + group.rank))
    sys.stdout.write(f"rank {group.rank} of {group.size}: sum {total[0]:g}\n")
    sys.stdout.flush()
    return float(total[0])


def by_environment(rank: int, port: int) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    report(rondo.init(rank=rank, world_size=WORLD))


def by_id(rank: int, meeting_point) -> None:
    report(rondo.init(rank=rank, world_size=WORLD, rendezvous=meeting_point))


def by_spawn() -> float:
    return report(rondo.init())


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main(method: str, way: str) -> None:
    if way == "spawn":
        results = rondo.spawn(by_spawn, nprocs=WORLD, start_method=method)
        assert results == [10.0] * WORLD, results
        return
    context = multiprocessing.get_context(method)
    target, argument = (by_environment, free_port()) if way == "environment" else (by_id, rondo.unique_id())
    ranks = [context.Process(target=target, args=(rank, argument)) for rank in range(WORLD)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    assert [rank.exitcode for rank in ranks] == [0] * WORLD, [rank.exitcode for rank in ranks]


if __name__ == "__main__":
    main(*sys.argv[1:])
