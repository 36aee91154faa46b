"""Puts the times of all ranks on the clock of the first.

Ranks that read one CLOCK_MONOTONIC (same boot, same time namespace) need nothing. Between hosts the offset is estimated
from collectives: none of those below ends on a rank before it has begun on every other, so that each of them bounds the
offset from one side, and the tightest bounds of both sides hold it. It is taken as constant over the trace.
"""

import dataclasses

# Every rank's end needs every rank's data.
_MEET = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"}


@dataclasses.dataclass
class Clock:
    """Of one group of ranks: offset is added to their times. error: half of the range that the bounds leave; None: no
    collective connects it with the first clock."""

    ranks: list
    offset: int = 0
    error: int | None = 0


def _bounds(first, second):
    """Least and greatest offset of the second's clock, from the operations that both have."""
    least, greatest = None, None
    for key, a in first.operations.items():
        b = second.operations.get(key)
        # The first is the communicator's own, in which only neighbors wait for each other.
        if b is None or key[1] == 1 or a.collective not in _MEET or (a.bytes == 0 and a.collective != "barrier"):
            continue
        # b.begin + offset <= a.end, and a.begin <= b.end + offset.
        if a.end is not None and not a.error:
            bound = a.end - b.begin
            greatest = bound if greatest is None else min(greatest, bound)
        if b.end is not None and not b.error:
            bound = a.begin - b.end
            least = bound if least is None else max(least, bound)
    return least, greatest


def _estimate(known, group, ranks):
    """Offset and error of a group against ranks whose clock is known (their times are shifted already)."""
    least, greatest = [], []
    for one in known:
        for other in group:
            low, high = _bounds(ranks[one], ranks[other])
            least += [low] if low is not None else []
            greatest += [high] if high is not None else []
    if not least or not greatest:
        return None
    low, high = max(least), min(greatest)
    return ((low + high) // 2, (high - low) // 2) if low <= high else None


def _shift(trace, offset):
    move = lambda r: r._replace(begin=r.begin + offset, end=r.end + offset)
    for operation in trace.operations.values():
        operation.begin += offset
        operation.end = operation.end + offset if operation.end is not None else None
        for name in ("steps", "transfers", "waits", "stops"):
            setattr(operation, name, [move(r) for r in getattr(operation, name)])
    trace.messages = [move(r) for r in trace.messages]
    trace.last += offset
    for failure in trace.failures:
        failure["at"] += offset


def align(ranks):
    """Shifts the times of all ranks onto the first's clock. A Clock for each that there was."""
    groups = {}
    for rank, trace in sorted(ranks.items()):
        groups.setdefault(trace.about["clock"], []).append(rank)
    waiting = [Clock(members) for members in groups.values()]
    clocks, known = [waiting.pop(0)], []
    known += clocks[0].ranks
    # A group whose clock has been estimated helps to estimate the next one.
    while waiting:
        found = next(((c, e) for c in waiting if (e := _estimate(known, c.ranks, ranks))), None)
        if found is None:
            break
        clock, (clock.offset, clock.error) = found[0], found[1]
        for rank in clock.ranks:
            _shift(ranks[rank], clock.offset)
        waiting.remove(clock)
        clocks.append(clock)
        known += clock.ranks
    for clock in waiting:
        clock.error = None
    return clocks + waiting
