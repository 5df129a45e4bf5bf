"""Which devices a script names, and where it loads to."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from autodist.interpreter import Event, Interpreter
from autodist.project import Project
from autodist.script import Site
from autodist.source import argument, last_name
from autodist.values import Object, Scope


def loads_of(run: Interpreter) -> Iterator[tuple[Site, str]]:
    """`torch.load` calls that would put tensors on the device that saved them, and where to put them instead."""
    seen: set[ast.AST] = set()
    devices: set[Object] = set()
    for event in run.events:
        if event.kind == "make":
            devices |= set(event.value.objects("device"))
        if event.kind != "load" or event.node in seen or not isinstance(event.node, ast.Call):
            continue
        owner = event.function.owner if event.function is not None else None
        if isinstance(owner, Object) and "dataset" in owner.roles:
            continue  # data is made on the CPU
        seen.add(event.node)
        unpacks = any(isinstance(a, ast.Starred) for a in event.node.args) or any(
            not k.arg for k in event.node.keywords
        )
        if argument(event.node, "map_location", 1) is None and not unpacks:
            yield Site(event.source, event.node), _device_name(event, devices) or '"cpu"'


def _device_name(event: Event, made: set[Object]) -> str | None:
    """A variable in reach that holds one of the devices that were ``made`` before."""
    scope: Scope | None = event.scope
    while scope is not None:
        for name, value in scope.names.items():
            if any(thing in made for thing in value.things):
                return name
        scope = scope.parent
    return None


def names_device(project: Project) -> bool:
    """Whether any file speaks of a device."""
    return any(word in source.text for source in project.sources for word in ("cuda", "device", "gpu", "accelerator"))


def device_spellings(project: Project) -> Iterator[Site]:
    """Spelled-out device numbers: `"cuda:0"`, `.cuda(0)`, `.to(gpu_ids[0])`."""
    for source in project.sources:
        if "cuda" not in source.text and "gpu" not in source.text:
            continue
        for node in ast.walk(source.tree):
            if (
                (
                    isinstance(node, ast.Constant)
                    and isinstance(node.value, str)
                    and node.value.startswith("cuda:")
                    and node.value[5:].isdigit()
                )
                or isinstance(node, ast.expr)
                and _spells_device(node)
            ):
                yield Site(source, node)
            elif (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "cuda"
                and (node.args or any(k.arg == "device" for k in node.keywords))
            ):
                first = node.args[0] if node.args else None
                if (
                    isinstance(first, ast.Constant)
                    and isinstance(first.value, int)
                    or isinstance(first, (ast.Attribute, ast.Name))
                    and "gpu" in ast.unparse(first).lower()
                    or _is_of_list(first)
                ):
                    yield Site(source, node)
            elif isinstance(node, ast.Call) and last_name(node.func) == "to" and node.args:
                if _is_of_list(node.args[0]):
                    yield Site(source, node.args[0])


def _is_of_list(node: ast.expr | None) -> bool:
    """`gpu_ids[0]`, which a script may be told."""
    if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Constant):
        return False
    return isinstance(node.slice.value, int) and "gpu" in (last_name(node.value) or "").lower()


def _spells_device(node: ast.expr) -> bool:
    """`f"cuda:{gpu}"`, `"cuda:{}".format(gpu)`, `"cuda:%d" % gpu`, `"cuda:" + gpu`"""
    text: ast.expr | None = None
    if isinstance(node, ast.JoinedStr) and len(node.values) == 2:
        text = node.values[0]
    elif isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mod, ast.Add)):
        text = node.left
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        text = node.func.value
    named = isinstance(text, ast.Constant) and isinstance(text.value, str)
    return named and isinstance(text, ast.Constant) and text.value in ("cuda:", "cuda:{}", "cuda:%d", "cuda:%s")


def hidden_devices(project: Project) -> Iterator[Site]:
    """`os.environ["CUDA_VISIBLE_DEVICES"] = ...` hides the other ranks' devices."""
    for source in project.sources:
        for node in ast.walk(source.tree) if "CUDA_VISIBLE_DEVICES" in source.text else ():
            if isinstance(node, ast.Assign) and _is_visible_devices(node.targets[0]):
                yield Site(source, node)


def _is_visible_devices(node: ast.expr) -> bool:
    key = node.slice if isinstance(node, ast.Subscript) else None
    return isinstance(key, ast.Constant) and key.value == "CUDA_VISIBLE_DEVICES"


def asked_devices(hidden: Iterable[Site]) -> Iterator[tuple[Site, ast.expr]]:
    """Where a script reads what it has set there, with what that was: `len(os.environ["CUDA_VISIBLE_DEVICES"])`."""
    for site in hidden:
        assert isinstance(site.node, ast.Assign)
        value = site.node.value
        plain = isinstance(value, (ast.Constant, ast.Name, ast.Attribute))
        for node in ast.walk(site.source.home(site.node)):
            asked = isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and _is_visible_devices(node)
            if plain and asked and isinstance(node, ast.expr) and node.lineno > site.node.lineno:
                yield Site(site.source, node), value
