import os
from collections import deque

import torch
import torch.nn as nn
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from torch.utils.data import DataLoader, Dataset

from metrics import RunningConfusion

CLASSES, IGNORE = 4, 255
PALETTE = torch.tensor([[0, 0, 0], [220, 20, 60], [0, 130, 0], [70, 70, 250]], dtype=torch.uint8)


class Streets(Dataset):
    """Bands of ground, wall and sky with a sign in them; borders and some corners are not labelled."""

    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.items = []
        colours = torch.rand(CLASSES, 3, generator=torch.Generator().manual_seed(0))
        for _ in range(n):
            label = torch.zeros(12, 12, dtype=torch.long)
            ground, wall = torch.randint(6, 10, (1,), generator=g), torch.randint(2, 6, (1,), generator=g)
            label[wall:ground], label[ground:] = 1, 2
            y, x = torch.randint(0, 8, (2,), generator=g)
            label[y : y + 4, x : x + 3] = 3
            image = colours[label].permute(2, 0, 1) + 0.25 * torch.randn(3, 12, 12, generator=g)
            label[:, : torch.randint(0, 5, (1,), generator=g)] = IGNORE
            self.items.append((image, label))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


class FCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 12, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(12, 24, 3, padding=1), nn.ReLU())
        self.score = nn.Conv2d(24, CLASSES, 1)
        self.aux = nn.Conv2d(24, CLASSES, 1)

    def forward(self, x):
        features = self.down(x)
        up = [nn.functional.interpolate(head(features), size=x.shape[2:], mode="bilinear", align_corners=False) for head in (self.score, self.aux)]
        return tuple(up) if self.training else up[0]


def save_picture(path, predicted):
    """A portable pixmap of predictions side by side."""
    rows = torch.cat(list(PALETTE[predicted]), dim=1)
    with open(path, "wb") as f:
        f.write(b"P6 %d %d 255\n" % (rows.shape[1], rows.shape[0]))
        f.write(rows.numpy().tobytes())


class SmoothedValue:
    def __init__(self, window=5):
        self.window, self.total, self.count = deque(maxlen=window), 0.0, 0

    def update(self, value, n=1):
        self.window.append(value)
        self.total += value * n
        self.count += n

    def __str__(self):
        return f"{sum(self.window) / len(self.window):.4f} ({self.total / self.count:.4f})"


def validate(accelerator, model, loader, device, picture):
    model.eval()
    running = RunningConfusion(CLASSES, IGNORE)
    with torch.no_grad():
        for i, (images, labels) in enumerate(loader):
            predicted = model(images.to(device)).argmax(1).cpu()
            running.update(labels.numpy(), predicted.numpy())
            if i == 0 and accelerator.is_main_process:
                save_picture(picture, predicted[:4])
    return running.scores()


def main():
    torch.manual_seed(10)
    accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(split_batches=True))
    device = accelerator.device
    os.makedirs("pictures", exist_ok=True)
    train_loader = DataLoader(Streets(64, 1), batch_size=8, shuffle=True)
    val_loader = DataLoader(Streets(22, 2), batch_size=8)
    model = FCN().to(device)
    criterion = nn.CrossEntropyLoss(ignore_index=IGNORE)
    optimizer = torch.optim.SGD(
        [{"params": model.down.parameters()}, {"params": [*model.score.parameters(), *model.aux.parameters()], "lr": 0.2}], lr=0.1, momentum=0.9
    )
    iterations = 3 * len(train_loader)
    scheduler = torch.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=iterations, power=0.9)
    model, optimizer, train_loader, scheduler = accelerator.prepare(model, optimizer, train_loader, scheduler)
    best = 0.0
    for epoch in range(3):
        model.train()
        meter = SmoothedValue()
        for images, labels in train_loader:
            images, labels = images.to(device), labels.to(device)
            out, aux = model(images)
            loss = criterion(out, labels) + 0.4 * criterion(aux, labels)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()
            meter.update(accelerator.reduce(loss.detach(), "mean").item())
        scores = validate(accelerator, model, val_loader, device, f"pictures/{epoch}.ppm")
        accelerator.print(f"epoch {epoch} loss {meter} lr {scheduler.get_last_lr()[0]:.5f}")
        accelerator.print(f"  pixel accuracy {scores['pixel accuracy']:.4f} mean IoU {scores['mean IoU']:.4f} classes " + " ".join(f"{v:.3f}" for v in scores["IoU"]))
        if scores["mean IoU"] > best:
            best = scores["mean IoU"]
            accelerator.save({"epoch": epoch, "model": accelerator.unwrap_model(model).state_dict(), "IoU": scores["IoU"]}, "best_fcn.pth")


if __name__ == "__main__":
    main()
