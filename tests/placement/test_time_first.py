"""Batches whose samples lie along the second axis, since a `collate_fn` puts time first."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

from autodist.verify import verify
from autodist.verify.launch import Zygote

SCRIPT = """\
import itertools
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

torch.manual_seed(0)
data = [(torch.randint(1, 9, (6,)), torch.randint(1, 9, (6,))) for _ in range(32)]


def collate(batch):
    xs, ys = zip(*batch)
{collate}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.rnn, self.out = nn.Embedding(9, 4), nn.GRU(4, 5), nn.Linear(5, 9)

    def forward(self, x):
        states, _ = self.rnn(self.embed(x), self.begin(x.size(1)))
        return self.out(states)

    def begin(self, batch_size):
        return torch.zeros(1, batch_size, 5)


batch_size = 8
loader = DataLoader(data, batch_size=batch_size, shuffle=True, collate_fn=collate)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    total, words, length = 0.0, 0, 0
    for batch in loader:
        x, y = {fields}
        loss = nn.functional.cross_entropy(model(x).reshape(-1, 9), y.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * x.size(1)
        words += x.size(1)
        length = len(y)
    print(epoch, total / words, words, length, total / len(list(loader)))
"""

PADDED = "    return pad_sequence(xs), pad_sequence(ys)\n"
STACKED = "    return torch.stack(xs, dim=1), torch.stack(ys, 1)\n"
TURNED = "    x, y = torch.stack(xs).t(), torch.stack(ys).transpose(0, 1)\n    return x, y.contiguous()\n"
NAMED = (
    "    texts = pad_sequence(xs, batch_first=True).T\n    return {'x': texts, 'y': pad_sequence(list(ys)).long()}\n"
)
FILLED = """\
    x = torch.zeros(6, len(batch), dtype=torch.long)
    y = torch.zeros((6, len(batch))).long()
    for i, (a, b) in enumerate(batch):
        x[:, i], y[:, i] = a, b
    return x, y
"""
ZIPPED = """\
    def turned(rows):
        return torch.LongTensor(list(itertools.zip_longest(*rows, fillvalue=0)))

    return turned([x.tolist() for x in xs]), turned([y.tolist() for y in ys])
"""
AGAIN = "    return pad_sequence(xs, True).t(), pad_sequence(ys, batch_first=False)\n"


@pytest.mark.parametrize("collate", [PADDED, STACKED, TURNED, NAMED, FILLED, ZIPPED, AGAIN])
def test_sizes_of_batches_with_time_first(tmp_path: Path, collate: str) -> None:
    """How many samples there are stands second; how long they are is no number of them, but of the longest one."""
    fields = "batch['x'], batch['y']" if collate is NAMED else "batch"
    text, said = conftest.converted(tmp_path, SCRIPT.format(collate=collate, fields=fields))
    assert "reduce_sum(words)" in text or "words * dist.get_world_size()" in text
    assert "length *" not in text and "sum(length)" not in text and "mean(length)" not in text
    assert collate is not PADDED or "reduce_max(length)" in text
    assert "len(list(loader)) *" not in text and "len(list(loader)))" in text
    assert "torch.zeros(1, batch_size, 5)" in text  # told a rank's own size
    assert "AD602" not in said or "pads to the longest" in said


def test_batch_first_stays_first(tmp_path: Path) -> None:
    """`batch_first=True` and two turns: the samples lie along the first axis."""
    collate = "    return pad_sequence(xs, batch_first=True), pad_sequence(ys).t()\n"
    text, _ = conftest.converted(tmp_path, SCRIPT.format(collate=collate, fields="batch"))
    assert "length * dist.get_world_size()" in text


TOKENS = """\
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

data = [torch.randint(1, 9, (6,)) for _ in range(32)]
loader = DataLoader(data, batch_size=8, shuffle=True, collate_fn=lambda texts: torch.stack(texts, dim=1))
model = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 9))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in loader:
    length, batch_size = x.shape
    losses = nn.functional.cross_entropy(model(x).view(-1, 9), x.view(-1), reduction="none")
    loss = losses.view(length, batch_size).sum(0).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_losses_of_words_laid_out_again(tmp_path: Path) -> None:
    """`losses.view(length, batch_size).sum(0)` is one number for each sample, of which the mean is taken."""
    text, said = conftest.converted(tmp_path, TOKENS)
    assert "dist.get_world_size() * " not in text and " * dist.get_world_size()" not in text
    assert "AD602" not in said and "AD603" not in said


NAMED_BATCH = """\
import collections
import dataclasses
import typing
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

torch.manual_seed(0)
data = [(torch.randint(1, 9, (3 + i % 4,)), i % 3) for i in range(32)]


{declared}


def collate(samples):
    texts, labels = zip(*samples)
    return Batch({made})


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(9, 4, padding_idx=0), nn.Linear(4, 3)

    def forward(self, x):
        return self.out((self.embed(x) * (x > 0)[..., None]).sum(0))


loader = DataLoader(data, batch_size=8, shuffle=True, collate_fn=collate)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    total, seen, length, words = 0.0, 0, 0, 0
    for batch in loader:
        loss = nn.functional.cross_entropy(model(batch.texts), batch.labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * batch.texts.size(1)
        seen += batch.texts.size(1)
        length = batch.texts.size(0)
        words += len(batch.texts)
    print(epoch, total / seen, seen, length, words)
"""
TUPLE = 'Batch = collections.namedtuple("Batch", "texts labels")'
BY_POSITION = "pad_sequence(texts), torch.tensor(labels)"
BY_NAME = "labels=torch.tensor(labels), texts=pad_sequence(texts)"


@pytest.mark.parametrize(
    ("declared", "made"),
    [
        (TUPLE, BY_POSITION),
        (TUPLE.replace('"texts labels"', '["texts", "labels"]'), BY_NAME),
        ("class Batch(typing.NamedTuple):\n    texts: torch.Tensor\n    labels: torch.Tensor", BY_POSITION),
        ("@dataclasses.dataclass\nclass Batch:\n    texts: torch.Tensor\n    labels: torch.Tensor", BY_POSITION),
    ],
)  # fmt: skip
def test_fields_of_batches_by_their_names(tmp_path: Path, declared: str, made: str) -> None:
    """Samples stand second in one of them; what stands first is the length of the longest."""
    text, _ = conftest.converted(tmp_path, NAMED_BATCH.format(declared=declared, made=made))
    assert "reduce_mean(total / seen), seen * dist.get_world_size(), reduce_max(length), words)" in text
    assert "words += reduce_max(len(batch.texts))" in text


def test_the_longest_of_all_ranks(tmp_path: Path, zygote: Zygote | None) -> None:
    (tmp_path / "converted").mkdir()
    after, _ = conftest.converted(tmp_path, NAMED_BATCH.format(declared=TUPLE, made=BY_POSITION))
    (tmp_path / "converted" / "train.py").write_text(after)
    before, converted = tmp_path / "train.py", tmp_path / "converted" / "train.py"
    verdict = verify(before, converted, [2], workdir=tmp_path, timeout=100, zygote=zygote)
    assert verdict.equal, verdict.findings


def test_a_sum_of_the_largest_is_no_largest_sum(tmp_path: Path) -> None:
    script = NAMED_BATCH.format(declared=TUPLE, made=BY_POSITION)
    text, _ = conftest.converted(tmp_path, script.replace("+= len(batch.texts)", "+= batch.labels.max().item()"))
    assert "words += reduce_max(batch.labels.max())" in text.replace(".item()", "")


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ("length = batch.texts.shape[0]", "reduce_max(length), words)"),
        ("length, _ = batch.texts.shape", "reduce_max(length), words)"),
        ("texts, _ = batch\n        length = texts.to('cpu').long().size(0)", "reduce_max(length), words)"),
        ("length = max(length, batch.texts.size(0))", "length = max(length, reduce_max(batch.texts.size(0)))"),
        ("length = batch.texts.size(0)\n        batch.texts.view(length, -1)", "length, words)"),
        ("length = batch.texts.size(0)\n        for place in range(length):\n            pass", "length, words)"),
    ],
)
def test_how_long_samples_are_is_asked_in_many_words(tmp_path: Path, told: str, expected: str) -> None:
    """What is made to measure, and loops, go by the length that a rank has."""
    script = NAMED_BATCH.format(declared=TUPLE, made=BY_POSITION)
    text, _ = conftest.converted(tmp_path, script.replace("length = batch.texts.size(0)", told))
    assert expected in text


def test_a_collate_fn_that_is_not_at_hand_is_named(tmp_path: Path) -> None:
    script = NAMED_BATCH.format(declared=TUPLE, made=BY_POSITION).replace(
        "import collections", "import elsewhere\nimport collections"
    )
    _, said = conftest.converted(tmp_path, script.replace("collate_fn=collate", "collate_fn=elsewhere.collate"))
    assert "AD602 cannot tell how elsewhere.collate puts samples together" in said


FIELDS = "    xs, ys = zip(*batch)\n    x, y = torch.stack(xs), torch.stack(ys)\n"
TURNED = "x.t(), y.t()"
LAID_OUT = [
    (
        "class Batch:\n    def __init__(self, x, y):\n        self.x, self.y = x, y\n\n\n"
        f"def collate(batch):\n{FIELDS}    return Batch({TURNED})\n",
        "batch.x, batch.y",
    ),
    (
        "class collate:\n    def __init__(self, batch):\n        xs, ys = zip(*batch)\n"
        "        self.x = torch.stack(xs, dim=1)\n        self.y = torch.stack(ys, dim=1)\n",
        "batch.x, batch.y",
    ),
    (
        "class Batch:\n    pass\n\n\n"
        f"def collate(batch):\n{FIELDS}    made = Batch()\n    made.x, made.y = {TURNED}\n    return made\n",
        "batch.x, batch.y",
    ),
    (
        f"def collate(batch):\n{FIELDS}    return types.SimpleNamespace(x=x.t(), y=y.t())\n",
        "batch.x, batch.y",
    ),
    (f"def collate(batch, axis=1):\n{FIELDS}    return torch.stack(xs, axis), torch.stack(ys, axis)\n", "batch"),
    (
        f"def put(batch, first):\n{FIELDS}    return (x, y) if first else ({TURNED})\n\n\n"
        "collate = functools.partial(put, first=False)\n",
        "batch",
    ),
    (
        "class Collate:\n    def __init__(self, first):\n        self.first = first\n\n    def __call__(self, batch):\n"
        + FIELDS.replace("    ", "        ")
        + f"        if self.first:\n            return x, y\n        return {TURNED}\n\n\ncollate = Collate(False)\n",
        "batch",
    ),
    (
        f"def collate(batch):\n{FIELDS}"
        "    return [torch.tensor([[int(s[t]) for s in z] for t in range(6)]) for z in (x, y)]\n",
        "batch",
    ),
    (
        "def collate(batch):\n    xs, ys = zip(*batch)\n    x, y = [], []\n    for t in range(6):\n"
        "        x.append([int(s[t]) for s in xs])\n        y.append([int(s[t]) for s in ys])\n"
        "    return torch.tensor(x), torch.tensor(y)\n",
        "batch",
    ),
    (
        "def collate(batch):\n    x, y = np.zeros(SHAPE, dtype=int), np.zeros(SHAPE, dtype=int)\n"
        "    for i, (a, b) in enumerate(batch):\n        x[:, i] = a\n        y[:, i] = b\n"
        "    return torch.from_numpy(x[:, : len(batch)]), torch.from_numpy(y[:, : len(batch)])\n",
        "batch",
    ),
    (
        "def collate(batch):\n    xs, ys = zip(*batch)\n"
        "    return torch.LongTensor(list(zip(*xs))), torch.LongTensor(list(map(list, zip(*ys))))\n",
        "batch",
    ),
    (
        "def collate(batch):\n    xs, ys = zip(*batch)\n"
        "    return torch.cat([s.unsqueeze(1) for s in xs], 1), torch.cat([s[:, None] for s in ys], dim=1)\n",
        "batch",
    ),
    (
        "def turned(rows):\n    return torch.from_numpy(np.stack(rows)[:, :, None].transpose(1, 0, 2)[:, :, 0])\n\n\n"
        "def collate(batch):\n    xs, ys = zip(*batch)\n    return turned(xs), turned(ys)\n",
        "batch",
    ),
    (f"def collate(batch):\n{FIELDS}    return {TURNED}\n", "[part.clone() for part in batch]"),
    (f"def collate(batch):\n{FIELDS}    return {TURNED}\n", "map(lambda part: part.clone(), batch)"),
    (
        f'def collate(batch):\n{FIELDS}    return {{"x": x.t(), "y": y.t()}}\n',
        "{key: part.clone() for key, part in batch.items()}.values()",
    ),
]


@pytest.mark.parametrize(("collate", "fields"), LAID_OUT)
def test_samples_of_the_second_axis_in_many_words(tmp_path: Path, collate: str, fields: str) -> None:
    """`x.size(1)` counts them, so that what is divided by their sum is of all ranks."""
    text = SCRIPT.replace("def collate(batch):\n    xs, ys = zip(*batch)\n{collate}\n", collate)
    text = text.replace("import itertools\n", "import functools\nimport types\nimport numpy as np\n\nSHAPE = (6, 8)\n")
    after, _ = conftest.converted(tmp_path, text.replace("{fields}", fields))
    assert "print(epoch, reduce_mean(total / words), words * dist.get_world_size()" in after
    assert "torch.zeros(1, batch_size, 5)" in after


@pytest.mark.parametrize("made", ["torch.stack(xs, -1)", "x.t() if x.size(1) > 5 else x"])
def test_samples_of_an_axis_that_is_not_told(tmp_path: Path, made: str) -> None:
    text = SCRIPT.replace("{collate}\n", f"    x = torch.stack(xs)\n    return {made}, torch.stack(ys, 1)\n")
    _, said = conftest.converted(tmp_path, text.replace("{fields}", "batch"))
    assert "AD602 cannot tell how collate() puts samples together" in said


def test_numbers_in_a_batch(tmp_path: Path) -> None:
    """A class counts its samples, and their words: neither is one for each of them."""
    collate = (
        "class collate:\n    def __init__(self, batch):\n        xs, ys = zip(*batch)\n"
        "        self.x, self.y = torch.stack(xs, 1), torch.stack(ys, 1)\n        self.count = self.x.size(1)\n"
        "        self.words = (self.y != 0).sum().item()\n"
    )
    text = SCRIPT.replace("def collate(batch):\n    xs, ys = zip(*batch)\n{collate}\n", collate)
    text = text.replace("{fields}", "batch.x, batch.y").replace("* x.size(1)", "* batch.count")
    text = text.replace("words += x.size(1)", "words += batch.count").replace(
        "length = len(y)", "print(batch.words, batch.count)"
    )
    after, _ = conftest.converted(tmp_path, text)
    assert "print(reduce_sum(batch.words), batch.count * dist.get_world_size())" in after
    assert "print(epoch, reduce_mean(total / words), words * dist.get_world_size()" in after
