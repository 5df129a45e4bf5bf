"""Scripts whose training a framework owns: the line where it is distributed, and what to write there."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from autodist.config import Strategy
from autodist.interpreter import Event, Interpreter
from autodist.rule import Severity
from autodist.script import Concern
from autodist.values import NOTHING, Class, External


@dataclass(frozen=True)
class Framework:
    """A library that distributes training itself: the calls that say how, the telling one first, and what to do."""

    packages: tuple[str, ...]
    calls: tuple[str, ...]
    advice: str
    sharded: str = ""
    """What comes on top for FSDP."""


TORCHRUN = "start it with `torchrun --nproc-per-node N {script}`"
FRAMEWORKS = (
    Framework(
        ("pytorch_lightning", "lightning", "lightning_fabric"),
        ("Trainer", "Fabric", "LightningModule"),
        'set devices=N and strategy="{strategy}" in this call, and num_nodes for several nodes; the batch size of '
        "its loaders is per device",
    ),
    Framework(
        ("pytorch_lightning", "lightning"),
        ("LightningCLI",),
        "start it with `--trainer.devices N --trainer.strategy {strategy}`, and --trainer.num_nodes for several nodes; "
        "the batch size of its loaders is per device",
    ),
    Framework(
        ("accelerate",),
        ("Accelerator",),
        "start it with `accelerate launch --num_processes N {script}`; the batch size of its loaders is per process",
        ", and add --use_fsdp",
    ),
    Framework(
        ("deepspeed",),
        ("initialize",),
        "start it with `deepspeed --num_gpus N {script}`; the configuration that this call reads holds the batch sizes",
        " and the ZeRO stage (3 shards parameters)",
    ),
    Framework(
        ("transformers", "trl"),
        ("TrainingArguments", "Seq2SeqTrainingArguments", "SFTConfig", "Trainer", "Seq2SeqTrainer", "SFTTrainer"),
        f"{TORCHRUN}; to keep the global batch, divide per_device_train_batch_size by N in its arguments",
        ' and set fsdp="full_shard"',
    ),
    Framework(
        ("ray",),
        ("ScalingConfig", "TorchTrainer", "prepare_model"),
        "set num_workers=N in its ScalingConfig; the batch size of its loaders is per worker",
    ),
    Framework(
        ("skorch",),
        ("NeuralNet", "NeuralNetClassifier", "NeuralNetBinaryClassifier", "NeuralNetRegressor"),
        "derive a class from it and from skorch.hf.AccelerateMixin, and start it with "
        "`accelerate launch --num_processes N {script}`; the batch size is per process",
    ),
    Framework(("composer",), ("Trainer",), "start it with `composer -n N {script}`"),
    Framework(("mmengine",), ("Runner",), f'{TORCHRUN}, and set launcher="pytorch" in its configuration'),
    Framework(("ignite",), ("create_supervised_trainer", "Engine"), "use ignite.distributed.Parallel around its main"),
)
SETTINGS = frozenset(
    (
        "devices gpus num_nodes strategy accelerator per_device_train_batch_size num_workers scaling_config launcher"
    ).split()
)


def owned(run: Interpreter, strategy: Strategy) -> Concern | None:
    """Who owns the training, at the line to change."""
    found = [(event, _name(event, run)) for event in run.of("framework")]
    if not found:
        return None
    event, name = found[0]
    framework = _framework(name)
    if framework is None:
        return _concern(event, f"training is owned by {name}: use its own distributed mode")
    candidates = [*found, *((each, _name(each, run)) for each in run.of("framework_setting"))]
    ours = [c for c in candidates if _framework(c[1]) is framework]
    event, name = min(ours, key=lambda candidate: _rank(candidate[1], framework))
    advice = framework.advice + (framework.sharded if strategy.shards else "")
    words = {"script": run.project.entry.path.name, "strategy": "fsdp" if strategy.shards else "ddp"}
    return _concern(
        event,
        f"training is owned by {name}{_now(event)}: {advice.format(**words)}",
    )


def _framework(name: str) -> Framework | None:
    """That of which something is called: the one that knows the call, where a package is of several."""
    package, last = name.partition(".")[0], name.rpartition(".")[2]
    fitting = [each for each in FRAMEWORKS if package in each.packages]
    return next((each for each in fitting if last in each.calls), fitting[0] if fitting else None)


def _concern(event: Event, message: str) -> Concern:
    return Concern("AD903", event.source, event.node, message, Severity.REFUSAL)


def _rank(name: str, framework: Framework) -> int:
    last = name.rpartition(".")[2]
    return framework.calls.index(last) if last in framework.calls else len(framework.calls)


def _name(event: Event, run: Interpreter) -> str:
    """The qualified name of what is called, or of the framework's class that it derives from."""
    value = run.values.get(event.node.func, NOTHING) if isinstance(event.node, ast.Call) else NOTHING
    for thing in value.things:
        if isinstance(thing, External):
            return thing.name
        if isinstance(thing, Class):
            return next(_bases(thing, run), thing.node.name)
    return "a framework"


def _bases(cls: Class, run: Interpreter) -> Iterator[str]:
    for each in cls.line():
        for base in each.node.bases:
            yield from (t.name for t in run.values.get(base, NOTHING).things if isinstance(t, External))


def _now(event: Event) -> str:
    """What the call says at present."""
    if not isinstance(event.node, ast.Call):
        return ""
    given = [f"{k.arg}={event.source.code(k.value)}" for k in event.node.keywords if k.arg in SETTINGS]
    return f" (now {', '.join(given)})" if given else ""
