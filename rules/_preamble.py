"""What several rules write: the functions that a converted script defines, and the names in them."""

from __future__ import annotations

import ast
import itertools
import textwrap
from collections.abc import Collection, Iterator

from autodist.edits import AddImport, Edit, InsertBefore, ReplaceExpr, WrapExpr
from autodist.imports import below_imports
from autodist.reduction import IN_TRAINING, Reduction
from autodist.rule import Context, Finding, Fix, Severity
from autodist.script import Site, TrainingScript, Wrapping
from autodist.source import Source, argument, last_name, simple

from ._collectives import AS_ON_RANK_ZERO

Planned = tuple[tuple[Source, Edit], ...]


def dist(context: Context, source: Source) -> tuple[str, Planned]:
    """The local name of `torch.distributed`, and the import it needs."""
    name, edits = context.imports(source).module("torch.distributed", "dist")
    return name, planned(source, *edits)


def counted_on_all_ranks(context: Context, counted: Reduction) -> Fix:
    """Take a number of a rank's samples for that of all ranks; where there is a switch, only when it is on."""
    template, imports = times_ranks(context, counted)
    return Fix((*imports, *planned(counted.source, WrapExpr(counted.node, template))))


def times_ranks(context: Context, counted: Reduction) -> tuple[str, Planned]:
    """How such a number is written, and the imports it needs."""
    d, imports = dist(context, counted.source)
    ranks = f"{d}.get_world_size()"
    switch, needed = switch_of(context, counted)
    return f"{{}} * ({ranks} if {switch} else 1)" if switch else f"{{}} * {ranks}", (*imports, *needed)


def switch_of(context: Context, reduction: Reduction) -> tuple[str | None, Planned]:
    """What a reduction is switched on by, by the names of its file, and the import it needs. What the script's own
    code is part of has these names already."""
    if reduction.switch != IN_TRAINING:
        return reduction.switch, ()
    torch, needed = imported(context, reduction.source, "torch")
    return IN_TRAINING.replace("torch", torch), needed


def rank_zero(script: TrainingScript, context: Context, source: Source, node: ast.AST) -> tuple[str | None, Planned]:
    """What tells rank 0 from the others at ``node``, and the import it needs; None where nothing is known to."""
    test = script.without_group.get(node)
    if test is None:
        d, imports = dist(context, source)
        return f"{d}.get_rank() == 0", imports
    if test.own is None and test.told:
        os, imports = imported(context, source, "os")
        return f'{os}.environ.get("RANK", "0") == "0"', imports
    return test.own, ()


def unguarded(script: TrainingScript, site: Site, message: str) -> Finding:
    """What is said where nothing tells rank 0 from the others, or they cannot wait for it."""
    reason = "no process group exists here, and nothing else says which rank this is"
    if script.without_group[site.node].read_back:
        reason = "all ranks read it, and without a process group they cannot wait for rank 0"
    message = f"{message}; {reason}: move it between init_process_group and destroy_process_group"
    return Finding(site.source, site.node, message, severity=Severity.WARNING)


def imported(context: Context, source: Source, module: str, alias: str | None = None) -> tuple[str, Planned]:
    """The local name of a module, and the import it needs."""
    name, edits = context.imports(source).module(module, alias or module)
    return name, planned(source, *edits)


def member(context: Context, source: Source, module: str, name: str, alias: str | None = None) -> tuple[str, Planned]:
    """The local name of something in a module, and the import it needs."""
    local, edits = context.imports(source).name(module, name, alias)
    return local, planned(source, *edits)


def planned(source: Source, *edits: Edit) -> Planned:
    """Edits of one file."""
    return tuple((source, edit) for edit in edits)


def defined(script: TrainingScript, source: Source, code: str) -> Planned:
    """The definition ``code``, above the first definition or statement of ``source``."""
    return planned(source, InsertBefore(_first(script, source), code))


def _first(script: TrainingScript, source: Source) -> ast.stmt:
    if script.setup is not None and script.setup.source is source:
        return script.setup.define
    return below_imports(source)


def bound(source: Source, name: str, node: ast.expr) -> str:
    """A statement that binds a name to an expression moved out of a call: its further lines move as its first one."""
    start, code = f"{name} = ", source.code(node)
    texts = [each for each in ast.walk(node) if isinstance(each, (ast.Constant, ast.JoinedStr))]
    if any(each.end_lineno != each.lineno for each in texts):
        return f"{start}{code}\n"
    first, *others = code.split("\n")
    line = source.line(node.lineno)
    hanging = first.rstrip().endswith(("(", "[", "{"))
    shift = len(line.lstrip()) - len(line) if hanging else len(start) - node.col_offset
    moved = [" " * max(len(each) - len(each.lstrip()) + shift, 0) + each.lstrip() for each in others]
    return "\n".join([start + first, *moved]) + "\n"


def given_sampler(script: TrainingScript, call: ast.Call) -> ast.expr | None:
    """The sampler that a loader is given, if any: `sampler=train_sampler` may say `None` by a variable."""
    sampler = argument(call, "sampler", 3)
    if sampler is None or isinstance(sampler, ast.Constant) and sampler.value is None:
        return None
    return None if script.program.at(sampler).constant is None else sampler


def asks_for(sampler: ast.expr | None, test: ast.Compare) -> bool:
    """`sampler is None`"""
    asks = isinstance(test.ops[0], ast.Is) and isinstance(test.comparators[0], ast.Constant)
    return sampler is not None and asks and ast.dump(test.left) == ast.dump(sampler)


def may_be_none(sampler: ast.expr, call: ast.Call, source: Source) -> bool:
    """Whether the sampler that a call is given may be None: `shuffle=sampler is None`, `sampler = None` before."""
    shuffle = argument(call, "shuffle", 2)
    if isinstance(shuffle, ast.Compare) and asks_for(sampler, shuffle):
        return True
    if not isinstance(sampler, ast.Name):
        return _is_none(sampler)
    home = source.home(call)
    given = [
        node.value
        for node in ast.walk(home)
        if isinstance(node, ast.Assign)
        and any(isinstance(target, ast.Name) and target.id == sampler.id for target in node.targets)
    ]
    return any(map(_is_none, given))


def _is_none(node: ast.expr) -> bool:
    """`None`, `sampler if balanced else None`"""
    if isinstance(node, ast.IfExp):
        return _is_none(node.body) or _is_none(node.orelse)
    return isinstance(node, ast.Constant) and node.value is None


def shuffles_others(source: Source, call: ast.Call, shuffle: ast.expr, switch: str | None) -> bool:
    """Whether the call also makes loaders that evaluate in random order: in the same one on all ranks, see AD206."""
    if switch is None or says(shuffle, switch) or argument(call, "generator"):
        return False
    return not isinstance(shuffle, ast.Constant) or bool(shuffle.value)


def says(node: ast.expr, code: str) -> bool:
    """Whether an expression is that which some code writes, however it is quoted and spaced, or `True if ... else
    False` of it."""
    match node:
        case ast.IfExp(test=test, body=ast.Constant(value=True), orelse=ast.Constant(value=False)):
            node = test
    return ast.dump(node) == ast.dump(ast.parse(code, mode="eval").body)


def is_move(node: ast.expr) -> bool:
    """`model.to(device)`"""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("cuda", "to")


def divisible(size: str, d: str, unless: str | None = None) -> str:
    """The line that stops the script where a batch cannot be shared out evenly."""
    condition = f"{size} % {d}.get_world_size() == 0"
    if unless is not None:
        condition = f"{unless} or {condition}"
    return f'assert {condition}, "batch size must be divisible by the number of ranks"\n'


def negated(condition: str | None) -> str:
    """`flag == "train"` becomes `flag != "train"`, and `train` becomes `not train`."""
    condition = condition or "True"
    if " in (" in condition:
        return condition.replace(" in (", " not in (")
    if " == " in condition:
        return condition.replace(" == ", " != ")
    return condition.removeprefix("not ") if condition.startswith("not ") else f"not {condition}"


SYNCHRONISE = '''\
def synchronise_norms(model):
    """The model with batch statistics over all ranks, also where it keeps its layers in plain lists."""
    old = dict(model.named_modules())
    model = {nn}.SyncBatchNorm.convert_sync_batchnorm(model)
    new = {id(layer): model.get_submodule(name) for name, layer in old.items()}
    for module in model.modules():
        for name, value in list(vars(module).items()):
            if type(value) in (list, tuple):
                setattr(module, name, type(value)(new.get(id(each), each) for each in value))
    return model


'''


def synchronised(
    script: TrainingScript, context: Context, source: Source, target: str, each: str = "", moved: bool = False
) -> tuple[str, Planned]:
    """Lines that give a model, or each of a list of models, batch statistics over all ranks.

    Once it is ``moved`` to its device, it says itself whether that is a GPU, of which options may decide.
    """
    nn, nn_import = imported(context, source, "torch.nn", "nn")
    torch, torch_import = imported(context, source, "torch")
    convert = f"{nn}.SyncBatchNorm.convert_sync_batchnorm"
    if script.norms_in_lists:
        nn_import = (*nn_import, *defined(script, source, SYNCHRONISE.replace("{nn}", nn)))
        convert = "synchronise_norms"
    asked = f"{torch}.cuda.is_available()"
    if moved or not script.names_device:  # the model stays on the CPU until somebody moves it
        first = f"next(iter({target}.values()))" if each == "dict" else f"{target}[0]" if each else target
        asked, torch_import = f"next({first}.parameters()).is_cuda", ()
    converted = for_each(each, f"{convert}(model)", target) if each else f"{convert}({target})"
    code = f"if {asked}:  # BatchNorm over the whole batch; SyncBatchNorm needs a GPU\n" f"    {target} = {converted}\n"
    return code, (*nn_import, *torch_import)


SYNCHRONISED = '''\
def synchronised(model):
    """The model with batch statistics over all ranks, where it is on a GPU: SyncBatchNorm needs one."""
    return {convert}(model) if next(model.parameters()).is_cuda else model


'''


def synchronised_there(script: TrainingScript, context: Context, source: Source) -> tuple[str, Planned]:
    """A function that gives a model, which has no name yet, batch statistics over all ranks, and its definition."""
    nn, imports = imported(context, source, "torch.nn", "nn")
    convert = f"{nn}.SyncBatchNorm.convert_sync_batchnorm"
    if script.norms_in_lists:
        imports = (*imports, *defined(script, source, SYNCHRONISE.replace("{nn}", nn)))
        convert = "synchronise_norms"
    return "synchronised", (*imports, *defined(script, source, SYNCHRONISED.replace("{convert}", convert)))


STARTED_ALIKE = '''\
def started_alike(model):
    """The model, with the weights of rank 0 on all ranks."""
{lines}    return model


'''


def started_alike_there(script: TrainingScript, d: str, source: Source) -> tuple[str, Planned]:
    """A function that gives all ranks the weights of rank 0 of a model, which has no name yet, and its definition."""
    lines = textwrap.indent(started_alike(script, d, "model", ()), "    ")
    return "started_alike", defined(script, source, STARTED_ALIKE.replace("{lines}", lines))


def for_each(kind: str, made: str, target: str) -> str:
    """What is made of each `model` of a list or dict of models."""
    return (
        f"{{name: {made} for name, model in {target}.items()}}" if kind == "dict" else f"[{made} for model in {target}]"
    )


def if_there(wrapping: Wrapping, target: str, code: str) -> str:
    """Lines for a model that may be None."""
    return f"if {target} is not None:\n{textwrap.indent(code, '    ')}" if wrapping.optional else code


def normalised_alone(script: TrainingScript, source: Source, node: ast.stmt) -> Iterator[Finding]:
    """A warning where a model that normalises over batches never leaves the CPU."""
    if not script.names_device:
        message = (
            "the script trains on the CPU, where batch normalisation sees the samples of one rank: nn.SyncBatchNorm, "
            "which sees those of all, needs GPUs"
        )
        yield Finding(source, node, message, severity=Severity.WARNING)


def started_alike(script: TrainingScript, d: str, target: str, taken: Collection[str], each: str = "") -> str:
    """Lines that give all ranks the weights of rank 0: those of a model, or of ``each`` of a list or dict of models.
    Sparse tensors cannot be sent: a graph is made on every rank."""
    tensor = first_free(taken, "tensor", "weight")
    if each:
        model = first_free(taken, "model", "net")
        inner = started_alike(script, d, model, taken)
        held = f"{target}.values()" if each == "dict" else target
        return f"for {model} in {held}:\n" + "".join(f"    {line}\n" for line in inner.splitlines())
    loop = f"for {tensor} in {target}.state_dict().values():  # same initial weights on all ranks\n"
    if any(map(_keeps_sparse, script.project.sources)):
        return f"{loop}    if not {tensor}.is_sparse:\n        {d}.broadcast({tensor}, 0)\n"
    return f"{loop}    {d}.broadcast({tensor}, 0)\n"


def _keeps_sparse(source: Source) -> bool:
    """Whether a file may keep a sparse tensor in a model's state: `nn.Parameter(torch.sparse.FloatTensor(n, n))`."""
    return "sparse" in source.text and any(
        isinstance(node, ast.Call) and last_name(node.func) in ("Parameter", "register_buffer")
        for node in ast.walk(source.tree)
    )


def by_rank_zero(script: TrainingScript, context: Context, source: Source, node: ast.expr) -> Planned:
    """Have rank 0 alone evaluate an expression, and all ranks go on with its value."""
    d, imports = dist(context, source)
    helper = defined(script, source, AS_ON_RANK_ZERO.replace("{d}", d))
    shared = WrapExpr(node, f"as_on_rank_zero({{}} if {d}.get_rank() == 0 else None)")
    return (*imports, *helper, *planned(source, shared))


def free_name(source: Source, *names: str, taken: Collection[str] = ()) -> str:
    """The first of some names, or the first with a number, that the file does not use."""
    used = {node.id for node in ast.walk(source.tree) if isinstance(node, ast.Name)}
    used |= {node.arg for node in ast.walk(source.tree) if isinstance(node, ast.arg)}
    return first_free({*used, *taken}, *names)


def first_free(taken: Collection[str], *names: str) -> str:
    """The first of some names, or the first with a number, that is not taken."""
    numbered = (f"{names[0]}_{number}" for number in itertools.count(2))
    return next(name for name in itertools.chain(names, numbered) if name not in taken)


def divided_options(
    source: Source,
    statement: ast.stmt,
    unpacked: ast.keyword,
    d: str,
    shuffled: bool = False,
    switch: str | None = None,
) -> list[Edit]:
    """Edits that share out the batch size in the options that a loader's call unpacks; with ``shuffled``, the sampler
    has been told their order. ``switch`` tells the loader that trains from others that the call makes."""
    name = source.code(unpacked.value)
    check = InsertBefore(statement, divisible(f'{name}["batch_size"]', d), prepares=True)
    again = any(
        isinstance(node, ast.keyword) and node.arg is None and node is not unpacked and source.code(node.value) == name
        for node in ast.walk(source.tree)
    )  # another call unpacks the same options
    if not again and are_own(source, unpacked):
        return [check, InsertBefore(statement, f'{name}["batch_size"] //= {d}.get_world_size()\n', prepares=True)]
    plain = ', "shuffle": False' if shuffled and not are_own(source, unpacked) else ""
    code = f'{{**{name}, "batch_size": {name}["batch_size"] // {d}.get_world_size(){plain}}}'
    return [check, ReplaceExpr(unpacked.value, f"({code} if {switch} else {name})" if switch and not again else code)]


def are_own(source: Source, unpacked: ast.keyword) -> bool:
    """Whether options are made anew for each call that unpacks them, which may change them then; those of an object or
    of a setting are divided once more for the next fold."""
    name = unpacked.value
    home = source.home(unpacked)
    if not isinstance(name, ast.Name):
        return False
    if not isinstance(home, ast.Module) and home.args.kwarg is not None and home.args.kwarg.arg == name.id:
        return True
    made = [
        each
        for each in ast.walk(home)
        if isinstance(each, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name.id for t in each.targets)
    ]
    loops = [each for each in source.ancestors(unpacked) if isinstance(each, (ast.For, ast.While))]
    return bool(made) and all(
        isinstance(each.value, (ast.Dict, ast.Call, ast.IfExp)) and set(loops) <= set(source.ancestors(each))
        for each in made
    )


__all__ = [
    "AddImport",
    "Planned",
    "are_own",
    "argument",
    "defined",
    "dist",
    "divided_options",
    "divisible",
    "given_sampler",
    "imported",
    "is_move",
    "member",
    "negated",
    "planned",
    "simple",
    "synchronised",
]
