from __future__ import annotations

from collections.abc import Iterator

from autodist.rule import Context, Example, Finding, raised, rule
from autodist.script import TrainingScript

from ._examples import PLAIN

EXAMPLES = [
    Example(
        before="""\
        import pytorch_lightning as pl
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset


        class Regression(pl.LightningModule):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(4, 1)

            def training_step(self, batch, index):
                x, y = batch
                return nn.functional.mse_loss(self.layer(x), y)

            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), lr=0.1)


        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        trainer = pl.Trainer(max_epochs=2)
        trainer.fit(Regression(), DataLoader(train_set, batch_size=8, shuffle=True))
        """,
        after="""\
        import pytorch_lightning as pl
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset


        class Regression(pl.LightningModule):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(4, 1)

            def training_step(self, batch, index):
                x, y = batch
                return nn.functional.mse_loss(self.layer(x), y)

            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), lr=0.1)


        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        trainer = pl.Trainer(max_epochs=2)
        trainer.fit(Regression(), DataLoader(train_set, batch_size=8, shuffle=True))
        """,
    ),
    Example(
        before="""\
        import torch
        from accelerate import Accelerator
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        accelerator = Accelerator()
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

        for epoch in range(2):
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                accelerator.backward(loss)
                optimizer.step()
        """,
        after="""\
        import torch
        from accelerate import Accelerator
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        accelerator = Accelerator()
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

        for epoch in range(2):
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                accelerator.backward(loss)
                optimizer.step()
        """,
    ),
    Example(
        before=PLAIN,
        after=None,
    ),
]


@rule("AD903")
def refuse_framework(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Refuse a script whose training a framework owns.

    Lightning, Accelerate and others distribute training themselves; the message says what to set there.
    """
    yield from raised(script, "AD903")
