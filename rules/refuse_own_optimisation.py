from __future__ import annotations

from collections.abc import Iterator

from autodist.rule import Context, Example, Finding, raised, rule
from autodist.script import TrainingScript

from ._examples import PLAIN

CLIPPED = PLAIN.replace(
    "\nfor epoch", "model.weight.register_hook(lambda gradient: gradient.clamp(-1, 1))\n\nfor epoch"
)

EXAMPLES = [
    Example(before=CLIPPED, after=CLIPPED),
    Example(before=CLIPPED.replace("gradient.clamp(-1, 1)", "0.1 * gradient"), after=None),
    Example(
        before="""\
        import physics
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.LBFGS(model.parameters())

        for epoch in range(2):
            for x, y in loader:
                optimizer.step(physics.Residual(model, optimizer, x, y))
        """,
        after="""\
        import physics
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.LBFGS(model.parameters())

        for epoch in range(2):
            for x, y in loader:
                optimizer.step(physics.Residual(model, optimizer, x, y))
        """,
    ),
    Example(
        before="""\
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        w = torch.randn(4, 1, requires_grad=True)

        for epoch in range(2):
            for x, y in loader:
                loss = nn.functional.mse_loss(x @ w, y)
                loss.backward()
                w = (w - 0.1 * w.grad).detach().requires_grad_()
        """,
        after="""\
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        w = torch.randn(4, 1, requires_grad=True)

        for epoch in range(2):
            for x, y in loader:
                loss = nn.functional.mse_loss(x @ w, y)
                loss.backward()
                w = (w - 0.1 * w.grad).detach().requires_grad_()
        """,
    ),
    Example(
        before=PLAIN,
        after=None,
    ),
]


@rule("AD904")
def refuse_own_optimisation(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Refuse optimisation that gradients cannot be averaged for.

    L-BFGS decides by the loss that its closure returns, which has to be that of all ranks: where the closure is code of
    a library, it cannot be reduced. Gradients of tensors that are in no module are averaged where these are changed by
    them, `w -= 0.1 * w.grad`, if nothing reads the gradients before that; those of a module's parameters are averaged
    by its wrapper. Hooks of gradients see those of a rank's own samples: scaling them is the same as scaling their
    mean, clamping is not.
    """
    yield from raised(script, "AD904")
