"""Attributes and entries that a script sets in some cases: elsewhere they are what an option or a class says."""

from __future__ import annotations

import pytest
from programs import bound, told, traced

SETUP = """\
import argparse
import sys
import types
args = argparse.ArgumentParser().parse_args()


class Settings:
    kind = 0

    def __init__(self):
        self.other = 0


one, few, space = Settings(), {}, types.SimpleNamespace(kind=0)
"""
READS = {
    "args.kind = 1": ("args.kind", "object.kind"),
    "setattr(args, 'kind', 1)": ("args.kind", "object.kind"),
    "one.kind = 1": ("one.kind", 0),
    "few['kind'] = 1": ("few.get('kind', 0)", 0),
    "few.update(kind=1)": ("few.get('kind', 0)", 0),
    "few.setdefault('kind', 1)": ("few.pop('kind', 0)", 0),
    "space.more = 1": ("getattr(space, 'more', 0)", 0),
    "one.more = 1": ("getattr(one, 'more', 0)", 0),
}
ALWAYS = [
    "{}\n",
    "if args.a:\n    {}\nelse:\n    {}\n",
    "if args.a:\n    {}\nelif args.b:\n    {}\nelse:\n    {}\n",
    "if args.a:\n    {}\nelse:\n    raise ValueError\n",
    "def fill():\n    {}\n\n\nfill()\n",
    "if args.a:\n    if args.b:\n        {}\n    else:\n        {}\nelse:\n    {}\n",
]
SOMETIMES = [
    "if args.a:\n    {}\n",
    "if args.a:\n    {}\nelse:\n    args.unread = 1\n",
    "for each in args.several:\n    {}\n",
    "try:\n    {}\nexcept ValueError:\n    pass\n",
    "def fill():\n    if args.a:\n        {}\n\n\nfill()\n",
    "if args.a:\n    if args.b:\n        {}\nelse:\n    {}\n",
]


@pytest.mark.parametrize("set_", READS)
@pytest.mark.parametrize("code", ALWAYS)
def test_what_is_set_in_all_cases_is_nothing_else(code: str, set_: str) -> None:
    value = bound(traced(SETUP + code.replace("{}", set_) + f"result = {READS[set_][0]}\n"), "result")
    assert told(value) == {1}


@pytest.mark.parametrize("set_", READS)
@pytest.mark.parametrize("code", SOMETIMES)
def test_what_is_set_in_some_cases_may_be_what_it_was(code: str, set_: str) -> None:
    read, otherwise = READS[set_]
    value = bound(traced(SETUP + code.replace("{}", set_) + f"result = {read}\n"), "result")
    assert told(value) == {1, otherwise}


@pytest.mark.parametrize(
    "read", ["1 if 'kind' in few else 0", "1 if hasattr(space, 'more') else 0", "1 if few.get('kind') else 0"]
)
def test_whether_it_is_there_is_not_decided(read: str) -> None:
    code = "if args.a:\n    few['kind'] = 1\n    space.more = 1\n"
    assert {0, 1} <= told(bound(traced(f"{SETUP}{code}result = {read}\n"), "result"))


@pytest.mark.parametrize(
    ("body", "expected"),
    [("options.kind = 1", {1}), ("if options.a:\n        options.kind = 1", {1, "object.kind"})],
)
def test_what_a_function_sets_on_what_it_is_given(body: str, expected: set[object]) -> None:
    code = f"def fill(options):\n    {body}\n\n\nfill(args)\nresult = args.kind\n"
    assert told(bound(traced(SETUP + code), "result")) == expected


NET = """\
class Net:
    def f(self):
        return 0


net = Net()
if args.a:
    net.f = lambda: 1
result = net.f()
"""


def test_a_method_that_is_set_in_some_cases_may_be_the_one_of_its_class() -> None:
    assert told(bound(traced(SETUP + NET), "result")) == {0, 1}


MADE = """\
if args.a:
    made = Settings()
    made.kind = 1
    result = made.kind
"""


def test_what_is_made_in_one_case_surely_has_what_it_is_given_there() -> None:
    assert told(bound(traced(SETUP + MADE), "result")) == {1}
