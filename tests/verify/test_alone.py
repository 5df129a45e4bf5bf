"""Ranks that decide by what each of them has for itself: its clock, its draws, the noise of its own evaluation."""

from __future__ import annotations

from pathlib import Path

import pytest

from autodist.verify import verify
from autodist.verify.alone import compares_clock
from autodist.verify.launch import Zygote

BEFORE = """\
import random
import time
from datetime import datetime

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
random.seed(0)
np.random.seed(0)


class Samples(Dataset):
    def __init__(self):
        self.x, self.y = torch.randn(64, 4), torch.randn(64, 1)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index]{augmented}, self.y[index]


def seed_worker(worker):
    {seeded}


train = Samples()
loader = DataLoader(train, batch_size=8, shuffle=True, {workers})
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
start = time.time()
begun = datetime.now()
for epoch in range(3):
    for x, y in loader:
        {step}
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    {epoch}
"""
EDITS = (
    ("import torch\n", "import torch\nimport torch.distributed as dist\n"),
    ("torch.manual_seed(0)\n", 'dist.init_process_group("gloo")\ntorch.manual_seed(0)\n'),
    (
        "batch_size=8, shuffle=True",
        "batch_size=8 // dist.get_world_size(), sampler=torch.utils.data.DistributedSampler(train)",
    ),
    ("optimizer = ", "model = nn.parallel.DistributedDataParallel(model)\noptimizer = "),
    ("start = ", "torch.manual_seed(1 + dist.get_rank())\nrandom.seed(1 + dist.get_rank())\nstart = "),
    ("    for x, y", "    loader.sampler.set_epoch(epoch)\n    for x, y"),
)
LIMIT = "if time.time() - start > 3600:\n        break"
AGREED = (
    "late = torch.tensor(float(time.time() - start > 3600))\n    dist.broadcast(late, 0)\n    if late:\n        break"
)
DATED = LIMIT.replace("time.time() - start", "(datetime.now() - begun).total_seconds()")
DICE = "if torch.rand(1).item() < 0.1:\n            break"
SENT = "dice = torch.rand(1)\n        dist.broadcast(dice, 0)\n        if dice.item() < 0.1:\n            break"


def scripts(folder: Path, before: dict[str, str], after: dict[str, str]) -> tuple[Path, Path]:
    """A pair that differs in what these fields hold, and in being distributed."""
    none = {"step": "pass", "epoch": "pass", "seeded": "pass", "augmented": "", "workers": ""}
    text = BEFORE
    for old, new in EDITS:
        assert old in text
        text = text.replace(old, new)
    (folder / "before.py").write_text(BEFORE.format(**none | before))
    (folder / "after.py").write_text(text.format(**none | before | after))
    return folder / "before.py", folder / "after.py"


@pytest.mark.parametrize(
    ("field", "before", "after", "cause"),
    [
        ("epoch", LIMIT, LIMIT, "decide-together"),
        ("epoch", LIMIT, AGREED, None),
        ("epoch", DATED, DATED, "decide-together"),
        ("epoch", DATED, AGREED.replace("time.time() - start", "(datetime.now() - begun).total_seconds()"), None),
        ("step", DICE, DICE, "decide-together"),
        ("step", DICE, SENT, None),
        ("step", "if random.random() < 0.1:\n            continue", None, "decide-together"),
        ("step", "x = x * random.random()", None, None),
    ],
)
def test_each_has_its_own(
    tmp_path: Path, zygote: Zygote | None, field: str, before: str, after: str | None, cause: str | None
) -> None:
    pair = scripts(tmp_path, {field: before}, {field: after or before})
    (world,) = verify(*pair, [2], workdir=tmp_path, timeout=100, zygote=zygote).worlds
    assert world.equal == (cause is None), world.findings
    assert cause is None or world.cause is not None and world.cause.name == cause
    assert after != SENT or not world.notes, "what rank 0 sends is not drawn by each rank"


AUGMENTED = " + np.float32(np.random.rand())"


@pytest.mark.parametrize(
    ("seeded", "alike"),
    [
        ("np.random.seed(worker)", True),
        ("np.random.seed(torch.utils.data.get_worker_info().id)", True),
        ("np.random.seed(worker + 2 * dist.get_rank())", False),
        ("np.random.seed(torch.initial_seed() % 2**32)", False),
        ("torch.utils.data.get_worker_info().dataset.first = np.random.seed(worker)", False),
    ],
)
def test_workers_that_a_script_seeds(tmp_path: Path, zygote: Zygote | None, seeded: str, alike: bool) -> None:
    """The last one is not tried, since it asks for the data set of a worker."""
    own = "np.random.seed(worker)" if "dist" in seeded else seeded
    workers = {"workers": "num_workers=2, worker_init_fn=seed_worker", "augmented": AUGMENTED}
    pair = scripts(tmp_path, {**workers, "seeded": own}, {"seeded": seeded})
    (world,) = verify(*pair, [2], workdir=tmp_path, timeout=100, zygote=zygote).worlds
    assert world.equal == (not alike), world.findings
    assert not alike or world.cause is not None and world.cause.name == "noise-per-rank"


@pytest.mark.parametrize(
    ("text", "compares"),
    [
        ("import time\nprint(time.time())", False),
        ("start = time.time()\nprint(time.time() - start)", False),
        ("begun = datetime.now()\nif datetime.now() - begun > timedelta(hours=1):\n    pass", True),
        ("start = time.time()\nwhile time.time() - start < 60:\n    pass", True),
        ("end = perf_counter() + 60\nif step and perf_counter() > end:\n    pass", True),
        (
            "class Timer:\n    def spent(self):\n        return time.time() - self.start\n\nstop = timer.spent() > 60",
            True,
        ),
        ("time = 3\nif time > 2:\n    pass", False),
    ],
)
def test_what_goes_by_time(text: str, compares: bool) -> None:
    assert compares_clock(text) == compares
