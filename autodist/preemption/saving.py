"""The checkpoint of a training: where it is written and read, and how it can be written inside an epoch."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NoReturn

from autodist.errors import AutodistError
from autodist.interpreter import Event, Interpreter, Loop
from autodist.preemption.variables import uses
from autodist.script import TrainingScript
from autodist.source import Source, argument, last_name, walk
from autodist.values import NOTHING, Function, Object

PUTTING = ("update", "setdefault", "append", "pop")
GATHERING = "consolidate_state_dict"
"""Of an optimizer whose state is shared out, ahead of its state dict."""
STATEFUL = ("torch.optim.lr_scheduler.", "torch.optim.swa_utils.SWALR")
NO_SAVE = (
    "--on-preempt: the training loop writes no checkpoint with the optimizer's state, so there is nothing to go on "
    'from: save {"epoch": ..., "model": model.state_dict(), "optimizer": optimizer.state_dict()} in each epoch'
)
NO_RESUME = (
    "--on-preempt: the checkpoint is never loaded again, so a requeued job would begin anew: before training, load "
    "the file if it is there, model.load_state_dict(), optimizer.load_state_dict(), and the epoch to begin with"
)


def refuse(source: Source, node: ast.AST, message: str) -> NoReturn:
    raise AutodistError(f"--on-preempt: {message}", source.path, getattr(node, "lineno", None))


@dataclass
class Saving:
    """The checkpoint of one script."""

    script: TrainingScript
    run: Interpreter

    def save(self, epochs: Loop, batches: Loop, load: Event) -> Event:
        """Where an epoch writes a checkpoint that holds the optimizer's state."""
        states = {each.node for each in self.run.of("optimizer_state_dict")}
        found = []
        for event in self.run.of("save"):
            loops = [loop.node for loop in event.loops]
            if epochs.node not in loops or batches.node in loops or not isinstance(event.node, ast.Call):
                continue
            if last_name(event.node.func) == "save" and any(
                part in states for each in self.contents(event) for part in walk(each)
            ):
                found.append(event)
        if not found:
            raise AutodistError(NO_SAVE, epochs.source.path, getattr(epochs.node, "lineno", None))
        best = min(found, key=lambda each: (*_likeness(each, load), -each.order))
        if any(isinstance(each, (ast.Tuple, ast.List)) for each in self._saved(best)):
            refuse(best.source, best.node, "the checkpoint is no dict, to which the place in an epoch could be added")
        return best

    def _saved(self, event: Event) -> list[ast.expr]:
        """What a call saves: its argument, or what that has been set to."""
        assert isinstance(event.node, ast.Call)
        state = event.node.args[0] if event.node.args else None
        if not isinstance(state, ast.Name):
            return [state] if state is not None else []
        made = map(event.source.statement, event.source.stores(state))
        return [each.value for each in made if isinstance(each, ast.Assign) and state.id == last_name(each.targets[0])]

    def contents(self, event: Event) -> Iterator[ast.AST]:
        """The expressions of what a call saves, through variables and parameters."""
        assert isinstance(event.node, ast.Call)
        pending: list[tuple[ast.expr, Source]] = [(each, event.source) for each in event.node.args[:1]]
        seen: set[ast.expr] = set()
        while pending:
            node, source = pending.pop()
            if node in seen:
                continue
            seen.add(node)
            yield node
            for made in (each for each in walk(node) if isinstance(each, ast.Call)):
                called = (t for t in self.run.values.get(made.func, NOTHING).things if isinstance(t, Function))
                returned = ((each, t) for t in called for each in walk(t.node) if isinstance(each, ast.Return))
                pending += [(each.value, t.source) for each, t in returned if each.value is not None]
            for name in (each for each in walk(node) if isinstance(each, ast.Name)):
                for store in source.stores(name):
                    statement = source.statement(store)
                    if isinstance(statement, ast.Assign):
                        pending.append((statement.value, source))
                for call in event.calls:
                    given = call.given().get(name.id)
                    if given is not None and source.home(name) is call.function.node and call.node is not None:
                        pending.append((given, call.source))

    def load(self, epochs: Loop, step: Event) -> Event:
        """Where the checkpoint is read again."""
        restored = [each.order for each in self.run.of("optimizer_load_state_dict") if each.order < step.order]
        reads = [each for each in self.run.of("load") if restored and each.order < max(restored)]
        reads = [each for each in reads if isinstance(each.node, ast.Call) and last_name(each.node.func) == "load"]
        if not reads:
            raise AutodistError(NO_RESUME, epochs.source.path, getattr(epochs.node, "lineno", None))
        return reads[-1]

    def copied(
        self, save: Event, epochs: Loop, inner: ast.stmt, batches: ast.AST, number: str
    ) -> tuple[list[ast.stmt], ast.expr | None, dict[ast.expr, str]]:
        """The statements that save a checkpoint, as they can be run inside an epoch."""
        source = epochs.source
        places = [save.node, *(each.node for each in save.calls if each.node is not None)]
        node = next(each for each in places if source.parents.get(each) and epochs.node in source.ancestors(each))
        statement = source.statement(node)
        guard = _rank_test(statement, epochs.node, source) if save.on_one_rank else None
        replaced: dict[ast.expr, str] = {}
        known = [*_before(inner, source), *([inner] if inner is batches else [])]
        bound = {name for name, use in uses(known) if use != "read"}
        assert isinstance(save.node, ast.Call)
        if len(save.node.args) < 2:
            refuse(
                save.source, save.node, "torch.save is given its state and its path by position alone here: write so"
            )
        path = argument(save.node, "f", 1)
        opened = list(save.source.stores(path)) if isinstance(path, ast.Name) else []
        if any(isinstance(save.source.parents[each], ast.withitem) for each in opened):
            message = (
                "torch.save is given an open file: give it the path, so that the file is written whole or not at all"
            )
            refuse(save.source, save.node, message)
        ahead = list(_between(inner, statement, epochs.node, source))
        for chosen in self._choices(statement, epochs, ahead):
            names = {n.id for n in walk(chosen) if isinstance(n, ast.Name)} - {number}
            if any(source.stores_within(epochs.node, each) for each in names):
                message = (
                    "the checkpoint is only written where this holds: inside an epoch another would take its place"
                )
                refuse(source, chosen, f"{message}; write one for going on in each epoch, to a file of its own")
        counted = (each for each in ahead if isinstance(each, ast.AugAssign) and ast.unparse(each.target) == number)
        calls = [(each, each.value) for each in ahead if isinstance(each, ast.Expr)]
        gathered = (each for each, call in calls if isinstance(call, ast.Call) and last_name(call.func) == GATHERING)
        copied = [statement, *counted, *gathered]
        contents = set(self.contents(save))
        pending: list[ast.stmt] = [statement]
        while pending:
            for name in _loaded(pending.pop()):
                if not source.stores_within(epochs.node, name.id) or _is_called(name, source):
                    continue
                made = [each for each in ahead if name.id in _touched(each)]
                if made and all(each in copied for each in made):
                    continue
                if (
                    made
                    and (name in contents or name.id not in bound)
                    and all(_only_makes(each, name.id) for each in made)
                ):
                    if name in contents or not any(_computes(each) for each in made):
                        copied += [each for each in made if each not in copied]
                        pending += made
                        continue
                if name.id not in bound:
                    replaced[name] = self._stand_in(name, source.stores_within(epochs.node, name.id), source)
                elif made and name in contents and name.id in _named(statement, save):
                    message = (
                        "what is saved here is put together among other things: write it as one dict, or by one call"
                    )
                    refuse(source, name, message)
        return sorted(copied, key=lambda each: each.lineno), guard, replaced

    def _choices(self, statement: ast.stmt, epochs: Loop, ahead: list[ast.stmt]) -> Iterator[ast.expr]:
        """The conditions in an epoch by which a checkpoint is written, but for ranks and every so many epochs."""
        source = epochs.source
        for node in (part for each in ahead for part in walk(each) if isinstance(part, ast.Continue)):
            around = list(source.ancestors(node))
            if next(each for each in around if isinstance(each, (ast.For, ast.While))) is epochs.node:
                yield from (each.test for each in around[:1] if isinstance(each, ast.If) and not counts(each.test))
        for above in source.ancestors(statement):
            if above is epochs.node:
                return
            if isinstance(above, ast.If):
                parts = above.test.values if isinstance(above.test, ast.BoolOp) else [above.test]
                yield from (each for each in parts if not counts(each) and not _asks_rank(each))

    def _stand_in(self, name: ast.Name, stores: Iterable[ast.Name], source: Source) -> str:
        """What stands for a value that an epoch has only at its end."""
        above = source.parents[name]
        if isinstance(above, ast.Dict):
            key = next((k for k, v in zip(above.keys, above.values, strict=True) if v is name), None)
            if isinstance(key, ast.Constant) and not self._reads_key(key):
                return "None"
        values = [each.value for each in map(source.statement, stores) if isinstance(each, ast.Assign)]
        if values and all(isinstance(each, (ast.Compare, ast.BoolOp)) for each in values):
            return "False"
        refuse(
            source,
            name,
            f"the checkpoint needs `{name.id}`, which an epoch knows only at its end: set it before the loop",
        )

    def _reads_key(self, key: ast.Constant) -> bool:
        nodes = (each for source in self.script.project.sources for each in walk(source.tree))
        for each in nodes:
            if isinstance(each, ast.Subscript) and isinstance(each.ctx, ast.Load):
                if isinstance(each.slice, ast.Constant) and each.slice.value == key.value:
                    return True
            if isinstance(each, ast.Call) and last_name(each.func) == "get" and each.args:
                if isinstance(each.args[0], ast.Constant) and each.args[0].value == key.value:
                    return True
        return False

    def states(self, epochs: ast.stmt, source: Source) -> Iterator[str]:
        """Schedulers and scalers that training moves on, and no checkpoint holds."""
        saved: set[object] = set()
        moved: dict[str, set[object]] = {}
        held: set[object]
        for each in self.script.project.sources:
            for node in walk(each.tree):
                if not isinstance(node, ast.Attribute):
                    continue
                held = {
                    thing.key
                    for thing in self.run.values.get(node.value, NOTHING).things
                    if isinstance(thing, Object)
                    and (
                        "scaler" in thing.roles or thing.name.startswith(STATEFUL) or thing.name.endswith("GradScaler")
                    )
                }
                if node.attr == "state_dict":
                    saved |= held
                elif node.attr in ("step", "update") and held and each is source:
                    if isinstance(node.value, (ast.Name, ast.Attribute)):
                        moved.setdefault(ast.unparse(node.value), set()).update(held)
        home = source.home(epochs)
        known = {node.id for node in walk(home) if isinstance(node, ast.Name)}
        known |= {each.arg for each in walk(home) if isinstance(each, ast.arg)}
        for code, held in moved.items():
            if not held & saved:
                if code.partition(".")[0] not in known:
                    refuse(
                        source, epochs, f"the checkpoint has no state of `{code}`, which is not known here: save it too"
                    )
                yield code


def _likeness(save: Event, load: Event) -> tuple[bool, int]:
    """How likely a file is that which is loaded again: by its path, and since it is written in each epoch."""
    paths = [argument(each.node, "f", at) for each, at in ((save, 1), (load, 0)) if isinstance(each.node, ast.Call)]
    codes = {ast.unparse(each) for each in paths if each is not None}
    return len(codes) != 1, len(list(save.source.conditions(save.node)))


def _rank_test(statement: ast.stmt, epochs: ast.AST, source: Source) -> ast.expr | None:
    """What lets only rank 0 come to a statement of the loop."""
    for above in source.ancestors(statement):
        if above is epochs:
            break
        if isinstance(above, ast.If):
            parts = above.test.values if isinstance(above.test, ast.BoolOp) else [above.test]
            for part in parts:
                if _asks_rank(part):
                    return part
    return None


def _asks_rank(test: ast.expr) -> bool:
    return any(word in ast.unparse(test).lower() for word in ("rank", "is_main", "master"))


def _between(inner: ast.stmt, statement: ast.stmt, epochs: ast.AST, source: Source) -> Iterator[ast.stmt]:
    """The statements of a loop's body that are run after one of them and ahead of another."""
    node: ast.AST = statement
    while node is not epochs:
        if isinstance(node, ast.stmt):
            ahead = source.before(node)
            first = next(
                (at for at, each in enumerate(ahead, 1) if each is inner or each in source.ancestors(inner)), 0
            )
            yield from ahead[first:]
        node = source.parents[node]


def _touched(statement: ast.stmt) -> set[str]:
    """Variables that a statement binds, or puts something into: `state["epoch"] = epoch`, `state.update(more)`."""
    found = {name for name, use in uses([statement]) if use != "read"}
    for node in walk(statement):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name):
            found.add(node.value.id)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            holder = node.value.func.value if isinstance(node.value.func, ast.Attribute) else None
            found |= {holder.id} if isinstance(holder, ast.Name) and last_name(node.value.func) in PUTTING else set()
    return found


def _only_makes(statement: ast.stmt, name: str) -> bool:
    """Whether a statement does nothing but make what a variable holds."""
    if isinstance(statement, ast.If):
        return all(_only_makes(each, name) for each in (*statement.body, *statement.orelse))
    return isinstance(statement, (ast.Assign, ast.AugAssign, ast.Expr)) and _touched(statement) == {name}


def _before(inner: ast.stmt, source: Source) -> list[ast.AST]:
    """The statements that have run before one of a function, in its loops."""
    found: list[ast.AST] = []
    node: ast.AST = inner
    while node is not source.home(inner):
        if isinstance(node, ast.stmt):
            found += source.before(node)
        node = source.parents[node]
        if isinstance(node, ast.For):
            found.append(node.target)
    return found


def counts(test: ast.expr) -> bool:
    return any(isinstance(each, ast.Mod) for each in walk(test))


def _loaded(statement: ast.stmt) -> list[ast.Name]:
    return [each for each in walk(statement) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)]


def _is_called(name: ast.Name, source: Source) -> bool:
    above = source.parents[name]
    return isinstance(above, ast.Call) and above.func is name


def _named(statement: ast.stmt, save: Event) -> set[str]:
    """The variables that are saved as they are."""
    args = save.node.args[:1] if isinstance(save.node, ast.Call) else []
    return {each.id for each in args if isinstance(each, ast.Name)} & {n.id for n in _loaded(statement)}


def _computes(statement: ast.stmt) -> bool:
    """Whether a statement does more than put together what is saved: paths, states and the like."""
    calls = [each for each in walk(statement) if isinstance(each, ast.Call)]
    if not all(last_name(each.func) in ("state_dict", "join", "format", "dict", "Path", "str") for each in calls):
        return True
    plain = (ast.Dict, ast.JoinedStr, ast.Call, ast.BinOp, ast.Constant)
    return not isinstance(statement, ast.Assign) or not isinstance(statement.value, plain)
