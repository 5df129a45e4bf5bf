"""What ranks must agree on before a step keeps it for the next ones."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from dataclasses import replace

from autodist.escapes.origins import fed_to_losses, is_parameter, learnt_from
from autodist.escapes.resolving import Escape, resolve
from autodist.escapes.together import agreed, gathered_together, is_of
from autodist.interpreter import COUNTING, CUTTING, FILLING, SIZES, Event, Interpreter, Loop
from autodist.source import Source, first_index, indices, last_name, operands
from autodist.spread import COUNT, LOCAL, MEAN, ROWS, SUM, Spread
from autodist.tensors.calls import Placement, placed_by_number
from autodist.tensors.mixing import STATISTIC
from autodist.tensors.picking import is_condition
from autodist.values import NOTHING, Items, Mixing, Object, Table, Wrapped


def stored_by_sample(event: Event, run: Interpreter) -> list[ast.expr]:
    """The numbers of the samples and their values in `bank[index] = features.detach()`, or in `bank.index_copy_(0,
    index, features)`: all ranks keep those of all."""
    placed = _placed(event)
    if placed is None or not isinstance(placed.numbers[0], (ast.Name, ast.Attribute, ast.Call)):
        return []
    if event.detail.spread.is_local and event.detail.spread is not LOCAL or event.detail.things:
        return []  # part of a rank's own samples
    if _is_made_each_time(placed.target, event, run) or _is_condition(placed.numbers[0], run):
        return []
    if agreed(event, run) != []:
        return []  # some ranks may not come here
    given = run.plan.reduced
    values = [(part, run.values.get(part, NOTHING)) for part in (*placed.numbers, placed.rows)]
    if not any(part in given or value.spread is ROWS for part, value in values[:-1]):
        return []  # `outputs[step] = out`
    own = [(part, value) for part, value in values if part not in given and value.spread.is_local]
    if any(value.spread is not ROWS or value.models or value.things for _, value in own):
        return []
    return [part for part, _ in own]


def _placed(event: Event) -> Placement | None:
    """What rows are written into by their numbers, these numbers, and the rows."""
    node, statement = event.node, event.source.statement(event.node)
    if isinstance(node, ast.Call):
        return placed_by_number(node)
    if not isinstance(node, ast.Subscript) or not isinstance(statement, ast.Assign) or statement.targets != [node]:
        return None
    if isinstance(first_index(node), ast.Slice):
        return None
    return Placement(node.value, [each for each in indices(node) if not isinstance(each, ast.Slice)], statement.value)


def _is_condition(numbers: ast.expr, run: Interpreter) -> bool:
    """Whether rows of the batch itself are written that a condition holds for: `texts[dropped] = nothing`."""
    return is_condition(numbers, lambda each: run.values.get(each, NOTHING))


def _is_made_each_time(target: ast.expr, event: Event, run: Interpreter) -> bool:
    """Whether what is written to is made in a step, by the function that writes it, `t = torch.zeros(4)`, or by one
    that gives it to this."""
    source, node, calls = event.source, event.node, list(event.calls)
    while isinstance(target, ast.Name) and not run.values.get(target, NOTHING).lasting:
        home = source.function(node)
        if home is None:
            return False
        inside = set(ast.walk(home))
        bound = [n for n in inside if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store) and n.id == target.id]
        if bound:
            fresh = (not run.step_loops.isdisjoint(source.ancestors(each)) for each in bound)
            return inside.isdisjoint(run.step_loops) or all(fresh) and not _is_filled(bound, source)
        call = calls.pop() if calls else None
        given = call.given().get(target.id) if call is not None and is_parameter(target, source) else None
        if call is None or call.node is None or given is None:
            return False
        source, node, target = call.source, call.node, given
    return not isinstance(target, (ast.Name, ast.Attribute, ast.Subscript))


def _is_filled(bound: list[ast.Name], source: Source) -> bool:
    """Whether names are bound to tensors of one number, which have no row for each of a rank's samples."""
    made = [getattr(source.statement(each), "value", None) for each in bound]
    calls = [
        {last_name(n.func) for n in ast.walk(each) if isinstance(n, ast.Call)} for each in made if each is not None
    ]
    return len(calls) == len(bound) and all(names & FILLING for names in calls)


def handed_on(event: Event, run: Interpreter, by_sample: frozenset[ast.stmt]) -> Iterator[Escape]:
    """What ranks must agree on before a step keeps it for the next ones: sums and means over the samples, or their
    rows, which are gathered where a function is given them, so that it counts those of all ranks."""
    node, source, (target, is_buffer) = event.node, event.source, event.detail.const
    assert isinstance(node, ast.expr)
    fed = fed_to_losses(run)
    called = list(_names(target, event))
    read = (
        each
        for each in fed
        if not _is_called(each, run)
        and any(_is_same(each, name) and not _is_another(each, name, where, run) for where, name, _ in called)
    )
    if not is_buffer and all(_is_only_handed_down(each, event, fed) for each in read):
        return  # a report
    if isinstance(target, ast.Name) and not is_buffer and not _outlives_step(target, event, run):
        return  # from layer to layer
    if isinstance(target, ast.Name) and not is_buffer and _begins_with_batch(target, event, run):
        return
    if source.statement(node) in by_sample or _is_replaced(event, run):
        return
    if event.value.models or _is_learnt_from(event, target, run):
        yield Escape(source, node, LOCAL, event)
        return
    if placed := _placed_by_sample(node, source, run):
        yield from (Escape(source, each, ROWS, event) for each in placed)
        return
    found = [e for e in resolve(node, source, event, run, set()) if not is_of(e.node, target)]
    if centred := _centred(event, run):
        yield from centred  # first of all: what is computed from it is another sum then
        return
    rows = [each for each in found if run.values.get(each.node, NOTHING).spread in (ROWS, Spread.COLUMNS)]
    elsewhere = all(_given_rows(each, event, run) is not None for each in rows) if rows else False
    together = [] if elsewhere else gathered_together(found, event, run)
    if together or (decided := agreed(event, run) if event.inside_forward else []) is None:
        yield from together or [replace(each, spread=LOCAL) for each in found]
        return
    yield from decided
    for escape in found:
        if escape.spread is COUNT and event.value.spread not in (COUNT, SUM, MEAN):
            continue  # a tensor that has as many rows as this rank has samples, kept for as many
        if run.values.get(escape.node, NOTHING).spread not in (ROWS, Spread.COLUMNS):
            yield _fresh(escape, target, run)
        elif given := _given_rows(escape, event, run):
            yield given
            yield from _taken_with(escape, event, run)
        else:
            yield replace(escape, spread=LOCAL)


def _is_learnt_from(event: Event, target: ast.expr, run: Interpreter) -> bool:
    """Whether a pass goes on with what it keeps, gradients and all, as no reduction hands them on: `self.mean = 0.9 *
    self.mean.detach() + 0.1 * x.mean(0)` ahead of `x - self.mean`."""
    if not event.inside_forward or not event.grad:
        return False
    source, statement = event.source, event.source.statement(event.node)
    below = (n for n in ast.walk(source.home(statement)) if isinstance(n, ast.expr) and n.lineno > statement.lineno)
    if not any(_is_same(each, target) and not _is_cut(each, source) for each in below):
        return False
    function = source.function(statement)
    given = {each.arg for each in function.args.args} if function is not None else set()
    return _flows(event.node, {name for name in given if _is_data(name, event, run)}, source, run, set())


def _is_data(name: str, event: Event, run: Interpreter) -> bool:
    """Whether a parameter is what a step gives the model, handed down as it is, and not what a layer has made."""
    for depth, call in reversed([*enumerate(event.calls)]):
        if call.node is None:
            return True
        things = run.values.get(call.node.func, NOTHING).things
        called = [thing.module if isinstance(thing, Wrapped) else thing for thing in things]
        if any(isinstance(thing, Object) and thing.cls is None for thing in called):
            return False  # one layer of several: `nn.Sequential(nn.Linear(8, 8), Centre())`
        given = call.given().get(name)
        if not any(getattr(each.function.node, "name", "") == "forward" for each in event.calls[:depth]):
            return given is None or not run.values.get(given, NOTHING).models
        if not isinstance(given, ast.Name) or _binds(call.source.home(call.node), given.id):
            return False
        name = given.id
    return True


def _flows(node: ast.AST, given: set[str], source: Source, run: Interpreter, seen: set[str]) -> bool:
    """Whether gradients flow to this rank's samples through an expression, names followed: not through `hits` of
    `hits = F.one_hot(found, 5).float()`, nor through zeros that ones are scattered into."""
    for name in (n for n in ast.walk(node) if isinstance(n, ast.Name) and n.id not in given | seen):
        if run.values.get(name, NOTHING).spread not in (ROWS, MEAN, SUM) or _is_cut(name, source):
            continue
        seen.add(name.id)
        written = list(_written(name.id, source.home(node)))
        if not written or any(_holds(each, source, run) or _flows(each, set(), source, run, seen) for each in written):
            return True
    return False


def _written(name: str, home: ast.AST) -> Iterator[ast.AST]:
    """What a function puts under a name, or into what it stands for: `hits[i] = h`, `hits += h`, `hits.add_(h)`."""
    for each in ast.walk(home):
        targets = each.targets if isinstance(each, ast.Assign) else [getattr(each, "target", None)]
        inside = [n for target in targets if target is not None for n in ast.walk(target)]
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr.endswith("_"):
            inside = [*ast.walk(each.func.value)]
        if any(isinstance(n, ast.Name) and n.id == name for n in inside):
            yield each


def _holds(node: ast.AST, source: Source, run: Interpreter) -> bool:
    """Whether something of samples comes from a list, a dict or an attribute, whose gradients are not followed."""
    for each in ast.walk(node):
        if not isinstance(each, ast.Name | ast.Attribute) or isinstance(each.ctx, ast.Store) or _is_cut(each, source):
            continue
        own = isinstance(each, ast.Attribute) and ast.unparse(each.value) == "self"
        value = run.values.get(each, NOTHING) if own or isinstance(each, ast.Name) else NOTHING
        if own and value.spread.is_local or any(isinstance(thing, Items | Table) for thing in value.things):
            return True
    return False


def _is_cut(node: ast.expr, source: Source) -> bool:
    """Whether no gradient leaves a statement from there: `x.detach().mean(0)`, `loss.item()`."""
    for each in itertools.takewhile(lambda each: not isinstance(each, ast.stmt), source.ancestors(node)):
        if isinstance(each, ast.Attribute) and each.attr in CUTTING | SIZES | {"data", "shape", "dtype", "device"}:
            return True
        if (
            isinstance(each, ast.Call)
            and last_name(each.func) in COUNTING | {"Parameter"}
            or isinstance(each, ast.Compare)
        ):
            return True
    return False


def _is_replaced(event: Event, run: Interpreter) -> bool:
    """Whether each pass puts something else under the same key of a dict: `features[name] = output` in a hook."""
    statement, target = event.source.statement(event.node), event.detail.const[0]
    if not event.inside_forward or not isinstance(statement, ast.Assign):
        return False
    item = statement.targets[0]
    if not isinstance(item, ast.Subscript) or run.values.get(item.slice, NOTHING).spread.is_local:
        return False
    names = (ast.unparse(each) for each in ast.walk(statement.value) if isinstance(each, (ast.Name, ast.Attribute)))
    tables = [isinstance(thing, Table) for thing in run.values.get(item.value, NOTHING).things]
    return bool(tables) and all(tables) and ast.unparse(target) not in names


def _centred(event: Event, run: Interpreter) -> list[Escape]:
    """The means of a rank's samples from which these are taken off before they are added up, no gradients being asked
    for: `m` of `(x - m).pow(2).mean(0)`."""
    found: list[Escape] = []
    for mixing in (each for each in event.value.origins if isinstance(each, Mixing) and each.reason == STATISTIC):
        if event.grad or mixing.source.home(mixing.node) is not event.source.home(event.node):
            continue  # in a loss, or in an earlier layer, whose statistics are seen to elsewhere
        sides = operands(mixing.node) if isinstance(mixing.node, ast.BinOp) else []
        means = [each for each in sides if run.values.get(each, NOTHING).spread is MEAN]
        node, spread = (means[0], MEAN) if len(means) == 1 else (mixing.node, LOCAL)
        found.append(Escape(mixing.source, node, spread, event))
    return found


def _fresh(escape: Escape, target: ast.expr, run: Interpreter) -> Escape:
    """What a step adds to a sum, which is that of all ranks so far: `x.sum()` in `self.all = self.all + x.sum()`."""
    before = ast.unparse(target)
    added = escape.node
    while escape.spread in (COUNT, SUM) and isinstance(added, ast.BinOp) and isinstance(added.op, (ast.Add, ast.Sub)):
        parts = [added.left, added.right]
        fresh = [each for each in parts if all(ast.unparse(inner) != before for inner in ast.walk(each))]
        if len(fresh) != 1:
            break
        added = fresh[0]
    spread = run.values.get(added, NOTHING).spread
    if added is escape.node:
        return escape
    return replace(escape, node=added, spread=spread if spread in (COUNT, SUM) else LOCAL)


def _names(target: ast.expr, event: Event) -> Iterator[tuple[Source, ast.expr, set[ast.AST]]]:
    """What is written to, by the names that it has in the functions that run, with what stands around it there:
    `protos` of `def update(protos, features)`, and `bank` of `update(bank, out)`."""
    source, node, calls = event.source, event.node, list(event.calls)
    while True:
        around = itertools.takewhile(lambda each: not isinstance(each, FUNCTIONS), source.ancestors(node))
        yield source, target, set(around)
        call = calls.pop() if calls else None
        if call is None or call.node is None or not isinstance(target, ast.Name):
            return
        given = call.given().get(target.id)
        if given is None or not isinstance(given, ast.Name | ast.Attribute) or _binds(call.function.node, target.id):
            return
        source, node, target = call.source, call.node, given


def _outlives_step(target: ast.Name, event: Event, run: Interpreter) -> bool:
    """Whether a variable is handed from one training step to the next: the innermost loop trains, or one around it
    that makes no other of it, `for k in range(3): centres[k] += ...`."""
    if any(_learns(loop, run) for loop in event.loops[-1:]):
        return True
    training = [loop.node for loop in event.loops if _learns(loop, run)]
    return any(
        each in around and not _binds(each, ast.unparse(name))
        for _, name, around in _names(target, event)
        for each in training
    )


def _begins_with_batch(target: ast.Name, event: Event, run: Interpreter) -> bool:
    """Whether rows of a batch go through several steps and no further, as each batch brings its own: `for x, y in
    loader`, `for _ in range(k)`, `x = x + model(x)`."""
    if event.value.spread is not ROWS or len(event.loops) < 2:
        return False
    inner, outer = event.loops[-1].node, event.loops[-2].node
    if not isinstance(outer, ast.For) or not isinstance(inner, (ast.For, ast.While)):
        return False
    if inner not in event.source.ancestors(event.node):
        return False
    inside = {*ast.walk(inner)}
    names = (n for n in ast.walk(outer) if isinstance(n, ast.Name) and n.id == target.id and n not in inside)
    given = [each for each in names if isinstance(each.ctx, ast.Store)]
    return any(each.lineno < inner.lineno for each in given)


def _binds(loop: ast.AST, name: str) -> bool:
    """Whether a loop or a function makes a name mean something else."""
    names = (each for each in ast.walk(loop) if isinstance(each, ast.Name) and each.id == name)
    return any(isinstance(each.ctx, ast.Store) for each in names)


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


def _taken_with(escape: Escape, event: Event, run: Interpreter) -> Iterator[Escape]:
    """What a function is given besides rows that it keeps, and goes through by the same numbers: `labels` of
    `self.examples[place] = examples[i]` beside `self.labels[place] = labels[i]`."""
    call = event.calls[-1]
    items = [each for each in ast.walk(call.function.node) if isinstance(each, ast.Subscript)]
    pairs = [(each.value.id, ast.unparse(each.slice)) for each in items if isinstance(each.value, ast.Name)]
    numbers = {number for name, number in pairs if ast.unparse(escape.node) == name and number.isidentifier()}
    names = {name for name, number in pairs if number in numbers}
    for name, given in call.given().items():
        if name in names and run.values.get(given, NOTHING).spread is ROWS:
            yield Escape(call.source, given, ROWS, event)


def _placed_by_sample(node: ast.expr, source: Source, run: Interpreter) -> list[ast.expr]:
    """The rows and their numbers in `bank.index_copy_(0, numbers, rows)`."""
    call = source.parents[node]
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr not in BY_NUMBER:
        return []
    local = [each for each in call.args if run.values.get(each, NOTHING).spread.is_local]
    values = [run.values[each] for each in local]
    rows = all(value.spread is ROWS and not value.things and not value.models for value in values)
    return local if rows and len(call.args) > 2 and call.args[1] in (*local, *run.plan.reduced) else []


FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
BY_NUMBER = frozenset("index_copy_ index_add_ index_put_".split())


def _is_same(node: ast.expr, target: ast.expr) -> bool:
    """Whether a name or attribute is read that may be the target."""
    if isinstance(node, ast.Name) and isinstance(target, ast.Name):
        return node.id == target.id
    return isinstance(node, ast.Attribute) and isinstance(target, ast.Attribute) and node.attr == target.attr


def _is_another(node: ast.expr, target: ast.expr, source: Source, run: Interpreter) -> bool:
    """Whether a name is a variable of another function, which no result hands over: `n` that counts the samples, and
    `n` of `b, n, d = x.shape` in a forward pass."""
    if not isinstance(node, ast.Name) or node not in run.sources:  # in a part that no run has come to
        return False
    homes = (source.home(target), run.sources[node].home(node))
    if homes[0] is homes[1]:
        return False
    names = [[each for each in ast.walk(home) if isinstance(each, ast.Name) and each.id == node.id] for home in homes]
    own = all(any(isinstance(each.ctx, ast.Store) for each in mentions) for mentions in names)
    shared = any(isinstance(each, (ast.Global, ast.Nonlocal)) for home in homes for each in ast.walk(home))
    answers = {inner for each in ast.walk(homes[0]) if isinstance(each, ast.Return) for inner in ast.walk(each)}
    return own and not shared and answers.isdisjoint(names[0]) and all(isinstance(h, ast.FunctionDef) for h in homes)


def _is_only_handed_down(node: ast.expr, event: Event, fed: frozenset[ast.expr]) -> bool:
    """Whether a function is given it that computes a loss, but not of it: `metrics` in `loss_of(out, y, metrics)`."""
    for call in event.calls:
        names = [name for name, given in call.given().items() if given is node]
        if names:
            inside = (each for each in ast.walk(call.function.node) if isinstance(each, ast.Name))
            return not any(each.id in names and each in fed for each in inside)
    return False


def _is_called(node: ast.expr, run: Interpreter) -> bool:
    """Whether it is a method that is called, `x.sum()`."""
    parent = run.sources[node].parents.get(node) if node in run.sources else None
    return isinstance(parent, ast.Call) and parent.func is node
