"""Layers that a module holds in lists, of which some may be left out: picked, drawn, or run for nobody to read."""

from __future__ import annotations

import ast

from autodist.interpreter import Interpreter
from autodist.models.reading import binds, called_parts, is_own, is_set_later, methods_of, own_parts, reads_of
from autodist.source import Source, argument, last_name
from autodist.values import NOTHING, External, Object


def picks(module: Object, run: Interpreter) -> bool:
    """Whether a forward pass runs one of the layers that the module holds in a list or dict, and another pass another
    one, `self.heads[task](x)`, or always the same: `self.heads[0](x)`."""
    held = {name for name, value in module.attributes.items() if any(map(_is_held_layers, value.things))}
    methods = methods_of(module.cls) if module.cls is not None and held else {}
    if "forward" not in methods or module.cls is None:
        return False
    called = [methods[name] for name in (reads_of("forward", methods) | {"forward"}) & methods.keys()]
    picked: set[str] = set()
    whole: set[str] = set()
    always: dict[str, set[str]] = {}
    for cls in module.cls.line():
        for node in (each for method in called for each in ast.walk(method) if is_own(each) and each.attr in held):
            around = cls.source.parents.get(node)
            if isinstance(around, ast.Subscript) and around.value is node:
                if _is_one_of(around.slice, cls.source, run):
                    picked.add(node.attr)
                elif isinstance(around.slice, (ast.Constant, ast.UnaryOp)):  # `[0]`, `[-1]`
                    always.setdefault(node.attr, set()).add(ast.unparse(around.slice))
                else:
                    whole.add(node.attr)
            elif around is not None and not (isinstance(around, ast.Call) and ast.unparse(around.func) == "len"):
                whole.add(node.attr)
    picked |= {name for name, keys in always.items() if len(keys) < _number_held(name, module)}
    return bool(picked - whole)


def _number_held(name: str, module: Object) -> int:
    """How many layers a list or dict of them is made with, 0 if that cannot be seen."""
    things = module.attributes[name].things
    held = next((thing for thing in things if isinstance(thing, Object) and _is_held_layers(thing)), None)
    match held.node.args[:1] if held is not None else []:
        case [ast.List(elts=layers) | ast.Tuple(elts=layers)]:
            return len(layers) if not any(isinstance(each, ast.Starred) for each in layers) else 0
        case [ast.Dict(keys=names)]:
            return len(names) if None not in names else 0
        case [ast.ListComp(generators=[over]) | ast.GeneratorExp(generators=[over])] if not over.ifs:
            match over.iter:
                case ast.Call(func=ast.Name(id="range"), args=[ast.Constant(value=int(number))]):
                    return number
                case ast.Call(func=ast.Name(id="range"), args=[ast.Name(id=asked)]) if held is not None:
                    return _number_asked(name, asked, held, module)
    return 0


def _number_asked(name: str, asked: str, held: Object, module: Object) -> int:
    """The number that a function is told which makes a list of layers: `self.convs = clones(layer, 3)`."""
    maker = held.source.function(held.node)
    parameters = [each.arg for each in (*maker.args.posonlyargs, *maker.args.args)] if maker is not None else []
    told: set[object] = set()
    for cls in module.cls.line() if module.cls is not None else ():
        for node in ast.walk(cls.node):
            match node:
                case ast.Assign(targets=[ast.Attribute(attr=attr)], value=ast.Call() as call) if attr == name:
                    if maker is None or asked not in parameters or last_name(call.func) != maker.name:
                        return 0
                    given = argument(call, asked, parameters.index(asked))
                    told.add(given.value if isinstance(given, ast.Constant) else None)
    number = told.pop() if len(told) == 1 else 0
    return number if isinstance(number, int) else 0


def _is_held_layers(thing: object) -> bool:
    return isinstance(thing, Object) and thing.name.endswith(("nn.ModuleList", "nn.ModuleDict"))


def _is_one_of(index: ast.expr, source: Source, run: Interpreter, depth: int = 3) -> bool:
    """Whether an index in a forward pass stands for one thing in one step and for another in the next: it is drawn, or
    a parameter of the forward pass, and no loop over all there are goes through it."""
    if any(isinstance(each, ast.Call) and _draws(each, run) for each in ast.walk(index)):
        return True
    if isinstance(index, ast.Slice):  # `for layer in self.layers[:depth]`
        bounds = [each for each in (index.lower, index.upper) if each is not None]
        return any(_is_one_of(each, source, run, depth) for each in bounds)
    if is_own(index):
        return any(is_set_later(other, index.attr) for other in run.project.sources)
    method = source.function(index)
    if not isinstance(index, ast.Name) or not isinstance(method, ast.FunctionDef):
        return False
    for around in source.ancestors(index):
        if around is method:
            break
        loops = [around] if isinstance(around, (ast.For, ast.While)) else getattr(around, "generators", [])
        if any(binds(each, index.id) for loop in loops for each in ast.walk(loop)):
            return False
    made = [
        n.value for n in ast.walk(method) if isinstance(n, ast.Assign) and any(binds(t, index.id) for t in n.targets)
    ]
    if made:
        return any(isinstance(each, ast.Call) and _draws(each, run) for value in made for each in ast.walk(value))
    arguments = [each.arg for each in (*method.args.args, *method.args.kwonlyargs)]
    if method.name != "forward" or index.id not in arguments or not depth:
        return False
    outermost = {event.node for event in run.of("forward")}
    for call, caller in run.callers.get(method, {}).items():
        given = next((each.value for each in call.keywords if each.arg == index.id), None)
        place = arguments.index(index.id) - 1  # `self` is none of those that are given
        if given is None and 0 <= place < len(call.args):
            given = call.args[place]
        if given is None or isinstance(given, ast.Constant):
            continue
        if call in outermost or _is_one_of(given, caller, run, depth - 1):
            return True
    return False


def repeats_at_random(module: Object, run: Interpreter) -> bool:
    """`for _ in range(random.randint(0, 3)): x = self.middle(x)`: how often, or whether, is drawn in each step."""
    loops = [n for each in module.functions("forward") for n in ast.walk(each.node) if isinstance(n, ast.For)]
    names = own_parts(module)
    drawn = {event.node for event in run.of("random")}
    for loop in loops:
        calls = [node for node in ast.walk(loop.iter) if isinstance(node, ast.Call)]
        if any(call in drawn or _draws(call, run) for call in calls) and called_parts(loop.body, names, run):
            return True
    return False


def _draws(call: ast.Call, run: Interpreter) -> bool:
    """`random.randint(0, 3)`, `np.random.choice(4)`, `torch.randint(4, ())`"""
    names = {t.name for t in run.values.get(call.func, NOTHING).things if isinstance(t, External)}
    return any(name.startswith(("random.", "numpy.random.", "torch.rand")) for name in names)
