"""Tensors whose sums are exact in every type, and what collectives make of them, computed from all ranks' tensors."""

import torch
from torch.distributed import ReduceOp

INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
FLOATS8 = (torch.float8_e4m3fn, torch.float8_e5m2)
COMPLEX = (torch.complex64, torch.complex128)
EVERY = (*INTEGERS, *UNSIGNED, *FLOATS, *FLOATS8, *COMPLEX, torch.bool)


def made(rank, shape, dtype, salt=0):
    """Values 0, 1 and 2, different on each rank; of three ranks' float8 sums each is exact."""
    generator = torch.Generator().manual_seed(1000 * salt + rank)
    values = torch.randint(0, 3, shape, generator=generator, dtype=torch.int64, device="cpu").to(torch.get_default_device())
    if dtype.is_complex:
        return torch.complex(values.double(), (2 - values).double()).to(dtype)
    return values.to(dtype)


def of_all(world, shape, dtype, salt=0):
    return [made(rank, shape, dtype, salt) for rank in range(world)]


_FOLDS = {
    ReduceOp.SUM: torch.add,
    ReduceOp.PRODUCT: torch.mul,
    ReduceOp.MIN: torch.minimum,
    ReduceOp.MAX: torch.maximum,
    ReduceOp.BAND: torch.bitwise_and,
    ReduceOp.BOR: torch.bitwise_or,
    ReduceOp.BXOR: torch.bitwise_xor,
}


def folded(tensors, op):
    """op over the tensors, in their type."""
    dtype = tensors[0].dtype
    if dtype == torch.bool:
        return _folded_bool(tensors, op)
    wide = dtype if dtype.is_complex else torch.float64 if dtype.is_floating_point else torch.int64
    result = tensors[0].to(wide)
    for tensor in tensors[1:]:
        result = (torch.add if op == ReduceOp.AVG else _FOLDS[op])(result, tensor.to(wide))
    if op == ReduceOp.AVG:
        result = result / len(tensors) if wide != torch.int64 else result // len(tensors)
    return result.to(dtype)


def _folded_bool(tensors, op):
    stack = torch.stack(tensors)
    if op in (ReduceOp.SUM, ReduceOp.MAX, ReduceOp.BOR):
        return stack.any(0)
    if op == ReduceOp.BXOR:
        return stack.sum(0) % 2 == 1
    return stack.all(0)


def equal(given, expected, what):
    """Equal types, shapes and bits."""
    assert given.dtype == expected.dtype, f"{what}: {given.dtype}, expected {expected.dtype}"
    assert given.shape == expected.shape, f"{what}: {given.shape}, expected {expected.shape}"
    same = torch.equal(_comparable(given), _comparable(expected))
    assert same, f"{what}:\n{given}\nexpected\n{expected}"


def _comparable(tensor):
    if tensor.dtype in FLOATS8 or tensor.dtype in UNSIGNED:
        return tensor.to(torch.float64 if tensor.dtype.is_floating_point else torch.int64)
    return tensor
