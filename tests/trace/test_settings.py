"""Branches on one setting go together: what is made in one is not there in those of another value."""

from __future__ import annotations

import ast
from textwrap import indent

import pytest
from programs import traced

TEXT = """\
import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--net", default="lstm")
parser.add_argument("--wide", action="store_true")
args = parser.parse_args()
{between}
if {first}:
    net = nn.LSTM(4, 8)
else:
    net = nn.Linear(4, 8)
x = torch.randn(5, 4)
if {second}:
    found = net
else:
    found = None
"""


def kinds(first: str, second: str, between: str = "") -> set[str]:
    """The layers that may be found where the second test holds."""
    program = traced(TEXT.format(first=first, second=second, between=between))
    node = next(
        node.value
        for source in {each.source for each in program.operations}
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Assign) and ast.unparse(node) == "found = net"
    )
    return {str(getattr(each, "name", "")) for each in program.at(node).things}


LSTM, LINEAR = "torch.nn.LSTM", "torch.nn.Linear"


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("args.net == 'lstm'", "args.net == 'lstm'", {LSTM}),
        ("args.net == 'lstm'", "args.net != 'lstm'", {LINEAR}),
        ("args.net == 'lstm'", "not args.net == 'lstm'", {LINEAR}),
        ("args.wide", "args.wide", {LSTM}),
        ("args.wide", "not args.wide", {LINEAR}),
        ("args.wide", "args.net == 'lstm'", {LSTM, LINEAR}),
        ("args.net == 'lstm'", "args.wide", {LSTM, LINEAR}),
    ],
)
def test_what_may_be_there(first: str, second: str, expected: set[str]) -> None:
    assert kinds(first, second) == expected


def test_a_setting_that_is_set_again() -> None:
    """What it was says nothing of what it is."""
    between = "import sys\nargs.wide = args.wide or len(sys.argv) > 3\n"
    assert kinds("args.wide", "args.wide", between) == {LSTM, LINEAR}


IN_FUNCTION = """\
import argparse
import json
import sys

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.classes, self.head = classes, nn.Linear(4, classes)


def train(net, args, wide=False, table=json.load(open("settings.json"))):
    binary = net.classes == 1
{first}
{between}
    if {test}:
        found = loss
    else:
        found = None


args = argparse.ArgumentParser().parse_args()
{made}
"""
SINGLE, MANY = "torch.nn.BCELoss", "torch.nn.NLLLoss"
BOTH = {SINGLE, MANY}
ONCE = "train(Net(args.classes), args)"


def losses(first: str, test: str, between: str = "", made: str = ONCE) -> set[str]:
    """The losses that may be found where a test of a function holds."""
    first = first if ":\n" in first else f"loss = nn.BCELoss() if {first} else nn.NLLLoss()"
    lines = {"first": indent(first, "    "), "between": indent(between, "    ")}
    program = traced(IN_FUNCTION.format(test=test, made=made, **lines))
    nodes = [
        node.value
        for source in {each.source for each in program.operations}
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Assign) and ast.unparse(node).startswith("found = ") and node.value is not None
    ]
    return {str(getattr(each, "name", "")) for node in nodes for each in program.at(node).things}


@pytest.mark.parametrize(
    ("first", "test", "expected"),
    [
        ("net.classes == 1", "net.classes > 1", {MANY}),
        ("net.classes <= 1", "net.classes > 1", {MANY}),
        ("net.classes <= 1", "net.classes == 1", {SINGLE}),
        ("net.classes <= 1", "net.classes != 1", BOTH),
        ("net.classes <= 1", "not net.classes >= 1", {SINGLE}),
        ("1 >= net.classes", "1 == net.classes", {SINGLE}),
        ("binary", "net.classes > 1", {MANY}),
        ("net.classes == 1", "not binary", {MANY}),
        ("net.classes == args.least", "net.classes != args.least", {MANY}),
        ("net.classes == args.least", "net.classes == args.most", BOTH),
        ("args.loss == 'bce'", "args.loss == 'bce'", {SINGLE}),
        ("args.loss == 'bce'", "args.loss == 'nll'", {MANY}),
        ("args.loss == 'bce'", "args.other == 'bce'", BOTH),
        ("args.loss in ('bce', 'single')", "args.loss == 'nll'", {MANY}),
        ("args.loss in ('bce', 'single')", "args.loss == 'bce'", {SINGLE}),
        ("args.loss not in ('bce', 'single')", "args.loss in ['bce']", {MANY}),
        ("args.weights is None", "args.weights is not None", {MANY}),
        ("args.weights is None", "args.weights", {MANY}),
        ("args.weights is None", "not args.weights", BOTH),
        ("args.weights is None and args.wide", "args.weights is None", BOTH),
        ("args.weights is None and args.wide", "args.weights", {MANY}),
        ("args.wide and args.deep", "not (args.deep and args.wide)", BOTH),
        ("args.wide or args.deep", "not (args.deep or args.wide)", BOTH),
        ("args.opt.wide", "not args.opt.wide", {MANY}),
        ("table['loss'] == 'bce'", "table['loss'] == 'nll'", {MANY}),
        ("table['wide']", "not table['wide']", {MANY}),
        ("args.size % 2 == 0", "args.size % 2 == 1", {MANY}),
    ],
)
def test_conditions_on_one_value(first: str, test: str, expected: set[str]) -> None:
    """They go together by what they say of it, however they are written."""
    assert losses(first, test) == expected


CHAIN = """\
if args.loss == "bce":
    loss = nn.BCELoss()
elif args.loss == "nll":
    loss = nn.NLLLoss()
else:
    loss = None
"""


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("args.loss == 'nll'", {MANY}),
        ("args.loss != 'nll'", {SINGLE}),
        ("args.loss == 'mse'", set[str]()),
        ("args.loss.startswith('n')", BOTH),
    ],
)
def test_a_chain_of_branches(test: str, expected: set[str]) -> None:
    assert losses(CHAIN, test) == expected


@pytest.mark.parametrize(
    ("first", "test", "between", "made"),
    [
        ("net.classes == 1", "net.classes > 1", "net.classes = args.other", ONCE),
        ("net.classes == 1", "net.classes > 1", "if args.wide:\n    net.classes = args.other", ONCE),
        ("args.classes == 1", "args.classes > 1", "args.classes += 1", ONCE),
        ("args.loss == 'bce'", "args.loss == 'nll'", "setattr(args, sys.argv[1], 'nll')", ONCE),
        ("args.loss == 'bce'", "args.loss == 'nll'", "args.merge(sys.argv)", ONCE),
        ("net.classes == 1", "net.classes > 1", "", f"for n in args.many:\n    {ONCE.replace('args.classes', 'n')}"),
        ("net.classes == 1", "net.classes > 1", "net = Net(args.other)", ONCE),
        ("net.classes == 1", "net.classes > 1", "net = wide or net", f"{ONCE[:-1]}, Net(args.other))"),
        ("table['loss'] == 'bce'", "table['loss'] == 'nll'", "table['loss'] = 'nll'", ONCE),
        ("args.loss == 'bce'", "args.loss == 'nll'", "args.loss = 'nll'", ONCE),
        ("table['loss'] == 'bce'", "table['loss'] == 'nll'", "table[sys.argv[1]] = 'nll'", ONCE),
        ("table['loss'] == 'bce'", "table['loss'] == 'nll'", "table.update(sys.argv)", ONCE),
        ("table", "not table", "table.clear()", ONCE),
        ("args.names == []", "args.names != []", "args.names.append(1)", ONCE),
        ("args.least(1) == 1", "args.least(1) == 2", "", ONCE),
        ("args.stop.early", "not args.stop.early", "args.stop(1)", ONCE),
        ("args.step == 1", "args.step > 1", "import schedules\nschedules.advance(args)", ONCE),
        ("args.step == 1", "args.step > 1", "from schedules import advance\nadvance(state=args)", ONCE),
    ],
)
def test_values_that_may_be_others(first: str, test: str, between: str, made: str) -> None:
    """Of what is bound anew, of another object or in each round, a test says nothing of what it was before."""
    assert losses(first, test, between, made) == BOTH


def test_what_differs_from_round_to_round() -> None:
    first = "loss = nn.NLLLoss()\nfor step in range(args.steps):\n    if step == 0:\n        loss = nn.BCELoss()\n"
    assert losses(first, "step == 1") == BOTH
