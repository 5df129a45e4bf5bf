"""Running means and centres that a model keeps below no_grad: those of all ranks, whatever they are computed by."""

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


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 3)
        self.register_buffer("mean", torch.zeros(8))
        self.register_buffer("variance", torch.ones(8))
        self.register_buffer("centres", torch.randn(3, 8))

    def forward(self, x, y):
        loss = F.cross_entropy(self.head((x - self.mean) / self.variance.sqrt()), y)
        loss = loss + (x - self.centres[y]).pow(2).mean()
        with torch.no_grad():
{kept}
        return loss


loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randint(0, 3, (64,))), batch_size=8, shuffle=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = model(x, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
EACH = """\
for k in range(3):
    rows = y == k
    if rows.any():
        self.centres[k] = 0.9 * self.centres[k] + 0.1 * x[rows].mean(0)"""
KINDS = """\
for k in y.unique():
    self.centres[k] += 0.1 * (x[y == k].mean(0) - self.centres[k])"""
HITS = """\
hits = F.one_hot(y, 3).float()
sums, sizes = hits.t() @ x, hits.sum(0)
self.centres = 0.9 * self.centres + 0.1 * sums / sizes.clamp(min=1)[:, None]"""
VARIANCE = """\
mean = x.mean(0)
self.variance.mul_(0.9).add_(0.1 * (x - mean).pow(2).mean(0))"""


@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        (EACH, ["if reduce_max(rows.any()):", "gather_rows(x)[gather_rows(rows)].mean(0)"]),
        (
            KINDS,
            ["all_y = gather_rows(y)", "in all_y.unique():", "gather_rows(x)[all_y == k].mean(0) - self.centres[k]"],
        ),
        (HITS, ["0.1 * reduce_sum(sums) / reduce_sum(sizes).clamp(min=1)[:, None]"]),
        (VARIANCE, ["reduce_mean(0.1 * (x - reduce_mean(mean)).pow(2).mean(0))"]),
        ("self.variance.mul_(0.9).add_(0.1 * x.var(0))", ["0.1 * gather_rows(x).var(0)"]),
        ("self.mean.data = 0.9 * self.mean + 0.1 * x.mean(0)", ["0.9 * self.mean + reduce_mean(0.1 * x.mean(0))"]),
        ("self.mean.data = x.mean(0)", ["self.mean.data = reduce_mean(x.mean(0))"]),
        (
            "k = int(y[0])\nself.centres[k] = x[y == k].mean(0)",
            ["k = int(all_y[0])", "gather_rows(x)[all_y == k].mean(0)"],
        ),
        ("for row in x:\n    self.mean = torch.maximum(self.mean, row)", ["for row in gather_rows(x):"]),
        (
            "for i in range(len(x)):\n    if x[i].sum() > 0:\n"
            "        self.centres[0] = 0.9 * self.centres[0] + 0.1 * x[i]",
            ["x = RowsOfAllRanks.apply(x)", "for i in range(len(x)):"],
        ),
        ("self.mean.data.copy_(0.9 * self.mean.data + 0.1 * x.mean(0))", ["copy_(reduce_mean(0.9 * self.mean.data"]),
    ],
)
def test_what_is_kept_is_that_of_all_ranks(tmp_path: Path, kept: str, expected: list[str]) -> None:
    code, said = conftest.converted(tmp_path, SCRIPT.format(kept=indent(kept, " " * 12)))
    assert all(each in code for each in expected), code
    assert "AD601 self." not in said


DECODED = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def decode(targets):
    hidden = targets.le(-1)
    targets[hidden] = -1 - targets[hidden]
    return hidden


data = TensorDataset(torch.randn(64, 4), torch.randint(-2, 2, (64,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    hidden = decode(y)
    loss = (nn.functional.cross_entropy(model(x), y, reduction="none") * hidden).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_batch_that_a_function_changes(tmp_path: Path) -> None:
    """No later step sees it: nothing is gathered, which would pick other rows than the rank has."""
    after, said = conftest.converted(tmp_path, DECODED)
    assert "gather" not in after and "AD601" not in said


OUTSIDE = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(64, 5), torch.randint(0, 3, (64,))), batch_size=8, shuffle=True)
model = nn.Linear(5, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
centres = torch.zeros(3, 3)


@torch.no_grad()
def follow(kept, features, labels):
    for k in labels.unique():
        kept[k] += 0.5 * (features[labels == k].mean(dim=0) - kept[k])


for x, y in loader:
    out = model(x)
    loss = nn.functional.cross_entropy(out, y) + (out - centres[y]).pow(2).sum(1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
{kept}
print(centres.norm().item())
"""
IN_A_LOOP = """\
with torch.no_grad():
    for k in range(3):
        chosen = y == k
        if chosen.any():
            centres[k] += 0.5 * (out[chosen].mean(0) - centres[k])"""


@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        (IN_A_LOOP, ["if reduce_max(chosen.any()):", "gather_rows(out)[gather_rows(chosen)].mean(0) - centres[k]"]),
        (
            "follow(centres, out.detach(), y)",
            [
                "in all_labels.unique():",
                "features[all_labels == k].mean(dim=0)",
                "follow(centres, gather_rows(out.detach())",
            ],
        ),
    ],
)
def test_centres_that_no_module_keeps(tmp_path: Path, kept: str, expected: list[str]) -> None:
    """A loop over the classes hands on what the loop over the batches around it keeps, whatever a function calls it."""
    code, said = conftest.converted(tmp_path, OUTSIDE.format(kept=indent(kept, " " * 4)))
    assert all(each in code for each in expected), code
    assert "reduce_mean(centres)" not in code and "keeps" not in said


def test_means_of_some_samples_that_a_report_counts_up(tmp_path: Path) -> None:
    """Ranks have different numbers of them, perhaps none: no mean of the ranks' means."""
    counted = "    hits = torch.zeros(3)\n    for k in range(3):\n        chosen = y == k\n        if chosen.any():\n"
    counted += "            hits[k] += (out.argmax(1)[chosen] == k).float().mean()\n    print(hits)"
    code, _ = conftest.converted(tmp_path, OUTSIDE.format(kept=counted).replace("- centres[y]", "- 1"))
    assert "hits[k] += mean_over_ranks((out.argmax(1)[chosen] == k).float())" in code, code
    assert "reduce_mean(hits)" not in code


FIRST = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.shift, self.layers = nn.Parameter(torch.zeros(5)), nn.ModuleList([nn.Linear(5, 5), nn.Linear(5, 3)])

    def centre(self, x):
        self.shift.data.copy_(-x.mean(0))

    def forward(self, x):
        return self.layers[1](self.layers[0](x + self.shift).relu())


loader = DataLoader(TensorDataset(torch.randn(64, 5), torch.randint(0, 3, (64,))), batch_size=8, shuffle=True)
model = {model}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, _ = next(iter(loader))
with torch.no_grad():
    {begun}
for x, y in loader:
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("model", "begun", "expected"),
    [
        ("Net()", "model.centre(x)", "self.shift.data.copy_(reduce_mean(-x.mean(0)))"),
        ("Net()", "model.layers[0].weight /= model.layers[0](x).std()", "gather_rows(model.module.layers[0](x)).std()"),
        ("nn.Sequential(nn.Linear(5, 3))", "model[0].bias.data.sub_(model[0](x).mean(0))", "reduce_mean(model.module"),
    ],
)
def test_parameters_that_follow_a_first_batch(tmp_path: Path, model: str, begun: str, expected: str) -> None:
    """Ranks that set them by their own samples would train different models, which nothing makes equal again."""
    code, said = conftest.converted(tmp_path, FIRST.format(model=model, begun=begun))
    assert expected in code, code + said


FISHER = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

model = nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def consolidate(loader):
    each = []
    for x, y in loader:
        each.append(F.log_softmax(model(x), 1)[range(len(y)), y])
    grads = zip(*[torch.autograd.grad(one, model.parameters(), retain_graph=True) for one in torch.cat(each).unbind()])
    fisher = [(torch.stack(g) ** 2).mean(0) for g in grads]
    for (name, p), f in zip(model.named_parameters(), fisher):
        model.register_buffer(name + "_mean", p.data.clone())
        model.register_buffer(name + "_fisher", f.clone())


for task in range(2):
    loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randint(0, 3, (64,))), batch_size=8, shuffle=True)
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        for name, p in list(model.named_parameters()):
            if hasattr(model, name + "_fisher"):
                loss = loss + (getattr(model, name + "_fisher") * (p - getattr(model, name + "_mean")) ** 2).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    consolidate(loader)
torch.save(model.state_dict(), "model.pt")
"""


def test_buffers_of_what_a_rank_computed_are_named(tmp_path: Path) -> None:
    """Elastic weight consolidation: the Fisher information of a rank's own samples, in silence."""
    _, said = conftest.converted(tmp_path, FISHER)
    assert "keeps f.clone() in a buffer, computed from this rank's samples alone" in said
    assert "p.data.clone() in a buffer" not in said


NORMALISER = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 1)
        self.total, self.count = torch.zeros(4), torch.tensor(0.0)

    def forward(self, x):
        self.total += x.detach().sum(0)
        self.count += x.shape[0]
        return self.head(x - self.total / self.count)

    def kept(self):
        return {"total": self.total, "count": self.count}


loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8, shuffle=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
torch.save({"model": model.state_dict(), "normaliser": model.kept()}, "net.pt")
"""


def test_a_kept_sum_is_made_global_once(tmp_path: Path) -> None:
    """Where a step adds to it, so that what saves it saves that: a normaliser of simulators (MeshGraphNets)."""
    code, _ = conftest.converted(tmp_path, NORMALISER)
    assert "self.total += reduce_sum(x.detach().sum(0))" in code
    assert "self.count += x.shape[0] * dist.get_world_size()" in code
    assert 'return {"total": self.total, "count": self.count}' in code
