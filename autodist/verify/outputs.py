"""What a user sees: printed lines, files, what is in them, exit codes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autodist.verify.compare import distance
from autodist.verify.text import first_difference, lines_agree, printed_lines
from autodist.verify.trace import RunTrace, Save
from autodist.verify.verdict import Finding, Tolerance

TEXT_SUFFIXES = frozenset({".txt", ".csv", ".tsv", ".log", ".md", ".yaml", ".yml", ".toml", ".json", ".jsonl", ".html"})
DIGITS = re.compile(r"\d+")
VARYING = re.compile(
    r"(?:19|20)\d\d[-_.]?[01]\d[-_.]?[0-3]\d(?:[-_T .]?[0-2]\d[-_:.h]?[0-5]\d(?:[-_:.m]?[0-5]\d)?)?"
    r"|[0-2]\d[-_:][0-5]\d[-_:][0-5]\d|\d{9,}|events\.out\.tfevents\.[^/]*|[A-Z][a-z]{2}\d\d_\d\d-\d\d-\d\d_[^/]*"
)
"""Parts of paths that differ from run to run: dates, times, process numbers, host names."""


def compare_printed(original: str, ranks: Sequence[str], tolerance: Tolerance) -> list[Finding]:
    """Rank 0 prints what the original prints, the others nothing."""
    findings = []
    talkative = [rank for rank, text in enumerate(ranks) if rank and printed_lines(text)]
    if talkative:
        line = printed_lines(ranks[talkative[0]])[0]
        who = f"rank {talkative[0]} prints" if len(talkative) == 1 else f"ranks {talkative} print"
        findings.append(Finding("printed-on-other-ranks", f"{who}, first: {shortened(line)}"))
    difference = first_difference(printed_lines(original), printed_lines(ranks[0]), tolerance.printed)
    if difference is not None:
        at, expected, found = difference
        if expected is None:
            message = f"rank 0 prints more than the original, first: {shortened(found)}"
            findings.append(Finding("printed-more", message))
        elif found is None:
            message = f"rank 0 prints less than the original, first missing: {shortened(expected)}"
            findings.append(Finding("printed-less", message))
        else:
            message = f"line {at + 1}: rank 0 prints {shortened(found)}, the original {shortened(expected)}"
            findings.append(Finding("printed-differs", message))
    return findings


def shortened(line: str | None) -> str:
    """A line for a message."""
    text = (line or "").strip()
    return repr(text if len(text) <= 100 else text[:97] + "...")


def stable(path: str) -> str:
    """A path without what differs from run to run."""
    return VARYING.sub("*", path)


def compare_files(
    original: RunTrace,
    ranks: Sequence[RunTrace],
    original_files: Mapping[str, Path],
    files: Mapping[str, Path],
    tolerance: Tolerance,
) -> list[Finding]:
    """The same files, each written by one rank, with the same content."""
    findings = compare_writers(ranks)
    findings += compare_saves(original, ranks, tolerance)
    expected, found = {stable(path): path for path in original_files}, {stable(path): path for path in files}
    sites = {stable(write.path): write.site for rank in (*ranks, original) for write in rank.writes}
    for path in sorted(expected.keys() - found.keys()):
        findings.append(Finding("file-missing", f"{expected[path]} is not written", sites.get(path)))
    for path in sorted(found.keys() - expected.keys()):
        findings.append(Finding("file-extra", f"{found[path]} is not written by the original", sites.get(path)))
    saved = {stable(save.path) for save in original.saves}
    for path in sorted((expected.keys() & found.keys()) - saved):
        message = compare_content(original_files[expected[path]], files[found[path]], tolerance)
        if message is not None:
            findings.append(Finding("file-content", f"{found[path]}: {message}", sites.get(path)))
    return findings


def compare_writers(ranks: Sequence[RunTrace]) -> list[Finding]:
    """Every file and folder has one writer."""
    writers: dict[tuple[str, str], dict[int, str]] = {}
    for number, rank in enumerate(ranks):
        for write in rank.writes:
            if write.action != "mkdir" and not write.path.startswith("/"):
                writers.setdefault((write.action, write.path), {}).setdefault(number, write.site)
    findings = []
    for (action, path), by in writers.items():
        if len(by) > 1:
            verb = {"open": "written", "remove": "removed", "rename": "renamed", "mkdir-new": "created"}[action]
            findings.append(Finding("several-writers", f"{path} is {verb} by ranks {sorted(by)}", by[min(by)]))
        elif min(by) != 0:
            findings.append(Finding("other-writer", f"{path} is written by rank {min(by)}", by[min(by)]))
    return findings


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
        difference = value_difference(save.content[key], value, tolerance)
        if difference is not None:
            message = f"{save.path}{': ' if key else ''}{key.lstrip('/')} {difference}"
            return Finding("saved-values", message, save.site, save.step)
    return None


def value_difference(found: Any, expected: Any, tolerance: Tolerance) -> str | None:
    """How two entries of a checkpoint differ."""
    if isinstance(expected, dict) and isinstance(found, dict):
        for name in ("type", "shape", "dtype"):
            if found.get(name) != expected.get(name):
                return f"has {name} {found.get(name)} instead of {expected.get(name)}"
        left, right = found.get("digest"), expected.get("digest")
        if left is None or right is None:
            return None
        away = distance(left, right) / max(right[0], 1e-8)
        allowed = max(tolerance.parameters, tolerance.printed)
        return f"deviates (relative {away:.1e})" if not away <= allowed and left != right else None
    if isinstance(expected, float) and isinstance(found, (int, float)):
        scale = max(abs(expected), abs(found), 1e-12)
        return (
            None
            if abs(found - expected) <= tolerance.printed * scale or found == expected
            else f"is {found}, not {expected}"
        )
    if isinstance(expected, str) and isinstance(found, str):
        return (
            None
            if lines_agree(expected, found, tolerance.printed)
            else f"is {shortened(found)}, not {shortened(expected)}"
        )
    return None if found == expected else f"is {found}, not {expected}"


def compare_content(expected: Path, found: Path, tolerance: Tolerance) -> str | None:
    """How two files differ; formats that are not understood are not compared."""
    suffix = expected.suffix.lower()
    if suffix == ".json":
        try:
            left, right = (json.loads(path.read_text(encoding="utf-8")) for path in (expected, found))
        except ValueError:
            return None
        return tree_difference(left, right, tolerance)
    if suffix in TEXT_SUFFIXES or suffix == "":
        try:
            left_lines, right_lines = (path.read_text(encoding="utf-8").splitlines() for path in (expected, found))
        except UnicodeDecodeError:
            return None
        difference = first_difference(left_lines, right_lines, tolerance.printed)
        if difference is None:
            return None
        at, wanted, got = difference
        if len(left_lines) != len(right_lines):
            return f"has {len(right_lines)} lines instead of {len(left_lines)}"
        return f"line {at + 1} is {shortened(got)}, the original's {shortened(wanted)}"
    return None


def tree_difference(expected: Any, found: Any, tolerance: Tolerance, path: str = "") -> str | None:
    """The first difference of two JSON values."""
    if isinstance(expected, dict) and isinstance(found, dict):
        if expected.keys() != found.keys():
            return f"keys differ{' at ' + path if path else ''}: {sorted(expected.keys() ^ found.keys())[:3]}"
        pairs = [(f"{path}/{key}", expected[key], found[key]) for key in expected]
    elif isinstance(expected, list) and isinstance(found, list):
        if len(expected) != len(found):
            return f"{path or 'the list'} has {len(found)} entries instead of {len(expected)}"
        pairs = [(f"{path}/{at}", left, right) for at, (left, right) in enumerate(zip(expected, found, strict=True))]
    else:
        difference = value_difference(found, expected, tolerance)
        return None if difference is None else f"{path or 'the value'} {difference}"
    return next(
        (text for where, left, right in pairs if (text := tree_difference(left, right, tolerance, where)) is not None),
        None,
    )


def compare_folders(original: RunTrace, ranks: Sequence[RunTrace]) -> list[Finding]:
    """The same folders are made."""
    made = {stable(write.path) for rank in ranks for write in rank.writes if write.action.startswith("mkdir")}
    expected = {stable(write.path) for write in original.writes if write.action.startswith("mkdir")}
    sites = {stable(write.path): write.site for rank in (*ranks, original) for write in rank.writes}
    findings = [
        Finding("folder-missing", f"{path} is not created", sites.get(path)) for path in sorted(expected - made)
    ]
    return findings + [
        Finding("folder-extra", f"{path} is not created by the original", sites.get(path))
        for path in sorted(made - expected)
    ]
