"""No number of a caller's is cut: every int and float in the signatures of the package is taken as it is, or refused with
its name, its value and the rank before anything happens. New calls are found by their signatures."""

import copy
import datetime
import inspect
import math
import pickle
import re

import numpy as np
import pytest

import rondo
from rondo import communicator, data, dist_opt
from rondo._library import OfThisProcess
from rondo.batch import Batch
from rondo.dist_opt import NumpyUpdate

X = np.zeros(2)
# What is passed for the parameters that have no default: a call of one rank, which works.
GIVEN = {
    "array": X, "arrays": [X], "parameters": [X], "out": X, "dest": 0, "source": 0, "color": 0, "ranks": [0], "shape": 2,
    "collective": "all_reduce", "count": 2, "counts": [2], "send_counts": [2], "size": 1, "rank": 0, "step": 0, "value": 1,
    "newcomers": 1,
}  # fmt: skip
WRONG_KINDS = [True, np.True_, 1.0, 1.5, np.float64(1), "1", b"1", 1j, np.array([1, 2])]
BEYOND_INT = [
    2**31, 2**32, 2**32 + 1, 2**40 + 7, -(2**31) - 1, 2**63, -(2**63), 2**64, 2**70, np.int64(2**32), np.uint64(2**63),
]  # fmt: skip
BEYOND_COUNT = [2**64, 2**64 + 2, 2**70, -(2**64)]
# Parameters that may be longer than an int: of bytes and elements, and the seed.
LONG = {"step", "digest", "count", "counts", "send_counts", "recv_counts", "tensors", "shape", "seed", "bucket_bytes", "partition_bytes", "every"}
WRONG_TIMES = [-1, -math.inf, math.nan, "3", True, 1j, datetime.timedelta(seconds=-3), [3]]


@pytest.fixture(scope="module")
def group():
    with rondo.init(rank=0, world_size=1) as group:
        group.isend(X, 0)
        GIVEN["matched"] = group.mprobe()
        yield group


def calls(group):
    for name, call in inspect.getmembers(group, inspect.isroutine):
        if not name.startswith("_") and name not in ("close", "abort"):
            yield name, call
    yield "Work.wait", group.barrier(async_op=True).wait
    yield "init", rondo.init
    yield "spawn", lambda nprocs: rondo.spawn(print, nprocs)
    yield "Wire", lambda seed: rondo.Wire("int8", seed=seed)
    yield "partition", data.partition
    yield "shuffled_fractions", data.shuffled_fractions
    yield "DistOpt", lambda **options: dist_opt.DistOpt(
        dist_opt.NumpyUpdate({"x": np.zeros(2, np.float32)}, print), group=group, **options
    )


def signature(call):
    """That of a method in C++ is its declaration's, which has annotations."""
    declared = communicator._declared.get(call.__name__) if isinstance(getattr(call, "__self__", None), rondo.Communicator) else None
    return inspect.signature(declared.__get__(call.__self__) if declared else call)


def numbers(call, kind):
    """(parameter, whether it is a list) of the call's numbers."""
    if call.__name__ == "<lambda>":
        names = signature(call).parameters
        assert kind in ("int", "float")
        listed = ["bucket_bytes", "partition_bytes", "every"] if "options" in names else list(names)
        return [(name, False) for name in listed] if kind == "int" else []
    found = []
    for parameter in signature(call).parameters.values():
        assert parameter.annotation is not inspect.Parameter.empty, (call, parameter.name)
        if re.search(rf"\b{kind}\b", parameter.annotation):
            found.append((parameter.name, f"Sequence[{kind}]" in parameter.annotation))
    return found


def call_with(call, name, value):
    parameters = signature(call).parameters.values()
    needed = {p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
    # init() wants both, and scatter's root its array.
    needed |= {p.name for p in parameters if p.name in ("rank", "array", "counts") and p.name in GIVEN} - {name}
    if name == "rank" and "world_size" in signature(call).parameters:
        return call(rank=value, world_size=1)
    if name == "world_size":
        return call(rank=0, world_size=value)
    given = {other: GIVEN[other] for other in needed - {name}}
    if call.__name__ == "sparse_all_reduce":
        given["array"] = np.zeros(2, np.float32)
    return call(**given, **{name: value})


def cases(group, kind):
    for label, call in calls(group):
        for name, is_list in numbers(call, kind):
            yield label, call, name, is_list


def refuses(label, call, name, is_list, value):
    for passed in [[value], [0, value]] if is_list else [value]:
        with pytest.raises((TypeError, rondo.Invalid)) as caught:
            call_with(call, name, passed)
        text = str(caught.value)
        assert re.search(rf"\b{name}(\[\d\])? is ", text), (label, name, passed, text)
        assert str(value) in text or repr(value) in text, (label, name, passed, text)
        if isinstance(getattr(call, "__self__", None), rondo.Communicator):
            assert "on rank 0" in text, (label, name, passed, text)


def test_whole_numbers(group):
    tried = set()
    for label, call, name, is_list in cases(group, "int"):
        tried.add((label, name))
        for value in WRONG_KINDS + (BEYOND_COUNT if name in LONG else BEYOND_INT):
            if not (name == "shape" and isinstance(value, np.ndarray)):  # a shape may be an array
                refuses(label, call, name, is_list, value)
        if is_list and name != "shape":  # which may be one number
            with pytest.raises(TypeError, match=rf"{name} is 3.* list of whole numbers"):
                call_with(call, name, 3)
    assert {("send", "tag"), ("broadcast", "root"), ("split", "color"), ("new_group", "ranks"), ("init", "rank")} <= tried
    assert len(tried) > 40
    assert group.all_reduce(np.ones(2)).tolist() == [1, 1]  # nothing has happened
    assert group.error is None


def test_numbers_of_seconds_and_factors(group):
    tried = 0
    for label, call, name, _ in cases(group, "float"):
        if name == "fractions":
            continue
        tried += 1
        for value in WRONG_TIMES if name == "timeout" else ["3", True, 1j, [3]]:
            refuses(label, call, name, False, value)
        if name != "timeout":
            refuses(label, call, name, False, np.ones(2))
        with pytest.raises(rondo.Invalid, match=f"{name}.* is beyond float64"):
            call_with(call, name, 10**400)
    assert tried > 20
    for timeout in (math.inf, 1e30, 2**80, np.float32(3), np.int64(3)):  # whole
        group.barrier(timeout=timeout)
        group.barrier(async_op=True).wait(timeout)
        with group.batch():
            group.all_reduce(X, timeout=timeout)
        group.isend(X, 0, timeout=timeout)
        group.recv(X, timeout=timeout)
        group.sparse_all_reduce(np.ones(2, np.float32), timeout=timeout)


def test_texts_have_no_nul_and_are_of_unicode(group):
    w = np.zeros(1, np.float32)
    for text, call in (
        ("algorithm is 'ring", lambda end: group.all_reduce(X, algorithm="ring" + end)),
        ("host is '127.0.0.1", lambda end: rondo.unique_id("127.0.0.1" + end)),
        ("a setting is 'RONDO_CONNECTIONS=2", lambda end: rondo.init(settings={"RONDO_CONNECTIONS": "2" + end})),
        ("a parameter's name is 'w", lambda end: rondo.DistOpt(NumpyUpdate({"w" + end: w}, print), group=group)),
    ):
        for end in ("\0x", "\udcff"):
            with pytest.raises(rondo.Invalid, match=f"{text}.*without NUL"):
                call(end)


def test_flags_are_true_or_false(group):
    with pytest.raises(ValueError, match="truth value of an array"):
        group.all_reduce(X, async_op=np.ones(2))
    assert group.all_reduce(X, async_op=np.bool_(True)).wait() is X


def test_fractions(group):
    assert rondo.data.shuffled_fractions(10, (f for f in (0.5, 0.5))) == rondo.data.shuffled_fractions(10, [0.5, 0.5])
    with pytest.raises(ValueError, match="NaN"):
        rondo.data.shuffled_fractions(10, [math.nan])


def test_numbers_of_numpy_are_taken(group):
    for one in (np.int64, np.uint8, np.int32, np.array):
        group.broadcast(X, root=one(0))
        group.isend(X, one(0), tag=one(7))
        assert group.recv(X, one(0), one(7)).tag == 7
        assert group.all_gather_v(X, [one(2)])[0].shape == (2,)
        assert group.empty(one(3)).shape == group.empty([one(3)]).shape == (3,)
    assert group.empty(np.array([2, 3])).shape == (2, 3) and group.empty(()).shape == ()
    with pytest.raises(rondo.Invalid, match=r"shape is \(4294967296, 4294967296\) on rank 0: that is"):
        group.empty((2**32, 2**32))


def test_what_stands_for_a_handle_is_neither_copied_nor_pickled(group):
    work, batch = group.barrier(async_op=True), group.batch()
    for thing in (group, work, batch):
        for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match=f"a {type(thing).__name__} stands for a handle of this process"):
                attempt(thing)
    work.wait()
    with pytest.raises(TypeError, match="stands for a handle"):
        group.all_gather_object(group)


def test_handles_are_made_by_calls_alone():
    for made in (rondo.Communicator, Batch, rondo.Work):
        assert issubclass(made, OfThisProcess)
    for handle in (5, None, object()):
        with pytest.raises(TypeError, match="a Communicator is made by"):
            rondo.Communicator(handle)
