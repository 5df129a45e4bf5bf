"""From a project to its program, in one run."""

from __future__ import annotations

from autodist.catalog import Catalog
from autodist.deep import deep
from autodist.program import Program
from autodist.project import Project
from autodist.trace.libraries import Libraries
from autodist.trace.machine import Interrupted
from autodist.trace.names import thing
from autodist.trace.things import Function


class Tracer(Libraries):
    """An abstract interpreter: it runs a project once, with values that stand for all those that it may have."""

    def run(self) -> Program:
        """The program of the project."""
        try:
            self.block(self.main.frame.source.tree.body, self.main.frame)
            if not self.program.of("backward"):  # a launcher or a framework may call what the script does not
                for value in list(self.main.frame.names.values()):
                    for each in value.things:
                        if isinstance(each, Function):
                            self.callbacks(each.node, self.main.frame, [thing(each)])
            for heap in self.heaps:  # hold what their tensors hold in the end
                heap.replace(self.current)
        except (Interrupted, RecursionError):
            self.program.complete = False
        return self.program


@deep
def trace(project: Project, catalog: Catalog) -> Program:
    """What a project does, read once."""
    return Tracer(project, catalog).run()
