"""Scripts that train on data which divide, and evaluate on data which do not: a loop over the evaluation goes in."""

from __future__ import annotations

from pathlib import Path

from autodist.config import Config, Evaluation, Strategy
from autodist.convert import convert
from autodist.project import Project

SCRIPT = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
{imports}

def data(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 4, generator=g)
    return TensorDataset(x, (x.sum(1) > 0).long() + (x[:, 0] > 1).long())


torch.manual_seed(0)
train_loader = DataLoader(data(48, 0), batch_size=12, shuffle=True)
test_loader = DataLoader(data({samples}, 1), batch_size=8{options})
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
best = 100.0

{helpers}
{evaluate}

for epoch in range(2):
    model.train()
    for x, y in train_loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    score = evaluate(model, test_loader)
    if score < best:
        best = score
        torch.save(model.state_dict(), "best.pt")
print("best", best)
"""

MEAN_OF_BATCHES = """\
@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    total, correct = 0, 0
    for x, y in loader:
        out = model(x)
        total += F.cross_entropy(out, y).item()
        correct += (out.argmax(1) == y).sum()
    print("loss", total / len(loader), "accuracy", correct / len(loader.dataset))
    return total / len(loader)
"""
METER = """
class AverageMeter(object):
    def __init__(self):
        self.reset()

    def reset(self):
        self.val = self.avg = self.sum = self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count

"""
"""A class that people write into many scripts."""


def script(evaluate: str, samples: int = 37, options: str = "", imports: str = "", helpers: str = "") -> str:
    """A training that calls ``evaluate(model, loader)`` after each epoch, on 37 samples in batches of 8."""
    return SCRIPT.format(evaluate=evaluate, samples=samples, options=options, imports=imports, helpers=helpers)


def converted_shared(folder: Path, text: str, strategy: Strategy = Strategy.DDP) -> tuple[str, list[str]]:
    """The conversion with evaluations shared out, and what its rule says."""
    path = folder / "train.py"
    path.write_text(text)
    result = convert(Project.load(path), Config(strategy, evaluation=Evaluation.SHARED))
    return result.entry.after, [each.message for each in result.diagnostics if each.code == "AD212"]
