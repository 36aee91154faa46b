"""A rank that uses torch.distributed with the backend rondo: tensors that lie in many ways, works and futures."""

from __future__ import annotations

import contextlib
import copy
import math
import random
import re

import numpy as np
import torch
import torch.distributed as dist
from life_area import Flight
from life_model import DTYPES, Seat, Shape, bound_of, bytes_of, factor_of, tensors_of
from life_text import Step
from torch_area import TorchArea, TorchMemory, TorchWork, Written, depth_of, shape_of, tensor_of, to_read

_NOT_TORCHS = ("scan", "exscan", "sparse", "distopt", "bad", "disagree", "hostile", "gather_v", "scatter_v", "lose", "grow",
               "commit")  # fmt: skip
_TYPES = {name: getattr(torch, name.replace("float8_e4m3", "float8_e4m3fn"), None) for name in DTYPES}
_COMPLEX = {"float32": torch.complex64, "float64": torch.complex128}
# Others call torch.view_as_real(), which takes no lazy conjugate.
_TAKE_COMPLEX = ("gather", "reduce", "reduce_scatter", "reduce_scatter_v")
_CPU = torch.device("cpu")


def _op(name: str, member: int):
    if name == "premulsum":
        return dist._make_nccl_premul_sum(factor_of(member))
    return getattr(dist.ReduceOp, name.upper())


def _type_of(step: Step, shape: Shape, rng: random.Random) -> tuple[torch.dtype, int]:
    """The type of a call's tensors, and how many elements of the text's one of theirs is: two where it is complex."""
    dtype, blocks = step.word("dtype", "uint8"), [*shape.gives, *shape.gets]
    linear = not shape.folds or shape.kind.op in ("sum", "avg")
    even = all(block.count % 2 == 0 for block in blocks)
    known = dtype in _COMPLEX and step.verb in _TAKE_COMPLEX
    if not known or not linear or not even or rng.random() < 0.5:
        return _TYPES.get(dtype), 1
    return _COMPLEX[dtype], 2


class TorchDoor:
    OUR_ABORT = "aborted its process group"
    RECEIVES = {"any": "tag", "source": "exact"}  # torch has no messages of any tag
    STARTS_IN_BATCH = True  # torch has no batches of any calls: they are started in this order

    def __init__(self, life, rank: int):
        self._life, self._rank = life, rank
        torch.set_num_threads(1)

    def join(self, rank: int, world: int, meeting: str):
        dist.init_process_group("rondo", init_method=meeting, rank=rank, world_size=world)
        return dist.group.WORLD

    def rank(self, group) -> int:
        return dist.get_rank(group)

    def size(self, group) -> int:
        return dist.get_world_size(group)

    def memory(self, job) -> TorchMemory:
        return TorchMemory(job)

    def plays(self, step, member) -> bool:
        if step.verb in ("split", "new_group"):  # of the job alone, where torch names groups alike on all ranks
            return member.group is dist.group.WORLD
        return step.verb not in _NOT_TORCHS and step.word("op") not in ("land", "lor", "lxor")

    # --- groups, whose ranks are in the order of the job

    def split(self, parent, colors: list[int], keys: list[int]):
        found = None, []
        for color in sorted({color for color in colors if color >= 0}):
            ranks = [parent.ranks[m] for m in range(parent.size) if colors[m] == color]
            made = dist.new_group(ranks)
            if self._rank in ranks:
                found = made, ranks
        return found

    def new_group(self, parent, ranks: list[int]):
        made = dist.new_group([parent.ranks[r] for r in ranks])
        return (made, sorted(parent.ranks[r] for r in ranks)) if parent.me in ranks else (None, [])

    def close(self, group) -> None:
        dist.destroy_process_group(group)

    def abort(self, group, reason: str) -> None:
        group._get_backend(_CPU).abort()  # with words of its own

    def failure(self, error: Exception) -> tuple[str, tuple[int, ...]]:
        said = re.search(r"rondo ([A-Z_]+)(?: \(ranks? ([\d, ]+)\))?", str(error))
        if said is None:
            return type(error).__name__, ()
        return said[1].title().replace("_", ""), tuple(map(int, (said[2] or "").split(", "))) if said[2] else ()

    # --- collectives

    def barrier(self, group) -> None:
        dist.barrier(group)

    def sum(self, group, count: int) -> None:
        dist.all_reduce(torch.ones(count), group=group)

    def batch(self, group):
        return contextlib.nullcontext()

    def _written(self, rng, name, where, dtype, shape, memory, begins_with, type_) -> TorchArea:
        size = math.prod(shape) * type_.itemsize
        values = np.full(size, 1, np.uint8) if begins_with is None else begins_with
        begins = tensor_of(values, type_, shape)
        written = memory.made(where, lambda: Written(rng, begins, depth_of(where)))
        return TorchArea(name, dtype, written.tensor, written)

    def _read(self, rng, name, where, dtype, shape, memory, values, type_) -> TorchArea:
        given = tensor_of(values, type_, shape)
        return TorchArea(name, dtype, memory.made(where, lambda: to_read(given, rng, depth_of(where))))

    def flight(self, step, seat: Seat, slot: int, index: int, member, memory: TorchMemory) -> Flight:
        step = _plain(step)
        rng = random.Random(f"{self._life.seed} {step.line} {seat.salt} {self._rank} {index}")
        agreed = (step.line + seat.salt) % 2 == 0  # which of two forms of a call is made
        in_where, out_where = (step.of_member(key, seat.me, "p") for key in ("in", "out"))
        flight = Flight(step, None, [])
        if step.verb == "all_reduce_many":
            return self._many(flight, seat, rng, out_where, member, memory)
        s = Shape(step, seat)
        dtype, op, root = s.kind.dtype, _op(s.kind.op, seat.me), member.ranks[s.root]
        bound, (type_, per_item) = bound_of(s.kind, step, s.folds), _type_of(step, s, rng)

        def gives(shape, blocks):
            return self._read(rng, "input", in_where, dtype, shape, memory, bytes_of(blocks), type_)

        def gets(shape, blocks, begins_with=None):
            area = self._written(rng, "output", out_where, dtype, shape, memory, begins_with, type_)
            at = 0
            for block in blocks:
                area.expect(at, block, bound)
                at += block.count
            return area

        def each(make, blocks):
            return [make(shape_of(rng, block.count // per_item), [block]) for block in blocks]

        def wide(make, blocks):
            if s.uneven:
                return make([sum(block.count for block in blocks) // per_item], blocks)
            return make([len(blocks), *shape_of(rng, blocks[0].count // per_item)], blocks)

        verb, ins, outs = step.verb, [], []
        group = {"group": member.group}
        if verb == "barrier":
            call, arguments = dist.barrier, {}
        elif verb in ("all_reduce", "reduce", "broadcast"):
            begins = bytes_of(s.gives) if s.reads else None
            expected = s.gets if s.writes else []
            outs = [gets(shape_of(rng, s.gives[0].count // per_item), expected, begins)]
            call, arguments = getattr(dist, verb), {"tensor": outs[0].tensor}
            arguments |= {"op": op} if s.folds else {}
            arguments |= {} if verb == "all_reduce" else {"dst" if verb == "reduce" else "src": root}
        elif verb in ("all_gather", "all_gather_v"):
            ins = each(gives, s.gives)
            if s.uneven or agreed:
                outs = each(gets, s.gets)
                call, arguments = dist.all_gather, {"tensor_list": _tensors(outs), "tensor": ins[0].tensor}
            else:
                outs = [wide(gets, s.gets)]
                call = dist.all_gather_into_tensor
                arguments = {"output_tensor": outs[0].tensor, "input_tensor": ins[0].tensor}
        elif verb in ("reduce_scatter", "reduce_scatter_v"):
            outs = each(gets, s.gets)
            if s.uneven or agreed:
                ins = each(gives, s.gives)
                call, arguments = dist.reduce_scatter, {"output": outs[0].tensor, "input_list": _tensors(ins), "op": op}
            else:
                ins = [wide(gives, s.gives)]
                call = dist.reduce_scatter_tensor
                arguments = {"output": outs[0].tensor, "input": ins[0].tensor, "op": op}
        elif verb == "gather":
            ins, outs = each(gives, s.gives), each(gets, s.gets) if s.writes else []
            call = dist.gather
            arguments = {"tensor": ins[0].tensor, "gather_list": _tensors(outs) if s.writes else None, "dst": root}
        elif verb == "scatter":
            ins, outs = each(gives, s.gives) if s.reads else [], each(gets, s.gets)
            call = dist.scatter
            arguments = {"tensor": outs[0].tensor, "scatter_list": _tensors(ins) if s.reads else None, "src": root}
        elif agreed:
            ins, outs = each(gives, s.gives), each(gets, s.gets)
            call = dist.all_to_all
            arguments = {"output_tensor_list": _tensors(outs), "input_tensor_list": _tensors(ins)}
        else:
            ins, outs = [wide(gives, s.gives)], [wide(gets, s.gets)]
            parts = [[block.count // per_item for block in blocks] for blocks in (s.gets, s.gives)]
            sizes = {"output_split_sizes": parts[0], "input_split_sizes": parts[1]} if s.uneven else {}
            call, arguments = dist.all_to_all_single, {"output": outs[0].tensor, "input": ins[0].tensor, **sizes}
        # Inputs that are not looked at again: the call is their last owner.
        flight.areas = outs + (ins if rng.random() < 0.5 else [])
        # Registered memory may be short on a rank, whose bits may then be of another order.
        rounds = verb == "all_reduce" and (bound > 0 or s.kind.random) and "r" not in step.word("out")
        flight.bits = outs[0] if rounds else None
        flight._call = _start(call, arguments | group)
        return flight

    def _many(self, flight, seat, rng, where, member, memory) -> Flight:
        """torch takes lists of one type."""
        for t, (kind, given, gets) in enumerate(tensors_of(flight.step, seat, one_dtype=True)):
            name, shape, type_ = f"tensor {t}", shape_of(rng, given.count), _TYPES[kind.dtype]
            flight.areas.append(self._written(rng, name, where, kind.dtype, shape, memory, given.bytes(), type_))
            flight.areas[-1].expect(0, gets, bound_of(kind, flight.step, True))
        arguments = {"tensors": _tensors(flight.areas), "op": _op(kind.op, seat.me), "group": member.group}
        flight._call = _start(dist.all_reduce_coalesced, arguments)
        return flight

    # --- messages

    def area(self, name, use, where, dtype, count, memory, values=None) -> TorchArea:
        rng = random.Random(f"{self._life.seed} {use} {count} {self._rank}")
        if values is None:
            return self._written(rng, name, where, dtype, [count], memory, None, _TYPES[dtype])
        return self._read(rng, name, where, dtype, shape_of(rng, count), memory, values, _TYPES[dtype])

    def send(self, member, area, peer, tag, asynchronous, synchronous):
        where = {"dst": member.ranks[peer], "group": member.group, "tag": tag}
        if asynchronous:
            return TorchWork(dist.isend(area.tensor, **where))
        return dist.send(area.tensor, **where)

    def recv(self, member, area, peer, tag, asynchronous, probe):
        """tag: torch has none for any; the caller asks for one."""
        where = {"src": None if peer is None else member.ranks[peer], "group": member.group, "tag": tag}
        if asynchronous:
            work = dist.irecv(area.tensor, **where)
            return TorchWork(work, lambda work: (work._source_rank() if peer is None else peer, tag, None))
        return member.ranks.index(dist.recv(area.tensor, **where)), tag, None

    def sendrecv(self, member, given, to, gets, source, tag):
        ops = [
            dist.P2POp(dist.isend, given.tensor, member.ranks[to], member.group, tag),
            dist.P2POp(dist.irecv, gets.tensor, member.ranks[source], member.group, tag),
        ]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        return source, tag, None


def _tensors(areas: list[TorchArea]) -> list[torch.Tensor]:
    return [area.tensor for area in areas]


def _start(call, arguments: dict):
    def run(asynchronous):
        work = call(**arguments, async_op=asynchronous)
        arguments.clear()
        return TorchWork(work) if asynchronous else None

    return run


def _plain(step: Step) -> Step:
    """Without what torch cannot say."""
    result = copy.copy(step)
    result.values = {key: v for key, v in step.values.items() if key not in ("wire", "residual", "stochastic")}
    return result
