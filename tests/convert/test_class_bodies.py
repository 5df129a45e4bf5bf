"""Statements in the body of a class run where the class is defined, before anything is called."""

from __future__ import annotations

from pathlib import Path

import conftest

SCRIPT = """\
import os

import torch
from torch import nn


class Config:
    folder = "runs"
    if not os.path.exists(folder):
        os.makedirs(folder)


def main(config):
    data = torch.utils.data.TensorDataset(torch.randn(16, 4))
    loader = torch.utils.data.DataLoader(data, batch_size=4, shuffle=True)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for (x,) in loader:
        loss = model(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.save(model.state_dict(), config.folder + "/model.pt")


if __name__ == "__main__":
    main(Config())
"""


def test_the_group_is_joined_above_a_class_that_makes_folders(tmp_path: Path) -> None:
    """Its body asks for the rank."""
    text, _ = conftest.converted(tmp_path, SCRIPT)
    assert (
        text.index("\nsetup_distributed()") < text.index("class Config:") < text.index("dist.get_rank() == 0 and not")
    )
    assert text.count("setup_distributed()") == 2


def test_methods_run_where_they_are_called(tmp_path: Path) -> None:
    """What a method does is no matter of the class's definition."""
    method = "    folder = 'runs'\n\n    def __init__(self):\n        os.makedirs(self.folder, exist_ok=True)\n"
    body = SCRIPT[SCRIPT.index('    folder = "runs"') : SCRIPT.index("\n\ndef main")]
    text, _ = conftest.converted(tmp_path, SCRIPT.replace(body, method))
    assert text.index('if __name__ == "__main__":') < text.index("    setup_distributed()\n")


DEFAULTS = """\
import torch
from torch import nn


def batches():
    data = torch.utils.data.TensorDataset(torch.randn(16, 4))
    return torch.utils.data.DataLoader(data, batch_size=4, shuffle=True)


def fit(device=torch.device("cpu"){more}):
    loader = {loader}
    model = nn.Linear(4, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for (x,) in loader:
        loss = model(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item())


if __name__ == "__main__":
    fit()
"""


def test_the_group_is_joined_above_a_function_whose_default_asks_for_the_rank(tmp_path: Path) -> None:
    """A default is made where the function is defined, and not where it is called."""
    text, _ = conftest.converted(tmp_path, DEFAULTS.format(more=", data=batches()", loader="data"))
    assert text.index("\nsetup_distributed()") < text.index("def fit(")


def test_a_default_that_is_a_device_asks_for_no_rank(tmp_path: Path) -> None:
    """The group is joined where the work begins."""
    text, _ = conftest.converted(tmp_path, DEFAULTS.format(more="", loader="batches()"))
    assert '__main__":\n    setup_distributed()\n' in text and text.count("setup_distributed()") == 2
