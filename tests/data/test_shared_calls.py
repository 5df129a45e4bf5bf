"""One call that makes the loaders for training and for evaluation, and what tells them apart."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def loader_of(rows, batch_size=4, shuffle=True, drop_last=True, num_workers=0):
    data = TensorDataset(torch.randn(rows, 4), torch.randn(rows, 1))
    return DataLoader({given})


loader = loader_of(64, batch_size=8, shuffle=True, drop_last=True)
val_loader = loader_of(32, batch_size=8, shuffle=False, drop_last=False)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        print(sum(nn.functional.mse_loss(model(x), y).item() for x, y in val_loader))
"""


@pytest.mark.parametrize(
    ("given", "switch"),
    [
        ("data, batch_size=batch_size, shuffle=shuffle, drop_last=drop_last", "shuffle"),
        ("data, batch_size, shuffle, num_workers=num_workers", "shuffle"),
        ("data, batch_size=batch_size, shuffle=True", "drop_last"),
    ],
)
def test_what_shuffles_trains(tmp_path: Path, given: str, switch: str) -> None:
    after, _ = conftest.converted(tmp_path, SCRIPT.replace("{given}", given))
    assert f"if {switch} else None" in after
    assert ("torch.Generator()" in after) == (switch != "shuffle")


ONE = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

{before}loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), {options}shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("before", "options", "refused"),
    [
        ("", "", True),
        ("", "batch_size=1, ", True),
        ("size = 1\n", "batch_size=size, ", True),
        ("", "batch_size=8, ", False),
    ],
)
def test_batches_of_one_sample(tmp_path: Path, before: str, options: str, refused: bool) -> None:
    """The conversion could only say so when it is started."""
    _, said = conftest.converted(tmp_path, ONE.replace("{before}", before).replace("{options}", options))
    assert ("batches of one sample cannot be shared out" in said) == refused


MADE_IN_TURN = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

tasks = [(torch.randn(64, 4), torch.randn(64, 1)) for _ in range(2)]
for t in tasks:
    print(t[0].shape)
loaders = [DataLoader(TensorDataset(*{task}), batch_size=8, shuffle=True) for t in tasks]
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for loader in loaders:
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(("task", "inside"), [("t", True), ("tasks[0]", False)])
def test_data_sets_that_a_comprehension_makes(tmp_path: Path, task: str, inside: bool) -> None:
    """Each loader has its own, also where another loop has left a variable of that name."""
    after, _ = conftest.converted(tmp_path, MADE_IN_TURN.replace("{task}", task))
    assert (f"(train_set := TensorDataset(*{task}))" in after) is inside
    assert (f"\ntrain_set = TensorDataset(*{task})\n" in after) is not inside
