"""Numbers that a step draws for its whole batch, in functions of any name: rank 0 draws them for all ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted, differences, launched

from autodist.verify.launch import Zygote

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(1)


class Shift:
    def {method}(self, x):
        if torch.rand(1).item() < 0.5:
            x = x + 1.0
        return x


class Samples(Dataset):
    def __init__(self):
        self.x = torch.randn(64, 4)

    def __len__(self):
        return 64

    def __getitem__(self, i):
        return {read}, self.x[i].sum(0, keepdim=True)


def {function}(gpu):
    loader = DataLoader(Samples(), batch_size=8, shuffle=True)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.0), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    shift = Shift()
    for epoch in range(2):
        for x, y in loader:
            loss = nn.functional.mse_loss(model({called}), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


{function}(0)
"""
COMMON = "drawn_by_rank_zero(torch.rand(1))"


@pytest.mark.parametrize(
    ("method", "function", "called"),
    [
        ("shifted", "train", "shift.shifted(x)"),
        ("__call__", "train", "shift(x)"),
        ("shifted", "main_worker", "shift.shifted(x)"),
        ("worker_shift", "run_worker", "shift.worker_shift(x)"),
    ],
)
def test_functions_of_any_name(tmp_path: Path, zygote: Zygote | None, method: str, function: str, called: str) -> None:
    text = SCRIPT.format(method=method, function=function, called=called, read="self.x[i]")
    assert COMMON in converted(tmp_path, text)[0]
    assert differences(tmp_path, zygote, text) is None


def test_what_is_called_for_a_sample(tmp_path: Path) -> None:
    text = SCRIPT.format(method="__call__", function="main_worker", called="x", read="Shift()(self.x[i])")
    after, said = converted(tmp_path, text)
    assert COMMON not in after and "AD702" in said


STEP = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(1)
data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.0), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


class Augmented:
    def __init__(self, loader):
        self.loader = loader
        self.scaled = lambda x: x * torch.rand(1)

    def __iter__(self):
        for x, y in self.loader:
            if torch.rand(1).item() < 0.5:
                x = x.flip(-1)
            yield x, y

    def __getitem__(self, x):
        return x + torch.rand(1)


augmented = Augmented(loader)
shifted = lambda x: x + torch.rand(1)
for epoch in range(2):
    for x, y in {batches}:
        {drawn}
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("batches", "drawn", "common"),
    [
        ("loader", "a, b = [torch.rand(1).item() for _ in range(2)]\n        x = a * x + b", COMMON),
        ("loader", "x = x * sum(torch.rand(1).item() for _ in range(3))", COMMON),
        ("loader", "x = shifted(x)", COMMON),
        ("loader", "x = augmented.scaled(x)", COMMON),
        ("loader", "x = augmented[x]", COMMON),
        ("loader", "x = x[:, torch.randperm(4)]", "drawn_by_rank_zero(torch.randperm(4))"),
        ("augmented", "pass", COMMON),
    ],
)
def test_ways_to_draw(tmp_path: Path, zygote: Zygote | None, batches: str, drawn: str, common: str) -> None:
    text = STEP.format(batches=batches, drawn=drawn)
    assert common in converted(tmp_path, text)[0]
    assert differences(tmp_path, zygote, text) is None


def test_conditions_on_a_batch(tmp_path: Path, zygote: Zygote | None) -> None:
    """All ranks come to what is drawn, once what decides is made global."""
    text = STEP.format(batches="loader", drawn="if x.mean() > 0:\n            x = augmented[x]")
    after = converted(tmp_path, text)[0]
    assert COMMON in after and "if reduce_mean(x.mean()) > 0:" in after
    assert differences(tmp_path, zygote, text) is None


def test_one_number_for_each_sample(tmp_path: Path) -> None:
    """Ranks draw for their own."""
    text = STEP.format(batches="loader", drawn="x = torch.stack([augmented[each] for each in x])")
    assert COMMON not in converted(tmp_path, text)[0]


SIZES = """\
import argparse
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--dim", type=int, default=4)
args = parser.parse_args()
"""


@pytest.mark.parametrize(
    "drawn",
    ["torch.randn(args.dim)", "torch.rand(x.shape[1])", "torch.randn_like(x[:1])", "F.dropout(torch.ones(4))"],
)
def test_sizes_that_are_no_numbers_of_samples(tmp_path: Path, zygote: Zygote | None, drawn: str) -> None:
    text = SIZES + STEP.format(batches="loader", drawn=f"x = x + {drawn}")
    after, said = converted(tmp_path, text)
    assert f"x = x + drawn_by_rank_zero({drawn})" in after and "each rank draws its own" not in said
    assert differences(tmp_path, zygote, text) is None


def test_a_mask_for_the_batch_is_the_same_on_all_ranks(tmp_path: Path, zygote: Zygote | None) -> None:
    """And nobody is told that it should be another one on each."""
    text = STEP.format(batches="loader", drawn="x = x * nn.functional.dropout(torch.ones(4))")
    text = text.replace("nn.Dropout(0.0)", "nn.Identity()")
    assert "masks of dropout" not in converted(tmp_path, text)[1]
    assert differences(tmp_path, zygote, text) is None


@pytest.mark.parametrize(
    ("drawn", "shown"),
    [
        ("x = x * F.dropout(scale)", "F.dropout(scale)"),
        ("x = x * Normal(scale, 1.0).rsample()", "Normal(scale, 1.0).rsa"),
    ],
)
def test_what_rank_zero_cannot_draw_is_told(tmp_path: Path, drawn: str, shown: str) -> None:
    """Gradients flow through it to what is trained."""
    text = "from torch.distributions import Normal\n" + SIZES + STEP.format(batches="loader", drawn=drawn)
    text = text.replace("optimizer =", "scale = nn.Parameter(torch.ones(4))\noptimizer =")
    after, said = converted(tmp_path, text.replace("model.parameters()", "[*model.parameters(), scale]"))
    assert f"AD702 {shown}" in said and "each rank draws its own" in said and "drawn_by_rank_zero" not in after


def test_sizes_by_what_is_made_global(tmp_path: Path, zygote: Zygote | None) -> None:
    text = SIZES + STEP.format(batches="loader", drawn="x = x * torch.rand(int(y.mean().abs()) + 1)[0]")
    after = converted(tmp_path, text)[0]
    assert "drawn_by_rank_zero(torch.rand(int(reduce_mean(y.mean()).abs()) + 1))" in after
    assert differences(tmp_path, zygote, text) is None


COLLATED = """\
import os
import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, default_collate

{seeds}
RNG = np.random.default_rng(3)
drawn = []


def noted(number):
    drawn.append(round(float(number), 4))
    return number


def collate(batch):
    x, y = default_collate(batch)
    {drawing}
    return x, y


data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
loader = DataLoader(data, batch_size=8, shuffle=True, collate_fn=collate, num_workers=0)
model = nn.Sequential(nn.Linear(4, 8), nn.Identity(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
with open(f"drawn{{os.environ.get('RANK', '')}}.txt", "w") as file:
    file.write(str(drawn))
"""
SEEDS = "random.seed(1)\nnp.random.seed(2)\ntorch.manual_seed(3)"
EACH = "x = torch.stack([row * {} for row in x])"


def collated(drawing: str, seeds: str = SEEDS) -> str:
    return COLLATED.format(drawing=drawing, seeds=seeds)


@pytest.mark.parametrize("seeds", [SEEDS, "torch.manual_seed(3)"])
@pytest.mark.parametrize(
    "drawing",
    [
        "x = x * noted(random.random())",
        "x = x * noted(float(np.random.beta(0.4, 0.4)))",
        "if noted(np.random.rand()) < 0.5:\n        x = -x",
        "for _ in range(2):\n        x = x + noted(random.uniform(0, 1))",
        "x = x * noted(torch.rand(1))",
        "x = x * noted(float(RNG.random()))",
    ],
)
def test_a_number_for_the_batch_that_a_loader_lays_together(tmp_path: Path, drawing: str, seeds: str) -> None:
    """Each rank drew a number of its own for its share of a batch."""
    code, said = converted(tmp_path, collated(drawing, seeds))
    assert "AD702" not in said
    (tmp_path / "after.py").write_text(code)
    launched(tmp_path, "after.py", 2)
    numbers = [(tmp_path / f"drawn{rank}.txt").read_text() for rank in range(2)]
    assert numbers[0] == numbers[1] != "[]"
    if seeds == SEEDS and "torch.rand" not in drawing:
        (tmp_path / "before.py").write_text(collated(drawing))
        launched(tmp_path, "before.py")
        assert numbers[0] == (tmp_path / "drawn.txt").read_text()


@pytest.mark.parametrize(
    ("drawing", "apart", "told"),
    [
        ("x = x * torch.rand(1)", True, True),
        ("x = x * random.random()", True, False),
        ("x = x * torch.rand(1); " + EACH.format("torch.rand(1)"), False, True),
        ("x = x + torch.randn(len(x), 4)", False, False),
        (EACH.format("torch.rand(1)"), True, False),
        (EACH.format("random.random()"), True, False),
    ],
)
def test_numbers_for_a_batch_where_ranks_draw_apart(tmp_path: Path, drawing: str, apart: bool, told: bool) -> None:
    text = collated(drawing).replace("nn.Identity()", "nn.Dropout()" if apart else "nn.Identity()")
    code, said = converted(tmp_path, text)
    assert ("is drawn once for the whole batch, and each rank draws its own" in said) is told
    assert "torch.initial_seed() + 1 + dist.get_rank()" in code


@pytest.mark.parametrize(
    ("drawing", "model", "told"),
    [
        ("x = x * random.random()", "nn.Dropout()", True),
        ("x = x * torch.rand(1)", "nn.Dropout()", True),
        ("x = x * random.random()", "nn.Identity()", False),
        (EACH.format("random.random()"), "nn.Dropout()", False),
    ],
)
def test_numbers_that_workers_draw(tmp_path: Path, drawing: str, model: str, told: bool) -> None:
    """Torch seeds them, by a number of its generator."""
    text = collated(drawing).replace("num_workers=0", "num_workers=2").replace("nn.Identity()", model)
    assert ("is drawn once for the whole batch, and each rank" in converted(tmp_path, text)[1]) is told


def test_numbers_for_a_batch_and_for_its_samples(tmp_path: Path) -> None:
    """What is alike for the one repeats for the others."""
    code, said = converted(tmp_path, collated("x = x * random.random()\n    " + EACH.format("random.random()")))
    assert "random.random() draws for this rank's samples, and all ranks draw alike" in said
    assert "random.seed(torch.initial_seed())" not in code


SHUFFLED = """\
import random
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(1)


def collate(samples):
    samples = list(samples)
    {shuffled}
    return torch.stack([x for x, _ in samples]), torch.stack([y for _, y in samples])


data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
loader = DataLoader(data, batch_size=8, shuffle=True, collate_fn=collate)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize("shuffled", ["random.shuffle(samples)", "np.random.shuffle(samples)"])
def test_samples_that_are_put_into_a_drawn_order(tmp_path: Path, zygote: Zygote | None, shuffled: str) -> None:
    """In whichever order a batch has them, they are those of one process."""
    text = SHUFFLED.format(shuffled=shuffled)
    said = converted(tmp_path, text)[1]
    assert "AD601" not in said and "AD602" not in said
    assert differences(tmp_path, zygote, text) is None


UNREAD = """\
import torch
from images import Images
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Wrapped(Dataset):
    def __init__(self):
        self.inner = Images("data")

    def __len__(self):
        return len(self.inner)

    def __getitem__(self, index):
        return self.inner[index]


torch.manual_seed(0)
loader = DataLoader(Wrapped(), batch_size=8, shuffle=True)
net = nn.Linear(9, 8)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    for batch in loader:
        {taken}
        t = torch.randint(0, 100, (x.shape[0],))
        noise = {noise}
        out = net(torch.cat([x + noise, t[:, None] / 100], dim=1))
        loss = nn.functional.mse_loss(out, noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize("noise", ["torch.randn_like(x)", "torch.randn(len(x), 8)", "torch.randn(x.shape)"])
@pytest.mark.parametrize(
    "taken",
    [
        "x, y = batch",
        "x, y = batch[0], batch[1]",
        "x = batch[0]",
        'x = batch["image"]',
        "x = batch[0] if isinstance(batch, (list, tuple)) else batch",
    ],
)
def test_fields_of_batches_of_which_nothing_is_read(tmp_path: Path, taken: str, noise: str) -> None:
    """A data set of a library gives samples that nothing is known of: what losses take for a field of the batch, draws
    are for the samples of as well."""
    code, said = converted(tmp_path, UNREAD.format(taken=taken, noise=noise))
    assert "drawn_by_rank_zero" not in code, said
    assert "torch.manual_seed(torch.initial_seed() + 1 + dist.get_rank())" in code
