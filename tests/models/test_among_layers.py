"""Layers that a script goes through after its model was wrapped: the wrapper, with all parameters, is none of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def parts(modules):
    if not isinstance(modules, list):
        found = FOUND
    return found


class Learner:
    def __init__(self):
        self.model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 1))
        self.loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8, shuffle=True)
        print(len(parts(self.model)))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def train(self):
        for epoch in range(2):
            for x, y in self.loader:
                loss = nn.functional.mse_loss(self.model(x), y)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()


torch.manual_seed(0)
Learner().train()
"""


@pytest.mark.parametrize(
    ("found", "inside"),
    [
        ("[*modules.modules()]", True),
        ("list(modules.modules())", True),
        ("[each.weight for each in modules.modules() if 'norm' in str(each.__class__)]", True),
        ("[each for each in modules.modules() if isinstance(each, nn.Linear)]", False),
        ("[isinstance(each, nn.Linear) for each in modules.modules()]", False),
    ],
)
def test_layers_are_those_of_the_model_inside(tmp_path: Path, found: str, inside: bool) -> None:
    """InsightFace_Pytorch: parameters of the wrapper came into a group of the optimizer once more, in silence."""
    text, _ = converted(tmp_path, SCRIPT.replace("FOUND", found))
    assert ("modules.module.modules()" in text) is inside
    assert "if not isinstance(modules, list):" in text


def test_a_loop_that_asks_each_what_it_is_may_meet_the_wrapper(tmp_path: Path) -> None:
    """One with another branch may not."""
    asking = "[]\n        for each in modules.modules():\n            if isinstance(each, nn.Linear):\n"
    asking += "                found.append(each.weight)\n"
    text, _ = converted(tmp_path, SCRIPT.replace("FOUND", asking))
    assert "in modules.modules():" in text
    text, _ = converted(
        tmp_path, SCRIPT.replace("FOUND", f"{asking}            else:\n                found += each.parameters()")
    )
    assert "in modules.module.modules():" in text
