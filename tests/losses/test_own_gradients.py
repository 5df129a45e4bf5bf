"""Samples, or noise for them, that follow their own gradients: these are those of the whole batch."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.rand(64, 4), torch.rand(64, 1)), batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def unit(rows):
    rows /= rows.norm(dim=1, keepdim=True)
    return rows


def hardest(x, y):
    patch = torch.zeros_like(x).requires_grad_()
    {made}
    for _ in range(3):
        {clear}
        loss = ((model(x + patch) - y) ** 2).{reduction}()
        loss.backward()
        {change}
    return (x + patch).detach()


for x, y in loader:
    loss = nn.functional.mse_loss(model(hardest(x, y)), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
"""
SEARCH = "search = torch.optim.Adam([patch], lr=0.1)"
DIVIDED = "patch.grad /= dist.get_world_size()  # of a mean over this rank's samples\n"


def script(made: str = "", clear: str = "patch.grad = None", change: str = "pass", reduction: str = "mean") -> str:
    return SCRIPT.format(made=made or "pass", clear=clear, change=change, reduction=reduction)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize(
    "change",
    [
        "patch.grad.div_(patch.grad.norm(dim=1, keepdim=True)); patch.data.sub_(patch.grad)",
        "patch.grad /= patch.grad.abs().sum(1, keepdim=True) + 1; patch.data.sub_(patch.grad)",
        "patch.grad[y[:, 0] > 0.5] = 0; patch.data.add_(patch.grad)",
        "patch.grad.view(-1, 2).clamp_(-1, 1); patch.data.add_(patch.grad)",
    ],
)
def test_changed_in_place(tmp_path: Path, change: str, reduction: str) -> None:
    """A quotient would be changed in place of the gradient, and forgotten."""
    text, said = converted(tmp_path, script(change=change, reduction=reduction))
    assert DIVIDED in text and change.split(";")[0] in text
    assert "AD602" not in said


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_changed_by_what_all_of_them_tell(tmp_path: Path, reduction: str) -> None:
    """The norm of the gradients of all samples was taken for one of each, and nothing was said."""
    change = "patch.grad.div_(patch.grad.norm()); patch.data.sub_(patch.grad)"
    text, said = converted(tmp_path, script(change=change, reduction=reduction))
    assert DIVIDED in text
    assert "AD602 patch.grad.norm(): it is computed of all samples together" in said


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_stepped(tmp_path: Path, reduction: str) -> None:
    """An optimizer of samples goes by their gradients as they are."""
    text, said = converted(tmp_path, script(SEARCH, "search.zero_grad()", "search.step()", reduction))
    assert f"backward()\n        {DIVIDED}        search.step()" in text
    assert "AD602" not in said


def test_of_several_passes(tmp_path: Path) -> None:
    """A gradient that is not cleared has been divided before."""
    text, said = converted(tmp_path, script(SEARCH, "pass", "search.step()"))
    assert DIVIDED not in text
    assert "AD602 patch.grad is of a mean over a rank's samples" in said


def test_on_other_data_as_well(tmp_path: Path) -> None:
    """Of samples that all ranks have in full, each has its own gradient already."""
    both = (
        script(SEARCH, "search.zero_grad()", "search.step()") + "print(hardest(torch.rand(6, 4), torch.rand(6, 1)))\n"
    )
    text, said = converted(tmp_path, both)
    assert DIVIDED not in text and "AD602 patch.grad is of a mean over a rank's samples" in said


def test_only_read(tmp_path: Path) -> None:
    """What is read is divided where it is read."""
    text, _ = converted(tmp_path, script(change="patch.data.add_(patch.grad)"))
    assert "add_(patch.grad / dist.get_world_size())" in text and DIVIDED not in text


def test_projected_between_steps(tmp_path: Path) -> None:
    """Noise of a function's own is no state, although an optimizer steps it."""
    text, _ = converted(
        tmp_path, script(SEARCH, "search.zero_grad()", "search.step(); patch.data.add_(x).clamp_(0, 1).sub_(x)")
    )
    assert "patch.data.add_(x).clamp_(0, 1).sub_(x)" in text


def test_changed_by_another_function(tmp_path: Path) -> None:
    """What a function of a step has for itself outlives nothing, whichever function changes it."""
    text, _ = converted(
        tmp_path, script("patch = torch.rand_like(x); patch = unit(patch).requires_grad_()", change="unit(patch.grad)")
    )
    assert "def unit(rows):\n    rows /= rows.norm(dim=1, keepdim=True)\n" in text and "gather_rows" not in text
