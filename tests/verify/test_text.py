"""Numbers in text."""

from __future__ import annotations

import pytest

from autodist.verify.text import first_difference, lines_agree, printed_lines


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("loss 0.123456", "loss 0.123456"),
        ("loss 0.1234567", "loss 0.1234568"),
        ("loss nan", "loss nan"),
        ("took 1.5 s", "took 22.75 s"),
        ("2024-05-01 10:00:00 epoch 1", "2025-06-02 11:30:12 epoch 1"),
        ("<object at 0x7f0012345678>", "<object at 0x7f0087654321>"),
        ("[1/3] 12it/s", "[1/3] 99it/s"),
        ("(1): BatchNorm2d(24, eps=1e-05)", "(1): SyncBatchNorm(24, eps=1e-05)"),
    ],
)
def test_agreement(first: str, second: str) -> None:
    assert lines_agree(first, second, 1e-7)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("loss 0.1234", "loss 0.1334"),
        ("accuracy 97/100", "accuracy 98/100"),
        ("accuracy 0.93", "accuracy 0.94"),
        ("epoch 1", "epoch one"),
        ("loss nan", "loss 0.5"),
        ("resnet18 0.5", "resnet34 0.5"),
    ],
)
def test_difference(first: str, second: str) -> None:
    assert not lines_agree(first, second, 1e-7)


def test_first_difference_says_which_side_ended() -> None:
    assert first_difference(["a", "b"], ["a", "b"], 0.0) is None
    assert first_difference(["a", "b"], ["a"], 0.0) == (1, "b", None)
    assert first_difference(["a"], ["a", "b"], 0.0) == (1, None, "b")


def test_progress_bars_are_no_lines() -> None:
    assert printed_lines("a\n\n 10%|#  | 1/10\nb\n") == ["a", "b"]
