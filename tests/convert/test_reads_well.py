"""What a reviewer would strike out of a diff: more lines than needed, quotes and columns unlike those around them."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

TAIL = """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
HEAD = """\
import os
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

"""
MADE = """
data = TensorDataset(torch.randn(64, 4), torch.randint(2, (64,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = nn.Linear(4, 2)
"""


def test_a_condition_goes_with_its_only_statement(tmp_path: Path) -> None:
    """Neither `pass` nor an empty test is left where a device was chosen."""
    chosen = "if torch.cuda.is_available():\n    torch.cuda.set_device(0)\n"
    hidden = "if len(sys.argv) > 1:\n    os.environ['CUDA_VISIBLE_DEVICES'] = sys.argv[1]\n"
    after, _ = conftest.converted(tmp_path, HEAD + hidden + chosen + MADE + TAIL)
    assert "pass\n" not in after and "set_device(0)" not in after and "len(sys.argv)" not in after


def test_a_condition_with_an_effect_stays(tmp_path: Path) -> None:
    """What it calls may do something."""
    chosen = "if sys.argv.pop():\n    torch.cuda.set_device(0)\n"
    after, _ = conftest.converted(tmp_path, HEAD + chosen + MADE + TAIL)
    assert "if sys.argv.pop():\n    pass\n" in after


def test_a_text_keeps_its_quotes(tmp_path: Path) -> None:
    """That of the line around it."""
    device = "device = torch.device('cuda:0' if torch.cuda.is_available() else 'cpu')\n"
    after, _ = conftest.converted(tmp_path, HEAD + device + MADE.replace("2)\n", "2).to(device)\n") + TAIL)
    assert "torch.device('cuda' if torch.cuda.is_available() else 'cpu')" in after


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_data_set_that_is_given_a_name(tmp_path: Path, newline: str) -> None:
    """Its lines stay below each other, and none comes between them."""
    made = """
def make(size):
    return DataLoader(
        TensorDataset(torch.randn(64, 4),
                      torch.randint(2, (64,))),
        batch_size=size, shuffle=True)


loader = make(8)
model = nn.Linear(4, 2)
"""
    path = tmp_path / "train.py"
    path.write_bytes((HEAD + made + TAIL).replace("\n", newline).encode())
    after, _ = conftest.converted_file(path)
    wanted = (
        "    train_set = TensorDataset(torch.randn(64, 4),\n                              torch.randint(2, (64,)))\n"
    )
    assert wanted.replace("\n", newline) in after


def test_downloads_in_several_branches(tmp_path: Path) -> None:
    """They are waited for once, around the condition."""
    made = """
from torchvision import datasets

if sys.argv[1] == "mnist":
    data = datasets.MNIST("data", download=True)
elif sys.argv[1] == "fashion":
    data = datasets.FashionMNIST("data", download=True)
else:
    raise ValueError(sys.argv[1])
loader = DataLoader(data, batch_size=8, shuffle=True)
model = nn.Linear(784, 10)
"""
    after, _ = conftest.converted(tmp_path, HEAD + made + TAIL)
    assert "with rank_zero_first():\n    if sys.argv[1]" in after and after.count("with rank_zero_first") == 1


PARTS = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])

    def forward(self, x, part):
        return self.parts[part](x)


data = TensorDataset(torch.randn(64, 4))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = Net()
{wrapping}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (x,) in loader:
    loss = 0
    for _ in range(2):
        loss += nn.functional.mse_loss(model(x, {part}), x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_data_parallel_around_a_model_whose_gradients_are_averaged(tmp_path: Path) -> None:
    """It keeps to the device of its rank, since the script may ask for what it wraps."""
    text = PARTS.format(
        part="torch.randint(2, ()).item()", wrapping="model = nn.DataParallel(model, device_ids=range(2))"
    )
    after, said = conftest.converted(tmp_path, HEAD + text)
    assert 'nn.DataParallel(model, device_ids=[int(os.environ["LOCAL_RANK"])])' in after
    assert "AD401 DataParallel uses the devices of one process" in said


def test_data_parallel_that_a_condition_asks_for(tmp_path: Path) -> None:
    """It goes, with the condition."""
    text = PARTS.format(
        part="torch.randint(2, ()).item()",
        wrapping="if torch.cuda.device_count() > 1:\n    model = nn.DataParallel(model)",
    )
    after, _ = conftest.converted(tmp_path, HEAD + text)
    assert "DataParallel" not in after and "device_count() >" not in after and "average_gradients(optimizer)" in after


def test_two_models_in_data_parallel_under_one_condition(tmp_path: Path) -> None:
    """Both begin as on rank 0, and the condition goes once."""
    wrapping = """\
other = Net()
if torch.cuda.device_count() > 1:
    model = nn.DataParallel(model)
    other = nn.DataParallel(other)"""
    text = PARTS.format(part="torch.randint(2, ()).item()", wrapping=wrapping).replace(
        ".item()), x)", ".item()), other(x, torch.randint(2, ()).item()))"
    )
    text = text.replace("model.parameters()", "list(model.parameters()) + list(other.parameters())")
    after, said = conftest.converted(tmp_path, HEAD + text)
    assert "DataParallel" not in after and "device_count() >" not in after, said
    assert "model.state_dict()" in after and "other.state_dict()" in after, after


def test_a_model_that_is_unwrapped_already(tmp_path: Path) -> None:
    """DistributedDataParallel has a `module`, as DataParallel has."""
    saved = """\
kept = model.module if hasattr(model, "module") else model
torch.save(kept.state_dict(), "model.pt")
"""
    wrapped = "if torch.cuda.device_count() > 1:\n    model = nn.DataParallel(model)\n"
    after, _ = conftest.converted(tmp_path, HEAD + MADE + wrapped + TAIL + saved)
    assert "torch.save(kept.state_dict()" in after and "getattr(" not in after


CHOSEN = """
class First(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(4, 2)

    def forward(self, x):
        return self.out(x)

    def encode(self, x):
        return self.out(x)


class Second(First):
    pass


data = TensorDataset(torch.randn(64, 4), torch.randint(2, (64,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = {"first": First, "second": Second}[sys.argv[1]]()
"""


def test_one_of_several_models(tmp_path: Path) -> None:
    """What is said of each of them is said once."""
    text = HEAD + CHOSEN + TAIL.replace("model(x)", "model.encode(x)")
    _, said = conftest.converted(tmp_path, text)
    lines = said.splitlines()
    assert len(lines) == len(set(lines)) and any("AD404 Distributed" in each for each in lines)
