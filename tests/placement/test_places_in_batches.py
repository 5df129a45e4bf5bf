"""What is computed from the place of a sample in its batch, or cut to the longest of a rank's own."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

from autodist.verify import verify
from autodist.verify.launch import Zygote

SCRIPT = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
words = torch.randint(0, 9, (32, 5))
loader = DataLoader(TensorDataset(words, words.flip(1)), batch_size=8, shuffle=True)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(9, 6)
        self.head = nn.Linear(6, 9)

    def forward(self, x):
        return self.head(self.embed(x)){answer}


model = Tagger()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        out = model(x)
        {loss}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
"""
EACH = 'each = F.cross_entropy(out.reshape(-1, 9), y.reshape(-1), reduction="none")'
WEIGHED = f"n = x.size(0)\n        {EACH}\n        loss = (each * torch.arange(n).repeat_interleave(5)).mean()"
NEIGHBOURS = f"{EACH}\n        loss = (each[1:] - each[:-1]).abs().mean() + each.mean()"
CUT = (
    "longest = y[:, 0].max() % 3 + 2\n        loss = F.cross_entropy(out[:, :longest].transpose(1, 2), y[:, :longest])"
)
MEAN = "longest = int((y > 4).sum(1).max().item())\n        loss = out[:, :longest].pow(2).mean() + out.mean()"
WRITTEN = """\
each = F.cross_entropy(out.transpose(1, 2), y, reduction="none").mean(1)
        weights = torch.ones(len(each))
        {} = 0.5
        loss = (each * weights).mean()\
"""


def script(loss: str, answer: str = "") -> str:
    return SCRIPT.replace("{loss}", loss).replace("{answer}", answer)


@pytest.mark.parametrize("loss", [WEIGHED, NEIGHBOURS])
def test_words_are_gathered_before_they_are_laid_in_line(tmp_path: Path, loss: str) -> None:
    """Word after word of the ranks in turn, they would not stand in the order of the batch."""
    after, _ = conftest.converted(tmp_path, script(loss))
    assert "RowsOfAllRanks.apply(out).reshape(-1, 9), RowsOfAllRanks.apply(y).reshape(-1)" in after


def test_words_that_a_model_lays_in_line(tmp_path: Path) -> None:
    """They are gathered before it does."""
    loss = 'each = F.cross_entropy(out, y.view(-1), reduction="none")\n        '
    loss += "loss = (each * torch.arange(len(each))).mean()"
    after, said = conftest.converted(tmp_path, script(loss, ".reshape(-1, 9)"))
    assert "RowsOfAllRanks.apply(self.head(self.embed(x))).reshape(-1, 9)" in after and "AD602" not in said


@pytest.mark.parametrize("place", ["weights[::2]", "weights[0]", "weights[2:5]", "weights[-1]"])
def test_weights_that_are_written_by_place(tmp_path: Path, place: str) -> None:
    after, _ = conftest.converted(tmp_path, script(WRITTEN.format(place)))
    assert "weights = torch.ones(len(each) * dist.get_world_size())" in after
    assert "(RowsOfAllRanks.apply(each) * weights).mean()" in after


@pytest.mark.parametrize("place", ["weights[:]", "weights[y[:, 0] > 4]"])
def test_weights_that_no_place_tells_stay(tmp_path: Path, place: str) -> None:
    after, said = conftest.converted(tmp_path, script(WRITTEN.format(place)))
    assert "RowsOfAllRanks" not in after and "AD602" not in said


@pytest.mark.parametrize(
    "over", ["sum(i * v for i, v in enumerate(each))", "sum(each[i] * i for i in range(len(each)))"]
)
def test_losses_that_are_weighed_by_their_numbers(tmp_path: Path, over: str) -> None:
    each = "each = (F.one_hot(y, 9) - out).pow(2).mean((1, 2))\n        loss = "
    after, said = conftest.converted(tmp_path, script(f"{each}{over} / len(each)"))
    assert "RowsOfAllRanks" in after or "AD602" in said


@pytest.mark.parametrize(
    ("loss", "longest"), [(CUT, "reduce_max(y[:, 0].max())"), (MEAN, "reduce_max(int((y > 4).sum(1).max().item()))")]
)
def test_all_ranks_cut_to_one_length(tmp_path: Path, loss: str, longest: str) -> None:
    after, said = conftest.converted(tmp_path, script(loss))
    assert longest in after and "needs a person" not in said


def test_words_that_the_loss_leaves_out_may_be_cut(tmp_path: Path) -> None:
    loss = CUT.replace("y[:, :longest])", "y[:, :longest], ignore_index=0)")
    after, _ = conftest.converted(tmp_path, script(loss))
    assert "reduce_max" not in after


ORDERED = """\
order = out[:, 0, 0].argsort()
        ranked = out[order]
        loss = (ranked[1:] - ranked[:-1]).pow(2).mean() + out.mean()\
"""


def test_an_order_of_all_samples_is_taken_of_all(tmp_path: Path) -> None:
    """Numbers of the samples of all ranks name none of a rank's own."""
    after, _ = conftest.converted(tmp_path, script(ORDERED))
    assert "all_out = RowsOfAllRanks.apply(out)" in after and "all_out[order]" in after


@pytest.mark.parametrize("loss", [WEIGHED, CUT, MEAN, ORDERED])
def test_conversions_train_alike(tmp_path: Path, loss: str, zygote: Zygote | None) -> None:
    (tmp_path / "converted").mkdir()
    after, _ = conftest.converted(tmp_path, script(loss))
    (tmp_path / "converted" / "train.py").write_text(after)
    before, converted = tmp_path / "train.py", tmp_path / "converted" / "train.py"
    verdict = verify(before, converted, [2], steps=4, workdir=tmp_path, timeout=100, zygote=zygote)
    assert verdict.equal, verdict.findings
