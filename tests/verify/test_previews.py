"""A batch that is only looked at between steps is not trained on, whatever mode the model is in."""

from __future__ import annotations

from pathlib import Path

import pytest

from autodist.config import Config
from autodist.convert import convert
from autodist.project import Project
from autodist.verify import verify
from autodist.verify.launch import Zygote

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=4, shuffle=True)
shown = DataLoader(TensorDataset(torch.randn(16, 4), torch.randn(16, 1)), batch_size=5, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def preview(step):
    x, _ = next(iter(shown))
    torch.save(model(x).detach(), "preview_%d.pt" % step)


for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    {extra}
    loss.backward()
    optimizer.step()
    if i % 2 == 0:
        preview(i)
"""


@pytest.mark.parametrize("extra", ["", "loss = loss + model(next(iter(shown))[0]).mean()"])
def test_previews(tmp_path: Path, zygote: Zygote | None, extra: str) -> None:
    """One that goes into the loss is trained on."""
    before, after = tmp_path / "train.py", tmp_path / "train_ddp.py"
    before.write_text(SCRIPT.format(extra=""))
    after.write_text(convert(Project.load(before), Config()).entry.after)
    for path in (before, after):
        path.write_text(path.read_text().replace("    loss.backward()", f"    {extra}\n    loss.backward()"))
    verdict = verify(before, after, [2], workdir=tmp_path, timeout=100, zygote=zygote)
    assert verdict.equal == (not extra), verdict.findings
    assert any(finding.kind == "samples-replicated" for finding in verdict.findings) == bool(extra)


FIRST_BATCHES = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def loss_of(loader, batches):
    total = 0.0
    for i, (x, y) in enumerate(loader):
        if i < batches:
            total += nn.functional.mse_loss(model(x), y).item()
        else:
            break
    return total / batches


torch.manual_seed(0)
train_set = TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
loader = DataLoader(train_set, batch_size=4, shuffle=True, drop_last=True)
val_loader = DataLoader(TensorDataset(torch.randn(16, 4), torch.randn(16, 1)), batch_size=4)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    if step % 4 == 0:
        model.eval()
        with torch.no_grad():
            print(loss_of(val_loader, 2))
        model.train()
"""


def test_a_batch_with_which_an_evaluation_ends(tmp_path: Path, zygote: Zygote | None) -> None:
    """It is read to see that there are enough of them, and another loader's batch is trained on next."""
    before, after = tmp_path / "train.py", tmp_path / "train_ddp.py"
    before.write_text(FIRST_BATCHES)
    after.write_text(convert(Project.load(before), Config()).entry.after)
    verdict = verify(before, after, [2], workdir=tmp_path, timeout=100, zygote=zygote)
    assert verdict.equal, verdict.findings


def test_a_random_part_of_the_training_data_is_evaluated(tmp_path: Path, zygote: Zygote | None) -> None:
    """A loader that shuffles and drops the rest looks at other samples each time, whoever asks."""
    before, after = tmp_path / "train.py", tmp_path / "train_ddp.py"
    text = FIRST_BATCHES.replace("torch.randn(32, 4), torch.randn(32, 1)", "torch.randn(27, 4), torch.randn(27, 1)")
    before.write_text(text.replace("loss_of(val_loader, 2)", "loss_of(loader, 6)"))
    after.write_text(convert(Project.load(before), Config()).entry.after)
    verdict = verify(before, after, [2], workdir=tmp_path, timeout=100, zygote=zygote)
    assert verdict.equal, verdict.findings


CUT_SHORT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
train_set = TensorDataset(torch.randn(16, 4), torch.randn(16, 1))
rest = TensorDataset(torch.randn(16, 4), torch.randn(16, 1))
for rate in (0.1, 0.01):
    loader = DataLoader(train_set, batch_size=4, shuffle=True)
    valid = DataLoader(rest, batch_size=4)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    model.eval()
    total = 0.0
    with torch.no_grad():
        for i, (x, y) in enumerate(valid):
            if i == 2:
                break
            total += nn.functional.mse_loss(model(x), y).item()
    print(rate, total / 2)
"""


def test_an_evaluation_that_is_cut_short(tmp_path: Path, zygote: Zygote | None) -> None:
    """The batch that it has left when it is broken off is none of the training that follows."""
    before, after = tmp_path / "train.py", tmp_path / "train_ddp.py"
    before.write_text(CUT_SHORT)
    after.write_text(convert(Project.load(before), Config()).entry.after)
    verdict = verify(before, after, [2], workdir=tmp_path, timeout=100, zygote=zygote)
    assert verdict.equal, verdict.findings
