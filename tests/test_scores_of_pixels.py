"""Losses and scores of pictures whose every pixel has a label: masked means, intersections over unions."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

SCRIPT = """\
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(64, 3, 8, 8), torch.randint(4, (64, 8, 8)))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = nn.Conv2d(3, 4, 3, padding=1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{functions}
for epoch in range(2):
    scores = []
    for x, y in loader:
        out = model(x)
        mask = (y != 0).float()
        loss = {loss}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        {score}
    print(np.mean(scores))
"""
MASKED = '(F.cross_entropy(out, y, reduction="none") * mask).sum() / mask.sum()'
IOU = """
def iou_score(output, target):
    if torch.is_tensor(output):
        output = torch.sigmoid(output).data.cpu().numpy()
    if torch.is_tensor(target):
        target = target.data.cpu().numpy()
    both = (output > 0.5) & (target > 0.5)
    either = (output > 0.5) | (target > 0.5)
    return (both.sum() + 1e-5) / (either.sum() + 1e-5)
"""


@pytest.mark.parametrize(
    ("functions", "loss", "score", "expected"),
    [
        ("", MASKED, "scores.append(loss.item())", "mean_count(mask.sum())"),
        (
            "criterion = nn.CrossEntropyLoss(reduction='none')",
            MASKED.replace("F.cross_entropy", "criterion").replace(', reduction="none"', ""),
            "scores.append(loss.item())",
            "mean_count(mask.sum())",
        ),
        (IOU, "F.cross_entropy(out, y)", "scores.append(iou_score(out[:, 0], y))", "gather_rows(y))"),
    ],
)
def test_scores_of_pixels(tmp_path: Path, functions: str, loss: str, score: str, expected: str) -> None:
    """Losses have as many axes as the labels, so that masks weigh them one by one; a ratio of counts is computed from
    the rows of all ranks."""
    code, said = converted(tmp_path, SCRIPT.format(functions=functions, loss=loss, score=score))
    assert expected in code, said
    assert "AD906" not in said and "samples alone" not in said
