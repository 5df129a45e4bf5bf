"""``autodist bench``: every version runs in a copy, and bad input is said in a line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import Autodist

SCRIPT = """\
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

print("began", file=open("began.txt", "w"))
loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8, shuffle=True)
tests = DataLoader(TensorDataset(torch.randn(20, 4), torch.randn(20, 1)), batch_size=8)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(int(sys.argv[1])):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    with torch.no_grad():
        print(sum(nn.functional.mse_loss(model(x), y).item() for x, y in tests))
    torch.save(model.state_dict(), "model.pt")
"""


def test_versions_are_measured_in_copies(autodist: Autodist, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    monkeypatch.chdir(folder)
    report = tmp_path / "bench.md"
    options = ["--nproc", "2", "--strategy", "ddp", "--steps", "12", "--warmup", "2", "--repeats", "1"]
    result = autodist("bench", "train.py", *options, "--report", str(report), "--output-format", "json", "--", "4")
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)["rows"]
    assert [(row["version"], row["ranks"], len(row["runs"])) for row in rows] == [("as it is", 1, 1), ("ddp", 2, 1)]
    plain, ddp = (row["runs"][0] for row in rows)
    assert plain["communication"] is None and ddp["communication"] > 0
    assert plain["evaluation"] > 0 and ddp["evaluation"] > 0
    for run in (plain, ddp):  # eight samples in each step, whatever the number of ranks
        assert run["samples"] * run["seconds"] == pytest.approx(8)
        assert 0 <= run["data"] <= run["seconds"]
    assert [path.name for path in folder.iterdir()] == ["train.py"]
    assert "| ddp | 2 |" in report.read_text()


@pytest.mark.parametrize(
    ("text", "said"),
    [("print(", "train.py"), ("print(1)\n", "ends before"), ("raise ValueError('no data')\n", "ValueError: no data")],
)
def test_what_cannot_be_measured(
    text: str, said: str, autodist: Autodist, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(text)
    result = autodist("bench", "train.py", "--nproc", "1", "--strategy", "ddp", "--repeats", "1")
    assert result.exit_code == 2
    assert said in result.output and "Traceback" not in result.output


def test_a_script_outside_of_the_folder(autodist: Autodist, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "other").mkdir()
    result = autodist("bench", str(tmp_path / "train.py"), "--workdir", str(tmp_path / "other"))
    assert result.exit_code == 2 and "--workdir" in result.output
