"""Code that is nested deeply is followed and rewritten like any other, and what takes long is told on a terminal."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import ROOT

from autodist.config import Config
from autodist.convert import convert
from autodist.project import Project
from autodist.terminal import Terminal

LINKS = 1000
SCRIPT = (ROOT / "examples/train.py").read_text()


def _long(inner: str) -> str:
    """A script of which one statement is this long, with a loss computed from it."""
    return f"""\
import sys
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.first, self.last = nn.Linear(16, width), nn.Linear(width, 4)
        self.same = nn.Linear(width, width)

    def forward(self, x):
        x = self.first(x)
{inner}
        return self.last(x)


net = Net()
loader = DataLoader(TensorDataset(torch.randn(64, 16), torch.randint(4, (64,))), batch_size=16, shuffle=True)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in loader:
    loss = F.cross_entropy(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
"""


def _branches(number: int) -> str:
    tests = [f'        {"el" if i else ""}if len(sys.argv) == {i}:\n            x = x * {i}\n' for i in range(number)]
    return "".join(tests).rstrip()


DEEP: dict[str, Callable[[int], str]] = {
    "chained calls": lambda n: "        x = x" + ".relu()" * n,
    "chained calls with arguments": lambda n: "        x = x" + ".clamp(min=0)" * n,
    "a sum": lambda n: "        x = x" + " + self.same(x)" * n,
    "a product": lambda n: "        x = x" + " * 0.5" * n,
    "statements": lambda n: "\n".join(["        x = self.same(x)"] * n),
    "branches": _branches,
    "conditional expressions": lambda n: "        x = " + "".join(f"x * {i} if {i} else " for i in range(n)) + "x",
    "attributes": lambda n: "        x = x" + ".data" * n + " + x",
}


@pytest.mark.parametrize("kind", DEEP)
def test_thousand_links(kind: str) -> None:
    few, many = (convert(Project.load(Path("train.py"), _long(DEEP[kind](n))), Config()) for n in (5, LINKS))
    assert [each.code for each in many.diagnostics] == [each.code for each in few.diagnostics]
    assert many.entry.after.replace(DEEP[kind](LINKS), DEEP[kind](5)) == few.entry.after


def test_the_limit_on_recursion_is_that_of_before() -> None:
    before = sys.getrecursionlimit()
    convert(Project.load(Path("train.py"), SCRIPT), Config())
    assert sys.getrecursionlimit() == before


def _on_terminal(monkeypatch: pytest.MonkeyPatch, terminal: Terminal) -> str:
    """What work of some time tells the user of a terminal."""
    monkeypatch.setattr("autodist.terminal.PATIENCE", 0.05)
    monkeypatch.setenv("CI", "")
    outer, inner = pty.openpty()
    with os.fdopen(inner, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        with terminal.progress():
            Project.load(Path("train.py"), SCRIPT)
            time.sleep(0.3)
        stream.write("end")
    with os.fdopen(outer, "rb", buffering=0) as screen:
        return b"".join(_parts(screen)).decode()


def _parts(stream: io.FileIO) -> Iterator[bytes]:
    """What a terminal was told, in as many parts as its driver hands on."""
    with contextlib.suppress(OSError):  # EIO: nobody writes any more
        while part := stream.read(4096):
            yield part


def test_progress_is_told_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    told = _on_terminal(monkeypatch, Terminal())
    assert "0 s, reading train.py" in told
    assert told.endswith("\r\x1b[Kend")  # and is gone in the end


def test_quiet_tells_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _on_terminal(monkeypatch, Terminal(quiet=True)) == "end"


def test_no_progress_in_a_pipe(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("autodist.terminal.PATIENCE", 0.05)
    with Terminal().progress():
        time.sleep(0.2)
    assert capsys.readouterr().err == ""
