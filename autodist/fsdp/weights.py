"""Parameters and gradients that a script computes with outside of its models: FSDP leaves each rank a share of them.

What is computed from shards element by element is sharded as they are, and a number that is made of all elements is
gathered. Gradients that reach a parameter past the forward pass are not averaged over the ranks: that is right for a
term such as a norm, which is the same on all of them, as long as nothing of a rank's own samples scales it.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum

from autodist import tensors
from autodist.fsdp.sharding import bare, began
from autodist.interpreter import CUTTING, SIZES, Interpreter, children_of
from autodist.models import Keys, keys, members, optimized_by, parts, unwrapped
from autodist.rule import Severity
from autodist.script import Concern, Model, Site
from autodist.source import Source, operands
from autodist.values import (
    NOTHING,
    External,
    Function,
    Inside,
    Object,
    OptimizerState,
    Parameters,
    Thing,
    Wrapped,
    of,
)

PRINTING = frozenset("print str repr format float int bool".split())
LINEAR = frozenset(
    "backward scale add add_ sub sub_ neg mean sum float double to cpu cuda clone squeeze view reshape retain_grad "
    "isnan isfinite isinf is_tensor no_grad stack requires_grad_ type".split()
)
"""What leaves a term of a sum a term with the same factor, or takes no part in the gradient."""
SCALING = frozenset("mul mul_ div div_ true_divide".split())
COMPUTING = ("torch", "torch.linalg", "torch.fft", "torch.special", "torch.nn.functional")
"""Where torch has its functions over tensors."""
FREE = frozenset(
    "is_tensor numel is_floating_point is_complex zeros_like ones_like empty_like full_like rand_like "
    "randn_like save set_printoptions no_grad enable_grad typename result_type promote_types finfo".split()
)
"""Functions of torch that a shard answers for, or gives another shard."""
ADDING = tensors.SUMS | tensors.MEANS | tensors.NORMS | {"any", "all", "std", "var"}
"""What can be put together from the numbers of the shards, some of which may be empty."""
ALONG = frozenset("softmax log_softmax softmin cumsum cumprod logcumsumexp flip roll".split())
"""What makes elements of those beside them along an axis."""
RULE = "AD907"


@dataclass(frozen=True)
class Use:
    """An expression that has to be made whole; ``flows`` if gradients go through it to the parameters of ``owners``.

    ``number`` is what it is a part of, if that may be gathered in its place.
    """

    site: Site
    flows: bool
    owners: frozenset[Thing]
    number: ast.AST | None


def uses(run: Interpreter, models: list[Model]) -> list[Use]:
    """What the script reads of shards outside of its models, each once."""
    ours = sharded_keys(run, models)
    found: list[Use] = []
    for node in sharded_reads(run, models):
        source = run.sources[node]
        owners = _owners(node, run, ours)
        if owners and _is_start(node, run, ours):
            use = _use(node, source, run, owners)
            found += _where_given(use, run, ours) if use is not None else []
    gathered = {use.number for use in found if use.flows and use.number is not None}
    merged: dict[ast.AST, Use] = {}
    for use in found:
        if use.number in gathered and use.number is not None:
            use = replace(use, site=Site(use.site.source, use.number))
        earlier = merged.get(use.site.node)
        if earlier is not None:
            use = replace(use, flows=use.flows or earlier.flows, owners=use.owners | earlier.owners)
        merged[use.site.node] = use
    return list(merged.values())


def sharded_keys(run: Interpreter, models: Iterable[Model]) -> Keys:
    """The keys of the parts of sharded models, and of modules around them whose parameters the script reads: `ema`,
    which has a copy in `self.module`, and `nn.ModuleList([model, head])`."""
    ours = frozenset(members(model for model in models if not model.wrapped))
    return ours | keys(around(run, ours))


def around(run: Interpreter, ours: Keys) -> list[Object]:
    """The modules around sharded ones whose parameters the script reads."""
    things = (t for node in run.apart for t in run.values.get(node, NOTHING).things)
    read = dict.fromkeys(bare(t.module) for t in things if isinstance(t, Parameters))
    modules = (each for each in read if isinstance(each, Object) and each.key not in ours)
    return [each for each in modules if not ours.isdisjoint(part.key for part in parts(each))]


def _is_partly_whole(module: Object, ours: Keys) -> bool:
    """Whether a module around sharded ones has parameters besides theirs."""
    others = [part for part in parts(module) if part.key not in ours]
    loose = any(True for part in others for value in part.attributes.values() for _ in value.objects("parameter"))
    return loose or any(part.cls is None and len(parts(part)) == 1 and part is not module for part in others)


def sharded_reads(run: Interpreter, models: list[Model]) -> Iterator[ast.expr]:
    """What the script computes from parameters outside of its models, in its order, but for what it reads only until
    these are sharded."""
    begun = began(run, models)
    for node in sorted(run.apart, key=lambda each: (each.lineno, each.col_offset)):
        things = run.values.get(node, NOTHING).things
        held = keys(t for each in things if isinstance(each, Parameters) for t in unwrapped(of(each.module)))
        met = [begun[key] for key in held if key in begun]
        if len(met) < len(held) or not held or any(b.is_after(node, run.apart[node], run.sources[node]) for b in met):
            yield node


def _owners(node: ast.expr, run: Interpreter, ours: Keys) -> frozenset[Thing]:
    """The modules of ours one of whose parameters an expression is."""
    if not isinstance(node, (ast.Name, ast.Attribute, ast.Subscript, ast.Call)):
        return frozenset()
    if not isinstance(node, ast.Call) and not isinstance(node.ctx, ast.Load):
        return frozenset()
    things = run.values.get(node, NOTHING).things
    found = {t.module for t in things if isinstance(t, Parameters) and t.one}
    return frozenset(t for t in found if keys(unwrapped(of(t))) & ours)


def _is_start(node: ast.expr, run: Interpreter, ours: Keys) -> bool:
    """Whether an expression is where a parameter comes from: neither computed from one, nor part of a longer name."""
    if isinstance(node, ast.Call):
        if any(isinstance(t, Function) for t in run.values.get(node.func, NOTHING).things):
            return True
        return not any(_is_computed(each, run, ours) for each in operands(node))
    return not isinstance(node, (ast.Attribute, ast.Subscript)) or not _owners(node.value, run, ours)


def _is_computed(node: ast.expr, run: Interpreter, ours: Keys) -> bool:
    """Whether an expression is a parameter, or computed from one: `(p - q).abs()`"""
    if isinstance(node, (ast.BinOp, ast.Compare)):
        return any(_is_computed(each, run, ours) for each in operands(node))
    return _is_computed(node.operand, run, ours) if isinstance(node, ast.UnaryOp) else bool(_owners(node, run, ours))


def _where_given(use: Use, run: Interpreter, ours: Keys) -> list[Use]:
    """The use, or what callers give where a function of the script takes parameters and other tensors alike."""
    source, name = use.site.source, use.site.node
    while isinstance(name, ast.Attribute):
        name = name.value
    if isinstance(name, ast.expr) and not _owners(name, run, ours):
        return [use]  # what is given is a model
    scope = source.function(name)
    taken = [] if scope is None else [*scope.args.posonlyargs, *scope.args.args, *scope.args.kwonlyargs]
    at = next((i for i, each in enumerate(taken) if isinstance(name, ast.Name) and each.arg == name.id), None)
    if at is None:
        return [use]
    given = [
        argument
        for call in run.values
        if isinstance(call, ast.Call)
        and any(isinstance(t, Function) and t.node is scope for t in run.values.get(call.func, NOTHING).things)
        and (argument := _argument(call, at, taken[at].arg)) is not None
    ]
    held = {argument: _owners(argument, run, ours) for argument in given}
    if all(held.values()):
        return [use]
    return [Use(Site(run.sources[node], node), use.flows, owners, None) for node, owners in held.items() if owners]


def _argument(call: ast.Call, at: int, name: str) -> ast.expr | None:
    """What a call gives for a parameter of the function."""
    named = next((k.value for k in call.keywords if k.arg == name), None)
    return call.args[at] if named is None and at < len(call.args) else named


class Step(Enum):
    """What an operation makes of a tensor that is sharded."""

    ELEMENTS = "another tensor that is sharded like it"
    NUMBER = "what has to be gathered"
    WHOLE = "what only the whole tensor answers for"
    NOTHING = "nothing that a shard does not say"


def _use(start: ast.expr, source: Source, run: Interpreter, owners: frozenset[Thing]) -> Use | None:
    """How a parameter is used, going up from its name."""
    # what is computed from a parameter and from one without its graph, as `p - old`, has gradients
    cut = all(t.cut for t in run.values.get(start, NOTHING).things if isinstance(t, Parameters))
    root = current = start
    while True:
        above = source.parents.get(current)
        parent = source.parents.get(above) if isinstance(above, ast.keyword) else above
        outer = source.parents.get(parent) if parent is not None else None
        if isinstance(parent, ast.Attribute) and parent.attr in ("data", "grad"):
            cut, root = True, parent if current is root else root
            current = parent
            continue
        step = Step.NOTHING
        reached: ast.AST | None = parent
        if isinstance(parent, ast.Attribute):
            called = isinstance(outer, ast.Call) and outer.func is parent
            reached = outer if called else parent
            step = _method(parent.attr, outer) if isinstance(outer, ast.Call) and called else _attribute(parent.attr)
            cut = cut or parent.attr == "detach"
        elif isinstance(parent, (ast.List, ast.Tuple)) and isinstance(outer, ast.Call):
            step, reached = _function(outer, run), outer  # `torch.cat([a, b])`
        elif isinstance(parent, ast.Call):
            step = _function(parent, run)
        elif parent is not None:
            step = _operation(current, parent)
        if step is Step.NOTHING:
            return None
        if step is Step.ELEMENTS and isinstance(reached, ast.expr):
            current = reached
            continue
        flows = not cut and reached in run.flowing
        return Use(Site(source, root), flows, owners, reached if step is Step.NUMBER else None)


def _attribute(name: str) -> Step:
    return Step.WHOLE if name in ("T", "mT", "H") else Step.NOTHING


def _reduced(name: str, call: ast.Call, start: int) -> Step:
    """A shard may be empty, and then has no maximum: such numbers are made of the whole tensor."""
    order = call.args[start] if name in tensors.NORMS and len(call.args) > start else None
    order = next((k.value for k in call.keywords if k.arg in ("p", "ord")), order)
    known = order is None or isinstance(order, ast.Constant) and order.value in (1, 2, "fro")
    return Step.NUMBER if known and name in ADDING else Step.WHOLE


def _goes_along(name: str, call: ast.Call, start: int) -> bool:
    """Whether elements become others by what is beside them along the first axis, by which parameters are cut."""
    axis = tensors.axis(call, start)
    return name in ALONG and not (type(axis) is int and axis > 0)


def _method(name: str, call: ast.Call) -> Step:
    if _goes_along(name, call, 0):
        return Step.WHOLE
    if tensors.reduces(name, call, 0):
        return _reduced(name, call, 0)
    if tensors.stays_sharded(name) or _keeps_rows(name, call, 0):
        return Step.ELEMENTS
    return Step.WHOLE if tensors.takes_apart(name) or tensors.reduces_axis(name) else Step.NOTHING


def _keeps_rows(name: str, call: ast.Call, start: int) -> bool:
    """Whether torch reduces an axis of shards rightly: parameters are cut along the first one."""
    if name in tensors.SUMS | tensors.MEANS:
        return True
    axis = tensors.axis(call, start + 1 if name in tensors.NORMS else start)
    return tensors.reduces_axis(name) and type(axis) is int and axis > 0


def _function(call: ast.Call, run: Interpreter) -> Step:
    """What a function makes of a sharded argument."""
    known = (t.name for t in run.values.get(call.func, NOTHING).things if isinstance(t, External))
    library, _, name = next(known, "").rpartition(".")
    if library == "builtins":
        return Step.WHOLE if name in PRINTING else Step.NOTHING
    if library in COMPUTING:
        if library == "torch.linalg" and name in ("norm", "matrix_norm") and len(call.args) + len(call.keywords) > 1:
            return Step.WHOLE  # of a matrix, by its singular values
        if _goes_along(name, call, 1):
            return Step.WHOLE
        if tensors.reduces(name, call, 1):
            return _reduced(name, call, 1)
        if tensors.stays_sharded(name) or _keeps_rows(name, call, 1):
            return Step.ELEMENTS
        return Step.NOTHING if name in FREE else Step.WHOLE
    base = run.values.get(call.func.value, NOTHING) if isinstance(call.func, ast.Attribute) else NOTHING
    asked = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    writes = any("writer" in t.roles or t.looks_up(asked) for t in base.things if isinstance(t, Object))
    return Step.WHOLE if writes or _reads_numbers(library, name) else Step.NOTHING


def _reads_numbers(library: str, name: str) -> bool:
    """Whether a function of a library that knows nothing of shards reads a tensor it is given: `wandb.Histogram(w)`."""
    root = library.partition(".")[0]
    return root in ("math", "statistics") or not (
        name.endswith("_") or root.startswith("torch") or not root or root in sys.stdlib_module_names
    )


def _operation(operand: ast.expr, node: ast.AST) -> Step:
    match node:
        case ast.BinOp(op=ast.MatMult() | ast.Mod()) | ast.FormattedValue() | ast.BoolOp():
            return Step.WHOLE
        case ast.UnaryOp(op=ast.Not()):
            return Step.WHOLE
        case (
            ast.Compare(ops=[ast.Lt() | ast.LtE() | ast.Gt() | ast.GtE() | ast.Eq() | ast.NotEq()])
            | ast.BinOp()
            | ast.UnaryOp()
        ):
            return Step.ELEMENTS
        case ast.Subscript(value=value, slice=index) if value is operand:
            first = index.elts[0] if isinstance(index, ast.Tuple) and index.elts else index
            rows = isinstance(first, ast.Slice) and first.lower is first.upper is first.step is None
            return Step.ELEMENTS if rows else Step.WHOLE
        case ast.IfExp(test=test) if test is not operand:
            return Step.ELEMENTS
        case ast.NamedExpr():
            return Step.ELEMENTS
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test) | ast.Assert(test=test):
            return Step.WHOLE if test is operand else Step.NOTHING
    return Step.NOTHING


# -------------------------------------------------------------------- gradients


def concerns(run: Interpreter, models: list[Model]) -> Iterator[Concern]:
    """Where gradients reach parameters past the forward pass, and would not be those of the whole batch."""
    ours = sharded_keys(run, models)
    for node in sorted(run.flowing, key=lambda each: (each.lineno, each.col_offset)):
        if keys(_weights(node, run)) & ours and _is_scaled(node, run):
            message = (
                "scales a term that is computed from parameters outside the model by what is this rank's own: the "
                "gradients of such a term are not averaged over the ranks; add it to the loss, or compute it in the "
                "model's forward"
            )
            yield Concern(RULE, run.sources[node], node, message, Severity.REFUSAL)
            return
    found = uses(run, models)
    alone = frozenset(members(model for model in models if not model.wrapped))
    partly = keys(each for each in around(run, alone) if _is_partly_whole(each, alone))
    for use in found:
        if keys(map(bare, use.owners)) & partly:
            message = (
                "reads parameters of a module around a sharded one, of which others are whole: read those of each of "
                "the modules in it by themselves"
            )
            yield Concern(RULE, use.site.source, use.site.node, message, Severity.REFUSAL)
            return
    gathered = keys(bare(t) for use in found if use.flows for t in use.owners)
    for event in run.of("backward"):
        wanted = keys(bare(t) for t in event.value.weights) & ours
        if wanted - gathered:
            message = (
                "differentiates a loss with a term of parameters that are read outside the model, and of which each "
                "rank has a share: compute it from `sum`, `norm` or another number of each parameter, or in the "
                "model's forward"
            )
            yield Concern(RULE, event.source, event.node, message, Severity.REFUSAL)
            return
    yield from _in_methods(run, models, found)
    yield from _in_hooks(run, found)
    yield from _in_states(run, ours)
    yield from _lists(run, models, ours)
    yield from _copied(run, models, ours)
    yield from _unclear(run, ours)


def _lists(run: Interpreter, models: list[Model], ours: Keys) -> Iterator[Concern]:
    """Functions that make one tensor of several parameters."""
    for node in sharded_reads(run, models):
        things = [t for t in run.values.get(node, NOTHING).things if isinstance(t, Parameters)]
        source = run.sources[node]
        call = source.parents.get(node)
        if not things or any(t.one for t in things) or not isinstance(call, ast.Call) or call.func is node:
            continue
        known = [t.name.rpartition(".") for t in run.values.get(call.func, NOTHING).things if isinstance(t, External)]
        joins = any(
            library in COMPUTING and name not in FREE and not (name.startswith("_foreach_") and name.endswith("_"))
            for library, _, name in known
        )
        joins = joins or any(name in ("parameters_to_vector", "vector_to_parameters") for _, _, name in known)
        if joins and any(keys(unwrapped(of(t.module))) & ours for t in things):
            message = (
                "makes one tensor of parameters, of which each rank has shares: give it `[p.full_tensor() for p in "
                "...]` where it only reads them, or use --strategy ddp"
            )
            yield Concern(RULE, source, call, message, Severity.REFUSAL)
            return


def _copied(run: Interpreter, models: list[Model], ours: Keys) -> Iterator[Concern]:
    """`copy.deepcopy(dict(model.named_parameters()))`, which has no storage to copy once a model has run."""
    sharded = frozenset(sharded_reads(run, models))
    for call in [node for node in run.values if isinstance(node, ast.Call) and len(node.args) == 1]:
        if not any(
            isinstance(t, External) and t.name == "copy.deepcopy" for t in run.values.get(call.func, NOTHING).things
        ):
            continue
        if call.args[0] in run.apart and call.args[0] not in sharded:
            continue
        held = run.parameters_in(run.values.get(call.args[0], NOTHING))
        if any(not t.cut and keys(unwrapped(of(t.module))) & ours for t in held):
            message = (
                "copies parameters of which each rank has a share, and torch cannot: keep `p.detach().clone()` of each "
                "of them instead"
            )
            yield Concern(RULE, run.sources[call], call, message, Severity.REFUSAL)
            return


def _in_hooks(run: Interpreter, found: list[Use]) -> Iterator[Concern]:
    """Hooks of layers run while a parameter is whole, or after it is sharded again."""
    hooks = {each.node for event in run.of("forward_hook") for each in event.detail.functions}
    for use in found:
        if not hooks.isdisjoint(use.site.source.ancestors(use.site.node)):
            message = "reads a parameter in a hook of a layer, where it is whole or not: read it in the training loop"
            yield Concern(RULE, use.site.source, use.site.node, message, Severity.REFUSAL)
            return


def _unclear(run: Interpreter, ours: Keys) -> Iterator[Concern]:
    """Tensors that are read out of a sharded model or its optimizer, and may be parameters or not."""
    for node in sorted(run.apart, key=lambda each: (each.lineno, each.col_offset)):
        things = run.values.get(node, NOTHING).things
        held = [t.module for t in things if isinstance(t, Inside) or isinstance(t, OptimizerState) and not t.depth]
        known = any(isinstance(t, Parameters) for t in things)
        if known or not any(keys(unwrapped(of(t))) & ours for t in held):
            continue
        source = run.sources[node]
        if _reads(node, source, run):
            message = (
                "reads a tensor of a sharded model or of its optimizer, and it cannot be seen whether each rank has a "
                "share of it: name the parameter, as in `model.fc.weight`, which is gathered"
            )
            yield Concern(RULE, source, node, message, Severity.REFUSAL)
            return


def _reads(node: ast.expr, source: Source, run: Interpreter) -> bool:
    """Whether an expression is certainly a tensor whose values are read."""
    current: ast.AST = node
    while True:
        parent = source.parents.get(current)
        outer = source.parents.get(parent) if parent is not None else None
        reached: ast.AST | None = parent
        if isinstance(parent, ast.Attribute) and parent.value is current:
            if not isinstance(outer, ast.Call) or outer.func is not parent:
                return False
            step, reached = _method(parent.attr, outer), outer
        elif isinstance(parent, ast.Call) and parent.func is not current:
            step = _function(parent, run)
            if getattr(parent.func, "id", "") in PRINTING:
                return getattr(parent.func, "id", "") == "float"
        elif isinstance(parent, ast.BinOp):
            step = Step.ELEMENTS
        else:
            return False
        if step is not Step.ELEMENTS or reached is None:
            return step in (Step.NUMBER, Step.WHOLE)
        current = reached


def _in_states(run: Interpreter, ours: Keys) -> Iterator[Concern]:
    """Numbers that are read from a state dict, whose tensors are shards as well."""
    gathered = {site.node for site in whole_states(run, ours)}
    made = {event.node for event in run.of("model_state_dict") if keys(unwrapped(event.value)) & ours}
    made |= {
        event.node
        for event in run.of("optimizer_state_dict")
        if any(part.key in ours for t in event.value.objects("optimizer") for m in optimized_by(t) for part in parts(m))
    }
    states = [
        node
        for node, value in run.values.items()
        if any(isinstance(t, Object) and "state" in t.roles and t.node in made for t in value.things)
    ]
    for state in states:
        source = run.sources[state]
        for tensor in _tensors_of(state, source) if state not in gathered else ():
            if _use(tensor, source, run, frozenset()) is not None:
                message = (
                    "reads a tensor of a state dict, of which each rank has a share: read it from the model or the "
                    "optimizer itself, which is gathered"
                )
                yield Concern(RULE, source, tensor, message, Severity.REFUSAL)
                return


def whole_states(run: Interpreter, ours: Keys) -> Iterator[Site]:
    """States of sharded models whose tensors are read where they are taken, and not changed through them:
    `{k: v.cpu().numpy() for k, v in model.state_dict().items()}`"""
    seen: set[ast.AST] = set()
    for event in run.of("model_state_dict"):
        node, source = event.node, event.source
        if (
            node in seen
            or event.on_one_rank
            or not isinstance(node, ast.Call)
            or not keys(unwrapped(event.value)) & ours
        ):
            continue
        seen.add(node)
        tensors = list(_tensors_of(node, source))
        changed = any(_is_changed(each, source) for each in tensors)
        if not changed and any(_use(each, source, run, frozenset()) is not None for each in tensors):
            yield Site(source, node)


def _is_changed(tensor: ast.expr, source: Source) -> bool:
    """`v *= 0.9`, `v.copy_(w)`, `v.data.zero_()`"""
    name = ast.unparse(tensor)
    if any(isinstance(n, ast.AugAssign) and ast.unparse(n.target) == name for n in ast.walk(source.home(tensor))):
        return True
    parent = source.parents.get(tensor)
    while isinstance(parent, ast.Attribute):
        if parent.attr.endswith("_"):
            return True
        parent = source.parents.get(parent)
    return False


def _tensors_of(state: ast.expr, source: Source) -> Iterator[ast.expr]:
    """`state["weight"]`, and `v` where a loop takes it from `state.items()` or `state.values()`."""
    above = source.parents.get(state)
    if isinstance(above, ast.Subscript) and above.value is state and isinstance(above.ctx, ast.Load):
        if not (isinstance(above.slice, ast.Constant) and above.slice.value == "param_groups"):
            yield above
    call = source.parents.get(above) if isinstance(above, ast.Attribute) else None
    loop = source.parents.get(call) if isinstance(call, ast.Call) else None
    if not isinstance(above, ast.Attribute) or not isinstance(loop, (ast.For, ast.comprehension)):
        return
    if loop.iter is not call or above.attr not in ("items", "values"):
        return
    pair = above.attr == "items" and isinstance(loop.target, ast.Tuple) and len(loop.target.elts) == 2
    target = loop.target.elts[1] if pair and isinstance(loop.target, ast.Tuple) else loop.target
    body = loop if isinstance(loop, ast.For) else source.parents[loop]
    if isinstance(target, ast.Name):
        for node in ast.walk(body):
            if isinstance(node, ast.Name) and node.id == target.id and isinstance(node.ctx, ast.Load):
                yield node


def left_whole(run: Interpreter, models: list[Model]) -> Iterator[Concern]:
    """Without sharding after forward passes: a loss finds parameters of blocks whole, or shards of others."""
    for use in uses(run, models):
        if use.flows and any(model.units for model in models):
            message = (
                "computes a loss from parameters, which are whole in some layers and shards in others after the "
                "forward pass: leave --no-reshard-after-forward away"
            )
            yield Concern(RULE, use.site.source, use.site.node, message, Severity.REFUSAL)
            return


def _in_methods(run: Interpreter, models: list[Model], found: list[Use]) -> Iterator[Concern]:
    """Methods that run layers have whole parameters already, of the model alone and not of its blocks."""
    for use in found:
        scope = use.site.source.function(use.site.node)
        for model in models:
            cls = model.object.cls
            values = [each.find(scope.name) for each in cls.line()] if cls is not None and scope is not None else []
            inside = any(getattr(t, "node", None) is scope for value in values if value for t in value[1].things)
            if inside and scope is not None and scope.name in model.methods:
                message = "reads parameters in a method that also runs layers: read them in a method of its own"
                yield Concern(RULE, use.site.source, use.site.node, message, Severity.REFUSAL)
                return


def _weights(node: ast.expr, run: Interpreter) -> list[Thing]:
    value = run.values.get(node, NOTHING)
    things = [t.module for t in value.things if isinstance(t, Parameters) and not t.cut]
    return [bare(t) for t in (*value.weights, *things)]


def _is_scaled(node: ast.expr, run: Interpreter) -> bool:
    """Whether the factor of a term of parameters depends on this rank's samples from here on."""
    children = list(children_of(node))
    held = [child for child in children if _weights(child, run) and child in run.flowing]
    local = [child for child in children if not run.is_alike(child)]
    if not held or not local:
        return False
    by_others = any(child is not other for child in held for other in local)
    if isinstance(node, ast.BinOp):
        if isinstance(node.op, (ast.Add, ast.Sub)):
            return False
        return by_others if isinstance(node.op, (ast.Mult, ast.Div)) else True
    if not isinstance(node, ast.Call):
        return False
    callee = run.values.get(node.func, NOTHING)
    if any(isinstance(t, Function) for t in callee.things):
        return False  # what it computes was followed
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name in LINEAR | CUTTING | SIZES or tensors.reduces(name, node, 0):
        return name in ("max", "min", "norm", "std", "var", "prod", "logsumexp")
    if name in SCALING:
        return by_others
    library = next((t.name for t in callee.things if isinstance(t, External)), "")
    if library:
        return library.startswith("torch.") and "GradScaler" not in library
    is_tensor = isinstance(node.func, ast.Attribute) and not run.values.get(node.func.value, NOTHING).things
    return is_tensor or any(isinstance(t, (Object, Wrapped)) and _is_module(t) for t in callee.things)


def _is_module(thing: Thing) -> bool:
    inner = bare(thing)
    return isinstance(inner, Object) and "module" in inner.roles
