from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from autodist.edits import Edit, InsertBefore, ReplaceExpr, WrapExpr
from autodist.reduction import Joining, Reduction
from autodist.rule import Context, Example, Finding, Fix, rule
from autodist.script import TrainingScript
from autodist.source import Source, shortened, walk

from ._collectives import GATHER, GATHER_IN_TRAINING, GATHER_TOGETHER
from ._examples import PLAIN
from ._once import is_read_again, place_of_all
from ._preamble import counted_on_all_ranks, defined, dist, free_name, imported, planned

SCRIPT = PLAIN.replace(
    "    loss = nn.functional.mse_loss(model(x), y)",
    """\
    out = {out}
        similarity = {rows} @ {columns}.T
        loss = nn.functional.cross_entropy(similarity, {labels})""",
)


def _gathered(out: str, rows: str, columns: str, labels: str) -> str:
    return _with_helper(SCRIPT.format(out=out, rows=rows, columns=columns, labels=labels))


def _with_helper(code: str) -> str:
    code = code.replace("import torch\n", "import torch\nimport torch.distributed as dist\n", 1)
    return code.replace("\n\n", "\n\n\n" + GATHER.format(torch="torch", d="dist"), 1)


EXAMPLES = [
    Example(
        before=SCRIPT.format(out="model(x)", rows="out", columns="out", labels="torch.arange(len(x))"),
        after=_gathered("RowsOfAllRanks.apply(model(x))", "out", "out", "torch.arange(len(x) * dist.get_world_size())"),
    ),
    Example(
        before=SCRIPT.format(out="model(x) + model(y)", rows="model(x)", columns="out", labels="y.long()[:, 0]"),
        after=_gathered(
            "model(x) + model(y)",
            "RowsOfAllRanks.apply(model(x))",
            "RowsOfAllRanks.apply(out)",
            "RowsOfAllRanks.apply(y.long()[:, 0])",
        ),
    ),
    Example(before=SCRIPT.format(out="model(x)", rows="out", columns="model.weight", labels="y.long()"), after=None),
    Example(  # of which ranks have different numbers
        before=PLAIN.replace("mse_loss(model(x), y)", "poisson_nll_loss(model(x)[y > 0], y[y > 0])"),
        after=_with_helper(
            PLAIN.replace(
                "    loss = nn.functional.mse_loss(model(x), y)",
                "    y = RowsOfAllRanks.apply(y)\n"
                "        loss = nn.functional.poisson_nll_loss(RowsOfAllRanks.apply(model(x))[y > 0], y[y > 0])",
            )
        ),
    ),
]


@rule("AD606")
def gather_compared_rows(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Gather the rows of all ranks where a loss of a rank's share says nothing of the loss of the batch.

    A contrastive loss, a triplet loss that mines in the batch: of a rank's share, most of the pairs are missing. A loss
    of a library, of samples that are picked by what the others are, or over numbers of which ranks have more or fewer:
    no mean over the ranks is that of the batch. The rows of all ranks, in the order of the batch, make the loss that
    one process computes. Gradients flow back to each rank's own rows.
    """
    if not script.trains:
        return
    gather = GATHER_TOGETHER if any(each.together for each in script.gathered) else GATHER
    found = [*_read_again(script.gathered)]
    hoisted = {read: once for once in found for read in once.reads}
    counted = {node for once in found for node in once.counted}
    for each in script.gathered:
        once = hoisted.get(each.node) if isinstance(each.node, ast.Name) else None
        if once is not None and each.node is not once.reads[0] or each.node in counted:
            continue
        code = shortened(each.source.code(each.node))
        if each.by is Joining.COUNT:
            message = f"the loss is computed from the samples of all ranks; {code} counts those of one"
            yield Finding(each.source, each.node, message, counted_on_all_ranks(context, each))
            continue
        d, imports = dist(context, each.source)
        torch, torch_import = imported(context, each.source, "torch")
        text = gather if each.switch is None else gather + GATHER_IN_TRAINING
        helper = defined(script, each.source, text.replace("{d}", d).replace("{torch}", torch))
        whole = "RowsOfAllRanks.apply({})" if each.switch is None else "gather_in_training({})"
        if each.array:
            whole = whole.replace("{}", f"{torch}.as_tensor({{}})") + ".numpy()"
        wraps: list[Edit] = [WrapExpr(each.node, whole)]
        if once is not None:
            name = free_name(each.source, f"all_{code}", f"{code}_of_all_ranks") if once.are_others_left else code
            wraps = [InsertBefore(once.place, f"{name} = {whole.format(code)}\n", prepares=True)]
            wraps += [ReplaceExpr(read, name) for read in once.reads if once.are_others_left]
            if once.made is not None:
                wraps = [WrapExpr(once.made, whole)]
        message = f"the loss is computed from the {code} of all ranks"
        edits = (*imports, *torch_import, *helper, *planned(each.source, *wraps))
        yield Finding(each.source, each.node, message, Fix(edits))


@dataclass(frozen=True)
class Once:
    """The reads of one name whose rows are gathered once, ahead of a statement: by that name where no later read wants
    this rank's rows, else by another one."""

    reads: list[ast.Name]
    place: ast.stmt
    are_others_left: bool = False
    made: ast.expr | None = None
    """What the name is bound to in the same block, if nothing reads it in between."""
    counted: tuple[ast.expr, ...] = ()
    """What counts these rows, `len(rows)`, and counts all of them then."""


def _read_again(reductions: Sequence[Reduction]) -> Iterator[Once]:
    """The reads that are better gathered once, since there are several, or loops come to them again."""
    named = [each for each in reductions if isinstance(each.node, ast.Name) and each.by is Joining.ROWS]
    counts = [each.node for each in reductions if each.by is Joining.COUNT]
    counting = {name: node for node in counts for name in walk(node) if _counts_alone(name, node)}
    groups: dict[tuple[ast.AST, str], list[Reduction]] = {}
    for each in named:
        assert isinstance(each.node, ast.Name)
        groups.setdefault((each.source.home(each.node), each.node.id), []).append(each)
    for (home, name), group in groups.items():
        reads = sorted((each.node for each in group if isinstance(each.node, ast.Name)), key=place)
        source, start = group[0].source, group[0].source.statement(reads[0])
        ahead = place_of_all(reads, source) if len({each.switch for each in group}) == 1 else None
        if ahead is None or len(reads) == 1 and not is_read_again(reads[0], ahead, source):
            continue
        uses = [n for n in walk(home) if isinstance(n, ast.Name) and n.id == name]
        later = {each for each in uses if place(each) >= place(ahead)}
        told = {each: counting[each] for each in later if each in counting}
        rebound = {*reads, *told} == {*_loads(start, name)} and _rebinds(start, name)  # `x = x / x.sum() * len(x)`
        alone = rebound or later == {*reads, *told} and _is_bound_in_turn(name, ahead, source)
        made = _bound_ahead(name, ahead, source) if alone and not rebound else None
        yield Once(reads, ahead, not alone, made, tuple(told.values()) if alone else ())


def _counts_alone(name: ast.AST, node: ast.expr) -> TypeGuard[ast.Name]:
    """Whether nothing else has a name in what counts rows but the rows, `len(rows)`."""
    called = {each.func for each in walk(node) if isinstance(each, ast.Call)}
    names = {each.id for each in walk(node) if isinstance(each, ast.Name) and each not in called}
    return isinstance(name, ast.Name) and names == {name.id} and name not in called


def _bound_ahead(name: str, start: ast.stmt, source: Source) -> ast.expr | None:
    """What a name is bound to in a line of its own above a statement, if no line between them speaks of it."""
    block = source.block(start)
    for each in reversed(block[: block.index(start)]):
        if any(isinstance(node, ast.Name) and node.id == name for node in walk(each)):
            own = isinstance(each, ast.Assign) and len(each.targets) == 1 and isinstance(each.targets[0], ast.Name)
            return each.value if own and isinstance(each, ast.Assign) and not _loads(each, name) else None
    return None


def _loads(statement: ast.stmt, name: str) -> list[ast.Name]:
    """Where a statement reads a name."""
    names = (node for node in walk(statement) if isinstance(node, ast.Name) and node.id == name)
    return [node for node in names if isinstance(node.ctx, ast.Load)]


def _rebinds(statement: ast.stmt, name: str) -> bool:
    """Whether a statement binds a name to something else."""
    return isinstance(statement, ast.Assign) and any(
        isinstance(t, ast.Name) and t.id == name for t in statement.targets
    )


def place(node: ast.expr | ast.stmt) -> tuple[int, int]:
    """Where a node begins."""
    return node.lineno, node.col_offset


def _is_bound_in_turn(name: str, start: ast.stmt, source: Source) -> bool:
    """Whether each turn of the loop around a statement binds a name anew before it comes there."""
    for outer in source.ancestors(start):
        if isinstance(outer, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return True
        if isinstance(outer, (ast.For, ast.While, ast.AsyncFor)):
            target = [] if isinstance(outer, ast.While) else [*walk(outer.target)]
            made = [
                t
                for each in outer.body
                if isinstance(each, ast.Assign) and place(each) < place(start)
                for t in walk(each)
            ]
            bound = [each for each in (*target, *made) if isinstance(each, ast.Name) and each.id == name]
            return any(isinstance(each.ctx, ast.Store) for each in bound)
    return True
