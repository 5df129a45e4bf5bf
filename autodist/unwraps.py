"""Where a script means the model itself, not the wrapper around it."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

from autodist.interpreter import SAFE_ON_WRAPPER, Interpreter
from autodist.rule import Severity
from autodist.script import Concern, Site
from autodist.source import Source
from autodist.values import NOTHING, Class, External, Object, Table, Wrapped

TAKING_PART = frozenset("optimizer scheduler scaler module".split())
PIPELINES = re.compile(r"diffusers\.(?:\w+\.)*\w+Pipeline(?:\.from_pretrained)?$")
"""What asks the models that it is given for their settings, and saves them."""
KEYED = frozenset("state_dict load_state_dict named_parameters named_buffers named_modules".split())
QUESTIONS = frozenset(
    f"builtins.{name}" for name in ("delattr", "dir", "getattr", "hasattr", "isinstance", "setattr", "type", "vars")
)


def found(run: Interpreter, may_be_bare: frozenset[object]) -> tuple[list[Site], frozenset[ast.AST]]:
    """Expressions that name a wrapped model where the model itself is meant, and those of them that may have none
    around it."""
    sites: dict[ast.AST, Site] = {}
    maybe: set[ast.AST] = set()
    saved = frozenset(_saved(run))
    logs = frozenset(event.node for event in run.of("log"))
    for node, value in run.values.items():
        ours = [t for t in value.things if isinstance(t, Wrapped) and t.kind == "planned"]
        if not ours:
            continue
        source = run.sources[node]
        parent = source.parents.get(node)
        meant = (
            _reaches_in(node, parent)
            and not _names_wrapped_keys(node, parent, source)
            or _is_among_layers(parent, source)
            or _is_named_in_print(parent, source)
            or _takes_module(node, parent, run)
            or _is_shown(node, run)
        )
        if meant or node in saved or _is_written_out(node, source, logs):
            sites[node] = Site(source, node)
            bare = any(isinstance(t.module, Object) and t.module.key in may_be_bare for t in ours)
            if bare or any(t not in ours and not isinstance(t, External) for t in value.things):
                maybe.add(node)
    return list(sites.values()), frozenset(maybe)


def saved_wrappers(run: Interpreter) -> tuple[Site, ...]:
    """Models that the script saves as a whole in its own `nn.DataParallel`. In DistributedDataParallel, which takes its
    place, they could be loaded by processes of a group alone."""
    given = [arg for event in run.of("save") if isinstance(event.node, ast.Call) for arg in event.node.args[:1]]
    found = {}
    for node in (*given, *_saved(run)):
        if isinstance(node, ast.Call):
            continue  # it is wrapped to be saved, and not to be trained
        things = run.values.get(node, NOTHING).things
        if things and all(isinstance(t, Wrapped) and t.kind == "data_parallel" for t in things):
            found[node] = Site(run.sources[node], node)
    return tuple(found.values())


def wrapper_tests(run: Interpreter) -> tuple[Site, ...]:
    """Where a wrapped model is asked for `nn.DataParallel` alone: the classes of `isinstance(model, nn.DataParallel)`
    and `type(model) in (nn.DataParallel,)`, or all of `model.__class__.__name__ == "DataParallel"`. Of
    DistributedDataParallel, which takes its place, they would say no."""
    sites: list[Site] = []
    for node, source in run.sources.items():
        if isinstance(node, ast.Call) and len(node.args) == 2:
            asks = External("builtins.isinstance") in run.values.get(node.func, NOTHING).things
            asked, classes, place = node.args[0] if asks else None, node.args[1], node.args[1]
        elif isinstance(node, ast.Compare) and len(node.ops) == 1:
            asked, classes = _asked_for_class(node.left, run), node.comparators[0]
            among = isinstance(node.ops[0], (ast.In, ast.NotIn)) and isinstance(classes, (ast.Tuple, ast.List))
            place = classes if among else node
            if not among and not isinstance(node.ops[0], (ast.Eq, ast.Is, ast.NotEq, ast.IsNot)):
                continue
        else:
            continue
        names = _class_names(classes, run) if asked is not None and _is_wrapped(asked, run) else set()
        if "DataParallel" in names and "DistributedDataParallel" not in names:
            sites.append(Site(source, place))
    return tuple(sites)


def _asked_for_class(node: ast.expr, run: Interpreter) -> ast.expr | None:
    """`model` of `type(model)`, `model.__class__`, and of their `__name__`."""
    if isinstance(node, ast.Attribute) and node.attr in ("__name__", "__qualname__"):
        node = node.value
    if isinstance(node, ast.Attribute):
        return node.value if node.attr == "__class__" else None
    asks = isinstance(node, ast.Call) and External("builtins.type") in run.values.get(node.func, NOTHING).things
    return node.args[0] if asks and isinstance(node, ast.Call) and node.args else None


def _is_wrapped(node: ast.expr, run: Interpreter) -> bool:
    """Whether it is a model that the script wraps itself: others are reached into wherever they are meant."""
    things = run.values.get(node, NOTHING).things
    return any(isinstance(thing, Wrapped) and thing.kind != "planned" for thing in things)


def _class_names(classes: ast.expr, run: Interpreter) -> set[str]:
    """The last parts of the names of the classes that a test asks for, by themselves or by their names."""
    given = classes.elts if isinstance(classes, (ast.Tuple, ast.List)) else [classes]
    things = (thing for each in given for thing in run.values.get(each, NOTHING).things)
    texts = {each.value for each in given if isinstance(each, ast.Constant) and isinstance(each.value, str)}
    return texts | {thing.name.rpartition(".")[2] for thing in things if isinstance(thing, External)}


def concerns(run: Interpreter, known: Callable[[str], bool]) -> Iterator[Concern]:
    """Where code that is not at hand is given the wrapper, and may ask it for what only the model has."""
    for node, value in run.values.items():
        if not any(isinstance(t, Wrapped) and t.kind == "planned" for t in value.things):
            continue
        source = run.sources[node]
        call = _given_to(node, source)
        if call is None:
            continue
        names = [t.name for t in run.values.get(call.func, NOTHING).things if isinstance(t, External)]
        unseen = [name for name in names if not known(name)]
        if unseen and not _takes_module(node, call, run) and not _is_shown(node, run):
            message = (
                f"{unseen[0]} is given {source.code(node)} in its wrapper, and its code is not at hand: where it asks "
                "for more than the output, or saves the model, hand it the model inside (.module)"
            )
            yield Concern("AD402", source, node, message, Severity.WARNING)
    yield from _saved_with_all(run)


def _saved_with_all(run: Interpreter) -> Iterator[Concern]:
    """Objects that are saved as a whole, `torch.save(self.__dict__, path)` or `pickle.dump(self, f)`, with the wrapped
    model that they hold."""
    seen: set[ast.AST] = set()
    for event in (*run.of("save"), *run.of("write")):
        given = event.node.args if isinstance(event.node, ast.Call) else ()
        for node in (each for arg in given for each in _wholes(arg)):
            for thing in run.values.get(node, NOTHING).things:
                held = _wrapped_in(thing) if isinstance(thing, Object) and "module" not in thing.roles else None
                if held is None or node in seen:
                    continue
                seen.add(node)
                name = event.source.code(node)
                message = (
                    f"saves all that {name} holds, and with it {name}.{held} in its wrapper: whoever loads it would "
                    f"find a model of processes of a group; put {name}.{held}.module in its place"
                )
                yield Concern("AD402", event.source, node, message, Severity.WARNING)


def _wholes(given: ast.expr) -> Iterator[ast.expr]:
    """What is saved as a whole: `trainer`, `trainer.__dict__`, `vars(trainer)`, also as a part of a dict."""
    match given:
        case ast.Dict(values=values):
            for each in values:
                yield from _wholes(each)
        case ast.Attribute(value=inner, attr="__dict__") | ast.Call(func=ast.Name(id="vars"), args=[inner]):
            yield inner
        case ast.Name():
            yield given


def _wrapped_in(holder: Object) -> str | None:
    """The attribute by which an object of the project holds a wrapped model."""
    planned = (
        name
        for name, value in holder.attributes.items()
        if any(isinstance(t, Wrapped) and t.kind == "planned" for t in value.things)
    )
    return next(planned, None) if holder.cls is not None else None


def _given_to(node: ast.expr, source: Source) -> ast.Call | None:
    """The call that an expression is an argument of."""
    parent = source.parents.get(node)
    call = source.parents.get(parent) if isinstance(parent, ast.keyword) else parent
    return call if isinstance(call, ast.Call) and call.func is not node else None


def _is_shown(node: ast.expr, run: Interpreter) -> bool:
    """`plot_regions(x_valid, y_valid, clf=model)`: code that is not at hand looks at the model. It keeps nothing that
    the script goes on with, and what it is given besides is the same on all ranks, so that it needs no wrapper even
    where it computes gradients."""
    source = run.sources[node]
    call = _given_to(node, source)
    if call is None or not isinstance(source.parents.get(call), ast.Expr):
        return False
    things = run.values.get(call.func, NOTHING).things
    if not things or any(not isinstance(t, External) or run.catalog.knows(t.name) for t in things):
        return False
    given = (*call.args, *(keyword.value for keyword in call.keywords))
    return not any(_is_for_training(each, run) for each in given if each is not node)


def _is_for_training(node: ast.expr, run: Interpreter) -> bool:
    """A rank's own samples, or what takes part in training: an optimizer, another model, a loader of such samples."""
    value = run.values.get(node, NOTHING)
    things = [t for t in value.things if isinstance(t, (Object, Wrapped))]
    roles = {role for t in things if isinstance(t, Object) for role in t.roles}
    shared = any(run.shares_out(loader) for loader in value.objects("loader"))
    wrapped = any(isinstance(t, Wrapped) for t in things)
    return shared or wrapped or bool(roles & TAKING_PART) or not run.holds_alike(node)


def _is_written_out(node: ast.expr, source: Source, logs: frozenset[ast.AST]) -> bool:
    """`logger.info(model)`, `"{}".format(model)`, `"%s" % model`, `"%s: %s" % (name, model)`: its layers as text."""
    parent = source.parents.get(node)
    if isinstance(parent, ast.Tuple):
        node, parent = parent, source.parents.get(parent)
    if isinstance(parent, ast.BinOp):
        return isinstance(parent.op, ast.Mod) and parent.right is node and _is_text(parent.left)
    call = _given_to(node, source)
    if call is None:
        return False
    formats = isinstance(call.func, ast.Attribute) and call.func.attr == "format" and _is_text(call.func.value)
    return formats or call in logs


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_named_in_print(parent: ast.AST | None, source: Source) -> bool:
    """`print(model.parameters)`, a method of the model with its layers, as text."""
    call = source.parents.get(parent) if isinstance(parent, ast.Attribute) else None
    return isinstance(call, ast.Call) and parent in call.args and ast.unparse(call.func) == "print"


def _reaches_in(node: ast.AST, parent: ast.AST | None) -> bool:
    """`model.fc`, `model.drop = 0.1`, `model[0]`, `for layer in model`, `[*model]`, `f"{model}"`."""
    if isinstance(parent, ast.Attribute):
        return parent.attr not in SAFE_ON_WRAPPER or not isinstance(parent.ctx, ast.Load)
    if isinstance(parent, ast.Subscript):
        return parent.value is node
    return (
        isinstance(parent, (ast.For, ast.comprehension))
        and parent.iter is node
        or isinstance(parent, (ast.FormattedValue, ast.Starred))
    )


def _is_among_layers(parent: ast.AST | None, source: Source) -> bool:
    """`[*model.modules()]`, of which the wrapper would be the first, with all parameters; not where each is asked what
    it is: `for layer in model.modules(): if isinstance(layer, nn.Linear): ...`."""
    call = source.parents.get(parent) if isinstance(parent, ast.Attribute) and parent.attr == "modules" else None
    if not isinstance(call, ast.Call) or call.func is not parent:
        return False
    taker = source.parents.get(call)
    if isinstance(taker, ast.comprehension) and taker.iter is call:
        made = source.parents[taker]
        first = made.elt if isinstance(made, (ast.ListComp, ast.SetComp, ast.GeneratorExp)) else None
        return not any(_asks_of(each, taker.target) for each in (*taker.ifs, *([first] if first is not None else [])))
    if isinstance(taker, ast.For) and taker.iter is call:
        return not all(_only_if_asked(each, taker.target) for each in taker.body)
    return True


def _only_if_asked(statement: ast.stmt, layer: ast.expr) -> bool:
    """Whether a statement does something for layers of some kinds alone."""
    if isinstance(statement, (ast.Pass, ast.Continue)) or isinstance(statement, ast.Expr) and _is_text(statement.value):
        return True
    others = statement.orelse if isinstance(statement, ast.If) else []
    asked = isinstance(statement, ast.If) and _asks_of(statement.test, layer)
    return asked and all(_only_if_asked(each, layer) for each in others)


def _asks_of(test: ast.expr, layer: ast.expr) -> bool:
    """`isinstance(layer, nn.Linear)`, `hasattr(layer, "weight")`, `type(layer) is Block`"""
    calls = [each for each in ast.walk(test) if isinstance(each, ast.Call) and each.args]
    asking = [each for each in calls if ast.unparse(each.func) in ("isinstance", "hasattr", "type")]
    return any(ast.unparse(each.args[0]) == ast.unparse(layer) for each in asking)


def _names_wrapped_keys(node: ast.expr, parent: ast.AST | None, source: Source) -> bool:
    """`model.state_dict()` in a function that asks `hasattr(model, "module")`, and puts "module." before the keys or
    takes it off: it knows the keys of a wrapper, and would not find those of the model inside."""
    if not isinstance(parent, ast.Attribute) or parent.attr not in KEYED:
        return False
    name, inside = ast.unparse(node), list(ast.walk(source.home(node)))
    if any(
        isinstance(each, ast.Attribute) and each.attr == "module" and ast.unparse(each.value) == name for each in inside
    ):
        return False
    asked = f"hasattr({name}, 'module')"
    return any(isinstance(each, ast.Call) and ast.unparse(each) == asked for each in inside) and any(
        isinstance(each, ast.Constant) and isinstance(each.value, str) and each.value.startswith("module.")
        for each in inside
    )


def _averages_weights(thing: object, run: Interpreter) -> bool:
    """Whether a class of the project is one of `AveragedModel`, which copies the model that it is given."""
    return isinstance(thing, Class) and any(
        External("torch.optim.swa_utils.AveragedModel") in run.values.get(base, NOTHING).things
        for cls in thing.line()
        for base in cls.node.bases
    )


def _saved(run: Interpreter) -> Iterator[ast.expr]:
    """What is put into a dict that is saved: `{"net": net.module if parallel else net}`."""
    for event in run.of("save"):
        for given in event.node.args if isinstance(event.node, ast.Call) else ():
            for thing in run.values.get(given, NOTHING).things:
                for _, expression in thing.stores if isinstance(thing, Table) else ():
                    if isinstance(expression, ast.IfExp):
                        yield from (expression.body, expression.orelse)
                    else:
                        yield expression


def _takes_module(node: ast.AST, parent: ast.AST | None, run: Interpreter) -> bool:
    """`torch.save(model)`, `copy.deepcopy(model)`, `{"model": model}`, `DDPMPipeline(unet=model)` mean the
    model itself."""
    if isinstance(parent, ast.keyword):
        call = run.sources[node].parents[parent] if isinstance(node, ast.expr) and node in run.sources else None
        return isinstance(call, ast.Call) and any(map(PIPELINES.match, _called(call, run)))
    if isinstance(parent, ast.Call) and node in parent.args:
        if _asks_about(node, parent, run):
            return True
        if isinstance(parent.func, ast.Attribute) and parent.func.attr == "add_graph":
            return True
        if any(_averages_weights(thing, run) for thing in run.values.get(parent.func, NOTHING).things):
            return True
        names = _called(parent, run)
        return any("summary" in name or PIPELINES.match(name) for name in names) or bool(
            names
            & {
                "builtins.print",
                "builtins.len",
                "builtins.enumerate",
                "builtins.iter",
                "builtins.list",
                "builtins.reversed",
                "builtins.tuple",
                "builtins.zip",
                "builtins.str",
                "builtins.repr",
                "torch.save",
                "copy.deepcopy",
                "copy.copy",
                "torch.jit.save",
                "torch.jit.script",
                "torch.onnx.export",
                "torch.jit.trace",
                "torch.jit.trace_module",
                "torch.export.export",
                "torch.onnx.dynamo_export",
                "torch.optim.swa_utils.AveragedModel",
                "timm.optim.create_optimizer",
                "timm.optim.create_optimizer_v2",
                "timm.utils.ModelEma",
                "timm.utils.ModelEmaV2",
                "timm.utils.ModelEmaV3",
                "ema_pytorch.EMA",
            }
        )
    return False


def _called(call: ast.Call, run: Interpreter) -> set[str]:
    """The names of what is called, if it is of libraries."""
    return {t.name for t in run.values.get(call.func, NOTHING).things if isinstance(t, External)}


def _asks_about(node: ast.AST, call: ast.Call, run: Interpreter) -> bool:
    """`hasattr(model, "blocks")`, `setattr(model, name, value)`, `isinstance(model, Net)`, `type(model)`, and both
    models of `getattr(model, "_orig_mod", model)`."""
    names = {t.name for t in run.values.get(call.func, NOTHING).things if isinstance(t, External)}
    falls_back = "builtins.getattr" in names and len(call.args) == 3 and node is call.args[2]
    if not names & QUESTIONS or call.args[0] is not node and not falls_back:
        return False
    if "builtins.isinstance" in names:
        return not _is_wrapper_or_any(call.args[1], run)
    asked = call.args[1] if len(call.args) > 1 else None
    name = asked.value if isinstance(asked, ast.Constant) else None
    return "builtins.setattr" in names or name not in SAFE_ON_WRAPPER


def _is_wrapper_or_any(classes: ast.expr, run: Interpreter) -> bool:
    """Whether all of the classes are modules of any kind, wrappers of one, or what no module is: `list`."""
    given = classes.elts if isinstance(classes, ast.Tuple) else [classes]
    names = [t.name if isinstance(t, External) else "" for each in given for t in run.values.get(each, NOTHING).things]
    any_kind = ("builtins.", "collections.abc.")
    return bool(names) and all(
        name == "torch.nn.Module" or name.startswith(any_kind) or name.endswith("Parallel") for name in names
    )
