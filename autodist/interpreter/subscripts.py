"""What is cut out, or picked, by an index."""

from __future__ import annotations

import ast
from dataclasses import replace

from autodist.interpreter.attributes import Attributes
from autodist.interpreter.questions import (
    any_entry,
    given_to,
    is_above,
    is_hashable,
    is_known,
    kept_as,
    may_spell,
)
from autodist.source import walk
from autodist.spread import LOCAL, RANK, SAME, WORLD
from autodist.values import (
    NOTHING,
    PLAIN,
    UNKNOWN,
    Class,
    Draw,
    External,
    Function,
    Index,
    Inside,
    Items,
    LocalModule,
    Object,
    OptimizerState,
    Parameters,
    Scope,
    Stream,
    Table,
    Value,
    Wrapped,
    constant,
    of,
    union,
)

MOMENTS = frozenset(
    "exp_avg exp_avg_sq max_exp_avg_sq exp_inf momentum_buffer sum square_avg grad_avg acc_delta prev ax".split()
)
"""Under which names the optimizers of torch keep tensors that are shaped like a parameter."""


class Subscripts(Attributes):
    """Expressions with an index."""

    def of_Subscript(self, node: ast.Subscript, scope: Scope) -> Value:
        base = self.eval(node.value, scope)
        key = self.eval(node.slice, scope)
        found = NOTHING
        given = [kept_as(thing, key.const) for thing in base.things if isinstance(thing, Object)]
        if given and len(given) == len(base.things) and None not in given:
            return union(each for each in given if each is not None)
        for thing in (each.module if isinstance(each, Wrapped) else each for each in base.things):
            if isinstance(thing, Table):
                if key.const is not UNKNOWN and is_hashable(key.const) and key.const in thing.entries:
                    found = found | (self._just_entered(thing, key.const, node) or thing.entries[key.const])
                else:
                    found = found | self._called_alike(thing, node.slice) | thing.element
                    if self._loops and is_known(thing) and not thing.entries:
                        found = found | PLAIN  # the script has looked before: `if k in sums`
            elif isinstance(thing, Items):
                if isinstance(key.const, int) and -len(thing.parts) <= key.const < len(thing.parts):
                    found = found | thing.parts[key.const]
                elif isinstance(node.slice, ast.Slice):
                    found = found | of(thing)
                else:
                    found = found | union(thing.parts) | thing.element
            elif isinstance(thing, Stream):
                found = found | self._of_listed(thing, node)
            elif isinstance(thing, Parameters) and thing.one:
                found = found | of(replace(thing, part=True))
            elif isinstance(thing, Parameters):
                found = found | of(thing if isinstance(node.slice, ast.Slice) else replace(thing, one=True))
            elif isinstance(thing, Inside):
                found = found | of(thing)
            elif isinstance(thing, OptimizerState):
                found = found | self._entry(thing, key)
            elif isinstance(thing, Object) and "module" in thing.roles:
                layer = thing.layers.get(key.const) if isinstance(key.const, str) else None
                layer = layer or (union(self._children(thing)) if thing.args else of(thing))
                found = found | layer
            elif isinstance(thing, Object) and isinstance(key.const, str) and f"[{key.const}]" in thing.attributes:
                found = found | thing.attributes[f"[{key.const}]"]
            elif isinstance(thing, Object) and "writer" in thing.roles:
                found = found | of(thing)  # `run["loss"].append(loss)`
            elif isinstance(thing, Object) and not thing.roles and thing.functions("__getitem__"):
                found = found | self._item_of(thing, key, scope)
            elif isinstance(thing, Object) and thing.cls is not None and thing.cls.is_dict and key.const is UNKNOWN:
                found = found | union(held for name, held in thing.attributes.items() if name.startswith("["))
            elif isinstance(thing, External) and thing.name == "os.environ":
                if key.const in ("RANK", "LOCAL_RANK", "SLURM_PROCID", "SLURM_LOCALID"):
                    found = found | Value(spread=RANK)
                elif key.const in ("WORLD_SIZE",):
                    found = found | Value(spread=WORLD)
            elif isinstance(thing, External) and thing.name == "sys.modules" and isinstance(key.const, str):
                found = found | self._of_modules(key.const, node, scope)
            elif isinstance(thing, External) and thing.name.endswith(".__dict__"):
                found = found | of(External(f"{thing.name.removesuffix('.__dict__')}.?"))
        if key.const == "params" and not base.things:  # of a group of an optimizer
            found = found | self._optimized()
        return found | self._indexed(node, base, key, scope)

    def _of_modules(self, name: str, node: ast.Subscript, scope: Scope) -> Value:
        """`sys.modules[__name__]`"""
        if name == scope.source.module:
            return of(self._remember(node, lambda: LocalModule(scope.source, scope.top), "module"))
        return self._module(name, node)

    def _of_listed(self, stream: Stream, node: ast.Subscript) -> Value:
        """What is picked of an iterator that was made a list: some of it, one of the parts of a module,
        `list(model.children())[0]`, or one of its pairs, `list(enumerate(loader))[i]`."""
        if isinstance(node.slice, ast.Slice):
            return of(stream)
        piece = stream.element.spread.is_local and not stream.element.things  # `x.chunk(2)[0]`
        if piece or any(isinstance(t, Items) for t in stream.element.things):
            return stream.element
        return of(stream) | (stream.element if any(isinstance(t, Inside) for t in stream.element.things) else NOTHING)

    def _optimized(self) -> Value:
        """The parameters that the optimizers so far were given."""
        given = [v for e in self._optimizers for t in e.value.things for v in given_to(t)]
        return Value(frozenset(Parameters(t.module) for value in given for t in self.parameters_in(value)))

    def _join_optimizers(self, groups: ast.expr, held: Value, joined: Value, scope: Scope) -> None:
        """More parameters come to an optimizer, past its methods: `optimizer.param_groups.append(...)`, and
        `group["params"] += head.parameters()`, where ``held`` were in the group."""
        if not self.parameters_in(joined):
            return
        for optimizer in self._optimizers_behind(groups, held):
            optimizer.args.append(joined)

    def _optimizers_behind(self, groups: ast.expr, held: Value) -> list[Object]:
        if len(bound := self._bound_to(groups)) == 1:
            groups = bound[0]  # `params = optimizer.param_groups[0]["params"]`
        inner = groups
        while isinstance(inner, ast.Subscript):
            inner = inner.value
        if isinstance(inner, ast.Attribute) and inner.attr == "param_groups":
            return list(self._lately(inner.value).objects("optimizer"))
        if not isinstance(groups, ast.Subscript) or self._lately(groups.slice).const != "params":
            return []
        modules = {each.module for each in self.parameters_in(held)}
        made = [t for e in self.events if e.kind == "optimizer" for t in e.value.objects("optimizer")]
        ours = (t for t in made if any(p.module in modules for v in given_to(t) for p in self.parameters_in(v)))
        return list(dict.fromkeys(ours))

    def _entry(self, state: OptimizerState, key: Value) -> Value:
        """`optimizer.state[p]["exp_avg"]`"""
        if state.depth == 2:
            return of(OptimizerState(state.module, 1))
        if state.depth == 1 and isinstance(key.const, str):
            return of(Parameters(state.module, cut=True, one=True)) if key.const in MOMENTS else NOTHING
        return of(OptimizerState(state.module, 0)) if state.depth == 1 else NOTHING

    def _just_entered(self, table: Table, key: object, node: ast.Subscript) -> Value | None:
        """What the function that now runs has written there before, whatever else may be written there at other times:
        `self.parts["loss"] = ...; return self.parts["loss"]`."""
        last = self._entered_last.get(table, {}).get(key)
        if last is None or table.entries[key] is not last.held:
            return None
        if last.call is not (self._calls[-1] if self._calls else None) or not is_above(last.node, node):
            return None
        same = self._branches[: len(last.branches)] == last.branches
        return last.value if same and ast.unparse(node.value) == ast.unparse(last.node.value) else None

    def _called_alike(self, table: Table, key: ast.expr) -> Value:
        """What an unknown key may give, of those that it may spell; of a module's names, what can be called."""
        if isinstance(table.node, ast.Attribute):
            things = {t for v in table.entries.values() for t in v.things if isinstance(t, (Class, Function))}
            return Value(frozenset(things))
        spelt = {name: value for name, value in table.entries.items() if may_spell(key, name)}
        known = spelt or table.element is not NOTHING
        return any_entry(replace(table, entries=spelt)) if known else any_entry(table)

    def _indexed(self, node: ast.Subscript, base: Value, key: Value, scope: Scope) -> Value:
        """Samples chosen by an index, and slices of what a rank has."""
        origins = base.origins | key.origins
        if isinstance(node.slice, ast.Slice) and self._strided(node.slice, scope):
            self.event("share", node, scope, base)
        axes = [self._lately(axis) for axis in node.slice.elts] if isinstance(node.slice, ast.Tuple) else []
        origins |= frozenset().union(*(axis.origins for axis in axes))
        for drawn in union([key, *axes]).origins:
            if not isinstance(drawn, Draw) or drawn.noise:
                continue
            by_row = drawn in (axes[0] if axes else key).origins
            others = any(isinstance(each, Draw) and each is not drawn and not each.noise for each in base.origins)
            if not by_row and others:
                self.event("picks_features", node, scope, of(drawn))
            if not base.spread.is_local:
                self.event("picks", node, scope, of(drawn), constant(by_row or not others))
        if any(axis.spread.is_local for axis in axes) and not base.spread.is_local:  # `data[:, own_rows]`
            return Value(spread=LOCAL, origins=origins)
        if key.spread is RANK or base.spread is RANK and not base.things:
            spread = LOCAL if isinstance(node.slice, ast.Slice) else RANK
            return Value(spread=spread, origins=origins)
        if isinstance(node.slice, ast.Slice) and self._strided(node.slice, scope):
            return Value(spread=LOCAL, origins=origins)
        if not base.spread.is_local and not key.spread.is_local:
            draw = (
                (self._sequential(node, key, scope) or self._first_of(node, base, scope)) if not base.things else None
            )
            if draw is not None:
                self.event("draw", node, scope, of(draw))
                return Value(spread=LOCAL if self.plan.shares(node) else SAME, origins=origins | {draw})
            return Value(origins=origins) if origins else NOTHING
        if base.spread.is_local:
            return Value(spread=LOCAL, origins=origins, weights=base.weights)
        return Value(spread=key.spread, origins=origins)

    def _strided(self, slice_: ast.Slice, scope: Scope) -> bool:
        return slice_.lower is not None and self._lately(slice_.lower).spread is RANK

    def _sequential(self, node: ast.Subscript, key: Value, scope: Scope) -> Draw | None:
        """A slice that walks over data in steps of a batch: `x[i : i + batch_size]`."""
        if not isinstance(node.slice, ast.Slice) or node.slice.lower is None or node.slice.upper is None:
            return None
        if not isinstance(node.ctx, ast.Load):
            return None
        lower = self.values.get(node.slice.lower, NOTHING)
        walks = any(isinstance(t, Index) and _steps(t.loop) for t in lower.things)
        computed = isinstance(node.slice.lower, ast.BinOp) and any(
            isinstance(t, Index)
            for t in union(
                self.values.get(n, NOTHING) for n in walk(node.slice.lower) if isinstance(n, ast.Name)
            ).things
        )
        upper = node.slice.upper
        size = upper.right if isinstance(upper, ast.BinOp) and isinstance(upper.op, ast.Add) else None
        return Draw(node, scope.source, self._path, size) if walks or computed else None

    def _first_of(self, node: ast.Subscript, base: Value, scope: Scope) -> Draw | None:
        """The first few of indices that were drawn: `torch.randperm(n)[:batch_size]`."""
        cut = node.slice
        if not isinstance(cut, ast.Slice) or cut.lower is not None or cut.step is not None:
            return None
        if not isinstance(cut.upper, (ast.Constant, ast.Name, ast.Attribute)):
            return None
        for draw in base.origins:
            if isinstance(draw, Draw) and not draw.noise and isinstance(draw.node, ast.Call):
                bound = draw.source.parents.get(draw.node)
                names = [ast.dump(t) for t in bound.targets] if isinstance(bound, ast.Assign) else []
                if node.value is draw.node or ast.dump(node.value).replace("Load()", "Store()") in names:
                    return Draw(node, scope.source, self._path, cut.upper)
        return None

    def of_Slice(self, node: ast.Slice, scope: Scope) -> Value:
        parts = [self.eval(part, scope) for part in (node.lower, node.upper, node.step) if part is not None]
        return self._mixed(parts)


def _is_size(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "size"
        and not node.args
    )


def _steps(loop: ast.AST) -> bool:
    """`range(0, n, step)`"""
    return isinstance(loop, ast.Call) and len(loop.args) == 3
