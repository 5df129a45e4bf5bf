"""A digit classifier that was trained on another domain, from which adaptation starts."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn


def write(folder: Path) -> None:
    """``source.pt``: the state of a network of a ``feature_extractor`` (for 3 x 28 x 28) and a ``classifier``."""
    torch.manual_seed(0)
    features = nn.Sequential(nn.Conv2d(3, 10, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(10, 20, 5), nn.MaxPool2d(2))
    classifier = nn.Sequential(nn.Linear(320, 50), nn.ReLU(), nn.Dropout(), nn.Linear(50, 10))
    model = nn.ModuleDict({"feature_extractor": features, "classifier": classifier})
    torch.save(dict(model.state_dict()), folder / "source.pt")
