"""Which expressions an event hands to the outside."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist import carried
from autodist.interpreter import Event, Interpreter, is_setting
from autodist.source import Source, all_of, walk
from autodist.spread import LOCAL, MEAN, SAME, SUM
from autodist.values import NOTHING, External, Index, Items, Object, Table, Value


def exposed(event: Event, run: Interpreter) -> Iterator[ast.expr]:
    """The expressions that an event hands to the outside."""
    node = event.node
    if event.kind in ("format", "test", "meets", "statistic", "scales_gradient", "answer"):
        assert isinstance(node, ast.expr)
        yield node
    elif event.kind == "trial_result":
        yield from _results(node)
    elif event.kind == "store" and isinstance(node, ast.Call):
        if _is_only_averaged(node, event, run):
            return
        # a list that outlives the step; samples and tensors in it are followed to where they are used
        for arg in node.args:
            yield from _numbers(arg, event.source, run)
    elif event.kind == "picks_data" and isinstance(node, ast.Call):  # of its own samples, a rank may make a data set
        parts = (*node.args, *(keyword.value for keyword in node.keywords))
        yield from (each for each in parts if _is_own_number(run.values.get(each, NOTHING)))
    elif event.kind == "handed_over" and isinstance(node, ast.Call):
        for given in (*node.args, *(keyword.value for keyword in node.keywords)):
            yield from given.elts if isinstance(given, (ast.Tuple, ast.List)) else (given,)
    elif event.kind in ("own_step", "loose_step") and isinstance(node, ast.AugAssign):
        yield node.value  # `p -= lr * p.grad / batch_size`: parameters change alike on all ranks
    elif event.kind == "tracker" and isinstance(node, ast.Subscript):
        statement = event.source.statement(node)
        if isinstance(statement, ast.Assign):
            yield statement.value
    elif event.kind == "set_item":
        statement = event.source.statement(node)
        if isinstance(statement, ast.Assign) and is_setting(node):
            yield statement.value
        elif isinstance(statement, ast.Assign) and not _is_counted_up(event):
            yield from _numbers(statement.value, event.source, run)
    elif isinstance(node, ast.Call):
        if event.kind == "write" and isinstance(node.func, ast.Attribute):
            yield node.func.value  # `pd.DataFrame(records).to_csv(path)`
        if event.kind == "discarded" and not _is_foreign(node, run):
            if _plots(node, run):
                yield from (arg for arg in node.args if run.values.get(arg, NOTHING).spread.is_reducible)
            elif _plots(node, run, PICTURES):
                yield from node.args
            return
        yield from node.args
        yield from (keyword.value for keyword in node.keywords)


def _results(node: ast.AST) -> Iterator[ast.expr]:
    """Each number of what a trial returns: `return loss, accuracy`, `return {"loss": loss}`"""
    match node:
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Dict(values=parts):
            yield from parts
        case ast.expr():
            yield node


def _is_own_number(value: Value) -> bool:
    """Whether something is computed from a rank's samples, and is none of these."""
    if value.spread in (LOCAL, MEAN, SUM):
        return True
    inside = [each for t in value.things if isinstance(t, Items) for each in (*t.parts, t.element)]
    return any(each.spread in (LOCAL, MEAN, SUM) for each in inside)


def _is_counted_up(event: Event) -> bool:
    """Whether an item that is set is one that later steps add to: it is made global where it is used."""
    if carried.counted_up(event.source.statement(event.node)) is not None:
        return True
    item = ast.unparse(event.node)
    changes = [each for t in event.detail.things if isinstance(t, (Items, Table)) for each in t.changes]
    found = (carried.counted_up(source.statement(change)) for source, change in changes)
    return any(each is not None and ast.unparse(each[0]) == item for each in found)


def _is_plain(value: Value) -> bool:
    """A number or a text, such as that of the epoch."""
    return all(isinstance(thing, Index) for thing in value.things)


def _numbers(node: ast.expr, source: Source, run: Interpreter) -> Iterator[ast.expr]:
    """The numbers of this rank's samples in what is kept, if it consists of numbers."""
    row = list(_row(node, source, run))
    values = [run.values.get(each, NOTHING) for each in row]
    if all(value.spread.is_reducible or value.spread is SAME and _is_plain(value) for value in values):
        numbers = (each for each, value in zip(row, values, strict=True) if value.spread.is_reducible)
        yield from (each for each in numbers if not _is_tensor(each, run))


def _row(node: ast.expr, source: Source, run: Interpreter, depth: int = 3) -> Iterator[ast.expr]:
    """The numbers of `[epoch, loss.item()]`, of `{"loss": loss.item()}` or `Record(loss.item())`, also by a name, or of
    one that stands alone."""
    things = run.values.get(node, NOTHING).things
    thing = next(iter(things)) if len(things) == 1 and depth else None
    parts: list[ast.expr] | None = None
    if isinstance(node, (ast.List, ast.Tuple)):
        parts = node.elts
    elif isinstance(node, ast.Dict):
        parts = node.values
    elif isinstance(thing, Object) and thing.cls is not None and thing.node is node:
        parts = [*thing.node.args, *(keyword.value for keyword in thing.node.keywords)]
    elif isinstance(thing, (Items, Table)) and thing.stores and not thing.changes:
        parts = [stored for where, stored in thing.stores if where is source]
    if parts is None:
        yield _unrounded(node)
    for part in parts or ():
        yield from _row(part, source, run, depth - 1 if depth else 0)


def _unrounded(node: ast.expr) -> ast.expr:
    """What is rounded in `round(loss, 4)`."""
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "round" and node.args:
        return node.args[0]
    return node


def _is_only_averaged(call: ast.Call, event: Event, run: Interpreter) -> bool:
    """Whether all that becomes of a list of numbers is their mean or sum, which can be made global once instead."""
    if not isinstance(call.func, ast.Attribute) or not isinstance(call.func.value, ast.Name):
        return False
    source, name = event.source, call.func.value.id
    scope = source.function(call)
    names = [node for node in walk(scope or source.tree) if isinstance(node, ast.Name) and node.id == name]
    outer = {each for n in walk(scope or source.tree) if isinstance(n, (ast.Global, ast.Nonlocal)) for each in n.names}
    if name in outer or not any(isinstance(node.ctx, ast.Store) for node in names):
        return False  # a list that others see, too
    uses = [node for node in names if isinstance(node.ctx, ast.Load)]
    lists = [use for use in uses if _is_list(use, run)]
    ends = [_averages(use, source) or _averaged_outside(use, source, run) for use in lists if not _grows(use, source)]
    return bool(ends) and all(ends)


def _is_list(use: ast.expr, run: Interpreter) -> bool:
    return any(isinstance(thing, Items) for thing in run.values.get(use, NOTHING).things)


def _averaged_outside(use: ast.expr, source: Source, run: Interpreter) -> bool:
    """Whether a list is returned, alone or beside others, to callers that all take its mean or sum, and no more."""
    parent, position = source.parents[use], None
    if isinstance(parent, ast.Tuple):
        position, parent = parent.elts.index(use), source.parents[parent]
    function = source.function(use)
    calls = run.callers.get(function, {}) if isinstance(parent, ast.Return) and function is not None else {}
    return bool(calls) and all(_averages_result(call, where, position, run) for call, where in calls.items())


def _averages_result(call: ast.Call, source: Source, position: int | None, run: Interpreter) -> bool:
    """Whether a list that a call returns is averaged there: `np.mean(train(model))`, or under the name it is given."""
    statement = source.parents[call]
    if position is None and _averages(call, source):
        return True
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return False
    target: ast.expr = statement.targets[0]
    if position is not None:
        if not isinstance(target, ast.Tuple) or any(isinstance(each, ast.Starred) for each in target.elts):
            return False
        target = target.elts[position]
    home = source.function(call) or source.tree
    if not isinstance(target, ast.Name) or any(
        isinstance(node, (ast.Global, ast.Nonlocal)) and target.id in node.names for node in walk(home)
    ):
        return False
    named = [node for node in all_of(home, ast.Name) if node.id == target.id]
    own = source.function(call)
    hidden = {source.function(node) for node in named if isinstance(node.ctx, ast.Store)} - {own}  # names of their own
    uses = [node for node in named if source.function(node) not in hidden and isinstance(node.ctx, ast.Load)]
    return all(_averages(use, source) for use in uses if _is_list(use, run))


def _grows(use: ast.Name, source: Source) -> bool:
    """`losses.append`"""
    parent = source.parents[use]
    return isinstance(parent, ast.Attribute) and parent.attr in ("append", "clear")


def _averages(use: ast.expr, source: Source) -> bool:
    """`np.mean(losses)`, `sum(losses[-10:])`, `len(losses)`"""
    parent = source.parents[use]
    while isinstance(parent, ast.Subscript) and parent.value is use and isinstance(parent.slice, ast.Slice):
        use, parent = parent, source.parents[parent]
    if not isinstance(parent, ast.Call) or use not in parent.args:
        return False
    name = parent.func.attr if isinstance(parent.func, ast.Attribute) else getattr(parent.func, "id", "")
    return name in ("average", "fmean", "len", "mean", "sum")


def _is_tensor(node: ast.expr, run: Interpreter) -> bool:
    """Whether a value is still a tensor: it is part of a computation, not a report of it."""
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name not in ("item", "numpy", "tolist", "float", "int", "round", "sum", "mean", "average", "fmean"):
            return True
    return bool(run.values.get(node, NOTHING).models)


PLOTS = frozenset("plot semilogy semilogx loglog bar barh step scatter errorbar fill_between".split())
PICTURES = frozenset("imshow matshow title set_title suptitle text annotate hist set_xlabel set_ylabel".split())


def _plots(node: ast.Call, run: Interpreter, names: frozenset[str] = PLOTS) -> bool:
    """`plt.plot(losses)`, `axis.plot(losses)`: a curve that somebody looks at, or what else ``names`` draw."""
    if not isinstance(node.func, ast.Attribute) or node.func.attr not in names:
        return False
    owners = run.values.get(node.func.value, NOTHING).things
    return not any(isinstance(t, Object) and t.cls is not None for t in owners)


def _is_foreign(node: ast.Call, run: Interpreter) -> bool:
    """Whether a call whose result nobody wants goes to an object or code that nothing is known of: it keeps values."""
    if is_unseen(node, run):
        return True
    if not isinstance(node.func, ast.Attribute):
        return False
    name, things = node.func.attr, run.values.get(node.func.value, NOTHING).things
    unknown = (isinstance(t, Object) and (t.cls is None and not t.roles or t.looks_up(name)) for t in things)
    return bool(things) and all(unknown)


def is_unseen(node: ast.AST, run: Interpreter) -> bool:
    """Whether a call goes to a function whose code is not at hand."""
    things = run.values.get(node.func, NOTHING).things if isinstance(node, ast.Call) else frozenset()
    return bool(things) and all(isinstance(t, External) and not run.catalog.knows(t.name) for t in things)
