from __future__ import annotations

from collections.abc import Iterator

from autodist.rule import Context, Example, Finding, Fix, rule
from autodist.script import TrainingScript

from ._borrowed import departures
from ._examples import PLAIN

EXAMPLES = [
    Example(
        before="""\
        import horovod.torch as hvd
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset
        from torch.utils.data.distributed import DistributedSampler

        hvd.init()
        torch.manual_seed(0)
        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        sampler = DistributedSampler(train_set, num_replicas=hvd.size(), rank=hvd.rank())
        loader = DataLoader(train_set, batch_size=8, sampler=sampler)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * hvd.size())
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)

        for epoch in range(2):
            sampler.set_epoch(epoch)
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            if hvd.rank() == 0:
                print(epoch)
        """,
        after="""\
        import horovod.torch as hvd
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset
        from torch.utils.data.distributed import DistributedSampler

        hvd.init()
        torch.manual_seed(0)
        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        sampler = DistributedSampler(train_set, num_replicas=hvd.size(), rank=hvd.rank())
        loader = DataLoader(train_set, batch_size=8, sampler=sampler)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * hvd.size())

        for epoch in range(2):
            sampler.set_epoch(epoch)
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            if hvd.rank() == 0:
                print(epoch)
        """,
    ),
    Example(
        before="""\
        import torch
        import torch.distributed as dist
        from fairscale.optim import OSS
        from torch import nn
        from torch.nn.parallel import DistributedDataParallel as DDP
        from torch.utils.data import DataLoader, TensorDataset
        from torch.utils.data.distributed import DistributedSampler

        dist.init_process_group("gloo")
        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        sampler = DistributedSampler(train_set)
        loader = DataLoader(train_set, batch_size=8, sampler=sampler)
        model = DDP(nn.Linear(4, 1))
        optimizer = OSS(params=model.parameters(), optim=torch.optim.SGD, lr=0.1)

        for epoch in range(2):
            sampler.set_epoch(epoch)
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x), y)
                model.zero_grad()
                loss.backward()
                optimizer.step()
            optimizer.consolidate_state_dict()
        """,
        after="""\
        import torch
        import torch.distributed as dist
        from fairscale.optim import OSS
        from torch import nn
        from torch.nn.parallel import DistributedDataParallel as DDP
        from torch.utils.data import DataLoader, TensorDataset
        from torch.utils.data.distributed import DistributedSampler

        dist.init_process_group("gloo")
        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        sampler = DistributedSampler(train_set)
        loader = DataLoader(train_set, batch_size=8, sampler=sampler)
        model = DDP(nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            sampler.set_epoch(epoch)
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x), y)
                model.zero_grad()
                loss.backward()
                optimizer.step()
        """,
    ),
    Example(
        before=PLAIN,
        after=None,
    ),
]


@rule("AD405")
def leave_other_library(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Do without the wrappers and optimizers of Horovod, FairScale and FSDP1.

    DistributedDataParallel averages gradients in backward and sends rank 0's weights to all when it wraps a model, so
    optimizers need no wrapper, and a broadcast of parameters or optimizer state is needless; where rank 0 alone loaded
    them, every rank loads. Parameters, gradients and optimizer state are whole on every rank: what gathered them goes,
    and clipping is torch's own.
    """
    for each in departures(script, context, "AD405"):
        yield Finding(each.source, each.node, each.message, Fix(each.edits) if each.edits else None, each.severity)
