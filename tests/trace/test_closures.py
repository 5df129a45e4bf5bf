"""Closures that an optimizer calls: what they return is that of all ranks where it decides by it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import converted

from autodist.config import Strategy

HEAD = """\
import functools

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

rows = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
loader = DataLoader(rows, batch_size=8, shuffle=True)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1)
"""
STEPS = """\
for epoch in range(2):
    for x, y in loader:

        def closure():
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            return loss

        loss = optimizer.step(closure)
    print(epoch, loss.item())
"""
FUNCTION = """\
def evaluate(x, y):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    return loss


for epoch in range(2):
    for x, y in loader:
        optimizer.step(CLOSURE)
"""


def test_the_loss_of_a_closure_is_that_of_all_ranks_once(tmp_path: Path) -> None:
    after, _ = converted(tmp_path, HEAD + STEPS)
    assert "return reduce_mean(loss)" in after
    assert "print(epoch, loss.item())" in after  # which step() returns


def test_an_optimizer_that_only_returns_the_loss_needs_no_communication(tmp_path: Path) -> None:
    after, _ = converted(tmp_path, HEAD.replace("LBFGS", "SGD") + STEPS)
    assert "            return loss\n" in after
    assert "print(epoch, reduce_mean(loss.item()))" in after


@pytest.mark.parametrize(
    "closure", ["lambda: evaluate(x, y)", "functools.partial(evaluate, x, y)", "closure=lambda: evaluate(x, y)"]
)
def test_closures_are_followed_however_they_are_written(tmp_path: Path, closure: str) -> None:
    after, _ = converted(tmp_path, HEAD + FUNCTION.replace("CLOSURE", closure))
    assert "lambda: reduce_mean(evaluate(x, y))" in after or "return reduce_mean(loss)" in after


def test_a_class_that_hands_a_closure_on_to_lbfgs(tmp_path: Path) -> None:
    own = "class Counting(torch.optim.LBFGS):\n    def step(self, closure):\n        return super().step(closure)\n\n\n"
    source = HEAD.replace("optimizer = torch.optim.LBFGS", f"{own}optimizer = Counting") + STEPS
    assert "return reduce_mean(loss)" in converted(tmp_path, source)[0]
    _, said = converted(tmp_path, source, Strategy.FSDP)
    assert said.startswith("AD907 LBFGS cannot step on shards")


def test_a_sum_is_multiplied_for_its_gradients_and_added_up_for_the_optimizer(tmp_path: Path) -> None:
    after, _ = converted(tmp_path, HEAD + STEPS.replace("(model(x), y)", '(model(x), y, reduction="sum")'))
    assert "(loss * dist.get_world_size()).backward()" in after
    assert "return reduce_sum(loss)" in after


def test_a_closure_that_goes_over_a_loader_has_a_new_order_each_time(tmp_path: Path) -> None:
    source = """\
def closure():
    optimizer.zero_grad()
    total = 0.0
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y) / len(loader)
        loss.backward()
        total += loss.item()
    return total


for epoch in range(3):
    optimizer.step(closure)
"""
    for each in (HEAD + source, HEAD + source.replace("for epoch in range(3):\n    ", "")):
        after, _ = converted(tmp_path, each)
        assert "loader.sampler.set_epoch(loader.sampler.epoch + 1)" in after
        assert "return reduce_mean(total)" in after


def test_gradients_that_no_wrapper_averages_are_averaged_within_the_closure(tmp_path: Path) -> None:
    bypassed = HEAD + STEPS.replace("model(x), y", "model[2](model[1](model[0](x))), y")
    after, _ = converted(tmp_path, bypassed)
    assert "            average_gradients(optimizer)\n            return reduce_mean(loss)\n" in after
    unseen = bypassed.replace("optimizer.step(closure)", "optimizer.step(lambda: closure())")
    assert "AD904" in converted(tmp_path, unseen)[1]


def test_a_loss_that_cannot_be_reduced_is_refused(tmp_path: Path) -> None:
    source = HEAD + STEPS.replace("return loss", "return loss.sqrt()")
    assert "return reduce_mean(loss).sqrt()" in converted(tmp_path, source)[0]
    unseen = HEAD + STEPS.replace("optimizer.step(closure)", "optimizer.step(torch.compile)")
    assert converted(tmp_path, unseen)[1].startswith("AD904 cannot see the closure")


def test_lbfgs_keeps_its_state_whole(tmp_path: Path) -> None:
    after, said = converted(tmp_path, HEAD + STEPS, Strategy.ZERO)
    assert "ZeroRedundancyOptimizer(" not in after
    assert "L-BFGS steps along all parameters at once" in said


def test_one_step_of_lbfgs_is_a_training(tmp_path: Path) -> None:
    source = """\
x, y = torch.randn(20, 4), torch.randn(20, 1)


def closure():
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    return loss


optimizer.step(closure)
"""
    after, _ = converted(tmp_path, HEAD + source)
    assert "nn.functional.mse_loss(model(x[own_rows]), y[own_rows]) * row_weight(len(x))" in after


def test_pieces_along_another_axis_have_all_rows(tmp_path: Path) -> None:
    source = """\
class Steps(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.read = nn.LSTMCell(1, 4), nn.Linear(4, 1)

    def forward(self, x):
        h = c = torch.zeros(x.size(0), 4)
        out = []
        for piece in PIECES:
            h, c = self.cell(piece, (h, c))
            out += [self.read(h)]
        return torch.cat(out, dim=1)


x = torch.randn(12, 9)
net = Steps()
net.double().float()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(5):
    out = net(x)
    loss = nn.functional.mse_loss(out, x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
    for pieces in ("x.split(1, dim=1)", "torch.chunk(x, 8, 1)"):
        after, _ = converted(tmp_path, HEAD.split("rows =")[0] + source.replace("PIECES", pieces))
        assert "out = net(x[rows])" in after
        assert "net.double().float()" in after  # before it is wrapped
    _, said = converted(tmp_path, HEAD.split("rows =")[0] + source.replace("PIECES", "x.split(1)"))
    assert "x.split(1): it takes samples by their places" in said


BY_HAND = """\
for epoch in range(2):
    for x, y in loader:
        model.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                UPDATE
"""
NO_OPTIMIZER = "".join(line for line in HEAD.splitlines(keepends=True) if not line.startswith("optimizer"))


@pytest.mark.parametrize(
    "update",
    ["p -= 0.1 * p.grad", "p.data.add_(p.grad, alpha=-0.1)", "p.sub_(0.1 * p.grad)", "p.copy_(p - 0.1 * p.grad)"],
)
@pytest.mark.parametrize("strategy", [Strategy.DDP, Strategy.FSDP])
def test_parameters_of_modules_may_be_updated_by_hand(tmp_path: Path, update: str, strategy: Strategy) -> None:
    after, said = converted(tmp_path, NO_OPTIMIZER + BY_HAND.replace("UPDATE", update), strategy)
    assert ("DDP(nn.Sequential" if strategy is Strategy.DDP else "fully_shard(model") in after
    assert "AD9" not in said


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (
            "mse_loss(model(x), y)",
            "mse_loss(model[2](model[1](model[0](x))), y)",
            "updates parameters by hand",
        ),
        (
            "loss.backward()",
            "scale = torch.ones(1, requires_grad=True)\n        (loss * scale).backward()\n        print(scale.grad)",
            "make them parameters of a module",
        ),
        ("                UPDATE", "                print(p.grad.abs_().sum())", "cannot see that an optimizer steps"),
    ],
)
def test_gradients_that_nothing_averages_are_refused(tmp_path: Path, old: str, new: str, reason: str) -> None:
    source = (NO_OPTIMIZER + BY_HAND).replace(old, new)
    after, said = converted(tmp_path, source.replace("UPDATE", "p -= 0.1 * p.grad"))
    assert "AD904" in said and re.search(reason, said)
    assert "DDP" not in after


def test_closures_that_an_optimizer_of_the_script_calls_average_as_well(tmp_path: Path) -> None:
    own = """\
class Twice(torch.optim.SGD):
    @torch.no_grad()
    def step(self, closure):
        closure = torch.enable_grad()(closure)
        super().step()
        closure()
        super().step()


optimizer = Twice"""
    steps = STEPS.replace("loss = optimizer.step(closure)", "closure()\n        optimizer.step(closure)")
    bypassed = HEAD.replace("optimizer = torch.optim.LBFGS", own) + steps.replace(
        "model(x)", "model[2](model[1](model[0](x)))"
    )
    after, _ = converted(tmp_path, bypassed.replace("    print(epoch, loss.item())\n", ""))
    assert "            average_gradients(optimizer)\n            return loss\n" in after


def test_gradients_with_a_graph_cannot_be_averaged(tmp_path: Path) -> None:
    source = HEAD.replace("LBFGS", "SGD") + STEPS.replace("backward()", "backward(create_graph=True)")
    assert converted(tmp_path, source)[1].startswith("AD904 gradients with a graph of their own")
