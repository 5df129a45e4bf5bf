"""Draws that cannot be put together for the whole batch are held still, and faults are found all the same."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import pytest
import torch

from autodist.verify import Outcome, verify
from autodist.verify.launch import Zygote
from autodist.verify.probes.draws import varying_dimensions
from autodist.verify.probes.still import spread, still_on_input
from verify.conftest import edit

BEFORE = """\
import random

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import DataLoader


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 8)
        self.rnn = nn.LSTM(8, 4, num_layers=2, dropout=0.5, batch_first=True)
        self.drop = nn.Dropout(0.3)
        self.outer = nn.Linear(8, 3)
        self.last = nn.Linear(4, 3)

    def forward(self, x, lengths):
        if PACKED:
            packed = pack_padded_sequence(self.inner(x), lengths, batch_first=True, enforce_sorted=False)
            return self.last(self.rnn(packed)[1][0][-1])
        keep = (torch.arange(x.shape[1]) < lengths[:, None]).unsqueeze(-1)
        return (self.outer(self.drop(torch.relu(self.inner(x)))) * keep).sum(1)


def collate(samples):
    rows, labels = zip(*samples)
    return pad_sequence(rows, batch_first=True), torch.tensor([len(row) for row in rows]), torch.tensor(labels)


torch.manual_seed(0)
samples = [(torch.randn(2 + 7 * i % 5, 6), i % 3) for i in range(48)]
loader = DataLoader(samples, batch_size=8, shuffle=True, collate_fn=collate)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, lengths, y in loader:
STEP
        loss = nn.functional.cross_entropy(model(x, lengths), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
AFTER = [
    ("import torch\n", "import torch\nimport torch.distributed as dist\n"),
    (
        "from torch.utils.data import DataLoader\n",
        "from torch.nn.parallel import DistributedDataParallel as DDP\n"
        "from torch.utils.data import DataLoader\nfrom torch.utils.data.distributed import DistributedSampler\n",
    ),
    ("torch.manual_seed(0)\n", 'dist.init_process_group("gloo")\ntorch.manual_seed(0)\n'),
    ("batch_size=8, shuffle=True,", "batch_size=4, sampler=DistributedSampler(samples),"),
    ("model = Net()\n", "model = DDP(Net(), find_unused_parameters=True)\n"),
    ("    for x, lengths", "    loader.sampler.set_epoch(epoch)\n    for x, lengths"),
]
STEPS = {
    "padding": "",
    "packed": "",
    "rows of a permutation": "for row in x:\n    row[:, torch.randperm(6)[:2]] = 0",
    "numpy, one number for a row": "for row in x:\n    row[:, np.random.randint(6)] = 0",
    "numpy, several for a row": "for row in x:\n    row[:, np.random.choice(6, 2, replace=False)] = 0",
    "python, one number for a row": "for row in x:\n    row[:, random.randrange(6)] = 0",
    "more noise than rows": "x = x + torch.randn(2 * len(x) + 1)[: len(x), None, None]",
}


def written(folder: Path, name: str) -> tuple[Path, Path]:
    """A script and its right conversion."""
    text = BEFORE.replace("PACKED", str(name == "packed")).replace("STEP\n", indent(f"{STEPS[name]}\n", " " * 8))
    before, after = folder / "before.py", folder / "after.py"
    before.write_text(text)
    after.write_text(text)
    for old, new in AFTER:
        edit(after, old, new)
    return before, after


@pytest.mark.parametrize("name", STEPS)
def test_right_conversions_are_equal(tmp_path: Path, zygote: Zygote | None, name: str) -> None:
    verdict = verify(*written(tmp_path, name), [2], workdir=tmp_path, timeout=100, zygote=zygote)
    assert verdict.equal, verdict.findings
    assert [note.kind for note in verdict.notes].count("held-still") == 1


def test_faults_are_found_in_held_scripts(tmp_path: Path, zygote: Zygote | None) -> None:
    before, after = written(tmp_path, "padding")
    edit(after, "loss.backward()", "(2 * loss).backward()")
    verdict = verify(before, after, [2], workdir=tmp_path, timeout=100, zygote=zygote)
    assert verdict.outcome is not Outcome.EQUAL
    assert any(note.kind == "held-still" for note in verdict.notes)
    assert {finding.kind for finding in verdict.findings} >= {"loss", "gradient"}


def test_draws_of_ranks_that_are_apart_are_not_held(tmp_path: Path, zygote: Zygote | None) -> None:
    before, after = written(tmp_path, "rows of a permutation")
    edit(after, "    for row in x", "    if dist.get_rank() == 0:\n            torch.rand(3)\n        for row in x")
    verdict = verify(before, after, [2], workdir=tmp_path, timeout=100, zygote=zygote)
    assert verdict.outcome is not Outcome.EQUAL
    assert not any(note.kind == "held-still" and "randperm" in note.message for note in verdict.notes)


def test_still_values() -> None:
    noise = spread(torch.randn, [4, 3, 2], varying=[0])
    assert noise.shape == (4, 3, 2)
    assert all(torch.equal(row, noise[0]) for row in noise)
    values = torch.rand(4, 3)
    assert torch.equal(still_on_input("dropout", values, (0.5, True), {}), values)
    assert torch.equal(still_on_input("bernoulli", torch.tensor([0.2, 0.7]), (), {}), torch.tensor([0.0, 1.0]))
    assert torch.equal(still_on_input("multinomial", torch.tensor([[0.1, 0.9]]), (1,), {}), torch.tensor([[1]]))
    dropped, mask = still_on_input("native_dropout", values, (0.5, True), {})
    assert torch.equal(dropped, values) and mask.all()


def test_varying_dimensions() -> None:
    assert varying_dimensions([8, 11, 3], [[4, 10, 3], [4, 11, 3]]) == [0, 1]
    assert varying_dimensions([8], [[4, 2], [4, 2]]) == [0]
