"""Losses that are means over other numbers than those of the samples, and samples that a condition picks."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import conftest
import pytest

SCRIPT = """\
import numpy
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, TensorDataset


def padded(batch):
    words, tags = zip(*batch)
    return pad_sequence(words, batch_first=True), pad_sequence(tags, batch_first=True)


PAD = 0
weights = torch.tensor([1.0, 2.0, 3.0])
data = TensorDataset(torch.randn(64, 8), torch.randint(0, 3, (64,)))
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{before}
loader = DataLoader(data, batch_size=8, shuffle=True{options})
for epoch in range(2):
    for x, y in loader:
        out = model(x)
{step}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
{after}
"""


def converted(folder: Path, step: str, before: str = "", after: str = "", options: str = "") -> tuple[str, str]:
    """The conversion and what is said of it."""
    text = SCRIPT.format(step=indent(step, " " * 8), before=before, after=after, options=options)
    return conftest.converted(folder, text)


@pytest.mark.parametrize(
    ("loss", "count"),
    [
        ("F.cross_entropy(out, y, ignore_index=PAD)", "(y != PAD).sum()"),
        ("F.cross_entropy(out, y.view(-1), None, None, PAD)", "(y.view(-1) != PAD).sum()"),
        ("F.cross_entropy(out, y, weights)", "weights[y].sum()"),
        ("F.cross_entropy(out, y, 1 / weights)", "(1 / weights)[y].sum()"),
        ("F.cross_entropy(out, y, torch.rand(3))", None),
        ("F.nll_loss(out.log_softmax(1), target=y, weight=weights)", "weights[y].sum()"),
        ("F.cross_entropy(out, y, weights, ignore_index=PAD)", "weights[y[y != PAD]].sum()"),
        ("F.cross_entropy(out[y > 0], y[y > 0])", "y[y > 0].numel()"),
        ("F.cross_entropy(out, y, reduction='none')[y > 0].mean()", "(y > 0).sum()"),
        ("F.mse_loss(out[(y > 0) & (y < 2)].sum(1), x[(y > 0) & (y < 2), 0])", "x[(y > 0) & (y < 2), 0].numel()"),
    ],
)
def test_means_are_weighed_by_what_they_are_divided_by(tmp_path: Path, loss: str, count: str | None) -> None:
    """Where it can be written down again; another loss is computed from the rows of all ranks."""
    after, said = converted(tmp_path, f"loss = {loss}", after="    print(loss.item())")
    assert (f"loss = weigh_by_count({loss}, {count})" in after) == (count is not None)
    assert ("RowsOfAllRanks.apply(out)" in after) == (count is None)
    assert "AD602" not in said
    assert "reduce_mean(loss.item())" in after or count is None


@pytest.mark.parametrize(
    ("total", "count"),
    [
        ("(F.cross_entropy(out, y, reduction='none') * (y > 0)).sum()", "(y > 0).sum()"),
        ("((out.sum(1) - y) ** 2 * (y > 0)).mean()", "(y > 0).float().mean()"),
        ("(out.pow(2).sum() + out.abs().sum())", "(y > 0).sum()"),  # of which a rank may have none, but a loss
    ],
)
def test_sums_are_divided_by_a_number_of_all_ranks(tmp_path: Path, total: str, count: str) -> None:
    """The mean of the ranks is then the sum of all by the number of all, whatever a rank has."""
    printed = f"print('%.3f' % ({total} / {count}))\n"
    after, said = converted(tmp_path, f"{printed}loss = {total} / {count}", after="    print(loss.item())")
    whole = f"mean_count({count})" if "sum" in count else f"reduce_mean({count})"
    assert f"loss = {total} / {whole}" in after and "reduce_mean(loss.item())" in after
    assert "AD602" not in said


def test_a_number_that_is_chosen_where_it_is_divided_by(tmp_path: Path) -> None:
    """Whether there is any is asked of all ranks."""
    each = "F.cross_entropy(out, y, reduction='none')"
    step = f"keep = (y > 0).float()\nn = keep.sum()\nloss = ({each} * keep).sum() / (n if n > 0 else 1)"
    after, said = converted(tmp_path, step, after="    print(loss.item())")
    assert "/ mean_count(n if reduce_sum(n) > 0 else 1)" in after and "AD602" not in said


@pytest.mark.parametrize(
    ("criterion", "count"),
    [
        ("nn.CrossEntropyLoss(weights)", "criterion.weight[y].sum()"),
        ("nn.CrossEntropyLoss(ignore_index=0)", "(y != criterion.ignore_index).sum()"),
        ("nn.CrossEntropyLoss(weights, None, 0)", "criterion.weight[y[y != criterion.ignore_index]].sum()"),
        ("nn.CrossEntropyLoss(label_smoothing=0.1)", None),
        ("nn.CrossEntropyLoss(weight=None)", None),
        ("nn.CrossEntropyLoss(weights, reduction='sum')", None),
        ("nn.MultiMarginLoss(weight=weights)", None),
    ],
)
def test_options_of_criteria(tmp_path: Path, criterion: str, count: str | None) -> None:
    """By position or name; most losses divide by the number of elements whatever weighs them."""
    after, said = converted(tmp_path, "loss = criterion(out, y)", f"criterion = {criterion}")
    assert (f"weigh_by_count(criterion(out, y), {count})" in after) == (count is not None)
    assert "weigh_by_count" in after or count is None
    assert "AD602" not in said


UNWEIGHED = {
    "made of random numbers": ("loss = F.cross_entropy(out, (y * torch.rand(8)).long(), weights)", ""),
    "once for each of the longest's words": (
        "loss = 0\nfor t in range(y.size(1)):\n    loss = loss + F.cross_entropy(out[:, t], y[:, t], ignore_index=PAD)",
        ", collate_fn=padded",
    ),
    "by a test of the rank's own samples": (
        "loss = out.sum(1).mean()\nif y.max() > 1:\n    loss = loss + F.cross_entropy(out, y, ignore_index=PAD)",
        "",
    ),
    "goes on through something else": (
        "each = -F.cross_entropy(out, y, weights)\nloss = -((1 - torch.exp(each)) ** 2) * each * out.std(0).sum()",
        "",
    ),
}


@pytest.mark.parametrize("name", UNWEIGHED)
def test_what_cannot_be_weighed_is_computed_from_all_rows(tmp_path: Path, name: str) -> None:
    """Weighing takes all ranks, as often as each other, and is exact for what losses are sums of. Rows whose length
    differs by rank cannot be gathered."""
    step, options = UNWEIGHED[name]
    after, said = converted(tmp_path, step, options=options)
    assert "weigh_by_count" not in after
    assert ("AD602" in said) == bool(options) == ("RowsOfAllRanks" not in after)


def test_labels_that_a_loss_is_asked_for(tmp_path: Path) -> None:
    """`torch.where(mask, y, criterion.ignore_index)`: what it ignores when it is not told what to."""
    step = "y = torch.where(x[:, 0] > 0, y, criterion.ignore_index)\nloss = criterion(out, y)"
    after, _ = converted(tmp_path, step, "criterion = nn.CrossEntropyLoss()")
    assert "weigh_by_count(criterion(out, y), (y != -100).sum())" in after


@pytest.mark.parametrize("label", ["-100", "0"])
def test_labels_that_are_left_out_by_default(tmp_path: Path, label: str) -> None:
    """-100 is what torch ignores when it is not told what to."""
    after, said = converted(tmp_path, "loss = F.cross_entropy(out, y)", f"data.tensors[1][:9] = {label}")
    assert ("weigh_by_count(F.cross_entropy(out, y), (y != -100).sum())" in after) == (label == "-100")
    assert "AD602" not in said


def test_an_index_is_no_label(tmp_path: Path) -> None:
    """`losses[-100:]` says nothing of the labels."""
    after, _ = converted(tmp_path, "loss = F.cross_entropy(out, y)", "print(data.tensors[1][-100:])")
    assert "weigh_by_count" not in after


def test_a_focal_loss_is_computed_of_the_whole_mean(tmp_path: Path) -> None:
    """It goes on from a mean over the batch."""
    step = "each = -F.cross_entropy(out, y, weights)\nloss = -((1 - torch.exp(each)) ** 2) * each"
    after, said = converted(tmp_path, step)
    whole = "SumOverRanks.apply(-weigh_by_count(F.cross_entropy(out, y, weights), weights[y].sum()))"
    assert f"each = {whole} / dist.get_world_size()" in after
    assert "AD602" not in said


def test_only_training_is_weighed(tmp_path: Path) -> None:
    """Every rank evaluates all of the data."""
    evaluation = "    with torch.no_grad():\n        print(F.cross_entropy(model(x), y, ignore_index=PAD).item())"
    after, _ = converted(tmp_path, "loss = F.cross_entropy(out, y)", after=evaluation)
    assert "weigh_by_count" not in after


@pytest.mark.parametrize(
    ("number", "whole"),
    [
        ("out[y == 1].mean().item()", "mean_over_ranks(out[y == 1]).item()"),
        ("(out.argmax(1)[y == 1] == 1).float().mean()", "mean_over_ranks((out.argmax(1)[y == 1] == 1).float())"),
        ("numpy.mean(out.detach().numpy()[y.numpy() == 1])", "mean_over_ranks(out.detach().numpy()[y.numpy() == 1])"),
        ("out[y == 1].mean(0)[0]", "gather_rows(out)[gather_rows(y == 1)].mean(0)[0]"),
        ("(out.argmax(1)[y == 1] == 1).sum()", "reduce_sum((out.argmax(1)[y == 1] == 1).sum())"),
        ("len(out[y == 1])", "reduce_sum(len(out[y == 1]))"),
        ("out[(y == 1).nonzero().squeeze(1)].std()", "gather_rows(out)["),
    ],
)
def test_numbers_over_picked_samples_are_those_of_all_ranks(tmp_path: Path, number: str, whole: str) -> None:
    """Ranks pick different numbers of samples, perhaps none: a mean of their means would be another one, or NaN."""
    after, _ = converted(tmp_path, f"loss = F.cross_entropy(out, y)\nprint({number})")
    assert whole in after


@pytest.mark.parametrize(
    ("step", "whole"),
    [
        ("far = (out - x)[y == 1]\nsize = far.abs().mean()\nprint(size.item())", "size = mean_over_ranks(far.abs())"),
        (
            "far = (out - x)[y == 1].abs().mean().item()\ntotal = far * len(x)\nprint(total / 4)",
            "far = mean_over_ranks(",
        ),
        (
            "keep = y == 1\ntotal, far = errors(out[keep].detach(), x[keep])\nprint(total, far)",
            "return d.sum(), mean_over_ranks(d)",
        ),
    ],
)
def test_means_over_picked_samples_by_other_names(tmp_path: Path, step: str, whole: str) -> None:
    """In the graph of the model, in a function, or times the number of all samples, as meters take them."""
    before = "def errors(a, b):\n    d = (a - b).abs()\n    return d.sum(), d.mean()\n"
    after, said = converted(tmp_path, f"loss = F.cross_entropy(out, y)\n{step}", before)
    assert whole in after and "AD601 reports" not in said


def test_what_a_model_mixes_is_its_own_matter(tmp_path: Path) -> None:
    """What training is warned of, so is a metric of its output."""
    before = """\
def scaled(x):
    return x / x.std()
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 3)
    def forward(self, x):
        return scaled(self.layer(x))
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
    metric = "far = out[y == 1].flatten()\nprint(far.mean().item())"
    after, said = converted(tmp_path, f"loss = F.cross_entropy(out, y)\n{metric}", before)
    assert "AD602" in said and "AD601 reports x, computed from this rank's samples alone" in said, after


@pytest.mark.parametrize(
    ("scale", "expected"),
    [
        (
            "x = (x - x.min()) / (x.max() - x.min())",
            "(x - reduce_min(x.min())) / (reduce_max(x.max()) - reduce_min(x.min()))",
        ),
        ("x = (x.squeeze().t() / torch.max(x.t())).t()", "/ reduce_max(torch.max(x.t()))"),
        ("low = x.min()\nx = x - low", "low = reduce_min(x.min())"),
        ("x = scaled(x)", "low, high = reduce_min(x.min()), reduce_max(x.max())"),
        ("x = torch.stack([row / row.max() for row in x])", None),
        ("rows = []\nfor row in x:\n    rows.append(row / row.max())\nx = torch.stack(rows)", None),
        ("for i in range(len(x)):\n    x[i] = x[i] / x[i].max()", None),
        ("x = x / x.max(1, keepdim=True)[0]", None),
        ("x = x / x.amax(dim=1, keepdim=True)", None),
        ("print(out.max().item(), out.detach().min().item())", "reduce_max(out.max().item()), reduce_min("),
        ("top = out.max()\nprint(top)", "print(reduce_max(top))"),
        ("print(out[0].max())", None),
        ("loss = loss * out.max()", None),
    ],
)
def test_the_largest_and_smallest_of_a_batch(tmp_path: Path, scale: str, expected: str | None) -> None:
    """Those of all ranks, where samples are scaled by them or they are reported; not those of one sample."""
    before = "def scaled(x):\n    low, high = x.min(), x.max()\n    return (x - low) / (high - low)\n"
    early = scale.startswith(("x", "low", "rows", "for"))
    step = (
        f"{scale}\nout = model(x)\nloss = F.cross_entropy(out, y)"
        if early
        else f"loss = F.cross_entropy(out, y)\n{scale}"
    )
    after, said = converted(tmp_path, step, before)
    assert expected in after and "AD602" not in said if expected else "reduce_m" not in after


@pytest.mark.parametrize("by", ["x.cumsum(0).argsort(0)[:, 0]", "positions(x)"])
def test_rows_of_all_ranks_do_not_go_with_those_of_one(tmp_path: Path, by: str) -> None:
    """Either all of a computation's rows are gathered or none are."""
    step = f"loss = F.cross_entropy(out, y)\norder = {by}\nprint(rank_of(out, order).item())"
    before = "from ranking import positions\ndef rank_of(rows, order):\n    return rows[order > 2].mean()"
    after, said = converted(tmp_path, step, before)
    assert "return gather_rows(rows)[order > 2].mean()" in after and "gather_rows(x)" in after
    assert "AD601 reports" not in said


@pytest.mark.parametrize("part", [".data", "[0]", None])
def test_words_that_are_packed(tmp_path: Path, part: str | None) -> None:
    """Each rank has as many as its sentences are long, whatever makes the batches."""
    left, tail = ("", part) if part else (", *_", "")
    pack = "nn.utils.rnn.pack_padded_sequence({}, (y + 1).cpu(), True, False)"
    lines = [f"{name}{left} = {pack.format(value)}{tail}" for name, value in (("said", "out"), ("meant", "x.long()"))]
    after, said = converted(tmp_path, "\n".join([*lines, "loss = F.cross_entropy(said, meant)"]))
    assert "weigh_by_count(F.cross_entropy(said, meant), meant.numel())" in after, said


@pytest.mark.parametrize(
    ("turned", "back"), [("x", "x"), ("x.t()", "x.t()"), ("x.unsqueeze(1).transpose(0, 1)", "x.reshape(-1, 8)")]
)
def test_samples_beside_the_extremes_of_their_batch(tmp_path: Path, turned: str, back: str) -> None:
    """Whichever axis they lie along."""
    scaled = f"x = {turned}\nx = (x - x.min()) / (x.max() - x.min())\nloss = F.cross_entropy(model({back}), y)"
    after, said = converted(tmp_path, scaled)
    assert "(x - reduce_min(x.min())) / (reduce_max(x.max()) - reduce_min(x.min()))" in after and "AD602" not in said


@pytest.mark.parametrize("part", [":4", "1:5", ":-1", "-3:", "::2"])
def test_a_loss_of_some_samples(tmp_path: Path, part: str) -> None:
    """Ranks would train on those at the same places of their own, as many as one process does."""
    after, said = converted(tmp_path, f"loss = F.cross_entropy(out[{part}], y[{part}])")
    assert f"RowsOfAllRanks.apply(y)[{part}]" in after and "weigh_by_count" not in after and "AD602" not in said


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ("loss = F.cross_entropy(out, y) / len(x)", "F.cross_entropy(out, y) / (len(x) * dist.get_world_size())"),
        ("n, _ = out.size()\nloss = F.cross_entropy(out, y)\nloss /= n", "loss /= n * dist.get_world_size()"),
        ("loss = F.cross_entropy(out, y, reduction='sum') / len(x)", "reduction='sum') / len(x)\n"),
    ],
)
def test_a_mean_that_is_divided_by_the_batch_again(tmp_path: Path, step: str, expected: str) -> None:
    """Of the whole batch, not of a rank's share, by which a sum is divided."""
    after, said = converted(tmp_path, step)
    assert expected in after and "AD602" not in said


CHOSEN = """\
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Losses:
    def __init__(self, weight=None, average=True):
        self.weight, self.average = weight, average

    def build(self, mode):
        if mode == "focal":
            return self.focal
        return self.plain

    def plain(self, out, y):
        n, c = out.size()
        criterion = nn.CrossEntropyLoss(weight=self.weight, ignore_index=255)
        loss = criterion(out, y)
        if self.average:
            loss /= n
        return loss

    def focal(self, out, y):
        n, c = out.size()
        criterion = nn.CrossEntropyLoss(weight=self.weight, ignore_index=255)
        each = -criterion(out, y)
        loss = -((1 - torch.exp(each)) ** 2) * each
        if self.average:
            loss = loss / n
        return loss


data = TensorDataset(torch.randn(64, 8), torch.randint(0, 3, (64,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
test_loader = DataLoader(data, batch_size=8)
model = nn.Linear(8, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
weight = torch.tensor([1.0, 2.0, 3.0]) if "--balanced" in sys.argv else None
criterion = Losses(weight).build(sys.argv[1])
for x, y in loader:
    loss = criterion(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
for x, y in test_loader:
    with torch.no_grad():
        out = model(x)
    print(criterion(out, y).item())
"""
WEIGHTED = "criterion.weight[y[y != criterion.ignore_index]].sum() if criterion.weight is not None else (y != "


def test_a_loss_that_is_chosen(tmp_path: Path) -> None:
    """Each is made exact: by weights that may be none, by the mean over the whole batch, by the size of that."""
    after, said = conftest.converted(tmp_path, CHOSEN)
    assert f"loss = weigh_by_count(criterion(out, y), {WEIGHTED}" in after
    assert f"each = SumOverRanks.apply(-weigh_by_count(criterion(out, y), {WEIGHTED}" in after
    size = "total_n = n * (dist.get_world_size() if loss.requires_grad else 1)\n"
    assert f"{size}            loss /= total_n\n" in after and f"{size}            loss = loss / total_n\n" in after
    assert "AD602" not in said and "computed from this rank's samples alone" not in said


def test_a_share_that_cannot_be_told_from_the_whole(tmp_path: Path) -> None:
    """A loss divided by the size of a batch that is whole in evaluation, with gradients there, too."""
    text = CHOSEN.replace("    with torch.no_grad():\n        out = model(x)", "    out = model(x)")
    after, said = conftest.converted(tmp_path, text)
    assert "n * dist.get_world_size()" not in after and after.count("RowsOfAllRanks.apply(") == 2
    assert "AD602" not in said


def test_a_loss_divided_by_the_batch_in_training_alone(tmp_path: Path) -> None:
    """It needs no test of whether it trains."""
    after, _ = conftest.converted(tmp_path, CHOSEN.partition("for x, y in test_loader")[0])
    assert "loss /= n * dist.get_world_size()\n" in after and "requires_grad" not in after


BOXES = """\
class BoxLoss(nn.Module):
    def forward(self, out, y):
        positive = y > 0
        found = out[positive, :].reshape(-1, 3)
        number = {number}
        loss = nn.functional.smooth_l1_loss(found, torch.zeros_like(found), reduction="sum")
        return loss / number, out.pow(2).sum() / number


"""


@pytest.mark.parametrize("number", ["found.size(0)", "found.shape[0]", "len(found)"])
def test_a_criterion_that_counts_what_it_picked(tmp_path: Path, number: str) -> None:
    step, before = (
        "found, size = criterion(out, y)\nloss = found + size",
        f"{BOXES.format(number=number)}criterion = BoxLoss()",
    )
    assert f"number = reduce_sum({number})" in converted(tmp_path, step, before)[0]


STACKED = "both = torch.stack([out, 2 * out])\n"


@pytest.mark.parametrize(
    ("loss", "gathered"),
    [
        ("both.norm(2, dim=1).mean()", True),
        ("torch.autograd.grad(both.sum(), both, create_graph=True)[0].norm(2, dim=1).mean()", True),
        ("both.norm(2, dim=2).mean()", False),
        ("both.sum(0).pow(2).mean()", False),
        ("F.cross_entropy(both.transpose(0, 1).mean(1), y)", False),
        ("torch.stack([each.pow(2) for each in out]).sum(1).mean()", False),
    ],
)
def test_samples_of_stacked_batches_lie_along_the_second_axis(tmp_path: Path, loss: str, gathered: bool) -> None:
    after, said = converted(tmp_path, f"{STACKED}loss = {loss}")
    assert ("out = RowsOfAllRanks.apply(model(x))" in after) == gathered
    assert "AD602" not in said


FOCAL = """\
class Focal(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = weight

    def forward(self, out, y):
        each = F.cross_entropy(out, y, reduction="none", weight=self.weight)
        return ((1 - torch.exp(-each)) * each).mean()


class Smoothed(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = weight

    def forward(self, out, y):
        return F.cross_entropy(out, y, weight=self.weight, label_smoothing=0.1)


many = len(data) > 3
"""
ONLY = "criterion.weight[y].sum() if type(criterion) is torch.nn.CrossEntropyLoss else y.numel()"


@pytest.mark.parametrize(
    ("one", "other", "count"),
    [
        ("weights", "Focal(weights)", ONLY),
        ("weights", "Smoothed(weights)", ONLY),  # which weighs for itself
        ("weights", "nn.MultiMarginLoss()", ONLY),
        ("weights", "lambda out, y: F.cross_entropy(out, y, label_smoothing=0.1)", ONLY),
        ("weights", "nn.NLLLoss(weights)", "criterion.weight[y].sum()"),
        (
            "weights",
            "nn.CrossEntropyLoss()",
            "criterion.weight[y].sum() if criterion.weight is not None else y.numel()",
        ),
        (
            "ignore_index=0",
            "Focal(weights)",
            "(y != criterion.ignore_index).sum() if type(criterion) is torch.nn.CrossEntropyLoss else y.numel()",
        ),
    ],
)
def test_one_of_several_losses_is_weighed_by_what_it_has(tmp_path: Path, one: str, other: str, count: str) -> None:
    """Some have no weights, others weigh for themselves: weighed as the first one is, they crashed, or were wrong."""
    before = f"{FOCAL}if many:\n    criterion = nn.CrossEntropyLoss({one})\nelse:\n    criterion = {other}"
    code, said = converted(tmp_path, "loss = criterion(out, y)", before)
    assert f"weigh_by_count(criterion(out, y), {count})" in code
    assert ("label_smoothing=0.1), self.weight[y].sum())" in code) == other.startswith("Smoothed")
    assert "AD602" not in said


@pytest.mark.parametrize(
    ("before", "step", "expected"),
    [
        (
            "criterion = partial(F.cross_entropy, weight=weights)",
            "loss = criterion(out, y)",
            'weigh_by_count(criterion(out, y), criterion.keywords["weight"][y].sum())',
        ),
        (
            "criterion = partial(F.cross_entropy, ignore_index=PAD)",
            "loss = criterion(out, y)",
            '(y != criterion.keywords["ignore_index"]).sum())',
        ),
        (
            'criterion = partial(F.cross_entropy, reduction="sum")',
            "loss = criterion(out, y)",
            "(loss * dist.get_world_size()).backward()",
        ),
        (
            "criterion = F.cross_entropy",
            "loss = criterion(out, y, weight=weights)",
            "weigh_by_count(criterion(out, y, weight=weights), weights[y].sum())",
        ),
        (
            'options = {"weight": weights}',
            "loss = F.cross_entropy(out, y, **options)",
            'weigh_by_count(F.cross_entropy(out, y, **options), options["weight"][y].sum())',
        ),
    ],
)
def test_options_that_are_given_elsewhere(tmp_path: Path, before: str, step: str, expected: str) -> None:
    code, _ = converted(tmp_path, step, f"from functools import partial\n{before}")
    assert expected in code


SHIFTED = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

sentences = [torch.randint(1, 32, (4 + i % 8,)) for i in range(64)]
loader = DataLoader(sentences, batch_size=16, shuffle=True, collate_fn=lambda batch: pad_sequence(batch, True, 0))
words, decoder = nn.Embedding(32, 8, padding_idx=0), nn.GRU(8, 32, batch_first=True)
optimizer = torch.optim.SGD([*words.parameters(), *decoder.parameters()], lr=0.1)
for target in loader:
    {shift}
    out, _ = decoder(words(shifted))
    loss = F.cross_entropy(out.reshape(-1, 32), target.reshape(-1), ignore_index=0)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    "shift",
    [
        "shifted = F.pad(target[:, :-1], (1, 0))",
        "shifted = F.pad(target, (1, 0))[:, :-1]",
        "shifted = F.pad(input=target[:, :-1], pad=[1, 0])",
        "shifted = torch.cat([torch.zeros_like(target[:, :1]), target[:, :-1]], 1)",
        "shifted = target.roll(1, 1)",
        "shifted = torch.full_like(target, 1); shifted[:, 1:] = target[:, :-1]",
    ],
)
def test_a_loss_of_words_that_are_told_the_ones_before(tmp_path: Path, shift: str) -> None:
    """`pad` of one axis was taken for one that also works along the samples."""
    after, _ = conftest.converted(tmp_path, SHIFTED.format(shift=shift))
    assert "ignore_index=0), (target.reshape(-1) != 0).sum())" in after
