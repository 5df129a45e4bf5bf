from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.edits import AddImport, InsertAfter, InsertBefore, ReplaceStatement
from autodist.rule import Context, Example, Finding, Fix, Strategy, rule
from autodist.script import Site, TrainingScript
from autodist.source import Source

from ._preamble import Planned, defined, dist, imported, member, planned

EXAMPLES = [
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
        after='''\
        import atexit
        import os
        import sys

        import torch
        import torch.distributed as dist
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset


        def setup_distributed():
            """Join the process group that torchrun describes; plain `python` runs as a group of one."""
            if "RANK" not in os.environ:
                os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="localhost", MASTER_PORT="0")
            if torch.cuda.is_available():
                torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
            dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
            atexit.register(dist.destroy_process_group)
            if dist.get_rank() != 0:
                sys.stdout = open(os.devnull, "w")  # rank 0 prints for all


        setup_distributed()
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
        ''',
    ),
    Example(
        before="""\
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset


        def main():
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


        if __name__ == "__main__":
            main()
        """,
        after='''\
        import atexit
        import os
        import sys

        import torch
        import torch.distributed as dist
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset


        def setup_distributed():
            """Join the process group that torchrun describes; plain `python` runs as a group of one."""
            if "RANK" not in os.environ:
                os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="localhost", MASTER_PORT="0")
            if torch.cuda.is_available():
                torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
            dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
            atexit.register(dist.destroy_process_group)
            if dist.get_rank() != 0:
                sys.stdout = open(os.devnull, "w")  # rank 0 prints for all


        def main():
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


        if __name__ == "__main__":
            setup_distributed()
            main()
        ''',
    ),
    Example(
        before="""\
        import torch


        def main():
            train()


        if __name__ == "__main__":
            main()
        """,
        after=None,
    ),
    Example(
        before="""\
        import torch
        import torch.distributed as dist
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        dist.init_process_group("gloo")
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


@rule("AD101")
def join_process_group(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Join the process group before anything that must happen once, or alike, on all ranks.

    `torchrun` starts one process per device and tells each its rank through the environment. `setup_distributed()`
    makes them a group, picks each one's device, and leaves printing to rank 0. Without `torchrun` the script is a
    group of one, so that `python train.py` still runs. The group is left at exit, however the script ends.
    """
    if not script.trains:
        return
    for use in script.borrowed:
        statement = use.source.statement(use.node)
        if use.name == "horovod.init" and isinstance(statement, ast.Expr):
            code, edits = _definition(script, context, use.source, quiet=script.prints)
            edits = (*edits, *planned(use.source, ReplaceStatement(statement, "setup_distributed()\n")))
            edits = (*edits, *defined(script, use.source, code))
            yield Finding(use.source, use.node, "the ranks find each other with torch.distributed", Fix(edits))
    if script.sometimes_joined is not None and context.config.strategy is not Strategy.DDP:
        yield _always_joined(script.sometimes_joined, context)
    for concern in script.concerns:
        if concern.code == "AD101":
            yield Finding(concern.source, concern.node, concern.message, severity=concern.severity)
    setup = script.setup
    if setup is None or script.distributed:
        return
    code, edits = _definition(script, context, setup.source, quiet=script.silenced is None, again=setup.again)
    if script.silenced is not None:
        edits = (*edits, *_silence(script.silenced, context))
    edits = (
        *edits,
        *defined(script, setup.source, code),
        *planned(setup.source, InsertBefore(setup.before, "setup_distributed()\n", order=-3)),
    )
    yield Finding(setup.source, setup.before, "the ranks have to find each other and their devices", Fix(edits))


def _always_joined(site: Site, context: Context) -> Finding:
    """A group of one where the script would go on without a group."""
    d, imports = dist(context, site.source)
    assert isinstance(site.node, ast.stmt)
    code = (
        f"if not {d}.is_initialized():  # a group of one\n"
        f'    {d}.init_process_group("gloo", store={d}.HashStore(), rank=0, world_size=1)\n'
    )
    fix = Fix((*imports, *planned(site.source, InsertAfter(site.node, code))))
    return Finding(site.source, site.node, "the model is sharded also where the script joins no group here", fix)


def _silence(site: Site, context: Context) -> Planned:
    """Ranks other than 0 silent before an import that prints, by what torchrun says, as there is no group yet."""
    assert isinstance(site.node, ast.stmt)
    os, os_import = _above(site.node, context, site.source, "os")
    sys, sys_import = _above(site.node, context, site.source, "sys")
    code = (
        f'if {os}.environ.get("RANK", "0") != "0":\n'
        f'    {sys}.stdout = open({os}.devnull, "w")  # rank 0 prints for all, from here on\n'
    )
    return (*os_import, *sys_import, *planned(site.source, InsertBefore(site.node, code)))


def _above(statement: ast.stmt, context: Context, source: Source, module: str) -> tuple[str, Planned]:
    """The local name of a module that a statement at the top of the file needs, and the import above it."""
    name, _ = context.imports(source).module(module, module)
    alias = None if name == module else name
    return name, planned(source, AddImport(source.tree, module, None, alias, statement))


def _definition(
    script: TrainingScript, context: Context, source: Source, quiet: bool, again: bool = False
) -> tuple[str, Planned]:
    """The function, and the imports it needs. Where the script itself prints on one rank, nothing is silenced. What
    workers of a loader come to ``again`` makes each of them a group of one."""
    d, dist_import = dist(context, source)
    os, os_import = imported(context, source, "os")
    torch, torch_import = imported(context, source, "torch")
    atexit, atexit_import = imported(context, source, "atexit")
    needed = (*dist_import, *os_import, *torch_import, *atexit_import)
    silence = ""
    lines = []
    if quiet:
        sys, sys_import = imported(context, source, "sys")
        needed = (*needed, *sys_import)
        lines.append(f'{sys}.stdout = open({os}.devnull, "w")  # rank 0 prints for all')
    if script.uses_logging and (quiet or script.silenced is not None):
        logging, logging_import = imported(context, source, "logging")
        needed = (*needed, *logging_import)
        lines.append(f"{logging}.disable()")
    if script.uses_loguru and (quiet or script.silenced is not None):
        logger, loguru_import = member(context, source, "loguru", "logger")
        needed = (*needed, *loguru_import)
        lines.append(f'{logger}.disable("")')
    if lines:
        silence = "".join(f"\n        {line}" for line in lines)
        silence = f"\n    if {d}.get_rank() != 0:{silence}"
    worker = ""
    if again:
        multiprocessing, multiprocessing_import = imported(context, source, "multiprocessing")
        needed = (*needed, *multiprocessing_import)
        # multiprocessing.parent_process() would say so too, but is set after a worker has imported the script
        worker = f"""
    if getattr({multiprocessing}.current_process(), "_inheriting", False):  # a worker imports this: a group of one
        {d}.init_process_group("gloo", store={d}.HashStore(), rank=0, world_size=1)
        return"""
    code = f'''\
def setup_distributed():
    """Join the process group that torchrun describes; plain `python` runs as a group of one."""{worker}
    if "RANK" not in {os}.environ:
        {os}.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="localhost", MASTER_PORT="0")
    if {torch}.cuda.is_available():
        {torch}.cuda.set_device(int({os}.environ["LOCAL_RANK"]))
    {d}.init_process_group("cpu:gloo,cuda:nccl" if {torch}.cuda.is_available() else "gloo")
    {atexit}.register({d}.destroy_process_group){silence}


'''
    return code, needed
