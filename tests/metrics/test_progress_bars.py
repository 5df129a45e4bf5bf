"""Bars of other libraries than tqdm that a loop goes over."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
{imports}

loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{bar}for epoch in {epochs}:
    for x, y in {batches}:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("imports", "bar", "epochs", "batches", "after"),
    [
        (
            "from rich.progress import track",
            "",
            "range(2)",
            "track(loader)",
            "track(loader, disable=dist.get_rank() != 0)",
        ),
        ("from fastprogress import progress_bar", "", "range(2)", "progress_bar(loader)", "progress_bar(loader):"),
        (
            "from fastprogress import master_bar, progress_bar",
            "bar = master_bar(range(2))\n",
            "bar",
            "progress_bar(loader, parent=bar)",
            "progress_bar(loader, parent=bar):",
        ),
    ],
)
def test_batches_come_out_of_bars(
    tmp_path: Path, imports: str, bar: str, epochs: str, batches: str, after: str
) -> None:
    text = SCRIPT.format(imports=imports, bar=bar, epochs=epochs, batches=batches)
    code, said = converted(tmp_path, text)
    assert after in code and "loader.sampler.set_epoch(epoch)" in code and "AD902" not in said


WRAPPED = """\
import torch
from {library} import {wrapper}
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(64, 16), torch.arange(64) % 10), batch_size=16, shuffle=True)
model = nn.Linear(16, 10)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    {loop}:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item())
"""


@pytest.mark.parametrize(
    ("library", "wrapper", "known"),
    [("barbar", "Bar", True), ("somelib", "Prefetcher", False), ("somelib", "prefetch", False)],
)
@pytest.mark.parametrize(
    "loop",
    [
        "for x, y in {0}(loader)",
        "for i, (x, y) in enumerate({0}(loader))",
        "batches = {0}(loader)\n    for x, y in batches",
    ],
)
def test_each_epoch_of_a_wrapped_loader_has_its_own_order(
    tmp_path: Path, library: str, wrapper: str, known: bool, loop: str
) -> None:
    text = WRAPPED.format(library=library, wrapper=wrapper, loop=loop.format(wrapper))
    code, said = converted(tmp_path, text)
    assert "loader.sampler.set_epoch(epoch)" in code
    assert "disable=" not in code and "print(reduce_mean(loss.item()))" in code
    assert ("AD602" in said) != known
