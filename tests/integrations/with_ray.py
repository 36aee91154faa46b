"""python with_ray.py BACKEND FILE: Ray Train with two workers."""

import os

import model
import ray
import torch
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer, prepare_model


def train(config):
    model.check_backend(config["backend"])
    context = ray.train.get_context()
    network = prepare_model(model.make())
    assert isinstance(network, torch.nn.parallel.DistributedDataParallel)
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.01)
    for inputs, labels in model.batches(context.get_world_rank(), context.get_world_size()):
        optimizer.zero_grad()
        model.loss(network, inputs, labels).backward()
        optimizer.step()
    if context.get_world_rank() == 0:
        model.save(network.module.state_dict(), config["file"])


backend, file, _ = model.arguments()
names = ("PYTHONPATH", "RONDO_TORCH_CACHE", "OMP_NUM_THREADS")
environment = {name: os.environ[name] for name in names if name in os.environ}
ray.init(num_cpus=2, include_dashboard=False, runtime_env={"env_vars": environment})
TorchTrainer(
    train,
    train_loop_config={"backend": backend, "file": str(file)},
    torch_config=TorchConfig(backend=backend),
    scaling_config=ScalingConfig(num_workers=2),
    run_config=RunConfig(storage_path=str(file.parent)),
).fit()
ray.shutdown()
