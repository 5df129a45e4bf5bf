"""What libraries are handed that no table knows, and sizes of what each rank fills up."""

from __future__ import annotations

from pathlib import Path

from conftest import converted

SCRIPT = """\
import stuff
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

data = [(torch.randn(3 + i % 7, 4), i % 2) for i in range(48)]


def collate(batch):
    xs, ys = zip(*batch)
    lengths = torch.tensor([len(each) for each in xs])
    return pad_sequence(xs, batch_first=True), lengths, torch.tensor(ys)


loader = DataLoader(data, batch_size=8, shuffle=True, collate_fn=collate)
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, n, y in loader:
    mask = (x.abs().sum(2) > 0).unsqueeze(2)
    scores = (model(x) * mask).sum(1) / {divided}
    loss = F.cross_entropy(scores, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    {step}
"""


def test_what_cannot_be_made_global_is_said(tmp_path: Path) -> None:
    step = "for part in y.split(3):\n        stuff.push(part.float().mean())"
    _, said = converted(tmp_path, SCRIPT.format(divided="n[:, None]", step=step))
    assert "AD601 hands on part.float().mean(), computed from this rank's samples alone" in said


def test_what_can_be_made_global_is(tmp_path: Path) -> None:
    text, said = converted(tmp_path, SCRIPT.format(divided="n[:, None]", step="stuff.push(loss.item())"))
    assert "stuff.push(reduce_mean(loss.item()))" in text and "hands on" not in said


def test_numbers_in_what_is_filled_up_are_those_of_the_whole_batch(tmp_path: Path) -> None:
    text, _ = converted(tmp_path, SCRIPT.format(divided="n[:, None]", step="print(x.numel(), x.shape[1])"))
    assert "print(gather_rows(x).numel(), reduce_max(x.shape[1]))" in text


def test_losses_are_divided_by_the_longest_of_all_ranks(tmp_path: Path) -> None:
    text, _ = converted(tmp_path, SCRIPT.format(divided="x.shape[1]", step="print(loss.item())"))
    assert "/ reduce_max(x.shape[1])" in text
