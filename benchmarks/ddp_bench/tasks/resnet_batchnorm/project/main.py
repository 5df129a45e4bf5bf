import torch
import torch.nn as nn
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


def train_epoch(loader, net, criterion, optimizer, device, epoch):
    losses, top1 = AverageMeter(), AverageMeter()
    net.train()
    for i, (x, y) in enumerate(loader):
        x, y = x.to(device), y.to(device)
        out = net(x)
        loss = criterion(out, y)
        losses.update(loss.item(), x.size(0))
        top1.update((out.argmax(1) == y).float().mean().item() * 100, x.size(0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (i + 1) % 4 == 0:
            print("Epoch: [%d][%d/%d] Loss %.4f Prec@1 %.3f" % (epoch, i + 1, len(loader), losses.avg, top1.avg))


def validate(loader, net, criterion, device):
    losses, top1 = AverageMeter(), AverageMeter()
    net.eval()
    with torch.no_grad():
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            out = net(x)
            losses.update(criterion(out, y).item(), x.size(0))
            top1.update((out.argmax(1) == y).float().mean().item() * 100, x.size(0))
    print(" * Loss %.4f Prec@1 %.3f" % (losses.avg, top1.avg))
    return top1.avg


if __name__ == "__main__":
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    net = resnet8().to(device)
    criterion = nn.CrossEntropyLoss().to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4, nesterov=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=EPOCHS)
    train_loader = DataLoader(textures(128, 1), batch_size=BATCH, shuffle=True, drop_last=True)
    val_loader = DataLoader(textures(50, 2), batch_size=BATCH, shuffle=False)
    best = 0
    for epoch in range(EPOCHS):
        train_epoch(train_loader, net, criterion, optimizer, device, epoch)
        acc = validate(val_loader, net, criterion, device)
        scheduler.step()
        best = max(best, acc)
        torch.save(
            {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "acc": acc, "epoch": epoch}, "ckpt.pth"
        )
    print("best accuracy: %.3f" % best)
