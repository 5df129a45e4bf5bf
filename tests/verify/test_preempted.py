"""Runs that are sent SIGTERM in some step and go on: proven, and faults found."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted
from resuming import PLAIN, TRAINER, in_modules, preemptible

from autodist.config import Config
from autodist.convert import convert
from autodist.project import Project
from autodist.verify import verify
from autodist.verify.launch import Zygote
from autodist.verify.preempted import Again

FAULTS = {
    "samples again": ('loader.sampler.seed, loader.sampler.seen = self.place["seed"], self.place["samples"]', "pass"),
    "a sum lost": ('correct = preemption.value("correct", correct, "sum")', "pass"),
    "the epoch left out": ('return self.place.get("epoch", epoch)', "return epoch"),
}


def verdict(folder: Path, text: str, made: str, again: Again, zygote: Zygote | None) -> tuple[bool, str]:
    (folder / "before.py").write_text(text)
    (folder / "after.py").write_text(made)
    (folder / "train.py").unlink(missing_ok=True)
    done = verify(
        folder / "before.py", folder / "after.py", [2], device="cpu", workdir=folder, zygote=zygote, again=again
    )
    assert done.worlds[0].equal, done.worlds[0].reason
    return done.worlds[1].equal, done.worlds[1].reason


@pytest.mark.parametrize(("text", "again"), [(PLAIN, Again(3, 13)), (TRAINER, Again(2))], ids=["another", "as many"])
def test_is_proven(text: str, again: Again, tmp_path: Path, zygote: Zygote | None) -> None:
    equal, reason = verdict(tmp_path, text, preemptible(text, tmp_path), again, zygote)
    assert equal, reason
    assert f"gone on with {again.ranks} ranks: 32 optimizer steps" in reason and "sent SIGTERM in step" in reason


def test_modules_of_a_project(tmp_path: Path, zygote: Zygote | None) -> None:
    entry = in_modules(tmp_path)
    (tmp_path / "out").mkdir()
    for file in convert(Project.load(entry), Config(on_preempt=True)).files:
        (tmp_path / "out" / file.source.path.name).write_bytes(file.source.encode(file.after))
    assert "from utils import Preempted, preemption\n" in (tmp_path / "out" / "engine.py").read_text()
    assert "DistributedSampler" not in (tmp_path / "out" / "data.py").read_text()
    after = tmp_path / "out" / "train.py"
    done = verify(entry, after, [2], device="cpu", workdir=tmp_path, zygote=zygote, again=Again(3, 11))
    assert [each.equal for each in done.worlds] == [True, True], [each.reason for each in done.worlds]


@pytest.mark.parametrize("fault", FAULTS)
def test_sees_what_is_lost(fault: str, tmp_path: Path, zygote: Zygote | None) -> None:
    old, new = FAULTS[fault]
    made = preemptible(PLAIN, tmp_path)
    assert old in made
    equal, reason = verdict(tmp_path, PLAIN, made.replace(old, new), Again(2, 13), zygote)
    assert not equal, reason


def test_says_that_a_script_does_not_listen(tmp_path: Path, zygote: Zygote | None) -> None:
    equal, reason = verdict(tmp_path, PLAIN, converted(tmp_path, PLAIN)[0], Again(2, 3), zygote)
    assert not equal and "SIGTERM in step 3" in reason


def test_an_option_that_names_the_checkpoint(tmp_path: Path, zygote: Zygote | None) -> None:
    """It is given to the second start; without it, that one trains anew, and says so."""
    changes = {
        "    args = parser.parse_args()\n": '    parser.add_argument("--resume")\n    args = parser.parse_args()\n',
        'if os.path.exists("last.pt"):': "if args.resume:",
        'torch.load("last.pt")': "torch.load(args.resume)",
    }
    text = PLAIN
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    made = preemptible(text, tmp_path)
    equal, reason = verdict(tmp_path, text, made, Again(3, 13, ("--resume", "last.pt")), zygote)
    assert equal, reason
    equal, reason = verdict(tmp_path, text, made, Again(3, 13), zygote)
    assert not equal and "trains anew" in reason and "--preempt-args" in reason
