"""No Python file makes the command crash: it converts, refuses or says in one line what is wrong."""

from __future__ import annotations

import ast
import os
import random
import signal
import sysconfig
from functools import lru_cache
from pathlib import Path

import pytest
from conftest import ROOT

from autodist import catalog
from autodist.config import Config
from autodist.convert import InternalError, convert
from autodist.errors import AutodistError
from autodist.interpreter import Interpreter, Plan
from autodist.project import Project
from autodist.source import Source

FOLDERS = [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib")]
SAMPLE = 300
SECONDS = 20
"""CPU time for one file. Who waits longer than this for a hook takes it for dead."""


def python_files() -> list[Path]:
    """Every Python file of this installation: site-packages, the standard library and its tests."""
    return sorted({path for folder in FOLDERS for path in folder.rglob("*.py")})


def files_beside() -> list[Path]:
    """Those in the folders of `ROBUSTNESS`, as repositories that were fetched."""
    folders = [Path(each) for each in os.environ.get("ROBUSTNESS", "").split(os.pathsep) if each]
    return sorted({path for folder in folders for path in folder.rglob("*.py") if path.is_file()})


def failure(path: Path, data: bytes) -> str | None:
    """What is wrong with autodist, not with the file. It is read in a process of its own, which ends when it takes too
    long, so that the files after it are not blamed."""
    _warm()
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        try:
            signal.signal(signal.SIGVTALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
            os.write(writes, (_wrong(path, data) or "").encode()[:4000])
        finally:
            os._exit(0)
    os.close(writes)
    with os.fdopen(reads) as told:
        wrong = told.read()
    _, status = os.waitpid(child, 0)
    return f"{path}: takes too long" if os.WIFSIGNALED(status) else wrong or None


@lru_cache
def _warm() -> None:
    """Read the tables that all processes need."""
    assert _wrong(Path("warm.py"), b"import torch\n") is None


def _wrong(path: Path, data: bytes) -> str | None:
    try:
        result = convert(Project(Source.parse(data, path), {}, path.parent), Config())
        for file in result.changed:
            ast.parse(file.after)
    except InternalError as error:
        return str(error)
    except AutodistError as error:
        return str(error) if "conflict" in error.message else None
    except Exception as error:
        return f"{path}: {type(error).__name__}: {error}"
    return None


def failures(files: list[Path]) -> list[str]:
    """What goes wrong with any of these files."""
    return [wrong for path in files if (wrong := failure(path, path.read_bytes())) is not None]


def mutant(path: Path, number: int) -> bytes:
    """A training script with a few statements gone, as people have them halfway through their work."""
    choose = random.Random(f"{path.parts[-3:]} {number}")
    tree = ast.parse(path.read_bytes())
    blocks = [b for node in ast.walk(tree) for b in (getattr(node, "body", None), getattr(node, "orelse", None)) if b]
    for _ in range(choose.randint(1, 3)):
        block = choose.choice([block for block in blocks if isinstance(block, list)])
        block[choose.randrange(len(block))] = ast.Pass()
    return ast.unparse(ast.fix_missing_locations(tree)).encode()


def test_sample() -> None:
    files = python_files()
    chosen = random.Random(20261121).sample(files, min(SAMPLE, len(files)))
    assert failures(chosen) == []


def test_files_that_train() -> None:
    files = [path for path in python_files() if path.stat().st_size < 60_000 and b".backward()" in path.read_bytes()]
    assert failures(files[:SAMPLE]) == []


def mutants(each: int) -> list[str]:
    """What goes wrong with ``each`` mutants of every fixture."""
    paths = sorted(path for path in (ROOT / "fixtures").glob("*/before/**/*.py") if path.stat().st_size)
    found = ((path, number, failure(path, mutant(path, number))) for path in paths for number in range(each))
    return [f"{path} mutant {number}: {wrong}" for path, number, wrong in found if wrong is not None]


@pytest.mark.timeout(900)
def test_mutated_scripts() -> None:
    assert mutants(each=1) == []


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_many_mutated_scripts() -> None:
    assert mutants(each=40) == []


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_every_file() -> None:
    assert failures(files_beside() or python_files()) == []


def test_tables_of_data(tmp_path: Path) -> None:
    """Tens of thousands of settings, as of tuned kernels, and what goes over them."""
    tuned = {(n, n % 7, "cuda"): (n, n + 1, [n % 3, -n]) for n in range(20_000)}
    script = f"""
import torch

TUNED = {tuned!r}

def closest(wanted):
    found = {{}}
    for key, value in zip(TUNED, TUNED.values()):
        found[key[1]] = dict(zip(("m", "n", "k"), value))
    pairs = dict(zip(TUNED.keys(), TUNED.values()))
    return found.get(wanted, pairs)

model = torch.nn.Linear(1, 1)
print(closest(3), sorted(TUNED)[:10])
"""
    assert failure(tmp_path / "tuned.py", script.encode()) is None


@pytest.mark.parametrize("first, events", [("import numpy as np", False), ("import torch", True)])
def test_only_what_may_train_is_run(first: str, events: bool) -> None:
    """A hook shows files by the hundreds: those that name nothing that trains cost no time."""
    source = Source.parse(f"{first}\n\nfor number in range(3):\n    print(number)\n")
    run = Interpreter(Project(source, {}, Path()), catalog.load(), Plan()).run()
    assert bool(run.events) is events
