"""Models that a script finds by a name: in modules, texts that are evaluated, dicts of its own, and objects."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import conftest
import pytest

HEAD = """\
import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

"""
OPTION = """
parser = argparse.ArgumentParser()
parser.add_argument("--model", default="Small")
args = parser.parse_args()
"""
NETS = """
class Small({base}):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 1)

    def forward(self, x):
        return self.body(x)


class Big({base}):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1))

    def forward(self, x):
        return self.body(x)
"""
TRAINING = """
loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8, shuffle=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
"""
OWN = HEAD + "import sys\n" + NETS.format(base="nn.Module") + OPTION
IMPORTED = HEAD + "import inspect\nfrom pydoc import locate\n\nimport nets\n" + OPTION
REGISTERED = """
class Base(nn.Module):
    registry = {}

    def __init_subclass__(cls, **settings):
        super().__init_subclass__(**settings)
        Base.registry[cls.__name__] = cls

"""
SETTINGS = """
class Settings(dict):
    __getattr__ = dict.__getitem__


settings = Settings(nets=Settings(Small=Small, Big=Big))
"""


@pytest.mark.parametrize(
    ("script", "made"),
    [
        (OWN, "getattr(sys.modules[__name__], args.model)()"),
        (IMPORTED, 'eval("nets." + args.model)()'),
        (IMPORTED, 'eval(f"nets.{args.model}()")'),
        (IMPORTED, "vars(nets)[args.model]()"),
        (IMPORTED, "dict(inspect.getmembers(nets, inspect.isclass))[args.model]()"),
        (IMPORTED, 'locate("nets.Small")()'),
        (HEAD + REGISTERED + NETS.format(base="Base") + OPTION, "Base.registry[args.model]()"),
        (OWN + SETTINGS, "settings.nets[args.model]()"),
    ],
)
def test_a_class_that_is_found_by_name(tmp_path: Path, script: str, made: str) -> None:
    """It was refused, since it could not be seen which class is meant."""
    (tmp_path / "nets.py").write_text("from torch import nn\n\n" + NETS.format(base="nn.Module"))
    after, report = conftest.converted(tmp_path, f"{script}\nmodel = {made}\n{TRAINING}")
    assert f"model = DDP({made}" in after
    assert "AD904" not in report


def test_modules_of_a_package_that_imports_them_all(tmp_path: Path) -> None:
    """`__name__` is the package where its `__init__.py` imports what is in it."""
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets" / "__init__.py").write_text(
        "import importlib\nimport pkgutil\n\n"
        "names = [name for _, name, _ in pkgutil.iter_modules(__path__)]\n"
        'found = {name: importlib.import_module(f"{__name__}.{name}") for name in names}\n'
    )
    for name in ("small", "large"):
        (tmp_path / "nets" / f"{name}.py").write_text("from torch import nn\n\n" + NETS.format(base="nn.Module"))
    script = f"{HEAD}import nets\n{OPTION}\nmodel = nets.found[args.model].Small()\n{TRAINING}"
    after, report = conftest.converted(tmp_path, script)
    assert "model = DDP(nets.found[args.model].Small()" in after
    assert "AD904" not in report


FINDING = """\
import importlib

from models.base_model import BaseModel


def create_model(name):
    filename = "models." + name + "_model"
    library = importlib.import_module(filename)
    model = None
    for key, cls in library.__dict__.items():
        if key.lower() == name.lower() + "model" and issubclass(cls, BaseModel):
            model = cls
    return model()
"""
BASE = """\
from abc import ABC

import torch


class BaseModel(ABC):
    def save(self):
        for name in self.names:
            net = getattr(self, "net" + name)
            torch.save(net.state_dict(), name + ".pth")
"""
MODEL = """\
import torch
from torch import nn

from .base_model import BaseModel


class SmallModel(BaseModel):
    def __init__(self):
        self.names = ["G"]
        self.netG = nn.Linear(4, 1)
        self.optimizer = torch.optim.Adam(self.netG.parameters(), lr=0.01)

    def learn(self, x, y):
        self.loss = nn.functional.mse_loss(self.netG(x), y)
        self.optimizer.zero_grad()
        self.loss.backward()
        self.optimizer.step()
"""
LEARNING = HEAD + """\
from models import create_model

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="small")
args = parser.parse_args()
model = create_model(args.model)
for x, y in DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8, shuffle=True):
    model.learn(x, y)
model.save()
"""


@pytest.mark.parametrize("seed", ["0", "1", "2"])
def test_a_class_among_those_of_several_modules(tmp_path: Path, seed: str) -> None:
    """Of several modules the last in the order of a set was gone through, which is another one in each process; and the
    networks that it keeps under names which are put together were taken for its losses."""
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "__init__.py").write_text(FINDING)
    (folder / "base_model.py").write_text(BASE)
    (folder / "small_model.py").write_text(MODEL)
    (tmp_path / "train.py").write_text(LEARNING)
    command = [sys.executable, "-m", "autodist", "convert", "train.py", "--strategy", "ddp", "--output", "ddp"]
    environment = os.environ | {"PYTHONHASHSEED": seed}
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)
    assert "self.netG = DDP(nn.Linear(4, 1)" in (tmp_path / "ddp/models/small_model.py").read_text()
    assert "torch.save(net.module.state_dict()" in (tmp_path / "ddp/models/base_model.py").read_text()


TRAINER = """
class Trainer:
    def __init__(self, args, **options):
        self.args = args
        {kept}

    def start(self):
        getattr(self, "run_" + self.args.phase)()

    def run_train(self):
        for x, y in self.loader:
            self.optimizer.zero_grad()
            nn.functional.mse_loss(self.model(x), y).backward()
            self.optimizer.step()

    def run_test(self):
        print(self.model(torch.randn(2, 4)))


parser = argparse.ArgumentParser()
parser.add_argument("--phase", default="train")
model = nn.Linear(4, 1)
loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8, shuffle=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
Trainer(parser.parse_args(), model=model, loader=loader, optimizer=optimizer).start()
"""


@pytest.mark.parametrize("kept", ["self.__dict__.update(options)", "vars(self).update(options)"])
def test_attributes_out_of_a_dict_and_a_method_by_name(tmp_path: Path, kept: str) -> None:
    """It was refused: no backward pass was seen, or no step of an optimizer."""
    after, report = conftest.converted(tmp_path, HEAD + TRAINER.replace("{kept}", kept))
    assert "model = DDP(nn.Linear(4, 1)" in after
    assert "AD90" not in report


CONTEXT = """
from dataclasses import dataclass, field


@dataclass
class Context:
    model: nn.Module
    optimizer: torch.optim.Optimizer = field(init=False)

    def __post_init__(self):
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)


class Kept:
    @cached_property
    def optimizer(self):
        return torch.optim.SGD(model.parameters(), lr=0.1)


model = nn.Linear(4, 1)
loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8, shuffle=True)
state = {state}
for x, y in loader:
    state.optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    state.optimizer.step()
"""


@pytest.mark.parametrize(
    "state",
    ["Context(model)", "Kept()", "SimpleNamespace(optimizer=torch.optim.SGD(model.parameters(), lr=0.1), epoch=0)"],
)
def test_optimizers_that_objects_keep(tmp_path: Path, state: str) -> None:
    """What a data class does last, what a property keeps, and what a namespace is given."""
    imports = "from functools import cached_property\nfrom types import SimpleNamespace\n"
    after, report = conftest.converted(tmp_path, imports + HEAD + CONTEXT.replace("{state}", state))
    assert "model = DDP(nn.Linear(4, 1)" in after
    assert "AD90" not in report
