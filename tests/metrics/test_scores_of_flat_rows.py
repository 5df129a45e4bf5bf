"""Scores that a function computes from what was laid in line and joined, of shared and of whole data."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

SCRIPT = """\
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(48, 3, 6, 6)
y = (x.sum(1) > 0).long()
loader = DataLoader(TensorDataset(x[:32], y[:32]), batch_size=8, shuffle=True, drop_last=True)
test_loader = DataLoader(TensorDataset(x[32:], y[32:]), batch_size=8)
model = nn.Conv2d(3, 2, 3, padding=1)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)


def overlap(true, pred):
    return ((true == 1) & (pred == 1)).sum() / max(1, ((true == 1) | (pred == 1)).sum())


for epoch in range(2):
    trues, preds = [], []
    for data, seg in loader:
        out = model(data)
        loss = nn.functional.cross_entropy(out, seg)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        pred = out.argmax(1)
        trues.append(seg.{flat}.numpy())
        preds.append(pred.{flat}.numpy())
    trues = np.concatenate(trues)
    preds = np.concatenate(preds)
    print("train", overlap(trues, preds))
    with torch.no_grad():
        pairs = [(seg.numpy(), model(data).argmax(1).numpy()) for data, seg in test_loader]
    print("test", overlap(np.concatenate([a for a, _ in pairs]), np.concatenate([b for _, b in pairs])))
"""


@pytest.mark.parametrize("flat", ["reshape(-1)", "view(-1)", "flatten()", "ravel()"])
def test_rows_are_gathered_before(tmp_path: Path, flat: str) -> None:
    after, said = conftest.converted(tmp_path, SCRIPT.format(flat=flat))
    assert f"trues.append(gather_rows(seg).{flat}.numpy())" in after, after
    assert f"preds.append(gather_rows(pred).{flat}.numpy())" in after or "pred = gather_rows" in after, after
    assert "reports" not in said


def test_names_that_an_evaluation_binds_too(tmp_path: Path) -> None:
    """Its rows are those of all samples, and say nothing of what a rank goes on computing with."""
    text = SCRIPT.replace("trues.append(seg.{flat}.numpy())", "kept = seg.numpy()\n        trues.append(kept.{flat})")
    evaluation = (
        "for data, seg in test_loader:\n            kept = seg.numpy()\n            print(kept.mean(), kept.max())\n"
    )
    text = text.replace("pairs = [", evaluation + "        pairs = [").format(flat="flatten()")
    after, said = conftest.converted(tmp_path, text)
    assert "trues.append(gather_rows(kept).flatten())" in after, after
    assert "reports" not in said
