"""Measures a script that trains: how long its steps take and what they hold in memory, and how fast its loader is.

For `autodist plan`. Nothing is steered: the script runs as it is, but that the size of its batches may be divided.
"""

from __future__ import annotations

import atexit
import functools
import gc
import inspect
import json
import os
import statistics
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import optimizer as torch_optimizer
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.data import DataLoader
from torch.utils.data import dataloader as torch_dataloader

from autodist.verify.probes.held_batches import tensors_of

SETTLING, TRACKED, TIMED = 2, 2, 10
"""Steps until optimizers have their state and libraries have chosen their kernels; steps whose memory is followed, of
which the last counts; steps that are timed."""
LEAST_TIMED = 3
TIMED_SECONDS = 20.0
"""When so much is timed, and `LEAST_TIMED` steps, it is enough."""
LOADED_SECONDS, LOADED_BATCHES = 3.0, 50
BLOCK = 512
"""Memory is given out in pieces of so many bytes."""


class Storages(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follows all memory that operations give out and free again, apart from what exists when it begins."""

    def __init__(self, device: str, lasting: Iterable[torch.Tensor], parameters: Iterable[Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._device = device
        self._lasting: set[int] = set()
        self._sizes: dict[int, int] = {}
        self._gradients: set[int] = set()
        self.live = self.gradients = 0
        self.most: dict[int, int] = {}
        """For each amount of gradients, the most that is held besides them."""
        self._hooks = []
        for tensor in lasting:
            self._exists(tensor)
        for parameter in parameters:
            if parameter.grad is not None:
                self.add(parameter.grad)
                self._has_gradient(parameter)
            if parameter.requires_grad:
                self._hooks.append(parameter.register_post_accumulate_grad_hook(self._has_gradient))

    @property
    def held(self) -> int:
        """What there is besides gradients."""
        return self.live - self.gradients

    def end(self) -> None:
        """Take the hooks away."""
        for hook in self._hooks:
            hook.remove()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for given in tree_leaves((args, kwargs)):  # what exists already is not what this operation makes
            if isinstance(given, torch.Tensor):
                self._exists(given)
        result = func(*args, **(kwargs or {}))
        for made in tree_leaves(result):
            if isinstance(made, torch.Tensor):
                self.add(made)
        self.look()
        return result

    def add(self, tensor: torch.Tensor) -> None:
        """Memory that a tensor lies in."""
        key = self._key(tensor)
        if tensor.device.type != self._device or key in self._sizes or key in self._lasting or not key:
            return
        storage = tensor.untyped_storage()
        self._sizes[key] = -(-storage.nbytes() // BLOCK) * BLOCK
        self.live += self._sizes[key]
        weakref.finalize(storage, self._freed, key).atexit = False

    def _exists(self, tensor: torch.Tensor) -> None:
        """Leave out memory that was there before, until it is freed: another tensor may have its place then."""
        key = self._key(tensor)
        if key and key not in self._sizes and key not in self._lasting:
            self._lasting.add(key)
            weakref.finalize(tensor.untyped_storage(), self._lasting.discard, key).atexit = False

    def look(self) -> None:
        """Take down what is held now."""
        self.most[self.gradients] = max(self.held, self.most.get(self.gradients, 0))

    def _has_gradient(self, parameter: torch.Tensor) -> None:
        key = self._key(parameter.grad) if parameter.grad is not None else 0
        if key in self._sizes and key not in self._gradients:
            self._gradients.add(key)
            self.gradients += self._sizes[key]

    def _freed(self, key: int) -> None:
        size = self._sizes.pop(key, 0)
        self.live -= size
        if key in self._gradients:
            self._gradients.discard(key)
            self.gradients -= size

    @staticmethod
    def _key(tensor: torch.Tensor) -> int:
        try:
            return int(tensor.untyped_storage()._cdata)
        except (NotImplementedError, RuntimeError):  # of a sparse tensor, and the like
            return 0


@dataclass
class Interval:
    """What happened between two steps."""

    began: float = 0.0
    waited: float = 0.0
    backward: float = 0.0
    samples: dict[int, int] = field(default_factory=dict)
    batches: dict[int, int] = field(default_factory=dict)


class MeasuringProbe:
    """Hooks optimizers, loaders, backward passes and, for a while, modules."""

    def __init__(self, result: Path, divided: int, stop: Callable[[], None]) -> None:
        self._result, self._divided, self._stop = result, divided, stop
        self._optimizers: dict[int, Any] = {}
        self._loaders: dict[int, Any] = {}
        self._first: int | None = None
        self._steps = 0
        self._now = Interval()
        self._timed: list[tuple[float, Interval]] = []
        self._storages: Any = None
        self._kept: list[int] = []
        """What the forward passes of blocks keep for their backward passes, beyond what they give on."""
        self._training: dict[int, int] = {}
        self._updating = 0
        self._hooks: list[Any] = []
        self._measured: dict[str, Any] = {}
        self._computes_again = False
        """What is computed now was checkpointed."""
        self._over = False

    def install(self) -> None:
        """Hook what there is."""
        torch_optimizer.register_optimizer_step_pre_hook(self._before_step)
        torch_optimizer.register_optimizer_step_post_hook(self._after_step)
        self._patch_backward()
        self._patch_loaders()
        atexit.register(self._write)

    # ------------------------------------------------------------ what is watched

    def _patch_backward(self) -> None:
        plain = torch.autograd.backward

        @functools.wraps(plain)
        def backward(*args: Any, **kwargs: Any) -> None:
            synchronise()
            began, self._computes_again = time.perf_counter(), True
            plain(*args, **kwargs)
            synchronise()
            self._now.backward += time.perf_counter() - began
            self._computes_again = False

        torch.autograd.backward = backward

    def _patch_loaders(self) -> None:
        plain_init, plain_iter = DataLoader.__init__, DataLoader.__iter__
        plain_next = torch_dataloader._BaseDataLoaderIter.__next__
        signature = inspect.signature(plain_init)
        probe = self

        @functools.wraps(plain_init)
        def init(loader: Any, *args: Any, **kwargs: Any) -> None:
            given = signature.bind(loader, *args, **kwargs).arguments
            sampler = given.get("batch_sampler")
            if sampler is not None and isinstance(getattr(sampler, "batch_size", None), int):
                sampler.batch_size = max(1, sampler.batch_size // probe._divided)
            elif sampler is None and isinstance(given.get("batch_size", 1), int):
                given["batch_size"] = max(1, given.get("batch_size", 1) // probe._divided)
            more = given.pop("kwargs", {})
            plain_init(**given, **more)

        @functools.wraps(plain_iter)
        def iterate(loader: Any) -> Any:
            began = time.perf_counter()
            iterator: Any = plain_iter(loader)
            probe._now.waited += time.perf_counter() - began
            iterator.measured_loader = loader
            return iterator

        @functools.wraps(plain_next)
        def following(iterator: Any) -> Any:
            began = time.perf_counter()
            batch = plain_next(iterator)
            probe._fetched(getattr(iterator, "measured_loader", None), batch, time.perf_counter() - began)
            return batch

        loaders: Any = DataLoader
        iterators: Any = torch_dataloader._BaseDataLoaderIter
        loaders.__init__, loaders.__iter__, iterators.__next__ = init, iterate, following

    def _fetched(self, loader: Any, batch: Any, seconds: float) -> None:
        if loader is None or self._over:
            return
        tensors = [each for each in tensors_of(batch) if each.dim()]
        count = len(tensors[0]) if tensors else 0
        size = loader.batch_size or getattr(loader.batch_sampler, "batch_size", None)
        count = min(count, size) if isinstance(size, int) and count else size or count
        now, key = self._now, id(loader)
        self._loaders[key] = loader
        now.waited += seconds
        now.samples[key] = now.samples.get(key, 0) + count
        now.batches[key] = now.batches.get(key, 0) + 1
        if self._storages is not None:
            for tensor in tensors:
                self._storages.add(tensor)
            self._storages.look()

    # ------------------------------------------------------------ steps

    def _before_step(self, optimizer: Any, *_: Any) -> None:
        self._optimizers.setdefault(id(optimizer), optimizer)
        if self._storages is not None:
            self._storages.look()
            self._training, self._storages.most = self._storages.most, {}

    def _after_step(self, optimizer: Any, *_: Any) -> None:
        if self._over:
            return
        if self._storages is not None:
            most = max(self._storages.most.values(), default=0)
            self._updating, self._storages.most = max(self._updating, most), self._training
        self._first = self._first or id(optimizer)
        if id(optimizer) != self._first:
            return
        synchronise()
        seconds = time.perf_counter() - self._now.began
        self._steps += 1
        if self._steps == SETTLING:
            self._track()
        elif self._storages is not None and self._steps == SETTLING + TRACKED - 1:
            self._storages.most.clear()
            self._kept.clear()
            self._updating = 0
        elif self._storages is not None:
            self._untrack()
        elif self._steps > SETTLING + TRACKED + 1:
            self._timed.append((seconds, self._now))
            spent = sum(each for each, _ in self._timed)
            if len(self._timed) >= TIMED or len(self._timed) >= LEAST_TIMED and spent > TIMED_SECONDS:
                self._load_alone()
                self._over = True
                self._write()
                self._stop()
        self._now = Interval(began=time.perf_counter())

    # ------------------------------------------------------------ memory

    def _parameters(self) -> list[torch.Tensor]:
        """Of all optimizers, each once."""
        groups = [group for each in self._optimizers.values() for group in each.param_groups]
        return list({id(each): each for group in groups for each in group["params"]}.values())

    def _track(self) -> None:
        trained = self._parameters()
        device = trained[0].device.type if trained else "cpu"
        state = [
            each
            for optimizer in self._optimizers.values()
            for values in optimizer.state.values()
            for each in tree_leaves(values)
            if isinstance(each, torch.Tensor) and each.device.type == device and each.dim()
        ]
        known = {id(each) for each in (*trained, *state)}
        modules = [each for each in gc.get_objects() if issubclass(type(each), nn.Module)]  # also a copy for averages
        held = [each for module in modules for each in (*module.parameters(False), *module.buffers(False))]
        lasting = [each for each in held if id(each) not in known and each.device.type == device]
        blocks = list(repeated(roots_of(modules, {id(each) for each in trained})))
        sizes = [size(block.parameters()) for block in blocks]
        self._measured = {
            "device": torch.cuda.get_device_name() if device == "cuda" else device,
            "parameters": size(trained),
            "count": sum(each.numel() for each in trained),
            "gradients": size(each for each in trained if each.requires_grad),
            "state": size(state),
            "lasting": size(lasting),
            "units": len(sizes) + 1,
            "largest": max(sizes, default=0),
            "rest": max(0, size(trained) - sum(sizes)),
        }
        self._storages = storages = Storages(device, [*trained, *state, *lasting], trained)
        self._hooks = [hook for block in blocks for hook in self._watch(block, storages)]
        self._storages.__enter__()

    def _watch(self, block: nn.Module, storages: Storages) -> Iterator[Any]:
        before: list[int] = []

        def entered(*_: Any) -> None:
            before.append(storages.held)

        def left(_: Any, __: Any, output: Any) -> None:
            given = sum(each.nbytes for each in tree_leaves(output) if isinstance(each, torch.Tensor))
            if before and torch.is_grad_enabled() and not self._computes_again:
                self._kept.append(max(0, storages.held - before.pop() - given))

        yield block.register_forward_pre_hook(entered)
        yield block.register_forward_hook(left)

    def _untrack(self) -> None:
        storages = self._storages
        storages.__exit__(None, None, None)
        storages.end()
        for hook in self._hooks:
            hook.remove()
        self._measured |= {
            "curve": curve(storages.most),
            "updating": self._updating,
            "saved": sum(self._kept) - max(self._kept, default=0),
        }
        self._storages = None

    # ------------------------------------------------------------ what comes out

    def _training_loader(self) -> int | None:
        """The one that gave batches before most steps."""
        counts = [key for _, interval in self._timed for key in interval.batches]
        return statistics.mode(counts) if counts else None

    def _load_alone(self) -> None:
        """Read on, and compute nothing."""
        key = self._training_loader()
        if key is None or self._divided > 1:
            return
        iterator = iter(self._loaders[key])
        next(iterator, None)  # workers have started
        self._now, began = Interval(), time.perf_counter()
        for _ in range(LOADED_BATCHES):
            if next(iterator, None) is None or time.perf_counter() - began > LOADED_SECONDS:
                break
        if self._now.waited > 0 and self._now.samples:
            self._measured["rate"] = self._now.samples[key] / (time.perf_counter() - began)

    def _write(self) -> None:
        """What is known, once."""
        if not self._timed or "curve" not in self._measured or self._result.exists():
            return
        key = self._training_loader() or 0
        alone = [each for each in self._timed if not each[1].batches or [*each[1].batches] == [key]] or self._timed
        compute = [seconds - interval.waited for seconds, interval in alone]
        shares = [interval.backward / max(seconds - interval.waited, 1e-9) for seconds, interval in alone]
        loader = self._loaders.get(key)
        found = {
            **self._measured,
            "torch": torch.__version__,
            "seconds": statistics.median(compute),
            "backward": statistics.median(shares),
            "samples": statistics.median_high([each.samples.get(key, 0) for _, each in alone]),
            "passes": statistics.median_high([each.batches.get(key, 1) for _, each in alone]),
            "workers": getattr(loader, "num_workers", 0),
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            "steps": len(alone),
        }
        self._result.write_text(json.dumps(found), encoding="utf-8")


def synchronise() -> None:
    """Wait until a GPU is done."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def size(tensors: Iterable[torch.Tensor]) -> int:
    """Bytes of the memory that tensors lie in, each counted once."""
    return sum({id(each): each.nbytes for each in tensors}.values())


def roots_of(modules: Iterable[nn.Module], trained: set[int]) -> list[nn.Module]:
    """The outermost modules that hold parameters which are trained."""
    holding = [module for module in modules if any(id(each) in trained for each in module.parameters())]
    inside = {id(each) for module in holding for each in module.modules() if each is not module}
    return [module for module in holding if id(module) not in inside]


def repeated(roots: Iterable[nn.Module]) -> Iterator[nn.Module]:
    """The modules with parameters in lists and sequences of a model, but for single layers: each is sharded and
    checkpointed by itself."""
    for root in roots:
        holding = [each for each in root.children() if any(map(is_list, each.modules()))]
        pending = holding if is_list(root) and holding else [root]  # of a sequence of a backbone and a head the insides
        while pending:
            module = pending.pop()
            for child in module.children():
                if not is_list(module) or is_list(child):
                    pending.append(child)
                elif any(True for _ in child.parameters()) and any(True for _ in child.children()):
                    yield child


def is_list(module: nn.Module) -> bool:
    """Whether a module only holds others in their order."""
    return isinstance(module, (nn.ModuleList, nn.Sequential))


def curve(most: dict[int, int]) -> list[tuple[int, int]]:
    """Gradients, and what is held besides them: only where more of the one does not come with more of the other."""
    found: list[tuple[int, int]] = []
    for gradients in sorted(most, reverse=True):
        if not found or most[gradients] > found[-1][1]:
            found.append((gradients, most[gradients]))
    return found
