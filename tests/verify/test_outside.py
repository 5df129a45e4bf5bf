"""Absolute paths outside the working folder: nothing of the user's changes, and the script finds what it wrote."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from autodist.verify import Outcome, verify
from autodist.verify.launch import Zygote
from verify.conftest import ROOT, edit
from verify.test_proof import files_below

WRITES = """
import os, pathlib, shutil, sqlite3, tempfile
import numpy
def write_elsewhere(model):
    place = {place!r}
    os.makedirs(place + "/new/deep", exist_ok=True)
    os.makedirs(place + "/kept", exist_ok=True)
    open(place + "/new/deep/one.txt", "w").write("one")
    assert open(place + "/new/deep/one.txt").read() == "one"
    pathlib.Path(place, "two.txt").write_text("two")
    with open(place + "/kept/log.txt", "a") as log:
        log.write("run")
    assert open(place + "/kept/log.txt").read() == "first run"
    numpy.save(place + "/array.npy", numpy.zeros(3))
    numpy.zeros(3).tofile(place + "/raw.bin")
    torch.save(model.state_dict(), place + "/model.pt")
    assert torch.load(place + "/model.pt").keys() == model.state_dict().keys()
    assert os.path.getsize(place + "/model.pt") > 100
    assert torch.load(place + "/model.pt", mmap=True).keys() == model.state_dict().keys()
    os.rename(place + "/two.txt", place + "/three.txt")
    assert not os.path.exists(place + "/two.txt")
    os.remove(place + "/kept/old.txt")
    assert not os.path.exists(place + "/kept/old.txt")
    assert sorted(os.listdir(place + "/kept")) == ["log.txt", "more"]
    assert open(place + "/kept/more/data.txt").read() == "data"
    shutil.rmtree(place + "/gone")
    assert not os.path.isdir(place + "/gone")
    walked = [os.path.join(here, name) for here, _, names in os.walk(place) for name in names]
    found = sorted(os.path.relpath(path, place) for path in walked)
    assert found == ["array.npy", "kept/log.txt", "kept/more/data.txt", "model.pt", "new/deep/one.txt", "raw.bin",
        "three.txt"], found
    assert [str(path) for path in pathlib.Path(place).glob("*.txt")] == [place + "/three.txt"]
    assert os.path.realpath(place + "/kept/more") == place + "/kept/more"
    assert next(e for e in os.scandir(place) if e.name == "kept").path == place + "/kept"
    connection = sqlite3.connect(place + "/kept/log.db")
    connection.execute("create table seen (epoch)")
    connection.close()
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "draft").write_text("")
"""


def writes_elsewhere(pair: Path, place: Path, extra: str = "") -> None:
    """Let both scripts write below ``place``, the conversion on rank 0."""
    for path in ("kept/log.txt", "kept/old.txt", "kept/more/data.txt", "gone/a/b.txt"):
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text({"kept/log.txt": "first ", "kept/more/data.txt": "data"}.get(path, ""))
    text = WRITES.format(place=str(place)) + extra
    for name in ("before.py", "after.py"):
        edit(pair / name, "\ndef evaluate(", f"\n{text}\ndef evaluate(")
        guard = "if dist.get_rank() == 0:\n        " if name == "after.py" else ""
        target = "model.module" if name == "after.py" else "model"
        edit(
            pair / name,
            "    best, history = 0.0, []",
            f"    {guard}write_elsewhere({target})\n    best, history = 0.0, []",
        )


def test_what_is_written_elsewhere_is_found_again_and_the_users_files_stay(
    pair: Path, tmp_path_factory: pytest.TempPathFactory, zygote: Zygote | None
) -> None:
    place = tmp_path_factory.mktemp("elsewhere")
    writes_elsewhere(pair, place)
    before = files_below(place)
    verdict = verify(pair / "before.py", pair / "after.py", [2], workdir=pair, timeout=100, zygote=zygote)
    assert verdict.equal, verdict.findings
    assert files_below(place) == before
    assert verdict.worlds[0].details["writers"][f"{place}/model.pt"] == [0]


def test_files_elsewhere_are_compared(
    pair: Path, tmp_path_factory: pytest.TempPathFactory, zygote: Zygote | None
) -> None:
    place = tmp_path_factory.mktemp("elsewhere")
    for name, text in (("before.py", "same"), ("after.py", "other")):
        line = f'    open({str(place / "result.txt")!r}, "w").write({text!r})\n    best, history = 0.0, []'
        edit(pair / name, "    best, history = 0.0, []", line)
    verdict = verify(pair / "before.py", pair / "after.py", [2], workdir=pair, timeout=100, zygote=zygote)
    kinds = {finding.kind for finding in verdict.findings}
    assert {"several-writers", "file-content"} <= kinds, verdict.findings
    assert not files_below(place)


def test_absolute_paths_into_the_working_folder_lead_to_its_copy(pair: Path, zygote: Zygote | None) -> None:
    (pair / "settings.txt").write_text("3")
    for name in ("before.py", "after.py"):
        edit(pair / name, 'open("history.json", "w")', f'open({str(pair / "history.json")!r}, "w")')
        check = f"    assert open({str(pair / 'settings.txt')!r}).read() == '3'\n    best, history = 0.0, []"
        edit(pair / name, "    best, history = 0.0, []", check)
    verdict = verify(pair / "before.py", pair / "after.py", [2], workdir=pair, timeout=100, zygote=zygote)
    assert verdict.equal, verdict.findings
    assert not (pair / "history.json").exists()
    assert verdict.worlds[0].details["writers"]["history.json"] == [0]


@pytest.mark.skipif(sys.platform != "linux", reason="the system cannot hold other programs back")
def test_other_programs_are_held_back(
    pair: Path, tmp_path_factory: pytest.TempPathFactory, zygote: Zygote | None
) -> None:
    probe = "from autodist.verify.confinement import confine; import sys; sys.exit(not confine(['/tmp']))"
    if subprocess.run([sys.executable, "-c", probe], cwd=ROOT).returncode:
        pytest.skip("this system has no Landlock")
    place = tmp_path_factory.mktemp("elsewhere")
    for name in ("before.py", "after.py"):
        line = f'    subprocess.run("touch {place}/touched", shell=True, check=True)\n    best, history = 0.0, []'
        edit(pair / name, "    best, history = 0.0, []", line)
        edit(pair / name, "import argparse\n", "import argparse\nimport subprocess\n")
    verdict = verify(pair / "before.py", pair / "after.py", [2], workdir=pair, timeout=100, zygote=zygote)
    assert verdict.outcome is Outcome.NOT_COMPARABLE
    assert any(note.kind == "held-back" for note in verdict.notes)
    assert not (place / "touched").exists()


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="there is no folder in memory")
def test_scratch_copies_and_working_folders_may_lie_among_the_devices(
    pair: Path, monkeypatch: pytest.MonkeyPatch, zygote: Zygote | None
) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        home = Path(folder, "home")
        shutil.copytree(pair, home)
        for name in ("before.py", "after.py"):
            edit(home / name, 'open("history.json", "w")', f'open({str(home / "history.json")!r}, "w")')
        verdict = verify(home / "before.py", home / "after.py", [2], workdir=home, timeout=100, zygote=zygote)
        assert verdict.equal, (verdict.worlds[0].reason, verdict.findings)
        assert not (home / "history.json").exists()
        assert verdict.worlds[0].details["writers"]["history.json"] == [0]
