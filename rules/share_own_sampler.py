from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

from autodist.config import BatchSize
from autodist.edits import Edit, InsertBefore, RemoveArgument, ReplaceExpr, SetArgument, WrapExpr
from autodist.rule import Context, Example, Finding, Fix, Severity, raised, rule
from autodist.script import Loader, TrainingScript
from autodist.source import Source, argument, walk
from autodist.values import NOTHING, Object

from ._examples import PLAIN
from ._orders import generator
from ._passes import counting
from ._preamble import (
    Planned,
    asks_for,
    bound,
    defined,
    dist,
    divided_options,
    divisible,
    given_sampler,
    imported,
    may_be_none,
    member,
    negated,
    planned,
    shuffles_others,
    simple,
)

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
        import torch
        import torch.distributed as dist
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler


        class RankShare(torch.utils.data.Sampler):
            """This rank's share of what `sampler` draws, identically on all ranks; the last index may repeat."""

            def __init__(self, sampler):
                self.sampler = sampler

            def __iter__(self):
                for number, index in enumerate(self.sampler):
                    if number % dist.get_world_size() == dist.get_rank():
                        yield index
                if number % dist.get_world_size() < dist.get_rank():
                    yield index

            def __len__(self):
                return -(-len(self.sampler) // dist.get_world_size())


        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        sampler = WeightedRandomSampler(
            torch.rand(64),
            num_samples=64,
            generator=torch.Generator().manual_seed(torch.initial_seed()),
        )
        assert 8 % dist.get_world_size() == 0, "batch size must be divisible by the number of ranks"
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
        from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        sampler = WeightedRandomSampler(torch.rand(64), num_samples=60)
        loader = DataLoader(train_set, 8, sampler=sampler, drop_last=True)
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
        from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler


        class EvenRankShare(torch.utils.data.Sampler):
            """This rank's share of what `sampler` draws, identically on all ranks; a remainder is dropped."""

            def __init__(self, sampler):
                self.sampler = sampler

            def __iter__(self):
                group = []
                for index in self.sampler:
                    group.append(index)
                    if len(group) == dist.get_world_size():
                        yield group[dist.get_rank()]
                        group = []

            def __len__(self):
                return len(self.sampler) // dist.get_world_size()


        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        sampler = WeightedRandomSampler(
            torch.rand(64),
            num_samples=60,
            generator=torch.Generator().manual_seed(torch.initial_seed()),
        )
        assert 8 % dist.get_world_size() == 0, "batch size must be divisible by the number of ranks"
        loader = DataLoader(train_set, 8 // dist.get_world_size(), sampler=EvenRankShare(sampler), drop_last=True)
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
            """This rank's share of each batch that `sampler` draws, alike on all ranks; the first index may repeat."""

            def __init__(self, sampler):
                self.sampler = sampler

            def __iter__(self):
                for batch in self.sampler:
                    filled = list(batch) + list(batch)[:1] * (-len(batch) % dist.get_world_size())
                    yield filled[dist.get_rank() :: dist.get_world_size()]

            def __len__(self):
                return len(self.sampler)


        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        batches = BatchSampler(RandomSampler(
            train_set,
            generator=torch.Generator().manual_seed(torch.initial_seed()),
        ), batch_size=8, drop_last=True)
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
        before=PLAIN,
        after=None,
    ),
]


SHARE = '''\
class RankShare(torch.utils.data.Sampler):
    """This rank's share of what `sampler` draws, identically on all ranks; the last index may repeat."""

    def __init__(self, sampler):
        self.sampler = sampler

    def __iter__(self):
        for number, index in enumerate(self.sampler):
            if number % {d}.get_world_size() == {d}.get_rank():
                yield index
        if number % {d}.get_world_size() < {d}.get_rank():
            yield index

    def __len__(self):
        return -(-len(self.sampler) // {d}.get_world_size())


'''

EVEN_SHARE = '''\
class EvenRankShare(torch.utils.data.Sampler):
    """This rank's share of what `sampler` draws, identically on all ranks; a remainder is dropped."""

    def __init__(self, sampler):
        self.sampler = sampler

    def __iter__(self):
        group = []
        for index in self.sampler:
            group.append(index)
            if len(group) == {d}.get_world_size():
                yield group[{d}.get_rank()]
                group = []

    def __len__(self):
        return len(self.sampler) // {d}.get_world_size()


'''

BATCHES = '''\
class RankBatches(torch.utils.data.Sampler):
    """This rank's share of each batch that `sampler` draws, alike on all ranks; the first index may repeat."""

    def __init__(self, sampler):
        self.sampler = sampler

    def __iter__(self):
        for batch in self.sampler:
            filled = list(batch) + list(batch)[:1] * (-len(batch) % {d}.get_world_size())
            yield filled[{d}.get_rank() :: {d}.get_world_size()]

    def __len__(self):
        return len(self.sampler)


'''


CLASSES = {"RankShare": SHARE, "EvenRankShare": EVEN_SHARE, "RankBatches": BATCHES}


@rule("AD203")
def share_own_sampler(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Keep the script's own sampler, and give each rank its share of what it draws.

    `DistributedSampler` would replace a `WeightedRandomSampler` or an own sampler, and with it the distribution of
    the samples. All ranks draw the same stream instead, from a generator that nothing else draws from and that has the
    script's seed, and each takes every N-th index (of a batch sampler: every N-th of each batch).
    """
    yield from raised(script, "AD203")
    if not script.trains:
        return
    ordered = 0  # of samplers of loaders that are read side by side
    shared = _made_by_one_call(script)
    for loader in script.loaders:
        call, source = loader.node, loader.source
        sampler, batches = given_sampler(script, call), _batches(script, call)
        given = batches or sampler
        if loader.sharded or loader.iterable or given is None or isinstance(given, ast.Constant):
            continue
        statement = source.statement(call)
        size = argument(call, "batch_size", 1)
        unpacked = next((keyword for keyword in call.keywords if keyword.arg is None), None)
        divides = not batches and context.config.batch_size is BatchSize.GLOBAL and not script.distributed
        if divides and (size is None and unpacked is None or _is_none(size)):
            message = "batches of one sample cannot be shared out: give a batch size, or use --batch-size per-rank"
            yield Finding(source, call, message, severity=Severity.REFUSAL)
            continue
        d, imports = dist(context, source)
        torch, torch_import = imported(context, source, "torch")
        name, code = _shares(loader, script, batches is not None)
        more: Planned = (*imports, *torch_import)
        if _is_asked(script):
            code = code.rstrip("\n") + HAND_ON
        code = code.replace("{d}", d)
        code = code.replace("torch.utils", f"{torch}.utils")
        edits: list[Edit] = [WrapExpr(given, name + "({})")]
        shuffle = argument(call, "shuffle", 2)
        if loader.switch is not None:
            if not isinstance(given, ast.Name):
                message = "the same call makes loaders that do not train: give it the sampler by a variable"
                yield Finding(source, call, message, severity=Severity.REFUSAL)
                continue
            edits = [WrapExpr(given, f"{name}({{}}) if {loader.switch} else {given.id}")]
            if shuffle is not None and shuffles_others(source, call, shuffle, loader.switch):
                alike, needed = generator(script, context, source, call)
                more = (*more, *needed)
                edits.append(SetArgument(call, "generator", f"None if {loader.switch} else {alike}"))
        elif not batches and unpacked is None and may_be_none(given, call, source):
            edits, needed = _either(context, source, call, given, name)
            more = (*more, *needed)
        if divides and size is not None:
            assertion = divisible(source.code(size), d, unless=negated(loader.switch) if loader.switch else None)
            more = (*more, *planned(source, InsertBefore(statement, assertion, prepares=True)))
            unless = f" if {loader.switch} else {source.code(size)}" if loader.switch else ""
            edits.append(WrapExpr(size, f"{{}} // {d}.get_world_size(){unless}"))
        elif divides and unpacked is not None:
            edits += divided_options(source, statement, unpacked, d)
        if loader.drawn_apart and loader.endless:
            generators = " and ".join(sorted(loader.drawn_apart))
            message = (
                f"the sampler draws from {generators}, as samples and steps do, each rank as much as its own samples "
                "ask for: ranks would draw different orders; give it a generator of its own"
            )
            yield Finding(source, call, message, severity=Severity.WARNING)
        for drawn in loader.unseeded_samplers:
            assert isinstance(drawn.node, ast.Call)
            number = str(ordered)
            if drawn.node in loader.remade_samplers or drawn.node in shared:
                passes, needed = counting(script, context, drawn.source)
                number, more = f"next({passes})", (*more, *needed)
            alike, needed = generator(script, context, drawn.source, drawn.node, number)
            more = (*more, *needed, *planned(drawn.source, SetArgument(drawn.node, "generator", alike)))
        ordered += bool(loader.beside and loader.unseeded_samplers)
        fix = Fix((*more, *defined(script, source, code), *planned(source, *edits)))
        yield Finding(source, call, "every rank draws the same samples and takes its share of them", fix)


def _made_by_one_call(script: TrainingScript) -> set[ast.AST]:
    """The calls that make the samplers of several loaders, of which others are read side by side: each call has a seed
    of its own."""
    asked = Counter(drawn.node for loader in script.loaders for drawn in loader.unseeded_samplers)
    beside = {drawn.node for loader in script.loaders if loader.beside for drawn in loader.unseeded_samplers}
    return {node for node in beside if asked[node] > 1}


def _batches(script: TrainingScript, call: ast.Call) -> ast.expr | None:
    """What draws whole batches: `batch_sampler=batches`, or `batch_size=None, sampler=batches`."""
    told, sampler = argument(call, "batch_sampler"), given_sampler(script, call)
    if told is not None or sampler is None or not _is_none(argument(call, "batch_size", 1)):
        return told
    things = [thing for thing in script.values.get(sampler, NOTHING).things if isinstance(thing, Object)]
    known = all("batch_sampler" in each.roles or each.name.endswith("BatchSampler") for each in things)
    return sampler if things and known else None


def _is_none(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _shares(loader: Loader, script: TrainingScript, batches: bool) -> tuple[str, str]:
    """The class that takes a rank's share of what a loader's sampler draws, by a name of its own in its file."""
    name = "RankBatches" if batches else _class(loader)
    code = CLASSES[name]
    if not loader.drawn_apart or loader.endless:
        return name, code
    plain = {
        _class(each)
        for each in script.loaders
        if each.source is loader.source and not (each.drawn_apart and not each.endless)
    }
    own = f"{name}OfRankZero" if name in plain else name
    return own, _drawn_once(code).replace(f"class {name}(", f"class {own}(")


def _class(loader: Loader) -> str:
    unpacked = next((keyword for keyword in loader.node.keywords if keyword.arg is None), None)
    if argument(loader.node, "batch_sampler"):
        return "RankBatches"
    return "EvenRankShare" if _may_drop(argument(loader.node, "drop_last"), unpacked) else "RankShare"


def _drawn_once(code: str) -> str:
    """The class with an order that rank 0 draws for all."""
    listed = "list(map(list, self.sampler))" if code == BATCHES else "list(self.sampler)"
    drawing = f"        drawn = [{listed}]\n        {{d}}.broadcast_object_list(drawn)\n"
    head, start, rest = code.partition("    def __iter__(self):\n")
    head = head.replace("`sampler` draws, identically on all ranks;", "`sampler` draws on rank 0;")
    return head + start + drawing + rest.replace("self.sampler", "drawn[0]", 1)


HAND_ON = """

    def __getattr__(self, name):
        return getattr(self.sampler, name)


"""
KNOWN = ("set_epoch", "epoch", "sampler")


def _is_asked(script: TrainingScript) -> bool:
    """Whether the script asks a loader's sampler for what is its own: `len(loader.sampler.indices)`."""
    return any(
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Attribute)
        and node.value.attr in ("sampler", "batch_sampler")
        and node.attr not in KNOWN
        for source in script.project.sources
        if "sampler." in source.text
        for node in walk(source.tree)
    )


def _either(context: Context, source: Source, call: ast.Call, given: ast.expr, name: str) -> tuple[list[Edit], Planned]:
    """A loader whose sampler may be None takes its share of that, or of the data."""
    distributed, needed = member(context, source, "torch.utils.data.distributed", "DistributedSampler")
    dataset, shuffle = argument(call, "dataset", 0), argument(call, "shuffle", 2)
    edits: list[Edit] = []
    if dataset is not None and not simple(dataset):
        needed = (
            *needed,
            *planned(source, InsertBefore(source.statement(call), bound(source, "train_set", dataset), prepares=True)),
        )
        edits.append(ReplaceExpr(dataset, "train_set"))
    data = "train_set" if edits or dataset is None else source.code(dataset)
    options = ", shuffle=False" if shuffle is None else f", shuffle={source.code(shuffle)}"
    if isinstance(shuffle, ast.Compare) and asks_for(given, shuffle):
        options = ""
    drop = argument(call, "drop_last", 8)
    options += f", drop_last={source.code(drop)}" if drop is not None else ""
    made = f"{distributed}({data}{options})"
    if shuffle is not None:
        edits.append(RemoveArgument(call, "shuffle", 2))
    if isinstance(given, ast.IfExp) and isinstance(given.orelse, ast.Constant):
        edits += [WrapExpr(given.body, name + "({})"), ReplaceExpr(given.orelse, made)]
    else:
        code = source.code(given) if simple(given) else f"({source.code(given)})"
        edits.append(WrapExpr(given, f"{made} if {code} is None else {name}({{}})"))
    return edits, needed


def _may_drop(drop_last: ast.expr | None, unpacked: ast.keyword | None) -> bool:
    """Whether a loader leaves out a short last batch: then it must not be filled up."""
    if drop_last is None:
        return unpacked is not None and "drop_last" in ast.unparse(unpacked.value)
    return not (isinstance(drop_last, ast.Constant) and drop_last.value is False)
