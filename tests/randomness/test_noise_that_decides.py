"""What an evaluation draws differs by rank, and so may what is decided by it: rank 0 decides for all."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

SCRIPT = """\
import copy

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean, self.decoder = nn.Linear(16, 2), nn.Linear(2, 16)

    def forward(self, x):
        mean = self.mean(x)
        return self.decoder({noise})

    def sample(self, n):
        return self.decoder(torch.randn(n, 2))


def evaluate(model, loader):
    model.eval()
    total = 0.0
    with torch.no_grad():
        for (x,) in loader:
            total += F.mse_loss(model(x), x).item()
    model.train()
    return total / len(loader)


class Stopper:
    best, bad = None, 0

    def should_stop(self, metrics):
        if self.best is None or metrics["loss"] < self.best["loss"]:
            self.best, self.bad = metrics, 0
        else:
            self.bad += 1
        return self.bad > 2


train_loader = DataLoader(TensorDataset(torch.randn(64, 16)), batch_size=16, shuffle=True)
val_loader = DataLoader(TensorDataset(torch.randn(32, 16)), batch_size=16)
model = VAE()
optimizer = torch.optim.Adam(model.parameters())
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
best, best_state, losses, lr, stopper, val_loss = 1e9, None, [], 0.1, Stopper(), 1e9
{loop}:
    for (x,) in train_loader:
        loss = F.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
{decision}
"""
DRAWN = "mean + torch.randn_like(mean)"
EPOCHS = "for epoch in range(9)"
EVALUATED = "    val_loss = evaluate(model, val_loader)\n"
BETTER = "as_on_rank_zero(val_loss < best)"


@pytest.mark.parametrize(
    ("decision", "wanted"),
    [
        ("    scheduler.step(val_loss)", "scheduler.step(as_on_rank_zero(val_loss))"),
        ("    scheduler.step(metrics=val_loss)", "scheduler.step(metrics=as_on_rank_zero(val_loss))"),
        (
            "    optimizer.param_groups[0]['lr'] = 0.1 * val_loss",
            "optimizer.param_groups[0]['lr'] = as_on_rank_zero(0.1 * val_loss)",
        ),
        (
            "    lr = min(lr, val_loss)\n    for group in optimizer.param_groups:\n        group['lr'] = lr",
            "group['lr'] = as_on_rank_zero(lr)",
        ),
        ("    if val_loss < best:\n        best, best_state = val_loss, copy.deepcopy(model.state_dict())", BETTER),
        ("    if val_loss < best:\n        lr /= 4\n        optimizer.param_groups[0]['lr'] = lr", BETTER),
        (
            "    losses.append(val_loss)\n    if min(losses[-3:]) > min(losses[:-3]):\n        break",
            "as_on_rank_zero(min(losses[-3:]) > min(losses[:-3]))",
        ),
        (
            "    if stopper.should_stop({'loss': val_loss}):\n        break",
            'or as_on_rank_zero(metrics["loss"] < self.best["loss"])',
        ),
        (
            "    with torch.no_grad():\n        score = model.sample(64).mean()\n    if score < 0:\n        break",
            "as_on_rank_zero(score < 0)",
        ),
    ],
)
def test_rank_zero_decides(tmp_path: Path, decision: str, wanted: str) -> None:
    text = SCRIPT.format(noise=DRAWN, loop=EPOCHS, decision=EVALUATED + decision)
    code, said = conftest.converted(tmp_path, text)
    assert wanted in code and "torch.initial_seed() + 1 + dist.get_rank()" in code
    assert "AD702" not in said or "the same on all ranks" not in said


def test_a_loop_that_goes_by_it(tmp_path: Path) -> None:
    text = SCRIPT.format(noise=DRAWN, loop="while val_loss > 0.1", decision=EVALUATED)
    assert "while as_on_rank_zero(val_loss > 0.1):" in conftest.converted(tmp_path, text)[0]


def test_dropout_that_is_left_on(tmp_path: Path) -> None:
    decision = EVALUATED + "    if val_loss < best:\n        break"
    text = SCRIPT.format(noise="F.dropout(mean, 0.3)", loop=EPOCHS, decision=decision)
    assert BETTER in conftest.converted(tmp_path, text)[0]


SEEDED, SEEDS = "def as_on_rank_zero(value):\n", "torch.manual_seed(as_on_rank_zero(torch.initial_seed()))"
"""What seeds all ranks alike."""


def test_what_rank_zero_alone_asks(tmp_path: Path) -> None:
    """Where a better loss is a reason to save and nothing else, nobody needs to be asked."""
    decision = (
        EVALUATED
        + "    if val_loss < best:\n        best = val_loss\n        torch.save(model.state_dict(), 'best.pt')"
    )
    code, _ = conftest.converted(tmp_path, SCRIPT.format(noise=DRAWN, loop=EPOCHS, decision=decision))
    assert "as_on_rank_zero(" not in code.replace(SEEDED, "").replace(SEEDS, "")
    assert "torch.initial_seed() + 1 + dist.get_rank()" in code


def test_an_evaluation_without_noise(tmp_path: Path) -> None:
    decision = EVALUATED + "    if val_loss < best:\n        break"
    text = SCRIPT.format(noise="F.dropout(mean, 0.3, self.training)", loop=EPOCHS, decision=decision)
    code, _ = conftest.converted(tmp_path, text)
    assert "as_on_rank_zero(" not in code.replace(SEEDED, "").replace(SEEDS, "")
    assert "torch.initial_seed() + 1 + dist.get_rank()" in code


@pytest.mark.parametrize(
    "decision",
    [
        "    lr = 0.5 * val_loss",
        "    losses.append((val_loss, copy.deepcopy(model.state_dict())))\n    best = [each for each, _ in losses]\n"
        "    model.load_state_dict([state for _, state in losses][best.index(min(best))])",
        "    losses.append(val_loss)\n    best_state = best_state or []\n    best_state.append(model.state_dict())\n"
        "    model.load_state_dict(best_state[losses.index(min(losses))])",
    ],
)
def test_noise_that_comes_to_train_is_alike(tmp_path: Path, decision: str) -> None:
    """A weight of the loss, or a state that is picked: ranks that drew each their own would go apart in silence."""
    text = SCRIPT.format(noise=DRAWN, loop=EPOCHS, decision=EVALUATED + decision)
    text = text.replace(
        "loss = F.mse_loss(model(x), x)\n", "loss = F.mse_loss(model(x), x) + lr * model(x).square().mean()\n"
    )
    code, said = conftest.converted(tmp_path, text)
    assert "torch.initial_seed() + 1" not in code and "the same on all ranks" in said


PARTS = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout()
        self.a, self.b = nn.Linear(4, 1), nn.Linear(4, 1)
        self.scale = nn.Parameter(torch.ones(1))

    def hidden(self, x):
        if {test}:
            return self.a(x)
        return self.b(self.drop(x))


data = TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.mse_loss(model.hidden(x) * model.scale, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("test", "apart"),
    [
        ("not x.is_cuda", True),
        ("x.mean() > 0", True),
        ("not x.is_cuda and x.mean() > 0", True),
        ("torch.rand(1) > 0.5", False),
        ("not x.is_cuda and torch.rand(1) > 0.5", False),
        ("x.is_cuda or torch.rand(1) > 0.5", False),
    ],
)
def test_what_says_which_parts_run(tmp_path: Path, test: str, apart: bool) -> None:
    """Ranks that draw apart agree on what a number of all samples says, and not on what they draw."""
    assert ("# dropout and noise differ by rank" in conftest.converted(tmp_path, PARTS.format(test=test))[0]) is apart
