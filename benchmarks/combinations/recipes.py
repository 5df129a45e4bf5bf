"""Whole scripts of other shapes than one loop over epochs in another over batches, with some lines in several ways.

A line that is only `$name` stands for one of the ways of that name.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from textwrap import indent


@dataclass(frozen=True)
class Recipe:
    """A script with gaps, and what may fill them."""

    text: str
    ways: dict[str, tuple[str, ...]]

    def script(self, rng: random.Random) -> str:
        """One way to write it."""
        filled = {name: ways[rng.randrange(len(ways))] for name, ways in self.ways.items()}

        def line(match: re.Match[str]) -> str:
            return indent(filled[match[2]].strip("\n"), match[1])

        text = re.sub(r"(?m)^( *)\$(\w+)$", line, self.text)
        text = re.sub(r"\$\{(\w+)\}", lambda match: filled[match[1]], text)
        return re.sub(r"\n{4,}", "\n\n\n", text).lstrip("\n")


PHASES = Recipe(
    """
import copy
import time

import torch
import torch.nn as nn
import torch.optim as optim
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")


def make(count, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 3, (count,), generator=g)
    return TensorDataset(torch.randn(count, 5, generator=g) + y[:, None], y)


image_datasets = {"train": make(${train}, 0), "val": make(30, 1)}
dataloaders = {x: DataLoader(image_datasets[x], batch_size=8, shuffle=${shuffle}) for x in ["train", "val"]}
dataset_sizes = {x: len(image_datasets[x]) for x in ["train", "val"]}
$before


def train_model(model, criterion, optimizer, scheduler, num_epochs=2):
    since = time.time()
    $best_before
    for epoch in range(num_epochs):
        print("Epoch {}/{}".format(epoch, num_epochs - 1))
        print("-" * 10)
        for phase in ["train", "val"]:
            $mode
            running_loss = 0.0
            running_corrects = 0
            for inputs, labels in dataloaders[phase]:
                inputs = inputs.to(device)
                labels = labels.to(device)
                optimizer.zero_grad()
                with torch.set_grad_enabled(phase == "train"):
                    outputs = model(inputs)
                    _, preds = torch.max(outputs, 1)
                    loss = criterion(outputs, labels)
                    if phase == "train":
                        loss.backward()
                        optimizer.step()
                $count
            $after
        print()
    print("finished")
    $end
    return model


model_ft = nn.Sequential(nn.Linear(5, 16), ${norm}nn.ReLU(), nn.Linear(16, 3))
model_ft = model_ft.to(device)
criterion = nn.CrossEntropyLoss()
optimizer_ft = optim.SGD(model_ft.parameters(), lr=0.05, momentum=0.9)
exp_lr_scheduler = lr_scheduler.StepLR(optimizer_ft, step_size=1, gamma=0.5)
model_ft = train_model(model_ft, criterion, optimizer_ft, exp_lr_scheduler, num_epochs=3)
torch.save(model_ft.state_dict(), "model.pt")
""",
    {
        "train": ("64", "60", "61"),
        "shuffle": ("True", '(x == "train")'),
        "before": ("", "losses = {'train': [], 'val': []}"),
        "best_before": (
            "best_model_wts = copy.deepcopy(model.state_dict())\nbest_acc = 0.0\nloss_history = []",
            "best_model_wts, best_acc = model.state_dict(), -1.0\nloss_history = []",
        ),
        "mode": (
            'if phase == "train":\n    model.train()\nelse:\n    model.eval()',
            'model.train(phase == "train")',
        ),
        "count": (
            "running_loss += loss.item() * inputs.size(0)\nrunning_corrects += torch.sum(preds == labels.data)",
            "running_loss += loss.item() * len(labels)\nrunning_corrects += (preds == labels).sum().item()",
        ),
        "after": (
            """
if phase == "train":
    scheduler.step()
epoch_loss = running_loss / dataset_sizes[phase]
epoch_acc = float(running_corrects) / dataset_sizes[phase]
print("{} Loss: {:.4f} Acc: {:.4f}".format(phase, epoch_loss, epoch_acc))
if phase == "val" and epoch_acc > best_acc:
    best_acc = epoch_acc
    best_model_wts = copy.deepcopy(model.state_dict())
""",
            """
epoch_loss = running_loss / dataset_sizes[phase]
epoch_acc = float(running_corrects) / len(dataloaders[phase].dataset)
if phase == "train":
    scheduler.step()
    train_loss = epoch_loss
else:
    print(f"train loss {train_loss:.5f} val loss {epoch_loss:.5f} acc {epoch_acc:.3f}")
    loss_history.append((train_loss, epoch_loss))
    if epoch_acc >= best_acc:
        best_acc = epoch_acc
        torch.save(model.state_dict(), "best.pt")
""",
            """
epoch_loss = running_loss / len(image_datasets[phase])
epoch_acc = float(running_corrects) * 100 / dataset_sizes[phase]
loss_history.append(epoch_loss)
print(f"{phase} {epoch_loss:.6f} {epoch_acc:.2f} lowest {min(loss_history):.5f}")
if phase == "val":
    scheduler.step()
    if epoch_acc > best_acc:
        best_acc, best_model_wts = epoch_acc, copy.deepcopy(model.state_dict())
""",
        ),
        "end": (
            'print("Best val Acc: {:4f}".format(best_acc))\nmodel.load_state_dict(best_model_wts)',
            "print(best_acc, loss_history)",
        ),
        "norm": ("", "nn.BatchNorm1d(16), ", "nn.Dropout(0.2), "),
    },
)

BOTH = Recipe(
    """
import argparse
import json
import math

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Waves(Dataset):
    def __init__(self, n, seed):
        rng = np.random.RandomState(seed)
        self.x = rng.uniform(-1, 1, (n, 4)).astype("float32")
        self.y = np.sin(self.x.sum(1)).astype("float32")

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return {"x": torch.from_numpy(self.x[i]), "y": torch.tensor(self.y[i])}


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 24), nn.GELU(), nn.Linear(24, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)


def run_epoch(model, loader, criterion, device, optimizer=None):
    training = optimizer is not None
    model.train(training)
    $start
    for batch in loader:
        x, y = batch["x"].to(device), batch["y"].to(device)
        with torch.set_grad_enabled(training):
            out = model(x)
            loss = criterion(out, y)
        if training:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        $tally
    $result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--lr", type=float, default=0.02)
    args = parser.parse_args()
    np.random.seed(2)
    torch.manual_seed(2)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_loader = DataLoader(Waves(${train}, 0), batch_size=args.batch_size, shuffle=True, drop_last=${drop})
    val_loader = DataLoader(Waves(27, 1), batch_size=args.batch_size)
    model = Regressor().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    criterion = nn.${criterion}()
    best, patience = math.inf, 0
    records = []
    for epoch in range(1, args.epochs + 1):
        train = run_epoch(model, train_loader, criterion, device, optimizer)
        val = run_epoch(model, val_loader, criterion, device)
        $show
        if val["loss"] < best:
            best, patience = val["loss"], 0
            torch.save({"model": model.state_dict(), "args": vars(args), "val": val}, "best.pt")
        else:
            patience += 1
            if patience > 1:
                break
    $finish


if __name__ == "__main__":
    main()
""",
    {
        "train": ("64", "60", "50"),
        "drop": ("True", "False"),
        "criterion": ("MSELoss", "L1Loss", "SmoothL1Loss"),
        "start": (
            "total, count, absolute = 0.0, 0, 0.0",
            "total = count = absolute = 0",
        ),
        "tally": (
            """
total += loss.item() * y.size(0)
absolute += (out.detach() - y).abs().sum().item()
count += y.size(0)
""",
            """
n = len(y)
total = total + float(loss) * n
absolute = absolute + torch.abs(out - y).sum().item()
count = count + n
""",
        ),
        "result": (
            'return {"loss": total / count, "mae": absolute / count}',
            'metrics = {"loss": total, "mae": absolute}\nreturn {k: v / count for k, v in metrics.items()}',
            "loss, mae = total / count, absolute / count\nreturn dict(loss=loss, mae=mae)",
            'averages = {}\naverages["loss"] = total / count\naverages["mae"] = absolute / count\nreturn averages',
        ),
        "show": (
            """
print(f"epoch {epoch} train {train['loss']:.6f} val {val['loss']:.6f} mae {val['mae']:.6f}")
records.append({"epoch": epoch, "train": train, "val": val})
""",
            """
row = {"epoch": epoch, **{"train_" + k: v for k, v in train.items()}, **{"val_" + k: v for k, v in val.items()}}
records.append(row)
print(" ".join(f"{k}={v:.5f}" for k, v in row.items()))
""",
            """
for name, metrics in (("train", train), ("val", val)):
    for key, value in metrics.items():
        print(epoch, name, key, round(value, 6))
records.append((train["loss"], val["loss"]))
""",
        ),
        "finish": (
            'with open("records.json", "w") as f:\n    json.dump(records, f, indent=2)',
            'print("best", best)',
        ),
    },
)

STEPS = Recipe(
    """
import itertools
import logging
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

logging.basicConfig(level=logging.INFO, format="%(message)s")
log = logging.getLogger("train")

config = dict(batch_size=8, max_steps=12, eval_every=4, lr=0.05, hidden=16)
torch.manual_seed(3)
device = "cuda" if torch.cuda.is_available() else "cpu"

data = torch.randn(${train}, 6)
target = (data[:, 0] * data[:, 1] > 0).long()
val_data = torch.randn(36, 6)
val_target = (val_data[:, 0] * val_data[:, 1] > 0).long()
train_loader = DataLoader(TensorDataset(data, target), batch_size=config["batch_size"], shuffle=True, drop_last=True)
val_loader = DataLoader(TensorDataset(val_data, val_target), batch_size=config["batch_size"])

model = nn.Sequential(nn.Linear(6, config["hidden"]), nn.Tanh(), nn.Linear(config["hidden"], 2)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=config["lr"])


@torch.no_grad()
def evaluate():
    model.eval()
    $evaluate
    model.train()
    return result


$iterate
""",
    {
        "train": ("64", "60", "70"),
        "evaluate": (
            """
result = 0.0
for x, y in val_loader:
    result += F.cross_entropy(model(x.to(device)), y.to(device)).item()
result /= len(val_loader)
""",
            """
out = torch.zeros(2)
for k, (x, y) in enumerate(val_loader):
    logits = model(x.to(device))
    out[0] += F.cross_entropy(logits, y.to(device), reduction="sum").item()
    out[1] += len(y)
result = (out[0] / out[1]).item()
""",
            """
losses = torch.zeros(len(val_loader))
for k, (x, y) in enumerate(val_loader):
    losses[k] = F.cross_entropy(model(x.to(device)), y.to(device)).item()
result = losses.mean().item()
""",
        ),
        "iterate": (
            """
step, best, recent = 0, float("inf"), []
model.train()
while step < config["max_steps"]:
    for x, y in train_loader:
        loss = F.cross_entropy(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        recent.append(loss.item())
        if step % config["eval_every"] == 0:
            val_loss = evaluate()
            log.info("step %d loss %.5f val %.5f", step, sum(recent) / len(recent), val_loss)
            recent = []
            if val_loss < best:
                best = val_loss
                torch.save({"model": model.state_dict(), "step": step}, "ckpt.pt")
        if step >= config["max_steps"]:
            break
""",
            """
iterator = iter(train_loader)
running = 0.0
for step in range(1, config["max_steps"] + 1):
    try:
        x, y = next(iterator)
    except StopIteration:
        iterator = iter(train_loader)
        x, y = next(iterator)
    logits = model(x.to(device))
    loss = F.cross_entropy(logits, y.to(device))
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    running = loss.item() if step == 1 else 0.9 * running + 0.1 * loss.item()
    if step % config["eval_every"] == 0 or step == config["max_steps"]:
        print(f"{step} train {running:.6f} val {evaluate():.6f}")
torch.save(model.state_dict(), "final.pt")
""",
            """
def cycle(loader):
    while True:
        for batch in loader:
            yield batch


batches = cycle(train_loader)
total, hits, seen = 0.0, 0, 0
for step in range(config["max_steps"]):
    x, y = next(batches)
    x, y = x.to(device), y.to(device)
    logits = model(x)
    loss = F.cross_entropy(logits, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total += loss.item()
    hits += (logits.argmax(-1) == y).sum().item()
    seen += len(y)
    if (step + 1) % config["eval_every"] == 0:
        print(step + 1, "loss", total / config["eval_every"], "accuracy", hits / seen, "val", evaluate())
        total, hits, seen = 0.0, 0, 0
torch.save(model.state_dict(), "final.pt")
""",
            """
start = time.time()
for step, (x, y) in enumerate(itertools.islice(itertools.chain.from_iterable(itertools.repeat(train_loader)), 12)):
    loss = F.cross_entropy(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % config["eval_every"] == 0:
        print(step, loss.item(), evaluate())
torch.save(model.state_dict(), "final.pt")
""",
        ),
    },
)

FOLDS = Recipe(
    """
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Subset, SubsetRandomSampler, TensorDataset

torch.manual_seed(1)
np.random.seed(1)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
x = torch.randn(72, 5)
y = (x.sum(1) > 0).float()
dataset = TensorDataset(x, y)
folds = np.array_split(np.random.permutation(len(dataset)), 3)


def build():
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1)).to(device)


def train_fold(fold):
    val_idx = folds[fold]
    train_idx = np.concatenate([f for k, f in enumerate(folds) if k != fold])
    $loaders
    model = build()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    criterion = nn.BCEWithLogitsLoss()
    for epoch in range(2):
        model.train()
        total = 0.0
        for xb, yb in train_loader:
            xb, yb = xb.to(device), yb.to(device)
            optimizer.zero_grad()
            loss = criterion(model(xb).squeeze(1), yb)
            loss.backward()
            optimizer.step()
            total += loss.item()
        model.eval()
        correct = 0
        with torch.no_grad():
            for xb, yb in val_loader:
                pred = torch.sigmoid(model(xb.to(device)).squeeze(1)).cpu() > 0.5
                correct += (pred == yb.bool()).sum().item()
        $show
    $after
    return correct / len(val_idx)


$run
""",
    {
        "loaders": (
            """
train_loader = DataLoader(Subset(dataset, train_idx.tolist()), batch_size=8, shuffle=True)
val_loader = DataLoader(Subset(dataset, val_idx.tolist()), batch_size=8)
""",
            """
train_loader = DataLoader(dataset, batch_size=8, sampler=SubsetRandomSampler(train_idx))
val_loader = DataLoader(dataset, batch_size=8, sampler=SubsetRandomSampler(val_idx))
""",
        ),
        "show": (
            "print(f'fold {fold} epoch {epoch} loss {total / len(train_loader):.5f} acc {correct / len(val_idx):.4f}')",
            "print('%d/%d: %.4f, %d of %d' % (fold, epoch, total / len(train_loader), correct, len(val_idx)))",
        ),
        "after": ("", 'torch.save(model.state_dict(), f"fold{fold}.pt")'),
        "run": (
            "scores = [train_fold(k) for k in range(3)]\nprint('mean', np.mean(scores), 'std', np.std(scores))",
            """
results = {}
for k in range(len(folds)):
    results[k] = train_fold(k)
print({k: round(v, 4) for k, v in results.items()}, sum(results.values()) / len(results))
""",
        ),
    },
)

ADVERSARIAL = Recipe(
    """
import os

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(4)
cuda = torch.cuda.is_available()
device = torch.device("cuda" if cuda else "cpu")
latent = 3
os.makedirs("images", exist_ok=True)

generator = nn.Sequential(nn.Linear(latent, 16), ${norm}nn.LeakyReLU(0.2), nn.Linear(16, 6), nn.Tanh()).to(device)
discriminator = nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1)${last}).to(device)
adversarial_loss = nn.${loss}()
angles = torch.rand(${train}, 1) * 6.28
points = torch.cat([torch.cos(angles), torch.sin(angles)] * 3, 1)
dataloader = DataLoader(TensorDataset(points), batch_size=8, shuffle=True, drop_last=True)
optimizer_G = torch.optim.Adam(generator.parameters(), lr=0.002, betas=(0.5, 0.999))
optimizer_D = torch.optim.Adam(discriminator.parameters(), lr=0.002, betas=(0.5, 0.999))
fixed_noise = torch.randn(4, latent, device=device)
g_losses, d_losses = [], []

for epoch in range(2):
    for i, (real,) in enumerate(dataloader):
        real = real.to(device)
        valid = torch.ones(real.size(0), 1, device=device)
        fake = torch.zeros(real.size(0), 1, device=device)
        $update
        g_losses.append(g_loss.item())
        d_losses.append(d_loss.item())
        $show
    $epoch_end

torch.save({"g": generator.state_dict(), "d": discriminator.state_dict()}, "gan.pt")
np.save("losses.npy", np.array([g_losses, d_losses]))
""",
    {
        "train": ("64", "50"),
        "norm": ("", "nn.BatchNorm1d(16), "),
        "last": ("", ""),
        "loss": ("BCEWithLogitsLoss", "MSELoss"),
        "update": (
            """
optimizer_D.zero_grad()
z = torch.randn(real.size(0), latent, device=device)
made = generator(z)
d_loss = (adversarial_loss(discriminator(real), valid) + adversarial_loss(discriminator(made.detach()), fake)) / 2
d_loss.backward()
optimizer_D.step()
optimizer_G.zero_grad()
g_loss = adversarial_loss(discriminator(made), valid)
g_loss.backward()
optimizer_G.step()
""",
            """
z = torch.randn(real.shape[0], latent).to(device)
optimizer_G.zero_grad()
made = generator(z)
g_loss = adversarial_loss(discriminator(made), valid)
g_loss.backward()
optimizer_G.step()
optimizer_D.zero_grad()
real_loss = adversarial_loss(discriminator(real), valid)
fake_loss = adversarial_loss(discriminator(made.detach()), fake)
d_loss = 0.5 * (real_loss + fake_loss)
d_loss.backward()
optimizer_D.step()
""",
            """
discriminator.zero_grad()
output = discriminator(real)
errD_real = adversarial_loss(output, valid)
errD_real.backward()
D_x = output.mean().item()
made = generator(torch.randn(real.size(0), latent, device=device))
errD_fake = adversarial_loss(discriminator(made.detach()), fake)
errD_fake.backward()
d_loss = errD_real + errD_fake
optimizer_D.step()
generator.zero_grad()
g_loss = adversarial_loss(discriminator(made), valid)
g_loss.backward()
optimizer_G.step()
""",
        ),
        "show": (
            'print("[%d/%d][%d/%d] D %.5f G %.5f" % (epoch, 2, i, len(dataloader), d_loss.item(), g_loss.item()))',
            "if i % 3 == 0:\n    print(epoch, i, 'D', d_losses[-1], 'G', g_losses[-1])",
        ),
        "epoch_end": (
            """
with torch.no_grad():
    samples = generator(fixed_noise).cpu()
torch.save(samples, "images/%d.pt" % epoch)
""",
            """
generator.eval()
with torch.no_grad():
    np.savetxt(f"images/{epoch}.txt", generator(fixed_noise).cpu().numpy())
generator.train()
print("mean losses", sum(g_losses) / len(g_losses), np.mean(d_losses))
""",
        ),
    },
)

VARIATIONAL = Recipe(
    """
from __future__ import print_function

import argparse

import torch
import torch.utils.data
from torch import nn, optim
from torch.nn import functional as F

parser = argparse.ArgumentParser(description="VAE")
parser.add_argument("--batch-size", type=int, default=8, metavar="N")
parser.add_argument("--epochs", type=int, default=2, metavar="N")
parser.add_argument("--seed", type=int, default=1, metavar="S")
parser.add_argument("--log-interval", type=int, default=2, metavar="N")
args = parser.parse_args()
torch.manual_seed(args.seed)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Digits(torch.utils.data.Dataset):
    def __init__(self, count, seed):
        g = torch.Generator().manual_seed(seed)
        self.data = (torch.rand(count, 1, 4, 4, generator=g) > 0.6).float()

    def __len__(self):
        return self.data.size(0)

    def __getitem__(self, index):
        return self.data[index], 0


train_loader = torch.utils.data.DataLoader(Digits(${train}, 0), batch_size=args.batch_size, shuffle=True)
test_loader = torch.utils.data.DataLoader(Digits(24, 1), batch_size=args.batch_size, shuffle=False)


class VAE(nn.Module):
    def __init__(self):
        super(VAE, self).__init__()
        self.fc1 = nn.Linear(16, 12)
        self.fc21 = nn.Linear(12, 2)
        self.fc22 = nn.Linear(12, 2)
        self.fc3 = nn.Linear(2, 12)
        self.fc4 = nn.Linear(12, 16)

    def encode(self, x):
        h1 = F.relu(self.fc1(x))
        return self.fc21(h1), self.fc22(h1)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        eps = torch.randn_like(std)
        return mu + eps * std

    def decode(self, z):
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z))))

    def forward(self, x):
        mu, logvar = self.encode(x.view(-1, 16))
        z = self.reparameterize(mu, logvar)
        return self.decode(z), mu, logvar


model = VAE().to(device)
optimizer = optim.Adam(model.parameters(), lr=1e-3)


$loss


def train(epoch):
    model.train()
    train_loss = 0
    for batch_idx, (data, _) in enumerate(train_loader):
        data = data.to(device)
        optimizer.zero_grad()
        recon_batch, mu, logvar = model(data)
        loss = loss_function(recon_batch, data, mu, logvar)
        loss.backward()
        ${tally}
        optimizer.step()
        if batch_idx % args.log_interval == 0:
            $progress
    print("====> Epoch: {} Average loss: {:.4f}".format(epoch, train_loss / ${over}))


def test(epoch):
    model.eval()
    test_loss = 0
    with torch.no_grad():
        for i, (data, _) in enumerate(test_loader):
            data = data.to(device)
            $forward
            test_loss += loss_function(recon_batch, data, mu, logvar).item()
            if i == 0:
                n = min(data.size(0), 4)
                comparison = torch.cat([data[:n].view(n, 16), recon_batch[:n]])
                torch.save(comparison.cpu(), "reconstruction_" + str(epoch) + ".pt")
    test_loss /= len(test_loader.dataset)
    print("====> Test set loss: {:.4f}".format(test_loss))


if __name__ == "__main__":
    for epoch in range(1, args.epochs + 1):
        train(epoch)
        test(epoch)
        $sample
""",
    {
        "train": ("48", "45"),
        "loss": (
            """
def loss_function(recon_x, x, mu, logvar):
    BCE = F.binary_cross_entropy(recon_x, x.view(-1, 16), reduction="sum")
    KLD = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return BCE + KLD
""",
            """
def loss_function(recon_x, x, mu, logvar):
    BCE = F.mse_loss(recon_x, x.view(-1, 16), reduction="sum") / x.size(0)
    KLD = torch.mean(-0.5 * torch.sum(1 + logvar - mu ** 2 - logvar.exp(), dim=1), dim=0)
    return BCE + 0.5 * KLD
""",
            """
def loss_function(recon_x, x, mu, logvar):
    return F.binary_cross_entropy(recon_x, x.view(-1, 16)) - 0.01 * (1 + logvar - mu.pow(2) - logvar.exp()).mean()
""",
        ),
        "tally": ("train_loss += loss.item()",),
        "over": ("len(train_loader.dataset)", "len(train_loader)"),
        "progress": (
            """
print("Train Epoch: {} [{}/{} ({:.0f}%)]\\\\tLoss: {:.6f}".format(
    epoch, batch_idx * len(data), len(train_loader.dataset),
    100. * batch_idx / len(train_loader), loss.item() / len(data)))
""",
            """
print(f"{epoch} {batch_idx} {loss.item():.5f}")
""",
        ),
        "forward": ("recon_batch, mu, logvar = model(data)",),
        "sample": (
            """
with torch.no_grad():
    sample = torch.randn(4, 2).to(device)
    sample = model.decode(sample).cpu()
    torch.save(sample.view(4, 1, 4, 4), "sample_" + str(epoch) + ".pt")
""",
            'torch.save(model.state_dict(), "vae_%02d.pt" % epoch)',
        ),
    },
)

RECIPES = (PHASES, BOTH, STEPS, FOLDS, ADVERSARIAL, VARIATIONAL)
