from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.edits import ReplaceExpr
from autodist.rule import Context, Example, Finding, Fix, rule
from autodist.script import TrainingScript

from ._preamble import imported, planned

EXAMPLES = [
    Example(
        before="""\
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                for layer in model.modules():
                    if isinstance(layer, nn.BatchNorm1d):
                        layer.weight.grad += 1e-4 * layer.weight.sign()
                optimizer.step()
        """,
        after="""\
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                for layer in model.modules():
                    if isinstance(layer, (nn.BatchNorm1d, nn.SyncBatchNorm)):
                        layer.weight.grad += 1e-4 * layer.weight.sign()
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
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
        for layer in model.modules():
            if isinstance(layer, nn.BatchNorm1d):
                nn.init.constant_(layer.weight, 0.5)
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


        class Norm(nn.BatchNorm1d):
            def __init__(self, width):
                super().__init__(width, eps=1e-6)


        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.body = nn.Sequential(nn.Linear(4, 8), Norm(8), nn.Linear(8, 1))

            def reset(self):
                for layer in self.modules():
                    if type(layer) in (nn.Linear, Norm):
                        layer.reset_parameters()

            def norms(self):
                return [layer for layer in self.modules() if type(layer) == Norm]

            def forward(self, x):
                return self.body(x)


        loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8, shuffle=True)
        model = Net()
        for run in range(2):
            model.reset()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(len(model.norms()))
        """,
        after="""\
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset


        class Norm(nn.BatchNorm1d):
            def __init__(self, width):
                super().__init__(width, eps=1e-6)


        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.body = nn.Sequential(nn.Linear(4, 8), Norm(8), nn.Linear(8, 1))

            def reset(self):
                for layer in self.modules():
                    if type(layer) in (nn.Linear, Norm, nn.SyncBatchNorm):
                        layer.reset_parameters()

            def norms(self):
                return [layer for layer in self.modules() if type(layer) in (Norm, nn.SyncBatchNorm)]

            def forward(self, x):
                return self.body(x)


        loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8, shuffle=True)
        model = Net()
        for run in range(2):
            model.reset()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(len(model.norms()))
        """,
    ),
]


@rule("AD406")
def match_synchronised_layers(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Find layers of batch normalisation once they are synchronised.

    On GPUs `nn.SyncBatchNorm` takes the place of `nn.BatchNorm2d` and the like, and is no subclass of them. Training
    code that looks for these layers, to prune or to freeze them, would find none, and go on without a word.
    """
    if not script.trains or script.distributed:
        return
    for site in script.layer_tests:
        assert isinstance(site.node, ast.expr)
        if "SyncBatchNorm" in site.source.code(site.node):
            continue
        nn, imports = imported(context, site.source, "torch.nn", "nn")
        layer: ast.expr | None = None
        negated = False
        match site.node:
            case ast.Compare(left=layer, ops=[operator], comparators=[named]):
                negated = isinstance(operator, (ast.NotEq, ast.IsNot))
                classes = [named]
            case ast.Tuple(elts=classes) | ast.List(elts=classes) | ast.Set(elts=classes):
                pass
            case named:
                classes = [named]
        joined = ", ".join([*map(site.source.code, classes), f"{nn}.SyncBatchNorm"])
        test = f"{site.source.code(layer)} {'not in' if negated else 'in'} " if layer is not None else ""
        fix = Fix((*imports, *planned(site.source, ReplaceExpr(site.node, f"{test}({joined})"))))
        yield Finding(site.source, site.node, "synchronised layers are of another class", fix)
