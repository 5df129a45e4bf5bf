"""One run over a project."""

from __future__ import annotations

from autodist.interpreter.branches import Branches
from autodist.interpreter.calls import Calls
from autodist.interpreter.draws import Draws
from autodist.interpreter.expressions import Expressions
from autodist.interpreter.machine import Interrupted
from autodist.interpreter.statements import Statements
from autodist.values import Function


class Interpreter(Calls, Expressions, Statements, Branches, Draws):
    """One run over a project. `values` and `events` are what it leaves behind."""

    def run(self) -> Interpreter:
        """Run the entry script, then what nothing in it calls (a launcher or framework may)."""
        self._modules["__main__"] = self.module
        try:
            self.block(self.module.source.tree.body, self.module.scope)
            if not self._trains("backward", "step"):
                for thing in [t for value in self.module.scope.names.values() for t in value.things]:
                    if isinstance(thing, Function) and thing.node not in self._entered and not self._trains("step"):
                        self.call_function(thing, None, [], {}, self.module.scope)
                if not self._trains("step"):  # functions for others to call, which train elsewhere
                    self.events = [event for event in self.events if event.kind != "backward"]
        except (Interrupted, RecursionError):
            self.complete = False
        return self

    def _trains(self, *kinds: str) -> bool:
        return any(event.kind in kinds for event in self.events)
