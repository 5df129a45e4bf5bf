"""The state of a run: where it is, what it has noted, and what it has made."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any
from weakref import WeakKeyDictionary

from autodist import alternatives
from autodist.catalog import Catalog
from autodist.interpreter.events import Call_, Event, Loop
from autodist.interpreter.plan import Plan
from autodist.project import Project
from autodist.source import Source
from autodist.values import NOTHING, Bound, Class, Function, LocalModule, Object, Path_, Scope, Table, Thing, Value

MAX_STEPS = 200_000


class Interrupted(Exception):
    """The script is too large to be followed to the end."""


@dataclass(frozen=True)
class Stored:
    """What a function has bound an attribute to, in which blocks."""

    call: Call_
    branches: Path_
    value: Value


@dataclass
class Spent:
    """How often a function was entered, and the steps that it took with all that it calls."""

    function: Function
    entered: int = 0
    steps: int = 0


@dataclass(frozen=True)
class Entered:
    """What has been written to an entry of a dict, and where; ``held`` is what the entry held after that, older values
    among it."""

    node: ast.Subscript
    call: Call_ | None
    branches: Path_
    value: Value
    held: Value


class Machine(ABC):
    """The state of a run, and what its layers ask of those above them."""

    def __init__(self, project: Project, catalog: Catalog, plan: Plan) -> None:
        self.project = project
        self.catalog = catalog
        self.plan = plan
        self.values: dict[ast.expr, Value] = {}
        self.events: list[Event] = []
        self._optimizers: list[Event] = []
        """Where optimizers have been made so far."""
        self.loader_calls: dict[ast.AST, None] = {}
        self.presets: dict[ast.Call, dict[ast.Call, None]] = {}
        """Where a library is called with arguments that `partial` was given before, the calls of `partial`."""
        self.sources: dict[ast.AST, Source] = {}
        self.latest: dict[ast.expr, Value] = {}
        self.complete = True
        self.nested = False
        """Whether it is how deeply the code is nested that has ended it."""
        self.executed: set[ast.AST] = set()
        self._entered: set[ast.AST] = set()
        self.closures: set[ast.AST] = set()
        """The functions that optimizers are given to call as often as they like: `optimizer.step(closure)`."""
        self.promoted: set[int] = set()
        self.loops_of: dict[ast.expr, set[ast.AST]] = {}
        self.apart: dict[ast.expr, int] = {}
        """Expressions outside of forward passes that are computed from parameters, each with the number of events
        before the last time that it is."""
        self.flowing: set[ast.expr] = set()
        """Those of them through which gradients flow."""
        self.imported_by: dict[Source, ast.AST] = {}
        """The statement at which each local module is imported first."""
        self.answers: dict[Any, Any] = {}
        """What was asked of the run once it was over: see `once_a_run`."""
        self.spent: dict[ast.AST, Spent] = {}
        """What following each function of the project has cost."""
        self.callers: dict[ast.AST, dict[ast.Call, Source]] = {}
        """The calls that each function of the project was entered by."""
        self._modules: dict[str, LocalModule] = {}
        self._starred: dict[Scope, list[str]] = {}
        """The libraries of which a file imports all names."""
        self._loading: set[str] = set()
        self._memory: dict[tuple[int, Path_], Any] = {}
        self._repeats: dict[tuple[Any, ...], int] = {}
        self._steps = 0
        self._loops: list[Loop] = []
        self._calls: list[Call_] = []
        self._path: Path_ = ()
        self._one_rank = 0
        self._no_grad = 0
        self._evaluated: frozenset[tuple[int, Path_]] = frozenset()
        """The modules of which `eval()` was called last, and not `train()`."""
        self.once_evaluated: set[tuple[int, Path_]] = set()
        """Modules that the script puts into evaluation mode somewhere."""
        self._forward = 0
        self._passing: Object | None = None
        """The model whose forward pass is being run."""
        self._hooks: dict[tuple[Object, str], list[Value]] = {}
        """What is to be run before or behind the passes of a module, by the method that it was given by."""
        self._branches: Path_ = ()
        """The blocks being run that may not run at all, or several times."""
        self._born: WeakKeyDictionary[Object, Path_] = WeakKeyDictionary()
        """In which of them each object was made last."""
        self._begun: WeakKeyDictionary[Object, tuple[list[Value], dict[str, Value]]] = WeakKeyDictionary()
        """What the classes of libraries that objects derive from were made with."""
        self._stored: dict[tuple[Object, str], Stored] = {}
        """Where an attribute that keeps older values, too, was bound last."""
        self._entered_last: WeakKeyDictionary[Table, dict[object, Entered]] = WeakKeyDictionary()
        """Where an entry of a dict that keeps older values, too, was written last."""
        self._signalled: Object | None = None
        """The call that has had the function called which is being run, whenever a signal comes."""
        self._at_end: list[Callable[[], object]] = []
        """What is run once the script has come to its end."""
        self._flags: dict[tuple[object, Hashable], Value] = {}
        """What such functions write to, names and attributes and items, each with the calls that it comes from."""
        self._outcomes: alternatives.Outcomes = {}
        """How the tests came out that always come out alike, in what is being run."""
        self._made_where: dict[Object, alternatives.Outcomes] = {}
        self._again = 0
        self._results: dict[Any, Value] = {}
        self._quiet: dict[ast.AST, bool] = {}
        self._returns: list[list[Value]] = []
        self._yields: list[list[Value]] = []
        self._roots: dict[ast.AST, Value] = {}
        self.module = LocalModule(project.entry, Scope(project.entry))

    def of(self, kind: str) -> list[Event]:
        """The events of one kind, in order, once the run is over."""
        return self._by_kind.get(kind, [])

    @cached_property
    def step_loops(self) -> frozenset[ast.AST]:
        """The loops whose bodies are training steps, once the run is over."""
        return frozenset(event.loops[-1].node for event in self.of("backward") if event.loops)

    @cached_property
    def feature_draws(self) -> frozenset[object]:
        """What picks along later axes of batches alone, which were drawn before: `batch[:, :, nodes]`."""
        later = {thing for event in self.of("picks_features") for thing in event.value.things}
        return frozenset(later - {t for event in self.of("picks") if event.detail.const for t in event.value.things})

    @cached_property
    def _by_kind(self) -> dict[str, list[Event]]:
        kinds: dict[str, list[Event]] = {}
        for event in self.events:
            kinds.setdefault(event.kind, []).append(event)
        return kinds

    @property
    def steps(self) -> int:
        """How many statements and calls have been followed, as a measure of its cost."""
        return self._steps

    def _tick(self) -> None:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise Interrupted

    def event(self, kind: str, node: ast.AST, scope: Scope, value: Value = NOTHING, detail: Value = NOTHING) -> None:
        """Note that ``kind`` happens at ``node``."""
        noted = Event(
            kind,
            len(self.events),
            node,
            scope.source,
            value,
            scope,
            self._calls[-1].function if self._calls else None,
            tuple(self._loops),
            tuple(self._calls),
            self._one_rank > 0,
            self._no_grad == 0,
            self._forward > 0,
            detail,
        )
        self.events.append(noted)
        if kind == "loader":
            self.loader_calls[node] = None
        elif kind == "optimizer":
            self._optimizers.append(noted)

    def _lately(self, node: ast.expr) -> Value:
        return self.latest.get(node, NOTHING)

    def _remember(self, node: ast.AST, make: Callable[[], Any], extra: Any = None) -> Any:
        """The thing that ``node`` made in this context; running a loop body again makes no second one."""
        key: Any = (id(node), self._path, extra)
        made = self._memory[key] if key in self._memory else self._memory.setdefault(key, make())
        if isinstance(made, Object):
            here = self._outcomes
            before = self._made_where.get(made, here)
            self._made_where[made] = {c: o for c, o in before.items() if here.get(c) is o}
        return made

    def register_at_exit(self, node: ast.expr, args: list[Value], keywords: dict[str, Value], scope: Scope) -> None:
        """Run a function once the script is over: before what was registered ahead of it."""
        call = node if isinstance(node, ast.Call) else None
        given = args[0].functions if args else []
        for function in sorted(given, key=lambda each: each.node.lineno):
            self.event("at_exit", node, scope, args[0])
            self._at_end.append(partial(self.call_function, function, call, args[1:], keywords, scope))

    # what layers ask of those above them

    @abstractmethod
    def _join_optimizers(self, groups: ast.expr, held: Value, joined: Value, scope: Scope) -> None: ...

    @abstractmethod
    def block(self, body: Iterable[ast.stmt], scope: Scope) -> bool: ...

    @abstractmethod
    def call_function(
        self, function: Function, node: ast.Call | None, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value: ...

    @abstractmethod
    def method(
        self,
        owner: Object,
        name: str,
        node: ast.Call | None,
        args: list[Value],
        keywords: dict[str, Value],
        scope: Scope,
    ) -> Value: ...

    @abstractmethod
    def _closures(
        self, optimizer: Object, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> list[Value]: ...

    @abstractmethod
    def _call(
        self, thing: Thing, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value: ...

    @abstractmethod
    def _called_by_name(
        self, method: Bound, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value: ...

    @abstractmethod
    def _library_pass(
        self, layer: Object, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value: ...

    @abstractmethod
    def _inherited_pass(
        self, owner: Object, cls: Class, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value: ...
