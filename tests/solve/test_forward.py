"""Through the forward passes of which modules gradients flow back from an expression."""

from __future__ import annotations

import ast

import pytest
from programs import bound, named, traced

from autodist.solve.forward import Pass, forward_passes

SCRIPT = """
import copy
import mylib
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

    def forward(self, x):
        return self.body(x).tanh() + x

def build():
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh())

def passed(net, x):
    return net(x)

net, other = Net(), build()
kept, wrapped, criterion = copy.deepcopy(net), nn.DataParallel(net), nn.MSELoss()
x = torch.randn(8, 4)
out = net(x)
{code}
"""


def _passes(passes: list[Pass]) -> list[str]:
    """The calls, each with the class of the module."""
    return [f"{ast.unparse(each.node)}: {_class_of(each)}" for each in passes]


def _class_of(one: Pass) -> str:
    if one.module is None:
        return "unknown"
    return one.module.cls.node.name if one.module.cls is not None else one.module.name


@pytest.mark.parametrize(
    ("code", "passes"),
    [
        ("result = net(x)", ["net(x): Net"]),
        ("result = net.forward(2 * x)", ["net.forward(2 * x): Net"]),
        ("result = net.body(x)", ["net.body(x): torch.nn.Sequential"]),
        ("result = other(net(2 * x))", ["net(2 * x): Net", "other(net(2 * x)): torch.nn.Sequential"]),
        ("result = passed(other, x)", ["net(x): torch.nn.Sequential"]),
        ("result = kept(2 * x)", ["kept(2 * x): Net"]),
        ("result = wrapped(2 * x)", ["wrapped(2 * x): Net"]),
        ("result = list(map(other[0], [x]))[0]", ["map(other[0], [x]): torch.nn.Linear"]),
        (
            "result = torch.utils.checkpoint.checkpoint(net, 2 * x)",
            ["torch.utils.checkpoint.checkpoint(net, 2 * x): Net"],
        ),
        ("result = nn.parallel.data_parallel(net, 2 * x)", ["nn.parallel.data_parallel(net, 2 * x): Net"]),
        ("result = criterion(out, x)", ["net(x): Net"]),
        ("result = mylib.load()(x)", ["mylib.load()(x): unknown"]),
        ("result = mylib.Net(4).cuda()(x)", ["mylib.Net(4).cuda()(x): unknown"]),
        ("result = mylib.total(out)", ["net(x): Net"]),
        ("result = mylib.total((out, x))", ["net(x): Net"]),
        ("result = mylib.total([x, [out]])", ["net(x): Net"]),
        ("result = mylib.total({'out': out})", ["net(x): Net"]),
        ("result = mylib.total(given=out)", ["net(x): Net"]),
        ("result = 2 * out.sum() + x.sum()", ["net(x): Net"]),
        ("result = mylib.Total(out)(x)", ["net(x): Net", "mylib.Total(out)(x): mylib.Total"]),
        ("result = mylib.total(mylib.Pair(out, x))", ["net(x): Net"]),
        ("result = torch.distributions.Normal(out, 1.0).log_prob(x)", ["net(x): Net"]),
        ("losses = [out.sum()]\nlosses.append(x.sum())\nresult = sum(losses)", ["net(x): Net"]),
        ("with torch.no_grad():\n    result = net(2 * x)", []),
        ("result = out.detach()", []),
        ("result = out.item()", []),
        ("result = (out > 0) * x", []),
        ("result = x[out.argmax(1)]", []),
        ("result = net.body[0].weight.sum()", []),
        ("result = mylib.total((out.detach(), x))", []),
    ],
)
def test_passes_behind(code: str, passes: list[str]) -> None:
    program = traced(SCRIPT.replace("{code}", code))
    found = forward_passes(program).behind(bound(program, "result").operations)
    assert _passes(found) == passes


@pytest.mark.parametrize("code", ["out.sum().backward()", "torch.Tensor.sum(out).backward(retain_graph=True)"])
def test_passes_that_are_differentiated(code: str) -> None:
    program = traced(SCRIPT.replace("{code}", code))
    (backward,) = named(program, "torch.Tensor.backward")
    assert _passes(forward_passes(program).differentiated(backward)) == ["net(x): Net"]
