"""Recommenders and graphs: samples that are drawn for each user, models that keep a graph, tables of loaders whose
names are put together."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

PAIRS = """\
import random

import numpy as np
import torch
from torch import nn, optim


class Data:
    def __init__(self, batch_size):
        self.batch_size = batch_size
        self.bought = {u: [(u + 3 * k) % 30 for k in range(6)] for u in range(40)}
        self.users = list(self.bought.keys())

    def sample(self):
        if self.batch_size <= len(self.users):
            users = random.sample(self.users, self.batch_size)
        else:
            users = [random.choice(self.users) for _ in range(self.batch_size)]
        pos, neg = [], []
        for u in users:
            pos.append(self.bought[u][np.random.randint(0, 6)])
            while True:
                item = np.random.randint(0, 30)
                if item not in self.bought[u]:
                    break
            neg.append(item)
        return users, pos, neg


class MF(nn.Module):
    def __init__(self):
        super().__init__()
        self.users = nn.Embedding(40, 8)
        self.items = nn.Embedding(30, 8)
    def forward(self, u, i, j):
        u, i, j = self.users(u), self.items(i), self.items(j)
        return -nn.functional.logsigmoid((u * i).sum(1) - (u * j).sum(1)).mean()


random.seed(1)
np.random.seed(1)
torch.manual_seed(1)
data = Data(8)
model = MF()
optimizer = optim.Adam(model.parameters(), lr=0.01)
for epoch in range(3):
    for step in range(4):
        users, pos, neg = (torch.LongTensor(each) for each in data.sample())
        loss = model(users, pos, neg)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def test_all_ranks_draw_what_is_drawn_for_each_user(tmp_path: Path) -> None:
    """A rank that went over its own users alone would draw other items for them than one process does."""
    text, _ = converted(tmp_path, PAIRS)
    assert "random.sample(self.users, self.batch_size)\n" in text
    assert "users, pos, neg = (torch.LongTensor(local_rows(each)) for each in data.sample())" in text


LOADERS = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Runner:
    def __init__(self):
        def get(split, batch_size, shuffle=True):
            x = torch.randn(64, 4)
            return DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=batch_size, shuffle=shuffle)

        self.data_iter = {
            "train": get("train", 8),
            "valid_head": get("valid_head", 8),
            "valid_tail": get("valid_tail", 8),
        }
        self.model = nn.Linear(4, 1)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)

    def predict(self, split, mode):
        results = {}
        with torch.no_grad():
            batches = iter(self.data_iter[KEY])
            for step, (x, y) in enumerate(batches):
                error = (self.model(x) - y).abs()
                results["count"] = torch.numel(error) + results.get("count", 0.0)
                results["mae"] = torch.sum(error).item() + results.get("mae", 0.0)
        return results

    def fit(self):
        for epoch in range(2):
            batches = iter(self.data_iter["train"])
            for step, (x, y) in enumerate(batches):
                self.optimizer.zero_grad()
                nn.functional.mse_loss(self.model(x), y).backward()
                self.optimizer.step()
            left, right = self.predict("valid", "head_batch"), self.predict("valid", "tail_batch")
            print(epoch, (left["mae"] + right["mae"]) / (2 * float(left["count"])))


torch.manual_seed(0)
Runner().fit()
"""


def test_a_name_that_is_put_together_names_no_other_loader(tmp_path: Path) -> None:
    for key in (
        '"{}_{}".format(split, mode.split("_")[0])',
        'f"{split}_{mode.split(chr(95))[0]}"',
        'split + "_" + mode.split("_")[0]',
    ):
        folder = tmp_path / str(len(key))
        folder.mkdir()
        text, said = converted(folder, LOADERS.replace("KEY", key))
        assert "reduce_sum" not in text, key
        assert text.count("set_epoch(") == 1
        assert "cannot be told here" not in said


LINES = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def load(path):
    users = {}
    for line in open(path).readlines():
        inter = SPLIT
        user, items = inter[0], inter[1:]
        items = list(set(items))
        users[user] = items
    return users


torch.manual_seed(0)
users = load("train.txt")
x = torch.tensor([[float(len(v))] * 4 for v in users.values()])
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
"""


def test_parts_of_a_list_of_numbers_are_numbers(tmp_path: Path) -> None:
    """`user, items = inter[0], inter[1:]` of `[int(i) for i in line.split()]` has one order everywhere."""
    (tmp_path / "words").mkdir()
    text, _ = converted(tmp_path, LINES.replace("SPLIT", "[int(i) for i in line.strip().split()]"))
    assert "as_on_rank_zero" not in text
    text, _ = converted(tmp_path / "words", LINES.replace("SPLIT", "line.strip().split()"))
    assert "items = as_on_rank_zero(list(set(items)))" in text


SPARSE = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.users = nn.Linear(4, 4)
        self.out = nn.Linear(4, 1)
        self.graph = nn.Parameter(torch.sparse.FloatTensor(4, 4), requires_grad=False)

    def score(self, x):
        return self.out(self.users(x))


torch.manual_seed(0)
x = torch.randn(64, 4)
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8, shuffle=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model.score(x), y).backward()
        optimizer.step()
"""


def test_a_sparse_graph_in_a_models_state_is_not_sent(tmp_path: Path) -> None:
    text, _ = converted(tmp_path, SPARSE)
    assert "    if not tensor.is_sparse:\n        dist.broadcast(tensor, 0)\n" in text


SESSIONS = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
items, alias = torch.randint(1, 20, (64, 5)), torch.randint(0, 5, (64, 5))
loader = DataLoader(TensorDataset(alias, items, torch.randint(0, 19, (64,))), batch_size=8, shuffle=True)
model = nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 19))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for alias_inputs, inputs, targets in loader:
        alias_inputs = alias_inputs.long()
        hidden = model(inputs)
        get = lambda index: hidden[index][alias_inputs[index]]
        scores = torch.stack([get(i) for i in torch.arange(len(alias_inputs)).long()]).mean(1)
        optimizer.zero_grad()
        nn.functional.cross_entropy(scores, targets).backward()
        optimizer.step()
"""


def test_a_cast_of_a_batchs_field_picks_as_the_field_does(tmp_path: Path) -> None:
    """`alias_inputs.long()` names places within each session, as the loader hands them out."""
    _, said = converted(tmp_path, SESSIONS)
    assert "AD602" not in said


WORDS = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = torch.randint(1, 12, (48, 7))
loader = DataLoader(TensorDataset(data[:, :-1], data[:, 1:]), batch_size=4, shuffle=True)
model = nn.Sequential(nn.Embedding(12, 8), nn.Linear(8, 12))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        out = model(x)
        flat = out.reshape(out.shape[0] * out.shape[1], -1)
        loss = criterion(flat, y.flatten())
        loss.backward()
        optimizer.step()
    print({shown})
"""


@pytest.mark.parametrize(("shown", "gathered"), [("out.argmax(2)", True), ("flat.argmax(1)", False)])
def test_words_of_all_samples_in_one_axis_are_not_joined_row_by_row(tmp_path: Path, shown: str, gathered: bool) -> None:
    """The words of a rank's samples would lie among those of others, where labels lie sample by sample."""
    code, said = converted(tmp_path, WORDS.format(shown=shown))
    assert ("gather_rows(out" in code) is gathered and "gather_rows(flat" not in code
    assert ("reports" in said) is not gathered
