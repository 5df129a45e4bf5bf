"""Where gradients that no wrapper averages are averaged: before anything reads, changes or applies them."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterable, Iterator, Sequence

from autodist.interpreter import Call_, Event, Interpreter, returned
from autodist.models import loose_parameters, modules_behind, optimized_by, owned_parameters, parts
from autodist.regions import exclusive
from autodist.rule import Severity
from autodist.script import Concern, Model, Site
from autodist.solve.learned import learned
from autodist.source import Source, shortened, stepped_tensor, walk
from autodist.values import NOTHING, Draw, Object, Parameters, Path_, Scope, Thing

KINDS = ("backward", "gradient", "clip", "unscale", "step")
Key = tuple[int, Path_]


def averaged(run: Interpreter, models: list[Model]) -> tuple[list[tuple[Site, str]], list[Concern]]:
    """The statements before which gradients are averaged and by which optimizer; uses of them that come earlier."""
    ours = set() if any(model.wrapped for model in models) else _optimizers(run, models)
    events = [event for event in run.events if event.kind in KINDS] if ours else []
    stepped = {
        e.node: e for e in events if e.kind == "step"
    }  # by torch's optimizer, or by one around it, as settings say
    events = [e for e in events if e.kind == "backward" or not any(call.node in stepped for call in e.calls)]
    found: dict[tuple[ast.stmt, str], Site] = {}
    missed: dict[ast.AST, Concern] = {}
    backward: Event | None = None
    done: dict[Key, list[Event]] = {}  # the uses before which an optimizer's gradients were averaged since then
    for index, event in enumerate(events):
        if event.kind == "backward":
            steps = {i: stepped[c.node] for i, c in enumerate(event.calls) if c.node is not None and c.node in stepped}
            inner = min(steps, default=None)
            if inner is None:
                backward, done = event, {key: [] for key in ours}
            elif _keys(step := steps[inner]) & ours:  # of a closure that the optimizer calls
                ends = list(_ends(event, step, inner + 1, run))
                for site, optimizer in ends:
                    found.setdefault((site.statement, optimizer), site)
                if not ends:
                    missed.setdefault(step.node, _within_closure(step))
            continue
        for step in _steps(event, events[index:]) if backward is not None else ():
            due = [k for k in _keys(step) & done.keys() if all(_are_alternatives(e, event) for e in done[k])]
            places = list(_places(event, step, backward, run)) if due and backward is not None else []
            for site, optimizer in places:
                found.setdefault((site.statement, optimizer), site)
            for key in due if places else ():
                done[key].append(event)
            if due and not places and event.kind != "step":
                missed.setdefault(event.node, _too_early(event, step))
            elif due and not places and backward is not None and _closure(backward, run) is not None:
                missed.setdefault(event.node, _within_closure(event))
    return [(site, optimizer) for (_, optimizer), site in found.items()], list(missed.values())


def lacks_gradients(run: Interpreter, models: list[Model], draws: Iterable[Draw]) -> bool:
    """Whether a rank may have no gradient of a parameter in a step in which another rank has one: samples may decide
    which parts of a model run, or which tensors outside of modules a loss reads, or ranks take samples in turn."""
    if any(draw.turn for draw in draws):
        return True
    depends = learned(run.runs.program)
    modules = [each for model in models if model.bypassed for each in (model.object, *model.alternatives)]
    return depends.loose_vary or any(depends.vary_by_samples(each.node) for each in modules)


def _optimizers(run: Interpreter, models: list[Model]) -> set[Key]:
    """Those whose gradients DistributedDataParallel would not average."""
    members = {part.key for model in models if model.bypassed for part in parts(model.object)}
    inside = owned_parameters(run)
    return {
        thing.key
        for event in run.of("optimizer")
        for thing in event.value.objects("optimizer")
        if loose_parameters(thing, inside) or any(part.key in members for part in optimized_by(thing))
    }


def _keys(event: Event) -> set[Key]:
    return {thing.key for thing in event.value.objects("optimizer")}


def _steps(use: Event, events: Sequence[Event]) -> list[Event]:
    """The steps that a use of gradients comes before: up to the next backward pass, or the next one at all."""
    if use.kind == "step":
        return [use]
    end = next((i for i, event in enumerate(events) if event.kind == "backward"), len(events))
    steps = [e for e in events if e.kind == "step" and (use.kind != "unscale" or _keys(e) & _keys(use))]
    return [e for e in steps if e in events[:end]] or steps[:1]


# ---------------------------------------------------------------- steps by hand


def stepped_by_hand(run: Interpreter) -> tuple[list[tuple[Site, str]], ast.AST | None]:
    """The statements before which gradients are averaged of tensors that are in no module, and which a script changes
    by them itself, with a list of these tensors; and a use of such gradients that comes before any of these."""
    steps: dict[ast.stmt, tuple[Source, str]] = {}
    for event in run.of("loose_step"):
        found = _stepped_at(event.source, event.node)
        if found is None:
            return [], event.node
        steps.setdefault(found[0], (event.source, found[1]))
    for event in run.of("gradient") if steps else ():
        things = event.value.things
        base = event.node.value if isinstance(event.node, ast.Attribute) else event.node
        unknown = not things and not modules_behind(run, base)
        loose = any(True for _ in event.value.objects("parameter")) and not any(
            isinstance(t, Parameters) for t in things
        )
        if (unknown or loose) and steps.keys().isdisjoint(event.source.ancestors(event.node)):
            return [], event.node
    groups: list[tuple[Site, list[str]]] = []
    for statement, (source, name) in steps.items():
        if groups and name.startswith("[") and _follows(statement, groups[-1][0], steps):
            groups[-1][1].append(name[1:-1])
        else:
            groups.append((Site(source, statement), [name[1:-1] if name.startswith("[") else name]))
    return [
        (site, f"[{', '.join(names)}]" if steps[site.statement][1].startswith("[") else names[0])
        for site, names in groups
    ], None


def _stepped_at(source: Source, node: ast.AST) -> tuple[ast.stmt, str] | None:
    """The statement that steps a tensor, or the loop that steps one after the other, and what it goes through."""
    tensor = stepped_tensor(node)
    statement = source.statement(node)
    if tensor is None:
        return None
    if not isinstance(tensor, ast.Name):
        return statement, f"[{source.code(tensor)}]"
    for around in source.ancestors(statement):
        if isinstance(around, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            break
        if isinstance(around, ast.For) and tensor.id in {n.id for n in walk(around.target) if isinstance(n, ast.Name)}:
            plain = isinstance(around.target, ast.Name) and isinstance(
                around.iter, (ast.Name, ast.Attribute, ast.List, ast.Tuple)
            )
            return (around, source.code(around.iter)) if plain else None
    return statement, f"[{tensor.id}]"


def _follows(statement: ast.stmt, first: Site, steps: Container[ast.stmt]) -> bool:
    """Whether nothing but steps, and gradients that are cleared, lies between two statements of one block."""
    block = first.source.block(first.statement)
    if not any(each is statement for each in block):
        return False
    between = block[block.index(first.statement) : block.index(statement)]
    return first.statement in steps and all(each in steps or _clears(each) for each in between)


def _clears(statement: ast.stmt) -> bool:
    """`w.grad.zero_()`, `w.grad = None`"""
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="zero_"))):
            return True
        case ast.Assign(targets=[ast.Attribute(attr="grad")], value=ast.Constant(value=None)):
            return True
    return False


# ---------------------------------------------------------------- places


def _place(use: Event, step: Event, backward: Event, run: Interpreter) -> tuple[Site, str] | None:
    """Before the statement around a use that comes on every way to the step too, or on every way from the backward
    pass; and what the optimizer is called there."""
    for other in (step, backward):
        depth = _depth(use, other)
        here, there = _frame(use, depth), _frame(other, depth)
        statement = _beside(here.source, here.node, there.node) if here.source is there.source else None
        if statement is None or _is_around(statement, backward, depth):
            continue
        optimizer = _name(step, here.scope, statement, run)
        if optimizer is not None:
            return Site(here.source, statement), optimizer
    return None


def _places(use: Event, step: Event, backward: Event, run: Interpreter) -> Iterator[tuple[Site, str]]:
    """The same for all ways to a step: a closure, which its optimizer calls several times, ends in several places."""
    depth = _closure(backward, run)
    if use.kind != "step" or depth is None:
        place = _place(use, step, backward, run)
        yield from [place] if place is not None else []
        return
    yield from _ends(backward, step, depth - 1, run)


def _ends(backward: Event, step: Event, at: int, run: Interpreter) -> Iterator[tuple[Site, str]]:
    """Where a closure ends that is called ``at`` this depth or further down, but for methods of its optimizer."""
    outside = (i for i, c in enumerate(backward.calls) if i >= at and not _is_of_optimizer(c))
    depth = next(outside, len(backward.calls)) + 1
    if depth > len(backward.calls):
        return
    closure = backward.calls[depth - 1].function
    ends = [closure.source.statement(each) for each in returned(closure.node)]
    names = [_name(step, _frame(backward, depth).scope, each, run) for each in ends if isinstance(each, ast.Return)]
    if not isinstance(closure.node, ast.Lambda) and len(names) == len(ends) and None not in names:
        yield from ((Site(closure.source, end), name) for end, name in zip(ends, names, strict=True) if name)


def _is_of_optimizer(call: Call_) -> bool:
    return isinstance(call.function.owner, Object) and "optimizer" in call.function.owner.roles


def _closure(backward: Event, run: Interpreter) -> int | None:
    """How many calls down the closure is that a backward pass runs in, and which an optimizer calls."""
    depths = (i for i, call in enumerate(backward.calls, 1) if call.function.node in run.closures and call.node is None)
    return next(depths, None)


def _depth(one: Event, other: Event) -> int:
    """How many calls two events have in common."""
    pairs = enumerate(zip(one.calls, other.calls, strict=False))
    return next((i for i, (a, b) in pairs if a is not b), min(len(one.calls), len(other.calls)))


def _frame(event: Event, depth: int) -> Call_ | Event:
    """An event, or the call that leads to it, in the function that is ``depth`` calls down."""
    return event.calls[depth] if depth < len(event.calls) else event


def _beside(source: Source, node: ast.AST | None, other: ast.AST | None) -> ast.stmt | None:
    """The smallest statement around a node in whose block the other one stands too."""
    if node is None or other is None:
        return None
    around = {other, *source.ancestors(other)}
    statements = (each for each in (node, *source.ancestors(node)) if isinstance(each, ast.stmt))
    return next((each for each in statements if not around.isdisjoint(source.block(each))), None)


def _is_around(statement: ast.stmt, event: Event, depth: int) -> bool:
    frame = _frame(event, depth)
    return frame.node is not None and statement in (frame.node, *frame.source.ancestors(frame.node))


def _are_alternatives(one: Event, other: Event) -> bool:
    """Whether only one of two things happens: they lie in branches of one condition."""
    depth = _depth(one, other)
    first, second = _frame(one, depth), _frame(other, depth)
    if first.source is not second.source or first.node is None or second.node is None:
        return False
    return exclusive(first.source, first.node, second.node)


# ---------------------------------------------------------------- names


def _name(step: Event, scope: Scope, statement: ast.stmt, run: Interpreter) -> str | None:
    """The expression that names the optimizer of a step, as it can be written at a statement of a scope."""
    for expression, source, home in _expressions(step, run):
        root = expression
        while isinstance(root, (ast.Attribute, ast.Subscript)):
            root = root.value
        if not isinstance(root, ast.Name) or _is_bound_later(root, source, statement):
            continue
        if home is scope or _held(root.id, home) & _held(root.id, scope):
            return source.code(expression)
    return None


def _expressions(step: Event, run: Interpreter) -> Iterator[tuple[ast.expr, Source, Scope]]:
    """What a step calls its optimizer, and what those call it who hand it on as an argument."""
    node = step.node
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return
    owner = node.func.value
    by_scaler = node.args and not any(run.values.get(owner, NOTHING).objects("optimizer"))
    expression = node.args[0] if by_scaler else owner
    yield expression, step.source, step.scope
    for call in reversed(step.calls):
        if not isinstance(expression, ast.Name) or expression.id not in call.given():
            return
        expression = call.given()[expression.id]
        yield expression, call.source, call.scope


def _is_bound_later(name: ast.Name, source: Source, statement: ast.stmt) -> bool:
    """Whether a name is bound by a loop that a statement does not stand in: `for optimizer in optimizers`."""
    for loop in source.ancestors(name):
        if isinstance(loop, ast.For) and any(getattr(n, "id", "") == name.id for n in walk(loop.target)):
            return loop not in source.ancestors(statement)
    return False


def _held(name: str, scope: Scope) -> frozenset[Thing]:
    home = scope.find(name)
    return home.names.get(name, NOTHING).things if home is not None else frozenset()


def _within_closure(step: Event) -> Concern:
    message = (
        "the closure that is given here computes gradients that DistributedDataParallel does not average, and it "
        "cannot be seen where they are to be averaged: let it be a function that returns the loss at its end"
    )
    return Concern("AD904", step.source, step.node, message, Severity.REFUSAL)


def _too_early(event: Event, step: Event) -> Concern:
    code = shortened(event.source.code(event.node)) if isinstance(event.node, ast.expr) else "this"
    line = getattr(step.node, "lineno", 0)
    message = (
        f"{code} sees gradients of this rank's samples: they are averaged later, before the step in line {line}; "
        "move it to where that optimizer is known"
    )
    return Concern("AD602", event.source, event.node, message, Severity.WARNING)
