"""A training script put together from parts that are chosen by a seed."""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from textwrap import indent
from typing import TypeVar

from benchmarks.combinations import pieces, recipes

T = TypeVar("T")

IMPORTS = """\
import collections
import copy
import csv
import json
import logging
import math
import os
import random
import shutil
import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset, WeightedRandomSampler, random_split
"""

SEEDS = (
    "torch.manual_seed(0)\n",
    "random.seed(1)\nnp.random.seed(1)\ntorch.manual_seed(1)\ntorch.cuda.manual_seed_all(1)\n",
    "",
)

BATCHES = (
    "for i, (x, y) in enumerate(train_loader):\n    x, y = x.to(device), y.to(device)\n",
    "for i, data in enumerate(train_loader, 0):\n    x, y = data\n    x = x.to(device)\n    y = y.to(device)\n",
    "i = -1\nfor x, y in train_loader:\n    i += 1\n    x = x.to(device, non_blocking=True)\n    y = y.to(device)\n",
)

ON_THE_TRAINER = (
    "model optimizer scheduler scaler teacher ema device train_loader test_loader train_set test_set criterion "
    "logger log history"
).split()


@dataclass(frozen=True)
class Parts:
    """What was chosen."""

    seed: str
    size: str
    data: str
    loaders: str
    model: str
    make_model: str
    loss: str
    optimizer: str
    scheduler: tuple[str, str, str]
    batches: str
    step: tuple[str, str]
    metric: tuple[str, str, str]
    evaluation: str
    decision: tuple[str, str]
    report: tuple[str, str, str]
    ending: str


def chosen(seed: int) -> tuple[Callable[[Parts], str], Parts]:
    """The layout and the parts of one script."""
    rng = random.Random(seed)

    def one(ways: Sequence[T]) -> T:
        return ways[rng.randrange(len(ways))]

    layout = one(LAYOUTS)
    train, held_out, batch = one((48, 45, 40)), one((20, 21)), one((8, 12))
    size = f"CLASSES, FEATURES = 4, 6\nTRAIN, HELD_OUT = {train}, {held_out}\nBATCH_SIZE = {batch}\nEPOCHS = 2\n"
    batch_text = one(("BATCH_SIZE", str(batch)))
    parts = Parts(
        one(SEEDS),
        size,
        one(pieces.DATA),
        one(pieces.LOADERS).replace("$batch", batch_text),
        one(pieces.MODELS),
        one(pieces.MAKE_MODEL),
        one(pieces.LOSSES),
        one(pieces.OPTIMIZERS),
        one(pieces.SCHEDULERS),
        one(BATCHES),
        one(pieces.STEPS),
        one(pieces.METRICS),
        one(pieces.EVALUATIONS),
        one(pieces.DECISIONS),
        one(pieces.REPORTS),
        one(pieces.ENDINGS),
    )
    averages = any(term in parts.step[1] for term in ("penalty", "entropy", "kl_div"))
    if averages or any(size in parts.metric[1] for size in ("* x.", "* len", ", x.size")):
        parts = replace(parts, loss=pieces.LOSSES[0])  # nobody adds a mean to a sum, or weighs sums by their length
    return layout, parts


def script(number: int) -> str:
    """The source of the script with this number: every third is of another shape than loops over epochs and batches."""
    if number % 3 == 2:
        recipe = recipes.RECIPES[number // 3 % len(recipes.RECIPES)]
        return recipe.script(random.Random(number))
    layout, parts = chosen(number)
    return layout(parts)


# ----------------------------------------------------------------- layouts


def flat(parts: Parts) -> str:
    """Everything at the top of the module, one loop in the other."""
    loop = _train_epoch(parts) + _evaluate(parts) + _after_epoch(parts)
    return _joined(
        IMPORTS,
        parts.size,
        parts.seed,
        _classes(parts),
        'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n',
        parts.data,
        parts.loaders,
        _setup(parts),
        "for epoch in range(EPOCHS):\n" + indent(loop, "    "),
        parts.report[2] + parts.ending,
    )


def one_main(parts: Parts) -> str:
    """Everything in `main`."""
    hoisted, rest = _hoisted(parts.data + parts.loaders + _setup(parts))
    loop = _train_epoch(parts) + _evaluate(parts) + _after_epoch(parts)
    body = (
        parts.seed
        + 'device = "cuda" if torch.cuda.is_available() else "cpu"\ndevice = torch.device(device)\n'
        + rest
        + "for epoch in range(EPOCHS):\n"
        + indent(loop, "    ")
        + parts.report[2]
        + parts.ending
    )
    return _joined(
        IMPORTS,
        parts.size,
        _classes(parts),
        hoisted,
        "def main():\n" + indent(body, "    "),
        'if __name__ == "__main__":\n    main()\n',
    )


def functions(parts: Parts) -> str:
    """`train` and `evaluate` are functions that `main` calls."""
    hoisted, rest = _hoisted(parts.data + parts.loaders + _setup(parts))
    extra = [
        name for name in ("scheduler", "scaler", "teacher", "ema") if re.search(rf"\b{name}\b", _train_epoch(parts))
    ]
    given = ", ".join(["model", "train_loader", "criterion", "optimizer", "device", "epoch", *extra])
    train = f"def train({given}):\n" + indent(_train_epoch(parts) + "return train_loss\n", "    ")
    evaluate = "def evaluate(model, test_loader, device):\n" + indent(
        _evaluate(parts).replace("len(test_set)", "len(test_loader.dataset)") + "return test_loss, accuracy\n", "    "
    )
    loop = f"train_loss = train({given})\ntest_loss, accuracy = evaluate(model, test_loader, device)\n"
    body = (
        parts.seed
        + 'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n'
        + rest
        + "for epoch in range(EPOCHS):\n"
        + indent(loop + _after_epoch(parts), "    ")
        + parts.report[2]
        + parts.ending
    )
    return _joined(
        IMPORTS,
        parts.size,
        _classes(parts),
        hoisted,
        train,
        evaluate,
        "def main():\n" + indent(body, "    "),
        'if __name__ == "__main__":\n    main()\n',
    )


def trainer(parts: Parts) -> str:
    """A class holds model, optimizer and loaders."""
    hoisted, rest = _hoisted(parts.data + parts.loaders + _setup(parts, with_loop_state=False))
    loop = "train_loss = self.train_epoch(epoch)\ntest_loss, accuracy = self.evaluate()\n" + _after_epoch(parts)
    fit = parts.decision[0] + parts.report[0] + "for epoch in range(EPOCHS):\n" + indent(loop, "    ") + parts.report[2]
    names = [n for n in ON_THE_TRAINER if n != "criterion" or "def criterion" not in parts.loss]
    methods = (
        "def __init__(self):\n"
        + indent(
            'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n' + rest,
            "    ",
        )
        + "\ndef train_epoch(self, epoch):\n"
        + indent(_train_epoch(parts) + "return train_loss\n", "    ")
        + "\ndef evaluate(self):\n"
        + indent(_evaluate(parts) + "return test_loss, accuracy\n", "    ")
        + "\ndef fit(self):\n"
        + indent(fit + parts.ending, "    ")
    )
    for name in names:
        methods = re.sub(rf"(?<![\w.\"'/]){name}\b(?!\s*=[^=].*\bdef\b)(?![\"'])", f"self.{name}", methods)
    methods = re.sub(r"\bsampler=self\.", "sampler=", methods)
    return _joined(
        IMPORTS,
        parts.size,
        _classes(parts),
        hoisted,
        "class Trainer:\n" + indent(methods, "    "),
        'if __name__ == "__main__":\n' + indent(parts.seed + "Trainer().fit()\n", "    "),
    )


LAYOUTS: tuple[Callable[[Parts], str], ...] = (flat, one_main, functions, trainer)


# ------------------------------------------------------------------- parts


def _joined(*blocks: str) -> str:
    return "\n\n".join(block.strip("\n") for block in blocks if block.strip()) + "\n"


def _classes(parts: Parts) -> str:
    found = parts.model
    if "AverageMeter" in parts.metric[0] + parts.evaluation:
        found += "\n" + pieces.METER
    if "accuracy_of" in parts.metric[1] + parts.evaluation:
        found += "\n" + pieces.ACCURACY
    if "EarlyStopping" in parts.decision[0]:
        found += "\n" + pieces.STOPPER
    return found


def _setup(parts: Parts, with_loop_state: bool = True) -> str:
    made = [parts.make_model, parts.loss, parts.optimizer, parts.scheduler[0], parts.step[0]]
    return "".join([*made, *((parts.decision[0], parts.report[0]) if with_loop_state else ())])


def _train_epoch(parts: Parts) -> str:
    step = parts.step[1].lstrip("\n").replace("$each_step", parts.scheduler[1])
    inside = indent(step + parts.metric[1].lstrip("\n"), "    ")
    return "model.train()\n" + parts.metric[0] + parts.batches + inside + parts.metric[2]


def _evaluate(parts: Parts) -> str:
    return "model.eval()" + parts.evaluation


def _after_epoch(parts: Parts) -> str:
    return parts.scheduler[2] + parts.report[1] + parts.decision[1].lstrip("\n")


def _hoisted(text: str) -> tuple[str, str]:
    """The classes and functions of a text, and the rest."""
    lines = text.splitlines(keepends=True)
    inner: set[int] = set()
    for node in ast.parse(text).body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            inner.update(range(node.lineno - 1, node.end_lineno or node.lineno))
    hoisted = "".join(line for number, line in enumerate(lines) if number in inner)
    rest = "".join(line for number, line in enumerate(lines) if number not in inner)
    hoisted = re.sub(r"(?m)^(?=class |def )", "\n\n", hoisted).lstrip("\n")
    return hoisted, re.sub(r"\n{2,}", "\n", rest).lstrip("\n")
