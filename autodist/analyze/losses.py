"""Losses: what makes each that of the whole batch, and what is to be said of it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from typing import TypeGuard

from autodist.analyze import padding
from autodist.analyze.launched import is_distributed
from autodist.analyze.reductions import scaled_gradients
from autodist.borrowed import departed
from autodist.files.naming import rank_zero_statements
from autodist.interpreter import Event, Interpreter, Runs
from autodist.losses.own_gradients import OwnGradient, is_of, own_gradients
from autodist.models import modules_behind
from autodist.placement import Replicate
from autodist.placement.arguments import sizes_of
from autodist.placement.opaque import COUNTED
from autodist.program import Operation, Program, closure
from autodist.reduction import IN_TRAINING, Reduction, joining
from autodist.rule import Severity
from autodist.script import Concern, Site, TrainingScript, Weighed
from autodist.solve import gradients
from autodist.solve.alone import Alone
from autodist.solve.gathering import Gathered
from autodist.solve.gradients import Gradients
from autodist.solve.kinds import NUMBER, TENSOR, is_array, kind_of
from autodist.solve.losses import OF_PARTS, UNSURE, Losses
from autodist.solve.steps import steps_of
from autodist.solve.written import code_of, readers
from autodist.source import Source, last_name, shortened, walk
from autodist.values import NOTHING, Class, External, Object, Value

ROUNDING = frozenset("int round floor ceil trunc".split())


def whole_losses(
    again: Runs, run: Interpreter, losses: Callable[[], Losses]
) -> tuple[list[Weighed], tuple[Reduction, ...], tuple[Reduction, ...]]:
    """What makes losses those of the whole batch that no mean over the ranks is: means that are weighed, sums and
    means that are joined with their gradients, and those that have none."""
    alone = Alone(frozenset(site.node for site in rank_zero_statements(run)))
    found = Gradients(again.program, losses(), alone).mended()
    left = {each.node for each in run.of("backward")} - found.keys()
    before = losses() if left else None
    if before is not None and (doubtful := {node for node in left if before.doubted_at(node) is not None}):
        more = Gradients(again.program, before, alone).mended(doubtful)  # which are told of as well
        found |= {node: several for node, several in more.items() if node in doubtful}
    mends = {(type(each), each.node): each for several in found.values() for each in several}.values()
    weighed = [
        Weighed(each.source, each.node, each.divisor.code, each.divisor.rows, each.divisor.name)
        for each in mends
        if isinstance(each, gradients.Weighed)
    ]
    joined = [each for each in mends if isinstance(each, gradients.Joined)]
    learnt = tuple(_reduction(each, again.program) for each in joined if each.learnt)
    return weighed, learnt, tuple(_reduction(each, again.program) for each in joined if not each.learnt)


def gathered_rows(run: Interpreter, program: Program, losses: Losses, wanted: Collection[ast.AST]) -> list[Reduction]:
    """The rows of all ranks, and how many these are, by which the losses of some backward passes become those of the
    whole batch, told apart where evaluation comes to the same place."""
    alone = Alone(frozenset(site.node for site in rank_zero_statements(run)))
    mends = Gradients(program, losses, alone).mended(gathering=wanted)
    rows = {each.node: each for node in wanted for each in mends.get(node, ()) if isinstance(each, Gathered)}
    rows = {node: each for node, each in rows.items() if not _is_made_whole(node, program)}
    made = {node: program.at(node).operations for node in rows}
    given = {op for several in made.values() for op in several} & losses.assumed
    if any(each.owner is None and each.name != "call" for each in given):
        return []  # a function that is not known may give anything for all samples, and is only taken for rows
    return [
        Reduction(
            each.source,
            each.node,
            joining(each.placement),
            switch=IN_TRAINING if any(_is_evaluated(op, each, losses) for op in made[each.node]) else None,
            together=getattr(each.placement, "in_parts", False),
            array=is_array(program.at(each.node)),
        )
        for each in rows.values()
    ]


def _is_made_whole(node: ast.expr, program: Program) -> bool:
    """Whether it is made of as many numbers as a batch has, by a size that is written down: `torch.ones(8, 4)`"""
    made = program.at(node).operations
    known = [each.known for each in made]
    sizes = [size for each in made for size in sizes_of(each)]
    written = bool(sizes) and all(size.is_constant for size in sizes)
    return written and all(each is not None and each.cls in ("fill", "random") for each in known)


def _is_evaluated(operation: Operation, found: Gathered | Reduction, losses: Losses) -> bool:
    """Whether an evaluation comes to an operation, or where its result is read, in which every rank has all data:
    without gradients, and for no loss, or below `with torch.set_grad_enabled(phase == "train"):`"""
    blocks = (each for each in found.source.ancestors(found.node) if isinstance(each, (ast.With, ast.AsyncWith)))
    asked = (item.context_expr for each in blocks for item in each.items)
    if any(isinstance(each, ast.Call) and last_name(each.func) == "set_grad_enabled" for each in asked):
        return True
    managers = (op for each in operation.region.around() if each.kind == "with" for op in each.subject.operations)
    quiet = operation.region.without_gradients and operation not in losses.steps.reaching
    return quiet or any(op.name.endswith("set_grad_enabled") for op in managers)


def sizes_of_all(
    sizes: Iterable[ast.expr], gathered: Collection[ast.expr], program: Program, run: Interpreter
) -> frozenset[ast.expr]:
    """The batch sizes that shape what meets the rows of all ranks, so that it is to be as long: `torch.eye(size)`"""

    def after(nodes: Iterable[ast.expr]) -> set[Operation]:
        read = {user for node in nodes for user in readers(program).get(node, ())}
        made = {op for node in nodes for op in program.at(node).operations}
        return set(program.depending(read)) | made

    whole, found = after(gathered), set[ast.expr]()
    for size in sizes:
        own = {op for op in after([size]) if run.placements.sizes.get(op) != ()}
        met = (user for each in own for user in program.users[each] if not user.given.isdisjoint(whole - own))
        if any(met):
            found.add(size)
    return frozenset(found)


def doubled(rows: Iterable[Reduction], program: Program, losses: Losses) -> Concern | None:
    """Where data that every rank has in full come to, with gradients on, and are gathered as a rank's share is."""
    for each in rows:
        made = program.at(each.node).operations
        whole = [
            op for op in made if losses.placements.of.get(op) == Replicate() and not _is_evaluated(op, each, losses)
        ]
        if whole and len(whole) < len(made):
            message = (
                "the loss compares the samples of a batch, and is computed here of all data, too, gradients on: "
                "evaluate below `with torch.no_grad():`"
            )
            return Concern("AD906", each.source, each.node, message, Severity.REFUSAL)
    return None


def _reduction(each: gradients.Joined, program: Program) -> Reduction:
    switch = IN_TRAINING if each.is_evaluated else None
    kind = kind_of(program.at(each.node))
    number, tensor = kind == NUMBER, kind == TENSOR
    return Reduction(each.source, each.node, joining(each.placement), switch=switch, number=number, tensor=tensor)


def without_sums(script: TrainingScript) -> TrainingScript:
    """What is said about code that goes is not worth saying."""
    gone = departed(script.borrowed)
    if not gone:
        return script
    return replace(
        script,
        unwraps=tuple(site for site in script.unwraps if site.node not in gone and not _clips(site)),
        reductions=tuple(reduction for reduction in script.reductions if reduction.node not in gone),
    )


def _clips(site: Site) -> bool:
    """`model.clip_grad_norm_(1.0)`, of a wrapper that goes"""
    parent = site.source.parents.get(site.node)
    return isinstance(parent, ast.Attribute) and parent.attr == "clip_grad_norm_"


def loss_concerns(run: Interpreter, losses: Losses) -> Iterator[Concern]:
    """Losses that are not those of the whole batch, and why."""
    yield from _lost(run, losses)
    yield from _told_by_events(run)


def doubts(run: Interpreter, losses: Losses, told: Collection[Concern]) -> Iterator[Concern]:
    """Losses of which it cannot be told that they are those of the whole batch, and nothing else is ``told``."""
    named = {each.node for each in told if each.code.startswith(("AD602", "AD9"))}
    passes = {event.node: event for event in reversed(run.of("backward"))}.values()
    for event in () if is_distributed(run) else reversed(passes):  # `check` sees to those
        if named & losses.made_of(event.node):
            continue
        if (found := losses.doubted_at(event.node)) is not None:
            operation, reason = found
            code = code_of(operation)
            message = (
                "cannot tell that this loss is a sum or mean over the samples of the batch, so that gradients that are "
                f"averaged over the ranks are those of one process: {code}: {reason}"
            )
            yield Concern("AD602", event.source, event.node, message, Severity.WARNING)


def _lost(run: Interpreter, losses: Losses) -> Iterator[Concern]:
    """Where losses come to be others than those of one process, as the graph tells."""
    lost = [*losses.lost_at()]
    if is_distributed(run):  # which joins sums and scales means as it sees fit
        lost = [(each, reason) for each, reason in lost if reason not in OF_PARTS]
    for operation, reason in lost[:1]:
        code = code_of(operation)
        so = ": if so," if reason in UNSURE else ", so that"
        message = f"{code}: {reason}{so} results differ from those of one process"
        yield Concern("AD602", operation.source, operation.node, message, Severity.WARNING)
    for site in _sites(losses.sums_or_means(), run):
        message = (
            "this loss is a sum over samples in one case and a mean in another: gradients that are averaged over the "
            "ranks are those of a mean; multiply the loss by the number of ranks where it is a sum, or take a mean in "
            "both cases"
        )
        yield Concern("AD602", site.source, site.node, message, Severity.WARNING)
    for operation, over in losses.weighted():
        numbers = "weights" if over.startswith("weighted") else "number"
        of_ranks = "" if numbers == "weights" else ", of which ranks have different numbers"
        message = (
            f"the loss is a mean {over}{of_ranks}: each rank divides by the {numbers} of its own samples, so gradients "
            "differ slightly from those of one process"
        )
        yield Concern("AD602", operation.source, operation.node, message, Severity.WARNING)
    for operation in [each for each in losses.taken_by_models() if each.node not in run.plan.weighed][:1]:
        made = (getattr(each.owner, "name", each.name) for each in closure([operation], lambda op: op.given))
        name = next((_class_of(each) for each in made if run.catalog.own_loss(each)), "the model")
        yield Concern("AD602", operation.source, operation.node, f"the loss of {name} {UNEVEN}", Severity.WARNING)
    for operation, test in [*losses.decided_at()][:1] if not is_distributed(run) else ():
        message = (
            f"{shortened(ast.unparse(test))} decides over what the loss is computed of, and each rank decides by its "
            "own samples, so that results differ from those of one process"
        )
        yield Concern("AD602", operation.source, test, message, Severity.WARNING)
    for operation in [*losses.empty_at()][:1]:
        code = code_of(operation)
        message = (
            f"{code} adds up those samples that a condition leaves: a rank that has none of them has a loss without "
            "gradients, and stops in its backward pass; begin the sum with something that has some, 0 * out.sum()"
        )
        yield Concern("AD602", operation.source, operation.node, message, Severity.WARNING)
    for operation in [*losses.numbers_at(run.plan.joined)][:1]:
        code = code_of(operation)
        message = (
            f"{code} adds up those samples that a condition leaves: a rank that has none of them has nothing with "
            "gradients to add to those of the other ranks, and training stops there; begin the sum with something of "
            "the same shape that has some: sum(…, 0 * model(x)[0])"
        )
        yield Concern("AD602", operation.source, operation.node, message, Severity.WARNING)
    yield from padding.concerns(run, losses)


def _goes_by_second(event: Event, run: Interpreter) -> bool:
    """Whether the size of noise goes by how many numbers each sample has: `nn.init.kaiming_uniform_(h)`."""
    call = event.node
    named = isinstance(call, ast.Call) and last_name(call.func).startswith("kaiming_") and bool(call.args)
    return named and isinstance(call, ast.Call) and run.has_rows(call.args[0])


def _told_by_events(run: Interpreter) -> Iterator[Concern]:
    """What libraries do with batches, and draws and roundings that say little of the batch of one process."""
    for event in [each for each in run.of("noise_by_shape") if not _goes_by_second(each, run)][:1]:
        message = (
            "draws noise whose size goes by the shape of a tensor with a row for each sample: a rank has fewer rows, "
            "and its noise is larger than that of one process; give it a size of its own, by normal_ or uniform_"
        )
        yield Concern("AD602", event.source, event.node, message, Severity.WARNING)
    for event in run.of("make"):
        if any(event.value.objects("mixes_samples")):
            message = (
                f"{shortened(ast.unparse(event.node))} pairs each sample of a batch with another: a rank finds "
                "it in its own share, so that results differ from those of one process"
            )
            yield Concern("AD602", event.source, event.node, message, Severity.WARNING)
            break
    learnt = frozenset() if is_distributed(run) else steps_of(run.runs.program).expressions
    for node in [each for each in run.values if each in learnt and _rounds_share(each, run)][:1]:
        message = (
            f"{shortened(ast.unparse(node))} is rounded for each rank's share of a batch: together they come to "
            "another number of samples than one process; take a batch whose shares need no rounding"
        )
        yield Concern("AD602", run.sources[node], node, message, Severity.WARNING)
    for event in [each for each in run.of("adaptive") if each.value.spread.is_local][:1]:
        message = (
            "chooses its steps by the errors of a whole batch, a rank by those of its own samples: results differ from "
            "those of one process within the solver's tolerance"
        )
        yield Concern("AD602", event.source, event.node, message, Severity.WARNING)
    yield from _unseen_collations(run)
    for source, place, model in [*_own_losses(run)][:1]:
        yield from _own_loss(source, place, model, run)


OWN_LOSSES = {
    "summed": "is a sum over the samples, unless its configuration says otherwise, and gradients are averaged over the "
    'ranks: give it ctc_loss_reduction="mean"',
    "contrasted": "compares each sample with all others of the batch, and a rank has its share of them only: leave out "
    "`return_loss`, and compute it in the script, where the embeddings of all ranks can be gathered",
}
"""What is said of losses that models of libraries take for themselves; of others, what they are means over."""


UNEVEN = (
    "is a mean over what its labels do not leave out, or over the objects in them, of which ranks may have different "
    "numbers: gradients may differ slightly from those of one process"
)


def _class_of(model: str) -> str:
    """What the class of a model of a library is called, of what makes the model."""
    return model.removesuffix(".from_pretrained").removesuffix(".from_config").rpartition(".")[2]


def _own_losses(run: Interpreter) -> Iterator[tuple[Source, ast.AST, Object]]:
    """The losses that models of libraries take for themselves over numbers of which placements do not tell."""
    for event in run.of("own_loss"):
        yield from ((event.source, event.node, thing) for thing in event.value.things if isinstance(thing, Object))
    for op in steps_of(run.runs.program).ordered:
        if isinstance(op.node, ast.Attribute) and op.node.attr == "loss" and not run.is_alike(op.node.value):
            for model in sorted(modules_behind(run, op.node.value), key=lambda each: each.name):
                if (kind := run.catalog.own_loss(model.name)) and kind not in COUNTED:
                    yield op.source, op.node, model


def _own_loss(source: Source, node: ast.AST, model: Object, run: Interpreter) -> Iterator[Concern]:
    """The loss of a model of a library that is no mean over samples, and cannot be weighed."""
    kind = run.catalog.own_loss(model.name)
    reduction = model.argument("ctc_loss_reduction")
    if kind == "summed" and reduction is not None and reduction.const == "mean":
        return
    message = f"the loss of {_class_of(model.name)} {OWN_LOSSES.get(kind, UNEVEN)}"
    yield Concern("AD602", source, node, message, Severity.WARNING)


def _unseen_collations(run: Interpreter) -> Iterator[Concern]:
    """Loaders of training whose samples are put together by code that is not at hand."""
    loaders = dict.fromkeys(o for e in run.of("backward") for o in e.value.origins if isinstance(o, Object))
    for loader in loaders:
        given = (loader.argument("collate_fn", 6) if "loader" in loader.roles else None) or NOTHING
        made = [t for t in given.things if isinstance(t, (External, Object))]
        unseen = [t.name for t in made if getattr(t, "cls", None) is None and not run.catalog.knows(t.name)]
        unseen = unseen or [_named(given)] * (not run.layout(loader).is_told)
        if unseen:
            message = (
                f"cannot tell how {unseen[0]} puts samples together: where it joins them, pads them to the longest or "
                "lays them along another axis than the first, results differ from those of one process"
            )
            yield Concern("AD602", loader.source, loader.node, message, Severity.WARNING)


def _named(collate: Value) -> str:
    """What a function is called by which a loader lays samples together."""
    classes = (thing.cls if isinstance(thing, Object) else thing for thing in collate.things)
    named = (each.node.name if isinstance(each, Class) else getattr(each, "name", "") for each in classes)
    return " and ".join(sorted({"collate_fn" if name == "<lambda>" else f"{name}()" for name in named}))


def normalised_twice(run: Interpreter) -> Iterator[Concern]:
    """Layers that normalise what the samples of a batch have in common, such as their neighbours in a graph: a rank has
    that once, and so has another one."""
    joined = {node for node in run.sources if _joins(node) and not run.holds_alike(node)}
    for event in run.of("normalises_rows") if joined else ():
        given = event.node.args[0] if isinstance(event.node, ast.Call) else None
        made = run.runs.program.at(given).operations if given is not None else ()
        behind = {each.node for each in closure(made, lambda op: op.given)}
        found = {each for each in joined if not behind.isdisjoint(walk(each))}
        for one in sorted(found, key=lambda each: (each.lineno, each.col_offset))[:1]:
            message = (
                f"batch statistics are those of what {shortened(ast.unparse(one))} leaves of a rank's samples: what "
                "samples of several ranks have in common counts once for each of them, and results differ from those "
                "of one process; normalise each row by itself (nn.LayerNorm)"
            )
            yield Concern("AD602", event.source, event.node, message, Severity.WARNING)
            return


def _joins(node: ast.AST) -> TypeGuard[ast.expr]:
    """Whether an expression leaves out what there is already: a set."""
    named = last_name(node.func) if isinstance(node, ast.Call) else ""
    return isinstance(node, ast.SetComp) or named in ("set", "unique", "unique_consecutive", "union")


def sums(run: Interpreter, losses: Losses) -> Iterator[Site]:
    """Losses that are sums over samples: averaging gradients over ranks divides them by the number of ranks."""
    for site in _sites(losses.sums(), run):
        if isinstance(site.node, ast.Call):
            yield replace(site, node=_scaled(site.node))


def pieces(run: Interpreter, losses: Losses) -> Iterator[Site]:
    """Means over pieces of a batch of which it is told how large they are, and not how many."""
    yield from _sites(losses.in_pieces(), run)


def _sites(nodes: Iterable[ast.AST], run: Interpreter) -> Iterator[Site]:
    sources = {event.node: event.source for event in run.of("backward")}
    yield from (Site(sources[node], node) for node in nodes if node in sources)


def _scaled(node: ast.Call) -> ast.expr:
    """The loss of a backward pass: `loss` of `scaler.scale(loss).backward()`"""
    loss = node.func.value if isinstance(node.func, ast.Attribute) else node.args[0]
    scales = isinstance(loss, ast.Call) and isinstance(loss.func, ast.Attribute) and loss.func.attr == "scale"
    return loss.args[0] if scales and isinstance(loss, ast.Call) and loss.args else loss


def amplified(run: Interpreter) -> tuple[tuple[Site, ...], tuple[tuple[Site, str], ...], list[Concern]]:
    """Where gradients of samples are taken of means over a rank's, or of sums multiplied for the average, and a loss or
    report counts how large they are; and the statements behind which they are divided, where an optimizer steps by
    them or something changes them in place."""
    own = own_gradients(run)
    places = {each.node: each for each, in_part in scaled_gradients(run).items() if not in_part}
    read = (each for node, each in places.items() if not is_of(node, each.source, own))
    divided = tuple((Site(each.source, each.backward), each.leaf) for each in own if each.backward is not None)
    sites = tuple(Site(each.source, each.node) for each in read)
    return sites, divided, [_unscaled(each) for each in own if each.backward is None]


def _unscaled(gradient: OwnGradient) -> Concern:
    message = (
        f"{gradient.leaf}.grad is of a mean over a rank's samples: each of them has as many times its gradient as "
        "there are ranks, by which it is changed or stepped; divide it by the number of ranks behind the backward pass"
    )
    return Concern("AD602", gradient.source, gradient.node, message, Severity.WARNING)


def _rounds_share(node: ast.expr, run: Interpreter) -> bool:
    """`int(0.1 * len(y))`, a number of a rank's samples, and not of the batch's."""
    if not isinstance(node, ast.Call) or last_name(node.func) not in ROUNDING or not node.args:
        return False
    share = node.args[0]
    return (
        isinstance(share, ast.BinOp)
        and isinstance(share.op, (ast.Mult, ast.Div))
        and run.counts_samples(share)
        and node not in run.plan.reduced
        and not (isinstance(share.left, ast.Call) and last_name(share.left.func) in ("nelement", "numel"))
    )


def gradients_alone(run: Interpreter) -> Iterator[Concern]:
    """Gradients that a script sets itself, and that are computed from this rank's samples alone: `weights.grad =
    torch.autograd.grad(balance, weights)[0]`. Of those it has read from parameters, all ranks have the same."""
    for node in sorted((n for n in run.executed if isinstance(n, ast.Assign)), key=lambda n: (n.lineno, n.col_offset)):
        target = node.targets[0]
        if not isinstance(target, ast.Attribute) or target.attr != "grad":
            continue
        if not run.is_alike(node.value):
            code = shortened(ast.unparse(target))
            message = (
                f"{code} is computed from this rank's samples alone, so that ranks would take steps of their own: "
                "average it over the ranks first, and the gradients that it is computed from"
            )
            yield Concern("AD602", run.sources[target], node, message, Severity.WARNING)


def amplified_in_part(run: Interpreter) -> Iterator[Concern]:
    """Gradients that are taken of samples that are shared out, and of others that are not, as attacks on a test set."""
    places = {each.node: (each, in_part) for each, in_part in scaled_gradients(run).items()}
    for node, (each, in_part) in places.items():
        if in_part:
            message = (
                "of a mean over a rank's samples, each of them has as many times its gradient as there are ranks, but "
                "this is also taken of data that every rank has in full: divide the loss by the number of ranks in "
                "training"
            )
            yield Concern("AD602", each.source, node, message, Severity.WARNING)
