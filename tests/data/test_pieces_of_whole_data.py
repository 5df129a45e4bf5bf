"""Loops over pieces of all the data: along another axis than that of the samples, each has a row of every sample."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

from autodist.verify import verify
from autodist.verify.launch import Zygote

SCRIPT = """\
import torch
from torch import nn

torch.manual_seed(0)


class Sequence(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.linear = nn.LSTMCell(1, 5), nn.Linear(5, 1)

    def forward(self, input):
        outputs = []
        h, c = torch.zeros(input.size(0), 5), torch.zeros(input.size(0), 5)
        {loop}:
            h, c = self.cell(one, (h, c))
            outputs += [self.linear(h)]
        return torch.stack(outputs, 1).squeeze(2)


data = torch.randn(9, 7)
input, target = data[:, :-1], data[:, 1:]
model, criterion = Sequence(), nn.MSELoss()
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
for step in range(3):

    def closure():
        optimizer.zero_grad()
        output = model(input)
        loss = criterion(output, target)
        loss.backward()
        return loss

    print(step, optimizer.step(closure).item())
"""
PIECES = "pieces = input.split(1, dim=1)\n        "
ROWS = "pieces = input.split(1, dim=0)\n        "


@pytest.mark.parametrize(
    "loop",
    [
        "for i, one in enumerate(input.chunk(input.size(1), dim=1))",
        "for one in torch.split(input, 1, dim=-1)",
        "for t, one in enumerate(input.unsqueeze(2).unbind(dim=1))",
        "for one, _ in zip(input.split(1, 1), input.split(1, 1))",
        PIECES + "for one in pieces",
        PIECES + "for t, one in enumerate(pieces)",
    ],
)
def test_steps_of_time(tmp_path: Path, zygote: Zygote, loop: str) -> None:
    """`for i, input_t in enumerate(input.chunk(input.size(1), dim=1))` of PyTorch's own example was refused."""
    before = SCRIPT.format(loop=loop)
    code, said = conftest.converted(tmp_path, before)
    assert "AD902" not in said and "model(input[rows])" in code
    (tmp_path / "before.py").write_text(before)
    (tmp_path / "after.py").write_text(code)
    verdict = verify(tmp_path / "before.py", tmp_path / "after.py", [2], device="cpu", workdir=tmp_path, zygote=zygote)
    assert verdict.worlds[0].equal, (verdict.worlds[0].reason, verdict.worlds[0].findings)


@pytest.mark.parametrize(
    "loop",
    [
        "for i, one in enumerate(input.split(1))",
        "for one in input.unbind()",
        "for i, (row, one) in enumerate(zip(input, input.split(1, dim=1)))",
        ROWS + "for one in pieces",
        ROWS + "for t, one in enumerate(pieces)",
    ],
)
def test_rows_that_belong_together(tmp_path: Path, loop: str) -> None:
    said = conftest.converted(tmp_path, SCRIPT.format(loop=loop))[1]
    assert "AD902" in said or "AD602" in said
