from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.edits import WrapExpr
from autodist.rule import SHARDED, Context, Example, Finding, Fix, rule
from autodist.script import TrainingScript

from ._examples import PLAIN
from ._preamble import planned

NAMED = PLAIN + 'torch.save({"arch": type(model).__name__, "epoch": 2}, "about.pt")\n'

EXAMPLES = [
    Example(before=NAMED, after=NAMED.replace("__name__", '__name__.removeprefix("FSDP")')),
    Example(before=PLAIN + "print(model.__class__)\n", after=None),
]


@rule("AD508", *SHARDED)
def name_unsharded_class(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Give a model's class the name that it had before the model was sharded.

    `fully_shard` makes a class of its own for each module that it shards, `FSDPNet` for `Net`: checkpoints, folders and
    logs that are named after the class would be named anew.
    """
    if not script.trains:
        return
    for site in script.shards.class_names:
        assert isinstance(site.node, ast.expr)
        fix = Fix(planned(site.source, WrapExpr(site.node, '{}.removeprefix("FSDP")')))
        yield Finding(site.source, site.node, "`fully_shard` makes another class of it", fix)
