"""Calls of libraries."""

from __future__ import annotations

import ast
from dataclasses import replace

from autodist.interpreter.builtin_calls import BuiltinCalls
from autodist.interpreter.questions import first_text, sums_products
from autodist.interpreter.words import DRAWING, LATER, NOISE_BY_SHAPE
from autodist.source import last_name, told_once, walk
from autodist.spread import COUNT, CROSS, LOCAL, MEAN, ROWS, SAME, SUM, combine
from autodist.tensors import facts, operations
from autodist.values import NOTHING, Items, Object, Parameters, Scope, Value, of, union

REMAKING = tuple(
    f"torch.nn.utils.{name}"
    for name in ("parametrizations.", "parametrize.", "prune.", "remove_", "spectral_norm", "weight_norm")
)
"""What puts other parameters in the place of those of a module."""
MAKING = frozenset("zeros ones empty full".split())
TYPES = frozenset("Tensor FloatTensor DoubleTensor LongTensor HalfTensor".split())
SCORES = ("sklearn.metrics.", "scipy.stats.", "torchmetrics.functional.")
"""What computes numbers from samples, and no row for each."""
MEANS_OF_SAMPLES = frozenset("accuracy_score mean_squared_error mean_absolute_error hamming_loss zero_one_loss".split())
GIVEN_SAMPLES = frozenset("y_true y_pred".split())
"""Their options may weigh samples, sum them up or take the root of the mean."""

FETCHING = frozenset("wget curl gdown kaggle gsutil aws git unzip tar 7z gunzip hf huggingface-cli".split())
"""Commands that fetch or unpack files."""
LIKE = frozenset("zeros_like ones_like full_like empty_like rand_like randn_like".split())
"""What makes a tensor of its own that is sharded as another one is."""
OF_ONE_VALUE = frozenset("zeros_like ones_like full_like".split())
"""Those of them that tell nothing of it but its shape."""


PICKING_DATA = frozenset("Subset SubsetRandomSampler WeightedRandomSampler".split())
"""What says by numbers on which samples of a data set to train, or how often."""


class Libraries(BuiltinCalls):
    """Calls of what is not of the project."""

    def _is_stepped(self, made: ast.Call, scope: Scope) -> bool:
        """Whether the script steps and clears of gradients what a library makes that nothing is known of:
        `optimizer = RAdam(model.parameters())`."""
        statement = scope.source.parents.get(made)
        if not isinstance(statement, ast.Assign):
            return False
        names = {last_name(each) for each in statement.targets}
        stepping = (found for source in self.project.sources for found in _stepping(source.tree))
        asked = {method for method, name in stepping if name in names}
        return len(asked) == 2

    def _external(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value:
        """Call something of a library."""
        roles = self.catalog.roles(name)
        values = [*args, *keywords.values()]
        held = frozenset(t.module for value in values for t in value.things if isinstance(t, Parameters))
        if not roles and args and self.parameters_in(args[0]) and self._is_stepped(node, scope):
            roles = frozenset(["optimizer"])
        if held and (name.startswith("torch.nn.init.") or name.rpartition(".")[2] in DRAWING):
            if not name.endswith(("constant_", "zeros_", "ones_", "eye_", "dirac_")):
                self.event("draw_parameters", node, scope, Value(held))
        if name.startswith("torch.nn.init.") and args and args[0].spread.is_local:  # an activation, and no parameter
            self._filled_with_noise(name.rpartition(".")[2], node, args[0], scope)
        if name.startswith(REMAKING) and args and self._modules_in(args[0]):
            self.event("replace_parameter", node, scope, args[0])
            if not name.startswith("torch.nn.utils.prune."):  # which goes on with the same parameter
                self.event("grow", node, scope, args[0])
        for role in sorted(roles):
            handler = getattr(self, "call_" + role, None)
            if handler is not None:
                result: Value | None = handler(name, node, args, keywords, scope)
                if result is not None:
                    return result
        if name in LATER:
            self._start_later(node, args, keywords, scope)
        # what `map` calls is given what it goes over, and `partial` calls nothing yet
        for value in values if name not in ("builtins.map", "functools.partial") else ():
            self._callbacks(value, name, node, scope)
        if roles & {
            "print",
            "log",
            "write",
            "save",
            "tracker",
            "mkdir",
            "download",
            "framework",
            "framework_setting",
            "load",
            "exists",
        }:
            for value in values if roles & {"print", "log"} else ():
                self._shown(value, node, scope)
            for role in sorted(roles):
                kind = "download" if role == "write" and _fetches_by_command(node) else role
                self.event(kind, node, scope, self._mixed(values), first_text(values) if kind == "write" else NOTHING)
        for read in values if "goes_over_loader" in roles else ():
            if any(read.objects("loader")):
                self.event("listed", node, scope, read)
        builtin = self._builtin(name, node, args, keywords, scope)
        if builtin is not None:
            return builtin
        if name.startswith("einops.") and name.rpartition(".")[2] in ("rearrange", "reduce", "repeat", "einsum"):
            return self._function(name.rpartition(".")[2], node, args, keywords)
        roots = name.partition(".")[0]
        of_samples = any(v.spread.is_local for v in values)  # `Variable(x, requires_grad=True)`
        is_leaf = keywords.get("requires_grad", NOTHING).const is True and id(node) not in self.plan.inputs
        if is_leaf and "module" not in roles and not of_samples:
            return of(
                self._remember(
                    node, lambda: Object(name, frozenset(["parameter"]), node, scope.source, self._path), "loose"
                )
            )
        unseen = self._unseen_share(name, roles, values)
        if unseen is not None:
            values = [*values, unseen]
            roles |= {"reader"} if args and any(args[0].objects("loader")) else set()
        if _is_known_distribution(name, values):
            roles = frozenset(["distribution"])
        made = bool(roles - {"random_draw", "plain_torch", "exists", "load", "read", "mapped_file"}) or roots not in (
            "torch",
            "numpy",
            "math",
            "builtins",
            "F",
        )
        if made and "plain_torch" not in roles:
            mixed = self._mixed(values)
            if id(node) in self.plan.modules:
                roles = roles | {"module"}
            own = self._remember(node, lambda: Object(name, roles, node, scope.source, self._path), name)
            own.args, own.keywords = args, keywords
            self.event("make", node, scope, of(own))
            if name.startswith("torch.utils.data.") and name.rpartition(".")[2] in PICKING_DATA:
                self.event("picks_data", node, scope, mixed)
            spread = mixed.spread if mixed.spread.is_local else SAME
            if spread is ROWS and name.startswith(SCORES):
                plain = name.rpartition(".")[2] in MEANS_OF_SAMPLES and keywords.keys() <= GIVEN_SAMPLES
                spread = MEAN if plain else LOCAL  # as the F1 score, of which no mean over the ranks is made
            return Value(frozenset([own]), spread, mixed.origins, mixed.models)
        return self._function(name.rpartition(".")[2], node, args, keywords)

    def _filled_with_noise(self, name: str, node: ast.Call, tensor: Value, scope: Scope) -> None:
        """`nn.init.xavier_normal_(h)` of a state with a row for each sample: the size of such noise goes by both sizes
        of a matrix, of which one is that of the batch."""
        columns = name.startswith("kaiming_") and tensor.spread is ROWS  # it goes by the second axis
        if name.startswith(NOISE_BY_SHAPE) and not columns:
            self.event("noise_by_shape", node, scope, tensor)
        elif not columns and not name.startswith(("normal_", "uniform_", "trunc_normal_")):
            return
        self.event("random", node, scope)

    def _unseen_share(self, name: str, roles: frozenset[str], values: list[Value]) -> Value | None:
        """What code that is not at hand may make of a loader that it is given: of this rank's samples, that is."""
        if roles or self.catalog.knows(name):
            return None
        loaders = [thing for value in values for thing in value.objects("loader")]
        shared = [each for each in loaders if self._batch(each).spread.is_local]
        return Value(spread=LOCAL, origins=frozenset(shared)) if shared else None

    def _function(self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value]) -> Value:
        """A function over tensors or numbers."""
        if name in ("is_tensor", "is_floating_point", "is_complex", "isscalar"):
            return NOTHING
        values = [self._with_contents(value) for value in args]
        if name in facts.CONVERTING and args:
            counted = self._row_numbers(args[0])
            listed = any(isinstance(t, Items) for t in args[0].things) or isinstance(node.args[0], ast.Call)
            if counted is not None and listed:
                return counted.computed(LOCAL)  # `torch.tensor([i % 2 for i in range(len(x))])`
        if name in MAKING and (args or "size" in keywords) and self._counts_rows(args[0] if args else keywords["size"]):
            return union([*values, *keywords.values()]).computed(ROWS)
        if name in TYPES and args and args[0].spread is COUNT and not args[0].things:  # `torch.FloatTensor(n, 4)`
            return union([*values, *keywords.values()]).computed(ROWS)
        spreads = [v.spread for v in values]
        local_keywords = [v for v in keywords.values() if v.spread.is_local]
        mixed = union([*values, *keywords.values()])
        held = not mixed.spread.is_local and any(isinstance(t, Parameters) for t in mixed.things)
        if held and (operations.stays_sharded(name) or name in LIKE):
            kept = (t for t in mixed.things if isinstance(t, Parameters))
            return Value(frozenset(replace(t, cut=True) if name in LIKE else t for t in kept))
        if local_keywords and not any(s.is_local for s in spreads):
            return mixed.computed(combine([v.spread for v in local_keywords]))
        if values and values[0].spread is ROWS and values[0].axes == 1 and name in facts.PICKING:
            return mixed.computed(LOCAL)
        if self.pairs_turn(values):
            return mixed.computed(CROSS)
        if name in OF_ONE_VALUE and node.args and self._is_a_sample(node.args[0]):
            return NOTHING  # `torch.ones_like(x[0])`: all samples have the same shape
        if values and self.is_one_row(values[0]) and operations.moves_along(name):
            return mixed.computed(values[0].spread)
        if name in ("matmul", "mm") and len(values) == 2 and sums_products(values[0], values[1], not self._no_grad):
            return mixed.computed(SUM)
        tensor = values[0] if values else NOTHING
        written = self.spelled_out(node, 1, tensor)
        return mixed.computed(operations.operation(name, written, None, spreads, tensor.axes))

    def _counts_rows(self, size: Value) -> bool:
        """Whether a size begins with the number of this rank's samples: `(x.size(0), 4)`, `x.shape`."""
        firsts = [thing.parts[0].spread for thing in size.things if isinstance(thing, Items) and thing.parts]
        return size.spread is COUNT or bool(firsts) and all(spread is COUNT for spread in firsts)

    def _is_a_sample(self, node: ast.expr) -> bool:
        """`x[0]` of samples that lie along the first axis."""
        if not isinstance(node, ast.Subscript):
            return False
        taken, index = self._lately(node.value), self._lately(node.slice)
        return type(index.const) is int and taken.spread is ROWS and not taken.things


def _fetches_by_command(call: ast.Call) -> bool:
    """`os.system("wget " + url)`, `subprocess.run(["unzip", "-q", path])`"""
    told = (n.value for each in call.args[:1] for n in walk(each) if isinstance(n, ast.Constant))
    first = next((text for text in told if isinstance(text, str)), "")
    return first.partition(" ")[0] in FETCHING


def _is_known_distribution(name: str, values: list[Value]) -> bool:
    """Whether a distribution of torch is made of numbers that the script names: `Beta(0.4, 0.4)`, and no policy."""
    told = union(values)
    known = told.spread is SAME and not (told.origins or told.models or told.things)
    return known and name.startswith("torch.distributions.") and name.rpartition(".")[2][:1].isupper()


@told_once
def _stepping(tree: ast.Module) -> frozenset[tuple[str, str]]:
    """The names of what a file steps or clears of gradients, each with the method that does."""
    calls = (node.func for node in walk(tree) if isinstance(node, ast.Call))
    methods = (each for each in calls if isinstance(each, ast.Attribute) and each.attr in ("step", "zero_grad"))
    return frozenset((each.attr, last_name(each.value)) for each in methods)
