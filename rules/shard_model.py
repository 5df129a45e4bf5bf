from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace

from autodist.config import MixedPrecision
from autodist.edits import InsertAfter, Recompose, RemoveStatement, ReplaceExpr, ReplaceStatement
from autodist.rule import SHARDED, Context, Example, Finding, Fix, Severity, Strategy, rule
from autodist.script import Model, Site, TrainingScript, Wrapping
from autodist.source import Source, argument, walk

from ._examples import PLAIN
from ._mesh import nodes_and_ranks
from ._meta import filling, making, moves_alone
from ._names import names_at
from ._preamble import (
    Planned,
    dist,
    first_free,
    if_there,
    imported,
    is_move,
    member,
    normalised_alone,
    planned,
    started_alike,
    synchronised,
)

WRAPPER = "torch.distributed.algorithms._checkpoint.checkpoint_wrapper"

BLOCKS = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return x + torch.relu(self.fc(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(6)])
        self.head = nn.Linear(4, 1)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
loader = DataLoader(train_set, batch_size=8, shuffle=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for epoch in range(2):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""

IMPORTS = (
    "import torch.distributed as dist\n"
    "from torch import nn\n"
    "from torch.distributed.device_mesh import init_device_mesh\n"
    "from torch.distributed.fsdp import fully_shard\n"
)
MESH = 'mesh = init_device_mesh("cpu", (dist.get_world_size(),))  # the script trains on the CPU\n'
ALIKE = (
    "for tensor in model.state_dict().values():  # same initial weights on all ranks\n    dist.broadcast(tensor, 0)\n"
)

EXAMPLES = [
    Example(
        before=BLOCKS,
        after=BLOCKS.replace("from torch import nn\n", IMPORTS, 1).replace(
            "model = Net()\n",
            f"model = Net()\n{ALIKE}{MESH}for block in model.blocks:\n    fully_shard(block, mesh=mesh)\n"
            "fully_shard(model, reshard_after_forward=True, mesh=mesh)\n",
        ),
    ),
    Example(
        before=PLAIN,
        after=PLAIN.replace("from torch import nn\n", IMPORTS, 1).replace(
            "model = nn.Linear(4, 1)\n",
            f"model = nn.Linear(4, 1)\n{ALIKE}{MESH}fully_shard(model, reshard_after_forward=True, mesh=mesh)\n",
        ),
    ),
    Example(before="import torch\n\nprint(torch.ones(2))\n", after=None),
]


@rule("AD501", *SHARDED)
def shard_model(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Shard each model that trains with `fully_shard`: its repeated blocks, then what is left of it.

    Each rank keeps its share of parameters, gradients and optimizer state; a block's parameters are gathered when it
    runs. All ranks first take the weights of rank 0, because FSDP keeps those that each rank has made. Sharding comes
    before the optimizer, which would otherwise hold parameters that are never used again. The root is sharded again
    after each forward pass: torch would keep its parameters for a backward pass that does not follow an evaluation, and
    the next step would train with stale ones. A model without repeated blocks is one unit: it is whole on every rank
    while it runs. With `--meta-device` rank 0 alone makes the weights, in the memory of its host, and no device ever
    holds all of them.
    """
    if not script.trains:
        return
    for site in script.shards.formats:
        assert isinstance(site.node, ast.expr)
        torch, imports = imported(context, site.source, "torch")
        fix = Fix((*imports, *planned(site.source, ReplaceExpr(site.node, f"{torch}.contiguous_format"))))
        yield Finding(site.source, site.node, "FSDP shards contiguous parameters only", fix)
    for model in _one_of_each_list(script.models):
        for site in (*model.data_parallel, *model.dropped):
            message = f"{_called(site)} keeps the whole model on every device"
            yield Finding(site.source, site.node, message, Fix(_unwrap(site, model)))
        if script.distributed:  # batch statistics are each rank's own in the script as it is
            model = replace(model, batch_norm=False)
        for site in model.fully_sharded:
            fix = Fix(_without_wrapper(site, model))
            yield Finding(site.source, site.node, "fully_shard() takes the place of FullyShardedDataParallel", fix)
        wrapping = model.wrapping
        if model.wrapped or wrapping is None:
            continue
        source = wrapping.source
        target = source.code(wrapping.target)
        if wrapping.each:
            code, edits = _each_sharded(script, model, context, source, target)
        else:
            code, edits = _sharded(script, model, context, source, target)
        for number, site in enumerate(model.copied):
            assert isinstance(site.node, ast.Call)
            names = names_at(source, wrapping.statement)
            copied = first_free(names, "unsharded", "unsharded_copy") + f"_{number + 1}" * bool(number)
            code = f"{copied} = {source.code(site.node)}\n{code}"
            message = "shards cannot be copied: the copy is made before, of the same weights"
            yield Finding(source, site.node, message, Fix(planned(source, ReplaceExpr(site.node, copied))))
        code = if_there(wrapping, target, code)
        statement = _after_downloads(script, wrapping)
        name = model.object.name.rpartition(".")[2]
        cost = (
            ""
            if model.units or context.config.shard_unit
            else "; it has no repeated blocks, so that all of it is gathered at once while it runs"
        )
        replaced = _is_lone_wrapper(model, statement)
        if model.built is not None:
            edits = (*edits, *making(model.built, wrapping, script, context))
            replaced = replaced or any(
                site.statement is statement and moves_alone(source, statement, site.node) for site in model.built.moves
            )
        edit = ReplaceStatement(statement, code) if replaced else InsertAfter(statement, code)
        message = f"{name} trains: each rank keeps its share of the parameters{cost}"
        severity = Severity.NOTE
        if context.config.mixed_precision is not None:
            message += (
                f"; computes in {context.config.mixed_precision.value}, so that numbers differ from the original's"
            )
            if context.config.mixed_precision is MixedPrecision.FP16 and not _scales(script):
                severity = Severity.WARNING
                message += ": small gradients vanish in fp16 unless a GradScaler scales the loss"
        yield Finding(source, wrapping.statement, message, Fix((*edits, *planned(source, edit))), severity)
        if model.batch_norm:
            yield from normalised_alone(script, source, wrapping.statement)


def _one_of_each_list(models: Sequence[Model]) -> list[Model]:
    """The models, of which those that are in one list or dict are sharded in one loop over it, with the blocks that all
    of them have."""
    found: dict[object, Model] = {}
    for model in models:
        place = model.wrapping
        alone = place is None or not place.each or model.wrapped
        key = id(model) if alone or place is None else (place.statement, ast.unparse(place.target))
        first = found.setdefault(key, model)
        if first is not model:
            units = tuple(unit for unit in first.units if unit in model.units)
            methods = tuple(method for method in first.methods if method in model.methods)
            normalised = first.batch_norm or model.batch_norm
            found[key] = replace(first, units=units, methods=methods, batch_norm=normalised)
    return list(found.values())


def _each_sharded(
    script: TrainingScript, model: Model, context: Context, source: Source, target: str
) -> tuple[str, Planned]:
    """A loop over the models of a list or dict that shards each of them."""
    assert model.wrapping is not None
    one = first_free(names_at(source, model.wrapping.statement), "model", "net", "each_model")
    line, mesh, needed = _mesh(script, model, context, source, one)
    ahead = line if f"({one}." not in line else ""  # one mesh does for models that are surely in one place
    code, edits = _sharded(script, model, context, source, one, mesh if ahead else None)
    held = f"{target}.values()" if model.wrapping.each == "dict" else target
    loop = f"for {one} in {held}:\n" + "".join(f"    {line}\n" for line in code.splitlines())
    return ahead + loop, (*edits, *needed)


def _sharded(
    script: TrainingScript, model: Model, context: Context, source: Source, target: str, mesh: str | None = None
) -> tuple[str, Planned]:
    """The lines that shard a model, over a ``mesh`` that is there already or is made for it, and what they import."""
    assert model.wrapping is not None
    config = context.config
    d, dist_import = dist(context, source)
    shard, shard_import = member(context, source, "torch.distributed.fsdp", "fully_shard")
    edits = shard_import
    names = names_at(source, model.wrapping.statement)
    whole = first_free(names, "whole", "weights")
    if config.meta_device:
        code = f"{whole} = [*{target}.parameters(), *{target}.buffers()]\n"
        edits = (*edits, *filling(script, context, source))
    else:
        edits = (*edits, *dist_import)
        code = started_alike(script, d, target, names)
    if model.batch_norm:
        lines, needed = synchronised(script, context, source, target)
        code, edits = lines + code, (*edits, *needed)
    kind = _device_kind(script, model, context, target)
    options, lines, needed = _options(context, source, first_free(names, "options", "sharding"), kind)
    code, edits = code + lines, (*edits, *needed)
    if mesh is None:
        line, mesh, needed = _mesh(script, model, context, source, target)
        code, edits = code + line, (*edits, *needed)
    if model.batch_norm and config.mixed_precision is not None:
        line, needed = _in_full_precision(context, source, target, first_free(names, "norm", "layer"), mesh, options)
        code, edits = f"{code}{line}", (*edits, *needed)
    extra = mesh + (f", **{options}" if options else "")
    name = first_free(names, "block", "unit")
    blocks, needed = _blocks(model, context, source, target)
    edits = (*edits, *needed)
    if blocks and config.activation_checkpointing:
        apply, needed = member(context, source, WRAPPER, "apply_activation_checkpointing")
        code += f"{name}s = list({blocks})\n{apply}({target}, check_fn=lambda module: module in {name}s)\n"
        edits = (*edits, *needed)
    if blocks:
        kept = "" if config.reshard_after_forward else ", reshard_after_forward=False"
        code += f"for {name} in {blocks}:\n    {shard}({name}{kept}{extra})\n"
    code += f"{shard}({target}, reshard_after_forward=True{extra})\n"
    if config.meta_device:
        code += f"fill_from_rank_zero({target}, {whole})\ndel {whole}\n"
    for method in model.methods:
        register, needed = member(context, source, "torch.distributed.fsdp", "register_fsdp_forward_method")
        code, edits = code + f'{register}({target}, "{method}")\n', (*edits, *needed)
    return code, edits


def _device_kind(script: TrainingScript, model: Model, context: Context, target: str) -> str | None:
    """An expression for the kind of device that a model is on, which `fully_shard` would take for a GPU wherever there
    is one; none where it surely takes that itself."""
    if not script.names_device:
        return '"cpu"'
    if model.takes_gpu or context.config.meta_device:
        return None
    return f"next({target}.parameters()).device.type"


def _mesh(
    script: TrainingScript, model: Model, context: Context, source: Source, target: str
) -> tuple[str, str, Planned]:
    """The line that makes the mesh of the ranks which share a model, the argument that names it, and the imports;
    nothing where `fully_shard` takes the right one by itself."""
    assert model.wrapping is not None
    kind = _device_kind(script, model, context, target)
    name = first_free(names_at(source, model.wrapping.statement), "mesh", "device_mesh")
    if context.config.strategy is Strategy.HSDP:
        edits = nodes_and_ranks(script, context, source)
        if kind is None:
            torch, needed = imported(context, source, "torch")
            kind, edits = f'"cuda" if {torch}.cuda.is_available() else "cpu"', (*edits, *needed)
        return f"{name} = nodes_and_ranks({kind})\n", f", mesh={name}", edits
    if kind is None:
        return "", "", ()
    d, dist_import = dist(context, source)
    init, needed = member(context, source, "torch.distributed.device_mesh", "init_device_mesh")
    why = "the script trains on the CPU" if kind == '"cpu"' else "where the model is"
    made = f"{name} = {init}({kind}, ({d}.get_world_size(),))  # {why}\n"
    return made, f", mesh={name}", (*dist_import, *needed)


def _in_full_precision(
    context: Context, source: Source, target: str, name: str, mesh: str, options: str
) -> tuple[str, Planned]:
    """Lines that keep layers of batch normalisation in float32, as autocast does: their statistics are."""
    shard, edits = member(context, source, "torch.distributed.fsdp", "fully_shard")
    nn, nn_import = imported(context, source, "torch.nn", "nn")
    policy, needed = member(context, source, "torch.distributed.fsdp", "MixedPrecisionPolicy")
    if context.config.cpu_offload:
        mesh += f', **{{**{options}, "mp_policy": {policy}()}}'
    norms = f"[m for m in {target}.modules() if isinstance(m, {nn}.modules.batchnorm._BatchNorm)]"
    code = f"for {name} in {norms}:\n    {shard}({name}{mesh})  # normalises in full precision\n"
    return code, (*edits, *nn_import, *(needed if context.config.cpu_offload else ()))


def _scales(script: TrainingScript) -> bool:
    return any("GradScaler" in source.text for source in script.project.sources)


def _blocks(model: Model, context: Context, source: Source, target: str) -> tuple[str, Planned]:
    """An expression for the blocks of a model, and what it imports; inner ones come before those around them."""
    if unit := context.config.shard_unit:
        return f'[m for m in reversed(list({target}.modules())) if type(m).__name__ == "{unit}"]', ()
    named: list[str] = []
    edits: Planned = ()
    for unit in model.units:
        block = _attribute(target, unit.lstrip("*"))
        if unit.startswith("**"):
            chain, edits = member(context, source, "itertools", "chain")
            block = f"{chain}(*{block})"
        named.append(f"*{block}" if unit.startswith("*") else block)
    if len(named) == 1:
        return named[0].removeprefix("*") if named[0].startswith("*") else f"({named[0]},)", edits
    return f"({', '.join(named)})" if named else "", edits


def _options(context: Context, source: Source, name: str, kind: str | None) -> tuple[str, str, Planned]:
    """The name of a dictionary of arguments for `fully_shard`, if it needs more, its lines, and what they import."""
    config = context.config
    entries: list[str] = []
    offload = ""
    edits: Planned = ()
    if config.mixed_precision is not None:
        policy, needed = member(context, source, "torch.distributed.fsdp", "MixedPrecisionPolicy")
        torch, torch_import = imported(context, source, "torch")
        dtype = {"bf16": "bfloat16", "fp16": "float16"}[config.mixed_precision.value]
        kinds = (("param", dtype), ("reduce", "float32"))
        given = ", ".join(f"{kind}_dtype={torch}.{name}" for kind, name in kinds)
        entries.append(f'"mp_policy": {policy}({given})')
        edits = (*edits, *needed, *torch_import)
    if config.cpu_offload and kind != '"cpu"':
        policy, needed = member(context, source, "torch.distributed.fsdp", "CPUOffloadPolicy")
        torch, torch_import = imported(context, source, "torch")
        there = f"{torch}.cuda.is_available()" if kind is None else f'{kind} == "cuda"'
        offload = f"if {there}:  # on CPUs there is nothing to offload\n"
        offload += f'    {name}["offload_policy"] = {policy}()\n'
        edits = (*edits, *needed, *torch_import)
    if not entries and not offload:
        return "", "", ()
    return name, f"{name} = {{{', '.join(entries)}}}\n{offload}", edits


def _attribute(target: str, name: str) -> str:
    if not name or name.startswith("."):
        return target + name
    return f"{target}.{name}"


def _called(site: Site) -> str:
    assert isinstance(site.node, ast.Call)
    return site.source.code(site.node.func).rpartition(".")[2]


def _unwrap(site: Site, model: Model) -> Planned:
    """The wrapper goes, and the statement with it if nothing else happens there."""
    source, statement = site.source, site.statement
    assert isinstance(site.node, ast.Call)
    module = site.node.args[0] if site.node.args else site.node.keywords[0].value
    inner = source.code(module)
    alone = isinstance(statement, ast.Assign) and statement.value is site.node
    if alone and isinstance(statement, ast.Assign) and source.code(statement.targets[0]) == inner:
        parent = source.parents[statement]
        whole = isinstance(parent, ast.If) and parent.body == [statement] and not parent.orelse
        gone = parent if whole else statement
        assert isinstance(gone, ast.stmt)
        if model.wrapping is not None and gone is model.wrapping.statement:
            return ()  # what is put there instead replaces it
        return planned(source, RemoveStatement(gone))
    return planned(source, Recompose(site.node, "{0}", (module,)))


def _without_wrapper(site: Site, model: Model) -> Planned:
    """`FSDP(model, device_id=device)` is the model, moved there."""
    call = site.node
    assert isinstance(call, ast.Call)
    inner, device = argument(call, "module", 0), argument(call, "device_id")
    if inner is None or model.wrapping is not None and _is_lone_wrapper(model, model.wrapping.statement):
        return ()
    if device is None or is_move(inner) or isinstance(device, ast.Constant):
        return planned(site.source, Recompose(call, "{0}", (inner,)))
    return planned(site.source, Recompose(call, "{0}.to({1})", (inner, device)))


def _is_lone_wrapper(model: Model, statement: ast.stmt) -> bool:
    """Whether a statement does nothing but wrap the model."""
    for site in (*model.data_parallel, *model.dropped, *model.fully_sharded):
        inner = site.statement
        moves = isinstance(site.node, ast.Call) and argument(site.node, "device_id") is not None
        if moves and isinstance(site.node, ast.Call) and not is_move(site.node.args[0]):
            continue
        same = isinstance(inner, ast.Assign) and inner.value is site.node
        same = same and isinstance(site.node, ast.Call) and bool(site.node.args)
        if same and isinstance(inner, ast.Assign) and isinstance(site.node, ast.Call):
            same = site.source.code(inner.targets[0]) == site.source.code(site.node.args[0])
        if same and (inner is statement or isinstance(statement, ast.If) and statement.body == [inner]):
            return not (isinstance(statement, ast.If) and statement.orelse)
    return False


def _after_downloads(script: TrainingScript, wrapping: Wrapping) -> ast.stmt:
    """The statement to shard after: the last of a stretch that rank 0 runs first, if the model is made there."""
    for first, last in script.downloads:
        if first.source is wrapping.source:
            block = first.source.block(first.statement)
            stretch = block[block.index(first.statement) : block.index(last.statement) + 1]
            if any(each is wrapping.statement or wrapping.statement in walk(each) for each in stretch):
                return last.statement
    return wrapping.statement
