"""Functions that are run at another time: when a signal comes, or once the script is over."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

from autodist.config import Strategy

SCRIPT = """\
import atexit
import signal
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


{handler}

model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8, shuffle=True)
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
"""
HANDLERS = {
    "signal": """\
def save(number, frame):
    torch.save(model.state_dict(), "model.pt")
    sys.exit(0)


signal.signal(signal.SIGTERM, save)
""",
    "exit": """\
def save(path):
    torch.save(model.state_dict(), path)


atexit.register(save, "model.pt")
""",
    "decorated": """\
@atexit.register
def save():
    torch.save(model.state_dict(), "model.pt")
""",
}


@pytest.mark.parametrize("handler", HANDLERS)
def test_models_are_looked_at_where_the_handler_runs(tmp_path: Path, handler: str) -> None:
    """The model is made after the function is registered, and wrapped when it is called."""
    after, _ = converted(tmp_path, SCRIPT.format(handler=HANDLERS[handler]))
    assert "if dist.get_rank() == 0:\n        torch.save(model.module.state_dict(), " in after


@pytest.mark.parametrize("handler", HANDLERS)
def test_shards_are_gathered_by_all_ranks(tmp_path: Path, handler: str) -> None:
    """At the end of the script, all ranks come there; a signal interrupts each of them in another step."""
    after, messages = converted(tmp_path, SCRIPT.format(handler=HANDLERS[handler]), Strategy.FSDP)
    assert "    save_gathered(model" in after

    assert ("the signal interrupts each of them in another step" in messages) == (handler == "signal")


def test_flags_of_handlers_are_left_alone(tmp_path: Path) -> None:
    """What a handler notes is agreed on where it is asked for."""
    handler = "stop = []\n\n\nsignal.signal(signal.SIGTERM, lambda number, frame: stop.append(number))\n"
    _, messages = converted(tmp_path, SCRIPT.format(handler=handler), Strategy.FSDP)
    assert "AD608" not in messages


def test_the_group_is_there_until_the_last_function(tmp_path: Path) -> None:
    """What is registered later is run earlier: the process group ends after what the script itself has registered."""
    begin, _, rest = SCRIPT.format(handler=HANDLERS["exit"]).partition("\nmodel = ")
    body = "".join(f"    {line}\n" for line in f"global model\nmodel = {rest}".splitlines())
    after, _ = converted(tmp_path, f'{begin}\n\ndef main():\n{body}\n\nif __name__ == "__main__":\n    main()\n')
    assert after.index("\nsetup_distributed()\n") < after.index("\natexit.register(save")
