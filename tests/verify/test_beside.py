"""What lies beside a conversion by chance, as in a folder for temporary files, is neither copied nor looked for."""

from __future__ import annotations

from pathlib import Path

from conftest import SCRIPT, converted

from autodist.verify import verify
from autodist.verify.launch import Zygote
from autodist.verify.scratch import Scratch, belonging


def laid(folder: Path, **texts: str) -> Path:
    """A folder with modules."""
    folder.mkdir(parents=True)
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text)
    return folder


def test_what_belongs_is_what_code_names_and_the_original_has(tmp_path: Path) -> None:
    there = laid(
        tmp_path / "there",
        b="import parts\n",
        parts='import importlib\nimportlib.import_module("chosen.one")\n',
        stranger="raise SystemExit\n",
        model="# by a name put together: the original has it\n",
    )
    laid(there / "chosen", __init__="", one="")
    laid(there / "strange", __init__="", model="")
    home = laid(tmp_path / "home", model="")
    found = [path.name for path in belonging(there, home, there / "b.py")]
    assert found == ["b.py", "chosen", "model.py", "parts.py"]
    scratch = Scratch(tmp_path / "copy")
    scratch.fill(home)
    scratch.overlay(there, scratch.root, there / "b.py")
    copied = {path.relative_to(scratch.root).as_posix() for path in scratch.root.rglob("*.py")}
    assert copied == {"b.py", "chosen/__init__.py", "chosen/one.py", "model.py", "parts.py"}
    assert (scratch.root / "model.py").read_text().startswith("# by a name")


def test_files_that_have_gone(tmp_path: Path, zygote: Zygote | None) -> None:
    """A link that leads nowhere is a file that goes while it is looked at."""
    there, home = laid(tmp_path / "there"), laid(tmp_path / "home", a=SCRIPT)
    (there / "b.py").write_text(converted(tmp_path, SCRIPT)[0])
    for name in ("gone.py", "nn.py", "a.py"):
        (there / name).symlink_to(tmp_path / "nowhere")
    (there / "torch").symlink_to(tmp_path / "nowhere")
    verdict = verify(home / "a.py", there / "b.py", [2], device="cpu", workdir=home, zygote=zygote)
    assert verdict.equal, verdict
