"""What every rank does as one process did: prints, downloads, the first device, and draws from its own seed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cached_property

from autodist.program import Operation, Value, held
from autodist.ranks.given import loaders
from autodist.ranks.reading import RANK_0, RANK_1, WRAPPERS, Ranks, contained, picked
from autodist.ranks.shown import BY_RANK
from autodist.ranks.waiting import meetings
from autodist.ranks.ways import Way, Ways, fails
from autodist.rule import Severity
from autodist.script import Concern
from autodist.source import Source, all_of, shortened

REPLACED = re.compile(r"(__?builtins?__?|builtins)\.print\s*=|redirect_stdout|sys\.stdout\s*=|Popen\(.*\bstdout\s*=")
AMISS = re.compile(r"\W*(warn|error)", re.IGNORECASE)
FIRST = re.compile(r"cuda:\d+")
PLACED = re.compile(r"set_device|torch\.cuda\.device\(|set_default_device|device_mesh")
SPLITS = ("torch.utils.data.random_split", "sklearn.model_selection.train_test_split")
SEEDED = {"torch": ("torch.manual_seed", "torch.random.manual_seed", "torch.seed"), "numpy": ("numpy.random.seed",)}
SEEDED["random"] = ("random.seed",)
FETCHES = ("urllib.request.urlretrieve", "gdown.download", "wget.download", "torch.hub.download_url_to_file")
ANY_SEED = "any_seed"
DRAWS = frozenset(["random_draw", "index_draw"])


class Starts:
    """What all ranks do alike that one of them should do, or each in a way of its own."""

    def __init__(self, ranks: Ranks, ways: Ways) -> None:
        self._ranks, self._ways = ranks, ways

    def by_all(self, node: ast.AST, source: Source) -> list[Way]:
        """The ways by which all ranks come to a node, once they have started."""
        found = self._ways.to(node, source)
        if starts := self._ranks.spawns:
            found = [way for way in found if starts & {call for _, call in way.through}]
        return found

    def _reach(self, operation: Operation) -> bool:
        """Whether all ranks surely come to an operation, if any does."""
        ways = self.by_all(operation.node, operation.source)
        tests = [test for way in ways for test, _ in (*way.tests, *(each for part in way.left for each in part))]
        told = [{self._ways.reached(way, rank) for rank in (RANK_0, RANK_1)} for way in ways]
        if any(map(self._is_answer, tests)):
            return False
        return bool(told) and all(False not in each for each in told) and not any(map(self._ranks.may_part, tests))

    def _is_answer(self, test: ast.expr) -> bool:
        """Whether a condition is decided by what a person answers, whom only one process can ask."""
        made = (op for each in all_of(test, ast.expr) for op in self._ranks.program.at(each).operations)
        return any(each.name == "builtins.input" for each in self._ranks.before(made))

    def prints(self) -> Iterator[Concern]:
        """What all ranks print that is the same, or should be."""
        if any(REPLACED.search(source.text) for source in self._ranks.sources):
            return
        trained = [each.operation for each in self._ranks.program.of("backward")]
        first = min((each.number for each in trained), default=0)
        for effect in self._ranks.program.of("print"):
            operation = effect.operation
            results = operation.number > first and any(op for value in operation.operands for op in held(value))
            in_loop = bool(self._ranks.loops(operation.region)) or results
            if not trained or not in_loop or self._is_empty(operation) or self._is_said(operation):
                continue
            if self._fails(operation):
                continue
            if operation.name != "builtins.print" or not self._reach(operation):
                continue
            message = (
                "all ranks print this, and the lines come as often as there are ranks, in any order: print on rank 0, "
                "or say whose line it is"
            )
            yield Concern("AD309", operation.source, operation.node, message, Severity.WARNING)

    def _is_said(self, operation: Operation) -> bool:
        """Whether a line says which rank prints it, or is different on each."""
        if BY_RANK.search(operation.source.code(operation.source.statement(operation.node))):
            return True
        given = (Value(frozenset([each])) for value in operation.operands for each in held(value))
        return any(self._ranks.evaluated(each, RANK_0) != self._ranks.evaluated(each, RANK_1) for each in given)

    def _fails(self, operation: Operation) -> bool:
        """Whether it is said because something has failed, or to a file of its own."""
        handlers = (each for each in operation.source.ancestors(operation.node) if isinstance(each, ast.ExceptHandler))
        failed = next(handlers, None) is not None or fails(operation.node, operation.source)
        failed |= any(isinstance(each.constant, str) and AMISS.match(each.constant) for each in operation.inputs[:1])
        return failed or "file" in operation.keywords or "submitit" in operation.source.text

    @staticmethod
    def _is_empty(operation: Operation) -> bool:
        """Whether it prints no more than empty lines."""
        told = [value.constant for value in operation.inputs if not value.operations and not value.things]
        return len(told) == len(operation.inputs) and not any(
            each if not isinstance(each, str) else each.strip() for each in told
        )

    def downloads(self) -> Iterator[Concern]:
        """Downloads that all ranks begin at once."""
        guarded: set[str] = set()
        for operation in sorted(self._ranks.program.operations, key=lambda op: op.number):
            flag = operation.keywords.get("download")
            fetches = flag is not None and flag.constant is True
            if not (fetches or operation.name in FETCHES):
                continue
            if not self._reach(operation):
                guarded.add(operation.name)
            elif operation.name not in guarded and not self._in_turns(operation):
                what = (
                    shortened(operation.source.code(operation.node)) if isinstance(operation.node, ast.expr) else "it"
                )
                message = (
                    f"all ranks of a machine download this at the same time, to the same place ({what}): download it "
                    "on local rank 0, and let the others wait at a barrier"
                )
                yield Concern("AD310", operation.source, operation.node, message, Severity.WARNING)

    def _in_turns(self, operation: Operation) -> bool:
        """Whether rank 0 goes first: others wait ahead of it, or it is done in a block that sees to it."""
        source = operation.source
        blocks = [each for each in source.ancestors(operation.node) if isinstance(each, (ast.With, ast.AsyncWith))]
        for way in self.by_all(operation.node, operation.source):
            for outer, call in way.through:
                blocks += [each for each in outer.ancestors(call) if isinstance(each, (ast.With, ast.AsyncWith))]
        if blocks:
            return True
        waits = [each for each in meetings(self._ranks) if each.kind == "barrier"]
        for each in waits:
            for way in self._ways.to(each.node, each.source):
                if {self._ways.reached(way, RANK_0), self._ways.reached(way, RANK_1)} >= {False} and not (
                    self._ways.reached(way, RANK_0) is False and self._ways.reached(way, RANK_1) is False
                ):
                    return True
        return False

    def devices(self) -> Iterator[Concern]:
        """Devices that are the same on all ranks of a machine."""
        texts = [source.text for source in self._ranks.sources]
        if any("CUDA_VISIBLE_DEVICES" in each for each in texts):
            return
        unplaced = not any(PLACED.search(each) for each in texts)
        seen = set[ast.AST]()
        for operation in self._ranks.program.operations:
            place = self._place(operation, unplaced)
            if place and operation.node not in seen and self._reach(operation) and self._is_certain(operation):
                seen.add(operation.node)
                message = (
                    f"all ranks of a machine use {place}: they share one GPU, and NCCL refuses it; use "
                    "cuda:LOCAL_RANK, and torch.cuda.set_device(local_rank)"
                )
                yield Concern("AD105", operation.source, operation.node, message, Severity.WARNING)
                return

    def _place(self, operation: Operation, unplaced: bool) -> str:
        name = operation.name.removesuffix(".__init__")
        short = name.rpartition(".")[2]
        told = [value.constant for value in operation.operands]
        if name == "torch.cuda.set_device":
            told = [f"cuda:{each}" if isinstance(each, int) else each for each in told]
        elif short == "cuda" and told and isinstance(told[-1], int) and not isinstance(told[-1], bool):
            told = [f"cuda:{told[-1]}"]
        elif name == "torch.load":
            return ""
        texts = [each for each in told if isinstance(each, str)]
        numbered = next((each for each in texts if FIRST.fullmatch(each)), "")
        moves = (
            name in ("torch.device", "torch.cuda.set_device")
            or short in ("to", "cuda")
            or "device" in (operation.keywords)
        )
        if numbered and moves:
            return numbered
        asked = operation.keywords.get("device")
        bare = name == "torch.device" and told == ["cuda"] or short == "to" and texts[-1:] == ["cuda"]
        bare |= asked is not None and asked.constant == "cuda"
        return "cuda:0, which `cuda` means without torch.cuda.set_device" if bare and unplaced else ""

    def _is_certain(self, operation: Operation) -> bool:
        """Whether it hangs on nothing but there being a GPU."""
        ways = self.by_all(operation.node, operation.source)
        tests = (test for way in ways for test, _ in way.tests if self._ranks.holds(test, RANK_0) is None)
        return all("cuda" in ast.unparse(test) for test in tests)

    def seeds(self) -> Iterator[Concern]:
        """Data and models that are made after each rank was seeded apart."""
        apart: dict[str, Operation | None] = {}
        seeded = set[str]()
        trained = [each.operation for each in self._ranks.program.of("backward")]
        steps = self._ranks.step_loops
        told = set[str]()
        for operation in self._ranks.program.operations:
            if _is_of_sample(operation):
                continue
            for library, names in SEEDED.items():
                if operation.name in names or self._seeds_all(operation):
                    seeded.add(library)
                if operation.name in names and operation.inputs:
                    here, there = (self._ranks.evaluated(operation.inputs[0], each) for each in (RANK_0, RANK_1))
                    apart[library] = operation if here != there or self._ranks.by_rank(operation.inputs[0]) else None
            library = self._drawn(operation)
            inside = bool(steps & self._ranks.loops(operation.region))
            if library and library not in seeded and trained and not inside and library not in told:
                told.add(library)
                yield self._unseeded(operation)
            seed = apart.get(library) if library else None
            if seed is None or not trained or library in told or inside:
                continue
            told.add(library)
            what = shortened(operation.source.code(operation.node)) if isinstance(operation.node, ast.expr) else "this"
            message = (
                f"{what} draws after line {getattr(seed.node, 'lineno', 0)} has seeded each rank apart: ranks have "
                "different data or weights, and what should be shared out overlaps; seed all ranks alike before, and "
                "apart after"
            )
            yield Concern("AD705", seed.source, seed.node, message, Severity.WARNING)

    def _seeds_all(self, operation: Operation) -> bool:
        alone = operation.name.startswith(("random.", "numpy."))
        return ANY_SEED in self._ranks.catalog.roles(operation.name) and not alone

    def _unseeded(self, operation: Operation) -> Concern:
        what = shortened(operation.source.code(operation.node)) if isinstance(operation.node, ast.expr) else "this"
        message = (
            f"{what} draws from a seed that each rank has of its own, as nothing has seeded them alike: ranks have "
            "different data, and shares of them overlap; seed all ranks alike before"
        )
        return Concern("AD706", operation.source, operation.node, message, Severity.WARNING)

    def _drawn(self, operation: Operation) -> str:
        """The library of whose generator it draws data or weights that ranks must have alike."""
        if "generator" in operation.keywords or "random_state" in operation.keywords:
            return ""
        if operation.name in SPLITS:
            return "torch" if operation.name.startswith("torch") else "numpy"
        if DRAWS & self._ranks.catalog.roles(operation.name) and not operation.region.without_gradients:
            inside = any("module" in getattr(each.owner, "roles", ()) for each in self._ranks.program.users[operation])
            library = operation.name.partition(".")[0]
            return "" if inside or operation.keywords.get("device") else library if self._is_data(operation) else ""
        return ""

    @cached_property
    def _picks(self) -> set[Operation]:
        """The numbers by which data sets have picked their samples."""
        sets = [data for made in loaders(self._ranks) if (data := made.argument("dataset", 0)) is not None]
        return picked(part for data in sets for part in contained(data))

    def _is_data(self, operation: Operation) -> bool:
        """Whether a loader or a data set holds what is drawn."""
        changed = {thing for value in operation.inputs[:1] for thing in value.things}
        later = (op for op in self._ranks.program.operations if op.number > operation.number)
        pending = [operation, *(op for op in later if changed & {each for part in op.inputs for each in part.things})]
        seen = set(pending)
        picks = self._picks
        while pending and len(seen) < 400:
            for user in self._ranks.program.users[pending.pop()]:
                if user in picks:
                    return True
                owner: frozenset[str] = getattr(user.owner, "roles", frozenset())
                if owner & {"dataset", "loader"} or user.name.startswith("loader."):
                    return True
                if user.name == "sample":
                    return True
                if user not in seen and not owner & WRAPPERS:
                    seen.add(user)
                    pending.append(user)
        return False


def _is_of_sample(operation: Operation) -> bool:
    """Whether it is done for each sample that is asked for, as augmentations are."""
    return any(getattr(each.function, "name", "") == "__getitem__" for each in operation.region.around())
