"""Does `autodist check` find faults in scripts that distribute themselves, by reading? ``make check-faults``

Right scripts of several styles (hand_written/), in each of which one fault is seeded at a time: by hand, and by a
generator (seeded_faults/) in scripts of their own. On the right ones check must say nothing. check_faults.md has the
results.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autodist import registry
from autodist.config import Config
from autodist.convert import faults
from autodist.project import Project
from autodist.rule import Diagnostic
from benchmarks.seeded_faults import NAMES, Seeded, seeded, texts

SCRIPTS = Path(__file__).parent / "hand_written"
WANTED = 0.95


@dataclass(frozen=True)
class Fault:
    """A fault: what is replaced in which script, and the code of the rule that finds it. ``line`` is a part of the line
    that is named, where that is not the one that has changed."""

    kind: str
    script: str
    before: str
    after: str
    code: str
    line: str = ""

    @property
    def text(self) -> str:
        """The script with the fault."""
        text = (SCRIPTS / f"{self.script}.py").read_text(encoding="utf-8")
        assert self.before in text, f"{self.script}: {self.before!r}"
        return text.replace(self.before, self.after)


FUNCTIONS, SPAWNED, CLASS = "torchrun_functions", "spawned", "trainer_class"
GUARDED = """\
    if local_rank == 0:
        datasets.MNIST("data", train=True, download=True)
    dist.barrier()
    data = datasets.MNIST("data", train=True, download=False"""
FAULTS = [
    Fault("no set_epoch", FUNCTIONS, "        sampler.set_epoch(epoch)\n", "", "AD202"),
    Fault("no sampler", FUNCTIONS, "64, sampler=sampler)", "64, shuffle=True)", "AD201"),
    Fault(
        "unguarded save",
        FUNCTIONS,
        "            if rank == 0:\n                torch.save(model.module.state_dict(), ",
        "            torch.save(model.module.state_dict(), ",
        "AD301",
    ),
    Fault("load without map_location", CLASS, ', map_location=f"cuda:{self.local_rank}"', "", "AD305"),
    Fault(
        "collective on rank 0",
        FUNCTIONS,
        "            dist.barrier()\n        else",
        "                dist.barrier()\n        else",
        "AD801",
    ),
    Fault(
        "stop by own loss",
        FUNCTIONS,
        "    dist.all_reduce(correct)\n    dist.all_reduce(seen)\n",
        "",
        "AD802",
        "accuracy > best",
    ),
    Fault(
        "unreduced metric",
        SPAWNED,
        "        dist.all_reduce(mean, op=dist.ReduceOp.SUM)\n        mean /= world_size\n",
        "",
        "AD610",
        'print(f"epoch',
    ),
    Fault(
        "round the wrapper", FUNCTIONS, "F.cross_entropy(model(x), y)", "F.cross_entropy(model.module(x), y)", "AD413"
    ),
    Fault("download by all", FUNCTIONS, GUARDED, GUARDED.split("barrier()\n")[1].replace("False", "True"), "AD310"),
    Fault(
        "print by all",
        SPAWNED,
        '        if rank == 0:\n            print(f"epoch {epoch}: {mean.item():.4f}")\n            torch.save',
        '        print(f"epoch {epoch}: {mean.item():.4f}")\n        if rank == 0:\n            torch.save',
        "AD309",
    ),
    Fault(
        "module. keys", FUNCTIONS, "model.module.state_dict()", "model.state_dict()", "AD414", "final.load_state_dict"
    ),
    Fault("cuda:0 on every rank", FUNCTIONS, 'torch.device("cuda", local_rank)', 'torch.device("cuda:0")', "AD105"),
    Fault("seed by rank", SPAWNED, "torch.manual_seed(42)", "torch.manual_seed(42 + rank)", "AD705"),
    # siblings
    Fault("no set_epoch", SPAWNED, "        sampler.set_epoch(epoch)\n", "", "AD202"),
    Fault("no sampler", SPAWNED, "32, sampler=sampler)", "32, shuffle=True)", "AD201"),
    Fault("no set_epoch", "gathered_metrics", "        sampler.set_epoch(epoch)\n", "", "AD202"),
    Fault(
        "no sampler", "rank_zero_evaluates", "batch_size=16, sampler=sampler", "batch_size=16, shuffle=True", "AD201"
    ),
    Fault("unguarded save", SPAWNED, '            torch.save({"model"', '        torch.save({"model"', "AD301"),
    Fault(
        "unguarded save",
        CLASS,
        "if self.global_rank == 0 and epoch % 5 == 0",
        "if epoch % 5 == 0",
        "AD301",
        "torch.save(",
    ),
    Fault("load without map_location", FUNCTIONS, '"best.pt", map_location=device', '"best.pt"', "AD305"),
    Fault("load without map_location", "imagenet_style", ', map_location=f"cuda:{args.gpu}"', "", "AD305"),
    Fault(
        "collective on rank 0",
        SPAWNED,
        '                 "checkpoint.pt")\n        dist.barrier()'.lstrip(),
        '"checkpoint.pt")\n            dist.barrier()',
        "AD801",
    ),
    Fault(
        "collective on rank 0",
        "fully_sharded",
        "    with FSDP.state",
        "    if rank != 0:\n        return\n    with FSDP.state",
        "AD801",
        "states = model",
    ),
    Fault(
        "collective on rank 0",
        "rank_zero_evaluates",
        "        if rank == 0:\n            accuracy =",
        "        if rank == 0:\n            dist.barrier()\n            accuracy =",
        "AD801",
        "            dist.barrier()",
    ),
    Fault(
        "collective on rank 0",
        "reference_utils",
        "        evaluate(model,",
        "        if is_main_process():\n            evaluate(model,",
        "AD801",
        "    dist.barrier()\n    dist.all_reduce(t)",
    ),
    Fault(
        "collective on rank 0",
        "gathered_metrics",
        "        loss, accuracy = validate(",
        "        if rank != 0:\n            continue\n        loss, accuracy = validate(",
        "AD801",
        "dist.all_gather(parts, tensor)",
    ),
    Fault(
        "stop by own loss",
        "gathered_metrics",
        "loss = reduce_mean(torch.stack(losses).mean())",
        "loss = torch.stack(losses).mean()",
        "AD802",
        "stopping.should_stop",
    ),
    Fault(
        "stop by own loss",
        "torchrun_functions",
        "        optimizer.zero_grad()\n        loss.backward()",
        "        if loss.item() > 100:\n            continue\n        optimizer.zero_grad()\n        loss.backward()",
        "AD802",
        "if loss.item() > 100",
    ),
    Fault("unreduced metric", FUNCTIONS, "    dist.all_reduce(total)\n", "", "AD610", 'print(f"epoch'),
    Fault(
        "unreduced metric",
        "fully_sharded",
        '    dist.all_reduce(ddp_loss, op=dist.ReduceOp.SUM)\n    if rank == 0:\n        print(f"Test',
        '    if rank == 0:\n        print(f"Test',
        "AD610",
        'print(f"Test',
    ),
    Fault("unreduced metric", "imagenet_style", "    top1.all_reduce()\n", "", "AD610", 'print(f" * Acc@1'),
    Fault("unreduced metric", "composable_sharding", "        dist.all_reduce(sums)\n", "", "AD610", 'print(f"epoch'),
    Fault(
        "unreduced metric",
        "reference_utils",
        '    meter.synchronize_between_processes()\n    print("test',
        '    print("test',
        "AD610",
        'print("test',
    ),
    Fault(
        "unreduced metric",
        "accumulating",
        "    dist.reduce(epoch_loss, dst=0, op=dist.ReduceOp.SUM)\n",
        "",
        "AD610",
        'print(f"epoch',
    ),
    Fault("round the wrapper", CLASS, "self.model(x), y)", "self.model.module(x), y)", "AD413"),
    Fault(
        "round the wrapper",
        "imagenet_style",
        "criterion(model(images), target)\n        losses",
        "criterion(model.module(images), target)\n        losses",
        "AD413",
    ),
    Fault(
        "collective on rank 0",
        "barrier_around_download",
        "    if args.local_rank not in (-1, 0):\n        dist.barrier()\n",
        "",
        "AD801",
    ),
    Fault(
        "print by all",
        "fully_sharded",
        '    if rank == 0:\n        print(f"Test',
        '    if True:\n        print(f"Test',
        "AD309",
    ),
    Fault(
        "print by all",
        "imagenet_style",
        '    if args.rank == 0:\n        print(f" *',
        '    if True:\n        print(f" *',
        "AD309",
    ),
    Fault(
        "module. keys",
        CLASS,
        "self.model.module.state_dict()",
        "self.model.state_dict()",
        "AD414",
        "self.model.load_state_dict",
    ),
    Fault("cuda:0 on every rank", "accumulating", 'f"cuda:{local_rank}"', '"cuda:0"', "AD105"),
    Fault("cuda:0 on every rank", SPAWNED, "torch.cuda.set_device(rank)", "torch.cuda.set_device(0)", "AD105"),
    Fault("seed by rank", FUNCTIONS, "torch.manual_seed(0)", "torch.manual_seed(rank)", "AD705"),
    Fault("seed by rank", CLASS, "torch.manual_seed(0)", 'torch.manual_seed(int(os.environ["RANK"]))', "AD705"),
    Fault("seed by rank", "averaging_by_hand", "torch.manual_seed(1234)", "torch.manual_seed(1234 + rank)", "AD705"),
]


def found(text: str) -> tuple[Diagnostic, ...]:
    """What check says of a script."""
    return faults(Project.load(Path("train.py"), stdin=text), Config())


def is_found(fault: Fault, said: Sequence[Diagnostic]) -> bool:
    """Whether its rule names its line."""
    lines = [at for at, each in enumerate(fault.text.splitlines(), 1) if fault.line and fault.line in each]
    return any(each.code == fault.code and (not lines or each.line in lines) for each in said)


def found_in(files: Mapping[str, str], asked: Iterable[str] = ()) -> list[tuple[str, str, int]]:
    """What check says of a script of several files, the entry first: codes with files and lines. Rules that speak only
    when they are asked for are, if they are among those ``asked``."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder).resolve()
        for name, text in files.items():
            (place / name).write_text(text, encoding="utf-8")
        project = Project.load(place / next(iter(files)))
        said = faults(project, Config())
        for code in asked:
            if code in registry.load() and registry.load()[code].on_request:
                said += faults(project, Config(select=(code,)))
        return [(each.code, each.source.path.name, each.line) for each in said]


def is_named(fault: Seeded, said: Sequence[tuple[str, str, int]]) -> bool:
    """Whether one of its codes names one of its lines."""
    return any(code in fault.codes and (file, line) in fault.places for code, file, line in said)


def _rows() -> Iterator[tuple[bool, str]]:
    for path in sorted(SCRIPTS.glob("*.py")):
        started = time.process_time()
        said = found(path.read_text(encoding="utf-8"))
        told = ", ".join(f"{each.code}:{each.line}" for each in said) or "nothing"
        yield not said, f"| right | {path.stem} | {told} | {time.process_time() - started:.2f} s |"
    for fault in FAULTS:
        said = found(fault.text)
        told = ", ".join(f"{each.code}:{each.line}" for each in said) or "nothing"
        yield is_found(fault, said), f"| {fault.kind} | {fault.script} | {told} | {fault.code} |"


def _generated() -> Iterator[tuple[bool, str, str]]:
    """Whether it is as it should be, the kind of fault, and a row."""
    for name in NAMES:
        told = found_in(texts(name))
        yield not told, "right", f"| right | {name} | {_told(told)} | |"
    for fault in seeded():
        told = found_in(fault.files, fault.codes)
        wanted = " ".join(sorted(fault.codes))
        row = f"| {fault.kind} | {fault.script}, {fault.file}:{fault.at} | {_told(told)} | {wanted} |"
        yield is_named(fault, told), fault.kind, row


def _told(said: Sequence[tuple[str, str, int]]) -> str:
    return ", ".join(f"{code} {file}:{line}" for code, file, line in said) or "nothing"


def main() -> int:
    """Print the tables. Returns the exit code."""
    print("| fault | script | found | wanted |\n|---|---|---|---|")
    results = []
    for ok, row in _rows():
        results.append(ok)
        print(row if ok else row + " **missed**")
    kinds, right = Counter[str](), Counter[str]()
    for ok, kind, row in _generated():
        kinds[kind] += 1
        right[kind] += ok
        print(row if ok else row + " **missed**")
    print("\n| kind | found | of |\n|---|---|---|")
    print("\n".join(f"| {kind} | {right[kind]} | {number} |" for kind, number in kinds.items()))
    print(f"\nby hand: {sum(results)} of {len(results)} as they should be")
    silent, scripts = right.pop("right"), kinds.pop("right")
    share = right.total() / kinds.total()
    print(
        f"generated: {right.total()} of {kinds.total()} found ({share:.0%}); {silent} of {scripts} right scripts silent"
    )
    return not (all(results) and silent == scripts and share >= WANTED)


if __name__ == "__main__":
    sys.exit(main())
