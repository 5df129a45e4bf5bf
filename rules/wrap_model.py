from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from autodist.edits import Edit, InsertAfter, Recompose, RemoveStatement, ReplaceExpr, ReplaceStatement, WrapExpr
from autodist.rule import REPLICATED, Context, Example, Finding, Fix, Severity, raised, rule
from autodist.script import Model, Site, TrainingScript, Wrapping
from autodist.source import Source, argument, last_name

from ._departed import only_drops
from ._examples import PLAIN
from ._preamble import (
    for_each,
    if_there,
    imported,
    is_move,
    member,
    normalised_alone,
    planned,
    synchronised,
    synchronised_there,
)

EXAMPLES = [
    Example(
        before=PLAIN,
        after="""\
        import torch
        from torch import nn
        from torch.nn.parallel import DistributedDataParallel as DDP
        from torch.utils.data import DataLoader, TensorDataset

        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = DDP(nn.Linear(4, 1), gradient_as_bucket_view=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        """,
    ),
    Example(
        before="""\
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1)).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x.cuda()), y.cuda())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        """,
        after="""\
        import torch
        from torch import nn
        from torch.nn.parallel import DistributedDataParallel as DDP
        from torch.utils.data import DataLoader, TensorDataset

        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1)).cuda()
        if next(model.parameters()).is_cuda:  # BatchNorm over the whole batch; SyncBatchNorm needs a GPU
            model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
        model = DDP(model, gradient_as_bucket_view=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x.cuda()), y.cuda())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        """,
    ),
    Example(
        before=PLAIN.replace("model = nn.Linear(4, 1)", "model = nn.DataParallel(nn.Linear(4, 1).cuda())").replace(
            "loss = nn.functional.mse_loss(model(x), y)", "loss = nn.functional.mse_loss(model(x.cuda()), y.cuda())"
        ),
        after="""\
        import torch
        from torch import nn
        from torch.nn.parallel import DistributedDataParallel as DDP
        from torch.utils.data import DataLoader, TensorDataset

        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = DDP(nn.Linear(4, 1).cuda(), gradient_as_bucket_view=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x.cuda()), y.cuda())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        """,
    ),
    Example(
        before="""\
        import torch
        import torch.distributed as dist
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        dist.init_process_group("gloo")
        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.parallel.DistributedDataParallel(nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        """,
        after=None,
    ),
]


SEVERAL = (
    "count",
    "gpus",
    "ngpu",
    "n_gpu",
    "num_gpu",
    "device_ids",
    "multi",
    "parallel",
    "distributed",
    "len(",
    ">",
    "world",
)
"""Words of conditions that hold on several GPUs alone."""


@rule("AD401", *REPLICATED)
def wrap_model(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Wrap each model that trains in DistributedDataParallel.

    It starts all ranks from the weights of rank 0 and averages gradients in every backward pass. `DataParallel` is
    replaced; around a part of a model it stays, on the device of its process, since checkpoints have its keys. Models
    with parts that a training step may leave out look for unused parameters; what a setting may freeze as a whole is
    wrapped where it trains; batch normalisation becomes synchronised on GPUs, since its statistics are part of the
    training. Gradients are views of the buckets that are reduced, which saves a copy of them all, unless there are
    several models or the script may keep a gradient for longer than its step.
    """
    if not script.trains:
        return
    refused: set[ast.AST] = set()
    for model in script.models:
        if model.wrapped:
            continue
        yield from _dropped(model, script)
        yield from _pinned(model, context)
        if model.bypassed:
            continue
        yield from _renamed_keys(model, script)
        own_statistics = script.distributed and model.batch_norm and _keeps_buffers_apart(script, model)
        options = ", find_unused_parameters=True" if model.sometimes_unused else ""
        options += ", broadcast_buffers=False" if own_statistics else ""
        options += ", gradient_as_bucket_view=True" if script.in_buckets else ""
        if script.distributed:  # batch statistics are each rank's own in the script as it is
            model = replace(model, batch_norm=False)
        if model.data_parallel or any(
            site.node is getattr(model.wrapping, "inside", None) for site in model.fully_sharded
        ):
            yield from _replaced(model, script, context, options)
            yield from _whole_instead(model, script, context, options)
            continue
        wrapping = model.wrapping
        if wrapping is None:
            if model.object.node not in refused:
                yield Finding(
                    model.object.source, model.object.node, _not_ready(model, script), severity=Severity.REFUSAL
                )
            refused.add(model.object.node)
            continue
        source = wrapping.source
        prepared = _preparation(script, wrapping)
        if prepared is not None and not wrapping.unnamed:  # ranks take turns there, and wrapping is done together
            wrapping = replace(wrapping, statement=prepared, inside=None)
        ddp, ddp_import = member(context, source, "torch.nn.parallel", "DistributedDataParallel", "DDP")
        target = source.code(wrapping.target)
        imports = ddp_import
        inside = wrapping.inside
        hidden = wrapping.optional and inside and not isinstance(source.parents.get(inside), ast.IfExp)
        if wrapping.unnamed and inside is not None:
            made = "{}"
            if model.batch_norm:
                name, imports = synchronised_there(script, context, source)
                made, imports = f"{name}({made})", (*ddp_import, *imports)
                yield from normalised_alone(script, source, wrapping.statement)
            fix = Fix((*imports, *planned(source, WrapExpr(inside, f"{ddp}({made}{options})"))))
        elif model.batch_norm or inside is None or model.may_be_frozen or hidden:
            code = f"{target} = {ddp}({target}{wrapping.move}{options})\n"
            if model.may_be_frozen:
                code = f"if any(p.requires_grad for p in {target}.parameters()):  # it may be frozen\n    {code}"
            if wrapping.each:
                code = f"{target} = {for_each(wrapping.each, f'{ddp}(model{wrapping.move}{options})', target)}\n"
            if model.batch_norm:
                lines, needed = synchronised(script, context, source, target, wrapping.each, not wrapping.move)
                imports, code = (*imports, *needed), lines + code
                yield from normalised_alone(script, source, wrapping.statement)
            code = if_there(wrapping, target, code)
            replaced = only_drops(model, wrapping.statement)
            edit = ReplaceStatement(wrapping.statement, code) if replaced else InsertAfter(wrapping.statement, code)
            fix = Fix((*imports, *planned(source, edit)))
        else:
            inner = "{}" if isinstance(inside, (ast.Call, ast.Name, ast.Attribute)) else "({})"
            template = f"{ddp}({inner if wrapping.move else '{}'}{wrapping.move}{options})"
            fix = Fix((*imports, *planned(source, WrapExpr(inside, template))))
        yield Finding(
            source,
            wrapping.statement,
            f"{_class(model.object.name)} trains: its gradients are averaged over the ranks",
            fix,
        )
    yield from raised(script, "AD401")


def _renamed_keys(model: Model, script: TrainingScript) -> Iterator[Finding]:
    """A wrapper around a model on one GPU, whose checkpoints have other keys than the conversion's."""
    for site in model.dropped:
        if _is_on_one_device(site) and not all(map(_knows_wrapper, script.unwraps)):
            message = (
                "on a GPU the checkpoints of the script have the keys of this wrapper (module.…), those of the "
                "conversion do not: neither reads the other's unless the prefix is removed, or added"
            )
            yield Finding(site.source, site.node, message, severity=Severity.WARNING)
            return


def _dropped(model: Model, script: TrainingScript) -> Iterator[Finding]:
    """Without the wrappers that only several devices would get."""
    every = [site.statement for each in script.models for site in each.dropped]
    for site in model.dropped:
        statement = site.statement
        parent = site.source.parents[statement]
        alone = isinstance(parent, ast.If) and all(each in every for each in parent.body) and not parent.orelse
        # the block goes with its only statement, unless the wrapping takes its place
        taken = model.wrapping.statement if model.wrapping is not None else None
        if alone and taken is parent and only_drops(model, site.source.statement(parent)):
            continue
        assert isinstance(site.node, ast.Call)
        inner = argument(site.node, "module", 0)
        edit: Edit = RemoveStatement(parent if alone and isinstance(parent, ast.stmt) else statement)
        if inner is not None and _moved(site.source, site.node) is not site.node:  # it is also moved there
            edit = Recompose(site.node, "{0}", (inner,))
        yield Finding(
            site.source, site.node, "DataParallel uses the devices of one process", Fix(planned(site.source, edit))
        )


def _pinned(model: Model, context: Context) -> Iterator[Finding]:
    """DataParallel around a part of a model, or around one that is not wrapped, on the device of its process: the
    checkpoints have its keys."""
    for site in (*model.pinned, *(model.data_parallel if model.bypassed else ())):
        source, call = site.source, site.node
        assert isinstance(call, ast.Call)
        inner, devices = argument(call, "module", 0), argument(call, "device_ids", 1)
        if inner is None or (devices is not None and '"LOCAL_RANK"' in source.code(devices)):
            continue
        os, imports = imported(context, source, "os")
        template = f'{source.code(call.func)}({{0}}, device_ids=[int({os}.environ["LOCAL_RANK"])])'
        fix = Fix((*imports, *planned(source, Recompose(call, template, (inner,)))))
        yield Finding(source, call, "DataParallel uses the devices of one process; its keys stay", fix)


def _whole_instead(model: Model, script: TrainingScript, context: Context, options: str) -> Iterator[Finding]:
    """DistributedDataParallel around a model of which the script wraps a part, where another branch wraps all of it."""
    for site in model.partial:
        source, call, statement = site.source, site.node, site.statement
        assert isinstance(call, ast.Call)
        part = argument(call, "module", 0)
        bound = source.code(statement.targets[0]) if isinstance(statement, ast.Assign) else None
        if not isinstance(part, ast.Attribute) or bound != source.code(part):
            message = "wraps a part of the model here, and all of it in another branch: wrap all of it in both"
            yield Finding(source, call, message, severity=Severity.REFUSAL)
            continue
        ddp, imports = member(context, source, "torch.nn.parallel", "DistributedDataParallel", "DDP")
        target = source.code(part.value)
        lines = f"{target} = {ddp}({target}{options})\n"
        if model.batch_norm:
            code, needed = synchronised(script, context, source, target)
            lines, imports = code + lines, (*imports, *needed)
        block = source.block(statement)
        below = block[block.index(statement) + 1 :]
        moved = next(
            (each for each in below if source.code(each).startswith((f"{target}.cuda(", f"{target}.to("))), None
        )
        edits: list[Edit] = [ReplaceStatement(statement, lines)]
        if moved is not None:
            edits = [RemoveStatement(statement), InsertAfter(moved, lines)]
        yield Finding(
            source,
            call,
            "DataParallel uses the devices of one process",
            Fix((*imports, *planned(source, *edits))),
        )
        message = (
            f"checkpoints of the script have the keys {part.attr}.module.…, those of the conversion "
            f"module.{part.attr}.…: neither reads the other's unless they are renamed"
        )
        yield Finding(source, call, message, severity=Severity.WARNING)


def _not_ready(model: Model, script: TrainingScript) -> str:
    """Why a model has no place to be wrapped at."""
    if "copy.deepcopy" in script.program.at(model.object.node.func).functions:
        return (
            "trains a copy of another model that has no name of its own, as federated and meta-learning do for each "
            "client or task: bind the copy to a name and wrap it there, or convert this part by hand"
        )
    return (
        "cannot see a place between where this model is made and its first step, to wrap it at: give it a name of its "
        "own where it is made"
    )


def _is_on_one_device(site: Site) -> bool:
    """Whether a model is wrapped on a single GPU as well: `if device == "cuda": model = nn.DataParallel(model)`."""
    parent = site.source.parents.get(site.statement)
    asked = ast.unparse(parent.test).lower() if isinstance(parent, ast.If) else ""
    return "cuda" in asked and not any(word in asked for word in SEVERAL)


def _knows_wrapper(site: Site) -> bool:
    """Whether the script looks into the wrapper itself where it has one: `net.module.state_dict() if cuda else
    net.state_dict()`, with the site in the branch without."""
    if not isinstance(site.node, ast.expr):
        return False
    name = site.source.code(site.node)
    inner: ast.AST = site.node
    for outer in site.source.ancestors(site.node):
        if isinstance(outer, (ast.If, ast.IfExp)) and inner is not outer.test:
            branches = ([each] if isinstance(each, ast.expr) else each for each in (outer.body, outer.orelse))
            others = [each for branch in branches if inner not in branch for each in branch]
            looked = (n for each in others for n in ast.walk(each) if isinstance(n, ast.Attribute))
            if any(n.attr == "module" and site.source.code(n.value) == name for n in looked):
                return True
        inner = outer
    return False


def _preparation(script: TrainingScript, wrapping: Wrapping) -> ast.stmt | None:
    """The last statement of the stretch that rank 0 runs first, if the model is made there."""
    for first, last in script.downloads:
        if first.source is wrapping.source:
            block = first.source.block(first.statement)
            stretch = block[block.index(first.statement) : block.index(last.statement) + 1]
            if any(each is wrapping.statement or wrapping.statement in ast.walk(each) for each in stretch):
                return last.statement
    return None


def _keeps_buffers_apart(script: TrainingScript, model: Model) -> bool:
    """Whether what averaged gradients so far left buffers alone, which DistributedDataParallel makes alike."""
    return bool(model.fully_sharded) or any(use.name == "horovod.DistributedOptimizer" for use in script.borrowed)


def _replaced(model: Model, script: TrainingScript, context: Context, options: str) -> Iterator[Finding]:
    """DistributedDataParallel in the place of another wrapper; the state dict keeps the keys that it had."""
    for site in (*model.data_parallel, *model.fully_sharded):
        source, call = site.source, site.node
        assert isinstance(call, ast.Call)
        inner, device = argument(call, "module", 0), argument(call, "device_id")
        if inner is None:
            yield Finding(source, call, "wraps a model that cannot be seen", severity=Severity.REFUSAL)
            continue
        ddp, ddp_import = member(context, source, "torch.nn.parallel", "DistributedDataParallel", "DDP")
        statement = site.statement
        outer = _moved(source, call)  # the model is moved before it is wrapped
        bound = isinstance(statement, ast.Assign) and statement.value in (call, outer)
        after = source.code(outer)[len(source.code(call)) :] if outer is not call else ""
        moves = device is not None and not (isinstance(device, ast.Constant) and device.value is None)
        moves = moves and not is_move(inner)
        moved_later = () if moves or after or is_move(inner) else model.moved_later
        places = [(each, _anchor(site, each)) for each in moved_later]
        placed = [each for each in places if each[1] is not None]
        later, anchor = next(iter([*placed[-1:], *places]), (None, None))
        names = [] if later is None or anchor is None else _names_of(site, anchor, later)
        if later is not None and not names and not isinstance(anchor, ast.Return) and not _is_told_before(site, later):
            message = "is moved to its device after it is wrapped, where gradients would no longer be averaged"
            yield Finding(source, later.node, message, severity=Severity.REFUSAL)
            continue
        if isinstance(anchor, ast.Return) or not names:
            anchor = None
        if later is not None and anchor is None:
            assert isinstance(later.node, ast.Call) and isinstance(later.node.func, ast.Attribute)
            moved = later.node.func.value  # what follows it, `.to(device)`, comes before the wrapper, too
            after = source.code(later.node)[len(source.code(moved)) :]
        template = "{0}" + (".to({1})" if moves else "") + after
        parts = (inner, device) if moves and device is not None else (inner,)
        imports = ddp_import
        if bound and (anchor is not None or model.batch_norm):  # statements of their own
            assert isinstance(statement, ast.Assign)
            target = source.code(statement.targets[0])
            names = [target] if anchor is None else names
            lines = f"{' = '.join(names)} = {ddp}({names[0]}{options})\n"
            if model.batch_norm:
                code, more = synchronised(script, context, source, names[0], moved=True)
                lines, imports = code + lines, (*imports, *more)
            same = template == "{0}" and source.code(inner) == target
            edits: list[Edit]
            if anchor is not None:  # wrapped where it is moved
                edits = [RemoveStatement(statement) if same else Recompose(outer, template, parts)]
                edits.append(InsertAfter(anchor, lines))
            elif same:
                edits = [ReplaceStatement(statement, lines)]
            else:
                edits = [Recompose(outer, template, parts), InsertAfter(statement, lines)]
        else:
            edits = [Recompose(outer, f"{ddp}({template}{options})", parts)]
        known = {each.node for each in script.wrapper_tests}
        edits += [ReplaceExpr(each, ddp) for each in _wrapper_asked_for(site) if each not in known]
        fix = Fix((*imports, *planned(source, *edits)))
        kind = source.code(call.func).rpartition(".")[2]
        message = "DataParallel uses the devices of one process"
        if model.fully_sharded or kind != "DataParallel":
            message = "its gradients are averaged over the ranks, and every rank holds all of it"
        yield Finding(source, call, message, fix)


def _wrapper_asked_for(site: Site) -> Iterator[ast.expr]:
    """`nn.DataParallel` of `if not isinstance(model, nn.DataParallel): model = nn.DataParallel(model)`"""
    parent = site.source.parents.get(site.statement)
    asked = list(ast.walk(parent.test)) if isinstance(parent, ast.If) else []
    for call in (each for each in asked if isinstance(each, ast.Call) and last_name(each.func) == "isinstance"):
        classes = call.args[1].elts if isinstance(call.args[1], ast.Tuple) else call.args[1:]
        if not any(last_name(each) == "DistributedDataParallel" for each in classes):
            yield from (each for each in classes if last_name(each) == "DataParallel")


def _anchor(site: Site, later: Site) -> ast.stmt | None:
    """The statement after that of ``site``, in the same block, that moves the model or decides whether to."""
    block = site.source.block(site.statement)
    if site.source is not later.source:
        return None
    around = [later.statement, *(a for a in later.source.ancestors(later.statement) if isinstance(a, ast.stmt))]
    found = next((each for each in around if each in block), None)
    if found is None or block.index(found) <= block.index(site.statement):
        return None
    between = block[block.index(site.statement) + 1 : block.index(found)]
    if any(isinstance(n, ast.Attribute) and n.attr == "module" for s in between for n in ast.walk(s)):
        return None
    return found if isinstance(found, (ast.Expr, ast.Assign, ast.If, ast.Return)) else None


def _names_of(site: Site, anchor: ast.stmt, later: Site) -> list[str]:
    """The names by which a model that is wrapped at ``site`` is known, and read, after it has been moved: `self.net =
    model.to(device)`. None where it is moved by another name, or in an expression that hands it on."""
    source, statement = site.source, site.statement
    if not isinstance(statement, ast.Assign):
        return []
    block = source.block(statement)
    names = dict.fromkeys(map(source.code, statement.targets))
    for each in block[block.index(statement) + 1 : block.index(anchor) + 1]:
        for node in ast.walk(each):
            if isinstance(node, ast.Assign) and source.code(_moved_in(node.value)) in names:
                names |= dict.fromkeys(map(source.code, node.targets))
    moves = later.statement
    if not isinstance(moves, (ast.Expr, ast.Assign)) or source.code(_moved_in(moves.value)) not in names:
        return []
    home = source.home(statement)
    end = anchor.end_lineno or anchor.lineno
    loads = [n for n in ast.walk(source.tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
    read = {n.id for n in loads if source.home(n) is home and n.lineno > end}
    if home is source.tree:
        inner = [n for n in loads if source.home(n) is not home and n.id not in _parameters(source.home(n))]
        read |= {n.id for n in inner if not source.stores(n)}
    return [each for each in names if "." in each or each in read] or list(names)[-1:]


def _is_told_before(site: Site, later: Site) -> bool:
    """Whether what a later move is told, `model.to(device)`, is known by the same names where the model is wrapped."""
    source, statement = site.source, site.statement
    if later.source is not source or not isinstance(later.node, ast.Call):
        return False
    here, there = source.home(statement), source.home(later.node)
    for given in (*later.node.args, *(each.value for each in later.node.keywords)):
        for node in ast.walk(given):
            if isinstance(node, ast.Attribute) and source.code(node).startswith("self."):
                told = [n for n in ast.walk(here) if isinstance(n, ast.Assign) and n.lineno < statement.lineno]
                if here is not there or source.code(node) not in {source.code(t) for n in told for t in n.targets}:
                    return False
            if not isinstance(node, ast.Name) or node.id in ("self", "torch"):
                continue
            if here is not there and (
                source.stores(node) and there is not source.tree or node.id in _parameters(there)
            ):
                return False
            stores = source.stores_within(source.tree, node.id)
            if here is source.tree or here is there and source.stores(node):
                if any(n.lineno >= statement.lineno for n in stores if source.home(n) is here):
                    return False
            if not stores and node.id not in _parameters(here):
                return False
    return True


def _parameters(home: ast.AST) -> list[str]:
    spec = home.args if isinstance(home, (ast.FunctionDef, ast.AsyncFunctionDef)) else None
    return [each.arg for each in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)] if spec is not None else []


def _moved_in(node: ast.expr) -> ast.expr:
    """`model`, in `model.to(device).train()`"""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in (*MOVES, *MODES):
        node = node.func.value
    return node


MOVES = ("cuda", "to", "cpu", "xpu", "mps", "npu", "float", "double", "half", "bfloat16")
MODES = ("train", "eval", "requires_grad_")


def _moved(source: Source, node: ast.expr) -> ast.expr:
    """`nn.DataParallel(model).cuda()`, from the wrapper inside it."""
    parent = source.parents.get(node)
    if isinstance(parent, ast.Attribute) and parent.attr in ("cuda", "to", "cpu"):
        call = source.parents.get(parent)
        if isinstance(call, ast.Call) and call.func is parent:
            return _moved(source, call)
    return node


def _class(name: str) -> str:
    """`BertModel` of `transformers.BertModel.from_pretrained`"""
    owner, _, last = name.rpartition(".")
    return owner.rpartition(".")[2] if last.startswith("from_") else last
