"""Samples that a loop takes side by side with those of other places, from the end or from the next one on."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest
from test_earlier_rounds import script

from autodist.verify.launch import Zygote

PAIRS = {
    "reversed": "zip(out, reversed(y))",
    "flipped": "zip(out, y.flip(0))",
    "next": "zip(out, out[1:])",
    "reversed list": "zip(out, reversed(list(y)))",
    "list from its end": "zip(out, list(y)[::-1])",
    "rows from their end": "zip(out, [row for row in y][::-1])",
    "rows that are reversed": "zip(out, reversed([row for row in y]))",
}
LOSS = "for a, b in {}:\n    loss = loss + (a - b).pow(2).mean()"


@pytest.mark.parametrize("pairs", PAIRS)
def test_samples_of_other_places(tmp_path: Path, zygote: Zygote | None, pairs: str) -> None:
    """They were silent, and the other half was gathered alone. Rows of a list of their own are told of."""
    before = script(LOSS.format(PAIRS[pairs]))
    code, said = conftest.converted(tmp_path, before)
    assert ("AD602" in said) is pairs.startswith("rows ") is ("RowsOfAllRanks.apply(" not in code), said
    assert "AD602" in said or conftest.differences(tmp_path, zygote, before) is None


@pytest.mark.parametrize("pairs", ["reversed", "flipped", "next"])
def test_both_sides_are_gathered(tmp_path: Path, zygote: Zygote | None, pairs: str) -> None:
    before = script(LOSS.format(PAIRS[pairs]) + "\nloss = loss / len(out)")
    code, said = conftest.converted(tmp_path, before)
    assert "AD602" not in said and "RowsOfAllRanks.apply(" in code
    assert conftest.differences(tmp_path, zygote, before) is None


@pytest.mark.parametrize(
    "step",
    [
        LOSS.format("zip(out, y)"),
        "h = x\nlayers, kept = [torch.sin, torch.cos], []\nfor layer in layers:\n    h = layer(h); kept.append(h)\n"
        "for each in reversed(kept):\n    h = h + each\nloss = h.mean() + F.mse_loss(out, y)",
        "for t in reversed(range(3)):\n    loss = loss + (t + 1) * out[:, t].mean()",
        "h = torch.zeros(len(out))\nfor c in reversed(out.unbind(1)):\n    h = torch.tanh(h + c)\nloss = h.mean()",
    ],
)
def test_what_may_be_gone_through_in_any_order(tmp_path: Path, zygote: Zygote | None, step: str) -> None:
    before = script(step)
    code, said = conftest.converted(tmp_path, before)
    assert "AD602" not in said and "RowsOfAllRanks" not in code, said
    assert conftest.differences(tmp_path, zygote, before) is None
