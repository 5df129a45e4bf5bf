"""Samples, in whatever way scripts choose and compute them."""

from __future__ import annotations

from pathlib import Path

import pytest

from autodist.config import Config
from autodist.convert import convert
from autodist.project import Project
from autodist.verify import verify
from autodist.verify.launch import Zygote

SCRIPT = """\
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


{made}


model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""

TENSORS_OF_INDICES = """\
class Chunks:
    def __iter__(self):
        yield from torch.randperm(43).split(8)

    def __len__(self):
        return 6


loader = DataLoader(TensorDataset(torch.randn(43, 4), torch.randn(43, 1)), batch_sampler=Chunks())"""

UNNAMED_FILES = """\
with tempfile.TemporaryFile() as file:
    torch.save(torch.randn(32, 4), file)
    file.seek(0)
    data = torch.load(file)
loader = DataLoader(TensorDataset(data, data[:, :1]), batch_size=8, shuffle=True)"""

SEEDED_BY_SAMPLE = """\
class Noisy(torch.utils.data.Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, index):
        np.random.seed(index)
        return torch.tensor(np.random.randn(4), dtype=torch.float32), torch.ones(1)


loader = DataLoader(Noisy(), batch_size=8, shuffle=True, num_workers=1)"""

IN_ORDER = """\
class Parts:
    \"\"\"Goes on where the last epoch has ended, through the same order again and again.\"\"\"

    def __init__(self, loader):
        self.batches = self.cycle(loader)

    def cycle(self, loader):
        while True:
            yield from loader

    def __iter__(self):
        yield from (next(self.batches) for _ in range(5))


loader = Parts(DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8))"""


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(TENSORS_OF_INDICES, id="tensors of indices"),
        pytest.param(UNNAMED_FILES, id="unnamed files"),
        pytest.param(SEEDED_BY_SAMPLE, id="a seed for each sample"),
        pytest.param(IN_ORDER, id="a pass that is broken off"),
    ],
)
def test_samples(tmp_path: Path, zygote: Zygote | None, made: str) -> None:
    before, after = tmp_path / "train.py", tmp_path / "train_ddp.py"
    before.write_text(SCRIPT.format(made=made))
    after.write_text(convert(Project.load(before), Config()).entry.after)
    verdict = verify(before, after, [2], workdir=tmp_path, timeout=100, zygote=zygote)
    assert verdict.equal, verdict.findings
