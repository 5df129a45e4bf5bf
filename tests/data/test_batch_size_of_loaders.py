"""Numbers that a script computes by the batch size that it reads off a loader."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
loader = DataLoader(data, batch_size=8, shuffle=True)
test_loader = DataLoader(data, batch_size=16)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{before}
scheduler = torch.optim.lr_scheduler.{scheduler}
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        scheduler.step()
"""
CYCLE = "OneCycleLR(optimizer, 0.5, total_steps=steps)"
WHOLE = "loader.batch_size * dist.get_world_size()"


@pytest.mark.parametrize(
    ("before", "scheduler", "expected"),
    [
        ("steps = 2 * len(data) // loader.batch_size", CYCLE, f"steps = 2 * len(data) // ({WHOLE})"),
        ("size = loader.batch_size\nsteps = 2 * 64 // size", CYCLE, "2 * 64 // (size * dist.get_world_size())"),
        (
            "steps = 128 / float(loader.batch_size)",
            "LambdaLR(optimizer, lambda step: 1 - step / steps)",
            f"128 / float({WHOLE})",
        ),
        (
            "optimizer.param_groups[0]['lr'] = 0.1 * loader.batch_size / 256",
            "StepLR(optimizer, 10)",
            f"0.1 * ({WHOLE}) / 256",
        ),
        (
            "def steps_of(batches):\n    return 64 // batches.batch_size\n\n\n"
            "print(steps_of(test_loader))\nsteps = 2 * steps_of(loader)",
            CYCLE,
            "(dist.get_world_size() if isinstance(batches.sampler, DistributedSampler) else 1)",
        ),
    ],
)
def test_it_is_that_of_all_ranks(tmp_path: Path, before: str, scheduler: str, expected: str) -> None:
    """The schedule was as many times too long as there are ranks, in silence."""
    code, _ = converted(tmp_path, SCRIPT.format(before=before, scheduler=scheduler))
    assert expected in code, code


@pytest.mark.parametrize(
    "before",
    [
        "hidden = torch.zeros(1, loader.batch_size * 2, 4)",
        "shape = (1, loader.batch_size * 2, 4)",
        "print(64 // test_loader.batch_size)",
        "class Box:\n    def __init__(self):\n        self.steps = 64 // 8\n        self.size = self.steps * 2\n\n\n"
        "box = Box()",
    ],
)
def test_what_shapes_tensors_or_is_of_another_loader_stays(tmp_path: Path, before: str) -> None:
    code, _ = converted(tmp_path, SCRIPT.format(before=before, scheduler="StepLR(optimizer, 10)"))
    assert before in code
