"""The smallest statements that may run on rank 0 alone."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from autodist import temporary
from autodist.interpreter import TESTING_FILES, Event, Interpreter, once_a_run
from autodist.script import Site
from autodist.solve import paths
from autodist.source import Source, all_of, last_name, walk
from autodist.spread import RANK
from autodist.values import NOTHING, External, Function, Object, drawn_from

WRITERS = (
    "SummaryWriter",
    "Visdom",
    "Experiment",
    "start_run",
    "init_run",
    "neptune.init",
    "aim.Run",
    "tensorboard_logger.Logger",
    "get_writer",
    "VideoWriter",
)
"""Writers that ranks other than 0 do without."""
QUIET = frozenset(["torch.save", "json.dump", "pickle.dump", "yaml.dump", "csv.writer", "csv.DictWriter"])


def writes(
    run: Interpreter, prepared: frozenset[ast.AST], apart: frozenset[ast.AST] = frozenset()
) -> tuple[list[Site], list[Site]]:
    """What only rank 0 may do: statements to guard, and `open(...)` calls whose file the others must not touch.

    What runs inside the statements ``prepared`` is left out: rank 0 runs them first, and the others find it done.
    The folders that the calls ``apart`` make would have other names on other ranks.
    """
    guards: dict[ast.AST, Site] = {}
    opens: dict[ast.AST, Site] = {}
    alone: list[Event] = []
    for event in run.events:
        if event.on_one_rank or within(event, prepared):
            continue
        source, node = event.source, event.node
        if event.kind == "open":
            if opens_for_writing(node, run) and not is_chosen_by_rank(node, run):
                statement = _whole_with(source, node, run)
                if statement is None:
                    opens.setdefault(node, Site(source, node))
                else:
                    guards.setdefault(statement, Site(source, statement))
        elif event.kind in ("save", "write", "mkdir", "tracker"):
            if (
                temporary.is_private(event, run)
                or event.kind == "mkdir"
                and _may_exist(node)
                and node not in apart
                and not any(_lies_in(event, each, run) for each in alone)
                or event.kind == "tracker"
                and not _needs_guard(event, run)
            ):
                continue
            statement = source.statement(node)
            if _is_asked_for_nothing(event, statement, run):
                guards.setdefault(statement, Site(source, statement))
            noted = event.kind == "tracker" and isinstance(node, ast.Subscript)  # `run["epochs"] = 3`
            if (noted or isinstance(statement, ast.Expr)) and not is_quiet_file(source, node, run):
                statement = _check_then_make(source, statement) if event.kind == "mkdir" else statement
                guards.setdefault(statement, Site(source, statement))
                alone += [event] if event.kind == "mkdir" else []
    for site in temporary.put_in_place(run):
        if not any(stands_in(site.source, site.node, each) for each in (prepared, frozenset(guards))):
            assert isinstance(site.node, ast.stmt)
            guards.setdefault(site.node, site)
    kept = _outermost(guards.values(), opens)
    guarded = frozenset(site.node for site in kept if isinstance(site.node, ast.Expr))
    # `pickle.dump(data, open(path, "wb"))` is guarded as a whole
    return kept, [site for site in opens.values() if not stands_in(site.source, site.node, guarded)]


def folders(run: Interpreter) -> Iterator[Site]:
    """The folders that code of libraries is told to write to, on all ranks: `evaluator.evaluate(scores, folder)`."""
    for event in run.of("write_to"):
        told = not isinstance(event.node, ast.IfExp) and not (
            isinstance(event.node, ast.Constant) and not event.node.value
        )
        if told and not event.on_one_rank:
            yield Site(event.source, event.node)


def _is_asked_for_nothing(event: Event, statement: ast.stmt, run: Interpreter) -> bool:
    """Whether nobody reads what a call gives: `x = plt.imsave(path, image)`, `return imsave(path, image)` at the end of
    a function, and `self.window = self.viz.line(...)` of a writer that others do not have."""
    if isinstance(statement, ast.Assign) and statement.value is event.node:
        names = {target.id if isinstance(target, ast.Name) else "" for target in statement.targets}
        read = (n.id for n in walk(event.source.tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))
        return event.kind == "tracker" or event.kind == "write" and "" not in names and names.isdisjoint(read)
    home = event.source.function(statement)
    if not isinstance(statement, ast.Return) or home is None or home.body[-1] is not statement:
        return False
    given = run.runs.program.at(event.node).operations
    return statement.value is event.node and bool(given) and not any(map(run.runs.program.is_read, given))


def is_quiet_file(source: Source, node: ast.AST, run: Interpreter) -> bool:
    """Whether a call writes into a file that `with` opens on the null device but for rank 0."""
    names = {n.id for n in all_of(node, ast.Name)}
    for ancestor in source.ancestors(node):
        for item in ancestor.items if isinstance(ancestor, ast.With) else ():
            if isinstance(item.optional_vars, ast.Name) and item.optional_vars.id in names:
                if isinstance(item.context_expr, ast.Call) and is_chosen_by_rank(item.context_expr, run):
                    return True
    return False


def opened(guards: list[Site], opens: list[Site], reduced: Mapping[ast.AST, Source]) -> tuple[list[Site], list[Site]]:
    """Guards, without those around an expression that all ranks must compute in there, since it uses names that are
    bound in there: their files are opened on all ranks instead, on the null device but for rank 0."""
    kept, more = [], list(opens)
    for site in guards:
        inside = set(walk(site.node))
        bound = {n.id for n in inside if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        needed = [node for node in reduced if node in inside]
        names = {n.id for node in needed for n in all_of(node, ast.Name)}
        if names & bound and isinstance(site.node, ast.With):
            more += [Site(site.source, item.context_expr) for item in site.node.items]
        else:
            kept.append(site)
    return kept, more


def within(event: Event, statements: frozenset[ast.AST]) -> bool:
    """Whether an event happens in one of the statements, or in what they call."""
    if not statements:
        return False
    inside = _inside(statements)
    return event.node in inside or any(call.node in inside for call in event.calls)


@lru_cache(maxsize=16)
def _inside(statements: frozenset[ast.AST]) -> frozenset[ast.AST]:
    return frozenset(node for statement in statements for node in walk(statement))


@once_a_run
def last_within(run: Interpreter, statement: ast.AST) -> int | None:
    """The order of the last event in a statement, or in what it calls."""
    return _last(run).get(statement)


@once_a_run
def _last(run: Interpreter) -> dict[ast.AST, int]:
    found: dict[ast.AST, int] = {}
    for event in run.events:
        chain = [(call.node, call.source) for call in event.calls if call.node is not None]
        for node, source in [*chain, (event.node, event.source)]:
            if found.get(node) != event.order:
                found[node] = event.order
                for outer in source.ancestors(node):
                    if found.get(outer) == event.order:
                        break
                    found[outer] = event.order
    return found


def stands_in(source: Source, node: ast.AST, statements: frozenset[ast.AST]) -> bool:
    """Whether a node is one of the statements, or part of one."""
    return node in statements or any(ancestor in statements for ancestor in source.ancestors(node))


PREPARING = frozenset("download open write save".split())
TRAINING = frozenset("backward loader optimizer forward step wrap wrapped pass".split())
TOGETHER = frozenset("backward step wrap wrapped collective".split())
"""What all ranks come to at once."""
REMOVING = frozenset("rmtree remove unlink rmdir removedirs".split())


def preparations(run: Interpreter) -> tuple[list[Site], list[Site]]:
    """Statements that put data on disk before training, the outermost ones that do nothing of the training: those
    that rank 0 runs first, since they do nothing when the files are there, and those that rank 0 runs alone."""
    wide = frozenset[ast.AST]()
    while True:
        prepared, alone = _preparations(run, wide)
        wider = frozenset(_around_others([*prepared, *alone], run)) - wide
        if not wider:
            return prepared, alone
        wide |= wider


def _around_others(sites: list[Site], run: Interpreter) -> Iterator[ast.AST]:
    """The statements in which ranks come to another one, by a call: they cannot wait for each other in there."""
    nodes = frozenset(site.node for site in sites)
    for event in run.events if len(nodes) > 1 else ():
        if event.kind in PREPARING:
            around = (next((n for n in (node, *s.ancestors(node)) if n in nodes), None) for node, s in _places(event))
            yield from [*dict.fromkeys(node for node in around if node is not None)][:-1]


def _preparations(run: Interpreter, wide: frozenset[ast.AST]) -> tuple[list[Site], list[Site]]:
    """The same, without statements that are too ``wide``: what is called in them is looked at in their place."""
    start = next((e.order for e in run.events if e.kind in ("backward", "optimizer")), len(run.events))
    steps = next((e.order for e in run.events if e.kind == "backward"), len(run.events))
    found: dict[ast.stmt, Site] = {}
    alone: dict[ast.stmt, Site] = {}
    met = Met.of(run)
    happening: dict[tuple[int, ast.AST | None], set[str]] = {}
    for event in run.events:
        for depth, call in enumerate(event.calls):
            kind = "removal" if event.kind == "write" and removes(event.node) else event.kind
            if kind in ("iter", "iterate") and any(True for _ in drawn_from(event.value)):
                kind = "pass"  # which draws, on rank 0 alone, what all draw from
            happening.setdefault((depth, call.node), set()).add(kind)
    for event in run.events:
        if (
            event.order >= (steps if event.kind == "download" else start)
            or event.kind not in PREPARING
            or event.on_one_rank
            or event.inside_forward
        ):
            continue
        if event.kind == "open" and not opens_for_writing(event.node, run) or temporary.is_private(event, run):
            continue
        if event.kind == "download" and not downloads(event.node, run):
            continue
        if _takes_free_name(event, met):
            continue
        chain = [(depth, each.node, each.source) for depth, each in enumerate(event.calls)]
        for depth, node, source in chain:
            if node is None:
                continue
            inside = happening[depth, node]
            if inside & TRAINING:
                continue
            fetched = event.kind == "download"
            spared = (fetched or "removal" not in inside) and _is_spared(event, depth)
            statement = source.statement(node)
            anew = not fetched or _is_fetched_whatever_is_there(event, run)
            outer = _file_test(source, statement, met)
            if statement in wide or outer in wide:
                continue
            if outer is statement and anew and not spared:
                if _runs_alone(statement, node, event.calls[depth].function, inside):
                    alone.setdefault(statement, Site(source, statement))
                    break
                if fetched:
                    continue  # others may do the rest of it at the same time
            if fetched or spared or outer is not statement:
                outer = _attempt(source, outer, run) if fetched else outer
                found |= {each: Site(source, each) for each in _with_answer(source, outer, met)}
            break
        else:
            statement = event.source.statement(event.node)
            outer = _file_test(event.source, statement, met)
            if event.kind == "download":
                anew = outer is statement
                outer = _attempt(event.source, outer, run)
                if anew and _fetches_anew(event, outer, run):
                    outer = _with_archive(event.source, outer)
                    alone.setdefault(outer, Site(event.source, outer))
                    continue
            if event.kind == "write" and removes(event.node):
                continue  # who comes second finds something else there
            if event.kind == "open" and _is_kept_open(event, outer):
                continue  # who comes second goes on writing there
            if event.kind == "download" or outer is not statement:
                found |= {each: Site(event.source, each) for each in _with_answer(event.source, outer, met)}
    prepared = _as_one(list(found.values()), run)
    first = frozenset(site.node for site in prepared)
    prepared = [each for each in prepared if first.isdisjoint(each.source.ancestors(each.node))]
    return prepared, [site for site in alone.values() if not stands_in(site.source, site.node, first)]


def not_guarded_within(alone: list[Site], prepared: list[Site], run: Interpreter) -> list[Site]:
    """Those of the statements that rank 0 runs alone which need that: where others call what writes the same way, as
    `model.save(path)` also in each epoch, it is guarded in the function itself."""
    outside = frozenset(site.node for site in (*prepared, *alone))
    writing = [
        event
        for event in run.events
        if event.kind in ("save", "write", "mkdir", "download")
        or event.kind == "open"
        and opens_for_writing(event.node, run)
    ]
    elsewhere = {event.node for event in writing if not event.on_one_rank and not within(event, outside)}
    needed = []
    for site in alone:
        inside = [event.node for event in writing if within(event, frozenset([site.node]))]
        if not inside or not elsewhere.issuperset(inside):
            needed.append(site)
    return needed


def _as_one(found: list[Site], run: Interpreter) -> list[Site]:
    """The same statements, but for those in several branches of one condition, which are waited for together."""
    chains: dict[ast.If, list[Site]] = {}
    for site in found:
        if (chain := _chain_of(site.source, site.node)) is not None:
            chains.setdefault(chain, []).append(site)
    lifted: dict[ast.AST, Site] = {}
    for chain, sites in chains.items():
        branches = {id(site.source.block(site.node)) for site in sites if isinstance(site.node, ast.stmt)}
        if len(branches) > 1 and _only_makes(chain, run):
            lifted |= {site.node: Site(site.source, chain) for site in sites}
    return list({site.node: site for site in (lifted.get(each.node, each) for each in found)}.values())


def _chain_of(source: Source, statement: ast.AST) -> ast.If | None:
    """The `if` with all its `elif` and `else`, of which a statement is in a branch."""
    node, chain = statement, None
    while isinstance(parent := source.parents.get(node), ast.If):
        if chain is not None and parent.orelse != [node]:
            break
        node = chain = parent
    return chain


def _only_makes(chain: ast.If, run: Interpreter) -> bool:
    """Whether a condition binds data sets and the like in all of its branches, and neither trains nor leaves."""
    inside = list(all_of(chain, ast.stmt))
    plain = all(isinstance(each, (ast.If, ast.Assign, ast.AnnAssign, ast.Expr, ast.Raise)) for each in inside)
    around = frozenset([chain])
    happens = {event.kind for event in run.events if within(event, around)}
    makes = (event.value for event in run.events if event.kind == "make" and within(event, around))
    models = any(".transforms." not in each.name for value in makes for each in value.objects("module"))
    return plain and not models and not happens & (TRAINING | {"exit", "optimizer"})


def _is_kept_open(event: Event, test: ast.stmt) -> bool:
    """`log = open(path, "a") if there is one, and else open(path, "w")`, to which the script goes on writing."""
    statement = event.source.statement(event.node)
    bound = isinstance(statement, ast.Assign) and statement.value is event.node
    return bound and statement is not test and _binds_for_others(event.source, statement, test)


def _is_spared(event: Event, depth: int) -> bool:
    """Whether what writes a file asks first whether it is there: ranks that come later then leave it alone."""
    places = [(call.node, call.source) for call in event.calls[depth + 1 :]] + [(event.node, event.source)]
    for node, source in places:
        if node is not None and stands_where_missing(source, source.statement(node)):
            return True
    inner = [call.node for call in event.calls[depth + 1 :]] + [event.node]
    for call, writing in zip(event.calls[depth:], inner, strict=True):
        tests = [n for n in all_of(call.function.node, ast.If) if tests_files(n.test)]
        ahead = [test for test in tests if test.lineno <= getattr(writing, "lineno", 0)]
        if any(isinstance(n, ast.Return) for test in ahead for n in walk(test)):
            return True
        if any(_binds_for_others(call.function.source, test) for test in tests):
            return True  # it notes what it has found
    return False


def _takes_free_name(event: Event, met: Met) -> bool:
    """Whether a loop tries one name after the other until there is no such file: ranks that come later would not leave
    what is there alone, and take the next one."""
    places = [(call.node, call.source) for call in event.calls] + [(event.node, event.source)]
    for node, source in places:
        test = _file_test(source, source.statement(node), met) if node is not None else None
        if not isinstance(test, ast.If):
            continue
        loops = (each for each in source.ancestors(test) if isinstance(each, (ast.While, ast.For)))
        if ends_search(test) and any(source.function(loop) is source.function(test) for loop in loops):
            return True
    return False


def ends_search(test: ast.If) -> bool:
    """Whether a loop is left where a file is missing: `if not os.path.exists(path): break`"""
    if not tests_files(test.test) or finds(test.test):
        return False
    return any(isinstance(n, (ast.Break, ast.Return)) for each in test.body for n in walk(each))


def stands_where_missing(source: Source, statement: ast.stmt) -> bool:
    """Whether a statement runs only where a test finds a file missing, within its function."""
    inner: ast.AST = statement
    for ancestor in source.ancestors(statement):
        if isinstance(ancestor, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            return False
        if isinstance(ancestor, ast.If) and tests_files(ancestor.test):
            if finds(ancestor.test) != (inner in ancestor.body):
                return True
        if isinstance(ancestor, ast.Try) and isinstance(inner, ast.ExceptHandler) and _misses_file(inner, ancestor):
            return True
        inner = ancestor
    return False


def finds(test: ast.expr) -> bool:
    """Whether a test holds where files are there: `os.path.exists(path)`."""
    return not any(isinstance(n, (ast.Not, ast.Compare)) for n in walk(test))


def is_kept_for_others(event: Event, run: Interpreter) -> bool:
    """Whether what happens is left out where a file is there, which is written later: of ranks that wait for rank 0,
    none comes there. `if path.is_file(): return load(path)`, or `if not os.path.exists(path):` around it."""
    frames = [*((call.node, call.source) for call in event.calls), (event.node, event.source)]
    for depth, (node, source) in enumerate(frames):
        if node is None or not _is_left_out(source, source.statement(node)):
            continue
        around = [call.node for call in event.calls[:depth]]
        later = (e for e in run.events if e.order > event.order and e.kind in PREPARING)
        if any([call.node for call in e.calls[:depth]] == around and _stores(e, run) for e in later):
            return True
    return False


def _stores(event: Event, run: Interpreter) -> bool:
    return event.kind != "open" or opens_for_writing(event.node, run)


def _is_left_out(source: Source, statement: ast.stmt) -> bool:
    """Whether a statement runs only where a file is not there yet: after an early return, too."""
    if stands_where_missing(source, statement):
        return True
    home = source.function(statement)
    before = (each for each in home.body if each.lineno < statement.lineno) if home is not None else ()
    return any(
        isinstance(each, ast.If)
        and tests_files(each.test)
        and finds(each.test)
        and isinstance(each.body[-1], ast.Return)
        for each in before
    )


def removes(node: ast.AST) -> bool:
    """`shutil.rmtree(folder)`"""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in REMOVING


def _runs_alone(statement: ast.stmt, call: ast.AST, function: Function, inside: set[str]) -> bool:
    """Whether a call leaves nothing behind but files."""
    if not isinstance(statement, ast.Expr) or statement.value is not call or isinstance(function.node, ast.Lambda):
        return False
    if inside & {"random", "random_number", "numpy_draw", "seed", "collective", "writer", "file_handler", "log_config"}:
        return False
    return not any(
        isinstance(n, (ast.Global, ast.Nonlocal)) or isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)
        for n in walk(function.node)
    )


def downloads(node: ast.AST, run: Interpreter) -> bool:
    """Whether a call of the catalogue's downloading functions and classes is told to download."""
    assert isinstance(node, ast.Call)
    names = {t.name for t in run.values.get(node.func, NOTHING).things if isinstance(t, External)}
    told = {k.arg: run.values.get(k.value, NOTHING) for k in node.keywords if k.arg is not None}
    if any(
        name.startswith(("torchvision.datasets.", "torchaudio.datasets.")) and ".utils." not in name for name in names
    ):
        return "download" in told and told["download"].const not in (False, None)
    if "torch.hub.load" in names:
        local = "source" in told and told["source"].const == "local"
        without = any(
            k.arg in ("pretrained", "weights") and isinstance(k.value, ast.Constant) and not k.value.value
            for k in node.keywords
        )
        return not (local and without)
    if "datasets.load_dataset" in names:
        files = next((k.value for k in node.keywords if k.arg == "data_files"), None)
        known = told.get("path") or run.values.get(node.args[0], NOTHING) if node.args else told.get("path", NOTHING)
        return not (known.const in OWN_FORMATS and not _names_address(files))
    return True


def _names_address(node: ast.expr | None) -> bool:
    """`"https://example.org/train.csv"`"""
    texts = [n.value for n in all_of(node, ast.Constant)] if node is not None else []
    return any(isinstance(text, str) and "://" in text for text in texts)


OWN_FORMATS = frozenset("csv json text parquet arrow pandas imagefolder audiofolder videofolder webdataset xml".split())
"""What `datasets.load_dataset` reads from files that are there."""
READING = ("load", "open", "read", "File", "stat")
MOST_BETWEEN = 4
COMMANDS = ("os.system", "subprocess.run", "subprocess.call", "subprocess.check_call")
FETCHING = frozenset(
    [
        "urllib.request.urlretrieve",
        "wget.download",
        "gdown.download",
        "torch.hub.download_url_to_file",
        "torchvision.datasets.utils.download_and_extract_archive",
        "shutil.unpack_archive",
        *COMMANDS,
    ]
)
"""What downloads, or unpacks, whether the file is there or not."""
UNPACKING_AGAIN = frozenset(
    f"torchvision.datasets.{name}"
    for name in ("VOCSegmentation", "VOCDetection", "SBDataset", "Places365", "Middlebury2014Stereo")
)
"""Data sets that with `download=True` unpack their archive each time that they are made."""


def _extracts(node: ast.AST) -> bool:
    """`archive.extractall(path)`"""
    return isinstance(node, ast.Call) and last_name(node.func) == "extractall"


def _is_fetched_whatever_is_there(event: Event, run: Interpreter) -> bool:
    """Whether files are fetched, or taken out of an archive, even if they are in place."""
    function = event.node.func if isinstance(event.node, ast.Call) else None
    names = {t.name for t in run.values.get(function, NOTHING).things if isinstance(t, External)} if function else set()
    return bool(names) and names <= FETCHING or any(event.detail.objects("file")) or _extracts(event.node)


def fetched_again(run: Interpreter) -> frozenset[ast.AST]:
    """The calls that fetch files, or unpack them, though another rank has put them in place: what reads these waits
    until no rank writes them any more."""
    again = set()
    for event in run.of("download"):
        tests = [n.test for n in event.source.ancestors(event.node) if isinstance(n, (ast.If, ast.IfExp))]
        called = event.node.func if isinstance(event.node, ast.Call) else None
        things = run.values.get(called, NOTHING).things if called is not None else ()
        names = {each.name for each in things if isinstance(each, External)}
        if not any(map(tests_files, tests)):
            if names & UNPACKING_AGAIN or _is_fetched_whatever_is_there(event, run):
                again.add(event.node)
    return frozenset(again)


def _fetches_anew(event: Event, statement: ast.stmt, run: Interpreter) -> bool:
    """Whether a statement downloads, or takes out of an archive, files that another rank has put in place already, and
    leaves nothing else behind."""
    inside = set(walk(statement))
    if not _is_fetched_whatever_is_there(event, run) or any(
        isinstance(n, ast.If) and tests_files(n.test) for n in inside
    ):
        return False
    bound = {n.id for n in inside if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    home = event.source.home(statement)
    read = (n for n in all_of(home, ast.Name) if isinstance(n.ctx, ast.Load) and n not in inside)
    return isinstance(statement, (ast.Expr, ast.Try, ast.For)) and bound.isdisjoint(n.id for n in read)


def _attempt(source: Source, statement: ast.stmt, run: Interpreter) -> ast.stmt:
    """The `try` around a statement that may fail, with the loop that tries again, or the statement itself: what waits
    for rank 0 has to come whether it fails or not."""
    found = statement
    for ancestor in source.ancestors(statement):
        if isinstance(ancestor, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            break
        again = isinstance(ancestor, (ast.For, ast.While)) and isinstance(found, ast.Try)
        if not again and not (isinstance(ancestor, ast.Try) and ancestor.handlers):
            continue
        assert isinstance(ancestor, ast.stmt)
        around = frozenset([ancestor])
        if any(isinstance(each, ast.Return) for each in walk(ancestor)):
            break
        if any(event.kind in TRAINING and within(event, around) for event in run.events):
            break
        found = ancestor
    return found


def _with_archive(source: Source, statement: ast.stmt) -> ast.stmt:
    """The `with zipfile.ZipFile(path) as archive:`, or the loop over names, of which a statement is all there is, or
    itself."""
    above = source.parents[statement]
    if not isinstance(above, (ast.With, ast.For)) or above.body != [statement] or getattr(above, "orelse", []):
        return statement
    return _with_archive(source, above)


class Met(NamedTuple):
    """Where a run comes by."""

    looks: frozenset[ast.AST]
    """The calls in which files are looked for."""
    trains: frozenset[ast.AST]
    """What trains, or has something in it that does."""

    @classmethod
    def of(cls, run: Interpreter) -> Met:
        """The places of a run."""
        looks = (place for event in run.of("exists") for place in _places(event))
        training = (place for event in run.events if event.kind in TOGETHER for place in _places(event))
        trains = {each for node, source in training for each in (node, *source.ancestors(node))}
        return cls(frozenset(node for node, _ in looks), frozenset(trains))


def _places(event: Event) -> list[tuple[ast.AST, Source]]:
    """Where an event happens, and the calls that lead there."""
    calls = [(call.node, call.source) for call in event.calls if call.node is not None]
    return [*calls, (event.node, event.source)]


def _asks(test: ast.expr, met: Met) -> bool:
    """Whether a condition goes by the files that are there: `if not is_complete(root):` as well."""
    return tests_files(test) or not met.looks.isdisjoint(walk(test))


def _file_test(source: Source, statement: ast.stmt, met: Met) -> ast.stmt:
    """The `if not os.path.exists(...)` around a statement, the `try` that has found no file, or itself."""
    found = statement
    inner: ast.AST = statement
    for ancestor in source.ancestors(statement):
        if isinstance(ancestor, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            break
        if ancestor in met.trains:
            break  # all ranks have to come there at once
        if _goes_by_files(ancestor, inner, source, met):
            assert isinstance(ancestor, ast.stmt)
            found = ancestor
        inner = ancestor
    return found


def _goes_by_files(node: ast.AST, inner: ast.AST, source: Source, met: Met) -> bool:
    if isinstance(node, ast.If):
        return _asks(node.test, met) or _answer(source, node, met) is not None
    return isinstance(node, ast.Try) and isinstance(inner, ast.ExceptHandler) and _misses_file(inner, node)


def _misses_file(handler: ast.ExceptHandler, attempt: ast.Try) -> bool:
    """Whether a file is missing that was to be read: `except FileNotFoundError:`, whatever is caught where one is."""
    calls = (n for each in attempt.body for n in all_of(each, ast.Call))
    names = [last_name(call.func) or "" for call in calls]
    reads = any(name.startswith(READING) for name in names)
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return reads or any(each is not None and last_name(each) == "FileNotFoundError" for each in kinds)


def _answer(source: Source, test: ast.If, met: Met) -> ast.stmt | None:
    """Where a file was looked for, right above a condition that goes by what was found: `cached = path.exists()`"""
    asked = {n.id for n in all_of(test.test, ast.Name)}
    block = source.block(test)
    for each in block[max(0, block.index(test) - MOST_BETWEEN) : block.index(test)]:
        if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name) and each.targets[0].id in asked:
            if _asks(each.value, met):
                return each
    return None


def _with_answer(source: Source, statement: ast.stmt, met: Met) -> list[ast.stmt]:
    """A statement, from where the file was looked for by which it goes."""
    first = _answer(source, statement, met) if isinstance(statement, ast.If) else None
    block = source.block(statement)
    return block[block.index(first or statement) : block.index(statement) + 1]


def tests_files(test: ast.expr) -> bool:
    """Whether a condition asks for files."""
    return any(isinstance(n, ast.Call) and last_name(n.func) in TESTING_FILES for n in walk(test))


def _outermost(sites: Iterable[Site], opens: Mapping[ast.AST, Site]) -> list[Site]:
    """Without those that stand inside another, or write into a file that is already quiet on other ranks."""
    chosen = {site.node for site in sites}
    kept = []
    for site in sites:
        ancestors = list(site.source.ancestors(site.node))
        if not any(ancestor in chosen for ancestor in ancestors):
            kept.append(site)
    return kept


def opens_for_writing(node: ast.AST, run: Interpreter) -> bool:
    assert isinstance(node, ast.Call)
    position = 0 if is_method(node, run) else 1
    mode = node.args[position] if len(node.args) > position else None
    mode = next((k.value for k in node.keywords if k.arg == "mode"), mode)
    if mode is None:
        return False
    const = run.values.get(mode, NOTHING).const
    return isinstance(const, str) and bool(set("wax+") & set(const)) or not isinstance(const, str)


def is_chosen_by_rank(node: ast.AST, run: Interpreter) -> bool:
    """Whether the path already depends on the rank."""
    assert isinstance(node, ast.Call)
    return any(
        run.values.get(argument, NOTHING).spread is RANK
        for argument in (*node.args[:1], *(k.value for k in node.keywords))
    )


def is_method(node: ast.Call, run: Interpreter) -> bool:
    """`path.open("w")` rather than `open(path, "w")`."""
    return isinstance(node.func, ast.Attribute) and not any(
        isinstance(t, External) for t in run.values.get(node.func, NOTHING).things
    )


def _may_exist(node: ast.AST) -> bool:
    """`os.makedirs(path, exist_ok=True)` may run on all ranks."""
    assert isinstance(node, ast.Call)
    return any(k.arg == "exist_ok" and isinstance(k.value, ast.Constant) and bool(k.value.value) for k in node.keywords)


def _lies_in(event: Event, other: Event, run: Interpreter) -> bool:
    """Whether a folder is made inside another one, which rank 0 alone makes: a rank that came there first would make
    that, too, and rank 0 would find it there. `(out / "weights").mkdir(parents=True, exist_ok=True)`, `out.mkdir()`"""
    inner, outer = (paths.spelled(run.runs.program.at(folder(each, run))) for each in (event, other))
    return any(f"{path}/".startswith(f"{begins.rstrip('/')}/") for path in inner for begins in outer)


def folder(event: Event, run: Interpreter) -> ast.expr:
    """The path of the folder that a call makes: `os.makedirs(path)`, `path.mkdir()`."""
    assert isinstance(event.node, ast.Call)
    if is_method(event.node, run) and isinstance(event.node.func, ast.Attribute):
        return event.node.func.value
    return event.node.args[0] if event.node.args else event.node.func


def _needs_guard(event: Event, run: Interpreter) -> bool:
    """Methods of a writer that has no quiet mode; functions such as `wandb.log` are quiet after a quiet `init`."""
    for thing in event.detail.things:
        if isinstance(thing, Object):
            return thing.is_writer or thing.name.endswith(WRITERS)
    called = run.values.get(event.node.func, NOTHING) if isinstance(event.node, ast.Call) else NOTHING
    names = {thing.name for thing in called.things if isinstance(thing, External)}
    return any(name.startswith("mlflow.") for name in names)  # which starts a run where there is none


def is_lone_writer(site: Site, run: Interpreter) -> bool:
    """Whether a call makes a writer that ranks other than 0 do without."""
    assert isinstance(site.node, ast.Call)
    made = run.values.get(site.node.func, NOTHING).things
    names = [thing.name for thing in made if isinstance(thing, External)]
    derived = run.values.get(site.node, NOTHING).objects("writer")
    return any(each.is_writer for each in derived) or (
        names[0] if len(names) == 1 else site.source.code(site.node.func)
    ).endswith(WRITERS)


def where_a_writer_is(guards: Iterable[Site], run: Interpreter) -> list[Site]:
    """`if self.writer:` around what rank 0 alone does: other ranks have no writer, and do not come there. Where a model
    runs under another condition in it, all ranks do: it must not be run ahead of that."""
    passes = {node for event in run.of("forward") for node in (event.node, *(call.node for call in event.calls))}
    found: dict[ast.AST, Site] = {}
    for site in guards:
        for around in site.source.ancestors(site.node):
            if isinstance(around, ast.If) and asks_for_writer(around.test, run):
                if not _runs_under_condition(around, passes):
                    found.setdefault(around, Site(site.source, around))
    return list(found.values())


def asks_for_writer(test: ast.expr, run: Interpreter) -> bool:
    """Whether a condition asks for a writer, which rank 0 alone has."""
    things = run.values.get(test.left if isinstance(test, ast.Compare) else test, NOTHING).things
    return any(isinstance(t, Object) and (t.is_writer or t.name.endswith(WRITERS)) for t in things)


def _runs_under_condition(around: ast.If, passes: Collection[ast.AST | None]) -> bool:
    inner = (n for part in around.body for n in walk(part) if isinstance(n, (ast.If, ast.For, ast.While)))
    return any(each in passes for node in inner for each in walk(node))


def _check_then_make(source: Source, statement: ast.stmt) -> ast.stmt:
    """`if not os.path.exists(path): os.mkdir(path)` runs on one rank as a whole."""
    parent = source.parents.get(statement)
    if isinstance(parent, ast.If) and parent.body == [statement] and not parent.orelse:
        if tests_files(parent.test):
            return parent
    return statement


def _whole_with(source: Source, node: ast.AST, run: Interpreter) -> ast.stmt | None:
    """The `with open(...)` statement, if all that happens in it is writing."""
    statement = source.statement(node)
    if not isinstance(statement, ast.With) or not any(item.context_expr is node for item in statement.items):
        return None
    if len(statement.items) > 1 or not all(_only_writes(each, run) for each in statement.body):
        return None
    if _binds_for_others(source, statement):
        return None
    return statement


def _binds_for_others(source: Source, statement: ast.stmt, around: ast.stmt | None = None) -> bool:
    """Whether a statement binds names that are also read outside it, or one ``around`` it: then it must run on all
    ranks."""
    inside = set(walk(statement))
    own = {n for each in inside if isinstance(each, ast.comprehension) for n in walk(each.target)}
    bound = {n.id for n in inside - own if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    home: ast.AST = source.home(statement)
    bound -= {t.id for item in getattr(statement, "items", ()) for t in [item.optional_vars] if isinstance(t, ast.Name)}
    inside |= set(walk(around)) if around is not None else set()
    return any(
        isinstance(n, ast.Name) and n.id in bound and isinstance(n.ctx, ast.Load) and n not in inside
        for n in walk(home)
    )


def _only_writes(statement: ast.stmt, run: Interpreter) -> bool:
    if isinstance(statement, (ast.For, ast.If)):
        return all(_only_writes(each, run) for each in (*statement.body, *statement.orelse))
    calls = list(all_of(statement, ast.Call))
    if isinstance(statement, ast.Assign):
        return all(_is_quiet(call, run) for call in calls)
    return isinstance(statement, ast.Expr) and all(_is_quiet(call, run) for call in calls)


def _is_quiet(call: ast.Call, run: Interpreter) -> bool:
    """Whether a call neither communicates nor trains nor draws: it may run on one rank."""
    things = run.values.get(call.func, NOTHING).things
    if any(not isinstance(t, External) for t in things):
        return False
    return not any(
        isinstance(t, External) and t.name.startswith(("torch.rand", "random.", "numpy.random")) for t in things
    )


def exclusive(source: Source, first: ast.AST, second: ast.AST) -> bool:
    """Whether two places lie in different branches of one condition, so that only one of them runs."""
    branches = dict(_branches(source, first))
    return any(branches.get(test, branch) != branch for test, branch in _branches(source, second))


def _branches(source: Source, node: ast.AST) -> Iterator[tuple[ast.If, bool]]:
    """The conditions around ``node``, and whether it is where they hold."""
    for parent in source.ancestors(node):
        if isinstance(parent, ast.If):
            yield parent, node in parent.body
        node = parent
