"""What is asked of an expression or of a value in more than one place, and is answered without running anything."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from autodist.source import own_nodes, told_once
from autodist.values import (
    NOTHING,
    UNKNOWN,
    Class,
    External,
    Function,
    Items,
    Object,
    Scope,
    Table,
    Thing,
    Value,
    Wrapped,
    constant,
    union,
)

MODULE_METHODS = frozenset(
    "parameters named_parameters children named_children modules named_modules buffers named_buffers state_dict "
    "load_state_dict forward train eval apply to cuda cpu float double half type zero_grad requires_grad_".split()
)


SETTINGS = frozenset("lr learning_rate momentum weight_decay betas".split())
"""What groups of parameters of an optimizer have."""
OF_SETS = (ast.BitAnd, ast.BitOr, ast.BitXor, ast.Sub)
JOINS_SETS = frozenset(["union", "intersection", "difference", "symmetric_difference"])


@told_once
def returned(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> list[ast.expr]:
    """What a function may return."""
    if isinstance(function, ast.Lambda):
        return [function.body]
    return [each.value for each in own_nodes(function) if isinstance(each, ast.Return) and each.value is not None]


def is_set(value: Value) -> bool:
    """Whether a value is a set of what may be strings."""
    for thing in value.things:
        if isinstance(thing, Items) and makes_set(thing.node):
            inside = [*thing.parts, thing.element]
            return not any(part.things or isinstance(part.const, int) for part in inside)
    return False


def leaves_ties(call: ast.Call) -> bool:
    """`sorted(labels, key=len)`, which leaves labels of one length in the order in which they came."""
    keys = [each.value for each in call.keywords if each.arg == "key"]
    return not all(isinstance(each, ast.Name) and each.id in ("str", "repr", "int", "float") for each in keys)


def makes_set(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in ("set", "frozenset") or joins_sets(node)
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, OF_SETS)  # of lists there is no such result
    return isinstance(node, (ast.Set, ast.SetComp))


def joins_sets(node: ast.Call) -> bool:
    """`set(names).difference(left_out)`"""
    return isinstance(node.func, ast.Attribute) and node.func.attr in JOINS_SETS


def wrapped(value: Value, kind: str = "ddp") -> Value:
    """``value`` with its modules wrapped."""
    things: set[Thing] = set()
    for thing in value.things:
        if isinstance(thing, Object) and "module" in thing.roles:
            things.add(Wrapped(thing, kind))
        elif isinstance(thing, Wrapped) and kind != "data_parallel":
            things.add(Wrapped(thing.module, kind))
        else:
            things.add(thing)
    return value.but(things=frozenset(things))


def any_entry(table: Table) -> Value:
    """What one of the entries holds."""
    return union(table.entries.values())


def joined(states: Sequence[dict[str, Value]]) -> dict[str, Value]:
    """The names of several branches, each with what any of them may have left in it."""
    result = dict(states[0])
    for state in states[1:]:
        for name, value in state.items():
            old = result.get(name)
            result[name] = value if old is None else old if old is value else old | value
    return result


def truth(value: Value, node: ast.expr) -> bool | None:
    """Whether a test is decided: by a literal, or a constant that this call or loop was given."""
    if isinstance(node, ast.Constant):
        return bool(node.value)
    if value.const is not UNKNOWN and value.firm and not value.things:
        return bool(value.const)
    return None


def constants_in(scope: Scope) -> Value:
    """What calls and literal loops have bound to constants here."""
    names: dict[str, Any] = {}
    inner: Scope | None = scope
    while inner is not None:
        for name, value in inner.names.items():
            if value.firm and value.const is not UNKNOWN and value.const is not None and not value.things:
                names.setdefault(name, value.const)
            for table in (each for each in value.things if isinstance(each, Table) and isinstance(each.node, ast.arg)):
                for key, given in table.entries.items():  # of `**settings`
                    if isinstance(key, str) and isinstance(given.const, (str, bool, int)) and not given.things:
                        names.setdefault(f'{name}["{key}"]', given.const)
        inner = inner.parent
    return constant(tuple(sorted(names.items())))


def is_hidden(module: Object, name: str) -> bool:
    """Whether an attribute is a part of a module under the name of one of its methods, which is found before it: after
    `self.parameters = nn.ParameterList(...)`, `model.parameters()` is the method as ever."""
    if "module" not in module.roles or name not in MODULE_METHODS:
        return False
    held = module.attributes[name].things
    return any(isinstance(t, Object) and t.roles & {"module", "parameter"} for t in held)


def given_to(thing: Thing) -> list[Value]:
    return [*thing.args, *thing.keywords.values()] if isinstance(thing, Object) else []


def kept_as(thing: Object, key: object) -> Value | None:
    """What an object of a library was given of a batch by a name, or holds under it: `Output(loss=loss).loss`,
    `Output(loss=loss)["loss"]`, `Output(loss=loss)[0]`, and `.loss` after `output["loss"] = loss`."""
    if thing.cls is not None or thing.roles:
        return None
    if isinstance(key, int) and not isinstance(key, bool):
        given = [value for value in (*thing.args, *thing.keywords.values()) if value.const is not None]
        found = given[key] if -len(given) <= key < len(given) else None
    else:
        found = thing.attributes.get(f"[{key}]", thing.keywords.get(str(key)))
    return found if found is not None and found.spread.is_local else None


def first_text(values: Iterable[Value]) -> Value:
    """The first value that is a known text, as the path among what a function is given."""
    return next((value for value in values if isinstance(value.const, str)), NOTHING)


def is_above(first: ast.expr, second: ast.expr) -> bool:
    """Whether one of two expressions of a function is written before the other."""
    return (first.lineno, first.col_offset) < (second.lineno, second.col_offset)


def is_hashable(value: Any) -> bool:
    return isinstance(value, (str, int, float, bool, bytes, type(None)))


def is_entered(node: ast.Call, latest: Callable[[ast.expr], Value]) -> bool:
    """Whether a call runs code of the project, which is followed by itself."""
    applied = External("torch.utils.checkpoint.checkpoint") in latest(node.func).things
    called = node.args[0] if applied and node.args else node.func
    things = [t.module if isinstance(t, Wrapped) else t for t in latest(called).things]
    return any(isinstance(t, (Function, Class)) or isinstance(t, Object) and t.cls is not None for t in things)


def last_part(node: ast.expr) -> str:
    if isinstance(node, ast.Call):
        node = node.func
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


@told_once
def children_of(node: ast.expr) -> Sequence[ast.expr]:
    """The expressions that one is computed from."""
    if isinstance(node, ast.Call):
        receiver = [node.func.value] if isinstance(node.func, ast.Attribute) else []
        given = [arg.value if isinstance(arg, ast.Starred) else arg for arg in node.args]
        return [*receiver, *given, *(keyword.value for keyword in node.keywords)]
    if isinstance(node, (ast.List, ast.Tuple, ast.Set, ast.Dict, ast.Lambda, ast.ListComp, ast.JoinedStr)):
        return []
    return [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]


def is_known(thing: Thing) -> bool:
    """Whether all keys of a dict are known; those of `dict(settings)` and `settings["model"]` are not."""
    copied = isinstance(thing, Table) and isinstance(thing.node, ast.Call) and bool(thing.node.args)
    return isinstance(thing, Table) and (bool(thing.entries) or not copied and thing.element is NOTHING)


def adds_to(node: ast.Assign) -> bool:
    """`total = total + number`, `total = total - number + other`"""
    return bool(spine(node))


@told_once
def spine(node: ast.stmt) -> list[ast.BinOp]:
    """The sums and differences by which a statement adds to what its target holds."""
    found: list[ast.BinOp] = []
    first = node.value if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
    while isinstance(first, ast.BinOp) and isinstance(first.op, (ast.Add, ast.Sub)):
        found.append(first)
        first = first.left
    added = isinstance(node, ast.Assign) and first is not None and ast.unparse(node.targets[0]) == ast.unparse(first)
    return found if added else []


def pass_of(thing: Thing) -> str | None:
    """The method that calling a module runs, if a class of the project defines it."""
    cls = thing.cls if isinstance(thing, Object) else None
    return next((name for name in ("__call__", "forward") if cls is not None and cls.find(name)), None)


def stable_order(thing: Thing) -> tuple[str, int, int]:
    """An order that does not depend on addresses."""
    if isinstance(thing, Wrapped):
        return stable_order(thing.module)
    node = getattr(thing, "node", None)
    return (
        type(thing).__name__ + str(getattr(thing, "name", "")),
        getattr(node, "lineno", 0),
        getattr(node, "col_offset", 0),
    )


def in_order(things: frozenset[Thing]) -> Collection[Thing]:
    """Things in an order that does not depend on addresses; mostly it is one alone."""
    return things if len(things) < 2 else sorted(things, key=stable_order)


def has_state(keywords: Mapping[str, Value]) -> bool:
    """Whether a function of scikit-learn or pandas is told what to draw from."""
    return "random_state" in keywords and keywords["random_state"].const is not None


def may_spell(node: ast.expr, name: object) -> bool:
    """Whether a text that is put together may be some name: `"{}_{}".format(split, side)` is never "train"."""
    pieces = pieces_of(node)
    if not isinstance(name, str) or not any(pieces):
        return True
    return re.fullmatch(".*".join(map(re.escape, pieces)), name, re.DOTALL) is not None


def pieces_of(node: ast.expr) -> list[str]:
    """What is known of a text: the parts of it around those that are not."""
    if isinstance(node, ast.Constant):
        return [str(node.value)]
    if isinstance(node, ast.JoinedStr):
        spelt = [""]
        for each in node.values:
            spelt = _followed(spelt, [str(each.value)] if isinstance(each, ast.Constant) else ["", ""])
        return spelt
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _followed(pieces_of(node.left), pieces_of(node.right))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        form = node.func.value.value if isinstance(node.func.value, ast.Constant) else None
        if isinstance(form, str) and not re.search(r"\{\{|\}\}", form):
            return re.split(r"\{[^{}]*\}", form)
    return ["", ""]


def _followed(first: list[str], second: list[str]) -> list[str]:
    return [*first[:-1], first[-1] + second[0], *second[1:]]


def is_setting(target: ast.AST) -> bool:
    """`group["lr"]`, which is to be the same on all ranks, however it is computed."""
    key = target.slice if isinstance(target, ast.Subscript) else None
    return isinstance(key, ast.Constant) and key.value in SETTINGS
