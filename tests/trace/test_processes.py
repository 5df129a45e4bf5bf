"""Functions that run in other processes, and what collectives leave in what they are given."""

from __future__ import annotations

import pytest
from programs import bound, named, told, traced

HEAD = """\
import os
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
"""
RUN = "def run(rank, size):\n    result = rank\n    other = size\n    print(rank, size)\n"


@pytest.mark.parametrize(
    ("start", "size"),
    [
        ("mp.spawn(run, args=(4,), nprocs=4)", {4}),
        ("mp.spawn(fn=run, args=(4,), nprocs=4, join=True)", {4}),
        ("for r in range(4):\n    mp.Process(target=run, args=(r, 4)).start()", {4}),
        ("ps = [mp.Process(target=run, args=(r, 4)) for r in range(4)]", {4}),
    ],
)
def test_started(start: str, size: set[object]) -> None:
    program = traced(HEAD + RUN + start + "\n")
    (printed,) = named(program, "builtins.print")
    assert [told(each) for each in printed.inputs] == [{"process.number"}, size]


@pytest.mark.parametrize("line", ["os.environ['RANK']", "os.environ.get('RANK', 0)"])
def test_environment(line: str) -> None:
    assert told(bound(traced(f"{HEAD}result = {line}"), "result")) == {"os.environ.get"}


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("result = torch.ones(1)\ndist.all_reduce(result)", "all_reduce"),
        ("result = torch.ones(1)\ndist.all_reduce(tensor=result)", "all_reduce"),
        ("result = torch.ones(1)\ndist.broadcast(result, 0)", "broadcast"),
        (
            "parts = [torch.zeros(1), torch.zeros(1)]\ndist.all_gather(parts, parts[0] + 1)\nresult = parts[0]",
            "all_gather",
        ),
        ("found = [None, None]\ndist.all_gather_object(found, 3)\nresult = found[1]", "all_gather_object"),
        ("found = [None, None]\ndist.gather_object(3, found, dst=0)\nresult = found[1]", "gather_object"),
    ],
)
def test_received(lines: str, expected: str) -> None:
    assert told(bound(traced(HEAD + lines), "result")) == {f"torch.distributed.{expected}"}
