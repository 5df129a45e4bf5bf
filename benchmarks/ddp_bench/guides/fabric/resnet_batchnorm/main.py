import os

import torch
import torch.nn as nn
from lightning_fabric import Fabric
from torch.utils.data import DataLoader, TensorDataset

from models import resnet8

EPOCHS = 2
BATCH = 16


class AverageMeter:
    def __init__(self):
        self.reset()

    def reset(self):
        self.sum = self.count = 0

    def update(self, val, n=1):
        self.sum += val * n
        self.count += n

    @property
    def avg(self):
        return self.sum / max(self.count, 1)


def textures(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 4, (n,), generator=g)
    t = torch.linspace(0, 6.28, 12)
    waves = torch.stack([torch.sin(t * (1 + k)) for k in range(4)])
    x = waves[y][:, None, None, :] + 0.5 * torch.randn(n, 3, 12, 12, generator=g)
    return TensorDataset(x, y)


def train_epoch(fabric, loader, net, criterion, optimizer, device, epoch):
    losses, top1 = AverageMeter(), AverageMeter()
    net.train()
    for i, (x, y) in enumerate(loader):
        x, y = x.to(device), y.to(device)
        out = net(x)
        loss = criterion(out, y)
        right = (out.argmax(1) == y).to(loss).mean()
        losses.update(fabric.all_reduce(loss.detach()).item(), BATCH)
        top1.update(fabric.all_reduce(right).item() * 100, BATCH)
        optimizer.zero_grad()
        fabric.backward(loss)
        optimizer.step()
        if (i + 1) % 4 == 0:
            fabric.print("Epoch: [%d][%d/%d] Loss %.4f Prec@1 %.3f" % (epoch, i + 1, len(loader), losses.avg, top1.avg))


def validate(fabric, loader, net, criterion, device):
    losses, top1 = AverageMeter(), AverageMeter()
    net.eval()
    with torch.no_grad():
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            out = net(x)
            losses.update(criterion(out, y).item(), x.size(0))
            top1.update((out.argmax(1) == y).float().mean().item() * 100, x.size(0))
    fabric.print(" * Loss %.4f Prec@1 %.3f" % (losses.avg, top1.avg))
    return top1.avg


if __name__ == "__main__":
    torch.manual_seed(0)
    fabric = Fabric(accelerator="auto", devices=int(os.environ["WORLD_SIZE"]), strategy="ddp")
    fabric.launch()
    device = fabric.device
    net = nn.SyncBatchNorm.convert_sync_batchnorm(resnet8()).to(device)
    criterion = nn.CrossEntropyLoss().to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4, nesterov=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=EPOCHS)
    train_loader = DataLoader(textures(128, 1), batch_size=BATCH // fabric.world_size, shuffle=True, drop_last=True)
    val_loader = DataLoader(textures(50, 2), batch_size=BATCH, shuffle=False)
    net, optimizer = fabric.setup(net, optimizer)
    train_loader = fabric.setup_dataloaders(train_loader)
    best = 0
    for epoch in range(EPOCHS):
        train_epoch(fabric, train_loader, net, criterion, optimizer, device, epoch)
        acc = validate(fabric, val_loader, net, criterion, device)
        scheduler.step()
        best = max(best, acc)
        fabric.save(
            "ckpt.pth", {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "acc": acc, "epoch": epoch}
        )
    fabric.print("best accuracy: %.3f" % best)
