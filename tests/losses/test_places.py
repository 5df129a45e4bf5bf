"""Samples that a loss takes by their place, one after the other, or divides by how many there are."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

SCRIPT = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randint(0, 3, (64,))), batch_size=8, shuffle=True)
model = nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        out = model(x)
        {step}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(loss.item())
"""
PLAIN = "F.cross_entropy(out, y)"
APART = 'F.cross_entropy(out, y, reduction="none")'


def loss_of(folder: Path, step: str) -> tuple[str, str]:
    """What a training step is converted to, and what is said of it."""
    return converted(folder, SCRIPT.replace("{step}", step.replace("\n", "\n        ")))


@pytest.mark.parametrize(
    "step",
    [
        f"loss = {PLAIN} + out[0].abs().sum()",
        f"loss = {PLAIN} + out[-1].abs().sum()",
        f"loss = {PLAIN} + (out[0] - out[1]).pow(2).mean()",
        f"loss = {PLAIN} + out[[0, 3]].abs().mean()",
        f"loss = {PLAIN} + out.index_select(0, torch.tensor([0, 3])).abs().mean()",
        f"loss = {PLAIN} + out.narrow(0, 0, 4).abs().mean()",
        f"k = 2\nloss = {PLAIN} + out[:k].abs().mean()",
        f"k = out.shape[1]\nloss = {PLAIN} + out[:k].abs().mean()",
        f"k = min(4, len(x))\nloss = {PLAIN} + out[:k].abs().mean()",
        f"loss = {PLAIN}\nfor i in range(2):\n    loss = loss + out[i].abs().mean()",
        f"loss = {PLAIN} + out.diff(dim=0).pow(2).mean()",
        "loss = F.cross_entropy(out[1 : len(x)], y[1 : len(x)])",
        "loss = F.cross_entropy(out[2:], y[2:])",
        "k = 1 + epoch\nloss = F.cross_entropy(out[:k], y[:k])",
        f"places = torch.tensor([0, 3])\nloss = {PLAIN} + out[places].abs().mean()",
        f"places = torch.arange(0, 8, 2)\nloss = {PLAIN} + out[places].abs().mean()",
        f"places = [0, 3]\nloss = {PLAIN} + out[places].abs().mean()",
        f"part = slice(0, 2)\nloss = {PLAIN} + out[part].abs().mean()",
        f"rows = out.unbind(0)\nloss = {PLAIN} + (rows[0] - rows[1]).pow(2).mean()",
    ],
)
def test_samples_by_their_place_are_those_of_all_ranks(tmp_path: Path, step: str) -> None:
    code, said = loss_of(tmp_path, step)
    assert "RowsOfAllRanks.apply(" in code or "reduce_" in code.split("loss = ")[1].splitlines()[0], code
    assert "AD606" in said and "AD602" not in said


@pytest.mark.parametrize(
    "step",
    [
        "k = 1 + epoch\nloss = F.cross_entropy(model(x[:k]), y[:k])",
        "places = torch.tensor([0, 3])\nloss = F.cross_entropy(model(x.index_select(0, places)), y[places])",
        "places = [0, 3]\nloss = F.cross_entropy(model(x[places]), y[places])",
    ],
)
def test_places_that_nothing_makes_global_are_told(tmp_path: Path, step: str) -> None:
    _, said = loss_of(tmp_path, step)
    assert "AD602" in said and "samples by their places" in said


@pytest.mark.parametrize(
    "step",
    [
        "n = x.size(0) // 2\nloss = F.cross_entropy(out[:n], y[:n])",
        f"half = len(x) // 2\nloss = {PLAIN} + (out[:half] - out[half:]).pow(2).mean()",
        f"both = model(torch.cat((x, x + 0.1)))\nloss = {PLAIN} + (both[: len(x)] - both[len(x) :]).pow(2).mean()",
        f"a, b = out.chunk(2)\nloss = {PLAIN} + (a - b).pow(2).mean()",
        f"a, b = out.view(2, -1, 3)\nloss = {PLAIN} + (a - b).pow(2).mean()",
        f"loss = {PLAIN} + out.max(1)[0].mean()",
        f"both = torch.stack([out, model(x + 0.1)])\nloss = {PLAIN} + both[1].pow(2).mean()",
        f"loss = {PLAIN} + out.unsqueeze(0)[0].pow(2).mean()",
        f"loss = {PLAIN} + out.t()[0].pow(2).mean()",
        f"loss = {PLAIN} + out[:, :2].pow(2).mean()",
        "n, c = out.shape\nloss = torch.stack([out[i, :c] for i in range(n)]).pow(2).mean()",
        f"for j in range(3):\n    loss = {PLAIN} + out[:, j].pow(2).mean()",
        f"loss = {PLAIN} + torch.einsum('bi,bi->b', out, out).mean()",
    ],
)
def test_a_share_of_the_samples_is_that_of_the_batch(tmp_path: Path, step: str) -> None:
    """Halves, and what is told from other axes. A DistributedSampler deals every N-th sample to a rank, so that the
    first half of its samples are of the first half of the batch."""
    code, said = loss_of(tmp_path, step)
    assert "RowsOfAllRanks" not in code and "AD602" not in said and "    loss.backward()" in code


@pytest.mark.parametrize(
    "total",
    [
        "total = 0\nfor i in range(len(x)):\n    total = total + (out[i] - y[i]).abs().mean()",
        "n = x.size(0)\ntotal = 0\nfor i in range(n):\n    o, t = out[i], y[i]\n    total += (o - t).abs().mean()",
        "total = 0\nfor o, t in zip(out, y):\n    total += (o - t).abs().mean()",
        "total = 0\nfor o in out:\n    total = total + o.abs().mean()",
        "total = sum((out[i] - y[i]).abs().mean() for i in range(len(x)))",
        "total = []\nfor i in range(len(x)):\n    total.append(out[i].abs().mean())\ntotal = torch.stack(total).sum()",
        "total = 0\nfor i in range(0, len(x), 2):\n    total += F.cross_entropy(out[i : i + 2], y[i : i + 2])",
        "total = 0\nfor i in range(len(x) // 2):\n    total += out[2 * i : 2 * i + 2].abs().mean()",
        "total = 0\nfor o, t in zip(out.split(2), y.split(2)):\n    total += F.cross_entropy(o, t)",
    ],
)
def test_means_of_one_sample_after_the_other_are_added_up(tmp_path: Path, total: str) -> None:
    code, said = loss_of(tmp_path, total + "\nloss = total")
    assert "(loss * dist.get_world_size()).backward()" in code and "reduce_sum(loss.item())" in code
    assert "RowsOfAllRanks" not in code and "AD602" not in said
    code, said = loss_of(tmp_path, total + "\nloss = total / len(x)")
    assert "    loss.backward()" in code and "reduce_mean(loss.item())" in code
    assert "RowsOfAllRanks" not in code and "AD602" not in said


@pytest.mark.parametrize(
    "step",
    [
        f"loss = ({APART} / len(x)).sum()",
        f"each = {APART} / x.size(0)\nloss = each.sum()",
        f"loss = torch.sum({APART}.div(x.shape[0]))",
        f"loss = ({APART} * (1 / len(x))).sum()",
        f"w = torch.full((len(x),), 1.0 / len(x))\nloss = (w * {APART}).sum()",
        f"w = torch.ones(len(x)) / len(x)\nloss = torch.dot({APART}, w)",
        f"loss = {APART}.sum() / max(1, len(x))",
        "loss = 0\nfor i in range(len(x)):\n    loss += (out[i] - y[i]).abs().mean() / len(x)",
        "loss = 0\nfor i in range(len(x)):\n    loss += F.cross_entropy(out[i : i + 1], y[i : i + 1]) / len(x)",
    ],
)
def test_what_is_divided_before_it_is_added_up_is_a_mean(tmp_path: Path, step: str) -> None:
    code, said = loss_of(tmp_path, step)
    assert "    loss.backward()" in code and "reduce_mean(loss.item())" in code
    assert "* dist.get_world_size()" not in code and "AD602" not in said


def test_a_mean_that_is_divided_once_more_is_not_one(tmp_path: Path) -> None:
    code, said = loss_of(tmp_path, f"loss = ({APART} / len(x)).mean()")
    assert "AD602" in said or "dist.get_world_size()" in code.split("loss = ")[1].splitlines()[0]


@pytest.mark.parametrize(
    ("equation", "kept"), [("bi,bj->ij", False), ("bi,bj->bij", True), ("bi,ij->bj", True), ("bi,ij->jb", True)]
)
def test_sums_of_products_over_the_samples(tmp_path: Path, equation: str, kept: bool) -> None:
    other = "torch.eye(3)" if "ij->" in equation else "out"
    code, said = loss_of(tmp_path, f"g = torch.einsum('{equation}', out, {other})\nloss = {PLAIN} + g.pow(2).mean()")
    assert ("SumOverRanks" in code.split("g = ")[1].splitlines()[0]) is not kept and "AD602" not in said


def test_a_queue_takes_the_rows_of_all_ranks(tmp_path: Path) -> None:
    """What it holds already is whole, and what meets it is a rank's own."""
    step = f"loss = {PLAIN} + (out @ queue.t()).logsumexp(1).mean()\nqueue = torch.cat((queue, out.detach()))[-32:]"
    text = SCRIPT.replace("for epoch", "queue = torch.zeros(32, 3)\nfor epoch")
    code, said = converted(tmp_path, text.replace("{step}", step.replace("\n", "\n        ")))
    assert "torch.cat((queue, gather_rows(out.detach())))[-32:]" in code and "AD602" not in said
    assert "(out @ queue.t()).logsumexp(1).mean()" in code


def test_a_model_that_gives_several_outputs(tmp_path: Path) -> None:
    """`out[0]` is the first output of a model of a library, and none of its samples."""
    text = SCRIPT.replace("nn.Linear(4, 3)", "timm.create_model('tiny')").replace(
        "import torch\n", "import timm\nimport torch\n"
    )
    code, _ = converted(tmp_path, text.replace("{step}", "loss = F.cross_entropy(out[0], y) + out[1].mean()"))
    assert "RowsOfAllRanks" not in code


@pytest.mark.parametrize(
    "total",
    [
        "total = 0\nfor o, t in zip(out, y):\n    total = total - o.log_softmax(0)[t]",
        "total = 0\nfor o in out:\n    total = total + (o[1] - o[0]) * 0.1 + o[:2].sum() - o.max() + o.sort()[0][0]",
        "total = 0\nfor o in out:\n    total += (o - o.mean()).norm() / o.size(0)",
    ],
)
def test_what_is_computed_from_one_sample_alone(tmp_path: Path, total: str) -> None:
    """Whatever axis it is taken along, it is none of the batch."""
    code, said = loss_of(tmp_path, total + "\nloss = total / len(x)")
    assert "    loss.backward()" in code and "RowsOfAllRanks" not in code and "AD602" not in said


@pytest.mark.parametrize(
    "step",
    [
        f"loss = {PLAIN}\nfor i in range(len(x)):\n    loss = loss + (out - out[i]).pow(2).sum(1).mean()",
        "loss = 0\nfor i in range(len(x)):\n    loss = loss + F.cosine_similarity(out[i : i + 1], out).logsumexp(0)",
        f"loss = {PLAIN}\nfor i in range(1, len(x)):\n    loss = loss + (out[i] - out[i - 1]).pow(2).mean()",
        f"loss = {PLAIN}\nfor i in range(len(x)):\n    loss += F.cosine_similarity(out[i : i + 1], out).logsumexp(0)",
        f"loss = {PLAIN}\nfor i in range(len(x)):\n    for j in range(i):\n        loss += (out[i] - out[j]).norm()",
    ],
)
def test_a_sample_that_meets_the_others_in_a_loop(tmp_path: Path, step: str) -> None:
    """The loop goes over the samples of all ranks, which are gathered once, ahead of it; or is told of."""
    code, said = loss_of(tmp_path, step)
    whole = "out = RowsOfAllRanks.apply(" in code and "len(x) * dist.get_world_size()):" in code
    assert code.count("RowsOfAllRanks.apply(") == 1 and whole or "AD602" in said or "AD906" in said


def test_the_last_number_of_a_loop_counts_its_samples(tmp_path: Path) -> None:
    step = "loss = 0\nfor i, o in enumerate(out):\n    loss += (o - y[i]).abs().mean()\nloss /= i + 1"
    code, said = loss_of(tmp_path, step)
    assert "    loss.backward()" in code and "AD602" not in said


@pytest.mark.parametrize("division", ["p.grad /= len(x)", "p.grad.div_(len(x))", "p.grad.data = p.grad.data / len(x)"])
def test_gradients_are_divided_by_the_samples_of_all_ranks(tmp_path: Path, division: str) -> None:
    text = SCRIPT.replace(
        "        optimizer.step()",
        f"        for p in model.parameters():\n            {division}\n        optimizer.step()",
    )
    code, _ = converted(tmp_path, text.replace("{step}", 'loss = F.cross_entropy(out, y, reduction="sum")'))
    assert "len(x) * dist.get_world_size()" in code and "(loss * dist.get_world_size()).backward()" in code


def test_gradients_of_one_part_after_the_other(tmp_path: Path) -> None:
    text = SCRIPT.replace("        loss.backward()\n", "").replace("        optimizer.zero_grad()\n", "")
    step = "optimizer.zero_grad()\nfor xs, ys in zip(x.split(4), y.split(4)):\n    F.cross_entropy(model(xs), ys)"
    step += ".backward()"
    code, _ = converted(tmp_path, text.replace("{step}", step.replace("\n", "\n        ")))
    assert "(F.cross_entropy(model(xs), ys) * dist.get_world_size()).backward()" in code


def test_what_is_compared_with_gathered_rows_is_gathered(tmp_path: Path) -> None:
    """One metric needs the rows, another one would have been a mean."""
    text = SCRIPT.replace(
        "    print(loss.item())",
        "    o, t = torch.cat(outs), torch.cat(ys)\n    print((o.argmax(1) == t).float().mean(), o.std())",
    )
    text = text.replace("    for x, y", "    outs, ys = [], []\n    for x, y")
    code, _ = converted(
        tmp_path, text.replace("{step}", f"loss = {PLAIN}\n        outs.append(out.detach())\n        ys.append(y)")
    )
    assert "outs.append(gather_rows(out.detach()))" in code and "ys.append(gather_rows(y))" in code


@pytest.mark.parametrize(
    "size", ["out[0].numel()", "out[0].dim()", "out[:2].dim()", "x[0].nelement()", "x[0].shape[0]", "len(x[0])"]
)
def test_how_large_a_sample_is(tmp_path: Path, size: str) -> None:
    code, said = loss_of(tmp_path, f"n = {size}\nloss = {PLAIN} + n * out.pow(2).sum(1).mean()")
    assert "RowsOfAllRanks" not in code and "AD602" not in said


def test_a_field_of_a_batch_is_no_sample(tmp_path: Path) -> None:
    """A batch of a library's data set may be a list; what compares its samples takes those of its first field."""
    text = SCRIPT.replace("for x, y in loader:", "for batch in loader:\n        x, y = batch[0].flatten(1), batch[1]")
    text = text.replace("TensorDataset(torch.randn(64, 4), torch.randint(0, 3, (64,)))", 'MNIST(".")')
    text = "from torchvision.datasets import MNIST\n" + text
    code, _ = converted(tmp_path, text.replace("{step}", "loss = (out - out.median(0)[0]).pow(2).mean()"))
    assert "RowsOfAllRanks.apply(batch)" not in code and "RowsOfAllRanks.apply(" in code


@pytest.mark.parametrize("number", ["3", "shots"])
def test_samples_that_are_taken_before_the_model_is_run(tmp_path: Path, number: str) -> None:
    """The first of every rank are not those of the batch, whatever is gathered of what the model makes of them."""
    step = (
        f"first, others = model(x[:{number}]), model(x[{number}:])\n"
        f"loss = F.cross_entropy(-torch.cdist(others, first), y[{number}:])"
    )
    after, said = loss_of(tmp_path, f"shots = 3\n{step}")
    assert "RowsOfAllRanks" not in after and f"AD602 x[:{number}]: it takes samples by their places" in said
    step = step.replace("-torch.cdist(others, first), y", "others - first.mean(0), y")
    after, said = loss_of(tmp_path, f"shots = 3\n{step}")
    assert "RowsOfAllRanks" not in after and "AD602" in said


def test_samples_that_are_taken_of_what_the_model_gave(tmp_path: Path) -> None:
    step = "first, others = out[:shots], out[shots:]\nloss = F.cross_entropy(-torch.cdist(others, first), y[shots:])"
    after, said = loss_of(tmp_path, f"shots = 3\n{step}")
    assert "out = RowsOfAllRanks.apply(model(x))" in after and "AD602" not in said


@pytest.mark.parametrize(
    "step",
    [
        "loss = torch.pdist(out).mean()\nfor i in range(len(x)):\n"
        "    loss = loss + 0.9**i * F.cross_entropy(out[i : i + 1], y[i : i + 1]) / len(x)",
        "loss = torch.cdist(out, out).mean()\nfor i, (o, t) in enumerate(zip(out, y)):\n"
        "    loss = loss + 0.9**i * (o[t] - 1).pow(2) / len(x)",
    ],
)
def test_rows_that_are_gathered_number_no_others(tmp_path: Path, step: str) -> None:
    """What is gathered for one part of a loss makes the numbers of samples in another part none of all ranks: those
    are gathered as well."""
    code, said = loss_of(tmp_path, step)
    assert "RowsOfAllRanks.apply(model(x))" in code and "RowsOfAllRanks.apply(y)" in code and "AD602" not in said


PAIRS = """\
loss = 0
for i in range(len(out)):
    for j in range(len(out)):
        if y[i] != y[j]:
            loss = loss + torch.exp(-(out[i] - out[j]).pow(2).sum()) / len(out)"""


@pytest.mark.parametrize(
    "step", [PAIRS, PAIRS.replace("range(i)", "range(len(out))").replace("if y[i] != y[j]", "if True")]
)
def test_pairs_that_loops_within_loops_come_to(tmp_path: Path, step: str) -> None:
    """Each sample of a rank meets its others: what is compared is gathered ahead of the loops, and what decides."""
    code, said = loss_of(tmp_path, step)
    ahead = code[: code.index("for i in range(")]
    assert "out = RowsOfAllRanks.apply(" in ahead and "AD602" not in said
    assert ("y = RowsOfAllRanks.apply(y)" in ahead) == ("y[i]" in step)


@pytest.mark.parametrize("second", ["zip(rows, y)", "zip(rows, out)"])
def test_samples_that_loops_behind_each_other_come_to(tmp_path: Path, second: str) -> None:
    """What one loop has made of each sample meets that sample in the next."""
    step = f"rows = [row.exp() for row in out]\nloss = sum((one * other).sum() for one, other in {second}) / len(out)"
    code, said = loss_of(tmp_path, step)
    assert "RowsOfAllRanks" not in code and "AD602" not in said and "AD906" not in said


def test_rows_of_a_comprehension_are_gathered_within(tmp_path: Path) -> None:
    step = f"zs = [out, out * 0.5]\nloss = {PLAIN} + sum(torch.cdist(z, z).max() for z in zs)"
    code, _ = loss_of(tmp_path, step)
    assert "all_z" not in code and "sum(torch.cdist(RowsOfAllRanks.apply(z), RowsOfAllRanks.apply(z))" in code


def test_weights_of_a_batch_are_normalised_to_that_of_all_ranks(tmp_path: Path) -> None:
    """Their number is that of all rows, too."""
    step = (
        "weight = 1 / (1 + out.detach().abs().sum(1))\nweight = weight / weight.sum() * len(weight)\n"
        f"loss = (weight * {APART}).mean() + torch.pdist(out).mean()"
    )
    code, said = loss_of(tmp_path, step)
    assert "weight = RowsOfAllRanks.apply(weight)\n        weight = weight / weight.sum() * len(weight)\n" in code
    assert "AD602" not in said


def test_what_is_shown_leaves_the_gradients_of_a_function_alone(tmp_path: Path) -> None:
    """A function of losses that is also called for a print: gathered inside of it, rows would have no gradients."""
    helper = "def pairs(z):\n    return torch.pdist(z).mean()\n\n\nloader"
    text = SCRIPT.replace("loader", helper, 1).replace("{step}", f"loss = {PLAIN} + pairs(out)")
    code, said = converted(tmp_path, text + "    print(pairs(out.detach()).item())\n")
    assert "return torch.pdist(z).mean()" in code and "pairs(RowsOfAllRanks.apply(out))" in code
    assert "gather_rows" in code or "AD601 reports" in said
