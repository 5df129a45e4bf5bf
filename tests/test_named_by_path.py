"""Classes that settings name by their path: `{"_target_": "torch.optim.SGD", "lr": 0.1}`."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

SCRIPT = """\
import importlib

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def instantiate(config, *args):
    config = dict(config)
    path = config.pop("_target_")
    {cut}
    return getattr(importlib.import_module(module), name)(*args, **config)


loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = instantiate({{"_target_": "torch.optim.SGD", "lr": 0.1}}, model.parameters())
for x, y in loader:
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
"""


@pytest.mark.parametrize("cut", ['module, name = path.rsplit(".", 1)', 'module, _, name = path.rpartition(".")'])
def test_an_optimizer(tmp_path: Path, cut: str) -> None:
    """It was refused, since it could not be seen which optimizer is made."""
    after, report = conftest.converted(tmp_path, SCRIPT.format(cut=cut))
    assert "model = DDP(nn.Linear(4, 1))" in after
    assert "AD904" not in report


NETWORK = """\
from torch import nn


class Network(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.head = nn.Linear(4, config.width)

    def forward(self, x):
        return self.head(x)
"""
CHOSEN = """\
import argparse
import importlib

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--type", default="small")
parser.add_argument("--name", default="mlp")
parser.add_argument("--width", type=int, default=1)
config = parser.parse_args()
module = importlib.import_module({name})
loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8, shuffle=True)
model = getattr(module, "Network")(config)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    "name",
    [
        'f"models.{config.type}.{config.name}"',
        '"models" f".{config.type}.{config.name}"',
        '"models.{}.{}".format(config.type, config.name)',
        '"models.%s.%s" % (config.type, config.name)',
        '"models." + config.type + "." + config.name',
        'f"models.{config.type}.mlp"',
    ],
)
def test_a_model_of_a_module_whose_name_has_several_unknown_parts(tmp_path: Path, name: str) -> None:
    """It was refused: what stands behind the first of them was not read."""
    for each in ("small", "large"):
        folder = tmp_path / "models" / each
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("")
        (folder / "mlp.py").write_text(NETWORK)
    (tmp_path / "models" / "__init__.py").write_text("")
    after, report = conftest.converted(tmp_path, CHOSEN.replace("{name}", name))
    assert 'model = DDP(getattr(module, "Network")(config))' in after
    assert "AD904" not in report
