"""Which findings of rules for conversion are faults of a script that distributes itself."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cached_property

from autodist.placement import Replicate
from autodist.program import Operation, Value, held
from autodist.ranks import given, kept
from autodist.ranks.reading import RANK_0, RANK_1, Ranks
from autodist.ranks.shown import BY_RANK
from autodist.ranks.starting import Starts
from autodist.ranks.ways import Way, Ways
from autodist.source import Source, walk

FAULTS = frozenset("AD201 AD202 AD205 AD301 AD305 AD306 AD307 AD608 AD703".split())
"""Rules for conversion that also see what is wrong with a script that distributes itself."""
BY_ALL = frozenset("AD301 AD305 AD306 AD307".split())
"""Those of them whose findings stand only where all ranks surely come to the line."""
RANK = re.compile(r"rank|master|main|primary|chief|leader|proc|gpu|local", re.IGNORECASE)
"""A condition that is not followed, and may be one on the rank."""
PLACES = ("save", "dump", "write", "savez", "to_csv", "to_pickle")


class Standing:
    """What rules for conversion say of lines that ranks come to, held against how they come there."""

    def __init__(self, ranks: Ranks, ways: Ways) -> None:
        self._ranks, self._ways = ranks, ways
        self._starts = Starts(ranks, ways)

    def stands(self, code: str, source: Source, line: int, column: int) -> bool:
        """Whether a finding is a fault of the script as it is."""
        if (code, source, line) in self._settled:
            return False
        if code not in BY_ALL:
            return code in FAULTS
        nodes = self._at.get((source, line, column), ())
        return bool(nodes) and all(self._by_all(each, source) and not self._own_place(each) for each in nodes)

    def _by_all(self, node: ast.AST, source: Source) -> bool:
        """Whether all ranks come to a node, and nothing that is not followed on the way may ask which rank it is."""
        ways = self._ways.to(node, source) if self._is_imported(node, source) else self._starts.by_all(node, source)
        if not all(self._is_called(way, node, source) for way in ways) or self._is_of_one(node, source):
            return False
        if not ways or any(self._is_shut(way, rank) for way in ways for rank in (RANK_0, RANK_1)):
            return False
        tests = [test for way in ways for test, _ in (*way.tests, *(each for part in way.left for each in part))]
        unknown = (test for test in tests if self._ranks.holds(test, RANK_0) is None)
        return not any(RANK.search(ast.unparse(each)) for each in unknown)

    def _is_shut(self, way: Way, rank: int) -> bool:
        """Whether a rank does not go a way, other than by what the script itself sets, `resume = False`."""
        shut = [test for test, wanted in way.tests if self._ranks.holds(test, rank) is (not wanted)]
        if shut:
            known = (self._ranks.program.at(each) for each in shut)
            return any(each.operations or not each.constants for each in known)
        return self._ways.reached(way, rank) is False

    def _is_imported(self, node: ast.AST, source: Source) -> bool:
        """Whether it stands where a process that is started runs it as it imports the script."""
        spawning = self._ranks.spawns and any("spawn(" in each.text for each in self._ranks.sources)
        tests = (test for way in self._ways.to(node, source) for test, _ in way.tests)
        return bool(spawning) and source.function(node) is None and not any("__name__" in ast.unparse(t) for t in tests)

    def _is_of_one(self, node: ast.AST, source: Source) -> bool:
        """Whether it is part of objects that only one rank makes: `Log(...) if rank == 0 else None`"""
        classes = (each for each in source.ancestors(node) if isinstance(each, ast.ClassDef))
        parts = (part for each in classes for part in each.body if isinstance(part, ast.FunctionDef))
        begins = [each for each in parts if each.name == "__init__"]
        ways = [way for each in begins for way in self._ways.to(each.body[0], source)]
        return any(self._ways.reached(way, rank) is False for way in ways for rank in (RANK_0, RANK_1))

    @staticmethod
    def _is_called(way: Way, node: ast.AST, source: Source) -> bool:
        """Whether a way begins where the script does."""
        first = way.through[0] if way.through else (source, node)
        return first[0].function(first[1]) is None

    def _own_place(self, node: ast.Call) -> bool:
        """Whether a call writes to or reads from a place that is not surely that of all ranks."""
        given_ = [*node.args, *(each.value for each in node.keywords if each.arg != "mode")]
        short = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if short in ("info", "debug", "log"):  # to a file that was opened elsewhere
            return True
        places = given_[1:] if short in PLACES and len(given_) > 1 else given_[:1]
        named = (each.value for each in node.keywords)
        if any("devnull" in ast.unparse(each) for each in places) or any(BY_RANK.search(ast.unparse(x)) for x in named):
            return True
        made = [op for each in places for op in held(self._ranks.program.at(each))]
        return not all(map(self._is_of_all, self._ranks.before(made)))

    def _is_of_all(self, operation: Operation) -> bool:
        value = Value(frozenset([operation]))
        told = [self._ranks.evaluated(value, rank) for rank in (RANK_0, RANK_1)]
        lying = self._ranks.placements.of.get(operation)
        return told[0] == told[1] and (lying is None or isinstance(lying, Replicate))

    @cached_property
    def _at(self) -> dict[tuple[Source, int, int], list[ast.Call]]:
        """The calls at each place, and what `with` opens there."""
        found: dict[tuple[Source, int, int], list[ast.Call]] = {}
        for source in self._ranks.sources:
            for node in walk(source.tree):
                call = node.items[0].context_expr if isinstance(node, ast.With) else node
                if isinstance(call, ast.Call):
                    place = source, getattr(node, "lineno", 0), getattr(node, "col_offset", 0) + 1
                    found.setdefault(place, []).append(call)
        return found

    @cached_property
    def _settled(self) -> frozenset[tuple[str, Source, int]]:
        return frozenset(self._seen_to(self._ranks.program.operations))

    def _seen_to(self, operations: Iterable[Operation]) -> Iterator[tuple[str, Source, int]]:
        """What a script has seen to itself, by code and line: data that each rank cuts its share of, draws from a
        generator of its own, and files that only rank 0 has open."""
        loaders = {each.owner for each in given.loaders(self._ranks)}
        cut = {each for each in loaders if self._ranks.is_cut(each)}
        alone: dict[object, bool] = {}
        for each in operations:
            line = getattr(each.node, "lineno", 0)
            roles = getattr(each.owner, "roles", ())
            if each.owner in cut and "__init__" in each.name:
                yield "AD201", each.source, line
            elif "generator" in roles and self._ranks.is_apart(each.owner):
                yield "AD205", each.source, line
            elif "writer" in roles and (alone.get(each.owner) or kept.on_one(each, self._ways)):
                alone[each.owner] = alone.get(each.owner, False) or each.name.endswith(".__init__")
                yield "AD301", each.source, line
        for source in self._ranks.sources:
            for loop in (one for one in walk(source.tree) if isinstance(one, (ast.For, ast.YieldFrom))):
                if cut & self._ranks.program.at(loop.iter if isinstance(loop, ast.For) else loop.value).things:
                    yield "AD202", source, loop.lineno
