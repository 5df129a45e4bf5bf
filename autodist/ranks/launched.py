"""How processes are started, which device each takes, and how they end."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.placement.between_ranks import ENVIRONMENT
from autodist.program import UNKNOWN, Operation, Value
from autodist.ranks.reading import Ranks
from autodist.rule import Severity
from autodist.script import Concern
from autodist.source import Source, all_of

GLOBAL = frozenset("RANK SLURM_PROCID OMPI_COMM_WORLD_RANK".split())
ONE_MACHINE = ("localhost", "127.0.0.1")
MADE = frozenset(
    f"torch.{name}"
    for name in "tensor zeros ones full empty as_tensor arange rand randn FloatTensor LongTensor".split()
)
ONTO = (".to", ".cuda", ".xpu", ".type", ".item", ".tolist", ".numpy", ".new_tensor", ".type_as")
SAME = ("operator.", "setitem", "torch.Tensor.", "getitem")
DEFAULTS = ("set_default_device", "set_default_tensor_type", 'torch.device("cuda"):', "backend=None")


def comes_from(value: Value, ranks: Ranks, local: bool) -> bool:
    """Whether a value is the number of a process, on its machine (``local``) or among all, as it was read."""
    pending, seen = list(value.operations), set[Operation]()
    while pending:
        each = pending.pop()
        if each in seen:
            continue
        seen.add(each)
        told = each.inputs[0].constant if each.inputs else UNKNOWN
        if each.name in ENVIRONMENT:
            if told in (GLOBAL if not local else {"LOCAL_RANK"}):
                return True
        elif not local and each.name == "torch.distributed.get_rank" and not each.inputs:
            return True
        elif each.name in ("builtins.int", "builtins.str.format", "torch.device.__init__"):
            pending += [op for part in each.operands for op in part.operations]
    return False


def devices(ranks: Ranks) -> Iterator[Concern]:
    """GPUs that are taken by the number of the rank among all machines, which have fewer each."""
    if ranks.spawns or any(each in source.text for source in ranks.sources for each in ONE_MACHINE):
        return
    for each in ranks.program.operations:
        takes = each.name in ("torch.cuda.set_device", "torch.device.__init__")
        if takes and any(comes_from(given, ranks, local=False) for given in each.operands):
            message = (
                "the device is taken by the number of the rank among all nodes: on the second node there is none of "
                "that number; use LOCAL_RANK, the number on the machine"
            )
            yield Concern("AD106", each.source, each.node, message, Severity.WARNING)
            return


def tensors(ranks: Ranks) -> Iterator[Concern]:
    """Tensors on the CPU that NCCL is to reduce."""
    joins = [each.operation for each in ranks.program.of("init_process_group")]
    if not joins or any((each.argument("backend", 0) or Value()).constant != "nccl" for each in joins):
        return
    if any(mark in source.text for source in ranks.sources for mark in DEFAULTS):
        return
    told = set[ast.AST]()
    for each in ranks.program.operations:
        if not each.name.startswith("torch.distributed.") or not ranks.catalog.has(each.name, "collective"):
            continue
        if each.name.endswith("_object") or each.name.endswith("object_list") or "group" in each.keywords:
            continue
        given = each.inputs[0] if each.inputs else each.keywords.get("tensor")
        made = _made(given, ranks) if given is not None else None
        if made is not None and each.node not in told:
            told.add(each.node)
            line = getattr(made.node, "lineno", 0)
            message = (
                f"{each.name.rpartition('.')[2]} is given a tensor on the CPU (line {line}), which NCCL refuses: make "
                "it on the device of the rank"
            )
            yield Concern("AD107", each.source, each.node, message, Severity.WARNING)


def _made(value: Value, ranks: Ranks) -> Operation | None:
    """The call that has made a tensor on the CPU, if that is sure."""
    if not value.operations or value.constants or value.things:
        return None
    seen, pending, found = set[Operation](), list(value.operations), list[Operation]()
    mixes = folds = False
    while pending:
        each = pending.pop()
        if each in seen:
            continue
        seen.add(each)
        name = each.name.removesuffix(".__init__")
        if name in MADE:
            if "device" in each.keywords:
                return None
            if any(not given.constants and given.operations for given in each.inputs) and name == "torch.as_tensor":
                return None
            found.append(each)
        elif each.name.startswith(SAME) and not each.name.endswith(ONTO) and each.inputs and each.inputs[0].operations:
            pending += each.inputs[0].operations
            mixes |= each.name.startswith("operator.") and not isinstance(each.node, ast.AugAssign)
            folds |= each.name.startswith("torch.Tensor.")
        else:
            return None
    sized = not mixes or not folds and not any(map(_is_scalar, found))
    return min(found, key=lambda op: op.number) if found and sized else None


def _is_scalar(made: Operation) -> bool:
    """Whether it may have no axis: added to one on a GPU, it would go there."""
    first = made.inputs[0] if made.inputs else None
    if first is None or made.name == "torch.tensor":
        return not (first is not None and first.things)
    return not isinstance(first.constant, int)


def spawning(ranks: Ranks) -> Iterator[Concern]:
    """Processes that are started while the script is imported, as each of them does first."""
    for source in ranks.sources:
        for node in all_of(source.tree, ast.Call):
            if node in ranks.spawns and (place := _on_import(node, source, ranks)) is not None:
                message = (
                    "each process that is started imports this script first, and would start processes again: put "
                    'this under `if __name__ == "__main__":`'
                )
                yield Concern("AD108", source, place, message, Severity.WARNING)


def _on_import(node: ast.AST, source: Source, ranks: Ranks) -> ast.AST | None:
    """The statement of the module that leads to a call, if nothing asks whether it is the main one."""
    function = source.function(node)
    if function is not None:
        calls = [
            each for each in all_of(source.tree, ast.Call) if function in ranks.called(ranks.program.at(each.func))
        ]
        return next((found for each in calls if (found := _on_import(each, source, ranks)) is not None), None)
    tests = [each.test for each in source.ancestors(node) if isinstance(each, ast.If)]
    return None if any("__name__" in ast.unparse(test) for test in tests) else node


def endings(ranks: Ranks) -> Iterator[Concern]:
    """Process groups that are never left."""
    joins = [each.operation for each in ranks.program.of("init_process_group")]
    named = (node for source in ranks.sources for node in all_of(source.tree, ast.Name, ast.Attribute))
    if any(getattr(each, "attr", getattr(each, "id", "")) == "destroy_process_group" for each in named):
        return
    for each in joins[:1]:
        if (str, "nccl") in (each.argument("backend", 0) or Value()).constants:
            message = (
                "the process group is never left: ranks that end while others still wait for NCCL hang or abort, and "
                "torch warns of it; end with dist.destroy_process_group()"
            )
            yield Concern("AD109", each.source, each.node, message, Severity.WARNING)
