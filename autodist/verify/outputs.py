"""What a user sees: printed lines, files, what is in them, exit codes."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autodist.verify.contents import content_difference, shortened, understood, value_difference
from autodist.verify.plan import TEMPORARY
from autodist.verify.text import (
    COMPACT,
    Shares,
    as_whole,
    factor_between,
    first_difference,
    last_places,
    printed_lines,
)
from autodist.verify.trace import RunTrace, Save, Write
from autodist.verify.verdict import Finding, Tolerance

VARYING = re.compile(
    rf"{COMPACT}|"
    r"(?:19|20)\d\d[-_.]?[01]\d[-_.]?[0-3]\d(?:[-_T .]?[0-2]\d[-_:.h]?[0-5]\d(?:[-_:.m]?[0-5]\d(?:[._]\d{6})?)?)?"
    r"|(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*[-_ ,]+)?(?:\d\d?[-_ ]+)?"
    r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*[-_ ]+(?:\d\d?[-_ ,]+)?(?:19|20)\d\d"
    r"|[0-2]\dh[-_]?[0-5]\dm(?:[-_]?[0-5]\ds)?"
    r"|[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}|(?<![^/])tmp[a-z0-9_]{8}(?![^/])|_ad\d{5}"
    r"|(?:[01]\d[-_.|])?[0-3]\d[-_.|T ][0-2]\d[-_:][0-5]\d[-_:][0-5]\d"
    r"|[0-2]\d[-_:][0-5]\d[-_:][0-5]\d|\d{9,}|events\.out\.tfevents\.[^/]*|[A-Z][a-z]{2}\d\d_\d\d-\d\d-\d\d_[^/]*"
)
"""Parts of paths that differ from run to run: dates, times, process numbers, host names, random and temporary names."""

PASSING = re.compile(rf"_ad\d{{5}}|^{TEMPORARY}/")
"""Temporary folders, of which each rank may have its own."""

BATCH_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
OPTIMIZER_STATE = re.compile(r"/state/[^/]+/\w+$")
FEW, CHANCE, ROUNDED = 3, 0.2, 1e-6
"""Rounding of what is printed may part numbers that agree, but not many of those that do so in double precision."""
GENERATOR_BYTES = 5056
"""What ``torch.get_rng_state`` gives."""


def compare_printed(
    original: str, ranks: Sequence[str], tolerance: Tolerance, shares: Shares
) -> tuple[list[Finding], list[Finding]]:
    """Rank 0 prints what the original prints, the others nothing. Findings and notes."""
    return compare_lines("prints", printed_lines(original), [printed_lines(text) for text in ranks], tolerance, shares)


def compare_logs(
    original: RunTrace, ranks: Sequence[RunTrace], tolerance: Tolerance, shares: Shares
) -> tuple[list[Finding], list[Finding]]:
    """The same for what is logged to the terminal."""
    return compare_lines("logs", original.logs, [rank.logs for rank in ranks], tolerance, shares)


def shares_of_batches(original: RunTrace, ranks: Sequence[RunTrace]) -> Shares:
    """Rows of batches, and of what models are given, as pairs: of the original, and of rank 0 where it has a part."""
    pairs: set[tuple[int, int]] = set()
    for key, whole in original.passes.items():
        part = ranks[0].passes.get(key)
        parts = part.batches if part is not None else []
        pairs |= {(len(a), len(b)) for a, b in zip(whole.batches, parts, strict=False)}
    for step, own in zip(original.steps, ranks[0].steps, strict=False):
        for call, part_call in zip(step.forwards, own.forwards, strict=False):
            pairs |= set(zip(call.shape, part_call.shape, strict=False))
    world = len(ranks)
    return frozenset((a, b) for a, b in pairs if b < a and a - world < b * world < a + world)


def compare_lines(
    verb: str, original: Sequence[str], ranks: Sequence[Sequence[str]], tolerance: Tolerance, shares: Shares
) -> tuple[list[Finding], list[Finding]]:
    """Lines of rank 0 against those of the original, and none of the others."""
    findings, notes = [], []
    shown = [as_whole(line, wanted, shares) for line, wanted in zip(ranks[0], original, strict=False)]
    if shown != list(ranks[0][: len(shown)]):
        at = next(at for at, line in enumerate(shown) if line != ranks[0][at])
        message = f"line {at + 1}: rank 0 {verb} the shape of its share of a batch, {shortened(ranks[0][at])}"
        notes.append(
            Finding("printed-shape", f"{message}, where the original has the whole: {shortened(original[at])}")
        )
    talkative = [rank for rank, lines in enumerate(ranks) if rank and lines]
    if talkative:
        who = f"rank {talkative[0]} {verb}" if len(talkative) == 1 else f"ranks {talkative} {verb.rstrip('s')}"
        findings.append(Finding("printed-on-other-ranks", f"{who}, first: {shortened(ranks[talkative[0]][0])}"))
    difference = first_difference(original, [*shown, *ranks[0][len(shown) :]], tolerance.printed)
    if difference is not None:
        at, expected, found = difference
        if expected is None:
            findings.append(Finding("printed-more", f"rank 0 {verb} more than the original, first: {shortened(found)}"))
        elif found is None:
            message = f"rank 0 {verb} less than the original, first missing: {shortened(expected)}"
            findings.append(Finding("printed-less", message))
        else:
            message = f"line {at + 1}: rank 0 {verb} {shortened(found)}, the original {shortened(expected)}"
            factor = factor_between(found, expected, len(ranks), tolerance.printed)
            if factor is not None:
                message += f": {factor}, so that it counts the samples of rank 0 alone, or those of all ranks N times"
            findings.append(Finding("printed-differs", message))
    off, total = last_places(original, shown, tolerance.printed)
    if difference is None and tolerance.printed < ROUNDED and off >= FEW and off > CHANCE * total:
        message = f"{off} of {total} numbers that rank 0 {verb} are apart from the original's in their last place"
        findings.append(Finding("printed-differs", message))
    return findings, notes


def stable(path: str) -> str:
    """A path without what differs from run to run."""
    return VARYING.sub("*", path)


def _makes_folder(write: Write) -> bool:
    return write.action.startswith("mkdir")


def compare_files(
    original: RunTrace,
    ranks: Sequence[RunTrace],
    original_files: Mapping[str, Path],
    files: Mapping[str, Path],
    tolerance: Tolerance,
    shares: Shares,
) -> tuple[list[Finding], list[Finding]]:
    """Findings and notes: the same files, each written by one rank, with the same content."""
    notes: list[Finding] = []
    findings = compare_writers(ranks)
    findings += compare_reads(ranks)
    in_saves = compare_saves(original, ranks, tolerance)
    findings += in_saves
    expected, found = {stable(path): path for path in original_files}, {stable(path): path for path in files}
    sites = {stable(write.path): write.site for rank in (*ranks, original) for write in rank.writes}
    for path in sorted(expected.keys() - found.keys()):
        findings.append(Finding("file-missing", f"{expected[path]} is not written", sites.get(path)))
    for path in sorted(found.keys() - expected.keys()):
        findings.append(Finding("file-extra", f"{found[path]} is not written by the original", sites.get(path)))
    saved = {stable(save.path) for save in original.saves}
    unknown = []
    theirs, ours = ({stable(path): save for path, save in run.contents.items()} for run in (original, ranks[0]))
    for path in sorted((expected.keys() & found.keys()) - saved):
        left, right = original_files[expected[path]], files[found[path]]
        if left.is_file() and right.is_file() and left.read_bytes() == right.read_bytes():
            continue
        if not understood(left) and path in theirs and path in ours:
            found_in = None if in_saves else compare_save(ours[path], theirs[path], tolerance)
            findings += [] if found_in is None else [found_in]
            continue
        if not understood(left):
            unknown += [found[path]] if left.read_bytes() != right.read_bytes() else []
            continue
        absolute = os.path.isabs(path)
        roots = ("", "") if absolute else (str(left)[: -len(expected[path]) - 1], str(right)[: -len(found[path]) - 1])
        message = content_difference(left, right, roots, tolerance, shares)
        if message is not None:
            findings.append(Finding("file-content", f"{found[path]}: {message}", sites.get(path)))
    if unknown:
        message = f"{', '.join(unknown[:5])}: the bytes differ, in a format that is not understood"
        notes.append(Finding("not-compared", message))
    return findings, notes


def compare_writers(ranks: Sequence[RunTrace]) -> list[Finding]:
    """Every file and folder has one writer."""
    writers: dict[tuple[str, str], dict[int, str]] = {}
    for number, rank in enumerate(ranks):
        for write in rank.writes:
            if write.action != "mkdir":
                writers.setdefault((write.action, write.path), {}).setdefault(number, write.site)
    findings = []
    for (action, path), by in writers.items():
        if len(by) > 1:
            verb = {"open": "written", "remove": "removed", "rename": "renamed", "mkdir-new": "created"}[action]
            findings.append(Finding("several-writers", f"{path} is {verb} by ranks {sorted(by)}", by[min(by)]))
        elif min(by) != 0:
            findings.append(Finding("other-writer", f"{path} is written by rank {min(by)}", by[min(by)]))
    return findings


def compare_reads(ranks: Sequence[RunTrace]) -> list[Finding]:
    """What one rank writes another one reads only after the two have talked."""
    findings: dict[str, Finding] = {}
    writes: dict[str, list[tuple[int, Write]]] = {}
    for number, rank in enumerate(ranks):
        for write in rank.writes:
            if write.action == "open":
                writes.setdefault(write.path, []).append((number, write))
    for number, rank in enumerate(ranks):
        for read in rank.reads:
            for writer, write in writes.get(read.path, ()):
                if writer != number and (read.talked, read.step) == (write.talked, write.step):
                    message = f"{read.path} is read by rank {number} while rank {writer} may still write it"
                    findings.setdefault(read.path, Finding("read-unwaited", message, read.site))
    return list(findings.values())


def compare_saves(original: RunTrace, ranks: Sequence[RunTrace], tolerance: Tolerance) -> list[Finding]:
    """Checkpoints: the same keys, shapes and values, so that each program can load the other's."""
    findings = []
    saves = ranks[0].saves
    if len(saves) != len(original.saves):
        message = f"rank 0 saves {len(saves)} times, the original {len(original.saves)} times"
        site = saves[0].site if saves else (original.saves[0].site if original.saves else None)
        findings.append(Finding("save-count", message, site))
    for save, expected in zip(saves, original.saves, strict=False):
        finding = compare_save(save, expected, tolerance)
        if finding is not None:
            findings.append(finding)
            break
    return findings


def compare_save(save: Save, expected: Save, tolerance: Tolerance) -> Finding | None:
    """One checkpoint."""
    if stable(save.path) != stable(expected.path):
        return Finding("save-path", f"{save.path} is saved instead of {expected.path}", save.site, save.step)
    sharded = [key for key, value in save.content.items() if isinstance(value, dict) and value["type"] == "DTensor"]
    if sharded:
        message = f"{save.path} holds this rank's shard of {len(sharded)} tensors, first {sharded[0].lstrip('/')}"
        return Finding("saved-shards", message, save.site, save.step)
    missing, extra = expected.content.keys() - save.content.keys(), save.content.keys() - expected.content.keys()
    if missing or extra:
        prefixed = [key for key in extra if "/module." in key]
        if prefixed:
            message = f"{save.path} has keys that begin with 'module.', such as {sorted(prefixed)[0].lstrip('/')}"
            return Finding("saved-prefix", message, save.site, save.step)
        message = f"{save.path} lacks {sorted(missing)[:2]} and has {sorted(extra)[:2]} in addition"
        return Finding("saved-keys", message, save.site, save.step)
    for key, value in expected.content.items():
        difference = value_difference(save.content[key], value, tolerance, scale_of(key, expected.content))
        if difference is not None:
            message = f"{save.path}{': ' if key else ''}{key.lstrip('/')} {difference}"
            kind = saved_kind(key, value) if save.step == expected.step else "saved-values"
            return Finding(kind, message, save.site, save.step)
    return None


def scale_of(key: str, content: Mapping[str, Any]) -> float:
    """What a deviation is measured by, if that is more than the tensor: means of a batch that are nothing but rounding,
    as those before which the samples were normalised, by the deviation of the samples."""
    variances = content.get(f"{key.removesuffix('mean')}var") if key.endswith("running_mean") else None
    digest = variances.get("digest") if isinstance(variances, dict) else None
    return max(math.sqrt(digest[0]), 1e-8) if digest else 1e-8


def saved_kind(key: str, value: object) -> str:
    """What a saved value is, as far as its key tells: that of a model's own tensors is known from their type alone."""
    name = key.rpartition("/")[2]
    if name.endswith(BATCH_STATISTICS):
        return "saved-statistics"
    if OPTIMIZER_STATE.search(key):
        return "saved-optimizer-state"
    if not isinstance(value, dict):
        return "saved-values"
    if value.get("dtype") == "torch.uint8" and "rng" in key.lower() or value.get("shape") == [GENERATOR_BYTES]:
        return "saved-generator"
    return "saved-tensors"


def compare_folders(original: RunTrace, ranks: Sequence[RunTrace]) -> list[Finding]:
    """The same folders are made."""
    made = {stable(write.path) for rank in ranks for write in rank.writes if _makes_folder(write)}
    expected = {stable(write.path) for write in original.writes if _makes_folder(write)}
    sites = {stable(write.path): write.site for rank in (*ranks, original) for write in rank.writes}
    findings = [
        Finding("folder-missing", f"{path} is not created", sites.get(path)) for path in sorted(expected - made)
    ]
    findings += [
        Finding("folder-extra", f"{path} is not created by the original", sites.get(path))
        for path in sorted(made - expected)
    ]
    theirs, ours = named_anew([original]), named_anew(ranks)
    for path in sorted(ours.keys() & expected):
        if len(ours[path]) > len(theirs.get(path, ())):
            message = f"the ranks create {len(ours[path])} folders, first {min(ours[path])}: each has a name of its own"
            findings.append(Finding("folder-extra", message, sites.get(path)))
    return findings


def named_anew(runs: Sequence[RunTrace]) -> dict[str, set[str]]:
    """Folders in whose names there is a moment, or what else is another in each process, but for temporary ones."""
    found: dict[str, set[str]] = {}
    for write in (write for run in runs for write in run.writes if _makes_folder(write)):
        if stable(write.path) != write.path and not PASSING.search(write.path):
            found.setdefault(stable(write.path), set()).add(write.path)
    return found
