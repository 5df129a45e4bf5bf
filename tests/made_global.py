"""A step of a training script, and what is made global at its end."""

from __future__ import annotations

import ast

from programs import CATALOG, traced

from autodist.placement import Partial, PerRank, Placement, Shard
from autodist.program import Program
from autodist.solve.alone import Alone
from autodist.solve.cuts import solved
from autodist.solve.search import Cut
from autodist.solve.sources import sources
from autodist.source import walk

HEAD = """\
import json
import math
from collections import Counter, defaultdict
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(64, 4), torch.randint(3, (64,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
test_loader = DataLoader(data, batch_size=8)
net = nn.Linear(4, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)


def accuracy(out, y):
    return (out.argmax(1) == y).float().mean()


class Meter:
    def __init__(self):
        self.total, self.n = 0.0, 0

    def update(self, value, n):
        self.total += value * n
        self.n += n

    def __str__(self):
        return f"{self.total / self.n:.3f}"


correct, seen, total, history, losses, meter = 0, 0, 0.0, [], {}, Meter()
for epoch in range(2):
    for step, (x, y) in enumerate(loader):
        out = net(x)
        loss = F.cross_entropy(out, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
"""
STEP, EPOCH = " " * 8, " " * 4


def found(text: str, alone: str = "", start: str = "", begun: str = "") -> tuple[Program, list[Cut]]:
    """What to make global for the end of a script, of which a statement may be rank 0's alone. ``start`` stands ahead
    of the epochs, ``begun`` at the start of each."""
    head = HEAD.replace("    for step", f"{EPOCH}{begun}\n    for step", 1) if begun else HEAD
    program = traced(head.replace("for epoch", start + "\nfor epoch", 1) + text + "\n")
    plan = sources(program, CATALOG).plan
    source = program.operations[0].source
    guarded = [each for each in walk(source.tree) if isinstance(each, ast.stmt) and source.code(each) == alone]
    return program, solved(program, plan, CATALOG, Alone(frozenset(guarded)))


def told(cut: Cut) -> str:
    """How it is made global, and what."""
    return f"{word(cut.placement)} {cut.source.code(cut.node)}"


def word(placement: Placement) -> str:
    if isinstance(placement, Partial):
        return "count" if placement.reduce == "sum" and placement.weight else placement.reduce
    return "rows" if isinstance(placement, Shard) else "none" if isinstance(placement, PerRank) else "count"
