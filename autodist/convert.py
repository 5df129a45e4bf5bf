"""The pipeline: analyse the project, ask every rule, apply all fixes at once."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from pathlib import Path
from traceback import extract_tb

from autodist import catalog, edits, ranks, registry, suppress
from autodist.analyze import analyze, as_distributed
from autodist.config import Config
from autodist.deep import READING, deep
from autodist.edits import Edit, EditConflict
from autodist.errors import AutodistError
from autodist.preemption import preemption
from autodist.project import Project
from autodist.repeats import without_repeats
from autodist.result import Converted, Result
from autodist.rule import Applicability, Context, Diagnostic, Finding, Fix, Rule, Severity
from autodist.script import TrainingScript
from autodist.source import Source

PREEMPTION = "AD311"
"""The rule that is asked of conversions, where `--on-preempt` is given."""

JOINING = ("init_process_group", "init_device_mesh")
"""What a script that distributes itself joins the other processes by."""
OWNED = "AD903"
LAUNCHED = ("deepspeed.initialize", "Accelerator(", "Fabric(")


class InternalError(AutodistError):
    """A defect of autodist, met while it worked on a script."""

    def __init__(self, source: Source, where: str, error: Exception) -> None:
        frame = extract_tb(error.__traceback__)[-1]
        place = f"{Path(frame.filename).name}:{frame.lineno}"
        what = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        super().__init__(f"internal error in {where} at {place} ({what}): please report it", source.path)


@deep
def convert(project: Project, config: Config) -> Result:
    """The project, converted. Raises AutodistError where two rules want different things of one line."""
    diagnostics = diagnose(project, config, of_ranks=bool(config.select))
    result = unchanged(project, diagnostics)
    if result.refused:
        return result
    READING.stage = "rewriting"
    result = fixed(project, diagnostics)
    return _preemptible(project, result, config) if config.on_preempt else result


def _preemptible(project: Project, result: Result, config: Config) -> Result:
    """The conversion, which also ends and goes on inside an epoch: what its checkpoint is saved by is repeated there as
    it has been converted."""
    entry = result.entry
    if entry.source.is_notebook:
        raise AutodistError(
            "--on-preempt: a notebook is not started again; convert it to a script first", project.entry.path
        )
    parsed = {
        each.source: Source.parse(each.source.encode(each.after), each.source.path, each.source.module)
        for each in result.files
    }
    modules = {name: parsed[each] for name, each in project.modules.items()}
    made = replace(project, entry=parsed[project.entry], modules=modules, read_in_part=())
    try:
        found = diagnose(made, replace(config, select=(PREEMPTION,), ignore=()))
    except AutodistError as error:
        line = _line_before(next((each for each in result.files if each.source.path == error.path), entry), error.line)
        raise AutodistError(error.message, error.path, line) from None
    if not found:
        raise AutodistError(
            "--on-preempt: the conversion joins no process group that could agree to end", project.entry.path
        )
    files = tuple(replace(each, after=_converted(parsed[each.source], found).after) for each in result.files)
    before = {parsed[each.source]: each for each in result.files}
    places = [(each, before[each.source]) for each in found]
    told = (replace(each, source=f.source, line=_line_before(f, each.line) or 1, fix=Fix(())) for each, f in places)
    return Result(files, (*result.diagnostics, *told))


def _line_before(file: Converted, line: int | None) -> int | None:
    """The line of the original that a line of its conversion was."""
    if line is None:
        return None
    matcher = SequenceMatcher(None, file.after.splitlines(), file.before.splitlines(), autojunk=False)
    blocks = [each for each in matcher.get_matching_blocks() if each.a < line]
    return blocks[-1].b + min(line - blocks[-1].a, max(blocks[-1].size, 1)) if blocks else 1


def fixed(project: Project, diagnostics: tuple[Diagnostic, ...]) -> Result:
    """The project with the fixes of some diagnostics. Raises AutodistError where two want different things of one
    line."""
    return Result(tuple(_converted(source, diagnostics) for source in project.sources), diagnostics)


def unchanged(project: Project, diagnostics: tuple[Diagnostic, ...]) -> Result:
    """What the rules say, with every file as it is."""
    return Result(tuple(Converted(source, source.text, source.text) for source in project.sources), diagnostics)


@deep
def faults(project: Project, config: Config) -> tuple[Diagnostic, ...]:
    """What the rules say of a project as it stands: of a script that joins its processes itself, nothing of how it
    would be converted."""
    found = diagnose(project, config)
    if not any(each in source.text for source in project.sources for each in JOINING):
        return tuple(each for each in found if each.code != OWNED or not any(map(_is_launched, project.sources)))
    own = {each.code for each in registry.selected(config) if each.of_ranks}
    if any(each.code not in own for each in found):
        standing = ranks.standing(project, catalog.load(config.catalog, config.operations))
        found = tuple(
            each
            for each in found
            if each.code in own
            or standing is not None
            and standing.stands(each.code, each.source, each.line, each.column)
        )
    return found


def _is_launched(source: Source) -> bool:
    """Whether what starts the script makes it train on several ranks, by a framework."""
    return any(each in source.text for each in LAUNCHED)


@deep
def diagnose(project: Project, config: Config, of_ranks: bool = True) -> tuple[Diagnostic, ...]:
    """What the rules say about the project, in the order of its files and lines; ``of_ranks``, also those about ranks
    that part."""
    rules = [each for each in registry.selected(config) if of_ranks or not each.of_ranks]
    try:
        script = analyze(project, config)
        if any(each.of_ranks for each in rules):
            facts = catalog.load(config.catalog, config.operations)
            script = replace(script, concerns=(*script.concerns, *ranks.concerns(project, facts)))
        if PREEMPTION in config.select:
            script = replace(script, preemption=preemption(script, as_distributed(project, config)))
    except AutodistError:
        raise
    except Exception as error:
        raise InternalError(project.entry, "the analysis", error) from error
    READING.stage = "asking the rules about"
    context = Context(config)
    found = [diagnostic for rule in rules for diagnostic in _ask(rule, script, context, project)]
    changes = any(diagnostic.fix is not None and not diagnostic.beside for diagnostic in found)
    found = [diagnostic for diagnostic in found if changes or not diagnostic.beside]
    order = {source: index for index, source in enumerate(project.sources)}
    kept = suppress.kept(dict.fromkeys(found), project.sources)  # of models that a setting chooses from, each once
    return tuple(sorted(kept, key=lambda each: (order[each.source], each.line, each.column, each.code)))


def _ask(rule: Rule, script: TrainingScript, context: Context, project: Project) -> Iterator[Diagnostic]:
    try:
        for finding in rule.check(script, context):
            yield _diagnostic(rule, finding)
    except AutodistError:
        raise
    except Exception as error:
        raise InternalError(project.entry, f"rule {rule.code}", error) from error


def _diagnostic(rule: Rule, finding: Finding) -> Diagnostic:
    """``finding`` with its place. A fix that is not safe leaves something to look at."""
    unsafe = finding.fix is not None and finding.fix.applicability is not Applicability.SAFE
    severity = Severity.WARNING if unsafe and finding.severity is Severity.NOTE else finding.severity
    node, source = finding.node, finding.source
    line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1
    said = rule.code, rule.name, source, line, column, finding.message, finding.fix, severity, finding.beside
    return Diagnostic(*said, *_end(node, source, line, column))


def _end(node: ast.AST, source: Source, line: int, column: int) -> tuple[int, int]:
    if isinstance(getattr(node, "body", None), list):  # a function, a loop: its first line
        return line, len(source.line(line).encode()) + 1
    return getattr(node, "end_lineno", None) or line, (getattr(node, "end_col_offset", None) or column - 1) + 1


def _converted(source: Source, diagnostics: Sequence[Diagnostic]) -> Converted:
    planned: dict[Edit, Diagnostic] = {}
    for diagnostic in sorted(diagnostics, key=lambda each: each.code):
        if diagnostic.fix is not None and diagnostic.fix.applicability is not Applicability.DISPLAY:
            for changed, edit in diagnostic.fix.edits:
                if changed is source:
                    planned.setdefault(edit, diagnostic)
    if not planned:
        return Converted(source, source.text, source.text)
    try:
        wanted = without_repeats(source, planned)
        after = edits.apply(source, sorted(wanted, key=lambda edit: getattr(edit, "order", 0)))
    except EditConflict as conflict:
        raise _conflict(source, conflict, planned) from conflict
    except AutodistError:
        raise
    except Exception as error:
        codes = ", ".join(sorted({diagnostic.code for diagnostic in planned.values()}))
        raise InternalError(source, f"the edits of {codes}", error) from error
    return Converted(source, source.text, after)


def _conflict(source: Source, conflict: EditConflict, planned: Mapping[Edit, Diagnostic]) -> AutodistError:
    codes = " and ".join(sorted({planned[conflict.first].code, planned[conflict.second].code}))
    line = getattr(conflict.first.anchor, "lineno", 1)
    return AutodistError(f"conflict between {codes}: {conflict.reason}; --ignore one of them", source.path, line)
