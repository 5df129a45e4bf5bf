"""What a value holds in the places that fill samples up to the longest: a number that is written down, or anything."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from autodist import operations
from autodist.placement import arguments
from autodist.program import VIEWS, Operation, Value, closure, held

ANYTHING = None
"""It is computed of the padding, or not known."""
PENDING = "pending"
"""It is being asked for, in a loop that changes it step by step."""
HIDDEN = -1e3
"""What is less gets no share of a softmax, and is no largest number."""
COMPARING: Mapping[str, Callable[[Any, Any], bool]] = {
    **{name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    "less": operator.lt,
    "greater": operator.gt,
    "not_equal": operator.ne,
}
COMPUTING: Mapping[str, Callable[[Any, Any], Any]] = {
    **{name: getattr(operator, name) for name in ("add", "sub", "mul", "truediv")},
    "multiply": operator.mul,
    "div": operator.truediv,
    "rsub": lambda one, other: other - one,
}
DECIDING = {"and": False, "logical_and": False, "bitwise_and": False} | {
    "or": True,
    "logical_or": True,
    "bitwise_or": True,
}
"""What decides over both operands, whatever the other is."""
NOT = ("invert", "not", "logical_not", "bitwise_not")
KEEPING_ZERO = frozenset("neg abs relu tanh sin sqrt square gelu silu leaky_relu elu ReLU Tanh GELU SiLU".split())
"""Functions of zero that are zero."""
KEEPING = frozenset("to float long int bool type type_as half bfloat16 astype contiguous clone setitem".split()) | VIEWS
TURNING = frozenset("flip fliplr flipud roll linspace logspace".split())
FILLS = {"zeros": 0, "empty": 0, "ones": 1}
BEHIND = {"lt": False, "less": False, "ge": True}
"""What the place of a word is, compared with the length of its sample, behind that."""
TURNED = {"gt": "lt", "greater": "lt", "le": "ge"}
MASKS: Mapping[str, Mapping[str, tuple[tuple[str, int], ...]]] = {
    "scaled_dot_product_attention": {"key": (("attn_mask", 3),)},
    "MultiheadAttention": {"key": (("key_padding_mask", 3), ("attn_mask", 5))},
    "TransformerEncoder": {"src": (("mask", 1), ("src_key_padding_mask", 2))},
    "TransformerEncoderLayer": {"src": (("src_mask", 1), ("src_key_padding_mask", 2))},
    "TransformerDecoder": {
        "tgt": (("tgt_mask", 2), ("tgt_key_padding_mask", 4)),
        "memory": (("memory_mask", 3), ("memory_key_padding_mask", 5)),
    },
    "Transformer": {
        "src": (("src_mask", 2), ("src_key_padding_mask", 5)),
        "tgt": (("tgt_mask", 3), ("tgt_key_padding_mask", 6)),
        "memory": (("memory_mask", 4), ("memory_key_padding_mask", 7)),
    },
}
"""By which arguments words are kept from meeting others, by what they would meet, and where these are."""
DECODER, ENCODER = "TransformerDecoder", "TransformerEncoder"
ALIKE = {"TransformerDecoderLayer": DECODER, "decoder": DECODER, "encoder": ENCODER}


def short(operation: Operation) -> str:
    """The last part of an operation's name, without what says that it works in place."""
    return operation.name.rpartition(".")[2].rstrip("_")


def is_number(content: object) -> bool:
    """Whether it is known, and not only by a name."""
    return isinstance(content, (bool, int, float))


def is_hidden(content: object) -> bool:
    """Whether it is so little that a softmax leaves it out."""
    return isinstance(content, (int, float)) and content <= HIDDEN


def is_zero(content: object) -> bool:
    """Whether it adds nothing."""
    return is_number(content) and content == 0


def is_set(content: object) -> bool:
    """Whether a mask marks it."""
    return is_number(content) and bool(content)


class Filled:
    """What values hold in padded places, of what the operations that pad fill them with."""

    def __init__(self, sources: Iterable[Operation]) -> None:
        self._sources = frozenset(sources)
        self._known: dict[Operation, object] = {}

    def of(self, value: Value | None) -> object:
        """What a value holds there; ANYTHING if that is not known, or may be one thing or another."""
        if value is None or value.operations and any(constant[1] is not None for constant in value.constants):
            return ANYTHING
        if not value.operations:
            return value.constant if is_number(value.constant) else ANYTHING
        found = {each: holds for each in value.operations if (holds := self._of(each)) is not PENDING}
        told = {each for each in found.values() if each is not ANYTHING}
        rest = [each for each, holds in found.items() if holds is ANYTHING]
        above = closure([each for each in found if each not in rest], lambda op: op.given) if rest else set(rest)
        alike = len(told) == 1 and above.issuperset(rest)  # `if mask is not None: x = x.masked_fill(mask, 0)`
        return told.pop() if alike else ANYTHING

    def forget(self, operation: Operation) -> None:
        """Take what an operation gives for anything."""
        self._known[operation] = ANYTHING

    def _of(self, operation: Operation) -> object:
        if operation not in self._known:
            self._known[operation] = PENDING
            self._known[operation] = self._found(operation)
        return self._known[operation]

    def _found(self, operation: Operation) -> object:
        name, given = short(operation), operation.inputs
        if operation in self._sources or name in ("pad_sequence", "pad_packed_sequence"):
            return self._filler(operation, name)
        if name in ("tril", "triu"):
            return self._beside_diagonal(operation, name)
        if name == "generate_square_subsequent_mask":
            return float("-inf")
        if name == "min" and any("finfo" in each.name for value in given for each in value.operations):
            return float("-inf")
        if name in ("masked_fill", "where") and len(given) == 3:
            mask, one, other = (given[1], given[2], given[0]) if name == "masked_fill" else given
            holds = self.of(mask)
            return self.of(one if holds else other) if is_number(holds) else ANYTHING
        if name in COMPARING and len(given) == 2:
            return self._compared(name, *given)
        if name in NOT and given:
            holds = self.of(given[0])
            return not holds if is_number(holds) else ANYTHING
        if name in DECIDING and len(given) == 2:
            both = [self.of(each) for each in given]
            decided = any(is_number(each) and bool(each) is DECIDING[name] for each in both)
            return DECIDING[name] if decided else not DECIDING[name] if all(map(is_number, both)) else ANYTHING
        if name in COMPUTING and len(given) == 2:
            return self._computed(name, *given)
        return self._by_class(operation, name)

    def _by_class(self, operation: Operation, name: str) -> object:
        given, known = operation.inputs, operation.known
        holds = self.of(given[0]) if given else ANYTHING
        if name == "Embedding":
            return 0 if self._is_left_out(operation) else ANYTHING
        if name == "getitem" and any(map(_ends_early, arguments.keys_of(given[1]))):
            return ANYTHING  # all lose their last word, the longest one that counts
        if name in KEEPING or known is not None and known.cls in ("same", "expand", "repeat"):
            return holds
        if known is None or not given:
            return ANYTHING
        if name in ("softmax", "Softmax", "exp") and is_hidden(holds):
            return 0
        if known.cls == "fill" and name in ("full", "new_full"):
            return self.of(operation.argument("fill_value", 1 + operation.name.startswith("torch.Tensor.")))
        if known.cls in ("fill", "fill_like"):
            return FILLS.get(name.removeprefix("new_").removesuffix("_like"), ANYTHING)
        if known.cls in ("loss", "sample_loss"):
            return 0 if self.leaves_out(operation, known) else ANYTHING
        kept = name in KEEPING_ZERO or known.cls in ("linear", "random_like")
        kept |= known.cls == "reduction" and known.kind in ("sum", "mean", "max", "min")
        return 0 if kept and is_zero(holds) else ANYTHING

    def _filler(self, operation: Operation, name: str) -> object:
        """What an operation fills up with that pads."""
        known = operation.known
        if name in ("pad_sequence", "pad_packed_sequence"):
            told = [operation.argument("padding_value", 2)]
        elif known is not None and known.cls == "fill":
            return self._by_class(operation, name)
        else:
            above = closure(operation.given, lambda op: op.given)
            told = [each.argument("value", 3) for each in operation.given if short(each) == "pad"]
            told += [each.inputs[0] for each in above if is_rest(each)]
        found = {0 if each is None else self._named(_entry(each)) for each in told}
        return found.pop() if len(found) == 1 else ANYTHING

    def leaves_out(self, operation: Operation, known: operations.Operation) -> bool:
        """Whether a loss leaves out what its labels hold there: `cross_entropy(x, y, ignore_index=-100)`."""
        if "ignored" not in known.parameters or arguments.is_set(arguments.option(operation, known, "weight")):
            return False
        told = arguments.option(operation, known, "ignore_index")
        target = self.of(operation.argument("target", 1))
        return target is not ANYTHING and target == (-100 if told is None else self._named(told))

    def _is_left_out(self, operation: Operation) -> bool:
        """Whether a table of vectors has zeros for what is there: `nn.Embedding(n, 8, padding_idx=0)`."""
        told = operation.owner.argument("padding_idx", 2) if operation.owner is not None else None
        index = self._named(told) if told is not None else ANYTHING
        return index is not ANYTHING and index == self.of(operation.argument("input", 0))

    def _beside_diagonal(self, operation: Operation, name: str) -> object:
        """Behind the place of a word is all padding: `torch.tril(torch.ones(n, n))`."""
        told = operation.argument("diagonal", 1)
        diagonal = 0 if told is None else told.constant
        if type(diagonal) is not int:
            return ANYTHING
        if name == "tril":
            return 0 if diagonal <= 0 else ANYTHING
        return self.of(operation.argument("input", 0)) if diagonal <= 1 else ANYTHING

    def _named(self, value: Value) -> object:
        """The same, or what a number is called that is read elsewhere: `tokenizer.pad_token_id`."""
        return self.of(value) if self.of(value) is not ANYTHING or len(value.operations) != 1 else _written(value)

    def _compared(self, name: str, one: Value, other: Value) -> object:
        both = self.of(one), self.of(other)
        if all(map(is_number, both)):
            return COMPARING[name](*both)
        if name in ("eq", "ne") and ANYTHING not in (self._named(one), self._named(other)):
            return (name == "eq") if self._named(one) == self._named(other) else ANYTHING
        for places, length, by in ((one, other, name), (other, one, TURNED.get(name, ""))):
            if by in BEHIND and _counts_places(places) and length.operations and not _counts_places(length):
                return BEHIND[by]
        return ANYTHING

    def _computed(self, name: str, one: Value, other: Value) -> object:
        both = self.of(one), self.of(other)
        if name in ("mul", "multiply") and any(map(is_zero, both)):
            return 0
        if name == "add" and any(map(is_hidden, both)):
            return float("-inf")
        if name in ("truediv", "div") and (is_zero(both[0]) or is_hidden(both[0])):
            return both[0]
        try:
            return COMPUTING[name](*both) if all(map(is_number, both)) else ANYTHING
        except (ZeroDivisionError, OverflowError):
            return ANYTHING


def is_rest(operation: Operation) -> bool:
    """`[PAD] * (longest - len(text))`"""
    if operation.name != "list.repeat":
        return False
    counts = operation.inputs[1].operations
    return bool(counts) and all(each.name == "operator.sub" for each in counts)


def counts_from_end(operation: Operation, tells: Callable[[Value], bool]) -> bool:
    """Whether it makes or takes places by how many words there are, which ``tells`` of a value, and not from the first
    one on: `torch.arange(n - 1, -1, -1)`, `torch.linspace(0, 1, n)`, `places.flip(0)`, `table[-n:]`"""
    name, given = short(operation), operation.inputs
    if name == "getitem" and len(given) > 1:
        slices = [op for key in arguments.keys_of(given[1]) for op in key.operations if op.name == "builtins.slice"]
        starts = [op for each in slices for op in each.inputs[0].operations if tells(Value(frozenset([op])))]
        return any(not all(map(tells, op.inputs)) or len(op.inputs) < 2 for op in starts)  # `mask[key - query : key]`
    if name == "arange":
        start = operation.keywords.get("start", given[0] if len(given) > 1 else None)
        return start is not None and tells(start)
    return name in TURNING and any(map(tells, operation.operands))


def pads_left(operation: Operation) -> bool:
    """`F.pad(x, (k - 1, 0))`, ahead of a convolution that looks back alone"""
    amounts = operation.argument("pad", 1)
    told = arguments.parts(amounts) if amounts is not None else None
    return told is not None and len(told) == 2 and told[1].constant == 0


def _ends_early(key: Value) -> bool:
    """`x[:, :-1]`"""
    bounds = arguments.bounds(key)
    return bool(bounds) and isinstance(bounds[1], int) and bounds[1] < 0


def _entry(value: Value) -> Value:
    listed = arguments.parts(value)
    return listed[0] if listed else value


def _written(value: Value, within: int = 4) -> object:
    """How what is read elsewhere is written, the same wherever it is."""
    one = value.operation
    if one is None or not within:
        return (
            str(value.constant)
            if value.is_constant
            else sorted(getattr(e, "name", "") or str(id(e)) for e in value.things)
        )
    return one.name, str(one.owner and id(one.owner)), str([_written(each, within - 1) for each in one.operands])


def _counts_places(value: Value) -> bool:
    """Whether it counts the places of words: `torch.arange(longest)[None]`"""
    found = closure(value.operations, lambda op: held(op.inputs[0]) if op.inputs and short(op) in KEEPING else ())
    ends = [each for each in found if short(each) not in KEEPING]
    return bool(ends) and all(each.name.endswith(".arange") for each in ends)
