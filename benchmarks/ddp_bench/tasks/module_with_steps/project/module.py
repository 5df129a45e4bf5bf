import torch
from torch import nn


class PatchMixer(nn.Module):
    """An MLP mixer on the patches of small pictures, with its own steps."""

    def __init__(self, patch=4, dim=24, classes=3, lr=4e-3, steps=36):
        super().__init__()
        self.patch, self.lr, self.steps = patch, lr, steps
        self.embed = nn.Linear(patch * patch, dim)
        self.tokens = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4))
        self.channels = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        p = self.patch
        x = x.unfold(1, p, p).unfold(2, p, p).flatten(3).flatten(1, 2)
        x = self.embed(x)
        x = x + self.tokens(x.transpose(1, 2)).transpose(1, 2)
        return self.head((x + self.channels(x)).mean(1))

    def _shared_step(self, batch):
        x, y = batch
        logits = self(x)
        return nn.functional.cross_entropy(logits, y), (logits.argmax(1) == y).to(logits).mean()

    def training_step(self, batch, index):
        loss, accuracy = self._shared_step(batch)
        smoothness = self.embed.weight.diff(dim=1).abs().mean()
        return {"loss": loss + 0.1 * smoothness, "accuracy": accuracy}

    def validation_step(self, batch, index):
        loss, accuracy = self._shared_step(batch)
        return {"val_loss": loss, "val_accuracy": accuracy}

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.lr)
        return optimizer, torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, self.steps)
