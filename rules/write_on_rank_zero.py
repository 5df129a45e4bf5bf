from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator

from autodist.edits import Edit, Guard, InsertBefore, ReplaceExpr, WrapExpr
from autodist.rule import Context, Example, Finding, Fix, Severity, raised, rule
from autodist.script import Site, TrainingScript
from autodist.source import argument, last_name, walk

from ._examples import PLAIN
from ._preamble import by_rank_zero, free_name, imported, planned, rank_zero, unguarded

ROTATED = """\
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
loader = DataLoader(train_set, batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

kept = []
for epoch in range(4):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    kept.append(f"epoch{epoch}.pt")
    torch.save(model.state_dict(), kept[-1])
    while len(kept) > 2:
        os.remove(kept.pop(0))
"""

EXAMPLES = [
    Example(
        before=PLAIN + 'torch.save(model.state_dict(), "model.pt")\n',
        after="""\
        import torch
        import torch.distributed as dist
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
        if dist.get_rank() == 0:
            torch.save(model.state_dict(), "model.pt")
        """,
    ),
    Example(
        before="""\
        import os

        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        if not os.path.exists("out"):
            os.mkdir("out")
        log = open("out/log.txt", "w")
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
            print(epoch, file=log)
        """,
        after="""\
        import os

        import torch
        import torch.distributed as dist
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        if dist.get_rank() == 0 and not os.path.exists("out"):
            os.mkdir("out")
        log = open("out/log.txt" if dist.get_rank() == 0 else os.devnull, "w")
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
            print(epoch, file=log)
        """,
    ),
    Example(
        before=ROTATED,
        after=ROTATED.replace(
            "import os\n\nimport torch\n", "import os\n\nimport torch\nimport torch.distributed as dist\n"
        )
        .replace("    torch.save", "    if dist.get_rank() == 0:\n        torch.save")
        .replace(
            "        os.remove(kept.pop(0))",
            "        taken = kept.pop(0)\n        if dist.get_rank() == 0:\n            os.remove(taken)",
        ),
    ),
    Example(
        before="""\
        import os

        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        os.makedirs("out", exist_ok=True)
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


@rule("AD301")
def write_on_rank_zero(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Write each file once, from rank 0.

    Every rank runs the whole script, so an unguarded `torch.save`, `mkdir` or `writer.add_scalar` is run by all of
    them at once on one path. A file that stays open (a log, a csv) is opened on the null device by the others, so
    that what they write goes nowhere.
    """
    if not script.trains:
        return
    for site in script.guards:
        test, imports = rank_zero(script, context, site.source, site.node)
        if test is None:
            yield unguarded(script, site, "every rank would write this")
            continue
        ahead = _taken_ahead(site, script)
        if ahead is None:
            message = "takes something out on rank 0 alone, which the other ranks keep: do so in a statement of its own"
            yield Finding(site.source, site.node, message, severity=Severity.WARNING)
        fix = Fix((*imports, *planned(site.source, *(ahead or ()), Guard(site.node, test))))
        if site.node not in script.without_group and (window := _window(site.node, script)) is not None:
            fix = Fix(by_rank_zero(script, context, site.source, window))
        yield Finding(site.source, site.node, "every rank would write this", fix)
    for site in script.answering:
        assert isinstance(site.node, ast.expr)
        fix = Fix(by_rank_zero(script, context, site.source, site.node))
        yield Finding(site.source, site.node, "every rank would write this; all go on with what came of it", fix)
    yield from raised(script, "AD301")
    for site in (*script.opens, *script.file_handlers, *script.log_configs):
        assert isinstance(site.node, ast.Call)
        func = site.node.func
        if (
            site in script.opens
            and isinstance(func, ast.Attribute)
            and func.attr == "open"
            and not _is_function(script, func)
        ):
            yield _path_method(script, context, site, func)
            continue
        path = (
            argument(site.node, "file", 0)
            if site in script.opens
            else argument(site.node, "filename", None if site in script.log_configs else 0)
        )
        if path is None:
            if getattr(func, "attr", "") in ("dictConfig", "fileConfig") and isinstance(site.statement, ast.Expr):
                test, imports = rank_zero(script, context, site.source, site.node)
                if test is None:
                    yield unguarded(script, site, "every rank would write these logs")
                    continue
                fix = Fix((*imports, *planned(site.source, Guard(site.statement, test))))
                yield Finding(site.source, site.node, "every rank would write these logs", fix)
            continue
        test, imports = rank_zero(script, context, site.source, site.node)
        if test is None:
            yield unguarded(script, site, "every rank would write this file")
            continue
        os, os_import = imported(context, site.source, "os")
        template = f"{{}} if {test} else {os}.devnull"
        fix = Fix((*imports, *os_import, *planned(site.source, WrapExpr(path, template))))
        yield Finding(site.source, site.node, "every rank would write this file", fix)
    for site in script.folders:
        assert isinstance(site.node, ast.expr)
        test, imports = rank_zero(script, context, site.source, site.node)
        alone = WrapExpr(site.node, f"{{}} if {test} else None")
        fix = Fix((*imports, *planned(site.source, alone)))
        handed = script.program.at(site.node).functions  # `Thread(target=torch.save)`
        told = "every rank would write by this" if handed else "every rank would write to this folder"
        yield Finding(site.source, site.node, told, fix) if test else unguarded(script, site, told)


TAKING = frozenset("pop popleft popitem heappop next".split())
"""What takes something out of a list, a queue or an iterator, which then has one less on every rank."""
FILLING = frozenset("append appendleft insert extend".split())


def _taken_ahead(site: Site, script: TrainingScript) -> list[Edit] | None:
    """What a guarded statement takes out of a list that all ranks have: `os.remove(kept.pop(0))`. They all take it, and
    rank 0 goes on with it; nothing where that would be another one, or where it may not be taken at all."""
    takes = _takes(site.node) if isinstance(site.node, (ast.Expr, ast.Assign)) else []
    lists = [held for each in takes if (held := _taken_from(each)) is not None]
    if any(_is_of_rank_zero(held, site, script) for held in lists):
        return []
    inside = {part for each in takes for part in walk(each)}
    beside = {ast.unparse(n) for n in walk(site.node) if isinstance(n, ast.expr) and n not in inside}
    if not beside.isdisjoint(map(ast.unparse, lists)):
        return None  # `os.replace(kept.pop(0), kept[-1])`
    if not all(isinstance(around, ALL_PARTS) for each in takes for around in _within(site, each)):
        return None  # `kept and os.remove(kept.pop(0))`
    edits: list[Edit] = []
    given: list[str] = []
    for each in takes:
        taken: ast.expr = each
        while isinstance(above := site.source.parents.get(taken), ast.Subscript) and above.value is taken:
            taken = above
        given.append(free_name(site.source, "taken", taken=given))
        edits += [InsertBefore(site.node, f"{given[-1]} = {site.source.code(taken)}\n"), ReplaceExpr(taken, given[-1])]
    return edits


ALL_PARTS = (
    ast.Call,
    ast.keyword,
    ast.Attribute,
    ast.Subscript,
    ast.BinOp,
    ast.JoinedStr,
    ast.FormattedValue,
    ast.Tuple,
)
"""What computes all of its parts, once."""


def _takes(statement: ast.AST) -> list[ast.Call]:
    """The calls that take something out, as they are run one after the other, each with those inside of it."""
    found = [n for n in walk(statement) if isinstance(n, ast.Call) and _taken_from(n) is not None]
    inner = {part for each in found for part in walk(each) if part is not each}
    return sorted((each for each in found if each not in inner), key=lambda each: (each.lineno, each.col_offset))


def _within(site: Site, node: ast.AST) -> Iterator[ast.AST]:
    """What stands around an expression in its statement."""
    return itertools.takewhile(lambda each: each is not site.node, site.source.ancestors(node))


def _taken_from(call: ast.Call) -> ast.expr | None:
    """The list that a call takes something out of."""
    if last_name(call.func) not in TAKING:
        return None
    method = isinstance(call.func, ast.Attribute) and call.func.attr != "heappop"
    held = call.func.value if isinstance(call.func, ast.Attribute) and method else next(iter(call.args), None)
    return held if isinstance(held, (ast.Name, ast.Attribute)) else None


def _is_of_rank_zero(held: ast.expr, site: Site, script: TrainingScript) -> bool:
    """Whether the other ranks have nothing in a list, or no such list, since what fills it or makes it is guarded."""
    name = ast.unparse(held)
    guarded = (
        node
        for other in script.guards
        if other.source is site.source and other.node is not site.node
        for node in walk(other.node)
        if isinstance(node, (ast.Name, ast.Attribute))
    )
    return any(
        ast.unparse(node) == name
        and isinstance(node.ctx, ast.Store)
        or isinstance(node, ast.Attribute)
        and node.attr in FILLING
        and ast.unparse(node.value) == name
        for node in guarded
    )


def _window(statement: ast.AST, script: TrainingScript) -> ast.expr | None:
    """The plot whose name all ranks look up later, as in `if name not in self.plots: self.plots[name] = viz.line()`."""
    value = statement.value if isinstance(statement, ast.Assign) else None
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
        return None
    plots = any(each.endswith("visdom.Visdom") for each in script.program.at(value.func.value).classes)
    held = isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Subscript)
    return value if plots and held else None


def _is_function(script: TrainingScript, func: ast.Attribute) -> bool:
    """`gzip.open(path)` rather than `path.open()`."""
    return bool(script.program.at(func).functions)


def _path_method(script: TrainingScript, context: Context, site: Site, func: ast.Attribute) -> Finding:
    """`path.open("w")` becomes `open(path if ... else os.devnull, "w")`."""
    assert isinstance(site.node, ast.Call)
    test, imports = rank_zero(script, context, site.source, site.node)
    if test is None:
        return unguarded(script, site, "every rank would write this file")
    os, os_import = imported(context, site.source, "os")
    given = [site.source.code(a) for a in site.node.args] + [
        f"{k.arg}={site.source.code(k.value)}" for k in site.node.keywords
    ]
    path = f"{site.source.code(func.value)} if {test} else {os}.devnull"
    edit = ReplaceExpr(site.node, f"open({', '.join([path, *given])})")
    fix = Fix((*imports, *os_import, *planned(site.source, edit)))
    return Finding(site.source, site.node, "every rank would write this file", fix)
