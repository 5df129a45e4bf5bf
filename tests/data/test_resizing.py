"""Data sets whose length changes after a loader for them is made."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset


class Pairs(Dataset):
    def __init__(self, positive):
        self.positive = positive
        self.samples = list(positive)

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return self.samples[index]

    def bind(self, more):
        self.samples = self.positive + more

    def extend(self, more):
        self.samples.extend(more)

    def add(self, more):
        self.samples += more

    def keep(self, more):
        self.kept = more


data = Pairs([(torch.randn(4), torch.randn(1)) for _ in range(64)])
half = Subset(data, range(32))
{loader}
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    {each}
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
"""
LOADER = "loader = DataLoader(data, batch_size=8, shuffle=True)"
MORE = "[(torch.zeros(4), torch.zeros(1))]"


@pytest.mark.parametrize(
    ("loader", "each", "resized"),
    [
        (LOADER, f"data.bind({MORE})", True),
        (LOADER, f"data.extend({MORE})", True),
        (LOADER, f"loader.dataset.add({MORE})", True),
        (LOADER, f"data.samples = data.samples + {MORE}", True),
        (LOADER.replace("data,", "half,"), "half.indices = range(40)", True),
        (LOADER, f"data.keep({MORE})", False),
        (f"data.extend({MORE})\n{LOADER}", "pass", False),
        ("", f"data.extend({MORE})\n    {LOADER}", False),
    ],
)
def test_the_sampler_follows_the_length(tmp_path: Path, loader: str, each: str, resized: bool) -> None:
    code, said = converted(tmp_path, SCRIPT.format(loader=loader, each=each))
    sampler = "ResizingSampler" if resized else "DistributedSampler"
    assert f"sampler={sampler}(" in code and ("class ResizingSampler(DistributedSampler):" in code) == resized
    assert "loader.sampler.set_epoch(epoch)" in code and "AD202 the sampler cannot" not in said
    assert converted(tmp_path, code)[0] == code
