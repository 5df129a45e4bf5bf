from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.edits import Edit, Recompose, WrapExpr
from autodist.rule import REPLICATED, Context, Example, Finding, Fix, raised, rule
from autodist.script import Site, TrainingScript
from autodist.source import Source

from ._examples import PLAIN
from ._preamble import imported, member, planned

NORMALISED = PLAIN.replace("nn.Linear(4, 1)", "nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))")
SCRIPTED = 'torch.jit.script({}).save("model.pt")\n'
TRACED = 'traced = torch.jit.trace({}, torch.randn(1, 4))\ntraced.save("model.pt")\n'

EXAMPLES = [
    Example(before=PLAIN + TRACED.format("model"), after=PLAIN + TRACED.format("model.module")),
    Example(  # with a warning: SyncBatchNorm cannot be compiled
        before=NORMALISED + SCRIPTED.format("model"), after=NORMALISED + SCRIPTED.format("model.module")
    ),
    Example(
        before="""\
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        print(model[2].bias)
        torch.save(model.state_dict(), "model.pt")
        """,
        after="""\
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        print(model.module[2].bias)
        torch.save(model.module.state_dict(), "model.pt")
        """,
    ),
    Example(
        before=PLAIN,
        after=None,
    ),
]


@rule("AD402", *REPLICATED)
def reach_into_wrapper(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Use the model itself where the wrapper has no such attribute or would change what is saved.

    `DistributedDataParallel` prefixes every key of its state dict with `module.`, and knows none of the model's own
    attributes. Checkpoints hold the state of the model inside, so that they move freely between the original script
    and this one. What the script saves as a whole in `DataParallel` it still does: DistributedDataParallel can be
    loaded by processes of a group alone.
    """
    if not script.trains:
        return
    hoisted = {site.node for site, _ in script.shards.hoists}
    reduced = {each.node for each in script.reductions if each.hoist is not None}
    shuttled = {site.node for site in script.shuttled}
    for site in script.unwraps:
        node = site.node
        assert isinstance(node, ast.expr)
        if not hoisted.isdisjoint(site.source.ancestors(node)):
            continue  # written anew, ahead of what rank 0 does
        if node not in script.maybe_wrapped and not reduced.isdisjoint(site.source.ancestors(node)):
            continue
        template = "{}.module"
        if node in script.maybe_wrapped:
            template = f'getattr({{}}, "module", {site.source.code(node)})'
        elif node in shuttled and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            node = node.func.value  # a copy of the model inside goes to the CPU
        fix = Fix(planned(site.source, WrapExpr(node, template)))
        yield Finding(site.source, site.node, "means the model inside the wrapper", fix)
    for site in script.saved_wrappers:
        nn, imports = imported(context, site.source, "torch.nn", "nn")
        fix = Fix((*imports, *planned(site.source, WrapExpr(site.node, f"{nn}.DataParallel({{}}.module)"))))
        yield Finding(site.source, site.node, "could not be loaded outside of a process group", fix)
    for site in script.wrapper_tests:
        fix = Fix(_also_asking(site, context))
        yield Finding(site.source, site.node, "DistributedDataParallel takes the place of DataParallel", fix)
    yield from raised(script, "AD402")


def _also_asking(site: Site, context: Context) -> tuple[tuple[Source, Edit], ...]:
    """A test for DataParallel that says yes of DistributedDataParallel, too."""
    node = site.node
    assert isinstance(node, ast.expr)
    classes = node.comparators[0] if isinstance(node, ast.Compare) else node
    listed = classes.elts if isinstance(classes, (ast.Tuple, ast.List)) else [classes]
    imported: tuple[tuple[Source, Edit], ...] = ()
    if all(isinstance(each, ast.Constant) for each in listed):
        name = '"DistributedDataParallel"'
    else:
        name, imported = member(context, site.source, "torch.nn.parallel", "DistributedDataParallel", "DDP")
    edit: Edit = WrapExpr(node, f"({{}}, {name})")
    if isinstance(node, (ast.Tuple, ast.List)):
        places = ", ".join([*(f"{{{index}}}" for index in range(len(node.elts))), name])
        edit = Recompose(node, f"({places})" if isinstance(node, ast.Tuple) else f"[{places}]", tuple(node.elts))
    elif isinstance(node, ast.Compare):
        among = "not in" if isinstance(node.ops[0], (ast.NotEq, ast.IsNot)) else "in"
        edit = Recompose(node, f"{{0}} {among} ({{1}}, {name})", (node.left, classes))
    return (*imported, *planned(site.source, edit))
