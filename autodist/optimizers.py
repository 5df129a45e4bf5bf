"""Optimizers whose state the ranks share out, and where the script takes that state."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from autodist.fsdp.sharding import rank_check
from autodist.interpreter import LBFGS, Event, Interpreter
from autodist.models import optimized_by
from autodist.script import Model, OptimizerState, PartedOptimizer, Site
from autodist.source import Source
from autodist.values import NOTHING, External, Items, Object, Table, Value

ZERO = "torch.distributed.optim.ZeroRedundancyOptimizer"
BETAS = ("lr", "betas", "eps", "weight_decay")
POSITIONS = {
    "SGD": ("lr", "momentum", "dampening", "weight_decay", "nesterov"),
    "Adam": BETAS,
    "AdamW": BETAS,
    "Adamax": BETAS,
    "NAdam": BETAS,
    "RAdam": BETAS,
    "RMSprop": ("lr", "alpha", "eps", "weight_decay", "momentum"),
    "Adagrad": ("lr", "lr_decay", "weight_decay"),
    "Adadelta": ("lr", "rho", "eps", "weight_decay"),
}
"""What the arguments after the parameters are called."""

CYCLES = ("OneCycleLR", "CyclicLR")
OWN_LINES = (ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.With)


def parted(
    run: Interpreter, models: Iterable[Model], guards: Iterable[Site]
) -> tuple[list[PartedOptimizer], list[OptimizerState]]:
    """The calls that make optimizers of replicated models, and the states that are taken of those."""
    wrapped = any(not model.sharded for model in models)
    made: dict[ast.Call, tuple[Source, Object]] = {}
    for event in run.of("optimizer"):
        for optimizer in event.value.objects("optimizer"):
            if optimizer.name != ZERO and optimizer.node.func is not None:
                made.setdefault(optimizer.node, (optimizer.source, optimizer))
    taken = [event for event in run.of("optimizer_state_dict") if isinstance(event.node, ast.Call)]
    guarded = frozenset(site.node for site in guards)
    states = {event.node: _state(event, run, guarded) for event in taken}
    cycled = _cycled(run)
    found = {}
    for node, (source, optimizer) in made.items():
        events = [event for event in taken if any(t.node is node for t in event.value.objects("optimizer"))]
        reasons = [state for event in events if isinstance(state := states[event.node], str)]
        own = optimizer.cls is not None
        found[node] = PartedOptimizer(
            next((Site(e.source, e.node) for e in run.of("make") if own and optimizer in e.value.things), None)
            or Site(source, node),
            tuple(_generators(optimizer)),
            _names(optimizer),
            node in cycled,
            _whole(optimizer, run) or next(iter(reasons), None) if wrapped else "its model is sharded already",
        )
    for _ in made:  # a state that is taken of several optimizers in one place is that of all of them
        for event in taken:
            held = [t.node for t in event.value.objects("optimizer") if t.node in found]
            reason = next((found[node].whole for node in held if found[node].whole), None)
            for node in held if reason else ():
                found[node] = PartedOptimizer(found[node].site, whole=reason)
    kept = [
        state
        for event in taken
        if isinstance(state := states[event.node], OptimizerState)
        and any(t.node in found and not found[t.node].whole for t in event.value.objects("optimizer"))
    ]
    return list(found.values()), list({state.site.node: state for state in kept}.values())


def _whole(optimizer: Object, run: Interpreter) -> str | None:
    """Why all ranks keep all of an optimizer's state."""
    node = optimizer.node
    if optimizer.cls is not None:
        return f"{optimizer.cls.node.name} is a class of the script's own, which may step on all parameters at once"
    chosen = isinstance(node.func, ast.Call) and getattr(node.func.func, "id", "") == "getattr"
    if not chosen and not isinstance(node.func, (ast.Name, ast.Attribute, ast.Subscript)):
        return "its class cannot be seen"
    things = run.values.get(node.func, NOTHING).things
    if (
        not chosen
        and not all(isinstance(t, External) and t.name.rpartition(".")[2][:1].isupper() for t in things)
        or not (chosen or things)
    ):
        return "it is made by a function, not by its class"
    if optimizer.name.endswith(LBFGS):
        return "L-BFGS steps along all parameters at once"
    if not node.args and all(k.arg != "params" for k in node.keywords):
        return "its parameters cannot be seen"
    if any(isinstance(a, ast.Starred) for a in node.args) or len(node.args) - 1 > len(_names(optimizer)):
        return "what its arguments mean cannot be seen"
    if not optimized_by(optimizer):
        return "its parameters cannot be seen"
    for source, use in ((run.sources[n], n) for n in run.values if isinstance(n, ast.Attribute) and n.attr == "state"):
        if any(t.node is node for t in run.values.get(use.value, NOTHING).objects("optimizer")):
            return f"line {use.lineno} of {source.path.name} looks into its state"
    for event in run.of("optimizer_load_state_dict"):
        if any(t.node is node for t in event.value.objects("optimizer")):
            if any("state" in t.roles for v in _arguments(event, run) for t in v.things if isinstance(t, Object)):
                return "a state that was kept in memory is loaded into it, and only rank 0 has one"
    return None


def _arguments(event: Event, run: Interpreter) -> Iterator[Value]:
    assert isinstance(event.node, ast.Call)
    for argument in (*event.node.args, *(k.value for k in event.node.keywords)):
        yield run.values.get(argument, NOTHING)


def _names(optimizer: Object) -> tuple[str, ...]:
    given = len(optimizer.node.args) - 1
    return POSITIONS.get(optimizer.name.rpartition(".")[2], ("lr",))[: max(given, 0)]


def _generators(optimizer: Object) -> Iterator[ast.expr]:
    """`{"params": model.head.parameters()}`: it is read twice, and would be empty by then."""
    seen: set[int] = set()
    pending = [*optimizer.args, *optimizer.keywords.values()]
    while pending:
        for thing in pending.pop().things:
            if id(thing) in seen:
                continue
            seen.add(id(thing))
            if isinstance(thing, Items):
                pending += [*thing.parts, thing.element]
            elif isinstance(thing, Table):
                for value in _entries(thing.node):
                    if isinstance(value, ast.GeneratorExp) or isinstance(value, ast.Call) and _is_lazy(value):
                        yield value


def _entries(node: ast.AST) -> Iterator[ast.expr]:
    """What stands under `"params"` where a dict is made."""
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        yield from (v for k, v in pairs if isinstance(k, ast.Constant) and k.value == "params")
    elif isinstance(node, ast.Call):
        yield from (k.value for k in node.keywords if k.arg == "params")


def _is_lazy(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return name in ("parameters", "filter", "map", "chain", "from_iterable")


def _cycled(run: Interpreter) -> set[ast.AST]:
    """Calls that make optimizers whose momentum a scheduler moves."""
    found: set[ast.AST] = set()
    for value in run.values.values():
        for thing in value.things:
            if isinstance(thing, Object) and thing.name.endswith(CYCLES):
                given = thing.argument("optimizer", 0) or NOTHING
                found |= {t.node for t in given.objects("optimizer")}
    return found


def _state(event: Event, run: Interpreter, guarded: frozenset[ast.AST]) -> OptimizerState | str:
    """How a state is gathered, or why it cannot be."""
    source, node = event.source, event.node
    assert isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    target = source.code(node.func.value)
    parent = source.parents.get(node)
    statement = source.statement(node)
    if isinstance(parent, ast.Subscript) and isinstance(parent.slice, ast.Constant):
        if parent.slice.value == "param_groups":
            return OptimizerState(Site(source, node), target, statement, False, parent)
    line = f"line {node.lineno} of {source.path.name}"
    alone: ast.stmt | None = None
    for ancestor in source.ancestors(node):
        if isinstance(ancestor, (ast.FunctionDef, ast.AsyncFunctionDef)):
            break
        if isinstance(ancestor, (ast.Lambda, ast.ListComp, ast.DictComp, ast.SetComp, ast.GeneratorExp)):
            return f"{line} takes its state inside an expression"
        if ancestor in guarded and isinstance(ancestor, ast.stmt):
            alone = ancestor
    if event.on_one_rank:
        alone = rank_check(event, run)
        if alone is None:
            return f"{line} takes its state on one rank"
    if alone is None and not isinstance(statement, OWN_LINES):
        return f"{line} takes its state inside a condition"
    return OptimizerState(Site(source, node), target, alone or statement, alone is not None)
