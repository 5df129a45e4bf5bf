"""How long an evaluation takes on several ranks, whole and shared out: ``python -m benchmarks.shared_evaluation``.

A small convolutional network is evaluated on random images in both conversions of one script, on CPU ranks with one
thread each. Each round runs both, one after the other; the medians of the rounds count, and how far they spread.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
SCRIPT = """\
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
train = TensorDataset(torch.randn(64, 3, 32, 32), torch.randint(10, (64,)))
test = TensorDataset(torch.randn({samples}, 3, 32, 32), torch.randint(10, ({samples},)))
train_loader = DataLoader(train, batch_size=32, shuffle=True)
test_loader = DataLoader(test, batch_size=50)
layers = nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, stride=2), nn.ReLU(), nn.Flatten()
model = nn.Sequential(*layers, nn.Linear(32 * 15 * 15, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
criterion = nn.CrossEntropyLoss()


def evaluate(model, loader):
    model.eval()
    total, correct = 0.0, 0
    with torch.no_grad():
        for x, y in loader:
            out = model(x)
            total += criterion(out, y).item()
            correct += (out.argmax(1) == y).sum().item()
    return total / len(loader), correct


for epoch in range(2):
    model.train()
    for x, y in train_loader:
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()
    start = time.perf_counter()
    loss, correct = evaluate(model, test_loader)
    seconds = time.perf_counter() - start
    print(f"loss {{loss:.12f}} correct {{correct}}")
print("seconds", seconds)
"""


def seconds(folder: Path, name: str, ranks: int) -> tuple[float, str]:
    """What the last evaluation takes, and what it gives."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), name]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=True)
    *printed, last = done.stdout.strip().splitlines()
    return float(last.split()[1]), "\n".join(printed)


def main() -> None:
    """Convert the script both ways, run them in turn, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--samples", type=int, default=4010)
    options = parser.parse_args()
    times: dict[str, list[float]] = {"whole": [], "shared": []}
    given: set[str] = set()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "train.py").write_text(SCRIPT.format(samples=options.samples))
        for kind in times:
            command = [
                sys.executable,
                "-m",
                "autodist",
                "convert",
                "train.py",
                "--evaluation",
                kind,
                "-o",
                f"{kind}.py",
            ]
            subprocess.run(
                command, cwd=folder, check=True, capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
            )
        for _ in range(options.rounds):
            for kind, found in times.items():
                took, printed = seconds(folder, f"{kind}.py", options.ranks)
                found.append(took)
                given.add(printed)
    whole, shared = (statistics.median(each) for each in times.values())
    for kind, found in times.items():
        print(
            f"{kind:7} {statistics.median(found):.2f} s ({min(found):.2f} to {max(found):.2f}) on {options.ranks} ranks"
        )
    print(f"shared out, it takes {shared / whole:.2f} of the time; results are {'equal' if len(given) == 1 else given}")


if __name__ == "__main__":
    main()
