"""Calls of Python's own functions."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from functools import partial

from autodist.interpreter.arithmetic import Arithmetic
from autodist.interpreter.attributes import Attributes, class_of
from autodist.interpreter.contents import UNROLLED
from autodist.interpreter.questions import (
    is_hashable,
    is_hidden,
    is_set,
    leaves_ties,
    makes_set,
    may_spell,
    pieces_of,
    stable_order,
)
from autodist.interpreter.roles import Roles
from autodist.interpreter.words import KEPT
from autodist.project.chosen import among, imported, template
from autodist.spread import LOCAL, RANK, SAME, WORLD
from autodist.values import (
    NOTHING,
    UNKNOWN,
    Class,
    External,
    Function,
    Index,
    Items,
    LocalModule,
    Object,
    Parameters,
    Preset,
    Scope,
    Stream,
    Table,
    Thing,
    Value,
    Wrapped,
    constant,
    drawn_by_evaluation,
    of,
    stored,
    union,
)

JOINED = ("tensors", "arrays", "sequences")
"""How a function calls the parameter that takes the tensors it puts together."""


REPLACING = frozenset(["dataclasses.replace", "attr.evolve", "attrs.evolve"])
"""What makes another object of the same kind, with other fields."""

CONTAINERS = frozenset(f"builtins.{name}" for name in ("list", "tuple", "dict", "set", "str", "int", "float"))
"""Classes that no module is of."""


class BuiltinCalls(Attributes, Arithmetic, Roles):
    """Calls of Python's own functions."""

    def _builtin(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value | None:
        short = name.removeprefix("builtins.").removeprefix("itertools.")
        first = args[0] if args else NOTHING
        if short in (
            "iter",
            "reversed",
            "sorted",
            "islice",
            "cycle",
            "copy.copy",
            "copy.deepcopy",
            "list",
            "tuple",
            "set",
            "frozenset",
        ):
            if short in ("copy.copy", "copy.deepcopy"):
                return self._copied(first, node, scope)
            return self._listed("set" if short == "frozenset" else short, first, node, scope)
        if short in ("typing.cast", "torch.jit.annotate") and len(args) == 2:
            return args[1]
        if name in REPLACING:
            return first
        if short in ("filter", "filterfalse"):
            return self._filtered(node, args, scope)
        if short == "next":
            return self._element(first, node) if first.things else first
        if short == "enumerate":
            if is_set(first):
                self.event("ordered", node.args[0], scope, first)
            numbers = Value(frozenset(t for t in first.things if isinstance(t, Index)))
            parts = [of(Index(node)), self._element(first, node) | numbers]
            return self._stream(node, of(self._remember(node, lambda: Items(node, [], NOTHING), "pair")), parts, first)
        if short == "zip" and (pairs := self._zipped(node, args)) is not None:
            return pairs
        if short in ("zip", "zip_longest", "product"):
            parts = [self._element(value, node) for value in args]
            return self._stream(
                node, of(self._remember(node, lambda: Items(node, [], NOTHING), "pair")), parts, union(args)
            )
        if short in ("range", "count"):
            return of(Index(node))
        if short in ("chain", "chain.from_iterable"):
            element = union(self._element(value, node) for value in args)
            if short != "chain":
                element = self._element(element, node)
            return Value(
                frozenset(
                    [
                        Stream(element, NOTHING),
                        *(replace(t, one=False) for t in element.things if isinstance(t, Parameters)),
                    ]
                )
            )
        if short == "map":
            for read in (each for each in args[1:] if any(each.objects("loader"))):
                self.event("listed", node, scope, read)
            if len(args) == 2 and (wanted := self._key_got(node.args[0])) is not None:
                return of(Stream(_entry(self._element(args[1], node), wanted), NOTHING))
            for thing in first.things:
                if isinstance(thing, (Function, Object)):
                    return of(
                        Stream(self._call(thing, node, [self._element(v, node) for v in args[1:]], {}, scope), NOTHING)
                    )
            return of(Stream(self._mixed([self._element(v, node) for v in args[1:]]), NOTHING))
        if short == "vars" and len(args) == 1 and (by_name := self._as_dict(first, node)) is not None:
            return by_name
        if short == "functools.reduce" and len(args) > 1:
            return self._folded(node, args, scope)
        if short == "len":
            return self._length(first)
        if short == "isinstance" and len(args) == 2:
            if _are_modules(first) and args[1].things and all(map(_is_module_class, args[1].things)):
                return constant(True, firm=True)
            if _are_modules(first) and first.spread is SAME and self._are_containers(args[1]):
                return constant(False, firm=True)  # `isinstance(data, (list, tuple))`, where it is a model
            if _are_own_functions(first) and args[1].things and all(map(_is_optimizer_class, args[1].things)):
                return constant(False, firm=True)  # a step that is written by hand, in place of an optimizer
        if short == "hasattr" and first.things and all(isinstance(each, Wrapped) for each in first.things):
            if args[-1].const == "module":
                return constant(True, firm=True)
        if short == "hasattr" and first.things and _all_define(first, args[-1].const):
            return constant(True, firm=True)
        if short == "slice" and any(value.spread is RANK for value in args):
            return Value(spread=LOCAL)
        if short in ("sum", "fsum", "math.fsum"):
            if len(node.args) > 1 and isinstance(node.args[1], ast.List) and not self._one_inside(first).things:
                return self._one_inside(first)  # `sum([boxes.tolist() for boxes in targets], [])`
            inner = first.but(things=frozenset()) | self._one_inside(first)
            return inner.but(const=UNKNOWN, firm=False, things=frozenset())
        if short in ("str", "repr", "format"):
            shown = bool(node.args) and self._shown(first, node, scope)
            if any(v.spread.is_local or self.holds_local(v) for v in args) and node.args and not shown:
                self.event("format", node.args[0], scope, first)
            return self._text(args)
        if short in ("float", "int") and not args:
            return constant(0)  # as `defaultdict(float)` asks for
        if short in ("float", "int", "abs", "bool", "complex"):
            if (told := self._number_of(short, first, node, scope)) is not None:
                first = told
            return (
                first.but(things=frozenset(), const=UNKNOWN, firm=False)
                if short != "int"
                else first.computed(first.spread).but(things=first.things)
            )
        if short == "vars" and any(isinstance(each, LocalModule) for each in first.things):
            return union(self._namespace(each, node) for each in first.things if isinstance(each, LocalModule))
        if short in (
            "print",
            "open",
            "input",
            "isinstance",
            "hasattr",
            "type",
            "id",
            "callable",
            "dir",
            "vars",
            "super",
        ):
            if short == "open":
                return self.call_open(name, node, args, keywords, scope)
            if short == "input":
                self.event("asked", node, scope)
            if short == "type" and len(args) == 1:
                self.event("asked_class", node, scope, first)
                return class_of(first)
            return NOTHING
        if short == "getattr" and len(node.args) > 1:
            wanted = args[1].const
            if isinstance(wanted, str):
                fake = ast.Attribute(node.args[0], wanted, ast.Load())
                held = union(self._attribute(t, fake, first, scope) for t in first.things)
                return held if held.things or len(args) < 3 else held | _fallen_back_on(args[2])
            listed = among(node, node.args[1], scope.source.ancestors(node))
            if listed:
                asked = [ast.Attribute(node.args[0], each, ast.Load()) for each in listed]
                return union(self._attribute(thing, each, first, scope) for each in asked for thing in first.things)
            named = [each for thing in first.things for each in self._named_alike(thing, node.args[1])]
            return union(named or (self._any_of(thing, node, scope) for thing in first.things))
        if short == "setattr" and len(args) == 3 and (args[2].things or _names_own_attribute(first, args[1])):
            known = args[1].const
            self._keep_attribute(node, first, known if isinstance(known, str) else KEPT, args[2], scope)
            return NOTHING
        if short == "eval":
            return self._named(node, first, scope)
        if short in ("importlib.import_module", "__import__"):
            found = imported(node, first.const, scope.source, self.project.modules, self.project.chosen)
            return union(self._module(each, node) for each in found) if found else None
        if short == "pydoc.locate" and isinstance(first.const, str) and "." in first.const:
            module, _, wanted = first.const.rpartition(".")
            held = self._module(module, node)
            return union(self._attribute(t, ast.Attribute(node, wanted, ast.Load()), held, scope) for t in held.things)
        if short == "inspect.getmembers" and any(isinstance(each, LocalModule) for each in first.things):
            return self._members(first, node)
        if (
            short == "types.SimpleNamespace"
            or short == "argparse.Namespace"
            and any(v.things for v in keywords.values())
        ):
            made = self._remember(node, lambda: Object(short, frozenset(), node, scope.source, self._path))
            made.attributes.update({name: value.but(firm=False) for name, value in keywords.items()})
            return of(made)
        if short in ("globals", "locals"):
            names = scope.top.names if short == "globals" else scope.names
            return of(Table(ast.Attribute(node, "__dict__", ast.Load()), dict(names), NOTHING))
        if short in ("collections.deque", "deque"):
            items = self._remember(node, lambda: Items(node, [], NOTHING))
            items.element = items.element | self._element(first, node)
            return Value(frozenset([items]), first.spread, first.origins) if first.spread.is_local else of(items)
        if short in ("dict", "collections.OrderedDict", "collections.defaultdict", "collections.Counter"):
            table = self._remember(node, lambda: Table(node, {}, NOTHING))
            if short.endswith("Counter") and node.args and self._holds_samples(first):
                self._count_samples(table, first, node.args[0], scope)
            for thing in first.things:
                if isinstance(thing, Table):
                    table.entries.update(thing.entries)
                    table.element = table.element | thing.element
                elif isinstance(thing, Items):
                    self._put_pairs(table, thing)
                elif isinstance(thing, Parameters) and thing.named:
                    table.element = table.element | of(Parameters(thing.module, one=True))
                elif isinstance(thing, Stream):
                    table.element = table.element | self._part(self._element(of(thing), None), 1, 2)
            if first.spread.is_local and not first.things:
                table.element = table.element | first
            if short.endswith("defaultdict"):
                path, self._path = self._path, (*self._path, 0)
                produced = union(self._call(t, node, [], {}, scope) for t in first.things)
                table.element = table.element | produced
                table.entries.update(dict.fromkeys(table.entries, produced))  # made anew, as in each round of a loop
                self._path = path
            for key, value in keywords.items():
                table.put(key, value)
            table.stores |= stored(scope.source, (each.value for each in node.keywords))
            return of(table)
        if short in ("min", "max", "round", "pow", "divmod"):
            chosen = self._mixed(args)
            return chosen.but(origins=chosen.origins | drawn_by_evaluation(map(self._one_inside, args)))
        if short in ("os.environ.get", "os.getenv"):
            key = first.const
            if key in ("RANK", "LOCAL_RANK", "SLURM_PROCID", "SLURM_LOCALID"):
                return Value(spread=RANK)
            return Value(spread=WORLD) if key == "WORLD_SIZE" else NOTHING
        if short in ("functools.partial", "partial"):
            return self._partial(node, first, args[1:], keywords)
        if short == "torch.nn.utils.rnn.pack_padded_sequence":
            return self._mixed([*args, *keywords.values()])
        if short in (
            "torch.stack",
            "torch.cat",
            "torch.vstack",
            "torch.hstack",
            "numpy.concatenate",
            "numpy.stack",
            "torch.nn.utils.rnn.pad_sequence",
            "numpy.vstack",
            "numpy.hstack",
        ):
            first = first if args else keywords.get(next((k for k in JOINED if k in keywords), ""), NOTHING)
            mixed = first | self._one_inside(first)
            return mixed.computed(LOCAL if mixed.spread is WORLD else mixed.spread)
        return None

    def _key_got(self, node: ast.expr) -> str | None:
        """`correct` of `itemgetter("correct")`"""
        if not isinstance(node, ast.Call) or len(node.args) != 1:
            return None
        names = {each.name for each in self._lately(node.func).things if isinstance(each, External)}
        key = self._lately(node.args[0]).const
        return key if names == {"operator.itemgetter"} and isinstance(key, str) else None

    def _partial(self, node: ast.Call, called: Value, args: list[Value], keywords: dict[str, Value]) -> Value:
        """`partial(summarise, resolution)`: functions and classes know what they are given already."""
        things: set[Thing] = set()
        for thing in called.things:
            made = thing
            if isinstance(thing, (Function, Class)):
                made = self._remember(node, partial(replace, thing), ("partial", thing))
                made.args, made.keywords = [*thing.args, *args], {**thing.keywords, **keywords}
                if isinstance(thing, Class) and isinstance(made, Class):
                    made.whole = thing.whole or thing
            elif isinstance(thing, External) and (args or keywords):
                given = (thing.args, thing.keywords) if isinstance(thing, Preset) else ([], {})
                made = self._remember(node, partial(Preset, thing.name, node), ("partial", thing.name))
                made.args[:] = [*given[0], *args]
                made.keywords.update({**given[1], **keywords})
            things.add(made)
        return called.but(things=frozenset(things))

    def _put_pairs(self, table: Table, pairs: Items) -> None:
        """`dict(zip(names, values))`, `dict([("loss", loss)])`"""
        for pair in (t for each in [*pairs.parts, pairs.element] for t in each.things if isinstance(t, Items)):
            key, value = self._part(of(pair), 0, 2), self._part(of(pair), 1, 2)
            if key.const is not UNKNOWN and is_hashable(key.const):
                table.entries[key.const] = value
            else:
                table.element = table.element | value

    def _are_containers(self, kinds: Value) -> bool:
        """Whether these are classes that no module is of."""
        things = {t for kind in (self._contents(kinds) or [kinds]) for t in kind.things}
        return bool(things) and all(isinstance(t, External) and t.name in CONTAINERS for t in things)

    def _named(self, node: ast.Call, text: Value, scope: Scope) -> Value | None:
        """`eval(args.model)(classes)`, `eval(args.model).Model(classes)`: any model in sight, or module with one."""
        if isinstance(text.const, str) and text.const.isidentifier():
            home = scope.find(text.const)
            return home.names[text.const] if home is not None else None
        if (spelt := self._spelt_out(node, scope)) is not None:
            return spelt
        parent = scope.source.parents.get(node)
        wanted = parent.attr if isinstance(parent, ast.Attribute) else None
        if wanted is None and not (isinstance(parent, ast.Call) and parent.func is node):
            return None
        things: set[Thing] = set()
        inner: Scope | None = scope
        while inner is not None:
            for thing in (t for value in inner.names.values() for t in value.things):
                named = isinstance(thing, LocalModule) and wanted is not None and wanted in thing.scope.names
                if named or isinstance(thing, Class) and "module" in thing.roles and wanted is None:
                    things.add(thing)
            inner = inner.parent
        return Value(frozenset(things)) if things else None

    def _members(self, modules: Value, node: ast.Call) -> Value:
        """`inspect.getmembers(models, inspect.isclass)`: what modules define, by name."""
        members = self._remember(node, lambda: Items(node, [], NOTHING))
        members.parts = []
        for module in (each for each in modules.things if isinstance(each, LocalModule)):
            for name, value in sorted(module.scope.names.items()):
                pair = self._remember(node, lambda: Items(node, [], NOTHING), (module, name))
                pair.parts = [constant(name), value]
                members.parts.append(of(pair))
        return of(members)

    def _spelt_out(self, node: ast.Call, scope: Scope) -> Value | None:
        """`eval("models." + name)(classes)`, `eval(f"models.{name}()")`: any class or function of a module in sight,
        and what one of them makes where the text calls it."""
        text = template(node.args[0], scope.source) if node.args else None
        found = re.fullmatch(r"(\w+)\.(\w*\*\w*)(\(\))?", text or "")
        home = scope.find(found[1]) if found is not None else None
        if found is None or home is None:
            return None
        spelt = re.compile(".*".join(map(re.escape, found[2].split("*"))))
        modules = [t for t in home.names[found[1]].things if isinstance(t, LocalModule)]
        named = [v for m in modules for name, v in sorted(m.scope.names.items()) if spelt.fullmatch(name)]
        things = [t for v in named for t in v.things if isinstance(t, (Class, Function))]
        own = [t for t in things if t.source in {m.source for m in modules}] or things
        if not own:
            return None
        return union(self._call(t, node, [], {}, scope) for t in own) if found[3] else Value(frozenset(own))

    def _folded(self, node: ast.Call, args: list[Value], scope: Scope) -> Value:
        """`functools.reduce(lambda x, layer: layer(x), self.layers, x)`"""
        element = self._element(args[1], node)
        total = args[2] if len(args) > 2 else element
        called = [t for t in sorted(args[0].things, key=stable_order) if isinstance(t, (Function, Object))]
        for _ in range(2):
            total = union([total, *(self._call(each, node, [total, element], {}, scope) for each in called)])
        return total

    def _named_alike(self, thing: Thing, name: ast.expr) -> list[Value]:
        """The layers that a module has under names which differ in numbers alone: `getattr(self, f"layer{i}")`; or that
        were given names which are not known, either."""
        if not isinstance(thing, Object) or "module" not in thing.roles:
            return []
        kept = thing.attributes.get(KEPT, NOTHING)
        if not isinstance(name, ast.JoinedStr):
            return [kept] if self._modules_in(kept) else []
        parts = [re.escape(str(p.value)) if isinstance(p, ast.Constant) else r"\d+" for p in name.values]
        alike = (key for key in thing.attributes if re.fullmatch("".join(parts), key))
        return [held for held in (*map(thing.attributes.__getitem__, alike), kept) if self._modules_in(held)]

    def _methods_told(self, thing: Object, name: ast.Call, scope: Scope) -> Value:
        """`getattr(self, mode)` with a name that is not known: any of the methods that texts of the project name, or
        that may be spelt so, `getattr(self, "run_" + phase)`."""
        spelt = any(pieces_of(name.args[1]))
        if thing.cls is None or not spelt and thing.roles:
            return NOTHING
        if not spelt and not isinstance(name.args[1], (ast.Name, ast.Attribute, ast.Subscript)):
            return NOTHING
        names = {n for each in thing.cls.line() for n in each.scope.names if thing.cls.functions(n)}
        named = {n for n in names if (may_spell(name.args[1], n) if spelt else n in self._quoted)}
        asked = (ast.Attribute(name.args[0], each, ast.Load()) for each in sorted(named))
        return union(self._object_attribute(thing, each.attr, each, scope) for each in asked)

    def _any_of(self, thing: Thing, name: ast.Call, scope: Scope) -> Value:
        """`getattr(module, name)` with a name that is not known: any of its classes and functions, or of the modules in
        it that have what is asked of it; of an object, any of the networks that it keeps, or of the methods that texts
        name."""
        parent = scope.source.parents.get(name)
        if isinstance(thing, External):
            return of(External(f"{thing.name}.?"))
        if isinstance(thing, LocalModule):
            found = [t for v in thing.scope.names.values() for t in v.things if isinstance(t, (Class, Function))]
            own = [each for each in found if each.source is thing.source]
            if isinstance(parent, ast.Attribute):  # `getattr(models, args.model).Model(size)`
                inner = [t for v in thing.scope.names.values() for t in v.things if isinstance(t, LocalModule)]
                modules = [each for each in inner if parent.attr in each.scope.names]
                return Value(frozenset(modules or own or found))
            return Value(frozenset(own or found))
        if isinstance(thing, Object):
            shown = (key for key in thing.attributes if not is_hidden(thing, key) and may_spell(name.args[1], key))
            held = [thing.attributes[key] for key in shown]
            spelt = held if any(pieces_of(name.args[1])) and "module" not in thing.roles else []
            networks = union(each for each in spelt if self._modules_in(each))  # `getattr(self, "net" + name)`
            return union([networks, self._methods_told(thing, name, scope)])
        return NOTHING

    def _copied(self, value: Value, node: ast.Call, scope: Scope) -> Value:
        """A deep copy of a model is another model, with no wrapper around it."""
        things: set[Thing] = set()
        for thing in value.things:
            inner = thing.module if isinstance(thing, Wrapped) else thing
            if isinstance(inner, Object) and "module" in inner.roles:
                copy = self._remember(node, partial(replace, inner, node=node, path=self._path), inner.node)
                copy.attributes = inner.attributes
                things.add(
                    Wrapped(copy, thing.kind) if isinstance(thing, Wrapped) and thing.kind != "planned" else copy
                )
            else:
                things.add(thing)
        result = value.but(things=frozenset(things))
        if self._modules_in(value):
            self.event("copy", node, scope, value, result)
        return result

    def _listed(self, kind: str, value: Value, node: ast.Call, scope: Scope) -> Value:
        if kind in ("list", "tuple", "sorted", "set"):
            self.event("listed", node, scope, value)
        if kind == "set" or kind in ("list", "tuple", "sorted") and is_set(value):
            if kind in ("list", "tuple") or kind == "sorted" and leaves_ties(node):
                self.event("ordered", node, scope, value, constant(True))
            items = self._remember(node, lambda: Items(node, [], NOTHING))
            items.element = items.element | self._element(value, node)
            parameters = frozenset(t for t in value.things if isinstance(t, Parameters))
            return Value(
                frozenset([items]) | parameters, value.spread if value.spread.is_local else SAME, value.origins
            )
        keep = {
            t
            for t in value.things
            if isinstance(t, (Parameters, Items, Stream, Table)) or kind in ("iter", "cycle", "islice")
        }
        if kind in ("list", "tuple", "sorted", "set", "reversed") and not keep:
            element = self._element(value, node)
            items = self._remember(node, lambda: Items(node, [], NOTHING))
            items.element = items.element | element
            return Value(frozenset([items]), value.spread if value.spread.is_local else SAME, value.origins)
        if kind in ("iter", "cycle", "islice"):
            element = self._element(value, node)
            self.event("iter", node, scope, value)
            return Value(
                frozenset([Stream(element, value)]),
                value.spread if value.spread.is_local else SAME,
                value.origins | element.origins,
            )
        if kind in ("list", "sorted") and any(
            isinstance(t, Parameters) for t in keep
        ):  # more may come into it: `params += [...]`
            keep = keep | {self._remember(node, lambda: Items(node, [], NOTHING))}
        return value.but(things=frozenset(keep), const=UNKNOWN)

    def _stream(self, node: ast.Call, pair: Value, parts: list[Value], over: Value) -> Value:
        for thing in pair.things:
            if isinstance(thing, Items):
                thing.parts = parts
        return Value(frozenset([Stream(pair, over)]), origins=over.origins)

    def _zipped(self, node: ast.Call, args: list[Value]) -> Value | None:
        """The pairs of a `zip` over a list that is written out: `zip(names, (train_loss, test_loss))`."""
        known = [self._each(value) for value in args]
        lengths = {len(each) for each in known if each is not None}
        if not lengths or any(True for value in args for _ in value.objects("loader")):
            return None
        pairs = self._remember(node, lambda: Items(node, [], NOTHING), "pairs")
        pairs.parts = []
        for index in range(min(lengths)):
            pair = self._remember(node, lambda: Items(node, [], NOTHING), ("pair", index))
            pair.parts = [
                self._element(value, node) if each is None else each[index]
                for value, each in zip(args, known, strict=True)
            ]
            pairs.parts.append(of(pair))
        return of(pairs)

    def _each(self, value: Value) -> list[Value] | None:
        """The elements of a short list, or the keys of a dict, that is known in full; of lists of one length that it
        may be, sums that began with zeros, those of both."""
        lists = [thing for thing in value.things if isinstance(thing, Items)]
        if len(lists) > 1 and len(lists) == len(value.things) and len({len(each.parts) for each in lists}) == 1:
            if any(each.element is not NOTHING for each in lists) or value.spread is not SAME:
                return None
            joined = [union(parts) for parts in zip(*(each.parts for each in lists), strict=True)]
            return joined if 0 < len(joined) <= UNROLLED else None
        thing = next(iter(value.things)) if len(value.things) == 1 else None
        if not isinstance(thing, (Items, Table)) or thing.element is not NOTHING or value.spread is not SAME:
            return None
        found = thing.parts if isinstance(thing, Items) else [constant(key) for key in thing.entries]
        return found if 0 < len(found) <= UNROLLED else None

    def _length(self, value: Value) -> Value:
        if any(isinstance(thing, Items) and thing.is_told for thing in value.things):
            return NOTHING
        for thing in value.things:
            if isinstance(thing, Items):
                inner = union([*thing.parts, thing.element])
                if inner.spread is LOCAL and makes_set(thing.node):
                    return inner.computed(LOCAL)  # ranks may hold the same ones
            if isinstance(thing, Object) and "distributed_sampler" in thing.roles:
                return Value(spread=LOCAL)
        return value.computed(LOCAL) if value.spread is LOCAL and not value.things else NOTHING

    def _filtered(self, node: ast.Call, args: list[Value], scope: Scope) -> Value:
        """`filter(lambda pair: pair[0] == pair[1], zip(guesses, labels))`: its function is called some time."""
        decides, over = (args[0], args[1]) if len(args) > 1 else (NOTHING, union(args))
        self._callbacks(decides, "filter", node, scope)
        return self._listed("filter", over, node, scope)


def _are_modules(value: Value) -> bool:
    """Whether a value is known to be a module, and nothing else."""
    inner = [thing.module if isinstance(thing, Wrapped) else thing for thing in value.things]
    modules = all(isinstance(thing, Object) and "module" in thing.roles for thing in inner)
    return bool(inner) and modules and value.const is UNKNOWN and not value.optional


def _all_define(modules: Value, name: object) -> bool:
    """Whether these are modules of the project that have something of that name: `hasattr(module, "Model")`."""
    return all(isinstance(each, LocalModule) and name in each.scope.names for each in modules.things)


def _is_module_class(thing: Thing) -> bool:
    """`nn.Module`, of which all modules are."""
    return isinstance(thing, External) and thing.name in ("torch.nn.Module", "torch.nn.modules.Module")


def _are_own_functions(value: Value) -> bool:
    """Whether a value is known to be a function of the project, and nothing else."""
    known = value.const is UNKNOWN and not value.optional and not value.spread.is_local
    return known and bool(value.things) and all(isinstance(thing, Function) for thing in value.things)


def _is_optimizer_class(thing: Thing) -> bool:
    return isinstance(thing, External) and thing.name in ("torch.optim.Optimizer", "torch.optim.optimizer.Optimizer")


def _fallen_back_on(default: Value) -> Value:
    """`getattr(model, "_orig_mod", model)`: the model itself, without the wrapper that is to come around it."""
    modules = (thing.module if isinstance(thing, Wrapped) else thing for thing in default.things)
    return Value(frozenset(each for each in modules if isinstance(each, Object) and "module" in each.roles))


def _names_own_attribute(owner: Value, name: Value) -> bool:
    """`setattr(self, name, rows)` of a class of the project, with a name that is known."""
    return isinstance(name.const, str) and any(isinstance(t, Object) and t.cls is not None for t in owner.things)


def _entry(value: Value, key: str) -> Value:
    """What dicts have under a key."""
    tables = [each for each in value.things if isinstance(each, Table)]
    return union(each.entries.get(key, each.element) for each in tables) if tables else value
