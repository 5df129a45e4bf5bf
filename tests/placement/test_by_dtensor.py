"""The table against the rules that DTensor has for the same operations, asked without a process group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from test_by_numbers import NEEDS_A_GPU, is_ordinary
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor import Partial as TheirPartial
from torch.distributed.tensor import Replicate as TheirReplicate
from torch.distributed.tensor import Shard as TheirShard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor._op_schema import OpSchema
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map
from trials import TABLE, Trial, numbers, trials

from autodist.operations import Operation
from autodist.placement import Partial, PerRank, Placement, Replicate, Shard, transfer

PROPAGATOR: Any = DTensor._op_dispatcher.sharding_propagator
MESH = DeviceMesh("cpu", [0, 1], _init_backend=False, _rank=0)
OF_OTHERS = frozenset("random random_like fill fill_like arange fact container length".split())
"""Of numbers that DTensor has no rule about: draws, and what is of Python."""
SIZED = (
    "`batchmean`: theirs divides by the size of the whole batch, ours by that of a rank's share, as torch does there"
)
DISAGREEMENTS = {
    "torch.nn.functional.kl_div": SIZED,
    "torch.nn.KLDivLoss": SIZED,
    "torch.any": "theirs is a sum of booleans, ours the largest of them, which is a boolean",
    "torch.Tensor.expand_as": "theirs gives each rank the sizes of the whole, ours those of its own share",
    "torch.from_numpy": "theirs loses a tensor that leaves torch for numpy",
    "torch.rot90": "theirs is right: it is a flip and a transpose, which is too rare for a class of its own",
}
"""Where DTensor says otherwise, and who is right."""
FEWEST = 350
"""Of so many operations, at least, DTensor says something."""


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Of tensors as small as these, several threads make short work long."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Unknown(Exception):
    """DTensor has no rule, or none without communication."""


class Follow(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follows placements through the operations that a call is made of, by DTensor's rules."""

    def __init__(self, tensors: list[torch.Tensor], placements: tuple[Placement, ...]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kept: list[torch.Tensor] = []
        self.found: dict[int, Any] = {}
        for tensor, placement in zip(tensors, placements, strict=True):
            self.set(tensor, TheirShard(placement.axis) if isinstance(placement, Shard) else TheirReplicate())

    def set(self, tensor: torch.Tensor, placement: Any) -> None:
        self.kept.append(tensor)
        self.found[id(tensor)] = placement

    def of(self, tensor: torch.Tensor) -> Any:
        return self.found.get(id(tensor), TheirReplicate())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = [self.of(each) for each in tree_flatten((args, kwargs))[0] if isinstance(each, torch.Tensor)]
        result = func(*args, **kwargs)
        placed = TheirReplicate() if all(p == TheirReplicate() for p in given) else self.rule(func, args, kwargs)
        results = list(result) if isinstance(result, (tuple, list)) else [result]
        placements = list(placed) if isinstance(placed, (tuple, list)) else [placed] * len(results)
        for each, placement in zip(results, placements, strict=False):
            if isinstance(each, torch.Tensor):
                self.set(each, placement)
        return result

    def rule(self, func: Any, args: Any, kwargs: Any) -> Any:
        def spec(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            return DTensorSpec(
                MESH, (self.of(value),), tensor_meta=TensorMeta(value.shape, value.stride(), value.dtype)
            )

        try:
            given, named = tree_map(spec, (args, kwargs))
            info = PROPAGATOR.op_to_schema_info.get(func) or PROPAGATOR.op_to_schema_info_for_single_dim_strategy.get(
                func
            )
            schema = OpSchema(func, tuple(given), named, schema_info=info)
            if info:
                schema._recompute_comparison_key()
            found = PROPAGATOR.propagate_op_sharding_non_cached(schema)
        except Exception as error:
            raise Unknown(f"{func}: {error}") from None
        if found.needs_redistribute:
            raise Unknown(f"{func} communicates")
        given_back = found.output_spec
        if isinstance(given_back, (tuple, list)):
            return [_placement(each) for each in given_back]
        return _placement(given_back)


def _placement(spec: Any) -> Any:
    return TheirReplicate() if spec is None else spec.placements[0]


def theirs(trial: Trial, placements: tuple[Placement, ...]) -> Placement | None:
    """What DTensor says of a call; None if it does not say."""
    torch.manual_seed(0)
    kinds = trial.kinds or ("",) * len(trial.sizes)
    tensors = [numbers(each, kind) for each, kind in zip(trial.sizes, kinds, strict=True)]
    mode = Follow(tensors, placements)
    try:
        with mode:
            result = trial.function(*tensors)
    except Exception:
        return None
    while isinstance(result, (tuple, list)) and result:
        result = result[0]
    if not isinstance(result, torch.Tensor) or id(result) not in mode.found:
        return None
    found = mode.of(result)
    if isinstance(found, TheirShard):
        return Shard(found.dim)
    if isinstance(found, TheirPartial) and type(found) is not TheirPartial:
        return None  # a norm of the ranks' norms
    if isinstance(found, TheirPartial):
        reduce = {"avg": "mean"}.get(found.reduce_op, found.reduce_op)
        return Partial(reduce) if reduce in ("sum", "mean", "max", "min") else None  # type: ignore[arg-type]
    return Replicate()


def compared(operation: Operation) -> list[tuple[Placement, Placement, tuple[Placement, ...]]]:
    """Their placement and ours of each call about which DTensor says something."""
    pairs = []
    for trial in trials(operation):
        for way in trial.ways():
            if not any(isinstance(each, Shard) for each in way):
                continue
            sizes = zip(way, trial.sizes, strict=True)
            if any(isinstance(each, Shard) and size[each.axis] != 9 for each, size in sizes):
                continue
            ours = transfer(operation, trial.call(way, trial.sizes))
            if isinstance(ours, PerRank) and not is_ordinary(way):
                continue
            said = theirs(trial, way)
            if said is not None and not (isinstance(ours, Shard) and ours.order):
                pairs.append((said, Partial(ours.reduce) if isinstance(ours, Partial) else ours, way))
    return pairs


def asked() -> list[Operation]:
    """The operations of torch that DTensor can be asked about."""
    return [
        each
        for each in TABLE
        if each.name.startswith("torch.") and each.cls not in OF_OTHERS and each.name not in NEEDS_A_GPU
    ]


def test_agrees_with_the_rules_of_dtensor() -> None:
    found = {operation.name: compared(operation) for operation in asked()}
    assert sum(map(bool, found.values())) >= FEWEST
    wrong = {name: [pair for pair in pairs if pair[0] != pair[1]] for name, pairs in found.items()}
    assert {name: pairs for name, pairs in wrong.items() if pairs and name not in DISAGREEMENTS} == {}
    assert {name for name, pairs in wrong.items() if pairs} == {*DISAGREEMENTS}, "a disagreement is settled"


@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
def test_ignored_targets_are_not_weighed_by_dtensor(name: str) -> None:
    """DTensor takes the plain mean, of equally many rows each. Ours is right: the targets that count weigh it."""
    function, operation = getattr(torch.nn.functional, name), TABLE.find(f"torch.nn.functional.{name}")
    assert operation is not None
    torch.manual_seed(0)
    output, target = torch.rand(8, 4).double().log_softmax(1), torch.tensor([0, 0, 1, 2, 3, 0, 1, 2])
    trial = Trial(
        operation, lambda x, y: function(x, y, ignore_index=0), ((8, 4), (8,)), {"leaves_out": True}, ("", "places")
    )
    way = (Shard(0), Shard(0))
    assert theirs(trial, way) == Partial("mean")
    assert transfer(operation, trial.call(way, trial.sizes)) == Partial("mean", "what counts of rows")
    parts = [(output[:2], target[:2]), (output[2:5], target[2:5]), (output[5:], target[5:])]
    means = [function(*each, ignore_index=0).nan_to_num() for each in parts]
    by_rows = sum(mean * len(y) for mean, (_, y) in zip(means, parts, strict=True)) / 8
    by_counted = sum(mean * (y != 0).sum() for mean, (_, y) in zip(means, parts, strict=True)) / (target != 0).sum()
    whole = function(output, target, ignore_index=0)
    assert torch.allclose(whole, by_counted) and not torch.allclose(whole, by_rows)
