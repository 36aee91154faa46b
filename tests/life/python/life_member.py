"""What a thread of a rank has: groups, works in slots; and how its life ends."""

from __future__ import annotations

import threading

from life_area import Flight


MESSAGE_SLOT, DEFERRED_SLOT, SLOTS = 100, 200, 16


class Over(Exception):
    """This rank's life is over, without a fault."""


class Fault(Exception):
    pass


class Ended:
    """An end function, and how often it was called."""

    def __init__(self):
        self.times, self.event = 0, threading.Event()

    def __call__(self, _):
        self.times += 1
        self.event.set()


class Member:
    """Of a group: ranks are those of the job."""

    def __init__(self, group, ranks: list[int], rank: int, owned: bool):
        self.group, self.ranks, self.owned = group, ranks, owned
        self.me, self.size = ranks.index(rank), len(ranks)
        self.deferred: dict[str, tuple] = {}
        self.epoch, self.committed = 0, -1


class Slot:
    def __init__(self, member: Member, line: int, works: list, flights: list[Flight], is_batch: bool = False):
        self.member, self.line, self.works, self.flights, self.is_batch = member, line, works, flights, is_batch
        self.ended: Ended | None = None
