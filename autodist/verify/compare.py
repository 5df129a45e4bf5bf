"""Optimizer steps of the ranks against those of the original: loss, gradients, parameters, learning rate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from autodist.verify.trace import Digest, Group, PassKey, RunTrace, Step
from autodist.verify.verdict import Deviation, Finding, Tolerance

SHARD = 4
"""Position of the mark of a shard in a digest: which part of the tensor it is."""
HISTORY = 10
CALM_STEPS = 3
GROWTH = 30.0
"""Rounding may grow by so much within ``HISTORY`` steps after so many calm ones; a fault appears at once."""
AMPLIFIED = 5.0
MOST_AMPLIFIED = 300.0
"""A network that has amplified how far its parameters are apart, in steps that were equal, may do so by so many times
as much, for which at most this much counts."""
BEYOND_ROUNDING = 1e-13
"""What amplifies a smaller gap is not to be told from rounding of the step itself."""
OF_PASSES = frozenset({"loss", "gradient", "gradient-missing", "gradients-differ-between-ranks"})
"""Findings that another number of backward passes can bring about."""

CANCELLED = 1e-6
"""A loss below this is what numbers of usual size have left of each other, rounding and all: that of a policy whose
advantages add up to nothing."""
TOLERANCES = {
    "float64": Tolerance(
        loss=1e-9,
        gradient=1e-9,
        parameters=1e-7,
        printed=1e-7,
        small_gradient=1e-3,
        small_parameter=0.0,
        growth=1e-4,
        sensitivity=30.0,
    ),
    "float32": Tolerance(
        loss=1e-3,
        gradient=1e-2,
        parameters=1e-1,
        printed=5e-3,
        small_gradient=1.0,
        small_parameter=1.0,
        growth=1e-1,
        sensitivity=100.0,
    ),
}


@dataclass
class StepComparison:
    """All steps of one pair of runs."""

    deviations: list[Deviation] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    first: int | None = None
    """The first step with a finding."""
    rows: int | None = None
    """Rows of the original's batch, as far as it is known that the ranks share them."""
    undivided: dict[str, set[tuple[float, ...]]] = field(default_factory=dict)
    """What models got as a whole on every rank, by call."""
    recent: dict[str, list[float]] = field(default_factory=dict)
    """The last deviations of each quantity, to tell rounding that grows from a fault that appears."""
    grown: float = 0.0
    """The largest deviation that is explained by rounding that grew beyond the tolerance."""
    norms: dict[int, float] = field(default_factory=dict)
    """The largest gradient of each optimizer so far: one that nearly cancels out is mostly rounding."""
    gaps: dict[int, float] = field(default_factory=dict)
    """How far the parameters of each optimizer were apart before this step."""
    amplified: float = 0.0
    """By how much steps that were equal have amplified the gaps before them."""
    diverged: bool = False
    """Rounding has grown so far that later values cannot be compared."""
    not_finite: list[int] = field(default_factory=list)
    """Steps in which the original has neither a loss nor a gradient that is a finite number: whatever the ranks have
    there, nothing was compared."""

    def exceeds(self, step: int, quantity: str, deviation: float, allowed: float, tolerance: Tolerance) -> bool:
        """More than the tolerance, and not the slow growth of rounding in a training that amplifies it."""
        if self.diverged:
            return False
        history = self.recent.setdefault(quantity, [])
        usual = max(history[-HISTORY:], default=0.0)
        history.append(deviation)
        gap = max(self.gaps.values(), default=0.0)
        sensitivity = max(tolerance.sensitivity, AMPLIFIED * self.amplified)
        calm = len(history) > CALM_STEPS and max(history[:CALM_STEPS]) <= allowed / 10
        grows = calm and deviation <= GROWTH * usual
        if deviation > allowed and not grows and deviation > sensitivity * gap:
            return True
        if gap > BEYOND_ROUNDING:
            self.amplified = max(self.amplified, min(deviation / gap, MOST_AMPLIFIED))
        if deviation <= allowed:
            return False
        self.grown = max(self.grown, deviation)
        if deviation > tolerance.growth:
            self.diverged = True
            if not self.findings:  # what follows from a difference is not for rounding to explain
                message = f"rounding has grown to {deviation:.0e} from step to step: nothing can be said of later steps"
                self.add(step, "rounding", message, None)
        return False

    def add(self, step: int, kind: str, message: str, site: str | None, ratio: float | None = None) -> None:
        """Note a deviation, once a kind."""
        if self.first is None or step < self.first:
            self.first = step
        if not any(finding.kind == kind for finding in self.findings):
            self.findings.append(Finding(kind, message, site, step, ratio=ratio))


def square(value: float) -> float:
    """Infinite where ``value ** 2`` would raise."""
    return value * value


def distance(first: Digest, second: Digest) -> float:
    """An estimate of the norm of the difference of two tensors; none where both have left what a float holds, as those
    of a training that diverges; infinite where one of them has."""
    if not (math.isfinite(first[0]) and math.isfinite(second[0])):
        return math.inf if math.isfinite(first[0]) or math.isfinite(second[0]) else 0.0
    apart = [a - b for a, b in zip(first[1:4], second[1:4], strict=True)]
    return max(math.hypot(*apart) / math.sqrt(len(apart)), abs(first[0] - second[0]))


def relative(first: Digest, second: Digest, scale: float) -> float:
    """Their distance in units of ``scale``, which may itself be infinite."""
    apart = distance(first, second)
    return apart / scale if math.isfinite(apart) else apart


def assembled(parts: Sequence[Digest | None]) -> Digest | None:
    """The digest of the whole tensor: one rank's copy of it, or the sum of the shards."""
    present = [part for part in parts if part is not None]
    if not present:
        return None
    if len(present[0]) <= SHARD:
        return present[0]
    columns = list(zip(*{part[SHARD]: part for part in present}.values(), strict=True))
    return [math.sqrt(sum(map(square, columns[0]))), *(sum(column) for column in columns[1:4])]


def spread(parts: Sequence[Digest | None], floor: float) -> float:
    """How far the copies of one tensor are apart between ranks; those of one shard, where nodes hold each a copy."""
    present = [part for part in parts if part is not None]
    if not present:
        return 0.0
    if len(present[0]) > SHARD:
        copies = [[part for part in present if part[SHARD] == mark] for mark in {part[SHARD] for part in present}]
        return max(relative(each[0], other, max(floor, 1e-300, each[0][0])) for each in copies for other in each)
    scale = max(floor, 1e-300, *(part[0] for part in present))
    apart = max(relative(present[0], part, scale) for part in present)
    return apart if len(present) == len(parts) else max(apart, 1.0 if max(part[0] for part in present) > floor else 0.0)


def whole_norm(groups: Sequence[Group]) -> float:
    """The norm of all gradients of an optimizer together."""
    return math.sqrt(sum(square(each[0]) for group in groups for each in group.gradients if each is not None))


def whole_norm_of_parameters(groups: Sequence[Group]) -> float:
    """The norm of all parameters of an optimizer together."""
    return math.sqrt(sum(square(each[0]) for group in groups for each in group.parameters if each is not None))


def compare_steps(original: RunTrace, ranks: Sequence[RunTrace], tolerance: Tolerance) -> StepComparison:
    """Go through the steps of all processes side by side."""
    result = StepComparison()
    counts = [len(rank.steps) for rank in ranks]
    if len(set(counts)) > 1:
        result.add(
            min(counts), "steps-per-rank", f"the ranks take different numbers of optimizer steps: {counts}", None
        )
    elif counts[0] != len(original.steps):
        message = f"the ranks take {counts[0]} optimizer steps, the original {len(original.steps)}"
        result.add(min(counts[0], len(original.steps)), "step-count", message, None)
    compare_initial(original, ranks, tolerance, result)
    compare_rows(original, ranks, result)
    scale = 0.0
    for number in range(min(*counts, len(original.steps))):
        step, converted = original.steps[number], [rank.steps[number] for rank in ranks]
        if any(each.optimizer != step.optimizer for each in converted):
            message = "the optimizers step in another order than in the original"
            result.add(number, "step-order", message, converted[0].site)
            break
        if any(shape_of(each) != shape_of(step) for each in converted):
            message = (
                f"the optimizer's groups hold {shape_of(converted[0])} parameters, the original's {shape_of(step)}"
            )
            result.add(number, "optimizer-parameters", message, converted[0].site)
            break
        scale = max(scale, *(abs(loss) for loss in step.losses), 0.0)
        compare_step(number, step, converted, tolerance, scale, result)
    if any(finding.kind == "loss" for finding in result.findings):
        compare_own_rows(original, ranks, result)
    return result


def has_finite(step: Step) -> bool:
    """Whether some loss or gradient of a step is a number that another can be held against."""
    gradients = [each[0] for group in step.groups for each in group.gradients if each is not None]
    return not (step.losses or gradients) or any(map(math.isfinite, [*step.losses, *gradients]))


def shape_of(step: Step) -> list[int]:
    """How many parameters each group has."""
    return [len(group.parameters) for group in step.groups]


def compare_initial(
    original: RunTrace, ranks: Sequence[RunTrace], tolerance: Tolerance, result: StepComparison
) -> None:
    """The parameters before the first step of each optimizer."""
    for number, step in enumerate(original.steps):
        if step.initial is None:
            continue
        steps = [rank.steps[number] for rank in ranks if number < len(rank.steps)]
        if (
            len(steps) < len(ranks)
            or any(each.initial is None for each in steps)
            or shape_of(step) != shape_of(steps[0])
        ):
            continue
        apart = away = 0.0
        for index, group in enumerate(step.initial):
            copies = [each.initial[index] for each in steps if each.initial is not None]
            for position, expected in enumerate(group):
                parts = [copy[position] for copy in copies]
                apart = max(apart, spread(parts, 0.0))
                whole = assembled(parts)
                if expected is not None and whole is not None:
                    away = max(away, relative(whole, expected, max(1e-12, expected[0])))
        if apart > tolerance.loss:
            message = f"the ranks begin training with different parameters (relative {apart:.1e})"
            result.add(number, "initial-parameters-differ-between-ranks", message, steps[0].site)
        elif away > tolerance.loss:
            message = f"training begins with other parameters than in the original (relative {away:.1e})"
            result.add(number, "initial-parameters", message, steps[0].site)


def compare_step(
    number: int, step: Step, converted: Sequence[Step], tolerance: Tolerance, scale: float, result: StepComparison
) -> None:
    """One step: what led to it, what it did."""
    first = converted[0]
    if not has_finite(step):
        result.not_finite.append(number)
    result.rows = divided_rows(step, converted) or result.rows
    compare_calls(number, step, converted, result)
    agreed = len(result.findings)
    original_loss, converted_loss, loss = compare_loss(number, step, converted, tolerance, scale, result)
    result.norms[step.optimizer] = max(result.norms.get(step.optimizer, 0.0), whole_norm(step.groups))
    floor = tolerance.small_gradient * result.norms[step.optimizer]
    share = tolerance.small_parameter * whole_norm_of_parameters(step.groups)
    gradient = parameters = apart_gradient = apart_parameters = 0.0
    lost: list[str] = []
    worst = ""
    for index, group in enumerate(step.groups):
        groups = [each.groups[index] for each in converted]
        compare_settings(number, group, groups, first.site, result)
        for position, expected in enumerate(group.gradients):
            name = f"parameter {position} of group {index}"
            parts = [each.gradients[position] for each in groups]
            apart_gradient = max(apart_gradient, spread(parts, floor))
            whole = assembled(parts)
            if (whole is None) != (expected is None):
                present = whole if whole is not None else expected
                if present is not None and present[0] > floor * 1e-6:
                    lost.append(name)
            if whole is not None and expected is not None:
                away = relative(whole, expected, max(floor, 1e-30, expected[0]))
                if away > gradient:
                    gradient, worst = away, name
            copies = [each.parameters[position] for each in groups]
            apart_parameters = max(apart_parameters, spread(copies, 0.0))
            after, goal = assembled(copies), group.parameters[position]
            if after is not None and goal is not None:
                parameters = max(parameters, relative(after, goal, max(share, 1e-8, goal[0])))
    result.deviations.append(
        Deviation(number, loss, gradient, parameters, original_loss, converted_loss, step.optimizer)
    )
    if apart_gradient > tolerance.gradient:
        message = f"the ranks step with different gradients (relative {apart_gradient:.1e})"
        result.add(number, "gradients-differ-between-ranks", message, first.site)
    if apart_parameters > tolerance.gradient:
        message = f"the ranks hold different parameters after the step (relative {apart_parameters:.1e})"
        result.add(number, "parameters-differ-between-ranks", message, first.site)
    if lost:
        message = f"{len(lost)} parameters have a gradient in one of the two programs only, first {lost[0]}"
        result.add(number, "gradient-missing", message, first.site)
    if result.exceeds(number, f"gradient of optimizer {step.optimizer}", gradient, tolerance.gradient, tolerance):
        ratio = gradient_ratio(step, converted)
        message = f"the gradient deviates from the original's (relative {gradient:.1e}, {worst}"
        message += f", {ratio:.4g} times as long)" if ratio is not None else ")"
        result.add(number, "gradient", message, first.site, ratio)
    if result.exceeds(number, f"parameters of optimizer {step.optimizer}", parameters, tolerance.parameters, tolerance):
        message = f"the parameters deviate from the original's after the step (relative {parameters:.1e})"
        result.add(number, "parameters", message, first.site)
    result.gaps[step.optimizer] = parameters
    if any(finding.kind in OF_PASSES for finding in result.findings[agreed:]):
        compare_passes(number, step, converted, result, agreed)


def compare_passes(number: int, step: Step, converted: Sequence[Step], result: StepComparison, at: int) -> None:
    """Another number of backward passes is no fault, but it may be why a step comes to something else: it is said ahead
    of the findings that begin ``at``."""
    counts, expected = [len(each.losses) for each in converted], len(step.losses)
    if all(count == expected for count in counts) or sum(counts) == expected and 0 not in counts:
        return
    if not any(finding.kind == "backward-count" for finding in result.findings):
        message = f"backward runs {counts} times on the ranks before the step, {expected} times in the original"
        result.findings.insert(at, Finding("backward-count", message, converted[0].site, number))


def gradient_ratio(step: Step, converted: Sequence[Step]) -> float | None:
    """How much longer the gradient is, where it has the same direction: a factor points to scaling."""
    pairs = [
        (assembled([each.groups[index].gradients[position] for each in converted]), expected)
        for index, group in enumerate(step.groups)
        for position, expected in enumerate(group.gradients)
    ]
    known = [(whole, expected) for whole, expected in pairs if whole is not None and expected is not None]
    original_norm = math.sqrt(sum(square(expected[0]) for _, expected in known))
    if not original_norm:
        return None
    ratio = math.sqrt(sum(square(whole[0]) for whole, _ in known)) / original_norm
    scaled = math.sqrt(
        sum(
            sum(square(a - ratio * b) for a, b in zip(whole[1:4], expected[1:4], strict=True))
            for whole, expected in known
        )
    )
    return ratio if scaled <= 1e-6 * ratio * original_norm and abs(ratio - 1) > 1e-6 else None


def compare_loss(
    number: int, step: Step, converted: Sequence[Step], tolerance: Tolerance, scale: float, result: StepComparison
) -> tuple[float, float, float]:
    """The mean of the ranks' losses against the original's, for every backward pass before the step; their sums, where
    the ranks run others, as in a loop over the samples of a batch, or over its pieces."""
    first = converted[0]
    original_loss, shares = sum(step.losses), [each.losses for each in converted]
    losses = step.losses
    if any(len(share) != len(losses) for share in shares):
        shares, losses = [[sum(share)] for share in shares], [original_loss]
    means = [sum(share[at] for share in shares) / len(shares) for at in range(len(losses))]
    away = 0.0
    for at, (mean, expected) in enumerate(zip(means, losses, strict=True)):
        relative = abs(mean - expected) / max(abs(expected), 1e-3 * scale, CANCELLED)
        if mean == expected or (math.isnan(mean) and math.isnan(expected)):
            relative = 0.0
        relative = relative if math.isfinite(relative) else math.inf
        away = max(away, relative)
        if result.exceeds(number, f"loss {at} of optimizer {step.optimizer}", relative, tolerance.loss, tolerance):
            message = (
                f"the mean loss of the ranks is {mean:.9g}, the original's {expected:.9g} (relative {relative:.1e})"
            )
            site = first.backward_sites[at] if at < len(first.backward_sites) else first.site
            result.add(number, "loss", message, site, mean / expected if expected else None)
    return original_loss, sum(means), away


def compare_settings(number: int, group: Group, groups: Sequence[Group], site: str, result: StepComparison) -> None:
    """Learning rate, weight decay, momentum and whatever else the optimizer's group holds."""
    for name, expected in group.settings.items():
        values = [each.settings.get(name, math.nan) for each in groups]
        if any(differs(value, values[0]) for value in values):
            kind = "learning-rate-differs-between-ranks" if name == "lr" else "settings-differ-between-ranks"
            result.add(number, kind, f"{name} is {values} on the ranks", site)
        elif differs(values[0], expected):
            kind = "learning-rate" if name == "lr" else "optimizer-settings"
            ratio = values[0] / expected if expected else None
            result.add(number, kind, f"{name} is {values[0]:.9g}, the original's {expected:.9g}", site, ratio)


def differs(first: float, second: float) -> bool:
    """Beyond rounding."""
    if math.isnan(first) and math.isnan(second):
        return False
    return not math.isclose(first, second, rel_tol=1e-9, abs_tol=1e-15)


def compare_calls(number: int, step: Step, converted: Sequence[Step], result: StepComparison) -> None:
    """Models must see the whole batch once: not the whole of it on every rank."""
    names = [each.module for each in step.forwards]
    batch = result.rows
    if batch is None or any([each.module for each in other.forwards] != names for other in converted):
        return
    for at, forward in enumerate(step.forwards):
        shapes = [each.forwards[at].shape for each in converted]
        if not (
            forward.learned
            and forward.shape
            and forward.shape[0] == batch
            and all(shape == forward.shape for shape in shapes)
        ):
            continue
        inputs = result.undivided.setdefault(f"{at} {forward.module}", set())
        inputs.add(tuple(forward.digest or ()))
        if len(inputs) > 1:  # the same input every time is no batch: samples are drawn from it to be looked at
            message = f"{forward.module} gets {batch} rows on every rank, as many as in the original"
            result.add(number, "rows-not-divided", message, converted[0].site)
            return


def divided_rows(step: Step, converted: Sequence[Step]) -> int | None:
    """Rows of the batch of the original, where some model call shows that the ranks share them."""
    if any(len(other.forwards) != len(step.forwards) for other in converted):
        return None
    for at, forward in enumerate(step.forwards):
        shapes = [each.forwards[at].shape for each in converted]
        if (
            forward.shape
            and shapes[0] != forward.shape
            and sum(shape[0] for shape in shapes if shape) == forward.shape[0]
        ):
            return forward.shape[0]
    return None


def sliced_passes(original: RunTrace, ranks: Sequence[RunTrace]) -> set[PassKey]:
    """Passes of which every rank reads all batches, and gives its models a part of each: the numbers of the steps tell
    whether these are the right ones."""
    seen: dict[PassKey, bool] = {}
    for number, (step, *converted) in enumerate(zip(original.steps, *(rank.steps for rank in ranks), strict=False)):
        shares = bool(step.forwards) and not any(len(each.forwards) != len(step.forwards) for each in converted)
        for at, call in enumerate(step.forwards if shares else []):
            parts = [each.forwards[at].shape for each in converted]
            shares = shares and bool(call.shape) and sum(part[0] for part in parts if part) == call.shape[0]
        for loader, at, _ in ranks[0].steps[number].batches:
            seen[loader, at] = seen.get((loader, at), True) and shares
    return {key for key, shares in seen.items() if shares}


def compare_rows(original: RunTrace, ranks: Sequence[RunTrace], result: StepComparison) -> None:
    """Where no loader tells what is read: ranks whose models see the same rows in all steps share no work.

    Random inputs are the same on all ranks under the probes, so that a single step proves nothing. Where losses differ,
    and the original's model sees those rows too, each rank picks its own of what the model makes of them, as the nodes
    of a graph.
    """
    if len(ranks) < 2 or any(step.batches for step in ranks[0].steps) or not ranks[0].steps:
        return
    modules = any(step.forwards for step in ranks[0].steps)
    for number in range(min(len(rank.steps) for rank in ranks)):
        calls = [rank.steps[number].forwards for rank in ranks]
        if not modules and all(alike(rank.steps[number].losses, ranks[0].steps[number].losses) for rank in ranks):
            continue
        if not calls[0] or any(len(each) != len(calls[0]) for each in calls):
            return
        if any(call.digest != calls[0][at].digest for each in calls for at, call in enumerate(each)):
            return
        seen = original.steps[number].forwards if number < len(original.steps) else []
        whole = [call.digest for call in seen] == [call.digest for call in calls[0]]
        if whole and not all(alike(rank.steps[number].losses, ranks[0].steps[number].losses) for rank in ranks):
            return
    message = "every rank trains on the same rows: the batches that the script makes itself are not divided"
    result.add(0, "rows-replicated", message, ranks[0].steps[0].backward_sites[0] if ranks[0].steps[0].losses else None)


def compare_own_rows(original: RunTrace, ranks: Sequence[RunTrace], result: StepComparison) -> None:
    """Where no loader tells what is read: whether each rank's models see as many rows as the original's, and others."""
    if len(ranks) < 2 or not original.steps or any(step.batches for rank in ranks for step in rank.steps[:1]):
        return
    step, converted = original.steps[0], [rank.steps[0] for rank in ranks if rank.steps]
    if any(len(each.forwards) != len(step.forwards) for each in converted):
        return
    calls = [(call, [each.forwards[at] for each in converted]) for at, call in enumerate(step.forwards)]
    if any(each.shape != call.shape for call, of_ranks in calls for each in of_ranks):
        return
    for call, of_ranks in calls:
        if call.shape and call.shape[0] > 1 and any(each.digest != of_ranks[0].digest for each in of_ranks):
            message = (
                f"{call.module} gets {call.shape[0]} rows on every rank, others on each, as many as in the original"
            )
            result.add(0, "rows-not-divided", message, converted[0].site)
            return


def alike(losses: Sequence[float], others: Sequence[float]) -> bool:
    """Whether two ranks compute the same losses in a step."""
    pairs = zip(losses, others, strict=False)
    return len(losses) == len(others) and all(math.isclose(a, b, rel_tol=1e-9) for a, b in pairs)
