"""Searches of hyperparameters that train a model for each trial: all ranks run the trials that rank 0 chooses."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator

from autodist.interpreter import Event, Interpreter
from autodist.rule import Severity
from autodist.script import Concern, Search, Site
from autodist.source import argument, last_name, shortened, walk
from autodist.values import NOTHING, External, Function, Items, Object, Table, Value

SEARCHING = frozenset("fmin maximize minimize optimize search tune".split())
"""What libraries call a search whose objective they are given."""
RUNNING = frozenset(
    (
        "absl accelerate argbind argh backoff builtins click clize cloudpickle cyclopts defopt dill docopt draccus "
        "fire func_timeout gin hydra invoke IPython joblib jsonargparse lightning line_profiler loguru "
        "memory_profiler mlflow numpy plac pyinstrument retry retrying sacred scipy simple_parsing tenacity tqdm "
        "typer tyro viztracer wrapt"
    ).split()
)
"""Libraries that run what they are given as it is, once or until it succeeds: command lines, profilers, retries."""
OPTUNA = frozenset(["optuna", "optuna_integration"])
ALONE = "each rank would search for itself, and train other models than the ranks it averages gradients with"
AROUND = "search around the converted script instead: let each trial start it by torchrun, and read what it prints"
REASONS = {
    "ray": (
        "runs its trials in processes of its own, which are no ranks of this script; "
        "give the Tuner a ray.train.torch.TorchTrainer, which makes a process group for each trial"
    ),
    "wandb": (
        "would take another run of the sweep on each rank; leave it out, and let `command` in the sweep's "
        "configuration start the converted script by torchrun: all ranks take the settings that it gives to rank 0"
    ),
}


def search(run: Interpreter) -> Search:
    """The calls that make studies of optuna, run their trials and end them."""
    made = _made(run, "study")
    alone = {site.node for site in made}
    stored = (site for site in _made(run, "study_storage") if alone.isdisjoint(site.source.ancestors(site.node)))
    return Search(
        tuple(stored),
        made,
        _sites(run, "search"),
        _sites(run, "asks_study"),
        _sites(run, "tells_study"),
        _sites(run, "stops_study"),
        _sites(run, "led_search"),
    )


def _made(run: Interpreter, role: str) -> tuple[Site, ...]:
    made = {each for event in run.of("make") for each in event.value.objects(role)}
    return tuple(Site(each.source, each.node) for each in sorted(made, key=lambda each: each.node.lineno))


def _sites(run: Interpreter, kind: str) -> tuple[Site, ...]:
    return tuple(dict.fromkeys(Site(event.source, event.node) for event in run.of(kind) if not event.on_one_rank))


def refusals(run: Interpreter) -> Iterator[Concern]:
    """Searches that cannot be told to try the same models on all ranks."""
    if not run.of("backward"):
        return
    for event in sorted(run.of("foreign_search"), key=lambda each: each.order):
        yield _refused(event, run)
    for event in run.of("calls_back"):
        called = last_name(event.node.func) if isinstance(event.node, ast.Call) else ""
        if called in SEARCHING and _library(event.node, run) != "scipy" and _trains(event, run):
            yield _refused(event, run)
    for event in run.of("search"):
        yield from _of_study(event, run)
    searched = run.of("search") or run.of("asks_study")
    for call in [each for each in run.values if searched and isinstance(each, ast.Call)]:
        if (concern := _given_trial(call, run)) is not None:
            yield concern
    for event in run.of("led_search"):
        if (concern := _led(event, run)) is not None:
            yield concern


def given_to_unknown(run: Interpreter) -> Iterator[Concern]:
    """Where a library of which nothing is known is given a function that trains: it may be a search."""
    training = _entered(run, "backward") & _entered(run, "step")  # a closure leaves the step to its optimizer
    names = {getattr(each, "name", None) for each in training}
    calls = [each for each in run.sources if isinstance(each, ast.Call)] if training else []
    for call in calls:
        told = (run.values.get(each, NOTHING) for each in (*call.args, *(keyword.value for keyword in call.keywords)))
        library = _library(call, run)
        if not _is_unknown(library) or not any(
            _does(each, training, names) for given in told for each in _run_by(given)
        ):
            continue
        source = run.sources[call]
        message = (
            f"{shortened(source.code(call))} is given a function that trains, and it is not known how often {library} "
            f"calls it, with what and in which process: all ranks must train alike. If it chooses hyperparameters, "
            f"{ALONE}: {AROUND}"
        )
        yield Concern("AD704", source, call, message, Severity.WARNING)


def _is_unknown(library: str) -> bool:
    """Whether nothing says how a library calls what it is given."""
    return (
        library not in {"", "arguments", "hyperopt", *OPTUNA, *REASONS}
        and not library.startswith("torch")
        and library not in {*RUNNING, *sys.stdlib_module_names}
    )


def _run_by(value: Value, depth: int = 3) -> Iterator[ast.AST]:
    """The functions of the project that what is given a value may call: it, or what it holds."""
    for thing in value.things if depth else ():
        if isinstance(thing, Function):
            yield thing.node
        elif isinstance(thing, Object):
            yield from (each.node for each in thing.functions("__call__"))
        elif isinstance(thing, Items | Table):
            for part in thing.parts if isinstance(thing, Items) else thing.entries.values():
                yield from _run_by(part, depth - 1)


def _does(function: ast.AST, training: set[ast.AST], names: set[str | None]) -> bool:
    """Whether a function trains, or calls one that does."""
    called = (each for each in walk(function) if isinstance(each, ast.Call))
    return function in training or any(last_name(each.func) in names for each in called)


def _given_trial(call: ast.Call, run: Interpreter) -> Concern | None:
    """A call that gives a trial to a function or class of optuna: `upload_artifact(study_or_trial=trial, ...)`."""
    called = (each.name for each in run.values.get(call.func, NOTHING).things if isinstance(each, External))
    given = (*call.args, *(keyword.value for keyword in call.keywords))
    if call not in run.sources or not any(name.partition(".")[0] in OPTUNA for name in called):
        return None
    if not any([*run.values.get(each, NOTHING).objects("trial")] for each in given):
        return None
    source = run.sources[call]
    message = (
        f"gives the trial to {source.code(call.func)}, which needs optuna's own: only rank 0 has that, the others get "
        "what its methods return; search without it, or around the converted script, started by torchrun for each trial"
    )
    return Concern("AD902", source, call, message, Severity.REFUSAL)


def _led(event: Event, run: Interpreter) -> Concern | None:
    """What keeps rank 0 from leading a search."""
    call = event.node
    assert isinstance(call, ast.Call)
    trials = argument(call, "trials")
    made = run.values.get(trials, NOTHING).things if trials is not None else frozenset()
    if any(isinstance(each, Object) and each.name.endswith("SparkTrials") for each in made):
        message = (
            "runs its trials in processes of Spark, which are no ranks of this script; give it hyperopt.Trials, whose "
            "trials all ranks run together"
        )
        return Concern("AD902", event.source, call, message, Severity.REFUSAL)
    if argument(call, "fn", 0) is None:
        message = (
            "cannot see the function that this search calls for each trial, which all ranks must run: name it here"
        )
        return Concern("AD902", event.source, call, message, Severity.REFUSAL)
    return None


def _of_study(event: Event, run: Interpreter) -> Iterator[Concern]:
    """What a study does that ranks cannot do together."""
    call = event.node
    assert isinstance(call, ast.Call)
    jobs, callbacks = argument(call, "n_jobs", 3), argument(call, "callbacks", 5)
    threads = run.values.get(jobs, NOTHING).const if jobs is not None else 1
    if jobs is not None and isinstance(threads, int) and threads != 1:
        message = (
            "runs trials in several threads at once, whose collectives would meet those of other trials: ranks would "
            "average what does not belong together, or wait for ever; leave n_jobs at 1"
        )
        yield Concern("AD902", event.source, jobs, message, Severity.REFUSAL)
    held = run.values.get(callbacks, NOTHING).things if callbacks is not None else frozenset()
    called = [each for thing in held if isinstance(thing, Items) for part in thing.parts for each in part.functions]
    for function in called:
        for node in walk(function.node):
            if isinstance(node, ast.Global | ast.Nonlocal):
                message = (
                    f"{', '.join(node.names)} would be set on rank 0 alone, where the study calls this: the other "
                    "ranks would go on with the old value; keep it in the study (study.set_user_attr), which all have"
                )
                yield Concern("AD902", function.source, node, message, Severity.REFUSAL)
            elif isinstance(node, ast.Call) and last_name(node.func) in _training(run):
                message = (
                    "trains on rank 0 alone, where the study calls this, and waits for the other ranks for ever; train "
                    "after the search, with study.best_params"
                )
                yield Concern("AD902", function.source, node, message, Severity.REFUSAL)


def _training(run: Interpreter) -> set[str]:
    """The names of functions that train, or call one that does."""
    calls = [call for backward in run.of("backward") for call in backward.calls]
    return {call.function.node.name for call in calls if not isinstance(call.function.node, ast.Lambda)}


def _trains(event: Event, run: Interpreter) -> bool:
    """Whether a library is given a function that trains."""
    return not _entered(run, "backward").isdisjoint(each.node for each in event.value.functions)


def _entered(run: Interpreter, kind: str) -> set[ast.AST]:
    """The functions in which, or below which, something happens."""
    return {call.function.node for each in run.of(kind) for call in each.calls}


def _library(call: ast.AST, run: Interpreter) -> str:
    """The library that a call goes to: `hyperopt`"""
    assert isinstance(call, ast.Call)
    func = call.func
    owner = run.values.get(func.value, NOTHING).things if isinstance(func, ast.Attribute) else frozenset()
    things = (*run.values.get(func, NOTHING).things, *owner)
    asked = func.attr if isinstance(func, ast.Attribute) else "__call__"
    names = [each.name for each in things if isinstance(each, External)]
    for each in things:
        if isinstance(each, Object) and not (each.cls is not None and each.cls.find(asked)):
            names += each.library_classes
    return next(iter(names), "").partition(".")[0]


def _refused(event: Event, run: Interpreter) -> Concern:
    assert isinstance(event.node, ast.Call)
    library, code = _library(event.node, run), event.source.code(event.node.func)
    by = f"{code} of {library}" if library and not code.startswith(library) else code
    message = f"{by} {REASONS.get(library, f'chooses hyperparameters: {ALONE}; {AROUND}')}"
    return Concern("AD902", event.source, event.node, message, Severity.REFUSAL)
