"""Where a batch size is set, and whether each rank may take its part of it."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Mapping

from autodist.interpreter import Event, Interpreter, Plan
from autodist.placement import Shard
from autodist.placement.filled import KEEPING, short
from autodist.program import VIEWS, Operation, closure, held
from autodist.rule import Severity
from autodist.script import Concern, Site
from autodist.solve.steps import steps_of
from autodist.source import Source, argument, first_index, last_name, walk
from autodist.values import NOTHING, Draw, Object, Path_, Table

KEYS = frozenset(["init_hidden", "initHidden", "init_state", "size", "Size"])
SAMPLING = frozenset(["sample", "rsample"])
SHAPES = frozenset(
    "view reshape randn zeros ones rand full empty expand repeat randint normal init_hidden new_zeros new_ones "
    "new_full Tensor FloatTensor LongTensor fill_ eye resize resize_ uniform split chunk new_empty randperm "
    "permutation multinomial binomial standard_normal".split()
)
REPEATING = frozenset("repeat expand tile repeat_interleave stack cat".split())
STACKING = frozenset(["stack", "cat"])
STATEMENTS = 200
REFILLING = frozenset("copy_ normal_ uniform_ fill_ resize_ resize_as_ random_".split())


def shard_sites(run: Interpreter, trained: set[tuple[int, Path_]]) -> frozenset[tuple[int, Path_]]:
    """Keys of the loaders to shard: those that train, and what else the same call makes if nothing tells them apart."""
    keys = set(trained)
    by_node: dict[ast.AST, list[tuple[Object, Mapping[str, object]]]] = {}
    for event in run.events:
        if event.kind == "loader":
            for thing in event.value.objects("loader"):
                by_node.setdefault(thing.node, []).append((thing, dict(event.detail.const)))
    for made in by_node.values():
        if any(t.key in trained for t, _ in made) and any(t.key not in trained for t, _ in made):
            if training_switch(made, trained) is None:
                keys |= {t.key for t, _ in made}
    return frozenset(keys)


def training_switch(made: list[tuple[Object, Mapping[str, object]]], trained: set[tuple[int, Path_]]) -> str | None:
    """The expression that is true where a shared call makes a training loader."""
    training = [dict(names) for thing, names in made if thing.key in trained]
    others = [dict(names) for thing, names in made if thing.key not in trained]
    shuffles = {argument(thing.node, "shuffle", 2) for thing, _ in made}
    named = {each.id for each in shuffles if isinstance(each, ast.Name)}
    return distinguishing(training, others, named.pop() if len(named) == 1 else None)


def batch_size_sites(run: Interpreter, plan: Plan) -> list[Site]:
    """Uses of a training loader's batch size that build or shape tensors in a training step: a rank has its share."""
    assert plan.sharded is not None
    names: set[str] = set()
    literals: set[object] = set()
    for event in run.events:
        if event.kind == "loader" and any(
            t.key in plan.sharded and not run.is_sharded(t) for t in event.value.objects("loader")
        ):
            for node in _sizes_of(event, run):
                if (name := _setting(node)) is not None:
                    names.add(name)
                elif isinstance(node, ast.Constant) and node.value != 1:
                    literals.add(node.value)
    drawn = [draw for event in run.of("draw") for draw in event.value.things if isinstance(draw, Draw)]
    drawn = [draw for draw in drawn if plan.shares(draw.node)]
    shared = {draw.node for draw in drawn}
    whole = {each for draw in drawn if (each := _parameter_of(draw)) is not None}
    names |= {last_name(draw.size) for draw in drawn if isinstance(draw.size, (ast.Name, ast.Attribute))}
    made = (run.loops_of.get(draw.size, set()) for draw in drawn if draw.size is not None)  # in a generator of batches
    steps = run.step_loops.union(*made)
    return [
        Site(source, use)
        for use, source in run.sources.items()
        if isinstance(use, ast.expr)
        and (
            _is_named(use, names)
            or isinstance(use, ast.Constant)
            and use.value in literals
            and _counts_rows(use, source)
        )
        and ((source.function(use), _setting(use)) in whole or not _is_also_other(use, source, run, names))
        and not run.counts_samples(use)  # `batch_size = x.shape[0]` is this rank's already
        and not _is_read_off(use, source)
        and not _is_told_sizes(use, source, run)
        and shared.isdisjoint(source.ancestors(use))
        and not any(_is_in(steps, bound, run) for bound in _bound(use, source, names))
        and (
            _is_in(steps, use, run)
            and _goes_through(source.parents[use], source, run, plan) == {True}
            or (_is_in(steps, use, run) or _is_given_for_losses(use, source, run))
            and _is_given_to_shape(use, source, run, names, whole)
            or any(
                shapes_tensors(
                    each,
                    source,
                    run,
                    _is_in(steps, use, run)
                    or _is_refilled(use, source)
                    or _fills_for_steps(use, source, run, steps)
                    or _repeats_for_losses(use, source, run),
                )
                for each in (use, *(_used_as(use, source) if _is_in(steps, use, run) else ()))
            )
        )
    ]


def reckoned_by(run: Interpreter) -> list[tuple[Site, ast.expr | None]]:
    """Where a script computes by the batch size that it reads off a training loader, outside of its steps: how many of
    them there are, `epochs * len(data) // loader.batch_size`, or how large they are. It means that of all ranks. With
    each comes the loader, where it may be one that is not shared out."""
    steps, found = run.step_loops, list[tuple[Site, ast.expr | None]]()
    named: dict[tuple[ast.AST, str], list[ast.expr]] = {}
    for node, source in run.sources.items():
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound = source.statement(node)
            value = bound.value if isinstance(bound, ast.Assign) else node
            named.setdefault((source.home(node), node.id), []).append(value)
    for use, source in run.sources.items():
        if not isinstance(use, (ast.Name, ast.Attribute)) or not isinstance(use.ctx, ast.Load):
            continue
        told = named.get((source.home(use), use.id), []) if isinstance(use, ast.Name) else [use]
        shared = {each for size in told for each in _shared_by(size, run)}
        if True in shared and not _is_in(steps, use, run) and _is_reckoned_with(use, source):
            if shared == {True}:
                found.append((Site(source, use), None))
            elif isinstance(use, ast.Attribute):
                found.append((Site(source, use), use.value))
    return found


def _shared_by(node: ast.expr, run: Interpreter) -> set[bool]:
    """Whether ranks have their shares of the batches of each loader that `loader` may be in `loader.batch_size`."""
    if not isinstance(node, ast.Attribute) or node.attr != "batch_size":
        return {False}
    loaders = [*run.values.get(node.value, NOTHING).objects("loader")]
    return {run.shares_out(each) and not run.is_sharded(each) for each in loaders} or {False}


def _is_reckoned_with(use: ast.expr, source: Source) -> bool:
    """Whether a number is computed from it that shapes no tensor and cuts nothing."""
    around = source.parents.get(use)
    if isinstance(around, ast.Call) and last_name(around.func) in ("int", "float"):
        around = source.parents.get(around)
    if not isinstance(around, ast.BinOp):
        return False
    outer = [around, *itertools.takewhile(lambda each: isinstance(each, ast.expr), source.ancestors(around))]
    shaping = (isinstance(each, ast.Call) and last_name(each.func) in SHAPES for each in outer)
    return not any(shaping) and not any(isinstance(each, (ast.Slice, ast.Subscript, ast.Tuple)) for each in outer)


def _sizes_of(event: Event, run: Interpreter) -> Iterator[ast.expr]:
    """What a loader is told for the batch size, and what calls told the functions that make it:
    `make_loader(data, args.batch_size_in_gpu)`."""
    assert isinstance(event.node, ast.Call)
    node = argument(run.filled_in(event.node), "batch_size", 1) or _in_settings(event.node, "batch_size", run)
    for call in reversed(event.calls):
        if node is None:
            return
        yield node
        told = call.function.given(call.node, node.id) if isinstance(node, ast.Name) and call.node else None
        node = told if _setting(told) is not None else None
    if node is not None:
        yield node


def whole_and_shared(run: Interpreter) -> Iterator[Concern]:
    """Loops through as many samples as a whole batch has, which are given batches of which a rank has a share, too."""
    for loop, source in run.sources.items():
        if _goes_through(loop, source, run, run.plan) != {True, False} or not isinstance(loop, ast.expr):
            continue
        message = (
            f"{source.code(loop)} goes through whole batches here, and elsewhere through those of which a rank has a "
            "share: count the samples that there are, len() of the tensor"
        )
        yield Concern("AD902", source, loop, message, Severity.REFUSAL)


def _goes_through(over: ast.AST, source: Source, run: Interpreter, plan: Plan) -> set[bool]:
    """Whether a loop through as many samples as a loader or draw is told takes those of tensors of which a rank has its
    share, or of whole ones, or both: ``for i in range(batch_size): loss += criterion(out[i], y[i])``."""
    loop = source.parents.get(over)
    if not isinstance(loop, (ast.For, ast.AsyncFor, ast.comprehension)) or not isinstance(loop.target, ast.Name):
        return set()
    if not isinstance(over, ast.Call) or last_name(over.func) != "range" or not over.args:
        return set()
    told = over.args[-1]
    if not isinstance(told, (ast.Name, ast.Attribute)) or [ast.unparse(each) for each in over.args[:-1]] not in (
        [],
        ["0"],
    ):
        return set()
    inside = source.parents[loop] if isinstance(loop, ast.comprehension) else loop
    found = set[bool]()
    for each in (part for part in walk(inside) if isinstance(part, ast.Subscript) and isinstance(part.value, ast.Name)):
        first, held = first_index(each), run.values.get(each.value, NOTHING)
        sizes = [
            argument(t.node, "batch_size", 1)
            for t in held.origins
            if isinstance(t, Object) and "loader" in t.roles and isinstance(t.node, ast.Call)
        ]
        sizes += [t.size for t in held.origins if isinstance(t, Draw) and plan.shares(t.node)]
        named = {last_name(size) for size in sizes if isinstance(size, (ast.Name, ast.Attribute))}
        if isinstance(first, ast.Name) and first.id == loop.target.id and not held.things and last_name(told) in named:
            found |= {isinstance(lying, Shard) and not lying.axis for lying in run.lies(each.value)}
    return found


def _setting(node: ast.expr | None) -> str | None:
    """What a setting is called: `batch_size`, `args.batch_size`, `config["batch_size"]`."""
    if isinstance(node, (ast.Name, ast.Attribute)):
        return last_name(node)
    key = node.slice if isinstance(node, ast.Subscript) else None
    return key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else None


def _is_named(use: ast.expr, names: set[str]) -> bool:
    """Whether a setting is read that goes by one of these names."""
    return isinstance(getattr(use, "ctx", None), ast.Load) and _setting(use) in names


def _is_also_other(use: ast.expr, source: Source, run: Interpreter, names: set[str]) -> bool:
    """Whether this is a parameter of a function that is told the batch size in one place and another number in the
    next: `noise(batch_size)` and `noise(25)`. It becomes a rank's share where it is given."""
    given = _told(use, source, run, left_out=True)
    told = {_is_named(node, names) for node in given if not run.counts_samples(node)}
    return len(told) > 1


def _told(use: ast.expr, source: Source, run: Interpreter, left_out: bool = False) -> list[ast.expr]:
    """What calls give the parameter that is read here; its default as well, where they leave it out."""
    home = source.function(use) if isinstance(use, ast.Name) else None
    if not isinstance(home, ast.FunctionDef) or not isinstance(use, ast.Name):
        return []
    calls = (each for each in run.sources if isinstance(each, ast.Call))
    called = [
        (call, each) for call in calls for each in run.values.get(call.func, NOTHING).functions if each.node is home
    ]
    given = [each.given(call, use.id) for call, each in called]
    default = _default(home, use.id) if left_out else None
    return [node for node in (each or default for each in given) if node is not None]


def _default(function: ast.FunctionDef, name: str) -> ast.expr | None:
    """What a parameter is where a call does not tell it."""
    spec = function.args
    positional = [*spec.posonlyargs, *spec.args]
    told = dict(zip((each.arg for each in positional[::-1]), spec.defaults[::-1], strict=False))
    named = zip((each.arg for each in spec.kwonlyargs), spec.kw_defaults, strict=True)
    return {**told, **{key: value for key, value in named if value is not None}}.get(name)


def _is_told_sizes(use: ast.expr, source: Source, run: Interpreter) -> bool:
    """Whether a parameter is given nothing but sizes of tensors, which are a rank's own where its samples are in them:
    `self.init_hidden(x.size(1))`, also by another name."""
    given = _told(use, source, run)
    return bool(given) and all(_reads_size(each) or _is_read_off(each, run.sources[each]) for each in given)


def told_sizes(use: ast.expr, source: Source, run: Interpreter) -> list[ast.expr]:
    """The tensors whose sizes calls give the parameter that is read here, or a variable has been given: `x` of
    `noise(x.size(0))`, and of `count = x.shape[0]; noise(count)`."""
    return list(_sizes(use, source, run, MOST_STEPS))


MOST_STEPS = 4
"""So many variables and parameters hand on a size."""


def _sizes(use: ast.expr, source: Source, run: Interpreter, steps: int) -> Iterator[ast.expr]:
    given = [(each, run.sources[each]) for each in _told(use, source, run)]
    given += [(each, source) for each in _bound_to(use, source)]
    for each, home in given:
        if _reads_size(each) or isinstance(each, ast.Attribute) and each.attr == "shape":  # `count, width = x.shape`
            yield from (n.value for n in walk(each) if isinstance(n, ast.Attribute) and n.attr in ("size", "shape"))
        elif isinstance(each, ast.Name) and steps:
            yield from _sizes(each, home, run, steps - 1)


def _reads_size(node: ast.expr) -> bool:
    """`x.size(1)`, `x.shape[1]`"""
    inner = node.value if isinstance(node, ast.Subscript) else node.func if isinstance(node, ast.Call) else None
    inner = inner.func if isinstance(inner, ast.Call) else inner  # `x.size()[1]`
    return isinstance(inner, ast.Attribute) and inner.attr in ("size", "shape")


def _is_read_off(use: ast.expr, source: Source) -> bool:
    """Whether a variable is bound to the size of a tensor: `batch_size, channels = x.shape`."""
    sizes = (n for value in _bound_to(use, source) for n in walk(value) if isinstance(n, ast.Attribute))
    return any(size.attr in ("size", "shape") for size in sizes)


def _bound_to(use: ast.expr, source: Source) -> list[ast.expr]:
    """What a variable is assigned in its function, or in the file."""
    home = source.home(use)
    bound = [each for each in walk(home) if isinstance(each, ast.Assign)] if isinstance(use, ast.Name) else []
    names = [(n, each.value) for each in bound for t in each.targets for n in walk(t) if isinstance(n, ast.Name)]
    return [value for name, value in names if name.id == getattr(use, "id", None)]


def _parameter_of(draw: Draw) -> tuple[ast.AST | None, str | None] | None:
    """The function that draws whole batches, of which each rank then takes its share, and the parameter that tells it
    their size: `def get_batch(split, batch_size)`."""
    home = draw.source.function(draw.node)
    name = draw.size.id if isinstance(draw.size, ast.Name) else None
    named = [*home.args.args, *home.args.kwonlyargs] if home is not None else []
    return (home, name) if any(each.arg == name for each in named) else None


def _is_given_to_shape(
    use: ast.expr, source: Source, run: Interpreter, names: set[str], whole: set[tuple[ast.AST | None, str | None]]
) -> bool:
    """`noise(batch_size)`, of a function that draws so many: the size is a rank's share where it is given. Where the
    function calls it by a name of the batch size, or draws a ``whole`` batch, it becomes one inside."""
    call = source.parents[use]
    call = source.parents[call] if isinstance(call, ast.keyword) else call
    if not isinstance(call, ast.Call) or use is call.func:
        return False
    for thing in run.values.get(call.func, NOTHING).functions:
        if isinstance(thing.node, ast.FunctionDef):
            given = [name for name in thing.parameters if thing.given(call, name) is use]
            given = [name for name in given if (thing.node, name) not in whole]
            uses = (n for n in walk(thing.node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))
            named = [n for n in uses if n.id in given]
            named = [n for n in named if n.id not in names or _is_also_other(n, thing.source, run, names)]
            if any(shapes_tensors(n, thing.source, run, True) for n in named):
                return True
    return False


def _is_in(steps: frozenset[ast.AST], node: ast.expr, run: Interpreter) -> bool:
    while isinstance(node, ast.Subscript):
        node = node.value
    return bool(run.loops_of.get(node, set()) & steps)


def _bound(use: ast.expr, source: Source, names: set[str]) -> list[ast.expr]:
    """What a local variable is bound to, where that is a batch size: `self.batch_size`, in a function that is also
    told a size. It becomes a rank's share there, not where the variable is used."""
    home = source.function(use) if isinstance(use, ast.Name) else None
    bound = (each for each in walk(home) if isinstance(each, ast.Assign)) if home is not None else ()
    values = [each.value for each in bound if any(getattr(t, "id", "") == last_name(use) for t in each.targets)]
    return [each for each in values if isinstance(each, (ast.Name, ast.Attribute)) and last_name(each) in names]


def _used_as(use: ast.expr, source: Source) -> list[ast.expr]:
    """The uses of the local variable that a batch size is bound to."""
    statement, home = source.parents.get(use), source.function(use)
    if not isinstance(statement, ast.Assign) or statement.value is not use or home is None:
        return []
    names = {target.id for target in statement.targets if isinstance(target, ast.Name)}
    loads = (n for n in walk(home) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))
    return [each for each in loads if each.id in names]


def _in_settings(call: ast.Call, name: str, run: Interpreter) -> ast.expr | None:
    """The expression that a dict of settings gives a call: `DataLoader(data, **settings)`."""
    for keyword in call.keywords if any(each.arg is None for each in call.keywords) else ():
        for thing in run.values.get(keyword.value, NOTHING).things if keyword.arg is None else ():
            if isinstance(thing, Table) and isinstance(thing.node, ast.Dict):
                keys = (getattr(key, "value", None) for key in thing.node.keys)
                found = dict(zip(keys, thing.node.values, strict=True))
                if name in found:
                    return found[name]
    return None


def _counts_rows(literal: ast.Constant, source: Source) -> bool:
    """Whether a number stands where the first axis of a tensor is told, in every step: `torch.ones(8, 1)`."""
    outer = itertools.takewhile(lambda a: not isinstance(a, (ast.For, ast.While)), source.ancestors(literal))
    for each in outer:
        if (
            isinstance(each, ast.If)
            or isinstance(each, ast.With)
            and "_grad" in source.code(each.items[0].context_expr)
        ):
            return False  # samples to look at, now and then
    inner: ast.AST = literal
    parent = source.parents[literal]
    if isinstance(parent, (ast.Tuple, ast.List)) and parent.elts[0] is literal:
        inner, parent = parent, source.parents[parent]
        return isinstance(parent, (ast.Call, ast.keyword))
    return isinstance(parent, ast.Call) and len(parent.args) > 1 and parent.args[0] is inner


def _fills_for_steps(use: ast.expr, source: Source, run: Interpreter, steps: frozenset[ast.AST]) -> bool:
    """Whether a use is in the shape of a tensor of equal numbers that is made once, for training steps alone:
    `self.real = torch.ones(self.batch_size, 1)`."""
    statement = source.statement(use)
    call = next((each for each in source.ancestors(use) if isinstance(each, ast.Call)), None)
    if call is None or not isinstance(call.func, ast.Attribute) or call.func.attr not in ("ones", "zeros", "full"):
        return False
    if not isinstance(statement, ast.Assign):
        return False
    target, value = statement.targets[0], statement.value
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        pairs = zip(target.elts, value.elts, strict=True)
        target, value = next((pair for pair in pairs if any(n is use for n in walk(pair[1]))), (target, value))
    while value is not call and isinstance(value, ast.Call):
        held = value.func.value if isinstance(value.func, ast.Attribute) else None  # `.to(device)`
        value = value.args[0] if last_name(value.func) == "Variable" and value.args else held or value.func
    if value is not call or not isinstance(target, (ast.Name, ast.Attribute)):
        return False
    kind = (ast.FunctionDef, ast.AsyncFunctionDef) if isinstance(target, ast.Name) else ast.ClassDef
    home = next((a for a in source.ancestors(statement) if isinstance(a, kind)), source.tree)
    name = ast.unparse(target)
    reads = [
        each
        for each in walk(home)
        if isinstance(each, (ast.Name, ast.Attribute)) and isinstance(each.ctx, ast.Load) and ast.unparse(each) == name
    ]
    others = [each for each in reads if not _is_assigned_back(each, source, name)]
    return bool(others) and all(run.loops_of.get(each, set()) & steps for each in others)


def _repeats_for_losses(use: ast.expr, source: Source, run: Interpreter) -> bool:
    """Whether something is repeated for each sample of a batch ahead of training, for losses to compare with:
    `target = gram(vgg(style.repeat(batch_size, 1, 1, 1)))`."""
    around = itertools.takewhile(lambda each: isinstance(each, ast.expr), source.ancestors(use))
    calls = [each for each in around if isinstance(each, ast.Call)]
    call = next((each for each in calls if last_name(each.func) in REPEATING), None)
    if call is None or run.values.get(call, NOTHING).spread.is_local:
        return False
    held = call.args[0] if last_name(call.func) in STACKING and call.args else use
    if held is not use and not (isinstance(held, ast.BinOp) and isinstance(held.left, ast.List)):
        return False
    return _reaches_losses(call, source, run)


def _reaches_losses(call: ast.Call, source: Source, run: Interpreter) -> bool:
    """Whether losses are computed from what a call gives, by the names that it goes through, and of all of it."""
    fed, reached = steps_of(run.runs.program).expressions, False
    pending: list[tuple[Source, ast.stmt]] = [(source, source.statement(call))]
    seen: set[ast.stmt] = set()
    while pending and len(seen) < STATEMENTS:
        where, statement = pending.pop()
        if statement in seen:
            continue
        seen.add(statement)
        home = where.home(statement)
        if isinstance(statement, ast.Return):
            pending += [(outer, outer.statement(each)) for each, outer in run.callers.get(home, {}).items()]
        bound = {ast.unparse(each) for target in _bound_by(statement) for each in _names_in(target, ast.Store)}
        for each in _names_in(home, ast.Load) if bound else ():
            if ast.unparse(each) in bound and not _is_bound_anew(each, statement, where):
                if _is_cut(each, where):
                    return False
                reached = reached or each in fed
                pending.append((where, where.statement(each)))
    return reached


def _is_bound_anew(read: ast.expr, binding: ast.stmt, source: Source) -> bool:
    """Whether a variable that one statement binds is bound again ahead of where it is read: `deltas = sample(n)` in
    each step, which was the name of a fixed noise before."""
    name, inner = ast.unparse(read), source.statement(read)
    while inner is not None and inner is not binding:
        block = source.block(inner)
        for earlier in reversed(block[: block.index(inner)]):
            if any(each is binding for each in walk(earlier)):
                return False
            if isinstance(earlier, ast.Assign) and name in map(ast.unparse, earlier.targets):
                return name not in map(ast.unparse, _names_in(earlier.value, ast.Load))
        around = next((each for each in source.ancestors(inner) if isinstance(each, ast.stmt)), None)
        if around is None or any(each is binding for each in walk(around)):
            return False
        inner = around
    return False


def _is_cut(node: ast.expr, source: Source) -> bool:
    """`target[: len(x)]`, which is as long as a batch, whatever it is of."""
    taken = source.parents.get(node)
    if not isinstance(taken, ast.Subscript) or taken.value is not node:
        return False
    first = first_index(taken)
    return isinstance(first, ast.Slice) and first.upper is not None


def _bound_by(statement: ast.stmt) -> list[ast.expr]:
    """What a statement binds, or a loop takes out of what it goes over."""
    if isinstance(statement, ast.For):
        return [statement.target]
    return statement.targets if isinstance(statement, ast.Assign) else []


def _names_in(node: ast.AST, context: type[ast.expr_context]) -> Iterator[ast.Name | ast.Attribute]:
    for each in walk(node):
        if isinstance(each, (ast.Name, ast.Attribute)) and isinstance(each.ctx, context):
            yield each


def _is_given_for_losses(use: ast.expr, source: Source, run: Interpreter) -> bool:
    """Whether a function is told a batch size that makes what losses are computed from."""
    call = source.parents[use]
    call = source.parents[call] if isinstance(call, ast.keyword) else call
    if not isinstance(call, ast.Call) or use is call.func or not run.values.get(call.func, NOTHING).functions:
        return False
    return _reaches_losses(call, source, run)


def _is_assigned_back(read: ast.expr, source: Source, name: str) -> bool:
    """`self.real = self.real.cuda()`, also among others of a tuple"""
    statement = source.statement(read)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return any(name in map(ast.unparse, getattr(target, "elts", [target])) for target in targets)


def _is_refilled(use: ast.expr, source: Source) -> bool:
    """Whether a use is in the shape of a tensor that is made once and filled anew in each step."""
    statement = source.statement(use)
    if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
        return False
    name = statement.targets[0].id
    home = source.home(statement)
    for call in walk(home):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in REFILLING:
            base = call.func.value
            base = base.value if isinstance(base, ast.Attribute) and base.attr == "data" else base
            if isinstance(base, ast.Name) and base.id == name:
                return True
    return False


def shapes_tensors(use: ast.expr, source: Source, run: Interpreter, in_step: bool) -> bool:
    """Whether a use builds a tensor in a training step, or reshapes one that holds this rank's samples, or takes some
    of these: `out[:batch_size]` of what was computed for two batches."""
    inner: ast.AST = use
    if in_step and _cuts_rows(use, source, run) or _goes_through_rows(use, source, run):
        return True
    for ancestor in source.ancestors(use):
        if isinstance(ancestor, ast.Call) and inner is not ancestor.func:
            called = last_name(ancestor.func) if isinstance(ancestor.func, (ast.Name, ast.Attribute)) else ""
            base = ancestor.func.value if isinstance(ancestor.func, ast.Attribute) else ancestor.func
            ours = any(isinstance(each, Shard) for each in run.lies(base))
            listed = isinstance(inner, (ast.Tuple, ast.List)) and inner.elts[0] is use
            drawn = called in SAMPLING and listed  # `prior.sample((batch_size,))`, of a distribution
            return (called in SHAPES or drawn) and (in_step or ours) or called in KEYS and in_step
        if isinstance(ancestor, ast.Compare):
            return in_step and any(map(run.counts_samples, (ancestor.left, *ancestor.comparators)))
        if isinstance(ancestor, ast.stmt):
            return False
        if isinstance(ancestor, ast.BinOp) and isinstance(ancestor.left, ast.List) and inner is ancestor.right:
            outer = source.parents[ancestor]
            return in_step and isinstance(outer, ast.Call) and last_name(outer.func) in STACKING  # `[style] * n`
        if isinstance(ancestor, ast.BinOp) and inner is ancestor.right and _counts_numbers(ancestor, run):
            return in_step  # `x.nelement() / batch_size`, of each sample
        if isinstance(ancestor, ast.BinOp):
            return in_step and isinstance(ancestor.op, ast.Mult) and _is_first_size(ancestor, source, run)
        inner = ancestor
    return False


def _counts_numbers(quotient: ast.BinOp, run: Interpreter) -> bool:
    """Whether how many numbers a rank's samples are is divided: `x.nelement() / batch_size`."""
    call = quotient.left
    if not isinstance(quotient.op, (ast.Div, ast.FloorDiv)) or not isinstance(call, ast.Call):
        return False
    named = isinstance(call.func, ast.Attribute) and call.func.attr in ("nelement", "numel") and not call.args
    return named and run.has_rows(call.func.value)  # type: ignore[attr-defined]


def _is_first_size(product: ast.BinOp, source: Source, run: Interpreter) -> bool:
    """Whether samples are reshaped to so many rows: `x.view(batch_size * steps, 4)`, `torch.reshape(x, (n * k, 4))`."""
    inner: ast.expr = product
    while isinstance(outer := source.parents[inner], ast.BinOp) and isinstance(outer.op, ast.Mult):
        inner = outer
    listed = outer if isinstance(outer, (ast.Tuple, ast.List)) and outer.elts[0] is inner else None
    call = source.parents[listed] if listed is not None else outer
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return False
    if call.func.attr not in ("view", "reshape"):
        return False
    method = run.has_rows(call.func.value)
    held = call.func.value if method else call.args[0]
    sizes = call.args if method else call.args[1:]
    return run.has_rows(held) and bool(sizes) and sizes[0] in (listed, inner)


def _cuts_rows(use: ast.expr, source: Source, run: Interpreter) -> bool:
    """`out[batch_size : 2 * batch_size]`"""
    inner, cut = use, source.parents[use]
    if isinstance(cut, ast.BinOp) and isinstance(cut.op, ast.Mult):
        inner, cut = cut, source.parents[cut]
    if not isinstance(cut, ast.Slice) or inner is cut.step:
        return False
    outer = source.parents[cut]
    first = cut if not isinstance(outer, ast.Tuple) else outer.elts[0]
    taken = source.parents[outer] if isinstance(outer, ast.Tuple) else outer
    if first is not cut or not isinstance(taken, ast.Subscript):
        return False
    return run.has_rows(taken.value) and not run.values.get(taken.value, NOTHING).things


def _goes_through_rows(use: ast.expr, source: Source, run: Interpreter) -> bool:
    """`out[torch.arange(batch_size), labels]`, also where the numbers have a name, which they may have before training
    begins."""
    call, program = source.parents[use], run.runs.program
    if not isinstance(call, ast.Call) or call.args != [use] or last_name(call.func) not in ("range", "arange"):
        return False

    def counts(index: ast.expr) -> bool:
        numbers = closure(held(program.at(index)), lambda op: op.given if _keeps_numbers(op) else ())
        return any(each.node is call for each in numbers)

    taken = {each.node for each in program.operations if each.name in ("getitem", "setitem")}
    indexed = [(each.value, each.slice) for each in taken if isinstance(each, ast.Subscript)]
    through = [(of, key.elts) for of, key in indexed if isinstance(key, ast.Tuple) and counts(key.elts[0])]
    labelled = (
        any(run.has_rows(each) and not program.at(each).things for each in labels) for _, (_, *labels) in through
    )
    return bool(through) and all(labelled) and all(run.has_rows(of) for of, _ in through)


def _keeps_numbers(operation: Operation) -> bool:
    """Whether it gives the numbers that it is given, each at its place: `torch.tensor(list(range(n))).cuda()`"""
    made = operation.name == "torch.LongTensor" or operation.known is not None and operation.known.cls == "same"
    return made or short(operation) in KEEPING - VIEWS


def distinguishing(
    these: list[dict[str, object]], others: list[dict[str, object]], best: str | None = None
) -> str | None:
    """An expression over constants in reach that holds in ``these`` contexts and in none of the ``others``; of the
    variable that is known to say ``best`` what they are for, if it tells them apart."""
    if not these or not others:
        return None
    for name in sorted(these[0], key=lambda name: (name != best, name)):
        values = {repr(names.get(name)) for names in these}
        rest = {repr(names.get(name)) for names in others}
        if len(values) == 1 and not values & rest and all(name in names for names in (*these, *others)):
            const = these[0][name]
            if const is True or const is False:
                return name if const else f"not {name}"
            if isinstance(const, str):
                return f'{name} == "{const}"' if '"' not in const else f"{name} == {const!r}"
            return f"{name} == {const!r}"
    return None
