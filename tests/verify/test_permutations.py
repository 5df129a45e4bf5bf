"""Permutations of a batch are put together of those within the ranks' parts, whichever library draws them."""

from __future__ import annotations

from pathlib import Path

import numpy
import pytest

from autodist.config import Config, Strategy
from autodist.convert import convert
from autodist.project import Project
from autodist.verify import verify
from autodist.verify.compare import TOLERANCES
from autodist.verify.contents import array_difference
from autodist.verify.launch import Zygote

MIXUP = """\
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(32, 3), torch.rand(32, 1)), batch_size=8, shuffle=True)
model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        weight, index = np.random.beta(2.0, 2.0), {drawn}
        x, y = weight * x + (1 - weight) * x[index], weight * y + (1 - weight) * y[index]
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize("drawn", ["torch.randperm(x.size(0))", "np.random.permutation(x.size(0))"])
def test_mixed_samples(tmp_path: Path, zygote: Zygote | None, drawn: str) -> None:
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    before.write_text(MIXUP.format(drawn=drawn))
    after.write_text(convert(Project.load(before), Config(Strategy.DDP)).entry.after)
    verdict = verify(before, after, [2], workdir=tmp_path, timeout=100, zygote=zygote)
    assert verdict.equal, verdict.findings


def test_numbers_that_are_none_agree_with_each_other(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("first.npy", "same.npy", "other.npy")]
    for path, last in zip(paths, (float("nan"), float("nan"), 2.0), strict=True):
        numpy.save(path, numpy.array([1.0, last]))
    assert array_difference(paths[0], paths[1], TOLERANCES["float64"]) is None
    assert array_difference(paths[0], paths[2], TOLERANCES["float64"]) is not None


@pytest.mark.parametrize(
    ("numbers", "others", "equal"),
    [
        ([0.6, -0.0005], [0.6, -0.0005 - 1.8e-10], True),  # what rounding leaves of the larger ones
        ([0.6, -0.0005], [0.6, -0.0005 - 1.8e-8], False),
        ([-0.0005], [-0.0005 - 1.8e-10], False),  # beside none that is larger
        ([1000.0, 0.1], [1000.0, 0.1001], False),
        ([float("inf"), 0.1], [float("inf"), 0.2], False),
        ([float("nan"), 0.1], [float("nan"), 0.1], True),
        (0.5, 0.5, True),
        ([], [], True),
    ],
)
def test_small_elements_beside_large_ones(numbers: object, others: object, equal: bool, tmp_path: Path) -> None:
    """An element near zero of what a decoder gives is known to the rounding of the larger ones, which CPUs do apart."""
    for name, each in (("one", numbers), ("other", others)):
        numpy.save(tmp_path / f"{name}.npy", numpy.array(each))
    found = array_difference(tmp_path / "one.npy", tmp_path / "other.npy", TOLERANCES["float64"])
    assert (found is None) is equal
