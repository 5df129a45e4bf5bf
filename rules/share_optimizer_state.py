from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.edits import InsertBefore, Recompose, ReplaceExpr, WrapExpr
from autodist.rule import Context, Example, Finding, Fix, Severity, Strategy, rule
from autodist.script import OptimizerState, PartedOptimizer, TrainingScript

from ._examples import PLAIN
from ._preamble import dist, member, planned

SAVED = PLAIN + 'torch.save({"optimizer": optimizer.state_dict(), "epoch": 2}, "last.pt")\n'
KEPT = PLAIN + "state = optimizer.state_dict()\n"
GROUPS = PLAIN.replace("(model.parameters(), lr=0.1)", '([{"params": model.parameters()}], 0.1, momentum=0.9)')

OWN = PLAIN.replace("torch.optim.SGD", "Halving").replace(
    "train_set",
    """\
class Halving(torch.optim.SGD):
    def step(self, closure=None):
        super().step(closure)
        for group in self.param_groups:
            group["lr"] *= 0.5


train_set""",
    1,
)


def _shared(code: str) -> str:
    return (
        code.replace(
            "from torch import nn\n",
            "from torch import nn\nfrom torch.distributed.optim import ZeroRedundancyOptimizer\n",
        )
        .replace("SGD(model.parameters(), ", "ZERO(model.parameters(), optimizer_class=torch.optim.SGD, ")
        .replace("torch.optim.ZERO", "ZeroRedundancyOptimizer")
    )


DIST = "import torch.distributed as dist\n"
EXAMPLES = [
    Example(before=PLAIN, after=_shared(PLAIN)),
    Example(
        before=SAVED,
        after=_shared(SAVED).replace("torch.save", "optimizer.consolidate_state_dict(to=0)\ntorch.save"),
    ),
    Example(
        before=KEPT,
        after=_shared(KEPT)
        .replace("import torch\n", f"import torch\n{DIST}", 1)
        .replace(
            "state = optimizer.state_dict()",
            "optimizer.consolidate_state_dict(to=0)\n"
            "state = optimizer.state_dict() if dist.get_rank() == 0 else None",
        ),
    ),
    Example(
        before=GROUPS,
        after=_shared(GROUPS).replace(
            'torch.optim.SGD([{"params": model.parameters()}], 0.1, momentum=0.9)',
            'ZeroRedundancyOptimizer([{"params": list(model.parameters())}], optimizer_class=torch.optim.SGD, lr=0.1, '
            "momentum=0.9)",
        ),
    ),
    Example(before=OWN, after=OWN),
    Example(before="import torch\n\nprint(torch.ones(2))\n", after=None),
]


@rule("AD403", Strategy.ZERO)
def share_optimizer_state(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Let each rank keep the state of its own share of the parameters, with ZeroRedundancyOptimizer.

    A rank steps the parameters whose state it has, and sends them to the others. All ranks gather the state before
    rank 0 writes it to a checkpoint, which then has the keys of the original's and loads into any version of the
    script. An optimizer whose state is used in another way stays whole on every rank, and the message says why.
    """
    if not script.trains:
        return
    for optimizer in script.parted:
        site = optimizer.site
        if not optimizer.whole and any(use.call is site.node for use in script.borrowed):
            continue  # AD405 writes it
        if optimizer.whole:
            message = f"every rank keeps all of this optimizer's state: {optimizer.whole}"
            yield Finding(site.source, site.node, message, severity=Severity.WARNING)
        else:
            message = "each rank keeps the optimizer's state for its share of the parameters"
            yield Finding(site.source, site.node, message, _made(optimizer, context))
    for state in script.optimizer_states:
        message = "each rank has only its share of this state"
        yield Finding(state.site.source, state.site.node, message, _gathered(state, context))


def _made(optimizer: PartedOptimizer, context: Context) -> Fix:
    """`Adam(parameters, lr=0.1)` is `ZeroRedundancyOptimizer(parameters, optimizer_class=Adam, lr=0.1)`."""
    source, call = optimizer.site.source, optimizer.site.node
    assert isinstance(call, ast.Call)
    zero, imports = member(context, source, "torch.distributed.optim", "ZeroRedundancyOptimizer")
    keywords = [(keyword.arg, keyword.value) for keyword in call.keywords]
    parameters = call.args[0] if call.args else next(value for name, value in keywords if name == "params")
    parts = [call.func, parameters]
    given = []
    for name, value in (*zip(optimizer.names, call.args[1:], strict=False), *keywords):
        if value is not parameters:
            given.append(f"**{{{len(parts)}}}" if name is None else f"{name}={{{len(parts)}}}")
            parts.append(value)
    names = {name for name, _ in keywords} | set(optimizer.names)
    if optimizer.cycled and not names & {"betas", "momentum"}:  # the scheduler looks for it among the settings
        given.append("betas=(0.9, 0.999)" if "Adam" in source.code(call.func) else "momentum=0")
    template = f"{zero}({', '.join(['{1}', 'optimizer_class={0}', *given])})"
    lists = [WrapExpr(generator, "list({})") for generator in optimizer.generators]
    return Fix((*imports, *planned(source, Recompose(call, template, tuple(parts)), *lists)))


def _gathered(state: OptimizerState, context: Context) -> Fix:
    source, node = state.site.source, state.site.node
    assert isinstance(node, ast.expr)
    if state.groups is not None:
        return Fix(planned(source, ReplaceExpr(state.groups, f"{state.target}.param_groups")))
    gather = InsertBefore(state.before, f"{state.target}.consolidate_state_dict(to=0)\n")
    if state.alone:
        return Fix(planned(source, gather))
    d, imports = dist(context, source)
    return Fix((*imports, *planned(source, gather, WrapExpr(node, f"{{}} if {d}.get_rank() == 0 else None"))))
