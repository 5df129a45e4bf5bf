"""Batches that steps make in ways that cannot be followed: they are shared out where a model is given them."""

from __future__ import annotations

from pathlib import Path

from conftest import converted

TOPICS = """\
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

docs = [np.random.randint(0, 30, 8) for _ in range(64)]


def get_batch(docs, ind, vocab_size):
    data_batch = np.zeros((len(ind), vocab_size))
    for i, doc_id in enumerate(ind):
        for word in docs[doc_id]:
            data_batch[i, word] += 1
    return torch.from_numpy(data_batch).float()


class Topics(nn.Module):
    def __init__(self):
        super().__init__()
        self.mu, self.out = nn.Linear(30, 5), nn.Linear(5, 30)

    def forward(self, bows, normalized):
        mu = self.mu(normalized)
        kl = 0.5 * torch.sum(mu.pow(2), dim=-1).mean()
        return -(F.log_softmax(self.out(mu), -1) * bows).sum(1).mean(), kl


model = Topics()
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(2):
    for ind in torch.split(torch.randperm(64), 16):
        data_batch = get_batch(docs, ind, 30)
        sums = data_batch.sum(1).unsqueeze(1)
        normalized = data_batch / sums
        recon, kl = model(data_batch, normalized)
        loss = recon + kl
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""

STREAMS = """\
import numpy as np
import torch
from torch import nn

text = np.random.randint(0, 9, 4000)


def get_batches(arr, batch_size, length):
    arr = arr[: len(arr) // batch_size * batch_size].reshape((batch_size, -1))
    for n in range(0, arr.shape[1] - length, length):
        yield arr[:, n : n + length], arr[:, n + 1 : n + length + 1]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(9, 8)
        self.rnn, self.fc = nn.GRU(8, 8, batch_first=True), nn.Linear(8, 9)

    def forward(self, x, hidden):
        out, hidden = self.rnn(self.embed(x), hidden)
        return self.fc(out.reshape(-1, 8)), hidden


net = Net()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(net.parameters())


def train(batch_size, length):
    for epoch in range(2):
        h = torch.zeros(1, batch_size, 8)
        for x, y in get_batches(text[:3000], batch_size, length):
            inputs, targets = torch.from_numpy(x), torch.from_numpy(y)
            h = h.data
            out, h = net(inputs, h)
            loss = criterion(out, targets.view(batch_size * length))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        held = torch.zeros(1, batch_size, 8)
        with torch.no_grad():
            for x, y in get_batches(text[3000:], batch_size, length):
                out, held = net(torch.from_numpy(x), held)
                print(criterion(out, torch.from_numpy(y).view(batch_size * length)).item())


train(8, 10)
"""


def test_what_a_function_counts_up(tmp_path: Path) -> None:
    """Each rank counts the words of its own samples: a mean inside of the model is of as many rows on each."""
    after, said = converted(tmp_path, TOPICS)
    assert "AD902" not in said
    assert "for ind in map(local_rows, torch.split(torch.randperm(64), 16)):" in after


def test_a_state_for_a_ranks_streams(tmp_path: Path) -> None:
    """The state that the training carries is a rank's, and so is the number of words; the evaluation's are of all."""
    after, said = converted(tmp_path, STREAMS)
    assert "AD902" not in said
    assert "h = torch.zeros(1, batch_size // dist.get_world_size(), 8)" in after
    assert "held = torch.zeros(1, batch_size, 8)" in after
    assert ".view(batch_size // dist.get_world_size() * length)" in after
    assert ".view(batch_size * length)).item()" in after


def test_a_generator_that_main_calls(tmp_path: Path) -> None:
    """It draws in the loop that yields, and whoever goes over its batches trains on a rank's share of them."""
    script = """\
import torch
from torch import nn


class Batch:
    def __init__(self, src, pad=0):
        self.src, self.mask = src, src != pad


def data_gen(batch, count):
    for _ in range(count):
        data = torch.randint(1, 9, (batch, 10))
        data[:, 0] = 1
        yield Batch(data)


def run_epoch(batches, model, optimizer):
    for batch in batches:
        loss = model(batch.src.float() * batch.mask).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


model = nn.Linear(10, 3)
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(2):
    run_epoch(data_gen(8, 6), model, optimizer)
"""
    after, said = converted(tmp_path, script)
    assert "AD902" not in said
    assert "data = torch.randint(1, 9, (batch, 10))[dist.get_rank() :: dist.get_world_size()]" in after
