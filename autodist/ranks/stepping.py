"""What becomes of gradients between the backward pass and the step, and what optimizers are given."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from autodist.program import BATCH, FIELDS, SAMPLE, Operation, Value, closure, held
from autodist.ranks.reading import GRADIENTS, JOINED, Ranks, contained
from autodist.rule import Severity
from autodist.script import Concern
from autodist.solve.parameters import Parameters, union
from autodist.solve.steps import steps_of
from autodist.source import all_of, last_name, shortened
from autodist.trace.objects import ordered_modules
from autodist.trace.things import Object

AVERAGED = ("AVG", "PREMUL_SUM")
METHODS = ("torch.Tensor.mul", "torch.Tensor.mul_", "torch.Tensor.div", "torch.Tensor.div_")
SCALES = frozenset(["operator.mul", "operator.truediv", *METHODS])
FOREACH = ("torch._foreach_div", "torch._foreach_mul")
"""Beginnings of the names of what scales all tensors of a list."""
SHARDS = ("torch.distributed.fsdp.fully_shard", "torch.distributed._composable.fsdp.fully_shard")
UNSYNCED = "require_backward_grad_sync"
PARAMETERS = (".parameters", ".named_parameters")
WRAPPING = frozenset(
    "DistributedDataParallel DDP FullyShardedDataParallel FSDP fully_shard ShardedDataParallel".split()
)
BY_HAND = re.compile(
    r"_hook\(|\b(?:i?send|i?recv|rpc_async)\(|deepspeed|horovod|accelerate|lightning|apex|megatron|colossalai|bagua|"
    r"parallelize|distribute_|device_mesh|smdistributed|torch_xla|pipelining"
)
"""What a script may have its gradients averaged by, or its model cut into parts, in ways that are not followed."""
OF_WEIGHTS = re.compile(r"grad|param|weight|state_dict|flat|\.data\b|\bp\b|model|net")
"""Statements with a collective that may be of gradients, or of what is trained."""


def clipping(ranks: Ranks) -> Iterator[Concern]:
    """Gradients that are clipped while they are still scaled."""
    program = ranks.program
    steps = [each.operation for each in program.of("scaler.step")]
    unscaled = [each.operation for each in program.of("scaler.unscale_")]
    for clip in (each.operation for each in program.of("clip")):
        around = [each for each in steps if each.source.function(each.node) is clip.source.function(clip.node)]
        ahead = [each for each in unscaled if each.number < clip.number]
        if around and not ahead and any(each.number > clip.number for each in around):
            line = getattr(around[0].node, "lineno", 0)
            message = (
                f"gradients are clipped while the scaler still has them scaled (line {line} steps): the limit is meant "
                "for gradients that are many thousand times smaller; call scaler.unscale_(optimizer) first"
            )
            yield Concern("AD415", clip.source, clip.node, message, Severity.WARNING)


def synchronising(ranks: Ranks) -> Iterator[Concern]:
    """Backward passes none of which averages gradients over the ranks."""
    passes = [each.operation for each in ranks.program.of("backward")]
    if not passes or not any("ddp" in each.roles for each in ranks.wrappers()) or _average_by_hand(ranks):
        return
    silent = [each for each in passes if _is_unsynced(each)]
    if len(silent) == len(passes) or _is_switched_off(ranks):
        message = (
            "no backward pass averages gradients over the ranks: all are under no_sync, the last of a step too; leave "
            "the last micro-batch of each step outside"
        )
        yield Concern("AD416", passes[0].source, passes[0].node, message, Severity.WARNING)


def _is_unsynced(backward: Operation) -> bool:
    around = backward.source.ancestors(backward.node)
    items = [item.context_expr for each in around if isinstance(each, ast.With) for item in each.items]
    return any(isinstance(each, ast.Call) and getattr(each.func, "attr", "") == "no_sync" for each in items)


def _is_switched_off(ranks: Ranks) -> bool:
    values = list[ast.expr]()
    for source in ranks.sources:
        for each in all_of(source.tree, ast.Assign):
            if any(getattr(target, "attr", "") == UNSYNCED for target in each.targets):
                values.append(each.value)
    return bool(values) and all(isinstance(each, ast.Constant) and each.value is False for each in values)


def _reduced_gradients(ranks: Ranks) -> list[Operation]:
    """The all-reduces of gradients that a script does itself."""
    found = []
    for each in ranks.program.operations:
        if each.name in ("torch.distributed.all_reduce", "torch.distributed.reduce") and each.inputs:
            if any(op.name == "torch.Tensor.grad" for op in each.inputs[0].operations):
                found.append(each)
    return found


def _average_by_hand(ranks: Ranks) -> bool:
    return bool(_reduced_gradients(ranks))


def averaging(ranks: Ranks) -> Iterator[Concern]:
    """Gradients of mean losses that ranks add up, and nobody divides."""
    program = ranks.program
    reduced = _reduced_gradients(ranks)
    begins = [part for each in program.of("backward") for part in each.operation.inputs[:1]]
    begins += [rate for each in program.of("make") if (rate := each.operation.argument("lr", 1)) is not None]
    steps = ranks.before([op for part in begins for op in held(part)])
    gradients = [each for each in program.operations if each.name == "torch.Tensor.grad"]
    steps |= {user for each in (*reduced, *gradients) for user in program.users[each]} | ranks.before(reduced)
    scaling = [each for each in steps if each.name in SCALES or each.name.startswith(FOREACH)]
    divided = any(any(map(ranks.counts, _given(each))) for each in scaling)
    summed = any(part.constant == "sum" for each in program.of("loss_function") for part in each.operation.operands)
    if not reduced or divided or summed or any(ranks.wrappers()) or not program.of("loss_function"):
        return
    for each in reduced[:1]:
        if not any(mark in each.source.code(each.source.statement(each.node)) for mark in AVERAGED):
            message = (
                "ranks add up their gradients, each the mean over its own batch, and nothing divides the sum by the "
                "number of ranks: steps are as many times too large; divide by dist.get_world_size()"
            )
            yield Concern("AD418", each.source, each.node, message, Severity.WARNING)


def leaving_out(ranks: Ranks) -> Iterator[Concern]:
    """Models and tensors that optimizers step by gradients of a rank's own samples, which nothing averages."""
    if not _trains_on_shares(ranks) or any(BY_HAND.search(each.text) for each in ranks.sources) or _sees_to_it(ranks):
        return
    shards = [each for each in ranks.program.operations if each.name in SHARDS]
    wrappers = [*ranks.wrappers()]
    written = (each for source in ranks.sources for each in all_of(source.tree, ast.Call))
    if any(last_name(each.func) in WRAPPING for each in {*written} - {each.node for each in (*wrappers, *shards)}):
        return  # where it is not followed
    found = Parameters(ranks.program)
    given = [*(each.argument("module", 0) for each in wrappers), *(part for each in shards for part in each.inputs[:1])]
    wrapped = union(found.parameters(each) for value in given if value is not None for each in ordered_modules(value))
    for optimizer in (each.operation for each in ranks.program.of("make") if _is_optimizer(each.operation)):
        for name in _alone(optimizer, wrapped, found, ranks):
            message = (
                f"steps {name} by gradients of this rank's samples alone: no wrapper averages them over the ranks, and "
                "no all-reduce, so that each rank trains a model of its own; wrap it in DistributedDataParallel, or "
                "all-reduce its gradients ahead of each step"
            )
            yield Concern("AD419", optimizer.source, optimizer.node, message, Severity.WARNING)
            break


def _trains_on_shares(ranks: Ranks) -> bool:
    """Whether losses are computed of samples that each rank surely has for itself."""
    ends = [op for each in ranks.program.of("backward") for part in each.operation.inputs[:1] for op in held(part)]
    batches = [each for each in ranks.before(ends) if each.name in (BATCH, FIELDS, SAMPLE) and each.owner is not None]
    return bool(batches) and all(ranks.is_shared(each.owner) for each in batches)


def _sees_to_it(ranks: Ranks) -> bool:
    """Whether a collective, or code that is not followed, is given gradients, or what is trained."""
    operations = ranks.program.operations
    collectives = [each for each in operations if ranks.catalog.has(each.name, "collective")]
    if any(OF_WEIGHTS.search(each.source.code(each.source.statement(each.node))) for each in collectives):
        return True
    learnt = [each for each in operations if each.name in GRADIENTS or each.name.endswith(PARAMETERS)]
    reached = closure(learnt, ranks.program.users.__getitem__)
    return any(each.name.startswith(JOINED) and not _is_optimizer(each) or _is_unknown(each, ranks) for each in reached)


def _is_unknown(operation: Operation, ranks: Ranks) -> bool:
    known = operation.name.startswith(("torch.", "object.", "operator.", "copy.")) or "." not in operation.name
    return operation.name == "callback" or not known and not ranks.catalog.knows(operation.name)


def _alone(optimizer: Operation, wrapped: int, parameters: Parameters, ranks: Ranks) -> Iterator[str]:
    """What an optimizer is given that no wrapper has, as it is written."""
    told = optimizer.argument("params", 0)
    given = ranks.before(held(told)) if told is not None else ()
    for each in sorted(given, key=lambda op: op.number):
        code = shortened(each.source.code(each.node)) if isinstance(each.node, ast.expr) else ""
        if each.name.endswith(PARAMETERS) and isinstance(each.owner, Object):
            if parameters.parameters(each.owner) & ~wrapped and not _are_handed_on(
                {each.owner, optimizer.owner}, ranks
            ):
                yield code
        elif each in steps_of(ranks.program).stepped:
            yield code


def _are_handed_on(things: set[Any], ranks: Ranks) -> bool:
    """Whether code that is not followed is given a model or an optimizer."""
    unknown = (each for each in ranks.program.operations if _is_unknown(each, ranks))
    return any(things & one.things for each in unknown for part in each.operands for one in contained(part))


def _given(operation: Operation) -> list[Operation]:
    """The operations of what an operation is given, through `float(...)`."""
    found = [op for part in operation.operands for op in part.operations]
    return found + [
        op for each in found if each.name.startswith("builtins.") for p in each.operands for op in p.operations
    ]


def rates(ranks: Ranks) -> Iterator[Concern]:
    """Learning rates that are multiplied by the number of ranks twice."""
    for each in ranks.program.of("make"):
        made = each.operation
        rate = made.argument("lr", 1)
        if "optimizer" in getattr(made.owner, "roles", ()) and rate is not None and _factors(rate, ranks, set()) > 1:
            message = (
                "the learning rate is multiplied by the number of ranks twice: it grows with the square of their "
                "number; scale it once"
            )
            yield Concern("AD417", made.source, made.node, message, Severity.WARNING)


def _factors(value: Value, ranks: Ranks, seen: set[Operation]) -> int:
    """How many times a number is multiplied by how many ranks there are, at least."""
    told = []
    for each in value.operations - seen:
        inner = seen | {each}
        parts = [_factors(part, ranks, inner) for part in each.inputs[:2]]
        if ranks.counts(each) or each.name == "torch.cuda.device_count" and ranks.spawns:
            told.append(1)
        elif each.name == "operator.mul":
            told.append(sum(parts))
        elif each.name == "operator.truediv" and len(parts) == 2:
            told.append(parts[0] - parts[1])
        elif each.name.startswith("builtins.") and parts:
            told.append(parts[0])
        else:
            told.append(0)
    return min(told, default=0)


def sharding(ranks: Ranks) -> Iterator[Concern]:
    """Optimizers of parameters that sharding then replaces."""
    made = [each.operation for each in ranks.program.of("make") if _is_optimizer(each.operation)]
    for shard in ranks.program.operations:
        wraps = (
            shard.name in SHARDS
            or "fully_sharded" in getattr(shard.owner, "roles", ())
            and shard.name.endswith("__init__")
        )
        kept = shard.keywords.get("use_orig_params")
        if not wraps or not _first(shard) or kept is not None and kept.constant is not False:
            continue
        for optimizer in made:
            given = {op.owner for part in optimizer.inputs[:1] for op in held(part) if op.name.endswith(".parameters")}
            if optimizer.number < shard.number and given & _first(shard):
                line = getattr(shard.node, "lineno", 0)
                message = (
                    f"this optimizer has the parameters as they were before the model is sharded (line {line}), which "
                    "get no gradients any more: it would train nothing; make it after that"
                )
                yield Concern("AD509", optimizer.source, optimizer.node, message, Severity.WARNING)
                return


def _first(operation: Operation) -> frozenset[Any]:
    return operation.inputs[0].things if operation.inputs else frozenset()


def _is_optimizer(operation: Operation) -> bool:
    return "optimizer" in getattr(operation.owner, "roles", ())


def weights(ranks: Ranks) -> Iterator[Concern]:
    """Models whose weights each rank draws for itself, where nothing makes them alike."""
    program = ranks.program
    names = {each.name for each in program.operations}
    alike = any(each.startswith("torch.distributed.broadcast") for each in names) or any(
        mark in source.text
        for source in ranks.sources
        for mark in ("sync_module_states=True", "from_pretrained", '"meta"')
    )
    sharded = any("fully_sharded" in each.roles for each in ranks.wrappers()) or names & set(SHARDS)
    loads = (each.operation for each in program.of("module.load_state_dict"))
    if alike or any(not [*each.source.conditions(each.node)] for each in loads) or not program.of("backward"):
        return
    if any("ddp" in each.roles for each in ranks.wrappers()) or not (sharded or _average_by_hand(ranks)):
        return
    seed: Operation | None = None
    for each in program.operations:
        if each.name in ("torch.manual_seed", "torch.random.manual_seed") and each.inputs:
            seed = each
        elif "any_seed" in ranks.catalog.roles(each.name) and not each.name.startswith(("random.", "numpy.")):
            seed = seed or each
        elif (
            each.name.startswith("torch.nn.")
            and each.name.endswith(".__init__")
            and "module" in getattr(each.owner, "roles", ())
        ):
            if seed is None:
                message = (
                    f"{shortened(each.source.code(each.source.statement(each.node)))} draws weights that are others on "
                    "each rank, and nothing makes them alike: seed all ranks alike before, or broadcast from rank 0"
                )
                yield Concern("AD707", each.source, each.node, message, Severity.WARNING)
            elif ranks.by_rank(seed.inputs[0] if seed.inputs else Value()):
                message = (
                    f"each rank draws weights of its own after this (line {getattr(each.node, 'lineno', 0)}), and "
                    "nothing makes them alike: seed all ranks alike before the model is made, and apart after"
                )
                yield Concern("AD705", seed.source, seed.node, message, Severity.WARNING)
            return
