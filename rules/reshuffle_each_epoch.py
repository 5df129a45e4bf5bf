from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.edits import InsertBefore
from autodist.rule import Context, Example, Finding, Fix, Severity, rule
from autodist.script import Epoch, Loader, TrainingScript
from autodist.source import all_of, argument, walk
from autodist.values import NOTHING, Object

from ._examples import PLAIN
from ._passes import counting, idle_sampler, is_made_for
from ._preamble import Planned, given_sampler, may_be_none, member, planned

EXAMPLES = [
    Example(
        before=PLAIN,
        after=PLAIN.replace(
            "    for x, y in loader:\n", "    loader.sampler.set_epoch(epoch)\n    for x, y in loader:\n"
        ),
    ),
    Example(
        before="""\
        import torch
        import torch.distributed as dist
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset
        from torch.utils.data.distributed import DistributedSampler

        dist.init_process_group("gloo")
        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        test_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        sampler = DistributedSampler(test_set)
        test_loader = DataLoader(test_set, batch_size=8, sampler=sampler)
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.parallel.DistributedDataParallel(nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            sampler.set_epoch(epoch)
            for x, y in loader:
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
        from torch.utils.data.distributed import DistributedSampler

        dist.init_process_group("gloo")
        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        test_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        sampler = DistributedSampler(test_set)
        test_loader = DataLoader(test_set, batch_size=8, sampler=sampler)
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.parallel.DistributedDataParallel(nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            sampler.set_epoch(epoch)
            loader.sampler.set_epoch(epoch)
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        """,
    ),
    Example(
        before="""\
        import torch
        import torch.distributed as dist
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset
        from torch.utils.data.distributed import DistributedSampler

        dist.init_process_group("gloo")
        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        sampler = DistributedSampler(train_set)
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
        after="""\
        import torch
        import torch.distributed as dist
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset
        from torch.utils.data.distributed import DistributedSampler

        dist.init_process_group("gloo")
        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        sampler = DistributedSampler(train_set)
        loader = DataLoader(train_set, batch_size=8, sampler=sampler)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            loader.sampler.set_epoch(epoch)
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        """,
    ),
    Example(
        before="""\
        import torch
        import torch.distributed as dist
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset
        from torch.utils.data.distributed import DistributedSampler

        dist.init_process_group("gloo")
        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        sampler = DistributedSampler(train_set)
        loader = DataLoader(train_set, batch_size=8, sampler=sampler)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            sampler.set_epoch(epoch)
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        """,
        after=None,
    ),
]


SAMPLERS = frozenset(["sampler", "distributed_sampler"])


@rule("AD202")
def reshuffle_each_epoch(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Tell the sampler which epoch it is.

    `DistributedSampler` derives its order from its seed and the epoch that `set_epoch` names. Without the call every
    epoch repeats the order of the first. A loader that is made anew in each round of a loop (clients of federated
    learning, stages of a curriculum) brings a new sampler, whose epochs start again: passes are counted over all of
    them.
    """
    if not script.trains:
        return
    told: set[tuple[ast.stmt, str]] = set()
    for loader in script.loaders:
        if not _has_distributed_sampler(loader, script):
            continue
        for epoch in loader.epochs:
            if _is_told(loader, epoch, script):
                continue
            if not loader.sharded and is_made_for(epoch, loader, script):
                continue  # its sampler is seeded anew
            if epoch.loader is None:
                message = (
                    "the sampler cannot be told here which epoch it is, so that every pass repeats the order of the "
                    "first: give the loader a name, and call its sampler's set_epoch() before each pass"
                )
                yield Finding(epoch.source, epoch.statement, message, severity=Severity.WARNING)
                continue
            sampler = f"{epoch.loader}.sampler"
            number = epoch.number or f"{sampler}.epoch + 1"
            code = f"{sampler}.set_epoch({number})\n"
            imports: Planned = ()
            if epoch.anew:
                passes, imports = counting(script, context, epoch.source)
                code = f"{sampler}.set_epoch(next({passes}))\n"
            passing = _passing(script, epoch)
            if _may_shuffle_otherwise(loader, script) or _are_others(passing, script):
                name, more = member(context, epoch.source, "torch.utils.data.distributed", "DistributedSampler")
                imports = (*imports, *more)
                asked = f'getattr({epoch.loader}, "sampler", None)' if _may_lack_sampler(passing) else sampler
                code = f"if isinstance({asked}, {name}):\n    {code}"
            if (epoch.statement, code) in told:
                continue  # one of several loaders passes here
            told.add((epoch.statement, code))
            fix = Fix((*imports, *planned(epoch.source, InsertBefore(epoch.statement, code))))
            yield Finding(epoch.source, epoch.statement, "each epoch has its own order of samples", fix)


def _has_distributed_sampler(loader: Loader, script: TrainingScript) -> bool:
    """Whether the loader has such a sampler, or is about to be given one."""
    if loader.sharded or loader.iterable:
        return loader.reshuffles
    shuffle = argument(loader.told, "shuffle", 2)
    if (shuffle is None or isinstance(shuffle, ast.Constant) and not shuffle.value) and not any(
        keyword.arg is None for keyword in loader.node.keywords
    ):
        return False
    return not _has_its_own(loader, script)


def _has_its_own(loader: Loader, script: TrainingScript) -> bool:
    """Whether the loader is given a sampler by the script, which knows of no epochs."""
    if loader.sharded or loader.iterable:
        return False
    given = given_sampler(script, loader.node)
    own = given is not None and (loader.switch is not None or not may_be_none(given, loader.node, loader.source))
    return own or argument(loader.node, "batch_sampler") is not None


def _is_told(loader: Loader, epoch: Epoch, script: TrainingScript) -> bool:
    """Whether the script tells a loader's sampler which epoch it is, or one of which it is not known whose it is."""
    idle = None if loader.sharded else idle_sampler(script, loader)
    for source in script.project.sources if loader.sharded else [epoch.source]:
        if "set_epoch" not in source.text:  # asked for every loop: the tree is walked only where the name occurs
            continue
        for call in all_of(source.tree, ast.Attribute):
            if call.attr != "set_epoch" or _is_no_sampler(call.value, script):
                continue
            told = [*script.values.get(call.value, NOTHING).objects("distributed_sampler")]
            if loader.sharded or not told or idle is not None and idle[1] in told:
                return True
    return False


def _is_no_sampler(told: ast.expr, script: TrainingScript) -> bool:
    """Whether a data set, or another object of the script's own, is told the epoch: `data.set_epoch(epoch)`"""
    roles = [getattr(each, "roles", SAMPLERS) for each in script.program.at(told).things]
    return bool(roles) and all(map(SAMPLERS.isdisjoint, roles))


def _may_shuffle_otherwise(loader: Loader, script: TrainingScript) -> bool:
    """`DistributedSampler(data) if distributed else RandomSampler(data)`, or else None"""
    given = given_sampler(script, loader.node)
    if given is not None and (not loader.sharded or may_be_none(given, loader.node, loader.source)):
        return True
    sampler = loader.object.argument("sampler", 3) if loader.sharded else None
    return sampler is not None and any(
        isinstance(thing, Object) and "distributed_sampler" not in thing.roles for thing in sampler.things
    )


def _passing(script: TrainingScript, epoch: Epoch) -> list[Object]:
    """What may be passed over here, of all that the script makes."""
    source = epoch.source
    home = source.home(epoch.statement)
    for place in (epoch.statement, home):  # the loop may be over `bar = tqdm(loader)`
        said = (n for n in walk(place) if isinstance(n, (ast.Name, ast.Attribute, ast.Subscript)))
        values = [script.values[n] for n in said if source.code(n) == epoch.loader and n in script.values]
        if values:
            return [thing for value in values for thing in value.things if isinstance(thing, Object)]
    return []


def _are_others(passing: list[Object], script: TrainingScript) -> bool:
    """Whether other loaders pass here too, which evaluate or are given samplers of the script's own, or something
    else that the script passes over."""
    ours = frozenset(key for loader in script.loaders if not _has_its_own(loader, script) for key in loader.keys)
    loaders = [thing for thing in passing if "loader" in thing.roles]
    return _may_lack_sampler(passing) or any(thing.key not in ours for thing in loaders)


def _may_lack_sampler(passing: list[Object]) -> bool:
    """Whether an object of a class of the script's own passes here, which is no loader: it may hold one."""
    return any(thing.cls is not None and "loader" not in thing.roles for thing in passing)
