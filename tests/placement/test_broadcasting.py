"""Tensors of a batch with different numbers of axes: the samples of one meet another axis of the other."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

SCRIPT = """\
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset


class Waves(Dataset):
    def __init__(self, n):
        self.waves = [np.random.randn(9, 5).astype(np.float32) for _ in range(n)]
        self.targets = torch.rand(n)

    def __len__(self):
        return len(self.waves)

    def __getitem__(self, index):
        wave = self.waves[index]
        if len(wave) < 8:
            piece = np.pad(wave, ((0, 8 - len(wave)), (0, 0)))
        else:
            piece = wave[:8]
        return piece, self.targets[index]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(5, 5, batch_first=True)
        self.head = nn.Linear(5, 1)

    def forward(self, x):
        out, state = self.rnn(x)
        return {gives}


loader = DataLoader({data}, batch_size=8, shuffle=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = nn.MSELoss()
for epoch in range(2):
    for x, y in loader:
        loss = {loss}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item())
"""
PAIR = "TensorDataset(torch.randn(64, 8, 5), torch.rand(64))"


def converted(folder: Path, gives: str, loss: str, data: str) -> tuple[str, str]:
    """The conversion and what is said of it."""
    return conftest.converted(folder, SCRIPT.format(gives=gives, loss=loss, data=data))


@pytest.mark.parametrize("data", [PAIR, "Waves(64)"])
@pytest.mark.parametrize(
    ("gives", "loss"),
    [
        ("self.head(out[:, -1])", "criterion(model(x), y)"),
        ("self.head(out[:, -1])", "(model(x) - y).pow(2).mean()"),
        ("self.head(out[:, -1])", "model(x).sub(y).abs().mean()"),
        ("self.head(out[:, -1]).squeeze(1)", "F.l1_loss(model(x), y.view(-1, 1))"),
    ],
)
def test_rows_that_are_broadcast_are_those_of_all_ranks(tmp_path: Path, gives: str, loss: str, data: str) -> None:
    after, _ = converted(tmp_path, gives, loss, data)
    assert "RowsOfAllRanks.apply(model(x))" in after and "RowsOfAllRanks.apply(y" in after


def test_shapes_that_a_data_set_of_the_project_gives(tmp_path: Path) -> None:
    """`np.pad` tells of how many axes a sample is, and so does a batch of an LSTM."""
    after, _ = converted(tmp_path, "out.unsqueeze(1)", "F.mse_loss(model(x), x)", "Waves(64)")
    assert "F.mse_loss(RowsOfAllRanks.apply(model(x)), RowsOfAllRanks.apply(x))" in after


@pytest.mark.parametrize(
    ("gives", "loss"),
    [
        ("self.head(out[:, -1])", "criterion(model(x).view(-1), y)"),
        ("self.head(out[:, -1])", "criterion(model(x), y.unsqueeze(1))"),
        ("self.head(state[0][-1]).squeeze(1)", "criterion(model(x), y)"),
        ("out", "(model(x) * y.view(-1, 1, 1)).pow(2).mean()"),
        ("out", "(model(x) - y[:, None, None]).pow(2).mean()"),
        ("out", "(y * (model(x) - x).pow(2).mean((1, 2))).mean()"),
    ],
)
def test_rows_that_meet_their_own_stay_as_they_are(tmp_path: Path, gives: str, loss: str) -> None:
    after, said = converted(tmp_path, gives, loss, PAIR)
    assert "RowsOfAllRanks" not in after and "AD602" not in said


TABLE = """\
import numpy as np
import pandas as pd
import torch
from sklearn.datasets import make_regression
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

table = pd.read_csv("table.csv")


class Rows(Dataset):
    def __init__(self, path):
        rows = pd.read_csv(path)
        self.x = torch.tensor(rows.iloc[:, :-1].values).float()
        self.y = torch.tensor(rows.iloc[:, -1].values).float()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


{data}
loader = DataLoader(data, batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = {loss}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
PAIRED = [
    'a, b = table.iloc[:, :4].values, table["e"].values',
    "v = table.values\na, b = v[:, :4], v[:, 4]",
    'a, b = table.drop("e", axis=1).to_numpy(), table.e.values',
    'v = np.loadtxt("table.txt")\na, b = v[:, :4], v[:, -1]',
    "a, b = make_regression(64, 4)",
    "a, c, b, d = train_test_split(table[list('abcd')].values, table['e'].values, test_size=0.2)",
    'a, b = np.load("a.npy"), np.load("b.npy")',
]
APART = [
    'a, b = table.iloc[:, :4].values, table[["e"]].values',
    "v = table.values\na, b = v[:, :4], v[:, 4:]",
    'v = np.loadtxt("table.txt")\na, b = v[:, :4], v[:, -1:]',
    'a, b = table.iloc[:, :4].values, table["e"].values.reshape(-1, 1)',
]
TENSORS = "\ndata = TensorDataset(torch.tensor(a).float(), torch.tensor(b).float())"
MSE = "nn.functional.mse_loss(model(x), y)"


@pytest.mark.parametrize("data", [*(each + TENSORS for each in PAIRED), 'data = Rows("table.csv")'])
def test_columns_of_tables_and_arrays(tmp_path: Path, data: str) -> None:
    """One column lies along one axis, (n), where the model gives (n, 1). What is unknown may, too."""
    after, said = conftest.converted(tmp_path, TABLE.format(data=data, loss=MSE))
    assert "RowsOfAllRanks.apply(model(x))" in after and "RowsOfAllRanks.apply(y)" in after and "AD602" not in said


@pytest.mark.parametrize("data", [each + TENSORS for each in APART])
def test_tables_of_one_column(tmp_path: Path, data: str) -> None:
    after, said = conftest.converted(tmp_path, TABLE.format(data=data, loss=MSE))
    assert "RowsOfAllRanks" not in after and "AD602" not in said


@pytest.mark.parametrize(
    "loss",
    [
        "nn.functional.mse_loss(model(x), y.view(-1, 1))",
        "nn.functional.mse_loss(model(x).squeeze(), y)",
        "nn.functional.binary_cross_entropy_with_logits(model(x), y)",
    ],
)
def test_where_unknown_data_are_told_apart(tmp_path: Path, loss: str) -> None:
    """By the script, or by torch, which refuses to broadcast them."""
    after, said = conftest.converted(tmp_path, TABLE.format(data=PAIRED[-1] + TENSORS, loss=loss))
    assert "RowsOfAllRanks" not in after and "AD602" not in said


@pytest.mark.parametrize(
    "body",
    [
        "x = x + self.attention(x, x, x, need_weights=False)[0]",
        "found = self.attention(x, x, x)[0]\n        x = found + x",
        "x = x + self.rnn(x)[0]",
        "found = self.rnn(x)\n        x = x + found[0]",
    ],
)
def test_a_layer_that_gives_two(tmp_path: Path, body: str) -> None:
    """What a layer gives first is no first sample, as `x[0]` is."""
    script = SCRIPT.format(gives="self.head(x[:, -1])", loss="criterion(model(x), y.unsqueeze(1))", data=PAIR)
    script = script.replace("out, state = self.rnn(x)", body).replace(
        "        self.head =",
        "        self.attention = nn.MultiheadAttention(5, 1, batch_first=True)\n        self.head =",
    )
    text, said = conftest.converted(tmp_path, script)
    assert "AD602" not in said and "AD9" not in said and "RowsOfAllRanks" not in text


LABELS = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, Subset
from torchvision import datasets, transforms

data = datasets.CIFAR10("data", transform=transforms.ToTensor())
loader = DataLoader({data}, batch_size=8, shuffle=True)
model = nn.Sequential(nn.Flatten(), nn.Linear(3072, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.mse_loss(model(x){out}, y.float())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize("data", ["data", "Subset(data, range(64))"])
@pytest.mark.parametrize(("out", "paired"), [("", True), (".squeeze(1)", False)])
def test_labels_of_a_library_lie_along_one_axis(tmp_path: Path, data: str, out: str, paired: bool) -> None:
    after, said = conftest.converted(tmp_path, LABELS.format(data=data, out=out))
    assert ("RowsOfAllRanks.apply(model(x))" in after) == paired and "AD602" not in said


MASKS = """\
import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self, kinds):
        super().__init__()
        self.kinds = kinds
        self.body = nn.Conv2d(3, kinds, 3, padding=1)

    def forward(self, x):
        return self.body(x)


def train(model, args):
    loader = DataLoader(
        TensorDataset(torch.randn(32, 3, 5, 5), torch.randint(0, 2, (32, 5, 5))), batch_size=8, shuffle=True
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    criterion = nn.CrossEntropyLoss() if {first} else nn.{single}()
    for x, y in loader:
        out = model(x)
        if {second}:
            loss = criterion(out.squeeze(1), y.float())
        else:
            loss = criterion(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


parser = argparse.ArgumentParser()
parser.add_argument("--kinds", type=int, default=2)
args = parser.parse_args()
train(Net(args.kinds), args)
"""


@pytest.mark.parametrize(
    ("single", "first", "second", "pairs"),
    [
        ("BCEWithLogitsLoss", "model.kinds > 1", "model.kinds == 1", False),
        ("BCELoss", "model.kinds > 1", "args.other", False),
        ("MSELoss", "model.kinds > 1", "args.other", True),
        ("SmoothL1Loss", "model.kinds > 1", "model.kinds == 1", True),  # of none, for all that is known
        ("MSELoss", "model.kinds > 1", "model.kinds <= 1", False),
        ("MSELoss", "model.kinds == 2", "model.kinds not in (2, 3)", True),
        ("MSELoss", "model.kinds in (2, 3)", "not model.kinds == 2", False),
        ("MSELoss", "not model.kinds == 1", "args.kinds == 1", False),
    ],
)
def test_losses_of_branches_that_exclude_each_other(
    tmp_path: Path, single: str, first: str, second: str, pairs: bool
) -> None:
    """A loss meets the axes of the branch that it is made for; one that takes no others than of its own size pairs no
    samples in any."""
    after, said = conftest.converted(tmp_path, MASKS.format(single=single, first=first, second=second))
    assert ("RowsOfAllRanks" in after or "AD906" in said) == pairs
