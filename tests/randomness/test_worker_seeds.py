"""Workers of a loader that all ranks would seed alike, and that would augment the samples of each rank alike."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted, launched

SCRIPT = """\
import argparse
import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=1)
args = parser.parse_args()
torch.manual_seed(args.seed)
g = torch.Generator()
g.manual_seed(0)


def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)


class Samples(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        x = torch.full((4,), float(index))
        if np.random.rand() < 0.5:
            x = x.flip(0)
        return x + random.random(), x[:1]


def seed_worker(worker_id):
    SEEDED


train_set = Samples()
loader = DataLoader(train_set, batch_size=8, shuffle=True, num_workers=WORKERS, worker_init_fn=GIVEN)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
RANK = '1000 * int(os.environ.get("RANK", 0))'
SPAWNED = """\
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        return torch.tensor([np.random.rand()], dtype=torch.float32)


def seed_worker(worker_id):
    np.random.seed(worker_id)
    Path(f"{np.random.rand()}.txt").touch()


def main():
    torch.manual_seed(0)
    loader = DataLoader(
        Samples(), batch_size=4, num_workers=1, worker_init_fn=seed_worker, multiprocessing_context="spawn"
    )
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in loader:
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
"""


def result(tmp_path: Path, seeded: str, given: str = "seed_worker", workers: str = "2") -> str:
    text = SCRIPT.replace("SEEDED", seeded).replace("GIVEN", given).replace("WORKERS", workers)
    return converted(tmp_path, text)[0]


@pytest.mark.parametrize(
    ("seeded", "expected"),
    [
        ("random.seed(args.seed + worker_id)", f"random.seed(args.seed + worker_id + {RANK})"),
        ("np.random.seed(worker_id)", f"np.random.seed(worker_id + {RANK})"),
        ("set_seed(args.seed + worker_id)", f"set_seed(args.seed + worker_id + {RANK})"),
        ("seed = 42 + worker_id\n    np.random.seed(seed)", f"np.random.seed(seed + {RANK})"),
        ("torch.manual_seed(seed=worker_id)", f"torch.manual_seed(seed=worker_id + {RANK})"),
    ],
)
def test_numbers_that_all_ranks_have_get_the_rank_added(tmp_path: Path, seeded: str, expected: str) -> None:
    """TransUNet, UA-MT."""
    assert expected in result(tmp_path, seeded)


def test_a_lambda_does_too(tmp_path: Path) -> None:
    assert f"lambda i: np.random.seed(i + {RANK})" in result(tmp_path, "pass", "lambda i: np.random.seed(i)")


@pytest.mark.parametrize(
    "seeded",
    [
        "np.random.seed(np.random.get_state()[1][0] + worker_id)",
        "seed = torch.initial_seed() % 2**32\n    np.random.seed(seed)\n    random.seed(seed)",
        "set_seed(torch.utils.data.get_worker_info().seed % 2**32)",
        "np.random.seed()",
    ],
)
def test_what_follows_the_seed_of_torch_differs_already(tmp_path: Path, seeded: str) -> None:
    assert RANK not in result(tmp_path, seeded)


@pytest.mark.parametrize(("workers", "kept"), [("2", False), ("0", True)])
def test_workers_follow_the_generator_that_the_loader_is_given(tmp_path: Path, workers: str, kept: bool) -> None:
    """As PyTorch's own notes on reproducibility have it: the ranks' samplers draw the order, without this."""
    made = result(tmp_path, "np.random.seed(torch.initial_seed() % 2**32)", "seed_worker, generator=g", workers)
    assert ("generator=g" in made) is kept


@pytest.mark.parametrize("above", ["", "print('begins')\n"])  # the workers import this once more, as groups of one
def test_workers_that_are_spawned_know_their_rank(tmp_path: Path, above: str) -> None:
    """They are in no process group, and crashed where they asked it for their rank, or all took themselves for rank 0;
    forkserver, the default of Python 3.14, starts them likewise."""
    pytest.importorskip("torch")
    made = converted(tmp_path, SPAWNED.replace("\n\nclass", f"\n{above}\n\nclass"))[0]
    (tmp_path / "train_ddp.py").write_text(made)
    launched(tmp_path, "train_ddp.py", 2)
    assert len(list(tmp_path.glob("*.txt"))) == 2
