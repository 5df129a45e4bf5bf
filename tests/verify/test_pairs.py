"""Right conversions are equal, wrong ones are not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from autodist.verify import Outcome, verify
from autodist.verify.launch import Zygote
from benchmarks import verify_faults as faults
from verify.conftest import PAIRS, ROOT, edit

NAMES = sorted(path.name for path in PAIRS.iterdir())
QUICK = (
    "no set_epoch",
    "unseeded split",
    "second model not wrapped",
    "batch normalisation of one model per rank",
    "validation padded",
    "saved on all ranks",
    "keys with module.",
    "metric reduced on rank 0 alone",
    "nobody waits for the download",
    "hand-made batches drawn apart",
)


@pytest.mark.parametrize(
    ("pair", "nproc"),
    [
        pytest.param(name, nproc, marks=[] if nproc == 2 or name in ("gan", "handmade") else [pytest.mark.slow])
        for name in NAMES
        for nproc in (2, 4)
    ],
    indirect=["pair"],
)
def test_right_conversions_are_equal(pair: Path, nproc: int, zygote: Zygote | None) -> None:
    verdict = verify(pair / "before.py", pair / "after.py", [nproc], workdir=pair, timeout=100, zygote=zygote)
    assert verdict.outcome is Outcome.EQUAL, verdict.findings
    assert verdict.exit_code == 0
    (world,) = verdict.worlds
    assert world.steps >= 10
    assert world.largest("loss") < 1e-11
    assert world.largest("gradient") < 1e-9


@pytest.mark.parametrize("pair", ["classifier", "stream"], indirect=True)
def test_right_conversions_are_equal_in_single_precision(pair: Path, zygote: Zygote | None) -> None:
    verdict = verify(
        pair / "before.py", pair / "after.py", [2], dtype="float32", workdir=pair, timeout=100, zygote=zygote
    )
    assert verdict.equal, verdict.findings


@pytest.mark.parametrize("pair", ["accumulate"], indirect=True)
def test_a_conversion_is_equal_on_one_rank(pair: Path, zygote: Zygote | None) -> None:
    assert verify(pair / "before.py", pair / "after.py", [1], workdir=pair, timeout=100, zygote=zygote).equal


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(fault, id=fault.name, marks=[] if fault.name in QUICK else [pytest.mark.slow])
        for fault in faults.read_faults()
    ],
)
def test_wrong_conversions_are_detected(fault: faults.Fault, zygote: Zygote | None) -> None:
    verdict = faults.check(fault, zygote)
    assert faults.detected(verdict), verdict
    assert verdict.exit_code == 1
    if fault.name in QUICK:
        assert verdict.cause is not None and verdict.cause.name == fault.cause


def test_there_are_enough_faults() -> None:
    table = faults.read_faults()
    assert len(table) >= 40
    assert len({fault.name for fault in table}) == len(table)
    assert set(QUICK) <= {fault.name for fault in table}


@pytest.mark.parametrize("pair", ["handmade"], indirect=True)
def test_noise_may_be_seeded_per_rank(pair: Path, zygote: Zygote | None) -> None:
    for name in ("before.py", "after.py"):
        edit(pair / name, "torch.manual_seed(7)", "import numpy\nnumpy.random.seed(1)\ntorch.manual_seed(7)")
        edit(
            pair / name,
            "torch.randint(len(data) - length, (batch_size,))",
            "torch.tensor(numpy.random.randint(len(data) - length, size=batch_size))",
        )
    edit(
        pair / "after.py",
        "for step in range(12):",
        "torch.manual_seed(torch.initial_seed() + dist.get_rank())\nfor step in range(12):",
    )
    verdict = verify(pair / "before.py", pair / "after.py", [2], workdir=pair, timeout=100, zygote=zygote)
    assert verdict.equal, verdict.findings


@pytest.mark.parametrize("pair", ["classifier"], indirect=True)
def test_a_random_weight_of_the_size_of_the_batch_is_no_batch(pair: Path, zygote: Zygote | None) -> None:
    """Eight rows look like a part of the batch of a rank; the original draws eight as well."""
    for name in ("before.py", "after.py"):
        edit(
            pair / name,
            "            loss.backward()",
            "            loss = loss + torch.randn(8).sum()\n            loss.backward()",
        )
    verdict = verify(pair / "before.py", pair / "after.py", [2], workdir=pair, timeout=100, zygote=zygote)
    assert verdict.equal, verdict.findings


@pytest.mark.parametrize("pair", ["classifier"], indirect=True)
def test_what_samplers_draw_does_not_change_what_is_drawn_later(pair: Path, zygote: Zygote | None) -> None:
    """A shuffling loader draws from the script's generator, a DistributedSampler does not; then the model is built."""
    for name in ("before.py", "after.py"):
        edit(
            pair / name,
            "    model = nn.Seq",
            "    for _ in train_loader:\n        break\n    waiting = iter(val_loader)\n    model = nn.Seq",
        )
    verdict = verify(pair / "before.py", pair / "after.py", [2], workdir=pair, timeout=100, zygote=zygote)
    assert verdict.equal, verdict.findings


@pytest.mark.parametrize("pair", ["classifier"], indirect=True)
def test_scripts_reach_for_what_lies_above_their_folder(pair: Path, zygote: Zygote | None) -> None:
    home = pair / "deep" / "work"
    home.mkdir(parents=True)
    (pair / "scale.txt").write_text("0.5")
    for name in ("before.py", "after.py"):
        path = (pair / name).rename(home / name)
        edit(path, "    generator = ", '    args.lr *= float(open("../../scale.txt").read())\n    generator = ')
        edit(path, 'open("history.json", "w")', 'open("../../scale.txt", "w")')
    verdict = verify(home / "before.py", home / "after.py", [2], workdir=home, timeout=100, zygote=zygote)
    assert verdict.equal, verdict.findings
    assert verdict.worlds[0].details["writers"]["../../scale.txt"] == [0], "what is written there is seen"
    assert (pair / "scale.txt").read_text() == "0.5", "and does not touch the user's files"


@pytest.mark.parametrize("pair", ["classifier"], indirect=True)
def test_the_shape_of_a_share_of_the_batch_is_a_note(pair: Path, zygote: Zygote | None) -> None:
    for name in ("before.py", "after.py"):
        edit(pair / name, "            loss.backward()", "            print(x.shape)\n            loss.backward()")
    guard = "            if dist.get_rank() == 0:\n                print(x.shape)"
    edit(pair / "after.py", "            print(x.shape)", guard)
    verdict = verify(pair / "before.py", pair / "after.py", [2], workdir=pair, timeout=100, zygote=zygote)
    assert verdict.equal, verdict.findings
    note = next(note for note in verdict.notes if note.kind == "printed-shape")
    assert "torch.Size([8, 12])" in note.message and "torch.Size([16, 12])" in note.message


def test_statistics_that_count_the_same_data_on_all_ranks(zygote: Zygote | None, tmp_path: Path) -> None:
    home = ROOT / "fixtures" / "gan_preview_in_training_mode"
    converted = Path(shutil.copy(home / "ddp" / "train.py", tmp_path / "unshared.py"))
    edit(converted, "share_rows(net_g, preview_noise)", "net_g(preview_noise)")
    verdict = verify(home / "before" / "train.py", converted, [2], workdir=home / "before", timeout=100, zygote=zygote)
    assert [finding.kind for finding in verdict.findings] == ["saved-statistics"]
    assert verdict.cause is not None and verdict.cause.rule == "AD602"


def test_what_a_script_does_before_it_starts_processes_one_of_them_does(tmp_path: Path) -> None:
    home = ROOT / "fixtures" / "ddp_spawn_folder"
    before = Path(shutil.copy(home / "before" / "train.py", tmp_path / "train.py"))
    edit(before, "import argparse\n", "import argparse\nimport time\n")
    edit(before, "os.makedirs(args.out)", "time.sleep(0.5)\n        os.makedirs(args.out)")
    verdict = verify(before, home / "ddp" / "train.py", [2], workdir=tmp_path, timeout=100)
    assert verdict.equal, verdict.findings


@pytest.mark.parametrize("pair", ["augmented"], indirect=True)
def test_a_number_for_the_batch_that_each_rank_draws_is_a_note(pair: Path, zygote: Zygote | None) -> None:
    """The weight of mixup, where nothing is seeded."""
    verdict = verify(pair / "before.py", pair / "after.py", [2], workdir=pair, timeout=100, zygote=zygote)
    assert verdict.equal, verdict.findings
    (note,) = [note for note in verdict.notes if note.kind == "drawn-apart"]
    assert "numpy.random.beta" in note.message
