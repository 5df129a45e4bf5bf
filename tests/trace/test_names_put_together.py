"""Attributes whose names a script puts together as it runs: `setattr(self, f"layer{i}", layer)`"""

from __future__ import annotations

import pytest
from programs import bound, traced

NET = """\
import torch
from torch import nn


class Scaled(nn.Module):
    def forward(self, x):
        return x.softmax(1)


class Net(nn.Module):
    def __init__(self, count):
        super().__init__()
        for i in range(count):
            setattr(self, f'layer{i}', Scaled())

    def forward(self, x):
        for i in range(3):
            x = {read}(x)
        return x


result = Net(int(input()))(torch.randn(4, 2))
"""


@pytest.mark.parametrize("read", ["getattr(self, f'layer{i}')", "getattr(self, 'layer' + str(i))"])
def test_a_layer_is_the_one_that_was_bound(read: str) -> None:
    program = traced(NET.replace("{read}", read))
    assert "torch.Tensor.softmax" in {each.name for each in bound(program, "result").operations}
