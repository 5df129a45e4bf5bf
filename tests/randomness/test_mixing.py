"""Samples of a batch that are mixed with each other: MixUp, CutMix."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

SCRIPT = """\
import timm.loss
import torch
from timm.data import Mixup
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, default_collate
from torchvision.transforms import v2

{before}
data = TensorDataset(torch.randn(64, 8), torch.randint(0, 4, (64,)))
loader = DataLoader(data, batch_size=8, shuffle=True{options})
model = nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    {step}
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
TOLD = "pairs each sample of a batch with another: a rank finds it in its own share"


@pytest.mark.parametrize(
    "step",
    [
        "x, y = mix(x, y)",
        "x, y = v2.RandomChoice([v2.CutMix(num_classes=4), mix])(x, y)",
        "x = 0.7 * x + 0.3 * x.flip(0)",
        "x = 0.7 * x + 0.3 * torch.flip(x, dims=[0])",
        "x = 0.7 * x + 0.3 * x.roll(1, 0)",
        "x = 0.7 * x + 0.3 * torch.roll(x, shifts=1, dims=0)",
        "x = x - x[[1, 0] * (len(x) // 2)]",
        "x = x - x[torch.arange(len(x) - 1, -1, -1)]",
        "after = (torch.arange(len(x)) + 1) % len(x)\n    x = x - x[after]",
        "x = x + x[list(reversed(range(len(x))))]",
    ],
)
@pytest.mark.parametrize("before", ["mix = v2.MixUp(num_classes=4)", "mix = Mixup(num_classes=4)"])
def test_a_partner_at_a_fixed_place_in_the_batch(tmp_path: Path, before: str, step: str) -> None:
    before = before if "mix" in step else ""
    _, said = converted(tmp_path, SCRIPT.format(before=before, step=step, options=""))
    assert said.count("AD602") == 1 and ("mix(" not in step or TOLD in said)


def test_a_batch_that_is_mixed_when_it_is_collated(tmp_path: Path) -> None:
    before = "mix = v2.MixUp(num_classes=4)\n\n\ndef collate(batch):\n    return mix(*default_collate(batch))\n\n"
    _, said = converted(tmp_path, SCRIPT.format(before=before, step="", options=", collate_fn=collate"))
    assert TOLD in said


@pytest.mark.parametrize(
    "step",
    [
        "x = 0.7 * x + 0.3 * x[torch.randperm(len(x))]",  # drawn anew: any partner is as likely
        "x = x.flip(1)",
        "x = torch.roll(x, 2, 1)",
        "print(y.flip(0)[0])",
        "x = torch.stack([row.flip(0) for row in x])",
        "x = torch.stack([torch.roll(x[i], 1, 0) for i in range(len(x))])",
        "x = torch.stack([row.softmax(0) if row.sum() > 0 else row for row in x])",
        "x = x + x[torch.arange(len(x)), 1].unsqueeze(1)",
        "x = x + x.reshape(-1)[torch.arange(len(x)) * 8].unsqueeze(1)",
    ],
)
def test_partners_that_are_drawn_and_samples_that_are_turned_themselves(tmp_path: Path, step: str) -> None:
    _, said = converted(tmp_path, SCRIPT.format(before="", step=step, options=""))
    assert TOLD not in said and "AD602" not in said


@pytest.mark.parametrize("sample", ["x[0]", "x[-1]", "x[-1].unsqueeze(0)"])
def test_one_sample_that_all_are_compared_with(tmp_path: Path, sample: str) -> None:
    net = f"class Net(nn.Linear):\n    def forward(self, x):\n        return super().forward(x - {sample})\n\n"
    text = SCRIPT.format(before=net, step="", options="").replace("model = nn.Linear(8, 4)", "model = Net(8, 4)")
    said = converted(tmp_path, text)[1]
    assert (
        f"AD602 {sample.partition('.')[0]}: it takes samples by their places" in said
        or f"AD906 x - {sample} lets each" in said
    )


@pytest.mark.parametrize("loss", ["LabelSmoothingCrossEntropy(0.1)", "BinaryCrossEntropy()"])
def test_losses_of_timm_are_means_over_samples(tmp_path: Path, loss: str) -> None:
    text = SCRIPT.format(before=f"criterion = timm.loss.{loss}", step="", options="")
    code, said = converted(tmp_path, text.replace("nn.functional.cross_entropy(", "criterion("))
    assert "AD602" not in said and "DDP(nn.Linear" in code


@pytest.mark.parametrize(("method", "told"), [("", True), (", method='dopri5'", True), (", method='rk4'", False)])
def test_a_solver_whose_steps_go_by_the_whole_batch(tmp_path: Path, method: str, told: bool) -> None:
    before = "from torchdiffeq import odeint\n"
    step = f"x = odeint(lambda t, z: -z, x, torch.tensor([0.0, 1.0]){method})[1]"
    assert (
        "AD602 chooses its steps" in converted(tmp_path, SCRIPT.format(before=before, step=step, options=""))[1]
    ) == told
