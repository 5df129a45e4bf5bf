"""Gradients that no wrapper averages are averaged before anything reads, changes or applies them."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Linear(4, 2), nn.Linear(2, 4)

    def encode(self, x):
        return torch.relu(self.down(x))

    def decode(self, code):
        return self.up(code)


def grad_norm(net):
    return sum(p.grad.norm() ** 2 for p in net.parameters()) ** 0.5


def clip(net):
    nn.utils.clip_grad_norm_(net.parameters(), 0.1)


def backward(loss, net):
    loss.backward()
    return grad_norm(net)


def train(model, optimizer, loader):
    for step, (x,) in enumerate(loader):
        loss = nn.functional.mse_loss(model.decode(model.encode(x)), x)
        optimizer.zero_grad()
        {step}


model = Autoencoder()
train(
    model,
    torch.optim.SGD(model.parameters(), lr=0.1),
    DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=8, shuffle=True),
)
"""
AVERAGE = "average_gradients(optimizer)"


def step(*lines: str) -> str:
    return "\n        ".join(lines)


@pytest.mark.parametrize(
    "use",
    [
        ("print(model.up.weight.grad.norm())",),
        ("if step % 4:", "    print(model.up.weight.grad.norm())"),
        ("for p in model.parameters():", "    p.grad.data.clamp_(-0.1, 0.1)"),
        ("norm = grad_norm(model)", "print(norm)"),
        ("if step % 4:", "    clip(model)"),
        ("norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)", "print(norm)"),
        (),
    ],
)
def test_gradients_are_averaged_once_and_before_they_are_used(tmp_path: Path, use: tuple[str, ...]) -> None:
    code, said = converted(tmp_path, SCRIPT.format(step=step("loss.backward()", *use, "optimizer.step()")))
    assert step("loss.backward()", AVERAGE, *use, "optimizer.step()") in code
    assert code.count(AVERAGE) == 2  # with the definition
    assert "AD602" not in said


def test_each_backward_pass_whose_gradients_are_kept(tmp_path: Path) -> None:
    text = SCRIPT.format(
        step=step(
            "loss.backward(retain_graph=True)",
            "first = [p.grad.clone() for p in model.parameters()]",
            "(loss ** 2).backward()",
            "optimizer.step()",
        )
    )
    code, _ = converted(tmp_path, text)
    assert f"retain_graph=True)\n        {AVERAGE}\n" in code
    assert f"(loss ** 2).backward()\n        {AVERAGE}\n        optimizer.step()" in code


def test_steps_in_the_branches_of_a_condition(tmp_path: Path) -> None:
    branch = ("    clip(model)", "    optimizer.step()")
    code, _ = converted(
        tmp_path, SCRIPT.format(step=step("loss.backward()", "if step % 4:", *branch, "else:", *branch))
    )
    averaged = (f"    {AVERAGE}", *branch)
    assert step("loss.backward()", "if step % 4:", *averaged, "else:", *averaged) in code


def test_steps_of_two_optimizers(tmp_path: Path) -> None:
    text = SCRIPT.format(step=step("loss.backward()", "optimizer.step()", "other.step()"))
    text = text.replace("loader):", "loader):\n    other = torch.optim.SGD(model.parameters(), lr=0.1)", 1)
    code, _ = converted(tmp_path, text)
    assert step(AVERAGE, "optimizer.step()", "average_gradients(other)", "other.step()") in code


def test_gradients_that_are_read_where_the_optimizer_is_not_known(tmp_path: Path) -> None:
    text = SCRIPT.format(step=step("norm = backward(loss, model)", "optimizer.step()"))
    code, said = converted(tmp_path, text)
    assert step("norm = backward(loss, model)", AVERAGE, "optimizer.step()") in code
    assert "AD602 p.grad sees gradients of this rank's samples" in said


PENALISED = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.mse_loss(model(x), y, reduction="sum")
    total = loss + sum((0.1 * weight.pow(2)).sum() for weight in model.parameters())
    optimizer.zero_grad()
    total.backward()
    optimizer.step()
print(total.item())
"""


def test_a_sum_beside_a_penalty_is_that_of_all_ranks(tmp_path: Path) -> None:
    """The penalty counts once, and the sum as often as there are ranks, also where it is converted again."""
    code, _ = converted(tmp_path, PENALISED)
    assert "total = loss * dist.get_world_size() + sum(" in code and "SumOverRanks" not in code
    again, said = converted(tmp_path, code)
    assert again == code and "AD902" not in said
