"""How many axes something has, of which the sizes are unpacked: `n, t, c = x.shape`"""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted, differences
from programs import CATALOG, bound, traced

from autodist.placement import Placement, Shard
from autodist.placement.lattice import is_guessed
from autodist.placement.propagate import propagate
from autodist.verify.launch import Zygote

HEAD = """\
import torch
from helpers import Texts
from torch.utils.data import DataLoader
loader = DataLoader(Texts(), batch_size=8)


def turned(x):
    n, t, c = x.shape
    return x.transpose(-2, -1)


for x, y in loader:
"""


def lies(lines: str) -> tuple[Placement | None, object]:
    lines = "\n".join("    " + line for line in lines.splitlines())
    program = traced(f"{HEAD}{lines}\n")
    found, value = propagate(program, lambda source: Shard(0), catalog=CATALOG), bound(program, "result")
    return found.value(value), found.size(value)


TURNED = "result = x.transpose(-2, -1)"


@pytest.mark.parametrize(
    "lines",
    [
        f"n, t, c = x.shape\n{TURNED}",
        f"n, t, c = x.size()\n{TURNED}",
        f"(n, t, c), k = x.shape, 3\n{TURNED}",
        f"shape = x.shape\nn, t, c = shape\n{TURNED}",
        f"{TURNED}\nn, t, c = x.shape",
        "result = turned(x)",
        f"if len(loader) > 3:\n    x = x + 1\n    n, t, c = x.shape\n    {TURNED}",
    ],
)
def test_it_has_as_many_axes_as_are_unpacked(lines: str) -> None:
    assert lies(lines) == (Shard(0), (None, None, None))


@pytest.mark.parametrize(
    "lines",
    [
        TURNED,
        f"n, t, c = y.shape\n{TURNED}",
        f"n, *others = x.shape\n{TURNED}",
        f"n, t = x.shape[:2]\n{TURNED}",
        f"if len(loader) > 3:\n    n, t, c = x.shape\n{TURNED}",  # elsewhere it may have others
        f"try:\n    n, t, c = x.shape\nexcept ValueError:\n    pass\n{TURNED}",
        f"if x.ndim == 2:\n    continue\nn, t, c = x.shape\n{TURNED}",
        f"if len(x.shape) == 2:\n    continue\nn, t, c = x.shape\n{TURNED}",
        f"if len(loader) > 3:\n    n, t, c = x.shape\nelse:\n    n, c = x.shape\n{TURNED}",
    ],
)
def test_nothing_is_told_where_it_may_have_others(lines: str) -> None:
    placement, sizes = lies(lines)
    assert is_guessed(placement) and sizes is None


SCRIPT = """\
import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))

    def forward(self, x):
        UNPACKED
        weights = (self.q(x) @ self.k(x).transpose(-2, -1)).softmax(dim=-1)
        return weights @ self.v(x)


class Net(nn.Module):
    def __init__(self, symbols=11, width=8):
        super().__init__()
        self.embed, self.head = nn.Embedding(symbols, width), nn.Linear(width, symbols)
        self.blocks = nn.ModuleList(Attention(width) for _ in range(2))

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


def batch(data, size):
    at = torch.randint(len(data) - 6, (size,))
    return torch.stack([data[i : i + 5] for i in at]), torch.stack([data[i + 1 : i + 6] for i in at])


torch.manual_seed(0)
data = torch.randint(11, (500,))
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    x, y = batch(data, 8)
    out = model(x)
    loss = F.cross_entropy(out.view(-1, 11), y.view(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
"""


@pytest.mark.parametrize("unpacked", ["n, t, c = x.shape", "n, t, c = x.size()"])
def test_words_meet_those_of_their_own_text(tmp_path: Path, zygote: Zygote | None, unpacked: str) -> None:
    """It was not known of which axes those are that are exchanged."""
    before = SCRIPT.replace("UNPACKED", unpacked)
    after, told = converted(tmp_path, before)
    assert "AD602" not in told and "RowsOfAllRanks" not in after
    assert differences(tmp_path, zygote, before) is None
