"""Converted projects in a folder of their own import the converted modules: by the command that ran the original with
the script's path changed, or the same command in that folder, without PYTHONPATH, whatever is installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Autodist

NET = "from torch import nn\n\n\ndef make():\n    return nn.Linear(4, 1)\n"
DATA = """\
import torch
from torch.utils.data import DataLoader, TensorDataset


def loader():
    return DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8, shuffle=True)
"""
TRAIN = """\
import torch
from torch import nn

{imports}


def main():
    torch.manual_seed(0)
    model = make()
    batches = loader()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        for x, y in batches:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
"""
FROM_LIB = "from lib.net import make\nfrom lib.data import loader"
LAZY = TRAIN.format(imports='import sys\n\nsys.path.append("..")').replace(
    "    torch.manual", "    from lib.net import make\n    from lib.data import loader\n\n    torch.manual"
)
LIB = {"lib/__init__.py": "", "lib/net.py": NET, "lib/data.py": DATA}
PACKAGE = {"pkg/__init__.py": "", "pkg/net.py": NET, "pkg/data.py": DATA}
ADDED_BY_MODULE = "import os.path as osp\nimport sys\n\n\ndef add(path):\n    sys.path.insert(0, path)\n\n\nadd({})\n"


def by_path(statement: str, imports: str = FROM_LIB) -> str:
    """A script that puts a folder on its path."""
    return TRAIN.format(imports=f"import os\nimport sys\nfrom pathlib import Path\n\n{statement}\n{imports}")


PROJECTS: dict[str, tuple[dict[str, str], str, str]] = {
    # files, the entry, and the folder where it is started
    "two folders up": ({**LIB, "a/b/train.py": by_path('sys.path.append("../..")')}, "a/b/train.py", "a/b"),
    "one folder up": ({**LIB, "tools/train.py": by_path('sys.path.append("..")')}, "tools/train.py", "tools"),
    "up, in front": ({**LIB, "tools/train.py": by_path('sys.path.insert(0, "..")')}, "tools/train.py", "tools"),
    "the current one": ({**LIB, "tools/train.py": by_path('sys.path.insert(0, ".")')}, "tools/train.py", "."),
    "getcwd": ({**LIB, "tools/train.py": by_path("sys.path.append(os.getcwd())")}, "tools/train.py", "."),
    "dirname": (
        {**LIB, "tools/train.py": by_path("sys.path.append(os.path.dirname(os.path.dirname(__file__)))")},
        "tools/train.py",
        ".",
    ),
    "dirname, in front": (
        {**LIB, "tools/train.py": by_path("sys.path.insert(0, os.path.dirname(os.path.dirname(__file__)))")},
        "tools/train.py",
        ".",
    ),
    "parents": (
        {**LIB, "a/b/train.py": by_path("sys.path.append(str(Path(__file__).resolve().parents[2]))")},
        "a/b/train.py",
        ".",
    ),
    "a list": ({**LIB, "tools/train.py": by_path('sys.path += [".."]')}, "tools/train.py", "tools"),
    "a list in front": ({**LIB, "tools/train.py": by_path('sys.path = [".."] + sys.path')}, "tools/train.py", "tools"),
    "if missing": (
        {**LIB, "tools/train.py": by_path('if ".." not in sys.path:\n    sys.path.insert(0, "..")')},
        "tools/train.py",
        "tools",
    ),
    "late": ({**LIB, "tools/train.py": LAZY}, "tools/train.py", "tools"),
    "by name": (
        {
            **LIB,
            "tools/train.py": by_path(
                'import importlib\nsys.path.append("..")',
                'name = "net"\nmake = importlib.import_module("lib." + name).make\nfrom lib.data import loader',
            ),
        },
        "tools/train.py",
        "tools",
    ),
    "PYTHONPATH=.": ({**LIB, "setup.py": "", "tools/train.py": TRAIN.format(imports=FROM_LIB)}, "tools/train.py", "."),
    "PYTHONPATH=src": (
        {
            "setup.py": "",
            **{f"src/{name}": text for name, text in PACKAGE.items()},
            "scripts/train.py": TRAIN.format(imports="from pkg.net import make\nfrom pkg.data import loader"),
        },
        "scripts/train.py",
        ".",
    ),
    "a module adds it": (
        {
            **LIB,
            "tools/_paths.py": ADDED_BY_MODULE.format("osp.join(osp.dirname(__file__), '..')"),
            "tools/train.py": TRAIN.format(imports=f"import _paths\n{FROM_LIB}"),
        },
        "tools/train.py",
        ".",
    ),
    "a module adds the current one's parent": (
        {
            **LIB,
            "tools/_paths.py": ADDED_BY_MODULE.format("'..'"),
            "tools/train.py": TRAIN.format(imports=f"import _paths\n{FROM_LIB}"),
        },
        "tools/train.py",
        "tools",
    ),
    "beside it": (
        {"net.py": NET, "data.py": DATA, "train.py": TRAIN.format(imports="from net import *\nfrom data import *")},
        "train.py",
        ".",
    ),
    "beside it, by the current folder": (
        {
            "net.py": NET,
            "data.py": DATA,
            "train.py": by_path("sys.path.insert(0, os.getcwd())", "from net import make\nfrom data import loader"),
        },
        "train.py",
        ".",
    ),
    "-m": (
        {**PACKAGE, "pkg/train.py": TRAIN.format(imports="from .net import make\nfrom .data import loader")},
        "pkg/train.py",
        ".",
    ),
    "-m, from the package": (
        {
            **PACKAGE,
            "pkg/train.py": TRAIN.format(
                imports="from . import net\nfrom . import data\n\nmake = net.make\nloader = data.loader"
            ),
        },
        "pkg/train.py",
        ".",
    ),
    "-m, further up": (
        {
            **PACKAGE,
            "pkg/cli/__init__.py": "",
            "pkg/cli/train.py": TRAIN.format(imports="from ..net import make\nfrom ..data import loader"),
        },
        "pkg/cli/train.py",
        ".",
    ),
    "-m, in full": (
        {
            **PACKAGE,
            "pkg/__init__.py": "from pkg.net import make\n",
            "pkg/train.py": TRAIN.format(imports="from pkg import make\nfrom pkg.data import loader"),
        },
        "pkg/train.py",
        ".",
    ),
    "-m, a module named like one of Python": (
        {
            **PACKAGE,
            "pkg/random.py": "raise ImportError('not this one')\n",
            "pkg/train.py": TRAIN.format(imports="import random\nfrom .net import make\nfrom .data import loader"),
        },
        "pkg/train.py",
        ".",
    ),
    "-m, started by its path as well": (
        {
            **PACKAGE,
            "pkg/train.py": TRAIN.format(
                imports="if not __package__:\n    __package__ = 'pkg'\nfrom .net import make\nfrom .data import loader"
            ),
        },
        "pkg/train.py",
        ".",
    ),
    "one line": (
        {**LIB, "tools/train.py": "import sys; sys.path.append('..'); " + TRAIN.format(imports=FROM_LIB)},
        "tools/train.py",
        "tools",
    ),
    "set to another folder": (
        {
            **LIB,
            "tools/train.py": by_path(
                "ROOT = Path(__file__).resolve().parents[1]\nif str(ROOT) not in sys.path:\n"
                "    sys.path.append(str(ROOT))\nROOT = Path(os.path.relpath(ROOT, Path.cwd()))"
            ),
            "requirements.txt": "",
        },
        "tools/train.py",
        "tools",
    ),
    "-m of a package": (
        {**PACKAGE, "pkg/__main__.py": TRAIN.format(imports="from .net import make\nfrom .data import loader")},
        "pkg/__main__.py",
        ".",
    ),
}
WITHOUT_TORCH = """\
import atexit, os, runpy, sys
from unittest.mock import MagicMock
torch = MagicMock()
torch.distributed.get_world_size.return_value, torch.distributed.get_rank.return_value = 1, 0
for name in ("", ".nn", ".nn.parallel", ".distributed", ".utils", ".utils.data", ".utils.data.distributed"):
    sys.modules["torch" + name] = torch if not name else MagicMock()
sys.modules["torch.distributed"] = torch.distributed
own = [name for name in sys.modules]
def show():
    new = [name for name in sys.modules if name not in own and name.split(".")[-1] in ("net", "data")]
    print([os.path.abspath(sys.modules[name].__file__) for name in new])
atexit.register(show)
os.chdir(sys.argv[2])
if sys.argv[1] == "-m":
    sys.path[0] = os.getcwd()
    runpy.run_module(sys.argv[3], run_name="__main__", alter_sys=True)
else:
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[3]))
    runpy.run_path(os.path.abspath(sys.argv[3]), run_name="__main__")
"""


def imported(how: str, start: Path, what: str, originals: Path) -> list[str]:
    """The files of the project's modules that a script imports, where the originals are installed as well."""
    command = [sys.executable, "-c", WITHOUT_TORCH, how, str(start), what]
    paths = os.pathsep.join(map(str, (originals, originals / "src", originals / "tools")))
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout.splitlines()[-1].replace("'", '"'))
    assert len(found) == 2, done.stdout
    return found


@pytest.mark.parametrize("output", ["default", "elsewhere/"])
@pytest.mark.parametrize("kind", PROJECTS)
def test_converted_modules_are_imported(
    autodist: Autodist, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, output: str
) -> None:
    files, entry, start = PROJECTS[kind]
    top = tmp_path / "project"
    for name, text in files.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text)
    monkeypatch.chdir(top / start)
    module = entry.removesuffix(".py").replace("/", ".").removesuffix(".__main__") if kind.startswith("-m") else None
    named = ["-m", module] if module else [os.path.relpath(top / entry)]
    target = [] if output == "default" else ["--output", f"{tmp_path / output}/"]
    result = autodist("convert", *named, "--output-format", "json", *target)
    assert result.exit_code == 0, result.output
    (script,) = json.loads(result.stdout)["scripts"]
    command = script["launch"][0]["command"].split()
    assert command[0] == "python" and len(command) == 2, command
    written = Path(script["outputs"][0]).resolve()
    folder = written.parents[entry.count("/")]
    assert all(place.startswith(str(folder)) for place in imported("path", top / start, command[1], top))
    inside = imported("-m", folder, module, top) if module else imported("path", written.parent, written.name, top)
    assert all(place.startswith(str(folder)) for place in inside)


def test_one_file_is_started_as_the_original_is(autodist: Autodist, tmp_path: Path) -> None:
    """Where no module changes, only the name of the script does."""
    files = {
        "pkg/__init__.py": "",
        "pkg/net.py": NET,
        "pkg/train.py": TRAIN.format(imports="from .net import make").replace(
            "loader()", DATA.split("return ")[1].strip()
        ),
        "setup.py": "",
        "tools/train.py": TRAIN.format(imports="from pkg.net import make").replace(
            "loader()", DATA.split("return ")[1].strip()
        ),
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(
            text.replace("DataLoader(TensorDataset(", "torch.utils.data.DataLoader(torch.utils.data.TensorDataset(")
        )
    for entry, command in (
        (["pkg/train.py"], "python -m pkg.train_ddp"),
        (["-m", "pkg.train", "--force"], "python -m pkg.train_ddp"),
        (["pkg/train.py", "--in-place"], "python -m pkg.train"),
        (["tools/train.py"], "PYTHONPATH=. python tools/train_ddp.py"),
    ):
        result = autodist("convert", *entry)
        assert f"one process         {command}\n" in result.output, result.output
        assert f"torchrun --standalone --nproc-per-node 2 {command.split('python ')[1]}\n" in result.output
    result = autodist("convert", "pkg/train.py", "--output", "elsewhere.py", "--force")
    assert result.exit_code == 2 or "nothing to change" in result.output


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pyproject.toml", "[project.scripts]\nfit = 'pkg.train:main'\n"),
        ("pyproject.toml", "[tool.poetry.scripts]\nfit = 'pkg.train:main'\n"),
        ("setup.py", "setup(entry_points={'console_scripts': ['fit = pkg.train:main']})\n"),
        ("setup.cfg", "[options.entry_points]\nconsole_scripts =\n    fit=pkg.train:main\n"),
    ],
)
def test_what_an_installed_command_starts(autodist: Autodist, tmp_path: Path, name: str, text: str) -> None:
    """Started by its path it would do nothing."""
    train = TRAIN.format(imports="from .net import make\nfrom .data import loader").partition("\n\nif __name__")[0]
    for place, content in {**PACKAGE, "pkg/train.py": train, name: text}.items():
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_text(content)
    result = autodist("convert", "pkg/train.py")
    assert "one process         PYTHONPATH=train_ddp fit\n" in result.output, result.output
    assert "PYTHONPATH=train_ddp torchrun --no-python --standalone --nproc-per-node 2 fit\n" in result.output


def test_in_the_folder_of_the_package(autodist: Autodist, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train = TRAIN.format(imports="from .net import make\nfrom .data import loader")
    for place, content in {**PACKAGE, "pkg/train.py": train}.items():
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_text(content)
    monkeypatch.chdir(tmp_path / "pkg")
    result = autodist("convert", "train.py")
    assert "one process         python ../train_ddp/pkg/train.py\n" in result.output, result.output


def test_folders_that_the_text_does_not_tell_are_said(autodist: Autodist, tmp_path: Path) -> None:
    (tmp_path / "paths.py").write_text("import os\nimport sys\n\nsys.path.insert(0, os.environ['CODE'])\n")
    for name, text in {"net.py": NET, "data.py": DATA}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "train.py").write_text(
        TRAIN.format(imports="import paths\nfrom net import make\nfrom data import loader")
    )
    result = autodist("convert", "train.py")
    assert "paths.py:4: warning: os.environ['CODE'] comes first on sys.path" in result.output, result.output
    assert result.exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["convert", "-m", "nothing.train"], "no module nothing.train"),
        (["convert", "-m", "pkg"], "pkg is a package without __main__.py"),
        (["verify", "-m", "pkg.nothing", "--strategy", "ddp"], "no module pkg.nothing"),
        (["verify", "-m", "pkg.train", "missing_ddp.py"], "no such file"),
        (["convert"], "name a script, or a module by -m"),
        (["verify"], "name the original"),
    ],
)
def test_modules_that_are_not_there(autodist: Autodist, tmp_path: Path, arguments: list[str], message: str) -> None:
    for name, text in {
        **PACKAGE,
        "pkg/train.py": TRAIN.format(imports="from .net import make\nfrom .data import loader"),
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    result = autodist(*arguments)
    assert result.exit_code == 2 and message in result.output, result.output
