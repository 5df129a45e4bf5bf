"""Losses over boxes, of which images have more or fewer: divided by how many all ranks have, or said to be uneven."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted, differences

from autodist.verify.launch import Zygote

SCRIPT = """\
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset


class Boxes(Dataset):
    def __init__(self):
        self.images, self.counts = torch.randn(32, 8), torch.randint(1, 5, (32,))
        self.boxes, self.labels = torch.rand(32, 4, 4), torch.randint(0, 3, (32, 4))

    def __len__(self):
        return 32

    def __getitem__(self, i):
        n = int(self.counts[i])
        return self.images[i], {"boxes": self.boxes[i, :n], "labels": self.labels[i, :n]}


def collate(batch):
    images, targets = zip(*batch)
    return torch.stack(images), list(targets)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.box = nn.Linear(8, 16)

    def forward(self, x):
        return {"boxes": self.box(x).view(-1, 4, 4).sigmoid()}


def criterion(outputs, targets):
{loss}


torch.manual_seed(0)
loader = DataLoader(Boxes(), batch_size=8, shuffle=True, collate_fn=collate)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for images, targets in loader:
        loss = criterion(model(images), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
"""
JOINED = """\
    found = torch.cat([outputs["boxes"][i, : len(t["boxes"])] for i, t in enumerate(targets)])
    wanted = torch.cat([t["boxes"] for t in targets])
"""
LOSSES = [
    '    count = sum(len(t["labels"]) for t in targets)\n'
    + JOINED
    + '    return F.l1_loss(found, wanted, reduction="none").sum() / count',
    '    count = max(sum(len(t["labels"]) for t in targets), 1)\n'
    + JOINED
    + '    return F.smooth_l1_loss(found, wanted, reduction="sum") / count',
    '    count = sum([t["boxes"].shape[0] for t in targets])\n'
    + JOINED
    + "    return (found - wanted).abs().sum() / count",
    '    sizes = [len(t["boxes"]) for t in targets]\n    count = sum(sizes)\n'
    + JOINED
    + "    return (found - wanted).pow(2).sum() / count",
    '    count, total = sum(len(t["labels"]) for t in targets), 0.0\n'
    "    for i, t in enumerate(targets):\n"
    '        own = outputs["boxes"][i, : len(t["boxes"])]\n'
    '        total = total + F.l1_loss(own, t["boxes"], reduction="sum")\n'
    "    return total / count",
]


def script(loss: str) -> str:
    return SCRIPT.replace("{loss}", loss)


@pytest.mark.parametrize("loss", LOSSES)
def test_it_is_divided_by_how_many_boxes_all_ranks_have(loss: str, tmp_path: Path, zygote: Zygote | None) -> None:
    _, said = converted(tmp_path, script(loss))
    assert "AD602" not in said and "AD9" not in said
    assert differences(tmp_path, zygote, script(loss)) is None


def test_targets_in_a_list_are_not_gathered_as_a_tensor(tmp_path: Path, zygote: Zygote | None) -> None:
    """What a collate function hands out as a list of dicts has no rows that could be joined."""
    more = " + 0.1 * outputs['boxes'].pow(2).mean()\n"
    text = script(LOSSES[0]).replace("criterion(model(images), targets)\n", f"criterion(outputs, targets){more}")
    text = text.replace("        loss = criterion", "        outputs = model(images)\n        loss = criterion")
    assert "RowsOfAllRanks.apply(targets)" not in converted(tmp_path, text)[0]
    assert differences(tmp_path, zygote, text) is None


MATCHED = """\
    with torch.no_grad():
        flat, wanted = outputs["boxes"].flatten(0, 1), torch.cat([t["boxes"] for t in targets])
        costs = torch.cdist(flat, wanted).view(len(targets), 4, -1)
        sizes = [len(t["boxes"]) for t in targets]
        pairs = [linear_sum_assignment(c[i]) for i, c in enumerate(costs.split(sizes, -1))]
    count = sum(len(t["labels"]) for t in targets)
    rows = torch.cat([torch.full((len(i),), n) for n, (i, _) in enumerate(pairs)])
    found = outputs["boxes"][rows, torch.cat([torch.as_tensor(i) for i, _ in pairs])]
    wanted = torch.cat([t["boxes"][j] for t, (_, j) in zip(targets, pairs)])
    return F.l1_loss(found, wanted, reduction="none").sum() / count"""


def test_what_is_matched_within_each_image_is_not_taken_for_pairs_of_samples(tmp_path: Path) -> None:
    text = "from scipy.optimize import linear_sum_assignment\n" + script(MATCHED)
    _, said = converted(tmp_path, text)
    assert "AD906" not in said and "pairs each sample of a batch with another" not in said


LAST = """\
    total, last = 0.0, 0.0
    for o, t in zip(outputs["boxes"], targets):
        {kept}
        total = total + (o[: len(t["boxes"])] - t["boxes"] - last).pow(2).mean()
        {left}
    return total / len(targets)"""


@pytest.mark.parametrize(
    ("kept", "left", "alone"), [("pass", "last = o.mean()", False), ("last = o.mean()", "pass", True)]
)
def test_what_the_image_before_has_left(tmp_path: Path, kept: str, left: str, alone: bool) -> None:
    _, said = converted(tmp_path, script(LAST.format(kept=kept, left=left)))
    assert ("AD602" not in said) is alone, said


READ = """\
        n, last = int(self.counts[i]), torch.zeros(4)
        boxes = []
        for box in self.boxes[i, :n]:
            boxes.append(box - last)
            last = box
        return self.images[i], {"boxes": torch.stack(boxes), "labels": self.labels[i, :n]}
"""


def test_what_a_data_set_computes_of_the_box_before(tmp_path: Path, zygote: Zygote | None) -> None:
    before = script(LOSSES[0])
    start, end = before.index("        n = int("), before.index("\n\ndef collate")
    before = before[:start] + READ + before[end:]
    assert "AD602" not in converted(tmp_path, before)[1]
    assert differences(tmp_path, zygote, before) is None
