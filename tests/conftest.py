"""What tests share: running the command, and the option that rewrites goldens."""

from __future__ import annotations

import compileall
import functools
import gc
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import click.testing
import pytest
from forked import Forks

from autodist.cli import cli
from autodist.config import Config, Strategy
from autodist.convert import convert
from autodist.project import Project
from autodist.verify import verify
from autodist.verify.launch import Zygote, rank_environment

ROOT = Path(__file__).parent.parent
SECONDS = 200.0
"""How long a script may run."""
NOT_IMPORTED = ("train.py", "before.py", "after.py")
"""What ``converted`` and ``differences`` write: no script imports these."""
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
    """The same of a file. A test that asks twice, as for its text and for what it does, has it converted once."""
    around = sorted(each for each in path.parent.rglob("*") if each.name not in NOT_IMPORTED and each.is_file())
    beside = tuple((str(each), each.stat().st_mtime_ns, each.stat().st_size) for each in around)
    return _converted(path, path.read_bytes(), Path.cwd(), beside, strategy)


@functools.lru_cache(maxsize=8)
def _converted(path: Path, text: bytes, folder: Path, beside: object, strategy: Strategy) -> tuple[str, str]:
    result = convert(Project.load(path), Config(strategy))
    return result.entry.after, "\n".join(f"{each.code} {each.message}" for each in result.diagnostics)


def differences(folder: Path, zygote: Zygote | None, before: str) -> object:
    """What a script's conversion does otherwise on two ranks than the script in one process, if anything."""
    (folder / "before.py").write_text(before)
    (folder / "after.py").write_text(converted(folder, before)[0])
    verdict = verify(folder / "before.py", folder / "after.py", [2], device="cpu", workdir=folder, zygote=zygote)
    return None if verdict.worlds[0].equal else (verdict.worlds[0].reason, verdict.worlds[0].findings)


@functools.cache
def forks() -> Forks:
    """A process to fork scripts from, where the system can fork."""
    return Forks()


def launched(folder: Path, script: str, nproc: int | None = None, fresh: bool = False, **environment: str) -> str:
    """What a script in ``folder`` prints, on some ranks or in one process. ``fresh`` starts Python and torchrun for it,
    as users do, for seconds instead of a moment."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    run = started if fresh or sys.platform != "linux" else forked
    codes, out, errors = run(folder, script, nproc, env)
    assert not any(codes), f"exit codes {codes}\n{out}{errors}"
    return out


def started(folder: Path, script: str, nproc: int | None, env: dict[str, str]) -> tuple[list[int], str, str]:
    """Exit code and output of a script in an interpreter of its own, or of torchrun."""
    launch = [] if nproc is None else ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(nproc)]
    command = [sys.executable, *launch, script]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=SECONDS, check=False)
    return [done.returncode], done.stdout, done.stderr


def forked(folder: Path, script: str, nproc: int | None, env: dict[str, str]) -> tuple[list[int], str, str]:
    """The same of forks, with what torchrun tells them: the ranks meet at a store that it keeps for them."""
    if nproc is None:
        return forks().run(folder, script, [env], SECONDS)
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    told = {"TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_USE_AGENT_STORE": "True"}
    ranks = [{**env, **told, **rank_environment(rank, nproc, store.port)} for rank in range(nproc)]
    return forks().run(folder, script, ranks, SECONDS)


MEMORY = Path("/dev/shm")
ROOM = 2 << 30
"""Bytes that must be free there."""


def pytest_configure(config: pytest.Config) -> None:
    """The garbage of conversions is looked for as seldom as in the command, see ``cli.main``.

    Copies in which programs run lie in memory, unless TMPDIR says where: they are many files, each of which takes up
    to a millisecond on a disk. The tests' own folders stay where they are, for programs to reach outside of copies."""
    gc.set_threshold(200_000, 30, 30)
    if sys.dont_write_bytecode and "PYTEST_XDIST_WORKER" not in os.environ:
        for package in ("autodist", "rules"):  # which each process that a test starts would compile for itself
            compileall.compile_dir(ROOT / package, quiet=2)
    if "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK) or shutil.disk_usage(MEMORY).free < ROOM:
        return
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    folder = os.environ["TMPDIR"] = tempfile.tempdir = tempfile.mkdtemp(prefix="tests-", dir=MEMORY)
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


def pytest_collection_finish() -> None:
    """What has been imported stays."""
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--update`` rewrites the goldens instead of comparing with them."""
    parser.addoption(
        "--update", action="store_true", help="rewrite fixtures/*/ddp and fsdp from what the converter writes now"
    )


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all processes of a run of tests have, for what is worked out once."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "shared"
    folder.mkdir(exist_ok=True)
    return folder


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
def warm(zygote: Zygote | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands that run scripts fork from that process, too, instead of one of their own."""
    if zygote is not None:
        for module in ("autodist.verify.proof", "autodist.observe.measured"):
            monkeypatch.setattr(f"{module}.Zygote", lambda *_: nullcontext(zygote))


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
