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
APART = "torch.manual_seed(torch.initial_seed() + dist.get_rank())"
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
