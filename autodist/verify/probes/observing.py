"""Records the values of a script that others see or train on, and the operations of its training steps, for `observe`.

A run on the whole batch leaves its gradients and the state of its layers at every step; a run on a share takes them
over there, so that all runs compute with the same weights throughout.
"""

from __future__ import annotations

import ast
import builtins
import functools
import importlib.machinery
import os
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules import module as torch_module
from torch.optim import optimizer as torch_optimizer
from torch.utils import data as torch_data
from torch.utils._python_dispatch import TorchDispatchMode

from autodist.verify.plan import Place

if TYPE_CHECKING:
    from autodist.verify.probes import ProbeContext

SEEN = "__autodist_seen__"
SHOWS = frozenset(
    "print info warning debug error log write set_postfix set_description set_postfix_str add_scalar log_metric".split()
)
SAVES = frozenset("save dump dumps savez savetxt writerow".split())
MOST_NUMBERS = 1 << 18
"""Of a tensor that is recorded; larger ones are not looked at."""
MOST_OPERATIONS, MOST_BYTES = 20_000, 1 << 28
"""Of all steps together; what comes later is not looked at."""
SHAKEN = 0.1
"""By how much of their size the weights are moved in a second round, where a head may begin at zero."""


@dataclass(frozen=True)
class Observing:
    """What one run of `observe` is to do."""

    whole: str
    """The file in which the run on whole batches leaves gradients, and the others find them."""
    follows: bool = False
    shaken: bool = False
    places: Mapping[str, Sequence[Place]] = field(default_factory=dict)
    """By file, below the folder of the script, the expressions that are recorded beside what others see."""


@dataclass
class Seen:
    """One value at one place, as often as the place was come to."""

    kind: str
    """differentiated, shown, compared, saved, gradient, site (an expression that was asked for), or operation."""
    site: str
    text: str
    value: Any
    rows: int = 0
    """Samples in the batch at hand."""
    total: int = 0
    """Samples of the pass so far."""
    step: int = 0
    """The number of the last training batch that was begun, from 0; -1 before."""
    operation: int = -1
    """The number of the operation in its step that gave it."""
    inputs: list[int] = field(default_factory=list)
    lines: str = ""
    """Of an operation, all lines of the user's own code that are at work."""


class ObservingProbe:
    """Marks values in the user's files, and follows the training steps."""

    def __init__(self, context: ProbeContext, observing: Observing, path: str) -> None:
        self._context, self._observing, self._root = context, observing, context.plan.root
        self._file = open(path, "wb")  # noqa: SIM115 - open until the process ends
        self._sites: list[tuple[str, str, str]] = []
        self._log: _Log | None = None
        self._paused = self._ended = False
        self._modules: dict[int, torch.nn.Module] = {}
        self._rows = self._total = 0
        self._step = -1
        self._states: Any = None if observing.follows else open(observing.whole, "wb")  # noqa: SIM115
        kept = list(pickled(observing.whole)) if observing.follows else []
        self._whole = [rest for kind, *rest in kept if kind == "step"]
        self._statistics = [rest for kind, *rest in kept if kind == "statistics"]
        self._moved: set[int] = set()

    def install(self) -> None:
        """Mark what is loaded from now on, and hook loaders, modules and optimizers."""
        vars(builtins)[SEEN] = self._see
        loader: Any = importlib.machinery.SourceFileLoader
        plain = loader.source_to_code

        def source_to_code(own: Any, data: Any, path: Any, **options: Any) -> Any:
            name = os.path.abspath(os.fsdecode(path))
            if isinstance(data, bytes) and name.startswith(self._root + os.sep):
                return self.compiled(data, name)
            return plain(own, data, path, **options)

        loader.source_to_code = source_to_code
        iteration: Any = torch_data.dataloader._SingleProcessDataLoaderIter
        following = iteration._next_data

        def next_data(this: Any) -> Any:
            self._end_log()
            batch = following(this)
            self._begun(this)
            return batch

        iteration._next_data = next_data
        torch_module.register_module_forward_pre_hook(self._remember)
        if self._observing.shaken:
            self._shake_new_ones()
        self._share_statistics()
        torch_optimizer.register_optimizer_step_pre_hook(self._before_step)
        torch_optimizer.register_optimizer_step_post_hook(self._after_step)

    def compiled(self, data: bytes, path: str) -> CodeType:
        """The code of a file in which the values are handed to us as they are computed."""
        name = os.path.relpath(path, self._root)
        tree = ast.parse(data)
        tree = _Marker(name, self._sites, tree, self._observing.places.get(name.replace(os.sep, "/"), ())).visit(tree)
        code: CodeType = compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)
        return code

    def end(self) -> None:
        """Everything is on the disk from now on."""
        self._end_log()
        self._ended = True
        self._file.flush()

    def _begun(self, iteration: Any) -> None:
        """A batch has come; if it is one that trains, its step begins."""
        context, record = self._context, getattr(iteration, "_autodist_pass", None)
        if record is None or context.replay is None or record.key not in context.replay.training:
            return
        self._rows = context.batch_rows.get(record.loader, 0)
        self._total = self._rows + (self._total if record.taken > 1 else 0)
        self._step += 1
        self._log = _Log(context)
        self._enter()

    def _end_log(self) -> None:
        if self._log is None:
            return
        log, self._log = self._log, None
        if not self._paused:
            self._exit(log)
        self._paused = False
        for number, (name, lines, value, inputs) in enumerate(log.operations):
            site = lines[0] if lines else "?"
            seen = Seen("operation", site, name, value, self._rows, self._total, self._step, number, inputs, str(lines))
            pickle.dump(seen, self._file, protocol=pickle.HIGHEST_PROTOCOL)

    def _enter(self) -> None:
        log: Any = self._log
        log.__enter__()

    @staticmethod
    def _exit(log: Any) -> None:
        log.__exit__(None, None, None)

    def _remember(self, module: torch.nn.Module, _: Any) -> None:
        if next(iter(module._buffers), None) is not None:
            self._modules.setdefault(id(module), module)

    def _share_statistics(self) -> None:
        """BatchNorm takes those of the whole batch in all runs, as constants: SyncBatchNorm sees to that on ranks."""
        functional: Any = torch.nn.functional
        plain = functional.batch_norm

        @functools.wraps(plain)
        def batch_norm(
            input: torch.Tensor,
            running_mean: Any,
            running_var: Any,
            weight: Any = None,
            bias: Any = None,
            training: bool = False,
            momentum: float = 0.1,
            eps: float = 1e-5,
        ) -> Any:
            if not training or self._ended or self._step < 0:
                return plain(input, running_mean, running_var, weight, bias, training, momentum, eps)
            context = self._context
            context.probing = True
            try:
                with torch.no_grad():
                    if not self._observing.follows:
                        axes = [axis for axis in range(input.dim()) if axis != 1]
                        variance, mean = torch.var_mean(input, axes, correction=0)
                        pickle.dump(("statistics", mean, variance), self._states)
                        plain(input, running_mean, running_var, None, None, True, momentum, eps)
                    elif self._statistics:
                        mean, variance = self._statistics.pop(0)
                    else:
                        return plain(input, running_mean, running_var, weight, bias, True, momentum, eps)
            finally:
                context.probing = False
            return plain(input, mean, variance, weight, bias, False, momentum, eps)

        functional.batch_norm = batch_norm

    def _before_step(self, optimizer: Any, *_: Any) -> None:
        """Record the gradients; then leave them for others, or take over those of the whole batch."""
        if self._log is not None and not self._paused:  # what optimizers compute is theirs
            self._exit(self._log)
            self._paused = True
        context = self._context
        if self._ended:
            return
        site = context.trace.site()
        context.probing = True
        try:
            with torch.no_grad():
                parameters = [each for group in optimizer.param_groups for each in group["params"]]
                gradients = [None if each.grad is None else each.grad.detach().clone() for each in parameters]
                buffers = [each for module in self._modules.values() for each in module._buffers.values()]
                for number, gradient in enumerate(gradients):
                    if gradient is not None and not gradient.is_sparse:
                        self._write("gradient", site, f"gradient of parameter {number}", _kept(gradient))
                if not self._observing.follows:
                    states = [None if each is None else each.clone() for each in buffers]
                    pickle.dump(("step", gradients, states), self._states)
                    self._states.flush()
                elif self._whole:
                    whole, states = self._whole.pop(0)
                    for parameter, gradient in zip(parameters, whole, strict=False):
                        parameter.grad = gradient
                    for buffer, state in zip(buffers, states, strict=False):
                        if buffer is not None and state is not None and buffer.shape == state.shape:
                            buffer.copy_(state)
        finally:
            context.probing = False
        self._file.flush()

    def _after_step(self, *_: Any) -> None:
        if self._log is not None and self._paused:
            self._paused = False
            self._enter()

    def _shake_new_ones(self) -> None:
        optimizer: Any = torch_optimizer.Optimizer
        plain = optimizer.__init__

        @functools.wraps(plain)
        def construct(this: Any, *args: Any, **kwargs: Any) -> None:
            plain(this, *args, **kwargs)
            self._shake(this)

        optimizer.__init__ = construct

    def _shake(self, optimizer: Any) -> None:
        """Move the weights a little, the same way in every run."""
        generator = torch.Generator().manual_seed(20240229)
        for group in optimizer.param_groups:
            for each in group["params"]:
                if id(each) not in self._moved:
                    self._moved.add(id(each))
                    noise = torch.empty(each.shape, dtype=each.dtype).normal_(generator=generator)
                    each.data.add_(SHAKEN * (0.2 + each.detach().abs().mean()) * noise.to(each.device))

    def _see(self, number: int, value: Any) -> Any:
        """What the marks in the code call: the value goes on as it is."""
        context = self._context
        if not context.probing:
            kind, site, text = self._sites[number]
            context.probing = True
            try:
                for key, leaf in _leaves(value):
                    made = self._log.number_of(leaf) if self._log is not None else -1
                    self._write(kind, site, f"{text}{key}", _kept(leaf), made)
            finally:
                context.probing = False
        return value

    def _write(self, kind: str, site: str, text: str, value: Any, operation: int = -1) -> None:
        seen = Seen(kind, site, text, value, self._rows, self._total, self._step, operation)
        pickle.dump(seen, self._file, protocol=pickle.HIGHEST_PROTOCOL)


class _Log(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The operations of one step, with what they gave."""

    bytes = 0

    def __init__(self, context: ProbeContext) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._context = context
        self.operations: list[tuple[str, list[str], Any, list[int]]] = []
        self._made: dict[int, int] = {}
        self._read: dict[float, int] = {}
        self._kept: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        context = self._context
        if context.probing or len(self.operations) >= MOST_OPERATIONS or _Log.bytes > MOST_BYTES:
            return result
        context.probing = True
        try:
            given = [self._made[id(each)] for each in _tensors((args, kwargs)) if id(each) in self._made]
            lines, name = context.trace.sites(), str(func).removeprefix("aten.")
            for each in result if isinstance(result, (tuple, list)) else [result]:
                if isinstance(each, (torch.Tensor, int, float)):
                    if isinstance(each, torch.Tensor):
                        self._made[id(each)] = len(self.operations)
                        self._kept.append(each)
                        _Log.bytes += each.numel() * 8
                    else:
                        self._read[float(each)] = len(self.operations)
                    self.operations.append((name, lines, _kept(each), given))
        finally:
            context.probing = False
        return result

    def number_of(self, value: Any) -> int:
        """The operation that gave a tensor, or a number that was read from one."""
        if isinstance(value, torch.Tensor):
            return self._made.get(id(value), -1)
        return self._read.get(float(value), -1) if isinstance(value, (int, float)) else -1


def pickled(path: str) -> Iterator[Any]:
    """All objects in a file, one after the other; one that was cut short is left out."""
    with open(path, "rb") as file:
        while True:
            try:
                yield pickle.load(file)
            except (EOFError, pickle.UnpicklingError):
                return


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else ()
    return [each for part in parts for each in _tensors(part)]


def _kept(value: Any) -> Any:
    """A copy that later changes leave alone; the shape alone of what is too large."""
    if not isinstance(value, torch.Tensor):
        return value
    if value.numel() > MOST_NUMBERS or value.layout is not torch.strided or value.is_meta:
        return tuple(value.shape)
    kept = value.detach().cpu()
    return kept.clone() if kept.is_complex() or not kept.is_floating_point() else kept.double().clone()


def _leaves(value: Any, key: str = "", depth: int = 0) -> list[tuple[str, Any]]:
    """The numbers and tensors in a value, by where they are in it."""
    if isinstance(value, (bool, int, float, torch.Tensor)):
        return [(key, value)]
    if hasattr(value, "__array__") and hasattr(value, "dtype"):
        try:
            return [(key, torch.as_tensor(value.item() if getattr(value, "shape", ()) == () else value))]
        except (TypeError, ValueError, RuntimeError):
            return []
    if depth > 4:
        return []
    if isinstance(value, dict):
        return [leaf for each, part in value.items() for leaf in _leaves(part, f"{key}[{each!r}]", depth + 1)]
    if isinstance(value, (list, tuple)):
        if value and all(isinstance(each, (bool, int, float)) for each in value):
            return [(key, torch.tensor([float(each) for each in value], dtype=torch.float64))]
        return [leaf for at, part in enumerate(value) for leaf in _leaves(part, f"{key}[{at}]", depth + 1)]
    return []


def place_of(node: ast.expr) -> Place:
    """Where an expression is in its file."""
    return node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0


class _Marker(ast.NodeTransformer):
    """Hands values to us where they are shown, compared, saved and differentiated."""

    def __init__(self, file: str, sites: list[tuple[str, str, str]], tree: ast.AST, places: Sequence[Place]) -> None:
        self._file, self._sites = file, sites
        named, wanted = (each for each in ast.walk(tree) if isinstance(each, ast.expr)), {*places}
        self._places: dict[ast.AST, Place] = {each: place for each in named if (place := place_of(each)) in wanted}

    def visit(self, node: ast.AST) -> Any:
        """What is asked for, beside what others see."""
        place, text = self._places.get(node), ast.unparse(node) if node in self._places else ""
        visited = super().visit(node)
        if place is None:
            return visited
        return self._recorded("site", visited, f"{':'.join(map(str, place))} {text}")

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Arguments of what shows and saves, and what `backward` is called on."""
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if isinstance(function, ast.Attribute) and name == "backward":
            function.value = self._seen("differentiated", function.value)
        elif name == "grad" and node.args and isinstance(function, ast.Attribute):
            node.args[0] = self._seen("differentiated", node.args[0])
        elif kind := "saved" if name in SAVES else "shown" if name in SHOWS else "":
            node.args = [self._shown(kind, each) for each in node.args]
            for keyword in node.keywords:
                if keyword.arg not in ("file", "sep", "end", "flush"):
                    keyword.value = self._shown(kind, keyword.value)
        return self.generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.AST:
        """What decides."""
        return self._decides(node)

    visit_While = visit_IfExp = visit_Assert = visit_If  # type: ignore[assignment]

    def _decides(self, node: Any) -> ast.AST:
        for each in ast.walk(node.test):
            if isinstance(each, ast.Compare):
                each.left = self._seen("compared", each.left)
                each.comparators = [self._seen("compared", one) for one in each.comparators]
        return self.generic_visit(node)

    def _shown(self, kind: str, node: ast.expr) -> ast.expr:
        """The values in a text that is put together on the spot, or the argument itself."""
        if isinstance(node, ast.JoinedStr):
            for each in node.values:
                if isinstance(each, ast.FormattedValue):
                    each.value = self._seen(kind, each.value)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and isinstance(node.left, ast.Constant):
            several = isinstance(node.right, ast.Tuple)
            if isinstance(node.right, ast.Tuple):
                node.right.elts = [self._seen(kind, each) for each in node.right.elts]
            elif not several:
                node.right = self._seen(kind, node.right)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
            node.args = [self._seen(kind, each) for each in node.args]
            for keyword in node.keywords:
                keyword.value = self._seen(kind, keyword.value)
        else:
            return self._seen(kind, node)
        return node

    def _seen(self, kind: str, node: ast.expr) -> ast.expr:
        if isinstance(node, (ast.Constant, ast.Starred, ast.JoinedStr, ast.Lambda, ast.GeneratorExp)):
            return node
        return self._recorded(kind, node, ast.unparse(node))

    def _recorded(self, kind: str, node: ast.expr, text: str) -> ast.expr:
        self._sites.append((kind, f"{self._file}:{node.lineno}", text))
        call = ast.Call(ast.Name(SEEN, ast.Load()), [ast.Constant(len(self._sites) - 1), node], [])
        return ast.copy_location(call, node)
