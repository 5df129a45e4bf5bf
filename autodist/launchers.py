"""How a distributed script starts its ranks, where it does not leave that to torchrun."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from autodist.interpreter import Event, Interpreter
from autodist.project import Project
from autodist.script import Launcher, LauncherOption, Site
from autodist.source import Source, last_name, walk
from autodist.values import NOTHING, Function

ADDRESS = frozenset(["MASTER_ADDR", "MASTER_PORT", "RANK", "LOCAL_RANK", "WORLD_SIZE"])
DEVICE_CALLS = frozenset(["set_device", "device", "to", "cuda"])
DEVICE_ARGUMENTS = frozenset(["device_ids", "output_device", "device_id", "device"])
DEEPEST = 6
"""Names that a number of processes is followed through."""
_Definition = ast.FunctionDef | ast.AsyncFunctionDef


def launcher(run: Interpreter) -> Launcher | None:
    """What of a script does torchrun's work, None where nothing does."""
    spawns = [event for event in run.events if event.kind == "spawn"]
    joins = _sites(event for event in run.events if event.kind == "init_process_group")
    options = tuple(_options(run.project))
    if not joins or not (spawns or options):
        return None
    workers = [function for event in spawns for function in _workers(event, run)]
    local = tuple(_composed(run.project, workers)) if spawns else ()
    found = list(_world_sizes(run.project, joins)) if spawns else []
    sizes = tuple(site for site in found if not isinstance(site.node, ast.Attribute))
    given = tuple(_size_options(run.project, [s.node for s in found if isinstance(s.node, ast.Attribute)]))
    return Launcher(
        _sites(spawns),
        not local,
        joins,
        sizes,
        local,
        tuple(_device_numbers(run)) if spawns and not local else (),
        tuple(_addresses(run.project)),
        options,
        given,
    )


def _sites(events: Iterator[Event] | list[Event]) -> tuple[Site, ...]:
    return tuple({event.node: Site(event.source, event.node) for event in events}.values())


def _workers(event: Event, run: Interpreter) -> list[Function]:
    assert isinstance(event.node, ast.Call)
    first = next((k.value for k in event.node.keywords if k.arg == "fn"), None)
    return run.values.get(first or event.node.args[0], NOTHING).functions


def _composed(project: Project, workers: list[Function]) -> Iterator[Site]:
    """`args.rank = args.nr * args.gpus + gpu`: a worker that computes its rank from its number on the node."""
    names = {f.node.args.args[0].arg for f in workers if f.node.args.args}
    for source in project.sources:
        for node in walk(source.tree):
            if (
                isinstance(node, ast.Assign)
                and isinstance(node.value, ast.BinOp)
                and isinstance(node.value.op, ast.Add)
            ):
                sides = (node.value.left, node.value.right)
                if any(isinstance(s, ast.BinOp) and isinstance(s.op, ast.Mult) for s in sides) and any(
                    last_name(s) in names for s in sides
                ):
                    yield Site(source, node.value)


# -------------------------------------------------------------------- the number of processes


def _world_sizes(project: Project, joins: tuple[Site, ...]) -> Iterator[Site]:
    """The expressions elsewhere that compute what `init_process_group(world_size=...)` is given."""
    seen: set[ast.AST] = set()
    for site in joins:
        assert isinstance(site.node, ast.Call)
        given = next((k.value for k in site.node.keywords if k.arg == "world_size"), None)
        for root in _roots(given, site.source, project, DEEPEST) if given is not None else ():
            if root.node not in seen and (root.node is not given or _is_name(given)):
                seen.add(root.node)
                yield root


def _roots(node: ast.expr, source: Source, project: Project, depth: int) -> Iterator[Site]:
    """Where the value of an expression comes from, through names, parameters and attributes."""
    if depth == 0:
        return
    if isinstance(node, ast.Name):
        function = next((a for a in source.ancestors(node) if isinstance(a, _Definition)), None)
        assigned = list(_assigned(function or source.tree, node.id))
        if function is not None and not assigned:
            names = [a.arg for a in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
            if node.id in names:
                for given, place in _given(function.name, node.id, names.index(node.id), project):
                    yield from _roots(given, place, project, depth - 1)
                return
            assigned = list(_assigned(source.tree, node.id))
        for value in assigned:
            yield from _roots(value, source, project, depth - 1) if _is_name(value) else [Site(source, value)]
    elif isinstance(node, ast.Attribute):
        assigned_to = [
            Site(each, statement.value)
            for each in project.sources
            for statement in walk(each.tree)
            if isinstance(statement, ast.Assign)
            and any(isinstance(t, ast.Attribute) and t.attr == node.attr for t in statement.targets)
        ]
        yield from assigned_to or [Site(source, node)]
    elif not _is_environment(node):
        yield Site(source, node)


def _is_name(node: ast.expr) -> bool:
    return isinstance(node, (ast.Name, ast.Attribute))


def _is_environment(node: ast.expr) -> bool:
    return any(isinstance(n, ast.Attribute) and n.attr in ("environ", "getenv") for n in walk(node))


def _assigned(scope: ast.AST, name: str) -> Iterator[ast.expr]:
    """What is assigned to a name in a function or module, not in functions inside it."""
    pending = list(ast.iter_child_nodes(scope))
    while pending:
        node = pending.pop(0)
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
            yield node.value
        if not isinstance(node, (*_Definition.__args__, ast.Lambda, ast.ClassDef)):
            pending += ast.iter_child_nodes(node)


def _given(function: str, name: str, index: int, project: Project) -> Iterator[tuple[ast.expr, Source]]:
    """What calls of a function pass for a parameter, a launcher's among them."""
    for source in project.sources:
        for node in walk(source.tree):
            if not isinstance(node, ast.Call):
                continue
            if last_name(node.func) == function:
                named = next((k.value for k in node.keywords if k.arg == name), None)
                if named is not None or index < len(node.args):
                    yield named or node.args[index], source
            elif last_name(node.func) == "spawn" and any(last_name(a) == function for a in node.args):
                tuples = [a for a in (*node.args[1:], *(k.value for k in node.keywords)) if isinstance(a, ast.Tuple)]
                if tuples and 0 < index <= len(tuples[0].elts):
                    yield tuples[0].elts[index - 1], source


def _size_options(project: Project, attributes: list[ast.Attribute]) -> Iterator[LauncherOption]:
    """Options for the number of processes."""
    for name in dict.fromkeys(attribute.attr for attribute in attributes):
        for source in project.sources:
            for node in walk(source.tree):
                if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and _declares(node.value, name):
                    yield LauncherOption(source, node, None, name, _parsed(source))


def _declares(call: ast.Call, name: str) -> bool:
    flags = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    if last_name(call.func) != "add_argument" or not flags:
        return False
    return _destination(call, next((f for f in flags if f.startswith("--")), flags[0])) == name


# -------------------------------------------------------------------- devices, addresses, options


def _device_numbers(run: Interpreter) -> Iterator[Site]:
    """Uses of a process's number as the number of its device: they differ as soon as there are several nodes."""
    for node, source in run.sources.items():
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
            if _names_device(node, source) and run.goes_by_rank(node):
                yield Site(source, node)


def _names_device(node: ast.expr, source: Source) -> bool:
    parent = source.parents[node]
    if isinstance(parent, ast.FormattedValue):
        text = source.parents[parent]
        return isinstance(text, ast.JoinedStr) and any(
            isinstance(part, ast.Constant) and str(part.value).endswith("cuda:") for part in text.values
        )
    if isinstance(parent, ast.Call) and node in parent.args:
        return last_name(parent.func) in DEVICE_CALLS
    for ancestor in source.ancestors(node):
        if isinstance(ancestor, ast.keyword):
            return ancestor.arg in DEVICE_ARGUMENTS
        if not isinstance(ancestor, (ast.List, ast.IfExp)):
            return False
    return False


def _addresses(project: Project) -> Iterator[Site]:
    """Statements that set what torchrun sets."""
    for source in project.sources:
        for node in walk(source.tree):
            key: ast.expr | None = None
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
                target = node.targets[0]
                key = target.slice if last_name(target.value) == "environ" else None
            elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and node.value.args:
                function = node.value.func
                if isinstance(function, ast.Attribute) and function.attr == "setdefault":
                    key = node.value.args[0] if last_name(function.value) == "environ" else None
            if isinstance(key, ast.Constant) and key.value in ADDRESS:
                yield Site(source, node)


def _options(project: Project) -> Iterator[LauncherOption]:
    """The command line option by which `torch.distributed.launch` tells a process its number."""
    for source in project.sources:
        for node in walk(source.tree):
            if not isinstance(node, ast.Call) or last_name(node.func) != "add_argument" or not node.args:
                continue
            names = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            if not any(name in ("--local_rank", "--local-rank") for name in names):
                continue
            statement = source.statement(node)
            if not isinstance(statement, ast.Expr) or statement.value is not node:
                continue
            default = next((k.value for k in node.keywords if k.arg == "default"), None)
            if default is not None and _is_environment(default):
                continue
            yield LauncherOption(source, statement, default, _destination(node, "--local_rank"), _parsed(source))


def _destination(call: ast.Call, flag: str) -> str:
    for keyword in call.keywords:
        if keyword.arg == "dest" and isinstance(keyword.value, ast.Constant):
            return str(keyword.value.value)
    return flag.lstrip("-").replace("-", "_")


def _parsed(source: Source) -> ast.Assign | None:
    """`args = parser.parse_args()`"""
    for node in walk(source.tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and isinstance(node.targets[0], ast.Name):
            if last_name(node.value.func) == "parse_args":
                return node
    return None


def without(found: Launcher | None, gone: frozenset[ast.AST]) -> Launcher | None:
    """The launcher, without devices that only the arguments of wrappers name which go."""
    if found is None:
        return None

    def stays(site: Site) -> bool:
        chain = [site.node, *site.source.ancestors(site.node)]
        wrapper = next((node for node in chain if node in gone), None)
        return not isinstance(wrapper, ast.Call) or any(node in wrapper.args[:1] for node in chain)

    return replace(found, devices=tuple(site for site in found.devices if stays(site)))
