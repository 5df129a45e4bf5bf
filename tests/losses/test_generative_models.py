"""Idioms of generative models and of science: losses that are called alone, codebooks, layers derived from torch's."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

SCRIPT = """\
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

{classes}

loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randint(0, 3, (64,))), batch_size=8, shuffle=True)
model = {model}
criterion = {criterion}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item())
"""


def converted(
    folder: Path, classes: str, model: str = "nn.Linear(8, 3)", criterion: str = "F.cross_entropy"
) -> tuple[str, str]:
    """The conversion and what is said of it."""
    return conftest.converted(folder, SCRIPT.format(classes=classes, model=model, criterion=criterion))


CALLED = """\
class Criterion(nn.Module):
    def __init__(self):
        super().__init__()
        self.loss = nn.CrossEntropyLoss()

    def __call__(self, given, target):
        return self.loss(given, target)
"""
DERIVED = """\
class Focal(nn.CrossEntropyLoss):
    def __init__(self):
        super().__init__(reduction="none")

    def forward(self, given, target):
        entropy = super().forward(given, target)
        return (entropy * (1 - torch.exp(-entropy)) ** 2).mean()


class Masked(nn.Linear):
    def forward(self, x):
        self.weight.data *= 0.5
        return super().forward(x)


class Counting(nn.Linear):
    def __call__(self, x):
        return super().__call__(2 * x)
"""


def test_modules_that_are_called_alone(tmp_path: Path) -> None:
    text, said = converted(tmp_path, CALLED, criterion="Criterion()")
    assert "reduce_mean(loss.item())" in text and "RowsOfAllRanks" not in text and "warning" not in said


@pytest.mark.parametrize("model", ["nn.Linear(8, 3)", "Masked(8, 3)", "Counting(8, 3)"])
def test_layers_and_losses_derived_from_those_of_torch(tmp_path: Path, model: str) -> None:
    text, said = converted(tmp_path, DERIVED, model, criterion="Focal()")
    assert "reduce_mean(loss.item())" in text and "DDP(" in text and "warning" not in said


def test_normalisation_with_a_forward_pass_of_its_own(tmp_path: Path) -> None:
    norm = "class Norm(nn.BatchNorm1d):\n    def forward(self, x):\n        return 2 * super().forward(x)\n"
    _, said = converted(tmp_path, norm, "nn.Sequential(nn.Linear(8, 3), Norm(3))")
    assert "derives from nn.BatchNorm1d and has a forward pass of its own" in said


BLOCK = """\
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.skip, self.residual = nn.Linear(8, 8), nn.Linear(8, 3), nn.Linear(8, 8)

    def forward(self, x):
        h = torch.tanh(self.a(x))
        return x + self.residual(h), self.skip(h)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.out = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x):
        weights = torch.softmax(self.q(x), -1)
        return weights, self.out(weights * x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = {part}()

    def forward(self, x):
        {taken}
"""


@pytest.mark.parametrize("taken", ["_, skip = self.block(x)\n        return skip", "return self.block(x)[1]"])
def test_outputs_of_a_part_that_are_left_out(tmp_path: Path, taken: str) -> None:
    text, _ = converted(tmp_path, BLOCK.format(part="Block", taken=taken), "Net()")
    assert "find_unused_parameters=True" in text
    text, _ = converted(tmp_path, BLOCK.format(part="Attention", taken=taken), "Net()")
    assert "find_unused_parameters" not in text


CODES = """\
class Codes(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("codes", torch.randn(5, 3))
        self.register_buffer("size", torch.zeros(5))
        self.register_buffer("total", torch.randn(5, 3))
        self.body = nn.Linear(8, 3)

    def forward(self, x):
        z = self.body(x)
        distances = (z**2).sum(1, keepdim=True) + (self.codes**2).sum(1) - 2 * z @ self.codes.t()
        hits = F.one_hot(torch.argmin(distances, dim=1), 5).type(z.dtype)
        if self.training:
            self.size = 0.9 * self.size + 0.1 * torch.sum(hits, 0)
            n = torch.sum(self.size)
            self.size = (self.size + 1e-5) / (n + 5e-5) * n
            sums = torch.matmul(hits.t(), z)
            self.total = 0.9 * self.total + 0.1 * sums.detach()
            self.codes = self.total / self.size.unsqueeze(1)
        return z + (hits @ self.codes - z).detach()
"""


def test_codebooks_that_are_assigned(tmp_path: Path) -> None:
    text, said = converted(tmp_path, CODES, "Codes()")
    assert "0.1 * reduce_sum(torch.sum(hits, 0))" in text and "0.1 * reduce_sum(sums" in text
    assert "warning" not in said and "refusal" not in said


def test_tables_that_no_gradient_comes_back_to(tmp_path: Path) -> None:
    table = CODES.replace('self.register_buffer("codes", torch.randn(5, 3))', "self.codes_ = nn.Embedding(5, 3)")
    table = table.replace("self.codes = self.total / self.size.unsqueeze(1)", "pass")
    text, _ = converted(
        tmp_path,
        table.replace("self.codes)", "self.codes_.weight)")
        .replace("self.codes", "self.codes_.weight")
        .replace("_.weight_", "_"),
        "Codes()",
    )
    assert "find_unused_parameters=True" in text


PARTIAL = """\
def weigh(sizes, given, target):
    return F.cross_entropy(given, target) * sizes[0] / sizes[1]
"""


def test_partial_functions(tmp_path: Path) -> None:
    text, said = converted(tmp_path, PARTIAL, criterion="partial(weigh, (4, 2))")
    assert "sizes[0] / sizes[1]" in text and "reduce_mean(loss.item())" in text and "warning" not in said


LOADERS = """\
import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def load(name):
    data = TensorDataset(torch.randn(32, 8), torch.randint(0, 3, (32,)))
    if name == "a":
        loader = DataLoader(data, batch_size=8, shuffle=True)
    else:
        loader = DataLoader(data, batch_size=8, shuffle=True, drop_last=True)
    return loader


source, target = load(sys.argv[1]), load(sys.argv[2])
model = nn.Linear(8, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for (x, y), (u, _) in zip(source, target):
        loss = F.cross_entropy(model(x), y) + model(u).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def test_loaders_of_one_function_are_each_told_of_the_epoch(tmp_path: Path) -> None:
    text, _ = conftest.converted(tmp_path, LOADERS)
    assert text.count("source.sampler.set_epoch(epoch)") == text.count("target.sampler.set_epoch(epoch)") == 1


def test_a_data_set_of_one_sample(tmp_path: Path) -> None:
    one = (
        "class Field(Dataset):\n    def __len__(self):\n        return 1\n\n    def __getitem__(self, index):\n        "
    )
    one += "return torch.randn(8), torch.tensor(1)\n"
    script = SCRIPT.format(classes=one, model="nn.Linear(8, 3)", criterion="F.cross_entropy")
    start, end = script.index("TensorDataset(torch"), script.index(", batch_size")
    _, said = conftest.converted(tmp_path, f"{script[:start]}Field(){script[end:]}")
    assert "Field has one sample, which cannot be shared out" in said


AVERAGED = """\
import copy

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(64, 8)), batch_size=8, shuffle=True)
model = nn.Linear(8, 8)
average = copy.deepcopy(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
seen = 0
for epoch in range(2):
    for (x,) in loader:
        loss = F.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen += len(x)
        decay = 0.5 ** (x.shape[0] / 50)
        for a, p in zip(average.parameters(), model.parameters()):
            {step}
torch.save(average.state_dict(), "average.pt")
"""


@pytest.mark.parametrize(
    "step",
    [
        "a.data.copy_(p.data.lerp(a.data, decay))",
        "a.data.mul_(decay).add_(p.data, alpha=1 - decay)",
        "a.data = decay * a.data + (1 - decay) * p.data",
        "a.data.copy_(torch.lerp(p.data, a.data, decay))",
    ],
)
def test_averages_that_go_by_how_many_samples_there_are(tmp_path: Path, step: str) -> None:
    """As StyleGAN2 has them: half of a number of pictures, and a rank has seen fewer than all ranks have."""
    code, _ = conftest.converted(tmp_path, AVERAGED.format(step=step))
    assert "decay = 0.5 ** (x.shape[0] / 50 * dist.get_world_size())" in code


def test_an_average_that_goes_by_a_number_of_its_own(tmp_path: Path) -> None:
    text = AVERAGED.format(step="a.data.lerp_(p.data, 0.1)")
    code, _ = conftest.converted(tmp_path, text)
    assert "x.shape[0] / 50)" in code


ASSIGNED = """\
class Plan:
    def sample(self, noise, x):
        costs = torch.cdist(noise, x) ** 2
        i, j = linear_sum_assignment(costs.numpy())
        return noise[i], x[j]


plan = Plan()
"""


def test_noise_that_is_assigned_to_samples(tmp_path: Path) -> None:
    """As flow matching with optimal transport has it: a rank assigns its own samples alone."""
    text = SCRIPT.format(classes=ASSIGNED, model="nn.Linear(8, 8)", criterion="F.mse_loss")
    text = text.replace(
        "from torch import nn", "from scipy.optimize import linear_sum_assignment\nfrom torch import nn"
    )
    step = "noise, x = plan.sample(torch.randn_like(x), x)\n        loss = criterion(model(noise), x - noise)"
    _, said = conftest.converted(tmp_path, text.replace("loss = criterion(model(x), y)", step))
    assert "AD602 torch.cdist(noise, x): it combines each rank's samples with each other" in said
