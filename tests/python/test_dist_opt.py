"""DistOpt: every option trains, ranks stay equal, residuals survive checkpoints and other worlds."""

import numpy as np
import pytest
from ranks import on, run, said_by, same_on_all

import rondo
from rondo.dist_opt import OPTIONS, NumpyUpdate

SIZE = 3000


def _gradients(rank, step):
    random = np.random.default_rng([rank, step])
    return {"w": random.standard_normal((SIZE, 2)).astype(np.float32), "b": random.standard_normal(7).astype(np.float32)}


def _parameters():
    return {"w": np.ones((SIZE, 2), np.float32), "b": np.zeros(7, np.float32)}


def _sgd(name, parameter, gradient):
    parameter -= np.float32(0.1) * gradient


def _exact(world, steps):
    wanted = {name: p.astype(np.float64) for name, p in _parameters().items()}
    for step in range(steps):
        for rank in range(world):
            for name, gradient in _gradients(rank, step).items():
                wanted[name] -= 0.1 * gradient.astype(np.float64) / world
    return wanted


def _train(group, option, steps, state=None, first=0, **options):
    parameters = _parameters()
    if group.rank > 0:
        parameters["w"] += 5  # the broadcast at the start makes them equal
    optimizer = rondo.DistOpt(NumpyUpdate(parameters, _sgd), group=group, option=option, bucket_bytes=8192, **options)
    if state is not None:
        for name, value in state["parameters"].items():
            parameters[name][...] = value
        optimizer.load_state_dict(state["optimizer"])
    for step in range(first, first + steps):
        optimizer.step(_gradients(group.rank, step))
    return parameters, optimizer


def _error_of(group, option, options):
    parameters, optimizer = _train(group, option, 6, **options)
    if option not in ("partialUpdate", "localSGD"):
        for parameter in parameters.values():
            same_on_all(group, parameter)
    wanted = _exact(group.size, 6)
    # What has not arrived is in the residuals.
    left = optimizer.state_dict()["residuals"]
    error = 0.0
    for name, parameter in parameters.items():
        total = parameter - 0.1 * left[name].astype(np.float64).mean(axis=0).reshape(parameter.shape)
        error = max(error, np.abs(total - wanted[name]).max())
    return float(error), optimizer.bytes_sent


BOUNDS = {"fp32": 1e-5, "fp16": 2e-3, "bf16": 2e-2, "int8": 1e-5, "sparseTopK": 1e-5, "sparseThreshold": 1e-5}


@pytest.mark.parametrize("option", BOUNDS)
@pytest.mark.parametrize("world", [1, 2, 3])
def test_updates_and_residuals_add_up(option, world):
    options = {"spars": 0.5} if option == "sparseThreshold" else {}
    for error, bytes_sent in run(world, _error_of, option, options):
        assert error < BOUNDS[option]
        assert (bytes_sent > 0) == (world > 1)


def _averages(group, option, options):
    """The mean of ranks that each add up their own gradients is the sum of the mean gradients."""
    parameters, _ = _train(group, option, 6, **options)
    for parameter in parameters.values():
        same_on_all(group, parameter)
    return max(float(np.abs(parameters[name] - wanted).max()) for name, wanted in _exact(group.size, 6).items())


@pytest.mark.parametrize(("wire", "bound"), [("bfloat16", 0.02), ("int8", 0.02), ("int4", 0.3)])
def test_changes_of_local_sgd_travel_in_a_wire_format(wire, bound):
    assert 1e-6 < max(run(2, _averages, "localSGD", {"every": 3, "outer_wire": wire})) < bound


def _local_steps(group, count, options):
    """v and w after each step, from 1 on; a step takes this rank's number off."""
    parameters = {name: np.ones(5, np.float32) for name in ("v", "w")}
    update = NumpyUpdate(parameters, lambda _, p, g: np.subtract(p, g, out=p))
    optimizer = rondo.DistOpt(update, group=group.dup(), option="localSGD", **options)
    seen = []
    for _ in range(count):
        optimizer.step({name: np.full(5, group.rank, np.float32) for name in parameters})
        seen.append([float(array[0]) for array in parameters.values()])
        group.barrier()
    return seen


def _both(*values):
    return [[value, value] for value in values]


# The mean change of a step is -0.5; all values are exact in float32.
LOCAL_STEPS = {
    "delay": (  # the third step brings the mean of the first two, -1, in the place of this rank's own
        {"every": 2, "outer_delay": 1},
        [_both(1, 1, 0, 0), _both(0, -1, -1, -2)],
    ),
    "fragments": (  # in turn; the last parameter is in the first fragment
        {"every": 2, "outer_fragments": 2},
        [[[0.5, 1], [0.5, 0], [-0.5, 0], [-0.5, -1]], [[0.5, 0], [-0.5, 0], [-0.5, -1], [-1.5, -1]]],
    ),
    "momentum": (  # velocities -0.5, -0.875 and -1.15625
        {"every": 1, "outer_lr": 0.5, "outer_momentum": 0.75},
        [_both(0.75, 0.3125, -0.265625)] * 2,
    ),
    "nesterov": (
        {"every": 1, "outer_lr": 0.5, "outer_momentum": 0.75, "outer_nesterov": True},
        [_both(0.5625, -0.015625, -0.69921875)] * 2,
    ),
}


@pytest.mark.parametrize("name", LOCAL_STEPS)
def test_options_of_local_sgd(name):
    options, wanted = LOCAL_STEPS[name]
    assert run(2, _local_steps, len(wanted[0]), options) == wanted


def test_outer_wire_is_of_local_sgd():
    assert "outer_fragments is given, and the exchange is not local SGD" in run(1, _refused, {"outer_wire": "int8"})[0]
    assert "outer_fragments is 9; it is at most every" in run(1, _refused, {"option": "localSGD", "outer_fragments": 9})[0]
    assert "outer_fragments is 0" in run(1, _refused, {"option": "localSGD", "outer_fragments": 0})[0]
    assert "outer_wire is packed" in run(1, _refused, {"option": "localSGD", "outer_wire": "packed"})[0]
    assert "'int5' is none of" in run(1, _refused, {"option": "localSGD", "outer_wire": "int5"})[0]


def _refused(group, options):
    with pytest.raises(ValueError) as refused:
        rondo.DistOpt(NumpyUpdate({"w": np.ones(5, np.float32)}, _sgd), group=group, **options)
    return str(refused.value)


def _selections(group):
    array = np.arange(300, dtype=np.float32)
    exact = group.sparse_all_reduce(array.copy(), spars=0.01)
    parts = array.copy()
    each = group.sparse_all_reduce(parts, spars=0.01, tensors=[100, 200])
    with pytest.raises(ValueError, match="select 'topp' is none of topk, threshold"):
        group.sparse_all_reduce(array, select="topp")
    with pytest.raises(rondo.Error, match="lengths is 100; it must be"):
        group.sparse_all_reduce(array, tensors=[100])
    dense = group.sparse_all_reduce(array, spars=1)
    return exact[:2], exact.route, np.flatnonzero(parts).tolist(), each.selected, dense.route


def test_selections_and_routes():
    for exact, route, chosen, each, dense in run(2, _selections):
        assert (exact, route) == ((3, 6), "gathered")
        assert (chosen, each) == ([99, 298, 299], 3)
        assert dense == "dense"


@on(2)
def test_partial_update_averages_one_partition_a_step(group):
    parameters, optimizer = _train(group, "partialUpdate", 1, partition_bytes=4)
    w, b = (group.all_gather(parameters[name].reshape(-1)) for name in ("w", "b"))
    first = (bool((w[0] == w[1]).all()), bool((b[0] == b[1]).all()))
    optimizer.step(_gradients(group.rank, 1))
    b = group.all_gather(parameters["b"])
    assert first == (True, False) and (b[0] == b[1]).all()


def _saved(group):
    parameters, optimizer = _train(group, "int8", 3)
    return {"parameters": parameters, "optimizer": optimizer.state_dict()}


def _left_after_load(group, state):
    _, optimizer = _train(group, "int8", 0, state=state)
    return {name: rows.mean(axis=0) for name, rows in optimizer.state_dict()["residuals"].items()}


def test_two_ranks_resumed_by_four_keep_what_is_left():
    state = run(2, _saved)[0]
    for left in run(4, _left_after_load, state):
        for name, rows in state["optimizer"]["residuals"].items():
            assert np.abs(rows).max() > 0
            np.testing.assert_allclose(left[name], rows.mean(axis=0), rtol=1e-6)


def _not_finite(group, option, words):
    parameters = _parameters()
    optimizer = rondo.DistOpt(NumpyUpdate(parameters, _sgd), group=group, option=option)
    gradients = _gradients(group.rank, 0)
    if group.rank == 1:
        gradients["w"][7, 1] = np.nan  # behind the 7 elements of "b" in the bucket
    with pytest.raises(rondo.NotFinite, match=words) as caught:
        optimizer.step(gradients)
    unchanged = (parameters["w"] == 1).all() and (parameters["b"] == 0).all()
    optimizer.step(_gradients(group.rank, 1))  # the group goes on
    return bool(unchanged), caught.value.ranks


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("fp16", 'element 15 of "w" is NaN on rank 1'),
        ("int8", 'element 15 of "w" is NaN on rank 1'),
        ("sparseTopK", 'element 15 of "w" of the input and residual of rank 1 is NaN'),
    ],
)
def test_nan_changes_no_parameter_and_names_gradient_and_rank(option, words):
    assert run(2, _not_finite, option, words) == [(True, (1,))] * 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"option": "fp23"}, "option 'fp23' is none of fp32, fp16"),
        ({"option": "sparseTopK", "spars": 0}, "0 would send nothing"),
        ({"option": "sparseTopK", "spars": 1.5}, "at most 1"),
        ({"option": "sparseThreshold", "spars": -1}, "0 or above"),
        ({"clip": -1}, "clip is -1"),
        ({"bucket_bytes": 0}, "bucket_bytes is 0"),
    ],
)
def test_what_cannot_be_is_refused(options, words):
    with pytest.raises(ValueError, match=words):
        rondo.DistOpt(NumpyUpdate(_parameters(), _sgd), **options)


def test_parameters_that_cannot_be_written_are_refused():
    with rondo.init(rank=0, world_size=1) as group:
        fixed = np.frombuffer(bytes(8), np.float32)
        with pytest.raises(ValueError, match="parameter w is read-only, and averages are written to it"):
            rondo.DistOpt(NumpyUpdate({"w": fixed}, _sgd), group=group)
        with pytest.raises(TypeError, match="parameter w is list; DistOpt takes NumPy arrays"):
            rondo.DistOpt(NumpyUpdate({"w": [1.0]}, _sgd), group=group)


@on(2)
def test_wrong_gradients_and_states_are_refused_before_anything_happens(group):
    parameters = _parameters()
    optimizer = rondo.DistOpt(NumpyUpdate(parameters, _sgd), group=group)
    with pytest.raises(ValueError, match="step\\(\\) of a NumpyUpdate needs the gradients"):
        optimizer.step()
    with pytest.raises(ValueError, match="there is no parameter 'c'"):
        optimizer.step({"c": np.ones(7, np.float32)})
    with pytest.raises(ValueError, match=r"the gradient of 'w' has shape \(6000,\); the parameter has \(3000, 2\)"):
        optimizer.step({"w": np.ones(2 * SIZE, np.float32)})
    fixed = np.ones((SIZE, 2), np.float32)
    fixed.flags.writeable = False
    with pytest.raises(ValueError, match="the gradient of 'w' is read-only"):
        optimizer.step({"w": fixed})
    for wrong, what in (([1.0], "list"), (np.ones((SIZE, 2), int), "int64"), (np.ones((SIZE, 2), complex), "complex128")):
        with pytest.raises(TypeError, match=f"the gradient of 'w' is {what}; .*array of floats"):
            optimizer.step({"w": wrong})
    # Strided, and of another type: the average comes back into it.
    strided = np.full((SIZE, 4), 1 + 2 * group.rank, np.float64)[:, ::2]
    optimizer.step({"w": strided})
    state = optimizer.state_dict()
    for part, value in (("residuals", np.zeros((1, 7), np.float32)), ("outer", np.zeros(6, np.float32))):
        with pytest.raises(ValueError, match=f"the checkpoint's {part} of b are"):
            optimizer.load_state_dict({**state, part: {**state[part], "b": value}})
    assert (parameters["w"] == np.float32(0.8)).all() and (strided == 2).all() and optimizer.steps == 1


def test_every_option_is_listed():
    assert set(BOUNDS) | {"partialUpdate", "localSGD"} == set(OPTIONS)


def _singa_process(rank, world, nccl_id, results):
    optimizer = rondo.DistOpt(
        NumpyUpdate(_parameters(), _sgd), nccl_id=nccl_id, local_rank=rank, world_size=world, option="fp16"
    )
    optimizer.step(_gradients(rank, 0))
    results.put((optimizer.global_rank, optimizer.world_size))


def test_processes_with_an_id_of_the_parent():
    nccl_id = rondo.NcclIdHolder()
    assert said_by("spawn", _singa_process, [(rank, 2, nccl_id) for rank in range(2)]) == [(0, 2), (1, 2)]
