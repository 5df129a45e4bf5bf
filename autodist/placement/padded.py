"""How values lie along the axis of the words that fill samples up to the longest of a batch: which of them meet there.

The same propagation as over the samples, with another axis taken for the sharded one. What stays sharded computes each
word apart; what is replicated does not depend on how far a batch is filled up. Where words meet, what padded places
hold (`filled.py`) tells whether these count."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from autodist.catalog import Catalog
from autodist.operations import Operation as Known
from autodist.placement import arguments, filled
from autodist.placement.call import OTHER_SIZE, Operand
from autodist.placement.filled import ALIKE, ANYTHING, KEEPING, MASKS, Filled, is_hidden, is_set, is_zero, short
from autodist.placement.lattice import Each, Partial, PerRank, Placement, Replicate, Shard, is_paired
from autodist.placement.placements import Placements
from autodist.placement.plan import Plan
from autodist.placement.propagate import Propagation
from autodist.placement.shapes import Sizes
from autodist.placement.subscripts import subscript
from autodist.program import Operation, Program, Value, closure

COUNTED = "counts the padding"
BACKWARDS = "comes to the padding before the sample itself"
STATE = "is the state behind the padding"
LAST = "takes what is last, which is padding of all samples but the longest"
SHARE = "gives the padding its share"
REACHES = "reaches into the padding"
STATISTIC = "takes batch statistics over the padding, too"
LENGTH = "computes with how long the longest sample is"
UNTOLD = "cannot tell"
"""Begins the reasons of what is not known to leave the padding out, nor to count it."""
REASONS = frozenset([COUNTED, BACKWARDS, STATE, LAST, SHARE, REACHES, STATISTIC, LENGTH, UNTOLD])
MERGED = "words behind words"
"""The order of words whose axis is one with that of the samples."""
LOOKED_AT = frozenset("view filter concatenate batch_statistic sequence loss sample_loss whole".split())
"""Classes of operations that are judged although they seem to leave each word apart."""
NUMBERWISE = frozenset("same linear elementwise add multiply divide random_like container".split())
COMPUTING = ("operator.", "builtins.", "math.")
"""Beginnings of the names of what computes numbers."""
LISTED = ("tensor", "LongTensor", "FloatTensor", "as_tensor", "array")
"""What makes a tensor of lists of numbers."""
OF_WORDS = (".last_hidden_state", ".encoder_last_hidden_state")
"""What models of libraries give for each word."""
RECURRENT = frozenset(["LSTM", "GRU", "RNN"])


def propagate_padding(program: Program, sources: Mapping[Operation, int], catalog: Catalog | None) -> Placements:
    """How all values lie along the words, where what pads gives them along an axis."""
    placed: dict[Operation, Placement] = {each: Shard(axis) for each, axis in sources.items()}
    padded = Padded(program, Plan(lambda _: Replicate(), placed), catalog)
    return padded.run(program.operations)


class Padded(Propagation):
    """Placements along the axis of words."""

    def __init__(self, program: Program, plan: Plan, catalog: Catalog | None) -> None:
        super().__init__(program, plan, catalog)
        self._are_shared_out = False  # each rank goes through all words of a sample
        self._content = Filled(plan.placed)
        self._pairs: set[Operation] = set()

    def _shared(self, operation: Operation) -> tuple[Placement | None, Sizes]:
        if operation in self._plan.placed:
            lies = self._plan.placed[operation]
            _, sizes = super()._shared(operation)
            axis = lies.axis if isinstance(lies, Shard) else 0
            axes = len(sizes) if sizes else 2 * self._has_numbers(operation)
            return lies, tuple(None if at == axis else OTHER_SIZE for at in range(axes)) if axes else None
        placement, sizes = super()._shared(operation)
        if placement is None or operation.name in arguments.SHAPES:
            return placement, sizes
        known = operation.known
        joins = known is not None and known.cls == "concatenate"
        given = arguments.operands(operation, known) if known is not None and joins else operation.operands
        lying = [each for each in map(self._operand, given) if each is not None]
        lost = next((each for each in lying if isinstance(each, PerRank)), None)
        if lost is not None:
            kept = isinstance(placement, (Shard, Each)) or operation.is_tensor and placement == Replicate()
            return lost if kept and lost.reason in REASONS else placement, sizes
        if not any(isinstance(each, (Shard, Each)) for each in lying):
            return self._of_sizes(operation, known, placement, lying), sizes
        told = operation.name == "getitem" and len(operation.inputs) > 1
        if told and sizes is None and self._found.size(operation.inputs[0]):
            base, key = operation.inputs[:2]
            _, sizes = subscript(Replicate(), self._found.size(base), key, lambda _: Replicate(), self._found.size)
        return self._met(operation, known, placement), sizes

    def _has_numbers(self, operation: Operation) -> bool:
        """Whether what is filled up has a number for each word: an index of a table, or a label to leave out."""
        users = self._program.users
        same = closure([operation], lambda op: (each for each in users[op] if short(each) in KEEPING))
        looked_up = any(short(each).lower() == "embedding" for op in same for each in users[op])
        return looked_up or short(operation) in LISTED or self._content.of(Value(frozenset([operation]))) == -100

    def _of_sizes(
        self, operation: Operation, known: Known | None, placement: Placement, lying: list[Placement]
    ) -> Placement:
        """What is computed of no words, but of how long they are: tensors of that size are alike for all words."""
        if filled.counts_from_end(operation, self._tells_words):
            return PerRank(operation.name, LENGTH)
        lengths = [each for each in lying if isinstance(each, Partial)]
        model = operation.inputs[0].operations if operation.name.endswith(OF_WORDS) and operation.inputs else ()
        if any(isinstance(self._operand(value), Shard) for each in model for value in each.operands):
            return Shard(1)
        if lengths and operation.name == "range.index":
            loop = self._taken_by.get(operation.node)
            backwards = loop is not None and "reversed(" in ast.unparse(getattr(loop.node, "iter", loop.node))
            return self._untold(operation) if backwards else Each("rows")
        if not lengths or isinstance(placement, Replicate):
            return Replicate() if isinstance(placement, Shard) else placement
        fill = operation.argument("fill_value", 1 + operation.name.startswith("torch.Tensor."))
        fills = short(operation) == "full" and fill is not None and isinstance(self._operand(fill), Partial)
        if not fills and (known is None or known.cls not in NUMBERWISE and not operation.name.startswith(COMPUTING)):
            return placement if isinstance(placement, (Partial, Each)) else Replicate()
        others = [e for e in operation.given if self._found.of.get(e) == Replicate() and not self._is_size(e)]
        data = any(self._plan.placed.keys() & closure([each], lambda op: op.given) for each in others)
        data |= any(self._tells_words(Value(frozenset([each]))) for each in others)  # `n - torch.arange(n)`
        return PerRank(operation.name, LENGTH) if data or fills else lengths[0]

    def _is_size(self, operation: Operation) -> bool:
        """Whether it is computed of sizes alone: `b` of `b, t = x.shape`"""
        told = closure([operation], lambda each: () if self._tells_size(each) else each.given)
        return all(self._tells_size(each) or each.name.startswith(COMPUTING) for each in told)

    @staticmethod
    def _tells_size(operation: Operation) -> bool:
        """Whether it gives a size, or all of them."""
        before = {op.name for value in operation.inputs[:1] for op in value.operations}
        parts = operation.name in ("getitem", "iterate") and bool(before & {*arguments.SHAPES})
        return operation.name in (*arguments.SHAPES, "builtins.len") or parts

    def _met(self, operation: Operation, known: Known | None, placement: Placement) -> Placement:
        """What becomes of words that an operation is given."""
        name = short(operation)
        if self._is_behind_loop(operation):
            return PerRank(operation.name, STATE)
        if operation.name == "getitem":
            return self._taken(operation, placement)
        if operation.name == "setitem":  # `rows[i, : len(text)] = text`
            lies = self._operand(operation.inputs[0])
            at = [place for place, key in enumerate(arguments.keys_of(operation.inputs[1])) if self._is_each(key)]
            return Shard(at[0]) if at and lies == Replicate() else lies if isinstance(lies, Shard) else placement
        if name.startswith("pack_"):
            return Replicate()
        if known is None:
            return placement if operation.name == "iterate" else self._library(operation)
        if isinstance(placement, Each) and known.cls not in ("loss", "sample_loss"):
            return placement
        if isinstance(placement, Shard) and known.cls not in LOOKED_AT:
            return self._untold(operation) if self._goes_across(operation, known) else placement
        judge: Callable[[Operation, Known, Placement], Placement] | None = getattr(self, f"_judge_{known.cls}", None)
        if judge is not None:
            return judge(operation, known, placement)
        if not isinstance(placement, PerRank) and known.cls != "whole":
            return placement
        if known.cls in NUMBERWISE:
            return self._number_by_number(operation, placement)
        return self._untold(operation)

    def _goes_across(self, operation: Operation, known: Known) -> bool:
        """Whether words that attend meet, of what has a number for each of them and each that they attend to."""
        first = arguments.given_first(operation)
        lying, sizes = self._operand(first), self._found.size(first)
        if known.cls not in ("reduction", "scan") or not isinstance(lying, Shard) or not sizes:
            return False
        other = len(sizes) - 2 if lying.axis == len(sizes) - 1 else len(sizes) - 1
        return other in self._works_along(operation, known, Operand(lying, sizes)) and self._is_paired(first)

    def _library(self, operation: Operation) -> Placement:
        """Code that is not followed, which may be told where the padding is."""
        call = operation.node
        given = [*call.args, *call.keywords] if isinstance(call, ast.Call) else []
        named = any(word in ast.unparse(each).lower() for each in given for word in ("mask", "len", "**"))
        return Replicate() if named else self._untold(operation)

    def _untold(self, operation: Operation) -> PerRank:
        return PerRank(operation.name, UNTOLD)

    def _is_each(self, value: Value) -> bool:
        return isinstance(self._operand(value), Each)

    def _is_behind_loop(self, operation: Operation) -> bool:
        """Whether it is given what a loop over the words has come to at its end: the last of them."""
        loops = operation.region.loops
        words = (each for value in operation.operands for each in value.operations)
        return any(isinstance(self._found.of.get(each), Each) and each.region.loops - loops for each in words)

    def _holds(self, operation: Operation, place: int = 0) -> object:
        return self._content.of(arguments.given_first(operation, place))

    def _tells_words(self, value: Value) -> bool:
        """Whether it says which words to take by how many there are: `torch.arange(x.shape[1])`"""
        if not isinstance(self._operand(value), (Replicate, type(None))):
            return True
        lies = self._found.of
        above = closure(value.operations, lambda op: () if isinstance(lies.get(op), (Shard, Each)) else op.given)
        counted = {op for op in above if any(isinstance(lies.get(each), Partial) for each in op.given)}
        return any(isinstance(self._operand(each), Partial) for op in counted for each in op.operands)

    # numbers

    def _number_by_number(self, operation: Operation, placement: Placement) -> Placement:
        given = [each for each in map(self._operand, operation.operands) if each is not None]
        if any(isinstance(each, Partial) for each in given):
            return PerRank(operation.name, LENGTH)
        shards = {
            each.axis - len(sizes or ()) if sizes else each.axis for each, sizes in self._sized(operation.operands)
        }
        if is_paired(placement) and len(shards) > 1:
            self._pairs.add(operation)
            axes = max((len(sizes or ()) for _, sizes in self._sized(operation.operands)), default=0)
            told = [each for each in operation.operands if self._content.of(each) is not ANYTHING]
            if not any(each.axis - len(sizes or ()) == max(shards) for each, sizes in self._sized(told)):
                self._content.forget(operation)  # which hides words from none, `scores.masked_fill(pad[:, :, None], 0)`
            return Shard(axes + max(shards))
        first = next((each for each in given if isinstance(each, Shard)), None)
        axes = max((len(self._found.size(each) or ()) for each in operation.operands), default=0)
        if first is None or len(shards) > 1:
            return self._untold(operation)
        (shard,) = shards
        return Shard(axes + shard if shard < 0 else shard, order=first.order)

    def _sized(self, values: Iterable[Value]) -> list[tuple[Shard, Sizes]]:
        lying = [(self._operand(each), self._found.size(each)) for each in values]
        return [(each, sizes) for each, sizes in lying if isinstance(each, Shard)]

    # along an axis

    def _judge_reduction(self, operation: Operation, known: Known, placement: Placement) -> Placement:
        holds, kind, name = self._holds(operation), known.kind, short(operation)
        fits = kind == "sum" and is_zero(holds) or kind == "max" and is_hidden(holds)
        fits |= name == "logsumexp" and is_hidden(holds) or name in ("any", "count_nonzero", "norm") and is_zero(holds)
        fits |= name == "all" and is_set(holds)
        fits |= kind == "min" and isinstance(holds, (int, float)) and is_hidden(-holds)
        return Replicate() if fits else self._counted(operation, COUNTED, operation.inputs)

    _judge_comparison = _judge_reduction

    def _judge_scan(self, operation: Operation, known: Known, placement: Placement) -> Placement:
        looks_back = short(operation).startswith("cum")
        leaves_out = looks_back or is_hidden(self._holds(operation))
        return self._first_shard(operation) if leaves_out else self._counted(operation, SHARE, operation.inputs)

    def _judge_gather(self, operation: Operation, known: Known, placement: Placement) -> Placement:
        return Replicate() if not any(map(self._tells_words, operation.inputs[1:])) else self._untold(operation)

    _judge_index = _judge_gather
    _judge_scatter = _judge_gather

    def _judge_length(self, operation: Operation, known: Known, placement: Placement) -> Placement:
        return Partial("sum") if known.parameters.get("all") and isinstance(placement, PerRank) else placement

    def _judge_select(self, operation: Operation, known: Known, placement: Placement) -> Placement:
        place = operation.argument("index", 2)
        return self._of_place(operation, place) if place is not None else self._untold(operation)

    def _judge_filter(self, operation: Operation, known: Known, placement: Placement) -> Placement:
        mask = [*operation.operands][-1:]
        return Replicate() if any(is_zero(self._content.of(each)) for each in mask) else self._untold(operation)

    def _taken(self, operation: Operation, placement: Placement) -> Placement:
        """`x[key]`"""
        base, key = operation.inputs[0], operation.inputs[1] if len(operation.inputs) > 1 else Value()
        if any(short(each) in RECURRENT for each in base.operations) and key.constant in (1, -1):
            return PerRank(operation.name, STATE)
        lying = self._operand(base)
        if not isinstance(lying, Shard):
            return placement
        several = any(map(self._gives_several, base.operations)) and len(arguments.keys_of(key)) < 2
        if isinstance(placement, (Partial, Each)) or several:
            return placement
        axis, keys = 0, arguments.keys_of(key)
        for each in keys:
            if each.constant is None:
                continue
            if each.constant is Ellipsis:
                sizes, rest = self._found.size(base), [e for e in keys if e is not each]
                if sizes is None:  # `labels[..., 1:]`, whatever the last axis is
                    forward = all(arguments.goes_forward(e) for e in rest if e.constant is not None)
                    return lying if forward else self._untold(operation)
                axis = len(sizes) - sum(e.constant is not None for e in rest) + axis
                continue
            by = self._operand(each)
            if isinstance(by, Shard) and axis <= lying.axis:  # a mask, or numbers of words
                return Replicate() if is_zero(self._content.of(each)) else self._untold(operation)
            if axis == lying.axis:
                return self._along_words(operation, each, placement)
            axis += 1
        return placement if isinstance(placement, Shard) else self._untold(operation)

    def _along_words(self, operation: Operation, key: Value, placement: Placement) -> Placement:
        slices = [each for each in key.operations if each.name == "builtins.slice"]
        if not slices:
            return self._of_place(operation, key)
        keys = arguments.keys_of(operation.inputs[1])
        start, stop, _ = (each.constant for each in slices[0].inputs)
        if not arguments.goes_forward(key):
            return PerRank(operation.name, LAST)
        bounds = [self._operand(each) for each in slices[0].inputs[:2] if each.operations]
        if stop == 1 and not start:
            return Replicate()
        if any(isinstance(each, (Shard, PerRank)) for each in bounds):
            return self._untold(operation)
        if any(each.constant is Ellipsis for each in keys):
            return replace(self._operand(operation.inputs[0]) or Shard(0))
        return Shard(sum(each.constant is None or not each.is_constant for each in keys[: keys.index(key)]))

    def _of_place(self, operation: Operation, place: Value) -> Placement:
        """What stands in one place: a word that samples have, or the last of the longest."""
        by = self._operand(place)
        if any(isinstance(each, int) and each < 0 for _, each in place.constants) or isinstance(by, Partial):
            return PerRank(operation.name, LAST)
        return by if isinstance(by, Each) else self._untold(operation) if self._tells_words(place) else Replicate()

    def _first_shard(self, operation: Operation) -> Placement:
        shard = self._operand(arguments.given_first(operation))
        return shard if isinstance(shard, Shard) else self._untold(operation)

    # products

    def _judge_contraction(self, operation: Operation, known: Known, placement: Placement) -> Placement:
        given = list(arguments.operands(operation, known))
        terms, left = self._written(operation, given)
        if is_paired(placement):
            self._pairs.add(operation)
            return Shard(len(left) - 1) if not any(map(self._is_paired, given)) else self._untold(operation)
        by = [at for at, each in enumerate(given) if is_zero(self._content.of(each))]
        by = [at for at in by if not self._is_left(given[at], terms[at], left)]
        if not by:
            return self._counted(operation, SHARE if any(map(self._is_paired, given)) else COUNTED, given)
        words = any(self._is_paired(given[at]) or not isinstance(self._operand(given[at]), Shard) for at in by)
        others = {letter for at, each in enumerate(terms) if at not in by for letter in each}
        queries = [at for at, letter in enumerate(left) if letter not in others]
        return Shard(queries[-1]) if words and queries else Replicate()

    def _is_left(self, value: Value, letters: str, left: str) -> bool:
        """Whether the words of an operand that hold nothing in padded places are not those that are summed up."""
        lying, sizes = self._operand(value), self._found.size(value)
        if not isinstance(lying, Shard) or not sizes:
            return False
        return letters[-len(sizes) :][lying.axis : lying.axis + 1] in tuple(left)

    def _written(self, operation: Operation, given: list[Value]) -> tuple[list[str], str]:
        """The letters of the axes of each operand, and those of the result."""
        told = operation.inputs[0].constant if operation.inputs else None
        if isinstance(told, str) and "->" in told:
            written, _, left = told.replace(" ", "").replace("...", "").partition("->")
            return written.split(","), left
        axes = max((len(self._found.size(each) or ()) for each in given), default=2)
        before = "abcdefgh"[: max(axes, 2) - 2]
        return [f"{before}ij", f"{before}jk"], f"{before}ik"

    _judge_pairwise = _judge_contraction

    def _is_paired(self, value: Value) -> bool:
        """Whether it has a number for each word and each of the others."""
        return bool(closure(value.operations, self._above) & self._pairs)

    def _above(self, operation: Operation) -> frozenset[Operation]:
        """What an operation is given, if it computes number by number."""
        known = operation.known
        through = known is not None and known.cls in NUMBERWISE | {"scan", "view", "transpose", "unsqueeze", "squeeze"}
        return operation.given if through else frozenset()

    def _counted(self, operation: Operation, reason: str, given: Iterable[Value]) -> PerRank:
        """What counts the padding, unless a mask may hide it of which nothing is known."""
        above = closure({op for each in given for op in each.operations}, self._above)
        masked = any("mask" in each.source.code(each.node) for each in above if isinstance(each.node, ast.expr))
        unknown = masked and self._holds(operation) is ANYTHING
        return self._untold(operation) if unknown else PerRank(operation.name, reason)

    # views

    def _judge_view(self, operation: Operation, known: Known, placement: Placement) -> Placement:
        first = arguments.given_first(operation)
        shard, sizes = self._operand(first), self._found.size(first)
        if not isinstance(shard, Shard):
            return placement
        told = arguments.sizes_of(operation, known)
        lying = [self._operand(each) for each in told]
        at = [place for place, each in enumerate(lying) if isinstance(each, Partial)]
        if len(at) == 1 and (at[0] or not shard.axis):
            return Shard(at[0])
        if len(at) > 1:  # `scores.view(B, 1, T, T)`
            return Shard(at[-1])
        open_ = [place for place, each in enumerate(told) if each.constant == -1]
        merged = at == [0] or open_ == [0]
        if merged and shard.axis and (sizes is None or len(told) <= len(sizes) - shard.axis + 1):
            return Shard(0, order=MERGED)
        if open_ and open_[0] == shard.axis:
            return Shard(shard.axis)
        return placement if isinstance(placement, Shard) else self._untold(operation)

    def _judge_concatenate(self, operation: Operation, known: Known, placement: Placement) -> Placement:
        """Words stay words behind what is not filled up, `torch.cat((image, words), 1)`; what comes behind them comes
        behind their padding."""
        given = [*arguments.operands(operation, known)]
        words = [(at, *found) for at, each in enumerate(given) for found in self._sized([each])]
        if not words:
            return self._untold(operation)
        at, shard, sizes = words[0]
        if self._works_along(operation, known, Operand(shard, sizes or ())) != (shard.axis,):
            return placement if isinstance(placement, Shard) else self._untold(operation)
        return Shard(shard.axis) if len(words) == 1 and at == len(given) - 1 else self._untold(operation)

    def _works_along(self, operation: Operation, known: Known, operand: Operand) -> tuple[int, ...]:
        """The axes of an operand that an operation works along, as far as these are known."""
        call = replace(arguments.call(operation, known), operands=(operand,), parameters=known.parameters)
        return call.axes() if operand.sizes else (call.axis,) if isinstance(call.axis, int) else ()

    def _judge_flatten(self, operation: Operation, known: Known, placement: Placement) -> Placement:
        first = (*arguments.call(operation, known).named(), 0)[0]
        return Shard(0, order=MERGED) if first == 0 else self._untold(operation)

    # layers and losses

    def _judge_per_sample(self, operation: Operation, known: Known, placement: Placement) -> Placement:
        name = short(operation)
        if name in ("tril", "triu"):
            return self._number_by_number(operation, placement)
        if name == "scaled_dot_product_attention":
            return self._transformed(operation, name, self._operand(arguments.given_first(operation)))
        if name == "pad":
            amounts = operation.argument("pad", 1)
            if amounts is None or not any(
                isinstance(self._operand(e), Partial) for e in arguments.parts(amounts) or [amounts]
            ):
                return self._first_shard(operation)
            told = operation.argument("value", 3)  # up to a fixed length: `F.pad(x, (0, 512 - x.shape[1]))`
            alike = self._holds(operation) is not ANYTHING
            alike = alike and self._holds(operation) == (0 if told is None else self._content.of(told))
            return Replicate() if alike else self._untold(operation)
        if name.lower().startswith("conv") and not name.lower().startswith("convtranspose"):
            before = [each for each in arguments.given_first(operation).operations if short(each) == "pad"]
            causal = bool(before) and all(filled.pads_left(each) for each in before)
            beyond = getattr(operation.owner, "keywords", {}).get("padding_mode")
            zeros = beyond is None or beyond.constant == "zeros"  # beyond the longest sample as behind the others
            if causal or zeros and is_zero(self._holds(operation)):
                return self._first_shard(operation)
        return PerRank(operation.name, REACHES)

    def _judge_batch_statistic(self, operation: Operation, known: Known, placement: Placement) -> Placement:
        training = operation.owner is not None or arguments.call(operation, known).training
        return PerRank(operation.name, STATISTIC) if training else self._first_shard(operation)

    def _judge_sequence(self, operation: Operation, known: Known, placement: Placement) -> Placement:
        first = self._operand(arguments.given_first(operation))
        name = short(operation)
        if name in RECURRENT:
            told = operation.owner.keywords.get("bidirectional", Value()) if operation.owner is not None else Value()
            if told.constants and told.constant is not False:
                return PerRank(operation.name, BACKWARDS)
            return first if isinstance(first, Shard) else self._untold(operation)
        return self._transformed(operation, ALIKE.get(name, name), first)

    def _transformed(self, operation: Operation, name: str, first: Placement | None) -> Placement:
        """What is made of words that attend to each other, and to those of another operand."""
        second = self._operand(arguments.given_first(operation, 1))
        attended = {"src": first, "tgt": first, "memory": second, "key": second}
        if name == "Transformer":
            attended |= {"tgt": second, "memory": first}
        for what in MASKS.get(name, {"": ()}):
            if isinstance(attended.get(what, first), Shard):
                found = self._attended(operation, name, what)
                if found is not None:
                    return found
        result = second if name == "Transformer" else first
        return result if isinstance(result, Shard) else Replicate()

    def _attended(self, operation: Operation, name: str, what: str) -> PerRank | None:
        """Why words see the padding of those that they attend to, unless a mask hides it."""
        causal = operation.keywords.get(f"{what}_is_causal", operation.keywords.get("is_causal"))
        if causal is not None and causal.constant is True:
            return None
        told = [operation.argument(*each) for each in MASKS.get(name, {}).get(what, ())]
        given = [each for each in told if each is not None and each.operations]
        scaled = name == "scaled_dot_product_attention"  # in which a mask marks what is seen
        across = scaled and any(sizes and each.axis < len(sizes) - 1 for each, sizes in self._sized(given))
        masks = [ANYTHING if across else self._content.of(each) for each in given]
        if any(is_hidden(each) or (is_zero(each) if scaled else is_set(each)) for each in masks):
            return None
        return self._untold(operation) if masks else PerRank(operation.name, SHARE)

    def _judge_loss(self, operation: Operation, known: Known, placement: Placement) -> Placement:
        if short(operation) in ("ctc_loss", "CTCLoss"):  # of each sample by its own length
            told = any(map(self._tells_words, operation.inputs[2:4]))
            return PerRank(operation.name, LENGTH) if told else Replicate()
        call, both = arguments.call(operation, known), [arguments.given_first(operation, at) for at in (0, 1)]
        if any(map(self._is_each, both)) and not self._content.leaves_out(operation, known):
            return Each("rows")
        target = self._operand(operation.argument("target", 1) or Value())
        if call.reduction == "none":
            return target if isinstance(target, Shard) else self._number_by_number(operation, placement)
        if self._content.leaves_out(operation, known):
            return Replicate()
        zeros = all(is_zero(self._content.of(each)) for each in both)
        return Replicate() if zeros and call.reduction == "sum" else PerRank(operation.name, COUNTED)

    _judge_sample_loss = _judge_loss
