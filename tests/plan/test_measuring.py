"""What a run tells: sizes, times, the samples of a step, and the loader, of scripts as people write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from autodist.errors import AutodistError
from autodist.plan.measure import measure
from autodist.plan.measured import joined
from autodist.plan.memory import need
from autodist.verify.launch import Zygote
from autodist.verify.progress import NoProgress

pytest.importorskip("torch")

HEAD = """\
import copy
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, TensorDataset

data = TensorDataset(torch.randn(512, 16), torch.randint(0, 4, (512,)))
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))


def learn(x, y):
    nn.functional.cross_entropy(model(x), y).backward()


"""
LOADER = "loader = DataLoader(data, 32, True)\n"
WHOLE = 4 * (16 * 64 + 64 + 64 * 4 + 4)
SIBLINGS = {
    "adam": (
        LOADER + "optimizer = torch.optim.Adam(model.parameters())\n"
        "for epoch in range(2):\n    for x, y in loader:\n"
        "        optimizer.zero_grad()\n        learn(x, y)\n        optimizer.step()\n",
        {"samples": 32, "passes": 1, "state": 2 * WHOLE},
    ),
    "accumulated": (
        LOADER + "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for epoch in range(4):\n    for i, (x, y) in enumerate(loader):\n        learn(x, y)\n"
        "        if i % 4 == 3:\n            optimizer.step()\n            optimizer.zero_grad()\n",
        {"samples": 128, "passes": 4, "state": 0},
    ),
    "batch sampler, dictionaries": (
        "loader = DataLoader(data, batch_sampler=BatchSampler(RandomSampler(data), 16, False),\n"
        "    collate_fn=lambda rows: dict(x=torch.stack([a for a, _ in rows]), y=torch.stack([b for _, b in rows])))\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)\n"
        "for batch in loader:\n    optimizer.zero_grad()\n    learn(batch['x'], batch['y'])\n    optimizer.step()\n",
        {"samples": 16, "state": WHOLE},
    ),
    "a stream": (
        "class Stream(IterableDataset):\n    def __iter__(self):\n"
        "        while True:\n            yield torch.randn(16), torch.tensor(1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for x, y in DataLoader(Stream(), batch_size=8):\n"
        "    optimizer.zero_grad()\n    learn(x, y)\n    optimizer.step()\n",
        {"samples": 8},
    ),
    "a generator and a critic": (
        LOADER + "critic = nn.Linear(16, 1)\nfirst = torch.optim.SGD(critic.parameters(), lr=0.1)\n"
        "second = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for epoch in range(2):\n    for x, y in loader:\n        first.zero_grad()\n        second.zero_grad()\n"
        "        critic(x).mean().backward()\n        first.step()\n        learn(x, y)\n        second.step()\n",
        {"samples": 32, "parameters": WHOLE + 4 * 17},
    ),
    "an average of the weights": (
        LOADER + "average = copy.deepcopy(model).requires_grad_(False)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for epoch in range(2):\n    for x, y in loader:\n        optimizer.zero_grad()\n        learn(x, y)\n"
        "        optimizer.step()\n        for a, b in zip(average.parameters(), model.parameters()):\n"
        "            a.mul_(0.9).add_(b.detach(), alpha=0.1)\n",
        {"samples": 32, "parameters": WHOLE, "lasting": WHOLE},
    ),
    "some of it frozen": (
        LOADER + "model[0].requires_grad_(False)\noptimizer = torch.optim.Adam(model.parameters())\n"
        "for epoch in range(2):\n    for x, y in loader:\n"
        "        optimizer.zero_grad()\n        learn(x, y)\n        optimizer.step()\n",
        {"samples": 32, "gradients": 4 * (64 * 4 + 4), "state": 8 * (64 * 4 + 4)},
    ),
    "an evaluation in between": (
        LOADER + "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nseen = DataLoader(data, 256)\n"
        "for epoch in range(8):\n    for i, (x, y) in enumerate(loader):\n        if i == 3:\n            break\n"
        "        optimizer.zero_grad()\n        learn(x, y)\n        optimizer.step()\n"
        "    with torch.no_grad():\n        sum(model(x).sum() for x, _ in seen)\n",
        {"samples": 32},
    ),
}


@pytest.mark.parametrize("name", SIBLINGS)
def test_what_is_found(name: str, tmp_path: Path, zygote: Zygote | None) -> None:
    body, wanted = SIBLINGS[name]
    (tmp_path / "train.py").write_text(HEAD + body)
    runs, gaps = measure(tmp_path / "train.py", [], NoProgress(), device="cpu", zygote=zygote, divisors=(1, 4))
    found = {"parameters": WHOLE, "gradients": runs[0]["parameters"], "lasting": 0, **wanted}
    assert {key: runs[0][key] for key in found} == found
    assert runs[0]["gradients"] <= runs[0]["curve"][0][0] < runs[0]["gradients"] + 512 * 8  # whole pieces are given out
    assert runs[1]["samples"] * 4 == runs[0]["samples"]
    assert runs[0]["rate"] > 0 and runs[0]["seconds"] > 0 and 0 < runs[0]["backward"] < 1
    assert not gaps
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


def test_a_batch_by_hand_cannot_be_divided(tmp_path: Path, zygote: Zygote | None) -> None:
    (tmp_path / "train.py").write_text(
        HEAD + "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nfor _ in range(40):\n"
        "    optimizer.zero_grad()\n    learn(torch.randn(8, 16), torch.zeros(8).long())\n    optimizer.step()\n"
    )
    runs, gaps = measure(tmp_path / "train.py", [], NoProgress(), device="cpu", zygote=zygote)
    assert len(runs) == 1 and runs[0]["samples"] == 0
    assert gaps == ["no DataLoader gives its batches, so they cannot be divided"]


def test_a_script_that_wants_its_batch(tmp_path: Path, zygote: Zygote | None) -> None:
    (tmp_path / "train.py").write_text(
        HEAD + LOADER + "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nfor _ in range(3):\n"
        "    for x, y in loader:\n        optimizer.zero_grad()\n        learn(x + torch.zeros(32, 16), y)\n"
        "        optimizer.step()\n"
    )
    runs, gaps = measure(tmp_path / "train.py", [], NoProgress(), device="cpu", zygote=zygote, divisors=(1, 2))
    assert len(runs) == 1
    assert gaps[0].startswith(
        "a batch divided by 2 was not measured: the script fails with these arguments: RuntimeError"
    )


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (
            "raise ValueError('no data at /data')\n",
            "the script fails with these arguments: ValueError: no data at /data",
        ),
        ("learn(*next(iter(DataLoader(data, 8))))\n", "fewer than 6 steps of an optimizer"),
    ],
)
def test_nothing_to_measure(body: str, why: str, tmp_path: Path, zygote: Zygote | None) -> None:
    (tmp_path / "train.py").write_text(HEAD + body)
    with pytest.raises(AutodistError, match=why):
        measure(tmp_path / "train.py", [], NoProgress(), device="cpu", zygote=zygote)


TRAINS = """\
class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 512

    def __getitem__(self, index):
        return torch.full((256,), index / 512), index % 4


def train(steps):
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 4))
    optimizer = torch.optim.Adam(model.parameters())
    for step, (x, y) in enumerate(DataLoader(Rows(), batch_size=16)):
        if step == steps:
            break
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()


if __name__ == "__main__":
    train(100)
"""


def test_memory_is_what_the_allocator_gives_out(tmp_path: Path, zygote: Zygote | None) -> None:
    """The profiler of torch counts in the allocator what the plan follows from operation to operation."""
    script = tmp_path / "train.py"
    script.write_text(HEAD + TRAINS)
    runs, _ = measure(script, [], NoProgress(), device="cpu", zygote=zygote, divisors=(1, 2))
    planned = need(joined(runs), "ddp", 1, 8, 16, False).total
    assert planned == pytest.approx(given_out(script), rel=0.1)


def given_out(script: Path) -> int:
    """The most that torch gives out to three steps."""
    from runpy import run_path

    from torch.profiler import ProfilerActivity, profile

    train = run_path(str(script))["train"]
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        train(3)
    events = [each for each in profiled.profiler.kineto_results.events() if each.name() == "[memory]"]
    held = most = 0
    for event in sorted(events, key=lambda each: each.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return most
