"""What the program graph tells of the forward passes of modules."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from autodist import catalog
from autodist.program import Program
from autodist.project import Project
from autodist.solve.learned import learned
from autodist.solve.passes import passes
from autodist.trace import trace

SCRIPT = """\
import random

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchvision.models.segmentation import fcn_resnet50
from transformers import BertModel


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        self.heads = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        self.first = nn.Sequential(nn.ReLU(True), nn.Linear(4, 4))
        {made}

    def forward(self, x):
        {forward}

    def helper(self, x):
        if x.sum() > 0:
            return self.a(x)
        return self.b(x)


model = Net()
loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 4)), batch_size=8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = F.mse_loss(model(model.body(x)), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def read(folder: Path, forward: str, made: str = "") -> tuple[Program, ast.AST]:
    """A program, and where its model is made."""
    text = SCRIPT.format(forward=forward.replace("; ", "\n        "), made=made)
    (folder / "train.py").write_text(text)
    project = Project.load(folder / "train.py")
    makes = next(n for n in ast.walk(project.entry.tree) if isinstance(n, ast.Call) and ast.unparse(n) == "Net()")
    return trace(project, catalog.load()), makes


@pytest.mark.parametrize(
    ("forward", "changes"),
    [
        ("return x + self.body(x)", False),
        ("y = self.body(x); y += x; return F.relu(y, inplace=True)", False),
        ("x = x.clone(); x += 1; return x", False),
        ("x += self.body(x); return x", True),
        ("x[:, 0] = 0; return self.body(x)", True),
        ("x.view(-1).clamp_(0); return self.body(x)", True),
        ("return x + self.body(F.relu(x, inplace=True))", True),
        ("return x + self.first(x)", True),
        ("y = self.body(x); return self.first(y)", False),
        ("self.body.weight.data.mul_(0.9); return self.body(x)", False),
        ("return self.body(x.requires_grad_())", False),
    ],
)
def test_passes_that_change_their_input(tmp_path: Path, forward: str, changes: bool) -> None:
    program, makes = read(tmp_path, forward)
    assert passes(program).change_input(makes) == changes


@pytest.mark.parametrize(
    ("forward", "tests"),
    [
        ("return self.a(x) if x.mean() > 0 else self.b(x)", ["x.mean() > 0"]),
        ("return self.a(x) if x.mean() > 0 else self.a(-x)", []),
        ("return self.helper(x)", ["x.sum() > 0"]),
        ("y = self.a(x); return y if y.max() > 1 else -y", []),
        ("y = self.a(x); [y := h(y) for h in self.heads if y.mean() > 0]; return y", []),
    ],
)
def test_conditions_that_decide_which_parameters_are_read(tmp_path: Path, forward: str, tests: list[str]) -> None:
    program, makes = read(tmp_path, forward)
    assert [ast.unparse(each.test) for each in learned(program).deciding(makes)] == tests


@pytest.mark.parametrize(
    ("forward", "drawn"),
    [
        ("return self.heads[random.randrange(3)](x)", True),
        ("return self.heads[torch.randint(3, ())](x)", True),
        ("n = random.randint(1, 3); return [x := self.a(x) for _ in range(n)][-1]", True),
        ("return self.heads[0](x)", False),
        ("return [x := self.heads[i](x) for i in range(3)][-1]", False),
        ("return self.a(x + torch.rand(4))", False),
    ],
)
def test_parts_that_are_drawn(tmp_path: Path, forward: str, drawn: bool) -> None:
    program, makes = read(tmp_path, forward)
    assert learned(program).draws_parts(makes) == drawn


ENCODER = 'self.enc = BertModel.from_pretrained("b"{})'
SEGMENTS = "self.enc = fcn_resnet50({})"
REST = "+ self.a(x) + self.b(x) + sum(h(x) for h in self.heads) + self.first(x) + self.body(x)"


@pytest.mark.parametrize(
    ("made", "forward", "leaves"),
    [
        (ENCODER.format(""), f"return self.enc(x)[0] {REST}", True),
        (ENCODER.format(""), f"return self.enc(x).last_hidden_state {REST}", True),
        (ENCODER.format(""), f"return self.enc(x).pooler_output {REST}", False),
        (ENCODER.format(""), f"out = self.enc(x); return out[1] + out[0] {REST}", False),
        (ENCODER.format(""), f"_, pooled = self.enc(x); return pooled {REST}", False),
        (ENCODER.format(""), f"words, pooled = self.enc(x); return words {REST}", True),
        (ENCODER.format(""), f"words, pooled = self.enc(x).values(); return pooled {REST}", False),
        (ENCODER.format(", add_pooling_layer=False"), f"return self.enc(x)[0] {REST}", False),
        (SEGMENTS.format("aux_loss=True"), f'return self.enc(x)["out"] {REST}', True),
        (SEGMENTS.format("weights='DEFAULT'"), f'return self.enc(x)["out"] {REST}', True),
        (SEGMENTS.format("aux_loss=True"), f'out = self.enc(x); return out["out"] + out["aux"] {REST}', False),
        (SEGMENTS.format("aux_loss=True"), f"return sum(self.enc(x).values()) {REST}", False),
        (SEGMENTS.format(""), f'return self.enc(x)["out"] {REST}', False),
    ],
)
def test_outputs_of_libraries_that_have_parameters_of_their_own(
    tmp_path: Path, made: str, forward: str, leaves: bool
) -> None:
    program, makes = read(tmp_path, forward, made)
    assert learned(program).leaves(makes) == leaves


@pytest.mark.parametrize(
    "freezing",
    [
        "self.a.requires_grad_(False)",
        "[p.requires_grad_(False) for p in self.a.parameters()]",
        "[setattr(p, 'requires_grad', False) for n, p in self.a.named_parameters()]",
        "self.a.weight.requires_grad = self.a.bias.requires_grad = False",
    ],
)
def test_frozen_parameters_are_not_asked(tmp_path: Path, freezing: str) -> None:
    forward = f"return x {REST.replace('+ self.a(x) ', '')}"
    program, makes = read(tmp_path, forward, freezing)
    assert not learned(program).leaves(makes)
    program, makes = read(tmp_path, forward)
    assert learned(program).leaves(makes)
