"""Batches that a `collate_fn` puts together key by key."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from conftest import converted

SCRIPT = """\
from collections import defaultdict
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader
from texts import Texts


{collate}


model = nn.Sequential(nn.Embedding(50, 8), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(Texts(), batch_size=8, shuffle=True, collate_fn=collate)
for epoch in range(2):
    for batch in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(batch["text"]), batch["label"])
        loss.backward()
        optimizer.step()
"""

PADDED = [
    """
    def padded(row, longest):
        return row + [0] * (longest - len(row))


    def collate(batch):
        longest = max(len(item["text"]) for item in batch)
        return {k: torch.tensor([padded(item[k], longest) for item in batch]) for k in ("text", "label")}
    """,
    """
    def collate(batch):
        return {key: together(key, [item[key] for item in batch]) for key in batch[0]}


    def together(key, rows):
        if key == "length":
            return torch.tensor(rows)
        return pad_sequence(rows, batch_first=True)
    """,
    """
    def collate(batch):
        rows = defaultdict(list)
        for item in batch:
            for key, value in item.items():
                rows[key].append(value)
        return {key: pad_sequence(value, batch_first=True) for key, value in rows.items()}
    """,
    """
    def collate(batch):
        out = {}
        for key in batch[0].keys():
            values = [item[key] for item in batch]
            if key == "length":
                out[key] = torch.tensor(values)
                continue
            out[key] = pad_sequence(values, batch_first=True)
        return out
    """,
    """
    def collate(batch):
        return {k: pad_sequence(v, batch_first=True) for k, v in zip(["text", "label"], zip(*batch))}
    """,
    """
    def collate(batch):
        out = {"length": torch.tensor([len(item["text"]) for item in batch])}
        longest = max(out["length"])
        for key in ["text", "label"]:
            rows = []
            for item in batch:
                rows.append(F.pad(item[key], (0, longest - len(item[key]))))
            out[key] = torch.stack(rows)
        return out
    """,
]

EVEN = [
    """
    def collate(batch):
        return {key: torch.stack([item[key] for item in batch]) for key in batch[0]}
    """,
    """
    def collate(batch):
        return {
            key: torch.stack([item[key] for item in batch]) if key == "label"
            else pad_sequence([item[key] for item in batch], batch_first=True)
            for key in batch[0].keys()
        }
    """,
    """
    def collate(batch):
        out = {}
        for key in batch[0]:
            values = [item[key] for item in batch]
            if key == "label":
                out[key] = torch.tensor(values)
            else:
                out[key] = pad_sequence(values, batch_first=True)
        return out
    """,
    """
    PADDED = ["text", "mask"]


    def together(key, values):
        return pad_sequence(values, batch_first=True) if key in ("text", "mask") else torch.stack(values)


    def collate(batch):
        return {key: together(key, [item[key] for item in batch]) for key in batch[0]}
    """,
]


def reasons(folder: Path, collate: str) -> str:
    """What is said of a script that puts its batches together so."""
    return converted(folder, SCRIPT.format(collate=textwrap.dedent(collate).strip()))[1]


@pytest.mark.parametrize("collate", PADDED)
def test_padded_key_by_key(tmp_path: Path, collate: str) -> None:
    """Labels that are padded to the longest of a rank's samples count on each rank as often as its own are long."""
    assert "pads to the longest sample" in reasons(tmp_path, collate)


@pytest.mark.parametrize("collate", EVEN)
def test_one_label_for_each_sample(tmp_path: Path, collate: str) -> None:
    """Labels of which there is one for each sample, beside texts that are padded."""
    said = reasons(tmp_path, collate)
    assert "the loss is a mean over what" not in said and "AD9" not in said


def test_laid_along_the_second_axis(tmp_path: Path) -> None:
    """`pad_sequence` lays the samples along the second axis, under whatever keys."""
    collate = "def collate(batch):\n    return {k: pad_sequence([item[k] for item in batch]) for k in batch[0]}"
    assert "pads to the longest sample" in reasons(tmp_path, collate)


COLUMNS = [
    "return [pad_sequence(part, batch_first=True) for part in zip(*batch)]",
    "return tuple(pad_sequence(part, batch_first=True) for part in zip(*batch))",
    "return tuple(map(lambda part: pad_sequence(part, batch_first=True), zip(*batch)))",
    "texts, labels = [pad_sequence(part, batch_first=True) for part in zip(*batch)]\n    return texts, labels",
    "parts = []\n    for part in zip(*batch):\n        parts.append(pad_sequence(part, True))\n    return parts",
    "texts, labels = zip(*batch)\n    return [pad_sequence(each, batch_first=True) for each in (texts, labels)]",
]


@pytest.mark.parametrize("made", COLUMNS)
def test_each_part_is_padded(tmp_path: Path, made: str) -> None:
    """What is done to each part of the samples in turn is done to the labels."""
    script = SCRIPT.format(collate=f"def collate(batch):\n    {made}").replace("for batch in", "for text, label in")
    said = converted(tmp_path, script.replace('batch["text"]', "text").replace('batch["label"]', "label"))[1]
    assert "pads to the longest sample" in said


def test_each_part_is_stacked(tmp_path: Path) -> None:
    """Parts that have one row for each sample."""
    script = SCRIPT.format(collate="def collate(batch):\n    return [torch.stack(part) for part in zip(*batch)]")
    script = script.replace("for batch in", "for text, label in").replace('batch["text"]', "text")
    assert "AD602" not in converted(tmp_path, script.replace('batch["label"]', "label"))[1]
