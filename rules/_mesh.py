"""What converted scripts define to shard within a node and replicate between nodes."""

from __future__ import annotations

from autodist.rule import Context
from autodist.script import TrainingScript
from autodist.source import Source

from ._preamble import Planned, defined, dist, imported, member

MESH = '''\
def nodes_and_ranks(kind):
    """The ranks by node: parameters are sharded within a node, and replicated between nodes."""
    local = int({os}.environ.get("LOCAL_WORLD_SIZE", 1))
    shape = ({d}.get_world_size() // local, local)
    return {init}(kind, shape, mesh_dim_names=("replicate", "shard"))


'''


def nodes_and_ranks(script: TrainingScript, context: Context, source: Source) -> Planned:
    """`nodes_and_ranks`."""
    d, edits = dist(context, source)
    os, os_import = imported(context, source, "os")
    init, init_import = member(context, source, "torch.distributed.device_mesh", "init_device_mesh")
    code = MESH
    for placeholder, name in (("d", d), ("os", os), ("init", init)):
        code = code.replace(f"{{{placeholder}}}", name)
    return (*edits, *os_import, *init_import, *defined(script, source, code))
