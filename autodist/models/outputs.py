"""Outputs of parts that nobody reads, and those of which no gradient comes back."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.interpreter import Interpreter
from autodist.models.flow import Forward
from autodist.models.reading import always_made, is_own, methods_of, own_parameters, own_parts, reads_of
from autodist.source import last_name
from autodist.values import NOTHING, Items, Object, Value

POOLING = frozenset(f"{name}Model" for name in "Auto Bert Roberta XLMRoberta Albert Camembert Ernie ViT Beit".split())


def leaves_auxiliary(module: Object, run: Interpreter) -> bool:
    """`fcn_resnet50(aux_loss=True)`, also with weights that bring that part, whose second output nobody asks for."""
    if not module.name.startswith("torchvision.models.segmentation.") or module.name.endswith(
        "lraspp_mobilenet_v3_large"
    ):
        return False
    asked = module.argument("aux_loss", 3)
    brought = [given for name in ("weights", "pretrained") if (given := module.argument(name)) is not None]
    has = asked.const not in (None, False) if asked is not None else any(v.const not in (None, False) for v in brought)
    return has and not any(quoted in source.text for source in run.project.sources for quoted in ("'aux'", '"aux"'))


def leaves_outputs(module: Object) -> bool:
    """Whether a forward pass leaves out one of the outputs of a part, `_, skip = self.block(x)`, and with it what has a
    say in that one alone."""
    methods = methods_of(module.cls) if module.cls is not None else {}
    if "forward" not in methods:
        return False
    called = (reads_of("forward", methods) | {"forward"}) & methods.keys()
    taken: dict[str, set[int]] = {}
    mentions: dict[str, int] = {}
    for method in (methods[name] for name in called):
        for name in (each.attr for each in ast.walk(method) if is_own(each)):
            mentions[name] = mentions.get(name, 0) + 1
        for name, positions in _taken(method):
            taken[name] = taken.get(name, set()) | positions
            mentions[name] -= 1
    return any(
        not mentions[name]
        and any(_only_for_others(each, kept) for each in _blocks(module.attributes.get(name, NOTHING)))
        for name, kept in taken.items()
    )


def gives_derivatives_alone(module: Object) -> bool:
    """Whether a forward pass gives nothing but what it has differentiated, `return -torch.autograd.grad(energy, x, ...,
    create_graph=True)[0]`: forces, in which the bias of the last layer of the energy has no say."""
    method = methods_of(module.cls).get("forward") if module.cls is not None else None
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
        if isinstance(node, ast.Call) and is_own(node.func):
            return False
        pending += ast.iter_child_nodes(node)
        pending += bound.get(node.id, []) if isinstance(node, ast.Name) else []
    return differentiated


def leaves_pooled(module: Object) -> bool:
    """Whether a class reads the states of the words that an encoder of transformers gives, and not what its last layer
    makes of them all: `self.bert(x)[0]`, `self.bert(x).last_hidden_state`."""
    methods = methods_of(module.cls) if module.cls is not None else {}
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
        if isinstance(value, ast.Call) and is_own(value.func):
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
    methods = methods_of(module.cls) if module.cls is not None else {}
    node = methods.get("forward")
    if node is None:
        return False
    layers = {name for name in own_parts(module) | own_parameters(module) if always_made(name, module)}
    parts = {name: frozenset([name]) for name in layers}
    parts |= {name: reads_of(name, methods) & layers for name in reads_of("forward", methods) & methods.keys()}
    return bool(Forward(parts, {}).used(node) - Forward(parts, {}, kept).used(node))
