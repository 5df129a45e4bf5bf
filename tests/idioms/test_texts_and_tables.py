"""Texts and tables: losses over sentences, what is gathered of samples, what is drawn for a batch, loaders of
phases."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import conftest
import pytest

from autodist.verify.launch import Zygote

HEAD = """\
import sys
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

torch.manual_seed(0)
"""
LOADER = (
    "loader = DataLoader(TensorDataset(torch.randn(32, 8), torch.randint(0, 3, (32,))), batch_size=8, shuffle=True)\n"
)
STEP = "optimizer.zero_grad()\nloss.backward()\noptimizer.step()\n"


def trained(
    step: str,
    report: str = "",
    before: str = "",
    make: str = "nn.Linear(8, 3)",
    batch: str = "x, y",
    loader: str = LOADER,
) -> str:
    """A script that trains a model, and reports of each epoch."""
    body = f"for {batch} in loader:\n{indent(step + STEP, ' ' * 4)}"
    epoch = indent(before + body + report, " " * 4)
    optimizer = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    return f"{HEAD}{loader}model = {make}\n{optimizer}for epoch in range(2):\n{epoch}"


def is_warned(said: str) -> bool:
    """Whether a person has to look at a loss or a report."""
    return "AD602" in said or "this rank's samples alone" in said


PHASES = """\
sets = {split: TensorDataset(torch.randn(30, 8), torch.randint(0, 3, (30,))) for split in ("train", "valid", "test")}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 3)

    def forward(self, x):
        return self.layer(x), x


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for split in splits:
        loader = DataLoader(sets[split], batch_size=10, shuffle=split == 'train')
        said = []
        for x, y in loader:
            out, _ = model(x)
            loss = F.cross_entropy(out, y)
            if split == "train":
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            else:
                said += out.argmax(1).tolist()
        print(split, loss.item(), said)
"""


@pytest.mark.parametrize(
    "splits",
    [
        '["train", "valid"] + (["test"] if len(sys.argv) > 1 else [])',
        '["train", "valid"]\nif len(sys.argv) > 1:\n    splits.append("test")',
    ],
)
def test_loaders_of_phases_are_told_apart(tmp_path: Path, splits: str) -> None:
    """Only what trains is shared out, so that no sample is evaluated twice."""
    after, said = conftest.converted(tmp_path, HEAD + f"splits = {splits}\n{PHASES}")
    assert 'sampler=DistributedSampler(sets[split], seed=torch.initial_seed()) if split == "train" else None' in after
    assert "gather_rows" not in after and not is_warned(said)
    assert "shuffle=" not in after[after.index("loader = ") :]


def test_names_of_a_comprehension_are_read_within_it(tmp_path: Path) -> None:
    """What stops the script where a batch cannot be shared out stands before the comprehension."""
    made = "{p: DataLoader(sets[p], batch_size=size, shuffle=True) for p in ['train', 'val']}"
    make = f"def loaders(sets, size):\n    return {made}\n\n\n"
    loop = """\
data = loaders({p: TensorDataset(torch.randn(32, 8), torch.randint(0, 3, (32,))) for p in ("train", "val")}, 8)
model = nn.Linear(8, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for phase in ["train", "val"]:
        for x, y in data[phase]:
            with torch.set_grad_enabled(phase == "train"):
                loss = F.cross_entropy(model(x), y)
            if phase == "train":
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
"""
    after, _ = conftest.converted(tmp_path, HEAD + make + loop)
    assert "    assert size % dist.get_world_size() == 0" in after


BATCHES = """\
class Rows(Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, index):
        return {"x": torch.ones(8) * index, "y": index % 3, "name": str(index)}


loader = DataLoader(Rows(), batch_size=8, shuffle=True)
"""
GIVEN = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 3)

    def forward(self, x, y=None):
        out = self.layer(x)
        return (F.cross_entropy(out, y), out) if y is not None else out


"""


@pytest.mark.parametrize(
    "step",
    [
        "for k, v in batch.items():\n    if k != 'name':\n        batch[k] = v.float() if k == 'x' else v\n"
        "loss, out = model(batch['x'], batch['y'])\n",
        "batch = {k: v for k, v in batch.items() if isinstance(v, torch.Tensor)}\nloss, out = model(**batch)\n",
        "loss, out = model(batch['x'], y=batch['y'])\n",
    ],
)
def test_parts_of_a_batch_go_by_names(tmp_path: Path, step: str) -> None:
    """Names are no samples, and a forward pass that is given labels returns the loss with what it was computed from."""
    script = trained(step, "print(loss.item())\n", batch="batch", make="Net()", loader=BATCHES + GIVEN)
    after, said = conftest.converted(tmp_path, script)
    assert "gather_rows" not in after and not is_warned(said)
    assert "reduce_mean(loss.item())" in after


PUT_BEFORE = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 3)

    def forward(self, x, y=None):
        outputs = (self.layer(x),)
        if y is not None:
            outputs = (F.cross_entropy(outputs[0], y),) + outputs
        return outputs


"""


def test_a_loss_put_before_what_a_model_gives_is_the_first_of_it(tmp_path: Path) -> None:
    """It had been gathered as rows."""
    step = "batch = {k: v for k, v in batch.items() if k in ('x', 'y')}\nloss = model(**batch)[0] / 2\n"
    script = trained(step, "print(loss.item())\n", batch="batch", make="Net()", loader=BATCHES + PUT_BEFORE)
    after, said = conftest.converted(tmp_path, script)
    assert "RowsOfAllRanks" not in after and not is_warned(said)
    assert "reduce_mean(loss.item())" in after


BLOCKS = """\
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.back, self.fore = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.back(x), self.fore(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))

    def forward(self, x):
        out = torch.zeros(len(x), 3)
        for block in self.blocks:
            back, fore = block(x)
            x = x - back
            out = out + fore
        return {returned}


"""


@pytest.mark.parametrize(("returned", "waits"), [("out", False), ("out + x[:, :3]", True)])
def test_what_the_last_block_gives_for_a_next_one_is_not_waited_for(tmp_path: Path, returned: str, waits: bool) -> None:
    step = "loss = F.cross_entropy(model(x), y)\n"
    script = trained(step, make="Net()", loader=BLOCKS.format(returned=returned) + LOADER)
    after, _ = conftest.converted(tmp_path, script)
    assert ("find_unused_parameters=True" in after) is not waits


def test_connectionist_loss_counts_no_padding(tmp_path: Path) -> None:
    loader = """\
def collate(batch):
    x = nn.utils.rnn.pad_sequence([x for x, _ in batch], batch_first=True)
    y = nn.utils.rnn.pad_sequence([y for _, y in batch], batch_first=True)
    return x, y, torch.tensor([len(x) for x, _ in batch]), torch.tensor([len(y) for _, y in batch])


rows = [(torch.ones(9 + i % 4, 8), torch.ones(3 + i % 2).long()) for i in range(32)]
loader = DataLoader(rows, batch_size=8, shuffle=True, collate_fn=collate)
criterion = nn.CTCLoss()
"""
    step = "out = model(x).log_softmax(2).transpose(0, 1)\nloss = criterion(out, y, lengths, counts)\n"
    script = trained(step, batch="x, y, lengths, counts", loader=loader)
    _, said = conftest.converted(tmp_path, script)
    assert "the loss is a mean over what" not in said


WORDS = """\
def words_of(numbers, names):
    words = [str()] * len(numbers)
    for i, number in enumerate(numbers):
        words[i] += names[number.item()] + " "
    return words


"""


def test_a_list_of_one_for_each_sample_is_gathered(tmp_path: Path, zygote: Zygote | None) -> None:
    """It had been taken for a number of samples, and was repeated for each rank."""
    step = "loss = F.cross_entropy(model(x), y)\nsaid += words_of(y, 'abc')\n"
    script = trained(step, "print(sorted(said))\n", before="said = []\n", loader=WORDS + LOADER)
    assert conftest.differences(tmp_path, zygote, script) is None


@pytest.mark.parametrize(
    "step",
    [
        "flags = [0] * len(x)\nfor i in range(len(x)):\n    flags[i] += int(y[i] > 1)\nhits.extend(flags)",
        """\
flags = [0] * len(x)
for i in range(len(x)):
    if out[i].argmax() == y[i]:
        flags[i] = 1
hits.append(sum(flags))""",
        "run = [0] * len(x)\nfor i in range(1, len(x)):\n    run[i] = run[i - 1] + y[i].item()\nhits.extend(run)",
        "for i in range(1, len(x)):\n    hits.append((y[i] - y[i - 1]).abs().item())",
        "flags = [False] * y.size(0)\nfor i, (a, b) in enumerate(zip(out.argmax(1), y)):\n    flags[i] = bool(a == b)\n"
        "hits += flags",
    ],
)
def test_what_is_filled_sample_by_sample(tmp_path: Path, zygote: Zygote | None, step: str) -> None:
    """A list with one for each sample is as long as a rank has; the sample before is that of another rank."""
    step = f"out = model(x)\nloss = F.cross_entropy(out, y)\n{step}\n"
    script = trained(step, "print(sum(hits))\n", before="hits = []\n")
    assert conftest.differences(tmp_path, zygote, script) is None


def test_what_one_sample_decides_is_kept_for_it(tmp_path: Path) -> None:
    """A loop over this rank's samples looks at those, not at the first ones of all ranks."""
    step = (
        "out = model(x)\nloss = F.cross_entropy(out, y)\nflags = [0] * len(x)\nfor i in range(len(x)):\n"
        "    if out[i].argmax() == y[i]:\n        flags[i] = 1\nhits.extend(flags)\n"
    )
    after, said = conftest.converted(tmp_path, trained(step, "print(sum(hits))\n", before="hits = []\n"))
    assert "if out[i].argmax() == y[i]:" in after and not is_warned(said)
    assert "reduce_sum(sum(hits))" in after


def test_one_sample_is_not_gathered(tmp_path: Path) -> None:
    step = (
        "out = model(x)\nloss = F.cross_entropy(out, y)\nwords = [[] for _ in range(len(x))]\n"
        "for i, guess in enumerate(out.argmax(1)):\n    words[i].append('abc'[guess.item()])\n"
        "said += [' '.join(each) for each in words]\n"
    )
    after, said = conftest.converted(tmp_path, trained(step, "print(sorted(said))\n", before="said = []\n"))
    assert "gather_rows(guess)" not in after and "AD601" in said


def test_of_several_functions_those_are_called_that_take_the_call(tmp_path: Path) -> None:
    """`getattr(metrics, name)` may be any function of a module, but not one that takes other things."""
    metrics = (
        "def auc(model, data, workers=1):\n    return model(data).sum().item()\n\n\n"
        "def worker(queue, rows, data, model):\n    queue.put(rows)\n"
    )
    (tmp_path / "metrics.py").write_text(metrics)
    step = "loss = F.cross_entropy(model(x), y)\n"
    report = "print(getattr(metrics, sys.argv[1])(model, torch.ones(2, 8), workers=2))\n"
    script = trained(step, report).replace("import sys\n", "import sys\nimport metrics\n")
    _, said = conftest.converted(tmp_path, script)
    assert "AD402" not in said, "a queue was taken for the model in its wrapper"


TAGGER = """\
from torchcrf import CRF


def collate(batch):
    length = max(len(x) for x, _ in batch)
    x, y = torch.zeros(len(batch), length).long(), torch.zeros(len(batch), length).long()
    mask = torch.zeros(len(batch), length).bool()
    for i, (a, b) in enumerate(batch):
        x[i, : len(a)], y[i, : len(a)], mask[i, : len(a)] = a, b, True
    return x, y, mask


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.lstm = nn.LSTM(8, 8, batch_first=True, bidirectional={both})
        self.out = nn.Linear(16 if {both} else 8, 5)
        self.crf = CRF(5, batch_first=True)

    def forward(self, x, mask, y=None):
        emissions = self.out(self.lstm(self.embed(x))[0])
        if y is not None:
            return -self.crf(emissions, y, mask=mask{reduction})
        return self.crf.decode(emissions, mask=mask)


rows = [(torch.ones(3 + i % 4).long(), torch.ones(3 + i % 4).long()) for i in range(32)]
loader = DataLoader(rows, batch_size=8, shuffle=True, collate_fn=collate)
"""


def tagger(reduction: str = "", both: bool = False) -> str:
    classes = TAGGER.format(reduction=reduction, both=both)
    return trained("loss = model(x, mask, y)\n", batch="x, y, mask", make="Tagger()", loader=classes)


def test_layer_of_torchcrf_sums_over_sentences(tmp_path: Path) -> None:
    after, said = conftest.converted(tmp_path, tagger())
    assert "(loss * dist.get_world_size()).backward()" in after and not is_warned(said)


def test_layer_of_torchcrf_may_take_the_mean(tmp_path: Path) -> None:
    after, said = conftest.converted(tmp_path, tagger(", reduction='mean'"))
    assert "    loss.backward()" in after and not is_warned(said)


def test_layer_that_goes_backwards_comes_to_the_padding(tmp_path: Path) -> None:
    _, said = conftest.converted(tmp_path, tagger(both=True))
    assert "comes to the padding before the sample itself: collate() pads" in said


def test_a_single_number_is_not_gathered(tmp_path: Path) -> None:
    """`item()` tells that a library which nothing is known of made a number."""
    step = "score = library.Score()(model(x), y)\nloss = F.cross_entropy(model(x), y)\ntotal += score.item()\n"
    script = trained(step, "print(total)\n", before="total = 0\n").replace(
        "import sys\n", "import sys\nimport library\n"
    )
    after, said = conftest.converted(tmp_path, script)
    assert "gather_rows(score).item()" not in after and "AD601" in said


FROZEN = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 4){frozen}
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        with torch.no_grad():
            z = self.body(x)
        return self.head(z)


"""


@pytest.mark.parametrize("frozen", ["", ".requires_grad_(False)"])
def test_what_runs_without_gradients_is_not_waited_for(tmp_path: Path, frozen: str) -> None:
    step = "loss = F.cross_entropy(model(x), y)\n"
    script = trained(step, make="Net()", loader=FROZEN.format(frozen=frozen) + LOADER)
    after, _ = conftest.converted(tmp_path, script)
    assert ("find_unused_parameters=True" in after) is (not frozen)


def test_what_is_drawn_for_as_many_as_there_are_otherwise_is_not_shared_alone(tmp_path: Path) -> None:
    """Words that are drawn for pairs of which every rank has all."""
    script = """\
import numpy as np
import torch
import torch.nn.functional as F
from collections import deque
from torch import nn

queue = deque()
net = nn.EmbeddingBag(20, 8)
other = nn.Embedding(20, 8)
optimizer = torch.optim.SGD([*net.parameters(), *other.parameters()], lr=0.1)
for step in range(8):
    while len(queue) < 8:
        queue.append((step % 20, step % 7))
    pairs = [queue.popleft() for _ in range(8)]
    drawn = np.random.choice(20, size=(len(pairs), 5)).tolist()
    first = torch.LongTensor([pair[0] for pair in pairs])
    score = (other(first) * net(torch.LongTensor(drawn))).sum(1)
    loss = -F.logsigmoid(score).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
    after, said = conftest.converted(tmp_path, script)
    assert "other(first) * RowsOfAllRanks.apply(net(torch.LongTensor(drawn)))" in after and "AD602" not in said


def test_what_is_drawn_for_as_many_as_a_batch_has_is_no_batch(tmp_path: Path) -> None:
    """Noise for the pairs of a generator's lists, of which every rank has all: it is not the noise that is shared."""
    script = """\
import torch
from torch import nn


def pairs(size):
    for start in range(0, 64, size):
        yield [each % 9 for each in range(start, start + size)], [each % 7 for each in range(start, start + size)]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Embedding(9, 4), nn.Embedding(9, 4)

    def noise(self, count, times):
        return self.outer(torch.multinomial(torch.ones(9), count * times, replacement=True)).view(count, times, 4)


net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for xs, ys in pairs(8):
    x, y = torch.LongTensor(xs), torch.LongTensor(ys)
    loss = (net.inner(x) * net.outer(y)).mean() - (net.noise(x.shape[0], 3) * net.inner(x)[:, None]).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
    after, _ = conftest.converted(tmp_path, script)
    assert "local_rows(torch.multinomial" not in after and "multinomial(torch.ones(9), count * times" in after


def test_several_are_drawn_for_each_of_a_ranks_rows(tmp_path: Path) -> None:
    """`multinomial(weights, x.shape[0] * 3)`, of rows that are a rank's own: drawn for the rows of all ranks."""
    script = """\
import torch
from torch import nn

inputs = torch.randn(64, 4)
net, words = nn.Linear(4, 4), nn.Embedding(9, 4)
optimizer = torch.optim.SGD([*net.parameters(), *words.parameters()], lr=0.1)
for step in range(8):
    x = inputs[torch.randint(len(inputs), (8,))]
    drawn = torch.multinomial(torch.ones(9), x.shape[0] * 3, replacement=True).view(x.shape[0], 3)
    loss = (net(x)[:, None] * words(drawn)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
    after, _ = conftest.converted(tmp_path, script)
    drawn = "torch.multinomial(torch.ones(9), x.shape[0] * 3 * dist.get_world_size(), replacement=True)"
    assert f"{drawn}.view(x.shape[0] * dist.get_world_size(), 3)[dist.get_rank()" in after


@pytest.mark.parametrize(
    ("grow", "length", "alike"),
    [
        ("kept.append(out.detach())\n", "len(kept)", True),
        ("kept.append((out.detach(), y))\n", "len(kept)", True),
        ("for row in out:\n    kept.append(row.detach())\n", "len(kept)", False),
        ("for i in range(len(y)):\n    kept.append(out[i].detach())\n", "len(kept)", False),
        ("kept.extend(out.detach())\n", "len(kept)", False),
        ("", "len(list(loader))", True),
    ],
)
def test_lists_of_batches_are_as_long_on_all_ranks(tmp_path: Path, grow: str, length: str, alike: bool) -> None:
    """A list that grows by one with each batch, and one that grows with each sample."""
    step = f"out = model(x)\nloss = F.cross_entropy(out, y)\n{grow}"
    after, _ = conftest.converted(tmp_path, trained(step, before="kept = []\n", report=f"print({length})\n"))
    assert (f"print({length})" in after) is alike
