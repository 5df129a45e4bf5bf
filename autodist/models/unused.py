"""Parts of a module that some training steps leave out: DistributedDataParallel would wait for their gradients."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator
from itertools import product
from typing import TypeGuard

from autodist.interpreter import Interpreter
from autodist.source import Source, argument, last_name
from autodist.values import NOTHING, Class, External, Items, Object, Value

NO_PARAMETERS = (
    *("Dropout", "Identity", "Flatten", "Unflatten", "MaxPool", "AvgPool", "AdaptiveAvgPool", "AdaptiveMaxPool"),
    *("Upsample", "PixelShuffle", "ZeroPad", "ReflectionPad", "ReplicationPad", "ConstantPad", "ReLU", "LeakyReLU"),
    *("Softmax", "LogSoftmax", "Sigmoid", "Tanh", "GELU", "SiLU", "ELU"),
)
LAYERS = frozenset(["module", "batch_norm"])
MOST_SETTINGS = 6
"""Of more settings within one forward pass, not all combinations are looked at."""

LAST = " in the last turn"

Flow = dict[str, frozenset[str]]
"""What each local variable was computed by: names of parts."""
POOLING = frozenset(f"{name}Model" for name in "Auto Bert Roberta XLMRoberta Albert Camembert Ernie ViT Beit".split())
COPYING = frozenset("deepcopy TransformerEncoder TransformerDecoder".split())
"""What copies a module that it is given, and is told of by no gradient of it."""


def is_sometimes(parts: Iterable[Object], run: Interpreter) -> bool:
    """Whether one of the parts of a module, itself the first of them, is not always run."""
    module, *_ = parts = list(parts)
    unread = (_has_unread(part.cls, _own_parts(part), run) for part in parts if part.cls)
    idle = (_is_idle(name, part, run) for part in parts if part.cls for name in _own_parameters(part))
    bare = (_gives_weight_only(name, part) for part in parts if part.cls for name in _own_parts(part))
    if any(unread) or any(idle) or any(bare) or any(_switched_off(part, run) for part in parts):
        return True
    if any(_has_no_say(part, run) for part in parts):
        return True
    if any(map(_leaves_some_of_list, parts)):
        return True
    if any(_ends_unread(part) or _picks(part, run) or _leaves_auxiliary(part, run) for part in parts):
        return True
    if any(_runs_without_gradients(part, run) or _gives_next_turn_alone(part) for part in parts):
        return True
    if _gives_derivatives_alone(module):
        return True
    if any(_leaves_outputs(part) or _leaves_pooled(part) or _cuts_off(part) for part in parts):
        return True
    return any(True for part in parts for _ in branches(part, run)) or _repeats_at_random(module, run)


def _runs_without_gradients(module: Object, run: Interpreter) -> bool:
    """Whether a forward pass runs a part only below `with torch.no_grad():`, or reads it only for what takes no
    gradients (`self.fc.weight.data = self.fc.weight * self.mask.weight`), and nobody has frozen its parameters."""
    methods = _methods(module.cls) if module.cls is not None else {}
    if "forward" not in methods or module.cls is None:
        return False
    called = [methods[name] for name in (_reads_of("forward", methods) | {"forward"}) & methods.keys()]
    quiet: set[str] = set()
    learning: set[str] = set()
    for cls in module.cls.line():
        own = [each for method in called for each in ast.walk(method) if _is_own(each) and each in cls.source.parents]
        for node in own:  # what a base class of another module has is looked at with that one
            blocks = [each for each in cls.source.ancestors(node) if isinstance(each, ast.With)]
            below = any(_forbids_gradients(item.context_expr) for block in blocks for item in block.items)
            (quiet if below or _takes_data(node, cls.source) else learning).add(node.attr)
    frozen = {thing for event in run.of("freeze") for thing in event.value.things}
    held = {name: module.attributes[name].things for name in (quiet - learning) & module.attributes.keys()}
    layers = {name: {t for t in things if isinstance(t, Object) and t.roles & LAYERS} for name, things in held.items()}
    return any(each and not each & frozen for each in layers.values())


def _takes_data(node: ast.Attribute, source: Source) -> bool:
    """Whether something is read for `.data` alone: on the right of `weight.data = …`, or in `weight.data.mul_(…)`."""
    statement = source.statement(node)
    if isinstance(statement, ast.Assign):
        return all(_is_data(each) for each in statement.targets) and node in ast.walk(statement.value)
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and _is_data(call.func.value)


def _is_data(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "data"


def _gives_next_turn_alone(module: Object) -> bool:
    """Whether blocks in a list give something that only the next of them reads, so that nothing reads it of the last
    one: `back, fore = block(x); x = x - back; forecast = forecast + fore` (N-BEATS)."""
    lists = {name for name, value in module.attributes.items() if any(map(_is_list_of_layers, value.things))}
    methods = _methods(module.cls) if module.cls is not None and lists else {}
    called = (_reads_of("forward", methods) | {"forward"}) & methods.keys() if "forward" in methods else set()
    for name in called:
        for at, statement in enumerate(methods[name].body):
            if isinstance(statement, ast.For) and any(_is_own(n) and n.attr in lists for n in ast.walk(statement.iter)):
                after = {n.id for later in methods[name].body[at + 1 :] for n in ast.walk(later) if _is_read(n)}
                if _leaves_output(statement, after):
                    return True
    return False


def _leaves_output(loop: ast.For, after: set[str]) -> bool:
    """Whether the last turn of a loop over blocks computes a part of what a block gives for names nobody reads."""
    blocks = {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)}
    read = set(after)
    for statement in reversed(loop.body):
        names = {n.id for n in ast.walk(statement) if _is_read(n)}
        match statement:
            case ast.Assign(targets=[ast.Tuple(elts=parts)], value=ast.Call(func=ast.Name(id=block))) if (
                block in blocks
            ):
                given = [each.id for each in parts if isinstance(each, ast.Name)]
                used = [name in read for name in given]
                if len(given) == len(parts) and any(used) and not all(used):
                    return True
                read = (read - set(given)) | names
            case ast.Assign(targets=[ast.Name(id=target)]):
                read = (read - {target}) | names if target in read else read
            case ast.AugAssign(target=ast.Name(id=target)):
                read |= names if target in read else set()
            case _:
                read |= names
    return False


def _is_read(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)


def _forbids_gradients(context: ast.expr) -> bool:
    return isinstance(context, ast.Call) and last_name(context.func) in ("no_grad", "inference_mode")


def runs_by_chance(parts: Iterable[Object], run: Interpreter) -> bool:
    """Whether parts of a module may run in one step and not in another."""
    return any(chooses_parts(part, run) or any(True for _ in branches(part, run)) for part in parts)


def chooses_parts(module: Object, run: Interpreter) -> bool:
    """Whether it is drawn, or told by an index, which parts of a module run, or how often."""
    return _repeats_at_random(module, run) or _picks(module, run)


def _switched_off(module: Object, run: Interpreter) -> bool:
    """Whether under some settings of a module a part of it has no say in what forward returns:
    `if self.norm: x = self.norm_layer(x)`, or `self.body(out if self.first else x)`."""
    node = next((each.node for each in module.functions("forward")), None)
    if module.cls is None or not isinstance(node, ast.FunctionDef):
        return False
    methods = _methods(module.cls)
    reads = {name: _reads_of(name, methods) for name in methods}
    called = {name for name in reads["forward"] if name in methods}
    elsewhere = {"forward", "__init__", *called}
    layers = {name for name in _own_parts(module) | _own_parameters(module) if _always_made(name, module)}
    layers &= reads["forward"] - {name for method in methods.keys() - elsewhere for name in reads[method]}
    settings = _settings(node)
    if not layers or not settings or len(settings) > MOST_SETTINGS:
        return False
    choices = [_choices(setting, module) for setting in settings]
    parts = {**{name: frozenset([name]) for name in layers}, **{name: reads[name] & layers for name in called}}
    used = [Forward(parts, dict(zip(settings, each, strict=True))).used(node) for each in product(*choices)]
    return any(layers - each for each in used)


def _has_no_say(module: Object, run: Interpreter) -> bool:
    """Whether a part is run in each forward pass, and what it gives is never read: `_, state = self.rnn(x)`."""
    methods = _methods(module.cls) if module.cls is not None else {}
    if "forward" not in methods or any(
        isinstance(n, ast.Name) and n.id == "super" for n in ast.walk(methods["forward"])
    ):
        return False
    reads = {name: _reads_of(name, methods) for name in methods}
    called = {name for name in reads["forward"] if name in methods}
    layers = {name for name in _own_parts(module) if _always_made(name, module)} & reads["forward"]
    layers -= {name for method in methods.keys() - {"forward", "__init__", *called} for name in reads[method]}
    parts = {**{name: frozenset([name]) for name in layers}, **{name: reads[name] & layers for name in called}}
    kept = {n.attr for n in ast.walk(methods["forward"]) if _is_own(n) and isinstance(n.ctx, ast.Store)}
    unread = {name for name in kept if not any(_reads(source, name) for source in run.project.sources)}
    return bool(layers - Forward(parts, {}, unread=unread).used(methods["forward"]))


def _ends_unread(module: Object) -> bool:
    """Whether a loop over layers computes something in its last turn that only another turn would read: with
    `skip = skip + self.skips[i](x); x = self.residuals[i](x)`, and `skip` returned, the last residual layer."""
    lists = {name for name, value in module.attributes.items() if any(map(_is_list_of_layers, value.things))}
    methods = _methods(module.cls) if module.cls is not None else {}
    if not lists or "forward" not in methods:
        return False
    called = (_reads_of("forward", methods) | {"forward"}) & methods.keys()
    parts = {name: frozenset([name]) for name in lists} | {each: _reads_of(each, methods) & lists for each in called}
    for name in called:
        passed = Forward(parts, {})
        used = passed.used(methods[name])
        if any(f"{layers}{LAST}" in passed.last - used for layers in lists):
            return True
    return False


def _is_list_of_layers(thing: object) -> bool:
    return isinstance(thing, Object) and thing.name.endswith("nn.ModuleList")


def _leaves_auxiliary(module: Object, run: Interpreter) -> bool:
    """`fcn_resnet50(aux_loss=True)`, also with weights that bring that part, whose second output nobody asks for."""
    if not module.name.startswith("torchvision.models.segmentation.") or module.name.endswith(
        "lraspp_mobilenet_v3_large"
    ):
        return False
    asked = module.argument("aux_loss", 3)
    brought = [given for name in ("weights", "pretrained") if (given := module.argument(name)) is not None]
    has = asked.const not in (None, False) if asked is not None else any(v.const not in (None, False) for v in brought)
    return has and not any(quoted in source.text for source in run.project.sources for quoted in ("'aux'", '"aux"'))


def _cuts_off(module: Object) -> bool:
    """Whether a table or a loose parameter has a say in a forward pass, but no gradient comes back to it: the codes of
    `x + (codes - x).detach()`, which follow the samples in another way."""
    methods = _methods(module.cls) if module.cls is not None else {}
    node = methods.get("forward")
    if module.cls is None or node is None or "requires_grad" in ast.unparse(module.cls.node):
        return False
    held = {name for name in _own_parts(module) | _own_parameters(module) if _always_made(name, module)}
    named = {name: [t for t in module.attributes[name].things if isinstance(t, Object)] for name in held}
    tables = {n for n, things in named.items() if all(_is_table(each) for each in things)}
    parts = {name: frozenset([name]) for name in tables}
    parts |= {name: _reads_of(name, methods) & tables for name in _reads_of("forward", methods) & methods.keys()}
    return bool(tables and Forward(parts, {}).used(node) - Forward(parts, {}, learns=True).used(node))


def _is_table(thing: Object) -> bool:
    return thing.name == "torch.nn.Embedding" or "parameter" in thing.roles


def _leaves_outputs(module: Object) -> bool:
    """Whether a forward pass leaves out one of the outputs of a part, `_, skip = self.block(x)`, and with it what has a
    say in that one alone."""
    methods = _methods(module.cls) if module.cls is not None else {}
    if "forward" not in methods:
        return False
    called = (_reads_of("forward", methods) | {"forward"}) & methods.keys()
    taken: dict[str, set[int]] = {}
    mentions: dict[str, int] = {}
    for method in (methods[name] for name in called):
        for name in (each.attr for each in ast.walk(method) if _is_own(each)):
            mentions[name] = mentions.get(name, 0) + 1
        for name, positions in _taken(method):
            taken[name] = taken.get(name, set()) | positions
            mentions[name] -= 1
    return any(
        not mentions[name]
        and any(_only_for_others(each, kept) for each in _blocks(module.attributes.get(name, NOTHING)))
        for name, kept in taken.items()
    )


def _gives_derivatives_alone(module: Object) -> bool:
    """Whether a forward pass gives nothing but what it has differentiated, `return -torch.autograd.grad(energy, x, ...,
    create_graph=True)[0]`: forces, in which the bias of the last layer of the energy has no say."""
    method = _methods(module.cls).get("forward") if module.cls is not None else None
    if method is None:
        return False
    bound: dict[str, list[ast.expr]] = {}
    for each in ast.walk(method):
        for target in each.targets if isinstance(each, ast.Assign) else ():
            for name in (n.id for n in ast.walk(target) if isinstance(n, ast.Name)):
                bound.setdefault(name, []).append(each.value)  # type: ignore[attr-defined]
    pending: list[ast.AST] = [n.value for n in ast.walk(method) if isinstance(n, ast.Return) and n.value is not None]
    seen: set[ast.AST] = set()
    differentiated = False
    while pending:  # past the gradients, not into what they are taken of
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("autograd.grad"):
            differentiated = True
            continue
        if isinstance(node, ast.Call) and _is_own(node.func):
            return False
        pending += ast.iter_child_nodes(node)
        pending += bound.get(node.id, []) if isinstance(node, ast.Name) else []
    return differentiated


def _leaves_pooled(module: Object) -> bool:
    """Whether a class reads the states of the words that an encoder of transformers gives, and not what its last layer
    makes of them all: `self.bert(x)[0]`, `self.bert(x).last_hidden_state`."""
    methods = _methods(module.cls) if module.cls is not None else {}
    held = {name for name, value in module.attributes.items() if any(_pools(thing) for thing in value.things)}
    if not held or "forward" not in methods:
        return False
    for node in (each for method in methods.values() for each in ast.walk(method)):
        named = isinstance(node, ast.Attribute) and node.attr == "pooler_output"
        if named or isinstance(node, ast.Subscript) and getattr(node.slice, "value", None) in (1, "pooler_output"):
            return False
    return not any(name in held and 1 in kept for method in methods.values() for name, kept in _taken(method))


def _pools(thing: object) -> bool:
    """Whether it is an encoder of transformers with a layer that only pooled outputs come from."""
    if not isinstance(thing, Object) or thing.cls is not None or not thing.name.startswith("transformers."):
        return False
    pooled = thing.keywords.get("add_pooling_layer", NOTHING).const is not False
    return pooled and thing.name.split(".")[1] in POOLING


def _taken(method: ast.FunctionDef) -> Iterator[tuple[str, set[int]]]:
    """Parts of which a method takes some of several outputs, and which: `a, _ = self.part(x)`, `self.part(x)[0]`."""
    read = {n.id for n in ast.walk(method) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    for node in ast.walk(method):
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=value):
                named = [each.id if isinstance(each, ast.Name) else None for each in targets]
                kept = {at for at, name in enumerate(named) if name is None or name in read and name != "_"}
                if any(isinstance(each, ast.Starred) for each in targets) or len(kept) == len(targets):
                    continue
            case ast.Subscript(value=value, slice=ast.Constant(value=int(at))):
                kept = {at}
            case _:
                continue
        if isinstance(value, ast.Call) and last_name(value.func) == "values" and not value.args:  # of a dict
            value = value.func.value if isinstance(value.func, ast.Attribute) else value
        if isinstance(value, ast.Call) and _is_own(value.func):
            yield value.func.attr, kept


def _blocks(value: Value) -> Iterator[Object]:
    """The modules of the project that give what a part gives: it itself, or what a Sequential runs."""
    for thing in value.things:
        if isinstance(thing, Object) and thing.name.endswith("nn.Sequential"):
            for each in thing.args:
                yield from (t for t in each.things if isinstance(t, Object) and t.cls is not None)
                for items in (t for t in each.things if isinstance(t, Items)):
                    held = (inner for given in (*items.parts, items.element) for inner in given.things)
                    yield from (t for t in held if isinstance(t, Object) and t.cls is not None)
        elif isinstance(thing, Object) and thing.cls is not None:
            yield thing


def _only_for_others(module: Object, kept: set[int]) -> bool:
    """Whether a part of a module has a say in none of the outputs at these places, but in others."""
    methods = _methods(module.cls) if module.cls is not None else {}
    node = methods.get("forward")
    if node is None:
        return False
    layers = {name for name in _own_parts(module) | _own_parameters(module) if _always_made(name, module)}
    parts = {name: frozenset([name]) for name in layers}
    parts |= {name: _reads_of(name, methods) & layers for name in _reads_of("forward", methods) & methods.keys()}
    return bool(Forward(parts, {}).used(node) - Forward(parts, {}, kept).used(node))


def _picks(module: Object, run: Interpreter) -> bool:
    """Whether a forward pass runs one of the layers that the module holds in a list or dict, and another pass another
    one, `self.heads[task](x)`, or always the same: `self.heads[0](x)`."""
    held = {name for name, value in module.attributes.items() if any(map(_is_held_layers, value.things))}
    methods = _methods(module.cls) if module.cls is not None and held else {}
    if "forward" not in methods or module.cls is None:
        return False
    called = [methods[name] for name in (_reads_of("forward", methods) | {"forward"}) & methods.keys()]
    picked: set[str] = set()
    whole: set[str] = set()
    always: dict[str, set[str]] = {}
    for cls in module.cls.line():
        for node in (each for method in called for each in ast.walk(method) if _is_own(each) and each.attr in held):
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


def _leaves_some_of_list(module: Object) -> bool:
    """Whether a forward pass runs all layers of a list, and goes on with what some of them give:
    `outs = [head(x) for head in self.heads]; return outs[0]`."""
    lists = {name for name, value in module.attributes.items() if any(map(_is_list_of_layers, value.things))}
    methods = _methods(module.cls) if module.cls is not None and lists else {}
    if "forward" not in methods:
        return False
    forward = methods["forward"]
    for statement in (n for n in ast.walk(forward) if isinstance(n, ast.Assign)):
        match statement:
            case ast.Assign(
                targets=[ast.Name(id=outs)],
                value=ast.ListComp(
                    elt=ast.Call(func=ast.Name(id=layer)),
                    generators=[ast.comprehension(target=ast.Name(id=each), iter=ast.Attribute(attr=held), ifs=[])],
                ),
            ) if (
                layer == each and held in lists
            ):
                parents = {child: node for node in ast.walk(forward) for child in ast.iter_child_nodes(node)}
                reads = [parents[n] for n in ast.walk(forward) if _is_read(n) and n.id == outs]
                keys = {
                    ast.unparse(n.slice)
                    for n in reads
                    if isinstance(n, ast.Subscript) and isinstance(n.slice, (ast.Constant, ast.UnaryOp))
                }
                plain = all(isinstance(n, ast.Subscript) and ast.unparse(n.slice) in keys for n in reads)
                if keys and plain and len(keys) < (_number_held(held, module) or len(keys) + 1):
                    return True
    return False


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
    if _is_own(index):
        return any(_is_set_later(other, index.attr) for other in run.project.sources)
    method = source.function(index)
    if not isinstance(index, ast.Name) or not isinstance(method, ast.FunctionDef):
        return False
    for around in source.ancestors(index):
        if around is method:
            break
        loops = [around] if isinstance(around, (ast.For, ast.While)) else getattr(around, "generators", [])
        if any(_binds(each, index.id) for loop in loops for each in ast.walk(loop)):
            return False
    made = [
        n.value for n in ast.walk(method) if isinstance(n, ast.Assign) and any(_binds(t, index.id) for t in n.targets)
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


def _is_set_later(source: Source, name: str) -> bool:
    """Whether an attribute is bound elsewhere than where its object is made: `model.task = 1`."""
    if name not in source.text:
        return False
    stores = (n for n in ast.walk(source.tree) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store))
    return any(n.attr == name and getattr(source.function(n), "name", "") != "__init__" for n in stores)


def _binds(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)


def _settings(forward: ast.FunctionDef) -> list[str]:
    """The tests of a forward pass that ask nothing but the module."""
    tests = (atom for n in ast.walk(forward) if isinstance(n, (ast.If, ast.IfExp)) for atom in _atoms(n.test))
    return sorted({ast.unparse(test) for test in tests if _asks_module(test)})


def _atoms(test: ast.expr) -> Iterator[ast.expr]:
    if isinstance(test, ast.BoolOp):
        for value in test.values:
            yield from _atoms(value)
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _atoms(test.operand)
    else:
        yield test


def _asks_module(test: ast.expr) -> bool:
    names = [n.id for n in ast.walk(test) if isinstance(n, ast.Name)]
    return set(names) == {"self"} and not any(isinstance(n, ast.Call) for n in ast.walk(test))


def _choices(setting: str, module: Object) -> tuple[bool, ...]:
    """What a setting may be."""
    test = ast.parse(setting, mode="eval").body
    if setting == "self.training":
        return (True,)
    asked = test.left if isinstance(test, ast.Compare) and isinstance(test.ops[0], (ast.Is, ast.IsNot)) else test
    if _is_own(asked):
        value = module.attributes.get(asked.attr, NOTHING)
        if asked is test and isinstance(value.const, bool):
            return (value.const,)
        if _always_made(asked.attr, module):
            return (not (isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is)),)
    if isinstance(test, ast.Compare) and (known := _known(test, module)) is not None:
        return (known,)
    return (False, True)


def _known(test: ast.Compare, module: Object) -> bool | None:
    """Whether `self.kind == "lda"` holds, where the script makes the module of one kind."""
    asked, other = test.left, test.comparators[0]
    if len(test.ops) > 1 or not isinstance(test.ops[0], (ast.Eq, ast.NotEq)) or not isinstance(other, ast.Constant):
        return None
    value = module.attributes.get(asked.attr, NOTHING) if _is_own(asked) else NOTHING
    if type(value.const) is not type(other.value) or value.things or not value.firm:
        return None
    return (value.const == other.value) == isinstance(test.ops[0], ast.Eq)


def _is_own(node: ast.AST) -> TypeGuard[ast.Attribute]:
    """`self.name`"""
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


def _always_made(name: str, module: Object) -> bool:
    """Whether `__init__` gives a module this part with parameters in any case: makes it, or is given it."""
    value = module.attributes.get(name, NOTHING)
    things = [t for t in value.things if isinstance(t, Object) and t.roles & {*LAYERS, "parameter"}]
    if not things or _is_without_parameters(value) or module.cls is None:
        return False
    node = next((each.node for each in module.functions("__init__")), None)
    for statement in getattr(node, "body", ()):
        for bound in _given_to(name, statement) if isinstance(statement, ast.Assign) else ():
            given = isinstance(bound, ast.Name) and value.const is not None and not value.optional
            return isinstance(bound, ast.Call) or given and set(things) == set(value.things)
    return False


def _given_to(name: str, statement: ast.Assign) -> Iterator[ast.expr]:
    """What an attribute of an object is bound to, also beside others: `self.a, self.b = Linear(4, 8), Linear(8, 1)`."""
    for target in statement.targets:
        targets, values = [target], [statement.value]
        if isinstance(target, ast.Tuple) and isinstance(statement.value, ast.Tuple):
            targets, values = target.elts, statement.value.elts
        yield from (value for each, value in zip(targets, values, strict=False) if _is_own(each) and each.attr == name)


def _methods(cls: Class) -> dict[str, ast.FunctionDef]:
    """The methods of a class, those that it derives included. What has `__call__` alone has that for `forward`."""
    line = reversed(list(cls.line()))
    found = {each.name: each for one in line for each in one.node.body if isinstance(each, ast.FunctionDef)}
    return {"forward": found["__call__"]} | found if "__call__" in found else found


def _reads_of(name: str, methods: dict[str, ast.FunctionDef]) -> frozenset[str]:
    """What a method reads of its object, by itself or through the methods that it calls."""
    found: set[str] = set()
    pending = [name]
    while pending:
        read = {n.attr for n in ast.walk(methods[pending.pop()]) if _is_own(n)} - found
        found |= read
        pending += [each for each in read if each in methods]
    return frozenset(found)


class Forward:
    """Follows what parts compute through a forward pass, the settings of the module being known."""

    def __init__(
        self,
        parts: dict[str, frozenset[str]],
        settings: dict[str, bool],
        kept: set[int] | None = None,
        learns: bool = False,
        unread: Collection[str] = (),
    ) -> None:
        """``parts`` tells which part an attribute stands for; a method stands for all that it reads. Of several outputs
        ``kept`` are the places of those that are read, if not all are. With ``learns``, only what gradients come back
        to has a say. What is kept under ``unread`` names has none."""
        self._unread = unread
        self._learns = learns
        self._own = parts
        self._settings = settings
        self._kept = kept
        self._used: set[str] = set()
        self._in_last_turn = False
        self.last: set[str] = set()
        """The parts of the last turns of loops, each marked as such."""

    def used(self, forward: ast.FunctionDef) -> set[str]:
        """The parts that have a say in what is returned, or kept in another way."""
        self._block(forward.body, {})
        return self._used

    def _block(self, body: Iterable[ast.stmt], flow: Flow) -> bool:
        """Whether the end of the block is reached."""
        return all(self._statement(statement, flow) for statement in body)

    def _statement(self, node: ast.stmt, flow: Flow) -> bool:
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            self._assign(node, flow)
        elif isinstance(node, ast.If):
            return self._if(node, flow)
        elif isinstance(node, (ast.For, ast.While)):
            for _ in range(2):  # what a round computes may reach the next
                round_ = dict(flow)
                if isinstance(node, ast.For):
                    self._bind(node.target, self._parts(node.iter, flow), round_, adds=True)
                self._block(node.body, round_)
                _join(flow, round_)
            self._last_turn(node, flow)
            self._block(node.orelse, flow)
        elif isinstance(node, ast.With):
            return self._block(node.body, flow)
        elif isinstance(node, ast.Return) and self._kept is not None:
            outputs = getattr(node.value, "values" if isinstance(node.value, ast.Dict) else "elts", [node.value])
            few = [each for at, each in enumerate(outputs) if at in self._kept or len(outputs) == 1]
            self._used |= frozenset().union(*(self._parts(each, flow) for each in few if each is not None))
        else:  # a result, or a call whose effects are not followed
            self._used |= self._parts(node, flow)
        return not isinstance(node, (ast.Return, ast.Raise, ast.Continue, ast.Break))

    def _last_turn(self, node: ast.For | ast.While, flow: Flow) -> None:
        """What is read after the loop of what its last turn computes."""
        outer, self._in_last_turn = self._in_last_turn, True
        last = dict(flow)
        if isinstance(node, ast.For):
            self._bind(node.target, self._parts(node.iter, flow), last, adds=False)
        self._block(node.body, last)
        self._in_last_turn = outer
        _join(flow, last)

    def _if(self, node: ast.If, flow: Flow) -> bool:
        decided = self._decided(node.test)
        if decided is not None:
            return self._block(node.body if decided else node.orelse, flow)
        other = dict(flow)
        ends = self._block(node.body, flow), self._block(node.orelse, other)
        if not ends[0]:
            flow.clear()
        if ends[1] or not ends[0]:
            _join(flow, other)
        return any(ends)

    def _assign(self, node: ast.Assign | ast.AnnAssign | ast.AugAssign, flow: Flow) -> None:
        found = self._parts(node.value, flow) if node.value is not None else frozenset()
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            self._bind(target, found, flow, adds=isinstance(node, ast.AugAssign))

    def _bind(self, target: ast.expr, found: frozenset[str], flow: Flow, adds: bool) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            for each in target.elts:
                self._bind(each, found, flow, adds)
        elif isinstance(target, ast.Name):
            flow[target.id] = found | (flow.get(target.id, frozenset()) if adds else frozenset())
        elif not (_is_own(target) and target.attr in self._unread):
            self._used |= found

    def _decided(self, test: ast.expr) -> bool | None:
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            decided = self._decided(test.operand)
            return None if decided is None else not decided
        if isinstance(test, ast.BoolOp):
            each = [self._decided(value) for value in test.values]
            stop = isinstance(test.op, ast.Or)
            return stop if stop in each else None if None in each else not stop
        return self._settings.get(ast.unparse(test))

    def _parts(self, node: ast.AST, flow: Flow) -> frozenset[str]:
        """The parts that an expression is computed by."""
        if self._learns and _has_no_gradient(node):
            return frozenset()
        if isinstance(node, ast.Name):
            return flow.get(node.id, frozenset())
        if isinstance(node, ast.IfExp):
            decided = self._decided(node.test)
            arms = [node.body, node.orelse] if decided is None else [node.body if decided else node.orelse]
            return frozenset().union(*(self._parts(arm, flow) for arm in arms))
        own = self._own.get(node.attr, frozenset()) if _is_own(node) else frozenset()
        if self._in_last_turn:
            own = frozenset(f"{name}{LAST}" for name in own)
            self.last |= own
        return own.union(*(self._parts(child, flow) for child in ast.iter_child_nodes(node)))


UNLEARNT = frozenset("detach argmin argmax long int bool item tolist numpy size".split())


def _has_no_gradient(node: ast.AST) -> bool:
    """`codes.detach()`, `distances.argmin(1)`, `self.codes.weight.data`"""
    if isinstance(node, ast.Call):
        return last_name(node.func) in UNLEARNT
    return isinstance(node, ast.Compare) or isinstance(node, ast.Attribute) and node.attr in ("data", "shape")


def _join(flow: Flow, other: Flow) -> None:
    for name, found in other.items():
        flow[name] = flow.get(name, frozenset()) | found


def _is_without_parameters(value: Value) -> bool:
    layers = [thing for thing in value.things if isinstance(thing, Object)]
    return all(each.cls is None and each.kind.startswith(NO_PARAMETERS) for each in layers)


def _own_parameters(module: Object) -> set[str]:
    """The attributes that hold loose parameters."""
    held = module.attributes.items()
    return {name for name, value in held if name.isidentifier() and any(True for _ in value.objects("parameter"))}


def gives_parameters(module: Object) -> bool:
    """Whether a forward pass gives back parameters themselves, `return features, self.logit_scale`."""
    names = _own_parameters(module)
    given = (r.value for each in module.functions("forward") for r in ast.walk(each.node) if isinstance(r, ast.Return))
    outputs = (
        part
        for value in given
        for part in (
            value.elts
            if isinstance(value, (ast.Tuple, ast.List))
            else value.values if isinstance(value, ast.Dict) else [value]
        )
    )
    return any(_is_own(each) and each.attr in names for each in outputs if each is not None)


def _is_idle(name: str, module: Object, run: Interpreter) -> bool:
    """Whether nothing in the project reads a parameter that a class with a forward pass of its own makes."""
    if module.cls is None or "forward" not in module.cls.scope.names:
        return False
    forward = ast.unparse(module.cls.node)
    if "super().forward" in forward or "getattr" in forward or "__dict__" in forward:
        return False
    return not any(_reads(source, name) for source in run.project.sources)


def _reads(source: Source, name: str) -> bool:
    if name not in source.text:
        return False
    return any(
        isinstance(n, ast.Attribute) and n.attr == name and isinstance(n.ctx, ast.Load) and not _sets_values(n, source)
        for n in ast.walk(source.tree)
    )


def _sets_values(node: ast.Attribute, source: Source) -> bool:
    """`self.weight.data.fill_(1)` and `nn.init.zeros_(self.weight)`, which a forward pass has nothing of."""
    parent = source.parents.get(node)
    if isinstance(parent, ast.Attribute) and parent.attr in ("data", "size", "shape"):
        return True
    called = parent.func if isinstance(parent, ast.Call) and node in parent.args else None
    return isinstance(called, ast.Attribute) and "init" in ast.unparse(called.value).split(".")


def _repeats_at_random(module: Object, run: Interpreter) -> bool:
    """`for _ in range(random.randint(0, 3)): x = self.middle(x)`: how often, or whether, is drawn in each step."""
    loops = [n for each in module.functions("forward") for n in ast.walk(each.node) if isinstance(n, ast.For)]
    names = _own_parts(module)
    drawn = {event.node for event in run.of("random")}
    for loop in loops:
        calls = [node for node in ast.walk(loop.iter) if isinstance(node, ast.Call)]
        if any(call in drawn or _draws(call, run) for call in calls) and _called_parts(loop.body, names, run):
            return True
    return False


def _draws(call: ast.Call, run: Interpreter) -> bool:
    """`random.randint(0, 3)`, `np.random.choice(4)`, `torch.randint(4, ())`"""
    names = {t.name for t in run.values.get(call.func, NOTHING).things if isinstance(t, External)}
    return any(name.startswith(("random.", "numpy.random.", "torch.rand")) for name in names)


def branches(module: Object, run: Interpreter) -> Iterator[ast.If | ast.IfExp]:
    """Conditions within forward that decide which parts of a module run, and may change from step to step."""
    names = _own_parts(module)
    for function in module.functions("forward"):
        for branch in ast.walk(function.node):
            if isinstance(branch, ast.IfExp) and not _is_settled(branch.test, module):
                if _called_parts([branch.body], names, run) != _called_parts([branch.orelse], names, run):
                    yield branch
            if isinstance(branch, ast.If) and not _is_settled(branch.test, module):
                called = [_called_parts(block, names, run) for block in (branch.body, branch.orelse)]
                left = any(isinstance(n, (ast.Continue, ast.Return)) for s in branch.body for n in ast.walk(s))
                if called[0] != called[1] or left and names:
                    yield branch


def _own_parts(module: Object) -> set[str]:
    """The attributes that hold modules with parameters."""
    return {
        name
        for name, value in module.attributes.items()
        if name.isidentifier()
        and not _is_without_parameters(value)
        and any(isinstance(t, Object) and t.roles & LAYERS and "loss" not in t.roles for t in value.things)
    }


def _has_unread(cls: Class, names: set[str], run: Interpreter) -> bool:
    """Whether one of these parts is made and never mentioned again, but in a method that nobody calls, to be copied:
    `copy.deepcopy(self.encoder)`, or while the module is made, `self.first.weight.data = self.vgg[0].weight.data`."""
    methods = _methods(cls)
    begin = methods.get("__init__")
    if begin is None or not names:
        return False
    nodes = [node for each in cls.line() for node in ast.walk(each.node)]
    copies = [n for n in nodes if isinstance(n, ast.Call) and last_name(n.func) in COPYING]
    copied = {id(argument) for call in copies for argument in call.args}
    own = [each for one in cls.line() for each in one.node.body if isinstance(each, ast.FunctionDef)]
    made = {id(n) for each in own if each.name == "__init__" for n in ast.walk(each)}
    asked = {
        n.attr for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Call)
    }  # `super().encode`
    for each in own:  # what a class has anew, nothing reads of the one that it derives from
        if methods.get(each.name) is not each and each.name not in asked | {"__init__", "__call__"}:
            copied |= {id(n) for n in ast.walk(each)}
    filled = set(made)
    for method in _while_made(methods):
        filled |= {id(n) for n in ast.walk(method)}
        copied |= {id(n) for each in ast.walk(method) if _takes_numbers(each) for n in ast.walk(each)}
    called = {node.attr for node in nodes if _is_own(node)}
    for title, method in methods.items():
        if title not in called and not title.startswith("__") and method not in run.callers:
            copied |= {id(n) for n in ast.walk(method)}
    read: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Name) and node.id in ("getattr", "__dict__"):
            return False
        if not isinstance(node, ast.Attribute) or id(node) in copied:
            continue
        if node.attr in ("children", "modules", "_modules") and id(node) not in filled:  # `__init__` only fills them
            return False
        making = id(node) in made and (isinstance(node.ctx, ast.Store) or not _is_own(node))  # `models.vgg16()`
        if not making:
            read.add(node.attr)
    return bool(names - read)


def _while_made(methods: dict[str, ast.FunctionDef]) -> list[ast.FunctionDef]:
    """`__init__`, and the methods that nothing but it calls."""
    begins = ({"__init__"} | _reads_of("__init__", methods)) & methods.keys()
    for _ in range(len(begins)):
        others = [methods[name] for name in methods.keys() - begins]
        begins -= {n.attr for method in others for n in ast.walk(method) if _is_own(n)}
    return [methods[name] for name in begins]


def _takes_numbers(node: ast.AST) -> bool:
    """`self.vgg.features[0].weight.data`, through which no gradient flows."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in ("detach", "state_dict", "size") and not node.args
    return isinstance(node, ast.Attribute) and node.attr in ("data", "shape") and isinstance(node.ctx, ast.Load)


BIASED = ("torch.nn.Linear", "torch.nn.Conv1d", "torch.nn.Conv2d", "torch.nn.Conv3d")


def _gives_weight_only(name: str, module: Object) -> bool:
    """Whether a layer is never run, but its weight taken, `h @ self.out.weight.t()`: its bias goes unused."""
    layers = [t for t in module.attributes[name].things if isinstance(t, Object)]
    if module.cls is None or not layers or not all(t.name in BIASED and _has_bias(t) for t in layers):
        return False
    weights, others = 0, 0
    for method in (each for key, each in _methods(module.cls).items() if key != "__init__"):
        taken = {id(n.value) for n in ast.walk(method) if isinstance(n, ast.Attribute) and n.attr == "weight"}
        mentions = [n for n in ast.walk(method) if _is_own(n) and n.attr == name]
        weights += sum(id(each) in taken for each in mentions)
        others += sum(id(each) not in taken for each in mentions)
    return weights > 0 and not others


def _has_bias(layer: Object) -> bool:
    given = layer.argument("bias", 2 if layer.name == "torch.nn.Linear" else 7)
    return given is None or given.const is True


def _called_parts(block: Iterable[ast.AST], names: set[str], run: Interpreter) -> set[str]:
    """The parts of a module that a block calls, by attribute or as the variable of a loop over them."""
    found = set()
    for statement in block:
        for node in ast.walk(statement):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
                found |= {node.attr} & names
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                things = run.values.get(node.func, Value()).things
                if any(isinstance(t, Object) and t.roles & LAYERS and "loss" not in t.roles for t in things):
                    found.add(node.func.id)
    return found


def _is_settled(test: ast.expr, module: Object) -> bool:
    """Conditions that are the same in every training step: settings of the module, `self.training`, None tests."""
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], (ast.Is, ast.IsNot)):
        return True
    names = [n for n in ast.walk(test) if isinstance(n, ast.Name)]
    calls = [n for n in ast.walk(test) if isinstance(n, ast.Call)]
    return not calls and all(n.id == "self" for n in names)
