"""Starts a script that is written for GPUs on CPUs, for the judge: its own code is not changed.

The words of start.json start it; a number in braces is one for all ranks together, of which each gets its share, and so
is that of the line `divided`, if there is one. Clocks stand still, so that printed times agree. Once the script is
through, what its optimizer has trained is in trained.pt. With `alone`, nothing else is left to compare: the ranks
work in a copy, and print nothing.
"""

import functools
import json
import os
import re
import shutil
import sys
import time
import types
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_post_hook

HOME = Path.cwd()
RANK, RANKS = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
CPU = torch.device("cpu")
trained = []


def on_cpu(value):
    """The CPU for every GPU, however it is named; anything else as it is."""
    if isinstance(value, torch.device):
        return CPU if value.type == "cuda" else value
    if isinstance(value, str):
        return "cpu" if value.startswith("cuda") else value
    return CPU if type(value) is int else value


def moved(method):
    @functools.wraps(method)
    def wrapper(self, *args, **kwargs):
        return method(self, *map(on_cpu, args), **{name: on_cpu(value) for name, value in kwargs.items()})

    return wrapper


for owner in (torch.Tensor, torch.nn.Module):
    owner.to = moved(owner.to)
    owner.cuda = lambda self, *args, **kwargs: self
torch.cuda.set_device = lambda device: None

load, meet, wrap = torch.load, dist.init_process_group, DistributedDataParallel.__init__
make_loader = torch.utils.data.DataLoader.__init__


def load_on_cpu(file, map_location=None, **options):
    return load(file, map_location=CPU, **options)


def meet_by_gloo(backend=None, *args, **kwargs):
    meet("gloo", *args, **kwargs)


def wrap_on_cpu(self, module, device_ids=None, output_device=None, *args, **kwargs):
    wrap(self, module, None, None, *args, **kwargs)


def make_loader_here(self, *args, num_workers=0, **options):
    make_loader(self, *args, **options)


torch.load, torch.distributed.init_process_group = load_on_cpu, meet_by_gloo
DistributedDataParallel.__init__ = wrap_on_cpu
torch.utils.data.DataLoader.__init__ = make_loader_here


@register_optimizer_step_post_hook
def remember(optimizer, args, kwargs):
    trained[:] = [each for group in optimizer.param_groups for each in group["params"]]


def main():
    told = json.loads(Path("start.json").read_text())
    words = [re.sub(r"\{(\d+)\}", lambda found: str(int(found[1]) // RANKS), word) for word in told["words"]]
    if told["alone"]:
        work = HOME.parent / "alone"
        if RANK == 0:
            shutil.copytree(HOME, HOME.parent / "copying").rename(work)
        while not work.exists():
            time.sleep(0.01)
        os.chdir(work)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.argv = words
    sys.path[0] = str(Path(words[0]).resolve().parent)
    time.time = lambda: 0.0
    text = Path(words[0]).read_text()
    if told["divided"]:
        assert text.count(told["divided"]) == 1, told["divided"]
        text = text.replace(told["divided"], f"{told['divided']} // {RANKS}")
    script = sys.modules["__main__"] = types.ModuleType("__main__")
    script.__file__ = words[0]
    exec(compile(text, words[0], "exec"), vars(script))
    if RANK == 0:
        torch.save([each.detach() for each in trained], HOME / "trained.pt")


if __name__ == "__main__":
    main()
