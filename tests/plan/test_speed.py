"""The time of a step: what NCCL's ring and tree take, what the backward pass hides, and what input allows."""

from __future__ import annotations

import statistics

import pytest

from autodist.plan.devices import device
from autodist.plan.speed import (
    PAID,
    RANGE,
    SCATTER,
    Compute,
    Input,
    Model,
    Traffic,
    all_reduce,
    gather,
    step,
    straggling,
    traffic,
)
from benchmarks import plan_validation as published

A100, T4 = device("A100 80GB"), device("T4")


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_a_ring_sends_each_byte_twice_but_for_a_part(ranks: int) -> None:
    size = 10e9
    assert all_reduce(size, ranks, 1, A100) == pytest.approx(2 * (ranks - 1) / ranks * size / 240e9, rel=0.01)
    assert gather(size, ranks, 1, A100) == pytest.approx((ranks - 1) / ranks * size / 240e9, rel=0.01)


def test_a_small_message_takes_its_hops() -> None:
    assert all_reduce(8, 8, 1, A100) == pytest.approx(15e-6, rel=0.1)  # 6.6 µs and 14 hops of 0.6 µs
    assert all_reduce(8, 1, 1, A100) == 0.0


def test_over_many_nodes_a_tree_has_fewer_hops() -> None:
    ring = gather(1000, 1024, 128, A100)  # a ring always
    assert all_reduce(1000, 1024, 128, A100) < ring
    assert all_reduce(1000, 1024, 128, A100) < 4 * all_reduce(1000, 16, 2, A100)  # 64 times as many nodes


def test_between_nodes_the_network_decides() -> None:
    assert all_reduce(1e9, 16, 2, A100) > all_reduce(1e9, 8, 1, A100)
    assert all_reduce(1e9, 16, 2, T4) == pytest.approx(2 * 15 / 16 * 1e9 / 12e9, rel=0.1)


def test_what_is_hidden() -> None:
    sent = Traffic(total=0.1, last=0.02, beside=0.5)
    assert sent.exposed(1.0) == 0.02
    assert sent.exposed(0.1) == pytest.approx(0.05)
    assert sent.exposed(0.0) == 0.1
    assert sent.paid(1.0, share=0.25) == pytest.approx(0.02 + 0.25 * 0.08)


@pytest.mark.parametrize("strategy", ["ddp", "zero", "fsdp", "hsdp"])
def test_one_device_sends_nothing(strategy: str) -> None:
    assert traffic(strategy, Model(1e9, 1e9), 1, A100) == Traffic(0.0)


def test_strategies_differ_in_what_they_send() -> None:
    model = Model(4e9, 4e9, units=32)
    sent = {name: traffic(name, model, 64, device("V100 16GB")) for name in ("ddp", "zero", "fsdp", "hsdp")}
    assert sent["ddp"].total < sent["zero"].total  # which sends parameters round as well
    assert sent["hsdp"].total < sent["fsdp"].total  # most of it stays within the nodes, where it is faster
    assert sent["fsdp"].last < sent["zero"].last  # only the first and the last unit wait


def test_compute_between_and_below_what_was_measured() -> None:
    curve = Compute(((8, 0.2), (16, 0.3), (64, 0.9)))
    assert curve.at(16) == (0.3, 0.3, 0.3)
    assert curve.at(40)[1] == pytest.approx(0.6)
    least, likely, most = curve.at(4)
    assert (least, likely, most) == pytest.approx((0.1, 0.15, 0.2))
    assert Compute(((64, 0.8),)).at(16) == pytest.approx((0.2, 0.2, 0.8))  # nothing is known but its bounds


def test_loaders_share_the_cores_of_a_node() -> None:
    reading = Input(rate=100.0, workers=4, cores=16)
    assert reading.seconds(1000, 1, 8) == 10.0
    assert reading.seconds(1000, 4, 8) == 2.5
    assert reading.seconds(1000, 8, 8) == 2.5  # 16 cores feed four loaders
    assert reading.seconds(1000, 16, 8) == 1.25


@pytest.mark.parametrize(
    ("compute", "sent", "loading", "beside", "limit"),
    [
        (1.0, 0.1, 0.5, True, "compute"),
        (1.0, 0.1, 2.0, True, "input"),
        (0.1, 0.6, 0.5, True, "communication"),
        (0.1, 0.2, 0.5, False, "input"),
        (1.0, 0.1, 0.5, False, "compute"),
    ],
)
def test_the_limit(compute: float, sent: float, loading: float, beside: bool, limit: str) -> None:
    found = step((compute, compute, compute), Traffic(sent, sent), 8, loading, beside)
    assert found.limit == limit
    assert found.low <= found.total <= found.high
    assert found.total >= loading + (0 if beside else compute)


def test_one_device_waits_for_no_other() -> None:
    assert straggling(1) == 0.0
    assert straggling(64) > straggling(8) > straggling(8, passes=16) > 0
    found = step((1.0, 1.0, 1.0), Traffic(0.0), 1, 0.0, True)
    assert (found.low, found.total, found.high) == (1.0, 1.0, 1.0)


def test_published_tables() -> None:
    """The two fitted numbers are those of the tables that they are fitted to; the other tables are predicted."""
    fitted, held, impossible = published.split()
    assert published.fit(fitted) == (SCATTER, PAID)
    assert not {setting.model for setting, _ in fitted} & {setting.model for setting, _ in held}
    errors = [point.error for point in published.points(held)]
    assert len(errors) > 90
    assert statistics.median(errors) <= 0.05
    assert published.quantile(errors, 0.9) <= 0.15
    assert len(impossible) == 6
    every = [*published.points(fitted), *published.points(held)]
    assert published.spread(every) == pytest.approx(RANGE, abs=0.01)
