from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.edits import Edit, Guard, InsertAfter, Recompose, WrapExpr
from autodist.rule import Context, Example, Finding, Fix, Severity, raised, rule
from autodist.script import Search, Site, TrainingScript
from autodist.source import Source, argument

from ._collectives import (
    AS_ON_RANK_ZERO,
    ASK_STUDY,
    LED_SEARCH,
    RUN_STUDY,
    RUN_STUDY_AND_CATCH,
    RUN_STUDY_AND_CATCH_BY_PLACE,
    SHARED_STUDY,
    SHARED_TRIAL,
    STUDY_ON_ALL_RANKS,
)
from ._examples import PLAIN
from ._preamble import Planned, defined, dist, imported, planned

BEFORE = """\
import optuna
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))


def objective(trial):
    loader = DataLoader(train_set, batch_size=8, shuffle=True)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=trial.suggest_float("lr", 1e-3, 1e-1))
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.bias.item()


study = optuna.create_study(direction="maximize")
study.optimize(objective, n_trials=4)
print(study.best_params)
"""
DEFINED = AS_ON_RANK_ZERO + SHARED_STUDY + SHARED_TRIAL + STUDY_ON_ALL_RANKS.replace("{methods}", RUN_STUDY)
AFTER = (
    BEFORE.replace("import torch\n", "import torch\nimport torch.distributed as dist\n")
    .replace("optuna.create_study(", "shared_study(lambda: optuna.create_study(")
    .replace('"maximize")', '"maximize"))')
    .replace("study.optimize(", "StudyOnAllRanks(study).optimize(")
    .replace("train_set =", "\n" + DEFINED.replace("{d}", "dist").replace("{optuna}", "optuna") + "train_set =", 1)
)
BY_HYPEROPT = (
    BEFORE.replace("import optuna\n", "from hyperopt import fmin, hp, tpe\n")
    .replace('trial.suggest_float("lr", 1e-3, 1e-1)', "lr")
    .replace("objective(trial)", "objective(lr)")
    .partition("study = ")[0]
    + 'best = fmin(objective, hp.uniform("lr", 1e-3, 1e-1), algo=tpe.suggest, max_evals=4)\nprint(best)\n'
)
LED = (
    BY_HYPEROPT.replace("import torch\n", "import torch\nimport torch.distributed as dist\n")
    .replace("fmin(objective", "search_on_all_ranks(objective, lambda objective: fmin(objective")
    .replace("max_evals=4)", "max_evals=4))")
    .replace("train_set =", "\n" + (AS_ON_RANK_ZERO + LED_SEARCH).replace("{d}", "dist") + "train_set =", 1)
)
EXAMPLES = [
    Example(before=BEFORE, after=AFTER),
    Example(before=BY_HYPEROPT, after=LED),
    Example(before=PLAIN, after=None),
]


@rule("AD704")
def search_on_rank_zero(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Search hyperparameters on rank 0, and run each of its trials on all ranks.

    Each rank would otherwise have a study of its own, which tries other hyperparameters, prunes at other times and
    writes to the same storage. Rank 0 alone makes the study and asks its sampler and its pruner; the other ranks get
    what it suggests and decides. After each trial they hold a copy of its trials, so that what reads the study finds
    the same everywhere. hyperopt's `fmin` is called on rank 0 alone likewise, and what it tries is tried by all ranks.
    A library of which nothing is known, and which is given a function that trains, may search: that is said.
    """
    if not script.trains or script.distributed:
        return
    for site in script.search.stored:
        d, imports = dist(context, site.source)
        alone = planned(site.source, WrapExpr(site.node, f"{{}} if {d}.get_rank() == 0 else None"))
        yield Finding(site.source, site.node, "every rank would write to this storage", Fix((*imports, *alone)))
    for site in script.search.made:
        assert isinstance(site.node, ast.expr)
        shared = planned(site.source, WrapExpr(site.node, "shared_study(lambda: {})"))
        fix = Fix((*_defined(script, context, site, SHARED_STUDY), *shared))
        yield Finding(site.source, site.node, "each rank would make a study of its own", fix)
    for site in (*script.search.run, *script.search.asked, *script.search.told):
        call = site.node
        assert isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
        definitions = _defined(script, context, site, SHARED_STUDY, SHARED_TRIAL, _class(site.source, script.search))
        fix = Fix((*definitions, *planned(site.source, WrapExpr(call.func.value, "StudyOnAllRanks({})", outer=True))))
        yield Finding(site.source, call, "each rank would try other hyperparameters, and prune at other times", fix)
        jobs = argument(call, "n_jobs", 3)
        if jobs is not None and script.program.at(jobs).constant != 1 and site in script.search.run:
            message = "threads of their own would mix the collectives of several trials: leave n_jobs at 1"
            yield Finding(site.source, jobs, message, severity=Severity.WARNING)
    for site in script.search.stopped:
        d, imports = dist(context, site.source)
        guard = Guard(site.source.statement(site.node), f"{d}.get_rank() == 0")
        message = "only rank 0 runs the study that is stopped; the others end with it"
        yield Finding(site.source, site.node, message, Fix((*imports, *planned(site.source, guard))))

    for site in script.search.led:
        yield _led(script, context, site)
    yield from raised(script, "AD704")


def _led(script: TrainingScript, context: Context, site: Site) -> Finding:
    """Rank 0 leads a search of a library that all ranks would begin."""
    call, source = site.node, site.source
    assert isinstance(call, ast.Call)
    objective = argument(call, "fn", 0)
    assert objective is not None
    d, imports = dist(context, source)
    code = source.code(objective)
    if isinstance(objective, ast.Name):
        edits: list[Edit] = [WrapExpr(call, f"search_on_all_ranks({code}, lambda {code}: {{}})")]
    else:
        led = source.code(call).replace(code, "objective", 1)
        edits = [Recompose(call, f"search_on_all_ranks({{0}}, lambda objective: {led})", (objective,))]
    trials = argument(call, "trials")
    if isinstance(trials, ast.Name | ast.Attribute) and not isinstance(site.statement, ast.Return):
        code = source.code(trials)
        edits.append(InsertAfter(site.statement, f"vars({code}).update(as_on_rank_zero(vars({code})))\n"))
    helpers = [each.replace("{d}", d) for each in (AS_ON_RANK_ZERO, LED_SEARCH)]
    definitions = (edit for each in helpers for edit in defined(script, source, each))
    fix = Fix((*imports, *definitions, *planned(source, *edits)))
    return Finding(source, call, "each rank would try other hyperparameters", fix)


CATCH = 4
"""The place of `catch` among the arguments of `study.optimize()`."""


def _class(source: Source, search: Search) -> str:
    """The class by which ranks share what a file does with a study."""
    runs = [site.node for site in search.run if site.source is source]
    calls = [each for each in runs if isinstance(each, ast.Call)]
    caught = any(argument(each, "catch") is not None for each in calls)
    by_place = any(len(each.args) > CATCH for each in calls)
    methods = RUN_STUDY_AND_CATCH_BY_PLACE if by_place else RUN_STUDY_AND_CATCH if caught else RUN_STUDY
    methods = methods if runs else ""
    if any(site.source is source for site in (*search.asked, *search.told)):
        methods += ASK_STUDY
    return STUDY_ON_ALL_RANKS.replace("{methods}", methods)


def _defined(script: TrainingScript, context: Context, site: Site, *definitions: str) -> Planned:
    """The definitions that share a study, with the names of modules that the file has."""
    d, imports = dist(context, site.source)
    optuna, needed = imported(context, site.source, "optuna")
    named = [each.replace("{d}", d).replace("{optuna}", optuna) for each in (AS_ON_RANK_ZERO, *definitions)]
    return (*imports, *needed, *(edit for each in named for edit in defined(script, site.source, each)))
