"""Do the probes still hear what happens? Tried at the end of every run, on a training of two samples.

A script, a library or another release of torch may have put the probes out of action. What they do not report then
must not pass for something that did not happen.
"""

from __future__ import annotations

import io
import os
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from autodist.verify.trace import TraceWriter

EVENTS = {
    "data": ("loader", "pass", "batch", "exhausted"),
    "training": ("backward", "step"),
    "files": ("write", "save"),
}
"""What each probe has to report."""


def unheard(trace: TraceWriter, folder: Path) -> list[str]:
    """The probes that miss something of a small training run. Nothing of it gets into the trace."""
    trace.diverted = []
    trained: str | None = None
    try:
        train(folder)
    except Exception as error:
        trained = f"{type(error).__name__}: {error}"
    heard, trace.diverted = set(trace.diverted), None
    silent = [probe for probe, events in EVENTS.items() if not heard.issuperset(events)]
    return silent if trained is None or not silent else [f"{probe} ({trained})" for probe in silent]


def train(folder: Path) -> None:
    """Read samples, step an optimizer, write a file and a checkpoint."""
    with torch.device("cpu"), torch.inference_mode(False), torch.enable_grad():
        model = nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for (x,) in DataLoader(TensorDataset(torch.ones(2, 1)), batch_size=2):
            optimizer.zero_grad()
            model(x.to(model.weight.dtype)).sum().backward()
            optimizer.step()
    written = folder / f"autodist-exercise-{os.getpid()}.txt"
    written.write_text("")
    written.unlink()
    torch.save({}, io.BytesIO())
