"""How values of small programs lie over the ranks, where each has its share of a loader's batches."""

from __future__ import annotations

import pytest
from programs import CATALOG, bound, traced

from autodist.placement import Partial, PerRank, Placement, Replicate, Shard
from autodist.placement.placements import Placements
from autodist.placement.propagate import propagate
from autodist.program import Program

HEAD = """\
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randint(3, (64,))), batch_size=8, shuffle=True)
net = nn.Linear(4, 3)
for x, y in loader:
    out = net(x)
"""
AFTER = HEAD.replace("for x, y in loader:\n    out = net(x)\n", "")
MEAN, SUM, COUNT = Partial("mean", "rows"), Partial("sum"), Partial("sum", "rows")


def placed(text: str) -> tuple[Program, Placements]:
    program = traced(text)
    return program, propagate(program, lambda source: Shard(0), catalog=CATALOG)


def lies(text: str) -> Placement | None:
    program, placements = placed(text)
    return placements.value(bound(program, "result"))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("out", Shard(0)),
        ("out.softmax(1).argmax(1)", Shard(0)),
        ("out.T", Shard(1)),
        ("out[:, None]", Shard(0)),
        ("torch.squeeze(nn.GRU(4, 3)(x.view(1, -1, 4))[1], 0)", Shard(0)),
        ("torch.einsum('nc,cd->nd', (x, torch.ones(4, 2)))", Shard(0)),
        ("torch.einsum('nc,mc->nm', [x, torch.ones(2, 4)])", Shard(0)),
        ("out[:, None] + torch.ones(5, 1, 3).permute(1, 0, 2)", Shard(0)),
        ("out[:, None] + torch.ones(5, 1, 3).transpose(0, 1)[:, :4]", Shard(0)),
        ("out + torch.ones(1, 3)[:, :] + torch.ones(1, 3)[:2]", Shard(0)),
        ("list([out for _ in range(len(loader))][::-1])[2] * 2", Shard(0)),
        ("F.pad(out[:, None, None], (1, 0)).mean()", MEAN),
        ("out[:, 0]", Shard(0)),
        ("torch.eye(3)[y]", Shard(0)),
        ("x[torch.arange(len(x))[:, None], x.argsort(1)[:, :2]]", Shard(0)),
        ("x[torch.arange(len(x)).unsqueeze(1), torch.arange(2)]", Shard(0)),
        ("torch.randn(3)", Replicate()),
        ("torch.randn(len(x), 5)", Shard(0)),
        ("torch.randn_like(out)", Shard(0)),
        ("torch.zeros(x.shape)", Shard(0)),
        ("net.weight.sum()", Replicate()),
        # losses
        ("F.cross_entropy(out, y)", MEAN),
        ("F.cross_entropy(out, y, reduction='sum')", SUM),
        ("F.cross_entropy(out, y, reduction='none')", Shard(0)),
        ("nn.CrossEntropyLoss()(out, y)", MEAN),
        ("nn.CrossEntropyLoss(ignore_index=0)(out, y)", Partial("mean", "what counts of rows")),
        ("F.cross_entropy(out, y) + 0.1 * net.weight.pow(2).sum()", MEAN),
        ("F.cross_entropy(out, y, reduction='sum') / len(x)", MEAN),
        ("F.cross_entropy(out, y) * len(x)", SUM),
        # numbers that are reported
        ("F.cross_entropy(out, y).item()", MEAN),
        ("(out.argmax(1) == y).sum().item()", SUM),
        ("(out.argmax(1) == y).float().mean()", MEAN),
        ("len(x)", COUNT),
        ("x.shape[0]", COUNT),
        ("x.size(1)", Replicate()),
        ("out.max()", Partial("max")),
        # several tensors of a batch behind each other: the samples stand in another order
        ("torch.cat([out, out])", Shard(0, order="2 in turn")),
        ("torch.cat([out, out]).mean()", MEAN),
        ("torch.cat([out, out], dim=1)", Shard(0)),
        ("F.linear(out, weight=torch.ones(3, 2))", Shard(0)),
        ("F.linear(weight=torch.ones(3, 2), input=out)", Shard(0)),
        ("torch.cat(tensors=[out, out], dim=1)", Shard(0)),
        ("torch.stack(tensors=[out, out], dim=1).mean()", MEAN),
        # in loops over samples
        ("torch.stack([row * 2 for row in out])", Shard(0)),
        ("sum(row.sum() for row in out)", SUM),
        ("len([1 for row in out])", Partial("sum", "rows")),
        # with regard to samples, the gradient of a mean is N times as large
        ("torch.autograd.grad(F.cross_entropy(net(x), y), x)[0]", Shard(0, exponent=1)),
    ],
)  # fmt: skip
def test_of_a_batch(line: str, expected: Placement) -> None:
    assert lies(HEAD + f"    result = {line}\n") == expected


@pytest.mark.parametrize(
    ("line", "operation", "reason"),
    [
        ("out[:4]", "getitem", "takes samples by their places"),
        ("out @ out.T", "operator.matmul", "combines each rank's samples with each other"),
        ("torch.cdist(out, out)", "torch.cdist", "combines each rank's samples with each other"),
        ("F.linear(out, out)", "torch.nn.functional.linear", "combines each rank's samples with each other"),
        ("F.linear(out, weight=out)", "torch.nn.functional.linear", "combines each rank's samples with each other"),
        (
            "F.linear(weight=out, input=out)",
            "torch.nn.functional.linear",
            "combines each rank's samples with each other",
        ),
        ("out.softmax(0)", "torch.softmax", "along the axis of the samples"),
        ("out - out.mean(0)", "operator.sub", "meet a number that is each rank's own"),
        ("F.cross_entropy(out, y).exp()", "torch.exp", "not linear"),
        ("F.cross_entropy(out, y) + F.cross_entropy(out, y, reduction='sum')", "operator.add", "in different ways"),
        ("out.repeat_interleave(len(x), 0)", "torch.repeat_interleave", "meet its own others"),
        ("out.repeat(len(x), 1)", "torch.Tensor.repeat", "combines each rank's samples with each other"),
        ("out[torch.randperm(len(x))[:4]]", "getitem", "as many of each rank's own samples"),
        ("out.std()", "torch.std", "computed of all samples together"),
        ("out.sort(0).values", "torch.sort", "along the axis of the samples"),
        ("torch.cat([out, out]) + torch.cat([out, out, out])[:16]", "getitem", "by their places"),
        ("sum(out[i] * out.mean() for i in range(len(x)))", "operator.mul", "one sample meets"),
    ],
)
def test_names_the_operation_that_mixes_samples(line: str, operation: str, reason: str) -> None:
    found = lies(HEAD + f"    result = {line}\n")
    assert isinstance(found, PerRank), found
    assert found.operation == operation and reason in found.reason


@pytest.mark.parametrize(
    "line",
    [
        "out[y > 0].mean()",
        "torch.randn(len(out[y > 0]), 2).mean()",
        "torch.zeros(out[y > 0].shape[0]).add(1).mean()",
        "out[y > 0].sum() / out[y > 0].shape[0]",
        "np.mean([row.sum() for row, n in zip(out, y) if n > 0])",
        "torch.stack([row for row, n in zip(out, y) if n > 0]).mean()",
        "torch.tensor([row.sum() for row, n in zip(out, y) if n > 0]).mean()",
        "sum(row.sum() for row in out) / len([row for row in out if row[0] > 0])",
        "out.new_ones(out[y > 0].shape).mean()",
        "F.cross_entropy(out[y > 0], y[y > 0])",
        "torch.cat([row[: int(n)] for row, n in zip(out, y)]).mean()",
        "F.l1_loss(torch.cat([row[:n] for row, n in zip(out, y)]), torch.cat([row[:n] for row, n in zip(x, y)]))",
    ],
)
def test_a_mean_over_uneven_shares_knows_what_weighs_it(line: str) -> None:
    """Ranks keep different numbers of rows: the mean of their means is not the mean."""
    found = lies(HEAD + f"    result = {line}\n")
    assert isinstance(found, Partial) and found.reduce == "mean" and found.weight not in ("", "rows")


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("total = 0\nfor x, y in loader:\n    total += F.cross_entropy(net(x), y).item()\nresult = total", MEAN),
        ("total = 0\nfor x, y in loader:\n    total += (net(x).argmax(1) == y).sum()\nresult = total / 64", SUM),
        ("total = torch.zeros(())\nfor x, y in loader:\n"
         "    total += F.cross_entropy(net(x), y).detach() * len(x)\nresult = total",
         SUM),
        ("n = 0\nfor x, y in loader:\n    n += len(x)\nresult = n", Partial("sum", "sum of rows")),
        ("right = n = 0\nfor x, y in loader:\n    right += (net(x).argmax(1) == y).sum()\n    n += len(x)\n"
         "result = right / n",
         Partial("mean", "sum of rows")),
        ("losses = []\nfor x, y in loader:\n    losses.append(F.cross_entropy(net(x), y).item())\n"
         "result = np.mean(losses)", MEAN),
        ("found = []\nfor x, y in loader:\n    found.append(net(x))\n"
         "result = torch.cat(found)", Shard(0, order="batches in turn")),
        ("steps = 0\nfor x, y in loader:\n    steps += 1\nresult = steps", Replicate()),
        ("right = 0\nfor x, y in loader:\n    for guess, label in zip(net(x).argmax(1), y):\n"
         "        right += int(guess == label)\n"
         "result = right", SUM),
        ("counts = torch.zeros(3)\nfor x, y in loader:\n    for label in y:\n        counts[label] += 1\n"
         "result = counts", SUM),
        ("right = 0\nfor x, y in loader:\n    guesses = net(x).argmax(1)\n    for at, label in enumerate(y):\n"
         "        right += int(guesses[at] == label)\nresult = right", SUM),
        ("right = {'a': 0, 'b': 0}\nfor x, y in loader:\n    for label in y:\n"
         "        right['ab'[label]] += 1\nresult = right['a']", SUM),
        ("total = 0\nfor x, y in loader:\n    found = 0\n    for each, label in zip(net(x), y):\n"
         "        found += F.cross_entropy(each[None], label[None]) / len(x)\nresult = found", MEAN),
        ("last = torch.zeros(())\nfor x, y in loader:\n    last.copy_(F.cross_entropy(net(x), y).detach())\n"
         "result = last", MEAN),
        ("last = torch.zeros(())\nfor x, y in loader:\n    last.fill_(F.cross_entropy(net(x), y).item())\n"
         "result = last * 2", MEAN),
        ("for x, y in loader:\n    pass\nresult = len(loader.sampler)", Partial("sum", "rows")),
        ("n = 0\nfor x, y in loader:\n    n += y.size().numel()\nresult = n", Partial("sum", "sum of rows")),
        ("class Meter:\n    def __init__(self):\n        self.sum = self.n = 0\n    def update(self, v, n):\n"
         "        self.sum += v * n\n"
         "        self.n += n\n    @property\n    def mean(self):\n        return self.sum / self.n\nmeter = Meter()\n"
         "for x, y in loader:\n    meter.update(F.cross_entropy(net(x), y).item(), len(x))\nresult = meter.mean",
         Partial("mean", "sum of rows")),
    ],
)  # fmt: skip
def test_of_what_loops_add_up(lines: str, expected: Placement) -> None:
    assert lies(AFTER + lines + "\n") == expected


@pytest.mark.parametrize(
    "line",
    ["found.append(loss.item())", "found += [loss.item()]", "found.extend([loss.item()])"],
)
def test_ranks_that_keep_different_numbers_of_losses_have_no_common_mean(line: str) -> None:
    text = f"found = []\nfor x, y in loader:\n    loss = F.cross_entropy(net(x), y)\n    if loss < 1:\n        {line}\n"
    found = lies(AFTER + text + "result = np.mean(found)\n")
    assert isinstance(found, PerRank) and "different numbers of values" in found.reason


@pytest.mark.parametrize(
    "collate",
    [
        "def collate(samples):\n    x, y = zip(*samples)\n    return torch.stack(x), torch.tensor(y)\n",
        "def collate(samples):\n"
        "    return torch.stack([s[0] for s in samples]), torch.tensor([s[1] for s in samples])\n",
        "from torch.nn.utils.rnn import pad_sequence\ndef collate(samples):\n    x, y = zip(*samples)\n"
        "    return pad_sequence(x, batch_first=True), torch.tensor(y)\n",
    ],
)
def test_of_batches_that_a_function_lays_together(collate: str) -> None:
    text = AFTER + collate + "data = TensorDataset(torch.randn(64, 4), torch.randint(3, (64,)))\n"
    text += "for x, y in DataLoader(data, 8, collate_fn=collate):\n    result = F.cross_entropy(net(x), y)\n"
    assert lies(text) == MEAN


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("for k in range(4):\n        result = x.T[k]", Shard(0)),
        ("for k in range(4):\n        result = x.T[2 * k - 1]", Shard(0)),
        ("for k in [0, 2]:\n        result = x.T[k]", Shard(0)),
        ("result = x.T[torch.arange(3)]", Shard(1)),
        ("result = x.T[[0, 2]]", Shard(1)),
        ("result = torch.stack([x.T * k for k in range(9)])", Shard(2)),
        ("result = torch.cat([x.T * k for k in range(9)])", Shard(1)),
        ("result = net(torch.stack([x * k for k in range(9)]))", Shard(1)),
        ("result = x.T.reshape(-1)", Shard(0, order="1 axes first")),
        ("result = out.T.reshape(-1).mean()", MEAN),
    ],
)
def test_of_axes_before_that_of_samples(line: str, expected: Placement) -> None:
    assert lies(HEAD + f"    {line}\n") == expected


def test_what_every_rank_reads_in_full_is_replicated() -> None:
    program = traced(HEAD + "    result = F.cross_entropy(out, y)\n")
    placements = propagate(program, lambda source: Replicate(), catalog=CATALOG)
    assert {*placements.of.values()} == {Replicate()}
