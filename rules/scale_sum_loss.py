from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.edits import InsertAfter, WrapExpr
from autodist.rule import Context, Example, Finding, Fix, rule
from autodist.script import TrainingScript
from autodist.source import argument

from ._examples import PLAIN
from ._preamble import dist, planned

EXAMPLES = [
    Example(
        before=PLAIN.replace(
            "loss = nn.functional.mse_loss(model(x), y)", 'loss = nn.functional.mse_loss(model(x), y, reduction="sum")'
        ),
        after="""\
        import torch
        import torch.distributed as dist
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x), y, reduction="sum")
                optimizer.zero_grad()
                (loss * dist.get_world_size()).backward()
                optimizer.step()
        """,
    ),
    Example(
        before=PLAIN,
        after=None,
    ),
    Example(
        before=PLAIN.replace(
            "loss = nn.functional.mse_loss(model(x), y)",
            "distances = ((model(x) - y) ** 2).sum(dim=tuple(range(1, y.dim())))  # of each sample\n"
            "        loss = distances.mean()",
        ),
        after=None,
    ),
]


@rule("AD603")
def scale_sum_loss(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Keep the gradient of a loss that is a sum over samples.

    Gradients are averaged over the ranks. For a mean over the batch that gives the gradient of the whole batch; for a
    sum it gives one N-th of it, which the factor restores. The loss that is reported stays as it is. A sum that is
    added to a mean is multiplied there: its mean over the ranks is then that of the batch. Gradients with regard to
    samples are averaged over nothing: of a mean over a rank's share they are N times those of the batch, and are
    divided where a loss counts how large they are.
    """
    if not script.trains or script.distributed:
        return
    for site in script.sums:
        d, imports = dist(context, site.source)
        fix = Fix((*imports, *planned(site.source, WrapExpr(site.node, f"{{}} * {d}.get_world_size()"))))
        yield Finding(
            site.source, site.node, "the loss is a sum over samples, and gradients are averaged over ranks", fix
        )
    for term in script.terms:
        d, imports = dist(context, term.source)
        ranks = f"({d}.get_world_size() if {term.switch} else 1)" if term.switch else f"{d}.get_world_size()"
        fix = Fix((*imports, *planned(term.source, WrapExpr(term.node, f"{{}} * {ranks}"))))
        message = "a sum over samples is added to a mean, and gradients are averaged over ranks"
        yield Finding(term.source, term.node, message, fix)
    for site in script.amplified:
        d, imports = dist(context, site.source)
        taken_of = argument(site.node, "outputs", 0) if isinstance(site.node, ast.Call) else site.node
        if taken_of is not None:
            fix = Fix((*imports, *planned(site.source, WrapExpr(taken_of, f"{{}} / {d}.get_world_size()"))))
            message = "of a rank's loss, each of its samples has as many times its gradient as there are ranks"
            yield Finding(site.source, site.node, message, fix)
    for site, leaf in script.own_gradients:
        d, imports = dist(context, site.source)
        line = f"{leaf}.grad /= {d}.get_world_size()  # of a mean over this rank's samples\n"
        fix = Fix((*imports, *planned(site.source, InsertAfter(site.node, line))))
        message = "of a rank's loss, each of its samples has as many times its gradient as there are ranks"
        yield Finding(site.source, site.node, message, fix)
