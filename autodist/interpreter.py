"""Run a script in the mind: every statement once or twice, with what variables may hold instead of what they hold.

Functions of the project are entered at each call with the values of that call, so that a helper which makes two
loaders makes two, and roles flow through parameters, attributes, containers, returns and modules. Nothing of the
user's code is ever executed.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any
from weakref import WeakKeyDictionary

from autodist import alternatives, carried, collation, picking, rowwise, tensors
from autodist.catalog import Catalog
from autodist.chosen import among, matching, pattern_of
from autodist.collation import Rows
from autodist.project import Project, absolute
from autodist.source import Source, last_name, operands
from autodist.spread import (
    COUNT,
    CROSS,
    LOCAL,
    MEAN,
    RANK,
    ROWS,
    SAME,
    SUM,
    WORLD,
    Spread,
    add,
    combine,
    divide,
    multiply,
)
from autodist.values import (
    NOTHING,
    PACKED,
    SETTLED,
    UNKNOWN,
    Class,
    Draw,
    Evened,
    External,
    Function,
    Gathered,
    Index,
    Inside,
    Items,
    LocalModule,
    Mixing,
    Object,
    OptimizerState,
    Parameters,
    Path_,
    Picked,
    Scope,
    Stream,
    Table,
    Thing,
    Value,
    Wrapped,
    constant,
    is_clock,
    of,
    union,
)

MAX_DEPTH = 24
MAX_STEPS = 150_000
MAX_REPEATS = 24
UNROLLED = 4
"""How many elements of a list that is written out a loop goes through one by one."""
MOVES = frozenset("cuda to cpu half float double bfloat16 xpu mps npu".split())
RETURNS_SELF = MOVES | frozenset("train eval apply requires_grad_ share_memory compile".split())
# what can be asked of DistributedDataParallel as of the model in it
SAFE_ON_WRAPPER = frozenset(
    (
        "train eval parameters zero_grad requires_grad_ no_sync module forward training apply " "modules join to cuda"
    ).split()
)
GROWS = frozenset("append extend add insert appendleft update".split())
RESIZING = GROWS | frozenset("pop popleft remove clear".split())
WRITING = frozenset(
    "savefig to_csv to_json to_excel to_pickle to_parquet write_text write_bytes unlink save_pretrained write_image "
    "write_html rmdir touch push_to_hub imsave dump tofile".split()
)
PICTURES = (
    "PIL.",
    "matplotlib.animation.",
    "torchvision.transforms.ToPILImage",
    "torchvision.transforms.functional.to_pil",
)
SPLITTING = frozenset("split chunk array_split tensor_split".split())
REST = "**"
KEPT = "[]"
"""What an object holds beside its attributes: in a library, or under a name that is not known, as
`setattr(self, f"layer{i}", nn.Linear(4, 4))` sets."""
TESTING_FILES = frozenset("exists is_file is_dir isfile isdir".split())
REMAKING = tuple(
    f"torch.nn.utils.{name}"
    for name in ("parametrizations.", "parametrize.", "prune.", "remove_", "spectral_norm", "weight_norm")
)
"""What puts other parameters in the place of those of a module."""
MAKING = frozenset("zeros ones empty full".split())
TYPES = frozenset("Tensor FloatTensor DoubleTensor LongTensor HalfTensor".split())
FILLING = frozenset("uniform_ normal_ random_ bernoulli_ exponential_ log_normal_ geometric_ cauchy_".split())
COMPARING = ("CosineSimilarity", "PairwiseDistance")
NUMBERS = frozenset("item tolist float".split())
CUTTING = frozenset("detach detach_ item tolist numpy".split())
TYPED_LIKE = frozenset("to type_as".split())
"""What takes the type and the device of another tensor, and nothing of its values."""
DRAWING = frozenset(
    "normal_ uniform_ bernoulli_ random_ exponential_ cauchy_ geometric_ log_normal_ rand_like randn_like randint_like "
    "bernoulli trunc_normal_".split()
)
ARITHMETIC: Mapping[str, type[ast.operator]] = {
    "div": ast.Div,
    "divide": ast.Div,
    "true_divide": ast.Div,
    "sub": ast.Sub,
    "subtract": ast.Sub,
    "mul": ast.Mult,
    "multiply": ast.Mult,
}
"""Functions and methods that are operators by name."""
MODULE_METHODS = frozenset(
    "parameters named_parameters children named_children modules named_modules buffers named_buffers state_dict "
    "load_state_dict forward train eval apply to cuda cpu float double half type zero_grad requires_grad_".split()
)
MORE_METHODS = ("add_module", "compile", "extra_repr", "get_", "register_", "set_", "share_memory", "to_empty")
WEIGHTS = ("weight", "bias", "in_proj_", "cls_token", "pos_embed")
"""How names of parameters begin in modules of libraries."""
BUFFERS = frozenset("running_mean running_var num_batches_tracked".split())
MOMENTS = frozenset(
    "exp_avg exp_avg_sq max_exp_avg_sq exp_inf momentum_buffer sum square_avg grad_avg acc_delta prev ax".split()
)
"""Under which names the optimizers of torch keep tensors that are shaped like a parameter."""
ABOUT_TENSORS = frozenset(
    "shape dtype device ndim requires_grad is_leaf is_cuda grad_fn names layout itemsize nbytes is_sparse".split()
)
GRADIENT_HOOKS = frozenset(
    "register_hook register_post_accumulate_grad_hook register_full_backward_hook register_backward_hook "
    "register_full_backward_pre_hook".split()
)
"""What has a function called with gradients in the midst of a backward pass."""
SIZES = frozenset("numel nelement size dim ndimension stride element_size data_ptr register_hook get_device".split())
"""What is asked of a parameter besides its values."""
FORMATTING = frozenset("format join".split())
PARTS: Mapping[str, Mapping[str, str]] = {
    "torch.nn.Transformer": {"encoder": "torch.nn.TransformerEncoder", "decoder": "torch.nn.TransformerDecoder"},
}
"""What modules of torch are made of, as far as those who derive from them call the parts."""


@dataclass(frozen=True)
class Plan:
    """What the analysis has decided so far, and the next run of the interpreter takes for granted.

    ``sharded`` and ``draws`` are the keys of loaders and draws that yield this rank's samples (None: all of them),
    ``wraps`` the statements after which a model is wrapped, with the expression that names it, ``reduced`` the
    expressions whose value is made global, ``settled`` the
    loops after which accumulators are, ``divided`` those that become a rank's share of the batch size, ``dropped``
    the wrappers that go, ``modules`` the calls of unknown libraries that turned out to make a module, ``wholes`` the
    names of tensors of which a rank takes its rows (None: nobody asks which values are tensors), ``columns`` those of
    which it takes columns, ``counts`` names of the number of all rows that shape other tensors.
    """

    sharded: frozenset[tuple[int, Path_]] | None = None
    draws: frozenset[int] | None = None
    wraps: Mapping[ast.stmt, tuple[ast.expr, ...]] = field(default_factory=dict)
    settled: Mapping[ast.stmt, tuple[ast.expr, ...]] = field(default_factory=dict)
    reduced: frozenset[ast.AST] = frozenset()
    divided: frozenset[ast.expr] = frozenset()
    dropped: frozenset[ast.AST] = frozenset()
    modules: frozenset[int] = frozenset()
    wholes: frozenset[ast.expr] | None = None
    columns: frozenset[ast.expr] = frozenset()
    counts: frozenset[ast.expr] = frozenset()
    batches: frozenset[ast.expr] = frozenset()
    """Expressions for a batch that a step is given, or for an iterable of them: a rank takes its rows there."""
    weighed: frozenset[ast.AST] = frozenset()
    """Losses that are weighed by what each rank divides by."""
    joined: frozenset[ast.AST] = frozenset()
    """Sums and means over a batch that losses are computed from, which are taken over all ranks."""
    gathered: frozenset[ast.expr] = frozenset()
    """Rows, and numbers of rows, that are those of all ranks, since losses compare them with each other."""
    bare: bool = False
    """Models are distributed without a wrapper: `model.module` becomes the model itself."""


@dataclass(frozen=True)
class Loop:
    """A loop that is being run."""

    node: ast.For | ast.While | ast.AsyncFor | ast.comprehension
    source: Source
    scope: Scope
    function: Function | None
    by_row: bool = False
    """It takes the samples of a batch one by one."""


@dataclass(frozen=True)
class Call_:
    """A call that is being run."""

    node: ast.Call | None
    source: Source
    scope: Scope
    function: Function

    def given(self) -> dict[str, ast.expr]:
        """The expressions that parameters stand for, where the call spells them out."""
        if self.node is None or any(isinstance(each, ast.Starred) for each in self.node.args):
            return {}
        spec = self.function.node.args
        names = [each.arg for each in (*spec.posonlyargs, *spec.args)]
        found = dict(zip(names[names[:1] in (["self"], ["cls"]) :], self.node.args, strict=False))
        return found | {keyword.arg: keyword.value for keyword in self.node.keywords if keyword.arg}

    def stands_for(self, name: str, kind: Callable[[ast.expr], bool]) -> bool:
        """Whether a parameter is given an expression of some kind."""
        given = self.given().get(name)
        return given is not None and not isinstance(given, ast.Name) and kind(given)


@dataclass(frozen=True)
class Event:
    """Something that the script does, where, and under which circumstances."""

    kind: str
    order: int
    node: ast.AST
    source: Source
    value: Value
    scope: Scope
    function: Function | None
    loops: tuple[Loop, ...]
    calls: tuple[Call_, ...]
    on_one_rank: bool
    grad: bool
    inside_forward: bool
    detail: Value = NOTHING


class _Interrupted(Exception):
    """The script is too large to be followed to the end."""


class Interpreter:
    """One run over a project. `values` and `events` are what it leaves behind."""

    def __init__(self, project: Project, catalog: Catalog, plan: Plan) -> None:
        self.project = project
        self.catalog = catalog
        self.plan = plan
        self.values: dict[ast.expr, Value] = {}
        self.events: list[Event] = []
        self.sources: dict[ast.AST, Source] = {}
        self.latest: dict[ast.expr, Value] = {}
        self.spreads: dict[ast.expr, set[Spread]] = {}
        self.complete = True
        self.executed: set[ast.AST] = set()
        self._entered: set[ast.AST] = set()
        self.promoted: set[int] = set()
        self.loops_of: dict[ast.expr, set[ast.AST]] = {}
        self.apart: set[ast.expr] = set()
        """Expressions outside of forward passes that are computed from parameters."""
        self.flowing: set[ast.expr] = set()
        """Those of them through which gradients flow."""
        self._carried: dict[ast.stmt, carried.Written | None] = {}
        self.imported_by: dict[Source, ast.AST] = {}
        """The statement at which each local module is imported first."""
        self.callers: dict[ast.AST, dict[ast.Call, Source]] = {}
        """The calls that each function of the project was entered by."""
        self._modules: dict[str, LocalModule] = {}
        self._starred: dict[Scope, list[str]] = {}
        """The libraries of which a file imports all names."""
        self._loading: set[str] = set()
        self._memory: dict[tuple[int, Path_], Any] = {}
        self._repeats: dict[ast.AST, int] = {}
        self._steps = 0
        self._loops: list[Loop] = []
        self._calls: list[Call_] = []
        self._path: Path_ = ()
        self._one_rank = 0
        self._no_grad = 0
        self._evaluated: frozenset[tuple[int, Path_]] = frozenset()
        self.once_evaluated: set[tuple[int, Path_]] = set()
        """Modules that the script puts into evaluation mode somewhere."""
        """The modules of which `eval()` was called last, and not `train()`."""
        self._forward = 0
        self._row_tests: list[Value] = []
        """What decides whether the statement that is being run is run."""
        self._branches: Path_ = ()
        """The blocks being run that may not run at all, or several times."""
        self._born: WeakKeyDictionary[Object, Path_] = WeakKeyDictionary()
        """In which of them each object was made last."""
        self._outcomes: alternatives.Outcomes = {}
        """How the tests came out that always come out alike, in what is being run."""
        self._made_where: WeakKeyDictionary[Object, alternatives.Outcomes] = WeakKeyDictionary()
        self._again = 0
        self._results: dict[Any, Value] = {}
        self._generators: dict[ast.AST, bool] = {}
        self._quiet: dict[ast.AST, bool] = {}
        self._returns: list[list[Value]] = []
        self._yields: list[list[Value]] = []
        self._roots: dict[ast.AST, Value] = {}
        self.module = LocalModule(project.entry, Scope(project.entry))

    # ---------------------------------------------------------------- running

    def run(self) -> Interpreter:
        """Run the entry script, then what nothing in it calls (a launcher or framework may)."""
        self._modules["__main__"] = self.module
        try:
            self.block(self.module.source.tree.body, self.module.scope)
            if not self._trains("backward", "step"):
                for thing in [t for value in self.module.scope.names.values() for t in value.things]:
                    if isinstance(thing, Function) and thing.node not in self._entered and not self._trains("step"):
                        self.call_function(thing, None, [], {}, self.module.scope)
                if not self._trains("step"):  # functions for others to call, which train elsewhere
                    self.events = [event for event in self.events if event.kind != "backward"]
        except (_Interrupted, RecursionError):
            self.complete = False
        return self

    def _trains(self, *kinds: str) -> bool:
        return any(event.kind in kinds for event in self.events)

    def of(self, kind: str) -> list[Event]:
        """The events of one kind, in order, once the run is over."""
        return self._by_kind.get(kind, [])

    @cached_property
    def step_loops(self) -> frozenset[ast.AST]:
        """The loops whose bodies are training steps, once the run is over."""
        return frozenset(event.loops[-1].node for event in self.of("backward") if event.loops)

    @cached_property
    def _by_kind(self) -> dict[str, list[Event]]:
        kinds: dict[str, list[Event]] = {}
        for event in self.events:
            kinds.setdefault(event.kind, []).append(event)
        return kinds

    def _tick(self) -> None:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise _Interrupted

    def event(self, kind: str, node: ast.AST, scope: Scope, value: Value = NOTHING, detail: Value = NOTHING) -> None:
        """Note that ``kind`` happens at ``node``."""
        function = self._calls[-1].function if self._calls else None
        self.events.append(
            Event(
                kind,
                len(self.events),
                node,
                scope.source,
                value,
                scope,
                function,
                tuple(self._loops),
                tuple(self._calls),
                self._one_rank > 0,
                self._no_grad == 0,
                self._forward > 0,
                detail,
            )
        )

    # ---------------------------------------------------------------- statements

    def block(self, body: Iterable[ast.stmt], scope: Scope) -> bool:
        """Run statements; True if control leaves the block early."""
        return any(self.statement(statement, scope) for statement in body)

    def statement(self, node: ast.stmt, scope: Scope) -> bool:
        """Run one statement; True if control leaves the block here."""
        self._tick()
        self.executed.add(node)
        handler = getattr(self, "do_" + type(node).__name__, None)
        left = bool(handler(node, scope)) if handler is not None else False
        if self._loops:
            self._hands_on(node, scope)
        for target in self.plan.wraps.get(node, ()):
            self.assign(target, self._planned(target, self.eval(target, scope)), scope, None)
            self.event("wrapped", target, scope)
        for accumulator in self.plan.settled.get(node, ()):
            self.assign(accumulator, NOTHING, scope, None)
        return left

    def _hands_on(self, node: ast.stmt, scope: Scope) -> None:
        """Note what a step writes into something that outlives it: part of a module, or a name of the script."""
        if node not in self._carried:
            self._carried[node] = carried.written(node)
        found = self._carried[node]
        if found is None:
            return
        target, given = found
        if self._forward:
            self._written_inside(target, scope)
        if isinstance(target, ast.Attribute) and self._lately(target.value).spread.is_local:
            return  # a field of the batch
        if isinstance(target, ast.Name) and self._is_made_anew(target.id, node, scope):
            return
        changed = [(each, value) for each in given if (value := self._lately(each)).spread.is_local]
        for each, value in changed:
            self.event("state", each, scope, value, constant((target, self._is_buffer(target))))

    def _written_inside(self, target: ast.Name | ast.Attribute, scope: Scope) -> None:
        """Note parameters that a forward pass changes."""
        held: list[Thing] = [t for t in self._lately(target).things if isinstance(t, Parameters)]
        if isinstance(target, ast.Attribute) and target.attr in ("weight", "bias"):
            held += [Parameters(module, one=True) for module in self._lately(target.value).objects("module")]
        if held:
            self.event("written_inside", target, scope, Value(frozenset(held)))

    def _is_made_anew(self, name: str, node: ast.stmt, scope: Scope) -> bool:
        """Whether a variable that a statement changes is bound in every round of the loop, or in every call."""
        rebinds = isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        if not self._is_within(node, scope):
            given = self._calls[-1].given() if self._calls else {}
            return rebinds or scope.find(name) is scope and scope.parent is not None and name not in given
        stores = [
            each
            for each in ast.walk(self._loops[-1].node)
            if isinstance(each, ast.Name) and each.id == name and isinstance(each.ctx, ast.Store)
        ]
        return self._filled_first(name, node, scope) or any(scope.source.statement(e) is not node for e in stores)

    def _filled_first(self, name: str, node: ast.stmt, scope: Scope) -> bool:
        """Whether new samples are put into a tensor before a round of the loop does anything else with it."""
        loop, source = self._loops[-1].node, scope.source
        if not carried.fills(node, name) or loop not in source.ancestors(node):
            return False
        mentions = [each for each in ast.walk(loop) if isinstance(each, ast.Name) and each.id == name]

        def is_filled(mention: ast.Name) -> bool:
            inner = [each for each in (mention, *source.ancestors(mention)) if isinstance(each, ast.stmt)]
            around = inner[: inner.index(loop)] if loop in inner else inner[:1]
            before = (each for at in around for each in source.block(at)[: source.block(at).index(at)])
            return carried.fills(inner[0], name) or any(carried.fills(each, name) for each in before)

        return all(map(is_filled, mentions))

    def _is_within(self, node: ast.stmt, scope: Scope) -> bool:
        return any(each is self._loops[-1].node for each in scope.source.ancestors(node))

    def _is_buffer(self, node: ast.expr) -> bool:
        """Whether a name or attribute holds what a module keeps from one forward pass to the next."""
        if isinstance(node, ast.Name):
            return self._calls[-1].stands_for(node.id, self._is_buffer) if self._calls else False
        if not isinstance(node, ast.Attribute):
            return False
        if node.attr in ("weight", "bias"):
            return self._is_buffer(node.value)
        modules = [t for t in self._lately(node.value).objects("module") if t.cls is not None]
        names = [carried.buffers(each.node for each in t.cls.line()) for t in modules if t.cls is not None]
        return bool(modules) and (self._forward > 0 or any(node.attr in each for each in names))

    def _planned(self, target: ast.expr, value: Value) -> Value:
        """A model in its planned wrapper, or a list of such."""
        lists = [thing for thing in value.things if isinstance(thing, Items)]
        if not lists:
            return wrapped(value, "planned")
        items = self._remember(target, lambda: Items(target, [], NOTHING), "planned")
        items.parts = [wrapped(part, "planned") for part in lists[0].parts] if len(lists) == 1 else []
        items.element = union(wrapped(each, "planned") for each in self._contents(value))
        return of(items)

    def do_Expr(self, node: ast.Expr, scope: Scope) -> None:
        value = self.eval(node.value, scope)
        if isinstance(node.value, ast.Call):
            self.event("discarded", node.value, scope, value)

    def do_Assign(self, node: ast.Assign, scope: Scope) -> None:
        value = self._made(self.eval(node.value, scope), node.value, scope)
        value = self._loaded(node, value, scope)
        one = value.spread is not MEAN or _is_of_one(node.value)
        if value.spread.is_local and one and _adds_to(node) and self._counts_rows_of(node.targets[0]):
            value = value.but(spread=SUM)  # `loss = loss + criterion(out[i], labels[i])`
        counted = carried.counted_up(node)
        if counted is not None and value.made:
            changes = [each for each in counted[1] if self._lately(each).spread.is_local]
            value = value.but(made=frozenset((scope.source, each) for each in changes) or value.made)
        if self.plan.wholes is not None and self._loops:
            for part in node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]:
                if isinstance(part, (ast.Call, ast.Subscript)):
                    self.event("may_be_batch", part, scope, self._lately(part))
        if isinstance(node.value, (ast.Call, ast.Await, ast.IfExp)) and self._modules_in(value):
            self.event("bind", node, scope, value)
        elif self._modules_in(value):
            self.event("alias", node, scope, value)
        elif isinstance(node.value, (ast.List, ast.ListComp)) and not self._loops:
            held = union(each for each in self._contents(value) if self._modules_in(each))
            if held is not NOTHING:
                self.event("bind_each", node, scope, held)
        for target in node.targets:
            self.assign(target, value, scope, node.value if counted is None else None)
            if isinstance(target, (ast.Tuple, ast.List)):
                given = node.value.elts if isinstance(node.value, (ast.Tuple, ast.List)) else []
                for index, part in enumerate(target.elts):
                    if index < len(given) and not isinstance(given[index], ast.Call):
                        continue
                    bound = self.values.get(part, NOTHING)
                    if self._modules_in(bound):
                        self.event("bind_part", part, scope, bound)
        if counted is not None:
            self._count_up(*counted, scope)

    def _count_up(self, item: ast.Subscript, changes: Iterable[ast.expr], scope: Scope) -> None:
        """Note what an item of a container is changed by."""
        for thing in self._lately(item.value).things:
            if isinstance(thing, (Items, Table)):
                found = [(scope.source, each) for each in changes]
                thing.changes += [each for each in found if each not in thing.changes]

    def _loaded(self, node: ast.Assign, value: Value, scope: Scope) -> Value:
        """`model = torch.load(path)`: a name of a model is that of another one from here on."""
        target, call = node.targets[0], node.value
        if not isinstance(target, ast.Name) or not isinstance(call, ast.Call) or value.things:
            return value
        home = scope.find(target.id)
        named = {thing.name for thing in self.values.get(call.func, NOTHING).things if isinstance(thing, External)}
        if home is None or named != {"torch.load"} or not self._modules_in(home.names[target.id]):
            return value
        make = partial(Object, "torch.load", frozenset(["module"]), call, scope.source, self._path)
        return of(self._remember(call, make, "loaded"))

    def do_AnnAssign(self, node: ast.AnnAssign, scope: Scope) -> None:
        if node.value is not None:
            value = self._made(self.eval(node.value, scope), node.value, scope)
            if self._modules_in(value):
                self.event("bind" if isinstance(node.value, ast.Call) else "alias", node, scope, value)
            self.assign(node.target, value, scope, node.value)
        elif isinstance(node.target, ast.Name):
            scope.names.setdefault(node.target.id, NOTHING)

    def do_AugAssign(self, node: ast.AugAssign, scope: Scope) -> None:
        before = self.eval(node.target, scope)
        change = self.eval(node.value, scope)
        if isinstance(node.op, ast.Add) and any(isinstance(t, Items) for t in before.things):
            self._note_refill(node.target, scope)
            self._grow(before, [(change, node.value)], scope, "extend")
            return
        if any(isinstance(t, Items) for t in change.things):  # `sums += [loss.item(), error.item()]`, an array
            change = self._one_inside(change).but(things=frozenset())
        number = change.spread in (SAME, ROWS, LOCAL) or change.spread is MEAN and _is_of_one(node.value)
        number = number and not change.things
        if isinstance(node.op, (ast.Add, ast.Sub)) and number and self._counts_rows_of(node.target):
            change = change.computed(SUM)
            if isinstance(node.target, ast.Subscript) and before.spread in (SAME, ROWS):
                before = constant(0)  # `counts[label]`, which is this rank's by its label only
        elif deciding := self._decided_by_rows(node, change):
            change = Value(spread=SUM, origins=deciding.origins)
            before = self._counted_in(node.target, before)
        spread = self._binary(node.op, before, change)
        mixed = self._with_statistic(
            node.op, before, change, node.value, scope, (node.target, node.value)
        ) | self._augmented(node, spread, scope)
        value = Value(
            before.things if not spread.is_local else frozenset(),
            spread,
            before.origins | change.origins | mixed,
            before.models | change.models,
            made=(before.made | {(scope.source, node.value)}) if spread.is_local else frozenset(),
            weights=before.weights | change.weights,
        )
        if node in self.plan.reduced:
            value = NOTHING
        if value.origins:
            self.event("accumulate", node, scope, value, _constants(scope))
        self.assign(node.target, value, scope, None)
        if isinstance(node.target, ast.Subscript):
            self._count_up(node.target, [node.value], scope)

    def _decided_by_rows(self, node: ast.AugAssign, change: Value) -> Value | None:
        """The rows that say whether, or where, something is counted: `if guess == label: right += 1`,
        `matrix[label, guess] += 1`."""
        if self._forward or change.spread is not SAME or change.things or not isinstance(node.op, (ast.Add, ast.Sub)):
            return None
        slices = [each.slice for each in ast.walk(node.target) if isinstance(each, ast.Subscript)]
        keys = [part for each in slices for part in (each.elts if isinstance(each, ast.Tuple) else [each])]
        return next((each for each in (*map(self._lately, keys), *self._row_tests) if each.spread is ROWS), None)

    def _counted_in(self, target: ast.expr, before: Value) -> Value:
        """What a table holds before, whichever of its numbers is counted up."""
        while isinstance(target, ast.Subscript):
            target = target.value
            held = self._lately(target)
            before = held if not held.things else before
        return before

    def _augmented(self, node: ast.AugAssign, spread: Spread, scope: Scope) -> frozenset[Mixing]:
        """Where steps may train on all of the data: why `x op= y` may mix its rows."""
        parts = [self._lately(node.target), self._lately(node.value)]
        if self.plan.wholes is None or not any(map(rowwise.is_whole, parts)):
            return frozenset()
        plain = ast.BinOp(node.target, node.op, node.value)
        found = rowwise.followed(plain, Value(spread=spread), self._lately, self._contents)
        if not isinstance(found, str) and spread is MEAN and all(part.spread is not MEAN for part in parts):
            found = "divides by the number of rows in place: write `x = x / n`"
        if found == rowwise.STATISTIC and self._forward:
            found = f"{found}, inside the model"
        return frozenset([Mixing(node.value, scope.source, found)]) if isinstance(found, str) else frozenset()

    def do_Return(self, node: ast.Return, scope: Scope) -> bool:
        if node.value is not None:
            value = self._made(self.eval(node.value, scope), node.value, scope)
            if self._returns:
                self._returns[-1].append(value)
        elif self._returns:
            self._returns[-1].append(constant(None))
        return True

    def do_Raise(self, node: ast.Raise, scope: Scope) -> bool:
        if node.exc is not None:
            self.eval(node.exc, scope)
        return True

    def do_Break(self, node: ast.stmt, scope: Scope) -> bool:
        self.event("leave", node, scope)
        return True

    do_Continue = do_Break

    def do_Delete(self, node: ast.Delete, scope: Scope) -> None:
        return None

    def do_Assert(self, node: ast.Assert, scope: Scope) -> None:
        self.eval(node.test, scope)  # each rank checks what it has
        if node.msg is not None:
            self.eval(node.msg, scope)

    def do_Global(self, node: ast.Global, scope: Scope) -> None:
        scope.outer.update(node.names)

    def do_Nonlocal(self, node: ast.Nonlocal, scope: Scope) -> None:
        scope.outer.update(node.names)

    def do_Import(self, node: ast.Import, scope: Scope) -> None:
        for alias in node.names:
            if alias.asname:
                scope.names[alias.asname] = self._module(alias.name, node)
            else:
                root = alias.name.partition(".")[0]
                self._module(alias.name, node)
                scope.names[root] = self._module(root, node)

    def do_ImportFrom(self, node: ast.ImportFrom, scope: Scope) -> None:
        own = scope.source.module if scope.source.module != "__main__" else self._entry_package()
        is_package = scope.source.path.name == "__init__.py"
        base = absolute(node, own if is_package or scope.source.module == "__main__" else own.rpartition(".")[0])
        for alias in node.names:
            if alias.name == "*":
                scope.names.update(self._star(base, node))
                if base not in self.project.modules and self.catalog.knows(base):
                    self._starred.setdefault(scope.top, []).append(base)
                continue
            scope.names[alias.asname or alias.name] = self._member(base, alias.name, node, scope)

    def _entry_package(self) -> str:
        return ".".join(self.project.entry.path.parent.relative_to(self.project.root).parts)

    def _star(self, base: str, node: ast.stmt) -> dict[str, Value]:
        module = self._module(base, node)
        for thing in module.things:
            if isinstance(thing, LocalModule):
                return {k: v for k, v in thing.scope.names.items() if not k.startswith("_")}
        return {}

    def _member(self, base: str, name: str, node: ast.stmt, scope: Scope) -> Value:
        local = self.project.modules.get(f"{base}.{name}" if base else name)
        if base in self.project.modules:
            for thing in self._module(base, node).things:
                if isinstance(thing, LocalModule) and name in thing.scope.names:
                    return thing.scope.names[name]
        if local is not None:
            return self._module(f"{base}.{name}" if base else name, node)
        if base in self.project.modules:
            return NOTHING
        return of(External(f"{base}.{name}"))

    def _module(self, name: str, node: ast.AST) -> Value:
        if name not in self.project.modules:
            return of(External(name))
        package = name.rpartition(".")[0]
        if name not in self._modules and package in self.project.modules:
            self._module(package, node)  # its __init__.py runs first, and may import this module
        if name not in self._modules:
            module = LocalModule(self.project.modules[name], Scope(self.project.modules[name]))
            self._modules[name] = module
            self.imported_by[module.source] = node
            self._loading.add(name)
            outer = self._loops, self._calls, self._branches, self._outcomes
            self._loops, self._calls, self._branches, self._outcomes = [], [], (), {}
            self.block(module.source.tree.body, module.scope)
            self._loops, self._calls, self._branches, self._outcomes = outer
            self._loading.discard(name)
        return of(self._modules[name])

    def do_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope) -> None:
        function = self._remember(node, lambda: Function(node, scope.source, scope))
        function.scope = scope
        self._decorate(node, of(function), scope)
        for default in [*node.args.defaults, *node.args.kw_defaults]:
            if default is not None:
                self.eval(default, scope)
        scope.names[node.name] = of(function)

    do_AsyncFunctionDef = do_FunctionDef

    def do_ClassDef(self, node: ast.ClassDef, scope: Scope) -> None:
        bases: list[Thing] = []
        roles: set[str] = set()
        for base in node.bases:
            for thing in self.eval(base, scope).things:
                if isinstance(thing, Class):
                    bases.append(thing)
                    roles |= thing.roles
                elif isinstance(thing, External):
                    bases.append(thing)
                    roles |= self._class_roles(thing.name)
        body = Scope(scope.source, scope, is_class=True)
        made = self._remember(node, lambda: Class(node, scope.source, body, tuple(bases), frozenset(roles)))
        made.scope = body
        self._decorate(node, of(made), scope)
        self.block(node.body, body)
        for value in body.names.values():
            for thing in value.things:
                if isinstance(thing, Function) and thing.defined_in is None:
                    thing.defined_in = made
        scope.names[node.name] = of(made)

    def _decorate(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, made: Value, scope: Scope) -> None:
        """Run decorators of the project for what they do besides: `@register("name")` keeps what it is given."""
        for decorator in node.decorator_list:
            value = self.eval(decorator, scope)
            for thing in sorted(value.things, key=_order):
                if isinstance(thing, Function) and not scope.is_class:
                    self.call_function(thing, None, [made], {}, scope)

    def _class_roles(self, name: str) -> frozenset[str]:
        """What instances of a class derived from ``name`` are."""
        if name in ("torch.utils.data.Dataset", "torch.utils.data.dataset.Dataset"):
            return frozenset(["dataset"])
        if name in ("torch.optim.Optimizer", "torch.optim.optimizer.Optimizer"):
            return frozenset(["optimizer"])
        if name.endswith((".PreTrainedModel", ".MessagePassing", ".ModelMixin")):
            return frozenset(["module"])
        roles = self.catalog.roles(name)
        if roles & {"dropout", "batch_norm"} and name.startswith("torch.nn.") and name.rpartition(".")[2][0].isupper():
            return roles | {"module"}
        return roles - {"download"} if "download" in roles else roles

    def do_If(self, node: ast.If, scope: Scope) -> bool:
        test = self.eval(node.test, scope)
        self.event("test", node.test, scope, test)
        decided, outcomes = self._decided(node.test, test, scope)
        if decided is not None:
            return self.block(node.body if decided else node.orelse, scope)
        told = self._told_by(node.test, scope) if self.plan.wholes is not None else ()
        self._row_tests.append(test)
        left = self._fork([node.body, node.orelse], scope, test.spread is RANK, told, outcomes)
        self._row_tests.pop()
        return left

    def _told_by(self, test: ast.expr, scope: Scope) -> tuple[dict[str, Value], dict[str, Value]]:
        """What names hold where a test of their shape or type holds, and where it does not."""
        names = scope.names
        shaped = {
            name: names[name].but(axes=axes)
            for name, axes in rowwise.told_axes(test).items()
            if name in names and names[name].array and names[name].axes is None
        }
        asked = test.args if isinstance(test, ast.Call) and getattr(test.func, "id", "") == "isinstance" else []
        if len(asked) != 2 or not isinstance(asked[0], ast.Name) or asked[0].id not in names:
            return shaped, {}
        value = names[asked[0].id]
        if not value.things or not self._is_tensor_type(self._lately(asked[1])):
            return shaped, {}
        tensor = value.but(things=frozenset(t for t in value.things if not isinstance(t, (Items, Table))))
        holders = frozenset(t for t in value.things if isinstance(t, (Items, Table)))
        holder = Value(holders, origins=value.origins) if holders else value
        return {**shaped, asked[0].id: tensor}, {asked[0].id: holder}

    def _decided(
        self, test: ast.expr, value: Value, scope: Scope
    ) -> tuple[bool | None, tuple[alternatives.Outcomes, alternatives.Outcomes]]:
        """Whether a test is decided, and what is known where it holds and where it does not."""
        holds, fails = alternatives.told(test, scope, self._lately, self._settled)
        known = truth(value, test)
        decided = known if known is not None else alternatives.decided(holds, fails, self._outcomes)
        return decided, ({**self._outcomes, **holds}, {**self._outcomes, **fails})

    @cached_property
    def _settled(self) -> alternatives.Settled:
        return alternatives.settled(self.project.sources)

    def _fork(
        self,
        blocks: Sequence[Sequence[ast.stmt]],
        scope: Scope,
        one_rank: bool = False,
        told: Sequence[Mapping[str, Value]] = (),
        outcomes: Sequence[alternatives.Outcomes] = (),
    ) -> bool:
        """Run alternatives from one state, and join what they leave. ``told`` is what names hold in each, ``outcomes``
        how tests come out there."""
        start, ends = dict(scope.names), []
        around, known = self._branches, self._outcomes
        self._one_rank += one_rank
        for index, block in enumerate(blocks):
            scope.names = dict(start)
            self._outcomes = outcomes[index] if outcomes else known
            scope.names.update(told[index] if told else {})
            self._branches = (*around, id(block))
            if not self.block(block, scope):
                ends.append(scope.names)
        self._branches, self._outcomes = around, known
        left_on_one_rank = one_rank and len(ends) == 1
        if not left_on_one_rank:
            self._one_rank -= one_rank
        scope.names = joined(ends) if ends else start
        return not ends

    def do_For(self, node: ast.For | ast.AsyncFor, scope: Scope) -> bool:
        iterable = self.eval(node.iter, scope)
        self.event("iterate", node, scope, iterable)
        if is_set(iterable):
            self.event("ordered", node.iter, scope, iterable)
        function = self._calls[-1].function if self._calls else None
        loop = Loop(node, scope.source, scope, function, self._goes_row_by_row(node.iter))
        parts = self._unrolled(iterable)
        self._loops.append(loop)
        if parts is not None:
            for part in parts:
                self.assign(node.target, part.but(firm=True) if part.const is not UNKNOWN else part, scope, None)
                if self.block(node.body, scope) and len(parts) == 1:
                    break
        else:
            element = self._element(iterable, node)
            if self.plan.wholes is not None:
                self._note_batches(node, element, scope)
            self._repeat(node.body, scope, lambda: self.assign(node.target, element, scope, node.iter))
        self._loops.pop()
        self.block(node.orelse, scope)
        return False

    do_AsyncFor = do_For

    def _goes_row_by_row(self, over: ast.expr) -> bool:
        """`for label, guess in zip(labels, guesses.tolist())`, of this rank's samples."""
        if isinstance(over, ast.Call) and _last(over.func) in ("zip", "enumerate", "tqdm"):
            return any(map(self._goes_row_by_row, over.args))
        if isinstance(over, ast.Call) and _last(over.func) == "range":
            base = _counted_of(over.args[0]) if len(over.args) == 1 else None
            return base is not None and self._goes_row_by_row(base)
        value = self._lately(over)
        return value.spread is ROWS and not value.things and not value.models  # a model may give several outputs

    def _counts_rows_of(self, target: ast.expr) -> bool:
        """Whether a loop over this rank's samples, one by one, adds to what was there before it."""
        root = target
        while isinstance(root, (ast.Subscript, ast.Attribute)):
            root = root.value
        for loop in self._loops:
            if loop.by_row and isinstance(loop.node, ast.For):
                inside = (n for statement in loop.node.body for n in ast.walk(statement))
                inner = [n for n in inside if isinstance(n, ast.Assign) and not _adds_to(n)]
                bound = [each for statement in inner for target in statement.targets for each in ast.walk(target)]
                return not any(isinstance(n, ast.Name) and n.id == getattr(root, "id", "") for n in bound)
        return False

    def _note_batches(self, node: ast.For | ast.AsyncFor, element: Value, scope: Scope) -> None:
        """Note what a loop goes over: `for x, y in batches`, `for i, (x, y) in enumerate(batches)`."""
        over, batch = node.iter, element
        things = self._lately(over.func).things if isinstance(over, ast.Call) else frozenset()
        called = {thing.name for thing in things if isinstance(thing, External)}
        if isinstance(over, ast.Call) and called == {"builtins.enumerate"} and over.args:
            pairs = [t.parts for t in element.things if isinstance(t, Items) and len(t.parts) == 2]
            over, batch = over.args[0], union(pair[1] for pair in pairs)
        if self._gives_indices(over):
            batch = Value(origins=frozenset([Draw(over, scope.source, self._path)]), array=True)
        if called != {"builtins.range"}:
            self.event("may_be_batches", over, scope, batch)

    def _gives_indices(self, over: ast.expr) -> bool:
        """`order.split(size)`, `np.array_split(order, n)`, a batch sampler: the numbers of samples, batch by batch."""
        if any("batch_sampler" in thing.roles for thing in self._lately(over).things if isinstance(thing, Object)):
            return True
        if (
            not isinstance(over, ast.Call)
            or not isinstance(over.func, ast.Attribute)
            or over.func.attr not in SPLITTING
        ):
            return False
        parts = [self._lately(over.func.value), *(self._lately(arg) for arg in over.args[:1])]
        return any(part.axes == 1 and part.array for part in parts)

    def do_While(self, node: ast.While, scope: Scope) -> bool:
        test = self.eval(node.test, scope)
        self.event("test", node.test, scope, test)
        self._loops.append(Loop(node, scope.source, scope, self._calls[-1].function if self._calls else None))
        self._repeat(node.body, scope, lambda: None)
        self.eval(node.test, scope)
        self._loops.pop()
        self.block(node.orelse, scope)
        return False

    def _repeat(self, body: Sequence[ast.stmt], scope: Scope, bind: Callable[[], None]) -> None:
        """Run a loop body until what it leaves no longer changes, at most twice."""
        around, self._branches = self._branches, (*self._branches, id(body))
        rounds = 1 if self._again else 2
        for again in range(rounds):
            start = dict(scope.names)
            bind()
            # loops within have found what they leave when this one runs again
            self._again += again
            self.block(body, scope)
            self._again -= again
            scope.names = joined([start, scope.names])
            if scope.names == start:
                break
        self._branches = around

    def _unrolled(self, iterable: Value) -> list[Value] | None:
        """The elements of a short literal list of constants, such as the phases of an epoch."""
        lists = [t for t in iterable.things if isinstance(t, Items)]
        if len(lists) == 1 and len(iterable.things) == 1 and 0 < len(lists[0].parts) <= UNROLLED:
            parts = lists[0].parts
            if _is_mixed(parts) and lists[0].element is NOTHING:
                return list(parts)
            if all(isinstance(p.const, str) or self._modules_in(p) or any(p.objects("loader")) for p in parts):
                return list(parts)
            if all(any(isinstance(t, Items) for t in p.things) for p in parts):
                return list(parts)
        return None

    def do_With(self, node: ast.With | ast.AsyncWith, scope: Scope) -> bool:
        quiet = 0
        for item in node.items:
            value = self.eval(item.context_expr, scope)
            names = {thing.name for thing in value.things if isinstance(thing, (External, Object))}
            quiet += any(self.catalog.has(name, "no_grad") for name in names)
            if item.optional_vars is not None:
                self.assign(item.optional_vars, value, scope, item.context_expr)
        self._no_grad += quiet
        left = self.block(node.body, scope)
        self._no_grad -= quiet
        return left

    do_AsyncWith = do_With

    def do_Try(self, node: ast.Try, scope: Scope) -> bool:
        left = self.block(node.body, scope)
        around = self._branches
        after = [] if left else [scope.names]
        start = dict(scope.names)
        for handler in node.handlers:
            scope.names = dict(start)
            self._branches = (*around, id(handler))
            if handler.name:
                scope.names[handler.name] = NOTHING
            if not self.block(handler.body, scope):
                after.append(scope.names)
        self._branches = around
        scope.names = joined(after) if after else start
        if not left:
            left = self.block(node.orelse, scope)
        return self.block(node.finalbody, scope) or not after

    do_TryStar = do_Try

    def do_Match(self, node: ast.Match, scope: Scope) -> bool:
        self.eval(node.subject, scope)
        return self._fork([case.body for case in node.cases] + [[]], scope)

    # ---------------------------------------------------------------- names and stores

    def assign(self, target: ast.expr, value: Value, scope: Scope, made: ast.expr | None) -> None:
        """Bind ``value`` to a name, attribute, item or pattern."""
        if isinstance(target, ast.Name):
            home = scope
            if target.id in scope.outer:
                home = (scope.parent or scope).find(target.id) or scope.top
                if self._branches and target.id in home.names:
                    value = value | home.names[target.id]
            home.names[target.id] = value
            self.values[target] = self.values.get(target, NOTHING) | value
            self.sources[target] = scope.source
        elif isinstance(target, (ast.Tuple, ast.List)):
            for index, part in enumerate(target.elts):
                if isinstance(part, ast.Starred):
                    self.assign(part.value, self._element(value, part), scope, made)
                else:
                    self.assign(part, self._part(value, index, len(target.elts)), scope, made)
        elif isinstance(target, ast.Starred):
            self.assign(target.value, value, scope, made)
        elif isinstance(target, ast.Attribute):
            self._set_attribute(target, value, scope)
        elif isinstance(target, ast.Subscript):
            self._set_item(target, value, scope, made)

    def _set_attribute(self, target: ast.Attribute, value: Value, scope: Scope) -> None:
        base = self.eval(target.value, scope)
        if target.attr == "data" and any(isinstance(t, Parameters) for t in base.things):
            self.event("replace_data", target, scope, base)
        if target.attr == "grad" and any(isinstance(t, Parameters) for t in base.things) and value.const is not None:
            self.event("replace_grad", target, scope, base)
        self._note_refill(target, scope)
        if target.attr == "requires_grad":
            self.event(
                "freeze", target, scope, Value(frozenset(t.module for t in base.things if isinstance(t, Parameters)))
            )
        self._keep_attribute(target, base, target.attr, value, scope)
        self.values[target] = self.values.get(target, NOTHING) | value
        self.sources[target] = scope.source

    def _note_refill(self, target: ast.expr, scope: Scope) -> None:
        """Note what may change the length of a data set: an attribute of it is bound, grows or shrinks."""
        base = self._lately(target.value) if isinstance(target, ast.Attribute) else NOTHING
        held = [t for t in base.things if isinstance(t, Object)]
        if any("dataset" in t.roles or t.cls is not None and t.cls.find("__len__") for t in held):
            self.event("refill", target, scope, base, constant(last_name(target)))

    def _keep_attribute(self, node: ast.AST, base: Value, name: str, value: Value, scope: Scope) -> None:
        """`base.name = value`, `setattr(base, name, value)`, `base.register_parameter(name, value)`"""
        replaces = any(isinstance(t, Parameters) for t in value.things) or any(True for _ in value.objects("parameter"))
        if replaces and self._modules_in(base):
            self.event("replace_parameter", node, scope, base)
        for thing in base.things:
            if isinstance(thing, Wrapped):
                thing = thing.module
            if isinstance(thing, Object):
                keep = len(base.things) > 1 or name == KEPT or not self._always_runs_for(thing)
                old = thing.attributes.get(name, NOTHING) if keep else NOTHING
                thing.attributes[name] = old | value
            elif isinstance(thing, (LocalModule, Class)):
                thing.scope.names[name] = value

    def _always_runs_for(self, thing: Object) -> bool:
        """Whether what runs now runs once for each time that an object is made: it was made in the same blocks."""
        born = self._born.get(thing, ())
        return born[: len(self._branches)] == self._branches

    def _set_item(self, target: ast.Subscript, value: Value, scope: Scope, made: ast.expr | None) -> None:
        base = self.eval(target.value, scope)
        key = self.eval(target.slice, scope)
        self.event("set_item", target, scope, value, base)
        for writer in base.objects("writer"):
            self.event("tracker", target, scope, value, of(writer))
        written = frozenset(t for t in base.things if isinstance(t, Parameters) and t.one)
        if written:
            self.event("write_part", target, scope, Value(written))
        for thing in base.things:
            if isinstance(thing, Table):
                if key.const is not UNKNOWN and _hashable(key.const):
                    thing.entries[key.const] = (
                        value if not self._branches else thing.entries.get(key.const, NOTHING) | value
                    )
                else:
                    thing.element = thing.element | value
                    if value.spread.is_reducible:  # under any of the names that it has
                        thing.entries.update({name: held | value for name, held in thing.entries.items()})
                if made is not None:
                    thing.stores.append((scope.source, made))
            elif isinstance(thing, Items):
                thing.element = thing.element | value
                if made is not None:
                    thing.stores.append((scope.source, made))
        for thing in base.things:
            if isinstance(thing, Object) and thing.cls is None and not thing.roles and isinstance(key.const, str):
                if any(isinstance(t, (Class, Function)) for t in value.things):  # `ChainMap(...)["model"] = Net`
                    old = thing.attributes.get(f"[{key.const}]", NOTHING)
                    thing.attributes[f"[{key.const}]"] = old | value
        if not base.things and key.const is not UNKNOWN and any(isinstance(t, (Class, Function)) for t in value.things):
            self._becomes_table(target.value, base, key, value, scope)
        if value.spread.is_local:
            self._keep_inside(target.value, value, scope)
        if self.plan.wholes is not None:
            self._written_into(target, value, scope)
        for names, name in self._holders(target.value, scope):
            held = names[name]
            if base.spread.is_reducible and key.spread.is_local:  # `c[c.abs() < 0.1] = 0.1`: no mean any more
                names[name] = held = held.but(spread=LOCAL)
            if value.spread.is_local and not held.things and held.spread is SAME:
                spread = value.spread if value.spread.is_reducible else LOCAL
                origins = held.origins | picking.whole(value).origins
                names[name] = held.but(spread=spread, made=value.made, origins=origins, zero=False)

    def _holders(self, node: ast.expr, scope: Scope) -> list[tuple[dict[str, Value], str]]:
        """Where a name or attribute is held, or that of which it is an item: `counts` of `counts[label]`."""
        while isinstance(node, ast.Subscript):
            node = node.value
        if isinstance(node, ast.Name):
            home = scope.find(node.id)
            return [(home.names, node.id)] if home is not None else []
        if not isinstance(node, ast.Attribute):
            return []
        owners = (t for t in self._lately(node.value).things if isinstance(t, Object) and "module" not in t.roles)
        return [(owner.attributes, node.attr) for owner in owners if node.attr in owner.attributes]

    def _becomes_table(self, target: ast.expr, base: Value, key: Value, value: Value, scope: Scope) -> None:
        """`options["model"] = Net`: what nothing is known of holds a class or function by name from here on."""
        if not isinstance(target, ast.Name) or base.spread is not SAME or not _hashable(key.const):
            return
        table = self._remember(target, lambda: Table(target, {}, NOTHING), "held")
        table.entries[key.const] = table.entries.get(key.const, NOTHING) | value
        self.assign(ast.Name(target.id, ast.Store()), base | of(table), scope, None)

    def _written_into(self, target: ast.Subscript, value: Value, scope: Scope) -> None:
        """What becomes of rows where some of them, or their fields, are written: `h[:, t] = step(h[:, t - 1])`."""
        base = self._lately(target.value)
        if (
            not rowwise.is_whole(base)
            and not rowwise.is_whole(value)
            or not isinstance(target.value, (ast.Name, ast.Attribute))
        ):
            return
        first = target.slice.elts[0] if isinstance(target.slice, ast.Tuple) and target.slice.elts else target.slice
        all_rows = isinstance(first, ast.Slice) and first.lower is first.upper is first.step is None
        origins = base.origins | value.origins
        if not (all_rows and base.spread is ROWS and (value.spread is ROWS or not value.array)):
            reason = "writes some of the rows, which may be those of other samples"
            origins |= {Mixing(target, scope.source, reason)}
        if not base.things:
            self.assign(target.value, base.but(origins=origins), scope, None)

    def _keep_inside(self, target: ast.expr, value: Value, scope: Scope) -> None:
        """`table.total[key] += loss.item()`: what a library's table may give back from here on."""
        while isinstance(target, (ast.Attribute, ast.Subscript)):
            for thing in self.values.get(target, NOTHING).things:
                if isinstance(thing, Object) and thing.cls is None and not thing.roles:
                    spread = value.spread if value.spread.is_reducible else LOCAL
                    kept = Value(spread=spread, origins=value.origins, made=value.made)
                    thing.attributes[KEPT] = thing.attributes.get(KEPT, NOTHING) | kept
            target = target.value

    def _part(self, value: Value, index: int, count: int) -> Value:
        """What unpacking gives the target at ``index``."""
        tuples = [t for t in value.things if isinstance(t, Items) and t.parts]
        found = _one_of([t.parts[index] if index < len(t.parts) else t.element for t in tuples])
        for thing in value.things.difference(tuples):
            if isinstance(thing, Stream):
                found = found | thing.element
            elif isinstance(thing, Parameters) and thing.named and count == 2:
                found = found | (of(Parameters(thing.module, one=True)) if index else NOTHING)
            else:
                found = found | self._element(value.but(things=frozenset([thing])), None)
        if value.spread is Spread.COLUMNS:
            value = value.but(spread=ROWS)
        if not value.things:
            return collation.picked(value, index).but(const=UNKNOWN, firm=False)
        if value.spread.is_local:
            found = found | collation.picked(value, index).but(things=frozenset(), const=UNKNOWN, firm=False)
        return found

    def _element(self, value: Value, node: ast.AST | None) -> Value:
        """What iterating over a value gives."""
        found = NOTHING
        for thing in value.things:
            if isinstance(thing, Items):
                held = [*thing.parts, *([] if thing.element is NOTHING else [thing.element])]
                found = found | (union(held) if _is_shape(thing) else _one_of(held))
            elif isinstance(thing, Stream):
                found = found | thing.element
            elif isinstance(thing, Table):
                keys = [constant(key) for key in thing.entries]
                found = found | (keys[0] if len(keys) == 1 else NOTHING)
            elif isinstance(thing, Object) and "loader" in thing.roles:
                found = found | self._batch(thing)
            elif isinstance(thing, Object) and "progress" in thing.roles:
                inner = thing.argument("iterable", 0)
                if inner is not None:
                    found = found | self._element(inner, node)
            elif isinstance(thing, Object) and thing.cls is not None and thing.cls.find("__iter__"):
                iterator = self.method(thing, "__iter__", None, [], {}, Scope(thing.source))
                if thing in iterator.things:
                    found = found | self.method(thing, "__next__", None, [], {}, Scope(thing.source))
                    iterator = iterator.but(things=iterator.things - {thing})
                found = found | self._element(iterator, node)
            elif isinstance(thing, Object) and "module" in thing.roles:
                found = found | union(self._children(thing))
            elif isinstance(thing, Parameters):
                found = found | of(thing if thing.named else replace(thing, one=True, part=thing.one))
            elif isinstance(thing, Inside):
                found = found | of(thing)
            elif isinstance(thing, OptimizerState) and thing.depth == 2:
                found = found | of(Parameters(thing.module, one=True))
            elif isinstance(thing, Index) and isinstance(node, (ast.For, ast.comprehension)):
                found = found | of(thing)
        if value.spread is not SAME:
            if isinstance(node, ast.expr | ast.For | ast.comprehension) and rowwise.is_whole(value):
                value = self._one_by_one(value, node)
            spread = ROWS if value.spread is Spread.COLUMNS else value.spread
            found = found | value.but(things=frozenset(), const=UNKNOWN, firm=False, spread=spread)
        return found

    def _one_by_one(self, value: Value, node: ast.expr | ast.For | ast.comprehension) -> Value:
        """Rows that a loop takes one after the other."""
        start = node if isinstance(node, ast.expr) else node.iter
        if value.things or value.spread is not ROWS or start not in self.sources:
            return value
        mixing = Mixing(start, self.sources[start], "takes one row after the other")
        return value.but(origins=value.origins | {mixing})

    def _children(self, thing: Object) -> list[Value]:
        held = (*thing.args, *thing.attributes.values())
        layers = {"batch_norm", "dropout"}  # of those, a list of modules holds many
        inner = [
            v for v in held if self._modules_in(v) or any(isinstance(t, Object) and t.roles & layers for t in v.things)
        ]
        containers = [v for value in thing.args for v in self._contents(value)]
        return [v for v in inner if not any(isinstance(t, Items) for t in v.things)] + containers

    def _and_all_within(self, module: Object) -> set[Object]:
        """A module and those in it, at any depth."""
        found, pending = {module}, [module]
        while pending:
            inner = {t for v in self._children(pending.pop()) for t in v.things if isinstance(t, Object)} - found
            found |= inner
            pending += inner
        return found

    def _one_inside(self, value: Value, depth: int = 2) -> Value:
        """What one of the numbers of a list is, or of a list of lists."""
        held = [each for each in self._contents(value) if each is not NOTHING]
        return _one_of([each | self._one_inside(each, depth - 1) if depth and each.things else each for each in held])

    def _contents(self, value: Value) -> list[Value]:
        found: list[Value] = []
        for thing in value.things:
            if isinstance(thing, Items):
                found += [*thing.parts, thing.element]
            elif isinstance(thing, Table):
                found += [*thing.entries.values(), thing.element]
            elif isinstance(thing, Stream):
                found.append(thing.element)
        return found

    def _batch(self, loader: Object) -> Value:
        """What a loader yields: this rank's samples, if it is sharded."""
        return Value(spread=ROWS if self.shares_out(loader) else SAME, origins=frozenset([loader]))

    def uneven(self, value: Value, target: bool = False) -> Rows | None:
        """What makes samples that a `collate_fn` puts together, or a condition picks, more on one rank than another."""
        return Rows.FEWER if picking.picks(value) is not None else collation.uneven(value, self._collated, target)

    def _collated(self, loader: Object) -> collation.Kind:
        collate = collation.collate_fn(loader)
        if collate is None:
            pooled = any(
                mark in each.text for each in self.project.sources for mark in ("global_", ".batch", "readout")
            )
            return Rows.JOINED if collation.of_graphs(loader) and not pooled else None
        made: collation.Kind = self._remember(loader.node, lambda: collation.collated(collate), "collated")
        return made

    def shares_out(self, loader: Object) -> bool:
        """Whether a loader yields this rank's samples, by the plan or by what the script does itself."""
        return self.plan.sharded is None or loader.key in self.plan.sharded or self.is_sharded(loader)

    def is_sharded(self, loader: Object) -> bool:
        """Whether the script itself gives the loader a sampler that shares samples out."""
        for name in ("sampler", "batch_sampler"):
            value = loader.argument(name)
            if value is not None and self._shares_out(value):
                return True
        dataset = loader.argument("dataset", 0)
        return dataset is not None and (dataset.spread in (RANK, ROWS) or self._streams_share(dataset))

    def _streams_share(self, dataset: Value) -> bool:
        """Whether a stream's class itself picks the samples of its rank."""
        return any(
            "iterable_dataset" in thing.roles and self._shares_out(of(thing))
            for thing in dataset.things
            if isinstance(thing, Object)
        )

    def _shares_out(self, value: Value) -> bool:
        if value.spread is RANK:
            return True
        for thing in value.things:
            if isinstance(thing, Object):
                if "distributed_sampler" in thing.roles:
                    return True
                if any(
                    inner.spread is RANK or self._shares_out(inner) for inner in (*thing.args, *thing.keywords.values())
                ):
                    return True
                if thing.cls is not None and any(v.spread is RANK for v in thing.attributes.values()):
                    return True
                if thing.cls is not None and any(self._mentions_rank(c.node) for c in thing.cls.line()):
                    return True
        return False

    def _mentions_rank(self, node: ast.ClassDef) -> bool:
        return any(isinstance(n, ast.Attribute) and n.attr == "get_rank" for n in ast.walk(node))

    # ---------------------------------------------------------------- expressions

    def eval(self, node: ast.expr, scope: Scope) -> Value:
        """What an expression may evaluate to."""
        handler: Callable[[Any, Scope], Value] | None = getattr(self, "of_" + type(node).__name__, None)
        return self._noted(node, handler(node, scope) if handler is not None else self._other(node, scope), scope)

    def _noted(self, node: ast.expr, value: Value, scope: Scope) -> Value:
        """Keep what ``node`` evaluated to, and take for granted what is planned for it."""
        if self._outcomes and (value.things or value.models):
            value = self._possible(value)
        if node in self.plan.reduced:
            kept = frozenset(t for t in value.things if not isinstance(t, Parameters))
            rows = frozenset([Gathered(node)]) if value.spread is ROWS and self.plan.wholes is None else frozenset()
            value = Value(kept if not value.spread.is_local else frozenset(), models=value.models, origins=rows)
        if node in self.plan.joined:
            self.event("joined", node, scope, value)
            if value.spread is MEAN or value.spread is SUM and not self._no_grad:
                value = value.but(spread=SAME)
        elif value.spread is LOCAL and isinstance(node, (ast.BinOp, ast.Call, ast.UnaryOp)):
            self._note_joinable(node, scope)
        if node in self.plan.gathered and value.spread in (ROWS, COUNT):
            value = value.but(spread=SAME, origins=value.origins | {Gathered(node)})
            self.event("gathered", node, scope, value)
        elif self.plan.gathered and (counted := _counted_of(node)) is not None and value.spread is SAME:
            value = value.but(origins=value.origins | self._lately(counted).origins)
        elif isinstance(node, ast.Call) and self.is_gathered(value) and last_name(node.func) in NUMBERS:
            value = value.but(origins=frozenset(o for o in value.origins if not isinstance(o, Gathered)))
        elif isinstance(node, (ast.BinOp, ast.Compare, ast.Call, ast.Subscript)):
            self._note_pairs(node, value, scope)
        if node in self.plan.divided:
            value = value.but(spread=COUNT, const=UNKNOWN)
        if value.spread is COUNT and value.origins and self.uneven(value) in (Rows.JOINED, Rows.FEWER):
            value = value.but(spread=SUM)
        if value.spread is SUM:
            value = picking.whole(value)
        if value.models and (self._no_grad and isinstance(node, (ast.BinOp, ast.Call)) or _is_count(node)):
            value = value.but(models=frozenset())
        if not self._forward:
            value = self._weighed(node, value)
        if self.plan.wholes is not None:
            value = self._followed(node, value, scope, self.plan.wholes)
        if not value.things and value.spread is SAME and rowwise.is_zero(node, self.latest):
            value = value.but(zero=True)
        self.latest[node] = value
        if value.const is UNKNOWN and (type(node) is ast.Name or self.plan.wholes is not None):
            self.spreads.setdefault(node, set()).add(value.spread)
        old = self.values.get(node)
        self.values[node] = value if old is None else old | value
        self.sources[node] = scope.source
        return value

    def _note_joinable(self, node: ast.expr, scope: Scope) -> None:
        """Note sums and means over a batch from which something is computed that is neither."""
        if isinstance(node, ast.Call) and any(isinstance(t, Function) for t in self._lately(node.func).things):
            return  # noted inside
        values = {child: self._lately(child) for child in children_of(node)}
        kinds = {value.spread for value in values.values()}
        added = isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub))
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and kinds == {SUM}:
            del values[node.left]  # over the sum of all ranks it is a sum
        for child, value in values.items():
            if added and (LOCAL in kinds or value.spread is MEAN):
                continue  # the other term is the reason, and a mean goes with what is the same everywhere
            if value.spread in (MEAN, SUM) and not value.things:
                self.event("joinable", child, scope, value)

    def _note_pairs(self, node: ast.expr, value: Value, scope: Scope) -> None:
        """Note where this rank's rows are compared with each other, and where they meet those of all ranks."""
        if self._no_grad or isinstance(node, ast.Call) and rowwise.is_entered(node, self._lately):
            return
        given = [self._lately(child) for child in operands(node)]
        if any(each.spread is ROWS and each.models and not _relates(each) for each in given):
            if _relates(value) and not any(each.models and _relates(each) for each in given):
                self.event("related", node, scope, value)
        if value.spread is not CROSS and not self.plan.gathered:
            return
        if value.spread is CROSS and all(each.spread is not CROSS for each in given):
            self.event("paired", node, scope, value)
        met = (ROWS, Spread.COLUMNS, COUNT, LOCAL)
        if any(map(self.is_gathered, given)) and any(each.spread in met and not each.things for each in given):
            self.event("met", node, scope, value)

    def is_gathered(self, value: Value) -> bool:
        """Whether a value is computed from rows of all ranks that losses compare with each other."""
        return value.spread is SAME and any(
            isinstance(each, Gathered) and each.node in self.plan.gathered for each in value.origins
        )

    def _possible(self, value: Value) -> Value:
        """A value without what is made only where tests come out another way than they do here."""
        things = frozenset(thing for thing in value.things if self._can_be(thing))
        models = frozenset(thing for thing in value.models if self._can_be(thing))
        if things == value.things and models == value.models or value.things and not things:
            return value
        return value.but(things=things, models=models)

    def _can_be(self, thing: Thing) -> bool:
        made = alternatives.owner_of(thing)
        where = self._made_where.get(made) if made is not None else None
        return not where or not alternatives.contradicts(where, self._outcomes)

    def _weighed(self, node: ast.expr, value: Value) -> Value:
        """Outside of forward passes: whether a value is computed from parameters, so that gradients flow to them."""
        if isinstance(node, ast.Attribute):
            owners = frozenset(
                t for t in self.values.get(node.value, NOTHING).things if isinstance(t, Object) and "module" in t.roles
            )
            if owners and any("parameter" in t.roles for t in value.things if isinstance(t, Object)):
                self.apart.add(node)
                return value.but(weights=owners) if not self._no_grad else value
        elif isinstance(node, (ast.BinOp, ast.UnaryOp, ast.IfExp, ast.Subscript)):
            value = self._with_weights(value, node)
        elif isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            entered = any(isinstance(t, Function) for t in self.values.get(node.func, NOTHING).things)
            if name in CUTTING or name in SIZES or name in ("float", "int", "bool", "len"):
                value = value.but(weights=frozenset()) if value.weights else value
            elif not entered:
                value = self._with_weights(value, node)
        if any(isinstance(t, (Inside, OptimizerState)) for t in value.things):
            self.apart.add(node)
        if value.weights or any(isinstance(t, Parameters) for t in value.things):
            self.apart.add(node)
            if not self._no_grad:
                self.flowing.add(node)
        return value

    def _with_weights(self, value: Value, node: ast.expr) -> Value:
        """A value with the modules whose parameters its operands are, or are computed from."""
        if self._no_grad:
            return value
        found = value.weights
        for child in children_of(node):
            operand = self.values.get(child, NOTHING)
            for each in (operand, *self._contents(operand)):
                found = found | each.weights
                found |= {t.module for t in each.things if isinstance(t, Parameters) and not t.cut}
        return value.but(weights=found) if found else value

    def _followed(self, node: ast.expr, value: Value, scope: Scope, wholes: frozenset[ast.expr]) -> Value:
        """What is asked where steps may train on all of the data: what is a tensor, and what becomes of its rows."""
        parent = scope.source.parents.get(node)
        called = isinstance(parent, ast.Call) and parent.func is node
        if node not in self.plan.reduced:
            value = rowwise.shaped(node, value, self._lately, called)
            if value.array and value.spread is SAME and rowwise.has_one_row(node, self._lately):
                value = value.but(origins=value.origins | {Mixing(node, scope.source, rowwise.ONE)})
            elif isinstance(node, ast.BinOp) and value.spread is SAME and value.origins:
                sides = [side for side in (self._lately(node.left), self._lately(node.right)) if side.array]
                if not all(rowwise.mixings(side) for side in sides):  # it is broadcast
                    value = value.but(origins=value.origins - set(rowwise.mixings(value)))
            elif rowwise.is_whole(value) and rowwise.broadcasts(node):
                alone = [side for side in map(self._lately, children_of(node)) if not rowwise.is_whole(side)]
                single = {each for side in alone for each in rowwise.mixings(side) if each.reason == rowwise.ONE}
                value = value.but(origins=value.origins - single) if single else value
            if isinstance(node, (ast.Name, ast.Attribute)):
                value = self._whole(node, value, scope, wholes)
            elif not called and any(rowwise.is_whole(each) for each in self._operands(node)):
                value = self._apart(node, value, scope)
            if node in self.plan.batches:
                value = self._dealt_out(node, value, scope)
        self.latest[node] = value
        return value

    def _dealt_out(self, node: ast.expr, value: Value, scope: Scope) -> Value:
        """This rank's rows of a batch that the script makes elsewhere, or of each that it iterates over."""
        parent = scope.source.parents.get(node)
        over = parent if isinstance(parent, ast.Call) else node
        loop = scope.source.parents.get(over)
        stream = any(isinstance(each, (ast.For, ast.AsyncFor)) and each.iter in (node, over) for each in (parent, loop))
        batch = self._element(value, node) if stream else value
        nested = any(isinstance(thing, Items) and thing.parts for thing in batch.things)
        draw = Draw(node, scope.source, (), whole=True, batch=True, stream=stream, nested=nested)
        self.event("dealt_out", node, scope, of(draw))
        shared = self._rows_of(batch, draw, node)
        return of(Stream(shared, NOTHING)) if stream else shared

    def _rows_of(self, value: Value, draw: Draw, node: ast.expr, at: tuple[int, ...] = ()) -> Value:
        """Tensors of a batch as this rank's rows of them."""
        tuples = [t for t in value.things if isinstance(t, Items) and t.parts]
        if not tuples:
            origins = frozenset(o for o in value.origins if isinstance(o, Mixing)) | {draw}
            return Value(spread=ROWS, origins=origins, array=True, axes=value.axes)
        items = self._remember(node, lambda: Items(node, [], NOTHING), ("rows", *at))
        count = max(len(each.parts) for each in tuples)
        parts = [union(each.parts[i] for each in tuples if i < len(each.parts)) for i in range(count)]
        items.parts = [self._rows_of(part, draw, node, (*at, i)) for i, part in enumerate(parts)]
        return of(items)

    def is_batch(self, value: Value) -> bool:
        """Whether a value is known to be made of samples that are cut out of data, a tensor or a tuple of them."""
        leaves, pending = list[Value](), [value]
        while pending:
            each = pending.pop()
            tuples = [t for t in each.things if isinstance(t, Items) and t.parts]
            if tuples and len(leaves) + len(pending) < 20:
                pending += [part for items in tuples for part in items.parts]
            else:
                leaves.append(each)
        cut = [any(isinstance(o, Draw) and _cuts(o.node) for o in leaf.origins) for leaf in leaves]
        plain = all(not leaf.things and not leaf.models and leaf.spread is SAME for leaf in leaves)
        if not any(cut) or not plain:
            return False
        # a tuple may also be a list of samples: only tensors end the search for its parts
        return len(leaves) == 1 and leaves[0] is value or all(leaf.array for leaf in leaves)

    def _lately(self, node: ast.expr) -> Value:
        return self.latest.get(node, NOTHING)

    def _whole(self, node: ast.Name | ast.Attribute, value: Value, scope: Scope, wholes: frozenset[ast.expr]) -> Value:
        """A tensor with all the data, where a training step may take its rows from it."""
        plain = value.spread is SAME and not value.things and not value.models and not value.weights
        if not plain or not isinstance(node.ctx, ast.Load):
            return value
        if not value.array:
            return self._counted(node, value, scope)
        if any(not isinstance(origin, Mixing) for origin in value.origins):
            return value
        if node in wholes or node in self.plan.columns:
            columns = node in self.plan.columns
            draw = Draw(node, scope.source, (), whole=True, columns=columns)
            self.event("whole", node, scope, of(draw))
            spread = Spread.COLUMNS if columns else ROWS
            return value.but(spread=spread, origins=value.origins | {draw}, const=UNKNOWN)
        if self._loops and not self._forward and self._no_grad == 0 and not _asks_size(node, scope.source):
            self.event("may_be_whole", node, scope, value)
        return value

    def _counted(self, node: ast.Name | ast.Attribute, value: Value, scope: Scope) -> Value:
        """The number of all rows, given to what makes a tensor: a rank's has as many as it has rows."""
        if node in self.plan.counts:
            draw = Draw(node, scope.source, (), whole=True, count=True)
            self.event("whole", node, scope, of(draw))
            return value.but(spread=COUNT, origins=value.origins | {draw}, const=UNKNOWN)
        parent = scope.source.parents.get(node)
        if self._loops and not self._forward and isinstance(parent, ast.Call) and node in parent.args:
            self.event("may_be_count", node, scope, value)
        return value

    def _operands(self, node: ast.expr) -> list[Value]:
        """What an expression has just been computed from."""
        found = [self._lately(child) for child in children_of(node)]
        return [*found, *(inner for value in found for inner in self._contents(value))]

    def _apart(self, node: ast.expr, value: Value, scope: Scope) -> Value:
        """A value computed from rows of the whole data: where they lie, or that they may have been mixed."""
        paired = rowwise.may_pair(node, self._lately) if not self._forward else []
        if paired:
            self.event("may_pair", node, scope, value)
        if value.spread is MEAN and self._takes_mean(node):
            self.event("row_mean", node, scope, value)
        if self._one_result_of_rows(node, value, scope):
            reason = "uses rows together with something that is not known to have as many"
            return value.but(origins=value.origins | {Mixing(node, scope.source, reason)})
        found = rowwise.followed(node, value, self._lately, self._contents)
        if isinstance(found, str):
            inside = ", inside the model" if found == rowwise.STATISTIC and self._forward else ""
            mixing = Mixing(node, scope.source, found + inside)
            value = value.but(origins=value.origins | {mixing})
            for thing in value.things:
                if isinstance(thing, Items):
                    thing.element = thing.element | Value(origins=frozenset([mixing]))
            return value
        if isinstance(node, ast.Call) and rowwise.makes_tensor(node):
            origins = frozenset().union(*(each.origins for each in self._operands(node)))
            return Value(spread=found, origins=origins | value.origins, array=True)
        unchanged = found is value.spread or any(isinstance(thing, Items) for thing in value.things)
        return value if unchanged else value.but(spread=found)

    def _one_result_of_rows(self, node: ast.expr, value: Value, scope: Scope) -> bool:
        """Whether rows meet data of which every rank has all: then those of all ranks are wanted."""
        if self._forward or not isinstance(node, (ast.Call, ast.BinOp, ast.Compare)):
            return False
        children = list(children_of(node))
        rows = [c for c in children if rowwise.is_whole(self._lately(c)) and self._lately(c).spread is ROWS]
        foreign = isinstance(node, ast.Call) and self._is_foreign(node)
        whole = [c for c in children if self._lately(c).array and self._lately(c).spread is SAME]
        whole = [c for c in whole if self._lately(c).axes != 0]  # one number
        if not rows or not (foreign or whole):
            return False
        for child in rows:
            self.event("meets", child, scope, self._lately(child))
        return True

    def _takes_mean(self, node: ast.expr) -> bool:
        """Whether a mean over rows is taken here, and was not handed on."""
        if (
            not isinstance(node, (ast.Call, ast.BinOp))
            or isinstance(node, ast.Call)
            and rowwise.is_entered(node, self._lately)
        ):
            return False
        return all(self._lately(child).spread is not MEAN for child in children_of(node))

    def _is_foreign(self, node: ast.Call) -> bool:
        """Whether a call leaves torch, NumPy and Python, as one that plots does."""
        name = rowwise.library(node, self._lately)
        return name is not None and name.partition(".")[0] not in ("torch", "numpy", "builtins", "math", "copy")

    def _other(self, node: ast.expr, scope: Scope) -> Value:
        values = [self.eval(child, scope) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
        return self._mixed(values)

    def _mixed(self, values: Sequence[Value]) -> Value:
        spreads = [value.spread for value in values]
        if not any(spread.is_local for spread in spreads) and any(self.holds_local(value) for value in values):
            spreads.append(LOCAL)
        return union(values).computed(combine(spreads))

    def of_Constant(self, node: ast.Constant, scope: Scope) -> Value:
        if self._loops and type(node.value) is int:
            self.loops_of.setdefault(node, set()).add(self._loops[-1].node)
        return constant(node.value)

    def of_Name(self, node: ast.Name, scope: Scope) -> Value:
        if node.id == "__name__":
            return constant(scope.source.module, firm=True)
        home = scope.find(node.id)
        if home is None:
            return of(External(self._unbound(node.id, scope)))
        if self._loops:
            self.loops_of.setdefault(node, set()).add(self._loops[-1].node)
        return home.names[node.id]

    def _unbound(self, name: str, scope: Scope) -> str:
        """What a name stands for that nothing binds: one of Python's own, or of a library: `from tqdm import *`."""
        if not hasattr(builtins, name):
            for library in reversed(self._starred.get(scope.top, [])):
                if self.catalog.roles(f"{library}.{name}"):
                    return f"{library}.{name}"
        return f"builtins.{name}"

    def of_Attribute(self, node: ast.Attribute, scope: Scope) -> Value:
        if self._loops:
            self.loops_of.setdefault(node, set()).add(self._loops[-1].node)
        base = self.eval(node.value, scope)
        if node.attr == "grad" and not base.spread.is_local and not _is_cleared(node, scope.source):
            self.event("gradient", node, scope, base)
        return self._attribute_of(node, base, scope)

    def _attribute_of(self, node: ast.Attribute, base: Value, scope: Scope) -> Value:
        if node.attr == "__class__":
            self.event("asked_class", node, scope, base)
            return _class_of(base)
        found = union(self._attribute(thing, node, base, scope) for thing in base.things)
        if base.spread in (ROWS, Spread.COLUMNS) and node.attr == "shape":
            found = found | self._shape(base, node)
        elif base.spread.is_local and not base.things or base.spread is CROSS:
            found = found | self._tensor_attribute(node, base, scope)
        elif not base.things and (base.spread is RANK or any(map(is_clock, base.origins))):
            found = found | base
        return found

    def _shape(self, base: Value, node: ast.AST) -> Value:
        """The sizes of a tensor: the first counts this rank's samples."""
        items = self._remember(node, lambda: Items(node, [], NOTHING), "shape")
        items.parts = [base.computed(COUNT if base.spread is ROWS else SAME), *[NOTHING] * 7]
        return of(items)

    def _tensor_attribute(self, node: ast.Attribute, base: Value, scope: Scope) -> Value:
        name = node.attr
        if name == "data" and collation.is_packed(base):
            return base
        if name in ("data", "grad"):
            return base.but(models=frozenset())
        if name in ("T", "mT", "H"):
            return base.computed(tensors.operation("t", ast.Call(ast.Name(name), [], []), base.spread, []))
        if name in ("dtype", "device", "ndim", "requires_grad", "is_cuda", "num_features", "num_node_features"):
            return NOTHING
        if name in ("num_graphs", "num_nodes", "num_edges"):  # of a batch of graphs
            return base.computed(COUNT if name == "num_graphs" else SUM)
        if name == "loss":
            self._note_words(base, node, scope)
            loss = base.computed(MEAN)
            return self._evened(loss, node) if node in self.plan.weighed else loss
        return base.but(const=UNKNOWN, firm=False)

    def _note_words(self, outputs: Value, node: ast.expr, scope: Scope) -> None:
        """Note the loss that a model of transformers takes over the words which its labels do not leave out."""
        made = [t.module if isinstance(t, Wrapped) else t for t in outputs.models]
        words = [t for t in made if isinstance(t, Object) and rowwise.OF_WORDS.search(t.name)]
        if words and outputs.spread.is_local and not self._no_grad:
            self.event("word_loss", node, scope, Value(frozenset(words)))

    def _attribute(self, thing: Thing, node: ast.Attribute, base: Value, scope: Scope) -> Value:
        name = node.attr
        if isinstance(thing, Wrapped):
            return of(thing.module) if name == "module" else self._attribute(thing.module, node, base, scope)
        if isinstance(thing, External):
            return of(External(f"{thing.name}.{name}"))
        if isinstance(thing, LocalModule):
            if name == "__dict__":
                return of(Table(node, dict(thing.scope.names), NOTHING))
            if name in thing.scope.names:
                return thing.scope.names[name]
            return (
                self._module(f"{thing.source.module}.{name}", node)
                if f"{thing.source.module}.{name}" in self.project.modules
                else NOTHING
            )
        if isinstance(thing, Class):
            found = thing.find(name)
            return self._bound_to_class(found[1], thing) if found else NOTHING
        if isinstance(thing, Object):
            return self._object_attribute(thing, name, node, scope)
        if isinstance(thing, Items) and base.spread.is_local:
            return base.but(things=frozenset())
        if isinstance(thing, Parameters) and name in ("data", "grad"):
            return of(replace(thing, cut=True))
        if isinstance(thing, Inside):
            return self._inside(thing.module, name)
        return NOTHING

    def _note_weight(self, module: Object, node: ast.AST, scope: Scope) -> None:
        """Within a forward pass: a parameter of a layer is named, and not just asked for its shape or type."""
        parent = scope.source.parents.get(node)
        if not (isinstance(parent, ast.Attribute) and (parent.attr in ABOUT_TENSORS or parent.attr in SIZES)):
            self.event("layer_weight", node, scope, of(module))

    def _inside(self, module: Thing, name: str) -> Value:
        """An attribute of a module of a library, or of a part of one that is not known."""
        if name.startswith(WEIGHTS):
            return of(Parameters(module, one=True))
        if name in ABOUT_TENSORS or name in BUFFERS:
            return NOTHING
        return of(Inside(module))

    def _object_attribute(self, thing: Object, name: str, node: ast.AST, scope: Scope) -> Value:
        if name in thing.attributes and not _is_hidden(thing, name):
            held = thing.attributes[name]
            if "module" in thing.roles and any(True for _ in held.objects("parameter")):
                if not self._forward:
                    return held | of(Parameters(thing, one=True))
                self._note_weight(thing, node, scope)
            return held
        if thing.cls is not None:
            found = thing.cls.find(name)
            if found is not None:
                return self._bound(found[1], thing, node, scope)
        if name == "training" and "module" in thing.roles and self._no_grad and thing.key in self._evaluated:
            return constant(False, firm=True)
        if name == "module" and "module" in thing.roles and self.plan.bare:
            return of(thing)
        if name == "_modules" and "module" in thing.roles:
            children = union([*self._children(thing), of(Inside(thing))])
            return of(self._remember(node, lambda: Table(node, {}, children), thing))
        if name == "_parameters" and "module" in thing.roles:
            return of(self._remember(node, lambda: Table(node, {}, of(Parameters(thing, one=True))), thing))
        if name == "state" and "optimizer" in thing.roles and thing.cls is None:
            given = [t for value in _given(thing) for t in self._parameters_in(value)]
            return Value(frozenset(OptimizerState(t.module) for t in given))
        if "loader" in thing.roles:
            sharded = self.plan.sharded is not None and (thing.key in self.plan.sharded or self.is_sharded(thing))
            if name == "dataset":
                return thing.argument("dataset", 0) or NOTHING
            if name == "batch_size":
                return (thing.argument("batch_size", 1) or NOTHING).but(spread=COUNT if sharded else SAME)
            if name in ("sampler", "batch_sampler"):
                value = thing.argument(name) or NOTHING
                return value.but(spread=COUNT) if sharded and name == "sampler" else value
        if "dataset" in thing.roles and name == "dataset":
            return thing.argument("dataset", 0) or NOTHING
        if "module" in thing.roles and self._forward and name.startswith(WEIGHTS):
            self._note_weight(thing, node, scope)
        named = name not in MODULE_METHODS and not name.startswith(MORE_METHODS)
        if "module" in thing.roles and not self._forward and named:
            return thing.attributes.get(KEPT, NOTHING) | self._inside(thing, name)
        if thing.name == "arguments" and name == "local_rank":
            return Value(spread=RANK)
        if "module" in thing.roles and not named:
            return NOTHING
        return thing.attributes.get(KEPT, NOTHING)

    def _bound_to_class(self, value: Value, cls: Class) -> Value:
        """What a class gives away: its class methods know it."""
        things: set[Thing] = set()
        for thing in value.things:
            if isinstance(thing, Function) and _is_class_method(thing):
                thing = self._memory.setdefault((id(thing.node), (id(cls),)), replace(thing, owner=cls))
            things.add(thing)
        return value.but(things=frozenset(things))

    def _bound(self, value: Value, owner: Object, node: ast.AST, scope: Scope) -> Value:
        """Methods of a class, bound to an object; properties, evaluated."""
        things: set[Thing] = set()
        result = value.but(things=frozenset())
        for thing in value.things:
            if isinstance(thing, Function) and thing.owner is None and not isinstance(thing.node, ast.Lambda):
                decorators = {_last(d) for d in thing.node.decorator_list}
                if decorators & {"property", "cached_property"}:
                    bound = replace(thing, owner=owner)
                    result = result | self.call_function(bound, None, [], {}, scope)
                    continue
                bound_owner: Thing | None = None if "staticmethod" in decorators else owner
                if "classmethod" in decorators:
                    bound_owner = owner.cls
                key = (id(thing.node), id(owner))
                things.add(self._memory.setdefault(key, replace(thing, owner=bound_owner)))  # type: ignore[arg-type]
            else:
                things.add(thing)
        return result | Value(frozenset(things))

    def of_Subscript(self, node: ast.Subscript, scope: Scope) -> Value:
        base = self.eval(node.value, scope)
        key = self.eval(node.slice, scope)
        found = NOTHING
        for thing in base.things:
            if isinstance(thing, Table):
                if key.const is not UNKNOWN and _hashable(key.const) and key.const in thing.entries:
                    found = found | thing.entries[key.const]
                else:
                    found = found | self._called_alike(thing) | thing.element
                    if self._loops and _is_known(thing) and not thing.entries:
                        found = found | Value(zero=True)  # the script has looked before: `if k in sums`
            elif isinstance(thing, Items):
                if isinstance(key.const, int) and -len(thing.parts) <= key.const < len(thing.parts):
                    found = found | thing.parts[key.const]
                elif isinstance(node.slice, ast.Slice):
                    found = found | of(thing)
                else:
                    found = found | union(thing.parts) | thing.element
            elif isinstance(thing, Stream):
                found = found | of(thing) | (NOTHING if isinstance(node.slice, ast.Slice) else self._inner(thing))
            elif isinstance(thing, Parameters) and thing.one:
                found = found | of(replace(thing, part=True))
            elif isinstance(thing, Parameters):
                found = found | of(thing if isinstance(node.slice, ast.Slice) else replace(thing, one=True))
            elif isinstance(thing, Inside):
                found = found | of(thing)
            elif isinstance(thing, OptimizerState):
                found = found | self._entry(thing, key)
            elif isinstance(thing, Object) and "module" in thing.roles:
                found = found | (union(self._children(thing)) if thing.args else of(thing))
            elif isinstance(thing, Object) and isinstance(key.const, str) and f"[{key.const}]" in thing.attributes:
                found = found | thing.attributes[f"[{key.const}]"]
            elif isinstance(thing, Object) and "writer" in thing.roles:
                found = found | of(thing)  # `run["loss"].append(loss)`
            elif isinstance(thing, External) and thing.name == "os.environ":
                if key.const in ("RANK", "LOCAL_RANK", "SLURM_PROCID", "SLURM_LOCALID"):
                    found = found | Value(spread=RANK)
                elif key.const in ("WORLD_SIZE",):
                    found = found | Value(spread=WORLD)
            elif isinstance(thing, External) and thing.name.endswith(".__dict__"):
                found = found | of(External(f"{thing.name.removesuffix('.__dict__')}.?"))
        if key.const in (0, "loss") and base.spread is ROWS:
            self._note_words(base, node, scope)
        if key.const == "params" and not base.things:  # of a group of an optimizer
            found = found | self._optimized()
        chosen = self._indexed(node, base, key, scope)
        axis = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) and node.slice.elts else node.slice
        whole = any(isinstance(each, Gathered) for each in self._lately(axis).origins)  # for this rank's rows
        if self.plan.wholes is None and chosen.spread.is_local and (whole or self._lately(axis).spread.is_local):
            if picking.is_condition(axis, self._lately):
                chosen = chosen.but(origins=chosen.origins | {Picked(axis, scope.source)})
            elif base.models and base.spread is ROWS and not self._no_grad and picking.mines(axis, self._lately):
                self.event("mined", axis, scope, self._lately(axis))
        return found | collation.picked(chosen, key.const)

    def _inner(self, parts: Stream) -> Value:
        """One of the parts of a module: `list(model.children())[0]`."""
        return parts.element if any(isinstance(t, Inside) for t in parts.element.things) else NOTHING

    def _optimized(self) -> Value:
        """The parameters that the optimizers so far were given."""
        given = [v for e in self.events if e.kind == "optimizer" for t in e.value.things for v in _given(t)]
        return Value(frozenset(Parameters(t.module) for value in given for t in self._parameters_in(value)))

    def _parameters_in(self, value: Value) -> list[Parameters]:
        """The parameters that a value holds, in lists and dicts as well."""
        pending = [value]
        found: list[Parameters] = []
        seen: set[int] = set()
        while pending:
            for thing in pending.pop().things:
                if isinstance(thing, Parameters):
                    found.append(thing)
                elif isinstance(thing, (Items, Table, Stream)) and id(thing) not in seen:
                    seen.add(id(thing))
                    pending += self._contents(of(thing))
        return found

    def _entry(self, state: OptimizerState, key: Value) -> Value:
        """`optimizer.state[p]["exp_avg"]`"""
        if state.depth == 2:
            return of(OptimizerState(state.module, 1))
        if state.depth == 1 and isinstance(key.const, str):
            return of(Parameters(state.module, cut=True, one=True)) if key.const in MOMENTS else NOTHING
        return of(OptimizerState(state.module, 0)) if state.depth == 1 else NOTHING

    def _called_alike(self, table: Table) -> Value:
        """What an unknown key may give; of a module's names, what can be called."""
        if isinstance(table.node, ast.Attribute):
            things = {t for v in table.entries.values() for t in v.things if isinstance(t, (Class, Function))}
            return Value(frozenset(things))
        return _any_entry(table)

    def _indexed(self, node: ast.Subscript, base: Value, key: Value, scope: Scope) -> Value:
        """Samples chosen by an index, and slices of what a rank has."""
        origins, models = base.origins | key.origins, base.models
        if isinstance(node.slice, ast.Slice) and self._strided(node.slice, scope):
            self.event("share", node, scope, base)
        axes = [self._lately(axis) for axis in node.slice.elts] if isinstance(node.slice, ast.Tuple) else []
        origins |= frozenset().union(*(axis.origins for axis in axes))
        for drawn in union([key, *axes]).origins:
            if not isinstance(drawn, Draw) or drawn.noise:
                continue
            if not base.spread.is_local:
                self.event("picks", node, scope, of(drawn))
            elif drawn not in (axes[0] if axes else key).origins:
                continue  # the order of something else, as in `images[:, :, order]`
            elif base.spread is ROWS and not base.things and not key.spread.is_local and _is_permuting(drawn.node):
                if drawn.size is not None and self.values.get(drawn.size, NOTHING).spread is not COUNT:
                    self.event("beyond", node, scope, of(drawn))
        shared = [at for at, axis in enumerate(axes) if axis.spread is ROWS]
        if shared and not base.spread.is_local:  # `data[:, own_rows]`, `pairs[indices, 0]`
            return Value(spread=Spread.COLUMNS if shared[0] else ROWS, origins=origins, models=models)
        if key.spread is RANK or base.spread is RANK and not base.things:
            spread = ROWS if isinstance(node.slice, ast.Slice) else RANK
            return Value(spread=spread, origins=origins, models=models)
        if isinstance(node.slice, ast.Slice) and self._strided(node.slice, scope):
            return Value(spread=ROWS, origins=origins, models=models)
        if not base.spread.is_local and not key.spread.is_local:
            draw = (
                (self._sequential(node, key, scope) or self._first_of(node, base, scope)) if not base.things else None
            )
            if draw is None and self.plan.wholes is not None:
                draw = self._stepping(node, scope)
            if draw is not None:
                self.event("draw", node, scope, of(draw))
                origins = frozenset(o for o in origins if not (isinstance(o, Mixing) and o.reason == rowwise.ONE))
                taken = self.plan.draws is not None and id(node) in self.plan.draws
                return Value(spread=ROWS if taken else SAME, origins=origins | {draw}, models=models)
            return Value(origins=origins, models=models) if origins or models else NOTHING
        if base.spread.is_local:
            first = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) and node.slice.elts else node.slice
            spread = base.spread
            if isinstance(node.value, ast.Attribute) and node.value.attr == "shape" or _is_size(node.value):
                spread = (
                    (COUNT if _number(first) == 0 else SAME)
                    if base.spread is ROWS
                    else LOCAL if base.spread.is_local else SAME
                )
                return base.computed(spread)
            some = _is_head(first) or _is_part(first) and (base.models or self._is_tensor(node.value, base))
            if base.spread is ROWS and some and not base.things:
                origins |= {Picked(first, scope.source)}  # those of the whole batch are of rank 0, or of several
            if base.spread is Spread.COLUMNS and _number(first) is not None and not isinstance(node.slice, ast.Tuple):
                spread = ROWS
            elif base.spread is ROWS and _number(node.slice) is not None and self._is_tensor(node.value, base):
                spread = LOCAL  # one sample
            elif base.spread is ROWS and key.spread is LOCAL and not base.things and picking.ranks(first, self._lately):
                spread = LOCAL  # those with the smallest losses
            elif base.spread is ROWS and _is_new_axis(first) and not any(loop.by_row for loop in self._loops):
                spread = Spread.COLUMNS
            elif base.spread.is_reducible and ROWS in (key.spread, *(axis.spread for axis in axes[:1])):
                spread = ROWS  # a part of it for each sample: `centres[labels]`
            return Value(spread=spread, origins=origins, models=models, weights=base.weights)
        return Value(spread=key.spread, origins=origins, models=models)

    def _is_tensor(self, node: ast.expr, value: Value) -> bool:
        """Whether samples are in a tensor, as after `images.cpu()`: a batch may still be a list of fields."""
        made = [each for _, each in value.made] if isinstance(node, ast.Name) else [node]
        names = {each.func.attr for each in made if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute)}
        return not value.models and bool(made) and len(names) == len(made) and names <= MOVES | {"detach", "clone"}

    def _strided(self, slice_: ast.Slice, scope: Scope) -> bool:
        return slice_.lower is not None and self._lately(slice_.lower).spread is RANK

    def _sequential(self, node: ast.Subscript, key: Value, scope: Scope) -> Draw | None:
        """A slice that walks over data in steps of a batch: `x[i : i + batch_size]`."""
        if not isinstance(node.slice, ast.Slice) or node.slice.lower is None or node.slice.upper is None:
            return None
        if not isinstance(node.ctx, ast.Load):
            return None
        lower = self.values.get(node.slice.lower, NOTHING)
        walks = any(isinstance(t, Index) and _steps(t.loop) for t in lower.things)
        computed = isinstance(node.slice.lower, ast.BinOp) and any(
            isinstance(t, Index)
            for t in union(
                self.values.get(n, NOTHING) for n in ast.walk(node.slice.lower) if isinstance(n, ast.Name)
            ).things
        )
        upper = node.slice.upper
        size = upper.right if isinstance(upper, ast.BinOp) and isinstance(upper.op, ast.Add) else None
        return Draw(node, scope.source, self._path, size) if walks or computed else None

    def _stepping(self, node: ast.Subscript, scope: Scope) -> Draw | None:
        """A slice between two places that move on: `data[self.position : end]` with `self.position += size`, also of
        all columns: `data[self.position : end, ...]`."""
        cut = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) and node.slice.elts else node.slice
        if (
            not isinstance(cut, ast.Slice)
            or cut.lower is None
            or cut.upper is None
            or not isinstance(node.ctx, ast.Load)
        ):
            return None
        around = list(scope.source.ancestors(node))
        method = next((each for each in around if isinstance(each, ast.ClassDef)), None)
        home = next((each for each in around if isinstance(each, ast.FunctionDef)), None)
        moving = _moving(method or home or scope.source.tree)
        places = [
            {ast.unparse(n) for n in ast.walk(bound) if isinstance(n, (ast.Name, ast.Attribute))}
            for bound in (cut.lower, cut.upper)
        ]
        return Draw(node, scope.source, self._path) if all(place & moving for place in places) else None

    def _first_of(self, node: ast.Subscript, base: Value, scope: Scope) -> Draw | None:
        """The first few of indices that were drawn: `torch.randperm(n)[:batch_size]`."""
        cut = node.slice
        if not isinstance(cut, ast.Slice) or cut.lower is not None or cut.step is not None:
            return None
        if not isinstance(cut.upper, (ast.Constant, ast.Name, ast.Attribute)):
            return None
        for draw in base.origins:
            if isinstance(draw, Draw) and not draw.noise and isinstance(draw.node, ast.Call):
                bound = draw.source.parents.get(draw.node)
                names = [ast.dump(t) for t in bound.targets] if isinstance(bound, ast.Assign) else []
                if node.value is draw.node or ast.dump(node.value).replace("Load()", "Store()") in names:
                    return Draw(node, scope.source, self._path, cut.upper)
        return None

    def of_Slice(self, node: ast.Slice, scope: Scope) -> Value:
        parts = [self.eval(part, scope) for part in (node.lower, node.upper, node.step) if part is not None]
        return self._mixed(parts)

    def of_BinOp(self, node: ast.BinOp, scope: Scope) -> Value:
        left, right = self.eval(node.left, scope), self.eval(node.right, scope)
        if isinstance(node.op, ast.Add) and any(isinstance(t, (Items, Stream)) for t in left.things | right.things):
            both = union([*self._contents(left), *self._contents(right)])
            items = self._remember(node, lambda: Items(node, [], NOTHING))
            items.element = items.element | both
            for value in (left, right):
                for thing in value.things:
                    if isinstance(thing, Items) and thing is not items:
                        items.stores += [s for s in thing.stores if s not in items.stores]
            return of(items) | Value(frozenset(t for t in left.things | right.things if isinstance(t, Parameters)))
        if isinstance(node.op, ast.Mod) and (isinstance(left.const, str) or isinstance(node.left, ast.JoinedStr)):
            if right.spread.is_local or self.holds_local(right):
                self.event("format", node.right, scope, right)
                return right.computed(LOCAL)
            return self._text([left, right])
        spread = self._binary(node.op, left, right, literal=isinstance(node.left, ast.Constant))
        if {left.spread, right.spread} == {ROWS, Spread.COLUMNS} and _sets_apart(node, left, right):
            spread = CROSS
            mixed: frozenset[Mixing] = frozenset()
        else:
            mixed = self._with_statistic(node.op, left, right, node, scope, (node.left, node.right))
        if isinstance(node.op, ast.Div) and left.spread is right.spread and left.spread in (MEAN, SUM):
            self.event("mean_loss", node, scope, right)  # `(each * mask).sum() / mask.sum()`
            if node in self.plan.weighed:
                return self._evened(Value(spread=MEAN, origins=left.origins, models=left.models), node)
        kept: list[type] = [Index] if isinstance(node.op, (ast.Add, ast.Sub, ast.Mult)) else []
        kept += [] if spread.is_local or isinstance(node.op, ast.MatMult) else [Parameters]
        things = frozenset(t for t in left.things | right.things if isinstance(t, tuple(kept)))
        return Value(things, spread, left.origins | right.origins | mixed, left.models | right.models)

    def _with_statistic(
        self,
        op: ast.operator,
        left: Value,
        right: Value,
        node: ast.expr,
        scope: Scope,
        sides: tuple[ast.expr, ast.expr] | None = None,
    ) -> frozenset[Mixing]:
        """What puts a statistic of the batch beside each sample, as `mask / mask.mean()` and `mask /= mask.mean()`."""
        if isinstance(op, ast.Div) and sides is not None and right.spread in (SAME, COUNT) and right.const is UNKNOWN:
            self.event("divided", sides[1], scope, right, left)
        if sides is not None and not self._no_grad and isinstance(op, (ast.Sub, ast.Div, ast.Mult)):
            for rows, value, side in ((left, right, sides[1]), (right, left, sides[0])):
                if rows.spread is ROWS and value.spread in (MEAN, SUM) and not value.things:
                    steady = not self._forward and not value.models and isinstance(side, (ast.Call, ast.Name))
                    self.event("statistic" if steady else "joinable", side, scope, value)
                elif (
                    self._steers(op, rows, value, side is sides[0])
                    and isinstance(side, (ast.Call, ast.Name))
                    or rows.spread in self._samples()
                    and value.spread is LOCAL
                    and self._is_of_extremes(side)
                ):
                    self.event("statistic", side, scope, value)
        if self._compares_with_batch(op, left, right):
            self.event("batch_statistic", node, scope)
        centred = self.plan.wholes is None and self._is_centred(op, left, right)
        return frozenset([Mixing(node, scope.source, rowwise.STATISTIC)]) if centred else frozenset()

    def _is_of_extremes(self, node: ast.expr, depth: int = 4) -> bool:
        """Whether a number is computed from the largest and smallest of samples, through which no gradient flows."""
        value = self._lately(node)
        if not value.spread.is_local:
            return True
        if self._forward or value.models or value.things or not depth:
            return False
        if isinstance(node, ast.BinOp):
            return self._is_of_extremes(node.left, depth - 1) and self._is_of_extremes(node.right, depth - 1)
        if isinstance(node, ast.Name):
            return bool(value.made) and all(self._is_of_extremes(made, depth - 1) for _, made in value.made)
        found = tensors.extreme(node)
        if found is None or self._lately(found[1]).spread not in (ROWS, Spread.COLUMNS):
            return False
        return self._is_of_all(found[1], set())

    def _is_of_all(self, node: ast.expr, seen: set[ast.expr]) -> bool:
        """Whether a tensor holds something of each of a rank's samples: it is no row that a loop or an index picks."""
        value = self._lately(node)
        if not value.spread.is_local or node in seen:
            return True
        seen.add(node)
        if isinstance(node, ast.Name):
            loaded = self._is_loaded(node.id)
            return loaded is not False and (bool(value.made) or loaded is True) and self._all_of_all(value.made, seen)
        if isinstance(node, ast.Subscript):
            first = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) and node.slice.elts else node.slice
            kept = isinstance(first, ast.Slice) and (first.lower, first.upper, first.step) == (None, None, None)
            named = isinstance(first, ast.Constant) and isinstance(first.value, str)
            return (kept or named) and self._is_of_all(node.value, seen)
        if isinstance(node, (ast.BinOp, ast.UnaryOp, ast.Call, ast.Attribute)):
            parts = (each for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr))
            return all(self._is_of_all(each, seen) for each in parts)
        return False

    def _all_of_all(self, made: Iterable[tuple[Source, ast.expr]], seen: set[ast.expr]) -> bool:
        return all(self._is_of_all(each, seen) for _, each in made)

    def _is_loaded(self, name: str) -> bool | None:
        """Whether the innermost loop that binds a name takes it from a loader; nothing if no loop binds it."""
        for loop in reversed(self._loops):
            target = loop.node.target if not isinstance(loop.node, ast.While) else None
            if target is not None and name in {each.id for each in ast.walk(target) if isinstance(each, ast.Name)}:
                over = self._lately(loop.node.iter)  # type: ignore[union-attr]
                streams = [thing.over for thing in over.things if isinstance(thing, Stream)]
                return any(True for each in (over, *streams) for _ in each.objects("loader"))
        return None

    def _steers(self, op: ast.operator, loss: Value, number: Value, first: bool) -> bool:
        """Whether a number that a rank has of its samples, such as the loss of an earlier step, weighs a loss."""
        if self._forward or not loss.models or isinstance(op, ast.Sub):
            return False
        if loss.spread in (MEAN, SAME) and number.spread is COUNT:
            return isinstance(op, ast.Div) and not first  # a mean is divided by the size of the batch once more
        if loss.spread not in (MEAN, SUM, LOCAL):
            return False
        if number.models or number.things or number.array or number.spread not in (MEAN, SUM, LOCAL):
            return False
        return isinstance(op, ast.Mult) or not first and loss.spread is not number.spread  # else it is weighed

    def _is_centred(self, op: ast.operator, left: Value, right: Value) -> bool:
        """`x - x.mean(0)`, `x.std() * noise`: whether samples are changed by what the others of the batch are."""
        if not isinstance(op, (ast.Sub, ast.Div, ast.Mult)) or self._no_grad:
            return False
        if isinstance(op, ast.Mult) and right.spread in self._samples():
            left, right = right, left  # `x.std() * noise`
        sides = (
            left.spread in self._samples()
            and not left.things
            and not right.things
            and bool(left.origins & right.origins)
        )
        return sides and right.spread in (MEAN, SUM, LOCAL) and right.const is UNKNOWN

    def _samples(self) -> tuple[Spread, ...]:
        """How samples lie. The columns of a recurrent model are of several kinds."""
        return (ROWS,) if self._forward else (ROWS, Spread.COLUMNS)

    def _compares_with_batch(self, op: ast.operator, left: Value, right: Value) -> bool:
        """`x - x.mean(0)`, where gradients flow: what becomes of a sample depends on the others of the batch."""
        samples = self._samples()
        if self._no_grad or isinstance(op, ast.Add) or {left.spread, right.spread}.isdisjoint(samples):
            return False
        other = right if left.spread in samples else left
        if other.things or other.spread not in (MEAN, SUM, LOCAL):
            return False
        return bool(other.models) or self._forward > 0 and bool(other.origins) and other.spread is not LOCAL

    def _binary(self, op: ast.operator, left: Value, right: Value, literal: bool = False) -> Spread:
        a, b = left.spread, right.spread
        if isinstance(op, (ast.Add, ast.Sub)):
            start = not literal and not a.is_local and left.const is not UNKNOWN  # of an accumulator
            zero_left = start or left.const == 0 or left.zero
            return add(a, b, zero_left, right.const == 0 or right.zero)
        if isinstance(op, ast.Mult):
            mean, number = (left, right) if a is MEAN else (right, left)
            evened = any(isinstance(each, Evened) for each in mean.origins)
            if {a, b} == {MEAN, SUM} and self.uneven(number) in (Rows.JOINED, Rows.FEWER) and not evened:
                return SUM  # a mean times the number of this rank's samples
            if {a, b} == {MEAN, COUNT} and self.uneven(mean) is Rows.FEWER and not evened:
                return LOCAL  # a mean over some of the samples, times the number of all
            return multiply(a, b)
        if isinstance(op, (ast.Div, ast.FloorDiv)):
            return divide(a, b)
        if isinstance(op, ast.MatMult):
            if (a, b) == (Spread.COLUMNS, ROWS) and not left.models and not right.models:
                return SUM  # of what each sample gives
            return CROSS if {a, b} == {ROWS, Spread.COLUMNS} else combine([a, b])
        return combine([a, b])

    def of_UnaryOp(self, node: ast.UnaryOp, scope: Scope) -> Value:
        value = self.eval(node.operand, scope)
        if isinstance(node.op, ast.Not):
            decided = truth(value, node.operand)
            if decided is not None:
                return constant(not decided, firm=True)
            return value.computed(combine([value.spread]))
        if isinstance(node.op, ast.USub) and isinstance(value.const, (int, float)):
            return constant(-value.const)
        kept = frozenset(t for t in value.things if isinstance(t, Parameters))
        return value.but(things=kept, const=UNKNOWN, firm=False)

    def of_BoolOp(self, node: ast.BoolOp, scope: Scope) -> Value:
        values: list[Value] = []
        stop = isinstance(node.op, ast.Or)
        for part in node.values:
            value = self.eval(part, scope)
            decided = truth(value, part)
            if decided is stop:
                return constant(stop, firm=True) if not values else self._mixed(values)
            if decided is None:
                values.append(value)
        if not values:
            return constant(not stop, firm=True)
        mixed = self._mixed(values)
        return mixed.but(things=frozenset().union(*(v.things for v in values))) if stop or len(values) == 1 else mixed

    def of_Compare(self, node: ast.Compare, scope: Scope) -> Value:
        values = [self.eval(part, scope) for part in (node.left, *node.comparators)]
        if len(values) == 2:
            decided = compare(node.ops[0], *values)
            if decided is not None:
                return constant(decided, firm=True)
        if all(value.spread is COUNT for value in values):
            return NOTHING
        ordered = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)
        if isinstance(node.ops[0], ordered) and not any(v.spread.is_local for v in values):
            compared = frozenset(t for value in values for t in value.things if isinstance(t, Parameters))
            if compared:
                return Value(compared)
        if isinstance(node.ops[0], (ast.Is, ast.IsNot)) and not any(value.spread is RANK for value in values):
            return NOTHING  # what is None on one rank is so on all
        mixed = self._mixed(values)
        if {value.spread for value in values} == {ROWS, Spread.COLUMNS} and _sets_apart(node, values[0], values[-1]):
            return mixed.computed(CROSS)  # `labels[:, None] == labels[None]`
        contained = isinstance(node.ops[0], (ast.In, ast.NotIn)) and mixed.spread in (ROWS, Spread.COLUMNS)
        return mixed.computed(LOCAL) if contained else mixed  # one answer, whatever it is of

    def of_IfExp(self, node: ast.IfExp, scope: Scope) -> Value:
        test = self.eval(node.test, scope)
        self.event("test", node.test, scope, test)
        decided, outcomes = self._decided(node.test, test, scope)
        if decided is not None:
            return self.eval(node.body if decided else node.orelse, scope)
        known, result = self._outcomes, NOTHING
        self._one_rank += test.spread is RANK
        for part, self._outcomes in zip((node.body, node.orelse), outcomes, strict=True):
            result = result | self.eval(part, scope)
        self._one_rank -= test.spread is RANK
        self._outcomes = known
        return result.but(spread=RANK) if test.spread is RANK else result

    def of_NamedExpr(self, node: ast.NamedExpr, scope: Scope) -> Value:
        value = self._made(self.eval(node.value, scope), node.value, scope)
        self.assign(node.target, value, scope, node.value)
        return value

    def of_Lambda(self, node: ast.Lambda, scope: Scope) -> Value:
        return of(self._remember(node, lambda: Function(node, scope.source, scope)))

    def of_JoinedStr(self, node: ast.JoinedStr, scope: Scope) -> Value:
        values = []
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                value = self.eval(part.value, scope)
                self.values[part] = value
                if part.format_spec is not None:
                    self.eval(part.format_spec, scope)
                values.append(value)
                if value.spread.is_local or self.holds_local(value):
                    self.event("format", part.value, scope, value)
        return self._text(values)

    def _text(self, values: Sequence[Value]) -> Value:
        """A string made of values: what it says of the ranks can no longer be reduced."""
        mixed = union(values)
        if any(value.spread is RANK for value in values):
            return Value(spread=RANK)
        if mixed.spread.is_local:
            return mixed.computed(LOCAL)
        return Value(origins=frozenset(each for each in mixed.origins if is_clock(each)))

    def of_Tuple(self, node: ast.Tuple | ast.List | ast.Set, scope: Scope) -> Value:
        items = self._remember(node, lambda: Items(node, [], NOTHING))
        parts, star = [], NOTHING
        for part in node.elts:
            if isinstance(part, ast.Starred):
                star = star | self._element(self.eval(part.value, scope), part)
            else:
                parts.append(self._made(self.eval(part, scope), part, scope))
        if isinstance(node, ast.List) and items.parts and len(items.parts) == len(parts):
            items.parts = [a | b for a, b in zip(items.parts, parts, strict=False)]
        else:
            items.parts = parts
        items.element = items.element | star
        stores = [(scope.source, part) for part in node.elts]
        items.stores += [store for store in stores if store not in items.stores]
        return of(items)

    of_List = of_Tuple
    of_Set = of_Tuple

    def of_Dict(self, node: ast.Dict, scope: Scope) -> Value:
        table = self._remember(node, lambda: Table(node, {}, NOTHING))
        for key, part in zip(node.keys, node.values, strict=True):
            value = self._made(self.eval(part, scope), part, scope)
            name = self.eval(key, scope).const if key is not None else UNKNOWN
            if key is None:
                for thing in value.things:
                    if isinstance(thing, Table):
                        table.entries.update(thing.entries)
                        table.element = table.element | thing.element
            elif name is not UNKNOWN and _hashable(name):
                table.entries[name] = value
            else:
                table.element = table.element | value
            if (scope.source, part) not in table.stores:
                table.stores.append((scope.source, part))
        return of(table)

    def _comprehension(self, node: Any, scope: Scope, finish: Callable[[Scope], Value], over: list[Value]) -> Value:
        inner = Scope(scope.source, scope)
        depth = len(self._loops)

        def run(generators: Sequence[ast.comprehension]) -> Value:
            if not generators:
                return finish(inner)
            first, *rest = generators
            iterable = self.eval(first.iter, inner)
            if first is node.generators[0]:
                over.append(iterable)
            if is_set(iterable) and isinstance(node, (ast.ListComp, ast.DictComp)):
                self.event("ordered", first.iter, scope, iterable)
            self.event("iterate", first, scope, iterable)
            self._loops.append(Loop(first, scope.source, scope, self._calls[-1].function if self._calls else None))
            parts = self._unrolled(iterable)
            result = NOTHING
            for number, element in enumerate(parts if parts is not None else [self._element(iterable, first)]):
                self.assign(first.target, element.but(firm=True) if parts is not None else element, inner, first.iter)
                for test in first.ifs:
                    self.event("test", test, inner, self.eval(test, inner))
                path = self._path
                if parts is not None:
                    self._path = (*path, hash(element.const) if element.const is not UNKNOWN else number)
                result = result | run(rest)
                self._path = path
            self._loops.pop()
            return result

        value = run(node.generators)
        del self._loops[depth:]
        return value

    def of_ListComp(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp, scope: Scope) -> Value:
        items = self._remember(node, lambda: Items(node, [], NOTHING, [(scope.source, node.elt)]))

        tests = [test for generator in node.generators for test in generator.ifs]

        def finish(inner: Scope) -> Value:
            value = self.eval(node.elt, inner)
            for test in tests:
                value = self._of_class(value, node.elt, test)
            if value.spread is MEAN and _is_of_one(node.elt) and self._goes_row_by_row(node.generators[0].iter):
                value = value.but(spread=ROWS)  # `[criterion(o, t) for o, t in zip(out, targets)]`
            items.element = items.element | value
            return value

        iterables: list[Value] = []
        element = self._comprehension(node, scope, finish, iterables)
        parameters = frozenset(replace(t, one=False) for t in element.things if isinstance(t, Parameters))
        over = iterables[0]
        spread = over.spread if over.spread in (ROWS, Spread.COLUMNS) else SAME
        sampled = over.origins | element.origins
        if not element.spread.is_local and not spread.is_local:
            return Value(frozenset([items]) | parameters, origins=sampled, models=element.models)
        return Value(frozenset([items]) | parameters, ROWS if spread.is_local else SAME, sampled, element.models)

    def _of_class(self, value: Value, node: ast.expr, test: ast.expr) -> Value:
        """What a value can be where `isinstance(node, Class)` holds, of a class of the project."""
        asked = test.args if isinstance(test, ast.Call) and getattr(test.func, "id", "") == "isinstance" else []
        if len(asked) != 2 or ast.dump(asked[0]) != ast.dump(node):
            return value
        classes = self._lately(asked[1]).things
        if not classes or not all(isinstance(each, Class) for each in classes):
            return value
        others = (t for t in value.things if isinstance(t, Object))
        gone = {t for t in others if t.cls is None or classes.isdisjoint(t.cls.line())}
        return value.but(things=value.things - gone)

    of_SetComp = of_ListComp
    of_GeneratorExp = of_ListComp

    def of_DictComp(self, node: ast.DictComp, scope: Scope) -> Value:
        table = self._remember(node, lambda: Table(node, {}, NOTHING, [(scope.source, node.value)]))

        def finish(inner: Scope) -> Value:
            key, value = self.eval(node.key, inner), self.eval(node.value, inner)
            if key.const is not UNKNOWN and _hashable(key.const):
                table.entries[key.const] = value
            else:
                table.element = table.element | value
            return NOTHING

        self._comprehension(node, scope, finish, [])
        return of(table)

    def of_Await(self, node: ast.Await, scope: Scope) -> Value:
        return self.eval(node.value, scope)

    def of_Yield(self, node: ast.Yield, scope: Scope) -> Value:
        value = self.eval(node.value, scope) if node.value is not None else NOTHING
        if self._yields:
            self._yields[-1].append(value)
        return NOTHING

    def of_YieldFrom(self, node: ast.YieldFrom, scope: Scope) -> Value:
        value = self.eval(node.value, scope)
        self.event("iter", node, scope, value)
        if self._yields:
            self._yields[-1].append(self._element(value, node))
        return NOTHING

    # ---------------------------------------------------------------- calls

    def of_Call(self, node: ast.Call, scope: Scope) -> Value:
        self._tick()
        if isinstance(node.func, ast.Attribute) and _is_super(node.func.value):
            return self._super(node, node.func.attr, scope)
        base: Value | None = None
        if isinstance(node.func, ast.Attribute):
            base = self.eval(node.func.value, scope)
            if node.func.attr in RESIZING:
                self._note_refill(node.func.value, scope)
            callee = self._noted(node.func, self._attribute_of(node.func, base, scope), scope)
        else:
            callee = self.eval(node.func, scope)
        args, keywords = self._arguments(node, scope)
        results = [self._call(thing, node, args, keywords, scope) for thing in sorted(callee.things, key=_order)]
        if isinstance(node.func, ast.Attribute) and base is not None:
            method = self._method(node, node.func.attr, base, args, keywords, scope)
            if method is not None:
                results.append(method)
        if len(results) > 1 and self._loops and self.plan.draws and not self._no_grad:
            shared = [any(each.spread is ROWS for each in (r, *self._contents(r))) for r in results]
            tuples = all(any(isinstance(t, Items) for t in r.things) for r in results)
            if tuples and any(shared) and not all(shared):
                self.event("shared_in_part", node, scope)
        if not results:
            results.append(self._mixed([*([callee] if callee.spread is not SAME else []), *args, *keywords.values()]))
        if _last(node.func) == "mean" and self.plan.wholes is None and (base is not None or args):
            results = [self._mean(union(results), node, callee, base, scope)]
        if (
            _last(node.func) == "topk"
            and union(results).spread is ROWS
            and not any(k.arg == "dim" for k in node.keywords)
        ):
            if picking.is_number_each(operands(node)[0 if base is not None and not base.things else 1], self._lately):
                results = [union(results).computed(LOCAL)]  # the hardest samples
        self._tally(node, callee, args, scope)
        mixed: frozenset[Mixing | Picked] = self._named_statistic(node, callee, base, args, scope)
        if _last(node.func) in picking.SELECTING and self.plan.wholes is None and union(results).spread is ROWS:
            mixed = frozenset([Picked(node.args[-1], scope.source)]) if node.args else mixed
        if isinstance(node.func, ast.Attribute) and node.func.attr.endswith("_") and union(results).spread is CROSS:
            for names, name in self._holders(node.func.value, scope):  # `distances.addmm_(z, z.t())`
                names[name] = names[name].but(spread=CROSS)
        return union(results).but(origins=union(results).origins | mixed) if mixed else union(results)

    def _tally(self, node: ast.Call, callee: Value, args: list[Value], scope: Scope) -> None:
        """`np.add.at(counts, labels, 1)`, `counts.index_add_(0, labels, ones)`: a sum of what is added for each row."""
        target: ast.expr | None = None
        if any(isinstance(t, External) and t.name == "numpy.add.at" for t in callee.things) and node.args:
            target = node.args[0]
        elif isinstance(node.func, ast.Attribute) and node.func.attr in ("index_add_", "scatter_add_"):
            target = node.func.value
        if target is None or not any(v.spread is ROWS for value in args for v in (value, *self._contents(value))):
            return
        for names, name in self._holders(target, scope):
            held = names[name]
            if held.spread is SAME and not held.things and not held.models:
                origins = held.origins.union(*(value.origins for value in args))
                names[name] = held.but(spread=SUM, origins=origins, made=frozenset([(scope.source, node)]), zero=False)

    def _mean(self, result: Value, node: ast.Call, callee: Value, base: Value | None, scope: Scope) -> Value:
        """`each[keep].mean()`, noted where ranks have different numbers of them."""
        if result.spread is not MEAN or self.uneven(result) is None:
            return result
        method = not any(isinstance(t, External) for t in callee.things)
        self.event("mean_loss", node, scope, result, constant(method))
        return self._evened(result, node) if node in self.plan.weighed else result

    def _named_statistic(
        self, node: ast.Call, callee: Value, base: Value | None, args: list[Value], scope: Scope
    ) -> frozenset[Mixing]:
        """`mask.div(mask.mean())`, `torch.sub(x, x.mean(0))`, `x.softmax(0)`, in place: `mask.div_(mask.mean())`."""
        name = _last(node.func)
        op = ARITHMETIC.get(name.rstrip("_"))
        library = any(isinstance(t, External) for t in callee.things)
        operands = args[:2] if library or base is None else [base, *args[:1]]
        if operands and self.plan.wholes is None:
            position, spread = 1 if library or base is None else 0, operands[0].spread
            if tensors.relates_rows(name, node, position, spread) and not self._no_grad:
                return frozenset([Mixing(node, scope.source, rowwise.STATISTIC)])
            if tensors.pairs_rows(name, node, position, spread):
                return frozenset([Mixing(node, scope.source, rowwise.PARTNERS)])
        if op is None or len(operands) < 2:
            return frozenset()
        receiver = node.func.value if isinstance(node.func, ast.Attribute) else None
        written = node.args if library else [receiver, *node.args] if receiver is not None else []
        sides = (written[0], written[1]) if len(written) > 1 else None
        mixed = self._with_statistic(op(), operands[0], operands[1], node, scope, sides)
        if mixed and name.endswith("_") and isinstance(receiver, ast.Name):
            home = scope.find(receiver.id)
            if home is not None:
                held = home.names[receiver.id]
                home.names[receiver.id] = held.but(origins=held.origins | mixed)
        return mixed

    def _arguments(self, node: ast.Call, scope: Scope) -> tuple[list[Value], dict[str, Value]]:
        args: list[Value] = []
        for arg in node.args:
            if isinstance(arg, ast.Starred):
                value = self.eval(arg.value, scope)
                lists = [t for t in value.things if isinstance(t, Items) and t.parts]
                sizes = {len(each.parts) for each in lists}
                if len(sizes) == 1:
                    args += [self._part(value, index, 0) for index in range(sizes.pop())]
                    later = union(each.element for each in lists)  # what was appended since
                    args += [later] if later is not NOTHING else []
                else:
                    args.append(self._element(value, arg))
            else:
                args.append(self._firm(self._made(self.eval(arg, scope), arg, scope), arg))
        keywords: dict[str, Value] = {}
        for keyword in node.keywords:
            value = self.eval(keyword.value, scope)
            if keyword.arg is not None:
                keywords[keyword.arg] = self._firm(self._made(value, keyword.value, scope), keyword.value)
                continue
            for thing in value.things:
                if isinstance(thing, Table):
                    keywords.update(
                        {k: v for k, v in thing.entries.items() if isinstance(k, str) and k not in keywords}
                    )
                    value = value | thing.element
            if value.spread.is_local or value.origins or not any(map(_is_known, value.things)):
                keywords[REST] = value.but(things=frozenset(), const=UNKNOWN)  # any argument may be among them
        return args, keywords

    def _firm(self, value: Value, node: ast.expr) -> Value:
        """A literal passed to a function decides the branches in it."""
        return value.but(firm=True) if isinstance(node, ast.Constant) else value

    def _made(self, value: Value, node: ast.expr, scope: Scope) -> Value:
        """A local value remembers the expression that computed it."""
        if not value.spread.is_local or isinstance(node, (ast.Name, ast.Attribute)) and value.made:
            return value
        return value.but(made=frozenset([(scope.source, node)]))

    def _call(self, thing: Thing, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope) -> Value:
        if isinstance(thing, Wrapped):
            return self._module_call(thing, node, args, keywords, scope)
        if isinstance(thing, Function):
            return self.call_function(thing, node, args, keywords, scope)
        if isinstance(thing, Class):
            return self._instantiate(thing, node, args, keywords, scope)
        if isinstance(thing, External):
            return self._external(thing.name, node, args, keywords, scope)
        if isinstance(thing, Object):
            if "module" in thing.roles or "loss" in thing.roles or "data_parallel" in thing.roles:
                return self._module_call(thing, node, args, keywords, scope)
            if thing.cls is not None and thing.cls.find("__call__"):
                return self.method(thing, "__call__", node, args, keywords, scope)
            mixed = self._mixed([*args, *keywords.values()])
            return mixed.computed(CROSS) if "pairwise_loss" in thing.roles and mixed.spread is ROWS else mixed
        return self._mixed([*args, *keywords.values()]) if isinstance(thing, Inside) else NOTHING

    def method(
        self,
        owner: Object,
        name: str,
        node: ast.Call | None,
        args: list[Value],
        keywords: dict[str, Value],
        scope: Scope,
    ) -> Value:
        """Call a method that a class of the project defines."""
        found = owner.cls.find(name) if owner.cls is not None else None
        if found is None:
            return NOTHING
        bound = self._bound(found[1], owner, owner.node, scope)
        return union(
            self.call_function(thing, node, args, keywords, scope)
            for thing in bound.things
            if isinstance(thing, Function)
        )

    def call_function(
        self, function: Function, node: ast.Call | None, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value:
        """Run a function of the project with these arguments."""
        definition = function.node
        active = sum(call.function.node is definition for call in self._calls)
        self._repeats[definition] = self._repeats.get(definition, 0) + 1
        if (
            len(self._calls) >= MAX_DEPTH
            or active >= 2
            or self._repeats[definition] > MAX_REPEATS * (1 + 4 * (self._forward > 0))
        ):
            return self._unfollowed(self._mixed([*args, *keywords.values()]), node, scope)
        self.executed.add(definition)
        self._entered.add(definition)
        key = self._signature(function, args, keywords)
        if key is not None and key in self._results and self._repeats[definition] > 2:
            return self._results[key]
        inner = Scope(function.source, function.scope)
        self._bind(function, args, keywords, inner)
        if node is not None:
            self._note_rest(function, node, inner, scope)
        self._note_inflow(function, node, args, keywords, scope)
        if node is not None:
            self.callers.setdefault(definition, {})[node] = scope.source
        self._calls.append(Call_(node, scope.source, scope, function))
        path, self._path = self._path, (*self._path, id(node))[-12:]
        around, self._branches = self._branches, self._branches if function.owner is not None else ()
        one_rank = self._one_rank
        if definition not in self._quiet:
            self._quiet[definition] = not isinstance(definition, ast.Lambda) and any(
                self._is_no_grad(d, function.scope) for d in definition.decorator_list
            )
        quiet = self._quiet[definition]
        self._no_grad += quiet
        self._returns.append([])
        self._yields.append([])
        try:
            if isinstance(definition, ast.Lambda):
                result = self.eval(definition.body, inner)
            else:
                fell_through = not self.block(definition.body, inner)
                returns = self._returns[-1]
                result = union(returns) if returns else constant(None)
                if fell_through and returns and len(returns) == 1 and returns[0].const is None:
                    result = constant(None)
            yields = self._yields[-1]
        finally:
            self._yields.pop()
            self._returns.pop()
            self._no_grad -= quiet
            self._one_rank = one_rank
            self._branches = around
            self._path = path
            self._calls.pop()
        if definition not in self._generators:
            self._generators[definition] = not isinstance(definition, ast.Lambda) and _is_generator(definition)
        if yields or self._generators[definition]:
            element = union(yields)
            result = Value(frozenset([Stream(element, NOTHING)]), origins=element.origins)
        if key is not None and self._forward:
            self._results[key] = result
        return result

    def _unfollowed(self, value: Value, node: ast.Call | None, scope: Scope) -> Value:
        """The result of a function that is not entered once more."""
        if self.plan.wholes is None or node is None or not rowwise.is_whole(value):
            return value
        mixing = Mixing(node, scope.source, "calls a function too often to be followed")
        return value.but(origins=value.origins | {mixing})

    def _signature(self, function: Function, args: list[Value], keywords: dict[str, Value]) -> Any:
        """What a forward pass depends on; running it again with the same tells nothing new."""
        if not self._forward:
            return None
        owner = id(function.owner)
        given = tuple((v.things, v.spread, v.origins, v.models, repr(v.const) if v.firm else "") for v in args)
        named = tuple(
            (k, v.things, v.spread, v.origins, v.models, repr(v.const) if v.firm else "") for k, v in keywords.items()
        )
        evaluated = self._evaluated if self._no_grad else None
        return function.node, owner, given, named, evaluated, frozenset(self._outcomes.items())

    def _is_no_grad(self, decorator: ast.expr, scope: Scope) -> bool:
        node = decorator.func if isinstance(decorator, ast.Call) else decorator
        things = self.eval(node, scope).things
        return any(isinstance(t, External) and self.catalog.has(t.name, "no_grad") for t in things)

    def _note_inflow(
        self, function: Function, node: ast.Call | None, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> None:
        """Remember which arguments bring local values into an object of the project, a meter for instance."""
        owner = function.owner
        if node is not None and isinstance(owner, Object) and "module" not in owner.roles:
            self._brings_in(owner, node, scope)

    def _brings_in(self, owner: Object, node: ast.Call, scope: Scope) -> None:
        for expression in [*node.args, *(keyword.value for keyword in node.keywords)]:
            value = self._lately(expression)
            if (value.spread.is_local or self.holds_local(value)) and (scope.source, expression) not in owner.inflows:
                owner.inflows.append((scope.source, expression))

    def _bind(self, function: Function, args: list[Value], keywords: dict[str, Value], inner: Scope) -> None:
        spec = function.node.args
        names = [a.arg for a in (*spec.posonlyargs, *spec.args)]
        given = list(args)
        if function.owner is not None and names:
            given.insert(0, of(function.owner))
        defaults = dict(zip(reversed(names), reversed(spec.defaults), strict=False))
        for keyword, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True):
            names.append(keyword.arg)
            if default is not None:
                defaults[keyword.arg] = default
        positional = len(names) - len(spec.kwonlyargs)
        rest = dict(keywords)
        unknown = rest.pop(REST, NOTHING)
        for index, name in enumerate(names):
            if index < len(given) and index < positional:
                inner.names[name] = given[index]
            elif name in rest:
                inner.names[name] = rest.pop(name)
            elif name in defaults:
                inner.names[name] = self.eval(defaults[name], function.scope).but(firm=unknown is NOTHING) | unknown
            else:
                inner.names[name] = unknown
        if spec.vararg is not None:
            inner.names[spec.vararg.arg] = of(Items(spec.vararg, given[positional:], NOTHING))
        if spec.kwarg is not None:
            inner.names[spec.kwarg.arg] = of(Table(spec.kwarg, dict(rest), NOTHING))

    def _note_rest(self, function: Function, node: ast.Call, inner: Scope, scope: Scope) -> None:
        """Remember which expressions `**logs` and `*values` of a function hold."""
        spec = function.node.args
        for thing in inner.names[spec.kwarg.arg].things if spec.kwarg is not None else ():
            if isinstance(thing, Table):
                thing.stores += [(scope.source, each.value) for each in node.keywords if each.arg in thing.entries]
        for thing in inner.names[spec.vararg.arg].things if spec.vararg is not None else ():
            if isinstance(thing, Items) and 0 < len(thing.parts) <= len(node.args):
                thing.stores += [(scope.source, each) for each in node.args[-len(thing.parts) :]]

    def _instantiate(
        self, cls: Class, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value:
        made = self._remember(node, lambda: Object(cls.node.name, cls.roles, node, scope.source, self._path, cls), cls)
        made.args, made.keywords = args, keywords
        self._born[made] = self._branches
        if cls.find("__init__"):
            self.method(made, "__init__", node, args, keywords, scope)
        else:
            self._dataclass(cls, made, args, keywords)
            self._brings_in(made, node, scope)
            self._downloaded(cls, node, args, keywords, scope)
        self.event("make", node, scope, of(made))
        if "optimizer" in cls.roles and not cls.find("__init__"):
            self.event("optimizer", node, scope, of(made))
        if "framework" in cls.roles:
            self.event("framework", node, scope, constant(cls.node.name))
        return of(made)

    def _downloaded(
        self, cls: Class, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> None:
        """A data set of a library that a class of the project derives from, made with `download=True`."""
        bases = [base.name for each in cls.line() for base in each.bases if isinstance(base, External)]
        if not any(self.catalog.has(base, "download") and not self.catalog.has(base, "no_download") for base in bases):
            return
        wanted = keywords.get("download", args[4] if len(args) > 4 else constant(False))
        if REST in keywords or wanted.const not in (False, None):
            self.event("download", node, scope)

    def _dataclass(self, cls: Class, made: Object, args: list[Value], keywords: dict[str, Value]) -> None:
        body = [s for each in reversed(list(cls.line())) for s in each.node.body]
        fields = {s.target.id: s for s in body if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)}
        given = {**dict(zip(fields, args, strict=False)), **keywords}
        for name, statement in fields.items():
            default = statement.value
            for option in default.keywords if isinstance(default, ast.Call) and name not in given else ():
                if option.arg == "default_factory" and isinstance(default, ast.Call):
                    made.attributes[name] = self._produced(option.value, default, made, cls.scope)
        made.attributes.update(given)

    def _produced(self, factory: ast.expr, node: ast.Call, owner: Object, scope: Scope) -> Value:
        """`field(default_factory=list)`: what each instance of a class gets of its own."""
        path, self._path = self._path, (*owner.path, id(owner.node))[-12:]
        make = sorted(self.eval(factory, scope).things, key=_order)
        result = union(self._call(thing, node, [], {}, scope) for thing in make)
        self._path = path
        return result

    def _super(self, node: ast.Call, name: str, scope: Scope) -> Value:
        args, keywords = self._arguments(node, scope)
        call = next((c for c in reversed(self._calls) if c.function.owner is not None), None)
        if call is None or not isinstance(call.function.owner, Object):
            return NOTHING
        owner, defined = call.function.owner, call.function.defined_in
        found = owner.cls.find(name, skip=defined) if owner.cls is not None else None
        if found is None:
            if name == "__init__" and owner.cls is not None:
                self._downloaded(owner.cls, node, args, keywords, scope)
                self._inherit_parts(owner, owner.cls, node, args, keywords)
            if name == "__init__" and owner.roles & {"loader", "optimizer", "sampler"}:
                owner.args, owner.keywords, owner.node, owner.source = args, keywords, node, scope.source
                if "optimizer" in owner.roles:
                    self.event("optimizer", node, scope, of(owner))
                else:
                    self.event("make", node, scope, of(owner))
            return NOTHING
        bound = self._noted(node.func, self._bound(found[1], owner, node, scope), scope)
        return union(
            self.call_function(t, node, args, keywords, scope) for t in bound.things if isinstance(t, Function)
        )

    def _inherit_parts(
        self, owner: Object, cls: Class, node: ast.Call, args: list[Value], keywords: dict[str, Value]
    ) -> None:
        """The modules that a class of torch makes for those that derive from it: `self.encoder` of nn.Transformer."""
        bases = {base.name for each in cls.line() for base in each.bases if isinstance(base, External)}
        for base in sorted(bases & PARTS.keys()):
            for attribute, name in PARTS[base].items():
                make = partial(Object, name, frozenset(["module"]), node, owner.source, self._path)
                part = self._remember(node, make, attribute)
                part.args, part.keywords = args, keywords
                owner.attributes[attribute] = of(part)

    def _module_call(
        self, thing: Wrapped | Object, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value:
        inner = thing.module if isinstance(thing, Wrapped) else thing
        values = [*args, *keywords.values()]
        if not isinstance(inner, Object):
            return self._mixed(values)
        if "loss" in inner.roles and inner.cls is None:
            loss = self._loss(inner.keywords, inner.node, values, inner.keywords)
            return self._compared(loss, node, args, inner.keywords | keywords, scope, of(inner))
        outermost = self._forward == 0
        if outermost:
            given = self._mixed(values)
            self.event("forward", node, scope, of(thing), given)
            if inner.key not in self._evaluated:
                self.event("training_forward", node, scope, of(thing), given)
            if self._no_grad == 0 and self.uneven(given) is Rows.PADDED:
                self.event("padded", node, scope, given)
        self._forward += 1
        if inner.cls is not None and inner.cls.find("forward"):
            result = self.method(inner, "forward", node, args, keywords, scope)
        else:
            result = self._mixed(values)
            if inner.args and "module" in inner.roles:
                self._enter_children(inner, node, args, scope)
            if values and self._no_grad == 0 and rowwise.runs_along_rows(inner, values[0]):
                self.event("along_rows", node, scope, values[0], of(inner))
            short = inner.name.rpartition(".")[2]
            if short in COMPARING and {ROWS, Spread.COLUMNS} <= {value.spread for value in values}:
                result = result.computed(CROSS)
            if self.plan.wholes is not None and short in rowwise.RECURRENT:
                result = self._recurrent(inner, node, values)
            elif result.spread is Spread.COLUMNS and (short in rowwise.RECURRENT or short == "MultiheadAttention"):
                whole = result  # a pair of outputs, not the steps of one
                result = of(self._remember(node, lambda: Items(node, [whole, whole], NOTHING), "pair"))
        self._forward -= 1
        if outermost and self._no_grad == 0:
            result = self._with_model(result, inner)
        return result

    def _recurrent(self, layer: Object, node: ast.Call, values: list[Value]) -> Value:
        """The output and the state of a recurrent layer: the batch is the second axis of the state."""
        mixed = self._mixed([*values, *(inner for value in values[1:] for inner in self._contents(value))])
        if not rowwise.is_whole(mixed):
            return mixed
        found = rowwise.through_layer(layer, values, mixed, self._contents)
        if isinstance(found, str):
            source = self.sources.get(node.func, self.module.source)
            return mixed.but(origins=mixed.origins | {Mixing(node, source, found)})
        state = mixed.but(spread=Spread.COLUMNS, things=frozenset(), array=True)
        if layer.name.endswith("LSTM"):
            state = of(self._remember(node, lambda: Items(node, [state, state], NOTHING), "state"))
        output = mixed.but(spread=found, things=frozenset(), array=True, axes=3)
        items = self._remember(node, lambda: Items(node, [], NOTHING), layer.key)
        items.parts = [output, state]
        return of(items)

    def _enter_children(self, module: Object, node: ast.Call, args: list[Value], scope: Scope) -> None:
        """Run the project's own layers inside a Sequential, for what they draw or write."""
        for child in self._children(module):
            for thing in child.things:
                if isinstance(thing, Object) and thing.cls is not None and thing.cls.find("forward"):
                    self.method(thing, "forward", node, args, {}, scope)

    def _with_model(self, result: Value, model: Thing, depth: int = 3) -> Value:
        """A result of a forward pass, and what is in it, with the model in its graph."""
        for thing in result.things if depth else ():
            if isinstance(thing, Items):
                thing.parts = [self._with_model(part, model, depth - 1) for part in thing.parts]
                thing.element = self._with_model(thing.element, model, depth - 1)
            elif isinstance(thing, Table):
                thing.entries = {k: self._with_model(v, model, depth - 1) for k, v in thing.entries.items()}
        return result.but(models=result.models | {model})

    def _loss(self, options: Mapping[str, Value], call: ast.Call, values: Sequence[Value], _: Any) -> Value:
        """The spread of a loss of torch, by its reduction."""
        mixed = self._mixed(values)
        if mixed.spread not in (ROWS, Spread.COLUMNS):
            return mixed
        reduction = options.get("reduction", constant("mean")).const
        if options.get("size_average", NOTHING).const is False or reduction == "sum":
            return mixed.computed(SUM)
        if options.get("reduce", NOTHING).const is False or reduction == "none":
            by_class = self.plan.wholes is None and _last(call) in ("cross_entropy", "CrossEntropyLoss", "nll_loss")
            return mixed.computed(ROWS).but(axes=1 if by_class else None)
        return mixed.computed(MEAN)

    def _external(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value:
        """Call something of a library."""
        roles = self.catalog.roles(name)
        values = [*args, *keywords.values()]
        held = frozenset(t.module for value in values for t in value.things if isinstance(t, Parameters))
        if held and (name.startswith("torch.nn.init.") or name.rpartition(".")[2] in DRAWING):
            if not name.endswith(("constant_", "zeros_", "ones_", "eye_", "dirac_")):
                self.event("draw_parameters", node, scope, Value(held))
        if name.startswith(REMAKING) and args and self._modules_in(args[0]):
            self.event("replace_parameter", node, scope, args[0])
        for role in sorted(roles):
            handler = getattr(self, "call_" + role, None)
            if handler is not None:
                result: Value | None = handler(name, node, args, keywords, scope)
                if result is not None:
                    return result
        for value in values:
            self._callbacks(value, name, node, scope)
        if roles & {
            "print",
            "log",
            "write",
            "save",
            "tracker",
            "mkdir",
            "download",
            "framework",
            "framework_setting",
            "load",
            "exists",
        }:
            for role in sorted(roles):
                self.event(role, node, scope, self._mixed(values))
        builtin = self._builtin(name, node, args, keywords, scope)
        if builtin is not None:
            return builtin
        roots = name.partition(".")[0]
        if keywords.get("requires_grad", NOTHING).const is True and "module" not in roles:
            return of(
                self._remember(
                    node, lambda: Object(name, frozenset(["parameter"]), node, scope.source, self._path), "loose"
                )
            )
        unseen = self._unseen_share(name, roles, values)
        if unseen is not None:
            values = [*values, unseen]
        made = bool(roles - {"random_draw", "plain_torch", "exists", "load"}) or roots not in (
            "torch",
            "numpy",
            "math",
            "builtins",
            "F",
        )
        if made and "plain_torch" not in roles:
            mixed = self._mixed(values)
            if id(node) in self.plan.modules:
                roles = roles | {"module"}
            own = self._remember(node, lambda: Object(name, roles, node, scope.source, self._path), name)
            own.args, own.keywords = args, keywords
            self.event("make", node, scope, of(own))
            return Value(frozenset([own]), mixed.spread if mixed.spread.is_local else SAME, mixed.origins, mixed.models)
        return self._function(name.rpartition(".")[2], node, args, keywords)

    def _unseen_share(self, name: str, roles: frozenset[str], values: list[Value]) -> Value | None:
        """What code that is not at hand may make of a loader that it is given: of this rank's samples, that is."""
        if roles or self.catalog.knows(name):
            return None
        loaders = [thing for value in values for thing in value.objects("loader")]
        shared = [each for each in loaders if self._batch(each).spread.is_local]
        return Value(spread=LOCAL, origins=frozenset(shared)) if shared else None

    def _function(self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value]) -> Value:
        """A function over tensors or numbers."""
        if name in ("is_tensor", "is_floating_point", "is_complex", "isscalar"):
            return NOTHING
        values: list[Value] = []
        for value in args:
            listed = any(isinstance(t, (Items, Stream)) for t in value.things)
            inner = value | self._one_inside(value) if listed else value
            values.append(inner)
        if name in MAKING and (args or "size" in keywords) and self._counts_rows(args[0] if args else keywords["size"]):
            return union([*values, *keywords.values()]).computed(ROWS)
        if name in TYPES and args and args[0].spread is COUNT and not args[0].things:  # `torch.FloatTensor(n, 4)`
            return union([*values, *keywords.values()]).computed(ROWS)
        spreads = [v.spread for v in values]
        local_keywords = [v for v in keywords.values() if v.spread.is_local]
        mixed = union([*values, *keywords.values()])
        held = not mixed.spread.is_local and any(isinstance(t, Parameters) for t in mixed.things)
        if held and tensors.stays_sharded(name):
            return Value(frozenset(t for t in mixed.things if isinstance(t, Parameters)))
        if local_keywords and not any(s.is_local for s in spreads):
            return mixed.computed(combine([v.spread for v in local_keywords]))
        if values and values[0].spread is ROWS and values[0].axes == 1 and name in rowwise.PICKING:
            return mixed.computed(LOCAL)
        return mixed.computed(tensors.operation(name, node, None, spreads))

    def _counts_rows(self, size: Value) -> bool:
        """Whether a size begins with the number of this rank's samples: `(x.size(0), 4)`, `x.shape`."""
        firsts = [thing.parts[0].spread for thing in size.things if isinstance(thing, Items) and thing.parts]
        return size.spread is COUNT or bool(firsts) and all(spread is COUNT for spread in firsts)

    def _callbacks(self, value: Value, name: str, node: ast.Call, scope: Scope) -> None:
        """A function handed to a library is called by it some time."""
        for thing in value.things:
            if isinstance(thing, Function) and thing.node not in self._entered:
                first = [Value(spread=RANK)] if self.catalog.has(name, "spawn") else []
                self.call_function(thing, None, first, {}, scope)

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
            self.assign(target, Value(value.things, SAME, models=value.models), scope, None)
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

    def call_seed(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value:
        fresh = self._is_fresh([*args, *keywords.values()])
        self.event("unseeded" if fresh else "seed", node, scope, self._mixed(args))
        return NOTHING

    call_any_seed = call_seed

    def _is_fresh(self, seeds: list[Value]) -> bool:
        """Whether each process gets a seed of its own: none, or one from the clock."""
        origins = union(seeds).origins
        clocked = any(map(is_clock, origins))
        return not seeds or clocked or any(value.const is None for value in seeds)

    def call_clock(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value:
        """What differs from process to process."""
        self.event("clock", node, scope)
        make = partial(Object, name, frozenset(["clock"]), node, scope.source, self._path)
        return Value(origins=frozenset([self._remember(node, make, "clock")]))

    def call_generator(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value:
        """A generator of the script's own, with a seed of its own."""
        library = "random" if name == "random.Random" else "numpy.random"
        make = partial(Object, library, frozenset(["generator"]), node, scope.source, self._path)
        made = of(self._remember(node, make, "generator"))
        if self._is_fresh([*args, *keywords.values()]):
            self.event("unseeded", node, scope, made)
        return made

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
        results = [self._call(thing, node, given, {}, scope) for thing in sorted(module.things, key=_order)]
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
        self.event("sync_batch_norm", node, scope, args[0] if args else NOTHING)
        return args[0] if args else NOTHING

    def call_compile(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value | None:
        if name == "torch.jit.script" and self.of("backward"):
            return self.call_export(name, node, args, keywords, scope)
        value = args[0] if args else NOTHING
        self.event("compile", node, scope, value)
        return value

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

    def call_autograd_grad(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value:
        value = union([*args, *keywords.values()])
        self.event("autograd_grad", node, scope, value, keywords.get("create_graph", NOTHING))
        element = Value(spread=ROWS if value.spread.is_local else SAME, origins=value.origins, models=value.models)
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
        self.event("loader", node, scope, of(made), _constants(scope))
        for sampler in (made.argument("sampler", 3), made.argument("batch_sampler", 4)):
            for thing in sampler.things if sampler is not None else ():
                if isinstance(thing, Object) and thing.cls is not None:  # what it draws, all ranks must draw alike
                    self._element(self.method(thing, "__iter__", None, [], {}, Scope(thing.source)), None)
        return of(made)

    def call_loss_function(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value:
        if self._no_grad == 0:
            self.event("loss_function", node, scope)
        compared = 3 if name.endswith(("triplet_margin_loss", "distance_loss", "ranking_loss", "embedding_loss")) else 2
        given = [*args[:compared], *(keywords[k] for k in ("input", "target") if k in keywords)]
        return self._compared(self._loss(keywords, node, given, keywords), node, args, keywords, scope)

    def _compared(
        self,
        loss: Value,
        node: ast.Call,
        args: list[Value],
        keywords: dict[str, Value],
        scope: Scope,
        module: Value = NOTHING,
    ) -> Value:
        """A loss of torch; noted, if it is a mean over as many numbers as a rank happens to have."""
        loss = collation.marked(loss, SETTLED)
        given = [v for t in module.things if isinstance(t, Object) for v in t.args[:1]] if module.things else args[2:3]
        options = (*given, *(keywords[name] for name in ("weight", "pos_weight") if name in keywords))
        if any(option.spread in (MEAN, SUM, LOCAL) for option in options):
            return loss.but(spread=LOCAL) if loss.spread.is_local else loss  # weighed by what a rank's samples are
        if loss.spread is not MEAN or keywords.get("reduction", constant("mean")).const in ("sum", "none"):
            return loss
        target = next((v for v in (keywords.get("target"), *args[1::-1]) if v is not None), NOTHING)
        chosen = next((v for v in (*args[:2], *keywords.values()) if picking.picks(v) is not None), target)
        self.event("mean_loss", node, scope, chosen, module)
        if not self._no_grad and node not in self.plan.weighed and self.uneven(chosen, target=True):
            self.event("uneven_loss", node, scope, chosen)
        return self._evened(loss, node)

    def _evened(self, loss: Value, node: ast.expr) -> Value:
        """A mean that has been noted: where it trains, how many numbers it is of has been thought of."""
        if node in self.plan.weighed:
            return loss.but(origins=picking.whole(collation.marked(loss, SETTLED)).origins | {Evened(node)})
        return picking.whole(loss) if not self._no_grad else loss

    def call_index_draw(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value | None:
        for expression, value in zip(
            [*node.args, *(k.value for k in node.keywords)], [*args, *keywords.values()], strict=False
        ):
            if value.spread in (ROWS, LOCAL) and self._loops:
                self.event("local_draw", expression, scope, value, constant(id(node)))
        size = tensors.drawn(name, node)
        if "generator" not in keywords:
            self.event("random" if size is not None else "random_number", node, scope)
        if size is None:
            return None
        sizes = [v for k, v in keywords.items() if k == "size"] or args[-1 if name.startswith("torch.") else 2 :]
        counted = any(v.spread is COUNT for each in sizes for v in (each, *self._contents(each)))
        if name.endswith("randint") and counted:  # a number for each of this rank's samples: `randint(0, n, (len(x),))`
            return Value(spread=ROWS, origins=frozenset().union(*(v.origins for v in args)))
        return self._draw(Draw(node, scope.source, self._path, size), scope)

    def _draw(self, draw: Draw, scope: Scope) -> Value:
        self.event("draw", draw.node, scope, of(draw))
        taken = self.plan.draws is not None and id(draw.node) in self.plan.draws
        return Value(spread=ROWS if taken else SAME, origins=frozenset([draw]))

    def call_random_draw(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value:
        if "generator" not in keywords:
            self.event("random", node, scope, self._mixed(args))
        if keywords.get("requires_grad", NOTHING).const is True:
            return of(
                self._remember(
                    node, lambda: Object(name, frozenset(["parameter"]), node, scope.source, self._path), "loose"
                )
            )
        sized = [*args, *keywords.values(), *(c for a in args for c in self._contents(a))]
        if any(v.spread in (COUNT, ROWS) for v in sized):
            return Value(spread=ROWS, origins=frozenset().union(*(v.origins for v in sized)))
        size = tensors.drawn(name, node)
        if self._no_grad and "generator" not in keywords:
            noise = Draw(node, scope.source, self._path, noise=True, evaluates=True)
            return Value(origins=frozenset([noise]))
        if size is None or not self._loops or self._forward:
            return NOTHING
        return self._draw(Draw(node, scope.source, self._path, size, noise=True), scope)

    def call_dropout(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value | None:
        self.event("random", node, scope)
        return None

    def call_random_transform(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value | None:
        self.event("random", node, scope)
        return None

    def call_random_split(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value:
        self.event("random_split", node, scope)
        part = Object("torch.utils.data.Subset", frozenset(["dataset"]), node, scope.source, self._path, None, args[:1])
        return of(self._remember(node, lambda: Items(node, [], of(part))))

    def call_file_handler(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value | None:
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
            "filter",
        ):
            if short in ("copy.copy", "copy.deepcopy"):
                return self._copied(first, node, scope)
            value = args[1] if short == "filter" and len(args) > 1 else first
            if short == "filter":
                self._callbacks(first, "filter", node, scope)
            return self._listed("set" if short == "frozenset" else short, value, node, scope)
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
            return of(Index(node)).but(spread=SAME)
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
            converts = {t.name.rpartition(".")[2] for t in first.things if isinstance(t, External)}
            if self.plan.wholes is not None and converts and converts <= rowwise.CONVERTING:
                return of(Stream(Value(array=True), NOTHING))  # `map(torch.LongTensor, zip(*samples))`
            for thing in first.things:
                if isinstance(thing, (Function, Object)):
                    return of(
                        Stream(self._call(thing, node, [self._element(v, node) for v in args[1:]], {}, scope), NOTHING)
                    )
            return of(Stream(self._mixed([self._element(v, node) for v in args[1:]]), NOTHING))
        if short == "len":
            return NOTHING if self._is_sequence(node.args[:1], first) else self._length(first)
        if short == "isinstance" and self.plan.wholes is not None and len(args) == 2:
            return self._tells_tensor(first, args[1])
        if short == "slice" and any(value.spread is RANK for value in args):
            return Value(spread=ROWS)
        if short in ("sum", "fsum", "math.fsum"):
            return self._total(first)
        if short in ("str", "repr", "format"):
            if any(v.spread.is_local or self.holds_local(v) for v in args) and node.args:
                self.event("format", node.args[0], scope, first)
            return self._text(args)
        if short in ("float", "int") and not args:
            return constant(0)  # as `defaultdict(float)` asks for
        if short in ("float", "int", "abs", "bool", "complex"):
            if short != "abs":
                first = first.but(models=frozenset())  # a number, through which no gradient flows
            return (
                first.but(things=frozenset(), const=UNKNOWN, firm=False)
                if short != "int"
                else first.computed(first.spread).but(things=first.things)
            )
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
            if short == "type" and len(args) == 1:
                self.event("asked_class", node, scope, first)
                return _class_of(first)
            return NOTHING
        if short == "getattr" and len(node.args) > 1:
            wanted = args[1].const
            if isinstance(wanted, str):
                fake = ast.Attribute(node.args[0], wanted, ast.Load())
                return union(self._attribute(t, fake, first, scope) for t in first.things)
            listed = among(node, node.args[1], scope.source.ancestors(node))
            if listed:
                asked = [ast.Attribute(node.args[0], each, ast.Load()) for each in listed]
                return union(self._attribute(thing, each, first, scope) for each in asked for thing in first.things)
            return union(self._any_of(thing) for thing in first.things)
        if short == "setattr" and len(args) == 3 and args[2].things:
            known = args[1].const
            self._keep_attribute(node, first, known if isinstance(known, str) else KEPT, args[2], scope)
            return NOTHING
        if short == "eval":
            return self._named(node, first, scope)
        if short in ("importlib.import_module", "__import__"):
            pattern = pattern_of(node) if not isinstance(first.const, str) else first.const
            found = matching(pattern, self.project.modules) if pattern is not None else []
            library = isinstance(first.const, str) and not first.const.startswith(".")
            found = found or ([first.const] if library else [])
            return union(self._module(each, node) for each in found) if found else None
        if short in ("globals", "locals"):
            names = scope.top.names if short == "globals" else scope.names
            return of(Table(ast.Attribute(node, "__dict__", ast.Load()), dict(names), NOTHING))
        if short in ("collections.deque", "deque"):
            items = self._remember(node, lambda: Items(node, [], NOTHING))
            items.element = items.element | self._element(first, node)
            return of(items)
        if short in ("dict", "collections.OrderedDict", "collections.defaultdict", "collections.Counter"):
            table = self._remember(node, lambda: Table(node, {}, NOTHING))
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
                table.element = table.element | union(self._call(t, node, [], {}, scope) for t in first.things)
                self._path = path
            table.entries.update(keywords)
            table.stores += [
                (scope.source, k.value) for k in node.keywords if (scope.source, k.value) not in table.stores
            ]
            return of(table)
        if short in ("min", "max", "round", "pow", "divmod"):
            return self._mixed(args)
        if short in ("os.environ.get", "os.getenv"):
            key = first.const
            if key in ("RANK", "LOCAL_RANK", "SLURM_PROCID", "SLURM_LOCALID"):
                return Value(spread=RANK)
            return Value(spread=WORLD) if key == "WORLD_SIZE" else NOTHING
        if short in ("functools.partial", "partial"):
            return first
        if short == "torch.nn.utils.rnn.pack_padded_sequence":
            return collation.marked(self._mixed(args), PACKED)
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
            mixed = first | self._one_inside(first)
            spread = (
                mixed.spread
                if mixed.spread in (SAME, ROWS, Spread.COLUMNS, RANK, CROSS)
                else (MEAN if mixed.spread is MEAN else LOCAL)
            )
            if first.spread is ROWS and tensors.puts_second(short.rpartition(".")[2], node):
                spread = Spread.COLUMNS
            return mixed.computed(spread)
        return None

    def _put_pairs(self, table: Table, pairs: Items) -> None:
        """`dict(zip(names, values))`, `dict([("loss", loss)])`"""
        for pair in (t for each in [*pairs.parts, pairs.element] for t in each.things if isinstance(t, Items)):
            key, value = self._part(of(pair), 0, 2), self._part(of(pair), 1, 2)
            if key.const is not UNKNOWN and _hashable(key.const):
                table.entries[key.const] = value
            else:
                table.element = table.element | value
        table.stores += [store for store in pairs.stores if store not in table.stores]

    def _tells_tensor(self, value: Value, kind: Value) -> Value:
        """`isinstance(h, torch.Tensor)`, where it is known."""
        asked = self._is_tensor_type(kind)
        if asked and not value.things and (value.array or rowwise.is_whole(value)):
            return constant(True, firm=True)
        holds = all(isinstance(t, Items) for t in value.things) and not value.array and value.spread is SAME
        if asked and value.things and holds:
            return constant(False, firm=True)
        return NOTHING

    def _is_tensor_type(self, kind: Value) -> bool:
        names = {"torch.Tensor", "torch.autograd.Variable"}
        return any(isinstance(thing, External) and thing.name in names for thing in kind.things)

    def _named(self, node: ast.Call, text: Value, scope: Scope) -> Value | None:
        """`eval(args.model)(classes)`, `eval(args.model).Model(classes)`: any model in sight, or module with one."""
        if isinstance(text.const, str) and text.const.isidentifier():
            home = scope.find(text.const)
            return home.names[text.const] if home is not None else None
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

    def _any_of(self, thing: Thing) -> Value:
        """`getattr(module, name)` with a name that is not known: any of its classes and functions."""
        if isinstance(thing, External):
            return of(External(f"{thing.name}.?"))
        if isinstance(thing, LocalModule):
            found = [t for v in thing.scope.names.values() for t in v.things if isinstance(t, (Class, Function))]
            own = [each for each in found if each.source is thing.source]
            return Value(frozenset(own or found))
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
        if kind == "set" or kind in ("list", "tuple", "sorted") and is_set(value):
            if kind in ("list", "tuple"):
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
        pairs.stores = [store for value in args for t in value.things if isinstance(t, Items) for store in t.stores]
        return of(pairs)

    def _each(self, value: Value) -> list[Value] | None:
        """The elements of a short list, or the keys of a dict, that is known in full."""
        thing = next(iter(value.things)) if len(value.things) == 1 else None
        if not isinstance(thing, (Items, Table)) or thing.element is not NOTHING or value.spread is not SAME:
            return None
        found = thing.parts if isinstance(thing, Items) else [constant(key) for key in thing.entries]
        return found if 0 < len(found) <= UNROLLED else None

    def _is_sequence(self, nodes: list[ast.expr], value: Value) -> bool:
        """Whether a batch is a list of fields: `isinstance(batch, list)`, `batch[0]` and `batch[1]`, `x, y = batch`."""
        if not nodes or not isinstance(nodes[0], ast.Name) or value.spread is not ROWS or value.models:
            return False
        if not any(isinstance(origin, Object) and "loader" in origin.roles for origin in value.origins):
            return False
        name, fields = nodes[0].id, set()
        home = self._calls[-1].function.node if self._calls else self.module.source.tree
        for each in ast.walk(home):
            if isinstance(each, ast.Assign) and isinstance(each.value, ast.Name) and each.value.id == name:
                if isinstance(each.targets[0], (ast.Tuple, ast.List)):
                    return True
            if isinstance(each, ast.Call) and getattr(each.func, "id", "") == "isinstance" and len(each.args) == 2:
                names = {n.id for n in ast.walk(each.args[1]) if isinstance(n, ast.Name)}
                if isinstance(each.args[0], ast.Name) and each.args[0].id == name and names & {"list", "tuple"}:
                    return True
            if isinstance(each, ast.Subscript) and isinstance(each.value, ast.Name) and each.value.id == name:
                fields |= {each.slice.value} if isinstance(each.slice, ast.Constant) else set()
        return len(fields) > 1

    def _length(self, value: Value) -> Value:
        if value.spread is Spread.COLUMNS:
            return NOTHING  # its first axis is another one
        if value.spread is ROWS:
            return value.computed(COUNT)
        for thing in value.things:
            if isinstance(thing, Items):
                inner = union([*thing.parts, thing.element])
                if inner.spread is ROWS:
                    return inner.computed(COUNT)
            if isinstance(thing, Object) and "distributed_sampler" in thing.roles:
                return Value(spread=COUNT)
        if value.spread is COUNT:
            return value
        return NOTHING

    def _total(self, value: Value) -> Value:
        inner = value.but(things=frozenset()) | self._one_inside(value)
        if inner.spread is ROWS:
            return inner.computed(SUM)
        return inner.but(const=UNKNOWN, firm=False, things=frozenset())

    # ---------------------------------------------------------------- methods of objects

    def _method(
        self, node: ast.Call, name: str, base: Value, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value | None:
        """A method of something that is not an object of the project with that method."""
        values = [*args, *keywords.values()]
        if name in GRADIENT_HOOKS:
            self.event("gradient_hook", node, scope, base, union(values))
        results: list[Value] = []
        for thing in sorted(base.things, key=_order):
            inner = thing.module if isinstance(thing, Wrapped) else thing
            if isinstance(inner, (External, Function, Class, LocalModule)):
                continue
            if isinstance(inner, Object) and inner.cls is not None and inner.cls.find(name):
                if "module" in inner.roles and name not in ("forward", "train", "eval"):
                    self.event("model_method", node, scope, of(thing), self._mixed(values))
                if "optimizer" in inner.roles and name == "step":
                    self.event("step", node, scope, of(inner), self._mixed(values))
                continue
            if isinstance(inner, Object) and name in inner.attributes and not _is_hidden(inner, name):
                continue
            result = self._object_method(thing, inner, node, name, base, args, keywords, scope)
            if result is not None:
                results.append(result)
        if name == "size" and not node.args and not node.keywords and base.spread in (ROWS, Spread.COLUMNS):
            return self._shape(base, node)
        if name == "backward" and not any(
            isinstance(t, Object) and t.cls is not None and t.cls.find(name) for t in base.things
        ):
            self._note_backward(node, base, scope)
            return NOTHING
        if name == "copy_" and self._forward and any(value.spread.is_local for value in values):
            target = node.func.value if isinstance(node.func, ast.Attribute) else None
            if isinstance(target, ast.Attribute) and target.attr == "data" and isinstance(target.value, ast.Attribute):
                self.event("parameter_set", node, scope)
        if name == "copy_" and args:
            self._copied_into(node, args[0], scope)
        local = any(isinstance(t, Object) and t.cls is not None and t.cls.find(name) for t in base.things)
        if name in WRITING and not local and not any(isinstance(t, External) for t in base.things):
            self.event("write", node, scope, self._mixed(values))
            return NOTHING
        if name in TESTING_FILES and not local:
            self.event("exists", node, scope)
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
        literal = isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.JoinedStr)
        if name in FORMATTING and (isinstance(base.const, str) or literal):
            for expression, value in zip([*node.args, *(k.value for k in node.keywords)], values, strict=False):
                if value.spread.is_local or self.holds_local(value):
                    self.event("format", expression, scope, value)
            return self._text(values)
        if name in FILLING and (self._forward or self._loops or base.spread is not SAME):
            self.event("random", node, scope)
        operands = [] if name in TYPED_LIKE else values
        if name in TYPED_LIKE and not base.things and not base.spread.is_local:
            return base
        if (
            (not base.things and (base.spread is not SAME or any(v.spread.is_local for v in operands)))
            or not results
            and base.spread.is_local
        ):
            spread = tensors.operation(name, node, base.spread, [v.spread for v in operands])
            if base.spread is ROWS and base.axes == 1 and name in rowwise.PICKING and self.plan.wholes is None:
                spread = LOCAL  # one number for each sample, of which some are picked
            mixed = union([base, *operands])
            cut = name in CUTTING
            results.append(
                mixed.computed(spread).but(
                    made=base.made if name in tensors.KEEPING else frozenset(),
                    models=frozenset() if cut else mixed.models,
                )
            )
        elif not base.things and (base.origins or base.models):
            results.append(Value(origins=base.origins, models=frozenset() if name in CUTTING else base.models))
        return union(results) if results else None

    def _copied_into(self, node: ast.Call, value: Value, scope: Scope) -> None:
        """`images.resize_as_(batch).copy_(batch)`: a tensor that is made once holds each batch in turn."""
        target: ast.expr = node
        while (
            isinstance(target, ast.Call) and isinstance(target.func, ast.Attribute) and target.func.attr.endswith("_")
        ):
            target = target.func.value
        home = scope.find(target.id) if isinstance(target, ast.Name) else None
        if home is None or not isinstance(target, ast.Name) or not (value.spread.is_local or value.origins):
            return
        held = home.names[target.id]
        if not held.things and not held.weights:
            filled = held.but(spread=value.spread, origins=value.origins, models=value.models, zero=False)
            home.names[target.id] = filled.but(axes=value.axes, array=held.array or value.array)

    def _note_backward(self, node: ast.Call, loss: Value, scope: Scope) -> None:
        """What is differentiated is a number; one that cannot be told apart is taken for a mean, with a warning."""
        self.event("backward", node, scope, loss)
        target = node.func.value if isinstance(node.func, ast.Attribute) else node
        if isinstance(target, ast.Call) and len(target.args) == 1:
            target = target.args[0]
        if isinstance(target, ast.Name) and loss.spread in (ROWS, Spread.COLUMNS, LOCAL):
            self.assign(target, loss.but(spread=MEAN, made=frozenset()), scope, None)

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
        if isinstance(inner, (Items, Table, Stream)):
            return self._container_method(inner, node, name, args, keywords, scope)
        if isinstance(inner, Parameters):
            if name == "requires_grad_":
                self.event("freeze", node, scope, of(inner.module))
            if name in DRAWING:
                self.event("draw_parameters", node, scope, of(inner.module))
            if inner.part and name.endswith("_") and not name.endswith("__"):
                self.event("write_part", node, scope, of(inner))
            if name in SIZES or tensors.reduces(name, node, 0) or tensors.takes_apart(name) or name.startswith("new_"):
                return NOTHING
            if any(value.spread.is_local for value in values):
                spread = tensors.operation(name, node, base.spread, [value.spread for value in values])
                return union(values).computed(spread)
            return of(replace(inner, cut=True) if name == "detach" else inner)
        if isinstance(inner, Inside):
            return self._inside_method(inner, node, name, args, scope)
        if isinstance(inner, OptimizerState):
            return self._state_method(inner, node, name, args)
        if not isinstance(inner, Object):
            return None
        if "generator" in inner.roles:
            drawn = "randint" if name == "integers" else name
            return self._external(f"{inner.name}.{drawn}", node, args, {**keywords, "generator": of(inner)}, scope)
        if name in ("parameters", "named_parameters") and not inner.roles and inner.cls is None:
            self.promoted.add(id(inner.node))
        if "module" in inner.roles or isinstance(thing, Wrapped):
            return self._model_method(thing, inner, node, name, args, keywords, scope)
        if "loss" in inner.roles and name in RETURNS_SELF:
            return of(inner)
        if "optimizer" in inner.roles:
            if name == "step":
                for value in args[:1]:
                    self._callbacks(value, "closure", node, scope)
                self.event("step", node, scope, of(inner), self._mixed(values))
            elif name in ("zero_grad", "state_dict", "load_state_dict", "add_param_group"):
                self.event("optimizer_" + name, node, scope, of(inner), self._mixed(values))
                if name == "add_param_group":
                    inner.args.extend(args)
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
        if "file" in inner.roles:
            self.event("file_method", node, scope, self._mixed(values), of(inner))
            return NOTHING
        if "loader" in inner.roles and name == "__iter__":
            return self._listed("iter", of(inner), node, scope)
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
        mixed = self._mixed([*values, *(held for key, held in inner.attributes.items() if key == KEPT)])
        if "dataset" in inner.roles:
            return of(inner)
        return mixed if mixed.spread.is_local else NOTHING

    def _inside_method(self, inside: Inside, node: ast.Call, name: str, args: list[Value], scope: Scope) -> Value:
        """A method of some part of a module, or of what is in it."""
        module = inside.module
        if name in ("parameters", "named_parameters"):
            return of(Parameters(module, name == "named_parameters"))
        if name in ("named_children", "named_modules"):
            return self._named_parts(node, of(inside))
        if name in ("children", "modules"):
            return of(Stream(of(inside), NOTHING))
        if name == "requires_grad_":
            self.event("freeze", node, scope, of(module))
        if name in DRAWING or name == "reset_parameters":
            self.event("draw_parameters", node, scope, of(module))
        if name in SIZES or name in ("buffers", "named_buffers", "state_dict", "load_state_dict"):
            return NOTHING
        return of(inside) if not any(value.spread.is_local for value in args) else NOTHING

    def _state_method(self, state: OptimizerState, node: ast.Call, name: str, args: list[Value]) -> Value:
        """`optimizer.state.items()`, `optimizer.state[p].get("exp_avg")`"""
        if name in ("get", "pop", "setdefault") and args:
            return self._entry(state, args[0])
        if name in ("keys", "items", "values"):
            key = of(Parameters(state.module, one=True)) if state.depth == 2 else NOTHING
            entry = self._entry(state, NOTHING)
            if name != "items":
                return of(Stream(key if name == "keys" else entry, NOTHING))
            pair = self._remember(node, lambda: Items(node, [], NOTHING), ("kept", state.depth))
            pair.parts = [key, entry]
            return of(Stream(of(pair), NOTHING))
        return of(state) if state.depth == 0 else NOTHING

    def _named_parts(self, node: ast.Call, part: Value) -> Value:
        """`model.named_modules()`"""
        pair = self._remember(node, lambda: Items(node, [], NOTHING), "named")
        pair.parts = [NOTHING, part]
        return of(Stream(of(pair), NOTHING))

    def _note_default(self, parser: Object, args: list[Value], keywords: dict[str, Value]) -> None:
        """`add_argument("--seed", default=int(time.time()))`: an option that each process may set otherwise."""
        default = keywords.get("default", NOTHING)
        if not any(map(is_clock, default.origins)):
            return
        flags = [keywords["dest"].const] if "dest" in keywords else [value.const for value in args]
        names = [flag for flag in flags if isinstance(flag, str)]
        long = next((flag for flag in names if flag.startswith("--")), names[0] if names else "")
        parser.attributes[long.lstrip("-").replace("-", "_")] = Value(origins=default.origins)

    def _model_method(
        self,
        thing: Thing,
        inner: Object,
        node: ast.Call,
        name: str,
        args: list[Value],
        keywords: dict[str, Value],
        scope: Scope,
    ) -> Value:
        if name in ("parameters", "named_parameters"):
            parent = scope.source.parents.get(node)
            if self._forward and not (isinstance(parent, ast.Call) and getattr(parent.func, "id", "") == "next"):
                self.event("layer_weight", node, scope, of(inner), constant("all"))
            return of(Parameters(inner, name == "named_parameters"))
        if name == "get_parameter":
            return of(Parameters(inner, one=True))
        if name == "reset_parameters":
            self.event("draw_parameters", node, scope, of(inner))
        if name in ("train", "eval"):
            off = args[0].const if args else keywords.get("mode", NOTHING).const
            parts = {each.key for each in self._and_all_within(inner)}
            quiet = name == "eval" or off is False
            self._evaluated = self._evaluated | parts if quiet else self._evaluated - parts
            self.once_evaluated |= self._evaluated
        if name in RETURNS_SELF:
            if name == "requires_grad_":
                self.event("freeze", node, scope, of(inner))
            if name in MOVES or name == "apply":
                self.event("move", node, scope, of(thing))
            if name == "apply":
                part = union([of(inner), *self._children(inner), of(Inside(inner))])
                self._call_each(args[:1], node, [part], scope)
            keeps = name in SAFE_ON_WRAPPER or not isinstance(thing, Wrapped) or thing.kind != "planned"
            return of(thing if keeps else inner)
        if name in ("children", "modules", "named_children", "named_modules"):
            part = union([*self._children(inner), of(Inside(inner))])
            return self._named_parts(node, part) if name.startswith("named") else of(Stream(part, NOTHING))
        if name == "get_submodule":
            return union([*self._children(inner), of(Inside(inner))])
        if name in ("forward", "__call__"):
            return self._module_call(inner if not isinstance(thing, Wrapped) else thing, node, args, keywords, scope)
        if name in ("state_dict", "load_state_dict", "zero_grad"):
            self.event("model_" + name, node, scope, of(thing))
            return of(self._state_dict(node, scope))
        if name == "register_buffer":
            self.event("buffer", node, scope, self._mixed(args))
        if name == "register_parameter" and len(args) == 2:
            known = args[0].const
            self._keep_attribute(node, of(thing), known if isinstance(known, str) else KEPT, args[1], scope)
            return NOTHING
        if name in ("append", "add_module", "register_module", "insert", "extend"):
            inner.args.extend(args)
            self.event("grow", node, scope, of(inner))
            return NOTHING
        if name in ("register_forward_hook", "register_forward_pre_hook"):
            self.event("forward_hook", node, scope, of(inner), union(args[:1]))
            self._call_each(args[:1], node, [of(inner)], scope)
        return self._mixed([*args, *keywords.values()])

    def _call_each(self, given: list[Value], node: ast.Call, args: list[Value], scope: Scope) -> None:
        """Call the functions that a module is given, to be called with it or its parts."""
        for function in (thing for value in given for thing in value.things):
            if isinstance(function, Function) and not isinstance(function.owner, Class):
                self.call_function(function, None, args, {}, scope)

    def _state_dict(self, node: ast.Call, scope: Scope) -> Object:
        made = self._remember(node, lambda: Object("state_dict", frozenset(["state"]), node, scope.source, self._path))
        assert isinstance(made, Object)
        return made

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
                self.event("store", node, scope, union(args))
                pairs = list(zip(args[-1:], node.args[-1:], strict=False))
                self._grow(of(container), pairs, scope, name)
                return NOTHING
            return union([*container.parts, container.element]) if name == "pop" else NOTHING
        if name == "items":
            pairs_ = [Items(node, [constant(k), v], NOTHING) for k, v in container.entries.items()]
            whole = self._remember(node, lambda: Items(node, [], NOTHING))
            whole.parts = [of(self._remember(node, partial(_itself, p), str(p.parts[0].const))) for p in pairs_]
            for part, fresh in zip(whole.parts, pairs_, strict=False):
                for thing in part.things:
                    if isinstance(thing, Items):
                        thing.parts = fresh.parts
            if container.element is not NOTHING:
                whole.element = of(Items(node, [NOTHING, container.element], NOTHING))
            return of(whole)
        if name in ("values",):
            whole = self._remember(node, lambda: Items(node, [], NOTHING))
            whole.parts, whole.element = list(container.entries.values()), container.element
            return of(whole)
        if name == "setdefault" and len(args) > 1:
            container.element = container.element | args[1]
        if name in ("get", "pop", "setdefault"):
            if first.const is not UNKNOWN and _hashable(first.const) and first.const in container.entries:
                return container.entries[first.const]
            return union([_any_entry(container), container.element, *args[1:]])
        if name == "update":
            for thing in first.things:
                if isinstance(thing, Table):
                    for key, value in thing.entries.items():
                        old = container.entries.get(key, NOTHING) if self._branches else NOTHING
                        container.entries[key] = old | value
                    container.stores += [store for store in thing.stores if store not in container.stores]
            container.entries.update(keywords)
            named = [(scope.source, keyword.value) for keyword in node.keywords]
            container.stores += [store for store in named if store not in container.stores]
        return NOTHING

    def _grow(self, base: Value, pairs: Sequence[tuple[Value, ast.expr]], scope: Scope, name: str) -> None:
        for thing in base.things:
            if isinstance(thing, Items):
                for value, expression in pairs:
                    if name in ("extend", "update"):
                        value = self._element(value, expression) if value.things else value
                    elif value.spread is MEAN and _is_of_one(expression) and any(loop.by_row for loop in self._loops):
                        value = value.but(spread=ROWS)  # a number for each sample
                    thing.element = thing.element | value
                    if (scope.source, expression) not in thing.stores:
                        thing.stores.append((scope.source, expression))

    # ---------------------------------------------------------------- questions

    def holds_local(self, value: Value, depth: int = 3) -> bool:
        """Whether a container or object of the project holds something local."""
        seen: set[int] = set()
        level = [value]
        for _ in range(depth):
            self._steps += sum(len(outer.things) for outer in level) // 8  # hundreds cost as much as running code
            things = {id(thing): thing for outer in level for thing in outer.things if id(thing) not in seen}
            seen |= things.keys()
            level = [each for thing in things.values() for each in self._held(thing) if each is not value]
            if any(each.spread.is_local for each in level):
                return True
        return False

    def _held(self, thing: Thing) -> list[Value]:
        if isinstance(thing, (Items, Table, Stream)):
            return self._contents(of(thing))
        if isinstance(thing, Object) and thing.cls is not None and "module" not in thing.roles:
            return list(thing.attributes.values())
        return []

    def _modules_in(self, value: Value) -> bool:
        return any(
            isinstance(t, Wrapped) or isinstance(t, Object) and "module" in t.roles and "loss" not in t.roles
            for t in value.things
        )

    def _remember(self, node: ast.AST, make: Callable[[], Any], extra: Any = None) -> Any:
        """The thing that ``node`` made in this context; running a loop body again makes no second one."""
        key: Any = (id(node), self._path, extra)
        made = self._memory[key] if key in self._memory else self._memory.setdefault(key, make())
        if isinstance(made, Object):
            here = self._outcomes
            before = self._made_where.get(made, here)
            self._made_where[made] = {c: o for c, o in before.items() if here.get(c) is o}
        return made


def _is_count(node: ast.expr) -> bool:
    """Whether no gradient flows through a call, since it gives numbers of classes."""
    return isinstance(node, ast.Call) and _last(node) in ("argmax", "argmin", "one_hot")


def is_set(value: Value) -> bool:
    """Whether a value is a set of what may be strings."""
    for thing in value.things:
        if isinstance(thing, Items) and _makes_set(thing.node):
            inside = [*thing.parts, thing.element]
            return not any(part.things or part.spread.is_local or isinstance(part.const, int) for part in inside)
    return False


def _makes_set(node: ast.AST) -> bool:
    called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("set", "frozenset")
    return called or isinstance(node, (ast.Set, ast.SetComp))


def wrapped(value: Value, kind: str = "ddp") -> Value:
    """``value`` with its modules wrapped."""
    things: set[Thing] = set()
    for thing in value.things:
        if isinstance(thing, Object) and "module" in thing.roles:
            things.add(Wrapped(thing, kind))
        elif isinstance(thing, Wrapped) and kind != "data_parallel":
            things.add(Wrapped(thing.module, kind))
        else:
            things.add(thing)
    return value.but(things=frozenset(things))


def _any_entry(table: Table) -> Value:
    """What one of the entries holds."""
    return _one_of(list(table.entries.values()))


def _one_of(values: Sequence[Value]) -> Value:
    """What one of several values holds: a sum beside what is equal on all ranks is neither."""
    found = union(values)
    return found.but(spread=LOCAL) if _is_mixed(values) and found.spread in (SUM, COUNT) else found


def _is_mixed(values: Sequence[Value]) -> bool:
    """Whether some values are sums over a rank's samples and others are not. Zeros are what sums start from."""
    spreads = {value.spread for value in values if value.const is UNKNOWN or value.const != 0}
    return not spreads.isdisjoint((SUM, COUNT)) and not spreads <= {SUM, COUNT}


def _is_shape(items: Items) -> bool:
    """Whether it is the sizes of a tensor, of which the first counts a rank's samples."""
    return isinstance(items.node, (ast.Attribute, ast.Call)) and _last(items.node) in ("shape", "size")


def _itself(items: Items) -> Items:
    return items


def joined(states: Sequence[dict[str, Value]]) -> dict[str, Value]:
    """The names of several branches, each with what any of them may have left in it."""
    result = dict(states[0])
    for state in states[1:]:
        for name, value in state.items():
            old = result.get(name)
            result[name] = value if old is None else old if old is value else old | value
    return result


def truth(value: Value, node: ast.expr) -> bool | None:
    """Whether a test is decided: by a literal, or a constant that this call or loop was given."""
    if isinstance(node, ast.Constant):
        return bool(node.value)
    if value.const is not UNKNOWN and value.firm and not value.things:
        return bool(value.const)
    return None


def compare(op: ast.cmpop, left: Value, right: Value) -> bool | None:
    """The outcome of a comparison, if it is decided."""
    if isinstance(op, (ast.Is, ast.IsNot)) and right.const is None:
        known_not_none = (
            bool(left.things) and left.const is UNKNOWN and not any(isinstance(t, External) for t in left.things)
        )
        if left.const is None and left.firm and not left.things:
            return isinstance(op, ast.Is)
        return isinstance(op, ast.IsNot) if known_not_none else None
    if left.const is UNKNOWN or right.const is UNKNOWN or not (left.firm or right.firm):
        return None
    if left.things or right.things:
        return None
    try:
        if isinstance(op, ast.Eq):
            return bool(left.const == right.const)
        if isinstance(op, ast.NotEq):
            return bool(left.const != right.const)
    except Exception:  # constants of odd types: nothing is decided
        return None
    return None


def _relates(value: Value) -> bool:
    """Whether a value is computed from several samples in a way that neither a sum nor a mean is."""
    mixed = any(each.reason != rowwise.PARTNERS for each in rowwise.mixings(value))
    return mixed or value.spread in (LOCAL, CROSS) or picking.takes_first(value)


def _sets_apart(node: ast.expr, left: Value, right: Value) -> bool:
    """Whether an axis was put before the samples of an operand: `x.unsqueeze(1) - y.unsqueeze(0)`, `x - y[None]`."""
    made = [each for value in (left, right) for _, each in value.made]
    return any(_puts_axis_first(each) for expression in (node, *made) for each in ast.walk(expression))


def _puts_axis_first(node: ast.AST) -> bool:
    if isinstance(node, ast.Subscript):
        return _is_new_axis(node.slice.elts[0] if isinstance(node.slice, ast.Tuple) and node.slice.elts else node.slice)
    named = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "unsqueeze"
    return named and isinstance(node, ast.Call) and bool(node.args) and _number(node.args[0]) == 0


def _is_new_axis(index: ast.expr) -> bool:
    return isinstance(index, ast.Constant) and index.value is None


def _constants(scope: Scope) -> Value:
    """What calls and literal loops have bound to constants here."""
    names: dict[str, Any] = {}
    inner: Scope | None = scope
    while inner is not None:
        for name, value in inner.names.items():
            if value.firm and value.const is not UNKNOWN and value.const is not None and not value.things:
                names.setdefault(name, value.const)
        inner = inner.parent
    return constant(tuple(sorted(names.items())))


def _moving(home: ast.AST) -> set[str]:
    """The names that a function or class counts up, goes through numbers with, or computes from one of those."""
    found: set[str] = set()
    for node in ast.walk(home):
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
            found.add(ast.unparse(node.target))
        elif isinstance(node, ast.For):
            found |= {ast.unparse(n) for n in ast.walk(node.target) if isinstance(n, ast.Name)}
    for _ in range(2):
        for node in ast.walk(home):
            if isinstance(node, ast.Assign) and isinstance(
                node.value, (ast.BinOp, ast.Call, ast.Name, ast.Attribute, ast.Tuple)
            ):
                pairs: list[tuple[ast.expr, ast.expr]] = [(node.targets[0], node.value)]
                if isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple):
                    pairs = list(zip(node.targets[0].elts, node.value.elts, strict=False))
                for target, value in pairs:
                    if found & {ast.unparse(n) for n in ast.walk(value) if isinstance(n, (ast.Name, ast.Attribute))}:
                        found.add(ast.unparse(target))
    return found


def _is_hidden(module: Object, name: str) -> bool:
    """Whether an attribute is a part of a module under the name of one of its methods, which is found before it: after
    `self.parameters = nn.ParameterList(...)`, `model.parameters()` is the method as ever."""
    if "module" not in module.roles or name not in MODULE_METHODS:
        return False
    held = module.attributes[name].things
    return any(isinstance(t, Object) and t.roles & {"module", "parameter"} for t in held)


def _given(thing: Thing) -> list[Value]:
    return [*thing.args, *thing.keywords.values()] if isinstance(thing, Object) else []


def _cuts(node: ast.expr) -> bool:
    """Whether a draw is a part of the data, or of its order."""
    return isinstance(node, ast.Subscript) or isinstance(node, ast.Call) and _last(node) in (*SPLITTING, "BatchSampler")


def _is_permuting(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and _last(node) in ("randperm", "permutation")


def _hashable(value: Any) -> bool:
    return isinstance(value, (str, int, float, bool, bytes, type(None)))


def _is_part(index: ast.expr) -> bool:
    """`images[2:5]`, `images[:-1]`, `images[::2]`: a part of a batch, or of the fields of one"""
    if not isinstance(index, ast.Slice):
        return False
    bounds = [each for each in (index.lower, index.upper, index.step) if each is not None]
    plain = (each.operand if isinstance(each, ast.UnaryOp) else each for each in bounds)
    return any(_number(each) != 0 for each in bounds) and all(_number(each) is not None for each in plain)


def _is_head(index: ast.expr) -> bool:
    """`images[:8]`"""
    if not isinstance(index, ast.Slice) or index.step is not None or index.lower is not None:
        return False
    return _number(index.upper) is not None if index.upper is not None else False


def _number(node: ast.expr) -> int | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, int) else None


def _last(node: ast.expr) -> str:
    if isinstance(node, ast.Call):
        node = node.func
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _is_size(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "size"
        and not node.args
    )


def children_of(node: ast.expr) -> Iterator[ast.expr]:
    """The expressions that one is computed from."""
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute):
            yield node.func.value
        for arg in node.args:
            yield arg.value if isinstance(arg, ast.Starred) else arg
        yield from (keyword.value for keyword in node.keywords)
    elif not isinstance(node, (ast.List, ast.Tuple, ast.Set, ast.Dict, ast.Lambda, ast.ListComp, ast.JoinedStr)):
        yield from (child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr))


def _asks_size(node: ast.expr, source: Source) -> bool:
    """`x.shape`, `len(x)`: what is asked of the whole."""
    parent = source.parents.get(node)
    if isinstance(parent, ast.Attribute):
        return parent.attr in ("shape", "size", "ndim", "dim", "dtype", "device", "numel")
    return isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name) and parent.func.id == "len"


def _is_known(thing: Thing) -> bool:
    """Whether all keys of a dict are known; those of `dict(settings)` and `settings["model"]` are not."""
    copied = isinstance(thing, Table) and isinstance(thing.node, ast.Call) and bool(thing.node.args)
    return isinstance(thing, Table) and (bool(thing.entries) or not copied and thing.element is NOTHING)


def _is_class_method(function: Function) -> bool:
    return not isinstance(function.node, ast.Lambda) and "classmethod" in map(_last, function.node.decorator_list)


def _counted_of(node: ast.expr) -> ast.expr | None:
    """The tensor of `len(x)`, `x.size(0)` and `x.shape[0]`."""
    if isinstance(node, ast.Call) and _last(node.func) == "len" and len(node.args) == 1:
        return node.args[0]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "size":
        return node.func.value
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
        return node.value.value
    return None


def _is_of_one(node: ast.expr) -> bool:
    """Whether something is computed from a batch of one sample: `x[None]`, `x[i : i + 1]`, `x.unsqueeze(0)`."""
    for each in ast.walk(node):
        if isinstance(each, ast.Subscript):
            first = each.slice.elts[0] if isinstance(each.slice, ast.Tuple) and each.slice.elts else each.slice
            if _is_new_axis(first):
                return True
            upper = first.upper if isinstance(first, ast.Slice) else None
            if isinstance(first, ast.Slice) and isinstance(upper, ast.BinOp) and first.lower is not None:
                plain = (
                    isinstance(upper.op, ast.Add) and isinstance(upper.right, ast.Constant) and upper.right.value == 1
                )
                if plain and ast.unparse(upper.left) == ast.unparse(first.lower):
                    return True
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr == "unsqueeze":
            if each.args and isinstance(each.args[0], ast.Constant) and each.args[0].value == 0:
                return True
    return False


def _adds_to(node: ast.Assign) -> bool:
    """`total = total + number`"""
    adds = isinstance(node.value, ast.BinOp) and isinstance(node.value.op, ast.Add) and len(node.targets) == 1
    return adds and ast.unparse(node.targets[0]) == ast.unparse(node.value.left)  # type: ignore[attr-defined]


def _is_super(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"


def _steps(loop: ast.AST) -> bool:
    """`range(0, n, step)`"""
    return isinstance(loop, ast.Call) and len(loop.args) == 3


def _is_cleared(gradient: ast.Attribute, source: Source) -> bool:
    """`p.grad.zero_()`, `p.grad is None`: what it is does not matter."""
    parent = source.parents[gradient]
    if isinstance(parent, ast.Attribute):
        return parent.attr in ("zero_", "detach_", "requires_grad_")
    return isinstance(parent, ast.Compare) and isinstance(parent.ops[0], (ast.Is, ast.IsNot))


def _is_generator(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    pending: list[ast.AST] = list(node.body)
    while pending:
        current = pending.pop()
        if isinstance(current, (ast.Yield, ast.YieldFrom)):
            return True
        if not isinstance(current, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            pending += ast.iter_child_nodes(current)
    return False


def _order(thing: Thing) -> tuple[str, int, int]:
    """An order that does not depend on addresses."""
    if isinstance(thing, Wrapped):
        return _order(thing.module)
    node = getattr(thing, "node", None)
    return (
        type(thing).__name__ + str(getattr(thing, "name", "")),
        getattr(node, "lineno", 0),
        getattr(node, "col_offset", 0),
    )


def _class_of(value: Value) -> Value:
    """`type(x)`, if the project defines it."""
    bare = [t.module if isinstance(t, Wrapped) else t for t in value.things]
    return Value(frozenset(t.cls for t in bare if isinstance(t, Object) and t.cls is not None))
