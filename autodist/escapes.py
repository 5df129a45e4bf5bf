"""Where values that differ by rank reach the outside: printed, logged, saved, or decided upon.

Each is traced back to the smallest expression whose global value follows from the ranks' values.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from autodist import carried, rowwise, tensors
from autodist.interpreter import Event, Interpreter, Loop
from autodist.picking import picks, takes_first
from autodist.regions import exclusive, stands_in
from autodist.script import Site
from autodist.source import Source, last_name
from autodist.spread import COUNT, LOCAL, MEAN, ROWS, SAME, SUM, Spread
from autodist.values import (
    NOTHING,
    UNKNOWN,
    External,
    Function,
    Index,
    Items,
    Object,
    Stream,
    Table,
    Value,
    Wrapped,
    drawn_from,
)

SINKS = frozenset(
    "format print log tracker schedule test save write file_method step discarded store set_item meets "
    "statistic".split()
)


@dataclass(frozen=True)
class Escape:
    """An expression to make global, or (``spread`` is not reducible) one that cannot be."""

    source: Source
    node: ast.expr
    spread: Spread
    event: Event


def escapes(run: Interpreter, guards: list[Site]) -> list[Escape]:
    """Every escape of a run, each expression once, in the order of execution.

    What a guarded statement calls runs on rank 0 alone and cannot communicate: what it is given escapes instead.
    """
    found: dict[ast.expr, Escape] = {}
    guarded = frozenset(site.node for site in guards)
    inside: dict[ast.AST, bool] = {}

    def is_guarded(source: Source, node: ast.AST) -> bool:
        if node not in inside:
            inside[node] = stands_in(source, node, guarded)
        return inside[node]

    stored = {node: event for event in run.of("set_item") for node in _stored_by_sample(event, run)}
    by_sample = frozenset(event.source.statement(event.node) for event in stored.values())
    kept = [escape for event in run.of("state") for escape in _handed_on(event, run, by_sample)]
    stuck = {id(each.event.function) for each in kept if not each.spread.is_reducible and each.spread is not ROWS}
    for escape in kept:  # what is kept together is gathered together
        if not escape.spread.is_reducible or id(escape.event.function) not in stuck:
            found.setdefault(escape.node, escape)
    graphs = {event.node for event in run.of("export")}  # what runs through a model for its graph is an example
    for event in run.events:
        if event.kind not in SINKS and event.kind != "discarded" or event.node in graphs:
            continue
        if event.inside_forward:
            if event.kind in ("print", "format"):
                found.update((each.node, each) for each in _reported_inside(event, run) if each.node not in found)
            continue
        if event.kind == "test" and _is_about_one_row(event, run):
            continue
        if any(call.node is not None and is_guarded(call.source, call.node) for call in event.calls):
            continue
        if isinstance(event.node, ast.Call) and is_guarded(event.source, event.node):
            for node in (*event.node.args, *(keyword.value for keyword in event.node.keywords)):
                for escape in _resolve(node, event.source, event, run, set()):
                    found.setdefault(escape.node, escape)
        for node in _exposed(event, run):
            for escape in _resolve(node, event.source, event, run, set()):
                if event.kind == "test" and escape.spread is ROWS and _is_tested(escape.node, event):
                    escape = replace(escape, spread=LOCAL)  # one row after the other: only of one is it true or false
                found.setdefault(escape.node, escape)
    others = [e for n, e in found.items() if stored.keys().isdisjoint((n, *e.source.ancestors(n)))]
    others = list(_counted_elsewhere(others, run))
    return [*others, *(Escape(event.source, node, ROWS, event) for node, event in stored.items())]


def _reported_inside(event: Event, run: Interpreter) -> Iterator[Escape]:
    """The sums and means that a forward pass prints, of a loss for instance. Nothing that gradients flow through, which
    would be reduced for what is computed from it as well."""
    for node in _exposed(event, run):
        for escape in _resolve(node, event.source, event, run, set()):
            numbers = isinstance(escape.node, ast.Call) and last_name(escape.node.func) in ("item", "float")
            if escape.spread in (MEAN, SUM) and (numbers or not run.values.get(escape.node, NOTHING).models):
                yield escape


def _is_about_one_row(event: Event, run: Interpreter) -> bool:
    """Whether a function decides that is called for one row of this rank's after the other, or what is counted of such
    a row: each rank for its own."""
    for loop in event.loops:
        over = loop.node.iter if not isinstance(loop.node, ast.While) else None
        if over is not None and loop.function is not event.function and run.values.get(over, NOTHING).spread is ROWS:
            return True
    branch = event.source.parents.get(event.node)
    return any(loop.by_row for loop in event.loops) and isinstance(branch, ast.If) and _only_counts(branch)


def _only_counts(branch: ast.If) -> bool:
    """`if guess == label: correct += 1`"""
    inside = (*branch.body, *branch.orelse)
    plain = (ast.AugAssign, ast.Pass, ast.Continue)
    return all(isinstance(each, plain) or isinstance(each, ast.If) and _only_counts(each) for each in inside)


def _counted_elsewhere(found: list[Escape], run: Interpreter) -> Iterator[Escape]:
    """The escapes, where a function of the project counts rows that it is given in a way that no reduction follows:
    what it is given is gathered instead, where it is called."""
    given: dict[ast.AST | None, list[Escape]] = {}
    for escape in found:
        home = escape.source.function(escape.node)
        if escape.spread is LOCAL and home is not None and home not in given:
            around: set[ast.AST] = set()
            rows = _rows_given(home, replace(escape.event, kind="format"), run, around)
            given.update(dict.fromkeys(around if rows else [home], rows or []))
    yield from {each.node: each for rows in given.values() for each in rows}.values()
    yield from (each for each in found if not given.get(each.source.function(each.node)))


def _rows_given(function: ast.AST, event: Event, run: Interpreter, around: set[ast.AST]) -> list[Escape] | None:
    """The rows that a function is given at all of its calls, or those that its callers are given (which are put into
    ``around``, too); None where more than rows of this rank's samples reaches it."""
    calls = run.callers.get(function, {})
    if function in around or not calls or not isinstance(function, ast.FunctionDef) or _learns_from_it(function, run):
        return None
    around.add(function)
    found: list[Escape] = []
    for call, source in calls.items():
        rows: list[Escape] | None = []
        outer = source.function(call)
        for arg in (*call.args, *(keyword.value for keyword in call.keywords)):
            value = run.values.get(arg, NOTHING)
            if value.spread.is_local or run.holds_local(value):
                parameter = (
                    isinstance(arg, ast.Name) and isinstance(outer, ast.FunctionDef) and _is_handed_on(arg, outer)
                )
                more = [] if parameter else list(_resolve(arg, source, event, run, set()))
                fits = more and all(each.spread is ROWS and not _is_whole_in_part(each, run) for each in more)
                rows = [*rows, *more] if fits and rows is not None else None
        if rows is None and outer is not None and outer not in around:
            rows = _rows_given(outer, event, run, around)
        if rows is None and outer not in around:
            return None
        found += rows or []
    return found


def _learns_from_it(function: ast.FunctionDef, run: Interpreter) -> bool:
    """Whether a function runs a model, or losses are computed from what it computes."""
    runs = any(run.values.get(node, NOTHING).models for node in ast.walk(function) if isinstance(node, ast.Call))
    return function.name == "forward" or runs or not learnt_from(run).isdisjoint(ast.walk(function))


def _is_handed_on(node: ast.Name, function: ast.FunctionDef) -> bool:
    """Whether a name is a parameter that keeps its value."""
    spec = function.args
    given = any(each.arg == node.id for each in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs))
    names = (each for each in ast.walk(function) if isinstance(each, ast.Name) and each.id == node.id)
    return given and all(isinstance(each.ctx, ast.Load) for each in names)


def _is_whole_in_part(escape: Escape, run: Interpreter) -> bool:
    """Whether rows also come from a loader of which every rank reads all samples."""
    loaders = [o for o in run.values.get(escape.node, NOTHING).origins if isinstance(o, Object) and "loader" in o.roles]
    return any(not run.shares_out(loader) for loader in loaders)


def _is_tested(node: ast.expr, event: Event) -> bool:
    """Whether a branch is decided by a value itself or by comparing it: `label in seen`, `guess == label`."""
    between = itertools.takewhile(lambda each: each is not event.node, (node, *event.source.ancestors(node)))
    return all(isinstance(each, (ast.Compare, ast.BoolOp, ast.UnaryOp)) or each is node for each in between)


def _exposed(event: Event, run: Interpreter) -> Iterator[ast.expr]:
    """The expressions that an event hands to the outside."""
    node = event.node
    if event.kind in ("format", "test", "meets", "statistic"):
        assert isinstance(node, ast.expr)
        yield node
    elif event.kind == "store" and isinstance(node, ast.Call):
        if _is_only_averaged(node, event, run):
            return
        # a list that outlives the step; samples and tensors in it are followed to where they are used
        for arg in node.args:
            yield from _numbers(arg, event.source, run)
    elif event.kind == "tracker" and isinstance(node, ast.Subscript):
        statement = event.source.statement(node)
        if isinstance(statement, ast.Assign):
            yield statement.value
    elif event.kind == "set_item":
        statement = event.source.statement(node)
        if isinstance(statement, ast.Assign) and not _is_counted_up(event):
            yield from _numbers(statement.value, event.source, run)
    elif isinstance(node, ast.Call):
        if event.kind == "write" and isinstance(node.func, ast.Attribute):
            yield node.func.value  # `pd.DataFrame(records).to_csv(path)`
        if event.kind == "discarded" and not _is_foreign(node, run):
            if _plots(node, run):
                yield from (arg for arg in node.args if run.values.get(arg, NOTHING).spread.is_reducible)
            return
        yield from node.args
        yield from (keyword.value for keyword in node.keywords)


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


def _stored_by_sample(event: Event, run: Interpreter) -> list[ast.expr]:
    """The numbers of the samples and their values in `bank[index] = features.detach()`: all ranks keep those of all."""
    statement = event.source.statement(event.node)
    if event.kind != "set_item" or not isinstance(event.node, ast.Subscript) or not isinstance(statement, ast.Assign):
        return []
    parts = [event.node.slice, statement.value]
    values = [run.values.get(part, NOTHING) for part in parts]
    if statement.targets != [event.node] or not isinstance(event.node.slice, (ast.Name, ast.Attribute, ast.Call)):
        return []
    if event.detail.spread.is_local and event.detail.spread is not LOCAL or event.detail.things:
        return []  # part of a rank's own samples
    if _is_made_each_time(event, run):
        return []
    given = run.plan.reduced
    rows = all(
        v.spread is ROWS and not v.models and not v.things or p in given for p, v in zip(parts, values, strict=True)
    )
    return [part for part in parts if part not in given] if rows else []


def _is_made_each_time(event: Event, run: Interpreter) -> bool:
    """Whether what is written to is made by the function that writes it, in a step: `t = torch.zeros(4)`."""
    base = event.node.value if isinstance(event.node, ast.Subscript) else None
    home = event.source.function(event.node)
    if not isinstance(base, ast.Name) or home is None:
        return False
    inside = set(ast.walk(home))
    bound = any(isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store) and n.id == base.id for n in inside)
    return bound and inside.isdisjoint(run.step_loops)


def _handed_on(event: Event, run: Interpreter, by_sample: frozenset[ast.stmt]) -> Iterator[Escape]:
    """What ranks must agree on before a step keeps it for the next ones: sums and means over the samples, or their
    rows, which are gathered where a function is given them, so that it counts those of all ranks."""
    node, source, (target, is_buffer) = event.node, event.source, event.detail.const
    assert isinstance(node, ast.expr)
    used = is_buffer or any(_is_same(each, target) and not _is_called(each, run) for each in _fed_to_losses(run))
    if not used:
        return  # a report
    if isinstance(target, ast.Name) and not is_buffer and not any(_learns(loop, run) for loop in event.loops[-1:]):
        return  # from layer to layer
    if source.statement(node) in by_sample:
        return
    if event.value.models:
        yield Escape(source, node, LOCAL, event)
        return
    if placed := _placed_by_sample(node, source, run):
        yield from (Escape(source, each, ROWS, event) for each in placed)
        return
    for escape in _resolve(node, source, event, run, set()):
        if ast.unparse(escape.node) == ast.unparse(target):
            continue  # what it was before
        if run.values.get(escape.node, NOTHING).spread not in (ROWS, Spread.COLUMNS):
            yield escape
        else:
            yield _given_rows(escape, event, run) or replace(escape, spread=LOCAL)


def _learns(loop: Loop, run: Interpreter) -> bool:
    """Whether a loop has training steps in it."""
    return any(loop.node is each.node for event in run.of("backward") for each in event.loops)


def _given_rows(escape: Escape, event: Event, run: Interpreter) -> Escape | None:
    """Rows that a function is given to keep them, where it is called."""
    if not isinstance(escape.node, ast.Name) or not event.calls:
        return None
    call, function = event.calls[-1], event.calls[-1].function.node
    if (
        call.node is None
        or isinstance(function, ast.Lambda)
        or function.name == "forward"
        or call.source is not escape.source
    ):
        return None
    names = [each for each in ast.walk(function) if isinstance(each, ast.Name) and each.id == escape.node.id]
    answers = any(isinstance(each, ast.Return) and each.value is not None for each in ast.walk(function))
    if answers and any(each in learnt_from(run) for each in names):
        return None
    bound = [each for each in names if isinstance(each.ctx, ast.Store)]
    statement = escape.source.statement(bound[0]) if bound else None
    if isinstance(statement, ast.Assign) and len(bound) == 1 and statement.targets == bound:
        found: ast.expr | None = statement.value  # `keys = keys.detach()`
    else:
        found = event.calls[-1].given().get(escape.node.id) if not bound else None
    value = run.values.get(found, NOTHING) if found is not None else NOTHING
    if found is None or value.spread is not ROWS or bound and value.models:
        return None
    return Escape(call.source if not bound else escape.source, found, ROWS, event)


def _placed_by_sample(node: ast.expr, source: Source, run: Interpreter) -> list[ast.expr]:
    """The rows and their numbers in `bank.index_copy_(0, numbers, rows)`."""
    call = source.parents[node]
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr not in BY_NUMBER:
        return []
    local = [each for each in call.args if run.values.get(each, NOTHING).spread.is_local]
    values = [run.values[each] for each in local]
    rows = all(value.spread is ROWS and not value.things and not value.models for value in values)
    return local if rows and len(call.args) > 2 and call.args[1] in (*local, *run.plan.reduced) else []


BY_NUMBER = frozenset("index_copy_ index_add_ index_put_".split())


def _is_same(node: ast.expr, target: ast.expr) -> bool:
    """Whether a name or attribute is read that may be the target."""
    if isinstance(node, ast.Name) and isinstance(target, ast.Name):
        return node.id == target.id
    return isinstance(node, ast.Attribute) and isinstance(target, ast.Attribute) and node.attr == target.attr


def _is_called(node: ast.expr, run: Interpreter) -> bool:
    """Whether it is a method that is called, `x.sum()`."""
    parent = run.sources[node].parents.get(node) if node in run.sources else None
    return isinstance(parent, ast.Call) and parent.func is node


def _is_only_averaged(call: ast.Call, event: Event, run: Interpreter) -> bool:
    """Whether all that becomes of a list of numbers is their mean or sum, which can be made global once instead."""
    if not isinstance(call.func, ast.Attribute) or not isinstance(call.func.value, ast.Name):
        return False
    source, name = event.source, call.func.value.id
    scope = source.function(call)
    names = [node for node in ast.walk(scope or source.tree) if isinstance(node, ast.Name) and node.id == name]
    outer = {
        each for n in ast.walk(scope or source.tree) if isinstance(n, (ast.Global, ast.Nonlocal)) for each in n.names
    }
    if name in outer or not any(isinstance(node.ctx, ast.Store) for node in names):
        return False  # a list that others see, too
    uses = [node for node in names if isinstance(node.ctx, ast.Load)]
    lists = [use for use in uses if any(isinstance(t, Items) for t in run.values.get(use, NOTHING).things)]
    ends = [_averages(use, source) for use in lists if not _grows(use, source)]
    return bool(ends) and all(ends)


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


def _plots(node: ast.Call, run: Interpreter) -> bool:
    """`plt.plot(losses)`, `axis.plot(losses)`: a curve that somebody looks at."""
    if not isinstance(node.func, ast.Attribute) or node.func.attr not in PLOTS:
        return False
    owners = run.values.get(node.func.value, NOTHING).things
    return not any(isinstance(t, Object) and t.cls is not None for t in owners)


def _is_foreign(node: ast.Call, run: Interpreter) -> bool:
    """Whether a call whose result nobody wants goes to an object or code that nothing is known of: it keeps values."""
    if _is_unseen(node, run):
        return True
    if not isinstance(node.func, ast.Attribute):
        return False
    name, things = node.func.attr, run.values.get(node.func.value, NOTHING).things
    unknown = (isinstance(t, Object) and (t.cls is None and not t.roles or t.looks_up(name)) for t in things)
    return bool(things) and all(unknown)


def _is_unseen(node: ast.AST, run: Interpreter) -> bool:
    """Whether a call goes to a function whose code is not at hand."""
    things = run.values.get(node.func, NOTHING).things if isinstance(node, ast.Call) else frozenset()
    return bool(things) and all(isinstance(t, External) and not run.catalog.knows(t.name) for t in things)


def _resolve(node: ast.expr, source: Source, event: Event, run: Interpreter, seen: set[ast.AST]) -> Iterator[Escape]:
    if node in seen or node in run.plan.reduced or node in run.plan.divided:
        return
    seen.add(node)
    value = run.values.get(node, NOTHING)
    if isinstance(node, (ast.Starred, ast.FormattedValue)):
        yield from _resolve(node.value, source, event, run, seen)
        return
    if isinstance(node, ast.JoinedStr):
        for part in node.values:
            yield from _resolve(part, source, event, run, seen)
        return
    if isinstance(node, (ast.Tuple, ast.List, ast.Set, ast.Dict)):
        for part in node.values if isinstance(node, ast.Dict) else node.elts:
            yield from _resolve(part, source, event, run, seen)
        yield from _contained(value, source, event, run, seen)  # what has been put into it since
        return
    if isinstance(node, ast.IfExp) and value.spread.is_local:
        yield from _resolve(node.body, source, event, run, seen)
        yield from _resolve(node.orelse, source, event, run, seen)
        return
    if value.spread in (SUM, COUNT, LOCAL) and event.kind != "test":
        put_in = [e for name in _mixed_names(node, source, run) for e in _put_in(name, source, event, run, seen)]
        if put_in:
            yield from put_in
            return
    origins = _origins_of(node, value, source, run)
    if origins:
        for where, made in origins:
            yield from _resolve(made, where, event, run, seen)
        return
    few = picks(value) is not None  # gathered before they are picked
    if few and value.spread.is_reducible and any(made in learnt_from(run) for _, made in value.made):
        few = False  # a loss, which is warned of
    if value.spread.is_reducible and not few:
        yield from _narrowed(node, source, event, run, seen, value)
        return
    if few and value.spread is MEAN and _is_mean_of_picked(node, value, run):
        yield Escape(source, node, Spread.FEWER, event)
        return
    if value.spread is LOCAL and not few and (spread := _extreme(node, event, run)) is not None:
        yield Escape(source, node, spread, event)
        return
    if value.spread is ROWS and not few and _rowwise(node, run, set()):
        place, tensor = _tensor_behind(node, source, run) or (source, node)
        if tensor in learnt_from(run) and not (tensor is node and _is_cut(node, source)):
            yield Escape(source, node, LOCAL, event)  # gathered, every rank would train on all samples
        elif tensor not in run.plan.reduced:
            yield Escape(place, tensor, ROWS, event)
        return
    if value.spread.is_local:
        own = _asked(node, value, run)  # its method knows more of what it holds
        inner = [e for part in _parts(node) if part is not own for e in _resolve(part, source, event, run, seen)]
        if not inner:
            inner = [
                e
                for where, made in sorted_sites(value)
                if made is not node and not _in_forward(where, made) and _may_be_reduced(made, value, event, run)
                for e in _resolve(made, where, event, run, seen)
            ]
        if not inner and own is not None:
            inner = list(_resolve(own, source, event, run, seen))
        rows = [e for e in inner if e.spread is ROWS]
        if rows and (any(e.spread is LOCAL for e in inner) or any(_is_wanted(e, source.statement(node)) for e in rows)):
            yield Escape(source, node, LOCAL, event)  # rows of all ranks do not go with those of one
        elif inner:
            yield from inner
        elif isinstance(node, ast.Name) and value.made and all(made in seen for _, made in value.made):
            return  # made of itself, and of what has been looked at
        elif few and event.kind == "set_item" and _was_before(node, ast.unparse(event.node), run):
            return
        elif not isinstance(node, ast.Call) or event.kind != "test":
            whole = value.spread is ROWS and not _rowwise(node, run, set())  # a batch of several fields, one picture
            yield Escape(source, node, Spread.LOCAL if whole or few else value.spread, event)
    if isinstance(node, ast.Call) and any(isinstance(t, Stream) and t.element.spread.is_local for t in value.things):
        for part in _parts(node):  # `map(str, losses)`
            yield from _resolve(part, source, event, run, seen)
    together = _together(value, run) if event.kind != "test" else SAME
    if together.is_local and isinstance(node, (ast.Name, ast.Attribute, ast.Subscript, ast.Call)):
        yield from _counted(node, together, source, event, run, seen)
    else:
        yield from _contained(value, source, event, run, seen)


def _may_be_reduced(made: ast.expr, value: Value, event: Event, run: Interpreter) -> bool:
    """Whether what made a reported value may be reduced, for the report alone or where no gradient flows through it."""
    if event.kind == "statistic" and not run.values.get(made, NOTHING).models or _is_free(made, run):
        return True
    mean = picks(value) is not None and value.spread is MEAN
    return made not in _fed_to_losses(run) and (mean or _extreme(made, event, run) is not None)


def _is_mean_of_picked(node: ast.expr, value: Value, run: Interpreter) -> bool:
    """Whether a mean is over the numbers that a condition picks, and no loss: `errors[mask].mean()`."""
    over = tensors.averaged(node)
    picked = run.values.get(over, NOTHING) if over is not None else NOTHING
    if over is None or picked.spread not in (ROWS, Spread.COLUMNS) or picked.things:
        return False
    condition = picks(value)
    if condition is None or takes_first(value) or node in _fed_to_losses(run):
        return False
    here = [each for each in rowwise.mixings(picked) if not _is_of_model(each.source, each.node, run)]
    if here or rowwise.mixings(run.values.get(condition.node, NOTHING)):
        return False
    return not any(_is_unseen(each, run) for each in {*ast.walk(over), *roots(over, run, set())})


def _is_of_model(source: Source, node: ast.AST, run: Interpreter, depth: int = 8) -> bool:
    """Whether an expression is computed in a forward pass alone, of which training is warned and no report need be."""
    home = source.function(node)
    if home is None or home.name == "forward" or not depth:
        return home is not None and home.name == "forward"
    calls = run.callers.get(home, {})
    return bool(calls) and all(_is_of_model(where, call, run, depth - 1) for call, where in calls.items())


def _extreme(node: ast.expr, event: Event, run: Interpreter) -> Spread | None:
    """Whether it is the largest or the smallest number in a tensor of this rank's samples, through which no gradient
    flows."""
    found = tensors.extreme(node)
    value = run.values.get(found[1], NOTHING) if found is not None else NOTHING
    if found is None or value.spread not in (ROWS, Spread.COLUMNS) or value.things or rowwise.mixings(value):
        return None
    if event.kind == "statistic" and not value.models:
        return found[0]
    return found[0] if node not in _fed_to_losses(run) and _rowwise(found[1], run, set()) else None


def _asked(node: ast.expr, value: Value, run: Interpreter) -> ast.expr | None:
    """The object of the script that a method is called of, where it is known what that computes: `meter.average()`."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not value.made:
        return None
    owners = run.values.get(node.func.value, NOTHING).things
    entered = any(isinstance(t, Object) and t.cls is not None and t.cls.find(node.func.attr) for t in owners)
    return node.func.value if entered else None


def _together(value: Value, run: Interpreter) -> Spread:
    """What the items of a container have in common that are counted up, `sums[k] += loss`: their spread, LOCAL if it
    depends on the item, SAME if it has none such."""
    counted = [t for t in value.things if isinstance(t, (Items, Table)) and t.changes]
    held = [each for thing in counted for each in _items(thing)]
    spreads = {each.spread for each in held}
    if not any(spread.is_local for spread in spreads):
        return SAME
    if any(each.const is not UNKNOWN or each.things for each in held):
        return LOCAL  # a text, or a number that is no sum
    return MEAN if spreads <= {MEAN, SAME} else SUM if spreads <= {SUM, COUNT} else LOCAL


def _items(thing: Items | Table) -> list[Value]:
    """What the items of a container are, without the zeros that sums start from."""
    known = thing.parts if isinstance(thing, Items) else list(thing.entries.values())
    return [each for each in (*known, thing.element) if each is not NOTHING and each.const != 0]


def _counted(
    node: ast.expr, spread: Spread, source: Source, event: Event, run: Interpreter, seen: set[ast.AST]
) -> Iterator[Escape]:
    """A container whose items are counted up: itself, if they can be made global alike, or else what goes into it."""
    if spread.is_reducible:
        yield Escape(source, node, spread, event)
        return
    things = [t for t in run.values.get(node, NOTHING).things if isinstance(t, (Items, Table))]
    given = [site for thing in things for site in (*thing.stores, *thing.changes)]
    inner = [escape for where, each in given for escape in _resolve(each, where, event, run, seen)]
    yield from inner or [Escape(source, node, LOCAL, event)]


def _is_wanted(rows: Escape, user: ast.stmt) -> bool:
    """Whether a rank goes on computing with its own rows after they were bound to a name, where they would be
    gathered for another statement: `target = Variable(target)`."""
    source = rows.source
    statement = source.statement(rows.node)
    if not isinstance(statement, ast.Assign) or statement is user:
        return False
    names = {n.id for target in statement.targets for n in ast.walk(target) if isinstance(n, ast.Name)}
    home = source.home(statement)
    loads = [n for n in ast.walk(home) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and n.id in names]
    return len([n for n in loads if source.statement(n) is not statement]) > 1


def _was_before(node: ast.expr, target: str, run: Interpreter) -> bool:
    """Whether all that is local in an expression is what its target was before: `0.9 * centres[c]`."""
    if ast.unparse(node) == target:
        return True
    local = [part for part in _parts(node) if run.values.get(part, NOTHING).spread.is_local]
    return bool(local) and all(_was_before(part, target, run) for part in local)


def _tensor_behind(node: ast.expr, source: Source, run: Interpreter) -> tuple[Source, ast.expr] | None:
    """The tensor that an array or a list was made of: `scores` of `guess`, after `guess = scores.cpu().numpy()`."""
    value = run.values.get(node, NOTHING)
    if isinstance(node, ast.Name) and len(value.made) == 1:
        ((source, node),) = value.made
        if not _is_free(node, run):
            return None
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    if node.func.attr not in ("numpy", "tolist"):
        return None
    inner: ast.expr = node.func.value
    while isinstance(inner, (ast.Call, ast.Attribute)):
        if isinstance(inner, ast.Attribute) and inner.attr == "data":
            inner = inner.value
        elif isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and not inner.args:
            if inner.func.attr not in ("cpu", "detach", "numpy"):
                break
            inner = inner.func.value
        else:
            break
    return (source, inner) if run.values.get(inner, NOTHING).spread is ROWS else None


def _is_free(made: ast.expr, run: Interpreter) -> bool:
    """Whether a value may be reduced where it is computed: no gradient flows through it, and no loss is made of it."""
    return not run.values.get(made, NOTHING).models and made not in learnt_from(run)


@lru_cache(maxsize=4)
def learnt_from(run: Interpreter) -> frozenset[ast.expr]:
    """The expressions that the losses are computed from: training needs this rank's share of them."""
    seen: set[ast.AST] = set()
    found: set[ast.expr] = set()
    for event in run.of("backward"):
        if isinstance(event.node, ast.Call):
            receiver = [event.node.func.value] if isinstance(event.node.func, ast.Attribute) else []
            for node in (*receiver, *event.node.args):
                found |= roots(node, run, seen)
    return frozenset(found)


@lru_cache(maxsize=2)
def _fed_to_losses(run: Interpreter) -> frozenset[ast.expr]:
    """The expressions that the losses are computed from, also through lists that these are put into:
    `batch.append(pool[i])`, `torch.cat(batch)`."""
    learnt, seen = learnt_from(run), set[ast.AST]()
    lists = {thing for node in learnt for thing in run.values.get(node, NOTHING).things if isinstance(thing, Items)}
    stored = [expression for each in lists for _, expression in each.stores]
    made = [found for each in stored for found in (each, *roots(each, run, seen))]
    return learnt | {each for found in made for each in ast.walk(found) if isinstance(each, ast.expr)}


def _is_cut(node: ast.expr, source: Source) -> bool:
    """Whether no gradient flows through a use: `out` in `out[labels == 0].detach().mean(0)`."""
    for each in source.ancestors(node):
        if not isinstance(each, ast.expr):
            return False
        if isinstance(each, ast.Attribute) and each.attr in ("data", "detach"):
            return True
    return False


def _in_forward(source: Source, made: ast.expr) -> bool:
    """Whether an expression is part of a forward pass, which a rank makes of its own samples."""
    home = source.function(made)
    return home is not None and home.name == "forward"


def _origins_of(node: ast.expr, value: Value, source: Source, run: Interpreter) -> list[tuple[Source, ast.expr]]:
    """Where to reduce instead of at ``node``: a name that a loop or comprehension binds takes its values from
    elsewhere, and a name with several origins may hold a sum in one case and a mean in another."""
    if not isinstance(node, (ast.Name, ast.Subscript)) or not value.spread.is_local or not value.made:
        return []
    if _bound_anywhere(node, source) and not isinstance(node, ast.Name):
        return [site for site in sorted_sites(value) if _is_free(site[1], run)]
    sites = sorted_sites(value)
    if any(_in_forward(where, made) for where, made in sites):
        return []
    if not all(_is_free(made, run) and run.values.get(made, NOTHING).spread.is_reducible for _, made in sites):
        return []
    statements = [where.statement(made) for where, made in sites]
    if any(isinstance(each, ast.AugAssign) or carried.counted_up(each) for each in statements):
        return []
    if isinstance(node, ast.Name) and _bound_by_loop(node, source):
        return sites
    if any(ast.dump(each) == ast.dump(node) for _, made in sites for each in ast.walk(made)):
        return []  # a running average, made of what it was before
    return sites if len(sites) > 1 or _is_whole_elsewhere(node, source, run) else []


def _is_whole_elsewhere(node: ast.expr, source: Source, run: Interpreter) -> bool:
    """Whether another branch binds a name to what all ranks share: `seen = step * len(x)`, `else: seen = step`."""
    if not isinstance(node, ast.Name):
        return False
    home = source.function(node)
    bound = [
        (each, each.value)
        for each in ast.walk(home or source.tree)
        if isinstance(each, ast.Assign) and any(isinstance(t, ast.Name) and t.id == node.id for t in each.targets)
    ]
    values = [run.values.get(made, NOTHING) for _, made in bound]
    shares = [each for (each, _), value in zip(bound, values, strict=True) if value.spread.is_local]
    others = [each for (each, _), value in zip(bound, values, strict=True) if not value.spread.is_local]
    return any(exclusive(source, share, other) for share in shares for other in others)


def _bound_anywhere(node: ast.expr, source: Source) -> bool:
    """Whether an expression uses a name that a comprehension around it binds."""
    return any(isinstance(n, ast.Name) and _bound_by_loop(n, source, comprehensions_only=True) for n in ast.walk(node))


def _is_sometimes_whole(node: ast.expr, source: Source, run: Interpreter) -> bool:
    """Whether an expression stands for values that are a share and for others that are global already, as `v` does in
    `for k, v in report.items()`: their sum over the ranks would count the latter several times."""
    names = [n for n in ast.walk(node) if isinstance(n, ast.Name) and SAME in run.spreads.get(n, ())]
    return any(
        any(s.is_local for s in run.spreads[name]) and (_bound_by_loop(name, source) or _is_parameter(name, source))
        for name in names
    )


def _mixed_names(node: ast.expr, source: Source, run: Interpreter) -> list[ast.Name]:
    """The names in an expression that a loop binds, now to a rank's share and now to what is global already."""
    names = [each for each in ast.walk(node) if isinstance(each, ast.Name) and not run.values.get(each, NOTHING).models]
    kinds = {name: run.values.get(name, NOTHING).spread for name in names}
    mixed = [
        name
        for name, kind in kinds.items()
        if kind is LOCAL or kind in (SUM, COUNT) and _is_sometimes_whole(name, source, run)
    ]
    return [name for name in mixed if _loop_over(name, source) is not None]


def _put_in(name: ast.Name, source: Source, event: Event, run: Interpreter, seen: set[ast.AST]) -> Iterator[Escape]:
    """What was put into the container that a loop goes over: `train_loss` of `for v in (train_loss, test_loss)`."""
    over = _loop_over(name, source)
    for each in ast.walk(over) if over is not None else ():
        things = run.values[each].things if isinstance(each, ast.expr) and each in run.values else frozenset()
        for thing in sorted((t for t in things if isinstance(t, (Items, Table))), key=_place):
            for where, stored in thing.stores:
                yield from _resolve(stored, where, event, run, seen)


def _is_parameter(node: ast.Name, source: Source) -> bool:
    home = source.function(node)
    if home is None:
        return False
    return node.id in {arg.arg for arg in (*home.args.posonlyargs, *home.args.args, *home.args.kwonlyargs)}


def _bound_by_loop(node: ast.Name, source: Source, comprehensions_only: bool = False) -> bool:
    return _loop_over(node, source, comprehensions_only) is not None


def _loop_over(node: ast.Name, source: Source, comprehensions_only: bool = False) -> ast.expr | None:
    """What the loop goes over that binds a name, if one does."""
    for ancestor in source.ancestors(node):
        loops: list[ast.For | ast.comprehension] = []
        if isinstance(ancestor, (ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)):
            loops = [*ancestor.generators]
        elif isinstance(ancestor, ast.For) and not comprehensions_only:
            loops = [ancestor]
        elif isinstance(ancestor, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return None
        for loop in loops:
            if any(isinstance(n, ast.Name) and n.id == node.id for n in ast.walk(loop.target)):
                return loop.iter
    return None


ROWWISE = (tensors.KEEPING | tensors.ELEMENTWISE) - {"where"} | frozenset(
    "softmax log_softmax sigmoid tanh relu exp log argmax round add_ clamp view_as".split()
)


PICKING = frozenset("max min sort topk kthvalue median mode".split())
"""What gives values and their places: `scores.max(dim=1)[1]`."""


SAME_ROWS = frozenset("torch.autograd.Variable torch.as_tensor torch.tensor numpy.asarray numpy.array".split())


FILLING = frozenset("normal_ uniform_ fill_ zero_ bernoulli_ random_".split())
SIZED = frozenset("zeros ones empty rand randn FloatTensor Tensor".split())


def _keeps_rows(name: str, given: dict[str, ast.expr]) -> bool:
    """Whether a function of a library gives a row for each that it is given: `torch.clamp`, `F.softmax`, or a loss of
    each sample, `F.kl_div(input, target, reduction="none")`."""
    library, _, short = name.rpartition(".")
    if (
        name in SAME_ROWS
        or library in ("torch", "torch.nn.functional")
        and (short in ROWWISE or short.endswith("_like"))
    ):
        return True
    reduction = given.get("reduction")
    return library == "torch.nn.functional" and isinstance(reduction, ast.Constant) and reduction.value == "none"


def _sized_like(node: ast.expr) -> ast.expr | None:
    """The tensor of `x.size()` and `x.shape`."""
    if isinstance(node, ast.Call) and not node.args:
        node = node.func
    return node.value if isinstance(node, ast.Attribute) and node.attr in ("size", "shape") else None


def _rowwise(node: ast.expr, run: Interpreter, seen: set[ast.AST]) -> bool:
    """Whether an expression still holds one row for each sample of the rank, so that the ranks' rows can be joined."""
    if node in seen:
        return True
    seen.add(node)
    if isinstance(node, ast.Name) and _is_one_row(node, run):
        return False
    if isinstance(node, (ast.Name, ast.Attribute)):
        return all(_rowwise(made, run, seen) for _, made in run.values.get(node, NOTHING).made)
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and isinstance(node.value, ast.Call):
        call = node.value
        name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        over = [*call.args[:1], *([call.func.value] if isinstance(call.func, ast.Attribute) else [])]
        rows = [each for each in over if run.values.get(each, NOTHING).spread is ROWS]
        return name in PICKING and bool(rows) and _rowwise(rows[0], run, seen)
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and isinstance(node.value, ast.Name):
        field = run.values.get(node.value, NOTHING)  # of what the loader yields, unless the script has put it there
        return not field.made and not any(isinstance(t, Table) and t.stores for t in field.things)
    if isinstance(node, (ast.GeneratorExp, ast.ListComp)):  # `images, labels = (part.to(device) for part in batch)`
        return _rowwise(node.elt, run, seen)
    if isinstance(node, (ast.BinOp, ast.Compare)):
        over = [node.left, node.right] if isinstance(node, ast.BinOp) else [node.left, *node.comparators]
        sides = [side for side in over if run.values.get(side, NOTHING).spread is ROWS]
        return all(_rowwise(side, run, seen) for side in sides)
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in FILLING:
            return _rowwise(node.func.value, run, seen)
        if isinstance(node.func, ast.Attribute) and run.values.get(node.func.value, NOTHING).spread is ROWS:
            keeps_rows = node.func.attr in ("view", "reshape") and bool(node.args)
            keeps_rows = keeps_rows and run.values.get(node.args[0], NOTHING).spread is COUNT
            keeps_rows = keeps_rows or tensors.reduces_axis(node.func.attr) and bool(tensors.axis(node, 0))
            return (node.func.attr in ROWWISE or keeps_rows) and _rowwise(node.func.value, run, seen)
        called = run.values.get(node.func, NOTHING).things
        functions = [thing.node for thing in called if isinstance(thing, Function)]
        if functions and len(functions) == len(called):
            answers = [
                n.value for f in functions for n in ast.walk(f) if isinstance(n, ast.Return) and n.value is not None
            ]
            return bool(answers) and all(_rowwise(answer, run, seen) for answer in answers)
        names = [t.name for t in called if isinstance(t, External)]
        given = {"input": node.args[0]} if node.args else {}
        given |= {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
        like = _sized_like(node.args[0]) if node.args else None
        if like is not None and any(name.rpartition(".")[2] in SIZED for name in names):
            return _rowwise(like, run, seen)
        if "input" in given and any(_keeps_rows(name, given) for name in names):
            return _rowwise(given["input"], run, seen)
        return any(isinstance(t, (Object, Wrapped)) for t in called)
    return isinstance(node, (ast.List, ast.Tuple))


def _is_one_row(node: ast.Name, run: Interpreter) -> bool:
    """Whether a loop or comprehension binds a name to one row after the other: `for label in set(labels)`."""
    source = run.sources.get(node)
    for ancestor in source.ancestors(node) if source is not None else ():
        if isinstance(ancestor, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return False
        heads = ancestor.generators if isinstance(ancestor, COMPREHENSIONS) else [ancestor]
        for head in heads:
            if not isinstance(head, (ast.For, ast.comprehension)) or not isinstance(
                head.iter, (ast.Name, ast.Attribute)
            ):
                continue
            over = run.values.get(head.iter, NOTHING)
            if over.spread is ROWS and not over.things and _binds(head.target, node.id):
                return True
    return False


def _binds(target: ast.expr, name: str) -> bool:
    return any(isinstance(each, ast.Name) and each.id == name for each in ast.walk(target))


COMPREHENSIONS = (ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)


def _narrowed(
    node: ast.expr, source: Source, event: Event, run: Interpreter, seen: set[ast.AST], value: Value
) -> Iterator[Escape]:
    """In ``100 * correct / n`` only ``correct`` has to be reduced."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.Mult)) and value.spread is SUM:
        for part, other in ((node.left, node.right), (node.right, node.left)):
            if (
                run.values.get(part, NOTHING).spread is value.spread
                and not run.values.get(other, NOTHING).spread.is_local
            ):
                yield from _narrowed(part, source, event, run, seen, run.values[part])
                return
    yield Escape(source, node, value.spread, event)


def _parts(node: ast.expr) -> Iterator[ast.expr]:
    """The operands of a computation. What a comprehension computes per element is not one."""
    if isinstance(node, (ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.Lambda)):
        return
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute):
            yield node.func.value
        yield from node.args
        yield from (keyword.value for keyword in node.keywords)
    else:
        yield from (child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr))


def _contained(
    value: Value, source: Source, event: Event, run: Interpreter, seen: set[ast.AST], depth: int = 3
) -> Iterator[Escape]:
    """What containers and meters carry out."""
    if event.kind == "test" or depth == 0:
        return
    for thing in sorted((t for t in value.things if isinstance(t, (Items, Table, Object))), key=_place):
        if isinstance(thing, (Items, Table)):
            for where, stored in list(thing.stores):
                if _in_forward(where, stored):
                    continue
                yield from _resolve(stored, where, event, run, seen)
            if not thing.stores:
                inside = (
                    [*thing.parts, thing.element]
                    if isinstance(thing, Items)
                    else [*thing.entries.values(), thing.element]
                )
                for each in inside:
                    yield from _contained(each, source, event, run, seen, depth - 1)
        elif thing.cls is None and not thing.roles:  # of a library, and made of what it is given
            for given in (*thing.node.args, *(keyword.value for keyword in thing.node.keywords)):
                yield from _resolve(given, thing.source, event, run, seen)
        elif thing.cls is not None and not thing.roles & {"module", "optimizer", "loader", "dataset"}:
            if event.kind in ("print", "format", "log") and run.holds_local(Value(frozenset([thing]))):
                for where, given in list(thing.inflows):
                    if _in_forward(where, given):
                        continue
                    yield from _resolve(given, where, event, run, seen)


def _place(thing: Items | Table | Object | Stream | Function) -> tuple[int, int]:
    node = getattr(thing, "node", None)
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def sorted_sites(value: Value) -> list[tuple[Source, ast.expr]]:
    """The expressions that made a value, in the order of the source."""
    return sorted(value.made, key=lambda site: (str(site[0].path), site[1].lineno, site[1].col_offset))


@dataclass(frozen=True)
class Placed:
    """A reduction, at an expression or, for accumulators, after a loop."""

    source: Source
    node: ast.expr
    spread: Spread
    after: ast.stmt | None
    event: Event
    switch: str | None = None


def placed(found: list[Escape], run: Interpreter) -> list[Placed]:
    """Where to reduce: a name that escapes more than once is reduced where it is bound."""
    groups: dict[frozenset[tuple[Source, ast.expr]], list[Escape]] = {}
    result: dict[ast.AST, Placed] = {}
    for escape in found:
        value = run.values.get(escape.node, NOTHING)
        key = (
            value.made
            if isinstance(escape.node, (ast.Name, ast.Attribute, ast.Subscript)) and value.made
            else frozenset([(escape.source, escape.node)])
        )
        groups.setdefault(key, []).append(escape)
    for key, group in groups.items():
        place = _shared_place(key, group, run) if len(group) > 1 else None
        if place is not None:
            result.setdefault(place.node, place)
            continue
        for escape in group:
            result.setdefault(escape.node, Placed(escape.source, escape.node, escape.spread, None, escape.event))
    return [_settled(each, run) for place in result.values() for each in _switched(place, run)]


def summed_up_before(run: Interpreter, stuck: Sequence[Placed] = ()) -> Iterator[Placed]:
    """The sums and means over this rank's samples of loops that take no training step, where losses, or what cannot be
    made global itself, are computed from them: the centre of all features, the weights of classes by their numbers."""
    wanted = set(learnt_from(run)) if not stuck else set()
    for place in stuck:
        wanted |= roots(place.node, run, set())
    _follow_lists(wanted, run)
    training = {loop.node for event in run.of("backward") for loop in event.loops}
    passes = {event.node for event in run.of("iterate") if any(drawn_from(event.value))} - training
    sums: dict[ast.AugAssign, list[Event]] = {}
    for event in run.of("accumulate"):
        if isinstance(event.node, ast.AugAssign) and event.node.value in wanted:
            sums.setdefault(event.node, []).append(event)
    for node, events in sums.items():
        source, target = events[0].source, node.target
        spreads = {each.value.spread for each in events}
        spread = MEAN if spreads == {MEAN} else SUM
        graph = any(each.value.models for each in events)
        if not isinstance(target, ast.Name) or not spreads <= {spread, COUNT} or graph:
            continue
        names = (n for n in ast.walk(source.home(node)) if isinstance(n, ast.Name) and n.id == target.id)
        uses = [Escape(source, each, spread, events[0]) for each in names if each is not target]
        loop = _outermost_loop(source, node, uses)
        if loop in passes and not any(each.on_one_rank for each in events):
            yield Placed(source, target, spread, loop, events[0])


def _follow_lists(found: set[ast.expr], run: Interpreter) -> None:
    """Add what was put into the lists among some expressions: `weights.append(1 / number)`."""
    fresh, seen = set(found), set[ast.AST]()
    while fresh:
        lists = {thing for node in fresh for thing in run.values.get(node, NOTHING).things if isinstance(thing, Items)}
        stored = {stored for each in lists for _, stored in each.stores}
        made = {found for each in stored for found in (each, *roots(each, run, seen))}
        fresh = {n for each in made for n in ast.walk(each) if isinstance(n, ast.expr)} - found
        found |= fresh


def _settled(place: Placed, run: Interpreter) -> Placed:
    """A sum over the ranks of what some of the time is global already would count it several times."""
    if place.spread is not MEAN and place.after is None and _is_sometimes_whole(place.node, place.source, run):
        return replace(place, spread=LOCAL)
    if place.event.kind == "statistic" and place.spread is COUNT and SAME in run.spreads.get(place.node, ()):
        switch = _gradient_test(place, run)
        return replace(place, switch=switch, spread=COUNT if switch is not None else LOCAL)
    return place


def _gradient_test(place: Placed, run: Interpreter) -> str | None:
    """A test of a mean that is divided by the number of its samples, which holds where it trains on a share of them,
    and not where it is evaluated on all."""
    node = place.source.parents.get(place.node)
    mean = node.target if isinstance(node, ast.AugAssign) else node.left if isinstance(node, ast.BinOp) else None
    divisions = [event for event in run.of("divided") if event.node is place.node]
    shares = {event.value.spread is COUNT for event in divisions if event.grad and event.detail.models}
    others = {event.value.spread is COUNT for event in divisions if not (event.grad and event.detail.models)}
    if not isinstance(mean, (ast.Name, ast.Attribute)) or shares != {True} or True in others:
        return None
    return f"{place.source.code(mean)}.requires_grad"


def _switched(place: Placed, run: Interpreter) -> Iterator[Placed]:
    """A sum that only some runs of the code compute over a share of the samples (the training phase of a loop over
    phases) is reduced in those alone, where it was accumulated."""
    if place.spread not in (SUM, COUNT) or place.after is not None:
        yield place
        return
    accumulators = [
        event
        for event in run.events
        if event.kind == "accumulate" and isinstance(event.node, ast.AugAssign) and event.source is place.source
    ]
    made = roots(place.node, run, set())
    ours = [event for event in accumulators if event.node.value in made]  # type: ignore[attr-defined]
    shared = [event for event in ours if not event.value.spread.is_local]
    if not shared:
        yield _by_loader(place, ours, run)
        return
    done: set[ast.AST] = set()
    for event in ours:
        node = event.node
        assert isinstance(node, ast.AugAssign)
        if node in done:
            continue
        done.add(node)
        same = [e for e in ours if e.node is node]
        switch = distinguishing(
            [dict(e.detail.const) for e in same if e.value.spread.is_local],
            [dict(e.detail.const) for e in same if not e.value.spread.is_local],
        )
        uses = [Escape(place.source, place.node, place.spread, place.event)]
        loop = _outermost_loop(event.source, node, uses)
        if switch is None and isinstance(loop, ast.For):
            switch = _sampler_test(loop, event.source, run)
        if switch is None or loop is None:
            yield Placed(place.source, place.node, Spread.LOCAL, None, place.event)
        else:
            yield Placed(event.source, node.target, SUM, loop, place.event, switch)


def _by_loader(place: Placed, ours: list[Event], run: Interpreter) -> Placed:
    """The same place, or where a sum over a loader that may be shared out or not is made global if it is."""
    either = next((loop for event in ours for loop in event.loops if _may_be_either(loop, event, run)), None)
    if either is None:
        return place
    switch = _sampler_test(either.node, either.source, run) if isinstance(either.node, ast.For) else None
    sums = {event.node: event.source for event in ours if isinstance(event.node, ast.AugAssign)}
    node, source = next(iter(sums.items()))
    outer = _outermost_loop(source, node, [Escape(place.source, place.node, place.spread, place.event)])
    if switch is None or len(sums) != 1 or outer is None or either.node not in ast.walk(outer):
        return Placed(place.source, place.node, Spread.LOCAL, None, place.event)
    return Placed(source, node.target, SUM, outer, place.event, switch)


def _may_be_either(loop: Loop, event: Event, run: Interpreter) -> bool:
    """Whether a loop may run over a loader that is shared out or one that is not: only when it runs, one can tell."""
    origins = [origin for origin in event.value.origins if isinstance(origin, Object) and "loader" in origin.roles]
    seen = any(not run.shares_out(origin) for origin in origins)
    kinds: set[bool] = set()
    for node in ast.walk(loop.node.iter) if isinstance(loop.node, ast.For) else ():
        if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
            value = run.values.get(node, NOTHING)
            direct = {run.shares_out(loader) for loader in value.objects("loader")}
            tuples = [part for thing in value.things if isinstance(thing, Items) for part in thing.parts]
            among = {run.shares_out(loader) for part in tuples for loader in part.objects("loader")}
            if seen or direct and among:  # one that may be a loader or a pair of them was bound under a condition
                kinds |= direct | among
    return len(kinds) > 1


def _sampler_test(loop: ast.For, source: Source, run: Interpreter) -> str | None:
    """A test of the loader itself, where the same function runs over loaders that are sharded and that are not."""
    for node in ast.walk(loop.iter):
        if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
            things = run.values.get(node, NOTHING).things
            if things and all(isinstance(t, Object) and "loader" in t.roles for t in things):
                return f"isinstance({source.code(node)}.sampler, DistributedSampler)"
    return None


def roots(node: ast.expr, run: Interpreter, seen: set[ast.AST]) -> set[ast.expr]:
    """The expressions that made what ``node`` is computed from."""
    if node in seen:
        return set()
    seen.add(node)
    found: set[ast.expr] = set()
    for each in ast.walk(node):
        if isinstance(each, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)):
            for _, made in run.values.get(each, NOTHING).made:
                found |= {n for n in ast.walk(made) if isinstance(n, ast.expr)} | roots(made, run, seen)
    return found


def distinguishing(these: list[dict[str, object]], others: list[dict[str, object]]) -> str | None:
    """An expression over constants in reach that holds in ``these`` contexts and in none of the ``others``."""
    if not these or not others:
        return None
    for name in sorted(these[0]):
        values = {repr(names.get(name)) for names in these}
        rest = {repr(names.get(name)) for names in others}
        if len(values) == 1 and not values & rest and name in others[0]:
            const = these[0][name]
            if const is True or const is False:
                return name if const else f"not {name}"
            if isinstance(const, str):
                return f'{name} == "{const}"' if '"' not in const else f"{name} == {const!r}"
            return f"{name} == {const!r}"
    return None


def _shared_place(key: frozenset[tuple[Source, ast.expr]], group: list[Escape], run: Interpreter) -> Placed | None:
    if len(key) != 1:
        return None
    ((source, made),) = key
    if made in learnt_from(run):
        return None
    statement = source.statement(made)
    first = group[0]
    spread = run.values.get(made, NOTHING).spread
    if isinstance(statement, ast.AugAssign) and statement.value is made:
        loop = _outermost_loop(source, statement, group)
        if loop is not None and isinstance(statement.target, ast.Name) and first.spread.is_reducible:
            return Placed(source, statement.target, first.spread, loop, first.event)
        return None
    if not isinstance(statement, ast.Assign) or statement.value is not made or not spread.is_reducible:
        return None
    block = source.block(statement)
    uses = [escape.source.statement(escape.node) for escape in group]
    if all(escape.source is source for escape in group) and not any(
        use in block or _within(source, use, statement) for use in uses
    ):
        return None
    conditional = [u for u in uses if u not in block]
    if len(conditional) == len(uses) and _in_loop(source, statement):
        return None
    return Placed(source, made, spread, None, first.event)


def _within(source: Source, use: ast.stmt, statement: ast.stmt) -> bool:
    """Whether ``use`` stands in the block of ``statement`` or deeper."""
    parent = source.parents.get(statement)
    return any(ancestor is parent for ancestor in source.ancestors(use))


def _in_loop(source: Source, node: ast.AST) -> bool:
    for ancestor in source.ancestors(node):
        if isinstance(ancestor, (ast.For, ast.While)):
            return True
        if isinstance(ancestor, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return False
    return False


def _outermost_loop(source: Source, statement: ast.stmt, group: list[Escape]) -> ast.stmt | None:
    """The largest loop around an accumulator that none of its uses stands in."""
    uses = [escape.node for escape in group]
    found: ast.stmt | None = None
    for ancestor in source.ancestors(statement):
        if isinstance(ancestor, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            break
        if isinstance(ancestor, (ast.For, ast.While)):
            inside = set(map(id, ast.walk(ancestor)))
            if any(id(use) in inside for use in uses):
                break
            found = ancestor
    return found


def reducible(found: list[Placed]) -> Mapping[ast.AST, Placed]:
    """Those that can be reduced, by expression."""
    return {place.node: place for place in found if place.spread.is_reducible}


def given_instead(leftover: list[Placed], run: Interpreter) -> list[Placed]:
    """Rows to gather where functions are given them, of which they report what cannot be reduced: a score of each
    picture, or a logger that is told of shared and of whole data. What they compute is then that of the whole batch."""
    found: dict[ast.expr, Placed] = {}
    for place in leftover:
        if place.event.kind in ("test", "state", "statistic") or place.event.inside_forward:
            continue
        for source, call, given in _ways_in(place, run):
            local = [each for each in given if run.values.get(each, NOTHING).spread.is_local]
            if not local or call in learnt_from(run) or _trains(call, run):
                continue
            if all(_is_row_each(each, run) for each in local):
                for each in local:
                    found[each] = Placed(source, each, ROWS, None, place.event)
                break
    return list(found.values())


def _ways_in(place: Placed, run: Interpreter) -> Iterator[tuple[Source, ast.Call, list[ast.expr]]]:
    """The calls by which a reported value comes to be, from the innermost, each with what it is given for that."""
    node = place.node
    for source, made in (place.source, node), *sorted_sites(run.values.get(node, NOTHING)):
        called = run.values.get(made.func, NOTHING).things if isinstance(made, ast.Call) else ()
        if isinstance(made, ast.Call) and any(isinstance(thing, Function) for thing in called):
            yield source, made, [*made.args, *(keyword.value for keyword in made.keywords)]
    home = place.source.function(node)
    kept = (*run.of("accumulate"), *run.of("store"), *run.of("set_item"))  # what is reported may have been kept before
    for calls in dict.fromkeys(event.calls for event in (place.event, *kept)):
        if not calls or calls[-1].function.node is not home:
            continue
        names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
        for call in reversed(calls):
            given = call.given()
            wanted = [given[name] for name in names if name in given]
            if call.node is None or not wanted:
                break
            yield call.source, call.node, list(given.values())
            names = {each.id for expression in wanted for each in ast.walk(expression) if isinstance(each, ast.Name)}


def _trains(call: ast.Call, run: Interpreter) -> bool:
    """Whether a training step happens inside of a call."""
    return any(each.node is call for kind in ("backward", "step") for event in run.of(kind) for each in event.calls)


def _is_row_each(node: ast.expr, run: Interpreter) -> bool:
    """Whether it holds a row for each of this rank's samples, as many as on the other ranks."""
    value = run.values.get(node, NOTHING)
    plain = value.spread is ROWS and not value.things and picks(value) is None and run.uneven(value) is None
    return plain and _rowwise(node, run, set()) and not _is_passed_on(node, run)


def _is_passed_on(node: ast.expr, run: Interpreter) -> bool:
    """Whether a function hands on what it is given itself: there is where to gather it."""
    return isinstance(node, ast.Name) and node in run.sources and _is_parameter(node, run.sources[node])
