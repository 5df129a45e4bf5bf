"""What converted scripts define to make a model on rank 0 alone, and to fill the shards of all ranks from it."""

from __future__ import annotations

import ast

from autodist.edits import Edit, InsertAfter, Recompose, RemoveStatement, WrapExpr
from autodist.rule import Context
from autodist.script import Built, TrainingScript, Wrapping
from autodist.source import Source

from ._preamble import Planned, defined, dist, imported, member, planned

SHARE = '''\
def share_random_state():
    """All ranks go on with the random numbers of rank 0, which alone has drawn the weights."""
    state = {torch}.get_rng_state()
    {d}.broadcast(state, 0)
    {torch}.set_rng_state(state)


'''

BUILD = '''\
def built_on_rank_zero(build):
    """A model that rank 0 alone holds; the other ranks have it on the meta device, without memory."""
    with {torch}.device("cpu" if {d}.get_rank() == 0 else "meta"):
        model = build()
    share_random_state()
    return model


'''

FILL = '''\
@{torch}.no_grad()
def fill_from_rank_zero(model, whole):
    """Give the shards of all ranks the values of the whole tensors that rank 0 has, one after the other."""
    if {d}.get_rank() != 0:
        model.to_empty(device="cuda" if {torch}.cuda.is_available() else "cpu")
    for tensor, values in zip((*model.parameters(), *model.buffers()), whole):
        if isinstance(tensor, {DTensor}):
            alike = {torch}.empty_like(values, device=tensor.device)
            values = values.to(tensor.device) if {d}.get_rank() == 0 else alike
            tensor.copy_({distribute}(values, tensor.device_mesh, tensor.placements))
        else:
            {d}.broadcast(tensor, 0)


'''


def _define(script: TrainingScript, context: Context, source: Source, *codes: str) -> Planned:
    d, dist_import = dist(context, source)
    torch, torch_import = imported(context, source, "torch")
    edits = (*dist_import, *torch_import)
    for code in codes:
        for placeholder, name in (("DTensor", "DTensor"), ("distribute", "distribute_tensor")):
            if f"{{{placeholder}}}" in code:
                local, needed = member(context, source, "torch.distributed.tensor", name)
                code, edits = code.replace(f"{{{placeholder}}}", local), (*edits, *needed)
        code = code.replace("{torch}", torch).replace("{d}", d)
        edits = (*edits, *defined(script, source, code))
    return edits


def filling(script: TrainingScript, context: Context, source: Source) -> Planned:
    """`fill_from_rank_zero`."""
    code = FILL if script.names_device else FILL.replace('"cuda" if {torch}.cuda.is_available() else "cpu"', '"cpu"')
    return _define(script, context, source, code)


def making(built: Built, wrapping: Wrapping, script: TrainingScript, context: Context) -> Planned:
    """Edits that make a model on rank 0 alone, and leave it there until it is sharded."""
    edits: Planned = ()
    for site in built.makers:
        assert isinstance(site.node, ast.expr)
        wrap = planned(site.source, _deferred(site.node))
        edits = (*edits, *_define(script, context, site.source, SHARE, BUILD), *wrap)
    for site in built.draws:
        share = planned(site.source, InsertAfter(site.statement, "share_random_state()\n"))
        edits = (*edits, *_define(script, context, site.source, SHARE), *share)
    for site in built.moves:
        if not (site.statement is wrapping.statement and moves_alone(site.source, site.statement, site.node)):
            edits = (*edits, *_left(site.source, site.statement, site.node))
    return edits


def _deferred(maker: ast.expr) -> Edit:
    """`Net(args)` is to be called by `built_on_rank_zero`."""
    if isinstance(maker, ast.Call) and not maker.args and not maker.keywords and isinstance(maker.func, ast.Name):
        return Recompose(maker, "built_on_rank_zero({0})", (maker.func,))
    return WrapExpr(maker, "built_on_rank_zero(lambda: {})")


def moves_alone(source: Source, statement: ast.stmt, call: ast.AST) -> bool:
    """`model.to(device)` or `model = model.to(device)`"""
    assert isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
    if isinstance(statement, ast.Assign) and statement.value is call:
        return source.code(statement.targets[0]) == source.code(call.func.value)
    return isinstance(statement, ast.Expr) and statement.value is call


def _left(source: Source, statement: ast.stmt, call: ast.AST) -> Planned:
    """Without the move."""
    assert isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
    if moves_alone(source, statement, call):
        return planned(source, RemoveStatement(statement))
    return planned(source, Recompose(call, "{0}", (call.func.value,)))
