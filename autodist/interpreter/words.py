"""Names of methods of tensors, modules and lists that more than one layer of the interpreter knows."""

from __future__ import annotations

MOVES = frozenset("cuda to cpu half float double bfloat16 type xpu mps npu to_empty".split())
RETURNS_SELF = MOVES | frozenset("train eval apply requires_grad_ share_memory compile".split())
REMAKES = frozenset("resize_token_embeddings set_input_embeddings set_output_embeddings reset_classifier".split())
"""Methods of models of libraries that put other parameters in the place of those that they have."""
GROWS = frozenset("append extend add insert appendleft update".split())
FILLING = frozenset("zeros ones full empty zeros_like ones_like full_like empty_like".split())
"""What makes a tensor of one number, whatever samples there are."""
REST = "**"
KEPT = "[]"
"""What an object holds beside its attributes: in a library, or under a name that is not known, as
`setattr(self, f"layer{i}", nn.Linear(4, 4))` sets."""
CUTTING = frozenset("detach detach_ item tolist numpy".split())
COUNTING = frozenset("argmax argmin one_hot".split())
"""What gives numbers of classes, through which no gradient flows."""
DRAWING = frozenset(
    "normal_ uniform_ bernoulli_ random_ exponential_ cauchy_ geometric_ log_normal_ rand_like randn_like randint_like "
    "bernoulli trunc_normal_".split()
)
NOISE_BY_SHAPE = ("xavier_", "kaiming_", "orthogonal_", "sparse_")
"""How functions of `torch.nn.init` begin that draw noise whose size goes by the shape of what they fill."""
SIZES = frozenset("numel nelement size dim ndimension stride element_size data_ptr register_hook get_device".split())
"""What is asked of a parameter besides its values."""
LATER = frozenset(
    "threading.Thread threading.Timer multiprocessing.Process multiprocessing.context.Process "
    "torch.multiprocessing.Process".split()
)
"""What calls a function in a thread or process of its own, once it is started."""
