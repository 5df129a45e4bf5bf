"""Generative and self-supervised models: samples that follow their gradients, layers that are never used, pictures
side by side."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

HEAD = """\
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

"""
DATA = """\
loader = DataLoader(TensorDataset(torch.randn(64, 6), torch.randn(64, 1)), batch_size=8, shuffle=True)
"""
ENERGY = """\
net = nn.Sequential(nn.Linear(6, 8), nn.SiLU(), nn.Linear(8, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)


def descend(x):
    start = x.clone().detach() + 0.5
    for _ in range(3):
        start.requires_grad_(True)
        (-net(start)).sum().backward()
        start.data.add_(STEP)
        start.grad.zero_()
    return start.detach()


for epoch in range(2):
    for x, y in loader:
        fake = descend(x)
        optimizer.zero_grad()
        loss = net(fake).mean() - net(x).mean()
        loss.backward()
        optimizer.step()
"""
HARDER = """\
net = nn.Linear(6, 1)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for epoch in range(2):
    for x, y in loader:
        noise = torch.zeros_like(x, requires_grad=True)
        F.mse_loss(net(x + noise), y).backward()
        noise.data = noise.data + STEP
        optimizer.zero_grad()
        F.mse_loss(net(x + noise.detach()), y).backward()
        optimizer.step()
"""
LEARNING = """\
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        loss = LOSS
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize("script", [ENERGY, HARDER])
@pytest.mark.parametrize(("step", "counts"), [("0.1 * {}.grad", True), ("0.1 * {}.grad.sign()", False)])
def test_samples_that_follow_their_gradients(tmp_path: Path, script: str, step: str, counts: bool) -> None:
    """Langevin steps of an energy whose sum over a rank's samples was multiplied by the number of ranks, and noise that
    is put together anew (`noise.data = noise.data + ...`), followed as many times the gradient."""
    name = "start" if script is ENERGY else "noise"
    after, _ = conftest.converted(tmp_path, HEAD + DATA + script.replace("STEP", step.format(name)))
    assert (f"({name}.grad / dist.get_world_size())" in after) is counts


@pytest.mark.parametrize(
    ("loss", "gathered"),
    [
        ("F.mse_loss(net(x), y) + slope(x)[0][0, 1] ** 2", True),
        ("F.mse_loss(net(x), y) + (slope(x)[0][:, 1] ** 2).mean()", False),
    ],
)
def test_the_first_sample_of_a_batch_alone(tmp_path: Path, loss: str, gathered: bool) -> None:
    """sandorfoldi/deeponet: the residual of the wave equation was that of `grad(...)[0][0, 0]`: each rank took its own
    first sample."""
    slope = """\
net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))


def slope(x):
    x.requires_grad = True
    u = net(x)
    return torch.autograd.grad(u, x, create_graph=True, grad_outputs=torch.ones_like(u))


"""
    after, _ = conftest.converted(tmp_path, HEAD + DATA + slope + LEARNING.replace("LOSS", loss))
    assert ("RowsOfAllRanks.apply(slope(x)[0])[0, 1]" in after) is gathered
    assert ("RowsOfAllRanks" in after) is gathered


TIMES = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        table = torch.arange(10).float()[:, None] * torch.ones(8)
        self.time = nn.Sequential(nn.Embedding.from_pretrained(table), nn.Linear(8, 8))
        self.head = nn.Conv2d(3, 8, 3, padding=1)
        self.tail = nn.Conv2d(8, 3, 3, padding=1)

    def forward(self, x, t):
        return self.tail(self.head(x) + self.time(t)[:, :, None, None])


net = Net()
loader = DataLoader(TensorDataset(torch.randn(64, 3, 8, 8), torch.randint(0, 10, (64,))), batch_size=8, shuffle=True)
"""


def test_a_table_that_is_given_is_one(tmp_path: Path) -> None:
    """KimRass/DDPM: what `nn.Embedding.from_pretrained(table)` and a layer behind it give was taken for one number a
    sample, and refused as a loss over pairs."""
    after, _ = conftest.converted(tmp_path, HEAD + TIMES + LEARNING.replace("LOSS", "F.mse_loss(net(x, y), x)"))
    assert "net = DDP(Net()" in after and "RowsOfAllRanks" not in after


CRITIC = """\
class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Linear(6, 1)
        self.spare = SPARE

    def forward(self, x):
        return self.layers(x)


class UpsampleBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x):
        return self.layer(x)


net = Critic()
"""


@pytest.mark.parametrize(
    ("spare", "unused"), [("nn.AdaptiveAvgPool2d(4)", False), ("nn.GELU()", False), ("UpsampleBlock()", True)]
)
def test_layers_that_are_never_used(tmp_path: Path, spare: str, unused: bool) -> None:
    """wonbeomjang/ESRGAN-pytorch: `find_unused_parameters` for a layer that has none; and a class of the script's own
    that is called like one, which has."""
    script = HEAD + DATA + CRITIC.replace("SPARE", spare) + LEARNING.replace("LOSS", "F.mse_loss(net(x), y)")
    after, _ = conftest.converted(tmp_path, script)
    assert ("find_unused_parameters=True" in after) is unused


PERCEPTUAL = """\
class Perceptual(nn.Module):
    def __init__(self):
        super().__init__()
        vgg = MODEL(pretrained=True)
        self.network = nn.Sequential(*list(vgg.features)[:5]).eval()
        for param in self.network.parameters():
            param.requires_grad = False

    def forward(self, high, low):
        return F.l1_loss(self.network(high), self.network(low))


criterion = Perceptual()
net = nn.Conv2d(3, 3, 3, padding=1)
loader = DataLoader(TensorDataset(torch.randn(64, 3, 8, 8), torch.randn(64, 3, 8, 8)), batch_size=8, shuffle=True)
"""


@pytest.mark.parametrize(("model", "synchronised"), [("vgg19", False), ("vgg19_bn", True)])
@pytest.mark.parametrize("library", ["torchvision.models", "torchvision.models.vgg"])
def test_layers_out_of_a_model_of_a_library(tmp_path: Path, library: str, model: str, synchronised: bool) -> None:
    """wonbeomjang/ESRGAN-pytorch: the statistics of a VGG that has none were to be synchronised."""
    script = f"from {library} import {model}\n{HEAD}{PERCEPTUAL.replace('MODEL', model)}"
    after, _ = conftest.converted(tmp_path, script + LEARNING.replace("LOSS", "criterion(net(x), y)"))
    assert ("convert_sync_batchnorm(criterion)" in after) is synchronised


@pytest.mark.parametrize(
    ("joined", "gathered"),
    [("torch.cat((y, out), 2)", True), ("torch.cat([y, out], dim=-1)", True), ("torch.cat((y, out))", False)],
)
def test_pictures_side_by_side(tmp_path: Path, joined: str, gathered: bool) -> None:
    """wonbeomjang/ESRGAN-pytorch: pictures beside what was made of them lie in the order of the batch, and are
    gathered; one below the other they do not."""
    pictures = "net = nn.Conv2d(3, 3, 3, padding=1)\nloader = DataLoader(Pictures(), batch_size=8, shuffle=True)\n"
    data = """\
from torchvision.utils import save_image


class Pictures(torch.utils.data.Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, index):
        return torch.rand(3, 8, 8), torch.rand(3, 8, 8)


"""
    steps = LEARNING.replace("loss = LOSS", "out = net(x)\n        loss = F.mse_loss(out, y)")
    save = f"        result = {joined}\n        save_image(result, 'result.png')\n"
    after, _ = conftest.converted(tmp_path, HEAD + data + pictures + steps + save)
    assert ("gather_rows(result)" in after) is gathered


def test_pictures_that_are_enlarged(tmp_path: Path) -> None:
    """ioanalazar42/progan: of noise that a generator makes larger, each picture is still of one row."""
    grow = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 16)
        self.last = nn.Conv2d(4, 1, 3, padding=1)

    def forward(self, z):
        x = self.first(z).view(-1, 4, 2, 2)
        return self.last(F.interpolate(x, scale_factor=2, mode="nearest", recompute_scale_factor=False))


net = Net()
data = torch.randn(64, 1, 4, 4)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for step in range(8):
    real = data[torch.randint(0, 64, (8,))]
    loss = F.mse_loss(net(torch.randn(8, 6)), real)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
    after, _ = conftest.converted(tmp_path, HEAD + grow)
    assert "net(torch.randn(8, 6)[dist.get_rank() :: dist.get_world_size()])" in after
