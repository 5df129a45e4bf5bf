"""What expressions are computed from: arrays, losses, and what some operations give."""

from __future__ import annotations

import ast

import pytest
from programs import bound, named, traced

from autodist.solve.kinds import is_array
from autodist.solve.steps import steps_of

ROWS = "import numpy as np\nimport torch\nx = torch.rand(8, 3)\n"


@pytest.mark.parametrize(
    ("made", "array"),
    [
        ("x.detach().cpu().numpy()", True),
        ("x.numpy()[:4].reshape(-1) + 1", True),
        ("np.stack([x.numpy(), x.numpy()])", True),
        ("x.numpy() if len(x) > 3 else x", True),
        ("x.reshape(-1) + 1", False),
        ("torch.from_numpy(x.numpy())", False),
        ("torch.as_tensor(np.ones(3))", False),
        ("x.numpy().shape", False),
        ("x.numpy().tolist()", False),
    ],
)
def test_arrays(made: str, array: bool) -> None:
    assert is_array(bound(traced(f"{ROWS}result = {made}"), "result")) == array


STEP = """\
import torch
from torch import nn
model = nn.Linear(4, 1)
def squares(of):
    return of ** 2
for x in torch.rand(8, 2, 4):
    out = model(x)
    kept = {"loss": squares(out)}
    shown = out.abs().mean()
    kept["loss"].mean().backward()
    print(shown)
"""


@pytest.mark.parametrize(
    ("written", "learnt"),
    [
        ("model(x)", True),
        ("squares(out)", True),
        ("of ** 2", True),
        ("kept", True),
        ("out.abs()", False),
        ("out.abs().mean()", False),
        ("shown", False),
    ],
)
def test_expressions_that_losses_are_computed_from(written: str, learnt: bool) -> None:
    found = {ast.unparse(each) for each in steps_of(traced(STEP)).expressions}
    assert (written in found) == learnt


def test_expressions_that_give_what_some_operations_do() -> None:
    program = traced("import torch\nx = torch.rand(3)\ny = [x + 1]\nz = x * 2\nfor each in y:\n    print(each)\n")
    given = sorted({ast.unparse(each) for each in program.giving(named(program, "operator.add"))})
    assert given == ["[x + 1]", "each", "x + 1", "y"]
