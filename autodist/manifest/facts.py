"""What a manifest has to know of a distributed script: its batch sizes, whether it resumes, and its files."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Any, NamedTuple

from autodist.files.looking import tests_files
from autodist.interpreter import Event, Interpreter
from autodist.manifest.settings import ANY, Settings
from autodist.script import Site
from autodist.source import Source, argument, last_name, shortened, walk
from autodist.values import NOTHING, UNKNOWN, External

WORLD_SIZE = frozenset(["get_world_size", "world_size", "WORLD_SIZE"])
USES = {"save": "written", "write": "written", "mkdir": "written", "load": "read", "read": "read"}
USES["download"] = "downloaded"
FIRST = "rank_zero_first"
"""What conversions call a region that each node enters, one rank first."""
MODES = frozenset(["r", "w", "a", "x", "rb", "wb", "ab", "rt", "wt", "utf-8", "utf8"])
COUNTED = re.compile(r"^(?!.*model).*(epoch|step|iter)[a-z_]*$", re.IGNORECASE)
SHARDS = {f"torch.distributed.checkpoint.{name}": "written" for name in ("save", "async_save", "save_state_dict")}
SHARDS |= {"torch.distributed.checkpoint.load": "read", "torch.distributed.checkpoint.load_state_dict": "read"}
MOVES = frozenset(["replace", "rename", "renames", "move"])
"""Functions that put a file that was written beside its place there."""
READERS = frozenset(["ImageFolder", "DatasetFolder", "load_from_disk", "memmap", "listdir", "scandir", "walk"])
"""Functions that read below a folder, or a file of it, for which there is no event."""
LOOPBACK = re.compile(r"(tcp://)?(localhost|127\.|\[?::1)")
WRITING = ("w", "a", "x", "+")
EQUALITY = {ast.Eq: True, ast.Is: True, ast.NotEq: False, ast.IsNot: False}


@dataclass(frozen=True)
class Batch:
    """A number that has to divide by that of all ranks."""

    code: str
    size: int | None
    source: Source
    line: int
    flag: str | None
    """The option that sets it."""


@dataclass(frozen=True)
class Resume:
    """How a script that is started again goes on: from a checkpoint that it looks for, ``itself``; or from one at
    ``path``, as far as that is known, which the ``words`` of an ``option`` ask for; or from the beginning."""

    itself: bool = False
    option: str | None = None
    condition: str | None = None
    """What would have to hold, and does not."""
    path: str | None = None
    written: bool = False
    """Whether the script writes that checkpoint."""
    words: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    """The arguments without these words."""


@dataclass(frozen=True)
class Folder:
    """A place that the script uses, by its path as far as it is known, or else by its code."""

    path: str
    known: bool
    uses: frozenset[str]

    @property
    def shared(self) -> bool:
        """Whether what one rank writes here, others may look for: not what each node makes for itself."""
        return "written" in self.uses and "downloaded" not in self.uses


@dataclass(frozen=True)
class Facts:
    """All of it."""

    batches: tuple[Batch, ...]
    resume: Resume
    folders: tuple[Folder, ...]
    listens: bool = False
    """Whether ranks that are sent SIGUSR1 save and end."""


def facts(run: Interpreter, settings: Settings) -> Facts:
    """What a run tells, with the arguments that the script is given."""
    used = list(_used(run, settings))
    listens = any(map(_listens, run.project.sources))
    return Facts(tuple(_batches(run, settings)), _resume(run, settings, used), tuple(_folders(used)), listens)


def _listens(source: Source) -> bool:
    """Whether a file says `signal.signal` and `SIGUSR1`."""
    calls = {ast.unparse(each.func) for each in walk(source.tree) if isinstance(each, ast.Call)}
    return "signal.signal" in calls and any(last_name(each) == "SIGUSR1" for each in walk(source.tree))


# -------------------------------------------------------------------- batch sizes


def _batches(run: Interpreter, settings: Settings) -> Iterator[Batch]:
    seen = set()
    for source in run.project.sources:
        for node in walk(source.tree):
            whole = _divided(node, source, run)
            if whole is None or (code := ast.unparse(whole)) in seen:
                continue
            seen.add(code)
            size = settings.value(whole, source)
            known = size if isinstance(size, int) and size > 0 else None
            flag = settings.flags.get(last_name(whole))
            yield Batch(code, known, source, whole.lineno, flag if known is not None else None)


def _divided(node: ast.AST, source: Source, run: Interpreter) -> ast.expr | None:
    """`assert size % world_size == 0`, `batch_size=size // world_size`: the size."""
    match node:
        case ast.BinOp(left=whole, op=ast.Mod(), right=ranks) if _counts_ranks(ranks, run):
            checks = (each for each in source.ancestors(node) if isinstance(each, (ast.Assert, ast.If)))
            check = next(checks, None)
            stops = isinstance(check, ast.If) and any(isinstance(each, ast.Raise) for each in check.body)
            return whole if check is not None and (stops or isinstance(check, ast.Assert)) else None
        case ast.BinOp(left=whole, op=ast.FloorDiv() | ast.Div(), right=ranks) if _counts_ranks(ranks, run):
            for above in source.ancestors(node):
                if isinstance(above, ast.keyword):
                    return whole if above.arg == "batch_size" else None
                if isinstance(above, ast.Assign):
                    return whole if "batch" in last_name(above.targets[0]).lower() else None
                if not (isinstance(above, ast.Call) and last_name(above.func) == "int"):
                    return None
    return None


def _counts_ranks(node: ast.expr, run: Interpreter) -> bool:
    named = last_name(node.func if isinstance(node, ast.Call) else node)
    return named in WORLD_SIZE or run.counts_ranks(node)


# -------------------------------------------------------------------- addresses


def own_addresses(run: Interpreter) -> Iterator[Site]:
    """`os.environ["MASTER_ADDR"] = "localhost"`, `init_method="tcp://127.0.0.1:23456"`, whatever has been told."""
    value: ast.expr | None
    for source in run.project.sources:
        for node in walk(source.tree):
            match node:
                case ast.Assign(targets=[ast.Subscript(slice=ast.Constant(value="MASTER_ADDR"))], value=value):
                    pass
                case ast.keyword(arg="init_method", value=value):
                    pass
                case ast.Call(func=ast.Attribute(attr="update", value=holder)) if last_name(holder) == "environ":
                    value = next((each.value for each in node.keywords if each.arg == "MASTER_ADDR"), None)
                case _:
                    continue
            asked = any(isinstance(each, (ast.If, ast.IfExp)) for each in source.ancestors(node))
            if isinstance(value, ast.Constant) and LOOPBACK.match(str(value.value)) and not asked:
                yield Site(source, value)


# -------------------------------------------------------------------- resuming


def _resume(run: Interpreter, settings: Settings, used: list[Use]) -> Resume:
    """From where the optimizer's state comes, and under which conditions."""
    written = {each.path for each in used if each.use == "written" and each.known}
    unknown = any(each.use == "written" and not each.known for each in used)
    found = Resume()
    steps = [event.order for event in run.of("step")]
    for event in run.events:
        if not _goes_on(event) or steps and event.order > min(steps):
            continue
        tests = list(_conditions(event))
        loads = [each for each in used if each.use == "read" and 0 < each.order < event.order]
        path, known = (loads[-1].path, loads[-1].known) if loads else (ANY, False)
        own = not known or unknown or any(fnmatch(path, each) or fnmatch(each, path) for each in written)
        answers = [(test, _holds(test, source, settings)) for test, wanted, source in tests if wanted]
        answers += [(test, _not(_holds(test, source, settings))) for test, wanted, source in tests if not wanted]
        named = [
            *(n for test, *_ in tests for n in _names(test)),
            *(n for each in tests for n in _behind(each, settings)),
        ]
        names = [name for name in named if name in settings.flags]
        option = settings.flags[names[0]] if names else None
        fails = next((shortened(ast.unparse(test)) for test, answer in answers if answer is False), None)
        place = path if known and ANY not in path else None
        if fails is not None:
            found = found if found.path else Resume(option=option, condition=fails)
        elif names and not any(_asks_files(test, run) for test, _ in answers):
            words, others = settings.given(names[0])
            found = Resume(bool(own and not words), option, None, place, own, words, others)
        elif own:
            return Resume(itself=True)
        else:
            found = Resume(path=place)
    return found


def _goes_on(event: Event) -> bool:
    """Whether what is loaded there is more than a model: the state of an optimizer, or beside the model the number of
    epochs that it has been trained for."""
    if event.kind != "model_load_state_dict":
        return event.kind == "optimizer_load_state_dict"
    home = event.function.node if event.function is not None else event.source.tree
    got = (node for node in walk(home) if isinstance(node, ast.Call) and last_name(node.func) == "get")
    read = (node for node in walk(home) if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load))
    keys = [*(node.slice for node in read), *(node.args[0] for node in got if node.args)]
    return any(isinstance(key, ast.Constant) and COUNTED.search(str(key.value)) for key in keys)


def _conditions(event: Event) -> Iterator[tuple[ast.expr, bool, Source]]:
    """The conditions under which a run comes to an event, each with the answer that it needs."""
    places = [(call.node, call.source) for call in event.calls if call.node is not None]
    for place, source in [*places, (event.node, event.source)]:
        inner: ast.AST = place
        for above in source.ancestors(place):
            if isinstance(above, (ast.FunctionDef, ast.AsyncFunctionDef)):
                break
            if isinstance(above, ast.If) and inner is not above.test:
                yield above.test, inner in above.body, source
            inner = above


def _asks_files(test: ast.expr, run: Interpreter) -> bool:
    asked = {event.node for event in run.of("exists")}
    return tests_files(test) or any(node in asked for node in walk(test))


def _names(test: ast.expr) -> Iterator[str]:
    return (last_name(node) for node in walk(test) if isinstance(node, (ast.Name, ast.Attribute)))


def _behind(condition: tuple[ast.expr, bool, Source], settings: Settings) -> Iterator[str]:
    """The names in what the names of a condition stand for: `path = find(args.out) if args.resume else None`."""
    test, _, source = condition
    for node in walk(test):
        if isinstance(node, ast.Name):
            for value, _ in settings.behind(node, node.id, source):
                yield from _names(value.test if isinstance(value, ast.IfExp) else value)


def _not(answer: bool | None) -> bool | None:
    return None if answer is None else not answer


def _holds(test: ast.expr, source: Source, settings: Settings) -> bool | None:
    """Whether a condition holds in this run, None where that cannot be told."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            return _not(_holds(inner, source, settings))
        case ast.BoolOp(op=op, values=parts):
            answers = [_holds(part, source, settings) for part in parts]
            decides = isinstance(op, ast.Or)
            return decides if decides in answers else None if None in answers else not decides
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in EQUALITY:
            values = settings.value(left, source), settings.value(right, source)
            known = not any(each is UNKNOWN or _partly(each) for each in values)
            return (values[0] == values[1]) is EQUALITY[type(op)] if known else None
        case ast.Name() | ast.Attribute() | ast.Constant():
            value = settings.value(test, source)
            return None if value is UNKNOWN else bool(value)
    return None


def _partly(value: Any) -> bool:
    return isinstance(value, str) and ANY in value


# -------------------------------------------------------------------- files


class Use(NamedTuple):
    """One way in which a script uses a path, or else the code of one, which is then not ``known``."""

    order: int
    use: str
    path: str
    known: bool
    is_folder: bool


def _used(run: Interpreter, settings: Settings) -> Iterator[Use]:
    """What is read and written."""
    for event in run.events:
        use = USES.get(event.kind)
        if event.kind == "open" and isinstance(event.node, ast.Call):
            modes = [settings.value(each, event.source) for each in event.node.args[1:2]]
            modes += [settings.value(each.value, event.source) for each in event.node.keywords if each.arg == "mode"]
            use = "written" if any(m in str(mode) for mode in modes for m in WRITING) else "read"
        if use is None or not isinstance(event.node, ast.Call) or "devnull" in ast.unparse(event.node):
            continue
        use = "downloaded" if use == "written" and _once_a_node(event) else use
        places = _places(event, event.node, run)
        given = [(each, value) for each in places for value in settings.several(each, event.source)]
        texts = [value for _, value in given if isinstance(value, str) and value.strip("*/.") and value not in MODES]
        told = list(dict.fromkeys(os.path.normpath(each) for each in texts if not each.startswith(ANY)))
        is_folder = event.kind in ("mkdir", "download")
        for each in told if places and isinstance(places[0], ast.Name) else told[:1]:
            yield Use(event.order, use, each, True, is_folder)
        if not told and given and isinstance(given[0][0], (ast.Name, ast.Attribute, ast.BinOp)):
            if given[0][1] not in (None, ""):  # which an option is that is not given
                yield Use(event.order, use, shortened(ast.unparse(given[0][0])), False, is_folder)
    yield from _uneventful(run, settings)


def _uneventful(run: Interpreter, settings: Settings) -> Iterator[Use]:
    """Folders of data sets, and of shards."""
    for source in run.project.sources:
        for node in walk(source.tree):
            if not isinstance(node, ast.Call):
                continue
            things = run.values.get(node.func, NOTHING).things
            names = {each.name for each in things if isinstance(each, External)}
            folder = _folder_of(node) if names & SHARDS.keys() else None
            if last_name(node.func) in READERS and node.args:
                folder = node.args[0]
            use = next((SHARDS[name] for name in names if name in SHARDS), "read")
            for path in settings.several(folder, source) if folder is not None else ():
                if isinstance(path, str) and path and not path.startswith(ANY):
                    yield Use(0, use, os.path.normpath(path), True, True)


def _folder_of(call: ast.Call) -> ast.expr | None:
    """`save(state, checkpoint_id="last")`, or `save(state, storage_writer=FileSystemWriter("last"))`."""
    by = argument(call, "storage_writer") or argument(call, "storage_reader")
    inside = by.args[0] if isinstance(by, ast.Call) and by.args else None
    return argument(call, "checkpoint_id", 1) or inside


def _places(event: Event, call: ast.Call, run: Interpreter) -> list[ast.expr]:
    """The expressions of a call that may be the path, the likeliest first: neither what is saved, nor a file that is
    open, nor a module."""
    moves = last_name(call.func) in MOVES
    args = call.args[1:] if (event.kind == "save" or moves) and len(call.args) > 1 else call.args
    found = [*args, *(each.value for each in call.keywords if each.arg)]
    if isinstance(call.func, ast.Attribute):
        found.append(call.func.value)
    opened = {
        item.optional_vars.id
        for above in event.source.ancestors(call)
        if isinstance(above, ast.With)
        for item in above.items
        if isinstance(item.optional_vars, ast.Name)
    }
    return [
        each
        for each in found
        if not (isinstance(each, ast.Name) and each.id in opened)
        and not any(isinstance(thing, External) for thing in run.values.get(each, NOTHING).things)
        and isinstance(each, (ast.Name, ast.Attribute, ast.BinOp, ast.JoinedStr, ast.Call, ast.Constant))
    ]


def _once_a_node(event: Event) -> bool:
    """`with rank_zero_first():`, also around a call that leads there."""
    places = [(call.node, call.source) for call in event.calls if call.node is not None]
    above = (each for node, source in [*places, (event.node, event.source)] for each in source.ancestors(node))
    entered = (item.context_expr for each in above if isinstance(each, ast.With) for item in each.items)
    return any(last_name(each.func) == FIRST for each in entered if isinstance(each, ast.Call))


def _folders(used: list[Use]) -> Iterator[Folder]:
    """One for each folder, or piece of code."""
    uses: dict[tuple[str, bool], set[str]] = {}
    for each in used:
        place = _folder(each.path, each.is_folder) if each.known else each.path
        uses.setdefault((place, each.known), set()).add(each.use)
    for (path, known), found in sorted(uses.items(), key=lambda item: (not item[0][1], item[0][0])):
        yield Folder(path, known, frozenset(found))


def _folder(path: str, is_folder: bool) -> str:
    """Of a path below the working folder its first part, of another one the folder, as far as it is known."""
    if not os.path.isabs(path) and not path.startswith(("..", "~")):
        first, _, below = path.partition("/")
        return first if (is_folder or below) and ANY not in first else "."
    path = os.path.dirname(path) if os.path.splitext(path)[1] else path
    return path.partition(ANY)[0].rpartition("/")[0] if ANY in path else path
