"""Methods of what is not of the project: tensors, containers, and objects of libraries."""

from __future__ import annotations

import ast
from dataclasses import replace
from functools import partial

from autodist import carried, tensors
from autodist.interpreter.libraries import Libraries
from autodist.interpreter.questions import (
    any_entry,
    first_text,
    has_state,
    in_order,
    is_hashable,
    is_hidden,
    joins_sets,
    makes_set,
)
from autodist.interpreter.torch_modules import TorchModules
from autodist.interpreter.words import CUTTING, DRAWING, GROWS, KEPT, LATER, MOVES, REST, RETURNS_SELF, SIZES
from autodist.source import argument, walk
from autodist.spread import LOCAL, SAME, Spread
from autodist.trace.calls import GRADIENT_HOOKS
from autodist.values import (
    NOTHING,
    UNKNOWN,
    Bound,
    Class,
    External,
    Function,
    Inside,
    Items,
    LocalModule,
    Object,
    OptimizerState,
    Parameters,
    Scope,
    Stream,
    Table,
    Thing,
    Value,
    Wrapped,
    constant,
    drawn_by_evaluation,
    is_clock,
    of,
    stored,
    union,
)

WRITING = frozenset(
    "savefig to_csv to_json to_excel to_pickle to_parquet write_text write_bytes unlink save_pretrained write_image "
    "write_html rmdir touch push_to_hub imsave dump tofile".split()
)
UNPACKING = frozenset("extract extractall".split())
"""What puts files in place that an archive holds, as a download does."""
CACHED = frozenset("map filter".split())
"""What goes over all of a data set of Hugging Face once, and keeps the result on disk."""
PICTURES = (
    "PIL.",
    "matplotlib.animation.",
    "torchvision.transforms.ToPILImage",
    "torchvision.transforms.functional.to_pil",
)
TESTING_FILES = frozenset("exists is_file is_dir isfile isdir".split())
NOISY = frozenset("bernoulli multinomial".split())
"""Methods that draw for each number of a tensor."""
FILLING = frozenset("uniform_ normal_ random_ bernoulli_ exponential_ log_normal_ geometric_ cauchy_".split())
REPLACING = frozenset("copy_ fill_".split())
CHANGING = {"add_": ast.Add(), "sub_": ast.Sub(), "mul_": ast.Mult(), "div_": ast.Div()}
TYPED_LIKE = frozenset("to type_as".split())
"""What takes the type and the device of another tensor, and nothing of its values."""
FORMATTING = frozenset("format join".split())
PARSER = "argparse.ArgumentParser"
SUBPARSERS = frozenset("add_subparsers add_parser add_argument_group add_mutually_exclusive_group".split())
"""What a parser of options hands out that options are added to."""
ROWS_OF_A_TABLE = frozenset("n frac".split())
"""What pandas is told of how many rows to draw: `table.sample(frac=1)`."""

FLAGS = frozenset(["threading.Event", "multiprocessing.Event"])
STEPPING = frozenset("add_ sub_ addcmul_ addcdiv_ copy_ lerp_ subtract_".split())
"""What changes parameters by their gradients: `p.data.add_(p.grad, alpha=-lr)`."""

OF_ITERATORS = frozenset("send close throw __next__ next".split())

SPELLING = frozenset("lower upper strip title".split())
"""Methods of a text that is known, which give another one."""
PARTING = frozenset("split rsplit partition rpartition".split())
"""Those that give its pieces: `module, name = path.rsplit(".", 1)`."""
LOADING = frozenset("joblib.load pickle.load dill.load cloudpickle.load torch.load".split())
"""What loads a study of optuna that was saved as a whole."""


class Methods(Libraries, TorchModules):
    """Calls of methods that the project does not define."""

    def _method(
        self, node: ast.Call, name: str, base: Value, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value | None:
        """A method of something that is not an object of the project with that method."""
        values = [*args, *keywords.values()]
        if base.spread.is_local and name not in OF_ITERATORS and all(isinstance(t, Stream) for t in base.things):
            base = base.but(things=frozenset())  # what has such a method is a tensor
        if name in GRADIENT_HOOKS:  # whose functions a backward pass calls, once models are wrapped
            for function in union(values).functions:
                self._at_end.append(partial(self.call_function, function, None, [], {}, scope))
        if name in ("set", "is_set") and (flags := [t for t in base.things if getattr(t, "name", "") in FLAGS]):
            if name == "set":
                for thing in flags:
                    self._flag(thing, "set", constant(True))
            return union(self._flagged(thing, "set", NOTHING) for thing in flags)
        if name == "update" and (owner := _whose_names(node)) is not None:
            for key, value in self._entries_of(args[0] if args else NOTHING, keywords).items():
                self._keep_attribute(node, self._lately(owner), key, value.but(firm=False), scope)
            return NOTHING
        if name in GROWS and args and isinstance(node.func, ast.Attribute):
            self._join_optimizers(node.func.value, base, args[-1], scope)
        results: list[Value] = []
        for thing in in_order(base.things):
            inner = thing.module if isinstance(thing, Wrapped) else thing
            if isinstance(inner, (External, Function, Class, LocalModule)):
                continue
            if isinstance(inner, Object) and inner.cls is not None and inner.cls.find(name) and not inner.is_writer:
                if "module" in inner.roles and name not in ("forward", "train", "eval"):
                    self.event("model_method", node, scope, of(thing), self._mixed(values))
                if "optimizer" in inner.roles and name == "step":
                    self.event("step", node, scope, of(inner), self._mixed(values))
                continue
            if isinstance(inner, Object) and name in inner.attributes and not is_hidden(inner, name):
                continue
            result = self._object_method(thing, inner, node, name, base, args, keywords, scope)
            if result is not None:
                results.append(result)
        if name == "size" and not (node.args or node.keywords or base.things) and base.spread.is_local:
            return self._shape(base, node)
        if name == "backward" and not any(
            isinstance(t, Object) and t.cls is not None and t.cls.find(name) for t in base.things
        ):
            self._note_backward(node, base, scope)
            return NOTHING
        if name == "copy_" and self._forward and any(value.spread.is_local for value in values):
            target = node.func.value if isinstance(node.func, ast.Attribute) else None
            held = target.value if isinstance(target, ast.Attribute) and target.attr == "data" else None
            if isinstance(held, ast.Attribute) and not self._is_registered(held):
                self.event("parameter_set", node, scope)
        if name in REPLACING and args:
            self._copied_into(node, args[0], scope)
        if name in CHANGING and args and not self._forward:
            self._changed_in_place(node, CHANGING[name], args[0], scope)
        local = any(isinstance(t, Object) and t.cls is not None and t.cls.find(name) for t in base.things)
        saves = name in WRITING or name == "save" and not base.things and bool(node.args) and _names_file(node.args[0])
        if saves and not local and not any(isinstance(t, External) for t in base.things):
            self.event("write", node, scope, self._mixed(values), first_text(values))
            return NOTHING
        alone = isinstance(scope.source.parents.get(node), ast.Expr)
        if name == "extractall" and alone and not local:  # of an archive, as what was downloaded
            self.event("download", node, scope)
            return NOTHING
        if name in TESTING_FILES and not local:
            self.event("exists", node, scope)
        if name == "stat" and not node.args and not local:  # `path.stat().st_size`
            self.event("read", node, scope, base)
        if name in ("read_text", "read_bytes") and not local:
            self.event("open", node, scope)
        if name == "open" and not local and not any(isinstance(t, External) for t in base.things):
            self.event("open", node, scope)
            return of(
                self._remember(
                    node, lambda: Object("builtins.open", frozenset(["file"]), node, scope.source, self._path)
                )
            )
        if name == "mkdir" and not local and not any(isinstance(t, External) for t in base.things):
            self.event("mkdir", node, scope)
            return NOTHING
        if isinstance(base.const, str) and name in SPELLING and not values:
            return base.but(const=getattr(base.const, name)())
        if isinstance(base.const, str) and name in PARTING and args and not keywords:
            told = [value.const for value in args]
            if isinstance(told[0], str) and told[0] and all(isinstance(each, int) for each in told[1:]):
                pieces = [constant(each, base.firm) for each in getattr(base.const, name)(*told)]
                return of(self._remember(node, lambda: Items(node, pieces, NOTHING), ("pieces", base.const)))
        literal = isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.JoinedStr)
        if name in FORMATTING and (isinstance(base.const, str) or literal):
            for expression, value in zip([*node.args, *(k.value for k in node.keywords)], values, strict=False):
                if value.spread.is_local or self.holds_local(value):
                    self.event("format", expression, scope, value)
            return self._text(values)
        if name == "sample" and not ROWS_OF_A_TABLE.isdisjoint(keywords) and not has_state(keywords):
            self.event("numpy_draw", node, scope)
        if name == "rsample" and not any(
            base.objects("distribution")
        ):  # of one of torch, whose generator it draws from
            self.event("random", node, scope)
        if name in FILLING | NOISY and (self._forward or self._loops or base.spread is not SAME):
            self.event("random", node, scope)
        operands = [] if name in TYPED_LIKE else values
        if name == "new_tensor":  # `x.new_tensor([len(rows) for rows in groups])`
            operands = [self._with_contents(value) for value in values]
        if name in TYPED_LIKE and not base.things and not base.spread.is_local:
            return base
        listed = bool(args) and bool(args[0].things) or any(isinstance(each, ast.Starred) for each in node.args)
        if name in ("view", "reshape") and listed and not base.things and base.spread is SAME:
            return base  # `freqs.view(shape)`, whatever the list of sizes was made of
        if (
            (not base.things and (base.spread is not SAME or any(v.spread.is_local for v in operands)))
            or not results
            and base.spread.is_local
        ):
            counted = self._selected_from(node, base) if name in tensors.COUNTS else base.spread
            spreads = [v.spread for v in operands]
            spread = tensors.computed(name, self.spelled_out(node), counted, spreads)
            mixed = union([base, *operands])
            results.append(mixed.computed(spread))
        elif not base.things and base.origins:
            results.append(Value(origins=base.origins))
        elif name in CUTTING | MOVES and (noise := drawn_by_evaluation([base])):  # of a tensor, which may be several
            results.append(Value(origins=noise))
        return union(results) if results else None

    def _selected_from(self, node: ast.Call, base: Value) -> Spread:
        """The spread of what elements are taken from, to be counted: `sums.diagonal().numel()`."""
        inner = node.func.value if isinstance(node.func, ast.Attribute) else node
        while isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute):
            if inner.func.attr not in tensors.SELECTING:
                break
            inner = inner.func.value
            base = self._lately(inner)
        return base.spread

    def _copied_into(self, node: ast.Call, value: Value, scope: Scope) -> None:
        """`images.resize_as_(batch).copy_(batch)`: a tensor that is made once holds each batch in turn."""
        if not (value.spread.is_local or value.origins):
            return
        for names, name in self._holders(_changed(node), scope):
            held = names[name]
            if not held.things and not held.weights:
                names[name] = held.but(spread=value.spread, origins=value.origins)

    def _changed_in_place(self, node: ast.Call, operation: ast.operator, change: Value, scope: Scope) -> None:
        """`total.add_(loss)`, which is `total = total + loss`."""
        for names, name in self._holders(_changed(node), scope):
            held = names[name]
            if not held.things and not held.weights and (held.spread.is_local or change.spread.is_local):
                names[name] = (held | change.but(things=frozenset())).computed(self._binary(operation, held, change))

    def _note_backward(self, node: ast.Call, loss: Value, scope: Scope) -> None:
        """What is differentiated is a number."""
        self.event("backward", node, scope, loss)
        target = node.func.value if isinstance(node.func, ast.Attribute) else node
        if isinstance(target, ast.Call) and len(target.args) == 1:
            target = target.args[0]
        if isinstance(target, ast.Name) and loss.spread is LOCAL:
            self.assign(target, loss, scope, None)

    def _called_by_name(
        self, method: Bound, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value:
        """`step()`, after `step = optimizer.step`."""
        owner = method.owner
        result = self._object_method(owner, owner, node, method.name, of(owner), args, keywords, scope)
        return NOTHING if result is None else result

    def _object_method(
        self,
        thing: Thing,
        inner: Thing,
        node: ast.Call,
        name: str,
        base: Value,
        args: list[Value],
        keywords: dict[str, Value],
        scope: Scope,
    ) -> Value | None:
        values = [*args, *keywords.values()]
        if name == "__setitem__" and len(args) == 2 and isinstance(inner, Object) and isinstance(args[0].const, str):
            self._put(inner, args[0].const, args[1])
        if isinstance(inner, (Items, Table, Stream)):
            return self._container_method(inner, node, name, args, keywords, scope)
        if isinstance(inner, Parameters):
            if name == "requires_grad_":
                self.event("freeze", node, scope, of(inner.module))
            if name in DRAWING:
                self.event("draw_parameters", node, scope, of(inner.module))
            in_place = name.endswith("_") and not name.endswith("__")
            if inner.part and in_place:
                self.event("write_part", node, scope, of(inner))
            if in_place and name in STEPPING and not self._forward and not _is_gradient(node.func):
                self.event("own_step", node, scope, of(inner))
            if name in SIZES or tensors.reduces(name, node, 0) or tensors.takes_apart(name) or name.startswith("new_"):
                return NOTHING
            if any(value.spread.is_local for value in values):
                spread = tensors.computed(name, self.spelled_out(node), base.spread, [value.spread for value in values])
                return union(values).computed(spread)
            return of(replace(inner, cut=True) if name == "detach" else inner)
        if isinstance(inner, Inside):
            return self._inside_method(inner, node, name, args, scope)
        if isinstance(inner, OptimizerState):
            return self._state_method(inner, node, name, args)
        if not isinstance(inner, Object):
            return None
        if "distribution" in inner.roles and name in ("sample", "rsample"):
            return self._external("torch.distributions.sample", node, args, keywords, scope)
        if "generator" in inner.roles:
            drawn = "randint" if name == "integers" else name
            return self._external(f"{inner.name}.{drawn}", node, args, {**keywords, "generator": of(inner)}, scope)
        if name in ("parameters", "named_parameters") and not inner.roles and inner.cls is None:
            self.promoted.add(id(inner.node))
        if name in MOVES and not inner.roles and inner.cls is None and not self.catalog.knows(inner.name):
            return of(inner)  # it may turn out to be a module
        if "module" in inner.roles or isinstance(thing, Wrapped):
            return self._model_method(thing, inner, node, name, args, keywords, scope)
        if "loss" in inner.roles and name in RETURNS_SELF:
            return of(inner)
        if "optimizer" in inner.roles:
            if name == "step":
                answers = self._closures(inner, node, args, keywords, scope)
                self.event("step", node, scope, of(inner), union([self._mixed(values), *values]))
                return union(answers)
            if name == "add_param_group":
                inner.args.extend(args)
            if name in ("zero_grad", "state_dict", "load_state_dict"):
                self.event("optimizer_" + name, node, scope, of(inner), self._mixed(values))
                if name == "state_dict":
                    return of(self._state_dict(node, scope))
            return NOTHING
        if "scaler" in inner.roles:
            if name == "scale":
                return args[0] if args else NOTHING
            if name in ("step", "unscale_"):
                for optimizer in args[:1]:
                    self.event(name.rstrip("_"), node, scope, optimizer)
            return NOTHING
        if "scheduler" in inner.roles and name == "step":
            self.event("schedule", node, scope, self._mixed(values))
            return NOTHING
        if "progress" in inner.roles:
            if name in ("set_postfix", "set_description", "set_postfix_str", "write", "set_description_str"):
                self.event("print", node, scope, self._mixed(values))
            return NOTHING
        if "export" in inner.roles and not name.endswith("state_dict"):
            if name == "save":
                self.event("write", node, scope)
            return of(inner)
        if inner.looks_up(name):  # `__getattr__` hands it on
            inner = next((t for value in inner.attributes.values() for t in value.objects("writer")), inner)
        if "writer" in inner.roles:
            graph = name == "add_graph" and bool(args)
            if graph:
                self.event("export", node, scope, args[0])
            self.event("tracker", node, scope, NOTHING if graph else self._mixed(values), of(inner))
            return NOTHING
        if "logger" in inner.roles:
            self.event("log", node, scope, self._mixed(values))
            return NOTHING
        if name in CACHED and inner.name in ("datasets.load_dataset", "datasets.load_from_disk"):
            self.event("download", node, scope)
            return of(inner)
        if "file" in inner.roles:
            unpacks = name in UNPACKING
            self.event("download" if unpacks else "file_method", node, scope, self._mixed(values), of(inner))
            return NOTHING
        if "loader" in inner.roles and name == "__iter__":
            return self._listed("iter", of(inner), node, scope)
        if name in SUBPARSERS and inner.name == PARSER:
            return of(inner)  # whose options are read off the same namespace
        if name == "set_defaults" and inner.name == PARSER:
            self._note_functions(inner, keywords)
            return NOTHING
        if name in ("parse_args", "add_argument", "parse_known_args"):
            made = self._remember(node, lambda: Object("arguments", frozenset(), node, scope.source, self._path))
            if name == "add_argument":
                self._note_default(inner, args, keywords)
            else:
                made.attributes.update(inner.attributes)
            return of(made)
        if inner.name.startswith(PICTURES):
            if name == "save":
                self.event("write", node, scope, self._mixed(values))
                return NOTHING
            return of(inner)
        if name == "start" and inner.cls is not None and inner.cls.find("run") and _is_thread(inner.cls):
            self.method(inner, "run", None, [], {}, scope)
        if "study" in inner.roles or name == "optimize" and inner.name in LOADING:
            return self._study_method(inner, node, name, args, keywords, scope)
        if "trial" in inner.roles:
            return NOTHING
        if name in ("update", "forward") and inner.name.startswith("torchmetrics."):
            self.event("measured", node, scope, self._mixed(values), of(inner))
        if inner.cls is None:
            for value in values:
                self._callbacks(value, name, node, scope)
            self._hand_over(node, values, scope)
            folder = argument(node, "save_folder", 1)
            if folder is not None and self.catalog.has(f"{inner.name}.{name}", "write_to"):
                self.event("write_to", folder, scope)
        mixed = self._mixed([*values, *(held for key, held in inner.attributes.items() if key == KEPT)])
        if "dataset" in inner.roles:
            return of(inner)
        if base.spread.is_local and not inner.roles and inner.cls is None:
            return None  # what a library made of samples may be a tensor, or a text
        return mixed if mixed.spread.is_local else NOTHING

    def _is_registered(self, node: ast.Attribute) -> bool:
        """Whether it is a buffer of a module, `self.centre`, and no parameter."""
        classes = [t.cls for t in self._lately(node.value).objects("module") if t.cls is not None]
        return bool(classes) and all(node.attr in carried.buffers(each.node for each in c.line()) for c in classes)

    def _note_functions(self, parser: Object, keywords: dict[str, Value]) -> None:
        """`set_defaults(func=train)`: what a command runs, `args.func(args)`. Any of them may be asked for."""
        for name, value in keywords.items():
            called = frozenset(thing for thing in value.things if isinstance(thing, (Function, Class)))
            if called:
                parser.attributes[name] = parser.attributes.get(name, NOTHING) | Value(called)

    def _note_default(self, parser: Object, args: list[Value], keywords: dict[str, Value]) -> None:
        """`add_argument("--seed", default=int(time.time()))`: an option that each process may set otherwise."""
        default = keywords.get("default", NOTHING)
        if not any(map(is_clock, default.origins)):
            return
        flags = [keywords["dest"].const] if "dest" in keywords else [value.const for value in args]
        names = [flag for flag in flags if isinstance(flag, str)]
        long = next((flag for flag in names if flag.startswith("--")), names[0] if names else "")
        parser.attributes[long.lstrip("-").replace("-", "_")] = Value(origins=default.origins)

    @staticmethod
    def _entries_of(table: Value, keywords: dict[str, Value]) -> dict[str, Value]:
        """What a dict holds by name, and what is given beside it; `self` of `locals()` is what is updated."""
        tables = [thing for thing in table.things if isinstance(thing, Table)]
        held = {k: v for each in tables for k, v in each.entries.items() if isinstance(k, str) and k != "self"}
        return held | {name: value for name, value in keywords.items() if name != REST}

    def _container_method(
        self,
        container: Items | Table | Stream,
        node: ast.Call,
        name: str,
        args: list[Value],
        keywords: dict[str, Value],
        scope: Scope,
    ) -> Value:
        first = args[0] if args else NOTHING
        if name == "copy":
            return of(container)
        if isinstance(container, Stream):
            return container.element if name in ("next", "__next__") else NOTHING
        if isinstance(container, Items):
            if name in GROWS:
                self._note_held_models(node, args[-1] if args else NOTHING, scope)
                self._grow(of(container), list(zip(args[-1:], node.args[-1:], strict=False)), scope, name)
                return NOTHING
            held = union([*container.parts, container.element])
            if joins_sets(node) and makes_set(container.node):
                return self._combined(node, [of(container), *args])
            if name == "index" and (noise := drawn_by_evaluation([held, first])):
                return Value(origins=noise)  # `losses.index(min(losses))`
            return held if name == "pop" else NOTHING
        if name == "items":
            pairs_ = [Items(node, [constant(k), v], NOTHING) for k, v in container.entries.items()]
            whole = self._remember(node, lambda: Items(node, [], NOTHING), ("items", container))
            whole.parts = [
                of(self._remember(node, partial(_itself, p), ("item", container, str(p.parts[0].const))))
                for p in pairs_
            ]
            for part, fresh in zip(whole.parts, pairs_, strict=False):
                for thing in part.things:
                    if isinstance(thing, Items):
                        thing.parts = fresh.parts
            if container.element is not NOTHING:
                whole.element = of(Items(node, [NOTHING, container.element], NOTHING))
            return of(whole)
        if name == "values":
            whole = self._remember(node, lambda: Items(node, [], NOTHING), ("values", container))
            whole.parts = list(container.entries.values())
            whole.element = container.element
            return of(whole)
        if name == "setdefault" and len(args) > 1:
            container.element = container.element | args[1]
        if name in ("get", "pop", "setdefault"):
            if first.const is not UNKNOWN and is_hashable(first.const) and first.const in container.entries:
                return container.entries[first.const]
            return union([any_entry(container), container.element, *args[1:]])
        if name == "most_common":
            return of(container)
        if name in ("update", "subtract"):
            for thing in first.things:
                if isinstance(thing, Table):
                    self._merge(container, thing)
            if self._holds_samples(first):
                self._count_samples(container, first, node.args[0], scope)
            container.entries.update(keywords)
            container.stores |= stored(scope.source, (keyword.value for keyword in node.keywords))
        return NOTHING


def _whose_names(call: ast.Call) -> ast.expr | None:
    """`self` of `self.__dict__.update(options)` and of `vars(self).update(options)`"""
    held = call.func.value if isinstance(call.func, ast.Attribute) else None
    if isinstance(held, ast.Attribute) and held.attr == "__dict__":
        return held.value
    asked = isinstance(held, ast.Call) and isinstance(held.func, ast.Name) and held.func.id == "vars"
    return held.args[0] if isinstance(held, ast.Call) and asked and held.args else None


def _names_file(node: ast.expr) -> bool:
    """`f"{epoch}.png"`, `os.path.join(folder, "a.png")`: a text that is written there, at least in part."""
    return any(isinstance(each, ast.Constant) and isinstance(each.value, str) for each in walk(node))


def _changed(node: ast.expr) -> ast.expr:
    """What methods change in place: `total` of `total.mul_(0.9).add_(loss)` and of `total.data.copy_(loss)`."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr.endswith("_"):
        node = node.func.value
    while isinstance(node, ast.Attribute) and node.attr == "data" and ast.unparse(node.value) != "self":
        node = node.value
    return node


def _itself(items: Items) -> Items:
    return items


def _is_thread(cls: Class) -> bool:
    """Whether a class of the project derives from a thread or a process, whose `run` is called by `start`."""
    bases = {base.name for each in cls.line() for base in each.bases if isinstance(base, External)}
    return not bases.isdisjoint(LATER)


def _is_gradient(node: ast.expr) -> bool:
    """`p.grad.data.add_`"""
    return any(isinstance(each, ast.Attribute) and each.attr == "grad" for each in walk(node))
