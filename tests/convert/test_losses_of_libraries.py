"""Losses of a library that is not known, which is given its tensors in one way or another."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

SCRIPT = """\
import mylib
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    out = model(x)
    loss = {loss}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    "given", ["out, y", "(out, y)", "[out, y]", '{"out": out, "y": y}', "out=out, y=y", "pair=(y, [out])"]
)
def test_a_loss_that_is_given_tensors_in_a_list_or_by_a_name(tmp_path: Path, given: str) -> None:
    """It was refused: the model of a tuple was lost, and its forward pass said not to be followed."""
    after, report = converted(tmp_path, SCRIPT.replace("{loss}", f"mylib.distance({given})"))
    assert "model = DDP(nn.Linear(4, 1)" in after
    assert "AD201" in report and "AD606" in report and "AD9" not in report


@pytest.mark.parametrize("given", ["(out.detach(), y)", "[y]", "y=y"])
def test_a_loss_that_no_gradient_flows_to_a_model_from(tmp_path: Path, given: str) -> None:
    after, report = converted(tmp_path, SCRIPT.replace("{loss}", f"mylib.distance({given})"))
    assert "DDP(" not in after and "AD904" in report
