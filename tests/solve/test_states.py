"""What steps keep for later ones: ranks go on alike only where it is that of all samples."""

from __future__ import annotations

import pytest
from programs import CATALOG, traced

from autodist.solve.alone import Alone
from autodist.solve.cuts import solved
from autodist.solve.sources import sources
from autodist.solve.steps import steps_of

SCRIPT = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randint(3, (64,))), batch_size=8, shuffle=True)
net = nn.Linear(4, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
{start}
for epoch in range(2):
    for x, y in loader:
        out = net(x)
        loss = F.cross_entropy({loss}, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        {step}
"""


def wanted(start: str, loss: str, step: str) -> list[str]:
    """What is made global so that steps go on alike."""
    program = traced(SCRIPT.format(start=start, loss=loss, step=step.replace("\n", "\n        ")))
    found = solved(program, sources(program, CATALOG).plan, CATALOG, Alone())
    return [each.source.code(each.node) for each in found if each.is_met]


@pytest.mark.parametrize(
    ("start", "loss", "step", "global_"),
    [
        (
            "centre = torch.zeros(3)",
            "out - centre",
            "centre = 0.9 * centre + 0.1 * out.detach().mean(0)",
            ["0.1 * out.detach().mean(0)"],
        ),
        (
            "centre = torch.zeros(3)",
            "out - centre",
            "with torch.no_grad():\n    centre = centre * 0.9 + out.mean(0) * 0.1",
            ["out.mean(0) * 0.1"],
        ),
        (
            "centre = torch.zeros(3)",
            "out - centre",
            "centre.mul_(0.9).add_(0.1 * out.detach().mean(0))",
            ["0.1 * out.detach().mean(0)"],
        ),
        (
            "sizes = torch.zeros(3)",
            "out / (1 + sizes)",
            "sizes = 0.9 * sizes + 0.1 * F.one_hot(y, 3).float().sum(0)",
            ["F.one_hot(y, 3).float().sum(0)"],
        ),
        (
            "memory = torch.zeros(3, 3)",
            "out + memory[y]",
            "memory[y] = out.detach()",
            ["y", "out.detach()"],
        ),
        (
            "weight = 1.0",
            "out * weight",
            "weight = min(weight + 0.1 * loss.item(), 2.0)",
            ["weight + 0.1 * loss.item()"],
        ),
        (
            "memory = torch.zeros(64, 3)",
            "out + memory[y]",
            "memory[y] = 0.5 * memory[y] + 0.5 * out.detach()",
            ["y", "0.5 * memory[y] + 0.5 * out.detach()"],
        ),
        (
            "memory = torch.zeros(64, 3)",
            "out + memory[y]",
            "memory.index_copy_(0, y, F.normalize(memory.index_select(0, y) + out.detach(), dim=1))",
            ["y", "F.normalize(memory.index_select(0, y) + out.detach(), dim=1)"],
        ),
        (
            "queue, place = torch.zeros(3, 64), 0",
            "out @ queue",
            "queue[:, place : place + len(x)] = out.detach().T\nplace = (place + len(x)) % 64",
            ["len(x)", "out.detach()", "len(x)"],
        ),
        (
            "counts, codes = torch.ones(5), torch.randn(3, 5)",
            "out + (codes / counts)[:, (out @ codes).argmax(1)].T",
            "near = F.one_hot((out @ codes).argmax(1), 5).type(out.dtype)\n"
            "counts = 0.9 * counts + 0.1 * near.sum(0)\ncodes = 0.9 * codes + out.detach().T @ near",
            ["out.detach().T @ near", "near.sum(0)"],
        ),
        (
            "centres = nn.Parameter(torch.zeros(3))",
            "out - centres.detach()",
            "centres = nn.Parameter(0.9 * centres + 0.1 * out.mean(0))",
            ["0.9 * centres + 0.1 * out.mean(0)"],
        ),
    ],
)
def test_states_are_made_global_where_they_are_kept(start: str, loss: str, step: str, global_: list[str]) -> None:
    assert wanted(start, loss, step) == global_


@pytest.mark.parametrize(
    ("start", "loss", "step"),
    [
        ("total = 0.0", "out", "total += loss.item()"),
        ("rate = 1.0", "out * rate", "rate = rate * 0.99"),
        ("hidden = torch.zeros(8, 3)", "out + hidden", "hidden = 0.9 * hidden + 0.1 * out.detach()"),
        ("seen = 0", "out", "seen += len(x)"),
    ],
    ids=["a sum that no loss is computed from", "the same on all ranks", "rows of each rank's own", "a counter"],
)
def test_others_are_left_alone(start: str, loss: str, step: str) -> None:
    assert wanted(start, loss, step) == []


PASS = """
class Remember(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y, memory):
        ctx.save_for_backward(y)
        ctx.x, ctx.memory = x, memory
        return x @ memory.t()

    @staticmethod
    def backward(ctx, gradient):
        (y,) = ctx.saved_tensors
        {kept}
        return gradient @ ctx.memory, None, None

memory = torch.zeros(64, 3)"""


@pytest.mark.parametrize(
    ("kept", "global_"),
    [
        ("ctx.memory[y] = ctx.x", ["y", "ctx.x"]),
        ("ctx.memory.index_copy_(0, y, F.normalize(ctx.x, dim=1))", ["y", "F.normalize(ctx.x, dim=1)"]),
        ("ctx.memory.add_(0.1 * ctx.x.mean(0))", ["0.1 * ctx.x.mean(0)"]),
        ("ctx.memory.add_(gradient.mean(0))", []),  # N times that of the batch: nothing makes it so
        ("ctx.memory.mul_(0.99)", []),
    ],
)
def test_what_a_backward_pass_of_the_script_keeps(kept: str, global_: list[str]) -> None:
    assert wanted(PASS.format(kept=kept), "Remember.apply(out, y, memory)", "") == global_


@pytest.mark.parametrize(
    ("step", "global_"),
    [
        ("means[k] = 0.9 * means[k] + 0.1 * out[y == k].detach().mean(0)", ["out", "y == k"]),
        ("means[k] = out.detach()[y == k].mean(dim=0)", ["out.detach()", "y == k"]),
        ("means[k] = out[y == k].detach().mean()", ["out[y == k].detach().mean()"]),
    ],
)
def test_means_of_the_samples_that_are_picked(step: str, global_: list[str]) -> None:
    assert wanted("means = torch.zeros(3, 3)", "out - means[y]", f"for k in range(3):\n    {step}") == global_


CODEBOOK = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

def average_(held, new):
    held{data}.mul_(0.9).add_(new, alpha=0.1)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.register_buffer("sums", torch.zeros(3))
    def forward(self, x):
        out = self.layer(x)
        if self.training:
            average_(self.sums, out.detach().sum(0))
        return out - self.sums

data = TensorDataset(torch.randn(64, 4), torch.randint(3, (64,)))
loader, tests = DataLoader(data, batch_size=8, shuffle=True), DataLoader(data, batch_size=8)
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    net.train()
    for x, y in loader:
        loss = F.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    net.eval()
    with torch.no_grad():
        print(sum(F.cross_entropy(net(x), y).item() for x, y in tests))
"""


@pytest.mark.parametrize("data", ["", ".data"])
def test_buffers_that_a_function_changes_in_place_while_it_trains(data: str) -> None:
    program = traced(CODEBOOK.format(data=data))
    found = solved(program, sources(program, CATALOG).plan, CATALOG, Alone())
    assert [each.source.code(each.node) for each in found if each.is_met] == ["new"]


NETS = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Head(nn.Module):
    def forward(self, x):
        n, width = x.shape
        return x.reshape(n, 2, width // 2).mean(2)


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(4, width)
        self.head = Head()

    def forward(self, x):
        return self.head(self.layer(x))


NETS = {"small": lambda: Net(8), "large": lambda: Net(16), "huge": lambda: Net(32)}
loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 2)), batch_size=8)
net = NETS[input()]()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
before = torch.zeros(2)
for x, y in loader:
    out = net(x)
    loss = nn.functional.mse_loss(out + LOSS, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    STEP
"""


@pytest.mark.parametrize(
    ("loss", "step", "kept"),
    [
        ("0", "pass", False),
        ("before", "before = out.mean(0).detach()", True),
        ("before", "other = out.mean(0).detach()", False),
        ("net.kept", "net.kept = out.mean(0).detach()", True),
    ],
)
def test_what_another_model_of_the_same_place_computes_is_no_state(loss: str, step: str, kept: bool) -> None:
    """One of several models is chosen by an option, and a layer is met again for the next of them: what that is given
    has been computed later, and not by an earlier step."""
    program = traced(NETS.replace("LOSS", loss).replace("STEP", step))
    assert bool(steps_of(program).carried) == kept
