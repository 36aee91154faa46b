"""Lines of messages. They are (src, dst, tag, count), of ranks of the group."""

from __future__ import annotations

from life_area import Flight
from life_member import DEFERRED_SLOT, MESSAGE_SLOT, Fault, Member
from life_model import message_block
from life_text import Step


class Messages:
    """Of a Thread."""

    def _finish_messages(self) -> None:
        """Batches under way may have messages whose tags a later line uses, too."""
        for slot in [slot for slot, state in self.slots.items() if state.is_batch]:
            self._finish(slot)

    def _messages(self, step: Step, member: Member) -> list[tuple[int, int, int, int]]:
        found = []
        for text in filter(None, step.word("messages").split(";")):
            peers, tag, count = text.split(":")
            src, dst = (int(peer) % member.size for peer in peers.split(">"))
            # Until they are received, no other message has the tags of deferred ones.
            extra = 1000 * (1 + int("0" + step.word("name")[1:])) if step.word("mode") == "defer" else 0
            if src != dst:
                found.append((src, dst, int(tag) + extra, int(count)))
        return found

    def _sent(self, step, member, message, k, salt, slot) -> Flight:
        src, dst, tag, count = message
        dtype, where = step.word("dtype", "uint8"), step.of_member("in", member.me, "p")
        block = message_block(dtype, member.size, src, salt, k, count)
        area = self.door.area("sent", (slot, k, 0), where, dtype, count, self.memory, block.bytes())
        synchronous = step.number("synchronous") != 0
        return Flight(step, lambda asynchronous: self.door.send(member, area, dst, tag, asynchronous, synchronous), [area])

    def _received(self, step, member, sent, k, slot, how="exact") -> Flight:
        src, _, tag, _ = sent[k]
        dtype, where = step.word("dtype", "uint8"), step.of_member("out", member.me, "p")
        room = max(message[3] for message in sent)
        area = self.door.area("message", (slot, k, 1), where, dtype, room, self.memory)
        peer, tag = None if how in ("any", "tag") else src, None if how in ("any", "source") else tag
        probe = step.number("probe") != 0 and step.word("mode", "async") != "async"
        return Flight(step, lambda asynchronous: self.door.recv(member, area, peer, tag, asynchronous, probe), [area])

    def _expect_message(self, flight, step, member, sent, used: set, got, salt) -> None:
        """The first message from this peer with this tag that was not used is what the memory must hold."""
        source, tag, size = got
        for k, message in enumerate(sent):
            if k in used or message[:3] != (source, member.me, tag):
                continue
            used.add(k)
            block = message_block(step.word("dtype", "uint8"), member.size, source, salt, k, message[3])
            if size is not None and size != len(block.bytes()):
                raise Fault(f"a message from {source}, tag {tag}, has {size} bytes, not {len(block.bytes())}")
            return flight.areas[0].expect(0, block)
        raise Fault(f"received a message from {source} with tag {tag} that nobody sent: {step.text}")

    def _start_receives(self, step, member, how) -> list[tuple[Flight, object]]:
        sent = self._messages(step, member)
        mine = [k for k, message in enumerate(sent) if message[1] == member.me]
        started = []
        for k in reversed(mine) if how == "reverse" else mine:
            flight = self._received(step, member, sent, k, MESSAGE_SLOT, how)
            started.append((flight, flight.run(asynchronous=True)))
        return started

    def _end_receives(self, step, member, salt, started) -> None:
        sent, used = self._messages(step, member), set()
        for flight, work in started:
            self._expect_message(flight, step, member, sent, used, work.wait(), salt)
            self._check(flight, member)

    def _exchange(self, step: Step, member: Member) -> None:
        self._finish_messages()
        mode, name, how = step.word("mode", "async"), step.word("name"), step.word("recv", "exact")
        if mode == "defer" and name in member.deferred:
            self._receive_deferred(name, member)
        salt = self._seat(step, member).salt
        if mode == "blocking":
            return self._exchange_blocking(step, member, salt)
        if mode == "defer":
            # Memory of its own for each name of each group.
            slot = DEFERRED_SLOT + 10 * step.number("group") + int("0" + name[1:])
            member.deferred[name] = (step, salt, *self._start_sends(step, member, salt, slot))
            return None
        if member.deferred and how != "reverse":
            how = "exact"
        how = self.door.RECEIVES.get(how, how)
        apart = how in ("any", "source", "tag")
        if apart:
            self.door.barrier(member.group)
        receives = self._start_receives(step, member, how) if mode == "async" else []
        sends, works = self._start_sends(step, member, salt, MESSAGE_SLOT)
        if mode == "late":
            self.door.barrier(member.group)
            receives = self._start_receives(step, member, how)
        self._end_receives(step, member, salt, receives)
        for flight, work in zip(sends, works, strict=True):
            work.wait()
            self._check(flight, member)
        if apart:
            self.door.barrier(member.group)
        return None

    def _start_sends(self, step, member, salt, slot) -> tuple[list[Flight], list]:
        sends = [
            self._sent(step, member, message, k, salt, slot)
            for k, message in enumerate(self._messages(step, member))
            if message[0] == member.me
        ]
        return sends, [flight.run(asynchronous=True) for flight in sends]

    def _exchange_blocking(self, step, member, salt) -> None:
        sent, used = self._messages(step, member), set()
        for k, message in enumerate(sent):
            if message[0] == member.me:
                flight = self._sent(step, member, message, k, salt, MESSAGE_SLOT)
                flight.run()
            elif message[1] == member.me:
                flight = self._received(step, member, sent, k, MESSAGE_SLOT)
                self._expect_message(flight, step, member, sent, used, flight.run(), salt)
            else:
                continue
            self._check(flight, member)

    def _collect(self, step: Step, member: Member) -> None:
        self._receive_deferred(step.word("name"), member)

    def _receive_deferred(self, name: str, member: Member) -> None:
        if name not in member.deferred:
            return
        step, salt, sends, works = member.deferred[name]
        self._end_receives(step, member, salt, self._start_receives(step, member, "exact"))
        for flight, work in zip(sends, works, strict=True):
            work.wait()
            self._check(flight, member)
        del member.deferred[name]

    def _shift(self, step: Step, member: Member) -> None:
        self._finish_messages()
        n, by = member.size, step.number("by", 1) % member.size
        if by == 0:
            return
        salt, tag, count = self._seat(step, member).salt, step.number("tag"), step.number("count")
        to, source = (member.me + by) % n, (member.me - by) % n
        given = self._sent(step, member, (member.me, to, tag, count), 0, salt, MESSAGE_SLOT)
        sent = [(source, member.me, tag, count)]
        gets = self._received(step, member, sent, 0, MESSAGE_SLOT)
        got = self.door.sendrecv(member, given.areas[0], to, gets.areas[0], source, tag)
        self._expect_message(gets, step, member, sent, set(), got, salt)
        self._check(gets, member)
        self._check(given, member)
