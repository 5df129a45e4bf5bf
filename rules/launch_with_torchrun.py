from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.edits import (
    Edit,
    InsertAfter,
    InsertBefore,
    Prepend,
    Recompose,
    RemoveArgument,
    RemoveStatement,
    ReplaceExpr,
    SetArgument,
)
from autodist.rule import Context, Example, Finding, Fix, Severity, rule
from autodist.script import Launcher, LauncherOption, Site, TrainingScript
from autodist.source import Source, argument, walk

from ._departed import without_imports
from ._launcher import read_launcher
from ._preamble import imported, planned

EXAMPLES = [
    Example(
        before="""\
        import os

        import torch
        import torch.distributed as dist
        import torch.multiprocessing as mp
        from torch import nn
        from torch.nn.parallel import DistributedDataParallel as DDP
        from torch.utils.data import DataLoader, TensorDataset
        from torch.utils.data.distributed import DistributedSampler


        def worker(rank, world_size):
            os.environ["MASTER_ADDR"] = "localhost"
            os.environ["MASTER_PORT"] = "29500"
            dist.init_process_group("nccl", rank=rank, world_size=world_size)
            torch.cuda.set_device(rank)
            train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
            sampler = DistributedSampler(train_set, num_replicas=world_size, rank=rank)
            loader = DataLoader(train_set, batch_size=8, sampler=sampler)
            model = DDP(nn.Linear(4, 1).to(rank), device_ids=[rank])
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for epoch in range(2):
                sampler.set_epoch(epoch)
                for x, y in loader:
                    loss = nn.functional.mse_loss(model(x.to(rank)), y.to(rank))
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()


        if __name__ == "__main__":
            world_size = torch.cuda.device_count()
            mp.spawn(worker, args=(world_size,), nprocs=world_size)
        """,
        after='''\
        import os
        import re

        import torch
        import torch.distributed as dist
        from torch import nn
        from torch.nn.parallel import DistributedDataParallel as DDP
        from torch.utils.data import DataLoader, TensorDataset
        from torch.utils.data.distributed import DistributedSampler


        def read_launcher():
            """Set RANK and so on as torchrun does, from what srun or mpirun says; plain `python` is a group of one."""
            env = os.environ
            if "RANK" in env:
                env.setdefault("LOCAL_RANK", "0")
                return
            if "OMPI_COMM_WORLD_RANK" in env:  # Open MPI
                names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")
                rank, size, local_rank, local_size = (env[f"OMPI_COMM_WORLD_{name}"] for name in names)
            elif "MPI_LOCALRANKID" in env or "PMI_RANK" in env and "SLURM_PROCID" not in env:  # MPICH, Intel MPI
                rank, size = env["PMI_RANK"], env["PMI_SIZE"]
                local_rank, local_size = env.get("MPI_LOCALRANKID", rank), env.get("MPI_LOCALNRANKS", "1")
            elif "SLURM_PROCID" in env and ("SLURM_STEP_ID" in env or env.get("ENVIRONMENT") != "BATCH"):  # srun
                rank, size, local_rank = env["SLURM_PROCID"], env["SLURM_NTASKS"], env["SLURM_LOCALID"]
                local_size = re.split(r"\\D", env.get("SLURM_TASKS_PER_NODE", size))[0]  # of "4(x2)" the 4
            elif "PMIX_RANK" in env:
                raise SystemExit("PMIX_RANK is set, the number of ranks is not: start with torchrun, srun or mpirun")
            else:
                rank, size, local_rank, local_size = "0", "1", "0", "1"
            env.update(RANK=rank, WORLD_SIZE=size, LOCAL_RANK=local_rank, LOCAL_WORLD_SIZE=local_size)
            if size == "1":
                env.update(MASTER_ADDR="localhost", MASTER_PORT="0")
                return
            hosts = env.get("SLURM_STEP_NODELIST", env.get("SLURM_JOB_NODELIST", ""))  # "node[03-04,07],gpu1"
            first_host = "localhost" if size == local_size else re.sub(r"\\[(\\d+).*|,.*", r"\\1", hosts)
            if not env.setdefault("MASTER_ADDR", first_host):
                raise SystemExit(f"{size} ranks on several hosts have to meet: set MASTER_ADDR to the host of rank 0")
            job, step = int(env.get("SLURM_JOB_ID", 950)), int(env.get("SLURM_STEP_ID", 0))
            env.setdefault("MASTER_PORT", str(20000 + (10 * job + step) % 10000))  # 29500 outside of Slurm


        def worker(rank, world_size):
            local_rank = int(os.environ["LOCAL_RANK"])
            dist.init_process_group("nccl")
            torch.cuda.set_device(local_rank)
            train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
            sampler = DistributedSampler(train_set, num_replicas=world_size, rank=rank)
            loader = DataLoader(train_set, batch_size=8, sampler=sampler)
            model = DDP(nn.Linear(4, 1).to(local_rank), device_ids=[local_rank])
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for epoch in range(2):
                sampler.set_epoch(epoch)
                for x, y in loader:
                    loss = nn.functional.mse_loss(model(x.to(local_rank)), y.to(local_rank))
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()


        if __name__ == "__main__":
            read_launcher()
            world_size = int(os.environ["WORLD_SIZE"])
            worker(int(os.environ["RANK"]), world_size)
        ''',
    ),
    Example(
        before="""\
        import argparse

        import torch
        import torch.distributed as dist
        from torch import nn
        from torch.nn.parallel import DistributedDataParallel as DDP
        from torch.utils.data import DataLoader, TensorDataset
        from torch.utils.data.distributed import DistributedSampler

        parser = argparse.ArgumentParser()
        parser.add_argument("--local_rank", type=int, default=0)
        args = parser.parse_args()

        torch.cuda.set_device(args.local_rank)
        dist.init_process_group("nccl", init_method="env://")
        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        sampler = DistributedSampler(train_set)
        loader = DataLoader(train_set, batch_size=8, sampler=sampler)
        model = DDP(nn.Linear(4, 1).cuda(), device_ids=[args.local_rank])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            sampler.set_epoch(epoch)
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x.cuda()), y.cuda())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        """,
        after='''\
        import argparse
        import os
        import re

        import torch
        import torch.distributed as dist
        from torch import nn
        from torch.nn.parallel import DistributedDataParallel as DDP
        from torch.utils.data import DataLoader, TensorDataset
        from torch.utils.data.distributed import DistributedSampler


        def read_launcher():
            """Set RANK and so on as torchrun does, from what srun or mpirun says; plain `python` is a group of one."""
            env = os.environ
            if "RANK" in env:
                env.setdefault("LOCAL_RANK", "0")
                return
            if "OMPI_COMM_WORLD_RANK" in env:  # Open MPI
                names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")
                rank, size, local_rank, local_size = (env[f"OMPI_COMM_WORLD_{name}"] for name in names)
            elif "MPI_LOCALRANKID" in env or "PMI_RANK" in env and "SLURM_PROCID" not in env:  # MPICH, Intel MPI
                rank, size = env["PMI_RANK"], env["PMI_SIZE"]
                local_rank, local_size = env.get("MPI_LOCALRANKID", rank), env.get("MPI_LOCALNRANKS", "1")
            elif "SLURM_PROCID" in env and ("SLURM_STEP_ID" in env or env.get("ENVIRONMENT") != "BATCH"):  # srun
                rank, size, local_rank = env["SLURM_PROCID"], env["SLURM_NTASKS"], env["SLURM_LOCALID"]
                local_size = re.split(r"\\D", env.get("SLURM_TASKS_PER_NODE", size))[0]  # of "4(x2)" the 4
            elif "PMIX_RANK" in env:
                raise SystemExit("PMIX_RANK is set, the number of ranks is not: start with torchrun, srun or mpirun")
            else:
                rank, size, local_rank, local_size = "0", "1", "0", "1"
            env.update(RANK=rank, WORLD_SIZE=size, LOCAL_RANK=local_rank, LOCAL_WORLD_SIZE=local_size)
            if size == "1":
                env.update(MASTER_ADDR="localhost", MASTER_PORT="0")
                return
            hosts = env.get("SLURM_STEP_NODELIST", env.get("SLURM_JOB_NODELIST", ""))  # "node[03-04,07],gpu1"
            first_host = "localhost" if size == local_size else re.sub(r"\\[(\\d+).*|,.*", r"\\1", hosts)
            if not env.setdefault("MASTER_ADDR", first_host):
                raise SystemExit(f"{size} ranks on several hosts have to meet: set MASTER_ADDR to the host of rank 0")
            job, step = int(env.get("SLURM_JOB_ID", 950)), int(env.get("SLURM_STEP_ID", 0))
            env.setdefault("MASTER_PORT", str(20000 + (10 * job + step) % 10000))  # 29500 outside of Slurm


        read_launcher()
        parser = argparse.ArgumentParser()
        args = parser.parse_args()
        args.local_rank = int(os.environ["LOCAL_RANK"])

        torch.cuda.set_device(args.local_rank)
        dist.init_process_group("nccl")
        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        sampler = DistributedSampler(train_set)
        loader = DataLoader(train_set, batch_size=8, sampler=sampler)
        model = DDP(nn.Linear(4, 1).cuda(), device_ids=[args.local_rank])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            sampler.set_epoch(epoch)
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x.cuda()), y.cuda())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        ''',
    ),
    Example(
        before="""\
        import os

        import torch
        import torch.distributed as dist
        from torch import nn
        from torch.nn.parallel import DistributedDataParallel as DDP
        from torch.utils.data import DataLoader, TensorDataset
        from torch.utils.data.distributed import DistributedSampler

        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl")
        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        sampler = DistributedSampler(train_set)
        loader = DataLoader(train_set, batch_size=8, sampler=sampler)
        model = DDP(nn.Linear(4, 1).cuda())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            sampler.set_epoch(epoch)
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x.cuda()), y.cuda())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        """,
        after=None,
    ),
]

RENDEZVOUS = (("init_method", 1), ("world_size", 3), ("rank", 4))


@rule("AD103")
def launch_with_torchrun(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Leave starting the processes to torchrun, and let it tell each one its rank.

    `mp.spawn` starts processes on one node only, at a fixed address; `torch.distributed.launch` is gone, and with it
    the option `--local_rank`. `torchrun` starts a process on each device of any number of nodes, restarts them, and
    tells them who they are through the environment: `RANK`, `LOCAL_RANK` and `WORLD_SIZE`. The function that was
    started is called instead. A number that meant a rank and a device alike becomes two: they differ as soon as
    there are several nodes.
    """
    launcher = script.launcher
    if launcher is None or not script.trains:
        return
    for option in launcher.options:
        yield _without_option(option, launcher, script, context)
    for option in launcher.sizes:
        yield _counted(option, context)
    for site in launcher.spawns:
        yield _called(site, launcher, context)
    for sites, variable in ((launcher.world_sizes, "WORLD_SIZE"), (launcher.ranks, "RANK")):
        for site in sites:
            assert isinstance(site.node, ast.expr)
            name, imports = imported(context, site.source, "os")
            edit = ReplaceExpr(site.node, f'int({name}.environ["{variable}"])')
            fix = Fix((*imports, *planned(site.source, edit)))
            yield Finding(site.source, site.node, f"torchrun says it in {variable}", fix)
    for site in launcher.devices:
        yield from _on_its_device(site, launcher, context)
    for site in launcher.addresses:
        fix = Fix(planned(site.source, RemoveStatement(site.statement)))
        yield Finding(site.source, site.node, "torchrun sets this, for any number of nodes", fix)
    for site in launcher.joins:
        assert isinstance(site.node, ast.Call)
        given = [(name, at) for name, at in RENDEZVOUS if argument(site.node, name, at) is not None]
        if given:
            fix = Fix(planned(site.source, *(RemoveArgument(site.node, name, at) for name, at in given)))
            yield Finding(site.source, site.node, "the group is the one that torchrun describes", fix)
    yield from _alone(script, launcher, context)


def _without_option(option: LauncherOption, launcher: Launcher, script: TrainingScript, context: Context) -> Finding:
    source = option.source
    name, imports = imported(context, source, "os")
    value = f'int({name}.environ["LOCAL_RANK"])'
    if _optional(option):
        assert option.default is not None
        value = f'int({name}.environ.get("LOCAL_RANK", {source.code(option.default)}))'
    edits: tuple[Edit, ...]
    if option.parsed is None:  # its result has no name here
        call = option.statement.value
        assert isinstance(call, ast.Call)
        value = f'int({name}.environ.get("LOCAL_RANK", {source.code(option.default) if option.default else 0}))'
        edits = (ReplaceExpr(option.default, value),) if option.default else (SetArgument(call, "default", value),)
    else:
        target = source.code(option.parsed.targets[0])
        line = f"{target}.{option.destination} = {value}\n"
        edits = (RemoveStatement(option.statement), InsertAfter(option.parsed, line))
    message = "torchrun passes no such option, it sets LOCAL_RANK"
    return Finding(source, option.statement, message, Fix((*imports, *planned(source, *edits))))


def _counted(option: LauncherOption, context: Context) -> Finding:
    source = option.source
    if option.parsed is None:
        message = "how many processes there are comes from this option: take it from WORLD_SIZE instead"
        return Finding(source, option.statement, message, severity=Severity.REFUSAL)
    name, imports = imported(context, source, "os")
    line = f'{source.code(option.parsed.targets[0])}.{option.destination} = int({name}.environ["WORLD_SIZE"])\n'
    edits = planned(source, RemoveStatement(option.statement), InsertAfter(option.parsed, line))
    return Finding(source, option.statement, "torchrun says it in WORLD_SIZE", Fix((*imports, *edits)))


def _optional(option: LauncherOption) -> bool:
    """A default of -1 means a run without any group."""
    return isinstance(option.default, ast.UnaryOp)


def _called(site: Site, launcher: Launcher, context: Context) -> Finding:
    """`mp.spawn(worker, args=(a, b))` becomes `worker(rank, a, b)`."""
    source, call = site.source, site.node
    assert isinstance(call, ast.Call)
    function, given = argument(call, "fn", 0), argument(call, "args", 1)
    join = argument(call, "join", 3)
    kept = isinstance(join, ast.Constant) and not join.value
    if function is None or kept or not isinstance(source.statement(call), ast.Expr):
        message = "starts processes and goes on: call the function itself here, and start the script with torchrun"
        return Finding(source, call, message, severity=Severity.REFUSAL)
    name, imports = imported(context, source, "os")
    number = f'int({name}.environ["{"RANK" if launcher.numbered_globally else "LOCAL_RANK"}"])'
    rest = list(given.elts) if isinstance(given, ast.Tuple) else []
    parts = (function, *rest) if given is None or isinstance(given, ast.Tuple) else (function, given)
    holes = [f"{{{index}}}" for index in range(1, len(parts))]
    if given is not None and not isinstance(given, ast.Tuple):
        holes = ["*{1}"]
    edits = [Recompose(call, f"{{0}}({', '.join([number, *holes])})", parts), *without_imports(source, [call], parts)]
    return Finding(source, call, "torchrun starts the processes", Fix((*imports, *planned(source, *edits))))


def _on_its_device(site: Site, launcher: Launcher, context: Context) -> Iterator[Finding]:
    source, node = site.source, site.node
    assert isinstance(node, ast.expr)
    name, imports = imported(context, source, "os")
    function = next((a for a in source.ancestors(node) if _is_function(a)), None)
    others = [
        s
        for s in launcher.devices
        if s.source is source and function is not None and function in source.ancestors(s.node)
    ]
    taken = {n.id for n in walk(source.tree) if isinstance(n, ast.Name)}
    value = f'int({name}.environ["LOCAL_RANK"])'
    if function is None or "local_rank" in taken or len(others) < 2:
        fix = Fix((*imports, *planned(source, ReplaceExpr(node, value))))
    else:
        edits = Prepend(function, f"local_rank = {value}\n"), ReplaceExpr(node, "local_rank")
        fix = Fix((*imports, *planned(source, *edits)))
    yield Finding(source, node, "a device is counted on its node, a rank over all of them", fix)


def _alone(script: TrainingScript, launcher: Launcher, context: Context) -> Iterator[Finding]:
    """The environment of a group of one, before anything asks for it."""
    if launcher.options and all(_optional(option) for option in launcher.options):
        return
    entry = script.project.entry
    where = _start(entry, launcher)
    called = planned(entry, InsertBefore(where, "read_launcher()\n", order=-4))
    message = "started by srun or mpirun the ranks are numbered by those; by nothing the script is a group of one"
    yield Finding(entry, where, message, Fix((*read_launcher(script, context, entry), *called)))


def _start(entry: Source, launcher: Launcher) -> ast.stmt:
    """The first statement that runs, or the body of the main guard where all that asks for a rank is called there."""
    body = entry.tree.body
    guard = next((s for s in body if isinstance(s, ast.If) and _is_main_guard(s.test)), None)
    asked = [site.node for site in (*launcher.world_sizes, *launcher.ranks, *launcher.spawns) if site.source is entry]
    asked += [each.statement for each in (*launcher.options, *launcher.sizes) if each.source is entry]
    outside = [node for node in asked if not any(_runs_later(a) for a in entry.ancestors(node))]
    if guard is not None and all(guard in entry.ancestors(node) for node in outside):
        return guard.body[0]
    return next((s for s in body if not _is_preface(s)), body[-1])


def _is_function(node: ast.AST) -> bool:
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))


def _runs_later(node: ast.AST) -> bool:
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))


def _is_main_guard(test: ast.expr) -> bool:
    return isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__"


def _is_preface(statement: ast.stmt) -> bool:
    if isinstance(statement, (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return True
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
