"""The process group: when it is made, what is wrapped, and a teardown that cannot hang.

Freeing DDP after ``destroy_process_group`` hangs or aborts with gloo in torch 2.13, also for right scripts. So the
group stays until the process leaves, and the process leaves by ``os._exit``. To the script it is gone: what still asks
for its rank fails as it would.
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from autodist.verify.probes import ProbeContext


COLLECTIVES = (
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "broadcast_object_list",
    "gather",
    "gather_object",
    "monitored_barrier",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
    "scatter_object_list",
)


NEAREST = 8
"""Lines that call a collective, and are written down: what one of them has drawn is sent."""
QUESTIONS = ("get_rank", "get_world_size", "get_backend")


class GroupProbe:
    """Installed on every process; the original of a pair has no group and is not affected."""

    def __init__(self, context: ProbeContext) -> None:
        self._context = context
        self._kept: list[Any] = []
        self._depth = 0
        self._gone = False

    def install(self) -> None:
        """Patch setup, teardown and wrapping."""
        if not dist.is_available():
            return
        self._patch_setup()
        self._patch_teardown()
        self._patch_wrapper()
        for name in COLLECTIVES:
            if hasattr(dist, name):
                self._patch_collective(name)

    def _speak_gloo(self, kwargs: dict[str, Any]) -> None:
        """NCCL takes one rank a GPU; where several share one, whatever asks for it gets gloo."""
        if self._context.plan.shared_gpu:
            if "nccl" in str(kwargs.get("backend") or "nccl"):
                kwargs["backend"] = "gloo"
            kwargs.pop("device_id", None)
            kwargs.pop("pg_options", None)

    def _patch_collective(self, name: str) -> None:
        """Write down each collective before it is entered: where ranks part, one of them does not come back."""
        plain = getattr(dist, name)

        @functools.wraps(plain)
        def collective(*args: Any, **kwargs: Any) -> Any:
            trace = self._context.trace
            if self._depth == 0 and not self._context.probing:
                self._fail_if_gone()
                single = self._context.single
                sent = single is not None and any(each is single[0]() for each in args if each is not None)
                lines = [*trace.sites()[:NEAREST], *([single[1]] if single is not None and sent else [])]
                trace.emit("collective", name=name, site=trace.site(), lines=lines)
                trace.flush()
                self._context.collectives += 1
            if self._context.plan.shared_gpu and name == "barrier":
                kwargs.pop("device_ids", None)
            self._depth += 1
            try:
                return plain(*args, **kwargs)
            finally:
                self._depth -= 1

        setattr(dist, name, collective)
        setattr(dist.distributed_c10d, name, collective)

    def _patch_setup(self) -> None:
        plain = dist.init_process_group
        signature = inspect.signature(plain)

        @functools.wraps(plain)
        def init(*args: Any, **kwargs: Any) -> None:
            self._context.trace.emit("group", site=self._context.trace.site())
            arguments = signature.bind(*args, **kwargs).arguments
            self._speak_gloo(arguments)
            if not self._gone:  # the same again, after it was destroyed
                plain(**arguments)
            self._gone = False
            self._context.collectives += 1

        dist.init_process_group = init
        dist.distributed_c10d.init_process_group = init
        plain_new = dist.new_group

        @functools.wraps(plain_new)
        def new(*args: Any, **kwargs: Any) -> Any:
            arguments = inspect.signature(plain_new).bind(*args, **kwargs).arguments
            self._speak_gloo(arguments)
            group = plain_new(**arguments)
            self._context.collectives += 1
            return group

        dist.new_group = new
        dist.distributed_c10d.new_group = new

    def _patch_teardown(self) -> None:
        def destroy(group: Any = None) -> None:
            self._gone = self._gone or group is None or group is dist.group.WORLD
            self._context.trace.emit("note", topic="destroyed", message="", site=self._context.trace.site())

        plain = dist.is_initialized
        destroy_and_ask = {"destroy_process_group": destroy, "is_initialized": lambda: plain() and not self._gone}
        for name, patched in {**destroy_and_ask, **{name: self._asking(name) for name in QUESTIONS}}.items():
            setattr(dist, name, patched)
            setattr(dist.distributed_c10d, name, patched)

    def _asking(self, name: str) -> Any:
        plain = getattr(dist, name)

        @functools.wraps(plain)
        def ask(*args: Any, **kwargs: Any) -> Any:
            if self._depth == 0 and not self._context.probing:
                self._fail_if_gone()
            return plain(*args, **kwargs)

        return ask

    def _fail_if_gone(self) -> None:
        if self._gone:
            raise ValueError(
                "Default process group has not been initialized, please make sure to call init_process_group."
            )

    def _patch_wrapper(self) -> None:
        wrapper: Any = torch.nn.parallel.DistributedDataParallel
        plain = wrapper.__init__

        @functools.wraps(plain)
        def construct(this: Any, module: Any, *args: Any, **kwargs: Any) -> None:
            plain(this, module, *args, **kwargs)
            self._context.collectives += 1
            self._kept.append(this)
            self._context.wrapped.update(id(parameter) for parameter in module.parameters())
            self._context.trace.emit(
                "wrap",
                module=type(module).__qualname__,
                parameters=sum(parameter.requires_grad for parameter in module.parameters()),
                site=self._context.trace.site(),
            )

        wrapper.__init__ = construct
        plain_load = wrapper.load_state_dict

        @functools.wraps(plain_load)
        def load_state_dict(this: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
            if state and not any(str(key).startswith("module.") for key in state):
                message = "a wrapped model loads a checkpoint without the prefix 'module.'"
                self._context.trace.emit("note", topic="wrapped-load", message=message, site=self._context.trace.site())
            return plain_load(this, state, *args, **kwargs)

        wrapper.load_state_dict = load_state_dict
        plain_forward = wrapper.forward

        @functools.wraps(plain_forward)
        def forward(this: Any, *args: Any, **kwargs: Any) -> Any:
            if torch.is_grad_enabled() and this.training:
                self._context.trace.emit("wrapped-call", reduces=bool(this.require_backward_grad_sync))
            return plain_forward(this, *args, **kwargs)

        wrapper.forward = forward
