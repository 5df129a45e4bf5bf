import argparse
import logging

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(filename="training.log", level=logging.INFO, format="%(message)s")


class TwoViews(Dataset):
    def __init__(self, n=64):
        g = torch.Generator().manual_seed(21)
        kinds = torch.randn(8, 10, generator=g)
        base = kinds[torch.arange(n) % 8] + 0.5 * torch.randn(n, 10, generator=g)
        self.views = torch.stack([base + 0.2 * torch.randn(n, 10, generator=g) for _ in range(2)], 1)

    def __len__(self):
        return len(self.views)

    def __getitem__(self, i):
        return [self.views[i, 0], self.views[i, 1]]


class Model(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 16))
        self.projector = nn.Sequential(nn.ReLU(), nn.Linear(16, dim))

    def forward(self, x):
        return self.projector(self.backbone(x))


def info_nce_loss(features, temperature):
    n = features.shape[0] // 2
    labels = torch.cat([torch.arange(n) for _ in range(2)], dim=0)
    labels = (labels.unsqueeze(0) == labels.unsqueeze(1)).to(features)
    features = F.normalize(features, dim=1)
    similarity = features @ features.T
    mask = torch.eye(len(labels), dtype=torch.bool, device=features.device)
    labels = labels[~mask].view(len(labels), -1)
    similarity = similarity[~mask].view(len(similarity), -1)
    positives = similarity[labels.bool()].view(len(labels), -1)
    negatives = similarity[~labels.bool()].view(len(similarity), -1)
    logits = torch.cat([positives, negatives], dim=1) / temperature
    return logits, torch.zeros(len(logits), dtype=torch.long, device=features.device)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-b", "--batch-size", default=16, type=int)
    parser.add_argument("--epochs", default=3, type=int)
    parser.add_argument("--temperature", default=0.2, type=float)
    args = parser.parse_args()
    torch.manual_seed(0)
    args.device = torch.device("cuda") if torch.cuda.is_available() else torch.device("cpu")
    loader = DataLoader(TwoViews(), batch_size=args.batch_size, shuffle=True, drop_last=True)
    model = Model().to(args.device)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=len(loader) * args.epochs)
    criterion = nn.CrossEntropyLoss().to(args.device)
    n_iter = 0
    for epoch in range(args.epochs):
        for views in loader:
            images = torch.cat(views, dim=0).to(args.device)
            features = model(images)
            logits, labels = info_nce_loss(features, args.temperature)
            loss = criterion(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            if n_iter % 2 == 0:
                top1 = (logits.argmax(1) == labels).float().mean().item() * 100
                print(f"iter {n_iter} loss {loss.item():.4f} top1 {top1:.2f} lr {scheduler.get_last_lr()[0]:.6f}")
            n_iter += 1
        logging.info(f"Epoch: {epoch}\tLoss: {loss.item():.5f}")
    torch.save({"epoch": args.epochs, "state_dict": model.state_dict(), "optimizer": optimizer.state_dict()}, "checkpoint.pth.tar")


if __name__ == "__main__":
    main()
