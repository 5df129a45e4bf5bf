"""Names of operations and layers, by what they do to the rows of a batch and to its axes."""

from __future__ import annotations

from autodist.operations import load

TABLE = load()
ELEMENTWISE = frozenset(
    "relu relu_ relu6 leaky_relu elu selu celu gelu silu mish softplus softsign tanh sigmoid logsigmoid hardtanh "
    "hardsigmoid tanhshrink acos asin atan acosh asinh atanh sinh cosh erf erfc exp expm1 log log1p log2 log10 sqrt "
    "rsqrt pow square abs clamp clip clamp_min clamp_max sin cos tan atan sinh cosh erf sign floor ceil round "
    "reciprocal neg add add_ sub sub_ mul mul_ div div_ eq ne lt "
    "gt le ge where maximum minimum masked_fill dropout dropout1d dropout2d dropout3d alpha_dropout float double half "
    "bfloat16 long int bool byte type type_as to cuda cpu detach detach_ clone data contiguous requires_grad_ numpy "
    "zeros_like ones_like rand_like randn_like Variable tensor as_tensor from_numpy asarray array astype FloatTensor "
    "DoubleTensor LongTensor Tensor view_as expand_as reshape_as square_ item isnan isinf logical_not logical_and "
    "logical_or float32 float64 int64 FloatTensor zero_ copy retain_grad nan_to_num fill_ normal_ uniform_ "
    "bernoulli_ exponential_ toarray todense".split()
)
"""Each number of the result comes from one number of each operand."""
PER_ROW = frozenset(
    "linear bilinear embedding one_hot conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d "
    "max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d "
    "adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d layer_norm group_norm pixel_shuffle interpolate bmm "
    "baddbmm".split()
)
"""Each row of the result comes from one row of the first operand."""
ALONG = frozenset(
    "mean sum nansum nanmean max min amax amin argmax argmin softmax log_softmax norm std var prod median logsumexp "
    "topk sort argsort cumsum cumprod any all normalize cosine_similarity".split()
)
"""Work along the axis that they name."""
NUMBER_BY_NUMBER = TABLE.layers("same", "elementwise", "random_like")
LAYERS = NUMBER_BY_NUMBER | TABLE.layers("per_sample", "batch_statistic") - {"EmbeddingBag"}
"""Layers that give a row for each row; an `EmbeddingBag` may be told where each begins."""
FOLDING = frozenset("Flatten Unflatten Softmax LogSoftmax Softmax2d".split())
RECURRENT = frozenset("RNN LSTM GRU".split())
STACKS = frozenset(
    "Transformer TransformerEncoder TransformerDecoder TransformerEncoderLayer TransformerDecoderLayer".split()
)
ALIKE = TABLE.layers("loss") | TABLE.named("loss")
"""Losses over two tensors of one shape: others are broadcast, which pairs rows."""
LOSSES = ALIKE | frozenset("cross_entropy nll_loss CrossEntropyLoss NLLLoss NLLLoss2d".split())
PICKING = frozenset("max min topk sort median".split())
"""What gives values and their positions."""
PRODUCTS = frozenset("matmul mm mv spmm smm".split())
QUESTIONS = frozenset("size dim numel nelement ndimension is_floating_point element_size get_device".split())
FACTORIES = frozenset("zeros ones full empty rand randn new_zeros new_ones new".split())
NEW = frozenset("new new_zeros new_ones new_full new_empty".split())
CONVERTING = frozenset(
    "tensor as_tensor Tensor FloatTensor DoubleTensor LongTensor IntTensor array asarray from_numpy".split()
)
CREATING = frozenset(
    "tensor as_tensor from_numpy Tensor FloatTensor DoubleTensor LongTensor IntTensor HalfTensor BoolTensor ByteTensor "
    "array asarray loadtxt genfromtxt linspace arange logspace zeros ones full eye rand randn randint normal uniform "
    "random random_sample standard_normal empty zeros_like ones_like rand_like randn_like randperm permutation vstack "
    "hstack concatenate stack cat column_stack choice".split()
)
APPLYING = ("torch.utils.checkpoint.checkpoint",)
"""Functions of libraries that do nothing to the rows but hand them to their first argument."""
