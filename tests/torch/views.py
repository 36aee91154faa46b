"""Tensors that lie in many ways: random views, to read from and to write to. Used by tests/life, too."""

import torch
from made import equal


def values(rng, shape, dtype):
    """0 to 40, other ones at each index: sums of three ranks' are exact in every type."""
    generator = torch.Generator().manual_seed(rng.randrange(1 << 31))
    if dtype.is_complex:
        return torch.complex(values(rng, shape, torch.float32), values(rng, shape, torch.float32))
    return torch.randint(0, 41, tuple(shape), generator=generator).to(dtype)


def view_of(plain, rng, depth=3, exact=False):
    """A tensor of the same values by index, that lies in another way; depth 0: contiguous. exact: the same bits, too;
    torch's copies negate complex zeros with the sign of 0 - 0 or of -0, by how the memory lies."""
    kinds = ["as it is"]

    def inner(plain):
        return view_of(plain, rng, depth - 1, exact)

    if depth > 0 and plain.dim() > 0:
        kinds += ["permuted", "permuted", "sliced", "sliced", "channels last"]
    if depth > 0 and plain.is_complex():
        kinds += ["conjugate", "conjugate"]
    if depth > 0 and plain.dtype in (torch.float32, torch.float64, torch.complex64, torch.complex128):
        kinds += ["leaf"] if exact and plain.is_complex() else ["negative", "leaf"]
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


def read_view(rng, shape, dtype):
    """A tensor to read from, which may be an expanded one, or one of zeros without memory."""
    kind = rng.randrange(6)
    if kind == 0 and len(shape) > 0:
        return view_of(values(rng, [1, *shape[1:]], dtype), rng).expand(shape)
    if kind == 1 and not dtype.is_complex:
        return torch._efficientzerotensor(tuple(shape), dtype=dtype)
    return view_of(values(rng, shape, dtype), rng)


def plain(tensor):
    if tensor._is_zerotensor():
        return torch.zeros(tensor.shape, dtype=tensor.dtype)
    return tensor.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)


class Written:
    """A tensor that a call writes to. check(): it has these values, and the memory around them is as it was."""

    def __init__(self, rng, shape, dtype, begins_with=None, depth=3, exact=False):
        begins_with = values(rng, shape, dtype) if begins_with is None else begins_with
        self.tensor = view_of(begins_with, rng, depth, exact)
        self.before = self._memory().clone()

    def _memory(self):
        return torch.empty(0, dtype=self.tensor.dtype).set_(self.tensor.detach().untyped_storage())

    def check(self, expected, what):
        given = self.tensor.detach()
        equal(plain(given), expected, what)
        shadow = torch.empty(0, dtype=given.dtype).set_(
            self.before.untyped_storage(), given.storage_offset(), given.shape, given.stride()
        )
        shadow = shadow.conj() if given.is_conj() else shadow
        shadow = torch._neg_view(shadow) if given.is_neg() else shadow
        shadow.copy_(expected)
        equal(self._memory(), self.before, f"the memory around: {what}")
