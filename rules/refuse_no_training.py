from __future__ import annotations

from collections.abc import Iterator

from autodist.rule import Context, Example, Finding, raised, rule
from autodist.script import TrainingScript

EXAMPLES = [
    Example(
        before="""\
        import torch
        from torch import nn

        model = nn.Linear(4, 1)
        with torch.no_grad():
            print(model(torch.randn(8, 4)))
        """,
        after="""\
        import torch
        from torch import nn

        model = nn.Linear(4, 1)
        with torch.no_grad():
            print(model(torch.randn(8, 4)))
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
]


@rule("AD901")
def refuse_no_training(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Refuse a script that trains nothing.

    No `loss.backward()` is reached from it, so there are no gradients to average.
    """
    yield from raised(script, "AD901")
