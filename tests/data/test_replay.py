"""Memories of earlier samples that steps train on again: all ranks keep the samples of all."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

SCRIPT = """\
import random
from collections import deque

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

random.seed(0)
np.random.seed(0)


{memory}


data = TensorDataset(torch.randn(128, 6), torch.randint(0, 3, (128,)))
loader = DataLoader(data, batch_size=16, shuffle=True)
model = nn.Linear(6, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{made}
for epoch in range(2):
    for x, y in loader:
        out = model(x)
        loss = nn.functional.cross_entropy(out, y)
        if {filled}:
            bx, by = {drawn}
            loss = loss + nn.functional.cross_entropy(model(bx), by)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        {kept}
"""
RESERVOIR = """\
def reservoir(seen, size):
    if seen < size:
        return seen
    place = np.random.randint(0, seen + 1)
    return place if place < size else -1


class Memory:
    def __init__(self, size):
        self.size = size
        self.seen = 0
        self.names = ["examples", "labels"]

    def init_tensors(self, examples, labels):
        for name in self.names:
            rows = eval(name)
            kind = torch.int64 if name == "labels" else torch.float32
            setattr(self, name, torch.zeros((self.size, *rows.shape[1:]), dtype=kind))

    def push(self, examples, labels):
        if not hasattr(self, "examples"):
            self.init_tensors(examples, labels)
        for i in range(examples.shape[0]):
            index = reservoir(self.seen, self.size)
            self.seen += 1
            if index >= 0:
                self.examples[index] = examples[i]
                self.labels[index] = labels[i]

    def sample(self, n):
        choice = np.random.choice(min(self.seen, self.size), size=n, replace=False)
        return self.examples[choice], self.labels[choice]
"""
PAIRS = """\
class Memory:
    def __init__(self, size):
        self.size = size
        self.seen = 0
        self.rows = []

    def push(self, x, y):
        for i in range(len(y)):
            self.seen += 1
            if len(self.rows) < self.size:
                self.rows.append((x[i], y[i]))
                continue
            place = random.randint(0, self.seen - 1)
            if place < self.size:
                self.rows[place] = (x[i], y[i])

    def sample(self, n):
        picked = random.sample(self.rows, n)
        return torch.stack([each[0] for each in picked]), torch.stack([each[1] for each in picked])
"""
LATEST = """\
class Memory:
    def __init__(self, size):
        self.seen = 0
        self.rows = deque(maxlen=size)

    def push(self, x, y):
        self.seen += len(y)
        for one, label in zip(x, y):
            self.rows.append((one.clone(), label))

    def sample(self, n):
        picked = random.sample(self.rows, n)
        return torch.stack([each[0] for each in picked]), torch.stack([each[1] for each in picked])
"""


def script(memory: str, kept: str = "memory.push(x, y)") -> str:
    return SCRIPT.format(
        memory=memory,
        made="memory = Memory(20)",
        filled="memory.seen > 8",
        drawn="memory.sample(8)",
        kept=kept,
    )


@pytest.mark.parametrize("memory", [RESERVOIR, PAIRS, LATEST], ids=["reservoir", "pairs", "latest"])
def test_memories_hold_the_samples_of_all_ranks(tmp_path: Path, memory: str) -> None:
    after, messages = conftest.converted(tmp_path, script(memory))
    assert "memory.push(gather_rows(x), gather_rows(y))" in after
    assert "keeps" not in messages and "draws for" not in messages


def test_what_goes_with_a_kept_sample_is_gathered_too(tmp_path: Path) -> None:
    """No loss is made of these labels, and yet they are taken by the numbers of all ranks' samples."""
    text = script(RESERVOIR).replace("nn.functional.cross_entropy(model(bx), by)", "model(bx).pow(2).mean()")
    after, _ = conftest.converted(tmp_path, text)
    assert "memory.push(gather_rows(x), gather_rows(y))" in after


def test_samples_kept_in_the_loop_itself_are_warned_of(tmp_path: Path) -> None:
    text = script(LATEST, "for one, label in zip(x, y):\n            memory.rows.append((one, label))")
    text = text.replace("memory.seen > 8", "len(memory.rows) > 8")
    _, messages = conftest.converted(tmp_path, text)
    assert "keeps (one, label) for later steps" in messages


@pytest.mark.parametrize("kept", ["memory.append((x, y))", "hardest.append(loss.item())"])
def test_whole_batches_and_numbers_are_left_alone(tmp_path: Path, kept: str) -> None:
    """Each rank trains again on its share of an earlier batch: that is what one process does with all of it."""
    text = SCRIPT.format(
        memory="hardest = []",
        made="memory = deque(maxlen=3)",
        filled="len(memory) > 1",
        drawn="random.choice(memory)",
        kept=kept,
    )
    after, messages = conftest.converted(tmp_path, text)
    assert "gather_rows" not in after and "keeps" not in messages


HISTORY = """\
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Resampler:
    def __init__(self):
        self.history = np.zeros([4, 2])
        self.counts = np.zeros([4], dtype=int)

    def is_ready(self):
        return (self.counts == 2).all()

    def weights(self):
        return np.sqrt((self.history**2).mean(-1)) if self.is_ready() else np.ones(4)

    def sample(self, size):
        p = self.weights() / self.weights().sum()
        steps = np.random.choice(4, size=(size,), p=p)
        return torch.from_numpy(steps), torch.from_numpy(1 / (4 * p[steps])).float()

    def update(self, steps, losses):
        for t, loss in zip(steps, losses):
            if self.counts[t] == 2:
                self.history[t, :-1] = self.history[t, 1:]
                self.history[t, -1] = loss
            else:
                self.history[t, self.counts[t]] = loss
                self.counts[t] += 1


loader = DataLoader(TensorDataset(torch.randn(64, 8)), batch_size=8, shuffle=True)
model = nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
resampler = Resampler()
for epoch in range(2):
    for (x,) in loader:
        t, weights = resampler.sample(x.shape[0])
        losses = (model(x * t[:, None]) - x).pow(2).mean(1)
        resampler.update(t.numpy(), losses.detach().numpy())
        loss = (losses * weights).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(resampler.weights())
"""


def test_losses_of_each_time_that_weigh_what_is_drawn(tmp_path: Path) -> None:
    """As improved diffusion keeps them: counts of gathered losses are those of all ranks already, and each rank draws
    as many times as it has samples."""
    code, _ = conftest.converted(tmp_path, HISTORY)
    assert "resampler.update(gather_rows(t).numpy(), gather_rows(losses.detach()).numpy())" in code
    assert "reduce_sum" not in code and "resampler.sample(x.shape[0])" in code


TORCH = """\
class Memory:
    def __init__(self, size):
        self.seen = 0
        self.x, self.y = torch.zeros(size, 6), torch.zeros(size, dtype=torch.long)

    def push(self, x, y):
        n = min(len(x), len(self.x) - self.seen)
        self.x[self.seen : self.seen + n] = x[:n]
        self.y[self.seen : self.seen + n] = y[:n]
        self.seen += n

    def sample(self, n):
        picked = torch.randperm(self.seen)[:n]
        return self.x[picked], self.y[picked]
"""


def test_ranks_pick_alike_from_what_all_of_them_have(tmp_path: Path) -> None:
    """Numbers that pick from a memory are no noise: ranks that draw apart train on twice as many of its samples."""
    after, messages = conftest.converted(tmp_path, script(TORCH))
    assert "self.x[self.seen : self.seen + n] = gather_rows(x)[:n]" in after
    assert "n = min(len(x) * dist.get_world_size(), len(self.x) - self.seen)" in after
    assert "initial_seed() + " not in after and "picks from" not in messages


def test_ranks_that_pick_apart_for_their_dropout_are_warned_of(tmp_path: Path) -> None:
    text = script(TORCH).replace("nn.Linear(6, 3)", "nn.Sequential(nn.Dropout(0.1), nn.Linear(6, 3))")
    after, messages = conftest.converted(tmp_path, text)
    assert "initial_seed() + " in after and "self.x[picked] picks from what all ranks have alike" in messages
