"""Scripts that resume, as people write them: flat, in functions with meters, in a class, with what counts batches."""

from __future__ import annotations

from pathlib import Path

from autodist.config import Config, Strategy
from autodist.convert import convert
from autodist.project import Project

PLAIN = """\
import argparse
import os

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=12)
    args = parser.parse_args()
    torch.manual_seed(0)
    train_set = TensorDataset(torch.randn(96, 6), torch.randint(0, 3, (96,)))
    val_set = TensorDataset(torch.randn(24, 6), torch.randint(0, 3, (24,)))
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True)
    val_loader = DataLoader(val_set, batch_size=args.batch_size)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
    criterion = nn.CrossEntropyLoss()
    start_epoch, best = 0, 0.0
    if os.path.exists("last.pt"):
        checkpoint = torch.load("last.pt")
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        scheduler.load_state_dict(checkpoint["scheduler"])
        start_epoch, best = checkpoint["epoch"] + 1, checkpoint["best"]

    for epoch in range(start_epoch, args.epochs):
        model.train()
        total, correct = 0.0, 0
        for x, y in train_loader:
            optimizer.zero_grad()
            out = model(x)
            loss = criterion(out, y)
            loss.backward()
            optimizer.step()
            total += loss.item()
            correct += (out.argmax(1) == y).sum().item()
        scheduler.step()
        model.eval()
        hits = 0
        with torch.no_grad():
            for x, y in val_loader:
                hits += (model(x).argmax(1) == y).sum().item()
        acc = hits / len(val_set)
        best = max(best, acc)
        print(f"epoch {epoch} loss {total / len(train_loader):.4f} train {correct / len(train_set):.4f} val {acc:.4f}")
        checkpoint = {
            "epoch": epoch,
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "scheduler": scheduler.state_dict(),
            "best": best,
        }
        torch.save(checkpoint, "last.pt")


if __name__ == "__main__":
    main()
"""
METERS = '''\
import argparse
import os
import shutil

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


class AverageMeter(object):
    """Computes and stores the average and current value"""
    def __init__(self, name):
        self.name = name
        self.reset()

    def reset(self):
        self.val = 0
        self.avg = 0
        self.sum = 0
        self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count


def save_checkpoint(state, is_best, filename="checkpoint.pth.tar"):
    torch.save(state, filename)
    if is_best:
        shutil.copyfile(filename, "model_best.pth.tar")


def train(loader, model, criterion, optimizer, epoch, device):
    losses = AverageMeter("Loss")
    top1 = AverageMeter("Acc")
    model.train()
    for i, (x, y) in enumerate(loader):
        x, y = x.to(device), y.to(device)
        out = model(x)
        loss = criterion(out, y)
        acc = (out.argmax(1) == y).float().mean()
        losses.update(loss.item(), x.size(0))
        top1.update(acc.item(), x.size(0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if i % 4 == 0:
            print(f"Epoch: [{epoch}][{i}/{len(loader)}] loss {losses.avg:.4f}")
    return losses.avg


def validate(loader, model, device):
    model.eval()
    hits = 0
    with torch.no_grad():
        for x, y in loader:
            hits += (model(x.to(device)).argmax(1).cpu() == y).sum().item()
    return hits / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", default=4, type=int)
    parser.add_argument("--start-epoch", default=0, type=int)
    parser.add_argument("-b", "--batch-size", default=12, type=int)
    parser.add_argument("--resume", default="checkpoint.pth.tar", type=str)
    args = parser.parse_args()
    torch.manual_seed(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_set = TensorDataset(torch.randn(96, 6), torch.randint(0, 3, (96,)))
    val_set = TensorDataset(torch.randn(24, 6), torch.randint(0, 3, (24,)))
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3)).to(device)
    criterion = nn.CrossEntropyLoss().to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.1)
    best_acc1 = 0
    if args.resume:
        if os.path.isfile(args.resume):
            print("=> loading checkpoint '{}'".format(args.resume))
            checkpoint = torch.load(args.resume, map_location=device)
            args.start_epoch = checkpoint["epoch"]
            best_acc1 = checkpoint["best_acc1"]
            model.load_state_dict(checkpoint["state_dict"])
            optimizer.load_state_dict(checkpoint["optimizer"])
            scheduler.load_state_dict(checkpoint["scheduler"])
        else:
            print("=> no checkpoint found at '{}'".format(args.resume))
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True, num_workers=0)
    val_loader = DataLoader(val_set, batch_size=args.batch_size)
    for epoch in range(args.start_epoch, args.epochs):
        train(train_loader, model, criterion, optimizer, epoch, device)
        acc1 = validate(val_loader, model, device)
        scheduler.step()
        is_best = acc1 > best_acc1
        best_acc1 = max(acc1, best_acc1)
        print(f"epoch {epoch} acc {acc1:.4f} best {best_acc1:.4f}")
        save_checkpoint({
            "epoch": epoch + 1,
            "state_dict": model.state_dict(),
            "best_acc1": best_acc1,
            "optimizer": optimizer.state_dict(),
            "scheduler": scheduler.state_dict(),
        }, is_best)


if __name__ == "__main__":
    main()
'''
TRAINER = """\
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Trainer:
    def __init__(self, model, loader, val_loader, optimizer, epochs, path="runs/last.pt"):
        self.model, self.loader, self.val_loader, self.optimizer = model, loader, val_loader, optimizer
        self.epochs = epochs
        self.path = path
        self.start_epoch = 0
        self.global_step = 0
        self.best = float("inf")
        self.history = []
        if os.path.exists(path):
            self.load()

    def load(self):
        state = torch.load(self.path)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.start_epoch = state["epoch"] + 1
        self.global_step = state["global_step"]
        self.best = state["best"]

    def save(self, epoch):
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "epoch": epoch,
                    "global_step": self.global_step, "best": self.best}, self.path)

    def train_epoch(self, epoch):
        self.model.train()
        running = 0.0
        for x, y in self.loader:
            self.optimizer.zero_grad()
            loss = nn.functional.mse_loss(self.model(x), y)
            loss.backward()
            self.optimizer.step()
            self.global_step += 1
            running += loss.item() * len(x)
        return running / len(self.loader.dataset)

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        return sum(nn.functional.mse_loss(self.model(x), y, reduction="sum").item() for x, y in self.val_loader) / 24

    def fit(self):
        for epoch in range(self.start_epoch, self.epochs):
            train_loss = self.train_epoch(epoch)
            val_loss = self.evaluate()
            self.history.append(val_loss)
            print(epoch, self.global_step, round(train_loss, 6), round(val_loss, 6), round(sum(self.history), 4))
            if val_loss < self.best:
                self.best = val_loss
                torch.save(self.model.state_dict(), "best_model.pt")
            self.save(epoch)


def main():
    torch.manual_seed(0)
    x, y = torch.randn(120, 5), torch.randn(120, 1)
    loader = DataLoader(TensorDataset(x[:96], y[:96]), batch_size=12, shuffle=True, drop_last=True)
    val_loader = DataLoader(TensorDataset(x[96:], y[96:]), batch_size=12)
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    Trainer(model, loader, val_loader, optimizer, epochs=4).fit()


if __name__ == "__main__":
    main()
"""
ACCUMULATING = """\
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(3)
device = "cuda" if torch.cuda.is_available() else "cpu"
accum = 2
epochs = 3
data = TensorDataset(torch.randn(96, 5), torch.randn(96, 1))
loader = DataLoader(data, batch_size=12, shuffle=True)
model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.05, total_steps=epochs * len(loader) // accum)
scaler = torch.amp.GradScaler(device, enabled=device == "cuda")
first = 0
if os.path.isfile("state.pth"):
    state = torch.load("state.pth")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["opt"])
    first = state["epoch"]
for epoch in range(first, epochs):
    epoch_loss = 0
    optimizer.zero_grad()
    for i, (x, y) in enumerate(loader):
        x, y = x.to(device), y.to(device)
        with torch.autocast(device, enabled=device == "cuda"):
            loss = nn.functional.mse_loss(model(x), y)
        epoch_loss += loss.item()
        scaler.scale(loss / accum).backward()
        if (i + 1) % accum == 0:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            scheduler.step()
    rate = scheduler.get_last_lr()[0]
    print(f"epoch {epoch} loss {epoch_loss / len(loader):.6f} last {loss.item():.6f} lr {rate:.6f}")
    torch.save({"model": model.state_dict(), "opt": optimizer.state_dict(), "epoch": epoch + 1}, "state.pth")
"""
NOISY = """\
import glob
import os
import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Noisy(Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(5)
        self.x, self.y = torch.randn(n, 5, generator=g), torch.randn(n, 1, generator=g)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        x = self.x[i]
        if random.random() < 0.5:
            x = -x
        return x + 0.1 * torch.from_numpy(np.random.randn(5).astype("float32")), self.y[i]


def latest(folder):
    files = sorted(glob.glob(os.path.join(folder, "epoch_*.pt")))
    return files[-1] if files else None


def main():
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    os.makedirs("ckpt", exist_ok=True)
    loader = DataLoader(Noisy(72), batch_size=12, shuffle=True)
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Dropout(0.1), nn.Linear(8, 1))
    opt = torch.optim.Adam(model.parameters(), lr=0.01)
    sched = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, patience=1)
    epoch, best, patience = 0, 1e9, 0
    losses = []
    path = latest("ckpt")
    if path:
        ckpt = torch.load(path, weights_only=False)
        model.load_state_dict(ckpt["model"])
        opt.load_state_dict(ckpt["opt"])
        sched.load_state_dict(ckpt["sched"])
        epoch = ckpt["epoch"]
        best = ckpt["best"]
    while epoch < 5:
        total = 0.0
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        mean = total / len(loader)
        losses.append(mean)
        sched.step(mean)
        if mean < best:
            best, patience = mean, 0
        else:
            patience += 1
            if patience > 3:
                break
        epoch += 1
        print(epoch, round(mean, 5), round(best, 5), patience, len(losses))
        state = {"model": model.state_dict(), "opt": opt.state_dict(), "sched": sched.state_dict()}
        state = {**state, "epoch": epoch, "best": best}
        torch.save(state, os.path.join("ckpt", f"epoch_{epoch:03d}.pt"))


if __name__ == "__main__":
    main()
"""
SHARED = """\
import argparse
import os

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


def run_epoch(model, loader, criterion, optimizer=None):
    model.train(optimizer is not None)
    total, correct = 0.0, 0
    for x, y in loader:
        out = model(x)
        loss = criterion(out, y)
        if optimizer is not None:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        total += loss.item() * len(y)
        correct += (out.argmax(1) == y).sum().item()
    return total / len(loader.dataset), correct / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=12)
    args = parser.parse_args()
    torch.manual_seed(0)
    train_set = TensorDataset(torch.randn(96, 6), torch.randint(0, 3, (96,)))
    val_set = TensorDataset(torch.randn(24, 6), torch.randint(0, 3, (24,)))
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True)
    val_loader = DataLoader(val_set, batch_size=args.batch_size)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
    criterion = nn.CrossEntropyLoss()
    start_epoch, best = 0, 0.0
    if os.path.exists("last.pt"):
        checkpoint = torch.load("last.pt")
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        scheduler.load_state_dict(checkpoint["scheduler"])
        start_epoch, best = checkpoint["epoch"] + 1, checkpoint["best"]

    for epoch in range(start_epoch, args.epochs):
        loss, train_acc = run_epoch(model, train_loader, criterion, optimizer)
        scheduler.step()
        with torch.no_grad():
            val_loss, acc = run_epoch(model, val_loader, criterion)
        best = max(best, acc)
        print(f"epoch {epoch} loss {loss:.4f} train {train_acc:.4f} val {acc:.4f}")
        checkpoint = {
            "epoch": epoch,
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "scheduler": scheduler.state_dict(),
            "best": best,
        }
        torch.save(checkpoint, "last.pt")


if __name__ == "__main__":
    main()
"""
"""One function trains and evaluates, and is told no epoch."""


def preemptible(text: str, folder: Path, strategy: Strategy = Strategy.DDP) -> str:
    """A script's conversion that can be gone on with."""
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(text)
    return convert(Project.load(folder / "train.py"), Config(strategy, on_preempt=True)).entry.after


def in_modules(folder: Path) -> Path:
    """`METERS` in four files, as repositories have it; the entry."""
    meters, train, main = METERS.index("class AverageMeter"), METERS.index("def train("), METERS.index("def main(")
    sets, loaders = (
        [line for line in METERS[main:].splitlines(keepends=True) if f"_{kind} = " in line]
        for kind in ("set", "loader")
    )
    entry = METERS[main:].replace(sets[0], "    train_loader, val_loader = loaders(args.batch_size)\n")
    for line in (sets[1], *loaders):
        entry = entry.replace(line, "")
    made = "".join(sets + loaders).replace("args.batch_size", "size")
    data = "import torch\nfrom torch.utils.data import DataLoader, TensorDataset\n\n\n"
    imports = "import argparse\nimport os\n\nimport torch\nimport torch.nn as nn\n\nfrom data import loaders\n"
    imports += "from engine import train, validate\nfrom utils import save_checkpoint\n\n\n"
    texts = {
        "utils.py": f"import shutil\n\nimport torch\n\n\n{METERS[meters:train]}",
        "engine.py": f"import torch\n\nfrom utils import AverageMeter\n\n\n{METERS[train:main]}",
        "data.py": f"{data}def loaders(size):\n{made}    return train_loader, val_loader\n",
        "train.py": imports + entry,
    }
    for name, text in texts.items():
        (folder / name).write_text(text.rstrip() + "\n")
    return folder / "train.py"
