"""Summed losses that are divided by a count over all micro-batches of a step: the count is that of all ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

from autodist.verify import verify
from autodist.verify.launch import Zygote

SCRIPT = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
y = torch.randint(-1, 4, (64, 5))
y[y < 0] = -100
loader = DataLoader(TensorDataset(torch.randn(64, 5, 4), y), batch_size=8, shuffle=True)
model = nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def summed(x, t):
    return F.cross_entropy(model(x).flatten(0, 1), t.flatten(), ignore_index=-100, reduction="sum")


for epoch in range(2):
    batches = iter(loader)
    for _ in range(4):
        window = [next(batches) for _ in range(2)]
        {count}
        for x, t in window:
            loss = {loss}
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    {shown}
torch.save(model.state_dict(), "model.pt")
"""


@pytest.mark.parametrize("shown", ["pass", "print(n.item())", "print(loss.item(), int(n))"])
@pytest.mark.parametrize(
    ("count", "loss"),
    [
        ("n = sum((t != -100).sum() for _, t in window)", "summed(x, t) / n"),
        ("n = sum((t != -100).sum() for _, t in window).float()", "summed(x, t) / n"),
        ("n = torch.stack([(t != -100).sum() for _, t in window]).sum()", "summed(x, t) / n"),
    ],
)
def test_the_loss_is_divided_by_the_count_of_all_ranks(
    tmp_path: Path, zygote: Zygote | None, count: str, loss: str, shown: str
) -> None:
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    text = SCRIPT.format(count=count, loss=loss, shown=shown)
    before.write_text(text)
    after.write_text(converted(tmp_path, text)[0])
    verdict = verify(before, after, [2], workdir=tmp_path, timeout=100, zygote=zygote)
    assert verdict.equal, verdict.findings
