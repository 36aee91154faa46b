"""Lines that lose ranks and take in new ones (recovery.cc in Python)."""

from __future__ import annotations

import os
import signal
import time

import numpy as np
from life_member import Fault, Member
from life_text import Step

import rondo
import rondo.dist_opt


class Recovery:
    """Of a Thread whose door has a group as the package rondo has it."""

    optimizer = None

    def _end_other_groups(self, job: Member, but: int = 0) -> None:
        self._end_others(job)
        for number in sorted(set(self.groups) - {0, but}, reverse=True):
            self._drop(number)

    def _wait_beside(self, line: Step, job: Member, lost: int) -> None:
        """After a loss ranks of odd number wait in a group of the job's; the others go to shrink()."""

        def waits(rank: int) -> bool:
            return rank != lost and rank % 2 == 1

        number = line.number("beside")
        if number not in self.groups or number == 0 or not waits(job.ranks[job.me]):
            return
        member = self.groups[number]
        if all(waits(rank) for rank in member.ranks):
            return
        error = None
        while error is None:
            error = self._failure_of(lambda: self.door.barrier(member.group))
        name, _ranks = self.door.failure(error)
        if name != "Aborted" and (name != "PeerLost" or lost not in member.ranks):
            raise Fault(f"beside shrink() must be Aborted or PeerLost, is {error!r}")

    def _recoverable_sum(self, line: Step, job: Member):
        """The call's flight, and its input."""
        words = [f"{key}={value}" for key, value in line.values.items()]
        flight = self._flight(Step(["all_reduce", *words], line.line), job)
        kept = {"recoverable": bool(line.number("recoverable"))}
        return flight, lambda asynchronous=False: flight.run(asynchronous, **kept)

    def _sum_once(self, line: Step, job: Member) -> None:
        flight, run = self._recoverable_sum(line, job)
        run()
        self._check(flight, job)

    def _sum_until_loss(self, line: Step, job: Member) -> Exception:
        """The failure, behind which the input must be as it was, but for a call in place that did not ask for it."""
        keeps = not line.number("place") or line.number("recoverable")
        while True:
            flight, run = self._recoverable_sum(line, job)
            given = [area.read().copy() for area in flight.areas[:1]]
            error = self._failure_of(run)
            if error is None:
                self._check(flight, job)
            elif keeps and not all(np.array_equal(a.read(), was) for a, was in zip(flight.areas, given, strict=False)):
                raise Fault("the sum that failed has changed its input")
            else:
                return error

    def _lose(self, line: Step, job: Member) -> None:
        if job.size < 2:
            return
        self._end_other_groups(job, line.number("beside"))
        self._train(job)
        by = line.number("by") % job.size
        # Nobody dies while others are in the lines before; in the barrier it may.
        error = self._failure_of(lambda: self.door.barrier(job.group))
        if job.me == by:
            if error is not None:
                raise error
            for _ in range(line.number("after")):
                self._sum_once(line, job)
            if line.number("amid"):
                _flight, run = self._recoverable_sum(line, job)
                _work = run(True)
                time.sleep(line.number("amid") / 1e6)
            os.kill(os.getpid(), signal.SIGKILL)
        error = error or self._sum_until_loss(line, job)
        name, ranks = self.door.failure(error)
        if name != "PeerLost" or by not in ranks:
            raise Fault(f"must be PeerLost naming {by}, is {error!r} naming {ranks}")
        self._wait_beside(line, job, job.ranks[by])
        self._goes_on_as(job, job.group.shrink())
        del job.ranks[by]
        job.size, job.me = len(job.ranks), job.me - (job.me > by)
        self._begin_epoch(job)
        self._sum_once(line, job)
        self._train(job)
        self._end_other_groups(job)

    def _grow(self, line: Step, job: Member) -> None:
        self._end_other_groups(job)
        newcomers = line.number("newcomers")
        self._goes_on_as(job, job.group.grow(newcomers))
        job.ranks = list(range(job.size + newcomers))
        job.size = len(job.ranks)
        self._welcome(job)

    def _goes_on_as(self, job: Member, group) -> None:
        job.group = self.job = self.memory.job = group
        job.epoch += 1

    def _welcome(self, job: Member) -> None:
        """What follows is counted and kept from here on by those who were there and by newcomers."""
        job.ranks, self.rank = list(range(job.size)), job.me
        self.reached.clear()
        self.models.clear()
        self.memory.forget_residuals()
        self.report.begin_again()
        state = np.array([job.epoch, job.committed])
        job.group.broadcast(state)
        job.epoch, job.committed = (int(number) for number in state)
        self._begin_epoch(job)
        self._train(job)

    def _train(self, job: Member) -> None:
        """Three steps of DistOpt, which goes on from epoch to epoch by regroup(), beside the constructors of newcomers; of
        lives whose doors are all NumPy."""
        if set(self.life.head["doors"].split(",")) != {"numpy"}:
            return
        if self.optimizer is None:
            self.weights = np.full(60, 7.0 + job.me, np.float32)
            update = rondo.dist_opt.NumpyUpdate({"w": self.weights}, lambda _, p, g: np.subtract(p, g, out=p))
            self.optimizer = rondo.DistOpt(update, group=job.group)
        elif self.optimizer.group is not job.group:
            self.optimizer.regroup(job.group)
        first = np.append(self.weights, np.float32(self.optimizer.steps))
        expected = job.group.broadcast(first.copy())
        if not np.array_equal(first, expected):
            raise Fault(f"the steps and weights of DistOpt are {first}, those of rank 0 {expected}")
        for step in range(3):
            self.optimizer.step({"w": np.full(60, job.me + step, np.float32)})
            expected += np.append(np.full(60, -((job.size - 1) / 2 + step)), 1)
        now = np.append(self.weights, self.optimizer.steps)
        if not np.allclose(now, expected, atol=1e-2):
            raise Fault(f"weights and steps after three steps of DistOpt are {now}, must be {expected}")

    def _begin_epoch(self, job: Member) -> None:
        group = job.group
        now, must = (
            (group.rank, group.size, group.epoch, group.committed),
            (job.me, job.size, job.epoch, job.committed),
        )
        if now != must:
            raise Fault(f"rank, size, epoch and step are {now}, must be {must}")

    def _commit(self, line: Step, member: Member) -> None:
        member.committed += 1 + line.number("skip")
        member.group.commit(member.committed, member.committed * 77)
        if member.group.committed != member.committed:
            raise Fault(f"step {member.group.committed} is committed, not {member.committed}")
