"""Samples of a batch that whole numbers pick which its samples hold: of those of all ranks, not of a rank's own."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted, differences
from programs import CATALOG, bound, traced

from autodist.placement import PerRank, Placement, Shard
from autodist.placement.along import BY_NUMBER
from autodist.placement.propagate import propagate
from autodist.program import BATCH
from autodist.verify.launch import Zygote

SCRIPT = """\
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

torch.manual_seed(0)
x = torch.randn(64, 6)
y = {labels}
loader = DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True)
model = nn.Linear(6, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for a, b in loader:
        out = model(a)
        {step}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item())
"""
NUMBERS = "torch.randint(0, 4, (64,))"


def script(step: str, labels: str = NUMBERS) -> str:
    return SCRIPT.replace("{labels}", labels).replace("{step}", step.replace("\n", "\n        "))


PLAIN = "F.cross_entropy(out, b)"
PICKED = [
    f"loss = {PLAIN} + out[b].pow(2).mean()",
    f"loss = {PLAIN} + out[b, :].pow(2).mean()",
    f"loss = {PLAIN} + out.index_select(0, b).pow(2).mean()",
    f"loss = {PLAIN} + torch.gather(out, 0, b[:, None]).pow(2).mean()",
    f"loss = {PLAIN} + out[out.argmax(1)].pow(2).mean()",
    f"loss = {PLAIN} + out[(out[:, 0] > 0).long()].pow(2).mean()",
]


@pytest.mark.parametrize("step", PICKED)
def test_a_loss_is_of_those_of_all_ranks(tmp_path: Path, zygote: Zygote | None, step: str) -> None:
    after, told = converted(tmp_path, script(step))
    assert "RowsOfAllRanks.apply(" in after and "AD602" not in told
    assert differences(tmp_path, zygote, script(step)) is None


@pytest.mark.parametrize("shown", ["a[b].mean()", "a.numpy()[b.numpy()].mean()", "a[b.long()].sum()"])
def test_what_is_shown_is_of_those_of_all_ranks(tmp_path: Path, zygote: Zygote | None, shown: str) -> None:
    assert differences(tmp_path, zygote, script(f"loss = {PLAIN}\nprint(float({shown}))")) is None


MASKS = {
    "torch.rand(64) > 0.5": "loss = out[b].pow(2).sum() / 8",
    "torch.randint(0, 2, (64,)).bool()": "loss = out[b].pow(2).sum() / 8",
    "torch.from_numpy(np.random.randint(0, 2, 64).astype(bool))": "loss = out[b].pow(2).sum() / 8",
    NUMBERS: f"loss = {PLAIN} + out[b > 1].pow(2).sum() / 8",
}


@pytest.mark.parametrize(("labels", "step"), MASKS.items())
def test_a_mask_keeps_a_rank_s_own(tmp_path: Path, zygote: Zygote | None, labels: str, step: str) -> None:
    after, told = converted(tmp_path, script(step, labels))
    assert "RowsOfAllRanks" not in after and "AD602" not in told
    assert differences(tmp_path, zygote, script(step, labels)) is None


def lying(data: str, step: str) -> Placement | None:
    """How `result` lies after a step on what a loader of some data gives."""
    begin = f"import torch\nimport torch.nn.functional as F\nfrom torch.utils.data import DataLoader\n{data}\n"
    program = traced(f"{begin}for x, y in DataLoader(data, batch_size=8):\n    out = x * 2\n    {step}\n    result\n")
    placements = propagate(program, lambda op: Shard(0), catalog=CATALOG)
    assert any(each.name == BATCH or each.name.startswith("loader") for each in program.operations)
    return placements.value(bound(program, "result"))


UNKNOWN = "from somewhere import data"
TOLD = ["F.cross_entropy(out, y)", "F.nll_loss(out, y.cpu())", "out.gather(1, y[:, None])", "F.one_hot(y, 4)"]


@pytest.mark.parametrize("use", TOLD)
def test_what_is_used_for_labels_is_numbers(use: str) -> None:
    found = lying(UNKNOWN, f"{use}; result = out[y]")
    assert isinstance(found, PerRank) and found.reason == BY_NUMBER


@pytest.mark.parametrize(
    "step", ["result = out[y]", "F.nll_loss(out, y.long()); result = out[y]", "result = out[y.bool()]"]
)
def test_what_is_not_known_is_taken_for_a_mask(step: str) -> None:
    assert isinstance(lying(UNKNOWN, step), Shard)


def test_places_that_a_rank_counts_are_its_own() -> None:
    """The images of boxes, by the numbers that a function has given them which lays samples together."""
    found = lying(UNKNOWN, "result = out[torch.arange(len(x)), y]; F.cross_entropy(out, y)")
    assert isinstance(found, Shard)
