"""Attributes that a script sets on what a library gives, such as the options of argparse."""

from __future__ import annotations

import pytest
from programs import bound, told, traced

SETUP = """\
import argparse
import sys
args = argparse.ArgumentParser().parse_args()
"""


@pytest.mark.parametrize(
    "code",
    [
        "args.kind = 1\n",
        "if len(sys.argv) > 1:\n    args.kind = 1\nelse:\n    args.kind = 1\n",
        "if args.a:\n    args.kind = 1\nelif args.b:\n    args.kind = 1\nelse:\n    args.kind = 1\n",
        "if args.a:\n    args.kind = 1\nelse:\n    raise ValueError\n",
        "def fill(options):\n    options.kind = 1\n\n\nfill(args)\n",
    ],
)
def test_what_is_set_in_all_cases_is_no_option_any_more(code: str) -> None:
    value = bound(traced(SETUP + code + "result = args.kind\n"), "result")
    assert told(value) == {1}


@pytest.mark.parametrize(
    "code",
    [
        "if args.a:\n    args.kind = 1\n",
        "if args.a:\n    args.kind = 1\nelse:\n    args.other = 1\n",
        "for each in args.several:\n    args.kind = 1\n",
        "try:\n    args.kind = 1\nexcept ValueError:\n    pass\n",
        "def fill(options):\n    if options.a:\n        options.kind = 1\n\n\nfill(args)\n",
        "if args.a:\n    if args.b:\n        args.kind = 1\nelse:\n    args.kind = 1\n",
    ],
)
def test_what_is_set_in_some_cases_may_be_what_the_option_says(code: str) -> None:
    value = bound(traced(SETUP + code + "result = args.kind\n"), "result")
    assert value.constants == {(int, 1)} and value.operations
