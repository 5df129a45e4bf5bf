"""Whether the rounds of a loop are independent of each other, but for what they add up."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from autodist.interpreter import Interpreter
from autodist.source import Source, last_name
from autodist.values import NOTHING, External, Object, Parameters, Wrapped

READING = frozenset("pop popleft popitem readline get_nowait".split())
"""What moves on by itself."""
GROWING = frozenset("append extend insert appendleft add update".split())
DRAWING = frozenset("sample rsample choice choices integers randint".split())
SHOWING = frozenset("print set_postfix set_description write info debug".split())
LOOPS = (ast.For, ast.AsyncFor, ast.While)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
Loop = ast.For | ast.AsyncFor | ast.comprehension
Tie = tuple[ast.AST, str]


def tied(loop: Loop, source: Source, run: Interpreter) -> Iterator[Tie]:
    """What makes a round depend on those before it, and in which way."""
    body = body_of(loop, source)
    yield from _ends(body)
    yield from _names(loop, body)
    reached = {statement: _reached(statement, run) for statement in body}
    for node in (
        each for part in (*body, *(f for found in reached.values() for f in found)) for each in ast.walk(part)
    ):
        if isinstance(node, ast.Call) and (last_name(node.func) in READING or getattr(node.func, "id", "") == "next"):
            yield node, f"{ast.unparse(node)} takes what comes next, whatever the round"
        if isinstance(node, ast.Call) and _draws(node, run):
            yield node, f"{ast.unparse(node)} draws in each round, and ranks go through other rounds"
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            yield node, f"{', '.join(node.names)} may hold what another round has left"
    yield from _attributes(body, reached)
    yield from _globals(body, reached)


def _is_learnt(thing: object) -> bool:
    """Whether it is a model, or what trains one."""
    inner = thing.module if isinstance(thing, Wrapped) else thing
    return isinstance(inner, Object) and bool(inner.roles & {"module", "optimizer"})


def _draws(call: ast.Call, run: Interpreter) -> bool:
    """`policy.sample()`, `rng.choice(goals)`: what is drawn from something that the script has."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in DRAWING:
        return False
    return not any(isinstance(each, External) for each in run.values.get(call.func.value, NOTHING).things)


def goes_over_models(loop: Loop, source: Source, run: Interpreter) -> bool:
    """`for net in nets: loss += criterion(net(x), y)`"""
    targets = {each.id for each in ast.walk(loop.target) if isinstance(each, ast.Name)}
    inside = (each for part in body_of(loop, source) for each in ast.walk(part))
    names = (each for each in inside if isinstance(each, ast.Name) and each.id in targets)
    things = (thing for each in names for thing in run.values.get(each, NOTHING).things)
    return any(isinstance(thing, Parameters) or _is_learnt(thing) for thing in things)


def grows(loop: Loop) -> bool:
    """Whether a list grows by one with each round."""
    calls = (each for each in ast.walk(loop) if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute))
    return isinstance(loop, ast.comprehension) or any(last_name(each.func) in GROWING for each in calls)


def goes_by_sample(method: ast.AST) -> bool:
    """Whether a method calls itself, or goes over what something that it is given holds: `tree.children`."""
    for node in ast.walk(method):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            own = isinstance(node.func.value, ast.Name) and node.func.value.id == "self"
            if own and node.func.attr == getattr(method, "name", ""):
                return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "self":
            return True
        over = node.iter if isinstance(node, (ast.For, ast.comprehension)) else None
        if isinstance(over, ast.Attribute) and getattr(_root(over), "id", "") != "self":
            return True
    return False


def body_of(loop: Loop, source: Source) -> list[ast.AST]:
    if isinstance(loop, ast.comprehension):
        around = source.parents[loop]
        return [*loop.ifs, *(getattr(around, name) for name in ("elt", "key", "value") if hasattr(around, name))]
    return list(loop.body)


def numbers(loop: Loop) -> frozenset[str]:
    """What a loop calls the number of its round: `i` of `for i in range(n)`, `for i, row in enumerate(rows)`."""
    name = last_name(loop.iter.func) if isinstance(loop.iter, ast.Call) else ""
    target: ast.expr | None = loop.target if name == "range" else None
    if name == "enumerate":
        target = loop.target.elts[0] if isinstance(loop.target, ast.Tuple) else loop.target
    return frozenset(each.id for each in ast.walk(target) if isinstance(each, ast.Name)) if target else frozenset()


def _ends(body: Iterable[ast.AST], inner: bool = False) -> Iterator[Tie]:
    """What may end a loop before its last round."""
    for node in body:
        if isinstance(node, FUNCTIONS):
            continue
        if isinstance(node, (ast.Return, ast.Yield, ast.YieldFrom)) or isinstance(node, ast.Break) and not inner:
            yield node, "the loop may end before its last sample"
        yield from _ends(ast.iter_child_nodes(node), inner or isinstance(node, LOOPS))


# ---------------------------------------------------------------- names


class _Names:
    """A walk through a body in the order of execution: which names are read that an earlier round may have bound."""

    def __init__(self, body: list[ast.AST], bound: set[str]) -> None:
        self.stored = {n.id for part in body for n in ast.walk(part) if isinstance(n, ast.Name) and _stores(n)}
        self.summed = {name for name in self.stored if all(map(_adds, _statements_binding(name, body)))}
        self.found: list[ast.Name] = []
        self.added: set[str] = set()
        self.grown = {name: node for part in body for name, node in _grown(part)}
        self.bound = bound
        self.read: list[ast.Name] = []

    def block(self, body: Iterable[ast.AST]) -> None:
        """Go through statements, one after the other."""
        for statement in body:
            self.statement(statement)

    def statement(self, node: ast.AST) -> None:
        """Go through one of them: what it reads, what it binds, and what is inside."""
        match node:
            case ast.Assign(targets=targets, value=value):
                self.reads(value, skip=_added_to(node) if not self.bound & set(_stored(node)) else None)
                self.bind(targets)
            case ast.AugAssign(target=target, value=value):
                self.reads(value)
                if isinstance(target, ast.Name):
                    if target.id not in self.bound and target.id not in self.summed:
                        self.found.append(target)
                else:
                    self.reads(target, root=False)
            case ast.AnnAssign(target=target, value=value):
                self.reads(value)
                self.bind([target])
            case ast.For(target=target, iter=over, body=body, orelse=orelse):
                self.reads(over)
                self.bind([target])
                self.block([*body, *orelse])
            case ast.While(test=test, body=body, orelse=orelse):
                self.reads(test)
                self.block([*body, *orelse])
            case ast.If(test=test, body=body, orelse=orelse):
                self.reads(test)
                before = set(self.bound)
                self.block(body)
                one, self.bound = self.bound, before
                self.block(orelse)
                self.bound &= one
            case ast.With(items=items, body=body):
                for item in items:
                    self.reads(item.context_expr)
                    self.bind([item.optional_vars] if item.optional_vars is not None else [])
                self.block(body)
            case ast.Try(body=body, handlers=handlers, orelse=orelse, finalbody=final):
                before = set(self.bound)
                self.block([*body, *orelse])
                for handler in handlers:
                    after, self.bound = self.bound, set(before)
                    self.block(handler.body)
                    self.bound = after
                self.block(final)
            case ast.FunctionDef(name=name):
                self.bound.add(name)
            case ast.Expr(value=ast.Call(func=function)) if last_name(function) in SHOWING:
                pass  # what is shown is nothing that a model learns from
            case ast.stmt() | ast.expr():
                self.reads(node)
            case _:
                pass

    def bind(self, targets: Iterable[ast.AST]) -> None:
        """Names hold something of this round; what is written into has to be known."""
        for target in targets:
            if isinstance(target, (ast.Tuple, ast.List, ast.Starred)):
                self.bind(ast.iter_child_nodes(target))
            elif isinstance(target, ast.Name):
                self.bound.add(target.id) if target.id not in self.summed else None
            elif isinstance(target, (ast.Subscript, ast.Attribute)):
                self.reads(target, root=False)

    def reads(self, node: ast.AST | None, skip: ast.AST | None = None, root: bool = True) -> None:
        """Note the names that an expression reads, but for those that it binds itself."""
        if node is None:
            return
        first = _root(node) if not root else None
        own = {
            name.id
            for each in ast.walk(node)
            for target in _own_targets(each)
            for name in ast.walk(target)
            if isinstance(name, ast.Name)
        }
        own |= {each.arg for each in ast.walk(node) if isinstance(each, ast.arg)}
        grown = {id(held) for _, held in _grown(node)}
        for each in ast.walk(node):
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load) and each is not skip and each is not first:
                if each.id in own or each.id in self.bound or id(each) in grown:
                    continue
                if each.id in self.stored or each.id in self.grown:
                    self.found.append(each)


def _names(loop: Loop, body: list[ast.AST]) -> Iterator[Tie]:
    """Names that a round reads before it binds them, or that it adds to and reads."""
    targets = {each.id for each in ast.walk(loop.target) if isinstance(each, ast.Name)}
    walk = _Names(body, targets | set(_at_own_places(body, targets)))
    walk.block(body)
    for name in walk.found:
        yield name, f"{name.id} holds what an earlier round has left"


def _at_own_places(body: list[ast.AST], numbers: set[str]) -> Iterator[str]:
    """Lists of which each round has its own place, `x[i] = torch.tensor(x[i])`."""
    inside = [each for part in body for each in ast.walk(part)]
    at = (each for each in inside if isinstance(each, ast.Subscript) and getattr(each.slice, "id", "") in numbers)
    placed = {each.value for each in at}
    names = [each for each in inside if isinstance(each, ast.Name)]
    yield from (n.id for n in names if n in placed and all(each in placed for each in names if each.id == n.id))


def _stores(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


def _stored(statement: ast.Assign) -> Iterator[str]:
    return (n.id for target in statement.targets for n in ast.walk(target) if isinstance(n, ast.Name) and _stores(n))


def _statements_binding(name: str, body: Iterable[ast.AST]) -> list[ast.AST]:
    """What binds a name: statements, and loops or others that have it as a target."""
    found = []
    for part in body:
        for each in ast.walk(part):
            targets = [
                *getattr(each, "targets", []),
                getattr(each, "target", None),
                getattr(each, "optional_vars", None),
            ]
            inside = (n for target in targets if isinstance(target, ast.AST) for n in ast.walk(target))
            if any(isinstance(n, ast.Name) and n.id == name and _stores(n) for n in inside):
                found.append(each)
    return found


def _adds(statement: ast.AST) -> bool:
    """`total += loss`, `total = total + loss`"""
    if isinstance(statement, ast.AugAssign):
        return isinstance(statement.op, (ast.Add, ast.Sub))
    return _added_to(statement) is not None


def _added_to(statement: ast.AST) -> ast.expr | None:
    """`total` on the right of `total = total + loss - bonus`."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return None
    first = statement.value
    while isinstance(first, ast.BinOp) and isinstance(first.op, (ast.Add, ast.Sub)):
        first = first.left
    return first if first is not statement.value and ast.unparse(first) == ast.unparse(statement.targets[0]) else None


def _grown(node: ast.AST) -> Iterator[tuple[str, ast.Name]]:
    """What is put into: `losses.append(loss)`, `table[k] = loss`."""
    for each in ast.walk(node):
        held = each.func if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) else None
        if held is not None and held.attr in GROWING and isinstance(held.value, ast.Name):
            yield held.value.id, held.value
        elif isinstance(each, ast.Subscript) and isinstance(each.ctx, ast.Store):
            root = _root(each)
            if isinstance(root, ast.Name):
                yield root.id, root


def _root(node: ast.AST) -> ast.AST:
    while isinstance(node, (ast.Subscript, ast.Attribute)):
        node = node.value
    return node


def _own_targets(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, COMPREHENSIONS):
        yield from (each.target for each in node.generators)


# ---------------------------------------------------------------- attributes


def _reached(node: ast.AST, run: Interpreter) -> list[ast.AST]:
    """The functions of the project that run where ``node`` does."""
    entered: dict[ast.AST, list[ast.AST]] = {}
    for function, calls in run.callers.items():
        for call in calls:
            entered.setdefault(call, []).append(function)
    found: dict[ast.AST, None] = {}
    pending = [node]
    while pending:
        for each in ast.walk(pending.pop()):
            fresh = [function for function in entered.get(each, []) if function not in found]
            found |= dict.fromkeys(fresh)
            pending += fresh
    return [each for each in found if getattr(each, "name", "") not in ("__init__", "__getitem__")]


def _attributes(body: list[ast.AST], reached: dict[ast.AST, list[ast.AST]]) -> Iterator[Tie]:
    """Attributes that a round reads before it binds them, as the state of a recurrent model."""
    everything = [*body, *dict.fromkeys(function for found in reached.values() for function in found)]
    inside = [n for part in everything for n in ast.walk(part)]
    held = (n for n in inside if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store))
    filled = (n for part in everything for n in _filled(part) if isinstance(n, ast.Attribute))
    stored = {n.attr: n for n in (*held, *filled)}
    for attr, node in stored.items():
        for statement in body:
            parts = [statement, *reached[statement]]
            if _binds_first(statement, attr) or any(_begins_with(part, attr) for part in reached[statement]):
                break
            if any(_reads(part, attr) for part in parts):
                yield node, f"{ast.unparse(node)} holds what an earlier round has left"
                break


def _globals(body: list[ast.AST], reached: dict[ast.AST, list[ast.AST]]) -> Iterator[Tie]:
    """What functions that a round calls put into something outside of them, and read there."""
    functions = list(dict.fromkeys(function for found in reached.values() for function in found))
    everything = [*body, *functions]
    for function in functions:
        own = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and _stores(n)}
        own |= {n.arg for n in ast.walk(function) if isinstance(n, ast.arg)}
        for node in _filled(function):
            if isinstance(node, ast.Name) and node.id not in own and any(_reads_name(e, node.id) for e in everything):
                yield node, f"{node.id} holds what an earlier round has left"


def _filled(part: ast.AST) -> Iterator[ast.expr]:
    """What something is put into: `self.kept.append(x)`, `cache[k] = x`, `counts[k] += 1`."""
    for node in ast.walk(part):
        call = node.func if isinstance(node, ast.Call) else None
        if (
            isinstance(call, ast.Attribute)
            and call.attr in GROWING
            and isinstance(call.value, (ast.Name, ast.Attribute))
        ):
            yield call.value
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            inner: ast.expr = node
            while isinstance(inner, ast.Subscript):
                inner = inner.value
            yield inner


def _reads_name(part: ast.AST, name: str) -> bool:
    filled = set(_filled(part))
    loads = (n for n in ast.walk(part) if isinstance(n, ast.Name) and n.id == name and not _stores(n))
    return any(n not in filled for n in loads)


def _is_attribute(node: ast.AST, context: type[ast.expr_context]) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.ctx, context)


def _reads(part: ast.AST, attr: str) -> bool:
    """Whether an attribute is read, and not only to be added to."""
    added = {*(_added_to(each) for each in ast.walk(part)), *_filled(part)}
    return any(_is_attribute(n, ast.Load) and n.attr == attr and n not in added for n in ast.walk(part))  # type: ignore[attr-defined]


def _binds_first(statement: ast.AST, attr: str) -> bool:
    """`self.hidden = self.init_hidden()`, `out, self.hidden = ...`"""
    if not isinstance(statement, ast.Assign) or _reads(statement.value, attr):
        return False
    return any(_is_attribute(n, ast.Store) and n.attr == attr for t in statement.targets for n in ast.walk(t))  # type: ignore[attr-defined]


def _begins_with(function: ast.AST, attr: str) -> bool:
    """Whether a function binds an attribute in any case before it reads it."""
    for statement in (
        getattr(function, "body", []) if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) else []
    ):
        if _binds_first(statement, attr):
            return True
        if any(isinstance(n, ast.Attribute) and n.attr == attr for n in ast.walk(statement)):
            return False
    return False
