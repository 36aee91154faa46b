"""A rank that uses the package rondo with NumPy arrays."""

from __future__ import annotations

import numpy as np
from life_area import Flight
from life_model import Seat, Shape, bound_of, bytes_of, factor_of, tensors_of
from numpy_area import Made, Memory, NumpyArea

import rondo

# Those that make their result where none is passed.
_MAKERS = ("all_gather", "reduce_scatter", "gather", "all_to_all")
_CALLS = {
    "all_reduce": lambda g, c, **o: g.all_reduce(c.x, c.op, c.y, scalar=c.scalar, wire=c.wire, **o),
    "reduce": lambda g, c, **o: g.reduce(c.x, c.op, c.root, c.y, scalar=c.scalar, **o),
    "scan": lambda g, c, **o: g.scan(c.x, c.op, c.y, scalar=c.scalar, **o),
    "exscan": lambda g, c, **o: g.exscan(c.x, c.op, c.y, scalar=c.scalar, **o),
    "broadcast": lambda g, c, **o: g.broadcast(c.y if c.x is None else c.x, c.root, wire=c.wire, **o),
    "all_gather": lambda g, c, **o: g.all_gather(c.x, c.y, wire=c.wire, **o),
    "reduce_scatter": lambda g, c, **o: g.reduce_scatter(c.x, c.op, c.y, scalar=c.scalar, wire=c.wire, **o),
    "gather": lambda g, c, **o: g.gather(c.x, c.root, c.y, **o),
    "scatter": lambda g, c, **o: g.scatter(c.x, c.root, c.y, **o),
    "all_to_all": lambda g, c, **o: g.all_to_all(c.x, c.y, **o),
    "barrier": lambda g, c, algorithm=None, **o: g.barrier(**o),
    "all_gather_v": lambda g, c, **o: g.all_gather_v(c.x, c.counts, c.y, **o),
    "reduce_scatter_v": lambda g, c, **o: g.reduce_scatter_v(c.x, c.counts, c.op, c.y, scalar=c.scalar, **o),
    "gather_v": lambda g, c, **o: g.gather_v(c.x, c.counts, c.root, c.y, **o),
    "scatter_v": lambda g, c, **o: g.scatter_v(c.x, c.counts, c.root, c.y, **o),
    "all_to_all_v": lambda g, c, **o: g.all_to_all_v(c.x, c.counts, c.counts, c.y, **o),
    "all_reduce_many": lambda g, c, **o: g.all_reduce_many(c.x, c.op, **o),
}


class Arguments:
    x = y = None


class NumpyDoor:
    OUR_ABORT = "life: a rank found a fault"
    RECEIVES: dict[str, str] = {}  # what stands for a `recv` that this API has not
    STARTS_IN_BATCH = False  # calls of a batch end with it

    def join(self, rank: int, world: int, meeting: str):
        if rank >= world:  # a newcomer
            return rondo.init()
        return rondo.init(rank=rank, world_size=world, rendezvous=meeting)

    def memory(self, job) -> Memory:
        return Memory(job)

    def plays(self, step, member) -> bool:
        return step.verb != "distopt"

    def rank(self, group) -> int:
        return group.rank

    def size(self, group) -> int:
        return group.size

    # --- groups: what is made, and the ranks of the job in it, or (None, [])

    def split(self, parent, colors: list[int], keys: list[int]):
        mine = colors[parent.me]
        made = parent.group.split(mine, keys[parent.me])
        order = sorted((key, m) for m, key in enumerate(keys) if colors[m] == mine)
        assert (made is not None) == (mine >= 0), "split gave a group where the color is none, or none"
        return made, [parent.ranks[m] for _, m in order]

    def new_group(self, parent, ranks: list[int]):
        return parent.group.new_group(ranks), [parent.ranks[r] for r in ranks]

    def close(self, group) -> None:
        group.close()

    def abort(self, group, reason: str) -> None:
        group.abort(reason)

    def failure(self, error: Exception) -> tuple[str, tuple[int, ...]]:
        return type(error).__name__, getattr(error, "ranks", ())

    # --- collectives

    def barrier(self, group) -> None:
        group.barrier()

    def sum(self, group, count: int) -> None:
        group.all_reduce(np.ones(count, np.float32))

    def batch(self, group):
        return group.batch()

    def flight(self, step, seat: Seat, slot: int, index: int, member, memory: Memory) -> Flight:
        c = Arguments()
        c.op, c.wire, c.scalar = step.word("op", "sum"), None, None
        if c.op == "premulsum":
            c.scalar = factor_of(seat.me)
        user, dtype = step.number("user"), step.word("dtype")
        if user and c.op in ("sum", "max") and dtype in ("int64", "float64") and step.verb not in ("all_reduce_many",):
            fold = np.add if c.op == "sum" else np.maximum
            c.op = rondo.UserOp(lambda a, b: fold(a, b, out=b), commutative=user == 1)
        options = {"algorithm": None if step.word("algorithm", "auto") == "auto" else step.word("algorithm")}
        if step.number("timeout"):
            options["timeout"] = step.number("timeout") / 1000
        many = step.verb == "all_reduce_many"
        flight = (self._many if many else self._one)(step, seat, slot, index, memory, c)
        group, call, made = member.group, _CALLS[step.verb], getattr(c, "made", None)

        def run(asynchronous, **more):
            result = call(group, c, **({"async_op": True} if asynchronous else {}), **options, **more)
            if made is not None:
                made.returned(result)
            return result

        flight._call = run
        return flight

    def _many(self, step, seat, slot, index, memory, c) -> Flight:
        areas = []
        for t, (kind, given, gets) in enumerate(tensors_of(step, seat)):
            where = step.of_member("out", seat.me, "p")
            area = memory.take(f"tensor {t}", (slot, index, 2 + t), where, kind.dtype, given.count)
            area.put(given.bytes())
            area.ready()
            area.expect(0, gets, bound_of(kind, step, True))
            areas.append(area)
        c.x = [area.array for area in areas]
        flight = Flight(step, None, areas)
        flight.gets_data = True
        return flight

    def _one(self, step, seat, slot, index, memory, c) -> Flight:
        s = Shape(step, seat)
        flight = Flight(step, None, [])
        if step.verb == "barrier":
            return flight
        c.root, c.counts, dtype = s.root, s.counts, s.kind.dtype
        bound = bound_of(s.kind, step, s.folds)
        ins, outs = (sum(block.count for block in blocks) for blocks in (s.gives, s.gets))
        nests = step.verb not in ("broadcast", "all_to_all", "all_to_all_v")
        inside = step.number("place") and nests and s.reads and s.writes
        in_where, out_where = (step.of_member(key, seat.me, "p") for key in ("in", "out"))
        if inside:
            # The smaller buffer lies in the larger.
            out = memory.take("buffer", (slot, index, 1), out_where, dtype, max(ins, outs))
            at_in, at_out = (s.inside if ins < outs else 0), (s.inside if outs < ins else 0)
            out.put(bytes_of(s.gives), at_in)
            c.x, c.y = out.array[at_in : at_in + ins], out.array[at_out : at_out + outs]
        if s.reads and not inside:
            given = memory.take("input", (slot, index, 0), in_where, dtype, ins)
            given.put(bytes_of(s.gives))
            given.ready()
            c.x = given.array
            flight.areas.append(given)
        if s.writes and not inside:
            if out_where[0] == "n" and slot == 0 and step.verb in _MAKERS and (seat.salt + seat.me) % 2 == 0:
                out = c.made = Made("result", dtype, outs)
            else:
                out = memory.take("output", (slot, index, 1), out_where, dtype, outs)
                c.y = out.array
            at_out = 0
        if s.writes:
            out.ready()
            if inside and outs < ins and s.folds:  # reduce_scatter may change the other blocks
                out.expect_anything(ins)
            for block in s.gets:
                out.expect(at_out, block, bound)
                at_out += block.count
            flight.areas.append(out)
            flight.gets_data = outs > 0 and seat.members > 1
        if s.writes and s.everywhere and (bound > 0 or s.kind.random):
            flight.bits = out
        self._wire(step, seat, memory, c, ins)
        return flight

    def _wire(self, step, seat, memory, c, count) -> None:
        if step.word("wire", "none") != "none":
            residual = memory.residual(step.line, count) if step.number("residual") else None
            c.wire = rondo.Wire(step.word("wire"), residual, seat.salt if step.number("stochastic") else None)

    # --- messages. A Message names a rank of the group; None: of a send, or in a batch

    def area(self, name, use, where, dtype, count, memory, values=None) -> NumpyArea:
        """values: its bytes; None: a message comes into it."""
        area = memory.take(name, use, where, dtype, count)
        if values is not None:
            area.put(values)
        area.ready()
        return area

    def send(self, member, area, peer, tag, asynchronous, synchronous):
        send = member.group.isend if asynchronous else member.group.send
        return send(area.array, peer, tag, synchronous=synchronous)

    def recv(self, member, area, peer, tag, asynchronous, probe):
        """peer, tag: None: any."""
        peer, tag = rondo.ANY_SOURCE if peer is None else peer, rondo.ANY_TAG if tag is None else tag
        if probe:
            matched = member.group.mprobe(peer, tag)
            return (member.group.imrecv if asynchronous else member.group.mrecv)(area.array, matched)
        return (member.group.irecv if asynchronous else member.group.recv)(area.array, peer, tag)

    def sendrecv(self, member, given, to, gets, source, tag):
        return member.group.sendrecv(given.array, to, gets.array, source, tag)

    # --- what only this door has

    def sparse(self, member, given, gets, step, residual) -> None:
        select = {"threshold": "threshold", "sampled": "sampled_topk"}.get(step.word("select"), "topk")
        member.group.sparse_all_reduce(
            given.array, None if gets is given else gets.array, select=select, spars=float(step.word("spars", "0.05")),
            residual=residual, tensors=step.numbers("tensors"),
        )  # fmt: skip

    def sparse_values(self, group, values: np.ndarray, spars: float) -> None:
        group.sparse_all_reduce(values, spars=spars)

    def attach(self, group) -> None:
        group.attach_device()

    def mistakes(self, member, values: np.ndarray, residual: np.ndarray) -> dict:
        """Calls that must be refused, by `what`."""
        g, n = member.group, member.group.size

        def in_batch(call):
            with g.batch():
                call()

        return {
            "sparse_in_batch": lambda: in_batch(lambda: g.sparse_all_reduce(values, residual=residual)),
            "split_in_batch": lambda: in_batch(lambda: g.split(0)),
            "new_group_in_batch": lambda: in_batch(lambda: g.new_group([g.rank])),
            "begin_in_batch": lambda: in_batch(lambda: in_batch(lambda: None)),
            "end": lambda: g.batch().__exit__(None, None, None),
            "spars": lambda: g.sparse_all_reduce(values, spars=0.0, residual=residual),
            "tensors": lambda: g.sparse_all_reduce(values, residual=residual, tensors=[2**64 - 10, len(values) + 10]),
            "sparse_timeout": lambda: g.sparse_all_reduce(values, residual=residual, timeout=-1),
            "threshold": lambda: g.sparse_all_reduce(values, select="threshold", spars=-1.0, residual=residual),
            "not_a_number": lambda: g.sparse_all_reduce(values, spars=float("nan"), residual=residual),
            "overlap_residual": lambda: g.sparse_all_reduce(values[:-1], residual=values[1:]),
            "user": lambda: g.all_reduce(values, "user"),
            "wire": lambda: g.all_reduce(values.view(np.int32), wire="int8"),
            "null": lambda: g.all_reduce(None),
            "op": lambda: g.all_reduce(values, "band"),
            "timeout": lambda: g.all_reduce(values, timeout=-1),
            "overlap": lambda: g.all_reduce(values[:4], out=values[1:5]),
            "root": lambda: g.broadcast(values, n),
            "peer": lambda: g.send(values, n),
            "tag": lambda: g.send(values, 0, -5),
            "counts": lambda: g.all_gather_v(values, [len(values)] * (n + 1)),
        }
