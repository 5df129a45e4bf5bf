"""One script: converted, checked, run on both sides and compared."""

from __future__ import annotations

import ast
import hashlib
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from autodist import output
from autodist.config import Config, Strategy
from autodist.convert import InternalError, convert
from autodist.errors import AutodistError
from autodist.evaluate.entries import Entry
from autodist.evaluate.idioms import idioms
from autodist.evaluate.record import Comparison, Record, Remark, Status
from autodist.notebook import script_name
from autodist.project import Project
from autodist.report.diff import diff
from autodist.result import Result
from autodist.verify import Outcome, Verdict, verify
from autodist.verify.scratch import Scratch


@dataclass(frozen=True)
class Setting:
    """What holds for all scripts of an evaluation."""

    root: str
    strategy: str
    nproc: tuple[int, ...]
    python: str
    data: str | None = None
    run: bool = True

    def to_json(self) -> dict[str, Any]:
        """What ``from_json`` reads."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Setting:
        """The setting that ``to_json`` wrote."""
        return cls(**{**content, "nproc": tuple(content["nproc"])})


def attempt(entry: Entry, setting: Setting, earlier: Record | None = None) -> Record:
    """Evaluate one script. What ``earlier`` found out holds on while nothing that it follows from has changed."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="autodist-mended-") as folder:
        try:
            record = _attempt(entry, mended(entry, setting, Path(folder)), earlier)
        except AutodistError as error:
            record = Record(entry.name, Status.WRONG, error.message)
    expected = (record.status is Status.REFUSED) == (entry.expect == "refuse")
    seconds = record.seconds or time.monotonic() - started
    return Record(**{**vars(record), "seconds": seconds, "expected": expected})


def _in_json(text: str) -> str:
    """How a cell of a notebook, which is JSON, holds a piece of code."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def mended(entry: Entry, setting: Setting, folder: Path) -> Setting:
    """The setting whose root is ``folder`` with a mended copy of the repository, if there is something to mend.
    Raises AutodistError where that is nowhere to be found."""
    if not entry.mend:
        return setting
    repository = entry.folder(Path(setting.root))
    copy = folder.resolve() / repository.name
    Scratch(copy).fill(repository)
    left = set(entry.mend)
    for path in sorted((*copy.rglob("*.py"), *copy.rglob("*.ipynb"))):
        text = before = path.read_bytes().decode(errors="surrogateescape")
        for old, new in entry.mend.items():
            wanted, given = (_in_json(each) if path.suffix == ".ipynb" else each for each in (old, new))
            if wanted in text:
                text = text.replace(wanted, given)
                left.discard(old)
        if text != before:
            path.unlink()  # it may be a link
            path.write_bytes(text.encode(errors="surrogateescape"))
    if left:
        raise AutodistError(f"`mend`: no file of {entry.repository} holds {sorted(left)[0]!r}")
    return replace(setting, root=str(folder.resolve()))


def _attempt(entry: Entry, setting: Setting, earlier: Record | None) -> Record:
    script = entry.folder(Path(setting.root)) / entry.script
    config = Config(strategy=Strategy(setting.strategy))
    try:
        project = Project.load(script)
    except AutodistError as error:
        return Record(entry.name, Status.REFUSED, f"cannot be read: {error.message}")
    names = idioms(source.text for source in project.sources)
    try:
        result = convert(project, config)
    except InternalError as error:
        return Record(entry.name, Status.WRONG, f"converting crashes: {error.message}", idioms=names)
    except AutodistError as error:
        return Record(entry.name, Status.WRONG, f"no conversion: {error.message}", idioms=names)
    record = _converted(entry, project, result, names)
    if record.status is Status.REFUSED:
        return record
    if flaw := flaw_of(project, result, config):
        return Record(**{**vars(record), "status": Status.WRONG, "reason": flaw})
    if reason := entry.skip_run or (None if setting.run else "not run: only converted and checked"):
        return Record(**{**vars(record), "reason": reason})
    digest = _digest(entry, setting, result)
    if earlier is not None and earlier.digest == digest and earlier.comparison is not None:
        status, reason = judged(earlier.comparison, bool(record.warnings))
        kept = {"comparison": earlier.comparison, "seconds": earlier.seconds}
        return Record(**{**vars(record), **kept, "status": status, "reason": reason, "digest": digest})
    try:
        comparison = compared(entry, setting, project, result)
    except AutodistError as error:
        return Record(**{**vars(record), "reason": f"cannot be run: {error}"})
    status, reason = judged(comparison, bool(record.warnings))
    found = {"comparison": comparison, "status": status, "reason": reason, "digest": digest}
    return Record(**{**vars(record), **found})


def _converted(entry: Entry, project: Project, result: Result, names: Sequence[str]) -> Record:
    """What the conversion alone says."""
    remarks = tuple(
        Remark(
            each.code,
            each.rule,
            each.severity.value,
            each.message,
            _below(each.source.path, project.base),
            each.line,
        )
        for each in result.diagnostics
    )
    lines = diff(result).splitlines()
    refusal = next((remark for remark in remarks if remark.severity == "refusal"), None)
    if refusal is None and not result.changed:
        refusal = Remark("", "", "refusal", "nothing in it needs to change", project.entry.path.name, 1)
    return Record(
        entry.name,
        Status.STATIC if refusal is None else Status.REFUSED,
        "" if refusal is None else f"{refusal.code} {refusal.message} ({refusal.path}:{refusal.line})".strip(),
        idioms=tuple(names),
        remarks=remarks,
        added=sum(line.startswith("+") and not line.startswith("+++") for line in lines),
        removed=sum(line.startswith("-") and not line.startswith("---") for line in lines),
        files=len(result.changed),
    )


def flaw_of(project: Project, result: Result, config: Config) -> str | None:
    """What is wrong with a conversion on its face: it must parse, and converting it again must change nothing."""
    for file in result.changed:
        try:
            ast.parse(file.after)
        except SyntaxError as error:
            return f"the conversion of {file.source.path.name} does not parse: {error.msg} in line {error.lineno}"
    with tempfile.TemporaryDirectory(prefix="autodist-") as folder:
        outputs = output.at(result, project, f"{folder}/")
        output.write(outputs)
        packaging = project.base / "pyproject.toml"  # says where packages lie
        if packaging.is_file():
            shutil.copy(packaging, folder)
        try:
            again = convert(Project.load(outputs[0].path, repository=Path(folder)), config)
        except AutodistError as error:
            return f"the conversion cannot be read again: {error.message}"
        if again.refused:
            refusal = next(each for each in again.diagnostics if each.severity.value == "refusal")
            return f"the conversion is itself refused: {refusal.code} {refusal.message}"
        if again.changed:
            codes = ", ".join(sorted({each.code for each in again.diagnostics if each.fix is not None}))
            return f"converting twice changes {again.changed[0].source.path.name} again ({codes})"
    return None


def compared(entry: Entry, setting: Setting, project: Project, result: Result) -> Comparison:
    """The script and its conversion run and compared."""

    def write(folder: Path) -> Path:
        outputs = output.at(result, project, f"{folder}/")
        output.write(outputs)
        return outputs[0].path

    return _comparison(run_both(entry, setting, write, project.entry.text if project.entry.is_notebook else None))


def run_both(entry: Entry, setting: Setting, write: Callable[[Path], Path], notebook: str | None = None) -> Verdict:
    """Both programs run, in copies of the working folder with links to the data.

    ``write`` puts the other version into a folder and returns its entry script; ``notebook`` is the code of one.
    """
    repository = entry.folder(Path(setting.root)).resolve()
    with tempfile.TemporaryDirectory(prefix="autodist-evaluate-") as folder:
        outside = max((place.count("..") for place in map(_parts, entry.links)), default=0)
        top = Path(folder).resolve() / "stage"
        stage = top.joinpath(*["above"] * outside, repository.name)  # links may lie beside the repository
        Scratch(stage).fill(repository)
        start = stage / entry.workdir
        _link(entry, setting, start)
        before = stage / entry.script
        if before.is_symlink():  # in a repository with much data, code too is linked beyond some size
            before.unlink()
            shutil.copy(repository / entry.script, before)
        if notebook is not None:
            before = before.with_name(script_name(before))
            before.write_text(notebook, encoding="utf-8")
        after = Path(folder).resolve() / "converted"
        return verify(
            before,
            write(after),
            setting.nproc,
            entry.args,
            steps=entry.steps,
            timeout=entry.timeout,
            env=entry.env,
            workdir=top,
            start=start,
            base=after,
            python=setting.python,
        )


def _parts(place: str) -> tuple[str, ...]:
    return Path(place).parts


def _link(entry: Entry, setting: Setting, stage: Path) -> None:
    """Put links to the data where the script looks."""
    for place, target in entry.links.items():
        if setting.data is None:
            raise AutodistError("reads data sets: --data names a folder with them")
        source = Path(setting.data) / target
        if not source.exists():
            raise AutodistError("no such data", source)
        _put(source.resolve(), stage / place)


def _put(source: Path, place: Path) -> None:
    """Link data to a place, in a copy of the repository; into a folder that the repository has there, part by part."""
    place.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir() and place.is_dir() and not place.is_symlink():
        for part in source.iterdir():
            _put(part, place / part.name)
        return
    if place.is_symlink() or place.is_file():
        place.unlink()
    if not place.exists():
        place.symlink_to(source)


def _comparison(verdict: Verdict) -> Comparison:
    worst = max(verdict.worlds, key=lambda world: list(Outcome).index(world.outcome))
    return Comparison(
        worst.outcome.value,
        worst.reason,
        tuple(str(finding) for finding in worst.findings),
        tuple(str(note) for note in worst.notes),
        worst.steps,
        worst.largest("gradient"),
        any(finding.kind == "original-crash" for finding in worst.findings),
        worst.outcome is Outcome.NOT_COMPARABLE and worst.steps > 0 and not worst.findings,
        bool(worst.findings) and all(finding.kind == "rounding" for finding in worst.findings),
    )


def judged(comparison: Comparison, warned: bool) -> tuple[Status, str]:
    """Where a script belongs that was run."""
    if comparison.outcome == Outcome.EQUAL.value or comparison.rounded:
        return Status.EQUAL, comparison.reason
    if comparison.outcome == Outcome.NOT_COMPARABLE.value:
        return Status.STATIC, comparison.reason
    return (Status.WARNED if warned else Status.WRONG), comparison.reason


def _digest(entry: Entry, setting: Setting, result: Result) -> str:
    files = [[_below(file.source.path, Path(setting.root)), file.before, file.after] for file in result.files]
    run = {key: value for key, value in entry.to_json().items() if key != "tags"}
    content = [run, setting.nproc, setting.strategy, sorted(files)]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _below(path: Path, root: Path) -> str:
    try:
        return path.resolve().relative_to(root.resolve()).as_posix()
    except ValueError:
        return path.name
