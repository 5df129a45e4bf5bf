"""One run over a project."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import replace
from functools import cached_property, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from autodist.catalog import Catalog
from autodist.interpreter.branches import Branches
from autodist.interpreter.calls import Calls
from autodist.interpreter.draws import Draws
from autodist.interpreter.expressions import Expressions
from autodist.interpreter.machine import Interrupted, Spent
from autodist.interpreter.plan import Plan
from autodist.interpreter.statements import Statements
from autodist.placement import Partial, PerRank, Placement, Replicate, Shard
from autodist.placement.between_ranks import gives_world, is_rank
from autodist.placement.call import ROWS
from autodist.placement.lattice import is_even_number
from autodist.placement.padded import propagate_padding
from autodist.placement.placements import Placements
from autodist.placement.propagate import propagate
from autodist.program import Operation, Program, closure, held
from autodist.project import Project
from autodist.solve.draws import Draws as DrawsOfProgram
from autodist.solve.generators import Generators
from autodist.solve.layouts import Layout, layouts
from autodist.solve.normalising import normalising
from autodist.solve.padding import padding
from autodist.solve.sources import Sources, sources
from autodist.solve.steps import PACKED
from autodist.source import walk
from autodist.trace import trace
from autodist.values import NOTHING, Function, Object, Value

KEPT_STEPS = 50_000
"""Runs of so many steps are kept together: what they hold takes memory."""

About = ParamSpec("About")
Answer = TypeVar("Answer")


class Interpreter(Calls, Expressions, Statements, Branches, Draws):
    """One run over a project. `values` and `events` are what it leaves behind."""

    @cached_property
    def runs(self) -> Runs:
        """Those that it is one of."""
        return Runs(self.project, self.catalog)

    def under(self, plan: Plan) -> Interpreter:
        """The same run under a plan that makes more of its values global: what the script does stays as it is."""
        other = copy(self)
        other.plan, other.answers = plan, {}
        for each in ("placements", "padding"):
            other.__dict__.pop(each, None)
        return other

    def layout(self, loader: Object) -> Layout:
        return self.runs.layouts.get(loader.node, Layout())

    def is_packed(self, node: ast.expr) -> bool:
        return any(each.name.endswith(PACKED) for each in self.runs.traced.at(node).operations)

    @cached_property
    def placements(self) -> Placements:
        """How the values of the program lie over the ranks under the plan of the run, once it is over."""
        return self.runs.placed(self.runs.program, self)

    def lies(self, node: ast.AST) -> list[Placement]:
        """How what an expression may be lies over the ranks: of each operation that may give it, in any context."""
        if (share := self._taken_as(node)) is not None:
            return [share]
        given: frozenset[Operation] = self.runs.program.at(node).operations
        of = self.placements.of
        return [of[each] for each in given if each in of]

    @property
    def sample_loops(self) -> frozenset[ast.AST]:
        """The loops that go over a rank's samples, one by one."""
        return frozenset(each.node for each in self.placements.sample_loops)

    def _taken_as(self, node: ast.AST) -> Placement | None:
        """How what a rank takes its share of lies where it does so."""
        if node not in self.plan.taken:
            return None
        return Partial("sum", ROWS) if node in self.plan.counts else Shard(int(node in self.plan.columns))

    @cached_property
    def padding(self) -> Mapping[Operation, Placement]:
        """How what depends on the length that a rank fills its samples up to lies along their words."""
        program = self.runs.program
        sources = padding(program, self.placements)
        return propagate_padding(program, sources, self.catalog).of if sources else {}

    def is_padded(self, node: ast.AST) -> bool:
        """Whether an expression is as long as the longest of a rank's samples, or may be, or computed of what is."""
        filled = (self.padding.get(each, Replicate()) for each in self.runs.program.at(node).operations)
        return any(isinstance(each, (Shard, PerRank)) for each in filled)

    def axes(self, node: ast.AST) -> int | None:
        """How many axes an expression has, as far as the program graph tells."""
        sizes = self.placements.size(self.runs.program.at(node))
        return None if sizes is None else len(sizes)

    def _is_told(self, node: ast.AST) -> bool:
        """Whether the graph tells how an expression lies: it may not come to code that a run comes to."""
        return not isinstance(node, ast.expr) or bool(self.runs.program.at(node))

    def is_alike(self, node: ast.AST) -> bool:
        """Whether all ranks have the same there, whatever a list or an object holds that it is."""
        if node in self.plan.taken:
            return False
        if not self._is_told(node):
            return not self._value(node).spread.is_local
        lying = self.placements.joint(self.runs.program.at(node).operations)
        return lying is None or isinstance(lying, Replicate) and lying.exponent != -1  # as how many ranks there are

    def holds_alike(self, node: ast.AST) -> bool:
        """Whether all ranks have the same there, in lists, dicts and objects as well."""
        if not self._is_told(node):
            return self.is_alike(node) and not self.holds_local(self._value(node))
        inside = held(self.runs.program.at(node))
        return self.is_alike(node) and all(self.placements.of.get(each, Replicate()) == Replicate() for each in inside)

    def is_given_alike(self, call: ast.AST) -> bool:
        """Whether all ranks give the same to a call."""
        given = [*call.args, *call.keywords] if isinstance(call, ast.Call) else []
        return all(self.holds_alike(e.value if isinstance(e, (ast.Starred, ast.keyword)) else e) for e in given)

    def has_rows(self, node: ast.AST, always: bool = False) -> bool:
        """Whether it may have a row for each of a rank's samples, along the first axis, or ``always`` has."""
        made = self.runs.program.at(node).operations
        drawn = [each for each in made if each.name.startswith("numpy.random.")]
        sized = any(map(self._draws_for_each, drawn))
        rows = [
            isinstance(each, Shard)
            and not each.axis
            or isinstance(each, PerRank)
            and (sized or bool(drawn) and each.rows == ROWS)
            for each in self.lies(node)
        ]  # `np.random.choice(len(x), len(x))` draws a number for each
        return any(rows) and (all(rows) or not always)

    def _draws_for_each(self, operation: Operation) -> bool:
        """Whether it is told to draw as many numbers as a rank has samples: `np.random.dirichlet(a, size=len(x))`."""
        size = operation.argument("size")
        lying = self.placements.value(size) if size is not None else None
        return isinstance(lying, Partial) and lying.reduce == "sum" and is_even_number(lying.weight)

    def counts_samples(self, node: ast.AST) -> bool:
        """Whether it goes by how many samples a rank has, of which all have as many: `len(x)`, `len(x) // 2`"""
        counts = (each.weight for each in self.lies(node) if isinstance(each, Partial) and each.reduce == "sum")
        return any(map(is_even_number, counts))

    def goes_by_rank(self, node: ast.AST) -> bool:
        """Whether an expression is computed from the number of the process that runs it, or chosen by it: `path if rank
        == 0 else os.devnull`."""
        chosen = (each.test for each in walk(node) if isinstance(each, ast.IfExp))
        return any(self._is_above(each, self._is_rank) for each in (node, *chosen))

    def _is_rank(self, operation: Operation) -> bool:
        return is_rank(operation) or self.catalog.has(operation.name, "rank")

    def counts_ranks(self, node: ast.AST) -> bool:
        """Whether it is computed from how many processes there are."""
        return self._is_above(node, lambda op: gives_world(op) or self.catalog.has(op.name, "world_size"))

    def _is_above(self, node: ast.AST, told: Callable[[Operation], bool]) -> bool:
        return any(map(told, closure(self.runs.program.at(node).operations, _computed_or_chosen_by)))

    def normalises(self, module: Object) -> bool:
        """Whether a module normalises over batches, or may."""
        return normalising(self.runs.program, self.catalog).are(module.node)

    def _value(self, node: ast.AST) -> Value:
        return self.values.get(node, NOTHING) if isinstance(node, ast.expr) else NOTHING

    def run(self) -> Interpreter:
        """Run the entry script, then what nothing in it calls (a launcher or framework may)."""
        self._modules["__main__"] = self.module
        if not self._may_train():
            return self
        try:
            self.block(self.module.source.tree.body, self.module.scope)
            if not self._trains("backward", "step"):
                for thing in [t for value in self.module.scope.names.values() for t in value.things]:
                    if isinstance(thing, Function) and thing.node not in self._entered and not self._trains("step"):
                        self.call_function(thing, None, [], {}, self.module.scope)
                if not self._trains("step"):  # functions for others to call, which train elsewhere
                    self.events = [event for event in self.events if event.kind != "backward"]
            for call in self._at_end:
                call()
        except (Interrupted, RecursionError) as reason:
            self.complete, self.nested = False, isinstance(reason, RecursionError)
        return self

    @property
    def largest(self) -> Spent | None:
        """The function that was entered several times and took most, with all that it calls."""
        several = (each for each in self.spent.values() if each.entered > 2)
        return max(several, key=lambda each: each.steps, default=None)

    def _may_train(self) -> bool:
        """Whether any file names what trains: of others, which a hook or a search is shown by the hundreds, nothing is
        asked that would take its time."""
        packages = "|".join(sorted(self.catalog.training_packages))
        named = re.compile(rf"\.backward\(|\btorch|^\s*(?:from|import)\b.*\b(?:{packages})\b", re.M)
        return any(named.search(source.text) for source in self.project.sources)

    def _trains(self, *kinds: str) -> bool:
        return any(event.kind in kinds for event in self.events)


def _computed_or_chosen_by(operation: Operation) -> Iterator[Operation]:
    """What an operation is computed from, and what chooses it of two: `a if test else b`."""
    yield from operation.given
    for each in operation.region.around():
        if each.kind == "branch" and isinstance(each.source.parents.get(each.node), ast.IfExp):
            yield from each.subject.operations


class Unfinished(Exception):
    """A run that did not come to the end of the script, from which nothing may be concluded."""

    def __init__(self, run: Interpreter) -> None:
        super().__init__()
        self.run = run


def once_a_run(
    ask: Callable[Concatenate[Interpreter, About], Answer],
) -> Callable[Concatenate[Interpreter, About], Answer]:
    """A question about a run that is over, answered once: models and rules come by it again and again. The answer is
    only read, and what it is about can be hashed."""

    @wraps(ask)
    def answer(run: Interpreter, /, *about: About.args, **_: About.kwargs) -> Answer:
        if (ask, about) not in run.answers:
            run.answers[ask, about] = ask(run, *about)  # type: ignore[call-arg]
        return cast(Answer, run.answers[ask, about])

    return answer


def shared_out(program: Program, run: Interpreter) -> Placements:
    """How values lie where what trains is shared out, and nothing is made global."""
    return propagate(program, sources(program, run.catalog).plan, catalog=run.catalog)


class Runs:
    """The runs of one analysis. What is planned as it was for one of the last runs is that run. How values lie under
    the plan of a run is asked of ``placed``, when somebody asks the run."""

    def __init__(
        self, project: Project, catalog: Catalog, placed: Callable[[Program, Interpreter], Placements] = shared_out
    ) -> None:
        self._project, self._catalog, self.placed = project, catalog, placed
        self._kept: list[Interpreter] = []
        self._sources: dict[tuple[Program, frozenset[Any], frozenset[Any]], Sources] = {}

    @cached_property
    def traced(self) -> Program:
        """The program, as far as the project was read."""
        return trace(self._project, self._catalog)

    @property
    def program(self) -> Program:
        """What the project does, read once for all of them. Raises Unfinished where it could not be read to its end."""
        if not self.traced.complete:
            raise Unfinished(self._kept[0])
        return self.traced

    @cached_property
    def draws(self) -> DrawsOfProgram:
        """What the program draws random numbers for."""
        return DrawsOfProgram(self.program, self._catalog)

    @cached_property
    def generators(self) -> Generators:
        """The generators that it makes."""
        return Generators(self.program, self.draws)

    @cached_property
    def layouts(self) -> Mapping[ast.AST, Layout]:
        """How loaders lay out their batches, as far as the project was read."""
        return layouts(self.traced, self._catalog) if self.traced.complete else {}

    def sources(self, program: Program, training: frozenset[Any], ahead: frozenset[Any]) -> Sources:
        """What each rank has its share of, some loaders that are known to train among it, and none that are read
        ``ahead``: asked for once, so that plans which begin with it are seen to do so."""
        about = program, training, ahead
        if about not in self._sources:
            given = sources(program, self._catalog, ahead)
            by_hand = (given.batches or given.wholes) and not given.training
            self._sources[about] = given if by_hand else replace(given, training=given.training | training)
        return self._sources[about]

    def __call__(self, plan: Plan) -> Interpreter:
        """The run with this plan. Raises Unfinished where it did not come to its end."""
        found = next((each for each in self._kept if each.plan == plan), None)
        if found is None:
            alike = next((each for each in self._kept if each.plan.followed == plan.followed), None)
            found = alike.under(plan) if alike is not None else self._followed(plan)
        self._kept = [found, *(each for each in self._kept if each is not found)]
        while len(self._kept) > 1 and sum({id(e.values): e.steps for e in self._kept}.values()) > KEPT_STEPS:
            self._kept.pop()
        if not found.complete:
            raise Unfinished(found)
        return found

    def _followed(self, plan: Plan) -> Interpreter:
        run = Interpreter(self._project, self._catalog, plan)
        run.runs = self
        return run.run()
