from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.edits import RemoveStatement, ReplaceExpr, Unwrap
from autodist.rule import Context, Example, Finding, Fix, rule
from autodist.script import STAY, Numbered, TrainingScript
from autodist.source import Source

from ._departed import with_condition
from ._preamble import planned

EXAMPLES = [
    Example(
        before="""\
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.Linear(4, 1).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        """,
        after="""\
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.Linear(4, 1).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        """,
    ),
    Example(
        before="""\
        import os

        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        os.environ["CUDA_VISIBLE_DEVICES"] = "0"
        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.Linear(4, 1).cuda(0)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x.cuda()), y.cuda())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        """,
        after="""\
        import os

        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.Linear(4, 1).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x.cuda()), y.cuda())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        """,
    ),
    Example(
        before="""\
        import os

        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        gpus = "0,1"
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus
        print(len(os.environ["CUDA_VISIBLE_DEVICES"].split(",")), "devices")
        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.Linear(4, 1).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x.cuda()), y.cuda())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        """,
        after="""\
        import os

        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        gpus = "0,1"
        print(len(gpus.split(",")), "devices")
        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.Linear(4, 1).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x.cuda()), y.cuda())
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

        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.Linear(4, 1).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        """,
        after=None,
    ),
]


@rule("AD102")
def choose_device_by_local_rank(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Give each rank its own device instead of a fixed one.

    `setup_distributed()` makes the rank's device the current one, so `"cuda"` and `.cuda()` mean that device on
    every rank. A spelled-out number (`"cuda:0"`, `.cuda(0)`, `.cuda(args.gpu)`) would put all ranks on one device,
    and `CUDA_VISIBLE_DEVICES` set by the script would hide the others.
    """
    if script.distributed or not script.trains:
        return
    dropped = {site.statement for site in script.set_devices}
    ahead = (script.guards, script.prepared_alone, script.fetched_anew, *script.downloads)
    enclosed = {site.node for sites in ahead for site in sites}
    for named in script.devices:
        if named.statement in dropped:
            continue
        code = named.code
        if code is None:
            assert isinstance(named.node, ast.Call)
            others = ", ".join(_besides_device(named.source, named.node))
            code = f"{named.source.code(named.node.func)}({others})"
        around = _context(named) if code == STAY else None
        edit = ReplaceExpr(named.node, code) if around is None or around in enclosed else Unwrap(around)
        fix = planned(named.source, edit)
        yield Finding(named.source, named.node, "every rank would use this one device", Fix(fix))
    for site in script.hidden_devices:
        assert isinstance(site.node, ast.stmt)
        fix = planned(site.source, RemoveStatement(with_condition(site.source, site.node)))
        yield Finding(site.source, site.node, "would hide the other ranks' devices", Fix(fix))
    for site, value in script.asked_devices:
        assert isinstance(site.node, ast.expr)
        fix = planned(site.source, ReplaceExpr(site.node, site.source.code(value)))
        yield Finding(site.source, site.node, "no line sets it any more", Fix(fix))
    for site in script.set_devices:
        fix = planned(site.source, RemoveStatement(with_condition(site.source, site.statement)))
        yield Finding(site.source, site.node, "every rank would use this one device", Fix(fix))


def _context(named: Numbered) -> ast.With | None:
    """`with torch.cuda.device(0):`, which the rank's own device needs no more."""
    above: ast.AST | None = named.node
    while isinstance(above, (ast.expr, ast.keyword)):
        above = named.source.parents.get(above)
    around = named.source.parents.get(above) if isinstance(above, ast.withitem) else None
    alone = isinstance(around, ast.With) and len(around.items) == 1 and around.items[0].optional_vars is None
    return around if alone and isinstance(around, ast.With) else None


def _besides_device(source: Source, call: ast.Call) -> Iterator[str]:
    """What `.cuda(...)` is told besides the device, by name, as the device is what comes first."""
    yield from (f"non_blocking={source.code(each)}" for each in call.args[1:])
    for keyword in call.keywords:
        if keyword.arg != "device":
            yield f"{keyword.arg}={source.code(keyword.value)}" if keyword.arg else f"**{source.code(keyword.value)}"
