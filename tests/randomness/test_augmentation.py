"""Pictures that torchvision augments are augmented by each rank in its own way, with workers and without."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

SCRIPT = """\
import torch
import torchvision
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms


class Pictures(Dataset):
    def __init__(self, pictures, transform=None):
        self.pictures, self.transform = pictures, transform

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, index):
        picture, label = self.pictures[index]
        return self.transform(picture), label


class Augmented(Pictures):
    def __init__(self, pictures):
        super().__init__(pictures)
        self.transform = transforms.Compose([transforms.RandomHorizontalFlip(), transforms.ToTensor()])


plain = transforms.Compose([transforms.Resize(32), transforms.ToTensor()])
drawn = transforms.Compose([transforms.RandomCrop(32, padding=4), transforms.ToTensor()])
train_set = TRAIN
test_set = torchvision.datasets.CIFAR10("data", train=False, transform=drawn)
loader = DataLoader(train_set, batch_size=8, shuffle=True, num_workers=WORKERS)
model = nn.Sequential(nn.Flatten(), nn.Linear(3072, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
"""
APART = "torch.manual_seed(torch.initial_seed() + 1 + dist.get_rank())"
OF_LIBRARY = 'torchvision.datasets.CIFAR10("data", transform={})'


@pytest.mark.parametrize("workers", ["0", "2"])
@pytest.mark.parametrize(
    ("train", "apart"),
    [
        (OF_LIBRARY.format("drawn"), True),
        (OF_LIBRARY.format("transforms.v2.ColorJitter(0.1)"), True),
        ('Pictures(torchvision.datasets.CIFAR10("data"), transform=drawn)', True),
        ('Augmented(torchvision.datasets.CIFAR10("data"))', True),
        (f"torch.utils.data.Subset({OF_LIBRARY.format('drawn')}, range(64))", True),
        (OF_LIBRARY.format("plain"), False),
    ],
)
def test_ranks_augment_apart(tmp_path: Path, train: str, apart: bool, workers: str) -> None:
    after, said = converted(tmp_path, SCRIPT.replace("TRAIN", train).replace("WORKERS", workers))
    assert (APART in after) is apart and ("AD702" in said) is apart


DRAWING = """\
import random


def crop(picture):
    start = random.randrange(0, 4)
    return picture[start : start + 4]


class Crop:
    def __call__(self, picture):
        return crop(picture)

    @staticmethod
    def once(picture):
        return crop(picture)


class Base:
    def read(self, picture):
        return crop(picture)
"""
READING = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import drawing


class Pictures(Dataset, drawing.Base):
    def __init__(self):
        self.crop = drawing.Crop()

    def __len__(self):
        return 64

    def __getitem__(self, index):
        picture = torch.arange(8.0) + index
        return {reading}

    def read(self, picture):
        return super().read(picture)


torch.manual_seed(1)
loader = DataLoader(Pictures(), batch_size=8, shuffle=True, num_workers=2)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x in loader:
        optimizer.zero_grad()
        model(x).mean().backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("reading", "apart"),
    [
        ("drawing.crop(picture)", True),
        ("drawing.Crop()(picture)", True),
        ("drawing.Crop.once(picture)", True),
        ("self.crop.once(picture)", True),
        ("self.read(picture)", True),
        ("list(map(drawing.crop, [picture]))[0]", True),
        ("picture[:4]", False),
        ("picture[:4] if isinstance(picture, drawing.Crop) else picture[4:]", False),
    ],
)
def test_what_other_files_draw_for_a_sample(tmp_path: Path, reading: str, apart: bool) -> None:
    """Workers of all ranks would crop alike. What a data set keeps may be called for a sample."""
    (tmp_path / "drawing.py").write_text(DRAWING)
    text = READING.format(reading=reading)
    if not apart:
        text = text.replace("self.crop = drawing.Crop()", "self.crop = None")
    assert (APART in converted(tmp_path, text)[0]) is apart


CLOUDS = """\
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Clouds(Dataset):
    def __init__(self, count, partition="train"):
        self.count = count
        self.partition = partition

    def __len__(self):
        return self.count

    def __getitem__(self, item):
        if self.partition != "train":
            np.random.seed(item)
        points = np.full((4, 3), item) + np.random.uniform(-0.5, 0.5, size=3)
        return points.astype("float32"), np.float32(item)


torch.manual_seed(1)
np.random.seed(1)
train_loader = DataLoader(Clouds(64), batch_size=8, shuffle=True, num_workers=WORKERS)
test_loader = DataLoader(Clouds(64, "test"), batch_size=8, num_workers=WORKERS)
model = nn.Sequential(nn.Flatten(), nn.Linear(12, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(2):
    for x, y in train_loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x)[:, 0], y).backward()
        optimizer.step()
    with torch.no_grad():
        EVALUATED
"""
ALIKE = "what is drawn repeats from rank to rank"


@pytest.mark.parametrize(
    ("evaluated", "workers", "seeded", "apart"),
    [
        ("for x, y in test_loader:\n            print(model(x).sum())", "0", True, False),  # DCP
        ("for x, y in test_loader:\n            print(model(x).sum())", "2", True, True),
        ("for x, y in test_loader:\n            print(model(x).sum())", "0", False, True),
        ("print(epoch)", "0", True, True),
    ],
)
def test_evaluations_that_seed_for_each_sample(
    tmp_path: Path, evaluated: str, workers: str, seeded: bool, apart: bool
) -> None:
    """On all ranks alike, which repeated one another's noise from there on, in silence."""
    script = CLOUDS.replace("EVALUATED", evaluated).replace("WORKERS", workers)
    code, said = converted(tmp_path, script if seeded else script.replace("np.random.seed(item)", "pass"))
    assert (APART in code) is apart
    assert (ALIKE in said) is not apart


def test_what_is_seeded_for_each_sample_is_not_noise(tmp_path: Path) -> None:
    script = CLOUDS.replace("EVALUATED", "print(epoch)").replace("WORKERS", "0")
    code, said = converted(tmp_path, script.replace('        if self.partition != "train":\n    ', ""))
    assert APART not in code and ALIKE not in said
