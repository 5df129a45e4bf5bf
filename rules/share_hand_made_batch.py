from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.edits import Edit, InsertBefore, WrapExpr
from autodist.program import EMPTY, closure, held
from autodist.rule import Context, Example, Finding, Fix, Severity, rule
from autodist.script import TrainingScript
from autodist.source import walk
from autodist.values import Draw

from ._collectives import DRAWN_BY_RANK_ZERO
from ._examples import PLAIN
from ._preamble import Planned, defined, dist, divisible, planned, simple
from ._tails import ODD, early_check, of_tails, size_of

LOCAL_ROWS = '''\
def local_rows(batch):
    """This rank's rows of a batch that all ranks hold."""
    assert len(batch) % {d}.get_world_size() == 0, "batch size must be divisible by the number of ranks"
    return batch[{d}.get_rank() :: {d}.get_world_size()]


'''

LOCAL_SAMPLES = '''\
def local_samples(batch):
    """This rank's share of the samples that a step goes over one by one."""
    samples = list(batch)
    {check}
    return samples[{d}.get_rank() :: {d}.get_world_size()]


'''
EVEN = 'assert len(samples) % {d}.get_world_size() == 0, "batch size must be divisible by the number of ranks"'
ENOUGH = 'assert len(samples) >= {d}.get_world_size(), "each rank needs a sample of the batch"'

LOCAL_PARTS = '''\
def local_rows(batch):
    """This rank's rows of a batch that all ranks hold."""
    if isinstance(batch, (tuple, list)):
        return tuple(map(local_rows, batch))
    assert len(batch) % {d}.get_world_size() == 0, "batch size must be divisible by the number of ranks"
    return batch[{d}.get_rank() :: {d}.get_world_size()]


'''

TAKEN = "    return batch[{d}.get_rank() :: {d}.get_world_size()]\n"
KEEPING = frozenset({"to", "cuda", "cpu", "long", "float", "type", "detach"})
"""Methods that may give the tensor as it lies."""

SIDE_BY_SIDE = """\
    rows = batch[{d}.get_rank() :: {d}.get_world_size()]
    if hasattr(rows, "contiguous"):  # view() needs contiguous memory
        return rows.contiguous()
    return rows.copy() if hasattr(rows, "copy") else rows
"""

LITERAL = PLAIN.replace("model(x)", "model(x + torch.randn(8, 4))")
LITERAL_SHARED = LITERAL.replace("randn(8, 4)", "randn(8 // dist.get_world_size(), 4)").replace(
    "import torch\n", "import torch\nimport torch.distributed as dist\n", 1
)

DROPPING = """\
import torch
from torch import nn

inputs, targets = torch.randn(64, 4), torch.randn(64, 1)
model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for step in range(100):
    rows = torch.randint(len(inputs), (8,))
    loss = nn.functional.mse_loss(model(inputs[rows]), targets[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
DROPPING_APART = DROPPING.replace(
    "    rows = torch.randint(len(inputs), (8,))",
    """\
    assert 8 % dist.get_world_size() == 0, "batch size must be divisible by the number of ranks"
    rows = torch.randint(len(inputs), (8 // dist.get_world_size(),))""",
).replace("import torch\n", "import torch\nimport torch.distributed as dist\n", 1)

EXAMPLES = [
    Example(before=DROPPING, after=DROPPING_APART),  # ranks that are seeded apart draw other samples as well
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
            assert 8 % dist.get_world_size() == 0, "batch size must be divisible by the number of ranks"
            rows = torch.randint(len(inputs), (8,))[dist.get_rank() :: dist.get_world_size()]
            loss = nn.functional.mse_loss(model(inputs[rows]), targets[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
    ),
    Example(  # the number of rows exists only inside the lambda
        before="""\
        import torch
        from torch import nn

        draw = lambda count: torch.rand(count, 1)
        model = nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for step in range(100):
            loss = model(draw(8)).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
        after="""\
        import torch
        import torch.distributed as dist
        from torch import nn


        def local_rows(batch):
            \"\"\"This rank's rows of a batch that all ranks hold.\"\"\"
            assert len(batch) % dist.get_world_size() == 0, "batch size must be divisible by the number of ranks"
            return batch[dist.get_rank() :: dist.get_world_size()]


        draw = lambda count: local_rows(torch.rand(count, 1))
        model = nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for step in range(100):
            loss = model(draw(8)).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
    ),
    Example(
        before="""\
        import torch
        from torch import nn

        inputs, targets = torch.randn(80, 4), torch.randn(80, 1)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            order = torch.randperm(len(inputs))
            for i in range(0, len(inputs), 32):
                rows = order[i : i + 32]
                loss = nn.functional.mse_loss(model(inputs[rows]), targets[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        """,
        after="""\
        import torch
        import torch.distributed as dist
        from torch import nn


        def local_rows(batch, size):
            \"\"\"This rank's rows of a batch of ``size``; all ranks compute a last one that does not divide.\"\"\"
            assert size % dist.get_world_size() == 0, "batch size must be divisible by the number of ranks"
            if len(batch) % dist.get_world_size() != 0:
                return batch
            return batch[dist.get_rank() :: dist.get_world_size()]


        inputs, targets = torch.randn(80, 4), torch.randn(80, 1)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            order = torch.randperm(len(inputs))
            for i in range(0, len(inputs), 32):
                rows = local_rows(order[i : i + 32], 32)
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

        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for step in range(100):
            x = torch.rand(32, 4)
            noise = 0.1 * torch.randn(32, 1)
            loss = nn.functional.mse_loss(model(x), x.sum(dim=1, keepdim=True) + noise)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
        after="""\
        import torch
        import torch.distributed as dist
        from torch import nn

        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for step in range(100):
            assert 32 % dist.get_world_size() == 0, "batch size must be divisible by the number of ranks"
            x = torch.rand(32, 4)[dist.get_rank() :: dist.get_world_size()]
            noise = 0.1 * torch.randn(32, 1)[dist.get_rank() :: dist.get_world_size()]
            loss = nn.functional.mse_loss(model(x), x.sum(dim=1, keepdim=True) + noise)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
    ),
    Example(
        before="""\
        import torch
        from torch import nn


        def batches(x, y, size):
            order = torch.randperm(len(x))
            for i in range(0, len(x), size):
                yield x[order[i : i + size]], y[order[i : i + size]]


        inputs, targets = torch.randn(64, 4), torch.randn(64, 1)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            for x, y in batches(inputs, targets, 16):
                loss = nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        """,
        after="""\
        import torch
        import torch.distributed as dist
        from torch import nn


        def local_rows(batch):
            \"\"\"This rank's rows of a batch that all ranks hold.\"\"\"
            if isinstance(batch, (tuple, list)):
                return tuple(map(local_rows, batch))
            assert len(batch) % dist.get_world_size() == 0, "batch size must be divisible by the number of ranks"
            return batch[dist.get_rank() :: dist.get_world_size()]


        def batches(x, y, size):
            order = torch.randperm(len(x))
            for i in range(0, len(x), size):
                yield x[order[i : i + size]], y[order[i : i + size]]


        inputs, targets = torch.randn(64, 4), torch.randn(64, 1)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            for x, y in map(local_rows, batches(inputs, targets, 16)):
                loss = nn.functional.mse_loss(model(x), y)
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
        import random

        import torch
        from torch import nn

        texts = [(torch.randn(random.randint(3, 7), 1, 4), torch.randint(0, 3, (1,))) for _ in range(64)]
        layer, model = nn.RNN(4, 8), nn.Linear(8, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for start in range(0, 64, 8):
            loss = 0
            for text, label in texts[start : start + 8]:
                loss += nn.functional.cross_entropy(model(layer(text)[1][0].detach()), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
        after="""\
        import random

        import torch
        import torch.distributed as dist
        from torch import nn


        def local_samples(batch):
            \"\"\"This rank's share of the samples that a step goes over one by one.\"\"\"
            samples = list(batch)
            assert len(samples) >= dist.get_world_size(), "each rank needs a sample of the batch"
            return samples[dist.get_rank() :: dist.get_world_size()]


        texts = [(torch.randn(random.randint(3, 7), 1, 4), torch.randint(0, 3, (1,))) for _ in range(64)]
        layer, model = nn.RNN(4, 8), nn.Linear(8, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for start in range(0, 64, 8):
            loss = 0
            for text, label in local_samples(texts[start : start + 8]):
                loss += nn.functional.cross_entropy(model(layer(text)[1][0].detach()), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
    ),
    Example(before=LITERAL, after=LITERAL_SHARED),  # the batch size, written out again
    Example(before=LITERAL.replace("randn(8, 4)", "randn(1, 4)"), after=None),
    Example(
        before=PLAIN,
        after=None,
    ),
]


@rule("AD205")
def share_hand_made_batch(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Give each rank its share of batches that the script puts together itself.

    All ranks draw the same indices or samples, from the same seed, and each keeps every N-th of them; or each
    draws as many as its share has, where torch draws them, one number for each sample, and dropout asks for
    ranks that are seeded apart. Where batches come from a generator, an iterator or a list of the script's own,
    that happens where a step gets them, if each row is treated by itself up to the loss. Sizes that a training
    step takes from the batch-size setting are divided by the number of ranks. Where a step goes over its samples
    one by one, a rank goes over its share of them: there may be one more on one rank than on another, if losses
    are added up for one backward pass. Samples that a step joins to a batch (made-up ones, those of a memory) are
    shared out as well, and a tensor that holds each batch in turn takes its shape where whole batches are put into
    it, too.
    """
    if not script.trains:
        return
    helper: Planned
    message = "each rank takes its share of the batch"
    tails = of_tails(script)
    for draw in script.draws:
        d, imports = dist(context, draw.source)
        common = any(each.node is draw.node for each in script.common_draws)
        whole = "drawn_by_rank_zero({})" if common else "{}"
        if common:
            imports = (*imports, *defined(script, draw.source, DRAWN_BY_RANK_ZERO.replace("{d}", d)))
        if draw.turn:
            code = LOCAL_SAMPLES.replace("{check}", EVEN if draw.even else ENOUGH).replace("{d}", d)
            helper = defined(script, draw.source, code)
            edit = WrapExpr(draw.node, f"local_samples({whole})")
            fix = Fix((*imports, *helper, *planned(draw.source, edit)))
            yield Finding(draw.source, draw.node, "each rank takes its share of the samples", fix)
            continue
        if tails is not None:
            template = f"local_rows({whole}, {size_of(draw)})"
            if draw.stream:
                template = f"(local_rows(rows, {size_of(draw)}) for rows in {whole})"
            code = tails
            if draw.batch and _may_be_viewed(script):
                code = code.replace(TAKEN, SIDE_BY_SIDE)
            if _is_viewed_tensor(draw) or _is_laid_out_anew(draw, script):
                template += ".contiguous()"
            helper = defined(script, draw.source, code.replace("{d}", d))
            fix = Fix((*imports, *helper, *planned(draw.source, WrapExpr(draw.node, template))))
            yield Finding(draw.source, draw.node, message, fix)
            continue
        if draw.batch:
            template = f"map(local_rows, {whole})" if draw.stream else f"local_rows({whole})"
            code = LOCAL_PARTS if any(each.nested for each in script.draws) else LOCAL_ROWS
            if _may_be_viewed(script):
                code = code.replace(TAKEN, SIDE_BY_SIDE)
            helper = defined(script, draw.source, code.replace("{d}", d))
            fix = Fix((*imports, *helper, *planned(draw.source, WrapExpr(draw.node, template))))
            yield Finding(draw.source, draw.node, message, fix)
            continue
        if draw.node in script.own_draws and draw.size is not None:
            share = WrapExpr(draw.size, f"{{}} // {d}.get_world_size()")
            even = divisible(draw.source.code(draw.size), d)
            checked = InsertBefore(draw.source.statement(draw.node), even, prepares=True)
            fix = Fix((*imports, *planned(draw.source, checked, share)))
            yield Finding(draw.source, draw.node, "each rank draws its share of the batch", fix)
            continue
        known = _known_size(draw)
        template = f"{whole}[{d}.get_rank() :: {d}.get_world_size()]" if known is not None else f"local_rows({whole})"
        if _is_viewed_tensor(draw) or _is_laid_out_anew(draw, script):
            template += ".contiguous()"
        edits: list[Edit] = [WrapExpr(draw.node, template)]
        helper = ()
        if known is None:
            helper = defined(script, draw.source, LOCAL_ROWS.replace("{d}", d))
            edits += [InsertBefore(*ahead)] if (ahead := early_check(draw, d)) is not None else []
        else:
            even = divisible(draw.source.code(known), d)
            edits.append(InsertBefore(draw.source.statement(draw.node), even, prepares=True))
        fix = Fix((*imports, *helper, *planned(draw.source, *edits)))
        yield Finding(draw.source, draw.node, message, fix)
        if known is None and (left := script.odd_tails.get(draw.node)) is not None:
            yield Finding(draw.source, draw.node, ODD.format(left=left), severity=Severity.WARNING)
    yield from _sizes(script, context)


def _sizes(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """What goes by how many samples a rank has."""
    for site in script.batch_sizes:
        d, imports = dist(context, site.source)
        fix = Fix((*imports, *planned(site.source, WrapExpr(site.node, f"{{}} // {d}.get_world_size()"))))
        yield Finding(site.source, site.node, "a rank has its share of the batch only", fix)
    for site in script.joined_in_full:
        d, imports = dist(context, site.source)
        helper = defined(script, site.source, LOCAL_ROWS.replace("{d}", d))
        fix = Fix((*imports, *helper, *planned(site.source, WrapExpr(site.node, "local_rows({})"))))
        yield Finding(site.source, site.node, "is joined to a rank's share of the batch: a share of this, too", fix)
    for site, batch in script.refitted:
        fix = Fix(planned(site.source, WrapExpr(site.node, f"{{}}.resize_({site.source.code(batch)}.shape)")))
        yield Finding(site.source, site.node, "holds a rank's share of a batch, and whole batches in turn", fix)


def _known_size(draw: Draw) -> ast.expr | None:
    """How many samples are in every batch; the last slice of the data may hold fewer."""
    walks = isinstance(draw.node, ast.Subscript) and isinstance(draw.node.slice, ast.Slice) and draw.node.slice.lower
    if draw.size is None or walks or not simple(draw.size) or draw.source.is_bound_within(draw.size, draw.node):
        return None
    return draw.size


def _is_viewed_tensor(draw: Draw) -> bool:
    """Whether a slice of a tensor is taken, in a file where `view` asks for rows that lie side by side."""
    if not isinstance(draw.node, ast.Subscript) or ".view(" not in draw.source.text:
        return False
    name = ast.dump(draw.node.value)
    return any(
        isinstance(node, ast.Attribute) and node.attr in ("cuda", "to", "size") and ast.dump(node.value) == name
        for node in walk(draw.source.tree)
    )


def _is_laid_out_anew(draw: Draw, script: TrainingScript) -> bool:
    """Whether `view` is asked of what is drawn, with other axes than those that samples have: `tokens.view(-1)`."""
    shape = draw.node.args if isinstance(draw.node, ast.Call) else []
    tuples = [each for each in shape if isinstance(each, (ast.Tuple, ast.List))]
    sizes = len(tuples[0].elts) if tuples else len(shape)  # `torch.randint(10, (16, 6))`, `torch.randn(16, 4)`
    called = script.program.at(draw.node.func) if isinstance(draw.node, ast.Call) else EMPTY
    tensors = sum(each.startswith("torch.") for each in called.functions)  # arrays know no `contiguous()`
    if sizes < 2 or not tensors or tensors < len(called.things):
        return False
    return _is_viewed(draw, script)


def _is_viewed(draw: Draw, script: TrainingScript) -> bool:
    """Whether `view` is asked of what is drawn, for other axes than those that samples have."""
    for source in script.project.sources:
        for call in walk(source.tree) if ".view(" in source.text else ():
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr != "view":
                continue
            viewed = call.func.value
            while (
                isinstance(viewed, ast.Call) and isinstance(viewed.func, ast.Attribute) and viewed.func.attr in KEEPING
            ):
                viewed = viewed.func.value
            if isinstance(viewed, ast.Call):  # what a layer gives lies side by side
                continue
            above = closure(script.program.at(viewed).operations, lambda op: op.given)
            ours = not above.isdisjoint(held(script.program.at(draw.node)))
            first = call.args[0] if call.args else None  # `x.view(len(x), -1)`
            sizes = [each for each in walk(first) if isinstance(each, ast.expr)] if first is not None else []
            counts = any(map(script.counts_samples, sizes))
            joins = counts and isinstance(first, ast.BinOp)  # `y.view(len(y) * length)`
            kept = not joins if draw.batch else counts and not joins  # `x.view(-1, 784)` of a batch may keep them
            if ours and not script.comes_from_model(viewed) and not kept:
                return True
    return False


def _may_be_viewed(script: TrainingScript) -> bool:
    """Whether rows that do not lie side by side would be in the way of `view`: here, or in a library's model that is
    given labels, too."""
    named = (model.object.name for model in script.models if model.object.cls is None)
    library = any(not name.startswith("torch.nn.") for name in named)
    parents = (draw.source.parents.get(draw.node) for draw in script.draws if draw.batch)
    viewed = any(isinstance(each, ast.Attribute) and each.attr == "view" for each in parents)
    viewed = viewed or any(_is_viewed(draw, script) for draw in script.draws if draw.batch)
    return library or viewed or any(".view(-1)" in source.text for source in script.project.sources)
