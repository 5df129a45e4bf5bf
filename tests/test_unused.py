"""Parts of a model without gradients, which DistributedDataParallel would wait for."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Block(nn.Module):
    def __init__(self, size, first, extra=None):
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.body = nn.Linear(size, size)
        self.scale = nn.Parameter(torch.ones(size))
        self.first = first
        self.extra = extra
        {made}

    def forward(self, x):
        {forward}


layers = [Block(4, number == 0) for number in range(2)]
model = nn.Sequential(*layers, nn.Linear(4, 1))
loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=8, shuffle=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
ALL = "return self.scale * self.body(self.norm(x))"


@pytest.mark.parametrize(
    ("made", "forward", "unused"),
    [
        ("", ALL, False),
        ("", "return self.body(self.norm(x))", True),  # a parameter that nobody reads
        ("nn.init.ones_(self.scale)", "return self.body(self.norm(x))", True),
        ("", "out = self.norm(x); return self.scale * self.body(out if self.first else x)", True),
        (
            "",
            "out = self.norm(x); return self.scale * self.body(out) if self.first else self.scale * self.norm(x)",
            True,
        ),
        ("", "x = self.norm(x) if self.first else self.norm(2 * x); return self.scale * self.body(x)", False),
        ("self.skip = None if first else nn.Linear(4, 4)", f"x = x if self.first else self.skip(x); {ALL}", False),
        ("self.skip = nn.Linear(4, 4)", f"x = x if self.first else self.skip(x); {ALL}", True),
        ("self.skip = nn.Linear(4, 4)", f"x = self.skip(x) if self.training else x; {ALL}", False),
        ("self.spare = nn.Linear(4, 4); [nn.init.zeros_(m.bias) for m in self.modules() if m is not self]", ALL, True),
        ("self.spare = nn.Linear(4, 4)", f"x = [m for m in self.children()][-1](x); {ALL}", False),
        ("self.out = nn.Linear(4, 4)", f"x = x @ self.out.weight; {ALL}", True),
        ("self.out = nn.Linear(4, 4, bias=False)", f"x = x @ self.out.weight; {ALL}", False),
        ("self.out = nn.Linear(4, 4)", f"x = self.out(x) @ self.out.weight; {ALL}", False),
        ("self.bn = nn.BatchNorm1d(4)", f"x = self.bn(x) if not self.first and self.wide == True else x; {ALL}", True),
        ("self.bn = nn.BatchNorm1d(4)", f"x = self.bn(x); {ALL}", False),
        (  # only copied from while the module is made
            "self.old = nn.Linear(4, 4); self.copy()",
            f"{ALL}; ; def copy(self):; self.body.weight.data = self.old.weight.data",
            True,
        ),
        ("self.old = nn.Linear(4, 4); self.body.weight = self.old.weight; self.old.bias = None", ALL, False),
        ("self.gain = 2.0", f"x = x * self.gain if self.first else x; {ALL}", False),
    ],
)
def test_parts_that_settings_leave_out(tmp_path: Path, made: str, forward: str, unused: bool) -> None:
    code, _ = converted(
        tmp_path,
        SCRIPT.format(
            made=made.replace("; ", "\n        ") or "pass",
            forward=forward.replace("; ; ", "\n\n    ").replace("; ", "\n        "),
        ),
    )
    assert ("find_unused_parameters=True" in code) == unused


def test_an_early_return_that_a_caller_asks_for(tmp_path: Path) -> None:
    """`inner(x, hidden=True)` leaves the last layer of a part alone."""
    text = SCRIPT.format(made="pass", forward=ALL).replace(
        "def forward(self, x):", "def forward(self, x, hidden=False):"
    )
    text = text.replace(
        "        return self.scale", "        if hidden:\n            return self.norm(x)\n        return self.scale"
    )
    assert "find_unused_parameters=True" in converted(tmp_path, text)[0]
