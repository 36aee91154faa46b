"""DistOpt round a torch optimizer: with buckets that overlap with the backward pass, ranks train what one process does."""

import weakref

import pytest
import ranks
import torch
from torch import nn

import rondo

STEPS, BATCH = 6, 16


def _model():
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 1))


def _batch(step):
    generator = torch.Generator().manual_seed(step)
    inputs = torch.randn(2 * BATCH, 20, generator=generator)
    return inputs, inputs.sum(dim=1, keepdim=True)


def _loss(model, inputs, targets):
    return ((model(inputs) - targets) ** 2).mean()


def _flat(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def _alone():
    model = _model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for step in range(STEPS):
        optimizer.zero_grad()
        _loss(model, *_batch(step)).backward()
        optimizer.step()
    return _flat(model)


def _two(fn, *args):
    """What fn(rank, id, *args) returns on each of two ranks that meet by an id of their parent's."""
    nccl_id = rondo.NcclIdHolder()  # serves the meeting as long as it lives
    return ranks.run(2, fn, str(nccl_id), *args)


def _dist_opt(rank, nccl_id, inner, **options):
    return rondo.DistOpt(inner, nccl_id=nccl_id, local_rank=rank, world_size=2, **options)


def _train(rank, nccl_id, option, overlap):
    model = _model()
    if rank == 1:
        with torch.no_grad():
            model[0].weight += 1  # until the broadcast
    optimizer = _dist_opt(
        rank, nccl_id, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9),
        option=option, overlap=overlap, bucket_bytes=2048, names=dict(model.named_parameters()),
    )  # fmt: skip
    own = slice(rank * BATCH, (rank + 1) * BATCH)
    for step in range(STEPS):
        inputs, targets = _batch(step)
        optimizer.zero_grad()
        _loss(model, inputs[own], targets[own]).backward()
        optimizer.step()
    assert set(optimizer.state_dict()["residuals"]) == {name for name, _ in model.named_parameters()}
    return _flat(model).tolist()  # float32 survives it


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize(("option", "bound"), [("fp32", 1e-5), ("fp16", 1e-2), ("int8", 5e-2)])
def test_two_ranks_train_what_one_process_does(option, bound, overlap):
    first, second = _two(_train, option, overlap)
    assert first == second
    torch.testing.assert_close(torch.tensor(first), _alone(), rtol=0, atol=bound)


def _twice(rank, nccl_id):
    model = _model()
    optimizer = _dist_opt(rank, nccl_id, torch.optim.SGD(model.parameters(), lr=0.05))
    _loss(model, *_batch(0)).backward()
    try:
        _loss(model, *_batch(1)).backward()
    except RuntimeError as error:
        optimizer.wait()
        return "pass overlap=False" in str(error)
    return False


def test_a_second_backward_pass_says_what_to_do():
    assert _two(_twice) == [True, True]


def _goes(rank, nccl_id):
    model = _model()
    optimizer = _dist_opt(rank, nccl_id, torch.optim.SGD(model.parameters(), lr=0.05))
    _loss(model, *_batch(0)).backward()
    optimizer.step()
    group, gone = optimizer.group, weakref.ref(optimizer)
    del optimizer
    group.close()
    for step in range(2):  # of this rank alone
        _loss(model, *_batch(step)).backward()
    return gone() is None


def test_parameters_outlive_it():
    assert _two(_goes) == [True, True]


def _options_of_steps(rank, nccl_id, option, overlap):
    model = _model()
    inner = torch.optim.SGD(model.parameters(), lr=0.05)
    optimizer = _dist_opt(rank, nccl_id, inner, option=option, overlap=overlap, bucket_bytes=2048)
    for step, other in enumerate((None, "int8", "sparseTopK", "fp32", "partialUpdate", "fp16")):
        optimizer.backward_and_update(_loss(model, *_batch(2 * step + rank)), option=other, spars=0.5)
    _loss(model, *_batch(rank)).backward()
    for other in ("sparseTopK", "localSGD") if overlap and option == "fp32" else ():
        with pytest.raises(ValueError, match="comes too late: the exchange as 'fp32' began"):
            optimizer.step(option=other)
    optimizer.step()
    return _flat(model).tolist()


@pytest.mark.parametrize("option", ["fp32", "sparseTopK"])
def test_each_step_may_have_an_option_of_its_own(option):
    both = []
    for overlap in (True, False):
        both.append(_two(_options_of_steps, option, overlap))
    assert both[0] == both[1]  # in a partial update the ranks' parameters part


def _nan_and_on(rank, nccl_id):
    model = _model()
    optimizer = _dist_opt(rank, nccl_id, torch.optim.SGD(model.parameters(), lr=0.05), option="int8")
    inputs, targets = _batch(rank)
    if rank == 1:
        targets[3] = float("nan")
    with pytest.raises(rondo.NotFinite) as caught:
        optimizer.backward_and_update(_loss(model, inputs, targets))
    optimizer.backward_and_update(_loss(model, *_batch(rank)))
    return caught.value.ranks, torch.isfinite(_flat(model)).all().item()


def test_training_goes_on_after_a_gradient_that_is_not_finite():
    assert _two(_nan_and_on) == [((1,), True)] * 2


def _frozen(rank, nccl_id, option):
    model = _model()
    with torch.no_grad():
        model[0].weight += rank  # until the broadcast
    for parameter in model[0].parameters():
        parameter.requires_grad = False
    inner = torch.optim.SGD(model.parameters(), lr=0.05, weight_decay=0.5)
    optimizer = _dist_opt(rank, nccl_id, inner, option=option, names=dict(model.named_parameters()))
    _loss(model, *_batch(rank)).backward()
    optimizer.step()
    own = _model()
    assert torch.equal(model[0].weight, own[0].weight)
    assert not torch.equal(model[2].weight, own[2].weight)
    assert "0.weight" not in optimizer.state_dict()["residuals"]
    model[0].weight.requires_grad = True
    optimizer.zero_grad()
    _loss(model, *_batch(rank)).backward()
    with pytest.raises(ValueError, match=r"0.weight needed no gradient when DistOpt was made"):
        optimizer.step()
    optimizer.wait()
    return _flat(model).tolist()


@pytest.mark.parametrize("option", ["fp32", "sparseTopK"])
def test_parameters_that_need_no_gradient_stay_as_rank_0_has_them(option):
    first, second = _two(_frozen, option)
    assert first == second


def _as_an_optimizer(group, dtype, option):
    model = _model().to(dtype)
    inner = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    optimizer = rondo.DistOpt(inner, group=group, option=option, every=2)
    rank = group.rank
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    assert isinstance(optimizer, torch.optim.Optimizer) and optimizer.param_groups is inner.param_groups
    own = slice(rank * BATCH, (rank + 1) * BATCH)
    losses = []
    for step in range(STEPS):
        inputs, targets = (each[own].to(dtype) for each in _batch(step))

        def closure(inputs=inputs, targets=targets):
            optimizer.zero_grad(set_to_none=False)
            loss = _loss(model, inputs, targets)
            loss.backward()
            return loss

        losses.append(optimizer.step(closure).item())
        scheduler.step()
    assert inner.param_groups[0]["lr"] == pytest.approx(0.05 / 8)
    state = optimizer.state_dict()
    assert set(inner.state_dict()) < set(state) and state["steps"] == STEPS
    inner.param_groups[0]["lr"] = 1.0
    optimizer.load_state_dict(state)
    assert inner.param_groups[0]["lr"] == pytest.approx(0.05 / 8) and len(optimizer.state) == len(list(model.parameters()))
    with pytest.raises(ValueError, match="parameters of a DistOpt"):
        optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(1))]})
    return _flat(model).tolist(), losses


def _as_optimizers(cases):
    group = rondo.init()
    return [_as_an_optimizer(group, *case) for case in cases]


def test_it_is_an_optimizer_to_torch():
    options = ("fp32", "int8", "sparseTopK", "localSGD")
    cases = [(dtype, option) for dtype in (torch.float32, torch.bfloat16, torch.float16) for option in options]
    # Not forked: OpenMP's threads, which 16 bits use, do not survive it.
    all_first, all_second = rondo.spawn(_as_optimizers, 2, (cases,))
    for case, first, second in zip(cases, all_first, all_second, strict=True):
        assert first[0] == second[0], case
        assert all(losses[-1] < losses[0] for losses in (first[1], second[1])), case
    for same in (4, 8):
        torch.testing.assert_close(torch.tensor(all_first[same][0]), torch.tensor(all_first[0][0]), rtol=0, atol=0.05)
