"""Trainings that are killed in a step and started again, on as many ranks or on others: as if nothing had happened."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import forked
from resuming import ACCUMULATING, METERS, NOISY, PLAIN, SHARED, TRAINER, preemptible

from autodist.config import Strategy

KILLED = """\
import os, runpy, signal
from torch.optim.optimizer import register_optimizer_step_post_hook

steps = 0


def count(*_):
    global steps
    steps += 1
    if os.environ["STEP"] == str(steps) and os.environ["RANK"] == os.environ["LAST"]:
        os.kill(os.getpid(), getattr(signal, os.environ["SIGNAL"]))


register_optimizer_step_post_hook(count)
runpy.run_path("train.py", run_name="__main__")
"""
DROPOUT = PLAIN.replace("nn.ReLU(), ", "nn.ReLU(), nn.Dropout(0.2), ")
LISTED = PLAIN.replace("        total, correct = 0.0, 0\n", "        losses, correct = [], 0\n").replace(
    "total += loss.item()", "losses.append(loss.item())"
)
LISTED = LISTED.replace("{total / len(train_loader):.4f}", "{sum(losses) / len(losses):.4f}")
HISTORY = PLAIN.replace(
    "    start_epoch, best = 0, 0.0", '    history = {"loss": [], "acc": []}\n    start_epoch, best = 0, 0.0'
)
HISTORY = HISTORY.replace(
    "        best = max(best, acc)\n",
    '        best = max(best, acc)\n        history["acc"].append(acc)\n        print(history["acc"])\n',
)
STRATEGIES = {"fsdp": Strategy.FSDP, "zero": Strategy.ZERO}
RUNS = {
    "one rank more": (PLAIN, 2, 3, 11, "SIGTERM"),
    "one rank left": (PLAIN, 2, 1, 16, "SIGUSR1"),
    "dropout": (DROPOUT, 2, 2, 13, "SIGTERM"),
    "meters": (METERS, 2, 3, 9, "SIGTERM"),
    "an object": (TRAINER, 2, 1, 17, "SIGUSR1"),
    "accumulated, a schedule not saved": (ACCUMULATING, 2, 1, 5, "SIGTERM"),
    "noise of all generators": (NOISY, 2, 2, 9, "SIGTERM"),
    "a function that evaluates too": (SHARED, 2, 3, 9, "SIGUSR1"),
    "a list": (LISTED, 2, 3, 12, "SIGTERM"),
    "a history": (HISTORY, 2, 1, 17, "SIGTERM"),
    "fsdp": (PLAIN, 2, 3, 13, "SIGTERM"),
    "zero": (PLAIN, 2, 1, 12, "SIGTERM"),
}


def run(folder: Path, nproc: int, step: int = 0, name: str = "SIGTERM") -> tuple[list[int], str]:
    env = {**os.environ, "OMP_NUM_THREADS": "1", "STEP": str(step), "LAST": str(nproc - 1), "SIGNAL": name}
    codes, out, errors = forked(folder, "killed.py", nproc, env)
    assert set(codes) <= {0, 75, -9}, errors  # -9: the others are not waited for
    return codes, out


def close(first: Any, second: Any) -> bool:
    """Whether what was saved is the same, up to rounding."""
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(close(first[key], second[key]) for key in first)
    if isinstance(first, (list, tuple)):
        return len(first) == len(second) and all(map(close, first, second))
    if torch.is_tensor(first):
        return torch.allclose(first.double(), second.double(), atol=1e-5)
    return bool(first == pytest.approx(second))


@pytest.mark.parametrize("name", RUNS)
def test_goes_on_where_it_was(name: str, tmp_path: Path) -> None:
    text, before, after, step, by = RUNS[name]
    made = preemptible(text, tmp_path / "whole", STRATEGIES.get(name, Strategy.DDP))
    for folder in (tmp_path / "whole", tmp_path / "cut"):
        folder.mkdir(exist_ok=True)
        (folder / "train.py").write_text(made)
        (folder / "killed.py").write_text(KILLED)
    codes, whole = run(tmp_path / "whole", before)
    assert codes == [0] * before
    codes, first = run(tmp_path / "cut", before, step, by)
    assert 75 in codes and 0 not in codes
    codes, second = run(tmp_path / "cut", after)
    assert codes == [0] * after
    left = len(whole.splitlines()) - len(first.splitlines())
    assert left > 0 and first.splitlines() + second.splitlines()[-left:] == whole.splitlines()
    files = {
        str(path.relative_to(tmp_path / "whole"))
        for path in (tmp_path / "whole").rglob("*.p*t*")
        if path.suffix != ".py"
    }
    assert files and files == {
        str(path.relative_to(tmp_path / "cut")) for path in (tmp_path / "cut").rglob("*.p*t*") if path.suffix != ".py"
    }
    for path in files:
        loaded = [torch.load(tmp_path / each / path, weights_only=False) for each in ("whole", "cut")]
        assert close(*loaded), path


def test_reads_as_an_expert_writes_it(tmp_path: Path) -> None:
    made = preemptible(METERS, tmp_path / "meters")
    for line in (
        "    preemption.begin()",
        "    for epoch in range(preemption.start(args.start_epoch), args.epochs):",
        "        except Preempted:",
        "    preemption.enter(loader)",
        "    for i, (x, y) in enumerate(loader, start=preemption.batches):",
        "        preemption.save(state, filename)",
    ):
        assert f"\n{line}" in made
    assert "}, False)" in made  # what is best is not known inside an epoch
    assert "preemption.begin(scaler=scaler, scheduler=scheduler)" in preemptible(ACCUMULATING, tmp_path / "counted")
    assert "if (i + 1) % accum == 0 and preemption.agreed():" in preemptible(ACCUMULATING, tmp_path / "counted")
    assert not re.search(r"import autodist|from autodist", made)


def test_torchrun_hands_the_signal_on(tmp_path: Path) -> None:
    """To the workers of loaders, too, which belong to the process group of their rank."""
    text = PLAIN.replace("shuffle=True)", "shuffle=True, num_workers=1, persistent_workers=True)")
    slow = "            optimizer.step()\n            time.sleep(0.2)\n"
    text = text.replace("import os\n", "import os\nimport time\n").replace("            optimizer.step()\n", slow)
    (tmp_path / "train.py").write_text(preemptible(text, tmp_path))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "train.py"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    running = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 40
        while not (tmp_path / "last.pt").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.5)
        running.terminate()
        errors = running.communicate(timeout=20)[1]
    finally:
        running.kill()
    place = torch.load(tmp_path / "last.pt", weights_only=False).get("interrupted", {})
    assert place.get("samples", 0) % 12 == 0 and place.get("epoch", 0) > 0, errors


COUNTED = {
    "total += loss.item()": ("total", "mean"),
    "correct += (out.argmax(1) == y).sum().item()": ("correct", "sum"),
    "count = count + len(y)": ("count", "sum"),
    "steps += 1": ("steps", "same"),
    "if loss.item() > 1:\n                high += 1": ("high", "own"),
    "for label in y.tolist():\n                by_label[label] = by_label.get(label, 0) + 1": ("by_label", "own"),
    "for label in y.tolist():\n                matrix[label] += 1": ("matrix", "own"),
    "smooth = 0.9 * smooth + 0.1 * loss.item()": ("smooth", "mean"),
    "seen.append(len(seen))": ("seen", "same"),
    "means.append(loss.item())": ("means", "mean"),  # of each step, as nobody is shown them
    "worst = max(worst, loss.item())": ("worst", "own"),
}


@pytest.mark.parametrize("line", COUNTED)
def test_how_variables_lie_over_the_ranks(line: str, tmp_path: Path) -> None:
    name, over_ranks = COUNTED[line]
    if name in ("total", "correct"):
        text = PLAIN
    else:
        empty = {"by_label": "{}", "matrix": "torch.zeros(3)", "seen": "[]", "means": "[]"}.get(name, "0")
        text = PLAIN.replace(
            "        total, correct = 0.0, 0\n", f"        total, correct = 0.0, 0\n        {name} = {empty}\n"
        )
        text = text.replace(
            "            total += loss.item()\n", f"            total += loss.item()\n            {line}\n"
        )
    assert f'{name} = preemption.value("{name}", {name}, "{over_ranks}")' in preemptible(text, tmp_path)


def test_what_is_saved_at_the_end_is_none_inside(tmp_path: Path) -> None:
    text = PLAIN.replace('"best": best,', '"best": best,\n            "acc": acc,')
    assert '"acc": None,' in preemptible(text, tmp_path / "acc")
