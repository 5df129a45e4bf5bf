from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.config import BatchSize
from autodist.edits import Edit, InsertBefore, WrapExpr
from autodist.rule import Context, Example, Finding, Fix, Severity, rule
from autodist.script import TrainingScript

from ._preamble import Planned, argument, defined, dist, divided_options, divisible, given_sampler, imported, planned

EXAMPLES = [
    Example(
        before="""\
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        sampler = WeightedRandomSampler(torch.rand(64), num_samples=64)
        loader = DataLoader(train_set, batch_size=8, sampler=sampler)
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
        import itertools

        import torch
        import torch.distributed as dist
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler


        class RankShare(torch.utils.data.Sampler):
            """This rank's share of the indices that `sampler` draws, the same on every rank."""

            def __init__(self, sampler):
                self.sampler = sampler

            def __iter__(self):
                stop = len(self) * dist.get_world_size()
                return itertools.islice(self.sampler, dist.get_rank(), stop, dist.get_world_size())

            def __len__(self):
                return len(self.sampler) // dist.get_world_size()


        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        sampler = WeightedRandomSampler(torch.rand(64), num_samples=64)
        assert 8 % dist.get_world_size() == 0, "the batch must divide by the number of ranks"
        loader = DataLoader(train_set, batch_size=8 // dist.get_world_size(), sampler=RankShare(sampler))
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
        from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        batches = BatchSampler(RandomSampler(train_set), batch_size=8, drop_last=True)
        loader = DataLoader(train_set, batch_sampler=batches)
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
        import torch
        import torch.distributed as dist
        from torch import nn
        from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset


        class RankBatches(torch.utils.data.Sampler):
            """This rank's share of each batch that `sampler` draws, the same on every rank."""

            def __init__(self, sampler):
                self.sampler = sampler

            def __iter__(self):
                for batch in self.sampler:
                    yield batch[dist.get_rank() :: dist.get_world_size()]

            def __len__(self):
                return len(self.sampler)


        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        batches = BatchSampler(RandomSampler(train_set), batch_size=8, drop_last=True)
        loader = DataLoader(train_set, batch_sampler=RankBatches(batches))
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


SHARE = '''\
class RankShare(torch.utils.data.Sampler):
    """This rank's share of the indices that `sampler` draws, the same on every rank."""

    def __init__(self, sampler):
        self.sampler = sampler

    def __iter__(self):
        stop = len(self) * {d}.get_world_size()
        return {itertools}.islice(self.sampler, {d}.get_rank(), stop, {d}.get_world_size())

    def __len__(self):
        return len(self.sampler) // {d}.get_world_size()


'''

BATCHES = '''\
class RankBatches(torch.utils.data.Sampler):
    """This rank's share of each batch that `sampler` draws, the same on every rank."""

    def __init__(self, sampler):
        self.sampler = sampler

    def __iter__(self):
        for batch in self.sampler:
            yield batch[{d}.get_rank() :: {d}.get_world_size()]

    def __len__(self):
        return len(self.sampler)


'''


@rule("AD203")
def share_own_sampler(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Keep the script's own sampler, and give each rank its share of what it draws.

    `DistributedSampler` would replace a `WeightedRandomSampler` or an own sampler, and with it the distribution of
    the samples. All ranks draw the same stream instead, from the same seed, and each takes every N-th index (of a
    batch sampler: every N-th of each batch).
    """
    for concern in script.concerns:
        if concern.code == "AD203":
            yield Finding(concern.source, concern.node, concern.message, severity=concern.severity)
    if not script.trains:
        return
    for loader in script.loaders:
        call, source = loader.node, loader.source
        sampler, batches = given_sampler(script, call), argument(call, "batch_sampler")
        given = batches or sampler
        if loader.sharded or loader.iterable or given is None or isinstance(given, ast.Constant):
            continue
        statement = source.statement(call)
        size = argument(call, "batch_size", 1)
        unpacked = next((keyword for keyword in call.keywords if keyword.arg is None), None)
        divides = not batches and context.config.batch_size is BatchSize.GLOBAL and not script.distributed
        if divides and size is None and unpacked is None:
            message = "batches of one sample cannot be shared out: give a batch size, or use --batch-size per-rank"
            yield Finding(source, call, message, severity=Severity.REFUSAL)
            continue
        d, imports = dist(context, source)
        torch, torch_import = imported(context, source, "torch")
        itertools, itertools_import = imported(context, source, "itertools")
        code = (BATCHES if batches else SHARE).replace("{d}", d).replace("{itertools}", itertools)
        code = code.replace("torch.utils", f"{torch}.utils")
        edits: list[Edit] = [WrapExpr(given, ("RankBatches" if batches else "RankShare") + "({})")]
        more: Planned = (*imports, *torch_import, *(() if batches else itertools_import))
        if divides and size is not None:
            more = (*more, *planned(source, InsertBefore(statement, divisible(source.code(size), d))))
            edits.append(WrapExpr(size, f"{{}} // {d}.get_world_size()"))
        elif divides and unpacked is not None:
            edits += divided_options(source, statement, unpacked, d)
        fix = Fix((*more, *defined(script, source, code), *planned(source, *edits)))
        yield Finding(source, call, "every rank draws the same samples and takes its share of them", fix)
