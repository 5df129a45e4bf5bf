"""Branches on one setting go together: what is made in one is not there in those of another value."""

from __future__ import annotations

import ast

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
