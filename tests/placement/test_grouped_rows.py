"""Reshapes that may put several samples of a batch together, after layers whose width is told or not."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

SCRIPT = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 6)
        self.weight = nn.Parameter(torch.randn(6, 4) * 0.1)
        self.conv = nn.Conv1d(1, 4, 8)

    def forward(self, x):
        {forward}


loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randint(0, 3, (64,))), batch_size=8, shuffle=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    z = model(x)
    {grouped}
    loss = (z[:, 0] - z[:, 1]).pow(2).sum(1).sqrt().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    "forward",
    [
        "return self.body(x) @ self.weight",
        "return F.linear(self.body(x), self.weight.t())",
        "return torch.matmul(self.body(x), self.weight)",
        "return self.conv(x.unsqueeze(1)).flatten(1)",
        "return self.conv(x.unsqueeze(1)).squeeze(2)",
        "return torch.einsum('bi,ij->bj', self.body(x), self.weight)",
    ],
)
def test_two_samples_to_a_group(tmp_path: Path, forward: str) -> None:
    """Neighbours in the batch, which a rank has not: every rank computes the loss of all rows."""
    after, said = conftest.converted(tmp_path, SCRIPT.format(forward=forward, grouped="z = z.view(-1, 2, 4)"))
    assert "RowsOfAllRanks.apply(z)" in after and "AD602" not in said


@pytest.mark.parametrize(
    "grouped", ["z = z.view(-1, 2, 2)", "d = 2\n    z = z.reshape(-1, 2, d)", "z = z.view(len(x), 2, 2)"]
)
def test_two_halves_of_one_sample(tmp_path: Path, grouped: str) -> None:
    after, said = conftest.converted(
        tmp_path, SCRIPT.format(forward="return self.body(x) @ self.weight", grouped=grouped)
    )
    assert "RowsOfAllRanks" not in after and "AD602" not in said


@pytest.mark.parametrize(("size", "pairs"), [(6, True), (3, False)])
def test_inside_a_forward_pass(tmp_path: Path, size: int, pairs: bool) -> None:
    forward = f"return self.body(x).view(-1, 2, {size})"
    after, said = conftest.converted(tmp_path, SCRIPT.format(forward=forward, grouped="pass"))
    assert ("RowsOfAllRanks.apply(" in after) == pairs and "AD602" not in said


@pytest.mark.parametrize(("width", "named"), [("int(input())", True), ("8", False), ("4", False)])
def test_one_axis_after_a_layer_of_which_the_width_is_not_told(tmp_path: Path, width: str, named: bool) -> None:
    """`view(-1, 8)` keeps samples of eight numbers, and puts two of four together."""
    script = SCRIPT.replace("nn.Linear(8, 6)", f"nn.Linear(8, {width})")
    _, said = conftest.converted(
        tmp_path, script.format(forward="h = self.body(x)\n        return h.view(-1, 8)", grouped="pass")
    )
    assert ("h.view(-1, 8): it is not known whether it lays several samples" in said) == named


def test_samples_that_a_layer_of_a_sequence_puts_together(tmp_path: Path) -> None:
    body = "nn.Sequential(nn.Linear(8, 4), Joined())"
    script = SCRIPT.replace("nn.Linear(8, 6)", body).replace(
        "class Net", "class Joined(nn.Module):\n    def forward(self, x):\n        return x.view(-1, 8)\n\n\nclass Net"
    )
    _, said = conftest.converted(tmp_path, script.format(forward="return self.body(x)", grouped="pass"))
    assert "AD906" in said or "AD606" in said or "AD602" in said
