"""Branches that training does not take: what they would do to the samples of a batch is said at their own line."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import pytest
from conftest import converted, differences

from autodist.config import Config, Strategy
from autodist.convert import convert
from autodist.project import Project
from autodist.verify.launch import Zygote

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

MANY, MODE = False, "one"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.head = nn.Linear(6, 8), nn.Linear(8, 1)

    def forward(self, image, prompt):
        image = self.encoder(image)
{branch}
        return self.head(image * prompt)


torch.manual_seed(0)
data = TensorDataset(torch.randn(32, 6), torch.randn(32, 8), torch.rand(32, 1))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for image, prompt, target in loader:
        loss = nn.functional.mse_loss(model(image, prompt), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
"""
REPEAT = "image = torch.repeat_interleave(image, prompt.shape[0], dim=0)"


def script(branch: str) -> str:
    return SCRIPT.replace("{branch}", indent(branch, " " * 8))


@pytest.mark.parametrize(
    "branch",
    [
        f"if image.shape[0] != prompt.shape[0]:\n    {REPEAT}",
        f"if image.size(0) < prompt.size(0):\n    {REPEAT}",
        f"if len(image) == len(prompt):\n    pass\nelse:\n    {REPEAT}",
        "b, n = image.shape[0], prompt.shape[0]\nif b != n:\n    image = image.repeat_interleave(n, 0)",
        "b, c = image.shape\nif b == 1:\n    image = image.repeat(prompt.shape[0], 1)",
        f"if image.shape[:1] != prompt.shape[:1]:\n    {REPEAT}",
        f"if MANY:\n    {REPEAT}",
        f"if MODE == 'many':\n    {REPEAT}",
        "image = image if image.shape == prompt.shape else image.repeat(len(prompt), 1)",
        f"if isinstance(prompt, (list, tuple)):\n    {REPEAT}",
        "if hasattr(self, 'memory'):\n    image = image @ image.T @ image",
        "if len(image) != len(prompt):\n    image = torch.cdist(image, prompt) @ prompt",
        f"if len(image) == len(prompt):\n    return self.head(image * prompt)\n{REPEAT}",
    ],
)
def test_it_is_a_warning_at_the_operation(branch: str, tmp_path: Path) -> None:
    text, said = converted(tmp_path, script(branch))
    assert "AD9" not in said and "model = DDP(Net()" in text
    assert "training is taken not to come here" in said


@pytest.mark.parametrize(
    "branch", ["if many:\n    " + REPEAT, "if counts is not None:\n    image = image @ image.T @ image"]
)
def test_a_default_that_no_call_changes_decides(branch: str, tmp_path: Path) -> None:
    text = script(branch).replace("image, prompt):", "image, prompt, many=False, counts=None):")
    assert "taken not to come" not in converted(tmp_path, text)[1]


@pytest.mark.parametrize(
    "branch",
    [
        REPEAT,
        f"if image.shape[0] == prompt.shape[0]:\n    {REPEAT}",
        f"if self.training:\n    {REPEAT}",
        f"if len(image) > 1:\n    {REPEAT}",
        f"if prompt.mean() > 0:\n    {REPEAT}",
    ],
)
def test_where_training_comes_the_operation_is_refused_at_its_line(branch: str, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    text = script(branch + "\nprompt = prompt.repeat_interleave(len(target := image) // len(prompt), 0)")
    path.write_text(text)
    result = convert(Project.load(path), Config(Strategy.DDP))
    (refused,) = [each for each in result.diagnostics if each.code == "AD906"]
    assert refused.message.startswith("torch.repeat_interleave(image, prompt.shape[0], dim=0) lets each sample")
    assert refused.line == next(i for i, line in enumerate(text.splitlines(), 1) if REPEAT in line)


CONTRAST = """\
if CONTRAST:
            loss = loss + nn.functional.cross_entropy(model.encoder(image) @ prompt.T, torch.arange(len(image)))
        optimizer.zero_grad()"""


@pytest.mark.parametrize("value", [True, False])
def test_a_loss_that_a_setting_switches_off_is_still_that_of_all_ranks(value: bool, tmp_path: Path) -> None:
    text = script("pass").replace("MANY, MODE", f"CONTRAST = {value}\nMANY, MODE")
    after, said = converted(tmp_path, text.replace("optimizer.zero_grad()", CONTRAST))
    assert "RowsOfAllRanks.apply(" in after and "AD602" not in said


def test_it_trains_as_before(tmp_path: Path, zygote: Zygote | None) -> None:
    assert differences(tmp_path, zygote, script(f"if image.shape[0] != prompt.shape[0]:\n    {REPEAT}")) is None


def test_what_evaluation_alone_comes_to_is_not_worth_saying(tmp_path: Path) -> None:
    said = converted(tmp_path, script(f"if not self.training:\n    {REPEAT}"))[1]
    assert "AD602" not in said and "AD9" not in said
