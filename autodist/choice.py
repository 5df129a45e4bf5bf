"""Which strategy fits a script: DDP if what training holds fits one device, FSDP if it does not, with figures."""

from __future__ import annotations

from dataclasses import replace

from autodist import catalog
from autodist.config import Config, Strategy
from autodist.deep import deep
from autodist.footprint import Footprint, Uncounted, footprint
from autodist.interpreter import Interpreter, Plan
from autodist.models import trained_models
from autodist.project import Project

GIB = 2**30


def counted(project: Project, config: Config) -> tuple[str, Footprint | Uncounted] | None:
    """The names of the models that a script trains, and what training holds of them, or why that cannot be counted;
    None where no model is seen to be trained."""
    run = Interpreter(project, catalog.load(config.catalog, config.operations), Plan()).run()
    models = [model.object for model in trained_models(run)]
    if not models:
        return None
    names = " and ".join(dict.fromkeys(model.name.rpartition(".")[2] for model in models))
    try:
        return names, footprint(run, models)
    except Uncounted as unknown:
        return names, unknown


@deep
def choose(project: Project, config: Config) -> tuple[Config, str]:
    """The options with a strategy, and why it was chosen; empty where nothing had to be."""
    if config.strategy is not Strategy.AUTO:
        return config, ""
    found = counted(project, config)
    if found is None:
        return _replicated(config), ""
    names, held = found
    if isinstance(held, Uncounted):
        reason = (
            f"the parameters of {names} cannot be counted without making it ({held}); if they do not fit one device"
        )
        return _replicated(config), f"strategy ddp: {reason}, choose --strategy fsdp"
    assert config.device_memory is not None
    optimizers = " and ".join(held.optimizers)
    types = " and ".join(held.types)
    figures = (
        f"{held.parameters / 1e6:.1f} million parameters of {names} take {_size(held.held)} in {types} with gradients "
        f"and the state of {optimizers}"
    )
    device = _size(config.device_memory)
    if config.activation_memory is not None:
        needed, limit = held.held + config.activation_memory, config.device_memory
        figures += f", and activations {_size(config.activation_memory)}"
        fits, lacks = f"they fit a device of {device}", f"they do not fit a device of {device}"
    else:
        needed, limit = held.held, config.device_memory // 2
        rest = "what activations take is known only from a run (--activation-memory says it)"
        fits = f"at most half of a device of {device}; {rest}"
        lacks = f"more than half of a device of {device}; {rest}"
    if needed <= limit:
        return _replicated(config), f"strategy ddp: {figures}: {fits}"
    # memory is short: gradients that wait for the last micro-step would be whole on every rank
    return replace(config, strategy=Strategy.FSDP, defer_gradient_sync=False), f"strategy fsdp: {figures}: {lacks}"


def _replicated(config: Config) -> Config:
    """DDP, for which the options of sharding mean nothing."""
    plain = Config()
    unused = {name: getattr(plain, name) for name in SHARDING}
    return replace(config, strategy=Strategy.DDP, **unused)


SHARDING = (
    "mixed_precision",
    "activation_checkpointing",
    "cpu_offload",
    "reshard_after_forward",
    "defer_gradient_sync",
    "shard_unit",
    "sharded_checkpoints",
    "async_checkpoints",
    "meta_device",
)


def _size(number: int) -> str:
    return f"{number / GIB:.2f} GiB" if number < 10 * GIB else f"{number / GIB:.0f} GiB"
