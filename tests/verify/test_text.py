"""Numbers in text."""

from __future__ import annotations

import pytest

from autodist.verify.text import as_whole, factor_between, first_difference, last_places, lines_agree, printed_lines


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("loss 0.123456", "loss 0.123456"),
        ("loss 0.1234567", "loss 0.1234568"),
        ("loss nan", "loss nan"),
        ("took 1.5 s", "took 22.75 s"),
        ("2024-05-01 10:00:00 epoch 1", "2025-06-02 11:30:12 epoch 1"),
        ("2024-05-01 10:00:00,123 INFO start", "2025-06-02 11:30:12,007 INFO start"),
        ("<object at 0x7f0012345678>", "<object at 0x7f0087654321>"),
        ("now time: 9:59. Step 2", "now time: 10:0. Step 2"),
        ("runs/Nov23_03-25-33_host", "runs/Nov23_04-01-07_host"),
        ("runs/23_11_2026_03_25_33_fold0", "runs/23_11_2026_04_01_07_fold0"),
        ('"win": "window_3fc93a35268b24"', '"win": "window_3fc93a361118a2"'),
        ("run 1b4e28ba-2fa1-41d2-883f-0016d3cca427", "run 6fa459ea-ee8a-4ca4-894e-db77e160355e"),
        ("[1/3] 12it/s", "[1/3] 99it/s"),
        ("DataParallel(", "DistributedDataParallel("),
        ("Net(", "FSDPNet("),
        ("tensor(0.1234, grad_fn=<DivBackward0>)", "tensor(0.1234)"),
        ("tensor([1.5000], requires_grad=True)", "tensor([1.5000])"),
        ("7.574975080095104e-05", "7.5749750800951e-05"),
        ("events.3fc93a35268b24", "events.3fc93a361118a2"),
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
        ("added facade", "added decade"),
        ("runs/23_11_2026_03_25_33_fold0", "runs/23_11_2026_03_25_33_fold1"),
        ("window_3fc93a35268b24 0.5", "window_3fc93a361118a2 0.6"),
        ("7.5749750800951e-05", "7.5749750800952e-06"),
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


@pytest.mark.parametrize(
    ("found", "wanted", "same"),
    [
        ("torch.Size([16, 3, 32, 32])", "torch.Size([32, 3, 32, 32])", True),
        ("torch.Size([16])", "torch.Size([32])", True),
        ("batch (16, 10) of", "batch (32, 10) of", True),
        ("shape [16]", "shape [32]", True),
        ("torch.Size([16, 4])", "torch.Size([32, 5])", False),
        ("torch.Size([15, 4])", "torch.Size([32, 4])", False),
        ("counted [16]", "counted [32]", False),
        ("counted 16", "counted 32", False),
    ],
)
def test_shapes_of_a_share_of_the_batch(found: str, wanted: str, same: bool) -> None:
    assert (as_whole(found, wanted, frozenset({(32, 16)})) == wanted) is same


def test_a_number_that_counts_one_rank_alone_is_told() -> None:
    assert factor_between("epoch 1: 401 right", "epoch 1: 802 right", 2, 1e-7) == "401 is exactly 1/2 of 802"
    assert factor_between("2.5", "1.25", 2, 1e-7) == "2.5 is exactly 2 times 1.25"
    assert factor_between("400", "802", 2, 1e-7) is None


def test_what_only_looks_like_a_number() -> None:
    """A random name may read like one that no float can hold."""
    assert not lines_agree("saved to run-5e4823", "saved to run-7.5e4823", 1e-9)
    assert lines_agree("loss 1e-400", "loss 0.0", 1e-9)


@pytest.mark.parametrize(
    "moment",
    [
        "1122_{:02}3535",
        "2026_11_22_{:02}_35_35",
        "20261122-{:02}35",
        "2026-11-22 {:02}:35:35",
        "20261122-{0:02}3535-0042{0}",
        "2026-11-22-{0:02}-35-35-0042{0}",
        "20261122_{0:02}3535_0042{0}",
    ],
)
def test_moments_in_names_of_runs(moment: str) -> None:
    first, second = (f"Saving saved/net/{moment.format(hour)}/epoch1.pth" for hour in (20, 21))
    assert lines_agree(first, second, 1e-9)
    assert not lines_agree(first, second.replace("net", "other"), 1e-9)


def test_devices_have_numbers_of_their_own() -> None:
    assert lines_agree("runs on cuda:0", "runs on cuda", 1e-9) and not lines_agree("cuda:0", "cpu:0", 1e-9)


def test_processes_have_numbers_of_their_own() -> None:
    assert lines_agree("Process number: 4711, PID 4711", "Process number: 815, PID 815", 1e-9)
    assert not lines_agree("processed: 4711", "processed: 815", 1e-9)


def test_numbers_that_are_apart_in_their_last_place() -> None:
    """One of them may be rounding, many are not."""
    original = ["loss 0.5935 accuracy 0.8125", "loss 0.4880 step 3"]
    assert last_places(original, ["loss 0.5936 accuracy 0.8125", "loss 0.4880 step 3"], 1e-7) == (1, 3)
    assert last_places(original, original, 1e-7) == (0, 3)
