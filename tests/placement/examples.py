"""Calls of the operations for which their class does not say enough to make one."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.nn.utils import rnn
from trials import SIZE, Trial, callable_of, resolved

from autodist.operations import Operation

Made = Callable[[Operation], Iterator[Trial]]
NINE = (SIZE,)
ONES = torch.ones(2, dtype=torch.float64)


def _whole(tensor: torch.Tensor) -> Any:
    """Whole numbers of five values."""
    return (tensor * 5).long()


def _changed(change: Callable[[Any], Any], tensor: torch.Tensor) -> torch.Tensor:
    """A tensor whose numbers have been changed in place, as those of an array."""
    array = tensor.numpy().copy()
    change(array)
    return torch.from_numpy(array)


def layer(
    *args: Any, axes: tuple[int, ...], told: dict[str, Any] | None = None, kinds: Any = ("",), **options: Any
) -> Made:
    """A layer made of ``args``, given tensors of so many axes."""

    def made(operation: Operation) -> Iterator[Trial]:
        torch.manual_seed(1)
        module = resolved(operation.name)(*args, **options).double()
        module.train(bool((told or {}).get("training", operation.cls == "batch_statistic")))
        kind = kinds if len(kinds) == len(axes) else ("",) * len(axes)
        yield Trial(operation, module, tuple(NINE * each for each in axes), told or {}, kind)

    return made


def function(
    *args: Any, axes: tuple[int, ...], told: dict[str, Any] | None = None, kinds: Any = ("",), **options: Any
) -> Made:
    """A function of tensors of so many axes, and then of ``args``."""

    def made(operation: Operation) -> Iterator[Trial]:
        called = callable_of(operation)
        kind = kinds if len(kinds) == len(axes) else ("",) * len(axes)
        sizes = tuple(NINE * each for each in axes)
        yield Trial(operation, lambda *x: called(*x, *args, **options), sizes, told or {}, kind)

    return made


def layer_of(sizes: tuple[int, ...], *args: Any) -> Made:
    """A layer made of ``args``, given a tensor of such sizes."""

    def made(operation: Operation) -> Iterator[Trial]:
        yield Trial(operation, resolved(operation.name)(*args), (sizes,))

    return made


def half_of_transformer(name: str, operands: int) -> Made:
    """A part of `nn.Transformer`, with samples second or first."""

    def made(operation: Operation) -> Iterator[Trial]:
        for first in (False, True):
            module = torch.nn.Transformer(SIZE, 3, 1, 1, 4, 0.0, batch_first=first).double()
            yield Trial(
                operation, getattr(module, name), (NINE * 3,) * operands, {"batch_first": first}, ("",) * operands
            )

    return made


def several(*makers: Made) -> Made:
    """More than one call."""

    def made(operation: Operation) -> Iterator[Trial]:
        for each in makers:
            yield from each(operation)

    return made


def sized(shapes: tuple[tuple[int, ...], ...], run: Callable[..., Any], /, **told: Any) -> Made:
    """A call that is written out."""

    def made(operation: Operation) -> Iterator[Trial]:
        called = callable_of(operation)
        yield Trial(operation, lambda *x: run(called, *x), shapes, told, ("",) * len(shapes))

    return made


def of_normal(name: str, given: bool) -> Made:
    """A method of a distribution, whose mean is a tensor."""

    def run(_: Any, x: torch.Tensor) -> Any:
        method = getattr(torch.distributions.Normal(x, 1.0), name)
        return method(x) if given else method()

    return sized((NINE * 2,), run)


def dense_normal(_: Any, x: torch.Tensor) -> Any:
    """How likely vectors are, whose features vary together."""
    spread = torch.eye(x.size(-1), dtype=x.dtype) + 0.1
    normal: Any = torch.distributions.MultivariateNormal(torch.ones(x.size(-1), dtype=x.dtype), spread)
    return normal.log_prob(x)


def packed(x: torch.Tensor) -> torch.Tensor:
    """Sequences, packed and padded again."""
    found = rnn.pack_padded_sequence(x, torch.full((len(x),), x.size(1)), batch_first=True)
    return rnn.pad_packed_sequence(found, batch_first=True)[0]


def drawn(draw: Callable[..., Any], count: int) -> torch.Tensor:
    """Numbers of samples that Python draws."""
    random.seed(count)
    return torch.tensor(draw(range(20), k=count))


def counts(*sizes: Any) -> Made:
    """A function of sizes, of which the first is a number of samples."""

    def made(operation: Operation) -> Iterator[Trial]:
        called = callable_of(operation)
        yield Trial(operation, lambda x: called(*[x.size(0) if each == "n" else each for each in sizes]), (NINE,))

    return made


def classified(*args: Any, **told: Any) -> Made:
    """A loss of samples by class."""

    def made(operation: Operation) -> Iterator[Trial]:
        found = resolved(operation.name)
        kinds = ("signed", "integers") if operation.short.lower() != "binary" else ("", "")
        for reduction in ("mean", "sum", "none"):
            is_layer = operation.short[0].isupper()
            run = found(*args, reduction=reduction) if is_layer else lambda *x, r=reduction: found(*x, reduction=r)
            yield Trial(operation, run, (NINE * 2, NINE), {"reduction": reduction, **told}, kinds)

    return made


def called(run: Callable[[torch.Tensor], torch.Tensor]) -> Made:
    """What stands for an operation that is no function of its own: `1 if x > 0 else 0`, `labels.count(2)`"""
    return lambda operation: iter([Trial(operation, run, (NINE,))])


def rowwise(axes: tuple[int, ...], kinds: tuple[str, ...]) -> Made:
    """A loss of samples of several tensors."""

    def made(operation: Operation) -> Iterator[Trial]:
        found = resolved(operation.name)
        for reduction in ("mean", "sum", "none"):
            is_layer = operation.short[0].isupper()
            run = found(reduction=reduction) if is_layer else lambda *x, r=reduction: found(*x, reduction=r)
            yield Trial(operation, run, tuple(NINE * each for each in axes), {"reduction": reduction}, kinds)

    return made


def temporal(operation: Operation) -> Iterator[Trial]:
    """`ctc_loss(log_probabilities, targets, input_lengths, target_lengths)`."""
    found = resolved(operation.name)
    for reduction in ("mean", "sum", "none"):
        called = (
            found(reduction=reduction)
            if operation.short[0].isupper()
            else lambda *x, r=reduction: found(*x, reduction=r)
        )

        def run(x: torch.Tensor, y: torch.Tensor, called: Any = called) -> Any:
            lengths = torch.full((x.size(1),), SIZE), torch.full((y.size(0),), 2)
            return called(x.log_softmax(2), y[:, :2], *lengths)

        yield Trial(operation, run, (NINE * 3, NINE * 2), {"reduction": reduction}, ("signed", "integers"))


def recurrent(*args: Any, operands: int = 1) -> Made:
    """A layer over sequences, time first and batch first."""

    def made(operation: Operation) -> Iterator[Trial]:
        for first in (False, True):
            torch.manual_seed(1)
            options: dict[str, Any] = {"batch_first": first} if "batch_first" in operation.parameters else {}
            given = args
            if operation.short in ("TransformerEncoder", "TransformerDecoder"):
                inner = resolved(operation.name + "Layer")(SIZE, 3, 4, 0.0, batch_first=first)
                given = (inner, 1)
            module = resolved(operation.name)(*given, **options).double()
            yield Trial(operation, module, (NINE * 3,) * operands, {"batch_first": first}, ("",) * operands)

    return made


def by_dimension(names: str, make: Callable[[int], Made]) -> dict[str, Made]:
    """One entry for each name, made from the dimension that ends it."""
    return {name: make(int(name[-2])) for name in names.split()}


def patterned(pattern: str, *kind: str) -> Made:
    """A function of a tensor of three axes that a pattern of einops is written for."""
    told = {"equation": pattern, **({"reduction": kind[0]} if kind else {})}
    return function(pattern, *kind, axes=(3,), told=told)


EXAMPLES: dict[str, Made] = {
    # layers
    **by_dimension(
        "Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d",
        lambda d: several(layer(9, 2, 3, axes=(d + 2,)), layer(9, 2, 3, axes=(d + 1,))),
    ),
    **by_dimension(
        "MaxPool1d MaxPool2d MaxPool3d AvgPool1d AvgPool2d AvgPool3d AdaptiveAvgPool1d AdaptiveAvgPool2d "
        "AdaptiveAvgPool3d AdaptiveMaxPool1d AdaptiveMaxPool2d ReflectionPad1d ReflectionPad2d ReplicationPad1d "
        "ReplicationPad2d ZeroPad2d",
        lambda d: layer(2, axes=(d + 2,)),
    ),
    **by_dimension("ConstantPad1d ConstantPad2d", lambda d: layer(2, 0.5, axes=(d + 2,))),
    **by_dimension("BatchNorm2d BatchNorm3d InstanceNorm1d InstanceNorm2d", lambda d: layer(9, axes=(d + 2,))),
    "BatchNorm1d": several(layer(9, axes=(2,)), layer(9, axes=(3,)), layer(9, axes=(2,), told={"training": False})),
    "SyncBatchNorm": layer(9, axes=(2,), told={"training": False}),
    "Linear": several(layer(9, 3, axes=(2,)), layer(9, 3, axes=(3,))),
    "Bilinear": layer(9, 9, 3, axes=(2, 2)),
    "Embedding": several(layer(9, 4, axes=(1,), kinds=("integers",)), layer(9, 4, axes=(2,), kinds=("integers",))),
    "EmbeddingBag": layer(9, 4, axes=(2,), kinds=("integers",)),
    "PReLU": layer(axes=(2,)),
    "LayerNorm": several(
        layer(9, axes=(3,), told={"mixed": slice(-1, None)}), layer((9, 9), axes=(3,), told={"mixed": slice(-2, None)})
    ),
    "RMSNorm": layer(9, axes=(3,), told={"mixed": slice(-1, None)}),
    "GroupNorm": layer(3, 9, axes=(4,)),
    "LocalResponseNorm": layer(2, axes=(4,)),
    "Upsample": layer(None, 2, axes=(4,)),
    "PixelShuffle": layer(3, axes=(4,)),
    "PixelUnshuffle": layer(3, axes=(4,)),
    "Unfold": layer(2, axes=(4,)),
    "Fold": layer_of((9, 4, 9), (4, 4), 2),
    "GLU": layer_of((9, 9, 4)),
    "glu": sized(((9, 9, 4),), lambda f, x: f(x)),
    "Softmax": several(layer(0, axes=(2,), told={"axis": 0}), layer(1, axes=(2,), told={"axis": 1})),
    "LogSoftmax": layer(-1, axes=(2,), told={"axis": -1}),
    "Softmin": layer(-1, axes=(2,), told={"axis": -1}),
    "Softmax2d": layer(axes=(4,)),
    "Flatten": several(layer(axes=(3,), told={"axis": (1, -1)}), layer(0, 1, axes=(3,), told={"axis": (0, 1)})),
    "CosineSimilarity": several(layer(axes=(2, 2)), layer(0, axes=(2, 2), told={"axis": 0})),
    "PairwiseDistance": layer(axes=(2, 2)),
    **dict.fromkeys("RNNCell LSTMCell GRUCell".split(), layer(9, 4, axes=(2,))),
    **dict.fromkeys("RNN LSTM GRU".split(), recurrent(9, 4)),
    "MultiheadAttention": recurrent(9, 3, operands=3),
    "Transformer": recurrent(9, 3, 1, 1, 4, 0.0, operands=2),
    "TransformerEncoderLayer": recurrent(9, 3, 4, 0.0),
    "TransformerDecoderLayer": recurrent(9, 3, 4, 0.0, operands=2),
    "TransformerEncoder": recurrent(),
    "TransformerDecoder": recurrent(operands=2),
    "Threshold": layer(0.5, 0.1, axes=(2,)),
    # functions
    **by_dimension(
        "conv1d conv2d conv3d conv_transpose1d conv_transpose2d",
        lambda d: several(function(axes=(d + 2, d + 2)), function(axes=(d + 1, d + 2))),
    ),
    **by_dimension(
        "max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d "
        "adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d",
        lambda d: function(2, axes=(d + 2,)),
    ),
    "lp_pool2d": function(2.0, 2, axes=(4,)),
    "embedding": several(function(axes=(1, 2), kinds=("places", "")), function(axes=(2, 2), kinds=("places", ""))),
    "one_hot": function(9, axes=(2,), kinds=("integers",)),
    "prelu": sized((NINE * 2, (1,)), lambda f, x, w: f(x, w)),
    "pad": several(
        function((1, 1, 2, 2), axes=(4,), told={"mixed": slice(-2, None)}),
        function((1, 0), axes=(2,), told={"mixed": slice(-1, None)}),
        function((1, 0, 0, 1), axes=(2,), told={"mixed": slice(-2, None)}),
    ),
    "layer_norm": function((9,), axes=(3,), told={"mixed": slice(-1, None)}),
    "rms_norm": function((9,), axes=(3,), told={"mixed": slice(-1, None)}),
    "group_norm": function(3, axes=(4,)),
    "local_response_norm": function(2, axes=(4,)),
    "instance_norm": function(axes=(3,)),
    "pixel_shuffle": function(3, axes=(4,)),
    "pixel_unshuffle": function(3, axes=(4,)),
    "interpolate": function(None, 2, axes=(4,)),
    "upsample": function(None, 2, axes=(4,)),
    "unfold": function(2, axes=(4,)),
    "fold": sized(((9, 4, 9),), lambda f, x: f(x, (4, 4), 2)),
    "grid_sample": sized((NINE * 4, (9, 9, 9, 2)), lambda f, x, g: f(x, g, align_corners=False)),
    "affine_grid": sized(((9, 2, 3),), lambda f, x: f(x, (x.size(0), 1, 4, 4), align_corners=False)),
    "scaled_dot_product_attention": function(axes=(4, 4, 4)),
    "native_batch_norm": several(
        sized((NINE * 2,), lambda f, x: f(x, None, None, None, None, True, 0.1, 1e-5)[0]),
        sized(
            (NINE * 2,),
            lambda f, x: f(x, None, None, x.new_zeros(x.size(1)), x.new_ones(x.size(1)), False, 0.1, 1e-5)[0],
            training=False,
        ),
    ),
    "batch_norm": several(
        sized((NINE * 2,), lambda f, x: f(x, None, None, None, None, True)),
        sized(
            (NINE * 2,),
            lambda f, x: f(x, x.new_zeros(x.size(1)), x.new_ones(x.size(1)), None, None, False),
            training=False,
        ),
    ),
    "threshold": function(0.5, 0.1, axes=(2,)),
    "tril": function(axes=(3,)),
    "triu": function(axes=(3,)),
    "stft": sized((NINE * 2,), lambda f, x: f(x, 4, return_complex=True)),
    "istft": sized(((9, 3, 9),), lambda f, x: f(x.to(torch.complex128), 4)),
    **dict.fromkeys("fft2 ifft2 rfft2 irfft2".split(), function(axes=(3,))),
    **dict.fromkeys(
        "svd svdvals qr eigh eigvalsh inv pinv det slogdet matrix_norm inverse pinverse pca_lowrank".split(),
        several(function(axes=(3,)), function(axes=(2,))),
    ),
    "rearrange": several(*[patterned(each) for each in ("a b c -> c a b", "a b c -> (a b) c", "a ... -> ... a")]),
    "einops.repeat": patterned("a b c -> b 2 a c"),
    "reduce": several(*[patterned("a b c -> b a", kind) for kind in ("mean", "sum", "max")]),
    "Rearrange": layer("a b c -> b a c", axes=(3,), told={"equation": "a b c -> b a c"}),
    "Reduce": layer("a b c -> a c", "mean", axes=(3,), told={"equation": "a b c -> a c", "reduction": "mean"}),
    "cholesky": sized((NINE * 3,), lambda f, x: f(x @ x.mT + torch.eye(x.size(-1), dtype=x.dtype))),
    "cross": sized(((9, 9, 3), (9, 9, 3)), lambda f, x, y: f(x, y, dim=-1)),
    "fliplr": function(axes=(2,)),
    "flip": several(*[function((axis,), axes=(2,), told={"axis": (axis,)}) for axis in (0, 1)]),
    "clip": function(0.2, 0.7, axes=(2,)),
    "clamp": function(0.2, 0.7, axes=(2,)),
    "masked_fill": sized((NINE * 2, NINE * 2), lambda f, x, m: f(x, m > 0.5, 0.0)),
    "where": sized((NINE * 2, NINE * 2, NINE * 2), lambda f, m, x, y: f(m > 0.5, x, y)),
    "polar": function(axes=(2, 2)),
    "view_as_complex": sized(((9, 9, 2),), lambda f, x: f(x)),
    "lerp": function(axes=(2, 2, 2)),
    **dict.fromkeys("addcmul addcdiv".split(), function(axes=(2, 2, 2))),
    "std_mean": several(function(axes=(2,)), function(1, axes=(2,), told={"axis": 1})),
    "var_mean": several(function(axes=(2,)), function(1, axes=(2,), told={"axis": 1})),
    "nanquantile": function(0.3, axes=(2,)),
    "renorm": several(*[function(2, axis, 1.0, axes=(2,), told={"axis": axis}) for axis in (0, 1)]),
    "average": several(function(axes=(2,)), function(1, axes=(2,), told={"axis": 1})),
    "any": several(
        sized((NINE * 2,), lambda f, x: f(x > 0.97)), sized((NINE * 2,), lambda f, x: f(x > 0.8, 1), axis=1)
    ),
    "all": several(
        sized((NINE * 2,), lambda f, x: f(x > 0.06)), sized((NINE * 2,), lambda f, x: f(x > 0.2, 1), axis=1)
    ),
    # layout
    "operator.choice": called(lambda x: torch.where(x > 0.5, 1.0, 0.0).double()),
    "builtins.list.count": called(lambda x: torch.tensor((x > 0.5).tolist().count(True)).double()),
    "builtins.list.pop": called(lambda x: [x].pop()),
    "permute": sized((NINE * 3,), lambda f, x: f(x, (2, 0, 1)), axis=(2, 0, 1)),
    "torch.Tensor.permute": sized((NINE * 3,), lambda f, x: f(x, 2, 0, 1), axis=(2, 0, 1)),
    "numpy.transpose": several(sized((NINE * 3,), lambda f, x: f(x, (2, 0, 1)), axis=(2, 0, 1)), function(axes=(3,))),
    **dict.fromkeys("transpose swapaxes swapdims".split(), function(0, 2, axes=(3,), told={"axis": (0, 2)})),
    "t": function(axes=(2,)),
    "T": function(axes=(2,)),
    "mT": function(axes=(3,)),
    **dict.fromkeys(
        "movedim moveaxis".split(),
        several(*[function(*pair, axes=(3,), told={"axis": pair}) for pair in ((0, 2), (2, 0), (1, -1))]),
    ),
    **dict.fromkeys(
        "view reshape".split(),
        several(
            *[
                sized((NINE * 3,), lambda f, x, s=sizes: f(x, s), sizes=sizes)
                for sizes in ((-1, 9), (9, -1), (-1,), (9, 9, -1), (-1, 9, 3, 3), (9, -1, 9), (9, 81))
            ]
        ),
    ),
    "view_as": sized((NINE * 3, (9, 81)), lambda f, x, y: f(x, y)),
    "reshape_as": sized((NINE * 3, (9, 81)), lambda f, x, y: f(x, y)),
    **dict.fromkeys(
        "torch.flatten".split(),
        several(
            function(axes=(3,)),
            *[function(*p, axes=(4,), told={"axis": p}) for p in ((0, 1), (1, 2), (2, 3), (1, -1))],
            function(1, axes=(3,), told={"axis": 1}),
        ),
    ),
    "ravel": several(function(axes=(3,)), function(axes=(1,))),
    "unflatten": several(
        *[function(axis, (-1, 1), axes=(2,), told={"axis": axis, "sizes": (-1, 1)}) for axis in (0, 1)],
        function(1, (3, 3), axes=(3,), told={"axis": 1, "sizes": (3, 3)}),
    ),
    "Unflatten": layer(1, (3, 3), axes=(3,), told={"axis": 1, "sizes": (3, 3)}),
    "squeeze": several(
        sized(((9, 1, 9),), lambda f, x: f(x)),
        sized(((9, 1, 9),), lambda f, x: f(x, 1), axis=1),
        sized(((1, 9, 1, 9),), lambda f, x: f(x)),
        sized((NINE * 2,), lambda f, x: f(x, 1) if isinstance(x, torch.Tensor) else x, axis=1),
    ),
    **dict.fromkeys(
        "expand broadcast_to".split(),
        several(
            sized((NINE * 2,), lambda f, x: f(x, (4, -1, -1)), sizes=(4, -1, -1)),
            sized(((9, 1),), lambda f, x: f(x, (-1, 5)), sizes=(-1, 5)),
        ),
    ),
    "torch.Tensor.expand_as": sized(((9, 1), NINE * 2), lambda f, x, y: f(x, y)),
    "numpy.broadcast_to": sized((NINE * 2,), lambda f, x: f(x, (4, *x.shape)), sizes=(4, -1, -1)),
    **dict.fromkeys(
        "torch.Tensor.repeat tile".split(),
        several(*[sized((NINE * 2,), lambda f, x, s=s: f(x, s), sizes=s) for s in ((1, 2), (2, 1), (3, 1, 1))]),
    ),
    # sizes and draws
    **dict.fromkeys("torch.zeros torch.ones torch.empty torch.rand torch.randn".split(), counts("n", 3)),
    **dict.fromkeys("numpy.random.rand numpy.random.randn".split(), counts("n", 3)),
    **dict.fromkeys("random random_sample standard_normal".split(), counts("n")),
    **dict.fromkeys("numpy.zeros numpy.ones numpy.empty".split(), counts("n")),
    "full": sized((NINE,), lambda f, x: f((x.size(0), 3), 0.5)),
    "numpy.full": sized((NINE,), lambda f, x: f((x.size(0), 3), 0.5)),
    "uniform": sized((NINE,), lambda f, x: f(0, 5, (x.size(0),))),
    **{f"torch.distributions.Distribution.{name}": of_normal(name, True) for name in ("log_prob", "cdf", "icdf")},
    **{f"torch.distributions.Distribution.{name}": of_normal(name, False) for name in ("rsample", "sample", "entropy")},
    "torch.distributions.MultivariateNormal.log_prob": several(
        sized((NINE * 2,), dense_normal), sized(((9, 5, 3),), dense_normal)
    ),
    "pack_padded_sequence": sized(((SIZE, 3, 2),), lambda _, x: packed(x)),
    "pad_packed_sequence": sized(((SIZE, 3, 2),), lambda _, x: packed(x)),
    "pad_sequence": sized(((SIZE, 3), (SIZE, 3)), lambda f, *x: f(list(x)), axis=1),
    "multinomial": sized((NINE,), lambda f, x: f(torch.ones(20), x.size(0))),
    "numpy.random.choice": sized((NINE,), lambda f, x: f(5, x.size(0))),
    "integers": sized((NINE,), lambda f, x: f(np.random.default_rng(0), 0, 5, x.size(0))),
    **dict.fromkeys("random.sample random.choices".split(), sized((NINE,), lambda f, x: drawn(f, x.size(0)))),
    "new": sized((NINE,), lambda f, x: f(x, x.size(0), 3).zero_()),
    "resize_": sized((NINE,), lambda f, x: f(torch.empty(0), x.size(0), 3).zero_()),
    "resize_as_": sized((NINE * 2,), lambda f, x: f(torch.empty(0), x).copy_(x)),
    "astype": function("float32", axes=(2,)),
    "randint": sized((NINE,), lambda f, x: f(0, 5, (x.size(0),))),
    "normal": sized((NINE,), lambda f, x: f(0.0, 1.0, (x.size(0),))),
    **dict.fromkeys("new_zeros new_ones new_empty".split(), sized((NINE,), lambda f, x: f(x, (x.size(0), 3)))),
    "new_full": sized((NINE,), lambda f, x: f(x, (x.size(0), 3), 0.5)),
    **dict.fromkeys("arange eye randperm permutation".split(), counts("n")),
    "range": counts(0, "n"),
    "builtins.range": counts("n"),
    "linspace": counts(0, 1, "n"),
    "logspace": counts(0, 1, "n"),
    "randint_like": function(0, 5, axes=(2,)),
    "full_like": function(0.5, axes=(2,)),
    "copy_": sized((NINE * 2, NINE * 2), lambda f, x, y: f(x.clone(), y)),
    "fill_": sized((NINE * 2,), lambda f, x: f(x.clone(), 0.5)),
    "zero_": sized((NINE * 2,), lambda f, x: f(x.clone())),
    "geometric_": sized((NINE * 2,), lambda f, x: f(x.clone(), 0.5)),
    # losses
    **dict.fromkeys("cross_entropy nll_loss CrossEntropyLoss NLLLoss".split(), classified()),
    "multi_margin_loss": classified(),
    "MultiMarginLoss": classified(),
    **dict.fromkeys("multilabel_margin_loss MultiLabelMarginLoss".split(), rowwise((2, 2), ("signed", "places"))),
    **dict.fromkeys("multilabel_soft_margin_loss MultiLabelSoftMarginLoss".split(), rowwise((2, 2), ("signed", ""))),
    **dict.fromkeys("cosine_embedding_loss CosineEmbeddingLoss".split(), rowwise((2, 2, 1), ("", "", "signs"))),
    **dict.fromkeys(
        "triplet_margin_loss triplet_margin_with_distance_loss TripletMarginLoss".split(), rowwise((2, 2, 2), ("",) * 3)
    ),
    "ctc_loss": temporal,
    "CTCLoss": temporal,
    # what is computed of all numbers
    **dict.fromkeys(
        "equal allclose array_equal array_equiv".split(),
        sized((NINE * 2, NINE * 2), lambda f, x, y: f(x, x + (y > 0.9))),
    ),
    "numpy.equal": function(axes=(2, 2)),
    "searchsorted": sized((NINE, NINE), lambda f, x, y: f(x.sort().values, y)),
    "cartesian_prod": sized((NINE, NINE), lambda f, x, y: f(x, y)),
    "combinations": function(axes=(1,)),
    "histogram": function(5, axes=(1,)),
    "corrcoef": sized((NINE * 2,), lambda f, x: f(x)),
    "diag": function(axes=(1,)),
    "trace": function(axes=(2,)),
    "diagonal": function(axes=(2,)),
    # Python
    **dict.fromkeys("isinstance issubclass".split(), sized((NINE,), lambda f, x: f(int, int))),
    "hasattr": sized((NINE,), lambda f, x: f(x, "shape")),
    "register_hook": sized((NINE,), lambda f, x: f(x.clone().requires_grad_(), print) and None),
    "backward": sized((NINE,), lambda f, x: f(x.clone().requires_grad_().sum())),
    "enumerate": sized((NINE,), lambda f, x: [at for at, _ in f(x)]),
    **dict.fromkeys("list tuple".split(), sized((NINE,), lambda f, x: list(f(x)))),
    "zip": sized((NINE, NINE), lambda f, x, y: [one - other for one, other in f(x, y)]),
    "builtins.any": sized((NINE,), lambda f, x: f((x > 0.8).tolist())),
    "builtins.all": sized((NINE,), lambda f, x: f((x > 0.1).tolist())),
    "reversed": sized((NINE,), lambda f, x: list(f(x))),
    **dict.fromkeys("set frozenset".split(), sized((NINE,), lambda f, x: sorted(f(x)))),
    "dict": sized((NINE,), lambda f, x: list(f(enumerate(x)).values()) if isinstance(x, torch.Tensor) else x),
    "str": sized((NINE,), lambda f, x: f(x)),
    "repr": sized((NINE,), lambda f, x: f(x)),
    "format": sized((NINE,), lambda f, x: f(str(x))),
    "mode": several(
        function(axes=(2,), kinds=("integers",)), function(0, axes=(2,), told={"axis": 0}, kinds=("integers",))
    ),
    **dict.fromkeys("nonzero argwhere flatnonzero".split(), sized((NINE,), lambda f, x: f(x > 0.5))),
    "bincount": several(
        sized((NINE,), lambda f, x: f(_whole(x), minlength=9), is_told=True),
        sized((NINE,), lambda f, x: f(_whole(x)), is_told=False),
    ),
    "histc": several(
        sized((NINE,), lambda f, x: f(x, 4, 0, 1), is_told=True), sized((NINE,), lambda f, x: f(x, 4), is_told=False)
    ),
    "copyto": sized((NINE,), lambda f, x: f(np.zeros(len(x)), x)),
    "numpy.add.at": sized((NINE,), lambda f, x: _changed(lambda array: f(array, np.arange(2), 1), x)),
    "index_put_": sized(
        (NINE,), lambda f, x: f(x.clone(), (torch.arange(2),), torch.ones(2).double(), accumulate=True)
    ),
    "put_": sized((NINE,), lambda f, x: f(x.clone(), torch.tensor([0, 1]), torch.ones(2).double(), accumulate=True)),
    **dict.fromkeys(
        "index_add scatter_add scatter_add_".split(),
        sized((NINE,), lambda f, x: f(x.clone(), 0, torch.arange(2), ONES), axis=0),
    ),
    "index_copy": sized((NINE,), lambda f, x: f(x, 0, torch.arange(2), ONES), axis=0),
    "index_fill": sized((NINE,), lambda f, x: f(x, 0, torch.arange(2), 1.0), axis=0),
    "index_copy_": sized((NINE,), lambda f, x: f(x.clone(), 0, torch.arange(2), ONES), axis=0),
    "index_fill_": sized((NINE,), lambda f, x: f(x.clone(), 0, torch.arange(2), 1.0), axis=0),
    "scatter_reduce": sized((NINE,), lambda f, x: f(x.clone(), 0, torch.arange(2), ONES, reduce="sum"), axis=0),
    "index_reduce": sized((NINE,), lambda f, x: f(x.clone(), 0, torch.arange(2), ONES, "amax"), axis=0),
    "collections.Counter": sized((NINE,), lambda f, x: max(f(_whole(x).tolist()).values())),
    "torch.nn.Transformer.encoder": half_of_transformer("encoder", operands=1),
    "torch.nn.Transformer.decoder": half_of_transformer("decoder", operands=2),
    "unique_consecutive": function(axes=(1,), kinds=("places",)),
    "dropout": sized((NINE * 2,), lambda f, x: f(x, 0.5, True)),
    "torch.alpha_dropout": sized((NINE * 2,), lambda f, x: f(x, 0.5, True)),
    "from_numpy": sized((NINE * 2,), lambda f, x: f(x.numpy())),
    "type": sized((NINE * 2,), lambda f, x: f(x, torch.float64)),
    "builtins.type": sized((NINE * 2,), lambda f, x: f(x)),
    "retain_grad": sized((NINE,), lambda f, x: f(x.clone().requires_grad_())),
    "tolist": function(axes=(2,)),
    "item": sized(((),), lambda f, x: f(x)),
    "len": function(axes=(1,)),
    "take": sized((NINE * 2,), lambda f, x: f(x, [0, 1], 1), axis=1),
}
