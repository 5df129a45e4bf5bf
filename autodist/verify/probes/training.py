"""Losses, gradients, parameters and learning rates, at every optimizer step."""

from __future__ import annotations

import functools
import math
import os
import signal
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules import module as torch_module
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import optimizer as torch_optimizer

from autodist.verify.probes.digest import LONG, REAL, Digester
from autodist.verify.probes.held_batches import tensors_of
from autodist.verify.replay import batch_dimension

if TYPE_CHECKING:
    from autodist.verify.probes import ProbeContext

CLIPPING = ("clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "clip_grad_norm")
ROUNDING = {"float64": 1e-12, "float32": 1e-6}
"""Of the length of all gradients together, by precision."""
MOST_GIVEN = 4
"""Tensors that are looked at of those that a model is given, where no loader tells which samples these are."""
MOST_BEHIND = 20_000
"""Nodes behind a loss that are gone through for the tensors that it trains."""
MOST_NODES = 48
"""Nodes behind the output of a model that are watched for gradients: those of a penalty enter somewhere below it."""


class TrainingProbe:
    """Hooks every optimizer, every backward pass, clipping and the outermost module calls."""

    def __init__(self, context: ProbeContext, digester: Digester, stop: Callable[[], None]) -> None:
        self._context = context
        self._digester = digester
        self._stop = stop
        self._optimizers: dict[int, int] = {}
        self._kept: list[Any] = []
        self._unclipped: dict[int, list[float] | None] = {}
        self._seen_modules: set[int] = set()
        self._axes: dict[str, int | None] = {}
        self._rounded: set[int] = set()
        self._by_hand = ByHand()
        self._step_depth = 0
        self._backward_depth = 0
        self._call_depth = 0
        self._calls = 0
        self._learned: set[int] = set()

    def install(self) -> None:
        """Register torch's global hooks and patch the entry points that have none."""
        self._count_optimizers()
        torch_optimizer.register_optimizer_step_pre_hook(self._before_step)
        torch_optimizer.register_optimizer_step_post_hook(self._after_step)
        self._patch_backward()
        for name in CLIPPING:
            if hasattr(torch.nn.utils, name):
                self._patch_clipping(name)
        self._patch_calls()

    def end(self) -> None:
        """Take in the last step of a script that takes its steps itself, which no backward pass follows."""
        self._end_step_by_hand()

    def _patch_backward(self) -> None:
        plain = torch.autograd.backward

        @functools.wraps(plain)
        def backward(tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> None:
            if self._backward_depth == 0:
                self._end_step_by_hand()
                self._record_loss(tensors, grad_tensors)
                if not self._context.optimizers and not self._by_hand.modules:
                    self._by_hand.leaves = leaves_behind(tensors)
            self._backward_depth += 1
            try:
                plain(tensors, grad_tensors, *args, **kwargs)
            finally:
                self._backward_depth -= 1
            if self._backward_depth == 0:
                self._begin_step_by_hand()

        torch.autograd.backward = backward
        self._patch_gradients()

    def _patch_gradients(self) -> None:
        """Gradients of parameters train as well, those of the samples do not."""
        plain = torch.autograd.grad

        @functools.wraps(plain)
        def grad(outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            if not isinstance(inputs, (torch.Tensor, tuple)):
                inputs = list(inputs)
            several = (inputs,) if isinstance(inputs, torch.Tensor) else inputs
            trains = any(isinstance(each, torch.nn.Parameter) for each in several)
            self._backward_depth += trains
            try:
                return plain(outputs, inputs, *args, **kwargs)
            finally:
                self._backward_depth -= trains

        torch.autograd.grad = grad

    def _begin_step_by_hand(self) -> None:
        """Where there is no optimizer, a step may follow that the script takes itself: `p -= lr * p.grad`."""
        if self._context.optimizers or self._step_depth or not (self._by_hand.modules or self._by_hand.leaves):
            return
        self._before_step(self._by_hand, (), {})
        if not self._by_hand.modules:  # whatever averages the gradients does so after the backward pass
            self._pending["groups"] = [
                {**group, "gradients": [None] * len(group["gradients"])} for group in self._pending["groups"]
            ]
        self._step_depth = 0
        if self._by_hand.initial is not None:
            self._pending["initial"] = self._by_hand.initial  # another backward pass of the first step
        self._by_hand.initial = self._pending.get("initial")
        self._by_hand.held = self._digested()

    def _end_step_by_hand(self) -> None:
        """It has been one if parameters are others now, for all that a rank with nothing of them can tell."""
        if self._by_hand.held is not None and (self._by_hand.is_empty or self._digested() != self._by_hand.held):
            self._step_depth, self._by_hand.held, self._by_hand.initial = 1, None, None
            self._after_step(self._by_hand, (), {})

    def _digested(self) -> Any:
        self._context.probing = True
        try:
            with torch.no_grad():
                return self._digester.all(self._by_hand.param_groups[0]["params"])
        finally:
            self._context.probing = False

    def _record_loss(self, tensors: Any, gradients: Any) -> None:
        if gradients is None and isinstance(tensors, torch.Tensor) and tensors.dtype in REAL and tensors.numel() == 1:
            self._context.trace.emit("backward", loss=tensors.item(), site=self._context.trace.site())
            return
        roots = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        weights = [gradients] if gradients is None or isinstance(gradients, torch.Tensor) else list(gradients)
        weights += [None] * (len(roots) - len(weights))
        with torch.no_grad():
            loss = sum(
                float((root.detach() if weight is None else root.detach() * weight).double().sum())
                for root, weight in zip(roots, weights, strict=False)
            )
        self._context.trace.emit("backward", loss=loss, site=self._context.trace.site())

    def _patch_clipping(self, name: str) -> None:
        plain = getattr(torch.nn.utils, name)

        @functools.wraps(plain)
        def clip(parameters: Any, *args: Any, **kwargs: Any) -> Any:
            clipped = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
            self._keep_unclipped(clipped)
            return plain(clipped, *args, **kwargs)

        setattr(torch.nn.utils, name, clip)
        if hasattr(torch.nn.utils.clip_grad, name):
            setattr(torch.nn.utils.clip_grad, name, clip)

    def _keep_unclipped(self, parameters: list[Any]) -> None:
        fresh = [parameter for parameter in parameters if id(parameter) not in self._unclipped]
        with torch.no_grad():
            digests = self._digester.all(parameter.grad for parameter in fresh)
        self._unclipped.update({id(parameter): digest for parameter, digest in zip(fresh, digests, strict=True)})

    def _patch_calls(self) -> None:
        """Record the input shape of outermost calls of modules that train; torch's hooks would see every submodule."""
        plain: Any = torch_module.Module.__call__

        def call(this: Any, *args: Any, **kwargs: Any) -> Any:
            outermost = self._call_depth == 0
            if outermost:
                if torch.is_grad_enabled() and this.training:
                    self._record_call(this, args, kwargs)
                elif not torch.is_grad_enabled() and not this.training:
                    self._context.trace.emit("evaluation")
                inner = this.module if isinstance(this, torch.nn.parallel.DistributedDataParallel) else this
                self._context.evaluating = not inner.training
            self._call_depth += 1
            try:
                result = plain(this, *args, **kwargs)
            finally:
                self._call_depth -= 1
                if outermost:
                    self._context.evaluating = False
            if outermost and torch.is_grad_enabled() and not self._context.probing:
                self._watch_output(result)
            return result

        torch_module.Module.__call__ = call  # type: ignore[method-assign]

    def _watch_output(self, output: Any) -> None:
        """Note the call, and whether a backward pass comes to it: what is only looked at is no training."""
        nodes = nodes_behind(output)
        if not nodes:
            return
        self._calls += 1
        number, trace = self._calls, self._context.trace
        trace.emit("call", number=number)

        def reached(*_: Any) -> None:
            if self._backward_depth and number not in self._learned:
                self._learned.add(number)
                trace.emit("learned", number=number)

        for node in nodes:
            node.register_prehook(reached)

    def _record_call(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = (*args, *kwargs.values())
        tensors = [each for each in given if isinstance(each, torch.Tensor)]
        packed = [part for each in given if isinstance(each, tuple) for part in each]  # `model((texts, lengths))`
        tensors = tensors or [each for each in packed if isinstance(each, torch.Tensor)]
        batches = [each for each in (*args, *kwargs.values()) if isinstance(each, list) and each]
        if not tensors and batches and not isinstance(batches[0][0], torch.Tensor) and not self._context.batch_rows:
            self._context.forward_rows = [len(batches[0])]  # samples that the model puts together itself
        if not tensors or not any(parameter.requires_grad for parameter in module.parameters()):
            return
        if isinstance(module, torch.nn.parallel.DistributedDataParallel):
            module = module.module
        self._by_hand.modules.setdefault(id(module), module)
        context = self._context
        for loader, number in context.given([args, kwargs]):
            context.trace.emit("trained-on", loader=loader, number=number)
        context.probing = True
        try:
            with torch.no_grad():
                varying = list(filter(_varies, tensors)) if len(tensors) > 1 else []
                value = varying[0] if varying else tensors[0]
                # where a loader tells which samples these are, it is enough to know that another batch is another one
                known = context.batch_rows and value.layout is torch.strided and value.is_contiguous()
                seen = value.detach().reshape(-1)[:LONG] if known else value
                beside = [] if context.batch_rows else varying[1:MOST_GIVEN]  # a graph may come before its signals
                digests = self._digester.all([seen, *beside]) if value.numel() else []
                digest = [number for each in digests for number in each or ()] or None
        finally:
            context.probing = False
        name = type(module).__qualname__
        if not context.batch_rows and value.dim():
            context.forward_rows = [value.shape[axis] for axis in self._sample_axes(name, value)]
        if context.distributed and value.dim() and value.shape[0] * context.plan.world in context.batch_rows.values():
            context.sliced_rows = [value.shape[0]]
        context.trace.emit("forward", module=name, shape=list(value.shape), digest=digest)
        if context.distributed and context.plan.world > 1 and id(module) not in self._seen_modules:
            self._seen_modules.add(id(module))
            self._kept.append(module)
            self._report_batchnorm(module)

    def _sample_axes(self, name: str, value: torch.Tensor) -> Sequence[int]:
        """The axes along which samples may lie: texts and series may be columns. The original knows, since that is the
        axis along which its first batch and those of the ranks differ."""
        replay = self._context.replay
        if replay is not None and name not in self._axes:
            self._axes[name] = batch_dimension(list(value.shape), replay.forwards.get(name, ()))
        axis = self._axes.get(name)
        if axis is not None and axis < value.dim():
            return (axis,)
        sequences = value.dim() == 3 or (value.dim() == 2 and not value.is_floating_point())
        return (0, 1) if sequences and self._context.distributed else (0,)

    def _report_batchnorm(self, module: Any) -> None:
        """Statistics of a part of the batch are the reason for many a difference."""
        own = [each for each in module.modules() if isinstance(each, _BatchNorm) and each.training]
        if any(not isinstance(each, torch.nn.SyncBatchNorm) and "forward" not in each.__dict__ for each in own):
            self._context.trace.emit(
                "note",
                topic="batchnorm-per-rank",
                message=f"{type(module).__qualname__} takes BatchNorm statistics over each rank's part of the batch",
                site=self._context.trace.site(),
            )

    # optimizer steps

    def _count_optimizers(self) -> None:
        plain: Any = torch_optimizer.Optimizer.__init__

        @functools.wraps(plain)
        def construct(this: Any, *args: Any, **kwargs: Any) -> None:
            self._context.optimizers += 1
            plain(this, *args, **kwargs)

        setattr(torch_optimizer.Optimizer, "__init__", construct)  # noqa: B010

    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._step_depth += 1
        if self._step_depth > 1:
            return
        self._context.probing = True
        try:
            first = id(optimizer) not in self._optimizers
            number = self._optimizers.setdefault(id(optimizer), len(self._optimizers))
            groups = []
            with torch.no_grad():
                for group in optimizer.param_groups:
                    gradients = self._digester.all(
                        None if id(parameter) in self._unclipped else parameter.grad for parameter in group["params"]
                    )
                    gradients = [
                        self._unclipped.get(id(parameter), digest)
                        for parameter, digest in zip(group["params"], gradients, strict=True)
                    ]
                    settings = {
                        key: float(value)
                        for key, value in group.items()
                        if isinstance(value, (int, float)) or (isinstance(value, torch.Tensor) and value.numel() == 1)
                    }
                    groups.append({"settings": settings, "gradients": gradients})
                self._drop_rounding(optimizer, groups)
                self._pending: dict[str, Any] = {
                    "optimizer": number,
                    "site": self._context.trace.site(),
                    "groups": groups,
                }
                self._pending["unwrapped"] = self._unwrapped(optimizer)
                if first:
                    self._kept.append(optimizer)
                    self._pending["initial"] = [self._digester.all(group["params"]) for group in optimizer.param_groups]
        finally:
            self._context.probing = False

    def _drop_rounding(self, optimizer: Any, groups: list[dict[str, Any]]) -> None:
        """Set gradients to zero that are zero but for rounding, as those of biases before BatchNorm.

        In part they may be, as those of the biases of keys among all that attention has. Optimizers that normalise
        would make of them steps in directions that no two machines agree upon.
        """
        norms = [digest[0] if digest else 0.0 for group in groups for digest in group["gradients"]]
        limit = ROUNDING[self._context.plan.dtype] * math.hypot(*norms)
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        found = [p for p, norm in zip(parameters, norms, strict=True) if 0.0 < norm <= limit and p.grad is not None]
        for parameter in found:
            parameter.grad.zero_()
        if self._context.plan.dtype == "float64" and not isinstance(optimizer, torch.optim.SGD):
            found += [p for p in parameters if p.grad is not None and drop_smaller(p.grad, limit)]
        if found and not self._context.distributed and id(optimizer) not in self._rounded:
            self._rounded.add(id(optimizer))
            self._kept.append(optimizer)
            message = (
                f"{len(found)} of {len(parameters)} gradients are zero but for rounding, or hold numbers that are, "
                "which are taken as zero in both runs"
            )
            self._context.trace.emit("note", topic="gradients-cancel", message=message, site=self._context.trace.site())

    def _unwrapped(self, optimizer: Any) -> int:
        return sum(
            parameter.grad is not None
            and id(parameter) not in self._context.wrapped
            and not hasattr(parameter, "placements")
            for group in optimizer.param_groups
            for parameter in group["params"]
        )

    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._step_depth -= 1
        if self._step_depth > 0:
            return
        self._context.probing = True
        try:
            with torch.no_grad():
                for group, recorded in zip(optimizer.param_groups, self._pending["groups"], strict=True):
                    recorded["parameters"] = self._digester.all(group["params"])
        finally:
            self._context.probing = False
        self._unclipped.clear()
        self._context.trace.emit("step", **self._pending)
        self._context.trace.flush()
        self._context.steps += 1
        self._context.indexed_rows = []
        plan = self._context.plan
        if plan.preempt == self._context.steps and plan.rank == plan.world - 1:
            os.kill(os.getpid(), signal.SIGTERM)
        if self._context.plan.steps is not None and self._context.steps >= self._context.plan.steps:
            self._stop()


class ByHand:
    """The steps that a script without an optimizer takes itself, on the modules that it trains, or on tensors that are
    in no module."""

    def __init__(self) -> None:
        self.modules: dict[int, Any] = {}
        self.leaves: list[torch.Tensor] = []
        self.held: Any = None
        self.initial: Any = None

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """All their parameters, as an optimizer would hold them."""
        found = {id(each): each for module in self.modules.values() for each in module.parameters()}
        return [{"params": list(found.values()) if self.modules else self.leaves}]

    @property
    def is_empty(self) -> bool:
        """Whether this rank's shards hold no number at all."""
        held = self.param_groups[0]["params"]
        return not any((each.to_local() if hasattr(each, "to_local") else each).numel() for each in held)


def drop_smaller(gradient: torch.Tensor, limit: float) -> bool:
    """Set the numbers of a gradient to zero that are no larger. Returns whether there were any but zeros."""
    local = gradient.to_local() if hasattr(gradient, "to_local") else gradient
    if local.layout is not torch.strided or local.dtype not in REAL:
        return False
    kept = torch.nn.functional.hardshrink(local, limit)
    dropped = not torch.equal(kept, local)
    if dropped:
        local.copy_(kept)
    return dropped


def leaves_behind(tensors: Any) -> list[torch.Tensor]:
    """The tensors at the ends of the graph behind a loss, which a backward pass gives gradients to."""
    waiting: list[Any] = [tensor.grad_fn for tensor in tensors_of(tensors) if tensor.grad_fn is not None]
    seen: set[Any] = set()
    found: list[torch.Tensor] = []
    while waiting and len(seen) < MOST_BEHIND:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if type(node).__name__ == "AccumulateGrad":
            found.append(node.variable)
        waiting += [each for each, _ in reversed(node.next_functions)]
    return found


def nodes_behind(output: Any) -> list[Any]:
    """The first nodes of the graph behind an output, without the parameters at its ends."""
    waiting: list[Any] = [tensor.grad_fn for tensor in tensors_of(output) if tensor.grad_fn is not None]
    found: dict[Any, None] = {}
    while waiting and len(found) < MOST_NODES:
        node = waiting.pop()
        if node is None or node in found or type(node).__name__ == "AccumulateGrad":
            continue
        found[node] = None
        waiting += [each for each, _ in reversed(node.next_functions)]
    return list(found)


def _varies(value: torch.Tensor) -> bool:
    """Whether a tensor says which samples it holds; a state of zeros is the same for all."""
    if value.layout is not torch.strided:
        value = value.to_dense()  # the adjacency of a graph
    return bool(value.numel()) and bool((value != value.reshape(-1)[0]).any())
