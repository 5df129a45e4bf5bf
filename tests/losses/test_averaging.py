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


BY_HAND = """\
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

world_size = int(os.getenv("WORLD_SIZE", "1"))
if world_size > 1:
    dist.init_process_group("gloo")
data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(data, batch_size=8, sampler=DistributedSampler(data)):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    if world_size > 1:
{averaging}
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("averaging", "averages"),
    [
        ("for p in model.parameters():\n    dist.all_reduce(p.grad)\n    p.grad /= world_size", True),
        ("for p in model.parameters():\n    dist.all_reduce(p.grad.data)\n    p.grad.data /= world_size", True),
        ("flat = torch.cat([p.grad.view(-1) for p in model.parameters()])\ndist.all_reduce(flat)", True),
        (
            "grads = []\nfor p in model.parameters():\n    if p.grad is not None:\n"
            "        grads.append(p.grad.view(-1))\nflat = torch.cat(grads)\n"
            "dist.all_reduce(flat, op=dist.ReduceOp.SUM)",
            True,
        ),
        ("norm = torch.cat([p.grad.view(-1) for p in model.parameters()]).norm()\ndist.all_reduce(norm)", False),
        ("total = sum(p.grad.pow(2).sum() for p in model.parameters())\ndist.all_reduce(total)", False),
    ],
)
def test_gradients_that_the_script_averages_itself(averaging: str, averages: bool, tmp_path: Path) -> None:
    lines = "\n".join(f"        {line}" for line in averaging.splitlines())
    code, _ = converted(tmp_path, BY_HAND.format(averaging=lines))
    assert ("DDP(" not in code and "average_gradients" not in code) is averages


def test_a_pass_ahead_of_the_steps_is_none_of_theirs(tmp_path: Path) -> None:
    """One that has lazy layers made is no second pass before a backward pass, in which other parts may run."""
    layers = "        self.first, self.second = nn.LazyLinear(4), nn.LazyLinear(4)\n"
    forward = (
        "        for _ in range(random.randint(1, 2)):\n            x = self.second(self.first(x))\n        return x\n"
    )
    text = (
        "import random\n\nimport torch\nfrom torch import nn\n"
        "from torch.utils.data import DataLoader, TensorDataset\n\n\n"
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"{layers}\n    def forward(self, x):\n{forward}\n\n"
        "loader = DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=8, shuffle=True)\n"
        "model = Net()\nmodel(torch.randn(1, 4))\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for (x,) in loader:\n    optimizer.zero_grad()\n    model(x).pow(2).mean().backward()\n    optimizer.step()\n"
    )
    code, said = converted(tmp_path, text)
    assert "several forward passes" not in said and "model(torch.randn(1, 4))\nmodel = DDP(model" in code
