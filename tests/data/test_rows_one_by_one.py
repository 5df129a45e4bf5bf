"""Loops over the rows of all the data, one after the other: which leave a rank its own rows, and which do not."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import differences

from autodist.config import Config, Strategy
from autodist.convert import convert
from autodist.project import Project
from autodist.verify.launch import Zygote

SCRIPT = """
import torch
from torch import nn

x, y = torch.randn(10, 5, 4), torch.randint(0, 3, (10, 5))
n, weights = len(x), [0.1 * k for k in range(10)]


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.out = nn.GRU(4, 8, batch_first=True), nn.Linear(8, 3)

    def forward(self, x):
        return self.out(self.rnn(x)[0])


model = Tagger()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(5):
    output, loss = model(x), 0
    BODY
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def converted(body: str, folder: Path) -> tuple[set[str], str]:
    (folder / "train.py").write_text(SCRIPT.replace("BODY", body.replace("\n", "\n    ")))
    result = convert(Project.load(folder / "train.py"), Config(Strategy.DDP))
    return {diagnostic.code for diagnostic in result.diagnostics}, result.entry.after or ""


EACH = "for i in range(len(y)):\n    "
SHARED = [
    EACH + "loss += criterion(output[i], y[i])",
    EACH + "loss = loss + criterion(output[i], y[i])",
    EACH + "loss += criterion(output[i], y[i])\nloss = loss / len(y)",
    "for i in range(0, output.size(0)):\n    loss += criterion(output[i], y[i])",
    "for i in range(n):\n    loss += criterion(output[i], y[i])",
    EACH + "row = output[i]\n    loss += criterion(row, y[i]) + row.t().mm(row).mean()",
    EACH + "for t in range(5):\n        loss += criterion(output[i, t : t + 1], y[i, t : t + 1])",
    "out = torch.zeros(len(y), 5, 3)\n" + EACH + "out[i] = output[i].tanh()\nloss = out.pow(2).mean()",
    "out = torch.zeros(n, 5, 3)\nfor t in range(5):\n    out[:, t] = output[:, t]\nloss = out.pow(2).mean()",
]
REFUSED = {
    EACH + "loss += (i + 1) * criterion(output[i], y[i])": "a number for each of the rank's own samples",
    EACH + "loss += weights[i] * criterion(output[i], y[i])": "a number for each of the rank's own samples",
    EACH + "k = i\n    loss += criterion(output[i], y[i]) * k": "a number for each of the rank's own samples",
    "for i in range(1, len(y)):\n    loss += criterion(output[i], y[i])": "by their places",
    "for i in range(output.size(0) // 2):\n    loss += criterion(output[i], y[i])": "is rounded for each rank's share",
    "h = torch.zeros(5, 3)\n" + EACH + "h = 0.5 * h + output[i]\n    loss += criterion(h, y[i])": "an earlier round",
    EACH + "loss = criterion(output[i], y[i])": "what a loop has left",
    "for i in range(output.size(0)):\n    loss = criterion(output[i], y[i])\n    loss.backward(retain_graph=True)": "",
}
GATHERED = [
    EACH + "for k in range(len(y)):\n        loss += (output[i] - output[k]).pow(2).mean()",
    "out = torch.zeros(len(y), 5, 3)\n" + EACH + "out[i] = output[i] * i\nloss = out.pow(2).mean()",
    "out = torch.zeros(len(y), 5, 3)\n" + EACH + "out[i] = output[i - 1]\nloss = out.pow(2).mean()",
    "out = torch.zeros(10, 5, 3)\nfor t in range(5):\n    out[:, t] = output[:, t]\nloss = out.pow(2).mean()",
]
"""Whose loss goes by the place that each row has among all: these are put together first."""


@pytest.mark.parametrize("body", SHARED)
def test_a_rank_goes_through_its_own_rows(body: str, tmp_path: Path) -> None:
    codes, after = converted(body, tmp_path)
    assert "AD207" in codes and "AD902" not in codes
    assert "model(x[rows])" in after


@pytest.mark.parametrize(("body", "reason"), REFUSED.items())
def test_rounds_that_belong_together_are_told(body: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT.replace("BODY", body.replace("\n", "\n    ")))
    found = convert(Project.load(tmp_path / "train.py"), Config(Strategy.DDP)).diagnostics
    assert any(each.code in ("AD602", "AD902") and reason in each.message for each in found)


@pytest.mark.parametrize("body", GATHERED)
def test_rounds_that_go_by_places_have_the_rows_of_all_ranks(body: str, tmp_path: Path, zygote: Zygote | None) -> None:
    codes, _ = converted(body, tmp_path)
    assert "AD606" in codes and "AD602" not in codes
    assert differences(tmp_path, zygote, SCRIPT.replace("BODY", body.replace("\n", "\n    "))) is None


def test_rows_that_are_viewed_lie_side_by_side(tmp_path: Path) -> None:
    _, after = converted("loss = criterion(output.view(-1, 3), y.view(-1))", tmp_path)
    assert "y[rows].contiguous().view(-1)" in after


SEQUENCES = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(DATA), batch_size=8)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.out = nn.LSTM(4, 8, batch_first=True), nn.Linear(8, 1)

    def forward(self, x):
        return self.out(self.rnn(x)[0])


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for (x,) in loader:
        loss = model(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def test_rows_without_an_axis_of_time_are_one_sequence(tmp_path: Path) -> None:
    """Whatever a layer is told of its axes."""
    for data, codes in (("torch.randn(64, 4)", {"AD602"}), ("torch.randn(64, 5, 4)", set[str]())):
        (tmp_path / "train.py").write_text(SEQUENCES.replace("DATA", data))
        found = convert(Project.load(tmp_path / "train.py"), Config(Strategy.DDP)).diagnostics
        assert {each.code for each in found} & {"AD602"} == codes
