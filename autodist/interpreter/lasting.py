"""What a step writes into something that outlives it."""

from __future__ import annotations

import ast

from autodist import carried
from autodist.interpreter.machine import Machine
from autodist.source import Source, all_of, last_name, walk
from autodist.spread import COLUMNS, ROWS
from autodist.values import NOTHING, Items, Parameters, Scope, Thing, Value, constant

FRESH = frozenset("add sub mul div clone".split())


class Lasting(Machine):
    """Notes of what a step hands on to the next."""

    def _hands_on(self, node: ast.stmt, scope: Scope) -> None:
        """Note what a step writes into something that outlives it: part of a module, or a name of the script."""
        found = carried.written(node) or self._put_in_one_by_one(node)
        if found is None:
            return
        target, given = found
        parameters = self._parameters(target)
        if self._forward and parameters:
            self.event("written_inside", target, scope, Value(parameters))
        outside = bool(parameters) and not self._forward
        if not self._loops and not outside:
            return
        if isinstance(target, ast.Attribute) and self._lately(target.value).spread.is_local:
            return  # a field of the batch
        if not outside and isinstance(target, ast.Name) and self._is_made_anew(target.id, node, scope):
            return
        changed = [(each, value) for each in given if (value := self._lately(each)).spread.is_local]
        for each, value in changed:
            self.event("state", each, scope, value, constant((target, outside or self._is_buffer(target))))

    def _put_in_one_by_one(self, node: ast.stmt) -> carried.Written | None:
        """What a step puts into a list, one sample of a rank's own after the other."""
        return carried.grown(node) if not self._forward and any(loop.by_row for loop in self._loops) else None

    def _parameters(self, target: ast.Name | ast.Attribute) -> frozenset[Thing]:
        """The parameters that a name or attribute stands for."""
        held: list[Thing] = [t for t in self._lately(target).things if isinstance(t, Parameters)]
        if isinstance(target, ast.Attribute) and target.attr in ("weight", "bias"):
            held += [Parameters(module, one=True) for module in self._lately(target.value).objects("module")]
        return frozenset(held)

    def _is_made_anew(self, name: str, node: ast.stmt, scope: Scope) -> bool:
        """Whether a variable that a statement changes is bound in every round of the loop, or in every call."""
        rebinds = isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        if not rebinds and scope.names.get(name, NOTHING).lasting:
            return False  # `memory = self.memory`
        if not self._is_within(node, scope):
            given = self._calls[-1].given() if self._calls else {}
            own = (
                name not in given
                or self._is_computed_before(name, node, scope.source)
                or self._is_bound_anew(given[name])
            )
            return rebinds or _is_own(name, scope) and own
        if self._is_of_a_call(name, scope):
            return True
        stores = scope.source.stores_within(self._loops[-1].node, name)
        others = {scope.source.statement(each) for each in stores} - {node}
        return self._filled_first(name, node, scope) or not all(map(self._goes_on, others))

    def _goes_on(self, node: ast.stmt) -> bool:
        """Whether a statement changes a variable, as `alpha = min(alpha, 1)` does."""
        return carried.written(node) is not None

    def _is_computed_before(self, name: str, node: ast.stmt, source: Source) -> bool:
        """Whether a parameter of a function names another tensor by then: `x = x - mean` ahead of `x /= deviation`, or
        `for layer in self.layers: x = layer(x)` ahead of `x += residual`."""
        for statement in (node, *source.ancestors(node)):
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
                break
            if not isinstance(statement, ast.stmt):
                continue
            for before in source.block(statement):
                if before is statement:
                    break
                for each in before.body if isinstance(before, ast.For) else [before]:
                    targets = each.targets if isinstance(each, ast.Assign) else []
                    named = any(isinstance(target, ast.Name) and target.id == name for target in targets)
                    if named and isinstance(each, ast.Assign) and self._makes_another(each.value):
                        return True
        return False

    def _makes_another(self, value: ast.expr) -> bool:
        """Whether an expression computes a new tensor, and is no view of another one."""
        if isinstance(value, ast.Call) and any(True for _ in self._lately(value.func).objects("module")):
            return True
        named = isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute)
        return isinstance(value, ast.BinOp) or named and value.func.attr in FRESH  # type: ignore[attr-defined]

    def _is_bound_anew(self, given: ast.expr, depth: int = 1) -> bool:
        """Whether what a function is given is a variable of the loop that calls it, `decode(targets)` of a batch, or of
        a function that the loop calls, `normalize(d)` of an attack on a batch."""
        loop, call = self._loops[-1].node, self._calls[-depth]
        if isinstance(given, ast.Attribute) and given.attr in ("grad", "data"):
            given = given.value
        if not isinstance(given, ast.Name) or call.node is None:
            return False
        held = self._lately(given)
        if held.lasting or any(isinstance(thing, Parameters) for thing in held.things):
            return False
        if any(each is loop for each in call.source.ancestors(call.node)):
            return bool(call.source.stores_within(loop, given.id)) or self._is_of_a_call(given.id, call.scope, depth)
        if depth == len(self._calls) or not _is_own(given.id, call.scope):
            return False
        handed = self._calls[-depth - 1].given()
        return given.id not in handed or self._is_bound_anew(handed[given.id], depth + 1)

    def _is_of_a_call(self, name: str, scope: Scope, depth: int = 0) -> bool:
        """Whether a variable is one of a function that is given samples, and takes no step with them: the attack on a
        batch makes its noise anew, and changes it in a loop of its own."""
        given = self._calls[-1 - depth].given() if len(self._calls) > depth else {}
        own = _is_own(name, scope) and name not in given
        steps = (each for each in walk(self._loops[-1].node) if isinstance(each, ast.Call))
        return (
            own
            and any(self._lately(each).spread.is_local for each in given.values())
            and not any(last_name(each.func) == "step" and not self._steps_samples(each) for each in steps)
        )

    def _steps_samples(self, call: ast.Call) -> bool:
        """Whether an optimizer steps samples, or noise for them, and no parameters: `optim.SGD([delta])`."""
        made = list(self._lately(call.func.value).objects("optimizer")) if isinstance(call.func, ast.Attribute) else []
        given = [thing for one in made for value in one.args[:1] for thing in value.things if isinstance(thing, Items)]
        held = [each for items in given for each in (items.element, *(items.parts or ()))]
        return any(each.spread in (ROWS, COLUMNS) for each in held) and not any(each.things for each in held)

    def _filled_first(self, name: str, node: ast.stmt, scope: Scope) -> bool:
        """Whether new samples are put into a tensor before a round of the loop does anything else with it."""
        loop, source = self._loops[-1].node, scope.source
        if not carried.fills(node, name) or loop not in source.ancestors(node):
            return False
        mentions = [each for each in all_of(loop, ast.Name) if each.id == name]

        def is_filled(mention: ast.Name) -> bool:
            inner = [each for each in (mention, *source.ancestors(mention)) if isinstance(each, ast.stmt)]
            around = inner[: inner.index(loop)] if loop in inner else inner[:1]
            before = (each for at in around for each in source.block(at)[: source.block(at).index(at)])
            return carried.fills(inner[0], name) or any(carried.fills(each, name) for each in before)

        return all(map(is_filled, mentions))

    def _is_within(self, node: ast.stmt, scope: Scope) -> bool:
        return any(each is self._loops[-1].node for each in scope.source.ancestors(node))

    def _is_buffer(self, node: ast.expr) -> bool:
        """Whether a name or attribute holds what a module keeps from one forward pass to the next."""
        if isinstance(node, ast.Name):
            return self._lately(node).lasting or bool(
                self._calls and self._calls[-1].stands_for(node.id, self._is_buffer)
            )
        if not isinstance(node, ast.Attribute):
            return False
        if node.attr in ("weight", "bias"):
            return self._is_buffer(node.value)
        modules = [t for t in self._lately(node.value).objects("module") if t.cls is not None]
        names = [carried.buffers(each.node for each in t.cls.line()) for t in modules if t.cls is not None]
        return bool(modules) and (self._forward > 0 or any(node.attr in each for each in names))


def _is_own(name: str, scope: Scope) -> bool:
    """Whether a function has a variable for itself."""
    return scope.parent is not None and scope.find(name) is scope
