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
        import torch
        import torch.distributed as dist
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset
        from torch.utils.data.distributed import DistributedSampler

        hvd.init()
        torch.manual_seed(0)
        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        sampler = DistributedSampler(train_set, num_replicas=dist.get_world_size(), rank=dist.get_rank())
        loader = DataLoader(train_set, batch_size=8, sampler=sampler)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * dist.get_world_size())
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)

        for epoch in range(2):
            sampler.set_epoch(epoch)
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            if dist.get_rank() == 0:
                print(epoch)
        """,
    ),
    Example(
        before=PLAIN,
        after=None,
    ),
]


@rule("AD104")
def speak_torch_distributed(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Say in torch.distributed what a script says to Horovod or FairScale.

    Ranks, sizes and collectives have the same meaning there under other names; the catalogue lists them. What nothing
    needs any more is no longer imported. A batch size that is per rank stays per rank, and a learning rate that is
    scaled by the number of ranks stays scaled.
    """
    for each in departures(script, context, "AD104"):
        yield Finding(each.source, each.node, each.message, Fix(each.edits) if each.edits else None, each.severity)
