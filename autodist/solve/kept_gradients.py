"""Whether a gradient may be read after a later backward pass has run.

`old = p.grad` keeps a tensor that the next step leaves alone, unless DistributedDataParallel makes gradients views of
its buckets: then it holds those of the next step. A name may stand for a gradient within a step. Where one is put into
an attribute or an element, given to a function that is not known, or set by the script, it may be kept for longer.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cached_property

from autodist.program import VIEWS, Operation, Program, closure, held
from autodist.solve.steps import changes_in_place, given, is_constant
from autodist.source import Source, last_name, walk

READ = ("grad", "_grad")
COPIES = frozenset(["clone", "deepcopy", "item", "tolist"])
"""Operations of the classes of what shares memory that give a copy."""
MADE = frozenset("fill fill_like arange random random_like fact length".split())
"""Classes of operations that make tensors to which no gradient flows."""
SHARING = frozenset("same container expand index select".split())
"""Classes of operations whose results may share the memory of what they are given."""
CHOOSING = ("builtins.max", "builtins.min", "torch.Tensor.expand_as")
"""Other operations whose results may be one of what they are given, or share its memory."""
TAKING = (".detach_", ".set_")
"""Ends of the names of operations that no gradient in a bucket allows, or that share its memory with another tensor."""
STORING = ("setattr", "setitem")
"""The last parts of the names of operations that keep what they are given, without the underscores around them."""
FUNCTIONS = ("torch.", "numpy.")
"""The beginnings of the names of functions that keep nothing of what they are given."""
STRUCTURE = ("getitem", "setitem", "setattr", "iterate", "operator.", "builtins.")
"""The beginnings of operations of Python itself, which keep nothing but what an expression says."""
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)
CHOSEN = (ast.If, ast.For, ast.While, ast.Try, ast.IfExp, ast.BoolOp)
"""What may leave out a part of itself."""
PASSED_ON = (ast.expr, ast.comprehension, ast.Expr, ast.Return, ast.If, ast.While, ast.Assert, ast.For)
"""What an expression may stand in, and be kept no longer than the value of that."""


def keeps_gradients(program: Program, sources: Iterable[Source]) -> bool:
    """Whether gradients may be read after a later backward pass, are detached in place, or set by the script."""
    return KeptGradients(program).found(sources)


class KeptGradients:
    """The gradients that a script reads, and what shares their memory."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._backward = [each.operation for each in program.of("backward")]
        self._read = frozenset(each for each in program.operations if _is_read(each))
        self._shared = closure(self._read, lambda op: (each for each in program.users[op] if self._shares(each, op)))
        self._users = closure(self._shared, lambda op: program.users[op] if op in self._shared else ())

    def found(self, sources: Iterable[Source]) -> bool:
        """Whether one may be kept."""
        if any("create_graph" in each.keywords for each in self._backward):
            return True
        if any(self._is_unknown(each) or each.name.endswith(TAKING) for each in self._users):
            return True
        if any(self._takes_on_gradient(each) for each in self._users):
            return True
        return any(self._is_kept(node, source) for source in sources for node in walk(source.tree))

    def _shares(self, user: Operation, operation: Operation) -> bool:
        """Whether what an operation gives may share memory with one of those that it is given."""
        last = user.name.rpartition(".")[2]
        if last in VIEWS or changes_in_place(user):
            return any(operation in held(each) for each in user.inputs[:1])
        known = user.known
        shares = known is None or known.cls in SHARING or user.name in CHOOSING
        return last not in COPIES and shares and not _compares(user)

    def _is_unknown(self, operation: Operation) -> bool:
        """Whether it is given a gradient, and may keep it for all that is known."""
        if self._shared.isdisjoint(given(operation)) or operation.name.startswith(STRUCTURE):
            return False
        makes = operation.name.endswith("__init__")
        return operation.known is None and (makes or not operation.name.startswith(FUNCTIONS))

    def _takes_on_gradient(self, operation: Operation) -> bool:
        """Whether a gradient is changed in place by what needs one itself, `p.grad.add_(p)`, which no view allows."""
        if operation.name != "setitem" and not changes_in_place(operation) or operation.region.without_gradients:
            return False
        base, *others = operation.inputs
        if self._shared.isdisjoint(held(base)):
            return False
        stop = self._read.__contains__
        behind = {each for value in (*others, *operation.keywords.values()) for each in held(value)} - self._read
        behind = closure(behind, lambda op: () if is_constant(op) else (e for e in given(op) if not stop(e)))
        return any(not is_constant(each) and self._may_learn(each) for each in behind - self._shared)

    def _may_learn(self, operation: Operation) -> bool:
        """Whether a gradient may flow to it that nothing it is given shows: a parameter, or what a module computes."""
        if operation.owner is not None or "parameters" in operation.name:
            return True
        known = operation.known
        return not given(operation) and (known is None or known.cls not in MADE)

    def _is_kept(self, node: ast.AST, source: Source) -> bool:
        if self._names_gradient(node, source):
            return True
        if isinstance(node, ast.Attribute) and node.attr in READ and isinstance(node.ctx, ast.Load):
            call = source.parents[node]
            called = isinstance(call, ast.Call) and call.func is node  # `torch.autograd.grad(…)`
            if not called and not self._program.at(node).operations:
                return True  # in what is not followed
        if not isinstance(node, ast.expr) or not isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
            return False
        shared = self._shared.intersection(held(self._program.at(node))) if self._shared else ()
        if not shared:
            return False
        if self._goes_elsewhere(node, source):
            return True
        return isinstance(node, ast.Name) and any(self._is_late(each, node, source) for each in _unchanged(shared))

    def _names_gradient(self, node: ast.AST, source: Source) -> bool:
        """Whether a gradient is set, `p.grad = g`, or read or set by the attribute's name in a way not followed."""
        parent = source.parents.get(node)
        if isinstance(node, ast.Attribute) and node.attr in READ and isinstance(node.ctx, ast.Store):
            emptied = isinstance(parent, ast.Assign) and isinstance(parent.value, ast.Constant)
            return not emptied and not isinstance(parent, ast.AugAssign)
        if isinstance(node, ast.Constant) and node.value in READ and isinstance(parent, ast.Call):
            known = any(each.known for each in self._program.made_at.get(parent, ()))
            return last_name(parent.func) not in ("getattr", "hasattr") and not known
        return False

    def _goes_elsewhere(self, node: ast.expr, source: Source) -> bool:
        """Whether an expression is bound to more than a name."""
        parent = source.parents[node]
        while isinstance(parent, (ast.keyword, ast.Starred)):
            parent = source.parents[parent]
        if isinstance(parent, ast.Call) and parent.func is not node:
            called = self._program.at(parent.func).things
            entered = any(getattr(thing, "node", None) in self._functions for thing in called)
            made, given = self._program.made_at.get(parent), self._program.at(node).operations
            return not entered and (made is None or any(_stores(each) and given & each.given for each in made))
        if isinstance(parent, (ast.Return, ast.Lambda)):
            return (parent if isinstance(parent, ast.Lambda) else source.function(node)) in self._called_back
        if isinstance(parent, (ast.Assign, ast.AnnAssign)):
            targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target]
            return not all(isinstance(each, (ast.Name, ast.Tuple, ast.List)) for each in targets)
        if isinstance(parent, ast.AugAssign):
            return bool(self._program.at(node).things)  # `kept += [p.grad]`
        return not isinstance(parent, PASSED_ON) or isinstance(parent, (ast.Yield, ast.YieldFrom))

    @cached_property
    def _functions(self) -> frozenset[ast.AST]:
        return frozenset(each.function for each in self._program.calls if each.function is not None)

    @cached_property
    def _called_back(self) -> frozenset[ast.AST]:
        """The functions that are called by others which are not known, and may keep what these give."""
        at = {each.node for each in self._program.operations if each.name == "callback"}
        return frozenset(each.function for each in self._program.calls if each.function is not None and each.node in at)

    def _is_late(self, operation: Operation, name: ast.Name, source: Source) -> bool:
        """Whether a name may be read behind a backward pass that came after what it stands for."""
        if _outlives_round(name, source):
            return True
        root: ast.AST = name
        while not isinstance(source.parents[root], ast.stmt):
            root = source.parents[root]
        users = [user for part in walk(root) for user in self._program.made_at.get(part, ())]
        return any(self._is_later(operation, user) for user in users)

    def _is_later(self, operation: Operation, user: Operation) -> bool:
        fresh = {each for each in user.region.everywhere - operation.region.everywhere if each.kind == "loop"}
        for each in self._backward:
            if operation.number < each.number < user.number or each.region.loops & fresh:
                return True
        called = [each for each in user.region.around() if each not in operation.region.everywhere]
        return any(each.others for each in called)  # in a function that is called again, maybe with the same


def _outlives_round(name: ast.Name, source: Source) -> bool:
    """Whether a name may be read in another round of a loop, or another call, than the one that bound it."""
    home, stores = source.home(name), source.stores(name)
    outer = list(source.ancestors(name))
    inner = outer[: outer.index(home)]
    targets = [loop.target for each in inner if isinstance(each, COMPREHENSIONS) for loop in each.generators]
    if any(store in walk(target) for target in targets for store in stores):
        return False
    if any(isinstance(each, ast.Lambda) for each in inner):
        return True
    if any(name.id in each.names for each in walk(home) if isinstance(each, (ast.Global, ast.Nonlocal))):
        return True
    if home is not source.tree:
        arguments = [each.arg for each in walk(home) if isinstance(each, ast.arg)]
        if not stores and name.id not in arguments:
            return True
    return any(_is_of_earlier_round(store, name, source) for store in stores)


def _is_of_earlier_round(store: ast.Name, name: ast.Name, source: Source) -> bool:
    """Whether a name that a loop binds is read there before, or where it need not have been bound."""
    around, outer = list(source.ancestors(store)), [name, *source.ancestors(name)]
    common = next(each for each in around if each in outer)
    if not any(isinstance(each, (ast.For, ast.While)) for each in [common, *source.ancestors(common)]):
        return False
    between = around[: around.index(common)]
    optional = any(isinstance(each, CHOSEN) and _is_inside(store, each) for each in between)
    assigned = isinstance(common, (ast.Assign, ast.AnnAssign, ast.AugAssign))  # what it reads, it reads first
    return optional or assigned or (store.lineno, store.col_offset) > (name.lineno, name.col_offset)


def _is_inside(store: ast.Name, statement: ast.AST) -> bool:
    """Whether it is bound in the body of a statement, which may not run, and not by its head."""
    return isinstance(statement, ast.Try) or not any(
        store in walk(part) for part in (getattr(statement, "test", None), getattr(statement, "items", None)) if part
    )


def _is_read(operation: Operation) -> bool:
    """`p.grad`"""
    return operation.name.rpartition(".")[2] in READ and not operation.name.endswith("autograd.grad")


def _stores(operation: Operation) -> bool:
    """`setattr(state, "old", p.grad)`, `operator.setitem(kept, name, p.grad)`"""
    return operation.name.rpartition(".")[2].strip("_") in STORING


def _compares(operation: Operation) -> bool:
    return operation.name in ("operator.is_", "operator.is_not", "operator.contains", "builtins.isinstance")


def _unchanged(shared: Iterable[Operation]) -> Iterator[Operation]:
    """Some operations without those that change in place what others of them give: a name stands for these."""
    every = set(shared)
    for each in every:
        if not changes_in_place(each) or every.isdisjoint(closure([each], given) - {each}):
            yield each
