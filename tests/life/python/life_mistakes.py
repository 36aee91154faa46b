"""Lines of mistakes, departures and hostile ranks."""

from __future__ import annotations

import os
import signal

import numpy as np
from life_member import Fault, Member, Over
from life_text import Step


BARRIERS = 10_000  # of ranks that disagree, before all know


class Mistakes:
    """Of a Thread."""

    def _attempt(self, step: Step, member: Member) -> tuple[Exception | None, bool]:
        """Any line of a `disagree`: its failure, and whether it gave this rank data of others, or a group."""
        flight = None
        try:
            if step.verb == "split":
                self.door.close(member.group.split(step.number("color")))
            elif step.verb == "attach":
                self.door.attach(member.group)
            elif step.verb == "sparse":
                self.door.sparse_values(member.group, np.full(step.number("count"), 1.0 + member.me, np.float32), 0.05)
            else:
                self.reached[step.line] = self.reached.get(step.line, 0) + 1
                flight = self._flight(step, member)
                flight.run()
        except Exception as error:
            return error, False
        # What those give that made this call, a root for example, is right; data of another call is not.
        right = flight is not None and (not flight.gets_data or not flight.check())
        return None, step.verb != "attach" and not right

    def _end_others(self, member: Member) -> None:
        while member.deferred:
            self._receive_deferred(next(iter(member.deferred)), member)
        self._finish_all()

    def _disagree(self, step: Step, number: int, member: Member) -> None:
        if member.size < 2 or len(step.inner) != 2:
            return
        self._end_others(member)
        mine = step.inner[member.me == step.number("odd") % member.size]
        error, got = self._attempt(mine, member)
        if got:
            raise Fault(f"'{mine.text}' succeeded, although not all made this call")
        # Some calls end at once on ranks that get no data; the others' failure may reach this rank behind a barrier, too.
        for _ in range(BARRIERS):
            if error is not None and self.door.failure(error)[0] != "Unsupported":
                break
            error = self._failure_of(lambda: self.door.barrier(member.group))
        if error is None or self.door.failure(error)[0] != "Mismatch":
            raise Fault(f"after '{mine.text}' not Mismatch but {error!r}")
        self._end_group(number)

    @staticmethod
    def _failure_of(call) -> Exception | None:
        try:
            call()
        except Exception as error:
            return error
        return None

    def _end_group(self, number: int) -> None:
        if number == 0:
            raise Over
        self._drop(number)

    def _departure(self, step: Step, number: int, member: Member) -> None:
        if member.size < 2:
            return
        self._end_others(member)
        by = step.number("by") % member.size
        name = {"abort": "Aborted", "leave": "PeerLeft", "kill": "PeerLost"}[step.verb]
        error = None
        if step.verb == "kill":  # nobody dies while others are in the lines before; in the barrier it may
            error = self._failure_of(lambda: self.door.barrier(member.group))
            if error is not None and member.me == by:
                raise error
        if member.me != by:
            while error is None:
                error = self._failure_of(lambda: self.door.sum(member.group, 5000))
        elif step.verb == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif step.verb == "abort":
            self.door.abort(member.group, "this rank has had enough")
            error = self._failure_of(lambda: self.door.barrier(member.group))
        if step.verb != "leave" or member.me != by:
            said, ranks = self.door.failure(error)
            # Of those that left, one may be named that left because of M.
            named = ranks and member.me not in ranks if step.verb == "leave" else by in ranks
            if said != name or not named:
                raise Fault(f"must be {name} naming {by}, is {error!r} naming {ranks}")
        self._end_group(number)

    def _bad(self, step: Step, member: Member) -> None:
        if step.of_member("by", member.me, "1") != "1":
            return
        values, residual = np.full(1000, 1.5, np.float32), np.full(1000, 0.5, np.float32)
        call = self.door.mistakes(member, values, residual).get(step.word("what"))
        if call is None:  # this API cannot say it
            return
        error = self._failure_of(call)
        if not isinstance(error, (ValueError, TypeError)):
            raise Fault(f"must be refused, is {error!r}")
        if np.any(values != 1.5) or np.any(residual != 0.5):
            raise Fault("what was refused changed memory")
        if member.group.error is not None:
            raise Fault(f"the group has failed: {member.group.error!r}")

    def _hostile(self, step: Step, member: Member) -> None:
        """Hostile ranks are of C++ or C. The others need not be right, but must end."""
        by = step.number("by") % member.size
        if member.size < 2 or self.life.door(member.ranks[by]) not in ("cpp", "c"):
            return
        self._finish_all()
        values = np.ones(4000, np.float32)
        error = self._failure_of(lambda: self.door.barrier(member.group))  # nobody is in the lines before
        for _ in range(step.number("times", 20) if error is None else 0):
            if step.word("what") == "sparse":
                error = self._failure_of(lambda: self.door.sparse_values(member.group, values, 0.01))
            else:
                error = self._failure_of(lambda: self.door.sum(member.group, len(values)))
            if error is not None:
                break
        raise Over
