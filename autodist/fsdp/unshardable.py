"""What FSDP cannot do with a script, each with what a person can do."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from autodist.files import temporary
from autodist.fsdp import outputs, weights
from autodist.fsdp.replaced import replaced
from autodist.fsdp.sharding import (
    blocks_of,
    called_by_themselves,
    held_by,
    rank_check,
    runs_after,
    start,
    starts,
    uncommon_methods,
    unit_parts,
)
from autodist.interpreter import DRAWING, Event, Interpreter
from autodist.models import (
    Key,
    Keys,
    differentiated,
    is_main_guard,
    keys,
    loose_parameters,
    members,
    optimized_by,
    owned_parameters,
    parts,
    unwrapped,
)
from autodist.models.sparse import sparse_layers
from autodist.models.trained import asks_for_wrapper
from autodist.rule import Severity
from autodist.script import Concern, Model
from autodist.solve.learned import learned
from autodist.source import Source, walk
from autodist.values import NOTHING, Class, Items, Object, Parameters, Table, Thing, Value, of

SCALAR = (
    "is a scalar, of which there is no share: make it a vector of one number, as torch.tensor([1.0]) is, or use "
    "--strategy ddp"
)
SPARSE = "its gradients are sparse, which FSDP cannot add up: leave sparse=True away, or use --strategy ddp"
KINDS = frozenset("is_cuda device dtype ndim requires_grad is_sparse layout".split())
"""What is asked of a tensor besides its numbers."""
UNSHARDED = ("Adafactor", "Rprop", "LBFGS", "SparseAdam")
"""Optimizers of torch whose steps are not defined on shards."""


@dataclass(frozen=True)
class Sharded:
    """The models of a run: each by the keys of its parts, and when it is sharded."""

    run: Interpreter
    owners: Mapping[Key, Object]
    roots: Keys
    starts: Mapping[Key, int]
    owned: set[Object]
    units: Keys
    """Parts that gather their parameters themselves."""
    written: frozenset[ast.AST]
    """Where the numbers of a new tensor can be put into the parameter that it would take the place of."""
    copied: frozenset[ast.AST | None]
    """Copies that can be made ahead of sharding."""

    def held(self, event: Event) -> list[Object]:
        """The sharded modules that an event is about."""
        return [t for t in unwrapped(event.value) if isinstance(t, Object) and t.key in self.owners]

    def owns_parameters(self, event: Event) -> bool:
        """Whether an event is about parameters of a module that is sharded by then, or of one around such a module."""
        modules = {t.module for t in event.value.things if isinstance(t, Parameters)}
        inside = (p for module in modules for t in unwrapped(of(module)) if isinstance(t, Object) for p in parts(t))
        return any(part.key in self.owners and self.is_sharded(part, event) for part in inside)

    def is_sharded(self, module: Object, event: Event) -> bool:
        """Whether the module is sharded by the time of an event."""
        return event.order >= self.starts[self.owners[module.key].key]


def concerns(run: Interpreter, models: list[Model]) -> Iterator[Concern]:
    """What cannot be sharded; the first reason of each kind."""
    found = False
    for source, node, message in (*_of_models(run, models), *_branches(run, models), *_unlike(run, models)):
        found = True
        yield Concern("AD907", source, node, message, Severity.REFUSAL)
    if found:
        return
    yield from _scalars(run, models)
    yield from _sparse(models)
    sharded = Sharded(
        run,
        members(model for model in models if not model.wrapped),
        frozenset(each.key for m in models if not m.wrapped for each in called_by_themselves(m)),
        starts(run, (model for model in models if not model.wrapped)),
        owned_parameters(run),
        keys(
            block for model in models if not model.wrapped for unit in model.units for block in blocks_of(model, unit)
        ),
        frozenset(site.node for site, _ in replaced(run, models)),
        frozenset(site.node for model in models for site in model.copied),
    )
    seen: set[str] = set()
    for event in run.events:
        reason = REASONS[event.kind](event, sharded) if event.kind in REASONS else None
        if reason is not None and reason not in seen:
            seen.add(reason)
            yield Concern("AD907", event.source, event.node, reason, Severity.REFUSAL)
    yield from _across(run, models)
    yield from _uneven(sharded)
    yield from weights.concerns(run, models)
    yield from outputs.concerns(run, models)


def _scalars(run: Interpreter, models: list[Model]) -> Iterator[Concern]:
    """Scalar parameters, at which `fully_shard` stops; a warning where other settings make another module instead."""
    for model in models:
        for part in () if model.sharded or model.wrapped else parts(model.object):
            for parameter in (t for value in part.attributes.values() for t in value.objects("parameter")):
                if run.axes(parameter.node) == 0:
                    chosen = part is not model.object and (_is_chosen(part, run) or _is_chosen(parameter, run))
                    severity = Severity.WARNING if chosen else Severity.REFUSAL
                    message = f"where a setting asks for it, {SCALAR}" if chosen else SCALAR
                    yield Concern("AD907", parameter.source, parameter.node, message, severity)
                    return


def _sparse(models: list[Model]) -> Iterator[Concern]:
    """Embeddings with sparse gradients, which `fully_shard` cannot add up; a warning where a setting decides."""
    for part, certain in sparse_layers(models):
        message = SPARSE if certain else f"where a setting asks for them, {SPARSE}"
        yield Concern("AD907", part.source, part.node, message, Severity.REFUSAL if certain else Severity.WARNING)


def _is_chosen(made: Object, run: Interpreter) -> bool:
    """Whether a setting decides that it is made, or of which class."""
    conditions = (ast.If, ast.IfExp, ast.Match)
    if any(isinstance(a, conditions) and not is_main_guard(a) for a in made.source.ancestors(made.node)):
        return True
    return len(run.values.get(made.node.func, NOTHING).things) > 1


def _across(run: Interpreter, models: list[Model]) -> Iterator[Concern]:
    """Parameters of a block that the forward pass reads outside of that block, where they are shares."""
    blocks = frozenset[Key]().union(*(unit_parts(model) for model in models if not model.wrapped))
    for event in run.of("layer_weight") if blocks else ():
        owner = event.function.owner if event.function is not None else None
        held = [t for t in unwrapped(event.value) if isinstance(t, Object)]
        read = {part.key for t in held for part in (parts(t) if event.detail.const == "all" else [t])}
        if isinstance(owner, Object) and owner.key not in blocks and read & blocks:
            message = (
                "reads parameters of a block outside of its forward, where each rank has a share of them: compute this "
                "in the block's forward, or use --strategy ddp"
            )
            yield Concern("AD907", event.source, event.node, message, Severity.REFUSAL)
            return


def _uneven(sharded: Sharded) -> Iterator[Concern]:
    """Loops in which a sharded model runs over a part of the data that the script has cut for this rank."""
    run = sharded.run
    loaders = [t for event in run.of("loader") for t in event.value.objects("loader") if _is_own_part(t, run)]
    seen: set[ast.AST] = set()
    for event in run.of("forward") if loaders else ():
        if not keys(sharded.held(event)) & sharded.roots:
            continue
        for loop in event.loops:
            node = loop.through
            if node is None:
                continue
            read = (n for n in walk(node.iter) if isinstance(n, ast.expr))
            inside = {t for n in read for t in run.values.get(n, NOTHING).things}
            if node not in seen and not inside.isdisjoint(loaders):
                seen.add(node)
                message = (
                    "each rank has its own part of these data, and one may have more batches than another: it would "
                    "wait for ever, since a sharded model runs on all ranks at once; use DistributedSampler, which "
                    "pads, or all of the data on every rank"
                )
                yield Concern("AD907", event.source, event.node, message, Severity.WARNING)


def _is_own_part(loader: Object, run: Interpreter) -> bool:
    """Whether a loader reads what the script has chosen by the rank, in another way than by DistributedSampler."""
    sampler = loader.argument("sampler", 3) or NOTHING
    if any("distributed_sampler" in t.roles for t in sampler.things if isinstance(t, Object)):
        return False
    given = [*loader.node.args[:1], *loader.node.args[3:5]]
    given += [k.value for k in loader.node.keywords if k.arg in ("dataset", "sampler", "batch_sampler")]
    scopes = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)
    home = next(a for a in loader.source.ancestors(loader.node) if isinstance(a, scopes))
    seen: set[str] = set()
    while given:
        for node in walk(given.pop()):
            if isinstance(node, ast.expr) and run.goes_by_rank(node):
                return True
            if isinstance(node, ast.Name) and node.id not in seen:
                seen.add(node.id)
                bound = (a for a in walk(home) if isinstance(a, ast.Assign))
                given += [a.value for a in bound if any(getattr(t, "id", "") == node.id for t in a.targets)]
    return False


def _of_models(run: Interpreter, models: list[Model]) -> Iterator[tuple[Source, ast.AST, str]]:
    members: dict[object, Model] = {}
    for model in models:
        module = model.object
        if model.sharded:
            continue
        if model.wrapped:
            message = "its gradients are averaged by hand: convert the original script, or take that out first"
            yield module.source, module.node, message
            return
        for site in model.data_parallel:
            around = (each for each in site.source.ancestors(site.node) if isinstance(each, ast.If))
            if any(not is_main_guard(each) and not asks_for_wrapper(each.test) for each in around):
                message = "is distributed under a condition; FSDP needs the process group: take the condition away"
                yield site.source, site.node, message
        for site in model.misnamed:
            message = "keys of a wrapper begin with `module.`, those of a sharded model do not: use that of `.module`"
            yield site.source, site.node, message
        if module.cls is not None and module.cls.find("__call__"):
            yield module.source, module.node, "defines __call__, which runs past the hooks of FSDP: name it forward"
        if (name := _plain_list(module)) is not None:
            message = (
                f"keeps layers in self.{name}, a plain list, where FSDP finds none of them: make it an nn.ModuleList, "
                "or use --strategy ddp"
            )
            yield module.source, module.node, message
        elif model.wrapping is None:
            yield module.source, module.node, _without_place(module, run)
        if held_by(module) and (model.wrapping is None or not model.wrapping.each):
            yield module.source, module.node, "has no forward of its own: FSDP shards modules that are called"
        for part in parts(module):
            other = members.setdefault(part.key, model)
            if other is not model and other.object.attributes is not module.attributes and "loss" not in part.roles:
                message = "is a part of two models that train: it can be sharded with one of them only"
                yield part.source, part.node, message
                return


def _unlike(run: Interpreter, models: list[Model]) -> Iterator[tuple[Source, ast.AST, str]]:
    for model in models:
        for name in uncommon_methods(model, run) if model.alternatives and not model.wrapped else ():
            message = f"may be a model without {name}(), which needs whole parameters: define it in each of them"
            yield model.object.source, model.object.node, message
            return


def _without_place(module: Object, run: Interpreter) -> str:
    """Why there is no place after a model is made and before its parameters are taken, and what to do."""
    if any(module.key in keys(unwrapped(event.value)) for event in run.of("bind_each")):
        return (
            "is one of several models in a list, and has no name by which to shard it: give each model a name, or use "
            "--strategy ddp"
        )
    made = [event.order for event in run.of("bind") if module.key in keys(unwrapped(event.value))]
    if made and start(module, run) < min(made):
        return "is made after an optimizer takes parameters of it: make that optimizer further down, after this line"
    return (
        "cannot see a place after this model is made and before an optimizer takes its parameters: bind it to a name "
        "first, or use --strategy ddp"
    )


def _plain_list(module: Object) -> str | None:
    """The attribute that alone keeps some layers of a model, in a list that torch does not look into."""
    registered: set[Key] = set()
    lists: list[tuple[str, Items]] = []
    pending = [module]
    while pending:
        part = pending.pop()
        if part.key in registered:
            continue
        registered.add(part.key)
        values = (*part.args, *part.keywords.values(), *part.attributes.values())  # add_module() adds to the arguments
        if part.cls is None:
            pending += [m for value in values for t in value.things if isinstance(t, Items) for m in _listed(t)]
        pending += [t for value in values for t in unwrapped(value) if isinstance(t, Object) and "module" in t.roles]
        for name, value in part.attributes.items() if part.cls is not None else ():
            lists += [(name, t) for t in value.things if isinstance(t, Items)]
    return next((name for name, items in lists if any(t.key not in registered for t in _listed(items))), None)


def _listed(items: Items, depth: int = 3) -> Iterator[Object]:
    """The modules in a list, and in lists in it."""
    for value in (*items.parts, items.element):
        for thing in value.things:
            if isinstance(thing, Object) and "module" in thing.roles:
                yield thing
            elif isinstance(thing, Items) and depth:
                yield from _listed(thing, depth - 1)


def _branches(run: Interpreter, models: list[Model]) -> Iterator[tuple[Source, ast.AST, str]]:
    """Layers that ranks may run or leave out differently: they would gather different parameters."""
    for module in (model.object for model in models if not model.wrapped):
        for branch in learned(run.runs.program).deciding(module.node):
            read = [n for n in walk(branch.test) if isinstance(n, ast.expr)]
            kinds = {n.value for n in read if isinstance(n, ast.Attribute) and n.attr in KINDS}
            if not all(run.is_alike(n) or run.counts_samples(n) for n in read if n not in kinds):
                message = (
                    "decides by this rank's samples which layers run: the ranks would wait for each other for ever"
                )
                yield run.sources.get(branch.test, module.source), branch, message
                return


def _part_called(event: Event, sharded: Sharded) -> str | None:
    held = sharded.held(event)
    if held and event.on_one_rank:
        return "runs a sharded model on one rank: every rank has to take part; move this out of the rank check"
    if not held or keys(held) & sharded.roots or not sharded.is_sharded(held[0], event):
        return None
    if any(isinstance(o, Object) and o.key in sharded.roots for o in (call.function.owner for call in event.calls)):
        return None  # in a method of the model
    if keys(held) <= sharded.units:
        if all(runs_after(event, sharded.owners[each.key], sharded.run) for each in held):
            return None
        return (
            "calls a part of a sharded model before the model itself, which FSDP then takes for a whole one: call the "
            "model first, or use --strategy ddp"
        )
    return (
        "calls a part of a sharded model on its own, past the hooks that gather its parameters: call the model "
        "itself, or a method of it"
    )


def _copied(event: Event, sharded: Sharded) -> str | None:
    if not sharded.copied.isdisjoint((event.node, *(call.node for call in event.calls))):
        return None
    held = [t for t in sharded.held(event) if t.key in sharded.roots]
    if not held or not all(sharded.is_sharded(t, event) for t in held):
        return None
    return "copies a model after its optimizer is built: shards cannot be copied; make the copy before the optimizer"


def _exported(event: Event, sharded: Sharded) -> str | None:
    held = [t for t in sharded.held(event) if t.key in sharded.owners]
    if not any(sharded.is_sharded(t, event) for t in held):
        return None
    return (
        "makes a graph of a sharded model, of which each rank has a share: do it before the optimizer is made, in a "
        "script of its own from what is saved, or use --strategy ddp"
    )


def _averaged(event: Event, sharded: Sharded) -> str | None:
    for thing in event.value.objects("averaged_model"):
        if any(t.key in sharded.roots for a in thing.args for t in unwrapped(a) if isinstance(t, Object)):
            return "keeps a running average in a copy of the model, which is not sharded with it: use --strategy ddp"
    return None


def _storage_replaced(event: Event, sharded: Sharded) -> str | None:
    if event.node in sharded.written:
        return None
    if not sharded.owns_parameters(event):
        return None
    return (
        "replaces the storage of parameters, which shards do not follow: write `p.data.copy_(...)`, and keep "
        "`p.data.clone()` where values before that are kept"
    )


def _written_inside(event: Event, sharded: Sharded) -> str | None:
    """A momentum encoder that follows another one in `forward`."""
    modules = {t.module for t in event.value.things if isinstance(t, Parameters)}
    held = [module for module in modules if isinstance(module, Object) and module.key in sharded.owners]
    if not any(sharded.is_sharded(module, event) for module in held):
        return None
    return (
        "changes parameters inside a forward pass, where they are gathered for as long as it lasts: what is written "
        "there is lost; change them in the training step, before the model is called"
    )


def _drawn(event: Event, sharded: Sharded) -> str | None:
    held = [t for t in sharded.held(event) if sharded.is_sharded(t, event)]
    return RANDOM if held else None


def _applied(event: Event, sharded: Sharded) -> str | None:
    """`model.apply(weights_init)`"""
    call = event.node
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr != "apply":
        return None
    functions = [each for arg in call.args for each in sharded.run.values.get(arg, NOTHING).functions]
    names = {n.attr for f in functions for n in walk(f.node) if isinstance(n, ast.Attribute)}
    names |= {n.id for f in functions for n in walk(f.node) if isinstance(n, ast.Name)}
    draws = any(name in DRAWING or name.startswith(("xavier_", "kaiming_", "orthogonal")) for name in names)
    return _drawn(event, sharded) if draws or "reset_parameters" in names else None


RANDOM = (
    "draws random numbers into parameters of which each rank has a share: the ranks would draw the same for different "
    "shares; do it before the optimizer is made, or use --strategy ddp"
)


def _part_written(event: Event, sharded: Sharded) -> str | None:
    if not sharded.owns_parameters(event):
        return None
    return (
        "writes a part of a parameter, of which each rank has a share: write all of it, as in "
        "`p.data.mul_(mask)` with a mask that is computed from the parameter"
    )


def _parameter_replaced(event: Event, sharded: Sharded) -> str | None:
    held = [t for t in sharded.held(event) if sharded.is_sharded(t, event)]
    if not held:
        return None
    return (
        "puts another parameter into a sharded module, which goes on with its own: do it before the optimizer is made"
    )


def _gradients_replaced(event: Event, sharded: Sharded) -> str | None:
    if _storage_replaced(event, sharded) is None:
        return None
    return "replaces gradients by computed ones, whose shards may lie differently: change them in place"


def _differentiated_twice(event: Event, sharded: Sharded) -> str | None:
    if event.detail.const is not True or not differentiated(sharded.run, event):
        return None
    return "differentiates a gradient: FSDP frees parameters after the first backward pass; use --strategy ddp"


def _saved_whole(event: Event, sharded: Sharded) -> str | None:
    if not isinstance(event.node, ast.Call) or not event.node.args:
        return None
    if not any(
        key in sharded.owners for key in keys(_saved_things(sharded.run.values.get(event.node.args[0], NOTHING)))
    ):
        return None
    return "saves a model as an object, which shards cannot be: save its state_dict()"


def _saved_things(value: Value, depth: int = 2) -> Iterator[Thing]:
    """What is saved, alone or in a dict or list."""
    yield from unwrapped(value)
    for thing in value.things if depth else ():
        inner = [*thing.entries.values(), thing.element] if isinstance(thing, Table) else []
        inner += [*thing.parts, thing.element] if isinstance(thing, Items) else []
        for each in inner:
            yield from _saved_things(each, depth - 1)


def _gathered_on_one_rank(event: Event, sharded: Sharded) -> str | None:
    ours = bool(sharded.held(event)) or any(
        module.key in sharded.owners
        for optimizer in event.value.objects("optimizer")
        for module in optimized_by(optimizer)
    )
    if not ours or not event.on_one_rank or rank_check(event, sharded.run) is not None:
        return None
    return (
        "takes the state of a sharded model on one rank: every rank has to take part; move this out of the rank check"
    )


def _saved(event: Event, sharded: Sharded) -> str | None:
    if sharded.roots and temporary.is_private(event, sharded.run) and isinstance(event.node, ast.Call):
        if event.node.args and not sharded.run.values.get(event.node.args[0], NOTHING).spread.is_local:
            return (
                "keeps a state in memory, or in a file of its own, from which shards cannot be loaded: keep "
                "`{key: value.clone() for key, value in model.state_dict().items()}`"
            )
    if not event.on_one_rank or not isinstance(event.node, ast.Call) or not sharded.roots:
        return _saved_whole(event, sharded)
    inside = [n.func.attr for n in walk(event.node) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)]
    if "state_dict" in inside:
        return _saved_whole(event, sharded)
    return "rank 0 alone saves a state here: gathering shards takes all ranks, do it before this branch"


def _optimized(event: Event, sharded: Sharded) -> str | None:
    for optimizer in event.value.objects("optimizer"):
        names = [each.rpartition(".")[2] for each in optimizer.library_classes]
        if not any(module.key in sharded.owners for module in optimized_by(optimizer)):
            continue
        if (name := next((each for each in names if each in UNSHARDED), None)) is not None:
            return f"{name} cannot step on shards: use another optimizer, or --strategy ddp"
        if optimizer.cls is not None and (whole := _whole_tensors(optimizer.cls)) is not None:
            return (
                f"steps with `{whole}` of whole tensors, of which each rank holds a share: "
                "use an optimizer that steps element by element, or --strategy ddp"
            )
        if loose_parameters(optimizer, sharded.owned):
            return "trains tensors of no module beside a sharded model: make them parameters of a module"
    return None


WHOLE = frozenset("norm mean sum max min std var median topk sort quantile svd qr matmul mm t view reshape".split())
"""Methods and functions of tensors that say nothing about the whole when they are given a share."""


def _whole_tensors(cls: Class) -> str | None:
    """What an optimizer of the project computes from whole parameters or gradients, or puts in their place."""
    for each in cls.line():
        for node in walk(each.node):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in WHOLE:
                return node.func.attr
            if isinstance(node, ast.Attribute) and node.attr == "data" and isinstance(node.ctx, ast.Store):
                return "data"
    return None


REASONS: dict[str, Callable[[Event, Sharded], str | None]] = {
    "forward": _part_called,
    "copy": _copied,
    "export": _exported,
    "make": _averaged,
    "replace_data": _storage_replaced,
    "written_inside": _written_inside,
    "replace_grad": _gradients_replaced,
    "write_part": _part_written,
    "replace_parameter": _parameter_replaced,
    "draw_parameters": _drawn,
    "move": _applied,
    "model_state_dict": _gathered_on_one_rank,
    "optimizer_state_dict": _gathered_on_one_rank,
    "autograd_grad": _differentiated_twice,
    "save": _saved,
    "optimizer": _optimized,
}
