"""The command: what it says where much is known and where little is, its files, and bad input."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from conftest import Autodist

from autodist.plan.devices import known_devices
from autodist.plan.measured import Measured, Size, read, save

MIB = 2**20
SIZES = tuple(
    Size(batch, batch / 640 + 0.01, ((100 * MIB, 0), (0, batch * 4 * MIB)), batch * 3 * MIB)
    for batch in (8, 16, 32, 64)
)
KNOWN = Measured(
    "NVIDIA H100 80GB HBM3", 26_214_400, 100 * MIB, 100 * MIB, 200 * MIB, rate=5000.0, workers=4, cores=64, sizes=SIZES
)
OWN = '["MINE"]\nmemory_gib = 24\nlinks = 1\nlink = 12.0\nper_node = 2\nnetwork = 10\nlow_latency = 30\n'


@pytest.fixture
def measurements(tmp_path: Path) -> Path:
    """What a run on the device has found."""
    save(KNOWN, tmp_path / "known.json")
    return tmp_path / "known.json"


def test_from_the_source_alone(autodist: Autodist, script: Path) -> None:
    result = autodist("plan", script, "--device", "H100 80GB", "--gpus", "1,2,16")
    assert result.exit_code == 0
    assert "5 parameters in 0.0 KiB" in result.stdout
    assert "at least: activations are not known" in result.stdout
    assert "how long a step takes on this device is not known" in result.stdout
    assert "take one GPU: what is known of its memory fits" in result.stdout
    assert re.search(r"not known: activations: .*--measure", result.stdout)
    assert re.search(r"not known: speed: .*--step-seconds", result.stdout)


def test_measured_on_the_device(autodist: Autodist, script: Path, measurements: Path, tmp_path: Path) -> None:
    arguments = ("--measurements", measurements, "--gpus", "1,2,4,8,16,3", "--device", "h100")
    page = tmp_path / "out" / "plan.html"
    result = autodist("plan", script, *arguments, "--report", page)
    assert result.exit_code == 0
    rows = {int(line.split()[0]): line for line in result.stdout.partition("speed,")[2].splitlines()[2:8]}
    assert "a batch of 64 does not divide by 3" in rows[3]
    faster = [float(rows[ranks].split()[3]) for ranks in (1, 2, 4, 8, 16)]
    assert faster[0] == 1 and faster == sorted(faster)
    assert "take 2 GPUs with ddp: 1.7 times as fast as one" in result.stdout
    assert "not known: speed" not in result.stdout
    svg = re.search(r"<svg.*</svg>", page.read_text(encoding="utf-8"))
    assert svg is not None
    lines = ElementTree.fromstring(svg[0]).findall("polyline")
    assert len(lines) == 6  # ideal, a ring alone, this plan, and their legend
    assert "http" not in page.read_text(encoding="utf-8")


def test_measured_on_another_device(autodist: Autodist, script: Path, measurements: Path) -> None:
    arguments = ("plan", script, "--measurements", measurements, "--device", "T4")
    result = autodist(*arguments)
    assert "was timed on NVIDIA H100 80GB HBM3, not on T4 16GB" in result.stdout
    assert "times as fast" not in result.stdout
    assert "they pay (75%) where a rank computes" in result.stdout
    timed = autodist(*arguments, "--step-seconds", "0.8,0.42,0.23,0.13")
    assert "times as fast" in timed.stdout


def test_for_programs(autodist: Autodist, script: Path, measurements: Path) -> None:
    arguments = ("plan", script, "--measurements", measurements, "--device", "H100", "--output-format", "json")
    found = json.loads(autodist(*arguments, "--gpus", "2,16").stdout)
    assert [row["ranks"] for row in found["rows"]] == [2, 16]
    assert {option["strategy"] for option in found["rows"][1]["options"]} == {"ddp", "zero", "fsdp", "hsdp"}
    assert found["rows"][1]["best"] == "ddp"
    per_rank = json.loads(autodist(*arguments, "--gpus", "2,3", "--batch-size", "per-rank").stdout)
    assert [row["problem"] for row in per_rank["rows"]] == ["", ""]
    assert per_rank["rows"][0]["speedup"][1] > found["rows"][0]["speedup"][1]  # a larger batch hides more


def test_a_batch_made_by_hand(autodist: Autodist, script: Path, tmp_path: Path) -> None:
    by_hand = Measured(**{**vars(KNOWN), "rate": 0.0, "sizes": (Size(0, 0.1, ((0, 256 * MIB),)),)})
    save(by_hand, tmp_path / "by_hand.json")
    arguments = ("plan", script, "--measurements", tmp_path / "by_hand.json", "--device", "H100", "--gpus", "1,2")
    without = autodist(*arguments)
    assert "not known: the samples of a step" in without.stdout
    assert "not known: activations of smaller batches" in without.stdout
    assert "times as fast" not in without.stdout
    told = autodist(*arguments, "--batch", "64")
    assert "2.00 (" not in told.stdout and "not known: compute at smaller batches" in told.stdout


def test_a_loader_that_is_too_slow(autodist: Autodist, script: Path, tmp_path: Path) -> None:
    slow = Measured(**{**vars(KNOWN), "rate": 400.0, "cores": 8})
    save(slow, tmp_path / "slow.json")
    result = autodist("plan", script, "--measurements", tmp_path / "slow.json", "--device", "H100", "--gpus", "1,2,4")
    assert result.stdout.count("  input ") == 3
    assert re.search(r"waits \S+ s for samples|waits \S+ ms for samples", result.stdout)


@pytest.mark.parametrize(
    ("factor", "advice"),
    [
        (300, "take 2 GPUs with fsdp"),
        (500, "take 4 GPUs with fsdp"),
        (20000, "take: nothing of this. The training does not fit"),
    ],
)
def test_what_does_not_fit_one_device(
    factor: int, advice: str, autodist: Autodist, script: Path, tmp_path: Path
) -> None:
    large = Measured("", KNOWN.count, factor * 100 * MIB, factor * 100 * MIB, factor * 200 * MIB)
    save(large, tmp_path / "large.json")
    result = autodist("plan", script, "--measurements", tmp_path / "large.json", "--device", "H200", "--gpus", "1,2,4")
    assert advice in result.stdout.replace(" with activation checkpointing", "")


def test_own_device(autodist: Autodist, script: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(OWN)
    result = autodist("plan", script, "--device", "mine.toml", "--batch", "8", "--step-seconds", "0.1")
    assert result.exit_code == 0
    assert "on MINE: 24 GiB each, 2 in a node" in result.stdout
    assert "compute at smaller batches" in result.stdout


def test_measured_here_and_kept(autodist: Autodist, script: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    before = sorted(path.name for path in tmp_path.iterdir())
    kept = tmp_path / "kept.json"
    result = autodist("plan", script, "--device", "L4", "--measure", "--save", kept)
    assert result.exit_code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*before, "kept.json"])
    found = read(kept)
    assert (found.count, found.batch, found.device) == (5, 8, "cpu")
    assert [size.samples for size in found.sizes] == [1, 2, 4, 8]
    again = autodist("plan", script, "--device", "L4", "--measurements", kept)
    assert again.stdout == result.stdout


def test_torch_is_not_imported() -> None:
    names = "autodist.plan.command, autodist.plan.measure, autodist.plan.reading"
    check = f"import sys, {names}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


def test_devices_are_alike_in_no_name() -> None:
    reported = [each.reported for each in known_devices()]
    assert len(set(reported)) == len(reported)
    assert all(each.source and each.between <= each.within for each in known_devices())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--device", "X9"], "--device X9 is not known: V100 16GB, .*T4 16GB; or a file with its numbers"),
        (["--device", "A100"], "may be one of several: A100 40GB, A100 80GB"),
        (["--device", ""], "is not known"),
        (["--device", "no.toml"], "no.toml: the device cannot be read: No such file"),
        (["--device", "empty.toml"], "describes 0 devices"),
        (["--device", "lacking.toml"], "lacks links"),
        (["--device", "wrong.toml"], "link = 'a': a number above 0 is wanted"),
        (["--device", "more.toml"], "has price, which means nothing"),
        (["--device", "L4", "--measurements", "no.json"], "the measurements cannot be read: No such file"),
        (["--device", "L4", "--measurements", "train.py"], "holds no measurements"),
        (["--device", "L4", "--measurements", "list.json"], "holds no measurements"),
        (["--device", "L4", "--measurements", "short.json"], "holds no measurements"),
        (["--device", "L4", "--step-seconds", "0.5"], "add --batch"),
        (["--device", "L4", "--step-seconds", "0.5,x"], "seconds are wanted"),
        (["--device", "L4", "--step-seconds", "0"], "seconds are wanted"),
        (["--device", "L4", "--step-seconds", "1,1", "--batch", "1"], "a batch of 1 cannot be halved 1 times"),
        (["--device", "L4", "--batch", "3", "--measurements", "known.json"], "measured with 64 samples"),
        (["--device", "L4", "--measure", "--measurements", "known.json"], "exclude each other"),
        (["--device", "L4", "--save", "kept.json"], "--save needs --measure"),
        (["--device", "L4", "--", "--epochs", "1"], "arguments after -- need --measure"),
        (["--device", "L4", "--gpus", "0"], "numbers of processes are wanted"),
        (["--device", "L4", "--report", "."], "is a folder"),
        (["--device", "L4", "--measure", "--workdir", "nowhere"], "nowhere: no such folder"),
        ([], "Missing option '--device'"),
    ],
)
def test_bad_input(arguments: list[str], said: str, autodist: Autodist, script: Path, measurements: Path) -> None:
    texts = {
        "empty.toml": "",
        "lacking.toml": '["X"]\nmemory_gib = 1\n',
        "wrong.toml": OWN.replace("12.0", '"a"'),
        "more.toml": OWN + "price = 3\n",
        "list.json": "[]",
        "short.json": '{"sizes": [{"samples": 3}]}',
    }
    for name, text in texts.items():
        (script.parent / name).write_text(text)
    result = autodist("plan", script.name, *arguments)
    assert result.exit_code == 2
    assert re.search(said, result.stderr.replace("\n", " "))
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = (\n", "does not parse"),
        ("print(1)\n", "no model is seen to be trained; --measure"),
        ("import torch\nimport models\nmodel = models.make()\n", "--measure"),
    ],
)
def test_scripts_that_cannot_be_read(text: str, said: str, autodist: Autodist, script: Path) -> None:
    script.write_text(text)
    result = autodist("plan", script, "--device", "L4")
    assert result.exit_code == 2
    assert said in result.stderr and len(result.stderr.splitlines()) == 1
