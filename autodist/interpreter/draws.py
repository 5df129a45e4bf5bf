"""Random numbers: seeds, generators, and what is drawn."""

from __future__ import annotations

import ast
from functools import partial

from autodist import tensors
from autodist.interpreter.contents import Contents
from autodist.interpreter.questions import has_state
from autodist.spread import LOCAL, SAME
from autodist.values import NOTHING, Draw, Items, Object, Scope, Value, constant, is_clock, of, union

COUNTING = ("randint", "multinomial", "choice")
"""What draws as many numbers as it is told."""


def _has_generator(keywords: dict[str, Value]) -> bool:
    """Whether a call is told to draw from a generator of the script's own, and not from `generator=None`."""
    return "generator" in keywords and keywords["generator"].const is not None


class Draws(Contents):
    """Calls of libraries that draw, or say what is drawn."""

    def call_seed(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value:
        fresh = self._is_fresh([*args, *keywords.values()])
        self.event("unseeded" if fresh else "seed", node, scope, self._mixed(args))
        return NOTHING

    call_any_seed = call_seed

    def _is_fresh(self, seeds: list[Value]) -> bool:
        """Whether each process gets a seed of its own: none, or one from the clock."""
        origins = union(seeds).origins
        clocked = any(map(is_clock, origins))
        return not seeds or clocked or any(value.const is None for value in seeds)

    def call_clock(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value:
        """What differs from process to process."""
        self.event("clock", node, scope)
        make = partial(Object, name, frozenset(["clock"]), node, scope.source, self._path)
        return Value(origins=frozenset([self._remember(node, make, "clock")]))

    def call_generator(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value:
        """A generator of the script's own, with a seed of its own."""
        library = "random" if name == "random.Random" else "numpy.random"
        make = partial(Object, library, frozenset(["generator"]), node, scope.source, self._path)
        made = of(self._remember(node, make, "generator"))
        self.event("generator", node, scope, made)
        if self._is_fresh([*args, *keywords.values()]):
            self.event("unseeded", node, scope, made)
        return made

    def call_index_draw(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value | None:
        for expression, value in zip(
            [*node.args, *(k.value for k in node.keywords)], [*args, *keywords.values()], strict=False
        ):
            if value.spread is LOCAL and self._loops:
                self.event("local_draw", expression, scope, value, constant(id(node)))
        size = tensors.drawn(name, node)
        if not _has_generator(keywords):
            self.event("random" if size is not None else "random_number", node, scope)
        if size is None:
            return None
        sizes = [v for k, v in keywords.items() if k == "size"] or args[-1 if name.startswith("torch.") else 2 :]
        told = (self._lately(size), *(v for each in sizes for v in (each, *self._contents(each))))
        evaluates = self._forward and self._evaluates() and not _has_generator(keywords)
        noise = self._noise_of_evaluation(node, scope).origins if evaluates else NOTHING.origins
        self.event("noise_drawn", node, scope, constant(_has_generator(keywords)), constant(name))
        if name.endswith(COUNTING) and any(v.spread.is_local for v in told):  # `randint(0, n, (len(x),))`
            return Value(spread=LOCAL, origins=noise.union(*(v.origins for v in args)))
        permutes = name.rpartition(".")[2] in ("randperm", "permutation")
        once = not self._loops
        drawn = self._draw(Draw(node, scope.source, self._path, size, permutes=permutes, once=once), scope)
        return drawn.but(origins=drawn.origins | noise)

    def _draw(self, draw: Draw, scope: Scope) -> Value:
        self.event("draw", draw.node, scope, of(draw))
        return Value(spread=LOCAL if self.plan.shares(draw.node) else SAME, origins=frozenset([draw]))

    def call_random_draw(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value:
        if not _has_generator(keywords):
            self.event("random", node, scope, self._mixed(args))
        self.event("noise_drawn", node, scope, constant(_has_generator(keywords)), constant(name))
        if keywords.get("requires_grad", NOTHING).const is True and id(node) not in self.plan.inputs:
            return of(
                self._remember(
                    node, lambda: Object(name, frozenset(["parameter"]), node, scope.source, self._path), "loose"
                )
            )
        size = tensors.drawn(name, node)
        if self.plan.shares(node):  # a rank has its share of it wherever the function that draws is called from
            return self._draw(Draw(node, scope.source, self._path, size, noise=True), scope)
        if self._evaluates() and not _has_generator(keywords):
            return self._noise_of_evaluation(node, scope)
        if size is None or not self._loops or self._forward:
            return NOTHING
        return self._draw(Draw(node, scope.source, self._path, size, noise=True), scope)

    def call_dropout(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value | None:
        self.event("random", node, scope)
        training = keywords.get("training", args[2] if len(args) > 2 else constant(True))
        active = training.const is True and name.startswith("torch.nn.functional.")
        noise = self._noise_of_evaluation(node, scope) if active and self._evaluates() else None
        if args and args[0].spread.is_local:
            kept = args[0].computed(args[0].spread)
            return kept.but(origins=kept.origins | noise.origins) if noise is not None else kept
        return noise

    def _evaluates(self) -> bool:
        """Whether no gradients are kept, or the model that runs has been told to evaluate."""
        model = self._passing if self._forward else None
        return bool(self._no_grad) or model is not None and model.key in self._evaluated

    def _noise_of_evaluation(self, node: ast.Call, scope: Scope) -> Value:
        """What all ranks draw of their own once they have gone apart, so that nothing may be decided by it."""
        return Value(origins=frozenset([Draw(node, scope.source, self._path, noise=True, evaluates=True)]))

    def call_random_transform(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value | None:
        self.event("random", node, scope)
        return None

    def call_numpy_draw(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value | None:
        """What draws from NumPy's own generator, unless it is told a `random_state`."""
        if keywords.get("shuffle", NOTHING).const is not False and not has_state(keywords):
            self.event("numpy_draw", node, scope)
        return None

    def call_numpy_shuffle(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value | None:
        """What does so if it is told to shuffle."""
        if "shuffle" in keywords and keywords["shuffle"].const is not False and not has_state(keywords):
            self.event("numpy_draw", node, scope)
        return None

    def call_random_split(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value:

        def part() -> Value:
            roles = frozenset(["dataset"])
            return of(Object("torch.utils.data.Subset", roles, node, scope.source, self._path, None, args[:1]))

        lengths = keywords.get("lengths", args[1] if len(args) > 1 else NOTHING)
        told = [thing for thing in lengths.things if isinstance(thing, Items) and thing.element is NOTHING]
        count = len(told[0].parts) if len(told) == len(lengths.things) == 1 else 0
        made = self._remember(node, lambda: Items(node, [part() for _ in range(count)], NOTHING if count else part()))
        return of(made)
