from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence

from autodist.edits import Edit, InsertBefore, Recompose, ReplaceExpr, WrapExpr
from autodist.reduction import Joining, Reduction
from autodist.rule import Context, Example, Finding, Fix, raised, rule
from autodist.script import TrainingScript
from autodist.source import Source, all_of, last_name, shortened, spelled, told_once, walk
from autodist.values import External, Function, Items, Table, Thing

from ._collectives import AS_BYTES, OF_MANY, OF_NUMBERS, OF_NUMPY, OF_TENSORS, PADDED, REDUCTIONS, UNEVEN
from ._names import names_at
from ._once import reduced_once
from ._preamble import Planned, defined, dist, imported, member, planned, switch_of, times_ranks

EXAMPLES = [
    Example(
        before="""\
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            total = 0.0
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.item()
            print(f"epoch {epoch}: loss {total / len(loader):.4f}")
        """,
        after='''\
        import torch
        import torch.distributed as dist
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset


        def reduce_mean(value):
            """The mean of a number over all ranks."""
            mean = torch.tensor(value / dist.get_world_size(), dtype=torch.float64)
            dist.all_reduce(mean)
            return mean.item()


        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            total = 0.0
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.item()
            print(f"epoch {epoch}: loss {reduce_mean(total / len(loader)):.4f}")
        ''',
    ),
    Example(
        before="""\
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        train_set = TensorDataset(torch.randn(64, 4), torch.randint(3, (64,)))
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.Linear(4, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            correct = 0
            for x, y in loader:
                scores = model(x)
                loss = nn.functional.cross_entropy(scores, y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                correct += (scores.argmax(1) == y).sum().item()
            print("accuracy", correct / len(train_set))
        """,
        after='''\
        import torch
        import torch.distributed as dist
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset


        def reduce_sum(value):
            """The sum of a number over all ranks."""
            total = torch.tensor(value, dtype=torch.float64)
            dist.all_reduce(total)
            return type(value)(total.item())


        train_set = TensorDataset(torch.randn(64, 4), torch.randint(3, (64,)))
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.Linear(4, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            correct = 0
            for x, y in loader:
                scores = model(x)
                loss = nn.functional.cross_entropy(scores, y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                correct += (scores.argmax(1) == y).sum().item()
            print("accuracy", reduce_sum(correct) / len(train_set))
        ''',
    ),
    Example(
        before="""\
        import matplotlib.pyplot as plt
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        train_loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses = []  # plotted at the end: each one has to be global


        def train(epoch):
            for x, y in train_loader:
                loss = nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            print(epoch, len(losses))


        train(0)
        plt.plot(losses)
        plt.savefig("losses.png")
        """,
        after="""\
        import matplotlib.pyplot as plt
        import torch
        import torch.distributed as dist
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset


        def reduce_mean(value):
            \"\"\"The mean of a number over all ranks.\"\"\"
            mean = torch.tensor(value / dist.get_world_size(), dtype=torch.float64)
            dist.all_reduce(mean)
            return mean.item()


        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        train_loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses = []  # plotted at the end: each one has to be global


        def train(epoch):
            for x, y in train_loader:
                loss = nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(reduce_mean(loss.item()))
            print(epoch, len(losses))


        train(0)
        plt.plot(losses)
        plt.savefig("losses.png")
        """,
    ),
    Example(
        before="""\
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        test_set = TensorDataset(torch.randn(16, 4), torch.randn(16, 1))
        train_loader = DataLoader(train_set, batch_size=8, shuffle=True)
        test_loader = DataLoader(test_set, batch_size=8)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            for x, y in train_loader:
                loss = nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            with torch.no_grad():
                error = sum(nn.functional.l1_loss(model(x), y, reduction="sum").item() for x, y in test_loader)
            print(epoch, error / len(test_set))
        """,
        after=None,
    ),
    Example(
        before="""\
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.LBFGS(model.parameters())

        for epoch in range(2):
            for x, y in loader:

                def closure():
                    optimizer.zero_grad()
                    loss = nn.functional.mse_loss(model(x), y)
                    loss.backward()
                    return loss

                optimizer.step(closure)
        """,
        after='''\
        import torch
        import torch.distributed as dist
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset


        def reduce_mean(value):
            """The mean of a tensor over all ranks."""
            mean = value.detach().double() / dist.get_world_size()
            dist.all_reduce(mean)
            return mean.to(value)


        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.LBFGS(model.parameters())

        for epoch in range(2):
            for x, y in loader:

                def closure():
                    optimizer.zero_grad()
                    loss = nn.functional.mse_loss(model(x), y)
                    loss.backward()
                    return reduce_mean(loss)

                optimizer.step(closure)
        ''',
    ),
]


NAMES = {
    Joining.MEAN: "reduce_mean",
    Joining.WEIGHTED: "mean_over_ranks",
    Joining.MAX: "reduce_max",
    Joining.MIN: "reduce_min",
    Joining.ROWS: "gather_rows",
}


@rule("AD601")
def reduce_metrics(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Report and decide on what all ranks computed, not on one rank's share.

    A rank's loss, accuracy or count covers its own samples. Where such a value is printed, logged, saved, or decides
    what happens next, it is first made global: means are averaged over the ranks, sums added, counts multiplied. So is
    the loss that a closure returns to an optimizer that goes on or stops by it, as L-BFGS does.
    """
    if not script.trains:
        return
    yield from raised(script, "AD601")
    variables: dict[tuple[Source, str], str] = {}
    reductions = _helpers(script)
    for reduction in reduced_once(script.reductions):
        source, node = reduction.source, reduction.node
        d, imports = dist(context, source)
        helper: Planned = ()
        switch, needed = switch_of(context, reduction)
        if reduction.by is Joining.COUNT and not script.wholes:
            template, helper = times_ranks(context, reduction)
        else:
            name = NAMES.get(reduction.by, "reduce_sum")
            torch, torch_import = imported(context, source, "torch")
            code = UNEVEN if script.wholes and name == "gather_rows" else reductions[name]
            code = code.replace("{d}", d).replace("{torch}", torch)
            template, helper = f"{name}({{}})", (*torch_import, *defined(script, source, code))
            if _is_table(reduction, script):
                template = f"{{key: {name}(value) for key, value in {{}}.items()}}"
            elif (kind := _kind_of_arrays(reduction, script)) is not None:
                template = f"[{name}(value) for value in {{}}]"
                template = template if kind is list else f"tuple({template[1:-1]})"
        if reduction.switch is not None and "DistributedSampler" in reduction.switch:
            _, more = member(context, source, "torch.utils.data.distributed", "DistributedSampler")
            imports = (*imports, *more)
        if switch is not None and reduction.by in (Joining.ROWS, Joining.SUM):
            template, helper = f"{template} if {switch} else {source.code(node)}", (*needed, *helper)
        edits: list[Edit]
        if reduction.hoist is not None:
            whole = reduction.of or node
            inside = set(walk(whole)) if not context.config.strategy.shards else set()
            inside -= set(script.maybe_wrapped)
            reached = (each.node for each in script.unwraps if each.node in inside)
            code = source.extended(whole, {each: ".module" for each in reached if isinstance(each, ast.expr)})
            variable = _variable(node, source.code(whole), template)
            # rank 0 may need several values for one statement
            taken = names_at(source, reduction.hoist)
            while variable in taken or variables.setdefault((source, variable), code) != code:
                variable += "_"
            line = f"{variable} = " + template.replace("{}", code) + "\n"
            edits = [InsertBefore(reduction.hoist, line, prepares=True), ReplaceExpr(node, variable)]
        elif reduction.of is not None:
            edits = [Recompose(node, template.replace("{}", "{0}"), (reduction.of,))]
        else:
            edits = [WrapExpr(node, template)]
        yield _found(reduction, Fix((*imports, *helper, *planned(source, *edits))))


def _helpers(script: TrainingScript) -> dict[str, str]:
    """The functions that reduce over the ranks, as simple as what the script gives them allows."""
    reductions = dict(REDUCTIONS)
    for name in ("reduce_mean", "reduce_sum"):
        given = [each for each in script.reductions if NAMES.get(each.by, "reduce_sum") == name]
        if all(each.number for each in given):
            reductions[name] = OF_NUMBERS[name]
        elif all(each.tensor for each in given):
            reductions[name] = OF_TENSORS[name]
        elif name in OF_NUMPY and any(map(_uses_numpy, script.project.sources)):
            if not all(each.number or each.tensor for each in given):
                reductions[name] = OF_NUMPY[name]
    if any(_is_of_many(reduction, script) for reduction in script.reductions):
        reductions = {**REDUCTIONS, **OF_MANY}
    if any(UNSENT.search(source.text) for source in script.project.sources):
        reductions = {**reductions, "gather_rows": AS_BYTES}
    if any(reduction.padded for reduction in script.reductions):
        reductions = {**reductions, "gather_rows": PADDED}
    return reductions


def _found(reduction: Reduction, fix: Fix) -> Finding:
    code = shortened(reduction.source.code(reduction.node))
    return Finding(reduction.source, reduction.node, f"{code} is {reduction.by.value}", fix)


ARRAYS = frozenset(
    "array asarray zeros ones empty full zeros_like ones_like stack concatenate vstack hstack bincount histogram "
    "confusion_matrix multilabel_confusion_matrix".split()
)
"""What NumPy and scikit-learn make arrays by."""


UNSENT = re.compile(r"int16|uint32|uint64|\.short\(|complex|cfloat|cdouble|\.fft\b|torch\.polar")
"""What speaks of types that backends of torch.distributed do not send."""


def _uses_numpy(source: Source) -> bool:
    return re.search(r"^\s*(import|from) numpy\b", source.text, re.MULTILINE) is not None


def _is_of_many(reduction: Reduction, script: TrainingScript) -> bool:
    """Whether what is reduced is a list or an array of NumPy, rather than a number or a tensor."""
    found = script.values.get(reduction.node)
    if found is not None and any(isinstance(thing, Items) for thing in found.things):
        return True
    if _kind_of_arrays(reduction, script) is dict:
        return True
    made = last_name(reduction.node.func) if isinstance(reduction.node, ast.Call) else ""
    if made == "tolist" or made == "numpy" and reduction.by is Joining.SUM:
        return True
    code = reduction.source.code(reduction.node)
    bound = [(reduction.source.code(target), value) for target, value in _bindings(reduction.source.tree)]
    for value in (*(value for target, value in bound if target == code), *_picked(reduction.node, bound, script)):
        if any(isinstance(n, (ast.List, ast.ListComp)) for n in walk(value)):
            return True  # `losses = [0.0] * epochs`
    spoken = {reduction.source.code(n) for n in walk(reduction.node) if isinstance(n, (ast.Name, ast.Attribute))}
    added = all_of(reduction.source.tree, ast.AugAssign)
    bound += [(reduction.source.code(n.target), n.value) for n in added]  # `counts += np.bincount(labels)`
    calls = [value for target, value in bound if isinstance(value, ast.Call) and target in spoken]
    calls += list(all_of(reduction.node, ast.Call))
    reduced = (call for call in calls if isinstance(call.func, ast.Attribute) and (call.args or call.keywords))
    calls += [call.func.value for call in reduced if isinstance(call.func.value, ast.Call)]  # type: ignore[attr-defined]
    added_up = {
        n.id
        for each in added
        if reduction.source.code(each.target) in spoken
        for n in walk(each.value)
        if isinstance(n, ast.Name)
    }
    behind = list(_behind(reduction.node, bound, script))
    calls += [each for each in behind if isinstance(each, ast.Call)]
    if any(_is_taken_off(each) for each in behind):
        return True
    if any(_is_taken_off(each) for name in {*spoken, *added_up} for each in _unpacked(name, reduction.source, script)):
        return True
    entered = [thing.node for thing in _called(reduction.node, script) if isinstance(thing, Function)]
    calls += [made for function in entered for made in _returned(function)]
    names = (thing.name for call in calls for thing in _called(call, script) if isinstance(thing, External))
    return any(name.startswith(("numpy.", "sklearn.")) and name.rpartition(".")[2] in ARRAYS for name in names)


def _behind(
    node: ast.expr, bound: Sequence[tuple[str, ast.expr]], script: TrainingScript, depth: int = 4
) -> Iterator[ast.expr]:
    """What something stands for that shares the numbers of something else: `np.zeros(3)` of `report["counts"]` after
    `counts = np.zeros(3)` and `report = {"counts": counts}`."""
    if depth == 0 or not isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
        return
    found = [value for target, value in bound if target == ast.unparse(node)]
    held = script.values.get(node.value) if isinstance(node, ast.Subscript) else None
    found += [part for thing in (held.things if held is not None else ()) for part in _parts(thing)]
    for each in found:
        yield each
        yield from _behind(each, bound, script, depth - 1)


def _picked(node: ast.expr, bound: Sequence[tuple[str, ast.expr]], script: TrainingScript) -> Iterator[ast.expr]:
    """What a function of the script made for `history[0]`, where it has returned several: `return losses, hits`."""
    if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Constant):
        return
    name, at = ast.unparse(node.value), node.slice.value
    for call in (value for target, value in bound if target == name and isinstance(value, ast.Call)):
        for function in (thing.node for thing in _called(call, script) if isinstance(thing, Function)):
            for returned in (n.value for n in all_of(function, ast.Return)):
                if isinstance(returned, ast.Tuple) and isinstance(at, int) and 0 <= at < len(returned.elts):
                    own = ast.unparse(returned.elts[at])
                    yield from (value for target, value in _bindings(function) if ast.unparse(target) == own)


def _unpacked(name: str, source: Source, script: TrainingScript) -> Iterator[ast.expr]:
    """What functions of the script hand out for a name that is bound beside others: `hits, total = counted(out, y)`."""
    for statement in all_of(source.tree, ast.Assign):
        for target in (each for each in statement.targets if isinstance(each, ast.Tuple)):
            at = next((i for i, each in enumerate(target.elts) if spelled(each) == name), None)
            for function in (thing.node for thing in _called(statement.value, script) if isinstance(thing, Function)):
                for returned in (n.value for n in all_of(function, ast.Return)):
                    if isinstance(returned, ast.Tuple | ast.List) and at is not None and at < len(returned.elts):
                        yield returned.elts[at]


def _is_taken_off(node: ast.expr) -> bool:
    """`hits.cpu().numpy()`, which is an array even if it has no axis, or a part of it."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return isinstance(node, ast.Call) and last_name(node.func) == "numpy" and not node.args


@told_once
def _bindings(tree: ast.AST) -> list[tuple[ast.expr, ast.expr]]:
    """What is assigned to which names and attributes, also in pairs: `hits, total = [0] * n, [0] * n`."""
    found: list[tuple[ast.expr, ast.expr]] = []
    for statement in all_of(tree, ast.Assign):
        for target in statement.targets:
            if isinstance(target, ast.Tuple) and isinstance(statement.value, ast.Tuple):
                found += zip(target.elts, statement.value.elts, strict=False)
            else:
                found.append((target, statement.value))
    return found


def _is_table(reduction: Reduction, script: TrainingScript) -> bool:
    """Whether what is reduced is a dict of numbers."""
    value = script.values.get(reduction.node)
    return value is not None and any(isinstance(thing, Table) for thing in value.things)


def _kind_of_arrays(reduction: Reduction, script: TrainingScript) -> type | None:
    """Whether what is reduced is a list, a tuple or a dict of arrays: `hits, total = sums`."""
    value = script.values.get(reduction.node)
    for thing in value.things if value is not None else ():
        if any(isinstance(each, ast.Call) and last_name(each.func) in ARRAYS for each in _parts(thing)):
            return dict if isinstance(thing, Table) else tuple if _is_tuple(thing) else list
    return None


def _is_tuple(thing: Thing) -> bool:
    return isinstance(thing, Items) and isinstance(thing.node, ast.Tuple)


def _parts(thing: Thing) -> list[ast.expr]:
    """What a list, a tuple or a dict is written with: `np.zeros(3)` of `{"hits": np.zeros(3)}`."""
    match thing.node if isinstance(thing, (Items, Table)) else None:
        case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Dict(values=parts):
            return parts
        case ast.ListComp(elt=one) | ast.DictComp(value=one):
            return [one]
        case ast.Call(keywords=named):
            return [each.value for each in named]
    return []


def _returned(function: ast.AST) -> Iterator[ast.Call]:
    """The calls whose results a function returns under a name: `matrix = np.zeros((3, 3))`, `return matrix`."""
    answers = [n.value for n in walk(function) if isinstance(n, ast.Return) and isinstance(n.value, ast.Name)]
    names = {answer.id for answer in answers}
    for node in walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            if any(isinstance(target, ast.Name) and target.id in names for target in node.targets):
                yield node.value


def _called(call: ast.expr, script: TrainingScript) -> Iterable[Thing]:
    value = script.values.get(call.func) if isinstance(call, ast.Call) else None
    return value.things if value is not None else ()


def _variable(node: ast.expr, code: str, template: str) -> str:
    """A name for a value that is made global before a guarded statement: `mean_loss`."""
    if (
        isinstance(node, ast.Subscript)
        and isinstance(node.slice, ast.Constant)
        and str(node.slice.value).isidentifier()
    ):
        code = str(node.slice.value)
    words = re.findall(r"[A-Za-z_]\w*", re.sub(r"\.(item|detach|cpu|data)\b(\(\))?", "", code))
    last = words[0] if words else "value"
    if words[:1] == ["self"] and len(words) > 1:
        last = words[1]
    prefix = "mean" if "mean" in template else "all" if "gather" in template else "total"
    return last if last.startswith(prefix) else f"{prefix}_{last}"
