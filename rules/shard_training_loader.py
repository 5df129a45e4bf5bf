from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.config import BatchSize
from autodist.edits import Edit, Hoist, InsertBefore, RemoveArgument, SetArgument, WrapExpr
from autodist.rule import Context, Example, Finding, Fix, Severity, raised, rule
from autodist.script import Loader, TrainingScript
from autodist.source import Source, argument
from autodist.values import NOTHING, Table, Value, union

from ._examples import PLAIN
from ._orders import generator, order_seed, seeding_later
from ._passes import counting, idle_sampler, is_made_for, ordering
from ._preamble import (
    Planned,
    are_own,
    asks_for,
    bound,
    defined,
    dist,
    divided_options,
    divisible,
    given_sampler,
    imported,
    member,
    negated,
    planned,
    says,
    shuffles_others,
    simple,
)

EXAMPLES = [
    Example(
        before="""\
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        test_set = TensorDataset(torch.randn(16, 4), torch.randn(16, 1))
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        test_loader = DataLoader(test_set, batch_size=8)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            with torch.no_grad():
                error = sum(nn.functional.l1_loss(model(x), y, reduction="sum").item() for x, y in test_loader)
            print(epoch, error / len(test_set))
        """,
        after="""\
        import torch
        import torch.distributed as dist
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset
        from torch.utils.data.distributed import DistributedSampler

        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        test_set = TensorDataset(torch.randn(16, 4), torch.randn(16, 1))
        assert 8 % dist.get_world_size() == 0, "batch size must be divisible by the number of ranks"
        loader = DataLoader(
            train_set,
            batch_size=8 // dist.get_world_size(),
            sampler=DistributedSampler(train_set, seed=torch.initial_seed()),
        )
        test_loader = DataLoader(test_set, batch_size=8)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            with torch.no_grad():
                error = sum(nn.functional.l1_loss(model(x), y, reduction="sum").item() for x, y in test_loader)
            print(epoch, error / len(test_set))
""",
    ),
    Example(
        before="""\
        import argparse

        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        parser = argparse.ArgumentParser()
        parser.add_argument("--batch-size", type=int, default=8)
        parser.add_argument("--shuffle", action="store_true")
        args = parser.parse_args()
        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        loader = DataLoader(
            train_set,
            batch_size=args.batch_size,
            shuffle=args.shuffle,
            drop_last=True,
        )
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
        import argparse

        import torch
        import torch.distributed as dist
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset
        from torch.utils.data.distributed import DistributedSampler

        parser = argparse.ArgumentParser()
        parser.add_argument("--batch-size", type=int, default=8)
        parser.add_argument("--shuffle", action="store_true")
        args = parser.parse_args()
        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        assert args.batch_size % dist.get_world_size() == 0, "batch size must be divisible by the number of ranks"
        loader = DataLoader(
            train_set,
            batch_size=args.batch_size // dist.get_world_size(),
            sampler=DistributedSampler(train_set, shuffle=args.shuffle, drop_last=True, seed=torch.initial_seed()),
            drop_last=True,
        )
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
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
        loader = DataLoader(train_set, batch_size=8, sampler=DistributedSampler(train_set))
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
    Example(
        before=PLAIN.replace(
            "loader = DataLoader(train_set, batch_size=8, shuffle=True)",
            "sampler = None\nloader = DataLoader(train_set, batch_size=8, shuffle=(sampler is None), sampler=sampler)",
        ),
        after="""\
        import torch
        import torch.distributed as dist
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset
        from torch.utils.data.distributed import DistributedSampler

        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        sampler = None
        assert 8 % dist.get_world_size() == 0, "batch size must be divisible by the number of ranks"
        loader = DataLoader(
            train_set,
            batch_size=8 // dist.get_world_size(),
            sampler=DistributedSampler(train_set, seed=torch.initial_seed()),
        )
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
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
        from torch import nn
        from torch.utils.data import DataLoader

        x, y = torch.randn(64, 4), torch.randn(64, 1)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            for rows in DataLoader(range(64), 8, shuffle=True):
                loss = nn.functional.mse_loss(model(x[rows]), y[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        """,
        after="""\
        import itertools

        import torch
        import torch.distributed as dist
        from torch import nn
        from torch.utils.data import DataLoader
        from torch.utils.data.distributed import DistributedSampler

        passes = itertools.count()  # passes so far: loaders made anew are shuffled anew
        x, y = torch.randn(64, 4), torch.randn(64, 1)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            train_set = range(64)
            assert 8 % dist.get_world_size() == 0, "batch size must be divisible by the number of ranks"
            for rows in DataLoader(
                train_set,
                8 // dist.get_world_size(),
                sampler=DistributedSampler(train_set, seed=torch.initial_seed() + next(passes)),
            ):
                loss = nn.functional.mse_loss(model(x[rows]), y[rows])
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
        sampler = DistributedSampler(train_set)
        loader = DataLoader(train_set, batch_size=8, sampler=sampler)
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
    ),
]


RESIZING = '''\
class ResizingSampler({sampler}):
    """Follows a data set whose length changes: DistributedSampler keeps the one that it was made for."""

    def __len__(self):
        now = {sampler}(self.dataset, drop_last=self.drop_last)
        self.num_samples, self.total_size = now.num_samples, now.total_size
        return self.num_samples

    def __iter__(self):
        len(self)  # the length of this pass
        return super().__iter__()


'''
ON_CPU = '''\
class SamplerOnCPU({sampler}):
    """Draws its order on the CPU, wherever tensors are made by default."""

    def __iter__(self):
        with {torch}.device("cpu"):
            return super().__iter__()


'''
SHARING = frozenset("dataset batch_size shuffle sampler batch_sampler drop_last".split())
"""What tells which samples a batch has."""
UNEVEN = "data that do not divide by the number of ranks are filled up with up to N - 1 samples, seen twice"


REASONS = {
    False: "each rank takes its share of every batch",
    True: "all ranks would go over all of the data",
}
UNSEEN = "cannot see which data set this loader reads"
SEEDED_LATER = (
    "the script seeds torch only after this loader is made, so that the order of its samples would not follow that "
    "seed: seed before, or give the sampler its seed"
)


@rule("AD201")
def shard_training_loader(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Give each rank its share of every training batch.

    `DistributedSampler` deals the samples out to the ranks, in an order that all of them agree on, and the batch
    size is divided by the number of ranks: together they see the batches that one process would see, so learning
    rate and schedule stay as they are. Where the data set does not divide by the number of ranks, the sampler
    repeats up to N - 1 samples per epoch, and where the length of the data set changes between epochs, it is asked for
    anew. The order follows the script's seed: that of torch's generator where the loader is made, or that of a
    generator which the loader is given. Where tensors are made on a GPU by default, the order is drawn on the CPU.
    Loaders that the same steps read have a seed each: by one, they would go through their data in one order.
    Loaders that only evaluate are left to AD212. A number of steps that is computed from
    the batch size of a loader, `len(data) // loader.batch_size`, is computed from that of all ranks.
    """
    if not script.trains:
        return
    yield from raised(script, "AD201")
    yield from _reckoned(script, context)
    ordered = 0  # of loaders that are read side by side
    for loader in (each for each in script.loaders if not each.sharded):
        call, source = loader.node, loader.source
        if (unwritten := _unwritten(loader, script)) is not None:
            yield Finding(source, call, unwritten, severity=Severity.REFUSAL)
            continue
        if loader.iterable or argument(call, "batch_sampler") or given_sampler(script, call):
            continue
        dataset = argument(call, "dataset", 0)
        message = _unshareable(loader, script, context)
        if message is not None or dataset is None:
            yield Finding(source, call, message or UNSEEN, severity=Severity.REFUSAL)
            continue
        if (idle := idle_sampler(script, loader)) is not None:
            yield _taken_up(loader, source.code(idle[0]))
            continue
        d, imports = dist(context, source)
        sampler, sampler_import = member(context, source, "torch.utils.data.distributed", "DistributedSampler")
        edits: list[Edit] = []
        name = source.code(dataset)
        if not simple(dataset):
            name = _fresh(script, loader)
            if _reads(source.code(dataset), _bound_inside(source, call)):  # `[DataLoader(Data(k)) for k in range(3)]`
                edits.append(WrapExpr(dataset, f"({name} := {{}})"))
            else:
                edits.append(Hoist(dataset, name, bound(source, name, dataset)))
        shuffle = argument(loader.told, "shuffle", 2)
        options = _options(script, loader)
        if loader.resized:
            sampler_import = (*sampler_import, *defined(script, source, RESIZING.replace("{sampler}", sampler)))
            sampler = "ResizingSampler"
        elif script.default_device and "shuffle=False" not in options:
            torch, torch_import = imported(context, source, "torch")
            code = ON_CPU.format(sampler=sampler, torch=torch)
            sampler_import = (*sampler_import, *torch_import, *defined(script, source, code))
            sampler = "SamplerOnCPU"
        if "shuffle=False" not in options:
            if seeding_later(script, context, loader) is None:
                yield Finding(source, call, SEEDED_LATER, severity=Severity.WARNING)
            seed, needed = _seed(script, context, loader, ordered)
            imports, options = (*imports, *needed), options + seed
            ordered += "next(" not in seed and bool(loader.beside)
        made = f"{sampler}({name}{options})"
        if loader.switch is not None:
            made = f"{made} if {loader.switch} else None"
        if ".pop(" in options:
            variable = _target(script, loader, "sampler")
            edits.append(InsertBefore(source.statement(call), f"{variable} = {made}\n", prepares=True))
            made = variable
        if shuffle is not None:
            named = argument(call, "shuffle", 2) is not None
            unset = SetArgument(call, "shuffle", "False", 2)
            edits.append(_without_shuffle(source, call, shuffle, loader.switch) if named else unset)
        told_to = '.get("shuffle"' in options and loader.switch is not None
        if told_to or shuffle is not None and shuffles_others(source, call, shuffle, loader.switch):
            alike, needed = generator(script, context, source, call)
            imports = (*imports, *needed)
            edits.append(SetArgument(call, "generator", f"None if {loader.switch} else {alike}"))
        edits.append(SetArgument(call, "sampler", made, 3))
        edits += _divided(script, context, loader, d, shuffled='.get("shuffle"' in options)
        fix = Fix((*imports, *sampler_import, *planned(source, *edits)))
        yield Finding(source, call, f"{REASONS[script.distributed]}; {UNEVEN}", fix)


def _reckoned(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """What is computed of a loader's batch size, and means that of all ranks."""
    for site, maybe in script.reckoned:
        d, imports = dist(context, site.source)
        ranks = f"{d}.get_world_size()"
        if maybe is not None:
            sampler, sampler_import = member(context, site.source, "torch.utils.data.distributed", "DistributedSampler")
            ranks = f"({ranks} if isinstance({site.source.code(maybe)}.sampler, {sampler}) else 1)"
            imports = (*imports, *sampler_import)
        fix = Fix((*imports, *planned(site.source, WrapExpr(site.node, f"{{}} * {ranks}"))))
        yield Finding(site.source, site.node, "is a rank's share of the batch, and all of it is meant", fix)


def _unshareable(loader: Loader, script: TrainingScript, context: Context) -> str | None:
    """Why batches of one sample are not shared out."""
    call, source, size = loader.node, loader.source, argument(loader.told, "batch_size", 1)
    unsized = size is None and not any(keyword.arg is None for keyword in call.keywords)
    unsized = unsized or isinstance(size, ast.Name) and _is_one(size, source, script)
    unsized = unsized or isinstance(size, ast.Constant) and size.value == 1 and not script.distributed
    if unsized and context.config.batch_size is BatchSize.GLOBAL:
        return "batches of one sample cannot be shared out: give a batch size, or use --batch-size per-rank"
    return None


def _options(script: TrainingScript, loader: Loader) -> str:
    """Whether the sampler shuffles, and leaves out what divides no further, as the loader is told to."""
    source, call, told = loader.source, loader.node, loader.told
    options = ""
    unpacked = next((k for k in call.keywords if k.arg is None), None)
    table = _table(script, unpacked)
    shuffle = argument(told, "shuffle", 2)
    if shuffle is None and unpacked is not None and (table is None or "shuffle" in table):
        asked = "pop" if are_own(source, unpacked) else "get"
        options += f', shuffle={source.code(unpacked.value)}.{asked}("shuffle", False)'
    elif shuffle is None or isinstance(shuffle, ast.Constant) and not shuffle.value:
        options += ", shuffle=False"
    elif isinstance(shuffle, ast.Compare) and asks_for(argument(call, "sampler", 3), shuffle):
        pass  # `shuffle=(sampler is None)`, which it is
    elif not isinstance(shuffle, ast.Constant) and not says(shuffle, loader.switch or "None"):
        options += f", shuffle={source.code(shuffle)}"
    drop = argument(told, "drop_last", 8)
    if drop is not None and not (isinstance(drop, ast.Constant) and not drop.value):
        options += f", drop_last={source.code(drop)}"
    elif drop is None and unpacked is not None:
        options += _dropping(source.code(unpacked.value), table)
    return options


def _seed(script: TrainingScript, context: Context, loader: Loader, ordered: int) -> tuple[str, Planned]:
    """The seed of the order, with what it needs; ``ordered`` counts the loaders that are read side by side."""
    seed, needed = order_seed(script, context, loader.source, loader.node)
    more, count = "", Planned()
    if any(is_made_for(epoch, loader, script) for epoch in loader.epochs):
        passes, count = counting(script, context, loader.source)
        more = f"next({passes})"
    elif loader.node in loader.beside:
        orders, count = ordering(script, context, loader.source)
        more = f"next({orders})"
    elif loader.beside:
        more = str(ordered)
    terms = [each for each in (seed, more) if each not in ("", "0")]
    later = seeding_later(script, context, loader) or ()
    return f", seed={' + '.join(terms)}" if terms else "", (*needed, *later, *count)


def _taken_up(loader: Loader, sampler: str) -> Finding:
    """The sampler that the script has made for the data of a loader, given to it."""
    call, source = loader.node, loader.source
    edits: list[Edit] = [SetArgument(call, "sampler", sampler, 3)]
    shuffle = argument(call, "shuffle", 2)
    if shuffle is not None:
        edits.insert(0, _without_shuffle(source, call, shuffle, loader.switch))
    message = f"all ranks go over all of the data: {sampler} shares it out, and is given to no loader"
    return Finding(source, call, message, Fix(planned(source, *edits)))


def _unwritten(loader: Loader, script: TrainingScript) -> str | None:
    """Why what `partial` tells a loader cannot be told anew in the call that makes it, if it cannot."""
    if not loader.presets:
        return None
    call, source, preset = loader.node, loader.source, loader.presets[0]
    own = {keyword.arg for keyword in call.keywords}
    asked = [each for each in preset.keywords if each.arg in SHARING and each.arg not in own]
    written = len(loader.presets) == 1 and len(preset.args) < 2 and all(each.arg for each in preset.keywords)
    shared = loader.iterable or argument(loader.told, "batch_sampler") or given_sampler(script, loader.told)
    home = source.function(preset) if preset in source.parents else call
    seen = home is None or home is source.function(call)
    fits = all(isinstance(each.value, ast.Constant) or seen and simple(each.value) for each in asked)
    if written and fits and loader.switch is None and not (shared and asked):
        return None
    return f"is made of what partial() was given in line {preset.lineno}: write the call of the loader out"


def _without_shuffle(source: Source, call: ast.Call, shuffle: ast.expr, switch: str | None) -> Edit:
    """A sampler excludes `shuffle=True`; a shared call keeps it for the loaders that have no sampler."""
    if not shuffles_others(source, call, shuffle, switch):
        return RemoveArgument(call, "shuffle", 2)
    code, others = source.code(shuffle), negated(switch)
    return SetArgument(call, "shuffle", others if isinstance(shuffle, ast.Constant) else f"{others} and {code}", 2)


def _dropping(options: str, table: dict[object, Value] | None) -> str:
    """The remainder is left out of `DataLoader(data, **options)`, or may be."""
    told = table.get("drop_last", NOTHING) if table is not None else None
    unsaid = told is NOTHING or told is not None and told.const is False
    return "" if unsaid else f', drop_last={options}.get("drop_last", False)'


def _table(script: TrainingScript, unpacked: ast.keyword | None) -> dict[object, Value] | None:
    """The keys of `**kwargs`, if all are known."""
    if unpacked is None:
        return None
    things = script.values.get(unpacked.value, NOTHING).things
    tables = [t for t in things if isinstance(t, Table) and t.element is NOTHING]
    if not tables or len(tables) < len(things):
        return None
    keys = {key for table in tables for key in table.entries}  # `{"num_workers": 1} if args.cuda else {}`
    return {key: union(table.entries.get(key, NOTHING) for table in tables) for key in keys}


def _fresh(script: TrainingScript, loader: Loader) -> str:
    """A name for the data set of a loader: `train_loader` reads `train_set`."""
    names = {n.id for n in ast.walk(loader.source.tree) if isinstance(n, ast.Name)}
    base = _target(script, loader, "set")
    while base in names:
        base += "_"
    return base


def _target(script: TrainingScript, loader: Loader, suffix: str) -> str:
    """A name next to that of the loader which a call makes; a number tells several of one statement apart."""
    statement = loader.source.statement(loader.node)
    beside = [each for each in script.loaders if each.source.statement(each.node) is statement]
    alike = [each.node for each in beside if _stem(loader.source, each.node) == _stem(loader.source, loader.node)]
    number = sorted(alike, key=lambda each: (each.lineno, each.col_offset)).index(loader.node)
    name = f"{_stem(loader.source, loader.node)}_{suffix}"
    if suffix == "set" and name.endswith("_set_set"):  # `training_set = DataLoader(...)`
        name = f"{name.removesuffix('_set_set')}_data"
    return f"{name}_{number + 1}" if number else name


def _stem(source: Source, call: ast.Call) -> str:
    """What a loader is called, without the word for loaders: `train` of `train_loader = DataLoader(...)`."""
    match source.parents.get(call):
        case ast.Assign(targets=[ast.Attribute(attr=name) | ast.Name(id=name), *_]) | ast.keyword(arg=str(name)):
            pass
        case ast.Dict(keys=keys, values=values):
            key = keys[values.index(call)]
            told = key.value if isinstance(key, ast.Constant) else None
            name = told if isinstance(told, str) and told.isidentifier() else "train"
        case _:
            name = "train"
    for ending in ("_loader", "loader", "_dataloader", "_dl"):
        name = name.removesuffix(ending)
    return name or "train"


def _divided(script: TrainingScript, context: Context, loader: Loader, d: str, shuffled: bool = False) -> list[Edit]:
    """The batch size, shared out; a remainder stops the script, since it would train on other batches."""
    if context.config.batch_size is BatchSize.PER_RANK or script.distributed:  # it is per rank already
        return []
    call, source = loader.node, loader.source
    statement = source.statement(call)
    size = argument(loader.told, "batch_size", 1)
    if size is None:
        unpacked = next((k for k in call.keywords if k.arg is None), None)
        if unpacked is None:
            return []
        return divided_options(source, statement, unpacked, d, shuffled, loader.switch)
    code = source.code(size)
    edits: list[Edit] = []
    if simple(size) or _is_computed(size):
        inside = any(
            isinstance(a, (ast.comprehension, ast.DictComp, ast.ListComp, ast.Lambda)) for a in source.ancestors(call)
        )
        inner = _bound_inside(source, call)
        if (
            not (inside or inner)
            or isinstance(size, (ast.Constant, ast.Name, ast.Attribute))
            and not _reads(code, inner)
        ):
            varies = (
                _varies(source, call, size, loader) or loader.switch is not None and not simple(size)
            ) and not _reads(loader.switch or "", inner)
            whole = code if simple(size) or isinstance(size, ast.Call) else f"({code})"
            check = divisible(whole, d, unless=negated(loader.switch) if varies else None)
            edits.append(InsertBefore(statement, check, prepares=True))
    if argument(call, "batch_size", 1) is None:  # `partial` was given it
        return [*edits, SetArgument(call, "batch_size", f"{code} // {d}.get_world_size()", 1)]
    template = f"{{}} // {d}.get_world_size()"
    if loader.switch is not None:
        template = f"{{}} // {d}.get_world_size() if {loader.switch} else {code}"
    edits.append(WrapExpr(size, template))
    return edits


def _is_computed(size: ast.expr) -> bool:
    """`args.batch_size * len(gpus)`, which may be computed twice."""
    if isinstance(size, ast.BinOp):
        return all(simple(each) or _is_computed(each) for each in (size.left, size.right))
    named = (
        isinstance(size, ast.Call) and isinstance(size.func, ast.Name) and size.func.id in ("int", "len", "max", "min")
    )
    return named and isinstance(size, ast.Call) and not size.keywords and all(map(simple, size.args))


def _bound_inside(source: Source, call: ast.Call) -> set[str]:
    """The names that the comprehensions and lambdas around a call bind: there are none of them before its statement."""
    bound: set[str] = set()
    for around in source.ancestors(call):
        if isinstance(around, ast.stmt):
            break
        if isinstance(around, ast.Lambda):
            bound |= {each.arg for each in ast.walk(around.args) if isinstance(each, ast.arg)}
        for part in getattr(around, "generators", ()):
            bound |= {each.id for each in ast.walk(part.target) if isinstance(each, ast.Name)}
    return bound


def _reads(code: str, names: set[str]) -> bool:
    """Whether an expression reads one of some names."""
    return any(isinstance(n, ast.Name) and n.id in names for n in ast.walk(ast.parse(code)))


def _varies(source: Source, call: ast.Call, size: ast.expr, loader: Loader) -> bool:
    """Whether a loader that does not train, made by the same call, may have batches of another size."""
    if loader.switch is None or not isinstance(size, ast.Name):
        return False
    function = source.function(call)
    if function is None:
        return False
    bound = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return size.id in bound | {argument.arg for argument in ast.walk(function) if isinstance(argument, ast.arg)}


def _is_one(name: ast.Name, source: Source, script: TrainingScript) -> bool:
    """Whether a variable that only literals are bound to is 1 here."""
    if any(isinstance(node, ast.arg) and node.arg == name.id for node in ast.walk(source.tree)):
        return False
    bound = [node for node in ast.walk(source.tree) if isinstance(node, ast.Name) and node.id == name.id]
    stores = [source.parents[node] for node in bound if isinstance(node.ctx, ast.Store)]
    literal = all(isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) for node in stores)
    return bool(stores) and literal and script.program.at(name).constant == 1
