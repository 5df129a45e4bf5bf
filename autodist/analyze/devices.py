"""Which devices a script names, and where it loads to."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from autodist.interpreter import Event, Interpreter
from autodist.project import Project
from autodist.script import Site
from autodist.source import Source, argument, last_name
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
            yield Site(event.source, event.node), _place(event, devices, names_device(run.project))


WHERE_IT_WAS = '{"cuda:0": "cuda"}'
"""What was saved on the CPU stays there (data, the state of a generator), and the rest comes to the rank's own GPU."""
OF_MODULES = frozenset("eval train parameters named_parameters state_dict modules children zero_grad".split())
QUESTIONS = frozenset("print len int float bool isinstance hasattr sorted list max min str".split())


def _place(event: Event, devices: set[Object], named: bool) -> str:
    """Where to put what a call of `torch.load` loads."""
    device = _device_name(event, devices)
    uses = _uses(event)
    if named and not _is_of_states(uses, event.source):
        return WHERE_IT_WAS
    held = list(_entries(uses, event.source)) if named else []
    whole = any(_is_of_module(each, event.source) for each in held)
    moved = any(getattr(event.source.parents.get(each), "attr", None) in ("to", "cuda") for each in held)
    return device or (WHERE_IT_WAS if whole and not moved else '"cpu"')  # a model is used where it is


def _uses(event: Event) -> list[ast.expr]:
    """What stands for what is loaded: a name wherever it is read, or the call itself."""
    source, call = event.source, event.node
    assert isinstance(call, ast.Call)
    statement = source.statement(call)
    if not isinstance(statement, ast.Assign) or statement.value is not call:
        return [call]
    target = statement.targets[0]
    if len(statement.targets) > 1 or not isinstance(target, ast.Name):
        return []
    return _reads(target.id, statement, source)


def _reads(name: str, statement: ast.AST, source: Source) -> list[ast.expr]:
    names = (each for each in ast.walk(source.home(statement)) if isinstance(each, ast.Name) and each.id == name)
    return [each for each in names if isinstance(each.ctx, ast.Load)]


def _entries(uses: list[ast.expr], source: Source) -> Iterator[ast.expr]:
    """What stands for what is loaded, or for an entry of it: `net` after `net = checkpoint["net"]`."""
    yield from uses
    for each in uses:
        above = source.parents.get(each)
        bound = source.parents.get(above) if isinstance(above, ast.Subscript) and above.value is each else None
        if isinstance(bound, ast.Assign) and bound.value is above and isinstance(bound.targets[0], ast.Name):
            yield from _reads(bound.targets[0].id, bound, source)


def _is_of_states(uses: list[ast.expr], source: Source) -> bool:
    """Whether what is loaded are states of modules and optimizers, which go to the device of these, and numbers."""
    modules = any(isinstance(each, ast.Name) and _is_of_module(each, source) for each in uses)
    return bool(uses) and (modules or all(_is_state(each, source) for each in uses))


def _is_of_module(name: ast.expr, source: Source) -> bool:
    """`model.eval()`, `model(x)`"""
    above = source.parents.get(name)
    if isinstance(above, ast.Call):
        return above.func is name
    return isinstance(above, ast.Attribute) and above.attr in OF_MODULES


def _is_state(node: ast.AST, source: Source) -> bool:
    """Whether a checkpoint, or an entry of it, is given to `load_state_dict`, or an entry is kept or asked for that is
    no state of a generator, which is on the CPU wherever a model is."""
    inside = False
    while True:
        above = source.parents.get(node)
        if isinstance(above, ast.Subscript) and above.value is node:
            node, key = above, above.slice
        elif isinstance(above, ast.Attribute) and above.attr in ("get", "pop", "items", "keys", "values"):
            call = source.parents.get(above)
            if not isinstance(call, ast.Call):
                return False
            node, key = call, next(iter(call.args), ast.Constant(""))
        else:
            break
        if not isinstance(key, ast.Constant) or not isinstance(key.value, str) or _names_generator(key.value):
            return False
        inside = True
    if isinstance(above, ast.Call) and node is not above.func:
        name = last_name(above.func) or ""
        return name == "load_state_dict" or name in QUESTIONS
    return inside or isinstance(above, (ast.Compare, ast.Delete))


def _names_generator(key: str) -> bool:
    return any(word in key.lower() for word in ("rng", "rand", "generator"))


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


def hidden_devices(project: Project) -> Iterator[Site]:
    """`os.environ["CUDA_VISIBLE_DEVICES"] = ...` hides the other ranks' devices."""
    for source in project.sources:
        for node in ast.walk(source.tree) if "CUDA_VISIBLE_DEVICES" in source.text else ():
            if isinstance(node, ast.Assign) and _is_visible_devices(node.targets[0]):
                if not _hides_all(node.value):
                    yield Site(source, node)
            elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and _sets_visible_devices(node.value):
                yield Site(source, node)


def _hides_all(node: ast.expr) -> bool:
    """`""` or `"-1"`, for a run on the CPU, of all ranks."""
    return isinstance(node, ast.Constant) and node.value in ("", "-1")


def _sets_visible_devices(call: ast.Call) -> bool:
    """`os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")`, and that by `os.putenv` or an update with nothing else."""
    name, args = last_name(call.func), call.args
    if name in ("setdefault", "putenv", "__setitem__") and len(args) == 2:
        return isinstance(args[0], ast.Constant) and args[0].value == "CUDA_VISIBLE_DEVICES" and not _hides_all(args[1])
    if name != "update" or len(args) + len(call.keywords) != 1:
        return False
    keys = args[0].keys if args and isinstance(args[0], ast.Dict) else []
    named = [each.value for each in keys if isinstance(each, ast.Constant)] + [each.arg for each in call.keywords]
    return named == ["CUDA_VISIBLE_DEVICES"]


def _is_visible_devices(node: ast.expr) -> bool:
    key = node.slice if isinstance(node, ast.Subscript) else None
    return isinstance(key, ast.Constant) and key.value == "CUDA_VISIBLE_DEVICES"


def asked_devices(hidden: Iterable[Site]) -> Iterator[tuple[Site, ast.expr]]:
    """Where a script reads what it has set there, with what that was: `len(os.environ["CUDA_VISIBLE_DEVICES"])`."""
    for site in hidden:
        if not isinstance(site.node, ast.Assign):
            continue
        value = site.node.value
        plain = isinstance(value, (ast.Constant, ast.Name, ast.Attribute))
        for node in ast.walk(site.source.home(site.node)):
            asked = isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and _is_visible_devices(node)
            if plain and asked and isinstance(node, ast.expr) and node.lineno > site.node.lineno:
                yield Site(site.source, node), value
