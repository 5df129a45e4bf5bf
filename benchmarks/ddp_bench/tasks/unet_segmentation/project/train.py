import csv

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

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
    inter = (prob * target).sum()
    return 1 - (2 * inter + smooth) / (prob.sum() + target.sum() + smooth)


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


torch.manual_seed(7)
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
train_loader = DataLoader(Discs(64, 1), batch_size=8, shuffle=True)
val_loader = DataLoader(Discs(21, 2), batch_size=8)
model = UNet().to(device)
bce = nn.BCEWithLogitsLoss()
opt = torch.optim.AdamW(model.parameters(), lr=3e-3)

history = []
for epoch in range(2):
    model.train()
    total = 0.0
    for x, m in train_loader:
        x, m = x.to(device), m.to(device)
        out = model(x)
        loss = bce(out, m) + dice_loss(out, m)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        total += loss.item()
    iou = mean_iou(model, val_loader, device)
    history.append((epoch, total / len(train_loader), iou))
    print(f"epoch {epoch}: loss {total / len(train_loader):.5f} IoU {iou:.4f}")

with open("history.csv", "w", newline="") as f:
    writer = csv.writer(f)
    writer.writerow(["epoch", "loss", "iou"])
    writer.writerows(history)
torch.save(model.state_dict(), "unet.pth")
