"""The same by hand: the evaluation is shared out, and all sums of an epoch are reduced together."""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def network():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    )


def evaluate(model, loader, device):
    model.eval()
    sums = torch.zeros(2, device=device)
    with torch.no_grad():
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            out = model(x)
            sums[0] += F.cross_entropy(out, y, reduction="sum")
            sums[1] += (out.argmax(1) == y).sum()
    return sums / len(loader.dataset)


def main():
    torch.manual_seed(0)
    on_gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if on_gpu else "gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    train_set = TensorDataset(torch.randn(256, 3, 16, 16), torch.randint(10, (256,)))
    test_set = TensorDataset(torch.randn(64, 3, 16, 16), torch.randint(10, (64,)))
    sampler = DistributedSampler(train_set)
    train_loader = DataLoader(train_set, batch_size=32 // ranks, sampler=sampler)
    test_loader = DataLoader(test_set, batch_size=32, sampler=range(rank, len(test_set), ranks))
    model = network().to(device)
    if on_gpu:
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    model = DDP(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler(device.type, enabled=device.type == "cuda")
    for epoch in range(2):
        model.train()
        sampler.set_epoch(epoch)
        running = torch.zeros((), device=device)
        for x, y in train_loader:
            x, y = x.to(device), y.to(device)
            optimizer.zero_grad()
            with torch.autocast(device.type, enabled=device.type == "cuda"):
                loss = F.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            running += loss.detach()
        sums = torch.stack([running / ranks / len(train_loader), *evaluate(model.module, test_loader, device)])
        dist.all_reduce(sums)
        if rank == 0:
            train, test, accuracy = sums.tolist()
            print(f"epoch {epoch}: train {train:.4f} test {test:.4f} accuracy {accuracy:.3f}")
    if rank == 0:
        torch.save(model.module.state_dict(), "cnn.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
