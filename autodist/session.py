"""From files to results: read, convert or check, deliver, report. Whatever goes wrong ends in one line."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from autodist import catalog, launch, observations, output, proofs, registry, relocation
from autodist.choice import choose
from autodist.config import Config, Evaluation, load
from autodist.convert import convert, faults, unchanged
from autodist.deep import deep
from autodist.errors import AutodistError
from autodist.notebook import SUFFIX
from autodist.observations import Measured
from autodist.output import Output
from autodist.placement.measured import located
from autodist.project import Project, added_folders, console_script, starts
from autodist.report import Run, counted, github, gitlab, json, markdown, sarif, shown, text
from autodist.report import diff as diffs
from autodist.result import Result
from autodist.rule import Diagnostic, Severity
from autodist.source import Source
from autodist.terminal import Terminal

STDIN = Path("-")
DONE, LOOK, BAD_INPUT = 0, 1, 2
COMMANDS_OF_NOTEBOOKS = "AD909"
MEASURED = "AD612"
"""What is said of values that were measured, and not read."""
MOST_TOLD = 3
Work = Callable[[Project, Config], tuple[Run | None, int]]


@dataclass(frozen=True)
class Delivery:
    """What becomes of a result: files, by default beside the script, or else a diff or a mere check."""

    output: str | None = None
    in_place: bool = False
    diff: bool = False
    check: bool = False
    force: bool = False
    proof: Mapping[str, Any] | None = None
    """The options of the runs that must agree before anything is written; None asks for no runs."""

    if_training: bool = False
    """Pass over a script that trains nothing, instead of refusing it."""

    @property
    def writes(self) -> bool:
        """Whether files are wanted."""
        return not (self.diff or self.check)


@dataclass(frozen=True)
class Session:
    """What holds for all files of one command. ``options`` stand above those of pyproject.toml."""

    terminal: Terminal
    output_format: str
    options: Mapping[str, Any]
    modules: Mapping[Path, str] = field(default_factory=dict)
    """The names of those files that `python -m` starts by name."""

    documents: Mapping[str, Path] = field(default_factory=dict)
    """Files to write the results to, each in its format."""

    explain: tuple[str, ...] = ()
    """Codes of rules that are said to be explained at their lines."""

    observing: Mapping[str, Any] | None = None
    """The options of the runs that measure what reading does not know; None asks for none."""

    def convert(self, files: Iterable[Path], delivery: Delivery) -> int:
        """Convert each file. Returns the exit code."""
        runs, status = self._each(files, lambda project, config: self._convert(project, config, delivery))
        return max(status, self._document(runs, with_diff=delivery.diff))

    def check(self, files: Iterable[Path]) -> int:
        """Print what the rules find in each file. Returns the exit code."""
        runs, status = self._each(files, self._check)
        if self.output_format == "text":
            found = text.listing(runs, self.terminal.verbose)
            self.terminal.show(found and f"{found}\n")
            number = sum(len(run.findings) for run in runs)
            if not self.terminal.quiet:
                self.terminal.say(f"{counted(number, 'finding')} in {counted(len(runs), 'training script')}")
        return max(status, self._document(runs, with_diff=False))

    def verify(self, before: Path, after: Path | None, changed: bool = False, **options: Any) -> int:
        """Run a script and its conversion, which is made here if it is not given. Returns the exit code.

        ``changed`` says again what an earlier run found equal, if nothing that it depends on has changed.
        """
        try:
            if after is not None:
                modules = (self.modules.get(before), self.modules.get(after))
                run = partial(_compared, before, after, modules=modules, **options)
                projects = [self._read(path) for path in (before, after)] if changed else []
                return self._once(projects, (), run, options) if changed else run()
            project = self._read(before)
            config = self._chosen(project, self._measured(project, load(before.parent, self.options)))
            with self.terminal.progress():
                result = convert(project, config)
            self.terminal.say(text.summary(Run(config.strategy, result), quiet=changed, verbose=False))
            if not result.changed:
                return LOOK
            run = partial(_proven, project, result, **options)
            return self._once([project], [file.after for file in result.files], run, options) if changed else run()
        except Exception as error:
            self.terminal.error(error, before)
            return BAD_INPUT

    def _once(
        self, projects: Sequence[Project], texts: Iterable[str], run: Callable[..., int], options: Mapping[str, Any]
    ) -> int:
        sources = [source for project in projects for source in project.sources]
        settings = {key: value for key, value in options.items() if key not in ("args", "timeout")}
        return proofs.unless_known(sources, texts, options["args"], settings, lambda stream: run(stream=stream))

    def _read(self, path: Path) -> Project:
        if path != STDIN:
            return Project.load(path, module=self.modules.get(path))
        return Project.load(Path("<stdin>"), sys.stdin.buffer.read())

    def _measured(self, project: Project, config: Config) -> Config:
        """The options with what is measured now, where that is asked for, and kept; what has changed since is said."""
        if self.observing is not None:
            kept = config.observations
            measured = _observed(project, config, self.observing)
            if kept is not None:
                before = observations.read(kept) if kept.exists() else ()
                gone = {each.key for each in (*measured, *located(before, project)[1])}
                observations.write(kept, [*measured, *(each for each in before if each.key not in gone)])
            return replace(config, measured=tuple(measured))
        if config.measured and (stale := located(config.measured, project)[1]):
            sites = ", ".join(f"{each.site} `{each.expression}`" for each in stale[:MOST_TOLD])
            more = f" and {len(stale) - MOST_TOLD} more" if len(stale) > MOST_TOLD else ""
            self.terminal.say(
                f"{config.observations and shown(config.observations)}: changed since it was measured, and ignored: "
                f"{sites}{more}; --observe measures again"
            )
        return config

    def _chosen(self, project: Project, config: Config) -> Config:
        """The options with a strategy that fits, which is said if it was not named."""
        with self.terminal.progress():
            config, reason = choose(project, config)
        if reason and not self.terminal.quiet:
            self.terminal.say(f"{project.entry.path.name}: {reason}")
        return config

    def _each(self, files: Iterable[Path], work: Work) -> tuple[list[Run], int]:
        """Do ``work`` on every file, whatever happens to the others. The worst exit code counts."""
        runs: list[Run] = []
        worst = DONE
        for path in files:
            try:
                config = load(Path() if path == STDIN else path.parent, self.options, self.observing is not None)
                project = self._read(path)
                config = self._measured(project, config)
                run, status = work(project, self._chosen(project, config))
                runs += [run] if run else []
            except Exception as error:
                self.terminal.error(error, path)
                status = BAD_INPUT
            worst = max(worst, status)
        return runs, worst

    def _convert(self, project: Project, config: Config, delivery: Delivery) -> tuple[Run | None, int]:
        with self.terminal.progress():
            result = convert(project, config)
        if Path(delivery.output or "").suffix == SUFFIX:
            result = replace(result, diagnostics=tuple(each for each in result.diagnostics if not _is_kept(each)))
        if delivery.if_training and result.trains_nothing:
            return None, DONE
        outputs = _outputs(project, result, config, delivery)
        output.check(outputs, overwrite=delivery.force or delivery.in_place)
        proof = DONE
        if delivery.proof is not None and result.changed:
            result, proof = self._proven(project, config, result, delivery.proof)
            outputs = _outputs(project, result, config, delivery)
        kept = proof == DONE
        if kept:
            output.write(outputs)
        left = _unread(project) if kept and len(outputs) > 1 and not delivery.in_place else []
        paths = tuple(each.path for each in outputs) if kept else ()
        script = project.entry.path if delivery.in_place else next(iter(paths), None)
        launches = _launches(project, script, len(paths) > 1 and not delivery.in_place) if paths and script else ()
        run = Run(config.strategy, result, paths, launches)
        if self.output_format == "text":
            self.terminal.show(self._content(project, result, delivery))
            self.terminal.say(text.summary(run, self.terminal.quiet, self.terminal.verbose))
        for source, line, added in left:
            self.terminal.say(
                f"{shown(source.path)}:{line}: warning: {added} comes first on sys.path, and the text does not say "
                "which folder it is: if it holds the original modules, the converted script imports those"
            )
        if not kept:
            self.terminal.say("the conversion is not proven to do what the original does: nothing was written")
            return run, proof
        return run, LOOK if result.needs_person or left or (delivery.check and result.changed) else DONE

    def _proven(self, project: Project, config: Config, result: Result, runs: Mapping[str, Any]) -> tuple[Result, int]:
        """The conversion that its runs prove, and the exit code: the one that was made, or else one by another plan."""
        tried: dict[tuple[str, ...], str] = {}
        for name, plan in self._plans(project, config, runs):
            with self.terminal.progress():
                made = result if plan is config else convert(project, plan)
            after = tuple(file.after for file in made.files)
            for each in (
                e for e in made.diagnostics if e not in result.diagnostics and e.severity is not Severity.NOTE
            ):
                self.terminal.say(f"{name}: {shown(each.source.path)}:{each.line}: {each.message}")
            if after in tried or not made.changed or made.refused:
                continue
            tried[after] = name
            code = _proven(project, made, stream=sys.stderr, **runs)
            if code == DONE:
                if len(tried) > 1:
                    self.terminal.say(f"{', then '.join(tried.values())}: the last one is equal")
                return (made if runs["steps"] else _without_doubt(made)), DONE
            if code != LOOK:
                return result, code
        self.terminal.say(f"tried: {', '.join(tried.values())}")
        return result, LOOK

    def _plans(self, project: Project, config: Config, runs: Mapping[str, Any]) -> Iterator[tuple[str, Config]]:
        """What is tried one after the other: the conversion as it is asked for; where that is not equal, with what is
        measured, or without; and with every evaluation whole on each rank."""
        yield "as it was measured" if config.measured else "as it is read", config
        if config.measured:
            yield "as it is read", replace(config, measured=())
        else:
            told = {"everything": False, "args": runs["args"], "timeout": runs["timeout"]}
            try:
                yield "as it was measured", replace(config, measured=tuple(_observed(project, config, told)))
            except AutodistError as error:
                self.terminal.say(f"cannot be measured: {error}")
        if config.evaluation is not Evaluation.WHOLE:
            yield "each rank evaluates all data", replace(config, evaluation=Evaluation.WHOLE)

    def _check(self, project: Project, config: Config) -> tuple[Run | None, int]:
        with self.terminal.progress():
            result = unchanged(project, faults(project, config))
        if result.trains_nothing:
            return None, DONE
        run = Run(config.strategy, result)
        return run, LOOK if run.findings else DONE

    def _content(self, project: Project, result: Result, delivery: Delivery) -> str | bytes:
        """What goes to standard output: the diff, or the code that came from standard input."""
        if delivery.diff:
            return diffs.colored(diffs.diff(result)) if sys.stdout.isatty() else diffs.diff(result).encode()
        if _is_stdin(project) and delivery.writes and not delivery.output and not result.refused:
            return result.entry.source.encode(result.entry.after)
        return ""

    def _document(self, runs: Sequence[Run], with_diff: bool) -> int:
        """Print the results of all files in a format for programs, and write the files that were asked for."""
        self.terminal.say(text.explained(runs, [registry.load()[code] for code in self.explain]).rstrip())
        if self.output_format != "text":
            self.terminal.show(_rendered(self.output_format, runs, with_diff))
        try:
            output.write_documents({path: _rendered(name, runs, with_diff) for name, path in self.documents.items()})
        except AutodistError as error:
            self.terminal.error(error)
            return BAD_INPUT
        return DONE


def _rendered(output_format: str, runs: Sequence[Run], with_diff: bool) -> str:
    match output_format:
        case "json":
            return json.render(runs, with_diff)
        case "github":
            return github.render(runs)
        case "gitlab":
            return gitlab.render(runs)
        case "sarif":
            return sarif.render(runs, registry.load())
        case "markdown":
            return markdown.render(runs)
        case _:
            return text.listing(runs, verbose=False) + "\n"


def _observed(project: Project, config: Config, options: Mapping[str, Any]) -> list[Measured]:
    if find_spec("torch") is None:
        raise AutodistError("--observe runs the script and needs torch: pip install 'torch-autodist[verify]'")
    from autodist.observe.sites import observed
    from autodist.verify.progress import progress_for_terminal

    progress = progress_for_terminal()
    try:
        return observed(project, catalog.load(config.catalog, config.operations), progress=progress, **options)
    finally:
        progress.close()


def _is_stdin(project: Project) -> bool:
    return project.entry.path == Path("<stdin>")


def _without_doubt(result: Result) -> Result:
    """The same, of which whole runs have proven what was measured in a few steps."""
    told = (replace(e, severity=Severity.NOTE) if e.code == MEASURED else e for e in result.diagnostics)
    return replace(result, diagnostics=tuple(told))


def _proven(project: Project, result: Result, **options: Any) -> int:
    """Compare the project with its conversion, made in a scratch folder. Returns the exit code."""
    with tempfile.TemporaryDirectory(prefix="autodist-") as folder:
        outputs = output.at(result, project, f"{folder}/")
        output.write(outputs)
        modules = (project.module, None)
        return _compared(project.entry.path, outputs[0].path, base=Path(folder), modules=modules, **options)


def _compared(before: Path, after: Path, **options: Any) -> int:
    if find_spec("torch") is None:
        raise AutodistError("verification runs the scripts and needs torch: pip install 'torch-autodist[verify]'")
    from autodist.verify import INTERRUPTED, verify_command

    code = verify_command(before, after, **options)
    if code == INTERRUPTED:  # ends the files that are still to come as well
        raise SystemExit(code)
    return code


@deep
def _unread(project: Project) -> list[tuple[Source, int, str]]:
    return [*relocation.unread(project)]


@deep
def _launches(project: Project, script: Path, in_folder: bool) -> tuple[launch.Launch, ...]:
    """How to run a converted script, as the original is run; in a folder of their own the files find each other."""
    if in_folder:
        command = console_script(project)
        top = script.parents[len(Path(os.path.relpath(project.entry.path, project.base)).parts) - 1]
        below = dict.fromkeys(os.path.relpath(each, project.base) for each in project.import_folders())
        paths = [os.path.normpath(top / each) for each in below] if command is not None else []
        return launch.commands(script, None, paths, command)
    folder = os.path.abspath(script.parent)
    moved = folder != os.path.abspath(project.entry.path.parent)
    module = None
    known = {folder}
    if project.module is not None and not moved:
        package, _, name = project.module.rpartition(".")
        module = ".".join(filter(None, (package, script.stem if script != project.entry.path else name)))
        known = {os.getcwd()}
    elif not moved:
        added = (each for source in project.sources for each in added_folders(source, starts(project.entry.path)))
        known |= {os.path.abspath(each) for each in added}
    wanted = dict.fromkeys(str(each) for each in project.import_folders())
    if module is not None:
        wanted = {os.path.abspath(project.root): None, **wanted}
    return launch.commands(script, module, [os.path.relpath(each) for each in wanted if each not in known])


def _is_kept(diagnostic: Diagnostic) -> bool:
    """Whether it asks to run a command of a notebook that the notebook made of the script runs itself."""
    again = {each.line for each in diagnostic.source.left_out if each.again}
    return diagnostic.code == COMMANDS_OF_NOTEBOOKS and diagnostic.line in again


def _outputs(project: Project, result: Result, config: Config, delivery: Delivery) -> tuple[Output, ...]:
    """The files to write; none for what does not change or cannot be converted."""
    if not delivery.writes or not result.changed:
        return ()
    if delivery.in_place:
        return output.in_place(result)
    if delivery.output is not None:
        return output.at(result, project, delivery.output)
    if not _is_stdin(project):
        return output.beside(result, project, config.strategy)
    if others := ", ".join(str(file.source.path) for file in result.changed if file is not result.entry):
        raise AutodistError(f"{others} must change too: name a folder with --output", project.entry.path)
    return ()
