"""The same by hand: each rank evaluates its share, and the number of correct answers is reduced once."""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.head = nn.Linear(64, 5)

    def forward(self, x):
        return self.head(self.body(x))


def evaluate(model, loader, device):
    model.eval()
    correct = torch.zeros((), device=device)
    with torch.no_grad():
        for x, y in loader:
            correct += (model(x.to(device)).argmax(1) == y.to(device)).sum()
    dist.all_reduce(correct)
    return correct.item() / len(loader.dataset)


def main():
    torch.manual_seed(0)
    on_gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if on_gpu else "gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    train_set = TensorDataset(torch.randn(256, 32), torch.randint(5, (256,)))
    test_set = TensorDataset(torch.randn(128, 32), torch.randint(5, (128,)))
    sampler = DistributedSampler(train_set)
    train_loader = DataLoader(train_set, batch_size=32 // ranks, sampler=sampler)
    test_loader = DataLoader(test_set, batch_size=64, sampler=range(rank, len(test_set), ranks))
    model = Classifier().to(device)
    for p in model.body.parameters():
        p.requires_grad = False
    model = DDP(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.module.head.parameters(), lr=1e-3)
    best = 0.0
    for epoch in range(2):
        model.train()
        sampler.set_epoch(epoch)
        for x, y in train_loader:
            loss = F.cross_entropy(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        accuracy = evaluate(model.module, test_loader, device)
        if rank == 0:
            print(f"epoch {epoch}: accuracy {accuracy:.3f}")
        if accuracy > best:
            best = accuracy
            if rank == 0:
                torch.save(model.module.state_dict(), "best.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
