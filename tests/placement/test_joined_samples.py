"""Samples beside those of a batch: joined to a rank's share of it, held in tensors that are made once, and scored."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

JOINED = """\
import random

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(64, 6), torch.randint(0, 3, (64,))), batch_size=16, shuffle=True)
kept, labels = torch.randn(20, 6), torch.randint(0, 3, (20,))
model = nn.Linear(6, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    seen = torch.tensor([])
    for x, y in loader:
        number = random.sample(range(20), 4)
{joined}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen = torch.cat([seen, loss.detach().view(1)])
    print(loss.item())
"""


@pytest.mark.parametrize(
    ("joined", "shares"),
    [
        ("loss = F.cross_entropy(model(torch.cat((x, kept[number]))), torch.cat((y, labels[number])))", 2),
        ("loss = F.cross_entropy(model(torch.vstack([kept[number], x])), torch.cat([labels[number], y]))", 2),
        ("loss = model(torch.cat([x, torch.randn(4, 6)], dim=0)).pow(2).mean()", 1),
        ("loss = model(torch.cat([x, torch.randn(len(x), 6)], dim=0)).pow(2).mean()", 0),
        ("loss = model(torch.cat([x, x.flip(1)])).pow(2).mean()", 0),
        ("loss = model(torch.cat([x[:, :3], torch.ones(len(x), 3)], dim=1)).pow(2).mean()", 0),
    ],
)
def test_a_rank_joins_its_share_of_other_samples(tmp_path: Path, joined: str, shares: int) -> None:
    after, said = conftest.converted(tmp_path, JOINED.format(joined=f"        {joined}"))
    assert after.count("local_rows(") == shares + bool(shares)
    assert "warning" not in said


HELD = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

size = 8
loader = DataLoader(TensorDataset(torch.randn(64, 3), torch.randn(64, 3)), batch_size=size, shuffle=True)
checks = DataLoader(TensorDataset(torch.randn(16, 3), torch.randn(16, 3)), batch_size=size)
model = nn.Linear(3, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
given, wanted = torch.FloatTensor(size, 3), torch.FloatTensor(size, 3)
wanted = torch.FloatTensor(size, 3)
given = torch.FloatTensor(size, 3)
for epoch in range(2):
    for x, y in loader:
        given.data.copy_(x.float())
        wanted.data.copy_(y.float())
        loss = nn.functional.mse_loss(model(given), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(loss.item())
{evaluation}
"""
EVALUATION = """\
    total = 0.0
    for x, y in checks:
        given.data.copy_(x.float())
        wanted.data.copy_(y.float())
        total += nn.functional.mse_loss(model(given), wanted).item()
    print(total / len(checks))
"""


@pytest.mark.parametrize(("evaluation", "resized"), [("", 0), (EVALUATION, 4)])
def test_tensors_that_hold_each_batch_in_turn(tmp_path: Path, evaluation: str, resized: int) -> None:
    after, said = conftest.converted(tmp_path, HELD.format(evaluation=evaluation))
    assert "wanted = torch.FloatTensor(size // dist.get_world_size(), 3)" in after
    assert after.count(".resize_(") == resized
    assert "given.resize_(x.shape).data.copy_(x.float())" in after or not resized
    assert "slice(" not in after and "warning" not in said


SCORED = """\
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def one_hot(labels, classes):
    n, length = labels.size()
    return torch.zeros(n, classes, length).scatter_(1, labels.view(n, 1, length), 1)


class Dice:
    def __init__(self, classes):
        self.total, self.count = np.zeros(classes), 0

    def update(self, guesses, truth):
        self.total += self.scores(guesses, truth)
        self.count += 1

    @staticmethod
    def scores(guesses, truth):
        found = []
        for each in range(truth.size()[1]):
            both = torch.sum(guesses[:, each] * truth[:, each])
            either = torch.sum(guesses[:, each]) + torch.sum(truth[:, each])
            found.append((2 * both / either).item())
        return np.asarray(found)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.early, self.late = nn.Linear(6, 12), nn.Linear(12, 12)

    def forward(self, x):
        early = self.early(x)
        late = self.late(torch.relu(early)).view(-1, 2, 6).softmax(1)
        if self.training:
            return early.view(-1, 2, 6).softmax(1), late
        return late


loader = DataLoader(TensorDataset(torch.randn(32, 6), torch.randint(0, 2, (32, 6))), batch_size=4, shuffle=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    model.train()
    dice = Dice(2)
    for x, y in loader:
        y = one_hot(y.long(), 2)
        out = model(x)
        loss = torch.clamp((out[1] - y).pow(2).mean() + 0.4 * (out[0] - y).pow(2).mean(), 0, 2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dice.update(out[1], y)
    print(epoch, dice.total / dice.count)
"""


def test_what_losses_are_computed_from_is_reduced_for_scores_alone(tmp_path: Path) -> None:
    after, said = conftest.converted(tmp_path, SCORED)
    assert "(2 * reduce_sum(both) / reduce_sum(either)).item()" in after
    assert "gather_rows(" not in after
    assert "warning" not in said


STACKED = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x):
        self.prior = self.layer.weight.pow(2).sum()
        return F.log_softmax(self.layer(x), 1)

    def bound(self, x, y, rounds=2):
        outputs, priors = torch.zeros(rounds, x.size(0), 3), torch.zeros(rounds)
        outputs = torch.zeros(rounds, x.size(0), 3)
        for i in range(rounds):
            outputs[i] = self(x)
            priors[i] = self.prior
        return priors.mean() / len(loader) + F.nll_loss(outputs.mean(0), y, reduction="sum")


loader = DataLoader(TensorDataset(torch.randn(64, 6), torch.randint(0, 3, (64,))), batch_size=16, shuffle=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        loss = model.bound(x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(loss.item())
"""


def test_batches_that_are_put_into_a_tensor_round_by_round(tmp_path: Path) -> None:
    after, said = conftest.converted(tmp_path, STACKED)
    assert 'F.nll_loss(outputs.mean(0), y, reduction="sum") * dist.get_world_size()' in after
    assert "refusal" not in said and "warning" not in said


KEYED = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __init__(self, rows, split="train"):
        self.rows, self.split = rows, split

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, number):
        return self.rows[number]


def loader_of(size, **settings):
    return DataLoader(Rows(**settings), batch_size=size)


training = loader_of(8, rows=torch.randn(64, 4), split="train")
checks = loader_of(8, rows=torch.randn(24, 4){split})
model = nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in training:
    loss = (model(x) - x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
for x in checks:
    print((model(x) - x).abs().max().item())
"""


@pytest.mark.parametrize(("split", "told"), [(', split="val"', True), ("", False)])
def test_what_tells_loaders_apart_may_be_among_settings(tmp_path: Path, split: str, told: bool) -> None:
    after, said = conftest.converted(tmp_path, KEYED.replace("{split}", split))
    assert ('if settings["split"] == "train" else None' in after) is told
    assert ("makes loaders for training and for evaluation alike" in said) is not told


def test_a_package_in_a_folder_that_is_one_itself(tmp_path: Path) -> None:
    folder = tmp_path / "repository" / "package"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder.parent / "__init__.py").write_text("")
    (folder / "nets.py").write_text("from torch import nn\n\n\nclass Net(nn.Linear):\n    pass\n")
    script = KEYED.replace("{split}", "").replace("nn.Linear(4, 4)", "Net(4, 4)")
    script = script.replace("from torch import nn", "from package.nets import Net")
    after, said = conftest.converted(folder, script)
    assert "DDP(Net(4, 4)" in after and "refusal" not in said


SUMMED = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def bounded(model):
    def bound(self, x, y, criterion, rounds):
        loss = 0
        for _ in range(rounds):
            loss += criterion(self(x), y)
            loss += self.weight.pow(2).sum()
        return loss / rounds

    setattr(model, "bound", bound)
    return model


@bounded
class Net(nn.Linear):
    pass


loader = DataLoader(TensorDataset(torch.randn(64, 6), torch.randint(0, 3, (64,))), batch_size=16, shuffle=True)
model = Net(6, 3)
criterion = nn.CrossEntropyLoss(reduction="sum")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        {loss}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(loss.item())
"""


@pytest.mark.parametrize(
    ("loss", "summed"),
    [
        ("loss = model.bound(x, y, criterion, 2)", "SumOverRanks.apply(criterion(self(x), y))"),
        (
            "loss = criterion(model(x), y); loss += model.weight.abs().sum()",
            "SumOverRanks.apply(criterion(model(x), y))",
        ),
        (
            "loss = 0; loss += model.bias.abs().sum(); loss += criterion(model(x), y)",
            "loss += criterion(model(x), y) * dist.get_world_size()",
        ),
    ],
)
def test_sums_that_a_penalty_is_added_to_in_place(tmp_path: Path, loss: str, summed: str) -> None:
    after, said = conftest.converted(tmp_path, SUMMED.replace("{loss}", loss))
    assert summed in after
    assert "warning" not in said and "AD602" not in said


LISTS = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, index):
        return torch.rand(3, 8, 8), {{"label": torch.tensor(index % 3)}}


def lists(batch):
    return tuple(zip(*batch))


loader = DataLoader(Pictures(), batch_size=8, shuffle=True, collate_fn=lists)
net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    for {loop}:
        {images}
        labels = torch.stack([each["label"] for each in targets])
        loss = nn.functional.cross_entropy(net(torch.stack(images)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
"""


@pytest.mark.parametrize(
    "loop",
    ["images, targets in loader", "step, (images, targets) in enumerate(loader)", "images, targets in iter(loader)"],
)
@pytest.mark.parametrize(
    "images",
    [
        "images = list(each.cuda() for each in images)",
        "images = [each * 2 for each in images]",
        "images = list(images)",
    ],
)
def test_lists_of_samples_are_joined_along_the_first_axis(loop: str, images: str, tmp_path: Path) -> None:
    """A loop over a loader comes to batches, not to samples, whichever way it goes through it."""
    _, said = conftest.converted(tmp_path, LISTS.format(loop=loop, images=images))
    assert "AD906" not in said and "AD602" not in said


CROPS = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Crops(Dataset):
    def __init__(self, number=3):
        self.x = torch.randn(32, 6)
        self.number = number

    def __len__(self):
        return 32

    def __getitem__(self, index):
        return [self.x[index] + 0.1 * torch.randn(6) for _ in range(self.number)], index % 2


loader = DataLoader(Crops(), batch_size=8, shuffle=True)
net = nn.Linear(6, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    for views, labels in loader:
        {loss}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
"""


@pytest.mark.parametrize(
    "loss",
    [
        "loss = (net(torch.cat(views[:2])) - net(torch.cat(views[1:]))).pow(2).mean()",
        "loss = nn.functional.cross_entropy(net(views[0]), labels) + net(torch.cat(views)).pow(2).mean()",
    ],
)
def test_a_list_in_each_sample_is_a_list_of_batches(loss: str, tmp_path: Path) -> None:
    """However many each sample has: `views[:2]` are two batches, and no two samples."""
    after, said = conftest.converted(tmp_path, CROPS.format(loss=loss))
    assert "gather_rows" not in after and "RowsOfAllRanks" not in after
    assert "AD602" not in said
