"""Metrics that add up over the ranks, where every rank evaluates all samples."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

SCRIPT = """\
import torch
import torchmetrics
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randint(0, 3, (64,))), batch_size=8, shuffle=True)
test_loader = DataLoader(TensorDataset(torch.randn(30, 4), torch.randint(0, 3, (30,))), batch_size=8)
model = nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
metric = {metric}
for epoch in range(2):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        for x, y in test_loader:
            {update}
    print(metric.compute())
    metric.reset()
"""
UPDATE = "metric.update(model(x), y)"


@pytest.mark.parametrize(
    ("metric", "update", "made"),
    [
        ("torchmetrics.ConfusionMatrix(num_classes=3)", UPDATE, "(num_classes=3, sync_on_compute=False)"),
        (
            "torchmetrics.classification.MulticlassConfusionMatrix(3)",
            "metric(model(x), y)",
            "(3, sync_on_compute=False)",
        ),
        ("torchmetrics.SumMetric()", "metric.update(len(y))", "(sync_on_compute=False)"),
        ("torchmetrics.MetricCollection([torchmetrics.StatScores()])", UPDATE, "StatScores(sync_on_compute=False)"),
        ("torchmetrics.Accuracy(num_classes=3)", UPDATE, None),
        ("torchmetrics.ConfusionMatrix(num_classes=3, sync_on_compute=True)", UPDATE, None),
    ],
)
def test_of_whole_data(tmp_path: Path, metric: str, update: str, made: str | None) -> None:
    after, report = conftest.converted(tmp_path, SCRIPT.format(metric=metric, update=update))
    assert ("AD609" in report) == (made is not None)
    assert (made or metric) in after
