"""Tensors that lie in many ways: random views, to read from and to write to."""

import sys
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).parents[2] / "torch"))
from made import equal  # noqa: E402


def view_of(plain, rng, depth):
    """A tensor of the same bits by index, that lies in another way; depth 0: contiguous. No negative view of complex
    numbers: torch's copies negate their zeros with the sign of 0 - 0 or of -0, by how the memory lies."""
    kinds = ["as it is"]

    def inner(plain):
        return view_of(plain, rng, depth - 1)

    if depth > 0 and plain.dim() > 0:
        kinds += ["permuted", "permuted", "sliced", "sliced", "channels last"]
    if depth > 0 and plain.is_complex():
        kinds += ["conjugate", "conjugate"]
    if depth > 0 and plain.dtype in (torch.float32, torch.float64, torch.complex64, torch.complex128):
        kinds += ["leaf"] if plain.is_complex() else ["negative", "leaf"]
    kind = rng.choice(kinds)
    if kind == "permuted":
        order = rng.sample(range(plain.dim()), plain.dim())
        back = [order.index(d) for d in range(plain.dim())]
        return inner(plain.permute(order).contiguous()).permute(back)
    if kind == "sliced":
        dim = rng.randrange(plain.dim())
        shape = list(plain.shape)
        shape[dim] = 2 * shape[dim] + 1
        wide = torch.full(shape, 77).to(plain.dtype)
        wide.transpose(0, dim)[1::2] = plain.transpose(0, dim)
        return inner(wide).transpose(0, dim)[1::2].transpose(0, dim)
    if kind == "channels last" and plain.dim() == 4:
        return plain.clone().contiguous(memory_format=torch.channels_last)
    if kind == "conjugate":
        return inner(plain.conj().resolve_conj()).conj()
    if kind == "negative":
        return torch._neg_view(inner(-plain))
    if kind == "leaf":
        return inner(plain).detach().requires_grad_()
    return plain.clone()


def plain(tensor):
    return tensor.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)


class Written:
    """A tensor that a call writes to. check_around(): the memory around its elements is as it was."""

    def __init__(self, rng, begins_with, depth):
        self.tensor = view_of(begins_with, rng, depth)
        self.before = self._memory().clone()

    def _memory(self):
        return torch.empty(0, dtype=self.tensor.dtype).set_(self.tensor.detach().untyped_storage())

    def check_around(self):
        given = self.tensor.detach()
        shadow = torch.empty(0, dtype=given.dtype).set_(
            self.before.untyped_storage(), given.storage_offset(), given.shape, given.stride()
        )
        shadow = shadow.conj() if given.is_conj() else shadow
        shadow = torch._neg_view(shadow) if given.is_neg() else shadow
        shadow.copy_(plain(given))
        equal(self._memory(), self.before, "the memory around a tensor")
