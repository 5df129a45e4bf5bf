"""The order of samples follows the script's seed; without one, each run has its own, and all ranks have the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import converted, differences, launched

from autodist.verify.launch import Zygote

HEAD = """\
import argparse
import os
import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SubsetRandomSampler, TensorDataset

"""
SCRIPT = HEAD + """\

def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def make_loader(data):
    return DataLoader(data, batch_size=8, shuffle=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    x = torch.arange(32.0).view(32, 1)
    data = TensorDataset(x, x)
    BEFORE
    loader = LOADER
    model = nn.Sequential(nn.Linear(1, 1), LAYER)
    AFTER
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for epoch in range(2):
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()


if __name__ == "__main__":
    main()
"""
DIRECT = "DataLoader(data, batch_size=8, shuffle=True)"
ALIKE = "as_on_rank_zero(torch.initial_seed())"


def script(loader: str = DIRECT, before: str = "pass", after: str = "pass", layer: str = "nn.ReLU()") -> str:
    """A script that seeds before or after it makes its loader."""
    parts = {"LOADER": loader, "BEFORE": before, "AFTER": after, "LAYER": layer}
    text = SCRIPT
    for name, code in parts.items():
        text = text.replace(name, code)
    return text


@pytest.mark.parametrize(
    ("text", "seed"),
    [
        (script(before="torch.manual_seed(args.seed)"), "args.seed"),
        (script(before="set_seed(args.seed)"), "args.seed"),
        (script("make_loader(data)", before="set_seed(args.seed)"), "torch.initial_seed()"),
        (script(before="torch.manual_seed(42)"), "torch.initial_seed()"),
        (script(before="config = {'seed': 3}; set_seed(config['seed'])"), "config['seed']"),
        (script(before="if args.seed:\n        set_seed(args.seed)"), ALIKE),
        (
            script(before="g = torch.Generator(); g.manual_seed(5)", loader=DIRECT[:-1] + ", generator=g)"),
            "g.initial_seed()",
        ),
        (script(loader=DIRECT[:-1] + ", generator=torch.Generator().manual_seed(args.seed))"), "args.seed"),
        (script(), "torch.initial_seed()"),
        (script(before="np.random.seed(args.seed)"), "torch.initial_seed()"),
        (script(after="torch.manual_seed(args.seed)"), "args.seed"),
        (script(after="torch.manual_seed(7)"), "7"),
    ],
)
def test_the_seed_of_a_sampler(tmp_path: Path, text: str, seed: str) -> None:
    code, _ = converted(tmp_path, text)
    assert f"DistributedSampler(data, seed={seed})" in code or f"DistributedSampler(train_set, seed={seed})" in code
    unseeded = "manual_seed" not in text.split("def main")[1] and "set_seed(" not in text.split("def main")[1]
    assert (f"torch.manual_seed({ALIKE})  # same random numbers on all ranks" in code) == (
        unseeded or "Generator" in text
    )


def test_a_seed_that_is_set_where_the_loader_is_not_made(tmp_path: Path) -> None:
    """The generator has no seed yet where a function makes the loader."""
    code, said = converted(tmp_path, script("make_loader(data)", after="set_seed(args.seed)"))
    assert "    set_seed(args.seed)\n    loader.sampler.seed = torch.initial_seed()\n" in code
    assert "AD701" not in said


FOLDS = script(before="set_seed(args.seed)", layer="nn.Dropout(0.1)").split("    loader = ")
FOLDED = "".join(f"    {line}\n" for line in ("    loader = " + FOLDS[1]).split("\n\nif")[0].splitlines())
FOLDED = f"{FOLDS[0]}    for fold in range(2):\n        SEED\n{FOLDED}\n\nif{FOLDS[1].split('if', 1)[1]}"


@pytest.mark.parametrize(
    ("seed", "loader", "expected"),
    [
        ("pass", DIRECT, "args.seed"),  # ranks have gone apart in the first fold
        ("pass", "make_loader(data)", ALIKE),
        ("set_seed(args.seed + fold)", "make_loader(data)", "torch.initial_seed()"),
    ],
)
def test_ranks_that_have_gone_apart_before(tmp_path: Path, seed: str, loader: str, expected: str) -> None:
    """Each would shuffle by a seed of its own, and train on what another one trains on."""
    text = FOLDED.replace("SEED", seed).replace(f"loader = {DIRECT}", f"loader = {loader}")
    code, _ = converted(tmp_path, text)
    assert f"seed={expected})" in code


RUN = HEAD + """\
SEED
x = torch.arange(32.0).view(32, 1)
data = TensorDataset(x, x)
model = nn.Sequential(nn.Linear(1, 1), nn.Dropout(0.1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)


def train(name, loader):
    for epoch in range(2):
        for x, y in loader:
            print(name, epoch, *x.flatten().int().tolist())
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()


train("shuffle", DataLoader(data, batch_size=8, shuffle=True))
train("random", DataLoader(data, batch_size=8, sampler=RandomSampler(data)))
train("batches", DataLoader(data, batch_sampler=BatchSampler(SubsetRandomSampler(range(32)), 8, False)))
"""


def orders(folder: Path, seed: str, fresh: bool) -> dict[str, list[int]]:
    """The samples of each kind of loader and epoch, in the order in which two ranks see them."""
    (folder / "train_ddp.py").write_text(converted(folder, RUN.replace("SEED", seed))[0])
    found: dict[str, list[int]] = {}
    for line in launched(folder, "train_ddp.py", 2, fresh).splitlines():
        name, epoch, *samples = line.split()
        found.setdefault(f"{name} {epoch}", []).extend(map(int, samples))
    return found


@pytest.fixture
def seen(tmp_path: Path) -> Callable[[str], dict[str, list[int]]]:
    def run(seed: str) -> dict[str, list[int]]:
        found = orders(tmp_path, seed, fresh=not seed)  # by what Python and torch begin with
        assert all(sorted(samples) == list(range(32)) for samples in found.values()), found
        assert len(found) == 6
        return found

    return run


def test_two_seeds_give_two_orders(seen: Callable[[str], dict[str, list[int]]]) -> None:
    first, second, again = (seen(f"torch.manual_seed({seed})") for seed in (1, 2, 1))
    assert first == again
    assert all(first[name] != second[name] for name in first)


def test_no_seed_gives_each_run_its_order(seen: Callable[[str], dict[str, list[int]]]) -> None:
    first, second = seen(""), seen("")
    assert all(first[name] != second[name] for name in first)


@pytest.mark.parametrize("seed", ["", "torch.manual_seed(3)", "np.random.seed(3)"])
def test_the_conversion_trains_the_same(tmp_path: Path, zygote: Zygote | None, seed: str) -> None:
    text = RUN.replace("SEED", seed).replace("print(name, epoch, *x.flatten().int().tolist())", "pass")
    assert differences(tmp_path, zygote, text) is None
