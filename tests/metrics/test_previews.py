"""Samples that are shown one by one, by their numbers: as many as the batch of one process has."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

SCRIPT = """\
import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.tensorboard import SummaryWriter

data = TensorDataset(torch.randn(64, 3, 8, 8), torch.randint(4, (64, 8, 8)))
loader = DataLoader(data, batch_size=8, shuffle=True)
test_loader = DataLoader(data, batch_size=8)
model = nn.Conv2d(3, 4, 3, padding=1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
writer = SummaryWriter()
{functions}
for epoch in range(2):
    for x, y in loader:
        out = model(x)
        loss = F.cross_entropy(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
{after}
"""
ONE_BY_ONE = """
    for i in range(6):
        plt.imshow(x[i].permute(1, 2, 0))
        plt.title(f"{y[i, 0, 0]}")
"""
SHOW = """
def show(images, labels):
    _, axes = plt.subplots(1, 6)
    for i in range(6):
        axes[i].imshow(images[i].permute(1, 2, 0).numpy())
        axes[i].set_title(int(labels[i, 0, 0]))
"""
SAVE = """
def save(images, guesses):
    with open("seen.txt", "w") as file:
        for k in range(8):
            file.write(f"{images[k].sum().item()} {guesses[k].float().mean().item()}")
"""


@pytest.mark.parametrize(
    ("functions", "after", "expected"),
    [
        (
            "",
            ONE_BY_ONE,
            ["    all_x = gather_rows(x)\n    all_y = gather_rows(y)\n    for i in range(6):", "all_x[i]"],
        ),
        (
            SHOW,
            "    show(x, out.argmax(1))",
            ["    all_images = gather_rows(images)\n    for i in range(6):", "gather_rows(out.argmax(1)))"],
        ),
        (SAVE, "    save(x, out.argmax(1))", ["    save(x, gather_rows(out.argmax(1)))", "gather_rows(images)"]),
        (
            "",
            '    writer.add_image("first", x[0], epoch)',
            ['if dist.get_rank() == 0:\n        writer.add_image("first", x[0]'],
        ),
        ("", "    print(x.shape, out.size())", ["print(gather_rows(x).shape, gather_rows(out).size())"]),
    ],
)
def test_samples_by_their_numbers(tmp_path: Path, functions: str, after: str, expected: list[str]) -> None:
    """A rank's share has fewer, and other ones: rows of all ranks are gathered before the loop, or where a function is
    given them. A sample is taken of what was gathered, since its own first axis is not that of the samples; the first
    one of all is that of rank 0."""
    code, said = converted(tmp_path, SCRIPT.format(functions=functions, after=after))
    assert all(each in code for each in expected), code
    assert "this rank's samples alone" not in said


@pytest.mark.parametrize(
    ("functions", "after"),
    [
        (SHOW, "    x, y = next(iter(test_loader))\n    show(x, y)"),
        ("", "    print(x.shape[1])"),
        ("", "    print(x[0].shape, len(x[0]))"),
    ],
)
def test_what_all_ranks_have(tmp_path: Path, functions: str, after: str) -> None:
    """An evaluation loader gives every rank all samples."""
    code, _ = converted(tmp_path, SCRIPT.format(functions=functions, after=after))
    assert "gather_rows(" not in code


VIEWS = """\
import torch
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.tensorboard import SummaryWriter
from pairs import Pairs

loader = DataLoader(Pairs(), batch_size=8, shuffle=True)
model = nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
writer = SummaryWriter()
for epoch in range(2):
    for views, _ in loader:
        loss = (model(views[0]) - model(views[1])).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


STEP = "(model(views[0]) - model(views[1])).square().mean()"


@pytest.mark.parametrize(
    ("batch", "step"),
    [("views, _", STEP), ("batch", "model(batch)[0]\n        print(len(batch[0]))\n        loss = loss.mean()")],
)
def test_views_of_each_sample(tmp_path: Path, batch: str, step: str) -> None:
    """What may be a list of views, or of fields, is taken for one, unless something asks for what a tensor has."""
    code, said = converted(tmp_path, VIEWS.replace("views, _", batch).replace(STEP, step))
    assert "gather_rows" not in code and "AD602" not in said and "AD906" not in said


BIGRAM = """\
import torch
import torch.nn.functional as F
from torch import nn

data = torch.arange(200) % 7
batch_size, length = 4, 8


def get_batch():
    starts = torch.randint(len(data) - length, (batch_size,))
    x = torch.stack([data[i : i + length] for i in starts])
    y = torch.stack([data[i + 1 : i + length + 1] for i in starts])
    return x, y


xb, yb = get_batch()
print(xb)
for b in range(batch_size):
    for t in range(length):
        print(xb[b, : t + 1].tolist(), yb[b, t])
model = nn.Embedding(7, 7)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(8):
    xb, yb = get_batch()
    loss = F.cross_entropy(model(xb).view(-1, 7), yb.view(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_batch_made_by_hand(tmp_path: Path) -> None:
    """The function makes whole batches, which are shown as they are, and a step takes its rows of them."""
    code, said = converted(tmp_path, BIGRAM)
    assert "xb, yb = get_batch()\nprint(xb)\n" in code and "xb, yb = local_rows(get_batch())" in code
    assert "this rank's samples alone" not in said


PADDED = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

texts = [torch.arange(1, 3 + n % 5) for n in range(64)]


def collate(batch):
    return pad_sequence(batch, batch_first=True)


loader = DataLoader(texts, batch_size=8, shuffle=True, collate_fn=collate)
model = nn.Sequential(nn.Embedding(9, 8), nn.Linear(8, 9))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in loader:
    loss = F.cross_entropy(model(x).reshape(-1, 9), x.reshape(-1), ignore_index=0)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    {shown}
"""


@pytest.mark.parametrize("shown", ["print(x)", "for i in range(4): print(x[i].tolist())", "print(x.shape)"])
def test_padded_samples_are_filled_up_to_those_of_all_ranks(tmp_path: Path, shown: str) -> None:
    """They are longer on one rank than on another, which would wait for ever for the others' shapes."""
    code, said = converted(tmp_path, PADDED.format(shown=shown))
    assert "filled up with zeros to the longest" in code and "gather_rows(x)" in code
    assert "AD601 is filled up with zeros where samples of another rank are longer" in said
