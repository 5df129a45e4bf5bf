"""Generators that data sets and transforms keep, and that draw more than noise: all ranks must draw splits alike."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from autodist import augmentation
from autodist.interpreter import Interpreter
from autodist.script import Loader, SampleGenerator, Site
from autodist.source import Source, all_of, argument, last_name, spelled, told_once, walk
from autodist.values import Class, External, Function, Object

MAKING = frozenset(
    [
        "numpy.random.default_rng",
        "numpy.random.RandomState",
        "numpy.random.Generator",
        "random.Random",
        "torch.Generator",
    ]
)
ASKED = frozenset("manual_seed initial_seed get_state set_state device bit_generator spawn getstate setstate".split())
"""Attributes of generators that draw nothing."""
SIMPLE = (ast.Constant, ast.Name, ast.Attribute, ast.BinOp, ast.Add, ast.expr_context)
"""What a seed is made of that can be said once more."""


def kept_generators(
    loaders: Iterable[Loader], by_rank: Iterable[ast.AST], run: Interpreter
) -> tuple[tuple[SampleGenerator, ...], tuple[Site, ...]]:
    """The generators that begin alike on all ranks, and from which samples of training loaders are drawn, besides those
    that are seeded ``by_rank`` where they are made: such as can begin anew once their object has drawn all else, and
    the others."""
    ours = {each.object: each.iterable for each in loaders}  # of a stream, each rank draws for all samples
    functions = {each.node: each for loader in ours for each in augmentation.reading(loader, ours[loader])}
    others = (
        {t for event in run.of("loader") for t in event.value.objects("loader")} - ours.keys() if functions else set()
    )
    elsewhere = {each.node for loader in others for each in augmentation.reading(loader)}
    again: dict[ast.AST, SampleGenerator] = {}
    left: dict[ast.AST, Site] = {}
    settled = {*by_rank, *(event.node for event in run.of("unseeded"))}
    for function in functions.values():
        left |= {each.node: each for each in _given_one(function, run)}
        for site, named in _drawn_from(function, run):
            if site.node in settled or _is_made_for_a_sample(site, functions) or _is_seeded_again(named, function):
                continue
            found = None if function.node in elsewhere else _begun_anew(site, named, function, functions, run)
            if found is not None:
                again[site.node] = found
            else:
                left[site.node] = site
    return tuple(again.values()), tuple(each for node, each in left.items() if node not in again)


def _is_made_for_a_sample(site: Site, functions: Iterable[ast.AST]) -> bool:
    """`np.random.default_rng(index)`: not by a seed that all samples have."""
    named = any(isinstance(each, ast.Name) and isinstance(site.node, ast.Call) for each in _seeds(site.node))
    return named and any(each in functions for each in site.source.ancestors(site.node))


def _is_seeded_again(name: ast.expr, function: Function) -> bool:
    """`self.rng.manual_seed(index)`"""
    methods = [each.func for each in walk(function.node) if isinstance(each, ast.Call) and each.args]
    seeds = [each for each in methods if isinstance(each, ast.Attribute) and each.attr in ("manual_seed", "seed")]
    return any(ast.dump(each.value) == ast.dump(name) for each in seeds)


def _seeds(made: ast.AST) -> Iterator[ast.AST]:
    assert isinstance(made, ast.Call)
    return (node for given in (*made.args, *(each.value for each in made.keywords)) for node in walk(given))


def _drawn_from(function: Function, run: Interpreter) -> Iterator[tuple[Site, ast.expr]]:
    """The calls that make what a function draws from, or passes on, and by which name it does so. Where it is told a
    generator of which that is not known, the call that draws."""
    for node in walk(function.node):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            parent = function.source.parents[node]
            if isinstance(parent, ast.Attribute) and parent.attr in ASKED or isinstance(parent, ast.Compare):
                continue
            made = [Site(each.source, each.node) for each in augmentation.generators(node, function)]
            yield from ((site, node) for site in made or _made_for(node, function, run))


def _given_one(function: Function, run: Interpreter) -> Iterator[Site]:
    """Draws from a generator that an object is given: it is not known which."""
    for call in all_of(function.node, ast.Call):
        given = argument(call, "generator")
        if isinstance(given, ast.Attribute) and not any(_made_for(given, function, run)):
            if any("Generator(" in source.text for source in run.project.sources):
                yield Site(function.source, call)


def _made_for(name: ast.expr, function: Function, run: Interpreter) -> Iterator[Site]:
    """The calls that make the generator that a module, a class, or an object that reads samples has by a name."""
    cls = _class_of(function)
    for source, statement in _binding(name, function.source, cls, function.node):
        yield from (Site(source, each) for each in _results(statement.value) if _maker(each, run))


def _results(node: ast.expr) -> Iterator[ast.Call]:
    """The calls whose result an expression may be, `torch.Generator().manual_seed(3)`; not those of its arguments."""
    match node:
        case ast.Call(func=ast.Attribute(value=base)):
            yield node
            yield from _results(base)
        case ast.Call():
            yield node
        case ast.IfExp(body=one, orelse=other):
            yield from (*_results(one), *_results(other))
        case ast.BoolOp(values=values):
            yield from (each for value in values for each in _results(value))


def _binding(
    name: ast.expr, source: Source, cls: Class | None, function: ast.AST
) -> Iterator[tuple[Source, ast.Assign]]:
    """The statements that bind a name of a module, or an attribute of a class or its objects."""
    if isinstance(name, ast.Attribute):
        for each in cls.line() if cls is not None else ():
            for node in all_of(each.node, ast.Assign):
                stored = spelled(name) if node not in each.node.body else name.attr
                if any(spelled(target) == stored for target in node.targets):
                    yield each.scope.source, node
    elif isinstance(name, ast.Name) and name.id not in _own_names(function):
        for statement in source.tree.body:
            if isinstance(statement, ast.Assign) and any(spelled(target) == name.id for target in statement.targets):
                yield source, statement


@told_once
def _own_names(function: ast.AST) -> set[str]:
    """The parameters and variables of a function."""
    nodes = [*walk(function)]
    stored = {each.id for each in nodes if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    return stored | {each.arg for each in nodes if isinstance(each, ast.arg)}


def _class_of(function: Function) -> Class | None:
    return function.owner.cls if isinstance(function.owner, Object) else function.defined_in


def _maker(call: ast.Call, run: Interpreter) -> str:
    if call.func not in run.values:  # no loader is followed into what reads its samples
        return next((each for each in sorted(MAKING) if each.endswith("." + last_name(call.func))), "")
    names = (each.name for each in run.values[call.func].things if isinstance(each, External))
    return next((each for each in names if each in MAKING), "")


def _begun_anew(
    site: Site, name: ast.expr, function: Function, reading: Iterable[ast.AST], run: Interpreter
) -> SampleGenerator | None:
    """How a generator begins anew at the end of the constructor that makes it, where nothing but samples is drawn from
    it later."""
    cls, source = _class_of(function), site.source
    method, statement = source.function(site.node), source.statement(site.node)
    made = site.node
    if cls is None or method is None or method.name != "__init__" or not isinstance(made, ast.Call):
        return None
    if not isinstance(statement, ast.Assign) or [*map(spelled, statement.targets)] != [spelled(name)]:
        return None
    ends = any(isinstance(each, ast.Return) for each in walk(method))
    if ends or statement not in method.body or not isinstance(name, ast.Attribute):
        return None
    seed = None
    if _maker(made, run) != "torch.Generator":
        seed = next((each for key in ("seed", "x") if (each := argument(made, key, 0)) is not None), None)
        if statement.value is not made or not _is_there_later(seed, method):
            return None
    within = {*walk(method), *(node for each in reading for node in walk(each))}
    if any(not _is_drawn_within(each, made, within, cls, run) for each in _uses(name.attr, cls, run)):
        return None
    return SampleGenerator(source, made, source.code(name), method.body[-1], seed)


def _is_there_later(seed: ast.expr | None, method: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a seed is the same at the end of a constructor."""
    if seed is None or not all(isinstance(each, SIMPLE) for each in walk(seed)):
        return False
    stored = {n.id for n in walk(method) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    constants = all(isinstance(each.value, int) for each in all_of(seed, ast.Constant))
    return constants and stored.isdisjoint(n.id for n in all_of(seed, ast.Name))


def _uses(attribute: str, cls: Class, run: Interpreter) -> Iterator[tuple[Source, ast.Attribute]]:
    """Where something is drawn from what objects of a class have by a name, or passed on."""
    classes = {each.node for each in cls.line()}
    for source in (each for each in run.project.sources if attribute in each.text):
        for node in walk(source.tree):
            if not isinstance(node, ast.Attribute) or node.attr != attribute or not isinstance(node.ctx, ast.Load):
                continue
            home = next((each for each in source.ancestors(node) if isinstance(each, ast.ClassDef)), None)
            other = home is not None and home not in classes and ast.unparse(node.value) == "self"
            parent = source.parents[node]
            if not other and not (isinstance(parent, ast.Attribute) and parent.attr in ASKED):
                yield source, node


def _is_drawn_within(
    use: tuple[Source, ast.Attribute], made: ast.Call, within: set[ast.AST], cls: Class, run: Interpreter
) -> bool:
    """Whether a use is in the constructor, where samples are read, or in a method that is called there alone."""
    source, node = use
    home = source.function(node)
    if node in within:
        return True
    if home is None or home not in (each for holder in cls.line() for each in holder.node.body):
        return False
    name = home.name
    named = [n for each in run.project.sources for n in walk(each.tree) if getattr(n, "attr", None) == name]
    return bool(named) and all(each in within for each in named)
