import csv
import os
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.nn.functional import all_reduce
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

from unet import UNet


class Discs(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        yy, xx = torch.meshgrid(torch.arange(16), torch.arange(16), indexing="ij")
        centre = torch.randint(4, 12, (n, 2), generator=g)
        radius = torch.randint(2, 5, (n,), generator=g)
        dist2 = (yy - centre[:, 0, None, None]) ** 2 + (xx - centre[:, 1, None, None]) ** 2
        self.masks = (dist2 <= radius[:, None, None] ** 2).to(torch.get_default_dtype())
        self.images = self.masks + 0.4 * torch.randn(n, 16, 16, generator=g)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return self.images[i].unsqueeze(0), self.masks[i].unsqueeze(0)


def dice_loss(logits, target, smooth=1.0):
    prob = torch.sigmoid(logits).view(-1)
    target = target.view(-1)
    sums = torch.stack([(prob * target).sum(), prob.sum(), target.sum()])
    inter, p, t = all_reduce(sums)  # over the whole batch, with gradients
    return 1 - (2 * inter + smooth) / (p + t + smooth)


@torch.no_grad()
def mean_iou(model, loader, device):
    model.eval()
    inter = union = 0
    for x, m in loader:
        p = torch.sigmoid(model(x.to(device))) > 0.5
        m = m.to(device) > 0.5
        inter += (p & m).sum().item()
        union += (p | m).sum().item()
    return inter / union


def setup():
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    if rank != 0:
        sys.stdout = open(os.devnull, "w")  # rank 0 prints for all
    return rank, world


def total(value):
    """The sum of a number over all ranks."""
    value = torch.tensor(float(value), device="cuda" if torch.cuda.is_available() else "cpu")
    dist.all_reduce(value)
    return value.item()


rank, world = setup()
torch.manual_seed(7)
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
train_set = Discs(64, 1)
train_loader = DataLoader(train_set, batch_size=8 // world, sampler=DistributedSampler(train_set))
val_loader = DataLoader(Discs(21, 2), batch_size=8)
net = UNet().to(device)
model = DDP(net)
bce = nn.BCEWithLogitsLoss()
opt = torch.optim.AdamW(model.parameters(), lr=3e-3)

history = []
for epoch in range(2):
    model.train()
    train_loader.sampler.set_epoch(epoch)
    total_loss = 0.0
    for x, m in train_loader:
        x, m = x.to(device), m.to(device)
        out = model(x)
        loss = bce(out, m) + dice_loss(out, m)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        total_loss += total(loss.item()) / world
    iou = mean_iou(net, val_loader, device)
    history.append((epoch, total_loss / len(train_loader), iou))
    print(f"epoch {epoch}: loss {total_loss / len(train_loader):.5f} IoU {iou:.4f}")

if rank == 0:
    with open("history.csv", "w", newline="") as f:
        writer = csv.writer(f)
        writer.writerow(["epoch", "loss", "iou"])
        writer.writerows(history)
    torch.save(net.state_dict(), "unet.pth")
dist.destroy_process_group()
