"""Training scripts that the examples of several rules share."""

from __future__ import annotations

PLAIN = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
loader = DataLoader(train_set, batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for epoch in range(2):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""

EACH_STEP = """\
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
EVERY_FOURTH = """\
        loss.backward()
        if (i + 1) % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
"""
ACCUMULATING = PLAIN.replace("for x, y in loader", "for i, (x, y) in enumerate(loader)").replace(
    EACH_STEP, EVERY_FOURTH
)
"""The same, where gradients of four batches are added up for a step."""

HAND_WRITTEN = """\
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(0)
train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
sampler = DistributedSampler(train_set)
loader = DataLoader(train_set, batch_size=8, sampler=sampler)
model = nn.Linear(4, 1)
model = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for epoch in range(2):
    sampler.set_epoch(epoch)
    total = torch.zeros(1)
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach() / len(loader) / dist.get_world_size()
    dist.all_reduce(total)
    if dist.get_rank() == 0:
        print(f"epoch {epoch}: {total.item()}")
    dist.barrier()
if dist.get_rank() == 0:
    torch.save(model.module.state_dict(), "model.pt")
"""
"""One that distributes itself, and is right."""
