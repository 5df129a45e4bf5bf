"""Losses that compare the samples of a batch with each other, and what is gathered for them."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

SCRIPT = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(64, 6), torch.randn(64, 6), torch.randint(3, (64,)))
size = 8
loader = DataLoader(data, batch_size=size, shuffle=True)


{helper}


class Twin(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 4)

    def forward(self, a, b):
        return self.body(a), self.body(b)


model = {model}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y, labels in loader:
        {step}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
"""
HARD = """\
class Hard(nn.Module):
    def forward(self, z, labels):
        n = z.size(0)
        distance = z.pow(2).sum(1, keepdim=True).expand(n, n)
        distance = distance + distance.t()
        distance.addmm_(z, z.t(), beta=1, alpha=-2)
        alike = labels.expand(n, n).eq(labels.expand(n, n).t())
        return F.relu((distance * alike).max(1)[0] - (distance + 9 * alike).min(1)[0] + 0.3).mean()


hard = Hard()"""
COSINE = """\
class Cosine(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size = size
        self.mask = ~torch.eye(2 * size, dtype=torch.bool)
        self.similarity = nn.CosineSimilarity(dim=2)
        self.criterion = nn.CrossEntropyLoss(reduction="sum")

    def forward(self, a, b):
        z = torch.cat((a, b))
        similar = self.similarity(z.unsqueeze(1), z.unsqueeze(0))
        right = torch.cat((torch.diag(similar, self.size), torch.diag(similar, -self.size))).view(2 * self.size, 1)
        scores = torch.cat((right, similar[self.mask].view(2 * self.size, -1)), dim=1)
        return self.criterion(scores, torch.zeros(2 * self.size).long()) / (2 * self.size)


cosine = Cosine(size)"""
COVARIANCE = """\
def covariance(a):
    a = a - a.mean(0)
    c = a.T @ a / (len(a) - 1)
    return (c - torch.eye(4)).pow(2).sum() + F.relu(1 - a.std(0)).mean()
"""
ROWS = "RowsOfAllRanks.apply"


@pytest.mark.parametrize(
    ("helper", "model", "step", "expected"),
    [
        (HARD, "nn.Linear(6, 4)", "loss = hard(model(x), labels)", [f"hard({ROWS}(model(x)), {ROWS}(labels))"]),
        (
            COSINE,
            "nn.Linear(6, 4)",
            "a, b = model(x), model(y)\n        loss = cosine(a, b)",
            [f"cosine({ROWS}(a), {ROWS}(b))", "torch.zeros(2 * self.size)"],
        ),
        (COVARIANCE, "nn.Linear(6, 4)", "loss = covariance(model(x))", [f"covariance({ROWS}(model(x)))"]),
        (
            "",
            "Twin()",
            "a, b = model(x, y)\n        n = len(x)\n        loss = F.cross_entropy(a @ b.t(), torch.arange(n))",
            [f"{ROWS}(a) @ {ROWS}(b).t()", "n = len(x) * dist.get_world_size()"],
        ),
        (
            "def pairs(a, b):\n    n, _ = a.shape\n    return F.cross_entropy(a @ b.T, torch.arange(n))",
            "Twin()",
            "loss = pairs(*model(x, y)) + 0.1 * labels.float().mean()",
            [f"{ROWS}(a) @ {ROWS}(b).T", "torch.arange(n * dist.get_world_size())"],
        ),
        (
            "",
            "nn.Linear(6, 4)",
            "z = torch.cat([model(x), model(y)])\n        similar = (z[:, None] - z[None]).pow(2).sum(-1)\n        "
            "alike = torch.cat([labels, labels])\n        alike = (alike[:, None] == alike[None]).float()\n        "
            "loss = F.binary_cross_entropy_with_logits(-similar, alike)",
            [f"z = {ROWS}(torch.cat([model(x), model(y)]))", f"alike = {ROWS}(alike)"],
        ),
    ],
)
def test_rows_of_all_ranks(tmp_path: Path, helper: str, model: str, step: str, expected: list[str]) -> None:
    """They are gathered where a criterion is called, or where they are computed, and with them what they meet."""
    code, said = converted(tmp_path, SCRIPT.format(helper=helper, model=model, step=step))
    assert all(each in code for each in expected), code
    assert "AD602" not in said and "AD906" not in said and "loss.backward()" in code


VIOLATION = """\
import sys


class Margin(nn.Module):
    def __init__(self, hardest=False):
        super().__init__()
        self.hardest = hardest

    def forward(self, a, b):
        scores = a.mm(b.t())
        own = scores.diag().view(len(a), 1)
        cost = (0.2 + scores - own.expand_as(scores)).clamp(min=0)
        other = (0.2 + scores - own.t().expand_as(scores)).clamp(min=0)
        same = torch.eye(len(a)) > 0.5
        cost, other = cost.masked_fill_(same, 0), other.masked_fill_(same, 0)
        if self.hardest:
            cost, other = cost.max(1)[0], other.max(0)[0]
        return cost.sum() + other.sum()


one, two = nn.Linear(6, 4), nn.Linear(6, 4)
margin = Margin(hardest="--hardest" in sys.argv)
"""


def test_an_option_chooses_the_hardest_pairs(tmp_path: Path) -> None:
    """Whichever it chooses, the rows of all ranks are compared, of both models: `a.mm(b.t())` learns of both."""
    script = SCRIPT.format(helper=VIOLATION, model="nn.ModuleList([one, two])", step="loss = margin(one(x), two(y))")
    script = script.replace("SGD(model.parameters()", "SGD([*one.parameters(), *two.parameters()]")
    code, said = converted(tmp_path, script)
    assert f"margin({ROWS}(one(x)), {ROWS}(two(y)))" in code and "AD602" not in said and "AD904" not in said


COX = """\
def cox(risk, time, event):
    mask = torch.ones(time.shape[0], time.shape[0]).to(time.device)
    mask[(time.{turned} - time) > 0] = 0
    total = torch.sum(torch.exp(risk) * mask, dim=0) / torch.sum(mask, dim=0)
    return -torch.sum((risk - torch.log(total).reshape(-1, 1)) * event) / torch.sum(event)
"""
RANKED = """\
def ranks(time):
    n = len(time)
    table = torch.zeros(n, n)
    for i in range(n):
        if time[i] > 0:
            table[i] = (time[i] < time).float()
    return table


def ranked(out, time):
    return (ranks(time) * torch.exp(out @ out.t())).mean()
"""


@pytest.mark.parametrize("turned", ["T", "t()", "view(1, -1)"])
def test_pairs_that_a_mask_tells_apart(tmp_path: Path, turned: str) -> None:
    """The partial likelihood of Cox: those at risk are all samples that live longer."""
    step = "loss = cox(model(x), y[:, :1], labels.float().view(-1, 1))"
    code, said = converted(
        tmp_path, SCRIPT.format(helper=COX.format(turned=turned), model="nn.Linear(6, 1)", step=step)
    )
    assert f"cox({ROWS}(model(x)), {ROWS}(y[:, :1]), {ROWS}(labels.float().view(-1, 1)))" in code, code
    assert "AD602" not in said and "AD605" not in said


def test_shares_are_no_pairs(tmp_path: Path) -> None:
    """What is laid along a row to be divided by one number for each sample, as soft assignments to clusters are."""
    step = "q = model(x).exp()\n        loss = F.mse_loss((q.t() / torch.sum(q, 1)).t(), y[:, :4])"
    code, said = converted(tmp_path, SCRIPT.format(helper="", model="nn.Linear(6, 4)", step=step))
    assert ROWS not in code and "AD602" not in said and "AD906" not in said


def test_samples_that_a_loop_compares_with_all(tmp_path: Path) -> None:
    """In a function that is given those of all ranks, and in the step itself, the loop counts them all."""
    step = "loss = ranked(model(x), labels)"
    code, _ = converted(tmp_path, SCRIPT.format(helper=RANKED, model="nn.Linear(6, 4)", step=step))
    assert f"ranked({ROWS}(model(x)), {ROWS}(labels))" in code
    step = """\
out, table = model(x), torch.zeros(len(labels), len(labels))
        for i in range(len(labels)):
            table[i] = (labels[i] < labels).float()
        loss = (table * torch.exp(out @ out.t())).mean()"""
    code, said = converted(tmp_path, SCRIPT.format(helper="", model="nn.Linear(6, 4)", step=step))
    assert f"labels = {ROWS}(labels)" in code and "for i in range(len(labels)):" in code and "AD602" not in said
    assert "torch.zeros(len(labels) * dist.get_world_size(), len(labels) * dist.get_world_size())" in code


def test_pairs_inside_of_a_model(tmp_path: Path) -> None:
    step = "out = model(x, y)\n        loss = F.cross_entropy(out, torch.arange(len(x)))"
    script = SCRIPT.format(helper="", model="Twin()", step=step)
    script = script.replace("return self.body(a), self.body(b)", "return self.body(a) @ self.body(b).t()")
    code, said = converted(tmp_path, script)
    assert f"return {ROWS}(self.body(a)) @ {ROWS}(self.body(b)).t()" in code
    assert "torch.arange(len(x) * dist.get_world_size())" in code and "AD602" not in said


def test_a_mean_beside_it_is_reported_as_one(tmp_path: Path) -> None:
    """What is gathered is the same everywhere, and means over a rank's samples are not."""
    step = "z = model(x)\n        pairs = torch.cdist(z, z).mean()\n        loss = pairs + F.mse_loss(z, y[:, :4])"
    code, said = converted(tmp_path, SCRIPT.format(helper="", model="nn.Linear(6, 4)", step=step))
    assert "reduce_mean(loss.item())" in code and "AD602" not in said


def test_a_sum_beside_it_is_gathered_too(tmp_path: Path) -> None:
    """Gradients of one would have to be added over the ranks, and those of the other not."""
    step = (
        "z = model(x)\n        apart = F.mse_loss(z, y[:, :4], reduction='sum')\n        "
        "loss = torch.cdist(z, z).mean() + apart"
    )
    code, said = converted(tmp_path, SCRIPT.format(helper="", model="nn.Linear(6, 4)", step=step))
    assert f"z = {ROWS}(model(x))" in code and f"F.mse_loss(z, {ROWS}(y[:, :4]), reduction='sum')" in code
    assert "AD602" not in said and "AD603" not in said


def test_rows_that_nothing_compares_stay_where_they_are(tmp_path: Path) -> None:
    step = "z = model(x)\n        loss = F.cross_entropy(z @ model.weight, labels)"
    code, _ = converted(tmp_path, SCRIPT.format(helper="", model="nn.Linear(6, 4)", step=step))
    assert ROWS not in code


def test_rows_that_a_condition_picks(tmp_path: Path) -> None:
    """Ranks pick different numbers of them: they are gathered before that."""
    step = (
        "z, keep = model(x), labels > 0\n        z, chosen = z[keep], labels[keep]\n        "
        "loss = F.binary_cross_entropy_with_logits(z @ z.t(), (chosen[:, None] == chosen[None]).float())"
    )
    code, said = converted(tmp_path, SCRIPT.format(helper="", model="nn.Linear(6, 4)", step=step))
    assert f"keep = model(x), {ROWS}(labels > 0)" in code or f"{ROWS}(keep)" in code, code
    assert f"{ROWS}(z)[" in code and f"{ROWS}(labels)[" in code and "AD602" not in said


def test_batches_that_are_made_by_hand(tmp_path: Path) -> None:
    """Their rows are this rank's only once they are shared out."""
    script = SCRIPT.format(
        helper="x_all, y_all = data.tensors[:2]", model="nn.Linear(6, 4)", step="loss = F.cross_entropy(a @ b.t(), at)"
    )
    loop = "    order = torch.randperm(64)\n    for i in range(0, 64, size):\n"
    picked = "at = order[i : i + size]\n        a, b = model(x_all[at]), model(y_all[at])\n        "
    picked += "at = torch.arange(len(at))"
    script = script.replace("    for x, y, labels in loader:\n", loop).replace(
        "loss = ", f"{picked}\n        loss = ", 1
    )
    code, said = converted(tmp_path, script)
    assert f"{ROWS}(a) @ {ROWS}(b).t()" in code and "torch.arange(len(at) * dist.get_world_size())" in code
    assert "AD602" not in said and "AD906" not in said


STEP = """\
def step(x, y):
    a, b = model(x), model(y)
    return F.cross_entropy(a @ b.t(), torch.arange(len(x)))
"""
EVALUATED = """\
    {mode}
        print(sum(step(x, y).item() for x, y, _ in evaluation))
"""


@pytest.mark.parametrize(("mode", "switched"), [("with torch.no_grad():", True), ("if epoch:", False)])
def test_a_step_that_evaluation_shares(tmp_path: Path, mode: str, switched: bool) -> None:
    """There every rank has all of the data, which must not be gathered once more."""
    script = SCRIPT.format(helper=STEP, model="nn.Linear(6, 4)", step="loss = step(x, y)")
    script = script.replace("loader = ", "evaluation = DataLoader(data, batch_size=size)\nloader = ", 1)
    code, said = converted(tmp_path, script + EVALUATED.format(mode=mode))
    if switched:
        assert "gather_in_training(a) @ gather_in_training(b).t()" in code and "AD906" not in said
        assert "len(x) * (dist.get_world_size() if torch.is_grad_enabled() else 1)" in code
    else:
        assert "AD906 the loss compares the samples of a batch, and is computed here of all data, too" in said


def test_both_phases_in_one_loop(tmp_path: Path) -> None:
    script = SCRIPT.format(helper=HARD, model="nn.Linear(6, 4)", step="loss = hard(model(x), labels)")
    script = script.replace("loader = ", 'loaders = {"val": DataLoader(data, batch_size=size)}\nloaders["train"] = ', 1)
    head, tail = script.split("    for x, y, labels in loader:\n")
    tail = tail[: tail.index("        optimizer.zero_grad()")].strip()
    loop = (
        '    for phase in ["train", "val"]:\n        for x, y, labels in loaders[phase]:\n'
        '            with torch.set_grad_enabled(phase == "train"):\n                '
        f'{tail}\n                if phase == "train":\n                    optimizer.zero_grad()\n'
        "                    loss.backward()\n                    optimizer.step()\n"
    )
    code, said = converted(tmp_path, head + loop)
    assert "hard(gather_in_training(model(x)), gather_in_training(labels))" in code and "AD906" not in said


def test_what_a_function_picks_for_each_class(tmp_path: Path) -> None:
    """A loss that is made of lists of places: what the function is given is gathered, as nothing in it tells where."""
    helper = """\
def prototypes(out, target):
    def chosen(c):
        return target.eq(c).nonzero()[:2].squeeze(1)

    classes = torch.unique(target)
    centres = torch.stack([out[at].mean(0) for at in map(chosen, classes)])
    rest = torch.cat([target.eq(c).nonzero()[2:] for c in classes]).view(-1)
    return -F.log_softmax(-torch.cdist(out[rest], centres), dim=1)[:, 0].mean(), classes
"""
    script = SCRIPT.format(helper=helper, model="nn.Linear(6, 4)", step="loss, _ = prototypes(model(x), target=labels)")
    code, said = converted(tmp_path, script)
    assert f"prototypes({ROWS}(model(x)), target={ROWS}(labels))" in code and "AD602" not in said


OF_NUMPY = """\
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

noisy = np.arange(32) % 3 == 0
data = TensorDataset(torch.randn(32, 5), torch.randint(0, 3, (32,)), torch.arange(32))
loader = DataLoader(data, batch_size=8, shuffle=True)
net = nn.Linear(5, 3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)


def easiest(out, y, ind):
    losses = F.cross_entropy(out, y, reduction="none")
    order = np.argsort(losses.detach().numpy())
    keep = order[:6]
    return losses[keep].mean(), np.sum(noisy[ind[keep]]) / 6.0


for epoch in range(2):
    pure = []
    for x, y, ind in loader:
        ind = ind.cpu().numpy()
        loss, ratio = easiest(net(x), y, ind)
        pure.append(100 * ratio)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, sum(pure) / len(pure))
torch.save(net.state_dict(), "m.pt")
"""


@pytest.mark.parametrize("made", ["ind.cpu().numpy()", "np.asarray(ind)"])
def test_an_array_s_rows_are_gathered_as_a_tensor(tmp_path: Path, made: str) -> None:
    code, _ = converted(tmp_path, OF_NUMPY.replace("ind.cpu().numpy()", made))
    assert f"{ROWS}(y), {ROWS}(torch.as_tensor(ind)).numpy())" in code


FIELDS = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 4)), batch_size=8, shuffle=True)
model = nn.Linear(4, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for {target} in {over}:
    first, second = data[0].float(), data[1].float()
    left, right = model(first), model(second)
    near = left @ right.t()
    loss = nn.functional.cross_entropy(near, torch.arange(len(near)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("target", "over"), [("data", "loader"), ("i, data", "enumerate(loader, 0)"), ("data", "tqdm(loader)")]
)
def test_fields_of_a_batch_are_no_samples(tmp_path: Path, target: str, over: str) -> None:
    """The batch is a list of tensors, which cannot be gathered as one."""
    code, _ = converted(tmp_path, "from tqdm import tqdm\n" + FIELDS.format(target=target, over=over))
    assert "near = RowsOfAllRanks.apply(left) @ RowsOfAllRanks.apply(right).t()" in code
    assert "RowsOfAllRanks.apply(data)" not in code


ATTENTION = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x):
        {body}
        return self.attention(x, x, x)[0]


loader = DataLoader(TensorDataset(torch.randn(64, {shape})), batch_size=8, shuffle=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (x,) in loader:
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("body", "shape", "across"),
    [("x = x.unsqueeze(0)", "4", True), ("x = x.unsqueeze(1)", "4", False), ("x", "5, 4", 0)],
)
def test_attention_from_sample_to_sample(tmp_path: Path, body: str, shape: str, across: bool) -> None:
    _, said = converted(tmp_path, ATTENTION.format(body=body, shape=shape))
    assert ("takes the axis of the samples for time" in said) == bool(across)


KERNEL = """\
def kernel(x, y):
    n, m, dim = x.size(0), y.size(0), x.size(1)
    x = x.unsqueeze(1)
    y = y.unsqueeze(0)
    x = x.expand(n, m, dim)
    y = y.expand(n, m, dim)
    return torch.exp(-(x - y).pow(2).mean(2) / float(dim)).mean()
"""
DENSITY = """\
def density(x, mean):
    return -0.5 * (x - mean) ** 2


def matrix(x, mean):
    n, dim = x.shape
    x = x.view(n, 1, dim)
    mean = mean.view(1, n, dim)
    return density(x, mean)
"""
TILED = (
    "z = model(x)\n        n = z.size(0)\n        a = z.repeat(n, 1).view(n, n, -1)\n        "
    "b = z.unsqueeze(1).repeat(1, n, 1)\n        loss = (a - b).pow(2).sum(2).mean()"
)


@pytest.mark.parametrize(
    ("helper", "step", "expected"),
    [
        (KERNEL, "z = model(x)\n        loss = kernel(torch.randn(len(z), 4), z)", f", {ROWS}(z))"),
        (
            DENSITY,
            "z = model(x)\n        loss = torch.logsumexp(matrix(z, z), dim=1).sum(1).mean()",
            f"z = {ROWS}(model(x))",
        ),
        ("", TILED, f"z = {ROWS}(z)"),
        (
            "",
            "z = model(x)\n        loss = (z.unsqueeze(1) - z.reshape(1, *z.shape)).abs().sum(-1).mean()",
            f"all_z = {ROWS}(z)",
        ),
        (
            "",
            "z = model(x)\n        alike = labels.view(-1, 1) == labels.view(1, -1)\n        "
            "loss = ((z @ z.t()) * alike.float()).mean()",
            f"labels = {ROWS}(labels)",
        ),
        (
            "",
            "z = model(x)\n        a, b = z.view(len(z), 1, 4), z.view(1, len(z), 4)\n        "
            "loss = F.mse_loss(a, b, reduction='none').sum(2).logsumexp(1).mean()",
            f"z = {ROWS}(model(x))",
        ),
    ],
)
def test_axes_that_are_put_ahead_of_the_samples(tmp_path: Path, helper: str, step: str, expected: str) -> None:
    """By a view, before a function is called, or by repeating them all: what is gathered are pairs of all ranks."""
    code, said = converted(tmp_path, SCRIPT.format(helper=helper, model="nn.Linear(6, 4)", step=step))
    assert expected in code and "AD602" not in said, code


def test_pairs_of_joined_rows(tmp_path: Path) -> None:
    """As relation networks have them: the samples lie along the first axis of one part, and the second of the other."""
    step = (
        "z = model(x)\n        n = len(z)\n        pairs = torch.cat((z.unsqueeze(0).repeat(n, 1, 1), "
        "z.unsqueeze(1).repeat(1, n, 1)), 2)\n        loss = pairs.pow(2).sum(2).logsumexp(1).mean()"
    )
    code, said = converted(tmp_path, SCRIPT.format(helper="", model="nn.Linear(6, 4)", step=step))
    assert f"z = {ROWS}(z)" in code and "AD602" not in said, code


@pytest.mark.parametrize("term", ["0 * z[0, 0]", "0.0 * z.sum()"])
def test_what_comes_to_naught(tmp_path: Path, term: str) -> None:
    """It is added so that all layers have gradients."""
    step = f"z = model(x)\n        loss = F.cross_entropy(z, labels) + {term}"
    code, said = converted(tmp_path, SCRIPT.format(helper="", model="nn.Linear(6, 4)", step=step))
    assert "AD60" not in said.replace("AD601", "") and f"+ {term}" in code
