"""What each process finds for itself, the clock, a signal, a file, is decided upon by all ranks together."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

SCRIPT = """\
import datetime
import os
import shutil
import signal
import threading
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

{before}
loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
start = time.time()
last = time.time()
stop = False
for epoch in range(2):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        {test}
    if stop:
        break
"""


@pytest.mark.parametrize(
    ("test", "agreed"),
    [
        ("if time.time() - start > 60: break", "if as_on_rank_zero(time.time() - start > 60):"),
        ("if time.time() - start > 60: stop = True", "if as_on_rank_zero(time.time() - start > 60):"),
        ("if epoch and time.time() > 60: raise SystemExit", "if epoch and as_on_rank_zero(time.time() > 60):"),
        ("if time.time() - last > 60: print(loss.item())", "if as_on_rank_zero(time.time() - last > 60):"),
        ("if os.path.exists('STOP'): break", "if as_on_rank_zero(os.path.exists('STOP')):"),
        ("if (Path('a') / 'STOP').exists(): break", "if as_on_rank_zero((Path('a') / 'STOP').exists()):"),
        ("if shutil.disk_usage('.').free < 9: break", "if as_on_rank_zero(shutil.disk_usage('.').free < 9):"),
    ],
)
def test_clocks_and_files(tmp_path: Path, test: str, agreed: str) -> None:
    after, report = conftest.converted(tmp_path, SCRIPT.format(before="", test=test))
    assert agreed in after
    assert "AD608" in report


@pytest.mark.parametrize(
    "test",
    [
        "if time.time() - last > 60: print(epoch)",
        "if time.time() - last > 60: last = time.time()",
        "took = time.time() - start",
        "if os.path.exists('old.pt'): os.remove('old.pt')",
    ],
)
def test_what_is_only_reported(tmp_path: Path, test: str) -> None:
    after, report = conftest.converted(tmp_path, SCRIPT.format(before="", test=test))
    assert after.count("as_on_rank_zero(") == 2  # its definition, and the seed
    assert "AD608" not in report


GLOBAL = """
caught = False
def handler(signum, frame):
    global caught
    caught = True
signal.signal(signal.SIGTERM, handler)
"""
KILLER = """
class Killer:
    def __init__(self):
        signal.signal(signal.SIGTERM, self.leave)
        self.now = False
        self.number = None
    def leave(self, *args):
        self.now = True
        self.number = args[0]
killer = Killer()
"""
EVENT = """
event = threading.Event()
flags = {"stop": False}
def handler(signum, frame):
    event.set()
    flags["stop"] = True
signal.signal(signal.SIGTERM, handler)
"""
THREAD = """
asked = False
def listen():
    global asked
    asked = input() == "q" or True
    asked = True
threading.Thread(target=listen, daemon=True).start()
"""


@pytest.mark.parametrize(
    ("before", "flag"),
    [
        (GLOBAL, "caught"),
        (KILLER, "killer.now"),
        (KILLER, "killer.number is not None"),
        (EVENT, "event.is_set()"),
        (EVENT, "flags['stop']"),
        (THREAD, "asked"),
    ],
)
def test_flags_that_a_signal_sets(tmp_path: Path, before: str, flag: str) -> None:
    """Ranks left the loop in different steps, and waited for each other."""
    after, report = conftest.converted(tmp_path, SCRIPT.format(before=before, test=f"if {flag}: break"))
    assert f"if on_any_rank({flag}):" in after
    assert "AD608" in report


INTERRUPTED = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
try:
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
except KeyboardInterrupt:
    {handled}
{later}
"""


@pytest.mark.parametrize(
    ("handled", "later", "warned"),
    [
        ("print('stopped')", "print(model(torch.ones(1, 4)))", True),
        ("print(model(torch.ones(1, 4)))", "", True),
        ("torch.save(model.state_dict(), 'last.pt')", "", False),
        ("raise", "print(model(torch.ones(1, 4)))", False),
    ],
)
def test_interrupts(tmp_path: Path, handled: str, later: str, warned: bool) -> None:
    report = conftest.converted(tmp_path, INTERRUPTED.format(handled=handled, later=later))[1]
    assert ("an interrupt reaches each rank in another step" in report) is warned


CAUGHT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def step(x, y):
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def train():
    for x, y in loader:
        {step}


{whole}
"""


@pytest.mark.parametrize(
    ("step", "whole", "warned"),
    [
        ("try: step(x, y)\n        except RuntimeError: continue", "train()", True),
        ("try: step(x, y)\n        except Exception as e: print(e)", "train()", True),
        ("try: step(x, y)\n        except RuntimeError: raise", "train()", False),
        ("step(x, y)", "try: train()\nexcept Exception as e: print(e)", False),
        ("step(x, y)", "for fold in range(2):\n    train()", False),
    ],
)
def test_errors_that_a_step_goes_on_from(tmp_path: Path, step: str, whole: str, warned: bool) -> None:
    """A rank whose memory is full leaves out its step, in which the others wait for it."""
    _, said = conftest.converted(tmp_path, CAUGHT.format(step=step, whole=whole))
    assert ("leaves the others waiting" in said) == warned, said


@pytest.mark.parametrize(
    ("loop", "warned"),
    [
        ("for batch in loader:\n    if batch is None: continue\n    x, y = batch", True),
        ("for i, batch in enumerate(loader):\n    if i > 0 and batch is None: continue\n    x, y = batch", True),
        ("for x, y in loader:\n    if y is not None: x = x + model(x)", False),
        ("for x, y in loader:\n    if optimizer is None: continue", False),
    ],
)
def test_batches_that_a_rank_may_not_have(tmp_path: Path, loop: str, warned: bool) -> None:
    """A collate function that leaves samples out gives None where none are left."""
    head, _, rest = SCRIPT.format(before="", test="").partition("    for x, y in loader:\n")
    loop = "".join(f"    {line}\n" for line in loop.splitlines())
    _, said = conftest.converted(tmp_path, head + loop + rest)
    assert ("may hold on one rank and not on another" in said) == warned, said
