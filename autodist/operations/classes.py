"""The classes of operations, with the parameters that a line of the table may give.

``axis`` is the position of the argument that names the axis (of a function: the tensor is argument 0, of a method one
less), ``default`` the axis of a call that names none; without it such a call is over all axes. ``resizes`` says that a
result may have more or fewer numbers along the axes that are computed, ``reshapes`` that it has other axes.
"""

from __future__ import annotations

from collections.abc import Mapping

AXIS: Mapping[str, type] = {"axis": int, "default": int}
SHAPES: Mapping[str, type] = {"resizes": bool, "reshapes": bool}

CLASSES: Mapping[str, tuple[str, Mapping[str, type]]] = {
    # number by number
    "same": (
        "gives the same numbers, in another place or form: `x.clone()`; of: which operand's, if not the first's",
        {"of": int},
    ),
    "linear": ("is linear in the number that it is given: `-x`", {}),
    "elementwise": (
        "computes each number from those in the same place: `x.exp()`; with `compares`, a test: `x > y`; with "
        "`invariant`, the same of numbers that are all several times as large: `x.sign()`; with `scales`, as many "
        "times as large, unless it is given bounds: `x.abs()`, `x.clamp(min=0)`",
        {"compares": bool, "invariant": bool, "scales": bool, **SHAPES},
    ),
    "add": ("adds or subtracts", {}),
    "multiply": ("multiplies number by number", {}),
    "divide": ("divides number by number", {}),
    # fewer or other numbers along an axis
    "reduction": ("makes one number of all along an axis; kind: sum, mean, max, min or none", {**AXIS, "kind": str}),
    "comparison": ("makes one number of two tensors along an axis; kind as in a reduction", {**AXIS, "kind": str}),
    "scan": (
        "computes each number from all along an axis: `x.softmax(1)`, `x.cumsum(0)`; with `beside`, from all along the "
        "other axes: `x.renorm(2, 0, 1.0)`",
        {**AXIS, **SHAPES, "implicit": bool, "beside": bool},
    ),
    "sort": ("puts the numbers along an axis into other places: `x.flip(0)`, `x.sort(1)`", AXIS),
    "index": ("takes some numbers along an axis by their places: `x.narrow(1, 0, 2)`", AXIS),
    "gather": (
        "takes numbers along an axis, by places that a tensor of as many axes tells; with `puts`, puts them there",
        {**AXIS, "puts": bool},
    ),
    "select": ("takes one entry along an axis, which is gone: `x.select(1, 0)`", AXIS),
    "repeat_each": (
        "repeats each entry along an axis behind itself: `x.repeat_interleave(2, 0)`; sizes: the argument that tells "
        "how often",
        {**AXIS, "sizes": int},
    ),
    "filter": ("takes the numbers that a mask of the same shape marks", {}),
    "places": ("tells the places of the numbers that are not zero: `torch.nonzero(mask)`", {}),
    "concatenate": ("lays tensors behind each other along an axis", AXIS),
    "stack": ("lays tensors behind each other along a new axis", AXIS),
    # products
    "contraction": ("sums products; equation as einsum writes it; adds: which operand", {"equation": str, "adds": int}),
    "pairwise": ("compares as a contraction multiplies, but is not linear", {"equation": str}),
    # the same numbers under other axes
    "permute": ("puts all axes in another order", {"axis": int}),
    "transpose": ("exchanges two axes; first and second: which, if it is not told", {"first": int, "second": int}),
    "movedim": ("moves an axis to another place", {}),
    "view": ("gives other sizes to the same numbers in the same order", {}),
    "view_as": ("gives the sizes of another tensor to the same numbers in the same order", {}),
    "flatten": ("makes one axis of several", {}),
    "unflatten": (
        "makes several axes of one; sizes: the argument that tells how long they are",
        {**AXIS, "sizes": int},
    ),
    "squeeze": ("leaves out axes of size one", AXIS),
    "unsqueeze": ("adds an axis of size one", AXIS),
    "expand": ("repeats along axes of size one, or new ones, without a copy", {}),
    "repeat": ("repeats the whole along axes", {}),
    "pattern": (
        "moves, joins, parts or computes axes as a pattern says: `rearrange(x, 'b n d -> n b d')`; reduction: the "
        "argument's position",
        {"reduction": int},
    ),
    # samples
    "per_sample": (
        "computes each sample apart: the first axis, or all but the last few; mixes: how many; shape: the argument "
        "that is as long, or twice as long for `pad`; samples: how many operands hold samples; masked: another may "
        "be a mask for each of them; width: the layer's argument that tells how many numbers it gives along the first "
        "axis that it mixes, at: its position, if not the second",
        {"mixes": int, "shape": int, "samples": int, "masked": bool, "width": str, "at": int, **SHAPES},
    ),
    "decomposition": ("computes of each matrix, the last two axes, apart what no sum of samples gives: `svd`", {}),
    "sequence": (
        "computes each sequence of a batch apart; batch_first: the argument's position; width: as of per_sample",
        {"batch_first": int, "width": str},
    ),
    "batch_statistic": ("normalises by the mean and variance over the batch, while training", {"training": int}),
    "loss": (
        "compares two tensors number by number; reduction: the argument's position; alike: it takes none of different "
        "sizes",
        {"reduction": int, "alike": bool},
    ),
    "sample_loss": (
        "has one loss for each sample; batch: the samples' axis in the first operand; weight and ignored: the "
        "positions of the weights of classes, and of the class to leave out, where the mean is over what these count",
        {"reduction": int, "batch": int, "weight": int, "ignored": int},
    ),
    "histogram": (
        "counts how often numbers occur, up to the one that an argument says; told and at: its name and position",
        {"told": str, "at": int},
    ),
    "scatter": (
        "adds numbers to those of a tensor, at places that others tell; accumulate: the argument without which it "
        "replaces them, empty if it always does",
        {**AXIS, "accumulate": str},
    ),
    # between ranks
    "collective": (
        "gives all ranks the same, of what each of them is given; with `apart`, each its own part",
        {"apart": bool},
    ),
    "rank": ("is another number on each rank", {}),
    # sizes, draws, containers
    "table": (
        "reads or takes apart a table that all ranks have, and gives as many axes as the first operand; axes: so many; "
        "most: so many at most; gives: those of each of several, where the keyword told is given; halves: two of each "
        "operand; samples: those of each field of a sample, -1 where that is not told",
        {"axes": int, "most": int, "gives": list, "told": str, "halves": bool, "samples": list},
    ),
    "length": ("gives the size of an axis, or with `all` the number of all numbers", {**AXIS, "all": bool}),
    "fact": ("says what data do not change (a type, a number of axes), or gives nothing", {}),
    "fill": ("makes a tensor of one number, of the sizes that it is given", {}),
    "fill_like": ("makes a tensor of one number, of the sizes of another, or of it anew", {"anew": bool}),
    "arange": ("counts up to the number that it is given", {}),
    "random": (
        "draws numbers; sizes: the argument that tells how many, if not the first; by_row: for each row of weights",
        {"sizes": int, "by_row": bool},
    ),
    "random_like": ("draws a number for each that it is given", {}),
    "container": ("holds what it is given, or gives it back", {}),
    "whole": (
        "computes of all numbers together what nothing joins: `x.unique()`, `x.quantile(0.5)`; with `picks`, it "
        "takes some of them",
        {"picks": bool},
    ),
}
