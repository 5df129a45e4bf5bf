"""Texts and sequences: lengths that are no number of samples, fields of batches that functions and modules are
given."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

HEAD = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

torch.manual_seed(0)
"""
STEP = """\
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""

PADDED = """\
{head}texts = [" ".join(str(each % 7) for each in range(1 + number % 4)) for number in range(32)]
model = nn.Sequential(nn.EmbeddingBag(8, 4), nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for batch in DataLoader(texts, batch_size=8, shuffle=True):
        longest, rows = 0, []
        for text in batch:
            words = {words}
            if len(words) > 3:
                words = words[:3]
            longest = len(words) if len(words) > longest else longest
            rows.append(words)
        numbers = torch.LongTensor([[ord(word[0]) % 7 for word in row] + [0] * (longest - len(row)) for row in rows])
        loss = model(numbers).pow(2).mean()
{step}"""


@pytest.mark.parametrize("words", ["text.split()", 'text.split(" ")', 'text.split(sep=" ")'])
def test_the_length_of_a_text_is_no_number_of_samples(tmp_path: Path, words: str) -> None:
    """hpzhao/SummaRuNNer: the longest sentence was multiplied by the number of ranks while it was looked for."""
    after, said = conftest.converted(tmp_path, PADDED.format(head=HEAD, words=words, step=STEP))
    assert "longest = len(words) if len(words) > longest else longest\n" in after
    assert "if len(words) > 3:\n" in after and "need" not in said


def test_a_sample_that_a_loop_has_come_to_is_as_long_as_it_is(tmp_path: Path) -> None:
    script = PADDED.format(head=HEAD, words="text", step=STEP)
    longest = "            longest = len(text) if len(text) > longest else longest\n            rows.append(text)\n"
    script = script[: script.index("            words =")] + longest + script[script.index("        numbers =") :]
    after, said = conftest.converted(tmp_path, script)
    assert longest in after and "need" not in said


def test_the_number_of_samples_is_still_counted(tmp_path: Path) -> None:
    training = """\
data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    seen = 0
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        seen += len(x)
"""
    after, _ = conftest.converted(tmp_path, f"{HEAD}{training}{STEP}    print(seen)\n")
    assert "print(seen * dist.get_world_size())" in after or "reduce_sum(seen)" in after


VECTORS = """\
{head}class Pairs(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


class Vectors(nn.Module):
    def __init__(self, words):
        super().__init__()
        self.left, self.right = nn.Embedding(words, 8), nn.Embedding(words, 8)
        self.bias = nn.Embedding(words, 1)

    def forward(self, i, j):
        product = {product}
        return product + {bias}


model = Vectors(20)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(Pairs([(n % 20, n % 7, 1.0) for n in range(64)]), batch_size=8, shuffle=True)
for epoch in range(2):
    for i, j, counts in loader:
        loss = model(i, j).pow(2).mean()
{step}"""


@pytest.mark.parametrize(
    "product", ["torch.sum(self.left(i) * self.right(j), dim=1)", "(self.left(i) * self.right(j)).sum(-1)"]
)
def test_numbers_that_meet_a_column_of_embeddings(tmp_path: Path, product: str) -> None:
    """noaRricky/pytorch-glove: (n) and (n, 1) are every number with every other; of the data nothing is known."""
    script = VECTORS.format(head=HEAD, product=product, bias="self.bias(i)", step=STEP)
    after, said = conftest.converted(tmp_path, script)
    assert "RowsOfAllRanks.apply(self.bias(i))" in after or "AD602" in said


@pytest.mark.parametrize(
    ("product", "bias"),
    [
        ("(self.left(i) * self.right(j)).sum(1)", "self.bias(i).squeeze()"),
        ("(self.left(i) * self.right(j)).sum(1)", "self.bias(i).squeeze(1) + self.bias(j).squeeze(1)"),
        ("(self.left(i) * self.right(j)).sum(1, keepdim=True)", "self.bias(i)"),
        ("(self.left(i) * self.right(j)).sum(1).unsqueeze(1)", "self.bias(i)"),
        ("self.left(i) * self.right(j)", "self.bias(i)"),
        ("self.bias(j)", "self.bias(i)"),
    ],
)
def test_numbers_that_meet_their_own(tmp_path: Path, product: str, bias: str) -> None:
    after, said = conftest.converted(tmp_path, VECTORS.format(head=HEAD, product=product, bias=bias, step=STEP))
    assert "RowsOfAllRanks" not in after and "need" not in said


MODEL = """\
from torch import nn


class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.layer = nn.Linear(size, 1)

    def forward(self, x):
        return self.layer(x).pow(2).mean()
"""


def test_a_module_that_an_argument_names(tmp_path: Path) -> None:
    """caow13/BRITS: `getattr(models, args.model).Model(...)` of a package that imports its modules."""
    (tmp_path / "zoo").mkdir()
    (tmp_path / "zoo" / "__init__.py").write_text("from . import first, second\n")
    for name in ("first", "second"):
        (tmp_path / "zoo" / f"{name}.py").write_text(MODEL)
    training = """\
import argparse

import zoo

parser = argparse.ArgumentParser()
parser.add_argument("--model", type=str)
args = parser.parse_args()
model = getattr(zoo, args.model).Model(4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=8)
for epoch in range(2):
    for (x,) in loader:
        loss = model(x)
"""
    after, said = conftest.converted(tmp_path, f"{HEAD}{training}{STEP}")
    assert "model = DDP(getattr(zoo, args.model).Model(4)" in after and "AD901" not in said


def test_a_batch_that_a_function_goes_through_keeps_its_fields(tmp_path: Path) -> None:
    """caow13/BRITS: a function that moves whatever it is given, lists by `map`, made of a field's `view` something that
    all ranks share, and a mask was summed up over one rank's samples alone."""
    script = f"""\
{HEAD}

class Records(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, number):
        return {{"values": [number % 5, number % 3], "kept": number % 2}}


def collate(records):
    batch = {{"values": torch.FloatTensor([each["values"] for each in records])}}
    batch["kept"] = torch.FloatTensor([each["kept"] for each in records])
    return batch


def moved(thing):
    if torch.is_tensor(thing):
        return thing.to("cpu")
    if isinstance(thing, dict):
        for key in thing:
            thing[key] = moved(thing[key])
        return thing
    if isinstance(thing, list):
        return map(lambda each: moved(each), thing)


model = nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for batch in DataLoader(Records(), batch_size=8, shuffle=True, collate_fn=collate):
        batch = moved(batch)
        kept = batch["kept"].view(-1, 1)
        loss = torch.sum(model(batch["values"]).abs() * kept) / (torch.sum(kept) + 1e-5)
{STEP}"""
    after, _ = conftest.converted(tmp_path, script)
    assert "SumOverRanks.apply(torch.sum(kept))" in after or "mean_count(torch.sum(kept)" in after


@pytest.mark.parametrize(
    "parts",
    [
        "zip(x.chunk(2), y.chunk(2))",
        "zip(torch.split(x, len(x) // 2), torch.split(y, len(y) // 2))",
        "zip(x.view(2, -1, 4), y.view(2, -1))",
        "zip(xs, ys)",
    ],
)
def test_parts_of_a_batch_have_samples_of_their_own(tmp_path: Path, parts: str) -> None:
    """The length of a part was taken for that of one sample, so that a loss was divided by a rank's samples as if these
    were summed up: it was half of what it should be, in silence."""
    script = f"""\
{HEAD}
data = TensorDataset(torch.randn(64, 4), torch.randint(0, 3, (64,)))
model = nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in DataLoader(data, batch_size=16, shuffle=True):
        optimizer.zero_grad()
        xs, ys = x.chunk(2), y.chunk(2)
        for part, labels in {parts}:
            loss = nn.functional.cross_entropy(model(part), labels) * len(part) / len(x)
            loss.backward()
        optimizer.step()
"""
    after, _ = conftest.converted(tmp_path, script)
    assert "* len(part) / len(x)\n" in after
