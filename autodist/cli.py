"""The command line. Nothing that takes time is imported before a file is found that may train something."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem, get_completion_class

from autodist.config import AVAILABLE, CHOICES, BatchSize, Evaluation, MixedPrecision, Strategy, memory
from autodist.sniff import may_train
from autodist.terminal import Terminal

STDIN = Path("-")
FORMATS = ("text", "json", "github", "gitlab", "sarif", "markdown")
VERDICTS = ("text", "json", "markdown")
ENGINES = ("slurm", "kubeflow", "skypilot", "compose", "torchrun")
ARGS = "autodist.args"
Command = TypeVar("Command", bound=Callable[..., Any])


def _codes(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(code.upper() for value in values for code in value.replace(",", " ").split())


def _formats(*known: str) -> Callable[[Command], Command]:
    """The option for what is said to programs: one format for standard output, others to files."""

    def chosen(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[str, dict[str, Path]]:
        named = dict(value.partition("=")[::2] for value in values)
        if unknown := sorted(named.keys() - set(known)):
            raise click.BadParameter(f"{unknown[0]} is none of {', '.join(known)}")
        printed = [name for name, path in named.items() if not path] or ["text"]
        if len(printed) > 1:
            raise click.BadParameter(
                f"only one of {', '.join(printed)} can be printed: write FORMAT=FILE for the others"
            )
        return printed[0], {name: Path(path) for name, path in named.items() if path}

    told = f"{', '.join(known[:-1])} or {known[-1]}; FORMAT=FILE writes it to a file. May be repeated."
    return click.option("--output-format", metavar="FORMAT[=FILE]", multiple=True, callback=chosen, help=told)


def _explained(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    codes = _codes(ctx, param, values)
    if not codes:  # the rules take time to import
        return ()
    from autodist import registry

    if unknown := [code for code in codes if code not in registry.load()]:
        raise click.BadParameter(f"there is no rule {unknown[0]}; `autodist rule` lists all")
    return codes


def _known(ctx: click.Context, param: click.Parameter, begun: str) -> list[CompletionItem]:
    """The codes that a shell offers, each with what the rule does."""
    from autodist import registry

    rules = registry.load().values()
    return [CompletionItem(rule.code, help=rule.summary) for rule in rules if rule.code.startswith(begun.upper())]


def _memory(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    if value is not None and memory(value) is None:
        raise click.BadParameter("a size is wanted, as in 80GiB")
    return memory(value) if value is not None else None


def _options(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def _counts(ctx: click.Context, param: click.Parameter, value: str) -> tuple[int, ...]:
    counts = [count.strip() for count in value.split(",")]
    if not all(count.isdecimal() and int(count) for count in counts):
        raise click.BadParameter("numbers of processes are wanted, as in 2,4")
    return tuple(dict.fromkeys(map(int, counts)))


def _ranks(ctx: click.Context, param: click.Parameter, value: str) -> tuple[int, ...]:
    return () if value == "0" else _counts(ctx, param, value)


def _again(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[int, int | None] | None:
    ranks, at, step = (value or "1").partition("@")
    if not all(each.isdecimal() and int(each) for each in ([ranks, step] if at else [ranks])):
        raise click.BadParameter("a number of ranks is wanted, and a step if need be, as in 3 or 3@17")
    return None if value is None else (int(ranks), int(step) if at else None)


def _seconds(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[float, ...]:
    try:
        seconds = tuple(float(each) for each in value.split(",")) if value else ()
    except ValueError:
        seconds = (0.0,)
    if not all(0 < each < float("inf") for each in seconds):
        raise click.BadParameter("seconds are wanted, as in 0.42,0.22,0.12,0.07")
    return seconds


def _gpus(ctx: click.Context, param: click.Parameter, value: str) -> tuple[str | None, int]:
    kind, _, count = value.rpartition(":")
    if not count.isdecimal() or not int(count) or not (kind or ":" not in value):
        raise click.BadParameter("a number of GPUs is wanted, as in 8 or H100:8")
    return kind or None, int(count)


class ScriptCommand(click.Command):
    """A command that hands what follows ``--`` to scripts."""

    takes_arguments = True

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take the scripts' arguments away before the others are parsed."""
        end = args.index("--") if "--" in args else len(args)
        ctx.meta[ARGS], own = tuple(args[end + 1 :]), args[:end]
        alone = (each == "--observe" and own[at + 1 : at + 2] != ["all"] for at, each in enumerate(own))
        own = ["--observe=unknown" if one else each for one, each in zip(alone, own, strict=True)]  # no script is taken
        return super().parse_args(ctx, own)


script_options = _options(
    click.option("--strategy", type=click.Choice([each.value for each in CHOICES]), help="How to distribute."),
    click.option(
        "--device-memory", metavar="SIZE", callback=_memory, help="For --strategy auto: of one device, as 80GiB."
    ),
    click.option(
        "--activation-memory", metavar="SIZE", callback=_memory, help="For --strategy auto: of activations, if known."
    ),
    click.option(
        "--batch-size", type=click.Choice([each.value for each in BatchSize]), help="What the script's means."
    ),
    click.option(
        "--evaluation",
        type=click.Choice([each.value for each in Evaluation]),
        help="Each rank evaluates all of the data (whole, the default), or whole batches of its own where that is "
        "exact: if it is worth it (auto), or always (shared).",
    ),
    click.option(
        "--mixed-precision", type=click.Choice([each.value for each in MixedPrecision]), help="FSDP: compute in this."
    ),
    click.option("--activation-checkpointing", is_flag=True, default=None, help="FSDP: compute activations twice."),
    click.option("--cpu-offload", is_flag=True, default=None, help="FSDP: keep parameters in the memory of the host."),
    click.option(
        "--reshard-after-forward/--no-reshard-after-forward",
        default=None,
        help="FSDP: free the parameters of a block after its forward, or keep them for its backward pass.",
    ),
    click.option(
        "--defer-gradient-sync/--no-defer-gradient-sync",
        default=None,
        help="FSDP: accumulated gradients are reduced once and whole until then, or in each micro-step and shared out.",
    ),
    click.option("--meta-device", is_flag=True, default=None, help="FSDP: only rank 0 holds the whole model at first."),
    click.option(
        "--sharded-checkpoints", is_flag=True, default=None, help="FSDP: each rank writes its shards, to a folder."
    ),
    click.option(
        "--async-checkpoints", is_flag=True, default=None, help="The same, written while the training goes on."
    ),
    click.option("--shard-unit", metavar="CLASS", help="FSDP: shard modules of this class by themselves."),
    click.option(
        "--observations",
        type=click.Path(dir_okay=False, path_type=Path),
        help="What was measured: written by --observe, read by all others.",
    ),
    click.option(
        "--select",
        metavar="CODES",
        multiple=True,
        callback=_codes,
        shell_complete=_known,
        help="Run these rules alone.",
    ),
    click.option(
        "--ignore",
        metavar="CODES",
        multiple=True,
        callback=_codes,
        shell_complete=_known,
        help="Leave these rules out.",
    ),
    _formats(*FORMATS),
    click.option(
        "--explain",
        metavar="CODE",
        multiple=True,
        callback=_explained,
        shell_complete=_known,
        help="Say why, at its lines.",
    ),
    click.option("-q", "--quiet", is_flag=True, help="Print only what a person must look at."),
    click.option("-v", "--verbose", is_flag=True, help="Print notes too, and the traceback of an error."),
    click.option("--no-color", is_flag=True, help="No colours; the variable NO_COLOR does the same."),
)

run_options = _options(
    click.option(
        "--nproc", metavar="N,...", default="2", show_default=True, callback=_counts, help="Numbers of ranks."
    ),
    click.option(
        "--nodes",
        "--nnodes",
        "nnodes",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        help="Nodes of the ranks: with networks and disks of their own where that may be made, by root.",
    ),
    click.option("--steps", type=click.IntRange(min=1), help="End both programs after so many optimizer steps."),
    click.option(
        "--device",
        type=click.Choice(["auto", "cpu", "cuda"]),
        default="auto",
        show_default=True,
        help="Where ranks compute; auto: a GPU each, one for several where torch can, or the CPU.",
    ),
    click.option("--dtype", type=click.Choice(["float64", "float32"]), default="float64", show_default=True),
    click.option(
        "--timeout",
        type=click.FloatRange(min=0, min_open=True),
        default=600.0,
        show_default=True,
        help="Seconds for each run.",
    ),
    click.option("--report", type=click.Path(path_type=Path), help="Write an HTML report."),
    click.option(
        "--require-coverage",
        is_flag=True,
        help="Exit with 1, as for what is not equal, if a changed line never ran or a changed decision went one way.",
    ),
)
RUN_OPTIONS = ("nproc", "nnodes", "steps", "device", "dtype", "timeout", "report", "require_coverage")


OBSERVE_OPTIONS = ("steps", "timeout")
"""Those that `--observe` has, too."""


def _observing(observe: str | None, context: click.Context, runs: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The options of the runs that measure, if some are asked for."""
    if observe is None:
        return None
    told: dict[str, Any] = {"everything": observe == "all", "args": context.meta[ARGS], "timeout": runs["timeout"]}
    return {**told, "steps": runs["steps"]} if runs["steps"] else told


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="torch-autodist", prog_name="autodist")
def cli() -> None:
    """Convert single-GPU PyTorch training scripts to distributed ones, and prove that they train the same model."""


@cli.command(cls=ScriptCommand)
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option("-m", "--module", "modules", metavar="MODULE", multiple=True, help="A script by its name, as python -m.")
@click.option("-o", "--output", metavar="PATH", help="A file; for a script with local modules, a folder.")
@click.option("-i", "--in-place", is_flag=True, help="Rewrite the script and the local modules that must change.")
@click.option("--diff", is_flag=True, help="Print a diff, write nothing.")
@click.option("--check", is_flag=True, help="Write nothing, exit with 1 if anything would change.")
@click.option("--force", is_flag=True, help="Overwrite an output that exists.")
@click.option("--verify", is_flag=True, help="Run both versions, and write only if they train the same model.")
@run_options
@click.option(
    "--observe",
    is_flag=False,
    flag_value="unknown",
    metavar="[all]",
    type=click.Choice(["unknown", "all"]),
    help="Run a few steps first, to measure how values lie that reading does not know; all: and compare the others.",
)
@click.option(
    "--on-preempt", is_flag=True, default=None, help="Save on SIGTERM or SIGUSR1 after a step, and go on there later."
)
@click.option("--if-training", is_flag=True, help="Skip files that train nothing, as when several files are given.")
@script_options
@click.pass_context
def convert(
    context: click.Context,
    /,
    files: tuple[Path, ...],
    modules: tuple[str, ...],
    output: str | None,
    in_place: bool,
    diff: bool,
    check: bool,
    force: bool,
    verify: bool,
    observe: str | None,
    if_training: bool,
    **options: Any,
) -> None:
    """Convert training scripts (- for standard input) and the local modules that they import.

    With --verify, what follows -- goes to both versions. --nproc, --steps, --device, --dtype, --timeout, --report
    and --require-coverage are for its runs; --steps, --timeout and what follows -- for those of --observe, too.
    """
    runs = {name: options.pop(name) for name in RUN_OPTIONS}
    named = _located(modules)
    files = (*files, *named)
    if not files:
        raise click.UsageError("name a script, or a module by -m")
    if sum((output is not None, in_place, diff or check)) > 1:
        raise click.UsageError("--output, --in-place and --diff or --check exclude each other")
    if len(files) > 1 and not (in_place or diff or check):
        raise click.UsageError("several files need --in-place, --diff or --check")
    if STDIN in files and (in_place or verify or observe or len(files) > 1):
        raise click.UsageError("standard input stands alone, without --in-place, --verify and --observe")
    if context.meta[ARGS] and not (verify or observe):
        raise click.UsageError("arguments after -- are for the runs of --verify and --observe")
    given = [name for name in RUN_OPTIONS if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    given = [name for name in given if not (observe and name in OBSERVE_OPTIONS)]
    if given and not verify:
        raise click.UsageError(f"--{given[0].replace('_', '-')} is for the runs of --verify")
    if_training = if_training or len(files) > 1
    candidates = _training(files) if if_training else files
    if not candidates and options["output_format"] == ("text", {}):
        return
    from autodist.session import Delivery, Session

    session = Session(**_split(options), modules=named, observing=_observing(observe, context, runs))
    proof = {"args": context.meta[ARGS], **runs} if verify else None
    sys.exit(session.convert(candidates, Delivery(output, in_place, diff, check, force, proof, if_training)))


@cli.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@script_options
def check(files: tuple[Path, ...], **options: Any) -> None:
    """Find what keeps training scripts from being right on several ranks; files that train nothing are skipped."""
    candidates = _training(files)
    if not candidates and options["output_format"] == ("text", {}):
        return
    from autodist.session import Session

    sys.exit(Session(**_split(options)).check(candidates))


@cli.command(cls=ScriptCommand)
@click.argument("scripts", nargs=-1, metavar="[BEFORE] [AFTER] [-- ARGS]", type=click.Path(path_type=Path))
@click.option(
    "-m",
    "--module",
    "modules",
    metavar="MODULE",
    multiple=True,
    help="BEFORE by its name, as python -m takes it; given twice, BEFORE and AFTER.",
)
@run_options
@click.option("--workdir", type=click.Path(path_type=Path), help="The folder that is copied, where the scripts start.")
@click.option("--keep", type=click.Path(path_type=Path), help="Keep traces and scratch copies in this folder.")
@click.option("--strategy", type=click.Choice([each.value for each in AVAILABLE]), help="Convert BEFORE to this first.")
@click.option("--changed", is_flag=True, help="Say again what was found equal, if nothing has changed since.")
@click.option(
    "--preempt",
    metavar="N[@STEP]",
    callback=_again,
    help="Also send SIGTERM in some step, and go on with N ranks: for what was converted with --on-preempt.",
)
@click.option(
    "--preempt-args",
    metavar="ARGS",
    help="What the second start is given besides, in quotes, as in '--resume checkpoints/last.pt'.",
)
@_formats(*VERDICTS)
@click.pass_context
def verify(
    context: click.Context, /, scripts: tuple[Path, ...], modules: tuple[str, ...], strategy: str | None, **options: Any
) -> None:
    """Run a script and its conversion, and prove that they train the same model. Without AFTER, BEFORE is converted.

    What follows -- goes to both scripts. With -m, AFTER may be the folder that `convert` wrote: the same module in it.
    """
    named = _located(modules)
    scripts = (*named, *(_in_folder(each, named) for each in scripts))
    if not scripts:
        raise click.UsageError("name the original and the conversion, or the original and --strategy")
    if len(scripts) > 2 or (len(scripts) == 2 and strategy):
        raise click.UsageError("name the original and the conversion, or the original and --strategy")
    from autodist.session import Session

    options["output_format"], options["documents"] = options["output_format"]
    if options["changed"] and (options["output_format"] != "text" or options["documents"] or options["report"]):
        raise click.UsageError("--changed has the text of a verdict alone: leave out --report and --output-format")
    if options["preempt"] is not None and (options["steps"] or options["dtype"] != "float64"):
        raise click.UsageError("--preempt compares the whole run: leave out --steps and --dtype")
    if options["preempt_args"] is not None and options["preempt"] is None:
        raise click.UsageError("--preempt-args is for the second start that --preempt makes")
    chosen = {"strategy": strategy and Strategy(strategy), "on_preempt": options["preempt"] is not None or None}
    session = Session(Terminal(), "text", chosen, named)
    sys.exit(session.verify(scripts[0], scripts[1] if len(scripts) == 2 else None, args=context.meta[ARGS], **options))


@cli.command(cls=ScriptCommand)
@click.argument("script", metavar="SCRIPT [-- ARGS]", type=click.Path(path_type=Path))
@click.option("--steps", type=click.IntRange(min=1), default=3, show_default=True, help="Optimizer steps of each run.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=600.0,
    show_default=True,
    help="Seconds for each run.",
)
@click.option("--workdir", type=click.Path(path_type=Path), help="The folder that is copied, where the script starts.")
@click.option("--report", type=click.Path(path_type=Path), help="Write an HTML report.")
@_formats("text", "json")
@click.pass_context
def observe(context: click.Context, /, script: Path, **options: Any) -> None:
    """Run a script on whole batches and on shares of them, and say how its values lie over ranks.

    For each value that is printed, compared, saved or differentiated: what joins the shares of three ranks to it, or
    which operation mixes their samples. Runs copies of its folder, on the CPU; what follows -- goes to the script.
    """
    if find_spec("torch") is None:
        click.echo("error: observing runs the script and needs torch: pip install 'torch-autodist[verify]'", err=True)
        sys.exit(2)
    from autodist.observe.command import observe_command

    options["output_format"], options["documents"] = options["output_format"]
    sys.exit(observe_command(script, context.meta[ARGS], **options))


@cli.command(cls=ScriptCommand)
@click.argument("script", type=click.Path(path_type=Path))
@click.option(
    "--gpus", metavar="N,...", default="1,2,4,8", show_default=True, callback=_counts, help="Numbers of GPUs."
)
@click.option("--device", metavar="NAME|FILE.toml", required=True, help="The GPU, as in 'H100 80GB'.")
@click.option("--measure", is_flag=True, help="Run the script in a copy of its folder, and measure it.")
@click.option("--measurements", type=click.Path(path_type=Path), help="What --save kept, of a run here or elsewhere.")
@click.option("--save", type=click.Path(path_type=Path), help="Keep what --measure finds in this file.")
@click.option(
    "--step-seconds",
    metavar="S,...",
    callback=_seconds,
    help="What a step takes on one such GPU, with the whole batch, half of it, and so on.",
)
@click.option("--batch", type=click.IntRange(min=1), help="Samples of a step, where no run tells them.")
@click.option(
    "--batch-size",
    type=click.Choice([each.value for each in BatchSize]),
    default=BatchSize.GLOBAL.value,
    show_default=True,
    help="What the script's means.",
)
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), default=600.0, help="Seconds for each run.")
@click.option("--workdir", type=click.Path(path_type=Path), help="The folder that is copied, where the script starts.")
@click.option("--report", type=click.Path(path_type=Path), help="Write an HTML report.")
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.pass_context
def plan(
    context: click.Context, /, script: Path, device: str, batch_size: str, report: Path | None, **options: Any
) -> None:
    """Say before the money is spent what fits N GPUs, how fast they are, and how many of them pay.

    With --measure, what follows -- goes to the script.
    """
    if options["measurements"] is not None and options["measure"]:
        raise click.UsageError("--measure and --measurements exclude each other")
    if (context.meta[ARGS] or options["save"] is not None) and not options["measure"]:
        raise click.UsageError(f"{'arguments after -- need' if context.meta[ARGS] else '--save needs'} --measure")
    from autodist.plan.command import plan_command

    per_rank = BatchSize(batch_size) is BatchSize.PER_RANK
    sys.exit(
        plan_command(script, context.meta[ARGS], device_name=device, per_rank=per_rank, report_path=report, **options)
    )


@cli.command(cls=ScriptCommand)
@click.argument("script", metavar="SCRIPT [-- ARGS]", type=click.Path(path_type=Path))
@click.option("--nproc", metavar="N,...", default="0", callback=_ranks, help="Numbers of ranks; by default 1,2,4,8.")
@click.option(
    "--strategy",
    "strategies",
    multiple=True,
    type=click.Choice([each.value for each in AVAILABLE]),
    default=[Strategy.DDP.value, Strategy.FSDP.value],
    show_default=True,
    help="A conversion that is measured; repeated, several.",
)
@click.option("--steps", type=click.IntRange(min=1), default=30, show_default=True, help="Steps that are timed.")
@click.option("--warmup", type=click.IntRange(min=0), default=5, show_default=True, help="Steps before these.")
@click.option("--repeats", type=click.IntRange(min=1), default=3, show_default=True, help="Runs of each version.")
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), default=600.0, help="Seconds for each run.")
@click.option("--workdir", type=click.Path(path_type=Path), help="The folder that is copied, where the script starts.")
@click.option("--report", type=click.Path(path_type=Path), help="Write a report with a plot, HTML, .md or .json.")
@click.option("--output-format", type=click.Choice(["text", "markdown", "json"]), default="text", show_default=True)
@click.pass_context
def bench(context: click.Context, /, script: Path, **options: Any) -> None:
    """Measure how fast a script and its conversions are on this machine: samples a second, parts of a step, memory.

    Each run takes place in a copy of the script's folder. What follows -- goes to the script.
    """
    from autodist.bench.command import bench_command

    sys.exit(bench_command(script, context.meta[ARGS], **options))


@cli.command(cls=ScriptCommand)
@click.argument("script", metavar="SCRIPT [-- ARGS]", type=click.Path(path_type=Path))
@click.option("--for", "engine", type=click.Choice(ENGINES), required=True, help="What starts the job.")
@click.option("--nodes", type=click.IntRange(min=1), default=1, show_default=True, help="Machines.")
@click.option(
    "--gpus", metavar="[KIND:]M", default="1", show_default=True, callback=_gpus, help="GPUs of each node, as H100:8."
)
@click.option(
    "--cpus-per-gpu", type=click.IntRange(min=1), default=8, show_default=True, help="For a rank and its loaders."
)
@click.pass_context
def manifest(
    context: click.Context, /, script: Path, engine: str, nodes: int, gpus: tuple[str | None, int], cpus_per_gpu: int
) -> None:
    """Print what starts a distributed script on several nodes: a file for Slurm, Kubeflow, SkyPilot and others.

    It is made for the arguments after --: refused where the batch size does not divide by the number of GPUs, and
    started again after a failure only where the script goes on from its own checkpoint.
    """
    from autodist.manifest.command import manifest as print_manifest

    sys.exit(print_manifest(script, engine, nodes, gpus[1], gpus[0], cpus_per_gpu, context.meta[ARGS]))


@cli.command()
@click.argument("source", metavar="FOLDER|MANIFEST", type=click.Path(path_type=Path, exists=True))
@click.option("--root", type=click.Path(path_type=Path), help="Where a manifest's repositories lie.")
@click.option("--data", type=click.Path(path_type=Path), help="The folder that a manifest's links to data start from.")
@click.option("--strategy", type=click.Choice([each.value for each in AVAILABLE]), default=AVAILABLE[0].value)
@click.option("--nproc", metavar="N,...", default="2", show_default=True, callback=_counts, help="Numbers of ranks.")
@click.option("--python", type=click.Path(path_type=Path), help="The Python that runs the scripts.")
@click.option("--results", type=click.Path(path_type=Path), default="evaluation.jsonl", show_default=True)
@click.option("--report", type=click.Path(path_type=Path), help="Write a report, HTML, .md or .json.")
@click.option(
    "--tag", multiple=True, metavar="NAME", help="Only a manifest's scripts with this tag; repeated, with any."
)
@click.option("--only", multiple=True, metavar="TEXT", help="Only scripts with this in their name.")
@click.option("--fresh", is_flag=True, help="Run again what the results of an earlier evaluation hold.")
@click.option("--no-run", "run", flag_value=False, default=True, help="Convert and check only.")
@click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Scripts at the same time.")
def evaluate(source: Path, **options: Any) -> None:
    """Convert, run and compare many scripts: those found in FOLDER, or those that a manifest.toml names.

    Sorts them into verified equal, converted with warnings, refused, and wrong. What is done is kept in --results, so
    that the same command goes on after an interruption, and runs only what has changed since.
    """
    from autodist.evaluate.command import evaluate_command

    sys.exit(evaluate_command(source, **options))


@cli.command()
@click.argument("code", required=False, shell_complete=_known)
def rule(code: str | None) -> None:
    """Print the documentation of rule CODE, or a table of all rules."""
    from autodist import registry
    from autodist.report import rules

    if code is None:
        click.echo(rules.table(registry.load().values()))
        return
    found = next((each for each in registry.load().values() if code.upper() == each.code or code == each.name), None)
    if found is None:
        raise click.UsageError(f"there is no rule {code}; `autodist rule` lists all")
    click.echo(rules.page(found, registry.examples(found.code)), nl=False)


@cli.command()
@click.option("--strategy", type=click.Choice([each.value for each in AVAILABLE]), default=AVAILABLE[0].value)
def init(strategy: str) -> None:
    """Add [tool.autodist] to pyproject.toml and a hook to .pre-commit-config.yaml; what is there stays as it is."""
    from autodist.errors import AutodistError
    from autodist.setting_up import set_up

    try:
        done = set_up(Path(), Strategy(strategy))
    except AutodistError as error:
        Terminal().error(error)
        sys.exit(2)
    click.echo("\n".join(done))


@cli.command()
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def doctor(output_format: str) -> None:
    """Say what of this machine would make distributed training fail, and what to do: torch, GPUs, ports, limits."""
    from autodist.doctor import State, examine, report

    checks = [*examine()]
    click.echo(report(checks, output_format), nl=False, color=Terminal().color)
    sys.exit(any(check.state is State.FAIL for check in checks))


@cli.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print what completes commands, options and codes: in ~/.bashrc, `eval "$(autodist completion bash)"`."""
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(cli, {}, "autodist", "_AUTODIST_COMPLETE").source())


@cli.command()
def mcp() -> None:
    """Serve these commands as tools to coding agents, by the Model Context Protocol on standard input and output."""
    try:
        from autodist import agents
    except ImportError:
        from autodist.errors import AutodistError

        Terminal().error(AutodistError("the server needs the SDK of the protocol: pip install 'torch-autodist[mcp]'"))
        sys.exit(2)
    agents.serve(cli.commands)


@cli.command()
@click.option("--stdio", is_flag=True, help="Some editors say so; there is no other way.")
def lsp(stdio: bool) -> None:
    """Serve what `check` finds to editors, by the Language Server Protocol on standard input and output."""
    try:
        from autodist.lsp.server import serve
    except ImportError:
        from autodist.errors import AutodistError

        Terminal().error(AutodistError("the server needs pygls: pip install 'torch-autodist[lsp]'"))
        sys.exit(2)
    serve()


def _located(modules: Iterable[str]) -> dict[Path, str]:
    """The files of modules that are named as `python -m` takes them."""
    if not modules:
        return {}
    from autodist.errors import AutodistError
    from autodist.project import located

    try:
        return {located(name): name for name in modules}
    except AutodistError as error:
        Terminal().error(error)
        sys.exit(2)


def _in_folder(path: Path, named: Mapping[Path, str]) -> Path:
    """In a folder that `convert` wrote, the module that is named."""
    for script, name in named.items() if path.is_dir() else ():
        levels = name.count(".") + 1 + (script.stem == "__main__")
        return path.joinpath(*script.parts[-levels:])
    return path


def _training(files: Iterable[Path]) -> tuple[Path, ...]:
    """The files that may train something, and those that cannot be read, which is said later."""
    return tuple(path for path in files if path == STDIN or _may_train(path))


def _may_train(path: Path) -> bool:
    try:
        return may_train(path.read_bytes())
    except OSError:
        return True


def _split(options: dict[str, Any]) -> dict[str, Any]:
    """What a session is made of: how to speak, in which format, and the options of the rules."""
    terminal = Terminal(*(options.pop(name) for name in ("quiet", "verbose", "no_color")))
    output_format, documents = options.pop("output_format")
    explain = options.pop("explain")
    enums = {"strategy": Strategy, "batch_size": BatchSize, "mixed_precision": MixedPrecision, "evaluation": Evaluation}
    options = {name: enums[name](value) if value and name in enums else value for name, value in options.items()}
    return {
        "terminal": terminal,
        "output_format": output_format,
        "documents": documents,
        "options": options,
        "explain": explain,
    }


def main() -> None:
    """The command ``autodist``."""
    gc.set_threshold(
        200_000, 30, 30
    )  # syntax trees live as long as the command does: looking through them finds nothing
    try:
        cli()
    except Exception as error:  # a defect: the user gets a line, not a traceback
        Terminal(verbose="--verbose" in sys.argv or "-v" in sys.argv).error(error)
        sys.exit(2)
