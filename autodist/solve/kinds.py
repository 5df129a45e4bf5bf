"""Whether a value is surely a number of Python, or a tensor."""

from __future__ import annotations

from collections.abc import Mapping

from autodist.program import Operation, Value, closure, held

NUMBER, TENSOR, OTHER = "number", "tensor", "other"
NUMBERS = frozenset(
    "torch.Tensor.item torch.Tensor.numel builtins.float builtins.int builtins.len loader.length data.length "
    "loader.sampler.length".split()
)
"""Operations that give numbers of Python, whatever they are given."""
COMPUTED = ("operator.", "builtins.round", "builtins.abs", "builtins.min", "builtins.max")
"""The beginnings of operations that give a tensor if they are given one."""
METHODS = "torch.Tensor."
ARRAY = "torch.Tensor.numpy"
SHAPES = (".shape", ".size")
OTHERS = ("numpy", "tolist", "size", "shape", "data_ptr", "__init__")
"""The last parts of names of functions of torch that give no tensor."""


def is_array(value: Value) -> bool:
    """Whether it may be an array of numpy: `x.cpu().numpy()`, and what its methods and operators give."""
    above = closure(value.operations, lambda op: held(op.inputs[0]) if _keeps_arrays(op) else ())
    return any(each.name.startswith("numpy.") or each.name == ARRAY for each in above)


def _keeps_arrays(operation: Operation) -> bool:
    """Whether it gives an array if it is given one; arrays have the methods of tensors."""
    name = operation.name
    gives = name.startswith((*COMPUTED, METHODS)) and name.rpartition(".")[2] not in OTHERS and name not in NUMBERS
    return bool(operation.inputs) and (gives or name in ("getitem", "setitem"))


def kind_of(value: Value) -> str:
    """`number`, `tensor`, or `other` where it may be either, or something else."""
    behind = closure(value.operations, lambda op: (each for operand in op.operands for each in operand.operations))
    known: dict[Operation, frozenset[str]] = {}
    before = -1
    while before < (before := sum(map(len, known.values()))):  # what a loop computes of its own results
        known = {each: _computed(each, known) for each in behind}
    found = _kinds(value, known)
    return next(iter(found)) if len(found) == 1 else OTHER


def _kinds(value: Value, known: Mapping[Operation, frozenset[str]]) -> frozenset[str]:
    found = {NUMBER if kind in (int, float) else OTHER for kind, _ in value.constants}
    return frozenset(found | ({OTHER} if value.things else set())).union(
        *(known.get(each, ()) for each in value.operations)
    )


def _is_size(operation: Operation) -> bool:
    """Whether it says how many numbers lie along one axis: `x.shape[0]`, `x.size(0)`"""
    if operation.name != "getitem":
        return operation.name == "torch.Tensor.size" and len(operation.inputs) > 1
    of, *at = operation.inputs
    shapes = bool(of.operations) and all(each.name.endswith(SHAPES) for each in of.operations)
    return shapes and len(at) == 1 and at[0].is_constant


def _computed(operation: Operation, known: Mapping[Operation, frozenset[str]]) -> frozenset[str]:
    name = operation.name
    if name in NUMBERS or _is_size(operation):
        return frozenset([NUMBER])
    if not name.startswith((*COMPUTED, METHODS)):
        is_tensor = name.startswith("torch.") and name.rpartition(".")[2] not in OTHERS
        return frozenset([TENSOR if is_tensor else OTHER])
    if name.startswith(METHODS):  # arrays have the same ones
        gives_tensors = operation.inputs and name.rpartition(".")[2] not in OTHERS
        return _kinds(operation.inputs[0], known) - {NUMBER} if gives_tensors else frozenset([OTHER])
    kinds = [_kinds(each, known) for each in operation.operands]
    found = {OTHER} if any(OTHER in each for each in kinds) else set()
    found |= {TENSOR} if any(TENSOR in each for each in kinds) else set()
    return frozenset(found | ({NUMBER} if all(NUMBER in each for each in kinds) else set()))
