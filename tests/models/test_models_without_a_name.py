"""Models that are made in the argument of a call are wrapped there."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted, differences

from autodist.config import Strategy
from autodist.verify.launch import Zygote

SCRIPT = """\
import copy

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Linear(4, 2), {up}

    def encode(self, x):
        return self.down(x)

    def forward(self, x):
        return self.up(self.encode(x))


def build():
    net = nn.Linear(4, 4)
    return nn.Sequential(net, nn.ReLU())


def fit(model, loader, other=None):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        for (x,) in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss({called}, x).backward()
            optimizer.step()
    torch.save(model.state_dict(), "model.pt")


wide = True
data = TensorDataset(torch.randn(64, 4))
loader = DataLoader(data, batch_size=8, shuffle=True)
{lines}
"""
LINEAR, NORMED = "nn.Linear(2, 4)", "nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 4))"
FORWARD, METHOD = "model(x)", "model.up(model.encode(x))"


def script(lines: str, up: str = LINEAR, called: str = FORWARD) -> str:
    return SCRIPT.format(lines=lines, up=up, called=called)


@pytest.mark.parametrize(
    ("lines", "wrapped"),
    [
        ("fit(Net(), loader)", "fit(DDP(Net(), VIEWS), loader)"),
        ("fit(loader=loader, model=Net())", "fit(loader=loader, model=DDP(Net(), VIEWS))"),
        ("fit(Net().train(), loader)", "fit(DDP(Net().train(), VIEWS), loader)"),
        ("fit(Net() if wide else build(), loader)", "fit(DDP(Net() if wide else build(), VIEWS), loader)"),
        ("fit(build(), loader)", "fit(DDP(build(), VIEWS), loader)"),
        ("for _ in range(2):\n    fit(Net(), loader)", "    fit(DDP(Net()), loader)"),
        ("done = [fit(Net(), loader) for _ in range(2)]", "[fit(DDP(Net()), loader) for _ in range(2)]"),
        ("run = lambda model: fit(model, loader)\nrun(Net())", "run(DDP(Net(), VIEWS))"),
        ("net = Net()\nfit(copy.deepcopy(net), loader)", "fit(DDP(copy.deepcopy(net), VIEWS), loader)"),
        ("net = Net()\nfit(net, loader)\nfit(Net(), loader)", "fit(DDP(Net()), loader)"),
        ("fit(Net(), loader)\nfit(Net(), loader)", "fit(DDP(Net()), loader)\nfit(DDP(Net()), loader)"),
    ],
)
def test_made_in_an_argument(tmp_path: Path, lines: str, wrapped: str) -> None:
    """The conversion asked for a name, which nobody gives a model that one function trains."""
    code, said = converted(tmp_path, script(lines))
    assert wrapped.replace("VIEWS", "gradient_as_bucket_view=True") in code, said
    assert "model.module.state_dict()" in code


@pytest.mark.parametrize("lines", ["fit(build(), loader)\nfit(build(), loader)", "args = [Net(), loader]\nfit(*args)"])
def test_which_one_is_meant_cannot_be_told(tmp_path: Path, lines: str) -> None:
    """Of several that one place makes, or of a list that also holds something else."""
    code, said = converted(tmp_path, script(lines))
    assert "name of its own" in said or "cannot see where to wrap this model" in said
    assert "DDP(" not in code


def test_trained_where_it_is_written(tmp_path: Path) -> None:
    """All ranks train, and one of them writes: the training has to be taken out of the call first."""
    text = script("torch.save(fit(Net(), loader), 'm.pt')")
    text = text.replace('torch.save(model.state_dict(), "model.pt")', "return model.state_dict()")
    code, said = converted(tmp_path, text)
    assert "give it a name of its own" in said and "DDP(" not in code


def test_two_of_one_call(tmp_path: Path, zygote: Zygote | None) -> None:
    """Both are wrapped, and not one for the other."""
    text = script("fit(Net(), loader, Net())").replace("optim.SGD(model.parameters()", "optim.SGD(both(model, other)")
    text = text.replace(
        "def fit", "def both(one, two):\n    return [*one.parameters(), *two.parameters()]\n\n\ndef fit"
    )
    text = text.replace("mse_loss(model(x), x)", "mse_loss(other(model(x)), x)")
    assert "fit(DDP(Net()), loader, DDP(Net()))" in converted(tmp_path, text)[0]
    assert differences(tmp_path, zygote, text) is None


def test_batch_statistics(tmp_path: Path, zygote: Zygote | None) -> None:
    """They are those of all ranks, where the model has no name to be converted by."""
    text = script("fit(Net().to(device), loader)", up=NORMED)
    text = text.replace("wide =", 'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\nwide =')
    text = text.replace("nn.functional.mse_loss", "x = x.to(device)\n            nn.functional.mse_loss")
    assert (
        "fit(DDP(synchronised(Net().to(device)), gradient_as_bucket_view=True), loader)" in converted(tmp_path, text)[0]
    )
    assert differences(tmp_path, zygote, text) is None


def test_gradients_averaged_by_hand(tmp_path: Path, zygote: Zygote | None) -> None:
    """All ranks take the weights of rank 0 there."""
    text = script("fit(Net(), loader)", called=METHOD)
    code, said = converted(tmp_path, text)
    assert "fit(started_alike(Net()), loader)" in code and "average_gradients(optimizer)" in code, said
    assert differences(tmp_path, zygote, text) is None


def test_shards_need_a_name(tmp_path: Path) -> None:
    """A model is sharded in place, ahead of its optimizer."""
    code, said = converted(tmp_path, script("fit(Net(), loader)"), Strategy.FSDP)
    assert "bind it to a name first" in said and "fully_shard" not in code, said
