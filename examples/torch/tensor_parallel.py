"""Tensor-parallel inference: a Llama-shaped block in bfloat16, cut over the ranks, generates what the whole block does.

torchrun --nproc-per-node 2 tensor_parallel.py [--tokens 16]

Each rank has a part of the heads and of the hidden units of the MLP: torch cuts q, k, v, gate and up by columns, o and
down by rows, and adds an all_reduce after o and after down. The weights are made. Every rank also runs the whole block,
and compares.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

HIDDEN, HEADS, KV_HEADS, HEAD, MLP = 1024, 16, 8, 64, 2816
BY_COLUMNS = ("attention.q", "attention.k", "attention.v", "mlp.gate", "mlp.up")
BY_ROWS = ("attention.o", "mlp.down")


class Attention(nn.Module):
    """Grouped-query attention of one new token at a time on those before it, with rotary positions."""

    def __init__(self):
        super().__init__()
        self.q = nn.Linear(HIDDEN, HEADS * HEAD, bias=False)
        self.k = nn.Linear(HIDDEN, KV_HEADS * HEAD, bias=False)
        self.v = nn.Linear(HIDDEN, KV_HEADS * HEAD, bias=False)
        self.o = nn.Linear(HEADS * HEAD, HIDDEN, bias=False)
        self.keys, self.values = [], []

    def forward(self, x):  # (1, HIDDEN); a rank sees its own heads only
        position = len(self.keys)
        q = rotated(self.q(x).view(-1, 1, HEAD), position)
        self.keys.append(rotated(self.k(x).view(-1, 1, HEAD), position))
        self.values.append(self.v(x).view(-1, 1, HEAD))
        keys, values = torch.cat(self.keys, 1), torch.cat(self.values, 1)
        out = nn.functional.scaled_dot_product_attention(q[None], keys[None], values[None], enable_gqa=True)
        return self.o(out.reshape(1, -1))


def rotated(heads, position):
    half = HEAD // 2
    angles = position / 10000 ** (torch.arange(half) / half)
    cos, sin = angles.cos().to(heads.dtype), angles.sin().to(heads.dtype)
    first, second = heads[..., :half], heads[..., half:]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(HIDDEN, MLP, bias=False)
        self.up = nn.Linear(HIDDEN, MLP, bias=False)
        self.down = nn.Linear(MLP, HIDDEN, bias=False)

    def forward(self, x):
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.RMSNorm(HIDDEN), nn.RMSNorm(HIDDEN)
        self.attention, self.mlp = Attention(), Mlp()

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


def made_block():
    """The same on every rank."""
    torch.manual_seed(1234)
    return Block().to(torch.bfloat16).requires_grad_(False)


def cut(block, mesh):
    """Each rank keeps its part of the weights."""
    plan = {name: ColwiseParallel() for name in BY_COLUMNS} | {name: RowwiseParallel() for name in BY_ROWS}
    return parallelize_module(block, mesh, plan)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--backend", default="rondo")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group(options.backend)
    if HEADS % dist.get_world_size() or KV_HEADS % dist.get_world_size():
        raise SystemExit(f"{KV_HEADS} heads cannot be cut over {dist.get_world_size()} ranks")
    whole = made_block()
    block = cut(made_block(), init_device_mesh("cpu", (dist.get_world_size(),)))

    x = torch.randn(1, HIDDEN).to(torch.bfloat16)
    largest = 0.0
    with torch.no_grad():
        for _ in range(options.tokens):
            expected, given = whole(x), block(x)
            largest = max(largest, ((given - expected).abs().max() / expected.abs().max()).item())
            x = expected
    own = block.attention.q.weight.to_local().shape
    print(f"rank {dist.get_rank()}: {options.tokens} tokens, q is {tuple(own)} of {tuple(whole.attention.q.weight.shape)}")
    assert largest < 0.02, f"the cut block differs from the whole one by {largest:.3f} of the largest value"
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
