"""How paths are spelled, and which of them may be of one file."""

from __future__ import annotations

import ast

import pytest
from programs import traced

from autodist.program import Value
from autodist.solve.paths import looks_for_files, made_of, may_be_same, spelled

HEAD = """\
import argparse
import glob
import os
from pathlib import Path

import torch

args = argparse.ArgumentParser().parse_args()
n = 1
while os.path.exists(f"runs/exp{n}"):
    n += 1
numbers = range(args.epochs)


def place(name):
    return os.path.join(args.out, name)


"""


def values(*paths: str) -> list[Value]:
    program = traced(HEAD + "".join(f"os.remove({each})\n" for each in paths))
    calls = [node for node in program.values if isinstance(node, ast.Call) and ast.unparse(node.func) == "os.remove"]
    return [program.at(call.args[0]) for call in sorted(calls, key=lambda each: each.lineno)]


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("os.path.join('out', 'a.pt')", "out/a.pt"),
        ("Path('out') / 'a.pt'", "out/a.pt"),
        ("str(Path('out', 'a.pt').resolve())", "out/a.pt"),
        ("'out/' + 'epoch_{:d}.png'.format(args.epoch)", "out/epoch_*.png"),
        ("'epoch_%03d.png' % args.epoch", "epoch_*.png"),
        ("[f'{each}.pt' for each in numbers][0]", "*.pt"),
        ("open('a.json', 'w')", "a.json"),
    ],
)
def test_spellings(path: str, told: str) -> None:
    assert told in spelled(values(path)[0])


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("args.csv", "args.csv", True),
        ("args.csv", "args.log", False),
        ("os.path.join(args.out, 'rows.csv')", "'out/rows.csv'", True),
        ("os.path.join(args.out, 'rows.csv')", "place('rows.csv')", True),
        ("os.path.join(args.out, 'rows.csv')", "place('words.csv')", False),
        ("'out/rows.csv'", "'in/rows.csv'", False),
        ("f'out/epoch_{args.epoch}.png'", "'out/epoch_1.png'", False),  # of which it is not told that it is a number
        ("[f'out/epoch_{each}.png' for each in numbers][0]", "'out/epoch_1.png'", True),
        ("[f'{each}.png' for each in numbers][0]", "'1.png'", False),  # a number alone says nothing
        ("f'{torch.rand(()):.2f}.pt'", "f'{torch.rand(()):.2f}.pt'", True),
        ("Path(args.out).parent / 'a.pt'", "os.path.join(Path(args.out).parent, 'a.pt')", True),
    ],
)
def test_what_may_be_one_file(one: str, other: str, same: bool) -> None:
    assert may_be_same(*map(spelled, values(one, other))) is same


@pytest.mark.parametrize(
    ("path", "looks"),
    [
        ("f'runs/{len(os.listdir(args.out))}'", True),
        ("Path(sorted(glob.glob('runs/*'))[-1]) / 'a.pt'", True),
        ("place('a.pt')", False),
    ],
)
def test_paths_that_go_by_what_is_there(path: str, looks: bool) -> None:
    assert any(map(looks_for_files, made_of(values(path)[0]))) is looks
