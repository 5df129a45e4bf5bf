"""What a training script is made of, in the field's words. Rules read this, and nothing else."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from autodist.program import Program
from autodist.project import Project
from autodist.reduction import Reduction
from autodist.rule import Severity
from autodist.solve.rounds import Left
from autodist.source import Source, filled_in
from autodist.values import Draw, Object, Path_, Value


@dataclass(frozen=True)
class Site:
    """A node of the script, and the file that it stands in."""

    source: Source
    node: ast.AST

    @property
    def statement(self) -> ast.stmt:
        """The statement that holds it."""
        return self.source.statement(self.node)


@dataclass(frozen=True)
class SampleGenerator:
    """A generator that an object keeps for its samples as ``name``, having drawn by the ``last`` statement of its
    constructor what all ranks must have alike. That of torch knows its seed."""

    source: Source
    node: ast.Call
    name: str
    last: ast.stmt
    seed: ast.expr | None


@dataclass(frozen=True)
class Wrapping:
    """Where a trained model becomes distributed: after ``statement``, under the name ``target``.

    ``inside`` is the expression to wrap where the statement binds the model and nothing else has to happen to it.
    """

    source: Source
    statement: ast.stmt
    target: ast.expr
    inside: ast.expr | None
    each: str = ""
    """`list` or `dict`, where the target is one of such models."""
    move: str = ""
    """What brings it to its device ahead of that, `.to(device)`, where the script does so only later."""
    optional: bool = False
    """Whether the target may be None there."""
    early: bool = False
    """Whether the model is given further layers below, ahead of its first step."""

    @property
    def unnamed(self) -> bool:
        """Whether the model has no name there, as one that is made in the argument of a call has none."""
        return self.inside is self.target


@dataclass(frozen=True)
class Built:
    """Where a model is made: the expressions that do it, calls that move it to a device before it is sharded, and
    statements that then fill it with random numbers."""

    makers: tuple[Site, ...]
    moves: tuple[Site, ...]
    draws: tuple[Site, ...]


@dataclass(frozen=True)
class Model:
    """A module that an optimizer trains. ``bypassed`` if gradients flow past its ``forward``, or in a pattern that
    DistributedDataParallel does not synchronise; then gradients are averaged explicitly. ``data_parallel`` wrappers are
    replaced, and so are those that another library's FSDP put around it, ``fully_sharded``; those that only several
    devices would get are ``dropped``. Those of a part of it are ``pinned`` to the device of their process, or
    ``partial`` where the other branch of a condition wraps all of it. ``alternatives`` are other modules that the same
    place may hold. ``units`` name, as attributes of the model, the parts that FSDP shards by themselves (with a ``*``
    if it is a list of them),
    ``methods`` those that run its layers besides `forward`; ``sharded`` if the script itself does so;
    ``prefixed`` are where states are taken from a wrapper, whose keys begin with `module.`,
    ``prefixed_loads`` states with such keys that it loads, and ``misnamed`` where it is taken on one rank, where that
    cannot be mended;
    ``moved_later`` are calls that move it after it is wrapped, which a distributed wrapper does not survive;
    ``built`` says where it is made, if it is made on rank 0 alone, and ``since`` the event ahead of which it is
    sharded, if that is not its first use; ``copied`` are copies of it that are made later, and can be made by then;
    ``may_be_frozen`` if a setting may leave nothing in it to train, and ``takes_gpu`` if it surely goes to a GPU where
    there is one."""

    object: Object
    wrapping: Wrapping | None
    wrapped: bool
    bypassed: str | None
    batch_norm: bool
    sometimes_unused: bool
    data_parallel: tuple[Site, ...]
    dropped: tuple[Site, ...] = ()
    pinned: tuple[Site, ...] = ()
    partial: tuple[Site, ...] = ()
    fully_sharded: tuple[Site, ...] = ()
    alternatives: tuple[Object, ...] = ()
    units: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    sharded: bool = False
    prefixed: tuple[Site, ...] = ()
    misnamed: tuple[Site, ...] = ()
    prefixed_loads: tuple[Site, ...] = ()
    moved_later: tuple[Site, ...] = ()
    built: Built | None = None
    since: int | None = None
    copied: tuple[Site, ...] = ()
    may_be_frozen: bool = False
    takes_gpu: bool = False


STAY = "-1"
"""What `torch.cuda.device` takes to change nothing, also where there is no GPU."""


@dataclass(frozen=True)
class WithoutGroup:
    """What says that this is rank 0 where the process group may not exist: the script's ``own`` flag, `master_process`,
    or else the variable RANK, if the script's launcher sets it (``told``). ``optional`` if the group exists there in
    runs that join one at all; ``read_back`` if all ranks read, without one, what is written."""

    own: str | None
    told: bool
    optional: bool
    read_back: bool


@dataclass(frozen=True)
class Numbered:
    """A device that is named by number, and what means the rank's own; None for `.cuda(0)`, which needs no device."""

    source: Source
    node: ast.expr
    code: str | None

    @property
    def statement(self) -> ast.stmt:
        """The statement that it stands in."""
        return self.source.statement(self.node)


@dataclass(frozen=True)
class Unordered:
    """Where a set of what may be strings is put in order, whether a list is made of it there, and whether the other
    ranks wait meanwhile, so that rank 0 cannot tell them its order."""

    site: Site
    listed: bool
    waiting: bool


@dataclass(frozen=True)
class Epoch:
    """A loop over a training loader: the statement that starts it, the loader there (None if no expression names it),
    the epoch's number, and whether neither it nor the sampler goes on counting, since a loop around makes the loader
    ``anew`` and starts its epochs again."""

    source: Source
    statement: ast.stmt
    loader: str | None
    number: str | None
    anew: bool = False


@dataclass(frozen=True)
class Loader:
    """A loader whose samples reach an optimizer. ``mixed`` if the same call also makes loaders that evaluate;
    ``switch`` is then the expression that tells them apart. ``reshuffles`` if it has a
    `DistributedSampler`, which wants to know the epoch."""

    object: Object
    source: Source
    node: ast.Call
    epochs: tuple[Epoch, ...]
    sharded: bool
    mixed: bool
    switch: str | None
    iterable: bool
    reshuffles: bool
    keys: frozenset[tuple[int, Path_]] = frozenset()
    """Of all loaders that the call makes on the ways to an optimizer."""
    resized: bool = False
    """Whether its data set may have another length in a later pass."""
    drawn_apart: frozenset[str] = frozenset()
    """Libraries whose generators its sampler draws the order from, and each rank other things as its samples ask."""
    endless: bool = False
    """Its sampler goes on for as long as it is asked."""
    beside: frozenset[ast.Call] = frozenset()
    """The calls that make the loaders which the same training steps read, its own if that makes several of them."""
    unseeded_samplers: tuple[Object, ...] = ()
    """Torch's samplers that it has been given and that draw from the global generator, where they are made once."""
    remade_samplers: frozenset[ast.Call] = frozenset()
    """Those of them that a training loop makes anew, in each epoch for instance."""
    presets: tuple[ast.Call, ...] = ()
    """The calls of `partial` that have given arguments to what makes it: `partial(DataLoader, batch_size=8)`."""

    @property
    def told(self) -> ast.Call:
        """The call that makes it, with the arguments that `partial` was given before."""
        return filled_in(self.node, self.presets)


@dataclass(frozen=True)
class OrderSeed:
    """The seed that the order of a loader's samples follows, for the call that makes the loader or its sampler.

    ``code`` is an expression of the script for it. Otherwise it is that of torch's generator, if ranks have it
    ``alike`` there, and that of rank 0 if not, unless the others wait for rank 0 there, ``shut`` off from it. ``late``
    are the calls that lead to where the script seeds only below, by what is not known here.
    """

    node: ast.Call
    code: str | None = None
    alike: bool = False
    shut: bool = False
    late: tuple[Site, ...] = ()


@dataclass(frozen=True)
class SharedEvaluation:
    """A loop over an evaluation of which each rank runs whole batches of its own: over the loaders that ``over`` may
    be. What it has ``left`` is made global behind it, or its ``listing``; at ``unwraps`` it calls a wrapped model.
    ``unequal`` are models whose buffers ranks may have differently until then."""

    source: Source
    loop: ast.For | ast.comprehension
    over: ast.expr
    left: tuple[Left, ...]
    unwraps: tuple[Site, ...] = ()
    unequal: tuple[str, ...] = ()
    loaders: tuple[Object, ...] = ()
    listing: ast.ListComp | ast.GeneratorExp | None = None


@dataclass(frozen=True)
class Weighed:
    """A loss that is a mean over other numbers than those of the samples: ``count`` is the code of what it is divided
    by, which calls ``rows`` of the loss by a ``name`` where these have none."""

    source: Source
    node: ast.expr
    count: str
    rows: ast.expr | None = None
    name: str = ""


@dataclass(frozen=True)
class RowMean:
    """A mean over this rank's rows of tensors that hold all of the data, taken at ``draws``.

    ``even`` where nothing tells there how many rows all ranks have: then each needs as many.
    """

    source: Source
    node: ast.expr
    draws: tuple[Draw, ...]
    even: bool = False


@dataclass(frozen=True)
class Deferral:
    """A backward pass of an accumulation, or the forward pass ahead of it. ``target`` is the name of the model, and
    ``last`` the expression that says whether a step follows."""

    site: Site
    target: str
    last: str


@dataclass(frozen=True)
class Shards:
    """Where a script meets the shards of a model: whole tensors are written to and read from files.

    ``saves`` are calls that write a checkpoint, ``model_saves`` those among them that write the state of one model and
    nothing else, ``model_loads`` and ``optimizer_loads`` state dicts that are loaded,
    with the name of what loads them, ``reads`` expressions for a parameter that is looked at as a whole, ``norms``
    calls that return a norm over all shards, ``forwards`` names of `forward` called past the model itself,
    ``inferences`` names of `torch.inference_mode`, ``wrappers`` accesses to the model inside a wrapper that goes,
    ``class_names`` names of a model's class, ``classes`` places where it is asked for itself.
    ``hoists`` are collectives inside a statement that rank 0 runs alone, each with that statement, ``formats`` memory
    formats that a model is moved to, ``pauses`` calls of `no_sync`. ``files`` are calls that read a file that may be a
    checkpoint, ``file_tests`` those that ask whether there is one, ``early_loads`` state dicts that a model loads
    before it is sharded, ``whole_loads`` those of sharded models that others load, ``whole_states`` those whose tensors
    are read where they are taken. ``deferrals`` are backward passes
    of which only the last before a step has to reduce. ``nested`` are calls of methods that gather parameters by others
    that have them. ``replaced`` are names for the storage of parameters that another tensor takes the place of, each
    with what cuts it, if it may be a whole one. ``mixed`` are whole tensors that are put into shards or
    computed with beside them, each with what cuts it, ``restored`` what comes from a file and takes the place of a list
    or dict of shards, each with the name of that. ``put_aside`` is storage that is kept while a replaced one is in its
    place.
    """

    saves: tuple[Site, ...] = ()
    model_saves: tuple[Site, ...] = ()
    model_loads: tuple[tuple[Site, str], ...] = ()
    optimizer_loads: tuple[tuple[Site, str], ...] = ()
    reads: tuple[Site, ...] = ()
    norms: tuple[Site, ...] = ()
    forwards: tuple[Site, ...] = ()
    inferences: tuple[Site, ...] = ()
    wrappers: tuple[Site, ...] = ()
    class_names: tuple[Site, ...] = ()
    classes: tuple[Site, ...] = ()
    hoists: tuple[tuple[Site, ast.stmt], ...] = ()
    formats: tuple[Site, ...] = ()
    pauses: tuple[Site, ...] = ()
    files: tuple[Site, ...] = ()
    file_tests: tuple[Site, ...] = ()
    early_loads: tuple[Site, ...] = ()
    whole_loads: tuple[Site, ...] = ()
    whole_states: tuple[Site, ...] = ()
    deferrals: tuple[Deferral, ...] = ()
    nested: tuple[Site, ...] = ()
    replaced: tuple[tuple[Site, str], ...] = ()
    mixed: tuple[tuple[Site, str], ...] = ()
    restored: tuple[tuple[Site, str], ...] = ()
    put_aside: tuple[Site, ...] = ()


@dataclass(frozen=True)
class PartedOptimizer:
    """Calls that make an optimizer whose state the ranks can share out.

    ``generators`` are the parameters of its groups that can be iterated over only once, ``names`` those of the
    arguments that follow the parameters. ``cycled`` if a scheduler moves its momentum, which it looks for among the
    settings. ``whole`` says why every rank keeps all of the state instead.
    """

    site: Site
    generators: tuple[ast.expr, ...] = ()
    names: tuple[str, ...] = ()
    cycled: bool = False
    whole: str | None = None


@dataclass(frozen=True)
class OptimizerState:
    """A state dict that is taken of a parted optimizer, named ``target``.

    The state is gathered before the statement ``before``; ``alone`` if only rank 0 goes on from there. Where just the
    settings are asked for, ``groups`` is the expression for them, and nothing has to be gathered.
    """

    site: Site
    target: str
    before: ast.stmt
    alone: bool
    groups: ast.expr | None = None


@dataclass(frozen=True)
class Concern:
    """Something that a person must know or do."""

    code: str
    source: Source
    node: ast.AST
    message: str
    severity: Severity


@dataclass(frozen=True)
class Apart(Site):
    """Before which loop ranks begin to draw noise of their own: ``again`` and again, with no seed in between."""

    again: bool = False


@dataclass(frozen=True)
class WholeNoise(Site):
    """Noise that all ranks draw alike, for as many samples as one of them has. It is drawn for the samples of all
    ranks, each of which takes its own of ``rows``: of the draw, or of what it is viewed as."""

    node: ast.Call
    rows: ast.expr
    counts: tuple[ast.expr, ...] = ()
    """Numbers of a rank's samples, in the draw and in the view."""
    divided: tuple[ast.expr, ...] = ()
    """Those that are a batch size which would be divided, and need not be."""
    shape: ast.expr | None = None
    """The shape of what a rank has, if that is what the draw is told."""
    like: ast.expr | None = None
    """What a rank has, if the draw is like it: `torch.randn_like(x)`."""


@dataclass(frozen=True)
class Decision(Site):
    """A part of a condition that each rank would answer by what it finds for itself: the clock, a signal, a file. Rank
    0 answers for all, or whichever rank finds it true, ``on_any``."""

    node: ast.expr
    on_any: bool = False


@dataclass(frozen=True)
class Setup:
    """Where the process group starts: before ``before``. ``define`` is the statement above which functions go. It may
    come there ``again`` where workers of a loader do not fork: these import the script, and what that imports."""

    source: Source
    before: ast.stmt
    define: ast.stmt
    again: bool = False


@dataclass(frozen=True)
class Borrowed:
    """A use of a name of another distribution library: `name` as in `horovod.rank` or `fsdp.StateDictType`.

    ``equivalent`` is what plain PyTorch says instead, where that is a mere fact. ``whole`` is what goes with the
    name, its ``call`` or the statement around it, except the expressions that are ``kept``.
    """

    source: Source
    node: ast.expr
    name: str
    call: ast.Call | None
    equivalent: str | None
    whole: ast.AST
    kept: tuple[ast.expr, ...]


@dataclass(frozen=True)
class LauncherOption:
    """An option that torchrun makes needless, as `--local_rank`.

    The statement that declares it, its default and attribute, and the statement that parses the command line, where
    its result is kept.
    """

    source: Source
    statement: ast.Expr
    default: ast.expr | None
    destination: str
    parsed: ast.Assign | None


@dataclass(frozen=True)
class Launcher:
    """How a distributed script starts its ranks itself.

    ``spawns`` start processes, ``joins`` make them a group. ``world_sizes`` compute how many there are, ``sizes`` are
    options for that. ``ranks`` compute the number of one over all nodes; it is ``numbered_globally`` where the
    launcher's number is that already, and then ``devices`` take it for a device. ``addresses`` are statements that
    set the environment.
    """

    spawns: tuple[Site, ...]
    numbered_globally: bool
    joins: tuple[Site, ...]
    world_sizes: tuple[Site, ...]
    ranks: tuple[Site, ...]
    devices: tuple[Site, ...]
    addresses: tuple[Site, ...]
    options: tuple[LauncherOption, ...]
    sizes: tuple[LauncherOption, ...] = ()


@dataclass(frozen=True)
class Unseeded(Site):
    """What gives each process a seed of its own: a call that makes or seeds a generator, or what the clock stands in
    with where no seed is given. ``together`` if all ranks come there at once, and can agree."""

    node: ast.expr
    together: bool = True


@dataclass(frozen=True)
class Search:
    """A search of hyperparameters: the calls that open storages, make studies, run them, ask them for trials, tell them
    what came of these, and stop them."""

    stored: tuple[Site, ...] = ()
    made: tuple[Site, ...] = ()
    run: tuple[Site, ...] = ()
    asked: tuple[Site, ...] = ()
    told: tuple[Site, ...] = ()
    stopped: tuple[Site, ...] = ()
    led: tuple[Site, ...] = ()
    """Calls of other libraries that give trials to a function."""


@dataclass(frozen=True)
class Running:
    """A variable that a step hands on to the next, as ``code``, and how it lies over the ranks: "same", a "sum", a
    "mean", or each rank's "own"; of an object that changes, its ``attributes``. ``bound`` if it has a value ahead of
    the loop."""

    code: str
    over_ranks: str
    bound: bool = True
    attributes: tuple[tuple[str, str], ...] | None = None


@dataclass(frozen=True)
class Preemption:
    """Where a distributed training can end after a step and go on there: its loops over epochs, numbered ``number``
    from ``start`` on, and over ``batches`` of ``loader``, whose call of a ``sampler`` is known.

    A batch ends a step where all of ``boundary`` hold. ``copied`` are the statements that save its checkpoint, under
    ``guard``, with what is not known inside an epoch ``replaced``; ``save`` and ``load`` the calls of torch for it.
    Where the loop over batches is in another function than that over epochs, ``leading`` is the statement that leads
    there. ``running`` are variables of the one, ``lasting`` of the other; ``states`` objects that are not saved.
    The files of all these are ``files``, by node; ``home`` is one that all of them can import from.
    """

    source: Source
    files: Mapping[ast.AST, Source]
    home: Source
    epochs: ast.For | ast.While
    number: str
    start: ast.expr | None
    batches: ast.For
    loader: str
    sampler: ast.Call
    boundary: tuple[ast.expr, ...]
    copied: tuple[ast.stmt, ...]
    guard: ast.expr | None
    replaced: Mapping[ast.expr, str]
    save: ast.Call
    load: ast.Call
    leading: ast.stmt | None
    running: tuple[Running, ...]
    lasting: tuple[Running, ...]
    states: tuple[str, ...]


@dataclass(frozen=True)
class TrainingScript:
    """The semantic model of a script; every part keeps its node and file."""

    project: Project
    values: Mapping[ast.expr, Value]
    program: Program = field(default_factory=Program)
    """What the script does, as a graph."""
    setup: Setup | None = None
    distributed: bool = False
    sometimes_joined: Site | None = None
    """The statement by which the script itself may join a process group; it runs without one otherwise."""
    ends_at_once: tuple[Site, ...] = ()
    """Statements by which it joins a group that may speak gloo, whose threads it leaves no time at its end."""
    launcher: Launcher | None = None
    borrowed: tuple[Borrowed, ...] = ()
    borrowed_names: Mapping[Source, frozenset[str]] = field(default_factory=dict)
    prints: bool = True
    silenced: Site | None = None
    """The first import of the entry script while which a local module prints, before there is a process group."""
    models: tuple[Model, ...] = ()
    loaders: tuple[Loader, ...] = ()
    evaluation_loaders: tuple[Site, ...] = ()
    """Calls that make loaders of which none trains: every rank reads all of their samples."""
    evaluation_samplers: tuple[Site, ...] = ()
    """Calls that make random samplers for them, without a generator of their own."""
    evaluations: tuple[SharedEvaluation, ...] = ()
    """Loops over loaders that only evaluate, of which each rank runs its share."""
    order_seeds: Mapping[ast.AST, OrderSeed] = field(default_factory=dict)
    """By the call that makes a loader or a random sampler, the seed of its order."""
    draws: tuple[Draw, ...] = ()
    odd_tails: Mapping[ast.AST, int] = field(default_factory=dict)
    """How many samples the last of the batches has that some of them cut, where no two ranks can share it."""
    own_draws: frozenset[ast.expr] = frozenset()
    """Those of them by which each rank draws numbers of samples for itself, seeded apart as its dropout is."""
    counts_samples: Callable[[ast.AST], bool] = lambda _: False
    """Whether an expression goes by how many samples a rank has, of which all have as many: `len(x)`."""
    goes_by_rank: Callable[[ast.AST], bool] = lambda _: False
    """Whether an expression is computed from the number of the process that runs it."""
    comes_from_model: Callable[[ast.AST], bool] = lambda _: False
    """Whether gradients flow back from an expression through the forward pass of a model."""
    axes: Callable[[ast.AST], int | None] = lambda _: None
    """How many axes an expression has, as far as that is told."""
    adds_up: bool = False
    """Whether something is a sum over a rank's samples, or their number."""
    batch_sizes: tuple[Site, ...] = ()
    reckoned: tuple[tuple[Site, ast.expr | None], ...] = ()
    """Where the batch size is read off a training loader, to compute by that of all ranks; and the loader, where it may
    be one that every rank reads in full."""
    squeezed: tuple[Site, ...] = ()
    """Where an axis behind that of the samples is dropped, which is not named."""
    refitted: tuple[tuple[Site, ast.expr], ...] = ()
    """Tensors that are made once and hold each batch in turn, now a share and now a whole one, and that batch."""
    joined_in_full: tuple[Site, ...] = ()
    """Samples that a rank joins to its share of a batch, and of which it has all."""
    wholes: tuple[Draw, ...] = ()
    """Where a step takes all of the data, of which a rank is to take its rows."""
    row_means: tuple[RowMean, ...] = ()
    averaged: tuple[tuple[Site, str], ...] = ()
    stepped_by_hand: tuple[tuple[Site, str], ...] = ()
    """Statements that change tensors in no module by their gradients, and these tensors."""
    lacks_gradients: bool = False
    """Whether a rank may have no gradient of a parameter in a step in which another rank has one."""
    sums: tuple[Site, ...] = ()
    amplified: tuple[Site, ...] = ()
    """Where gradients are taken of means over a rank's samples, with regard to these, and how large they are counts."""
    own_gradients: tuple[tuple[Site, str], ...] = ()
    """Backward passes of a rank's samples, and the variable of samples whose gradient is stepped by or changed."""
    previews: tuple[Site, ...] = ()
    """Calls of a model in training mode with rows that all ranks have, of which each can run its share."""
    followers: tuple[Wrapping, ...] = ()
    """Where models are complete that do not train, and keep statistics of the samples that they are given."""
    weighed: tuple[Weighed, ...] = ()
    joined: tuple[Reduction, ...] = ()
    """Sums and means over the batch that a loss is computed from, gradients and all."""
    pieces: tuple[Site, ...] = ()
    """Backward passes of pieces of a batch of which it is told how large they are, and not how many."""
    unread: frozenset[ast.AST] = frozenset()
    """What is computed from a rank's own samples in a way that is not known, once everything is made global that is."""
    terms: tuple[Reduction, ...] = ()
    """Sums over a rank's samples that losses add to means."""
    gathered: tuple[Reduction, ...] = ()
    """Rows, and numbers of rows, that a loss compares with each other: those of all ranks, gradients and all."""
    deferrals: tuple[Deferral, ...] = ()
    """Where models that are replicated are told whether a step follows."""
    reductions: tuple[Reduction, ...] = ()
    unwraps: tuple[Site, ...] = ()
    shuttled: tuple[Site, ...] = ()
    """Moves of wrapped models to the CPU between steps."""
    states_on_cpu: tuple[Site, ...] = ()
    """What is read of them there."""
    saved_wrappers: tuple[Site, ...] = ()
    """Models that are saved as a whole in `nn.DataParallel`."""
    wrapper_tests: tuple[Site, ...] = ()
    """Classes that a wrapped model is asked for, of which nn.DataParallel is the only wrapper."""
    layer_tests: tuple[Site, ...] = ()
    """Classes of batch normalisation that training asks layers for, as in `isinstance(layer, nn.BatchNorm2d)`."""
    prefixed_loads: tuple[Site, ...] = ()
    """States with the keys of `nn.DataParallel` that are loaded before the model is wrapped."""
    in_buckets: bool = False
    """Whether gradients may be views of the buckets that are reduced: none is read behind a later backward pass."""
    maybe_wrapped: frozenset[ast.AST] = frozenset()
    guards: tuple[Site, ...] = ()
    without_group: Mapping[ast.AST, WithoutGroup] = field(default_factory=dict)
    """For a script that joins a process group itself: what only rank 0 may do while there may be none."""
    answering: tuple[Site, ...] = ()
    """Calls that write a file, and whose results all ranks go on with."""
    opens: tuple[Site, ...] = ()
    folders: tuple[Site, ...] = ()
    """Folders that code of libraries is told to write to, beside what it gives to all ranks."""
    writers: tuple[Site, ...] = ()
    lone_writers: frozenset[ast.AST] = frozenset()
    """Those that ranks other than 0 do without."""
    places_of_writers: tuple[Site, ...] = ()
    """What all ranks ask of writers that rank 0 alone has."""
    downloads: tuple[tuple[Site, Site], ...] = ()
    fetched_again: frozenset[ast.AST] = frozenset()
    """Calls that fetch files, or unpack them, whether these are there or not."""
    prepared_alone: tuple[Site, ...] = ()
    fetched_anew: tuple[Site, ...] = ()
    """What puts files on disk, whether they are there or not, that all ranks read later."""
    waits: tuple[Site, ...] = ()
    """Where files are read that rank 0 has written before."""
    first_writes: tuple[Site, ...] = ()
    """Where rank 0 writes a file that all ranks have looked for and not found."""
    rewrites: tuple[Site, ...] = ()
    """Where rank 0 writes a file anew that all ranks have read."""
    turned_buffers: tuple[Site, ...] = ()
    data_parallel_calls: tuple[Site, ...] = ()
    loads: tuple[tuple[Site, str], ...] = ()
    progress: tuple[Site, ...] = ()
    file_handlers: tuple[Site, ...] = ()
    log_configs: tuple[Site, ...] = ()
    uses_logging: bool = False
    uses_loguru: bool = False
    seeded: frozenset[str] = frozenset()
    drawn: frozenset[str] = frozenset()
    unordered: tuple[Unordered, ...] = ()
    named_apart: tuple[Site, ...] = ()
    """What names a place after the clock, where all ranks read."""
    asked: tuple[Site, ...] = ()
    """Where a person is asked for a line: `input()`."""
    decisions: tuple[Decision, ...] = ()
    counting_whole: tuple[Site, ...] = ()
    unseeded: tuple[Unseeded, ...] = ()
    """Calls that take a seed from the clock or the system: each rank would get another one."""
    clocked: tuple[Unseeded, ...] = ()
    """What a script takes of the clock for a seed where none is given."""
    reseeded: tuple[Site, ...] = ()
    """Where a sampler takes a new seed from the system for each epoch."""
    search: Search = Search()
    diverge: tuple[Apart, ...] = ()
    noise: frozenset[str] = frozenset()
    drawn_for_all: tuple[WholeNoise, ...] = ()
    common_draws: tuple[Site, ...] = ()
    """What steps draw once for their batch, though dropout and noise differ by rank: rank 0 draws it for all."""
    sample_generators: Mapping[Site, bool] = field(default_factory=dict)
    """Calls that make generators of the script's own from which samples are drawn, with one seed on all ranks; and
    whether one call makes several, with seeds of their own."""
    kept_generators: tuple[SampleGenerator, ...] = ()
    """Those of objects that have drawn something else from them before."""
    worker_seeds: tuple[Site, ...] = ()
    """Numbers by which a `worker_init_fn` seeds the workers of a loader, the same on all ranks."""
    worker_generators: tuple[Site, ...] = ()
    """Calls of loaders with a generator that all ranks seed alike, from which torch seeds their workers."""
    names_device: bool = True
    norms_in_lists: bool = False
    """Whether a model runs layers of batch normalisation out of plain lists."""
    default_device: bool = False
    """Tensors are made on a GPU unless something else is said."""
    """Whether any file speaks of one: others train on the CPU, whatever there is."""
    devices: tuple[Numbered, ...] = ()
    hidden_devices: tuple[Site, ...] = ()
    asked_devices: tuple[tuple[Site, ast.expr], ...] = ()
    """Where the script reads which devices it has left visible, with what it has set."""
    set_devices: tuple[Site, ...] = ()
    concerns: tuple[Concern, ...] = ()
    shards: Shards = Shards()
    parted: tuple[PartedOptimizer, ...] = ()
    optimizer_states: tuple[OptimizerState, ...] = ()
    preemption: Preemption | None = None
    """Only where it is asked for."""

    @property
    def trains(self) -> bool:
        """Whether there is something to distribute, and nothing stands against it."""
        return not any(concern.severity is Severity.REFUSAL for concern in self.concerns)
