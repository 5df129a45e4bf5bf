from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.edits import WrapExpr
from autodist.rule import SHARDED, Context, Example, Finding, Fix, rule
from autodist.script import TrainingScript

from ._examples import PLAIN
from ._preamble import planned

NORM = PLAIN + "print([p.detach().norm().item() for p in model.parameters()])\n"

EXAMPLES = [
    Example(before=NORM, after=NORM.replace("p.detach()", "p.full_tensor().detach()")),
    Example(before=PLAIN, after=None),
]


@rule("AD504", *SHARDED)
def gather_parameters(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Gather a parameter or gradient before its values are read.

    A rank holds a shard of it. Its norm as a number is silently that of the shard, and what turns it into numbers or
    arrays fails. The norm that clipping returns is gathered for the same reason.
    """
    if not script.trains:
        return
    hoisted = {site.node for site, _ in script.shards.hoists}
    for site in (*script.shards.reads, *script.shards.norms):
        assert isinstance(site.node, ast.expr)
        if site.node not in hoisted:
            fix = Fix(planned(site.source, WrapExpr(site.node, "{}.full_tensor()")))
            yield Finding(site.source, site.node, f"{site.source.code(site.node)} is this rank's shard", fix)
