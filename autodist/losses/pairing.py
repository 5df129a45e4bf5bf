"""Losses over pairs of samples, as contrastive ones: every rank computes them from the rows of all ranks.

A rank's share of a batch lacks most of the pairs. Gathered before they meet, with gradients that flow back to each
rank's own rows, the rows of all ranks are the batch again. What a function or a criterion is given is gathered where
it is called; what is compared beside the step itself, where it is computed; and so is whatever meets it later, labels
and masks.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace

from autodist.interpreter import SIZES, Event, Interpreter
from autodist.losses.folding import is_folded, may_fold
from autodist.origins import roots, upstream
from autodist.script import Reduction
from autodist.source import Source, all_of, first_index, last_name, operands
from autodist.spread import COLUMNS, COUNT, CROSS, LOCAL, MEAN, ROWS, SAME, SUM
from autodist.tensors.calls import is_entered
from autodist.tensors.mixing import PARTNERS, mixings
from autodist.tensors.picking import picks, takes_first, tells_places
from autodist.values import NOTHING, Gathered, Index, Items, Object, Part, Picked, Turn, Value, Wrapped

ROUNDS = 6
"""What meets gathered rows is found once those are gathered."""
FILLED = frozenset("zeros ones full empty eye arange".split())
TENSOR_FACTORIES = ("torchvision.models.resnet", "torchvision.models.vgg", "torchvision.models.mobilenet", "timm.")
"""Where models of libraries come from that give one tensor."""
COUNTING = frozenset("arange range linspace".split())
ROUNDING = frozenset("int round floor ceil trunc".split())
COMPUTED = (ast.Call, ast.Compare, ast.BinOp)
JOINING = frozenset("cat concat concatenate stack vstack hstack".split())
Found = dict[ast.expr, Reduction]


def kept(
    rows: Collection[Reduction], before: Interpreter, run: Callable[[frozenset[ast.expr]], Interpreter]
) -> tuple[Reduction, ...]:
    """Rows, and numbers of rows, that are to be those of all ranks, where nothing stands against it."""
    found = {each.node: each for each in rows}
    current = run(frozenset(found))
    if _is_in_vain(current) or current.of("mined"):
        return ()
    unknown = {event.node for event in before.of("unfollowed")}
    if any(not unknown.isdisjoint({*ast.walk(node), *roots(node, before, set())}) for node in found):
        return ()  # of samples that have met, for all that is known
    if any(_is_numbered(node, current) for node in current.values) or _hold_dicts(found, before):
        return ()
    if any(takes_first(before.values.get(node, NOTHING)) for node in found):
        return ()  # the first samples of every rank are not those of the batch
    if any(_differs_in_length(before.values.get(node, NOTHING), before) for node in found):
        return ()
    if _goes_by_places(found, before, current):
        return ()  # several rows of each sample, in another order than in the batch
    return in_training(_together(rows, before), current)


def gathered(
    before: Interpreter,
    run: Callable[[frozenset[ast.expr]], Interpreter],
    unsettled: frozenset[ast.AST] | None = None,
) -> tuple[Reduction, ...]:
    """The rows, and the numbers of rows, that are to be those of all ranks, where that makes losses exact: losses that
    compare samples, or those that are ``unsettled``, whatever they compute from a batch."""
    losses = {
        event.node: event
        for event in before.of("backward")
        if (event.value.spread in (CROSS, LOCAL) if unsettled is None else event.node in unsettled)
    }
    kinds = ("paired",) if unsettled is None else ("paired", "related")
    found: Found = {}
    current = before
    for _ in range(ROUNDS if losses else 0):
        fresh: Found = {}
        turns = [event for event in current.of("paired") if _meets_turn(event.node, current)]
        if any(_given(each, [*losses.values()], current).keys() <= found.keys() for each in turns):
            return ()  # a loop that counts to a rank's number of samples, in the step itself
        for event in (each for kind in kinds for each in current.of(kind)):
            fresh |= _given(event, list(losses.values()), current) or _compared(event, current)
        if unsettled is not None and not found and not fresh:
            fresh = {node: each for loss in losses.values() for node, each in _judged(loss, current).items()}
        for event in current.of("met"):
            fresh |= _meeting(event, current)
        fresh = {node: each for node, each in fresh.items() if node not in found}
        if not fresh:
            break
        if any(_is_single(node, current) for node in fresh):
            return ()
        found |= fresh
        current = run(frozenset(found))
        if _is_in_vain(current) or unsettled is not None and _enters(current, before):
            return ()
    whole = all(_is_whole(event) for event in current.of("backward") if event.node in losses)
    if not whole or current.of("met") or unsettled is not None and current.of("mined"):
        return ()
    if any(_is_numbered(node, current) for node in current.values) or _hold_dicts(found, before):
        return ()
    if any(takes_first(before.values.get(node, NOTHING)) for node in found):
        return ()  # the first samples of every rank are not those of the batch
    if unsettled is not None and _goes_by_places(found, before, current):
        return ()  # several rows of each sample, in another order than in the batch
    inputs = {node for node in found if not before.values.get(node, NOTHING).models}
    steps = [e for e in current.of("forward") if e.grad and not _computes_loss(e.node, before)]
    if any(isinstance(each, Gathered) and each.node in inputs for e in steps for each in e.detail.origins):
        return ()  # every rank would run the model on all of them
    return in_training(_together(found.values(), before), current)  # others were computed from those


def outputs_gathered(
    before: Interpreter, run: Callable[[frozenset[ast.expr]], Interpreter], unsettled: frozenset[ast.AST]
) -> tuple[Reduction, ...]:
    """What models give in a training step, and all that meets it, where losses are ``unsettled`` whatever they compute
    from it: every rank then computes the loss of the whole batch."""
    losses = [event for event in before.of("backward") if event.node in unsettled]
    if any(_differentiates(loss, before) for loss in losses):
        return ()
    found = {node: each for loss in losses for node, each in _given_by_models(loss, before).items()}
    unknown = {event.node for event in before.of("unfollowed")}
    if any(not unknown.isdisjoint({*ast.walk(node), *roots(node, before, set())}) for node in found):
        return ()  # inside a model, which a rank runs with its own samples
    current = before
    fresh: Found = found
    for _ in range(ROUNDS if found else 0):
        current = run(frozenset(found))
        if _is_in_vain(current) or _enters(current, before):
            return ()
        fresh = {n: each for event in current.of("met") for n, each in _meeting(event, current, named=True).items()}
        fresh = {node: each for node, each in fresh.items() if node not in found}
        if not fresh:
            break
        if any(_is_single(node, current) for node in fresh):
            return ()
        found |= fresh
    whole = all(_is_whole(event) for event in current.of("backward") if event.node in unsettled)
    if not found or fresh or not whole or current.of("met") or current.of("mined"):
        return ()
    if any(_is_numbered(node, current) for node in current.values) or _hold_dicts(found, before):
        return ()
    if any(_differs_in_length(before.values.get(node, NOTHING), before) for node in found):
        return ()
    if _goes_by_places(found, before, current):
        return ()
    return in_training(_together(found.values(), before), current)


def _together(reductions: Iterable[Reduction], run: Interpreter) -> list[Reduction]:
    """The same, which say if several rows of each sample stand beside each other."""
    together = any(is_folded(each.node, run, certain=True) for each in reductions)
    return [replace(each, together=together) for each in reductions]


def _goes_by_places(found: Found, before: Interpreter, run: Interpreter) -> bool:
    """Whether of rows, of which several may be made of each sample, it matters which place each has: where they are
    counted, cut, or laid beside their neighbours, and not where the largest are chosen of them."""
    if not any(is_folded(node, before) for node in found):
        return False
    counted = any(isinstance(each, ast.Call) and _is_counted(each, before) for each in before.values)
    return counted or any(isinstance(each, ast.Subscript) and _is_gathered_cut(each, run) for each in run.values)


def _is_counted(node: ast.Call, run: Interpreter) -> bool:
    """`torch.arange(len(errors))`"""
    given = [node.args[0]] if node.args and last_name(node.func) in COUNTING else []
    return any(run.values.get(each, NOTHING).spread is COUNT for each in given)


def _is_gathered_cut(node: ast.Subscript, run: Interpreter) -> bool:
    """`errors[1:]`, of those of all ranks"""
    return run.is_gathered(run.values.get(node.value, NOTHING)) and tells_places(node.slice)


def _is_in_vain(run: Interpreter) -> bool:
    """Whether what is gathered already makes no loss exact, and will not if more is: noise is drawn for it, or a layer
    is given it, as by attention from sample to sample; a rank would compute what follows for all of them."""
    return bool(run.of("noise_for_gathered")) or any(_goes_into_layer(node, run) for node in run.values)


def _enters(run: Interpreter, before: Interpreter) -> bool:
    """Whether rows of all ranks go into a model that gives rows itself."""
    alone = {event.node for event in run.of("forward") if not _computes_loss(event.node, before)}
    return any(e.grad and e.node in alone and _holds_gathered(e.detail, run) for e in run.of("forward"))


def _computes_loss(call: ast.AST, run: Interpreter) -> bool:
    """Whether a model gives numbers and no rows: it is given labels, too, and computes the loss itself."""
    value = run.values.get(call, NOTHING) if isinstance(call, ast.expr) else NOTHING
    parts = [part for each in value.things if isinstance(each, Items) and each.is_told for part in each.parts]
    numbers = all(isinstance(each, Items) and each.is_told for each in value.things) and all(map(_is_number, parts))
    return numbers and value.spread is not ROWS


def _is_number(value: Value) -> bool:
    return not value.things and value.spread in (MEAN, SUM, CROSS, LOCAL, COUNT)


def _goes_into_layer(node: ast.expr, run: Interpreter) -> bool:
    """Whether a layer is given rows of all ranks."""
    if not isinstance(node, ast.Call):
        return False
    layers = [t for t in run.values.get(node.func, NOTHING).things if isinstance(t, Object) and t.cls is None]
    trained = any("module" in each.roles and "loss" not in each.roles and each.args for each in layers)
    return trained and any(_holds_gathered(run.values.get(each, NOTHING), run) for each in node.args)


def _holds_gathered(value: Value, run: Interpreter) -> bool:
    """Whether a model is given rows of all ranks, also beside its own: there would be nothing left to share out."""
    return any(isinstance(each, Gathered) and each.node in run.plan.gathered for each in value.origins)


def _differentiates(loss: Event, run: Interpreter) -> bool:
    """Whether a loss is computed from gradients with regard to a rank's own rows: they do not reach gathered ones."""
    made = roots(loss.node, run, set()) if isinstance(loss.node, ast.expr) else set()
    return any(isinstance(each, ast.Call) and ast.unparse(each.func).endswith("autograd.grad") for each in made)


def _differs_in_length(value: Value, run: Interpreter) -> bool:
    """Whether ranks may have more or fewer rows, or longer ones."""
    return value.spread is ROWS and (run.uneven(value) is not None or picks(value) is not None)


def _given_by_models(loss: Event, run: Interpreter) -> Found:
    """The last models' calls that a loss is computed from, or those of layers where a model computes the loss itself;
    of several outputs, where they are read."""
    made = {*ast.walk(loss.node), *(roots(loss.node, run, set()) if isinstance(loss.node, ast.expr) else ())}
    outer = {event.node for event in run.of("forward") if event.grad} & made
    whole = {call for call in outer if _computes_loss(call, run)}
    layers = {each for each in made if isinstance(each, ast.Call) and _is_layer(each, run)} if whole else set()
    calls = {call for call in {*(outer - whole), *layers} if isinstance(call, ast.Call)}
    read = {call: {n for each in operands(call) for n in (*ast.walk(each), *roots(each, run, set()))} for call in calls}
    last = {call for call in calls if not any(call in nodes for other, nodes in read.items() if other is not call)}
    forward = [event.node for event in run.of("forward") if event.grad and isinstance(event.node, ast.Call)]
    several = {call for call in forward if run.values[call].things}
    found: Found = {}
    for node in (each for each in made if isinstance(each, ast.expr)):
        value = run.values.get(node, NOTHING)
        if value.spread is not ROWS or value.things:
            continue
        if node in last and _gives_tensor(node, run) or value.models and _is_output(node, value, several, run):
            found[node] = Reduction(run.sources[node], node, ROWS)
    return found


def _is_output(node: ast.expr, value: Value, several: set[ast.Call], run: Interpreter) -> bool:
    """Whether it reads one of several outputs of a model where that is called: `z` after `out, z = model(x)`,
    `out["z"]`."""
    if not isinstance(node, (ast.Name, ast.Subscript, ast.Attribute)) or isinstance(node.ctx, ast.Store):
        return False
    home = run.sources[node].home(node)
    if not value.made or not any(run.sources[call].home(call) is home for call in several):
        return False
    return all(source.home(made) is not home for source, made in value.made)


def _gives_tensor(node: ast.expr, run: Interpreter, depth: int = 6) -> bool:
    """Whether nothing else than a tensor is given, as far as models of libraries are concerned: others are followed."""
    if not isinstance(node, ast.Call) or not depth:
        return not isinstance(node, (ast.Tuple, ast.List, ast.Dict))
    called = (t.module if isinstance(t, Wrapped) else t for t in run.values.get(node.func, NOTHING).things)
    modules = [each for each in called if isinstance(each, Object) and "module" in each.roles]
    if any(each.cls is None for each in modules) and not run.gives_tensor(node, run.values.get(node, NOTHING)):
        return all(each.name.startswith(TENSOR_FACTORIES) for each in modules)
    bodies = [function.node for each in modules for function in each.functions("forward")]
    given = [each.value for body in bodies for each in ast.walk(body) if isinstance(each, ast.Return) and each.value]
    return all(_gives_tensor(each, run, depth - 1) for each in given)


def _is_layer(call: ast.Call, run: Interpreter) -> bool:
    """`self.head(x)`"""
    things = run.values.get(call.func, NOTHING).things
    return run.values.get(call, NOTHING).spread is ROWS and any(
        isinstance(each, Object) and "module" in each.roles for each in things
    )


def _meets_turn(node: ast.AST, run: Interpreter) -> bool:
    """Whether the sample that a loop over a rank's own has come to is compared with the others of the batch."""
    given = [run.values.get(each, NOTHING) for each in operands(node)] if isinstance(node, ast.expr) else []
    rows = [value for value in given if value.spread in (ROWS, COLUMNS) and not value.things]
    return len({any(isinstance(each, Turn) for each in value.origins) for value in rows}) > 1


def _is_single(node: ast.expr, run: Interpreter) -> bool:
    """Whether it is the sample that a loop over a rank's own has come to: `labels[i]`."""
    value = run.values.get(node, NOTHING)
    return value.spread is ROWS and any(isinstance(each, Turn) for each in value.origins)


def _hold_dicts(found: Found, run: Interpreter) -> bool:
    """Whether some of the rows are no tensor but a list with a dict for each sample: `each["boxes"]` of `for each in
    targets`."""
    given = [run.values[node] for node in found if node in run.values and not run.values[node].models]
    fields = {part for value in given for part in value.origins if isinstance(part, Part)}
    held = [n.value for n in run.values if isinstance(n, ast.Subscript) and run.is_part_of_sample(n)]
    return any(not fields.isdisjoint(run.values.get(each, NOTHING).origins) for each in held)


def _is_numbered(node: ast.expr, run: Interpreter) -> bool:
    """Whether it is one of the samples of all ranks, by a number that a loop counts up to how many a rank has:
    `out[i]` of `for i in range(len(labels))`."""
    if not isinstance(node, ast.Subscript) or not run.is_gathered(run.values.get(node.value, NOTHING)):
        return False
    first = first_index(node)
    numbers = all_of(first, ast.Name) if isinstance(first, ast.Slice) else [first]  # `out[i : i + 1]`
    counting = (t.loop for each in numbers for t in run.values.get(each, NOTHING).things if isinstance(t, Index))
    counted = [each for loop in counting if isinstance(loop, ast.Call) for each in loop.args]
    return any(run.values.get(each, NOTHING).spread in (COUNT, ROWS) for each in counted)


def in_training(reductions: Iterable[Reduction], run: Interpreter) -> tuple[Reduction, ...]:
    """Those that are needed, told apart where evaluation comes to the same place, in which every rank has all data."""
    seen = run.of("gathered")
    trained = {event.node for event in seen if event.grad and event.value.spread in (ROWS, COUNT)}
    evaluated = {event.node for event in seen if not event.grad or _is_switched(event)}
    return tuple(
        replace(each, switch="torch.is_grad_enabled()" if each.node in evaluated else None)
        for each in reductions
        if each.node in trained
    )


def doubled(run: Interpreter) -> Event | None:
    """Where data that every rank has in full come to, with gradients on, and are gathered as a rank's share is."""
    seen = [event for event in run.of("gathered") if event.grad]
    trained = {event.node for event in seen if event.value.spread in (ROWS, COUNT)}
    whole = [e for e in seen if e.node in trained and e.value.spread is SAME and not run.is_gathered(e.value)]
    return next((event for event in whole if not _is_switched(event)), None)


def _is_switched(event: Event) -> bool:
    """Whether something stands below `with torch.set_grad_enabled(phase == "train"):`."""
    places = [(event.source, event.node), *((call.source, call.node) for call in event.calls if call.node is not None)]
    blocks = (each for source, node in places for each in source.ancestors(node) if isinstance(each, ast.With))
    asked = (item.context_expr for block in blocks for item in block.items)
    return any(isinstance(each, ast.Call) and last_name(each.func) == "set_grad_enabled" for each in asked)


def _is_whole(loss: Event) -> bool:
    """Whether a loss is the same on all ranks, but for a part that is a mean or a sum over a rank's samples."""
    mixed = any(mixing.reason != PARTNERS for mixing in mixings(loss.value))
    even = loss.value.spread in (MEAN, SUM) and picks(loss.value) is None
    return not mixed and (even or loss.value.spread is SAME)


def _given(event: Event, losses: list[Event], run: Interpreter) -> Found:
    """What the call is given that leads from a training step to a comparison, where that is computed by a model."""
    for call in event.calls[min((_common(event, loss) for loss in losses), default=0) :]:
        found = _arguments(call.node, call.source, run) if call.node is not None else {}
        if found or call.node is None:
            return found
    return {}


def _judged(loss: Event, run: Interpreter) -> Found:
    """What the functions and criteria of the project are given that make a loss: `loss, hits = judge(out, labels)`."""
    home = loss.source.function(loss.node) or loss.source.tree
    named = {each.id for each in ast.walk(loss.node) if isinstance(each, ast.Name)}
    found: Found = {}
    for statement in (each for each in ast.walk(home) if isinstance(each, ast.Assign)):
        bound = {each.id for target in statement.targets for each in ast.walk(target) if isinstance(each, ast.Name)}
        for call in ast.walk(statement.value) if named & bound else ():
            if isinstance(call, ast.Call) and is_entered(call, lambda node: run.values.get(node, NOTHING)):
                found |= _arguments(call, loss.source, run)
    return found


def _arguments(call: ast.Call, source: Source, run: Interpreter) -> Found:
    """The rows, and numbers of rows, that a call is given, if a model has computed some of them."""
    parts = [*call.args, *(keyword.value for keyword in call.keywords)]
    parts = [each for part in parts for each in (part.elts if isinstance(part, (ast.List, ast.Tuple)) else [part])]
    local = [part for part in parts if run.values.get(part, NOTHING).spread in (ROWS, COUNT)]
    if not any(run.values[part].models for part in local):
        return {}
    return {
        each: Reduction(run.sources[each], each, run.values[part].spread)
        for part in local
        for each in (_counting(part, run) if run.values[part].spread is COUNT else [part])
    }


def _counting(node: ast.expr, run: Interpreter, depth: int = 4) -> list[ast.expr]:
    """Where a number of rows is to be that of all ranks: `n` of `keep = int(0.7 * n)`, which is rounded once, as for
    the whole batch; `node` itself where nothing is rounded."""
    if isinstance(node, ast.Name):
        made = [each for _, each in run.values.get(node, NOTHING).made if isinstance(each, ast.expr)] if depth else []
        inner = [_counting(each, run, depth - 1) for each in made]
        apart = [found for each, found in zip(made, inner, strict=True) if found != [each]]
        return [each for found in inner for each in found] if apart else [node]
    parts = [each for each in ast.walk(node) if isinstance(each, ast.expr)]
    counts = [each for each in parts if run.values.get(each, NOTHING).spread is COUNT]
    least = [each for each in counts if sum(inner in counts for inner in ast.walk(each)) == 1]
    found = [each for leaf in least for each in (_counting(leaf, run, depth - 1) if leaf is not node else [leaf])]
    return found if found != least or any(_rounds(each) for each in parts) else [node]


def _rounds(node: ast.expr) -> bool:
    """`int(0.7 * n)`, `n // 2`"""
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, (ast.FloorDiv, ast.Mod))
    return isinstance(node, ast.Call) and last_name(node.func) in ROUNDING | {"min", "max"}


def _common(event: Event, loss: Event) -> int:
    """How many of the calls that lead to a comparison lead to the training step, too."""
    pairs = zip(event.calls, loss.calls, strict=False)
    return next((n for n, (ours, theirs) in enumerate(pairs) if ours.node is not theirs.node), len(loss.calls))


def _compared(event: Event, run: Interpreter) -> Found:
    """The rows that an operation compares with each other."""
    assert isinstance(event.node, ast.expr)
    return {
        node: Reduction(source, node, ROWS)
        for operand in operands(event.node)
        for source, node in _rows(operand, event, run)
    }


def _meeting(event: Event, run: Interpreter, named: bool = False) -> Found:
    """The rows, or the numbers of rows, of this rank that meet those of all ranks; rather by their names, if they have
    any: what is computed from them is then computed from those of all ranks."""
    assert isinstance(event.node, ast.expr)
    found: Found = {}
    for operand in operands(event.node):
        spread = run.values.get(operand, NOTHING).spread
        made = {each for each in {*ast.walk(operand), *roots(operand, run, set())} if isinstance(each, ast.expr)}
        if spread in (ROWS, COLUMNS) and not any(_is_filled(each) for each in made if _is_made(operand, each, run)):
            leaves = list(_unmixed(operand, event, run)) if named and not isinstance(operand, ast.Name) else []
            rows = leaves or _rows(operand, event, run)
            found |= {node: Reduction(source, node, ROWS) for source, node in rows}
        elif spread.is_local and spread is not CROSS:
            counting = [e for e in made if isinstance(e, ast.Name) and run.values.get(e, NOTHING).spread is COUNT]
            counts = [each for each in made if _counts(each, run)] or counting
            found |= {each: Reduction(run.sources[each], each, COUNT) for each in counts}
            inner = () if counts else _unmixed(operand, event, run)
            found |= {node: Reduction(source, node, ROWS) for source, node in inner}
    return found


def wanted_whole(run: Interpreter) -> set[ast.expr]:
    """What tensors are shaped by that meet the rows of all ranks."""
    return {
        each
        for event in run.of("met")
        if isinstance(event.node, ast.expr)
        for operand in operands(event.node)
        if run.values.get(operand, NOTHING).spread.is_local
        for each in (*ast.walk(operand), *roots(operand, run, set()))
        if isinstance(each, ast.expr)
    }


def _is_made(operand: ast.expr, made: ast.expr, run: Interpreter) -> bool:
    """Whether an operand is what an expression makes, by itself or under a name."""
    return made is operand or any(each is made for _, each in run.values.get(operand, NOTHING).made)


def _is_filled(node: ast.expr) -> bool:
    """`torch.zeros(len(x), 1)`: as many rows as there are samples, and nothing of them."""
    return isinstance(node, ast.Call) and last_name(node.func) in FILLED


def _counts(node: ast.expr, run: Interpreter) -> bool:
    """Whether it is here that a rank's rows are counted: `len(x)`, `x.shape[0]`."""
    parts = (each for each in ast.walk(node) if isinstance(each, ast.expr))
    counted = [each for each in parts if run.values.get(each, NOTHING).spread is COUNT]
    return counted == [node] and not isinstance(node, ast.Name)


def _rows(node: ast.expr, event: Event, run: Interpreter) -> Iterator[tuple[Source, ast.expr]]:
    """Where the rows of an operand are best gathered: in the statement that computes them, if nothing else reads them,
    or where they are read."""
    value = run.values.get(node, NOTHING)
    if value.spread is COLUMNS:  # `out.t()`
        for inner in [node.value] if isinstance(node, ast.Attribute) else operands(node):
            yield from _rows(inner, event, run)
        return
    if value.spread is not ROWS or value.things:
        return
    if listed := list(_listed(node, run)):
        for each in listed:
            yield run.sources[each], each
        return
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "unsqueeze":
        yield from _rows(node.func.value, event, run)
        return
    if isinstance(node, ast.Subscript) and any(getattr(each, "value", "") is None for each in operands(node)):
        yield from _rows(node.value, event, run)
        return
    if (held := _before_fold(node, run)) is not None:
        yield from _rows(held, event, run)
        return
    cuts = [_cut(each, run) for each in {*ast.walk(node), *roots(node, run, set())}]
    if any(cuts):
        for each in (each for each in cuts if each is not None):
            yield from ((run.sources[part], part) for part in _added(each, run))
        return
    apart = [n for n in ast.walk(node) if isinstance(n, ast.expr) and run.values.get(n, NOTHING).spread in (MEAN, SUM)]
    if apart and not isinstance(node, ast.Name):  # `each > each.mean()`
        for inner in (n for n in ast.walk(node) if isinstance(n, ast.Name) and n is not node):
            yield from _rows(inner, event, run)
        return
    if mixings(value):  # by a mean over the batch, which is that of all ranks if the model's outputs are theirs
        outputs = list(_outputs(node, run))
        yield from outputs or _unmixed(node, event, run)
        return
    given = event.calls[-1].given() if event.calls else {}
    if isinstance(node, ast.Name) and len(value.made) == 1:
        ((source, made),) = value.made
        statement = source.statement(made)
        home = event.source.function(node)
        if source is event.source and source.function(made) is home and isinstance(statement, ast.Assign):
            target = statement.targets[0]
            alone = statement.value is made and isinstance(target, ast.Name) and target.id == node.id
            reads = _reads(node, made, home or source.tree, run)
            within = _is_read_within(node, source, run)
            if alone and not within and all(_is_compared(read, source, run) for read in reads):
                yield source, _before_fold(made, run) or made
                return
        elif node.id in given and source.function(made) is not home and not _is_read_within(node, event.source, run):
            yield event.calls[-1].source, given[node.id]
            return
    yield event.source, node


def _is_read_within(node: ast.Name, source: Source, run: Interpreter) -> bool:
    """Whether a parameter is also read in what is gathered itself: `y` of `criterion(out, y)`, beside `y[picked]`."""
    reads = (n for n in ast.walk(source.home(node)) if isinstance(n, ast.Name) and n.id == node.id and n is not node)
    around = (each for read in reads for each in source.ancestors(read) if isinstance(each, ast.Call))
    return any(run.is_gathered(run.values.get(each, NOTHING)) for each in around)


def _listed(node: ast.expr, run: Interpreter) -> Iterator[ast.expr]:
    """The rows that make up the list, or the numbers in it, that something is: `y` of `labels.extend(y.tolist())`."""
    for each in dict.fromkeys((node, *upstream(node, run))):
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr == "tolist":
            held = run.values.get(each.func.value, NOTHING)
            if held.spread is ROWS and not held.things:
                yield each.func.value


def _before_fold(node: ast.expr, run: Interpreter) -> ast.expr | None:
    """`labels` of `labels.view(-1)`, where what it meets was gathered sample by sample."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not may_fold(node):
        return None
    held = run.values.get(node.func.value, NOTHING)
    handed_out = held.spread is ROWS and not (held.things or held.made or held.models)
    sample_by_sample = run.plan.gathered and not any(is_folded(each, run) for each in run.plan.gathered)
    return node.func.value if handed_out and sample_by_sample else None


def _cut(node: ast.AST, run: Interpreter) -> ast.expr | None:
    """The rows of which some are taken: of `out[:4]`, `out[labels > 0]`, `out.narrow(0, 0, 4)`. Those of all ranks are
    other ones than the first of each, and ranks pick different numbers."""
    if not isinstance(node, (ast.Subscript, ast.Call)) or node not in run.sources or _is_measured(node, run):
        return None
    placed = {each.node for each in run.values[node].origins if isinstance(each, Picked) and each.place}
    if isinstance(node, ast.Call):
        held = operands(node)[0] if operands(node) and placed & {*node.args} else None
    else:
        first = first_index(node)
        held = node.value if first in placed or _is_part(node, first, run) else None
    base = run.values.get(held, NOTHING) if held is not None else NOTHING
    return held if base.spread is ROWS and not base.things and not takes_first(base) else None


def _is_measured(node: ast.expr, run: Interpreter) -> bool:
    """`out[0].numel()`: how large it is, and nothing of what it is."""
    parent = run.sources[node].parents.get(node)
    return isinstance(parent, ast.Attribute) and parent.attr in SIZES | {"shape", "ndim", "dtype", "device"}


def _added(node: ast.expr, run: Interpreter) -> list[ast.expr]:
    """What is put to the rows that a name holds already: `out` of `queue = torch.cat((queue, out))[-size:]`."""
    statement = run.sources[node].statement(node)
    targets = [ast.unparse(each) for each in statement.targets] if isinstance(statement, ast.Assign) else []
    parts = operands(node) if isinstance(node, ast.Call) and last_name(node.func) in JOINING else []
    others = [each for each in parts if ast.unparse(each) not in targets]
    if len(others) in (0, len(parts)):
        return [node]
    return [each for each in others if run.values.get(each, NOTHING).spread is ROWS]


def _is_part(node: ast.Subscript, first: ast.expr, run: Interpreter) -> bool:
    """Whether an index names some of the rows, and no share of them."""
    bounds = [b for b in (first.lower, first.upper, first.step) if b] if isinstance(first, ast.Slice) else []
    given = run.values.get(node.slice, NOTHING)
    chosen = given.spread is ROWS and not given.things and not isinstance(node.slice, (ast.Slice, ast.Tuple))
    alone = not given.things and not isinstance(node.slice, (ast.Slice, ast.Tuple))
    ordered = alone and (given.spread is LOCAL or run.is_gathered(given))  # `out[order]`, by what all samples are
    told = [each for each in bounds if not (isinstance(each, ast.Constant) and each.value == 0)]
    held = run.values.get(node.value, NOTHING)
    field = not any(isinstance(made, ast.Call) for _, made in held.made)  # of a batch, no tuple of parts
    one = isinstance(first, ast.Constant) and isinstance(first.value, int) and not _is_batch(node.value, run)
    one = one and (field or run.gives_tensor(node.value, held))
    told_by_loop = isinstance(first, ast.Name) and any(
        isinstance(t, Index) for t in run.values.get(first, NOTHING).things
    )
    numbered = told_by_loop and not any(isinstance(each, Turn) for each in run.values.get(node, NOTHING).origins)
    return (
        chosen or ordered or one or numbered or any(run.values.get(each, NOTHING).spread is not COUNT for each in told)
    )


def _is_batch(node: ast.expr, run: Interpreter) -> bool:
    """Whether a name is what a loader hands out, of which a number gives a field: `for data in loader`."""
    if not isinstance(node, ast.Name):
        return False
    for loop in (
        each
        for each in run.sources[node].ancestors(node)
        if isinstance(each, (ast.For, ast.AsyncFor, ast.comprehension))
    ):
        over, target = loop.iter, loop.target
        while isinstance(over, ast.Call) and over.args and last_name(over.func) in ("enumerate", "tqdm"):
            counts = last_name(over.func) == "enumerate"
            target = target.elts[-1] if counts and isinstance(target, ast.Tuple) else target
            over = over.args[0]
        if isinstance(target, ast.Name) and target.id == node.id:
            return any(run.values.get(over, NOTHING).objects("loader"))
    return False


def _outputs(node: ast.expr, run: Interpreter) -> Iterator[tuple[Source, ast.expr]]:
    """The calls of models that rows are computed from."""
    for each in {*ast.walk(node), *roots(node, run, set())}:
        value = run.values.get(each, NOTHING) if isinstance(each, ast.Call) else NOTHING
        if isinstance(each, ast.Call) and value.spread is ROWS and value.models and not mixings(value):
            if not any(run.values.get(given, NOTHING).models for given in operands(each)):
                yield run.sources[each], each


def _unmixed(node: ast.expr, event: Event, run: Interpreter, depth: int = 8) -> Iterator[tuple[Source, ast.expr]]:
    """The rows that something is computed from, which no model gives: the `t` of `t - t.mean()` and `weights(t)`."""
    value = run.values.get(node, NOTHING)
    for source, made in value.made if isinstance(node, ast.Name) else [(event.source, node)]:
        for each in operands(made) if source is event.source and depth else ():
            found = run.values.get(each, NOTHING)
            if found.spread is ROWS and not mixings(found) and not isinstance(each, COMPUTED):
                yield from _rows(each, event, run)
            elif found.spread.is_local or isinstance(each, ast.Call):  # of an object that holds samples
                yield from _unmixed(each, event, run, depth - 1)


def _reads(node: ast.Name, made: ast.expr, home: ast.AST, run: Interpreter) -> Iterator[ast.Name]:
    """The other places that read what a name is bound to."""
    for each in ast.walk(home):
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load) and each.id == node.id and each is not node:
            if any(found is made for _, found in run.values.get(each, NOTHING).made):
                yield each


def _is_compared(read: ast.Name, source: Source, run: Interpreter) -> bool:
    """Whether a place that reads rows is part of a statement in which those of all ranks are wanted."""
    statement = source.statement(read)
    if any(
        run.is_gathered(run.values.get(each, NOTHING)) for each in ast.walk(statement) if isinstance(each, ast.expr)
    ):
        return True
    events = [event for kind in ("paired", "related", "met") for event in run.of(kind) if event.source is source]
    return any(source.statement(event.node) is statement for event in events)


def is_settled(event: Event, run: Interpreter) -> bool:
    """Whether a loss is a mean, a sum or the same on all ranks, and no sample's part depends on the others, or on its
    place among those of a rank."""
    if event.value.spread not in (MEAN, SUM, COUNT, SAME) or takes_first(event.value):
        return False
    if any(mixing.reason != PARTNERS for mixing in mixings(event.value)):
        return False
    return not any(each.node in _reached(event, run) for each in run.of("batch_statistic"))


def _reached(event: Event, run: Interpreter) -> set[ast.AST]:
    """What a loss is computed from."""
    if not isinstance(event.node, ast.Call):
        return set()
    receiver = [event.node.func.value] if isinstance(event.node.func, ast.Attribute) else []
    given = [*receiver, *event.node.args]
    return {each for node in given for found in (node, *roots(node, run, set())) for each in ast.walk(found)}
