from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.edits import Recompose, ReplaceExpr, WrapExpr
from autodist.rule import SHARDED, Context, Example, Finding, Fix, rule
from autodist.script import TrainingScript

from ._examples import PLAIN
from ._preamble import planned
from ._shards import naming_class

NAMED = PLAIN + 'torch.save({"arch": type(model).__name__, "epoch": 2}, "about.pt")\n'

ASKED = PLAIN + "print(sum(type(m) is nn.Linear for m in model.modules()))\n"

EXAMPLES = [
    Example(
        before=ASKED,
        after=PLAIN.replace("import nn\n", "import nn\nfrom torch.distributed.fsdp import FSDPModule\n", 1).replace(
            "\ntrain_set",
            '''

def class_of(module):
    """The class that a module had before it was sharded."""
    return type(module).__mro__[2] if isinstance(module, FSDPModule) else type(module)


train_set''',
            1,
        )
        + "print(sum(class_of(m) is nn.Linear for m in model.modules()))\n",
    ),
    Example(before=NAMED, after=NAMED.replace("__name__", '__name__.removeprefix("FSDP")')),
    Example(before=PLAIN + "print(isinstance(model, nn.Linear))\n", after=None),
]


@rule("AD508", *SHARDED)
def name_unsharded_class(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Give a model the class, and that the name, which it had before it was sharded.

    `fully_shard` makes a class of its own for each module that it shards, `FSDPNet` for `Net`: checkpoints, folders and
    logs that are named after the class would be named anew, and `type(module) is Block` would be false. `isinstance`
    is as true as before.
    """
    if not script.trains:
        return
    for site in script.shards.class_names:
        assert isinstance(site.node, ast.expr)
        fix = Fix(planned(site.source, WrapExpr(site.node, '{}.removeprefix("FSDP")')))
        yield Finding(site.source, site.node, "`fully_shard` makes another class of it", fix)
    for site in script.shards.classes:
        if isinstance(site.node, ast.Call):
            edits = planned(site.source, ReplaceExpr(site.node.func, "class_of"))
        else:
            assert isinstance(site.node, ast.Attribute)
            edits = planned(site.source, Recompose(site.node, "class_of({0})", (site.node.value,)))
        fix = Fix((*naming_class(script, context, site.source), *edits))
        yield Finding(site.source, site.node, "`fully_shard` makes another class of it", fix)
