"""Trainings on pictures: shares of a batch, folders that rank 0 makes, keys of a wrapper, masks of data."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

HEAD = """\
import os
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

"""
DATA = """\
batch_size = 8
train_set = TensorDataset(torch.randn(64, 4), torch.randint(0, 3, (64,)))
loader = DataLoader(train_set, batch_size=batch_size, shuffle=True)
"""
MODEL = """\
model = nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
LEARNS = """\
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
TRAINING = f"""\
for epoch in range(2):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
{LEARNS}"""
EASIEST = """\


def easiest(logits, y, keep):
    order = nn.functional.cross_entropy(logits, y, reduction="none").detach().argsort()
    return nn.functional.cross_entropy(logits[order[:keep]], y[order[:keep]])


"""


@pytest.mark.parametrize(
    ("counted", "given", "expected"),
    [
        ("keep = int(0.7 * y.shape[0])", "keep", "keep = int(0.7 * (y.shape[0] * dist.get_world_size()))"),
        ("n = len(y)\n        keep = n * 7 // 10", "keep", "n = len(y) * dist.get_world_size()"),
        ("pass", "int(0.7 * len(y))", "int(0.7 * (len(y) * dist.get_world_size()))"),
        ("keep = y.size(0)", "keep", "keep = y.size(0) * dist.get_world_size()"),  # nothing is rounded
    ],
)
def test_a_share_of_the_batch_is_rounded_once(tmp_path: Path, counted: str, given: str, expected: str) -> None:
    step = f"        {counted}\n        loss = easiest(model(x), y, {given})\n"
    code = HEAD + EASIEST + DATA + MODEL + TRAINING.partition("        loss")[0] + step + LEARNS
    after, _ = conftest.converted(tmp_path, code)
    assert expected in after


@pytest.mark.parametrize(("folder", "guarded"), [("run.log_dir", True), ("run.root", True), ("run.elsewhere", False)])
def test_a_folder_inside_of_one_that_rank_0_makes_is_made_there_too(tmp_path: Path, folder: str, guarded: bool) -> None:
    """CJL196/FixMatch: rank 1 came first to a folder inside, and rank 0 found its own where it had not been."""
    begin = f"""\
def note(folder):
    os.makedirs(folder, exist_ok=True)


def prepare(run):
    run.root = os.path.join("runs", run.name)
    if not os.path.exists(run.root):
        os.makedirs(run.root)
    run.log_dir = os.path.join(run.root, "log")
    note({folder})


"""
    run = "run = argparse.Namespace(name=os.environ['NAME'], elsewhere=os.environ['CACHE'])\nprepare(run)\n"
    after, _ = conftest.converted(tmp_path, f"import argparse\n{HEAD}{begin}{run}{DATA}{MODEL}{TRAINING}")
    assert ("    if dist.get_rank() == 0:\n        os.makedirs(folder, exist_ok=True)\n" in after) is guarded


@pytest.mark.parametrize(
    ("keyed", "inside"),
    [('"module." + name if wrapped else name', False), ("name", True)],
)
def test_who_knows_the_keys_of_a_wrapper_is_given_them(tmp_path: Path, keyed: str, inside: bool) -> None:
    """CJL196/FixMatch: an average of the weights looked for "module.weight" in the state of the model inside."""
    average = f"""\
class Average:
    def __init__(self, model):
        self.kept = copy.deepcopy(model)

    def update(self, model):
        wrapped = hasattr(model, "module")
        state = model.state_dict()
        for name, kept in self.kept.state_dict().items():
            kept.lerp_(state[{keyed}], 0.1)


"""
    update = "        average.update(model)\n"
    code = f"import copy\n{HEAD}{average}{DATA}{MODEL}average = Average(model)\n{TRAINING}{update}"
    after, _ = conftest.converted(tmp_path, code)
    assert ("state = model.module.state_dict()" in after) is inside


@pytest.mark.parametrize(
    ("forward", "waits"),
    [
        ("self.fc.weight.data = torch.mul(self.fc.weight, self.mask.weight)", False),
        ("self.fc.weight.data.mul_(self.mask.weight)", False),
        ("x = x * self.mask.weight.sum()", True),
    ],
)
def test_masks_that_change_data_take_no_gradients(tmp_path: Path, forward: str, waits: bool) -> None:
    """jinlovespho/SimplePruning-PyTorch: the ranks waited for the gradients of masks, and crashed."""
    net = f"""\
class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)
        self.mask = nn.Linear(4, 3, bias=False)
        self.mask.weight.data = torch.ones(self.mask.weight.size())

    def forward(self, x):
        {forward}
        return self.fc(x)


"""
    model = MODEL.replace("nn.Linear(4, 3)", "Masked()")
    after, _ = conftest.converted(tmp_path, f"{HEAD}{net}{DATA}{model}{TRAINING}")
    assert ("DDP(Masked(), gradient_as_bucket_view=True)" in after) is waits
    assert ("DDP(Masked(), find_unused_parameters=True" in after) is not waits


@pytest.mark.parametrize(
    ("sink", "quiet"),
    [('os.path.join("logs", "{time}.log")', True), ("sys.stderr", False), ("lambda line: print(line)", False)],
)
def test_loguru_writes_to_a_file_on_rank_0(tmp_path: Path, sink: str, quiet: bool) -> None:
    """CJL196/FixMatch: each rank began a log file of its own."""
    code = (
        f"import sys\nfrom loguru import logger\n{HEAD}logger.add({sink})\n{DATA}{MODEL}{TRAINING}logger.info('end')\n"
    )
    after, _ = conftest.converted(tmp_path, code)
    assert (f"logger.add({sink} if dist.get_rank() == 0 else os.devnull)" in after) is quiet
    assert (f"logger.add({sink})" in after) is not quiet


def test_what_a_parameter_is_read_for_before_it_is_picked_is_this_ranks_own(tmp_path: Path) -> None:
    """XavierSpycy/Robust-Trainers-for-Noisy-Labels: labels were gathered where a function was given them, and met the
    outputs of one rank in it."""
    helper = """\
def chosen(model, x, y):
    out = model(x)
    picked = nn.functional.cross_entropy(out, y, reduction="none").topk(int(0.7 * len(y)), largest=False)[1]
    return nn.functional.cross_entropy(out[picked], y[picked])


"""
    training = TRAINING.replace("nn.functional.cross_entropy(model(x), y)", "chosen(model, x, y)")
    after, _ = conftest.converted(tmp_path, f"{HEAD}{helper}{DATA}{MODEL}{training}")
    assert "loss = chosen(model, x, y)" in after
    assert "RowsOfAllRanks.apply(out)[picked]" in after
    assert "int(0.7 * (len(y) * dist.get_world_size()))" in after


def test_a_base_class_in_another_module_is_looked_through(tmp_path: Path) -> None:
    """saparina/neural-ode: what such a class reads ended the conversion with an error of ours."""
    (tmp_path / "base.py").write_text("""\
from torch import nn


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 3)

    def finish(self, h):
        return self.head(h)
""")
    model = """\
from base import Base


class Net(Base):
    def forward(self, x):
        return self.finish(x)


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
    after, _ = conftest.converted(tmp_path, f"{HEAD}{DATA}{model}{TRAINING}")
    assert "DDP(Net()" in after and "find_unused" not in after
