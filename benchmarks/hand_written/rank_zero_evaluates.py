import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from torch.utils.tensorboard import SummaryWriter


def accuracy_of(model, loader, device):
    model.eval()
    correct, total = 0, 0
    with torch.no_grad():
        for x, y in loader:
            correct += (model(x.to(device)).argmax(1) == y.to(device)).sum().item()
            total += y.size(0)
    model.train()
    return correct / total


def main():
    rank = int(os.environ["RANK"])
    local_rank = int(os.environ["LOCAL_RANK"])
    dist.init_process_group("gloo" if not torch.cuda.is_available() else "nccl")
    device = torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu")
    torch.manual_seed(0)
    train_set = TensorDataset(torch.randn(640, 12), torch.randint(2, (640,)))
    test_set = TensorDataset(torch.randn(64, 12), torch.randint(2, (64,)))
    sampler = DistributedSampler(train_set)
    train_loader = DataLoader(train_set, batch_size=16, sampler=sampler)
    test_loader = DataLoader(test_set, batch_size=16)
    model = DDP(nn.Linear(12, 2).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    writer = SummaryWriter() if rank == 0 else None
    best = 0.0
    for epoch in range(5):
        sampler.set_epoch(epoch)
        for x, y in train_loader:
            loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        stop = torch.zeros(1, device=device)
        if rank == 0:
            accuracy = accuracy_of(model.module, test_loader, device)
            writer.add_scalar("accuracy", accuracy, epoch)
            if accuracy > best:
                best = accuracy
                torch.save(model.module.state_dict(), "best.pt")
            if accuracy > 0.99:
                stop += 1
        dist.broadcast(stop, src=0)
        if stop.item():
            break
        dist.barrier()
    if rank != 0:
        dist.destroy_process_group()
        return
    print(f"best accuracy {best:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
