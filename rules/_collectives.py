"""The functions over all ranks that a converted script may define: `{d}` is torch.distributed in it."""

from __future__ import annotations

REDUCTIONS = {
    "reduce_mean": '''\
def reduce_mean(value):
    """The mean of a number or tensor over all ranks."""
    mean = {torch}.as_tensor(value, dtype={torch}.float64).detach() / {d}.get_world_size()
    {d}.all_reduce(mean)
    return mean.to(value) if {torch}.is_tensor(value) else mean.item()


''',
    "reduce_sum": '''\
def reduce_sum(value):
    """The sum of a number or tensor over all ranks."""
    total = {torch}.as_tensor(value, dtype={torch}.float64).detach().clone()
    {d}.all_reduce(total)
    return total.to(value) if {torch}.is_tensor(value) else type(value)(total.item())


''',
    "reduce_max": '''\
def reduce_max(value):
    """The largest of the numbers that the ranks have."""
    most = {torch}.as_tensor(value, dtype={torch}.float64).detach().clone()
    {d}.all_reduce(most, {d}.ReduceOp.MAX)
    return most.to(value) if {torch}.is_tensor(value) else type(value)(most.item())


''',
    "reduce_min": '''\
def reduce_min(value):
    """The smallest of the numbers that the ranks have."""
    least = {torch}.as_tensor(value, dtype={torch}.float64).detach().clone()
    {d}.all_reduce(least, {d}.ReduceOp.MIN)
    return least.to(value) if {torch}.is_tensor(value) else type(value)(least.item())


''',
    "mean_over_ranks": '''\
def mean_over_ranks(values):
    """The mean of the values of all ranks, which may have different numbers of them."""
    own = {torch}.as_tensor(values, dtype={torch}.float64).detach().cpu()
    total = {torch}.stack([own.sum(), own.new_tensor(own.numel())])
    {d}.all_reduce(total)
    mean = total[0] / total[1]
    return mean.to(values) if {torch}.is_tensor(values) else mean.numpy()[()]


''',
    "gather_rows": '''\
def gather_rows(rows):
    """The rows of all ranks, a tensor, an array or a list, in the order of the whole data."""
    parts = [None] * {d}.get_world_size()
    if not hasattr(rows, "shape"):
        {d}.all_gather_object(parts, rows)
        return [row for group in zip(*parts) for row in group]
    own = {torch}.as_tensor(rows).detach().contiguous()
    parts = [{torch}.empty_like(own) for _ in parts]
    {d}.all_gather(parts, own)
    whole = {torch}.stack(parts, 1).flatten(0, 1)
    return whole if {torch}.is_tensor(rows) else whole.numpy()


''',
}

OF_NUMBERS = {
    "reduce_mean": '''\
def reduce_mean(value):
    """The mean of a number over all ranks."""
    mean = {torch}.tensor(value / {d}.get_world_size(), dtype={torch}.float64)
    {d}.all_reduce(mean)
    return mean.item()


''',
    "reduce_sum": '''\
def reduce_sum(value):
    """The sum of a number over all ranks."""
    total = {torch}.tensor(value, dtype={torch}.float64)
    {d}.all_reduce(total)
    return type(value)(total.item())


''',
}
"""The same for scripts that reduce nothing but numbers of Python."""

OF_TENSORS = {
    "reduce_mean": '''\
def reduce_mean(value):
    """The mean of a tensor over all ranks."""
    mean = value.detach().double() / {d}.get_world_size()
    {d}.all_reduce(mean)
    return mean.to(value)


''',
    "reduce_sum": '''\
def reduce_sum(value):
    """The sum of a tensor over all ranks."""
    total = value.detach().to({torch}.float64, copy=True)
    {d}.all_reduce(total)
    return total.to(value)


''',
}
"""The same for scripts that reduce nothing but tensors."""

OF_NUMPY = {
    "reduce_mean": '''\
def reduce_mean(value):
    """The mean of a number or tensor over all ranks."""
    mean = {torch}.as_tensor(value, dtype={torch}.float64).detach() / {d}.get_world_size()
    {d}.all_reduce(mean)
    if {torch}.is_tensor(value):
        return mean.to(value)
    return type(value / 1)(mean.item())  # a float, or one of NumPy


''',
}
"""The same for scripts that use NumPy, of whose numbers lists and tuples print the type."""

OF_MANY = {
    "reduce_mean": '''\
def reduce_mean(value):
    """The mean of a number, tensor, array or list over all ranks."""
    mean = {torch}.as_tensor(value, dtype={torch}.float64).detach() / {d}.get_world_size()
    {d}.all_reduce(mean)
    if {torch}.is_tensor(value):
        return mean.to(value)
    return mean.numpy()[()] if hasattr(value, "dtype") else mean.tolist()


''',
    "reduce_sum": '''\
def reduce_sum(value):
    """The sum of a number, tensor, array or list over all ranks."""
    total = {torch}.as_tensor(value, dtype={torch}.float64).detach().clone()
    {d}.all_reduce(total)
    if {torch}.is_tensor(value):
        return total.to(value)
    if isinstance(value, list):
        pairs = zip(value, total.tolist())
        return [own.new_tensor(whole) if {torch}.is_tensor(own) else type(own)(whole) for own, whole in pairs]
    return total.numpy().astype(value.dtype)[()] if hasattr(value, "dtype") else type(value)(total.item())


''',
}
"""The same for scripts that keep such numbers in lists or arrays of NumPy."""

FROM_ALL_RANKS = '''\
def from_all_ranks(values):
    """What each rank has, in the order of the ranks."""
    parts = [None] * {d}.get_world_size()
    {d}.all_gather_object(parts, values)
    return parts


'''

TENSORS_FROM_ALL_RANKS = '''\
def from_all_ranks(values):
    """What each rank has, in the order of the ranks; what is on their GPUs comes to this rank's."""

    def packed(value):
        if type(value) in (list, tuple):
            return type(value)(map(packed, value))
        if isinstance(value, dict):
            return {key: packed(each) for key, each in value.items()}
        return frozenset([value.cpu()]) if {torch}.is_tensor(value) and value.is_cuda else value

    def unpacked(value):
        if type(value) in (list, tuple):
            return type(value)(map(unpacked, value))
        if isinstance(value, dict):
            return {key: unpacked(each) for key, each in value.items()}
        return next(iter(value)).cuda() if isinstance(value, frozenset) else value

    parts = [None] * {d}.get_world_size()
    {d}.all_gather_object(parts, packed(values))
    return unpacked(parts)


'''
"""The same where tensors may be on GPUs, of which each rank has its own."""

OVER_RANKS = {
    "sum_over_ranks": '''\
def sum_over_ranks(*values):
    """The sums over all ranks of numbers, tensors and arrays."""
    return [sum(others, first) for first, *others in zip(*from_all_ranks(values))]


''',
    "max_over_ranks": '''\
def max_over_ranks(*values):
    """The largest of what the ranks have."""
    return [max(each) for each in zip(*from_all_ranks(values))]


''',
    "min_over_ranks": '''\
def min_over_ranks(*values):
    """The smallest of what the ranks have."""
    return [min(each) for each in zip(*from_all_ranks(values))]


''',
    "join_over_ranks": '''\
def join_over_ranks(*lists):
    """The lists of all ranks as one, in the order of the data, of which each rank has evaluated its share."""
    return [[value for own in owns for value in own] for owns in zip(*from_all_ranks(lists))]


''',
    "add_over_ranks": '''\
def add_over_ranks(table):
    """Add up what all ranks have under each key of a dict: numbers, tensors, or lists in the order of the data."""
    parts = from_all_ranks(dict(table))
    table.clear()
    for part in parts:
        for key, value in part.items():
            table[key] = table[key] + value if key in table else value


''',
}
"""What makes global what an evaluation has left, of which each rank has run whole batches: some ranks maybe none."""

OWN_SHARE = '''\
def own_share(loader):
    """A loader of this rank's share of another one's batches: the same batches, share behind share."""
    rank, ranks = {d}.get_rank(), {d}.get_world_size()
    first, last = (-(-len(loader) * each // ranks) for each in (rank, rank + 1))
    return {loader}(
        loader.dataset,
        batch_sampler=list(loader.batch_sampler)[first:last],{options}
    )


'''

SAME_BUFFERS = '''\
def same_buffers(model):
    """Give all ranks the buffers of rank 0: statistics of BatchNorm, which is synchronised on GPUs alone."""
    for buffer in model.buffers():
        if not buffer.is_cuda:
            {d}.broadcast(buffer, 0)


'''

WEIGH = '''\
def weigh_by_count(loss, count):
    """Scale a mean over ``count`` elements so that its average over ranks is the mean over the elements of all."""
    share = {torch}.as_tensor(count, dtype={torch}.float64, device=loss.device)
    total = share.clone()
    {d}.all_reduce(total)
    share = share * {d}.get_world_size() / total
    return {torch}.where(share != 0, loss * share.to(loss), 0)  # a rank may have none


'''

MEAN_COUNT = '''\
def mean_count(count):
    """The average count of a rank: sums divided by it average over ranks to the mean over the batch."""
    mean = {torch}.as_tensor(count, dtype={torch}.get_default_dtype()).detach().clone()
    {d}.all_reduce(mean)
    return mean / {d}.get_world_size()


'''

JOIN = '''\
class SumOverRanks({torch}.autograd.Function):
    """The sum of a tensor over all ranks, through which gradients flow back to what each of them has."""

    @staticmethod
    def forward(ctx, value):
        total = value.clone()
        {d}.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx, gradient):
        return SumOverRanks.apply(gradient)


'''

GATHER = '''\
class RowsOfAllRanks({torch}.autograd.Function):
    """The rows of all ranks in the order of the whole batch, through which gradients flow back to each rank's own."""

    @staticmethod
    def forward(ctx, rows):
        parts = [{torch}.empty_like(rows) for _ in range({d}.get_world_size())]
        {d}.all_gather(parts, rows.contiguous())
        return {torch}.stack(parts, 1).flatten(0, 1)

    @staticmethod
    def backward(ctx, gradient):
        total = gradient.clone()
        {d}.all_reduce(total)
        return total[{d}.get_rank() :: {d}.get_world_size()]


'''

GATHER_TOGETHER = (
    GATHER.replace("in the order of the whole batch", "one after the other")
    .replace("{torch}.stack(parts, 1).flatten(0, 1)", "{torch}.cat(parts)")
    .replace("total[{d}.get_rank() :: {d}.get_world_size()]", "total.chunk({d}.get_world_size())[{d}.get_rank()]")
)
"""The same where several rows of each sample stand beside each other."""

GATHER_IN_TRAINING = '''\
def gather_in_training(rows):
    """The rows of all ranks in training. In evaluation every rank has all of the data."""
    return RowsOfAllRanks.apply(rows) if {torch}.is_grad_enabled() else rows


'''

IN_TRAINING = '''\
def sum_in_training(value):
    """The sum of a tensor over all ranks in training. In evaluation every rank has all of the data."""
    return SumOverRanks.apply(value) if {torch}.is_grad_enabled() else value


'''

UNEVEN = '''\
def gather_rows(rows):
    """The rows of all ranks in the order of the whole data; another rank may have one row more."""
    own = {torch}.as_tensor(rows).detach()
    parts = [None] * {d}.get_world_size()
    {d}.all_gather_object(parts, own.cpu())
    whole = own.new_empty(sum(map(len, parts)), *own.shape[1:])
    for rank, part in enumerate(parts):
        whole[rank :: len(parts)] = part
    return whole if {torch}.is_tensor(rows) else whole.numpy()


'''
"""`gather_rows` where the data need not divide by the number of ranks."""

PADDED = '''\
def gather_rows(rows):
    """The rows of all ranks in the order of the whole data, filled up with zeros to the longest."""
    parts = [None] * {d}.get_world_size()
    {d}.all_gather_object(parts, {torch}.as_tensor(rows).detach().cpu() if hasattr(rows, "shape") else rows)
    if not hasattr(rows, "shape"):
        return [row for group in zip(*parts) for row in group]
    longest = (max(sizes) for sizes in zip(*(part.shape[1:] for part in parts)))
    whole = parts[0].new_zeros(sum(map(len, parts)), *longest)
    for rank, part in enumerate(parts):
        whole[(slice(rank, None, len(parts)), *map(slice, part.shape[1:]))] = part
    return whole.to(rows) if {torch}.is_tensor(rows) else whole.numpy()


'''
"""`gather_rows` where each rank fills its samples up to its own longest one."""

AS_BYTES = (
    REDUCTIONS["gather_rows"]
    .replace(
        "    parts = [{torch}.empty_like(own) for _ in parts]\n    {d}.all_gather(parts, own)\n",
        "    held = own.view(len(own), -1).view({torch}.uint8)  # as bytes: no backend knows all types\n"
        "    parts = [{torch}.empty_like(held) for _ in parts]\n    {d}.all_gather(parts, held)\n",
    )
    .replace(".flatten(0, 1)\n", ".flatten(0, 1).view(own.dtype).view(-1, *own.shape[1:])\n")
)
"""`gather_rows` of types that gloo and NCCL do not send: short integers and complex numbers."""

SETTINGS_AS_ON_RANK_ZERO = """\
def with_settings_of_rank_zero(run):
    \"\"\"A sweep sets the configuration of rank 0's run, which all ranks take.\"\"\"
    settings = as_on_rank_zero(dict(run.config))
    if {d}.get_rank() != 0:
        run.config.update(settings, allow_val_change=True)
    return run


"""
AS_ON_RANK_ZERO = '''\
def as_on_rank_zero(value):
    """The value that rank 0 has."""
    box = [value]
    {d}.broadcast_object_list(box)
    return box[0]


'''

SHARED_STUDY = '''\
def shared_study(make):
    """The study that rank 0 makes or loads; the other ranks hold a copy of it in memory."""
    study = make() if {d}.get_rank() == 0 else None
    made = study and (study.study_name, study.directions, study.trials, study.user_attrs)
    name, directions, trials, attributes = as_on_rank_zero(made)
    if study is None:
        {optuna}.logging.set_verbosity({optuna}.logging.ERROR)  # rank 0 tells of the trials
        study = {optuna}.create_study(study_name=name, directions=directions)
        study.add_trials(trials)
        for key, value in attributes.items():
            study.set_user_attr(key, value)
    return study


'''

SHARED_TRIAL = '''\
class SharedTrial:
    """A trial of rank 0 that all ranks run: rank 0 calls its methods, and all ranks get what they return."""

    def __init__(self, study, trial=None):
        self.study, self._trial = study, trial
        self._call()

    def __getattr__(self, name):
        if not callable(getattr({optuna}.Trial, name, None)):
            raise AttributeError(name)
        return lambda *args, **kwargs: self._call(name, *args, **kwargs)

    def _call(self, method=None, *args, **kwargs):
        result = error = state = None
        if {d}.get_rank() == 0:
            try:
                result = method and getattr(self._trial, method)(*args, **kwargs)
            except Exception as raised:
                error = raised
            kept = ("number", "params", "distributions", "user_attrs", "datetime_start")
            state = {name: getattr(self._trial, name) for name in kept}
        result, error, state = as_on_rank_zero((result, error, state))
        vars(self).update(state)
        if error is not None:
            raise error
        return result


'''

STUDY_ON_ALL_RANKS = '''\
class StudyOnAllRanks:
    """A study whose trials all ranks run: rank 0 leads the search, and the others join in each trial."""

    def __init__(self, study):
        self.study = study

{methods}    def update(self):
        vars(self.study).update(vars(shared_study(lambda: self.study)))  # the trials so far


'''

RUN_STUDY = """\
    def optimize(self, func, *args, **options):
        def lead(trial):
            as_on_rank_zero(True)  # another trial begins
            return self.run(func, trial)

        if {d}.get_rank() == 0:
            self.study.optimize(lead, *args, **options)
            as_on_rank_zero(False)
        else:
            while as_on_rank_zero(None):
                try:
                    self.run(func)
                except {optuna}.TrialPruned:
                    pass
        self.update()

    def run(self, func, trial=None):
        self.update()
        return func(SharedTrial(self.study, trial))

"""

RUN_STUDY_AND_CATCH = (
    RUN_STUDY.replace("*args, **options):", "*args, catch=(), **options):")
    .replace("*args, **options)\n", "*args, catch=catch, **options)\n")
    .replace(
        "except {optuna}.TrialPruned:",
        "except ({optuna}.TrialPruned, *(catch if isinstance(catch, tuple) else [catch])):",
    )
)

RUN_STUDY_AND_CATCH_BY_PLACE = RUN_STUDY_AND_CATCH.replace(
    "*args, catch=(), **options):", "n_trials=None, timeout=None, n_jobs=1, catch=(), *args, **options):"
).replace("*args, catch=catch, **options)", "n_trials, timeout, n_jobs, catch, *args, **options)")

ASK_STUDY = """\
    def ask(self, *args, **kwargs):
        trial = self.study.ask(*args, **kwargs) if {d}.get_rank() == 0 else None
        self.update()
        return SharedTrial(self.study, trial)

    def tell(self, trial, *args, **kwargs):
        if {d}.get_rank() == 0:
            self.study.tell(getattr(trial, "_trial", trial), *args, **kwargs)
        self.update()
        return self.study.trials[getattr(trial, "number", trial)]

"""

LED_SEARCH = '''\
def search_on_all_ranks(objective, search):
    """Let rank 0 search; the other ranks join in each trial, and get what the search has found."""

    def lead(*args, **kwargs):
        as_on_rank_zero((args, kwargs))
        return objective(*args, **kwargs)

    found = None
    if {d}.get_rank() == 0:
        found = search(lead)
        as_on_rank_zero(None)  # no further trial
    else:
        while (trial := as_on_rank_zero(None)) is not None:
            args, kwargs = trial
            objective(*args, **kwargs)
    return as_on_rank_zero(found)


'''

DRAWN_BY_RANK_ZERO = '''\
def drawn_by_rank_zero(drawn):
    """What rank 0 has drawn, for the batch of all ranks."""
    drawn = drawn.contiguous()
    {d}.broadcast(drawn, 0)
    return drawn


'''

ON_ANY_RANK = '''\
def on_any_rank(flag):
    """Whether a flag is set on any rank."""
    found = {torch}.tensor(float(bool(flag)))
    {d}.all_reduce(found, {d}.ReduceOp.MAX)
    return bool(found)


'''

COLLECTIVES = {
    **REDUCTIONS,
    "concatenated": '''\
def concatenated(tensor):
    """The rows of all ranks, rank by rank; they may have different numbers of them."""
    counts = {torch}.zeros({d}.get_world_size(), dtype={torch}.int64)
    counts[{d}.get_rank()] = len(tensor)
    {d}.all_reduce(counts)
    parts = [tensor.new_empty(int(count), *tensor.shape[1:]) for count in counts]
    parts[{d}.get_rank()] = tensor.detach().contiguous()
    for rank, part in enumerate(parts):
        {d}.broadcast(part, rank)
    return {torch}.cat(parts)


''',
    "broadcast": '''\
def broadcast(tensor, root):
    """The tensor that rank ``root`` has."""
    tensor = tensor.clone()
    {d}.broadcast(tensor, root)
    return tensor


''',
    "broadcast_object": '''\
def broadcast_object(value, root):
    """The value that rank ``root`` has."""
    box = [value]
    {d}.broadcast_object_list(box, root)
    return box[0]


''',
    "gathered": '''\
def gathered(value):
    """The values of all ranks, in a list."""
    parts = [None] * {d}.get_world_size()
    {d}.all_gather_object(parts, value)
    return parts


''',
}
