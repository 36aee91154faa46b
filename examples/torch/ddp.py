"""DDP on CPUs, started by torchrun or by itself.

torchrun --nproc-per-node 2 ddp.py --max_epochs 2 --batch_size 32
python ddp.py --spawn 2 --max_epochs 2 --batch_size 32

2048 made samples, of which each rank takes a part by a DistributedSampler, and one linear layer with a squared error. (By
cross entropy over its one output, as some notebooks have it, every gradient is 0, and nothing is learned.)
"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def made_data():
    """The same on all ranks: the sampler gives each its part."""
    generator = torch.Generator().manual_seed(7)
    inputs = torch.rand(2048, 20, generator=generator)
    return TensorDataset(inputs, inputs.sum(1, keepdim=True) / 10 + torch.rand(2048, 1, generator=generator) / 10)


def train(options):
    torch.set_num_threads(1)
    rank = dist.get_rank()
    data = made_data()
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(20, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, batch_size=options.batch_size, sampler=sampler)
    for epoch in range(options.max_epochs):
        sampler.set_epoch(epoch)  # another shuffle each epoch
        total = torch.zeros(1)
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            loss.backward()
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total, dist.ReduceOp.AVG)
        print(
            f"[rank {rank}] Epoch {epoch} | Batchsize: {options.batch_size} | Steps: {len(loader)} | "
            f"Loss: {total.item() / len(loader):.4f}",
            flush=True,
        )
    if rank == 0 and options.save:
        torch.save(model.module.state_dict(), options.save)


def spawned(rank, size, options):
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29500")
    dist.init_process_group("rondo", rank=rank, world_size=size)
    train(options)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--max_epochs", type=int, default=2)
    parser.add_argument("--batch_size", type=int, default=32, help="of each rank")
    parser.add_argument("--spawn", type=int, metavar="RANKS", help="start the ranks here, without torchrun")
    parser.add_argument("--save", metavar="FILE", help="where rank 0 writes the trained parameters")
    options = parser.parse_args()
    if options.spawn:
        mp.spawn(spawned, (options.spawn, options), options.spawn)
    else:
        dist.init_process_group("rondo")
        train(options)
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
