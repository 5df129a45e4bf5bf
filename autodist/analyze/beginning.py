"""Where a script begins its work: the process group is set up ahead of that."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from autodist import regions, while_importing
from autodist.analyze.launched import is_distributed
from autodist.fsdp import shards
from autodist.imports import below_imports, is_preface
from autodist.interpreter import Event, Interpreter
from autodist.placement import Shard
from autodist.reduction import Reduction
from autodist.rule import Severity
from autodist.script import Concern, Loader, Model, Setup, Shards, Site, TrainingScript
from autodist.solve.search import Cut
from autodist.source import Source, first_index, walk
from autodist.values import Object

NEEDS_GROUP = frozenset(
    (
        "seed loader download mkdir save open writer optimizer forward backward move print "
        "log file_handler log_config random random_number numpy_draw search set_device progress make ordered asked "
        "placed at_exit"
    ).split()
)


def only_saves(site: Site, found: Shards) -> bool:
    """Whether a statement is a call that writes on rank 0 by itself."""
    return isinstance(site.node, ast.Expr) and any(site.node.value is save.node for save in found.saves)


def order_of(run: Interpreter, site: Site) -> tuple[int, int, int]:
    """Where something stands, in the order of files, lines and columns."""
    return run.project.sources.index(site.source), getattr(site.node, "lineno", 0), getattr(site.node, "col_offset", 0)


def hoisted(cut: Cut, guarded: set[ast.AST]) -> ast.stmt | None:
    """The statement that a reduction must come before: a guarded one, or a loop that shows one row after the other."""
    around = (cut.node, *cut.source.ancestors(cut.node))
    guarded = {*guarded, cut.ahead} if cut.ahead is not None else guarded
    found = next((node for node in reversed(around) if node in guarded and isinstance(node, ast.stmt)), None)
    return found if found is not None else _shown_in(cut)


def _shown_in(cut: Cut) -> ast.For | None:
    """The outermost loop whose numbers are those of the rows: `for i in range(6): axes[i].imshow(images[i])`."""
    name, source = cut.node, cut.source
    above = source.parents.get(name)
    if not isinstance(cut.placement, Shard) or cut.switch:
        return None
    if not isinstance(name, ast.Name) or not isinstance(above, ast.Subscript) or above.value is not name:
        return None
    number = first_index(above)
    if not isinstance(number, ast.Name):
        return None
    found = None
    for each in source.ancestors(name):
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            break
        if isinstance(each, ast.For):
            if name.id in {n.id for n in walk(each) if isinstance(n, ast.Name) and _is_changed(n, source)}:
                break
            if number.id in {n.id for n in walk(each.target) if isinstance(n, ast.Name)}:
                found = each
    return found


def _is_changed(name: ast.Name, source: Source) -> bool:
    """Whether a name is bound, or an item of what it holds."""
    above = source.parents.get(name)
    item = isinstance(above, ast.Subscript) and isinstance(above.ctx, ast.Store)
    return isinstance(name.ctx, ast.Store) or item


def stays_below(reduction: Reduction) -> bool:
    """Whether what rank 0 alone comes to, such as `if writer is not None:`, computes the value that has to be made
    before it."""
    return reduction.hoist is not None and shards.made_inside(reduction.node, reduction.hoist)


def _names_file(call: ast.AST) -> bool:
    """`logging.basicConfig(filename="train.log")`"""
    return isinstance(call, ast.Call) and any(keyword.arg == "filename" for keyword in call.keywords)


def while_imported(
    run: Interpreter, loaders: list[Loader], sites: list[Site], models: list[Model]
) -> dict[ast.AST, Event]:
    """What needs the process group but happens while a module is imported, before the entry script can join it: by
    where it is, in the order in which it happens."""
    changed = {loader.node for loader in loaders if not loader.sharded} | {site.node for site in sites}
    changed |= {model.wrapping.statement for model in models if model.wrapping is not None and not model.wrapped}
    changed |= {event.node for event in run.of("file_handler") if models}
    changed |= {event.node for event in run.of("log_config") if models and _names_file(event.node)}
    changed |= {event.node for event in run.of("placed") if models}
    found: dict[ast.AST, Event] = {}
    for event in () if is_distributed(run) else run.events:
        if event.calls or event.source is run.project.entry:
            continue
        if event.node in changed or any(ancestor in changed for ancestor in event.source.ancestors(event.node)):
            found.setdefault(event.node, event)
    return found


def joined_in(early: Iterable[Event], run: Interpreter) -> Source | None:
    """The module that joins the group, since its own code is the first to need it, while the entry script imports it:
    if nothing above that import does, nor a module that was imported before."""
    first = next(iter(early), None)
    if first is None:
        return None
    entry, place = run.project.entry, while_importing.place(first.source, run)
    if place is None or not isinstance(place, (ast.Import, ast.ImportFrom)):
        return None
    for event in run.events:
        if event is first:
            break
        if event.source not in (first.source, entry) and not event.calls and _needs_group(event):
            return None
    tops = (_top_statement(event, entry) for event in run.events if event.kind in NEEDS_GROUP)
    above = (top for top in tops if isinstance(top, ast.stmt) and top.lineno < place.lineno)
    return first.source if all(isinstance(top, (ast.FunctionDef, ast.ClassDef)) for top in above) else None


def _needs_group(event: Event) -> bool:
    return event.kind in NEEDS_GROUP - {"print"} and not (event.kind == "make" and not _matters(event))


def import_time_concerns(early: Iterable[Event], run: Interpreter, models: list[Model]) -> Iterator[Concern]:
    """What happens before the script can join its process group, and does not bear it."""
    early = [*early]
    if early and joined_in(early, run) is None:
        message = "runs while this module is imported, before the process group exists: move it into a function"
        yield Concern("AD905", early[0].source, early[0].node, message, Severity.REFUSAL)
        return
    if models and not is_distributed(run):
        yield from while_importing.concerns(run)


def downloads(prepared: list[Site], run: Interpreter) -> Iterator[tuple[Site, Site]]:
    """Runs of neighbouring statements that prepare data, each with its first and last."""
    statements = {site.node: site.source for site in prepared}
    taken: set[ast.AST] = set()
    for site in sorted(prepared, key=lambda s: order_of(run, s)):
        if site.node in taken:
            continue
        assert isinstance(site.node, ast.stmt)
        block = site.source.block(site.node)
        last = index = block.index(site.node)
        while last + 1 < len(block) and block[last + 1] in statements:
            last += 1
        taken.update(block[index : last + 1])
        yield site, Site(site.source, block[last])


def first_on_rank_zero(prepared: list[Site], run: Interpreter) -> Iterator[ast.stmt]:
    """The statements that the other ranks wait for: in them no rank can communicate."""
    for first, last in downloads(prepared, run):
        assert isinstance(first.node, ast.stmt) and isinstance(last.node, ast.stmt)
        block = first.source.block(first.node)
        yield from block[block.index(first.node) : block.index(last.node) + 1]


def setup_of(script: TrainingScript, run: Interpreter, early: Iterable[Event]) -> Setup | None:
    """Before the first statement of the entry script that needs the process group, as late as an expert would; or of a
    module that needs it while it is imported."""
    entry = joined_in(early, run) or run.project.entry
    body = entry.tree.body
    if not body:
        return None
    again = _has_workers(run) and any(
        isinstance(s, ast.If) and _is_main_guard(s.test) for s in run.project.entry.tree.body
    )
    guard = next((s for s in body if isinstance(s, ast.If) and _is_main_guard(s.test)), None)
    start = next((s for s in body if not is_preface(s)), body[-1])
    agreed = (*script.named_apart, *script.unseeded, *script.clocked)
    alike = {node for site in agreed for node in walk(site.node)}
    taken = [e for kind in ("clock", "unseeded") for e in run.of(kind) if e.node in alike]
    apart = (*script.downloads, script.guards, script.prepared_alone, script.fetched_anew)
    waited = frozenset(site.node for sites in apart for site in sites)
    by_rank = {each.node for each in script.sample_generators} | {each.node for each in script.kept_generators}
    needed = [
        e
        for e in run.events
        if e.kind == "print"
        or _needs_group(e)
        or _makes_one_of(by_rank, e)
        or e in taken
        or e.kind in ("exists", "load", "read", "write")
        and regions.within(e, waited)
    ]
    tops = [(event, top) for event in needed if (top := _top_statement(event, entry)) is not None]
    found = [top for _, top in tops if not is_preface(top)]
    defined = (ast.FunctionDef, ast.ClassDef)
    first = next(
        (t for e, t in tops if t in found and (not isinstance(t, defined) or _while_defined(e, t, entry))), None
    )
    if first is None and guard is None and found and isinstance(found[0], ast.FunctionDef):
        return Setup(entry, _without_docstring(found[0].body), found[0])  # what a launcher or an entry point calls
    define = below_imports(entry)
    if guard is not None and (first is None or first is guard or body.index(first) >= body.index(guard)):
        return Setup(entry, guard.body[0], min(define, guard, key=body.index))
    before = first if first is not None else start
    return Setup(entry, before, min(define, before, key=body.index), again)


def _while_defined(event: Event, top: ast.stmt, entry: Source) -> bool:
    """Whether something happens while a class or function is defined: `class Config: os.makedirs("runs")`, `def
    train(loader=make_loader()):`."""
    place = _place(event, entry)
    if place is None:
        return False
    inside = [each for each in (place, *entry.ancestors(place)) if isinstance(each, (ast.FunctionDef, ast.Lambda))]
    if inside and event.kind == "make" and event.value.objects("device"):
        return False  # `device=torch.device("cuda")` means no GPU yet
    return all(any(place in walk(default) for default in _defaults(each)) for each in inside)


def _defaults(function: ast.FunctionDef | ast.Lambda) -> list[ast.expr]:
    given = [*function.args.defaults, *filter(None, function.args.kw_defaults)]
    return given if isinstance(function, ast.Lambda) else [*given, *function.decorator_list]


def _has_workers(run: Interpreter) -> bool:
    """Whether a loader may have processes of its own."""
    loaders = [thing for event in run.of("loader") for thing in event.value.objects("loader")]
    told = [each.argument("num_workers", 5) for each in loaders]
    return any("**" in each.keywords for each in loaders) or any(each is not None and each.const != 0 for each in told)


def _without_docstring(body: list[ast.stmt]) -> ast.stmt:
    return next((s for s in body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))), body[-1])


def _makes_one_of(generators: set[ast.AST], event: Event) -> bool:
    """Whether one of some generators is made, or an object that has one."""
    if event.kind == "generator":
        return event.node in generators
    made = [t.cls for t in event.value.things if isinstance(t, Object) and t.cls] if event.kind == "make" else []
    return bool(generators) and any(not generators.isdisjoint(walk(each.node)) for each in made)


def _matters(event: Event) -> bool:
    return any(isinstance(t, Object) and bool(t.roles & {"module", "dataset", "device"}) for t in event.value.things)


def _place(event: Event, entry: Source) -> ast.AST | None:
    """Where in the entry script an event happens: in a call of its own code, as a rule."""
    chain = [(call.node, call.source) for call in event.calls if call.node is not None]
    return next((node for node, source in [*chain, (event.node, event.source)] if source is entry), None)


def _top_statement(event: Event, entry: Source) -> ast.stmt | None:
    """The top-level statement of the entry script that an event happens in."""
    place = _place(event, entry)
    top = place
    for ancestor in entry.ancestors(place) if place is not None else ():
        if isinstance(ancestor, ast.Module):
            return top if isinstance(top, ast.stmt) else None
        top = ancestor
    return None


def _is_main_guard(test: ast.expr) -> bool:
    return isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__"
