"""Training scripts of any length, made of the parts that real ones have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

HEAD = """\
import argparse
import os

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

"""

PART = '''
class Net{n}(nn.Module):
    """A small network."""

    def __init__(self, width=32):
        super().__init__()
        self.first = nn.Linear(16, width)
        self.norm = nn.BatchNorm1d(width)
        self.last = nn.Linear(width, 4)

    def forward(self, x):
        x = self.first(x)  # hidden
        x = F.relu(self.norm(x))
        return self.last(x)


def train_{n}(args, model, loader, optimizer, device, epoch):
    model.train()
    for step, (x, y) in enumerate(loader):
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        if step % args.log_interval == 0:
            print(f"part {n} epoch {{epoch}} step {{step}}: loss {{loss.item():.4f}}")


def test_{n}(model, loader, device):
    model.eval()
    correct = 0
    with torch.no_grad():
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            correct += (model(x).argmax(dim=1) == y).sum().item()
    print(f"part {n}: accuracy {{correct / len(loader.dataset):.3f}}")
    return correct


def run_{n}(args, device):
    train_set = TensorDataset(torch.randn(512, 16), torch.randint(4, (512,)))
    test_set = TensorDataset(torch.randn(128, 16), torch.randint(4, (128,)))
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True)
    test_loader = DataLoader(test_set, batch_size=args.batch_size)
    model = Net{n}().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        train_{n}(args, model, train_loader, optimizer, device, epoch)
        test_{n}(model, test_loader, device)
    os.makedirs(args.out, exist_ok=True)
    torch.save(model.state_dict(), os.path.join(args.out, "net{n}.pt"))

'''

TAIL = """
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--log-interval", type=int, default=4)
    parser.add_argument("--out", default="out")
    args = parser.parse_args()
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
{calls}


if __name__ == "__main__":
    main()
"""


def script(lines: int) -> str:
    """A training script of about ``lines`` lines. Longer ones train more models."""
    fixed = HEAD.count("\n") + TAIL.count("\n")
    parts = max(1, round((lines - fixed) / (PART.count("\n") + 1)))
    calls = "\n".join(f"    run_{n}(args, device)" for n in range(parts))
    return HEAD + "".join(PART.format(n=n) for n in range(parts)) + TAIL.format(calls=calls)


ONE_NET = """
class Net(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.first = nn.Linear(16, width)
        self.last = nn.Linear(width, 4)

    def forward(self, x):
        return self.last(F.relu(self.first(x)))


def train(model, loader, optimizer, device):
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = F.cross_entropy({logits}, y)
        loss.backward()
        optimizer.step()
    print(f"loss {{loss.item():.4f}}")


def run(args, device, width):
    data = TensorDataset(torch.randn(512, 16), torch.randint(4, (512,)))
    loader = DataLoader(data, batch_size=args.batch_size, shuffle=True)
    model = {model}.to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        train(model, loader, optimizer, device)

"""


def _one_net(before: str = "", model: str = "Net(width)", logits: str = "model(x)", runs: int = 1) -> str:
    calls = "\n".join(f"    run(args, device, {32 + n})" for n in range(runs))
    return HEAD + before + ONE_NET.format(model=model, logits=logits) + TAIL.format(calls=calls)


def _functions(number: int) -> str:
    made = "".join(f"def scaled_{n}(x):\n    y = x * {n}\n    return F.relu(y)\n\n\n" for n in range(number))
    return _one_net(made, logits="model(x) + " + " + ".join(f"scaled_{n}(model(x))" for n in range(number)))


def _depth(number: int) -> str:
    made = "".join(f"def step_{n}(x):\n    return step_{n + 1}(x * 2)\n\n\n" for n in range(number))
    return _one_net(f"{made}def step_{number}(x):\n    return x\n\n", logits="step_0(model(x))")


def _branches(number: int) -> str:
    tests = "".join(f'    {"el" if n else ""}if width == {n}:\n        net = Net({n + 1})\n' for n in range(number))
    return _one_net(
        f"def made(width):\n{tests}    else:\n        net = Net(width)\n    return net\n\n", "made(args.epochs)"
    )


SWEEPS: Mapping[str, tuple[Callable[[int], str], Sequence[int]]] = {
    "lines": (script, (300, 600, 1200, 2400)),
    "functions": (_functions, (75, 150, 300)),
    "call depth": (_depth, (75, 150, 300)),
    "branches": (_branches, (75, 150, 300)),
    "models": (lambda number: _one_net(runs=number), (8, 16, 32)),
}
"""What grows, as scripts of so many of it."""
