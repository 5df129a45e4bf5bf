"""Where a training can end inside an epoch, what it saves there, and where it goes on."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from autodist.interpreter import Event, Interpreter, Loop
from autodist.preemption.saving import Saving, counts, refuse
from autodist.preemption.variables import running, uses
from autodist.script import Loader, Preemption, TrainingScript
from autodist.source import Source, argument, last_name, walk
from autodist.values import NOTHING

RANGES = ("range", "trange")
SIGNALS = ("SIGTERM", "SIGUSR1")
PLAIN = ("tqdm", "track", "len")
"""What gives a loader's batches as they are."""


def preemption(script: TrainingScript, run: Interpreter) -> Preemption | None:
    """What `--on-preempt` needs to know of a distributed script. Raises AutodistError where something is missing."""
    if not script.distributed or not script.trains:
        return None
    places = _Places(script, run)
    return places.found()


@dataclass
class _Places:
    """Reads a script once."""

    script: TrainingScript
    run: Interpreter

    def found(self) -> Preemption:
        self._check_group()
        saving = Saving(self.script, self.run)
        loader, sampler = self._loader()
        step, batches = self._step(loader)
        epochs = self._epochs(step, batches)
        source = epochs.source
        assert isinstance(batches.node, ast.For) and isinstance(epochs.node, (ast.For, ast.While))
        load = saving.load(epochs, step)
        save = saving.save(epochs, batches, load)
        made = self.run.values.get(sampler, NOTHING).objects("sampler")
        files: dict[ast.AST, Source] = {each.node: each.source for each in (epochs, batches, save, load)}
        files[sampler] = next((each.source for each in made), loader.source)
        number, start = self._numbers(epochs, source)
        inline = source.home(batches.node) is source.home(epochs.node)
        leading = None if inline else self._leading(step, epochs, source)
        inner = batches.node if inline else leading
        assert inner is not None and isinstance(save.node, ast.Call) and isinstance(load.node, ast.Call)
        copied, guard, replaced = saving.copied(save, epochs, inner, batches.node, number)
        saved = {n.id for each in saving.contents(save) for n in walk(each) if isinstance(n, ast.Name)}
        variables = [
            each
            for each in running(batches.node, batches.source, self.run)
            if each.attributes is None or each.code not in saved
        ]
        told = {name for each in copied for name, _ in uses([each])} | {each.code for each in variables}
        told |= {ast.unparse(n) for each in saving.contents(save) for n in walk(each) if isinstance(n, ast.Attribute)}
        lasting = [each for each in running(epochs.node, source, self.run, inner) if each.code not in told | {number}]
        for one in (*variables, *lasting):
            if "held" in dict(one.attributes or ()).values():
                message = (
                    f"`{one.code}` changes in each step, and is a metric or holds a model: save its state, and load it"
                )
                refuse(source, batches.node, message)
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
            states=tuple(saving.states(epochs.node, source)),
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
        refuse(
            epochs.source, epochs.node, f"{names} import each other: put the loops, torch.save and torch.load in one"
        )

    def _check_group(self) -> None:
        for source in self.script.project.sources:
            for node in walk(source.tree):
                if isinstance(node, ast.Call) and ast.unparse(node.func) == "signal.signal":
                    if any(last_name(each) in SIGNALS for each in walk(node)):
                        refuse(
                            source,
                            node,
                            "the script listens to this signal itself: take its handler out, or leave the option",
                        )
        for event in self.run.of("init_process_group"):
            told = walk(event.node) if isinstance(event.node, ast.Call) else ()
            if any(isinstance(each, ast.Constant) and each.value == "nccl" for each in told):
                message = (
                    'ranks agree by a number on the CPU, which NCCL does not take: "cpu:gloo,cuda:nccl" takes both'
                )
                refuse(event.source, event.node, message)

    # ---------------------------------------------------------------- loops

    def _loader(self) -> tuple[Loader, ast.Call]:
        """The loader that trains, and its sampler."""
        entry = self.script.project.entry
        if not self.script.loaders:
            message = (
                "the script makes its batches itself: where such a training stands in its data cannot be told; read "
                "them by a DataLoader"
            )
            refuse(entry, entry.tree, message)
        loader = self.script.loaders[0]
        if loader.iterable:
            message = "an IterableDataset has no order of samples to go on in: a training can only begin it anew"
            refuse(loader.source, loader.node, message)
        if len(self.script.loaders) > 1:
            message = f"training reads {len(self.script.loaders)} loaders: its position must be that in one of them"
            refuse(loader.source, loader.node, message)
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
            refuse(loader.source, loader.node, message)
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
            refuse(loader.source, loader.node, message)
        event, loop = next(iter(found.values()))
        assert isinstance(loop.node, ast.For)
        self._check_numbers(loop.node, loop.source, loader)
        return event, loop

    def _named(self, loop: ast.For, source: Source, loader: Loader) -> str | None:
        """The loader, as it is named in a loop over it, behind a progress bar and the like."""
        pending: list[ast.expr] = [loop.iter]
        while pending:
            for node in walk(pending.pop(0)):
                if not isinstance(node, (ast.Name, ast.Attribute)):
                    continue
                made = [source.statement(each) for each in source.stores(node)] if isinstance(node, ast.Name) else []
                bars = [each.value for each in made if isinstance(each, ast.Assign) and _is_bar(each.value)]
                if not bars and self._is_of(node, loader):
                    return ast.unparse(node)
                pending += [each for each in bars if node not in walk(each)]
        return None

    def _is_of(self, node: ast.expr, loader: Loader) -> bool:
        return any(each.node is loader.node for each in self.run.values.get(node, NOTHING).objects("loader"))

    def _check_numbers(self, loop: ast.For, source: Source, loader: Loader) -> None:
        """Whether nothing around the loader counts its batches but `enumerate`, which can be told where to begin."""
        named = [
            source.statement(each) for n in walk(loop.iter) if isinstance(n, ast.Name) for each in source.stores(n)
        ]
        made = [
            (each.value, PLAIN) for each in named if isinstance(each, ast.Assign) and loop not in source.ancestors(each)
        ]
        for value, known in [(loop.iter, (*PLAIN, "enumerate")), *made]:
            if any(each is loader.node for each in walk(value)):
                continue
            for call in (each for each in walk(value) if isinstance(each, ast.Call)):
                given = [*call.args, *(each.value for each in call.keywords if each.arg == "iterable")]
                passes_on = any(self.run.values.get(each, NOTHING).objects("loader") for each in given)
                passes_on = passes_on or any(isinstance(each, ast.Call) for each in given)
                if passes_on and last_name(call.func) not in known:
                    message = f"`{last_name(call.func)}` stands between this loop and its loader, and may count batches"
                    refuse(
                        source, loop, f"{message}: loop over the loader, by enumerate() or a progress bar if need be"
                    )

    def _epochs(self, step: Event, batches: Loop) -> Loop:
        at = [loop.node for loop in step.loops].index(batches.node)
        around = [loop for loop in step.loops[:at] if isinstance(loop.node, (ast.For, ast.While))]
        if not around:
            refuse(
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
            refuse(found.source, found.node, message)
        return found

    def _numbers(self, epochs: Loop, source: Source) -> tuple[str, ast.expr | None]:
        """The variable that counts epochs, and the expression that it begins with."""
        node = epochs.node
        later = (
            "this loop begins with the same epoch whatever was loaded: let it begin with the epoch of the checkpoint"
        )
        if isinstance(node, ast.While):
            counted = [each.target for each in walk(node) if isinstance(each, ast.AugAssign)]
            tested = {ast.unparse(each) for each in walk(node.test) if isinstance(each, (ast.Name, ast.Attribute))}
            names = [code for each in counted if (code := ast.unparse(each)) in tested]
            if not names:
                refuse(source, node, "this loop counts no epochs: there is no number to go on at")
            return names[0], None
        assert isinstance(node, ast.For)
        calls = [each for each in walk(node.iter) if isinstance(each, ast.Call) and last_name(each.func) in RANGES]
        if not calls or not isinstance(node.target, (ast.Name, ast.Attribute)):
            refuse(source, node, "this loop does not go through `range(first, last)`: there is no epoch to begin with")
        if len(calls[0].args) < 2 or isinstance(calls[0].args[0], ast.Constant):
            refuse(source, node, later)
        start = calls[0].args[0]
        if not self._is_loaded(start, source):
            refuse(source, node, later)
        return ast.unparse(node.target), start

    def _is_loaded(self, start: ast.expr, source: Source) -> bool:
        """Whether a value comes from elsewhere than from constants: from a checkpoint, a function, a caller."""
        names = {last_name(each) for each in walk(start) if isinstance(each, (ast.Name, ast.Attribute))}
        home = source.home(start)
        if any(each.arg in names for each in walk(home) if isinstance(each, ast.arg)):
            return True
        for each in self.script.project.sources:
            for node in walk(each.tree):
                if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
                    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                    bound = {last_name(part) for target in targets for part in walk(target)}
                    if bound & names and any(isinstance(part, (ast.Subscript, ast.Call)) for part in walk(node.value)):
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
        names = walk(own.iter) if isinstance(own, ast.For) else ()
        read = [t for n in names if isinstance(n, ast.expr) for t in self.run.values.get(n, NOTHING).objects("loader")]
        evaluates = any(each.node is not loader.node for each in read)
        asked = [each for each in dict.fromkeys(file.conditions(node)) if own in file.ancestors(each)]
        if evaluates and not asked:
            message = (
                "this loop also reads loaders that evaluate, and does not ask which it does: give training its own"
            )
            refuse(batches.source, own, message)
        for test in asked:
            if evaluates or counts(test):
                if changed & {each.id for each in walk(test) if isinstance(each, ast.Name)}:
                    message = "the loop changes what this condition for a step goes by: count batches by enumerate()"
                    refuse(file, test, message)
                yield test
        for node, file in chain[at + 1 :]:
            for test in file.conditions(node):
                if counts(test):
                    refuse(file, test, "what counts gradients up to a step is to stand in the loop over batches itself")

    def _leading(self, step: Event, epochs: Loop, source: Source) -> ast.stmt:
        """The statement of the loop over epochs that leads to that over batches."""
        for call in step.calls:
            if call.node is not None and call.source is source and epochs.node in source.ancestors(call.node):
                return source.statement(call.node)
        refuse(source, epochs.node, "what leads from this loop to that over batches cannot be told")


def _imports(source: Source, other: Source) -> bool:
    """Whether a file imports another one, by whatever name."""
    name = other.module.rpartition(".")[2]
    for node in walk(source.tree):
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
