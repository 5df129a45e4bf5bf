"""How a script uses its models and their layers, beside calling them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from autodist import regions
from autodist.analyze.launched import is_distributed
from autodist.interpreter import Event, Interpreter, once_a_run
from autodist.models import (
    differentiated,
    elsewhere,
    holds_only_parameters,
    keys,
    members,
    modules_behind,
    optimized_by,
    parts,
    unseen_beside,
    unseen_model,
    unwrapped,
)
from autodist.rule import Severity
from autodist.script import Concern, Model, Site
from autodist.solve.learned import learned
from autodist.source import Source, argument, last_name, shortened, walk
from autodist.values import NOTHING, Class, External, Items, Object, Thing, Wrapped

RECORDS = ("torch.cuda.graph", "torch.cuda.make_graphed_callables")


def uncovered(run: Interpreter, models: list[Model]) -> Iterator[Concern]:
    """Optimizers that train something whose forward pass was not seen: its gradients would stay each rank's own."""
    members = {part.key for model in models for each in (model.object, *model.alternatives) for part in parts(each)}
    stepped = {t for e in run.events if e.kind == "step" for t in e.value.objects("optimizer")}
    alone = [m for m in models if not m.wrapped and (m.bypassed is not None or m.wrapping is None)]
    yield from _left_out(run)
    for event in run.of("own_step") if alone and not run.of("step") else ():
        reason = alone[0].bypassed or "it cannot be seen where its model is ready to be wrapped"
        message = (
            "updates parameters by hand, of which DistributedDataParallel does not average the gradients: "
            f"{reason}; use a torch.optim optimizer"
        )
        yield Concern("AD904", event.source, event.node, message, Severity.REFUSAL)
        return
    for optimizer in sorted(stepped, key=lambda o: (str(o.source.path), o.node.lineno)):
        missing = [m for m in optimized_by(optimizer) if not any(part.key in members for part in parts(m))]
        beside = None if missing or not models else unseen_beside(optimizer, run)
        if beside is not None:
            place, reason = beside
            message = f"trains a model that cannot be followed: {reason}"
            yield Concern("AD904", place.source, place.node, message, Severity.REFUSAL)
            return
        loose = not models and not missing and not run.plan.bare and holds_only_parameters(optimizer)
        if (missing or not models) and not loose:
            message = (
                "trains a model whose forward pass cannot be followed, so that its gradients could "
                "not be averaged; convert this part by hand"
            )
            site: Site = Site(optimizer.source, optimizer.node)
            if not missing and (unseen := unseen_model(optimizer, run)) is not None:
                site, reason = unseen
                message = f"trains a model that cannot be followed: {reason}"
            yield Concern("AD904", site.source, site.node, message, Severity.REFUSAL)
            return


def _left_out(run: Interpreter) -> Iterator[Concern]:
    """Trainings that are not followed, since a function that takes their steps is called in more ways than are."""
    trained = {call.function.node for event in run.of("backward") for call in event.calls}
    for event in run.of("left_out"):
        if any(each.node in trained for each in event.value.functions):
            code = shortened(event.source.code(event.node)) if isinstance(event.node, ast.expr) else "this"
            message = (
                f"{code} trains more models than can be followed one by one: make them, and what they learn from, in a "
                "loop, or train some of them in a script of their own"
            )
            yield Concern("AD904", event.source, event.node, message, Severity.REFUSAL)
            return


def followed_in_part(run: Interpreter) -> Iterator[Concern]:
    """Imports by name that may mean more modules than are followed."""
    for each in run.project.read_in_part:
        message = (
            f"may import any of {each.of} modules, of which those are followed that the script names: "
            f"{', '.join(each.names)}; what the others need (batch normalisation, statistics of a batch, parameters "
            "that stay unused) has not been looked at, and they are not among the files that are written"
        )
        yield Concern("AD905", each.source, each.call, message, Severity.WARNING)


def layer_tests(run: Interpreter, models: list[Model]) -> Iterator[Site]:
    """Where training asks for layers of batch normalisation, which are of another class once they are synchronised."""
    if not any(model.batch_norm and model.wrapping is not None for model in models):
        return
    training = {loop.node for event in run.of("backward") for loop in event.loops}
    steps = [event for event in run.events if any(loop.node in training for loop in event.loops)]
    places: set[ast.AST] = {*training, *(call.function.node for event in steps for call in event.calls)}
    places |= {node for model in models if model.wrapping is not None for node in _later_methods(model, run)}
    for node, value in run.values.items():
        source = run.sources.get(node)
        if source is None or not any(map(_is_batch_norm, value.things)):
            continue
        test = _asks_for_class(node, source)
        if test is not None and not places.isdisjoint(source.ancestors(test)):
            yield Site(source, test)


def _is_batch_norm(thing: Thing) -> bool:
    """A class of batch normalisation, also one of the project that derives from it."""
    classes = [thing, *(base for each in thing.line() for base in each.bases)] if isinstance(thing, Class) else [thing]
    return any(isinstance(each, External) and each.name.startswith("torch.nn.BatchNorm") for each in classes)


def _asks_for_class(node: ast.expr, source: Source) -> ast.expr | None:
    """What compares the class of a layer with the one that is named here: the classes of `isinstance(layer, (nn.Linear,
    nn.BatchNorm2d))` and of `type(layer) in (nn.Linear, nn.BatchNorm2d)`, or all of `type(layer) == nn.BatchNorm2d`."""
    parent = source.parents.get(node)
    outer = parent if isinstance(parent, (ast.Tuple, ast.List, ast.Set)) else node
    test = source.parents.get(outer)
    if isinstance(test, ast.Call) and getattr(test.func, "id", "") == "isinstance" and outer in test.args[1:]:
        return outer
    match test:
        case ast.Compare(left=ast.Call(func=ast.Name(id="type")), ops=[ast.In() | ast.NotIn()], comparators=[each]):
            return outer if each is outer and outer is not node else None
        case ast.Compare(left=ast.Call(func=ast.Name(id="type")), comparators=[each]):
            return test if each is node else None
    return None


def _later_methods(model: Model, run: Interpreter) -> Iterator[ast.AST]:
    """The methods of a model that are called once it is wrapped or sharded, as for the parameters of an optimizer."""
    assert model.wrapping is not None
    last = regions.last_within(run, model.wrapping.statement)
    made = last if last is not None else len(run.events)
    for event in run.of("model_method"):
        module = next((t for t in unwrapped(event.value) if isinstance(t, Object) and t.key == model.object.key), None)
        call = event.node
        if event.order <= made or module is None or module.cls is None or not isinstance(call, ast.Call):
            continue
        if isinstance(call.func, ast.Attribute):
            yield from (each.node for each in module.cls.functions(call.func.attr))


def reached(
    models: list[Model], first: Interpreter, wrapping: Callable[[list[Model]], Interpreter]
) -> tuple[list[Model], Interpreter]:
    """The models, each wrapped where all its training steps go through the wrapper, if there is such a place, and the
    run in which they are: the places are tried from the last one on."""
    planned = found = list(models)
    run = wrapping(models)
    tried: dict[int, frozenset[ast.stmt]] = {}
    while past := not is_distributed(first) and {place for place, model in enumerate(found) if _uses_past(model, run)}:
        for place in past:
            wrapped = found[place].wrapping
            assert wrapped is not None
            tried[place] = tried.get(place, frozenset()) | {wrapped.statement}
            other = elsewhere(found[place], first, tried[place])
            if other is None:
                return planned, wrapping(planned)
            found = [*found[:place], other, *found[place + 1 :]]
        run = wrapping(found)
    return found, run


def unwrapped_uses(run: Interpreter, models: list[Model]) -> Iterator[Concern]:
    """Training steps that the planned wrapper does not reach: their gradients would silently stay each rank's own."""
    for model in models:
        if uses := _uses_past(model, run):
            message = "cannot see where to wrap this model so that its training steps go through the wrapper"
            yield Concern("AD904", uses[0].source, uses[0].node, message, Severity.REFUSAL)


def _uses_past(model: Model, run: Interpreter) -> list[Event]:
    """The training steps in which a model is not in its wrapper."""
    if run.plan.bare or model.wrapping is None or model.bypassed is not None or model.data_parallel:
        return []
    ours = {each.key for each in (model.object, *model.alternatives)}
    return [
        each for each in _bare_steps(run) if any(isinstance(t, Object) and t.key in ours for t in each.value.things)
    ]


@once_a_run
def _bare_steps(run: Interpreter) -> list[Event]:
    """The training steps in which models are in no wrapper."""
    training = {loop.node for event in run.of("backward") for loop in event.loops}
    steps = [e for e in run.of("forward") if e.grad and any(loop.node in training for loop in e.loops)]
    bare = [e for e in steps if not any(isinstance(t, Wrapped) for t in e.value.things)]
    return [e for e in bare if not _only_attacks(e, run)]


def _only_attacks(event: Event, run: Interpreter) -> bool:
    """Whether a function asks a model for gradients of what it is given, as an attack on it does, and keeps nothing of
    what the model says: no gradient of a parameter comes from there."""
    asks = any(each.function is event.function for each in run.of("autograd_grad"))
    if event.function is None or not asks or not event.calls or event.calls[-1].function is not event.function:
        return False
    call, body = event.calls[-1].node, event.function.node
    kept = any(isinstance(n, (ast.Attribute, ast.Subscript)) and isinstance(n.ctx, ast.Store) for n in _changed(body))
    learns = any(isinstance(n, ast.Call) and last_name(n.func) == "backward" for n in walk(body))
    result = run.values.get(call, NOTHING) if isinstance(call, ast.expr) else NOTHING
    return call is not None and not (kept or learns or modules_behind(run, call) or result.things)


def _changed(body: ast.AST) -> Iterator[ast.expr]:
    """What a function assigns to, numbers of a tensor aside: `x.data += step`."""
    for node in walk(body):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        yield from (
            each
            for each in targets
            if each is not None and not (isinstance(each, ast.Attribute) and each.attr in ("data", "requires_grad"))
        )


def norms_in_lists(run: Interpreter, models: list[Model]) -> bool:
    """Whether a model also keeps layers of batch normalisation in a plain list, and reads them there: SyncBatchNorm
    takes the place of its modules alone."""
    for model in models:
        if not model.batch_norm or model.wrapped or model.wrapping is None and not model.data_parallel:
            continue
        for part in (each for one in (model.object, *model.alternatives) for each in parts(one)):
            for name, value in part.attributes.items():
                lists = [thing for thing in value.things if isinstance(thing, Items)]
                held = [each for items in lists for each in (*items.parts, items.element)]
                normalise = part.cls is not None and any(True for each in held for _ in each.objects("batch_norm"))
                if normalise and _is_read_later(name, run):  # not `self.net = nn.Sequential(*self.layers)`
                    return True
    return False


def _is_read_later(name: str, run: Interpreter) -> bool:
    """Whether an attribute is read once a module is complete, or by a name that is made up."""
    for source in run.project.sources:
        for node in walk(source.tree):
            if isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.ctx, ast.Load):
                if getattr(source.function(node), "name", "") != "__init__":
                    return True
            elif isinstance(node, ast.Call) and last_name(node.func) in ("getattr", "vars"):
                asked = argument(node, "name", 1)
                if asked is None or isinstance(asked, ast.Constant) and asked.value == name:
                    return True
    return False


def derived_norms(run: Interpreter, models: list[Model]) -> Iterator[Concern]:
    """Classes that derive from a layer of batch normalisation and run otherwise than it does: nn.SyncBatchNorm takes
    the place of their objects, and would forget what they do besides."""
    if is_distributed(run):
        return
    for model in models:
        if not model.batch_norm or model.wrapped or model.wrapping is None and not model.data_parallel:
            continue
        for part in (each for one in (model.object, *model.alternatives) for each in parts(one)):
            found = part.cls.find("forward") if part.cls is not None else None
            line = part.cls.line() if part.cls is not None and found is not None else ()
            bases = [base.name for each in line for base in each.bases if isinstance(base, External)]
            norm = next((each for each in bases if each.startswith("torch.nn.BatchNorm")), None)
            if norm is not None and found is not None:
                message = (
                    f"derives from {norm.removeprefix('torch.')} and has a forward pass of its own, which "
                    "nn.SyncBatchNorm would take the place of: derive from nn.Module, and keep the layer in it"
                )
                yield Concern("AD904", found[0].source, found[0].node, message, Severity.REFUSAL)
                return


def differentiated_norms(run: Interpreter, models: list[Model]) -> Iterator[Concern]:
    """Gradients of gradients through batch statistics, of which nn.SyncBatchNorm has none."""
    if is_distributed(run):
        return
    for event in run.of("autograd_grad"):
        if event.detail.const is not True or not isinstance(event.node, ast.Call) or not event.grad:
            continue
        given = (argument(event.node, "outputs", 0), argument(event.node, "inputs", 1))
        through, before = (keys(modules_behind(run, each)) if each else frozenset() for each in given)
        for model in models:
            passed = model.batch_norm and not model.wrapped and model.object.key in through - before
            if passed and any(run.normalises(each) for each in (model.object, *model.alternatives)):
                message = (
                    "trains on a gradient that passes through batch normalisation, and nn.SyncBatchNorm has no second "
                    "derivative: normalise in this model by nn.InstanceNorm or nn.GroupNorm"
                )
                yield Concern("AD904", event.source, event.node, message, Severity.REFUSAL)
                return


def penalties_alone(run: Interpreter, models: list[Model]) -> Iterator[Concern]:
    """Losses that are computed from gradients of a model alone, on which the bias of its last layer has no say, where a
    wrapper waits for its gradient."""
    awaited = keys(part for each in models if not each.bypassed for part in parts(each.object))
    for event in run.of("backward"):
        held = keys(differentiated(run, event))
        if (not held or held & awaited) and learned(run.runs.program).learns_from_derivatives(event.node):
            message = (
                "trains on a gradient penalty alone, on which a last bias has no say, so that "
                "DistributedDataParallel waits for its gradient: add the penalty to the other loss of the step, or "
                "`0 * out.sum()` of what the model computed to it"
            )
            yield Concern("AD602", event.source, event.node, message, Severity.WARNING)
            return


def kept_statistics(models: list[Model]) -> Iterator[Concern]:
    """Layers that keep statistics of a rank's samples, and that nn.SyncBatchNorm does not replace."""
    for part in (part for model in models for part in parts(model.object)):
        keeps = part.argument("track_running_stats", 4)
        if part.name.startswith("torch.nn.InstanceNorm") and keeps is not None and keeps.const is True:
            message = (
                f"{part.name.rpartition('.')[2]} keeps running statistics of the samples that it is given: each rank "
                "keeps those of its own ones, and those of rank 0 are saved; leave out track_running_stats"
            )
            yield Concern("AD602", part.source, part.node, message, Severity.WARNING)
            return


def rescaled_rows(models: list[Model]) -> Iterator[Concern]:
    """Embeddings that shorten the rows that they look up, in place: each rank those of its own samples."""
    for part in (part for model in models for part in parts(model.object)):
        position = {"torch.nn.Embedding": 3, "torch.nn.EmbeddingBag": 2}.get(part.name)
        longest = part.argument("max_norm", position) if position is not None else None
        if longest is not None and longest.const is not None:
            message = (
                "max_norm shortens the rows that a rank looks up, in its own copy of the weights alone, and the copies "
                "drift apart: leave it out, and before each step call weight.renorm_(2, 0, max_norm) under no_grad(), "
                "on all ranks and for all rows"
            )
            yield Concern("AD602", part.source, part.node, message, Severity.WARNING)
            return


def compiled_statistics(run: Interpreter, models: list[Model]) -> Iterator[Concern]:
    """`torch.jit.script(model)` of a model whose BatchNorm layers the conversion replaces."""
    normalised = frozenset(members(model for model in models if model.batch_norm and not model.wrapped))
    for event in run.of("export"):
        call = event.node
        function = run.values.get(call.func, NOTHING) if isinstance(call, ast.Call) else NOTHING
        if External("torch.jit.script") in function.things and normalised & keys(unwrapped(event.value)):
            message = (
                "cannot compile SyncBatchNorm, which takes the place of BatchNorm on GPUs: use torch.jit.trace, or "
                "load what is saved into a new model and compile that"
            )
            yield Concern("AD402", event.source, call, message, Severity.WARNING)


def graphed(run: Interpreter, models: list[Model]) -> Iterator[Concern]:
    """Steps that CUDA records, and with them the collectives of the wrapper."""
    if not any(not model.wrapped and not model.bypassed for model in models):
        return
    for source in run.project.sources:
        for node in walk(source.tree) if "graph" in source.text else ():
            function = run.values.get(node.func, NOTHING) if isinstance(node, ast.Call) else NOTHING
            if not any(isinstance(each, External) and each.name in RECORDS for each in function.things):
                continue
            message = (
                "records what a model in DistributedDataParallel does, which takes 11 steps on a side stream ahead, "
                "a wrapper that is made on that stream, and TORCH_NCCL_ASYNC_ERROR_HANDLING=0 (PyTorch's notes on CUDA "
                "graphs say so; callables are graphed ahead of the wrapper): no run on a CPU shows whether it is right"
            )
            yield Concern("AD402", source, node, message, Severity.WARNING)
            return


def own_buffers(run: Interpreter) -> Iterator[Concern]:
    """Buffers that are registered with what a rank computed from its own samples, as Fisher information is."""
    seen: set[ast.AST] = set()
    for event in run.of("buffer"):
        assert isinstance(event.node, ast.Call)
        named = (k.value for k in event.node.keywords if k.arg == "tensor")
        for tensor in (*event.node.args[1:2], *named):
            local = run.values.get(tensor, NOTHING).spread.is_local
            local = local and not (run.is_alike(tensor) or run.counts_samples(tensor))
            if tensor in seen or event.on_one_rank or not local:
                continue
            seen.add(tensor)
            message = (
                f"keeps {shortened(event.source.code(tensor))} in a buffer, computed from this rank's samples alone: "
                "ranks go on with other states than one process; gather it over the ranks before it is kept"
            )
            yield Concern("AD601", event.source, tensor, message, Severity.WARNING)


def turned_buffers(run: Interpreter) -> Iterator[Site]:
    """Buffers with an axis of one element and turned axes: `pe.unsqueeze(0).transpose(0, 1)`."""
    seen: set[ast.AST] = set()
    for event in run.of("buffer"):
        given = [*event.node.args[1:2], *(k.value for k in event.node.keywords if k.arg == "tensor")]  # type: ignore[attr-defined]
        for tensor in given:
            made = [tensor]
            if isinstance(tensor, ast.Name):
                home = event.source.function(tensor)
                bound = [n for n in walk(home) if isinstance(n, ast.Assign)] if home is not None else []
                made = [n.value for n in bound if any(getattr(t, "id", "") == tensor.id for t in n.targets)]
            if tensor not in seen and any(_adds_and_turns(each) for each in made[-1:]):
                seen.add(tensor)
                yield Site(event.source, tensor)


def _adds_and_turns(node: ast.expr) -> bool:
    """Whether a chain of methods adds an axis and turns axes after that, with the memory as it is."""
    if isinstance(node, ast.BinOp):  # `scale * pe.unsqueeze(0).transpose(0, 1)` lies in memory like its operand
        return _adds_and_turns(node.left) or _adds_and_turns(node.right)
    names: list[str] = []
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        names.append(node.func.attr)
        node = node.func.value
    turns = [at for at, name in enumerate(names) if name in ("transpose", "permute", "swapaxes", "movedim")]
    return bool(turns) and "unsqueeze" in names[turns[0] :] and names[0] != "clone"
