"""``verify --changed`` runs again what has changed, and nothing else."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ROOT, Autodist

from autodist.verify.verdict import Outcome, Verdict, WorldVerdict

SCRIPT = (
    "import os\n\nimport torch\n\nimport net\n\nopen('settings.yaml')\nos.environ.get('RATE')\nprint('data/images')\n"
)


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A pair of scripts with what they read, and the runs that were not spared."""
    for name, text in {
        "train.py": SCRIPT,
        "train_ddp.py": f"{SCRIPT}# converted\n",
        "net.py": "import torch\n",
        "settings.yaml": "lr: 0.1\n",
        "other.yaml": "lr: 0.2\n",
        "README.md": "A script.\n",
        "data/images/1.png": "1",
        "parts/shard0.bin": "1",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    done: list[str] = []

    def verify(before: Path, after: Path, nproc: object, args: object, **options: object) -> Verdict:
        done.append(f"{before.name} {after.name} {args}")
        outcome = Outcome.DIFFERS if "--wrong" in str(args) else Outcome.EQUAL
        return Verdict(str(before), str(after), (WorldVerdict(2, "float64", outcome, "4 steps agree"),))

    monkeypatch.setattr("autodist.verify.command.verify", verify)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return done


COMMAND = "verify --changed train.py train_ddp.py -- --config=other.yaml"
CHANGES: dict[str, tuple[str, Callable[[pytest.MonkeyPatch], object]]] = {
    "the script": (COMMAND, lambda _: Path("train.py").write_text(f"{SCRIPT}\n")),
    "its conversion": (COMMAND, lambda _: Path("train_ddp.py").write_text(f"{SCRIPT}# again\n")),
    "a local module": (COMMAND, lambda _: Path("net.py").write_text("import torch.nn\n")),
    "a file that the script names": (COMMAND, lambda _: Path("settings.yaml").write_text("lr: 0.3\n")),
    "a file that an argument names": (COMMAND, lambda _: Path("other.yaml").write_text("lr: 0.3\n")),
    "a file in a folder of data": (COMMAND, lambda _: Path("data/images/2.png").write_text("2")),
    "a file whose name is put together": (COMMAND, lambda _: Path("parts/shard0.bin").write_text("22")),
    "an environment variable": (COMMAND, lambda patch: patch.setenv("RATE", "2")),
    "an argument": (COMMAND.replace("other", "settings"), lambda _: None),
    "the number of ranks": (COMMAND.replace("--changed", "--changed --nproc 4"), lambda _: None),
    "what is installed": (COMMAND, lambda patch: patch.setattr("autodist.proofs.version", lambda name: "9")),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_has_changed_is_run_again(
    autodist: Autodist, runs: list[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    first = autodist(*COMMAND.split())
    assert (first.exit_code, len(runs)) == (0, 1), first.output
    command, change = CHANGES[name]
    change(monkeypatch)
    assert autodist(*command.split()).exit_code == 0 and len(runs) == 2


def test_what_has_not_is_said_again(autodist: Autodist, runs: list[str]) -> None:
    first = autodist(*COMMAND.split())
    Path("README.md").write_text("Another.\n")
    os.utime("train.py")
    again = autodist(
        *COMMAND.split(),
    )
    assert again.exit_code == 0 and len(runs) == 1
    assert again.stdout.startswith(first.stdout) and "not run again: nothing has changed since" in again.stdout
    autodist(*COMMAND.replace("--changed", "").split())
    assert len(runs) == 2, "without --changed everything is run"


def test_only_equal_verdicts_are_kept(autodist: Autodist, runs: list[str]) -> None:
    for _ in range(2):
        assert autodist(*COMMAND.split(), "--wrong").exit_code == 1
    assert len(runs) == 2


def test_a_cache_that_cannot_be_written_costs_a_run(autodist: Autodist, runs: list[str]) -> None:
    Path("cache").write_text("in the way")
    for _ in range(2):
        result = autodist(*COMMAND.split())
        assert result.exit_code == 0 and "cannot be kept" in result.stderr
    assert len(runs) == 2


def test_a_report_is_not_said_again(autodist: Autodist, runs: list[str]) -> None:
    result = autodist("verify", "--changed", "train.py", "train_ddp.py", "--report", "r.html")
    assert result.exit_code == 2 and "leave out --report" in result.stderr


def test_a_conversion_that_is_made_on_the_way(autodist: Autodist, runs: list[str], script: Path) -> None:
    for _ in range(2):
        assert autodist("verify", "--changed", "train.py", "--strategy", "ddp").exit_code == 0
    assert len(runs) == 1
    assert autodist("verify", "--changed", "train.py", "--strategy", "zero").exit_code == 0
    assert len(runs) == 2


@pytest.mark.usefixtures("warm")
def test_the_hook_of_the_example(autodist: Autodist, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    yaml = pytest.importorskip("yaml")
    hooks = {each["id"]: each for each in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())}
    example = ROOT / "examples" / "pull_request"
    (wanted,) = yaml.safe_load((example / ".pre-commit-config.yaml").read_text())["repos"]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for path in example.glob("*.py"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    for hook in (*wanted["hooks"], wanted["hooks"][-1]):
        names = ["train_ddp.py"] if hooks[hook["id"]].get("pass_filenames", True) else []
        result = autodist(*shlex.split(hooks[hook["id"]]["entry"])[1:], *hook.get("args", ()), *names)
        assert result.exit_code == 0, result.output
    assert "EQUAL on 2 ranks" in result.stdout and "not run again" in result.stdout
