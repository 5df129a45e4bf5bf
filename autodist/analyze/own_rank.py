"""What a distributed script says itself of rank 0 at a place, without asking the process group."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from autodist.interpreter import Event, Interpreter
from autodist.launchers import launcher
from autodist.placement.between_ranks import is_rank
from autodist.program import Operation, Program, Value, closure
from autodist.script import Site
from autodist.solve.steps import given
from autodist.source import Source, all_of, last_name, walk
from autodist.trace.things import Sequence as Listed

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
OF_A_NODE = re.compile(r"local|gpu|device|node", re.IGNORECASE)
"""What speaks of a number within one node, which ranks of several nodes share."""
FLAG = re.compile(r"main|master|chief|rank_?(zero|0)|leader|primary", re.IGNORECASE)
"""Functions that are called to ask whether this is rank 0, and for nothing else that they may do."""
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
    program = run.runs.program
    statements = [*ahead(site.node, site.source), *_ahead_of_calls(site.source, events), *_made_by(site)]
    names = dict.fromkeys(each.name for statement in statements for each in _bindings(statement))
    flags: list[str] = []
    numbers: list[str] = []
    for name in dict.fromkeys([*names, *_parameters(site)]):
        home = _home(name, site)
        visible = [each for each in statements if home in (site.source.function(each), None)]
        if not any(_surely_binds(each, name) for each in visible) and name not in _parameters(site):
            continue
        found = [each for statement in visible for each in _bindings(statement) if each.name == name]
        read = (n for n in walk(home or site.source.tree) if isinstance(n, ast.Name) and n.id == name)
        values = [program.at(each.value or each.target) for each in found] or [program.at(each) for each in read]
        values = [each for each in values if each.operations]
        if OF_A_NODE.search(name) or early and any(map(_asks, values)):
            continue
        if values and all(_is_of_rank(each, _is_zero_test) and not _may_be(each, False) for each in values):
            if not any(each.value is not None and _asks_more(each.value, program) for each in found):
                flags.append(name)
        elif values and all(_is_of_rank(each, _is_number) for each in values):
            without = any(each.value is not None and "-1" in ast.unparse(each.value) for each in found)
            numbers.append(f"{name} in (-1, 0)" if without else f"{name} == 0")
    asked = _asked(site.source, run) if not early and not late else []
    return next(iter([*flags, *numbers, *asked]), None)


def _asks(value: Value) -> bool:
    """Whether the process group is asked for a value: `get_rank()`, which says 0 on every rank while there is none."""
    return any(each.name.startswith("torch.distributed.") for each in closure(value.operations, given))


def _asks_more(node: ast.expr, program: Program) -> bool:
    """`rank == 0 and args.save`, `rank == 0 if ddp else args.save`: what is true of rank 0 only where more is."""

    def is_surely_main(node: ast.expr) -> bool:
        return isinstance(node, ast.Constant) and node.value is True or _is_of_rank(program.at(node), _is_zero_test)

    chosen = [each for test in all_of(node, ast.IfExp) for each in (test.body, test.orelse)]
    return any(isinstance(each.op, ast.And) for each in all_of(node, ast.BoolOp)) or not all(
        map(is_surely_main, chosen)
    )


def _may_be(value: Value, constant: object) -> bool:
    return any(each is constant for _, each in value.constants)


def _is_of_rank(value: Value, kind: Callable[[Operation], bool]) -> bool:
    """Whether a value that ranks have of their own is of some kind, as in all ways in which it is given."""
    own = [each for each in value.operations if any(map(_is_number, closure([each], given)))]
    return bool(own) and all(map(kind, own))


def _is_number(operation: Operation) -> bool:
    """The number of the rank among those of all nodes: `int(os.environ["RANK"])`, `dist.get_rank()`"""
    told = closure([operation], lambda each: each.inputs[0].operations if _is_int(each) else ())
    begun = [each for each in told if not _is_int(each)]
    made = all(each.inputs[0].operations for each in told if _is_int(each))
    return made and bool(begun) and all(map(_gives_number, begun))


def _is_int(operation: Operation) -> bool:
    return operation.name == "builtins.int" and bool(operation.inputs)


def _gives_number(operation: Operation) -> bool:
    variables = [str(each) for value in operation.inputs[:1] for _, each in value.constants]
    if any(map(OF_A_NODE.search, [operation.name, *variables])):
        return False
    return is_rank(operation)


def _is_zero_test(operation: Operation) -> bool:
    """`rank == 0`, `not rank`, `rank in (-1, 0)`, and none of `rank % 8 == 0`"""
    numbers = [each for each in operation.inputs if each.operations and all(map(_is_number, each.operations))]
    told = [each.constant for each in operation.inputs if each not in numbers]
    told += [
        {part.constant for part in t.parts or ()} for e in operation.inputs for t in e.things if isinstance(t, Listed)
    ]
    short = operation.name.rpartition(".")[2]
    if not numbers or short == "not_":
        return bool(numbers)
    if operation.inputs[0] not in numbers and short != "eq":
        return False  # `0 <= rank`
    if isinstance(operation.node, ast.Compare) and any(isinstance(each, ast.NotIn) for each in operation.node.ops):
        return False
    tests = {"eq": (0, "0"), "le": (0,), "lt": (1,), "contains": ((-1, 0), (0, -1), {-1, 0})}
    return any(each in tests.get(short, ()) for each in told)


def _asked(source: Source, run: Interpreter) -> list[str]:
    """Functions that the file asks whether this is rank 0: `is_main_process()`, `utils.is_main_process()`."""
    calls = (each for each in all_of(source.tree, ast.Call) if not each.args + each.keywords)
    asking = (each for each in calls if FLAG.search(last_name(each.func) or ""))
    found = (call for call in asking if _is_of_rank(run.runs.program.at(call), _is_zero_test))
    return list(dict.fromkeys(text for text in map(ast.unparse, found) if not text.startswith("self.")))


# what is bound where


@dataclass(frozen=True)
class _Binding:
    """A name, or an attribute, that is bound; ``value`` is None where it is a part of what a call gives."""

    name: str
    target: ast.expr
    value: ast.expr | None


def _bindings(statement: ast.stmt) -> Iterator[_Binding]:
    for node in own_nodes(statement):
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                yield from _pairs(target, node.value)


def _pairs(target: ast.expr, value: ast.expr | None) -> Iterator[_Binding]:
    if isinstance(target, (ast.Name, ast.Attribute)):
        yield _Binding(ast.unparse(target), target, value)
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
