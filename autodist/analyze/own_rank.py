"""What a distributed script says itself of rank 0 at a place, without asking the process group."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from autodist.interpreter import Event, Interpreter
from autodist.launchers import launcher
from autodist.script import Site
from autodist.source import Source, last_name
from autodist.spread import RANK
from autodist.values import NOTHING, Scope

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
OF_A_NODE = re.compile(r"local|gpu|device", re.IGNORECASE)
"""What speaks of a number within one node, which ranks of several nodes share."""
FLAG = re.compile(r"main|master|chief|rank_?(zero|0)|leader|primary", re.IGNORECASE)
ASKING = re.compile(rf"get_rank|{FLAG.pattern}", re.IGNORECASE)
"""Functions that ask the process group, and say 0 on every rank while there is none."""
RANK_VARIABLE = re.compile(r"[\"']RANK[\"']|torchrun|torch\.distributed\.(launch|run)|env://")
"""What a script speaks of that torchrun starts, or what sets the same variables."""


def is_told_rank(run: Interpreter) -> bool:
    """Whether the variable RANK says which rank this is, unless the script takes it from somewhere else."""
    numbered = any(
        keyword.arg == "rank"
        for event in run.of("init_process_group")
        if isinstance(event.node, ast.Call)
        for keyword in event.node.keywords
    )
    known = any(RANK_VARIABLE.search(source.text) for source in run.project.sources)
    return known or not numbered or launcher(run) is not None


def own_test(run: Interpreter, site: Site, events: Sequence[Event], early: bool, late: bool) -> str | None:
    """What the script says itself of rank 0, where all ways to a statement have bound it: `master_process`, or
    `rank == 0`. Ahead of the process group and after it, nothing that asks the group."""
    statements = [*ahead(site.node, site.source), *_ahead_of_calls(site.source, events), *_made_by(site)]
    scope = next((event.scope for event in events), None)
    names = dict.fromkeys(each.name for statement in statements for each in _bindings(statement))
    flags: list[str] = []
    numbers: list[str] = []
    for name in dict.fromkeys([*names, *_parameters(site)]):
        home = _home(name, site)
        visible = [each for each in statements if home in (site.source.function(each), None)]
        if not any(_surely_binds(each, name) for each in visible) and name not in _parameters(site):
            continue
        found = [each for statement in visible for each in _bindings(statement) if each.name == name]
        if OF_A_NODE.search(name) or any(_is_of_a_node(each.value) or early and _asks(each.value) for each in found):
            continue
        values = [each.value for each in found if each.value is not None and not _is_constant(each.value)]
        if not all(run.values.get(value, NOTHING).spread is RANK for value in values):
            continue
        if not values and not _is_of_a_rank(name, scope):
            continue
        if all(_is_zero_test(value, run) for value in values) if values else FLAG.search(name):
            flags.append(name)
        elif "rank" in name.lower() and not any(isinstance(value, (ast.Compare, ast.BoolOp)) for value in values):
            without = any(each.value is not None and "-1" in ast.unparse(each.value) for each in found)
            numbers.append(f"{name} in (-1, 0)" if without else f"{name} == 0")
    asked = _asked(site.source, run) if not early and not late else []
    return next(iter([*flags, *numbers, *asked]), None)


def _is_constant(value: ast.expr) -> bool:
    """`0`, `-1`, `True`"""
    return isinstance(value.operand if isinstance(value, ast.UnaryOp) else value, ast.Constant)


def _is_of_a_node(value: ast.expr | None) -> bool:
    """`args.local_rank`, which is 0 once on each node."""
    return value is not None and OF_A_NODE.search(ast.unparse(value)) is not None


def _asks(value: ast.expr | None) -> bool:
    """`get_rank()`, and what a function gives that cannot be seen."""
    calls = [each for each in ast.walk(value) if isinstance(each, ast.Call)] if value is not None else []
    return value is None or any(ASKING.search(last_name(call.func) or "") for call in calls)


def _is_of_a_rank(name: str, scope: Scope | None) -> bool:
    """Whether a variable has come to differ by rank."""
    held = scope.find(name) if scope is not None else None
    return held is not None and held.names[name].spread is RANK


def _is_zero_test(value: ast.expr, run: Interpreter) -> bool:
    """`rank == 0`, `not rank`, `not ddp or rank == 0`, `rank == 0 if ddp else True`, `is_main_process()`."""
    match value:
        case ast.Compare(left=ast.BinOp()):
            return False  # `rank % 8 == 0`
        case ast.Compare(ops=[op], comparators=[other]):
            asked = f"{type(op).__name__} {ast.unparse(other)}"
            return asked in ("Eq 0", "LtE 0", "Lt 1", "In (-1, 0)", "In [-1, 0]", "In {-1, 0}", "In (0, -1)")
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return (ast.unparse(operand).rpartition(".")[2] + " ").lower().endswith("rank ")
        case ast.BoolOp(op=ast.Or(), values=values):
            tests = [each for each in values if run.values.get(each, NOTHING).spread is RANK]
            return bool(tests) and all(_is_zero_test(each, run) for each in tests)
        case ast.IfExp(body=body, orelse=orelse):
            return all(ast.unparse(each) == "True" or _is_zero_test(each, run) for each in (body, orelse))
        case ast.Call(func=func):
            return FLAG.search(last_name(func) or "") is not None
    return False


def _asked(source: Source, run: Interpreter) -> list[str]:
    """Functions that the file asks whether this is rank 0: `is_main_process()`, `utils.is_main_process()`."""
    calls = (each for each in ast.walk(source.tree) if isinstance(each, ast.Call) and not each.args + each.keywords)
    return list(
        dict.fromkeys(
            ast.unparse(call)
            for call in calls
            if FLAG.search(last_name(call.func) or "") and run.values.get(call, NOTHING).spread is RANK
            if not (isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value).startswith("self"))
        )
    )


# what is bound where


@dataclass(frozen=True)
class _Binding:
    """A name, or an attribute, that is bound; ``value`` is None where it is a part of what a call gives."""

    name: str
    value: ast.expr | None


def _bindings(statement: ast.stmt) -> Iterator[_Binding]:
    for node in own_nodes(statement):
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                yield from _pairs(target, node.value)


def _pairs(target: ast.expr, value: ast.expr | None) -> Iterator[_Binding]:
    if isinstance(target, (ast.Name, ast.Attribute)):
        yield _Binding(ast.unparse(target), value)
    elif isinstance(target, (ast.Tuple, ast.List)):
        same = isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts)
        for index, each in enumerate(target.elts):
            yield from _pairs(each, value.elts[index] if same and isinstance(value, ast.Tuple) else None)


def _surely_binds(statement: ast.stmt, name: str) -> bool:
    """Whether a name is bound once a statement has run."""

    def one_of(block: Sequence[ast.stmt]) -> bool:
        return any(_surely_binds(each, name) for each in block)

    match statement:
        case ast.If(body=body, orelse=orelse):
            return all(one_of(each) or leaves(each) for each in (body, orelse))
        case ast.With(body=body):
            return one_of(body)
        case ast.Try(body=body, handlers=handlers, finalbody=final):
            return one_of(final) or one_of(body) and all(one_of(each.body) or leaves(each.body) for each in handlers)
        case ast.Assign() | ast.AnnAssign():
            return any(each.name == name for each in _bindings(statement))
    return False


def _parameters(site: Site) -> list[str]:
    function = site.source.function(site.node)
    return [each.arg for each in (*function.args.args, *function.args.kwonlyargs)] if function is not None else []


def _home(name: str, site: Site) -> ast.AST | None:
    """The function around a statement that a name belongs to; None if it is the module's, or an object's."""
    root = name.partition(".")[0]
    for around in site.source.ancestors(site.node):
        if isinstance(around, FUNCTIONS):
            given = [*around.args.posonlyargs, *around.args.args, *around.args.kwonlyargs]
            if root != name and given and given[0].arg == root:
                return None  # `self.rank`
            if any(each.arg == root for each in given) or any(
                isinstance(each, ast.Name) and each.id == root and isinstance(each.ctx, ast.Store)
                for statement in around.body
                for each in own_nodes(statement)
            ):
                return around
    return None


def _ahead_of_calls(source: Source, events: Sequence[Event]) -> list[ast.stmt]:
    """The statements of a module that are run ahead of all of its calls that lead to what happens."""
    calls = [event.calls[0] for event in events if event.calls]
    found = [call.node for call in calls if call.node is not None and call.source is source]
    if len(found) < len(calls) or any(source.function(node) is not None for node in found) or not found:
        return []
    return list(ahead(min(found, key=lambda node: node.lineno), source))


def _made_by(site: Site) -> list[ast.stmt]:
    """The body of `__init__`, which has run before another method of the object does."""
    method = site.source.function(site.node)
    made = site.source.parents.get(method) if method is not None else None
    if method is None or method.name == "__init__" or not isinstance(made, ast.ClassDef):
        return []
    return [s for each in made.body if isinstance(each, ast.FunctionDef) and each.name == "__init__" for s in each.body]


# the statements of a function, in the order in which they are run


def ahead(node: ast.AST, source: Source, until: ast.AST | None = None) -> Iterator[ast.stmt]:
    """The statements that are run before one is, in its function and those around that, the nearest first."""
    statement = source.statement(node)
    while True:
        parent = source.parents[statement]
        if not isinstance(parent, ast.ClassDef):
            block = source.block(statement)
            yield from reversed(block[: block.index(statement)])
        while not isinstance(parent, (ast.stmt, ast.Module)):
            parent = source.parents[parent]
        if not isinstance(parent, ast.stmt) or parent is until:
            return
        statement = parent


def own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """What stands in a statement, but for the functions that it defines."""
    if not isinstance(node, (*FUNCTIONS, ast.Lambda, ast.ClassDef)):
        yield node
        for child in ast.iter_child_nodes(node):
            yield from own_nodes(child)


def leaves(block: Sequence[ast.stmt]) -> bool:
    """Whether nothing that follows a block is run after it."""
    return any(isinstance(each, (ast.Return, ast.Raise, ast.Continue, ast.Break)) or exits(each) for each in block)


def exits(statement: ast.stmt) -> bool:
    """`sys.exit()`"""
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and last_name(call.func) in ("exit", "_exit", "quit")
