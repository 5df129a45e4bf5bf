import json
import os

import torch


class Callback:
    def on_batch_end(self, trainer, loss):
        pass

    def on_epoch_end(self, trainer, metrics):
        pass


class JsonLogger(Callback):
    def __init__(self, path):
        self.path = path
        os.makedirs(os.path.dirname(path), exist_ok=True)

    def on_epoch_end(self, trainer, metrics):
        with open(self.path, "a") as f:
            f.write(json.dumps({"epoch": trainer.epoch, **metrics}) + "\n")


class Checkpoints(Callback):
    """Keeps the two best, and the last."""

    def __init__(self, folder, keep=2):
        self.folder, self.keep, self.kept = folder, keep, []
        os.makedirs(folder, exist_ok=True)

    def on_epoch_end(self, trainer, metrics):
        path = os.path.join(self.folder, f"epoch{trainer.epoch}.pt")
        torch.save(trainer.state_dict(), path)
        torch.save(trainer.state_dict(), os.path.join(self.folder, "last.pt"))
        self.kept.append((metrics["val_loss"], path))
        self.kept.sort()
        for _, old in self.kept[self.keep :]:
            os.remove(old)
        self.kept = self.kept[: self.keep]


class Printer(Callback):
    def __init__(self, every=3):
        self.every = every

    def on_batch_end(self, trainer, loss):
        if trainer.step % self.every == 0:
            print(f"step {trainer.step}: {loss:.5f}")
