"""Numbers that are computed from sums and means over the batch, for a report alone."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

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
        self.body = nn.Linear(4, 4)

    def forward(self, x):
        out = self.body(x)
{forward}


loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 4)), batch_size=8, shuffle=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
{step}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item(), {reported}.item())
"""
INSIDE = """\
used = out.softmax(1).mean(0)
perplexity = torch.exp(-(used * torch.log(used + 1e-10)).sum())
return out, perplexity"""


def converted(folder: Path, step: str, reported: str, forward: str = "return out") -> tuple[str, str]:
    """The conversion and what is said of it."""
    steps, inside = indent(step, " " * 8), indent(forward, " " * 8)
    return conftest.converted(folder, SCRIPT.format(step=steps, reported=reported, forward=inside))


@pytest.mark.parametrize(
    ("step", "reported", "expected"),
    [
        ("loss = F.mse_loss(model(x), y)\nrmse = torch.sqrt(loss)", "rmse", "rmse = torch.sqrt(mean_loss)"),
        (
            "loss = F.mse_loss(model(x), y)\npsnr = -10 * torch.log10(loss + 1e-8)",
            "psnr",
            "psnr = -10 * torch.log10(reduce_mean(loss + 1e-8))",
        ),
        (
            "out = model(x)\nloss = F.mse_loss(out, y)\nr2 = 1 - ((y - out) ** 2).sum() / ((y - y.mean()) ** 2).sum()",
            "r2",
            "r2 = 1 - reduce_sum(((y - out) ** 2).sum()) / reduce_sum(((y - reduce_mean(y.mean())) ** 2).sum())",
        ),
    ],
)
def test_beside_a_step(tmp_path: Path, step: str, reported: str, expected: str) -> None:
    """Reduced where it is computed for the report; the loss stays this rank's own."""
    after, said = converted(tmp_path, step, reported)
    assert f"        {expected}\n" in after and "samples alone" not in said
    assert "        loss.backward()\n" in after


def test_inside_of_a_model(tmp_path: Path) -> None:
    after, said = converted(tmp_path, "out, codes = model(x)\nloss = F.mse_loss(out, y)", "codes", INSIDE)
    assert "        used = reduce_mean(out.softmax(1).mean(0))\n" in after and "samples alone" not in said


def test_what_a_loss_is_computed_from_as_well(tmp_path: Path) -> None:
    """Gradients flow through it: it is taken over all ranks with them."""
    step = "out, codes = model(x)\nloss = F.mse_loss(out, y) - 0.1 * codes"
    after, said = converted(tmp_path, step, "codes", INSIDE)
    assert "used = SumOverRanks.apply(out.softmax(1).mean(0)) / dist.get_world_size()\n" in after
    assert "samples alone" not in said and "AD602" not in said


def test_a_sum_inside_of_a_model(tmp_path: Path) -> None:
    """All ranks make the forward passes of training, and none is made of samples that all of them have."""
    forward = "return out, out.abs().sum().log()"
    after, said = converted(tmp_path, "out, size = model(x)\nloss = F.mse_loss(out, y)", "size", forward)
    assert "return out, reduce_sum(out.abs().sum()).log()" in after and "samples alone" not in said


def test_a_model_that_rank_zero_runs_alone(tmp_path: Path) -> None:
    """For its graph: the other ranks do not come by what is inside, and rank 0 would wait for them."""
    step = "writer.add_graph(model, x)\nout, codes = model(x)\nloss = F.mse_loss(out, y)"
    script = "from torch.utils.tensorboard import SummaryWriter\n" + SCRIPT.replace(
        "loader =", 'writer = SummaryWriter("runs")\nloader ='
    )
    steps, inside = indent(step, " " * 8), indent(INSIDE, " " * 8)
    after, said = conftest.converted(tmp_path, script.format(step=steps, forward=inside, reported="codes"))
    assert "used = out.softmax(1).mean(0)\n" in after and "samples alone" in said
