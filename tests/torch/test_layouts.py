"""Values go by index, however each rank's tensors lie. Random views in every call: tests/life/views.life."""

import pytest
import ranks
import torch
import torch.distributed as dist
from made import equal

from rondo.torch import _group


@ranks.on(2)
def test_what_cannot_be_written_is_refused(rank):
    """Before anything happens, and on the rank that passed it: the others' call meets this rank's next one."""
    outputs = {
        "expanded": torch.zeros(1, 4).expand(3, 4),
        "windows": torch.zeros(14).unfold(0, 4, 2)[:3],
    }
    world = [torch.zeros(3, 4), torch.zeros(3, 4)]
    calls = (
        lambda t: dist.all_reduce(t),
        lambda t: dist.all_reduce(t, async_op=True),
        lambda t: torch.ops.rondo.all_reduce_(t),
        lambda t: dist.all_gather([t, world[1]], world[0]),
        lambda t: dist.recv(t, 0),
        lambda t: dist.broadcast(t, 0),
        lambda t: dist.reduce_scatter(t, world),
        lambda t: dist.all_reduce_coalesced([world[0], t]),
        lambda t: dist.all_to_all([world[0], t], world),
    )
    for name, output in outputs.items():
        for call in calls if rank == 1 else ():
            with pytest.raises(ValueError, match=r"\[3, 4\] and strides .* \.clone\(\)"):
                call(output)
        tensor = torch.ones(2, 2)
        dist.all_reduce(tensor)
        equal(tensor, torch.full((2, 2), 2.0), f"after {name}")
    # By as_strided, without two elements at one place, though not one dimension inside another.
    woven = torch.zeros(8).as_strided((2, 3), (3, 2))
    woven.copy_(torch.arange(6.0).reshape(2, 3) + rank)
    dist.all_reduce(woven)
    equal(woven.contiguous(), torch.arange(6.0).reshape(2, 3) * 2 + 1, "woven")
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:  # it ends by such an error: the others are told why
        store.wait(["woven"])  # an abort may overtake the end of the call before
        try:
            dist.all_reduce(outputs["expanded"])
        except ValueError as error:
            _group.extension()._leave(f"ValueError: {error}")
    else:
        store.set("woven", "ended")
        with pytest.raises(dist.DistBackendError, match=r"ABORTED \(rank 1\).*ValueError.*cannot be written"):
            dist.all_reduce(torch.ones(3, 4))


@ranks.on(2)
def test_quantized(rank):
    """torch's own functions refuse quantized tensors. Calls of the backend move their integers, by index; the scales
    are the receiver's."""
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    grid = torch.arange(12.0).reshape(3, 4) + rank
    other = torch.arange(12.0).reshape(3, 4) + 1 - rank

    def per_tensor(t):
        return torch.quantize_per_tensor(t, 0.5, 2, torch.qint8)

    def per_channel(t):
        return torch.quantize_per_channel(t, torch.tensor([0.5, 0.25, 1.0]), torch.zeros(3, dtype=torch.int64), 0, torch.quint8)

    with pytest.raises(NotImplementedError, match="QuantizedCPU"):
        dist.broadcast(per_tensor(grid), 0)
    for made in (per_tensor, per_channel):
        for lie in (lambda t: t, lambda t: t[:, 1:3], lambda t: t.t())[: 3 if made is per_tensor else 2]:
            given, expected = lie(made(grid)), lie(made(other)).int_repr()
            received = lie(made(torch.zeros(3, 4)))
            sent = backend.send([given], 1 - rank, 0)
            backend.recv([received], 1 - rank, 0).wait()
            sent.wait()
            equal(received.int_repr(), expected, f"message, {made.__name__}")
            outputs = [lie(made(torch.zeros(3, 4))) for _ in range(2)]
            backend.allgather([outputs], [given]).wait()
            equal(outputs[1 - rank].int_repr(), expected, f"all_gather, {made.__name__}")
    with pytest.raises(ValueError, match="cannot be reduced"):
        backend.allreduce([per_tensor(grid)])
    halves = torch.quantize_per_channel(grid, torch.ones(3), torch.zeros(3), 0, torch.quint4x2)
    with pytest.raises(ValueError, match="several elements in a byte"):
        backend.broadcast(halves, 0)


@ranks.on(2)
def test_autograd_is_left_alone(rank):
    """Leaves that require a gradient, dense or not, with gradients enabled and without; a loss that is reduced on the
    way to backward()."""
    for lie in (lambda t: t, lambda t: t[:, ::2]):
        for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode):
            with mode():
                leaf = torch.nn.Parameter(lie(torch.full((4, 8), rank + 1.0)))
                work = dist.all_reduce(leaf, async_op=True)
            work.wait()
            equal(leaf.detach().contiguous(), torch.full(leaf.shape, 3.0), "a leaf")
            outputs = [torch.zeros(leaf.shape) for _ in range(2)]
            dist.all_gather(outputs, leaf)
            assert not any(output.requires_grad for output in outputs)
        leaf = torch.nn.Parameter(lie(torch.full((4, 8), rank + 1.0)))
        loss = (leaf * leaf).sum()
        dist.all_reduce(loss)
        loss.backward()
        equal(leaf.grad.contiguous(), torch.full(leaf.shape, 2.0 * (rank + 1)), "the gradient")


@ranks.on(2)
def test_strides_that_only_one_rank_has(rank):
    image = torch.arange(120.0).reshape(2, 3, 4, 5)
    lies = image.contiguous(memory_format=torch.channels_last) if rank == 0 else image.clone()
    dist.all_reduce(lies)
    equal(lies.contiguous(), 2 * image, "channels last on one rank")
    shared = image.contiguous(memory_format=torch.channels_last) if rank == 0 else torch.zeros(2, 3, 4, 5)
    dist.broadcast(shared, 0)
    equal(shared.contiguous(), image, "broadcast of channels last")
    zeros = torch._efficientzerotensor((2, 3))  # without memory
    gathered = [torch.ones(2, 3) for _ in range(2)]
    dist.all_gather(gathered, zeros if rank == 0 else torch.full((2, 3), 5.0))
    equal(gathered[0], torch.zeros(2, 3), "all_gather of zeros without memory")
    equal(gathered[1], torch.full((2, 3), 5.0), "all_gather beside zeros without memory")
    for lazy in (torch.conj, torch._neg_view):
        tensor = lazy(torch.full((4,), complex(1, 2)) * (rank + 1))
        want = 3 / (rank + 1) * tensor.resolve_conj().resolve_neg()
        dist.reduce(tensor, 0)
        if rank == 0:
            equal(tensor.resolve_conj().resolve_neg(), want, f"reduce of {lazy.__name__}")
    orthogonal = torch.linalg.qr(torch.randn(5, 5, generator=torch.Generator().manual_seed(5))).Q
    received = torch.zeros(5, 5)
    if rank == 0:
        dist.send(orthogonal, 1)
    else:
        dist.recv(received, 0)
        equal(received, orthogonal.contiguous(), "Q of a QR decomposition")
