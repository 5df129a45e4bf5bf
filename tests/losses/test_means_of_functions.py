"""Steps on all of the data whose loss is computed by a function, a module, or the model itself: they were refused."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

from autodist.verify import verify
from autodist.verify.launch import Zygote

SCRIPT = """\
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
x, y = torch.randn({rows}, 4), torch.randn({rows}, 1)
far, some = torch.randn(9, 4), torch.randn(8, 4)


def mse(a, b):
    return ((a - b) ** 2).mean()


def scaled(a, b, factor=0.5):
    return factor * mse(a, b)


def penalised(a, b):
    return mse(a, b) + 0.01 * sum(p.pow(2).sum() for p in model.parameters())


def kept(a, b):
    loss = mse(a, b)
    print("loss", loss.item())
    return loss


def both(a, b, c):
    return mse(a, b) + c.pow(2).mean()


class Huber(nn.Module):
    def forward(self, a, b):
        error = (a - b).abs()
        return torch.where(error < 1, 0.5 * error**2, error - 0.5).mean()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 1)

    def forward(self, x, y=None):
        out = self.fc(x)
        return out if y is None else (out, F.mse_loss(out, y))


model, huber, absolute = Net(), Huber(), lambda a, b: (a - b).abs().mean()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    {loss}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        print(step, loss.item(), mse(model(far), far[:, :1]).item())
"""
ANY_NUMBER = [
    "loss = mse(model(x), y)",
    "loss = scaled(model(x), y)",
    "loss = penalised(model(x), y)",
    "loss = huber(model(x), y) + 0.5 * absolute(model(x), y)",
    "loss = mse(model(x), y) + 0.1 * mse(model(far), far[:, :1])",
]
EVEN = [
    "out, loss = model(x, y)",
    "loss = model(x, y)[1]",
    "loss = kept(model(x), y)",
    "loss = both(model(x), y, model(some))",
]


def _verified(tmp_path: Path, zygote: Zygote, rows: int, loss: str) -> str:
    before = SCRIPT.format(rows=rows, loss=loss)
    code, said = conftest.converted(tmp_path, before)
    assert "AD902" not in said and "AD602" not in said
    (tmp_path / "before.py").write_text(before)
    (tmp_path / "after.py").write_text(code)
    verdict = verify(tmp_path / "before.py", tmp_path / "after.py", [2], device="cpu", workdir=tmp_path, zygote=zygote)
    assert verdict.worlds[0].equal, (verdict.worlds[0].reason, verdict.worlds[0].findings)
    return code


@pytest.mark.parametrize("loss", ANY_NUMBER)
def test_means_that_functions_give_back(tmp_path: Path, zygote: Zygote, loss: str) -> None:
    """They count where the function is called, so that ranks may have different numbers of rows."""
    code = _verified(tmp_path, zygote, 15, loss)
    assert code.count("* row_weight(") == loss.count("model(") and "must divide" not in code


@pytest.mark.parametrize("loss", EVEN)
def test_means_that_something_else_goes_by(tmp_path: Path, zygote: Zygote, loss: str) -> None:
    code = _verified(tmp_path, zygote, 16, loss)
    assert "row_weight(" not in code and "the rows must divide by the number of ranks" in code


def test_rows_that_do_not_divide(tmp_path: Path, zygote: Zygote) -> None:
    """The conversion says so, rather than train another model."""
    before = SCRIPT.format(rows=15, loss=EVEN[0])
    (tmp_path / "before.py").write_text(before)
    (tmp_path / "after.py").write_text(conftest.converted(tmp_path, before)[0])
    verdict = verify(tmp_path / "before.py", tmp_path / "after.py", [2], device="cpu", workdir=tmp_path, zygote=zygote)
    assert not verdict.worlds[0].equal
    assert "the rows must divide by the number of ranks" in str(verdict.worlds[0])
