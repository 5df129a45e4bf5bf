"""Models that come into a list one by one, and layers that each train themselves."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

HEAD = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 4)), batch_size=8, shuffle=True)
nets, optims = [], []
"""
STEPS = """\
for epoch in range(2):
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        for net, optim in zip(nets, optims):
            optim.zero_grad()
            nn.functional.mse_loss(net(x), y).backward()
            optim.step()
for i in range(len(nets)):
    torch.save(nets[i].state_dict(), f"{i}.pt")
"""
WRAPPED = "nets = [DDP(model) for model in nets]\n"


@pytest.mark.parametrize(
    "filled",
    [
        """\
for i in range(3):
    nets.append(nn.Linear(4, 4).to(device))
    optims.append(torch.optim.SGD(nets[-1].parameters(), lr=0.1))
""",
        """\
for i in range(3):
    nets += [nn.Linear(4, 4).to(device)]
    optims.append(torch.optim.SGD(nets[i].parameters(), lr=0.1))
""",
        """\
for i in range(3):
    nets = nets + [nn.Linear(4, 4).to(device)]
    optims.append(torch.optim.SGD(nets[i].parameters(), lr=0.1))
""",
        """\
for i in range(3):
    nets.append(nn.Linear(4, 4))
for net in nets:
    net.to(device)
    optims.append(torch.optim.SGD(net.parameters(), lr=0.1))
""",
    ],
)
def test_models_that_come_into_a_list_are_wrapped_once_it_is_full(tmp_path: Path, filled: str) -> None:
    """They were refused: none of them has a name of its own."""
    after, said = converted(tmp_path, HEAD + filled + STEPS)
    assert filled + WRAPPED in after and "AD9" not in said
    assert "torch.save(nets[i].module.state_dict()" in after


def test_models_that_come_into_a_list_in_several_places_are_wrapped_together(tmp_path: Path) -> None:
    filled = """\
nets.append(nn.Linear(4, 4).to(device))
nets.append(nn.Sequential(nn.Linear(4, 4), nn.Tanh()).to(device))
optims += [torch.optim.SGD(each.parameters(), lr=0.1) for each in nets]
"""
    after, said = converted(tmp_path, HEAD + filled + STEPS)
    assert after.count("DDP(") == 1 and "AD9" not in said
    assert f"nn.Tanh()).to(device))\n{WRAPPED}" in after


FORWARD_FORWARD = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def overlay(x, y):
    x_ = x.clone()
    x_[:, :10] *= 0.0
    x_[range(x.shape[0]), y] = x.max()
    return x_


class Layer(nn.Linear):
    def __init__(self, fan_in, fan_out):
        super().__init__(fan_in, fan_out)
        self.opt = torch.optim.Adam(self.parameters(), lr=0.03)

    def forward(self, x):
        return torch.relu(torch.mm(x / (x.norm(2, 1, keepdim=True) + 1e-4), self.weight.T) + self.bias.unsqueeze(0))

    def train(self, x_pos, x_neg):
        for i in range(4):
            g_pos = self.forward(x_pos).pow(2).mean(1)
            g_neg = self.forward(x_neg).pow(2).mean(1)
            loss = torch.log1p(torch.exp(torch.cat([2 - g_pos, g_neg - 2]))).mean()
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
        return self.forward(x_pos).detach(), self.forward(x_neg).detach()


class Net(nn.Module):
    def __init__(self, dims):
        super().__init__()
        self.layers = []
        for d in range(len(dims) - 1):
            self.layers = self.layers + [Layer(dims[d], dims[d + 1]).to(device)]

    def predict(self, x):
        found = []
        for label in range(10):
            h, goodness = overlay(x, label), []
            for layer in self.layers:
                h = layer(h)
                goodness += [h.pow(2).mean(1)]
            found += [sum(goodness).unsqueeze(1)]
        return torch.cat(found, 1).argmax(1)

    def train(self, x_pos, x_neg):
        for layer in self.layers:
            x_pos, x_neg = layer.train(x_pos, x_neg)


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.manual_seed(0)
train_loader = DataLoader(TensorDataset(torch.rand(64, 20), torch.randint(10, (64,))), batch_size=32, shuffle=True)
test_loader = DataLoader(TensorDataset(torch.rand(64, 20), torch.randint(10, (64,))), batch_size=32)
net = Net([20, 16, 16])
x, y = next(iter(train_loader))
x, y = x.to(device), y.to(device)
net.train(overlay(x, y), overlay(x, (y + 1) % 10))
x_te, y_te = next(iter(test_loader))
print("test error:", 1.0 - net.predict(x_te.to(device)).eq(y_te.to(device)).float().mean().item())
"""


def test_layers_that_train_themselves_start_alike_and_average_their_gradients(tmp_path: Path) -> None:
    """It was refused: "cannot see where this model is ready". The largest number of the training batch is that of all
    ranks, also if the function is given test data, which every rank has whole."""
    after, said = converted(tmp_path, FORWARD_FORWARD)
    assert "AD9" not in said and "warning" not in said
    assert (
        "[Layer(dims[d], dims[d + 1]).to(device)]\n"
        "        for model in self.layers:\n"
        "            for tensor in model.state_dict().values():  # same initial weights on all ranks\n"
        "                dist.broadcast(tensor, 0)\n"
    ) in after
    assert "            average_gradients(self.opt)\n            self.opt.step()" in after
    assert "x_[range(x.shape[0]), y] = reduce_max(x.max())" in after
