"""Batches that a script puts together itself: what is shared out, what is warned of and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from autodist.config import Config, Strategy
from autodist.convert import convert
from autodist.project import Project

START = """
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

x, y = torch.randn(96, 6), torch.randint(0, 2, (96,))
"""
STEP = """
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def converted(tmp_path: Path, body: str) -> tuple[str, str]:
    """The new text of a script, and what is said about it."""
    path = tmp_path / "train.py"
    path.write_text(START + body + STEP)
    result = convert(Project.load(path), Config(strategy=Strategy.DDP))
    return result.entry.after, "\n".join(f"{d.code} {d.message}" for d in result.diagnostics)


TEXT = """
text = torch.randint(0, 10, (400,))
emb, rnn, head = nn.Embedding(10, 8), nn.RNN(8, 16), nn.Linear(16, 10)
optimizer = torch.optim.SGD([*emb.parameters(), *rnn.parameters(), *head.parameters()], lr=0.1)
now, then, h = text[:-1], text[1:], None
for i in range(0, 320, 32):
    out, h = rnn(emb(now[i : i + 32]).unsqueeze(1), h)
    h = h.detach()
    loss = F.cross_entropy(head(out.squeeze(1)), then[i : i + 32])
"""
NET = """
net = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 2))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(20):
    idx = torch.randint(0, 96, (32,))
"""


def test_text_that_is_read_on_and_on_is_refused(tmp_path: Path) -> None:
    """Its slices are steps in time, though no slice is shifted against another one of the same name."""
    _, said = converted(tmp_path, TEXT)
    assert "AD902" in said


@pytest.mark.parametrize(
    "lines",
    [
        "each = F.cross_entropy(net(x[idx]), y[idx], reduction='none'); loss = each.topk(16)[0].mean()",
        "batch = x[idx]; batch = (batch - batch.mean(0)) / batch.std(0); loss = F.cross_entropy(net(batch), y[idx])",
    ],
)
def test_what_depends_on_the_other_samples_is_named(tmp_path: Path, lines: str) -> None:
    """The hardest samples of a share are not those of the batch, and its mean is not the batch's."""
    _, said = converted(tmp_path, NET + "    " + lines)
    assert "AD602" in said


def test_indices_beside_a_column(tmp_path: Path) -> None:
    """`pairs[idx, 0]` picks samples as `pairs[idx]` does."""
    text, _ = converted(
        tmp_path,
        """
pairs = np.random.randint(0, 50, size=(200, 2))
emb = nn.Embedding(50, 8)
optimizer = torch.optim.SGD(emb.parameters(), lr=0.1)
for step in range(20):
    idx = np.random.choice(len(pairs), 16)
    u, v = torch.tensor(pairs[idx, 0]), torch.tensor(pairs[idx, 1])
    far = torch.tensor(np.random.randint(0, 50, size=16))
    loss = -(F.logsigmoid((emb(u) * emb(v)).sum(1)) + F.logsigmoid(-(emb(u) * emb(far)).sum(1))).mean()
""",
    )
    assert "np.random.choice(len(pairs), 16)[dist.get_rank() :: dist.get_world_size()]" in text


def test_an_unknown_index_is_not_taken_for_a_step_in_time(tmp_path: Path) -> None:
    """`x[idx]` with indices that a library cut: not columns of x, of which one row is read at a time."""
    text, _ = converted(
        tmp_path,
        """
net = nn.Linear(6, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for idx in np.array_split(np.random.permutation(96), 6):
    loss = F.cross_entropy(net(x[idx]), y[idx])
""",
    )
    assert "[:, rows]" not in text
