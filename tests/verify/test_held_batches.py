"""Batches that a script fetches ahead and keeps, and parameters that a set puts in order."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from autodist.config import Config, Strategy
from autodist.convert import convert
from autodist.project import Project
from autodist.verify import Outcome, verify
from autodist.verify.launch import Zygote
from autodist.verify.probes.held_batches import HeldBatches
from autodist.verify.verdict import Verdict

HEAD = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, SubsetRandomSampler, TensorDataset

torch.manual_seed(0)
x, y, other = torch.randn(120, 6), torch.randint(3, (120,)), torch.randn(70, 6)
body, head = nn.Sequential(nn.Dropout(), nn.Linear(6, 5), nn.ReLU(), nn.Dropout(0.2)), nn.Linear(5, 3)
model = nn.Sequential(body, head)
"""
AHEAD = """\
loader = DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for step, (rows, labels) in list(enumerate(loader)):
        loss = nn.functional.cross_entropy(model(rows), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
TWO_DOMAINS = """\
loader = DataLoader(TensorDataset(x, y), batch_size=16, sampler=SubsetRandomSampler(range(120)), drop_last=True)
others = DataLoader(TensorDataset(other), batch_size=8, sampler=SubsetRandomSampler(range(70)), drop_last=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    source, target = list(loader), list(enumerate(others))
    for i in range(min(len(source), len(target))):
        rows, labels = source[i]
        _, (unlabelled,) = target[i]
        loss = nn.functional.cross_entropy(model(rows), labels) + model(unlabelled).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
KEPT_FOR_EVALUATION = """\
train = list(DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True, drop_last=True))
held_out = list(DataLoader(TensorDataset(x[:40], y[:40]), batch_size=8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    model.train()
    for rows, labels in train:
        loss = nn.functional.cross_entropy(model(rows), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        print(sum((model(rows).argmax(1) == labels).sum().item() for rows, labels in held_out) / 40)
"""
SETS = """\
loader = DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True)
slow = set(head.parameters())
rest = list(set(model.parameters()) - slow)
optimizer = torch.optim.Adam([{"params": rest}, {"params": list(slow), "lr": 1e-4}], lr=0.01)
for epoch in range(2):
    for rows, labels in loader:
        loss = nn.functional.cross_entropy(model(rows), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.save(optimizer.state_dict(), "optimizer.pt")
    print(f"pid: {__import__('os').getpid()}")
"""


def verified(source: str, folder: Path, zygote: Zygote | None, replaced: tuple[str, str] = ("", "")) -> Verdict:
    """The verdict about the conversion of a script, with one mistake in it."""
    before, after = folder / "before.py", folder / "after.py"
    before.write_text(HEAD + source)
    converted = convert(Project.load(before), Config(Strategy.DDP)).entry.after
    assert replaced[0] in converted
    after.write_text(converted.replace(*replaced))
    return verify(before, after, [2], workdir=folder, timeout=100, zygote=zygote)


@pytest.mark.parametrize("source", [AHEAD, TWO_DOMAINS, KEPT_FOR_EVALUATION, SETS])
def test_they_are_equal(source: str, tmp_path: Path, zygote: Zygote | None) -> None:
    verdict = verified(source, tmp_path, zygote)
    assert verdict.equal, verdict.findings
    assert not [note for note in verdict.notes if note.kind == "held-still"]


def test_a_loader_that_is_not_divided_is_found(tmp_path: Path, zygote: Zygote | None) -> None:
    verdict = verified(
        KEPT_FOR_EVALUATION,
        tmp_path,
        zygote,
        ("sampler=DistributedSampler(", "sampler=torch.utils.data.RandomSampler("),
    )
    assert verdict.outcome is Outcome.DIFFERS, verdict.findings


def test_what_is_held() -> None:
    batches, pass_over = [(torch.zeros(4, 2), torch.zeros(4)) for _ in range(4)], HeldBatches()
    for batch in batches:
        pass_over.add(batch, 4)
    assert pass_over.alive and pass_over.has([batches[1][0].view(8)]) and not pass_over.has([torch.zeros(4, 2)])
    assert list(pass_over.sizes) == [4]
    del batches[1:3], batch
    assert not pass_over.alive
