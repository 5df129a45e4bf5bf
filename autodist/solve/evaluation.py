"""Evaluations that are shared out: each rank takes whole batches of its own, and what leaves the loop over them is made
global behind it.

Whatever is computed of one batch is what one process computes of it, batch statistics, means and extremes among it: it
lies as what a loop over single samples comes to does. What rounds add up, keep the largest of or put into a list lies
as after such a loop. The one demand is that all which is read behind the loop is replicated; what else the rounds
leave, or do beside, is a reason to evaluate everything on every rank.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cached_property

from autodist.catalog import RANDOM_ROLES, Catalog
from autodist.placement import Each, Partial, PerRank, Replicate
from autodist.placement.arguments import gives_zeros
from autodist.placement.placements import Placements
from autodist.placement.plan import Plan
from autodist.placement.propagate import propagate
from autodist.program import Operation, Program, Value, closure, held, joined
from autodist.solve.objects import Objects
from autodist.solve.rounds import Left, Shared, whole_placements
from autodist.solve.steps import all_held, changes_in_place
from autodist.solve.stores import (
    begins_empty,
    begins_with_zeros,
    changes,
    is_path,
    is_read,
    only_adds,
    owner_of,
    root_of,
    spells,
)
from autodist.source import all_of, last_name, shortened, walk
from autodist.trace.things import Heap, Sequence
from autodist.trace.things import Mapping as Table

GRAPH = frozenset("iterate range.index getitem setitem sample list.repeat recursion data.index data.length".split())
"""Operations of the graph itself, that do nothing beside giving a value."""
RANDOM = frozenset("random random_like".split())
BETWEEN = frozenset("collective rank".split())
PURE_ROLES = frozenset(
    "module loss loss_function plain_torch no_grad set_grad_enabled clock progress library read exists batch_norm "
    "stored cuda_available device_count sampler dataset parameter applies numpy_shuffle".split()
)
"""Roles of what changes nothing beside the value that it gives."""
PURE = ("math.", "time.", "str.", "operator.", "itertools.", "functools.", "collections.", "copy.", "re.", "builtins.")
READ = ("numpy.", "scipy.", "sklearn.metrics.", "torchvision.ops.", "torch.", "einops.", "PIL.", "skimage.metrics.")
"""Libraries whose functions change nothing beside, where somebody reads what they give."""
DOING = frozenset("print input open exec eval setattr delattr next iter globals vars".split())
ASKING = frozenset(
    "eval forward to cpu cuda parameters named_parameters buffers named_buffers modules named_modules children "
    "named_children state_dict get_parameter get_buffer get_submodule".split()
)
"""Methods of modules that change nothing, once they were called before."""
HOOKS = ("register_forward_hook", "register_forward_pre_hook", "register_module_forward_hook")
WRITING = frozenset("at copyto put place putmask fill_diagonal put_along_axis save savez savetxt tofile".split())
"""Functions of libraries that change what they are given."""
ON_HOST = (".item", ".tolist", ".cpu", ".numpy")
LEAVING = (ast.Break, ast.Return, ast.Yield, ast.YieldFrom, ast.Await)
LOOPS = (ast.For, ast.AsyncFor, ast.While)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def shared_out(shared: Shared, program: Program, catalog: Catalog, base: Placements) -> Shared:
    """The same loop with what is made global behind it, and what speaks against sharing it out; ``base`` are the
    placements where nothing is."""
    _Judged(shared, program, catalog, base).judge()
    return shared


def whole(program: Program, catalog: Catalog) -> Placements:
    """How values lie where every rank has all of the data."""
    return propagate(program, Plan(whole_placements), catalog=catalog)


class _Judged(Objects):
    """What speaks against sharing the rounds of a loop out, and what they leave."""

    def judge(self) -> None:
        """Find what is left behind, and what speaks against."""
        if not self._rounds:
            self._shared.say(self._loop, "no call that leads there is seen")
            return
        for each in self._program.operations:
            if each.name.rpartition(".")[2] in HOOKS:
                self._shared.say(each.node, "a hook of the model may keep what it is given", each.source)
        self._leaves_early()
        self._goes_by_earlier()
        self._does_beside()
        self._changes_outside()
        self._shared.functions = self._code
        self._shared.elsewhere = {
            each.function
            for each in self._program.entered
            if each.function is not None and each.function in self._code and self._rounds.isdisjoint(each.loops)
        }
        self._shared.drops = any("dropout" in self._catalog.roles(each.name) for each in self._inside)
        if self._shared.is_exact and self._shared.listing is not None:
            self._judge_listing(self._shared.listing)
        elif self._shared.is_exact:
            self._judge_objects()
            for code, stores in self._stored.items():
                self._judge_left(code, stores)

    # what speaks against

    def _leaves_early(self) -> None:
        """Loops that may end before their data do."""
        if getattr(self._loop, "orelse", None):
            self._shared.say(self._loop, "the loop has an else")
        for each in walk(self._loop):
            inner = next((a for a in self._source.ancestors(each) if isinstance(a, (*LOOPS, *FUNCTIONS))), None)
            if isinstance(each, FUNCTIONS) and not isinstance(each, ast.Lambda):
                self._shared.say(each, "it defines a function in each round")
            elif isinstance(each, ast.Break) and inner is self._loop or isinstance(each, LEAVING[1:]):
                if inner is None or not isinstance(inner, FUNCTIONS) or inner in self._source.ancestors(self._loop):
                    self._shared.say(each, "the loop may end before its data do")

    def _goes_by_earlier(self) -> None:
        """What a round does otherwise for those before it: ranks have other ones."""
        for name in self._counted_by():
            within = [
                each for each in all_of(self._loop, ast.Name) if each.id == name and isinstance(each.ctx, ast.Load)
            ]
            for read in [*within, *self._read_outside(name)][:1]:
                self._shared.say(read, f"{name} is the number of a batch, and each rank counts its own")
        for effect in self._program.of("test"):
            if effect.operation in self._going_on:
                code = shortened(ast.unparse(effect.operation.node))
                self._shared.say(effect.operation.node, f"{code} goes by the batches before", effect.operation.source)
        for statement in all_of(self._loop, ast.AugAssign):
            target = statement.target
            if isinstance(target, ast.Name) and not self._program.at(target).operations:
                if any(spells(n, target.id) and isinstance(n.ctx, ast.Load) for n in all_of(self._loop, ast.Name)):
                    self._shared.say(statement, f"{target.id} goes on from batch to batch, and is read in the loop")

    def _counted_by(self) -> list[str]:
        """The names that are bound to numbers of batches: `i` of `for i, (x, y) in enumerate(loader)`."""
        calls = [each for each in all_of(self._shared.loop.iter, ast.Call) if last_name(each.func) == "enumerate"]
        target = self._shared.loop.target
        counts = target.elts[0] if isinstance(target, ast.Tuple) and target.elts else target
        return [each.id for each in all_of(counts, ast.Name)] if calls else []

    def _does_beside(self) -> None:
        """Operations that do something beside giving a value."""
        for each in sorted(self._inside, key=lambda op: op.number):
            if (reason := self._wrong(each)) is not None:
                self._shared.say(each.node, reason, each.source)
        for effect in self._program.effects:
            loads = {"load"} if any(each.node in self._loading for each in effect.region.around()) else set()
            if effect.operation in self._inside and effect.kind not in PURE_ROLES | {"test", "make", "dropout"} | loads:
                if not effect.kind.startswith(("module.", "progress.", "loader.", "wrapped.")):
                    code = shortened(ast.unparse(effect.operation.node))
                    self._shared.say(effect.operation.node, f"{code} stands in the loop", effect.operation.source)

    def _wrong(self, operation: Operation) -> str | None:
        """Why an operation is not to run in some rounds on one rank, and in others on another."""
        name, short = operation.name, operation.name.rpartition(".")[2]
        roles = self._catalog.roles(name)
        owner: frozenset[str] = getattr(operation.owner, "roles", frozenset())
        code = shortened(ast.unparse(operation.node)) if isinstance(operation.node, ast.expr) else name
        known = self._program.table.find("torch.Tensor." + short if name.startswith("object.") else name)
        draws = bool(RANDOM_ROLES & roles) or "dropout" in roles or known is not None and known.cls in RANDOM
        in_training = "dropout" in roles and (
            "dropout" in owner or "module" in owner or "training" in operation.keywords
        )
        if draws and not in_training:
            return f"{code} draws anew for each batch"
        loads = any(each.node in self._loading for each in operation.region.around())  # it computes a sample
        if roles - PURE_ROLES - {"dropout", *({"load"} if loads else ())} or known is not None and known.cls in BETWEEN:
            return f"{code} stands in the loop"
        reads = isinstance(operation.node, (ast.Attribute, ast.Name)) and name.startswith("object.")
        if name in GRAPH or name.startswith("loader.") or reads:
            return None
        if "module" in owner or "loss" in owner:
            asks = not name.startswith("torch.nn.Module.") or short in ASKING
            return None if asks else f"{code} changes the model"
        if "progress" in owner:
            return f"{code} shows what each rank has of its own" if self._is_given_some(operation) else None
        if "out" in operation.keywords or not name.startswith(("torch.Tensor.", "builtins.")) and short in WRITING:
            return f"{code} changes what it is given"
        if known is not None:
            return None
        if name.startswith(PURE) and short not in DOING or name.endswith(".__init__") and name.startswith("torch.nn."):
            return None
        if operation.node in self._loading:
            return None  # a data set of a library runs what it was given, for a sample
        called = operation.inputs[0].operations if name == "call" and operation.inputs else frozenset()
        of_library = bool(called) and all(each.name.startswith(READ) for each in called)  # `checkpoint(layer)(x)`
        if (
            (loads or of_library or name.startswith(READ))
            and not short.endswith("_")
            and (self._program.users[operation] or not operation.inputs)
        ):
            return None
        return f"it is not known what {code} does beside"

    def _is_given_some(self, operation: Operation) -> bool:
        return not self._inside.isdisjoint(all_held(operation.operands))

    # what is changed

    def _changes_outside(self) -> None:
        """What rounds change that was there before them, other than by what is judged as left behind."""
        for function, source in self._code.items():
            if any(all_of(function, ast.Global, ast.Nonlocal)):
                self._shared.say(function, "a function that the loop calls binds a global name", source)
            added = (each.target for each in all_of(function, ast.AugAssign) if isinstance(each.target, ast.Name))
            for node, base in (*changes(function), *((each, each) for each in added if self._is_kept(each))):
                if not self._is_own(owner_of(node, base)) and not self._cells_of(node, base):
                    self._shared.say(node, f"{shortened(ast.unparse(base))} is changed in each round", source)
        for node, base in self._changes():
            root = root_of(base)
            if not self._is_own(owner_of(node, base)) and self._begun(ast.unparse(root)) is None:
                self._shared.say(node, f"{shortened(ast.unparse(base))} holds more than what the loop puts in")
        self._reads_what_grows()
        self._grows_unseen()
        for each in self._inside:
            if changes_in_place(each) and not isinstance(each.node, ast.AugAssign) and each.inputs:
                func = getattr(each.node, "func", None)
                place = func.value if isinstance(func, ast.Attribute) else None
                own = self._are_own(all_held(each.inputs[:1]))
                lexical = self._loop in each.source.ancestors(each.node)
                if not own and not (lexical and place is not None and self._begun(ast.unparse(place)) is not None):
                    self._shared.say(
                        each.node, f"{shortened(ast.unparse(each.node))} changes what was there", each.source
                    )

    def _grows_unseen(self) -> None:
        """Lists that rounds fill by another name for a method of theirs: `keep = kept.append`"""
        known = {node for root in (self._loop, *self._code) for node, _ in changes(root)}
        lists = {each for value in self._program.values.values() for each in value.things if isinstance(each, Sequence)}
        for each in sorted(lists, key=lambda one: getattr(one.node, "lineno", 0)):
            for node, region in each.stores.items():
                inside = not self._rounds.isdisjoint(region.loops) and self._rounds.isdisjoint(each.guards)
                if inside and isinstance(node, ast.Call) and node not in known:
                    self._shared.say(node, f"{shortened(ast.unparse(node))} changes what was there", region.source)

    def _reads_what_grows(self) -> None:
        """What was there before and is added to: that must be the loop's alone, and not be read between."""
        grown = {id(root_of(base)): root_of(base) for _, base in self._changes()}
        added = [each.target for each in all_of(self._loop, ast.AugAssign) if is_path(each.target)]
        for base in (*grown.values(), *added):
            value, code = self._program.at(base), ast.unparse(base)
            if not self._is_kept(base) or self._is_own(base):
                continue
            if self._begun(code) is None:
                self._shared.say(base, f"{shortened(code)} holds more than what the loop puts in")
            for each in walk(self._loop):
                read = spells(each, code) and isinstance(getattr(each, "ctx", None), ast.Load) and id(each) not in grown
                if read and any(isinstance(thing, Heap) for thing in value.things):
                    self._shared.say(each, f"{shortened(code)} is read in the loop that fills it")

    # what is left

    @cached_property
    def _stored(self) -> dict[str, list[ast.expr]]:
        """What the loop itself binds, adds to or puts something into, by code."""
        found: dict[str, list[ast.expr]] = {}
        bound_inside = {
            id(name) for each in walk(self._loop) if isinstance(each, ast.comprehension) for name in walk(each.target)
        }
        for each in walk(self._loop):
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store) and id(each) not in bound_inside:
                found.setdefault(each.id, []).append(each)
        for root in (root_of(base) for _, base in self._changes()):
            if is_path(root):
                found.setdefault(ast.unparse(root), []).append(root)
        for call in all_of(self._loop, ast.Call):  # `total.add_(x)`
            owner = call.func.value if isinstance(call.func, ast.Attribute) else None
            if owner is not None and is_path(owner) and any(map(changes_in_place, self._program.at(call).operations)):
                found.setdefault(ast.unparse(owner), []).append(owner)
        return found

    def _read_outside(self, code: str) -> list[ast.expr]:
        """Where it is read that has been stored in the loop, outside of that."""
        attribute = "." in code
        trees = {each.source: each.source.tree for each in self._program.operations}
        homes = trees if attribute else {self._source: self._source.home(self._loop)}
        within = set(walk(self._loop))
        name = code.rpartition(".")[2]
        found: list[ast.expr] = []
        for source, home in homes.items():
            for each in walk(home):
                if each in within or not is_read(each, source):
                    continue
                if isinstance(each, ast.Attribute) and attribute and each.attr == name:
                    found.append(each)
                elif isinstance(each, ast.Name) and not attribute and each.id == code:
                    if self._is_same_name(each) and not self._is_bound_anew(each):
                        found.append(each)
        return found

    def _is_same_name(self, read: ast.Name) -> bool:
        """Whether no function between binds the name for itself."""
        own = self._source.home(self._loop)
        for around in self._source.ancestors(read):
            if around is own:
                break
            if isinstance(around, (ast.FunctionDef, ast.AsyncFunctionDef)):
                given = any(isinstance(each, ast.arg) and each.arg == read.id for each in walk(around))
                if given or any(
                    spells(each, read.id) and isinstance(each.ctx, ast.Store) for each in all_of(around, ast.Name)
                ):
                    return False
        return True

    def _is_bound_anew(self, read: ast.Name) -> bool:
        """Whether another loop binds a name in each of its rounds where it is read: `x` of `for x, y in loader`."""
        for around in self._source.ancestors(read):
            if around in self._source.ancestors(self._loop):
                return False
            if isinstance(around, ast.For) and read not in walk(around.iter):
                if any(spells(each, read.id) for each in walk(around.target)):
                    return True
            parts = getattr(around, "generators", ())
            if parts and read not in walk(parts[0].iter):
                if any(spells(each, read.id) for part in parts for each in walk(part.target)):
                    return True
        return False

    def _judge_left(self, code: str, stores: list[ast.expr]) -> None:
        home = walk(self._source.home(self._loop))
        if any(isinstance(each, (ast.Global, ast.Nonlocal)) and code in each.names for each in home):
            self._shared.say(
                stores[0], f"{code} is a variable of the module, or of a function around, which may be read anywhere"
            )
            return
        reads = [each for each in self._read_outside(code) if self._comes_from_here(each, stores)]
        if not reads:
            return
        begun = self._begun(code)
        values = [self._found_at(each) for each in reads]
        apart = {op for value in values for op in value.operations if op in self._inside}
        things = {each for value in values for each in value.things if self._is_filled(each)}
        shown = shortened(code)
        if begun is None:
            self._shared.say(stores[0], f"{shown} is read behind the loop, and goes on from one to the next")
            return
        if not only_adds(self._source, self._loop, code):
            self._shared.say(stores[0], f"{shown}, which is read behind the loop, is not only added to in it")
            return
        if things and not apart:
            self._judge_things(code, stores[0], begun, things)
            return
        if things or not apart and not self._counts(code, begun):
            self._shared.say(stores[0], f"{shown}, which is read behind the loop, is that of the last batch")
            return
        lying = self._placements.joint(apart) if apart else Partial("sum")
        if isinstance(lying, Partial) and not lying.exponent and lying.reduce != "mean":
            self._shared.left.append(Left(code, lying.reduce, any(map(_may_be_on_gpu, apart))))
            return
        reason = f": {lying.reason}" if isinstance(lying, PerRank) else ""
        self._shared.say(stores[0], f"{shown}, which is read behind the loop, cannot be joined{reason}")

    def _judge_listing(self, listing: ast.ListComp | ast.GeneratorExp) -> None:
        """A list with something of each batch, or numbers that are added up."""
        value = self._program.at(listing.elt)
        lying = self._placements.joint(value.operations)
        if self._stored or any(all_of(listing, ast.NamedExpr)):
            self._shared.say(listing, "it changes what was there before")
        elif value.things or not isinstance(lying, (Each, Replicate, type(None))):
            self._shared.say(listing, "it holds lists or objects of each rank's own")
        elif isinstance(listing, ast.GeneratorExp):
            above = self._source.parents.get(listing)
            plain = isinstance(above, ast.Call) and len(above.args) == 1 and not above.keywords
            if not plain or getattr(above.func, "id", "") != "sum":  # type: ignore[union-attr]
                self._shared.say(listing, "what it gives is neither listed nor added up")

    def _found_at(self, read: ast.expr) -> Value:
        """What is found where something is read: of `total /= n`, what `total` was."""
        if isinstance(read.ctx, ast.Load):  # type: ignore[attr-defined]
            return self._program.at(read)
        made = (op for op in self._program.operations if getattr(op.node, "target", None) is read)
        return joined(op.inputs[0] for op in made if op.inputs)

    def _comes_from_here(self, read: ast.expr, stores: list[ast.expr]) -> bool:
        """Whether what is read may be what the loop has left."""
        value = self._found_at(read)
        if not value.operations.isdisjoint(self._inside) or any(self._is_filled(each) for each in value.things):
            return True
        if value.operations or value.things:
            return False
        below = getattr(read, "lineno", 0) > (self._loop.end_lineno or 0)
        loops = [each for each in self._source.ancestors(self._loop) if isinstance(each, LOOPS)]
        again = any(each in loops for each in self._source.ancestors(read))
        return isinstance(read, ast.Name) and (below or again) and bool(value.constants)

    def _is_filled(self, thing: object) -> bool:
        """Whether rounds put something into a list or a dict that was there before, or it was made in one."""
        if not isinstance(thing, Heap):
            return False
        if not self._rounds.isdisjoint(thing.guards):
            return True
        inside = any(op in self._inside for part in thing.contents() for op in held(part))
        stores = thing.stores.values() if isinstance(thing, Sequence) else ()
        return inside or any(self._rounds & region.loops for region in stores)

    def _counts(self, code: str, begun: ast.expr) -> bool:
        """Whether the loop only adds constants to a number that begins with zero: `batches += 1`"""
        stores = [each for each in walk(self._loop) if spells(each, code) and isinstance(each.ctx, ast.Store)]  # type: ignore[attr-defined]
        above = [self._source.parents[each] for each in stores]
        added = all(isinstance(each, ast.AugAssign) and isinstance(each.op, (ast.Add, ast.Sub)) for each in above)
        read = any(spells(each, code) and isinstance(each.ctx, ast.Load) for each in walk(self._loop))  # type: ignore[attr-defined]
        return added and not read and isinstance(begun, ast.Constant) and begun.value == 0

    def _judge_things(self, code: str, node: ast.expr, begun: ast.expr, things: Iterable[object]) -> None:
        """What is left in lists and dicts."""
        shown, found = shortened(code), [each for each in things if isinstance(each, (Sequence, Table))]
        if len(found) < len([*things]):
            self._shared.say(node, f"{shown}, which is read behind the loop, holds lists or objects of each rank's own")
            return
        if any(not self._rounds.isdisjoint(each.guards) for each in found):
            self._shared.say(node, f"{shown}, which is read behind the loop, is made anew in each round")
            return
        inside = {op for thing in found for part in thing.contents() for op in held(part)}
        on_gpu = any(map(_may_be_on_gpu, inside))
        lists = all(isinstance(each, Sequence) and each.kind == "list" for each in found)
        if lists and begins_empty(begun):
            if any(node not in set(walk(self._loop)) for node in _growing(found)):
                self._shared.say(node, f"{shown} is given more than what the loop puts in")
            elif all(map(self._is_of_rounds, (part for each in found for part in each.contents()))):
                self._shared.left.append(Left(code, "list", on_gpu))
            else:
                self._shared.say(node, f"{shown}, which is read behind the loop, holds what ranks cannot join")
            return
        keyed = all(isinstance(each, Table) for each in found)
        parts = [part for each in found for part in each.contents()]
        nested = any(part.things for part in parts)
        zeros = begins_with_zeros(begun, self._gives_zeros) and all(map(self._is_summed, parts))
        if zeros and (keyed or lists and not nested):
            self._shared.left.append(Left(code, "table" if keyed else "sums", on_gpu))
        else:
            joint = self._placements.joint(inside)
            reason = f": {joint.reason}" if isinstance(joint, PerRank) else ""
            self._shared.say(node, f"{shown}, which is read behind the loop, cannot be joined{reason}")

    def _gives_zeros(self, node: ast.expr) -> bool:
        made = self._program.at(node).operations
        return bool(made) and all(map(gives_zeros, made))

    def _is_summed(self, value: Value) -> bool:
        """Whether it is a sum over rounds, or a list of what they have computed."""
        apart = [op for op in value.operations if self._placements.of.get(op, Replicate()) != Replicate()]
        joint = self._placements.joint(apart)
        if apart and not (isinstance(joint, Partial) and joint.reduce == "sum" and not joint.exponent):
            return False
        lists = [each for each in value.things if isinstance(each, Heap)]
        return all(
            isinstance(each, Sequence)
            and each.kind == "list"
            and (begins_empty(each.node) or isinstance(each.node, ast.Call))
            and all(map(self._is_of_rounds, each.contents()))
            for each in lists
        ) and not (lists and value.operations)


def _growing(found: Iterable[object]) -> set[ast.AST]:
    """Where lists are given elements."""
    return {node for each in found if isinstance(each, Sequence) for node in each.stores}


def _may_be_on_gpu(operation: Operation) -> bool:
    """Whether it may give a tensor on a GPU, and no number or array."""
    made = closure([operation], lambda each: all_held(each.inputs[:1]) if each.name == "iterate" else ())
    return any(each.is_tensor and each.name != "iterate" and not each.name.endswith(ON_HOST) for each in made)
