"""The wheel holds every module, rule and fact, and installing it brings no torch."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from conftest import ROOT


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel of a clean copy of the sources, built as a user's pip builds it."""
    import shutil

    copy = tmp_path_factory.mktemp("copy")
    for name in ("autodist", "rules"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for folder in sorted(copy.rglob("*"), reverse=True):  # as of a package that is gone, which a clone has not
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    target = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(target)]
    subprocess.run([*command, str(copy)], check=True)
    return zipfile.ZipFile(next(target.glob("torch_autodist-*.whl")))


def sources(folder: str) -> set[str]:
    """The files of a source folder that must be installed."""
    paths = [path for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".toml", ".typed", ".html", ".js")]
    return {path.relative_to(ROOT / folder).as_posix() for path in paths if "__pycache__" not in path.parts}


def test_everything_is_in_it(wheel: zipfile.ZipFile) -> None:
    expected = {f"autodist/{name}" for name in sources("autodist")} | {f"autodist/rules/{n}" for n in sources("rules")}
    packed = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert packed == expected


def test_no_top_level_but_ours(wheel: zipfile.ZipFile) -> None:
    assert {Path(name).parts[0].split("-")[0] for name in wheel.namelist()} == {"autodist", "torch_autodist"}


def test_torch_is_an_extra(wheel: zipfile.ZipFile) -> None:
    (metadata,) = (wheel.read(name).decode() for name in wheel.namelist() if name.endswith("METADATA"))
    required = [line for line in metadata.splitlines() if line.startswith("Requires-Dist:")]
    assert all('extra == "verify"' in line for line in required if "torch" in line or "rich" in line)
    assert any("torch" in line for line in required)
    assert "License-Expression: Apache-2.0" in metadata
    assert any(name.endswith("licenses/LICENSE") for name in wheel.namelist())
