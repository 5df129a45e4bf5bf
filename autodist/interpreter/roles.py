"""Calls of libraries by the role that the catalogue gives them: ``call_<role>``."""

from __future__ import annotations

import ast
from functools import partial

from autodist.interpreter.events import Loop
from autodist.interpreter.questions import constants_in, first_text, in_order, stable_order, wrapped
from autodist.interpreter.stores import Stores
from autodist.source import argument, walk
from autodist.spread import LOCAL, RANK, SAME, WORLD
from autodist.values import (
    NOTHING,
    External,
    Function,
    Index,
    Items,
    Object,
    Scope,
    Table,
    Thing,
    Value,
    constant,
    of,
    union,
)

FIXED_STEPS = frozenset("euler midpoint heun2 heun3 rk4 explicit_adams implicit_adams".split())
"""Methods of torchdiffeq whose steps go by no error."""
LBFGS = ".LBFGS"
"""The one optimizer of torch that does more with what a closure answers than to return it."""


class Roles(Stores):
    """Calls of libraries, by their role."""

    def _callbacks(self, value: Value, name: str, node: ast.Call, scope: Scope) -> None:
        """A function handed to a library is called by it some time, which may leave a default as it is or not:
        `fire.Fire(main)` gives it what the command line says."""
        for thing in value.functions:
            self.event("calls_back", node, scope, of(thing))
            if thing.node not in self._entered:
                first = [Value(spread=RANK)] if self.catalog.has(name, "spawn") else []
                told = {name: self.eval(each, thing.scope).but(firm=False) for name, each in thing.defaults.items()}
                self.call_function(thing, None, first, told, scope)

    def _closures(
        self, optimizer: Object, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> list[Value]:
        """`optimizer.step(closure)` calls it as often as it likes, and may decide by what it answers, as L-BFGS does:
        whether it goes on, and how far a step of its line search goes."""
        given = args[0] if args else keywords.get("closure", NOTHING)
        made = optimizer.library_classes
        decides = not all(name.startswith("torch.optim.") and not name.endswith(LBFGS) for name in made)
        alone = decides and not self._loops
        if alone:
            self._loops.append(Loop(node, scope.source, scope, self._calls[-1].function if self._calls else None))
        found = []
        for thing in in_order(given.things):
            if isinstance(thing, Function):
                inner = Scope(thing.source, thing.scope)
                self.closures.add(thing.node)
                found.append(self.call_function(thing, None, [], {}, inner))
        if alone:
            self._loops.pop()
        return found

    def call_led_search(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value:
        """`fmin(objective, space, algo=tpe.suggest, max_evals=20)`"""
        self.event("led_search", node, scope)
        self._try_out(node, keywords["fn"] if "fn" in keywords else union(args[:1]), [NOTHING], scope)
        return NOTHING

    def call_foreign_search(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> None:
        """`gp_minimize(objective, space)`, `AxClient()`"""
        self.event("foreign_search", node, scope)

    def _study_method(
        self, study: Object, node: ast.Call, name: str, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value:
        """`study.optimize(objective)` gives trials to a function, and chooses the next ones by what it returns."""
        if name in ("ask", "optimize"):
            kinds = frozenset(["trial"])
            trial = self._remember(node, lambda: Object("optuna.Trial", kinds, node, scope.source, self._path))
            trial.attributes["study"] = of(study)
        if name == "optimize":
            self.event("search", node, scope, of(study))
            self._try_out(node, keywords["func"] if "func" in keywords else union(args[:1]), [of(trial)], scope)
        elif name in ("ask", "tell", "stop"):
            self.event(f"{name}s_study", node, scope, of(study))
        return of(trial) if name == "ask" else NOTHING

    def _try_out(self, node: ast.Call, objective: Value, trial: list[Value], scope: Scope) -> None:
        """A function that a search calls for each trial."""
        self._loops.append(Loop(node, scope.source, scope, self._calls[-1].function if self._calls else None))
        for thing in in_order(objective.things):
            if isinstance(thing, Object) and thing.cls is not None and thing.cls.find("__call__"):
                self.method(thing, "__call__", None, trial, {}, scope)
            elif isinstance(thing, Function):
                self.call_function(thing, None, trial, {}, Scope(thing.source, thing.scope))
        self._loops.pop()

    def _start_later(self, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope) -> None:
        """`Thread(target=save, args=(state, path))` calls save(state, path) once it is started."""
        name = next((each for each in ("target", "function") if each in keywords), "target")
        asked, target = argument(node, name, 1), keywords.get(name, args[1] if len(args) > 1 else NOTHING)
        rest, named = keywords.get("args", NOTHING), keywords.get("kwargs", NOTHING)
        given = next((list(t.parts) for t in rest.things if isinstance(t, Items)), [])
        options = next((t.entries for t in named.things if isinstance(t, Table)), {})
        given = [*map(_without_samples, given)]  # it cannot communicate: what it is given is made global before
        options = {name: _without_samples(value) for name, value in options.items()}
        for thing in in_order(target.things):
            if isinstance(thing, Function):
                named_args = {k: v for k, v in options.items() if isinstance(k, str)}
                self._call_any_time(thing, node, given, named_args, scope, "thread")
            elif asked is not None and self._writes(thing):
                self.event("write_to", asked, scope, of(thing))

    def _hand_over(self, node: ast.Call, values: list[Value], scope: Scope) -> None:
        """`pool.submit(torch.save, state, path)`: what writes a file, called by a pool some time."""
        writers = [thing for value in values for thing in value.things if self._writes(thing)]
        if writers:
            told = isinstance(scope.source.statement(node), ast.Expr)
            self.event("write" if told else "hands_over", node, scope, Value(frozenset(writers)))

    def _writes(self, thing: Thing) -> bool:
        return isinstance(thing, External) and bool(self.catalog.roles(thing.name) & {"save", "write"})

    def call_spawn(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value:
        """`mp.spawn(fn, args=(...))` runs fn(rank, ...)."""
        rest = keywords.get("args", args[1] if len(args) > 1 else NOTHING)
        given = next((list(t.parts) for t in rest.things if isinstance(t, Items)), [])
        self.event("spawn", node, scope)
        for thing in args[0].things if args else ():
            if isinstance(thing, Function):
                self.call_function(thing, node, [Value(spread=RANK), *given], {}, scope)
        return NOTHING

    def call_signal(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value:
        """`signal.signal(signal.SIGTERM, handler)` calls handler(number, frame), in each process at another time."""
        handler = keywords.get("handler", args[1] if len(args) > 1 else NOTHING)
        self.event("signal", node, scope, handler)
        for thing in in_order(handler.things):
            if isinstance(thing, Function):
                call = partial(self._call_any_time, thing, node, [NOTHING, NOTHING], {}, scope, "signal")
                call()
                self._at_end.append(call)  # what it reads may be made later than here
        return NOTHING

    def call_at_exit(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value:
        """`atexit.register(save, path)`"""
        self.register_at_exit(node, args, keywords, scope)
        return args[0] if args else NOTHING

    def _call_any_time(
        self,
        function: Function,
        node: ast.Call,
        args: list[Value],
        keywords: dict[str, Value],
        scope: Scope,
        by: str,
    ) -> None:
        """Run what each process runs at a time of its own, whatever it is doing."""
        make = partial(Object, by, frozenset(["clock", by]), node, scope.source, self._path)
        around, self._signalled = self._signalled, self._remember(node, make, by)
        self.call_function(function, None, args, keywords, scope)
        self._signalled = around

    def call_rank(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value:
        return Value(spread=RANK)

    def call_world_size(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value:
        return Value(spread=WORLD)

    def call_collective(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value:
        self.event("collective", node, scope)
        operation = name.rpartition(".")[2]
        target = node.args[0] if node.args else None
        if operation in ("all_reduce", "broadcast", "reduce") and isinstance(target, (ast.Name, ast.Attribute)):
            value = self.eval(target, scope)
            self.assign(target, Value(value.things, SAME), scope, None)
        return NOTHING

    def call_init_process_group(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value:
        self.event("init_process_group", node, scope)
        return NOTHING

    def call_destroy_process_group(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value:
        self.event("destroy_process_group", node, scope)
        return NOTHING

    def call_set_device(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value:
        self.event("set_device", node, scope, self._mixed(args))
        return NOTHING

    def _wrap_call(self, kind: str, node: ast.Call, args: list[Value], scope: Scope) -> Value:
        inner = args[0] if args else NOTHING
        if node in self.plan.dropped:
            return inner
        self.event("wrap", node, scope, inner, constant(kind))
        return wrapped(inner, kind)

    def call_ddp(self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope) -> Value:
        return self._wrap_call("ddp", node, args or list(keywords.values())[:1], scope)

    def call_fully_shard(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value:
        self.event("wrap", node, scope, args[0] if args else NOTHING, constant("fsdp"))
        return args[0] if args else NOTHING

    def call_data_parallel(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value:
        return self._wrap_call("data_parallel", node, args or list(keywords.values())[:1], scope)

    def call_data_parallel_call(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value:
        """`nn.parallel.data_parallel(self.net, x, range(n))` calls the module with the inputs."""
        self.event("data_parallel_call", node, scope)
        module = args[0] if args else keywords.get("module", NOTHING)
        inputs = args[1] if len(args) > 1 else keywords.get("inputs", NOTHING)
        pairs = [thing.parts for thing in inputs.things if isinstance(thing, Items)]
        given = pairs[0] if len(pairs) == 1 else [inputs]
        results = [self._call(thing, node, given, {}, scope) for thing in in_order(module.things)]
        return union(results) if results else self._mixed([module, *given])

    def call_sharded_ddp(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value:
        return self._wrap_call("data_parallel", node, args or list(keywords.values())[:1], scope)

    def call_fully_sharded(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value:
        return self._wrap_call("fully_sharded", node, args or list(keywords.values())[:1], scope)

    def call_transparent(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value:
        return args[0] if args else NOTHING

    call_plain_optimizer = call_transparent

    def call_agreed(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value:
        """A collective that returns the same value on all ranks."""
        self.event("collective", node, scope)
        return Value(args[0].things) if args else NOTHING

    def call_sync_batch_norm(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value:
        return args[0] if args else NOTHING

    def call_compile(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value | None:
        if name == "torch.jit.script" and self.of("backward"):
            return self.call_export(name, node, args, keywords, scope)
        return args[0] if args else NOTHING

    def call_adaptive_solver(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value | None:
        """`odeint(func, x, t)`, whose steps are of the size that the errors of all samples allow."""
        method = keywords["method"] if "method" in keywords else args[5] if len(args) > 5 else NOTHING
        if not isinstance(method.const, str) or method.const not in FIXED_STEPS:
            self.event("adaptive", node, scope, union(args))
        return None

    def call_export(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value:
        """`torch.jit.trace(model, x)`: a copy for a file, `torch.onnx.export(model, x, "model.onnx")` and the file."""
        self.event("export", node, scope, args[0] if args else NOTHING)
        if name == "torch.onnx.export" and (len(args) > 2 or "f" in keywords):
            self.event("write", node, scope)
        return of(
            self._remember(node, lambda: Object(name, frozenset(["export"]), node, scope.source, self._path), name)
        )

    def call_clip(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value:
        self.event("clip", node, scope, args[0] if args else NOTHING)
        return NOTHING

    def call_loss_function(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value:
        compared = 3 if name.endswith(("triplet_margin_loss", "distance_loss", "ranking_loss", "embedding_loss")) else 2
        return self._mixed([*args[:compared], *(keywords[k] for k in ("input", "target") if k in keywords)])

    def call_autograd_grad(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value:
        value = union([*args, *keywords.values()])
        self.event("autograd_grad", node, scope, value, keywords.get("create_graph", NOTHING))
        element = Value(spread=LOCAL if value.spread.is_local else SAME, origins=value.origins)
        return of(self._remember(node, lambda: Items(node, [], element))).but(origins=value.origins)

    def call_autograd_backward(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value:
        self.event("backward", node, scope, union([*args, *(v for a in args for v in self._contents(a))]))
        return NOTHING

    def call_optimizer(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value:
        made = self._remember(
            node, lambda: Object(name, frozenset(["optimizer"]), node, scope.source, self._path), name
        )
        made.args, made.keywords = args, keywords
        self.event("optimizer", node, scope, of(made))
        return of(made)

    def call_loader(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value:
        made = self._remember(node, lambda: Object(name, frozenset(["loader"]), node, scope.source, self._path), name)
        made.args, made.keywords = args, keywords
        self.event("loader", node, scope, of(made), constants_in(scope))
        for thing in keywords["collate_fn"].things if "collate_fn" in keywords else ():
            if isinstance(thing, Function):
                self._named_around(thing)
        for sampler in (made.argument("sampler", 3), made.argument("batch_sampler", 4)):
            for thing in sampler.things if sampler is not None else ():
                if isinstance(thing, Object) and thing.cls is not None:  # what it draws, all ranks must draw alike
                    self._element(self.method(thing, "__iter__", None, [], {}, Scope(thing.source)), None)
        return of(made)

    def _named_around(self, function: Function) -> None:
        """Look up what a function that a library will call names of the scope around it."""
        inside = set(walk(function.node))
        own = {each.arg for each in inside if isinstance(each, ast.arg)}
        own |= {each.id for each in inside if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
        for name in inside:
            if isinstance(name, ast.Name) and name.id not in own and function.scope.find(name.id) is not None:
                self.eval(name, Scope(function.source, function.scope))

    def call_applies(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value | None:
        """`checkpoint(block, x)` is `block(x)`, computed once more in the backward pass."""
        found: list[Value] = []
        given = args[2:] if name.endswith("_sequential") else args[1:]
        for thing in sorted(args[0].things, key=stable_order) if args else ():
            if isinstance(thing, Function):
                found.append(self.call_function(thing, None, given, {}, scope))
            elif isinstance(thing, Object) and thing.cls is not None and thing.cls.find("forward") and self._forward:
                found.append(self.method(thing, "forward", None, given, {}, scope))
            elif isinstance(thing, Object) and "module" in thing.roles and self._forward:
                found.append(self._call(thing, node, given, {}, scope))
        return union(found) if found else None

    def call_file_handler(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value | None:
        sinks = args[0].things if args and name == "loguru.logger.add" else ()
        if not any(isinstance(each, Function) or getattr(each, "name", "").startswith("sys.") for each in sinks):
            self.event("file_handler", node, scope)
        return None

    def call_log_config(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value | None:
        self.event("log_config", node, scope)
        return None

    def call_writer(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value | None:
        self.event("writer", node, scope)
        return None

    def call_open(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value:
        self.event("open", node, scope, args[0] if args else NOTHING)
        return of(self._remember(node, lambda: Object(name, frozenset(["file"]), node, scope.source, self._path)))

    def call_read(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value | None:
        """`pd.read_csv(path)`, `np.load(path)`: a file is read at once, and its path is known here."""
        self.event("read", node, scope, first_text([*args[:1], *keywords.values()]))
        return None

    def call_mapped_file(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value | None:
        """`np.memmap(path, dtype, mode="w+")` makes a file, and reads one otherwise."""
        mode = keywords.get("mode", args[2] if len(args) > 2 else NOTHING).const
        writes = isinstance(mode, str) and mode.startswith(("w", "write"))
        path = first_text(args[:1])
        self.event("write" if writes else "read", node, scope, path, path)
        return None

    def call_progress(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value:
        over = args[0].things if args else frozenset()  # `tqdm(loaders[phase])` is a bar for each of them
        made = self._remember(
            node, lambda: Object(name, frozenset(["progress"]), node, scope.source, self._path), (name, over)
        )
        made.args, made.keywords = args, keywords
        if name.endswith(("trange", "tnrange")):
            made.args = [of(Index(node))]
        self.event("progress", node, scope, of(made))
        return of(made)


def _without_samples(value: Value) -> Value:
    return Value(value.things, const=value.const) if value.spread.is_local else value
