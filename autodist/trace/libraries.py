"""Calls of libraries, Python's own functions among them."""

from __future__ import annotations

import ast
from collections.abc import Sequence as Row

from autodist.program import DRAWN, EMPTY, MANY, UNKNOWN, Value, closure, constant, held, joined
from autodist.project.chosen import among, matching, template
from autodist.source import last_name
from autodist.trace.calls import Keywords
from autodist.trace.names import thing
from autodist.trace.objects import ALIASES, is_class_like
from autodist.trace.processes import Processes
from autodist.trace.things import (
    Class,
    External,
    Frame,
    Function,
    LocalModule,
    Mapping,
    Method,
    Object,
    Partial,
    Sequence,
    Stream,
    picked_by,
)

OBJECTS = frozenset(
    "ddp data_parallel sharded_ddp fully_sharded loader dataset sampler batch_sampler optimizer scheduler module loss "
    "writer progress reader scaler average device generator distribution".split()
)
"""Roles of classes whose objects are told apart."""
TENSORS = frozenset(
    "Tensor Variable FloatTensor DoubleTensor LongTensor HalfTensor IntTensor BoolTensor ByteTensor Size".split()
)
OF_CHECKPOINTS = frozenset("use_reentrant preserve_rng_state context_fn determinism_check debug early_stop".split())
"""What `torch.utils.checkpoint.checkpoint` does not hand on."""
TOLD = ("torch.jit.annotate", "typing.cast")
"""What gives back what it is given second, and says of which type that is."""
BASES = {
    "torch.optim.Optimizer": "optimizer",
    "torch.optim.optimizer.Optimizer": "optimizer",
    "torch.nn.Module": "module",
    "torch.nn.modules.module.Module": "module",
    "torch.utils.data.DataLoader": "loader",
}
"""The roles of objects of classes that derive from one."""


class Libraries(Processes):
    """What functions and classes of libraries give."""

    def library_call(self, name: str, node: ast.AST, frame: Frame, inputs: Row[Value], keywords: Keywords) -> Value:
        root, _, short = name.rpartition(".")
        if self.catalog.has(name, "uncallable"):
            return EMPTY
        if root == "builtins":
            handler = getattr(self, "builtin_" + short, None)
            if handler is not None:
                known: Value | None = handler(node, frame, list(inputs), keywords)
                if known is not None:
                    return known
        elif root in (
            "functools",
            "collections",
            "copy",
            "itertools",
            "contextlib",
            "operator",
            "dataclasses",
            "importlib",
        ):
            handler = getattr(self, "standard_" + short, None)
            if handler is not None:
                return handler(node, frame, list(inputs), keywords)  # type: ignore[no-any-return]
        if (name in ALIASES or short in ALIASES or self.catalog.has(name, "transparent")) and inputs:
            self.record(name, node, frame, inputs, keywords)
            return inputs[0]
        if name in TOLD and len(inputs) == 2:
            return inputs[1]
        if name == "torch.utils.data.random_split" and inputs:
            self.effect("random_split", self.record(name, node, frame, inputs, keywords))
            lengths = self.parts(inputs[1]) if len(inputs) > 1 else None
            return self.sequence(node, [inputs[0]] * len(lengths)) if lengths else self.sequence(node, None, inputs[0])
        if short == "default_collate" and inputs:
            return self.laid_together(inputs[0], node, frame)
        self.started(name, node, frame, inputs, keywords)
        roles = self.catalog.roles(name)
        if "applies" in roles and (applied := self._applied(name, node, frame, inputs, keywords)):
            return applied
        if roles & OBJECTS or is_class_like(name) and short not in TENSORS and root not in ("torch.nn.parameter",):
            if short != "Parameter" and not (root == "builtins" or "print" in roles):
                return thing(self.library_object(name, roles, node, frame, inputs, keywords))
        if "print" in roles:
            places = node.args if isinstance(node, ast.Call) and len(node.args) == len(inputs) else [node] * len(inputs)
            inputs = [self.shown(each, place, frame) for each, place in zip(inputs, places, strict=True)]
        self.callbacks(node, frame, [*inputs, *keywords.values()])
        if "asks_function" in roles:
            self.answered([*inputs, *keywords.values()])
        result = self.record(name, node, frame, inputs, keywords)
        for role in sorted(roles):
            self.effect(role, result)
        if "collective" in roles:
            self.received(name, node, frame, (inputs, keywords), result)
        if name == "numpy.copyto" and len(inputs) > 1:
            self.change_viewed(inputs[0], inputs[1], node, frame)
        if name.startswith("numpy.") and name.endswith(".at") and inputs:  # `np.add.at(counts, places, 1)`
            self.change_viewed(inputs[0], result, node, frame)
        if "out" in keywords:
            self.change_viewed(keywords["out"], result, node, frame)
        return result

    def _applied(self, name: str, node: ast.AST, frame: Frame, inputs: Row[Value], keywords: Keywords) -> Value:
        """`checkpoint(block, x)` is `block(x)`."""
        given = inputs[2:] if name.endswith("_sequential") else inputs[1:]
        passed = {key: value for key, value in keywords.items() if key not in OF_CHECKPOINTS}
        return self.call(inputs[0], node, frame, given, passed) if inputs else EMPTY

    # Python's own

    def builtin_len(self, node: ast.AST, frame: Frame, inputs: list[Value], keywords: Keywords) -> Value | None:
        if not inputs:
            return None
        found, rest = EMPTY, Value(inputs[0].operations, inputs[0].constants)
        for each in inputs[0].things:
            if isinstance(each, Object):
                found |= self.length(each, node, frame)
            elif isinstance(each, Sequence) and (parts := self.parts(thing(each))) is not None:
                found |= constant(len(parts))
            elif isinstance(each, Method) and each.function == "sampler" and isinstance(each.owner, Object):
                found |= self.record(DRAWN, node, frame, [thing(each.owner)], owner=each.owner)
            else:
                found |= self.record("builtins.len", node, frame, [thing(each)])
        if rest.is_constant and hasattr(rest.constant, "__len__"):
            return found | constant(len(rest.constant))
        return found | (self.record("builtins.len", node, frame, [rest]) if rest.operations else EMPTY)

    def builtin_range(self, node: ast.AST, frame: Frame, inputs: list[Value], keywords: Keywords) -> Value:
        bounds, told = [each.constant for each in inputs], EMPTY
        if all(type(each) is int for each in bounds) and 0 < len(bounds) <= 3 and 0 not in bounds[2:]:
            numbers = range(*bounds)
            if not numbers[8:]:  # `len` of very many ends in OverflowError
                told = self.sequence(node, [constant(each) for each in numbers], kind="range")
        if told is not EMPTY and all(isinstance(each, ast.Constant) for each in getattr(node, "args", ())):
            return told
        index = self.record("range.index", node, frame, inputs)  # `range(batch_size)` may count samples
        return told | self._stream(node, index, joined(inputs))

    def builtin_slice(self, node: ast.AST, frame: Frame, inputs: list[Value], keywords: Keywords) -> Value:
        """`x[slice(8)]`, another spelling of `x[:8]`"""
        bounds = [constant(None), *inputs] if len(inputs) == 1 else inputs
        return self.record("builtins.slice", node, frame, [*bounds, *[constant(None)] * (3 - len(bounds))])

    def stream_of(self, one: Object, node: ast.AST, frame: Frame) -> Value:
        return self.builtin_iter(node, frame, [thing(one)], {})

    def _stream(self, node: ast.AST, element: Value, over: Value, tag: object = "stream") -> Value:
        made: Stream = self.make(node, Stream, tag)
        if made.element != made.element | element or made.over != made.over | over:
            made.element, made.over, made.version = made.element | element, made.over | over, made.version + 1
        made.pick(picked_by(over))
        return thing(made)

    def builtin_enumerate(self, node: ast.AST, frame: Frame, inputs: list[Value], keywords: Keywords) -> Value:
        parts = self.parts(inputs[0]) if inputs else None
        if parts is not None:
            pairs = [self._pair(node, constant(at), each, ("pair", at)) for at, each in enumerate(parts)]
            return self.sequence(node, pairs)
        over = inputs[0] if inputs else EMPTY
        index = self.record("range.index", node, frame, inputs[1:], {"of": over} if any(held(over)) else {})
        return self._stream(node, self._pair(node, index, self.element(over, node, frame), "pair"), over)

    def builtin_zip(self, node: ast.AST, frame: Frame, inputs: list[Value], keywords: Keywords) -> Value:
        told = [self.parts(each) for each in inputs]
        if inputs and all(each is not None for each in told):
            rows = zip(*[each or [] for each in told], strict=False)
            tuples = [self.listing(node, list(row), ("row", at)) for at, row in enumerate(rows)]
            return self.sequence(node, tuples)
        elements = [self.record_element(each, node, frame, at) for at, each in enumerate(inputs)]
        if "*" in keywords:  # `zip(*batch)`: one stream for each field
            fields = keywords["*"]
            parts = self.parts(fields)
            above = frame.source.parents.get(node)
            unpacked = isinstance(above, ast.Assign) and isinstance(above.targets[0], ast.Tuple)
            if parts is None and fields.operations and not unpacked:  # of rows: one for each column
                together = self.record("torch.stack", node, frame, [self.sequence(node, None, fields, "rows")])
                return self.record("torch.Tensor.t", node, frame, [together])
            if parts is None:
                some = self._stream(node, fields, fields, ("field", "some")) if fields.operations else fields
                return self.sequence(node, None, self._as_picked(some, node))
            streams = [self._stream(node, each, fields, ("field", at)) for at, each in enumerate(parts)]
            return self.sequence(node, [self._as_picked(each, node) for each in streams])
        return self._stream(node, self.listing(node, elements, "row"), joined(inputs))

    def _as_picked(self, fields: Value, node: ast.AST) -> Value:
        """The same of what has been given some rows and not others: `zip(*filter(whole, batch))`"""
        starred = [each.value for each in getattr(node, "args", ()) if isinstance(each, ast.Starred)]
        by = joined(picked_by(self.program.at(each)) for each in starred)
        for each in fields.things if by != EMPTY else ():
            each.pick(by)
        return fields

    def record_element(self, value: Value, node: ast.AST, frame: Frame, tag: object) -> Value:
        """An element of one of several things that are gone through side by side."""
        with self.told_apart((node, "side", tag)):
            found = self.element(value, node, frame)
            if found.operation is not None and found.operation.name == "range.index":  # which counts these rounds
                return self.record("range.index", node, frame, [*found.operation.inputs], found.operation.keywords)
            several = len(found.constants) > 1 and all(kind in (int, float) for kind, _ in found.constants)
            if several or not value.operations and _are_counted_up(found):
                return found | self.record("iterate", node, frame, [value])
            return found

    def builtin_map(self, node: ast.AST, frame: Frame, inputs: list[Value], keywords: Keywords) -> Value:
        if len(inputs) < 2:
            return EMPTY
        parts, results = self.parts(inputs[1]) if len(inputs) == 2 else None, list[Value]()
        if parts is not None and len(parts) <= 8:
            for at, each in enumerate(parts):
                with self.told_apart((node, at)):
                    results.append(self.call(inputs[0], node, frame, [each], {}))
            return self.sequence(node, results)
        elements = [self.record_element(each, node, frame, at) for at, each in enumerate(inputs[1:])]
        over = joined(inputs[1:])
        self.repeated(node, over, lambda: results.append(self.call(inputs[0], node, frame, elements, {})), frame)
        return self._stream(node, joined(results), over)

    def standard_itemgetter(self, node: ast.AST, frame: Frame, inputs: list[Value], keywords: Keywords) -> Value:
        return thing(self.make(node, lambda n, g: Partial(thing(External("operator.picked")), tuple(inputs), {})))

    def standard_picked(self, node: ast.AST, frame: Frame, inputs: list[Value], keywords: Keywords) -> Value:
        """What `itemgetter(*keys)` takes of its argument, which comes last."""
        *keys, base = inputs
        found = [self.item(base, each, node, frame) for each in keys]
        return found[0] if len(found) == 1 else self.sequence(node, found, kind="tuple")

    def builtin_filter(self, node: ast.AST, frame: Frame, inputs: list[Value], keywords: Keywords) -> Value:
        element = self.element(inputs[-1], node, frame) if inputs else EMPTY
        kept = self.call(inputs[0], node, frame, [element], {}) if len(inputs) == 2 else EMPTY
        found = self._stream(node, element, joined(inputs[-1:]))
        for each in found.things:
            each.pick(kept or element)
        return found

    def builtin_iter(self, node: ast.AST, frame: Frame, inputs: list[Value], keywords: Keywords) -> Value:
        if any(isinstance(each, Stream) for each in inputs[0].things):
            return inputs[0]
        return self._stream(node, self.element(inputs[0], node, frame), inputs[0])

    def builtin_next(self, node: ast.AST, frame: Frame, inputs: list[Value], keywords: Keywords) -> Value:
        return self.next_of(inputs[0], node, frame) | (inputs[1] if len(inputs) > 1 else EMPTY)

    def builtin_reversed(self, node: ast.AST, frame: Frame, inputs: list[Value], keywords: Keywords) -> Value:
        parts = self.parts(inputs[0])
        if parts is not None:
            return self.sequence(node, parts[::-1])
        if all(isinstance(each, Sequence) for each in inputs[0].things):  # as `rows[::-1]` does
            key = self.record("builtins.slice", node, frame, [constant(each) for each in (None, None, -1)])
            return self.item(inputs[0], key, node, frame)
        return self._stream(node, self.element(inputs[0], node, frame), inputs[0])

    def builtin_list(self, node: ast.AST, frame: Frame, inputs: list[Value], keywords: Keywords) -> Value:
        if not inputs:
            return self.sequence(node, [] if "*" not in keywords else None, keywords.get("*", EMPTY))
        parts = self.parts(inputs[0])
        if inputs[0].operations and not inputs[0].things:
            return self.record("builtins.list", node, frame, inputs)
        element = EMPTY if parts is not None else self.element(inputs[0], node, frame)
        made = self.sequence(node, parts, element, of=inputs[:1])
        given = node.args[0] if isinstance(node, ast.Call) and node.args else None
        if parts is None and isinstance(given, ast.Call) and last_name(given.func) == "reversed":
            for each in made.things:
                each.pick(thing(External("builtins.reversed")))
        return made

    builtin_tuple = builtin_list

    def builtin_set(self, node: ast.AST, frame: Frame, inputs: list[Value], keywords: Keywords) -> Value:
        if inputs and any(held(inputs[0])):  # which of them are alike is not known
            return self.record("builtins.set", node, frame, inputs)
        return self.sequence(node, [], kind="set") if not inputs else self.builtin_list(node, frame, inputs, keywords)

    builtin_frozenset = builtin_set

    def builtin_sorted(self, node: ast.AST, frame: Frame, inputs: list[Value], keywords: Keywords) -> Value:
        element = self.element(inputs[0], node, frame)
        if "key" in keywords:
            self.call(keywords["key"], node, frame, [element], {})
        return self._in_order("builtins.sorted", self.sequence(node, None, element, of=inputs[:1]))

    def _in_order(self, name: str, lists: Value) -> Value:
        """Lists of which the order of all elements tells what is where, or what they still hold."""
        for each in lists.things:
            each.pick(thing(External(name)))
        return lists

    def builtin_dict(self, node: ast.AST, frame: Frame, inputs: list[Value], keywords: Keywords) -> Value:
        made: Mapping = self.make(node, Mapping)
        for each in inputs:
            self._take_over(made, each)
            for pair in self.parts(each) or [self.element(each, node, frame)]:
                both = self.parts(pair)
                if both is not None and len(both) == 2:
                    self.put(made, both[0], both[1])
        for key, value in keywords.items():
            self.put(made, constant(key), value)
        return thing(made)

    standard_OrderedDict = builtin_dict

    def standard_Counter(self, node: ast.AST, frame: Frame, inputs: list[Value], keywords: Keywords) -> Value:
        made: Mapping = self.make(node, lambda n, g: Mapping(n, g, kind="Counter"))
        for each in inputs:
            self.count(made, each, node, frame)
        return thing(made)

    def standard_asdict(self, node: ast.AST, frame: Frame, inputs: list[Value], keywords: Keywords) -> Value:
        one = next((each for each in inputs[0].things if isinstance(each, Object)), None) if inputs else None
        return self.make_mapping_of(one, node) if one is not None else EMPTY

    def builtin_globals(self, node: ast.AST, frame: Frame, inputs: list[Value], keywords: Keywords) -> Value:
        return self.names_of(frame.module, node)

    def builtin_locals(self, node: ast.AST, frame: Frame, inputs: list[Value], keywords: Keywords) -> Value:
        return self.names_of(frame, node)

    def builtin_isinstance(self, node: ast.AST, frame: Frame, inputs: list[Value], keywords: Keywords) -> Value:
        result = self.record("builtins.isinstance", node, frame, inputs)
        kinds = {each for value in self.parts(inputs[1]) or [inputs[1]] for each in value.things}
        known = {self._is_of(each, kinds) for each in inputs[0].things}
        known |= {isinstance(each, _types(kinds)) if _types(kinds) else None for _, each in inputs[0].constants}
        if inputs[0].operations or len(known) != 1 or None in known:
            return result
        return constant(known.pop())

    def _is_of(self, one: object, kinds: set[object]) -> bool | None:
        """Whether a thing is an instance of one of some classes, if that is known."""
        if isinstance(one, Object):
            line = set(one.cls.line()) if one.cls is not None else {External(one.name)}
            roles = {BASES.get(each.name) for each in kinds if isinstance(each, External)}
            if line & kinds or one.roles & roles:
                return True
            local = all(isinstance(each, Class) for each in kinds) and one.cls is not None
            return False if local else None
        builtin = {"Sequence": one.kind if isinstance(one, Sequence) else "", "Mapping": "dict"}.get(type(one).__name__)
        return External(f"builtins.{builtin}") in kinds if builtin else None

    def builtin_getattr(self, node: ast.AST, frame: Frame, inputs: list[Value], keywords: Keywords) -> Value:
        default = inputs[2] if len(inputs) > 2 else EMPTY
        names = [each for _, each in inputs[1].constants if isinstance(each, str)]
        if inputs[1].operations:
            names = among(node, node.args[1], frame.source.ancestors(node)) if isinstance(node, ast.Call) else []
        if names:
            found = joined(self._told(inputs[0], name, node, frame) for name in names)
            objects = [each for each in inputs[0].things if isinstance(each, Object)]
            slots = [(slot, each) for each in objects for name in names if (slot := each.slots.get(name)) is not None]
            surely = all(self.is_surely_bound(slot, each.guards) for slot, each in slots)
            return found if found is not EMPTY and not inputs[0].operations and surely else found | default
        several = EMPTY
        libraries = [each for each in inputs[0].things if isinstance(each, External)]
        if libraries:  # `getattr(models, args.arch)`
            return Value(things=frozenset(External(f"{each.name}.?") for each in libraries))
        for each in inputs[0].things:
            if isinstance(each, LocalModule):
                held = [v for n, v in each.frame.names.items() if not n.startswith("_")]
                several |= joined(
                    Value(things=frozenset(t for t in v.things if isinstance(t, (Function, Class)))) for v in held
                )
            elif isinstance(each, Object) and each.cls is not None:  # any of what it holds
                self.read(each)
                several |= self._set_somewhere.get(each, EMPTY)
                several |= joined(Value(slot.value.operations) for slot in each.attributes.values())
                several |= joined(
                    self._told(thing(each), name, node, frame) for name in _methods_spelt(each, node, frame)
                )
        return several or self.record("builtins.getattr", node, frame, inputs)

    def _told(self, base: Value, name: str, node: ast.AST, frame: Frame) -> Value:
        with self.told_apart((node, name)):
            return self.attribute(base, name, node, frame)

    def builtin_hasattr(self, node: ast.AST, frame: Frame, inputs: list[Value], keywords: Keywords) -> Value:
        name = inputs[1].constant if len(inputs) > 1 else UNKNOWN
        if isinstance(name, str) and not inputs[0].operations and len(inputs[0].things) == 1:
            (one,) = inputs[0].things
            if isinstance(one, Object) and one.cls is not None:
                self.read(one)
                slot = one.attributes.get(name)
                if slot is not None and self.is_surely_bound(slot, one.guards) or one.cls.find(name):
                    return constant(True)
                if slot is None and not one.cls.libraries:
                    return constant(False)
        return self.record("builtins.hasattr", node, frame, inputs)

    def builtin_setattr(self, node: ast.AST, frame: Frame, inputs: list[Value], keywords: Keywords) -> Value:
        for _, name in inputs[1].constants:
            if isinstance(name, str):
                self.store_attribute(inputs[0], name, inputs[2], node, frame)
        for each in (each for each in inputs[0].things if isinstance(each, Object) and inputs[1].operations):
            self._set_somewhere[each] = self._set_somewhere.get(each, EMPTY) | inputs[2]
        return constant(None)

    def builtin_vars(self, node: ast.AST, frame: Frame, inputs: list[Value], keywords: Keywords) -> Value | None:
        one = next(iter(inputs[0].things), None) if inputs else None
        if isinstance(one, LocalModule):
            return self.names_of(one.frame, node)
        return self.make_mapping_of(one, node) if isinstance(one, Object) else None

    def builtin_type(self, node: ast.AST, frame: Frame, inputs: list[Value], keywords: Keywords) -> Value | None:
        classes = [each.cls for each in inputs[0].things if isinstance(each, Object) and each.cls is not None]
        return Value(things=frozenset(classes)) if classes else None

    def builtin_str(self, node: ast.AST, frame: Frame, inputs: list[Value], keywords: Keywords) -> Value | None:
        if inputs and inputs[0].is_constant:
            return constant(str(inputs[0].constant))
        shown = self.shown(inputs[0], node, frame) if len(inputs) == 1 else EMPTY
        return None if shown in (EMPTY, *inputs) else self.record("builtins.str", node, frame, [shown])

    builtin_repr = builtin_str

    def _number(self, make: type, node: ast.AST, frame: Frame, inputs: list[Value]) -> Value | None:
        if not inputs:
            return constant(make())
        if inputs and inputs[0].is_constant:
            try:
                return constant(make(inputs[0].constant))
            except (TypeError, ValueError):
                return MANY
        return MANY if inputs and inputs[0] == MANY else None

    def builtin_int(self, node: ast.AST, frame: Frame, inputs: list[Value], keywords: Keywords) -> Value | None:
        return self._number(int, node, frame, inputs)

    def builtin_float(self, node: ast.AST, frame: Frame, inputs: list[Value], keywords: Keywords) -> Value | None:
        return self._number(float, node, frame, inputs)

    def builtin_callable(self, node: ast.AST, frame: Frame, inputs: list[Value], keywords: Keywords) -> Value | None:
        called = [isinstance(each, (Function, Method, Class, Object, External)) for each in inputs[0].things]
        return constant(True) if called and all(called) and not inputs[0].operations else None

    # the standard library

    def standard_partial(self, node: ast.AST, frame: Frame, inputs: list[Value], keywords: Keywords) -> Value:
        made = self.make(node, lambda n, g: Partial(inputs[0], tuple(inputs[1:]), dict(keywords)))
        return thing(made)

    def standard_deepcopy(self, node: ast.AST, frame: Frame, inputs: list[Value], keywords: Keywords) -> Value:
        found = self.record("copy.deepcopy", node, frame, [inputs[0]]) if inputs[0].operations else EMPTY
        for each in inputs[0].things:
            if isinstance(each, Object):
                one: Object = self.make(node, lambda n, g: Object(n, g), each)
                one.name, one.cls, one.roles, one.source = each.name, each.cls, each.roles, each.source
                one.attributes, one.inputs, one.keywords = dict(each.attributes), each.inputs, each.keywords
                found |= thing(one)
            else:
                found |= thing(each)
        return found | Value(constants=inputs[0].constants)

    standard_copy = standard_deepcopy

    def standard_defaultdict(self, node: ast.AST, frame: Frame, inputs: list[Value], keywords: Keywords) -> Value:
        made: Mapping = self.make(node, lambda n, g: Mapping(n, g, kind="defaultdict"))
        if inputs:
            default = self.call(inputs[0], node, frame, [], {})
            self._anywhere(made, default, MANY)
        return thing(made)

    def standard_deque(self, node: ast.AST, frame: Frame, inputs: list[Value], keywords: Keywords) -> Value:
        made, longest = self.builtin_list(node, frame, inputs[:1], {}), [*inputs[1:], *keywords.values()]
        return self._in_order("collections.deque", made) if longest and longest[0].constant is not None else made

    def standard_zip_longest(self, node: ast.AST, frame: Frame, inputs: list[Value], keywords: Keywords) -> Value:
        fields = keywords.get("*", EMPTY)
        if fields.operations and self.parts(fields) is None:  # of rows: one for each column, the shorter ones filled up
            rows = self.sequence(node, None, fields, "rows")
            return self.record("torch.nn.utils.rnn.pad_sequence", node, frame, [rows])
        return self.builtin_zip(node, frame, inputs, keywords)

    def standard_cycle(self, node: ast.AST, frame: Frame, inputs: list[Value], keywords: Keywords) -> Value:
        return self._stream(node, joined(self.element(each, node, frame) for each in inputs), joined(inputs))

    def standard_count(self, node: ast.AST, frame: Frame, inputs: list[Value], keywords: Keywords) -> Value:
        return self._stream(node, self.record("range.index", node, frame, inputs), joined(inputs))

    standard_chain = standard_cycle
    standard_islice = standard_cycle

    def standard_wraps(self, node: ast.AST, frame: Frame, inputs: list[Value], keywords: Keywords) -> Value:
        return EMPTY

    def standard_contextmanager(self, node: ast.AST, frame: Frame, inputs: list[Value], keywords: Keywords) -> Value:
        return inputs[0]

    def standard_dataclass(self, node: ast.AST, frame: Frame, inputs: list[Value], keywords: Keywords) -> Value:
        return inputs[0] if inputs else EMPTY

    def standard_namedtuple(self, node: ast.AST, frame: Frame, inputs: list[Value], keywords: Keywords) -> Value:
        told = inputs[1] if len(inputs) > 1 else keywords.get("field_names", EMPTY)
        listed = told.constant if isinstance(told.constant, tuple) else [p.constant for p in self.parts(told) or ()]
        names = told.constant.replace(",", " ").split() if isinstance(told.constant, str) else listed
        if not names or not all(isinstance(each, str) and each.isidentifier() for each in names):
            return EMPTY
        fields = [ast.AnnAssign(ast.Name(each, ast.Store()), ast.Constant(None), None, 1) for each in names]
        written = ast.ClassDef(name="Fields", bases=[], keywords=[], body=[*fields], decorator_list=[])
        inner, base = Frame(frame.source, frame, is_class=True), External("typing.NamedTuple")
        return thing(self.make(node, lambda n, g: Class(written, inner, (base,)), "namedtuple"))

    def standard_reduce(self, node: ast.AST, frame: Frame, inputs: list[Value], keywords: Keywords) -> Value:
        element = self.element(inputs[1], node, frame)
        first = inputs[2] if len(inputs) > 2 else element
        once = self.call(inputs[0], node, frame, [first, element], {})
        return first | self.call(inputs[0], node, frame, [first | once, element], {})


def _types(kinds: set[object]) -> tuple[type, ...]:
    """The types of Python among some classes, where all of them are."""
    known = {f"builtins.{each.__name__}": each for each in (int, float, str, bool, list, tuple, dict, bytes)}
    found = [known.get(each.name) if isinstance(each, External) else None for each in kinds]
    return tuple(each for each in found if each) if all(found) else ()


def _are_counted_up(value: Value) -> bool:
    """Whether they are numbers that are computed from those of rounds: `[0.1 * k for k in range(8)]`"""
    above = closure(value.operations, lambda op: op.given)
    return bool(above) and all(each.name == "range.index" or each.name.startswith("operator.") for each in above)


def _methods_spelt(one: Object, node: ast.AST, frame: Frame) -> list[str]:
    """The methods that an object may be asked for by a text that is put together: `getattr(self, "run_" + phase)`."""
    pattern = template(node.args[1], frame.source) if isinstance(node, ast.Call) and len(node.args) > 1 else None
    classes = [each for each in one.cls.line() if isinstance(each, Class)] if one.cls is not None else []
    names = {n for cls in classes for n, v in cls.frame.names.items() if any(isinstance(t, Function) for t in v.things)}
    return matching(pattern, names) if pattern is not None and pattern.strip("*") else []
