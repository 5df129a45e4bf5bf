from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator, Mapping

from autodist.edits import (
    Append,
    Edit,
    Enclose,
    InsertBefore,
    Prepend,
    RemoveStatement,
    ReplaceExpr,
    SetArgument,
    WrapExpr,
)
from autodist.rule import Context, Example, Finding, Fix, rule
from autodist.script import Preemption, Running, TrainingScript
from autodist.source import Source, argument, last_name, walk

from ._examples import PLAIN
from ._preamble import Planned, defined, dist, imported, member

PREEMPTED = '''\
class Preempted(SystemExit):
    """Ends a rank whose training can be gone on with."""


'''
PREEMPTION = '''\
class Preemption:
    """Ends training after a step once SIGTERM or SIGUSR1 has come to a rank, and goes on there when started again."""

    exit_code = 75  # EX_TEMPFAIL: all is saved, start me again

    def __init__(self):
        self.signalled = False
        self.place = {}  # where in an epoch it has ended
        self.epoch = self.batches = 0

    def begin(self):
        """Listen to the signals."""
        for number in ({signal}.SIGTERM, {signal}.SIGUSR1):
            {signal}.signal(number, self.note)

    def note(self, number, frame):
        self.signalled = True

    def agreed(self):
        """Whether a signal has come to any rank: all ranks ask after each step, and so end after the same one."""
        found = {torch}.tensor(float(self.signalled))
        {d}.all_reduce(found, {d}.ReduceOp.MAX)
        return bool(found)

    def start(self, epoch):
        """The epoch to begin with."""
        return self.place.get("epoch", epoch)

    def enter(self, loader):
        """Have the loader leave out what was seen of this epoch: so many samples of all ranks together."""
        self.batches = 0
        if self.place:
            loader.sampler.seed, loader.sampler.seen = self.place["seed"], self.place["samples"]
            loader.sampler.set_epoch(self.place["order"])
            together = loader.batch_size * {d}.get_world_size()
            self.batches, rest = divmod(self.place["samples"], together)
            if rest:
                raise SystemExit(f"{self.place['samples']} samples were seen: batches of {together} cannot go on there")

    def hold(self, loader, values):
        """Note where this epoch ends for now; a collective."""
        samples = self.batches * loader.batch_size * {d}.get_world_size()
        order, seed = loader.sampler.epoch, loader.sampler.seed
        self.place = {"epoch": self.epoch, "samples": samples, "order": order, "seed": seed, "values": {}}
        self.keep({**values, "generators": generators()})

    def keep(self, values):
        """Note what each rank has in variables; a collective."""
        own = {name: value.detach().cpu() if {torch}.is_tensor(value) else value for name, value in values.items()}
        ranks = [None] * {d}.get_world_size()
        {d}.all_gather_object(ranks, own)
        self.place["values"].update({name: [each[name] for each in ranks] for name in own})

    def go_on(self):
        """Set the generators to what they were; on another number of ranks these draw anew."""
        ranks = self.place["values"]["generators"]
        if len(ranks) == {d}.get_world_size():
            set_generators(ranks[{d}.get_rank()])
        self.place = {}

    def save(self, state, path, **options):
        """Write a checkpoint whole, or not at all."""
        {torch}.save({**state, "interrupted": self.place} if self.place else state, f"{path}.part", **options)
        {os}.replace(f"{path}.part", path)

    def load(self, path, **options):
        """Read a checkpoint that may end inside an epoch."""
        state = {torch}.load(path, **{**options, "weights_only": False})  # generators are no weights
        self.place = state.get("interrupted", {})
        return state


'''
VALUE = '''\

    def value(self, name, value=None, over_ranks="own"):
        """What a variable was where the epoch has ended, or else `value`."""
        ranks = self.place.get("values", {}).get(name)
        if ranks is None:
            return value
        same = len(ranks) == {d}.get_world_size()
        found = ranks[{d}.get_rank()] if same else self.joined(name, ranks, over_ranks)
        return found.to(value.device) if {torch}.is_tensor(value) else found

    def joined(self, name, ranks, over_ranks):
        """What another number of ranks goes on with: shares of a sum, the mean of means, what they have in common."""
        if isinstance(over_ranks, dict):
            return {
                key: self.joined(f"{name}.{key}", [each[key] for each in ranks], over_ranks.get(key, "same"))
                for key in ranks[0]
            }
        if over_ranks == "own":
            raise SystemExit(f"{name} is each rank's own: start {len(ranks)} ranks, as there were")
        if over_ranks == "sum":
            total, size = sum(ranks), {d}.get_world_size()
            return total // size + total % size * ({d}.get_rank() == 0)
        if over_ranks == "mean" and isinstance(ranks[0], list):
            return [sum(each) / len(each) for each in zip(*ranks)]
        return sum(ranks) / len(ranks) if over_ranks == "mean" else ranks[0]
'''
STATES = {
    "def begin(self)": "def begin(self, **states)",
    "Listen to the signals.": "Listen to the signals; set the states that the script's checkpoint leaves out.",
    "        for number in": """\
        self.states = states
        for name, state in self.place.get("states", {}).items():
            states[name].load_state_dict(state)
        for number in""",
    '        self.keep({**values, "gen': """\
        self.place["states"] = {name: each.state_dict() for name, each in self.states.items()}
        self.keep({**values, "gen""",
}
SHIELD = '''\
def shield_worker():
    """Leave signals to the whole process group, as torchrun sends them, to the rank: a worker obeys its rank alone."""
    {signal}.pthread_sigmask({signal}.SIG_BLOCK, [{signal}.SIGTERM, {signal}.SIGUSR1])
    {threading}.Thread(target=obey_rank, daemon=True).start()


'''
OBEY = '''\
def obey_rank():
    """End once the rank, and nobody else, says so."""
    while {signal}.sigwaitinfo([{signal}.SIGTERM]).si_pid != {os}.getppid():
        pass
    {os}._exit(0)


'''
SHIELDED = """\
            {signal}.signal(number, self.note)
        {os}.register_at_fork(after_in_child=shield_worker)
"""
SHARED = ("preemption", "Preempted", "ResumableSampler")
"""What other files import."""
INSTANCE = "preemption = Preemption()\n\n\n"
SAMPLER = '''\
class ResumableSampler({sampler}):
    """A DistributedSampler that leaves out the first samples, seen before, of an epoch that is gone on with."""

    seen = 0

    def __iter__(self):
        seen, self.seen = self.seen, 0
        if seen:
            preemption.go_on()  # not before: the loader has drawn the seed of its workers by now
        return {itertools}.islice(super().__iter__(), seen // self.num_replicas, None)


'''
GENERATORS = '''\
def generators():
    """The states of this rank's generators."""
    state = {"torch": {torch}.get_rng_state(), {more}}
    if {torch}.cuda.is_available():
        state["cuda"] = {torch}.cuda.get_rng_state()
    return state


'''
SET_GENERATORS = '''\
def set_generators(state):
    """Set this rank's generators."""
    {torch}.set_rng_state(state["torch"])
    {more}
    if "cuda" in state and {torch}.cuda.is_available():
        {torch}.cuda.set_rng_state(state["cuda"])


'''

RESUMING = """\
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("gloo")
train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
loader = DataLoader(train_set, batch_size=8, sampler=DistributedSampler(train_set))
model = DDP(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
first = 0
if os.path.exists("last.pt"):
    state = torch.load("last.pt")
    model.module.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    first = state["epoch"]

for epoch in range(first, 9):
    loader.sampler.set_epoch(epoch)
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if dist.get_rank() == 0:
        states = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save({**states, "epoch": epoch + 1}, "last.pt")
"""
NAMES = {"torch": "torch", "os": "os", "signal": "signal", "itertools": "itertools", "d": "dist"}
NAMES["sampler"] = "DistributedSampler"


def _named(code: str, names: Mapping[str, str]) -> str:
    for key, name in names.items():
        code = code.replace(f"{{{key}}}", name)
    return code


EXAMPLES = [
    Example(
        before=RESUMING,
        after=RESUMING.replace("import os\n", "import itertools\nimport os\nimport signal\n", 1)
        .replace("sampler=Dist", "sampler=ResumableSampler(train_set")
        .replace("(train_setributedSampler(", "(")
        .replace('torch.load("last', 'preemption.load("last')
        .replace("torch.save({**states", "preemption.save({**states")
        .replace("for epoch in range(first", "preemption.begin()\nfor epoch in range(preemption.start(first)")
        .replace("    loader.sampler.set", "    preemption.epoch = epoch\n    loader.sampler.set", 1)
        .replace("    for x, y", "    preemption.enter(loader)\n    for x, y")
        .replace("        loss = nn", "        preemption.batches += 1\n        loss = nn")
        .replace(
            "        optimizer.step()\n",
            """\
        optimizer.step()
        if preemption.agreed():
            preemption.hold(loader, {})
            states = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
            if dist.get_rank() == 0:
                preemption.save({**states, "epoch": epoch + 1}, "last.pt")
            dist.barrier()  # rank 0 has written it
            raise Preempted(preemption.exit_code)
""",
        )
        .replace(
            "\ndist.init",
            "\n\n"
            + _named(
                GENERATORS.replace(", {more}", "")
                + SET_GENERATORS.replace("    {more}\n", "")
                + PREEMPTED
                + PREEMPTION
                + SAMPLER
                + INSTANCE,
                NAMES,
            ).removesuffix("\n\n")
            + "dist.init",
        ),
    ),
    Example(before=PLAIN, after=None),
]


@rule("AD311")
def save_on_preemption(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """End after a step once a signal has come, with a checkpoint of that step, and go on there when started again.

    Only with `--on-preempt`. A scheduler sends SIGTERM or SIGUSR1 some time before it takes the machine away, to each
    rank at another moment. Ranks agree after each step by an all-reduce of one number on the CPU, so that all end after
    the same one; the script's own statement then saves its checkpoint, which also gets the epoch, the number of samples
    that all ranks have seen of it, each rank's generators, and the variables that a step hands on to the next. The exit
    code is 75 (EX_TEMPFAIL). Loaded again, the sampler begins at that sample, whatever the number of ranks is then.
    """
    found = script.preemption
    if found is None:
        return
    source = found.source
    message = "saves after a step that a signal has come in, and goes on there when started again (--on-preempt)"
    edits = list(_edits(found, dist(context, source)[0]))
    needed = dist(context, source)[1]
    for file in dict.fromkeys(file for file, _ in edits if file is not found.home):
        written = " ".join(_written(edit) for other, edit in edits if other is file)
        for name in (each for each in SHARED if each in written):
            needed = (*needed, *member(context, file, found.home.module, name)[1])
    fix = Fix((*_defined(script, context, found), *needed, *edits))
    yield Finding(source, found.epochs, message, fix)


def _defined(script: TrainingScript, context: Context, found: Preemption) -> Planned:
    """The classes, with what they import."""
    source = found.home
    names: dict[str, str] = {}
    edits: Planned = ()
    for module, alias in (("torch", None), ("os", None), ("signal", None), ("itertools", None)):
        names[module], more = imported(context, source, module, alias)
        edits = (*edits, *more)
    names["d"], more = dist(context, source)
    names["sampler"], also = member(context, source, "torch.utils.data.distributed", "DistributedSampler")
    edits = (*edits, *more, *also)
    held, restored = [], []
    for module, alias, get, put in (
        ("random", None, "getstate", "setstate"),
        ("numpy", "np", "get_state", "set_state"),
    ):
        if not any(_imports(each, module) for each in script.project.sources):
            continue
        name, more = imported(context, source, module, alias)
        edits = (*edits, *more)
        name = f"{name}.random" if module == "numpy" else name
        held.append(f'"{module}": {name}.{get}()')
        restored.append(f'{name}.{put}(state["{module}"])')
    own = "".join(f", {each}" for each in held)
    took = "".join(f"    {each}\n" for each in restored)
    preemption = PREEMPTION
    for old, new in STATES.items() if found.states else ():
        preemption = preemption.replace(old, new)
    if found.running or found.lasting:
        preemption = preemption.replace("\n    def go_on", f"{VALUE}\n    def go_on")
    shields: tuple[str, ...] = ()
    if any("num_workers" in each.text for each in script.project.sources):
        names["threading"], more = imported(context, source, "threading")
        edits, shields = (*edits, *more), (SHIELD, OBEY)
        preemption = preemption.replace("            {signal}.signal(number, self.note)\n", SHIELDED)
    functions = (GENERATORS.replace(", {more}", own), SET_GENERATORS.replace("    {more}\n", took))
    for code in (*functions, *shields, PREEMPTED, preemption, SAMPLER, INSTANCE):
        edits = (*edits, *defined(script, source, _named(code, names)))
    return edits


def _imports(source: Source, module: str) -> bool:
    return any(
        each.name.partition(".")[0] == module
        for node in walk(source.tree)
        if isinstance(node, ast.Import)
        for each in node.names
    ) or any(isinstance(node, ast.ImportFrom) and node.module == module for node in walk(source.tree))


def _edits(found: Preemption, d: str) -> Iterator[tuple[Source, Edit]]:
    """All that is changed, with its file."""
    files = found.files
    yield files[found.sampler], ReplaceExpr(found.sampler.func, "ResumableSampler")
    if files[found.sampler] is not found.home:
        yield from ((files[found.sampler], RemoveStatement(each)) for each in _left_over(files[found.sampler]))
    yield files[found.load], ReplaceExpr(found.load.func, "preemption.load")
    yield files[found.save], ReplaceExpr(found.save.func, "preemption.save")
    yield from ((found.source, edit) for edit in _around_epochs(found, d))
    yield from ((files[found.batches], edit) for edit in _around_batches(found, d))


def _left_over(source: Source) -> Iterator[ast.stmt]:
    """An import of DistributedSampler that nothing else in a file needs."""
    used = [each for each in walk(source.tree) if last_name(each) == "DistributedSampler"]
    for each in source.tree.body if len(used) == 1 else ():
        if isinstance(each, ast.ImportFrom) and [alias.name for alias in each.names] == ["DistributedSampler"]:
            yield each


def _around_epochs(found: Preemption, d: str) -> Iterator[Edit]:
    """What the loop over epochs begins with, and what it does when one is interrupted."""
    told = ", ".join(f"{code.removeprefix('self.').replace('.', '_')}={code}" for code in found.states)
    ahead = f"preemption.begin({told})\n" + "".join(map(_restored, found.lasting))
    if found.start is not None:
        yield WrapExpr(found.start, "preemption.start({})")
    else:
        ahead += f"{found.number} = preemption.start({found.number})\n"
    yield InsertBefore(found.epochs, ahead)
    yield Prepend(found.epochs, f"preemption.epoch = {found.number}\n")
    if found.leading is not None:
        keep = f"preemption.keep({_noted(found.lasting)})\n" if found.lasting else ""
        saved = textwrap.indent(f"{keep}{_copied(found, d)}raise\n", "    ")
        yield Enclose(found.leading, f"try:\n    ...\nexcept Preempted:\n{saved}")


def _around_batches(found: Preemption, d: str) -> Iterator[Edit]:
    """Where the loop over batches begins, and where it may end."""
    enter = f"preemption.enter({found.loader})\n" + "".join(map(_restored, found.running))
    yield InsertBefore(found.batches, enter)
    yield Prepend(found.batches, "preemption.batches += 1\n")
    calls = [each for each in walk(found.batches.iter) if isinstance(each, ast.Call)]
    for numbered in (each for each in calls if last_name(each.func) == "enumerate"):
        first = argument(numbered, "start", 1)
        if first is None:
            yield SetArgument(numbered, "start", "preemption.batches", 1)
        else:
            yield WrapExpr(first, "{} + preemption.batches")
    codes = [(node, found.files[found.batches].code(node)) for node in found.boundary]
    conditions = [f"({code})" if isinstance(node, ast.BoolOp) else code for node, code in codes]
    hold = f"preemption.hold({found.loader}, {_noted(found.running)})\n"
    if found.leading is None:
        lasting = {each.code: each for each in (*found.running, *found.lasting)}
        hold = f"preemption.hold({found.loader}, {_noted(tuple(lasting.values()))})\n{_copied(found, d)}"
    ending = f"{hold}raise Preempted(preemption.exit_code)\n"
    asked = " and ".join([*conditions, "preemption.agreed()"])
    yield Append(found.batches, f"if {asked}:\n{textwrap.indent(ending, '    ')}")


def _written(edit: Edit) -> str:
    """The code that an edit writes."""
    return " ".join(str(getattr(edit, name, "")) for name in ("code", "template", "value"))


def _restored(variable: Running) -> str:
    code = variable.code
    if variable.attributes is not None:
        kinds = ", ".join(f'"{name}": "{kind}"' for name, kind in variable.attributes if kind != "same")
        return f'vars({code}).update(preemption.value("{code}", vars({code}), {{{kinds}}}))\n'
    default = code if variable.bound else "None"
    return f'{code} = preemption.value("{code}", {default}, "{variable.over_ranks}")\n'


def _noted(variables: tuple[Running, ...]) -> str:
    parts = (f'"{v.code}": {f"vars({v.code})" if v.attributes is not None else v.code}' for v in variables)
    return f"{{{', '.join(parts)}}}"


def _copied(found: Preemption, d: str) -> str:
    """The statements that save the script's checkpoint."""
    texts = {**found.replaced, found.save.func: "preemption.save"}
    lines = []
    for each in found.copied:
        code = textwrap.dedent(" " * each.col_offset + found.source.replaced(each, texts)) + "\n"
        if each is found.copied[-1] and found.guard is not None:
            code = f"if {found.source.code(found.guard)}:\n{textwrap.indent(code, '    ')}"
        lines.append(code)
    return "".join([*lines, f"{d}.barrier()  # rank 0 has written it\n"])
