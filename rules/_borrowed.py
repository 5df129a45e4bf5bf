"""What becomes of the names of another distribution library; three rules report it."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from autodist.edits import (
    AddImport,
    Edit,
    InsertBefore,
    Recompose,
    RemoveArgument,
    RemoveStatement,
    ReplaceExpr,
    ReplaceStatement,
    Unwrap,
)
from autodist.rule import Context, Severity
from autodist.script import Borrowed, TrainingScript
from autodist.source import Source, argument, walk
from autodist.values import NOTHING, Object, Wrapped

from ._collectives import COLLECTIVES
from ._departed import all_but, without_imports
from ._preamble import Planned, defined, dist, imported, member, planned

ALIASES = {"torch.distributed": "dist", "torch.nn": "nn", "os": "os"}
NO_ADASUM = "Adasum has no counterpart in DistributedDataParallel"


@dataclass(frozen=True)
class Departure:
    """One decision: which rule reports it, why, and the edits; none for what cannot be replaced."""

    code: str
    source: Source
    node: ast.AST
    message: str
    edits: Planned = ()
    severity: Severity = Severity.NOTE


@dataclass(frozen=True)
class _Task:
    use: Borrowed
    script: TrainingScript
    context: Context

    @property
    def source(self) -> Source:
        return self.use.source

    @property
    def statement(self) -> ast.stmt:
        return self.source.statement(self.use.node)

    def alone(self) -> bool:
        """Whether the call is a statement of its own."""
        return isinstance(self.statement, ast.Expr) and self.statement.value is self.use.call

    def says(self, message: str, *edits: object, code: str = "AD405", more: Planned = ()) -> Departure:
        own = planned(self.source, *edits)  # type: ignore[arg-type]
        return Departure(code, self.source, self.use.node, message, (*more, *own))

    def refused(self, message: str) -> Departure:
        return Departure("AD908", self.source, self.use.node, message, severity=Severity.REFUSAL)


def departures(script: TrainingScript, context: Context, code: str) -> Iterator[Departure]:
    """What one of the rules says about the script."""
    if not script.trains or not script.borrowed:
        return
    found = list(_all(script, context))
    yield from (each for each in found if each.code == code)


def _all(script: TrainingScript, context: Context) -> Iterator[Departure]:
    outer = [use for use in script.borrowed if not _inside(use, script.borrowed)]
    loading = list(_loads_on_one_rank(script))
    covered = {node for _, test in loading for node in walk(test)}
    for use in outer:
        if use.node in covered:
            continue
        yield from _handled(_Task(use, script, context))
    for source, test in loading:
        yield from _loaded_by_all(source, test)
    yield from _methods(script, context)
    for source in dict.fromkeys(use.source for use in script.borrowed):
        gone = [use.whole for use in outer if use.source is source]
        kept = [part for use in outer for part in use.kept]
        for statement in _fed(source, gone, kept):
            gone.append(statement)
            edit: Edit = RemoveStatement(statement, True)
            yield Departure("AD405", source, statement, "goes with what it configures", ((source, edit),))
        names = script.borrowed_names.get(source, frozenset())
        for edit in without_imports(source, gone, kept, names):
            yield Departure("AD104", source, edit.anchor, "nothing of it is left", ((source, edit),))


def _inside(use: Borrowed, others: tuple[Borrowed, ...]) -> bool:
    """Whether a name goes with another one anyway."""
    for other in others:
        if other is use or other.source is not use.source:
            continue
        for node in (use.node, *use.source.ancestors(use.node)):
            if any(node is part for part in other.kept):
                break
            if node is other.whole and not (other.whole is use.whole and other.node is use.node):
                return other.whole is not use.whole or other.node.col_offset < use.node.col_offset
    return False


def _fed(source: Source, gone: list[ast.AST], kept: list[ast.expr]) -> Iterator[ast.stmt]:
    """Settings that only what goes reads: `wrapper_options = dict(flatten=True)`."""
    lost = {each for node in gone for each in all_but(node, kept)}
    read = {node.id for node in lost if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    for node in walk(source.tree):
        if not isinstance(node, ast.Assign) or node in lost or not isinstance(node.targets[0], ast.Name):
            continue
        name = node.targets[0].id
        uses = [n for n in walk(source.tree) if isinstance(n, ast.Name) and n.id == name and n not in lost]
        if name in read and uses == [node.targets[0]] and _is_plain(node.value):
            yield node


def _is_plain(node: ast.expr) -> bool:
    """Whether evaluating it does nothing else."""
    return not any(
        isinstance(n, ast.Call) and not (isinstance(n.func, ast.Name) and n.func.id in ("dict", "int", "float", "bool"))
        for n in walk(node)
    )


def _handled(task: _Task) -> Iterator[Departure]:
    use = task.use
    if use.equivalent is not None:
        yield _equivalent(task)
        return
    handler = HANDLERS.get(use.name)
    library, _, short = use.name.partition(".")
    if handler is not None and use.call is not None:
        yield from handler(task)
    elif isinstance(use.whole, ast.Assign):
        yield from _setting(task)
    else:
        yield task.refused(f"{short} of {LIBRARIES[library]} has no counterpart here: replace it by hand first")


LIBRARIES = {"horovod": "Horovod", "fairscale": "FairScale", "fsdp": "FSDP1"}


def _equivalent(task: _Task) -> Departure:
    """A mere fact: what plain PyTorch says instead."""
    use, source = task.use, task.source
    assert use.equivalent is not None
    module, _, last = use.equivalent.strip("{}").rpartition(".")
    if isinstance(use.node, ast.Name) and use.equivalent == f"{{{module}.{last}}}" and use.node.id == last:
        return task.says(f"{module} has it, too", AddImport(source.tree, module, last), code="AD104")
    code, imports = _written(use.equivalent, source, task.context)
    assert isinstance(use.whole, ast.expr)
    edits: list[object] = [ReplaceExpr(use.whole, code)]
    if use.name == "fairscale.checkpoint_wrapper" and use.call is not None:
        if argument(use.call, "offload_to_cpu", 1) is not None:
            edits.append(RemoveArgument(use.call, "offload_to_cpu", 1))
    return task.says(f"plain PyTorch says {_short(code)}", *edits, code="AD104", more=imports)


def _written(template: str, source: Source, context: Context) -> tuple[str, Planned]:
    """A template with the names that the file has for its modules, and the imports they need."""
    needed: list[Planned] = []

    def name(match: re.Match[str]) -> str:
        path = match[1]
        if path in ALIASES:
            local, imports = imported(context, source, path, ALIASES[path])
        elif path == "torch.amp":
            torch, imports = imported(context, source, "torch")
            local = f"{torch}.amp"
        else:
            module, _, last = path.rpartition(".")
            local, imports = member(context, source, module, last)
        needed.append(imports)
        return local

    code = re.sub(r"\{([\w.]+)\}", name, template)
    return code, tuple(edit for imports in needed for edit in imports)


def _short(code: str) -> str:
    return code if len(code) <= 50 else code[:47] + "..."


# -------------------------------------------------------------------- Horovod


def _joined(task: _Task) -> Iterator[Departure]:
    """AD101 writes the replacement of `hvd.init()`."""
    if not task.alone():
        yield task.refused("joins the group in the middle of an expression: make it a statement of its own")


def _removed(message: str) -> Callable[[_Task], Iterator[Departure]]:
    def remove(task: _Task) -> Iterator[Departure]:
        if task.alone():
            yield task.says(message, RemoveStatement(task.statement, True))
        else:
            yield task.refused("its result is used: replace it by hand first")

    return remove


def _reduced(task: _Task) -> Iterator[Departure]:
    """`hvd.allreduce(tensor)` is a mean, unless a sum is asked for."""
    call = task.use.call
    assert call is not None
    average, operation = argument(call, "average", 1), argument(call, "op")
    summed = isinstance(average, ast.Constant) and average.value is False
    name = _name_in(operation, task) if operation is not None else "horovod.Average"
    if name not in ("horovod.Average", "horovod.Sum") or not task.use.kept:
        yield task.refused("averages in a way that cannot be seen: replace it by hand first")
        return
    yield _collective(task, "reduce_sum" if summed or name == "horovod.Sum" else "reduce_mean")


def _collective(task: _Task, name: str, template: str = "{0}") -> Departure:
    source, context = task.source, task.context
    assert task.use.call is not None
    d, imports = dist(context, source)
    torch, torch_import = imported(context, source, "torch")
    code = COLLECTIVES[name].replace("{d}", d).replace("{torch}", torch)
    edit = Recompose(task.use.call, f"{name}({template})", task.use.kept)
    needed = (*imports, *torch_import, *defined(task.script, source, code))
    return task.says(f"{name}() does it with torch.distributed", edit, code="AD104", more=needed)


def _gathered(name: str) -> Callable[[_Task], Iterator[Departure]]:
    def gather(task: _Task) -> Iterator[Departure]:
        yield _collective(task, name)

    return gather


def _broadcast(task: _Task) -> Iterator[Departure]:
    assert task.use.call is not None
    root = argument(task.use.call, "root_rank", 1)
    name = "broadcast_object" if task.use.name.endswith("object") else "broadcast"
    yield _collective(task, name, f"{{0}}, {task.source.code(root) if root is not None else 0}")


def _name_in(node: ast.expr, task: _Task) -> str | None:
    """The library's name that an expression is."""
    return next((use.name for use in task.script.borrowed if use.node is node), None)


def _choice(node: ast.expr | None, task: _Task) -> tuple[str | None, str | None, ast.expr | None] | None:
    """An option, as two names and the condition for the first; None where it cannot be seen."""
    if isinstance(node, ast.Name):
        values = [
            n.value
            for n in walk(task.source.tree)
            if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Name) and n.targets[0].id == node.id
        ]
        node = values[0] if len(values) == 1 else None
    if isinstance(node, ast.IfExp):
        return _name_in(node.body, task), _name_in(node.orelse, task), node.test
    name = _name_in(node, task) if node is not None else None
    return (name, name, None) if name is not None else None


def _averaging(task: _Task) -> Iterator[Departure]:
    """`hvd.DistributedOptimizer(optimizer)` is the optimizer: DistributedDataParallel averages the gradients."""
    use, source, statement = task.use, task.source, task.statement
    assert use.call is not None
    before: list[str] = []
    operation = argument(use.call, "op")
    if operation is not None:
        chosen = _choice(operation, task)
        names = {chosen[0], chosen[1]} if chosen is not None else set()
        if not names <= {"horovod.Average", "horovod.Adasum"} or names <= {"horovod.Adasum"}:
            how = "Adasum" if "horovod.Adasum" in names else "this operation"
            yield Departure(
                "AD908",
                source,
                operation,
                f"gradients are combined by {how}, which DistributedDataParallel cannot do: it averages them",
                severity=Severity.REFUSAL,
            )
            return
        if chosen is not None and chosen[2] is not None:
            test = source.code(chosen[2])
            negative = chosen[0] == "horovod.Adasum"
            before.append(f'assert {_negated(chosen[2], test) if negative else test}, "{NO_ADASUM}"\n')
    hook, imports = _hook(task)
    if not use.kept:
        yield task.refused("wraps no optimizer that can be seen")
        return
    same = (
        isinstance(statement, ast.Assign)
        and statement.value is use.call
        and source.code(statement.targets[0]) == source.code(use.kept[0])
    )
    code = "".join(before) + hook
    edits: list[object]
    if same:
        edits = [ReplaceStatement(statement, code) if code else RemoveStatement(statement, True)]
    else:
        edits = [Recompose(use.call, "{0}", use.kept), *([InsertBefore(statement, code)] if code else [])]
    yield task.says("DistributedDataParallel averages the gradients in backward", *edits, more=imports)


def _negated(test: ast.expr, code: str) -> str:
    return f"not {code}" if isinstance(test, (ast.Name, ast.Attribute, ast.Call)) else f"not ({code})"


def _hook(task: _Task) -> tuple[str, Planned]:
    """Compression of gradients on their way."""
    use, source = task.use, task.source
    assert use.call is not None
    chosen = _choice(argument(use.call, "compression"), task)
    places = [each.wrapping for each in task.script.models]
    models = [each for each in places if each is not None and not each.unnamed]
    if chosen is None or "horovod.Compression.fp16" not in chosen[:2] or len(models) != 1:
        return "", ()
    test = source.code(chosen[2]) if chosen[2] is not None else ""
    if chosen[2] is not None and chosen[0] != "horovod.Compression.fp16":
        test = _negated(chosen[2], test)
    if task.context.config.strategy.shards:  # it has no hook for that
        return (
            f'assert {_negated(chosen[2], test)}, "FSDP does not compress gradients"\n'
            if chosen[2] is not None and test
            else ""
        ), ()
    hooks, imports = member(task.context, source, "torch.distributed.algorithms.ddp_comm_hooks", "default_hooks")
    target = models[0].source.code(models[0].target)
    line = f"{target}.register_comm_hook(None, {hooks}.fp16_compress_hook)\n"
    return (f"if {test}:\n    {line}" if test else line), imports


def _same_everywhere(task: _Task) -> Iterator[Departure]:
    """`hvd.broadcast_parameters(model.state_dict(), root_rank=0)`: wrapping does that."""
    use, source = task.use, task.source
    assert use.call is not None
    given = argument(use.call, "params", 0)
    owner = None
    if isinstance(given, ast.Call) and isinstance(given.func, ast.Attribute):
        owner = given.func.value
    things = task.script.values.get(owner, NOTHING).things if owner is not None else frozenset()
    inner = {thing.module if isinstance(thing, Wrapped) else thing for thing in things}
    trained = {each.key for model in task.script.models for each in (model.object, *model.alternatives)}
    if not task.alone() or given is None:
        yield task.refused("its result is used: replace it by hand first")
    elif any(isinstance(thing, Object) and thing.key in trained for thing in inner):
        message = "all ranks start from rank 0's weights when the model is wrapped"
        yield task.says(message, RemoveStatement(task.statement, True))
    else:
        d, imports = dist(task.context, source)
        code = f"for tensor in {source.code(given)}.values():\n    {d}.broadcast(tensor, 0)\n"
        yield task.says(
            "torch.distributed broadcasts tensor by tensor", ReplaceStatement(task.statement, code), more=imports
        )


def _loads_on_one_rank(script: TrainingScript) -> Iterator[tuple[Source, ast.expr]]:
    """Conditions by which rank 0 alone loads what is broadcast afterwards."""
    if not any(use.name.startswith("horovod.broadcast_") for use in script.borrowed):
        return
    for use in script.borrowed:
        if use.name != "horovod.rank" or use.call is None:
            continue
        test = use.source.parents.get(use.call)
        if not isinstance(test, (ast.Compare, ast.UnaryOp)):
            continue
        if isinstance(test, ast.Compare) and not isinstance(test.ops[0], ast.Eq):
            continue
        outer = use.source.parents.get(test)
        outer = use.source.parents.get(outer) if isinstance(outer, ast.BoolOp) else outer
        if isinstance(outer, ast.If) and not outer.orelse and any(_loads_state(s) for s in outer.body):
            yield use.source, test


def _loads_state(statement: ast.stmt) -> bool:
    return any(isinstance(n, ast.Attribute) and n.attr == "load_state_dict" for n in walk(statement))


def _loaded_by_all(source: Source, test: ast.expr) -> Iterator[Departure]:
    parent = source.parents[test]
    message = "every rank loads it, so that nothing has to be sent"
    if isinstance(parent, ast.If):
        yield Departure("AD405", source, test, message, planned(source, Unwrap(parent)))
    elif isinstance(parent, ast.BoolOp) and isinstance(parent.op, ast.And):
        rest = tuple(value for value in parent.values if value is not test)
        template = " and ".join(f"{{{index}}}" for index in range(len(rest)))
        yield Departure("AD405", source, test, message, planned(source, Recompose(parent, template, rest)))


# -------------------------------------------------------------------- FairScale and FSDP1


def _setting(task: _Task) -> Iterator[Departure]:
    """`policy = partial(size_based_auto_wrap_policy, ...)` goes if only what goes uses it."""
    use, source = task.use, task.source
    assert isinstance(use.whole, ast.Assign)
    target = use.whole.targets[0]
    assert isinstance(target, ast.Name)
    wholes = [other for other in task.script.borrowed if other.source is source]
    for node in walk(source.tree):
        if isinstance(node, ast.Name) and node.id == target.id and isinstance(node.ctx, ast.Load):
            around = (node, *source.ancestors(node))
            if not any(each.whole in around and not any(k in around for k in each.kept) for each in wholes):
                yield task.refused(f"{target.id} is used for something else, too: replace it by hand first")
                return
    yield task.says("goes with what it configures", RemoveStatement(use.whole, True))


def _plain_optimizer(task: _Task) -> Iterator[Departure]:
    """`OSS(params, optim=SGD, **options)` is `SGD(params, **options)`."""
    use = task.use
    call = use.call
    assert call is not None
    params, optim = argument(call, "params", 0), argument(call, "optim", 1)
    if params is None:
        yield task.refused("optimizes nothing that can be seen")
        return
    imports: Planned = ()
    made = "{1}"
    parts: list[ast.expr] = [params]
    if optim is not None:
        parts.append(optim)
    else:
        sgd, imports = member(task.context, task.source, "torch.optim", "SGD")
        made = sgd
    given = ["{0}"]
    shared = any(each.site.node is call and not each.whole for each in task.script.parted)
    if shared:
        zero, more = member(task.context, task.source, "torch.distributed.optim", "ZeroRedundancyOptimizer")
        given, made, imports = ["{0}", f"optimizer_class={made}"], zero, (*imports, *more)
    for keyword in call.keywords:
        if keyword.value in parts or keyword.value not in use.kept:
            continue
        given.append(f"{keyword.arg}={{{len(parts)}}}" if keyword.arg else f"**{{{len(parts)}}}")
        parts.append(keyword.value)
    edit = Recompose(call, f"{made}({', '.join(given)})", tuple(parts))
    message = "the optimizer itself, whose state every rank holds in full"
    yield task.says("torch has it as ZeroRedundancyOptimizer" if shared else message, edit, more=imports)


def _wrapper(task: _Task) -> Iterator[Departure]:
    """AD401 replaces the wrapper of a model that trains; one around a part of it goes."""
    use = task.use
    sites = {site.node for model in task.script.models for site in (*model.data_parallel, *model.fully_sharded)}
    assert use.call is not None
    if not use.kept:
        yield task.refused("wraps no model that can be seen")
        return
    precision = argument(use.call, "mixed_precision")
    if precision is not None and not (isinstance(precision, ast.Constant) and not precision.value):
        yield Departure(
            "AD405",
            use.source,
            precision,
            "the wrapper computed in lower precision, which DistributedDataParallel does not: use torch.autocast",
            severity=Severity.WARNING,
        )
    if use.call not in sites:
        yield task.says("a part of a model is not wrapped on its own", Recompose(use.call, "{0}", use.kept[:1]))


def _inner(task: _Task) -> Iterator[Departure]:
    assert task.use.call is not None
    if not task.use.kept:
        yield task.refused("wraps nothing that can be seen")
        return
    yield task.says("a part of a model is not wrapped on its own", Recompose(task.use.call, "{0}", task.use.kept))


def _context(task: _Task) -> Iterator[Departure]:
    """`with FSDP.state_dict_type(...)` has nothing to say about a whole state."""
    block = task.source.statement(task.use.node)
    if isinstance(block, ast.With) and len(block.items) == 1 and block.items[0].context_expr is task.use.call:
        yield task.says("every rank holds the whole model", Unwrap(block))
    elif task.alone():
        yield task.says("every rank holds the whole model", RemoveStatement(task.statement, True))
    else:
        yield task.refused("its result is used: replace it by hand first")


def _optimizer_state(task: _Task) -> Iterator[Departure]:
    call = task.use.call
    assert call is not None
    optimizer = argument(call, "optim", 1)
    if optimizer is None:
        yield task.refused("gathers the state of an optimizer that cannot be seen")
        return
    edit = Recompose(call, "{0}.state_dict()", (optimizer,))
    yield Departure(
        "AD405",
        task.source,
        call,
        "every rank holds the whole state, by the parameters' numbers; FSDP1 wrote it by their names",
        planned(task.source, edit),
        Severity.WARNING,
    )


def _methods(script: TrainingScript, context: Context) -> Iterator[Departure]:
    """Methods of the other libraries' optimizers and wrappers."""
    names = {use.name for use in script.borrowed}
    for source in dict.fromkeys(use.source for use in script.borrowed):
        for node in walk(source.tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                yield from _method(node, node.func, names, script, source, context)


def _method(
    call: ast.Call, function: ast.Attribute, names: set[str], script: TrainingScript, source: Source, context: Context
) -> Iterator[Departure]:
    things = script.values.get(function.value, NOTHING).things
    inner = [thing.module if isinstance(thing, Wrapped) else thing for thing in things]
    objects = [thing for thing in inner if isinstance(thing, Object)]
    optimizes = any("optimizer" in thing.roles for thing in objects)
    models = any("module" in thing.roles and not (thing.cls and thing.cls.find(function.attr)) for thing in objects)
    statement = source.statement(call)
    alone = isinstance(statement, ast.Expr) and statement.value is call
    message = "gradients are averaged by backward already"
    if optimizes and function.attr == "synchronize" and alone and "horovod.DistributedOptimizer" in names:
        yield Departure("AD405", source, call, message, planned(source, RemoveStatement(statement, True)))
    elif optimizes and function.attr == "skip_synchronize" and "horovod.DistributedOptimizer" in names:
        if isinstance(statement, ast.With) and len(statement.items) == 1:
            yield Departure("AD405", source, call, message, planned(source, Unwrap(statement)))
    elif optimizes and function.attr == "consolidate_state_dict" and alone and "fairscale.OSS" in names:
        message = "every rank holds the whole state of the optimizer"
        yield Departure("AD405", source, call, message, planned(source, RemoveStatement(statement, True)))
    elif function.attr in ("clip_grad_norm_", "clip_grad_norm") and call.args and (optimizes or models):
        torch, imports = imported(context, source, "torch")
        of = "{0}.parameters()" if models else '(p for group in {0}.param_groups for p in group["params"])'
        edit = Recompose(call, f"{torch}.nn.utils.clip_grad_norm_({of}, {{1}})", (function.value, call.args[0]))
        message = "every rank holds whole gradients"
        yield Departure("AD405", source, call, message, (*imports, *planned(source, edit)))


HANDLERS: dict[str, Callable[[_Task], Iterator[Departure]]] = {
    "horovod.init": _joined,
    "horovod.shutdown": _removed("the group is left at exit"),
    "horovod.allreduce": _reduced,
    "horovod.allgather": _gathered("concatenated"),
    "horovod.allgather_object": _gathered("gathered"),
    "horovod.broadcast": _broadcast,
    "horovod.broadcast_object": _broadcast,
    "horovod.broadcast_parameters": _same_everywhere,
    "horovod.broadcast_optimizer_state": _removed("every rank's optimizer holds the same state"),
    "horovod.DistributedOptimizer": _averaging,
    "fairscale.OSS": _plain_optimizer,
    "fairscale.ShardedDataParallel": _wrapper,
    "fairscale.FullyShardedDataParallel": _wrapper,
    "fairscale.wrap": _inner,
    "fairscale.auto_wrap": _inner,
    "fairscale.enable_wrap": _context,
    "fsdp.FullyShardedDataParallel": _wrapper,
    "fsdp.FullyShardedDataParallel.state_dict_type": _context,
    "fsdp.FullyShardedDataParallel.set_state_dict_type": _context,
    "fsdp.FullyShardedDataParallel.summon_full_params": _context,
    "fsdp.FullyShardedDataParallel.full_optim_state_dict": _optimizer_state,
    "fsdp.FullyShardedDataParallel.optim_state_dict": _optimizer_state,
    "fsdp.wrap": _inner,
    "fsdp.enable_wrap": _context,
}
