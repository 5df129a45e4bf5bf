from __future__ import annotations

from collections.abc import Iterator

from autodist.edits import WrapExpr
from autodist.reduction import Joining
from autodist.rule import Context, Example, Finding, Fix, rule
from autodist.script import TrainingScript

from ._collectives import IN_TRAINING, JOIN
from ._examples import PLAIN
from ._preamble import defined, dist, imported, planned


def _script(loss: str, joined: bool = False) -> str:
    code = PLAIN.replace("loss = nn.functional.mse_loss(model(x), y)", f"out = model(x)\n        loss = {loss}")
    if joined:
        code = code.replace("import torch\n", "import torch\nimport torch.distributed as dist\n", 1)
        code = code.replace("\n\n", "\n\n\n" + JOIN.format(torch="torch", d="dist"), 1)
    return code


EXAMPLES = [
    Example(
        before=_script("1 - 2 * (out * y).sum() / (out.sum() + y.sum())"),
        after=_script(
            "1 - 2 * SumOverRanks.apply((out * y).sum()) / SumOverRanks.apply(out.sum() + y.sum())", joined=True
        ),
    ),
    Example(
        before=_script("(out - out.mean(0) - y).pow(2).mean()"),
        after=_script("(out - SumOverRanks.apply(out.mean(0)) / dist.get_world_size() - y).pow(2).mean()", joined=True),
    ),
    Example(before=_script("(out - out.mean(1, keepdim=True) - y).pow(2).mean()"), after=None),  # of each sample
    Example(before=_script("out.pow(2).sum() / len(out)"), after=None),
]


@rule("AD605")
def join_batch_statistic(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Take sums and means over the batch of all ranks where a loss is computed from them.

    A dice loss, a score less the mean score of the batch, the logarithm of a sum: the mean of what ranks make of their
    shares is not what one process makes of the batch. Summed over the ranks first, with gradients that flow back to
    every rank's part, it is.
    """
    if not script.trains:
        return
    for each in script.joined:
        d, imports = dist(context, each.source)
        torch, torch_import = imported(context, each.source, "torch")
        helper = defined(script, each.source, JOIN.replace("{d}", d).replace("{torch}", torch))
        name = "SumOverRanks.apply"
        if each.switch is not None:
            name, more = "sum_in_training", IN_TRAINING.replace("{torch}", torch)
            helper = (*helper, *defined(script, each.source, more))
        mean = f" / {d}.get_world_size()" if each.by is Joining.MEAN else ""
        wrap = WrapExpr(each.node, f"{name}({{}}){mean}", outer=True)
        message = f"the loss is computed from this {each.by.name.lower()} over a rank's samples"
        yield Finding(
            each.source, each.node, message, Fix((*imports, *torch_import, *helper, *planned(each.source, wrap)))
        )
