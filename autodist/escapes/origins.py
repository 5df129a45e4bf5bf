"""What values are computed from: the expressions that made them, and the losses that are made of them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import lru_cache

from autodist import carried
from autodist.interpreter import Interpreter
from autodist.regions import exclusive
from autodist.source import Source, all_of, walk
from autodist.spread import COUNT, LOCAL, SAME, SUM
from autodist.values import NOTHING, Draw, Function, Items, Object, Stream, Table, Turn, Value


def is_free(made: ast.expr, run: Interpreter) -> bool:
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
    for event in (
        *run.of("joined"),
        *run.of("gathered"),
    ):  # of the whole batch, so that nothing is known of what made it
        if isinstance(event.node, ast.expr):
            found |= set(all_of(event.node, ast.expr)) | roots(event.node, run, seen)
    return frozenset(found)


@lru_cache(maxsize=2)
def fed_to_losses(run: Interpreter) -> frozenset[ast.expr]:
    """The expressions that the losses are computed from, also through lists that these are put into, or drawn from:
    `batch.append(pool[i])`, `torch.cat(batch)`, `random.sample(pool, 8)`."""
    seen = set[ast.AST]()
    draws = {each.node for node in learnt_from(run) for each in _origins(node, run) if isinstance(each, Draw)}
    pools = {each.args[0] for each in draws if isinstance(each, ast.Call) and each.args}
    learnt = learnt_from(run) | pools
    lists = {thing for node in learnt for thing in run.values.get(node, NOTHING).things if isinstance(thing, Items)}
    stored = [expression for each in lists for _, expression in each.stores]
    made = [found for each in stored for found in (each, *roots(each, run, seen))]
    return learnt | {each for found in made for each in all_of(found, ast.expr)}


def trains(call: ast.Call, run: Interpreter) -> bool:
    """Whether a training step happens inside of a call."""
    return any(each.node is call for kind in ("backward", "step") for event in run.of(kind) for each in event.calls)


def is_cut(node: ast.expr, source: Source) -> bool:
    """Whether no gradient flows through a use: `out` in `out[labels == 0].detach().mean(0)`."""
    for each in source.ancestors(node):
        if not isinstance(each, ast.expr):
            return False
        if isinstance(each, ast.Attribute) and each.attr in ("data", "detach"):
            return True
    return False


def in_forward(source: Source, made: ast.expr) -> bool:
    """Whether an expression is part of a forward pass, which a rank makes of its own samples."""
    home = source.function(made)
    return home is not None and home.name == "forward"


def origins_of(node: ast.expr, value: Value, source: Source, run: Interpreter) -> list[tuple[Source, ast.expr]]:
    """Where to reduce instead of at ``node``: a name that a loop or comprehension binds takes its values from
    elsewhere, and a name with several origins may hold a sum in one case and a mean in another."""
    if not isinstance(node, (ast.Name, ast.Subscript)) or not value.spread.is_local or not value.made:
        return []
    if _bound_anywhere(node, source) and not isinstance(node, ast.Name):
        free = [site for site in sorted_sites(value) if is_free(site[1], run)]
        return [] if any(_is_by_turn(made, run) for _, made in free) else free
    sites = sorted_sites(value)
    if any(in_forward(where, made) for where, made in sites):
        return []
    if not all(is_free(made, run) and run.values.get(made, NOTHING).spread.is_reducible for _, made in sites):
        return []
    statements = [where.statement(made) for where, made in sites]
    if any(isinstance(each, ast.AugAssign) or carried.counted_up(each) for each in statements):
        return []
    if isinstance(node, ast.Name) and _bound_by_loop(node, source):
        return sites
    if any(ast.dump(each) == ast.dump(node) for _, made in sites for each in walk(made)):
        return []  # a running average, made of what it was before
    whole = (
        _is_whole_elsewhere(node, source, run) or all(made is not node for _, made in sites) and is_either(node, run)
    )
    return sites if len(sites) > 1 or whole else []


def _is_by_turn(made: ast.expr, run: Interpreter) -> bool:
    """Whether it is a number of one sample after the other, `counts[label] += guess == label`."""
    return any(isinstance(each, Turn) for part in walk(made) for each in _origins(part, run))


def _origins(node: ast.AST, run: Interpreter) -> Iterable[object]:
    return run.values.get(node, NOTHING).origins if isinstance(node, ast.expr) else ()


def _is_whole_elsewhere(node: ast.expr, source: Source, run: Interpreter) -> bool:
    """Whether another branch binds a name to what all ranks share: `seen = step * len(x)`, `else: seen = step`."""
    if not isinstance(node, ast.Name):
        return False
    home = source.function(node)
    bound = [
        (each, each.value)
        for each in walk(home or source.tree)
        if isinstance(each, ast.Assign) and any(isinstance(t, ast.Name) and t.id == node.id for t in each.targets)
    ]
    values = [run.values.get(made, NOTHING) for _, made in bound]
    shares = [each for (each, _), value in zip(bound, values, strict=True) if value.spread.is_local]
    others = [each for (each, _), value in zip(bound, values, strict=True) if not value.spread.is_local]
    return any(exclusive(source, share, other) for share in shares for other in others)


def _bound_anywhere(node: ast.expr, source: Source) -> bool:
    """Whether an expression uses a name that a comprehension around it binds."""
    return any(isinstance(n, ast.Name) and _bound_by_loop(n, source, comprehensions_only=True) for n in walk(node))


def is_sometimes_whole(node: ast.expr, source: Source, run: Interpreter) -> bool:
    """Whether an expression stands for values that are a share and for others that are global already, as `v` does in
    `for k, v in report.items()`: their sum over the ranks would count the latter several times."""
    return any(
        is_either(each, run) and (not isinstance(each, ast.Name) or _is_given(each, source, run))
        for each in walk(node)
        if isinstance(each, (ast.Name, ast.Subscript)) or isinstance(each, ast.Attribute) and _is_of_given(each, source)
    )


def is_either(node: ast.expr, run: Interpreter) -> bool:
    """Whether an expression was this rank's share one time, and global another."""
    spreads = run.spreads.get(node, set())
    return SAME in spreads and any(each.is_local for each in spreads)


def is_rebound_whole(node: ast.expr, source: Source, run: Interpreter, depth: int = 4) -> bool:
    """Whether a variable holds what a model made of a rank's rows, unless a condition has bound it meanwhile to what
    one made of rows that all ranks have: `if i % 100 == 0: fake = generator(fixed_noise)`."""
    names = {each.id: each for each in all_of(node, ast.Name) if isinstance(each.ctx, ast.Load)}
    for name, read in names.items() if depth else ():
        inside = (each for each in walk(source.home(node)) if isinstance(each, ast.Assign))
        stores: list[ast.stmt] = [each for each in inside if name in map(ast.unparse, each.targets)]
        made = [each.value for each in source.last_bound(read, stores) if isinstance(each, ast.Assign)]
        values = [(each, run.values.get(each, NOTHING)) for each in made]
        shares = [each.lineno for each, value in values if value.spread.is_local]
        others = [(each, value) for each, value in values if value.spread is SAME and not value.things]
        wholes = [each.lineno for each, _ in others if any(isinstance(n, ast.Call) for n in walk(each))]
        if shares and wholes and min(shares) < max(wholes):
            return True
        if any(is_rebound_whole(each, source, run, depth - 1) for each in made if name in _names(each)):
            return True
    return False


def _is_of_given(node: ast.Attribute, source: Source) -> bool:
    """What a method reads of another object that it is given, `other.count`, and what the two of them add up there,
    `self.count`."""
    home = next((each for each in source.ancestors(node) if isinstance(each, ast.ClassDef)), None)
    if home is None or not isinstance(node.value, ast.Name) or not is_parameter(node.value, source):
        return False
    same = (each for each in all_of(home, ast.Attribute) if each.attr == node.attr)
    others = (each.value for each in same if isinstance(each.value, ast.Name) and each.value.id != "self")
    return any(is_parameter(each, source) for each in others)


def _names(node: ast.expr) -> set[str]:
    return {each.id for each in all_of(node, ast.Name)}


def _is_given(node: ast.Name, source: Source, run: Interpreter, depth: int = 4) -> bool:
    """Whether a loop or a call gives a name its value, or what it is bound to."""
    if _bound_by_loop(node, source) or is_parameter(node, source):
        return True
    names = (each for each in walk(source.home(node)) if isinstance(each, ast.Name) and each.id == node.id)
    bound = [source.statement(each) for each in names if isinstance(each.ctx, ast.Store)]
    parts = (part for each in bound if isinstance(each, ast.Assign) for part in walk(each.value))
    either = [part for part in parts if isinstance(part, (ast.Name, ast.Subscript)) and is_either(part, run)]
    return depth > 0 and any(
        isinstance(part, ast.Subscript) or part.id != node.id and _is_given(part, source, run, depth - 1)
        for part in either
    )


def mixed_names(node: ast.expr, source: Source, run: Interpreter) -> list[ast.Name]:
    """The names in an expression that a loop binds, now to a rank's share and now to what is global already."""
    names = [each for each in all_of(node, ast.Name) if not run.values.get(each, NOTHING).models]
    kinds = {name: run.values.get(name, NOTHING).spread for name in names}
    mixed = [
        name
        for name, kind in kinds.items()
        if kind is LOCAL or kind in (SUM, COUNT) and is_sometimes_whole(name, source, run)
    ]
    return [name for name in mixed if loop_over(name, source) is not None]


def is_parameter(node: ast.Name, source: Source) -> bool:
    home = source.function(node)
    if home is None:
        return False
    return node.id in {arg.arg for arg in (*home.args.posonlyargs, *home.args.args, *home.args.kwonlyargs)}


def _bound_by_loop(node: ast.Name, source: Source, comprehensions_only: bool = False) -> bool:
    return loop_over(node, source, comprehensions_only) is not None


def loop_over(node: ast.Name, source: Source, comprehensions_only: bool = False) -> ast.expr | None:
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
            if any(isinstance(n, ast.Name) and n.id == node.id for n in walk(loop.target)):
                return loop.iter
    return None


def operands_of(node: ast.expr) -> Iterator[ast.expr]:
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


def place_of(thing: Items | Table | Object | Stream | Function) -> tuple[int, int]:
    node = getattr(thing, "node", None)
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def sorted_sites(value: Value) -> list[tuple[Source, ast.expr]]:
    """The expressions that made a value, in the order of the source."""
    return sorted(value.made, key=lambda site: (str(site[0].path), site[1].lineno, site[1].col_offset))


def roots(node: ast.expr, run: Interpreter, seen: set[ast.AST]) -> set[ast.expr]:
    """The expressions that made what ``node`` is computed from."""
    if node in seen:
        return set()
    seen.add(node)
    found: set[ast.expr] = set()
    for each in walk(node):
        if isinstance(each, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)):
            for _, made in run.values.get(each, NOTHING).made:
                found |= set(all_of(made, ast.expr)) | roots(made, run, seen)
    return found
