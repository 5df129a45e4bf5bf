"""Calls of libraries."""

from __future__ import annotations

import ast
from dataclasses import replace

from autodist import tensors
from autodist.interpreter.builtin_calls import BuiltinCalls
from autodist.interpreter.questions import first_text
from autodist.interpreter.words import DRAWING, LATER, NOISE_BY_SHAPE
from autodist.source import last_name, told_once, walk
from autodist.spread import LOCAL, SAME
from autodist.values import NOTHING, Object, Parameters, Scope, Value, of, union

REMAKING = tuple(
    f"torch.nn.utils.{name}"
    for name in ("parametrizations.", "parametrize.", "prune.", "remove_", "spectral_norm", "weight_norm")
)
"""What puts other parameters in the place of those of a module."""

FETCHING = frozenset("wget curl gdown kaggle gsutil aws git unzip tar 7z gunzip hf huggingface-cli".split())
"""Commands that fetch or unpack files."""
LIKE = frozenset("zeros_like ones_like full_like empty_like rand_like randn_like".split())
"""What makes a tensor of its own that is sharded as another one is."""


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
            return Value(frozenset([own]), spread, mixed.origins)
        return self._function(name.rpartition(".")[2], node, args, keywords)

    def _filled_with_noise(self, name: str, node: ast.Call, tensor: Value, scope: Scope) -> None:
        """`nn.init.xavier_normal_(h)` of a state with a row for each sample: the size of such noise goes by both sizes
        of a matrix, of which one is that of the batch."""
        if name.startswith(NOISE_BY_SHAPE):
            self.event("noise_by_shape", node, scope, tensor)
        elif not name.startswith(("normal_", "uniform_", "trunc_normal_")):
            return
        self.event("random", node, scope)

    def _unseen_share(self, name: str, roles: frozenset[str], values: list[Value]) -> Value | None:
        """What code that is not at hand may make of a loader that it is given: of this rank's samples, that is."""
        if roles or self.catalog.knows(name):
            return None
        loaders = [thing for value in values for thing in value.objects("loader")]
        shared = frozenset(each for each in loaders if self._batch(each).spread.is_local)
        return Value(spread=LOCAL, origins=shared) if shared else None

    def _function(self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value]) -> Value:
        """A function over tensors or numbers."""
        if name in ("is_tensor", "is_floating_point", "is_complex", "isscalar"):
            return NOTHING
        values = [self._with_contents(value) for value in args]
        spreads = [v.spread for v in values]
        mixed = union([*values, *keywords.values()])
        held = not mixed.spread.is_local and any(isinstance(t, Parameters) for t in mixed.things)
        if held and (tensors.stays_sharded(name) or name in LIKE):
            kept = (t for t in mixed.things if isinstance(t, Parameters))
            return Value(frozenset(replace(t, cut=True) if name in LIKE else t for t in kept))
        if any(v.spread.is_local for v in keywords.values()) and not any(s.is_local for s in spreads):
            return mixed.computed(LOCAL)
        return mixed.computed(tensors.computed(name, self.spelled_out(node), None, spreads))


def _fetches_by_command(call: ast.Call) -> bool:
    """`os.system("wget " + url)`, `subprocess.run(["unzip", "-q", path])`"""
    told = (n.value for each in call.args[:1] for n in walk(each) if isinstance(n, ast.Constant))
    first = next((text for text in told if isinstance(text, str)), "")
    return first.partition(" ")[0] in FETCHING


def _is_known_distribution(name: str, values: list[Value]) -> bool:
    """Whether a distribution of torch is made of numbers that the script names: `Beta(0.4, 0.4)`, and no policy."""
    told = union(values)
    known = told.spread is SAME and not (told.origins or told.things)
    return known and name.startswith("torch.distributions.") and name.rpartition(".")[2][:1].isupper()


@told_once
def _stepping(tree: ast.Module) -> frozenset[tuple[str, str]]:
    """The names of what a file steps or clears of gradients, each with the method that does."""
    calls = (node.func for node in walk(tree) if isinstance(node, ast.Call))
    methods = (each for each in calls if isinstance(each, ast.Attribute) and each.attr in ("step", "zero_grad"))
    return frozenset((each.attr, last_name(each.value)) for each in methods)
