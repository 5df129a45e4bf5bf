"""Which mistake most likely explains what was found, and which family of rules prevents it.

The checks run from the specific to the general; the first that recognises its mistake names the cause.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from autodist.verify.trace import RunTrace
from autodist.verify.verdict import Cause, Finding

CAUSES: dict[str, tuple[str, str]] = {
    "init-first": ("AD101", "initialise the process group before the first question for the rank"),
    "shard-training-loader": ("AD201", "give the training loader a distributed sampler"),
    "shard-hand-made-batch": ("AD205", "draw the whole batch on every rank and slice it by rank"),
    "divide-batch": ("AD201", "divide the batch size by the world size, once, wherever it shapes a batch"),
    "set-epoch": ("AD202", "call set_epoch on the sampler before every epoch"),
    "keep-order": ("AD201", "shuffle exactly where the original shuffles"),
    "keep-order-of-sets": (
        "AD703",
        "put the elements of a set in the same order on all ranks: strings are hashed otherwise in each process, and "
        "with one PYTHONHASHSEED for all the two are equal",
    ),
    "keep-batches": ("AD201", "keep drop_last as in the original"),
    "keep-sampler": ("AD203", "divide the indices of the original's sampler instead of replacing it"),
    "same-sampler-seed": ("AD203", "let all ranks draw their indices with the same seed"),
    "same-sampler-weights": ("AD203", "let all ranks draw their indices by the weights of all samples"),
    "evaluate-unpadded": ("AD2", "evaluate every sample exactly once, without padding"),
    "evaluate-all": ("AD2", "evaluate the data that the original evaluates"),
    "write-on-rank-zero": ("AD301", "write on rank 0 alone"),
    "write-as-before": ("AD301", "write the files that the original writes"),
    "print-on-rank-zero": ("AD3", "print on rank 0 alone"),
    "print-as-before": ("AD3", "print what the original prints, on rank 0"),
    "download-on-rank-zero": ("AD303", "download on rank 0 while the others wait"),
    "prepare-on-each-node": (
        "AD303",
        "prepare it on each node, on local rank 0: what rank 0 writes outside of the working folder lies on its own "
        "node, unless that is a disk that all nodes share",
    ),
    "wait-for-download": ("AD304", "let the other ranks wait until rank 0 has prepared the files"),
    "save-unwrapped": ("AD3", "save the state of the unwrapped model"),
    "load-unwrapped": ("AD305", "load checkpoints into the unwrapped model"),
    "wrap-model": ("AD401", "wrap every model that trains"),
    "move-first": ("AD401", "move a model to its device before it is wrapped, and leave it there"),
    "gpu-where-there-is-one": ("AD102", "ask for a GPU only where there is one: if torch.cuda.is_available()"),
    "own-gpu": ("AD102", "let each rank compute on its own GPU: torch.cuda.set_device(local_rank)"),
    "call-wrapper": ("AD402", "compute the training loss through the wrapper, not through its module"),
    "unwrap-attribute": ("AD402", "reach attributes and methods of the model through its module"),
    "unused-parameters": ("AD4", "find_unused_parameters=True, since some parameters take no part in the loss"),
    "synchronise-batchnorm": ("AD4", "convert BatchNorm layers to SyncBatchNorm"),
    "call-whole-model": ("AD505", "call the sharded model itself, not its forward or a part of it"),
    "call-whole-model-alike": ("AD5", "call a sharded model equally often on all ranks, in evaluation too"),
    "reshard-root": (
        "AD501",
        "reshard the root after forward: torch keeps what an evaluation gathered, and trains with it",
    ),
    "shard-over-all-ranks": (
        "AD501",
        "shard over all ranks, or over a mesh with a dimension that replicates the shards",
    ),
    "gather-state": ("AD5", "gather the full state on all ranks before rank 0 saves it"),
    "optimizer-after-sharding": ("AD5", "build the optimizer after the model is sharded"),
    "scale-summed-loss": ("AD603", "multiply a loss that sums over samples by the world size"),
    "loss-factor": ("AD602", "scale the loss as the original does: gradients are averaged over ranks already"),
    "reduce-gradients-once": ("AD6", "leave the reduction of gradients to the wrapper"),
    "no-sync": ("AD6", "reduce gradients in the last micro-step before the optimizer step, and only skip it before"),
    "keep-accumulation": ("AD6", "take an optimizer step after as many batches as the original"),
    "reduce-metric": ("AD601", "reduce metrics over the ranks before they are printed, stored or decided upon"),
    "count-statistics-once": (
        "AD602",
        "all ranks pass the same data through BatchNorm in training mode: statistics count it once for each rank",
    ),
    "save-optimizer-state": ("AD502", "save the state of the optimizer as the original has it, whole and by its keys"),
    "keep-generator": ("AD702", "let rank 0 draw what the original draws: the state of its generator is saved"),
    "save-trained-tensors": ("AD402", "save what the original saves: these tensors are not those that were trained"),
    "decide-together": ("AD6", "take decisions that stop or branch training on a value that all ranks share"),
    "stop-as-before": ("AD6", "end the training where the original ends it: as many epochs, the same patience"),
    "same-optimizer-state": (
        "AD305",
        "load the optimizer's state on all ranks: equal gradients move their parameters apart",
    ),
    "collective-on-all-ranks": ("AD6", "call collectives, and wrapped models, on all ranks or on none"),
    "keep-learning-rate": ("AD6", "keep the learning rate: the global batch is the same"),
    "keep-optimizer-settings": ("AD6", "keep the optimizer's settings and parameter groups"),
    "keep-schedule": ("AD6", "keep the length of the schedule: there are as many steps as before"),
    "step-scheduler-everywhere": ("AD6", "step the scheduler on every rank, with the same metric"),
    "keep-training-step": ("AD6", "keep the training step as it is"),
    "loss-over-batch": ("AD6", "the loss depends on the batch as a whole, which ranks cannot compute apart"),
    "noise-per-rank": (
        "AD702",
        "seed the ranks apart once models and data are made: each draws noise for its own samples",
    ),
    "same-split": ("AD701", "seed all ranks alike before the data are split"),
    "same-initial-weights": ("AD701", "begin with the original's weights: the same seed, and the same draws before"),
    "end-processes": ("AD1", "end the processes that the script starts"),
    "crash": ("AD9", "the conversion does not run"),
    "original-fails": ("AD9", "the original itself does not run"),
}

KINDS: dict[str, str] = {
    "samples-replicated": "shard-training-loader",
    "passes-per-rank": "collective-on-all-ranks",
    "rows-replicated": "shard-hand-made-batch",
    "batch-not-divided": "divide-batch",
    "batch-too-small": "divide-batch",
    "rows-not-divided": "divide-batch",
    "sampler-replaced": "keep-sampler",
    "samples-foreign": "same-split",
    "sampler-streams": "same-sampler-seed",
    "sampler-weights": "same-sampler-weights",
    "samples-missing": "same-sampler-seed",
    "samples-twice": "same-sampler-seed",
    "order-repeated": "set-epoch",
    "shuffle-lost": "keep-order",
    "shuffle-added": "keep-order",
    "batch-count": "keep-batches",
    "sample-count": "keep-batches",
    "evaluation-padded": "evaluate-unpadded",
    "evaluation-samples": "evaluate-all",
    "gradient-missing": "keep-training-step",
    "initial-parameters-differ-between-ranks": "same-initial-weights",
    "initial-parameters": "same-initial-weights",
    "learning-rate-differs-between-ranks": "step-scheduler-everywhere",
    "settings-differ-between-ranks": "keep-optimizer-settings",
    "optimizer-settings": "keep-optimizer-settings",
    "optimizer-parameters": "keep-optimizer-settings",
    "several-writers": "write-on-rank-zero",
    "other-writer": "write-on-rank-zero",
    "folder-made-by-others": "write-on-rank-zero",
    "saved-shards": "gather-state",
    "saved-prefix": "save-unwrapped",
    "saved-keys": "save-unwrapped",
    "printed-on-other-ranks": "print-on-rank-zero",
    "printed-more": "print-as-before",
    "printed-less": "print-as-before",
    "saved-statistics": "count-statistics-once",
    "saved-optimizer-state": "save-optimizer-state",
    "saved-generator": "keep-generator",
    "moved-after-wrapping": "move-first",
    "gpu-of-others": "own-gpu",
    "gpu-needed": "gpu-where-there-is-one",
    "saved-tensors": "save-trained-tensors",
    "printed-differs": "reduce-metric",
    "saved-values": "reduce-metric",
    "file-content": "reduce-metric",
    "save-count": "decide-together",
    "save-path": "decide-together",
    "file-missing": "write-as-before",
    "file-extra": "write-as-before",
    "folder-missing": "write-as-before",
    "folder-extra": "write-as-before",
    "steps-per-rank": "decide-together",
    "step-count": "keep-accumulation",
    "backward-count": "keep-accumulation",
    "processes-left": "end-processes",
    "read-unwaited": "wait-for-download",
    "noise-alike": "noise-per-rank",
    "crash": "crash",
    "original-crash": "original-fails",
}
"""The cause of a finding where nothing else is known."""

CONSEQUENCES = frozenset(
    {
        "printed-differs",
        "saved-values",
        "saved-statistics",
        "saved-optimizer-state",
        "saved-generator",
        "saved-tensors",
        "file-content",
    }
)
"""What differs anyway when training does."""

ORDER = tuple(KINDS)
GUARD = re.compile(r"\b(\w*rank\w*|is_main\w*|is_master\w*|\w*main_process\w*)\b")
CRASHES: tuple[tuple[str, str], ...] = (
    (r"process group has not been initialized", "init-first"),
    (r"Expected to have finished reduction", "unused-parameters"),
    (r"got mixed torch\.Tensor and DTensor", "call-whole-model"),
    (r"'DistributedDataParallel' object has no attribute", "unwrap-attribute"),
    (r"(Missing|Unexpected) key\(s\) in state_dict.*module\.", "load-unwrapped"),
)


@dataclass(frozen=True)
class Evidence:
    """All that is known about a pair of runs that differ."""

    findings: Sequence[Finding]
    original: RunTrace
    ranks: Sequence[RunTrace]
    root: Path
    """The scratch copy in which the conversion ran."""
    divided: bool = False
    """The ranks ran on several nodes, each with a disk of its own outside of the working folder."""

    def find(self, *kinds: str) -> Finding | None:
        """The first finding of one of these kinds."""
        return next((finding for finding in self.findings if finding.kind in kinds), None)


def explain(evidence: Evidence) -> Cause | None:
    """The likeliest mistake."""
    for check in CHECKS:
        found = check(evidence)
        if found is not None:
            name, finding = found
            return Cause(name, *CAUSES[name], finding.site)
    known = [finding for finding in evidence.findings if finding.kind in KINDS]
    if not known:
        return None
    first = min(known, key=lambda finding: ORDER.index(finding.kind))
    name = KINDS[first.kind]
    return Cause(name, *CAUSES[name], first.site)


def with_rules(findings: Sequence[Finding]) -> list[Finding]:
    """The findings, each with the rule and the advice that its kind stands for, unless it follows from another one."""
    result = []
    trained_apart = any(finding.kind not in CONSEQUENCES for finding in findings)
    for finding in findings:
        name = None if trained_apart and finding.kind in CONSEQUENCES else KINDS.get(finding.kind)
        result.append(finding if name is None else replace(finding, rule=CAUSES[name][0], hint=CAUSES[name][1]))
    return result


def crash(evidence: Evidence) -> tuple[str, Finding] | None:
    """Errors whose message tells what is wrong."""
    finding = evidence.find("crash")
    if finding is None:
        return None
    for pattern, name in CRASHES:
        if re.search(pattern, finding.message, re.DOTALL):
            return name, finding
    missing = re.search(r"(?:FileNotFoundError|EOFError|RuntimeError|UnpicklingError|OSError).*", finding.message)
    if missing:
        written = {Path(write.path).name for write in evidence.ranks[0].writes}
        outside = {Path(write.path).name for write in evidence.ranks[0].writes if write.path.startswith("/")}
        if evidence.divided and any(name and name in finding.message for name in outside):
            return "prepare-on-each-node", finding
        if (
            "EOFError" in finding.message
            or any(name and name in finding.message for name in written)
            or "PytorchStreamReader" in finding.message
        ):
            return "wait-for-download", finding
    if "FileExistsError" in finding.message:
        loads = DOWNLOAD.search(enclosing_function(evidence.root, finding.site or ""))
        return ("download-on-rank-zero" if loads else "write-on-rank-zero"), finding
    return None


def hang(evidence: Evidence) -> tuple[str, Finding] | None:
    """Ranks that wait for each other: a guard around a collective, or a decision that was not shared."""
    finding = evidence.find("hang", "mismatch")
    if finding is None:
        return None
    sites = re.findall(r" at (\S+?):(\d+)", finding.message)
    sites += [tuple(site.rsplit(":", 1)) for _, site in parting(evidence.ranks).values() if ":" in site]
    for path, line in sites:
        if guarded(evidence.root / path, int(line)):
            return "collective-on-all-ranks", replace(finding, site=f"{path}:{line}")
    if "all_gather" in finding.message and _is_sharded(evidence):
        return "call-whole-model-alike", finding
    return "decide-together", finding


def parting(ranks: Sequence[RunTrace]) -> dict[int, tuple[str, str]]:
    """The first collectives of the script in which the ranks differ, for those that called one more."""
    longest = max(len(rank.collectives) for rank in ranks)
    for at in range(longest):
        calls = {number: rank.collectives[at] for number, rank in enumerate(ranks) if at < len(rank.collectives)}
        if len(calls) < len(ranks) or len(set(calls.values())) > 1:
            return calls
    return {}


def guarded(path: Path, line: int) -> bool:
    """The line hangs on a question for the rank."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return False
    for node in ast.walk(tree):
        if not isinstance(node, (ast.If, ast.IfExp, ast.While, ast.For)):
            continue
        question = node.iter if isinstance(node, ast.For) else node.test
        if node.lineno <= line <= (node.end_lineno or node.lineno) and GUARD.search(ast.unparse(question)):
            return True
    return False


def downloads(evidence: Evidence) -> tuple[str, Finding] | None:
    """Files that several ranks wrote before training began, other than what is saved or logged."""
    finding = evidence.find("several-writers")
    if finding is None:
        return None
    early = [
        write for rank in evidence.ranks for write in rank.writes if write.step == 0 and write.site == finding.site
    ]
    loading = [write for write in early if DOWNLOAD.search(enclosing_function(evidence.root, write.site))]
    return ("download-on-rank-zero", finding) if loading else None


DOWNLOAD = re.compile(r"download|fetch|prepare|extract|unpack|ensure|get_data|make_data", re.IGNORECASE)


def enclosing_function(root: Path, site: str) -> str:
    """The names of the functions around a line, and the line itself."""
    name, _, number = site.rpartition(":")
    try:
        source = (root / name).read_text(encoding="utf-8")
        tree, line = ast.parse(source), int(number)
    except (OSError, SyntaxError, ValueError):
        return ""
    around = [
        node.name
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.lineno <= line <= (node.end_lineno or line)
    ]
    return " ".join([*around, source.splitlines()[line - 1]])


def unsharded(evidence: Evidence) -> tuple[str, Finding] | None:
    """Samples missing or read twice, with a loader that knows nothing of ranks."""
    finding = evidence.find("samples-missing", "samples-twice", "batch-not-divided", "sampler-streams")
    if finding is None:
        return None
    loaders = [loader for loader in evidence.ranks[0].loaders if loader.site == finding.site]
    plain = bool(loaders) and loaders[0].sampler in ("RandomSampler", "SequentialSampler")
    return ("shard-training-loader", finding) if plain else None


def loading(evidence: Evidence) -> tuple[str, Finding] | None:
    """A checkpoint whose keys do not fit the wrapper, loaded without complaint."""
    finding = evidence.find("initial-parameters", "initial-parameters-differ-between-ranks")
    loads = any(note["topic"] == "wrapped-load" for rank in evidence.ranks for note in rank.notes)
    return ("load-unwrapped", finding) if finding is not None and loads else None


def splits(evidence: Evidence) -> tuple[str, Finding] | None:
    """Ranks that read what the original does not read have split the data in their own way."""
    finding = evidence.find("samples-foreign")
    return None if finding is None else ("same-split", finding)


def wrapping(evidence: Evidence) -> tuple[str, Finding] | None:
    """Gradients that were never averaged."""
    finding = evidence.find("gradients-differ-between-ranks", "parameters-differ-between-ranks")
    if finding is None or evidence.find("samples-replicated") is not None or finding.step is None:
        return None
    steps = evidence.ranks[0].steps
    step = steps[min(finding.step, len(steps) - 1)]
    if finding.step and finding.kind.startswith("parameters") and not any_sharded(step.groups):
        return "same-optimizer-state", finding
    if step.unwrapped or not (evidence.ranks[0].wraps or any_sharded(step.groups)):
        return "wrap-model", finding
    if step.wrapped_calls and not any(step.wrapped_calls[-1:]):
        return "no-sync", finding
    return ("shard-over-all-ranks" if any_sharded(step.groups) else "call-wrapper"), finding


def scheduler(evidence: Evidence) -> tuple[str, Finding] | None:
    """Learning rates that part before anything else does."""
    finding = evidence.find("learning-rate-differs-between-ranks")
    gradients = evidence.find("gradients-differ-between-ranks")
    if finding is None or finding.step is None:
        return None
    earlier = gradients is not None and gradients.step is not None and gradients.step < finding.step
    return None if earlier else ("step-scheduler-everywhere", finding)


def any_sharded(groups: Sequence[object]) -> bool:
    """The optimizer holds shards, as FSDP leaves them."""
    return any(
        digest is not None and len(digest) > 4 for group in groups for digest in getattr(group, "parameters", ())
    )


def sharding(evidence: Evidence) -> tuple[str, Finding] | None:
    """An optimizer that holds the parameters from before they were sharded never sees a gradient."""
    finding = evidence.find("gradient-missing")
    return ("optimizer-after-sharding", finding) if finding and _is_sharded(evidence) else None


def stale_root(evidence: Evidence) -> tuple[str, Finding] | None:
    """A step computed from other parameters than the optimizer left: the root still held those of an evaluation."""
    loss, parameters = evidence.find("loss"), evidence.find("parameters", "initial-parameters")
    if loss is None or not loss.step or not any_sharded(evidence.ranks[0].steps[0].groups):
        return None
    before = parameters is not None and parameters.step is not None and parameters.step < loss.step
    resharded = any("reshard_after_forward=True" in text for text in _texts(evidence))
    return None if before or resharded or evidence.find("samples-replicated") else ("reshard-root", loss)


def _texts(evidence: Evidence) -> list[str]:
    return [path.read_text(encoding="utf-8", errors="replace") for path in sorted(evidence.root.rglob("*.py"))[:500]]


def _is_sharded(evidence: Evidence) -> bool:
    return any("fully_shard" in text for text in _texts(evidence))


def learning_rate(evidence: Evidence) -> tuple[str, Finding] | None:
    """Another learning rate from the start is a scaled one; later, another schedule."""
    finding = evidence.find("learning-rate")
    if finding is None or evidence.find("batch-not-divided", "steps-per-rank", "step-count", "batch-count") is not None:
        return None
    numeric = evidence.find("loss", "gradient")
    if numeric is not None and numeric.step is not None and finding.step is not None and numeric.step < finding.step:
        return None
    return ("keep-learning-rate" if finding.step == 0 else "keep-schedule"), finding


def accumulation(evidence: Evidence) -> tuple[str, Finding] | None:
    """Another number of backward passes a step, although the batches are right."""
    finding = evidence.find("backward-count")
    structural = evidence.find("batch-count", "batch-not-divided", "batch-too-small", "samples-replicated")
    return ("keep-accumulation", finding) if finding is not None and structural is None else None


def factors(evidence: Evidence) -> tuple[str, Finding] | None:
    """Gradients that are a plain multiple of the original's."""
    gradient, loss = evidence.find("gradient"), evidence.find("loss")
    world = len(evidence.ranks)
    if gradient is None or gradient.ratio is None or evidence.find("gradients-differ-between-ranks") is not None:
        return None
    if loss is None or loss.step is None or gradient.step is None or loss.step > gradient.step or loss.ratio is None:
        return "reduce-gradients-once", gradient
    if not math.isclose(loss.ratio, gradient.ratio, rel_tol=1e-6):
        return None
    if math.isclose(gradient.ratio, 1 / world, rel_tol=1e-6):
        return ("scale-summed-loss" if sums(evidence) else "loss-factor"), gradient
    return "loss-factor", gradient


def sums(evidence: Evidence) -> bool:
    """Somewhere the script reduces a loss by a sum."""
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in sorted(evidence.root.rglob("*.py"))[:500]]
    return any(re.search(r"""reduction\s*=\s*['"]sum['"]|size_average\s*=\s*False""", text) for text in texts)


def length(evidence: Evidence) -> tuple[str, Finding] | None:
    """All ranks go over the data more or less often than the original."""
    finding, passes = evidence.find("step-count"), evidence.find("pass-count")
    apart = evidence.find("steps-per-rank", "batch-count", "batch-not-divided", "batch-too-small", "backward-count")
    return ("stop-as-before", finding) if finding is not None and passes is not None and apart is None else None


def batchnorm(evidence: Evidence) -> tuple[str, Finding] | None:
    """Statistics over a part of the batch change the very first loss, or at least what is saved of them."""
    finding = evidence.find("loss", "gradient")
    if finding is None and all(each.kind in CONSEQUENCES for each in evidence.findings):
        finding = evidence.find("saved-statistics")
        finding = None if finding is None else replace(finding, step=0)
    local = [note for rank in evidence.ranks for note in rank.notes if note["topic"] == "batchnorm-per-rank"]
    structural = evidence.find("batch-not-divided", "samples-replicated", "initial-parameters", "rows-not-divided")
    if finding is None or not local or structural is not None or finding.step not in (0, 1):
        return None
    return "synchronise-batchnorm", finding


def training_step(evidence: Evidence) -> tuple[str, Finding] | None:
    """The numbers differ although samples, weights and wrapping are right."""
    finding = evidence.find("gradient", "loss", "parameters")
    earlier = [each for each in evidence.findings if each.kind in KINDS and ORDER.index(each.kind) < NUMERIC]
    return ("keep-training-step", finding) if finding is not None and not earlier else None


NUMERIC = ORDER.index("several-writers")
"""Kinds before this one explain a numeric difference, later ones follow from it."""

CHECKS: tuple[Callable[[Evidence], tuple[str, Finding] | None], ...] = (
    crash,
    hang,
    splits,
    loading,
    unsharded,
    scheduler,
    sharding,
    stale_root,
    wrapping,
    learning_rate,
    accumulation,
    factors,
    batchnorm,
    length,
    downloads,
    training_step,
)
