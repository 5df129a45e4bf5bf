"""What converted scripts define to write whole tensors to files and to read them back into shards."""

from __future__ import annotations

from autodist.rule import Context
from autodist.script import TrainingScript
from autodist.source import Source

from ._preamble import Planned, defined, dist, imported, member

GATHER = '''\
def gather_shards(state):
    """Whole tensors in place of a checkpoint's shards, on rank 0; all ranks must take part."""
    if isinstance(state, {DTensor}):
        tensor = state.full_tensor()
        return tensor.cpu() if {d}.get_rank() == 0 else None
    if isinstance(state, dict):
        state = {copy}.copy(state)
        state.update((key, gather_shards(value)) for key, value in state.items())
    elif isinstance(state, (list, tuple)):
        state = type(state)(gather_shards(value) for value in state)
    return state


'''

SAVE = '''\
def save_gathered(state, file):
    """Write a checkpoint of whole tensors: all ranks gather it, rank 0 writes."""
    state = gather_shards(state)
    if {d}.get_rank() == 0:
        {torch}.save(state, file)


'''

CUT = '''\
def cut_like(tensor, parameter):
    """This rank's shard of a whole tensor that belongs to a sharded parameter."""
    if not isinstance(parameter, {DTensor}) or isinstance(tensor, {DTensor}) or tensor.shape != parameter.shape:
        return tensor
    return {distribute}(tensor.to(parameter.device), parameter.device_mesh, parameter.placements)


'''

MODEL = '''\
def model_shards(state, model):
    """A model's state dict, with this rank's shards of whole tensors."""
    shards = model.state_dict()
    return {key: cut_like(value, shards.get(key)) for key, value in state.items()}


'''

OPTIMIZER = '''\
def optimizer_shards(state, optimizer):
    """An optimizer's state dict, with this rank's shards of whole tensors."""
    numbers = [number for group in state["param_groups"] for number in group["params"]]
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    shards = {
        number: {
            name: cut_like(value, parameter) if {torch}.is_tensor(value) else value
            for name, value in state["state"][number].items()
        }
        for number, parameter in zip(numbers, parameters)
        if number in state["state"]
    }
    return {**state, "state": shards}


'''


def _filled(code: str, context: Context, source: Source) -> tuple[str, Planned]:
    names: dict[str, tuple[str, Planned]] = {}
    if "{DTensor}" in code:
        names["DTensor"] = member(context, source, "torch.distributed.tensor", "DTensor")
    if "{distribute}" in code:
        names["distribute"] = member(context, source, "torch.distributed.tensor", "distribute_tensor")
    if "{d}" in code:
        names["d"] = dist(context, source)
    for module in ("torch", "copy"):
        if f"{{{module}}}" in code:
            names[module] = imported(context, source, module)
    for placeholder, (name, _) in names.items():
        code = code.replace(f"{{{placeholder}}}", name)
    return code, tuple(edit for _, edits in names.values() for edit in edits)


def _define(script: TrainingScript, context: Context, source: Source, *codes: str) -> Planned:
    found: Planned = ()
    for code in codes:
        filled, imports = _filled(code, context, source)
        found = (*found, *imports, *defined(script, source, filled))
    return found


def gathering(script: TrainingScript, context: Context, source: Source) -> Planned:
    """`gather_shards`."""
    return _define(script, context, source, GATHER)


def saving(script: TrainingScript, context: Context, source: Source) -> Planned:
    """`save_gathered`."""
    return _define(script, context, source, GATHER, SAVE)


def cutting_model(script: TrainingScript, context: Context, source: Source) -> Planned:
    """`model_shards`."""
    return _define(script, context, source, CUT, MODEL)


def cutting_optimizer(script: TrainingScript, context: Context, source: Source) -> Planned:
    """`optimizer_shards`."""
    return _define(script, context, source, CUT, OPTIMIZER)
