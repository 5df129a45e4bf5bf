"""What threads, processes and pools write and are given: they run beside the steps, and cannot communicate."""

from __future__ import annotations

from pathlib import Path

from conftest import converted

SCRIPT = """\
import json
import queue
import threading
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Writer(threading.Thread):
    def __init__(self):
        super().__init__(daemon=True)
        self.queue = queue.Queue()

    def run(self):
        while True:
            item = self.queue.get()
            if item is None:
                return
            torch.save(item, "queue.pt")


def report(step, loss):
    print(f"step {step} loss {loss:.5f}")


loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
pool = ThreadPoolExecutor(max_workers=1)
writer = Writer()
writer.start()
for step, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    WORK
writer.queue.put(model.state_dict())
writer.queue.put(None)
"""


def working(folder: Path, work: str) -> tuple[str, str]:
    """The script with something that is done beside the steps."""
    text, said = converted(folder, SCRIPT.replace("WORK", work.replace("\n", "\n    ")))
    return " ".join(text.split()), said


def test_a_class_of_threads_writes_on_rank_zero(tmp_path: Path) -> None:
    text, _ = working(tmp_path, "pass")
    assert 'if dist.get_rank() == 0: torch.save(item, "queue.pt")' in text


def test_a_thread_that_writes_does_nothing_on_other_ranks(tmp_path: Path) -> None:
    text, _ = working(tmp_path, 'thread = threading.Thread(target=torch.save, args=(step, "step.pt"))\nthread.start()')
    assert "threading.Thread(target=torch.save if dist.get_rank() == 0 else None, args=" in text


def test_a_pool_writes_on_rank_zero(tmp_path: Path) -> None:
    text, said = working(tmp_path, 'pool.submit(torch.save, step, "step.pt")')
    assert 'if dist.get_rank() == 0: pool.submit(torch.save, step, "step.pt")' in text and "hands over" not in said
    text, said = working(tmp_path, 'done = pool.submit(torch.save, step, "step.pt")\ndone.result()')
    assert "AD301 every rank hands over what writes a file here" in said
    assert text.count("as_on_rank_zero(") == 2  # its definition, and the seed


def test_what_a_thread_is_given_is_made_global_before(tmp_path: Path) -> None:
    """And nothing within it: its collectives would come between those of the steps."""
    thread = "threading.Thread(target=report, args=(step, loss.item())).start()"
    for work in (thread, "done = pool.submit(report, step, loss.item())"):
        text, _ = working(tmp_path, work)
        assert "step, reduce_mean(loss.item())" in text and 'print(f"step {step} loss {loss:.5f}")' in text
