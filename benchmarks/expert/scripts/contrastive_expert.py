"""The same by hand: each rank compares its own samples with the gathered views of all."""

import os

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as communicated
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main():
    torch.manual_seed(0)
    on_gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if on_gpu else "gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    views = torch.randn(256, 32)
    data = TensorDataset(views, views + 0.1 * torch.randn(256, 32))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=32 // ranks, sampler=sampler)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 16))
    model = DDP(model.to(device), gradient_as_bucket_view=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        total = torch.zeros((), device=device)
        for one, other in loader:
            a = F.normalize(model(one.to(device)), dim=1)
            b = F.normalize(model(other.to(device)), dim=1)
            others = torch.cat(communicated.all_gather(b))
            logits = a @ others.T / 0.1
            own = rank * len(a) + torch.arange(len(a), device=device)
            loss = F.cross_entropy(logits, own)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch}: loss {total.item() / ranks / len(loader):.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
