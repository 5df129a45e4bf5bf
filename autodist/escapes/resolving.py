"""From an exposed expression to the smallest ones whose global value follows from the ranks' values."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from autodist.collation import Rows
from autodist.escapes.exposure import is_unseen
from autodist.escapes.origins import (
    fed_to_losses,
    in_forward,
    is_cut,
    is_free,
    learnt_from,
    loop_over,
    mixed_names,
    operands_of,
    origins_of,
    place_of,
    roots,
    sorted_sites,
    trains,
)
from autodist.escapes.rows import (
    gone_over,
    gone_over_within,
    holds_rows,
    laid_in_line,
    loop_around,
    reads_others,
    rows_beside,
    sized_like,
)
from autodist.interpreter import Event, Interpreter
from autodist.source import Source, counted_of, first_index, last_name
from autodist.spread import COUNT, LOCAL, MEAN, ROWS, SAME, SUM, Spread
from autodist.tensors import mixing, operations
from autodist.tensors.calls import number_of
from autodist.tensors.picking import picks, takes_first
from autodist.values import (
    NOTHING,
    UNKNOWN,
    External,
    Function,
    Items,
    Object,
    Stream,
    Table,
    Thing,
    Value,
    is_chosen,
    is_scope,
)


@dataclass(frozen=True)
class Escape:
    """An expression to make global, or (``spread`` is not reducible) one that cannot be."""

    source: Source
    node: ast.expr
    spread: Spread
    event: Event


def resolve(node: ast.expr, source: Source, event: Event, run: Interpreter, seen: set[ast.AST]) -> Iterator[Escape]:
    if node in seen or node in run.plan.reduced or node in run.plan.divided:
        return
    seen.add(node)
    value = run.values.get(node, NOTHING)
    if _is_for_rank_zero(event, run) and _is_of_first_sample(node, source, run, 20):
        return
    if event.kind == "set_item" and isinstance(event.node, ast.expr) and _was_before(node, event.node, run):
        return  # global, once what is added to it is
    if (variables := _variables_read(node, run)) is not None:
        for variable in variables:
            sites = [(where, made) for where, made in sorted_sites(variable) if made not in learnt_from(run)]
            for where, made in sites:
                yield from resolve(made, where, event, run, seen)
            if not sites:
                yield Escape(source, node, LOCAL, event)
        return
    if isinstance(node, (ast.Starred, ast.FormattedValue)):
        yield from resolve(node.value, source, event, run, seen)
        return
    if isinstance(node, ast.JoinedStr):
        for part in node.values:
            yield from resolve(part, source, event, run, seen)
        return
    if isinstance(node, (ast.Tuple, ast.List, ast.Set, ast.Dict)):
        for part in node.values if isinstance(node, ast.Dict) else node.elts:
            yield from resolve(part, source, event, run, seen)
        yield from _contained(value, source, event, run, seen)  # what has been put into it since
        return
    if event.kind == "test" and (over := gone_over_within(node, run)):  # `if any(score > 2 for score in scores)`
        for each in over:
            yield from resolve(each, source, event, run, seen)
        return
    if isinstance(node, ast.IfExp) and value.spread.is_local:
        yield from resolve(node.body, source, event, run, seen)
        yield from resolve(node.orelse, source, event, run, seen)
        return
    if value.spread in (SUM, COUNT, LOCAL) and event.kind != "test":
        put_in = [e for name in mixed_names(node, source, run) for e in _put_in(name, source, event, run, seen)]
        if put_in:
            yield from put_in
            return
    beside = rows_beside(node, source, run) if value.spread is ROWS and event.kind != "test" else []
    if value.spread is ROWS and isinstance(node, ast.Name) and isinstance(loop_over(node, source), ast.Call):
        put_in = list(_put_in(node, source, event, run, seen))  # `for a, b in zip(guesses, labels)`, two lists
        if put_in:
            yield from put_in
            return
    if (
        beside
        and loop_around(node, source) not in {*event.source.ancestors(event.node)}
        and reads_others(node, source, run)
    ):
        yield Escape(source, node, LOCAL, event)
        return
    if beside:
        for each in beside:
            yield from resolve(each, source, event, run, seen)
        return
    origins = origins_of(node, value, source, run)
    if origins:
        for where, made in origins:
            yield from resolve(made, where, event, run, seen)
        return
    few = picks(value) is not None  # gathered before they are picked
    if few and value.spread.is_reducible and any(made in learnt_from(run) for _, made in value.made):
        few = False  # a loss, which is warned of
    if value.spread.is_reducible and not few:
        yield from _narrowed(node, source, event, run, seen, value)
        return
    if few and value.spread is MEAN and (means := _means_of_picked(node, value, source, run)):
        yield from (Escape(where, mean, Spread.FEWER, event) for where, mean in means)
        return
    if value.spread is LOCAL and not few and (spread := _extreme(node, event, run)) is not None:
        yield Escape(source, node, spread, event)
        return
    sized = sized_like(_copied(node))
    if looked_at := list(_looked_at(value if sized is None else run.values.get(sized, NOTHING), run)):
        yield from (Escape(where, name, ROWS, event) for where, name in looked_at)
        return
    if sized is not None and event.kind in ("print", "format", "log"):  # `print(x.shape)`
        measured = run.values.get(sized, NOTHING)
        plain = measured.spread is ROWS and not measured.things and sized not in learnt_from(run)
        entry = isinstance(sized, ast.Subscript) and isinstance(sized.slice, ast.Constant)
        if _is_whole_batch(sized, run) or plain and entry:
            yield Escape(source, sized, ROWS, event)
            return
        if plain:
            yield from resolve(sized, source, event, run, seen)
            return
    flattened = laid_in_line(node)
    if flattened is not None and value.spread is ROWS and not few and holds_rows(flattened, run, set()):
        yield from resolve(flattened, source, event, run, seen)  # the ranks' rows take turns, not their numbers
        return
    if value.spread is ROWS and not few and not _is_several(value) and holds_rows(node, run, set()):
        place, tensor = _tensor_behind(node, source, run) or (source, node)
        if tensor in learnt_from(run) and not (tensor is node and is_cut(node, source)):
            yield Escape(source, node, LOCAL, event)  # gathered, every rank would train on all samples
        elif run.uneven(run.values.get(tensor, NOTHING)) in (Rows.PADDED, Rows.JOINED):
            yield Escape(source, node, LOCAL, event)  # longer ones, or more, on one rank than on another
        elif tensor not in run.plan.reduced:
            yield Escape(place, tensor, ROWS, event)
        return
    if value.spread.is_local:
        own = _asked(node, value, run)  # its method knows more of what it holds
        within = isinstance(node, ast.Call) and trains(node, run)  # which learns from what it is given
        parts = [] if within else [part for part in operands_of(node) if part is not own]
        inner = [e for part in parts for e in resolve(part, source, event, run, seen)]
        if not inner:
            joined = any(_joins(made, run) for _, made in value.made)
            inner = [
                e
                for where, made in sorted_sites(value)
                if made is not node
                and not in_forward(where, made)
                and (_may_be_reduced(made, value, event, run) or joined and made not in fed_to_losses(run))
                for e in resolve(made, where, event, run, seen)
            ]
        if not inner and own is not None:
            inner = list(resolve(own, source, event, run, seen))
        if not inner and value.spread is LOCAL and event.kind != "test":
            inner = list(_reported_alone(value, event, run, seen))
        rows = [e for e in inner if e.spread is ROWS]
        if rows and (
            any(e.spread is LOCAL for e in inner) or any(_is_wanted(e, source.statement(node), run) for e in rows)
        ):
            yield Escape(source, node, LOCAL, event)  # rows of all ranks do not go with those of one
        elif inner:
            yield from inner
        elif isinstance(node, ast.Name) and value.made and all(made in seen for _, made in value.made):
            return  # made of itself, and of what has been looked at
        elif not isinstance(node, ast.Call) or event.kind != "test":
            whole = value.spread is ROWS and not holds_rows(node, run, set())  # a batch of several fields, one picture
            yield Escape(source, node, Spread.LOCAL if whole or few else value.spread, event)
    streams = [t.element for t in value.things if isinstance(t, Stream)]
    if isinstance(node, ast.Call) and any(each.spread.is_local or run.holds_local(each) for each in streams):
        for part in operands_of(node):  # `map(str, losses)`, `zip(guesses, labels)`
            yield from resolve(part, source, event, run, seen)
    viewed = _viewed(node, run) if event.kind != "test" else None
    if viewed is not None:
        yield from resolve(viewed, source, event, run, seen)
        return
    keyed = [t.keyed for t in value.things if isinstance(t, Table) and t.keyed is not None]
    if keyed and event.kind != "test":
        sites = [site for found in keyed for site in found]
        apart = [isinstance(w.parents.get(each), ast.For) and reads_others(each, w, run) for w, each in sites]
        if any(apart):
            yield Escape(source, node, LOCAL, event)
        elif not sites or not all(each in seen for _, each in sites):
            gone_over = [escape for where, each in sites for escape in resolve(each, where, event, run, seen)]
            yield from gone_over or [Escape(source, node, LOCAL, event)]
        return
    together = _together(value, run) if event.kind != "test" else SAME
    if together.is_local and isinstance(node, (ast.Name, ast.Attribute, ast.Subscript, ast.Call)):
        yield from _counted(node, together, source, event, run, seen)
        return
    if (learnt := _learnt_together(value, run)) is not None and event.kind != "test":
        yield Escape(source, node, learnt, event)
        return
    held = list(_contained(value, source, event, run, seen))
    yield from held
    lists = [t for t in value.things if isinstance(t, Items)]
    if not held and event.kind != "test" and any(map(is_chosen, (t.element for t in lists))):
        yield Escape(source, node, LOCAL, event)  # the numbers of some samples among this rank's


ON_RANK_ZERO = frozenset("print log tracker write save".split())
"""What rank 0 alone does with a value, or is the only one to show."""


def _is_for_rank_zero(event: Event, run: Interpreter) -> bool:
    kinds = ("tracker", "write", "save") if event.kind == "discarded" else ()
    return event.kind in ON_RANK_ZERO or any(each.node is event.node for kind in kinds for each in run.of(kind))


def _is_of_first_sample(node: ast.expr, source: Source, run: Interpreter, depth: int) -> bool:
    """Whether all that is of a rank's own in something is its first sample, which on rank 0 is that of the whole batch:
    `x[0]`, also once it has been computed with."""
    value = run.values.get(node, NOTHING)
    if not value.spread.is_local or value.things or depth == 0:
        return False
    if isinstance(node, ast.Subscript) and (base := run.values.get(node.value, NOTHING)).spread is ROWS:
        first = first_index(node)
        plain = not base.things and picks(base) is None and run.uneven(base) is None and not _is_several(base)
        rows = holds_rows(node.value, run, set()) or _is_dealt_out(node.value, run, depth)
        return number_of(first) == 0 and plain and rows
    if isinstance(node, ast.Name):
        sites = [(where, made) for where, made in sorted_sites(value) if made is not node]
        return bool(sites) and all(_is_of_first_sample(made, where, run, depth - 1) for where, made in sites)
    parts = [each for each in operands_of(node) if run.values.get(each, NOTHING).spread.is_local]
    return bool(parts) and all(_is_of_first_sample(each, source, run, depth - 1) for each in parts)


def _is_dealt_out(node: ast.expr, run: Interpreter, depth: int) -> bool:
    """Whether the ranks take turns at the rows where it is made: `xs[i : i + 8]` of batches that are cut by hand,
    `xs[picked]` by numbers that are drawn for all."""
    if depth == 0 or run.plan.shares(node):
        return depth > 0
    if isinstance(node, ast.Subscript) and run.values.get(node.value, NOTHING).spread is SAME:
        return _is_dealt_out(node.slice, run, depth - 1)
    sites = [made for _, made in run.values.get(node, NOTHING).made if made is not node]
    return isinstance(node, ast.Name) and bool(sites) and all(_is_dealt_out(made, run, depth - 1) for made in sites)


def _variables_read(node: ast.expr, run: Interpreter) -> list[Value] | None:
    """The variables of a rank's own samples that may be read where one is looked up by its name, as the script may say
    it: `variables.get(column)`, where they were given as `locals()`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
        holder, key = node.func.value, node.args[0]
    elif isinstance(node, ast.Subscript):
        holder, key = node.value, node.slice
    else:
        return None
    tables = [t for t in run.values.get(holder, NOTHING).things if isinstance(t, Table) and is_scope(t)]
    if not tables or run.values.get(key, NOTHING).const is not UNKNOWN:
        return None
    said = {n.value for each in run.project.sources for n in ast.walk(each.tree) if isinstance(n, ast.Constant)}
    found = [value for each in tables for name, value in each.entries.items() if name in said]
    return [each for each in found if each.spread.is_local]


def _is_whole_batch(node: ast.expr, run: Interpreter) -> bool:
    """Whether it is a tensor with a row for each of a rank's samples, from which no loss is computed here."""
    value = run.values.get(node, NOTHING)
    plain = value.spread is ROWS and not value.things and picks(value) is None and run.uneven(value) is None
    return plain and node not in run.plan.reduced and holds_rows(node, run, set()) and node not in learnt_from(run)


def _copied(node: ast.expr) -> ast.expr:
    """`x.shape` of `list(x.shape)`"""
    copies = isinstance(node, ast.Call) and last_name(node.func) in ("list", "tuple", "str") and len(node.args) == 1
    return node.args[0] if isinstance(node, ast.Call) and copies else node


def _is_several(value: Value) -> bool:
    """Whether it is a tuple of several outputs, each of which has rows of its own."""
    return any(isinstance(thing, Items) and len(thing.parts) > 1 for thing in value.things)


def _looked_at(value: Value, run: Interpreter) -> Iterator[tuple[Source, ast.Name]]:
    """The names that the fields of a batch are bound to which no step trains on: `images, labels = next(batches)`. They
    are gathered there, all together, so that what is shown of them goes together."""
    for source, made in sorted_sites(value):
        drawn = isinstance(made, ast.Call) and last_name(made.func) == "next" and made not in learnt_from(run)
        loaders = [o for o in run.values.get(made, NOTHING).origins if isinstance(o, Object) and "loader" in o.roles]
        if not drawn or not all(run.shares_out(loader) for loader in loaders):
            continue
        bindings = (each for each in ast.walk(source.home(made)) if isinstance(each, ast.Assign))
        for each in bindings:
            if each.value is made or (source, made) in run.values.get(each.value, NOTHING).made:
                names = (n for t in each.targets if isinstance(t, (ast.Tuple, ast.List)) for n in ast.walk(t))
                yield from ((source, n) for n in names if isinstance(n, ast.Name) and n.id != "_")


def _may_be_reduced(made: ast.expr, value: Value, event: Event, run: Interpreter) -> bool:
    """Whether what made a reported value may be reduced, for the report alone or where no gradient flows through it."""
    if event.kind == "statistic" and not run.values.get(made, NOTHING).models or is_free(made, run):
        return True
    mean = picks(value) is not None and value.spread is MEAN
    return made not in fed_to_losses(run) and (mean or _extreme(made, event, run) is not None)


def _joins(made: ast.expr, run: Interpreter) -> bool:
    """Whether rows have been put one after the other: `scores = torch.cat((scores, out))`, `np.append(guesses, guess)`.
    Those of all ranks are if each part is."""
    if not isinstance(made, ast.Call) or run.values.get(made, NOTHING).spread is not ROWS or made in fed_to_losses(run):
        return False
    axis = operations.axis(made, 2 if last_name(made.func) == "append" else 1)
    names = {t.name for t in run.values.get(made.func, NOTHING).things if isinstance(t, External)}
    return bool(names) and all(name in JOINING for name in names) and (axis is None or axis is not False and axis == 0)


JOINING = frozenset(
    "torch.cat torch.concat torch.concatenate torch.vstack numpy.append numpy.concatenate numpy.vstack".split()
)


def _reported_alone(value: Value, event: Event, run: Interpreter, seen: set[ast.AST]) -> Iterator[Escape]:
    """The sums and means that a number is made of which a model gave, or what it gave, and no loss is computed from:
    how many codes are in use, `torch.exp(-(used * used.log()).sum())`. In a forward pass, whose samples may also be
    ones that all ranks have, only means."""
    alone = any(each.on_one_rank for each in run.of("forward")) or any(run.of("export"))  # for its graph, on rank 0
    for where, made in sorted_sites(value):
        inside = in_forward(where, made)
        if made in fed_to_losses(run) or inside and alone:
            continue
        inner = list(resolve(made, where, event, run, set(seen)))
        if all(
            (each.spread is MEAN or not inside and each.spread is SUM)
            and not mixing.mixings(run.values.get(each.node, NOTHING))
            and (not inside or each.source is where and where.function(each.node) is where.function(made))
            for each in inner
        ):
            yield from (_of_name(each, run) for each in inner)


def _of_name(escape: Escape, run: Interpreter) -> Escape:
    """The mean itself of `used + 1e-10`, so that it is made global once for all that is computed from it."""
    node = escape.node
    sides = [node.left, node.right] if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)) else []
    local = [each for each in sides if run.values.get(each, NOTHING).spread.is_local]
    alone = escape.spread is MEAN and len(local) == 1 and run.values[local[0]].spread is MEAN
    return Escape(escape.source, local[0], MEAN, escape.event) if alone else escape


def _means_of_picked(node: ast.expr, value: Value, source: Source, run: Interpreter) -> list[tuple[Source, ast.expr]]:
    """The mean itself of numbers that a condition picks, also where a function of the script returns it, as a masked
    accuracy; nothing of what is computed from such a mean."""
    if _is_mean_of_picked(node, value, run):
        return [(source, node)]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("item", "tolist"):
        node = node.func.value
    called = run.values.get(node.func, NOTHING).things if isinstance(node, ast.Call) else ()
    returned = [
        n.value for t in called if isinstance(t, Function) for n in ast.walk(t.node) if isinstance(n, ast.Return)
    ]
    answers = [(each, run.values.get(each, NOTHING)) for each in returned if each is not None]
    sites = [
        site
        for each, held in answers
        for site in ([(run.sources[each], each)] if not held.made else sorted_sites(held))
    ]
    means = [_is_mean_of_picked(made, run.values.get(made, NOTHING), run) for _, made in sites]
    return sites if sites and len(answers) == len(returned) and all(means) else []


def _is_mean_of_picked(node: ast.expr, value: Value, run: Interpreter) -> bool:
    """Whether a mean is over the numbers that a condition picks, and no loss: `errors[mask].mean()`."""
    over = operations.averaged(node)
    picked = run.values.get(over, NOTHING) if over is not None else NOTHING
    if over is None or picked.spread not in (ROWS, Spread.COLUMNS) or picked.things:
        return False
    condition = picks(value)
    if condition is None or takes_first(value) or node in fed_to_losses(run):
        return False
    here = [each for each in mixing.mixings(picked) if not _is_of_model(each.source, each.node, run)]
    if here or mixing.mixings(run.values.get(condition.node, NOTHING)):
        return False
    return not any(is_unseen(each, run) for each in {*ast.walk(over), *roots(over, run, set())})


def _is_of_model(source: Source, node: ast.AST, run: Interpreter, depth: int = 8) -> bool:
    """Whether an expression is computed in a forward pass alone, of which training is warned and no report need be."""
    home = source.function(node)
    if home is None or home.name == "forward" or not depth:
        return home is not None and home.name == "forward"
    calls = run.callers.get(home, {})
    return bool(calls) and all(_is_of_model(where, call, run, depth - 1) for call, where in calls.items())


def _extreme(node: ast.expr, event: Event, run: Interpreter) -> Spread | None:
    """Whether it is the largest or the smallest number in a tensor of this rank's samples, through which no gradient
    flows."""
    found = operations.extreme(node)
    value = run.values.get(found[1], NOTHING) if found is not None else NOTHING
    held = value.things and not (event.kind == "statistic" and all(map(_are_lengths, value.things)))
    if found is None or value.spread not in (ROWS, Spread.COLUMNS) or held or mixing.mixings(value):
        return None
    if event.kind == "statistic" and not value.models:
        return found[0]
    return found[0] if node not in fed_to_losses(run) and holds_rows(found[1], run, set()) else None


def _are_lengths(thing: Thing) -> bool:
    """`[len(boxes) for boxes in targets]`, a number for each sample"""
    made = thing.node if isinstance(thing, Items) else None
    return isinstance(made, (ast.ListComp, ast.GeneratorExp)) and counted_of(made.elt) is not None


def _asked(node: ast.expr, value: Value, run: Interpreter) -> ast.expr | None:
    """The object of the script that a method is called of, where it is known what that computes: `meter.average()`."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not value.made:
        return None
    owners = run.values.get(node.func.value, NOTHING).things
    entered = any(isinstance(t, Object) and t.cls is not None and t.cls.find(node.func.attr) for t in owners)
    return node.func.value if entered else None


VIEWS = frozenset("items values keys most_common elements copy".split())
COPIES = frozenset("sorted list tuple dict reversed enumerate set OrderedDict".split())


def _viewed(node: ast.expr, run: Interpreter) -> ast.expr | None:
    """The dict that a call shows or copies: `counts` of `counts.items()`, `sorted(counts.items())`."""
    if not isinstance(node, ast.Call):
        return None
    inner = node.func.value if isinstance(node.func, ast.Attribute) and node.func.attr in VIEWS else None
    if last_name(node.func) in COPIES and len(node.args) == 1:
        inner = _viewed(node.args[0], run) or node.args[0]
    tables = [t for t in run.values.get(inner, NOTHING).things if isinstance(t, Table)] if inner is not None else []
    return inner if any(table.stores or table.changes or table.keyed is not None for table in tables) else None


def _together(value: Value, run: Interpreter) -> Spread:
    """What the items of a container have in common that are counted up, `sums[k] += loss`: their spread, LOCAL if it
    depends on the item, SAME if it has none such."""
    counted = [t for t in value.things if isinstance(t, (Items, Table)) and t.changes]
    held = [each for thing in counted for each in _items(thing)]
    spreads = {each.spread for each in held}
    if not any(spread.is_local for spread in spreads):
        return SAME
    if any(each.const is not UNKNOWN or each.things for each in held):
        return LOCAL  # a text, or a number that is no sum
    return MEAN if spreads <= {MEAN, SAME} else SUM if spreads <= {SUM, COUNT} else LOCAL


def _learnt_together(value: Value, run: Interpreter) -> Spread | None:
    """What the losses in a dict have in common that a step learns from, so that they are no report where they are put
    into it: `losses` of `sum(losses.values()).backward()` and `meters.update(**losses)`."""
    tables = [thing for thing in value.things if isinstance(thing, Table)]
    stored = [expression for each in tables for _, expression in each.stores]
    fed = fed_to_losses(run)
    if not tables or len(tables) < len(value.things) or not any(run.values[e].models and e in fed for e in stored):
        return None
    spreads = {each.spread for table in tables for each in _items(table)}
    return MEAN if spreads <= {MEAN, SAME} else SUM if spreads <= {SUM} else LOCAL


def _items(thing: Items | Table) -> list[Value]:
    """What the items of a container are, without the zeros that sums start from."""
    known = thing.parts if isinstance(thing, Items) else list(thing.entries.values())
    return [each for each in (*known, thing.element) if each is not NOTHING and each.const != 0]


def _counted(
    node: ast.expr, spread: Spread, source: Source, event: Event, run: Interpreter, seen: set[ast.AST]
) -> Iterator[Escape]:
    """A container whose items are counted up: itself, if they can be made global alike, or else what goes into it."""
    if spread.is_reducible:
        yield Escape(source, node, spread, event)
        return
    things = [t for t in run.values.get(node, NOTHING).things if isinstance(t, (Items, Table))]
    given = [site for thing in things for site in (*thing.stores, *thing.changes)]
    inner = [escape for where, each in given for escape in resolve(each, where, event, run, seen)]
    yield from inner or [Escape(source, node, LOCAL, event)]


def _is_wanted(rows: Escape, user: ast.stmt, run: Interpreter) -> bool:
    """Whether a rank goes on computing with its own rows after they were bound to a name, where they would be
    gathered for another statement: `target = Variable(target)`."""
    source = rows.source
    statement = source.statement(rows.node)
    if not isinstance(statement, ast.Assign) or statement is user or _is_bound(rows.node):
        return False
    names = {n.id for target in statement.targets for n in ast.walk(target) if isinstance(n, ast.Name)}
    home = source.home(statement)
    loads = [n for n in ast.walk(home) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and n.id in names]
    made = {n: [each for _, each in run.values.get(n, NOTHING).made] for n in loads}
    if any(_joins(each, run) for found in made.values() for each in found):
        return False  # what has been put together is that of all ranks from there on, wherever it is used
    whole = [n for n in loads if n in run.values and run.spreads.get(n) == {SAME}]  # another loop's, over all samples
    uses = [n for n in loads if n not in whole and (not made[n] or statement.value in made[n])]
    others = [n for n in uses if source.statement(n) is not statement]
    return len(others) > 1 and not all(_is_put_away(n, source, run) for n in others)


def _is_put_away(node: ast.expr, source: Source, run: Interpreter) -> bool:
    """Whether rows are put into a list that no step trains on, as they are: `truth.append(labels.reshape(-1))`."""
    statement = source.statement(node)
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or last_name(call.func) not in ("append", "extend") or len(call.args) != 1:
        return False
    local = [
        n for n in ast.walk(call.args[0]) if isinstance(n, ast.Name) and run.values.get(n, NOTHING).spread.is_local
    ]
    return local == [node] and learnt_from(run).isdisjoint(ast.walk(call.args[0]))


def _is_bound(node: ast.expr) -> bool:
    """Whether it is a name where that is bound, from where on it holds the rows of all ranks."""
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def _was_before(node: ast.expr, target: ast.expr, run: Interpreter) -> bool:
    """Whether all that is local in an expression is what its target was before: `0.9 * centres[c]`."""
    if type(node) is type(target) and ast.unparse(node) == ast.unparse(target):
        return True
    local = [part for part in operands_of(node) if run.values.get(part, NOTHING).spread.is_local]
    return bool(local) and all(_was_before(part, target, run) for part in local)


def _tensor_behind(node: ast.expr, source: Source, run: Interpreter) -> tuple[Source, ast.expr] | None:
    """The tensor that an array or a list was made of: `scores` of `guess`, after `guess = scores.cpu().numpy()`."""
    value = run.values.get(node, NOTHING)
    if isinstance(node, ast.Name) and len(value.made) == 1:
        ((source, node),) = value.made
        if not is_free(node, run):
            return None
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    if node.func.attr not in ("numpy", "tolist"):
        return None
    inner: ast.expr = node.func.value
    while isinstance(inner, (ast.Call, ast.Attribute)):
        if isinstance(inner, ast.Attribute) and inner.attr == "data":
            inner = inner.value
        elif isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and not inner.args:
            if inner.func.attr not in ("cpu", "detach", "numpy"):
                break
            inner = inner.func.value
        else:
            break
    return (source, inner) if run.values.get(inner, NOTHING).spread is ROWS else None


def _put_in(name: ast.Name, source: Source, event: Event, run: Interpreter, seen: set[ast.AST]) -> Iterator[Escape]:
    """What was put into the container that a loop goes over: `train_loss` of `for v in (train_loss, test_loss)`."""
    over = loop_over(name, source)
    for each in ast.walk(over) if over is not None else ():
        things = run.values[each].things if isinstance(each, ast.expr) and each in run.values else frozenset()
        for thing in sorted((t for t in things if isinstance(t, (Items, Table))), key=place_of):
            for where, stored in list(thing.stores):
                yield from resolve(stored, where, event, run, seen)


def _narrowed(
    node: ast.expr, source: Source, event: Event, run: Interpreter, seen: set[ast.AST], value: Value
) -> Iterator[Escape]:
    """In ``100 * correct / n`` only ``correct`` has to be reduced."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.Mult)) and value.spread is SUM:
        for part, other in ((node.left, node.right), (node.right, node.left)):
            if (
                run.values.get(part, NOTHING).spread is value.spread
                and not run.values.get(other, NOTHING).spread.is_local
            ):
                yield from _narrowed(part, source, event, run, seen, run.values[part])
                return
    yield Escape(source, node, value.spread, event)


def _is_of_some(thing: Items | Table) -> bool:
    """Whether a list grows with some of a rank's samples, of which others have other numbers."""
    return isinstance(thing, Items) and (is_chosen(thing.element) or picks(thing.element) is not None)


def _contained(
    value: Value, source: Source, event: Event, run: Interpreter, seen: set[ast.AST], depth: int = 3
) -> Iterator[Escape]:
    """What containers and meters carry out."""
    if event.kind == "test" or depth == 0:
        return
    for thing in sorted((t for t in value.things if isinstance(t, (Items, Table, Object))), key=place_of):
        if isinstance(thing, (Items, Table)):
            for where, stored in list(thing.stores):
                if in_forward(where, stored):
                    continue
                if run.values.get(stored, NOTHING).models and stored in learnt_from(run) and not is_cut(stored, where):
                    yield Escape(where, stored, LOCAL, event)  # made global there, nothing would be learnt from it
                    continue
                if (over := gone_over(stored, where, run)) is not None and _is_of_some(thing):
                    yield from resolve(over, where, event, run, seen)
                    continue
                yield from resolve(stored, where, event, run, seen)
            if not thing.stores:
                inside = (
                    [*thing.parts, thing.element]
                    if isinstance(thing, Items)
                    else [*thing.entries.values(), thing.element]
                )
                for each in inside:
                    yield from _contained(each, source, event, run, seen, depth - 1)
        elif thing.cls is None and not thing.roles:  # of a library, and made of what it is given
            for given in (*thing.node.args, *(keyword.value for keyword in thing.node.keywords)):
                yield from resolve(given, thing.source, event, run, seen)
        elif thing.cls is not None and not thing.roles & {"module", "optimizer", "loader", "dataset"}:
            if event.kind in ("print", "format", "log") and run.holds_local(Value(frozenset([thing]))):
                for where, given in list(thing.inflows):
                    if in_forward(where, given):
                        continue
                    yield from resolve(given, where, event, run, seen)
