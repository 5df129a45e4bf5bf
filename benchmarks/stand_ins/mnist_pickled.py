"""MNIST as pickled data sets of torchvision, as semi-supervised adversarial autoencoders read it."""

from __future__ import annotations

import pickle
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from ._idx import write_digits

datasets = import_module("torchvision.datasets")
transforms = import_module("torchvision.transforms")

PARTS = {"train_labeled": slice(0, 48), "train_unlabeled": slice(48, 208), "validation": slice(208, 256)}


def write(folder: Path) -> None:
    """``train_labeled.p``, ``train_unlabeled.p`` and ``validation.p``: each a data set that gives scaled tensors."""
    transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))])
    with TemporaryDirectory() as root:
        (Path(root) / "MNIST").mkdir()
        write_digits(Path(root) / "MNIST", 0)
        for name, part in PARTS.items():
            digits = datasets.MNIST(root, train=True, transform=transform)
            digits.root, digits.data, digits.targets = "", digits.data[part], digits.targets[part]
            with (folder / f"{name}.p").open("wb") as file:
                _Pickler(file).dump(digits)


class _Pickler(pickle.Pickler):
    """Writes the same bytes each time: a tensor's own way has addresses in it."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return torch.from_numpy, (value.numpy(),)
        return NotImplemented
