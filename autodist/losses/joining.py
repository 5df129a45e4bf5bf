"""Samples that are joined to a batch: of which every rank has all, where it has a share of the batch."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.interpreter import Interpreter
from autodist.origins import learnt_from
from autodist.script import Site
from autodist.source import last_name, walk
from autodist.spread import COUNT, ROWS, SAME
from autodist.tensors import operations
from autodist.values import NOTHING, External, Value

JOINS = frozenset(["torch.cat", "torch.concat", "torch.concatenate", "torch.vstack"])
EMPTY = frozenset("empty zeros tensor Tensor FloatTensor".split())


def joined_in_full(run: Interpreter) -> Iterator[Site]:
    """The samples that are joined to a rank's share of a batch, for a loss, and of which each rank has all: made-up
    ones, or those of a memory. They would count for too much, as many times as there are ranks."""
    learnt = learnt_from(run)
    for node, source in run.sources.items():
        if not isinstance(node, ast.Call) or node not in learnt or not _joins_samples(node, run):
            continue
        parts = node.args[0].elts if node.args and isinstance(node.args[0], (ast.List, ast.Tuple)) else []
        values = [run.values.get(each, NOTHING) for each in parts]
        if not any(value.spread is ROWS for value in values):
            continue  # `torch.cat([boxes, torch.zeros(longest - len(boxes), 4)])`, of one image
        others = [each for each, value in zip(parts, values, strict=True) if _has_all(each, value, run)]
        if others and len(others) < len(parts):
            yield from (Site(source, each) for each in others)


def _joins_samples(node: ast.Call, run: Interpreter) -> bool:
    called = run.values.get(node.func, NOTHING).things
    names = [thing.name for thing in called if isinstance(thing, External)]
    along = operations.axis(node, 1)
    return bool(names) and set(names) <= JOINS and (along in (None, 0) or "torch.vstack" in names)


def _has_all(node: ast.expr, value: Value, run: Interpreter) -> bool:
    """Whether a tensor is the same on all ranks, or as large, and not one that a list of rows starts from."""
    if value.spread is not SAME or isinstance(node, (ast.Starred, ast.Constant)):
        return False
    if value.weights or value.lasting:
        return False
    made = [node, *(each for _, each in value.made)]
    return not any(_is_sized_by_share(each, run) or _is_empty(each) for each in made)


def _is_sized_by_share(node: ast.expr, run: Interpreter) -> bool:
    """Whether it is as long as this rank's share: `torch.ones(len(x), 1)`."""
    sizes = (each for each in walk(node) if isinstance(each, ast.expr))
    return any(run.values.get(each, NOTHING).spread is COUNT for each in sizes)


def _is_empty(node: ast.expr) -> bool:
    """`torch.tensor([])`, `torch.empty(0, 4)`"""
    if not isinstance(node, ast.Call) or last_name(node.func) not in EMPTY:
        return False
    first = node.args[0] if node.args else None
    if isinstance(first, (ast.List, ast.Tuple)):
        return not first.elts or isinstance(first.elts[0], ast.Constant) and first.elts[0].value == 0
    return first is None or isinstance(first, ast.Constant) and first.value == 0
