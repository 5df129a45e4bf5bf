from __future__ import annotations

from collections.abc import Iterator

from autodist.edits import WrapExpr
from autodist.rule import Context, Example, Finding, Fix, rule
from autodist.script import TrainingScript

from ._preamble import dist, planned

EXAMPLES = [
    Example(
        before="""\
        import torch
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
                loss.backward()
                optimizer.step()
        """,
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
        before="""\
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        """,
        after=None,
    ),
    Example(
        before="""\
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            for x, y in loader:
                distances = ((model(x) - y) ** 2).sum(dim=tuple(range(1, y.dim())))  # of each sample
                loss = distances.mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        """,
        after=None,
    ),
]


@rule("AD603")
def scale_sum_loss(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Keep the gradient of a loss that is a sum over samples.

    Gradients are averaged over the ranks. For a mean over the batch that gives the gradient of the whole batch; for a
    sum it gives one N-th of it, which the factor restores. The loss that is reported stays as it is.
    """
    if not script.trains or script.distributed:
        return
    for site in script.sums:
        d, imports = dist(context, site.source)
        fix = Fix((*imports, *planned(site.source, WrapExpr(site.node, f"{{}} * {d}.get_world_size()"))))
        yield Finding(
            site.source, site.node, "the loss is a sum over samples, and gradients are averaged over ranks", fix
        )
