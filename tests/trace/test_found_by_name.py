"""What classes, modules and objects hold under names that are put together, in the graph."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import bound, named, told, traced

NETS = "import torch\n\ndef small(x):\n    return torch.sin(x)\n\ndef large(x):\n    return torch.cos(x)\n"
REGISTER = """
import torch
class Base:
    known = {}
    def __init_subclass__(cls, **settings):
        Base.known[cls.__name__] = cls
class Small(Base):
    def run(self, x):
        return torch.sin(x)
class Large(Base):
    def run(self, x):
        return torch.cos(x)
result = Base.known[input()]().run(torch.ones(2))
"""
METHODS = """
import torch
class Task:
    def run_small(self):
        return torch.sin(self.x)
    def run_large(self):
        return torch.cos(self.x)
    def show(self):
        return torch.tan(self.x)
task = Task()
{keep}
result = getattr(task, "run_" + input())()
"""


@pytest.mark.parametrize(
    "code",
    [
        "import nets\nresult = vars(nets)[input()](1)",
        "import nets\nresult = nets.__dict__[input()](1)",
        "import nets\nfor name, function in nets.__dict__.items():\n    if input():\n        result = function(1)",
    ],
)
def test_functions_of_a_module(tmp_path: Path, code: str) -> None:
    found = told(bound(traced(code, tmp_path, {"nets": NETS}), "result"))
    assert {"torch.sin", "torch.cos"} <= found


def test_classes_that_their_base_is_told_of() -> None:
    assert {"torch.sin", "torch.cos"} <= told(bound(traced(REGISTER), "result"))


@pytest.mark.parametrize("keep", ["task.x = torch.ones(2)", "vars(task).update(x=torch.ones(2))"])
def test_methods_whose_names_are_put_together(keep: str) -> None:
    program = traced(METHODS.replace("{keep}", keep))
    assert {"torch.sin", "torch.cos"} <= told(bound(program, "result"))
    assert "torch.tan" not in told(bound(program, "result"))
    (sine,) = named(program, "torch.sin")
    assert told(sine.inputs[0]) == {"torch.ones"}
