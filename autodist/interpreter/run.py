"""One run over a project."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property, wraps
from typing import Concatenate, ParamSpec, TypeVar, cast

from autodist.catalog import Catalog
from autodist.interpreter.branches import Branches
from autodist.interpreter.calls import Calls
from autodist.interpreter.draws import Draws
from autodist.interpreter.expressions import Expressions
from autodist.interpreter.machine import Interrupted, Spent
from autodist.interpreter.plan import Plan
from autodist.interpreter.statements import Statements
from autodist.program import Program
from autodist.project import Project
from autodist.trace import trace
from autodist.values import Function

KEPT_STEPS = 50_000
"""Runs of so many steps are kept together: what they hold takes memory."""

About = ParamSpec("About")
Answer = TypeVar("Answer")


class Interpreter(Calls, Expressions, Statements, Branches, Draws):
    """One run over a project. `values` and `events` are what it leaves behind."""

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


class Runs:
    """The runs of one analysis. What is planned as it was for one of the last runs is that run."""

    def __init__(self, project: Project, catalog: Catalog) -> None:
        self._project, self._catalog = project, catalog
        self._kept: list[Interpreter] = []

    @cached_property
    def program(self) -> Program:
        """What the project does, read once for all of them."""
        return trace(self._project, self._catalog)

    def __call__(self, plan: Plan) -> Interpreter:
        """The run with this plan. Raises Unfinished where it did not come to its end."""
        found = next((each for each in self._kept if each.plan == plan), None)
        if found is None:
            found = Interpreter(self._project, self._catalog, plan).run()
        self._kept = [found, *(each for each in self._kept if each is not found)]
        while len(self._kept) > 1 and sum(each.steps for each in self._kept) > KEPT_STEPS:
            self._kept.pop()
        if not found.complete:
            raise Unfinished(found)
        return found
