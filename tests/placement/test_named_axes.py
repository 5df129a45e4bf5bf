"""Axes that a call names by the number from the last one, by a name, or not at all, and layers that go along one."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

from autodist.verify import verify
from autodist.verify.launch import Zygote

SCRIPT = """\
import argparse
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--dim", type=int, default=1)
args = parser.parse_args()


class Layer(nn.Module):
    def __init__(self, dim=1):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        {layer}


torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randint(0, 4, (64,))), batch_size=8, shuffle=True)
model = {model}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        out = model(x)
        losses = F.cross_entropy(out, y, reduction="none")
        {step}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
"""
LINEAR = "nn.Linear(8, 4)"
GATHERED = "RowsOfAllRanks.apply("


def script(step: str = "loss = losses.mean()", layer: str = "return x", model: str = LINEAR) -> str:
    return SCRIPT.format(layer=layer, model=model, step=step)


@pytest.mark.parametrize(
    "step",
    [
        "loss = (torch.softmax(losses.detach(), dim=-1) * losses).sum()",
        "loss = (losses.detach().softmax(-1) * losses).sum()",
        "loss = (F.softmax(losses.detach()) * losses).sum()",
        "loss = (torch.softmax(out, -2) ** 2).mean()",
        "loss = (F.normalize(out, dim=-2) ** 3).mean()",
        "loss = losses.cumsum(-1).mean()",
        "loss = (losses * losses.flip(-1)).mean()",
        "loss = (losses * losses.roll(1, -1)).mean()",
        "soft = nn.Softmax(dim=0)\n        loss = (soft(out) ** 2).mean()",
        "loss = (torch.softmax(out, args.dim) ** 2).mean()",
    ],
)
def test_what_goes_along_the_samples_is_computed_of_all_of_them(tmp_path: Path, step: str) -> None:
    """Along the last axis of one, the last but one of two, the first of a layer, or one that an option may name."""
    after, _ = conftest.converted(tmp_path, script(step))
    assert GATHERED in after


@pytest.mark.parametrize(
    "step",
    [
        "loss = (torch.softmax(out, -1) * out).mean()",
        "loss = (F.normalize(out, dim=-1) ** 3).mean()",
        "loss = (F.softmax(out) * out).mean()",
        "soft = nn.Softmax(dim=-1)\n        loss = (soft(out) ** 2).mean()",
        "dim = 1\n        loss = (torch.softmax(out, dim) ** 2).mean()",
    ],
)
def test_what_goes_along_another_axis_stays_as_it_is(tmp_path: Path, step: str) -> None:
    after, said = conftest.converted(tmp_path, script(step))
    assert GATHERED not in after and "AD602" not in said


def test_a_sum_along_the_last_axis_of_one_is_one_over_the_samples(tmp_path: Path) -> None:
    after, _ = conftest.converted(tmp_path, script("loss = (losses / losses.sum(-1)).pow(2).sum()"))
    assert "SumOverRanks.apply(losses.sum(-1))" in after


@pytest.mark.parametrize("dim", [0, 1])
def test_whatever_axis_an_option_names(tmp_path: Path, zygote: Zygote | None, dim: int) -> None:
    (tmp_path / "converted").mkdir()
    after, _ = conftest.converted(tmp_path, script("loss = (torch.softmax(out, args.dim) ** 2).mean()"))
    (tmp_path / "converted" / "train.py").write_text(after)
    before, converted = tmp_path / "train.py", tmp_path / "converted" / "train.py"
    given = ["--dim", str(dim)]
    verdict = verify(before, converted, [2], given, steps=4, workdir=tmp_path, timeout=100, zygote=zygote)
    assert verdict.equal, verdict.findings


@pytest.mark.parametrize(
    ("layer", "model"),
    [
        ("return torch.softmax(x, self.dim)", "nn.Sequential(nn.Linear(8, 4), Layer(args.dim))"),
        ("return x", "nn.Sequential(nn.Linear(8, 4), nn.Softmax(args.dim), nn.Linear(4, 4))"),
    ],
)
def test_an_axis_that_cannot_be_read_inside_a_model_is_named(tmp_path: Path, layer: str, model: str) -> None:
    after, said = conftest.converted(tmp_path, script(layer=layer, model=model))
    assert "AD602 cannot tell" in said or "torch.softmax(RowsOfAllRanks.apply(x), self.dim)" in after


@pytest.mark.parametrize(
    "model", ["nn.Sequential(nn.Linear(8, 4), Layer(1))", "nn.Sequential(nn.Linear(8, 4), Layer())"]
)
def test_an_axis_that_a_layer_is_made_with_is_read(tmp_path: Path, model: str) -> None:
    _, said = conftest.converted(tmp_path, script(layer="return torch.softmax(x, self.dim)", model=model))
    assert "AD602" not in said


@pytest.mark.parametrize(
    "layer",
    [
        "return torch.softmax(x, 0)",
        "return (x - x.mean(0)) / (x.std(0) + 1)",
        "return x / x.norm()",
        "return x @ x.t() @ x",
        "return x.flip(0)",
        "return x / x.max()",
        "return x.sort(0)[0]",
        "return x.view(-1, 8).view(-1, 4).sort(0)[0]",
    ],
)
@pytest.mark.parametrize(
    "model",
    ["nn.Sequential(nn.Linear(8, 4), Layer())", "nn.Sequential(nn.Sequential(nn.Linear(8, 4), Layer()), nn.ReLU())"],
)
def test_samples_that_meet_in_a_layer_of_a_sequence(tmp_path: Path, layer: str, model: str) -> None:
    """What a layer makes of them goes on to the next one, and out of the model: all are given to the last one."""
    after, said = conftest.converted(tmp_path, script(layer=layer, model=model))
    assert "RowsOfAllRanks" in after or "AD602" in said or "AD906" in said


@pytest.mark.parametrize(
    "layer", ["return x.relu()", "return F.normalize(x, dim=1)", "return x * x.mean(1, keepdim=True)"]
)
def test_layers_of_a_sequence_that_keep_samples_apart(tmp_path: Path, layer: str) -> None:
    _, said = conftest.converted(tmp_path, script(layer=layer, model="nn.Sequential(nn.Linear(8, 4), Layer())"))
    assert "AD602" not in said and "AD906" not in said


@pytest.mark.parametrize(
    ("axes", "apart"),
    [
        ("axes = tuple(range(1, x.ndim))", True),
        ("axes = (1,)", True),
        ("axes = [0, 1]", False),
        ("axes = tuple(range(x.ndim - 1))", False),
        ("axes = (1,)\n        axes = (0,) if self.dim else axes", False),
    ],
)
def test_axes_that_have_a_name(tmp_path: Path, axes: str, apart: bool) -> None:
    """As in the reversible normalisation of series, which keeps each sample's mean to put it back later: one over the
    samples is that of all ranks."""
    layer = f"{axes}\n        self.mean = torch.mean(x, dim=axes, keepdim=True).detach()\n        return x - self.mean"
    after, said = conftest.converted(tmp_path, script(layer=layer, model="nn.Sequential(Layer(), nn.Linear(8, 4))"))
    assert ("return x - self.mean" if apart else "return x - reduce_mean(self.mean)") in after and "AD602" not in said
