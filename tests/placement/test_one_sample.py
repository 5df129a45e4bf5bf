"""What is computed from one sample after the other, or from pieces of a batch, and axes that are named by variables."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import conftest
import pytest

from autodist.verify import verify
from autodist.verify.launch import Zygote

ATTENTION = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(8, 4), nn.Linear(8, 4), nn.Linear(8, 4)

    def forward(self, sequences):
        result = []
        for sequence in sequences:
            q, k, v = self.q(sequence), self.k(sequence), self.v(sequence)
            result.append(torch.einsum("ij,jd->id", torch.softmax(SCORES, -1), v))
        return torch.stack(result)


torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(64, 5, 8), torch.randint(0, 4, (64,))), batch_size=8, shuffle=True)
model = nn.Sequential(nn.Linear(8, 8), Attention())
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(2):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x)[:, 0], y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(loss.item())
"""
LOSS = """\
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
np.random.seed(0)


{functions}


loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randint(0, 3, (64,))), batch_size=8, shuffle=True)
model = nn.Linear(8, 3)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(2):
    for x, y in loader:
{step}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(loss.item())
"""
COSINES = """\
def cosines(a, b, dim=1, eps=1e-8):
    lengths = torch.ger(torch.norm(a, 2, dim), torch.norm(b, 2, dim))
    return torch.mm(a, b.t()) / lengths.clamp(min=eps)
"""
ROLLED = """\
def shifted(x):
    dim = -1
    return torch.roll(torch.cumsum(x, dim), 1, dim)
"""
ENCODED = """\
def encoded(x, functions=2):
    parts = [x]
    for i in range(functions):
        parts.append(torch.sin(x * 2.0**i))
    if len(parts) == 1:
        return parts[0]
    return torch.stack(parts).mean(0)
"""
ATTACK = """\
def attack(model, x, y, steps=2):
    delta = torch.zeros_like(x)
    delta.requires_grad = True
    for _ in range(steps):
        loss = nn.functional.cross_entropy(model(x + delta), y)
        loss.backward()
        grad = delta.grad.detach()
        index = slice(None, None, None)
        delta.data[index, :] = torch.clamp(delta[index, :] + 0.1 * torch.sign(grad[index, :]), -0.3, 0.3)
        delta.grad.zero_()
    return delta.detach()
"""
STEPS = {
    "axis of a parameter": (COSINES, "loss = nn.functional.cross_entropy(cosines(model(x), torch.eye(3)), y)"),
    "axis of a variable": (ROLLED, "loss = nn.functional.cross_entropy(model(shifted(x)), y)"),
    "list by numbers": (ENCODED, "loss = nn.functional.cross_entropy(model(encoded(x)), y)"),
    "attack": (ATTACK, "loss = nn.functional.cross_entropy(model(x + attack(model, x, y)), y)"),
    "every row in its place": ("", "loss = -model(x).log_softmax(1)[range(len(x)), y].mean()"),
}
RAYS = """\
import numpy as np
import torch
from torch import nn


def chunks(rays, size=8):
    return [rays[i : i + size] for i in range(0, rays.shape[0], size)]


torch.manual_seed(0)
np.random.seed(0)
picture = torch.rand(144, 3)
places = torch.rand(144, 2)
model = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 3))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for i in range(12):
    picked = np.random.choice(places.shape[0], size=(32), replace=False)
    colours = torch.cat([model(piece) for piece in chunks(places[picked])], dim=0)
    loss = nn.functional.mse_loss(colours, picture[picked])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
"""


def check_equal(folder: Path, text: str, zygote: Zygote | None) -> str:
    """The conversion of a script that needs no person, run beside it."""
    (folder / "converted").mkdir()
    after, said = conftest.converted(folder, text)
    (folder / "converted" / "train.py").write_text(after)
    assert "AD602" not in said and "from this rank's samples alone" not in said, said
    verdict = verify(
        folder / "train.py", folder / "converted" / "train.py", [2], workdir=folder, timeout=100, zygote=zygote
    )
    assert verdict.equal, verdict.findings
    return after


@pytest.mark.parametrize("scores", ["q @ k.T", "torch.matmul(q, k.transpose(0, 1))", "q @ k.mT"])
def test_attention_within_one_sample_after_the_other(tmp_path: Path, zygote: Zygote | None, scores: str) -> None:
    check_equal(tmp_path, ATTENTION.replace("SCORES", scores), zygote)


@pytest.mark.parametrize("name", STEPS)
def test_losses_by_axes_and_lists_that_are_known(tmp_path: Path, zygote: Zygote | None, name: str) -> None:
    functions, step = STEPS[name]
    after = check_equal(tmp_path, LOSS.format(functions=functions, step=indent(step, " " * 8)), zygote)
    assert "if len(parts) * " not in after


def test_pieces_of_a_batch_are_no_batches(tmp_path: Path, zygote: Zygote | None) -> None:
    assert "picked = np.random.choice(places.shape[0], size=(32), replace=False)[" in check_equal(
        tmp_path, RAYS, zygote
    )


def test_one_sample_against_all_others_is_refused(tmp_path: Path) -> None:
    step = "out = model(x)\nloss = sum((out[i] @ out.T).sigmoid().mean() for i in range(len(out))) / len(out)"
    turns = "out = model(x)\nloss = 0\nfor i in range(len(out)):\n    loss = loss + (out[i] @ out.T).sigmoid().mean()"
    for text in (step, turns):
        after, said = conftest.converted(tmp_path, LOSS.format(functions="", step=indent(text, " " * 8)))
        assert "AD906" in said or "AD602" in said or "RowsOfAllRanks.apply(out[i])" not in after


def test_models_in_texts_of_comprehensions(tmp_path: Path) -> None:
    names = 'names = "_".join(f"{each}" for each in [model, optimizer])\n'
    text = LOSS.format(functions="", step=" " * 8 + "loss = nn.functional.cross_entropy(model(x), y)")
    assert "DDP(" in conftest.converted(tmp_path, text.replace("for epoch", names + "for epoch", 1))[0]


SHOWN = """\
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.tensorboard import SummaryWriter

loader = DataLoader(TensorDataset(torch.randn(64, 3, 4, 4)), batch_size=8, shuffle=True)
model = nn.Conv2d(3, 3, 3, padding=1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
writer = SummaryWriter("logs")
for i, (x,) in enumerate(loader):
    result = model(x)
    loss = nn.functional.mse_loss(result, x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    {shown}
"""


@pytest.mark.parametrize(
    ("shown", "alone"),
    [
        ("writer.add_image('image', x[0] * 0.5, i)", True),
        (
            "image = result[0] * 0.5\n    image = image.cpu().numpy()\n    writer.add_image('image', image, i)",
            True,
        ),
        ("print(x[0].mean())", True),
        ("print(x[1].mean())", False),
        ("if x[0].mean() > 0:\n        print(i)", False),
        ("print(x[x.sum((1, 2, 3)) > 0][0].mean())", False),
    ],
)
def test_the_first_sample_on_rank_zero(tmp_path: Path, shown: str, alone: bool) -> None:
    """It is that of the whole batch: nothing is gathered for what rank 0 shows of it."""
    after, said = conftest.converted(tmp_path, SHOWN.format(shown=shown))
    assert "mean_over_ranks" not in after
    assert ("gather_rows" not in after and "AD601 reports" not in said) is alone, after


CUT = """\
import torch
from torch import nn

torch.manual_seed(0)
xs, ys = torch.randn(64, 4), torch.randn(64, 1)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(0, 64, 8):
    picked = torch.randint(0, 64, (8,))
    x, y = {rows}
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print({shown})
"""


@pytest.mark.parametrize("rows", ["xs[i : i + 8], ys[i : i + 8]", "xs[picked], ys[picked]"])
@pytest.mark.parametrize(("shown", "first"), [("x[0], y[0].item()", True), ("x[1]", False), ("y[-1]", False)])
def test_the_first_sample_of_a_batch_that_is_cut_by_hand(tmp_path: Path, rows: str, shown: str, first: bool) -> None:
    """Ranks take turns at its rows; another one is that of all ranks' rows."""
    code, said = conftest.converted(tmp_path, CUT.format(rows=rows, shown=shown))
    assert "dist.get_rank() :: dist.get_world_size()]" in code
    assert f"gather_rows({shown[0]})" in code or first
    assert "AD601 reports" not in said
