"""Temporary files: each rank's own, or made by the rank that puts them in place of others."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import conftest
import pytest

SCRIPT = """\
import os
import shutil
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def save(state, path):
{save}


loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    save({{"model": model.state_dict(), "loss": loss.item()}}, "model.pt")
"""
CLOSED = """\
folder = os.path.dirname(path) or "."
with tempfile.NamedTemporaryFile(dir=folder, suffix=".tmp", delete=False) as file:
    temporary = file.name
try:
    torch.save(state, temporary)
    os.replace(temporary, path)
except Exception:
    if os.path.exists(temporary):
        os.remove(temporary)
    raise"""
DESCRIPTOR = """\
descriptor, temporary = tempfile.mkstemp(dir=".")
os.close(descriptor)
torch.save(state, temporary)
os.replace(temporary, path)"""
OPEN = """\
with tempfile.NamedTemporaryFile("wb", dir=".", delete=False) as file:
    torch.save(state, file)
    file.flush()
shutil.move(file.name, path)
print(path)"""
LOOKED_AT = """\
with tempfile.NamedTemporaryFile() as file:
    torch.save(state, file.name)
    print(os.path.getsize(file.name))
    torch.load(file.name)"""


def converted(folder: Path, save: str) -> str:
    return conftest.converted(folder, SCRIPT.format(save=indent(save, " " * 4)))[0]


@pytest.mark.parametrize(("save", "first"), [(CLOSED, 1), (DESCRIPTOR, 0), (OPEN, 0)])
def test_a_file_that_is_put_in_place(tmp_path: Path, save: str, first: int) -> None:
    """Rank 0 alone makes it, as it alone moves it: the others would leave theirs behind."""
    alone = indent("\n".join(save.replace("\nprint(path)", "").splitlines()[first:]), " " * 8)
    assert f"    if dist.get_rank() == 0:\n{alone}\n" in converted(tmp_path, save)


def test_a_file_that_is_only_looked_at(tmp_path: Path) -> None:
    """Each rank reads what it has written itself."""
    after = converted(tmp_path, LOOKED_AT)
    assert "        torch.save(state, file.name)\n        print(os.path.getsize(file.name))\n" in after


def test_a_file_whose_name_others_need(tmp_path: Path) -> None:
    """It stays with all ranks, whatever they leave behind."""
    after = converted(tmp_path, DESCRIPTOR + "\nreturn temporary")
    assert "    descriptor, temporary = tempfile.mkstemp" in after
