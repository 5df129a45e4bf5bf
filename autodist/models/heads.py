"""Layers of a model that a training step may leave out, because its loss reads only some of the model's outputs: in a
tuple, a dict, an object."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from itertools import pairwise

from autodist.interpreter import Interpreter
from autodist.models.history import History, learning
from autodist.models.parts import parts
from autodist.models.reading import LAYERS, bound_to, forbids_gradients, has_no_gradient, has_parameters
from autodist.models.unused import returns_parameters
from autodist.source import Source, all_of, last_name, walk
from autodist.values import NOTHING, External, Function, Items, Object, Parameters, Stream, Table, Thing, Value

Layers = frozenset[Object]
Made = Iterable[tuple[Source, ast.expr]]
NONE: Layers = frozenset()
READERS = (ast.Name, ast.Attribute, ast.Subscript, ast.Call)
GATHERING = frozenset("sum stack cat concat dict list tuple zip enumerate values items max min mean add".split())
"""Calls that use all that they are given in a list or a dict."""
COMPREHENSIONS = (ast.GeneratorExp, ast.ListComp, ast.SetComp, ast.DictComp)
DEEPEST = 200


def leaves_heads(module: Object, run: Interpreter, history: History) -> bool:
    """Whether a loss may be computed without layers that one of several outputs of a model is computed by: `loss =
    f(out["boxes"])`, where the model gives `out["logits"]`, too."""
    reads = _Reads(module, run)
    for backward in history.backwards.get(module, []):
        passes = [each for each in learning(module, history) if each.order < backward.order]
        things = [thing for each in passes if isinstance(each.node, ast.expr) for thing in _things(each.node, run)]
        given = [reads.given(output) for thing in things for output in _held(thing, run)]
        left = NONE.union(*given) - reads.surely(backward.node)
        if reads.unseen or len(set(given)) > 1 and left:
            return True
    return False


def gives_parameters(module: Object, run: Interpreter, history: History) -> bool:
    """Whether parameters themselves are among the outputs of a model, `{"boxes": boxes, "scale": self.scale}`."""
    if returns_parameters(module):
        return True
    passes = [each.node for each in learning(module, history) if isinstance(each.node, ast.expr)]
    outputs = [output for each in passes for thing in _things(each, run) for output in _held(thing, run)]
    made = [node for output in outputs for _, node in output.made]
    bare = (isinstance(each, ast.Attribute) and _names_parameter(each, run) for each in made)
    return any(map(_parameters, outputs)) or any(bare)


def _names_parameter(node: ast.Attribute, run: Interpreter) -> bool:
    """`self.table.weight`"""
    layers = [t for t in _things(node.value, run) if isinstance(t, Object) and t.cls is None and has_parameters(t)]
    return node.attr in ("weight", "bias") and bool(layers)


def gives_objects(module: Object, run: Interpreter, history: History) -> bool:
    """Whether a model gives its outputs in an object of a class that is no list, tuple or dict."""
    passes = [each.node for each in learning(module, history) if isinstance(each.node, ast.expr)]
    given = [_things(each, run) for each in passes]
    return any(
        _is_opaque(t, run) for things in given if not any(isinstance(t, (Items, Table)) for t in things) for t in things
    )


def _is_opaque(thing: Thing, run: Interpreter) -> bool:
    """Whether it holds tensors that the wrapper does not find: in named tuples and outputs of transformers, it does."""
    if not isinstance(thing, Object) or thing.roles & LAYERS or not any(True for _ in _held(thing, run)):
        return False
    return not any(
        name.endswith(("NamedTuple", "namedtuple", "Output", ".dict", "OrderedDict")) for name in thing.library_classes
    )


def _things(node: ast.expr, run: Interpreter) -> frozenset[Thing]:
    return run.values.get(node, NOTHING).things


def _held(thing: Thing, run: Interpreter, depth: int = 4) -> Iterator[Value]:
    """The tensors in a list, a dict or an object, and in those within it."""
    if isinstance(thing, Table):
        held = [*thing.entries.items(), (None, thing.element)]
    elif isinstance(thing, Items):
        held = [*enumerate(thing.parts), (None, thing.element)]
    elif isinstance(thing, Stream):
        held = [(None, thing.element)]
    else:
        held = list(thing.attributes.items()) if isinstance(thing, Object) and not thing.roles & LAYERS else []
    for key, each in held:
        made = each.made or frozenset(_written(thing, key, run))
        if made:
            yield each.but(made=made)
        if depth:
            yield from (inner for other in each.things for inner in _held(other, run, depth - 1))


def _written(thing: Thing, key: object, run: Interpreter) -> Made:
    """What is put under a key of a dict, a tuple or an object, where it is told there: `{"scale": self.scale.exp()}`,
    `out["scale"] = self.scale`."""
    node = thing.node if isinstance(thing, (Table, Items, Object)) else None
    match node:
        case ast.Dict():
            found = [v for k, v in zip(node.keys, node.values, strict=True) if getattr(k, "value", None) == key]
        case ast.Tuple() | ast.List() if isinstance(key, int):
            found = node.elts[key : key + 1]
        case ast.Call():
            found = [each.value for each in node.keywords if each.arg == key]
        case _:
            found = []
    for _, each in thing.stores if isinstance(thing, Table) else ():
        above = run.sources[each].parents.get(each) if each in run.sources else None
        targets = above.targets if isinstance(above, ast.Assign) else []
        found += [each for t in targets if isinstance(t, ast.Subscript) and getattr(t.slice, "value", None) == key]
    alone = (each for each in found if each in run.sources and _is_of_parameters(each, run))
    return [(run.sources[each], each) for each in alone] if key is not None else []


def _is_of_parameters(node: ast.expr, run: Interpreter) -> bool:
    """Whether it is computed from what the module holds alone, `torch.sigmoid(self.scale)`, and from no sample."""
    names = [each for each in ast.walk(node) if isinstance(each, ast.Name)]
    others = (each for each in names if each.id != "self")
    plain = all(all(isinstance(t, External) for t in _things(each, run)) and _things(each, run) for each in others)
    return plain and any(each.id == "self" for each in names)


def _parameters(value: Value) -> Layers:
    """The loose parameters that a value is, or the layers of which it is one, as it is: `self.scale`,
    `self.table.weight`."""
    loose = {t for t in value.things if isinstance(t, Object) and "parameter" in t.roles}
    layers = (t.module for t in value.things if isinstance(t, Parameters) and t.one)
    return frozenset(loose | {each for each in layers if isinstance(each, Object)})


class _Reads:
    """What expressions of a training step are computed by, of the layers of one model."""

    def __init__(self, module: Object, run: Interpreter) -> None:
        self._run = run
        self._module = module
        self._bodies = {cls.node for part in parts(module) if part.cls is not None for cls in part.cls.line()}
        self._known: dict[ast.AST, Layers] = {}
        pops = (each for each in run.values if isinstance(each, ast.Call) and last_name(each.func) == "pop")
        self._popped = {made for each in pops for made in run.values[each].made}
        self.unseen = False
        """Whether a key was read of outputs of which nobody knows what they are."""

    def given(self, output: Value) -> Layers:
        """The layers that an output is computed by, as far as this model gives it, and not another one in its place."""
        return self.within(each for each in output.made if self._is_inside(*each)) | _parameters(output)

    def within(self, made: Made) -> Layers:
        """The layers that some expressions of a model are computed by, under whatever conditions."""
        found: set[Object] = set()
        pending: list[ast.AST] = [node for _, node in made]
        seen: set[ast.AST] = set()
        while pending:
            node = pending.pop()
            if node in seen:
                continue
            seen.add(node)
            value = self._run.values.get(node, NOTHING) if isinstance(node, ast.expr) else NOTHING
            if not isinstance(node, ast.Name) or node.id != "self":
                found |= {t for t in value.things if isinstance(t, Object) and has_parameters(t)}
            pending += [inner for _, inner in value.made]
            pending += ast.iter_child_nodes(node)
        return frozenset(found)

    def surely(self, node: ast.AST, depth: int = DEEPEST) -> Layers:
        """The layers that an expression is computed by in each training step."""
        if node in self._known or not depth:
            return self._known.get(node, NONE)
        self._known[node] = NONE  # until more is known, in a loop
        self._known[node] = found = self._surely(node, depth - 1)
        return found

    def _surely(self, node: ast.AST, depth: int) -> Layers:
        if (
            has_no_gradient(node)
            or isinstance(node, COMPREHENSIONS)
            and not all(self._holds(test) for each in node.generators for test in each.ifs)
        ):
            return NONE
        if isinstance(node, ast.IfExp) and not self._holds(node.test):
            return self.surely(node.body, depth) & self.surely(node.orelse, depth)
        value = self._run.values.get(node, NOTHING) if isinstance(node, ast.expr) else NOTHING
        if isinstance(node, ast.Call) and (lambdas := self._lambdas(node)):
            return frozenset.intersection(*(self.surely(each.body, depth) for each in lambdas))
        if isinstance(node, READERS):
            if self._reads_unknown_key(node):
                return NONE
            held = [each.made for thing in value.things for each in _held(thing, self._run)]
            if own := _parameters(value):
                return own
            made = value.made or self._bound(node, value) or self._told(node) if not held else value.made
            if made or held:
                return self._made_by(node, made, depth).union(*(self._made_by(node, m, depth) for m in held))
        read = [each for each in ast.iter_child_nodes(node) if not isinstance(each, ast.comprehension)]
        if isinstance(node, ast.Call) and last_name(node.func) not in GATHERING:
            read = [each for each in read if not self._is_output(each)]  # which it reads of them, nobody knows
        return NONE.union(*(self.surely(each, depth) for each in read))

    def _made_by(self, node: ast.expr, made: Made, depth: int) -> Layers:
        """The same of what an expression reads, which was made at one of several places."""
        always: list[Layers] = []
        by_chance: list[Layers] = []
        arms: set[tuple[ast.AST, bool]] = set()
        returns = False  # one of the places is always reached
        made = list(made)
        for source, each in made:
            if len(made) > 1 and (source, each) in self._popped:
                continue
            if self._is_inside(source, each):  # of the conditions there, others take care
                always.append(NONE if _is_below_no_grad(source, each) else self.within([(source, each)]))
                continue
            found = NONE if _is_below_no_grad(source, each) else self.surely(each, depth)
            depends = self._depends(source, each, node)
            (by_chance if depends else always).append(found)
            statement = source.statement(each)
            returns = returns or isinstance(statement, ast.Return) and statement.value is each
            arms |= {self._arm(source, each, depends[-1])} if depends else set()
        if isinstance(node, ast.Call) and last_name(node.func) in GATHERING or not (always or by_chance):
            return NONE.union(*always)
        if len(always) > 1 and isinstance(node, ast.Subscript) and not self._is_of_loop(node.slice, node):
            return frozenset.intersection(*always, *by_chance)  # `out[args.task]`
        if not (always or returns) and not any((branch, not first) in arms for branch, first in arms):
            return NONE
        return frozenset.intersection(*([NONE.union(*always)] if always else []), *by_chance)

    def _lambdas(self, call: ast.Call) -> list[ast.Lambda]:
        called = (t.node for t in _things(call.func, self._run) if isinstance(t, Function))
        return [each for each in called if isinstance(each, ast.Lambda)]

    def _bound(self, node: ast.expr, value: Value) -> Made:
        """What a name is bound to, where a loss over all ranks no longer tells by what it is made."""
        if not isinstance(node, ast.Name) or self._module not in value.models:
            return ()
        source = self._run.sources[node]
        return [(source, each) for each in bound_to(node.id, source.home(node))]

    def _told(self, node: ast.AST) -> Made:
        """What an output is made by that is read by its key or its name, `out["scale"]`, if it is told where it is
        put."""
        if isinstance(node, ast.Subscript):
            base, key = node.value, self._run.values.get(node.slice, NOTHING).const
        elif isinstance(node, ast.Attribute):
            base, key = node.value, node.attr
        elif isinstance(node, ast.Name):
            return self._unpacked(node)
        else:
            return ()
        found = [each for thing in _things(base, self._run) for each in _written(thing, key, self._run)]
        return [each for each in found if self._is_inside(*each)]

    def _unpacked(self, node: ast.Name) -> Made:
        """The same of a name that is bound to one of several outputs: `boxes, scale = model(x)`."""
        source = self._run.sources.get(node)  # none for code that does not run
        found: list[tuple[Source, ast.expr]] = []
        for each in ast.walk(source.home(node)) if source is not None else ():
            targets = each.targets if isinstance(each, ast.Assign) else []
            for target in (t for t in targets if isinstance(t, (ast.Tuple, ast.List))):
                at = [place for place, part in enumerate(target.elts) if getattr(part, "id", "") == node.id]
                things = _things(each.value, self._run) if isinstance(each, ast.Assign) else ()
                found += [made for place in at for thing in things for made in _written(thing, place, self._run)]
        return [each for each in found if self._is_inside(*each)]

    def _arm(self, source: Source, node: ast.AST, condition: ast.AST) -> tuple[ast.AST, bool]:
        """The branch that a condition decides, and whether an expression stands in its first block."""
        around = [node, *source.ancestors(node)]
        for inner, outer in pairwise(around):
            if getattr(outer, "test", None) is condition:
                return outer, isinstance(outer, ast.If) and inner in outer.body
        return condition, True

    def _is_inside(self, source: Source, node: ast.AST) -> bool:
        """Whether an expression stands in the model's own code, whose conditions others look at."""
        return any(each in self._bodies for each in source.ancestors(node))

    def _depends(self, source: Source, made: ast.expr, reader: ast.expr) -> list[ast.AST]:
        """The conditions, the outermost last, on which it depends that something is computed, and which do not decide
        as well whether another place reads it."""
        shared = {ast.unparse(each) for each in _conditions(self._run.sources[reader], reader)}
        found = (each for each in _conditions(source, made) if ast.unparse(each) not in shared)
        return [each for each in found if not self._holds(each)]

    def _holds(self, test: ast.AST) -> bool:
        """`"logits" in out`, `out.get("logits") is not None`, where a model always gives that; `key in weights`, where
        a loop goes over losses that all have a weight."""
        if isinstance(test, ast.Call) and ast.unparse(test.func) == "isinstance" and len(test.args) == 2:
            things = _things(test.args[0], self._run)
            return ast.unparse(test.args[1]) == "dict" and bool(things) and all(isinstance(t, Table) for t in things)
        if not isinstance(test, ast.Compare) or len(test.ops) > 1:
            return False
        if isinstance(test.ops[0], ast.IsNot):
            value = self._run.values.get(test.left, NOTHING)
            return bool(value.made) and not value.optional
        tables = [t for t in _things(test.comparators[0], self._run) if isinstance(t, Table)]
        names = self._names(test.left)
        return (
            isinstance(test.ops[0], ast.In) and len(tables) == 1 and bool(names) and names <= tables[0].entries.keys()
        )

    def _names(self, key: ast.expr) -> set[object]:
        """What a key may be: itself, or those of a dict that a loop goes over."""
        if isinstance(key, ast.Constant):
            return {key.value}
        for loop in self._loops(key):
            over = loop.iter
            if isinstance(over, ast.Call) and isinstance(over.func, ast.Attribute) and not over.args:
                over = over.func.value
            target = loop.target.elts[0] if isinstance(loop.target, ast.Tuple) else loop.target
            tables = [t for t in _things(over, self._run) if isinstance(t, Table)]
            if ast.unparse(target) == ast.unparse(key) and len(tables) == 1 and not tables[0].element.made:
                return set(tables[0].entries)
        return set()

    def _loops(self, node: ast.expr) -> list[ast.For | ast.comprehension]:
        around = list(self._run.sources[node].ancestors(node))
        generators = [each for over in around if isinstance(over, COMPREHENSIONS) for each in over.generators]
        return [*generators, *(each for each in around if isinstance(each, ast.For))]

    def _is_of_loop(self, key: ast.expr, reader: ast.expr) -> bool:
        """Whether a key is that which a loop has come to: `out[name] for name in names`."""
        loops = self._loops(reader)
        bound = {n.id for loop in loops for n in all_of(loop.target, ast.Name)}
        return any(isinstance(n, ast.Name) and n.id in bound for n in walk(key))

    def _reads_unknown_key(self, node: ast.expr) -> bool:
        """Whether a key is read of which nobody knows by what it is made: one of a dict or a list that a loop fills,
        or of outputs whose kind is not known."""
        if isinstance(node, ast.Subscript):
            base, key = node.value, node.slice
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "get"
            and node.args
        ):
            base, key = node.func.value, node.args[0]
        else:
            return False
        held = self._run.values.get(base, NOTHING)
        name = self._run.values.get(key, NOTHING).const
        tables = [each for each in held.things if isinstance(each, Table)]
        lists = [each for each in held.things if isinstance(each, Items) and not each.parts and each.element != NOTHING]
        if isinstance(name, int) and lists:
            unknown = True
        elif not isinstance(name, str) or any(name in each.entries for each in tables):
            return False
        else:
            unknown = not held.things or any(each.element != NOTHING for each in tables)
        self.unseen = self.unseen or unknown and self._module in held.models
        return bool(tables) or unknown and self._module in held.models

    def _is_output(self, node: ast.AST) -> bool:
        """Whether it is all that the model gives, in a list, a dict or an object."""
        given = node.value if isinstance(node, (ast.keyword, ast.Starred)) else node
        things = self._run.values.get(given, NOTHING).things if isinstance(given, ast.expr) else ()
        made = (each for thing in things for value in _held(thing, self._run) for each in value.made)
        return any(self._is_inside(*each) for each in made)


def _conditions(source: Source, node: ast.AST) -> Iterator[ast.AST]:
    """What decides whether something is computed."""
    yield from source.conditions(node)
    yield from (each for each in source.ancestors(node) if isinstance(each, (ast.match_case, ast.ExceptHandler)))


def _is_below_no_grad(source: Source, node: ast.AST) -> bool:
    blocks = (each for each in source.ancestors(node) if isinstance(each, ast.With))
    return any(forbids_gradients(item.context_expr) for block in blocks for item in block.items)
