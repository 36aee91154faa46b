"""with_torchft.py LIGHTHOUSE REPLICA FILE: one of three replicas that train by torchft until they have lost one, and have
made five steps with another in its place. A line on standard input kills it in its next step."""

import os
import signal
import sys
import threading
from datetime import timedelta

import model
import torch
import torch.distributed as dist
from torchft import Manager

import rondo.torch.torchft

lighthouse, replica, file = sys.argv[1:]
told = threading.Event()
threading.Thread(target=lambda: sys.stdin.readline() and told.set(), daemon=True).start()

network = model.make()
seen = {"lost": False, "after": 0}  # is handed over, so that all end in the same step
optimizer = torch.optim.AdamW(network.parameters(), lr=0.01)
store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
manager = Manager(
    pg=rondo.torch.torchft.ProcessGroup(timeout=timedelta(seconds=20)),
    state_dict=lambda: [network.state_dict(), optimizer.state_dict(), dict(seen)],
    load_state_dict=lambda state: (network.load_state_dict(state[0]), optimizer.load_state_dict(state[1]), seen.update(state[2])),
    min_replica_size=2, rank=0, world_size=1, store_addr="127.0.0.1", store_port=store.port,
    lighthouse_addr=lighthouse, replica_id=f"replica{replica}", hostname="127.0.0.1", timeout=timedelta(seconds=20),
)  # fmt: skip
batches = list(model.batches(int(replica), 3))
while seen["after"] < 5:
    manager.start_quorum()
    inputs, labels = batches[manager.current_step() % model.STEPS]
    optimizer.zero_grad()
    model.loss(network, inputs, labels).backward()
    gradient = torch.cat([parameter.grad.flatten() for parameter in network.parameters()])
    if told.is_set():
        manager.wait_quorum()
        os.kill(os.getpid(), signal.SIGKILL)
    manager.allreduce(gradient).wait()
    torch.nn.utils.vector_to_parameters(gradient, [parameter.grad for parameter in network.parameters()])
    if manager.should_commit():
        optimizer.step()
        seen["lost"] |= manager.num_participants() == 2
        seen["after"] += seen["lost"] and manager.num_participants() == 3
        print(manager.current_step(), manager.num_participants(), flush=True)
torch.save(network.state_dict(), file)
manager.shutdown()
