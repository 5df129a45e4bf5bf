"""What is added to samples, and computed from all of their batch: each rank would add that of its own."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

from autodist.verify.launch import Zygote

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    {shifted}
    each = (model(x) - y).pow(2).squeeze(1)
    {weighed}
    loss = each.mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    "shifted",
    [
        "x = x + 0.1 * x.std(0)",
        "x = x + 0.1 * x.std(0) * x.amax(0)",
        "widest = x.amax(0) * x.norm()\n    x = widest + x",
        "x += 0.1 * x.std(0)",
        "x = x + 0.1 * model(x).detach().std()",
    ],
)
def test_what_no_reduction_gives_is_named(tmp_path: Path, shifted: str) -> None:
    _, said = conftest.converted(tmp_path, SCRIPT.format(shifted=shifted, weighed="pass"))
    assert "AD602" in said


@pytest.mark.parametrize(
    ("shifted", "expected"),
    [
        ("x = x + x.mean(0)", "x = x + reduce_mean(x.mean(0))"),
        ("x = x + 0.1 * x.mean(0)", "x = x + reduce_mean(0.1 * x.mean(0))"),
        ("h = model(x)\n    x = x + 0.1 * h.mean(0)", "SumOverRanks.apply(h.mean(0)) / dist.get_world_size()"),
        ("h = model(x)\n    x = x + 0.1 * h.detach().mean(0)", "x = x + reduce_mean(0.1 * h.detach().mean(0))"),
        (
            "z = torch.zeros(len(x), 4)\n    z[torch.arange(len(x)), 0] = x.mean()\n    x = x + z",
            "z[torch.arange(len(x)), 0] = reduce_mean(x.mean())",
        ),
        ("x = x + (x.max() - x.min())", "(reduce_max(x.max()) - reduce_min(x.min()))"),
    ],
)
def test_means_and_extremes_are_those_of_all_ranks(tmp_path: Path, shifted: str, expected: str, zygote: Zygote) -> None:
    before = SCRIPT.format(shifted=shifted, weighed="pass")
    after, said = conftest.converted(tmp_path, before)
    assert expected in after and "AD602" not in said, after
    assert conftest.differences(tmp_path, zygote, f"import torch\ntorch.manual_seed(0)\n{before}") is None


@pytest.mark.parametrize("shifted", ["x = x + x.std(1, keepdim=True)", "x = x + x.mean(1, keepdim=True)"])
def test_what_each_sample_gives_for_itself(tmp_path: Path, shifted: str) -> None:
    after, said = conftest.converted(tmp_path, SCRIPT.format(shifted=shifted, weighed="pass"))
    assert shifted in after and "AD602" not in said


def test_a_mean_of_losses_beside_each_of_them(tmp_path: Path) -> None:
    """The mean of both is that of all."""
    after, said = conftest.converted(tmp_path, SCRIPT.format(shifted="pass", weighed="each = each + each.mean()"))
    assert "each = each + each.mean()" in after and "AD602" not in said
