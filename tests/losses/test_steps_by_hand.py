"""Tensors in no module that a script changes by their gradients itself: nothing else averages these over the ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

LOADED = """\
import torch
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8, shuffle=True)
w = torch.normal(0, 0.01, size=(4, 1), requires_grad=True)
b = torch.zeros(1, requires_grad=True)


def sgd(params, lr, batch_size):
    with torch.no_grad():
        for param in params:
            param -= lr * param.grad / batch_size
            param.grad.zero_()


for epoch in range(2):
    for x, y in loader:
        loss = (x @ w + b - y) ** 2 / 2
        {step}
"""
BY_FUNCTION = "loss.sum().backward()\n        sgd([w, b], 0.1, {size})"
AVERAGED = "        average_gradients_of(params)\n        for param in params:\n"


def test_they_are_averaged_ahead_of_the_loop_that_steps_them(tmp_path: Path) -> None:
    code, findings = converted(tmp_path, LOADED.format(step=BY_FUNCTION.format(size=8)))
    assert AVERAGED in code and "(loss.sum() * dist.get_world_size()).backward()" in code
    assert "AD904" not in findings and "warning" not in findings


def test_the_size_of_a_batch_that_they_are_divided_by_is_that_of_all_ranks(tmp_path: Path) -> None:
    code, _ = converted(tmp_path, LOADED.format(step=BY_FUNCTION.format(size="x.shape[0]")))
    assert "sgd([w, b], 0.1, x.shape[0] * dist.get_world_size())" in code


def test_so_it_is_for_the_parameters_of_modules(tmp_path: Path) -> None:
    """Their gradients are averaged by the wrapper."""
    text = LOADED.replace("w = torch", "net = torch.nn.Linear(4, 1)\nw = torch").replace("x @ w + b", "net(x)")
    text = text.replace("[w, b]", "net.parameters()")
    step = BY_FUNCTION.format(size="x.shape[0]").replace("[w, b]", "net.parameters()")
    code, _ = converted(tmp_path, text.format(step=step))
    assert "x.shape[0] * dist.get_world_size())" in code and "average_gradients_of" not in code


@pytest.mark.parametrize(
    "step",
    [
        "with torch.no_grad():\n            w -= 0.1 * w.grad\n            b -= 0.1 * b.grad",
        "w.data.sub_(0.1 * w.grad.data)\n        w.grad.zero_()\n        b.data.add_(b.grad.data, alpha=-0.1)",
        "w.data -= 0.1 * w.grad.data\n        w.grad = None\n        b.data -= 0.1 * b.grad.data",
    ],
)
def test_those_that_are_stepped_one_after_the_other_are_averaged_at_once(tmp_path: Path, step: str) -> None:
    code, _ = converted(tmp_path, LOADED.format(step=f"loss.mean().backward()\n        {step}"))
    assert code.count("average_gradients_of([w, b])") == 1 and code.count("average_gradients_of(") == 2


@pytest.mark.parametrize(
    "step",
    [
        "norm = w.grad.norm()\n        w.grad *= 1 / norm\n        w.data -= 0.1 * w.grad",
        "w.data -= 0.1 * w.grad\n        b.data = b.data - 0.1 * b.grad",
        "for p, lr in zip((w, b), (0.1, 0.2)):\n            p.data -= lr * p.grad",
    ],
)
def test_gradients_that_are_used_elsewhere_are_refused(tmp_path: Path, step: str) -> None:
    _, findings = converted(tmp_path, LOADED.format(step=f"loss.mean().backward()\n        {step}"))
    assert "AD904" in findings and "gradients of tensors that are in no module are read" in findings


def test_an_optimizer_of_such_tensors_alone(tmp_path: Path) -> None:
    text = LOADED.replace("\nfor epoch", "\noptimizer = torch.optim.SGD([w, b], lr=0.1)\nfor epoch")
    step = "optimizer.zero_grad()\n        loss.mean().backward()\n        optimizer.step()"
    code, findings = converted(tmp_path, text.format(step=step))
    assert "average_gradients(optimizer)\n        optimizer.step()" in code and "AD904" not in findings


WHOLE = """\
import torch

x, y = torch.randn(64, 4), torch.randn(64, 1)
w = torch.randn({size}, requires_grad=True)
for step in range(20):
    loss = ({model} - y).pow(2).mean()
    loss.backward()
    with torch.no_grad():
        w -= 0.1 * w.grad
        w.grad.zero_()
"""


@pytest.mark.parametrize(("size", "model"), [("4, 1", "x.mm(w)"), ("()", "w * x"), ("1", "x + w")])
def test_all_of_the_data_at_once(tmp_path: Path, size: str, model: str) -> None:
    code, _ = converted(tmp_path, WHOLE.format(size=size, model=model))
    assert "average_gradients_of([w])" in code and "[rows]" in code


def test_a_tensor_with_a_row_for_each_of_the_data_is_refused(tmp_path: Path) -> None:
    """A rank would have to take its rows of it, too."""
    text = WHOLE.format(size="64, 2", model="w @ w.t()").replace("x, y = torch.randn(64, 4), torch.randn(64, 1)", "{y}")
    _, findings = converted(tmp_path, text.replace("{y}", "y = torch.rand(64, 64)"))
    assert "AD902" in findings and "have no row for each of the data" in findings


def test_a_step_by_hand_is_no_optimizer(tmp_path: Path) -> None:
    """`isinstance(updater, torch.optim.Optimizer)`, of a function of the script: only one of the branches is run."""
    text = LOADED.replace("\nfor epoch", "\ndef updater(batch_size):\n    sgd([w, b], 0.1, batch_size)\n\n\nfor epoch")
    step = (
        "if isinstance(updater, torch.optim.Optimizer):\n            loss.backward()\n            updater.step()\n"
        "        else:\n            loss.sum().backward()\n            updater(x.shape[0])"
    )
    code, findings = converted(tmp_path, text.format(step=step))
    assert "average_gradients_of(params)" in code and "AD602" not in findings


def test_numbers_of_a_size_are_counted(tmp_path: Path) -> None:
    """`y.size().numel()`, of which each rank has its own."""
    step = "seen += y.size().numel()\n        loss.mean().backward()\n        w.data -= 0.1 * w.grad"
    text = LOADED.replace("\nfor epoch", "\nseen = 0\nfor epoch") + "print(seen)\n"
    assert "print(reduce_sum(seen))" in converted(tmp_path, text.format(step=step))[0]
