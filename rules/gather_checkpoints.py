from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.edits import ReplaceExpr
from autodist.rule import SHARDED, Context, Example, Finding, Fix, rule
from autodist.script import TrainingScript
from autodist.source import walk

from ._examples import PLAIN
from ._preamble import planned
from ._shards import saving, saving_model, saving_shards

EXAMPLES = [
    Example(
        before=PLAIN + 'torch.save(model.state_dict(), "model.pt")\n',
        after=PLAIN.replace(
            "import torch\nfrom torch import nn\n",
            "import torch\nimport torch.distributed as dist\nfrom torch import nn\n"
            "from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict\n",
        ).replace(
            "\ntrain_set",
            '''

def save_gathered(model, file):
    """Write a model's whole state dict: all ranks gather it, rank 0 writes."""
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if dist.get_rank() == 0:
        torch.save(state, file)


train_set''',
        )
        + 'save_gathered(model, "model.pt")\n',
    ),
    Example(
        before=PLAIN + 'torch.save({"model": model.state_dict()}, "model.pt")\n',
        after=PLAIN.replace(
            "import torch\nfrom torch import nn\n",
            "import copy\n\nimport torch\nimport torch.distributed as dist\nfrom torch import nn\n"
            "from torch.distributed.tensor import DTensor\n",
        ).replace(
            "\ntrain_set",
            '''

def gather_shards(state):
    """Whole tensors in place of a checkpoint's shards, on rank 0; a collective, so all ranks must call it."""
    if isinstance(state, DTensor):
        tensor = state.full_tensor()
        return tensor.cpu() if dist.get_rank() == 0 else None
    if isinstance(state, dict):
        state = copy.copy(state)
        for key, value in state.items():
            state[key] = gather_shards(value)
    elif isinstance(state, (list, tuple)):
        state = type(state)(gather_shards(value) for value in state)
    return state


def save_gathered(state, file):
    """Write a checkpoint of whole tensors: all ranks gather it, rank 0 writes."""
    state = gather_shards(state)
    if dist.get_rank() == 0:
        torch.save(state, file)


train_set''',
        )
        + 'save_gathered({"model": model.state_dict()}, "model.pt")\n',
    ),
    Example(before=PLAIN, after=None),
]


@rule("AD502", *SHARDED)
def gather_checkpoints(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Write whole tensors to checkpoints: all ranks gather them, rank 0 writes.

    The state dict of a sharded model or of its optimizer holds each rank's own part. Gathering takes all ranks, so
    that it must not stand behind a rank check; one tensor after the other moves to the CPU of rank 0. The files have
    the keys and shapes of the original's, and load into it. With `--sharded-checkpoints` nothing is gathered: each rank
    writes its shards, and a checkpoint is a folder in the format of `torch.distributed.checkpoint`, which is put in its
    place once all ranks have written. With `--async-checkpoints` they write a copy while the training goes on, in a
    process group of their own; whatever reads, saves again or ends waits for it. States that the script takes from a
    wrapper keep the keys that it gives them.
    """
    if not script.trains:
        return
    prefixed = dict.fromkeys(site for model in script.models for site in model.prefixed)
    named = {site.node for site in prefixed}
    plain = [each for each in script.shards.model_saves if named.isdisjoint(walk(each.node))]
    for site in prefixed:
        assert isinstance(site.node, ast.Call)
        told = ", ".join((*map(ast.unparse, (*site.node.args, *site.node.keywords)), 'prefix="module."'))
        edits = planned(site.source, ReplaceExpr(site.node, f"{site.source.code(site.node.func)}({told})"))
        yield Finding(site.source, site.node, "keys of a wrapper begin with `module.`", Fix(edits))
    for site in script.shards.saves:
        assert isinstance(site.node, ast.Call)
        if context.config.folders:
            name, define = saving_shards(script, context, site.source)
            fix = Fix((*define, *planned(site.source, ReplaceExpr(site.node.func, name))))
            message = "every rank writes its own shards, to a folder of this name"
            yield Finding(site.source, site.node, message, fix)
            continue
        edits = planned(site.source, ReplaceExpr(site.node.func, "save_gathered"))
        others = (each for each in script.shards.saves if each not in plain)
        if any(each.source is site.source for each in others):
            define = saving(script, context, site.source)
        else:
            state = site.node.args[0]
            assert isinstance(state, ast.Call) and isinstance(state.func, ast.Attribute)
            define = saving_model(script, context, site.source)
            edits += planned(site.source, ReplaceExpr(state, site.source.code(state.func.value)))
        fix = Fix((*define, *edits))
        yield Finding(site.source, site.node, "every rank would write its own shards", fix)
