"""Parts of a module that some training steps leave out: DistributedDataParallel would wait for their gradients."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from itertools import product

from autodist.interpreter import Interpreter
from autodist.models.flow import MOST_SETTINGS, Forward, is_table
from autodist.models.in_lists import (
    COPYING,
    ends_unread,
    gives_next_turn_alone,
    leaves_some_of_list,
    picks,
    repeats_at_random,
)
from autodist.models.outputs import gives_derivatives_alone, leaves_auxiliary, leaves_outputs, leaves_pooled
from autodist.models.reading import (
    LAYERS,
    always_made,
    called_parts,
    choices_of,
    forbids_gradients,
    is_own,
    is_settled,
    methods_of,
    own_parameters,
    own_parts,
    reads_of,
    settings_of,
    while_made,
)
from autodist.source import Source, all_of, last_name, walk
from autodist.values import Class, Object

BIASED = ("torch.nn.Linear", "torch.nn.Conv1d", "torch.nn.Conv2d", "torch.nn.Conv3d")


def is_sometimes(parts: Iterable[Object], run: Interpreter) -> bool:
    """Whether one of the parts of a module, itself the first of them, is not always run."""
    module, *_ = parts = list(parts)
    unread = (_has_unread(part.cls, own_parts(part), run) for part in parts if part.cls)
    idle = (_is_idle(name, part, run) for part in parts if part.cls for name in own_parameters(part))
    bare = (_gives_weight_only(name, part) for part in parts if part.cls for name in own_parts(part))
    if any(unread) or any(idle) or any(bare) or any(_switched_off(part, run) for part in parts):
        return True
    if any(_has_no_say(part, run) for part in parts):
        return True
    if any(map(leaves_some_of_list, parts)):
        return True
    if any(ends_unread(part) or picks(part, run) or leaves_auxiliary(part, run) for part in parts):
        return True
    if any(_runs_without_gradients(part, run) or gives_next_turn_alone(part) for part in parts):
        return True
    if gives_derivatives_alone(module):
        return True
    if any(leaves_outputs(part) or leaves_pooled(part) or _cuts_off(part) for part in parts):
        return True
    return any(True for part in parts for _ in branches(part, run)) or repeats_at_random(module, run)


def _runs_without_gradients(module: Object, run: Interpreter) -> bool:
    """Whether a forward pass runs a part only below `with torch.no_grad():`, or reads it only for what takes no
    gradients (`self.fc.weight.data = self.fc.weight * self.mask.weight`), and nobody has frozen its parameters."""
    methods = methods_of(module.cls) if module.cls is not None else {}
    if "forward" not in methods or module.cls is None:
        return False
    called = [methods[name] for name in (reads_of("forward", methods) | {"forward"}) & methods.keys()]
    quiet: set[str] = set()
    learning: set[str] = set()
    for cls in module.cls.line():
        own = [each for method in called for each in walk(method) if is_own(each) and each in cls.source.parents]
        for node in own:  # what a base class of another module has is looked at with that one
            blocks = [each for each in cls.source.ancestors(node) if isinstance(each, ast.With)]
            below = any(forbids_gradients(item.context_expr) for block in blocks for item in block.items)
            (quiet if below or _takes_data(node, cls.source) else learning).add(node.attr)
    frozen = {thing for event in run.of("freeze") for thing in event.value.things}
    held = {name: module.attributes[name].things for name in (quiet - learning) & module.attributes.keys()}
    layers = {name: {t for t in things if isinstance(t, Object) and t.roles & LAYERS} for name, things in held.items()}
    return any(each and not each & frozen for each in layers.values())


def _takes_data(node: ast.Attribute, source: Source) -> bool:
    """Whether something is read for `.data` alone: on the right of `weight.data = …`, or in `weight.data.mul_(…)`."""
    statement = source.statement(node)
    if isinstance(statement, ast.Assign):
        return all(_is_data(each) for each in statement.targets) and node in walk(statement.value)
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and _is_data(call.func.value)


def _is_data(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "data"


def runs_by_chance(parts: Iterable[Object], run: Interpreter) -> bool:
    """Whether parts of a module may run in one step and not in another."""
    return any(chooses_parts(part, run) or any(True for _ in branches(part, run)) for part in parts)


def chooses_parts(module: Object, run: Interpreter) -> bool:
    """Whether it is drawn, or told by an index, which parts of a module run, or how often."""
    return repeats_at_random(module, run) or picks(module, run)


def _switched_off(module: Object, run: Interpreter) -> bool:
    """Whether under some settings of a module a part of it has no say in what forward returns:
    `if self.norm: x = self.norm_layer(x)`, or `self.body(out if self.first else x)`."""
    node = next((each.node for each in module.functions("forward")), None)
    if module.cls is None or not isinstance(node, ast.FunctionDef):
        return False
    methods = methods_of(module.cls)
    reads = {name: reads_of(name, methods) for name in methods}
    called = {name for name in reads["forward"] if name in methods}
    elsewhere = {"forward", "__init__", *called}
    layers = {name for name in own_parts(module) | own_parameters(module) if always_made(name, module)}
    layers &= reads["forward"] - {name for method in methods.keys() - elsewhere for name in reads[method]}
    settings = settings_of(node)
    if not layers or not settings or len(settings) > MOST_SETTINGS:
        return False
    choices = [choices_of(setting, module) for setting in settings]
    parts = {**{name: frozenset([name]) for name in layers}, **{name: reads[name] & layers for name in called}}
    used = [Forward(parts, dict(zip(settings, each, strict=True))).used(node) for each in product(*choices)]
    return any(layers - each for each in used)


def _has_no_say(module: Object, run: Interpreter) -> bool:
    """Whether a part is run in each forward pass, and what it gives is never read: `_, state = self.rnn(x)`."""
    methods = methods_of(module.cls) if module.cls is not None else {}
    if "forward" not in methods or any(isinstance(n, ast.Name) and n.id == "super" for n in walk(methods["forward"])):
        return False
    reads = {name: reads_of(name, methods) for name in methods}
    called = {name for name in reads["forward"] if name in methods}
    layers = {name for name in own_parts(module) if always_made(name, module)} & reads["forward"]
    layers -= {name for method in methods.keys() - {"forward", "__init__", *called} for name in reads[method]}
    parts = {**{name: frozenset([name]) for name in layers}, **{name: reads[name] & layers for name in called}}
    kept = {n.attr for n in walk(methods["forward"]) if is_own(n) and isinstance(n.ctx, ast.Store)}
    unread = {name for name in kept if not any(_reads(source, name) for source in run.project.sources)}
    return bool(layers - Forward(parts, {}, unread=unread).used(methods["forward"]))


def _cuts_off(module: Object) -> bool:
    """Whether a table or a loose parameter has a say in a forward pass, but no gradient comes back to it: the codes of
    `x + (codes - x).detach()`, which follow the samples in another way."""
    methods = methods_of(module.cls) if module.cls is not None else {}
    node = methods.get("forward")
    if module.cls is None or node is None or "requires_grad" in ast.unparse(module.cls.node):
        return False
    held = {name for name in own_parts(module) | own_parameters(module) if always_made(name, module)}
    named = {name: [t for t in module.attributes[name].things if isinstance(t, Object)] for name in held}
    tables = {n for n, things in named.items() if all(is_table(each) for each in things)}
    parts = {name: frozenset([name]) for name in tables}
    parts |= {name: reads_of(name, methods) & tables for name in reads_of("forward", methods) & methods.keys()}
    return bool(tables and Forward(parts, {}).used(node) - Forward(parts, {}, learns=True).used(node))


def returns_parameters(module: Object) -> bool:
    """Whether it is written in a forward pass that it gives back parameters, `return features, self.logit_scale`."""
    names = own_parameters(module)
    given = (r.value for each in module.functions("forward") for r in all_of(each.node, ast.Return))
    outputs = (
        part
        for value in given
        for part in (
            value.elts
            if isinstance(value, (ast.Tuple, ast.List))
            else value.values if isinstance(value, ast.Dict) else [value]
        )
    )
    return any(is_own(each) and each.attr in names for each in outputs if each is not None)


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
        for n in walk(source.tree)
    )


def _sets_values(node: ast.Attribute, source: Source) -> bool:
    """`self.weight.data.fill_(1)` and `nn.init.zeros_(self.weight)`, which a forward pass has nothing of."""
    parent = source.parents.get(node)
    if isinstance(parent, ast.Attribute) and parent.attr in ("data", "size", "shape"):
        return True
    called = parent.func if isinstance(parent, ast.Call) and node in parent.args else None
    return isinstance(called, ast.Attribute) and "init" in ast.unparse(called.value).split(".")


def branches(module: Object, run: Interpreter) -> Iterator[ast.If | ast.IfExp]:
    """Conditions within forward that decide which parts of a module run, and may change from step to step."""
    names = own_parts(module)
    for function in module.functions("forward"):
        for branch in walk(function.node):
            if isinstance(branch, ast.IfExp) and not is_settled(branch.test, module):
                if called_parts([branch.body], names, run) != called_parts([branch.orelse], names, run):
                    yield branch
            if isinstance(branch, ast.If) and not is_settled(branch.test, module):
                called = [called_parts(block, names, run) for block in (branch.body, branch.orelse)]
                left = any(isinstance(n, (ast.Continue, ast.Return)) for s in branch.body for n in walk(s))
                if called[0] != called[1] or left and names:
                    yield branch


def _has_unread(cls: Class, names: set[str], run: Interpreter) -> bool:
    """Whether one of these parts is made and never mentioned again, but in a method that nobody calls, to be copied:
    `copy.deepcopy(self.encoder)`, or while the module is made, `self.first.weight.data = self.vgg[0].weight.data`."""
    methods = methods_of(cls)
    begin = methods.get("__init__")
    if begin is None or not names:
        return False
    nodes = [node for each in cls.line() for node in walk(each.node)]
    copies = [n for n in nodes if isinstance(n, ast.Call) and last_name(n.func) in COPYING]
    copied = {id(argument) for call in copies for argument in call.args}
    own = [each for one in cls.line() for each in one.node.body if isinstance(each, ast.FunctionDef)]
    made = {id(n) for each in own if each.name == "__init__" for n in walk(each)}
    asked = {
        n.attr for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Call)
    }  # `super().encode`
    for each in own:  # what a class has anew, nothing reads of the one that it derives from
        if methods.get(each.name) is not each and each.name not in asked | {"__init__", "__call__"}:
            copied |= {id(n) for n in walk(each)}
    filled = set(made)
    for method in while_made(methods):
        filled |= {id(n) for n in walk(method)}
        copied |= {id(n) for each in walk(method) if _takes_numbers(each) for n in walk(each)}
    called = {node.attr for node in nodes if is_own(node)}
    for title, method in methods.items():
        if title not in called and not title.startswith("__") and method not in run.callers:
            copied |= {id(n) for n in walk(method)}
    read: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Name) and node.id in ("getattr", "__dict__"):
            return False
        if not isinstance(node, ast.Attribute) or id(node) in copied:
            continue
        if node.attr in ("children", "modules", "_modules") and id(node) not in filled:  # `__init__` only fills them
            return False
        making = id(node) in made and (isinstance(node.ctx, ast.Store) or not is_own(node))  # `models.vgg16()`
        if not making:
            read.add(node.attr)
    return bool(names - read)


def _takes_numbers(node: ast.AST) -> bool:
    """`self.vgg.features[0].weight.data`, through which no gradient flows."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in ("detach", "state_dict", "size") and not node.args
    return isinstance(node, ast.Attribute) and node.attr in ("data", "shape") and isinstance(node.ctx, ast.Load)


def _gives_weight_only(name: str, module: Object) -> bool:
    """Whether a layer is never run, but its weight taken, `h @ self.out.weight.t()`: its bias goes unused."""
    layers = [t for t in module.attributes[name].things if isinstance(t, Object)]
    if module.cls is None or not layers or not all(t.name in BIASED and _has_bias(t) for t in layers):
        return False
    weights, others = 0, 0
    for method in (each for key, each in methods_of(module.cls).items() if key != "__init__"):
        taken = {id(n.value) for n in walk(method) if isinstance(n, ast.Attribute) and n.attr == "weight"}
        mentions = [n for n in walk(method) if is_own(n) and n.attr == name]
        weights += sum(id(each) in taken for each in mentions)
        others += sum(id(each) not in taken for each in mentions)
    return weights > 0 and not others


def _has_bias(layer: Object) -> bool:
    given = layer.argument("bias", 2 if layer.name == "torch.nn.Linear" else 7)
    return given is None or given.const is True
