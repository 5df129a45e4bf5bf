"""A plan as text, and as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from autodist.plan.devices import GIB
from autodist.plan.memory import ERROR, RESERVED, STRATEGIES
from autodist.plan.planning import WORTH, Option, Outcome, Row
from autodist.plan.speed import Step

UNITS = (("GiB", GIB), ("MiB", 2**20), ("KiB", 2**10))
MARKS = {"yes": "", "tight": "?", "no": "!", "unknown": "+", "doubtful": "~"}
ALONE = {name: "one device" if name == STRATEGIES[0] else "" for name in STRATEGIES}
"""Without other ranks there is one way only, which stands in the first column."""
MEANINGS = {
    "tight": f"? an error of {ERROR:.0%} decides whether it fits",
    "no": "! does not fit",
    "unknown": "+ at least: activations are not known",
    "doubtful": "~ at least, and activations have less than half of the device",
}


def as_text(outcome: Outcome, name: str) -> str:
    """What a person wants to know; the advice comes last."""
    return "\n".join((*_heading(outcome, name), *_memory(outcome), *_speed(outcome), *_advice(outcome))) + "\n"


def _heading(outcome: Outcome, name: str) -> Iterator[str]:
    device, known = outcome.device, outcome.known
    where = f"measured on {known.device}" if known.device else "read from the source"
    yield (
        f"{name} on {device.name}: {device.memory_gib:g} GiB each, {device.per_node} in a node, "
        f"{device.within / 1e9:.0f} GB/s within it, {device.network:g} Gbit/s between nodes"
    )
    batch = f", {known.batch} samples in each step" if known.batch else ""
    yield (
        f"{where}: {counted(known.count)} parameters in {bytes_(known.parameters)}, gradients "
        f"{bytes_(known.gradients)}, optimizer state {bytes_(known.state)}{batch}"
    )
    yield ""


def _memory(outcome: Outcome) -> Iterator[str]:
    options = [option for row in outcome.rows for option in row.options]
    unit, size = ("GiB", GIB) if any(option.need.total >= GIB for option in options) else ("MiB", 2**20)
    known = any(option.need.training is not None for option in options)
    brackets = ", in brackets with activation checkpointing" if known else ""
    yield f"memory of one rank in {unit}{brackets} (CUDA and NCCL take {RESERVED / GIB:g} GiB more):"
    yield f"  {'GPUs':>5} {'batch':>7}" + "".join(f"  {name:<19}" for name in STRATEGIES).rstrip()
    for row in outcome.rows:
        cells = []
        for strategy in STRATEGIES:
            own = [each for each in row.options if each.strategy == (strategy if row.ranks > 1 else ALONE[strategy])]
            figures = [f"{each.need.total / size:.2f}{MARKS[each.fits]}" for each in own[: 1 + known]]
            cells.append(f"  {f'{figures[0]} ({figures[1]})' if known and figures else ''.join(figures) or '-':<19}")
        batch = f"{row.samples:g}" if row.samples and not row.problem else "-"
        yield f"  {row.ranks:>5} {batch:>7}" + "".join(cells).rstrip()
    verdicts = {option.fits for option in options}
    yield from (f"  {MEANINGS[each]}" for each in MEANINGS if each in verdicts)
    yield from (f"  {row.ranks} GPUs: {row.problem}" for row in outcome.rows if row.problem)
    yield ""


def _speed(outcome: Outcome) -> Iterator[str]:
    if outcome.one is None:
        several = [row for row in outcome.rows if row.best is not None and row.ranks > 1]
        sent = " What the ranks send each other takes:" if several else ""
        yield f"speed: how long a step takes on this device is not known.{sent}"
        for row in several:
            if row.best is not None and row.pays_from is not None:
                yield (
                    f"  {row.ranks:>5} GPUs, {row.best.name}: {time(row.best.sent.total)} of each step; they pay "
                    f"({WORTH:.0%}) where a rank computes {time(row.pays_from)} or longer"
                )
        yield ""
        return
    alone = f"a step on one device, had it the memory, takes {time(outcome.one)}"
    yield f"speed, of the fastest strategy that fits ({alone}):"
    yield f"  {'GPUs':>5}  {'step':>9}  {'times as fast':<22} {'each':>6}  {'limit':<14} strategy"
    for row in outcome.rows:
        best = row.best
        if best is None or best.step is None or row.speedup is None:
            yield f"  {row.ranks:>5}  {'-':>9}  " + (row.problem or "nothing fits")
            continue
        low, likely, high = row.speedup
        faster = f"{likely:.2f} ({low:.2f} to {high:.2f})"
        each = f"{likely / row.ranks:.0%}"
        yield f"  {row.ranks:>5}  {time(best.step.total):>9}  {faster:<22} {each:>6}  {best.step.limit:<14} {best.name}"
    yield ""


def _advice(outcome: Outcome) -> Iterator[str]:
    yield advice(outcome)
    yield from (f"not known: {each}" for each in outcome.unknown)


def advice(outcome: Outcome) -> str:
    """Which strategy, on how many devices, and why."""
    row = outcome.chosen
    if row is None or row.best is None:
        return f"take: nothing of this. {_nothing(outcome)}"
    many = f"{row.ranks} GPUs" if row.ranks > 1 else "one GPU"
    how = f"take {many} with {row.best.name}" if row.ranks > 1 else f"take {many}{_checkpointed(row.best)}"
    if row.speedup is None:
        least = "what is known of its memory fits"
        certain = {"unknown": least, "doubtful": f"{least}, with little left", "tight": "it fits, if only just"}
        return f"{how}: {certain.get(row.best.fits, 'it fits')}; whether more of them pay is not known"
    assert row.best.step is not None
    step, efficiency = row.best.step, row.speedup[1] / row.ranks
    if row.ranks > 1:
        parts = [f"{row.speedup[1]:.1f} times as fast as one, {efficiency:.0%} of one each; {_parts(step)}"]
    else:
        parts = ["it fits, and computes alone"]
    if efficiency < WORTH:
        parts.append("not worth it for speed alone, but fewer of those asked for do not hold the training")
    after = next((each for each in outcome.rows if each.ranks > row.ranks and each.speedup is not None), None)
    if after is not None and after.best is not None and after.best.step is not None and after.speedup is not None:
        faster, share = after.speedup[1], after.speedup[1] / after.ranks
        more = f"{after.ranks} would be {faster:.1f} times as fast, {share:.0%} of one each"
        parts.append(f"{more}: {_parts(after.best.step)}")
    return f"{how}: " + "; ".join(parts)


def _checkpointed(option: Option) -> str:
    return " and activation checkpointing" if option.checkpointing else ""


def _parts(step: Step) -> str:
    parts = [f"of a step of {time(step.total)} it computes {time(step.compute)}"]
    if step.communication:
        parts.append(f"communicates {time(step.communication)}")
    if step.input:
        parts.append(f"waits {time(step.input)} for samples")
    return ", ".join(parts)


def _nothing(outcome: Outcome) -> str:
    if all(row.problem for row in outcome.rows):
        return "The batch divides by none of these numbers of GPUs; --batch-size per-rank keeps it on each of them."
    return "The training does not fit: take a device with more memory, more of them with fsdp, or a smaller batch."


def as_json(outcome: Outcome) -> str:
    """Everything."""
    content = {
        "device": asdict(outcome.device),
        "known": asdict(outcome.known),
        "timed_on_device": outcome.timed,
        "seconds_on_one": outcome.one,
        "rows": [_row(row) for row in outcome.rows],
        "chosen": None if outcome.chosen is None else outcome.chosen.ranks,
        "advice": advice(outcome),
        "unknown": outcome.unknown,
    }
    return json.dumps(content, indent=2) + "\n"


def _row(row: Row) -> dict[str, Any]:
    options = [
        {
            **asdict(option),
            "need": {**asdict(option.need), "total": option.need.total},
            "limit": None if option.step is None else option.step.limit,
        }
        for option in row.options
    ]
    return {**asdict(row), "options": options, "best": None if row.best is None else row.best.name}


def bytes_(number: float) -> str:
    """A size that a person can read."""
    unit, size = next(((unit, size) for unit, size in UNITS if number >= size), UNITS[-1])
    return f"{number / size:.1f} {unit}"


def counted(number: float) -> str:
    """How many there are."""
    return f"{number / 1e6:.1f} million" if number >= 1e6 else f"{number:,}"


def time(seconds: float) -> str:
    """A time that a person can read."""
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.1f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} µs"
