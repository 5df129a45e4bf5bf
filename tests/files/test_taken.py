"""What a statement of rank 0 takes out of a list that every rank has: the others take it, too."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

SCRIPT = """\
import heapq
import os
from collections import deque
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
kept = {made}
for epoch in range(4):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    path = f"epoch{{epoch}}.pt"
    torch.save(model.state_dict(), path)
    {put}
    while len(kept) > 2:
        {take}
"""


@pytest.mark.parametrize(
    ("made", "put", "take", "taken", "guarded"),
    [
        ("[]", "kept.append(path)", "os.remove(kept.pop(0))", "kept.pop(0)", "os.remove(taken)"),
        ("deque()", "kept.append(path)", "Path(kept.popleft()).unlink()", "kept.popleft()", "Path(taken).unlink()"),
        (
            "[]",
            "heapq.heappush(kept, (epoch, path))",
            "os.remove(heapq.heappop(kept)[1])",
            "heapq.heappop(kept)[1]",
            "os.remove(taken)",
        ),
    ],
)
def test_taken_by_all_ranks(tmp_path: Path, made: str, put: str, take: str, taken: str, guarded: str) -> None:
    text, _ = conftest.converted(tmp_path, SCRIPT.format(made=made, put=put, take=take))
    assert f"        taken = {taken}\n        if dist.get_rank() == 0:\n            {guarded}\n" in text


def test_what_is_guarded_already(tmp_path: Path) -> None:
    """A name that the script itself takes out is left where it is."""
    text, _ = conftest.converted(
        tmp_path,
        SCRIPT.format(made="[]", put="kept.append(path)", take="old = kept.pop(0)\n        os.remove(old)"),
    )
    assert "        old = kept.pop(0)\n        if dist.get_rank() == 0:\n            os.remove(old)\n" in text


@pytest.mark.parametrize(
    "take",
    [
        "kept and os.remove(kept.pop(0))",
        "os.remove(kept.pop(0) if kept else path)",
        "os.replace(kept.pop(0), kept[-1])",
    ],
)
def test_what_cannot_be_taken_ahead(tmp_path: Path, take: str) -> None:
    """It may take nothing, or what else the statement reads of the list would be another."""
    text, said = conftest.converted(tmp_path, SCRIPT.format(made="[]", put="kept.append(path)", take=take))
    assert "taken" not in text and "takes something out on rank 0 alone" in said


def test_one_within_another(tmp_path: Path) -> None:
    put, take = "kept.append(path)", "os.remove(kept.pop(order.pop()))"
    script = SCRIPT.format(made="[]\norder = [0] * 9", put=put, take=take)
    text, _ = conftest.converted(tmp_path, script)
    assert "        taken = kept.pop(order.pop())\n" in text and text.count("order.pop()") == 1
