"""Types of numbers that gloo and NCCL do not send are gathered as bytes."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
found = []
for x, y in loader:
    out = model(x)
    loss = nn.functional.mse_loss(out, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    found.append(out.detach(){kind})
torch.save(torch.cat(found), "found.pt")
"""


@pytest.mark.parametrize(
    ("kind", "as_bytes"), [("", False), (".half()", False), (".to(torch.int16)", True), (".to(torch.complex64)", True)]
)
def test_gathered_rows(tmp_path: Path, kind: str, as_bytes: bool) -> None:
    """Gloo failed: invalid scalar type."""
    after = conftest.converted(tmp_path, SCRIPT.format(kind=kind))[0]
    assert "gather_rows(" in after
    assert ("# as bytes: no backend knows all types" in after) is as_bytes
