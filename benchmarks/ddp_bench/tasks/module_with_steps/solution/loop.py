import json
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Callback:
    def on_epoch_end(self, trainer, module):
        pass


class Checkpoint(Callback):
    """Keeps the weights of the best epoch by a monitored value."""

    def __init__(self, monitor, mode="max", path="best.ckpt"):
        self.monitor, self.sign, self.path, self.best = monitor, 1 if mode == "max" else -1, path, None

    def on_epoch_end(self, trainer, module):
        value = self.sign * trainer.logged[self.monitor]
        if self.best is None or value > self.best:
            self.best = value
            if dist.get_rank() == 0:
                torch.save({"epoch": trainer.epoch, "state_dict": module.state_dict(), self.monitor: self.sign * value}, self.path)


class JsonLogger(Callback):
    def __init__(self, path="metrics.json"):
        self.path, self.rows = Path(path), []

    def on_epoch_end(self, trainer, module):
        self.rows.append({"epoch": trainer.epoch, **trainer.logged})
        if dist.get_rank() == 0:
            self.path.write_text(json.dumps(self.rows, indent=1))


class Step(torch.nn.Module):
    """A module's training step as its forward, for DistributedDataParallel to go through."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, batch, index):
        return self.module.training_step(batch, index)


class Fit:
    """A loop for modules that know their own steps."""

    def __init__(self, max_epochs, callbacks=()):
        self.max_epochs, self.callbacks = max_epochs, callbacks
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.logged, self.epoch = {}, 0

    def _run(self, module, loader, step):
        sums, seen = {}, 0
        for index, batch in enumerate(loader):
            batch = [part.to(self.device) for part in batch]
            for name, value in step(batch, index).items():
                sums[name] = sums.get(name, 0.0) + float(value) * len(batch[0])
            seen += len(batch[0])
        values = torch.tensor([*sums.values(), float(seen)], device=self.device)
        dist.all_reduce(values)
        self.logged.update({name: value / values[-1].item() for name, value in zip(sums, values.tolist())})

    def fit(self, module, train_loader, val_loader):
        module.to(self.device)
        optimizer, scheduler = module.configure_optimizers()

        wrapped = DDP(Step(module))

        def training_step(batch, index):
            metrics = wrapped(batch, index)
            optimizer.zero_grad()
            metrics["loss"].backward()
            optimizer.step()
            scheduler.step()
            return {f"train_{name}": value.detach() for name, value in metrics.items()}

        for self.epoch in range(self.max_epochs):
            wrapped.train()
            train_loader.sampler.set_epoch(self.epoch)
            self._run(module, train_loader, training_step)
            module.eval()
            with torch.no_grad():
                self._run(module, val_loader, module.validation_step)
            print(f"epoch {self.epoch}: " + " ".join(f"{name}={value:.5f}" for name, value in self.logged.items()))
            for callback in self.callbacks:
                callback.on_epoch_end(self, module)
