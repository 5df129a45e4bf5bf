"""What is made of the numbers of a batch's samples, which each rank would count anew."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

from autodist.verify import verify
from autodist.verify.launch import Zygote

SCRIPT = """\
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x, y = torch.randn(64, 8), torch.randn(64, 4)
model = nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{batches}
        {weights}
        loss = (weights[:, None] * (model(a) - b) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
"""
LOADED = """\
loader = DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True)
for epoch in range(2):
    for a, b in loader:\
"""
CUT = """\
for epoch in range(2):
    order = torch.randperm(len(x))
    for i in range(0, len(x), 8):
        a, b = x[order[i : i + 8]], y[order[i : i + 8]]\
"""
APPENDED = """\
numbers = []
        for i in range(a.size(0)):
            numbers.append(float(i))
        weights = torch.tensor(numbers)\
"""
MADE = [
    "weights = torch.arange(len(a)).float()",
    "weights = torch.tensor(list(range(len(a)))).float()",
    "weights = torch.tensor([i % 2 for i in range(len(a))]).float()",
    "weights = torch.FloatTensor([i % 2 for i, _ in enumerate(a)])",
    "weights = torch.from_numpy(np.array([i * 0.5 for i in range(a.shape[0])]))",
    APPENDED,
]


@pytest.mark.parametrize("batches", [LOADED, CUT], ids=["loaded", "cut"])
@pytest.mark.parametrize("weights", MADE)
def test_losses_that_samples_are_weighed_in_by_their_numbers(tmp_path: Path, batches: str, weights: str) -> None:
    """Every rank computes them of the samples of all, or it is said that a rank counts its own."""
    after, said = conftest.converted(tmp_path, SCRIPT.format(batches=batches, weights=weights))
    assert "RowsOfAllRanks.apply(" in after or "AD602" in said


@pytest.mark.parametrize("batches", [LOADED, CUT], ids=["loaded", "cut"])
def test_numbers_of_all_samples(tmp_path: Path, batches: str, zygote: Zygote | None) -> None:
    (tmp_path / "converted").mkdir()
    after, _ = conftest.converted(tmp_path, SCRIPT.format(batches=batches, weights=MADE[2]))
    (tmp_path / "converted" / "train.py").write_text(after)
    before, converted = tmp_path / "train.py", tmp_path / "converted" / "train.py"
    verdict = verify(before, converted, [2], steps=4, workdir=tmp_path, timeout=100, zygote=zygote)
    assert verdict.equal, verdict.findings


@pytest.mark.parametrize(
    "weights", ["weights = torch.tensor([1.0 for i in range(len(a))])", "weights = torch.tensor([p.sum() for p in a])"]
)
def test_lists_without_their_numbers_stay(tmp_path: Path, weights: str) -> None:
    after, said = conftest.converted(tmp_path, SCRIPT.format(batches=LOADED, weights=weights))
    assert "RowsOfAllRanks" not in after and "AD602" not in said


ONE_BY_ONE = """\
import itertools
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randn(64, 4)), batch_size=8, shuffle=True)
model, criterion, weights = nn.Linear(8, 4), nn.MSELoss(), torch.linspace(0, 1, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
log = lambda *given: None
for epoch in range(2):
    for x, y in loader:
        out, loss = model(x), 0
        {loss}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
"""
EACH = "for i in range(len(y)):\n            "
NUMBERED = "for i, t in enumerate(y):\n            "


@pytest.mark.parametrize(
    "loss",
    [
        EACH + "loss += 0.9**i * criterion(out[i], y[i])",
        EACH + "factor = 0.9**i\n            loss += factor * criterion(out[i], y[i])",
        EACH + "loss += weights[i] * criterion(out[i], y[i])",
        EACH + "loss += criterion(out[i], y[i - 1])",
        EACH + "j = (i + 1) % len(y)\n            loss += criterion(out[i], y[j])",
        EACH + "if i > 0:\n                loss += criterion(out[i], y[i])",
        EACH + "if i % 2:\n                continue\n            loss += criterion(out[i], y[i])",
        EACH + "loss += criterion(out[i], y[i]) if i < 4 else 0",
        NUMBERED + "loss += (i + 1) * criterion(out[i], t)",
        "loss = sum(criterion(out[i], t) / (i + 1) for i, t in enumerate(y))",
        "for i, (o, t) in enumerate(zip(out, y)):\n            if i < 4:\n                loss += criterion(o, t)",
        "for o, t, w in zip(out, y, weights):\n            loss += w * criterion(o, t)",
        "for o, t, w in zip(out, y, [0.1 * k for k in range(8)]):\n            loss += w * criterion(o, t)",
        "for o, t, w in zip(out, y, [1, 2, 3, 4, 5, 6, 7, 8]):\n            loss += w * criterion(o, t)",
        "for i, o, t in zip(range(8), out, y):\n            loss += i * criterion(o, t)",
        "for i, o, t in zip(itertools.count(1), out, y):\n            loss += criterion(o, t) / i",
        "for i, o, t in zip(range(len(y)), out, y):\n            loss += weights[i] * criterion(o, t)",
        "ids = range(len(y))\n        for i, o, t in zip(ids, out, y):\n            loss += i * criterion(o, t)",
        "loss = sum(map(lambda o, t, w: w * criterion(o, t), out, y, weights))",
        "loss = sum(criterion(out[i], t) for i, t in enumerate(y) if i > 1)",
        EACH + "if i:\n                loss += criterion(out[i], y[i])",
        EACH + "if y[i].sum() > 0 and 2 < i:\n                loss += criterion(out[i], y[i])",
        EACH + "if i < len(y) - 1:\n                loss += criterion(out[i], y[i])",
        EACH + "loss += criterion(out[i], y[i])\n            if i == 3:\n                break",
        EACH
        + "w = 1.0\n            if i < 4:\n                w = 0.5\n            loss += w * criterion(out[i], y[i])",
        EACH + "loss += criterion(out[i], y[i]) if i else 2 * criterion(out[i], y[i])",
        EACH
        + "if i > 0:\n                loss += criterion(out[i], y[i])\n            else:\n                log(loss)",
        EACH + "for j in range(i):\n                loss += criterion(out[i], out[j])",
        EACH + "loss += [1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0][i] * criterion(out[i], y[i])",
        EACH + "loss += {0: 2.0}.get(i, 1.0) * criterion(out[i], y[i])",
        EACH + "loss += [nn.functional.l1_loss, criterion][i % 2](out[i], y[i])",
        EACH + "loss += {0: nn.functional.l1_loss}.get(i, criterion)(out[i], y[i])",
        EACH + "f = nn.functional.l1_loss if i % 2 else criterion\n            loss += f(out[i], y[i])",
        EACH
        + "f = criterion\n            if i == 0:\n                f = nn.functional.l1_loss\n"
        + "            loss += f(out[i], y[i])",
        EACH
        + "match i:\n                case 0:\n                    pass\n                case _:\n"
        + "                    loss += criterion(out[i], y[i])",
        EACH
        + "match i:\n                case 0:\n                    continue\n"
        + "            loss += criterion(out[i], y[i])",
    ],
)
def test_losses_of_rows_that_go_by_their_numbers(tmp_path: Path, loss: str) -> None:
    """They are told of, or go by the numbers of all samples."""
    after, said = conftest.converted(tmp_path, ONE_BY_ONE.format(loss=loss))
    assert "AD602" in said or "RowsOfAllRanks" in after


TERMS = """\
def weight(i):
    return 0.9**i


def target(i, y):
    return y[i]


def pair(out, y, i):
    return criterion(out[i], target(y=y, i=i))


def faded(out, y, i):
    w = weight(i)
    return w * pair(out, y, i)


def told(out, y, i):
    print(end="" if i < 0 else "")
    return pair(out, y, i)


def late(out, y, *, i):
    if i < 4:
        return 0
    return pair(out, y, i)


def later(out, y, i):
    return faded(out, y, i)


def add(terms, out, y, i):
    terms.append(i * pair(out, y, i))


class Weighing:
    def __call__(self, i):
        return 0.9**i

    def term(self, out, y, i):
        return weight(i) * pair(out, y, i)


weighing = Weighing()


"""
"""Functions of the project that are given the number of a row, and are also at the top of the script."""


@pytest.mark.parametrize(
    "loss",
    [
        "loss += faded(out, y, i)",
        "loss += weight(i) * pair(out, y, i)",
        "w = weight(i)\n            loss += w * pair(out, y, i)",
        "loss += late(out, y, i=i)",
        "loss += later(i=i, y=y, out=out)",
        "loss += weighing.term(out, y, i)",
        "loss += (lambda out, y, n: n * pair(out, y, n))(out, y, i)",
        "terms = []\n            add(terms, out, y, i)\n            loss += terms[0]",
        "loss += criterion(out[i], target(i - 1, y))",
        "loss += weighing(i) * pair(out, y, i)",
    ],
)
def test_functions_that_go_by_the_number_of_a_row(tmp_path: Path, loss: str) -> None:
    """They are told of, or go by the numbers of all samples."""
    script = ONE_BY_ONE.format(loss=EACH + loss).replace("for epoch", TERMS + "for epoch", 1)
    after, said = conftest.converted(tmp_path, script)
    assert "AD602" in said or "RowsOfAllRanks" in after


@pytest.mark.parametrize(
    "loss",
    [
        "loss += pair(out, y, i) / len(y)",
        "loss += criterion(out[i], target(i, y)) / len(y)",
        "t = target(i, y)\n            loss += criterion(out[i], t) / len(y)",
        "loss += told(out, y, i) / len(y)",
        "w = weight(i)\n            log(w)\n            loss += pair(out, y, i) / len(y)",
    ],
)
def test_functions_that_a_number_only_finds_a_row_for(tmp_path: Path, loss: str) -> None:
    script = ONE_BY_ONE.format(loss=EACH + loss).replace("for epoch", TERMS + "for epoch", 1)
    _, said = conftest.converted(tmp_path, script)
    assert "AD602" not in said


@pytest.mark.parametrize(
    "loss",
    [
        EACH + "loss += criterion(out[i : i + 1], y[i : i + 1])\n        loss = loss / len(y)",
        EACH
        + "print(end=f'{i}' if i < 0 else '')\n            loss += criterion(out[i], y[i])\n        loss /= len(y)",
        EACH + "term = criterion(out[i], y[i])\n            log(term, epoch + i)\n            loss += term / len(y)",
        NUMBERED + "loss += criterion(out[i], t)\n        loss = loss / len(y)",
        "loss = sum(criterion(out[i], t) for i, t in enumerate(y)) / len(y)",
        EACH + "loss += criterion(out[i], y[i]) / len(y)\n            if i % 4 == 0:\n                log(loss.item())",
        "for i in range(y.shape[1]):\n            if i > 0:\n                loss += criterion(out[:, i], y[:, i])",
        "for i in range(y.shape[1]):\n            loss += [1.0, 2.0, 3.0, 4.0][i] * criterion(out[:, i], y[:, i])",
        EACH + "loss += [nn.functional.l1_loss, criterion][epoch](out[i], y[i])\n        loss /= len(y)",
        "chosen = nn.functional.l1_loss if epoch else criterion\n        chosen = [chosen][0]\n        "
        + EACH
        + "loss += chosen(out[i], y[i])\n        loss /= len(y)",
        "i = 0\n        while i < len(y):\n            loss += criterion(out[i : i + 1], y[i : i + 1])\n"
        + "            i += 1\n        loss = loss / i",
        "i, n = 0, y.size(0)\n        while i < n:\n"
        + "            loss += criterion(out[i : i + 2], y[i : i + 2]) * 2 / n\n            i += 2",
        "loss = torch.zeros(len(y))\n        " + EACH + "loss[i] = criterion(out[i], y[i])\n        loss = loss.mean()",
    ],
)
def test_losses_of_rows_that_their_numbers_only_find(tmp_path: Path, zygote: Zygote, loss: str) -> None:
    """Numbers by `enumerate` were taken for places of a batch."""
    before = ONE_BY_ONE.format(loss=loss)
    code, said = conftest.converted(tmp_path, before)
    assert "AD602" not in said
    (tmp_path / "before.py").write_text(before)
    (tmp_path / "after.py").write_text(code)
    verdict = verify(tmp_path / "before.py", tmp_path / "after.py", [2], device="cpu", workdir=tmp_path, zygote=zygote)
    assert verdict.worlds[0].equal, (verdict.worlds[0].reason, verdict.worlds[0].findings)


@pytest.mark.parametrize(
    "loss",
    [
        EACH + "loss += weights[i] * criterion(out[i], y[i])",
        EACH + "if i > 0:\n                loss += criterion(out[i], y[i])",
        EACH + "if i % 2:\n                continue\n            loss += criterion(out[i], y[i])",
        "loss = sum([criterion(out[i], y[i]) for i in range(len(y)) if i % 2])",
        EACH + "w = 1.0 if i < 4 else 0.5\n            loss += w * criterion(out[i], y[i])",
        EACH + "loss += [1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0][i] * criterion(out[i], y[i])",
        EACH + "loss += [nn.functional.l1_loss, criterion][i % 2](out[i], y[i])",
        "i = 0\n        while i < len(y):\n            if i > 0:\n                loss += criterion(out[i], y[i])\n"
        + "            i += 1",
    ],
)
def test_losses_that_numbers_decide_over_with_rows_of_all_ranks(tmp_path: Path, zygote: Zygote, loss: str) -> None:
    before = ONE_BY_ONE.format(loss=loss)
    assert "RowsOfAllRanks" in conftest.converted(tmp_path, before)[0]
    assert conftest.differences(tmp_path, zygote, before) is None


@pytest.mark.parametrize(
    "loss",
    [
        "w = 1.0\n        " + EACH + "loss += w * criterion(out[i], y[i])\n            w *= 0.5",
        "w = 1.0\n        " + EACH + "w = w / 2\n            loss += w * criterion(out[i], y[i])",
        "w = 1.0\n        for o, t in zip(out, y):\n            loss += w * criterion(o, t)\n            w = 0.9 * w",
        "k = 0\n        " + EACH + "k += 1\n            loss += k * criterion(out[i], y[i])",
        "k = 0\n        for o, t in zip(out, y):\n            k = k + 1\n            loss += criterion(o, t) / k",
        "k = 0\n        for o, t in zip(out, y):\n            loss += criterion(o, t) * 0.9**k\n            k += 1",
    ],
)
def test_losses_that_go_by_what_a_loop_carries_from_row_to_row(tmp_path: Path, loss: str) -> None:
    """They were silent: a row has another number in the batch of one process."""
    code, said = conftest.converted(tmp_path, ONE_BY_ONE.format(loss=loss))
    assert "RowsOfAllRanks" in code or "AD602" in said or "AD601 the loss is computed from" in said


@pytest.mark.parametrize(
    "loss",
    [
        "k = 0\n        for o, t in zip(out, y):\n            loss += criterion(o, t)\n            k += 1\n        "
        + "loss = loss / k",
        "k = 1\n        for _ in range(3):\n            k *= 2\n        loss = k * criterion(out, y)",
        "w = 1.0\n        for layer in model.parameters():\n            w *= 0.5\n            "
        + "loss = loss + w * layer.pow(2).sum()\n        loss = loss + criterion(out, y)",
        "for o, t in zip(out, y):\n            w = 1.0\n            for _ in range(2):\n                w *= 0.5\n"
        + "            loss += w * criterion(o, t)\n        loss = loss / len(y)",
    ],
)
def test_what_loops_carry_that_is_no_number_of_a_row(tmp_path: Path, zygote: Zygote, loss: str) -> None:
    before = ONE_BY_ONE.format(loss=loss)
    code, said = conftest.converted(tmp_path, before)
    assert "AD602" not in said and "RowsOfAllRanks" not in code
    assert conftest.differences(tmp_path, zygote, before) is None
