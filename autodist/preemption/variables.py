"""Variables that a loop hands on: from one round to the next, or to what follows it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import replace

from autodist.interpreter import Interpreter
from autodist.placement import Partial, Replicate
from autodist.program import Operation
from autodist.script import Running
from autodist.solve.facts import is_weighted
from autodist.source import Source, all_of, walk
from autodist.trace.things import Object as Traced
from autodist.values import NOTHING, Object

CHANGING = frozenset("append appendleft extend insert add update pop popleft remove discard clear setdefault".split())
METRICS = frozenset(["torchmetrics", "torcheval", "ignite"])
"""Libraries whose objects keep what they have seen to themselves."""
BLOCKS = (ast.For, ast.AsyncFor, ast.While, ast.If, ast.Try, ast.Match)
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
SCOPES = (*DEFINITIONS, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_Loop = ast.For | ast.While
Use = tuple[str, str]
"""A variable, and "read", "bound", or "maybe" where a branch may leave it as it is."""


def uses(nodes: Iterable[ast.AST]) -> Iterator[Use]:
    """How variables are used, in the order of the run."""
    for node in nodes:
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                yield name, "read"
            case ast.Name(id=name):
                yield name, "bound"
            case ast.Assign(value=value, targets=targets):
                yield from uses([value, *targets])
            case ast.AugAssign(value=value, target=target):
                if isinstance(target, ast.Name):
                    yield target.id, "read"
                yield from uses([value, target])
            case ast.For(iter=over, target=target, body=body, orelse=rest):
                yield from uses([over])
                yield from _branch([target, *body])
                yield from uses(rest)
            case ast.If(test=test, body=body, orelse=rest):
                yield from uses([test])
                first, other = list(uses(body)), list(uses(rest))
                both = {name for name, use in first if use == "bound"} & {name for name, use in other if use == "bound"}
                yield from (*_branch(body), *_branch(rest), *((name, "bound") for name in sorted(both)))
            case _ if isinstance(node, SCOPES):
                own = {each.id for each in walk(node) if isinstance(each, ast.Name) and _stores(each)}
                own |= {each.arg for each in walk(node) if isinstance(each, ast.arg)}
                yield from ((name, "read") for name in sorted(_names(node) - own))
            case _ if isinstance(node, BLOCKS):
                yield from _branch(ast.iter_child_nodes(node))
            case _:
                yield from uses(ast.iter_child_nodes(node))


def _branch(nodes: Iterable[ast.AST]) -> Iterator[Use]:
    """The same of what may be run, or not."""
    found = list(uses(nodes))
    yield from ((name, "read") for name in sorted(_read_first(found)))
    yield from ((name, "maybe") for name in sorted({name for name, use in found if use != "read"}))


def _stores(name: ast.Name) -> bool:
    return not isinstance(name.ctx, ast.Load)


def _read_first(found: Iterable[Use]) -> set[str]:
    """Variables that are read with what they have had before."""
    wanted, settled = set(), set()
    for name, use in found:
        if use == "read" and name not in settled:
            wanted.add(name)
        elif use == "bound":
            settled.add(name)
    return wanted


def _following(loop: ast.stmt, source: Source) -> Iterator[ast.AST]:
    """What may run after a loop, in its function: what follows it, and the next round of a loop around it."""
    inner: ast.AST = loop
    home = source.home(loop)
    while inner is not home:
        assert isinstance(inner, ast.stmt)
        around = source.parents[inner]
        if isinstance(around, (ast.For, ast.While)) and inner in around.body:
            at = around.body.index(inner)
            yield from around.body[at + 1 :]
            yield from [around.test] if isinstance(around, ast.While) else [around.target]
            yield from around.body[:at]
        elif not isinstance(inner, ast.ExceptHandler):
            block = source.block(inner)
            yield from block[block.index(inner) + 1 :]
        while not isinstance(around, (ast.stmt, ast.Module)):  # `except`, `case`
            around = source.parents[around]
        inner = around


def running(loop: _Loop, source: Source, run: Interpreter, without: ast.stmt | None = None) -> list[Running]:
    """The variables that a loop hands on. ``without`` is a statement in it that hands on variables of its own, and
    after which a round always goes on to its end."""
    body: list[ast.AST] = [each for each in loop.body if each is not without]
    target: list[ast.AST] = [loop.target] if isinstance(loop, ast.For) else []
    round_ = list(uses([*target, *body]))
    bound = {name for name, use in round_ if use != "read"}
    later = _read_first(uses(_following(loop, source))) & bound
    if without is not None:
        later -= {name for name, use in round_ if use == "bound"}
    ahead = {name for name, use in uses(_ahead(loop, source)) if use != "read"}
    ahead |= {each.arg for each in walk(source.home(loop)) if isinstance(each, ast.arg)}
    within = [part for each in (*target, *body) for part in walk(each)]
    numbers = _names(loop.target) if without is not None and isinstance(loop, ast.For) else set()
    kept = (_read_first(round_) & bound | later) - numbers
    found = {}
    for name in sorted(kept):
        stores = [n for n in within if isinstance(n, ast.Name) and n.id == name and _stores(n)]
        if not any(_has_role(each, run) for each in stores):
            over = _over_ranks(stores, run)
            if over == "same" and any(_goes_by_rank(each, loop, source, run) for each in stores):
                over = "own"
            found[name] = Running(name, over, name in ahead)
    made = {name for name, use in round_ if use == "bound"} - kept
    called = [part for each in _methods(within, loop, source) for part in walk(each)]
    for node in (*within, *called):
        for each in _changed(node, run) if isinstance(node, ast.stmt) else ():
            if node in called and not each.code.startswith("self."):
                continue
            if each.code.partition(".")[0] not in made:
                apart = each.over_ranks == "same" and _goes_by_rank(node, loop, source, run)
                each = replace(each, over_ranks="own") if apart else each
                known = found.get(each.code, each)
                found[each.code] = each if known.over_ranks == each.over_ranks else replace(each, over_ranks="own")
    attributes = [n for n in (*within, *called) if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)]
    read = {ast.unparse(n) for n in attributes if isinstance(n.ctx, ast.Load)}
    for code in sorted({ast.unparse(n) for n in attributes if not isinstance(n.ctx, ast.Load)} & read - found.keys()):
        set_there = [n for n in attributes if ast.unparse(n) == code and not isinstance(n.ctx, ast.Load)]
        if not any(_has_role(n, run) or _has_role(n.value, run) for n in set_there):
            found[code] = Running(code, _over_ranks(set_there, run))
    return list(found.values())


def _methods(nodes: Iterable[ast.AST], loop: ast.stmt, source: Source) -> list[ast.FunctionDef]:
    """The methods of the same object that a loop calls."""
    cls = next((each for each in source.ancestors(loop) if isinstance(each, ast.ClassDef)), None)
    own = {each.name: each for each in cls.body if isinstance(each, ast.FunctionDef)} if cls is not None else {}
    found: list[ast.FunctionDef] = []
    pending = list(nodes)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            method = own.get(node.attr)
            if method is not None and method not in found:
                found.append(method)
                pending += walk(method)
    return found


def _names(node: ast.AST) -> set[str]:
    return {each.id for each in walk(node) if isinstance(each, ast.Name)}


def _ahead(loop: ast.stmt, source: Source) -> Iterator[ast.AST]:
    """What has run before a loop, in its function."""
    home = source.home(loop)
    inner: ast.AST = loop
    while inner is not home:
        assert isinstance(inner, ast.stmt)
        yield from source.before(inner)
        inner = source.parents[inner]
        while not isinstance(inner, (ast.stmt, ast.Module)):
            inner = source.parents[inner]
        if isinstance(inner, ast.For):
            yield inner.target


def _has_role(node: ast.expr, run: Interpreter) -> bool:
    """Whether it is a module, an optimizer or the like, whose state a checkpoint holds."""
    return any(isinstance(each, Object) and each.roles for each in run.values.get(node, NOTHING).things)


def _of_attribute(name: str, thing: Object, run: Interpreter) -> str:
    """The same of an attribute: "held" where it is a module or the like, whose state is not for it to keep."""
    things = thing.attributes[name].things
    if any(isinstance(each, Object) and each.roles for each in things):
        return "held"
    traced = (each for each in run.runs.program.at(thing.node).things if isinstance(each, Traced))
    held = [each.attributes[name].value.operations for each in traced if name in each.attributes]
    return "own" if things else _joined(frozenset().union(*held), run)


def _over_ranks(stores: Iterable[ast.expr], run: Interpreter) -> str:
    found = {_joined(run.runs.program.at(each).operations, run) for each in stores}
    found = found - {"same"} or found
    return next(iter(found)) if len(found) == 1 else "own"


def _joined(made: frozenset[Operation], run: Interpreter) -> str:
    """How it lies over the ranks, in the words of a checkpoint; where an evaluation comes to it, too, in which all
    ranks have the same, as in training."""
    lying = run.placements.joint(each for each in made if run.placements.of.get(each) != Replicate())
    if lying is None or isinstance(lying, Replicate):
        return "same"
    plain = isinstance(lying, Partial) and lying.reduce in ("mean", "sum") and not is_weighted(lying)
    return lying.reduce if plain and isinstance(lying, Partial) else "own"


def _changed(node: ast.stmt, run: Interpreter) -> Iterator[Running]:
    """What a statement changes in place: a list that grows, an attribute that counts, an object of the script."""
    call = node.value if isinstance(node, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
        target, given = call.func.value, [*call.args, *(each.value for each in call.keywords)]
        changes = call.func.attr in CHANGING or call.func.attr.endswith("_") and not call.func.attr.startswith("_")
    elif isinstance(node, (ast.Assign, ast.AugAssign)):
        target, given = node.target if isinstance(node, ast.AugAssign) else node.targets[0], [node.value]
        changes = (
            isinstance(target, ast.Subscript) or isinstance(node, ast.AugAssign) and not isinstance(target, ast.Name)
        )
    else:
        return
    root = target
    while isinstance(root, ast.Subscript):
        given.append(root.slice)
        root = root.value
    if not isinstance(root, (ast.Name, ast.Attribute)) or ast.unparse(root) == "self" or _has_role(root, run):
        return
    if isinstance(root, ast.Attribute) and _has_role(root.value, run):
        return
    things = [each for each in run.values.get(root, NOTHING).things if isinstance(each, Object)]
    ours = [each for each in things if each.cls is not None and not each.is_writer]
    if ours and root is target and call is not None:
        spreads = {name: _of_attribute(name, each, run) for each in ours for name in each.attributes}
        yield Running(ast.unparse(root), "own", attributes=tuple(sorted(spreads.items())))
    elif any(each.name.partition(".")[0] in METRICS for each in things):
        yield Running(ast.unparse(root), "own", attributes=(("", "held"),))
    elif changes and all(each.name.startswith("collections.") or each.cls is not None for each in things):
        over = _over_ranks(given, run)
        grows = isinstance(call, ast.Call) and root is target and over == "mean" and call.func.attr == "append"  # type: ignore[attr-defined]
        counts = isinstance(target, ast.Attribute) and isinstance(node, ast.AugAssign)
        yield Running(ast.unparse(root), over if over == "same" or grows or counts else "own")


def _goes_by_rank(node: ast.AST, loop: ast.stmt, source: Source, run: Interpreter) -> bool:
    """Whether a rank's own samples decide if a statement of a loop is run, or how often."""
    for above in source.ancestors(node):
        if above is loop:
            return False
        asked = (
            above.test if isinstance(above, (ast.If, ast.While)) else above.iter if isinstance(above, ast.For) else None
        )
        if asked is not None and not all(map(run.is_alike, all_of(asked, ast.expr))):
            return True
    return False
