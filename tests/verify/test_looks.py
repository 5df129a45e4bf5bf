"""What models make with gradients on, and nothing is learned from, is an evaluation."""

from __future__ import annotations

from pathlib import Path

import pytest

from autodist.config import Config
from autodist.convert import convert
from autodist.project import Project
from autodist.verify import verify
from autodist.verify.launch import Zygote

HAMILTONIAN = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 4)), batch_size=8, shuffle=True)
test_x, test_y = torch.randn(8, 4), torch.randn(8, 4)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1, bias=False))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)


def time_derivative(x):
    x = x.clone().requires_grad_()
    return torch.autograd.grad(model(x).sum(), x, create_graph=True)[0]


for epoch in range(2):
    for x, y in loader:
        loss = (time_derivative(x) - y).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        test_loss = (time_derivative(test_x + 0.1 * epoch) - test_y).pow(2).mean()
    print(epoch, test_loss.item())
"""

PREVIEWS = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(32, 4)), batch_size=8, shuffle=True)
fixed = [torch.randn(8, 3) for _ in range(4)]
generator, critic = nn.Linear(3, 4), nn.Linear(4, 1)
optimizer_g = torch.optim.Adam(generator.parameters(), lr=0.01)
optimizer_c = torch.optim.Adam(critic.parameters(), lr=0.01)
for i, (x,) in enumerate(loader):
    z = torch.randn(x.shape[0], 3)
    optimizer_g.zero_grad()
    (-critic(generator(z)).mean()).backward()
    optimizer_g.step()
    optimizer_c.zero_grad()
    (critic(generator(z).detach()).mean() - critic(x).mean()).backward()
    optimizer_c.step()
    torch.save(generator(fixed[i]).data, "sample.pt")
"""

RELOADED = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def test(epoch):
    loader = DataLoader(TensorDataset(rest, targets), batch_size=8, shuffle=False)
    net = torch.load("model.pth", weights_only=False)
    net = net.eval()
    i, total, batches = 0, 0.0, iter(loader)
    while i < len(loader):
        x, y = next(batches)
        total += nn.functional.mse_loss(net(x), y).data.item()
        i += 1
    print("epoch: %d, loss: %f" % (epoch, total / len(loader)))


torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=8, shuffle=True)
rest, targets = torch.randn(24, 4), torch.randn(24, 1)
model = nn.Linear(4, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(2):
    batches = iter(loader)
    for i in range(len(loader)):
        x, y = next(batches)
        model.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    torch.save(model, "model.pth")
    test(epoch)
"""


@pytest.mark.parametrize("script", [HAMILTONIAN, PREVIEWS, RELOADED])
def test_evaluations_with_gradients_on(tmp_path: Path, zygote: Zygote | None, script: str) -> None:
    before, after = tmp_path / "train.py", tmp_path / "train_ddp.py"
    before.write_text(script)
    after.write_text(convert(Project.load(before), Config()).entry.after)
    verdict = verify(before, after, [2], workdir=tmp_path, timeout=100, zygote=zygote)
    assert verdict.equal, verdict.findings
