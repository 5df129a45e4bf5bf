"""What scripts on pictures taught: the accuracy of the best few guesses, models of libraries that are not known."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import conftest
import pytest

SCRIPT = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Meter:
    def __init__(self):
        self.val, self.sum, self.count = 0, 0, 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count


def accuracy(output, target, topk=(1,)):
{accuracy}


loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randint(0, 5, (64,))), batch_size=8, shuffle=True)
model = nn.Linear(8, 5)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
best, few = Meter(), Meter()
for epoch in range(2):
    for x, y in loader:
        out = model(x)
        loss = F.cross_entropy(out, y)
        first, more = accuracy(out, y, topk=(1, 3))
        best.update(first.item(), x.size(0))
        few.update(more.item(), x.size(0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(best.val, best.avg, few.val, few.avg)
"""
GUESSES = """\
maxk = max(topk)
_, pred = output.topk(maxk, 1, True, True)
pred = pred.t()
correct = pred.eq(target.view(1, -1).expand_as(pred))
"""
KEPT = """\
res = []
for k in topk:
    correct_k = {}
    res.append(correct_k.mul_(100.0 / target.size(0)))
return res
"""


@pytest.mark.parametrize(
    "accuracy",
    [
        GUESSES + KEPT.format("correct[:k].reshape(-1).float().sum(0, keepdim=True)"),
        GUESSES + KEPT.format("correct[:k].contiguous().view(-1).float().sum(0)"),
        GUESSES + "return [correct[:k].float().sum() / target.size(0) for k in topk]\n",
        GUESSES + "return [correct[:k].any(dim=0).float().mean() for k in topk]\n",
        "pred = torch.topk(output, max(topk), dim=1).indices.t()\n"
        "correct = pred == target[None]\n"
        "return [correct[:k].flatten().float().sum() / len(target) for k in topk]\n",
        "_, pred = output.topk(max(topk), dim=1)\n"
        "correct = pred.eq(target.view(-1, 1).expand_as(pred))\n"
        "return [correct[:, :k].float().sum() / target.size(0) for k in topk]\n",
    ],
)
def test_accuracy_of_the_best_guesses_is_that_of_all_ranks(tmp_path: Path, accuracy: str) -> None:
    after, said = conftest.converted(tmp_path, SCRIPT.format(accuracy=indent(accuracy, " " * 4)))
    assert "from this rank's samples alone" not in said
    assert after.count("reduce_") > 2


MODELS = """\
import torch
import strange_models
from strange_models.layers import Base
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = strange_models.create("net34")
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        return self.head(self.backbone(x))


class Derived(Base):
    def forward(self, x):
        return super().forward(x)


loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randint(0, 5, (64,))), batch_size=8, shuffle=True)
model = {make}
small = {other}
optimizer = torch.optim.SGD([*model.parameters(), *small.parameters()], lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x) + small(x), y).backward()
    optimizer.step()
"""


@pytest.mark.parametrize("make", ["strange_models.create('net34')", "Net()", "Derived()"])
def test_model_of_a_library_that_is_not_known_may_normalise(tmp_path: Path, make: str) -> None:
    after, said = conftest.converted(tmp_path, MODELS.format(make=make, other="nn.Linear(8, 5)"))
    assert "model = nn.SyncBatchNorm.convert_sync_batchnorm(model)" in after, said
    assert "small = nn.SyncBatchNorm" not in after


def test_class_that_derives_from_one_that_is_not_known_is_a_model_beside_another(tmp_path: Path) -> None:
    after, said = conftest.converted(tmp_path, MODELS.format(make="nn.Linear(8, 5)", other="Derived()"))
    assert "small = DDP(small" in after, said
    assert "model = DDP(" in after


COUNTED = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randint(0, 5, (64,))), batch_size=8, shuffle=True)
model = nn.Linear(8, 5)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    guesses, labels, wrong = [], [], []
    for x, y in loader:
        out = model(x)
        loss = nn.functional.cross_entropy(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        guesses += out.argmax(1).tolist()
        labels += y.tolist()
        for guess, label in zip(out.argmax(1), y):
            if guess != label:
                wrong.append(guess.item())
    print({shown})
"""


@pytest.mark.parametrize(
    "shown",
    [
        "sum(1 for a, b in zip(guesses, labels) if a == b)",
        "sum([1 for a, b in zip(guesses, labels) if a == b])",
        "len([1 for a, b in zip(guesses, labels) if a == b])",
        "len([a for a, b in zip(guesses, labels) if a == b])",
        "len([i for i, (a, b) in enumerate(zip(guesses, labels)) if a != b])",
        "sum(1 if a == b else 0 for a, b in zip(guesses, labels))",
        "len(wrong)",
        "guesses.count(1)",
    ],
)
def test_samples_of_a_list_that_a_condition_holds_for_are_counted_over_all_ranks(tmp_path: Path, shown: str) -> None:
    after, said = conftest.converted(tmp_path, COUNTED.format(shown=shown))
    assert "from this rank's samples alone" not in said
    assert f"print(reduce_sum({shown}))" in after


@pytest.mark.parametrize(
    "flags",
    [
        "1 if a == b else 0 for a, b in zip(guesses, labels)",
        "int(a == b) for a, b in zip(guesses, labels)",
        "False if a != b else True for a, b in zip(guesses, labels)",
    ],
)
def test_numbers_that_a_test_chooses_are_of_its_samples(tmp_path: Path, flags: str) -> None:
    """Constants that are chosen had been taken for what all ranks have."""
    script = COUNTED.format(shown="sum(flags) / len(flags)").replace("    print(", f"    flags = [{flags}]\n    print(")
    after, said = conftest.converted(tmp_path, script)
    assert "print(reduce_mean(sum(flags) / len(flags)))" in after and "from this rank's samples alone" not in said


@pytest.mark.parametrize(
    "body", ["hits += 1 if a == b else 0", "hit = 0\n{0}if a == b:\n{0}    hit = 1\n{0}hits += hit"]
)
def test_numbers_that_a_test_chooses_are_added_up(tmp_path: Path, body: str) -> None:
    loop = f"    hits = 0\n    for a, b in zip(guesses, labels):\n        {body.format(' ' * 8)}\n    print("
    after, _ = conftest.converted(tmp_path, COUNTED.format(shown="hits").replace("    print(", loop))
    assert "print(reduce_sum(hits))" in after and "gather_rows" not in after


def test_loss_over_the_samples_of_a_list_that_a_condition_holds_for_is_told(tmp_path: Path) -> None:
    """A rank may have none, of which `sum([])` is a number without a gradient."""
    step = "each = nn.functional.cross_entropy(out, y, reduction='none')\n        hard = [l for l in each if l > 1]\n"
    step += "        loss = sum(hard) / max(len(hard), 1)"
    script = COUNTED.format(shown="epoch").replace("loss = nn.functional.cross_entropy(out, y)", step)
    assert "AD602 sum(hard) adds up those samples that a condition leaves" in conftest.converted(tmp_path, script)[1]


WRITER = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.tensorboard import SummaryWriter


class Log(SummaryWriter):
    def __init__(self, folder):
        super().__init__(folder)

    def training(self, loss, step):
        self.add_scalar("loss", loss, step)


loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randint(0, 5, (64,))), batch_size=8, shuffle=True)
model = nn.Linear(8, 5)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
log = Log("runs")
for step, (x, y) in enumerate(loader):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    log.training(loss.item(), step)
log.close()
"""


def test_writer_of_a_class_of_its_own_is_there_on_rank_0(tmp_path: Path) -> None:
    after, _ = conftest.converted(tmp_path, WRITER)
    assert 'log = Log("runs") if dist.get_rank() == 0 else None' in after
    assert "mean_loss = reduce_mean(loss.item())\n    if dist.get_rank() == 0:\n        log.training(mean_loss" in after
    assert "if dist.get_rank() == 0:\n    log.close()" in after
