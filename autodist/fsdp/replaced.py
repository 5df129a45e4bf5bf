"""Parameters whose storage a script replaces by a new tensor, `p.data = 0.9 * p.data`: FSDP goes on with the old one.

Writing the numbers into the old one is the same where nothing else holds either: a tensor that is kept under another
name, as the values before, would change with the parameter or stop following it. Weights that are put aside for a
while, and come back (`self.backup[name] = p.data`, `p.data = self.shadow[name]`), are kept as a copy.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set

from autodist.fsdp.mixed import wholes_of
from autodist.fsdp.sharding import bare, starts
from autodist.fsdp.weights import sharded_keys
from autodist.interpreter import GROWS, Event, Interpreter
from autodist.models import Keys, keys, unwrapped
from autodist.script import Model, Site
from autodist.source import Source, walk
from autodist.values import NOTHING, External, Function, Parameters, of

VIEWS = frozenset(
    "view reshape t transpose permute squeeze unsqueeze detach to cpu cuda float double half type type_as contiguous "
    "expand expand_as requires_grad_ numpy astype from_numpy as_tensor flatten asarray".split()
)
"""What may give the tensor that it is given."""
ARRAYS = ("torch", "torch.nn.functional", "numpy")
DEPTH = 6


def replaced(run: Interpreter, models: list[Model]) -> Iterator[tuple[Site, str]]:
    """Targets such as `p.data` that can be written into, each with what cuts the tensor that is put there, if it may
    be a whole one."""
    ours = sharded_keys(run, models)
    begun = starts(run, (model for model in models if not model.wrapped))
    first = min(begun.values(), default=0)
    events = [event for event in run.of("replace_data") if event.order >= first]
    aside = {site.node for site in put_aside(run, models)}
    if not events or _keeps_storage(run, ours, aside):
        return
    wholes = wholes_of(run, models)
    for event in events:
        target, source = event.node, event.source
        statement = source.parents.get(target)
        if not isinstance(target, ast.Attribute) or not isinstance(statement, ast.Assign):
            continue
        if len(statement.targets) > 1 or not _held(target.value, run) & ours:
            continue
        fresh = _is_fresh(statement.value, source, run, DEPTH) and not _is_read_after(statement, source, run, ours)
        if fresh or _is_lent(event, statement, run):
            cut = "" if wholes.is_sharded(statement.value) else f"cut_like({{}}, {source.code(target)})"
            yield Site(source, target), cut


def put_aside(run: Interpreter, models: list[Model]) -> Iterator[Site]:
    """Storage of parameters that is kept while other numbers take its place: `self.backup[name] = p.data`, ahead of
    `p.data = self.shadow[name]`. A copy is the same, since nothing changes it meanwhile."""
    ours = sharded_keys(run, models)
    for event in run.of("replace_data"):
        statement, source = event.source.parents.get(event.node), event.source
        if not isinstance(statement, ast.Assign) or not isinstance(event.node, ast.Attribute):
            continue
        block = source.block(statement)
        before = block[at - 1] if (at := block.index(statement)) else None
        if isinstance(before, ast.Assign) and len(before.targets) == 1 and isinstance(before.targets[0], ast.Subscript):
            if source.code(before.value) == source.code(event.node) and _held(event.node.value, run) & ours:
                if _is_lent(event, statement, run) or _is_fresh(statement.value, source, run, DEPTH):
                    yield Site(source, before.value)


WRITING = ("step", "own_step", "model_load_state_dict", "draw_parameters", "write_part")
"""What changes parameters where they lie."""


def _is_lent(event: Event, statement: ast.Assign, run: Interpreter) -> bool:
    """Whether what takes the place of a parameter's storage, and has a name of its own, is not told from a copy:
    nothing is written until another one takes the place, or the name is given up, `self.backup = {}`."""
    value, source = statement.value, event.source
    if not isinstance(value, ast.Subscript) or not isinstance(value.value, (ast.Name, ast.Attribute)):
        return False
    kept = source.code(value.value)
    home = source.home(statement)
    later = (n for n in walk(home) if isinstance(n, ast.stmt) and n.lineno > (statement.end_lineno or 0))
    if any(_empties(each, kept) for each in later):
        return True
    for each in (e for e in run.of("replace_data") if e.node is event.node):
        others = (e.order for e in run.of("replace_data") if e.order > each.order and e.node is not event.node)
        if any(e.kind in WRITING for e in run.events[each.order + 1 : min(others, default=len(run.events))]):
            return False
    return True


def _empties(statement: ast.stmt, kept: str) -> bool:
    match statement:
        case ast.Assign(targets=[target], value=ast.Dict(keys=[]) | ast.Call(func=ast.Name(id="dict"), args=[])):
            return ast.unparse(target) == kept
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=value, attr="clear"))):
            return ast.unparse(value) == kept
    return False


def _held(node: ast.expr, run: Interpreter) -> Keys:
    """The modules one of whose parameters an expression is, or is computed from."""
    things = (t for t in run.values.get(node, NOTHING).things if isinstance(t, Parameters) and t.one)
    return keys(bare(each) for t in things for each in unwrapped(of(t.module)))


def _is_fresh(node: ast.expr, source: Source, run: Interpreter, depth: int) -> bool:
    """Whether an expression makes a tensor that nothing else holds."""
    match node:
        case ast.BinOp() | ast.UnaryOp():
            return True
        case ast.Attribute(value=value, attr="data"):
            return _is_fresh(value, source, run, depth)
        case ast.Name(id=name) if depth:
            home = source.home(node)
            bound = [n.value for n in walk(home) if isinstance(n, ast.Assign) and _binds(n, name)]
            named = [n for n in walk(home) if isinstance(n, ast.Name) and n.id == name]
            stored = [n for n in named if isinstance(n.ctx, ast.Store)]
            alone = len(stored) == len(bound) and not any(_is_kept(n, source) for n in named)
            return bool(bound) and alone and all(_is_fresh(each, source, run, depth - 1) for each in bound)
        case ast.Call() if depth:
            return _makes(node, source, run, depth)
    return False


def _makes(call: ast.Call, source: Source, run: Interpreter, depth: int) -> bool:
    """Whether what is called gives a tensor of its own."""
    things = run.values.get(call.func, NOTHING).things
    functions = [t for t in things if isinstance(t, Function)]
    if functions:
        return len(functions) == len(things) and all(_gives(each, run, depth - 1) for each in functions)
    known = [t.name.rpartition(".") for t in things if isinstance(t, External)]
    if known:
        library, _, name = known[0]
        if library not in ARRAYS or name.endswith("_"):
            return False
        return name not in VIEWS or bool(call.args) and _is_fresh(call.args[0], source, run, depth)
    if not isinstance(call.func, ast.Attribute) or things or call.func.attr.endswith("_"):
        return False
    return call.func.attr not in VIEWS or _is_fresh(call.func.value, source, run, depth)


def _gives(function: Function, run: Interpreter, depth: int) -> bool:
    """Whether a function returns a tensor of its own, but for what it is given in place of none: `if old is None`"""
    node = function.node
    if isinstance(node, ast.Lambda):
        return _is_fresh(node.body, function.source, run, depth)
    returns = [n for n in walk(node) if isinstance(n, ast.Return) and function.source.function(n) is node]
    asked = [n for n in returns if not _is_for_none(function.source.parents.get(n))]
    return bool(asked) and all(n.value is not None and _is_fresh(n.value, function.source, run, depth) for n in asked)


def _is_for_none(node: ast.AST | None) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith(" is None") and not node.orelse


def _binds(assign: ast.Assign, name: str) -> bool:
    return len(assign.targets) == 1 and isinstance(assign.targets[0], ast.Name) and assign.targets[0].id == name


def _is_kept(node: ast.expr, source: Source) -> bool:
    """Whether something is put elsewhere as it is: `self.old[name] = new`, `rows.append(new)`"""
    parent = source.parents.get(node)
    while isinstance(parent, ast.Attribute) and parent.attr in ("data", "grad") and isinstance(parent.ctx, ast.Load):
        parent = source.parents.get(parent)
    if isinstance(parent, (ast.Assign, ast.AnnAssign)) and parent.value is not None:
        targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target]
        inside = any(n is node for n in walk(parent.value))
        return inside and not all(isinstance(t, ast.Attribute) and t.attr in ("data", "grad") for t in targets)
    if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute):
        return parent.func.attr in GROWS
    return isinstance(parent, (ast.List, ast.Tuple, ast.Dict, ast.ListComp, ast.DictComp, ast.Yield, ast.Return))


def _keeps_storage(run: Interpreter, ours: Keys, aside: Set[ast.AST]) -> bool:
    """Whether the storage of a parameter is kept in something that lasts: `self.backup[name] = p.data`"""
    for node in run.values:
        if isinstance(node, ast.Attribute) and node.attr == "data" and isinstance(node.ctx, ast.Load):
            if node in aside:
                continue
            parent = run.sources[node].parents.get(node)
            to_names = isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Name)
            paired = isinstance(parent, ast.Tuple) and _unpacks(parent, run.sources[node])
            if _is_kept(node, run.sources[node]) and not to_names and not paired and _held(node.value, run) & ours:
                return True
    return False


def _unpacks(pair: ast.Tuple, source: Source) -> bool:
    """`old, new = p.data, q.data`"""
    assign = source.parents.get(pair)
    return isinstance(assign, ast.Assign) and all(
        isinstance(t, ast.Tuple) and all(isinstance(n, ast.Name) for n in t.elts) for t in assign.targets
    )


def _is_read_after(statement: ast.Assign, source: Source, run: Interpreter, ours: Keys) -> bool:
    """Whether a name for the storage before is read once it is replaced."""
    home = source.home(statement)
    end = statement.end_lineno or statement.lineno
    names: set[str] = set()
    for each in walk(home):
        pairs: list[tuple[ast.expr, ast.expr]] = []
        if (
            isinstance(each, ast.Assign)
            and isinstance(each.targets[0], ast.Tuple)
            and isinstance(each.value, ast.Tuple)
        ):
            pairs = list(zip(each.targets[0].elts, each.value.elts, strict=False))
        elif isinstance(each, ast.Assign):
            pairs = [(each.targets[0], each.value)]
        for name, value in pairs:
            if isinstance(name, ast.Name) and isinstance(value, ast.Attribute) and _held(value, run) & ours:
                names.add(name.id)
    reads = (n for n in walk(home) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and n.id in names)
    return any(n.lineno > end for n in reads)
