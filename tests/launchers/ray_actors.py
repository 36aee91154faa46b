"""Ray actors as ranks: Rondo by itself, by a unique id of the driver, and as a backend of ray.util.collective.

Prints "rank R of 4: sum 10" for each actor and way, then "done".
"""

import numpy as np
import ray
import ray.util.collective as collective
import rondo
from rondo.ray import _Keys, register

WORLD = 4


@ray.remote(num_cpus=1)
class Rank:
    def __init__(self, rank: int):
        self.rank = rank

    def by_id(self, meeting_point) -> str:
        with rondo.init(rank=self.rank, world_size=WORLD, rendezvous=meeting_point) as group:
            total = group.all_reduce(np.full(1000, 1.0 + group.rank))
            return f"rank {group.rank} of {group.size}: sum {total[0]:g}"

    def by_backend(self, name: str) -> str:
        register()
        collective.init_collective_group(WORLD, self.rank, backend="rondo", group_name=name)
        mine = np.full(1000, 1.0 + self.rank)
        collective.allreduce(mine, name)
        text = f"rank {collective.get_rank(name)} of {collective.get_collective_group_size(name)}: sum {mine[0]:g}"
        self.check_others(name)
        collective.destroy_collective_group(name)
        return text

    def check_others(self, name: str) -> None:
        """Every other call of Ray's, with small whole numbers."""
        rank = self.rank
        high = np.array([float(rank)])
        collective.allreduce(high, name, op=collective.types.ReduceOp.MAX)
        assert high[0] == WORLD - 1, high
        word = np.full(3, rank, np.int64)
        collective.broadcast(word, src_rank=2, group_name=name)
        assert (word == 2).all(), word
        total = np.array([rank + 1.0])
        collective.reduce(total, dst_rank=1, group_name=name)
        assert total[0] == (10 if rank == 1 else rank + 1), total
        parts = [np.empty(2) for _ in range(WORLD)]
        collective.allgather(parts, np.full(2, float(rank)), name)
        assert [part[0] for part in parts] == [0, 1, 2, 3], parts
        share = np.empty(2)
        collective.reducescatter(share, [np.full(2, float(10 * i + rank)) for i in range(WORLD)], name)
        assert (share == 40 * rank + 6).all(), share
        if rank == 0:
            collective.send(np.arange(5.0), 3, name)
        if rank == 3:
            got = np.empty(5)
            collective.recv(got, 0, name)
            assert (got == np.arange(5.0)).all(), got
        collective.barrier(name)


@ray.remote(num_cpus=1)
def fails(rank: int, meeting_point) -> None:
    """The worker goes on after it."""
    group = rondo.init(rank=rank, world_size=WORLD, rendezvous=meeting_point)
    for step in range(100):
        group.all_reduce(np.ones(3))
        if (rank, step) == (2, 3):
            raise ArithmeticError("the loss is NaN")


def the_driver_hears_the_cause() -> None:
    meeting_point = rondo.unique_id("127.0.0.1")
    try:
        ray.get([fails.remote(rank, meeting_point) for rank in range(WORLD)], timeout=60)
    except ArithmeticError as error:
        assert "the loss is NaN" in str(error)
        return
    raise AssertionError("no task has failed")


def a_start_is_cut_short(name: str) -> None:
    """Its rank 0 is killed after it has offered a place; its other ranks, which the driver plays, never come."""
    keys = _Keys(name)
    rank = Rank.options(num_cpus=0).remote(0)
    rank.by_backend.remote(name)
    attempt = keys.wait("attempt", of_rank=0)
    for other in range(1, WORLD):
        keys.put(f"{attempt}/node{other}", "elsewhere nobody")
    keys.wait("id/nobody", of_rank=0)
    ray.kill(rank)


def main() -> None:
    ray.init(num_cpus=WORLD, include_dashboard=False, log_to_driver=False, logging_level="error")
    ranks = [Rank.remote(rank) for rank in range(WORLD)]
    meeting_point = rondo.unique_id()
    print(*ray.get([rank.by_id.remote(meeting_point) for rank in ranks]), sep="\n")
    a_start_is_cut_short("second")
    for name in ("first", "first", "second"):  # a name may be used again
        print(*ray.get([rank.by_backend.remote(name) for rank in ranks]), sep="\n")
    for rank in ranks:
        ray.kill(rank)
    the_driver_hears_the_cause()
    print("done")


if __name__ == "__main__":
    main()
