from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.edits import ReplaceExpr, WrapExpr
from autodist.rule import SHARDED, Context, Example, Finding, Fix, rule
from autodist.script import TrainingScript

from ._examples import PLAIN
from ._preamble import planned
from ._shards import cutting, cutting_former, cutting_model, cutting_optimizer, joining, loading_shards

LOADED = PLAIN.replace("\nfor epoch", 'model.load_state_dict(torch.load("model.pt"))\n\nfor epoch')
COPIED = PLAIN + "best = nn.Linear(4, 1)\nbest.load_state_dict(model.state_dict())\n"

EXAMPLES = [
    Example(
        before=LOADED,
        after=LOADED.replace(
            "from torch import nn\n",
            "from torch import nn\nfrom torch.distributed.tensor import DTensor, distribute_tensor\n",
        )
        .replace(
            "\ntrain_set",
            '''

def cut_like(tensor, parameter):
    """This rank's shard of a whole tensor that belongs to a sharded parameter."""
    if not isinstance(parameter, DTensor) or isinstance(tensor, DTensor) or tensor.shape != parameter.shape:
        return tensor
    return distribute_tensor(tensor.to(parameter.device), parameter.device_mesh, parameter.placements)


def model_shards(state, model):
    """A model's state dict, with this rank's shards of whole tensors."""
    shards = model.state_dict()
    return {key: cut_like(value, shards.get(key)) for key, value in state.items()}


train_set''',
        )
        .replace('torch.load("model.pt")', 'model_shards(torch.load("model.pt"), model)'),
    ),
    Example(
        before=COPIED,
        after=COPIED.replace(
            "from torch import nn\n",
            "from torch import nn\nfrom torch.distributed.tensor import DTensor\n",
        )
        .replace(
            "\ntrain_set",
            '''

def whole_tensors(state):
    """A model's state dict without shards; a collective, so all ranks must call it."""
    return {key: value.full_tensor() if isinstance(value, DTensor) else value for key, value in state.items()}


train_set''',
        )
        .replace("model.state_dict()", "whole_tensors(model.state_dict())"),
    ),
    Example(before=PLAIN, after=None),
]


WITHOUT_PREFIX = '{key.removeprefix("module."): value for key, value in {}.items()}'


@rule("AD503", *SHARDED)
def load_shards(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Cut the whole tensors of a checkpoint into shards when it is loaded.

    A sharded model or its optimizer takes shards only. Every rank reads the file and keeps its part, whether the
    original, a DDP conversion or this script wrote it. With `--sharded-checkpoints` a rank reads its parts of a folder
    of shards, written by any number of ranks; files can be read as well. A model that is not sharded, such as a copy
    for evaluation, is given whole tensors. A mask, noise or another whole tensor that is put into a parameter, or
    computed with beside it, is cut as well: torch takes either shards or whole tensors. What a script keeps beside a
    model, such as a list of running averages, is cut as what it takes the place of. A new tensor that would take the
    place of a parameter's storage is written into it, since FSDP goes on with the old one.
    """
    if not script.trains:
        return
    if context.config.folders:
        yield from _from_folders(script, context)
    prefixed = {site.node: site for model in script.models for site in model.prefixed_loads}
    sharded = {site.node for site, _ in script.shards.model_loads}
    for site in (each for node, each in prefixed.items() if node not in sharded):
        wrapped = planned(site.source, WrapExpr(site.node, WITHOUT_PREFIX))
        yield Finding(site.source, site.node, "its keys begin with `module.`, those of the model do not", Fix(wrapped))
    for loads, cut, define in (
        (script.shards.model_loads, "model_shards", cutting_model),
        (script.shards.optimizer_loads, "optimizer_shards", cutting_optimizer),
    ):
        for site, target in loads:
            state = WITHOUT_PREFIX if site.node in prefixed else "{}"
            wrapped = planned(site.source, WrapExpr(site.node, f"{cut}({state}, {target})"))
            fix = Fix((*define(script, context, site.source), *wrapped))
            yield Finding(site.source, site.node, f"{target} holds shards, the checkpoint whole tensors", fix)
    for site, cut in script.shards.mixed:
        fix = Fix((*cutting(script, context, site.source), *planned(site.source, WrapExpr(site.node, cut))))
        yield Finding(
            site.source, site.node, "is computed with a shard: each rank takes the same part of this whole tensor", fix
        )
    for site, former in script.shards.restored:
        wrapped = planned(site.source, WrapExpr(site.node, f"shards_like({{}}, {former})"))
        fix = Fix((*cutting_former(script, context, site.source), *wrapped))
        yield Finding(site.source, site.node, f"{former} holds shards, the checkpoint whole tensors", fix)
    for site in script.shards.put_aside:
        fix = Fix(planned(site.source, WrapExpr(site.node, "{}.clone()")))
        yield Finding(site.source, site.node, "other numbers are written into this storage: a copy keeps these", fix)
    for site, cut in script.shards.replaced:
        statement = site.statement
        assert isinstance(site.node, ast.Attribute) and isinstance(statement, ast.Assign)
        edits = planned(site.source, WrapExpr(site.node, "{}[...]"))
        if cut:
            edits = (*cutting(script, context, site.source), *edits)
            edits = (*edits, *planned(site.source, WrapExpr(statement.value, cut, outer=True)))
        message = f"FSDP keeps the storage of {site.source.code(site.node.value)}: the numbers are put into it"
        yield Finding(site.source, site.node, message, Fix(edits))
    for site in script.shards.whole_loads:
        wrapped = planned(site.source, WrapExpr(site.node, "whole_tensors({})"))
        fix = Fix((*joining(script, context, site.source), *wrapped))
        yield Finding(site.source, site.node, "this model is not sharded", fix)


def _from_folders(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Where a checkpoint may be a folder of shards."""
    for site in script.shards.files:
        assert isinstance(site.node, ast.Call)
        name, define = loading_shards(script, context, site.source)
        fix = Fix((*define, *planned(site.source, ReplaceExpr(site.node.func, name))))
        yield Finding(site.source, site.node, "a checkpoint may be a folder of shards", fix)
    for site in script.shards.file_tests:
        assert isinstance(site.node, ast.Attribute)
        fix = Fix(planned(site.source, ReplaceExpr(site.node, f"{site.source.code(site.node.value)}.exists")))
        yield Finding(site.source, site.node, "a checkpoint may be a folder of shards", fix)
    for site in script.shards.early_loads:
        wrapped = planned(site.source, WrapExpr(site.node, "whole_tensors({})"))
        fix = Fix((*joining(script, context, site.source), *wrapped))
        yield Finding(site.source, site.node, "this model is not sharded yet", fix)
