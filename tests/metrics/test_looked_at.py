"""A batch that somebody looks at beside training."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

names = ["cat", "dog", "cow"]
data = TensorDataset(torch.randn(64, 4), torch.randint(3, (64,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
test_loader = DataLoader(data, batch_size=8)
{look}
model = nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
SHOWN = """\
def show(images, title):
    with open("seen.txt", "w") as file:
        file.write(f"{images} {title}")


images, labels = next(iter(loader))
show(images, [names[label] for label in labels])
"""


@pytest.mark.parametrize(
    ("look", "shown"),
    [
        (
            "images, labels = next(iter(loader))\nprint(images.shape, labels.size())",
            "print(gather_rows(images).shape, gather_rows(labels).size())",
        ),
        (
            "batches = iter(loader)\nimages, labels = next(batches)\nprint(*(names[labels[i]] for i in range(8)))",
            "print(*(names[gather_rows(labels)[i]] for i in range(8)))",
        ),
        ("batch = next(iter(loader))\nimages, labels = batch\nprint(labels[0])", "print(labels[0])"),
        ("images, _ = next(iter(loader))\nprint(images[0])", "print(images[0])"),
        ("images, _ = next(iter(loader))\nprint(images[1])", "print(gather_rows(images)[1])"),
        (SHOWN, "    show(all_images, [names[label] for label in all_labels])"),
        ("images, labels = next(iter(test_loader))\nprint(labels[0])", "print(labels[0])"),
        ("images, labels = next(iter(loader))\nprint(images.shape[1])", "print(images.shape[1])"),
        ("images, labels = next(iter(loader))\nsize = images[0].numel()", "size = images[0].numel()"),
    ],
)
def test_a_batch_that_is_looked_at(tmp_path: Path, look: str, shown: str) -> None:
    """What is shown of it is gathered; its first sample is that of rank 0."""
    code, said = converted(tmp_path, SCRIPT.format(look=look))
    assert f"\n{shown}\n" in code and ("gather_rows" in code) == ("gather" in shown or "all_" in shown)
    assert "this rank's samples alone" not in said


def test_a_batch_of_a_training_step(tmp_path: Path) -> None:
    """A step trains on the share of its rank."""
    step = "x, y = next(batches)\n        print(y[0])"
    text = SCRIPT.format(look="batches = iter(loader)").replace(
        "for x, y in loader:", "for _ in range(8):\n        STEP"
    )
    code, _ = converted(tmp_path, text.replace("STEP", step).replace("range(2):", "range(1):"))
    assert "x = gather_rows(x)" not in code


GRIDS = """\
for epoch in range(2):
    for x, y in loader:
        x = x.to("cpu")
        rows = list(x[:4])
        print(rows)
        rows = list(x[4:])
        print(rows)
"""


def test_pictures_of_a_step_under_one_name(tmp_path: Path) -> None:
    """What the name holds later is not used for what it holds now."""
    text = SCRIPT.format(look="").replace("for epoch in range(2):\n    for x, y in loader:\n", GRIDS)
    code, said = converted(tmp_path, text)
    assert "all_x = gather_rows(x)\n" in code and "list(all_x[:4])" in code and "list(all_x[4:])" in code
    assert "this rank's samples alone" not in said


JOINED = "guesses, labels = torch.cat(guesses), torch.cat(labels)"
EVALUATED = """\


def evaluate(loader):
    guesses, labels = [], []
    with torch.no_grad():
        for x, y in loader:
            {keep}
    {joined}
    return guesses, labels


for each in (loader, test_loader):
    guesses, labels = evaluate(each)
    print({report})
"""


@pytest.mark.parametrize(
    ("keep", "joined", "report"),
    [
        ("guesses.append(model(x).argmax(1)); labels.append(y)", JOINED, "guesses, labels"),
        ("guesses.extend(model(x).argmax(1).tolist()); labels.extend(y.tolist())", "pass", "guesses, labels"),
        (
            "guesses += model(x).argmax(1).tolist(); labels += y.tolist()",
            "pass",
            "guesses, labels",
        ),
    ],
)
def test_rows_of_a_loader_that_is_shared_out_or_not(tmp_path: Path, keep: str, joined: str, report: str) -> None:
    """Of one that every rank reads whole, each row would be there once for each rank."""
    evaluated = EVALUATED.format(keep=keep.replace("; ", "\n            "), joined=joined, report=report)
    code, said = converted(tmp_path, SCRIPT.format(look="") + evaluated)
    assert code.count("if isinstance(loader.sampler, DistributedSampler) else") == 2
    assert "this rank's samples alone" not in said


def test_lists_that_grow_together(tmp_path: Path) -> None:
    """What is compared item by item is gathered where it is put into the lists, not item by item."""
    text = SCRIPT.format(look="").replace("for epoch in range(2):\n", "for epoch in range(2):\n    a, b = [], []\n")
    text += "        a += [1] * 8\n        b += y.tolist()\n    print(sum(int(i == j) for i, j in zip(a, b)), b[:3])\n"
    code, _ = converted(tmp_path, text)
    assert "b += gather_rows(y).tolist()" in code
    assert "gather_rows(j)" not in code
