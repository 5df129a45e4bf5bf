"""What a rank's share of a batch would make of a step in silence: each script here was wrong, or stopped, once."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import pytest
from conftest import Autodist, converted, differences

from autodist.verify.launch import Zygote

HEAD = """\
import itertools
import os
import random
import urllib.request

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

torch.manual_seed(0)
np.random.seed(0)
random.seed(0)
data = TensorDataset(torch.randn(32, 8), torch.randint(0, 3, (32,)))
"""
NET = """\


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleList(nn.Linear(8, 3) for _ in range(3))
        self.out = nn.Linear(3, 3)
        self.task = 0

    def forward(self, x{parameters}):
        return {returned}


loader = DataLoader(data, batch_size=8, shuffle=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for i, (x, y) in enumerate(loader):
{step}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item())
"""


def script(step: str, parameters: str = "", returned: str = "self.out(sum(head(x) for head in self.heads))") -> str:
    """A whole script."""
    return HEAD + NET.format(step=indent(step, " " * 8), parameters=parameters, returned=returned)


def said(folder: Path, step: str, **parts: str) -> tuple[str, str]:
    """The conversion, and what is said of it."""
    return converted(folder, script(step, **parts))


ONE = {"parameters": ", k", "returned": "self.out(self.heads[k](x))"}


@pytest.mark.parametrize(
    ("step", "parts"),
    [
        ("loss = F.cross_entropy(model(x, i % 3), y)", ONE),
        ("model.task = i % 3\nloss = F.cross_entropy(model(x), y)", {"returned": "self.out(self.heads[self.task](x))"}),
        ("loss = F.cross_entropy(model(x), y)", {"returned": "self.out(self.heads[random.randrange(3)](x))"}),
        (
            "loss = F.cross_entropy(model(x, i % 3 + 1), y)",
            {"parameters": ", k", "returned": "self.out(sum(head(x) for head in self.heads[:k]))"},
        ),
    ],
)
def test_a_step_that_runs_one_of_several_layers(tmp_path: Path, step: str, parts: dict[str, str]) -> None:
    assert "find_unused_parameters=True" in said(tmp_path, step, **parts)[0]


@pytest.mark.parametrize(
    "returned", ["self.out(sum(self.heads[k](x) for k in range(3)))", "self.out(sum(head(x) for head in self.heads))"]
)
def test_a_step_that_runs_all_of_them(tmp_path: Path, returned: str) -> None:
    code, _ = said(tmp_path, "loss = F.cross_entropy(model(x), y)", returned=returned)
    assert "find_unused_parameters" not in code


def test_what_several_layers_give_is_added_up(tmp_path: Path) -> None:
    """Each gives a whole batch, so that their sum is one, too, and no sum over its samples."""
    code, _ = said(tmp_path, "loss = model(x).pow(2).mean()")
    assert "SumOverRanks" not in code and "reduce_mean(loss.item())" in code


def test_several_forward_passes_that_run_others_each(tmp_path: Path) -> None:
    """The wrapper looks for unused parameters in the last of them alone."""
    code, _ = said(tmp_path, "loss = sum(F.cross_entropy(model(x, k), y) for k in range(3))", **ONE)
    assert "average_gradients(optimizer)" in code and "DDP(" not in code


REBUILT = """\
model = nn.Linear(8, 3)


def train(part, epochs):
    loader = DataLoader(part, batch_size=8, shuffle=True)
    {make}
    optimizer = torch.optim.SGD({net}.parameters(), lr=0.1)
    for epoch in range(epochs):
        for x, y in loader:
            loss = F.cross_entropy({net}(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


for step in range(3):
    train(Subset(data, range(16)), 2)
"""


def test_a_loader_that_is_made_in_each_round(tmp_path: Path) -> None:
    """Its epochs start from zero in each, and with them the orders of the samples."""
    code, _ = converted(tmp_path, HEAD + REBUILT.format(make="pass", net="model"))
    assert "loader.sampler.set_epoch(next(passes))" in code and "passes = itertools.count()" in code


FOLDS = """\
for fold in range(3):
    loader = DataLoader(Subset(data, range(16)), batch_size=8, shuffle=True)
    model = nn.Linear(8, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
"""


def test_a_loader_that_is_made_with_its_model(tmp_path: Path) -> None:
    assert "loader.sampler.set_epoch(epoch)" in converted(tmp_path, HEAD + FOLDS)[0]


@pytest.mark.parametrize(
    "view",
    ["out.view(-1, 2, 3)", "out.view(out.size(0) // 2, 2, -1)", "out.reshape(4, 2, 3)"],
)
def test_rows_that_a_reshape_groups(tmp_path: Path, view: str) -> None:
    """Neighbours in a rank's share are none in the batch."""
    code, warned = said(tmp_path, f"out = model(x)\npairs = {view}\nloss = (pairs[:, 0] - pairs[:, 1]).pow(2).mean()")
    assert "RowsOfAllRanks.apply(" in code and "AD602" not in warned


@pytest.mark.parametrize(
    "returned",
    [
        "F.normalize(self.heads[0](x), dim=1)",
        "self.out(self.heads[0](x)).relu()",
        "nn.Sequential(nn.Linear(8, 3), nn.Tanh())(x)",
        "torch.sigmoid(self.out(self.heads[1](x)) + self.heads[2](x))",
    ],
)
def test_rows_that_a_reshape_groups_after_other_layers(tmp_path: Path, returned: str) -> None:
    """What the last layer gives can be read through what follows it."""
    step = "pairs = model(x).view(-1, 2, 3)\nloss = (pairs[:, 0] - pairs[:, 1]).pow(2).mean()"
    code, warned = said(tmp_path, step, returned=returned)
    assert "RowsOfAllRanks.apply(model(x))" in code and "AD602" not in warned
    kept = "parts = model(x).view(-1, 3, 1)\nloss = (parts[:, 0] - parts[:, 1]).pow(2).mean()"
    assert "RowsOfAllRanks" not in said(tmp_path, kept, returned=returned)[0]


def test_rows_that_a_reshape_groups_by_their_own_width(tmp_path: Path) -> None:
    step = "z = model(x)\npairs = z.reshape(-1, 2, z.size(1))\nloss = (pairs[:, 0] - pairs[:, 1]).pow(2).mean()"
    assert "RowsOfAllRanks.apply(" in said(tmp_path, step, returned="self.out(self.heads[0](x))")[0]


@pytest.mark.parametrize(
    "step",
    [
        "z = model(torch.stack([x, -x], 1).flatten(0, 1)).view(len(x), 2, -1)\nloss = F.mse_loss(z[:, 0], z[:, 1])",
        "z = model(x.repeat_interleave(2, 0))\nloss = z.view(-1, 2, 3).std(1).mean()",
        "loss = F.cross_entropy(model(x).view(-1, 3), y)",
    ],
)
def test_rows_of_one_sample_that_a_reshape_groups(tmp_path: Path, step: str) -> None:
    code, warned = said(tmp_path, step)
    assert "RowsOfAllRanks" not in code and "AD602" not in warned


def test_rows_that_a_reshape_groups_in_two_scripts(tmp_path: Path) -> None:
    """What is kept from the first does not tell of the second, of which a row is half a sample."""
    step = "z = model(x.repeat_interleave({count}, 0))\nloss = z.view(-1, 2, 3).std(1).mean()"
    for count, gathers in ((1, True), (2, False), (1, True)):
        assert ("RowsOfAllRanks" in said(tmp_path, step.format(count=count))[0]) is gathers


@pytest.mark.parametrize(
    ("step", "changed"),
    [
        ("g = torch.autograd.grad(F.cross_entropy(model(x), y), x)[0]\nx = x + g", "y) / dist.get_world_size(), x)"),
        ("F.cross_entropy(model(x), y).backward()\nx = x + x.grad", "x.grad / dist.get_world_size()"),
        ("g = torch.autograd.grad(F.cross_entropy(model(x), y), x)[0]\nx = x + g.sign()", "y), x)[0]"),
        ("g = torch.autograd.grad(model(x).sum(), x)[0]\nx = x + g", "model(x).sum(), x)[0]"),
    ],
)
def test_gradients_with_regard_to_samples(tmp_path: Path, step: str, changed: str) -> None:
    """Of a mean over a rank's share they are as many times as large as there are ranks."""
    code, _ = said(tmp_path, f"x.requires_grad_()\n{step}\nloss = F.cross_entropy(model(x.detach()), y)")
    assert changed in code


@pytest.mark.parametrize(
    "step",
    [
        "g, = torch.autograd.grad(inner, [x])\nprint(g.norm())\nloss = F.cross_entropy(model(x + g.detach()), y)",
        "g = torch.autograd.grad(inner, x)[0]\nprint(g.abs().max())\nloss = F.cross_entropy(model(x + g.sign()), y)",
        "g = torch.autograd.grad(inner, x, create_graph=True)[0]\nprint(g[0])\nloss = inner + g.pow(2).sum(1).mean()",
        "g = torch.autograd.grad(inner, x)[0]\nx = (x + g).detach()\nprint(x)\nloss = F.cross_entropy(model(x), y)",
    ],
)
def test_what_is_made_and_shown_of_gradients_of_samples(tmp_path: Path, zygote: Zygote, step: str) -> None:
    step = f"x.requires_grad_()\ninner = F.cross_entropy(model(x), y)\n{step}"
    assert differences(tmp_path, zygote, script(step)) is None


@pytest.mark.parametrize(
    "weights",
    [
        "w / w.sum() * len(w)",
        "w * (len(w) / w.sum())",
        "len(w) * w / w.sum()",
        "w.div(w.sum()).mul(len(w))",
        "w.mul(len(w)).div(w.sum())",
        "torch.mul(torch.div(w, w.sum()), len(w))",
        "w.div_(w.sum()).mul_(len(w))",
    ],
)
def test_weights_that_sum_to_the_number_of_samples(tmp_path: Path, weights: str) -> None:
    step = (
        f"w = torch.where(y == 1, 2.0, 1.0)\nw = {weights}\n"
        "loss = (F.cross_entropy(model(x), y, reduction='none') * w).mean()"
    )
    code, _ = said(tmp_path, step)
    weighing = next(line for line in code.splitlines() if "w = " in line and "len(w)" in line)
    assert "* dist.get_world_size()" in weighing


@pytest.mark.parametrize("share", ["/ len(x)", "* (len(xs) / len(x))"])
def test_parts_of_a_batch_by_how_many_samples_it_has(tmp_path: Path, share: str) -> None:
    """They add up to a mean, which was taken for a sum."""
    reduction = ", reduction='sum'" if share.startswith("/") else ""
    step = (
        "total = 0\nloss = 0\nfor xs, ys in zip(x.split(2), y.split(2)):\n"
        f"    part = F.cross_entropy(model(xs), ys{reduction}) {share}\n    loss = loss + part\n"
        "    total += part.item()\n"
        "print(total)"
    )
    code, _ = said(tmp_path, step)
    assert "reduce_mean(total)" in code and "(loss * " not in code


@pytest.mark.parametrize(
    "part",
    [
        "F.cross_entropy(out, ys, reduction='sum') / x.size(0)",
        "F.cross_entropy(out, ys) * len(xs) / len(x)",
        "len(xs) / len(x) * F.cross_entropy(out, ys)",
    ],
)
def test_pieces_that_are_differentiated_one_by_one(tmp_path: Path, zygote: Zygote, part: str) -> None:
    step = (
        "total, hits = 0, 0\noptimizer.zero_grad()\nfor xs, ys in zip(x.split(2), y.split(2)):\n    out = model(xs)\n"
        f"    loss = {part}\n    loss.backward()\n    total += loss.item()\n"
        "    hits += (out.argmax(1) == ys).sum().item()\nprint(total, hits)\noptimizer.step()"
    )
    before = script(step)
    tail = (
        "        optimizer.zero_grad()\n        loss.backward()\n        optimizer.step()\n        print(loss.item())\n"
    )
    assert differences(tmp_path, zygote, before.replace(tail, "")) is None


def test_the_worst_of_pieces_is_said(tmp_path: Path) -> None:
    """They have other samples than those of one process."""
    step = "loss = F.cross_entropy(model(x), y)\nworst = 0\n"
    step += "for xs in x.split(2):\n    worst = max(worst, xs.mean().item())"
    assert "AD601 reports" in said(tmp_path, f"{step}\nprint(worst)")[1]


def test_a_report_does_not_change_how_a_batch_is_split(tmp_path: Path) -> None:
    """How large its pieces are, losses are computed with: it is not made global for what is printed of them."""
    step = (
        "total = 0\nloss = 0\nfor xs, ys in zip(x.split(len(x) // 4), y.split(len(x) // 4)):\n"
        "    part = F.cross_entropy(model(xs), ys) / 4\n    loss = loss + part\n    total += part.item()\nprint(total)"
    )
    code, report = said(tmp_path, step)
    assert "zip(x.split(len(x) // 4), y.split(len(x) // 4))" in code
    assert "reduce_mean(total)" in code or "computed from this rank's samples alone" in report


def test_a_learning_rate_that_is_set_by_hand(tmp_path: Path) -> None:
    step = (
        "loss = F.cross_entropy(model(x), y)\nfor group in optimizer.param_groups:\n"
        "    group['lr'] = 0.1 * min(1.0, loss.item())"
    )
    assert "0.1 * min(1.0, reduce_mean(loss.item()))" in said(tmp_path, step)[0]


MINED = """\
others = []
for i in range(len(y)):
    for j in range(len(y)):
        if y[i] != y[j]:
            others.append(j)
"""


def test_samples_that_are_chosen_by_what_the_others_are(tmp_path: Path) -> None:
    _, warned = said(tmp_path, f"out = model(x)\n{MINED}loss = out[others].pow(2).mean()")
    assert "AD602" in warned or "AD601 decides" in warned


def test_samples_that_are_chosen_within_a_forward_pass(tmp_path: Path) -> None:
    text = script(
        "loss = model(x, y).pow(2).mean()", parameters=", y", returned="self.heads[0](x)[torch.tensor(far(y))]"
    )
    chosen = indent(MINED, "    ")
    text = text.replace("\n\nclass Net", f"\n\ndef far(y):\n{chosen}    return others\n\n\nclass Net", 1)
    after, warned = converted(tmp_path, text)
    assert "RowsOfAllRanks.apply(self.heads[0](x))" in after and "AD602" not in warned


def test_a_list_of_samples_that_is_reported(tmp_path: Path) -> None:
    step = (
        "out = model(x)\nloss = F.cross_entropy(out, y)\nwrong = []\n"
        "for at, (guess, label) in enumerate(zip(out.argmax(1), y)):\n    if guess != label:\n"
        "        wrong.append(at)\n"
        "print(len(wrong), wrong)"
    )
    code, warned = said(tmp_path, step)
    assert "enumerate(zip(gather_rows(out.argmax(1)), gather_rows(y)))" in code and "AD601 reports" not in warned


BENT = """\


class Clipped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return {}


"""


@pytest.mark.parametrize(
    ("returned", "named"), [("gradient.clamp(-1, 1)", True), ("-gradient", False), ("gradient.clamp(min=0)", False)]
)
def test_backward_passes_that_bend_gradients(tmp_path: Path, returned: str, named: bool) -> None:
    text = script("loss = F.cross_entropy(Clipped.apply(model(x)), y)")
    _, warned = converted(tmp_path, text.replace("\n\nclass Net", BENT.format(returned) + "class Net", 1))
    assert ("AD602 clamp() of the gradients" in warned) is named


@pytest.mark.parametrize("draw", ["torch.randn_like(z)", "torch.randn(*z.shape)", "torch.empty_like(z).normal_()"])
def test_no_noise_is_drawn_for_rows_of_all_ranks(tmp_path: Path, draw: str) -> None:
    step = f"z = model(x)\nz = z + {draw}\nloss = torch.linalg.svdvals(z).sum()"
    code, warned = said(tmp_path, step)
    assert "torch.linalg.svdvals(RowsOfAllRanks.apply(z))" in code and "AD602" not in warned


def test_numbers_for_one_sample_after_the_other(tmp_path: Path) -> None:
    step = (
        "other = torch.tensor([np.random.randint(3) for label in y.tolist()])\n"
        "loss = F.cross_entropy(model(x), y) - F.cross_entropy(model(x), other)"
    )
    assert "np.random.seed(torch.initial_seed() % 2**32)" in said(tmp_path, step)[0]


NEGATIVES = """\
model = nn.Linear(8, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs, labels = data.tensors
for epoch in range(2):
    order = torch.randperm(len(inputs))
    for start in range(0, len(inputs), 8):
        batch = order[start : start + 8]
        x, y = inputs[batch], labels[batch]
        other = torch.tensor([np.random.randint(3) for label in y])
        loss = F.cross_entropy(model(x), y) - F.cross_entropy(model(x), other)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def test_numbers_for_the_rows_of_a_hand_made_batch(tmp_path: Path) -> None:
    """Torch draws the order, in which ranks must agree, so that they cannot be seeded apart."""
    assert "AD702 np.random.randint(3) draws for this rank's samples" in converted(tmp_path, HEAD + NEGATIVES)[1]


@pytest.mark.parametrize(
    "fetch",
    [
        "try:\n    urllib.request.urlretrieve('a', 'data.bin')\nexcept OSError:\n"
        "    urllib.request.urlretrieve('b', 'data.bin')\n",
        "for url in ['a', 'b']:\n    try:\n        urllib.request.urlretrieve(url, 'data.bin')\n        break\n"
        "    except OSError:\n        print('again')\n",
    ],
)
def test_downloads_that_may_fail(tmp_path: Path, fetch: str) -> None:
    """Whoever waits for rank 0 is woken whether its first attempt fails or not."""
    code, _ = converted(tmp_path, HEAD + fetch + FOLDS)
    once = 'if rank == dist.get_rank() and os.environ["LOCAL_RANK"] == "0":'
    assert f"    {once}\n{indent(fetch, '        ')}    dist.barrier()\n" in code
    assert code.index("\nsetup_distributed()\n") < code.index(once)


@pytest.mark.parametrize(
    ("make", "filled"),
    [
        ("nn.Linear(8, 3)", 'model = model.to_empty(device="cpu")'),
        ("nn.Linear(8, 3)", 'model.to_empty(device="cpu")'),
        ("nn.Linear(8, 3)", "model.load_state_dict(nn.Linear(8, 3).state_dict(), assign=True)"),
    ],
)
def test_models_without_memory_are_wrapped_when_they_have_some(tmp_path: Path, make: str, filled: str) -> None:
    made = f'with torch.device("meta"):\n    model = {make}\n{filled}\nnn.init.ones_(model.weight)\n'
    code, _ = converted(tmp_path, HEAD + made + NEGATIVES.partition("\n")[2])
    assert "    model = nn.Linear(8, 3)\n" in code and "DDP(model" in code


def test_ranks_of_all_samples_in_a_metric(tmp_path: Path) -> None:
    """`ranks[order] = numbers`, as an area under a curve is computed by hand."""
    step = (
        "out = model(x)\nloss = F.cross_entropy(out, y)\np, t = out[:, 1].detach().numpy(), (y == 1).numpy()\n"
        "order = np.argsort(p)\nranks = np.empty(len(p))\nranks[order] = np.arange(len(p))\nprint(ranks[t].sum())"
    )
    code, _ = said(tmp_path, step)
    assert "reduce_sum(ranks[t].sum())" not in code


@pytest.mark.parametrize(
    ("step", "parts"),
    [
        ("loss = F.cross_entropy(model(x, i % 3), y)", ONE),
        ("loss = sum(F.cross_entropy(model(x, k), y) for k in range(3))", ONE),
        (
            "x.requires_grad_()\ng = torch.autograd.grad(F.cross_entropy(model(x), y), x)[0]\n"
            "loss = F.cross_entropy(model((x + g).detach()), y)",
            {},
        ),
        ("out = model(x)\npairs = out.view(-1, 2, 3)\nloss = (pairs[:, 0] - pairs[:, 1]).pow(2).mean()", {}),
        (
            "w = torch.where(y == 1, 2.0, 1.0)\nw = w / w.sum() * len(w)\n"
            "loss = (F.cross_entropy(model(x), y, reduction='none') * w).mean()",
            {},
        ),
    ],
)
@pytest.mark.usefixtures("warm")
def test_the_same_steps(tmp_path: Path, autodist: Autodist, step: str, parts: dict[str, str]) -> None:
    (tmp_path / "train.py").write_text(script(step, **parts))
    result = autodist("verify", str(tmp_path / "train.py"), "--strategy", "ddp")
    assert result.exit_code == 0, result.output
