"""What is a batch of a training step, of which each rank has its share: of a loader, or made by hand."""

from __future__ import annotations

import ast

import pytest
from programs import CATALOG, bound, traced

from autodist.placement import Partial, Placement, Replicate, Shard
from autodist.placement.propagate import propagate
from autodist.program import Operation, Program
from autodist.solve.sources import Sources, sources

HEAD = """\
import argparse
import random
from collections import deque

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

x, y = torch.randn(100, 4), torch.randn(100, 1)
net = nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
size = 10
"""
STEP = """
loss = F.mse_loss(net(xb), yb)
opt.zero_grad()
loss.backward()
opt.step()
"""
MEAN = Partial("mean", "rows")


def found(text: str) -> tuple[Program, Sources]:
    program = traced(text)
    return program, sources(program, CATALOG)


def codes(operations: frozenset[Operation]) -> list[str]:
    """The code of some operations, each once."""
    nodes = [(each.source, each.node) for each in sorted(operations, key=lambda each: each.number)]
    return list(dict.fromkeys(source.code(node) for source, node in nodes if isinstance(node, ast.expr)))


def losses(program: Program, plan: Sources) -> list[Placement | None]:
    placements = propagate(program, plan.plan, catalog=CATALOG)
    return [placements.value(each.operation.inputs[0]) for each in program.of("backward")]


def stepped(text: str) -> str:
    """A script that takes a step below some lines, as far in as their last one, and a loop around that opens there."""
    last = text.rstrip().splitlines()[-1]
    depth = len(last) - len(last.lstrip()) + 4 * last.endswith(":")
    return HEAD + text + STEP.replace("\n", "\n" + " " * depth) + "\n"


@pytest.mark.parametrize(
    ("text", "made"),
    [
        # slices of the data, and of an order of all samples
        ("for e in range(3):\n    for i in range(0, len(x), size):\n        xb, yb = x[i:i + size], y[i:i + size]",
         ["x[i:i + size]", "y[i:i + size]"]),
        ("for i in range(len(x) // size):\n    xb = x[i * size:(i + 1) * size]\n    yb = y[i * size:(i + 1) * size]",
         ["x[i * size:(i + 1) * size]", "y[i * size:(i + 1) * size]"]),
        ("at = 0\nwhile at < len(x):\n    end = min(at + size, len(x))\n    xb, yb = x[at:end], y[at:end]\n"
         "    at += size",
         ["x[at:end]", "y[at:end]"]),
        ("for e in range(3):\n    order = torch.randperm(len(x))\n    for i in range(0, len(x), size):\n"
         "        chosen = order[i:i + size]\n        xb, yb = x[chosen], y[chosen]",
         ["order[i:i + size]"]),
        ("order = np.arange(len(x))\nfor e in range(3):\n    np.random.shuffle(order)\n"
         "    for i in range(0, len(x), size):\n        xb, yb = x[order[i:i + size]], y[order[i:i + size]]",
         ["order[i:i + size]"]),
        ("for i in range(0, len(x), size):\n    xb, yb = x.narrow(0, i, size), y.narrow(0, i, size)",
         ["x.narrow(0, i, size)", "y.narrow(0, i, size)"]),
        ("for step in range(9):\n    chosen = torch.randperm(len(x))[:size]\n    xb, yb = x[chosen], y[chosen]",
         ["torch.randperm(len(x))[:size]"]),
        ("for chosen in torch.randperm(len(x)).split(size):\n    xb, yb = x[chosen], y[chosen]",
         ["torch.randperm(len(x)).split(size)"]),
        ("for xb, yb in zip(torch.split(x, size), torch.split(y, size)):",
         ["zip(torch.split(x, size), torch.split(y, size))"]),
        ("for chosen in np.array_split(np.random.permutation(len(x)), 10):\n    xb, yb = x[chosen], y[chosen]",
         ["np.array_split(np.random.permutation(len(x)), 10)"]),
        ("import itertools\nfor part in itertools.batched(range(len(x)), size):\n    chosen = list(part)\n"
         "    xb, yb = x[chosen], y[chosen]",
         ["itertools.batched(range(len(x)), size)"]),
        ("order = []\nfor step in range(9):\n    if len(order) < size:\n"
         "        order = list(np.random.permutation(100))\n"
         "    chosen, order = order[:size], order[size:]\n    xb, yb = x[chosen], y[chosen]",
         ["order[:size]"]),
        ("for i in range(5):\n    if i == 4:\n        xb, yb = x[i * size:], y[i * size:]\n    else:\n"
         "        xb, yb = x[i * size:(i + 1) * size], y[i * size:(i + 1) * size]\n    xb = xb * 1",
         ["x[i * size:]", "y[i * size:]", "x[i * size:(i + 1) * size]", "y[i * size:(i + 1) * size]"]),
        ("for chosen in BatchSampler(RandomSampler(x), size, False):\n    xb, yb = x[chosen], y[chosen]",
         ["BatchSampler(RandomSampler(x), size, False)"]),
        # draws of samples
        ("for step in range(9):\n    chosen = torch.randint(0, len(x), (size,))\n    xb, yb = x[chosen], y[chosen]",
         ["torch.randint(0, len(x), (size,))"]),
        ("rng = np.random.default_rng(0)\nfor step in range(9):\n    chosen = rng.integers(0, len(x), size)\n"
         "    xb, yb = x[chosen], y[chosen]",
         ["rng.integers(0, len(x), size)"]),
        ("for step in range(9):\n    chosen = torch.randint(len(x), (size,))\n"
         "    xb, yb = x.index_select(0, chosen), torch.index_select(y, 0, chosen)",
         ["torch.randint(len(x), (size,))"]),
        ("for step in range(9):\n    chosen = random.sample(range(len(x)), size)\n"
         "    xb, yb = torch.stack([x[j] for j in chosen]), torch.stack([y[j] for j in chosen])",
         ["random.sample(range(len(x)), size)"]),
        ("pairs = [(torch.randn(4), torch.randn(1)) for _ in range(100)]\nfor step in range(9):\n"
         "    some = random.sample(pairs, size)\n"
         "    xb, yb = torch.stack([a for a, _ in some]), torch.stack([b for _, b in some])",
         ["random.sample(pairs, size)"]),
        ("class Memory:\n    def __init__(self):\n        self.kept = deque(maxlen=99)\n"
         "    def sample(self, count):\n        a, b = zip(*random.sample(self.kept, count))\n"
         "        return torch.stack(a), torch.stack(b)\nmemory = Memory()\nfor step in range(99):\n"
         "    state = torch.randn(4)\n    memory.kept.append((state, state.sum().view(1)))\n"
         "    xb, yb = memory.sample(32)",
         ["random.sample(self.kept, count)"]),
        ("for step in range(9):\n    chosen = [random.randrange(len(x)) for _ in range(size)]\n"
         "    xb, yb = x[chosen], y[chosen]",
         ["random.randrange(len(x))"]),
        ("for step in range(9):\n    xs, ys = [], []\n    for _ in range(size):\n        j = random.randint(0, 99)\n"
         "        xs.append(x[j])\n        ys.append(y[j])\n    xb, yb = torch.stack(xs), torch.stack(ys)",
         ["random.randint(0, 99)"]),
        # as functions and generators make them
        ("def get_batch(source):\n    starts = torch.randint(len(source) - 4, (size,))\n"
         "    return torch.stack([source[s:s + 4] for s in starts]), torch.stack([source[s:s + 1] for s in starts])\n"
         "text = torch.randn(500)\nxb, yb = get_batch(text)\nfor step in range(9):\n    xb, yb = get_batch(text)",
         ["torch.randint(len(source) - 4, (size,))"]),
        ("def batches():\n    order = torch.randperm(len(x))\n    for i in range(0, len(x), size):\n"
         "        yield x[order[i:i + size]], y[order[i:i + size]]\nfor e in range(3):\n    for xb, yb in batches():",
         ["order[i:i + size]"]),
        ("def batches():\n    while True:\n        chosen = np.random.choice(len(x), size)\n"
         "        yield x[chosen], y[chosen]\nendless = batches()\nfor step in range(9):\n    xb, yb = next(endless)",
         ["np.random.choice(len(x), size)"]),
        ("data = [([1.0, 2.0, 3.0, 4.0], 0.0), ([2.0, 3.0, 4.0, 5.0], 1.0)] * 9\ndef batches(count):\n"
         "    random.shuffle(data)\n    for i in range(0, len(data), count):\n        part = data[i:i + count]\n"
         "        yield torch.tensor([a for a, _ in part]), torch.tensor([[b] for _, b in part])\n"
         "for xb, yb in batches(4):",
         ["data[i:i + count]"]),
        # noise, where nothing else is a batch
        ("for step in range(9):\n    xb = torch.rand(128, 4)\n    yb = xb.sum(1, keepdim=True)",
         ["torch.rand(128, 4)"]),
        ("noise = torch.distributions.Normal(0.0, 1.0)\nfor step in range(9):\n    xb = noise.sample((size, 4))\n"
         "    yb = xb.sum(1, keepdim=True)",
         ["noise.sample((size, 4))"]),
        ("def curves(count):\n    return torch.randn(count, 4)\nfor step in range(9):\n    xb = curves(32)\n"
         "    yb = torch.ones(32, 1)",
         ["torch.randn(count, 4)"]),
    ],
)  # fmt: skip
def test_a_step_makes_its_batch_by_hand(text: str, made: list[str]) -> None:
    program, plan = found(stepped(text))
    assert codes(plan.batches) == made
    assert not plan.training and not plan.wholes and plan.axis == 0
    assert losses(program, plan) == [MEAN]


@pytest.mark.parametrize(
    ("text", "wholes"),
    [
        ("for step in range(9):\n    xb, yb = x, y", {"torch.randn(100, 4)", "torch.randn(100, 1)"}),
        ("data = []\nfor i in range(99):\n    data.append(torch.from_numpy(np.random.randint(0, 9, size=4)).float())\n"
         "every = torch.stack(data)\nfor step in range(9):\n    xb, yb = every, every[:, :1]",
         {"torch.stack(data)"}),
        ("order = torch.randperm(100)\ntrain, test = order[:80], order[80:]\nfor step in range(9):\n"
         "    xb, yb = x[train], y[train]",
         {"order[:80]"}),
        ("mixed = torch.rand(100, 100)\nmask = torch.arange(100) < 40\nfor step in range(9):\n"
         "    h = mixed @ x\n    xb, yb = h[mask], y[mask]",
         {"torch.arange(100) < 40"}),
        ("parts = [(x[i:i + size], y[i:i + size]) for i in range(0, 100, size)]\nfor xb, yb in parts:",
         {"x[i:i + size]", "y[i:i + size]"}),
    ],
)  # fmt: skip
def test_a_step_takes_all_of_the_data(text: str, wholes: set[str]) -> None:
    program, plan = found(stepped(text))
    assert {*codes(plan.wholes)} == wholes and not plan.batches
    assert losses(program, plan) == [MEAN]


def test_moments_of_all_sequences_are_taken_one_after_the_other() -> None:
    text = "cell, series = nn.GRUCell(4, 4), torch.randn(100, 9, 4)\nfor step in range(9):\n"
    text += "    h = torch.zeros(len(series), 4)\n    for t in range(9):\n        h = cell(series[:, t], h)\n"
    program, plan = found(stepped(text + "    xb, yb = h, y"))
    assert {*codes(plan.wholes)} == {"torch.randn(100, 9, 4)", "torch.randn(100, 1)"}
    assert losses(program, plan) == [MEAN]


def test_all_of_the_data_is_shared_out_in_steps_and_replicated_below() -> None:
    program, plan = found(stepped("for step in range(9):\n    xb, yb = x, y") + "result = net(x).mean()\n")
    placements = propagate(program, plan.plan, catalog=CATALOG)
    assert losses(program, plan) == [MEAN] and placements.value(bound(program, "result")) == Replicate()


@pytest.mark.parametrize(
    "text",
    [
        "for xb, yb in zip(x, y):",
        "for i in range(len(x)):\n    xb, yb = x[i], y[i]",
        "for step in range(99):\n    i = random.randrange(len(x))\n    xb, yb = x[i], y[i]",
        "xs, ys = x.view(-1, size, 4), y.view(-1, size, 1)\nfor k in range(len(xs)):\n    xb, yb = xs[k], ys[k]",
    ],
)
def test_a_step_by_one_sample_or_by_what_is_not_known_has_no_batch(text: str) -> None:
    _, plan = found(stepped(text))
    assert not plan.training and not plan.batches and not plan.wholes


LOADER = "loader = DataLoader(TensorDataset(x, y), {size}, shuffle=True, drop_last=True)\n"


@pytest.mark.parametrize(
    "told", ["64", "size", "args.batch_size", "batch_size=size", "batch_size=int(args.batch_size)"]
)
@pytest.mark.parametrize(
    "noise",
    [
        "torch.randn({size}, 4)",
        "torch.normal(0.0, 1.0, ({size}, 4))",
        "torch.zeros({size}, 4)",
        "made[:, :1].expand(-1, 4)",
    ],
)
def test_as_many_numbers_as_a_batch_of_a_loader_are_a_part_of_it(told: str, noise: str) -> None:
    number = told.partition("=")[2] or told
    text = HEAD + "args = argparse.ArgumentParser().parse_args()\n" + LOADER.format(size=told)
    text += (
        f"made = torch.ones({number}, 1)\nfor xb, yb in loader:\n    loss = F.mse_loss(net(xb + {noise}), yb * made)\n"
    )
    program, plan = found(text.format(size=number) + "    loss.backward()\n    opt.step()\n")
    assert len(plan.training) == 1 and not plan.batches
    assert losses(program, plan) == [MEAN]


@pytest.mark.parametrize(
    "line",
    ["shift = torch.randn(4)", "shift = torch.randn(1, 4)", "shift = torch.full((4,), 0.5)", "shift = x.mean(0)"],
)
def test_what_is_drawn_in_another_number_is_replicated(line: str) -> None:
    text = (
        HEAD
        + LOADER.format(size="size")
        + f"for xb, yb in loader:\n    {line}\n    loss = F.mse_loss(net(xb + shift), yb)"
    )
    program, plan = found(text + "\n    loss.backward()\n")
    placements = propagate(program, plan.plan, catalog=CATALOG)
    assert placements.value(bound(program, "shift")) == Replicate() and losses(program, plan) == [MEAN]


@pytest.mark.parametrize(
    "width", ["torch.ones(8)", "torch.ones(width)", "torch.linspace(0, 1, 8)", "torch.full((8,), 2)"]
)
def test_a_vector_as_long_as_a_batch_is_as_wide_as_something_else(width: str) -> None:
    text = f"{HEAD}width = 8\nloader = DataLoader(TensorDataset(x, y), batch_size=8)\nfor xb, yb in loader:\n"
    text += f"    width_of = {width}\n    loss = F.mse_loss(net(xb), yb) * width_of.sum()\n    loss.backward()\n"
    program, plan = found(text)
    placements = propagate(program, plan.plan, catalog=CATALOG)
    assert placements.value(bound(program, "width_of")) == Replicate() and losses(program, plan) == [MEAN]


def test_weights_as_wide_as_a_batch_are_no_batch() -> None:
    text = HEAD + "class Wide(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    text += "        self.w = nn.Parameter(torch.randn(64, 64))\n        self.register_buffer('b', torch.ones(64))\n"
    text += "    def forward(self, v):\n        return v @ self.w + self.b\nwide = Wide()\n"
    text += "loader = DataLoader(TensorDataset(torch.randn(640, 64)), 64)\nfor (xb,) in loader:\n"
    program, plan = found(text + "    loss = wide(xb).pow(2).mean()\n    loss.backward()\n")
    assert losses(program, plan) == [MEAN]


def test_tensors_that_are_trained_are_no_data() -> None:
    text = "w = torch.randn(4, 1)\nw.requires_grad = True\nfor step in range(9):\n    loss = F.mse_loss(x @ w, y)\n"
    program, plan = found(HEAD + text + "    w.grad = None\n    loss.backward()\n    w.data += -0.1 * w.grad\n")
    assert {*codes(plan.wholes)} == {"torch.randn(100, 4)", "torch.randn(100, 1)"}
    assert losses(program, plan) == [MEAN]


def test_loaders_that_only_evaluate_are_replicated() -> None:
    text = LOADER.format(size="size") + "valid = DataLoader(TensorDataset(x, y), size)\nfor xb, yb in loader:"
    program, plan = found(stepped(text) + "for a, b in valid:\n    result = F.mse_loss(net(a), b)\n")
    assert [each.argument("shuffle", 2) is not None for each in plan.training] == [True]
    placements = propagate(program, plan.plan, catalog=CATALOG)
    assert placements.value(bound(program, "result")) == Replicate() and losses(program, plan) == [MEAN]


LSTM = """\
text = torch.randint(0, 30, (5000,))
columns = 20
class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.lstm, self.head = nn.Embedding(30, 8), nn.LSTM(8, 8), nn.Linear(8, 30)
    def forward(self, words, states):
        out, states = self.lstm(self.embedding(words), states)
        return self.head(out), states
words = Words()
states = (torch.zeros(1, columns, 8), torch.zeros(1, columns, 8))
"""


@pytest.mark.parametrize(
    "laid", ["view(columns, -1)", "view(columns, text.size(0) // columns)", "reshape(columns, -1)"]
)
@pytest.mark.parametrize("cut", ["data[i + 1:i + 6].reshape(-1)", "data[i + 1:i + 1 + 5].flatten()"])
def test_slices_that_step_along_sequences_have_them_side_by_side(laid: str, cut: str) -> None:
    text = HEAD + LSTM + f"data = text.{laid}.t()\nfor i in range(0, len(data) - 1, 5):\n"
    text += f"    out, states = words(data[i:i + 5], tuple(each.detach() for each in states))\n    target = {cut}\n"
    program, plan = found(text + "    loss = F.cross_entropy(out.view(-1, 30), target)\n    loss.backward()\n")
    assert plan.axis == 1 and len(plan.batches) == 2
    assert losses(program, plan) == [MEAN]


def test_the_axis_of_samples_is_the_one_that_losses_are_means_over() -> None:
    text = HEAD + "gru = nn.GRU(4, 4)\nfor step in range(9):\n    out, _ = gru(torch.randn(20, 8, 4))\n"
    program, plan = found(text + "    loss = out.pow(2).mean()\n    loss.backward()\n")
    assert plan.axis == 1 and losses(program, plan) == [MEAN]


def test_what_a_batch_gives_is_no_other_batch() -> None:
    text = "for i in range(0, len(x), size):\n    xb, yb = x[i:i + size], y[i:i + size]\n"
    text += "    level = torch.randint(0, 9, (xb.shape[0],))\n    xb = xb + torch.linspace(0, 1, 9)[level][:, None]"
    program, plan = found(stepped(text))
    assert codes(plan.batches) == ["x[i:i + size]", "y[i:i + size]"] and losses(program, plan) == [MEAN]


@pytest.mark.parametrize(
    "line",
    ["torch.stack([xb[k] + xb[random.randrange(10)] for k in range(size)])", "xb + xb[torch.randint(0, 10, (size,))]"],
)
def test_numbers_that_pick_of_the_batch_itself_are_no_other_batch(line: str) -> None:
    text = "for i in range(0, len(x), size):\n    xb, yb = x[i:i + size], y[i:i + size]\n"
    _, plan = found(stepped(text + f"    xb = {line}"))
    assert codes(plan.batches) == ["x[i:i + size]", "y[i:i + size]"]


def test_a_loop_goes_over_as_many_samples_as_a_batch_has() -> None:
    text = "for step in range(9):\n    chosen = torch.randint(len(x), (size,))\n    xb, yb = x[chosen], y[chosen]\n"
    text += "    xb = torch.stack([xb[k] * 2 for k in range(size)])"
    program, plan = found(stepped(text))
    assert losses(program, plan) == [MEAN]


def test_placements_of_sources() -> None:
    _, plan = found(stepped("for i in range(0, 100, size):\n    xb, yb = x[i:i + size], y[i:i + size]"))
    assert {plan.placement_of(each) for each in plan.batches} == {Shard(0)}


LOADERS = """
from torch.utils.data import Dataset

def made(kind, count{given}):
    return DataLoader(TensorDataset(x[:count], y[:count]), batch_size=10, shuffle={shuffle})

{make}
for xb, yb in first:
    loss = F.mse_loss(net(xb), yb)
    opt.zero_grad()
    loss.backward()
    opt.step()
with torch.no_grad():
    print(sum(F.mse_loss(net(xb), yb).item() for xb, yb in second))
"""


@pytest.mark.parametrize(
    ("given", "shuffle", "make", "shared"),
    [
        ("", "True", "first, second = made('train', 80), made('test', 20)", 1),
        (", train", "train", "first, second = made(0, 80, True), made(0, 80, False)", 1),
        ("", "True", "first, second = made(0, len(x)), made(0, len(y))", 2),
        ("", "True", "first, second = [made(0, n) for n in (len(x) - 20, 20)]", 1),
    ],
)
def test_what_one_call_makes_is_shared_out_if_nothing_tells_it_apart(
    given: str, shuffle: str, make: str, shared: int
) -> None:
    _, given_to = found(HEAD + LOADERS.format(given=given, shuffle=shuffle, make=make))
    assert len(given_to.training) == shared


@pytest.mark.parametrize(
    "number",
    ["len(x)", "x.shape[0]", "y.shape[0]", "x.size(0)", "x.size(dim=0)", "x.size()[0]", "(x.shape)[0] // 1"],
)
@pytest.mark.parametrize("loss", ["(net(x) - y).pow(2).sum() / n", "(net(x) - y).pow(2).sum() / (2 * n)"])
def test_numbers_of_whole_data_that_are_told_ahead_of_the_steps(number: str, loss: str) -> None:
    text = f"{HEAD}n = {number}\nfor step in range(9):\n    loss = {loss}\n    loss.backward()\n    opt.step()\n"
    program, plan = found(text)
    assert codes(plan.wholes) == ["torch.randn(100, 4)", "torch.randn(100, 1)"]
    assert all(isinstance(each, Partial) for each in losses(program, plan))


@pytest.mark.parametrize("number", ["x.shape[1]", "x.size(1)"])
def test_the_size_of_another_axis_is_no_number_of_samples(number: str) -> None:
    text = f"{HEAD}n = {number}\nfor step in range(9):\n    loss = (net(x) - y).pow(2).sum() / n\n    loss.backward()\n"
    _, plan = found(text)
    assert plan.rows == frozenset() and len(plan.wholes) == 2
