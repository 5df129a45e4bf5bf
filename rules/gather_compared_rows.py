from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.edits import WrapExpr
from autodist.rule import Context, Example, Finding, Fix, rule
from autodist.script import Reduction, TrainingScript
from autodist.source import last_name, shortened
from autodist.spread import Spread

from ._collectives import GATHER, GATHER_IN_TRAINING
from ._examples import PLAIN
from ._preamble import defined, dist, imported, planned

SCRIPT = PLAIN.replace(
    "    loss = nn.functional.mse_loss(model(x), y)",
    """\
    out = {out}
        similarity = {rows} @ {columns}.T
        loss = nn.functional.cross_entropy(similarity, {labels})""",
)


def _gathered(out: str, rows: str, columns: str, labels: str) -> str:
    code = SCRIPT.format(out=out, rows=rows, columns=columns, labels=labels)
    code = code.replace("import torch\n", "import torch\nimport torch.distributed as dist\n", 1)
    return code.replace("\n\n", "\n\n\n" + GATHER.format(torch="torch", d="dist"), 1)


EXAMPLES = [
    Example(
        before=SCRIPT.format(out="model(x)", rows="out", columns="out", labels="torch.arange(len(x))"),
        after=_gathered("RowsOfAllRanks.apply(model(x))", "out", "out", "torch.arange(len(x) * dist.get_world_size())"),
    ),
    Example(
        before=SCRIPT.format(out="model(x) + model(y)", rows="model(x)", columns="out", labels="y.long()[:, 0]"),
        after=_gathered(
            "RowsOfAllRanks.apply(model(x) + model(y))",
            "RowsOfAllRanks.apply(model(x))",
            "out",
            "RowsOfAllRanks.apply(y.long()[:, 0])",
        ),
    ),
    Example(before=SCRIPT.format(out="model(x)", rows="out", columns="model.weight", labels="y.long()"), after=None),
]


@rule("AD606")
def gather_compared_rows(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Gather the rows of all ranks where a loss compares the samples of a batch with each other.

    A contrastive loss, a triplet loss that mines in the batch: of a rank's share, most of the pairs are missing. The
    rows of all ranks, in the order of the batch, make the loss that one process computes. Gradients flow back to
    each rank's own rows.
    """
    if not script.trains:
        return
    for each in script.gathered:
        code = shortened(each.source.code(each.node))
        d, imports = dist(context, each.source)
        torch, torch_import = imported(context, each.source, "torch")
        if each.spread is Spread.COUNT:
            ranks = f"{d}.get_world_size()"
            if each.switch is not None:
                ranks, imports = f"({ranks} if {each.switch} else 1)", (*imports, *torch_import)
            message = f"the loss compares the samples of all ranks; {code} counts those of one"
            fix = Fix((*imports, *planned(each.source, WrapExpr(each.node, f"{{}} * {ranks}"))))
            yield Finding(each.source, each.node, message, fix)
            continue
        text = GATHER if each.switch is None else GATHER + GATHER_IN_TRAINING
        helper = defined(script, each.source, text.replace("{d}", d).replace("{torch}", torch))
        whole = "RowsOfAllRanks.apply({})" if each.switch is None else "gather_in_training({})"
        if _is_of_numpy(each, script):
            whole = whole.replace("{}", f"{torch}.as_tensor({{}})") + ".numpy()"
        wrap = WrapExpr(each.node, whole)
        message = f"the loss compares {code} with those of the other samples"
        edits = (*imports, *torch_import, *helper, *planned(each.source, wrap))
        yield Finding(each.source, each.node, message, Fix(edits))


def _is_of_numpy(reduction: Reduction, script: TrainingScript) -> bool:
    """Whether rows are those of an array, `labels.cpu().numpy()`, or of a name that is bound to one."""
    value = script.values.get(reduction.node)
    made = [reduction.node, *(node for _, node in value.made if value is not None)] if value is not None else []
    chained = (each for node in made for each in ast.walk(node) if isinstance(each, ast.Call))
    return any(last_name(each.func) == "numpy" and not each.args for each in chained)
