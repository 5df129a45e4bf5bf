"""Means over samples that the script itself fills up to the longest of them: each rank to the longest of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted, differences
from test_losses_over_boxes import script

from autodist.verify.launch import Zygote

BOXES = '[t["boxes"] for t in targets]'
PADDED = f"    padded = nn.utils.rnn.pad_sequence({BOXES}, batch_first=True)\n"
CUT = PADDED + '    out = outputs["boxes"][:, : padded.shape[1]]\n'
LABELS = (
    '    labels = nn.utils.rnn.pad_sequence([t["labels"] for t in targets], batch_first=True{})\n'
    '    out = outputs["boxes"][:, : labels.shape[1], :3]\n'
)
MASK = (
    '    n = torch.tensor([len(t["boxes"]) for t in targets])\n'
    "    mask = torch.arange(padded.shape[1])[None] < n[:, None]\n"
)
MEANS = {
    "a mean": CUT + "    return (out - padded).abs().mean()",
    "an axis each": CUT + "    return (out - padded).abs().mean((1, 2)).mean()",
    "summed over boxes": CUT + "    return (out - padded).abs().sum(-1).mean()",
    "over numel": CUT + "    return (out - padded).abs().sum() / padded.numel()",
    "a loss": CUT + "    return F.l1_loss(out, padded)",
    "sides changed": CUT + "    return nn.MSELoss()(padded, out)",
    "without a reduction": CUT + '    return F.smooth_l1_loss(out, padded, reduction="none").mean()',
    "masked, and all counted": CUT + MASK + "    return ((out - padded).abs().sum(-1) * mask).mean()",
    "size()": PADDED + '    return F.mse_loss(outputs["boxes"][:, : padded.size(1)], padded)',
    "a list": "    rows = []\n    for t in targets:\n        rows.append(t['boxes'])\n"
    + CUT.replace(BOXES, "rows")
    + "    return (out - padded).abs().mean()",
    "time first": PADDED.replace(", batch_first=True", "")
    + '    return (outputs["boxes"].transpose(0, 1)[: padded.shape[0]] - padded).abs().mean()',
    "nested": f"    padded = torch.nested.nested_tensor({BOXES}).to_padded_tensor(0.0)\n"
    + CUT.removeprefix(PADDED)
    + "    return (out - padded).abs().mean()",
    "labels": LABELS.format("") + "    return F.cross_entropy(out.transpose(1, 2), labels)",
    "labels in line": LABELS.format("") + "    return F.cross_entropy(out.flatten(0, 1), labels.flatten())",
}


@pytest.mark.parametrize("name", MEANS)
def test_a_mean_over_padding_is_said_to_be_that_of_a_rank(name: str, tmp_path: Path) -> None:
    assert "AD602" in converted(tmp_path, script(MEANS[name]))[1]


LONGEST = '    longest = max(len(t["boxes"]) for t in targets)\n'
OUT = '    return F.mse_loss(outputs["boxes"][:, :longest], padded)'
FILLED = '    for i, t in enumerate(targets):\n        padded[i, : len(t["boxes"])] = t["boxes"]\n'
LENGTHS = {
    "zeros": LONGEST + "    padded = torch.zeros(len(targets), longest, 4)\n" + FILLED + OUT,
    "new_zeros": LONGEST
    + '    padded = targets[0]["boxes"].new_zeros((len(targets), longest, 4))\n'
    + FILLED
    + '    return (outputs["boxes"][:, :longest] - padded).abs().mean()',
    "a list": '    counts = [t["boxes"].shape[0] for t in targets]\n    longest = max(counts)\n'
    + "    padded = torch.zeros(len(targets), longest, 4)\n"
    + FILLED
    + OUT,
    "a tensor": '    longest = int(torch.tensor([len(t["boxes"]) for t in targets]).max())\n'
    + "    padded = torch.zeros(len(targets), longest, 4)\n"
    + FILLED
    + OUT,
    "F.pad": LONGEST
    + '    padded = torch.stack([F.pad(t["boxes"], (0, 0, 0, longest - len(t["boxes"]))) for t in targets])\n'
    + OUT,
    "cat": LONGEST
    + '    rows = [torch.cat([t["boxes"], torch.zeros(longest - len(t["boxes"]), 4)]) for t in targets]\n'
    + "    padded = torch.stack(rows)\n"
    + OUT,
}


@pytest.mark.parametrize("name", LENGTHS)
def test_a_length_that_has_a_name_is_that_of_all_ranks(name: str, tmp_path: Path, zygote: Zygote | None) -> None:
    text = script(LENGTHS[name])
    code, said = converted(tmp_path, text)
    assert "reduce_max(" in code and "AD602" not in said
    assert differences(tmp_path, zygote, text) is None


RIGHT = {
    "a masked mean": CUT + MASK + "    return ((out - padded).abs().sum(-1) * mask).sum() / mask.sum()",
    "masked, of each": CUT + MASK + "    return (((out - padded).abs().mean(-1) * mask).sum(1) / mask.sum(1)).mean()",
    "torch.where": CUT
    + MASK
    + "    return torch.where(mask[..., None], (out - padded).abs(), 0.0).sum() / (4 * mask.sum())",
    "a sum over zeros": CUT + "    return (out * padded).sum() / len(targets)",
    "sums over zeros": CUT + "    return (out * padded).sum((1, 2)).mean()",
    "a fixed length": PADDED
    + "    padded = F.pad(padded, (0, 0, 0, 4 - padded.shape[1]))\n"
    + '    return F.mse_loss(outputs["boxes"], padded)',
    "ignored": LABELS.format(", padding_value=-100")
    + "    return F.cross_entropy(out.flatten(0, 1), labels.flatten())",
    "told to be ignored": LABELS.format(", padding_value=-1")
    + "    return F.cross_entropy(out.flatten(0, 1), labels.flatten(), ignore_index=-1)",
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_leaves_padding_out_is_not_alarmed(name: str, tmp_path: Path, zygote: Zygote | None) -> None:
    text = script(RIGHT[name])
    assert "AD602" not in converted(tmp_path, text)[1]
    assert differences(tmp_path, zygote, text) is None


TEXTS = """\
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(20, 16), nn.Linear(16, 3)

    def forward(self, words{given}):
        {pooled}
        return self.head(pooled)


torch.manual_seed(0)
data = [(torch.randint(1, 20, (2 + i % 7,)), i % 3) for i in range(32)]
loader = DataLoader(data, batch_size=8, shuffle=True, collate_fn=list)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in loader:
    words = nn.utils.rnn.pad_sequence([each for each, _ in batch], batch_first=True)
    lengths = torch.tensor([len(each) for each, _ in batch])
    loss = F.cross_entropy(model(words{given}), torch.tensor([label for _, label in batch]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("given", "pooled", "right"),
    [
        ("", "pooled = self.embed(words).mean(1)", False),
        ("", "pooled = torch.mean(self.embed(words), dim=1)", False),
        ("", "pooled = self.embed(words).max(1)[0]", False),
        (", lengths", "pooled = self.embed(words).mean(1)", False),
        (", lengths", "pooled = (self.embed(words) * (words > 0)[..., None]).sum(1) / lengths[:, None]", True),
    ],
)
def test_models_that_are_given_padding(given: str, pooled: str, right: bool, tmp_path: Path) -> None:
    text = TEXTS.replace("{given}", given).replace("{pooled}", pooled)
    assert ("AD602" not in converted(tmp_path, text)[1]) is right
