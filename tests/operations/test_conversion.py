"""What today's analysis reads off the table: losses whose operations the name lists of old had wrong, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted, differences

from autodist.verify.launch import Zygote

SCRIPT = """\
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model = torch.nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
targets = torch.randn(64, 3)
targets[:20:3] = float("nan")
loader = DataLoader(TensorDataset(torch.randn(64, 4), targets), batch_size=8)
for x, y in loader:
    optimizer.zero_grad()
    loss = {loss}
    loss.backward()
    optimizer.step()
    print(loss.item())
"""
MEAN_OF_NUMBERS = (
    "((model(x) - y) ** 2).nanmean()",
    "torch.nanmean((model(x) - y) ** 2)",
    "torch.nanmean(torch.nn.functional.mse_loss(model(x), y, reduction='none').flatten())",
)
"""The mean of what is no NaN: of how many numbers, differs over the ranks."""


@pytest.mark.parametrize("loss", MEAN_OF_NUMBERS)
def test_a_mean_that_leaves_out_nan_is_no_mean_over_the_samples(tmp_path: Path, loss: str) -> None:
    after, said = converted(tmp_path, SCRIPT.format(loss=loss))
    assert "RowsOfAllRanks.apply" in after and "AD606" in said


def test_leaves_out_the_same_numbers_as_one_process(tmp_path: Path, zygote: Zygote | None) -> None:
    assert differences(tmp_path, zygote, SCRIPT.format(loss=MEAN_OF_NUMBERS[0])) is None


@pytest.mark.parametrize(
    "loss",
    [
        "torch.nn.functional.glu(model(x).repeat(1, 2), dim=-1).mean()",
        "torch.nn.functional.celu(model(x)).mean()",
        "torch.nn.functional.hardshrink(model(x)).mean()",
        "torch.logit(torch.sigmoid(model(x))).mean()",
        "torch.sinc(model(x)).mean()",
        "torch.fmax(model(x), x[:, :3]).mean()",
        "torch.rad2deg(model(x)).mean()",
        "torch.copysign(model(x), x[:, :3]).mean()",
    ],
)
def test_what_computes_each_sample_apart_needs_no_others(tmp_path: Path, loss: str) -> None:
    after, said = converted(tmp_path, SCRIPT.format(loss=loss))
    assert "RowsOfAllRanks" not in after and "AD606" not in said and "cannot tell" not in said


@pytest.mark.parametrize(
    "loss",
    [
        "model(x).cummax(0).values.mean()",
        "torch.nn.functional.glu(model(x), dim=0).mean()",
        "torch.cumsum(model(x), 0).pow(2).mean()",
        "model(x).diff(1, 0).abs().mean()",
        "model(x).nanmedian()",
    ],
)
def test_what_relates_the_samples_has_those_of_all_ranks(tmp_path: Path, loss: str) -> None:
    after, _ = converted(tmp_path, SCRIPT.format(loss=loss))
    assert "RowsOfAllRanks.apply" in after


WHOLE = """\
import torch

torch.manual_seed(0)
x, y = torch.randn(64, 8), torch.randn(64, 1)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.{layer}, torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(4):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    print(loss.item())
"""
"""Steps on all of the data, of which a rank takes its rows where every layer keeps them apart."""


@pytest.mark.parametrize(
    "layer", ["Hardshrink()", "Softshrink()", "Softplus()", "Dropout1d(0.0)", "LocalResponseNorm(2)"]
)
def test_layers_that_keep_rows_apart(tmp_path: Path, layer: str) -> None:
    after, _ = converted(tmp_path, WHOLE.format(layer=layer))
    assert "model(x[rows])" in after


def test_rows_through_a_layer_of_the_table(tmp_path: Path, zygote: Zygote | None) -> None:
    assert differences(tmp_path, zygote, WHOLE.format(layer="Softshrink()")) is None


@pytest.mark.parametrize("layer", ["Softmax(dim=0)", "BatchNorm1d(8)", "Unknown()"])
def test_layers_that_mix_rows(tmp_path: Path, layer: str) -> None:
    after, _ = converted(tmp_path, WHOLE.format(layer=layer))
    assert "model(x[rows])" not in after or "SyncBatchNorm" in after
