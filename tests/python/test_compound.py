"""Calls that are made of calls: refused in a batch before anything happens, each of them; a rank that cannot go on ends the
others' waiting; what a peer says is read with bounds. Every method of a Communicator is in one of the lists."""

import inspect

import numpy as np
import pytest
from ranks import on, run

import rondo
from rondo.communicator import _PURPOSES, Exchanges
from rondo.dist_opt import NumpyUpdate

# Collected by a batch; or of this rank alone, or of the end.
COLLECTED = {
    "all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "gather", "scatter", "all_to_all", "barrier",
    "reduce_scatter_v", "scatter_v", "all_reduce_many", "send", "recv", "isend", "irecv", "sendrecv", "prepare_all_reduce",
    "mrecv", "imrecv", "scan", "exscan",
}  # fmt: skip
OF_THIS_RANK = {"algorithm_for", "metrics", "empty", "abort", "close", "shrink", "probe", "iprobe", "mprobe", "improbe"}


def compound(group):
    """By method."""
    x = np.arange(4, dtype=np.float32)
    return {
        "all_gather_v": lambda: group.all_gather_v(x),
        "gather_v": lambda: group.gather_v(x),
        "all_to_all_v": lambda: group.all_to_all_v(x, [1, 3]),
        "sparse_all_reduce": lambda: group.sparse_all_reduce(x),
        "broadcast_parameters": lambda: group.broadcast_parameters([x]),
        "batch": lambda: group.batch().__enter__(),
        "broadcast_object": lambda: group.broadcast_object({"lr": 0.1}),
        "all_gather_object": lambda: group.all_gather_object(1),
        "gather_object": lambda: group.gather_object(1),
        "scatter_object": lambda: group.scatter_object([1, 2]),
        "send_object": lambda: group.send_object(1, 0),
        "recv_object": lambda: group.recv_object(0),
        "split": lambda: group.split(0),
        "new_group": lambda: group.new_group([0, 1]),
        "dup": group.dup,
        "commit": lambda: group.commit(0),
        "grow": lambda: group.grow(1),
        "newcomers": group.newcomers,
        "attach_device": group.attach_device,
    }


def test_every_method_is_in_a_list():
    public = {name for name, _ in inspect.getmembers(rondo.Communicator, inspect.isroutine) if not name.startswith("_")}
    assert public == COLLECTED | OF_THIS_RANK | set(compound(rondo.Communicator))


@on(2)
def test_calls_made_of_calls_are_refused_in_a_batch(group):
    x, parameter = np.ones(3), np.ones(3, np.float32)
    optimizer = rondo.DistOpt(NumpyUpdate({"w": parameter}, lambda name, p, g: None), group=group)
    calls = compound(group)
    calls["DistOpt"] = lambda: rondo.DistOpt(NumpyUpdate({"w": parameter}, None), group=group)
    calls["DistOpt.step"] = lambda: optimizer.step({"w": parameter})
    calls["DistOpt.state_dict"] = optimizer.state_dict
    with group.batch():
        group.all_reduce(x)
        for name, call in calls.items():
            with pytest.raises(rondo.Invalid, match="batch"):
                call()
    assert x.tolist() == [2, 2, 2] and group.error is None and optimizer.steps == 0
    for name in ("all_gather_v", "all_gather_object"):
        assert calls[name]() is not None


def _says(group, kind):
    """Rank 1 says that it sends 2**63 rows."""
    with pytest.raises(rondo.Corrupt if group.rank == 0 else rondo.Aborted) as caught:
        if group.rank == 0:
            x = np.zeros((2, 3), np.float32)
            if kind == "all_to_all_v":
                group.all_to_all_v(x, [1, 1])
            elif kind == "object":
                group.broadcast_object(root=1)
            else:
                getattr(group, kind)(x)
        else:
            purpose = _PURPOSES["broadcast_object" if kind == "object" else kind]
            exchanges, many = Exchanges(group, purpose), np.array([2**63], np.uint64)
            if kind == "all_to_all_v":
                exchanges.all_to_all(np.array([2**63, 1], np.uint64))
            elif kind == "object":
                exchanges.broadcast(np.repeat(many, 64).view(np.uint8), root=1)
            else:
                getattr(exchanges, kind[:-2])(many)
            group.barrier()
    return str(caught.value), caught.value.ranks


@pytest.mark.parametrize("kind", ["all_gather_v", "gather_v", "all_to_all_v", "object"])
def test_counts_of_a_peer_are_bounded(kind):
    own, _ = run(2, _says, kind)
    assert f"rank 1 says that it sends {2**63} rows" in own[0] and own[1] == (1,)


@on(2)
def test_a_rank_that_cannot_go_on_lets_the_others_know(group):
    x = np.zeros(4, np.float32)
    with pytest.raises(ValueError if group.rank == 0 else rondo.Aborted):
        group.all_gather_v(x, out=np.zeros(7 if group.rank == 0 else 8, np.float32))
        group.barrier()


def _is_refused_after_the_exchange(group, name):
    x = np.zeros(4, np.float32)
    given = {"send_counts": [2, 2]} if name == "all_to_all_v" else {}
    with pytest.raises(rondo.Invalid if group.rank == 0 else rondo.Aborted, match="none such"):
        getattr(group, name)(x, **given, algorithm="none such" if group.rank == 0 else None)
        group.barrier()


@pytest.mark.parametrize("name", ["all_gather_v", "gather_v", "all_to_all_v"])
def test_a_call_that_one_rank_refuses_after_its_exchange_lets_the_others_know(name):
    run(2, _is_refused_after_the_exchange, name)


# Of the program, with the shape of the exchange: rank 1 calls it where rank 0 calls the other.
LOOKS_LIKE = {
    "all_gather_v": lambda group, x: group.all_gather(x),
    "gather_v": lambda group, x: group.gather(x),
    "all_to_all_v": lambda group, x: group.all_to_all(np.repeat(x, 2)),
    "broadcast_object": lambda group, x: group.broadcast(x, root=0),
    "all_gather_object": lambda group, x: group.all_gather(x),
}


def _against_the_programs_own(group, name):
    x = np.array([1], np.uint64)
    before = x.copy()
    with pytest.raises(rondo.Mismatch, match=name):
        compound(group)[name]() if group.rank == 0 else LOOKS_LIKE[name](group, x)
        group.barrier()  # a root of a broadcast does not wait for the others
    assert (x == before).all()


@pytest.mark.parametrize("name", LOOKS_LIKE)
def test_exchanges_match_no_call_of_the_program(name):
    run(2, _against_the_programs_own, name)


@on(2)
def test_values_match_no_array(group):
    """all_gather_object() and all_gather_v() both exchange lengths first."""
    with pytest.raises(rondo.Mismatch):
        group.all_gather_object(1) if group.rank == 0 else group.all_gather_v(np.zeros(1, np.uint8))
