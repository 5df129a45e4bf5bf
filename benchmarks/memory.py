"""What a rank holds under ``--strategy fsdp``, beside the original: parameters, gradients and optimizer state.

    python -m benchmarks.memory [--nproc 2,4]
    python -m benchmarks.memory --meta-device [--nproc 2,4]

A transformer of 103 million parameters is trained for two steps with AdamW, by the script below and by its conversion.
Each process counts the bytes of the tensors that it holds after the last step. A rank should hold 1/N of the original.

With ``--meta-device`` the same model is made and sharded, with that option and without: how far the memory of each
process rises by then, which is that of its host.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from autodist.config import Config, Strategy
from autodist.convert import convert
from autodist.project import Project

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Model(nn.Module):
    def __init__(self, vocabulary=16384, width=768, depth=11):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        layers = [nn.TransformerEncoderLayer(width, 12, 4 * width, dropout=0.0, batch_first=True) for _ in range(depth)]
        self.layers = nn.ModuleList(layers)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


torch.manual_seed(0)
tokens = torch.randint(16384, (8, 9))
loader = DataLoader(TensorDataset(tokens[:, :-1], tokens[:, 1:]), batch_size=4, shuffle=True)
model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for x, y in loader:
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten()).backward()
    optimizer.step()
"""

COUNT = """

import json, os


def bytes_of(tensors):
    local = [t.to_local() if hasattr(t, "to_local") else t for t in tensors if torch.is_tensor(t)]
    return sum(t.numel() * t.element_size() for t in local)


held = {
    "parameters": bytes_of(model.parameters()),
    "gradients": bytes_of(p.grad for p in model.parameters()),
    "optimizer state": bytes_of(v for values in optimizer.state.values() for v in values.values()),
    "count": sum(p.numel() for p in model.parameters()),
}
with open(f"held{os.environ.get('RANK', 0)}.json", "w") as file:
    json.dump(held, file)
"""
PEAK = """

import json, os, resource, sys

peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - START
with open(f"held{os.environ.get('RANK', 0)}.json", "w") as file:
    json.dump({"peak": peak, "count": sum(p.numel() for p in model.parameters())}, file)
torch.distributed.barrier()
sys.exit()
"""
BEGIN = "import resource\n\nSTART = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024\n"
MAKE = "torch.manual_seed(0)\n"
OPTIMIZER = "optimizer = "
KINDS = ("parameters", "gradients", "optimizer state")
ALLOWED = 0.1


def measured(folder: Path, text: str, nproc: int | None) -> list[dict[str, int]]:
    """What each process holds, or whatever a script writes down."""
    (folder / "train.py").write_text(text, encoding="utf-8")
    launch = [] if nproc is None else ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(nproc)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, *launch, "train.py"], cwd=folder, env=environment, check=True)
    return [json.loads((folder / f"held{rank}.json").read_text()) for rank in range(nproc or 1)]


def peaks(folder: Path, nproc: int, meta_device: bool) -> list[dict[str, int]]:
    """How far the memory of each rank rises while the model is made and sharded; imports are not counted."""
    after = convert(Project.load(folder / "before.py"), Config(Strategy.FSDP, meta_device=meta_device)).entry.after
    made, _, trained = after.rpartition("\n" + OPTIMIZER)
    assert made and trained
    imports, _, rest = made.rpartition(f"\n{MAKE}")
    return measured(folder, f"{imports}\n{BEGIN}{MAKE}{rest}{PEAK}", nproc)


def compare_making(folder: Path, counts: Sequence[int]) -> int:
    """Print how much memory making a model takes with ``--meta-device`` and without; 1 if it saves none."""
    most = 0.0
    for nproc in counts:
        others = []
        for meta_device in (False, True):
            ranks = peaks(folder, nproc, meta_device)
            sizes = ", ".join(f"{rank['peak'] / 1e6:.0f}" for rank in ranks)
            print(f"{nproc} ranks, {'--meta-device' if meta_device else 'without'}: {sizes} MB")
            others.append(max(rank["peak"] for rank in ranks[1:]))
        most = max(most, others[1] / others[0])
    print(f"ranks other than 0 need at most {most:.2f} of what they need without")
    return 0 if most < 1 else 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print a table; 1 if a rank holds more than it should."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nproc", default="2,4")
    parser.add_argument("--meta-device", action="store_true")
    options = parser.parse_args(arguments)
    worst = 0.0
    with tempfile.TemporaryDirectory(prefix="autodist-memory-") as name:
        folder = Path(name)
        (folder / "before.py").write_text(SCRIPT, encoding="utf-8")
        if options.meta_device:
            return compare_making(folder, [int(each) for each in options.nproc.split(",")])
        (original,) = measured(folder, SCRIPT + COUNT, None)
        after = convert(Project.load(folder / "before.py"), Config(Strategy.FSDP)).entry.after
        print(f"{original['count'] / 1e6:.1f} million parameters; MB held after a step")
        print(f"{'':12}" + "".join(f"{kind:>18}" for kind in KINDS))
        print(f"{'original':12}" + "".join(f"{original[kind] / 1e6:>18.1f}" for kind in KINDS))
        for nproc in map(int, options.nproc.split(",")):
            ranks = measured(folder, after + COUNT, nproc)
            most = {kind: max(rank[kind] for rank in ranks) for kind in KINDS}
            shares = {kind: most[kind] * nproc / original[kind] for kind in KINDS}
            worst = max(worst, *(abs(share - 1) for share in shares.values()))
            cells = "".join(f"{most[kind] / 1e6:>10.1f} ({shares[kind]:.3f})" for kind in KINDS)
            print(f"{f'1 of {nproc} ranks':12}{cells}")
    print(f"in brackets: times N, over the original; at most {worst:.1%} from 1")
    return 0 if worst <= ALLOWED else 1


if __name__ == "__main__":
    sys.exit(main())
