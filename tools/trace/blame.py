"""Whose fault a wait was: from the wait of one rank along the waits of others to one that waited for nobody."""

import collections
import dataclasses

# What is shorter is not worth a sentence: a scheduler's time slice.
SENTENCE_NS = 1_000_000


@dataclasses.dataclass(frozen=True)
class Cause:
    """rank: of the world. why: stopped, late, slow, sending, untraced. nanoseconds: of the stop, of the lateness."""

    rank: int
    why: str
    nanoseconds: int = 0


def _covering(records, at):
    return next((r for r in records if r.begin <= at <= r.end), None)


class Blame:
    """operations: {(communicator, number): {world rank: Operation}}; members: {communicator: world ranks}."""

    def __init__(self, operations, members):
        self._operations, self._members = operations, members
        self._stops = collections.defaultdict(list)  # by rank: also a rank that is late may have been stopped before
        for here in operations.values():
            for rank, operation in here.items():
                self._stops[rank] += operation.stops

    def stop(self, rank, at):
        """The record of a stop of that rank at that time, or None."""
        return _covering(self._stops[rank], at)

    def cause(self, key, rank, at, seen=()):
        """Why `rank` stood still at that time, in that operation."""
        here = self._operations[key]
        operation = here.get(rank)
        if operation is None:
            return Cause(rank, "untraced")
        if stop := self.stop(rank, at):
            return Cause(rank, "stopped", stop.end - stop.begin)
        if operation.begin > at:
            return Cause(rank, "late", operation.begin - min(o.begin for o in here.values()))
        wait = _covering(operation.waits, at)
        # Waits in a ring end at the rank that is seen twice.
        if wait is None or wait.peer < 0 or rank in seen:
            return Cause(rank, "sending" if operation.end is not None and operation.end < at else "slow")
        return self.cause(key, self._members[key[0]][wait.peer], at, (*seen, rank))

    def waits(self):
        """(key, rank, peer, wait, cause) of every wait for another rank."""
        for key, here in self._operations.items():
            for rank, operation in here.items():
                for wait in operation.waits:
                    if wait.peer >= 0:
                        peer = self._members[key[0]][wait.peer]
                        yield key, rank, peer, wait, self.cause(key, rank, (wait.begin + wait.end) // 2)


def time_text(ns):
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns:.0f} ns"


def _why(cause):
    if cause.why == "stopped":
        return f"made no progress for {time_text(cause.nanoseconds)}: its process was stopped, or its core was taken"
    if cause.why == "late":
        return f"began it {time_text(cause.nanoseconds)} after the first rank"
    return {"slow": "was reducing, copying or sending meanwhile", "sending": "had ended it: its bytes were on their way",
            "untraced": "left no trace of it"}[cause.why]


def sentences(operations, members):
    """{rank: [(nanoseconds, sentence, culprit)]}, the longest first: what each rank waited for, operation by operation."""
    total = collections.Counter()
    by_way = collections.defaultdict(set)
    for key, rank, peer, wait, cause in Blame(operations, members).waits():
        total[key, rank, cause] += wait.end - wait.begin
        if peer != cause.rank and cause.rank != rank:
            by_way[key, rank, cause].add(peer)
    out = collections.defaultdict(list)
    for (key, rank, cause), ns in total.items():
        here = operations[key]
        if ns < SENTENCE_NS or rank == cause.rank:
            continue
        via = by_way[key, rank, cause]
        way = f" (by way of rank {', '.join(map(str, sorted(via)))})" if via else ""
        out[rank].append((ns, f"waited {time_text(ns)} in {here[rank].name} for rank {cause.rank}{way}, which "
                              f"{_why(cause)}", cause.rank))
    for key, here in operations.items():
        first = min(operation.begin for operation in here.values())
        for rank, operation in here.items():
            for stop in operation.stops:
                out[rank].append((stop.end - stop.begin,
                                  f"made no progress for {time_text(stop.end - stop.begin)} in {operation.name}: its "
                                  "process was stopped, or its core was taken", rank))
            late = operation.begin - first
            if late >= SENTENCE_NS and key[1] > 1:
                out[rank].append((late, f"began {operation.name} {time_text(late)} after the first rank", rank))
    return {rank: sorted(said, reverse=True) for rank, said in out.items()}
