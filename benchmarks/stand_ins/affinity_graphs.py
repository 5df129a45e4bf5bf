"""Molecules as graphs beside proteins as numbers, with how well they bind, collated by torch_geometric."""

from __future__ import annotations

from pathlib import Path

import torch
from torch_geometric.data import (  # type: ignore[import-not-found, import-untyped, unused-ignore]
    Data,
    InMemoryDataset,
)

COUNTS = {"train": 48, "test": 16}
FEATURES, RESIDUES, KINDS = 78, 1000, 25


def write(folder: Path) -> None:
    """``davis_train.pt`` and ``davis_test.pt``."""
    draw = torch.Generator().manual_seed(0)
    for split, count in COUNTS.items():
        torch.save(InMemoryDataset.collate([_pair(draw) for _ in range(count)]), folder / f"davis_{split}.pt")


def _pair(draw: torch.Generator) -> Data:
    """One molecule, a ring of atoms, and one protein."""
    atoms = int(torch.randint(5, 12, (), generator=draw))
    around = torch.arange(atoms)
    bonds = torch.cat((torch.stack((around, around.roll(1))), torch.stack((around.roll(1), around))), dim=1)
    features = torch.rand(atoms, FEATURES, generator=draw)
    residues = torch.randint(0, KINDS + 1, (1, RESIDUES), generator=draw)
    affinity = 5 + features[:, 0].sum().view(1) + torch.rand(1, generator=draw)
    return Data(x=features, edge_index=bonds, y=affinity, target=residues, c_size=torch.tensor([atoms]))
