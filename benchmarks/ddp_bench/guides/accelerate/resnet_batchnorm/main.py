import torch
import torch.nn as nn
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
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


def train_epoch(accelerator, loader, net, criterion, optimizer, device, epoch):
    losses, top1 = AverageMeter(), AverageMeter()
    net.train()
    for i, (x, y) in enumerate(loader):
        x, y = x.to(device), y.to(device)
        out = net(x)
        loss = criterion(out, y)
        all_out, all_y = accelerator.gather((out.detach(), y))
        losses.update(accelerator.reduce(loss.detach(), "mean").item(), all_y.size(0))
        top1.update((all_out.argmax(1) == all_y).float().mean().item() * 100, all_y.size(0))
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        if (i + 1) % 4 == 0:
            accelerator.print("Epoch: [%d][%d/%d] Loss %.4f Prec@1 %.3f" % (epoch, i + 1, len(loader), losses.avg, top1.avg))


def validate(accelerator, loader, net, criterion, device):
    losses, top1 = AverageMeter(), AverageMeter()
    net.eval()
    with torch.no_grad():
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            out, y = accelerator.gather_for_metrics((net(x), y))
            losses.update(criterion(out, y).item(), y.size(0))
            top1.update((out.argmax(1) == y).float().mean().item() * 100, y.size(0))
    accelerator.print(" * Loss %.4f Prec@1 %.3f" % (losses.avg, top1.avg))
    return top1.avg


if __name__ == "__main__":
    torch.manual_seed(0)
    accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(split_batches=True))
    device = accelerator.device
    net = nn.SyncBatchNorm.convert_sync_batchnorm(resnet8()).to(device)
    criterion = nn.CrossEntropyLoss().to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4, nesterov=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=EPOCHS)
    train_loader = DataLoader(textures(128, 1), batch_size=BATCH, shuffle=True, drop_last=True)
    val_loader = DataLoader(textures(50, 2), batch_size=BATCH, shuffle=False)
    net, optimizer, train_loader, val_loader, scheduler = accelerator.prepare(
        net, optimizer, train_loader, val_loader, scheduler
    )
    best = 0
    for epoch in range(EPOCHS):
        train_epoch(accelerator, train_loader, net, criterion, optimizer, device, epoch)
        acc = validate(accelerator, val_loader, net, criterion, device)
        scheduler.step()
        best = max(best, acc)
        accelerator.save(
            {"net": accelerator.unwrap_model(net).state_dict(), "optimizer": optimizer.state_dict(), "acc": acc, "epoch": epoch}, "ckpt.pth"
        )
    accelerator.print("best accuracy: %.3f" % best)
