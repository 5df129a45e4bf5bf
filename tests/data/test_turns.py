"""Data sets that hand out one sample after the other, whatever number they are asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

SCRIPT = """\
import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Windows(Dataset):
    def __init__(self, rows):
        self.rows, self.current, self.calls, self.kept = rows, 0, 0, [None] * 4

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
{body}

    def step(self):
        self.current += 1
        if self.current == len(self.rows):
            self.current = 0


loader = DataLoader(Windows(torch.randn(64, 4)), batch_size=8)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for rows in loader:
        loss = model(rows).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("body", "refused"),
    [
        (["row = self.rows[self.current]", "self.step()", "return row"], True),
        (["self.current = (self.current + 1) % 64", "return self.rows[self.current]"], True),
        (["if self.calls:", "    return self.rows[index]", "row = self.rows[self.current :][0]", "self.step()"], True),
        (["self.calls += 1", "if self.calls % 9 == 0:", "    print(self.calls)", "return self.rows[index]"], False),
        (["self.kept[self.current % 4] = index", "self.current += 1", "return self.rows[index]"], False),
        (["self.step()", "return random.choice(self.rows)"], False),
    ],
)
def test_a_number_of_its_own_that_goes_on_with_each_sample(tmp_path: Path, body: list[str], refused: bool) -> None:
    """Each rank would begin at the first sample, by itself or by a method, for all or for some of the samples."""
    _, said = converted(tmp_path, SCRIPT.format(body="\n".join(" " * 8 + line for line in body)))
    assert ("Windows takes no notice of the index it is asked for" in said) == refused
