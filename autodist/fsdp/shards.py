"""Where a script meets the shards of its models, and means whole tensors."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterable, Iterator, Mapping

from autodist.accumulation import deferrals
from autodist.fsdp import weights
from autodist.fsdp.mixed import mixed
from autodist.fsdp.nested import nested
from autodist.fsdp.replaced import put_aside, replaced
from autodist.fsdp.restored import restored
from autodist.fsdp.sharding import blocks_of, rank_check, starts
from autodist.interpreter import Event, Interpreter
from autodist.models import Key, Keys, keys, members, optimized_by, parts, unwrapped
from autodist.rule import Severity
from autodist.script import Concern, Model, Shards, Site
from autodist.source import last_name, walk
from autodist.values import NOTHING, Class, External, Inside, Object, Parameters, Wrapped

KEEPING = frozenset("detach cpu clone float double abs".split())
STATES = ("model_state_dict", "optimizer_state_dict")


def shards(run: Interpreter, models: list[Model]) -> Shards:
    """Where the script meets shards where it means whole tensors."""
    ours = frozenset(members(model for model in models if not model.wrapped))
    if any(model.wrapped and not model.sharded for model in models):
        return Shards()
    begun = starts(run, models)
    first = min(begun.values(), default=0)
    saves = [
        e
        for e in run.of("save")
        if e.order > first and not e.on_one_rank and _is_torch_save(e, run) and _may_hold_shards(e, run)
    ]
    loads = tuple(_loads(run, models, ours, begun))
    late = {site.node for site, _ in loads}
    early = tuple(site for site, _ in _loads(run, models, ours, begun, early=True) if ours and site.node not in late)
    return Shards(
        saves=tuple(_unique(Site(e.source, e.node) for e in saves)),
        model_saves=tuple(_unique(Site(e.source, e.node) for e in saves if _is_of_model(e.node, run, ours))),
        model_loads=loads,
        optimizer_loads=tuple(_optimizer_loads(run, ours)),
        reads=tuple(use.site for use in weights.uses(run, models)),
        norms=tuple(_norms(run)),
        forwards=tuple(_unique(_forwards(run, models))),
        inferences=tuple(_inferences(run)),
        wrappers=tuple(_wrappers(run, models)),
        class_names=tuple(_unique(_class_names(run, models, begun))),
        classes=tuple(_unique(_classes(run, models, begun))),
        pauses=tuple(_pauses(run, ours)),
        formats=tuple(_formats(run, ours)),
        files=tuple(_files(run)) if ours else (),
        file_tests=tuple(_file_tests(run)),
        deferrals=tuple(deferrals(run, models, sharded=True)),
        nested=tuple(_unique(nested(models))),
        replaced=tuple({site.node: (site, cut) for site, cut in replaced(run, models)}.values()),
        put_aside=tuple(_unique(put_aside(run, models))),
        whole_loads=tuple(_unique(_whole_loads(run, ours, begun))),
        whole_states=tuple(weights.whole_states(run, ours)),
        early_loads=early,
        restored=tuple({site.node: (site, former) for site, former in restored(run, models)}.values()),
        mixed=tuple({site.node: (site, code) for site, code in mixed(run, models)}.values()),
    )


def _unique(sites: Iterable[Site]) -> list[Site]:
    return list({site.node: site for site in sites}.values())


def _is_torch_save(event: Event, run: Interpreter) -> bool:
    if not isinstance(event.node, ast.Call) or len(event.node.args) < 2:
        return False
    names = {t.name for t in run.values.get(event.node.func, NOTHING).things if isinstance(t, External)}
    return "torch.save" in names


def _may_hold_shards(event: Event, run: Interpreter) -> bool:
    """Whether a checkpoint may hold parameters: anything but samples and what is computed from them."""
    assert isinstance(event.node, ast.Call)
    node = event.node.args[0]
    value = run.values.get(node, NOTHING)
    sliced = isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice)
    tensor = sliced or isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in KEEPING
    if tensor and not any(isinstance(t, Parameters) for t in value.things):
        return False
    return run.is_alike(node)


OWN_STATES = ("state_dict", "get_extra_state")
"""Methods by which the state of a module is another than its tensors."""


def _is_of_model(save: ast.AST, run: Interpreter, ours: Keys) -> bool:
    """`torch.save(model.state_dict(), path)`, where the model is sharded and its state is that of any module."""
    state = save.args[0] if isinstance(save, ast.Call) and len(save.args) == 2 and not save.keywords else None
    if not isinstance(state, ast.Call) or state.args or state.keywords or not isinstance(state.func, ast.Attribute):
        return False
    if any(
        isinstance(t, External) and t.name == "torch.compile" for value in run.values.values() for t in value.things
    ):
        return False  # whose prefix of keys torch takes away
    named = isinstance(state.func.value, (ast.Name, ast.Attribute)) and last_name(state.func.value) != "module"
    things = run.values.get(state.func.value, NOTHING).things
    models = [t for t in things if isinstance(t, Object) and t.key in ours]
    plain = not any(part.cls.find(n) for model in models for part in parts(model) if part.cls for n in OWN_STATES)
    return named and state.func.attr == "state_dict" and plain and 0 < len(things) == len(models)


def _files(run: Interpreter) -> Iterator[Site]:
    """Calls of `torch.load`, but for those that read samples."""
    seen: set[ast.AST] = set()
    for event in run.of("load"):
        owner = event.function.owner if event.function is not None else None
        if event.node not in seen and not (isinstance(owner, Object) and "dataset" in owner.roles):
            seen.add(event.node)
            yield Site(event.source, event.node)


def _file_tests(run: Interpreter) -> Iterator[Site]:
    """`os.path.isfile`, `path.is_file`"""
    for node in run.values:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in ("isfile", "is_file"):
                yield Site(run.sources[node], node.func)


def _loads(
    run: Interpreter, models: list[Model], ours: Keys, begun: Mapping[Key, int], early: bool = False
) -> Iterator[tuple[Site, str]]:
    """State dicts that a model loads after it was sharded, or else those that whole models load."""
    seen: set[ast.AST] = set()
    owners = members(models)
    for event in run.of("model_load_state_dict"):
        if event.node in seen or not isinstance(event.node, ast.Call):
            continue
        loading = [owners[key] for key in _held(event) & ours]
        if all(event.order < begun[m.key] for m in loading) is not early or not event.node.args:
            continue  # a function loads whole models and sharded ones
        if not early and _is_state_of_shards(event.node.args[0], event, run, begun):
            continue
        seen.add(event.node)
        assert isinstance(event.node.func, ast.Attribute)
        target = event.node.func.value
        if isinstance(target, ast.Attribute) and target.attr == "module":
            bare = run.values.get(target.value, NOTHING)
            target = target.value if ours & keys(unwrapped(bare)) else target
        yield Site(event.source, event.node.args[0]), event.source.code(target)


def _held(event: Event) -> Keys:
    """The modules that an event is about, and what is in them: of `ema.load_state_dict(...)` also `ema.module`."""
    return keys(part for t in unwrapped(event.value) if isinstance(t, Object) for part in parts(t))


def _is_state_of_shards(node: ast.expr, event: Event, run: Interpreter, begun: Mapping[Key, int]) -> bool:
    """`ema.load_state_dict(model.state_dict())`, where the other model is sharded by then, too."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "state_dict":
        return False
    of_models = keys(unwrapped(run.values.get(node.func.value, NOTHING)))
    return bool(of_models) and all(begun.get(key, event.order) < event.order for key in of_models)


def _whole_loads(run: Interpreter, ours: Keys, begun: Mapping[Key, int]) -> Iterator[Site]:
    """State dicts of sharded models that others load, which are whole: `copy.load_state_dict(model.state_dict())`"""
    first = min(begun.values(), default=0)
    for event in run.of("model_load_state_dict"):
        if not isinstance(event.node, ast.Call) or not event.node.args or event.order < first:
            continue
        if ours & _held(event):
            continue
        given = run.values.get(event.node.args[0], NOTHING)
        taken = [t.node.func for t in given.objects("state") if isinstance(t.node, ast.Call)]
        of_models = [run.values.get(f.value, NOTHING) for f in taken if isinstance(f, ast.Attribute)]
        if any(ours & keys(unwrapped(model)) for model in of_models):
            yield Site(event.source, event.node.args[0])


def _optimizer_loads(run: Interpreter, ours: Keys) -> Iterator[tuple[Site, str]]:
    seen: set[ast.AST] = set()
    for event in run.of("optimizer_load_state_dict"):
        if event.node in seen or not isinstance(event.node, ast.Call):
            continue
        seen.add(event.node)
        held = [m for t in event.value.objects("optimizer") for m in optimized_by(t)]
        if any(part.key in ours for m in held for part in parts(m)) and event.node.args:
            assert isinstance(event.node.func, ast.Attribute)
            yield Site(event.source, event.node.args[0]), event.source.code(event.node.func.value)


def _root(node: ast.expr, run: Interpreter, ours: Keys) -> tuple[ast.expr | None, bool]:
    """The parameter (with its `.data` or `.grad`) that an expression is computed from, and whether gradients stop."""
    cut = False
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in KEEPING:
        cut = cut or node.func.attr == "detach"
        node = node.func.value
    root = node
    while isinstance(node, ast.Attribute) and node.attr in ("data", "grad"):
        cut, node = True, node.value
    return (root, cut) if _is_parameter(node, run, ours) else (None, False)


def _is_parameter(node: ast.expr, run: Interpreter, ours: Keys) -> bool:
    if not isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
        return False
    for thing in run.values.get(node, NOTHING).things:
        if isinstance(thing, Parameters):
            module = thing.module.module if isinstance(thing.module, Wrapped) else thing.module
            return isinstance(module, Object) and module.key in ours
    if isinstance(node, ast.Subscript):
        return _is_parameter(node.value, run, ours)
    if isinstance(node, ast.Attribute) and node.attr in ("weight", "bias"):
        return any(isinstance(t, Object) and t.key in ours for t in unwrapped(run.values.get(node.value, NOTHING)))
    return False


def _norms(run: Interpreter) -> Iterator[Site]:
    """Clipping whose result, the norm of the gradients, is used."""
    for event in run.of("clip"):
        if isinstance(event.node, ast.Call):
            name = event.node.func.attr if isinstance(event.node.func, ast.Attribute) else ast.unparse(event.node.func)
            parent = event.source.parents.get(event.node)
            whole = isinstance(parent, ast.Attribute) and parent.attr == "full_tensor"
            if "norm" in name and not isinstance(parent, ast.Expr) and not whole:
                yield Site(event.source, event.node)


def _forwards(run: Interpreter, models: list[Model]) -> Iterator[Site]:
    """`model.forward` or that of a block, called directly: past the hooks that gather the parameters. Those of the
    model's own methods gather them before."""
    ours = {model.object.key for model in models}
    for event in run.of("forward"):
        inside = event.function.owner if event.function is not None else None
        called = [t for t in unwrapped(event.value) if isinstance(t, Object) and t.key in ours and t is not inside]
        if called and (func := _forward_of(event.node)) is not None:
            yield Site(event.source, func)
    apart = (model for model in models if not model.wrapped)
    blocks = keys(block for model in apart for unit in model.units for block in blocks_of(model, unit))
    for node in run.values if blocks else ():
        func = _forward_of(node)
        if func is not None and keys(unwrapped(run.values.get(func.value, NOTHING))) & blocks:
            yield Site(run.sources[node], func)


def _forward_of(node: ast.AST) -> ast.Attribute | None:
    """`model.forward` in a call of it."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "forward":
        return node.func
    return None


def _formats(run: Interpreter, ours: Keys) -> Iterator[Site]:
    """`model.to(memory_format=torch.channels_last)`"""
    for event in run.of("move"):
        if isinstance(event.node, ast.Call) and ours & keys(unwrapped(event.value)):
            for keyword in event.node.keywords:
                things = run.values.get(keyword.value, NOTHING).things
                if keyword.arg == "memory_format" and any(
                    isinstance(t, External) and "channels_last" in t.name for t in things
                ):
                    yield Site(event.source, keyword.value)


def _inferences(run: Interpreter) -> Iterator[Site]:
    for node, value in run.values.items():
        if isinstance(node, (ast.Name, ast.Attribute)):
            if any(isinstance(t, External) and t.name == "torch.inference_mode" for t in value.things):
                yield Site(run.sources[node], node)


def _pauses(run: Interpreter, ours: Keys) -> Iterator[Site]:
    """`model.no_sync()`"""
    for node in run.values:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "no_sync":
            if ours & keys(unwrapped(run.values.get(node.func.value, NOTHING))):
                yield Site(run.sources[node], node)


def _asked(run: Interpreter, models: list[Model], begun: Mapping[Key, int]) -> Iterator[tuple[Event, bool]]:
    """`type(model)` and `model.__class__` after sharding; with whether that is known to be a model or part of one."""
    roots = {key: root.key for key, root in members(model for model in models if not model.wrapped).items()}
    hooks = {each.node for event in run.of("forward_hook") for each in event.detail.functions}
    for event in run.of("asked_class"):
        things = [*unwrapped(event.value), *(t.module for t in event.value.things if isinstance(t, Inside))]
        held = [roots[key] for key in keys(things) if key in roots]
        later = not hooks.isdisjoint(event.source.ancestors(event.node))
        if any(later or event.order >= begun[root] for root in held):
            yield event, True
        elif not things and event.order >= min(begun.values(), default=0):
            yield event, False


def _class_names(run: Interpreter, models: list[Model], begun: Mapping[Key, int]) -> Iterator[Site]:
    """`type(model).__name__`, `model.__class__.__name__`"""
    for event, known in _asked(run, models, begun):
        parent = event.source.parents.get(event.node)
        if known and isinstance(parent, ast.Attribute) and parent.attr in ("__name__", "__qualname__"):
            yield Site(event.source, parent)


def _classes(run: Interpreter, models: list[Model], begun: Mapping[Key, int]) -> Iterator[Site]:
    """`type(m) is Block`, `registry[type(model)]`"""
    sharded = {
        each.cls.node if each.cls is not None else External(each.name)
        for each in (part for model in models for part in parts(model.object))
        if len(parts(each)) > 1 or any(each is model.object for model in models)
    }
    for event, known in _asked(run, models, begun):
        node, parent = event.node, event.source.parents.get(event.node)
        if isinstance(parent, ast.Compare):
            compared = [side for side in (parent.left, *parent.comparators) if side is not node]
            classes = {
                t.node if isinstance(t, Class) else t
                for side in compared
                for n in (side.elts if isinstance(side, (ast.Tuple, ast.List, ast.Set)) else [side])
                for t in run.values.get(n, NOTHING).things or {None}
            }
            if classes & sharded or known and not all(isinstance(t, (ast.ClassDef, External)) for t in classes):
                yield Site(event.source, node)
        elif known and not _is_served(node, parent):
            yield Site(event.source, node)


def _is_served(asked: ast.AST, parent: ast.AST | None) -> bool:
    """Whether what is done with the class of a sharded module is the same as with that which it had."""
    if isinstance(parent, ast.Attribute):
        return parent.attr not in ("__module__", "__bases__", "__mro__", "__dict__", "__doc__")
    if not isinstance(parent, ast.Call):
        return False
    subclass = getattr(parent.func, "id", "") == "issubclass" and parent.args[:1] == [asked]
    return parent.func is asked or subclass


def _wrappers(run: Interpreter, models: list[Model]) -> Iterator[Site]:
    """`model.module`, where the wrapper goes."""
    ours = {model.object.key for model in models if model.data_parallel or model.dropped}
    for node in run.values:
        if isinstance(node, ast.Attribute) and node.attr == "module" and isinstance(node.ctx, ast.Load):
            base = run.values.get(node.value, NOTHING)
            if any(isinstance(t, Object) and t.key in ours and "module" not in t.attributes for t in base.things):
                yield Site(run.sources[node], node)


def guarded_parameters(run: Interpreter, models: list[Model], guards: list[Site]) -> list[tuple[Site, ast.stmt]]:
    """Parameters that a statement uses which rank 0 runs alone, with that statement."""
    ours = frozenset(members(model for model in models if not model.wrapped))
    found: dict[ast.AST, tuple[Site, ast.stmt]] = {}
    for site in guards:
        assert isinstance(site.node, ast.stmt)
        inside = list(walk(site.node))
        bound = {n.id for n in inside if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        for node in inside:
            if not isinstance(node, (ast.Name, ast.Attribute)) or not isinstance(node.ctx, ast.Load):
                continue
            outer = site.source.parents.get(node)
            whole = not (isinstance(outer, ast.Attribute) and outer.attr in ("data", "grad"))
            root, _ = _root(node, run, ours)
            own = not any(isinstance(n, ast.Name) and n.id in bound for n in walk(node))
            if root is node and whole and own and not _names_parameters(node, outer):
                found[node] = Site(site.source, node), site.node
    return list(found.values())


def _names_parameters(node: ast.expr, outer: ast.AST | None) -> bool:
    """`p.shape`, `p.numel()`: what a shard knows of the whole."""
    return isinstance(outer, ast.Attribute) and outer.attr in (
        "shape",
        "numel",
        "size",
        "requires_grad",
        "dtype",
        "device",
    )


def hoists(
    run: Interpreter, models: list[Model], found: Shards, guards: list[Site]
) -> tuple[list[tuple[Site, ast.stmt]], list[Concern]]:
    """Collectives inside statements that rank 0 runs alone: they are made before those, or cannot be. A forward pass
    is one where parameters are sharded, and where the wrapper or the layers of a model synchronise buffers or
    statistics."""
    ours = frozenset(members(model for model in models if not (run.plan.bare and model.wrapped)))
    guarded = frozenset(site.node for site in guards)
    written = {site.node for site in found.saves}
    passes = [e for e in run.of("forward") if not e.inside_forward and ours & keys(unwrapped(e.value))]
    forwards = [_in_guard(event, guarded) for event in passes]
    run_there = frozenset(site for site, guard in forwards if guard is not None and _is_by_condition(site, guard))
    wanted = [*((site, _guard(site, guarded)) for site in found.reads), *forwards]
    for event in (e for kind in STATES for e in run.of(kind)) if run.plan.bare else ():
        held = ours & keys(unwrapped(event.value))
        held |= ours & keys(module for t in event.value.objects("optimizer") for module in optimized_by(t))
        if held and not event.inside_forward:
            site = Site(event.source, event.node)
            alone = rank_check(event, run) if event.on_one_rank else None
            wanted.append((site, alone or _guard(site, guarded)))
    moved: dict[ast.AST, tuple[Site, ast.stmt]] = {}
    stuck: dict[ast.AST, Concern] = {}
    for site, guard in wanted:
        own = any(ancestor in written for ancestor in site.source.ancestors(site.node))
        if guard is None or own or not isinstance(site.node, ast.expr):
            continue
        whole = _outside_loops(site, guard)
        if whole is None or made_inside(whole, guard) or site in run_there:
            message = "must run on every rank, before rank 0 writes what is made of it in here: compute it above"
            stuck.setdefault(site.node, Concern("AD904", site.source, site.node, message, Severity.REFUSAL))
        else:
            moved.setdefault(whole, (Site(site.source, whole), guard))
    return list(moved.values()), list(stuck.values())


LAZY = frozenset(["map", "filter", "imap"])
"""What calls a function when its results are asked for."""


def _outside_loops(site: Site, guard: ast.stmt) -> ast.expr | None:
    """The expression around ``site`` that no comprehension runs more than once, so that it can be made before."""
    found: ast.AST = site.node
    lazy = isinstance(found, ast.Call) and last_name(found.func) in LAZY
    for ancestor in site.source.ancestors(site.node):
        if ancestor is guard:
            break
        if isinstance(ancestor, ast.Lambda):
            return None
        if isinstance(ancestor, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            if found is site.node and last_name(getattr(found, "func", found)) == "state_dict":
                first = ancestor.generators[0].iter
                if any(node is site.node for node in walk(first)):
                    continue  # what a comprehension goes over is computed once
            found, lazy = ancestor, isinstance(ancestor, ast.GeneratorExp)
        elif lazy and isinstance(ancestor, ast.Call):
            found, lazy = ancestor, False  # what consumes a generator
    return found if isinstance(found, ast.expr) and not lazy else None


def _is_by_condition(site: Site, guard: ast.stmt) -> bool:
    """Whether a statement inside ``guard`` decides how often ``site`` is run: ahead of it a model would make a forward
    pass each time, which batch normalisation counts."""
    inside = list(itertools.takewhile(lambda each: each is not guard, site.source.ancestors(site.node)))
    return any(isinstance(each, (ast.If, ast.For, ast.While)) for each in inside)


def made_inside(node: ast.expr, guard: ast.stmt) -> bool:
    """Whether ``node`` uses a name that another part of the statement binds first."""
    own = set(walk(node))
    names = {n.id for n in own if isinstance(n, ast.Name)}
    return any(
        isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store) and n.id in names for n in walk(guard) if n not in own
    )


def _in_guard(event: Event, guarded: frozenset[ast.AST]) -> tuple[Site, ast.stmt | None]:
    """The outermost call of a guarded statement that leads to an event, or the event itself."""
    for call in event.calls:
        if isinstance(call.node, ast.expr):
            guard = _guard(Site(call.source, call.node), guarded)
            if guard is not None and not (isinstance(guard, ast.Expr) and guard.value is call.node):
                return Site(call.source, call.node), guard
    site = Site(event.source, event.node)
    return site, _guard(site, guarded)


def _guard(site: Site, guarded: frozenset[ast.AST]) -> ast.stmt | None:
    found = next((a for a in site.source.ancestors(site.node) if a in guarded), None)
    return found if isinstance(found, ast.stmt) else None
