"""torchrun with_deepspeed.py BACKEND FILE STAGE: ZeRO by DeepSpeed."""

import deepspeed
import model
import torch
import torch.distributed as dist

backend, file, (stage,) = model.arguments()
deepspeed.init_distributed(dist_backend=backend)
model.check_backend(backend)
network = model.make()
config = {
    "train_micro_batch_size_per_gpu": model.BATCH,
    "zero_optimization": {"stage": int(stage)},
    "zero_allow_untested_optimizer": True,
}
engine, _, _, _ = deepspeed.initialize(
    model=network, optimizer=torch.optim.AdamW(network.parameters(), lr=0.01), config=config
)
for inputs, labels in model.batches(dist.get_rank(), dist.get_world_size()):
    engine.backward(model.loss(engine, inputs, labels))
    engine.step()
with deepspeed.zero.GatheredParameters(list(network.parameters()), enabled=stage == "3"):
    if dist.get_rank() == 0:
        model.save(network.state_dict(), file)
dist.destroy_process_group()
