from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.edits import AddImport, InsertAfter, InsertBefore, ReplaceStatement
from autodist.rule import Context, Example, Finding, Fix, Strategy, raised, rule
from autodist.script import Site, TrainingScript
from autodist.source import Source

from ._examples import PLAIN
from ._launcher import read_launcher
from ._preamble import Planned, defined, dist, imported, member, planned

EXAMPLES = [
    Example(
        before=PLAIN,
        after='''\
        import atexit
        import os
        import re
        import sys
        import time

        import torch
        import torch.distributed as dist
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset


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


        def setup_distributed():
            """Join the process group of torchrun, srun or mpirun; plain `python` runs as a group of one."""
            read_launcher()
            dist.init_process_group("gloo")
            atexit.register(dist.destroy_process_group)
            atexit.register(time.sleep, 0.1)  # runs first: gloo's threads still hold the last tensors
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
        import re
        import sys
        import time

        import torch
        import torch.distributed as dist
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset


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


        def setup_distributed():
            """Join the process group of torchrun, srun or mpirun; plain `python` runs as a group of one."""
            read_launcher()
            dist.init_process_group("gloo")
            atexit.register(dist.destroy_process_group)
            atexit.register(time.sleep, 0.1)  # runs first: gloo's threads still hold the last tensors
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

    `torchrun` starts one process per device and tells each its rank through the environment; `srun` and `mpirun` do so
    in words of their own, which `read_launcher()` knows. `setup_distributed()` makes the processes a group, picks each
    one's device, and leaves printing to rank 0. Started by nothing the script is a group of one, so that
    `python train.py` still runs. The group is left at exit, however the script ends, a moment after the last
    collective: gloo's threads abort where they let go of what it held while Python itself ends, and leaving the group
    does not wait for them (pytorch/pytorch#190489).
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
    for site in script.ends_at_once:
        yield _awaited(site, context)
    if script.sometimes_joined is not None and context.config.strategy is not Strategy.DDP:
        yield _always_joined(script.sometimes_joined, context)
    yield from raised(script, "AD101")
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


def _awaited(site: Site, context: Context) -> Finding:
    """A moment for gloo's threads at the end of a script that joins and leaves the group itself."""
    assert isinstance(site.node, ast.stmt)
    atexit, atexit_import = imported(context, site.source, "atexit")
    time, time_import = imported(context, site.source, "time")
    code = f"{atexit}.register({time}.sleep, 0.1)  # gloo's threads still hold the last tensors\n"
    fix = Fix((*atexit_import, *time_import, *planned(site.source, InsertAfter(site.node, code))))
    message = "a run on CPUs may abort after its end, where gloo's threads let go of the last tensors too late"
    return Finding(site.source, site.node, message, fix, beside=True)


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
    """Ranks other than 0 silent before an import that prints, by what its launcher says, as there is no group yet."""
    assert isinstance(site.node, ast.stmt)
    os, os_import = _above(site.node, context, site.source, "os")
    sys, sys_import = _above(site.node, context, site.source, "sys")
    ranks = '("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")'
    code = (
        f'if any({os}.environ.get(name, "0") != "0" for name in {ranks}):\n'
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
    time, time_import = imported(context, source, "time")
    needed = (*dist_import, *atexit_import, *time_import, *read_launcher(script, context, source))
    if script.names_device:
        needed = (*needed, *torch_import)
    silence = ""
    lines = []
    if quiet:
        sys, sys_import = imported(context, source, "sys")
        needed = (*needed, *os_import, *sys_import)
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
    if getattr({multiprocessing}.current_process(), "_inheriting", False):  # a DataLoader worker: a group of one
        {d}.init_process_group("gloo", store={d}.HashStore(), rank=0, world_size=1)
        return"""
    joined = f'    {d}.init_process_group("gloo")'
    described = "Join the process group of torchrun, srun or mpirun; plain `python` runs as a group of one."
    if script.names_device:
        joined = f"""\
    device = None
    if {torch}.cuda.is_available():
        device = {torch}.device("cuda", int({os}.environ["LOCAL_RANK"]) % {torch}.cuda.device_count())
        {torch}.cuda.set_device(device)
    {d}.init_process_group("cpu:gloo,cuda:nccl" if device else "gloo", device_id=device)"""
    code = f'''\
def setup_distributed():
    """{described}"""{worker}
    read_launcher()
{joined}
    {atexit}.register({d}.destroy_process_group)
    {atexit}.register({time}.sleep, 0.1)  # runs first: gloo's threads still hold the last tensors{silence}


'''
    return code, needed
