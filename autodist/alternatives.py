"""Tests that come out alike wherever they stand, so that what one of their branches made is never met in the other.

A script that builds one model or another by `args.model` asks for that option again where it trains. Only options
that nothing sets, and names that are bound once, are sure to say the same each time.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from autodist.source import Source, all_of, last_name, walk
from autodist.values import Function, Object, Parameters, Scope, Thing, Value, Wrapped

Latest = Callable[[ast.expr], Value]
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.comprehension)
SETTING = ("setattr", "delattr", "exec", "globals", "locals")


@dataclass(frozen=True)
class Choice:
    """What decides a test: an option or a name of ``owner``, and what it is compared with."""

    owner: frozenset[Thing] | Scope
    name: str
    compared: str


Outcomes = Mapping[Choice, bool]


@dataclass(frozen=True)
class Settled:
    """What the files of a project leave as it is once it is bound."""

    attributes: frozenset[str]
    """The names of attributes that are set somewhere."""
    opaque: bool
    """Whether attributes may be set by names that are put together."""
    single: Callable[[Scope, str], bool] = field(compare=False)


@lru_cache(maxsize=1)
def settled(sources: tuple[Source, ...]) -> Settled:
    """Read from the source which attributes are set, and by which other means they may be: once for all runs."""
    nodes = [node for source in sources for node in walk(source.tree)]
    stored = {n.attr for n in nodes if isinstance(n, ast.Attribute) and not isinstance(n.ctx, ast.Load)}
    called = {last_name(n.func) for n in nodes if isinstance(n, ast.Call)}
    asked = any(isinstance(n, ast.Attribute) and n.attr == "__dict__" for n in nodes) or "vars" in called
    changed = asked and ("update" in called or any(_is_item_store(n) for n in nodes))
    known: dict[tuple[int, str], bool] = {}

    def single(scope: Scope, name: str) -> bool:
        key = (id(scope.source), name)
        if key not in known:
            known[key] = _is_bound_once(scope.source, name)
        return known[key]

    return Settled(frozenset(stored), not called.isdisjoint(SETTING) or changed, single)


def _is_item_store(node: ast.AST) -> bool:
    if not isinstance(node, ast.Subscript) or isinstance(node.ctx, ast.Load):
        return False
    base = node.value
    return isinstance(base, ast.Attribute) and base.attr == "__dict__" or isinstance(base, ast.Call)


def _is_bound_once(source: Source, name: str) -> bool:
    """Whether one statement of a file binds a name, outside of loops and functions."""
    bound = [n for n in all_of(source.tree, ast.Name) if n.id == name and not _is_load(n)]
    others = [n for n in walk(source.tree) if isinstance(n, (ast.Global, ast.Nonlocal)) and name in n.names]
    arguments = [n for n in all_of(source.tree, ast.arg) if n.arg == name]
    if len(bound) != 1 or others or arguments:
        return False
    return not any(isinstance(each, (*FUNCTIONS, *LOOPS)) for each in source.ancestors(bound[0]))


def _is_load(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Load)


def told(test: ast.expr, scope: Scope, latest: Latest, facts: Settled) -> tuple[Outcomes, Outcomes]:
    """What is known of choices where a test holds, and where it does not."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        holds, fails = told(test.operand, scope, latest, facts)
        return fails, holds
    if isinstance(test, ast.BoolOp):
        at = 0 if isinstance(test.op, ast.And) else 1
        found = {c: o for part in test.values for c, o in told(part, scope, latest, facts)[at].items()}
        return ({}, found) if at else (found, {})
    asked, compared, outcome = test, "", True
    if isinstance(test, ast.Compare):
        if len(test.ops) != 1 or not _is_literal(test.comparators[0]):
            return {}, {}
        op, asked = test.ops[0], test.left
        if isinstance(op, (ast.Lt, ast.LtE, ast.Gt, ast.GtE)):
            return {}, {}
        outcome = not isinstance(op, (ast.NotEq, ast.NotIn, ast.IsNot))
        kind = "in" if isinstance(op, (ast.In, ast.NotIn)) else "is" if isinstance(op, (ast.Is, ast.IsNot)) else "=="
        compared = f"{kind} {ast.unparse(test.comparators[0])}"
    choice = _choice(asked, compared, scope, latest, facts)
    return ({choice: outcome}, {choice: not outcome}) if choice is not None else ({}, {})


def _is_literal(node: ast.expr) -> bool:
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return all(isinstance(each, ast.Constant) for each in node.elts)
    return isinstance(node, ast.Constant)


def _choice(asked: ast.expr, compared: str, scope: Scope, latest: Latest, facts: Settled) -> Choice | None:
    if isinstance(asked, ast.Attribute) and isinstance(asked.value, ast.Name):
        things = latest(asked.value).things
        options = bool(things) and all(isinstance(t, Object) and t.name == "arguments" for t in things)
        fixed = options and not facts.opaque and asked.attr not in facts.attributes
        return Choice(things, asked.attr, compared) if fixed else None
    if isinstance(asked, ast.Name):
        home = scope.find(asked.id)
        if home is not None and home.parent is None and facts.single(home, asked.id):
            return Choice(home, asked.id, compared)
    return None


def decided(holds: Outcomes, fails: Outcomes, outcomes: Outcomes) -> bool | None:
    """Whether a test of which ``told`` says this is decided by what came out before."""
    if contradicts(holds, outcomes):
        return False
    return True if contradicts(fails, outcomes) else None


def contradicts(made: Outcomes, outcomes: Outcomes) -> bool:
    """Whether what was made where choices came out one way cannot be there where they come out another way."""
    return any(outcomes.get(choice, outcome) is not outcome for choice, outcome in made.items())


def owner_of(thing: Thing) -> Object | None:
    """The object that a thing is, wraps, belongs to or is a method of."""
    if isinstance(thing, (Wrapped, Parameters)):
        return owner_of(thing.module)
    if isinstance(thing, Function):
        return owner_of(thing.owner) if thing.owner is not None else None
    return thing if isinstance(thing, Object) else None
