"""Pictures in other shapes: axes counted from the last one, passes by `list(loader)`, tuples of loaders that are
unpacked for one trainer or another."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

from autodist.config import Config
from autodist.convert import convert
from autodist.project import Project

HEAD = """\
import sys
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import Variable
from torch.utils.data import BatchSampler, DataLoader, Sampler, SubsetRandomSampler, TensorDataset

rows = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
"""
LOADER = "loader = DataLoader(rows, batch_size=8, shuffle=True)\n"
MODEL = """\
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
STEP = """\
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item())
"""
DICE = """\
def dice(output, target):
    output, target = {turned}, {turned}
    both = (output * target).sum({axis})
    return 1 - torch.mean(both / torch.sum(output + target, {axis}))


pictures = TensorDataset(torch.randn(32, 3, 8, 8), torch.rand(32, 4, 8, 8))
loader = DataLoader(pictures, batch_size=8, shuffle=True)
model = nn.Conv2d(3, 4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        loss = dice(model(x).sigmoid(), y)
"""


@pytest.mark.parametrize("axis", ["1", "-1", "dim=-1"])
@pytest.mark.parametrize("turned", ["transpose(0, 1)", "permute((1, 0) + tuple(range(2, {}.dim())))"])
def test_sums_along_the_last_axis_are_over_the_samples_that_lie_there(tmp_path: Path, axis: str, turned: str) -> None:
    folded = [f"{each}.{turned.replace('{}', each)}.reshape(4, -1)" for each in ("output", "target")]
    text = DICE.replace("{turned}, {turned}", ", ".join(folded)).replace("{axis}", axis)
    code, _ = conftest.converted(tmp_path, HEAD + text + STEP)
    rows = "dice(RowsOfAllRanks.apply(model(x).sigmoid()), RowsOfAllRanks.apply(y))"  # where the axes are not told
    assert (rows if "permute" in turned else f"SumOverRanks.apply(torch.sum(output + target, {axis}))") in code


def test_sums_along_a_last_axis_of_features_stay_each_sample_s(tmp_path: Path) -> None:
    text = LOADER + MODEL + "for epoch in range(2):\n    for x, y in loader:\n"
    code, said = conftest.converted(
        tmp_path, HEAD + text + "        loss = (model(x) - y).pow(2).sum(-1).mean()\n" + STEP
    )
    assert "SumOverRanks" not in code and "AD602" not in said


SCALED = """\
class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 1)

    def forward(self, x):
        return self.inner(x / {scale})


model = Scaled()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        loss = F.mse_loss(model(x), y)
"""


@pytest.mark.parametrize(
    ("scale", "mixes"),
    [("torch.max(x.std(dim=1, keepdim=True), 1.0 / torch.sqrt(torch.FloatTensor([4])))", False), ("x.std()", True)],
)
def test_larger_number_of_each_pair_is_no_statistic(tmp_path: Path, scale: str, mixes: bool) -> None:
    code, said = conftest.converted(tmp_path, HEAD + LOADER + SCALED.replace("{scale}", scale) + STEP)
    assert ("AD602" in said) is mixes and "DDP(" in code


@pytest.mark.parametrize(
    "body",
    [
        "    batches = list(loader)\n    for x, y in batches:\n",
        "    for x, y in list(loader):\n",
        "    batches = list(enumerate(loader))\n    for i in range(len(batches)):\n        _, (x, y) = batches[i]\n",
    ],
)
def test_each_list_of_a_loader_is_a_pass_with_an_order_of_its_own(tmp_path: Path, body: str) -> None:
    text = HEAD + LOADER + MODEL + "for epoch in range(2):\n" + body + "        loss = F.mse_loss(model(x), y)\n" + STEP
    code, _ = conftest.converted(tmp_path, text)
    assert "    loader.sampler.set_epoch(epoch)\n" in code
    once = text.replace(
        "for epoch in range(2):\n    batches = list(loader)\n", "batches = list(loader)\nfor epoch in range(2):\n"
    )
    if once != text:
        assert "set_epoch" not in conftest.converted(tmp_path, once)[0]


def test_pairs_of_a_list_are_unpacked_as_the_batches_that_they_hold(tmp_path: Path) -> None:
    text = (
        LOADER + "other = DataLoader(rows, batch_size=8, shuffle=True)\n" + MODEL + "for epoch in range(2):\n"
        "    source, target = list(enumerate(loader)), list(enumerate(other))\n"
        "    for i in range(min(len(source), len(target))):\n"
        "        _, (x, y) = source[i]\n        _, (z, _) = target[i]\n"
        "        loss = F.mse_loss(model(x), y) + model(z).pow(2).mean()\n"
    )
    code, _ = conftest.converted(tmp_path, HEAD + text + STEP)
    assert code.count("sampler=DistributedSampler(rows") == 2
    assert "    loader.sampler.set_epoch(epoch)\n    other.sampler.set_epoch(epoch)\n" in code


SAMPLER = """\
class Halves(Sampler):
    def __iter__(self):
        first, second = np.random.permutation(32), 32 + np.random.permutation(32)
        return (list(first[i : i + 4]) + list(second[i : i + 4]) for i in range(0, 32, 4))

    def __len__(self):
        return 8


if sys.argv[1] == "halves":
    loader = DataLoader(rows, batch_sampler=Halves())
else:
    loader = DataLoader(rows, batch_sampler=BatchSampler(SubsetRandomSampler(range(64)), 8, drop_last=True))
"""


def test_two_kinds_of_share_have_two_names(tmp_path: Path) -> None:
    text = SAMPLER + MODEL + "for epoch in range(2):\n    for x, y in loader:\n"
    noise = "        x = x + torch.from_numpy(np.random.randn(len(x), 4)).float()\n"
    code, _ = conftest.converted(tmp_path, HEAD + text + noise + "        loss = F.mse_loss(model(x), y)\n" + STEP)
    assert "class RankBatches(" in code and "class RankBatchesOfRankZero(" in code
    assert "batch_sampler=RankBatchesOfRankZero(Halves())" in code


PROBE = """\
probe = torch.randn(8, 4)
model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""


def test_pass_that_the_loss_is_computed_from_keeps_its_gradient(tmp_path: Path) -> None:
    loss = "        loss = F.mse_loss(model(x), y)\n"
    text = HEAD + LOADER + PROBE + "for epoch in range(2):\n    for x, y in loader:\n" + loss
    penalty = "        anchored = model(probe)\n        penalty = anchored.pow(2).mean()\n        loss += penalty\n"
    code, said = conftest.converted(tmp_path, text + penalty + STEP)
    assert "share_rows" not in code and "AD602 all ranks pass the same data" in said
    helper = "def anchor():\n    return model(probe)\n\n\n"
    outside = text.replace("for epoch", helper + "for epoch") + penalty.replace("model(probe)", "anchor()") + STEP
    assert "share_rows" not in conftest.converted(tmp_path, outside)[0]
    code, _ = conftest.converted(
        tmp_path, text + STEP + "        loss = model(probe).mean()\n        print(loss.item())\n"
    )
    assert "share_rows(model, probe)" in code


def test_pass_of_one_model_in_training_mode_beside_another_that_evaluates(tmp_path: Path) -> None:
    text = (
        HEAD
        + LOADER
        + PROBE
        + "for epoch in range(2):\n    for x, y in loader:\n        loss = F.mse_loss(model(x), y)\n"
    )
    evaluated = "    other.eval()\n    print(model(probe).mean().item())\n"
    known = text.replace("probe =", "other = nn.Linear(4, 1)\nprobe =") + STEP + evaluated
    assert "share_rows(model, probe)" in conftest.converted(tmp_path, known)[0]
    unknown = known.replace("other = nn.Linear(4, 1)\n", "").replace("other.eval()", "next(iter(())).eval()")
    assert "share_rows" not in conftest.converted(tmp_path, unknown)[0]


GAN = """\
class Net(nn.Module):
    def __init__(self, batch_size):
        super().__init__()
        self.inner = nn.Linear(4, 1)
        self.real = Variable(torch.ones(batch_size))

    def learn(self, x, optimizer):
        optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(self.inner(x).view(-1), self.real)
        loss.backward()
        optimizer.step()
        return loss.item()


batch_size = 8
loader = DataLoader(rows, batch_size=batch_size, shuffle=True, drop_last=True)
net = Net(batch_size)
optimizer = torch.optim.SGD(net.inner.parameters(), lr=0.1)
for epoch in range(2):
    for x, _ in loader:
        print(net.learn(x, optimizer))
"""


def test_labels_of_a_batch_that_a_constructor_makes(tmp_path: Path) -> None:
    code, _ = conftest.converted(tmp_path, HEAD + GAN)
    divided = "self.real = Variable(torch.ones(batch_size // dist.get_world_size()))" in code
    assert divided or "(RowsOfAllRanks.apply(self.inner(x).view(-1)), self.real)" in code


TRAINERS = """\
def one():
    return DataLoader(rows, batch_size=8, shuffle=True), DataLoader(rows, batch_size=4)


def two():
    return DataLoader(rows, batch_size=8, shuffle=True), DataLoader(rows, batch_size=16, shuffle=True), one()[1]


def check(test):
    with torch.no_grad():
        print(sum(F.mse_loss(model(x), y).item() for x, y in test))


class First:
    def loop(self, epochs, train, test):
        for epoch in range(epochs):
            for x, y in train:
                optimizer.zero_grad()
                F.mse_loss(model(x), y).backward()
                optimizer.step()
            check(test)


class Second:
    def loop(self, epochs, train, more, test):
        for epoch in range(epochs):
            for (x, y), (u, _) in zip(train, more):
                optimizer.zero_grad()
                (F.mse_loss(model(x), y) + model(u).pow(2).mean()).backward()
                optimizer.step()
            check(test)


"""


def test_tuples_are_unpacked_for_the_functions_that_take_as_many(tmp_path: Path) -> None:
    end = (
        "kind = sys.argv[1]\nloaders = one() if kind == 'first' else two()\n"
        "{'first': First, 'second': Second}[kind]().loop(2, *loaders)\n"
    )
    code, _ = conftest.converted(tmp_path, HEAD + TRAINERS + MODEL + end)
    assert code.count("sampler=DistributedSampler(rows") == 3
    assert "DataLoader(rows, batch_size=4)" in code


def test_type_of_a_model_is_another_form_of_it(tmp_path: Path) -> None:
    text = LOADER + MODEL.replace("nn.Linear(4, 1)", "nn.Linear(4, 1).type(torch.FloatTensor)")
    loop = "for epoch in range(2):\n    for x, y in loader:\n        loss = F.mse_loss(model(x), y)\n"
    code, _ = conftest.converted(tmp_path, HEAD + text + loop + STEP)
    assert "model = DDP(nn.Linear(4, 1).type(torch.FloatTensor)" in code


def test_optimizer_of_a_class_that_is_read_from_settings_is_named(tmp_path: Path) -> None:
    text = LOADER + MODEL.replace("torch.optim.SGD(", "eval(sys.argv[1])(")
    loop = "for epoch in range(2):\n    for x, y in loader:\n        loss = F.mse_loss(model(x), y)\n"
    (tmp_path / "train.py").write_text(HEAD + text + loop + STEP)
    result = convert(Project.load(tmp_path / "train.py"), Config())
    (refused,) = [each for each in result.diagnostics if each.severity.value == "refusal"]
    assert "cannot see which optimizer is made by eval(sys.argv[1])(...)" in refused.message


CHECKS = """\
class Check:
    def __init__(self, model, test):
        self.model, self.test = model, test

    def run(self):
        with torch.no_grad():
            print(sum(F.mse_loss(self.model(x), y).item() for x, y in self.test) / len(self.test))


class Fit(Check):
    def __init__(self, model, train, test):
        super().__init__(model, test)
        self.train = train

    def run(self):
        for epoch in range(2):
            for x, y in self.train:
                optimizer.zero_grad()
                F.mse_loss(self.model(x), y).backward()
                optimizer.step()
            super().run()


train, test = DataLoader(rows, batch_size=8, shuffle=True), DataLoader(rows, batch_size=4)
kinds = {"check": Check, "fit": Fit}
kind = sys.argv[1]
if kind == "fit":
    job = kinds[kind](model, train, test)
else:
    job = kinds[kind](model, test)
job.run()
"""


def test_classes_are_made_of_as_many_arguments_as_they_take(tmp_path: Path) -> None:
    code, _ = conftest.converted(tmp_path, HEAD + MODEL + CHECKS)
    assert code.count("sampler=DistributedSampler(rows, seed=") == 1
    assert "reduce_" not in code and "isinstance" not in code
