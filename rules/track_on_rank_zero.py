from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.edits import Edit, Guard, InsertAfter, Prepend, SetArgument, WrapExpr
from autodist.program import EMPTY
from autodist.rule import Context, Example, Finding, Fix, rule
from autodist.script import Site, TrainingScript
from autodist.source import Source, all_of, argument, last_name, walk
from autodist.values import NOTHING

from ._collectives import AS_ON_RANK_ZERO, SETTINGS_AS_ON_RANK_ZERO
from ._examples import PLAIN
from ._preamble import Planned, defined, dist, free_name, imported, negated, planned, rank_zero, unguarded

EXAMPLES = [
    Example(
        before="""\
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset
        from tqdm import tqdm

        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            for x, y in tqdm(loader):
                loss = nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        """,
        after="""\
        import torch
        import torch.distributed as dist
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset
        from tqdm import tqdm

        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            for x, y in tqdm(loader, disable=dist.get_rank() != 0):
                loss = nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        """,
    ),
    Example(
        before="""\
        import torch
        import wandb
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        wandb.init(project="first")
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
            wandb.log({"epoch": epoch})
        """,
        after="""\
        import torch
        import torch.distributed as dist
        import wandb
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        wandb.init(project="first", mode=None if dist.get_rank() == 0 else "disabled")
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
            wandb.log({"epoch": epoch})
        """,
    ),
    Example(
        before="""\
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset
        from torch.utils.tensorboard import SummaryWriter

        writer = SummaryWriter("runs/first")
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
            writer.add_scalar("epoch", epoch, epoch)
        """,
        after="""\
        import torch
        import torch.distributed as dist
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset
        from torch.utils.tensorboard import SummaryWriter

        writer = SummaryWriter("runs/first") if dist.get_rank() == 0 else None
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
            writer.add_scalar("epoch", epoch, epoch)
        """,
    ),
    Example(
        before=PLAIN,
        after=None,
    ),
]


@rule("AD306")
def track_on_rank_zero(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Show one progress bar and start one tracked run.

    Progress bars of the other ranks are disabled, `wandb.init` runs in its disabled mode there, in which every later
    call does nothing, and other writers exist on rank 0 alone, where all their uses are guarded. All ranks take the
    `wandb.config` of rank 0, which a sweep may have set, where a script reads it.
    """
    if not script.trains:
        return
    for site in script.progress:
        assert isinstance(site.node, ast.Call)
        test, imports = rank_zero(script, context, site.source, site.node)
        if test is None:
            yield unguarded(script, site, "every rank would draw this progress bar")
            continue
        given = argument(site.node, "disable")
        code = negated(test)
        if given is not None:
            if script.goes_by_rank(given) or script.values.get(given, NOTHING).const is True:
                continue
            other = site.source.code(given)
            loose = isinstance(given, (ast.IfExp, ast.Lambda, ast.NamedExpr))
            code = f"({other}) or {code}" if loose else f"{other} or {code}"
        fix = Fix((*imports, *planned(site.source, SetArgument(site.node, "disable", code))))
        yield Finding(site.source, site.node, "every rank would draw this progress bar", fix)
    for site in script.writers:
        assert isinstance(site.node, ast.Call)
        test, imports = rank_zero(script, context, site.source, site.node)
        names = script.program.at(site.node.func).functions
        callee = next(iter(names)) if len(names) == 1 else site.source.code(site.node.func)
        if test is None:
            yield unguarded(script, site, "every rank would start a run of its own")
            continue
        if callee.endswith("wandb.init") and not _is_chosen_by_rank(argument(site.node, "mode"), script):
            mode = _kept(argument(site.node, "mode"), site)
            edit = SetArgument(site.node, "mode", f'{mode} if {test} else "disabled"')
            fix = Fix((*imports, *planned(site.source, edit), *_settings_of_sweep(script, site, context)))
        elif site.node in script.lone_writers:
            other, more = "None", imports
            if _is_entered(site, script):
                name, needed = imported(context, site.source, "contextlib")
                other, more = f"{name}.nullcontext()", (*imports, *needed)
            bare = isinstance(site.statement, ast.Expr) and site.statement.value is site.node
            alone: Edit = Guard(site.statement, test) if bare else WrapExpr(site.node, f"{{}} if {test} else {other}")
            fix = Fix((*more, *planned(site.source, alone)))
        else:
            continue
        filmed = callee.endswith(("get_writer", "VideoWriter"))
        message = "every rank would write this" if filmed else "every rank would start a run of its own"
        yield Finding(site.source, site.node, message, fix)
    for site in script.places_of_writers:
        assert isinstance(site.node, ast.Attribute)
        if site.node in script.without_group:
            yield unguarded(script, site, "asks a writer that rank 0 alone has for its folder")
            continue
        d, imports = dist(context, site.source)
        helper = defined(script, site.source, AS_ON_RANK_ZERO.replace("{d}", d))
        asked = WrapExpr(site.node, f"as_on_rank_zero({site.source.code(site.node.value)} and {{}})")
        fix = Fix((*imports, *helper, *planned(site.source, asked)))
        yield Finding(site.source, site.node, "the writer is there on rank 0 alone, and knows the folder", fix)


def _is_entered(site: Site, script: TrainingScript) -> bool:
    """Whether what a call makes is entered by a `with`, there or where it is kept or handed on: `with run:`, or by a
    stack of contexts."""
    trees = [source.tree for source in script.project.sources]
    entered = [item.context_expr for tree in trees for item in all_of(tree, ast.withitem)]
    calls = (call for tree in trees for call in all_of(tree, ast.Call) if last_name(call.func) == "enter_context")
    entered += (call.args[0] for call in calls if call.args)
    held = (thing for each in entered for thing in script.program.at(each).things)
    return site.node in entered or any(getattr(thing, "node", None) is site.node for thing in held)


def _settings_of_sweep(script: TrainingScript, site: Site, context: Context) -> Planned:
    """Where a script reads hyperparameters off `wandb.config`, which a sweep sets in the run of rank 0 alone."""
    reads = [each for source in script.project.sources for each in walk(source.tree) if _is_read(each, source)]
    if site.node in script.without_group or not any(_is_config(each, script) for each in reads):
        return ()
    d, imports = dist(context, site.source)
    helper = defined(script, site.source, AS_ON_RANK_ZERO.replace("{d}", d))
    call, block = site.node, site.statement
    assert isinstance(call, ast.Call)
    if not isinstance(call.func, ast.Attribute) or not _goes_on_with(block, call):
        made = defined(script, site.source, SETTINGS_AS_ON_RANK_ZERO.replace("{d}", d))
        wrapped = planned(site.source, WrapExpr(call, "with_settings_of_rank_zero({})"))
        return (*imports, *helper, *made, *wrapped)
    wandb, name = site.source.code(call.func.value), free_name(site.source, "settings")
    code = (
        f"{name} = as_on_rank_zero(dict({wandb}.config))\n"
        f"if {d}.get_rank() != 0:\n    {wandb}.config.update({name}, allow_val_change=True)  # a sweep sets rank 0's\n"
    )
    edit = (Prepend if isinstance(block, ast.With) else InsertAfter)(block, code)
    return (*imports, *helper, *planned(site.source, edit))


def _goes_on_with(statement: ast.stmt, call: ast.Call) -> bool:
    """Whether a statement does nothing but make a run and give it a name, so that the next one finds it made: no
    `return wandb.init()`, and none that reads the configuration itself."""
    if isinstance(statement, ast.With):
        return [item.context_expr for item in statement.items] == [call]
    return isinstance(statement, (ast.Expr, ast.Assign, ast.AnnAssign)) and statement.value is call


def _is_read(node: ast.AST, source: Source) -> bool:
    """Whether something's `config` is read, and not filled: `config.lr`, but no `config.update(args)`"""
    parent = source.parents.get(node)
    filled = isinstance(parent, ast.Attribute) and (parent.attr == "update" or isinstance(parent.ctx, ast.Store))
    return isinstance(node, ast.Attribute) and node.attr == "config" and isinstance(node.ctx, ast.Load) and not filled


def _is_config(node: ast.AST, script: TrainingScript) -> bool:
    held = script.program.at(node.value) if isinstance(node, ast.Attribute) else EMPTY
    return not {"wandb", "wandb.init", "wandb.run"}.isdisjoint(held.functions | held.classes)


def _is_chosen_by_rank(mode: ast.expr | None, script: TrainingScript) -> bool:
    return mode is not None and script.goes_by_rank(mode)


def _kept(mode: ast.expr | None, site: Site) -> str:
    """The mode that the script chooses, as a part of an expression."""
    if mode is None:
        return "None"
    return f"({site.source.code(mode)})" if isinstance(mode, (ast.IfExp, ast.NamedExpr)) else site.source.code(mode)
