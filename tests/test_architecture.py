"""The layers of the design: imports go down only."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT

PACKAGE, RULES = ROOT / "autodist", ROOT / "rules"

LAYERS = """
    __main__
    cli
    session | evaluate | bench | agents | doctor | setting_up | plan | manifest | lsp
    observe
    report | output | terminal | verify | proofs
    convert | launch | choice | relocation
    registry | repeats | suppress
    analyze
    footprint | parting | preemption | ranks
    common_draws
    randomness | searching | turns | unwraps | optimizers
    seeding
    averaging | previews | resizing | while_importing
    fsdp
    accumulation
    losses
    metrics
    models | launchers | borrowed | frameworks
    files
    regions
    interpreter
    result
    script
    rule
    imports
    edits & lossless
    tensors
    alternatives | carried
    values
    spread | reduction
    solve
    placement
    trace
    catalog | project
    program
    source
    notebook
    config
    operations | observations
    deep | errors | sniff
"""
"""From the top. ``|`` separates modules that do not know each other, ``&`` two halves of one. A package is one name."""

INTERPRETER = """
    run
    calls
    autograd_functions | methods
    libraries
    builtin_calls | classes | statements | torch_modules
    records
    expressions | functions | loops | roles | subscripts
    arithmetic | attributes | branches | stores
    shared
    evaluation
    draws
    contents
    loaders | names | overloads
    machine
    events | plan | questions | words
"""
"""The layers inside the interpreter. A class calls what is in its bases; `Machine` declares what is called upwards."""

ON_DISK = """
    answers | waiting | naming | lifting
    preparing
    writing
    fetching | temporary
    looking
"""

MODELS = """
    placing | trained
    passes | wrapping
    nameless
    history | places
    behind | moves | sparse
    parts | outputs
"""

MANIFEST = """
    command
    compose | kubeflow | skypilot | slurm
    torchrun
    job
    facts
    settings
"""

RANDOMNESS = """
    apart | order_seeds
    own_noise
    orders
    dropping
    drawing
"""

LOSSES = """
    by_turn
    wholes
    rounds | refilled | unbatched | own_gradients | untaken
"""

FSDP = """
    folders | shards | unshardable
    nested | replaced
    mixed
    restored
    meta | outputs | weights
    sharding
"""

PROGRAM = """
    graph
    values
"""

TRACE = """
    tracer
    libraries
    processes
    data
    objects
    calls
    attributes
    statements
    expressions
    containers
    taking
    names
    machine | folding
    settings
    conditions | things
"""
"""A class calls what is in its bases; `Machine` declares what is called upwards."""

PLACEMENT = """
    padded
    propagate | filled
    kept
    opaque
    in_place
    measures
    loops
    reading
    placements
    subscripts | plan
    arguments | shapes | whole_numbers | measured | decided
    transfer
    patterns
    samples | layout | products | between_ranks
    sizes
    along
    by_number
    call
    lattice
"""

SOLVE = """
    gradients
    weights | gathering
    cuts | losses | evaluation | padding
    objects | worth | shares
    memories | costs | rounds
    search
    facts
    layouts
    sources | demands | learned | forward | generators | normalising | kept_gradients
    batch_draws
    draws
    batches | alone | written | stores | sides | passes
    sizes | steps | paths | kinds
    parameters
"""

OPERATIONS = """
    table
    classes
"""

LSP = """
    server
    process
    checking
"""

PROJECT = """
    scripts
    search_path | chosen
"""

ANALYZE = """
    analysis
    assembling | refusals
    evaluation | losses | picked
    reductions
    beginning | going_apart | handmade | hooks | loaders | measured | modules
    padding
    batch_sizes | bucket_views | checkpoints | devices | numbering | sets | squeezed
    launched
    device_numbers | group
    own_rank
"""

FOR_RULES = frozenset("rule script config program edits imports values spread reduction source observations".split())
"""What a rule may import of autodist: what describes a script, and what describes a change."""

PROBES = (*PACKAGE.glob("**/probe.py"), PACKAGE / "bench" / "worker.py")
"""Modules of other packages that run inside the user's program."""
IN_THE_USERS_PROCESS = ("bootstrap", "confinement", "marks", "nodes", "outside", "trace", "plan", "probes", "sharing")
"""The modules of ``verify`` that run inside the user's program, where only the standard library and torch are sure."""


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """Every module that a file imports when it runs, wherever the import stands, with its line."""
    pending: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = "autodist.rules." if node.level else ""
            assert node.module and not (node.level and path.parent != RULES), f"{path}:{node.lineno}: a relative import"
            yield from ((f"{package}{node.module}.{alias.name}", node.lineno) for alias in node.names)
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            pending += node.orelse
        else:
            pending += ast.iter_child_nodes(node)


def own(path: Path) -> Iterator[tuple[str, int]]:
    """The modules of autodist that a file imports, by their name below ``autodist``."""
    for name, line in imports(path):
        package, _, rest = name.partition(".")
        if package == "autodist" and rest:
            yield rest.partition(".")[0], line


def ranks(layers: str = LAYERS) -> dict[str, int]:
    """How deep each module stands."""
    lines = [line.split() for line in layers.strip().splitlines()]
    return {name: depth for depth, line in enumerate(lines) for name in line if name.isidentifier()}


def name_of(path: Path) -> str:
    """The module or package directly below ``autodist`` that holds a file."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


FILES = sorted(path for path in PACKAGE.rglob("*.py") if name_of(path) != "__init__")
RULE_FILES = sorted(RULES.glob("*.py"))


def test_every_module_has_its_layer() -> None:
    assert {name_of(path) for path in FILES} == set(ranks())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_imports_go_down(path: Path) -> None:
    depth, me = ranks(), name_of(path)
    for other, line in own(path):
        twin = f"{me} & {other}\n" in LAYERS or f"{other} & {me}\n" in LAYERS
        assert twin or other == me or depth[other] > depth[me], f"{path}:{line}: imports {other} from below or beside"


@pytest.mark.parametrize(
    ("package", "layers"),
    [
        ("analyze", ANALYZE),
        ("files", ON_DISK),
        ("fsdp", FSDP),
        ("interpreter", INTERPRETER),
        ("losses", LOSSES),
        ("lsp", LSP),
        ("models", MODELS),
        ("randomness", RANDOMNESS),
        ("manifest", MANIFEST),
        ("operations", OPERATIONS),
        ("placement", PLACEMENT),
        ("program", PROGRAM),
        ("solve", SOLVE),
        ("trace", TRACE),
        ("project", PROJECT),
    ],
)
def test_imports_inside_a_package_go_down(package: str, layers: str) -> None:
    depth = ranks(layers)
    paths = {path.stem: path for path in (PACKAGE / package).glob("*.py") if path.stem != "__init__"}
    assert paths.keys() == depth.keys()
    for me, path in paths.items():
        inside = [(name.split("."), line) for name, line in imports(path) if name.startswith(f"autodist.{package}.")]
        wrong = [f"{path}:{line}: {name[2]}" for name, line in inside if depth[name[2]] <= depth[me]]
        assert not wrong, f"imports from below or beside: {wrong}"


@pytest.mark.parametrize("path", RULE_FILES, ids=lambda path: path.name)
def test_rules_know_neither_the_machinery_nor_each_other(path: Path) -> None:
    found = {name for name, _ in own(path)}
    assert found <= FOR_RULES | {"rules"}, found - FOR_RULES
    shared = {name for name, _ in imports(path) if name.startswith("autodist.rules.")}
    assert all(name.split(".")[2].startswith("_") for name in shared), "rules share only what begins with _"


@pytest.mark.parametrize("name", IN_THE_USERS_PROCESS)
def test_probes_import_the_standard_library_and_torch_alone(name: str) -> None:
    folder = PACKAGE / "verify"
    files = [folder / f"{name}.py"] if (folder / f"{name}.py").exists() else sorted((folder / name).glob("*.py"))
    files += [PROBES[-1]]
    assert files
    for path in files:
        for module, line in imports(path):
            top = module.partition(".")[0]
            known = top in sys.stdlib_module_names or top == "torch" or module.startswith("autodist.verify")
            assert known, f"{path}:{line}: imports {module}"


@pytest.mark.parametrize(
    "path",
    [path for path in FILES if name_of(path) not in ("verify", "evaluate", "observe") and path not in PROBES],
    ids=lambda path: path.name,
)
def test_converting_needs_no_torch(path: Path) -> None:
    assert not [name for name, _ in imports(path) if name.partition(".")[0] in ("torch", "rich", "black")]


@pytest.mark.parametrize("path", [*FILES, *RULE_FILES], ids=lambda path: path.relative_to(ROOT).as_posix())
def test_is_python_3_10(path: Path) -> None:
    ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 10))


def test_every_concern_of_the_analysis_is_reported_by_a_rule() -> None:
    """A refusal that no rule passes on would end as `nothing to change`."""
    raised = {
        code.value
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Concern"
        for code in node.args[:1]
        if isinstance(code, ast.Constant) and isinstance(code.value, str)
    }
    assert raised
    for code in raised:
        rule = next(path for path in RULES.glob("*.py") if f'@rule("{code}"' in path.read_text(encoding="utf-8"))
        assert f'raised(script, "{code}")' in rule.read_text(encoding="utf-8"), f"{rule.name} does not report {code}"
