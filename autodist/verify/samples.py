"""Did the ranks together read what the original reads?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from autodist.verify.compare import sliced_passes
from autodist.verify.replay import hashable, replicated, union
from autodist.verify.trace import Loader, Pass, PassKey, RunTrace
from autodist.verify.verdict import Finding

PLAIN_SAMPLERS = ("RandomSampler", "SequentialSampler", "_InfiniteConstantSampler", "NoneType")


def compare_samples(original: RunTrace, ranks: Sequence[RunTrace]) -> tuple[list[Finding], list[Finding]]:
    """Findings and notes about every pass over every loader."""
    findings: list[Finding] = []
    notes: list[Finding] = []
    keys = list(dict.fromkeys(key for rank in ranks for key in rank.passes))
    loaders = {loader.number: loader for loader in ranks[0].loaders}
    sliced = sliced_passes(original, ranks)
    originals = {loader.number: loader for loader in original.loaders}
    for key in keys:
        found = [rank.passes.get(key) for rank in ranks]
        present = [each for each in found if each is not None]
        own = original.passes.get(key)
        loader = loaders.get(key[0])
        if loader is None or own is None:
            continue
        trains = own.trains or any(each.trains for each in present)
        if len(present) < len(ranks):
            if trains:
                missing = [rank for rank, each in enumerate(found) if each is None]
                findings.append(Finding("passes-per-rank", f"ranks {missing} do not iterate the loader", loader.site))
            continue
        if trains and key in sliced and replicated(present) and sizes(own.natural) == sizes(present[0].batches):
            continue
        check = check_training if trains else check_evaluation
        check(loader, originals.get(key[0]), own, present, findings, notes)
    check_passes(original, ranks, loaders, findings)
    check_weights(ranks, findings)
    for number, loader in loaders.items():
        check_order(number, loader, originals.get(number), original, ranks, findings)
    return unique(findings), unique(notes)


def unique(findings: Sequence[Finding]) -> list[Finding]:
    """Each kind once a place: what happens in the first epoch happens in all."""
    seen: dict[tuple[str, str | None], Finding] = {}
    for finding in findings:
        seen.setdefault((finding.kind, finding.site), finding)
    return list(seen.values())


def sizes(batches: Sequence[Sequence[Any]]) -> list[int]:
    """How many samples each has."""
    return [len(batch) for batch in batches]


def counted(samples: Sequence[Any]) -> Counter[Any]:
    """How often each sample was read."""
    return Counter(hashable(sample) for sample in samples)


def check_training(
    loader: Loader,
    original_loader: Loader | None,
    own: Pass,
    passes: Sequence[Pass],
    findings: list[Finding],
    notes: list[Finding],
) -> None:
    """A training pass: parts that differ, the same global batches, nothing missing, nothing twice but the padding."""
    world = len(passes)
    counts = [len(each.batches) for each in passes]
    if len(set(counts)) > 1:
        findings.append(Finding("batches-per-rank", f"ranks read different numbers of batches: {counts}", loader.site))
    if world > 1 and replicated(passes) and passes[0].samples and not replication_is_chance(passes):
        findings.append(
            Finding(
                "samples-replicated", "every rank trains on the same samples: the loader is not sharded", loader.site
            )
        )
        return
    if len({each.stream for each in passes}) > 1:
        message = "the ranks' samplers draw from generators in different states"
        findings.append(Finding("sampler-streams", message, loader.site))
    together = union(passes)
    wholes = [len(batch) for batch in own.natural] if not is_stream(own) else [len(batch) for batch in own.batches]
    sizes = [len(batch) for batch in together]
    complete = own.exhausted and all(each.exhausted for each in passes)
    if original_loader is not None and sampler_replaced(loader, original_loader):
        message = f"the original draws with {original_loader.sampler}, the conversion with {loader.sampler}"
        findings.append(Finding("sampler-replaced", message, loader.site))
    if sizes and wholes and sizes[0] > wholes[0]:
        message = f"the ranks' batches together hold {sizes[0]} samples, the original's {wholes[0]}"
        findings.append(Finding("batch-not-divided", message, loader.site))
        return
    if sizes and wholes and len(sizes) > 1 and sizes[0] < wholes[0]:
        message = f"the ranks' batches together hold {sizes[0]} samples, the original's {wholes[0]}"
        findings.append(Finding("batch-too-small", message, loader.site))
        return
    if complete and len(sizes) != len(wholes):
        message = f"the ranks read {len(sizes)} batches, the original {len(wholes)}"
        findings.append(Finding("batch-count", message, loader.site))
        return
    read, natural = counted([sample for batch in together for sample in batch]), counted(own.natural_samples)
    extra, missing = read - natural, natural - read
    covers_all = max(natural.values(), default=0) == 1 and (
        original_loader is None or original_loader.samples in (None, len(natural))
    )
    repeated = sum(count - 1 for count in read.values() if count > 1)
    if not complete:
        if covers_all and repeated >= world * max(1, len(sizes) // 2):
            findings.append(Finding("samples-twice", f"{repeated} samples are read more than once", loader.site))
        return
    if not covers_all:
        surplus = sum(read.values()) - sum(natural.values())
        if 0 < surplus < world:
            notes.append(padding_note(surplus, sum(natural.values()), loader))
        elif surplus:
            message = f"the ranks read {sum(read.values())} samples, the original {sum(natural.values())}"
            findings.append(Finding("sample-count", message, loader.site))
        elif max(natural.values(), default=0) == 1 and repeated:
            findings.append(Finding("samples-twice", f"{repeated} samples are read more than once", loader.site))
        return
    foreign = sum(count for sample, count in extra.items() if sample not in natural)
    if foreign:
        message = f"{foreign} samples are read that the original does not read: the ranks split the data differently"
        findings.append(Finding("samples-foreign", message, loader.site))
    elif missing:
        message = f"{sum(missing.values())} of {sum(natural.values())} samples are never read"
        if extra:
            message += f", {sum(extra.values())} are read twice: the ranks shuffle differently"
        findings.append(Finding("samples-missing", message, loader.site))
    elif 0 < sum(extra.values()) < world:
        notes.append(padding_note(sum(extra.values()), sum(natural.values()), loader))
    elif extra:
        findings.append(Finding("samples-twice", f"{sum(extra.values())} samples are read twice", loader.site))


def sampler_replaced(loader: Loader, original_loader: Loader) -> bool:
    """A sampler of its own kind must keep deciding what is read; it may be divided, not exchanged."""
    plain = (*PLAIN_SAMPLERS, "DistributedSampler")
    return original_loader.sampler not in plain and loader.sampler in plain


def padding_note(surplus: int, total: int, loader: Loader) -> Finding:
    """``DistributedSampler`` repeats samples where the data does not divide."""
    message = (
        f"{surplus} of {total} samples are read twice, so that every rank has equally many; the original replayed them"
    )
    return Finding("padding", message, loader.site)


def replication_is_chance(passes: Sequence[Pass]) -> bool:
    """Single samples may coincide."""
    return len(passes[0].samples) < 2


def is_stream(own: Pass) -> bool:
    """Items of a stream are known by their content, and ``natural`` holds what was pulled rather than batches."""
    return (
        bool(own.samples)
        and isinstance(own.samples[0], str)
        and [len(b) for b in own.natural] != [len(b) for b in own.batches]
    )


def check_evaluation(
    loader: Loader,
    original_loader: Loader | None,
    own: Pass,
    passes: Sequence[Pass],
    findings: list[Finding],
    notes: list[Finding],
) -> None:
    """An evaluation pass: all of it on every rank, or parts that make up the whole exactly once."""
    if not (own.exhausted and all(each.exhausted for each in passes)):
        return
    natural = counted(own.natural_samples)
    if replicated(passes) or all(counted(each.samples) == natural for each in passes):
        if counted(passes[0].samples) != natural and not is_random_subset(original_loader, natural):
            findings.append(samples_differ(natural, counted(passes[0].samples), loader))
        return
    together = counted([sample for each in passes for sample in each.samples])
    if together == natural:
        return
    if (
        is_random_subset(original_loader, natural)
        and max(together.values()) == 1
        and together.total() == natural.total()
    ):
        return
    extra, missing = together - natural, natural - together
    if extra and not missing and all(sample in natural for sample in extra):
        message = f"{sum(extra.values())} samples are evaluated twice"
        findings.append(Finding("evaluation-padded", message, loader.site))
    else:
        findings.append(samples_differ(natural, together, loader))


def is_random_subset(loader: Loader | None, natural: Counter[Any]) -> bool:
    """The original itself evaluates on a random part of its data."""
    return loader is not None and loader.shuffled and loader.samples is not None and loader.samples > len(natural)


def samples_differ(natural: Counter[Any], read: Counter[Any], loader: Loader) -> Finding:
    """Evaluation on other data."""
    extra, missing = sum((read - natural).values()), sum((natural - read).values())
    message = f"evaluation misses {missing} of the original's {sum(natural.values())} samples and reads {extra} others"
    return Finding("evaluation-samples", message, loader.site)


def check_passes(
    original: RunTrace, ranks: Sequence[RunTrace], loaders: dict[int, Loader], findings: list[Finding]
) -> None:
    """The same number of epochs."""
    if not all(rank.end is not None and not rank.end.stopped for rank in (original, *ranks)):
        return
    ours, theirs = Counter(loader for loader, _ in original.passes), Counter(loader for loader, _ in ranks[0].passes)
    for number, loader in loaders.items():
        if ours[number] and ours[number] != theirs[number]:
            message = f"rank 0 iterates the loader {theirs[number]} times, the original {ours[number]} times"
            findings.append(Finding("pass-count", message, loader.site))


def check_weights(ranks: Sequence[RunTrace], findings: list[Finding]) -> None:
    """Ranks that draw from as many weights, and take their shares, draw from the same."""
    for together in zip(*(rank.weights for rank in ranks), strict=False):
        if len({count for count, _, _ in together}) == 1 and len({content for _, content, _ in together}) > 1:
            message = "the ranks draw their samples by different weights"
            findings.append(Finding("sampler-weights", message, together[0][2]))


def begins(order: list[Any], other: list[Any]) -> bool:
    """Whether an order begins as another one, which may have been broken off."""
    return order[: len(other)] == other


def first_repeated(natural: list[list[Any]], converted: list[list[Any]]) -> tuple[int, int] | None:
    """Two passes that a conversion makes in one order, the earlier one first, and the original in two."""
    pairs = ((one, other) for other, order in enumerate(converted) if len(order) >= 8 for one in range(other))
    repeated = (pair for pair in pairs if begins(converted[pair[0]], converted[pair[1]]))
    return next((pair for pair in repeated if not begins(natural[pair[0]], natural[pair[1]])), None)


def check_order(
    number: int,
    loader: Loader,
    original_loader: Loader | None,
    original: RunTrace,
    ranks: Sequence[RunTrace],
    findings: list[Finding],
) -> None:
    """Shuffled where the original shuffles, anew in every epoch, and only there."""
    keys: list[PassKey] = [key for key in ranks[0].passes if key[0] == number and key in original.passes]
    keys = [key for key in keys if ranks[0].passes[key].trains and all(key in rank.passes for rank in ranks)]
    if not keys or is_stream(original.passes[keys[0]]):
        return
    natural = [original.passes[key].natural_samples for key in keys]
    converted = [ranks[0].passes[key].samples for key in keys]
    if len(converted[0]) < 8 or not all(isinstance(each, int) for each in natural[0]):
        return
    shuffles = natural[0] != sorted(natural[0])
    plain = loader.sampler in ("DistributedSampler", "SequentialSampler") and not loader.shuffled
    if (shuffles and converted[0] == sorted(converted[0])) or (
        plain and original_loader is not None and original_loader.sampler == "RandomSampler"
    ):
        findings.append(Finding("shuffle-lost", "the original shuffles, the conversion does not", loader.site))
    elif (not shuffles and converted[0] != sorted(converted[0])) or (
        loader.shuffled and original_loader is not None and original_loader.sampler == "SequentialSampler"
    ):
        findings.append(Finding("shuffle-added", "the original keeps the order, the conversion shuffles", loader.site))
    elif (pair := first_repeated(natural, converted)) is not None:
        which = "the first" if pair[0] == 0 else f"that of pass {pair[0] + 1} in pass {pair[1] + 1}"
        message = f"the original reads in a new order every epoch, the conversion repeats {which}"
        findings.append(Finding("order-repeated", message, ranks[0].passes[keys[pair[1]]].site))
