"""Whether an expression still holds one row for each sample of the rank."""

from __future__ import annotations

import ast

from autodist.escapes.origins import in_forward
from autodist.interpreter import Interpreter
from autodist.source import Source, all_of, last_name, walk
from autodist.spread import COUNT, ROWS, SAME
from autodist.tensors import operations
from autodist.values import NOTHING, Draw, External, Function, Items, Object, Table, Wrapped

ROWWISE = (operations.KEEPING | operations.ELEMENTWISE) - {"where"} | frozenset(
    "softmax log_softmax sigmoid tanh relu exp log argmax round add_ clamp view_as".split()
)
PICKING = frozenset("max min sort topk kthvalue median mode".split())
"""What gives values and their places: `scores.max(dim=1)[1]`."""
SAME_ROWS = frozenset("torch.autograd.Variable torch.as_tensor torch.tensor numpy.asarray numpy.array".split())
STACKING = frozenset("torch.stack numpy.stack numpy.array torch.tensor".split())
SIDE_BY_SIDE = frozenset("torch.cat torch.concat torch.stack".split())
FILLING = frozenset("normal_ uniform_ fill_ zero_ bernoulli_ random_".split())
SIZED = frozenset("zeros ones empty rand randn FloatTensor Tensor".split())


def _keeps_rows(name: str, given: dict[str, ast.expr]) -> bool:
    """Whether a function of a library gives a row for each that it is given: `torch.clamp`, `F.softmax`, or a loss of
    each sample, `F.kl_div(input, target, reduction="none")`."""
    library, _, short = name.rpartition(".")
    if (
        name in SAME_ROWS
        or library in ("torch", "torch.nn.functional")
        and (short in ROWWISE or short.endswith("_like"))
    ):
        return True
    reduction = given.get("reduction")
    return library == "torch.nn.functional" and isinstance(reduction, ast.Constant) and reduction.value == "none"


def sized_like(node: ast.expr) -> ast.expr | None:
    """The tensor of `x.size()` and `x.shape`."""
    asked = isinstance(node, ast.Call) and not node.args
    named = node.func if isinstance(node, ast.Call) else node
    is_shape = isinstance(named, ast.Attribute) and named.attr == ("size" if asked else "shape")
    return named.value if isinstance(named, ast.Attribute) and is_shape else None


def laid_in_line(node: ast.expr) -> ast.expr | None:
    """The tensor of `x.flatten()`, `x.view(-1)` and the like, which lay all numbers of all rows one after the other."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.keywords:
        return None
    given = [ast.unparse(each) for each in node.args]
    name = node.func.attr
    flat = name in ("flatten", "ravel") and not given or name in ("view", "reshape") and given == ["-1"]
    return node.func.value if flat else None


def _joins_parts(call: ast.Call, run: Interpreter) -> bool:
    """Whether the first size of a new shape is the number of samples times another, `x.reshape(n * length, -1)`: joined
    row by row, the parts of a sample would lie among those of others."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in ("view", "reshape") or not call.args:
        return False
    size = call.args[0]
    return (
        isinstance(size, ast.BinOp) and isinstance(size.op, ast.Mult) and run.values.get(size, NOTHING).spread is COUNT
    )


def _is_number(key: ast.expr) -> bool:
    """`batch[0]`, `batch["labels"]`, `batch[-1]`"""
    inner = key.operand if isinstance(key, ast.UnaryOp) and isinstance(key.op, ast.USub) else key
    return isinstance(inner, ast.Constant)


def holds_rows(node: ast.expr, run: Interpreter, seen: set[ast.AST]) -> bool:
    """Whether an expression still holds one row for each sample of the rank, so that the ranks' rows can be joined."""
    if node in seen:
        return True
    seen.add(node)
    if isinstance(node, ast.Name) and _is_one_row(node, run):
        return False
    if isinstance(node, (ast.Name, ast.Attribute)):
        sites = (made for _, made in run.values.get(node, NOTHING).made if not _is_layer(made, run))
        return all(holds_rows(made, run, seen) for made in sites)
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and isinstance(node.value, ast.Call):
        call = node.value
        name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        over = [*call.args[:1], *([call.func.value] if isinstance(call.func, ast.Attribute) else [])]
        rows = [each for each in over if run.values.get(each, NOTHING).spread is ROWS]
        return name in PICKING and bool(rows) and holds_rows(rows[0], run, seen)
    if isinstance(node, ast.Subscript) and _is_number(node.slice) and isinstance(node.value, ast.Name):
        field = run.values.get(node.value, NOTHING)  # of what the loader yields, unless the script has put it there
        if field.things and all(isinstance(t, Items) and t.parts for t in field.things):  # of several outputs
            parts = run.values.get(node, NOTHING).made
            return bool(parts) and all(in_forward(where, made) or holds_rows(made, run, seen) for where, made in parts)
        return not field.made and not any(isinstance(t, Table) and t.stores for t in field.things)
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple):
        return _is_all(node.slice.elts[0]) and holds_rows(node.value, run, seen)  # `out[:, 0]`
    if isinstance(node, ast.UnaryOp):
        return holds_rows(node.operand, run, seen)
    if isinstance(node, (ast.GeneratorExp, ast.ListComp)) and _goes_over_drawn(node, run):
        return True
    if isinstance(node, (ast.GeneratorExp, ast.ListComp)):  # `images, labels = (part.to(device) for part in batch)`
        return holds_rows(node.elt, run, seen)
    if isinstance(node, (ast.BinOp, ast.Compare)):
        over = [node.left, node.right] if isinstance(node, ast.BinOp) else [node.left, *node.comparators]
        sides = [side for side in over if run.values.get(side, NOTHING).spread is ROWS]
        return all(holds_rows(side, run, seen) for side in sides)
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in FILLING:
            return holds_rows(node.func.value, run, seen)
        if isinstance(node.func, ast.Attribute) and run.values.get(node.func.value, NOTHING).spread is ROWS:
            keeps_rows = node.func.attr in ("view", "reshape") and bool(node.args)
            keeps_rows = keeps_rows and run.values.get(node.args[0], NOTHING).spread is COUNT
            keeps_rows = keeps_rows and not _joins_parts(node, run)
            keeps_rows = keeps_rows or operations.reduces_axis(node.func.attr) and bool(operations.axis(node, 0))
            keeps_rows = keeps_rows or _turns_others(node) or _puts_within_rows(node)
            return (node.func.attr in ROWWISE or keeps_rows) and holds_rows(node.func.value, run, seen)
        called = run.values.get(node.func, NOTHING).things
        functions = [thing.node for thing in called if isinstance(thing, Function)]
        if functions and len(functions) == len(called):
            answers = [n.value for f in functions for n in walk(f) if isinstance(n, ast.Return) and n.value is not None]
            return bool(answers) and all(holds_rows(answer, run, seen) for answer in answers)
        names = [t.name for t in called if isinstance(t, External)]
        given = {"input": node.args[0]} if node.args else {}
        given |= {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
        like = sized_like(node.args[0]) if node.args else None
        if like is not None and any(name.rpartition(".")[2] in SIZED for name in names):
            return holds_rows(like, run, seen)
        if any(name.rpartition(".")[2] in SIZED for name in names):
            return bool(node.args) and _is_number_of_rows(node.args[0], run)
        if any(name in STACKING for name in names) and operations.axis(node, 1) in (None, 0):
            return bool(node.args) and isinstance(node.args[0], ast.ListComp) and holds_rows(node.args[0], run, seen)
        if any(name in SIDE_BY_SIDE for name in names) and _joins_another_axis(node, run):
            beside = node.args[0].elts if isinstance(node.args[0], (ast.Tuple, ast.List)) else []
            whole = bool(beside) and all(run.values.get(each, NOTHING).spread is ROWS for each in beside)
            return whole and all(holds_rows(each, run, seen) for each in beside)
        if "input" in given and any(_keeps_rows(name, given) for name in names):
            return holds_rows(given["input"], run, seen)
        return any(isinstance(t, (Object, Wrapped)) for t in called)
    return isinstance(node, (ast.List, ast.Tuple))


def _joins_another_axis(call: ast.Call, run: Interpreter) -> bool:
    """Whether tensors are put side by side along another axis than that of the samples: `torch.cat((low, high), 3)`."""
    at, axes = operations.axis(call, 1), run.values.get(call, NOTHING).axes
    if not call.args or at is None or isinstance(at, bool):
        return False
    return at > 0 or at < 0 and axes is not None and at + axes > 0


def _goes_over_drawn(node: ast.GeneratorExp | ast.ListComp, run: Interpreter) -> bool:
    """`[data[i : i + length] for i in starts]`, of numbers that were drawn, one for each sample."""
    over = [run.values.get(each.iter, NOTHING) for each in node.generators]
    drawn = [any(isinstance(each, Draw) for each in value.origins) for value in over]
    return drawn == [True] and over[0].spread is ROWS and not over[0].things and not node.generators[0].ifs


def _is_all(index: ast.expr) -> bool:
    """`:`"""
    return isinstance(index, ast.Slice) and index.lower is index.upper is index.step is None


def _is_number_of_rows(node: ast.expr, run: Interpreter) -> bool:
    """Whether it is the number of this rank's samples, `n` after `n, c = x.shape`, and not one computed from it."""
    value = run.values.get(node, NOTHING)
    computed = (node, *(made for _, made in value.made))
    return value.spread is COUNT and not any(isinstance(each, (ast.BinOp, ast.UnaryOp)) for each in computed)


def _puts_within_rows(call: ast.Call) -> bool:
    """Whether values are put into other places of their own rows: `hot.scatter_(1, labels, 1)`."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    dim = call.args[0] if call.args else next((each.value for each in call.keywords if each.arg == "dim"), None)
    within = isinstance(dim, ast.Constant) and isinstance(dim.value, int) and dim.value > 0
    return name in ("scatter", "scatter_", "scatter_add", "scatter_add_") and within


def _turns_others(call: ast.Call) -> bool:
    """Whether a tensor's other axes change places, and not that of the rows: `x.permute(0, 2, 1)`."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    places = [each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, int)]
    if len(places) != len(call.args) or not places:
        return False
    return name == "permute" and places[0] == 0 or name in ("transpose", "swapaxes") and min(places) > 0


def _is_one_row(node: ast.Name, run: Interpreter) -> bool:
    """Whether a loop or comprehension binds a name to one row after the other: `for label in set(labels)`."""
    source = run.sources.get(node)
    for ancestor in source.ancestors(node) if source is not None else ():
        if isinstance(ancestor, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return False
        heads = ancestor.generators if isinstance(ancestor, COMPREHENSIONS) else [ancestor]
        if source is not None and _is_unpacked(ancestor, source):
            continue  # into the fields of a batch
        for head in heads:
            if not isinstance(head, (ast.For, ast.comprehension)) or not isinstance(
                head.iter, (ast.Name, ast.Attribute)
            ):
                continue
            over = run.values.get(head.iter, NOTHING)
            if over.spread is ROWS and not over.things and _binds(head.target, node.id):
                return True
    return False


def _is_layer(node: ast.expr, run: Interpreter) -> bool:
    """Whether a call makes a layer, and no rows that go through it."""
    value = run.values.get(node, NOTHING)
    return value.spread is SAME and any(True for _ in value.objects("module"))


def _is_unpacked(node: ast.AST, source: Source) -> bool:
    """`images, labels = (part.to(device) for part in batch)`"""
    parent = source.parents.get(node)
    return isinstance(parent, ast.Assign) and all(isinstance(each, (ast.Tuple, ast.List)) for each in parent.targets)


def rows_beside(node: ast.expr, source: Source, run: Interpreter) -> list[ast.expr]:
    """The rows that a loop or comprehension goes over side by side, where it binds a name to one of them after the
    other: `losses` and `labels` of `for loss, label in zip(losses, labels)`."""
    if not isinstance(node, ast.Name):
        return []
    around = list(source.ancestors(node))
    comprehensions = [head for each in around if isinstance(each, COMPREHENSIONS) for head in each.generators]
    loops = [each for each in around if isinstance(each, ast.For) and source.home(each) is source.home(node)]
    around_it: list[ast.comprehension | ast.For] = [*comprehensions, *loops]
    heads = [head for head in around_it if _binds(head.target, node.id)]
    over = heads[0].iter if heads else None
    if not isinstance(over, ast.Call) or last_name(over.func) not in ("zip", "enumerate"):
        return []
    given = {each: run.values.get(each, NOTHING) for each in over.args}
    return [each for each, value in given.items() if value.spread is ROWS and not value.things]


def gone_over(node: ast.expr, source: Source, run: Interpreter) -> ast.expr | None:
    """What the loop around an expression goes over, sample by sample: `zip(guesses, labels)`. Nothing where its body
    reads other samples as well, by their numbers, so that it could not go over those of all ranks."""
    loop = loop_around(node, source)
    if loop is None or reads_others(node, source, run):
        return None
    over = _zipped(loop.iter)
    values = [run.values.get(each, NOTHING) for each in over]
    rows = bool(over) and all(value.spread is ROWS and not value.things for value in values)
    return loop.iter if rows else None


def reads_others(node: ast.expr, source: Source, run: Interpreter) -> bool:
    """Whether the body of the loop around an expression reads samples that the loop does not go over: `acc[j]` of
    `for j, number in enumerate(numbers)`."""
    loop = loop_around(node, source)
    if loop is None:
        return False
    inside = [each for part in loop.body for each in all_of(part, ast.Name)]
    bound = {each.id for each in inside if isinstance(each.ctx, ast.Store)}
    bound |= {each.id for each in all_of(loop.target, ast.Name)}
    others = [(each, run.values.get(each, NOTHING)) for each in inside if each.id not in bound]
    return any(
        other.spread is ROWS if not other.things else _takes_one(each, source) and run.holds_local(other)
        for each, other in others
    )


def _takes_one(name: ast.Name, source: Source) -> bool:
    """Whether a list is read by a number, `rows[j]`, and none in it grows, `found[label].append(row)`."""
    above = source.parents.get(name)
    if not isinstance(above, ast.Subscript) or above.value is not name or not isinstance(above.ctx, ast.Load):
        return False
    return not isinstance(source.parents[above], ast.Attribute)


def gone_over_within(node: ast.expr, run: Interpreter) -> list[ast.expr]:
    """What a comprehension goes over, sample by sample: `scores` of `any(score > 2 for score in scores)`. Nothing where
    it reads other samples as well."""
    if not isinstance(node, (ast.GeneratorExp, ast.ListComp, ast.SetComp)):
        return []
    over = [part for each in node.generators for part in _zipped(each.iter)]
    values = [run.values.get(each, NOTHING) for each in over]
    if not all(value.spread is ROWS and not value.things for value in values):
        return []
    bound = {n.id for each in node.generators for n in all_of(each.target, ast.Name)}
    parts = (node.elt, *(test for each in node.generators for test in each.ifs))
    inside = (n for part in parts for n in walk(part) if isinstance(n, ast.Name) and n.id not in bound)
    return over if not any(run.values.get(each, NOTHING).spread.is_local for each in inside) else []


def _zipped(over: ast.expr) -> list[ast.expr]:
    """`guesses` and `labels` of `zip(guesses, labels)`, also numbered by `enumerate`."""
    if isinstance(over, ast.Call) and last_name(over.func) == "enumerate" and len(over.args) == 1:
        return _zipped(over.args[0])
    return over.args if isinstance(over, ast.Call) and last_name(over.func) == "zip" else [over]


def loop_around(node: ast.expr, source: Source) -> ast.For | None:
    """The innermost loop that an expression stands in, in its function."""
    home = source.home(node)
    loops = (each for each in source.ancestors(node) if isinstance(each, ast.For) and source.home(each) is home)
    return next(loops, None)


def _binds(target: ast.expr, name: str) -> bool:
    return any(isinstance(each, ast.Name) and each.id == name for each in walk(target))


COMPREHENSIONS = (ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)
