"""The same by hand: the three sums of the loss are reduced together, and its value is that of all ranks."""

import os

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as communicated
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def dice_loss(logits, masks):
    probabilities = logits.sigmoid()
    own = torch.stack([(probabilities * masks).sum(), probabilities.sum() + masks.sum()])
    overlap, size = communicated.all_reduce(own)
    return 1 - 2 * overlap / (size + 1e-6)


def main():
    torch.manual_seed(0)
    on_gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if on_gpu else "gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    data = TensorDataset(torch.randn(128, 1, 16, 16), (torch.rand(128, 1, 16, 16) > 0.7).float())
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=16 // ranks, sampler=sampler)
    model = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 1, 3, padding=1))
    model = DDP(model.to(device), gradient_as_bucket_view=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        total = torch.zeros((), device=device)
        for images, masks in loader:
            loss = dice_loss(model(images.to(device)), masks.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        if rank == 0:
            print(f"epoch {epoch}: dice loss {total.item() / len(loader):.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
