from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.config import Evaluation
from autodist.edits import Edit, InsertAfter, InsertBefore, WrapExpr
from autodist.rule import Context, Example, Finding, Fix, raised, rule
from autodist.script import SharedEvaluation, TrainingScript
from autodist.source import Source, argument

from ._collectives import FROM_ALL_RANKS, OVER_RANKS, OWN_SHARE, SAME_BUFFERS, TENSORS_FROM_ALL_RANKS
from ._orders import drawn_alike
from ._preamble import Planned, defined, dist, imported, member, planned

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
test_set = TensorDataset(torch.randn(30, 4), torch.randn(30, 1))
train_loader = DataLoader(train_set, batch_size=8, shuffle=True)
test_loader = DataLoader(test_set, batch_size=8, num_workers=2)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for epoch in range(2):
    for x, y in train_loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    total, guesses = 0.0, []
    with torch.no_grad():
        for x, y in test_loader:
            out = model(x)
            total += nn.functional.mse_loss(out, y).item()
            guesses += out.flatten().tolist()
    print(epoch, total / len(test_loader), guesses)
"""

EXAMPLES = [
    Example(
        before=SCRIPT,
        after='''\
        import torch
        import torch.distributed as dist
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset


        def own_share(loader):
            """A loader of this rank's share of another one's batches: the same batches, share behind share."""
            rank, ranks = dist.get_rank(), dist.get_world_size()
            first, last = (-(-len(loader) * each // ranks) for each in (rank, rank + 1))
            return DataLoader(
                loader.dataset,
                batch_sampler=list(loader.batch_sampler)[first:last],
                num_workers=loader.num_workers,
            )


        def from_all_ranks(values):
            """What each rank has, in the order of the ranks."""
            parts = [None] * dist.get_world_size()
            dist.all_gather_object(parts, values)
            return parts


        def sum_over_ranks(*values):
            """The sums over all ranks of numbers, tensors and arrays."""
            return [sum(others, first) for first, *others in zip(*from_all_ranks(values))]


        def join_over_ranks(*lists):
            """The lists of all ranks as one, in the order of the data, of which each rank has evaluated its share."""
            return [[value for own in owns for value in own] for owns in zip(*from_all_ranks(lists))]


        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        test_set = TensorDataset(torch.randn(30, 4), torch.randn(30, 1))
        train_loader = DataLoader(train_set, batch_size=8, shuffle=True)
        test_loader = DataLoader(test_set, batch_size=8, num_workers=2)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            for x, y in train_loader:
                loss = nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            total, guesses = 0.0, []
            with torch.no_grad():
                for x, y in own_share(test_loader):
                    out = model(x)
                    total += nn.functional.mse_loss(out, y).item()
                    guesses += out.flatten().tolist()
                (total,) = sum_over_ranks(total)
                (guesses,) = join_over_ranks(guesses)
            print(epoch, total / len(test_loader), guesses)
        ''',
        options={"evaluation": Evaluation.SHARED},
    ),
    Example(before=SCRIPT, after=None),
]

CARRIED = ("num_workers", "collate_fn", "pin_memory", "worker_init_fn", "prefetch_factor", "multiprocessing_context")
"""What a loader in the place of another one is told as well, where any is."""
WIDEST = 90
"""Characters of a line that is written into a script, beside its indentation."""
JOINING = {"sum": "sum_over_ranks", "max": "max_over_ranks", "min": "min_over_ranks", "list": "join_over_ranks"}


@rule("AD212")
def share_evaluation(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Evaluate whole batches of its own on each rank, where that is exact and worth it.

    Each rank goes through its share of the batches, in the order of the data or of the sampler: every batch holds the
    samples that it holds in one process, no sample is read twice, and ranks may have different numbers of batches, or
    none. Behind the loop sums are added up over the ranks, those in attributes of objects, too, and lists are joined,
    so that all that follows is as it was. The loop calls the model inside its wrapper, which would have ranks wait for
    each other. A loop that leaves something else, prints, draws or ends early stays as it is, and a note says by what.
    It is asked for: by `--evaluation auto` where it is worth it, from 10,000 samples or where samples are read from
    files, and by `--evaluation shared` wherever it is exact.
    """
    if not script.trains:
        return
    yield from raised(script, "AD212")
    for each in script.evaluations:
        share, needed = _share(script, context, each)
        edits: list[Edit] = [WrapExpr(each.over, f"{share}({{}})")]
        if each.unequal:
            d, more = dist(context, each.source)
            needed = (*needed, *more, *defined(script, each.source, SAME_BUFFERS.replace("{d}", d)))
            calls = "".join(f"same_buffers({code})\n" for code in each.unequal)
            edits.append(InsertBefore(each.source.statement(each.listing or each.loop), calls))
        lines, helpers = _joined(script, context, each)
        if each.listing is not None:
            added = isinstance(each.listing, ast.GeneratorExp)
            whole = each.source.parents[each.listing] if added else each.listing
            edits.append(WrapExpr(whole, f"{JOINING['sum' if added else 'list']}({{}})[0]"))
        elif lines:
            edits.append(InsertAfter(each.loop, "".join(f"{line}\n" for line in lines)))
        orders = (
            edit
            for _, order in drawn_alike(script, context, [loader.node for loader in each.loaders])
            for edit in order
        )
        fix = Fix((*needed, *helpers, *orders, *planned(each.source, *edits)))
        yield Finding(each.source, each.listing or each.loop, "every rank would evaluate all of the data", fix)


def _share(script: TrainingScript, context: Context, evaluation: SharedEvaluation) -> tuple[str, Planned]:
    """The function that makes a rank's loader, one for all loops of a file."""
    source = evaluation.source
    calls = [loader.node for each in script.evaluations if each.source is source for loader in each.loaders]
    unpacked = any(keyword.arg is None for call in calls for keyword in call.keywords)
    told = [
        name for name in CARRIED if unpacked or any(argument(call, name, _place(name)) is not None for call in calls)
    ]
    options = "".join(f"\n        {name}=loader.{name}," for name in told)
    d, imports = dist(context, source)
    loader, more = member(context, source, "torch.utils.data", "DataLoader")
    code = OWN_SHARE.replace("{d}", d).replace("{loader}", loader).replace("{options}", options)
    return "own_share", (*imports, *more, *defined(script, source, code))


def _place(name: str) -> int | None:
    return {"num_workers": 5, "collate_fn": 6, "pin_memory": 7}.get(name)


def _joined(script: TrainingScript, context: Context, evaluation: SharedEvaluation) -> tuple[list[str], Planned]:
    """The lines that make global what a loop has left, and the functions that they call."""
    source, lines = evaluation.source, list[str]()
    for joined, function in JOINING.items():
        names = [each.code for each in evaluation.left if each.joined == joined]
        lines += [_unpacked(names, function)] if names else []
    for each in evaluation.left:
        if each.joined == "sums":
            lines.append(f"{each.code} = sum_over_ranks(*{each.code})")
        elif each.joined == "table":
            lines.append(f"add_over_ranks({each.code})")
        elif each.joined == "anew":
            lines.append(f"{each.code} = {each.value}")
    if evaluation.listing is not None:
        lines.append(f"{JOINING['sum' if isinstance(evaluation.listing, ast.GeneratorExp) else 'list']}(")
    if not lines:
        return [], ()
    d, needed = dist(context, source)
    code, more = FROM_ALL_RANKS, tuple[tuple[Source, Edit], ...]()
    if script.names_device and any(_holds_tensors(each) for each in script.evaluations if each.source is source):
        torch, more = imported(context, source, "torch")
        code = TENSORS_FROM_ALL_RANKS.replace("{torch}", torch)
    code = code.replace("{d}", d)
    functions = [code, *(text for name, text in OVER_RANKS.items() if any(f"{name}(" in line for line in lines))]
    return lines, (*needed, *more, *(edit for each in functions for edit in defined(script, source, each)))


def _holds_tensors(evaluation: SharedEvaluation) -> bool:
    """Whether what a loop has left may be on GPUs."""
    return evaluation.listing is not None or any(each.tensors for each in evaluation.left)


def _unpacked(names: list[str], function: str) -> str:
    together = ", ".join(names)
    targets = together if len(names) > 1 else f"({together},)"
    line = f"{targets} = {function}({together})"
    return line if len(line) <= WIDEST else f"{targets} = {function}(\n    {together}\n)"
