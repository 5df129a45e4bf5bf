"""Parameters that a loss surely reads: DistributedDataParallel would wait for the gradients of others."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted, differences

from autodist.verify.launch import Zygote

SCRIPT = """\
import copy
import random

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

random.seed(0)
torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self, wide):
        super().__init__()
        self.body = nn.Linear(4, 4)
        {made}

    def forward(self, x, early=False):
        x = self.body(x)
        {forward}


loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 4)), batch_size=8)
model = Net(wide=random.random() < 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
"""
THREE = "self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])"
MANY = THREE.replace("3", "12")
TEMPLATE = "self.part = nn.Linear(4, 4); self.layers = nn.ModuleList([copy.deepcopy(self.part) for _ in range(2)])"
IN_TURN = "for layer in self.layers:;     x = layer(x);return x"
BY_PLACE = "for i in range({}):;     x = self.layers[{}](x);return x"
SKIPPED = "for layer in self.layers:;     if random.random() < 0.5:;         continue;     x = x + layer(x);return x"
KEPT = "outs = [layer(x) for layer in self.layers];return {}"
ONE = "self.part = nn.Linear(4, 4)"
ON_REQUEST = "self.part = nn.Linear(4, 4) if wide else None"
DICTS = 'a = {"x": x};b = {"part": self.part(x)};both = a | b;return both["x"]'
POPPED = 'outs = {"x": x, "part": self.part(x)};outs.pop("part");return sum(outs.values())'
LEFT_OUT = {
    "only the last in each turn": (THREE, BY_PLACE.format(3, "len(self.layers) - 1")),
    "only the last in each turn of many": (MANY, BY_PLACE.format(12, "-1")),
    "the template of copies": (TEMPLATE, IN_TURN),
    "what is skipped now and then": (THREE, SKIPPED),
    "all but one of what is kept": (THREE, KEPT.format("outs[0]")),
    "all but one of what is kept of many": (MANY, KEPT.format("outs[0]")),
    "an entry of joined dicts": (ONE, DICTS),
    "what is taken out of a dict": (ONE, POPPED),
    "behind an early return": (ONE, "if random.random() < 0.5:;     return x;return self.part(x)"),
    "a bias, where the weight is read": (ONE, "return x @ self.part.weight"),
}
READ = {
    "each in its turn": (THREE, BY_PLACE.format(3, "i")),
    "each of many in its turn": (MANY, IN_TURN),
    "each of what is kept": (MANY, KEPT.format("sum(outs)")),
    "an early return that nobody asks for": (ONE, "if early:;     return x;return self.part(x)"),
    "where it is there": (ON_REQUEST, "if self.part is not None:;     x = self.part(x);return x"),
    "where it is there, ahead of a return": (ON_REQUEST, "if self.part is None:;     return x;return self.part(x)"),
    "one that is put in another's place": (
        "self.layers = nn.Sequential(nn.Linear(4, 2), nn.ReLU()); self.layers[0] = nn.Linear(4, 4)",
        "return self.layers(x)",
    ),
    "a parameter of a distribution": (
        ONE,
        "return torch.distributions.Normal(self.part(x), 1.0).log_prob(x)",
    ),
}


def script(made: str, forward: str) -> str:
    lines = [each.strip() if at else each for at, each in enumerate(made.split("; "))]
    return SCRIPT.format(made="\n        ".join(lines), forward=forward.replace(";", "\n        "))


@pytest.mark.parametrize("case", LEFT_OUT)
def test_the_wrapper_looks_for_what_a_step_may_leave_out(case: str, tmp_path: Path, zygote: Zygote | None) -> None:
    text = script(*LEFT_OUT[case])
    assert "DDP(Net(wide=random.random() < 2), find_unused_parameters=True" in converted(tmp_path, text)[0]
    assert differences(tmp_path, zygote, text) is None


@pytest.mark.parametrize("case", READ)
def test_it_need_not_where_each_step_reads_all(case: str, tmp_path: Path, zygote: Zygote | None) -> None:
    text = script(*READ[case])
    assert "DDP(Net(wide=random.random() < 2), gradient_as_bucket_view=True)" in converted(tmp_path, text)[0]
    assert differences(tmp_path, zygote, text) is None
