"""The kinds of faults: each is a function from a file to files with that fault, wherever its site is met."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence

from benchmarks.seeded_faults.files import GUARD, File

LOCAL_SHARES = r"rank=local_rank|local_rank, world_size|islice|range\(self\.rank|indices\[rank"
SHOWN = re.compile(r"print\(|logger\.|add_scalar|scheduler\.step\(|save\(|waited|best|\bif ")
WRAPPED = {"functions", "trainer", "spawn", "several_files", "reference", "imagenet", "accumulating", "classes"}
"""Scripts whose model is wrapped by DistributedDataParallel whatever the options are."""

Made = tuple[File, "Sequence[int] | str"]
"""A file with a fault, and what may be named: some of its lines, or a pattern of lines of any file."""
Kind = Callable[[File], Iterator[Made]]
KINDS: dict[str, tuple[frozenset[str], Kind]] = {}


def kind(name: str, *codes: str) -> Callable[[Kind], Kind]:
    """Declare a kind of fault with the codes that may name it."""

    def declare(made: Kind) -> Kind:
        KINDS[name] = frozenset(codes), made
        return made

    return declare


def within(file: File, node: ast.AST) -> list[int]:
    """The lines of a node, where they have come to."""
    first, last = getattr(node, "lineno", 1), getattr(node, "end_lineno", len(file.whole))
    return [file.new_line(line) for line in range(first, last + 1)]


def _lines(file: File, pattern: str) -> list[int]:
    return [number for number, line in enumerate(file.result.splitlines(), 1) if re.search(pattern, line)]


def called(file: File, pattern: str) -> Iterator[tuple[ast.stmt, ast.Call]]:
    """The plain statements that are or hold a call of such a name."""
    for statement in file.statements():
        if isinstance(statement, (ast.Expr, ast.Assign, ast.AugAssign, ast.Return)) and statement.value is not None:
            for node in ast.walk(statement.value):
                if isinstance(node, ast.Call) and re.fullmatch(pattern, file.code(node.func)):
                    yield statement, node
                    break


def guards(file: File, held: str) -> Iterator[ast.If]:
    """The blocks for rank 0 that hold something directly."""
    for each in file.statements():
        if isinstance(each, ast.If) and GUARD.match(file.code(each.test)):
            if any(re.search(held, file.code(part)) for part in each.body):
                yield each


# metrics and collectives


@kind("unreduced metric", "AD610", "AD802")
def unreduced(file: File) -> Iterator[Made]:
    """A sum that the ranks do not tell each other, which is shown or decides."""
    pattern = r"(dist\.)?all_reduce|\w+\.all_reduce|reduce_sum|\w+\.synchronize_between_processes"
    for statement, _ in called(file, pattern):
        if "grad" in file.code(statement) or isinstance(statement, ast.Return):
            continue
        made = file.delete(statement)
        yield made, SHOWN.pattern


@kind("collective on rank 0", "AD801")
def on_rank_zero(file: File) -> Iterator[Made]:
    """A barrier or a reduction that has slipped into the block for rank 0."""
    for statement, _ in called(file, r"(dist\.)?(barrier|all_reduce)|self\.ranks\.sum|test_epoch|validate|evaluate"):
        guard = file.guard(statement)
        if guard is not None and not isinstance(statement, ast.Return) and isinstance(statement, ast.Expr):
            yield file.under(statement, f"if {guard}:"), r"all_reduce|barrier"


@kind("left by other ranks", "AD801")
def left_early(file: File) -> Iterator[Made]:
    """Ranks but the first that go on to the next round ahead of collectives."""
    for statement, _ in called(
        file, r"(self\.)?(validate|evaluate|test_epoch|loss_of|save_snapshot|reduce_mean|mean_of_ranks)"
    ):
        guard = file.guard(statement)
        if guard is not None and any(isinstance(each, ast.For) for each in file.around(statement)):
            made = file.before(statement, f"if not ({guard}):", "    continue")
            yield made, r"all_reduce|barrier|reduce_sum|ranks\.sum|validate\(|evaluate\("


@kind("step by own loss", "AD802")
def own_loss(file: File) -> Iterator[Made]:
    """A step that a rank leaves out for a loss of its own."""
    for statement, call in called(file, r".*\.backward"):
        loop = next(iter(file.around(statement)), None)
        if isinstance(loop, ast.For) and "loss" in file.code(call):
            made = file.before(statement, "if not torch.isfinite(loss):", "    continue")
            yield made, [*made.changed]


def _at_end(file: File) -> Iterator[tuple[ast.stmt, str, str]]:
    """The last place where all ranks are, with how the number of the rank and the device are called there."""
    known = {
        "functions": ("rank", "device"),
        "spawn": ("rank", "rank"),
        "nanogpt": ("ddp_rank", "device"),
        "reference": ("args.rank", "device"),
        "imagenet": ("args.rank", '"cuda"'),
        "fsdp2": ("rank", "device"),
        "hsdp": ("rank", "device"),
        "by_hand": ("rank", '"cuda"'),
        "accumulating": ("rank", "device"),
        "classes": ("ranks.rank", "ranks.device"),
    }
    if file.script in known:
        for statement, _ in called(file, r"(dist\.)?destroy_process_group|ranks\.close"):
            if "self" not in file.code(file.function(statement)):
                yield statement, *known[file.script]


@kind("loops of different length", "AD801", "AD803")
def lengths(file: File) -> Iterator[Made]:
    """Collectives in a loop over a rank's own share of files."""
    for place, rank, device in _at_end(file):
        lines = [
            "import glob",
            "import torch.distributed as dist",
            f'for name in sorted(glob.glob("parts/*.pt"))[{rank} :: dist.get_world_size()]:',
            f"    part = torch.load(name, map_location={device})",
            "    dist.all_reduce(part)",
        ]
        made = file.before(place, *lines)
        yield made, [*made.changed]


@kind("other collective on rank 0", "AD801", "AD804")
def other_kind(file: File) -> Iterator[Made]:
    """Ranks that call different collectives at the same time."""
    for place, rank, device in _at_end(file):
        lines = [
            "import torch.distributed as dist",
            f"done = torch.ones(1, device={device})",
            f"if {rank} == 0:",
            "    dist.broadcast(done, src=0)",
            "else:",
            "    dist.all_reduce(done)",
        ]
        made = file.before(place, *lines)
        yield made, [*made.changed]


@kind("other order on rank 0", "AD801", "AD804")
def other_order(file: File) -> Iterator[Made]:
    """Ranks that call the same collectives in another order."""
    for place, rank, device in _at_end(file):
        lines = [
            "import torch.distributed as dist",
            f"done = torch.ones(1, device={device})",
            f"if {rank} == 0:",
            "    dist.all_reduce(done)",
            "    dist.broadcast(done, src=0)",
            "else:",
            "    dist.broadcast(done, src=0)",
            "    dist.all_reduce(done)",
        ]
        made = file.before(place, *lines)
        yield made, [*made.changed]


@kind("other dtype on rank 0", "AD804")
def other_dtype(file: File) -> Iterator[Made]:
    """A tensor that is of another type on one rank."""
    for place, rank, device in _at_end(file):
        lines = [
            "import torch.distributed as dist",
            f"kind = torch.float64 if {rank} == 0 else torch.float32",
            f"count = torch.ones(1, dtype=kind, device={device})",
            "dist.all_reduce(count)",
        ]
        made = file.before(place, *lines)
        yield made, [*made.changed]


@kind("group made on rank 0", "AD801")
def own_group(file: File) -> Iterator[Made]:
    """`new_group` is a collective of all ranks."""
    for place, rank, _ in _at_end(file):
        lines = ["import torch.distributed as dist", f"if {rank} < 2:", "    pair = dist.new_group([0, 1])"]
        made = file.before(place, *lines)
        yield made, [*made.changed]


# gradients


@kind("round the wrapper", "AD413")
def round_the_wrapper(file: File) -> Iterator[Made]:
    """A forward pass in training that calls the module itself."""
    if file.script not in WRAPPED:
        return
    trains = [file.function(statement) for statement, _ in called(file, r".*\.backward")]
    for statement in file.statements():
        if isinstance(statement, (ast.Assign, ast.With)) and file.function(statement) in trains:
            for node in ast.walk(statement):
                if isinstance(node, ast.Call) and file.code(node.func) in ("model", "self.model"):
                    name = file.code(node.func)
                    made = file.swapped(node.lineno, f"{name}(", f"{name}.module(")
                    yield made, [*made.changed]
                    return
    for statement, call in called(file, r"self\.criterion|F\.cross_entropy"):
        if "self.model(x)" in file.code(call):
            made = file.swapped(statement.lineno, "self.model(x)", "self.model.module(x)")
            yield made, [*made.changed]


@kind("never synchronised", "AD416")
def never_synchronised(file: File) -> Iterator[Made]:
    """The backward pass of the last micro-batch under `no_sync`."""
    if file.script not in WRAPPED | {"nanogpt"}:
        return
    for number, line in enumerate(file.whole, 1):
        if "else model.no_sync()" in line:
            made = file.swapped(number, "contextlib.nullcontext() if sync else model.no_sync()", "model.no_sync()")
            yield made, r"\.backward\(|no_sync|require_backward"
            return
        if "require_backward_grad_sync" in line:
            made = file.swapped(number, "micro_step == grad_accum - 1", "False")
            yield made, r"\.backward\(|no_sync|require_backward"
            return
    for statement, _ in called(file, r".*\.backward"):
        model = "self.model" if "self.model(" in file.text else "model"
        made = file.under(statement, f"with {model}.no_sync():")
        yield made, [*made.changed]


@kind("clipped before unscaled", "AD415")
def clipped(file: File) -> Iterator[Made]:
    """Gradients that are clipped while they are scaled."""
    for statement, _ in called(file, r"scaler\.unscale_"):
        made = file.delete(statement)
        yield made, "clip_grad_norm_"


@kind("set_epoch missing", "AD202")
def no_set_epoch(file: File) -> Iterator[Made]:
    """Each epoch has the same order."""
    for statement, _ in called(file, r".*\.set_epoch"):
        made = file.delete(statement)
        yield made, r"^ *for .* in |train_one_epoch\(|train\(|run_epoch\(|train_epoch\("


@kind("no sampler", "AD201")
def no_sampler(file: File) -> Iterator[Made]:
    """All ranks go over all data."""
    for statement in file.statements():
        found = re.search(r"sampler=(self\.)?(train_)?sampler\b", file.code(statement))
        if found and isinstance(statement, (ast.Assign, ast.Return)) and "DataLoader" in file.code(statement):
            line = next(n for n in range(statement.lineno, statement.end_lineno + 1) if found[0] in file.whole[n - 1])  # type: ignore[operator]
            made = file.swapped(line, found[0], "shuffle=True")
            yield made, within(made, statement)


@kind("shuffle beside a sampler", "AD209")
def shuffled(file: File) -> Iterator[Made]:
    """DataLoader refuses both."""
    for statement in file.statements():
        found = re.search(r"sampler=(self\.)?(train_)?sampler\b", file.code(statement))
        if found and isinstance(statement, (ast.Assign, ast.Return)) and "DataLoader" in file.code(statement):
            line = next(n for n in range(statement.lineno, statement.end_lineno + 1) if found[0] in file.whole[n - 1])  # type: ignore[operator]
            made = file.swapped(line, found[0], f"shuffle=True, {found[0]}")
            yield made, within(made, statement)


@kind("learning rate scaled twice", "AD417")
def scaled_twice(file: File) -> Iterator[Made]:
    """Times the number of ranks, and again."""
    for statement, call in called(file, r"torch\.optim\.\w+"):
        text = file.code(call)
        if "args.lr" in text or "lr=lr" in text:
            name = "args.lr" if "args.lr" in text else "lr"
            once = f"{name} * world_size" in text
            made = file.before(statement, f"{name} = {name} * torch.distributed.get_world_size()")
            if not once and name == "args.lr":
                line = file.whole[statement.lineno - 1]
                after = line.replace("args.lr", "args.lr * torch.distributed.get_world_size()", 1)
                made = made.replace_lines(statement.lineno, statement.lineno + 1, [after])
            yield made, [*made.changed, made.new_line(statement.lineno), made.new_line(statement.lineno) + 1]


@kind("split before seeding", "AD706")
def unseeded(file: File) -> Iterator[Made]:
    """A split that each rank draws for itself."""
    if file.script not in ("functions", "classes", "spawn", "by_hand", "several_files"):
        return
    for statement, _ in called(file, r"torch\.manual_seed|np\.random\.seed|random\.seed"):
        if file.script == "spawn" and "torch" in file.code(statement):
            continue
        made = file.delete(statement)
        yield made, r"random_split|permutation|random\.shuffle|make_loaders|data\.setup|build_data"


@kind("unguarded save", "AD301")
def unguarded_save(file: File) -> Iterator[Made]:
    """All ranks write one file."""
    for each in guards(file, r"torch\.save\("):
        made = file.swapped(each.lineno, file.code(each.test), "True")
        yield made, r"torch\.save\("


@kind("print by all", "AD309")
def printed(file: File) -> Iterator[Made]:
    """All ranks print a line."""
    for each in guards(file, r"^print\("):
        if any(isinstance(around, (ast.For, ast.While)) for around in file.around(each)):
            made = file.swapped(each.lineno, file.code(each.test), "True")
            yield made, r"print\("


@kind("download by all", "AD310")
def downloads(file: File) -> Iterator[Made]:
    """All ranks download at the same time."""
    for each in file.statements():
        if isinstance(each, ast.If) and "download=True" in file.code(each.body[0]):
            made = file.swapped(each.lineno, file.code(each.test), "True")
            yield made, "download=True"


@kind("load to the device of rank 0", "AD305")
def loaded(file: File) -> Iterator[Made]:
    """`torch.load` without `map_location`, of what rank 0 has saved from its GPU."""
    for statement in file.statements():
        code = file.code(statement)
        found = re.search(r"torch\.load\([^()]*(\([^()]*\))?(, map_location=[\w.]+|, map_location=\"cpu\")\)", code)
        if found and isinstance(statement, (ast.Expr, ast.Assign)) and '"x"' not in file.text and ".jsonl" not in code:
            made = file.swapped(statement.lineno, found[2], "")
            yield made, [*made.changed]


@kind("one rank restores", "AD312")
def restored(file: File) -> Iterator[Made]:
    """Only rank 0 goes on from the checkpoint."""
    known = {
        "imagenet": ("if args.resume:", "if args.resume and args.rank == 0:"),
        "reference": ("if args.resume:", "if args.resume and args.rank == 0:"),
        "by_hand": ('if os.path.exists("state.pt"):', 'if rank == 0 and os.path.exists("state.pt"):'),
        "nanogpt": ('if init_from == "resume":', 'if init_from == "resume" and master_process:'),
        "trainer": (
            "if os.path.exists(settings.snapshot):",
            "if self.rank == 0 and os.path.exists(settings.snapshot):",
        ),
        "several_files": ("if os.path.exists(path)", "if is_main_process() and os.path.exists(path)"),
    }
    if file.script in known:
        before, after = known[file.script]
        for number, line in enumerate(file.whole, 1):
            if before in line:
                made = file.swapped(number, before, after)
                yield made, "load_state_dict|load_snapshot|load_checkpoint|" + re.escape(after)


@kind("first GPU for all", "AD105")
def first_gpu(file: File) -> Iterator[Made]:
    """All ranks of a machine on one GPU."""
    pattern = r'torch\.device\((f"cuda:\{local_rank\}"|"cuda", (self\.)?local_rank)\)|f"cuda:\{ddp_local_rank\}"'
    for number, line in enumerate(file.whole, 1):
        if found := re.search(pattern, line):
            made = file.swapped(number, found[0], '"cuda:0"' if found[0][0] == "f" else 'torch.device("cuda:0")')
            yield made, r"cuda:0|set_device"
            return
    for statement, _ in called(file, r"torch\.cuda\.set_device"):
        if file.script in ("spawn", "imagenet", "reference"):
            made = file.rewritten(statement, "torch.cuda.set_device(0)")
            yield made, [*made.changed]


@kind("set_device missing", "AD105")
def no_set_device(file: File) -> Iterator[Made]:
    """What is moved to `cuda` goes to the first GPU."""
    if file.script in ("spawn", "imagenet", "reference"):
        for statement, _ in called(file, r"torch\.cuda\.set_device"):
            made = file.delete(statement)
            yield made, r'"cuda"|\.cuda\(\)|init_process_group|torch\.device|\.to\(device\)'


@kind("RANK for LOCAL_RANK", "AD106")
def global_rank(file: File) -> Iterator[Made]:
    """A GPU by the number of the rank among all machines."""
    for number, line in enumerate(file.whole, 1):
        if "LOCAL_RANK" in line and 'LOCAL_RANK"] =' not in line:
            made = file.swapped(number, "LOCAL_RANK", "RANK")
            yield made, r"\"RANK\"|set_device|torch\.device\(|cuda:"


@kind("LOCAL_RANK for RANK", "AD210")
def local_for_global(file: File) -> Iterator[Made]:
    """A share of the data by the number on the machine, of which several nodes have the same."""
    for number, line in enumerate(file.whole, 1):
        if "DistributedSampler(train_set, rank=rank" in line:
            made = file.swapped(number, "rank=rank", "rank=local_rank")
            yield made, LOCAL_SHARES
        if re.search(r'Stream\("train|partition\(count, rank|TextDataset\("tokens', line):
            made = file.swapped(number, "rank, world_size", "local_rank, world_size")
            yield made, LOCAL_SHARES


@kind("group never left", "AD109")
def not_left(file: File) -> Iterator[Made]:
    """`destroy_process_group` is missing."""
    for statement, _ in called(file, r"(dist\.)?destroy_process_group"):
        made = file.delete(statement)
        yield made, r"init_process_group|destroy|cleanup|close"


@kind("CPU tensor for NCCL", "AD107")
def cpu_tensor(file: File) -> Iterator[Made]:
    """A tensor on the CPU that NCCL is to reduce."""
    if file.script == "classes":  # it takes gloo where there is no GPU
        return
    for statement in file.statements():
        found = re.search(
            r'torch\.(tensor|zeros)\(.*(, device=(self\.)?device|, device="cuda")\)', file.code(statement)
        )
        reduces = "all_reduce" in file.code(file.function(statement)) or "reduce_sum" in file.code(
            file.function(statement)
        )
        if found and isinstance(statement, ast.Assign) and reduces and file.function(statement) is not file.tree:
            made = file.swapped(statement.lineno, found[2], "")
            yield made, r"all_reduce\(|reduce_sum\(|" + re.escape(made.result.splitlines()[statement.lineno - 1])


@kind("processes started on import", "AD108")
def no_main(file: File) -> Iterator[Made]:
    """Each process that is spawned imports the script, and spawns again."""
    if "mp.spawn" in file.text:
        for each in file.statements():
            if isinstance(each, ast.If) and "__main__" in file.code(each.test):
                made = file.swapped(each.lineno, file.code(each.test), "True")
                yield made, [*within(made, each), *_lines(made, r"mp\.spawn")]


@kind("seed by rank", "AD705")
def seeded_apart(file: File) -> Iterator[Made]:
    """Data or weights that ranks must have alike are drawn apart."""
    known = {"functions": "rank", "classes": "ranks.rank", "several_files": "int(os.environ['RANK'])", "hsdp": "rank"}
    known |= {"fsdp2": "rank", "by_hand": "rank"}
    if file.script in known:
        for statement, call in called(file, r"torch\.manual_seed|random\.seed"):
            if isinstance(statement, ast.Expr) and call.args:
                text = file.code(call.args[0])
                made = file.swapped(statement.lineno, f"({text})", f"({text} + {known[file.script]})")
                yield made, [*made.changed, *_lines(made, "random_split|random.shuffle")]
