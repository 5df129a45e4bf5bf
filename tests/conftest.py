"""What tests share: running the command, and the option that rewrites goldens."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click.testing
import pytest

from autodist.cli import cli
from autodist.config import Config, Strategy
from autodist.convert import convert
from autodist.project import Project
from autodist.verify import verify
from autodist.verify.launch import Zygote

ROOT = Path(__file__).parent.parent
Autodist = Callable[..., click.testing.Result]

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
torch.save(model.state_dict(), "model.pt")  # keep me
"""


def converted(folder: Path, text: str, strategy: Strategy = Strategy.DDP) -> tuple[str, str]:
    """A script's conversion, and what is said of it."""
    path = folder / "train.py"
    path.write_text(text)
    return converted_file(path, strategy)


def converted_file(path: Path, strategy: Strategy = Strategy.DDP) -> tuple[str, str]:
    """The same of a file."""
    result = convert(Project.load(path), Config(strategy))
    return result.entry.after, "\n".join(f"{each.code} {each.message}" for each in result.diagnostics)


def differences(folder: Path, zygote: Zygote | None, before: str) -> object:
    """What a script's conversion does otherwise on two ranks than the script in one process, if anything."""
    (folder / "before.py").write_text(before)
    (folder / "after.py").write_text(converted(folder, before)[0])
    verdict = verify(folder / "before.py", folder / "after.py", [2], device="cpu", workdir=folder, zygote=zygote)
    return None if verdict.worlds[0].equal else (verdict.worlds[0].reason, verdict.worlds[0].findings)


def launched(folder: Path, script: str, nproc: int | None = None, **environment: str) -> str:
    """What a script in ``folder`` prints, on some ranks or in one process."""
    launch = [] if nproc is None else ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(nproc)]
    command, env = [sys.executable, *launch, script], {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--update`` rewrites the goldens instead of comparing with them."""
    parser.addoption(
        "--update", action="store_true", help="rewrite fixtures/*/ddp and fsdp from what the converter writes now"
    )


@pytest.fixture(scope="session")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote | None]:
    """A process to fork from, where the system can fork."""
    pytest.importorskip("torch")
    if sys.platform != "linux":
        yield None
        return
    with Zygote([], {}, tmp_path_factory.mktemp("zygote") / "zygote.log") as process:
        yield process


@pytest.fixture
def autodist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Autodist:
    """Run the command in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str | Path, stdin: str | bytes | None = None) -> click.testing.Result:
        return click.testing.CliRunner().invoke(cli, [str(argument) for argument in arguments], input=stdin)

    return run


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A small training script, ``train.py`` in the folder where the command runs."""
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path
