"""Functions with a backward pass of their own: `class Scale(torch.autograd.Function)`, called as `Scale.apply(x)`."""

from __future__ import annotations

import ast

from autodist.interpreter.classes import Classes
from autodist.values import NOTHING, Class, External, Items, Object, Scope, Value, of

FUNCTIONS = ("torch.autograd.Function", "torch.autograd.function.Function")
CONTEXT = "autograd_context"


def is_autograd_function(cls: Class) -> bool:
    """Whether a class derives from torch.autograd.Function."""
    return any(isinstance(base, External) and base.name in FUNCTIONS for each in cls.line() for base in each.bases)


class AutogradFunctions(Classes):
    """Both passes of such a function, one after the other: the second sees what the first kept."""

    def _apply_function(
        self, cls: Class, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value | None:
        """What `Scale.apply(x)` gives, or None for a class that is none of these."""
        forward = cls.find("forward") if is_autograd_function(cls) else None
        if forward is None:
            return None
        context = self._remember(
            node, lambda: Object(FUNCTIONS[0], frozenset([CONTEXT]), node, scope.source, self._path), cls
        )
        apart = cls.find("setup_context")
        result = self._pass(forward[1], node, args if apart else [of(context), *args], keywords, scope)
        if apart:
            inputs = self._remember(node, lambda: Items(node, [], NOTHING), "inputs")
            inputs.parts = args
            self._pass(apart[1], node, [of(context), of(inputs), result], {}, scope)
        backward = cls.find("backward")
        if backward is not None:
            outputs = [part for thing in result.things if isinstance(thing, Items) for part in thing.parts] or [result]
            gradients = [Value(spread=value.spread, origins=value.origins) for value in outputs]
            self._no_grad += 1
            self._pass(backward[1], node, [of(context), *gradients], {}, scope)
            self._no_grad -= 1
        followed = result.spread.is_local or result.things or not self._mixed(args).spread.is_local
        return result if followed else self._mixed(args)

    def _pass(self, value: Value, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope) -> Value:
        found = value.functions
        return self.call_function(found[0], node, args, keywords, scope) if len(found) == 1 else self._mixed(args)

    def _keep_for_backward(self, context: Object, node: ast.Call, args: list[Value]) -> Value:
        """`ctx.save_for_backward(x, y)`."""
        kept = self._remember(node, lambda: Items(node, [], NOTHING), "saved")
        kept.parts = args
        context.attributes["saved_tensors"] = of(kept)
        return NOTHING
