from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.edits import Edit, InsertBefore, WrapExpr
from autodist.rule import Context, Example, Finding, Fix, rule
from autodist.script import Site, TrainingScript

from ._preamble import argument, dist, divisible, planned, simple

EXAMPLES = [
    Example(
        before="""\
        import torch
        from torch import nn

        inputs, targets = torch.randn(64, 4), torch.randn(64, 1)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for step in range(100):
            rows = torch.randint(len(inputs), (8,))
            loss = nn.functional.mse_loss(model(inputs[rows]), targets[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
        after="""\
        import torch
        import torch.distributed as dist
        from torch import nn

        inputs, targets = torch.randn(64, 4), torch.randn(64, 1)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for step in range(100):
            assert 8 % dist.get_world_size() == 0, "the batch must divide by the number of ranks"
            rows = torch.randint(len(inputs), (8,))[dist.get_rank() :: dist.get_world_size()]
            loss = nn.functional.mse_loss(model(inputs[rows]), targets[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
    ),
    Example(
        before="""\
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        batch_size = 8
        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        loader = DataLoader(train_set, batch_size=batch_size, shuffle=True, drop_last=True)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x + torch.randn(batch_size, 4)), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        """,
        after="""\
        import torch
        import torch.distributed as dist
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        batch_size = 8
        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        loader = DataLoader(train_set, batch_size=batch_size, shuffle=True, drop_last=True)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x + torch.randn(batch_size // dist.get_world_size(), 4)), y)
                optimizer.zero_grad()
                loss.backward()
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
]


@rule("AD205")
def share_hand_made_batch(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Give each rank its share of batches that the script puts together itself.

    All ranks draw the same indices, from the same seed, and each keeps every N-th of them. Sizes that a training
    step takes from the batch-size setting are divided by the number of ranks.
    """
    if not script.trains:
        return
    for site in script.draws:
        d, imports = dist(context, site.source)
        template = f"{{}}[{d}.get_rank() :: {d}.get_world_size()]"
        if _is_viewed_tensor(site):
            template += ".contiguous()"
        edits: list[Edit] = [WrapExpr(site.node, template)]
        size = _size(site.node)
        if size is not None and simple(size):
            edits.append(InsertBefore(site.statement, divisible(site.source.code(size), d)))
        fix = Fix((*imports, *planned(site.source, *edits)))
        yield Finding(site.source, site.node, "each rank takes its share of the batch", fix)
    for site in script.batch_sizes:
        d, imports = dist(context, site.source)
        fix = Fix((*imports, *planned(site.source, WrapExpr(site.node, f"{{}} // {d}.get_world_size()"))))
        yield Finding(site.source, site.node, "a rank has its share of the batch only", fix)


def _is_viewed_tensor(site: Site) -> bool:
    """Whether a slice of a tensor is taken, in a file where `view` asks for rows that lie side by side."""
    if not isinstance(site.node, ast.Subscript) or ".view(" not in site.source.text:
        return False
    name = ast.dump(site.node.value)
    return any(
        isinstance(node, ast.Attribute) and node.attr in ("cuda", "to", "size") and ast.dump(node.value) == name
        for node in ast.walk(site.source.tree)
    )


def _size(node: ast.AST) -> ast.expr | None:
    """How many samples a draw takes: `randint(n, (size,))`, `choice(n, size)`, `x[i : i + size]`."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
        upper = node.slice.upper
        return upper.right if isinstance(upper, ast.BinOp) and isinstance(upper.op, ast.Add) else None
    if isinstance(node, ast.Call):
        given = argument(node, "size") or (node.args[-1] if len(node.args) > 1 else None)
        if isinstance(given, ast.Tuple) and given.elts:
            given = given.elts[0]
        return given
    return None
