"""torchrun with_lightning.py BACKEND FILE: a LightningModule, by Lightning's Trainer."""

import lightning
import model
import torch
from lightning.pytorch.strategies import DDPStrategy

backend, file, _ = model.arguments()


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.network = model.make()

    def on_train_start(self):
        model.check_backend(backend)

    def training_step(self, batch, _):
        return model.loss(self.network, *batch)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.01)


module = Module()
trainer = lightning.Trainer(
    accelerator="cpu", devices=2, strategy=DDPStrategy(process_group_backend=backend), max_epochs=1, logger=False,
    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, default_root_dir=file.parent,
)  # fmt: skip
trainer.fit(module, torch.utils.data.DataLoader(model.dataset(2), batch_size=model.BATCH))
assert trainer.global_step == model.STEPS
if trainer.is_global_zero:
    model.save(module.network.state_dict(), file)
