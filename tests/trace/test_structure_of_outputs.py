"""Conditions on what there is, and not on what it holds: which keys an output has, how many parts, how many axes. Ranks
agree on these."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted, differences

from autodist.verify.launch import Zygote

SCRIPT = """\
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


@dataclass
class Both:
    raw: torch.Tensor
    aux: torch.Tensor | None = None


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.raw, self.aux = nn.Linear(4, 1), nn.Linear(4, 1)

    def forward(self, x, form, aux=True):
        raw, more = self.raw(x), self.aux(x) if aux else None
        if form == "dict":
            out = {"raw": raw}
            if aux:
                out["aux"] = more
            return out
        if form == "class":
            return Both(raw, more)
        return (raw, more) if aux else raw


def losses(raw, more, y, aux=True):
    found = {"raw": nn.functional.mse_loss(raw, y)}
    if aux:
        found["aux"] = nn.functional.mse_loss(more, y)
    return found


torch.manual_seed(1)
x = torch.randn(64, 4)
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=16, shuffle=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for a, b in loader:
        out = model(a, FORM)
        loss = nn.functional.mse_loss(RAW, b)
        if TEST:
            loss = loss + nn.functional.mse_loss(AUX, b)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
"""
OUTPUTS = {
    "dict": ('out["raw"]', 'out["aux"]'),
    "class": ("out.raw", "out.aux"),
    "tuple": ("out[0]", "out[1]"),
}
TESTS = [
    ("dict", '"aux" in out'),
    ("dict", '"none" not in out'),
    ("dict", '"aux" in out.keys()'),
    ("dict", 'out.get("aux") is not None'),
    ("dict", "len(out) > 1"),
    ("dict", '"aux" in out and epoch >= 0'),
    ("dict", '"aux" in losses(out["raw"], out["aux"], b)'),
    ("class", 'hasattr(out, "aux")'),
    ("class", "out.aux is not None"),
    ("tuple", "isinstance(out, tuple)"),
    ("tuple", "len(out) > 1"),
    ("tuple", "not torch.is_tensor(out)"),
    ("tuple", "out[0].dim() == 2"),
    ("tuple", "out[0].ndim != 3 and len(b.shape) == 2"),
    ("tuple", "out[0].shape == b.shape"),
]


def script(form: str, test: str) -> str:
    raw, aux = OUTPUTS[form]
    return SCRIPT.replace("FORM", repr(form)).replace("RAW", raw).replace("AUX", aux).replace("TEST", test)


@pytest.mark.parametrize(("form", "test"), TESTS)
def test_ranks_agree_on_it(form: str, test: str, tmp_path: Path) -> None:
    text, said = converted(tmp_path, script(form, test))
    assert f"        if {test}:\n" in text
    assert "decides on" not in said


@pytest.mark.parametrize("key", ["b[0].item()", "int(b.argmax())"])
def test_keys_that_are_samples_are_those_of_a_rank(key: str, tmp_path: Path) -> None:
    """A dict that is filled by what the samples are."""
    text = script("dict", "3 in seen").replace(
        "        out = model", f"        seen = {{{key}: a}}\n        out = model"
    )
    after, said = converted(tmp_path, text)
    assert "decides on" in said or "gather_rows" in after


def test_it_trains_as_before(tmp_path: Path, zygote: Zygote | None) -> None:
    assert differences(tmp_path, zygote, script(*TESTS[0])) is None
