import argparse
import json

import torch
import torch.nn as nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, SequentialSampler

from criterion import CLASSES, QUERIES, HungarianMatcher, SetCriterion


class Scenes(Dataset):
    """One to three points on a line of 24 cells, each of a class with a colour of its own."""

    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.items = []
        for _ in range(n):
            count = int(torch.randint(1, 4, (1,), generator=g))
            where = torch.rand(count, generator=g)
            labels = torch.randint(0, CLASSES, (count,), generator=g)
            image = torch.zeros(CLASSES, 24)
            for place, label in zip(where, labels):
                image[label] += torch.exp(-((torch.arange(24) / 23 - place) ** 2) * 200)
            self.items.append((image, {"labels": labels, "boxes": torch.stack([where, torch.full_like(where, 0.1)], 1)}))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate_fn(batch):
    images, targets = zip(*batch)
    return torch.stack(images), list(targets)


class Detector(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv1d(CLASSES, dim, 3, padding=1), nn.ReLU(), nn.Conv1d(dim, dim, 3, padding=1))
        self.position = nn.Parameter(torch.rand(24, dim))
        self.queries = nn.Embedding(QUERIES, dim)
        self.attention = nn.MultiheadAttention(dim, 2, batch_first=True)
        self.class_embed, self.bbox_embed = nn.Linear(dim, CLASSES + 1), nn.Linear(dim, 2)

    def forward(self, images):
        memory = self.backbone(images).transpose(1, 2) + self.position
        queries = self.queries.weight.unsqueeze(0).expand(len(images), -1, -1)
        hidden = queries + self.attention(queries, memory, memory, need_weights=False)[0]
        return {"logits": self.class_embed(hidden), "boxes": self.bbox_embed(hidden).sigmoid()}


def to_device(targets, device):
    return [{k: v.to(device) for k, v in t.items()} for t in targets]


def train_one_epoch(model, criterion, loader, optimizer, device, max_norm):
    model.train()
    criterion.train()
    meters = {}
    for samples, targets in loader:
        samples, targets = samples.to(device), to_device(targets, device)
        loss_dict = criterion(model(samples), targets)
        losses = sum(loss_dict[k] * criterion.weights[k] for k in loss_dict if k in criterion.weights)
        optimizer.zero_grad()
        losses.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        optimizer.step()
        for k, v in {"loss": losses, **loss_dict}.items():
            meters.setdefault(k, []).append(v.item())
    return {k: sum(v) / len(v) for k, v in meters.items()}


@torch.no_grad()
def evaluate(model, criterion, loader, device):
    model.eval()
    criterion.eval()
    found = objects = 0
    for samples, targets in loader:
        outputs, targets = model(samples.to(device)), to_device(targets, device)
        for logits, boxes, target, (q, o) in zip(outputs["logits"], outputs["boxes"], targets, criterion.matcher(outputs, targets)):
            near = (boxes[q, 0] - target["boxes"][o, 0]).abs() < 0.25
            found += (near & (logits[q].argmax(-1) == target["labels"][o])).sum().item()
            objects += len(o)
    return found / objects


def main(args):
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_set, val_set = Scenes(64, 1), Scenes(21, 2)
    batch_sampler = BatchSampler(RandomSampler(train_set), args.batch_size, drop_last=True)
    train_loader = DataLoader(train_set, batch_sampler=batch_sampler, collate_fn=collate_fn)
    val_loader = DataLoader(val_set, args.batch_size, sampler=SequentialSampler(val_set), collate_fn=collate_fn)
    model = Detector().to(device)
    criterion = SetCriterion(HungarianMatcher(), {"loss_ce": 1.0, "loss_bbox": 2.0}).to(device)
    groups = [
        {"params": [p for n, p in model.named_parameters() if "backbone" not in n]},
        {"params": [p for n, p in model.named_parameters() if "backbone" in n], "lr": args.lr_backbone},
    ]
    optimizer = torch.optim.AdamW(groups, lr=args.lr, weight_decay=1e-4)
    for epoch in range(args.epochs):
        stats = train_one_epoch(model, criterion, train_loader, optimizer, device, args.clip_max_norm)
        recall = evaluate(model, criterion, val_loader, device)
        with open("log.txt", "a") as f:
            f.write(json.dumps({"epoch": epoch, **{f"train_{k}": v for k, v in stats.items()}, "recall": recall}) + "\n")
        print(f"Epoch [{epoch}] loss {stats['loss']:.4f} ce {stats['loss_ce']:.4f} bbox {stats['loss_bbox']:.4f} recall {recall:.4f}")
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch, "args": args}, "checkpoint.pth")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", default=4e-3, type=float)
    parser.add_argument("--lr_backbone", default=1e-3, type=float)
    parser.add_argument("--batch_size", default=8, type=int)
    parser.add_argument("--epochs", default=3, type=int)
    parser.add_argument("--clip_max_norm", default=0.5, type=float)
    parser.add_argument("--seed", default=42, type=int)
    main(parser.parse_args())
