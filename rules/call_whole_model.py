from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.edits import Recompose, ReplaceExpr
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
    would leave parameters behind that no backward pass can use; `torch.no_grad` computes the same. A method that is
    called on its own has such hooks as well: a forward pass that calls it, and goes on with other layers, needs it
    without.
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
    for site in script.shards.nested:
        assert isinstance(site.node, ast.Call)
        message = "gathers the parameters, and would shard them again before this method has done with them"
        yield Finding(site.source, site.node, message, Fix(planned(site.source, _past_hooks(site.node))))
    for site in script.shards.inferences:
        if isinstance(site.node, ast.Attribute):
            name, edits = f"{site.source.code(site.node.value)}.no_grad", planned(site.source)
        else:
            name, edits = member(context, site.source, "torch", "no_grad")
        fix = Fix((*edits, *planned(site.source, ReplaceExpr(site.node, name))))
        yield Finding(site.source, site.node, "parameters gathered in inference mode cannot be trained", fix)


def _past_hooks(call: ast.Call) -> Recompose:
    """`type(self).encode(self, x)`, which is the method of the class; hooks are put on that of the object."""
    name = f"type(self).{call.func.attr}" if isinstance(call.func, ast.Attribute) else "self.forward"
    written = ["self"] if isinstance(call.func, ast.Attribute) else []
    parts: list[ast.expr] = []
    for argument in call.args:
        written.append(f"*{{{len(parts)}}}" if isinstance(argument, ast.Starred) else f"{{{len(parts)}}}")
        parts.append(argument.value if isinstance(argument, ast.Starred) else argument)
    for keyword in call.keywords:
        written.append(f"{keyword.arg}={{{len(parts)}}}" if keyword.arg else f"**{{{len(parts)}}}")
        parts.append(keyword.value)
    return Recompose(call, f"{name}({', '.join(written)})", tuple(parts))
