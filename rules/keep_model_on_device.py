from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.edits import Edit, Recompose, RemoveStatement, WrapExpr
from autodist.rule import Context, Example, Finding, Fix, rule
from autodist.script import TrainingScript
from autodist.source import Source

from ._preamble import Planned, imported, planned

BETWEEN_STEPS = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
loader = DataLoader(train_set, batch_size=8, shuffle=True)
model = nn.Linear(4, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for epoch in range(2):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval().cpu()
    torch.save(model.state_dict(), f"epoch{epoch}.pt")
    model.cuda().train()
"""
ON_CPU = "{name: tensor.cpu() for name, tensor in model.state_dict().items()}"

EXAMPLES = [
    Example(
        before=BETWEEN_STEPS,
        after=BETWEEN_STEPS.replace("model.eval().cpu()", "model.eval()").replace("model.state_dict()", ON_CPU),
    ),
    Example(
        before=BETWEEN_STEPS.replace("    model.eval().cpu()", "model.eval().cpu()")
        .replace('    torch.save(model.state_dict(), f"epoch{epoch}.pt")', 'torch.save(model.state_dict(), "m.pt")')
        .replace("    model.cuda().train()\n", ""),
        after=None,
    ),
]


@rule("AD411")
def keep_model_on_device(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Leave models on their device between steps.

    A script may bring its model to the CPU to save it, and back to go on. That gives it other parameters than those
    that DistributedDataParallel has taken hold of, which from then on averages no gradients, and says nothing. Shards
    have to stay, too. The checkpoint still holds tensors on the CPU.
    """
    if not script.trains:
        return
    for site in script.shuttled:
        call, statement = site.node, site.statement
        assert isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
        base = call.func.value
        alone = isinstance(statement, (ast.Expr, ast.Assign)) and statement.value is call
        names = [ast.unparse(each) for each in statement.targets] if isinstance(statement, ast.Assign) else []
        edit: Edit = Recompose(call, "{0}", (base,))
        extra: Planned = ()
        if _is_handed_over(call, site.source):  # pickled whole: a copy of it is on the CPU
            copy, extra = imported(context, site.source, "copy")
            edit = Recompose(call, f"{copy}.deepcopy({{0}}).cpu()", (base,))
        elif alone and isinstance(base, (ast.Name, ast.Attribute)) and names in ([], [ast.unparse(base)]):
            edit = RemoveStatement(statement)
        message = "the wrapper would lose hold of its parameters, and average no gradients after that"
        yield Finding(site.source, call, message, Fix((*extra, *planned(site.source, edit))))
    for site in () if context.config.strategy.shards else script.states_on_cpu:
        assert isinstance(site.node, ast.expr)
        edit = WrapExpr(site.node, "{name: tensor.cpu() for name, tensor in {}.items()}")
        fix = Fix(planned(site.source, edit))
        yield Finding(site.source, site.node, "the model is on its device; what is saved is not", fix)


def _is_handed_over(call: ast.Call, source: Source) -> bool:
    """`torch.save(model.cpu(), path)`, also inside of a dict that is saved."""
    parent = source.parents.get(call)
    return isinstance(parent, ast.Call) and call in parent.args or isinstance(parent, ast.Dict)
