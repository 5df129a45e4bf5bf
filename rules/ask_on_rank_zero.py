from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.rule import Context, Example, Finding, Fix, rule
from autodist.script import TrainingScript

from ._examples import PLAIN
from ._preamble import by_rank_zero

EXAMPLES = [
    Example(
        before=PLAIN.replace("for epoch in range(2):", 'for epoch in range(int(input("How many epochs? "))):'),
        after='''\
        import torch
        import torch.distributed as dist
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset


        def as_on_rank_zero(value):
            """The value that rank 0 has."""
            box = [value]
            dist.broadcast_object_list(box)
            return box[0]


        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(int(as_on_rank_zero(input("How many epochs? ") if dist.get_rank() == 0 else None))):
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        ''',
    ),
    Example(before=PLAIN, after=None),
]


@rule("AD308")
def ask_on_rank_zero(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Ask a person once, and tell all ranks the answer.

    Ranks share one keyboard: each line that is typed goes to one of them, and the others wait for a line of their own.
    """
    if not script.trains or script.distributed:
        return
    for site in script.asked:
        assert isinstance(site.node, ast.expr)
        fix = Fix(by_rank_zero(script, context, site.source, site.node))
        yield Finding(site.source, site.node, "every rank would wait for an answer of its own", fix)
