"""torchrun with_accelerate.py BACKEND FILE: Accelerate, with gradient clipping and gathered losses."""

import accelerate
import model
import torch

backend, file, _ = model.arguments()
# Accelerate takes gloo for CPUs, whatever InitProcessGroupKwargs says; a group that is there already it keeps.
torch.distributed.init_process_group(backend)
accelerator = accelerate.Accelerator(cpu=True)
model.check_backend(backend)
network = model.make()
network, optimizer = accelerator.prepare(network, torch.optim.AdamW(network.parameters(), lr=0.01))
for inputs, labels in model.batches(accelerator.process_index, accelerator.num_processes):
    loss = model.loss(network, inputs, labels)
    assert accelerator.gather(loss.detach().reshape(1)).shape == (2,)
    accelerator.backward(loss)
    accelerator.clip_grad_norm_(network.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
if accelerator.is_main_process:
    model.save(accelerator.unwrap_model(network).state_dict(), file)
accelerator.end_training()
