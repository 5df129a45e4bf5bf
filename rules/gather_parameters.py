from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.edits import WrapExpr
from autodist.rule import SHARDED, Context, Example, Finding, Fix, rule
from autodist.script import Site, TrainingScript
from autodist.values import Parameters

from ._examples import PLAIN
from ._preamble import Planned, imported, planned
from ._shards import joining

NORM = PLAIN + "print([p.detach().norm().item() for p in model.parameters()])\n"

DECAY = PLAIN.replace(
    "        optimizer.zero_grad()\n",
    "        loss = loss + 0.01 * sum((p**2).sum() for p in model.parameters())\n        optimizer.zero_grad()\n",
)

LAYERS = PLAIN + "print([m.weight.max().item() for m in model.modules() if isinstance(m, nn.Linear)])\n"
MOMENTUM = (
    PLAIN.replace("lr=0.1", "lr=0.1, momentum=0.9")
    + 'print(sum(state["momentum_buffer"].norm().item() for state in optimizer.state.values()))\n'
)

NORMS = "import numpy as np\n" + PLAIN
SHOWN = PLAIN + "print(model.weight, model.weight.data)\n"
SAVED = NORMS + 'np.save("norms.npy", np.array([p.norm().item() for p in model.parameters()]))\n'

EXAMPLES = [
    Example(before=NORM, after=NORM.replace("p.detach()", "p.full_tensor().detach()")),
    Example(
        before=SHOWN,
        after=SHOWN.replace("model.weight,", "nn.Parameter(model.weight.full_tensor()),").replace(
            "weight.data", "weight.data.full_tensor()"
        ),
    ),
    Example(before=DECAY, after=DECAY.replace("(p**2).sum()", "(p**2).sum().full_tensor()")),
    Example(before=LAYERS, after=LAYERS.replace("m.weight.max()", "m.weight.full_tensor().max()")),
    Example(
        before=MOMENTUM,
        after=MOMENTUM.replace('state["momentum_buffer"]', 'state["momentum_buffer"].full_tensor()'),
    ),
    Example(  # gathered on all ranks by AD506
        before=SAVED,
        after=None,
    ),
    Example(before=PLAIN, after=None),
]


@rule("AD504", *SHARDED)
def gather_parameters(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Gather a parameter or gradient before its values are read.

    A rank holds a shard of it. Its norm as a number is silently that of the shard, and what turns it into numbers or
    arrays fails. The norm that clipping returns is gathered for the same reason, and so is a state dict whose tensors
    are read. Where gradients flow, as in a penalty on parameters, each rank computes its shard's part of the sum or
    norm, and that number is gathered: its gradients are the same on all ranks, and reach each shard. What an optimizer
    keeps for a parameter is sharded like it. A term that samples scale cannot be had that way, and is refused.
    """
    if not script.trains:
        return
    hoisted = {site.node for site, _ in script.shards.hoists}
    for site in (*script.shards.reads, *script.shards.norms):
        assert isinstance(site.node, ast.expr)
        if site.node not in hoisted and hoisted.isdisjoint(site.source.ancestors(site.node)):
            imports: Planned = ()
            whole = "{}.full_tensor()"
            if _is_shown(site, script):
                nn, imports = imported(context, site.source, "torch.nn", "nn")
                whole = f"{nn}.Parameter({whole})"
            fix = Fix((*imports, *planned(site.source, WrapExpr(site.node, whole))))
            yield Finding(site.source, site.node, f"{site.source.code(site.node)} is this rank's shard", fix)
    for site in script.shards.whole_states:
        if site.node not in hoisted and hoisted.isdisjoint(site.source.ancestors(site.node)):
            wrapped = planned(site.source, WrapExpr(site.node, "whole_tensors({})"))
            fix = Fix((*joining(script, context, site.source), *wrapped))
            yield Finding(site.source, site.node, "holds this rank's shards", fix)


def _is_shown(site: Site, script: TrainingScript) -> bool:
    """Whether a parameter itself is printed, as one: `Parameter containing: ...`"""
    parent = site.source.parents.get(site.node)
    shows = isinstance(parent, ast.FormattedValue)
    shows = shows or isinstance(parent, ast.Call) and getattr(parent.func, "id", "") in ("print", "str", "repr")
    value = script.values.get(site.node) if isinstance(site.node, ast.expr) else None
    return shows and value is not None and any(isinstance(t, Parameters) and not t.cut for t in value.things)
