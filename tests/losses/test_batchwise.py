"""Losses that are computed from sums and means over a batch in another way than by adding them up."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import conftest
import pytest

SCRIPT = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(64, 8), torch.randint(0, 2, (64, 3)).float())
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
centres = torch.zeros(3, 3)
{before}
loader = DataLoader(data, batch_size=8, shuffle=True)
for epoch in range(2):
    for x, y in loader:
        out = model(x)
{step}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
{after}
"""


def converted(folder: Path, step: str, before: str = "", after: str = "") -> tuple[str, str]:
    """The conversion and what is said of it."""
    return conftest.converted(folder, SCRIPT.format(step=indent(step, " " * 8), before=before, after=after))


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (  # two sums by a number that is theirs
            "n = (y > 0).sum().clamp(min=1)\nloss = (out * y).sum() / n + out.abs().sum() / n",
            "n = reduce_sum((y > 0).sum()).clamp(min=1)\n",
        ),
        (
            "n = max(1, (y > 0).sum().item())\nloss = (out - y).abs().sum() / n",
            "n = max(1, reduce_sum((y > 0).sum().item()))\n",
        ),
        (
            "loss = 1 - 2 * (out * y).sum() / y.sum()",
            "loss = 1 - 2 * (out * y).sum() / mean_count(y.sum())",
        ),
    ],
)
def test_sums_that_are_bounded_or_divided(tmp_path: Path, step: str, expected: str) -> None:
    """What is divided by has a least value once, not on every rank; one less a sum is no sum."""
    after, said = converted(tmp_path, step)
    assert expected in after
    assert "AD602" not in said


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ("loss = torch.log(out.exp().sum())", "loss = torch.log(SumOverRanks.apply(out.exp().sum()))"),
        ("total = out.pow(2).sum()\nloss = (0.5 * total).sqrt()", "total = SumOverRanks.apply(out.pow(2).sum())\n"),
        ("loss = F.mse_loss(out, y).sqrt()", "SumOverRanks.apply(F.mse_loss(out, y)) / dist.get_world_size()).sqrt()"),
        (  # weights of what is in the batch
            "n = y.sum()\nloss = F.binary_cross_entropy_with_logits(out, y, pos_weight=24 / (n + 1))",
            "n = reduce_sum(y.sum())\n",
        ),
        (
            "k = y.argmax(1)\nn = torch.bincount(k, minlength=3)\nloss = F.cross_entropy(out, k, 1 / (n + 1))",
            "n = reduce_sum(torch.bincount(k, minlength=3))\n",
        ),
        (
            "loss = F.mse_loss(out - out.mean(0), y)",
            "out - SumOverRanks.apply(out.mean(0)) / dist.get_world_size(), y)",
        ),
    ],
)
def test_sums_and_means_of_all_ranks(tmp_path: Path, step: str, expected: str) -> None:
    """They are taken where they are named, and gradients flow back to what each rank has of them, if any do."""
    after, said = converted(tmp_path, step)
    assert expected in after
    assert after.count("SumOverRanks.apply(") == 2 * ("SumOverRanks" in expected)  # here, and backward
    assert "AD602" not in said


@pytest.mark.parametrize(
    "step",
    [
        "loss = F.mse_loss(out, y)",
        "loss = out.pow(2).sum() / len(out)",
        "loss = ((out - y) ** 2).sum(1).mean() + 0.1 * F.l1_loss(out, y)",
        "loss = F.mse_loss(out, y, reduction='sum')",
        "loss = (out.log_softmax(1) - out.mean(1, keepdim=True)).pow(2).mean()",
        "loss = (out - centres[y.argmax(1)]).pow(2).mean()",
    ],
)
def test_plain_losses_stay_as_they_are(tmp_path: Path, step: str) -> None:
    """Means and sums over the batch are averaged over the ranks as they are."""
    after, said = converted(tmp_path, step, after="    print((out.mean() / out.std()).item())")
    assert "SumOverRanks" not in after
    assert "AD602" not in said


@pytest.mark.parametrize(
    "step",
    [
        "loss = F.poisson_nll_loss(out[y > 0], y[y > 0]).sqrt()",
        "loss = F.mse_loss(out, y)\nif out.mean() > 0:\n    loss = loss + torch.log(out.exp().sum())",
    ],
)
def test_what_no_sum_tells_is_computed_from_the_rows_of_all_ranks(tmp_path: Path, step: str) -> None:
    """What ranks would not come to alike."""
    after, said = converted(tmp_path, step)
    assert "SumOverRanks" not in after
    assert "RowsOfAllRanks.apply(" in after
    assert "AD602" not in said


@pytest.mark.parametrize(
    "step",
    [
        "loss = ((out - y) / out.std(0)).pow(2).mean()",
        "loss = torch.log(out.pow(2).sum()) + out.std(0).sum()",
        "loss = torch.median(out)",
        "loss = F.cross_entropy(out, y.argmax(1), reduction='none').topk(4)[0].mean()",
        "loss = F.mse_loss(out, y, reduction='none').mean(1).topk(4)[0].mean()",
        "each = nn.CrossEntropyLoss(reduction='none')(out, y.argmax(1))\nloss = torch.topk(each, 4)[0].mean()",
        "each = (out - y).pow(2).mean(1)\nloss = each[torch.argsort(each)[:5]].mean()",
    ],
)
def test_what_no_sum_tells_is_computed_from_all_rows(tmp_path: Path, step: str) -> None:
    """A deviation, a median, the hardest samples."""
    after, said = converted(tmp_path, step)
    assert "RowsOfAllRanks.apply" in after and "SumOverRanks" not in after and "AD602" not in said


RATIO = "def ratio(p, t):\n    return ((p * t).sum() + 1) / (p.sum() + t.sum() + 1)"


def test_evaluation_sums_nothing_over_the_ranks(tmp_path: Path) -> None:
    """Each has all of the data there, and the ones that smooth the ratio would count less. Where gradients are on, too,
    it is what training gives the function that is taken over all ranks."""
    after = "    with torch.no_grad():\n        print(ratio(model(data[:][0]), data[:][1]).item())"
    code, said = converted(tmp_path, "loss = 1 - ratio(out.sigmoid(), y)", RATIO, after)
    assert "return (sum_in_training((p * t).sum()) + 1) / (sum_in_training(p.sum() + t.sum()) + 1)" in code
    assert "AD602" not in said
    code, said = converted(
        tmp_path, "loss = 1 - ratio(out.sigmoid(), y)", RATIO, after.replace("no_grad", "enable_grad")
    )
    assert "SumOverRanks" not in code and "AD602" not in said and "AD906" not in said
    assert "loss = 1 - ratio(RowsOfAllRanks.apply(out.sigmoid()), RowsOfAllRanks.apply(y))" in code


GOING_BY = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.last = nn.Linear(2, 3)

    def forward(self, x):
        h = self.first(x)
        {body}
        return self.last(h)


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
SETTLED_BY_ALL = {
    "h = h[:, torch.topk(torch.mean(h, dim=0), 2)[1]]": "torch.topk(SumOverRanks.apply(torch.mean(h, dim=0)) / dist",
    "h = torch.roll(h, int(h.mean(0).argmax()), -1)[:, :2]": "int(reduce_mean(h.mean(0)).argmax())",
}
TOLD = (
    "h = h[:, :2] if h.mean() > 0 else h[:, 2:4]",
    "h = torch.cat([h[:, :1], h.mean(0)[:1].expand(len(h), 1)], 1)",
    "h = torch.cat([h[:, :1], h.std(0).mean().expand(len(h), 1)], 1)",
)


@pytest.mark.parametrize("body", SETTLED_BY_ALL)
def test_what_a_forward_pass_goes_by_is_the_mean_of_all_ranks(tmp_path: Path, body: str) -> None:
    """Which columns it takes follows from the whole batch."""
    code, said = converted(tmp_path, "loss = F.mse_loss(out, y)", GOING_BY.format(body=body))
    assert SETTLED_BY_ALL[body] in code and "AD602" not in said


@pytest.mark.parametrize("body", TOLD)
def test_a_forward_pass_that_goes_by_its_batch_is_warned_of(tmp_path: Path, body: str) -> None:
    code, said = converted(tmp_path, "loss = F.mse_loss(out, y)", GOING_BY.format(body=body))
    assert "SumOverRanks" in code or "AD602" in said


TOLD_WHY = {
    "h = h[:, :2] * (h[:, :2] > h.quantile(0.5))": "AD602 h.quantile(0.5): it is computed of all samples together",
    "h = h[:, :2] - torch.var_mean(h[:, :2], dim=0)[1]": "together, and is no sum, mean or extreme of the ranks'",
    "h = h[:, :2] + torch.logsumexp(h[:, :2], 0)": "AD602 torch.logsumexp(h[:, :2], 0): it is computed of all samples",
    "h = h[:, :2] + h.t().cov()[0, :2]": "AD602 h.t().cov(): it is computed of all samples together",
    "h = h.renorm(2, 1, 1.0)[:, :2]": "AD906 h.renorm(2, 1, 1.0) goes along the axis of the samples",
    "h = torch.native_batch_norm(h, None, None, None, None, True, 0.1, 1e-5)[0][:, :2]": "AD602 torch.native",
    "h = F.layer_norm(h, h.shape)[:, :2]": "AD906 F.layer_norm(h, h.shape) goes along the axis of the samples",
    "h = F.layer_norm(h, [h.size(0), 16])[:, :2]": "AD906 F.layer_norm(h, [h.size(0), 16]) goes along the axis",
    "h = F.rms_norm(h, (8, 16))[:, :2]": "AD906 F.rms_norm(h, (8, 16)) goes along the axis of the samples",
    "h = F.pad(h, (0, 0, 1, 0))[:-1, :2]": "AD906 F.pad(h, (0, 0, 1, 0)) goes along the axis of the samples",
    "h = F.pad(input=h, pad=[0, 0, 1, 0])[:-1, :2]": "AD906 F.pad(input=h, pad=[0, 0, 1, 0]) goes along the axis",
}


@pytest.mark.parametrize("body", TOLD_WHY)
def test_a_statistic_that_nothing_joins_is_told_of(tmp_path: Path, body: str) -> None:
    _, said = converted(tmp_path, "loss = F.mse_loss(out, y)", GOING_BY.format(body=body))
    assert TOLD_WHY[body] in said


@pytest.mark.parametrize(
    "body",
    [
        "h = h[:, :2] * 0.5",
        "h = h[:, : h.size(1) // 8]",
        "h = h[:, torch.randperm(16)[:2]]",
        "h = h[:, :2] * (h[:, :2] > h.quantile(0.5, dim=1, keepdim=True))",
        "h = h[:, :2] - torch.var_mean(h, dim=1, keepdim=True)[1]",
        "h = h[:, :2] + torch.logsumexp(h, 1, keepdim=True)",
        "h = h[:, :2] @ self.last.weight[:, :2].t().cov()",
        "h = h.renorm(2, 0, 1.0)[:, :2]",
        "h = torch.native_batch_norm(h, None, None, h.new_zeros(16), h.new_ones(16), False, 0.1, 1e-5)[0][:, :2]",
        "h = F.layer_norm(h, h.shape[1:])[:, :2]",
        "h = F.layer_norm(h, h.size()[-1:])[:, :2]",
        "h = F.layer_norm(h, (16,), self.last.weight.new_ones(16))[:, :2]",
        "h = F.pad(h[:, :-1], (1, 0))[:, :2]",
        "h = F.pad(input=h, pad=[1, 0])[:, :2]",
    ],
)
def test_a_forward_pass_of_each_sample_by_itself_stays(tmp_path: Path, body: str) -> None:
    code, said = converted(tmp_path, "loss = F.mse_loss(out, y)", GOING_BY.format(body=body))
    assert "SumOverRanks" not in code and "AD602" not in said and "AD906" not in said


NORMS = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Norm(nn.Module):
    def statistics(self, x):
        mean = torch.mean(x, dim=0)
        return mean, torch.mean((x - mean) ** 2, dim=0)

    def forward(self, x):
{forward}
        return (x - mean) / (variance + 1e-5).sqrt()


model = nn.Sequential(nn.Linear(8, 8), Norm(), nn.Linear(8, 8), Norm(), nn.Linear(8, 1))
loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randn(64, 1)), batch_size=8, shuffle=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("forward", "expected"),
    [
        (
            "self.mean = x.mean(0)\nvariance = (x - self.mean).pow(2).mean(0)\nmean = self.mean",
            "self.mean = SumOverRanks.apply(x.mean(0)) / dist.get_world_size()\n"
            "        variance = SumOverRanks.apply((x - self.mean).pow(2).mean(0)) / dist.get_world_size()\n",
        ),
        (
            "mean = x.mean(0)\nvariance = (x - mean).pow(2).mean(0)",
            "variance = SumOverRanks.apply((x - mean).pow(2).mean(0)) / dist.get_world_size()\n",
        ),
    ],
)
def test_layers_of_a_kind_one_after_the_other(tmp_path: Path, forward: str, expected: str) -> None:
    """What the second is given is computed from what the first takes over all ranks, in the same line."""
    after, said = conftest.converted(tmp_path, NORMS.format(forward=indent(forward, " " * 8)))
    assert expected in after and "AD602" not in said


def test_statistics_that_a_function_gives(tmp_path: Path) -> None:
    script = NORMS.replace("mean, torch.mean((x - mean) ** 2, dim=0)", "mean, variance").replace(
        "        return mean, ", "        variance = torch.mean((x - mean) ** 2, dim=0)\n        return mean, "
    )
    after, said = conftest.converted(tmp_path, script.format(forward="        mean, variance = self.statistics(x)"))
    assert "mean = SumOverRanks.apply(torch.mean(x, dim=0)) / dist.get_world_size()\n" in after
    assert "variance = SumOverRanks.apply(torch.mean((x - mean) ** 2, dim=0)) / dist.get_world_size()\n" in after
    assert "AD602" not in said


DECOMPOSED = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.head = nn.Linear(24, 1)

    def forward(self, x):
        h = self.conv(x){shape}
        return self.head(h.reshape(len(x), -1)) + {computed}


loader = DataLoader(TensorDataset(torch.randn(64, 3, 5, 4), torch.randn(64, 1)), batch_size=8, shuffle=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("shape", "computed", "gathered"),
    [
        (".flatten(1)", "torch.cov(h.t()).diagonal().mean()", True),
        (".flatten(1)", "torch.corrcoef(h.t()).mean()", True),
        (".flatten(1)", "torch.linalg.qr(h)[0].abs().mean()", True),
        ("", "torch.linalg.svdvals(h).sum((1, 2))[:, None]", False),
    ],
)
def test_matrices_of_all_samples(tmp_path: Path, shape: str, computed: str, gathered: bool) -> None:
    """A rank's share of the samples makes another matrix, and several for each sample do not."""
    after, said = converted(tmp_path, DECOMPOSED.replace("{shape}", shape).replace("{computed}", computed))
    assert ("(RowsOfAllRanks.apply(h)" in after) is gathered and "AD602" not in said


WIDTHS = """\
import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, default=8)
width = parser.parse_args().width


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, width), nn.LayerNorm({sizes}), nn.Linear(width, 1)

    def forward(self, x):
        return self.last(self.norm(self.first(x.transpose(0, 1)))).transpose(0, 1)


loader = DataLoader(TensorDataset(torch.randn(32, 5, 4), torch.randn(32, 5, 1)), batch_size=8, shuffle=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("sizes", "refused"),
    [
        ("width", False),
        ("[width]", False),
        ("width * 1", False),
        ("normalized_shape=width", False),
        ("(5, width)", True),
        ("normalized_shape=[5, width]", True),
    ],
)
def test_layers_that_normalise_a_width_of_the_settings(tmp_path: Path, sizes: str, refused: bool) -> None:
    """Samples come second: a layer over the last axis leaves them apart, and one over two axes does not."""
    _, said = conftest.converted(tmp_path, WIDTHS.format(sizes=sizes))
    assert ("AD906" in said) is refused


def test_a_sum_that_is_joined_is_not_reduced_where_it_is_compared(tmp_path: Path) -> None:
    """No gradient flows through the comparison: what is compared has been summed over the ranks."""
    step = (
        "both = (out * y).sum()\neach = out.pow(2).sum() + y.sum()\n"
        "total = torch.where(each == 0, both, each)\nloss = 1 - 2 * both / total"
    )
    after, said = converted(tmp_path, step)
    assert "both = SumOverRanks.apply((out * y).sum())" in after and "torch.where(each == 0, both, each)" in after
    assert "AD602" not in said
