from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.edits import Edit, InsertAfter, WrapExpr
from autodist.rule import Context, Example, Finding, Fix, rule
from autodist.script import TrainingScript
from autodist.source import counted_of

from ._collectives import MEAN_COUNT, WEIGH
from ._preamble import defined, dist, imported, planned

WORDS = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

train_set = TensorDataset(torch.randn(64, 6, 4), torch.randint(0, 3, (64, 6)))
loader = DataLoader(train_set, batch_size=8, shuffle=True)
model = nn.Linear(4, 3)
criterion = nn.CrossEntropyLoss(OPTIONS)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for epoch in range(2):
    for x, y in loader:
        y = y.flatten()
        loss = LOSS
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
TAGS = """\
import torch
from torch import nn
from torch.utils.data import DataLoader

sentences = [(torch.randint(50, (length,)), torch.randint(2, (length,))) for length in range(3, 67)]


def collate(batch):
    words, tags = zip(*batch)
    return torch.cat(words), torch.cat(tags)


loader = DataLoader(sentences, batch_size=8, shuffle=True, collate_fn=collate)
model = nn.Sequential(nn.Embedding(50, 8), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for epoch in range(2):
    for words, tags in loader:
        loss = nn.functional.cross_entropy(model(words), tags)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def _weighed(template: str, helper: str = WEIGH) -> str:
    template = template.replace("import torch\n", "import torch\nimport torch.distributed as dist\n", 1)
    start = template.index("\n\n") + 1
    return template[:start] + "\n\n" + helper.format(torch="torch", d="dist") + template[start:].lstrip("\n")


def _script(template: str, options: str, loss: str) -> str:
    return template.replace("OPTIONS", options).replace("LOSS", loss)


WEIGHED = _weighed(WORDS)
JOINED = "nn.functional.cross_entropy(model(words), tags)"
CALL = "criterion(model(x).flatten(0, 1), y)"
MASKED = "(nn.functional.cross_entropy(model(x).flatten(0, 1), y, reduction='none') * (y > 0)).sum() / (y > 0).sum()"
PICKED = "nn.functional.cross_entropy(model(x).flatten(0, 1)[y > 0], y[y > 0])"
EXAMPLES = [
    Example(
        before=_script(WORDS, "ignore_index=0", CALL),
        after=_script(WEIGHED, "ignore_index=0", f"weigh_by_count({CALL}, (y != criterion.ignore_index).sum())"),
    ),
    Example(
        before=_script(WORDS, "torch.tensor([1.0, 2.0, 3.0])", CALL),
        after=_script(WEIGHED, "torch.tensor([1.0, 2.0, 3.0])", f"weigh_by_count({CALL}, criterion.weight[y].sum())"),
    ),
    Example(
        before=_script(WORDS, "", MASKED),
        after=_script(
            _weighed(WORDS, MEAN_COUNT), "", MASKED.replace("/ (y > 0).sum()", "/ mean_count((y > 0).sum())")
        ),
    ),
    Example(
        before=_script(WORDS, "", PICKED),
        after=_script(WEIGHED, "", f"weigh_by_count({PICKED}, y[y > 0].numel())"),
    ),
    Example(before=TAGS, after=_weighed(TAGS.replace(JOINED, f"weigh_by_count({JOINED}, tags.numel())"))),
    Example(before=TAGS.replace("torch.cat(", "torch.stack("), after=None),
    Example(before=_script(WORDS, "", CALL), after=None),
    Example(before=_script(WORDS, 'ignore_index=0, reduction="sum"', CALL), after=None),
    Example(before=_script(WORDS, "weight=None", CALL), after=None),
]


@rule("AD604")
def weigh_uneven_loss(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Weigh a loss that is a mean over other numbers than those of the samples.

    Words that are not ignored, weights of classes, samples that a condition picks: ranks have different numbers of
    them, and the mean of their means is not the mean of the batch. Weighed by its share of all, each rank's mean goes
    into it as often as the original counts it.
    """
    if not script.trains:
        return
    for loss in script.weighed:
        d, imports = dist(context, loss.source)
        torch, torch_import = imported(context, loss.source, "torch")
        node = loss.node
        wrap: Edit
        if isinstance(node, ast.BinOp) and (counted_of(node.right) or not script.comes_from_model(node.right)):
            code, wrap = MEAN_COUNT, WrapExpr(node.right, "mean_count({})")
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):  # `loss, logits = model(x, labels=x)[:2]`
            weighed = f"{node.id} = weigh_by_count({node.id}, {loss.count.replace('{torch}', torch)})"
            code, wrap = WEIGH, InsertAfter(loss.source.statement(node), weighed)
        else:
            code, wrap = WEIGH, WrapExpr(node, f"weigh_by_count({{}}, {loss.count.replace('{torch}', torch)})")
        helper = defined(script, loss.source, code.replace("{d}", d).replace("{torch}", torch))
        wraps = [wrap, *([WrapExpr(loss.rows, f"({loss.name} := {{}})")] if loss.rows is not None else [])]
        fix = Fix((*imports, *torch_import, *helper, *planned(loss.source, *wraps)))
        yield Finding(loss.source, loss.node, "ranks divide this mean by different numbers", fix)
