"""The smallest statements that may run on rank 0 alone, since they write files."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping

from autodist.files import temporary
from autodist.files.looking import tests_files
from autodist.interpreter import Event, Interpreter
from autodist.regions import stands_in, within
from autodist.script import Site
from autodist.solve import paths
from autodist.source import Source, all_of, walk
from autodist.values import NOTHING, External, Object

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
    kept = _outermost(guards.values())
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


def _outermost(sites: Iterable[Site]) -> list[Site]:
    """Without those that stand inside another."""
    chosen = {site.node: site for site in sites}
    return [each for each in chosen.values() if chosen.keys().isdisjoint(each.source.ancestors(each.node))]


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
    return any(run.goes_by_rank(argument) for argument in (*node.args[:1], *(k.value for k in node.keywords)))


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
    if binds_for_others(source, statement):
        return None
    return statement


def binds_for_others(source: Source, statement: ast.stmt, around: ast.stmt | None = None) -> bool:
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
