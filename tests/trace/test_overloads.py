"""Methods that no call names: operators, texts, `with`; and loops that decorators put around functions."""

from __future__ import annotations

from pathlib import Path

from conftest import converted

SCRIPT = """\
import contextlib
import functools

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Log:
    def __init__(self, path):
        self.path = path

    def __enter__(self):
        self.file = open(self.path, "w")
        return self

    def __exit__(self, *error):
        torch.save(self.path, "done.pt")

    def row(self, value):
        self.file.write(f"{value:.4f}")


class Mean:
    def __init__(self):
        self.total, self.count = 0.0, 0

    def __iadd__(self, value):
        self.total += value
        self.count += 1
        return self

    def __float__(self):
        return self.total / self.count

    def __str__(self):
        return f"{float(self):.5f}"


@contextlib.contextmanager
def evaluating(model):
    model.eval()
    with torch.no_grad():
        yield model


def over_batches(function):
    @functools.wraps(function)
    def wrapper(model, loader, *args):
        total = 0.0
        for batch in loader:
            total += function(model, batch, *args)
        return total / len(loader)

    return wrapper


@over_batches
def train(model, batch, optimizer):
    loss = F.mse_loss(model(batch[0]), batch[1])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


@over_batches
def evaluate(model, batch):
    with torch.no_grad():
        return F.mse_loss(model(batch[0]), batch[1]).item()


loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=8, shuffle=True)
test_loader = DataLoader(TensorDataset(torch.randn(21, 4), torch.randn(21, 1)), batch_size=8)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    WORK
"""
STEPS = """\
for x, y in loader:
    loss = F.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def working(folder: Path, work: str) -> tuple[str, str]:
    """The script with what it does in each epoch."""
    text, said = converted(folder, SCRIPT.replace("WORK", work.replace("\n", "\n    ")))
    return " ".join(text.split()), said


def test_a_decorator_goes_over_the_batches(tmp_path: Path) -> None:
    text, said = working(tmp_path, "print(train(model, loader, optimizer), evaluate(model, test_loader))")
    assert "loader.sampler.set_epoch(" in text and "AD904" not in said
    assert "print(reduce_mean(train(model, loader, optimizer)), evaluate(model, test_loader))" in text
    assert "test_loader = DataLoader(TensorDataset(torch.randn(21, 4), torch.randn(21, 1)), batch_size=8)" in text


def test_an_operator_adds_up(tmp_path: Path) -> None:
    work = "mean = Mean()\n" + STEPS + "    mean += loss.item()\nprint(mean, float(mean))"
    text, _ = working(tmp_path, work)
    assert 'return f"{reduce_mean(float(self)):.5f}"' in text and "print(mean, reduce_mean(float(mean)))" in text


def test_what_with_opens_and_writes(tmp_path: Path) -> None:
    work = 'with Log("log.txt") as log:\n    ' + STEPS.strip().replace("\n", "\n    ") + "\n    log.row(loss.item())"
    text, _ = working(tmp_path, work)
    assert 'self.file = open(self.path if dist.get_rank() == 0 else os.devnull, "w")' in text
    assert 'if dist.get_rank() == 0: torch.save(self.path, "done.pt")' in text
    assert "reduce_mean(" in text.partition("model = ")[2] or "{reduce_mean(value):.4f}" in text


def test_a_generator_hands_out_the_model(tmp_path: Path) -> None:
    work = STEPS + (
        "with evaluating(model) as net:\n"
        "    total = sum(F.mse_loss(net(x), y, reduction='sum').item() for x, y in test_loader)\n"
        "print(total / 21)"
    )
    text, said = working(tmp_path, work)
    assert "print(total / 21)" in text and "AD404" not in said


ADDED = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Stats:
    def __init__(self, total=0.0, count=0):
        self.total, self.count = total, count

    def __iadd__(self, other):
        self.total += other.total
        self.count += other.count
        return self

    def __str__(self):
        return f"{self.total / self.count:.4f} of {self.count}"


loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8, shuffle=True)
test_loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=8)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
stats = Stats()
for x, y in loader:
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    stats += Stats(loss.item() * len(x), len(x))
print(stats)
stats = Stats()
for x, y in test_loader:
    stats += Stats(nn.functional.mse_loss(model(x), y).item() * len(x), len(x))
print(stats)
"""


def test_what_training_and_evaluation_add_up(tmp_path: Path) -> None:
    """The numbers of the evaluation, which every rank has of all samples, were multiplied as those of training are."""
    after, report = converted(tmp_path, ADDED)
    assert "other.count * dist.get_world_size()" not in after
    assert "stats += Stats(reduce_sum(loss.item() * len(x)), len(x) * dist.get_world_size())" in after
    assert "stats += Stats(nn.functional.mse_loss(model(x), y).item() * len(x), len(x))" in after
    assert "computed from this rank's samples alone" not in report


BARE = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Settings:
    _shared = None

    def __new__(cls):
        raise TypeError("ask for Settings.shared()")

    @classmethod
    def _bare(cls):
        return super().__new__(cls)

    @classmethod
    def shared(cls):
        if cls._shared is None:
            cls._shared = cls._bare()
            cls._shared.__init__()
        return cls._shared

    def __init__(self):
        self.optimizer = torch.optim.SGD

    def make(self, model):
        return self.optimizer(model.parameters(), lr=0.1)


loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = Settings.shared().make(model)
for x, y in loader:
    loss = F.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_an_object_that_is_made_before_its_constructor_is_called(tmp_path: Path) -> None:
    """`super().__new__(cls)` in a class method, and `__init__` by its name."""
    text, said = converted(tmp_path, BARE)
    assert "DDP(nn.Linear(4, 1)" in text and "AD904" not in said
