"""Functions that a backward pass calls with gradients: what they give back is judged by how it lies over the ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 2)), batch_size=8, shuffle=True)
model = nn.Linear(4, 2)
mask, kept = torch.ones(2, 4), []


def halved(gradient):
    scale = 0.5
    return gradient * scale


def clipped(layer, before, behind):
    return tuple(each.clamp(-1, 1) for each in before)


def seen(layer, before, behind):
    kept.append(behind[0])


{made}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    out = model(x)
    {step}
    optimizer.zero_grad()
    nn.functional.mse_loss(out, y).backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("made", "step", "refused"),
    [
        ("model.weight.register_hook(halved)", "pass", ""),
        ("model.weight.register_hook(lambda g: -g.clone() / 3)", "pass", ""),
        ("model.weight.register_hook(lambda g: mask * g)", "pass", ""),
        ("model.weight.register_hook(lambda g: g + 0.1 * model.weight.detach())", "pass", ""),
        ("model.weight.register_hook(lambda g: g / g.norm())", "pass", "hooks a gradient of this rank's samples"),
        ("model.weight.register_hook(print)", "pass", "hooks a gradient of this rank's samples"),
        (
            "for each in model.parameters():\n    each.register_hook(lambda g: torch.clamp(g, -1, 1))",
            "pass",
            "hooks a gradient of this rank's samples",
        ),
        ("pass", "out.register_hook(halved)", ""),
        ("pass", "out.register_hook(kept.append)", ""),
        ("pass", "out.register_hook(lambda g: g.sign())", "hooks the gradient of a loss"),
        ("model.register_full_backward_hook(clipped)", "pass", "hooks the gradient of a loss"),
        ("model.register_full_backward_hook(seen)", "pass", ""),
        (
            "steps = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}\n"
            "for each in model.parameters():\n"
            "    each.register_post_accumulate_grad_hook(lambda p: steps[p].step())",
            "pass",
            "steps an optimizer from a hook",
        ),
    ],
)
def test_what_a_hook_may_do(tmp_path: Path, made: str, step: str, refused: str) -> None:
    _, said = converted(tmp_path, SCRIPT.format(made=made, step=step))
    assert f"AD904 {refused}" in said if refused else "AD904" not in said


def test_what_a_hook_reads_of_a_model_is_inside_of_its_wrapper(tmp_path: Path) -> None:
    made = "model.weight.register_hook(lambda g: g + 0.1 * model.weight.detach())"
    code, _ = converted(tmp_path, SCRIPT.format(made=made, step="pass"))
    assert "lambda g: g + 0.1 * model.module.weight.detach()" in code
