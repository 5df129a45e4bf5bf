"""Loaders and data sets that one expression makes for training and for evaluation, and methods that texts name."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

SCRIPT = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset, random_split


class Points(Dataset):
    def __init__(self, split):
        self.x = torch.randn(64 if split == "train" else 21, 4)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.x[index].sum()[None]


splits = random_split(TensorDataset(torch.randn(85, 4), torch.randn(85, 1)), [64, 21])
train_loader, test_loader = [DataLoader(part, batch_size=8, shuffle=i == 0) for i, part in enumerate(splits)]
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in train_loader:
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    total = 0.0
    with torch.no_grad():
        for x, y in test_loader:
            total += F.mse_loss(model(x), y, reduction="sum").item()
    print(epoch, total / len(test_loader.dataset))
"""
MADE = "[DataLoader(part, batch_size=8, shuffle=i == 0) for i, part in enumerate(splits)]"
ALIKE = "makes loaders for training and for evaluation alike"


def made(code: str, splits: str = "") -> str:
    """The script with loaders that are made otherwise."""
    assert MADE in SCRIPT
    script = SCRIPT.replace(MADE, code)
    return script.replace("splits = random_split(", f"splits = {splits}  # (") if splits else script


def test_a_number_tells_them_apart(tmp_path: Path) -> None:
    text, said = converted(tmp_path, SCRIPT)
    assert "sampler=DistributedSampler(part, seed=torch.initial_seed()) if i == 0 else None" in text
    assert ALIKE not in said
    assert "print(epoch, total / len(test_loader.dataset))" in text


def test_a_flag_written_out(tmp_path: Path) -> None:
    """`True if train else False` is `train`: the others are not shuffled, and need no generator for it."""
    written = "[DataLoader(part, batch_size=8, shuffle=True if i == 0 else False) for i, part in enumerate(splits)]"
    text, _ = converted(tmp_path, made(written))
    assert "sampler=DistributedSampler(part, seed=torch.initial_seed()) if i == 0 else None" in text
    assert "generator" not in text
    assert "shuffle=" not in text.partition("train_loader")[2]


def test_data_sets_of_a_comprehension(tmp_path: Path) -> None:
    text, said = converted(tmp_path, made(MADE, '[Points(name) for name in ("train", "test")]'))
    assert "sampler=DistributedSampler(part, seed=torch.initial_seed()) if i == 0 else None" in text
    assert ALIKE not in said


@pytest.mark.parametrize(
    "code",
    [
        "[DataLoader(part, batch_size=8, shuffle=True) for part in splits]",
        "(DataLoader(part, batch_size=8, shuffle=True) for part in splits)",
        "map(lambda part: DataLoader(part, batch_size=8, shuffle=True), splits)",
    ],
)
def test_nothing_tells_them_apart(tmp_path: Path, code: str) -> None:
    """All are shared out, and filled up: it is said that an evaluation counts some samples twice."""
    text, said = converted(tmp_path, made(code))
    assert ALIKE in said and "reduce_sum(total)" in text


def test_one_loader_for_each_round_is_none_of_several(tmp_path: Path) -> None:
    loop = SCRIPT.partition("for epoch in range(2):\n")[2].replace("test_loader", "train_loader")
    head = SCRIPT.partition("train_loader, test_loader =")[0]
    body = "    loader = DataLoader(part, batch_size=8)\n" + loop.replace("train_loader", "loader")
    model = "model = nn.Linear(4, 1)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    script = f"{head}{model}for epoch, part in enumerate(splits):\n{body}"
    assert ALIKE not in converted(tmp_path, script)[1]


WORKFLOW = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Runner:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer

    def train(self, loader):
        for x, y in loader:
            loss = F.mse_loss(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    def val(self, loader):
        total = 0.0
        with torch.no_grad():
            for x, y in loader:
                total += F.mse_loss(self.model(x), y, reduction="sum").item()
        print(total / len(loader.dataset))

    def run(self, loaders, workflow, epochs):
        for epoch in range(epochs):
            for i, flow in enumerate(workflow):
                mode, rounds = flow
                epoch_runner = getattr(self, mode)
                for _ in range(rounds):
                    epoch_runner(loaders[i])


train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
test_set = TensorDataset(torch.randn(21, 4), torch.randn(21, 1))
loaders = [DataLoader(train_set, batch_size=8, shuffle=True), DataLoader(test_set, batch_size=8)]
model = nn.Linear(4, 1)
runner = Runner(model, torch.optim.SGD(model.parameters(), lr=0.1))
runner.run(loaders, [("train", 1), ("val", 1)], 2)
"""


def test_a_workflow_of_methods(tmp_path: Path) -> None:
    """The runner of MMCV: what a phase does, and with which loader, goes by its name and number."""
    text, said = converted(tmp_path, WORKFLOW)
    assert "sampler=DistributedSampler(train_set, seed=torch.initial_seed())" in " ".join(text.split())
    assert "AD901" not in said
    assert "DataLoader(test_set, batch_size=8)]" in text and "print(total / len(loader.dataset))" in text


def test_a_method_that_a_setting_names(tmp_path: Path) -> None:
    """Which one is not known: any that a text of the project names."""
    script = WORKFLOW.replace('[("train", 1), ("val", 1)]', "sys.argv[1].split()").replace(
        "import torch\n", "import sys\n\nimport torch\n", 1
    )
    script = script.replace("mode, rounds = flow", 'mode, rounds = flow if flow in ("train", "val") else "train", 1')
    text, said = converted(tmp_path, script)
    assert "DDP(" in text and "AD901" not in said


LABELLED = """\
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

words = "the cat sees the dog and the dog sees the cat".split()
numbers = np.arange(11) % 3


def classes_of(words, y):
    {made}
    return found


found = classes_of(words, numbers)
inputs = torch.tensor([found.index(each) for each in {over}]).float()[:, None]
loader = DataLoader(TensorDataset(inputs, inputs), batch_size=2)
model = nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("made", "over", "told"),
    [
        ("found = list(set(words))", "words", True),
        ("found = list(set(words))\n    found.sort()", "words", False),
        ("found = list(set(words))\n    found.sort(key=len)", "words", True),
        ("y = y - np.min(y)\n    found = list(set(y))", "numbers", False),
        ("y = y.astype(np.int64)\n    found = list(set(y.tolist()))", "numbers", False),
        ("found = list(set(y))", "numbers", True),
        ("if len(y) > 5:\n        y = y.astype(np.int64)\n    found = list(set(y))", "numbers", True),
        ("found = list({len(word) for word in words})", "map(len, words)", False),
        ("found = list(set(words) - set(['the']))", "words[1:3]", True),
        ("found = list(set(words)) + list(range(3))", "words", True),
        ("found = list(set(words).difference(['the']))", "words[1:3]", True),
        ("found = list(set(words) | {'a'})", "words[1:3]", True),
        ("found = list(set(range(20)) - {3})", "range(3)", False),
        ("found = list(set(np.arange(20)) - set(y))", "range(3)", False),
    ],
)
def test_the_order_of_a_set(tmp_path: Path, made: str, over: str, told: bool) -> None:
    """Only words have another one in each process, unless they are sorted at once."""
    after, _ = converted(tmp_path, LABELLED.format(made=made, over=over))
    assert ("as_on_rank_zero(list(" in after or "as_on_rank_zero(found" in after) is told, after
