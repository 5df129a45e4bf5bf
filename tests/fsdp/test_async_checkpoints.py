"""Checkpoints that are written while the training goes on: whole or not at all, by any number of ranks, and heard."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from conftest import ROOT, SCRIPT, forked, launched

from autodist.cli import cli
from autodist.config import Config, Strategy
from autodist.convert import convert
from autodist.project import Project
from autodist.verify import WorldVerdict, verify
from autodist.verify.launch import Zygote

BEFORE = ROOT / "fixtures" / "async_checkpoints" / "before"
GO = """
import os, checkpoints, train

train.setup_distributed()
plain = checkpoints.CommittingWriter.write_data
writes = []


def write(self, *args):
    writes.append(args)
    if os.environ.get("FAILS") == f"{os.environ['RANK']}@{len(writes)}":
        raise OSError("disk full")
    return plain(self, *args)


checkpoints.CommittingWriter.write_data = write
args = type("Options", (), {"out": "out"})
train.train(args, int(os.environ["EPOCHS"]))
"""


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The conversion of the fixture."""
    folder = tmp_path_factory.mktemp("sharded")
    config = Config(Strategy.FSDP, async_checkpoints=True)
    for file in convert(Project.load(BEFORE / "train.py"), config).files:
        (folder / file.source.path.name).write_bytes(file.source.encode(file.after))
    (folder / "go.py").write_text(GO)
    return folder


def run(folder: Path, nproc: int | None, **told: str) -> tuple[list[int], str, str]:
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(folder), **told}
    return forked(folder, "go.py", nproc, env)


@pytest.mark.slow
def test_goes_on_from_what_is_committed(sharded: Path, tmp_path: Path) -> None:
    """On 2 ranks, then 4, then 1; what was left half written is neither read nor kept."""
    folder = tmp_path / "run"
    shutil.copytree(sharded, folder)
    last = folder / "out" / "last.pt"
    assert launched(folder, "go.py", 2, EPOCHS="1", PYTHONPATH=str(folder)).startswith("0 ")
    assert {path.name for path in last.iterdir()} == {".metadata", "__0_0.distcp", "__1_0.distcp"}
    part = folder / "out" / "last.pt.part"
    part.mkdir()
    (part / "__7_0.distcp").write_bytes(b"half")
    assert launched(folder, "go.py", 4, EPOCHS="2", PYTHONPATH=str(folder)).startswith("1 ")
    assert not list(last.glob("__7*")) and sorted(path.name for path in (folder / "out").iterdir()) == ["last.pt"]
    assert launched(folder, "go.py", None, EPOCHS="3", PYTHONPATH=str(folder)).startswith("2 ")


@pytest.mark.slow
@pytest.mark.parametrize("write", [1, 2], ids=["heard by the next save", "heard at the end"])
def test_a_save_that_fails_is_heard(sharded: Path, tmp_path: Path, write: int) -> None:
    """The other rank is told; the checkpoint before stays."""
    folder = tmp_path / "run"
    shutil.copytree(sharded, folder)
    codes, _, errors = run(folder, 2, EPOCHS="2", FAILS=f"1@{write}")
    assert 1 in codes and 0 not in codes and "disk full" in errors  # the other is ended once one has failed
    assert (folder / "out" / "last.pt").exists() is (write == 2)


WRONG = {
    "weights go on changing": ('.detach().to("cpu", copy=True)', "", "deviates"),
    "lists go on growing": ("copy.deepcopy(state)", "state", "history"),
    "nobody waits": ("    finish_save()", "    pass", ""),
    "a part is left out": ("packed(state),\n", 'packed({**state, "history": []}),\n', "history"),
}


TOLD_ITS_PLACE = {
    "def reset(self, checkpoint_id=None)": "def __init__(self, folder)",
    'super().reset(f"{checkpoint_id}.part")': 'super().__init__(f"{folder}.part")',
    "self.folder = checkpoint_id": "self.folder = folder",
    "            checkpoint_id=folder,\n": "",
}
"""The same by a writer that says where it writes, as many do."""


def changed(folder: Path, sharded: Path, changes: dict[str, str], zygote: Zygote) -> WorldVerdict:
    """What is said of the conversion, with some of its lines changed."""
    shutil.copytree(sharded, folder / "made")
    path = folder / "made" / "checkpoints.py"
    text = path.read_text()
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)
    shutil.copytree(BEFORE, folder / "before")
    before, after = folder / "before" / "train.py", folder / "made" / "train.py"
    return verify(before, after, [2], device="cpu", workdir=folder, zygote=zygote).worlds[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
def test_verify_sees_what_is_written(name: str, sharded: Path, tmp_path: Path, zygote: Zygote) -> None:
    old, new, told = WRONG[name]
    world = changed(tmp_path, sharded, {old: new}, zygote)
    assert not world.equal and told in f"{world.reason} {world.findings}"


@pytest.mark.slow
def test_verify_follows_a_folder_that_is_renamed(sharded: Path, tmp_path: Path, zygote: Zygote) -> None:
    world = changed(tmp_path, sharded, TOLD_ITS_PLACE, zygote)
    assert world.equal, (world.reason, world.findings)
    assert world.reason.endswith("2 files agree")


LOADS = "\n\ndef load(path):\n    return torch.load(path)\n"


def test_options_and_files_that_do_not_go_with_it(tmp_path: Path) -> None:
    path = tmp_path / "train.py"

    def refused(text: str, *options: str) -> str:
        path.write_text(text)
        done = CliRunner().invoke(cli, ["convert", str(path), "--async-checkpoints", "--force", *options])
        assert done.exit_code != 0
        return done.output

    assert "--async-checkpoints needs --strategy fsdp or hsdp" in refused(SCRIPT)
    assert "leave out --async-checkpoints" in refused(SCRIPT, "--strategy", "fsdp", "--on-preempt")
    moved = SCRIPT + 'import os\nos.replace("model.pt", "best.pt")\n'
    assert "leave --async-checkpoints away" in refused(moved, "--strategy", "fsdp")
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text(f"import torch{LOADS}")
    several = f"import one, two\n{SCRIPT}one.load('model.pt')\ntwo.load('model.pt')\n"
    assert "put both into one file" in refused(several, "--strategy", "fsdp")


@pytest.mark.slow
def test_goes_on_from_a_file_of_the_original(sharded: Path, tmp_path: Path, zygote: Zygote) -> None:
    """Its float32 stay so in both runs, and the folder takes the place of the file."""
    for name, made in (("before", BEFORE), ("made", sharded)):
        shutil.copytree(made, tmp_path / name)
    (tmp_path / "once.py").write_text("import train\ntrain.train(type('Options', (), {'out': 'out'}), 1)\n")
    launched(tmp_path, "once.py", PYTHONPATH=str(BEFORE))
    before, after = tmp_path / "before" / "train.py", tmp_path / "made" / "train.py"
    options = ["--epochs", "3"]
    world = verify(before, after, [4], options, device="cpu", workdir=tmp_path, zygote=zygote).worlds[0]
    assert world.equal and "8 optimizer steps" in world.reason, (world.reason, world.findings)
