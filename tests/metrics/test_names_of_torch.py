"""What is written into a file goes by the names that the file has, and the script's own names stay as they are."""

from __future__ import annotations

from pathlib import Path

import conftest

from autodist.verify.launch import Zygote

SCRIPT = """\
import torch as th
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

th.manual_seed(0)
data = TensorDataset(th.randn(64, 8), th.randint(0, 3, (64,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
other = DataLoader(TensorDataset(th.randn(60, 8), th.randint(0, 3, (60,))), batch_size=10)
net = nn.Linear(8, 3)
optimizer = th.optim.SGD(net.parameters(), lr=0.1)
for x, y in loader:
    loss = F.cross_entropy(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def report(torch_loader):
    right, n = 0, 0
    net.eval()
    with th.no_grad():
        for x, y in torch_loader:
            right += (net(x).argmax(1) == y).sum()
            n += y.size(0)
    print(f"{right} of {n}")
    net.train()


report(loader)
report(other)
"""


def test_torch_by_another_name(tmp_path: Path, zygote: Zygote | None) -> None:
    """A loader that is called `torch_loader` was read as `th_loader`."""
    code, _ = conftest.converted(tmp_path, SCRIPT)
    assert "(dist.get_world_size() if isinstance(torch_loader.sampler, DistributedSampler) else 1)" in code
    assert conftest.differences(tmp_path, zygote, SCRIPT) is None
