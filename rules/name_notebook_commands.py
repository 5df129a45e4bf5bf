from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.rule import Context, Example, Finding, Severity, rule
from autodist.script import TrainingScript
from autodist.source import walk

NOTEBOOK = """\
get_ipython().system("pip install torch")
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
loader = DataLoader(train_set, batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for x, y in loader:
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

EXAMPLES = [
    Example(before=NOTEBOOK, after=NOTEBOOK),
    Example(
        before="""\
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
        after=None,
    ),
]


@rule("AD909")
def name_notebook_commands(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Name the commands of a notebook that a script cannot hold.

    Magics such as `%matplotlib inline` concern the notebook alone and become comments. What a shell command such as
    `!pip install` or `!unzip` leaves behind the script may need: run it once, before the script. Scripts that were
    exported from a notebook call `get_ipython()` for both, which exists in a notebook alone.
    """
    for source in script.project.sources:
        for left_out in source.left_out:
            place = ast.Pass(lineno=left_out.line, col_offset=0)
            if left_out.is_shell:
                message = f"`{left_out.command}` belongs to the notebook: run it once, before the script"
                yield Finding(source, place, message, severity=Severity.WARNING)
            else:
                yield Finding(source, place, f"`{left_out.command}` belongs to the notebook, and is left out")
        for node in walk(source.tree) if "get_ipython" in source.text else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "get_ipython":
                message = "get_ipython() exists in a notebook alone: take this line out"
                yield Finding(source, node, message, severity=Severity.WARNING)
