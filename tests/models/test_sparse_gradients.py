"""Embeddings with sparse gradients: gloo adds them up, NCCL and FSDP do not."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

from autodist.verify import verify
from autodist.verify.launch import Zygote

DEVICE = 'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")'
SCRIPT = f"""\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
{DEVICE}


class SkipGram(nn.Module):
    def __init__(self):
        super().__init__()
        self.u = nn.Embedding(50, 8, sparse=True)
        self.v = nn.Embedding(50, 8, sparse=True)

    def forward(self, words, contexts):
        return (self.u(words) * self.v(contexts)).sum(1)


train_set = TensorDataset(torch.randint(0, 50, (64,)), torch.randint(0, 50, (64,)), torch.randint(0, 2, (64,)).float())
loader = DataLoader(train_set, batch_size=8, shuffle=True)
model = SkipGram().to(device)
optimizer = torch.optim.SparseAdam(model.parameters(), lr=0.1)
criterion = nn.BCEWithLogitsLoss()
for words, contexts, y in loader:
    loss = criterion(model(words.to(device), contexts.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("changes", "warned"), [({}, True), ({", sparse=True": ""}, False), ({DEVICE: "", ".to(device)": ""}, False)]
)
def test_gpus_are_warned_of(tmp_path: Path, changes: dict[str, str], warned: bool) -> None:
    """The first step would fail on them: "allreduce_sparse is only available in the NCCL experimental branch"."""
    script = SCRIPT
    for old, new in changes.items():
        script = script.replace(old, new)
    code, said = converted(tmp_path, script)
    assert "DDP(SkipGram()" in code
    assert ("which NCCL cannot add up" in said) is warned


def test_gloo_adds_them_up(tmp_path: Path, zygote: Zygote | None) -> None:
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    before.write_text(SCRIPT)
    after.write_text(converted(tmp_path, SCRIPT)[0])
    verdict = verify(before, after, [2], steps=4, workdir=tmp_path, timeout=100, zygote=zygote)
    assert verdict.equal, verdict.findings
