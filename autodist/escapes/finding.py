"""The escapes of a run."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from dataclasses import replace

from autodist.escapes.bringing import brought_in
from autodist.escapes.exposure import exposed
from autodist.escapes.keeping import handed_on, stored_by_sample
from autodist.escapes.origins import is_either, is_parameter, learnt_from, roots
from autodist.escapes.resolving import Escape, resolve
from autodist.escapes.rows import gone_over
from autodist.interpreter import GROWS, Event, Interpreter
from autodist.regions import stands_in
from autodist.script import Site
from autodist.source import Source, last_name
from autodist.spread import COUNT, LOCAL, MEAN, ROWS, SUM
from autodist.tensors.picking import is_piece
from autodist.values import NOTHING, External, Items, Object, Turn

SINKS = frozenset(
    "format print log tracker schedule test save write file_method step discarded store set_item meets handed_over "
    "statistic scales_gradient answer own_step loose_step picks_data reported trial_result".split()
)
CHANGING = GROWS | frozenset("clear fill insert pop put remove reset resize reverse sort update".split())


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

    placing = (*run.of("set_item"), *run.of("place"))
    stored = {node: event for event in placing for node in stored_by_sample(event, run)}
    by_sample = frozenset(event.source.statement(event.node) for event in stored.values())
    kept = [escape for event in run.of("state") for escape in handed_on(event, run, by_sample)]
    kept = [each for each in kept if not _follows_another(each, kept, run)]
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
        if event.kind in ("print", "format") and isinstance(event.source.statement(event.node), ast.Assert):
            continue  # which a rank may fail by itself
        if any(call.node is not None and is_guarded(call.source, call.node) for call in event.calls):
            continue
        if isinstance(event.node, ast.Call) and is_guarded(event.source, event.node):
            for node in (*event.node.args, *(keyword.value for keyword in event.node.keywords)):
                for escape in resolve(node, event.source, event, run, set()):
                    found.setdefault(escape.node, escape)
        for node in exposed(event, run):
            for escape in resolve(node, event.source, event, run, set()):
                if escape.spread is COUNT and _is_of_one_sample(escape, event, run):
                    continue
                one = _by_turn(escape.node, escape.source, run)
                turned = one is not escape.node or _is_of_one_row(escape, run)
                shown = turned and event.kind != "test" and escape.spread is ROWS
                over = gone_over(escape.node, escape.source, run) if shown else None
                if over is not None:  # `for guess, label in zip(guesses, labels): print(guess.item(), label.item())`
                    found.update((e.node, e) for e in resolve(over, escape.source, event, run, set()))
                    continue
                if escape.spread is ROWS and (turned or event.kind == "test" and _is_tested(one, event)):
                    escape = replace(escape, spread=LOCAL)  # one row after the other: only of one is it true or false
                found.setdefault(escape.node, escape)
    for event, node in brought_in(run):
        for escape in resolve(node, event.source, event, run, set()):
            found.setdefault(escape.node, escape)
    others = [e for n, e in found.items() if stored.keys().isdisjoint((n, *e.source.ancestors(n)))]
    others = list(_counted_elsewhere(others, run))
    return [*others, *(Escape(event.source, node, ROWS, event) for node, event in stored.items())]


def _follows_another(escape: Escape, kept: list[Escape], run: Interpreter) -> bool:
    """Whether what is kept is computed from something else that is kept, and will be that of all ranks: `self.codes =
    self.sums / self.sizes` beside `self.sizes = 0.9 * self.sizes + 0.1 * hits.sum(0)`."""
    if escape.spread.is_reducible or escape.spread is ROWS:
        return False
    beside = (e for e in kept if e.event.function is escape.event.function and e.spread.is_reducible)
    reduced = {ast.unparse(each.event.detail.const[0]) for each in beside}
    made = roots(escape.node, run, set()) | {escape.node} if reduced else set()
    parts = {part for each in made for part in ast.walk(each) if isinstance(part, ast.Attribute)}
    return any(ast.unparse(each) in reduced for each in parts)


def _reported_inside(event: Event, run: Interpreter) -> Iterator[Escape]:
    """The sums and means that a forward pass prints, of a loss for instance. Nothing that gradients flow through, which
    would be reduced for what is computed from it as well."""
    for node in exposed(event, run):
        for escape in resolve(node, event.source, event, run, set()):
            numbers = isinstance(escape.node, ast.Call) and last_name(escape.node.func) in ("item", "float")
            if escape.spread in (MEAN, SUM) and (numbers or not run.values.get(escape.node, NOTHING).models):
                yield escape


def _is_about_one_row(event: Event, run: Interpreter) -> bool:
    """Whether a function decides that is called for one row of this rank's after the other, or what is counted of such
    a row: each rank for its own."""
    for loop in event.loops:
        if loop.through is not None and loop.through.iter in run.plan.turns:
            return True
        own = loop.function is event.function
        if loop.through is not None and not own and run.values.get(loop.through.iter, NOTHING).spread is ROWS:
            return True
    branch = event.source.parents.get(event.node)
    return any(loop.by_row for loop in event.loops) and isinstance(branch, ast.If) and _only_counts(branch, run)


def _only_counts(branch: ast.If, run: Interpreter) -> bool:
    """`if guess == label: correct += 1`, `hits[i] = 1`, `found.append(i)`"""
    return all(_counts(each, run) for each in (*branch.body, *branch.orelse))


def _counts(statement: ast.stmt, run: Interpreter) -> bool:
    match statement:
        case ast.If():
            return _only_counts(statement, run)
        case ast.Assign(targets=[ast.Subscript(value=held, slice=key)]):
            return ROWS in (run.values.get(held, NOTHING).spread, run.values.get(key, NOTHING).spread)
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr=name, value=held))):
            return name in GROWS and any(isinstance(t, Items) for t in run.values.get(held, NOTHING).things)
    return isinstance(statement, (ast.AugAssign, ast.Pass, ast.Continue))


def _counted_elsewhere(found: list[Escape], run: Interpreter) -> Iterator[Escape]:
    """The escapes, where a function of the project counts rows that it is given in a way that no reduction follows, or
    shows them one after the other, or is given sums of a rank's in one place and whole ones in another: what it is
    given is gathered instead, or reduced, where it is called."""
    given: dict[ast.AST | None, list[Escape]] = {}
    for escape in found:
        home = escape.source.function(escape.node)
        elsewhere = escape.spread is LOCAL or _is_shown_by_turn(escape) or _is_given_either(escape, run)
        if elsewhere and home is not None and home not in given:
            around: set[ast.AST] = set()
            rows = _rows_given(home, replace(escape.event, kind="format"), run, around)
            given.update(dict.fromkeys(around if rows else [home], rows or []))
    yield from {each.node: each for rows in given.values() for each in rows}.values()
    yield from (each for each in found if not given.get(each.source.function(each.node)))


def _is_shown_by_turn(escape: Escape) -> bool:
    """Whether rows that a function is given would be gathered again in each round of a loop: `images` of
    `for i in range(6): axes[i].imshow(images[i])`."""
    node, source = escape.node, escape.source
    given = escape.spread is ROWS and isinstance(node, ast.Name) and is_parameter(node, source)
    around = itertools.takewhile(lambda each: each is not source.function(node), source.ancestors(node))
    return given and any(isinstance(each, ast.For | ast.comprehension) for each in around)


def _is_given_either(escape: Escape, run: Interpreter) -> bool:
    """Whether it is a sum of what a function is given, which one call makes of a rank's samples, and another of all."""
    names = [each for each in ast.walk(escape.node) if isinstance(each, ast.Name)]
    either = any(is_parameter(each, escape.source) and is_either(each, run) for each in names)
    return either and escape.spread in (SUM, COUNT)


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
                more = [] if parameter else list(resolve(arg, source, event, run, set()))
                fits = more and all(
                    (
                        not _is_whole_in_part(each, run)
                        if each.spread is ROWS
                        else each.spread.is_reducible
                        and each.node in ast.walk(arg)
                        and _only_reads(function, arg, call, run)
                    )
                    for each in more
                )
                rows = [*rows, *more] if fits and rows is not None else None
        if rows is None and outer is not None and outer not in around:
            rows = _rows_given(outer, event, run, around)
        if rows is None and outer not in around:
            return None
        found += rows or []
    return found


def _only_reads(function: ast.FunctionDef, arg: ast.expr, call: ast.Call, run: Interpreter) -> bool:
    """Whether a function leaves what it is given as it is: what is reduced is a copy."""
    entered = (each for each in run.values.get(call.func, NOTHING).functions if each.node is function)
    given = (name for each in entered for name in each.parameters if each.given(call, name) is arg)
    if (name := next(given, None)) is None:
        return False
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store):
            return False
        stored = (
            node if isinstance(node, (ast.Subscript, ast.Attribute)) and not isinstance(node.ctx, ast.Load) else None
        )
        method = node.func if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
        changed = method is not None and (method.attr in CHANGING or method.attr.endswith("_"))
        for base in (stored, method if changed else None):
            if base is not None and any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(base.value)):
                return False
    return True


def _learns_from_it(function: ast.FunctionDef, run: Interpreter) -> bool:
    """Whether a function runs a model, or losses are computed from what it computes."""
    runs = any(_runs_model(node, run) for node in ast.walk(function) if isinstance(node, ast.Call))
    return function.name == "forward" or runs or not learnt_from(run).isdisjoint(ast.walk(function))


def _runs_model(call: ast.Call, run: Interpreter) -> bool:
    """Whether what a call gives is computed by a model, or in a function, and not by operations of torch alone."""
    called = run.values.get(call.func, NOTHING).things
    followed = any(not isinstance(each, External) for each in called)
    return followed and bool(run.values.get(call, NOTHING).models)


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


def _by_turn(node: ast.expr, source: Source, run: Interpreter) -> ast.expr:
    """`labels[i]`, the sample that a loop has come to, of `labels`."""
    parent = source.parents.get(node)
    if isinstance(parent, ast.Subscript) and parent.value is node:
        if any(isinstance(each, Turn) for each in run.values.get(parent, NOTHING).origins):
            return parent
    return node


def _is_of_one_row(escape: Escape, run: Interpreter) -> bool:
    """Whether a loop over this rank's samples binds a name to one after the other (`for label in labels`), or it is one
    number."""
    name = escape.node.id if isinstance(escape.node, ast.Name) else None
    above = escape.source.parents.get(escape.node)
    if isinstance(above, ast.Attribute) and above.attr == "item":
        return True  # which only a single number has: nothing is known of the library that made it
    for around in escape.source.ancestors(escape.node):
        if isinstance(around, ast.For) and any(
            isinstance(n, ast.Name) and n.id == name for n in ast.walk(around.target)
        ):
            over = around.iter
            while isinstance(over, ast.Call) and last_name(over.func) in ("enumerate", "tqdm") and over.args:
                over = over.args[0]
            value = run.values.get(over, NOTHING)
            return value.spread is ROWS and not value.things
    return any(isinstance(each, Turn) for each in run.values.get(escape.node, NOTHING).origins)


def _is_of_one_sample(escape: Escape, event: Event, run: Interpreter) -> bool:
    """Whether it counts what one sample has, to which a loop has come: `if len(target["boxes"]) == 0`."""
    by_row = any(loop.by_row for loop in event.loops)
    return by_row and event.kind == "test" and is_piece(run.values.get(escape.node, NOTHING))


def _is_tested(node: ast.expr, event: Event) -> bool:
    """Whether a branch is decided by a value itself or by comparing it: `label in seen`, `guess == label`, and not by
    looking for something among samples, `2 in labels`."""
    above = event.source.parents.get(node)
    if isinstance(above, ast.Compare) and isinstance(above.ops[0], (ast.In, ast.NotIn)) and node in above.comparators:
        return False
    between = [*itertools.takewhile(lambda each: each is not event.node, (node, *event.source.ancestors(node)))]
    comparing = (ast.Compare, ast.BoolOp, ast.UnaryOp)
    return all(each is node or isinstance(each, comparing) for each in (*between, event.node))
