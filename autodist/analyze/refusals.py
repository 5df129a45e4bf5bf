"""What cannot be converted, and why."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator

from autodist import averaging, searching
from autodist.analyze.handmade import batch_draws, beside_loaders, filled_batch, origins_of
from autodist.analyze.hooks import steps_within_backward
from autodist.analyze.launched import is_distributed
from autodist.analyze.picked import steps_on_parts
from autodist.config import Strategy
from autodist.frameworks import owned
from autodist.interpreter import LBFGS, Event, Interpreter
from autodist.losses import unbatched, wholes
from autodist.models import UNSEEN, differentiated, parts
from autodist.placement import Replicate, Shard
from autodist.rule import Severity
from autodist.script import Concern, Site
from autodist.solve.steps import steps_of
from autodist.solve.written import code_of
from autodist.source import Source, all_of, last_name, shortened, walk
from autodist.spread import SAME
from autodist.values import (
    NOTHING,
    Draw,
    External,
    Function,
    Index,
    Items,
    Object,
    Parameters,
    Table,
    Value,
    drawn_from,
)

LAYING_OUT = frozenset("rearrange reshape view permute transpose movedim unflatten flatten".split())
"""What puts the axis of the samples in another place, at most."""


def meeting(source: Source, node: ast.expr, along: bool = False) -> Concern:
    """Where the samples of a batch meet each other, and no rows are gathered: ``along`` their axis, in a model."""
    code = shortened(source.code(node))
    message = (
        f"{code} lets each sample of a batch meet the others, and the loss is computed from it: a rank has only its "
        "own share of them, so that it would be another loss; gather what it is computed from by hand, from all ranks"
    )
    if isinstance(node, ast.Call) and last_name(node.func) in LAYING_OUT:
        message = (
            f"cannot tell along which axis the samples lie after {code}, and whether they meet in the loss: a rank has "
            "only its own share of them; keep the samples along the first axis"
        )
    elif along:
        message = (
            f"{code} goes along the axis of the samples, so that each meets the others of its batch, of which a rank "
            "sees only its own share; if that is not meant, put the samples first"
        )
    return Concern("AD906", source, node, message, Severity.REFUSAL)


def _is_of_apex(value: Value) -> bool:
    return any(isinstance(t, External) and t.name == "apex.amp.initialize" for t in value.things)


def unfinished(run: Interpreter, strategy: Strategy) -> Concern:
    """Why a script is refused that was not followed to its end: it is too large, and what made it so."""
    framework = owned(run, strategy)
    if framework is not None:
        return framework
    entry = run.project.entry
    top: ast.AST = entry.tree.body[0] if entry.tree.body else entry.tree
    message = "the script is nested too deeply to be followed" if run.nested else _size_told(run)
    return Concern("AD905", entry, top, f"{message}; convert its training part alone", Severity.REFUSAL)


def _size_told(run: Interpreter) -> str:
    """What following the script was spent on."""
    spent, message = run.largest, "the script is too large to be followed to its end"
    if spent is None:
        return message
    function = spent.function
    name = f"{function.defined_in.node.name}.{function.name}" if function.defined_in is not None else function.name
    share = round(100 * spent.steps / run.steps)
    place = f"{function.source.path.name}, line {function.node.lineno}"
    return f"{message}: {share} % of it is {name} ({place}), which was entered {spent.entered} times"


def _unseen_steps(run: Interpreter) -> str:
    """What is said where no optimizer is seen to step."""
    if any(_is_of_apex(value) for value in run.values.values()):
        return "trains by apex.amp, which is no longer maintained and hides model and optimizer: use torch.amp"
    if is_distributed(run):
        return (
            "is distributed already, and steps in a way that cannot be followed, so that nothing can be said of how "
            "its gradients come to be those of all ranks: there is nothing to convert"
        )
    return (
        "cannot see that an optimizer steps with these gradients: call step() of a torch.optim optimizer; where the "
        "script changes tensors by their gradients itself, make them parameters of a module, or nothing averages the "
        "gradients over the ranks"
    )


def refusals_of(
    run: Interpreter, strategy: Strategy, whole: wholes.Wholes | None, moving: Draw | None
) -> Iterator[Concern]:
    """Every reason there is not to convert the script."""
    entry = run.project.entry
    top: ast.AST = entry.tree.body[0] if entry.tree.body else entry.tree

    def refuse(code: str, source: Source, node: ast.AST, message: str) -> Concern:
        return Concern(code, source, node, message, Severity.REFUSAL)

    framework = owned(run, strategy)
    if framework is not None:
        yield framework
        return
    searched = None if is_distributed(run) else next(searching.refusals(run), None)
    if searched is not None:
        yield searched
        return
    backwards = [event for event in run.events if event.kind == "backward"]
    steps = [event for event in run.events if event.kind == "step"]
    for event in steps:
        if _takes_closure(event) and not any(isinstance(t, Function) for t in event.detail.things):
            yield refuse(
                "AD904",
                event.source,
                event.node,
                (
                    "cannot see the closure that the optimizer calls, and decides by: give it a function of this "
                    "script, which returns the loss"
                ),
            )
            return
    taken = next((event for event in run.events if event.kind == "autograd_grad"), None)
    if not backwards and steps and taken is not None and _sets_gradients(run):
        message = (
            "these gradients are put into `.grad` by the script, where DistributedDataParallel averages those of "
            "backward() alone: average each over the ranks (dist.all_reduce) right where it is taken, before they are "
            "compared or put together"
        )
        yield refuse("AD904", taken.source, taken.node, message)
        return
    if not backwards:
        yield refuse(
            "AD901",
            entry,
            top,
            "cannot see that it trains: no loss.backward() is reached from this script"
            + (" (an environment loop draws no batches)" if _is_environment(run) else ""),
        )
        return
    loose, early = ([], None) if is_distributed(run) else averaging.stepped_by_hand(run)
    if (hook := steps_within_backward(run)) is not None:
        yield hook
        return
    if early is not None and not steps:
        message = (
            "gradients of tensors that are in no module are read, or stepped by, where it cannot be seen that they are "
            "averaged over the ranks by then: make them parameters of a module, or use a torch.optim optimizer"
        )
        yield refuse("AD904", run.sources.get(early, backwards[0].source), early, message)
        return
    if not steps and not _steps_by_hand(run) and not (loose and strategy is Strategy.DDP):
        event = backwards[0]
        unknown = _unknown_optimizer(run)
        if unknown is not None:
            source, made = unknown
            message = (
                f"cannot see which optimizer is made by {shortened(source.code(made.func))}(...): name its class, or "
                "one of several by a condition"
            )
            yield refuse("AD904", source, made, message)
            return
        yield refuse(
            "AD904",
            event.source,
            event.node,
            _unseen_steps(run),
        )
        return
    if _is_environment(run) and not is_distributed(run):
        event = backwards[0]
        yield refuse(
            "AD902",
            event.source,
            event.node,
            (
                "draws on an environment, which is no data set that could be shared out among ranks; if it only "
                "evaluates there, move that to a script of its own"
            ),
        )
        return
    for event in [] if is_distributed(run) else [each for each in backwards if _keeps_graph(each, run)][:1]:
        yield refuse(
            "AD904",
            event.source,
            event.node,
            (
                "gradients with a graph of their own (create_graph=True) cannot be averaged in place, as "
                "DistributedDataParallel does: take them by torch.autograd.grad, and call backward() on what is "
                "computed from them"
            ),
        )
        return
    for event in _lazily_made(run)[:1]:
        yield refuse(
            "AD904",
            event.source,
            event.node,
            (
                "lazy layers have no parameters before a first pass, and a model is wrapped before that: make them "
                "with their sizes, or pass an example through the model before the optimizer is made"
            ),
        )
        return
    for event in run.of("parameter_set"):
        yield refuse(
            "AD904",
            event.source,
            event.node,
            (
                "sets parameters to a statistic of the samples within a forward pass: each rank would set its own, and "
                "nothing makes them equal again"
            ),
        )
        return
    if (apart := beside_loaders(run)) is not None:
        draw, step = apart
        message = (
            f"trains on batches that {shortened(draw.source.code(draw.node))} picks, beside those of a loader, which "
            "are shared out: read both with loaders, or move this part to a script of its own"
        )
        yield refuse("AD902", step.source, step.node, message)
        return
    if (filled := filled_batch(run)) is not None:
        source, name = filled
        message = (
            f"{name.id} takes samples of a loader that meet a condition until they fill a batch: ranks find different "
            "numbers of them in their shares; choose the samples of the data set before a loader makes batches of them"
        )
        yield refuse("AD902", source, name, message)
        return
    draws = [] if any(isinstance(origin, Object) for origin in origins_of(run)) else batch_draws(run)
    if whole is not None and whole.site is None:
        return
    if moving is not None and not is_distributed(run):
        message = "reads on in a sequence, piece by piece: the samples of a batch lie along another axis"
        site = Site(moving.source, moving.node)
        if whole is not None and whole.site is not None:
            site, message = whole.site, f"{message}, and cannot be shared out: {whole.reason}"
        yield refuse("AD902", site.source, site.node, message)
        return
    if not is_distributed(run) and (spread := _spread_by_hand(run)) is not None:
        yield spread
        return
    if moving is None and not is_distributed(run) and (parted := steps_on_parts(run)) is not None:
        yield parted
        return
    if not any(isinstance(origin, Object) for origin in origins_of(run)) and not draws and not _sums_over_ranks(run):
        event = backwards[0]
        if (missing := _undefined(event, run)) is not None:
            message = f"iterates over {missing.id}, which is defined nowhere: the script itself ends there (NameError)"
            yield refuse("AD902", event.source, missing, message)
            return
        known = whole is None or whole.reason.startswith(UNSEEN)
        if not known and (iterator := _foreign_iterator(run)) is not None:
            yield refuse("AD902", event.source, event.node, _takes_from(iterator))
            return
        if (optimised := unbatched.optimised(run)) is not None:
            yield refuse("AD902", optimised[0].source, optimised[0].node, optimised[1])
            return
        if whole is not None and whole.site is not None:
            message = (
                "a step trains on tensors that no loader hands out, and a rank cannot take its rows of them: "
                f"{whole.reason}"
            )
            if whole.reason.startswith(UNSEEN):
                message = f"trains a model that cannot be followed: {whole.reason}"
            yield refuse("AD902", whole.site.source, whole.site.node, message)
            return
        if whole is not None or any(event.value.spread is not SAME for event in backwards):
            return
        if (iterator := _foreign_iterator(run)) is not None:
            yield refuse("AD902", event.source, event.node, _takes_from(iterator))
            return
        if (hidden := _hidden_loader(event, run)) is not None:
            yield hidden
            return
        if (unseen := _unseen_batches(event, run)) is not None:
            yield unseen
            return
        site, message = unbatched.reason(event, run)
        yield refuse("AD902", site.source, site.node, message)


SPREADING = frozenset(f"torch.nn.parallel.{name}" for name in ("replicate", "parallel_apply"))


def _spread_by_hand(run: Interpreter) -> Concern | None:
    """Replicas of a model that are called past it, whatever devices there are: `nn.parallel.replicate(generator)`."""
    for node, source in run.sources.items():
        called = run.values.get(node.func, NOTHING).things if isinstance(node, ast.Call) else ()
        name = next((t.name for t in called if isinstance(t, External) and t.name in SPREADING), None)
        if name is not None and not any(isinstance(each, ast.If) for each in source.ancestors(node)):
            message = (
                f"{name} computes on several devices of this process, past the wrapper of a model: call the module "
                "itself, each rank has a device of its own"
            )
            return Concern("AD904", source, node, message, Severity.REFUSAL)
    return None


def _steps_by_hand(run: Interpreter) -> bool:
    """Whether the script changes the parameters of modules itself, `p -= lr * p.grad`, which their wrapper averages the
    gradients for. Of tensors that are in no module, nothing does."""
    held = {t.module for e in run.of("own_step") for t in e.value.things if isinstance(t, Parameters)}
    written = {part for module in held if isinstance(module, Object) for part in parts(module)}
    learning = [differentiated(run, event) for event in run.of("backward")]
    trained = {part for models in learning for each in models for part in parts(each)}
    owned = {t for module in trained for each in module.attributes.values() for t in each.objects("parameter")}
    loose = {t for value in run.values.values() for t in value.objects("parameter")} - owned
    return bool(written & trained) and all(learning) and not loose


def unshared_output(run: Interpreter) -> Concern | None:
    """A loss that compares what a model gives for a whole batch with a rank's share of the labels: the samples of what
    the model is given lie along another axis, `model(x[:, i : i + 8])` beside `y[i : i + 8]`."""
    program, of = run.runs.program, run.placements.of
    learnt = steps_of(program).differentiated if run.plan.draws and not is_distributed(run) else ()
    for op in sorted(learnt, key=lambda each: each.number):
        known = op.known
        if known is None or known.cls not in ("loss", "sample_loss") or len(op.inputs) < 2:
            continue
        output, labels = (run.placements.value(each) for each in op.inputs[:2])
        given = [each for each in op.inputs[0].operations if each in learnt]
        if output == Replicate() and isinstance(labels, Shard) and all(of.get(each) == Replicate() for each in given):
            message = (
                f"{code_of(op)} compares a rank's share of the labels with outputs for the whole batch, of whose "
                "inputs it cannot be seen where the samples lie: cut batches out of tensors that have the samples "
                "first, by the same slice or the same indices"
            )
            return Concern("AD902", op.source, op.node, message, Severity.REFUSAL)
    return None


def _sums_over_ranks(run: Interpreter) -> bool:
    """Whether a distributed script trains on the batches of a loader, although its loss is the same on all ranks."""
    loops = [loop.node.iter for event in run.of("backward") for loop in event.loops if isinstance(loop.node, ast.For)]
    return is_distributed(run) and any(True for each in loops for _ in run.values.get(each, NOTHING).objects("loader"))


def _hidden_loader(backward: Event, run: Interpreter) -> Concern | None:
    """A loop over something that is made from a loader in a way that is not followed."""
    loop = backward.loops[-1] if backward.loops else None
    if loop is None or not isinstance(loop.node, (ast.For, ast.comprehension)):
        return None
    over = loop.node.iter
    value = run.values.get(over, NOTHING)
    inner = [node for node in walk(over) if isinstance(node, ast.expr) and node is not over]
    held = [node for node in inner if any(drawn_from(run.values.get(node, NOTHING)))]
    if any(drawn_from(value)) or not held:
        return None
    name = loop.source.code(held[0])
    message = f"cannot see how the batches of {name} come out of this: write the loop over {name} itself"
    return Concern("AD902", loop.source, over, message, Severity.REFUSAL)


def _unseen_batches(backward: Event, run: Interpreter) -> Concern | None:
    """A training loop over something of which it is not known where it takes its batches from."""
    loop = backward.loops[-1] if backward.loops else None
    if loop is None or not isinstance(loop.node, (ast.For, ast.AsyncFor)):
        return None
    over = loop.node.iter
    things = run.values.get(over, NOTHING).things
    if any(isinstance(thing, (Index, Items, Table)) for thing in things):
        return None  # it counts, or goes through what it has
    message = (
        f"cannot see what {shortened(loop.source.code(over))} makes its batches of, so that a rank could take its "
        "share: read them with a torch DataLoader, or cut them out of tensors in this loop"
    )
    return Concern("AD902", loop.source, over, message, Severity.REFUSAL)


def _takes_from(iterator: str) -> str:
    return (
        f"takes its batches from {iterator}, which has no sampler and puts the batch on an axis of its own: "
        "read them with a torch DataLoader"
    )


def _undefined(backward: Event, run: Interpreter) -> ast.Name | None:
    """A name in the head of a training loop that means nothing."""
    for loop in backward.loops:
        for node in walk(loop.node.iter) if isinstance(loop.node, (ast.For, ast.AsyncFor)) else ():
            if isinstance(node, ast.Name) and not hasattr(builtins, node.id):
                if External(f"builtins.{node.id}") in run.values.get(node, NOTHING).things:
                    return node
    return None


def _lazily_made(run: Interpreter) -> list[Event]:
    """The steps of training that are the first pass of a model whose layers learn their sizes by it."""
    first: dict[Object, Event] = {}
    for event in run.of("forward"):
        for thing in event.value.things:
            if isinstance(thing, Object):
                first.setdefault(thing, event)
    lazy = (each for each in first if any(part.name.startswith("torch.nn.Lazy") for part in parts(each)))
    found = (first[each] for each in lazy)
    return [each for each in found if each.loops and each.loops[-1].node in run.step_loops]


def _keeps_graph(event: Event, run: Interpreter) -> bool:
    """`loss.backward(create_graph=True)`"""
    told = event.node.keywords if isinstance(event.node, ast.Call) and differentiated(run, event) else []
    return any(each.arg == "create_graph" and run.values.get(each.value, NOTHING).const is True for each in told)


def _sets_gradients(run: Interpreter) -> bool:
    """`p.grad = g`"""
    attributes = (each for source in run.project.sources for each in all_of(source.tree, ast.Attribute))
    return any(each.attr == "grad" and isinstance(each.ctx, ast.Store) for each in attributes)


def _takes_closure(event: Event) -> bool:
    return any(isinstance(t, Object) and t.name.endswith(LBFGS) for t in event.value.things)


def _foreign_iterator(run: Interpreter) -> str | None:
    """A library's own way of making batches that the script uses."""
    names = {t.name for v in run.values.values() for t in v.things if isinstance(t, (External, Object))}
    found = [name for name in names if name.startswith("torchtext.") and "Iterator" in name]
    return min(found, key=lambda name: (len(name), name)) if found else None


def _is_environment(run: Interpreter) -> bool:
    """Whether a script makes an environment, or derives one; that it imports the library of one says nothing."""
    for node, value in run.values.items():
        names = [t.name for t in value.things if isinstance(t, (External, Object)) and "." in t.name]
        if any(name.startswith(("gym.", "gymnasium.", "pettingzoo.")) for name in names):
            parent = run.sources[node].parents.get(node)
            if any(isinstance(thing, Object) for thing in value.things) or isinstance(parent, ast.ClassDef):
                return True
            if isinstance(parent, ast.Call) and parent.func is node:
                return True
    return False


def _unknown_optimizer(run: Interpreter) -> tuple[Source, ast.Call] | None:
    """The call that makes what a script steps and clears of gradients, of which nothing else is known:
    `opt = settings["type"](parameters)`."""
    for source in run.project.sources:
        calls = [node for node in walk(source.tree) if isinstance(node, ast.Call) and node in run.values]
        methods = [each.func for each in calls if isinstance(each.func, ast.Attribute)]
        stepped = {ast.unparse(each.value) for each in methods if each.attr == "step"}
        cleared = {ast.unparse(each.value) for each in methods if each.attr == "zero_grad"}
        for node in walk(source.tree):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                names = {ast.unparse(each) for each in node.targets}
                if names & stepped & cleared and not run.values.get(node.value, NOTHING).things:
                    return source, node.value
    return None
