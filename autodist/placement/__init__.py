"""How values lie over the ranks of the data-parallel group, and what operations make of that.

`lattice.py` holds the placements, `transfer.py` asks the one transfer function of an operation's class. Pure functions
of what is known about a call: nothing here reads source or needs torch.
"""

from autodist.placement.call import Call, Operand
from autodist.placement.lattice import Each, Partial, PerRank, Placement, Replicate, Shard, join
from autodist.placement.transfer import transfer

__all__ = ["Call", "Each", "Operand", "Partial", "PerRank", "Placement", "Replicate", "Shard", "join", "transfer"]
