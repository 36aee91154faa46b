"""Dask workers as ranks: one task on each worker, which meet by a unique id of the client.

Prints "rank R of 4: sum 10" for each, then "done".
"""

import numpy as np
import rondo
from distributed import Client, LocalCluster

WORLD = 4


def total(rank: int, meeting_point) -> str:
    with rondo.init(rank=rank, world_size=WORLD, rendezvous=meeting_point) as group:
        values = group.all_reduce(np.full(1000, 1.0 + group.rank))
        return f"rank {group.rank} of {group.size}: sum {values[0]:g}"


def main() -> None:
    with LocalCluster(n_workers=WORLD, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        meeting_point = rondo.unique_id()
        workers = list(client.scheduler_info(n_workers=-1)["workers"])
        # Each rank has a worker of its own: two on one would wait for each other.
        ranks = [
            client.submit(total, rank, meeting_point, workers=[worker], allow_other_workers=False, pure=False)
            for rank, worker in enumerate(workers)
        ]
        print(*client.gather(ranks), sep="\n")
    print("done")


if __name__ == "__main__":
    main()
