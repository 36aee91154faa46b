"""A rank that uses torch.distributed with the backend rondo: tensors that lie in many ways, works and futures."""

from __future__ import annotations

import random

import numpy as np
import torch
import torch.distributed as dist
from life_question import Pending, Question
from torch_area import TYPES, Area, Works, shape_of

import rondo.torch

_COMPLEX = {"float32": torch.complex64, "float64": torch.complex128}
# Others call torch.view_as_real(), which takes no lazy conjugate.
_TAKE_COMPLEX = ("gather", "reduce", "reduce_scatter")
_CPU = torch.device("cpu")


def join(asks: Question) -> TorchGroup:
    torch.set_num_threads(1)
    rank = asks.number("rank")
    dist.init_process_group("rondo", init_method=asks.word("meeting"), rank=rank, world_size=asks.number("world"))
    return TorchGroup(dist.group.WORLD, random.Random(f"{asks.word('seed')} {rank}"), {})


def _op(asks: Question):
    if asks.word("op") == "premulsum":
        return dist._make_nccl_premul_sum(float(asks.number("scalar")))
    return getattr(dist.ReduceOp, asks.word("op").upper())


def _tensors(areas: list[Area]) -> list[torch.Tensor]:
    return [area.tensor for area in areas]


class TorchGroup:
    def __init__(self, group, rng: random.Random, registered: dict[int, np.ndarray]):
        """registered: memory of the job, by address, instead of which tensors of registered memory are made."""
        self._group, self._rng, self._registered = group, rng, registered
        self._ranks = dist.get_process_group_ranks(group)
        self._me = self._ranks.index(dist.get_rank())
        self._calls = 0
        self._batch: list | None = None

    # --- calls

    def _run(self, asks: Question, call, arguments: dict, areas: list[Area]):
        """areas: those whose values are looked at when the call has ended; it is the last owner of others."""
        asynchronous = self._batch is not None or bool(asks.number("start"))
        work = call(**arguments, async_op=asynchronous)
        arguments.clear()
        return self._end(asks, work, areas)

    def _end(self, asks: Question, work, areas: list[Area]):
        if self._batch is not None:
            return self._batch.append((work, areas))
        if asks.number("start"):
            return Pending(Works([work]), lambda: _bring(areas))
        return _bring(areas)

    def _area(self, blocks: list[np.ndarray], shape: list[int], type_: torch.dtype, written: bool, out=()) -> Area:
        """out: in place, the memory of the output."""
        at = (out or blocks)[0].ctypes.data
        area = Area(self._rng, blocks, shape, type_, at)
        make = area.to_write if written else area.to_read
        if not any(begin <= at < begin + len(array) for begin, array in self._registered.items()):
            return make()
        try:
            with rondo.torch.registered(group=self._group):
                return make()
        except torch.OutOfMemoryError:  # the arena has no room for it
            return make()

    def _collective(self, asks: Question):
        self._calls += 1
        agreed = self._calls % 2 == 0  # which of two forms of a call is made
        verb, rng, root = asks.verb.removesuffix("_v"), self._rng, asks.number("root")
        uneven, is_root = verb != asks.verb, root == self._me
        ins, outs = (asks.blocks(key, len(self._ranks)) for key in ("in", "out"))
        type_, per_item = self._type_of(asks, verb, [*ins, *outs])

        def each(blocks, written):
            return [self._area([block], shape_of(rng, block.size // per_item), type_, written) for block in blocks]

        def wide(blocks, written):
            shape = [sum(block.size for block in blocks) // per_item]
            if not uneven:
                shape = [len(blocks), *shape_of(rng, blocks[0].size // per_item)]
            return [self._area(blocks, shape, type_, written)]

        where = {"group": self._group}
        if verb in ("all_reduce", "reduce", "broadcast"):  # in place
            begins = outs if verb == "broadcast" else ins
            area = self._area(begins, shape_of(rng, begins[0].size // per_item), type_, True, outs)
            if verb != "reduce" or is_root:
                area.blocks = outs
            call, arguments = getattr(dist, verb), {"tensor": area.tensor}
            arguments |= {} if verb == "broadcast" else {"op": _op(asks)}
            arguments |= {} if verb == "all_reduce" else {"dst" if verb == "reduce" else "src": self._ranks[root]}
            return self._run(asks, call, arguments | where, [area])
        if verb == "all_gather" and (uneven or agreed):
            given, gets = each(ins, False), each(outs, True)
            call, arguments = dist.all_gather, {"tensor_list": _tensors(gets), "tensor": given[0].tensor}
        elif verb == "all_gather":
            given, gets = each(ins, False), wide(outs, True)
            call = dist.all_gather_into_tensor
            arguments = {"output_tensor": gets[0].tensor, "input_tensor": given[0].tensor}
        elif verb == "reduce_scatter" and (uneven or agreed):
            given, gets = each(ins, False), each(outs, True)
            call = dist.reduce_scatter
            arguments = {"output": gets[0].tensor, "input_list": _tensors(given), "op": _op(asks)}
        elif verb == "reduce_scatter":
            given, gets = wide(ins, False), each(outs, True)
            call = dist.reduce_scatter_tensor
            arguments = {"output": gets[0].tensor, "input": given[0].tensor, "op": _op(asks)}
        elif verb == "gather":
            given, gets = each(ins, False), each(outs, True) if is_root else []
            call = dist.gather
            arguments = {"tensor": given[0].tensor, "gather_list": _tensors(gets) or None, "dst": self._ranks[root]}
        elif verb == "scatter":
            given, gets = each(ins, False) if is_root else [], each(outs, True)
            call = dist.scatter
            arguments = {"tensor": gets[0].tensor, "scatter_list": _tensors(given) or None, "src": self._ranks[root]}
        elif agreed:
            given, gets = each(ins, False), each(outs, True)
            call = dist.all_to_all
            arguments = {"output_tensor_list": _tensors(gets), "input_tensor_list": _tensors(given)}
        else:
            given, gets = wide(ins, False), wide(outs, True)
            call, arguments = dist.all_to_all_single, {"output": gets[0].tensor, "input": given[0].tensor}
            if uneven:
                arguments["output_split_sizes"] = arguments["input_split_sizes"] = [block.size for block in outs]
        return self._run(asks, call, arguments | where, (given if rng.random() < 0.5 else []) + gets)

    all_reduce = reduce = broadcast = all_gather = all_gather_v = reduce_scatter = reduce_scatter_v = _collective
    gather = scatter = all_to_all = all_to_all_v = _collective

    def _type_of(self, asks: Question, verb: str, blocks: list[np.ndarray]) -> tuple[torch.dtype, int]:
        """The type of a call's tensors, and how many of the player's elements one of theirs is: complex: two."""
        dtype = asks.word("dtype")
        linear = verb == "gather" or asks.word("op") in ("sum", "avg")
        even = all(block.size % 2 == 0 for block in blocks)
        if dtype not in _COMPLEX or verb not in _TAKE_COMPLEX or not linear or not even or self._rng.random() < 0.5:
            return TYPES[dtype], 1
        return _COMPLEX[dtype], 2

    def all_reduce_many(self, asks: Question):
        areas = []
        for given, gets in asks.tensors():
            type_ = TYPES[given.dtype.name.replace("float8_e4m3fn", "float8_e4m3")]
            areas.append(self._area([given], shape_of(self._rng, given.size), type_, True, [gets]))
            areas[-1].blocks = [gets]
        arguments = {"tensors": _tensors(areas), "op": _op(asks), "group": self._group}
        return self._run(asks, dist.all_reduce_coalesced, arguments, areas)

    def barrier(self, asks: Question):
        return self._run(asks, dist.barrier, {"group": self._group}, [])

    # --- messages

    def send(self, asks: Question):
        given = asks.array("in")
        area = self._area([given], shape_of(self._rng, given.size), TYPES[asks.word("dtype")], False)
        send = dist.isend if self._batch is not None or asks.number("start") else dist.send
        dst = self._ranks[asks.number("root")]
        return self._end(asks, send(area.tensor, dst=dst, group=self._group, tag=asks.number("tag")), [area])

    def recv(self, asks: Question):
        gets, peer, tag = asks.array("out"), asks.number("root"), asks.number("tag")
        area = self._area([gets], [gets.size], TYPES[asks.word("dtype")], True)
        src = None if peer < 0 else self._ranks[peer]
        if self._batch is not None:
            return self._end(asks, dist.irecv(area.tensor, src=src, group=self._group, tag=tag), [area])
        if asks.number("start"):
            return Receive(dist.irecv(area.tensor, src=src, group=self._group, tag=tag), area, peer, tag)
        source = dist.recv(area.tensor, src=src, group=self._group, tag=tag)
        area.bring()
        return {"peer": self._ranks.index(source), "tag": tag}

    def sendrecv(self, asks: Question) -> dict:
        given, gets = asks.array("in"), asks.array("out")
        type_, peer, tag = TYPES[asks.word("dtype")], asks.number("root"), asks.number("tag")
        areas = [
            self._area([given], shape_of(self._rng, given.size), type_, False),
            self._area([gets], [gets.size], type_, True),
        ]
        peers = self._ranks[asks.number("to")], self._ranks[peer]
        ops = [
            dist.P2POp(call, area.tensor, other, self._group, tag)
            for call, area, other in zip((dist.isend, dist.irecv), areas, peers, strict=True)
        ]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        _bring(areas)
        return {"peer": peer, "tag": tag}

    # --- batches: torch has none of any calls; they are started in this order

    def batch_begin(self, _asks) -> None:
        self._batch = []

    def batch_end(self, asks: Question):
        started, self._batch = self._batch, None
        works, areas = [work for work, _ in started], [area for _, some in started for area in some]
        pending = Pending(Works(works), lambda: _bring(areas))
        return pending if asks.number("start") else pending.wait(asks)

    # --- groups

    def split(self, asks: Question) -> TorchGroup | None:
        """The group of the job, whose ranks it keeps in order. torch makes groups of ranks that all ranks know."""
        mine = torch.tensor([asks.number("color")])
        colors = [torch.empty_like(mine) for _ in self._ranks]
        dist.all_gather(colors, mine, group=self._group)
        found = None
        for color in sorted({int(color) for color in colors if color >= 0}):
            made = dist.new_group([rank for rank, other in zip(self._ranks, colors, strict=True) if other == color])
            if color == mine:
                found = TorchGroup(made, random.Random(self._rng.random()), self._registered)
        return found

    def state(self, _asks) -> dict:
        return {"rank": self._me, "size": len(self._ranks)}

    def allocate(self, asks: Question) -> dict:
        array = np.empty(asks.number("bytes"), np.uint8)
        self._registered[array.ctypes.data] = array
        return {"at": array.ctypes.data}

    def deallocate(self, asks: Question) -> None:
        del self._registered[asks.number("at")]

    def abort(self, _asks) -> None:
        self._group._get_backend(_CPU).abort()  # with words of its own

    def destroy(self, _asks) -> None:
        dist.destroy_process_group(self._group)

    def forget(self) -> None:
        dist.destroy_process_group(self._group)


class Receive(Pending):
    def __init__(self, work, area: Area, peer: int, tag: int):
        super().__init__(work, area.bring)
        self._peer, self._tag = peer, tag

    def wait(self, asks) -> dict:
        super().wait(asks)
        return {"peer": self._work._source_rank() if self._peer < 0 else self._peer, "tag": self._tag}


def _bring(areas: list[Area]) -> None:
    for area in areas:
        area.bring()
