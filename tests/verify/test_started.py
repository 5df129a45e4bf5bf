"""How verify starts what it is given: scripts, modules by name as `python -m` does, and notebooks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import SCRIPT, Autodist, converted

from autodist.verify import Outcome, verify
from autodist.verify.launch import Zygote

MAGICS = "%matplotlib inline\n!echo hello\n%cd .\n"
MODULES = {
    "relative": "from .net import make\n",
    "in full": "from pkg.net import make\n",
    "both": "from . import net\nfrom pkg.net import Net\n\nassert net.Net is Net\nmake = net.make\n",
    "the name": "from .net import make\n\nprint(__import__(__package__ + '.net').net.Net)\n",
}
NET = "from torch import nn\n\n\nclass Net(nn.Linear):\n    pass\n\n\ndef make():\n    return Net(4, 1)\n"


def notebook(*cells: str) -> str:
    """A notebook of code."""
    return json.dumps({"cells": [{"cell_type": "code", "source": cell} for cell in cells], "metadata": {}})


@pytest.mark.parametrize(
    "pair", [("train.ipynb", "train_ddp.py"), ("train.ipynb", "train_ddp.ipynb"), ("train.py", "train_ddp.ipynb")]
)
def test_notebooks_are_read_as_notebooks(tmp_path: Path, zygote: Zygote | None, pair: tuple[str, str]) -> None:
    after = converted(tmp_path, SCRIPT)[0]
    (tmp_path / "train.py").unlink()
    for name, text in zip(pair, (SCRIPT, after), strict=True):
        (tmp_path / name).write_text(notebook(MAGICS, text) if name.endswith(".ipynb") else text)
    verdict = verify(tmp_path / pair[0], tmp_path / pair[1], [2], device="cpu", workdir=tmp_path, zygote=zygote)
    assert verdict.outcome is Outcome.EQUAL, verdict.worlds
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(pair)


@pytest.mark.parametrize(("entry", "imports"), [*(("train", each) for each in MODULES), ("__main__", "relative")])
@pytest.mark.usefixtures("warm")
def test_modules_by_name(
    autodist: Autodist, tmp_path: Path, capfd: pytest.CaptureFixture[str], imports: str, entry: str
) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").write_text("")
    (tmp_path / "pkg" / "net.py").write_text(NET)
    text = MODULES[imports] + SCRIPT.replace("nn.Linear(4, 1)", "make()")
    (tmp_path / "pkg" / f"{entry}.py").write_text(text)
    name = "pkg.train" if entry == "train" else "pkg"
    result = autodist("convert", "-m", name, "--output", "out/")
    assert result.exit_code == 0, result.output
    assert autodist("verify", "-m", name, "out", "--device", "cpu").exit_code == 0, capfd.readouterr().out


@pytest.mark.usefixtures("warm")
def test_both_by_name_and_converted_first(autodist: Autodist, tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").write_text("")
    (tmp_path / "pkg" / "net.py").write_text(NET)
    (tmp_path / "pkg" / "train.py").write_text("from .net import make\n" + SCRIPT.replace("nn.Linear(4, 1)", "make()"))
    assert autodist("verify", "-m", "pkg.train", "--strategy", "ddp", "--device", "cpu").exit_code == 0
    result = autodist("convert", "-m", "pkg.train")
    assert "python -m pkg.train_ddp\n" in result.output
    assert autodist("verify", "-m", "pkg.train", "-m", "pkg.train_ddp", "--device", "cpu").exit_code == 0
    assert autodist("verify", "pkg/train.py", "pkg/train_ddp.py", "--device", "cpu").exit_code == 0


SCRIPT_OF_LAYOUT = """\
import os
import sys
from pathlib import Path

import torch
from torch import nn

STATEMENT
from lib.data import loader

torch.manual_seed(1)
model = nn.Linear(4, 1)
batches = loader()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in batches:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
DATA = """\
import torch
from torch.utils.data import DataLoader, TensorDataset


def loader():
    x = torch.randn(64, 4)
    return DataLoader(TensorDataset(x, x.sum(1, True)), batch_size=8, shuffle=True)
"""
LAYOUTS = {
    # the folders of the script and of its modules, and the statement that puts these on its path
    "two up": ("exp/one", ".", "sys.path.append(os.path.join(os.path.dirname(__file__), '..', '..'))"),
    "one up": ("tools", ".", "sys.path.insert(0, str(Path(__file__).resolve().parents[1]))"),
    "from where it starts": ("tools", ".", "sys.path.append('.')"),
    "beside": ("tools", "src", "sys.path.append(os.path.join(os.path.dirname(__file__), '..', 'src'))"),
    "its own": ("tools", "tools", ""),
}


@pytest.mark.parametrize("output", ["elsewhere", "project/out", "another/tools"])
@pytest.mark.parametrize("kind", LAYOUTS)
def test_the_modules_of_a_conversion_are_its_own(
    autodist: Autodist, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, output: str, zygote: Zygote | None
) -> None:
    """Those of the original, which have the same names, have no sampler whose epoch can be set."""
    script, modules, statement = LAYOUTS[kind]
    top = tmp_path / "project"
    training = SCRIPT_OF_LAYOUT.replace("STATEMENT", statement)
    files = {f"{script}/train.py": training, f"{modules}/lib/data.py": DATA}
    for name, text in files.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text)
    monkeypatch.chdir(top)
    result = autodist("convert", f"{script}/train.py", "--output", f"{tmp_path / output}/")
    assert result.exit_code == 0, result.output
    (after,) = (tmp_path / output).rglob("train.py")
    verdict = verify(top / script / "train.py", after, [2], device="cpu", zygote=zygote)
    assert verdict.outcome is Outcome.EQUAL, verdict.worlds


def test_a_module_above_the_working_folder_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A project that finds its modules by PYTHONPATH, verified from inside a folder of it."""
    tools = tmp_path / "project" / "tools"
    tools.mkdir(parents=True)
    (tmp_path / "project" / "lib").mkdir()
    (tmp_path / "project" / "lib" / "sizes.py").write_text("WIDTH = 4\n")
    for name in ("before", "after"):
        (tools / f"{name}.py").write_text("from lib.sizes import WIDTH\n")
    monkeypatch.chdir(tools)
    world = verify(tools / "before.py", tools / "after.py", [2], device="cpu").worlds[0]
    assert f"lib lies in {tmp_path / 'project'}, above the working folder" in world.reason
    assert f"--workdir {tmp_path / 'project'}" in world.reason
