"""Batches that a script puts together itself: what is shared out, what is warned of and what is refused."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

from autodist.config import Config, Strategy
from autodist.convert import convert
from autodist.project import Project
from autodist.verify.launch import Zygote

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


def test_what_depends_on_the_other_samples_is_named(tmp_path: Path) -> None:
    """The mean of a share is not the batch's."""
    lines = "batch = x[idx]; batch = (batch - batch.mean(0)) / batch.std(0); loss = F.cross_entropy(net(batch), y[idx])"
    _, said = converted(tmp_path, NET + "    " + lines)
    assert "AD602" in said


def test_the_hardest_samples_are_those_of_all_ranks(tmp_path: Path) -> None:
    each = "F.cross_entropy(net(x[idx]), y[idx], reduction='none')"
    code, said = converted(tmp_path, f"{NET}    each = {each}; loss = each.topk(16)[0].mean()")
    assert f"each = {each}; loss = RowsOfAllRanks.apply(each).topk(16)[0].mean()" in code and "AD602" not in said


@pytest.mark.parametrize(
    "lines",
    [
        "w = y[idx].float(); w.div_(w.mean()); out = net(x[idx]); loss = ((out.sum(1) - y[idx]) ** 2 * w).mean()",
        "w = y[idx].float(); w = w.div(w.mean()); out = net(x[idx]); loss = ((out.sum(1) - y[idx]) ** 2 * w).mean()",
        "w = y[idx].float(); w = torch.div(w, w.mean()); loss = ((net(x[idx]).sum(1) - y[idx]) ** 2 * w).mean()",
        "w = y[idx].float(); w /= w.mean(); loss = (F.cross_entropy(net(x[idx]), y[idx], reduction='none') * w).mean()",
    ],
)
def test_statistics_of_the_batch_are_those_of_all_ranks(tmp_path: Path, lines: str) -> None:
    """Where no gradient flows through them."""
    after, said = converted(tmp_path, NET + "    " + lines)
    assert "reduce_mean(w.mean())" in after and "AD602" not in said


def test_elements_that_a_condition_picks_are_named(tmp_path: Path) -> None:
    """A mean over them counts more elements on one rank than on another."""
    body = """
net, kept = nn.Linear(6, 1), np.where(y.numpy() != 0)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
target = torch.ones(96, 1)
for step in range(20):
    out = net(x)
    loss = F.mse_loss(out[kept], target[kept])
"""
    text, said = converted(tmp_path, body)
    assert "AD604" in said and "AD602" not in said and "weigh_by_count" in text


def test_what_hands_out_unknown_batches_is_named(tmp_path: Path) -> None:
    """The loop over it is where a person has to look."""
    body = """
from somewhere import Feeder

net, feeder = nn.Linear(6, 1), Feeder(x, y)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for inputs, targets in feeder.batches(32):
    loss = F.mse_loss(net(inputs), targets)
"""
    _, said = converted(tmp_path, body)
    assert "feeder.batches(32)" in said


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


MAKER = """
def batches(size):
    order, at = np.random.permutation(96), 0
    while at < len(order):
        chosen = order[at : at + size]
        yield x[chosen], y[chosen]
        at += size

net, rnn = nn.Linear(6, 2), nn.GRU(6, 2)
optimizer = torch.optim.SGD(MODEL.parameters(), lr=0.1)
scale, state, extra = torch.rand(96), torch.zeros(1, 16, 2), torch.randn(96, 6)
for a, b in batches(16):
"""


def stepping(line: str) -> str:
    return MAKER.replace("MODEL", "rnn" if "rnn(" in line else "net") + "    " + line


HEADS = "h = net(a).view(-1, 2, 1, 1).permute(0, 2, 1, 3)"
DEALT = [
    "loss = F.cross_entropy(net(a), b)",
    "loss = F.cross_entropy(net(a), b, reduction='sum')",
    "loss = F.cross_entropy(net(a), b) + 0.1 * net.weight.norm()",
    "loss = F.cross_entropy(rnn(a.unsqueeze(0))[0].squeeze(0), b)",
    "loss = F.cross_entropy(net(a.float().view(a.size(0), -1)), b.long())",
    "one, two = torch.chunk(net(a), chunks=2, dim=1); loss = F.cross_entropy(one - two.atan(), b)",
    f"{HEADS}; s = torch.matmul(h, h.transpose(-1, -2)) / 2 + 0.0 * a.sum(1)[:, None, None, None]; "
    "o = torch.matmul(s.softmax(-1), h).permute(0, 2, 1, 3); loss = F.cross_entropy(o.flatten(1), b)",
]
JOINED = [
    "loss = F.cross_entropy(net(a - a.mean(0)), b)",
    "loss = F.cross_entropy(net(a + torch.randn(16, 6)), b)",
    "loss = torch.sqrt(F.cross_entropy(net(a), b))",
]
NOT_DEALT = [
    "loss = F.cross_entropy(rnn(a.unsqueeze(1))[0].squeeze(1), b)",
    "out, state = rnn(a.unsqueeze(0), state.detach()); loss = F.cross_entropy(out.squeeze(0), b)",
    "out = net(a); loss = F.cross_entropy(out @ out.t(), torch.arange(16))",
    "loss = F.cross_entropy(net(a), b, reduction='none').topk(8)[0].mean()",
    "loss = F.cross_entropy(net(a)[:8], b[:8])",
    "loss = (F.cross_entropy(net(a), b, reduction='none') * scale).mean()",
    "loss = F.mse_loss(net(a)[:, 0], b.unsqueeze(1).float())",
]


@pytest.mark.parametrize("line", DEALT)
def test_batches_of_a_generator_are_dealt_out_where_a_step_gets_them(line: str, tmp_path: Path) -> None:
    text, _ = converted(tmp_path, stepping(line))
    assert "for a, b in map(local_rows, batches(16)):" in text


@pytest.mark.parametrize("line", JOINED)
def test_what_is_computed_of_all_samples_is_that_of_all_ranks(line: str, tmp_path: Path, zygote: Zygote) -> None:
    text, said = converted(tmp_path, stepping(line))
    assert "local_rows" in text and "AD602" not in said
    assert conftest.differences(tmp_path, zygote, START + stepping(line) + STEP) is None


def test_what_may_have_as_many_samples_is_told(tmp_path: Path) -> None:
    assert "AD602" in converted(tmp_path, stepping("loss = F.cross_entropy(net(a + extra[:16]), b)"))[1]


def test_samples_of_a_batch_that_a_step_goes_through(tmp_path: Path) -> None:
    line = "loss = sum(F.cross_entropy(net(each), label) for each, label in zip(a, b))"
    assert "for each, label in local_samples(zip(a, b))" in converted(tmp_path, stepping(line))[0]


@pytest.mark.parametrize("line", NOT_DEALT)
def test_batches_whose_rows_depend_on_each_other_are_refused(line: str, tmp_path: Path) -> None:
    text, said = converted(tmp_path, stepping(line))
    assert "local_rows" not in text and "AD90" in said


ONE_BY_ONE = [
    "for a, b in zip(x, y):\n    loss = F.cross_entropy(net(a.unsqueeze(0)), b.unsqueeze(0))",
    "for a, b in [(x[i], y[i]) for i in range(96)]:\n    loss = F.cross_entropy(net(a)[None], b[None])",
    "for i in range(0, 90, 6):\n    a = x.view(-1)[i : i + 6]\n    loss = F.cross_entropy(net(a)[None], y[i : i + 1])",
    "at = 0\nwhile at < 500:\n    a = x.view(-1)[at : at + 6]\n    at += 6\n    loss = net(a).sum()",
]


@pytest.mark.parametrize("lines", ONE_BY_ONE)
def test_the_numbers_of_one_sample_are_no_rows(lines: str, tmp_path: Path) -> None:
    start = "net = nn.Linear(6, 2)\noptimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
    text, said = converted(tmp_path, start + lines)
    assert {"AD902", "AD906"} & {*said.split()} and "get_rank()" not in text


@pytest.mark.parametrize(
    "learnt",
    [
        "weights[idx] += each.detach()",
        "weights[idx[0]] = each[0].detach()",
        "weights[int(each.argmax())] += 1",
        "weights = weights * (1 + each.detach().mean())",
        "weights[idx] = 0.9 * weights[idx] + 0.1 * each.detach()",
        "with torch.no_grad():\n        weights.index_add_(0, idx, each)",
    ],
)
def test_draws_by_what_steps_have_learnt(learnt: str, tmp_path: Path, zygote: Zygote) -> None:
    """Losses of the samples that say how often each is drawn: all ranks keep those of all."""
    lines = (
        "weights, net = torch.rand(96), nn.Linear(6, 2)\noptimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "for step in range(20):\n    idx = torch.multinomial(weights, 16)\n"
        "    each = F.cross_entropy(net(x[idx]), y[idx], reduction='none')\n"
        f"    {learnt}\n    loss = each.mean()"
    )
    before = "import torch\ntorch.manual_seed(0)\n" + START + lines + STEP
    assert "draw" not in conftest.converted(tmp_path, before)[1]
    assert conftest.differences(tmp_path, zygote, before) is None


STORED = """
net, bank = nn.Linear(6, 2), torch.zeros(96, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(20):
    idx = torch.randint(0, 96, (16,))
    out = net(x[idx])
    loss = F.cross_entropy(out, y[idx]) + ((out - bank[idx]) ** 2).mean()
    STORE
"""


def test_what_is_kept_by_sample_is_kept_of_all(tmp_path: Path) -> None:
    """A bank of features, read by whichever rank draws the sample next."""
    text, said = converted(tmp_path, STORED.replace("STORE", "bank[idx] = out.detach()"))
    assert "bank[gather_rows(idx)] = gather_rows(out.detach())" in text and "AD90" not in said


def test_a_setting_by_the_loss_is_one_for_all(tmp_path: Path) -> None:
    store = "optimizer.param_groups[0]['lr'] = 0.1 * float(loss)"
    text, _ = converted(tmp_path, STORED.replace("STORE", store))
    assert "= reduce_mean(0.1 * float(loss))" in text


def test_an_order_of_the_whole_batch_is_refused(tmp_path: Path) -> None:
    lines = "batch = x[idx]; loss = F.cross_entropy(net(batch + batch[torch.randperm(32)]), y[idx])"
    _, said = converted(tmp_path, NET + "    " + lines)
    assert "counts those of all ranks" in said


def test_an_order_of_the_fields_is_none_of_the_samples(tmp_path: Path) -> None:
    lines = "loss = F.cross_entropy(net(x[idx][:, order]), y[idx])"
    start = NET.replace("for step", "order = torch.randperm(6)\nfor step")
    text, said = converted(tmp_path, start + "    " + lines)
    assert "AD902" not in said and "get_rank() :: " in text


@pytest.mark.parametrize("over", ["torch.randperm(96).split(16)", "np.array_split(np.random.permutation(96), 6)"])
def test_an_order_that_is_split(over: str, tmp_path: Path) -> None:
    start = "net = nn.Linear(6, 2)\noptimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
    text, _ = converted(tmp_path, start + f"for rows in {over}:\n    loss = F.cross_entropy(net(x[rows]), y[rows])")
    parts = f"(local_rows(rows, 16) for rows in {over})" if "split(16)" in over else f"map(local_rows, {over})"
    assert f"for rows in {parts}:" in text


def test_a_model_that_cannot_be_seen_is_named(tmp_path: Path) -> None:
    start = "net = eval('nn.Linear')(6, 2)\noptimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
    lines = "for i in range(0, 96, 16):\n    loss = F.cross_entropy(net(x[i : i + 16]), y[i : i + 16])"
    _, said = converted(tmp_path, start + lines)
    assert "cannot see which class net is of, made by eval('nn.Linear')(6, 2)" in said


def test_batches_by_hand_beside_a_loader_are_refused(tmp_path: Path) -> None:
    lines = (
        "from torch.utils.data import DataLoader, TensorDataset\n"
        "net = nn.Linear(6, 2)\noptimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "for a, b in DataLoader(TensorDataset(x, y), batch_size=8):\n"
        "    optimizer.zero_grad()\n    F.cross_entropy(net(a), b).backward()\n    optimizer.step()\n"
        "for step in range(20):\n    idx = torch.randint(0, 96, (16,))\n"
        "    loss = F.cross_entropy(net(x[idx]), y[idx])"
    )
    text, said = converted(tmp_path, lines)
    assert "beside those of a loader" in said and "get_rank()" not in text


NEGATIVES = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(50, 8)

    def forward(self, x, y):
        said = self.words(x)
        others = self.words.weight[torch.multinomial(torch.ones(50), 10, replacement=True)]
        return (said @ others.t()).mean() - (said * self.words(y)).mean()


class Columns:
    def __init__(self, data, size):
        self.data = data[: len(data) // size * size].view(size, -1).t()

    def __iter__(self):
        for row in range(len(self.data) - 1):
            yield self.data[row], self.data[row + 1]


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in Columns(torch.randint(0, 50, (400,)), 8):
    optimizer.zero_grad()
    model(x, y).backward()
    optimizer.step()
"""


def test_what_a_model_draws_is_no_batch(tmp_path: Path) -> None:
    """Its negative samples are not what a rank takes its share of."""
    after, said = conftest.converted(tmp_path, NEGATIVES)
    assert "AD902" in said and after == NEGATIVES


BRANCHES = """\
import torch
from torch import nn

real = False
if real:
    data = torch.randn(100, 4)

    def get_batch(split):
        rows = torch.randint(100, (8,))
        return data[rows], data[rows].sum(1)
else:
    x = torch.randn(8, 4)
    get_batch = lambda split: (x, x.sum(1))
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    inputs, targets = get_batch("train")
    optimizer.zero_grad()
    nn.functional.mse_loss(model(inputs).squeeze(1), targets).backward()
    optimizer.step()
"""


def test_batches_that_are_shared_in_one_branch_only(tmp_path: Path) -> None:
    after, said = conftest.converted(tmp_path, BRANCHES)
    assert "AD902 model(inputs) is given a rank's share of a batch, or all of one" in said and after == BRANCHES


PAIRS = """\
import numpy as np
import torch
import torch.nn as nn

np.random.seed(0)
torch.manual_seed(0)
pairs = np.array([(user, item) for user in range(16) for item in range(0, 12, 3)])
seen = {user: {0, 3, 6, 9} for user in range(16)}


def other_item(user):
    item = np.random.randint(12)
    while item in seen[user]:
        item = np.random.randint(12)
    return item


model = nn.Bilinear(1, 1, 1)
optimizer = torch.optim.Adam(model.parameters(), 1e-2)
for epoch in range(2):
    order = np.random.permutation(len(pairs))
    for start in range(0, len(pairs), 8):
        batch = pairs[order[start : start + 8]]
        items = torch.tensor([[float(other_item(user))] for user in batch[:, 0]])
        loss = model(torch.tensor(batch[:, :1]).float(), items).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def test_an_order_beside_negatives_that_are_drawn_until_one_fits(tmp_path: Path) -> None:
    """Ranks draw as many as their rows ask for, and would then put the samples in different orders."""
    _, said = conftest.converted(tmp_path, PAIRS)
    assert "np.random.permutation(len(pairs)) draws from the generator of which other_item draws" in said
    own = PAIRS.replace("np.random.permutation", "generator.permutation")
    own = own.replace("np.random.seed(0)", "generator = np.random.default_rng(1)\nnp.random.seed(0)")
    code, said = conftest.converted(tmp_path, own)
    assert "AD902" not in said and "gather_rows" not in code, "a number of one row is nothing to gather"
    once = PAIRS.replace("    while item in seen[user]:\n        item = np.random.randint(12)\n", "")
    assert "AD902" not in conftest.converted(tmp_path, once)[1]


LISTS = """\
import random

import numpy as np
import torch
from torch import nn

random.seed(0)
torch.manual_seed(0)
model = nn.EmbeddingBag(64, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    {users}
    items = []
    for user in users:
        {append}
    left = model(torch.tensor(users).unsqueeze(1))
    right = model(torch.tensor(items).unsqueeze(1))
    loss = torch.norm(left) ** 2 + torch.norm(left * right)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize("append", ["items.append(user + 1)", "items += [user + 1]", "items.extend([user + 1])"])
def test_lists_that_grow_by_the_rows_of_a_batch(append: str, tmp_path: Path) -> None:
    users = "users = random.sample(range(60), 8)"
    code, said = conftest.converted(tmp_path, LISTS.format(users=users, append=append))
    assert "AD902" not in said
    assert "RowsOfAllRanks.apply(right)" in code or code.count("RowsOfAllRanks.apply(") == 2
    assert "random.seed(torch.initial_seed())" not in code, "the order comes from there"


def test_a_batch_that_one_branch_makes_as_a_list(tmp_path: Path) -> None:
    """It would be shared out in the other branch only."""
    one = "random.sample(range(60), 8)"
    other = "[random.choice(range(60)) for _ in range(8)]"
    users = f"if step < 2:\n        users = {one}\n    else:\n        users = {other}"
    _, said = conftest.converted(tmp_path, LISTS.format(users=users, append="items.append(user + 1)"))
    assert "is given a rank's share of a batch, or all of one" in said


STATES = """\
import torch
from torch import nn

data = torch.randint(0, 10, (64, 6))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 8)
        self.lstm = nn.LSTM(8, 8, batch_first=True)
        self.out = nn.Linear(8, 10)
        self.softmax = nn.LogSoftmax({dim})

    def forward(self, x):
        h0, c0 = self.first(x.size(0))
        hidden, _ = self.lstm(self.embedding(x), (h0, c0))
        return self.softmax(self.out(hidden.contiguous().view(-1, 8)))

    def first(self, size):
        return torch.zeros((1, size, 8)), torch.zeros((1, size, 8))


def batches(size):
    for start in range(0, len(data), size):
        part = data[start : start + size]
        yield part[:, :-1], part[:, 1:]


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in batches(8):
        loss = nn.functional.nll_loss(model(x), y.contiguous().view(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize("dim", ["", "dim=1"])
def test_states_by_the_size_of_a_batch(tmp_path: Path, dim: str) -> None:
    """A pair of states for as many samples as a model is given; a softmax that torch chooses an axis for."""
    code, said = converted(tmp_path, STATES.format(dim=dim))
    assert "for x, y in map(local_rows, batches(8)):" in code, said
    assert "AD902" not in said


CHOSEN = """
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)
model = nn.Linear(6, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def batch_of(wanted, size):
    rows = []
    while len(rows) < size:
        samples, labels = next(iter(loader))
        for i in range(len(labels)):
            if len(rows) >= size:
                break
            if labels[i] == wanted:
                rows.append(samples[i])
    return torch.stack(rows)


for step in range(3):
    loss = model(batch_of(1, 8)).square().mean()
"""


def test_a_batch_that_is_filled_with_chosen_samples_of_a_loader_is_refused(tmp_path: Path) -> None:
    """Each rank would find another number of them, and all together could have more than a batch."""
    assert "AD902 rows takes samples of a loader that meet a condition" in converted(tmp_path, CHOSEN)[1]


def test_chosen_samples_that_are_only_looked_at_are_no_batch(tmp_path: Path) -> None:
    trained = CHOSEN.replace("step in range(3)", "batch, _ in loader").replace("batch_of(1, 8)).", "batch).")
    text, said = converted(tmp_path, trained + "    print(batch_of(1, 8).shape)")
    assert "DistributedDataParallel" in text and "until they fill a batch" not in said


TIME_FIRST = """\
import torch
from torch import nn

x, y = torch.randn(12, 64, 3), torch.randn(64, 1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.out = nn.LSTM(3, 5), nn.Linear(5, 1)

    def forward(self, x):
        states, _ = self.rnn(x)
        return self.out(states[-1])


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for i in range(0, 64, 8):
        chosen = torch.randint(64, (8,))
        loss = nn.functional.mse_loss(model({inputs}), {targets})
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize("inputs", ["x[:, i : i + 8, :]", "x[:, i : i + 8]", "x.narrow(1, i, 8)"])
def test_inputs_with_time_first_beside_labels(tmp_path: Path, inputs: str) -> None:
    """A layer takes their first axis for time, and the labels lie along the first one."""
    _, said = conftest.converted(tmp_path, TIME_FIRST.format(inputs=inputs, targets="y[i : i + 8]"))
    assert "AD902" in said


def test_inputs_with_time_first_by_the_same_indices(tmp_path: Path) -> None:
    """What is drawn is shared out, and with it both."""
    after, said = conftest.converted(tmp_path, TIME_FIRST.format(inputs="x[:, chosen]", targets="y[chosen]"))
    assert "chosen = torch.randint(64, (8,))[dist.get_rank()" in after and "AD902" not in said
