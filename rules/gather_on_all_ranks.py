from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from autodist.edits import InsertBefore, ReplaceExpr
from autodist.rule import SHARDED, Context, Example, Finding, Fix, rule
from autodist.script import TrainingScript

from ._examples import PLAIN
from ._preamble import Planned, planned
from ._shards import gathering

NUMPY = "import numpy as np\n" + PLAIN
SAVED = NUMPY + 'np.save("predictions.npy", model(torch.randn(5, 4)).detach().numpy())\n'

EXAMPLES = [
    Example(
        before=SAVED,
        after=NUMPY + "output = model(torch.randn(5, 4))\n" + 'np.save("predictions.npy", output.detach().numpy())\n',
    ),
    Example(before=PLAIN, after=None),
]


@rule("AD506", *SHARDED)
def gather_on_all_ranks(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Run a sharded model, or gather its parameters, on all ranks before rank 0 alone writes the result.

    Both need every rank. Behind a rank check rank 0 would wait for the others for ever.
    """
    if not script.trains:
        return
    wrappers = {site.node for site in script.shards.wrappers}
    for site, guarded in script.shards.hoists:
        assert isinstance(site.node, ast.expr)
        code = site.source.code(site.node)
        edits: Planned = ()
        if not isinstance(site.node, ast.Call) or site in script.shards.reads:
            name, code = _name(code), f"{code}.full_tensor()"
        elif code.endswith("state_dict()"):
            for inner in ast.walk(site.node):  # the wrapper goes
                if isinstance(inner, ast.Attribute) and inner in wrappers:
                    code = code.replace(site.source.code(inner), site.source.code(inner.value))
            words = [word for word in code.split(".")[:-1] if word != "self"]
            name, code = (
                f"{words[-1] if words[-1:] and words[-1].isidentifier() else 'whole'}_state",
                f"gather_shards({code})",
            )
            edits = gathering(script, context, site.source)
        else:
            name = "output"
        before = InsertBefore(guarded, f"{name} = {code}\n")
        fix = Fix((*edits, *planned(site.source, before, ReplaceExpr(site.node, name))))
        yield Finding(site.source, site.node, "every rank must take part in this", fix)


def _name(code: str) -> str:
    """A name for a gathered parameter: `whole_weight`."""
    words = [word for word in re.findall(r"[A-Za-z_]\w*", code) if word not in ("self", "data", "grad")]
    return f"whole_{words[-1] if words else 'parameter'}"
