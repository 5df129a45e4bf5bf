"""Losses that are divided by the words that count, and reports of them."""

from __future__ import annotations

from pathlib import Path

from conftest import converted

EPOCH = """\
import math
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def run_epoch(model, loader, criterion, optimizer=None):
    total_loss, total_tokens, total_correct = 0.0, 0, 0
    for x, y in loader:
        logits = model(x)
        loss = criterion(logits.reshape(-1, 5), y.reshape(-1))
        n_tokens = (y != 0).sum().item()
        if optimizer is not None:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        total_loss += loss.item() * n_tokens
        total_tokens += n_tokens
        total_correct += ((logits.argmax(-1) == y) & (y != 0)).sum().item()
    return total_loss / total_tokens, math.exp(total_loss / total_tokens), total_correct / total_tokens


train, held = TensorDataset(x, y), TensorDataset(x, y)
train_loader, val_loader = DataLoader(train, batch_size=8, shuffle=True), DataLoader(held, batch_size=8)
model = nn.Sequential(nn.Embedding(5, 8), nn.Linear(8, 5))
criterion = nn.CrossEntropyLoss(ignore_index=0)
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(2):
    model.train()
    print(run_epoch(model, train_loader, criterion, optimizer))
    model.eval()
    with torch.no_grad():
        print(run_epoch(model, val_loader, criterion))
"""


def test_what_is_read_several_times_is_summed_where_it_is_a_share(tmp_path: Path) -> None:
    """An evaluation that goes through the same loop has counted all words: a second sum would count them twice."""
    after, _ = converted(tmp_path, EPOCH)
    shared = " if isinstance(loader.sampler, DistributedSampler) else "
    assert f"total_tokens_ = reduce_sum(total_tokens){shared}total_tokens\n" in after
    assert f"total_n_tokens = reduce_sum(n_tokens){shared}n_tokens\n" in after
