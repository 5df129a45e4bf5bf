from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.edits import Edit, InsertBefore, ReplaceExpr, WrapExpr
from autodist.rule import Context, Example, Finding, Fix, rule
from autodist.script import RowMean, TrainingScript
from autodist.source import Source, is_mask, walk
from autodist.values import Draw

from ._preamble import Planned, defined, dist, free_name, imported, planned

EXAMPLES = [
    Example(
        before="""\
        import torch
        from torch import nn

        x, y = torch.randn(15, 4), torch.randn(15, 1)
        model = nn.Linear(4, 1)
        criterion = nn.MSELoss()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(100):
            loss = criterion(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
        after='''\
        import torch
        import torch.distributed as dist
        from torch import nn


        def row_weight(total):
            """The weight of this rank's mean among those of all ranks, where ``total`` rows may not divide evenly."""
            own = len(range(dist.get_rank(), total, dist.get_world_size()))
            return own * dist.get_world_size() / total


        x, y = torch.randn(15, 4), torch.randn(15, 1)
        model = nn.Linear(4, 1)
        criterion = nn.MSELoss()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        assert len(x) == len(y) >= dist.get_world_size(), "tensors need equally many rows, at least one a rank"
        rows = slice(dist.get_rank(), None, dist.get_world_size())  # this rank's share
        for epoch in range(100):
            loss = criterion(model(x[rows]), y[rows]) * row_weight(len(x))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        ''',
    ),
    Example(
        before="""\
        import torch
        from torch import nn

        x, y = torch.randn(64, 4), torch.randn(64, 1)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

        for step in range(100):
            loss = ((model(x) - y) ** 2).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
        after="""\
        import torch
        import torch.distributed as dist
        from torch import nn

        x, y = torch.randn(64, 4), torch.randn(64, 1)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

        assert len(x) == len(y) >= dist.get_world_size(), "tensors need equally many rows, at least one a rank"
        rows = slice(dist.get_rank(), None, dist.get_world_size())  # this rank's share
        for step in range(100):
            loss = ((model(x[rows]) - y[rows]) ** 2).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
    ),
    Example(
        before="""\
        import torch
        from torch import nn


        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(4, 1)

            def forward(self, x, y):
                out = self.fc(x)
                return out, nn.functional.mse_loss(out, y)


        x, y = torch.randn(64, 4), torch.randn(64, 1)
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

        for step in range(100):
            out, loss = model(x, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
        after="""\
        import torch
        import torch.distributed as dist
        from torch import nn


        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(4, 1)

            def forward(self, x, y):
                out = self.fc(x)
                return out, nn.functional.mse_loss(out, y)


        x, y = torch.randn(64, 4), torch.randn(64, 1)
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

        assert len(x) == len(y) and len(x) % dist.get_world_size() == 0, "the rows must divide by the number of ranks"
        rows = slice(dist.get_rank(), None, dist.get_world_size())  # this rank's share
        for step in range(100):
            out, loss = model(x[rows], y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
    ),
    Example(
        before="""\
        import torch
        from torch import nn

        x, y, adjacency = torch.randn(64, 4), torch.randn(64, 1), torch.rand(64, 64)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for step in range(100):
            loss = nn.functional.mse_loss(adjacency.mm(model(x)), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
        after=None,
    ),
]

WEIGHT = '''\
def row_weight(total):
    """The weight of this rank's mean among those of all ranks, where ``total`` rows may not divide evenly."""
    own = len(range({d}.get_rank(), total, {d}.get_world_size()))
    return own * {d}.get_world_size() / total


'''

PICKED = '''\
def picked(index):
    """The numbers of the rows that an index or a mask picks."""
    index = {torch}.as_tensor(index)
    return index.nonzero().flatten() if index.dtype == {torch}.bool else index


'''

Home = tuple[Source, ast.AST | None]


@rule("AD207")
def share_whole_data(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Give each rank its rows of the data, where every step trains on all of it.

    Each row of a tensor is treated by itself up to the loss, so a rank may keep every N-th of them. Where the data
    does not divide, some ranks have one row more than others: a mean over a rank's rows then counts for as many rows
    as it has, and the mean over ranks is that over all rows. Where that mean is taken inside a model, or in a function
    that does not have the data, the rows have to divide by the number of ranks. What is done with the whole data
    outside of the training step stays as it is.
    """
    if not script.trains or script.distributed:
        return
    even = {draw.node for mean in script.row_means if mean.even for draw in mean.draws}
    homes: dict[Home, list[Draw]] = {}
    for draw in script.wholes:
        homes.setdefault((draw.source, _function(draw.source, draw.node)), []).append(draw)
    for (source, _), draws in homes.items():
        d, imports = dist(context, source)
        name = free_name(source, "rows", "own_rows", "rank_rows")
        start = _start(source, draws)
        line = f"{name} = slice({d}.get_rank(), None, {d}.get_world_size())  # this rank's share\n"
        shared = Fix((*imports, *planned(source, InsertBefore(start, line, order=2))))
        for group in _groups(draws, script.row_means):
            codes = list(dict.fromkeys(source.code(draw.node) for draw in group))
            lengths = " == ".join(dict.fromkeys(_total(draw) for draw in group))
            check = f'assert {lengths} >= {d}.get_world_size(), "tensors need equally many rows, at least one a rank"\n'
            if not even.isdisjoint(draw.node for draw in group):
                shares = f"{_total(group[0])} % {d}.get_world_size() == 0"
                shares = f"{lengths} and {shares}" if " == " in lengths else shares
                check = f'assert {shares}, "the rows must divide by the number of ranks"\n'
            place = start if _bound_before(start, group[-1].node, codes, source) else source.statement(group[-1].node)
            checked = planned(source, InsertBefore(place, check, order=1))
            derived = {source.code(draw.node) for draw in group if draw.derived}
            for draw in group:
                template = f"len(range({{}})[{name}])" if draw.count else f"{{}}[{name}]"
                template = f"picked({{}})[{name}]" if is_mask(draw.node, draw.source) else template
                template += ".contiguous()" if _is_viewed(draw, script) else ""
                edits: list[Edit] = [WrapExpr(draw.node, template)]
                if draw.columns:
                    edits = _own_columns(draw, name, start if place is start else None)
                elif source.code(draw.node) in derived:
                    same = [each for each in group if source.code(each.node) == source.code(draw.node)]
                    edits = _own_rows(draw, name, start if place is start else _first_of(source, same))
                helper: Planned = ()
                if is_mask(draw.node, draw.source):
                    torch, torch_import = imported(context, source, "torch")
                    helper = (*torch_import, *defined(script, source, PICKED.replace("{torch}", torch)))
                fix = Fix((*shared.edits, *helper, *checked, *planned(source, *edits)))
                yield Finding(source, draw.node, "each rank takes its rows of the data", fix)
    for mean in (each for each in script.row_means if not each.even):
        d, imports = dist(context, mean.source)
        code = WEIGHT.replace("{d}", d)
        template = f"{{}} * row_weight({_total(mean.draws[0])})"
        weighted = planned(mean.source, WrapExpr(mean.node, template))
        fix = Fix((*imports, *defined(script, mean.source, code), *weighted))
        yield Finding(mean.source, mean.node, "the mean counts for as many rows as it is taken over", fix)


def _own_columns(draw: Draw, rows: str, start: ast.stmt | None) -> list[Edit]:
    """A rank's columns in memory of their own, since steps view them in another shape; bound at ``start`` if once."""
    code = draw.source.code(draw.node)
    own = f"{code}[:, {rows}].contiguous()"
    if start is None:
        return [WrapExpr(draw.node, f"{{}}[:, {rows}].contiguous()")]
    name = _own_name(draw, code)
    return [InsertBefore(start, f"{name} = {own}\n", order=4), ReplaceExpr(draw.node, name)]


def _is_viewed(draw: Draw, script: TrainingScript) -> bool:
    """Whether `view` is asked of the rows, for other axes than those that they have, `y.view(-1)`: every N-th of them
    do not lie side by side."""
    held: ast.AST = draw.node
    while True:
        method = draw.source.parents.get(held)
        call = draw.source.parents.get(method) if method is not None else None
        if not isinstance(method, ast.Attribute) or not isinstance(call, ast.Call) or call.func is not method:
            return False
        if method.attr == "view":
            break
        if method.attr not in ("to", "cuda", "cpu", "long", "float", "double", "type", "detach"):
            return False
        held = call
    counts = bool(call.args) and script.counts_samples(call.args[0])  # `x.view(len(x), -1)`
    return not counts and script.axes(draw.node) != 1


def _own_rows(draw: Draw, rows: str, start: ast.stmt) -> list[Edit]:
    """A rank's rows as one tensor, that a model is given and its output derived by."""
    code = draw.source.code(draw.node)
    name = _own_name(draw, code)
    return [InsertBefore(start, f"{name} = {code}[{rows}]\n", order=4), ReplaceExpr(draw.node, name)]


def _own_name(draw: Draw, code: str) -> str:
    last = code.rpartition(".")[2]
    return free_name(draw.source, f"own_{last}", f"rank_{last}", f"{last}_of_rank")


def _total(draw: Draw) -> str:
    """The number of all rows."""
    code = draw.source.code(draw.node)
    code = f"picked({code})" if is_mask(draw.node, draw.source) else code
    return code if draw.count else f"{code}.size(1)" if draw.columns else f"len({code})"


def _function(source: Source, node: ast.AST) -> ast.AST | None:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return next((ancestor for ancestor in source.ancestors(node) if isinstance(ancestor, kinds)), None)


def _start(source: Source, draws: list[Draw]) -> ast.stmt:
    """The outermost loop around the first of the uses, or its statement; what runs before all of them."""
    first = min((draw.node for draw in draws), key=lambda node: (node.lineno, node.col_offset))
    found = source.statement(first)
    for ancestor in source.ancestors(first):
        if isinstance(ancestor, (ast.FunctionDef, ast.AsyncFunctionDef)):
            break
        if isinstance(ancestor, (ast.For, ast.While)):
            found = ancestor
    return _around_all(source, draws, found)


def _first_of(source: Source, draws: list[Draw]) -> ast.stmt:
    """The statement of the first of the uses, or what runs before all of them."""
    first = min((draw.node for draw in draws), key=lambda node: (node.lineno, node.col_offset))
    return _around_all(source, draws, source.statement(first))


def _around_all(source: Source, draws: list[Draw], found: ast.stmt) -> ast.stmt:
    while not all(_follows(source, draw.node, found) for draw in draws):  # the first is in one branch of several
        found = source.statement(source.parents[found])
    return found


def _follows(source: Source, node: ast.AST, statement: ast.stmt) -> bool:
    """Whether a node is in a block of statements, or in one of them."""
    block = source.block(statement)
    return any(ancestor in block for ancestor in source.ancestors(node))


def _groups(draws: list[Draw], means: tuple[RowMean, ...]) -> list[list[Draw]]:
    """The uses that belong together, since they make one loss; a row of one goes with a row of the others."""
    groups = [{draw.node} for draw in draws]
    for mean in means:
        joined = {draw.node for draw in mean.draws}
        touched = [group for group in groups if group & joined]
        groups = [group for group in groups if not group & joined] + [set().union(*touched)] * bool(touched)
    if not means:
        groups = [{draw.node for draw in draws}]
    found = [[draw for draw in draws if draw.node in group] for group in groups]
    return sorted(found, key=lambda group: (group[0].node.lineno, group[0].node.col_offset))


def _bound_before(start: ast.stmt, last: ast.expr, codes: list[str], source: Source) -> bool:
    """Whether nothing in the loop, or between it and the last use, binds one of the names."""
    block = source.block(start)
    first = block.index(start)
    behind = [s for s in block[first + 1 :] if s.lineno <= last.lineno]
    bound = {
        source.code(node)
        for each in (start, *behind)
        for node in walk(each)
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store)
    }
    return not bound & {*codes, *(code.partition(".")[0] for code in codes)}
