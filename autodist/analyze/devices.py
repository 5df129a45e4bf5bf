"""Which devices a script names, and where it loads to."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator

from autodist.analyze.device_numbers import spells_device
from autodist.interpreter import Event, Interpreter
from autodist.models.moves import held_by, is_to_device
from autodist.project import Project
from autodist.script import Site
from autodist.source import Source, all_of, argument, last_name, walk
from autodist.values import NOTHING, External, Object, Scope


def loads_of(run: Interpreter) -> Iterator[tuple[Site, str]]:
    """`torch.load` and `torch.jit.load` calls that would put tensors on the device that saved them, and where to put
    them instead."""
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
            place = _place(event, devices, run)
            if place is not None:
                yield Site(event.source, event.node), place


WHERE_IT_WAS = '{"cuda:0": "cuda"}'
"""What was saved on the CPU stays there (data, the state of a generator), and the rest comes to the rank's own GPU."""
QUESTIONS = frozenset("print len int float bool isinstance hasattr sorted list max min str range".split())
TYPES = ("torch.float", "torch.half", "torch.double", "torch.bfloat", "dtype")
PLAIN = (
    "epoch step iter best loss acc score metric arg config cfg hparam setting history seed name arch version".split()
)
"""What numbers and settings of a checkpoint are called."""


def _place(event: Event, devices: set[Object], run: Interpreter) -> str | None:
    """Where to put what a call of `torch.load` loads. What `torch.jit.load` loads is a model, which is run where the
    script has its device, if it names one."""
    uses, source, named = _uses(event), event.source, names_device(run.project)
    assert isinstance(event.node, ast.Call)
    called = run.values.get(event.node.func, NOTHING).things
    if any(isinstance(t, External) and t.name == "torch.jit.load" for t in called):
        device = _device_name(event, devices)
        return device if device or named else '"cpu"'
    states = bool(uses) and all(_is_state(each, source) for each in uses)
    if named and not states and not any(_is_moved(each, source) for each in uses):
        return WHERE_IT_WAS
    return _device_name(event, devices) or '"cpu"'


def _is_moved(name: ast.expr, source: Source) -> bool:
    """`model.to(device)`: a model that is brought to its device may come from anywhere."""
    above = source.parents.get(name)
    call = source.parents.get(above) if isinstance(above, ast.Attribute) and above.attr in ("to", "cuda") else None
    asked = argument(call, "device", 0) if isinstance(call, ast.Call) and call.func is above else None
    return isinstance(above, ast.Attribute) and (above.attr == "cuda" or asked is not None and not _is_type(asked))


def _is_type(node: ast.expr) -> bool:
    """`torch.float16`, as which a model stays where it is"""
    return ast.unparse(node).startswith(TYPES)


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
    names = (each for each in walk(source.home(statement)) if isinstance(each, ast.Name) and each.id == name)
    return [each for each in names if isinstance(each.ctx, ast.Load)]


def _is_state(node: ast.AST, source: Source) -> bool:
    """Whether a checkpoint, or an entry of it, is given to `load_state_dict`, or an entry is a number or a setting: no
    module, which is used where it is, and no state of a generator, which is on the CPU wherever a model is."""
    keys: list[str] = []
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
        keys.append(key.value)
    if isinstance(above, ast.Call) and node is not above.func:
        name = last_name(above.func) or ""
        return name == "load_state_dict" or name in QUESTIONS
    if not keys or isinstance(above, (ast.Compare, ast.Delete, ast.BinOp)):
        return isinstance(above, (ast.Compare, ast.Delete, ast.BinOp))
    if isinstance(above, ast.Assign) and isinstance(above.targets[0], ast.Name) and not _is_plain(keys[-1]):
        reads = _reads(above.targets[0].id, above, source)
        return any(_is_moved(each, source) for each in reads) or all(_is_state(each, source) for each in reads)
    return _is_plain(keys[-1]) or isinstance(above, (ast.For, ast.comprehension))


def _is_plain(key: str) -> bool:
    """Whether an entry is a number or a setting by its name."""
    return any(word in key.lower() for word in PLAIN)


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
    return any(
        word in source.text for source in project.sources for word in ("cuda", "device", "gpu", "accelerator", "xpu")
    )


def takes_gpu(module: Object, run: Interpreter) -> bool:
    """Whether a model surely goes to a GPU where there is one, whatever the options: it is moved there, and to nothing
    that a setting chooses."""
    moves = [event for event in run.of("move") if module.key in held_by(event) and is_to_device(event, run)]
    return bool(moves) and all(_goes_to_gpu(event, run) for event in moves)


def _goes_to_gpu(event: Event, run: Interpreter) -> bool:
    call = event.node
    assert isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
    places = [(each.node, each.source) for each in event.calls if each.node is not None] + [(call, event.source)]
    tests = [a.test for node, source in places for a in source.ancestors(node) if isinstance(a, ast.If)]
    chosen = [test for test in tests if any(word in ast.unparse(test).lower() for word in ("cuda", "gpu", "device"))]
    if not all(_is_answer(test, _has_gpu, run) for test in chosen):
        return False
    asked = argument(call, "device", 0)
    return call.func.attr == "cuda" or asked is not None and _is_answer(asked, _is_gpu, run)


Answers = Callable[[ast.expr, Interpreter, frozenset[str]], bool]


def _is_answer(node: ast.expr, answers: Answers, run: Interpreter, seen: frozenset[str] = frozenset()) -> bool:
    """Whether an expression, or whatever the project binds the name to that it is, is of a kind."""
    name = last_name(node) if isinstance(node, (ast.Name, ast.Attribute)) else None
    if name is None or answers(node, run, seen):
        return answers(node, run, seen)
    trees = (source.tree for source in run.project.sources if name in source.text)
    bound = [
        each
        for tree in trees
        for each in all_of(tree, ast.Assign, ast.AnnAssign)
        if isinstance(each, (ast.Assign, ast.AnnAssign)) and name in map(last_name, _targets(each))
    ]
    values = [each.value for each in bound if isinstance(each, ast.Assign)]
    others = [v for v in values if not (isinstance(v, (ast.Name, ast.Attribute)) and last_name(v) == name)]
    if name in seen or not others or any(isinstance(each, ast.AnnAssign) for each in bound):
        return False  # it may be an option
    return all(_is_answer(value, answers, run, seen | {name}) for value in others)


def _targets(node: ast.Assign | ast.AnnAssign) -> list[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else [node.target]


def _has_gpu(node: ast.expr, run: Interpreter, seen: frozenset[str]) -> bool:
    """`torch.cuda.is_available()`"""
    asks = ("cuda.is_available()", "accelerator.is_available()", "cuda.device_count() > 0")
    return ast.unparse(node).endswith(asks) and not isinstance(node, (ast.BoolOp, ast.UnaryOp))


def _is_gpu(node: ast.expr, run: Interpreter, seen: frozenset[str]) -> bool:
    """`"cuda"`, `torch.device("cuda" if torch.cuda.is_available() else "cpu")`, `local_rank`"""
    if isinstance(node, ast.IfExp):
        missing = isinstance(node.test, ast.UnaryOp) and isinstance(node.test.op, ast.Not)
        test = node.test.operand if isinstance(node.test, ast.UnaryOp) else node.test
        there, other = (node.orelse, node.body) if missing else (node.body, node.orelse)
        return (
            "cpu" in ast.unparse(other)
            and _is_answer(test, _has_gpu, run, seen)
            and _is_answer(there, _is_gpu, run, seen)
        )
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and node.value.startswith("cuda") or type(node.value) is int
    if isinstance(node, ast.Call) and last_name(node.func) == "device" and node.args:
        return _is_answer(node.args[0], _is_gpu, run, seen)
    if "current_accelerator()" in ast.unparse(node) or spells_device(node):
        return True
    return isinstance(node, (ast.Name, ast.Attribute)) and (last_name(node) or "").endswith("rank")


def hidden_devices(project: Project) -> Iterator[Site]:
    """`os.environ["CUDA_VISIBLE_DEVICES"] = ...` hides the other ranks' devices."""
    for source in project.sources:
        for node in walk(source.tree) if "CUDA_VISIBLE_DEVICES" in source.text else ():
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
        for node in walk(site.source.home(site.node)):
            asked = isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and _is_visible_devices(node)
            if plain and asked and isinstance(node, ast.expr) and node.lineno > site.node.lineno:
                yield Site(site.source, node), value
