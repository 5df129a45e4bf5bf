from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.edits import ReplaceExpr
from autodist.rule import SHARDED, Context, Example, Finding, Fix, rule
from autodist.script import TrainingScript

from ._examples import PLAIN
from ._preamble import imported, member, planned

EXAMPLES = [
    Example(before=PLAIN.replace("model(x)", "model.forward(x)"), after=PLAIN),
    Example(
        before=PLAIN + "with torch.inference_mode():\n    print(model(torch.randn(1, 4)))\n",
        after=PLAIN + "with torch.no_grad():\n    print(model(torch.randn(1, 4)))\n",
    ),
    Example(before=PLAIN, after=None),
]


@rule("AD505", *SHARDED)
def call_whole_model(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Run the model in a way that gathers its parameters.

    The hooks that gather them run when the model is called, not when its `forward` is. In `torch.inference_mode` they
    would leave parameters behind that no backward pass can use; `torch.no_grad` computes the same.
    """
    if not script.trains:
        return
    for site in script.shards.pauses:
        assert isinstance(site.node, ast.Call)
        name, edits = imported(context, site.source, "contextlib")
        fix = Fix((*edits, *planned(site.source, ReplaceExpr(site.node, f"{name}.nullcontext()"))))
        yield Finding(site.source, site.node, "FSDP adds up gradients that are already shared out", fix)
    hoisted = [site.node for site, _ in script.shards.hoists]
    for site in script.shards.wrappers:
        assert isinstance(site.node, ast.Attribute)
        if any(ancestor in hoisted for ancestor in site.source.ancestors(site.node)):
            continue
        edit = ReplaceExpr(site.node, site.source.code(site.node.value))
        yield Finding(site.source, site.node, "FSDP has no wrapper to look into", Fix(planned(site.source, edit)))
    for site in script.shards.forwards:
        assert isinstance(site.node, ast.Attribute)
        edit = ReplaceExpr(site.node, site.source.code(site.node.value))
        yield Finding(site.source, site.node, "forward() runs past the hooks of FSDP", Fix(planned(site.source, edit)))
    for site in script.shards.inferences:
        if isinstance(site.node, ast.Attribute):
            name, edits = f"{site.source.code(site.node.value)}.no_grad", planned(site.source)
        else:
            name, edits = member(context, site.source, "torch", "no_grad")
        fix = Fix((*edits, *planned(site.source, ReplaceExpr(site.node, name))))
        yield Finding(site.source, site.node, "parameters gathered in inference mode cannot be trained", fix)
