"""DDP with compressed gradients: ranks stay equal, and train what they train without, within the format's error."""

import numpy as np
import pytest
import ranks
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import rondo
from rondo.torch import hooks
from rondo.torch.hooks import OPTIONS, Compression

STEPS = 8


def _train(option, dtype=torch.float32):
    torch.manual_seed(3)
    # Small buckets: DDP makes several, and makes them anew after the first step.
    model = DDP(nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 1)).to(dtype), bucket_cap_mb=0.002)
    hook = None
    if option is not None:
        hook = Compression(model, option, spars={"sparseTopK": 0.2}.get(option))
        model.register_comm_hook(hook, Compression.average)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(10 + dist.get_rank())
    for _ in range(STEPS):
        inputs = torch.randn(32, 20, generator=generator).to(dtype)
        loss = ((model(inputs) - inputs.sum(dim=1, keepdim=True)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model, hook


def _compare(rank, option, dtype=torch.float32):
    flat = torch.cat([p.detach().flatten() for p in _train(option, dtype)[0].parameters()])
    everyone = [torch.empty_like(flat) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, flat)
    equal = all(torch.equal(other, flat) for other in everyone)
    plain = torch.cat([p.detach().flatten() for p in _train(None, dtype)[0].parameters()])
    return equal, float((flat - plain).abs().max()), float(plain.abs().max())


@pytest.mark.parametrize(("option", "bound"), [("fp16", 1e-3), ("bf16", 1e-2), ("int8", 1e-2), ("sparseTopK", 0.3), ("sparseThreshold", 1e-2)])
def test_ranks_stay_equal_and_near(option, bound):
    for equal, apart, _ in ranks.run(2, _compare, option):
        assert equal
        assert 0 < apart < bound


def test_gradients_of_16_bits_go_in_wire_formats():
    for equal, apart, _ in ranks.run(2, _compare, "int8", torch.bfloat16):
        assert equal
        assert 0 < apart < 0.1


@ranks.on(2)
def test_residuals_are_by_parameter(rank):
    model, hook = _train("int8")
    names = {name for name, _ in model.module.named_parameters()}
    some = any(np.abs(values).max() > 0 for values in hook.residuals.values())
    hook.load_residuals({name: values + 1 for name, values in hook.residuals.items()})
    assert (set(hook.residuals) == names, some) == (True, True)


def _nan(rank):
    model = DDP(nn.Linear(4, 1))
    model.register_comm_hook(Compression(model, "fp16"), Compression.average)
    inputs = torch.ones(2, 4)
    if rank == 1:
        inputs[0, 2] = float("nan")
    try:
        model(inputs).sum().backward()
    except (rondo.NotFinite, RuntimeError) as error:
        return 'element 2 of "weight" is NaN on rank 1' in str(error)
    return False


def test_nan_names_gradient_and_rank():
    assert ranks.run(2, _nan) == [True, True]


def _of_a_subgroup(rank):
    group = dist.new_group([1, 2])
    return hooks._communicator(group).size if rank > 0 else None


def test_a_subgroup_meets_at_its_first_rank(monkeypatch):
    """Where MASTER_ADDR is another host's address."""
    monkeypatch.setenv("MASTER_ADDR", "192.0.2.1")  # of no host (RFC 5737)
    assert ranks.run(3, _of_a_subgroup, backend="gloo", limit=60) == [None, 2, 2]


@ranks.on(2, limit=60)
def test_a_first_rank_that_cannot_be_met_says_so_to_all(rank):
    hooks._own_address = lambda: "192.0.2.1"
    with pytest.raises(rondo.Bootstrap, match="cannot meet at rank 0 of the group: .*192.0.2.1"):
        hooks._communicator(None)


@pytest.mark.parametrize(
    ("option", "spars", "words"),
    [
        ("fp61", None, "option 'fp61' is none of fp16, bf16, int8"),
        ("sparseTopK", 0, "0 would send nothing"),
        ("sparseThreshold", float("nan"), "0 or above"),
    ],
)
def test_what_cannot_be_is_refused_at_once(option, spars, words):
    with pytest.raises(ValueError, match=words):
        Compression(None, option, spars=spars)
    assert len(OPTIONS) == 5


def test_an_error_of_another_call_stays_as_it_is():
    for text in ("all_reduce on rank 0: element 9 is NaN on rank 1", "all_reduce on rank 0: NaN"):
        error = rondo.NotFinite(text, (1,))
        assert hooks.in_gradient(error, [("b", slice(0, 7)), ("w", slice(7, 9))]) is error
