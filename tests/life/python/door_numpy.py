"""A rank that uses the package rondo with NumPy arrays: the player's memory."""

from __future__ import annotations

import ctypes

import numpy as np
from life_question import Pending, Question, array_at, message_of

import rondo
import rondo.dist_opt

# Those that make their result where none is passed.
_MAKERS = ("all_gather", "reduce_scatter", "gather", "all_to_all")
_FOLD = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)


def join(asks: Question) -> NumpyGroup:
    rank, world = asks.number("rank"), asks.number("world")
    if rank >= world:  # a newcomer
        return NumpyGroup(rondo.init())
    return NumpyGroup(rondo.init(rank=rank, world_size=world, rendezvous=asks.word("meeting")))


def _op(asks: Question) -> str | rondo.UserOp:
    if not asks.number("user"):
        return asks.word("op")
    fold, context = _FOLD(asks.number("user")), asks.number("context")
    return rondo.UserOp(
        lambda a, b: fold(a.ctypes.data, b.ctypes.data, len(b), context), commutative=bool(asks.number("commutative"))
    )


def _whole(blocks: list[np.ndarray], asks: Question) -> np.ndarray | None:
    """This API has no gaps: blocks that lie apart are copied."""
    if len(blocks) <= 1:
        return blocks[0] if blocks else None
    if "displacements" in asks.values:
        return np.concatenate(blocks)
    first, count = blocks[0], sum(len(block) for block in blocks)
    return np.ndarray(count, first.dtype, (ctypes.c_char * (count * first.itemsize)).from_address(first.ctypes.data))


def _put(array: np.ndarray, blocks: list[np.ndarray]) -> None:
    at = 0
    for block in blocks:
        block[:] = array[at : at + len(block)]
        at += len(block)


class NumpyGroup:
    def __init__(self, group: rondo.Communicator):
        self._group = group
        self._registered: dict[int, np.ndarray] = {}  # by address
        self._batch: rondo.batch.Batch | None = None
        self._brings: list = []  # results of the batch to where they belong
        self._calls = 0
        self._optimizer: rondo.DistOpt | None = None

    # --- calls

    def _run(self, asks: Question, call, *arguments, bring=None, **options):
        """bring: what is called with the result of a blocking call, with None of others, when it is there."""
        if asks.number("start"):
            return Pending(call(*arguments, async_op=True, **options), bring and (lambda: bring(None)))
        result = call(*arguments, **options)
        if bring is not None and self._batch is not None:
            self._brings.append(lambda: bring(result))
        elif bring is not None:
            bring(result)
        return None

    def _collective(self, asks: Question):
        g, verb, op, root = self._group, asks.verb, _op(asks), asks.number("root")
        ins, outs = (asks.blocks(key, g.size) for key in ("in", "out"))
        x, out = _whole(ins, asks), _whole(outs, asks)
        counts = asks.numbers("counts")  # on root alone, or on all ranks
        has_out = verb != "gather" or root == g.rank
        options = {"algorithm": asks.values.get("algorithm")}
        if asks.number("timeout"):
            options["timeout"] = asks.number("timeout") / 1000
        if asks.word("op") == "premulsum":
            options["scalar"] = float(asks.number("scalar"))
        if "wire" in asks.values:
            residual = array_at(asks.number("residual"), sum(map(len, ins)), "float32")
            seed = asks.number("seed") if asks.number("stochastic") else None
            options["wire"] = rondo.Wire(asks.word("wire"), residual, seed)
        if asks.number("recoverable"):
            options["recoverable"] = True
        self._calls += 1
        bring = None
        if "displacements" in asks.values and outs:
            bring = lambda _result, to=out: _put(to, outs)
        elif verb in _MAKERS and has_out and self._calls % 3 == 0 and not asks.number("start"):
            bring, out = lambda result: _put(result.reshape(-1), outs), None
        arguments = {
            "all_reduce": (x, op, out),
            "reduce": (x, op, root, out),
            "scan": (x, op, out),
            "exscan": (x, op, out),
            "broadcast": (out, root),
            "all_gather": (x, out),
            "reduce_scatter": (x, op, out),
            "gather": (x, root, out),
            "scatter": (x, root, out),
            "all_to_all": (x, out),
            "all_gather_v": (x, counts, out),
            "reduce_scatter_v": (x, counts, op, out),
            "gather_v": (x, counts, root, out),
            "scatter_v": (x, counts, root, out),
            "all_to_all_v": (x, counts, counts, out),
        }[verb]
        return self._run(asks, getattr(g, verb), *arguments, bring=bring, **options)

    all_reduce = reduce = scan = exscan = broadcast = all_gather = reduce_scatter = gather = scatter = _collective
    all_to_all = all_gather_v = reduce_scatter_v = gather_v = scatter_v = all_to_all_v = _collective

    def barrier(self, asks: Question):
        return self._run(asks, self._group.barrier)

    def all_reduce_many(self, asks: Question):
        """This API has it in place."""
        tensors = asks.tensors()
        for given, gets in tensors:
            gets[:] = given
        options = {"scalar": float(asks.number("scalar"))} if asks.word("op") == "premulsum" else {}
        algorithm = asks.values.get("algorithm")
        arrays = [gets for _, gets in tensors]
        return self._run(asks, self._group.all_reduce_many, arrays, asks.word("op"), algorithm=algorithm, **options)

    def sparse(self, asks: Question) -> None:
        given, gets, residual = (asks.array(key, "float32") for key in ("in", "out", "residual"))
        options = {"timeout": asks.number("timeout") / 1000} if asks.number("timeout") else {}
        self._group.sparse_all_reduce(
            given, None if asks.word("in") == asks.word("out") else gets, select=asks.word("select"),
            spars=float(asks.word("spars")), residual=residual, tensors=asks.numbers("tensors"), **options,
        )  # fmt: skip

    # --- messages

    def send(self, asks: Question):
        send = self._group.isend if asks.number("start") else self._group.send
        synchronous = bool(asks.number("synchronous"))
        work = send(asks.array("in"), asks.number("root"), asks.number("tag"), synchronous=synchronous)
        return Pending(work) if asks.number("start") else None

    def recv(self, asks: Question):
        array, start, peer, tag = asks.array("out"), asks.number("start"), asks.number("root"), asks.number("tag")
        if asks.number("matched"):
            receive = self._group.imrecv if start else self._group.mrecv
            result = receive(array, rondo.Matched(peer, tag, 0, asks.number("matched")))
        else:
            result = (self._group.irecv if start else self._group.recv)(array, peer, tag)
        return Pending(result) if start else message_of(result)

    def mprobe(self, asks: Question) -> dict:
        return message_of(self._group.mprobe(asks.number("root"), asks.number("tag")))

    def sendrecv(self, asks: Question) -> dict:
        given, gets = asks.array("in"), asks.array("out")
        return message_of(self._group.sendrecv(given, asks.number("to"), gets, asks.number("root"), asks.number("tag")))

    # --- batches, which this API ends by a wait

    def batch_begin(self, _asks) -> None:
        batch = self._group.batch()
        batch.__enter__()
        self._batch = batch

    def batch_end(self, asks: Question):
        batch, self._batch = self._batch or self._group.batch(), None
        brings, self._brings = self._brings, []
        batch.__exit__(None, None, None)
        for bring in brings:
            bring()
        return Pending(Ended()) if asks.number("start") else None

    # --- groups

    def split(self, asks: Question) -> NumpyGroup | None:
        made = self._group.split(asks.number("color"), asks.number("key"))
        return None if made is None else NumpyGroup(made)

    def new_group(self, asks: Question) -> NumpyGroup:
        return NumpyGroup(self._group.new_group(asks.numbers("ranks")))

    def attach_device(self, _asks) -> None:
        self._group.attach_device()

    def shrink(self, _asks) -> None:
        self._group = self._group.shrink()

    def grow(self, asks: Question) -> None:
        self._group = self._group.grow(asks.number("newcomers"))

    def commit(self, asks: Question) -> None:
        self._group.commit(asks.number("step"), asks.number("digest"))

    def state(self, _asks) -> dict:
        return {name: getattr(self._group, name) for name in ("rank", "size", "epoch", "committed")}

    def allocate(self, asks: Question) -> dict:
        array = self._group.empty(asks.number("bytes"), np.uint8)
        self._registered[array.ctypes.data] = array
        return {"at": array.ctypes.data}

    def deallocate(self, asks: Question) -> None:
        del self._registered[asks.number("at")]

    def abort(self, asks: Question) -> None:
        self._group.abort(asks.word("reason"))

    def error(self, _asks) -> None:
        if self._group.error is not None:
            raise self._group.error

    def destroy(self, _asks) -> None:
        self._group.close()

    def forget(self) -> None:
        self._group.close()

    def train(self, _asks) -> None:
        """Three steps of DistOpt, which goes on from epoch to epoch by regroup(), beside newcomers' constructors."""
        group = self._group
        if self._optimizer is None:
            self._weights = np.full(60, 7.0 + group.rank, np.float32)
            update = rondo.dist_opt.NumpyUpdate({"w": self._weights}, lambda _, p, g: np.subtract(p, g, out=p))
            self._optimizer = rondo.DistOpt(update, group=group)
        elif self._optimizer.group is not group:
            self._optimizer.regroup(group)
        first = np.append(self._weights, np.float32(self._optimizer.steps))
        expected = group.broadcast(first.copy())
        assert np.array_equal(first, expected), f"weights and steps of DistOpt are {first}, those of rank 0 {expected}"
        for step in range(3):
            self._optimizer.step({"w": np.full(60, group.rank + step, np.float32)})
            expected += np.append(np.full(60, -((group.size - 1) / 2 + step)), 1)
        now = np.append(self._weights, self._optimizer.steps)
        assert np.allclose(now, expected, atol=1e-2), f"three steps of DistOpt made {now}, must be {expected}"


class Ended:
    """A work that is over."""

    def done(self) -> bool:
        return True

    def wait(self) -> None:
        pass

    def add_done_callback(self, function) -> None:
        function(self)
