"""What is known of the place where an operation is run: loops on each way to it, and whether gradients are kept."""

from __future__ import annotations

import pytest
from programs import bound, named, traced

from autodist.program import EMPTY, constant

HEAD = "import torch\nfrom torch import nn\nnet = nn.Linear(2, 2)\nx = torch.ones(3, 2)\n"


@pytest.mark.parametrize(
    ("text", "quiet"),
    [
        ("net(x)", False),
        ("with torch.no_grad():\n    net(x)", True),
        ("with torch.inference_mode():\n    net(x)", True),
        ("with torch.set_grad_enabled(False):\n    net(x)", True),
        ("with torch.set_grad_enabled(True):\n    net(x)", False),
        ("@torch.no_grad()\ndef f():\n    net(x)\nf()", True),
        ("def f():\n    net(x)\nwith torch.no_grad():\n    f()", True),
        ("def f():\n    net(x)\nf()", False),
    ],
)
def test_whether_gradients_are_kept(text: str, quiet: bool) -> None:
    (layer,) = named(traced(HEAD + text + "\n"), "torch.nn.Linear")
    assert layer.region.without_gradients == quiet


def test_a_call_that_is_not_run_again_is_in_the_regions_around_both() -> None:
    text = "def draw():\n    return torch.randn(3)\nfor i in range(9):\n    first = draw()\n"
    text += "    if i > 3:\n        y = draw()\n"
    (drawn,) = named(traced(HEAD + text), "torch.randn")
    assert len(drawn.region.loops) == len(drawn.region.others) == 1


@pytest.mark.parametrize(
    ("text", "times"),
    [
        ("draw()\nfor i in range(9):\n    draw()", 2),
        ("for i in range(9):\n    draw()\nfor i in range(9):\n    draw()", 2),
        ("for i in range(9):\n    draw()\n    for k in range(9):\n        draw()", 2),
        ("for i in range(9):\n    draw()\n    draw()", 1),
        ("draw()\nif x.sum() > 0:\n    draw()", 1),
    ],
)
def test_what_a_function_does_in_a_loop_is_apart_from_what_it_does_elsewhere(text: str, times: int) -> None:
    assert len(named(traced(HEAD + "def draw():\n    return torch.randn(3)\n" + text + "\n"), "torch.randn")) == times


def test_a_word_of_a_loop_decides_over_branches_also_outside_of_functions() -> None:
    text = "for phase in ['train', 'valid']:\n    if phase == 'train':\n        torch.sin(x)\n"
    text += "    else:\n        torch.cos(x)\n"
    program = traced(HEAD + text)
    assert len(named(program, "torch.sin")) == len(named(program, "torch.cos")) == 1


def test_what_functions_are_run_in() -> None:
    program = traced(HEAD + "def draw():\n    return torch.randn(3)\ndraw()\n")
    assert [getattr(each.region.function, "name", "") for each in named(program, "torch.randn")] == ["draw"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("rows = [1, 2, 3]\nfor i in range(99):\n    part = rows[i:i + 2]\nresult = part", {"getitem"}),
        ("rows = [1, 2, 3]\nresult = rows[1:2]", set()),
        ("layers = [net, nn.ReLU()]\nfor i in range(99):\n    part = layers[i:]\nresult = part", set()),
    ],
)
def test_a_slice_of_a_list_by_numbers_that_are_not_known_is_an_operation(text: str, names: set[str]) -> None:
    assert {
        each.name for each in bound(traced(HEAD + text + "\n"), "part" if "part" in text else "result").operations
    } == names


def test_only_a_value_that_nothing_gives_counts_as_false() -> None:
    assert not EMPTY and constant(None) and constant(0)
