"""One thread of a rank, which plays its steps through a door (rank.cc in Python)."""

from __future__ import annotations

import contextlib
import functools
import os

import numpy as np
from life_area import Flight
from life_member import DEFERRED_SLOT, SLOTS, Ended, Fault, Member, Over, Slot
from life_messages import Messages
from life_mistakes import Mistakes
from life_model import Seat, SparseModel, message_block
from life_recovery import Recovery
from life_report import Report
from life_text import Life, Step

COLLECTIVES = {
    "all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "gather", "scatter", "all_to_all", "barrier",
    "all_gather_v", "reduce_scatter_v", "gather_v", "scatter_v", "all_to_all_v", "all_reduce_many", "scan", "exscan",
}  # fmt: skip


class Thread(Messages, Mistakes, Recovery):
    """One thread of a rank: plays its steps on groups of its own."""

    def __init__(self, door, life: Life, rank: int, number: int, report: Report, job):
        self.door, self.life, self.rank, self.number, self.report = door, life, rank, number, report
        self.job, self.memory = job, door.memory(job)
        self.groups: dict[int, Member] = {}
        self.slots: dict[int, Slot] = {}
        self.reached: dict[int, int] = {}  # by line
        self.models: dict[int, SparseModel] = {}
        self.now: Step | None = None

    def play(self, group, owned: bool) -> None:
        process = self.rank
        self.rank = self.door.rank(group)
        self.groups[0] = Member(group, list(range(self.door.size(group))), self.rank, owned)
        try:
            begin = self.life.first_step(process)
            if begin > 0:
                self._welcome(self.groups[0])
            self._play(self.life.threads[self.number][begin:])
            self._finish_all()
            while self.groups:
                self._drop(max(self.groups))
        except Exception as error:
            # What another rank found is in that one's report.
            if self.door.OUR_ABORT in str(error):
                self.report.fault_of_another = True
            elif not isinstance(error, Over):
                self.report.fault(self._where() + f"{type(error).__name__}: {error}")
            self._give_up(group if owned else self.job)

    def _where(self) -> str:
        now = self.now
        return "" if now is None else f"line {now.line}, time {self.reached.get(now.line)} ({now.text}): "

    def _give_up(self, group) -> None:
        """Operations under way end before their memory does."""
        for aborted in [*(member.group for member in self.groups.values()), group]:
            with contextlib.suppress(Exception):
                self.door.abort(aborted, self.door.OUR_ABORT)
        works = [work for slot in self.slots.values() for work in slot.works]
        works += [work for m in self.groups.values() for deferred in m.deferred.values() for work in deferred[3]]
        for work in works:
            with contextlib.suppress(Exception):
                work.wait()
        self.slots.clear()
        for member in self.groups.values():
            if member.owned:
                with contextlib.suppress(Exception):
                    self.door.close(member.group)

    def _play(self, steps: list[Step]) -> None:
        for step in steps:
            if step.verb == "repeat":
                for _ in range(step.number("times")):
                    self._play(step.inner)
            else:
                self._step(step)

    def _step(self, step: Step) -> None:
        self.now = step
        self.reached[step.line] = self.reached.get(step.line, 0) + 1
        self.report.at(self.number, step.line)
        slot = step.number("slot")
        if step.verb in ("wait", "poll", "drop_work"):
            return self._finish(slot, step.verb)
        if step.verb == "free":
            self._finish_all()
            return self.memory.free_registered(DEFERRED_SLOT)
        number = step.number("group")
        member = self.groups.get(number)
        if member is None or not self.door.plays(step, member):
            return None
        if step.verb == "drop":
            return self._drop(number) if number else None
        if step.verb in COLLECTIVES:
            return self._collective(step, member, slot)
        if step.verb in ("disagree", "abort", "leave", "kill"):
            return (self._disagree if step.verb == "disagree" else self._departure)(step, number, member)
        return getattr(self, "_" + step.verb)(step, member)

    def _floats(self, step: Step, member: Member) -> None:
        """NumPy and torch compute in the modes that they find: this one stays."""

    def _seat(self, step: Step, member: Member) -> Seat:
        again = 0 if step.word("data") == "random" else self.reached[step.line] - 1
        return Seat(member.size, member.me, step.number("salt") + again)

    # --- groups

    def _split(self, step: Step, parent: Member) -> None:
        each = range(parent.size)
        self._made(step, lambda: self.door.split(parent, *(
            [int(step.of_member(key, m, "0")) for m in each] for key in ("color", "key")
        )))  # fmt: skip

    def _new_group(self, step: Step, parent: Member) -> None:
        ranks = list(dict.fromkeys(r % parent.size for r in step.numbers("ranks")))
        self._made(step, lambda: self.door.new_group(parent, ranks))

    def _made(self, step: Step, make) -> None:
        number = step.number("as")
        if number != 0 and number in self.groups:
            self._drop(number)
        group, ranks = make()
        if group is not None:
            self.groups[number] = Member(group, ranks, self.rank, True)

    def _drop(self, number: int) -> None:
        member = self.groups[number]
        for slot in [slot for slot, state in self.slots.items() if state.member is member]:
            self._finish(slot)
        if not member.owned:
            while member.deferred:
                self._receive_deferred(next(iter(member.deferred)), member)
        else:
            self.door.close(member.group)
            # Nobody receives these: they end, well or in words.
            for deferred in member.deferred.values():
                for work in deferred[3]:
                    with contextlib.suppress(Exception):
                        work.wait()
        del self.groups[number]

    # --- collectives

    def _check(self, flight: Flight, member: Member) -> None:
        wrong = flight.check()
        if not wrong and flight.bits is not None:
            step = flight.step
            same = self.report.same_bits(step.line, member.ranks[0], flight.bits.read().tobytes())
            if not same and self._same_again(step, member):
                wrong = "equal calls have other bits than before"
        if wrong:
            self.now = flight.step
            raise Fault(wrong)

    @staticmethod
    def _same_again(step: Step, member: Member) -> bool:
        """Whether each time that this line is played must have the bits of the first (Thread::equal_calls)."""
        if step.word("data") != "random" or step.number("residual") or os.environ.get("RONDO_FOLD") == "any":
            return False
        keys = ("out",) if step.number("place") else ("in", "out")
        registered = all(step.of_member(key, m, "p")[0] == "r" for key in keys for m in range(member.size))
        return not registered or bool(step.word("algorithm")) or member.size <= 2

    def _flight(self, step: Step, member: Member, slot: int = 0, index: int = 0) -> Flight:
        return self.door.flight(step, self._seat(step, member), slot, index, member, self.memory)

    def _collective(self, step: Step, member: Member, slot: int) -> None:
        self._finish(slot)
        flight = self._flight(step, member, slot)
        if slot == 0:
            flight.run()
            return self._check(flight, member)
        self.slots[slot] = state = Slot(member, step.line, [], [flight])
        state.works.append(flight.run(asynchronous=True))
        if step.number("end"):
            state.ended = Ended()
            state.works[0].add_done_callback(state.ended)
        return None

    def _finish_all(self) -> None:
        for slot in range(1, SLOTS):
            self._finish(slot)

    def _finish(self, slot: int, how: str = "wait") -> None:
        state = self.slots.get(slot)
        if state is None:
            return
        if how == "drop_work" and state.works:
            if state.ended is None and not state.is_batch:
                state.ended = Ended()
                state.works[0].add_done_callback(state.ended)
            if not state.is_batch:
                state.works.clear()
            return
        for work in state.works:
            while how == "poll" and not work.done():
                sum(range(20_000))  # half a millisecond with Python's lock
            work.wait()
        if state.ended is not None:
            state.ended.event.wait()
            if state.ended.times != 1:
                raise Fault(f"the end function of line {state.line} was called {state.ended.times} times")
        for flight in state.flights:
            self._check(flight, state.member)
        del self.slots[slot]

    def _batch(self, step: Step, member: Member) -> None:
        slot = step.number("slot")
        self._finish(slot)
        self._finish_messages()
        flights, works, index = [], [], 0
        with self.door.batch(member.group):
            for inner in step.inner:
                self.reached[inner.line] = self.reached.get(inner.line, 0) + 1
                if not self.door.plays(inner, member):
                    continue
                if inner.verb in COLLECTIVES:
                    index += 1
                    flights.append(self._flight(inner, member, slot, index))
                    works.append(flights[-1].run(self.door.STARTS_IN_BATCH))
                    continue
                sent, salt, used = self._messages(inner, member), self._seat(inner, member).salt, set()
                for k, message in enumerate(sent):
                    index += 1
                    place = slot + 1000 * index
                    if message[0] == member.me:
                        flights.append(self._sent(inner, member, message, k, salt, place))
                        works.append(flights[-1].run(self.door.STARTS_IN_BATCH))
                    elif message[1] == member.me:
                        flights.append(self._received(inner, member, sent, k, place))
                        works.append(flights[-1].run(self.door.STARTS_IN_BATCH))
                        got = (message[0], message[2], None)
                        self._expect_message(flights[-1], inner, member, sent, used, got, salt)
        works = works if self.door.STARTS_IN_BATCH else []
        self.slots[slot] = Slot(member, step.line, works, flights, is_batch=True)
        if slot == 0:
            self._finish(slot)

    # --- compression

    def _sparse(self, step: Step, member: Member) -> None:
        count, salt = step.number("count"), self._seat(step, member).salt
        blocks = [message_block("float32", member.size, m, salt, 0, count) for m in range(member.size)]
        inputs = [block.bytes().view(np.float32) for block in blocks]
        keeps, spars = bool(step.number("residual")), float(step.word("spars", "0.05"))
        model = self.models.get(step.line)
        if model is None or len(model.residuals) != member.size:
            model = self.models[step.line] = SparseModel(member.size, count)
        model.step(inputs, step.word("select") == "threshold", spars, keeps, step.numbers("tensors"))
        values = blocks[member.me].bytes()
        area = functools.partial(self.door.area, dtype="float32", count=count, memory=self.memory)
        wheres = [step.of_member(key, member.me, "p") for key in ("in", "out")]
        given = gets = area("sparse", (0, 0, 1), wheres[1], values=values)
        if not step.number("place"):
            given = area("input", (0, 0, 0), wheres[0], values=values)
        gets.want = model.sum.view(np.uint8).copy()
        residual = self.memory.residual(step.line, count) if keeps else None
        self.door.sparse(member, given, gets, step, residual)
        self._check(Flight(step, None, list({id(a): a for a in (gets, given)}.values())), member)
        if keeps and not np.array_equal(residual, model.residuals[member.me]):
            raise Fault("the residual is wrong")
