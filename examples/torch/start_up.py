"""Every way to start a group: the environment, an address, a shared file, a store of the program's.

python start_up.py [WORLD]
"""

import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def run(rank, size, folder, port):
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ.update(address, RANK=str(rank), WORLD_SIZE=str(size))
    ways = {
        "env://": {},
        "tcp://": {"init_method": f"tcp://127.0.0.1:{port + 1}", "rank": rank, "world_size": size},
        "file://": {"init_method": f"file://{folder}/file", "rank": rank, "world_size": size},
        "a store": {"store": dist.FileStore(f"{folder}/store", size), "rank": rank, "world_size": size},
    }
    for name, arguments in ways.items():
        dist.init_process_group("rondo", **arguments)
        tensor = torch.tensor(rank + 1)
        dist.all_reduce(tensor)
        dist.barrier()
        print(f"rank {rank} of {size}, by {name}: {tensor.item()}", flush=True)
        dist.destroy_process_group()


if __name__ == "__main__":
    world = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    with tempfile.TemporaryDirectory() as shared:
        mp.spawn(run, (world, shared, int(os.environ.get("MASTER_PORT", "29500"))), world)
