from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.edits import InsertBefore, WrapExpr
from autodist.rule import Context, Example, Finding, Fix, rule
from autodist.script import TrainingScript
from autodist.source import argument

from ._examples import PLAIN
from ._preamble import Planned, defined, dist, divisible, imported, planned

EXAMPLES = [
    Example(
        before="""\
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, IterableDataset


        class Lines(IterableDataset):
            def __iter__(self):
                for line in open("train.csv"):
                    *x, y = (float(cell) for cell in line.split(","))
                    yield torch.tensor(x), torch.tensor([y])


        loader = DataLoader(Lines(), batch_size=8)
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
        from torch.utils.data import DataLoader, IterableDataset


        class RankStream(torch.utils.data.IterableDataset):
            """Every N-th sample of `dataset`, beginning with this rank's."""

            def __init__(self, dataset):
                self.dataset = dataset
                self.rank, self.world_size = dist.get_rank(), dist.get_world_size()  # spawned workers have no group

            def __iter__(self):
                for group in zip(*[iter(self.dataset)] * self.world_size):
                    yield group[self.rank]

            def __len__(self):
                return len(self.dataset) // self.world_size


        class Lines(IterableDataset):
            def __iter__(self):
                for line in open("train.csv"):
                    *x, y = (float(cell) for cell in line.split(","))
                    yield torch.tensor(x), torch.tensor([y])


        assert 8 % dist.get_world_size() == 0, "batch size must be divisible by the number of ranks"
        loader = DataLoader(RankStream(Lines()), batch_size=8 // dist.get_world_size())
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
        before=PLAIN,
        after=None,
    ),
]


SHARE = '''\
class RankStream(torch.utils.data.IterableDataset):
    """Every N-th sample of `dataset`, beginning with this rank's."""

    def __init__(self, dataset):
        self.dataset = dataset
        self.rank, self.world_size = {d}.get_rank(), {d}.get_world_size()  # spawned workers have no group

    def __iter__(self):
        for group in zip(*[iter(self.dataset)] * self.world_size):
            yield group[self.rank]

    def __len__(self):
        return len(self.dataset) // self.world_size


'''


@rule("AD204")
def share_iterable_dataset(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Deal out the samples of a stream.

    An `IterableDataset` has no sampler: every rank would read the whole stream. Each takes every N-th sample; samples
    left over at the end, fewer than there are ranks, are dropped, so that all ranks make the same number of steps.
    """
    if not script.trains:
        return
    for loader in script.loaders:
        call, source = loader.node, loader.source
        dataset = argument(call, "dataset", 0)
        if loader.sharded or not loader.iterable or dataset is None:
            continue
        d, imports = dist(context, source)
        torch, torch_import = imported(context, source, "torch")
        code = SHARE.replace("{d}", d).replace("torch.utils", f"{torch}.utils")
        edits = [WrapExpr(dataset, "RankStream({})")]
        size = argument(call, "batch_size", 1)
        more: Planned = ()
        if size is not None and not (isinstance(size, ast.Constant) and size.value is None):
            check = divisible(source.code(size), d)
            more = planned(source, InsertBefore(source.statement(call), check, prepares=True))
            edits.append(WrapExpr(size, f"{{}} // {d}.get_world_size()"))
        fix = Fix((*imports, *torch_import, *defined(script, source, code), *more, *planned(source, *edits)))
        yield Finding(source, call, "every rank would read the whole stream", fix)
