"""Buffers that steps count and average in: a wrapped model goes on with those of rank 0, so all ranks need the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted, differences

from autodist.verify.launch import Zygote

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x):
        return self.layer(x)

    @torch.no_grad()
    def keep(self, out, y):
        {kept}


torch.manual_seed(0)
data = TensorDataset(torch.randn(64, 4), torch.arange(64) % 3)
loader = DataLoader(data, batch_size=8, shuffle=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        out = model(x)
        loss = nn.functional.cross_entropy(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.keep(out, y)
    print(epoch, loss.item(), model.seen.tolist())
{saved}
"""
SAVED = "torch.save(model.state_dict(), 'net.pt')"
KEPT = {
    "self.seen += torch.bincount(y, minlength=3).float()": "reduce_sum(torch.bincount(y, minlength=3)",
    "self.seen = 0.9 * self.seen + 0.1 * out.mean(0)": "reduce_mean(0.1 * out.mean(0))",
    "self.seen.mul_(0.9).add_(0.1 * out.mean(0))": "reduce_mean(0.1 * out.mean(0))",
    "self.seen[0] += (y == 0).sum()": "reduce_sum((y == 0).sum())",
}


@pytest.mark.parametrize("saved", [SAVED, ""])
@pytest.mark.parametrize(("kept", "wanted"), KEPT.items())
def test_all_ranks_keep_what_all_samples_give(kept: str, wanted: str, saved: str, tmp_path: Path) -> None:
    after, said = converted(tmp_path, SCRIPT.format(kept=kept, saved=saved))
    assert wanted in after and "reduce_sum(model" not in after and "reduce_mean(model" not in after
    assert "reports" not in said


@pytest.mark.parametrize("kept", [*KEPT][:2])
def test_training_and_what_is_saved_are_the_same(kept: str, tmp_path: Path, zygote: Zygote | None) -> None:
    assert differences(tmp_path, zygote, SCRIPT.format(kept=kept, saved=SAVED)) is None


def test_a_buffer_of_a_loss_is_reduced_where_it_is_shown(tmp_path: Path) -> None:
    """What has no parameters is not wrapped, and each rank keeps its own."""
    text = SCRIPT.format(kept="self.seen += torch.bincount(y, minlength=3).float()", saved="")
    text = text.replace("class Net", "class Tally").replace("        self.layer = nn.Linear(4, 3)\n", "")
    text = text.replace("model = Net()", "model, tally = nn.Linear(4, 3), Tally()").replace("model.keep", "tally.keep")
    after, _ = converted(tmp_path, text.replace("model.seen", "tally.seen"))
    assert "reduce_sum(tally.seen.tolist())" in after
