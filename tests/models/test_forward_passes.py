"""Samples that meet inside of a model: by what is computed of all of them, and in layers however these are called."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

from autodist.config import Strategy
from autodist.verify import verify
from autodist.verify.launch import Zygote

SCRIPT = """\
import functools
from collections import OrderedDict
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.functional import softmax as soft
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
also = F.softmax


class Mix(nn.Module):
    def forward(self, x):
        return x / (1 + x.norm())


class Block(nn.Sequential):
    def __init__(self):
        super().__init__(nn.ReLU(), Mix())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 4)
        {made}

    def forward(self, x):
        x = self.fc(x)
        {passed}


loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randint(0, 4, (64,))), batch_size=8, shuffle=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
"""
ADDED = [
    "return x + x.mean(0)",
    "return x + x.sum(0)",
    "mean = x.mean(0)\n        return x + mean",
    "return x.mean(0).expand(len(x), -1) + x",
    "return x - x.mean(0).expand_as(x)",
    "return x - x.mean(0, keepdim=True).repeat(len(x), 1)",
]


@pytest.mark.parametrize("passed", ADDED)
def test_means_of_the_batch_that_are_added_to_each_sample(tmp_path: Path, passed: str) -> None:
    after, said = conftest.converted(tmp_path, SCRIPT.format(made="pass", passed=passed))
    assert "MeanOverRanks.apply(" in after or "SumOverRanks.apply(" in after
    assert "AD602" not in said


@pytest.mark.parametrize("passed", [ADDED[0], ADDED[3], ADDED[4]])
def test_means_of_the_whole_batch(tmp_path: Path, zygote: Zygote | None, passed: str) -> None:
    (tmp_path / "converted").mkdir()
    after, _ = conftest.converted(tmp_path, SCRIPT.format(made="pass", passed=passed))
    (tmp_path / "converted" / "train.py").write_text(after)
    before, converted = tmp_path / "train.py", tmp_path / "converted" / "train.py"
    verdict = verify(before, converted, [2], steps=4, workdir=tmp_path, timeout=100, zygote=zygote)
    assert verdict.equal, verdict.findings


@pytest.mark.parametrize(
    "passed",
    [
        "return x / torch.linalg.vector_norm(x)",
        "return F.batch_norm(x, None, None, training=True)",
        "return F.batch_norm(x, None, None, None, None, self.training)",
        "return soft(x, 0)",
        "return also(x, dim=0)",
    ],
)
def test_functions_that_relate_samples(tmp_path: Path, passed: str) -> None:
    """Whatever they are called here."""
    _, said = conftest.converted(tmp_path, SCRIPT.format(made="pass", passed=passed))
    assert "AD602" in said or "AD606" in said


@pytest.mark.parametrize(
    "passed",
    [
        "return x + x.mean(1, keepdim=True)",
        "return x + x.mean(1, keepdim=True).expand_as(x)",
        "return x + self.fc.bias.mean()",
        "return F.batch_norm(x, torch.zeros(4), torch.ones(4))",
        "return x / torch.linalg.vector_norm(x, dim=1, keepdim=True)",
        "return soft(x, 1)",
    ],
)
def test_what_is_computed_of_each_sample_stays(tmp_path: Path, passed: str) -> None:
    after, said = conftest.converted(tmp_path, SCRIPT.format(made="pass", passed=passed))
    assert "AD60" not in said.replace("AD601", "") and "OverRanks" not in after


EACH = "for each in self.layers.values():\n            x = each(x)\n        return x"
NUMBERED = "for i in range(1, 2):\n            x = getattr(self, f'layer{i}')(x)\n        return x"
NAMED = "self.layers = nn.Sequential(OrderedDict([('a', nn.ReLU()), ('b', Mix())]))"
LAYERS = {
    "add_module": ("self.add_module('mix', Mix())", "return self.mix(x)"),
    "values": ("self.layers = nn.ModuleDict({'a': Mix()})", EACH),
    "items": (
        "self.layers = nn.ModuleDict({'a': Mix()})",
        EACH.replace("each in", "_, each in").replace("values", "items"),
    ),
    "numbered": ("self.layer1 = Mix()", NUMBERED),
    "reduce": ("self.layers = nn.ModuleList([Mix()])", "return functools.reduce(lambda a, b: b(a), self.layers, x)"),
    "checkpoint": ("self.layers = Block()", "return checkpoint(self.layers, x, use_reentrant=False)"),
    "in sequence": ("self.layers = Block()", "return checkpoint_sequential(self.layers, 2, x, use_reentrant=False)"),
    "derived": ("self.block = Block()", "return self.block(x)"),
    "named": (NAMED, "return self.layers(x)"),
    "appended": ("self.layers = nn.Sequential(nn.ReLU())\n        self.layers.append(Mix())", "return self.layers(x)"),
}


@pytest.mark.parametrize("layers", LAYERS)
def test_layers_however_they_are_called(tmp_path: Path, layers: str) -> None:
    made, passed = LAYERS[layers]
    _, said = conftest.converted(tmp_path, SCRIPT.format(made=made, passed=passed))
    assert "AD602" in said or "AD606" in said  # the samples of a batch meet in it


FIELDS = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner = nn.Linear(width, 8)

    def forward(self, batch):
        x, mask = {taken}
        return torch.relu(self.inner(x)) * mask, mask


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(Layer(4), Layer(8))
        self.outer = nn.Linear(8, 3)

    def forward(self, batch):
        return self.outer(self.layers(batch)[0])


data = TensorDataset(torch.randn(32, 4), torch.ones(32, 1), torch.randint(0, 3, (32,)))
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in DataLoader(data, batch_size=8, shuffle=True):
    out = model(batch)
    loss = nn.functional.cross_entropy(out, batch[2])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(len(out))
"""


@pytest.mark.parametrize("taken", ["batch[:2]", "batch[0], batch[1]"])
def test_fields_that_are_bound_one_by_one(tmp_path: Path, taken: str) -> None:
    """They are not the first samples."""
    code, said = conftest.converted(tmp_path, FIELDS.format(taken=taken))
    assert "AD602" not in said and "print(len(out) * dist.get_world_size())" in code, said


BOUND_TOGETHER = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Trainer:
    def __init__(self, rate, model, loader):
        self.rate, self.model, self.loader = rate, model, loader
        self.optimizer = torch.optim.SGD(model.parameters(), lr=rate)

    def fit(self):
        for x, y in self.loader:
            loss = nn.functional.mse_loss(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        torch.save(self.model.state_dict(), "model.pt")


loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8, shuffle=True)
Trainer(0.1, nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1)), loader).fit()
"""


def test_a_model_that_is_named_together_with_others(tmp_path: Path) -> None:
    """It is made where the trainer is, without a name, and wrapped where it has one."""
    text, said = conftest.converted(tmp_path, BOUND_TOGETHER)
    bound = "        self.rate, self.model, self.loader = rate, model, loader\n"
    assert f"{bound}        self.model = DDP(self.model, gradient_as_bucket_view=True)\n" in text and "AD9" not in said


@pytest.mark.parametrize(
    "bound",
    ["self.rate, self.model, self.loader = rate, model, loader", "self.loader = loader\n        self.model = model"],
)
def test_it_is_sharded_where_it_has_a_name(tmp_path: Path, bound: str) -> None:
    script = BOUND_TOGETHER.replace("self.rate, self.model, self.loader = rate, model, loader", bound)
    text, said = conftest.converted(tmp_path, script, Strategy.FSDP)
    assert (
        text.index("self.model") < text.index("fully_shard(self.model") < text.index("optim.SGD") and "AD9" not in said
    )
