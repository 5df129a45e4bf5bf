import copy
import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from torch.utils.tensorboard import SummaryWriter


class Spirals(Dataset):
    def __init__(self, size, seed):
        generator = torch.Generator().manual_seed(seed)
        self.y = torch.randint(2, (size,), generator=generator)
        turn = torch.rand(size, generator=generator) * 6.28
        self.x = torch.stack([turn.cos() * (self.y + 1), turn.sin() * (self.y + 1)], dim=1)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


@dataclass
class Settings:
    epochs: int = 20
    batch_size: int = 64
    learning_rate: float = 1e-3
    snapshot: str = "snapshot.pt"
    save_every: int = 5
    ema_decay: float = 0.999


class Trainer:
    def __init__(self, model, train_set, val_set, settings):
        self.settings = settings
        self.rank = int(os.environ["RANK"])
        self.local_rank = int(os.environ["LOCAL_RANK"])
        self.device = torch.device("cuda", self.local_rank)
        self.model = model.to(self.device)
        self.ema = copy.deepcopy(self.model)
        self.epochs_run = 0
        if os.path.exists(settings.snapshot):
            self.load_snapshot()
        self.model = DDP(self.model, device_ids=[self.local_rank])
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=settings.learning_rate)
        self.sampler = DistributedSampler(train_set, shuffle=True)
        self.train_loader = DataLoader(train_set, settings.batch_size, sampler=self.sampler)
        val_sampler = DistributedSampler(val_set, shuffle=False)
        self.val_loader = DataLoader(val_set, settings.batch_size, sampler=val_sampler)
        self.writer = SummaryWriter("runs") if self.rank == 0 else None
        self.criterion = nn.CrossEntropyLoss()

    def load_snapshot(self):
        snapshot = torch.load(self.settings.snapshot, map_location=self.device)
        self.model.load_state_dict(snapshot["model"])
        self.ema.load_state_dict(snapshot["ema"])
        self.epochs_run = snapshot["epochs"]

    def save_snapshot(self, epoch):
        if self.rank == 0:
            snapshot = {"model": self.model.module.state_dict(), "ema": self.ema.state_dict(), "epochs": epoch + 1}
            torch.save(snapshot, self.settings.snapshot)
        dist.barrier()

    def update_ema(self):
        with torch.no_grad():
            for kept, new in zip(self.ema.parameters(), self.model.module.parameters()):
                kept.lerp_(new, 1 - self.settings.ema_decay)

    def run_batch(self, x, y):
        self.optimizer.zero_grad()
        loss = self.criterion(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        self.update_ema()
        return loss.detach()

    def run_epoch(self, epoch):
        self.model.train()
        self.sampler.set_epoch(epoch)
        sums = torch.zeros(2, device=self.device)
        for x, y in self.train_loader:
            x, y = x.to(self.device), y.to(self.device)
            sums[0] += self.run_batch(x, y) * len(y)
            sums[1] += len(y)
        dist.all_reduce(sums)
        return (sums[0] / sums[1]).item()

    @torch.no_grad()
    def evaluate(self):
        self.ema.eval()
        right = torch.zeros(2, device=self.device)
        for x, y in self.val_loader:
            right[0] += (self.ema(x.to(self.device)).argmax(1) == y.to(self.device)).sum()
            right[1] += len(y)
        dist.all_reduce(right, op=dist.ReduceOp.SUM)
        return (right[0] / right[1]).item()

    def train(self):
        for epoch in range(self.epochs_run, self.settings.epochs):
            loss = self.run_epoch(epoch)
            accuracy = self.evaluate()
            if self.writer is not None:
                self.writer.add_scalar("loss/train", loss, epoch)
                self.writer.add_scalar("accuracy/val", accuracy, epoch)
            if self.rank == 0:
                print(f"Epoch {epoch}: {loss:.4f} {accuracy:.4f}")
            if (epoch + 1) % self.settings.save_every == 0:
                self.save_snapshot(epoch)


def setup():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    torch.manual_seed(0)


def main():
    setup()
    model = nn.Sequential(nn.Linear(2, 64), nn.GELU(), nn.Linear(64, 2))
    trainer = Trainer(model, Spirals(10_000, seed=1), Spirals(2_000, seed=2), Settings())
    trainer.train()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
