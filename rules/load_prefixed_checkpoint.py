from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.config import Strategy
from autodist.edits import Edit, InsertBefore, WrapExpr
from autodist.rule import Context, Example, Finding, Fix, rule
from autodist.script import TrainingScript

from ._examples import PLAIN
from ._preamble import Planned, member, planned

RESUMED = PLAIN.replace(
    "model = nn.Linear(4, 1)\n",
    """\
model = nn.DataParallel(nn.Linear(4, 1))
checkpoint = torch.load("checkpoint.pt", map_location="cpu")
model.load_state_dict(checkpoint["model"])
model.cuda()
""",
)
IN_PLACE = PLAIN.replace(
    "model = nn.Linear(4, 1)\n",
    """\
model = nn.DataParallel(nn.Linear(4, 1))
model.load_state_dict(torch.load("model.pt"), strict=False)
model.cuda()
""",
)
IMPORT = "from torch.nn.modules.utils import consume_prefix_in_state_dict_if_present\n"

EXAMPLES = [
    Example(
        before=RESUMED,
        after=RESUMED.replace(
            "model.load",
            'consume_prefix_in_state_dict_if_present(checkpoint["model"], "module.")\nmodel.load',
        ).replace("from torch.utils", f"{IMPORT}from torch.utils"),
    ),
    Example(
        before=IN_PLACE,
        after=IN_PLACE.replace(
            'torch.load("model.pt")',
            '{key.removeprefix("module."): value for key, value in torch.load("model.pt").items()}',
        ),
    ),
    Example(before=PLAIN, after=None),
]


@rule("AD407", Strategy.DDP, Strategy.ZERO)
def load_prefixed_checkpoint(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Load a checkpoint of `nn.DataParallel` into a model that is wrapped further down.

    Its keys begin with `module.`, which the bare model does not know; with `strict=False` it would load nothing.
    """
    if not script.trains:
        return
    for site in script.prefixed_loads:
        assert isinstance(site.node, ast.expr)
        imports: Planned = ()
        edit: Edit = WrapExpr(site.node, '{key.removeprefix("module."): value for key, value in {}.items()}')
        if not isinstance(site.node, ast.Call):
            consume, imports = member(
                context, site.source, "torch.nn.modules.utils", "consume_prefix_in_state_dict_if_present"
            )
            line = f'{consume}({site.source.code(site.node)}, "module.")\n'
            edit = InsertBefore(site.source.statement(site.node), line)
        fix = Fix((*imports, *planned(site.source, edit)))
        yield Finding(site.source, site.node, "its keys begin with `module.`, and the model is wrapped later", fix)
