"""Steps that learn from noise, which is drawn for a batch, and from data that no draw of rows tells apart."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

from autodist.verify import verify
from autodist.verify.launch import Zygote

WINDOW = """\
import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
np.random.seed(0)
size, width = 8, 4
data = np.random.rand(60, 6).astype(np.float32)
net_g = nn.Sequential(nn.Linear(width, 6), nn.Sigmoid())
net_d = nn.Sequential(nn.Linear(6, 1), nn.Sigmoid())
optimizer = torch.optim.Adam(net_d.parameters(), lr=0.01)


def sample_x(rows, count):
    start = np.random.randint(0, rows.shape[0] - count)
    return torch.from_numpy(rows[start : start + count])


for step in range(6):
    x = sample_x(data, size)
    z = torch.randn(size, width)
    loss = torch.mean(-torch.log(net_d(x) + 1e-8) - torch.log(1 - net_d(net_g(z)) + 1e-8))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
BORDER = """\
import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
np.random.seed(0)
net = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
mse = nn.MSELoss()
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
border = np.random.uniform(low=0.0, high=2.0, size=(10, 1))
known = 6 * np.exp(-3 * border)
for step in range(6):
    optimizer.zero_grad()
    at_border = torch.from_numpy(border).float()
    wanted = torch.from_numpy(known).float()
    loss_border = mse(net(at_border), wanted)
    inside = torch.from_numpy(np.random.uniform(low=0.0, high=2.0, size=(12, 1))).float()
    zeros = torch.from_numpy(np.zeros((12, 1))).float()
    inside.requires_grad_()
    u = net(inside)
    u_x = torch.autograd.grad(u.sum(), inside, create_graph=True)[0]
    loss = loss_border + mse(u_x - u, zeros)
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize("script", [WINDOW, BORDER], ids=["window", "border"])
def test_both_are_shared_out(tmp_path: Path, script: str, zygote: Zygote | None) -> None:
    """The noise alone was: a rank's part of it met the whole data, or ranks learnt from all of them."""
    after, _ = conftest.converted(tmp_path, script)
    assert "row_weight(len(torch." not in after  # which would draw once more
    (tmp_path / "after.py").write_text(after)
    (world,) = verify(tmp_path / "train.py", tmp_path / "after.py", [2], workdir=tmp_path, zygote=zygote).worlds
    assert world.equal, world.findings
