"""Options of a loader that a dict holds: whether the remainder is left out is the sampler's to know, too, or ranks take
a step more than one process does."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

SCRIPT = """\
import json

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

OPTIONS
x = torch.randn(47, 4)
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), **options)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            'options = {"batch_size": 8, "shuffle": True, "drop_last": True}',
            'drop_last=options.get("drop_last", False)',
        ),
        ('options = {"batch_size": 8, "shuffle": True, "drop_last": False}', None),
        ('options = {"batch_size": 8, "shuffle": True}', None),
        ('options = json.load(open("loader.json"))', 'drop_last=options.get("drop_last", False)'),
    ],
)
def test_the_remainder_is_left_out(options: str, told: str | None, tmp_path: Path) -> None:
    text, _ = converted(tmp_path, SCRIPT.replace("OPTIONS", options))
    assert "DistributedSampler(" in text
    assert told in text if told is not None else "drop_last" not in text.replace(options, "")


KEPT = """\
class Data:
    def __init__(self, options):
        self.options = options

    def loader(self, x):
        return DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), **self.options)


data = Data({"batch_size": 8, "shuffle": True})
for fold in range(2):
    loader = data.loader(torch.randn(48, 4))
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
"""


def test_options_that_an_object_keeps_stay_as_they_are(tmp_path: Path) -> None:
    """The next fold would find half of its batch size, and no shuffling."""
    text, _ = converted(tmp_path, SCRIPT[: SCRIPT.index("OPTIONS")] + KEPT)
    assert "//=" not in text and ".pop(" not in text
    assert 'shuffle=self.options.get("shuffle", False)' in text
    assert '"batch_size": self.options["batch_size"] // dist.get_world_size(), "shuffle": False}' in text
