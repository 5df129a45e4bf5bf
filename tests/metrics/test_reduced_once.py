"""A value that several statements of a step print, log, keep or decide by is reduced over the ranks once."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import pytest
from conftest import converted, differences

from autodist.verify.launch import Zygote

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.tensorboard import SummaryWriter

torch.manual_seed(1)
x = torch.randn(64, 4)
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=16, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
writer = SummaryWriter("runs")
best, losses, verbose = 1e9, [], True
for epoch in range(2):
    for step, (a, b) in enumerate(loader):
        loss = nn.functional.mse_loss(model(a), b)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
{use}
"""


def script(use: str) -> str:
    return SCRIPT.replace("{use}", indent(use, " " * 8))


ONCE = [
    'print(loss.item())\nwriter.add_scalar("loss", loss.item(), step)',
    'writer.add_scalar("loss", loss.item(), step)\nprint(f"{step} {loss.item():.4f}")',
    "print(step, loss.item(), loss.item() ** 0.5)",
    "if loss.item() < best:\n    best = loss.item()\n    print(best)",
    "print(loss.item())\nif step % 2 == 0:\n    print(step, loss.item())",
    'if step % 2 == 0:\n    print(loss.item())\n    writer.add_scalar("loss", loss.item(), step)',
    'logs = {"loss": loss.item()}\nprint(logs)\nlosses.append(loss.item())\nprint(losses[-1])',
    'print("loss", loss.item())\nfor part in range(2):\n    print(part, loss.item())',
]


@pytest.mark.parametrize("use", ONCE)
def test_it_is_bound_ahead_of_the_first_use(use: str, tmp_path: Path) -> None:
    text, _ = converted(tmp_path, script(use))
    assert text.count("= reduce_mean(loss.item())\n") == text.count("reduce_mean(loss") == 1
    assert text.count("mean_loss") == 3


@pytest.mark.parametrize(
    ("use", "times"),
    [
        ("print(loss.item())\nloss = 2 * loss\nprint(loss.item())", 2),
        ("print(loss.item())\nloss.data.mul_(2)\nprint(loss.item())", 2),
        ("if step == 0:\n    print(loss.item())\nif step == 3:\n    print(loss.item())", 2),
        ("if step == 0:\n    print(loss.item())\nelif loss.item() > 3:\n    print('large')", 2),
        ("if verbose and loss.item() > 3:\n    print(loss.item())", 2),
        ("print(loss.item())", 1),
        ("def change():\n    global loss\n    loss = 2 * loss\nprint(loss.item())\nchange()\nprint(loss.item())", 2),
    ],
)
def test_other_values_and_uses_that_may_not_come_are_reduced_where_they_are(
    use: str, times: int, tmp_path: Path
) -> None:
    text, _ = converted(tmp_path, script(use))
    assert text.count("reduce_mean(loss.item())") == times and "mean_loss" not in text


def test_the_name_is_none_that_the_script_has(tmp_path: Path) -> None:
    text, _ = converted(tmp_path, script("mean_loss = 0.5\n" + ONCE[0] + "\nprint(mean_loss)"))
    assert "        mean_loss_ = reduce_mean(loss.item())\n        print(mean_loss_)\n" in text


def test_it_reports_what_one_process_does(tmp_path: Path, zygote: Zygote | None) -> None:
    text = script(ONCE[3]).replace("from torch.utils.tensorboard import SummaryWriter\n", "")
    assert differences(tmp_path, zygote, text.replace('writer = SummaryWriter("runs")\n', "")) is None
