"""What scripts say to other processes: functions that they start there, and what they receive from them."""

from __future__ import annotations

import ast
from collections.abc import Sequence as Row

from autodist.program import EMPTY, Value
from autodist.trace.calls import REST, Keywords
from autodist.trace.data import Data
from autodist.trace.names import thing
from autodist.trace.things import External, Frame, Function, Sequence

NUMBER = "process.number"
"""The number of a process that the script starts."""
PROCESSES = ("multiprocessing.Process", "multiprocessing.process.Process", "multiprocessing.context.Process")
ENVIRONMENT = "os.environ"
RECEIVED = {
    "all_reduce": ("tensor", 0),
    "broadcast": ("tensor", 0),
    "reduce": ("tensor", 0),
    "scatter": ("tensor", 0),
    "all_gather": ("tensor_list", 0),
    "all_gather_into_tensor": ("output_tensor", 0),
    "all_gather_object": ("object_list", 0),
    "broadcast_object_list": ("object_list", 0),
    "gather": ("gather_list", 1),
    "gather_object": ("object_gather_list", 1),
    "reduce_scatter": ("output", 0),
    "reduce_scatter_tensor": ("output", 0),
}
"""The arguments in which collectives leave what they give."""


class Processes(Data):
    """Functions that run in other processes, and messages from them."""

    def started(self, name: str, node: ast.AST, frame: Frame, inputs: Row[Value], keywords: Keywords) -> None:
        """Run the function that each of several processes runs: `spawn(main, args=(world_size,), nprocs=2)`"""
        spawned = self.catalog.has(name, "spawn")
        if not (spawned or name.endswith(PROCESSES)):
            return
        function = keywords.get("fn" if spawned else "target", inputs[0] if spawned and inputs else EMPTY)
        given = keywords.get("args", inputs[1] if spawned and len(inputs) > 1 else EMPTY)
        number = self.record(NUMBER, node, frame)
        parts = self.parts(given)
        if not spawned and parts is not None:
            parts = [number if at in _counted(node, frame) else each for at, each in enumerate(parts)]
        rest = {REST: self.element(given, node, frame)} if parts is None and given is not EMPTY else {}
        for each in function.things:
            if isinstance(each, Function):
                self.call(thing(each), node, frame, [*([number] if spawned else []), *(parts or [])], rest)

    def received(
        self, name: str, node: ast.AST, frame: Frame, given: tuple[Row[Value], Keywords], result: Value
    ) -> None:
        """Note that a collective leaves what it gives in what it is given: `dist.all_reduce(total)`"""
        word, place = RECEIVED.get(name.rpartition(".")[2], ("", 0))
        inputs, keywords = given
        target = keywords.get(word, inputs[place] if place < len(inputs) else EMPTY)
        if not word or target is EMPTY or not isinstance(node, ast.Call):
            return
        for each in target.things:
            if isinstance(each, Sequence):
                each.parts, each.anywhere, each.version = None, result, each.version + 1
        if target.operations:
            self.change_viewed(Value(target.operations), result, node, frame)
            named = next((each.value for each in node.keywords if each.arg == word), None)
            home = named or (node.args[place] if place < len(node.args) else None)
            if isinstance(home, (ast.Name, ast.Attribute)):
                self.assign(home, result | Value(constants=target.constants, things=target.things), frame)

    def item(self, base: Value, key: Value, node: ast.AST, frame: Frame) -> Value:
        if base.things == frozenset([External(ENVIRONMENT)]):
            return self.record(ENVIRONMENT + ".get", node, frame, [key])
        return super().item(base, key, node, frame)


def _counted(node: ast.AST, frame: Frame) -> set[int]:
    """Which argument counts the processes: `for rank in range(n): Process(target=run, args=(rank,))`"""
    given = next((each.value for each in getattr(node, "keywords", []) if each.arg == "args"), None)
    loops = [each.target for each in frame.source.ancestors(node) if isinstance(each, (ast.For, ast.comprehension))]
    names = {each.id for each in loops if isinstance(each, ast.Name)}
    comprehensions = (each for each in frame.source.ancestors(node) if isinstance(each, ast.ListComp))
    for each in comprehensions:
        names |= {g.target.id for g in each.generators if isinstance(g.target, ast.Name)}
    elements = given.elts if isinstance(given, (ast.Tuple, ast.List)) else []
    return {at for at, each in enumerate(elements) if isinstance(each, ast.Name) and each.id in names}
