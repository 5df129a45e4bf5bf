"""What converted scripts define to run rows that all ranks have through a model in training mode."""

from __future__ import annotations

import ast

from autodist.rule import Context
from autodist.script import TrainingScript
from autodist.source import Source

from ._preamble import Planned, defined, dist, imported

SHARE = '''\
def share_rows(model, *inputs):
    """Run a model on rows that all ranks hold, each rank on its share: batch statistics count every row once."""
    rank, ranks = {d}.get_rank(), {d}.get_world_size()
    with {torch}.no_grad():
        own = model(*(rows[rank::ranks] for rows in inputs))
    parts = [None] * ranks
    {d}.all_gather_object(parts, own.cpu())
    whole = own.new_empty(sum(map(len, parts)), *own.shape[1:])
    for rank, part in enumerate(parts):
        whole[rank::ranks] = part
    return whole


'''


def sharing_rows(script: TrainingScript, context: Context, source: Source) -> Planned:
    """`share_rows`."""
    d, imports = dist(context, source)
    torch, torch_import = imported(context, source, "torch")
    return (*imports, *torch_import, *defined(script, source, SHARE.replace("{d}", d).replace("{torch}", torch)))


def shared_rows(call: ast.Call) -> tuple[str, tuple[ast.expr, ...]]:
    """What takes the place of a model's call: a template, and the expressions in it."""
    holes = ", ".join(f"{{{number}}}" for number in range(len(call.args) + 1))
    return f"share_rows({holes})", (call.func, *call.args)
