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
    assert "model = DDP(nn.Linear(4, 1)" in after
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
    assert 'model = DDP(getattr(module, "Network")(config), gradient_as_bucket_view=True)' in after
    assert "AD904" not in report


def packaged(tmp_path: Path, *names: str) -> None:
    """A package of models beside the script."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "__init__.py").write_text("")
    for name in names:
        (tmp_path / "models" / f"{name}.py").write_text(NETWORK)


@pytest.mark.parametrize("name", ['f"models.{config.name}_net"', '"models." + config.name + "_net"'])
def test_a_model_of_a_module_whose_name_a_variable_has(tmp_path: Path, name: str) -> None:
    """It was refused: what a variable is bound to was not read."""
    packaged(tmp_path, "mlp_net", "other_net", "base")
    script = CHOSEN.replace("importlib.import_module({name})", f"path = {name}").replace(
        "loader = ", "module = importlib.import_module(path)\nloader = "
    )
    after, report = conftest.converted(tmp_path, script)
    assert 'model = DDP(getattr(module, "Network")(config), gradient_as_bucket_view=True)' in after
    assert "AD904" not in report


REGISTRY = """\
import importlib
import os


class Registry(dict):
    def __init__(self, paths):
        self.paths = paths
        super().__init__()

    def __getitem__(self, key):
        if key in self:
            return super().__getitem__(key)
        module = importlib.import_module(self.paths[key])
        found = module.Network if hasattr(module, "Network") else getattr(module, key)
        self[key] = found
        return found


def scan():
    folder = "models"
    paths = {}
    for file in os.listdir(folder):
        if file.endswith(".py"):
            name = file[:-3]
            paths[name] = f"{folder}.{name}"
    return Registry(paths)
"""


@pytest.mark.parametrize("size", [3, 30])
def test_a_registry_that_reads_a_folder(tmp_path: Path, size: int) -> None:
    """It was refused. Of more modules than are worth following, those are followed that the script names."""
    packaged(tmp_path, "mlp", *(f"net_{number}" for number in range(1, size)))
    (tmp_path / "registry.py").write_text(REGISTRY)
    script = (
        CHOSEN.replace("import argparse\nimport importlib\n", "import argparse\n")
        .replace("from torch.utils", "from registry import scan\nfrom torch.utils")
        .replace("module = importlib.import_module({name})\n", "")
        .replace('getattr(module, "Network")(config)', "scan()[config.name](config)")
    )
    after, report = conftest.converted(tmp_path, script)
    assert "model = DDP(scan()[config.name](config)" in after
    assert "AD904" not in report
    assert ("may import any of 30 modules" in report) == (size == 30)
