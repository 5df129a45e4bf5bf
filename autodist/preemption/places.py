"""Where a training can end inside an epoch, what it saves there, and where it goes on."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NoReturn

from autodist.errors import AutodistError
from autodist.interpreter import Event, Interpreter, Loop
from autodist.preemption.variables import running, uses
from autodist.script import Loader, Preemption, TrainingScript
from autodist.source import Source, argument, last_name
from autodist.values import NOTHING, Function, Object

RANGES = ("range", "trange")
PUTTING = ("update", "setdefault", "append", "pop")
SIGNALS = ("SIGTERM", "SIGUSR1")
PLAIN = ("tqdm", "track", "len")
"""What gives a loader's batches as they are."""
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


def preemption(script: TrainingScript, run: Interpreter) -> Preemption | None:
    """What `--on-preempt` needs to know of a distributed script. Raises AutodistError where something is missing."""
    if not script.distributed or not script.trains:
        return None
    places = _Places(script, run)
    return places.found()


def _refuse(source: Source, node: ast.AST, message: str) -> NoReturn:
    raise AutodistError(f"--on-preempt: {message}", source.path, getattr(node, "lineno", None))


@dataclass
class _Places:
    """Reads a script once."""

    script: TrainingScript
    run: Interpreter

    def found(self) -> Preemption:
        self._check_group()
        loader, sampler = self._loader()
        step, batches = self._step(loader)
        epochs = self._epochs(step, batches)
        source = epochs.source
        assert isinstance(batches.node, ast.For) and isinstance(epochs.node, (ast.For, ast.While))
        load = self._load(epochs, step)
        save = self._save(epochs, batches, load)
        made = self.run.values.get(sampler, NOTHING).objects("sampler")
        files: dict[ast.AST, Source] = {each.node: each.source for each in (epochs, batches, save, load)}
        files[sampler] = next((each.source for each in made), loader.source)
        number, start = self._numbers(epochs, source)
        inline = source.home(batches.node) is source.home(epochs.node)
        leading = None if inline else self._leading(step, epochs, source)
        inner = batches.node if inline else leading
        assert inner is not None and isinstance(save.node, ast.Call) and isinstance(load.node, ast.Call)
        copied, guard, replaced = self._copied(save, epochs, inner, batches.node, number)
        values = self.script.values
        saved = {n.id for each in self._contents(save) for n in ast.walk(each) if isinstance(n, ast.Name)}
        variables = [
            each
            for each in running(batches.node, batches.source, values)
            if each.attributes is None or each.code not in saved
        ]
        told = {name for each in copied for name, _ in uses([each])} | {each.code for each in variables}
        told |= {
            ast.unparse(n) for each in self._contents(save) for n in ast.walk(each) if isinstance(n, ast.Attribute)
        }
        lasting = [each for each in running(epochs.node, source, values, inner) if each.code not in told | {number}]
        for one in (*variables, *lasting):
            if "held" in dict(one.attributes or ()).values():
                message = (
                    f"`{one.code}` changes in each step, and is a metric or holds a model: save its state, and load it"
                )
                _refuse(source, batches.node, message)
        name = self._named(batches.node, batches.source, loader)
        assert name is not None
        return Preemption(
            source=source,
            files=files,
            home=self._home(files.values(), epochs),
            epochs=epochs.node,
            number=number,
            start=start,
            batches=batches.node,
            loader=name,
            sampler=sampler,
            boundary=tuple(self._boundary(step, batches, loader)),
            copied=tuple(copied),
            guard=guard,
            replaced=replaced,
            save=save.node,
            load=load.node,
            leading=leading,
            running=tuple(variables),
            lasting=tuple(lasting),
            states=tuple(self._states(epochs.node, source)),
        )

    def _home(self, files: Iterable[Source], epochs: Loop) -> Source:
        """A file that imports none of the others, so that all of these can import from it."""
        involved = dict.fromkeys(files)
        for each in involved:
            reached, pending = {each}, [each]
            while pending:
                one = pending.pop()
                further = [o for o in self.script.project.sources if o not in reached and _imports(one, o)]
                reached.update(further)
                pending += further
            if reached.isdisjoint(involved.keys() - {each}) and (len(involved) == 1 or each.module != "__main__"):
                return each
        names = ", ".join(each.path.name for each in involved)
        _refuse(
            epochs.source, epochs.node, f"{names} import each other: put the loops, torch.save and torch.load in one"
        )

    def _check_group(self) -> None:
        for source in self.script.project.sources:
            for node in ast.walk(source.tree):
                if isinstance(node, ast.Call) and ast.unparse(node.func) == "signal.signal":
                    if any(last_name(each) in SIGNALS for each in ast.walk(node)):
                        _refuse(
                            source,
                            node,
                            "the script listens to this signal itself: take its handler out, or leave the option",
                        )
        for event in self.run.of("init_process_group"):
            told = ast.walk(event.node) if isinstance(event.node, ast.Call) else ()
            if any(isinstance(each, ast.Constant) and each.value == "nccl" for each in told):
                message = (
                    'ranks agree by a number on the CPU, which NCCL does not take: "cpu:gloo,cuda:nccl" takes both'
                )
                _refuse(event.source, event.node, message)

    # ---------------------------------------------------------------- loops

    def _loader(self) -> tuple[Loader, ast.Call]:
        """The loader that trains, and its sampler."""
        entry = self.script.project.entry
        if not self.script.loaders:
            message = (
                "the script makes its batches itself: where such a training stands in its data cannot be told; read "
                "them by a DataLoader"
            )
            _refuse(entry, entry.tree, message)
        loader = self.script.loaders[0]
        if loader.iterable:
            message = "an IterableDataset has no order of samples to go on in: a training can only begin it anew"
            _refuse(loader.source, loader.node, message)
        if len(self.script.loaders) > 1:
            message = f"training reads {len(self.script.loaders)} loaders: its position must be that in one of them"
            _refuse(loader.source, loader.node, message)
        sampler = argument(loader.told, "sampler", 3)
        made = self.run.values.get(sampler, NOTHING).objects("sampler") if sampler is not None else ()
        if isinstance(sampler, ast.Name):
            told = map(loader.source.statement, loader.source.stores(sampler))
            sampler = next((each.value for each in told if isinstance(each, ast.Assign)), sampler)
        calls = [each.node for each in made] or ([sampler] if isinstance(sampler, ast.Call) else [])
        call = calls[0] if calls else None
        if not isinstance(call, ast.Call) or last_name(call.func) != "DistributedSampler":
            message = (
                "this loader's order of samples is drawn by a sampler of the script's own, which cannot begin inside "
                "an epoch: only a loader that is shuffled by the epoch can (shuffle=True, or none)"
            )
            _refuse(loader.source, loader.node, message)
        return loader, call

    def _step(self, loader: Loader) -> tuple[Event, Loop]:
        """An optimizer's step, and the loop over batches that it is taken in."""
        found: dict[ast.AST, tuple[Event, Loop]] = {}
        for event in self.run.of("step"):
            for loop in event.loops:
                if isinstance(loop.node, ast.For) and self._named(loop.node, loop.source, loader) is not None:
                    found.setdefault(loop.node, (event, loop))
        if len(found) != 1:
            message = "no `for` loop goes over the batches of this loader by its name: nothing can be left out of it"
            if found:
                message = f"training passes over this loader in {len(found)} places: its position must be that in one"
            _refuse(loader.source, loader.node, message)
        event, loop = next(iter(found.values()))
        assert isinstance(loop.node, ast.For)
        self._check_numbers(loop.node, loop.source, loader)
        return event, loop

    def _named(self, loop: ast.For, source: Source, loader: Loader) -> str | None:
        """The loader, as it is named in a loop over it, behind a progress bar and the like."""
        pending: list[ast.expr] = [loop.iter]
        while pending:
            for node in ast.walk(pending.pop(0)):
                if not isinstance(node, (ast.Name, ast.Attribute)):
                    continue
                made = [source.statement(each) for each in source.stores(node)] if isinstance(node, ast.Name) else []
                bars = [each.value for each in made if isinstance(each, ast.Assign) and _is_bar(each.value)]
                if not bars and self._is_of(node, loader):
                    return ast.unparse(node)
                pending += [each for each in bars if node not in ast.walk(each)]
        return None

    def _is_of(self, node: ast.expr, loader: Loader) -> bool:
        return any(each.node is loader.node for each in self.run.values.get(node, NOTHING).objects("loader"))

    def _check_numbers(self, loop: ast.For, source: Source, loader: Loader) -> None:
        """Whether nothing around the loader counts its batches but `enumerate`, which can be told where to begin."""
        named = [
            source.statement(each) for n in ast.walk(loop.iter) if isinstance(n, ast.Name) for each in source.stores(n)
        ]
        made = [
            (each.value, PLAIN) for each in named if isinstance(each, ast.Assign) and loop not in source.ancestors(each)
        ]
        for value, known in [(loop.iter, (*PLAIN, "enumerate")), *made]:
            if any(each is loader.node for each in ast.walk(value)):
                continue
            for call in (each for each in ast.walk(value) if isinstance(each, ast.Call)):
                given = [*call.args, *(each.value for each in call.keywords if each.arg == "iterable")]
                passes_on = any(self.run.values.get(each, NOTHING).objects("loader") for each in given)
                passes_on = passes_on or any(isinstance(each, ast.Call) for each in given)
                if passes_on and last_name(call.func) not in known:
                    message = f"`{last_name(call.func)}` stands between this loop and its loader, and may count batches"
                    _refuse(
                        source, loop, f"{message}: loop over the loader, by enumerate() or a progress bar if need be"
                    )

    def _epochs(self, step: Event, batches: Loop) -> Loop:
        at = [loop.node for loop in step.loops].index(batches.node)
        around = [loop for loop in step.loops[:at] if isinstance(loop.node, (ast.For, ast.While))]
        if not around:
            _refuse(
                batches.source, batches.node, "no loop over epochs is around this one: there is no number to go on at"
            )
        found = around[-1]
        ways = set()
        for event in self.run.of("step"):
            if found.node in [loop.node for loop in event.loops]:
                calls = [call.node for call in event.calls if call.node is not None]
                ways.add(tuple(call for call in calls if found.node not in found.source.ancestors(call)))
        outside = {len(each) for each in ways}
        if len(around) > 1 or len({each[: min(outside)] for each in ways}) > 1:
            message = (
                "this loop over epochs is run several times: a checkpoint does not say in which of them it was written"
            )
            _refuse(found.source, found.node, message)
        return found

    def _numbers(self, epochs: Loop, source: Source) -> tuple[str, ast.expr | None]:
        """The variable that counts epochs, and the expression that it begins with."""
        node = epochs.node
        later = (
            "this loop begins with the same epoch whatever was loaded: let it begin with the epoch of the checkpoint"
        )
        if isinstance(node, ast.While):
            counted = [each.target for each in ast.walk(node) if isinstance(each, ast.AugAssign)]
            tested = {ast.unparse(each) for each in ast.walk(node.test) if isinstance(each, (ast.Name, ast.Attribute))}
            names = [code for each in counted if (code := ast.unparse(each)) in tested]
            if not names:
                _refuse(source, node, "this loop counts no epochs: there is no number to go on at")
            return names[0], None
        assert isinstance(node, ast.For)
        calls = [each for each in ast.walk(node.iter) if isinstance(each, ast.Call) and last_name(each.func) in RANGES]
        if not calls or not isinstance(node.target, (ast.Name, ast.Attribute)):
            _refuse(source, node, "this loop does not go through `range(first, last)`: there is no epoch to begin with")
        if len(calls[0].args) < 2 or isinstance(calls[0].args[0], ast.Constant):
            _refuse(source, node, later)
        start = calls[0].args[0]
        if not self._is_loaded(start, source):
            _refuse(source, node, later)
        return ast.unparse(node.target), start

    def _is_loaded(self, start: ast.expr, source: Source) -> bool:
        """Whether a value comes from elsewhere than from constants: from a checkpoint, a function, a caller."""
        names = {last_name(each) for each in ast.walk(start) if isinstance(each, (ast.Name, ast.Attribute))}
        home = source.home(start)
        if any(each.arg in names for each in ast.walk(home) if isinstance(each, ast.arg)):
            return True
        for each in self.script.project.sources:
            for node in ast.walk(each.tree):
                if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
                    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                    bound = {last_name(part) for target in targets for part in ast.walk(target)}
                    if bound & names and any(
                        isinstance(part, (ast.Subscript, ast.Call)) for part in ast.walk(node.value)
                    ):
                        return True
        return False

    def _boundary(self, step: Event, batches: Loop, loader: Loader) -> Iterator[ast.expr]:
        """The conditions under which a batch is the last one of a step: those that count, and all where the same loop
        also evaluates."""
        own = batches.node
        changed = {name for name, use in uses(own.body) if use != "read"} if isinstance(own, ast.For) else set()
        chain = [(each.node, each.source) for each in step.calls if each.node is not None] + [(step.node, step.source)]
        at = next(at for at, (node, file) in enumerate(chain) if own in file.ancestors(node))
        node, file = chain[at]
        names = ast.walk(own.iter) if isinstance(own, ast.For) else ()
        read = [t for n in names if isinstance(n, ast.expr) for t in self.run.values.get(n, NOTHING).objects("loader")]
        evaluates = any(each.node is not loader.node for each in read)
        asked = [each for each in dict.fromkeys(file.conditions(node)) if own in file.ancestors(each)]
        if evaluates and not asked:
            message = (
                "this loop also reads loaders that evaluate, and does not ask which it does: give training its own"
            )
            _refuse(batches.source, own, message)
        for test in asked:
            if evaluates or _counts(test):
                if changed & {each.id for each in ast.walk(test) if isinstance(each, ast.Name)}:
                    message = "the loop changes what this condition for a step goes by: count batches by enumerate()"
                    _refuse(file, test, message)
                yield test
        for node, file in chain[at + 1 :]:
            for test in file.conditions(node):
                if _counts(test):
                    _refuse(
                        file, test, "what counts gradients up to a step is to stand in the loop over batches itself"
                    )

    def _leading(self, step: Event, epochs: Loop, source: Source) -> ast.stmt:
        """The statement of the loop over epochs that leads to that over batches."""
        for call in step.calls:
            if call.node is not None and call.source is source and epochs.node in source.ancestors(call.node):
                return source.statement(call.node)
        _refuse(source, epochs.node, "what leads from this loop to that over batches cannot be told")

    # ---------------------------------------------------------------- the checkpoint

    def _save(self, epochs: Loop, batches: Loop, load: Event) -> Event:
        """Where an epoch writes a checkpoint that holds the optimizer's state."""
        states = {each.node for each in self.run.of("optimizer_state_dict")}
        found = []
        for event in self.run.of("save"):
            loops = [loop.node for loop in event.loops]
            if epochs.node not in loops or batches.node in loops or not isinstance(event.node, ast.Call):
                continue
            if last_name(event.node.func) == "save" and any(
                part in states for each in self._contents(event) for part in ast.walk(each)
            ):
                found.append(event)
        if not found:
            raise AutodistError(NO_SAVE, epochs.source.path, getattr(epochs.node, "lineno", None))
        best = min(found, key=lambda each: (*_likeness(each, load), -each.order))
        if any(isinstance(each, (ast.Tuple, ast.List)) for each in self._saved(best)):
            _refuse(best.source, best.node, "the checkpoint is no dict, to which the place in an epoch could be added")
        return best

    def _saved(self, event: Event) -> list[ast.expr]:
        """What a call saves: its argument, or what that has been set to."""
        assert isinstance(event.node, ast.Call)
        state = event.node.args[0] if event.node.args else None
        if not isinstance(state, ast.Name):
            return [state] if state is not None else []
        made = map(event.source.statement, event.source.stores(state))
        return [each.value for each in made if isinstance(each, ast.Assign) and state.id == last_name(each.targets[0])]

    def _contents(self, event: Event) -> Iterator[ast.AST]:
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
            for made in (each for each in ast.walk(node) if isinstance(each, ast.Call)):
                called = (t for t in self.run.values.get(made.func, NOTHING).things if isinstance(t, Function))
                returned = ((each, t) for t in called for each in ast.walk(t.node) if isinstance(each, ast.Return))
                pending += [(each.value, t.source) for each, t in returned if each.value is not None]
            for name in (each for each in ast.walk(node) if isinstance(each, ast.Name)):
                for store in source.stores(name):
                    statement = source.statement(store)
                    if isinstance(statement, ast.Assign):
                        pending.append((statement.value, source))
                for call in event.calls:
                    given = call.given().get(name.id)
                    if given is not None and source.home(name) is call.function.node and call.node is not None:
                        pending.append((given, call.source))

    def _load(self, epochs: Loop, step: Event) -> Event:
        """Where the checkpoint is read again."""
        restored = [each.order for each in self.run.of("optimizer_load_state_dict") if each.order < step.order]
        reads = [each for each in self.run.of("load") if restored and each.order < max(restored)]
        reads = [each for each in reads if isinstance(each.node, ast.Call) and last_name(each.node.func) == "load"]
        if not reads:
            raise AutodistError(NO_RESUME, epochs.source.path, getattr(epochs.node, "lineno", None))
        return reads[-1]

    def _copied(
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
            _refuse(
                save.source, save.node, "torch.save is given its state and its path by position alone here: write so"
            )
        path = argument(save.node, "f", 1)
        opened = list(save.source.stores(path)) if isinstance(path, ast.Name) else []
        if any(isinstance(save.source.parents[each], ast.withitem) for each in opened):
            message = (
                "torch.save is given an open file: give it the path, so that the file is written whole or not at all"
            )
            _refuse(save.source, save.node, message)
        ahead = list(_between(inner, statement, epochs.node, source))
        for chosen in self._choices(statement, epochs, ahead):
            names = {n.id for n in ast.walk(chosen) if isinstance(n, ast.Name)} - {number}
            if any(source.stores_within(epochs.node, each) for each in names):
                message = (
                    "the checkpoint is only written where this holds: inside an epoch another would take its place"
                )
                _refuse(source, chosen, f"{message}; write one for going on in each epoch, to a file of its own")
        counted = (each for each in ahead if isinstance(each, ast.AugAssign) and ast.unparse(each.target) == number)
        calls = [(each, each.value) for each in ahead if isinstance(each, ast.Expr)]
        gathered = (each for each, call in calls if isinstance(call, ast.Call) and last_name(call.func) == GATHERING)
        copied = [statement, *counted, *gathered]
        contents = set(self._contents(save))
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
                    _refuse(source, name, message)
        return sorted(copied, key=lambda each: each.lineno), guard, replaced

    def _choices(self, statement: ast.stmt, epochs: Loop, ahead: list[ast.stmt]) -> Iterator[ast.expr]:
        """The conditions in an epoch by which a checkpoint is written, but for ranks and every so many epochs."""
        source = epochs.source
        for node in (part for each in ahead for part in ast.walk(each) if isinstance(part, ast.Continue)):
            around = list(source.ancestors(node))
            if next(each for each in around if isinstance(each, (ast.For, ast.While))) is epochs.node:
                yield from (each.test for each in around[:1] if isinstance(each, ast.If) and not _counts(each.test))
        for above in source.ancestors(statement):
            if above is epochs.node:
                return
            if isinstance(above, ast.If):
                parts = above.test.values if isinstance(above.test, ast.BoolOp) else [above.test]
                yield from (each for each in parts if not _counts(each) and not _asks_rank(each))

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
        _refuse(
            source,
            name,
            f"the checkpoint needs `{name.id}`, which an epoch knows only at its end: set it before the loop",
        )

    def _reads_key(self, key: ast.Constant) -> bool:
        nodes = (each for source in self.script.project.sources for each in ast.walk(source.tree))
        for each in nodes:
            if isinstance(each, ast.Subscript) and isinstance(each.ctx, ast.Load):
                if isinstance(each.slice, ast.Constant) and each.slice.value == key.value:
                    return True
            if isinstance(each, ast.Call) and last_name(each.func) == "get" and each.args:
                if isinstance(each.args[0], ast.Constant) and each.args[0].value == key.value:
                    return True
        return False

    def _states(self, epochs: ast.stmt, source: Source) -> Iterator[str]:
        """Schedulers and scalers that training moves on, and no checkpoint holds."""
        saved: set[object] = set()
        moved: dict[str, set[object]] = {}
        held: set[object]
        for each in self.script.project.sources:
            for node in ast.walk(each.tree):
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
        known = {node.id for node in ast.walk(home) if isinstance(node, ast.Name)}
        known |= {each.arg for each in ast.walk(home) if isinstance(each, ast.arg)}
        for code, held in moved.items():
            if not held & saved:
                if code.partition(".")[0] not in known:
                    _refuse(
                        source, epochs, f"the checkpoint has no state of `{code}`, which is not known here: save it too"
                    )
                yield code


def _imports(source: Source, other: Source) -> bool:
    """Whether a file imports another one, by whatever name."""
    name = other.module.rpartition(".")[2]
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom):
            told = [(node.module or "").rpartition(".")[2], *(each.name for each in node.names)]
        elif isinstance(node, ast.Import):
            told = [each.name.rpartition(".")[2] for each in node.names]
        else:
            continue
        if name in told:
            return True
    return False


def _is_bar(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and last_name(value.func) in (*PLAIN, "enumerate")


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
            block = source.block(node)
            ahead = block[: block.index(node)]
            first = next(
                (at for at, each in enumerate(ahead, 1) if each is inner or each in source.ancestors(inner)), 0
            )
            yield from ahead[first:]
        node = source.parents[node]


def _touched(statement: ast.stmt) -> set[str]:
    """Variables that a statement binds, or puts something into: `state["epoch"] = epoch`, `state.update(more)`."""
    found = {name for name, use in uses([statement]) if use != "read"}
    for node in ast.walk(statement):
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
            block = source.block(node)
            found += block[: block.index(node)]
        node = source.parents[node]
        if isinstance(node, ast.For):
            found.append(node.target)
    return found


def _counts(test: ast.expr) -> bool:
    return any(isinstance(each, ast.Mod) for each in ast.walk(test))


def _loaded(statement: ast.stmt) -> list[ast.Name]:
    return [each for each in ast.walk(statement) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)]


def _is_called(name: ast.Name, source: Source) -> bool:
    above = source.parents[name]
    return isinstance(above, ast.Call) and above.func is name


def _named(statement: ast.stmt, save: Event) -> set[str]:
    """The variables that are saved as they are."""
    args = save.node.args[:1] if isinstance(save.node, ast.Call) else []
    return {each.id for each in args if isinstance(each, ast.Name)} & {n.id for n in _loaded(statement)}


def _computes(statement: ast.stmt) -> bool:
    """Whether a statement does more than put together what is saved: paths, states and the like."""
    calls = [each for each in ast.walk(statement) if isinstance(each, ast.Call)]
    if not all(last_name(each.func) in ("state_dict", "join", "format", "dict", "Path", "str") for each in calls):
        return True
    plain = (ast.Dict, ast.JoinedStr, ast.Call, ast.BinOp, ast.Constant)
    return not isinstance(statement, ast.Assign) or not isinstance(statement.value, plain)
