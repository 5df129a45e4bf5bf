"""What converted scripts define to write whole tensors to files and to read them back into shards."""

from __future__ import annotations

from autodist.rule import Context
from autodist.script import TrainingScript
from autodist.source import Source

from ._preamble import Planned, defined, dist, imported, member

STATES = "torch.distributed.checkpoint.state_dict"

GATHER = '''\
def gather_shards(state):
    """Whole tensors in place of a checkpoint's shards, on rank 0; a collective, so all ranks must call it."""
    if isinstance(state, {DTensor}):
        tensor = state.full_tensor()
        return tensor.cpu() if {d}.get_rank() == 0 else None
    if isinstance(state, dict):
        state = {copy}.copy(state)
        for key, value in state.items():
            state[key] = gather_shards(value)
    elif isinstance(state, (list, tuple)):
        state = type(state)(gather_shards(value) for value in state)
    return state


'''

SAVE = '''\
def save_gathered(state, file):
    """Write a checkpoint of whole tensors: all ranks gather it, rank 0 writes."""
    state = gather_shards(state)
    if {d}.get_rank() == 0:
        {torch}.save(state, file)


'''

SAVE_MODEL = '''\
def save_gathered(model, file):
    """Write a model's whole state dict: all ranks gather it, rank 0 writes."""
    state = {get_state}(model, options={Options}(full_state_dict=True, cpu_offload=True))
    if {d}.get_rank() == 0:
        {torch}.save(state, file)


'''

CUT = '''\
def cut_like(tensor, parameter):
    """This rank's shard of a whole tensor that belongs to a sharded parameter."""
    if not isinstance(parameter, {DTensor}) or isinstance(tensor, {DTensor}) or tensor.shape != parameter.shape:
        return tensor
    return {distribute}(tensor.to(parameter.device), parameter.device_mesh, parameter.placements)


'''

MODEL = '''\
def model_shards(state, model):
    """A model's state dict, with this rank's shards of whole tensors."""
    shards = model.state_dict()
    return {key: cut_like(value, shards.get(key)) for key, value in state.items()}


'''

FORMER = '''\
def shards_like(state, former):
    """This rank's shards of what was saved, where what it takes the place of is made of shards."""
    if isinstance(state, dict) and isinstance(former, dict):
        return type(state)((key, shards_like(value, former.get(key))) for key, value in state.items())
    if isinstance(state, (list, tuple)) and isinstance(former, (list, tuple)) and len(state) == len(former):
        return type(state)(shards_like(*each) for each in zip(state, former))
    return cut_like(state, former) if {torch}.is_tensor(state) else state


'''

PACK = '''\
def packed(state):
    """A state for a distributed checkpoint: dicts and lists without tensors are kept whole, each in a tuple."""
    inside = [state.values()] if isinstance(state, dict) else [state] if isinstance(state, (list, tuple)) else []
    inside = [packed(value) for values in inside for value in values]
    if not any({torch}.is_tensor(value) or isinstance(value, (dict, list)) for value in inside):
        return (state,) if isinstance(state, (dict, list)) else state
    if not isinstance(state, dict):
        return inside
    for key, value in state.items():
        assert isinstance(key, str) or isinstance(value, dict), f"key {key!r} would be saved as a string"
    return dict(zip(state, inside))


def unpacked(state):
    """The state that was packed."""
    if isinstance(state, tuple) and len(state) == 1 and isinstance(state[0], (dict, list)):
        return state[0]
    if not isinstance(state, dict):
        return [unpacked(value) for value in state] if isinstance(state, list) else state
    if state and all(isinstance(key, int) for key in state):
        return [unpacked(state[key]) for key in sorted(state)]
    numbered = all(key.isdecimal() and isinstance(value, dict) for key, value in state.items())
    return {int(key) if numbered else key: unpacked(value) for key, value in state.items()}


'''

WRITER = '''\
class CommittingWriter({Writer}):
    """Writes a checkpoint beside its place, and puts it there once all ranks have written: whole or not at all."""

    def reset(self, checkpoint_id=None):
        super().reset(f"{checkpoint_id}.part")
        self.folder = checkpoint_id

    def prepare_global_plan(self, plans):  # on rank 0, before any rank writes
        {shutil}.rmtree(self.path)  # a start that was ended may have left it
        {os}.mkdir(self.path)
        return super().prepare_global_plan(plans)

    def finish(self, metadata, results):  # on rank 0, after all ranks have written
        super().finish(metadata, results)
        former = f"{self.folder}.former"
        if {os}.path.isdir(self.folder):
            {shutil}.rmtree(former, ignore_errors=True)
            {os}.rename(self.folder, former)
        elif {os}.path.exists(self.folder):
            {os}.remove(self.folder)  # the file of a script for one process
        {os}.rename(self.path, self.folder)
        {shutil}.rmtree(former, ignore_errors=True)
'''

STAGE = '''
    def stage(self, state):
        """A copy on the CPU, since the training goes on; what holds no tensors keeps its types."""
        if isinstance(state, dict):
            return {key: self.stage(value) for key, value in state.items()}
        if isinstance(state, list):
            return [self.stage(value) for value in state]
        return state.detach().to("cpu", copy=True) if {torch}.is_tensor(state) else {copy}.deepcopy(state)
'''

SAVE_SHARDED = '''\
def save_sharded(state, folder):
    """Write a distributed checkpoint: every rank its shards, rank 0 what all ranks have."""
    writer, planner = CommittingWriter(folder), {Planner}(dedup_save_to_lowest_rank=True)
    {dcp}.save(packed(state), checkpoint_id=folder, storage_writer=writer, planner=planner)


'''

SAVE_ASYNC = '''\
saving = []  # the checkpoint that is being written


@{functools}.cache
def saving_group():
    """A process group of its own: the training talks in the other one meanwhile."""
    {atexit}.register(finish_at_exit)  # runs before the process group is left
    return {d}.new_group(backend="gloo")


def save_sharded(state, folder):
    """Write a distributed checkpoint while the training goes on: every rank its shards, rank 0 what all ranks have."""
    finish_save()
    writer, planner = CommittingWriter(folder), {Planner}(dedup_save_to_lowest_rank=True)
    saving.append(
        {dcp}.async_save(
            packed(state),
            checkpoint_id=folder,
            storage_writer=writer,
            planner=planner,
            process_group=saving_group(),
        )
    )


def finish_save():
    """Wait until the last checkpoint is in its place; raises on all ranks what went wrong on any."""
    if saving:
        saving.pop().result()


def finish_at_exit():
    """Wait for the last checkpoint; if it failed, so does the script."""
    try:
        finish_save()
    except BaseException:  # as CheckpointException is
        {traceback}.print_exc()
        {os}._exit(1)  # what is raised at exit changes no exit code


'''

LOAD_SHARDED = '''\
def load_sharded(path, *args, **options):
    """A distributed checkpoint, each rank with a part of its tensors; what is a file is loaded as one."""
    if not {os}.path.isdir(path):
        return {torch}.load(path, *args, **options)
    metadata = {dcp}.FileSystemReader(path).read_metadata()
    mesh = {init}("cuda" if {torch}.cuda.is_available() else "cpu", ({d}.get_world_size(),))
    flat, state = {}, {}
    for key, saved in metadata.state_dict_metadata.items():
        flat[key] = None
        if isinstance(saved, {Metadata}):
            flat[key] = {torch}.empty(saved.size, dtype=saved.properties.dtype)
            if len(saved.chunks) > 1:
                shard = [{dtensor}.Shard(0)]
                flat[key] = {dtensor}.empty(saved.size, dtype=flat[key].dtype, device_mesh=mesh, placements=shard)
    {dcp}.load(flat, checkpoint_id=path)
    for key, names in metadata.planner_data.items():
        place = state
        for name in names[:-1]:
            place = place.setdefault(name, {})
        place[names[-1]] = flat[key]
    return unpacked(state)


'''

WHOLE = '''\
def whole_tensors(state):
    """A model's state dict without shards; a collective, so all ranks must call it."""
    return {key: value.full_tensor() if isinstance(value, {DTensor}) else value for key, value in state.items()}


'''

CUT_ANY = '''\
def cut_like(tensor, parameter):
    """This rank's shard of a tensor, whole or cut already, that belongs to a sharded parameter."""
    if isinstance(tensor, {DTensor}) and getattr(parameter, "device_mesh", None) != tensor.device_mesh:
        tensor = tensor.full_tensor()
    if not isinstance(parameter, {DTensor}) or isinstance(tensor, {DTensor}) or tensor.shape != parameter.shape:
        return tensor
    return {distribute}(tensor.to(parameter.device), parameter.device_mesh, parameter.placements)


'''

OPTIMIZER = '''\
def optimizer_shards(state, optimizer):
    """An optimizer's state dict, with this rank's shards of whole tensors."""
    numbers = [number for group in state["param_groups"] for number in group["params"]]
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    shards = {
        number: {
            name: cut_like(value, parameter) if {torch}.is_tensor(value) else value
            for name, value in state["state"][number].items()
        }
        for number, parameter in zip(numbers, parameters)
        if number in state["state"]
    }
    return {**state, "state": shards}


'''


CLASS = '''\
def class_of(module):
    """The class that a module had before it was sharded."""
    return type(module).__mro__[2] if isinstance(module, {FSDPModule}) else type(module)


'''


def _filled(code: str, context: Context, source: Source) -> tuple[str, Planned]:
    names: dict[str, tuple[str, Planned]] = {}
    if "{DTensor}" in code:
        names["DTensor"] = member(context, source, "torch.distributed.tensor", "DTensor")
    if "{FSDPModule}" in code:
        names["FSDPModule"] = member(context, source, "torch.distributed.fsdp", "FSDPModule")
    if "{distribute}" in code:
        names["distribute"] = member(context, source, "torch.distributed.tensor", "distribute_tensor")
    if "{d}" in code:
        names["d"] = dist(context, source)
    if "{get_state}" in code:
        names["get_state"] = member(context, source, STATES, "get_model_state_dict")
        names["Options"] = member(context, source, STATES, "StateDictOptions")
    if "{Writer}" in code:
        names["Writer"] = member(context, source, "torch.distributed.checkpoint", "FileSystemWriter")
    if "{Planner}" in code:
        names["Planner"] = member(context, source, "torch.distributed.checkpoint", "DefaultSavePlanner")
    if "{Metadata}" in code:
        names["Metadata"] = member(context, source, "torch.distributed.checkpoint.metadata", "TensorStorageMetadata")
    if "{init}" in code:
        names["init"] = member(context, source, "torch.distributed.device_mesh", "init_device_mesh")
    for name, module in (("dcp", "torch.distributed.checkpoint"), ("dtensor", "torch.distributed.tensor")):
        if f"{{{name}}}" in code:
            names[name] = imported(context, source, module, name)
    for module in ("torch", "copy", "os", "shutil", "atexit", "functools", "traceback"):
        if f"{{{module}}}" in code:
            names[module] = imported(context, source, module)
    for placeholder, (name, _) in names.items():
        code = code.replace(f"{{{placeholder}}}", name)
    return code, tuple(edit for _, edits in names.values() for edit in edits)


def _define(script: TrainingScript, context: Context, source: Source, *codes: str) -> Planned:
    found: Planned = ()
    for code in codes:
        if not script.names_device:
            code = code.replace('"cuda" if {torch}.cuda.is_available() else "cpu"', '"cpu"')
        filled, imports = _filled(code, context, source)
        each = (f"{part}\n\n\n" for part in filled.rstrip("\n").split("\n\n\n"))
        found = (*found, *imports, *(edit for part in each for edit in defined(script, source, part)))
    return found


def gathering(script: TrainingScript, context: Context, source: Source) -> Planned:
    """`gather_shards`."""
    return _define(script, context, source, GATHER)


def naming_class(script: TrainingScript, context: Context, source: Source) -> Planned:
    """`class_of`."""
    return _define(script, context, source, CLASS)


def saving(script: TrainingScript, context: Context, source: Source) -> Planned:
    """`save_gathered`."""
    return _define(script, context, source, GATHER, SAVE)


def saving_model(script: TrainingScript, context: Context, source: Source) -> Planned:
    """`save_gathered`, where no source saves anything but the states of models."""
    return _define(script, context, source, SAVE_MODEL)


def saving_shards(script: TrainingScript, context: Context, source: Source) -> tuple[str, Planned]:
    """The name of `save_sharded` in a file, and what it needs."""
    if not context.config.async_checkpoints:
        return "save_sharded", _define(script, context, source, PACK, WRITER, SAVE_SHARDED)
    home = home_of_saves(script)
    if source is not home:
        return member(context, source, home.module, "save_sharded")
    return "save_sharded", _define(script, context, source, PACK, WRITER + STAGE, SAVE_ASYNC)


def home_of_saves(script: TrainingScript) -> Source:
    """The file that defines what writes checkpoints: one that the others can import it from."""
    sources = {site.source for site in (*script.shards.saves, *script.shards.files)}
    return next((each for each in sources if each is not script.project.entry), script.project.entry)


def finishing(script: TrainingScript, context: Context, source: Source) -> tuple[str, Planned]:
    """The name of `finish_save` in a file, and what it needs; none where nothing is written beside the training."""
    home = home_of_saves(script)
    if not context.config.async_checkpoints or not script.shards.saves or source not in (home, script.project.entry):
        return "", ()
    if source is not home:
        return member(context, source, home.module, "finish_save")
    return "finish_save", saving_shards(script, context, source)[1]


def loading_shards(script: TrainingScript, context: Context, source: Source) -> tuple[str, Planned]:
    """The name of `load_sharded` in a file, and what it needs."""
    finish, needed = finishing(script, context, source)
    home = home_of_saves(script)
    if finish and source is not home and any(site.source is home for site in script.shards.files):
        return member(context, source, home.module, "load_sharded")
    wait = f"    {finish}()\n" if finish else ""
    code = LOAD_SHARDED.replace("    if not {os}", f"{wait}    if not {{os}}", 1)
    return "load_sharded", (*needed, *_define(script, context, source, PACK, code))


def joining(script: TrainingScript, context: Context, source: Source) -> Planned:
    """`whole_tensors`."""
    return _define(script, context, source, WHOLE)


def _cut(context: Context) -> str:
    return CUT_ANY if context.config.folders else CUT


def cutting_model(script: TrainingScript, context: Context, source: Source) -> Planned:
    """`model_shards`."""
    return _define(script, context, source, _cut(context), MODEL)


def cutting(script: TrainingScript, context: Context, source: Source) -> Planned:
    """`cut_like`."""
    return _define(script, context, source, _cut(context))


def cutting_former(script: TrainingScript, context: Context, source: Source) -> Planned:
    """`shards_like`."""
    return _define(script, context, source, _cut(context), FORMER)


def cutting_optimizer(script: TrainingScript, context: Context, source: Source) -> Planned:
    """`optimizer_shards`."""
    return _define(script, context, source, _cut(context), OPTIMIZER)
