import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Points(Dataset):
    def __init__(self, size):
        self.x = torch.randn(size, 16)
        self.y = torch.randint(4, (size,))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


class Trainer:
    def __init__(self, model, train_data, optimizer, snapshot_path):
        self.local_rank = int(os.environ["LOCAL_RANK"])
        self.global_rank = int(os.environ["RANK"])
        self.model = model.to(self.local_rank)
        self.train_data = train_data
        self.optimizer = optimizer
        self.snapshot_path = snapshot_path
        self.epochs_run = 0
        if os.path.exists(snapshot_path):
            self._load_snapshot()
        self.model = DDP(self.model, device_ids=[self.local_rank])

    def _load_snapshot(self):
        snapshot = torch.load(self.snapshot_path, map_location=f"cuda:{self.local_rank}")
        self.model.load_state_dict(snapshot["model"])
        self.epochs_run = snapshot["epochs_run"]

    def _run_batch(self, x, y):
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def _run_epoch(self, epoch):
        size = len(next(iter(self.train_data))[0])
        print(f"[GPU{self.global_rank}] Epoch {epoch} | Batchsize: {size} | Steps: {len(self.train_data)}")
        self.train_data.sampler.set_epoch(epoch)
        for x, y in self.train_data:
            self._run_batch(x.to(self.local_rank), y.to(self.local_rank))

    def _save_snapshot(self, epoch):
        snapshot = {"model": self.model.module.state_dict(), "epochs_run": epoch}
        torch.save(snapshot, self.snapshot_path)
        print(f"Epoch {epoch} | Training snapshot saved at {self.snapshot_path}")

    def train(self, epochs):
        for epoch in range(self.epochs_run, epochs):
            self._run_epoch(epoch)
            if self.global_rank == 0 and epoch % 5 == 0:
                self._save_snapshot(epoch)


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group(backend="nccl")
    torch.manual_seed(0)
    data = Points(2048)
    model = nn.Linear(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    loader = DataLoader(data, batch_size=32, shuffle=False, sampler=DistributedSampler(data))
    Trainer(model, loader, optimizer, "snapshot.pt").train(10)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
